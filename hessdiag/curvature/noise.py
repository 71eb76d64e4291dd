"""The curvature noise scale: the batch size past which the Gauss-Newton matrix of a batch stops shrinking.

The matrix of a batch-mean loss is the mean of those of its examples, so that with pairs b ≠ c of examples

    E‖mean_b G^(b)‖² = E‖G^(b)‖² / B + (1 − 1/B) E⟨G^(b), G^(c)⟩,

and the two terms are equal near B = E‖G^(b)‖² / E⟨G^(b), G^(c)⟩. All pairs within a few groups of examples are taken,
of a stream within each of its batches, which should be shuffled: while the curvature of each example is measured
(`hessdiag.curvature.pair_groups`), or in a pass of its own. It is the analogue for curvature of the gradient noise
scale (arXiv 1812.06162).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hessdiag.curvature.classes import draw_classes
from hessdiag.curvature.estimators.student import t_quantile
from hessdiag.curvature.first_step import sent_back
from hessdiag.curvature.pair_groups import GROUPS, MAX_GROUP, MIN_GROUPS, SIDE, sketched_means
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward_pass import sent_to_blocks, unit_cotangents, watch
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import gaussians
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.hooks import Trace
from hessdiag.results.numbers import Z95, Array

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
    """The noise scale of each block, from the pairs of one batch or of several."""
    if not sums:
        return {}
    told = [each["found"] > 0 for each in sums]
    own = np.concatenate([each["own"][found] for each, found in zip(sums, told, strict=True)])  # (groups, L)
    cross = np.concatenate([each["cross"][found] for each, found in zip(sums, told, strict=True)])
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
    chosen = [number for group in groups for number in group]
    part, numbers = batch.select(chosen), [batch.offset + number for number in chosen]
    seen = watch(problem.model, part, problem.blocks)
    cotangents = _cotangents(problem, part, seen, numbers, drawn, seed)
    own = np.zeros((len(groups), len(problem.blocks)))
    cross = np.zeros_like(own)
    for i, jacobian in sent_to_blocks(problem.model, part, problem.blocks, seen, cotangents):
        start = 0
        for number, group in enumerate(groups):
            stop = start + len(group)
            if jacobian is not None:
                few = jacobian.narrow(start, stop)
                K = few.cross(few).unsqueeze(0)
                q = K.shape[2] if loss.has_root else K.shape[2] // 2
                means = sketched_means(K, fixed=q if drawn is None else 0, root=loss.has_root)
                own[number, i], cross[number, i] = (float(each) for each in means)
            start = stop
    return {"own": own, "cross": cross, "found": np.ones(len(groups))}


def _ratio(own: Array, cross: Array) -> NoiseScale:
    """Ratio a/b of means over independent groups, with half of Fieller's interval as 1.96 standard errors.

    E. C. Fieller, Journal of the Royal Statistical Society B 16 (1954) 175–185: a − ρ b has mean 0 at the true ratio ρ,
    so that all ρ with |a − ρ b| <= t se(a − ρ b) make an interval, whose ends are the roots of
    (b² − t² V_b) ρ² − 2 (a b − t² V_ab) ρ + a² − t² V_a. To first order in the errors it would be too short where b is
    but a few of them above 0. It is bounded where b > t √V_b; the same is asked of a, and else nothing is told.
    """
    if not own.any():
        return NoiseScale(math.nan, math.nan)
    if not cross.any():
        return NoiseScale(math.inf, math.inf)
    sizes = float(np.abs(own).max()), float(np.abs(cross).max())
    if not np.isfinite(sizes).all():
        return NoiseScale(math.nan, math.nan)
    scaled = _scaled_ratio(own / sizes[0], cross / sizes[1])  # squares fit float64
    size = sizes[0] / sizes[1]
    return NoiseScale(scaled.value * size, scaled.stderr * size)


def _scaled_ratio(own: Array, cross: Array) -> NoiseScale:
    groups, a, b = len(own), float(own.mean()), float(cross.mean())
    if groups == 1:
        return NoiseScale(a / b if b > 0 else math.inf, math.nan if b > 0 else math.inf)
    (v_a, v_ab), (_, v_b) = (np.cov(own, cross) / groups).tolist()
    t = float(t_quantile(LEVEL, groups - 1))
    if a <= t * math.sqrt(v_a) or b <= t * math.sqrt(v_b):
        return NoiseScale(a / b if b > 0 else math.inf, math.inf)
    square, linear, constant = b * b - t * t * v_b, a * b - t * t * v_ab, a * a - t * t * v_a
    half = math.sqrt(max(linear * linear - square * constant, 0.0)) / square
    return NoiseScale(a / b, half / Z95)


def _cotangents(
    problem: Problem, part: Batch, seen: Trace, numbers: Sequence[int], drawn: int | None, seed: int
) -> Tensor | DrawnClasses:
    """Those of all outputs, or of so many random directions."""
    y = seen.y.detach()
    if drawn is None:
        return sent_back(problem, part, y, unit_cotangents(y))
    classes = draw_classes(problem, part, seen, count=drawn, seed=seed, name="noise scale, classes", examples=numbers)
    if classes is not None:
        return classes
    return sent_back(problem, part, y, gaussians(seed, "noise scale", numbers, (drawn, *y.shape[1:])).to(y))
