"""The first call of a model with a batch: its outputs and targets, its loss, its blocks; or what to write instead.

Models of different authors take a batch and give their loss in different ways: a call of a few examples shows which. A
model that refuses its inputs says so in the words of the layer that noticed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_model, did_you_mean, few, kind_of, one_line
from hessdiag.curvature.measurement import Settings
from hessdiag.data.batch import (
    Batch,
    BatchDim,
    Form,
    Inputs,
    Layout,
    Outputs,
    chosen,
    held_by,
    mapped,
    own_loss,
    tensors_in,
)
from hessdiag.data.memory import is_out_of_memory
from hessdiag.data.stream import Read, Tally, batches_of
from hessdiag.derivatives.losses import IGNORED, SAME, UNFIT, Loss, LossFunction, MeanLoss, Reading, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import CoupledError, HessdiagError
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import DryRun, run_dry

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)  # of layers that cannot read inputs
BATCHED = "pass a batch (B, ...) of what the model reads, in its dtype; images are (B, channels, height, width)"
APART = "pass inputs and targets apart, diagnose(model, inputs, targets), and arguments by name as one dict"
TARGETS = ("labels", "label", "targets", "target", "y")
TRIED = {"example": 2, "batch": 8}  # examples on which a loss is tried; a batch's mean needs more than a pair
KNOWN: tuple[Any, ...] = ("cross-entropy", "mse", F.binary_cross_entropy_with_logits)  # that a model's own loss may be


def batches_for(  # noqa: PLR0913, keyword-only options
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None, *, loss: str | LossFunction | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", output: str | int | None = None, tally: Tally | None = None,
) -> Iterator[Batch]:  # fmt: skip
    """What `hessdiag.diagnose` was given, as batches for this model; `tally` counts them."""
    check_model(model)
    check_loss(loss)
    given = batches_of(inputs, targets, tally, read=reader(model, batch_dim, examples, loss))
    return (replace(each, output=output) for each in given)


@dataclass(frozen=True)
class Opened:
    """A model that is ready to be measured.

    Attributes:
        problem: what to measure, with the first batch.
        stream: this batch and the others, as the model reads them.
        y: outputs of a few examples.
        settings: of the measurement: a quick one that cannot tell examples apart is of the batch.
    """

    problem: Problem
    stream: Iterator[Batch]
    y: Tensor
    settings: Settings


@contextmanager
def opened(
    model: nn.Module, batches: Iterator[Batch], loss: str | LossFunction | None, settings: Settings, *,
    vectors: bool = False,
) -> Iterator[Opened]:  # fmt: skip
    """In this context a model is as it is measured, after its first call; it comes back as it was, and so does a loss.

    The batch view takes all batches as one. With `vectors`, normalisation layers and the like are blocks, too.
    """
    stream = iter([Batch.concatenate([*batches])]) if settings.per == "batch" else batches
    first = next(stream)
    check_tensors(model, first)
    with measured_as(model, first, loss, settings) as look:
        try:
            road = road_of(model, first, loss, settings, look)
            found = first_call(model, road, chain([first], stream), settings, vectors=vectors)
        except CoupledError:
            if not settings.quick:
                raise
            settings, whole = replace(settings, per="batch"), Batch.concatenate([first, *stream])
            road = road_of(model, whole, loss, settings, partial(_looked, model, whole, settings))
            found = first_call(model, road, iter([whole]), settings, vectors=vectors)
        yield found


def first_call(model: nn.Module, road: Road, given: Iterator[Batch], settings: Settings, *, vectors: bool) -> Opened:
    """What is to be measured, as a first call of a few examples shows it.

    Raises:
        HessdiagError: there is nothing to measure, or the loss does not fit.
    """
    found, skipped = find_blocks(model, vectors=vectors)
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped[:1])
        raise HessdiagError(f"the model {type(model).__name__} has no weight matrix, bias or scalar to measure ({why})")
    stream = chain.from_iterable(road.batches(model, each, settings.per) for each in given)
    batch = next(stream)
    fixed: AbstractContextManager[list[bool]] = nullcontext([]) if batch.as_one else fixed_statistics()
    with fixed as taken:
        dry = try_model(model, batch, found, examples=TRIED[settings.per])
    resolved = read_loss(model, batch, road.loss, settings, dry.outputs)
    if (coupled := any(taken)) and isinstance(batch.output, Layout) and not batch.output.apart:
        raise CoupledError(
            "a normalisation joins the examples, and the model returns a number of them all: pass per='batch'"
            " (--per batch)"
        )
    problem = Problem(model, batch, resolved, dry.blocks, dry.shape, skipped, coupled=coupled)
    return Opened(problem, chain([batch], stream), dry.outputs.y, settings)


def reader(model: nn.Module, batch_dim: BatchDim, examples: str, loss: object) -> Read:
    """A function that makes a batch for this model of inputs and targets; see `Batch.of`."""

    def read(inputs: Any, targets: Any) -> Batch:
        named = _names(model)
        if isinstance(inputs, Mapping) and any(key in named for key in inputs):
            inputs, targets = _collated(inputs, targets, named)
        batch = Batch.of(inputs, targets, batch_dim=batch_dim, examples=examples)
        free = [name for name in named[len(batch.args) :] if name in TARGETS and name not in batch.kwargs]
        if loss != "model" or batch.targets is None or not free:
            return batch
        dims = (*batch.dims, 0) if batch.dims else ()
        return replace(batch, kwargs={**batch.kwargs, free[0]: batch.targets}, targets=None, dims=dims)

    return read


def _collated(inputs: Mapping[str, Any], targets: Any, named: list[str]) -> tuple[Any, Any]:
    """Of a collated dict the keys that the model takes, and its labels as targets; misspelt ones are kept."""
    labels = [key for key in inputs if key in TARGETS and key not in named]
    spare = [name for name in named if name not in inputs]
    kept = {key: v for key, v in inputs.items() if key in named or (key not in TARGETS and did_you_mean(key, spare))}
    if len(labels) > 1 and targets is None:
        raise HessdiagError(f"inputs hold {few(labels)}: leave one of them in, or pass targets")
    return kept, inputs[labels[0]] if labels and targets is None else targets


def _names(model: nn.Module) -> list[str]:
    """The arguments of `forward`; none where it takes any."""
    with suppress(TypeError, ValueError):  # compiled code tells nothing
        parameters = inspect.signature(model.forward).parameters.values()
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return []


@dataclass(frozen=True)
class Road:
    """How outputs and targets of every batch are found.

    Attributes:
        loss: of these.
        output: which of what the model returns.
        labels: number of the tensor among the arguments that are the targets; None where these are given.
        shifted: whether the label of a position is that of the next one.
        together: whether the model returns a number of all examples of a call, such as its loss: an example is called
            alone then, and the batch is one.
        draws: whether the model draws random numbers.
        returned_at: where the examples stand in outputs (T, B, ...) of inputs (B, ...); else 0.
    """

    loss: str | LossFunction
    output: str | int | Layout | None = None
    labels: int | None = None
    shifted: bool = False
    together: bool = False
    draws: tuple[Any, ...] = ()
    returned_at: int = 0

    def whole(self, batch: Batch) -> Batch:
        """The batch with its targets."""
        targets = batch.targets if self.labels is None else labels_of(batch.leaves[self.labels], shifted=self.shifted)
        batch = replace(batch, output=self.output, targets=targets, returned_at=self.returned_at)
        return replace(batch, as_one=True, size=1) if self.together else batch

    def batches(self, model: nn.Module, batch: Batch, per: str) -> Iterator[Batch]:
        """The same, or its examples one by one, with the noise that the model draws for them all."""
        check_tensors(model, batch)
        batch = batch.with_noise(model, self.draws)[0] if self.draws else batch
        if self.together and per == "example" and not batch.as_one:
            yield from (replace(each, output=self.output) for each in batch.chunks(1))
        else:
            yield self.whole(batch)


Look: TypeAlias = Callable[[], tuple[Batch, Any]]


@contextmanager
def measured_as(
    model: nn.Module, first: Batch, loss: str | LossFunction | None, settings: Settings, *, draws: bool = False
) -> Iterator[Look]:
    """In this context a model is as it is measured, and so is a loss with a state; both come back as they were.

    Random numbers are seeded where the model draws some, or the loss `draws`, too: to find that out the model is called
    with the first examples.
    """
    look = partial(_looked, model, first, settings)
    with ExitStack() as stack:
        stack.enter_context(preserve_state(model, seed=settings.seed, mode=settings.mode, call=None if draws else look))
        if isinstance(loss, nn.Module):
            stack.enter_context(preserve_state(loss, seed=settings.seed, call=lambda: None))
        yield look


def _looked(model: nn.Module, batch: Batch, settings: Settings) -> tuple[Batch, Any]:
    """The first examples with what the model draws for them, and what it returns."""
    return batch.narrow(0, TRIED[settings.per]).with_noise(model)


def road_of(model: nn.Module, batch: Batch, loss: str | LossFunction | None, settings: Settings, look: Look) -> Road:
    """How outputs and targets are found, as a call of a few examples shows it.

    A loss is a name; `"model"` for the one that the model returns; a function of the outputs, or of whatever the model
    returns; None for the model's own where it is a known one, else what the targets ask for.
    """
    loss = batch.loss_of(loss)
    plain = Road(_usual(batch.targets) if loss is None else loss, batch.output)
    own = loss == "model" or (loss is None and batch.targets is None)
    try:
        some, returned = look()
    except Exception:  # of which the first call tells
        return replace(plain, loss="random-quadratic") if loss == "model" else plain
    second = isinstance(returned, Tensor) and returned.dim() > 2 and returned.shape[0] != some.rows == returned.shape[1]
    plain = replace(plain, draws=some.noise, returned_at=int(second and not some.dims))
    if own:
        return _road_of_own(returned, some, settings, asked=loss == "model") or plain
    named: Any = F.cross_entropy if plain.loss == "cross-entropy" else plain.loss
    if batch.output is None and callable(named) and isinstance(returned, Tensor) and some.of_pairs(model, returned):
        return _road_of_all(model, batch, some, returned, replace(plain, loss=named), settings.per)
    if isinstance(loss, str | None) or batch.output is not None or type(loss) is nn.CrossEntropyLoss:
        return plain
    if isinstance(returned, Tensor) or not any(value.is_floating_point() for value in tensors_in(returned)):
        return plain
    try:
        loss(mapped(returned, Tensor.detach), some.targets)
    except UNFIT as error:
        try:
            some.read(returned)
        except HessdiagError:
            what = f"{kind_of(returned)} of {few(map(str, held_by(returned)), 8)}"
            raise HessdiagError(
                f"the loss cannot be called with what the model returned, {what}, and targets ({one_line(error)}):"
                " write it for these, or name the output that it is of, as in output=0 (--output 0)"
            ) from error
        return plain
    return _road_of_all(model, batch, some, returned, replace(plain, loss=loss), settings.per)


def _road_of_all(model: nn.Module, batch: Batch, some: Batch, returned: Any, plain: Road, per: str) -> Road:
    """For a loss of all that the model returns."""
    if some.of_pairs(model, returned):
        if per == "example":
            message = "the outputs of an example have a number for each other one, as similarities have: pass"
            raise CoupledError(f"{message} per='batch' (--per batch)")
        return replace(plain, output=Layout.of(batch.run(model), size=batch.rows), together=True)
    size = some.rows or 1
    layout = Layout.of(returned, size=size)
    either = any(value.shape[:2] == (size, size) for value in tensors_in(returned))  # may run over the examples
    if either or (not layout.apart and per == "batch"):
        more = batch if per == "batch" else batch.narrow(0, size + 1)
        layout = Layout.of(more.run(model), size=more.rows)
    if not layout.apart and per == "example" and callable(plain.loss):
        try:
            for one in some.chunks(1):
                plain.loss(mapped(one.run(model), Tensor.detach), one.targets)
        except UNFIT as error:
            message = f"the loss cannot be called with an example alone ({one_line(error)}): if it compares the"
            raise CoupledError(f"{message} examples of a batch, pass per='batch' (--per batch)") from error
    return replace(plain, output=layout, together=not layout.apart)


def _usual(targets: Tensor | None) -> str:
    """The loss that goes with targets: numbers, classes, or none."""
    if targets is None:
        return "random-quadratic"
    return "mse" if targets.is_floating_point() else "cross-entropy"


def _road_of_own(returned: Any, some: Batch, settings: Settings, *, asked: bool) -> Road | None:
    """The model's own loss as a known one of its outputs and one of its inputs; or as it is, for a Hessian."""
    value, why = own_loss(returned), "it is no cross-entropy or mean squared error of its outputs and labels"
    if value is None or not value.requires_grad:
        if asked:
            raise HessdiagError("loss 'model': the model returned no loss: pass labels too, or name the loss")
        return None
    try:
        which: Any = some.output
        y = None if value is returned else chosen(returned, size=some.rows, which=which, dim=some.dim)
        sent = None if y is None or not y.requires_grad else torch.autograd.grad(value, y, allow_unused=True)[0]
    except HessdiagError as error:
        sent, why = None, str(error)
    if sent is not None and y is not None:
        for number, held in enumerate(some.leaves):
            for loss, shifted in [(loss, shifted) for loss in KNOWN for shifted in (False, True)]:
                if held.is_floating_point() == (loss == "cross-entropy") or (shifted and held.dim() < 2):
                    continue
                plain = replace(some, output=None, as_one=False, targets=labels_of(held, shifted=shifted))
                found, gradient = plain.read(y.detach()), plain.read(sent).y
                if _is_that(loss, found, plain.targets, value.detach(), gradient, settings):
                    return Road(loss, some.output, labels=number, shifted=shifted, draws=some.noise)
    if asked and settings.matrix == "ggn" and not settings.quick:
        message = f"loss 'model' has no Gauss-Newton matrix here ({why}): diagnose with matrix='hessian' (--matrix"
        raise HessdiagError(f"{message} hessian), or pass the loss as a function of what the model returns and targets")
    layout = Layout.of(returned, size=some.rows, pick=own_loss)
    return Road(_itself, layout, together=True, draws=some.noise) if asked else None


def _is_that(
    loss: str | LossFunction, found: Outputs, labels: Tensor | None, value: Tensor, gradient: Tensor, settings: Settings
) -> bool:
    """Whether a known loss has this value and this gradient in the outputs."""
    try:
        reading = Reading(settings.class_dim, found.class_dim, (found.form, Form()), "batch")
        known = resolve_loss(loss, y=found.y, targets=labels, seed=settings.seed, reading=reading)
    except HessdiagError:
        return False
    own, size = known.gradient(found.y, labels) / len(found.y), SAME[found.y.dtype]
    alike = torch.isclose(known.value(found.y, labels).mean(), value.to(found.y), rtol=size, atol=0)
    return bool(alike) and bool((own - gradient).norm() <= size * gradient.norm())


def labels_of(held: Tensor, *, shifted: bool) -> Tensor:
    """Targets; where they are those of the next position, as in causal language models, the last one has none."""
    return F.pad(held[:, 1:], (0, 1), value=IGNORED) if shifted else held


def _itself(y: Tensor, targets: Tensor | None) -> Tensor:
    """The loss that the model returned."""
    return y


_itself.__name__ = "model"  # in tables


def read_loss(model: nn.Module, batch: Batch, loss: str | LossFunction, settings: Settings, outputs: Outputs) -> Loss:
    """Call the loss on the outputs of a few examples: the loss as it will be read."""
    held = [key for key in batch.kwargs if key in TARGETS]
    if held and batch.targets is None and loss in ("cross-entropy", "mse"):
        message = f"loss {loss!r} needs targets and inputs hold {held[0]!r}: pass loss='model' (--loss model) for the"
        raise HessdiagError(f"{message} model's own loss, or {held[0]!r} as targets")
    y, per = (outputs.y[0], "batch") if batch.as_one else (outputs.y, settings.per)
    layout = batch.output if isinstance(batch.output, Layout) else None
    how: dict[str, Any] = {"layout": layout, "together": batch.as_one, "matrix": settings.matrix,
                           "linear": settings.quick}  # fmt: skip
    reading = Reading(settings.class_dim, outputs.class_dim, (outputs.form, batch.form), per, **how)
    resolved = resolve_loss(loss, y=y, targets=batch.targets, seed=settings.seed, reading=reading)
    theirs = batch.targets
    if theirs is not None and not batch.as_one:  # a loss of a batch may be written for so many
        y, theirs = (y[torch.arange(len(theirs)) % len(y)], theirs) if resolved.couples else (y, theirs[: len(y)])
    value = resolved.of_all(y, theirs)
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad} if value.requires_grad else {}
    found = torch.autograd.grad(value, [*weights.values()], allow_unused=True) if weights else ()
    if names := [name for name, gradient in zip(weights, found, strict=True) if gradient is not None]:
        message = f"the loss {resolved.name!r} holds weights of the model ({names[0]!r}), not outputs alone: pass it"
        raise HessdiagError(f"{message} without them, or let forward return it and pass loss='model' (--loss model)")
    return MeanLoss(resolved) if batch.as_one else resolved


def try_model(
    model: nn.Module, batch: Batch, blocks: Sequence[Block] = (), *, name: str = "", examples: int = 2
) -> DryRun:
    """Run the model dry on the first examples: their outputs, and sizes and order of the layers that hold `blocks`."""
    tried = batch.narrow(0, examples)
    try:
        return run_dry(model, tried, blocks)
    except Exception as error:
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        own = error
    try:
        tried.call(model)
    except Exception as error:  # what the model itself has against these inputs, unwatched
        if isinstance(error, HessdiagError) or is_out_of_memory(error):
            raise
        if not (name or isinstance(error, REFUSALS)):
            raise
        if tried.size < batch.size and all(v.dim() > 1 for v in batch.tensors) and _runs(model, batch):
            what = f"the model runs with {batch.size} examples and not with {tried.size} of them ({one_line(error)})"
            raise HessdiagError(f"{what}: keep examples apart, or pass examples='one'") from error
        shapes = ", ".join("×".join(map(str, value.shape)) for value in batch.tensors)
        ids = [int(x.max()) for x in batch.tensors if isinstance(error, IndexError) and not x.is_floating_point()]
        largest = f", indices up to {max(ids)}" if ids else ""
        read = f"{name or 'the model'} cannot read inputs of shape {shapes}{largest} ({one_line(error)})"
        raise HessdiagError(f"{read}{_advice(model, batch)}") from error
    raise own


def _runs(model: nn.Module, batch: Batch) -> bool:
    with suppress(Exception):  # of the user's
        batch.run(model)
        return True
    return False


def check_tensors(model: nn.Module, batch: Batch) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the weights."""
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise HessdiagError(
                f"parameter {name!r} is on the meta device, without a value: build the model on another"
            )
        if not bool(parameter.data.isfinite().all()):
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    tensors = list(model.parameters())
    if not tensors:
        raise HessdiagError(f"the model {type(model).__name__} has no parameters: there is nothing to measure")
    devices = {str(t.device) for t in (*tensors, *batch.tensors)}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in (*tensors, *batch.tensors) if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both, as by model.float() and inputs.float()")
    return tensors[0].device, tensors[0].dtype


def _advice(model: nn.Module, batch: Batch) -> str:
    """What to write instead."""
    try:
        inspect.signature(model.forward).bind(*batch.args, **batch.kwargs)
    except ValueError:  # compiled code tells nothing
        return ""
    except TypeError:
        return f": {APART}"
    return f": {BATCHED}"
