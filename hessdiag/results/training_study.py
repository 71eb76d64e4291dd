"""Training losses of initialisations over data sets, learning rates and seeds, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hessdiag.results.numbers import Array
from hessdiag.results.records import Record


@dataclass(frozen=True, kw_only=True)
class DatasetLosses(Record):
    """What was found on one data set.

    Attributes:
        name, rows, features, classes: of the data set, as trained on.
        note: how it differs from the published one.
        powers: learning rates as powers of 2, from the largest.
        losses: (schemes, rates, seeds) training loss after the last epoch; inf if diverged, NaN where not run.
        sigma_spread, gamma_spread: (schemes, networks) largest over smallest σ² and γ of the weights as initialised.
        predicted_rate: (schemes, networks) learning rate, as initialised; see `LearningRate`.
    """

    name: str
    rows: int
    features: int
    classes: int
    note: str
    powers: tuple[int, ...]
    losses: Array
    sigma_spread: Array
    gamma_spread: Array
    predicted_rate: Array


@dataclass(frozen=True, kw_only=True)
class TrainingStudy(Record):
    """A grid over data sets.

    Attributes:
        optimizer, batch_size, epochs, weight_decay, logit_std: how the networks were trained.
        hidden: widths of the hidden layers.
        schemes: initialisations, the rows of every grid.
        powers: the grid before it was widened, as powers of 2.
        blocks: a data set each.
        left_out: data sets that were asked for and not run, because the time was over.
    """

    schema: ClassVar[str] = "hessdiag.libsvm/1"

    optimizer: str
    batch_size: int
    epochs: int
    weight_decay: float
    logit_std: float
    hidden: tuple[int, ...]
    schemes: tuple[str, ...]
    powers: tuple[int, ...]
    blocks: tuple[DatasetLosses, ...]
    left_out: tuple[str, ...] = ()

    def grid(self, block: DatasetLosses, *, widened: bool) -> Array:
        """(schemes, rates, seeds) losses of a data set: on the grid that all schemes share, or on all that was run."""
        if widened:
            return block.losses
        return block.losses[:, [power in self.powers for power in block.powers]]

    def best_power(self, block: DatasetLosses, *, widened: bool) -> list[int]:
        """The rate of least median loss of each scheme, as a power of 2."""
        kept = [power for power in block.powers if widened or power in self.powers]
        places = np.nanargmin(median_over_seeds(self.grid(block, widened=widened)), axis=1)
        return [kept[place] for place in places]


def median_over_seeds(losses: Array) -> Array:
    """Median over the last axis; inf where half of the seeds diverged, NaN where not run."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.median(losses, axis=-1))
