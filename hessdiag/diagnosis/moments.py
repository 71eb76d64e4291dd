"""Second moments of activations, gradients and weights: one forward and one backward pass over the batch.

Gradients are those of each example's own loss. Moments are means over elements *and* examples, taken before any γ is
formed. The same pass verifies the capture: for random cotangents of the outputs, whatever the loss, a weight gradient
assembled from what the hooks saw must equal the one that autograd computes, and each row of a layer must belong to one
example (`hessdiag.diagnosis.independence`). What fails is measured otherwise or refused, so that no number rests on
a layer that hessdiag misread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import hessian_matrix, hessian_products
from hessdiag.derivatives.magnitude import SquaresOnce, largest_entry, sum_of_squares
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.batch_gradient import GradientSum, trainable, watch_measured
from hessdiag.diagnosis.gradient_check import CheckedGradients, GradientColumn, compare_gradients, rounding, why_misread
from hessdiag.diagnosis.independence import (
    PAIRWISE,
    SentAlone,
    alone_in,
    called_alone,
    check_inputs,
    check_outputs,
    check_pairs,
    check_repeatable,
    differentiable,
    halves_of,
    mixes_rows,
)
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import gaussians, stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import block_parameter, looked_up_in_common, measured_layers
from hessdiag.network.trace import LayerCall, Trace, backpropagate

MAX_CURVATURE_PROBES = 4  # per example, where the network has many outputs
CHECKED = 32  # at least so many examples of a batch are given a random cotangent
CHECKED_OF_LARGE = 2  # the same where an example costs much
NO_CURVATURE = 1e-12  # of the largest: rounding of float64
CURVATURE_SAMPLES = 1024  # enough for about 2 % noise in gamma_curvature at an effective rank of 4


class _Layer(IntEnum):
    """Columns of the sums that are kept of every layer."""

    X_COUNT = 0
    X_SQ = 1
    X_GRADIENT_SQ = 2
    OUT_COUNT = 3
    OUT_SQ = 4
    OUT_GRADIENT_SQ = 5
    OUT_CURVATURE_SQ = 6
    NOT_MULTIPLIED = 7  # calls that did more than multiply by the layer's scalar


@dataclass(frozen=True)
class LayerMoments:
    """Second moments of one layer's surroundings, over elements and examples.

    Attributes:
        x_sq, x_gradient_sq: E[x_l²] and E[Δx_l²].
        out_sq, out_gradient_sq: E[x_{l+1}²] and E[Δx_{l+1}²].
        out_curvature_sq: E[Δx_{l+1}²] with Δ the back-propagated S u, u ~ N(0, 1); multiply by E[y²] for γ_curvature.
        multiplies: whether the layer multiplies its input by its one learnable scalar.
    """

    x_sq: float
    x_gradient_sq: float
    out_sq: float
    out_gradient_sq: float
    out_curvature_sq: float
    multiplies: bool


@dataclass(frozen=True)
class Moments:
    """Moments of all examples.

    Attributes:
        layers: by owner path; those that were called.
        gradient_sq: by block name, E[ΔW²] with Δ the gradient of one example's loss, or of the batch-mean loss.
        output_sq, output_variance: E[y²] and E[y²] − E[y]².
        misread: by block name, why its Jacobian cannot be had in the way that was tried.
        undecided: blocks of those whose gradient is so small that rounding may be why it was not reproduced.
    """

    layers: Mapping[str, LayerMoments]
    gradient_sq: Mapping[str, float]
    output_sq: float
    output_variance: float
    misread: Mapping[str, str]
    undecided: frozenset[str]


@dataclass(frozen=True)
class Checks:
    """How much of a batch is checked while its moments are measured.

    Attributes:
        seed: of the random cotangents.
        alone: of so many examples each is taken by itself, but of two at least.
        large: an example costs much, so that fewer are checked.
    """

    seed: int
    alone: int = PAIRWISE
    large: bool = False

    def first(self, batch: Batch, at_once: int) -> Batch:
        """The examples that are taken by themselves, of a batch of which so many are measured at once."""
        return batch.narrow(0, max(2, min(at_once, 2 if self.large else PAIRWISE, self.alone)))

    def numbers(self, batch: Batch) -> frozenset[int]:
        """Numbers of the examples whose outputs are given a random cotangent: all of a few, spread over many."""
        least = CHECKED_OF_LARGE if self.large else CHECKED
        if batch.size < 2 * least:
            return frozenset(batch.numbers)
        order = torch.randperm(batch.size, generator=stream(self.seed, f"checked examples from {batch.offset}"))
        return frozenset(batch.numbers[place] for place in order[: max(least, batch.size // 8)].tolist())


def sum_moments(
    problem: Problem,
    *,
    chunk: int,
    checks: Checks,
    gradients: GradientSum,
    work: Work = ALL_HERE,
) -> Result:
    """What `moments_of` makes moments of: sums over the examples of a batch, which add up over batches.

    Args:
        problem: what to measure.
        chunk: examples at a time.
        checks: of how the network is read.
        gradients: is given the gradient of all trainable parameters by the way.
        work: carries it out.

    Raises:
        HessdiagError: the model is random, or one example's loss depends on another example, as with batch
            normalisation in training mode.
    """
    gradients.start(problem.model)
    parts, chosen = list(problem.batch.chunks(chunk)), checks.numbers(problem.batch)
    return work.total("moments", parts, lambda part: _sums(problem, part, checks, chosen, gradients))


def moments_of(problem: Problem, sums: Result) -> Moments:
    """Moments from sums over examples."""
    examples, count, output_sum, output_sq = (float(value) for value in sums["outputs"])
    layers = {}
    for owner, row in zip(measured_layers(problem.model, problem.blocks), sums["layers"], strict=True):
        if row[_Layer.X_COUNT]:
            layers[owner] = LayerMoments(
                x_sq=_mean(row[_Layer.X_SQ], row[_Layer.X_COUNT]),
                x_gradient_sq=_mean(row[_Layer.X_GRADIENT_SQ], row[_Layer.X_COUNT]),
                out_sq=_mean(row[_Layer.OUT_SQ], row[_Layer.OUT_COUNT]),
                out_gradient_sq=_mean(row[_Layer.OUT_GRADIENT_SQ], row[_Layer.OUT_COUNT]),
                out_curvature_sq=_mean(row[_Layer.OUT_CURVATURE_SQ], row[_Layer.OUT_COUNT]),
                multiplies=not row[_Layer.NOT_MULTIPLIED],
            )
    gradients = sums["gradients"]
    misread, undecided = {}, set()
    largest = max((float(row[GradientColumn.CHECK_SCALE]) for row in gradients), default=0.0)
    for block, row in zip(problem.blocks, gradients, strict=True):
        eps = torch.finfo(block_parameter(problem.model, block).dtype).eps
        why = why_misread(block, row, eps)
        if why:
            misread[block.name] = why
            if not block.structured and row[GradientColumn.CHECK_MISMATCH] <= rounding(eps) * largest:
                undecided.add(block.name)
    squared = {
        block.name: float(row[GradientColumn.SQ]) / (examples * block.numel)
        for block, row in zip(problem.blocks, gradients, strict=True)
    }
    mean, mean_sq = _mean(output_sum, count), _mean(output_sq, count)
    return Moments(layers, squared, mean_sq, mean_sq - mean**2, misread, frozenset(undecided))


def _mean(total: float, count: float) -> float:
    return float(total / count) if count else math.nan


def _sums(problem: Problem, part: Batch, checks: Checks, chosen: frozenset[int], gradients: GradientSum) -> Result:
    """Sums over the examples of one chunk; with the first one, some examples are checked one by one."""
    model, loss, blocks = problem.model, problem.loss, problem.blocks
    owners = measured_layers(problem.model, problem.blocks)
    seed = checks.seed
    few = checks.first(problem.batch, part.size)  # where one fits, two do for the moment
    mixed, alone = _check_few(problem, few, owners, seed) if part.offset == few.offset else (set(), None)
    if part.size > 2 or not chosen >= {*part.numbers}:
        alone = None  # else it tells of a half of this part
    watched, inputs = differentiable(part)
    seen = watch_measured(problem, watched, keep_outputs=True)
    y = seen.y.detach()
    _check_finite(y)
    halves = halves_of(part, seed)
    if part.size > (few.size if part.offset == few.offset else 1):  # else checked just now, or alone already
        check_outputs(model, part, y, halves)
    own = loss.gradient(y, part.targets).unsqueeze(0)  # (1, B, *out)
    ends = [call.output_edge for call in seen.calls]
    starts = [call.input_edge or call.output_edge for call in seen.calls]  # what an embedding reads has no gradient
    calls = len(seen.calls)
    moved = trainable(model)
    arriving = [get_gradient_edge(p) for p in moved.values()]
    every = backpropagate(seen.y, [*starts, *ends, *arriving], own)
    every, of_parameters = every[: 2 * calls], every[2 * calls :]
    curved = backpropagate(seen.y, ends, _curvature_cotangents(problem, part, y, seed))
    layers, squares = np.zeros((len(owners), len(_Layer))), SquaresOnce()
    for call, *around in zip(seen.calls, every[:calls], every[calls:], curved, strict=True):
        if call.input_edge is not None:
            layers[owners.index(call.owner)] += _call_sums(model.get_submodule(call.owner), call, around, squares)
    of_loss = dict(zip(moved, of_parameters, strict=True))
    of_own = CheckedGradients(part, seen, every[calls:], own, [[of_loss.get(block.name)] for block in blocks], [False])
    # One half tells what reaches the other; autograd's gradient of the loss, of all examples, tells the rest.
    if alone is not None:
        sent = [_told_by_pairs(problem, few, alone)]
    else:
        checked = _Checked.of(problem, part, chosen, seed, whole=_Checked(part, seen, inputs, halves[0]))
        z = _check_cotangent(own[0], part, seed)
        sent = [] if checked is None else [_check_sent_back(problem, checked, z, mixed)]
    compared = _compared(problem, of_own, sent, mixed, squares)
    gradients.add(of_parameters, examples=part.size)
    return {
        "layers": layers,
        "gradients": np.array(compared).reshape(len(blocks), len(GradientColumn)),
        "outputs": np.array([part.size, y.numel(), float(y.double().sum()), sum_of_squares(y)]),
    }


def _compared(
    problem: Problem,
    of_own: CheckedGradients,
    checked: list[CheckedGradients],
    mixed: Collection[str],
    squares: SquaresOnce,
) -> list[list[float]]:
    """Compare the gradients of the loss and of the check with autograd's."""
    if checked and checked[0].seen is of_own.seen:
        return compare_gradients(problem, [of_own.joined(checked[0])], mixed, squares=squares)
    return compare_gradients(problem, [of_own, *checked], mixed, squares=squares)


def _call_sums(
    module: nn.Module, call: LayerCall, gradients: Sequence[Tensor | None], squares: SquaresOnce
) -> list[float]:
    """A row of `_Layer`: one call's activations and their gradients."""
    assert call.output is not None
    dx, dout, dcurved = (0.0 if g is None else squares(g) for g in gradients)
    own = [p.detach() for p in module.parameters(recurse=False)]
    multiplies = len(own) == 1 and own[0].numel() == 1 and call.output.shape == call.x.shape
    multiplies = multiplies and torch.allclose(call.output, call.x * own[0])
    x_sq, out_sq = squares(call.x), sum_of_squares(call.output)
    return [call.x.numel(), x_sq, dx, call.output.numel(), out_sq, dout, dcurved, float(not multiplies)]


@dataclass(frozen=True)
class _Checked:
    """A watched pass of some examples, and the half of them whose outputs' random cotangents are sent back."""

    part: Batch
    seen: Trace
    inputs: Sequence[GradientEdge]
    half: Tensor

    @classmethod
    def of(
        cls, problem: Problem, part: Batch, chosen: Collection[int], seed: int, *, whole: _Checked
    ) -> _Checked | None:
        """The `chosen` examples of a part, in a pass of their own where they are not the `whole`."""
        places = [place for place, number in enumerate(part.numbers) if number in chosen]
        if len(places) == part.size:
            return whole
        if not places:
            return None
        few = part.select(places)
        watched, inputs = differentiable(few)
        with called_alone(problem.model, few.size):
            seen = watch_measured(problem, watched)
        return cls(few, seen, inputs, halves_of(few, seed)[0])


def _check_cotangent(own: Tensor, part: Batch, seed: int) -> Tensor:
    """Random, so that nothing cancels by chance; of the size of the loss's gradient, which is sent back with it."""
    z = torch.randn(own.shape, generator=stream(seed, f"check of examples from {part.offset}")).to(own)
    size = largest_entry(own)
    return z * size if size > 0 else z


def _check_sent_back(problem: Problem, checked: _Checked, z: Tensor, mixed: set[str]) -> CheckedGradients:
    """Send a random cotangent of one half back; layers by which it reaches rows of the other are added to `mixed`.

    Raises:
        HessdiagError: the model mixes examples itself.
    """
    alone = alone_in(z[: checked.part.size], [checked.half])  # (1, B, *out)
    calls = checked.seen.calls
    parameters = [get_gradient_edge(block_parameter(problem.model, block)) for block in problem.blocks]
    found = backpropagate(checked.seen.y, [*(call.output_edge for call in calls), *parameters], alone)
    sent_to = list(zip(calls, found, strict=False))
    now = {call.owner for call, sent in sent_to if mixes_rows(call, sent, [checked.half], checked.part.size)}
    if now:  # is it the layer alone, or the model?
        check_inputs(problem.model, backpropagate(checked.seen.y, checked.inputs, alone), [checked.half])
    mixed |= now
    truth = [[exact] for exact in found[len(calls) :]]
    return CheckedGradients(checked.part, checked.seen, found[: len(calls)], alone, truth, [True])


def _told_by_pairs(problem: Problem, few: Batch, alone: SentAlone) -> CheckedGradients:
    """As `_check_sent_back`, of what was sent back while pairs were checked."""
    truth = [[alone.gradients.get(id(block_parameter(problem.model, block)))] for block in problem.blocks]
    return CheckedGradients(few, alone.seen, alone.phis, alone.cotangent, truth, [True])


def _curvature_cotangents(problem: Problem, part: Batch, y: Tensor, seed: int) -> Tensor:
    """S u for every example and directions u, (Q, B, *out), whose sum over Q averages u ~ N(0, 1) exactly or nearly.

    All eigenvectors of S when there are few outputs, but those without curvature; else Gaussian draws, fewer for each
    the more examples there are.
    """
    shape, loss = y.shape[1:], problem.loss
    count = math.prod(shape)
    wanted = min(-(-CURVATURE_SAMPLES // problem.batch.size), MAX_CURVATURE_PROBES)
    if count <= 2 * wanted:
        values, vectors = torch.linalg.eigh(hessian_matrix(loss, y, part.targets).double())  # (B, N), (B, N, N)
        largest = values.abs().amax(dim=0)
        curved = largest > NO_CURVATURE * largest.max()
        curved[-1] = True  # one at least
        columns = (vectors * values.unsqueeze(1))[:, :, curved]
        sent: Tensor = columns.permute(2, 0, 1).reshape(-1, part.size, *shape).to(y)
        return sent
    drawn = gaussians(seed, "curvature probes", part.numbers, (wanted, *shape)).to(y).div_(math.sqrt(wanted))
    return hessian_products(loss, y, part.targets, drawn)


def _check_few(problem: Problem, few: Batch, owners: Sequence[str], seed: int) -> tuple[set[str], SentAlone | None]:
    """Check that a few examples give the same again, and which layers mix their rows; see `check_pairs`."""
    model, in_common = problem.model, looked_up_in_common(problem.blocks)
    with called_alone(model, few.size):
        y = few.call(model).detach()
    _check_finite(y)
    if few.size > 1:
        return check_pairs(model, few, owners, seed, in_common, before=y)
    check_repeatable(model, few, y)
    return set(), None


def _check_finite(y: Tensor) -> None:
    if not bool(y.isfinite().all()):
        raise HessdiagError("the model returned NaN or infinite outputs: its inputs or weights are too large")
