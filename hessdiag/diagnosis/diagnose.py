"""The diagnostic: capture, moments, curvature, report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import metadata
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_model, check_whole
from hessdiag.curvature.measurement import Settings
from hessdiag.curvature.norms import merge
from hessdiag.data.batch import Batch, Inputs
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.outputs import Outputs
from hessdiag.data.stream import Tally, batches_of
from hessdiag.data.sums import add
from hessdiag.derivatives.losses import Loss, LossFunction, Reading, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.block_reports import block_reports
from hessdiag.diagnosis.checks import called_alone
from hessdiag.diagnosis.measurement import Measured, bounded, check_tensors, measure_batches
from hessdiag.diagnosis.moments import moments_of
from hessdiag.diagnosis.rules import find
from hessdiag.errors import HessdiagError
from hessdiag.loading.first_call import check_labels, try_model
from hessdiag.loading.models import ModelSource
from hessdiag.loading.prepare import Prepared
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.preserve import preserve_state
from hessdiag.network.shapes import DryRun, measure_shapes
from hessdiag.parallel.processes import ALONE, Processes, default_group
from hessdiag.parallel.progress import Progress, showing
from hessdiag.results.report import Heatmap, Report

TRIED = {"example": 2, "batch": 8}  # examples on which a loss is tried; a batch's mean needs more than a pair


def diagnose(
    model: nn.Module,
    inputs: Inputs | Iterable[Any],
    targets: Tensor | None = None,
    *,
    loss: str | LossFunction = "random-quadratic",
    class_dim: int | None = None,
    output: str | int | None = None,
    matrix: str = "ggn",
    per: str = "example",
    method: str = "auto",
    rtol: float | None = None,
    seed: int = 0,
    max_products: int = 400,
    max_memory: int | str | None = None,
    batches: int | None = None,
    signals: bool = True,
    distributed: bool = False,
    progress: Progress = None,
) -> Report:
    """Measure curvature, scaling factor and weight-gradient ratio of every block of a model on its data.

    The model is left exactly as it was: weights, buffers, `.grad`, modes, hooks and random state, also after an error.

    Args:
        model: any module that maps a batch to one tensor (B, *outputs).
        inputs: a tensor (B, ...), a tuple of positional or a dict of keyword arguments; or an iterable of batches, such
            as a `DataLoader`, each of which is one of these or `(inputs, targets)`. It is read once, batch by batch,
            and examples weigh alike; only the batch view holds them all at once.
        targets: what the loss compares with; the first dimension runs over examples.
        loss: `"random-quadratic"` (yᵀRy, the paper's), `"cross-entropy"`, `"mse"`, or a callable
            `(outputs, targets) -> mean over the examples it is given`.
        class_dim: dimension of the outputs that runs over the classes of `"cross-entropy"`, for where the targets fit
            two: 1 as in torch, or -1 for sequences (B, T, V).
        output: name or position of the output to measure, where the model returns several.
        matrix: `"ggn"` (generalised Gauss-Newton) or `"hessian"`.
        per: `"example"` averages ‖G^(b)‖²/P over each example's own matrix, as the theory has it; `"batch"` takes the
            matrix and the gradient of the batch-mean loss, and γ/B.
        method: `"exact"`, `"sketch"`, `"probe"`, or `"auto"` to pick; the report says which ran and why.
        rtol: relative standard error of the diagonal that random sampling is to reach; None takes a fixed number of
            directions, and the report has their standard error.
        seed: of the loss and of all random directions.
        max_products: matrix-vector products that sampling may spend on one block (per example).
        max_memory: memory that the measurement may take beside model and data, in bytes or as `"4GiB"`; by default half
            of what is free.
        batches: how many batches of an iterable to read; None reads all.
        signals: also measure the signals that run through the network, and apply the rules to them; without them, no
            finding is made and the verdict is undecided.
        distributed: share the examples with the other processes of torch.distributed's default group. All call this
            with the same model and all of the data, and all return the same report. The batch view is not shared.
        progress: called with the name of each step that is done. None shows a bar on stderr where that is a terminal,
            and a line in a notebook, of what takes longer than a second; False is silent; True also prints elsewhere.

    Returns:
        A `Report`; printing it shows the table.

    Raises:
        HessdiagError: an argument cannot be used, or the model cannot be measured right; one sentence says why.

    >>> report = diagnose(nn.Linear(2, 1, bias=False), torch.ones(1, 2), loss=lambda y, t: y.square().sum())
    >>> report.blocks[0].avg_sq_singular_value  # G = 2 x x^T, so that ‖G‖² / P = 4 · 2² / 2
    8.0
    """
    check_model(model)
    check_loss(loss)
    if batches is not None:
        check_whole("batches", batches, least=1)
    settings = Settings(
        matrix=matrix,
        per=per,
        method=method,
        rtol=rtol,
        max_products=max_products,
        seed=seed,
        class_dim=class_dim,
        output=output,
    )
    tally, group = Tally(), default_group() if distributed else ALONE
    stream = _stream_of(inputs, targets, settings, most=batches, tally=tally)
    first = next(stream)
    device, dtype = check_weights(model)
    check_tensors(model, first)
    found, skipped = blocks_of(model)
    if distributed:
        _check_agreement(model, first, group)
    state = preserve_state(model, seed=seed, call=lambda: first.narrow(0, 2).call(model))
    with state, showing(progress, title=f"measuring {type(model).__name__}"):
        dry = _run_dry(model, first, found, settings)
        resolved = read_loss(first, loss, settings, dry.outputs)
        problem = Problem(
            model, first, resolved, in_execution_order(dry.shape.readable(found), dry.shape.order), skipped
        )
        memory = MemoryBudget.of(max_memory, device)
        memory = memory if max_memory is None else bounded(memory, problem, dry.shape)
        mine = _shares(chain([first], stream), settings, group)
        like = dry.outputs.y
        gathered = group.gather(
            lambda: measure_batches(problem, mine, dry.shape, settings, memory, like=like, signals=signals)
        )
        measured = gathered[0] if per == "batch" else [each for found_there in gathered for each in found_there]
        ran = {"device": device.type, "dtype": str(dtype).removeprefix("torch.")}
        return _report(settings, problem, measured, tally, **ran)


def diagnose_prepared(prepared: Prepared, source: ModelSource, **options: Any) -> Report:
    """Diagnose what `prepare` made of a source; the report says where weights and data came from."""
    report = diagnose(
        prepared.module, prepared.batches(), class_dim=prepared.class_dim, output=source.output, **options
    )
    return replace(
        report,
        model=source.name,
        init=prepared.init,
        data=prepared.data,
        batches_read=prepared.tally.read,
        batches_given=prepared.tally.given,
    )


def blocks_of(model: nn.Module) -> tuple[tuple[Block, ...], tuple[tuple[str, str], ...]]:
    """Find the blocks and what is none; refuse a model without any."""
    found, skipped = find_blocks(model)
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped[:1])
        raise HessdiagError(f"the model {type(model).__name__} has no weight matrix, bias or scalar to measure ({why})")
    return found, skipped


def _stream_of(
    inputs: Any, targets: Tensor | None, settings: Settings, *, most: int | None, tally: Tally
) -> Iterator[Batch]:
    """Read the batches one by one, or all of them as one for the batch view; `most` of them, or all."""
    stream: Iterator[Batch] = islice(batches_of(inputs, targets, tally), most)
    if settings.per == "batch":
        stream = iter([Batch.concatenate(list(stream))])
    return (replace(each, output=settings.output) for each in stream)


def _shares(batches: Iterable[Batch], settings: Settings, group: Processes) -> Iterator[Batch]:
    """This process's share of every batch that has one; the batch view is not shared."""
    for batch in batches:
        mine = group.share(batch.size)
        part = batch if settings.per == "batch" else batch.narrow(mine.start, mine.stop)
        if part.size:
            yield part


def _check_agreement(model: nn.Module, batch: Batch, group: Processes) -> None:
    """Refuse to go on where processes were given different weights or data."""
    held: dict[str, list[Tensor]] = {"weights": [*model.parameters()], "data": [*batch.tensors]}
    for what, tensors in held.items():
        sums = [float(tensor.detach().double().sum()) for tensor in tensors if not tensor.is_complex()]
        held_there: list[list[float]] = group.gather(partial(list, sums))
        if any(other != sums for other in held_there):
            raise HessdiagError(
                f"the processes hold different {what}: give every one the same, seeded alike, and all of the data;"
                " hessdiag deals the examples out itself"
            )


def _run_dry(model: nn.Module, batch: Batch, found: Sequence[Block], settings: Settings) -> DryRun:
    """Run a few examples; the batch view tries its loss on the outputs of more."""
    more = try_model(model, batch, examples=TRIED["batch"]).outputs if settings.per == "batch" else None
    with called_alone(model, min(2, batch.size)):
        return try_model(model, batch, found) if more is None else DryRun(more, measure_shapes(model, batch, found))


def read_loss(batch: Batch, loss: str | LossFunction, settings: Settings, outputs: Outputs) -> Loss:
    """Call the loss once, on the outputs of a few examples: the loss as it will be read."""
    check_labels(batch, loss)
    reading = Reading(settings.class_dim, outputs.class_dim, outputs.scalar, settings.per)
    return resolve_loss(loss, y=outputs.y, targets=batch.targets, seed=settings.seed, reading=reading)


def _report(settings: Settings, problem: Problem, measured: Sequence[Measured], tally: Tally, **ran: Any) -> Report:
    """Put together what all batches gave; `ran` has the fields of a report that say on what."""
    first, sizes = measured[0], [part.examples for part in measured]
    if any(part.blocks != first.blocks for part in measured):
        raise HessdiagError("some examples take another path through the model than others: measure in one process")
    problem = replace(problem, blocks=first.blocks, skipped=first.skipped)
    curvature = merge([part.curvature for part in measured], sizes, rtol=settings.rtol)
    moments = moments_of(problem, add([part.sums for part in measured]), per=settings.per)
    size = sum(sizes) if settings.per == "batch" else 1
    blocks = block_reports(problem, first.shape, moments, curvature, size=size)
    return Report(
        blocks=blocks,
        heatmap=Heatmap(
            names=tuple(block.name for block in problem.weights),
            numel=tuple(block.numel for block in problem.weights),
            frobenius_sq=curvature.frobenius_sq,
            stderr=curvature.stderr,
        ),
        skipped=problem.skipped,
        model=type(problem.model).__name__,
        init="as given",
        loss=problem.loss.name,
        matrix=settings.matrix,
        per=settings.per,
        method=curvature.method,
        method_reason=curvature.reason,
        seed=settings.seed,
        batch_size=sum(sizes),
        batches=tally.read if settings.per == "example" else 1,
        batches_read=tally.read,
        batches_given=tally.given,
        outputs=first.shape.outputs,
        rtol=settings.rtol,
        versions={"hessdiag": _version(), "torch": torch.__version__},
        output_sq=moments.output_sq,
        output_variance=moments.output_variance,
        findings=() if first.signals is None else find(first.signals, blocks),
        signals=first.signals,
        signals_missing=first.missing,
        **ran,
    )


@cache  # it is read from a file
def _version() -> str:
    return metadata.version("hessdiag")


def check_weights(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the weights."""
    lazy = [name for name, parameter in model.named_parameters() if nn.parameter.is_lazy(parameter)]
    if lazy:
        raise HessdiagError(f"parameter {lazy[0]!r} has no shape yet: run the model once before measuring it")
    tensors = list(model.parameters())
    if not tensors:
        raise HessdiagError(f"the model {type(model).__name__} has no parameters: there is nothing to measure")
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise HessdiagError(f"parameter {name!r} holds NaN or infinite values: initialise or load it first")
    return tensors[0].device, tensors[0].dtype


def in_execution_order(blocks: Sequence[Block], order: Sequence[str]) -> tuple[Block, ...]:
    """Blocks by the first call of their layers; those never called come last."""
    place = {owner: number for number, owner in enumerate(order)}
    return tuple(sorted(blocks, key=lambda block: min(place.get(owner, len(place)) for owner in block.owners)))
