"""Plain numbers: arrays of them, spreads and means of them, and how tables and sentences show them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]  # NDArray, since NumPy 2.5, does not say what it is
Z95 = 1.959963984540054  # 97.5 % quantile of N(0, 1): so many standard errors reach to either end of a 95 % interval
DIGITS = 3  # significant ones of every number that is shown
PLAIN = range(-3, 5)  # powers of ten that need no exponent


def short(value: float, digits: int = DIGITS) -> str:
    """Three significant digits; an exponent where the number would be long, a dash where it is undefined.

    >>> [short(v) for v in (7.1694, 2.1, 472.6, 1063.0, 0.000321, 123456.0, 0.0, float("inf"), float("nan"))]
    ['7.17', '2.10', '473', '1060', '3.21e-4', '1.23e5', '0', 'inf', '–']
    """
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else str(value)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if (power := int(exponent)) in PLAIN:
        return f"{float(mantissa) * 10.0**power:.{max(digits - 1 - power, 0)}f}"
    return f"{mantissa}e{power}"


def bounded(value: float, error: float) -> str:
    """A number and how far it may be off, where that is known and above 0.

    >>> bounded(2.0, 0.1), bounded(2.0, 0.0)
    ('2.00 ± 0.100', '2.00')
    """
    return f"{short(value)} ± {short(error)}" if error > 0 else short(value)


def root(square: float) -> str:
    """A root mean square, of its square.

    >>> root(4.0)
    '2.00'
    """
    return short(math.sqrt(square))


def whole(share: float) -> str:
    """A share in whole percent, as of examples or units.

    >>> whole(0.355)
    '36 %'
    """
    return f"{100 * share:.0f} %"


def trimmed(value: float) -> str:
    """The same without the zeros at its end, for thresholds and the like, which are no measurements.

    >>> [trimmed(v) for v in (2.0, 0.5, 1e-6, 100.0, 123.4)]
    ['2', '0.5', '1e-6', '100', '123']
    """
    mantissa, mark, power = short(value).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + power


def percent(share: float) -> str:
    """A relative error in percent, to a tenth: as fine as three digits of a value are.

    >>> percent(0.0473), percent(0.0001), percent(1.5), percent(math.nan)
    ('4.7', '<0.1', '150', '–')
    """
    if 0 < 100 * share < 0.05:
        return "<0.1"
    return f"{100 * share:.1f}" if 0 < 100 * share < 99.95 else short(100 * share)


def spread(values: Sequence[float]) -> float:
    """Largest over smallest of some positive values; NaN when there are none or one is undefined, inf when one is 0.

    An estimate below 0, which an unbiased one of little may be, leaves it undefined.

    >>> spread([2.0, 8.0, 4.0]), spread([2.0, -1.0])
    (4.0, nan)
    """
    if not values or any(math.isnan(v) or v < 0 for v in values):
        return math.nan
    low, high = min(values), max(values)
    return high / low if low else math.inf if high else math.nan


def away(ratio: float) -> float:
    """A ratio or its inverse, whichever is larger; 1 where it is undefined."""
    return 1.0 if math.isnan(ratio) else max(ratio, 1 / ratio) if ratio > 0 else math.inf


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
