"""A few steps of Adam on copies of the weights, and how far steps of any optimiser could go from there.

At every step a first batch gives the directions u, and a second one, which they do not depend on, the slope g·u and the
curvature uᵀGu along them: with one batch for both, the noise of its gradient would look like slope. The copy goes along
Adam's direction, half as far as the quadratic model of the second batch's loss has its minimum. Adam is what leaves the
plateau of a network whose outputs start small within a dozen steps; a dozen steps of SGD can stay on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import FunctionalModel, outputs_and_tangent
from hessdiag.derivatives.losses import Loss
from hessdiag.diagnosis.adam_direction import AdamDirection, Values
from hessdiag.execution.seeds import stream
from hessdiag.network.torch_state import seed_torch

SHARE = 0.5  # of the way to the minimum
MAX_CURVATURE = 10.0  # of the median curvature
TRIED = 8  # examples on which both ways to a derivative along u are compared
SAME = {torch.float32: 1e-3, torch.float64: 1e-8}  # of both


@dataclass(frozen=True)
class Along:
    """What was measured along one direction.

    Attributes:
        slope: g·u, of a batch that u does not depend on.
        curvature: uᵀGu of the same batch, with G its Gauss-Newton matrix.
    """

    slope: float
    curvature: float

    @property
    def rate(self) -> float:
        """Where the quadratic model along u is lowest; NaN where it has no minimum."""
        return self.slope / self.curvature if self.curvature > 0 else math.nan


@dataclass(frozen=True)
class VirtualStep:
    """What was measured before one step: along the gradient of a batch, and along Adam's direction."""

    gradient: Along
    adam: Along


@dataclass(frozen=True)
class Walk:
    """Steps on copies of a model's trainable parameters; the model itself stays as it is.

    Attributes:
        network: the model as a function of them.
        loss: what falls.
        start: the weights as they are.
        forward_mode: whether derivatives along u are right in forward mode.
        seed: of what the model draws.
    """

    network: FunctionalModel
    loss: Loss
    start: Values
    forward_mode: bool
    seed: int

    @classmethod
    def of(cls, model: nn.Module, loss: Loss, batch: Batch, *, seed: int) -> Walk:
        """Start at the model's weights; `batch` is any that it reads.

        Forward mode is left out where it does not agree with reverse mode: it differentiates what a model computes
        under `torch.no_grad()`.
        """
        start = {
            name: parameter.detach()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.is_floating_point()
        }
        walk = cls(FunctionalModel(model), loss, start, True, seed)
        few = batch.narrow(0, TRIED)
        u = {name: torch.ones_like(value) for name, value in start.items()}
        one, other = (walk._pushed(start, u, few, 0, forward_mode=mode)[1] for mode in (True, False))
        alike = bool((one - other).norm() <= SAME.get(one.dtype, 1e-3) * other.norm())
        return cls(walk.network, loss, start, alike, seed)

    def steps(self, pairs: Iterator[tuple[Batch, Batch]]) -> Iterator[VirtualStep]:
        """Walk as far as there are pairs: a batch that the directions are of, one that measures along them."""
        at, adam = self.start, AdamDirection()
        for number, (stepped, measured) in enumerate(pairs):
            gradient = self._gradient(at, stepped, 2 * number)
            u = adam(gradient)
            step = VirtualStep(*(self._along(at, each, measured, 2 * number + 1) for each in (gradient, u)))
            yield step
            if math.isfinite(step.adam.rate) and step.adam.rate > 0:
                at = {name: value - SHARE * step.adam.rate * u[name] for name, value in at.items()}

    def _along(self, at: Values, u: Values, batch: Batch, number: int) -> Along:
        """Slope and curvature along u, of the outputs' own slope and curvature along J u."""
        y, moved = self._pushed(at, u, batch, number, forward_mode=self.forward_mode)  # (B, *out)
        slope = self.loss.gradient(y, batch.targets).detach() * moved
        curvature = self.loss.hessian_product(y, batch.targets, moved).detach() * moved
        return Along(*(float(each.sum(dtype=torch.float64)) / batch.size for each in (slope, curvature)))

    def _gradient(self, at: Values, batch: Batch, number: int) -> Values:
        """Gradient of the batch-mean loss."""
        leaves = {name: value.detach().requires_grad_() for name, value in at.items()}
        self._reseed(number)
        y = self.network(leaves, batch)
        if not y.requires_grad:
            return {name: torch.zeros_like(value) for name, value in at.items()}
        own = self.loss.gradient(y.detach(), batch.targets).detach() / batch.size
        found = torch.autograd.grad(y, list(leaves.values()), own.to(y), materialize_grads=True)
        return {name: each.to_dense() for name, each in zip(leaves, found, strict=True)}

    def _pushed(self, at: Values, u: Values, batch: Batch, number: int, *, forward_mode: bool) -> tuple[Tensor, Tensor]:
        """Outputs and J u."""
        self._reseed(number)
        y, moved = outputs_and_tangent(self.network, at, u, batch, forward_mode=forward_mode)
        return y.detach(), moved.detach()

    def _reseed(self, number: int) -> None:
        """Make dropout draw alike whenever the same batch is read."""
        devices = {value.get_device() for value in self.start.values() if value.is_cuda}
        seed_torch(stream(self.seed, f"virtual step {number}").initial_seed(), devices)


def best_constant_rate(steps: Sequence[Along]) -> tuple[float, float]:
    """The rate at which the quadratic models of all steps together are lowest, Σ g·u / Σ uᵀGu, and its standard error.

    A step more than `MAX_CURVATURE` times as curved as the median one is scaled down to that: the place where one has
    led astray must not outweigh all others. The error is that of a ratio of means over independent steps. Both are NaN
    where the curvatures do not add up to more than 0.

    >>> best_constant_rate([Along(1.0, 2.0), Along(3.0, 2.0)])
    (1.0, 0.5)
    """
    most = MAX_CURVATURE * median(each.curvature for each in steps)
    shares = [most / each.curvature if each.curvature > most > 0 else 1.0 for each in steps]
    slope = sum(share * each.slope for share, each in zip(shares, steps, strict=True))
    curvature = sum(share * each.curvature for share, each in zip(shares, steps, strict=True))
    if not curvature > 0:
        return math.nan, math.nan
    rate, count = slope / curvature, len(steps)
    left = sum((share * (each.slope - rate * each.curvature)) ** 2 for share, each in zip(shares, steps, strict=True))
    return rate, math.sqrt(left * count / (count - 1)) / curvature if count > 1 else math.nan
