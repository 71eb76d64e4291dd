"""Quantiles against printed tables and closed forms."""

import math

import numpy as np
import pytest

from hessdiag.curvature.estimators.student import skewed_dof, t_quantile, widening
from hessdiag.results.numbers import Z95

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
    assert (t_quantile(0.975, dof).round(3), t_quantile(0.995, dof).round(3)) == TABLE[dof]


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.6, 0.975, 0.9999])
def test_closed_forms_of_one_and_two_degrees_of_freedom(probability: float) -> None:
    cauchy = math.tan(math.pi * (probability - 0.5))
    two = (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    assert t_quantile(probability, np.array([1.0, 2.0])) == pytest.approx([cauchy, two], rel=1e-10, abs=1e-12)


def test_many_degrees_of_freedom_are_normal() -> None:
    assert t_quantile(0.975, np.array([1e9, math.inf])) == pytest.approx([Z95, Z95], rel=2e-9)
    assert math.erf(Z95 / math.sqrt(2)) == pytest.approx(0.95, abs=1e-15)


@pytest.mark.parametrize("dof", [0.5, 0.7, 1.0, 3.3, 7.5, 20.0, 400.0, 1e5, math.inf])
def test_widening_is_a_ratio_of_quantiles(dof: float) -> None:
    exact = t_quantile(0.975, dof) / t_quantile(0.975, math.inf)
    assert float(widening(np.array([dof]))[0]) == pytest.approx(float(exact), rel=1e-12)


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


def test_skewness_moves_the_quantile_by_the_edgeworth_term() -> None:
    dof, skewness = np.array([1.0, 3.0, 15.0, math.inf]), np.array([0.1, 0.5, 1.0, 0.2])
    farther = skewness * (2 * Z95**2 + 1) / (6 * Z95)
    assert widening(skewed_dof(dof, skewness)) == pytest.approx(widening(dof) + farther, rel=1e-9)
