"""Gauss-Newton blocks of the batch-mean loss, from random output directions of each example.

The directions are those of `hessdiag.curvature.sketch`, with a basis where that pays; but every direction of an example
is paired with those of all others (`hessdiag.curvature.estimators.example_pairs`), and there are so many pairs of a
large batch that two directions of some hundred examples do.

How many examples and directions, pilots choose that never enter the result. An example takes part in a round in one
group, which is in memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hessdiag.curvature.batch_cost import BACKWARD, FORWARD, sides_of
from hessdiag.curvature.batch_round import BatchSketch, Sketched
from hessdiag.curvature.directions import Directions
from hessdiag.curvature.estimators.ranks import Ranks
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.estimators.student import widening
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.rounds import MARGIN, degrees_of_freedom, weight_places
from hessdiag.curvature.sketch import LOW_RANK, first_basis
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import ALL_HERE, Work
from hessdiag.results.numbers import Array

PILOT_EXAMPLES = 64
PILOT_ROWS = 64  # directions of all examples of a pilot together, where these are few
PILOT_DIRECTIONS = (2, 8)  # of each, at least and at most
MIN_EXAMPLES = 128  # of a larger batch: fewer would not show how unlike examples can be
MANY = 24  # passes from which a basis is tried
MAX_BASIS = 64
PLAIN = Directions(0)


def sketch_per_batch(
    problem: Problem,
    *,
    outputs: int,
    budget: Budget,
    fit: Callable[[int], int],
    seed: int,
    work: Work = ALL_HERE,
) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks.

    Args:
        problem: what to measure.
        outputs: N, outputs per example.
        budget: the relative standard error of the weight blocks' diagonal that examples and directions are chosen for,
            and how many passes there may be in all, per example.
        fit: `fit(m)` examples fit into memory at once when m cotangents of each are sent back.
        seed: of the directions, and of which examples are drawn.
        work: carries out pilots and rounds; a group of examples is a unit.
    """
    course = _Course(problem, outputs, budget, fit, seed, work)
    chosen, ranks, spent = course.choose()
    found = course.run(chosen).total(problem).curvature(problem, spent + chosen.directions.cost, budget.rtol)
    return replace(found, how=_told(chosen, ranks, problem.batch.size, outputs))


def _told(chosen: BatchSketch, ranks: Ranks | None, size: int, outputs: int) -> str:
    """What was chosen, as a clause; `ranks` are of a pilot."""
    rank = math.inf if ranks is None else ranks.median()
    if math.isnan(rank):
        return "sketches of blocks without any curvature"
    fixed, random = chosen.directions.fixed, chosen.directions.random
    count = f"{random} directions" if random else f"all {outputs} directions"
    basis = f"a basis of {fixed} and " if fixed and random else ""
    examples = "each example" if chosen.examples == size else f"each of {chosen.examples} of the {size} examples"
    return f"{basis}{count} of {examples}" + (f", median effective rank {rank:.1f}" if ranks is not None else "")


@dataclass(frozen=True)
class _Course:
    """From pilots to the numbers of examples and directions."""

    problem: Problem
    outputs: int
    budget: Budget
    fit: Callable[[int], int]
    seed: int
    work: Work

    def run(self, sketch: BatchSketch) -> Sketched:
        return sketch.run(self.problem, fit=self.fit, seed=self.seed, work=self.work)

    def choose(self) -> tuple[BatchSketch, Ranks | None, int]:
        """What to measure, what the first pilot tells of ranks, and the passes that pilots took.

        A budget with no room for a pilot is spent at once.
        """
        size, room = self.problem.batch.size, self.budget.max_products
        examples = min(size, PILOT_EXAMPLES)
        few, many = PILOT_DIRECTIONS
        count = min(many, max(few, PILOT_ROWS // examples))
        if self.outputs <= count or room < count + few:
            return self._sketch(size, room, room), None, 0
        first = self.run(BatchSketch(examples, Directions(count, name="pilot"), ranks=True))
        assert first.ranks is not None
        plain = self._enough(first, PLAIN, room - count)
        rank = first.ranks.median()
        if plain.directions.cost < MANY or not rank < LOW_RANK:
            return plain, first.ranks, count
        deflated, spent = self._deflated(BatchSketch(examples, Directions(count)), first.ranks, room - count)
        return min(plain, deflated, key=self._passes), first.ranks, count + spent

    def _deflated(self, pilot: BatchSketch, ranks: Ranks, room: int) -> tuple[BatchSketch, int]:
        """With a basis, which is doubled as long as that promises to save more passes than it costs."""
        basis, spent = first_basis(ranks.median()), 0
        while True:
            trial = replace(pilot.directions, fixed=basis, scales=ranks.scales(), name=f"pilot with a basis of {basis}")
            left = room - spent - trial.cost
            if basis >= self.outputs or left < 2 * basis + pilot.directions.random:
                return self._sketch(self.problem.batch.size, room - spent, room - spent), spent
            found = self.run(replace(pilot, directions=trial))
            spent += trial.cost
            chosen = self._enough(found, trial, left)
            if chosen.directions.random <= 4 * basis or 2 * basis > MAX_BASIS:
                return chosen, spent
            basis *= 2

    def _sketch(self, examples: int, random: int, room: int, basis: Directions = PLAIN) -> BatchSketch:
        """So many random directions beside a basis; all outputs where these are no more, and there is room for them."""
        if room >= self.outputs <= basis.fixed + random:
            return BatchSketch(examples, Directions(0, self.outputs, name="all outputs"))
        return BatchSketch(examples, replace(basis, random=max(random, PILOT_DIRECTIONS[0]), name="round"))

    def _passes(self, sketch: BatchSketch) -> float:
        """Of the whole batch."""
        sides = sides_of(self.problem.loss)
        return sketch.examples / self.problem.batch.size * (FORWARD + BACKWARD * sides * sketch.directions.cost)

    def _enough(self, found: Sketched, basis: Directions, room: int) -> BatchSketch:
        """The fewest passes that should bring all weight blocks to the asked error; at most `room` of an example.

        The variance is a / m k + (1 − m/B) e / m with k directions for each of m of the B examples.
        """
        size, own = self.problem.batch.size, weight_places(self.problem)
        value, directions, drawn = (np.diagonal(each)[own] for each in (found.value, found.directions, found.examples))
        margin = MARGIN * float(widening(degrees_of_freedom(found.random, found.drawn)))
        target = (self.budget.rtol * np.maximum(value, 0) / margin) ** 2
        a = directions * found.drawn * found.random
        e = np.maximum(drawn * found.drawn - a / found.random, 0)
        sketches = []
        for k in self._counts(a, target, room - 2 * basis.fixed):
            exact = room >= self.outputs <= basis.fixed + k
            with np.errstate(divide="ignore", invalid="ignore"):
                examples = ((0 if exact else a / k) + e) / (target + e / size)
            wanted = float(np.nan_to_num(examples, nan=0.0, posinf=math.inf).max(initial=0))
            if wanted <= size:
                sketches.append(self._sketch(max(math.ceil(wanted), min(size, MIN_EXAMPLES)), k, room, basis))
        return min(sketches, key=self._passes) if sketches else self._sketch(size, room - 2 * basis.fixed, room, basis)

    def _counts(self, a: Array, target: Array, room: int) -> list[int]:
        """Numbers of directions that come into question; the last of all examples are enough."""
        few = PILOT_DIRECTIONS[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.nan_to_num(a / (self.problem.batch.size * target), nan=0.0, posinf=math.inf).max(initial=few)
        most = min(room, self.outputs)
        counts = {few, few + 1, 2 * few, 3 * few, 4 * few, math.ceil(min(needed, most))}
        return [count for count in sorted(counts) if few <= count <= max(most, few)]
