"""Trainings that are judged by their accuracy on other images, epoch by epoch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from hessdiag.results.numbers import Array
from hessdiag.results.records import Record

UNDEFINED = float("nan")


@dataclass(frozen=True, kw_only=True)
class Epoch(Record):
    """What one epoch came to.

    Attributes:
        number: from 1.
        rate: learning rate.
        train_loss, train_accuracy: means over its minibatches, of the network in training.
        validation_loss, validation_accuracy: at its end, over all validation images; accuracies are top-1.
        images_per_second: trained on by all processes together, without validation.
    """

    number: int
    rate: float
    train_loss: float = UNDEFINED
    train_accuracy: float = UNDEFINED
    validation_loss: float = UNDEFINED
    validation_accuracy: float = UNDEFINED
    images_per_second: float = UNDEFINED


@dataclass(frozen=True, kw_only=True)
class TrainingRun(Record):
    """One training of one network.

    Attributes:
        name: of the network.
        seed: of everything random.
        epochs: in order; losses of a network that diverged are undefined from there on.
    """

    name: str
    seed: int
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, kw_only=True)
class TrainingRuns(Record):
    """Trainings of several networks on the same images.

    Attributes:
        data: what was trained on, in words.
        training: how, in words.
        runs: one for each network and seed.
    """

    schema: ClassVar[str] = "hessdiag.training-runs/1"

    data: str
    training: str
    runs: tuple[TrainingRun, ...]

    @property
    def names(self) -> list[str]:
        """The networks."""
        return list(dict.fromkeys(run.name for run in self.runs))

    def values(self, name: str, column: str) -> Array:
        """One attribute of all epochs of a network: (seeds, epochs)."""
        return np.array(
            [[getattr(epoch, column) for epoch in run.epochs] for run in self.runs if run.name == name], dtype=float
        )


def accuracy_csv(epochs: Sequence[Epoch]) -> str:
    """Everything but the speed, which differs from run to run: the text is the same for the same training."""
    return _csv([{k: v for k, v in asdict(epoch).items() if k != "images_per_second"} for epoch in epochs])


def throughput_csv(epochs: Sequence[Epoch]) -> str:
    """Images in a second, of every epoch."""
    return _csv([{"number": epoch.number, "images_per_second": epoch.images_per_second} for epoch in epochs])


def _csv(rows: Sequence[dict[str, float]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["epoch" if key == "number" else key for key in rows[0]])
    writer.writerows(row.values() for row in rows)
    return stream.getvalue()
