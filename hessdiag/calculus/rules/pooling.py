"""Averages and largest values of neighbouring positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.calculus.activation import Before, Gradient, average, compactly
from hessdiag.calculus.call import NOT_IN_PAPER, Call, Step, UnsupportedError, transposed
from hessdiag.calculus.gaussian import Nonlinearity, respond_of_largest
from hessdiag.calculus.graph import Ref
from hessdiag.calculus.rules.reshaping import output_shape


def average_pool(call: Call) -> Step:
    """E[y²] = E[x²] / K of K i.i.d. entries, E[Δx²] = E[Δy²] / K² (appendix).

    `kernel`: E[y²] = ((1 - c) E[x²] + c E[x²] K) / K with c the correlation between positions.
    """
    name = next(iter(call.arguments))
    x = call.activation(name)
    shape = output_shape(call)
    size = call.arguments.get("kernel_size")
    dimensions = len(shape) - 2
    if size is None:
        count = math.prod(x.sq.shape[2:]) / math.prod(shape[2:])
    else:
        size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
        count = math.prod(size * dimensions if len(size) == 1 else size)
    return averaged(call, call.ref(name), _Channelwise(lambda v: call.applied(name, v)), count)


@dataclass(frozen=True)
class _Plain:
    """A linear function of tensors, and its transpose."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, values: Tensor) -> Tensor:
        return self.function(values)

    def transposed(self, like: Tensor, cotangent: Tensor) -> Tensor:
        return transposed(self.function, like, cotangent)


@dataclass(frozen=True)
class _Channelwise(_Plain):
    """One that treats every example and channel alike: computed once where they are equal."""

    def __call__(self, values: Tensor) -> Tensor:
        found = self.function(_distinct(values))
        return found.expand(*values.shape[:2], *found.shape[2:])

    def transposed(self, like: Tensor, cotangent: Tensor) -> Tensor:
        small = _distinct(cotangent)
        found = transposed(self.function, torch.empty(1, small.shape[1], *like.shape[2:]), small)
        return found.expand(like.shape)


def _distinct(values: Tensor) -> Tensor:
    """One example, and one channel where all are the same."""
    first = values[:1]
    return first[:, :1] if first.shape[1] > 1 and first.stride(1) == 0 else first


def mean(call: Call) -> Step:
    """The mean over dimensions, as of global pooling."""
    x = call.activation("self")
    dims = call.arguments.get("dim")
    dims = tuple(range(x.sq.dim())) if dims is None else dims if isinstance(dims, tuple) else (dims,)
    if any(d % x.sq.dim() == 0 for d in dims):
        raise UnsupportedError("a mean over examples")
    count = math.prod(x.sq.shape[d] for d in dims)
    return averaged(call, call.ref("self"), _Plain(lambda v: call.applied("self", v)), count)


def averaged(call: Call, ref: Ref, function: _Plain, count: float) -> Step:
    """y = the mean of `count` entries, with `function` the operation itself."""
    x = call.at(ref)
    if not call.kernel:
        shape = output_shape(call)
        ratio = math.prod(shape) / x.sq.numel()  # outputs that an input reaches, over `count`

        def uniform_back(g: Gradient) -> Gradient:
            return Gradient((average(g.sq) * ratio / count).expand(x.sq.shape))

        out = replace(x, sq=(average(x.sq) / count).expand(shape), mean=0.0, sites=0.0, examples=0.0, before=None)
        return Step(
            replace(out, positions=max(x.positions * math.prod(shape) // x.sq.numel(), 1)), ((ref, uniform_back),)
        )
    coherent = function(compactly(torch.sqrt, x.sq)).square()  # what entries that are all equal would give
    sq = (1 - x.sites) * function(x.sq) / count + x.sites * coherent
    size, whole = float(average(sq.detach())), float(average(coherent.detach()))
    share = whole / size if size else 0.0
    positions = max(round(x.positions / count), 1)

    def back(g: Gradient) -> Gradient:
        apart = function.transposed(x.sq, g.sq) / count
        sq = apart
        if g.sites > 0 and positions > 1:
            sq = (1 - g.sites) * apart + g.sites * function.transposed(x.sq, g.sq.sqrt()).square()
        within = (count - 1) / max(x.positions - 1, 1)  # pairs of positions that go into the same mean
        return Gradient(sq, min(within + (1 - within) * g.sites, 1.0), g.examples)

    out = replace(
        x,
        sq=sq,
        mean=min(x.mean * share, 1.0),
        sites=min(x.sites * share, 1.0),
        examples=min(x.examples * share, 1.0),
        positions=positions,
        before=None,
    )
    return Step(out, ((ref, back),))


def max_pool(call: Call) -> Step:
    """No rule in the paper. `paper` lets E[x²] pass and shares the gradient among the K entries.

    `kernel`: moments of the largest of K equally correlated Gaussians, seen through the nonlinearity before it.
    """
    name = next(iter(call.arguments))
    x = call.activation(name)
    shape = output_shape(call)
    ref = call.ref(name)
    size = call.arguments["kernel_size"]
    size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    dimensions = len(shape) - 2
    count = math.prod(size * dimensions if len(size) == 1 else size)
    note = f"max pooling: {NOT_IN_PAPER}"
    positions = math.prod(shape[2:])
    if not call.kernel:
        ratio = math.prod(shape) / x.sq.numel()
        out = replace(x, sq=average(x.sq).expand(shape), positions=positions, before=None)
        return Step(out, ((ref, lambda g: Gradient((average(g.sq) * ratio).expand(x.sq.shape))),), note=note)
    before = x.before or Before("identity", (), x.mean, x.sites)
    phi = Nonlinearity(before.nonlinearity, before.parameters)
    growth, sites, steeper = respond_of_largest(phi, before.mean, max(before.sites, before.mean), count)

    def share(values: Tensor) -> Tensor:
        window = dict(call.arguments)
        stride = window.get("stride") or window["kernel_size"]
        padding = window.get("padding") or 0
        if window.get("dilation") not in (None, 1, (1,), (1, 1), (1, 1, 1)):
            raise UnsupportedError("dilated max pooling")
        pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[dimensions]
        found: Tensor = pool(
            values,
            _listed(window["kernel_size"]),
            _listed(stride),
            _listed(padding),
            bool(window.get("ceil_mode")),
            False,
        )
        return found

    pooled = _Channelwise(share)

    def back(g: Gradient) -> Gradient:
        # The largest entry is more often than others on the steep side of the nonlinearity below.
        return Gradient(pooled.transposed(x.sq, g.sq), g.sites, g.examples, steeper)

    examples = sites if x.examples > 0 else 0.0
    out = replace(
        x, sq=growth * pooled(x.sq), mean=sites, sites=sites, examples=examples, positions=positions, before=None
    )
    return Step(out, ((ref, back),), note=note)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
