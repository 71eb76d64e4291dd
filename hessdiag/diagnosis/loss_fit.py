"""How the loss fits the outputs: what it asks of them, and what a guess that sees no input gets.

Every number comes from the loss and a few calls of it with other outputs, not from the network.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import TARGETS, Batch, Layout, tensors_in
from hessdiag.derivatives.losses import CrossEntropy, Loss, MeanSquaredError, RandomQuadratic, chance_loss
from hessdiag.derivatives.magnitude import largest_entry, mean_sq
from hessdiag.derivatives.targets import sums_to_one
from hessdiag.diagnosis.checks import differentiable, moved, sent_to, varies
from hessdiag.diagnosis.loss_calls import felt_by, mixed_in, tell_more, watched, would_broadcast
from hessdiag.diagnosis.loss_targets import tell_targets
from hessdiag.diagnosis.loss_terms import (
    Of,
    are_fractions,
    are_inputs,
    classes_like,
    descended,
    noise_like,
    normalised,
    outweighs,
    pieces_of,
    summed,
    tell_outputs,
    with_slope,
)
from hessdiag.diagnosis.network_view import LEARNT_SCALED, RARE
from hessdiag.diagnosis.roles import DISTANCE, Bound, ending, joined_at, sigmoids_in
from hessdiag.errors import REFUSALS
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import backpropagate, leaves_of, numbers_written

HALVED = 12  # times, that outputs are
KNOWN = (CrossEntropy, MeanSquaredError, RandomQuadratic)  # what they ask for
FAR, SAME_SLOPE = 1e3, 0.02
HALF = 0.75  # between a half, and all
SMALL_OUTPUTS = 100.0  # E[y²]
FELT = 0.1  # of the pull: by outputs as they are; a logarithm pulls at nearly zero
LONG, ALWAYS, FEW = 10.0, 1.5, 64  # a step; more in a second one than in the first, near and far; columns
RANGES = {"sigmoid": (0, 1), "softmax": (0, 1), "tanh": (-1, 1)}
NEARLY_ALL, MOSTLY = 0.99, 0.8  # of the positions that count
LEAST_POSITIONS = 4
SOME = 8  # examples
ALL = slice(None)


def fit_of(model: nn.Module, part: Batch, y: Tensor, own: Tensor, loss: Loss) -> dict[str, Any]:
    """Fields of `Signals` on the loss of outputs (B, *out), whose graph is alive; `own` are its examples' gradients."""
    at, targets, given = y.detach(), part.targets, _given(y, part)
    values, terms = loss.value(at, targets).detach().double(), _terms(loss, at, own, part)
    pieces, fixed = [piece for piece in pieces_of(part) if not bool(terms[..., piece].all())], given | terms
    calls, value = watched(loss, at, part, given, squashed=sigmoids_in(y.grad_fn))
    initial, mean, costly = float(value.detach()), float(values.mean()), numbers_written(value) > MOST_WRITTEN
    scale = abs(initial / mean) if mean else 1.0  # of a sum, say
    (kind, chance), usual_sq = chance_loss(loss, at, targets), math.nan
    few = (at[: (n := 2 if costly and not part.as_one else None)], targets if targets is None else targets[:n])
    endless = [_endless(loss, *few, own[:n], piece) for piece in pieces if kind == "other"]
    names, bounds = _ending(y, part, kind, terms)
    last, bound, constant = names[0], bounds or (lambda z: z), chance

    def varied(z: Tensor, targets: Tensor | None) -> Tensor:
        return loss.of_all(torch.where(fixed, at[: len(z)], z) if bool(fixed.any()) else z, targets)

    def of(z: Tensor, targets: Tensor | None) -> Tensor:
        return varied(bound(z), targets)

    if kind == "other":
        free, tried = not any(endless) and last != "LogSoftmax", few if costly else None
        chance, usual_sq, constant = _of_constant(varied, at, targets, initial, bounds, free=free, tried=tried)
    chance = math.nan if are_inputs(part, 1) or (len(endless) > 1 and any(endless)) else chance  # a margin, or no least
    best = chance if math.isfinite(chance) else initial
    known = costly or (type(loss) in KNOWN and getattr(loss, "weight", None) is None)
    slope = scale * float((own * at).flatten(1).sum(1).mean(dtype=torch.float64))  # as outputs are scaled
    falls = kind != "other" and not initial - slope >= LEARNT_SCALED * chance  # convex: no less is within reach
    soft = last == "softmax" and kind == "other" and targets is not None and targets.is_floating_point()
    how = {"within": bounds is not None and len(pieces) == 1, "pairs": "pairs" in calls.found}
    asked = {} if known else _asked(of if how["within"] else varied, at, own, part, constant, initial, **how)
    unsure = asked and _unsure(at, part, last, within=how["within"], parts=bool(given.any()) or len(endless) > 1)
    asked = {key: v for key, v in asked.items() if key != unsure and (key != "agrees" or DISTANCE not in names)}
    tell_more(calls, own, loss, model, part, last, **asked)
    tell_outputs(calls, model, part, y, own, loss)
    tell_targets(calls, loss, part, costly=costly)
    more = would_broadcast(y, targets, calls) if kind == loss.name == "mse" else mixed_in(value, calls, y, **asked)
    halved = [float(loss.of_all(at / 2**n, targets).detach()) for n in range(1, HALVED) if falls]
    return {
        "bounded": " of a ".join(names),
        "initial_loss": initial,
        **_spread(scale * values),
        "chance_loss": chance,
        "loss_kind": kind,
        "scaled_loss": math.nan if kind == "other" else min([initial, *halved]),
        "floor": _floor(varied, bounds, at, targets, best, soft=soft) if bounds and not costly else math.nan,
        **_inside(calls.compared),
        **asked,
        **more,
        **_pulls(loss, at, own, part, initial),
        "chance_sq": usual_sq,
        "unbounded": endless == [True] and not _are_shares(at, last) and _endless(loss, *few, own[:n], kept=True),
        "plunges": not (known or normalised(at, part)) and _plunges(of, at, own, part, given),
        "beyond": _beyond(loss, at, targets, last if how["within"] else "softmax" * isinstance(loss, CrossEntropy)),
        "undefined": 0.0 if costly else _undefined(loss, at, targets),
        **_counted(loss, at, part, own, values),
        "summed": 0.0 if known else summed(loss, at, part),
        "outweighs": math.nan if known else outweighs(loss, at, part, given, bound, y.grad_fn),
        "shown": _shown(model, part, y, own) or "next" * _sees_next(model, part),
        "unmoved": _unmoved(model, part, y, own * ~given),
    }


def _spread(values: Tensor) -> dict[str, float]:
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"initial_loss_stderr": error, "typical_loss": float(values.median())}


def _unsure(y: Tensor, part: Batch, last: str, *, within: bool, parts: bool) -> str:
    """The field of `_asked` that tells nothing of outputs in `parts`, of one length, or of shares by sums not seen."""
    labels = part.targets is not None and not part.targets.is_floating_point()
    shares = labels and not within and are_fractions(y)
    turns = y.dim() > 2 and normalised(y, part)  # of one length along and across
    return "learnable" if parts or last in ("Cat", "Stack") or shares or turns else ""


def _are_shares(y: Tensor, last: str) -> bool:
    """Whether these are log-probabilities, or probabilities that no softmax made, or one of several stacked is."""
    forms = [y.double().exp(), *([] if last == "softmax" else [y])]
    forms += [each for z in forms if z.dim() > 2 for each in z.unbind(1)]
    return any(sums_to_one(z, d) for z in forms for d in range(1, z.dim()))


def _ending(y: Tensor, part: Batch, kind: str, terms: Tensor) -> tuple[tuple[str, ...], Bound | None]:
    """See `hessdiag.diagnosis.roles.ending`; no function of free numbers that cannot write these outputs."""
    with suppress(Exception):  # of an operation of the user's
        at = y.detach()
        names, bounds = ending(y.grad_fn, at, pieces_of(part), terms)
        if y.dim() > 2 and pieces_of(part)[1:] and not {*names} <= RANGES.keys():
            bounds = None  # some may be of all examples, as a dispersion
        embeds = kind == "other" and names[0] == "normalisation"
        off = descended(lambda z: (bounds(z) - at).square().mean(), at)[0] if bounds else 0.0
        return names, None if embeds or not off <= NEAR * mean_sq(at) else bounds
    return ("",), None


def _of_constant(
    loss: Of, y: Tensor, targets: Tensor | None, now: float, bound: Bound | None, *, free: bool, tried: Any
) -> tuple[float, float, float]:
    """The loss of the best constant outputs for all examples, and E[y²] of these: their mean, zero, or what descends
    from there if the loss is not `tried` on few examples; if not `free`, of log-probabilities mean or equal ones. NaN
    for a loss that only scales with the outputs, however small; and for one that has nothing to gain above 0.
    """
    rows = y.flatten(0, -2).double()
    told = targets is not None  # else columns may be labels
    mean, zero = rows.mean(0 if told else None).to(y).expand(y.shape[-1:]), torch.zeros_like(y.flatten(0, -2)[0])

    def of(row: Tensor, bound: Bound | None = None) -> Tensor:
        z = row.expand_as(y).contiguous()
        return loss(bound(z) if bound else z, targets)

    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        some, theirs = tried or (y, targets)
        small = some / max(1e3 * float(some.abs().max()), 1e-30)
        whole, half = (float(loss(each, theirs).detach()) for each in (small, small / 2))
        guesses = [mean, zero] if free else [rows.logsumexp(0).to(y) - math.log(len(rows)), zero.log_softmax(-1)]
        found = [(float(of(each).detach()), each) for each in guesses]
        constant = min(value for value, _ in found)
        many = len(rows) >= ROWS_PER_OUTPUT * len(mean)
        if free and tried is None and told and (many or (bound and len(rows) > 1)):  # else it is no constant
            least, row = descended(lambda z: of(z, bound), mean)
            constant = min(constant, least)
            found += [(least, bound(row.expand_as(y).contiguous()) if bound else row)] * many
        least = math.inf if free and abs(whole) > 1.9 * abs(half) else GAINED * min(now, 1.0)
        above = [pair for pair in found if pair[0] > least]
        least, row = min(above, key=lambda pair: pair[0], default=(math.nan, zero))
        return least, mean_sq(row), constant
    return math.nan, math.nan, math.nan


ROWS_PER_OUTPUT = 8  # fewer are fitted one by one
GAINED = 1e-6  # of the loss now, or of 1: what a constant brings below that was no guess


MOST_WRITTEN = 2**22  # numbers in a call of a loss, a convolution's times those that it sums, to be called 300 times
ANY, ROUNDED = 30.0, 1e-6  # size of other outputs, and change of a loss of the order of 1 by rounding
SLIGHTLY, NEAR, SOME_SHARE = 1e-3, 0.01, 0.1


def _floor(loss: Of, bounds: Bound, y: Tensor, targets: Tensor | None, chance: float, *, soft: bool) -> float:
    """By how much of the chance loss a bounded operation at the end keeps the loss above that of free outputs. Where
    the loss takes no other outputs, free ones are from 0 to 1; NaN where it is no better off with them, and of `soft`
    labels where it is as well off with the same for all: it takes no outputs that do not sum to one.
    """
    if not chance > 0:
        return math.nan
    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        starts = (y, -y)  # one may be clamped off
        bounded = min(descended(lambda z: loss(bounds(z), targets), start)[0] for start in starts)
        try:
            best = descended(lambda z: loss(z, targets), y)[0]
        except Exception:  # it takes probabilities, and says so
            best = descended(lambda z: loss(z.sigmoid(), targets), y)[0]
        if math.isfinite(bounded) and -SLIGHTLY * chance < best < chance:
            gain = chance - best
            alike = soft and descended(lambda z: loss(z.expand_as(y), targets), y.mean(0))[0] < best + NEAR * gain
            return math.nan if alike else (bounded - best) / gain
    return math.nan


def _inside(compared: Sequence[tuple[Of, Tensor, Tensor]]) -> dict[str, Any]:
    """What bounds the outputs in a loss that a model computes itself, and how far that keeps it, where it is most."""
    found = [(0.0, "")]
    for loss, y, targets in compared:
        with suppress(Exception):  # of other outputs than it was made for
            at = y.detach()
            names, bounds = ending(y.grad_fn, at, [slice(None)])
            if bounds and y.numel() < MOST_WRITTEN:
                chance = float(loss(at.mean(0).expand_as(at), targets))
                found.append((_floor(loss, bounds, at, targets, chance, soft=False), " of a ".join(names)))
    floor, ends = max(pair for pair in found if not math.isnan(pair[0]))
    return {"floor": floor, "bounded": ends} if floor > 0 else {}


def _asked(  # noqa: PLR0913, keyword-only options
    of: Of, y: Tensor, own: Tensor, part: Batch, constant: float, now: float, *, within: bool, pairs: bool
) -> dict[str, Any]:
    """Fields of `Signals` on what a loss asks of each example, as its outputs descend on their own. `own` are the
    gradients there; outputs may be `within` what an operation bounds; `constant` and `now` are the losses of the best
    constant outputs, and of those that there are. In `pairs` each target meets all outputs.
    """
    found: dict[str, Any] = {}
    enough = min([now - SOME_SHARE * abs(now)] + [constant - SOME_SHARE * abs(constant)] * math.isfinite(constant))
    targets, noise = part.targets, noise_like(y, part)
    others = (noise, ANY * noise) if within else (y, noise, ANY * noise)

    def free(z: Tensor) -> Tensor:
        return of(z, targets)

    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        if not bool(own.any()):
            return {"stuck": _is_stuck(free, y, noise, now)}
        least, best, each = _lowest(free, others[::-1] if within else others, enough)  # far ones may be flat there
        losses = [float(free(each).detach()) for each in (best, *others, noise)]
        change = max(abs(each - now) for each in losses if math.isfinite(each))
        felt = with_slope(free, others[0])[1] * (others[1] - others[0])
        if max(change, ROUNDED * abs(now)) < NEAR * abs(float(felt.sum())):  # its value is nothing, its gradient all
            return found
        if any(map(math.isfinite, losses[-2:])):  # else it takes no outputs of which nothing is known
            found["swing"] = max(change - ROUNDED, 0.0) / max(abs(now), ROUNDED)
        if targets is None or not varies(targets):
            return found
        if part.asked is None and (within or bool((y < 0).any())):  # no distances, which are small where two are alike
            moved = zip(*(_tensors(z, part) for z in (best - each, best)), strict=True)
            agree = [a for pair in moved if not math.isnan(a := sum(_agreement(z, targets) / 2 for z in pair))]
            found["agrees"] = max(agree, default=math.nan)
        asks = pairs or any(float((free(z) - of(z, targets.roll(1, 0))).detach()) for z in (best, y))
        if asks and abs(constant) < ANY * abs(now) and least < constant + SLIGHTLY * abs(now):
            size = abs(constant) + SLIGHTLY * min(abs(now), abs(losses[-1]))
            found["learnable"] = (constant - least) / size
    return found


def _lowest(of: Callable[[Tensor], Tensor], starts: Sequence[Tensor], enough: float) -> tuple[float, Tensor, Tensor]:
    """A loss that is enough, or the least from several starts, its outputs and start: it may take no negative ones."""
    least, best, start = math.inf, starts[0], starts[0]
    for each in starts:
        value, end = descended(of, each, enough)
        if value < least:
            least, best, start = value, end, each
        if least < enough:
            break
    return least, best, start


def _is_stuck(of: Callable[[Tensor], Tensor], y: Tensor, noise: Tensor, now: float) -> bool:
    """Whether a loss without a gradient is not at its least, or has none elsewhere either."""
    tried = (y - NEAR * noise, y + NEAR * noise, noise, ANY * noise)
    values = [v for each in tried if math.isfinite(v := float(of(each).detach()) - now)]
    some, flat = ROUNDED * abs(now), not any(bool(with_slope(of, each)[1].any()) for each in tried[2:])
    return now > some or min(values) < -some or max(values) <= some or flat


def _agreement(moved: Tensor, targets: Tensor) -> float:
    """Correlation of outputs (B, *out), or how they move, with targets: values, classes or levels; NaN for others."""
    forms = next(([ones, up_to - ones] for _, ones, up_to in classes_like(moved, targets)), [targets])
    if forms[0].shape != moved.shape:
        return math.nan
    plain, *levels = (float(torch.corrcoef(torch.stack([moved, z]).flatten(1).double())[0, 1]) for z in forms)
    return next((each for each in levels if each > MOSTLY), plain)


def _undefined(loss: Loss, y: Tensor, targets: Tensor | None) -> float:
    """The chance of a batch of such examples alone as have no finite loss, alone or together; 0 where all have none."""
    alone, size = list[int](), len(y)
    with suppress(Exception):  # a loss of the user's, of as many examples as it was made for
        for n in range(size):
            alone += [n] * (not math.isfinite(_of_some(loss, y, targets, [n])))
            if (1 - (n + 1 - len(alone)) / size) ** size < RARE:
                return 0.0
        if len(alone) < size and not math.isfinite(_of_some(loss, y, targets, alone)):
            return (len(alone) / size) ** size
    return 0.0


def _counted(loss: Loss, y: Tensor, part: Batch, own: Tensor, values: Tensor) -> dict[str, float]:
    """Shares of the examples that get a gradient, and that get none beside a high loss; and of places of padding."""
    felt, stalled = own.flatten(1).any(1), 0.0
    if 0 < int(felt.sum()) < len(felt) == len(values):
        least, noise, guess = values.clone(), noise_like(y, part), torch.zeros_like(values)
        with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
            guess = loss.value(noise, part.targets).detach().double().abs().nan_to_num(posinf=0.0)
        for step in (noise, -noise, torch.ones_like(y), -torch.ones_like(y)):
            for size in (1.0, ANY):
                with suppress(Exception):
                    least = torch.fmin(least, loss.value(y + size * step, part.targets).detach().double())
        high = (values > values[felt].median()) & (values.abs() > SOME_SHARE * guess)
        stalled = float((~felt & high & (values - least > SOME_SHARE * values.abs())).double().mean())
    return {"felt": float(felt.double().mean()), "stalled": stalled, "padded": _padded(part, own)}


def _padded(part: Batch, own: Tensor) -> float:
    """The share of places (B, T) that read the commonest token, if all have one target and get a gradient."""
    told = part.targets
    if told is None or told.dim() != 2:
        return 0.0
    classes = [each for each in _tensors(own, part) if each.dim() == 3]
    felt = [places for each in classes if (places := felt_by(each, told)) is not None]
    for tokens in (v for v in part.leaves[:-1] if v.shape == told.shape and v.dtype in (torch.int32, torch.int64)):
        at = tokens == tokens.flatten().mode().values
        if len(torch.unique(told[at])) == 1 and any(bool(each[at].all()) for each in felt):
            return float(at.double().mean())
    return 0.0


def _tensors(y: Tensor, part: Batch) -> list[Tensor]:
    """The tensors over the examples in outputs (B, N) that are of several, each of its shape, beside labels."""
    if not isinstance(part.output, Layout) or part.as_one or part.targets is None or part.targets.is_floating_point():
        return [y]
    tensors = zip(tensors_in(part.output.split(y)), part.output.parts, strict=True)
    return [tensor.movedim(at, 0) for tensor, (_, _, at) in tensors if at is not None]


def _given(y: Tensor, part: Batch) -> Tensor:
    """Which columns of outputs (B, N) that are of several tensors no weight made, as inputs that are returned."""
    columns, pieces = torch.zeros(y.shape[1:], dtype=torch.bool, device=y.device), pieces_of(part)
    for piece, parent in zip(pieces, joined_at(y.grad_fn, len(pieces)), strict=False):
        columns[..., piece] = not any(isinstance(leaf, nn.Parameter) for leaf in leaves_of(parent))
    return columns


def _terms(loss: Loss, y: Tensor, own: Tensor, part: Batch) -> Tensor:
    """Which columns of outputs (..., N) are a term of the loss: one number of all examples, that it only adds."""
    columns, layout = torch.zeros(y.shape[-1:], dtype=torch.bool, device=y.device), part.output
    for piece, (shape, _, at) in zip(layout.columns, layout.parts, strict=True) if isinstance(layout, Layout) else ():
        with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
            if at is None and shape.numel() == 1:
                step = (torch.arange(y.shape[-1], device=y.device) == piece.start).to(y)
                now, near, far = (float(loss.of_all(y + n * step, part.targets).detach()) for n in range(3))
                columns[piece] = abs(far - 2 * near + now) < SAME_SLOPE * abs(near - now)
    return columns & (own * ~columns).any()  # else it is the loss


def _is_sum(loss: Loss, y: Tensor, targets: Tensor | None, initial: float) -> bool:
    with suppress(Exception):  # of a loss of the user's for so many examples
        return abs(_of_some(loss, y, targets, slice(len(y) // 2))) < HALF * abs(initial)
    return False


def _of_some(loss: Loss, y: Tensor, targets: Tensor | None, some: slice | list[int]) -> float:
    return float(loss.of_all(y[some], None if targets is None else targets[some]).detach())


def _pulls(loss: Loss, y: Tensor, own: Tensor, part: Batch, initial: float) -> dict[str, float]:
    """How far outputs (B, *out) that are small have to go for the loss to be zero, were it linear as an L1 loss; or the
    rms of the gradient in a piece of them that is small, or how it is felt by this if that is far less.
    Besides, how far they are from targets where the loss is the mean distance, as L1's; else 0.
    """
    slope = float(own.abs().flatten(1).sum(1).mean(dtype=torch.float64))
    pulls = [abs(initial) / slope if slope > FELT and mean_sq(y) < SMALL_OUTPUTS else 0.0]
    count = len(y) if loss.couples and _is_sum(loss, y, part.targets, initial) else 1
    for z, g in ((y[..., piece], own[..., piece] / count) for piece in pieces_of(part)):
        if 0 < mean_sq(z) < SMALL_OUTPUTS:
            pulls.append(min(math.sqrt(mean_sq(g)), math.sqrt(mean_sq(g * z)) / FELT))
    targets = part.targets
    distance = (y - targets).abs() if targets is not None and targets.shape == y.shape else y.new_zeros(1)
    apart = abs(float(distance.mean()) - initial) < NEAR * initial
    return {"pull": max(pulls), "apart": math.sqrt(mean_sq(distance)) if apart else 0.0}


def _endless(
    loss: Loss, y: Tensor, targets: Tensor | None, own: Tensor, piece: slice = ALL, *, kept: bool = False
) -> bool:  # fmt: skip
    """Whether the loss falls in proportion, without end, where a piece's outputs rise or fall, or are `kept` over 0."""
    pull = float(own[..., piece].abs().flatten(1).sum(1).mean(dtype=torch.float64))
    told = targets is not None and (y[0].numel() > 1 or _of_differences(loss, y, targets))
    if (piece.start is None and not told) or not pull > 0:
        return False

    def at(step: float) -> float:
        moved = y.clone()
        moved[..., piece] += step
        return float(loss.of_all(_within_sign(moved, y) if kept else moved, targets).detach())

    far = FAR * max(1.0, 0.0 if targets is None or not targets.is_floating_point() else largest_entry(targets))
    with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
        now, ways = at(0.0), [(at(step), at(2 * step)) for step in (far, -far)]
        slopes = [((now - there) / far, (there - beyond) / far) for there, beyond in ways]
        return any(falls > SAME_SLOPE * pull and abs(again - falls) < SAME_SLOPE * falls for falls, again in slopes)
    return False


def _of_differences(loss: Loss, y: Tensor, targets: Tensor) -> bool:
    """Whether outputs and targets (B, *out) are the same to the loss where both move: it is a regression's."""
    with suppress(Exception):  # a loss of the user's, of targets that have a range
        now, there = (float(loss.of_all(y + step, targets + step).detach()) for step in (0.0, LONG))
        return targets.shape == y.shape and math.isclose(now, there, rel_tol=SLIGHTLY)
    return False


def _within_sign(z: Tensor, y: Tensor) -> Tensor:
    """Other outputs than y (B, *out), of which none is below zero where no example's is."""
    return torch.where((y >= 0).all(0), z.clamp(min=0), z)


def _plunges(of: Of, y: Tensor, own: Tensor, part: Batch, given: Tensor) -> bool:
    """Whether a loss falls ever faster along its gradient and the signs of that, as a square of the wrong sign does; or
    in one column of outputs (B, ..., C) that have targets; of several not `given`, of what is as large as these.
    """

    def faster(way: Tensor, step: float) -> bool:
        moved = [y - n * step * way for n in range(3)]
        with suppress(Exception):  # a loss of the user's, of outputs that it was not made for
            for each in (moved, [_within_sign(z, y) for z in moved]):
                now, near, far = (float(of(z, part.targets).detach()) for z in each)
                if not 0 < ALWAYS * (now - near) < near - far < math.inf:
                    return False
            return True
        return False

    sign, width, told = own.sign(), y.shape[-1], part.targets
    ways = [(sign, LONG), (sign, FAR), (own / own.abs().max(), FAR)]
    pieces = [piece for piece in pieces_of(part) if not bool(given[..., piece].all())]
    if told is not None and pieces[1:]:  # no sums of others, as latent variables are
        pieces = [piece for piece in pieces if y[..., piece].numel() == told.numel()]
    columns = [column for piece in pieces for column in range(width)[piece]]
    each = (sign * (torch.arange(width, device=y.device) == column) for column in columns)
    few = told is not None and len(columns) <= FEW
    return all(faster(*way) for way in ways) or (few and any(faster(one, FAR) and faster(one, LONG) for one in each))


def _beyond(loss: Loss, y: Tensor, targets: Tensor | None, last: str) -> float:
    """The share of the targets, one for each output, that an operation which bounds the outputs cannot give; 0 where
    they weigh outputs, as advantages do: where zeros ask for nothing, of a softmax one for each example or linearly.
    """
    if last in RANGES and targets is not None and targets.numel() == y.numel():
        low, high = RANGES[last]
        with suppress(Exception):  # a loss of the user's, of other targets
            (now, slope), (_, none) = (with_slope(partial(loss.of_all, targets=n * targets), y) for n in (1, 0))
            entropy = bool(((targets != 0).sum(-1) > 1).all()) and not torch.isclose(now, (slope * y).sum())
            entropy = entropy and bool(torch.isclose(loss.of_all(y, 2 * targets), 2 * now))
            if entropy if last == "softmax" else bool(none.any()):
                return float(((targets < low - NEAR) | (targets > high + NEAR)).double().mean())
    return 0.0


def _shown(model: nn.Module, part: Batch, y: Tensor, own: Tensor) -> str:
    """Whether the outputs of a sequence model see the tokens that the loss pulls them to. What it pulls to is read off
    its gradient, of which one class alone is negative; what they see, off the outputs for other tokens. "ahead" where
    each sees the next token, which is its target; "own" where its target is the last token that it sees, "kept" where
    that is of the few to be guessed, "skips" where it is the one after the next. Of several sequences the last counts.
    """
    y, own = map(of := _sequence(part, own), (y, own))
    labels = [part.targets, *(v for key, v in part.kwargs.items() if key in TARGETS)]
    tokens = [
        (number, v) for number, v in enumerate(part.leaves)
        if v.dim() == 2 and v.dtype in (torch.long, torch.int) and all(v is not t for t in labels)
        and len(v) == len(own) > 1 and v.shape[1] >= LEAST_POSITIONS and int(v.max()) - int(v.min()) > 1 and varies(v)
    ]  # fmt: skip
    for number, v in reversed(tokens if own.dim() == 3 else []):
        match, told = _pulled_to(own, v, (1, 0, 2, -1) if are_inputs(part) else (1, 0, 2))
        seen = _sees(model, part, y, number, of) if match is not None or len(tokens) > 1 else None
        if seen is not None and any(seen):
            before, after = seen
            if match in (1, -1):
                return "ahead" * after if match == 1 else "past" * before
            guessed = told < MOSTLY and not isinstance(part.output, Layout)  # as an autoencoder with a code
            if match == 0 and before and after and len(tokens) == 1 and guessed:
                return "kept"
            skips = "skips" * (len(tokens) == 1)  # beside another sequence it may be a translation
            return "" if after or not before else "own" if match == 0 else skips
    return ""


def _sequence(part: Batch, own: Tensor) -> Callable[[Tensor], Tensor]:
    """What takes of several outputs the one (B, T, C) that has most of the gradients `own`, else all."""

    def held(y: Tensor) -> list[Tensor]:
        return tensors_in(part.output.split(y.reshape(-1, y.shape[-1]))) if isinstance(part.output, Layout) else []

    sizes = [float(v.abs().sum()) * (v.dim() == 3) for v in held(own)]
    return lambda y: held(y)[sizes.index(max(sizes))] if max(sizes, default=0.0) > MOSTLY * sum(sizes) else y


def _in_order(y: Tensor, length: int) -> Tensor | None:
    """Outputs (B, T, classes) of as many tokens, or of all but one; None of others."""
    return next((y.movedim(dim, 1) for size in (length, length - 1) for dim in (1, 2) if y.shape[dim] == size), None)


def _pulled_to(own: Tensor, tokens: Tensor, shifts: Sequence[int]) -> tuple[int | None, float]:
    """How many places before the token it is pulled to an output stands, of some; None where it is another token. And
    the share of the positions that are pulled to one, few of a masked language model.
    """
    pulls = _in_order(own[:SOME], tokens.shape[1])
    if pulls is None:
        return None, 1.0
    counts, wanted = (pulls < 0).sum(2) == 1, pulls.argmin(2)  # (B, T)
    told = float(counts.double().mean())
    for shift in shifts:
        start, end = max(0, -shift), min(pulls.shape[1], tokens.shape[1] - shift)
        counted = counts[:, start:end]
        same = (wanted[:, start:end] == tokens[:SOME, start + shift : end + shift])[counted]
        least = MOSTLY if shift == 0 and told < MOSTLY else NEARLY_ALL
        if len(same) >= LEAST_POSITIONS and float(same.double().mean()) >= least:
            return shift, told
    return None, told


def _sees(model: nn.Module, part: Batch, y: Tensor, number: int, of: Callable[..., Tensor]) -> tuple[bool, bool] | None:
    """Whether the outputs y amid a sequence change with the token there, and with later ones."""

    def there(y: Tensor) -> Tensor:
        found = _in_order(y, len(one))
        return y if found is None else found[:, place - 1]

    with suppress(Exception):  # a model that takes no other tokens there, or two examples that are alike
        few = (replace(part, as_one=False, size=part.rows) if part.as_one and part.rows else part).narrow(0, 2)
        leaves = few.leaves
        one, other = leaves[number]
        places = (one != other).nonzero().flatten()[:-1] + 1  # behind which others differ, too
        place = int(places[(places - len(one) // 2 - 1).abs().argmin()])
        leaves[number] = torch.stack([one, torch.cat([other[:place], one[place:]])])  # there, and later
        leaves[number][0, place - 1] = other[place - 1]
        with fixed_statistics() as taken:
            changed = there(of(few.with_leaves(leaves).call(model).detach()))
            now = there(y.detach() if len(y) == 2 and not any(taken) else of(few.call(model).detach()))
        before, after = (now - changed).abs().flatten(1).amax(1) > SEEN * now.abs().max()
        return bool(before), bool(after)
    return None


def _sees_next(model: nn.Module, part: Batch) -> bool:
    """Whether outputs (B, T, ...) see the next number of a sequence, with which targets rise, not with their own."""
    few, *inputs = differentiable(part.narrow(0, 2))
    t = torch.empty(0) if part.targets is None else part.targets[:2]
    for value, edge in zip(*inputs, strict=True):
        x, alike = value.detach(), value.dim() < 4 and value.numel() == t.numel()
        for dim in (n for n in range(1, x.dim()) if alike and x.shape[n] >= SOME):
            size, middle = x.shape[dim], x.shape[dim] // 2
            told, later = t.reshape(x.shape).narrow(dim, 0, size - 1), x.narrow(dim, 1, size - 1)
            if _rises(told, later) and not _rises(told, x.narrow(dim, 0, size - 1)):
                with suppress(*REFUSALS), fixed_statistics():
                    y, places = few.call(model), x.movedim(dim, 0).flatten(1)[middle + 1 :]
                    y = tensors_in(few.output.split(y))[0] if isinstance(few.output, Layout) else y  # a mean, say
                    sent = [sent_to(y, n, edge, dim) for n in range(1, y.dim()) if y.shape[n] == size]
                    return bool(sent) and all(_is_its_own(g[middle + 1 :], places) for g in sent)
    return False


def _is_its_own(gradients: Tensor, values: Tensor) -> bool:
    """Whether gradients (places, N) are of each place, not of a mean, size or deviation of all that it is scaled by."""
    g, x = gradients.double().T.unsqueeze(2), values.double().T  # (N, places, 1), (N, places)
    known = torch.stack([torch.ones_like(x), x, x.sign()], dim=2)
    left = g - known @ (torch.linalg.pinv(known) @ g)  # signs may be all the same
    return bool(gradients[:1].any() and (left.square().sum(1) > SLIGHTLY * g.square().sum(1)).any())


def _rises(targets: Tensor, values: Tensor) -> bool:
    steps = targets.flatten()[values.flatten().argsort()].double().diff()
    return bool((steps >= 0).all() and (steps > 0).any())


SEEN = 1e-5  # of the largest output, beyond rounding
ELSEWHERE = (*[(2.0, 0.0)] * 16, (0.1, 1.0))  # steps of the weights, and what they are at least relative to


MOST_UNMOVED, NARROW = 4, 256  # outputs that are tried one by one; up to which all are looked at


def _unmoved(model: nn.Module, part: Batch, y: Tensor, own: Tensor) -> int:
    """How many of the outputs that the loss would move are the same whatever the weights are, where those are a whole
    tensor, or few or all of those that are alike for all examples: one of many may be an initial value.
    """
    flat, sent = y.flatten(1), own.flatten(1)
    alike = (flat.detach() == flat.detach()[:1]).all(0) & ((flat[0] == 0) | (len(y) > 1))
    still = (sent != 0).any(0) & (alike | (flat.shape[1] <= NARROW))
    alike &= still & (len(y) > 1)

    def stay(few: Batch, at: Tensor, seed: int, step: float, least: float) -> Tensor:
        with moved(model, seed, step, least=least):
            return (few.call(model).detach().flatten(1) == at).all(0)

    if bool(still.any()):
        with suppress(*REFUSALS), fixed_statistics():
            few = part.narrow(0, 2)
            still &= stay(few, few.call(model).detach().flatten(1), 0, *ELSEWHERE[0])
    alike &= int(alike.sum()) <= MOST_UNMOVED or bool(still[alike].all())
    for piece in pieces_of(part):  # of the last dimension
        there = still.view(y.shape[1:])[..., piece]
        there &= alike.view(y.shape[1:])[..., piece] | there.all()
    columns, edges = still.nonzero().flatten(), [get_gradient_edge(p) for p in model.parameters() if p.requires_grad]
    noise = noise_like(y.detach(), part).flatten(1)
    for some in torch.split(columns, 1 if len(columns) <= MOST_UNMOVED else len(columns)) if len(columns) else ():
        one = torch.zeros_like(noise).index_copy(1, some, noise[:, some])
        gradients = backpropagate(y, edges, one.view_as(y).unsqueeze(0))
        still[some] = all(g is None or not bool(g.any()) for g in gradients)
    # Large steps may switch on the ReLU that it is behind, small ones leave an extremum, also where weights are zero.
    for seed, (step, least) in enumerate(ELSEWHERE if bool(still.any()) else ()):
        still &= stay(part, flat.detach(), seed, step, least)
    return int(still.sum())
