"""Gauss-Newton blocks of the batch-mean loss, from pairs of examples with random directions of their own.

With w_ia = J_i^T A z_ia of example i and E z z^T = I, direction a of one example and b of another tell their inner
product, E ⟨w_ia, w_jb⟩² = ⟨G^(i), G^(j)⟩, as do two directions a ≠ b of one example for i = j. So a backward pass of
k directions for each of B examples gives (B k)² / 2 unbiased terms h of

    ‖(1/B) Σ_i G^(i)‖² = (1 − 1/B) mean_{i≠j} ⟨G^(i), G^(j)⟩ + (1/B) mean_i ‖G^(i)‖²,

where k directions of the whole batch would give k² / 2. Pairs are taken within groups of examples that are in memory
together, drawn anew in every round. Two errors add: of the directions, told by how much the estimate changes when one
is replaced by another (B. Efron and C. Stein, Annals of Statistics 9 (1981) 586–596), which is never too little on
average; and of the pairs that no group has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature, pair_statistics, rounding_of, two_stages
from hessdiag.curvature.sketch import Directions, products_of
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, Sums, sum_over
from hessdiag.data.seeds import stream
from hessdiag.derivatives.losses import sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.results.numbers import Z95, Array

ROWS = 256  # directions of all examples of a group: their pairs take about as long as sending them back
LEAST = 2  # directions of an example: those of one example have to make a pair
GROUP = 4  # examples of a group, at least: fewer pairs do not tell how much they vary
WORKING = 3  # times the memory of activations and cotangents, of which products of all with all take copies
COPIES = 4  # of the products of all directions of a group with all, in float64
ENOUGH = 4  # directions of an example that tell their own variance
AT_ONCE = 2**23  # numbers of a factor that are held at once
INTERACTING = (12, 2**17)  # examples that tell how much pairs of them vary beyond each, at least; numbers of theirs


def directions_for(examples: int, *, sides: int = 1) -> int:
    """Random directions of each example by default; twice as many where the loss has no root.

    >>> [directions_for(examples) for examples in (8, 1024)]
    [32, 2]
    """
    return max(LEAST * sides, -(-ROWS // examples))


def sketch_per_batch(
    problem: Problem, memory: MemoryBudget, *, rtol: float | None = None, max_products: int = 400, seed: int = 0,
) -> Curvature:  # fmt: skip
    """‖G_ij‖_F² of the batch-mean loss for all blocks. `rtol` is the relative standard error of the weight blocks'
    diagonal, None for the default number of directions; `max_products` may be sent back in all, per example.
    """
    size, own = problem.batch.size, [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    if GROUP * WORKING * problem.shape.bytes_per_example(LEAST * sides_of(problem.loss)) > memory.total:
        what = f"method 'sketch' per batch needs more for two directions of {GROUP} of them at once: use method 'probe'"
        raise HessdiagError(f"max_memory leaves {memory.total} bytes for examples: {what}")

    def measure(count: int, stage: str) -> tuple[Array, Array, int]:
        rounds = _Rounds.of(problem, memory, count)
        return *rounds.measure(problem, seed, f"{stage}sketch"), rounds.directions

    first = min(directions_for(size, sides=sides_of(problem.loss)), max_products)
    value, stderr, spent = two_stages(measure, first, least=LEAST, most=max_products, own=(own, own), rtol=rtol)
    rounds = _Rounds.of(problem, memory, spent[-1])
    how = f"{rounds.directions} random directions of each example, all pairs within groups of {rounds.group} examples"
    return Curvature.sampled(value, stderr, sum(spent), rtol=rtol, reason=how)


@dataclass(frozen=True)
class _Rounds:
    """How directions are shared out."""

    rounds: int  # each with groups drawn anew
    each: int  # directions of an example in a round
    group: int  # examples of a group

    @classmethod
    def of(cls, problem: Problem, memory: MemoryBudget, directions: int) -> _Rounds:
        """As few rounds, and as large groups, as fit into memory."""
        sides, size, room = sides_of(problem.loss), problem.batch.size, memory.total // WORKING
        rows = math.isqrt(room // (COPIES * 8 * len(problem.blocks)))

        def fitting(each: int) -> int:
            return min(problem.shape.chunk(each * sides, memory=room), max(1, rows // (each * sides)))

        group = min(size, max(GROUP, min(ROWS // LEAST, fitting(LEAST))))
        each = max(LEAST, min(directions, ROWS // group))
        while each > LEAST and fitting(each) < group:
            each -= 1
        rounds = -(-directions // each)
        return cls(rounds, max(LEAST, directions // rounds), group)

    @property
    def directions(self) -> int:
        """Of each example, in all rounds."""
        return self.rounds * self.each

    def measure(self, problem: Problem, seed: int, name: str) -> tuple[Array, Array]:
        """All norms and their standard errors, (L, L)."""
        size, count = problem.batch.size, -(-problem.batch.size // self.group)
        bounds = [size * number // count for number in range(count + 1)]
        found = []
        for number in range(self.rounds):
            some = Directions(self.each, name=f"{name} {number + 1}")
            order = torch.randperm(size, generator=stream(seed, f"examples of {some.name}")).tolist()
            mixed = problem.batch.select(order)
            groups = [mixed.narrow(start, stop) for start, stop in pairwise(bounds)]
            found.append(sum_over(groups, partial(_group_sums, problem, some, seed), step="sketches of the batch"))
        sums = sum(found, Sums())
        value, size_of = sums["value"] / self.rounds, sums["size"] / self.rounds
        error = np.sqrt(sums["directions"] + sums["pairings"]) / self.rounds
        return value, np.maximum(reaching_up(value, error), rounding_of(problem) * size_of)


def reaching_up(value: Array, error: Array) -> Array:
    """Standard errors with which ± 1.96 of them reaches up to the end of a 95 % interval of the logarithm. Sums of
    squares are skewed, and their errors grow with them: of low estimates these are too small, and intervals miss on
    that side alone (88 to 91 % of them hold the truth in a transformer, 93 to 94 % with this).
    """
    share = Z95 * np.clip(np.divide(error, np.abs(value), out=np.zeros_like(error), where=value != 0), 1e-6, 1)
    return error * np.expm1(share) / share


def _group_sums(problem: Problem, directions: Directions, seed: int, part: Batch) -> Sums:
    """What a group of examples tells of the batch, in proportion to their number."""
    size = problem.batch.size
    if part.size < min(GROUP, size):
        raise HessdiagError(f"out of memory with {GROUP} examples: use method 'probe', or a machine with more memory")
    share = part.size / size
    found = example_pair_sums(products_of(problem, part, directions, seed, across=True), batch=size)
    powers = {"value": 1, "size": 1, "directions": 2, "pairings": 2}
    return Sums({key: (found[key] * share**power).cpu().numpy() for key, power in powers.items()})


def example_pair_sums(X: Tensor, *, batch: int) -> dict[str, Tensor]:
    """The estimate of a group of examples, and its variances, for all pairs of L blocks.

    Args:
        X: (L, g, k, g, k), ⟨w_l(z_ia), w_l(S z_jb)⟩ of direction a of example i and b of j.
        batch: B, the examples that are meant.

    Returns:
        (L, L) each: `value`; `directions`, its variance over directions; `pairings`, that over which examples are
        grouped with which; `size`, a bound of the sum over absolute values: what rounding is relative to.
    """
    L, g, k, _, _ = X.shape
    between = (1 - 1 / batch) / (g * (g - 1) * k * k) if g > 1 else 0.0  # weight of directions of two examples
    within = 1 / (batch * g * k * (k - 1))  # of two of one example
    alone = torch.diagonal(X, dim1=1, dim2=3).permute(0, 3, 1, 2)  # (L, g, k, k)
    distinct = 1 - torch.eye(k, dtype=X.dtype, device=X.device)
    own = _sums_by_row((alone * distinct).permute(1, 0, 2, 3)).sum(dim=1) * within  # (g, L, L)
    others = X.clone()
    others.diagonal(dim1=1, dim2=3).zero_()
    others = others.flatten(3).flatten(1, 2)  # (L, g k, g k)
    off = _sums_by_row(others.unsqueeze(0)).view(g, k, L, L) * between
    squares = others.square().sum(dim=(1, 2)) * between + (alone * distinct).square().sum(dim=(1, 2, 3)) * within
    if k >= ENOUGH:
        own_variance = pair_statistics(alone.transpose(0, 1), 0)["variance"] / (batch * g) ** 2
    else:  # all that is known is how their sum varies over examples
        own_variance = (own - own.mean(dim=0)).square() * g / (g - 1) if g > 1 else own.square()
    among = 4 * k * off.var(dim=1)  # (g, L, L): a direction stands on either side of a pair
    sums = {
        "value": off.sum(dim=(0, 1)) + own.sum(dim=0),
        "directions": (among.sum(dim=0).sqrt() + own_variance.sum(dim=0).sqrt()).square(),  # if both vary together
        "pairings": _over_pairings(X, batch), "size": torch.sqrt(squares[:, None] * squares),
    }  # fmt: skip
    return {key: (each + each.mT).div(2) for key, each in sums.items()}


def _sums_by_row(X: Tensor) -> Tensor:
    """Σ_s X_i[r, s] X_j[s, r] of every r, symmetric in i and j: of (g, L, n, n), (g, n, L, L)."""
    _, L, n, _ = X.shape
    step = max(1, AT_ONCE // (L * max(n, L)))
    both = zip(torch.split(X, step, dim=2), torch.split(X, step, dim=3), strict=True)
    rows = torch.cat([own.transpose(1, 2) @ other.permute(0, 3, 2, 1) for own, other in both], dim=1)
    return (rows + rows.mT) / 2


def _over_pairings(X: Tensor, batch: int) -> Tensor:
    """2 ζ₂ / g (g − 1) of the pairs of examples, for the share of all pairs of the batch that no group has. ζ₂ is told
    by some of the examples, as what a table of pairs has beyond an effect of each (B. Griffing, Australian Journal of
    Biological Sciences 9 (1956) 463–493, method 4); this error is small where examples are many.
    """
    L, g, k, _, _ = X.shape
    missing = 1 - (g - 1) / max(batch - 1, 1)
    least, numbers = INTERACTING
    if (some := min(g, max(least, math.isqrt(numbers) // L))) < 4 or missing <= 0:
        return X.new_zeros(L, L)
    X = X[:, :some, :, :some]
    left = X.permute(1, 3, 0, 2, 4).flatten(3) / k**2  # (i, j, L, k k)
    H = left @ X.permute(3, 1, 4, 2, 0).flatten(2, 3)  # (i, j, L, L)
    H.diagonal(dim1=0, dim2=1).zero_()
    rows = H.sum(dim=1)
    squares, by_example, total = H.square().sum(dim=(0, 1)), rows.square().sum(dim=0), rows.sum(dim=0)
    left_over = squares / 2 - by_example / (some - 2) + total.square() / (2 * (some - 1) * (some - 2))
    return missing * 2 * left_over.clamp(min=0) * 2 / (some * (some - 3) * g * (g - 1))
