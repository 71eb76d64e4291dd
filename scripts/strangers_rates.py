"""Learning rates of six of the strangers' convolutional networks: predicted, and the best of sweeps on CIFAR-10.

    python scripts/strangers_rates.py --data DATA     # about an hour on one core, in as many parts as one likes

Sweeps are those of `scripts/paper/learning_rates.py`, on images of 32×32 pixels in batches of 32, with dropout as the
author has it. A finished run is a line of OUT/strangers_rates.NAME.jsonl; OUT/strangers_rates.json has the results,
which `scripts/strangers.py` writes into docs/strangers.md.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hessdiag

sys.path[:0] = [str(Path(__file__).resolve().parent / "paper")]

import study  # noqa: E402
from learning_rate_networks import DATA, Case, batches  # noqa: E402
from learning_rates import START, best_of, good_of, sweep, train  # noqa: E402
from strangers import STRANGERS  # noqa: E402
from strangers.convolutional import DenseNet, EfficientNet, Vgg, plain  # noqa: E402

BATCH = 32
NETWORKS = {
    "VGG-11-BN": Vgg,
    "MobileNetV2": lambda: STRANGERS["MobileNetV2"].task(False).model,
    "DenseNet": partial(DenseNet, 8, (2, 2, 2)),
    "EfficientNet": EfficientNet,
    "GroupNorm CNN": partial(plain, nn.GroupNorm),
    "LayerNorm CNN": partial(plain, nn.LayerNorm),
}


@cache
def cifar(root: Path) -> tuple[Tensor, Tensor]:
    """10 000 images of CIFAR-10, each channel with mean 0 and variance 1."""
    rows = np.fromfile(root / "cifar10" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)
    pixels = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32))
    pixels = (pixels - pixels.mean((0, 2, 3), keepdim=True)) / pixels.std((0, 2, 3), keepdim=True)
    return pixels, torch.from_numpy(rows[:, 0].astype(np.int64))


def predict(case: Case, root: Path) -> dict[str, dict[str, Any]]:
    """Predict the rates of all optimisers, from fresh batches of the training's size."""
    draw = batches(case, root, size=case.batch, seed=1000)
    torch.manual_seed(0)
    model = case.make()
    found = hessdiag.learning_rates(
        model, (draw() for _ in range(300)), loss="cross-entropy", optimizers=tuple(START), progress=False
    )
    return {name: {"value": rate.value, "steps": rate.steps} for name, rate in found.items()}


def rows_of(name: str, asked: Any) -> Iterator[dict[str, Any]]:
    """Sweep a network: a row an optimiser."""
    case = Case(name, "cnn", NETWORKS[name], "cifar", batch=BATCH)
    runs = study.Runs(asked.runs / f"strangers_rates.{name.replace(' ', '-')}.jsonl")
    predicted = predict(case, asked.data)
    for optimizer, start in START.items():
        first = runs(f"{optimizer} 2^{start}", partial(train, case, optimizer, start, 0, asked.data))

        def run(exponent: int, optimizer: str = optimizer) -> float:
            found = runs(f"{optimizer} 2^{exponent}", partial(train, case, optimizer, exponent, 0, asked.data))
            return float(found["loss"])

        losses = sweep(run, start, first["initial"])
        low, high = good_of(losses, first["initial"])
        row = {
            "network": name, "optimizer": optimizer, "predicted": predicted[optimizer]["value"],
            "best": 2.0 ** best_of(losses), "low": 2.0**low, "high": 2.0**high, "loss": min(losses.values()),
            "initial": first["initial"], "along": predicted[optimizer]["steps"],
        }  # fmt: skip
        print(f"{name:16}{optimizer:10} predicted {row['predicted']:.3g}  best {row['best']:.3g}"
              f"  ×{2 ** abs(math.log2(row['predicted'] / row['best'])):.2g}", flush=True)  # fmt: skip
        yield row


def main() -> None:
    asked = study.options(__doc__, data={"type": Path, "required": True, "help": "folder with cifar10/"},
                          runs={"type": Path, "default": Path("figures"), "help": "folder of finished runs"},
                          only={"nargs": "*", "default": list(NETWORKS), "help": "networks"})  # fmt: skip
    torch.set_num_threads(1)
    DATA["cifar"] = cifar  # type: ignore[index]
    path = asked.out / "strangers_rates.json"
    held = {(row["network"], row["optimizer"]): row for row in (study.read(path)["rows"] if path.exists() else [])}
    for name in asked.only:
        for row in rows_of(name, asked):
            held[name, row["optimizer"]] = row
            rows = [held[key] for key in product(NETWORKS, START) if key in held]
            path.write_text(json.dumps(study.plain({"rows": rows}), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
