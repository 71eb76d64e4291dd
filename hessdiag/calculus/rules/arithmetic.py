"""Sums and products of two activations: skip connections, multipliers."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Back, Call, Ref, Step, UnsupportedError
from hessdiag.calculus.moments import Activation, Gradient, average, compactly
from hessdiag.calculus.rules.reshaping import output_shape

LARGE_SHIFT = 0.1  # of what it is added to, in second moments


def add(call: Call) -> Step:
    """E[(x + a y)²] = E[x²] + a² E[y²]; the gradient goes to both. `kernel` adds 2 a E[x] E[y]."""
    left, right = call.arguments["self"], call.arguments["other"]
    alpha = float(call.arguments.get("alpha", 1) or 1)
    sign = -1.0 if call.operation.target in ("aten.sub", "aten.rsub") else 1.0
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        ref, number = (left, right) if isinstance(left, Ref) else (right, left)
        x = call.at(ref)
        if number == 0:
            return Step(x, ((ref, lambda g: g),))
        raise UnsupportedError(f"the constant {number} is added")
    if left == right:
        return _multiplied(call, left, 1 + sign * alpha)
    x, y = call.at(left), call.at(right)
    shape = output_shape(call)
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
        site_correlation=max((x.site_correlation * q_x + y.site_correlation * q_y + cross) / total, 0.0),
        example_correlation=max((x.example_correlation * q_x + y.example_correlation * q_y + cross) / total, 0.0),
        width=max(x.width, y.width),
        positions=max(x.positions, y.positions),
        parameter="",
    )
    note = ""
    if (y.parameter and q_y > LARGE_SHIFT * q_x) or (x.parameter and q_x > LARGE_SHIFT * q_y):
        note = "a learnable shift as large as what it is added to is taken as independent of it, as one of data is not"
    back: list[tuple[Ref, Back]] = []
    for ref, value, factor in ((left, x, 1.0), (right, y, alpha**2)):
        if not value.parameter:
            back.append((ref, _to_shape(value.sq.shape, factor)))
    return Step(out, tuple(back), note=note)


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
        out = replace(x, sq=(x.sq * sq).expand(output_shape(call)))
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
        sq=(x.sq * y.sq).expand(output_shape(call)),
        mean=x.mean * y.mean,
        site_correlation=x.site_correlation * y.site_correlation,
        example_correlation=x.example_correlation * y.example_correlation,
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
