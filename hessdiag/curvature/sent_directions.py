"""What comes of sending output directions back: Gram matrices of all blocks along them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hessdiag.curvature.directions import Directions
from hessdiag.curvature.first_step import FirstStep, sent_back, sketched_sums, with_slope
from hessdiag.curvature.pair_groups import MAX_GROUP, PairGroups, sketched_means
from hessdiag.data.batch import Batch
from hessdiag.derivatives.jacobian import sent_to_blocks, watch
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import Result


@dataclass(frozen=True)
class Beside:
    """What a round measures beside the blocks: the first step of optimisers, and pairs of examples.

    Where `components` are asked for, its `shared` and `apart` are those of `estimators.components`.
    """

    step: FirstStep | None = None
    groups: PairGroups | None = None
    components: bool = False


NOTHING_BESIDE = Beside()


@dataclass(frozen=True)
class Sent:
    """What came of the directions z that were sent back, for all blocks, the deflation basis first.

    Attributes:
        curved, grams: z_k^T K_l S z_m and z_k^T K_l z_m, (B, L, m, m).
        beside: sums of what else was asked for.
    """

    curved: Tensor
    grams: Tensor
    beside: Result

    @classmethod
    def of(cls, problem: Problem, part: Batch, directions: Directions, seed: int, beside: Beside, start: int) -> Sent:
        """Of a part of the batch, from example `start`."""
        seen = watch(problem.model, part, problem.blocks)
        y = seen.y.detach()
        cotangents = sent_back(problem, part, y, directions.draw(problem, part, seen, seed))
        count, every, size = len(cotangents), cotangents, 1.0
        if beside.step is not None:
            every, size = with_slope(problem, part, y, cotangents)
        means = partial(sketched_means, fixed=directions.fixed, root=problem.loss.has_root)
        rows = beside.groups.rows(start, part.size) if beside.groups is not None else None
        grams, moved = [], []
        jacobians = sent_to_blocks(problem.model, part, problem.blocks, seen, every)
        for number, (block, jacobian) in enumerate(zip(problem.blocks, jacobians, strict=True)):
            gram = cotangents.new_zeros(part.size, count, count, dtype=torch.float64)
            if jacobian is not None:
                gram = _gram(jacobian, count, partial(rows.add, number) if rows is not None else None, means)
            grams.append(gram)
            if beside.step is not None:
                moved.append(beside.step.of_block(block.name, jacobian, every))
        sums: dict[str, Any] = dict(rows.result()) if rows is not None else {}
        if beside.step is not None:
            sums |= sketched_sums(problem, part, beside.step, every, moved, directions.fixed, size)
        both = torch.stack(grams, dim=1).detach()
        if problem.loss.has_root:
            return cls(both, both, sums)
        drawn = count // 2
        return cls(both[:, :, :drawn, drawn:], both[:, :, :drawn, :drawn], sums)


def _gram(
    jacobian: Jacobian,
    count: int,
    add: Callable[[Callable[[int, int], tuple[float, float]]], None] | None,
    means: Callable[[Tensor], tuple[float, float]],
) -> Tensor:
    """Gram matrices of every example along the first `count` cotangents, (B, count, count), and means of pairs."""
    if add is None:
        return jacobian.gram()[:, :count, :count].double()
    if jacobian.shape[0] <= MAX_GROUP:  # the Jacobian is formed once for both
        K = jacobian.cross(jacobian)[:, :count, :, :count].double()
        add(lambda start, stop: means(K[start:stop, :, start:stop]))
        return K.diagonal(dim1=0, dim2=2).permute(2, 0, 1)

    def of_group(start: int, stop: int) -> tuple[float, float]:
        few = jacobian.narrow(start, stop)
        return means(few.cross(few)[:, :count, :, :count])

    add(of_group)
    return jacobian.gram()[:, :count, :count].double()
