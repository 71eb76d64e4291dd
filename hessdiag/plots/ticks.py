"""Ticks of logarithmic axes, labelled in plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def label_decades(axis: Axis) -> None:
    """Label the powers of ten of an axis whose limits are set, and 2 and 5 times these where it spans few."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    axis.set_minor_formatter(NullFormatter())


def power_of_ten(value: float) -> str:
    """Write a number of one digit, with an exponent as `number` writes it.

    >>> [power_of_ten(v) for v in (0.02, 1.0, 500.0, 1e-6, 2e3)]
    ['0.02', '1', '500', '1e-6', '2e3']
    """
    if 0.01 <= value * (1 + 1e-9) < 1000:
        return f"{value:g}"
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}"


def raised(exponent: int) -> str:
    """Write an exponent in superscripts.

    >>> raised(-12)
    '⁻¹²'
    """
    return str(exponent).translate(_SUPERSCRIPTS)


def label_octaves(axes: Axes, exponents: Sequence[int]) -> None:
    """Label powers of two on the x axis: as whole numbers and fractions, or as powers where these would be long."""
    axes.set_xticks([2.0**e for e in exponents], labels=octaves(exponents))
    axes.xaxis.set_minor_locator(NullLocator())


def octaves(exponents: Sequence[int]) -> list[str]:
    """Write powers of two.

    >>> octaves([-2, 0, 3]), octaves([-12, 0])
    (['1/4', '1', '8'], ['2⁻¹²', '1'])
    """
    if max((abs(e) for e in exponents), default=0) > 10:
        return ["1" if e == 0 else f"2{raised(e)}" for e in exponents]
    return [str(2**e) if e >= 0 else f"1/{2**-e}" for e in exponents]


def octaves_within(low: float, high: float) -> list[int]:
    """List the exponents of the powers of two between two numbers.

    >>> octaves_within(0.2, 4.0)
    [-2, -1, 0, 1, 2]
    """
    return list(range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1))
