"""Layers with parameters: products with a weight, borders and overlaps of kernels counted, and normalisations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.calculus.graph import NOT_IN_PAPER, Back, Call, Ref, Step, Unknown, UnsupportedError, transposed
from hessdiag.calculus.moments import Activation, Gradient, average, compactly, distinct, flattened, over_size


def linear(call: Call) -> Step:
    """E[y²] = n E[W²] E[x²], E[Δx²] = n' E[W²] E[Δy²]."""
    if not call.activation("weight").parameter:
        raise UnsupportedError("its weight is computed from activations")
    return _product(call, "input", "weight", call.optional("bias"), outputs=0)


def addmm(call: Call) -> Step:
    """y = b + x W, as in transformers' Conv1D, whose weight is (inputs, outputs)."""
    return _product(call, "mat1", "mat2", call.activation("self"))


def matmul(call: Call) -> Step:
    """A product with a weight matrix."""
    right = "mat2" if "mat2" in call.arguments else "other"
    if call.activation(right).sq.dim() != 2 or call.activation("self").parameter:
        raise UnsupportedError("a product of two activations")
    return _product(call, "self", right, None)


def _product(call: Call, left: str, right: str, bias: Activation | None, outputs: int = 1) -> Step:
    ref, x, w = call.ref(left), call.activation(left), call.activation(right)
    if not w.parameter:
        raise UnsupportedError("a product of two activations")
    w_sq = average(w.sq)
    sq = (w_sq * x.sq.sum(-1, keepdim=True)).expand((*x.sq.shape[:-1], w.sq.shape[outputs]))

    def back(g: Gradient) -> Gradient:
        return g.through_weights((w_sq * g.sq.sum(-1, keepdim=True)).expand(x.sq.shape))

    return _weighted(sq, math.prod(sq.shape[:-1]) // call.batch, x, ref, back, w=w, bias=bias)


def _weighted(
    sq: Tensor, positions: int, x: Activation, ref: Ref, back: Back, *, w: Activation, bias: Activation | None
) -> Step:
    fan_out = sq.shape[-1 if w.sq.dim() == 2 else 1]
    read = x.alike or fan_out / w.sq.numel()
    alike, known = min(read + 1 / fan_out, 1.0), (x.site_correlation, x.example_correlation, x.profile)
    out = Activation(sq, *known, positions=positions, alike=alike, read=read)
    name = bias.parameter if bias else ""
    size = float(average(w.sq))
    length = float(average(sq)) / size if size else math.nan
    return Step(add_bias(out, bias), ((ref, back),), weight=w.parameter, bias=name, x=x, source=ref, length=length)


def add_bias(y: Activation, bias: Activation | None) -> Activation:
    """E[y²] + E[b²]; a bias is the same at all positions and for all examples."""
    if bias is None:
        return y
    b = average(bias.sq)
    before, added = y.second_moment, float(b)
    share = added / (before + added) if before + added > 0 else 0.0
    sites, examples = (c * (1 - share) + share for c in (y.site_correlation, y.example_correlation))
    sq, profile = compactly(lambda sq: sq + b, y.sq), flattened(y.profile, share, sites)
    return replace(y, sq=sq, site_correlation=sites, profile=profile, example_correlation=examples)


def convolution(call: Call) -> Step:
    """E[y²] = n k² E[W²] E[x²]; E[Δx²] = ρ'² n' k² E[W²] E[Δy²] / ρ² (Eqs. of the appendix). `kernel` counts for every
    position the taps that fall inside the image, and for every input the outputs it reaches.
    """
    x, w = call.activation("input"), call.activation("weight")
    if not w.parameter:
        raise UnsupportedError("its kernel is computed from activations")
    if call.arguments.get("transposed"):
        raise UnsupportedError("a transposed convolution")
    if x.sq.dim() == w.sq.dim() - 1:
        raise UnsupportedError("an input without a batch dimension")
    sq, back, kept = (_with_borders if call.kernel else _of_paper)(call, x, w)
    x = replace(x, site_correlation=min(x.site_correlation * kept, 1.0))
    return _weighted(sq, math.prod(call.shape[2:]), x, call.ref("input"), back, w=w, bias=call.optional("bias"))


def _with_borders(call: Call, x: Activation, w: Activation) -> tuple[Tensor, Back, float]:
    """E[y²], the way back, and what is left of a correlation between positions, with taps counted at borders. Two
    outputs are as alike as the inputs that they read with the same taps, and back: a stride apart none may be.
    """
    groups, w_sq = call.arguments["groups"], average(w.sq)
    kernel, space, positions = w.sq.shape[2:], x.sq.shape[2:], call.shape[2:]
    function: Callable[..., Tensor] = getattr(F, f"conv{len(kernel)}d")
    how = {name: call.arguments[name] for name in ("stride", "padding", "dilation")}

    def convolved(sq: Tensor) -> Tensor:  # (1, groups, *space) to (1, groups, *positions)
        return function(sq, torch.ones(groups, 1, *kernel).double(), groups=groups, **how)

    image, outputs, taps = (torch.ones(1, 1, *size).double() for size in (space, positions, kernel))
    used = transposed(lambda taps: function(image, taps, **how), taps, outputs)  # how often each tap is
    every = float(used.sum())
    alike = float(used.square().sum()) / every - 1 if every else 0.0  # pairs of uses of the same one
    kept, kept_back = (alike / max(math.prod(size) - 1, 1) for size in (positions, space))

    def back(g: Gradient) -> Gradient:
        sq = w_sq * transposed(convolved, torch.ones(1, groups, *space), _over_channels(g.sq, groups))
        return g.through_weights(_to_channels(sq, x.sq.shape), kept_back)

    return _to_channels(w_sq * convolved(_over_channels(x.sq, groups)), call.shape), back, kept


def _of_paper(call: Call, x: Activation, w: Activation) -> tuple[Tensor, Back, float]:
    n_out, n_in, *kernel = w.sq.shape
    taps_sq = average(w.sq) * math.prod(kernel)
    outputs = n_out // call.arguments["groups"]
    ratio = math.prod(call.shape[2:]) / math.prod(x.sq.shape[2:])

    def back(g: Gradient) -> Gradient:
        return g.through_weights((ratio * outputs * taps_sq * average(g.sq)).expand(x.sq.shape))

    return (n_in * taps_sq * average(x.sq)).expand(call.shape), back, 1.0


def _over_channels(sq: Tensor, groups: int) -> Tensor:
    return torch.unflatten(sq[:1], 1, (groups, -1)).sum(2)


def _to_channels(sq: Tensor, shape: Sequence[int]) -> Tensor:
    _, groups, *space = sq.shape
    return sq.unsqueeze(2).expand(1, groups, shape[1] // groups, *space).flatten(1, 2).expand(shape)


def embedding(call: Call) -> Step:
    """E[y²] = E[W²]; two positions are alike where they read the same row, or rows that are alike. Token ids without
    numbers are drawn independently; positions are the same for every example.
    """
    w, ref = call.activation("weight"), call.ref("indices")
    indices, numbers = call.values[ref.name], call.numbers.get(ref.name)
    drawn = isinstance(indices, Unknown) and indices.drawn
    sites, thrice, examples = 0.0, 0.0, 0.0 if drawn else 1.0
    if numbers is not None:
        rows = numbers.reshape(len(numbers) if numbers.dim() > 1 else 1, -1)  # (examples, positions)
        sites, thrice = repeated(rows)
        if drawn:
            examples = repeated(rows.T)[0] if bool((rows != rows[:1]).any()) else sites
    out = Activation(
        sq=average(w.sq).expand(call.shape), mean=w.mean, positions=math.prod(call.shape[1:-1]),
        site_correlation=sites + (1 - sites) * w.site_correlation,
        example_correlation=examples + (1 - examples) * w.site_correlation,
        # frequencies p of rows that differ: Σ p² - 2 Σ p³ + (Σ p²)² less their mean, over what is left of their size
        alike=(w.alike or 1 / w.sq.shape[-1]) + max(sites - 2 * thrice + sites**2, 0.0) / max(1 - sites, 1e-9) ** 2,
    )  # fmt: skip
    return Step(out, weight=w.parameter)


def repeated(rows: Tensor) -> tuple[float, float]:
    """The shares of pairs and of triples of positions that have the same index, over rows (examples, positions)."""
    counts = torch.cat([torch.unique(row, return_counts=True)[1] for row in rows]).double()
    pairs, T = counts * (counts - 1), rows.shape[1]
    count = max(len(rows) * T * (T - 1), 1)
    return float(pairs.sum()) / count, float((pairs * (counts - 2)).sum()) / max(count * (T - 2), 1)


def batch_norm(call: Call) -> Step:
    """Evaluation mode: a fixed multiplier w / √(running variance); training mode: E[y²] = E[w²] + E[b²]."""
    x = call.activation("input")
    w, b = call.optional("weight"), call.optional("bias")
    w_sq = average(w.sq) if w else torch.ones((), dtype=torch.float64)
    if call.arguments.get("training"):  # left out of the operation that has no training mode
        variance: Tensor | float = average(x.sq) * (1 - x.example_correlation)
        sites, blind = 0.0, "channels"
    else:
        running = call.arguments.get("running_var")
        actual = call.numbers.get(running.name) if isinstance(running, Ref) else None
        variance = float(actual.double().mean()) if actual is not None else 1.0  # as PyTorch builds it
        sites, blind = x.site_correlation, ""
    factor = w_sq / (variance + float(call.arguments.get("eps") or 0.0))
    out = add_bias(replace(x, sq=x.scaled(factor).sq, site_correlation=sites, parameter="", before=None), b)
    note = f"batch normalisation: {NOT_IN_PAPER}"
    return Step(out, ((call.ref("input"), lambda g: g.scaled(factor)),), note=note, blind=blind)


def layer_norm(call: Call) -> Step:
    """x over its own standard deviation, times w, plus b: E[y²] = E[w²] + E[b²], E[Δx²] = E[w²] E[Δy²] / Var x."""
    shape, centred = call.arguments["normalized_shape"], "rms" not in call.operation.target
    return normalised(call, call.ref("input"), len(shape), math.prod(shape), centred=centred)


def group_norm(call: Call) -> Step:
    """As `layer_norm`, over groups of channels and all positions."""
    x = call.activation("input").sq
    return normalised(call, call.ref("input"), x.dim() - 1, x[0].numel() // call.arguments["num_groups"], centred=True)


def normalised(call: Call, ref: Ref, dims: int, entries: int, *, centred: bool, eps: float | None = None) -> Step:
    """x over the root mean square of as many `entries` of its last dimensions, or over their standard deviation."""
    x, w, b = call.at(ref), call.optional("weight"), call.optional("bias")
    w_sq = average(w.sq) if w else torch.ones((), dtype=torch.float64)
    size = distinct(x.sq).mean(tuple(range(-dims, 0)), keepdim=True)
    left = 1 - x.mean if centred else 1.0
    variance = size * left + float(eps or call.arguments.get("eps") or 0.0)
    used = (2 if centred else 1) / entries if call.kernel else 0.0  # directions that a normalisation takes out
    joint = {name: getattr(x, name) for name in ("site_correlation", "example_correlation")}
    if centred and x.mean < 1:
        joint = {name: max((value - x.mean) / (1 - x.mean), 0.0) for name, value in joint.items()}
    sq = compactly(lambda sq, variance: sq * left / variance * w_sq, x.sq, variance.expand(x.sq.shape))
    out = replace(x, sq=sq, mean=0.0 if centred else x.mean, before=None, **joint)
    out = replace(out, **over_size(replace(x, **joint), variance))

    def back(g: Gradient) -> Gradient:
        return replace(g.scaled(w_sq / variance * (1 - max(used, g.along))), along=0.0, **over_size(g, variance))

    return Step(add_bias(out, b), ((ref, back),), note=f"normalisation: {NOT_IN_PAPER}", blind="size")
