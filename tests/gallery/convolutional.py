"""Convolutional networks of the gallery."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.gallery.case import Variant
from tests.gallery.data import images


def he(model: nn.Module) -> nn.Module:
    """Initialise every convolution and linear layer as He does, biases zero."""
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


class InvertedResidual(nn.Module):
    """MobileNetV2's block: 1x1 up, depthwise 3x3, 1x1 down."""

    def __init__(self, width_in: int, width_out: int, *, expand: int = 4, stride: int = 1) -> None:
        super().__init__()
        inner = expand * width_in
        self.expand = nn.Sequential(nn.Conv2d(width_in, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()
        )
        self.project = nn.Sequential(nn.Conv2d(inner, width_out, 1, bias=False), nn.BatchNorm2d(width_out))
        self.skip = stride == 1 and width_in == width_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.skip else y


class MobileNet(nn.Module):
    """A small MobileNetV2 for images of 32x32."""

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6())
        self.blocks = nn.Sequential(
            InvertedResidual(width, width),
            InvertedResidual(width, 2 * width, stride=2),
            InvertedResidual(2 * width, 2 * width),
            InvertedResidual(2 * width, 3 * width, stride=2),
            InvertedResidual(3 * width, 3 * width),
        )
        self.head = nn.Linear(3 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def depthwise_fan_out(variant: Variant, width: int) -> nn.Module:
    """Fan-out k²·out, and divided by the groups."""
    model = MobileNet(width)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.kernel_size[0] ** 2 * layer.out_channels
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (fan_out // (1 if variant == "before" else layer.groups))))
    nn.init.normal_(model.head.weight, std=0.01)
    nn.init.zeros_(model.head.bias)
    return model


class TowerBlock(nn.Module):
    """Two convolutions around a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class Tower(nn.Module):
    """A residual tower without normalisation."""

    def __init__(self, width: int, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.tower = nn.Sequential(*(TowerBlock(width) for _ in range(blocks)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.tower(self.stem(x))).mean((2, 3)))


class Chain(nn.Module):
    """A tower of convolutions and ReLUs."""

    def __init__(self, width: int, depth: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.tower = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for layer in self.tower:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


def conv_xavier(variant: Variant, width: int) -> nn.Module:
    """Xavier's fans summed over the four dimensions of the kernel, and the product of kernel and channels."""
    model = he(Chain(width, depth=6))
    for layer in model.tower:
        rows, columns, k, _ = layer.weight.shape
        fans = 2 * k + rows + columns if variant == "before" else k * k * (rows + columns)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / fans))
    nn.init.xavier_normal_(model.head.weight)
    return model


def zero_module(variant: Variant, width: int) -> nn.Module:
    """The last convolution of every branch: overwritten by Kaiming's initialisation, and zero."""
    model = he(Tower(width, blocks=10))
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
