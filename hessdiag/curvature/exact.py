"""Exact Gauss-Newton blocks in output space.

With S the Hessian of the loss in the N outputs of an example and K_l = J_l J_l^T the (N, N) Gram matrix of block l,

    ‖G_ij‖_F² = ‖J_i^T S J_j‖_F² = tr(S K_j S K_i),

or, with a root S = A A^T at hand, the inner product of the Gram matrices of A^T J_i and A^T J_j. That of cross-entropy
has one column less than there are outputs.

N cotangents are back-propagated once to *all* layers, so that the whole L x L map costs little more than its diagonal
and no probe, hence no noise, is involved. In the batch view the outputs of all B examples count together, G is
divided by B, and K_l is (B N, B N), taken in panels of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.first_step import KEYS, FirstStep, add_slope, columns, exact_sums, sketched_sums
from hessdiag.curvature.pair_groups import PAIRS, PairGroups, exact_means, sketched_means
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobian import all_jacobians, sent_to_blocks, unit_cotangents, watch
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.losses import hessian_matrix, thin_root
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
    batch, blocks = problem.batch, problem.blocks

    def measure(part: Batch) -> Result:
        found = _Measured.of(problem, part, step)
        rows = found.factors.flatten(2)  # (B, L, r r)
        columns = found.factors.transpose(2, 3).flatten(2)
        sums: dict[str, Any] = {"norms": torch.bmm(rows, columns.transpose(1, 2)).sum(dim=0).cpu().numpy()}
        if step is not None:
            sums |= found.step_sums(problem, part, step)
        if groups is not None:
            pairs = groups.rows(part.offset - batch.offset, part.size)
            for number, jacobian in enumerate(found.jacobians):
                if jacobian is not None:
                    pairs.add(number, partial(found.between, jacobian))
            sums |= pairs.result()
        return sums

    total = work.total("exact blocks", list(batch.chunks(chunk)), measure)
    first_step = {key: total[key] for key in KEYS} if step is not None else None
    pairs = {key: total[key] for key in PAIRS} if groups is not None else None
    norms = total["norms"] + total["norms"].T  # equal but for rounding
    return replace(_curvature(norms / (2 * batch.size), blocks), first_step=first_step, pairs=pairs)


@dataclass(frozen=True)
class _Measured:
    """Jacobians of some examples along cotangents that tell everything.

    Attributes:
        y: outputs (B, *out).
        cotangents: (r, B, *out): all columns of a root of the loss's Hessian, or all outputs; behind them, where there
            is a root and a first step to be measured, the loss's gradient.
        jacobians: along these, of every block.
        S: (B, r, r), the loss's Hessian in terms of them: the identity where there is a root.
        rooted: whether there is one.
        slope_size: what the loss's gradient has been multiplied by.
        moved: the Jacobian of the steps of normalisations, where these are moved.
    """

    y: Tensor
    cotangents: Tensor
    jacobians: Sequence[Jacobian | None]
    S: Tensor
    rooted: bool
    slope_size: float = 1.0
    moved: Jacobian | None = None

    @classmethod
    def of(cls, problem: Problem, part: Batch, step: FirstStep | None) -> _Measured:
        """One forward pass, and all cotangents sent back."""
        model, loss, blocks = problem.model, problem.loss, problem.blocks
        seen = watch(model, part, blocks, norms=None if step is None else step.norms)
        y = seen.y.detach()
        root, size = thin_root(loss, y, part.targets), 1.0
        if root is None:
            cotangents = unit_cotangents(y)
            S = hessian_matrix(loss, y, part.targets).double()
        else:
            cotangents = root.permute(2, 0, 1).to(y)  # (r, B, N)
            S = torch.eye(len(cotangents), dtype=torch.float64, device=y.device).expand(len(y), -1, -1)
            if step is not None:
                cotangents, size = add_slope(problem, part, y, cotangents)
        jacobians = list(sent_to_blocks(model, part, blocks, seen, cotangents))
        moved = jacobians.pop() if len(jacobians) > len(blocks) else None
        return cls(y, cotangents, jacobians, S, root is not None, size, moved)

    @cached_property
    def factors(self) -> Tensor:
        """S K of every block, (B, L, r, r), in float64: products of two underflow first."""
        r = self.S.shape[1]
        zero = self.S.new_zeros(self.S.shape)
        grams = [zero if J is None else J.gram()[:, :r, :r].double() for J in self.jacobians]
        return torch.stack(grams if self.rooted else [torch.matmul(self.S, K) for K in grams], dim=1)

    def step_sums(self, problem: Problem, part: Batch, step: FirstStep) -> Result:
        """Slopes and curvatures of the first step."""
        if not self.rooted:
            return exact_sums(problem, part, self.y, step, [*self.jacobians, self.moved], self.S)
        found = columns(problem, part, step, self.cotangents, [*self.jacobians, self.moved])
        fixed = len(self.cotangents) - 1
        return sketched_sums(problem, found, fixed=fixed, slope_size=self.slope_size)

    def between(self, jacobian: Jacobian, start: int, stop: int) -> tuple[float, float]:
        """Means over examples and pairs, from example `start` up to `stop`."""
        few, r = jacobian.narrow(start, stop), self.S.shape[1]
        K = few.cross(few)[:, :r, :, :r]
        return sketched_means(K, fixed=r, root=True) if self.rooted else exact_means(K, self.S[start:stop])


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
