"""The comparison of Section 11.2 of arXiv 1906.04267 at a size that one machine can train: ResNet-14 on CIFAR-10.

    python scripts/paper/resnet_cifar.py --data cifar-10-batches-bin --quick    # five minutes on one core
    python scripts/paper/resnet_cifar.py --mixed-precision                      # days on a GPU

Networks preconditioned in γ, as the paper does it, and in σ², RescaleNet, and batch normalisation, each at the best of
a sweep of learning rates. As for ImageNet, biases are centred on a minibatch and the rate is divided by ten after each
third of the epochs; there is no dropout, which a short training does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import cifar
import study
import torch
import torch.nn.functional as F
from standard_resnet import ResNet
from torch import nn

from hessdiag.models import PreconditionedResNet, RescaleNet
from hessdiag.models.residual import centre

VARIANTS: Mapping[str, Any] = {
    "preconditioned": partial(PreconditionedResNet, dropout=0.0),
    "preconditioned in σ²": partial(PreconditionedResNet, dropout=0.0, curvature=True),
    "RescaleNet": partial(RescaleNet, dropout=0.0),
    "batch norm": ResNet,
}
DEPTH, CLASSES = 14, 10


def measure(asked: Any) -> dict[str, Any]:
    count, side, width = (5120, 16, 0.5) if asked.quick else (50_000, 32, 1.0)
    seeds, epochs = asked.seeds or (3 if asked.quick else 5), asked.epochs or (6 if asked.quick else 30)
    plan = cifar.Plan(
        powers=tuple(range(0, -7, -1)), sweep_seeds=min(seeds, 1 if asked.quick else 3), seeds=seeds, epochs=epochs,
        batch_size=asked.batch_size or (64 if asked.quick else 128), window=100,
        drops=(epochs // 3, 2 * epochs // 3) if epochs >= 3 else (), mixed_precision=asked.mixed_precision,
    )  # fmt: skip
    pixels, targets = cifar.load(asked.data, asked.device)
    drawn = torch.randperm(len(pixels), generator=study.stream(0, "images"))[:count].to(pixels.device)
    images = cifar.standardised(pixels[drawn])
    images = F.avg_pool2d(images, images.shape[-1] // side)

    def build(name: str, seed: int) -> nn.Module:
        with study.seeded(seed, f"initialisation of {name}"):
            network: nn.Module = VARIANTS[name](DEPTH, CLASSES, side, width)
        network.to(asked.device).eval()
        centre(network, images[: plan.batch_size])
        return network.train()

    builds = {name: partial(build, name) for name in VARIANTS}
    training = f"SGD with momentum 0.9, weight decay 0.0001, batch {plan.batch_size}, {plan.epochs} epochs"
    found = {
        "schema": "hessdiag.training-curves/1", "model": f"ResNet-{DEPTH}, width {width:g}",
        "data": f"CIFAR-10, {len(images)} images, side {side}",
        "training": f"{training}, rate divided by 10 at each third",
    }  # fmt: skip
    runs = study.Runs(asked.out / "resnet-cifar.runs.jsonl")
    return found | cifar.curves(
        builds, images, targets[drawn], plan, runs, seed=asked.seed, place=f"{width} {len(images)} {training}"
    )


def main() -> None:
    asked = study.options(__doc__, **cifar.OPTIONS)
    study.main("resnet-cifar", asked, lambda: measure(asked), lambda found: cifar.summary(found, "preconditioned"),
               lambda found: cifar.draw(found, "Training loss of four kinds of residual networks"))  # fmt: skip


if __name__ == "__main__":
    main()
