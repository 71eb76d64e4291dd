"""Exact Gauss-Newton blocks in output space.

With S the Hessian of the loss in the N outputs of an example and K_l = J_l J_l^T the (N, N) Gram matrix of block l,

    ‖G_ij‖_F² = ‖J_i^T S J_j‖_F² = tr(S K_j S K_i).

N cotangents are back-propagated once to *all* layers, so that the whole L x L map costs little more than its diagonal
and no probe, hence no noise, is involved. In the batch view the outputs of all B examples count together, G is
divided by B, and K_l is (B N, B N), taken in panels of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature
from hessdiag.data.batch import Batch
from hessdiag.data.sums import Sums, sum_over
from hessdiag.derivatives.backward import block_vjps, trace_blocks, unit_cotangents
from hessdiag.derivatives.jacobians import Jacobian, concatenate
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import Block
from hessdiag.results.numbers import Array


def exact_per_example(problem: Problem, *, chunk: int) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks, `chunk` examples at a time."""
    batch, blocks = problem.batch, problem.blocks

    def measure(part: Batch) -> Sums:
        seen = trace_blocks(problem.model, part, blocks)
        y = seen.y.detach()
        S = problem.loss.hessian_matrix(y, part.targets).double()  # (B, N, N)
        SK = S.new_zeros(part.size, len(blocks), *S.shape[1:])
        for number, jacobian in enumerate(block_vjps(problem.model, part, blocks, seen, unit_cotangents(y))):
            if jacobian is not None:
                SK[:, number] = torch.bmm(S, jacobian.gram().double())
        norms = torch.bmm(SK.flatten(2), SK.transpose(2, 3).flatten(2).mT).sum(dim=0)
        return {"norms": norms.cpu().numpy()}

    norms = sum_over(list(batch.chunks(chunk)), measure, step="exact blocks")["norms"]
    return _curvature((norms + norms.T) / (2 * batch.size), blocks)  # equal but for rounding


def exact_per_batch(problem: Problem, *, chunk: int) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks; `chunk` examples are held against all others at a time."""
    batch, loss, blocks = problem.batch, problem.loss, problem.blocks

    parts = [output_jacobians(problem, part) for part in batch.chunks(chunk)]
    S = torch.cat([loss.hessian_matrix(y, p.targets) for (y, _), p in zip(parts, batch.chunks(chunk), strict=True)])
    S = S.double()
    whole = [_concatenate([jacobians[i] for _, jacobians in parts]) for i in range(len(blocks))]
    B, N, _ = S.shape

    def panel(part: Batch) -> Sums:
        start, size = part.offset - batch.offset, part.size
        left: list[Tensor] = []
        right: list[Tensor] = []
        for others in whole:
            if others is None:
                zero = S.new_zeros(size, N, B, N)
                left.append(zero)
                right.append(zero)
                continue
            K = others.narrow(start, start + size).cross(others).double()  # (b, N, B, N)
            left.append(torch.einsum("bij,bjck->bick", S[start : start + size], K))
            right.append(torch.einsum("bicj,cjk->bick", K, S))
        return {"norms": (torch.stack(left).flatten(1) @ torch.stack(right).flatten(1).T).cpu().numpy()}

    norms = sum_over(list(batch.chunks(chunk)), panel, step="exact panels")["norms"]
    return _curvature((norms + norms.T) / (2 * batch.size**2), blocks)


def output_jacobians(problem: Problem, part: Batch) -> tuple[Tensor, list[Jacobian | None]]:
    """Outputs (B, *out) and, for each block, the Jacobian of all N outputs of each example."""
    seen = trace_blocks(problem.model, part, problem.blocks)
    y = seen.y.detach()
    return y, list(block_vjps(problem.model, part, problem.blocks, seen, unit_cotangents(y)))


def _concatenate(parts: Sequence[Jacobian | None]) -> Jacobian | None:
    present = [part for part in parts if part is not None]
    return concatenate(present) if present else None


def _curvature(frobenius_sq: Array, blocks: Sequence[Block]) -> Curvature:
    value = np.maximum(frobenius_sq, 0)
    return Curvature.of(blocks, value, np.zeros_like(value), products=0, rtol=None, reason="")
