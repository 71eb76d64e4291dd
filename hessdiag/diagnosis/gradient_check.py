"""Whether a block's gradient, assembled from what the hooks saw, is the one that autograd computes.

Of the loss and of a random cotangent, whatever the loss: what differs was misread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import jacobians_of, rule_fits
from hessdiag.derivatives.jacobians import Jacobian
from hessdiag.derivatives.magnitude import sum_of_squares
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import Block
from hessdiag.network.trace import LayerCall, Trace

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


@dataclass(frozen=True)
class CheckedGradients:
    """Cotangents that were sent back through a watched pass, and what autograd makes of them.

    Attributes:
        part, seen: the examples and their pass.
        phis: for each call the (C, *output shape) gradients in its output, or None.
        cotangents: (C, B, *out).
        truth: by block, for each cotangent autograd's gradient (1, *shape) in it, or None.
        zero: for each cotangent, whether None means zero; else that the gradient is not at hand.
    """

    part: Batch
    seen: Trace
    phis: Sequence[Tensor | None]
    cotangents: Tensor
    truth: Sequence[Sequence[Tensor | None]]
    zero: Sequence[bool]

    def joined(self, other: CheckedGradients) -> CheckedGradients:
        """The same with further cotangents of the same pass, so that Jacobians are made once."""
        pairs = zip(self.phis, other.phis, strict=True)
        phis = [None if one is None or more is None else torch.cat([one, more]) for one, more in pairs]
        truth = [[*one, *more] for one, more in zip(self.truth, other.truth, strict=True)]
        cotangents = torch.cat([self.cotangents, other.cotangents])
        return CheckedGradients(self.part, self.seen, phis, cotangents, truth, [*self.zero, *other.zero])


def compare_gradients(
    problem: Problem,
    sent: Sequence[CheckedGradients],
    mixed: Collection[str],
    *,
    squares: Callable[[Tensor], float],
) -> list[list[float]]:
    """A row of `GradientColumn` for every block.

    Args:
        problem: whose blocks.
        sent: the first cotangent of all is the gradient of the loss.
        mixed: layers that mix rows.
        squares: of what layers read, and of the gradients in what they write.
    """
    model, blocks = problem.model, problem.blocks
    unfit = {b.name for b in blocks if b.structured and not all(_fits(model, b, each.seen, mixed) for each in sent)}
    readable = [block for block in blocks if block.name not in unfit]
    found = [jacobians_of(model, s.part, readable, s.seen.calls, s.phis, s.cotangents) for s in sent]
    rows = []
    for number, block in enumerate(blocks):
        row = [0.0] * len(GradientColumn)
        if block.name in unfit:
            row[GradientColumn.MIXED] = 1.0
        else:
            for place, (jacobians, each) in enumerate(zip(found, sent, strict=True)):
                sums = _gradient_sums(next(jacobians), each.truth[number], each.zero, with_square=place == 0)
                row[: GradientColumn.CHECK_TERMS] = [x + y for x, y in zip(row, sums, strict=False)]
        if block.structured:
            row[GradientColumn.CHECK_TERMS] = sum(
                _terms(block, *own, squares) for each in sent for own in _own(block, each)
            )
            calls = [call for call, _ in _own(block, sent[0], every=True)]
            pattern = sum((k + 1) * c.output_shape[:1].numel() / sent[0].part.size for k, c in enumerate(calls))
            row[GradientColumn.CHUNKS :] = [1.0, pattern, pattern**2]
        rows.append(row)
    return rows


def _own(block: Block, sent: CheckedGradients, *, every: bool = False) -> list[tuple[LayerCall, Any]]:
    """The calls of a block's layers with the gradients in their outputs; those that gradients reach, or all."""
    pairs = zip(sent.seen.calls, sent.phis, strict=True)
    return [(call, phi) for call, phi in pairs if call.owner in block.owners and (every or phi is not None)]


def _fits(model: nn.Module, block: Block, seen: Trace, mixed: Collection[str]) -> bool:
    """Whether the block's rule can be applied to the calls of its layers."""
    calls = [call for call in seen.calls if call.owner in block.owners]
    if any(owner in mixed for owner in block.owners):
        return False
    return block.kind == "scalar" or all(rule_fits(model.get_submodule(call.owner), block, call) for call in calls)


def _terms(block: Block, call: LayerCall, phi: Tensor, squares: Callable[[Tensor], float]) -> float:
    """Σ ‖φ_t‖² ‖u_t‖² over the sites of a call, φ of the loss and of the check, with the mean of ‖u_t‖² for each."""
    read = (
        1.0
        if block.kind == "bias" or call.input_edge is None
        else squares(call.x) / max(call.x.numel(), 1) * block.fan_in
    )
    if block.kind == "weight" and call.x.dim() > 1 and block.kernel:
        read *= math.prod(block.kernel)
    return squares(phi) * read


def _gradient_sums(
    found: Jacobian | None, truth: Sequence[Tensor | None], zero: Sequence[bool], *, with_square: bool
) -> list[float]:
    """The first columns of `GradientColumn`: one block's gradients, and how far they are from autograd's.

    Args:
        found: along the cotangents; None where nothing reaches the block.
        truth, zero: see `CheckedGradients`.
        with_square: whether the first cotangent is the loss's gradient, of which the examples' squares are wanted.
    """
    if found is None:
        size = sum(sum_of_squares(exact) for exact in truth if exact is not None)
        return [0.0, size, size]
    found = found.dense() if found.is_cheaper_formed else found
    square = float(found.of_cotangents(0, 1).gram().sum(dtype=torch.float64)) if with_square else 0.0
    # Both in one: what is wrong of either is wrong of the sum, as one is random. Each is as large as the weight.
    told = [c for c, exact in enumerate(truth) if zero[c] or exact is not None]
    if not told:
        return [square, 0.0, 0.0]
    one = found.over_cotangents() if len(told) == len(truth) else found.of_cotangents(told[0], told[0] + 1)
    exact = [gradient for gradient in (truth[c] for c in told) if gradient is not None]
    return [square, *_mismatch(one.total().flatten(), sum(exact[1:], start=exact[0]) if exact else None)]


def _mismatch(total: Tensor, exact: Tensor | None) -> tuple[float, float]:
    """‖difference‖² between a gradient (P,) that was found and autograd's, and ‖autograd's‖².

    What was found is overwritten: another tensor of this size would take longer to come by than the difference.
    """
    if exact is None:
        size = sum_of_squares(total)
        return size, size
    return sum_of_squares(total.sub_(exact.flatten())), sum_of_squares(exact)


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
    mismatch, scale, terms = row[GradientColumn.CHECK_MISMATCH : GradientColumn.MIXED]
    if mismatch <= same * scale + rounding(eps) * terms:  # false for NaN
        return ""
    if block.structured:
        return f"its gradient is not what {where} sees in its forward call"
    return READ_ELSEWHERE


def rounding(eps: float) -> float:
    """Squared rounding error of a sum, relative to the squares of its terms."""
    return 1e4 * eps**2
