"""What a loss of the user's makes of its targets: handed to other examples, and given as the outputs."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.arguments import is_finite
from hessdiag.data.batch import Batch, Layout
from hessdiag.data.seeds import stream
from hessdiag.derivatives.losses import CallableLoss, Loss
from hessdiag.derivatives.targets import sums_to_one
from hessdiag.diagnosis.checks import varies
from hessdiag.diagnosis.loss_calls import Calls
from hessdiag.diagnosis.loss_terms import are_inputs, classes_like, noise_like, pieces_of, with_slope

FEWEST = 4  # examples whose targets are handed on
SAME, WORSE, LOW = 1e-5, 0.01, 0.6  # relative changes of a loss, and a loss by that of others
FAR, ROUNDED = 30.0, 1e-13  # size of outputs where a margin shows; of the largest gradient, in float64
ORDERS, COLUMNS = 3, 16  # in which targets are handed on; of these, looked at one by one
LOGITS, LEAST = (1.0, 3.0, 8.0), 0.02  # that state a class, and the share of another


def tell_targets(calls: Calls, loss: Loss, part: Batch, *, costly: bool) -> None:
    """Tell of outputs that are not compared with the targets of their example, or the wrong way round."""
    y, targets = calls.y.detach(), part.targets
    if targets is None or costly or not isinstance(loss, CallableLoss) or len(y) < FEWEST:
        return
    for tell in (_tell_cancelled, _tell_reversed, _tell_unread, _tell_astray):
        with suppress(Exception):  # a loss of the user's, of targets and outputs that it was not made for
            tell(calls, loss.together, y, targets, part)


def _tell_astray(calls: Calls, loss: Loss, y: Tensor, targets: Tensor, part: Batch) -> None:
    """Tell of targets that meet the outputs of one other example, not their own, at most places of three examples."""
    own, met = loss.gradient(y, targets), list[tuple[int, list[int]]]()
    for n, at in product((0, part.size // 3, part.size - 1), (0.3, 0.5, 0.8)):
        other = targets.clone(memory_format=torch.contiguous_format).view(part.size, -1)
        apart = (other[n] != other).nonzero()
        row, place = apart[int(at * len(apart))].tolist()
        other[n, place] = other[row, place]
        sent = loss.gradient(y, other.view_as(targets))
        usual = (sent / own)[own != 0].median()
        rows = ((sent - usual * own).abs() > SAME * own.abs().max()).flatten(1).any(1)
        met.append((n, rows.nonzero().flatten().tolist()))
    if all(len(rows) == 1 for _, rows in met) and sum(rows == [n] for n, rows in met) <= len(met) // 3:
        what = "The loss compares the outputs of each example with the target of another."
        calls.tell(what, "Look for a roll, flip, sort or transpose of outputs or targets that the others lack.")


def _tell_cancelled(calls: Calls, loss: Loss, y: Tensor, targets: Tensor, part: Batch) -> None:
    """Tell of outputs whose gradients cancel wherever they are, as those of shares that weigh nothing."""
    theirs, noise = targets.double() if targets.is_floating_point() else targets, noise_like(y, part)
    slopes = torch.stack([loss.gradient(z.double(), theirs).abs() for z in (y, noise, FAR * noise)])
    for dim in {2, y.dim()} - {1}:
        sizes = slopes.movedim(dim, 1).flatten(2).amax(2)  # (3, columns)
        faint = ((sizes > 0) & (sizes < ROUNDED * sizes.amax(1, keepdim=True))).all(0).nonzero().flatten().tolist()
        if 1 < len(faint) < (count := sizes.shape[1]) and faint[-1] - faint[0] < len(faint):
            what = f"The loss is the same whatever outputs {faint[0]} to {faint[-1]} of {count} are: they cancel."
            calls.tell(what, "Of a mixture take `logsumexp` of log shares and log densities, no sum of them.")


def _tell_unread(calls: Calls, loss: Loss, y: Tensor, targets: Tensor, part: Batch) -> None:
    """Tell of targets that may be handed to other examples and leave the loss as it is, where outputs do not meet."""
    flat = targets.reshape(len(targets), -1)

    def of(z: Tensor, theirs: Tensor = flat) -> tuple[Tensor, Tensor]:
        return with_slope(lambda z: loss.of_all(z, theirs.view_as(targets)), z)

    low, high = (float(bound) for bound in targets.aminmax()) if targets.is_floating_point() else (0.0, 1.0)
    wide = low + (high - low) * torch.rand(y.shape, generator=stream(0, "outputs like targets")).to(y)
    own, noise = of(y), noise_like(y, part)
    like = torch.cat([targets.roll(1, 0)[: len(y) // 2].to(y), y[len(y) // 2 :]]) if targets.shape == y.shape else wide
    far = [noise, *(y.slice_scatter(FAR * noise[..., at], -1, at.start, at.stop) for at in pieces_of(part))]
    before = [(y, own), *((z, of(z)) for z in (y.roll(1, 0), wide, like, *far))]
    before = [(z, now) for z, now in before if all(map(is_finite, now))]
    first = torch.cat([y[1:2], y[1:]])

    def differs(theirs: Tensor) -> bool:
        return any(_differ(now, of(z, theirs)) for z, now in before)

    drawn, meet = differs(flat), bool((of(first)[1][2:] != own[1][2:]).any())
    if drawn or meet or not any(bool(now[1].any()) for _, now in before):
        return
    read, unread = 0, list[Tensor]()
    for columns in _pieces(part, flat):
        orders = (torch.randperm(len(flat), generator=stream(n, "other examples")) for n in range(ORDERS))
        if any(differs(_handed(flat, columns, order)) for order in orders):
            read += 1
        elif not differs(_handed(flat, columns, torch.arange(len(flat)) % (len(flat) // 2))):
            unread.append(columns)
        else:
            what = "The loss is the same if examples swap their targets: none is compared with its own."
            calls.tell(what, "Look for shapes that broadcast, a mean or sum taken too early, or a misplaced bracket.")
            return
    marks, named = ((flat == 0) | (flat == 1)).all(0), part.asked and isinstance(part.asked.template, Mapping)
    apart = read and targets.is_floating_point() and not (named or bool(marks.all()))  # names may be for others
    for columns in unread if apart else ():
        crossed = part.asked is None and y.shape == targets.shape and y.dim() == 2 and len(columns) == 1
        if bool(marks[columns].all()):
            what = "The loss does not read the targets of 0 and 1 beside others: it is the same whatever they are."
            calls.tell(what, "Multiply by them, as by `1 - done`, or leave them out of the targets.")
        elif crossed and _differ(*((of(y, theirs)[1][:, columns],) for theirs in (flat, flat.flip(0)))):
            what = f"The loss compares output {int(columns)} with targets of another, and does not read its own."
            calls.tell(what, "Look at the index of the targets.")


def _differ(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return not all(float((b - a).abs().max()) <= SAME * float(a.abs().max()) for a, b in zip(one, other, strict=True))


def _handed(flat: Tensor, columns: Tensor, order: Tensor) -> Tensor:
    """Targets (B, N) of which some columns are other examples'."""
    flat = flat.clone()
    flat[:, columns] = flat[order][:, columns]
    return flat


def _pieces(part: Batch, flat: Tensor) -> Iterator[Tensor]:
    """Columns of targets (B, N) that differ between examples and are no input: a tensor of them, or few one by one."""
    inputs = [v.flatten(1) for v in replace(part, targets=None).leaves if v.dim() > 1]
    for taken in part.asked.columns if part.asked else [slice(None)]:
        columns = torch.arange(flat.shape[1])[taken]
        few = torch.split(columns, 1) if 1 < len(columns) <= COLUMNS and flat.is_floating_point() else ()
        for piece in (columns, *few):
            values = flat[:, piece]
            known = any(v.shape == values.shape and torch.equal(v.to(values), values) for v in inputs)
            known |= len(piece) == 1 and any(bool((v == values).all(0).any()) for v in inputs)
            if varies(values) and not known and bool((values.flatten().diff() != 1).any()):
                yield piece


def _tell_reversed(calls: Calls, loss: Loss, y: Tensor, targets: Tensor, part: Batch) -> None:
    """Tell of a loss that is higher with the right classes in the outputs than with others, in whatever form."""
    classes = not targets.is_floating_point() or (float(targets.min()), float(targets.max())) == (0.0, 1.0)
    distances = bool((y >= 0).all()) and (bool((y > 1).any()) or y[0].numel() == 1)
    distances |= targets.shape == y.shape and y.dim() > 1 and sums_to_one(y, 1) and not sums_to_one(targets, 1)
    read = bool(with_slope(lambda z: loss.of_all(z, targets), y)[1].any(0).all())  # else classes may be numbers to it
    one = classes and read and not (distances or part.asked or isinstance(part.output, Layout))
    if not one or not varies(targets) or are_inputs(part):
        return
    others = [targets[torch.randperm(len(targets), generator=stream(n, "other examples"))] for n in range(ORDERS + 2)]
    others += [targets.roll(n, 1) for n in (1, -1) if targets.dim() > 1 and not targets.is_floating_point()]
    found, binary = list[bool](), int(targets.max()) == 1
    for forms in zip(*(_forms(y, each, binary=binary) for each in (targets, *others)), strict=True):
        with suppress(Exception):  # what is no form that it takes
            own, *more = (float(loss.of_all(z, targets).detach()) for _, z in forms)
            apart = WORSE * max(map(abs, (own, *more)))
            if all(map(math.isfinite, (own, *more))):
                found.append(own > LOW * min(more) if forms[0][0] else own > max(more) + apart)
    if found and all(found):
        what = "The loss falls as outputs move away from the right classes, to those of other examples."
        calls.tell(what, "Look for a missing minus or `1 -`, exchanged classes, or labels that mean the opposite.")


def _forms(y: Tensor, targets: Tensor, *, binary: bool) -> Iterator[tuple[bool, Tensor]]:
    """Classes as outputs like y (B, *out): as logits, shares, and logarithms of these; and, as is said, as levels."""
    if binary and targets.numel() == y.numel():
        ones = targets.reshape(y.shape).to(y)
        yield from ((False, each) for each in (ones.clamp(LEAST, 1 - LEAST), *(n * (2 * ones - 1) for n in LOGITS)))
        return
    for dim, ones, up_to in classes_like(y, targets):
        shares = F.normalize(ones + LEAST, p=1, dim=dim)
        plain = (shares, (LOGITS[-1] * ones).log_softmax(dim), *(n * (2 * ones - 1) for n in LOGITS))
        yield from ((False, each) for each in plain)
        yield from ((True, 2 * each - 1) for each in (up_to, up_to - ones))
