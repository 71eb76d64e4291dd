"""The strided LeNet has the paper's sizes and computes what its formula says."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hessdiag.models import StridedLeNet


@pytest.mark.parametrize(("channels", "classes"), [(3, 10), (1, 7)])
def test_weights_have_lenets_sizes_and_there_is_no_bias(channels: int, classes: int) -> None:
    shapes = {name: tuple(p.shape) for name, p in StridedLeNet(channels, classes).named_parameters()}
    assert shapes == {
        "conv1.weight": (6, channels, 5, 5),
        "conv2.weight": (16, 6, 5, 5),
        "fc1.weight": (120, 400),
        "fc2.weight": (84, 120),
        "fc3.weight": (classes, 84),
    }


def test_activations_have_lenet_5s_spatial_sizes() -> None:
    model = StridedLeNet()
    seen = {}
    for name, layer in model.named_children():
        layer.register_forward_hook(lambda _, x, y, name=name: seen.update({name: (tuple(x[0].shape), tuple(y.shape))}))
    model(torch.zeros(2, 3, 32, 32))
    assert seen == {
        "conv1": ((2, 3, 32, 32), (2, 6, 14, 14)),
        "conv2": ((2, 6, 14, 14), (2, 16, 5, 5)),
        "fc1": ((2, 400), (2, 120)),
        "fc2": ((2, 120), (2, 84)),
        "fc3": ((2, 84), (2, 10)),
    }


def test_it_is_relu_between_five_products_and_nothing_after() -> None:
    model = StridedLeNet().double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    W = list(model.parameters())
    h = F.conv2d(F.conv2d(x, W[0], stride=2).clamp(min=0), W[1], stride=2).clamp(min=0).flatten(1)
    for weight in W[2:4]:
        h = (h @ weight.T).clamp(min=0)
    torch.testing.assert_close(model(x), h @ W[4].T, rtol=1e-12, atol=1e-12)
    assert bool((model(x) < 0).any())


def test_it_is_positively_homogeneous() -> None:
    model = StridedLeNet().double()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(model(3 * x), 3 * model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (2, 3, 28, 28)])
def test_other_images_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        StridedLeNet()(torch.zeros(shape))


def test_its_layers_are_modules_that_hooks_can_watch() -> None:
    assert [type(m) for m in StridedLeNet().children()] == [nn.Conv2d, nn.Conv2d, nn.Linear, nn.Linear, nn.Linear]
