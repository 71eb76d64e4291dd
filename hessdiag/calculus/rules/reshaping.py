"""Operations that move elements and change none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hessdiag.calculus.graph import Back, Call, Pieces, Ref, Step, Unknown, UnsupportedError, transposed
from hessdiag.calculus.moments import Activation, Gradient


def copied(call: Call) -> Step:
    """The same entries in other memory, or in another precision."""
    ref = call.ref(_first(call))
    x = call.at(ref)
    return Step(x, () if x.parameter else ((ref, lambda g: g),))


def detached(call: Call) -> Step:
    """The same entries, without a gradient."""
    return Step(call.activation(_first(call)))


def _first(call: Call) -> str:
    """The name of the first argument that is a tensor."""
    return next(key for key, value in call.arguments.items() if isinstance(value, Ref))


def reshaped(call: Call) -> Step:
    """Moments go where the entries go."""
    name = _first(call)
    x = call.activation(name)
    return _moved(call, call.ref(name), lambda v: call.applied(name, v), x)


def _moved(call: Call, ref: Ref, function: Callable[[Tensor], Tensor], x: Activation) -> Step:
    sq = function(x.sq)
    merged = sq.dim() == 2 and x.sq.dim() > 2 and x.positions > 1 and not x.parameter

    def back(g: Gradient) -> Gradient:
        back_sq = transposed(function, x.sq, g.sq)
        # Behind a flattening every position has weights of its own: their gradients are uncorrelated.
        return Gradient(
            back_sq, 0.0 if merged and sq.shape[0] == x.sq.shape[0] else g.site_correlation, g.example_correlation
        )

    out = replace(x, sq=sq, before=x.before if sq.dim() == x.sq.dim() else None)
    return Step(out, () if x.parameter else ((ref, back),))


def take_apart(call: Call) -> Step:
    """chunk, split, unbind: the pieces are taken by getitem."""
    name = _first(call)
    return Step(Pieces(call.ref(name), lambda v: call.applied(name, v)))


def get_item(call: Call) -> Step:
    """One piece of what `take_apart` left, or the first result of an operation whose rule gives that alone."""
    source, index = list(call.arguments.values())[:2]
    pieces = call.values[source.name]
    if isinstance(pieces, Activation):
        return Step(pieces, ((source, lambda g: g),)) if index == 0 else Step(Unknown())
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
        site_correlation=weighted([part.site_correlation for part in parts]),
        example_correlation=weighted([part.example_correlation for part in parts]),
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


def output_shape(call: Call) -> tuple[int, ...]:
    """Shape of what the operation writes, as traced."""
    shape = call.operation.shape
    if shape is None:
        raise UnsupportedError("it returns more than one tensor")
    return shape
