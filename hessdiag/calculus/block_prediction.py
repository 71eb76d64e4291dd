"""What the calculus says of one block, from the moments around the layer that holds it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hessdiag import scaling
from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.calculus.call import KERNEL, Step
from hessdiag.calculus.finite_width import GammaSpread, Variances, gamma_spread
from hessdiag.calculus.propagation import Propagation, own_input_gradient
from hessdiag.network.blocks import Block
from hessdiag.results.prediction import BlockPrediction


@dataclass(frozen=True)
class Use:
    """One operation that applies a block's parameter.

    Attributes:
        order: of the operation in the graph.
        result: name of the operation's result.
        step: what its rule found.
    """

    order: int
    result: str
    step: Step


def uses(found: Propagation) -> dict[str, list[Use]]:
    """Find where each parameter is applied."""
    applied: dict[str, list[Use]] = {}
    for order, (operation, step) in enumerate(found.steps):
        for name in (step.weight, step.bias, step.scalar):
            if name:
                applied.setdefault(name, []).append(Use(order, operation.name, step))
    return applied


def predict_block(
    block: Block, applied: list[Use], found: Propagation, weight_sq: float, variances: Variances, moments: str
) -> BlockPrediction:
    """Predict ς, γ and ν of a block; NaN where it is applied several times, or where a moment is unknown."""
    bare = BlockPrediction(
        **block.described,
        weight_sq=weight_sq,
    )
    known = [use for use in applied if use.step.x is not None and isinstance(use.step.out, Activation)]
    if not block.multiplies or len(block.owners) != 1 or len(known) != 1:
        return bare
    (use,) = known
    layer = _Layer.of(block, use.step, found.graph.batch)
    forward = replace(
        bare, sites_in=layer.sites_in, sites_out=layer.sites_out, x_sq=layer.x_sq, out_sq=layer.out_sq
    )  # fmt: skip
    gradient = found.gradients.get(use.result)
    if gradient is None:
        return forward
    return _with_gradients(forward, layer, use, gradient, found, variances if moments == KERNEL else None)


@dataclass(frozen=True)
class _Layer:
    """Sizes and moments of the layer around a block.

    Attributes:
        channels: of its output; of a scalar's input.
        elements_in: entries of its input per example.
        sites_in, sites_out: positions of its input and output per example.
        x_sq, out_sq: E[x_l²], E[x_{l+1}²].
        site_correlation: of its input.
    """

    channels: int
    elements_in: int
    sites_in: int
    sites_out: int
    x_sq: float
    out_sq: float
    site_correlation: float

    @classmethod
    def of(cls, block: Block, step: Step, batch: int) -> _Layer:
        x, out = step.x, step.out
        assert x is not None
        assert isinstance(out, Activation)
        scalar = block.kind == "scalar"
        channels = (x.sq.shape[1] if x.sq.dim() > 1 else 1) if scalar else block.fan_out
        elements_in = x.sq.numel() // batch
        return cls(
            channels=channels,
            elements_in=elements_in,
            sites_in=elements_in // (channels if scalar else block.fan_in * block.groups),
            sites_out=out.sq.numel() // batch // channels,
            x_sq=float(x.second_moment.detach()),
            out_sq=float(out.second_moment.detach()),
            site_correlation=x.site_correlation,
        )


def _with_gradients(
    block: BlockPrediction,
    layer: _Layer,
    use: Use,
    gradient: Gradient,
    found: Propagation,
    variances: Variances | None,
) -> BlockPrediction:
    """Complete a prediction; without `variances`, as the paper has it: no correlations and no spread."""
    delta_sq = float(gradient.second_moment.detach())
    x_delta_sq = float(own_input_gradient(use.step, gradient).second_moment.detach())
    gamma = scaling.gamma(
        block.kind,
        fan_in=layer.channels if block.kind == "scalar" else block.fan_in,
        kernel=math.prod(block.kernel),
        sites_out=layer.sites_out,
        x_sq=layer.x_sq,
        delta_sq=delta_sq,
        out_sq=layer.out_sq,
    )
    spread = GammaSpread()
    if variances is not None and math.isfinite(gamma) and gamma > 0:
        source = use.step.source.name if use.step.source else ""
        spread = gamma_spread(found.sensitivities, variances, use.result, source, of_bias=block.kind == "bias")
    gamma *= spread.median
    varsigma = scaling.activation_scaling(layer.elements_in, x_delta_sq, layer.x_sq) * spread.scaling_median
    intrinsic = math.nan
    if block.kind != "bias":
        intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=block.weight_sq)
    correlation = gradient.site_correlation if variances is not None else 0.0
    gradient_sq = _parameter_gradient_sq(block, layer, delta_sq, correlation)
    return replace(
        block,
        activation_scaling=varsigma,
        gamma=gamma,
        gamma_intrinsic=intrinsic,
        gamma_curvature=gamma * found.loss.curvature,
        nu=scaling.nu(gradient_sq=gradient_sq, weight_sq=block.weight_sq) * spread.median,
        avg_sq_singular_value=gamma,
        x_gradient_sq=x_delta_sq,
        out_gradient_sq=delta_sq,
        gamma_low=gamma * math.exp(-spread.width),
        gamma_high=gamma * math.exp(spread.width),
    )


def _parameter_gradient_sq(block: BlockPrediction, layer: _Layer, delta_sq: float, correlation: float) -> float:
    """E[ΔW²] = ρ² E[x²] E[Δ²] (1 + (ρ² - 1) c_x c_Δ), with c the correlations between positions; x = 1 for a bias."""
    sites = layer.sites_out
    if block.kind == "bias":
        return sites * delta_sq * (1 + (sites - 1) * correlation)
    count = sites * layer.channels if block.kind == "scalar" else sites
    together = 1 + (sites - 1) * layer.site_correlation * correlation
    return count * layer.x_sq * delta_sq * together
