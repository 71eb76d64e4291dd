"""Gauss-Newton blocks of networks with many outputs, from random output directions.

With K_l = J_l J_l^T and S the Hessian of the loss in the outputs, ‖G_ij‖_F² = tr(S K_j S K_i). Let z_1..z_m be
directions whose weighted outer products average to the identity. Back-propagating z_k and S z_k once gives
X_l[k, m] = z_k^T K_l S z_m for *every* block l, and

    tr(S K_j S K_i) = E Σ_{k≠m} w_km X_i[k, m] X_j[m, k],

so that the number of backward passes does not depend on the number of blocks. Where S = A A^T (cross-entropy, squared
error) A z_k alone are sent back, and X_l is the Gram matrix of A^T K_l A.

Where each example has one output position, a basis Q of the range of K_l comes first (`hessdiag.curvature.directions`):
Q is treated exactly, and only (I − QQ^T)ω is random. Without it, blocks of low rank leave an error of 1/√q.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.directions import Directions, may_draw_classes, range_basis
from hessdiag.curvature.norms import (
    Curvature,
    degrees_of_freedom,
    equal_parts,
    rounding_of,
    two_stages,
    widening,
)
from hessdiag.curvature.pairs import pair_sums
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, Sums, add, sum_over
from hessdiag.derivatives.backward import block_vjps, trace_blocks
from hessdiag.derivatives.losses import sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.network.trace import SENT_AT_ONCE
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
    problem: Problem, memory: MemoryBudget, *, rtol: float | None = None, max_products: int = 400, seed: int = 0,
) -> Curvature:  # fmt: skip
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks.

    Args:
        problem: what to measure.
        memory: that may be taken.
        rtol: relative standard error of the weight blocks' diagonal; None for the default number of directions.
        max_products: directions that may be sent back in all, per example.
        seed: of the directions.
    """
    basis = None if problem.coupled else range_basis(problem, memory, seed)
    rounding = rounding_of(problem)
    vectors = 0 if basis is None else len(basis)  # each by a pass forward and one back

    def measure(count: int, stage: str) -> tuple[Array, Array, int]:
        found = _measure(problem, memory, Directions(count, basis, f"{stage}sketch"), seed, rounding)
        return *found, 2 * vectors + count

    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    first = min(directions_for(problem.batch.size), max(LEAST, max_products - 2 * vectors))
    value, stderr, spent = two_stages(measure, first, least=LEAST, most=max_products, own=(own, own), rtol=rtol)
    random = f"{spent[-1] - 2 * vectors} random directions of each example"
    reason = f"a basis of {vectors} and {random}" if vectors else random
    return Curvature.of(
        problem.blocks, value, stderr, products=[sum(spent)] * len(problem.blocks), rtol=rtol, reason=reason
    )


def _measure(
    problem: Problem, memory: MemoryBudget, directions: Directions, seed: int, rounding: float
) -> tuple[Array, Array]:
    """All norms and their standard errors, in as many equal rounds as it takes for an example's directions to fit."""
    sides, fixed, shape = sides_of(problem.loss), directions.fixed, problem.shape
    together = shape.most_cotangents(memory.total)
    most = max(together, shape.most_in_pieces(memory.total, drawn=may_draw_classes(problem)))
    rounds = -(-directions.random // max(LEAST, most // sides - fixed))
    each = max(LEAST, -(-directions.random // rounds))
    cotangents = (each + fixed) * sides
    at_once = None if cotangents <= together else SENT_AT_ONCE
    found = []
    for number in range(rounds):
        some = replace(directions, random=each, name=f"{directions.name} {number + 1}")

        def sums(part: Batch, some: Directions = some) -> Sums:
            X = products_of(problem, part, some, seed, at_once)
            return {key: total.cpu().numpy() for key, total in pair_sums(X, fixed=fixed).items()}

        parts = list(problem.batch.chunks(shape.chunk(cotangents, memory=memory.chunk)))
        found.append(sum_over(parts, sums, step="sketches", gradients=cotangents))
    return mean_of(add(found), rounds * problem.batch.size, each, rounding)


def products_of(problem: Problem, part: Batch, directions: Directions, seed: int, at_once: int | None) -> Tensor:
    """z_k^T K S z_m of all blocks, (B, L, m, m); z_k^T A^T K A z_m where the loss has a root."""
    seen = trace_blocks(problem.model, part, problem.blocks)
    sent = directions.cotangents(problem, part, seen, seed)
    m = len(sent)
    grams = torch.zeros(part.size, len(problem.blocks), m, m, dtype=torch.float64, device=seen.y.device)
    jacobians = block_vjps(problem.model, part, problem.blocks, seen, sent, at_once=at_once)
    for number, jacobian in enumerate(jacobians):
        if jacobian is not None:
            grams[:, number] = jacobian.gram().detach()
    return grams if problem.loss.has_root else grams[:, :, : m // 2, m // 2 :]


def drawn_by_size(problem: Problem, count: int, memory: MemoryBudget, seed: int) -> tuple[list[int], Array]:
    """Draw examples, those with large blocks more often: their numbers, and what each counts in a mean.

    Sizes are tr(G)² from a few directions, relative to the mean over examples; half of the chances are alike for all.
    """
    directions, parts = Directions(LEAST, name="sizes"), []
    for part in problem.batch.chunks(problem.shape.chunk(2 * LEAST, memory=memory.chunk)):
        X = products_of(problem, part, directions, seed, None)
        parts.append(X.diagonal(dim1=2, dim2=3).sum(dim=2).square())
    sizes = torch.cat(parts)  # (B, L)
    own = (sizes / sizes.mean(dim=0)).nan_to_num().mean(dim=1)
    shares = (0.5 + 0.5 * own).cpu().numpy()
    shares *= len(shares) / shares.sum()
    ends, points = np.cumsum(shares) / len(shares), (np.arange(count) + 0.5) / count
    chosen = np.minimum(np.searchsorted(ends, points), len(shares) - 1)
    return chosen.tolist(), 1 / shares[chosen]


def mean_of(sums: Sums, parts: int, random: int, rounding: float) -> tuple[Array, Array]:
    """The mean of `pair_sums` over examples and rounds, and its standard error: rounding does not average out."""
    value, floor = sums["value"] / parts, rounding * sums["size"] / parts
    wide = widening(degrees_of_freedom(random, equal_parts(sums["variance"], sums["fourth"])))
    return value, np.maximum(wide * np.sqrt(sums["variance"]) / parts, floor)
