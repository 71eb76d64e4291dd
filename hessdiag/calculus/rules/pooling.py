"""Averages and largest values of neighbouring positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Ref, Step, UnsupportedError, listed, transposed
from hessdiag.calculus.moments import Before, Gradient, Nonlinearity, average, compactly, respond_of_largest
from hessdiag.calculus.rules.reshaping import output_shape


def average_pool(call: Call) -> Step:
    """E[y²] = E[x²] / K of K i.i.d. entries, E[Δx²] = E[Δy²] / K² (appendix).

    `kernel`: E[y²] = ((1 - c) E[x²] + c E[x²] K) / K with c the correlation between positions.
    """
    name = next(iter(call.arguments))
    x = call.activation(name)
    shape = output_shape(call)
    size = call.arguments.get("kernel_size")
    count: float = math.prod(x.sq.shape[2:]) / math.prod(shape[2:]) if size is None else _entries(size, len(shape) - 2)
    return averaged(call, call.ref(name), _Average(lambda v: call.applied(name, v)), count)


@dataclass(frozen=True)
class _Average:
    """A linear function of tensors, and its transpose.

    Attributes:
        channelwise: whether it treats every example and channel alike: it is then computed once where they are equal.
    """

    function: Callable[[Tensor], Tensor]
    channelwise: bool = True

    def __call__(self, values: Tensor) -> Tensor:
        if not self.channelwise:
            return self.function(values)
        found = self.function(_distinct(values))
        return found.expand(*values.shape[:2], *found.shape[2:])

    def transposed(self, like: Tensor, cotangent: Tensor) -> Tensor:
        if not self.channelwise:
            return transposed(self.function, like, cotangent)
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
    return averaged(call, call.ref("self"), _Average(lambda v: call.applied("self", v), channelwise=False), count)


def averaged(call: Call, ref: Ref, function: _Average, count: float) -> Step:
    """y = the mean of `count` entries, with `function` the operation itself."""
    x = call.at(ref)
    if not call.kernel:
        shape = output_shape(call)
        ratio = math.prod(shape) / x.sq.numel()  # outputs that an input reaches, over `count`

        def uniform_back(g: Gradient) -> Gradient:
            return Gradient((average(g.sq) * ratio / count).expand(x.sq.shape))

        out = x.independent((average(x.sq) / count).expand(shape))
        positions = max(x.positions * math.prod(shape) // x.sq.numel(), 1)
        return Step(replace(out, positions=positions), ((ref, uniform_back),))
    coherent = function(compactly(torch.sqrt, x.sq)).square()  # what entries that are all equal would give
    sq = (1 - x.site_correlation) * function(x.sq) / count + x.site_correlation * coherent
    size, whole = float(average(sq.detach())), float(average(coherent.detach()))
    share = whole / size if size else 0.0
    positions = max(round(x.positions / count), 1)

    def back(g: Gradient) -> Gradient:
        apart = function.transposed(x.sq, g.sq) / count
        sq = apart
        if g.site_correlation > 0 and positions > 1:
            sq = (1 - g.site_correlation) * apart + g.site_correlation * function.transposed(x.sq, g.sq.sqrt()).square()
        within = (count - 1) / max(x.positions - 1, 1)  # pairs of positions that go into the same mean
        return Gradient(sq, min(within + (1 - within) * g.site_correlation, 1.0), g.example_correlation)

    return Step(replace(x.weakened(sq, share), positions=positions), ((ref, back),))


def max_pool(call: Call) -> Step:
    """No rule in the paper. `paper` lets E[x²] pass and shares the gradient among the K entries.

    `kernel`: moments of the largest of K equally correlated Gaussians, seen through the nonlinearity before it.
    """
    name = next(iter(call.arguments))
    x, ref, shape = call.activation(name), call.ref(name), output_shape(call)
    note = f"max pooling: {NOT_IN_PAPER}"
    positions = math.prod(shape[2:])
    if not call.kernel:
        ratio = math.prod(shape) / x.sq.numel()
        out = replace(x, sq=average(x.sq).expand(shape), positions=positions, before=None)
        return Step(out, ((ref, lambda g: Gradient((average(g.sq) * ratio).expand(x.sq.shape))),), note=note)
    before = x.before or Before("identity", (), x.mean, x.site_correlation)
    phi = Nonlinearity(before.nonlinearity, before.parameters)
    count = _entries(call.arguments["kernel_size"], len(shape) - 2)
    correlation = max(before.site_correlation, before.mean)
    growth, together, steeper = respond_of_largest(phi, before.mean, correlation, count)
    pooled = _Average(_average_over_windows(call, len(shape) - 2))

    def back(g: Gradient) -> Gradient:
        # The largest entry is more often than others on the steep side of the nonlinearity below.
        return Gradient(pooled.transposed(x.sq, g.sq), g.site_correlation, g.example_correlation, steeper)

    out = replace(
        x,
        sq=growth * pooled(x.sq),
        mean=together,
        site_correlation=together,
        example_correlation=together if x.example_correlation > 0 else 0.0,
        positions=positions,
        before=None,
    )
    return Step(out, ((ref, back),), note=note)


def _entries(size: int | tuple[int, ...], dimensions: int) -> int:
    """K, the entries of a window whose size may be given once for all dimensions."""
    size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    return math.prod(size * dimensions if len(size) == 1 else size)


def _average_over_windows(call: Call, dimensions: int) -> Callable[[Tensor], Tensor]:
    """The mean over the windows of a max pooling: each entry is as often the largest."""
    window = call.arguments
    if window.get("dilation") not in (None, 1, (1,), (1, 1), (1, 1, 1)):
        raise UnsupportedError("dilated max pooling")
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[dimensions]
    kernel = listed(window["kernel_size"])
    stride = listed(window.get("stride") or window["kernel_size"])
    padding = listed(window.get("padding") or 0)

    def averages(values: Tensor) -> Tensor:
        found: Tensor = pool(values, kernel, stride, padding, bool(window.get("ceil_mode")), False)
        return found

    return averages
