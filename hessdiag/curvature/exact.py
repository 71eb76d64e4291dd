"""Exact Gauss-Newton blocks in output space.

With S the Hessian of the loss in the N outputs of an example and K_l = J_l J_l^T the (N, N) Gram matrix of block l,

    ‖G_ij‖_F² = ‖J_i^T S J_j‖_F² = tr(S K_j S K_i).

N cotangents are back-propagated once to *all* layers, so that the whole L x L map costs little more than its diagonal
and no probe, hence no noise, is involved. In the batch view the outputs of all B examples count together, G is
divided by B, and K_l is (B N, B N), taken in panels of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.first_step import KEYS, FirstStep, exact_sums
from hessdiag.curvature.pair_groups import PAIRS, PairGroups, exact_means
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobian import all_jacobians, unit_cotangents
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.losses import hessian_matrix
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.summed import concatenate
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import Block
from hessdiag.results.numbers import Array


def exact_per_example(
    problem: Problem,
    *,
    chunk: int,
    step: FirstStep | None = None,
    groups: PairGroups | None = None,
    work: Work = ALL_HERE,
) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks, `chunk` examples at a time.

    By the way sums of the first step `step`, and pairs of examples within `groups`.
    """
    problem = problem if groups is None else replace(problem, batch=problem.batch.select(groups.order()))
    chunk = chunk if groups is None else groups.chunk(chunk)
    batch, loss, blocks = problem.batch, problem.loss, problem.blocks

    def measure(part: Batch) -> Result:
        y, jacobians = output_jacobians(problem, part)
        S = hessian_matrix(loss, y, part.targets)  # (B, N, N)
        S = S.double()  # the products of two Gram matrices underflow in float32 before the network does
        grams = [torch.zeros_like(S) if J is None else J.gram().double() for J in jacobians]
        SK = torch.stack([torch.matmul(S, K) for K in grams], dim=1)
        rows = SK.flatten(2)  # (B, L, N N)
        columns = SK.transpose(2, 3).flatten(2)
        sums: dict[str, Any] = {"norms": torch.bmm(rows, columns.transpose(1, 2)).sum(dim=0).cpu().numpy()}
        if step is not None:
            sums |= exact_sums(problem, part, y, step, jacobians, S)
        if groups is not None:
            pairs = groups.rows(part.offset - batch.offset, part.size)
            for number, jacobian in enumerate(jacobians):
                if jacobian is not None:
                    pairs.add(number, partial(_between, jacobian, S))
            sums |= pairs.result()
        return sums

    total = work.total("exact blocks", list(batch.chunks(chunk)), measure)
    first_step = {key: total[key] for key in KEYS} if step is not None else None
    pairs = {key: total[key] for key in PAIRS} if groups is not None else None
    norms = total["norms"] + total["norms"].T  # equal but for rounding
    return replace(_curvature(norms / (2 * batch.size), blocks), first_step=first_step, pairs=pairs)


def _between(jacobian: Jacobian, S: Tensor, start: int, stop: int) -> tuple[float, float]:
    """Means over examples and pairs, from example `start` up to `stop`."""
    few = jacobian.narrow(start, stop)
    return exact_means(few.cross(few), S[start:stop])


def exact_per_batch(problem: Problem, *, chunk: int, work: Work = ALL_HERE) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks; `chunk` examples are held against all others at a time."""
    batch, loss, blocks = problem.batch, problem.loss, problem.blocks

    @cache  # not before the first panel asks for it: a resumed run may have them all
    def everything() -> tuple[Tensor, list[Jacobian | None]]:
        parts = [output_jacobians(problem, part) for part in batch.chunks(chunk)]
        S = [hessian_matrix(loss, y, p.targets) for (y, _), p in zip(parts, batch.chunks(chunk), strict=True)]
        return torch.cat(S).double(), [
            _concatenate([jacobians[i] for _, jacobians in parts]) for i in range(len(blocks))
        ]

    def panel(part: Batch) -> Result:
        S, whole = everything()
        B, N, _ = S.shape
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

    norms = work.total("exact panels", list(batch.chunks(chunk)), panel)["norms"]
    return _curvature((norms + norms.T) / (2 * batch.size**2), blocks)


def output_jacobians(problem: Problem, part: Batch) -> tuple[Tensor, list[Jacobian | None]]:
    """Outputs (B, *out) and, for each block, the Jacobian of all N outputs of each example."""
    outputs: list[Tensor] = []

    def cotangents_of(y: Tensor) -> Tensor:
        outputs.append(y)
        return unit_cotangents(y)

    jacobians = list(all_jacobians(problem.model, part, problem.blocks, cotangents_of))
    return outputs[0], jacobians


def _concatenate(parts: Sequence[Jacobian | None]) -> Jacobian | None:
    present = [part for part in parts if part is not None]
    return concatenate(present) if present else None


def _curvature(frobenius_sq: Array, blocks: Sequence[Block]) -> Curvature:
    """Keep the diagonal of all blocks and the map of the weight blocks."""
    full = np.maximum(frobenius_sq, 0)
    diagonal = {block.name: Diagonal(float(full[i, i]), 0.0, 0, "exact") for i, block in enumerate(blocks)}
    weights = [i for i, block in enumerate(blocks) if block.kind == "weight"]
    heat = full[weights][:, weights]
    return Curvature(diagonal, heat, np.zeros_like(heat))
