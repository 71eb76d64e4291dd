"""The formulas against each other."""

import math

import pytest

from hessdiag.scaling import activation_scaling, gamma, gamma_intrinsic, nu


def test_forms_agree_under_the_forward_and_backward_relations_and_nothing_is_divided_by_zero() -> None:
    """Appendix of arXiv 1906.04267, with rho_{l+1}, unequal fans, a kernel and unequal sites."""
    n_in, n_out, k, sites_in, sites_out = 6, 16, 25, 196, 25
    x_sq, weight_sq, out_gradient_sq = 0.7, 0.01, 3.0
    out_sq = n_in * k * weight_sq * x_sq  # forward
    x_gradient_sq = sites_out * n_out * k * weight_sq * out_gradient_sq / sites_in  # backward
    varsigma = activation_scaling(n_in * sites_in, x_gradient_sq, x_sq)
    surroundings = {"sites_out": sites_out, "x_sq": x_sq, "delta_sq": out_gradient_sq, "out_sq": out_sq}
    extrinsic = gamma("weight", fan_in=n_in, kernel=k, **surroundings)
    assert extrinsic == pytest.approx(gamma_intrinsic(scaling=varsigma, numel=n_in * n_out * k, weight_sq=weight_sq))
    gradient_sq = sites_out * x_sq * out_gradient_sq  # Proposition 1
    assert extrinsic == pytest.approx(nu(gradient_sq=gradient_sq, weight_sq=weight_sq))
    n, k = 3, 9
    x_sq = 1 / math.sqrt(n * k)
    around = {"fan_in": n, "kernel": k, "sites_out": 100, "x_sq": x_sq, "delta_sq": 2.0, "out_sq": 0.3}
    assert gamma("weight", **around) == pytest.approx(gamma("bias", **around))
    assert math.isnan(nu(gradient_sq=1.0, weight_sq=0.0))
    assert math.isnan(gamma("bias", fan_in=1, kernel=1, sites_out=1, x_sq=1.0, delta_sq=1.0, out_sq=0.0))
