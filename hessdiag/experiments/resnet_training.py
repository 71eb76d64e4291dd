"""The training of Section 11.2 of arXiv 1906.04267: residual networks without normalisation, on ImageNet.

As the paper says: 90 epochs of batches of 256 by SGD with momentum 0.9 and weight decay 1e-4, the rate 0.1 divided by
ten after epochs 30 and 60, dropout before the last layer. It does not give the rate of the dropout: 0.25 here, as in
RescaleNet's code. Biases are centred on the first minibatch. Batch normalisation is compared with as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from hessdiag.datasets.image_folder import ImageSplit, read_image_split
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.models.preconditioned import PreconditionedResNet
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.models.resnet import ResNet
from hessdiag.network.torch_state import seeded_rng
from hessdiag.results.files import make_folder, write_bytes
from hessdiag.results.training_runs import Epoch, TrainingRun, TrainingRuns
from hessdiag.suggestions import did_you_mean
from hessdiag.training.distributed_training import DistributedTraining, Place, check_batch_size, train_distributed
from hessdiag.training.training_log import TrainingLog
from hessdiag.training.training_state import packed

NETWORKS: Mapping[str, Any] = {
    "preconditioned": PreconditionedResNet,
    "rescalenet": RescaleNet,
    "batch-norm": ResNet,
    "preconditioned-sigma": partial(PreconditionedResNet, curvature=True),  # c = β²: σ² is levelled in place of γ
}
DEFAULT = ("preconditioned", "rescalenet", "batch-norm")
DEPTH, QUICK_DEPTH = 50, 14
SIDE, QUICK_SIDE = 224, 32
SEEDS = 5  # the paper's
MAX_WORKERS = 8
QUICK_EPOCHS, QUICK_BATCH_SIZE = 3, 8


@dataclass(frozen=True, kw_only=True)
class ResNetTraining:
    """What is trained, and how.

    Attributes:
        networks: names of `NETWORKS`.
        depth: of all of them.
        seeds: trainings of each.
        training: how.
        data_dir: folder with `train` and `val`.
        folder: for weights and logs.
        workers: processes that decode images, for each process that trains.
    """

    networks: tuple[str, ...]
    depth: int
    seeds: int
    training: DistributedTraining
    data_dir: Path
    folder: Path
    workers: int


def read_options(
    *,
    quick: bool = False,
    out: Path = Path("figures"),
    data_dir: str = "",
    networks: str = "",
    epochs: int | None = None,
    batch_size: int | None = None,
    seeds: int | None = None,
    mixed_precision: bool = False,
    workers: int | None = None,
) -> ResNetTraining:
    """Read the options of the command.

    Raises:
        HessdiagError: there is no folder of images, or no such network.
    """
    if not data_dir:
        raise HessdiagError(
            "--part training reads images: pass --data-dir with a folder that has train/CLASS/*.jpg and val/CLASS/*.jpg"
        )
    names = tuple(name.strip() for name in networks.split(",")) if networks else DEFAULT
    for name in names:
        if name not in NETWORKS:
            known = ", ".join(NETWORKS)
            raise HessdiagError(f"--networks {name!r}: {did_you_mean(name, NETWORKS, otherwise=f'use {known}')}")
    return ResNetTraining(
        networks=tuple(dict.fromkeys(names)),
        depth=QUICK_DEPTH if quick else DEPTH,
        seeds=seeds or (1 if quick else SEEDS),
        training=DistributedTraining(
            epochs=epochs or (QUICK_EPOCHS if quick else 90),
            batch_size=batch_size or (QUICK_BATCH_SIZE if quick else 256),
            side=QUICK_SIDE if quick else SIDE,
            mixed_precision=mixed_precision,
        ),
        data_dir=Path(data_dir),
        folder=out / "resnet-training",
        workers=workers if workers is not None else _spare_cores(quick=quick),
    )


def _spare_cores(*, quick: bool) -> int:
    """Count the cores of this machine for each of its processes, at most `MAX_WORKERS`; none for a few images."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "1")
    share = (os.cpu_count() or 1) // (int(local) if local.isdecimal() and int(local) else 1)
    return 0 if quick else min(share, MAX_WORKERS)


def steps(*, quick: bool, **options: Any) -> int:
    """Count the units of work, epochs."""
    settings = read_options(quick=quick, **options)
    return len(settings.networks) * settings.seeds * settings.training.epochs


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work, **options: Any) -> TrainingRuns:
    """Train every network, one after the other, on all ranks together; weights and logs are written as it goes."""
    settings = read_options(quick=quick, **options)
    data = read_image_split(settings.data_dir)
    work.ranks.agree("images", data.digest())
    check_batch_size(settings.training.batch_size, images=len(data.train), ranks=work.ranks)
    if work.ranks.rank == 0:
        make_folder(settings.folder, f"--out {str(settings.folder.parent)!r}: cannot make a folder in it")
    runs = [
        _train(name, data, settings, seed=number, device=device, work=work)
        for number in range(seed, seed + settings.seeds)
        for name in settings.networks
    ]
    training = settings.training
    return TrainingRuns(
        data=f"{len(data.train)} images of {len(data.classes)} classes, {len(data.validation)} for validation",
        training=(
            f"depth {settings.depth}, {training.side} pixels, SGD with momentum 0.9, rate {training.rate:g} at first,"
            f" weight decay {training.weight_decay:g}, batch {training.batch_size}, {training.epochs} epochs"
        ),
        runs=tuple(runs),
    )


def build(name: str, classes: int, settings: ResNetTraining, *, seed: int) -> nn.Module:
    """Build a network that follows from its seed."""
    with seeded_rng(stream(seed, f"initialisation of {name}").initial_seed()):
        network: nn.Module = NETWORKS[name](settings.depth, classes, settings.training.side)
    return network


def _train(name: str, data: ImageSplit, settings: ResNetTraining, *, seed: int, device: str, work: Work) -> TrainingRun:
    title = f"{name}-seed{seed}"
    network = build(name, len(data.classes), settings, seed=seed)
    first = work.ranks.rank == 0
    log = TrainingLog(settings.folder, title) if first else None
    kept = work.journal.path.with_name(f"{work.journal.path.name}.{title}.pt") if work.journal else None

    def note(epochs: list[Epoch]) -> None:
        if log is not None:
            log(epochs)
        work.progress(f"{title} epoch {len(epochs)}")

    place = Place(device, work.ranks, settings.workers, kept)
    epochs = train_distributed(network, data, settings.training, seed=seed, place=place, after_epoch=note)
    if log is not None:
        log.close()
        write_bytes(settings.folder / f"{title}.pt", packed(network.state_dict()))
    return TrainingRun(name=name, seed=seed, epochs=tuple(epochs))


def draw(measured: TrainingRuns) -> Any:
    """Draw accuracy and loss by epoch."""
    from hessdiag.plots import draw_accuracy_curves

    return draw_accuracy_curves(measured, title="Residual networks with and without normalisation")


def summary(measured: TrainingRuns) -> list[str]:
    """Write the accuracies at the end."""
    from hessdiag.tables.training_runs_table import render_runs

    return render_runs(measured).split("\n")


FIGURE = Figure(
    name="resnet-training",
    steps=steps,
    measure=measure,
    write=TrainingRuns.to_json,
    read=TrainingRuns.from_json,
    draw=draw,
    summary=summary,
)
