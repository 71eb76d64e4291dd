"""The finite-width spread of γ over initialisations.

Every weight layer and every nonlinearity multiplies the second moment, forward and backward, by a random gain with mean
1 and a relative variance of about 1/width: for one example 5/n for a ReLU layer, 2/n from its weights and 3/n from the
zeros (Hanin & Rolnick 2018, arXiv 1803.01719, sum of 1/width). Averaged over examples and positions it is less, by how
much they are correlated. γ is a product of such gains, hence log-normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.calculus.call import Step
from hessdiag.calculus.graph import Operation
from hessdiag.calculus.propagation import Propagation

QUANTILE = 1.6448536269514722  # of N(0, 1), 95 %


@dataclass(frozen=True)
class Source:
    """Variances of the forward and backward gain of one operation, and their covariance."""

    forward: float
    backward: float
    both: float


def source_of(operation: Operation, step: Step, gradient: Gradient, *, examples: int) -> Source:
    """Relative variances of one operation's gains, for moments averaged over `examples` examples.

    For a linear layer 2 ρ² / n' forward and 2 ρ_Δ² / n backward, averaged over pairs of examples and positions; for a
    ReLU E[relu(a)² relu(b)²] and its like, with a, b of correlation ρ, over their products of means.
    """
    x = step.x
    assert x is not None
    if step.kind == "weights":
        assert isinstance(step.out, Activation)
        fan_in = x.sq.shape[-1] if x.sq.dim() == 2 else x.sq.shape[1]
        reads = max(x.elements / max(step.out.positions, 1), 1.0)

        def seen(rho: float) -> float:
            return rho**2 + (1 - rho**2) / reads  # two independent inputs overlap by chance

        forward = _over_pairs(lambda rho, _: 2 * seen(rho), x, gradient, step.out.positions, examples)
        backward = _over_pairs(lambda _, rho: 2 * rho**2, x, gradient, step.out.positions, examples)
        return Source(forward / step.out.width, backward / fan_in, 0.0)
    if step.out.mean == 0 and x.mean == 0:  # type: ignore[union-attr]
        return Source(0.0, 0.0, 0.0)  # an odd function has no zeros to draw
    assert isinstance(step.out, Activation)
    width = max(x.width, 1)
    positions = x.positions
    forward = _over_pairs(lambda rho, _: _relu_extra(rho), x, gradient, positions, examples)
    backward = _over_pairs(_mask_extra, x, gradient, positions, examples)
    both = _over_pairs(lambda rho, _: _relu_and_mask(rho), x, gradient, positions, examples)
    return Source(forward / width, backward / width, both / width)


def _over_pairs(
    function: Callable[[float, float], float], x: Activation, g: Gradient, positions: int, examples: int
) -> float:
    """A function of the correlations of activations and gradients, averaged over pairs of positions and examples."""
    same = function(1.0, 1.0)
    beside = function(_clip(x.sites), _clip(g.sites)) if positions > 1 else 0.0
    other = function(_clip(x.examples), _clip(g.examples)) if examples > 1 else 0.0
    total = same + (positions - 1) * beside + positions * (examples - 1) * other
    return total / (positions * examples)


def _clip(rho: float) -> float:
    return min(max(rho, 0.0), 1.0)


def _relu_extra(rho: float) -> float:
    """4 E[relu(a)² relu(b)²] - 1, less the 2 ρ² that a and b have already: 3 at ρ = 1, 0 at ρ = 0."""
    theta = math.acos(rho)
    fourth = (3 * math.sin(theta) * rho + (math.pi - theta) * (1 + 2 * rho**2)) / (2 * math.pi)
    return 4 * fourth - 1 - 2 * rho**2


def _mask_extra(rho: float, rho_delta: float) -> float:
    """The same of gradients behind a mask of zeros: 3 at ρ = ρ_Δ = 1."""
    both_on = 2 * (1 - math.acos(rho) / math.pi)
    return both_on * (1 + 2 * rho_delta**2) - 1 - 2 * rho_delta**2


def _relu_and_mask(rho: float) -> float:
    """4 E[relu(a)² 1(b > 0)] - 1: forward and backward share their zeros; 1 at ρ = 1."""
    theta = math.acos(rho)
    return 2 * (math.pi - theta + math.sin(theta) * rho) / math.pi - 1


def sources(found: Propagation, *, examples: int) -> dict[str, Source]:
    """The sources of a propagation with gains, by operation."""
    return {
        operation.name: source_of(operation, step, found.gradients[operation.name], examples=examples)
        for operation, step in found.steps
        if operation.name in found.gains and operation.name in found.gradients
    }


@dataclass(frozen=True)
class Fluctuation:
    """How a logarithm of moments moves with the gains, to first order.

    Attributes:
        slopes: (forward, backward) derivative for each source, then that of the loss.
        shift: median minus value at the mean moments.
    """

    slopes: Tensor
    shift: float

    def __add__(self, other: Fluctuation) -> Fluctuation:
        return Fluctuation(self.slopes + other.slopes, self.shift + other.shift)

    def __mul__(self, factor: float) -> Fluctuation:
        return Fluctuation(self.slopes * factor, self.shift * factor)


def fluctuation(moment: Tensor, found: Propagation, variances: Tensor) -> Fluctuation:
    """Of the logarithm of one second moment, which is taken as log-normal.

    Its mean over initialisations is what was propagated, so that its median is lower by half the variance. In a sum of
    branches the slopes are the branches' shares, and their fluctuations average out.

    Args:
        moment: a scalar, as a function of the gains of `found`.
        found: propagation with gains.
        variances: of `gain_variances`.
    """
    leaves = [gain for name in _names(found) for gain in found.gains[name]]
    assert found.loss_gain is not None
    logarithm = moment.log()
    values = [0.0] * (len(leaves) + 1)
    if logarithm.requires_grad:
        found_slopes = torch.autograd.grad(logarithm, [*leaves, found.loss_gain], retain_graph=True, allow_unused=True)
        values = [0.0 if slope is None else float(slope) for slope in found_slopes]
    slopes = torch.tensor(values, dtype=torch.float64)
    return Fluctuation(slopes, -float((slopes.square() * variances.diagonal()).sum()) / 2)


def deviation(fluctuation: Fluctuation, variances: Tensor) -> float:
    """Standard deviation of the logarithm over initialisations."""
    slopes = fluctuation.slopes
    return math.sqrt(max(float(slopes @ variances @ slopes), 0.0))


def gain_variances(found: Propagation, *, examples: int) -> Tensor:
    """Covariances of all gains: forward and backward of each source, then the loss."""
    drawn = sources(found, examples=examples)
    names = _names(found)
    matrix = torch.zeros(2 * len(names) + 1, 2 * len(names) + 1, dtype=torch.float64)
    for index, name in enumerate(names):
        a, b = 2 * index, 2 * index + 1
        matrix[a, a], matrix[b, b] = drawn[name].forward, drawn[name].backward
        matrix[a, b] = matrix[b, a] = drawn[name].both
    assert found.loss is not None
    assert found.output is not None
    rho = _clip(found.output.examples)
    matrix[-1, -1] = found.loss.variance * (1 + (examples - 1) * rho**2) / examples
    return matrix


def _names(found: Propagation) -> list[str]:
    """Operations that are sources, in execution order."""
    return [name for name in found.gains if name in found.gradients]
