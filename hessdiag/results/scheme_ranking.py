"""The paper's Table 2: how initialisations compare over data sets, with intervals.

The loss of a scheme on a data set is that of its best learning rate, by the median over seeds. It is divided by that of
the worst scheme there, and averaged over data sets. Intervals come from drawing data sets and seeds with replacement;
the seeds of a data set are drawn for all schemes alike, since these share minibatches and weights' random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hessdiag.results.numbers import Array
from hessdiag.results.training_study import TrainingStudy, median_over_seeds

RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class SchemeRank:
    """One row of the table.

    Attributes:
        scheme: an initialisation.
        average, low, high: mean over data sets of its loss over the worst scheme's, with its 95 % interval.
        worst, best: data sets on which it has the largest and the smallest loss.
        worst_range, best_range: their 95 % intervals.
    """

    scheme: str
    average: float
    low: float
    high: float
    worst: int
    worst_range: tuple[float, float]
    best: int
    best_range: tuple[float, float]


def rank_schemes(study: TrainingStudy, schemes: Sequence[str], *, widened: bool, seed: int = 0) -> list[SchemeRank]:
    """Compare some schemes of a study.

    Args:
        study: with at least one data set.
        schemes: whose losses are divided by the worst of them.
        widened: take all learning rates that were run, rather than the grid that all schemes share.
        seed: of the resampling.
    """
    losses = best_losses(study, schemes, widened=widened)  # (D, schemes)
    drawn = _resampled(study, schemes, widened=widened, seed=seed)  # (3, R, schemes)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=1)  # (3, schemes) each
    average, worst, best = _summarise(losses)
    return [
        SchemeRank(
            scheme=scheme,
            average=float(average[i]),
            low=float(low[0, i]),
            high=float(high[0, i]),
            worst=round(float(worst[i])),
            worst_range=(float(low[1, i]), float(high[1, i])),
            best=round(float(best[i])),
            best_range=(float(low[2, i]), float(high[2, i])),
        )
        for i, scheme in enumerate(schemes)
    ]


def best_losses(study: TrainingStudy, schemes: Sequence[str], *, widened: bool) -> Array:
    """(D, schemes) median loss at the best learning rate."""
    rows = _places(study, schemes)
    grids = [study.grid(block, widened=widened)[rows] for block in study.blocks]
    return np.stack([np.nanmin(median_over_seeds(grid), axis=1) for grid in grids])


def normalised_losses(losses: Array) -> Array:
    """Divide by the worst scheme's, the last axis."""
    return np.asarray(losses / losses.max(axis=-1, keepdims=True))


def _summarise(losses: Array) -> Array:
    """(…, D, schemes) -> (3, …, schemes): mean normalised loss, times worst, times best; first one of equals counts."""
    schemes = np.arange(losses.shape[-1])
    worst = (losses.argmax(-1)[..., None] == schemes).sum(-2)
    best = (losses.argmin(-1)[..., None] == schemes).sum(-2)
    return np.stack([normalised_losses(losses).mean(-2), worst, best])


def _resampled(study: TrainingStudy, schemes: Sequence[str], *, widened: bool, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    rows, count = _places(study, schemes), len(study.blocks)
    losses = np.empty((RESAMPLES, count, len(schemes)))
    for number, block in enumerate(study.blocks):
        grid = study.grid(block, widened=widened)[rows]  # (schemes, rates, seeds)
        chosen = generator.integers(grid.shape[-1], size=(RESAMPLES, grid.shape[-1]))
        losses[:, number] = np.nanmin(median_over_seeds(grid[..., chosen]), axis=1).T
    sets = generator.integers(count, size=(RESAMPLES, count))
    return _summarise(losses[np.arange(RESAMPLES)[:, None], sets])


def _places(study: TrainingStudy, schemes: Sequence[str]) -> list[int]:
    return [study.schemes.index(scheme) for scheme in schemes]
