"""Plain numbers: arrays of them, spreads and means of them, and how tables and sentences show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Z95 = 1.959963984540054  # 97.5 % quantile of N(0, 1): so many standard errors reach to either end of a 95 % interval


DIGITS = 3  # significant ones of every number that is shown
PLAIN = range(-3, 5)  # powers of ten that need no exponent


def short(value: float) -> str:
    """Three significant digits; an exponent where the number would be long, a dash where it is undefined.

    >>> [short(v) for v in (7.1694, 2.1, 472.6, 1063.0, 0.000321, 123456.0, 0.0, float("inf"), float("nan"))]
    ['7.17', '2.10', '473', '1060', '3.21e-4', '1.23e5', '0', 'inf', '–']
    """
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else str(value)
    mantissa, power = _parts(value)
    if power in PLAIN:
        return f"{mantissa * 10.0**power:.{_decimals(power)}f}"
    return f"{mantissa:.{DIGITS - 1}f}e{power}"


def trimmed(value: float) -> str:
    """The same without the zeros at its end, for thresholds and the like, which are no measurements.

    >>> [trimmed(v) for v in (2.0, 0.5, 1e-6, 100.0, 123.4)]
    ['2', '0.5', '1e-6', '100', '123']
    """
    mantissa, mark, power = short(value).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + power


def short_error(error: float, value: float) -> str:
    """An error to the last digit that `short` shows of its value; of an error that is smaller, its first digit.

    >>> short_error(0.0749, 1.8513), short_error(631.0, 1063.0), short_error(1e-4, 7.2), short_error(63.2, 1.0)
    ('0.07', '630', '1e-4', '63.2')
    """
    if not math.isfinite(error) or not math.isfinite(value) or error == 0 or value == 0:
        return short(error)
    power = _parts(error)[1]
    digits = min(DIGITS, power - _parts(value)[1] + DIGITS)  # of the error, down to the value's last place
    power = _parts(error, digits := max(digits, 1))[1]
    mantissa = float(f"{error:.{digits - 1}e}") / 10.0**power
    if power in PLAIN:
        return f"{mantissa * 10.0**power:.{max(digits - 1 - power, 0)}f}"
    return f"{mantissa:.{digits - 1}f}e{power}"


def with_error(value: float, error: float) -> str:
    """A value and its standard error, the error rounded to match; the value alone where no error is known.

    >>> with_error(1.8513, 0.0749), with_error(3.21e-4, 2.1e-5), with_error(2.0, math.nan)
    ('1.85 ± 0.07', '3.21e-4 ± 2.1e-5', '2.00')
    """
    return f"{short(value)} ± {short_error(error, value)}" if math.isfinite(error) else short(value)


def percent(share: float) -> str:
    """A relative error in percent, to a tenth: as fine as three digits of a value are.

    >>> percent(0.0473), percent(0.0001), percent(1.5), percent(math.nan)
    ('4.7', '<0.1', '150', '–')
    """
    if 0 < 100 * share < 0.05:
        return "<0.1"
    return f"{100 * share:.1f}" if 0 < 100 * share < 99.95 else short(100 * share)


def _parts(value: float, digits: int = DIGITS) -> tuple[float, int]:
    """Mantissa and power of ten of a rounded number."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    return float(mantissa), int(power)


def _decimals(power: int) -> int:
    return max(DIGITS - 1 - power, 0)


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
