"""Hutchinson's estimator, pooled over examples."""

import numpy as np
import pytest

from hessdiag.curvature.estimators.hutchinson import hutchinson


def estimate(norms: np.ndarray):
    """Of norms (B, m, rows)."""
    return hutchinson(norms)


def test_one_example_is_the_mean_of_a_sample() -> None:
    norms = np.random.default_rng(0).chisquare(3, size=(1, 12, 2))
    found = estimate(norms)
    np.testing.assert_allclose(found.frobenius_sq, norms[0].mean(axis=0))
    np.testing.assert_allclose(found.stderr, norms[0].std(axis=0, ddof=1) / 12**0.5)


def test_degrees_of_freedom_of_symmetric_samples_without_tails() -> None:
    """m − 1 over 1 + κ/2 with the least κ that is reckoned with; skewness takes more of them."""
    flat = np.tile([9.0, 11.0], 6).reshape(1, 12, 1)
    assert estimate(flat).dof[0] == pytest.approx(11 / 1.5, rel=1e-3)
    assert estimate(np.exp(flat)).dof[0] == pytest.approx(11 / 1.5, rel=1e-3)  # two values are symmetric
    skewed = np.array([1.0] * 9 + [2.0, 3.0, 7.0]).reshape(1, 12, 1)
    assert estimate(skewed).dof[0] < 11 / 4
    assert estimate(-skewed).dof[0] > estimate(skewed).dof[0]


def test_the_spread_between_examples_is_no_error() -> None:
    norms = np.array([[1.0, 1.0], [100.0, 100.0]])[..., None]
    assert (estimate(norms).frobenius_sq[0], estimate(norms).stderr[0]) == (50.5, 0.0)


def test_degrees_of_freedom_of_many_examples() -> None:
    """Examples of one scale add theirs up; one example that outweighs the others leaves its own."""
    norms = np.random.default_rng(0).normal(10, 1, size=(400, 4, 1))
    assert estimate(norms).dof[0] == pytest.approx(400 * 3 / 1.5, rel=0.1)
    norms[0] = 10 + 1e4 * (norms[0] - 10)
    assert 1.5 < estimate(norms).dof[0] <= 3 / 1.5  # its own samples are skewed


def test_heavy_tails_leave_fewer_degrees_of_freedom() -> None:
    """Of a matrix of rank 1, ‖H r‖² has excess kurtosis 12; of a flat spectrum, next to none."""
    rng = np.random.default_rng(0)
    light, heavy = rng.normal(10, 1, size=(8, 50, 1)), rng.standard_normal((8, 50, 1)) ** 2
    assert estimate(light).dof[0] > 2 * estimate(heavy).dof[0]
