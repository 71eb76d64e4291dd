"""Operations that move elements, and pooling over neighbouring positions."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Pieces, Ref, Step, Unknown, UnsupportedError, transposed
from hessdiag.calculus.moments import Activation, Gradient, average, compactly, distinct, respond_of_largest, weighted


def copied(call: Call) -> Step:
    """The same entries in other memory, or in another precision."""
    x = call.at(call.first)
    return Step(x, () if x.parameter else ((call.first, lambda g: g),))


def detached(call: Call) -> Step:
    """The same entries, without a gradient."""
    return Step(call.at(call.first))


def reshaped(call: Call) -> Step:
    """Moments go where the entries go."""
    return _moved(call, call.first, call.applied, _along(call))


def _along(call: Call) -> int | None:
    return int(call.arguments["dim"]) if call.operation.target in _TAKE else None


_TAKE = frozenset(f"aten.{x}" for x in ("slice", "narrow", "chunk", "split", "split_with_sizes", "tensor_split"))


def _moved(call: Call, ref: Ref, function: Callable[[Tensor], Tensor], along: int | None = None) -> Step:
    x = call.at(ref)
    sq = function(x.sq)
    # Some channels of (B, T, ..., C): all are alike forward, and share the gradient, of which a layer takes the mean.
    last = along in (-1, x.sq.dim() - 1) and sq.dim() == x.sq.dim() > 2
    channels = last and x.positions in (x.sq.shape[1], x.sq.shape[-2]) and x.sq.stride(-1) == 0
    # Behind a flattening every position has weights of its own: their gradients are uncorrelated.
    inner = along is not None and 0 < along % x.sq.dim() < x.sq.dim() - 1  # a slice of (B, positions, C)
    sliced = inner and math.prod(x.sq.shape[1:-1]) == x.positions
    positions = math.prod(sq.shape[1:-1]) if sliced else x.positions
    taken = (positions - 1) / max(x.positions - 1, 1) if positions < x.positions else 1.0  # of pairs
    apart = sq.dim() == 2 and x.sq.dim() > 2 and x.positions > 1 and not x.parameter and len(sq) == len(x.sq)

    def back(g: Gradient) -> Gradient:
        if channels:
            back_sq = (distinct(g.sq).mean(-1, keepdim=True) * (g.sq.shape[-1] / x.sq.shape[-1])).expand(x.sq.shape)
        else:
            back_sq = transposed(function, x.sq, g.sq)
        return Gradient(back_sq, 0.0 if apart else g.site_correlation * taken, g.example_correlation, g.profile)

    before = x.before if sq.dim() == x.sq.dim() else None
    out = replace(x, sq=sq, before=before, positions=positions, profile=None if apart else x.profile)
    return Step(out, () if x.parameter else ((ref, back),))


def picked(call: Call) -> Step:
    """Entries by their indices; of one position of each example, picked by unknown indices, all are as likely."""
    x, indices, note = call.activation("self"), call.arguments["indices"], ""
    known = [slice(None) if index is None else call.numbers.get(index.name) for index in indices]
    rows, count = known[0], len(x.sq)
    each = len(known) == 2 and isinstance(rows, Tensor) and rows.tolist() == list(range(count))
    if each and known[1] is None:
        known[1] = (torch.arange(count) * 2 + 1) * x.sq.shape[1] // (2 * count)
        note = "a position picked by the inputs: taken as evenly spread over positions"
    unknown = any(index is None for index in known)
    if x.parameter:
        return Step(replace(x, sq=average(x.sq).expand(call.shape) if unknown else x.sq[tuple(known)]))
    if unknown:
        raise UnsupportedError("entries picked by what depends on the inputs")
    if float(transposed(lambda v: v[tuple(known)], x.sq, torch.ones(call.shape).double()).max()) > 1:
        raise UnsupportedError("entries picked several times")
    return replace(_moved(call, call.ref("self"), lambda v: v[tuple(known)]), note=note)


def take_apart(call: Call) -> Step:
    """chunk, split, unbind: the pieces are taken by getitem."""
    return Step(Pieces(call.first, call.applied, _along(call)))


def get_item(call: Call) -> Step:
    """One piece of what `take_apart` left, or the first result of an operation whose rule gives that alone."""
    source, index = list(call.arguments.values())[:2]
    if isinstance(pieces := call.values[source.name], Activation):
        return Step(pieces, ((source, lambda g: g),)) if index == 0 else Step(Unknown())
    if not isinstance(pieces, Pieces):
        raise UnsupportedError("an item of something that has no moments")
    return _moved(call, pieces.source, lambda v: pieces.function(v)[index], pieces.along)


def concatenate(call: Call) -> Step:
    """Moments side by side."""
    refs = [ref for ref in call.arguments["tensors"] if call.at(ref).sq.numel()]
    parts = [call.at(ref) for ref in refs]
    dim = int(call.arguments.get("dim") or 0)
    join = torch.stack if call.operation.target == "aten.stack" else torch.cat
    sq = join([part.sq for part in parts], dim)
    sizes = [float(part.sq.sum()) for part in parts]
    parts = [replace(part, alike=part.alike or 1 / part.sq.shape[-1]) for part in parts]
    joint = weighted(sizes, parts, "mean", "site_correlation", "example_correlation", "alike", "read")
    out = Activation(sq, **joint, positions=max(part.positions for part in parts))  # type: ignore[arg-type]

    def back(g: Gradient, index: int) -> Gradient:
        if join is torch.stack:
            return replace(g, sq=g.sq.select(dim, index))
        return replace(g, sq=torch.split_with_sizes(g.sq, [part.sq.shape[dim] for part in parts], dim)[index])

    return Step(out, tuple((ref, partial(back, index=i)) for i, ref in enumerate(refs) if not parts[i].parameter))


def pad(call: Call) -> Step:
    """Zeros around."""
    if call.arguments.get("mode", "constant") == "constant" and call.arguments.get("value") not in (None, 0, 0.0):
        raise UnsupportedError("padding with a number other than 0")
    return reshaped(call)


def average_pool(call: Call) -> Step:
    """E[y²] = E[x²] / K of K i.i.d. entries, E[Δx²] = E[Δy²] / K² (appendix). `kernel`: E[y²] = ((1 - c) E[x²] + c
    E[x²] K) / K with c the correlation between positions.
    """
    x = call.at(call.first)
    count = _entries_of_window(call) if "kernel_size" in call.arguments else x.sq.numel() / math.prod(call.shape)  # K
    coherent = call.applied(compactly(torch.sqrt, x.sq)).square()  # what entries that are all equal would give
    sq = (1 - x.site_correlation) * call.applied(x.sq) / count + x.site_correlation * coherent
    size, whole = float(average(sq)), float(average(coherent))
    share = whole / size if size else 0.0
    positions = max(x.positions * math.prod(call.shape) // x.sq.numel(), 1)

    def back(g: Gradient) -> Gradient:
        sq = transposed(call.applied, x.sq, g.sq) / count
        if g.site_correlation > 0 and positions > 1:
            alike = transposed(call.applied, x.sq, g.sq.sqrt()).square()
            sq = (1 - g.site_correlation) * sq + g.site_correlation * alike
        within = (count - 1) / max(x.positions - 1, 1)  # pairs of positions that go into the same mean
        return Gradient(sq, min(within + (1 - within) * g.site_correlation, 1.0), g.example_correlation)

    return Step(replace(x.weakened(sq, share), positions=positions), ((call.first, back),))


def mean(call: Call) -> Step:
    """The mean over dimensions, as of global pooling."""
    dims = call.activation("self").sq.dim()
    if any(d % dims == 0 for d in call.arguments.get("dim") or range(dims)):
        raise UnsupportedError("a mean over examples")
    return average_pool(call)


def max_pool(call: Call) -> Step:
    """No rule in the paper. `paper` lets E[x²] pass and shares the gradient among the K entries. `kernel`: moments of
    the largest of K equally correlated Gaussians, seen through the nonlinearity before it.
    """
    x, ref, shape = call.at(call.first), call.first, call.shape
    note = f"max pooling: {NOT_IN_PAPER}"
    positions = math.prod(shape[2:])
    if not call.kernel:
        ratio = math.prod(shape) / x.sq.numel()
        out = replace(x, sq=average(x.sq).expand(shape), positions=positions, before=None)
        return Step(out, ((ref, lambda g: Gradient((average(g.sq) * ratio).expand(x.sq.shape))),), note=note)
    growth, together, steeper, lean = respond_of_largest(*x.gaussian, _entries_of_window(call))
    window = call.arguments
    average_pool: Callable[..., Tensor] = getattr(F, f"avg_pool{len(shape) - 2}d")
    if any(dilation != 1 for dilation in window["dilation"]):
        raise UnsupportedError("dilated max pooling")

    def pooled(sq: Tensor) -> Tensor:  # each entry of a window is as often the largest
        return average_pool(sq, window["kernel_size"], window["stride"], window["padding"], window["ceil_mode"], False)

    chosen = max(positions - 1, 0) / max(x.positions - 1, 1)  # how often a position is that another one is

    def back(g: Gradient) -> Gradient:
        # The largest entry is more often than others on the steep side of the nonlinearity below.
        shared = g.site_correlation * chosen, g.example_correlation * positions / x.positions
        return Gradient(transposed(pooled, x.sq, g.sq), *shared, slope=steeper, lean=lean * shared[0])

    out = replace(
        x, sq=growth * pooled(x.sq), mean=together,
        site_correlation=together * min(x.site_correlation / x.near, 1.0) if x.near > 0 else together,
        example_correlation=together if x.example_correlation > 0 else 0.0, positions=positions, before=None,
    )  # fmt: skip
    return Step(out, ((ref, back),), note=note)


def _entries_of_window(call: Call) -> int:
    size, dimensions = call.arguments["kernel_size"], len(call.shape) - 2
    return math.prod(size if len(size) == dimensions else size * dimensions)
