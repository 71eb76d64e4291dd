"""The diagnostic: capture, moments, curvature, report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from hessdiag.arguments import check_whole
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.norms import Curvature, merge
from hessdiag.data.batch import Batch, BatchDim, Inputs
from hessdiag.data.memory import OVERHEAD, MemoryBudget, Sums, add, unless_out_of_memory
from hessdiag.data.stream import Tally, batches_for
from hessdiag.derivatives.losses import LossFunction, check_targets
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis import checks
from hessdiag.diagnosis.fit import with_fit
from hessdiag.diagnosis.moments import block_reports, misread_in, moments_of, sum_moments
from hessdiag.diagnosis.rules import find
from hessdiag.diagnosis.signals import MAX_EXAMPLES
from hessdiag.errors import CoupledError, HessdiagError
from hessdiag.loading.first_call import first_call
from hessdiag.loading.prepare import Prepared
from hessdiag.models.sources import ModelSource
from hessdiag.network.blocks import Block
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import NetworkShape
from hessdiag.parallel.processes import ALONE, default_group
from hessdiag.parallel.progress import Progress, showing
from hessdiag.results.records import versions
from hessdiag.results.report import Heatmap, Report
from hessdiag.results.signals import Signals

LARGE = 2**24  # bytes of all parameters, whose gradients cost much: fewer examples are checked one by one
GRADIENTS = 8  # of all parameters, that examples may take the memory of

# What a measurement takes whatever is asked, by measurement: gradients of all parameters and of the largest one while
# the model is checked, of all while blocks are measured, copies of the batch, and a few gradients of an example.
CHECKED, LARGEST, MEASURED, COPIES, COTANGENTS, WORKING = 5, 2, 3, 2, 4, 2


def diagnose(
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, *,
    loss: str | LossFunction | None = None, class_dim: int | None = None, output: str | int | None = None,
    batch_dim: BatchDim = 0, examples: str = "batch", matrix: str = "ggn", per: str = "example", mode: str = "train",
    method: str = "auto", rtol: float | None = None, seed: int = 0, max_products: int = 400,
    max_memory: int | str | None = None, batches: int | None = None, blocks: str | Sequence[str] | None = None,
    quick: bool = False, fit: bool = False, signals: bool = True, distributed: bool = False, progress: Progress = None,
) -> Report:  # fmt: skip
    """Measure curvature, scaling factor and weight-gradient ratio of every block of a model on its data.

    The model is left exactly as it was: weights, buffers, `.grad`, modes, hooks and random state, also after an error.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs).
        inputs: a tensor (B, ...), a tuple of positional or a dict of keyword arguments, which may be nested; or an
            iterable of batches, such as a `DataLoader`, each of which is one of these or `(inputs, targets)`. It is
            read once, batch by batch, and examples weigh alike; only the batch view holds them all at once. Of a dict
            the model is given the keys that it takes, and its labels are the targets.
        targets: what the loss compares with; the first dimension runs over examples. Of several tensors in a tuple,
            list or dict the loss is a function of the outputs and of such a structure.
        loss: `"random-quadratic"` (yᵀRy, the paper's), `"cross-entropy"`, `"mse"`, `"model"` (which the model returns),
            or a callable `(outputs, targets) -> scalar` of the outputs, or of whatever the model returns, in all of
            whose tensors it is differentiated then. By default cross-entropy where targets are integers, mean squared
            error where they are floating-point numbers, and without targets the random quadratic; where the inputs hold
            labels, and the model returns one of the two of them, that.
        class_dim: dimension of the outputs that runs over the classes of `"cross-entropy"`, for where the targets fit
            two: 1 as in torch, or -1 for sequences (B, T, V).
        output: name or position of the output to measure, where the model returns several.
        batch_dim: dimension of the inputs that runs over the examples, such as 1 of sequences (T, B, ...); or that of
            each tensor, None where all examples share it, as `in_dims` of `torch.vmap`: `(0, (1, 1))`.
        examples: `"one"` where all inputs together are one example, as a graph or a set is.
        matrix: `"ggn"` (generalised Gauss-Newton) or `"hessian"`.
        per: `"example"` averages ‖G^(b)‖²/P over each example's own matrix, as the theory has it; `"batch"` takes the
            matrix and the gradient of the batch-mean loss, and γ/B.
        mode: `"train"` measures the network as it trains, whatever mode it is in: nothing is dropped, and batch
            normalisation takes the statistics of the batch, through which derivatives go; `"eval"` as for inference.
        method: `"exact"`, `"sketch"`, `"probe"`, or `"auto"` to pick; the report says which ran and why.
        rtol: relative standard error of the diagonal that random sampling is to reach; None takes a fixed number of
            directions, and the report has their standard error.
        seed: of the loss and of all random directions.
        max_products: matrix-vector products that sampling may spend on one block (per example).
        max_memory: memory that the measurement may take beside model and data, in bytes or as `"4GiB"`; by default half
            of what is free.
        batches: how many batches of an iterable to read; None reads all.
        blocks: patterns of the names of parameters, such as `"layers.0.*"`: measure the curvature and moments of these
            alone, at the cost of these. The signals are those of the whole network.
        quick: measure signals and moments alone, and no curvature: every finding that needs none, in a few gradients.
            A loss that compares examples is then read per batch.
        fit: also train copies of the weights on the first examples of the batch, for 40 steps of Adam at each of two
            learning rates, and find it out (HD121) where the loss hardly falls.
        signals: also measure the signals that run through the network, and apply the rules to them; without them, no
            finding is made and the verdict is undecided.
        distributed: share the examples with the other processes of torch.distributed's default group. All call this
            with the same model and all of the data, and all return the same report. The batch view is not shared.
        progress: None shows a line in a terminal after a second, and elsewhere on stderr one after ten seconds and then
            every thirty; True one for every step; False is silent; a function is called with the name of each step.

    Returns:
        A `Report`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> import torch
    >>> report = diagnose(nn.Linear(2, 1, bias=False), torch.ones(1, 2), loss=lambda y, t: y.square().sum())
    >>> report.blocks[0].avg_sq_singular_value  # G = 2 x x^T, so that ‖G‖² / P = 4 · 2² / 2
    8.0
    """
    settings = Settings(
        matrix=matrix, per=per, mode=mode, method=method, rtol=rtol, max_products=max_products, seed=seed,
        class_dim=class_dim, output=output, quick=quick,
    )  # fmt: skip
    tally, group = Tally(), default_group() if distributed else ALONE
    if batches is not None:
        check_whole("batches", batches, least=1)
    read: dict[str, Any] = {"batch_dim": batch_dim, "examples": examples, "output": output, "tally": tally}
    given = batches_for(model, inputs, targets, loss=loss, **read, most=batches, whole=per == "batch")
    first, title = next(given), f"measuring {type(model).__name__}"
    state = preserve_state(model, seed=seed, mode=mode, call=partial(first.look, model, per), loss=loss)
    with state, showing(progress, title=title):
        ready = first_call(model, first, given, loss, settings)
        problem, settings, weight = ready.problem, ready.settings, next(model.parameters())
        if distributed:
            group.check_alike({"weights": [*model.parameters()], "data": problem.batch.tensors})
        per, one = settings.per, problem.batch.as_one
        problem = problem if blocks is None else problem.only(blocks)
        settings = replace(settings, per="example") if one else settings
        memory = MemoryBudget.of(max_memory, weight.device)
        memory = memory if max_memory is None else _bounded(memory, problem)
        shared = per == "example" and not problem.coupled
        mine = (group if shared else ALONE).shares(ready.stream)
        how: dict[str, Any] = {"like": ready.y, "signals": signals, "fit": fit, "whole": not shared or group.size == 1}
        gathered = group.gather(lambda: _measure(problem, mine, settings, memory, **how))
        measured = [each for found_there in gathered for each in found_there] if shared else gathered[0]
        ran = {"per": per, "device": weight.device.type, "dtype": str(weight.dtype).removeprefix("torch.")}
        return _report(settings, problem, measured, tally, **ran)


def diagnose_prepared(prepared: Prepared, source: ModelSource, **options: Any) -> Report:
    """Diagnose what `prepare` made of a source; the report says where weights and data came from."""
    report = diagnose(prepared.module, prepared.batches(), **prepared.how, **options)
    return replace(
        report, model=source.name, init=prepared.init, data=prepared.data, batches_read=prepared.tally.read,
        batches_given=prepared.tally.given,
    )  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What one batch gave, or a process's share of it.

    Attributes:
        examples: how many.
        blocks, shape, skipped: how they were read.
        sums: see `hessdiag.diagnosis.moments`.
        curvature: of its examples.
        signals, missing: of the first batch, or why there are none.
    """

    examples: int
    blocks: Sequence[Block]
    shape: NetworkShape
    skipped: tuple[tuple[str, str], ...]
    sums: Sums
    curvature: Curvature
    signals: Signals | None = None
    missing: str = "they were not asked for"


def _measure(
    problem: Problem, batches: Iterable[Batch], settings: Settings, memory: MemoryBudget, *, like: Tensor,
    signals: bool, fit: bool, whole: bool,
) -> list[Measured]:  # fmt: skip
    """Measure one batch after the other; how the blocks are read is settled on the first.

    `like` are outputs of a few examples, `whole` says that the batches are all examples, and no process's share.
    """
    alone = 2 if settings.quick or problem.shape.parameters >= LARGE else checks.FEW
    few = problem.batch.narrow(0, max(2, min(_chunk(problem, memory), alone)))
    with fixed_statistics() if problem.coupled else nullcontext():  # in normalisations alone examples may meet
        try:
            problem, mixed = check_few(problem, few, settings, before=like)
        except CoupledError:
            problem, mixed = _meeting(problem, settings, whole), set()

    def moments(problem: Problem, examples: int) -> tuple[Problem, Sums, tuple[Signals | None, str]]:
        how: dict[str, Any] = {"chunk": _chunk(problem, memory), "mixed": mixed, "signals": examples}
        try:
            return problem, *sum_moments(problem, settings, **how)
        except CoupledError:
            problem = _meeting(problem, settings, whole)
            return problem, *sum_moments(problem, settings, **how)

    measured: list[Measured] = []
    for batch in batches:
        if measured:
            check_targets(problem.loss, like=like, targets=batch.targets)
        problem = replace(problem, batch=batch, loss=problem.loss.of_batch(batch.targets, like))
        at_once = max(checks.FEW, problem.shape.chunk(2, memory=memory.total // OVERHEAD))
        shown = min(MAX_EXAMPLES, at_once, batch.size) if signals and not measured else 0
        problem, sums, found = moments(problem, shown)
        misread = misread_in(problem, sums)
        if misread and measured:
            raise HessdiagError(
                f"block {next(iter(misread))!r} is used in another way from example {batch.offset} on:"
                " measure batches that take the same path through the model, one kind at a time"
            )
        if misread:  # its Jacobian cannot be had by a rule
            plain = [replace(b, structured=b.structured and b.name not in misread) for b in problem.blocks]
            problem = problem.read_as(plain)
            problem, sums, _ = moments(problem, 0)
            problem = problem.without(misread_in(problem, sums))
        if fit and (seen := found[0]) is not None:
            found = with_fit(problem, seen, settings.seed, again=partial(moments, problem, seen.examples)), ""
        curvature = measure_curvature(problem, settings, memory)
        kept = (batch.size, problem.blocks, problem.shape, problem.skipped)
        measured.append(Measured(*kept, sums, curvature, *found))
    return measured


def _meeting(problem: Problem, settings: Settings, whole: bool) -> Problem:
    """In a quick diagnosis, what runs through a network in which examples meet: it is there to see all the same."""
    if not settings.quick or problem.meeting or not whole:
        raise checks.mixing()
    meeting = checks.where_mixed(problem, problem.batch.narrow(0, checks.MORE), settings.seed)
    return replace(problem, coupled=True, meeting=meeting)


def check_few(problem: Problem, few: Batch, settings: Settings, *, before: Tensor) -> tuple[Problem, set[str]]:
    """Check the model on a few examples, on two at least where more do not fit into memory.

    Returns:
        The problem with its blocks as they can be read, and the layers whose rows are no examples.
    """
    read = partial(checks.as_read, problem, few, settings.seed, before=before, nearby=not settings.quick)
    found = unless_out_of_memory(read, examples=max(1, few.size - 1))
    return found or check_few(problem, few.narrow(0, max(2, few.size // 2)), settings, before=before)


def _chunk(problem: Problem, memory: MemoryBudget) -> int:
    """Examples at once in a pass with few cotangents.

    As each chunk has gradients of all parameters, those may take several times their memory.
    """
    room = min(GRADIENTS * problem.shape.parameters, memory.total // OVERHEAD)
    return problem.shape.chunk(4, memory=max(memory.chunk, room))


def _bounded(memory: MemoryBudget, problem: Problem) -> MemoryBudget:
    """The memory that is left for examples and their cotangents.

    Raises:
        HessdiagError: what was asked for is less than a measurement of this model and batch takes.
    """
    parameters, inputs = problem.shape.parameters, sum(tensor.nbytes for tensor in problem.batch.tensors)
    held = CHECKED * parameters + LARGEST * max(p.nbytes for p in problem.model.parameters()) + COPIES * inputs
    least = held + WORKING * problem.shape.bytes_per_example(COTANGENTS)
    if memory.total < least:
        asked, taken, data, wanted = (f"{-(-size // 2**20)}MiB" for size in (memory.total, parameters, inputs, least))
        raise HessdiagError(
            f"max_memory {asked}: gradients of {taken} of parameters, {data} of inputs and one example at a time take"
            f" about {wanted}: pass at least that, or a smaller batch"
        )
    left = memory.total - MEASURED * parameters - COPIES * inputs
    return replace(memory, total=left, chunk=min(memory.chunk, max(memory.total - held, 0) // OVERHEAD))


def _report(settings: Settings, problem: Problem, measured: Sequence[Measured], tally: Tally, **ran: Any) -> Report:
    """Put together what all batches gave; `ran` has the fields of a report that say on what."""
    first, sizes = measured[0], [part.examples for part in measured]
    if any(part.blocks != first.blocks for part in measured):
        raise HessdiagError("some examples take another path through the model than others: measure in one process")
    problem = replace(problem, blocks=first.blocks, shape=first.shape, skipped=first.skipped)
    curvature = merge([part.curvature for part in measured], sizes)
    moments = moments_of(problem, add([part.sums for part in measured]), per=settings.per)
    size = sum(sizes) if settings.per == "batch" else 1
    blocks = block_reports(problem, moments, curvature, size=size, matrix=settings.matrix)
    weights = [i for i, block in enumerate(problem.blocks) if block.kind == "weight" and not settings.quick]
    return Report(
        blocks=blocks,
        heatmap=Heatmap(
            names=tuple(problem.blocks[i].name for i in weights),
            numel=tuple(problem.blocks[i].numel for i in weights),
            frobenius_sq=curvature.frobenius_sq[weights][:, weights],
            stderr=curvature.stderr[weights][:, weights],
        ),
        skipped=problem.skipped,
        model=type(problem.model).__name__,
        init="as given",
        loss=problem.loss.name,
        matrix=settings.matrix,
        mode=settings.mode,
        method=curvature.method,
        method_reason=curvature.reason,
        seed=settings.seed,
        batch_size=sum(sizes),
        batches=tally.read if settings.per == "example" else 1,
        batches_read=tally.read,
        batches_given=tally.given,
        outputs=problem.shape.outputs,
        rtol=settings.rtol,
        versions=versions(),
        output_sq=moments.output_sq,
        output_variance=moments.output_variance,
        findings=() if first.signals is None else find(first.signals),
        signals=first.signals,
        signals_missing=first.missing,
        **ran,
    )
