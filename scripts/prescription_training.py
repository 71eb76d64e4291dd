"""Does a prescription pay? Loss after a fixed budget at the best learning rate, before and after `hessdiag.prescribe`.

    python scripts/prescription_training.py train runs.jsonl --data-dir CIFAR   # 25 minutes on one core, resumable
    python scripts/prescription_training.py draw runs.jsonl                     # figures/prescription.{json,png,svg}

CIFAR holds data_batch_1.bin and test_batch.bin of the binary version of CIFAR-10, of which 4,096 and 1,024 images are
averaged down to 16 x 16. Each run is one line of the journal. A network is drawn from its seed, prescribed from 64 of
the training images, and trained for 200 steps of 32 images at learning rates that are powers of 2: every fourth with
one seed as it is built, then all around the best of these with two, further until the best one has worse neighbours
on both sides, and the same again with five; the search for what is prescribed starts at what was found as built.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from zoo_networks import residual  # noqa: E402

import hessdiag  # noqa: E402
from hessdiag import init  # noqa: E402
from hessdiag.models.channel_bias import centre  # noqa: E402
from hessdiag.models.rescalenet import RescaleNet  # noqa: E402
from hessdiag.models.resnet import ResNet, calibrate  # noqa: E402

SIDE, TRAIN, TEST, MEASURED = 16, 4096, 1024, 64
STEPS, BATCH, BIN = 200, 32, 10
LAST = 5  # bins of the loss that are averaged to rank learning rates
SEEDS, SEARCHED = range(5), range(2)  # of all rates around the best, and to find these
ARMS = {"as built": "sigma", "σ² balanced": "sigma", "rates balanced": "rate"}
TRAINED = {"sgd": ("weighted residual", "RescaleNet-14", "ResNet-14, batch norm"), "adam": ("weighted residual",)}
STARTS = {"sgd": -5, "adam": -9}  # log2 of the rate in the middle of the first sweep
MAX_LOSS = 20.0  # beyond it, or undefined, a run has diverged

Images = tuple[Tensor, Tensor]
Score = Callable[[int, int], float]  # of a power of 2 and a seed


def weighted(images: Tensor) -> nn.Module:
    """A pre-activation residual network of 16 weight layers without normalisation, α² = .8 and β² = .2, fan-in."""
    return init.apply(residual([2, 2, 2], width=16, skip=0.8**0.5, branch=0.2**0.5), "fan-in")


def rescalenet(images: Tensor) -> nn.Module:
    """RescaleNet-14 at half its width, without dropout, its biases centred on data as its authors have it."""
    network = RescaleNet(14, 10, SIDE, 0.5, dropout=0.0).eval()
    centre(network, images)
    return network


def resnet(images: Tensor) -> nn.Module:
    """ResNet-14 with batch normalisation at half its width; measured with the statistics of a batch."""
    network = ResNet(14, 10, SIDE, 0.5)
    calibrate(network, images)
    return network


NETWORKS: dict[str, Callable[[Tensor], nn.Module]] = {
    "weighted residual": weighted,
    "RescaleNet-14": rescalenet,
    "ResNet-14, batch norm": resnet,
}


def read_images(path: Path, count: int) -> Images:
    """Some images of a file in CIFAR-10's binary format, averaged to `SIDE` and standardised by fixed numbers."""
    rows = np.fromfile(path, np.uint8).reshape(-1, 3073)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:count]]  # copies of the file may be sorted by class
    pixels = torch.from_numpy(rows[:, 1:].astype(np.float32)).view(-1, 3, 32, 32) / 255
    return (F.avg_pool2d(pixels, 32 // SIDE) - 0.47) / 0.25, torch.from_numpy(rows[:, 0].astype(np.int64))


@cache
def build(name: str, arm: str, optimizer: str, seed: int, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """A network ready to be trained, and what was measured of it."""
    torch.manual_seed(seed)
    x, y = (part[:MEASURED] for part in read_images(folder / "data_batch_1.bin", TRAIN))
    network = NETWORKS[name](x)
    options: dict[str, Any] = {"loss": "cross-entropy", "optimizer": optimizer, "balance": ARMS[arm], "seed": seed}
    if arm == "as built":
        options["target"] = 1e30  # it is measured, and left as it is
    recipe = hessdiag.prescribe(network, x, y, **options)
    if arm == "as built":
        spread, rate = recipe.spread_before, recipe.learning_rate_before
    else:
        recipe.apply(network)
        spread, rate = recipe.spread, recipe.learning_rate
    measured = {"spread": spread["avg_sq_singular_value"], "rate_spread": spread["learning_rate"]}
    return network, measured | {"predicted_rate": rate.value if rate is not None else math.nan}


def train_once(
    network: nn.Module, optimizer: str, rate: float, seed: int, train: Images, test: Images
) -> dict[str, Any]:
    """Mean loss of every `BIN` steps, and loss and accuracy on the test images."""
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    steps = kinds[optimizer](network.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(seed)
    losses: list[float] = []
    network.train()
    for _ in range(STEPS):
        chosen = torch.randint(TRAIN, (BATCH,), generator=generator)
        loss = F.cross_entropy(network(train[0][chosen]), train[1][chosen])
        if not loss.item() < MAX_LOSS:
            return {"loss": math.inf, "losses": [], "test_loss": math.inf, "test_accuracy": 0.1}
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    network.eval()
    with torch.no_grad():
        y = network(test[0])
    binned = [fmean(losses[at : at + BIN]) for at in range(0, STEPS, BIN)]
    return {
        "loss": fmean(binned[-LAST:]),
        "losses": [round(value, 4) for value in binned],
        "test_loss": float(F.cross_entropy(y, test[1])),
        "test_accuracy": float((y.argmax(1) == test[1]).double().mean()),
    }


class Journal:
    """Finished runs, one line of JSON each; a run that is there is not made again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.runs = {self.key(run): run for run in map(json.loads, lines)}

    @staticmethod
    def key(run: dict[str, Any]) -> tuple[Any, ...]:
        return run["network"], run["arm"], run["optimizer"], run["log2_rate"], run["seed"]

    def run(self, key: tuple[Any, ...], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if key not in self.runs:
            named = dict(zip(("network", "arm", "optimizer", "log2_rate", "seed"), key, strict=True))
            self.runs[key] = named | make()
            with self.path.open("a") as file:
                file.write(json.dumps(self.runs[key], ensure_ascii=False).replace("Infinity", "1e999") + "\n")
        return self.runs[key]


def coarse(score: Score, start: int) -> int:
    """The best power of 2 with the first seed, of every second power."""
    few = {power: score(power, 0) for power in range(start - 6, start + 7, 2)}
    return min(few, key=lambda power: few[power])


def search(score: Score, best: int, seeds: range) -> int:
    """The best power of 2 with these seeds, from a first guess on until both of its neighbours are worse."""
    many: dict[int, float] = {}
    while True:
        for power in (best - 1, best, best + 1):
            if power not in many:
                many[power] = fmean(score(power, seed) for seed in seeds)
        found = min(many, key=lambda power: many[power])
        if found == best or not math.isfinite(many[found]):
            return found
        best = found


def train(path: Path, data: Path) -> None:
    """Make all runs that the journal does not have."""
    torch.set_num_threads(1)
    images, test = read_images(data / "data_batch_1.bin", TRAIN), read_images(data / "test_batch.bin", TEST)
    journal = Journal(path)

    def scored(optimizer: str, name: str, arm: str) -> Score:
        def score(power: int, seed: int) -> float:
            def make() -> dict[str, Any]:
                network, measured = build(name, arm, optimizer, seed, data)
                return measured | train_once(copy.deepcopy(network), optimizer, 2.0**power, seed, images, test)

            return float(journal.run((name, arm, optimizer, power, seed), make)["loss"])

        return score

    for optimizer, start in STARTS.items():
        best: dict[tuple[str, str], int] = {}
        for seeds, (name, arm) in product((SEARCHED, SEEDS), product(TRAINED[optimizer], ARMS)):
            score = scored(optimizer, name, arm)
            built = best[name, "as built"] if (name, "as built") in best else coarse(score, start)
            best[name, arm] = search(score, best.get((name, arm), built), seeds)
            print(f"{optimizer:5} {name:22} {arm:14} {len(seeds)} seeds: 2^{best[name, arm]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("train", "draw"))
    parser.add_argument("journal", type=Path)
    parser.add_argument("--data-dir", type=Path, default=Path("cifar-10-batches-bin"))
    options = parser.parse_args()
    if options.action == "train":
        train(options.journal, options.data_dir)
    else:
        from prescription_figure import draw_runs

        draw_runs(options.journal, ROOT / "figures")


if __name__ == "__main__":
    main()
