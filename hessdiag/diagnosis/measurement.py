"""The course of a measurement: how the model is read, then moments, signals and curvature, batch after batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.norms import Curvature
from hessdiag.data.batch import Batch
from hessdiag.data.memory import OVERHEAD, MemoryBudget, unless_out_of_memory
from hessdiag.data.sums import Sums
from hessdiag.derivatives.losses import check_targets
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis import checks
from hessdiag.diagnosis.moments import misread_in, sum_moments
from hessdiag.diagnosis.signals import MAX_EXAMPLES, SignalSums
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, looked_up_in_common, measured_layers
from hessdiag.network.shapes import NetworkShape, measure_shapes
from hessdiag.results.signals import Signals

LARGE = 2**24  # bytes of all parameters, whose gradients cost much: fewer examples are checked one by one
GRADIENTS = 8  # of all parameters, that examples may take the memory of

# What a measurement takes whatever is asked, by measurement: gradients of all parameters and of the largest one while
# the model is checked, of all while blocks are measured, copies of the batch, and a few gradients of an example.
CHECKED, LARGEST, MEASURED, COPIES, COTANGENTS, WORKING = 5, 2, 3, 2, 4, 2


@dataclass(frozen=True)
class Measured:
    """What one batch gave, or a process's share of it.

    Attributes:
        examples: how many.
        blocks, skipped: how they were read.
        shape: of the network, read like that.
        sums: see `hessdiag.diagnosis.moments`.
        curvature: of its examples.
        signals, missing: of the first batch, or why there are none.
    """

    examples: int
    blocks: tuple[Block, ...]
    skipped: tuple[tuple[str, str], ...]
    shape: NetworkShape
    sums: Sums
    curvature: Curvature
    signals: Signals | None = None
    missing: str = "they were not asked for"


def measure_batches(
    problem: Problem,
    batches: Iterable[Batch],
    shape: NetworkShape,
    settings: Settings,
    memory: MemoryBudget,
    *,
    like: Tensor,
    signals: bool,
) -> list[Measured]:
    """Measure one batch after the other; how the blocks are read is settled on the first.

    Args:
        problem: with a batch of which a few examples are checked.
        batches: those to measure.
        shape: of the network.
        settings, memory: of the measurement.
        like: outputs of an example or two.
        signals: whether to measure them on the first batch.

    Raises:
        HessdiagError: the model cannot be measured right, or a batch is unlike the first.
    """
    alone = 2 if shape.parameters >= LARGE else checks.FEW
    few = problem.batch.narrow(0, max(2, min(gradient_chunk(shape, memory), alone)))
    shaped = list(problem.blocks)
    problem, mixed = _check_few(problem, few, settings.seed)
    measured: list[Measured] = []
    for batch in batches:
        check_tensors(problem.model, batch)
        if measured:
            check_targets(problem.loss, like=like, targets=batch.targets)
        given = replace(problem, batch=batch)
        seen = SignalSums() if signals and not measured else None
        sums = _moments(given, shape, settings, memory, mixed, seen)
        misread = misread_in(given, sums)
        if misread and measured:
            raise HessdiagError(
                f"block {next(iter(misread))!r} is used in another way from example {batch.offset} on:"
                " measure batches that take the same path through the model, one kind at a time"
            )
        if misread:  # its Jacobian cannot be had by a rule
            plain = [replace(b, structured=b.structured and b.name not in misread) for b in given.blocks]
            given = replace(given, blocks=plain)
            sums = _moments(given, shape, settings, memory, mixed, None)
            given = without(given, misread_in(given, sums))
        if list(given.blocks) != shaped:
            shaped, shape = list(given.blocks), measure_shapes(given.model, given.batch, given.blocks)
        problem = given
        measured.append(_with_curvature(problem, shape, settings, memory, sums, seen))
    return measured


def _check_few(problem: Problem, few: Batch, seed: int) -> tuple[Problem, set[str]]:
    """Check the model on a few examples, on two at least where more do not fit into memory; see `_as_read`."""
    found = unless_out_of_memory(lambda: _as_read(problem, few, seed), examples=max(1, few.size - 1))
    return _check_few(problem, few.narrow(0, max(2, few.size // 2)), seed) if found is None else found


def _as_read(problem: Problem, few: Batch, seed: int) -> tuple[Problem, set[str]]:
    """The blocks as they can be read, and layers whose rows are no examples."""
    model, blocks = problem.model, problem.blocks
    checks.repeatable(model, few)
    owners, in_common = measured_layers(model, blocks), looked_up_in_common(blocks)
    if any(b.looked_up and b.structured for b in blocks) and not checks.same_when_traced(model, few, owners, in_common):
        blocks = [replace(b, structured=b.structured and not b.looked_up) for b in blocks]
        owners, in_common = measured_layers(model, blocks), frozenset()
    mixed = checks.examples_apart(model, few, owners, in_common=in_common, seed=seed)
    elsewhere = checks.apart_nearby(model, few, seed=seed)
    left = {block.name: checks.READ_ELSEWHERE for block in blocks if block.name in elsewhere}
    return without(replace(problem, blocks=blocks), left), mixed


def _moments(
    problem: Problem,
    shape: NetworkShape,
    settings: Settings,
    memory: MemoryBudget,
    mixed: Collection[str],
    signals: SignalSums | None,
) -> Sums:
    chunk, whole = gradient_chunk(shape, memory), settings.per == "batch"
    return sum_moments(problem, chunk=chunk, seed=settings.seed, mixed=mixed, signals=signals, whole=whole)


def _with_curvature(
    problem: Problem,
    shape: NetworkShape,
    settings: Settings,
    memory: MemoryBudget,
    sums: Sums,
    seen: SignalSums | None,
) -> Measured:
    """What a batch gives, once its moments are summed."""
    curvature = measure_curvature(problem, shape, settings, memory)
    found: tuple[Signals | None, str] = (None, "they were not asked for")
    if seen is not None:
        batch, chunk = problem.batch.narrow(0, MAX_EXAMPLES), gradient_chunk(shape, memory)
        found = seen.found(problem.model, batch, problem.loss, chunk=chunk)
    return Measured(problem.batch.size, tuple(problem.blocks), problem.skipped, shape, sums, curvature, *found)


def gradient_chunk(shape: NetworkShape, memory: MemoryBudget) -> int:
    """Examples at once in a pass with few cotangents.

    As each chunk has gradients of all parameters, those may take several times their memory.
    """
    room = min(GRADIENTS * shape.parameters, memory.total // OVERHEAD)
    return shape.chunk(4, memory=max(memory.chunk, room))


def without(problem: Problem, left: Mapping[str, str]) -> Problem:
    """The problem without some blocks, which are skipped for a reason each.

    Raises:
        HessdiagError: no block is left.
    """
    kept = [block for block in problem.blocks if block.name not in left]
    if not kept:
        raise HessdiagError(f"no block can be measured; {next(iter(left))!r}: {next(iter(left.values()))}")
    return replace(problem, blocks=kept, skipped=(*problem.skipped, *left.items()))


def bounded(memory: MemoryBudget, problem: Problem, shape: NetworkShape) -> MemoryBudget:
    """The memory that is left for examples and their cotangents.

    Raises:
        HessdiagError: what was asked for is less than a measurement of this model and batch takes.
    """
    largest = max(parameter.nbytes for parameter in problem.model.parameters())
    inputs = sum(tensor.nbytes for tensor in problem.batch.tensors)
    held = CHECKED * shape.parameters + LARGEST * largest + COPIES * inputs
    least = held + WORKING * shape.bytes_per_example(COTANGENTS)
    if memory.total < least:
        raise HessdiagError(
            f"max_memory {_mebibytes(memory.total)}: gradients of {_mebibytes(shape.parameters)} of parameters,"
            f" {_mebibytes(inputs)} of inputs and one example at a time take about {_mebibytes(least)}:"
            " pass at least that, or a smaller batch"
        )
    left = memory.total - MEASURED * shape.parameters - COPIES * inputs
    return replace(memory, total=left, chunk=min(memory.chunk, max(memory.total - held, 0) // OVERHEAD))


def _mebibytes(size: int) -> str:
    """Bytes as they can be passed, rounded up."""
    return f"{-(-size // 2**20)}MiB"


def check_tensors(model: nn.Module, batch: Batch) -> None:
    """Refuse a batch that is not on the model's device or not in its floating-point type."""
    tensors = (*model.parameters(), *batch.tensors)
    devices = {str(t.device) for t in tensors}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in tensors if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both to float32 or float64")
