"""Does the balance that is measured at the start predict the training loss? Rank correlations within data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hessdiag.results.numbers import Array
from hessdiag.results.rank_correlation import rank_correlation
from hessdiag.results.scheme_ranking import best_losses, normalised_losses
from hessdiag.results.training_study import TrainingStudy

RESAMPLES = 2000
DIGITS = 3  # to which spreads are compared: schemes that differ by a factor only have the same but for rounding

Quantity = Literal["sigma", "gamma"]


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of spread and loss over the schemes of a data set, averaged over data sets.

    Attributes:
        mean, low, high: with its 95 % interval, from drawing data sets with replacement.
    """

    mean: float
    low: float
    high: float


def spreads(study: TrainingStudy, quantity: Quantity) -> Array:
    """(D, schemes) median over networks of the spread of σ² or γ."""
    return np.stack([np.median(getattr(block, f"{quantity}_spread"), axis=1) for block in study.blocks])


def correlate(study: TrainingStudy, quantity: Quantity, *, seed: int = 0) -> Correlation:
    """Correlate the spread at the start with the loss at the best learning rate of the widened grid."""
    losses = normalised_losses(best_losses(study, study.schemes, widened=True))
    each = np.array([spearman(s, x) for s, x in zip(spreads(study, quantity), losses, strict=True)])
    chosen = np.random.default_rng(seed).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.nanquantile(np.nanmean(each[chosen], axis=1), [0.025, 0.975])
    return Correlation(float(np.nanmean(each)), float(low), float(high))


def spearman(left: Array, right: Array) -> float:
    """Rank correlation of numbers that are compared to `DIGITS`.

    >>> spearman(np.array([1.0, 10.0, 100.0]), np.array([0.1, 0.2, 0.3]))
    1.0
    """
    rounded = [[float(f"{value:.{DIGITS}g}") for value in values] for values in (left, right)]
    return rank_correlation(*rounded)
