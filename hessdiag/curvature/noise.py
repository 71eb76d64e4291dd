"""The curvature noise scale: the batch size past which the Gauss-Newton matrix of a batch stops shrinking.

The matrix of a batch-mean loss is the mean of those of its examples, so that with pairs b ≠ c of examples

    E‖mean_b G^(b)‖² = E‖G^(b)‖² / B + (1 − 1/B) E⟨G^(b), G^(c)⟩,

and the two terms are equal near B = E‖G^(b)‖² / E⟨G^(b), G^(c)⟩. With J_b^T z and S z as in
`hessdiag.curvature.sketch`, ⟨G^(b), G^(c)⟩ = tr(S_b K_bc S_c K_cb) with K_bc = J_b J_c^T. All pairs within a few groups
of examples are taken, of a stream within each of its batches, which should be shuffled. It is the analogue for
curvature of the gradient noise scale (arXiv 1812.06162).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.student import t_quantile
from hessdiag.derivatives.jacobian import all_jacobians, unit_cotangents
from hessdiag.derivatives.losses import hessian_products
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.results.numbers import Z95, Array

GROUPS = 16
MIN_GROUPS = 4  # of a batch that is not one group, so that they tell an error
SIDE = 64  # outputs of all examples of a group together, where there are so few that all are taken
MAX_GROUP = 8
DIRECTIONS = 8  # random ones, where there are more
FORMED = 2**26  # numbers of the Jacobians of a group, which random directions may take
LEVEL = 0.975  # of the upper end of a 95 % interval


@dataclass(frozen=True)
class NoiseScale:
    """A noise scale in examples, and its standard error as an estimate for the data that the examples are of.

    Infinite where the matrices of different examples have nothing in common. The error is infinite where either mean is
    lost in noise; it is NaN where there is no second group of examples to tell it; both are where there is no pair.
    """

    value: float
    stderr: float


def sum_pairs(
    problem: Problem, *, outputs: int, chunk: Callable[[int], int], seed: int, work: Work = ALL_HERE
) -> list[Result]:
    """Mean ‖G^(b)‖² (`own`) and ⟨G^(b), G^(c)⟩ (`cross`) of every group of examples, (L,) each.

    Args:
        problem: what to measure.
        outputs: N, outputs per example.
        chunk: `chunk(m)` examples are measured at once when m cotangents are sent back.
        seed: of the directions.
        work: carries it out.
    """
    exact = outputs <= SIDE
    count = outputs if exact else DIRECTIONS
    largest = max((block.numel for block in problem.blocks), default=1)
    fitting = SIDE // outputs if exact else FORMED // (2 * count * largest)
    size = min(max(2, fitting), MAX_GROUP)
    groups = _groups(problem.batch.size, size)
    at_once = max(1, chunk(2 * count) // size)
    parts = [groups[start : start + at_once] for start in range(0, len(groups), at_once)]

    def measure(part: Sequence[Sequence[int]]) -> Result:
        return _pairs(problem, part, count if not exact else None, seed)

    return work.each("noise scale", parts, measure, label=str)


def noise_scales(names: Sequence[str], sums: Sequence[Result]) -> dict[str, NoiseScale]:
    """The noise scale of each block, from `sum_pairs` of one batch or of several."""
    if not sums:
        return {}
    own = np.concatenate([each["own"] for each in sums])  # (groups, L)
    cross = np.concatenate([each["cross"] for each in sums])
    return {name: _ratio(own[:, i], cross[:, i]) for i, name in enumerate(names)}


def _groups(examples: int, size: int) -> list[list[int]]:
    """Groups that are each spread over the whole batch, which may be sorted; all of a small batch is one group."""
    if examples <= size:
        return [list(range(examples))] if examples > 1 else []
    size = min(size, max(2, examples // MIN_GROUPS))
    count = min(GROUPS, examples // size)
    chosen = [number * examples // (count * size) for number in range(count * size)]
    return [chosen[group::count] for group in range(count)]


def _pairs(problem: Problem, groups: Sequence[Sequence[int]], drawn: int | None, seed: int) -> Result:
    """Means over the pairs within each group."""
    batch, loss = problem.batch, problem.loss
    part = batch.select([number for group in groups for number in group])

    def cotangents_of(y: Tensor) -> Tensor:
        which = f"examples from {batch.offset + groups[0][0]}"
        z = unit_cotangents(y) if drawn is None else _drawn(y, drawn, which, seed)  # (q, B, *out)
        return torch.cat([z, hessian_products(loss, y, part.targets, z)])

    own = np.zeros((len(groups), len(problem.blocks)))
    cross = np.zeros_like(own)
    for i, jacobian in enumerate(all_jacobians(problem.model, part, problem.blocks, cotangents_of)):
        start = 0
        for number, group in enumerate(groups):
            stop = start + len(group)
            if jacobian is not None:
                few = jacobian.narrow(start, stop)
                own[number, i], cross[number, i] = _means(few.cross(few).double(), exact=drawn is None)
            start = stop
    return {"own": own, "cross": cross}


def _means(K: Tensor, *, exact: bool) -> tuple[float, float]:
    """Means over examples of ‖G^(b)‖² and over pairs of ⟨G^(b), G^(c)⟩.

    Args:
        K: (B, 2q, B, 2q), Gram matrix of the Jacobians along the z and the S z of all examples.
        exact: whether the q directions of each example are a basis; otherwise they are Gaussian.
    """
    q = K.shape[1] // 2
    terms = K[:, :q, :, q:] * K[:, q:, :, :q]  # (B, q, B, q)
    B = len(terms)
    pairs = terms.sum(dim=(1, 3))  # (B, B)
    off = (pairs.sum() - pairs.diagonal().sum()) / (B * (B - 1))
    mine = terms.diagonal(dim1=0, dim2=2)  # (q, q, B)
    if exact:
        return float(pairs.diagonal().mean()), float(off)
    same = mine.diagonal(dim1=0, dim2=1).sum(dim=1)  # (B,), k = m: not independent
    return float(((pairs.diagonal() - same) / (q * (q - 1))).mean()), float(off) / q**2


def _ratio(own: Array, cross: Array) -> NoiseScale:
    """Ratio a/b of means over independent groups, with half of Fieller's interval as 1.96 standard errors.

    E. C. Fieller, Journal of the Royal Statistical Society B 16 (1954) 175–185: a − ρ b has mean 0 at the true ratio ρ,
    so that all ρ with |a − ρ b| <= t se(a − ρ b) make an interval, whose ends are the roots of
    (b² − t² V_b) ρ² − 2 (a b − t² V_ab) ρ + a² − t² V_a. To first order in the errors it would be too short where b is
    but a few of them above 0. It is bounded where b > t √V_b; the same is asked of a, and else nothing is told.
    """
    groups, a, b = len(own), float(own.mean()), float(cross.mean())
    if not own.any():
        return NoiseScale(math.nan, math.nan)
    if not cross.any():
        return NoiseScale(math.inf, math.inf)
    if groups == 1:
        return NoiseScale(a / b if b > 0 else math.inf, math.nan if b > 0 else math.inf)
    (v_a, v_ab), (_, v_b) = (np.cov(own, cross) / groups).tolist()
    t = float(t_quantile(LEVEL, groups - 1))
    if a <= t * math.sqrt(v_a) or b <= t * math.sqrt(v_b):
        return NoiseScale(a / b if b > 0 else math.inf, math.inf)
    square, linear, constant = b * b - t * t * v_b, a * b - t * t * v_ab, a * a - t * t * v_a
    half = math.sqrt(max(linear * linear - square * constant, 0.0)) / square
    return NoiseScale(a / b, half / Z95)


def _drawn(y: Tensor, count: int, which: str, seed: int) -> Tensor:
    generator = stream(seed, f"noise scale of {which}")
    return torch.randn(count, *y.shape, generator=generator).to(y)
