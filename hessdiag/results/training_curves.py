"""Training curves of initialisations or networks, over learning rates and seeds, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import stats

from hessdiag.results.numbers import Array
from hessdiag.results.records import Record


@dataclass(frozen=True, kw_only=True)
class CurveSet(Record):
    """What came of one initialisation or network.

    Attributes:
        name: of it.
        powers: learning rates of the sweep as powers of 2, from the largest.
        sweep: (rates, sweep seeds) training loss in the last window; inf if diverged.
        power: of the best rate.
        curves: (seeds, points) training loss at the best rate, a mean over the window that ends at each point.
    """

    name: str
    powers: tuple[int, ...]
    sweep: Array
    power: int
    curves: Array

    @property
    def final(self) -> Array:
        """Loss of each seed in the last window."""
        return np.asarray(self.curves[:, -1])


@dataclass(frozen=True, kw_only=True)
class TrainingCurves(Record):
    """Training curves of several initialisations or networks on the same data.

    Attributes:
        model, data: what was trained on what, in words.
        training: how, in words.
        window: steps of the sliding window.
        steps: (points,) number of the last step of each window.
        sets: the curves of each.
    """

    schema: ClassVar[str] = "hessdiag.training-curves/1"

    model: str
    data: str
    training: str
    window: int
    steps: Array
    sets: tuple[CurveSet, ...]

    def p_value(self, one: str, other: str, *, point: int = -1) -> float:
        """Two-sided p of Welch's t-test between two sets over seeds, at a point; NaN for fewer than two each."""
        a, b = (self._losses(name, point) for name in (one, other))
        if len(a) < 2 or len(b) < 2 or np.ptp(a) == np.ptp(b) == 0:
            return float("nan")
        return float(stats.ttest_ind(a, b, equal_var=False).pvalue)

    def _losses(self, name: str, point: int) -> Array:
        losses = next(each.curves[:, point] for each in self.sets if each.name == name)
        return np.asarray(losses[np.isfinite(losses)])


def windows(losses: Array, *, window: int, points: int) -> tuple[Array, Array]:
    """Ends of windows, and the mean loss of each.

    >>> windows(np.array([1.0, 2.0, 3.0, 4.0]), window=2, points=3)
    (array([2., 3., 4.]), array([1.5, 2.5, 3.5]))
    """
    window = min(window, len(losses))
    ends = np.unique(np.linspace(window, len(losses), points).round().astype(int))
    means = np.array([losses[end - window : end].mean() for end in ends])
    return ends.astype(np.float64), means
