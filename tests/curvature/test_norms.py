"""Quantiles, degrees of freedom, and means over batches."""

import math

import numpy as np
import pytest

from hessdiag.curvature.norms import Curvature, equal_parts, merge, times_wanted, widening


@pytest.mark.parametrize(("dof", "quantile"), [(1, 12.706), (2, 4.303), (5, 2.571), (30, 2.042), (math.inf, 1.960)])
def test_the_printed_table_of_student(dof: float, quantile: float) -> None:
    assert float(widening(np.array([dof]))[0]) * 1.959964 == pytest.approx(quantile, abs=6e-4)


def test_parts_of_a_variance_samples_for_an_error_and_means_over_batches() -> None:
    variances = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    assert equal_parts(variances.sum(axis=1), (variances**2).sum(axis=1)).tolist() == [4.0, 1.0]
    value, stderr = np.array([1.0, 2.0]), np.array([0.1, 0.1])
    assert times_wanted(value, stderr, 0.05) == pytest.approx(4 * 1.2**2)
    assert times_wanted(-value, 10 * stderr, 0.5) == pytest.approx(4 * 1.2**2)  # no more than noise
    assert times_wanted(value, 0 * stderr, 0.05) == 0

    def of(value: float, stderr: float, rtol: float | None = None) -> Curvature:
        return Curvature.sampled(np.full((1, 1), value), np.full((1, 1), stderr), int(value), rtol=rtol, reason="why")

    both = merge([of(1.0, 0.3), of(4.0, 0.4)], [3, 1])
    assert both.frobenius_sq[0, 0] == pytest.approx(1.75)
    assert both.stderr[0, 0] == pytest.approx(math.hypot(0.75 * 0.3, 0.25 * 0.4))
    assert both.products.tolist() == [4]
    assert both.ended(0) == "sampled"
    assert merge([of(1.0, 0.3, rtol=0.2), of(4.0, 0.4, rtol=0.2)], [3, 1]).ended(0) == "rtol"
    assert merge([of(1.0, 0.3, rtol=0.1), of(4.0, 0.4, rtol=0.1)], [3, 1]).ended(0) == "budget"
    assert merge([of(1.0, 0.0), of(4.0, 0.0)], [1, 1]).ended(0) == "exact"
