"""Quantiles of Student's t distribution, for any positive number of degrees of freedom."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from hessdiag.results.numbers import Array

LEVEL = 0.975  # of the upper end of a 95 % interval
GRID = 400  # nodes in 1/dof, between which widths are interpolated

_TINY = 1e-300


def t_quantile(probability: float, dof: float) -> float:
    """The t with P(T <= t) = `probability`, by bisection on the distribution function; 0 < probability < 1.

    >>> round(t_quantile(0.975, 1), 4), round(t_quantile(0.975, 10), 4), round(t_quantile(0.975, math.inf), 4)
    (12.7062, 2.2281, 1.96)
    """
    if probability < 0.5:
        return -t_quantile(1 - probability, dof)
    high = 1.0
    while t_distribution(high, dof) < probability and high < 1e30:
        high *= 2
    low = 0.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if t_distribution(middle, dof) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def widening(dof: Array) -> Array:
    """Student's 97.5 % quantile over the Gaussian one: an error so much wider makes ± 1.96 of it a 95 % interval.

    Interpolated to a relative 1e-3 from half a degree of freedom on; with fewer there is no saying, and it is inf.

    >>> widening(np.array([math.inf, 10.0])).round(3)
    array([1.   , 1.137])
    """
    inverse, width = _widths()
    with np.errstate(divide="ignore"):
        found = np.interp(np.sqrt(1 / np.asarray(dof)), inverse, width)
    return np.where(np.asarray(dof) < 0.5, math.inf, found)


def skewed_dof(dof: Array, skewness: Array) -> Array:
    """Fewer degrees of freedom, with the 97.5 % quantile of a mean that is skewed to the right.

    Such a mean is low where its standard error is too, so that the truth is above t standard errors more often than
    Student's t has it. By the first term of the Edgeworth expansion (P. Hall, The Bootstrap and Edgeworth Expansion,
    1992, section 2.6) the quantile there is farther out by γ (2 z² + 1)/6, γ being the skewness of the mean.

    Args:
        dof: of the standard error.
        skewness: of the mean; where it is negative, nothing changes.
    """
    inverse, width = _widths()
    normal = t_quantile(LEVEL, math.inf)
    wanted = widening(dof) + np.maximum(skewness, 0) * (2 * normal**2 + 1) / (6 * normal)
    with np.errstate(divide="ignore"):
        found = 1 / np.interp(wanted, width, inverse) ** 2
    return np.minimum(found, dof)


@cache
def _widths() -> tuple[Array, Array]:
    """Nodes 1/√dof and the widening at them."""
    root = np.linspace(0, math.sqrt(2), GRID)
    normal = t_quantile(LEVEL, math.inf)
    return root, np.array([1.0, *(t_quantile(LEVEL, 1 / r**2) / normal for r in root[1:])])


def t_distribution(t: float, dof: float) -> float:
    """P(T <= t) for t >= 0: 1 − I_x(ν/2, 1/2)/2 at x = ν/(ν + t²) (Abramowitz & Stegun 26.7.1).

    >>> t_distribution(1.0, 1)
    0.75
    """
    if dof > 1e7:  # closer to a Gaussian than the logarithms of gamma functions can tell
        return 0.5 * math.erfc(-t / math.sqrt(2))
    return 1 - _incomplete_beta(dof / 2, 0.5, dof / (dof + t * t), t * t / (dof + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """I_x(a, b) with y = 1 − x, by its continued fraction (Abramowitz & Stegun 26.5.8)."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other tail is fast
        return 1 - _incomplete_beta(b, a, y, x)
    beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log(y) - beta) / a
    return front / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d₁/(1 + d₂/(1 + …)) by the modified Lentz method."""
    value, c, d = 1.0, 1.0, 0.0
    for i in range(1, 10_000):
        m = i // 2
        if i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
