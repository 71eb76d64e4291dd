"""The CIFAR-10 figure of arXiv 1906.04267, Section 10: training loss of the strided AlexNet under four initialisations.

Outputs scaled to a standard deviation of 0.05 on one batch, a sweep of learning rates over powers of two, then many
seeds at the best rate of each initialisation: median and quartiles of the minibatch training loss in a sliding window
of 400 steps. The paper says "standard practice" and no more: here SGD with momentum 0.9, weight decay 1e-4, a constant
rate, batches of 128, random crops and mirrored images.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from hessdiag import init, surgery
from hessdiag.datasets.cifar10 import Images
from hessdiag.execution.seeds import stream
from hessdiag.experiments.learning_rate_sweep import Build, Sweep, on
from hessdiag.experiments.training_figure import TrainingSettings, TrainingStudy
from hessdiag.models.alexnet import StridedAlexNet
from hessdiag.training.image_training import ImageTraining, standardised

SCHEMES = ("arithmetic", "fan-in", "fan-out", "geometric")
SEEDS = 40  # the paper's
POWERS = tuple(range(-2, -10, -1))
QUICK_POWERS = (-4, -5, -6, -7)
QUICK_IMAGES, QUICK_WIDTH, QUICK_SEEDS, QUICK_EPOCHS = 6400, 0.25, 5, 24


def read_options(
    *,
    quick: bool = False,
    data_dir: str = "",
    epochs: int | None = None,
    batch_size: int = 128,
    seeds: int | None = None,
    mixed_precision: bool = False,
) -> TrainingSettings:
    """Read the options of the command."""
    training = ImageTraining(
        rate=0.0,  # the sweep's
        epochs=epochs or (QUICK_EPOCHS if quick else 50),
        batch_size=batch_size,
        mixed_precision=mixed_precision,
    )
    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    powers = QUICK_POWERS if quick else POWERS
    return TrainingSettings(
        sweep=Sweep(training=training, powers=powers, sweep_seeds=min(runs, 1 if quick else 3), seeds=runs, window=400),
        images=QUICK_IMAGES if quick else 50_000,
        width=QUICK_WIDTH if quick else 1.0,
        data_dir=Path(data_dir) if data_dir else None,
    )


def choose_images(found: Images, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """Take the first ones."""
    return standardised(found.pixels)[: settings.images], found.targets[: settings.images]


def build_schemes(width: float, images: Tensor, device: str) -> Mapping[str, Build]:
    """From a seed to a network, for each initialisation; `images` are those that its output is scaled on."""

    def build(scheme: str, seed: int) -> nn.Module:
        network = init.apply(StridedAlexNet(width=width), scheme, generator=stream(seed, "initialisation"))
        on(device, network)
        surgery.normalise_output(network, images)
        return network

    return {scheme: partial(build, scheme) for scheme in SCHEMES}


FIGURE = TrainingStudy(
    name="alexnet",
    title="Training loss under four initialisations",
    names=SCHEMES,
    reference="geometric",
    read_options=read_options,
    choose_images=choose_images,
    build=lambda settings, images, device: build_schemes(settings.width, images, device),
    model="strided AlexNet",
    data=lambda settings: "",
    training="outputs scaled to 0.05",
).figure()
