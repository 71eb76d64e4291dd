"""Hutchinson's estimator, pooled over examples."""

import numpy as np
import pytest

from hessdiag.curvature.estimators.hutchinson import hutchinson


def estimate(norms: np.ndarray):
    """Of norms (B, m, rows)."""
    return hutchinson(norms.shape[1], norms.sum(axis=1), (norms**2).sum(axis=1))


def test_one_example_is_the_mean_of_a_sample() -> None:
    norms = np.random.default_rng(0).chisquare(3, size=(1, 12, 2))
    found = estimate(norms)
    np.testing.assert_allclose(found.frobenius_sq, norms[0].mean(axis=0))
    np.testing.assert_allclose(found.stderr, norms[0].std(axis=0, ddof=1) / 12**0.5)
    np.testing.assert_allclose(found.dof, 11 / 2)


def test_the_spread_between_examples_is_no_error() -> None:
    norms = np.array([[1.0, 1.0], [100.0, 100.0]])[..., None]
    assert (estimate(norms).frobenius_sq[0], estimate(norms).stderr[0]) == (50.5, 0.0)


def test_degrees_of_freedom_of_many_examples() -> None:
    """Examples of one scale add theirs up; one example that outweighs the others leaves its own."""
    norms = np.random.default_rng(0).normal(10, 1, size=(400, 4, 1))
    assert estimate(norms).dof[0] == pytest.approx(400 * 3 / 2, rel=0.1)
    norms[0] = 10 + 1e4 * (norms[0] - 10)
    assert estimate(norms).dof[0] == pytest.approx(3 / 2, rel=1e-3)
