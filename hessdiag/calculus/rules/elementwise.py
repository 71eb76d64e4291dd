"""Operations on one element at a time: sums, products, nonlinearities and dropout."""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Call, Ref, Step, UnsupportedError
from hessdiag.calculus.moments import (
    Activation,
    Before,
    Gradient,
    Nonlinearity,
    average,
    compactly,
    correlate,
    distinct,
    flattened,
    leaky_relu,
    mixed,
    respond,
    responses,
)

LARGE_SHIFT = 0.1  # of what it is added to, in second moments
ANGLES = "angles of positions"  # cosines and sines of them, of which the numbers are not known


def add(call: Call) -> Step:
    """E[(x + a y)²] = E[x²] + a² E[y²]; the gradient goes to both. `kernel` adds 2 a E[x] E[y]."""
    left, right = call.arguments["self"], call.arguments["other"]
    alpha = float(call.arguments.get("alpha", 1)) * (-1 if call.operation.target == "aten.sub" else 1)
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        ref, number = (left, right) if isinstance(left, Ref) else (right, left)
        x = call.at(ref)
        if number == 0:
            return Step(x, ((ref, lambda g: g),))
        raise UnsupportedError(f"the constant {number} is added")
    if left == right:
        return _multiplied(call, left, 1 + alpha)
    x, y = _everywhere(call.at(left)), _everywhere(call.at(right))
    b = y.scaled(alpha**2)
    q_x, q_y = x.second_moment, b.second_moment
    both = 2 * math.copysign(math.sqrt(x.mean * y.mean), alpha) if x.mean > 0 and y.mean > 0 else 0.0
    sides_sq = (x.sq.expand(call.shape), b.sq.expand(call.shape))
    sq = compactly(lambda p, q: p + q + both * (p * q).sqrt() if both else p + q, *sides_sq)
    total = float(average(sq)) or 1.0
    cross = both * math.sqrt(q_x * q_y)
    differing = [q * max(1 - each.site_correlation, 0.0) for q, each in ((q_x, x), (q_y, y))]
    share = differing[0] / (sum(differing) or 1.0)
    # such as tokens and positions
    apart = 1 / call.shape[-1] if abs(x.example_correlation - y.example_correlation) > 0.5 else None
    out = Activation(
        sq=sq, mean=min(max((x.mean * q_x + y.mean * q_y + cross) / total, 0.0), 1.0),
        site_correlation=max((x.site_correlation * q_x + y.site_correlation * q_y + cross) / total, 0.0),
        example_correlation=max((x.example_correlation * q_x + y.example_correlation * q_y + cross) / total, 0.0),
        alike=_joined(x.alike or 1 / x.sq.shape[-1], y.alike or 1 / y.sq.shape[-1], share, apart),
        read=_joined(x.read, y.read, share), profile=mixed((q_x, q_y), (x, y)), positions=max(x.positions, y.positions),
    )  # fmt: skip
    note = ""
    if (y.parameter and q_y > LARGE_SHIFT * q_x) or (x.parameter and q_x > LARGE_SHIFT * q_y):
        note = "a learnable shift as large as what it is added to is taken as independent of it, as one of data is not"
    sides = ((left, x, 1.0), (right, y, alpha**2))
    back = [(ref, partial(_to_shape, shape=side.sq.shape, factor=f)) for ref, side, f in sides if not side.parameter]
    return Step(out, tuple(back), note=note)


def _everywhere(x: Activation) -> Activation:
    """A parameter that has but one value a channel is the same at all positions."""
    return replace(x, site_correlation=1.0) if x.parameter and sum(size > 1 for size in x.sq.shape) <= 1 else x


def _joined(x: float, y: float, share: float, apart: float | None = None) -> float:
    """The mean square of a cosine in a sum: cosines add up, or have the mean square `apart` with each other."""
    together = math.sqrt(x * y) if apart is None else apart
    return share**2 * x + (1 - share) ** 2 * y + 2 * share * (1 - share) * together


def _to_shape(g: Gradient, shape: torch.Size, factor: float | Tensor) -> Gradient:
    g = g.scaled(factor)
    return g if g.sq.shape == shape else replace(g, sq=g.sq.sum_to_size(shape))


def multiply(call: Call) -> Step:
    """x_{l+1} = u x_l: E[u²] E[x²], E[Δx²] = E[u²] E[Δy²]; of two activations the product of their moments."""
    left, right = call.arguments["self"], call.arguments["other"]
    inverse = call.operation.target.startswith("aten.div")
    if not isinstance(left, Ref) or not isinstance(right, Ref):
        ref, number = (left, right) if isinstance(left, Ref) else (right, left)
        if inverse and not isinstance(left, Ref):
            raise UnsupportedError("a division by an activation")
        return _multiplied(call, ref, float(1 / torch.as_tensor(number) if inverse else number))
    x, y = call.at(left), call.at(right)
    if x.parameter and not y.parameter and not inverse:
        return _by_parameter(call, right, left, inverse=False)
    if y.parameter:
        return _by_parameter(call, left, right, inverse=inverse)
    if inverse or left == right:
        raise UnsupportedError("a division by an activation" if inverse else "the square of an activation")
    product = replace(
        x, sq=compactly(torch.mul, x.sq.expand(call.shape), y.sq.expand(call.shape)), mean=x.mean * y.mean, before=None,
        site_correlation=x.site_correlation * y.site_correlation,
        example_correlation=x.example_correlation * y.example_correlation,
    )  # fmt: skip
    back = ((left, partial(_beside, x=x, other=y)), (right, partial(_beside, x=y, other=x)))
    return Step(product, back, note=f"a product of two activations: {NOT_IN_PAPER}, taken as independent", kurtosis=3.0)


def _beside(g: Gradient, x: Activation, other: Activation) -> Gradient:
    """The gradient of one factor of a product, as alike between positions as the gradient and the other factor are."""
    alone = _to_shape(g, x.sq.shape, distinct(other.sq))
    return replace(alone, site_correlation=g.site_correlation * other.site_correlation)


def of_angle(call: Call) -> Step:
    """E[cos²] = E[sin²] = 1/2: rotations by position, whose numbers are not known on the meta device. Of an activation,
    as in SIREN, they are a nonlinearity.
    """
    if isinstance(read := call.values[call.ref("self").name], Activation) and not read.parameter:
        return nonlinearity(call, f"sine: {NOT_IN_PAPER}")
    return Step(Activation(torch.tensor(0.5, dtype=torch.float64).expand(call.shape), parameter=ANGLES))


def _by_parameter(call: Call, ref: Ref, factor: Ref, *, inverse: bool) -> Step:
    x, u, actual = call.at(ref), call.at(factor), call.numbers.get(factor.name)
    if inverse and actual is None:
        raise UnsupportedError("a division by numbers that are not at hand")
    sq = 1 / u.sq if inverse else u.sq
    out = replace(x, sq=compactly(torch.mul, x.sq.expand(call.shape), sq))
    scalar = u.parameter if u.sq.numel() == 1 else ""
    if not scalar:
        out = replace(out, mean=0.0, before=None)  # a factor a channel, of either sign
    elif actual is not None and float(actual) < 0:
        out = replace(out, before=None)
    if not bool(torch.isfinite(average(sq))) and u.sq.dim():
        raise UnsupportedError(f"{u.parameter} has no value on the meta device")
    back = partial(_to_shape, shape=x.sq.shape, factor=distinct(sq))
    return Step(out, ((ref, back),), scalar=scalar, x=x, source=ref)


def negate(call: Call) -> Step:
    """−x."""
    return _multiplied(call, call.ref("self"), -1.0)


def _multiplied(call: Call, ref: Ref, factor: float) -> Step:
    x = call.at(ref)
    out = replace(x.scaled(factor**2), before=x.before if factor > 0 else None)
    return Step(out, ((ref, lambda g: g.scaled(factor**2)),))


def nonlinearity(call: Call, note: str, linear: tuple[float, float] | None = None) -> Step:
    """An operation entry by entry; in `paper`, with `linear`, E[y²] at E[x²] = 0 and its growth."""
    name, *others = call.arguments
    ref, operation = call.ref(name), call.operation
    if len(operation.refs) > 1:
        raise UnsupportedError(f"its argument {others[0]} is no number")
    if linear and not call.kernel:
        x, (shift, factor) = call.at(ref), linear
        out = replace(x, sq=compactly(lambda sq: shift + factor * sq, x.sq))
        return Step(out, ((ref, lambda g: g.scaled(factor)),), note=note)
    return pointwise(call, Nonlinearity(operation.target, lambda x: operation.run({name: x})), ref, note)


def rectified(call: Call) -> Step:
    """A ReLU or leaky ReLU, also one whose slope is a parameter."""
    weight = call.optional("weight")
    slope = math.sqrt(float(weight.sq.mean())) if weight else call.number("negative_slope") or 0.0
    return pointwise(call, leaky_relu(slope), call.ref("self"))


def pointwise(call: Call, phi: Nonlinearity, ref: Ref, note: str = "") -> Step:
    """y = φ(x) of a Gaussian x with its mean part and correlations."""
    x = call.at(ref)
    if phi.slope == 0 and x.before is not None and x.before.phi == phi:
        on = respond(phi, 1.0, x.before.mean).slope_sq

        def let_pass(g: Gradient) -> Gradient:  # a second ReLU: the first has let the same entries pass
            return replace(g.scaled(on), slope=1 / on, site_correlation=g.site_correlation * on)

        return Step(x, ((ref, let_pass),), note=note)
    size = 1.0 if phi.slope is not None else x.second_moment
    at_mean = respond(phi, size, x.mean)
    sites, examples = (correlate(phi, size, x.mean, c) for c in (x.site_correlation, x.example_correlation))
    if phi.slope is not None:
        sq: Tensor = compactly(lambda v: v * at_mean.sq, x.sq)
        slope_sq = torch.tensor(at_mean.slope_sq, dtype=torch.float64).expand(x.sq.shape)
    else:
        sq, slope_sq = (each.expand(x.sq.shape) for each in _interpolated(phi, x.mean, distinct(x.sq)))

    def back(g: Gradient) -> Gradient:
        steep = compactly(lambda a, b: g.slope * a * b, g.sq, slope_sq)
        kept = [min(g.slope * each, 1.0) for each in (sites[1], examples[1])]
        lean = g.lean or g.site_correlation * sites[2]
        return Gradient(steep, g.site_correlation * kept[0], g.example_correlation * kept[1], g.profile, lean=lean)

    out = replace(
        x, sq=sq, mean=at_mean.mean_sq / at_mean.sq if at_mean.sq else 0.0, site_correlation=sites[0],
        profile=flattened(x.profile, correlate(phi, size, x.mean, 0.0)[0], sites[0]), example_correlation=examples[0],
        before=Before(phi, x.mean, x.near) if phi.slope is not None else None,
    )  # fmt: skip
    return Step(out, ((ref, back),), note=note, kurtosis=at_mean.slope_kurtosis)


def _interpolated(phi: Nonlinearity, mean: float, sq: Tensor) -> tuple[Tensor, Tensor]:
    """E[φ²] and E[φ'²] of x with these E[x²]: at one value, or between 24 of them when entries differ."""
    low, high = float(sq.min()), float(sq.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return sq * math.nan, sq * math.nan
    if high <= low * (1 + 1e-9) or low <= 0:
        middle = (low + high) / 2
        nodes = torch.tensor([middle, 1.0001 * middle or 1.0], dtype=torch.float64)
        index = torch.ones((), dtype=torch.long)
    else:
        nodes = torch.logspace(math.log10(low), math.log10(high), 24, dtype=torch.float64)
        index = torch.searchsorted(nodes, sq.contiguous()).clamp(1, 23)
    share = (sq - nodes[index - 1]) / (nodes[index] - nodes[index - 1])
    y_sq, _, slope_sq, _ = responses(phi, nodes, mean)
    both = (h[index - 1] * (1 - share) + h[index] * share for h in (y_sq, slope_sq))
    return next(both), next(both)


def dropout(call: Call) -> Step:
    """E[y²] = E[x²] / (1 - p) as in PyTorch, which divides by 1 - p; the gradient alike (Appendix B.5 without it)."""
    x = call.activation("input")
    if not call.arguments.get("train", call.arguments.get("training")):
        return Step(x, ((call.ref("input"), lambda g: g),))
    if (keep := 1 - float(call.arguments["p"])) <= 0:
        raise UnsupportedError("a dropout of everything")

    def back(g: Gradient) -> Gradient:
        return Gradient(g.scaled(1 / keep).sq, g.site_correlation * keep, g.example_correlation * keep)

    return Step(x.weakened(x.scaled(1 / keep).sq, keep), ((call.ref("input"), back),))
