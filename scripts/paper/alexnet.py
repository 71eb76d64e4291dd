"""The CIFAR-10 figure of arXiv 1906.04267, Section 10: training loss of the strided AlexNet, four initialisations.

    python scripts/paper/alexnet.py --data cifar-10-batches-bin --quick     # a quarter of an hour on one core
    python scripts/paper/alexnet.py --mixed-precision                       # the figure: days on a GPU

Outputs scaled to a standard deviation of 0.05 on one batch, a sweep of learning rates over powers of two, then many
seeds at the best rate of each initialisation: median and quartiles of the minibatch loss in a window of 400 steps. The
paper says "standard practice" and no more: here SGD with momentum 0.9, weight decay 1e-4, a constant rate, batches of
128, random crops and mirrored images. A finished training is a line of OUT/alexnet.runs.jsonl.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import cifar
import study
from torch import nn

from hessdiag import init, surgery
from hessdiag.models import StridedAlexNet

SCHEMES = ("arithmetic", "fan-in", "fan-out", "geometric")


def measure(asked: Any) -> dict[str, Any]:
    count, width = (6400, 0.25) if asked.quick else (50_000, 1.0)
    seeds = asked.seeds or (5 if asked.quick else 40)  # the paper's
    plan = cifar.Plan(
        powers=(-4, -5, -6, -7) if asked.quick else tuple(range(-2, -10, -1)),
        sweep_seeds=min(seeds, 1 if asked.quick else 3),
        seeds=seeds, epochs=asked.epochs or (24 if asked.quick else 50), batch_size=asked.batch_size or 128, window=400,
        mixed_precision=asked.mixed_precision,
    )  # fmt: skip
    pixels, targets = cifar.load(asked.data, asked.device)
    images = cifar.standardised(pixels)[:count]

    def build(scheme: str, seed: int) -> nn.Module:
        network = StridedAlexNet(width=width)
        init.apply(network, scheme, generator=study.stream(seed, "initialisation"))
        surgery.normalise_output(network.to(asked.device).train(), images[: plan.batch_size])
        return network

    builds = {scheme: partial(build, scheme) for scheme in SCHEMES}
    training = f"SGD with momentum 0.9, weight decay 0.0001, batch {plan.batch_size}, {plan.epochs} epochs"
    found = {
        "schema": "hessdiag.training-curves/1", "model": f"strided AlexNet, width {width:g}",
        "data": f"CIFAR-10, {len(images)} images", "training": f"{training}, outputs scaled to 0.05",
    }  # fmt: skip
    runs = study.Runs(asked.out / "alexnet.runs.jsonl")
    return found | cifar.curves(
        builds, images, targets[:count], plan, runs, seed=asked.seed, place=f"{width} {len(images)} {training}"
    )


def main() -> None:
    asked = study.options(__doc__, **cifar.OPTIONS)
    study.main("alexnet", asked, lambda: measure(asked), lambda found: cifar.summary(found, "geometric"),
               lambda found: cifar.draw(found, "Training loss under four initialisations"))  # fmt: skip


if __name__ == "__main__":
    main()
