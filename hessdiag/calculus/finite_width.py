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

from hessdiag.calculus.graph import Step
from hessdiag.calculus.moments import Activation, Gradient
from hessdiag.calculus.propagation import Propagation

QUANTILE = 1.6448536269514722  # of N(0, 1), 95 %


def _gains(step: Step, gradient: Gradient, *, examples: int) -> tuple[float, float, float]:
    """Find the relative variances of one operation's gains, forward and backward, and their covariance.

    For a linear layer 2 ρ² / n' forward and 2 ρ_Δ² / n backward, averaged over pairs of examples and positions; for a
    ReLU E[relu(a)² relu(b)²] and its like, with a, b of correlation ρ, over their products of means.
    """
    x, out = step.x, step.out
    assert x is not None
    assert isinstance(out, Activation)
    if step.kind == "weights":
        fan_in = x.sq.shape[-1] if x.sq.dim() == 2 else x.sq.shape[1]
        reads = max(x.elements / max(out.positions, 1), 1.0)

        def seen(rho: float) -> float:
            return rho**2 + (1 - rho**2) / reads  # two independent inputs overlap by chance

        forward = _over_pairs(lambda rho, _: 2 * seen(rho), x, gradient, out.positions, examples)
        backward = _over_pairs(lambda _, rho: 2 * rho**2, x, gradient, out.positions, examples)
        return forward / out.width, backward / fan_in, 0.0
    if out.mean == 0 and x.mean == 0:
        return 0.0, 0.0, 0.0  # an odd function has no zeros to draw
    extra: tuple[Callable[[float, float], float], ...] = (_relu_extra, _mask_extra, _relu_and_mask)
    width = max(x.width, 1)
    forward, backward, both = (_over_pairs(each, x, gradient, x.positions, examples) / width for each in extra)
    return forward, backward, both


def _over_pairs(
    function: Callable[[float, float], float], x: Activation, g: Gradient, positions: int, examples: int
) -> float:
    """Average a function of the correlations of activations and gradients over pairs of positions and examples."""
    same = function(1.0, 1.0)
    beside = function(_clip(x.site_correlation), _clip(g.site_correlation)) if positions > 1 else 0.0
    other = function(_clip(x.example_correlation), _clip(g.example_correlation)) if examples > 1 else 0.0
    total = same + (positions - 1) * beside + positions * (examples - 1) * other
    return total / (positions * examples)


def _clip(rho: float) -> float:
    return min(max(rho, 0.0), 1.0)


def _relu_extra(rho: float, _: float) -> float:
    """4 E[relu(a)² relu(b)²] - 1, less the 2 ρ² that a and b have already: 3 at ρ = 1, 0 at ρ = 0."""
    theta = math.acos(rho)
    fourth = (3 * math.sin(theta) * rho + (math.pi - theta) * (1 + 2 * rho**2)) / (2 * math.pi)
    return 4 * fourth - 1 - 2 * rho**2


def _mask_extra(rho: float, rho_delta: float) -> float:
    """The same of gradients behind a mask of zeros: 3 at ρ = ρ_Δ = 1."""
    both_on = 2 * (1 - math.acos(rho) / math.pi)
    return both_on * (1 + 2 * rho_delta**2) - 1 - 2 * rho_delta**2


def _relu_and_mask(rho: float, _: float) -> float:
    """4 E[relu(a)² 1(b > 0)] - 1: forward and backward share their zeros; 1 at ρ = 1."""
    theta = math.acos(rho)
    return 2 * (math.pi - theta + math.sin(theta) * rho) / math.pi - 1


@dataclass(frozen=True)
class Variances:
    """Variances of all gains.

    Attributes:
        each: (2 S + 1,) in the order of `Sensitivities`: forward and backward of S sources, then the loss.
        both: (S,) covariances of forward and backward.
    """

    each: Tensor
    both: Tensor

    def shift(self, slopes: Tensor) -> float:
        """Subtract the value at the mean from the median, for the logarithm of one second moment.

        A moment is taken as log-normal. Its mean over initialisations is what was propagated, so that its median is
        lower by half the variance. In a sum of branches the slopes are the branches' shares, and average out.
        """
        return -float((slopes.square() * self.each).sum()) / 2

    def deviation(self, slopes: Tensor) -> float:
        """Find the standard deviation of the logarithm over initialisations."""
        pairs = slopes[:-1].reshape(-1, 2)
        variance = (slopes.square() * self.each).sum() + 2 * (pairs[:, 0] * pairs[:, 1] * self.both).sum()
        return math.sqrt(max(float(variance), 0.0))


def gain_variances(found: Propagation, *, examples: int) -> Variances:
    """Find the variances of all gains of a propagation, for moments averaged over `examples` examples."""
    count = len(found.graph.operations)
    each = torch.zeros(2 * count + 1, dtype=torch.float64)
    both = torch.zeros(count, dtype=torch.float64)
    for operation, step in found.steps:
        index = found.sensitivities.sources.get(operation.name)
        if index is not None and operation.name in found.gradients:
            gains = _gains(step, found.gradients[operation.name], examples=examples)
            each[2 * index], each[2 * index + 1], both[index] = gains
    rho = _clip(found.output.example_correlation)
    each[-1] = found.loss.variance * (1 + (examples - 1) * rho**2) / examples
    return Variances(each, both)


@dataclass(frozen=True)
class GammaSpread:
    """How γ is distributed over initialisations; by default, nothing is known but the value at the means.

    Attributes:
        median: of γ, over γ of the mean moments.
        width: logarithm of the 95 % quantile over the median.
        scaling_median: of ς, over ς of the mean moments.
    """

    median: float = 1.0
    width: float = math.nan
    scaling_median: float = 1.0


def gamma_spread(found: Propagation, variances: Variances, result: str, source: str, *, of_bias: bool) -> GammaSpread:
    """Find the spread of γ ∝ E[x_l²]² E[Δx_{l+1}²] / E[x_{l+1}²], for a bias without E[x_l²]²."""
    slopes = found.sensitivities
    of_x, of_out = slopes.result(source), slopes.result(result)
    of_delta, of_passed = slopes.of_gradient[result], slopes.of_passed[result]
    power = 0.0 if of_bias else 2.0
    shift = variances.shift(of_delta) - variances.shift(of_out) + power * variances.shift(of_x)
    return GammaSpread(
        median=math.exp(shift),
        width=QUANTILE * variances.deviation(of_delta - of_out + power * of_x),
        scaling_median=math.exp(variances.shift(of_x) + variances.shift(of_passed)),
    )
