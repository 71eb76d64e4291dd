"""Second moments of activations, gradients and weights: one forward and one backward pass over the batch.

Gradients are those of each example's own loss. Moments are means over elements *and* examples, taken before any γ is
formed. The same pass verifies the capture: a weight gradient assembled from what the hooks saw must equal the one that
autograd computes, and the gradient of one example's loss must not reach another example. What fails is refused, so
that no number rests on a layer that hessdiag misread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobian import Jacobian, jacobians_of
from hessdiag.derivatives.losses import Loss
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import gaussians
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import block_parameter, owners_of
from hessdiag.network.hooks import LayerCall, Trace, backpropagate, trace

MOST_CURVATURE_PROBES = 8  # per example, where the network has many outputs
SAME = {torch.float32: 3e-4, torch.float64: 1e-10}  # outputs of one example, in different batches
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


class _Gradient(IntEnum):
    """Columns of the sums that are kept of every block's gradient."""

    SQ = 0
    MISMATCH = 1
    SCALE = 2


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
        output_sq: E[y²].
        misread: by block name, why its gradient could not be reproduced.
    """

    layers: Mapping[str, LayerMoments]
    gradient_sq: Mapping[str, float]
    output_sq: float
    misread: Mapping[str, str]


def sum_moments(problem: Problem, *, chunk: int, seed: int, work: Work = ALL_HERE) -> Result:
    """What `moments_of` makes moments of: sums over the examples of a batch, which add up over batches.

    Args:
        problem: what to measure.
        chunk: examples at a time.
        seed: of the random directions.
        work: carries it out.

    Raises:
        HessdiagError: the model is random, or one example's loss depends on another example, as with batch
            normalisation in training mode.
    """
    return work.total("moments", list(problem.batch.chunks(chunk)), lambda part: _sums(problem, part, seed))


def moments_of(problem: Problem, sums: Result) -> Moments:
    """Moments from sums over examples."""
    examples, output_count, output_sum = (float(value) for value in sums["outputs"])
    layers = {}
    for owner, row in zip(_watched(problem), sums["layers"], strict=True):
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
    largest = max((float(row[_Gradient.SQ]) for row in gradients), default=0.0)
    misread = {
        block.name: f"its gradient is not what {block.layer} {block.owners[0]!r} sees in its forward call:"
        " the parameter is also used elsewhere"
        for block, row in zip(problem.blocks, gradients, strict=True)
        if _wrong(row, largest, torch.finfo(block_parameter(problem.model, block).dtype).eps)
    }
    squared = {
        block.name: float(row[_Gradient.SQ]) / (examples * block.numel)
        for block, row in zip(problem.blocks, gradients, strict=True)
    }
    return Moments(layers, squared, _mean(output_sum, output_count), misread)


def batch_gradient_sq(problem: Problem, *, chunk: int, work: Work = ALL_HERE) -> dict[str, float]:
    """By block name, E[ΔW²] with Δ the gradient of the batch-mean loss."""
    parameters = [block_parameter(problem.model, block) for block in problem.blocks]

    def measure(batch: Batch) -> Result:
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for part in batch.chunks(chunk):
            y = part.call(problem.model)
            own = problem.loss.gradient(y.detach(), part.targets)
            edges = [get_gradient_edge(parameter) for parameter in parameters]
            for sum_, gradient in zip(total, backpropagate(y, edges, own.unsqueeze(0)), strict=True):
                if gradient is not None:
                    sum_ += gradient[0]
        return {"squared": np.array([sum_of_squares(gradient) for gradient in total])}

    (sums,) = work.each("batch gradient", [problem.batch], measure)
    return {
        block.name: float(squared) / (problem.batch.size**2 * block.numel)
        for block, squared in zip(problem.blocks, sums["squared"], strict=True)
    }


def _mean(total: float, count: float) -> float:
    return float(total / count) if count else math.nan


def _watched(problem: Problem) -> list[str]:
    """Paths of the layers whose surroundings are measured."""
    return list(owners_of(block for block in problem.blocks if block.structured))


def _sums(problem: Problem, part: Batch, seed: int) -> Result:
    """Sums over the examples of one chunk."""
    model, loss, blocks = problem.model, problem.loss, problem.blocks
    owners = _watched(problem)
    first = part.offset == problem.batch.offset
    if first and part.size == 1 < problem.batch.size:  # one example cannot show that it depends on others
        two = problem.batch.narrow(0, 2)
        _check_repeatable_and_independent(model, trace(model, two, owners), two, loss)
    seen = trace(model, part, owners, keep_outputs=True)
    y = seen.y.detach()
    if first:
        _check_repeatable_and_independent(model, seen, part, loss)
    own = loss.gradient(y, part.targets).unsqueeze(0)  # (1, B, *out)
    ends = [call.output_edge for call in seen.calls]
    starts = [call.input_edge for call in seen.calls]
    parameters = [block_parameter(model, block) for block in blocks]
    every = backpropagate(seen.y, [*starts, *ends, *map(get_gradient_edge, parameters)], own)
    calls = len(seen.calls)
    inputs, outputs, truth = every[:calls], every[calls : 2 * calls], every[2 * calls :]
    probes = _curvature_probes(y, part, problem.batch.size, seed)
    directions = [loss.hessian_product(y, part.targets, v) for v in probes]
    curved = backpropagate(seen.y, ends, torch.stack(directions))
    layers = np.zeros((len(owners), len(_Layer)))
    for call, *gradients in zip(seen.calls, inputs, outputs, curved, strict=True):
        layers[owners.index(call.owner)] += _call_sums(model.get_submodule(call.owner), call, gradients)
    found = jacobians_of(model, part, blocks, seen.calls, outputs, own)
    compared = [_gradient_sums(jacobian, exact) for jacobian, exact in zip(found, truth, strict=True)]
    return {
        "layers": layers,
        "gradients": np.array(compared).reshape(len(blocks), len(_Gradient)),
        "outputs": np.array([part.size, y.numel(), sum_of_squares(y)], dtype=np.float64),
    }


def _call_sums(module: nn.Module, call: LayerCall, gradients: Sequence[Tensor | None]) -> list[float]:
    """A row of `_Layer`: one call's activations and their gradients."""
    assert call.output is not None
    dx, dout, dcurved = (0.0 if g is None else sum_of_squares(g) for g in gradients)
    own = [p.detach() for p in module.parameters(recurse=False)]
    multiplies = len(own) == 1 and own[0].numel() == 1 and call.output.shape == call.x.shape
    multiplies = multiplies and torch.allclose(call.output, call.x * own[0])
    x_sq, out_sq = sum_of_squares(call.x), sum_of_squares(call.output)
    return [call.x.numel(), x_sq, dx, call.output.numel(), out_sq, dout, dcurved, float(not multiplies)]


def _gradient_sums(found: Jacobian | None, exact: Tensor | None) -> list[float]:
    """A row of `_Gradient`: one block's gradients, and how far they are from autograd's."""
    if found is None:
        return [0.0, 0.0 if exact is None else sum_of_squares(exact), 0.0]
    total = found.total().flatten()  # (P,)
    error = total if exact is None else total - exact.flatten()
    scale = sum_of_squares(total) if exact is None else sum_of_squares(exact)
    return [float(found.gram().sum(dtype=torch.float64)), sum_of_squares(error), scale]


def _wrong(gradient: npt.NDArray[Any], largest: float, eps: float) -> bool:
    """Whether a block's gradient differs from autograd's by more than rounding.

    For a sum that nearly cancels, the scale of the rounding error is that of its terms; for a gradient that is zero
    by symmetry, as of an attention's key bias, it is that of the `largest` gradient in the network.
    """
    allowed = eps * (gradient[_Gradient.SCALE] + gradient[_Gradient.SQ]) + 1e4 * eps**2 * largest
    return bool(gradient[_Gradient.MISMATCH] > allowed)


def _curvature_probes(y: Tensor, part: Batch, examples: int, seed: int) -> Tensor:
    """Directions u for every example, (Q, B, *out), such that the sum over Q averages u ~ N(0, 1) exactly or nearly.

    All basis vectors when there are few outputs, else Gaussian draws, fewer for each the more `examples` there are.
    """
    shape = y.shape[1:]
    count = math.prod(shape)
    wanted = min(-(-CURVATURE_SAMPLES // examples), MOST_CURVATURE_PROBES)
    if count <= 2 * wanted:
        basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *shape)
        return basis.expand(count, part.size, *shape)
    drawn = gaussians(seed, "curvature probes", part.numbers, (wanted, *shape))
    return drawn.to(y) / math.sqrt(wanted)


def _check_repeatable_and_independent(model: nn.Module, seen: Trace, part: Batch, loss: Loss) -> None:
    """A second forward pass gives the same; so does an example on its own; losses reach nothing of other examples."""
    for call in seen.calls:
        if call.output_shape[0] % part.size or call.x.shape[0] % part.size:
            raise HessdiagError(
                f"layer {call.owner!r} gave a tensor of shape {tuple(call.output_shape)} for {part.size} examples:"
                " its first dimension must run over the examples"
            )
    y = seen.y.detach()
    if not bool(y.isfinite().all()):
        raise HessdiagError("the model returned NaN or infinite outputs: its inputs or weights are too large")
    if not torch.allclose(part.call(model).detach(), y, rtol=1e-4, atol=0):
        raise HessdiagError(
            "two forward passes of the same batch differ: dropout or another random layer is in training mode,"
            " call model.eval() first"
        )
    if part.size == 1:
        return
    half = part.size // 2  # not the first example alone: its gradient may be zero
    alone = loss.gradient(y, part.targets)
    alone[half:] = 0
    edges = [call.output_edge for call in seen.calls]
    for call, gradient in zip(seen.calls, backpropagate(seen.y, edges, alone.unsqueeze(0)), strict=True):
        if gradient is not None and bool(gradient.reshape(part.size, -1)[half:].any()):
            training = [
                n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training
            ]
            remedy = (
                f"batch normalisation {training[0]!r} is in training mode, call model.eval() first"
                if training
                else "the first dimension of every layer's input must run over the examples"
            )
            raise HessdiagError(f"the loss of one example depends on others at layer {call.owner!r}: {remedy}")
    try:
        single = part.narrow(0, 1).call(model).detach()
        same = float((single - y[:1]).norm()) <= SAME[y.dtype] * float(y.norm())
    except ValueError:  # batch normalisation in training mode refuses a single example
        same = False
    if not same:
        raise HessdiagError(
            "an example on its own gives other outputs than in the batch: the model uses statistics of the batch,"
            " branches on its values, or updates itself; call model.eval() first, or keep examples apart"
        )


def sum_of_squares(values: Tensor) -> float:
    """Σ v², in float64."""
    return float(values.detach().double().square().sum())  # squares of float32 underflow first
