"""Fully connected networks of the gallery."""

import itertools
import math

import torch
from torch import Tensor, nn

from strangers.gallery.case import Variant


def dense(sizes: list[int], activation: type[nn.Module], *, variance: float) -> nn.Sequential:
    """Linear layers with weights N(0, variance / fan-in) and biases zero, an activation between them."""
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(sizes):
        linear = nn.Linear(n, m)
        nn.init.normal_(linear.weight, std=math.sqrt(variance / n))
        nn.init.zeros_(linear.bias)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def selu_gain(variant: Variant, width: int, *, inputs: int = 32, classes: int = 10) -> nn.Module:
    """Gain 3/4 instead of 1."""
    return dense([inputs] + [width] * 19 + [classes], nn.SELU, variance=9 / 16 if variant == "before" else 1.0)


def linear_default(variant: Variant, width: int, *, inputs: int = 32, classes: int = 10) -> nn.Module:
    """PyTorch's own initialisation, kaiming_uniform(a=√5), and He's."""
    model = dense([inputs] + [width] * 12 + [classes], nn.ReLU, variance=2.0)
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers:
        layer.reset_parameters()
    for layer in layers if variant == "after" else []:
        gain = 1.0 if layer is layers[-1] else 2.0
        nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.in_features))
    return model


class Sine(nn.Module):
    """sin(ω x)."""

    def __init__(self, omega: float = 30.0) -> None:
        super().__init__()
        self.omega = omega

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.omega * x)


def siren_first(variant: Variant, width: int) -> nn.Module:
    """A SIREN, U(±√(6/n)/ω) in every layer; in the first U(±1/n) after the repair."""
    model = dense([2] + [width] * 4 + [1], Sine, variance=1.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            bound = math.sqrt(6 / layer.in_features) / 30
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.uniform_(layer.bias, -1 / math.sqrt(layer.in_features), 1 / math.sqrt(layer.in_features))
    if variant == "after":
        nn.init.uniform_(model[0].weight, -0.5, 0.5)
    return model
