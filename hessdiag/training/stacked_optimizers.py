"""Optimisers of stacked networks: those of `torch.optim`, with a learning rate for each network.

They read a gradient as its two factors, so that a product can be added to a momentum without being written first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from hessdiag.errors import HessdiagError
from hessdiag.suggestions import did_you_mean
from hessdiag.training.stacked_mlp import GradientFactors

MOMENTUM = 0.9
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of torch.optim.Adam
OPTIMIZERS = ("sgd", "momentum", "adam")


class StackedOptimizer(Protocol):
    """Changes stacked parameters in place."""

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[GradientFactors]) -> None:
        """Make one step."""
        ...

    def keep(self, chosen: Tensor) -> None:
        """Leave out networks; `chosen` are the numbers of those that stay."""
        ...


def make_optimizer(
    name: str, parameters: Sequence[Tensor], rates: Tensor, *, weight_decay: float = 0.0
) -> StackedOptimizer:
    """Make `sgd`, `momentum` (SGD with momentum 0.9) or `adam`.

    Args:
        name: of `OPTIMIZERS`.
        parameters: (G, n, m) each.
        rates: (G,) learning rates.
        weight_decay: λ of the added gradient λ W.

    Raises:
        HessdiagError: there is no such optimiser.
    """
    if name not in OPTIMIZERS:
        hint = did_you_mean(name, OPTIMIZERS, otherwise=f"use {', '.join(OPTIMIZERS)}")
        raise HessdiagError(f"unknown optimiser {name!r}: {hint}")
    steps = rates.to(parameters[0]).view(-1, 1, 1)
    if name == "adam":
        return StackedAdam(parameters, steps, weight_decay)
    return StackedMomentum(parameters, steps, weight_decay) if name == "momentum" else StackedSGD(steps, weight_decay)


class StackedSGD:
    """W ← W − η (∇ + λ W)."""

    def __init__(self, rates: Tensor, weight_decay: float) -> None:
        self.rates, self.weight_decay = rates, weight_decay

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[GradientFactors]) -> None:
        """Make one step."""
        shrink = 1 - self.rates * self.weight_decay
        for parameter, gradient in zip(parameters, gradients, strict=True):
            steps = gradient.deltas * self.rates  # smaller than the parameter
            parameter.mul_(shrink).baddbmm_(gradient.inputs.transpose(1, 2), steps, alpha=-1)

    def keep(self, chosen: Tensor) -> None:
        """Leave out networks."""
        self.rates = self.rates[chosen]


class StackedMomentum:
    """V ← μ V + ∇ + λ W, W ← W − η V, with μ = 0.9."""

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor, weight_decay: float) -> None:
        self.rates, self.weight_decay = rates, weight_decay
        self.velocities = [torch.zeros_like(parameter) for parameter in parameters]

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[GradientFactors]) -> None:
        """Make one step."""
        for parameter, gradient, velocity in zip(parameters, gradients, self.velocities, strict=True):
            velocity.baddbmm_(gradient.inputs.transpose(1, 2), gradient.deltas, beta=MOMENTUM)
            velocity.add_(parameter, alpha=self.weight_decay)
            parameter.addcmul_(velocity, self.rates, value=-1)

    def keep(self, chosen: Tensor) -> None:
        """Leave out networks."""
        self.rates = self.rates[chosen]
        self.velocities = [velocity[chosen] for velocity in self.velocities]


class StackedAdam:
    """Adam (arXiv 1412.6980) with λ W added to the gradient, as `torch.optim.Adam(weight_decay=λ)`."""

    def __init__(self, parameters: Sequence[Tensor], rates: Tensor, weight_decay: float) -> None:
        self.rates, self.weight_decay, self.steps = rates, weight_decay, 0
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]

    def step(self, parameters: Sequence[Tensor], gradients: Sequence[GradientFactors]) -> None:
        """Make one step."""
        self.steps += 1
        first, second = BETAS
        rates = self.rates / (1 - first**self.steps)
        root = (1 - second**self.steps) ** 0.5
        for parameter, factors, mean, square in zip(parameters, gradients, self.means, self.squares, strict=True):
            inputs = factors.inputs.transpose(1, 2)
            gradient = torch.baddbmm(parameter, inputs, factors.deltas, beta=self.weight_decay)
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            scale = torch.sqrt(square, out=gradient).div_(root).add_(EPSILON)
            parameter.addcdiv_(mean * rates, scale, value=-1)

    def keep(self, chosen: Tensor) -> None:
        """Leave out networks."""
        self.rates = self.rates[chosen]
        self.means = [mean[chosen] for mean in self.means]
        self.squares = [square[chosen] for square in self.squares]
