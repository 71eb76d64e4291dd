"""Quantiles against tables and SciPy."""

import math

import pytest

from hessdiag.curvature.estimators.student import t_distribution, t_quantile

TABLE = {  # two-sided 95 % and 99 %, as printed in every textbook
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    5: (2.571, 4.032),
    11: (2.201, 3.106),
    30: (2.042, 2.750),
    120: (1.980, 2.617),
    math.inf: (1.960, 2.576),
}


@pytest.mark.parametrize("dof", TABLE)
def test_the_printed_table(dof: float) -> None:
    assert (round(t_quantile(0.975, dof), 3), round(t_quantile(0.995, dof), 3)) == TABLE[dof]


@pytest.mark.parametrize("dof", [0.5, 1.5, 3.5, 7.5, 19, 199.5, 1e6, 1e9])
@pytest.mark.parametrize("probability", [0.025, 0.5, 0.6, 0.975, 0.9999])
def test_scipy_agrees(dof: float, probability: float) -> None:
    from scipy import stats

    assert t_quantile(probability, dof) == pytest.approx(stats.t.ppf(probability, dof), rel=1e-8, abs=1e-8)
    assert t_distribution(1.7, dof) == pytest.approx(stats.t.cdf(1.7, dof), rel=1e-8 if dof > 1e3 else 1e-12)
