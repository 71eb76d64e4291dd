"""The first call of a model with a batch: its outputs and targets, its loss, its blocks; or what to write instead.

Models of different authors take a batch and give their loss in different ways: a call of a few examples shows which. A
model that refuses its inputs says so in the words of the layer that noticed.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.arguments import few, kind_of, one_line
from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import TRIED, Batch, Form, Layout, Road, held_by, labels_of, mapped, own_loss, tensors_in
from hessdiag.derivatives.losses import SAME, LossFunction, Reading, resolve_loss
from hessdiag.derivatives.problem import Problem, read_loss
from hessdiag.errors import REFUSALS, SIMILARITIES, CoupledError, HessdiagError
from hessdiag.network.blocks import find_blocks
from hessdiag.network.torch_state import fixed_statistics, seeded_rng
from hessdiag.network.trace import kept_aside, try_model

KNOWN: tuple[Any, ...] = ("cross-entropy", "mse", F.binary_cross_entropy_with_logits)  # that a model's own loss may be


@dataclass(frozen=True)
class Opened:
    """A model that is ready to be measured."""

    problem: Problem  # what to measure, with the first batch
    stream: Iterator[Batch]  # this batch and the others, as the model reads them
    y: Tensor  # outputs of a few examples
    settings: Settings  # of the measurement: a quick one that cannot tell examples apart is of the batch


def first_call(
    model: nn.Module, first: Batch, others: Iterator[Batch], loss: str | LossFunction | None, settings: Settings, *,
    vectors: bool = False,
) -> Opened:  # fmt: skip
    """What is to be measured, as a first call of a few examples shows it; inside `preserve_state`. With `vectors`,
    normalisations and the like are blocks, too. Refused: nothing to measure, or an unfit loss.
    """
    try:
        road = road_of(model, first, loss, settings)
        per = "batch" if settings.quick else settings.per  # a call for each example takes long
        stream = chain.from_iterable(road.batches(model, each, per) for each in chain([first], others))
        batch = next(stream)
        found, skipped = find_blocks(model, vectors=vectors)
        if not found:  # one vector of all weights, say
            found, skipped = find_blocks(model, vectors=True)
        if not found:
            raise HessdiagError(f"the model {type(model).__name__} has {_nothing(model, skipped)}")
        with nullcontext(list[int]()) if batch.as_one else fixed_statistics() as taken:
            dry = try_model(model, batch, found, examples=TRIED[settings.per])
        how = {key: getattr(settings, key) for key in ("per", "seed", "class_dim", "matrix")}
        resolved = read_loss(model, batch, road.loss, dry.outputs, **how, linear=settings.quick)
        if batch.size == 1 and 1 in taken:  # where torch raises an error, too
            what = "a batch normalisation in training needs more than one number a channel"
            raise HessdiagError(f"{what}: pass several examples, or mode='eval' (--eval)")
        if (coupled := any(taken)) and isinstance(batch.output, Layout) and not batch.output.apart:
            what = "a normalisation joins the examples, and the model returns a number of them all: pass"
            raise CoupledError(f"{what} per='batch' (--per batch)")
        problem = Problem(model, batch, resolved, dry.blocks, dry.shape, skipped, coupled=coupled)
        return Opened(problem, chain([batch], stream), dry.outputs.y, settings)
    except CoupledError:
        if first.as_one or not settings.quick:
            raise
    whole = Batch.concatenate([first, *others])
    whole = whole.as_structure() if settings.per == "batch" else whole
    return first_call(model, whole, iter(()), loss, replace(settings, per="batch"), vectors=vectors)


def _is_second(model: nn.Module, some: Batch, returned: Tensor) -> bool:
    """Whether of two dimensions of one size the second runs over the examples: the first stays among fewer of them."""
    with suppress(Exception), fixed_statistics(), seeded_rng(0):  # a model that takes no example alone
        fewer = some.narrow(0, 1).run(model)
        return bool(fewer.shape[0] == returned.shape[0] and fewer.shape[1] == 1 < returned.shape[1])
    return False


def _nothing(model: nn.Module, skipped: Sequence[tuple[str, str]]) -> str:
    if aside := kept_aside(model):
        names = few(aside.values())
        return f"layers that are not registered ({names}): keep them in nn.ModuleList, and tensors in nn.Parameter"
    if not skipped:
        return "no parameters: there is nothing to measure"
    name, reason = skipped[0]
    return f"no weight matrix, bias or scalar to measure ({name}: {reason})"


def road_of(model: nn.Module, batch: Batch, loss: str | LossFunction | None, settings: Settings) -> Road:
    """How outputs and targets are found, as a call of a few examples shows it. A loss is a name; `"model"` for the one
    that the model returns; a function of the outputs, or of whatever the model returns; None for the model's own where
    it is a known one, else what the targets ask for.
    """
    loss, targets = batch.loss_of(loss), batch.targets
    usual = "random-quadratic" if targets is None else "mse" if targets.is_floating_point() else "cross-entropy"
    plain = Road(usual if loss is None else loss, batch.output)
    try:
        some, returned = batch.look(model, settings.per)
    except Exception:  # of which the first call tells
        return replace(plain, loss="random-quadratic") if loss == "model" else plain
    bare = isinstance(returned, Tensor)
    second = bare and returned.dim() > 2 and some.rows == returned.shape[1]
    if second and returned.shape[0] == some.rows and batch.form.at != 1:
        second = _is_second(model, some, returned)
    masked = bare and bool((returned == -math.inf).any())
    runs = bare and some.one_after_the_other(model, returned, fixed_statistics(), seeded_rng(0))
    plain = replace(plain, draws=some.noise, masked=masked, returned_at=0 if some.dims else -1 if runs else int(second))
    if loss == "model" or (loss is None and targets is None):
        return _road_of_own(model, returned, some, settings, asked=loss == "model") or plain
    named: Any = F.cross_entropy if plain.loss == "cross-entropy" else plain.loss
    lost = False
    with suppress(*REFUSALS):
        if masked and callable(named):
            value = named(at := returned.detach().requires_grad_(), some.targets)
            lost = not bool(value.isfinite() & torch.autograd.grad(value, at)[0].isfinite().all())
    if lost:
        what = "the loss or its gradient is NaN or infinite at outputs of -inf, as of masked logits or log(0)"
        raise HessdiagError(f"{what}: look for 0 times infinity in it, a masked target, or a row that is all -inf")
    known = isinstance(loss, str | None) or batch.output is not None or type(loss) is nn.CrossEntropyLoss
    if not (callable(named) and _are_pairs(model, returned, some, bare=bare)):
        if known or bare or not any(value.is_floating_point() for value in tensors_in(returned)):
            return plain
        try:
            named(mapped(returned, lambda v: v.detach().contiguous()), some.targets)
        except REFUSALS as error:
            try:
                some.read(returned)
            except HessdiagError:
                raise _unfit(returned, some.targets, error) from error
            return plain
    with seeded_rng(0):  # its calls draw, too
        return replace(plain, loss=named).of_all(model, batch, some, returned, settings.per)


def _are_pairs(model: nn.Module, returned: Any, some: Batch, *, bare: bool) -> bool:
    """Whether outputs compare the examples; refused where one of several is chosen."""
    pairs = (bare or some.output is not None) and some.of_pairs(model, returned)
    if pairs and some.output is not None:
        what = f"{SIMILARITIES} a loss of all that the model returns, loss=f (--loss FILE:f), in place of output, and"
        raise HessdiagError(f"{what} per='batch' (--per batch)")
    return pairs


def _unfit(returned: Any, targets: Tensor | None, error: Exception) -> CoupledError:
    """That a loss cannot be called with what a model returned and the targets."""
    given, how = "targets", "write it for these, or name the output that it is of, as in output=0 (--output 0)"
    if targets is None:
        given, how = "no targets", f"pass targets if it reads some, an autoencoder's inputs; {how}"
    what = f"{kind_of(returned)} of {few(map(str, held_by(returned)), 8)}, and {given} ({one_line(error)})"
    return CoupledError(f"the loss cannot be called with what the model returned, {what}: {how}")


def _road_of_own(model: nn.Module, returned: Any, some: Batch, settings: Settings, *, asked: bool) -> Road | None:
    """The model's own loss as a known one of its outputs and one of its inputs; or as it is, for a Hessian."""
    value, why = own_loss(returned), "it is no cross-entropy or mean squared error of its outputs and labels"
    if value is None or not value.requires_grad:
        _without_loss(model, returned, some, value, asked=asked)
        return None
    try:
        y = None if value is returned else some.chosen(returned)
        sent = None if y is None or not y.requires_grad else torch.autograd.grad(value, y, allow_unused=True)[0]
    except HessdiagError as error:
        sent, why = None, str(error)
    if sent is not None and y is not None:
        for number, held in enumerate(some.leaves):
            for loss, shifted in [(loss, shifted) for loss in KNOWN for shifted in (False, True)]:
                if held.is_floating_point() == (loss == "cross-entropy") or (shifted and held.dim() < 2):
                    continue
                plain = replace(some, output=None, as_one=False, targets=labels_of(held, shifted=shifted))
                if _is_that(loss, plain, y.detach(), sent, value.detach(), settings):
                    return Road(loss, some.output, labels=number, shifted=shifted, draws=some.noise)
    if asked and settings.matrix == "ggn" and not settings.quick:
        why = "no outputs are returned beside it" if value is returned else why
        message = f"loss 'model' has no Gauss-Newton matrix here ({why}): diagnose with matrix='hessian' (--matrix"
        raise HessdiagError(f"{message} hessian), return outputs too, or pass the loss as a function of these")
    return _road_as_returned(model, returned, some, settings) if asked else None


def _without_loss(model: nn.Module, returned: Any, some: Batch, value: Tensor | None, *, asked: bool) -> None:
    """Refuse a model that has no loss where it was asked for, or where outputs compare the examples."""
    if asked:
        shape = f"a tensor of shape {tuple(returned.shape)}, " if isinstance(returned, Tensor) else ""
        none = f"{shape}no loss, or several: pass labels, take a mean, or name one by loss=f (--loss FILE:f)"
        what = none if value is None else "a loss without a gradient: look for detach, or torch.no_grad()"
        raise HessdiagError(f"loss 'model': the model returned {what}")
    if isinstance(returned, Tensor) and some.of_pairs(model, returned):
        what = f"{SIMILARITIES} their loss as a function, loss=f (--loss FILE:f), and"
        raise HessdiagError(f"{what} per='batch' (--per batch)")


def _road_as_returned(model: nn.Module, returned: Any, some: Batch, settings: Settings) -> Road:
    """The model's own loss; refused where it has a gradient for several examples, and none for the first of them."""

    def flat(part: Batch) -> bool:
        loss = own_loss(part.run(model))
        return loss is None or not any(bool(g.any()) for g in torch.autograd.grad(loss, learn, materialize_grads=True))

    learn, compared = [p for p in model.parameters() if p.requires_grad], False
    with suppress(*REFUSALS):  # of a model that takes no example alone
        compared = settings.per == "example" and not settings.quick and flat(some.narrow(0, 1)) and not flat(some)
    if compared:
        what = "the loss of an example alone that the model returned has no gradient, as where a batch is compared:"
        raise CoupledError(f"{what} pass per='batch' (--per batch)")
    return Road(_itself, Layout.of(returned, size=some.rows, pick=own_loss), together=True, draws=some.noise)


def _is_that(loss: Any, part: Batch, returned: Tensor, sent: Tensor, value: Tensor, settings: Settings) -> bool:
    """Whether a known loss has this value, and this gradient in the outputs, as the model returned them."""
    found, gradient, labels = part.read(returned), part.read(sent).y, part.targets
    try:
        reading = Reading(settings.class_dim, found.class_dim, (found.form, Form()), "batch")
        known = resolve_loss(loss, y=found.y, targets=labels, seed=settings.seed, reading=reading)
    except HessdiagError:
        return False
    own, size = known.gradient(found.y, labels) / len(found.y), SAME[found.y.dtype]
    alike = torch.isclose(known.value(found.y, labels).mean(), value.to(found.y), rtol=size, atol=0)
    return bool(alike) and bool((own - gradient).norm() <= size * gradient.norm())


def _itself(y: Tensor, targets: Tensor | None) -> Tensor:
    """The loss that the model returned."""
    return y


_itself.__name__ = "model"  # in tables
