"""Batch, layer and group normalisation."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Ref, Step
from hessdiag.calculus.moments import Gradient, average
from hessdiag.calculus.rules.weight_layers import add_bias


def batch_norm(call: Call) -> Step:
    """Evaluation mode: a fixed multiplier w / √(running variance); training mode: E[y²] = E[w²] + E[b²]."""
    x = call.activation("input")
    w, b = call.optional("weight"), call.optional("bias")
    w_sq = average(w.sq) if w else torch.ones((), dtype=torch.float64)
    if call.arguments.get("training"):  # left out of the operation that has no training mode
        variance: Tensor | float = average(x.sq) * (1 - x.example_correlation)
        sites = 0.0
    else:
        running = call.arguments.get("running_var")
        actual = call.actual(running) if isinstance(running, Ref) else None
        variance = float(actual.double().mean()) if actual is not None else 1.0  # as PyTorch builds it
        sites = x.site_correlation
    factor = w_sq / (variance + float(call.arguments.get("eps") or 0.0))
    out = add_bias(replace(x, sq=x.scaled(factor).sq, site_correlation=sites, parameter="", before=None), b)
    note = f"batch normalisation: {NOT_IN_PAPER}"
    return Step(out, ((call.ref("input"), lambda g: g.scaled(factor)),), note=note)


def layer_norm(call: Call) -> Step:
    """x over its own standard deviation, times w, plus b: E[y²] = E[w²] + E[b²], E[Δx²] = E[w²] E[Δy²] / Var x."""
    shape = tuple(call.arguments["normalized_shape"])
    centred = "rms" not in call.operation.target
    return _normalised(call, len(shape), math.prod(shape), centred=centred)


def group_norm(call: Call) -> Step:
    """As `layer_norm`, over groups of channels and all positions."""
    x = call.activation("input")
    return _normalised(call, x.sq.dim() - 1, x.elements // int(call.arguments["num_groups"]), centred=True)


def _normalised(call: Call, dims: int, entries: int, *, centred: bool) -> Step:
    x = call.activation("input")
    w, b = call.optional("weight"), call.optional("bias")
    w_sq = average(w.sq) if w else torch.ones((), dtype=torch.float64)
    over = tuple(range(x.sq.dim() - dims, x.sq.dim()))
    size = x.sq.mean(over, keepdim=True)
    left = 1 - x.mean if centred and call.kernel else 1.0
    variance = size * left + float(call.arguments.get("eps") or 0.0)
    used = (2 if centred else 1) / entries if call.kernel else 0.0  # directions that a normalisation takes out

    def share(correlation: float) -> float:
        return max((correlation - x.mean) / (1 - x.mean), 0.0) if centred and x.mean < 1 else correlation

    sq = (x.sq * left / variance * w_sq).expand(x.sq.shape)
    out = replace(
        x,
        sq=sq,
        mean=0.0 if centred else x.mean,
        site_correlation=share(x.site_correlation),
        example_correlation=share(x.example_correlation),
        before=None,
    )
    note = f"normalisation: {NOT_IN_PAPER}"

    def back(g: Gradient) -> Gradient:
        return g.scaled(w_sq / variance * (1 - used))

    return Step(add_bias(out, b), ((call.ref("input"), back),), note=note)
