"""The initialisations that are compared: the paper's four, and those that users know by other names."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from hessdiag import init

PAPER = ("arithmetic", "fan-in", "fan-out", "geometric")
OTHERS = ("xavier", "lecun", "pytorch-default", "geometric-orthogonal")


def initialise(model: nn.Module, scheme: str, generator: torch.Generator) -> nn.Module:
    """Initialise a perceptron in place by a name of `PAPER` or `OTHERS`.

    `xavier` has E[W²] = 2/(n + n'), half of `arithmetic`; `lecun` 1/n, half of `fan-in`; `pytorch-default`, what
    `nn.Linear` does to itself, 1/(3n) and biases of the same size. The first two are normal, the last uniform.
    """
    return BY_SHAPE[scheme](model, generator) if scheme in BY_SHAPE else init.apply(model, scheme, generator=generator)


def xavier(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """`nn.init.xavier_normal_` with its default gain of 1, and zero biases."""
    return _normal(model, lambda n, m: 2 / (n + m), generator)


def lecun(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """N(0, 1/n), and zero biases."""
    return _normal(model, lambda n, m: 1 / n, generator)


def pytorch_default(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """`nn.Linear.reset_parameters`: weights and biases uniform in ±1/√n."""
    with torch.no_grad():
        for layer in _layers(model):
            bound = 1 / math.sqrt(layer.in_features)
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
    return model


def _normal(model: nn.Module, variance: Callable[[int, int], float], generator: torch.Generator) -> nn.Module:
    with torch.no_grad():
        for layer in _layers(model):
            layer.weight.normal_(0, math.sqrt(variance(layer.in_features, layer.out_features)), generator=generator)
            layer.bias.zero_()
    return model


def _layers(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


BY_SHAPE: dict[str, Callable[[nn.Module, torch.Generator], nn.Module]] = {
    "xavier": xavier,
    "lecun": lecun,
    "pytorch-default": pytorch_default,
}
