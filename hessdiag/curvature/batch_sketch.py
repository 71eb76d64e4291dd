"""Gauss-Newton blocks of the batch-mean loss, from random output directions of the whole batch.

With J_b and S_b of example b, G = (1/B) Σ_b J_b^T S_b J_b is the matrix of one example that has the B N outputs of all.
For z ~ N(0, I) over all of them, w_l(z) = B^{-1/2} Σ_b J_bl^T z_b of *every* block l is one backward pass, in which the
sum over examples is free, and with two such directions

    ‖G_ij‖_F² = E ⟨w_i(z), w_i(S z')⟩ ⟨w_j(z'), w_j(S z)⟩.

So the estimator is that of `hessdiag.curvature.sketch`, pairs of directions with a basis treated exactly. What differs
is the basis. The gradients w of a pilot's directions are samples of N(0, G); sent forward again as tangents they give
samples K z of the range of K = J J^T / B, one power of K more than tangents that know nothing: 12 of them leave on a
LeNet a third to a tenth of what 12 random tangents do. For as long as the basis promises to save more directions than
it costs, the pilot with that basis finds another part of the range (Halko, Martinsson & Tropp, arXiv 0909.4061,
section 4.5: power iteration). The estimate itself is of directions that no pilot has seen.

An indefinite S = A D A^T with signs D that all examples share, as of a random quadratic, is the difference of two
matrices, and each direction is of one of them, drawn with probabilities p: with w = J^T A z / √p, z on the outputs of
that sign alone, ± w w^T has mean G, and one backward pass does for two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from hessdiag.curvature.batch_cost import has_signed_root, sides_of
from hessdiag.curvature.estimators.epperly2025 import Grams, new_directions
from hessdiag.curvature.estimators.pairs import pair_sums
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.first_step import sent_back
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.rounds import (
    MIN_DIRECTIONS,
    Round,
    combine,
    directions_wanted,
    equal_rounds,
    rounding_of,
    weight_places,
)
from hessdiag.curvature.sketch import RANDOM
from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import FunctionalModel, outputs_and_tangent
from hessdiag.derivatives.losses import Loss, RandomQuadratic
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import unless_out_of_memory
from hessdiag.execution.seeds import gaussians, stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import block_parameter
from hessdiag.network.hooks import backpropagate

PILOT = 12  # directions of a pilot, and what one adds to the basis
MAX_BASIS = 72
MANY = 2000  # directions, more than anyone waits for
HELPED = 0.7  # times as many directions, at most, after an extension that helped
PIECE = 2**13  # entries of a block whose inner products are taken at once, in float64


def sketch_per_batch(
    problem: Problem, *, budget: Budget, chunk: int, most: int, seed: int, work: Work = ALL_HERE
) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks.

    Args:
        problem: what to measure.
        budget: the relative standard error of the weight blocks' diagonal that the number of directions is chosen
            for, and how many passes there may be in all.
        chunk: examples that are sent through the network at once.
        most: directions whose gradients fit into memory, see `batch_cost.directions_that_fit`.
        seed: of the directions.
        work: carries out pilots and rounds, each a unit.
    """
    basis = _Basis(_Passes(problem, chunk), seed)
    sides = basis.passes.sides
    pilots, spent = _grow(basis, problem, budget, most, work)
    room = max((budget.max_products - spent) // sides, MIN_DIRECTIONS)
    wanted = directions_wanted(pilots[-1], weight_places(problem), budget.rtol, room) if pilots else room
    count, each = equal_rounds(wanted, most - basis.size)
    rounds = _measure(basis, [f"round {number + 1} of {count}" for number in range(count)], each, work)
    spent += count * each * sides
    found = combine(rounds, rounding_of(problem)).curvature(problem, spent, budget.rtol)
    return replace(found, how=_told((pilots or rounds)[0], basis.size, count * each))


def _told(first: Round, basis: int, directions: int) -> str:
    """What was chosen, as a clause; `first` is without a basis."""
    rank = first.median_rank()
    if not math.isfinite(rank):
        return "sketches of blocks without any curvature"
    return f"a basis of {basis} and {directions} directions, median effective rank {rank:.1f}"


def _grow(basis: _Basis, problem: Problem, budget: Budget, most: int, work: Work) -> tuple[list[Round], int]:
    """Pilots, and the passes that they and the basis took; it grows as long as that promises to save passes.

    A budget with no room for a pilot is spent at once.
    """
    sides = basis.passes.sides
    extension = PILOT * (1 + sides) + basis.growth * sides  # forth and back, and another pilot
    pilots: list[Round] = []
    spent = 0
    while budget.max_products >= spent + (PILOT + RANDOM) * sides:
        name = f"pilot {len(pilots) + 1}"
        pilots += _measure(basis, [name], PILOT, work)
        spent += PILOT * sides
        fits = basis.size + basis.growth <= min(MAX_BASIS, most - RANDOM)
        within = budget.max_products >= spent + extension + RANDOM * sides
        if not (fits and within and _pays(pilots, weight_places(problem), budget.rtol, extension / sides)):
            break
        basis.extend(name, pilots[-1].trace_scales())
        spent += extension - PILOT * sides
    return pilots, spent


def _pays(pilots: Sequence[Round], own: list[int], rtol: float, extension: float) -> bool:
    """Whether more of a basis may save some block more directions than it costs.

    At best the rest has a flat spectrum, whose pairs have ζ₁ = 0 and ζ₂ = 2 θ². A block that the last extension hardly
    helped is not asked again: its rank is high, or signs cancel in it.
    """
    last = pilots[-1]
    if not np.isfinite(last.value).all():
        return False
    flat = replace(last, shared=0 * last.shared, apart=np.minimum(last.apart, 2 * last.value**2))
    least = directions_wanted(flat, own, rtol, MANY)  # some block takes these whatever the basis
    for place in own:
        needed = directions_wanted(last, [place], rtol, MANY)
        before = directions_wanted(pilots[-2], [place], rtol, MANY) if len(pilots) > 1 else math.inf
        if needed - least > extension and needed <= HELPED * before:
            return True
    return False


def _measure(basis: _Basis, names: Sequence[str], count: int, work: Work) -> list[Round]:
    """Independent sets of directions, a unit of work each."""
    label = f"{count} directions beside a basis of {basis.size}"

    def measure(name: str) -> Result:
        return basis.sums(name, count)

    found = work.each("sketches of the batch", names, measure, label=lambda name: f"{name}, {label}")
    return [Round.of(sums, 1, count) for sums in found]


@dataclass(frozen=True)
class _Gradients:
    """w(z) and w(S z) of every block, (m, P) each; the same where w(A z) stands for both, times `signs` (m,)."""

    plain: list[Tensor]
    curved: list[Tensor]
    signs: Tensor

    def joined(self, other: _Gradients) -> _Gradients:
        """With those of more directions."""
        plain = [torch.cat(both) for both in zip(self.plain, other.plain, strict=True)]
        signs = torch.cat([self.signs, other.signs])
        if self.curved is self.plain:
            return _Gradients(plain, plain, signs)
        return _Gradients(plain, [torch.cat(both) for both in zip(self.curved, other.curved, strict=True)], signs)

    def sums(self, basis: _Gradients | None) -> Result:
        """What all pairs of these directions tell, beside those of a basis."""
        X, K = [], []
        signs = self.signs if basis is None else torch.cat([basis.signs, self.signs])
        for number, (plain, curved) in enumerate(zip(self.plain, self.curved, strict=True)):
            same = curved is plain
            grams = torch.zeros(2, 1, 1, dtype=torch.float64, device=plain.device)
            for start in range(0, plain.shape[1], PIECE):  # joined a piece at a time: they may fill the memory
                place = slice(start, start + PIECE)
                rows = [plain[:, place]] if basis is None else [basis.plain[number][:, place], plain[:, place]]
                images = [curved[:, place]] if basis is None else [basis.curved[number][:, place], curved[:, place]]
                found = Grams.of(torch.cat(rows), plain[:0, place] if same else torch.cat(images))
                grams = grams + torch.stack([found.ZZ, found.ZZ if same else found.ZY])
            K.append(grams[0])
            X.append(grams[1] * signs)
        fixed = 0 if basis is None else len(basis.plain[0])
        return pair_sums(torch.stack(X).unsqueeze(0), torch.stack(K).unsqueeze(0), fixed=fixed)


class _Basis:
    """Directions that are treated exactly, and the sums over pairs of them and of random ones.

    It grows by what the gradients of a pilot span. Nothing is computed before a unit of work asks for it: in a resumed
    run, or on another rank, none may.
    """

    def __init__(self, passes: _Passes, seed: int) -> None:
        self.passes = passes
        self.seed = seed
        self.size = 0  # or less, where the pilots span less
        self.pending: list[tuple[str, list[float]]] = []
        self.directions = torch.zeros(0, 0, dtype=torch.float64)  # (B N, r)
        self.gradients: _Gradients | None = None
        self.last: tuple[str, _Gradients] | None = None

    def extend(self, pilot: str, scales: list[float]) -> None:
        """Add what the pilot of that name found; `scales` give every block equal weight."""
        self.pending.append((pilot, scales))
        self.size += self.growth

    @property
    def growth(self) -> int:
        """Directions that a pilot adds: one of each sign for each of its own."""
        return PILOT * len(self.passes.root.shares)

    def sums(self, name: str, count: int) -> Result:
        """What the basis and so many random directions tell, those of the stream of that name."""
        self._catch_up()
        found = self._random(name, count)
        self.last = (name, found)
        return found.sums(self.gradients)

    def _random(self, name: str, count: int) -> _Gradients:
        purpose = f"sketches of the batch, {name},"
        z = self.passes.random(count, self.seed, purpose)
        signs, weights = self.passes.root.drawn(count, stream(self.seed, f"{purpose} signs"))
        if self.gradients is not None:
            exactly = z.double()
            z = (exactly - (exactly @ self.directions) @ self.directions.T).to(z)
        return self.passes.back(z * weights.to(z)[:, None], signs)

    def _catch_up(self) -> None:
        for pilot, scales in self.pending:
            at_hand = self.last is not None and self.last[0] == pilot
            found = self.last[1] if self.last is not None and at_hand else self._random(pilot, PILOT)
            self._add(self.passes.forth(found.plain, [scale**2 for scale in scales]))
        self.pending.clear()
        self.last = None

    def _add(self, moved: Tensor) -> None:
        """Make the basis span what came of a pilot's gradients, (m, B N), too."""
        samples = moved.double().T
        scale = float(torch.linalg.matrix_norm(samples))
        if not 0 < scale < math.inf:
            return
        for sign in self.passes.root.shares:
            basis = self.directions if self.gradients is not None else samples[:, :0]
            new = new_directions(basis, self.passes.root.only(sign, samples), scale=scale)
            self.directions = torch.cat([basis, new], dim=1)
            gradients = self.passes.back(new.T.to(moved.dtype), torch.full((new.shape[1],), sign))
            self.gradients = gradients if self.gradients is None else self.gradients.joined(gradients)


class _Root:
    """How a direction z of the outputs becomes cotangents that stand for A z.

    Attributes:
        sides: backward passes of a direction.
        shares: for each sign in S, the probability with which a direction is of that sign.
    """

    def __init__(self, loss: Loss, outputs: int) -> None:
        self.loss = loss
        self.sides = sides_of(loss, outputs)
        self.shares: dict[float, float] = {1.0: 1.0}
        self.signed: tuple[Tensor, Tensor] | None = None
        if isinstance(loss, RandomQuadratic) and has_signed_root(loss, outputs):
            A, signs = self.signed = loss.signed_root()
            sizes = {sign: float(A[:, signs == sign].square().sum()) for sign in (1.0, -1.0)}
            total = sum(sizes.values())
            self.shares = {sign: size / total for sign, size in sizes.items() if size > 0} or self.shares

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Signs of so many random directions, and their weights 1/√p, (count,) each, in float64."""
        positive = torch.rand(count, generator=generator, dtype=torch.float64) < self.shares.get(1.0, 0.0)
        signs = torch.where(positive, 1.0, -1.0).double()
        return signs, torch.tensor([1 / math.sqrt(self.shares[float(sign)]) for sign in signs], dtype=torch.float64)

    def only(self, sign: float, samples: Tensor) -> Tensor:
        """The part of samples (B N, m) on outputs of a sign."""
        if self.signed is None:
            return samples
        own = (self.signed[1] == sign).to(samples)
        return (samples.view(-1, len(own), samples.shape[1]) * own[:, None]).view_as(samples)

    def back(self, problem: Problem, part: Batch, y: Tensor, z: Tensor, signs: Tensor) -> Tensor:
        """Cotangents (m, b, *out) of directions z (m, b, N), or two of each: z and S z."""
        if self.signed is None:
            return sent_back(problem, part, y, z.reshape(len(z), *y.shape))
        A, own = (each.to(y) for each in self.signed)
        mask = own == signs.to(y)[:, None]  # (m, N)
        return ((z * mask[:, None]) @ A.T).reshape(len(z), *y.shape)

    def forth(self, part: Batch, y: Tensor, moved: Tensor) -> Tensor:
        """A^T of tangents (b, *out) of the outputs, or these where there is no root; (b, N)."""
        if self.signed is not None:
            return moved.flatten(1) @ self.signed[0].to(moved)
        if self.loss.has_root:
            moved = self.loss.root_transposed_product(y, part.targets, moved)
        return moved.flatten(1)


class _Passes:
    """Sends directions of the whole batch back and forth through the network, a chunk of examples at a time."""

    def __init__(self, problem: Problem, chunk: int) -> None:
        self.problem = problem
        self.chunk = chunk
        self.network = FunctionalModel(problem.model)
        self.at = {block.name: block_parameter(problem.model, block).detach() for block in problem.blocks}
        self.like = problem.batch.narrow(0, 1).call(problem.model).detach()[0]  # outputs of an example
        self.root = _Root(problem.loss, self.like.numel())

    @property
    def sides(self) -> int:
        """Backward passes of a direction."""
        return self.root.sides

    def random(self, count: int, seed: int, purpose: str) -> Tensor:
        """Directions (count, B N), of which each example's part is from a stream of its own."""
        shape = (count, *self.like.shape)
        return gaussians(seed, purpose, self.problem.batch.numbers, shape).to(self.like).flatten(1)

    def back(self, z: Tensor, signs: Tensor) -> _Gradients:
        """Gradients of the directions (m, B N), of such signs (m,)."""
        m, size = len(z), self.problem.batch.size
        outputs = z.view(m, size, -1)

        def measure(chunk: int) -> list[Tensor]:
            sums = [w.new_zeros(m * self.sides, w.numel()) for w in self.at.values()]
            for part in self.problem.batch.chunks(chunk):
                start = part.offset - self.problem.batch.offset
                self._add_gradients(sums, part, outputs[:, start : start + part.size], signs)
            return sums

        scaled = [total.div_(math.sqrt(size)) for total in self._fitting(measure)]
        plain = [total[:m] for total in scaled]
        curved = plain if self.sides == 1 else [total[m:] for total in scaled]
        return _Gradients(plain, curved, signs.to(self.like.device, torch.float64))

    def _add_gradients(self, sums: Sequence[Tensor], part: Batch, z: Tensor, signs: Tensor) -> None:
        """Add J^T A z, or J^T z and J^T S z, of some examples to the rows of `sums`; `z` is (m, b, N)."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.at.items()}
        y = self.network(leaves, part)
        edges = [get_gradient_edge(leaf) for leaf in leaves.values()]
        for row, cotangent in enumerate(self.root.back(self.problem, part, y.detach(), z, signs)):
            found = backpropagate(y, edges, cotangent.unsqueeze(0))
            for total, gradient in zip(sums, found, strict=True):
                if gradient is not None:
                    total[row] += gradient.detach().flatten()

    def forth(self, tangents: Sequence[Tensor], scales: Sequence[float]) -> Tensor:
        """J u, or A^T J u where the loss has a root, for scaled tangents u of all blocks, (m, P); as (m, B N)."""

        def moved(part: Batch, row: int) -> Tensor:
            along = zip(self.at.items(), tangents, scales, strict=True)
            u = {name: each[row].view_as(value) * scale for (name, value), each, scale in along}
            y, tangent = outputs_and_tangent(self.network, self.at, u, part, forward_mode=True)
            return self.root.forth(part, y.detach(), tangent.detach())

        def measure(chunk: int) -> list[Tensor]:
            parts = list(self.problem.batch.chunks(chunk))
            return [torch.cat([moved(part, row) for part in parts]) for row in range(len(tangents[0]))]

        return torch.stack(self._fitting(measure)).flatten(1)

    def _fitting(self, measure: Callable[[int], list[Tensor]]) -> list[Tensor]:
        """What `measure` finds, with as many examples at once as fit into memory."""
        found = unless_out_of_memory(partial(measure, self.chunk), examples=self.chunk)
        if found is not None:
            return found
        self.chunk = max(1, min(self.chunk, self.problem.batch.size) // 2)
        return self._fitting(measure)
