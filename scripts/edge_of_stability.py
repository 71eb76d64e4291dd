"""Full-batch gradient descent at the edge of stability, as `hessdiag.Monitor` logs it.

Cohen et al. (ICLR 2021, arXiv 2103.00065): the largest eigenvalue of the Hessian climbs to 2 / rate and stays there.
A tanh network on the digits of scikit-learn, squared error, rate 0.01.

    python scripts/edge_of_stability.py [--steps 4000]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import hessdiag
from hessdiag.view import plots

RATE, EVERY, WIDTH, SCALE = 0.01, 50, 64, 20  # the scale makes 2 / rate one that this network reaches


def squared_error(y: Tensor, t: Tensor) -> Tensor:
    return SCALE * (y - t).square().sum(dim=1).mean()


def train(steps: int) -> list[dict[str, float]]:
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)
    x = (x - x.mean(dim=0)) / (x.std(dim=0) + 1e-3)
    t = torch.eye(10)[torch.tensor(digits.target)]
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    monitor = hessdiag.Monitor(model, squared_error, every=EVERY, overhead=100.0, optimizer=optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        loss = squared_error(model(x), t)
        loss.backward()
        optimizer.step()
        record = monitor.step(x, t)
        if record:
            record["training loss"] = float(loss.detach())
            print(
                step, {key: record[key] for key in record if "sharpness" in key or key == "training loss"}, flush=True
            )
    keys = ("step", "training loss", "sharpness/largest", "sharpness/step", "sharpness/edge")
    return [{key: float(record[key]) for key in keys} for record in monitor.history]


def draw(history: list[dict[str, float]]) -> Figure:
    steps = [record["step"] for record in history]
    with plots.context("whitegrid"):
        figure = Figure(figsize=(5.6, 3.0))
        axes = figure.subplots()
        for key, colour in zip(("largest", "step"), plots.COLOURS, strict=False):
            label = "λ_max" if key == "largest" else "along the step"
            axes.plot(steps, [record[f"sharpness/{key}"] for record in history], color=colour, label=label)
        axes.axhline(history[0]["sharpness/edge"], color="black", linestyle="--", linewidth=1, label="2 / rate")
        axes.set_xlabel("step of gradient descent")
        axes.set_ylabel("sharpness of the Hessian")
        note = f"tanh network 64-{WIDTH}-{WIDTH}-10 · digits, all 1,797 at each step · {SCALE}‖y − t‖² · rate {RATE}"
        handles, _ = axes.get_legend_handles_labels()
        plots.frame(figure, title="Gradient descent at the edge of stability", note=note, legend=handles)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    arguments = parser.parse_args()
    found = train(arguments.steps)
    arguments.out.mkdir(exist_ok=True)
    (arguments.out / "edge_of_stability.json").write_text(json.dumps(found, indent=1) + "\n")
    plots.save(draw(found), arguments.out / "edge_of_stability")
