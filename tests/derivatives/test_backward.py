"""Jacobians of layers where a network's own are too small to need it: formed by pieces, of sizes beyond float32."""

import pytest
import torch
from torch import nn

from hessdiag.derivatives.backward import unfold, weight_jacobian
from hessdiag.derivatives.jacobians import DenseJacobian


@pytest.mark.parametrize("held", [1, 3000, 10**9])
def test_a_jacobian_smaller_than_its_factors_is_formed_a_few_examples_at_a_time(held: int, monkeypatch) -> None:
    """Also of several rows of each example."""
    monkeypatch.setattr("hessdiag.derivatives.backward.PIECE", held)
    layer = nn.Conv2d(2, 3, 2).double()
    x, phi = torch.randn(6, 2, 5, 5).double(), torch.randn(4, 6, 3, 4, 4).double()
    J = weight_jacobian(layer, x, phi, examples=3)
    assert isinstance(J, DenseJacobian)
    want = torch.einsum("crnt,rdt->crnd", phi.flatten(3), unfold(layer, x)).unflatten(1, (3, 2)).sum(2)
    torch.testing.assert_close(J.J, want.transpose(0, 1).flatten(2), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1e-25, 1e25])
@pytest.mark.parametrize("sites", [2, 6])
def test_factors_that_leave_float32_when_squared_are_scaled(size: float, sites: int) -> None:
    layer = nn.Conv2d(2, 3, 2)
    x, phi = torch.randn(3, 2, sites, sites), torch.randn(4, 3, 3, sites - 1, sites - 1)
    small = weight_jacobian(layer, x * size, phi * size, examples=3)
    gram = weight_jacobian(layer.double(), x.double(), phi.double(), examples=3).gram()
    torch.testing.assert_close(small.gram() / size**2 / size**2, gram, rtol=1e-4, atol=1e-4)
