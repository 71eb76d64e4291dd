"""Gauss-Newton blocks of networks with many outputs, from random output directions.

With K_l = J_l J_l^T and S the Hessian of the loss in the outputs, ‖G_ij‖_F² = tr(S K_j S K_i). Let z_1..z_m be
directions whose weighted outer products average to the identity. Back-propagating z_k and S z_k once gives
X_l[k, m] = z_k^T K_l S z_m for *every* block l, and

    tr(S K_j S K_i) = E Σ_{k≠m} w_km X_i[k, m] X_j[m, k],

so that the number of backward passes does not depend on the number of blocks. Where S = A A^T (cross-entropy, squared
error) A z_k alone are sent back, and X_l is the Gram matrix of A^T K_l A.

*Plain*: all directions are Gaussian. Right for high effective rank, where the error falls like 1/q.

*Deflated*: deep ReLU networks at initialisation have K_l of rank 1 to 3, and q plain directions leave an error of
1/√q. First find the range: random displacements of the weights move the outputs by samples of covariance K, Q = orth
of them (`hessdiag.curvature.range_finder`). Then Q is treated exactly and only (I − QQ^T)ω is random. Any Q that is
independent of the ω leaves the estimate unbiased.

*How many*: stopping as soon as the samples look precise biases them, low estimates of a skewed sum looking the more
precise. Hence pilots on a few examples choose basis and number of directions (Stein's two stages, Annals of
Mathematical Statistics 16 (1945) 243–258), and only directions drawn after that, all of them, make the estimate. How
far the pilots can be trusted is the matter of `hessdiag.curvature.estimators.components`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hessdiag.curvature.directions import Directions
from hessdiag.curvature.estimators.components import component_sums, cycles_of, shrunk
from hessdiag.curvature.estimators.pairs import pair_sums
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.estimators.student import widening
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.room import Room
from hessdiag.curvature.rounds import (
    FEWEST,
    MIN_DIRECTIONS,
    Round,
    combine,
    degrees_of_freedom,
    directions_wanted,
    equal_rounds,
    rounding_of,
    weight_places,
)
from hessdiag.curvature.sent_directions import Sent
from hessdiag.data.batch import Batch
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.work import ALL_HERE, Result, Work, add
from hessdiag.results.numbers import Array

RANK_PILOT, OF_ONE = 24, 32  # directions of the first pilot: few examples with many tell the variance best
SMALL_BUDGET = 100  # products with no room for so many
PILOT = 12  # directions of a pilot with a basis
PILOT_EXAMPLES = 16
PILOT_SHARE = 4  # a quarter of a small batch
MIN_PILOT_EXAMPLES = 3  # with a basis, which leaves much now and then
BASIS = (4, 16)  # of the range finder at first, at least and at most; then twice as many while that saves directions
MAX_BASIS = 64
CATCHES = 3.0  # vectors of a basis for each effective dimension: they leave little
SMALL = 1e-140  # values whose squares fit float64
MARGIN = 1.25  # on the standard error that a pilot foretells; the most that one of many blocks asks for has its own
HEAVY_TAILS = 2.0  # where a basis leaves little of a low rank, but now and then much
LOW_RANK = 10.0  # effective rank under which deflation pays
SURELY_LOW = LOW_RANK / 2  # of a quarter of the first pilot's examples: the others need not be asked
CONCENTRATED = 50.0  # under which, and under a twentieth of the outputs, it may where many directions are wanted
COSTLY = 160  # directions from which a basis is tried for a few blocks of low rank
TRIAL = 0.25  # of those directions, at most, which it may cost to try
RANDOM = 12  # directions of a round, at least, where the budget has room for them


def sketch_per_example(
    problem: Problem,
    *,
    outputs: int,
    budget: Budget,
    room: Room,
    seed: int,
    work: Work = ALL_HERE,
) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks.

    Args:
        problem: what to measure.
        outputs: N, outputs per example.
        budget: the relative standard error of the weight blocks' diagonal that the number of directions is chosen
            for, and how many may be sent back in all, per example.
        room: examples and cotangents that fit into memory.
        seed: of the directions.
        work: carries out each round.
    """
    size = problem.batch.size
    pilot = _Pilot(problem, size, budget.rtol, room, seed, work)
    first, choice = _choose(pilot, budget.max_products, outputs)
    directions, spent = choice
    rounds = _rounds(directions, room.most)
    measured = [_round(problem, each, room, seed, work) for each in rounds]
    total = combine(measured, rounding_of(problem))
    spent += sum(each.cost for each in rounds)
    rank = first.ranks.median()
    how = "plain sketches of blocks without any curvature"
    if math.isfinite(rank):
        basis = f"a basis of {directions.fixed} and " if directions.fixed else ""
        drawn = f"{basis}{sum(each.random for each in rounds)} directions"
        how = f"{'deflated' if basis else 'plain'} sketches, {drawn}, median effective rank {rank:.1f}"
    return replace(total.curvature(problem, spent, budget.rtol), how=how)


@dataclass(frozen=True)
class _Pilot:
    """Sketches of a few examples, which choose how many directions to draw and never enter the result.

    Had they a say in both, the result would be biased: estimates that come out low by chance also seem less noisy.
    """

    problem: Problem
    size: int  # examples of the whole batch
    rtol: float
    room: Room
    seed: int
    work: Work

    def with_examples(self, few: int) -> _Pilot:
        """The same of so many examples, spread over the batch."""
        spread_out = [number * self.size // few for number in range(few)]
        return replace(self, problem=replace(self.problem, batch=self.problem.batch.select(spread_out)))

    def run(self, directions: Directions, *, heavy_tails: bool = False) -> Round:
        """What so many directions tell, with ζ₁ and ζ₂ as precise as they can be had.

        What a basis leaves of a low rank has heavy tails, which the pairs themselves show best. Without one, a rank
        that is surely low is all that is asked for.
        """
        if heavy_tails:
            return _round(self.problem, directions, self.room, self.seed, self.work)
        enough = None if directions.fixed else _is_surely_low
        found = _round(self.problem, directions, self.room, self.seed, self.work, enough, components=True)
        value, shared = np.diagonal(found.value), np.diagonal(found.shared).copy()
        own = [i for i in weight_places(self.problem) if value[i] > SMALL and found.ranks.norms_sq[i] > 0]
        if own and not directions.fixed:
            parts = self.problem.batch.size
            size = value[own] ** 2 / parts
            cycles = parts * cycles_of(directions.random)
            shared[own] = shrunk(shared[own] / size, found.ranks.effective()[own], cycles=cycles) * size
        shared = np.diag(np.maximum(shared, 0))
        return replace(found, shared=shared, apart=found.apart + 3 * shared)

    def wanted(self, found: Round, room: int, *, fixed: int = 0, heavy_tails: bool = False) -> int:
        """Directions, `FEWEST` to `room`, that should bring all weight blocks of the whole batch to `rtol`."""
        return int(self.wanted_by_block(found, room, fixed=fixed, heavy_tails=heavy_tails).max(initial=FEWEST))

    def wanted_by_block(self, found: Round, room: int, *, fixed: int = 0, heavy_tails: bool = False) -> Array:
        """The same for each weight block."""
        noise = HEAVY_TAILS * float(widening(degrees_of_freedom(PILOT, self.problem.batch.size)))
        margin = noise if heavy_tails else MARGIN
        share = self.problem.batch.size / self.size  # of the pilot's variance, with the directions of all examples
        found = replace(found, shared=found.shared * share, apart=found.apart * share)
        wanted = partial(directions_wanted, found, rtol=self.rtol, room=room, parts=self.size, margin=margin)
        each = [wanted(own=[place], at_once=self.room.most - fixed) for place in weight_places(self.problem)]
        return np.array(each)


def _is_surely_low(found: Round) -> bool:
    """Whether some examples of the first pilot tell that a basis will be tried."""
    return found.ranks.median() < SURELY_LOW


def _choose(pilot: _Pilot, products: int, outputs: int) -> tuple[Round, tuple[Directions, int]]:
    """The first pilot, directions of the measurement, and the products that choosing them took, of so many in all."""
    size = pilot.size
    few = min(PILOT_EXAMPLES, max(MIN_PILOT_EXAMPLES, size // PILOT_SHARE), size)
    for_basis = pilot.with_examples(few)
    wide = products >= SMALL_BUDGET and pilot.room.most >= RANK_PILOT
    for_rank = pilot.with_examples(min(few, max(size // PILOT_SHARE, min(2, size - 1), 1))) if wide else for_basis
    many = min(OF_ONE, pilot.room.most) if for_rank.problem.batch.size == 1 else RANK_PILOT
    directions = Directions(many if wide else PILOT, name="pilot")
    first = for_rank.run(directions)
    room = max(products - directions.cost, MIN_DIRECTIONS)
    wanted = for_rank.wanted_by_block(first, room)
    chosen, spent = _with_or_without_basis(for_basis, first, wanted, room, outputs)
    return first, (chosen, directions.cost + spent)


def _with_or_without_basis(
    pilot: _Pilot, first: Round, wanted: Array, room: int, outputs: int
) -> tuple[Directions, int]:
    """Directions of the measurement, and the products that trying a basis took.

    A basis pays where most blocks have a low rank; or where one does that would ask for many directions of all. It is
    then one for those blocks that would ask for most.

    Args:
        pilot: for a basis.
        first: of the first pilot.
        wanted: directions without a basis, by weight block.
        room: products that are left.
        outputs: N.
    """
    ranks, own, most = first.ranks.effective(), weight_places(pilot.problem), pilot.room.most
    rank = first.ranks.median()
    most_low = rank < LOW_RANK  # false where there is no curvature
    plain = Directions(int(wanted.max(initial=FEWEST)))
    low = ranks < max(LOW_RANK, min(CONCENTRATED, outputs / 20))
    if not most_low and (plain.random < COSTLY or not low[own].any()):
        return plain, 0
    widest = min(outputs, most // 2)
    scales = first.ranks.scales()
    if not most_low:
        rank = float(np.median(ranks[own][low[own]]))
        asked = dict(zip(own, wanted / plain.random, strict=True))
        ruled = [block.structured for block in pilot.problem.blocks]  # a pass of its own for each of the others
        scales = [scale * asked.get(place, 0.0) * ruled[place] for place, scale in enumerate(scales)]
    basis = min(first_basis(rank) if outputs > BASIS[1] else outputs, widest)
    if not most_low and (PILOT + 2 * basis) * pilot.problem.batch.size > TRIAL * plain.random * pilot.size:
        return plain, 0
    directions, spent = _deflated(pilot, scales, room, basis, widest, heavy_tails=most_low)
    if not most_low and directions.cost >= plain.cost:
        return plain, spent
    return directions, spent


def first_basis(rank: float) -> int:
    """Vectors that leave little of blocks of a rank.

    >>> first_basis(1.0), first_basis(1.4), first_basis(2.5), first_basis(20.0)
    (4, 4, 8, 16)
    """
    least, most = BASIS
    return int(min(most, max(least, 2 ** round(math.log2(CATCHES * max(rank, 1.0))))))


def _deflated(
    pilot: _Pilot, scales: list[float], room: int, basis: int, widest: int, *, heavy_tails: bool
) -> tuple[Directions, int]:
    """Basis and directions of the measurement, and the products that finding them took.

    The basis is doubled as long as that promises to save more directions than it costs. A budget that is too small for
    pilots of their own is spent at once.
    """
    spent = 0
    while True:
        trial = Directions(PILOT, basis, scales, name=f"pilot with a basis of {basis}")
        left = room - spent - trial.cost
        if left < RANDOM + 2 * basis:
            basis = min(basis, max(0, (room - spent - RANDOM) // 2)) if not spent else basis // 2
            return Directions(max(room - spent - 2 * basis, MIN_DIRECTIONS), basis, scales), spent
        found = pilot.run(trial, heavy_tails=heavy_tails)
        random = pilot.wanted(found, left - 2 * basis, fixed=basis, heavy_tails=heavy_tails)
        spent += trial.cost
        if random <= 4 * basis or 2 * basis > min(MAX_BASIS, widest):
            return Directions(random, basis, scales), spent
        basis *= 2


def _rounds(directions: Directions, most: int) -> list[Directions]:
    """As many equal rounds as it takes for `most` cotangents to fit at once."""
    count, random = equal_rounds(directions.random, most - directions.fixed)
    return [replace(directions, random=random, name=f"round {number + 1}") for number in range(count)]


def _round(
    problem: Problem,
    directions: Directions,
    room: Room,
    seed: int,
    work: Work,
    enough: Callable[[Round], bool] | None = None,
    components: bool = False,
) -> Round:
    """One independent set of directions for every example of a batch.

    A quarter of the examples comes first and alone where it may already tell `enough`.
    """
    batch, q = problem.batch, directions.random
    cotangents = directions.cotangents(problem.loss)
    together = room.at_once(cotangents)

    def measure(part: Batch) -> Result:
        sent = Sent.of(problem, part, directions, seed, together)
        sums = pair_sums(sent.curved, sent.grams, fixed=directions.fixed)
        return {**sums, **component_sums(sent.curved, fixed=directions.fixed)} if components else sums

    at_once = room.examples(cotangents)
    name = f"sketches, {directions.name}, {q} + {directions.fixed} directions"
    first = batch.size if enough is None else -(-batch.size // 4)
    sums = work.total(name, list(batch.narrow(0, first).chunks(at_once)), measure)
    if enough is not None and first < batch.size:
        found = Round.of(sums, first, q)
        if enough(found):
            return found
        sums = add([sums, work.total(name, list(batch.narrow(first, batch.size).chunks(at_once)), measure)])
    return Round.of(sums, batch.size, q)
