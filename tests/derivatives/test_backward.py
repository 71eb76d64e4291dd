"""Jacobians of layers by their rules: a network whose rule is wrong is measured without it, and right all the same."""

import pytest
import torch
from torch import nn

from hessdiag.derivatives.backward import unfold, weight_jacobian
from hessdiag.derivatives.jacobians import DenseJacobian

LAYERS = {
    "conv1d": (nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 9)),
    "conv2d": (nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0)), (2, 5, 6)),
    "dilated": (nn.Conv2d(2, 4, 2, dilation=(2, 1)), (2, 5, 5)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (4, 4, 4)),
    "conv3d": (nn.Conv3d(2, 3, 2, stride=2), (2, 4, 4, 4)),
    "reflected": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), (2, 4, 4)),
    "more sites than inputs": (nn.Conv2d(1, 3, 2, padding=1), (1, 4, 4)),
    "linear": (nn.Linear(4, 3), (4,)),
    "linear on positions": (nn.Linear(4, 3), (6, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_rows_are_weight_gradients(name: str) -> None:
    layer, size = LAYERS[name]
    layer = layer.double()
    x = torch.randn(3, *size, dtype=torch.float64)
    out = layer(x)
    phi = torch.randn(2, *out.shape, dtype=torch.float64)
    J = weight_jacobian(layer, x, phi, examples=3)
    for b in range(3):
        for c in range(2):
            (want,) = torch.autograd.grad((layer(x)[b] * phi[c, b]).sum(), layer.weight)
            torch.testing.assert_close(J.dense().J[b, c], want.flatten(), rtol=1e-12, atol=1e-13)
    gram = torch.einsum("bcp,bdp->bcd", J.dense().J, J.dense().J)
    torch.testing.assert_close(J.gram(), gram, rtol=1e-11, atol=1e-13)


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
