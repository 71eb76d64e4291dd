"""Statistics of every parameter of a model, and whether a gradient reaches it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TypedDict

import torch
from torch import Tensor, nn

from hessdiag.derivatives.magnitude import largest_entry
from hessdiag.network.layers import stores_inputs_first
from hessdiag.results.signals import Gradient, ParameterSignals

TINY = torch.finfo(torch.float32).tiny  # denormals count as zero


def parameter_signals(
    model: nn.Module,
    gradients: Mapping[str, Tensor | None],
    trainable: Mapping[str, bool],
    radial: Mapping[str, float],
) -> tuple[ParameterSignals, ...]:
    """Describe every floating-point parameter.

    Args:
        model: whose parameters.
        gradients: of the batch's mean loss, by name; None where the outputs do not depend on it.
        trainable: whether it is to learn, by name.
        radial: see `ParameterSignals`, for the names where it was measured.
    """
    places: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                places[id(parameter)].append((path, attribute))
    rows = []
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        slots = places[id(parameter)]
        module, w = model.get_submodule(slots[0][0]), parameter.detach()
        gradient = gradients.get(name)
        rows.append(
            ParameterSignals(
                name=name,
                owners=tuple(path for path, _ in slots),
                attribute=slots[0][1],
                kind=type(module).__name__,
                shape=tuple(w.shape),
                numel=w.numel(),
                trainable=trainable[name],
                gradient=_state(gradient),
                gradient_sq=0.0 if gradient is None else mean_sq(gradient),
                radial=radial.get(name, math.nan),
                **_statistics(w),
                **_fans(module, w),
            )
        )
    return tuple(rows)


def mean_sq(values: Tensor) -> float:
    """E[v²] in Python's numbers, which do not overflow where those of the tensor would.

    >>> mean_sq(torch.tensor([3e30, 4e30]))  # doctest: +ELLIPSIS
    1.25...e+61
    """
    top = largest_entry(values)
    return float((values.detach() / top).square().mean()) * top * top if 0 < top < math.inf else top


def _state(gradient: Tensor | None) -> Gradient:
    if gradient is None:
        return "none"
    return "zero" if largest_entry(gradient) < TINY else "some"


class _Statistics(TypedDict):
    weight_sq: float
    mean: float
    unlike: float
    kurtosis: float
    largest: float
    zeros: float


def _statistics(w: Tensor) -> _Statistics:
    """Moments of the entries over the largest of them, so that none over- or underflows."""
    top = largest_entry(w)
    if not 0 < top < math.inf:
        return {"weight_sq": top, "mean": 0.0, "unlike": 1.0, "kurtosis": math.nan, "largest": 0.0, "zeros": 1.0}
    scaled = w / top
    sq, mean = float(scaled.square().mean()), float(scaled.mean())
    squares = (scaled - mean).square_()
    variance = float(squares.mean())
    several = w.dim() > 0 and len(w) > 1
    return {
        "weight_sq": sq * top * top,
        "mean": mean * top,
        "unlike": float((scaled - scaled.mean(0)).square_().mean()) / sq if several else 1.0,
        "kurtosis": float(squares.square_().mean()) / variance**2 if variance > 1e-15 * sq else math.nan,
        "largest": 1 / math.sqrt(sq),
        "zeros": float((w == 0).to(w.dtype).mean()),
    }


class _Fans(TypedDict, total=False):
    fan_in: int
    fan_out: int
    kernel: int
    groups: int
    parts: tuple[float, ...]


def _fans(module: nn.Module, w: Tensor) -> _Fans:
    """Channels that a unit reads and an input reaches, and the parts of a fused tensor."""
    if w.dim() < 2:
        return {}
    groups = int(getattr(module, "groups", 1))
    inputs_first = stores_inputs_first(module)
    n, m = (w.shape[0] // groups, w.shape[1]) if inputs_first else (w.shape[1], w.shape[0] // groups)
    units = 1 if inputs_first and w.dim() == 2 else 0  # dimension of the outputs
    parts = 4 if isinstance(module, nn.LSTM) else 3 if isinstance(module, nn.GRU) else 1
    if w.dim() == 2 and parts == 1 and w.shape[units] == 3 * w.shape[1 - units]:
        parts = 3  # query, key and value
    pieces = w.chunk(parts, units) if parts > 1 else ()
    return {
        "fan_in": n,
        "fan_out": m,
        "kernel": math.prod(w.shape[2:]),
        "groups": groups,
        "parts": tuple(mean_sq(piece) for piece in pieces),
    }
