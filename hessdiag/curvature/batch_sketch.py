"""Gauss-Newton blocks of the batch-mean loss, from random output directions of each example.

The directions are those of `hessdiag.curvature.sketch`, with a basis where that pays; but every direction of an example
is paired with those of all others (`hessdiag.curvature.estimators.example_pairs`), and there are so many pairs of a
large batch that two directions of some hundred examples do.

How many examples and directions, pilots choose that never enter the result. An example takes part in a round in one
group, which is in memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from hessdiag.curvature.batch_cost import ROWS, ROWS_OF_ALL
from hessdiag.curvature.batch_round import BatchSketch, Sketched
from hessdiag.curvature.directions import Directions
from hessdiag.curvature.estimators.effective_rank import Ranks
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.rounds import MARGIN, weight_places
from hessdiag.curvature.sketch import LOW_RANK, first_basis
from hessdiag.derivatives.losses import sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import ALL_HERE, Work

PILOT_EXAMPLES = 64
PILOT_ROWS = 64  # directions of all examples of a pilot together, where these are few
PILOT_DIRECTIONS = (2, 8)  # of each, at least and at most
MIN_EXAMPLES = 128  # of a larger batch: fewer would not show how unlike examples can be
MANY = 24  # passes from which a basis is tried
MAX_BASIS = 64
GROUPS = (ROWS, 4 * ROWS)  # directions of a group: where pairs of examples differ much, all are wanted
FEW_TOGETHER = 64  # examples of a group: fewer may miss those pairs that make most of the sum
STEPS = 24  # of √2 from two directions on: more than any budget


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
        fit: `fit(m)` examples fit into memory at once with m directions of each.
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
            return self._all_at_once(room), None, 0
        pilot = BatchSketch(examples, Directions(count, name="pilot"), ranks=True)
        first = self.run(pilot)
        assert first.ranks is not None
        plain = self._enough(pilot, first, room - count)
        rank = first.ranks.median()
        if plain.directions.cost < MANY or not rank < LOW_RANK:
            return plain, first.ranks, count
        deflated, spent = self._deflated(pilot, first.ranks, plain, room - count)
        return min(plain, deflated, key=self._passes), first.ranks, count + spent

    def _deflated(self, pilot: BatchSketch, ranks: Ranks, plain: BatchSketch, room: int) -> tuple[BatchSketch, int]:
        """With a basis, which is doubled as long as that promises to save more passes than it costs; else `plain`."""
        basis, spent = first_basis(ranks.median()), 0
        while True:
            trial = replace(pilot.directions, fixed=basis, scales=ranks.scales(), name=f"pilot with a basis of {basis}")
            left = room - spent - trial.cost
            if basis >= self.outputs and plain.directions.cost <= room - spent:
                return plain, spent
            if basis >= self.outputs or left < 2 * basis + pilot.directions.random:
                return self._all_at_once(room - spent), spent
            tried = BatchSketch(pilot.examples, trial)
            found = self.run(tried)
            spent += trial.cost
            chosen = self._enough(tried, found, left)
            if chosen.directions.random <= 4 * basis or 2 * basis > MAX_BASIS:
                return chosen, spent
            basis *= 2

    def _all_at_once(self, room: int) -> BatchSketch:
        """So many random directions of all examples, or all outputs where these are no more."""
        if self.outputs <= room:
            return self._all_outputs()
        return BatchSketch(self.problem.batch.size, Directions(max(room, PILOT_DIRECTIONS[0]), name="round"))

    def _all_outputs(self) -> BatchSketch:
        return BatchSketch(self.problem.batch.size, Directions(0, self.outputs, name="all outputs"))

    def _passes(self, sketch: BatchSketch) -> float:
        return sketch.passes(self.problem.batch.size, sides_of(self.problem.loss))

    def _enough(self, pilot: BatchSketch, found: Sketched, room: int) -> BatchSketch:
        """The fewest passes that should bring all weight blocks to the asked error; at most `room` of an example.

        The variance is a / m k + (1 − m/B) e / m with k directions for each of m of the B examples, and p / m of pairs
        of examples that no group has.
        """
        size, own, basis = self.problem.batch.size, weight_places(self.problem), replace(pilot.directions, random=0)
        value, directions, drawn, pairings = (
            np.diagonal(each)[own] for each in (found.value, found.directions, found.examples, found.pairings)
        )
        of_a_pair = pairings / (pilot.unpaired(size, self.fit) or math.inf)
        margin = MARGIN * np.diagonal(found.widening(found.drawn / size))[own]
        upper = np.maximum(value, np.sqrt(np.maximum(directions, drawn)))  # where noise hides it
        target = (self.budget.rtol * upper / margin) ** 2
        a = directions * found.drawn * found.random
        e = np.maximum(drawn * found.drawn - a / found.random, 0)
        sketches, missing = [], []
        for sketch in self._candidates(basis, room):
            noise = a / sketch.directions.random if sketch.directions.random else 0 * a
            p = of_a_pair * sketch.unpaired(size, self.fit) * size
            with np.errstate(divide="ignore", invalid="ignore"):
                wanted = np.nan_to_num((noise + e + p) / (target + e / size), nan=0.0, posinf=math.inf).max(initial=0)
            if wanted <= size:
                examples = max(math.ceil(wanted), min(size, MIN_EXAMPLES))
                sketches.append(replace(sketch, examples=examples))
            else:
                missing.append((float(wanted), sketch))
        if sketches:
            return min(sketches, key=self._passes)
        return min(missing, key=lambda each: each[0])[1]

    def _candidates(self, basis: Directions, room: int) -> Iterator[BatchSketch]:
        """What may be drawn of all examples: ever more random directions beside a basis, or all outputs."""
        size, most = self.problem.batch.size, room - 2 * basis.fixed
        few = PILOT_DIRECTIONS[0]
        counts = sorted({min(round(few * 2 ** (step / 2)), max(most, few)) for step in range(STEPS)})
        for rows in GROUPS:
            for count in counts:
                yield BatchSketch(size, replace(basis, random=count, name="round"), rows=rows)
            grouped = self.outputs <= rows // FEW_TOGETHER or self.outputs * size <= ROWS_OF_ALL
            if grouped and self.outputs <= room:
                yield replace(self._all_outputs(), rows=rows)
