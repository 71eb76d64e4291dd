"""Hutchinson's estimator of squared norms, pooled over examples that each have a matrix and probes of their own.

M. F. Hutchinson, Communications in Statistics – Simulation and Computation 18 (1989) 1059–1076.
"""

from __future__ import annotations

import numpy as np

from hessdiag.curvature.estimators.estimate import Estimate
from hessdiag.results.report import Array


def hutchinson(count: int, total: Array, squares: Array) -> Estimate:
    """Mean over examples b of E‖H^(b) r‖² = ‖H^(b)‖_F², for probes r of independent entries of mean 0 and variance 1.

    The variance s_b²/(B² m) of each example's mean over m probes comes from the spread between its own probes: the
    spread between examples is no noise of the estimator. The degrees of freedom of the sum are those of Welch and
    Satterthwaite, ν = (m + 1)(Σs²)²/Σs⁴ − 2, which removes the bias of s⁴ and is m − 1 for one example. They are halved
    for the tails of ‖H r‖²: values of excess kurtosis κ tell their variance as well as ν/(1 + κ/2) degrees of freedom
    would, and κ is between 0 (many equal eigenvalues) and 12 (a single one); with κ = 2 the 95 % intervals of the
    spectra in the tests cover in 93–98 %.

    Args:
        count: m >= 2, probes of each example.
        total: (B, rows), Σ ‖H r‖² over the m probes.
        squares: (B, rows), Σ ‖H r‖⁴.

    >>> e = hutchinson(2, np.array([[4.0]]), np.array([[10.0]]))  # ‖H r‖² was 1 and 3
    >>> float(e.frobenius_sq[0]), float(e.stderr[0]), float(e.dof[0])
    (2.0, 1.0, 0.5)
    """
    examples = len(total)
    mean = total / count  # (B, rows)
    within = np.maximum(squares / count - mean**2, 0) * count / (count - 1)  # (B, rows)
    variance = within.sum(axis=0)  # (rows,)
    fourth = (within**2).sum(axis=0)
    concentration = np.divide(variance**2, fourth, out=np.full_like(variance, examples), where=fourth > 0)
    dof = np.maximum((count + 1) * concentration - 2, count - 1) / 2
    return Estimate(mean.mean(axis=0), np.sqrt(variance / count) / examples, dof)
