"""Hutchinson's estimator of squared norms, pooled over examples that each have a matrix and probes of their own.

M. F. Hutchinson, Communications in Statistics – Simulation and Computation 18 (1989) 1059–1076.
"""

from __future__ import annotations

import numpy as np

from hessdiag.curvature.estimators.estimate import Estimate
from hessdiag.curvature.estimators.student import skewed_dof
from hessdiag.results.numbers import Array

MODERATE = 1.0  # excess kurtosis that is always reckoned with: a few samples do not show their tails


def hutchinson(norms: Array) -> Estimate:
    """Mean over examples b of E‖H^(b) r‖² = ‖H^(b)‖_F², for probes r of independent entries of mean 0 and variance 1.

    The variance s_b²/(B² m) of each example's mean over m probes comes from the spread between its own probes: the
    spread between examples is no noise of the estimator. The degrees of freedom of the sum are those of Welch and
    Satterthwaite, ν = (m + 1)(Σs²)²/Σs⁴ − 2, which removes the bias of s⁴ and is m − 1 for one example. They are
    divided by 1 + κ/2 for the tails of ‖H r‖², because Var s² = (2/(m − 1) + κ/m) σ⁴ for values of excess kurtosis κ.
    It is between about 0 (many equal eigenvalues) and 12 (a single one), and estimated from all samples, but never
    taken to be less than `MODERATE`. They are fewer still for the skewness of the mean.

    Args:
        norms: (B, m, rows), ‖H r‖² of m >= 2 probes of each example.

    >>> e = hutchinson(np.array([[[1.0], [3.0]]]))
    >>> float(e.frobenius_sq[0]), float(e.stderr[0]), float(e.dof[0])
    (2.0, 1.0, 0.6666666666666666)
    """
    examples, count, _ = norms.shape
    mean = norms.mean(axis=1)  # (B, rows)
    apart = norms - mean[:, None]
    within = apart.var(axis=1, ddof=1)  # (B, rows)
    variance = within.sum(axis=0)  # (rows,)
    squares = (within**2).sum(axis=0)
    parts = np.divide(variance**2, squares, out=np.full_like(variance, examples), where=squares > 0)
    dof = np.maximum((count + 1) * parts - 2, count - 1) / (1 + _kurtosis(apart, within) / 2)
    third, power = (apart**3).sum(axis=(0, 1)), (count * variance) ** 1.5  # the skewness of the mean is their ratio
    dof = skewed_dof(dof, np.divide(third, power, out=np.zeros_like(third), where=power > 0))
    return Estimate(mean.mean(axis=0), np.sqrt(variance / count) / examples, dof)


def _kurtosis(apart: Array, within: Array) -> Array:
    """Excess kurtosis of the samples around their examples' means, pooled over examples, (rows,).

    It comes out low where an example has few samples, and tells nothing of 2 of them: hence its lower bound.
    """
    count = apart.shape[1]
    fourth, squares = (apart**4).mean(axis=1).sum(axis=0), (within**2).sum(axis=0)
    shrunk = (1 - 1 / count) ** 2
    raw = np.divide(fourth / shrunk, squares, out=np.full_like(fourth, 3.0), where=squares > 0) - 3
    return np.asarray(np.maximum(raw, MODERATE))
