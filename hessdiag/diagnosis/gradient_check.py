"""Whether a block's gradient, assembled from what the hooks saw, is the one that autograd computes.

Of the loss and of a random cotangent, whatever the loss: what differs was misread.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobian import jacobians_of, rule_fits
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.magnitude import sum_of_squares
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import Block
from hessdiag.network.hooks import LayerCall, Trace

LOWER_PRECISION = 1e-8  # squared error of what a model in float64 computes in float32
READ_ELSEWHERE = (
    "its gradient is not the one that is found by replacing it where modules hold it:"
    " the model also reads it from somewhere else, such as a list or a view of it"
)


class GradientColumn(IntEnum):
    """Columns of the sums that are kept of every block: of its gradient, and of how it was read.

    The check's gradients are those of random cotangents.
    """

    SQ = 0
    CHECK_MISMATCH = 1  # between the gradient that was found and autograd's
    CHECK_SCALE = 2  # autograd's
    CHECK_TERMS = 3  # each site's own: what rounding is relative to where a sum over sites cancels
    MIXED = 4  # calls whose rows are not those of one example after the other, or whose shapes no rule has
    CHUNKS = 5
    ROWS = 6  # rows of an example in each of the layers' calls, as one number
    ROWS_SQ = 7


def compare_gradients(
    problem: Problem,
    part: Batch,
    seen: Trace,
    phis: Sequence[Tensor | None],
    cotangents: Tensor,
    truth: Sequence[tuple[Tensor | None, Tensor | None]],
    mixed: Collection[str],
) -> list[list[float]]:
    """A row of `GradientColumn` for every block: gradients of the loss and of the check, and autograd's of both."""
    model, blocks = problem.model, problem.blocks
    calls = {block.name: [call for call in seen.calls if call.owner in block.owners] for block in blocks}
    unfit = {block.name for block in blocks if block.structured and not _fits(model, block, calls[block.name], mixed)}
    readable = [block for block in blocks if block.name not in unfit]
    found = jacobians_of(model, part, readable, seen.calls, phis, cotangents)
    rows = []
    for block, exact in zip(blocks, truth, strict=True):
        row = [0.0] * len(GradientColumn)
        if block.name in unfit:
            row[GradientColumn.MIXED] = 1.0
        else:
            row[: GradientColumn.CHECK_TERMS] = _gradient_sums(next(found), *exact)
        if block.structured:
            own = [(call, phi) for call, phi in zip(seen.calls, phis, strict=True) if call.owner in block.owners]
            row[GradientColumn.CHECK_TERMS] = sum(_terms(block, call, phi) for call, phi in own if phi is not None)
            pattern = sum((k + 1) * call.output_shape[:1].numel() / part.size for k, (call, _) in enumerate(own))
            row[GradientColumn.CHUNKS :] = [1.0, pattern, pattern**2]
        rows.append(row)
    return rows


def _fits(model: nn.Module, block: Block, calls: Sequence[LayerCall], mixed: Collection[str]) -> bool:
    """Whether the block's rule can be applied to the calls of its layers."""
    if any(owner in mixed for owner in block.owners):
        return False
    return block.kind == "scalar" or all(rule_fits(model.get_submodule(call.owner), block, call) for call in calls)


def _terms(block: Block, call: LayerCall, phi: Tensor) -> float:
    """Σ ‖φ_t‖² ‖u_t‖² over the sites of a call, φ of the loss and of the check, with the mean of ‖u_t‖² for each."""
    read = (
        1.0
        if block.kind == "bias" or call.input_edge is None
        else sum_of_squares(call.x) / max(call.x.numel(), 1) * block.fan_in
    )
    if block.kind == "weight" and call.x.dim() > 1 and block.kernel:
        read *= math.prod(block.kernel)
    return sum_of_squares(phi) * read


def _gradient_sums(found: Jacobian | None, of_loss: Tensor | None, of_check: Tensor | None) -> list[float]:
    """The first columns of `GradientColumn`: one block's gradients, and how far they are from autograd's.

    Args:
        found: along the loss's gradient and the check's cotangent.
        of_loss: autograd's gradient (1, *shape) of the loss, where it is at hand.
        of_check: autograd's gradient of the check.
    """
    if found is None:
        size = 0.0 if of_check is None else sum_of_squares(of_check)
        return [0.0, size, size]
    found = found.dense() if found.is_cheaper_formed else found
    loss, check = found.of_cotangent(0), found.of_cotangent(1)
    mismatch, scale = _mismatch(check, of_check)
    if of_loss is not None:
        more, larger = _mismatch(loss, of_loss)
        mismatch, scale = mismatch + more, scale + larger
    return [float(loss.gram().sum(dtype=torch.float64)), mismatch, scale]


def _mismatch(found: Jacobian, exact: Tensor | None) -> tuple[float, float]:
    """‖difference‖² between a gradient that was found and autograd's, and ‖autograd's‖²."""
    total = found.total().flatten()  # (P,)
    if exact is None:
        size = sum_of_squares(total)
        return size, size
    return sum_of_squares(total - exact.flatten()), sum_of_squares(exact)


def why_misread(block: Block, row: npt.NDArray[Any], eps: float) -> str:
    """Why a block was not read right, as a clause; empty where it was.

    Its gradient may differ from autograd's by rounding: relative to its own size, or where a sum over sites cancels,
    as that of an attention's key bias does, to the size of the terms.
    """
    where = f"{block.layer} {block.owners[0]!r}"
    chunks, rows, rows_sq = row[GradientColumn.CHUNKS :]
    if row[GradientColumn.MIXED] or chunks * rows_sq > rows**2 * (1 + 1e-9):
        return f"what {where} reads and writes is not a fixed number of rows for each example, as its class has it"
    same = eps if block.structured else max(eps, LOWER_PRECISION)
    allowed = same * row[GradientColumn.CHECK_SCALE] + rounding(eps) * row[GradientColumn.CHECK_TERMS]
    if row[GradientColumn.CHECK_MISMATCH] <= allowed:  # false for NaN
        return ""
    if block.structured:
        return f"its gradient is not what {where} sees in its forward call"
    return READ_ELSEWHERE


def rounding(eps: float) -> float:
    """Squared rounding error of a sum, relative to the squares of its terms."""
    return 1e4 * eps**2
