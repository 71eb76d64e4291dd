"""Gauss-Newton blocks of networks with many outputs, from random output directions.

With K_l = J_l J_l^T and S the Hessian of the loss in the outputs, ‖G_ij‖_F² = tr(S K_j S K_i). Let z_1..z_m be
directions whose weighted outer products average to the identity. Back-propagating z_k and S z_k once gives
X_l[k, m] = z_k^T K_l S z_m for *every* block l, and

    tr(S K_j S K_i) = E Σ_{k≠m} w_km X_i[k, m] X_j[m, k],

so that the number of backward passes does not depend on the number of blocks. Where S = A A^T (cross-entropy, squared
error) A z_k alone are sent back, and X_l is the Gram matrix of A^T K_l A.

Where each example has one output position, a basis Q of the range of K_l comes first (`hessdiag.curvature.directions`):
Q is treated exactly, and only (I − QQ^T)ω is random. Without it, blocks of low rank leave an error of 1/√q.

`rtol` asks for two stages (C. Stein, Annals of Mathematical Statistics 16 (1945) 243–258): a first sketch tells the
variance, and a second one has as many directions as follow from it. The second alone makes the estimate: stopping at
samples that look precise would bias them, low estimates of a skewed sum looking the more precise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from hessdiag.curvature.directions import BASIS, Directions, may_draw_classes, range_scales
from hessdiag.curvature.norms import (
    MARGIN,
    Curvature,
    degrees_of_freedom,
    equal_parts,
    rounding_of,
    widening,
)
from hessdiag.curvature.pairs import pair_sums
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.sums import Sums, add, sum_over
from hessdiag.derivatives.backward import block_vjps, trace_blocks
from hessdiag.derivatives.losses import sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.network.shapes import SENT_AT_ONCE
from hessdiag.results.numbers import Array

FEWEST, MOST = 6, 24  # directions of an example, where nothing is asked for
SPREAD_OVER = 28.0  # over the root of the number of examples: directions that leave about 7 % in blocks of high rank
LEAST = 4  # directions that tell their own variance


def directions_for(examples: int) -> int:
    """Random directions of each example by default.

    >>> [directions_for(examples) for examples in (1, 2, 8, 64)]
    [24, 20, 10, 6]
    """
    return min(MOST, max(FEWEST, math.ceil(SPREAD_OVER / math.sqrt(examples))))


def sketch_per_example(
    problem: Problem,
    memory: MemoryBudget,
    *,
    rtol: float | None = None,
    max_products: int = 400,
    seed: int = 0,
) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks.

    Args:
        problem: what to measure.
        memory: that may be taken.
        rtol: relative standard error of the weight blocks' diagonal; None for the default number of directions.
        max_products: directions that may be sent back in all, per example.
        seed: of the directions.
    """
    scales = range_scales(problem, seed)
    sketcher = _Sketcher(problem, memory, seed)
    cost = 2 * min(BASIS, problem.shape.outputs) if scales else 0
    room = max(LEAST, max_products - cost)
    first = Directions(min(directions_for(problem.batch.size), room), scales)
    found, chosen, spent = sketcher.measure(first), first, cost + first.random
    if rtol is not None and (left := max_products - spent - cost) >= LEAST:
        chosen = replace(first, random=sketcher.wanted(found, rtol, left), name="second sketch")
        found, spent = sketcher.measure(chosen), spent + cost + chosen.random
    basis = f"a basis of {chosen.fixed(problem.shape.outputs)} and " if scales else ""
    value, stderr = found.mean(rounding_of(problem))
    reason = f"{basis}{chosen.random} random directions of each example"
    return Curvature.of(problem.blocks, value, stderr, products=spent, rtol=rtol, reason=reason)


@dataclass(frozen=True)
class _Sketch:
    """Sums over examples and rounds of what `pair_sums` tells of all blocks, with so many directions in each."""

    sums: Sums
    parts: int
    random: int

    @property
    def _variance(self) -> Array:
        return np.asarray(self.sums["variance"] / self.parts**2)

    @property
    def _parts_alike(self) -> Array:
        return equal_parts(self.sums["variance"], self.sums["fourth"])

    def mean(self, rounding: float) -> tuple[Array, Array]:
        """The mean, and its standard error: rounding does not average out."""
        value, floor = self.sums["value"] / self.parts, rounding * self.sums["size"] / self.parts
        wide = widening(degrees_of_freedom(self.random, self._parts_alike))
        return value, np.maximum(wide * np.sqrt(np.maximum(self._variance, 0)), floor)


@dataclass(frozen=True)
class _Sketcher:
    """Sketches of one problem, as many examples and cotangents at once as fit into memory.

    Attributes:
        problem, memory, seed: of all sketches.
    """

    problem: Problem
    memory: MemoryBudget
    seed: int

    def measure(self, directions: Directions) -> _Sketch:
        """In as many equal rounds as it takes for the directions of one example to fit."""
        sides, fixed = sides_of(self.problem.loss), directions.fixed(self.problem.shape.outputs)
        together = self.problem.shape.most_cotangents(self.memory.total)
        most = self.problem.shape.most_in_pieces(self.memory.total, drawn=may_draw_classes(self.problem))
        rounds, each = _equal_rounds(directions.random, max(together, most) // sides - fixed)
        cotangents = (each + fixed) * sides
        at_once = None if cotangents <= together else SENT_AT_ONCE
        found = []
        for number in range(rounds):
            some = replace(directions, random=each, name=f"{directions.name} {number + 1}")
            parts = list(self.problem.batch.chunks(self.problem.shape.chunk(cotangents, memory=self.memory.chunk)))
            found.append(sum_over(parts, partial(self._sums, some, at_once), step="sketches"))
        return _Sketch(add(found), rounds * self.problem.batch.size, each)

    def _sums(self, directions: Directions, at_once: int | None, part: Batch) -> Sums:
        problem, fixed = self.problem, directions.fixed(self.problem.shape.outputs)
        seen = trace_blocks(problem.model, part, problem.blocks)
        sent = directions.cotangents(problem, part, seen, self.seed)
        m = len(sent)
        grams = torch.zeros(part.size, len(problem.blocks), m, m, dtype=torch.float64, device=seen.y.device)
        jacobians = block_vjps(problem.model, part, problem.blocks, seen, sent, at_once=at_once)
        for number, jacobian in enumerate(jacobians):
            if jacobian is not None:
                grams[:, number] = jacobian.gram().detach()
        X = grams if problem.loss.has_root else grams[:, :, : m // 2, m // 2 :]
        return {key: each.cpu().numpy() for key, each in pair_sums(X, fixed=fixed).items()}

    def wanted(self, found: _Sketch, rtol: float, most: int) -> int:
        """Directions, `LEAST` to `most`, that should bring the weights' diagonal to `rtol`."""
        own = [i for i, block in enumerate(self.problem.blocks) if block.kind == "weight"]
        value, shared, apart = (np.diagonal(found.sums[key])[own] / found.parts for key in ("value", "shared", "apart"))
        q = np.arange(LEAST, most + 1, dtype=np.float64)[:, None]
        pairs = 4 * (q - 2) * np.maximum(shared, 0) + 2 * np.maximum(apart, 0)
        variance = pairs / (q * (q - 1)) / self.problem.batch.size
        wide = widening(degrees_of_freedom(q, np.diagonal(found._parts_alike)[own]))
        enough = (MARGIN * wide * np.sqrt(variance) <= rtol * np.maximum(value, 0)).all(axis=1)
        return int(q[enough.argmax() if enough.any() else -1, 0])


def _equal_rounds(random: int, at_once: int) -> tuple[int, int]:
    """As many equal rounds as it takes for `at_once` directions to fit, and how many each has.

    >>> _equal_rounds(50, 20), _equal_rounds(7, 2), _equal_rounds(4, 20)
    ((3, 17), (2, 4), (1, 4))
    """
    rounds = -(-random // max(LEAST, at_once))
    return rounds, max(LEAST, -(-random // rounds))
