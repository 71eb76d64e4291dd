"""Quantiles of Student's t and of the normal distribution: where a 95 % interval ends."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri, stdtridf, stdtrit

from hessdiag.results.numbers import Z95, Array

LEVEL = 0.975  # of the upper end of a 95 % interval
MIN_DOF = 0.5  # with fewer degrees of freedom a standard error says nothing


def t_quantile(probability: float, dof: float | Array) -> Array:
    """Return the t with P(T <= t) = `probability`, for each number of degrees of freedom; infinitely many are normal.

    >>> t_quantile(0.975, np.array([1, 10, math.inf])).round(4)
    array([12.7062,  2.2281,  1.96  ])
    """
    normal = np.isinf(dof)
    return np.asarray(np.where(normal, ndtri(probability), stdtrit(np.where(normal, 1.0, dof), probability)))


def widening(dof: float | Array) -> Array:
    """Return Student's 97.5 % quantile over the normal one: an error so much wider makes ± 1.96 of it a 95 % interval.

    >>> widening(np.array([math.inf, 10.0])).round(3)
    array([1.   , 1.137])
    """
    degrees = np.asarray(dof, dtype=np.float64)
    enough = degrees >= MIN_DOF
    return np.where(enough, t_quantile(LEVEL, np.where(enough, degrees, math.inf)) / Z95, math.inf)


def skewed_dof(dof: Array, skewness: Array) -> Array:
    """Return fewer degrees of freedom, with the 97.5 % quantile of a mean that is skewed to the right.

    Such a mean is low where its standard error is too, so that the truth is above t standard errors more often than
    Student's t has it. By the first term of the Edgeworth expansion (P. Hall, The Bootstrap and Edgeworth Expansion,
    1992, section 2.6) the quantile there is farther out by γ (2 z² + 1)/6, γ being the skewness of the mean.

    Args:
        dof: of the standard error.
        skewness: of the mean; where it is negative, nothing changes.
    """
    farther = np.maximum(skewness, 0) * (2 * Z95**2 + 1) / (6 * Z95)
    wanted = np.minimum(widening(dof) + farther, widening(MIN_DOF))
    found = np.maximum(stdtridf(LEVEL, wanted * Z95), MIN_DOF)
    return np.where(farther > 0, np.minimum(found, dof), dof)
