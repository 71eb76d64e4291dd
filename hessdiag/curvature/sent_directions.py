"""What comes of sending output directions back: Gram matrices of all blocks along them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hessdiag.curvature.classes import draw_classes
from hessdiag.curvature.directions import Directions
from hessdiag.curvature.first_step import FirstStep, add_slope, columns, sent_back, sketched_sums, slope_like
from hessdiag.curvature.pair_groups import MAX_GROUP, PairGroups, PairRows, sketched_means
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward_pass import Numbered, sent_to_blocks, watch
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import Result
from hessdiag.network.hooks import Pieces, Trace
from hessdiag.network.shapes import SENT_AT_ONCE


@dataclass(frozen=True)
class Beside:
    """What a round measures beside the blocks: the first step of optimisers, and pairs of examples.

    Attributes:
        step: of optimisers.
        groups: of examples that are in memory together.
        apart: of examples that are measured one after the other, of which the first directions make pairs.
        see: is shown the Jacobian of each block by its number, while its memory is not yet that of another.
        components: whether `shared` and `apart` of the round are those of `estimators.components`.
    """

    step: FirstStep | None = None
    groups: PairGroups | None = None
    apart: PairGroups | None = None
    see: Callable[[int, Jacobian | None], None] | None = None
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
    def of(
        cls,
        problem: Problem,
        part: Batch,
        directions: Directions,
        seed: int,
        beside: Beside,
        start: int,
        pieces: Pieces | None = None,
    ) -> Sent:
        """Of a part of the batch, from example `start`; the cotangents in `pieces`, if not all fit."""
        step = beside.step
        seen = watch(problem.model, part, problem.blocks, norms=None if step is None else step.norms)
        every, count, size = _cotangents(problem, part, directions, seen, seed, with_slope=step is not None)
        means = partial(sketched_means, fixed=directions.fixed, root=problem.loss.has_root)
        rows = beside.groups.rows(start, part.size) if beside.groups is not None else None
        blocks = len(problem.blocks)
        both = torch.zeros(part.size, blocks, count, count, dtype=torch.float64, device=seen.y.device)
        squares = both.new_zeros(blocks)

        def noted() -> Iterator[Numbered]:
            """The Jacobians one by one, each once its Gram matrices are taken: none is held longer."""
            sent = sent_to_blocks(problem.model, part, problem.blocks, seen, every, pieces=pieces)
            for number, jacobian in sent:
                if number < blocks and beside.see is not None:
                    beside.see(number, jacobian)
                if number < blocks and jacobian is not None:
                    gram, between = _grams(jacobian, rows)
                    if rows is not None and between is not None:
                        rows.add(number, *means(between[:, :, :count, :, :count]))
                    both[:, number] = gram[:, :count, :count].detach()
                    if step is not None:
                        squares[number] = gram[:, -1, -1].sum() / size**2
                yield number, jacobian

        sums: dict[str, Any] = {}
        if step is not None:
            found = columns(problem, part, step, every, noted())
            sums = {
                **sketched_sums(problem, found, fixed=directions.fixed, slope_size=size),
                "gradient_sq": squares.cpu().numpy(),
            }
        else:
            deque(noted(), maxlen=0)
        sums |= rows.result() if rows is not None else {}
        if problem.loss.has_root:
            return cls(both, both, sums)
        half = count // 2
        return cls(both[:, :, :half, half:], both[:, :, :half, :half], sums)


def _cotangents(
    problem: Problem, part: Batch, directions: Directions, seen: Trace, seed: int, *, with_slope: bool
) -> tuple[Tensor | DrawnClasses, int, float]:
    """Those of directions that are drawn, how many they are, and what the slope behind them is multiplied by.

    Where the loss has a root they take the directions' place, behind which there is room for the slope.
    """
    y = seen.y.detach()
    if not directions.fixed:
        name, count = f"classes, {directions.name},", directions.random
        classes = draw_classes(problem, part, seen, count=count, seed=seed, name=name, examples=part.numbers)
        if classes is not None:
            classes, size = classes.with_slope() if with_slope else (classes, 1.0)
            return classes, count, size
    drawn = directions.draw(problem, part, seen, seed, room=int(with_slope and problem.loss.has_root))
    if not problem.loss.has_root:
        cotangents = sent_back(problem, part, y, drawn)
        every, size = add_slope(problem, part, y, cotangents) if with_slope else (cotangents, 1.0)
        return every, len(cotangents), size
    count = len(drawn) - with_slope
    for start in range(0, count, SENT_AT_ONCE):
        piece = drawn[start : min(start + SENT_AT_ONCE, count)]
        piece.copy_(sent_back(problem, part, y, piece))
    if not with_slope:
        return drawn, count, 1.0
    slope, size = slope_like(problem, part, y, drawn[:count])
    drawn[count] = slope
    return drawn, count, size


def _grams(jacobian: Jacobian, rows: PairRows | None) -> tuple[Tensor, Tensor | None]:
    """Gram matrices of every example, (B, C, C), and of each group of pairs together, (G, size, C, size, C)."""
    if rows is None or not rows.firsts:
        return jacobian.gram().double(), None
    firsts, size = [*rows.firsts.values()], rows.groups.size
    if jacobian.shape[0] > MAX_GROUP:
        return jacobian.gram().double(), jacobian.cross_within(firsts, size)
    K = jacobian.cross(jacobian).double()  # the Jacobian is formed once for both
    between = torch.stack([K[first : first + size, :, first : first + size] for first in firsts])
    return K.diagonal(dim1=0, dim2=2).permute(2, 0, 1), between
