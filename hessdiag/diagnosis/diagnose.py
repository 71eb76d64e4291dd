"""The diagnostic: capture, moments, curvature, report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib import metadata
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_loss, check_path, check_whole
from hessdiag.curvature.result import merge
from hessdiag.curvature.settings import Settings
from hessdiag.data.batch import Batch, Inputs
from hessdiag.data.outputs import Outputs
from hessdiag.data.stream import Tally, batches_of, count_batches
from hessdiag.derivatives.losses import Loss, LossFunction, Reading, resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.block_reports import block_reports
from hessdiag.diagnosis.independence import called_alone
from hessdiag.diagnosis.look import NOT_ASKED, Look, look_at
from hessdiag.diagnosis.memory_bound import bounded
from hessdiag.diagnosis.moments import moments_of
from hessdiag.diagnosis.network_signals import MAX_EXAMPLES
from hessdiag.diagnosis.session import Measured, Session, check_tensors
from hessdiag.errors import HessdiagError
from hessdiag.execution.identity import digest_of_attributes, digest_of_code, digest_of_loss, digest_of_model
from hessdiag.execution.journal import journal
from hessdiag.execution.memory import Memory, watching_peak
from hessdiag.execution.progress import Progress, announce_batch, watched
from hessdiag.execution.ranks import ALONE, Ranks, all_ranks
from hessdiag.execution.work import Work, add
from hessdiag.loading.model_source import ModelSource
from hessdiag.loading.prepare import Prepared
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.preserve import preserve_state
from hessdiag.network.shapes import DryRun, NetworkShape, measure_shapes
from hessdiag.results.report import Heatmap, Report
from hessdiag.torch_arguments import check_model
from hessdiag.user_code.trial import check_labels, try_model

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
    rtol: float = 0.05,
    seed: int = 0,
    max_products: int = 400,
    max_memory: int | str | None = None,
    batches: int | None = None,
    signals: bool = True,
    resume: str | os.PathLike[str] | None = None,
    distributed: bool = False,
    progress: Progress | bool | None = None,
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
        rtol: relative standard error of the diagonal at which random sampling stops.
        seed: of the loss and of all random directions.
        max_products: matrix-vector products that sampling may spend on one block (per example).
        max_memory: memory that the measurement may take beside model and data, in bytes or as `"4GiB"`; by default half
            of what is free.
        batches: how many batches of an iterable to read; None reads all.
        signals: also measure the signals that run through the network, and apply the rules to them; without them, no
            finding is made and the verdict is undecided.
        resume: file in which finished units of work are kept; a killed run that is started again with the same file
            goes on where it was, to the same numbers.
        distributed: share the work with the other processes of torch.distributed's default group. All call this with
            the same model and all of the data, and all return the same report.
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
    _check(model, loss, resume, batches)
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
    tally = Tally()
    stream = _stream_of(inputs, targets, settings, most=batches, tally=tally)
    batch = next(stream)
    device, dtype = check_weights(model)
    check_tensors(model, batch)
    found, skipped = blocks_of(model)
    ranks = all_ranks() if distributed else ALONE
    session = Session(settings, Memory.of(max_memory, device))
    named = resume is not None or distributed  # of the model as given: a forward pass may leave something in it
    identity = _agreed(settings.identity | _identity_of(model, loss), ranks) if named else {}
    with (
        preserve_state(model, seed=seed, call=lambda: batch.narrow(0, 2).call(model)),
        watching_peak(device) as peak,
        ExitStack() as stack,
    ):
        dry = _run_dry(model, batch, found, settings)
        shape, resolved = dry.shape, read_loss(batch, loss, settings, dry.outputs)
        problem = Problem(model, batch, resolved, in_execution_order(shape.readable(found), shape.order), skipped)
        session = session if max_memory is None else replace(session, memory=bounded(session.memory, problem, shape))
        work = Work(ranks, progress=stack.enter_context(watched(progress, title=f"measuring {type(model).__name__}")))
        stream = _announced(stream, work.progress, known=_number_of_batches(inputs, batches) if per == "example" else 1)
        if resume is not None:
            work = replace(work, journal=stack.enter_context(journal(resume, identity)))
        problem, shape, measured = session.measure(problem, shape, dry.outputs.y, stream, work)
        seen = _look(session, replace(problem, batch=batch), shape, measured) if signals else NOT_ASKED
    ran = {"device": device.type, "dtype": str(dtype).removeprefix("torch."), "peak_memory": peak[0]}
    return _report(settings, problem, shape, measured, seen, tally, **ran)


def _look(session: Session, problem: Problem, shape: NetworkShape, measured: Sequence[Measured]) -> Look:
    """Look at the first batch, whose gradient is that of the measurement where no other was measured after it."""
    size, chunk = problem.batch.size, session.gradient_chunk(shape)
    alone = len(measured) == 1 and size <= MAX_EXAMPLES
    gradients = session.gradient_sum(problem, shape).reached(size) if alone else None
    return look_at(problem.model, problem.batch, problem.loss, chunk=chunk, gradients=gradients)


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


def _check(model: Any, loss: Any, resume: Any, batches: int | None) -> None:
    """Refuse what is not of the kind that it has to be."""
    check_model(model)
    check_loss(loss)
    check_path("resume", resume)
    if batches is not None:
        check_whole("batches", batches, least=1)


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


def _announced(later: Iterator[Batch], progress: Callable[..., None], *, known: int | None) -> Iterator[Batch]:
    """The batches behind the first, each announced when it is read, as the first one is now."""
    announce_batch(progress, 1, known)

    def told(number: int, batch: Batch) -> Batch:
        announce_batch(progress, number, known)
        return batch

    return map(told, count(2), later)


def _number_of_batches(inputs: Any, most: int | None) -> int | None:
    """How many batches will be read, where that is known beforehand."""
    length = count_batches(inputs)
    return most if length is None else length if most is None else min(length, most)


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


def _report(
    settings: Settings,
    problem: Problem,
    shape: NetworkShape,
    measured: Sequence[Measured],
    seen: Look,
    tally: Tally,
    **ran: Any,
) -> Report:
    """Put together what all batches gave; `ran` has the fields of a report that say on what."""
    sizes = [part.examples for part in measured]
    curvature = merge([part.curvature for part in measured], sizes, rtol=settings.rtol)
    moments = moments_of(problem, add([part.moments for part in measured]))
    if settings.per == "batch":
        moments = replace(moments, gradient_sq=measured[0].batch_gradient_sq)
    size = sum(sizes) if settings.per == "batch" else 1
    blocks = block_reports(problem, shape, moments, curvature, size=size)
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
        method=measured[0].plan.method,
        method_reason="; ".join(filter(None, (measured[0].plan.reason, curvature.how))),
        seed=settings.seed,
        batch_size=sum(sizes),
        batches=len(measured),
        batches_read=tally.read,
        batches_given=tally.given,
        outputs=shape.outputs,
        rtol=settings.rtol,
        versions={"hessdiag": _version(), "torch": torch.__version__},
        output_sq=moments.output_sq,
        output_variance=moments.output_variance,
        findings=seen.findings(blocks),
        signals=seen.signals,
        signals_missing=seen.reason,
        **ran,
    )


@cache  # it is read from a file
def _version() -> str:
    return metadata.version("hessdiag")


def _identity_of(model: nn.Module, loss: str | LossFunction) -> dict[str, str]:
    return {
        "weights": digest_of_model(model),
        "loss": digest_of_loss(loss),
        "code": digest_of_code(model),
        "attributes": digest_of_attributes(model),
        "device": next(model.parameters()).device.type,
        "dtype": str(next(model.parameters()).dtype),
    }


def _agreed(identity: Mapping[str, str], ranks: Ranks) -> Mapping[str, str]:
    """The first rank's identity, so that all of them open the same file; attributes may hold a rank's own number."""
    for what in ("weights", "code", "loss"):
        ranks.agree(what, identity[what])
    return ranks.gather(identity)[0]


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
