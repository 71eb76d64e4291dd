"""The comparison of Section 11.2 of arXiv 1906.04267 at a size that one machine can train: ResNet-14 on CIFAR-10.

Networks preconditioned in γ, as the paper does it, and in σ², RescaleNet, and batch normalisation, each at the best of
a sweep of learning rates. As for ImageNet, biases are centred on a minibatch and the rate is divided by ten after each
third of the epochs; there is no dropout, which a short training does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.datasets.cifar10 import load_cifar10
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.experiments.learning_rate_sweep import Build, Sweep, curves_of, on
from hessdiag.models.channel_bias import centre
from hessdiag.models.preconditioned import PreconditionedResNet
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.models.resnet import ResNet
from hessdiag.results.training_curves import TrainingCurves
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


@dataclass(frozen=True, kw_only=True)
class VariantSettings:
    """What is trained, and on how much.

    Attributes:
        sweep: learning rates, seeds and how to train.
        images: of the training part that are used, drawn once and for all.
        side: to which they are averaged down, in pixels.
        width: factor on all channels.
        data_dir: folder of the data; None downloads it.
    """

    sweep: Sweep
    images: int
    side: int
    width: float
    data_dir: Path | None


def read_options(
    *,
    quick: bool = False,
    data_dir: str = "",
    epochs: int | None = None,
    batch_size: int | None = None,
    seeds: int | None = None,
    mixed_precision: bool = False,
) -> VariantSettings:
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
    return VariantSettings(
        sweep=Sweep(training=training, powers=POWERS, sweep_seeds=min(runs, 1 if quick else 3), seeds=runs, window=100),
        images=QUICK_IMAGES if quick else 50_000,
        side=QUICK_SIDE if quick else 32,
        width=QUICK_WIDTH if quick else 1.0,
        data_dir=Path(data_dir) if data_dir else None,
    )


def steps(*, quick: bool, **options: Any) -> int:
    """Count the units of work before any sweep is widened."""
    return len(VARIANTS) * read_options(quick=quick, **options).sweep.units


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work, **options: Any) -> TrainingCurves:
    """Train all networks."""
    settings = read_options(quick=quick, **options)
    found = load_cifar10(data_dir=settings.data_dir, device=device)
    order = torch.randperm(len(found), generator=stream(0, "images"))  # copies of the files may be sorted by class
    drawn = order[: settings.images].to(device)
    images, targets = standardised(found.pixels[drawn]), found.targets[drawn]
    images = F.avg_pool2d(images, images.shape[-1] // settings.side)
    training = settings.sweep.training
    builds = build_variants(settings, images[: training.batch_size], device)
    how = f"{len(images)} images of side {settings.side}, width {settings.width:g}, {replace(training, rate=0.0)}"
    ends, sets = curves_of(builds, images, targets, settings.sweep, seed=seed, work=work.within(how))
    return TrainingCurves(
        model=f"ResNet-{DEPTH}, width {settings.width:g}",
        data=f"CIFAR-10, {len(images)} images, side {settings.side}",
        training=(
            f"SGD with momentum 0.9, weight decay {training.weight_decay:g}, batch {training.batch_size},"
            f" {training.epochs} epochs, rate divided by 10 at each third"
        ),
        window=min(settings.sweep.window, int(ends[-1])),
        steps=ends,
        sets=sets,
    )


def build_variants(settings: VariantSettings, images: Tensor, device: str) -> Mapping[str, Build]:
    """From a seed to a network, for each variant; `images` are those that biases are centred on."""

    def build(name: str, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream(seed, f"initialisation of {name}").initial_seed())
            network: nn.Module = VARIANTS[name](DEPTH, CLASSES, settings.side, settings.width)
        on(device, network).eval()
        centre(network, images)
        return network.train()

    return {name: partial(build, name) for name in VARIANTS}


def draw(measured: TrainingCurves) -> Any:
    """Draw the curves."""
    from hessdiag.plots import draw_training_curves

    return draw_training_curves(measured, title="Training loss of four kinds of residual networks")


def summary(measured: TrainingCurves) -> list[str]:
    """Write the final losses, and how sure the differences from the paper's network are."""
    from hessdiag.tables.training_curves_table import render_curves

    return render_curves(measured, reference="preconditioned").split("\n")


FIGURE = Figure(
    name="resnet-cifar",
    steps=steps,
    measure=measure,
    write=TrainingCurves.to_json,
    read=TrainingCurves.from_json,
    draw=draw,
    summary=summary,
)
