"""Theory and measurement of every block side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hessdiag import scaling
from hessdiag.curvature.norms import Curvature
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.moments import LayerMoments, Moments
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.shapes import LayerShape, NetworkShape
from hessdiag.results.numbers import geometric_mean
from hessdiag.results.report import BlockReport

MOMENTS = ("x_sq", "out_sq", "x_gradient_sq", "out_gradient_sq")


def block_reports(
    problem: Problem,
    shape: NetworkShape,
    moments: Moments,
    curvature: Curvature,
    *,
    size: int,
) -> tuple[BlockReport, ...]:
    """One entry a block; the scaling factors are those of one example over `size`, 1 or the B of the batch view."""
    rows = []
    for block in problem.blocks:
        weight_sq = float(block_parameter(problem.model, block).detach().double().square().mean())
        scales = _Scales.of(block, shape, moments, weight_sq)
        measured = curvature.diagonal[block.name]
        sigma = measured.frobenius_sq / block.numel
        gamma = scales.gamma / size
        rows.append(
            BlockReport(
                **block.described,
                sites_in=scales.sites_in,
                sites_out=scales.sites_out,
                activation_scaling=scales.activation_scaling,
                gamma=gamma,
                gamma_intrinsic=scales.gamma_intrinsic / size,
                gamma_curvature=scales.gamma_curvature / size,
                nu=scaling.nu(gradient_sq=moments.gradient_sq[block.name], weight_sq=weight_sq),
                weight_sq=weight_sq,
                avg_sq_singular_value=sigma,
                stderr=measured.stderr / block.numel,
                ratio=gamma / sigma if sigma > 0 else math.nan,
                relative_ratio=math.nan,
                products=measured.products,
                ended=measured.ended,
                **scales.moments,
            )
        )
    usual = geometric_mean([row.ratio for row in rows if row.kind == "weight"])
    return tuple(replace(row, relative_ratio=row.ratio / usual) for row in rows)


@dataclass(frozen=True)
class _Scales:
    """Per-example scaling factors of one block; NaN where the theory has none or the layer was never called."""

    sites_in: int = 0
    sites_out: int = 0
    activation_scaling: float = math.nan
    gamma: float = math.nan
    gamma_intrinsic: float = math.nan
    gamma_curvature: float = math.nan
    moments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, block: Block, shape: NetworkShape, moments: Moments, weight_sq: float) -> _Scales:
        layers = [moments.layers[owner] for owner in block.owners if owner in moments.layers]
        if len(layers) != 1:  # never called, or shared by layers whose surroundings differ
            return cls()
        layer = layers[0]
        around = {key: getattr(layer, key) for key in MOMENTS}
        if not block.multiplies:
            return cls(moments=around)
        sizes = next(shape.layers[owner] for owner in block.owners if owner in moments.layers)
        varsigma = scaling.activation_scaling(sizes.inputs, layer.x_gradient_sq, layer.x_sq)
        intrinsic = math.nan
        if block.kind == "weight" or layer.multiplies:
            intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=weight_sq)
        return cls(
            sizes.sites_in,
            sizes.sites,
            varsigma,
            _gamma(block, sizes, layer, layer.out_gradient_sq),
            intrinsic,
            _gamma(block, sizes, layer, layer.out_curvature_sq * moments.output_sq),
            around,
        )


def _gamma(block: Block, sizes: LayerShape, layer: LayerMoments, delta_sq: float) -> float:
    """Extrinsic γ of a block, with E[Δx_{l+1}²] given."""
    if block.kind == "scalar" and not layer.multiplies:
        return math.nan
    # A scalar multiplies every element of its input: a 1x1 convolution's factor n ρ² with fan-in n.
    return scaling.gamma(
        block.kind,
        fan_in=sizes.channels_in if block.kind == "scalar" else block.fan_in,
        kernel=math.prod(block.kernel),
        sites_out=sizes.sites,
        x_sq=layer.x_sq,
        delta_sq=delta_sq,
        out_sq=layer.out_sq,
    )
