"""Rank correlation of two lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Correlate as Spearman does, ties at their mean rank; NaN where all of one side are equal.

    >>> round(rank_correlation([1.0, 10.0, 100.0], [0.1, 0.3, 0.2]), 12)
    0.5
    """
    ranks = [rankdata(values) for values in (left, right)]
    if any(np.ptp(each) == 0 for each in ranks):
        return float("nan")
    return float(np.corrcoef(ranks)[0, 1])
