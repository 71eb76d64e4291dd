"""Exact Gauss-Newton blocks in output space.

With S the Hessian of the loss in the N outputs of an example and K_l = J_l J_l^T the (N, N) Gram matrix of block l,

    ‖G_ij‖_F² = ‖J_i^T S J_j‖_F² = tr(S K_j S K_i).

N cotangents are back-propagated once to *all* layers, so that the whole L x L map costs little more than its diagonal
and no probe, hence no noise, is involved; for each example those that S does not take to zero are enough. In the batch
view the outputs of all B examples count together, G is divided by B, and K_l is (B N, B N), taken in panels of rows.
"""

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature
from hessdiag.data.batch import Batch
from hessdiag.data.memory import Sums, sum_over
from hessdiag.derivatives.backward import block_vjps
from hessdiag.derivatives.losses import unit_cotangents
from hessdiag.derivatives.problem import Problem
from hessdiag.results.numbers import Array

ROUNDINGS = 16  # of the largest curvature of the loss, below which there is none


def exact_per_example(problem: Problem, *, chunk: int) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks, `chunk` examples at a time."""
    batch, blocks = problem.batch, problem.blocks

    def measure(part: Batch) -> Sums:
        seen = problem.trace(part)
        y = seen.y.detach()
        S = problem.loss.hessian_matrix(y, part.targets).double()  # (B, N, N)
        basis = _curved(S, torch.finfo(y.dtype).eps)
        S = basis @ S @ basis.T
        cotangents = basis.to(y).view(-1, 1, *y.shape[1:]).expand(-1, *y.shape)
        SK = S.new_zeros(part.size, len(blocks), *S.shape[1:])
        for number, jacobian in enumerate(block_vjps(problem.model, part, blocks, seen, cotangents)):
            if jacobian is not None:
                SK[:, number] = torch.bmm(S, jacobian.gram().double())
        norms = torch.bmm(SK.flatten(2), SK.transpose(2, 3).flatten(2).mT).sum(dim=0)
        return Sums(norms=norms.cpu().numpy(), traces=SK.diagonal(dim1=2, dim2=3).sum(dim=(0, 2)).cpu().numpy())

    sums = sum_over(list(batch.chunks(chunk)), measure, step="exact blocks", gradients=problem.shape.outputs)
    return _curvature(sums["norms"] / batch.size, sums["traces"] / batch.size)


def exact_per_batch(problem: Problem, *, chunk: int) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks; `chunk` examples are held against all others at a time."""
    batch, blocks = problem.batch, problem.blocks
    parts = list(batch.chunks(chunk))
    hessians, known = [], []
    for part in parts:
        seen = problem.trace(part)
        y = seen.y.detach()
        hessians.append(problem.loss.hessian_matrix(y, part.targets).double())
        known.append(list(block_vjps(problem.model, part, blocks, seen, unit_cotangents(y))))
    S = torch.cat(hessians)
    B, N, _ = S.shape

    def panel(part: Batch) -> Sums:
        start, size = part.offset - batch.offset, part.size
        first, K = start % chunk, S.new_zeros(len(blocks), size, N, B, N)
        for there, others in zip(parts, known, strict=True):
            columns = slice(there.offset - batch.offset, there.offset - batch.offset + there.size)
            for i, (here, other) in enumerate(zip(known[start // chunk], others, strict=True)):
                if here is not None and other is not None:
                    K[i, :, :, columns] = here.narrow(first, first + size).cross(other)
        left = torch.einsum("bij,lbjck->lbick", S[start : start + size], K)
        right = torch.einsum("lbicj,cjk->lbick", K, S)
        traces = left[:, range(size), :, range(start, start + size)].diagonal(dim1=2, dim2=3).sum(dim=(0, 2))  # (L,)
        return Sums(norms=(left.flatten(1) @ right.flatten(1).T).cpu().numpy(), traces=traces.cpu().numpy())

    sums = sum_over(parts, panel, step="exact panels")
    return _curvature(sums["norms"] / B**2, sums["traces"] / B)


def _curved(S: Tensor, eps: float) -> Tensor:
    """An orthonormal basis (R, N) of the outputs in which the loss of some example is curved, R ≥ 1."""
    rows = S.flatten(0, 1)
    squares, basis = torch.linalg.eigh(rows.T @ rows)
    kept: Tensor = basis[:, min(len(squares) - 1, int((squares <= (ROUNDINGS * eps) ** 2 * squares[-1]).sum())) :]
    return kept.T


def _curvature(norms: Array, traces: Array) -> Curvature:
    value = np.maximum((norms + norms.T) / 2, 0)  # equal but for rounding
    return Curvature(value, np.zeros_like(value), np.zeros(len(value), dtype=int), traces)
