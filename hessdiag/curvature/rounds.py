"""Rounds of random directions: what one tells of all blocks, how several combine, and how many directions it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hessdiag.curvature.estimators.effective_rank import Ranks
from hessdiag.curvature.estimators.estimate import ROUNDING
from hessdiag.curvature.estimators.student import widening
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import Result
from hessdiag.network.blocks import block_parameter
from hessdiag.results.numbers import Array

MIN_DIRECTIONS = 6  # directions that still tell their own noise
FEWEST, SURELY = 4, 10.0  # that tell it roughly: where a pilot foretells so many times less noise than is asked for
MARGIN = 1.3  # on the standard error that a pilot foretells: its own noise must rarely miss `rtol`
TAILS = 6.0  # how many times fewer degrees of freedom a variance of fourth powers of Gaussians has


@dataclass(frozen=True)
class Round:
    """Means over examples of what `hessdiag.curvature.estimators.pairs.pair_sums` tells of all blocks.

    `variance` and `fourth` are those of the mean: Σ V_b / B² and Σ V_b² / B⁴.
    """

    value: Array
    variance: Array
    fourth: Array
    shared: Array
    apart: Array
    size: Array
    random: int
    ranks: Ranks

    @classmethod
    def of(cls, sums: Result, size: int, random: int) -> Round:
        """From the sums of `pair_sums` over `size` examples, with so many random directions each."""
        mean = {key: total / size for key, total in sums.items()}
        return cls(
            value=mean["value"],
            variance=mean["variance"] / size,
            fourth=mean["fourth"] / size**3,
            shared=mean["shared"] / size,
            apart=mean["apart"] / size,
            size=mean["size"],
            random=random,
            ranks=Ranks.of(mean),
        )


@dataclass(frozen=True)
class Total:
    """Estimates of all L x L norms, and standard errors of which 1.96 reach to either end of a 95 % interval."""

    value: Array
    stderr: Array

    def curvature(self, problem: Problem, products: int, rtol: float) -> Curvature:
        """Diagonal of all blocks, map of the weights."""
        diagonal = {}
        for i, block in enumerate(problem.blocks):
            value, stderr = float(self.value[i, i]), float(self.stderr[i, i])
            diagonal[block.name] = Diagonal(value, stderr, products, "rtol" if stderr <= rtol * value else "budget")
        own = weight_places(problem)
        return Curvature(diagonal, self.value[own][:, own], self.stderr[own][:, own])


def combine(rounds: list[Round], eps: float) -> Total:
    """The mean of independent rounds of the same size.

    The variance is itself estimated. As in `curvature.estimators.hutchinson`, its degrees of freedom are those of
    Welch and Satterthwaite over examples and rounds, divided by `TAILS`. Rounding, which does not average out, is a
    floor to the standard error.
    """
    count, q = len(rounds), rounds[0].random
    variance = sum((r.variance for r in rounds), np.zeros(())) / count**2
    fourth = sum((r.fourth for r in rounds), np.zeros(())) / count**4
    parts = np.divide(variance**2, fourth, out=np.ones_like(variance), where=fourth > 0)
    dof = degrees_of_freedom(q, parts)
    floor = ROUNDING * eps * np.mean([r.size for r in rounds], axis=0)
    value = np.mean([r.value for r in rounds], axis=0)
    return Total(value, np.maximum(widening(dof) * np.sqrt(np.maximum(variance, 0)), floor))


def directions_wanted(
    found: Round,
    own: list[int],
    rtol: float,
    room: int,
    *,
    parts: int = 1,
    margin: float = MARGIN,
    at_once: float = math.inf,
) -> int:
    """Directions, `FEWEST` to `room`, that should bring the diagonal blocks `own` to `rtol`.

    Args:
        found: of a pilot.
        own: places of the blocks.
        rtol: relative standard error.
        room: that there is for directions.
        parts: examples that have directions of their own.
        margin: on the standard error that the pilot foretells.
        at_once: directions that fit into a round; only those of one round make pairs.
    """
    value, shared, apart = (np.diagonal(each)[own] for each in (found.value, found.shared, found.apart))
    q = np.arange(min(FEWEST, room), room + 1, dtype=np.int64)[:, None]
    sure = np.where(q < MIN_DIRECTIONS, SURELY, 1.0)
    target = (rtol * np.maximum(value, 0) / (margin * sure)) ** 2
    rounds = np.ceil(q / max(at_once, MIN_DIRECTIONS)).clip(1)
    each = np.ceil(q / rounds).clip(2)
    variance = (4 * (each - 2) * np.maximum(shared, 0) + 2 * np.maximum(apart, 0)) / (each * (each - 1) * rounds)
    enough = (variance * widening(degrees_of_freedom(q, parts)) ** 2 <= target).all(axis=1)
    return int(q[enough.argmax() if enough.any() else -1, 0])


def equal_rounds(random: int, at_once: int) -> tuple[int, int]:
    """As many equal rounds as it takes for `at_once` directions to fit, and how many each has.

    >>> equal_rounds(50, 20), equal_rounds(7, 2), equal_rounds(4, 20)
    ((3, 17), (2, 6), (1, 4))
    """
    count = -(-random // max(MIN_DIRECTIONS, at_once))
    return count, max(min(MIN_DIRECTIONS, random), -(-random // count))


def weight_places(problem: Problem) -> list[int]:
    """Places of the weight blocks among all."""
    return [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]


def degrees_of_freedom(q: npt.NDArray[np.int64] | int, parts: Array | float) -> Array:
    """Degrees of freedom of a variance that was estimated from q directions for each of so many equal parts."""
    return np.asarray(np.maximum((q + 1) * parts - 2, q - 1) / TAILS)


def rounding_of(problem: Problem) -> float:
    """Rounding of the dtype that the model is in."""
    dtype = block_parameter(problem.model, problem.blocks[0]).dtype
    return float(torch.finfo(dtype).eps)
