"""Quantiles against tables and SciPy."""

import math

import numpy as np
import pytest

from hessdiag.curvature.estimators.student import skewed_dof, t_distribution, t_quantile, widening

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


@pytest.mark.parametrize("dof", [0.5, 0.7, 1.0, 3.3, 7.5, 20.0, 400.0, 1e5, math.inf])
def test_widening_is_a_ratio_of_quantiles(dof: float) -> None:
    exact = t_quantile(0.975, dof) / t_quantile(0.975, math.inf)
    assert float(widening(np.array([dof]))[0]) == pytest.approx(exact, rel=2e-3)


def test_hardly_any_degree_of_freedom_is_no_error() -> None:
    assert widening(np.array([0.4, 0.0])).tolist() == [math.inf, math.inf]


def test_a_skewed_mean_is_covered_where_students_interval_is_too_short() -> None:
    """Of 16 samples of an exponential distribution, the truth is above the interval in 8 % of the draws."""
    samples = np.random.default_rng(0).exponential(size=(4000, 16))
    apart = samples - samples.mean(axis=1, keepdims=True)
    skewness = (apart**3).mean(axis=1) / (apart**2).mean(axis=1) ** 1.5 / 16**0.5
    gap, error = np.abs(samples.mean(axis=1) - 1), samples.std(axis=1, ddof=1) / 16**0.5
    dof = np.full(4000, 15.0)
    assert np.mean(gap <= 1.96 * error * widening(dof)) < 0.92
    assert 0.92 <= np.mean(gap <= 1.96 * error * widening(skewed_dof(dof, skewness))) <= 0.98
    assert (skewed_dof(dof, -skewness) == dof)[skewness > 0].all()
