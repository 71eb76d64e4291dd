"""The CIFAR-10 figure of arXiv 1906.04267, Section 10: training loss of the strided AlexNet under four initialisations.

Outputs scaled to a standard deviation of 0.05 on one batch, a sweep of learning rates over powers of two, then many
seeds at the best rate of each initialisation: median and quartiles of the minibatch training loss in a sliding window
of 400 steps. The paper says "standard practice" and no more: here SGD with momentum 0.9, weight decay 1e-4, a constant
rate, batches of 128, random crops and mirrored images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hessdiag import init, surgery
from hessdiag.datasets.cifar10 import load_cifar10
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.experiments.learning_rate_sweep import Build, Sweep, curves_of, on
from hessdiag.models.alexnet import StridedAlexNet
from hessdiag.results.training_curves import TrainingCurves
from hessdiag.training.image_training import ImageTraining, standardised

SCHEMES = ("arithmetic", "fan-in", "fan-out", "geometric")
SEEDS = 40  # the paper's
POWERS = tuple(range(-2, -10, -1))
QUICK_POWERS = (-4, -5, -6, -7)
QUICK_IMAGES, QUICK_WIDTH, QUICK_SEEDS, QUICK_EPOCHS = 6400, 0.25, 5, 24


@dataclass(frozen=True, kw_only=True)
class AlexNetSettings:
    """What is trained, and on how much.

    Attributes:
        sweep: learning rates, seeds and how to train.
        images: of the training part that are used, from the first.
        width: factor on all hidden layers.
        data_dir: folder of the data; None downloads it.
    """

    sweep: Sweep
    images: int
    width: float
    data_dir: Path | None


def read_options(
    *,
    quick: bool = False,
    data_dir: str = "",
    epochs: int | None = None,
    batch_size: int = 128,
    seeds: int | None = None,
    mixed_precision: bool = False,
) -> AlexNetSettings:
    """Read the options of the command."""
    training = ImageTraining(
        rate=0.0,  # the sweep's
        epochs=epochs or (QUICK_EPOCHS if quick else 50),
        batch_size=batch_size,
        mixed_precision=mixed_precision,
    )
    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    powers = QUICK_POWERS if quick else POWERS
    return AlexNetSettings(
        sweep=Sweep(training=training, powers=powers, sweep_seeds=min(runs, 1 if quick else 3), seeds=runs, window=400),
        images=QUICK_IMAGES if quick else 50_000,
        width=QUICK_WIDTH if quick else 1.0,
        data_dir=Path(data_dir) if data_dir else None,
    )


def steps(*, quick: bool, **options: Any) -> int:
    """Count the units of work before any sweep is widened."""
    return len(SCHEMES) * read_options(quick=quick, **options).sweep.units


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work, **options: Any) -> TrainingCurves:
    """Train all initialisations."""
    settings = read_options(quick=quick, **options)
    found = load_cifar10(data_dir=settings.data_dir, device=device)
    images, targets = standardised(found.pixels)[: settings.images], found.targets[: settings.images]
    builds = build_schemes(settings.width, images[: settings.sweep.training.batch_size], device)
    training = settings.sweep.training
    how = f"{len(images)} images, width {settings.width:g}, {replace(training, rate=0.0)}"
    ends, sets = curves_of(builds, images, targets, settings.sweep, seed=seed, work=work.within(how))
    return TrainingCurves(
        model=f"strided AlexNet, width {settings.width:g}",
        data=f"CIFAR-10, {len(images)} images",
        training=(
            f"SGD with momentum 0.9, weight decay {training.weight_decay:g}, batch {training.batch_size},"
            f" {training.epochs} epochs, outputs scaled to 0.05"
        ),
        window=min(settings.sweep.window, int(ends[-1])),
        steps=ends,
        sets=sets,
    )


def build_schemes(width: float, images: Tensor, device: str) -> Mapping[str, Build]:
    """From a seed to a network, for each initialisation; `images` are those that its output is scaled on."""

    def build(scheme: str, seed: int) -> nn.Module:
        network = init.apply(StridedAlexNet(width=width), scheme, generator=stream(seed, "initialisation"))
        on(device, network)
        surgery.normalise_output(network, images)
        return network

    return {scheme: partial(build, scheme) for scheme in SCHEMES}


def draw(measured: TrainingCurves) -> Any:
    """Draw the curves."""
    from hessdiag.plots import draw_training_curves

    return draw_training_curves(measured, title="Training loss under four initialisations")


def summary(measured: TrainingCurves) -> list[str]:
    """Write the final losses, and how sure the differences from the geometric initialisation are."""
    from hessdiag.tables.training_curves_table import render_curves

    return render_curves(measured, reference="geometric").split("\n")


FIGURE = Figure(
    name="alexnet",
    steps=steps,
    measure=measure,
    write=TrainingCurves.to_json,
    read=TrainingCurves.from_json,
    draw=draw,
    summary=summary,
)
