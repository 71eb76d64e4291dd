"""A round of the batch view: so many examples, so many directions of each, and all pairs within groups of examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.batch_cost import BACKWARD, FORWARD, GROUP, ROWS, ROWS_OF_ALL
from hessdiag.curvature.directions import Directions
from hessdiag.curvature.estimators.effective_rank import Ranks, rank_sums
from hessdiag.curvature.estimators.estimate import ROUNDING
from hessdiag.curvature.estimators.example_pairs import example_pair_sums
from hessdiag.curvature.estimators.student import skewed_dof, widening
from hessdiag.curvature.rounds import Total, degrees_of_freedom, rounding_of
from hessdiag.curvature.sent_directions import sent_back
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import block_vjps, trace_blocks
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import Result, Work, add
from hessdiag.results.numbers import Array

TOGETHER = 4  # directions of an example in a round; more where a group is all examples
PAIRED_TAILS = 6.0  # how many times fewer degrees of freedom products of two examples' norms have than one's
POWERS = {  # of a group's share of the examples, with which its sums add up
    "value": 1,
    "directions": 2,
    "directions_sq": 4,
    "examples": 2,
    "third": 3,
    "fourth": 4,
    "pairings": 2,
    "size": 1,
}


@dataclass(frozen=True)
class BatchSketch:
    """How many examples to draw, and directions of each.

    Attributes:
        examples: of the batch.
        directions: of each example.
        ranks: whether the effective rank of the examples' blocks is asked for, as of a pilot.
        rows: directions of all examples of a group together.
    """

    examples: int
    directions: Directions
    ranks: bool = False
    rows: int = ROWS

    def run(self, problem: Problem, *, fit: Callable[[int], int], seed: int, work: Work) -> Sketched:
        """Measure it in groups of at most `fit(m)` examples, with m directions of each."""
        size, fixed = problem.batch.size, self.directions.fixed
        groups, rounds, each = self._cut(size, fit)
        batch = problem.batch.select(self._permuted(size, seed, "examples")[: self.examples])
        bounds = [self.examples * number // groups for number in range(groups + 1)]
        found = []
        for number in range(rounds):
            some = replace(self.directions, random=each, name=f"{self.directions.name} {number + 1}")
            mixed = batch.select(self._permuted(self.examples, seed, some.name))
            parts = [mixed.narrow(start, stop) for start, stop in pairwise(bounds)]
            name = f"sketches of the batch, {some.name}, {each} + {fixed} directions"
            found.append(work.total(name, parts, partial(self._group, problem, some, seed)))
        mean = {key: each / rounds for key, each in add(found).items()}
        for key in ("directions", "pairings"):
            mean[key] /= rounds
        mean["directions_sq"] /= rounds**3
        return Sketched(
            **{key: mean[key] for key in POWERS},
            drawn=self.examples,
            batch=size,
            random=rounds * each,
            ranks=Ranks.of(mean) if self.ranks else None,
        )

    def _cut(self, size: int, fit: Callable[[int], int]) -> tuple[int, int, int]:
        """Groups of examples of a batch of that size, rounds of directions, and random directions of each round."""
        fixed, random = self.directions.fixed, self.directions.random
        together = self._together(size, fit)
        groups = max(1, min(-(-self.examples // together), self.examples // GROUP))
        if not random:
            return groups, 1, 0
        most = self._rows(size) // together - fixed
        while most > 2 and fit(fixed + most) < together:
            most -= 1
        rounds = -(-random // max(2, most))
        return groups, rounds, max(2, -(-random // rounds))

    def _together(self, size: int, fit: Callable[[int], int]) -> int:
        """Examples of a group."""
        each = self._each(size)
        return min(self.examples, max(GROUP, min(self._rows(size) // each, fit(each))))

    def _each(self, size: int) -> int:
        """Directions of an example in a round: few enough, where that may be, for all examples to be one group."""
        random = min(self.directions.random, TOGETHER)
        of_all = ROWS_OF_ALL // self.examples - self.directions.fixed
        if self.examples == size and of_all >= 2:
            random = min(random, of_all)
        return self.directions.fixed + random

    def _rows(self, size: int) -> int:
        every = self.examples * self._each(size)
        return max(self.rows, every) if self.examples == size and every <= ROWS_OF_ALL else self.rows

    def unpaired(self, size: int, fit: Callable[[int], int]) -> float:
        """Variance of the estimate, in variances of a pair of examples, from pairs that no group has."""
        group = self._together(size, fit)
        rounds = max(1, -(-self.directions.random // max(1, self._each(size) - self.directions.fixed)))
        missing = 1 - (group - 1) / max(size - 1, 1)
        return missing * 2 / (self.examples * max(group - 1, 1) * rounds)

    def passes(self, size: int, sides: int) -> float:
        """What it takes, in gradients of the whole batch: `ROWS` are paired in the time that sends them back."""
        rows = min(self._rows(size), self.examples * self._each(size))
        return self.examples / size * (FORWARD + BACKWARD * sides * self.directions.cost * (1 + rows / ROWS) / 2)

    def _permuted(self, count: int, seed: int, purpose: str) -> list[int]:
        generator = stream(seed, f"{purpose} of sketches, {self.directions.name}")
        return torch.randperm(count, generator=generator).tolist()

    def _group(self, problem: Problem, directions: Directions, seed: int, part: Batch) -> Result:
        """What a group of examples tells, in proportion to their number."""
        size = problem.batch.size
        if part.size < min(GROUP, self.examples):
            raise HessdiagError(
                f"out of memory with {GROUP} examples: use method 'probe', or a machine with more memory"
            )
        X, K = _grams(problem, directions, seed, part)
        share = part.size / self.examples
        sums = example_pair_sums(X, fixed=directions.fixed, batch=size)
        weighted: Result = {key: each * share ** POWERS[key] for key, each in sums.items()}
        if not self.ranks:
            return weighted
        own = torch.diagonal(K, dim1=1, dim2=3).permute(3, 0, 1, 2)  # of each example with itself
        told = rank_sums(own, fixed=directions.fixed)
        return {**weighted, **{key: (each / self.examples).cpu().numpy() for key, each in told.items()}}


def _grams(problem: Problem, directions: Directions, seed: int, part: Batch) -> tuple[Tensor, Tensor]:
    """z_ia^T J_i J_j^T S z_jb and z_ia^T J_i J_j^T z_jb of all blocks, (L, g, m, g, m); A^T J J^T A for both."""
    seen = trace_blocks(problem.model, part, problem.blocks)
    z = directions.draw(problem, part, seen, seed)
    cotangents = sent_back(problem, part, seen.y.detach(), z)
    m, count = len(z), len(cotangents)
    grams = torch.zeros(
        len(problem.blocks), part.size, count, part.size, count, dtype=torch.float64, device=cotangents.device
    )
    for number, jacobian in block_vjps(problem.model, part, problem.blocks, seen, cotangents):
        if jacobian is not None:
            grams[number].copy_(jacobian.cross(jacobian).detach())
    if problem.loss.has_root:
        return grams, grams
    return grams[:, :, :m, :, m:], grams[:, :, :m, :, :m]


@dataclass(frozen=True)
class Sketched:
    """An estimate for all L x L blocks, and what it tells of its error.

    Attributes:
        value, directions, directions_sq, examples, third, fourth, pairings, size: (L, L), see `example_pair_sums`.
        drawn, batch: examples, and how many the batch has.
        random: directions of an example.
        ranks: of the examples' blocks, where they were asked for.
    """

    value: Array
    directions: Array
    directions_sq: Array
    examples: Array
    third: Array
    fourth: Array
    pairings: Array
    size: Array
    drawn: int
    batch: int
    random: int
    ranks: Ranks | None

    @property
    def variance(self) -> Array:
        """Of the value, for this batch: where all of its examples are drawn, they add nothing to it."""
        share = self.drawn / self.batch
        found: Array = share * (self.directions + self.pairings) + (1 - share) * self.examples
        return found

    def total(self, problem: Problem) -> Total:
        """With standard errors, after Student's t and the skewness of what examples change."""
        share = self.drawn / self.batch
        stderr = self.widening(share) * np.sqrt(self.variance)
        return Total(self.value, np.maximum(stderr, ROUNDING * rounding_of(problem) * self.size))

    def widening(self, share: float) -> Array:
        """Of the standard error where so large a share of the batch is drawn, (L, L)."""
        among, apart, between = share * self.directions, share * self.pairings, (1 - share) * self.examples
        with np.errstate(divide="ignore", invalid="ignore"):
            wobble = among**2 / self._freedom_of_directions() + between**2 / self._freedom_of_examples()
            wobble = np.nan_to_num(wobble + PAIRED_TAILS * apart**2 / self._freedom_of_examples())
            dof = np.where(wobble > 0, (among + apart + between) ** 2 / wobble, math.inf)
            return widening(skewed_dof(dof, np.nan_to_num(self.third / self.examples**1.5)))

    def _freedom_of_directions(self) -> Array:
        """Of the variance over directions, after Welch and Satterthwaite."""
        return degrees_of_freedom(self.random, self.directions**2 / self.directions_sq)

    def _freedom_of_examples(self) -> Array:
        """Of the variance over examples, from the variance of their squares."""
        return 2 / (self.fourth / self.examples**2 - 1 / self.drawn)
