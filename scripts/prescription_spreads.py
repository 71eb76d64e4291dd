"""Spread of measured σ² before and after `hessdiag.prescribe`, on the draw it was found on and on the next one.

    python scripts/prescription_spreads.py      # writes figures/prescription_spreads.json; 3 minutes on one core

Five draws of weights, inputs and loss for each network. A recipe is a list of scales: what it does on the next draw,
with other weights, inputs and loss, says how much of the imbalance belongs to the architecture.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts"), str(ROOT / "scripts" / "paper")]

from standard_resnet import STANDARD  # noqa: E402
from zoo_networks import NETWORKS  # noqa: E402

import hessdiag  # noqa: E402
from hessdiag import init  # noqa: E402
from hessdiag.models import resolve_model  # noqa: E402

DRAWS, EXAMPLES = 5, 8
SIGMA_SQ = "avg_sq_singular_value"
NAMES = (
    "preact resnet-18",
    "preact resnet-50",
    "weighted residual",
    "rescalenet14",
    "preconditioned-resnet14",
    "resnet14",
)


def draw(name: str, seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A network with new weights, and new inputs; networks of the zoo get fan-in initialisation."""
    torch.manual_seed(seed)
    if name in NETWORKS:
        make, size = NETWORKS[name]
        return init.apply(make(), "fan-in"), torch.randn(EXAMPLES, *size)
    network = STANDARD[name]() if name in STANDARD else resolve_model(name).build().module
    return network, torch.randn(EXAMPLES, *network.input_size)


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name in NAMES:
        before, own, other = [], [], []
        for seed in range(DRAWS):
            model, x = draw(name, seed)
            recipe = hessdiag.prescribe(model, x, mode="eval", seed=seed)
            before.append(recipe.spread_before[SIGMA_SQ])
            own.append(recipe.spread[SIGMA_SQ])
            model, x = draw(name, seed + 1)
            report = hessdiag.diagnose(recipe.apply(model), x, mode="eval", seed=seed + 1)
            other.append(report.spread[SIGMA_SQ])
        weights = len(recipe.blocks)
        numbers = {"before": before, "after": own, "next_draw": other}
        rows.append(
            {"network": name, "weights": weights} | {k: [float(f"{v:.4g}") for v in n] for k, n in numbers.items()}
        )
        print(f"{name:24} {weights:3} " + " ".join(f"{k} {median(v):.3g}" for k, v in numbers.items()), flush=True)
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = f'{{\n "schema": "hessdiag.prescription-spreads/1",\n "networks": [\n  {lines}\n ]\n}}\n'
    (ROOT / "figures" / "prescription_spreads.json").write_text(text)


if __name__ == "__main__":
    main()
