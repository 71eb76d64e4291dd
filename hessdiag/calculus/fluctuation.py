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
        if operation.name in found.sources and operation.name in found.gradients
    }


@dataclass(frozen=True)
class Variances:
    """Of all gains.

    Attributes:
        each: (2 S + 1,) as `Propagation.slopes`: forward and backward of S sources, then the loss.
        both: (S,) covariances of forward and backward.
    """

    each: Tensor
    both: Tensor

    def shift(self, slopes: Tensor) -> float:
        """Median minus value at the mean, of the logarithm of one second moment.

        A moment is taken as log-normal. Its mean over initialisations is what was propagated, so that its median is
        lower by half the variance. In a sum of branches the slopes are the branches' shares, and average out.
        """
        return -float((slopes.square() * self.each).sum()) / 2

    def deviation(self, slopes: Tensor) -> float:
        """Standard deviation of the logarithm over initialisations."""
        pairs = slopes[:-1].reshape(-1, 2)
        variance = (slopes.square() * self.each).sum() + 2 * (pairs[:, 0] * pairs[:, 1] * self.both).sum()
        return math.sqrt(max(float(variance), 0.0))


def gain_variances(found: Propagation, *, examples: int) -> Variances:
    """Variances of all gains of a propagation, for moments averaged over `examples` examples."""
    count = len(found.graph.operations)
    each = torch.zeros(2 * count + 1, dtype=torch.float64)
    both = torch.zeros(count, dtype=torch.float64)
    for name, source in sources(found, examples=examples).items():
        index = found.sources[name]
        each[2 * index], each[2 * index + 1], both[index] = source.forward, source.backward, source.both
    assert found.loss is not None
    assert found.output is not None
    rho = _clip(found.output.examples)
    each[-1] = found.loss.variance * (1 + (examples - 1) * rho**2) / examples
    return Variances(each, both)
