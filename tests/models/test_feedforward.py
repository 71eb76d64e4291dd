"""The strided LeNet and perceptrons have the sizes of the paper and compute what their formulas say."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hessdiag.models import StridedLeNet, mlp


@pytest.mark.parametrize(("channels", "classes"), [(3, 10), (1, 7)])
def test_weights_have_lenets_sizes_and_there_is_no_bias(channels: int, classes: int) -> None:
    shapes = {name: tuple(p.shape) for name, p in StridedLeNet(channels, classes).named_parameters()}
    assert shapes == {
        "conv1.weight": (6, channels, 5, 5), "conv2.weight": (16, 6, 5, 5), "fc1.weight": (120, 400),
        "fc2.weight": (84, 120), "fc3.weight": (classes, 84),
    }  # fmt: skip


def test_lenet_is_relu_between_five_products_and_perceptrons_flatten_images() -> None:
    model = StridedLeNet().double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    W = list(model.parameters())
    h = F.conv2d(F.conv2d(x, W[0], stride=2).clamp(min=0), W[1], stride=2).clamp(min=0).flatten(1)
    for weight in W[2:4]:
        h = (h @ weight.T).clamp(min=0)
    torch.testing.assert_close(model(x), h @ W[4].T, rtol=1e-12, atol=1e-12)
    assert bool((model(x) < 0).any())
    model = mlp([12, 2])
    x = torch.randn(5, 3, 2, 2)
    assert torch.equal(model(x), model(x.reshape(5, 12)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [[4, 3], [4, 5, 3], [7, 1, 6, 2]])
def test_sizes_and_a_relu_between_layers_and_not_after_the_last(widths: list[int], bias: bool) -> None:
    model = mlp(widths, bias=bias).double()
    expected = {}
    for i, (n, m) in enumerate(pairwise(widths), start=1):
        expected |= {f"fc{i}.weight": (m, n)} | ({f"fc{i}.bias": (m,)} if bias else {})
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == expected
    x = h = torch.randn(9, widths[0], dtype=torch.float64)
    for number, layer in enumerate(m for m in model if isinstance(m, nn.Linear)):
        h = F.linear(h.clamp(min=0) if number else h, layer.weight, layer.bias)
    torch.testing.assert_close(model(x), h, rtol=1e-12, atol=1e-12)
