"""What comes of sending output directions back: Gram matrices of all blocks along them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.curvature.classes import draw_classes
from hessdiag.curvature.directions import Directions
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import block_vjps, trace_blocks
from hessdiag.derivatives.losses import hessian_products, root_products
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.sampled_softmax import SampledSoftmax
from hessdiag.network.trace import Trace


@dataclass(frozen=True)
class Sent:
    """What came of the directions z that were sent back, for all blocks, the deflation basis first.

    Attributes:
        curved, grams: z_k^T K_l S z_m and z_k^T K_l z_m, (B, L, m, m).
    """

    curved: Tensor
    grams: Tensor

    @classmethod
    def of(cls, problem: Problem, part: Batch, directions: Directions, seed: int, at_once: int | None = None) -> Sent:
        """Of a part of the batch; the cotangents `at_once`, if not all fit."""
        seen = trace_blocks(problem.model, part, problem.blocks)
        every = _cotangents(problem, part, directions, seen, seed)
        blocks, count = len(problem.blocks), len(every)
        both = torch.zeros(part.size, blocks, count, count, dtype=torch.float64, device=seen.y.device)
        for number, jacobian in block_vjps(problem.model, part, problem.blocks, seen, every, at_once=at_once):
            if jacobian is not None:
                both[:, number] = jacobian.gram().detach()
        if problem.loss.has_root:
            return cls(both, both)
        half = count // 2
        return cls(both[:, :, :half, half:], both[:, :, :half, :half])


def _cotangents(
    problem: Problem, part: Batch, directions: Directions, seen: Trace, seed: int
) -> Tensor | SampledSoftmax:
    """Those of directions that are drawn, in whose place they come where the loss has a root."""
    if not directions.fixed:
        name, count = f"classes, {directions.name},", directions.random
        classes = draw_classes(problem, part, seen, count=count, seed=seed, name=name, examples=part.numbers)
        if classes is not None:
            return classes
    return sent_back(problem, part, seen.y.detach(), directions.draw(problem, part, seen, seed))


def sent_back(problem: Problem, part: Batch, y: Tensor, z: Tensor) -> Tensor:
    """The cotangents of directions z (q, B, *out): A z where the loss has a root, else z and S z."""
    loss = problem.loss
    if loss.has_root:
        return root_products(loss, y, part.targets, z)
    return torch.cat([z, hessian_products(loss, y, part.targets, z)])
