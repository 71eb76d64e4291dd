"""The comparison of Section 11.2 of arXiv 1906.04267 at a size that one machine can train: ResNet-14 on CIFAR-10.

Networks preconditioned in γ, as the paper does it, and in σ², RescaleNet, and batch normalisation, each at the best of
a sweep of learning rates. As for ImageNet, biases are centred on a minibatch and the rate is divided by ten after each
third of the epochs; there is no dropout, which a short training does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.datasets.cifar10 import Images
from hessdiag.execution.seeds import stream
from hessdiag.experiments.learning_rate_sweep import Build, Sweep, on
from hessdiag.experiments.training_figure import TrainingSettings, TrainingStudy
from hessdiag.models.channel_bias import centre
from hessdiag.models.preconditioned import PreconditionedResNet
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.models.resnet import ResNet
from hessdiag.network.torch_state import seeded_rng
from hessdiag.training.image_training import ImageTraining, standardised

VARIANTS: Mapping[str, Any] = {
    "preconditioned": partial(PreconditionedResNet, dropout=0.0),
    "preconditioned in σ²": partial(PreconditionedResNet, dropout=0.0, curvature=True),
    "RescaleNet": partial(RescaleNet, dropout=0.0),
    "batch norm": ResNet,
}
DEPTH, CLASSES = 14, 10
POWERS = tuple(range(0, -7, -1))
SEEDS = 5
QUICK_IMAGES, QUICK_SIDE, QUICK_WIDTH, QUICK_SEEDS, QUICK_EPOCHS = 5120, 16, 0.5, 3, 6


def read_options(
    *,
    quick: bool = False,
    data_dir: str = "",
    epochs: int | None = None,
    batch_size: int | None = None,
    seeds: int | None = None,
    mixed_precision: bool = False,
) -> TrainingSettings:
    """Read the options of the command."""
    epochs = epochs or (QUICK_EPOCHS if quick else 30)
    training = ImageTraining(
        rate=0.0,  # the sweep's
        epochs=epochs,
        batch_size=batch_size or (64 if quick else 128),
        drops=(epochs // 3, 2 * epochs // 3) if epochs >= 3 else (),
        mixed_precision=mixed_precision,
    )
    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    return TrainingSettings(
        sweep=Sweep(training=training, powers=POWERS, sweep_seeds=min(runs, 1 if quick else 3), seeds=runs, window=100),
        images=QUICK_IMAGES if quick else 50_000,
        side=QUICK_SIDE if quick else 32,
        width=QUICK_WIDTH if quick else 1.0,
        data_dir=Path(data_dir) if data_dir else None,
    )


def choose_images(found: Images, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Draw images once and for all, and average them down."""
    order = torch.randperm(len(found), generator=stream(0, "images"))  # copies of the files may be sorted by class
    drawn = order[: settings.images].to(found.targets.device)
    images = standardised(found.pixels[drawn])
    return F.avg_pool2d(images, images.shape[-1] // settings.side), found.targets[drawn]


def build_variants(settings: TrainingSettings, images: Tensor, device: str) -> Mapping[str, Build]:
    """From a seed to a network, for each variant; `images` are those that biases are centred on."""

    def build(name: str, seed: int) -> nn.Module:
        with seeded_rng(stream(seed, f"initialisation of {name}").initial_seed()):
            network: nn.Module = VARIANTS[name](DEPTH, CLASSES, settings.side, settings.width)
        on(device, network).eval()
        centre(network, images)
        return network.train()

    return {name: partial(build, name) for name in VARIANTS}


FIGURE = TrainingStudy(
    name="resnet-cifar",
    title="Training loss of four kinds of residual networks",
    names=tuple(VARIANTS),
    reference="preconditioned",
    read_options=read_options,
    choose_images=choose_images,
    build=build_variants,
    model=f"ResNet-{DEPTH}",
    data=lambda settings: f", side {settings.side}",
    training="rate divided by 10 at each third",
).figure()
