"""Multi-layer perceptrons have the widths and the formula that were asked for."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from hessdiag.models import mlp


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [[4, 3], [4, 5, 3], [7, 1, 6, 2]])
def test_widths_and_biases(widths: list[int], bias: bool) -> None:
    named = dict(mlp(widths, bias=bias).named_parameters())
    expected = {}
    for i, (n, m) in enumerate(pairwise(widths), start=1):
        expected[f"fc{i}.weight"] = (m, n)
        if bias:
            expected[f"fc{i}.bias"] = (m,)
    assert {name: tuple(p.shape) for name, p in named.items()} == expected


@pytest.mark.parametrize("widths", [[4, 3], [4, 5, 3], [4, 5, 6, 3]])
def test_relu_stands_between_layers_and_not_after_the_last(widths: list[int]) -> None:
    model = mlp(widths).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    layers = [m for m in model if isinstance(m, nn.Linear)]
    h = x @ layers[0].weight.T + layers[0].bias
    for layer in layers[1:]:
        h = h.clamp(min=0) @ layer.weight.T + layer.bias
    torch.testing.assert_close(model(x), h, rtol=1e-12, atol=1e-12)


def test_images_are_flattened() -> None:
    model = mlp([12, 2])
    x = torch.randn(5, 3, 2, 2)
    assert torch.equal(model(x), model(x.reshape(5, 12)))


def test_widths_may_be_any_sequence() -> None:
    assert mlp((4, 3))(torch.zeros(2, 4)).shape == (2, 3)
