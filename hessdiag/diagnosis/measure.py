"""Measure one batch after the other, and report it: theory and measurement of every block side by side."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessdiag import scaling
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.norms import Curvature, merge
from hessdiag.data.batch import Batch
from hessdiag.data.memory import OVERHEAD, MemoryBudget, Sums, unless_out_of_memory
from hessdiag.data.seeds import draws_outside
from hessdiag.data.stream import Tally
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis import checks
from hessdiag.diagnosis.checks import GradientColumn
from hessdiag.diagnosis.fit import with_fit
from hessdiag.diagnosis.moments import misread_in, sum_moments
from hessdiag.diagnosis.rules import find
from hessdiag.diagnosis.signals import MAX_EXAMPLES
from hessdiag.errors import CoupledError, HessdiagError
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.torch_state import fixed_statistics
from hessdiag.network.trace import LayerShape, NetworkShape, measured_layers
from hessdiag.results.numbers import geometric_mean
from hessdiag.results.records import versions
from hessdiag.results.report import BlockReport, Heatmap, Report
from hessdiag.results.signals import Signals

LARGE = 2**24  # bytes of all parameters, whose gradients cost much: fewer examples are checked one by one
GRADIENTS = 8  # of all parameters, that examples may take the memory of
ROUNDINGS = 16  # of one number, that the sum of many is off by at most

# What a measurement takes whatever is asked, by measurement: gradients of all parameters and of the largest one while
# the model is checked, of all while blocks are measured, copies of the batch, and a few gradients of an example.
CHECKED, LARGEST, MEASURED, COPIES, COTANGENTS, WORKING = 5, 2, 3, 2, 4, 2
MOMENTS = ("x_sq", "out_sq", "x_gradient_sq", "out_gradient_sq")
FACTORS = ("activation_scaling", "gamma", "gamma_intrinsic", "gamma_curvature")


@dataclass(frozen=True)
class Measured:
    """What one batch gave, or a process's share of it."""

    examples: int  # how many
    blocks: Sequence[Block]  # blocks, shape, skipped: how they were read
    shape: NetworkShape
    skipped: tuple[tuple[str, str], ...]
    sums: Sums  # see `hessdiag.diagnosis.moments.sum_moments`
    curvature: Curvature
    signals: Signals | None  # of the first batch
    missing: str  # why there are none


def measure(  # noqa: PLR0913, keyword-only options
    problem: Problem, batches: Iterable[Batch], settings: Settings, memory: MemoryBudget, *, like: Tensor,
    signals: bool, fit: bool, whole: bool,
) -> list[Measured]:  # fmt: skip
    """Measure one batch after the other; how the blocks are read is settled on the first. `like` are outputs of a few
    examples, `whole` says that the batches are all examples, and no process's share.
    """
    alone = 2 if settings.quick or problem.shape.parameters >= LARGE else checks.FEW
    few = problem.batch.narrow(0, max(2, min(_chunk(problem, memory), alone)))
    with fixed_statistics() if problem.coupled else nullcontext():  # in normalisations alone examples may meet
        try:
            problem, mixed = check_few(problem, few, settings, before=like)
        except CoupledError as error:
            problem, mixed = _meeting(problem, settings, whole, error), set()

    def moments(problem: Problem, examples: int) -> tuple[Problem, Sums, tuple[Signals | None, str]]:
        chunk = _chunk(problem, memory)
        try:
            return problem, *sum_moments(problem, settings, chunk=chunk, mixed=mixed, signals=examples)
        except CoupledError as error:
            return moments(_meeting(problem, settings, whole, error), examples)

    measured: list[Measured] = []
    for batch in batches:
        if measured:
            problem.loss.check_targets(batch.targets, like)
        problem = replace(problem, batch=batch, loss=problem.loss.of_batch(batch.targets, like))
        at_once = max(checks.FEW, problem.shape.chunk(2, memory=memory.total // OVERHEAD))
        shown = min(MAX_EXAMPLES, at_once, batch.size) if signals and not measured else 0
        problem, sums, found = moments(problem, shown)
        misread = misread_in(problem, sums)
        if misread and measured:
            which = f"block {next(iter(misread))!r} is used in another way from example {batch.offset} on"
            raise HessdiagError(f"{which}: measure batches that take the same path through the model, one at a time")
        if misread:  # its Jacobian cannot be had by a rule
            plain = [replace(b, structured=b.structured and b.name not in misread) for b in problem.blocks]
            problem = problem.read_as(plain)
            problem, sums, _ = moments(problem, 0)
            problem = problem.without(misread_in(problem, sums))
        if fit and (seen := found[0]) is not None:
            found = with_fit(problem, seen, settings.seed, again=partial(moments, problem, seen.examples)), ""
        kept = (batch.size, problem.blocks, problem.shape, problem.skipped)
        measured.append(Measured(*kept, sums, measure_curvature(problem, settings, memory), *found))
    return measured


def _meeting(problem: Problem, settings: Settings, whole: bool, error: CoupledError) -> Problem:
    """In a quick diagnosis, what runs through a network in which examples meet: it is there to see all the same."""
    if not settings.quick or "meeting" in problem.noted or not whole:
        raise error
    few = problem.batch.narrow(0, checks.MORE)
    with checks.moved(problem.model, settings.seed) if checks.alike(few.call(problem.model)) else nullcontext():
        found = {"meeting": None} if draws_outside() else checks.where_mixed(problem, few, settings.seed)
    return replace(problem, coupled=True, noted={**problem.noted, **found})  # none is known of other numbers


def check_few(problem: Problem, few: Batch, settings: Settings, *, before: Tensor) -> tuple[Problem, set[str]]:
    """Check the model on a few examples, on two at least where more do not fit into memory. Returned are the problem
    with its blocks as they can be read, and the layers whose rows are no examples.
    """
    nearby = not settings.quick or checks.alike(before)
    read = partial(checks.as_read, problem, few, settings.seed, before=before, nearby=nearby)
    found = unless_out_of_memory(read, examples=max(1, few.size - 1))
    return found or check_few(problem, few.narrow(0, max(2, few.size // 2)), settings, before=before)


def _chunk(problem: Problem, memory: MemoryBudget) -> int:
    """Examples at once in a pass with few cotangents, of which each chunk has gradients of all parameters."""
    room = min(GRADIENTS * problem.shape.parameters, memory.total // OVERHEAD)
    return problem.shape.chunk(4, memory=max(memory.chunk, room))


def bounded(memory: MemoryBudget, problem: Problem) -> MemoryBudget:
    """The memory that is left for examples and their cotangents; refused is less than these take."""
    parameters, inputs = problem.shape.parameters, sum(tensor.nbytes for tensor in problem.batch.tensors)
    held = CHECKED * parameters + LARGEST * max(p.nbytes for p in problem.model.parameters()) + COPIES * inputs
    least = held + WORKING * problem.shape.bytes_per_example(COTANGENTS)
    if memory.total < least:
        asked, taken, data, wanted = (f"{-(-size // 2**20)}MiB" for size in (memory.total, parameters, inputs, least))
        what = f"gradients of {taken} of parameters, {data} of inputs and one example at a time take about {wanted}"
        raise HessdiagError(f"max_memory {asked}: {what}: pass at least that, or a smaller batch")
    left = memory.total - MEASURED * parameters - COPIES * inputs
    return replace(memory, total=left, chunk=min(memory.chunk, max(memory.total - held, 0) // OVERHEAD))


@dataclass(frozen=True)
class LayerMoments:
    """Second moments of one layer's surroundings, over elements and examples."""

    multiplies: bool  # its input by its one learnable scalar
    x_sq: float  # E[x_l²]
    x_gradient_sq: float  # E[Δx_l²]
    out_sq: float  # E[x_{l+1}²]
    out_gradient_sq: float  # E[Δx_{l+1}²]
    out_curvature_sq: float  # the same with Δ the back-propagated S u, u ~ N(0, 1); times E[y²] for γ_curvature


@dataclass(frozen=True)
class Moments:
    """Moments of all examples."""

    layers: Mapping[str, LayerMoments]  # by owner path; those that were called
    gradient_sq: Mapping[str, float]  # by block name, E[ΔW²], Δ the gradient of one example's or of the mean loss
    output_sq: float  # E[y²]
    output_variance: float  # E[y²] − E[y]²
    without: frozenset[str]  # blocks whose gradients are rounding, as those of a bias that a normalisation subtracts


def moments_of(problem: Problem, sums: Sums, *, per: str) -> Moments:
    """Moments from sums over examples."""
    examples, count, output_sum, output_sq = (float(value) for value in sums["outputs"])
    layers = {}
    for owner in measured_layers(problem.model, problem.blocks):
        x_count, out_count, x_sq, dx, out_sq, dout, dcurved, more_than_multiplied = sums[f"layer {owner}"]
        if x_count:
            counts = (x_count, x_count, out_count, out_count, out_count)
            means = map(_mean, (x_sq, dx, out_sq, dout, dcurved), counts)
            layers[owner] = LayerMoments(not more_than_multiplied, *means)
    squared, without = {}, frozenset(block.name for block in problem.blocks if _is_rounding(problem, block, sums))
    for block in problem.blocks:
        square = float(sums[f"block {block.name}"][GradientColumn.SQ]) / float(sums["measured"])
        if per == "batch":
            square = float(np.square(sums[f"gradient {block.name}"] / examples).sum())
        squared[block.name] = 0.0 if block.name in without else square / block.numel
    mean, mean_sq = _mean(output_sum, count), _mean(output_sq, count)
    return Moments(layers, squared, mean_sq, mean_sq - mean**2, without)


def _is_rounding(problem: Problem, block: Block, sums: Sums) -> bool:
    row, eps = sums[f"block {block.name}"], torch.finfo(block_parameter(problem.model, block).dtype).eps
    size = max(float(row[GradientColumn.SQ]), float(row[GradientColumn.SCALE]))
    return 0 < size <= (ROUNDINGS * eps) ** 2 * float(row[GradientColumn.TERMS])


def _mean(total: float, count: float) -> float:
    return float(total / count) if count else math.nan


def block_reports(
    problem: Problem, moments: Moments, curvature: Curvature, *, size: int, matrix: str
) -> tuple[BlockReport, ...]:
    """One entry a block; the scaling factors are those of one example over `size`, 1 or the B of the batch view."""
    rows = []
    for i, (block, ended) in enumerate(zip(problem.blocks, curvature.ended, strict=True)):
        weight_sq = float(block_parameter(problem.model, block).detach().double().square().mean())
        scales = _scales(block, problem.shape, moments, weight_sq)
        scales |= {key: scales[key] / size for key in FACTORS[1:]}
        norm = float(curvature.frobenius_sq[i, i])
        none = block.name in moments.without and matrix == "ggn" and not math.isnan(norm)
        sigma = 0.0 if none else norm / block.numel
        rows.append(BlockReport(
            **block.described, **scales, weight_sq=weight_sq, relative_ratio=math.nan,
            nu=scaling.nu(gradient_sq=moments.gradient_sq[block.name], weight_sq=weight_sq),
            avg_sq_singular_value=sigma, stderr=float(curvature.stderr[i, i]) / block.numel,
            ratio=scales["gamma"] / sigma if sigma > 0 and block.name not in moments.without else math.nan,
            products=int(curvature.products[i]), ended=ended, trace=0.0 if none else float(curvature.traces[i]),
        ))  # fmt: skip
    usual = geometric_mean([row.ratio for row in rows if row.kind == "weight"])
    return tuple(replace(row, relative_ratio=row.ratio / usual) for row in rows)


def _scales(block: Block, shape: NetworkShape, moments: Moments, weight_sq: float) -> dict[str, Any]:
    """Sites, per-example factors and moments of one block; NaN where the theory has none or it was never called."""
    found: dict[str, Any] = {"sites_in": 0, "sites_out": 0, **dict.fromkeys(FACTORS, math.nan)}
    owners = [owner for owner in block.owners if owner in moments.layers]
    if len(owners) != 1:  # never called, or shared by layers whose surroundings differ
        return found
    layer = moments.layers[owners[0]]
    found |= {key: getattr(layer, key) for key in MOMENTS}
    if not block.multiplies:
        return found
    sizes = shape.layers[owners[0]]
    varsigma = scaling.activation_scaling(sizes.inputs, layer.x_gradient_sq, layer.x_sq)
    intrinsic = math.nan
    if block.kind == "weight" or layer.multiplies:
        intrinsic = scaling.gamma_intrinsic(scaling=varsigma, numel=block.numel, weight_sq=weight_sq)
    gamma = _gamma(block, sizes, layer, layer.out_gradient_sq)
    curved = _gamma(block, sizes, layer, layer.out_curvature_sq * moments.output_sq)
    factors = zip(FACTORS, (varsigma, gamma, intrinsic, curved), strict=True)
    return found | {"sites_in": sizes.sites_in, "sites_out": sizes.sites, **dict(factors)}


def _gamma(block: Block, sizes: LayerShape, layer: LayerMoments, delta_sq: float) -> float:
    if block.kind == "scalar" and not layer.multiplies:
        return math.nan
    # A scalar multiplies every element of its input: a 1x1 convolution's factor n ρ² with fan-in n.
    return scaling.gamma(
        block.kind, fan_in=sizes.channels_in if block.kind == "scalar" else block.fan_in,
        kernel=math.prod(block.kernel), sites_out=sizes.sites, x_sq=layer.x_sq, delta_sq=delta_sq, out_sq=layer.out_sq,
    )  # fmt: skip


def report_of(settings: Settings, problem: Problem, measured: Sequence[Measured], tally: Tally, **ran: Any) -> Report:
    """Put together what all batches gave; `ran` has the fields of a report that say on what."""
    first, sizes = measured[0], [part.examples for part in measured]
    if any(part.blocks != first.blocks for part in measured):
        raise HessdiagError("some examples take another path through the model than others: measure in one process")
    problem = replace(problem, blocks=first.blocks, shape=first.shape, skipped=first.skipped)
    moments = moments_of(problem, sum((part.sums for part in measured), Sums()), per=settings.per)
    curvature = merge([part.curvature for part in measured], sizes)
    size = sum(sizes) if settings.per == "batch" else 1
    weights = [i for i, block in enumerate(problem.blocks) if block.kind == "weight" and not settings.quick]
    heatmap = Heatmap(
        names=tuple(problem.blocks[i].name for i in weights), numel=tuple(problem.blocks[i].numel for i in weights),
        frobenius_sq=curvature.frobenius_sq[weights][:, weights], stderr=curvature.stderr[weights][:, weights],
    )  # fmt: skip
    return Report(
        blocks=block_reports(problem, moments, curvature, size=size, matrix=settings.matrix), heatmap=heatmap,
        model=type(problem.model).__name__, init="as given", loss=problem.loss.name, skipped=problem.skipped,
        matrix=settings.matrix, mode=settings.mode, seed=settings.seed, rtol=settings.rtol,
        method=curvature.method, method_reason=curvature.reason, versions=versions(),
        batch_size=sum(sizes), batches=tally.read if settings.per == "example" else 1,
        batches_read=tally.read, batches_given=tally.given, outputs=problem.shape.outputs,
        output_sq=moments.output_sq, output_variance=moments.output_variance,
        findings=() if first.signals is None else find(first.signals), signals=first.signals,
        signals_missing=first.missing, **ran,
    )  # fmt: skip
