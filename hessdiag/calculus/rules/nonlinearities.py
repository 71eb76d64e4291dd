"""Functions of one element at a time, and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from hessdiag.calculus.graph import Call, Ref, Step, UnsupportedError
from hessdiag.calculus.moments import Activation, Before, Gradient, Nonlinearity, average, compactly, correlate, respond


def nonlinearity(name: str, *parameters: str, note: str = "") -> Callable[[Call], Step]:
    """Make a rule for φ, entry by entry; `parameters` name the operation's arguments that φ takes."""

    def rule(call: Call) -> Step:
        values = []
        for parameter in parameters:
            number = call.number(parameter)
            if number is None:
                raise UnsupportedError(f"its argument {parameter} is no number")
            values.append(number)
        phi = Nonlinearity(name, tuple(values))
        if name == "gelu" and call.arguments.get("approximate") == "tanh":
            phi = Nonlinearity("gelu_tanh")
        if name == "elu" and (call.number("scale") != 1 or call.number("input_scale") != 1):
            raise UnsupportedError("an ELU with scales")
        first = next(iter(call.arguments))
        return pointwise(call, phi, call.ref(first), note)

    return rule


def prelu(call: Call) -> Step:
    """A leaky ReLU whose slope is a parameter."""
    slope = math.sqrt(float(call.activation("weight").sq.mean()))
    return pointwise(call, Nonlinearity("leaky_relu", (slope,)), call.ref("self"), "")


def pointwise(call: Call, phi: Nonlinearity, ref: Ref, note: str) -> Step:
    """y = φ(x): `paper` takes x as centred; `kernel` as Gaussian with its mean part and correlations."""
    x = call.at(ref)
    if not call.kernel:
        return _pointwise_of_paper(call, phi, ref, x, note)
    if phi.name == "relu" and x.before is not None and x.before.nonlinearity == "relu":
        on = respond(phi, 1.0, x.before.mean).slope_sq

        def let_pass(g: Gradient) -> Gradient:  # a second ReLU: the first has let the same entries pass
            return replace(g.scaled(on), slope=1 / on)

        return Step(x, ((ref, let_pass),), note=note)
    q = float(average(x.sq.detach()))
    at_mean = respond(phi, 1.0 if phi.homogeneous else q, x.mean)
    sites = correlate(phi, 1.0 if phi.homogeneous else q, x.mean, x.site_correlation)
    examples = correlate(phi, 1.0 if phi.homogeneous else q, x.mean, x.example_correlation)
    if phi.homogeneous:
        sq: Tensor = compactly(lambda v: v * at_mean.sq, x.sq)
        slope_sq = torch.tensor(at_mean.slope_sq, dtype=torch.float64).expand(x.sq.shape)
    else:
        sq = compactly(lambda v: _interpolated(lambda q: respond(phi, q, x.mean).sq, v), x.sq)
        slope_sq = compactly(lambda v: _interpolated(lambda q: respond(phi, q, x.mean).slope_sq, v), x.sq)

    def back(g: Gradient) -> Gradient:
        steep = g.slope * compactly(lambda a, b: a * b, g.sq, slope_sq)
        return Gradient(steep, g.site_correlation * sites[1], g.example_correlation * examples[1])

    out = replace(
        x,
        sq=sq,
        mean=at_mean.mean_sq / at_mean.sq if at_mean.sq else 0.0,
        site_correlation=sites[0],
        example_correlation=examples[0],
        before=Before(phi.name, phi.parameters, x.mean, x.site_correlation) if phi.homogeneous else None,
    )
    return Step(out, ((ref, back),), x=x, kind="nonlinearity", source=ref, note=note)


def _pointwise_of_paper(call: Call, phi: Nonlinearity, ref: Ref, x: Activation, note: str) -> Step:
    """Homogeneous functions exactly; tanh and sigmoid in their linear regime; others as of N(0, E[x²])."""
    if phi.name == "tanh":
        forward, slope_sq = x.sq, 1.0
    elif phi.name == "sigmoid":
        forward, slope_sq = 0.25 + x.sq / 16, 1 / 16
    else:
        q = float(average(x.sq.detach()))
        response = respond(phi, q, 0.0)
        factor = response.sq / q if q else math.nan
        forward, slope_sq = compactly(lambda sq: sq * factor, x.sq), response.slope_sq
    return Step(
        x.independent(forward),
        ((ref, lambda g: g.scaled(slope_sq)),),
        x=x,
        kind="nonlinearity",
        source=ref,
        note=note,
    )


def _interpolated(function: Callable[[float], float], sq: Tensor) -> Tensor:
    """A smooth function of the moments: at one value, or between 24 of them when entries differ."""
    values = sq.detach()
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return sq * math.nan
    if high <= low * (1 + 1e-9) or low <= 0:
        middle = (low + high) / 2
        step = 1e-4 * middle if middle else 1.0
        slope = (function(middle + step) - function(middle)) / step
        return function(middle) + slope * (sq - middle)
    nodes = torch.logspace(math.log10(low), math.log10(high), 24, dtype=torch.float64)
    heights = torch.tensor([function(float(node)) for node in nodes], dtype=torch.float64)
    index = torch.searchsorted(nodes, values.contiguous()).clamp(1, 23)
    share = (sq - nodes[index - 1]) / (nodes[index] - nodes[index - 1])
    return heights[index - 1] * (1 - share) + heights[index] * share


def dropout(call: Call) -> Step:
    """E[y²] = E[x²] / (1 - p) as in PyTorch, which divides by 1 - p; the gradient alike (Appendix B.5 without it)."""
    x = call.activation("input")
    if not call.arguments.get("train", call.arguments.get("training")):
        return Step(x, ((call.ref("input"), lambda g: g),))
    p = float(call.arguments["p"])
    if p >= 1:
        raise UnsupportedError("a dropout of everything")
    keep = 1 - p

    def back(g: Gradient) -> Gradient:
        return Gradient(g.scaled(1 / keep).sq, g.site_correlation * keep, g.example_correlation * keep)

    return Step(x.weakened(x.scaled(1 / keep).sq, keep), ((call.ref("input"), back),))
