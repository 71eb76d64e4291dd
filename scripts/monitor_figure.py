"""Balance through the first epochs: the strided LeNet on CIFAR-10 from four initialisations, watched by a Monitor.

    python scripts/monitor_figure.py --data-dir FOLDER_OF_data_batch_1.bin

Outputs are scaled to a standard deviation of 0.05 on the first batch, as in Section 10 of arXiv 1906.04267, and the
factor is kept. Each scheme trains at the rate of a grid that gives it the lowest loss; that choice needs no monitor.
"""

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from hessdiag import Monitor, init
from hessdiag.models import StridedLeNet
from hessdiag.view.plots import COLOURS, context, frame, label_decades, save

SCHEMES = ("fan-in", "fan-out", "arithmetic", "geometric")
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
BATCH, EVERY, EXAMPLES, OUTPUT_STD, LAST = 128, 10, 128, 0.05, 40


class Scaled(nn.Module):
    """A network with its outputs times a fixed factor."""

    def __init__(self, network: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            self.factor = OUTPUT_STD / float(network(x).std())

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.network(x)


def read_images(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    """The first images of CIFAR-10's binary layout, each channel with mean 0 and variance 1."""
    rows = torch.from_numpy(np.fromfile(folder / "data_batch_1.bin", dtype=np.uint8).reshape(-1, 3073)[:count].copy())
    x = rows[:, 1:].view(-1, 3, 32, 32).float()
    return (x - x.mean(dim=(0, 2, 3), keepdim=True)) / x.std(dim=(0, 2, 3), keepdim=True), rows[:, 0].long()


def train(
    data: tuple[Tensor, Tensor], scheme: str, rate: float, seed: int, epochs: int, *, watched: bool
) -> dict[str, Any]:
    """Losses of all steps, and the monitor's records."""
    x, t = data
    network = StridedLeNet()
    init.apply(network, scheme, generator=torch.Generator().manual_seed(seed))
    order = torch.Generator().manual_seed(seed)  # the same for all schemes
    model = Scaled(network, x[:BATCH])
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    monitor = Monitor(model, "cross-entropy", every=EVERY, overhead=1e6, examples=EXAMPLES)
    losses = []
    for _ in range(epochs):
        for chosen in torch.randperm(len(x), generator=order).split(BATCH):
            if watched:
                monitor.step(x[chosen], t[chosen])
            loss = F.cross_entropy(model(x[chosen]), t[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(round(loss.item(), 5))
    keys = ("step", "spread/sigma2", "spread/gamma", "spread/nu", "verdict", "lr/sgd")
    kept = [{k: v for k, v in r.items() if k in keys or k.startswith("sigma2/")} for r in monitor.history]
    return {"scheme": scheme, "rate": rate, "seed": seed, "losses": losses, "records": kept}


def final(run: dict[str, Any]) -> float:
    """Mean loss of the last steps; infinite where training diverged."""
    value = statistics.fmean(run["losses"][-LAST:])
    return value if math.isfinite(value) else math.inf


def best_rate(data: tuple[Tensor, Tensor], scheme: str, epochs: int) -> float:
    """The rate of the grid with the lowest loss at the end, of one seed."""
    found = {rate: final(train(data, scheme, rate, 0, epochs, watched=False)) for rate in RATES}
    print(scheme, found, flush=True)
    return min(found, key=lambda rate: found[rate])


def draw(measured: dict[str, Any]) -> Figure:
    """Spread of σ² above, loss below, against the step; a line is the median over seeds, its band all of them."""
    runs, steps_an_epoch = measured["runs"], measured["steps_per_epoch"]
    with context("whitegrid"):
        figure = Figure(figsize=(7.2, 4.8))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        handles = []
        for scheme, colour in zip(SCHEMES, COLOURS, strict=False):
            own = [run for run in runs if run["scheme"] == scheme]
            steps = [record["step"] / steps_an_epoch for record in own[0]["records"]]
            spreads = np.array([[record["spread/sigma2"] for record in run["records"]] for run in own])
            upper.fill_between(steps, spreads.min(axis=0), spreads.max(axis=0), color=colour, alpha=0.12, linewidth=0)
            label = f"{scheme}, rate {own[0]['rate']:g}"
            handles += upper.plot(steps, np.median(spreads, axis=0), color=colour, linewidth=1.6, label=label)
            losses = np.array([smoothed(run["losses"]) for run in own])
            epochs = (np.arange(losses.shape[1]) + LAST / 2) / steps_an_epoch
            lower.fill_between(epochs, losses.min(axis=0), losses.max(axis=0), color=colour, alpha=0.12, linewidth=0)
            lower.plot(epochs, np.median(losses, axis=0), color=colour, linewidth=1.6)
        upper.set_yscale("log")
        label_decades(upper.yaxis)
        upper.set_title(f"Balance\nσ² of weight blocks, largest over smallest, on {EXAMPLES} examples")
        lower.set_title(f"Training loss\nmean of {LAST} steps")
        lower.set_xlabel("epoch")
        upper.set_ylabel("max/min of σ²")
        lower.set_ylabel("cross-entropy")
        lower.set_xlim(0, math.ceil(epochs[-1]))
        frame(figure, title=title_of(measured), note=measured["note"], legend=handles)
    return figure


def title_of(measured: dict[str, Any]) -> str:
    """What the medians over seeds say of the start, and of the second half."""
    starts, ends = {}, []
    for scheme in SCHEMES:
        own = [run["records"] for run in measured["runs"] if run["scheme"] == scheme]
        median = np.median([[record["spread/sigma2"] for record in records] for records in own], axis=0)
        starts[scheme] = median[0]
        ends.append(math.exp(np.log(median[len(median) // 2 :]).mean()))
    low, high = min(starts, key=starts.__getitem__), max(starts, key=starts.__getitem__)
    return (
        f"σ² of the layers differs {starts[low]:.0f}× ({low}) to {round(starts[high], -2):,.0f}× ({high}) at the start,"
        f" and {min(ends):.0f}× to {max(ends):.0f}× later, whatever the start"
    )


def smoothed(losses: list[float]) -> np.ndarray:
    return np.convolve(losses, np.full(LAST, 1 / LAST), mode="valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of CIFAR-10's binary files")
    parser.add_argument("--images", type=int, default=9984)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--redraw", action="store_true", help="draw from OUT/monitor.json")
    options = parser.parse_args()
    path = options.out / "monitor.json"
    if not options.redraw:
        torch.set_num_threads(1)
        data = read_images(options.data_dir, options.images)
        runs = []
        for scheme in SCHEMES:
            rate = best_rate(data, scheme, options.epochs)
            for seed in range(options.seeds):
                runs.append(train(data, scheme, rate, seed, options.epochs, watched=True))
                last = runs[-1]["records"][-1]
                print(scheme, rate, seed, final(runs[-1]), runs[-1]["records"][0], last, flush=True)
        note = (
            f"strided LeNet · {options.images:,} images of CIFAR-10 · batch {BATCH} · SGD, momentum 0.9"
            f" · best of {len(RATES)} rates, by the loss at the end · outputs scaled to std {OUTPUT_STD} at the start"
            f" · median and range of {options.seeds} seeds · hessdiag.Monitor, every {EVERY} steps"
        )
        measured = {"note": note, "steps_per_epoch": -(-options.images // BATCH), "runs": runs}
        path.write_text(json.dumps(measured) + "\n", encoding="utf-8")
    save(draw(json.loads(path.read_text(encoding="utf-8"))), options.out / "monitor")


if __name__ == "__main__":
    main()
