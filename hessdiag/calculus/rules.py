"""What each operation does to second moments, forward and backward: one small function an operation, one table.

Every rule has two columns. `paper` is that of arXiv 1906.04267, whose activations are i.i.d. with one moment each;
`kernel` also has the mean part, correlations between positions, borders of padding and overlap of strides. Rules that
the paper does not have carry a note, which a prediction lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.calculus.activation import Activation, Before, Gradient, average, compactly
from hessdiag.calculus.call import Back, Call, Pieces, Step, Unknown, UnsupportedError, transposed
from hessdiag.calculus.gaussian import Nonlinearity, correlate, respond, respond_of_largest
from hessdiag.calculus.graph import Ref

NOT_IN_PAPER = "the paper has no rule for it"


@dataclass(frozen=True)
class Rule:
    """One row of the calculus.

    Attributes:
        operation: in words.
        targets: operations of the traced graph that it covers.
        forward, backward: the formulas of the `paper` column.
        maintains: whether ς stays: the ✓ and ✗ of the paper's Table 1, or our own verdict.
        source: where the paper has it; empty where it has none.
        apply: the rule itself.
    """

    operation: str
    targets: tuple[str, ...]
    forward: str
    backward: str
    maintains: str
    source: str
    apply: Callable[[Call], Step]


# Weight layers


def linear(call: Call) -> Step:
    """E[y²] = n E[W²] E[x²], E[Δx²] = n' E[W²] E[Δy²]."""
    x, w = call.activation("input"), call.activation("weight")
    n_out, n_in = w.sq.shape
    return _matrix(call, call.ref("input"), x, call.ref("weight"), n_in, n_out, call.optional("bias"))


def addmm(call: Call) -> Step:
    """y = b + x W, as in transformers' Conv1D, whose weight is (inputs, outputs)."""
    x, w = call.activation("mat1"), call.activation("mat2")
    if not w.parameter:
        raise UnsupportedError("a product of two activations")
    return _matrix(call, call.ref("mat1"), x, call.ref("mat2"), w.sq.shape[0], w.sq.shape[1], call.activation("self"))


def matmul(call: Call) -> Step:
    """A product with a weight matrix."""
    left = "self"
    right = "mat2" if "mat2" in call.arguments else "other"
    x, w = call.activation(left), call.activation(right)
    if not w.parameter or w.sq.dim() != 2 or x.parameter:
        raise UnsupportedError("a product of two activations")
    return _matrix(call, call.ref(left), x, call.ref(right), w.sq.shape[0], w.sq.shape[1], None)


def _matrix(call: Call, ref: Ref, x: Activation, weight: Ref, n_in: int, n_out: int, bias: Activation | None) -> Step:
    w = call.at(weight)
    if not w.parameter:
        raise UnsupportedError("its weight is computed from activations")
    w_sq = average(w.sq)
    shape = (*x.sq.shape[:-1], n_out)
    total = _summed(x.sq, -1)  # (B, ..., 1)
    positions = math.prod(shape[1:-1])

    def back(g: Gradient) -> Gradient:
        return replace(g, slope=1.0, sq=(w_sq * _summed(g.sq, -1)).expand(x.sq.shape))

    out = Activation(
        sq=(w_sq * total).expand(shape), sites=x.sites, examples=x.examples, width=n_out, positions=positions
    )
    biased = _add_bias(out, bias)
    return Step(
        out=biased,
        share=float(out.second_moment / biased.second_moment) if bias else 1.0,
        back=((ref, back),),
        weight=w.parameter,
        bias=bias.parameter if bias else "",
        x=x,
        kind="weights",
        source=ref,
    )


def _summed(sq: Tensor, dim: int) -> Tensor:
    """The sum over a dimension, kept, without looking at repeated entries one by one."""
    for d in range(sq.dim()):
        if d != dim % sq.dim() and sq.stride(d) == 0 and sq.shape[d] > 1:
            return _summed(sq.narrow(d, 0, 1), dim).expand(
                *sq.shape[: dim % sq.dim()], 1, *sq.shape[dim % sq.dim() :][1:]
            )
    if sq.stride(dim) == 0:
        return sq.narrow(dim, 0, 1) * sq.shape[dim]
    return sq.sum(dim, keepdim=True)


def _add_bias(y: Activation, bias: Activation | None) -> Activation:
    """E[y²] + E[b²]; a bias is the same at all positions and for all examples."""
    if bias is None:
        return y
    b = average(bias.sq)
    before, added = float(average(y.sq.detach())), float(b)
    share = added / (before + added) if before + added > 0 else 0.0
    return replace(
        y,
        sq=compactly(lambda sq: sq + b, y.sq),
        sites=y.sites * (1 - share) + share,
        examples=y.examples * (1 - share) + share,
    )


def convolution(call: Call) -> Step:
    """E[y²] = n k² E[W²] E[x²]; E[Δx²] = ρ'² n' k² E[W²] E[Δy²] / ρ² (Eqs. of the appendix).

    `kernel` counts for every position the taps that fall inside the image, and for every input the outputs it reaches.
    """
    x, w = call.activation("input"), call.activation("weight")
    if not w.parameter:
        raise UnsupportedError("its kernel is computed from activations")
    groups = int(call.arguments.get("groups") or 1)
    n_out, n_in, *kernel = w.sq.shape
    if x.sq.dim() == len(kernel) + 1:
        raise UnsupportedError("an input without a batch dimension")
    w_sq = average(w.sq)
    sizes = _sizes(call, kernel)
    shape = _shape(call)
    _, C, *space = x.sq.shape
    if call.kernel:
        counts = [
            _taps(shape[2 + d], space[d], kernel[d], **{name: size[d] for name, size in sizes.items()})
            for d in range(len(kernel))
        ]
        grouped = _over_channels(x.sq, groups)
        sq = (
            (w_sq * _along(grouped, counts)).repeat_interleave(n_out // groups, dim=1)
            if groups > 1
            else w_sq * _along(grouped, counts)
        )
        sq = sq.expand(shape)

        def back(g: Gradient) -> Gradient:
            per_group = _over_channels(g.sq, groups)
            reached = w_sq * _along(per_group, [count.T for count in counts])
            if groups > 1:
                reached = reached.repeat_interleave(C // groups, dim=1)
            return replace(g, slope=1.0, sq=reached.expand(x.sq.shape))

    else:
        size = math.prod(kernel)
        sq = (n_in * size * w_sq * average(x.sq)).expand(shape)

        def back(g: Gradient) -> Gradient:
            ratio = math.prod(shape[2:]) / math.prod(space)
            return replace(
                g, slope=1.0, sq=(ratio * (n_out // groups) * size * w_sq * average(g.sq)).expand(x.sq.shape)
            )

    out = Activation(sq=sq, sites=x.sites, examples=x.examples, width=n_out, positions=math.prod(shape[2:]))
    bias = call.optional("bias")
    biased = _add_bias(out, bias)
    return Step(
        out=biased,
        share=float(out.second_moment / biased.second_moment) if bias else 1.0,
        back=((call.ref("input"), back),),
        weight=w.parameter,
        bias=bias.parameter if bias else "",
        x=x,
        kind="weights",
        source=call.ref("input"),
    )


def _over_channels(sq: Tensor, groups: int) -> Tensor:
    """Sums over the channels of each group (1, G, ...); all examples have the same moments."""
    first = sq[:1]  # (1, C, ...)
    if groups == 1:
        return _summed(first, 1)
    return first.reshape(1, groups, -1, *sq.shape[2:]).sum(2)


def _taps(outputs: int, inputs: int, kernel: int, *, stride: int, padding: int, dilation: int) -> Tensor:
    """How many taps of a kernel connect each output with each input along one dimension, (outputs, inputs)."""
    reads = torch.arange(outputs)[:, None] * stride - padding + torch.arange(kernel) * dilation  # (outputs, kernel)
    inside = (reads >= 0) & (reads < inputs)
    counts = torch.zeros(outputs, inputs, dtype=torch.float64)
    return counts.scatter_add_(1, reads.clamp(0, inputs - 1), inside.double())


def _along(values: Tensor, counts: Sequence[Tensor]) -> Tensor:
    """A matrix (outputs, inputs) applied along each of the last dimensions, those of space."""
    for d, count in enumerate(counts):
        values = (values.movedim(2 + d, -1) @ count.T).movedim(-1, 2 + d)
    return values


def _sizes(call: Call, kernel: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Stride, padding (on the left) and dilation of every dimension."""
    if call.arguments.get("transposed"):
        raise UnsupportedError("a transposed convolution")

    def each(name: str) -> tuple[int, ...]:
        value = call.arguments[name]
        value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        return tuple(value * len(kernel) if len(value) == 1 else value)

    dilation = each("dilation")
    padding = call.arguments["padding"]
    if padding == "same":
        left = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        left = (0,) * len(kernel) if padding == "valid" else each("padding")
    return {"stride": each("stride"), "padding": left, "dilation": dilation}


def embedding(call: Call) -> Step:
    """E[y²] = E[W²]; tokens are independent, positions the same for every example."""
    w = call.activation("weight")
    shape = _shape(call)
    indices = call.values[call.ref("indices").name]
    drawn = isinstance(indices, Unknown) and indices.drawn
    return Step(
        Activation(
            sq=average(w.sq).expand(shape),
            examples=0.0 if drawn else 1.0,
            width=shape[-1],
            positions=math.prod(shape[1:-1]),
        ),
        weight=w.parameter,
    )


# Nonlinearities


def nonlinearity(name: str, *parameters: str, note: str = "") -> Callable[[Call], Step]:
    """A rule for φ, entry by entry; `parameters` name the operation's arguments that φ takes."""

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
    sites = correlate(phi, 1.0 if phi.homogeneous else q, x.mean, x.sites)
    examples = correlate(phi, 1.0 if phi.homogeneous else q, x.mean, x.examples)
    if phi.homogeneous:
        sq: Tensor = compactly(lambda v: v * at_mean.sq, x.sq)
        slope_sq = torch.tensor(at_mean.slope_sq, dtype=torch.float64).expand(x.sq.shape)
    else:
        sq = compactly(lambda v: _interpolated(lambda q: respond(phi, q, x.mean).sq, v), x.sq)
        slope_sq = compactly(lambda v: _interpolated(lambda q: respond(phi, q, x.mean).slope_sq, v), x.sq)

    def back(g: Gradient) -> Gradient:
        steep = g.slope * compactly(lambda a, b: a * b, g.sq, slope_sq)
        return Gradient(steep, g.sites * sites[1], g.examples * examples[1])

    out = replace(
        x,
        sq=sq,
        mean=at_mean.mean_sq / at_mean.sq if at_mean.sq else 0.0,
        sites=sites[0],
        examples=examples[0],
        before=Before(phi.name, phi.parameters, x.mean, x.sites) if phi.homogeneous else None,
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
        replace(x, sq=forward, mean=0.0, sites=0.0, examples=0.0, before=None),
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
        return Gradient(g.scaled(1 / keep).sq, g.sites * keep, g.examples * keep)

    out = replace(
        x, sq=x.scaled(1 / keep).sq, sites=x.sites * keep, examples=x.examples * keep, mean=x.mean * keep, before=None
    )
    return Step(out, ((call.ref("input"), back),))


# Pooling


def average_pool(call: Call) -> Step:
    """E[y²] = E[x²] / K of K i.i.d. entries, E[Δx²] = E[Δy²] / K² (appendix).

    `kernel`: E[y²] = ((1 - c) E[x²] + c E[x²] K) / K with c the correlation between positions.
    """
    name = next(iter(call.arguments))
    x = call.activation(name)
    shape = _shape(call)
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
        shape = _shape(call)
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
    shape = _shape(call)
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


# Sums and products


def add(call: Call) -> Step:
    """E[(x + a y)²] = E[x²] + a² E[y²]; the gradient goes to both. `kernel` adds 2 a E[x] E[y]."""
    left, right = call.arguments["self"], call.arguments["other"]
    alpha = float(call.arguments.get("alpha", 1) or 1)
    sign = -1.0 if call.operation.target in ("aten.sub", "aten.sub_", "aten.rsub") else 1.0
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        ref, number = (left, right) if isinstance(left, Ref) else (right, left)
        x = call.at(ref)
        if number == 0:
            return Step(x, ((ref, lambda g: g),))
        raise UnsupportedError(f"the constant {number} is added")
    if left == right:
        return _multiplied(call, left, 1 + sign * alpha)
    x, y = call.at(left), call.at(right)
    shape = _shape(call)
    b = y.scaled(alpha**2)
    q_x, q_y = float(average(x.sq.detach())), float(average(b.sq.detach()))
    summed = compactly if x.sq.shape == b.sq.shape else lambda function, *parts: function(*parts)
    sq = summed(lambda p, q: p + q, x.sq, b.sq)
    both = 0.0
    if call.kernel and x.mean > 0 and y.mean > 0:
        both = 2 * sign * math.sqrt(x.mean * y.mean)
        sq = summed(lambda p, q: p + q + both * (p * q).sqrt(), x.sq, b.sq)
    total = float(sq.detach().mean()) or 1.0
    cross = both * math.sqrt(q_x * q_y)
    mean_ = min(max((x.mean * q_x + y.mean * q_y + cross) / total, 0.0), 1.0)
    out = Activation(
        sq=sq.expand(shape),
        mean=mean_,
        sites=max((x.sites * q_x + y.sites * q_y + cross) / total, 0.0),
        examples=max((x.examples * q_x + y.examples * q_y + cross) / total, 0.0),
        width=max(x.width, y.width),
        positions=max(x.positions, y.positions),
        parameter="",
    )
    back: list[tuple[Ref, Back]] = []
    for ref, value, factor in ((left, x, 1.0), (right, y, alpha**2)):
        if not value.parameter:
            back.append((ref, _to_shape(value.sq.shape, factor)))
    return Step(out, tuple(back))


def _to_shape(shape: torch.Size, factor: float | Tensor) -> Back:
    """A gradient summed over the dimensions that were broadcast."""

    def back(g: Gradient) -> Gradient:
        if g.sq.shape == shape and not (isinstance(factor, Tensor) and factor.dim()):
            return g.scaled(factor)
        return replace(g, sq=(g.sq * factor).sum_to_size(shape))

    return back


def multiply(call: Call) -> Step:
    """x_{l+1} = u x_l: E[u²] E[x²], E[Δx²] = E[u²] E[Δy²]; of two activations the product of their moments."""
    left, right = call.arguments["self"], call.arguments["other"]
    inverse = call.operation.target.startswith("aten.div")
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        ref, number = (left, right) if isinstance(left, Ref) else (right, left)
        if inverse and not isinstance(left, Ref):
            raise UnsupportedError("a division by an activation")
        return _multiplied(call, ref, 1 / float(number) if inverse else float(number))
    x, u, ref, factor = call.at(left), call.at(right), left, right
    if x.parameter and not u.parameter and not inverse:
        x, u, ref, factor = u, x, right, left
    if u.parameter:
        sq = u.sq
        if inverse:
            if call.actual(factor) is None:
                raise UnsupportedError("a division by numbers that are not at hand")
            sq = 1 / u.sq
        out = replace(x, sq=(x.sq * sq).expand(_shape(call)))
        scalar = u.parameter if u.sq.numel() == 1 else ""
        actual = call.actual(factor)
        if not scalar:
            out = replace(out, mean=0.0, before=None)  # a factor a channel, of either sign
        elif actual is not None and float(actual) < 0:
            out = replace(out, before=None)
        if sq.dim() and not bool(torch.isfinite(sq).all()):
            raise UnsupportedError(f"{u.parameter} has no value on the meta device")
        return Step(out, ((ref, _to_shape(x.sq.shape, sq)),), scalar=scalar, x=x, source=ref)
    if inverse:
        raise UnsupportedError("a division by an activation")
    if left == right:
        raise UnsupportedError("the square of an activation")
    y = u
    product = replace(
        x,
        sq=(x.sq * y.sq).expand(_shape(call)),
        mean=x.mean * y.mean,
        sites=x.sites * y.sites,
        examples=x.examples * y.examples,
        before=None,
    )
    return Step(
        product,
        ((left, _to_shape(x.sq.shape, y.sq)), (right, _to_shape(y.sq.shape, x.sq))),
        note=f"a product of two activations: {NOT_IN_PAPER}, taken as independent",
    )


def negate(call: Call) -> Step:
    """−x."""
    return _multiplied(call, call.ref("self"), -1.0)


def _multiplied(call: Call, ref: Ref, factor: float) -> Step:
    x = call.at(ref)
    out = replace(x.scaled(factor**2), before=x.before if factor > 0 else None)
    return Step(out, ((ref, lambda g: g.scaled(factor**2)),))


# Normalisation


def batch_norm(call: Call) -> Step:
    """Evaluation mode: a fixed multiplier w / √(running variance); training mode: E[y²] = E[w²] + E[b²]."""
    x = call.activation("input")
    w, b = call.optional("weight"), call.optional("bias")
    w_sq = average(w.sq) if w else torch.ones((), dtype=torch.float64)
    if call.arguments.get("training", call.arguments.get("cudnn_enabled")) and call.arguments.get("training"):
        variance: Tensor | float = average(x.sq) * (1 - x.examples)
        sites = 0.0
    else:
        running = call.arguments.get("running_var")
        actual = call.actual(running) if isinstance(running, Ref) else None
        variance = float(actual.double().mean()) if actual is not None else 1.0  # as PyTorch builds it
        sites = x.sites
    factor = w_sq / (variance + float(call.arguments.get("eps") or 0.0))
    out = _add_bias(replace(x, sq=x.scaled(factor).sq, sites=sites, parameter="", before=None), b)
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
        x, sq=sq, mean=0.0 if centred else x.mean, sites=share(x.sites), examples=share(x.examples), before=None
    )
    note = f"normalisation: {NOT_IN_PAPER}"

    def back(g: Gradient) -> Gradient:
        return g.scaled(w_sq / variance * (1 - used))

    return Step(_add_bias(out, b), ((call.ref("input"), back),), note=note)


# Shapes


def reshaped(call: Call) -> Step:
    """Moments go where the entries go."""
    name = next(key for key, value in call.arguments.items() if isinstance(value, Ref))
    x = call.activation(name)
    return _moved(call, call.ref(name), lambda v: call.applied(name, v), x)


def _moved(call: Call, ref: Ref, function: Callable[[Tensor], Tensor], x: Activation) -> Step:
    sq = function(x.sq)
    merged = sq.dim() == 2 and x.sq.dim() > 2 and x.positions > 1 and not x.parameter

    def back(g: Gradient) -> Gradient:
        back_sq = transposed(function, x.sq, g.sq)
        # Behind a flattening every position has weights of its own: their gradients are uncorrelated.
        return Gradient(back_sq, 0.0 if merged and sq.shape[0] == x.sq.shape[0] else g.sites, g.examples)

    out = replace(x, sq=sq, before=x.before if sq.dim() == x.sq.dim() else None)
    return Step(out, () if x.parameter else ((ref, back),))


def take_apart(call: Call) -> Step:
    """chunk, split, unbind: the pieces are taken by getitem."""
    name = next(key for key, value in call.arguments.items() if isinstance(value, Ref))
    return Step(Pieces(call.ref(name), lambda v: call.applied(name, v)))


def get_item(call: Call) -> Step:
    """One piece of what `take_apart` left."""
    source, index = list(call.arguments.values())[:2]
    pieces = call.values[source.name]
    if not isinstance(pieces, Pieces):
        raise UnsupportedError("an item of something that has no moments")
    return _moved(call, pieces.source, lambda v: pieces.function(v)[index], call.at(pieces.source))


def concatenate(call: Call) -> Step:
    """Moments side by side."""
    refs: Sequence[Ref] = call.arguments["tensors"]
    parts = [call.at(ref) for ref in refs]
    dim = int(call.arguments.get("dim") or 0)
    join = torch.stack if call.operation.target == "aten.stack" else torch.cat
    sq = join([part.sq for part in parts], dim)
    sizes = [float(part.sq.detach().sum()) for part in parts]
    total = sum(sizes) or 1.0

    def weighted(values: Sequence[float]) -> float:
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / total

    out = Activation(
        sq=sq,
        mean=weighted([part.mean for part in parts]),
        sites=weighted([part.sites for part in parts]),
        examples=weighted([part.examples for part in parts]),
        width=sum(part.width for part in parts),
        positions=max(part.positions for part in parts),
    )

    def piece(index: int) -> Back:
        def back(g: Gradient) -> Gradient:
            if join is torch.stack:
                return replace(g, sq=g.sq.select(dim, index))
            lengths = [part.sq.shape[dim] for part in parts]
            return replace(g, sq=torch.split_with_sizes(g.sq, lengths, dim)[index])

        return back

    return Step(out, tuple((ref, piece(i)) for i, ref in enumerate(refs) if not parts[i].parameter))


def pad(call: Call) -> Step:
    """Zeros around."""
    if call.arguments.get("mode", "constant") == "constant" and call.arguments.get("value") not in (None, 0, 0.0):
        raise UnsupportedError("padding with a number other than 0")
    return reshaped(call)


def _shape(call: Call) -> tuple[int, ...]:
    shape = call.operation.shape
    if shape is None:
        raise UnsupportedError("it returns more than one tensor")
    return shape


def _named(*names: str) -> tuple[str, ...]:
    """Operations of aten, with their in-place forms."""
    return tuple(f"aten.{name}" for name in names) + tuple(f"aten.{name}_" for name in names)


_MOVES = (
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t", "squeeze", "unsqueeze",
    "contiguous", "clone", "expand", "alias", "slice", "select", "movedim", "moveaxis", "narrow", "repeat", "to",
    "_to_copy", "detach", "numpy_T", "mT", "roll", "flip", "type_as", "expand_as", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "lift_fresh_copy", "detach_", "swapaxes",
)  # fmt: skip

TANH = f"tanh: {NOT_IN_PAPER} outside its linear regime"
SIGMOID = f"sigmoid: {NOT_IN_PAPER} outside its linear regime"
CURVED = f"{{}}: {NOT_IN_PAPER}"

RULES: tuple[Rule, ...] = (
    Rule("linear layer", ("aten.linear",), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", linear),
    Rule("linear layer", ("aten.addmm",), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", addmm),
    Rule("linear layer", _named("matmul", "mm"), "n E[W²] E[x²]", "n' E[W²] E[Δy²]", "✓", "Table 1", matmul),
    Rule(
        "convolution",
        _named("conv1d", "conv2d", "conv3d", "convolution"),
        "n k² E[W²] E[x²]",
        "ρ'² n' k² E[W²] E[Δy²] / ρ²",
        "✓ if stride = kernel",
        "Table 1, appendix B.1",
        convolution,
    ),
    Rule("embedding", ("aten.embedding",), "E[W²]", "–", "–", "", embedding),
    Rule(
        "skip connection, sum",
        _named("add", "sub"),
        "E[x²] + a² E[y²]",
        "E[Δ²], a² E[Δ²]",
        "✓",
        "Table 1, appendix B.7",
        add,
    ),
    Rule(
        "scalar multiplier",
        _named("mul", "div", "multiply", "divide"),
        "E[u²] E[x²]",
        "E[u²] E[Δy²]",
        "✓",
        "appendix B.6",
        multiply,
    ),
    Rule("sign", _named("neg"), "E[x²]", "E[Δy²]", "✓", "", negate),
    Rule(
        "average pooling",
        _named("avg_pool1d", "avg_pool2d", "avg_pool3d"),
        "E[x²] / K",
        "E[Δy²] / K²",
        "✓ if stride = kernel",
        "Table 1, appendix B.3",
        average_pool,
    ),
    Rule(
        "global pooling",
        _named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        "E[x²] / ρ²",
        "E[Δy²] / ρ⁴",
        "✓",
        "appendix B.3",
        average_pool,
    ),
    Rule("mean over positions", ("aten.mean",), "E[x²] / K", "E[Δy²] / K²", "✓", "appendix B.3", mean),
    Rule(
        "max pooling",
        _named("max_pool1d", "max_pool2d", "max_pool3d"),
        "E[x²]",
        "E[Δy²] / K",
        "✗",
        "Table 1",
        max_pool,
    ),
    Rule(
        "dropout",
        _named("dropout", "feature_dropout"),
        "E[x²] / (1 - p)",
        "E[Δy²] / (1 - p)",
        "✓",
        "Table 1, appendix B.5",
        dropout,
    ),
    Rule("ReLU", _named("relu"), "E[x²] / 2", "E[Δy²] / 2", "✓", "Table 1, appendix B.4", nonlinearity("relu")),
    Rule(
        "leaky ReLU",
        _named("leaky_relu"),
        "(1 + a²) E[x²] / 2",
        "(1 + a²) E[Δy²] / 2",
        "✓",
        "Table 1",
        nonlinearity("leaky_relu", "negative_slope"),
    ),
    Rule("leaky ReLU", ("aten.prelu",), "(1 + a²) E[x²] / 2", "(1 + a²) E[Δy²] / 2", "✓", "Table 1", prelu),
    Rule("tanh", _named("tanh"), "E[x²]", "E[Δy²]", "✗", "Table 1", nonlinearity("tanh", note=TANH)),
    Rule(
        "sigmoid",
        _named("sigmoid"),
        "1/4 + E[x²] / 16",
        "E[Δy²] / 16",
        "✗",
        "Table 1",
        nonlinearity("sigmoid", note=SIGMOID),
    ),
    *(
        Rule(
            name,
            _named(target),
            "E[φ(x)²]",
            "E[φ'(x)²] E[Δy²]",
            "✗",
            "",
            nonlinearity(name, *parameters, note=CURVED.format(target)),
        )
        for name, target, parameters in (
            ("gelu", "gelu", ()),
            ("silu", "silu", ()),
            ("elu", "elu", ("alpha",)),
            ("selu", "selu", ()),
            ("softplus", "softplus", ()),
            ("mish", "mish", ()),
            ("relu6", "relu6", ()),
            ("hardtanh", "hardtanh", ("min_val", "max_val")),
            ("hardswish", "hardswish", ()),
            ("hardsigmoid", "hardsigmoid", ()),
        )
    ),
    Rule("batch normalisation", ("aten.batch_norm",), "E[w²] E[x²] / v", "E[w²] E[Δy²] / v", "✓", "", batch_norm),
    Rule(
        "layer normalisation",
        ("aten.layer_norm", "aten.rms_norm"),
        "E[w²]",
        "E[w²] E[Δy²] / E[x²]",
        "✓",
        "",
        layer_norm,
    ),
    Rule("group normalisation", ("aten.group_norm",), "E[w²]", "E[w²] E[Δy²] / E[x²]", "✓", "", group_norm),
    Rule("reshaping", _named(*_MOVES), "E[x²]", "E[Δy²]", "✓", "", reshaped),
    Rule("padding", ("aten.pad", "aten.constant_pad_nd"), "E[x²]", "E[Δy²]", "✓", "", pad),
    Rule(
        "taking apart",
        _named("chunk", "split", "unbind", "split_with_sizes", "tensor_split"),
        "E[x²]",
        "E[Δy²]",
        "✓",
        "",
        take_apart,
    ),
    Rule("taking apart", ("getitem",), "E[x²]", "E[Δy²]", "✓", "", get_item),
    Rule("concatenation", ("aten.cat", "aten.stack", "aten.concat"), "E[x²]", "E[Δy²]", "✓", "", concatenate),
)

BY_TARGET: dict[str, Rule] = {target: rule for rule in RULES for target in rule.targets}

LINEAR = (linear, addmm, matmul, convolution, reshaped, take_apart, get_item, pad)  # in the one activation they read
