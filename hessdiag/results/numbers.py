"""Plain numbers: arrays of them, spreads and means of them, and how tables and sentences show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Z95 = 1.959963984540054  # 97.5 % quantile of N(0, 1): so many standard errors reach to either end of a 95 % interval


def short(value: float) -> str:
    """Three significant digits; an exponent where the number would be long, a dash where it is undefined.

    >>> [short(v) for v in (7.1694, 472.6, 0.000321, 123456.0, 0.0, float("inf"), float("nan"))]
    ['7.17', '473', '3.2e-04', '1.2e+05', '0', 'inf', '–']
    """
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"


def spread(values: Sequence[float]) -> float:
    """Largest over smallest of some positive values; NaN when there are none or one is undefined, inf when one is 0.

    An estimate below 0, which an unbiased one of little may be, leaves it undefined.

    >>> spread([2.0, 8.0, 4.0]), spread([2.0, -1.0])
    (4.0, nan)
    """
    if not values or any(math.isnan(v) or v < 0 for v in values):
        return math.nan
    low, high = min(values), max(values)
    if low == 0:
        return math.nan if high == 0 else math.inf
    return high / low


def geometric_mean(values: Sequence[float]) -> float:
    """Of the positive finite values; NaN when there is none.

    >>> geometric_mean([1.0, 4.0, math.nan])
    2.0
    """
    logarithms = [math.log(value) for value in values if value > 0 and math.isfinite(value)]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def normalize(frobenius_sq: Array, numel: Sequence[int]) -> Array:
    """Divide ||H_ij||_F^2 by sqrt(P_i P_j); leading dimensions of `frobenius_sq` are kept."""
    root = np.sqrt(np.asarray(numel, dtype=np.float64))
    return np.asarray(frobenius_sq / np.outer(root, root))
