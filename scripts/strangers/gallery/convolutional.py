"""Convolutional networks of the gallery."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.gallery.case import Variant
from strangers.gallery.data import images
from tests.networks import Net


def he(model: nn.Module) -> nn.Module:
    """Initialise every convolution and linear layer as He does, biases zero."""
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def normalised(conv: nn.Conv2d, *rest: nn.Module) -> nn.Sequential:
    """A convolution, batch normalisation, and what follows."""
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), *rest)


def inverted_residual(width_in: int, width_out: int, *, expand: int = 4, stride: int = 1) -> nn.Module:
    """MobileNetV2's block: 1x1 up, depthwise 3x3, 1x1 down."""
    inner, skip = expand * width_in, stride == 1 and width_in == width_out

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.project(m.depthwise(m.expand(x)))
        return x + y if skip else y

    return Net(
        forward,
        expand=normalised(nn.Conv2d(width_in, inner, 1, bias=False), nn.ReLU6()),
        depthwise=normalised(nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.ReLU6()),
        project=normalised(nn.Conv2d(inner, width_out, 1, bias=False)),
    )


def mobilenet(width: int, classes: int = 10) -> nn.Module:
    """A small MobileNetV2 for images of 32x32."""
    sizes = [(1, 1, 1), (1, 2, 2), (2, 2, 1), (2, 3, 2), (3, 3, 1)]
    return Net(
        lambda m, x: m.head(m.blocks(m.stem(x)).mean((2, 3))),
        stem=normalised(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.ReLU6()),
        blocks=nn.Sequential(*(inverted_residual(n * width, m * width, stride=stride) for n, m, stride in sizes)),
        head=nn.Linear(3 * width, classes),
    )


def depthwise_fan_out(variant: Variant, width: int) -> nn.Module:
    """Fan-out k²·out, and divided by the groups."""
    model = mobilenet(width)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.kernel_size[0] ** 2 * layer.out_channels
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (fan_out // (1 if variant == "before" else layer.groups))))
    nn.init.normal_(model.head.weight, std=0.01)
    nn.init.zeros_(model.head.bias)
    return model


def conv3(width_in: int, width_out: int) -> nn.Conv2d:
    return nn.Conv2d(width_in, width_out, 3, 1, 1)


def tower(width: int, blocks: int, classes: int = 10) -> nn.Module:
    """A residual tower without normalisation: blocks of two convolutions around a skip connection."""
    branch = lambda m, x: x + m.conv2(F.relu(m.conv1(F.relu(x))))  # noqa: E731
    return Net(
        lambda m, x: m.head(F.relu(m.tower(m.stem(x))).mean((2, 3))),
        stem=conv3(3, width),
        tower=nn.Sequential(
            *(Net(branch, conv1=conv3(width, width), conv2=conv3(width, width)) for _ in range(blocks))
        ),
        head=nn.Linear(width, classes),
    )


def chain(width: int, depth: int, classes: int = 10) -> nn.Module:
    """A tower of convolutions and ReLUs."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = F.relu(m.stem(x))
        for layer in m.tower:
            x = F.relu(layer(x))
        return m.head(x.mean((2, 3)))

    tower = [conv3(3, width), *(conv3(width, width) for _ in range(depth))]
    return Net(forward, stem=tower[0], tower=nn.ModuleList(tower[1:]), head=nn.Linear(width, classes))


def conv_xavier(variant: Variant, width: int) -> nn.Module:
    """Xavier's fans summed over the four dimensions of the kernel, and the product of kernel and channels."""
    model = he(chain(width, depth=6))
    for layer in model.tower:
        rows, columns, k, _ = layer.weight.shape
        fans = 2 * k + rows + columns if variant == "before" else k * k * (rows + columns)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / fans))
    nn.init.xavier_normal_(model.head.weight)
    return model


def zero_module(variant: Variant, width: int) -> nn.Module:
    """The last convolution of every branch: overwritten by Kaiming's initialisation, and zero."""
    model = he(tower(width, blocks=10))
    nn.init.normal_(model.head.weight, std=0.01)
    if variant == "after":
        for block in model.tower:
            nn.init.zeros_(block.conv2.weight)
    return model


def mobile(width: int) -> nn.Module:
    """A healthy MobileNet, with statistics of a first pass in its normalisations."""
    return calibrate(depthwise_fan_out("after", width))


def calibrate(model: nn.Module) -> nn.Module:
    """Set the running statistics of normalisations from one batch."""
    momenta = {}
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            momenta[layer], layer.momentum = layer.momentum, None
    model.train()
    with torch.no_grad():
        model(images(99, batch=64)[0])
    for layer, momentum in momenta.items():
        layer.momentum = momentum
    return model
