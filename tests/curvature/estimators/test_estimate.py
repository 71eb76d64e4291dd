"""Intervals at their limits."""

import math

import numpy as np

from hessdiag.curvature.estimators.estimate import Column, Estimate


def test_the_interval_is_students_where_the_error_is_small() -> None:
    low, high = Estimate(np.array([5.0]), np.array([1e-6]), np.array([10.0])).interval(0.95)
    np.testing.assert_allclose([low[0], high[0]], [5 - 2.228139e-6, 5 + 2.228139e-6], rtol=1e-11)


def test_intervals_of_zero_exact_and_wild_estimates() -> None:
    estimate = Estimate(np.array([0.0, 2.0, 1.0]), np.array([0.0, 0.0, 1.0]), np.array([7.5, math.inf, 0.5]))
    low, high = estimate.interval(0.95)
    assert low[:2].tolist() == high[:2].tolist() == [0.0, 2.0]
    assert low[2] < 1e-3
    assert high[2] > 1e3
    assert [estimate.relative(row) for row in range(3)] == [0.0, 0.0, 1.0]


def test_an_exact_column_has_no_width() -> None:
    low, high = Column.exact(np.array([3.0]), products=8).interval(0.99)
    assert low.tolist() == high.tolist() == [3.0]


def test_no_standard_error_below_rounding() -> None:
    floored = Estimate(np.array([2.0, 0.0]), np.zeros(2), np.ones(2)).with_rounding(1e-7)
    np.testing.assert_allclose(floored.stderr, [32e-7, 0.0])


def test_bars_are_wider_by_students_quantile() -> None:
    estimate = Estimate(np.array([5.0, 5.0, 5.0]), np.array([1.0, 1.0, 0.0]), np.array([10.0, math.inf, 0.1]))
    np.testing.assert_allclose(estimate.bars, [2.228139 / 1.959964, 1.0, 0.0], rtol=1e-3)
    assert estimate.precision(0) == estimate.bars[0] / 5
