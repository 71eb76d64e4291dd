"""Block norms from random probes: Σ_k ‖H e_k‖² for small blocks, Hutchinson's estimator for the others.

For r with independent entries of mean 0 and variance 1, E‖H_ij r‖² = ‖H_ij‖_F². The entries are signs (Rademacher),
whose estimate never varies more than a Gaussian one's. Each example has its own probes, so that noise averages out
over examples, and the standard error comes from the spread between the probes *of one example*: the spread between
examples is no noise of the estimator.

Optional stopping biases a mean and its error bar. Hence a pilot of a fixed size, a number of further probes computed
once from it, and few looks after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hessdiag.batch import Batch
from hessdiag.blocks import Block, block_parameter
from hessdiag.curvature.products import Matrix, Products
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.problem import Problem
from hessdiag.report import Array, Ended
from hessdiag.seeds import stream

PILOT_SAMPLES = 64  # probes, over all examples, before the noise is judged
MARGIN = 1.2  # more probes than the pilot's noise asks for, so that a second look rarely comes

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """How long to sample: to a relative standard error `rtol` of the diagonal, within `max_products` a block.

    `exhaustive` asks for Σ_k ‖H e_k‖² whatever it costs.
    """

    rtol: float
    max_products: int
    exhaustive: bool = False


@dataclass(frozen=True)
class Column:
    """Estimates of ‖H_ij‖_F² for one j and several i, and how they came about."""

    frobenius_sq: Array
    stderr: Array
    products: int
    ended: Ended


def probe(
    problem: Problem,
    *,
    matrix: Matrix,
    per: str,
    budget: Budget,
    seed: int,
    memory: int,
    progress: Progress = lambda block: None,
) -> Curvature:
    """All blocks by products in weight space; the two estimates of a pair (i, j) and (j, i) are averaged.

    Args:
        problem: what to measure.
        matrix: `"hessian"` or `"ggn"`.
        per: `"example"` or `"batch"`.
        budget: when to stop.
        seed: of the probes, which do not depend on the device.
        memory: bytes that one vmapped chunk may take.
        progress: called with the name of each block that is done.
    """
    weights = problem.weights
    sampler = _Sampler(Products(problem, matrix), problem.batch, per, budget, memory)
    columns = {}
    for block in problem.blocks:
        rows = weights if block.kind == "weight" else [block]
        columns[block.name] = sampler.column(block, rows, stream(seed, f"probes of {block.name}"))
        progress(block.name)
    diagonal = {}
    for block in problem.blocks:
        own = weights.index(block) if block.kind == "weight" else 0
        c = columns[block.name]
        diagonal[block.name] = Diagonal(float(c.frobenius_sq[own]), float(c.stderr[own]), c.products, c.ended)
    size = len(weights)
    # Column j holds the estimates of (i, j), row i of the stack: transpose.
    values = np.array([columns[b.name].frobenius_sq for b in weights]).reshape(size, size).T
    errors = np.array([columns[b.name].stderr for b in weights]).reshape(size, size).T
    return Curvature(diagonal, *symmetrize(values, errors))


def symmetrize(values: Array, errors: Array) -> tuple[Array, Array]:
    """One estimate for (i, j) and (j, i): the exact one if one is exact, else the mean of two independent ones.

    >>> symmetrize(np.array([[1.0, 2.0], [4.0, 1.0]]), np.array([[0.1, 0.3], [0.4, 0.1]]))[1]
    array([[0.1 , 0.25],
           [0.25, 0.1 ]])
    """
    here, there = errors == 0, errors.T == 0
    mean, error = (values + values.T) / 2, np.sqrt(errors**2 + errors.T**2) / 2
    off = ~np.eye(len(values), dtype=bool)
    only_here, only_there = here & ~there & off, there & ~here & off
    value = np.where(only_here, values, np.where(only_there, values.T, mean))
    return value, np.where(off, np.where(here | there, 0.0, error), errors)


def sample_until(
    draw: Callable[[int], Array], *, examples: int, focus: int, numel: int, budget: Budget
) -> Column | None:
    """Sample until the focused row is known to `rtol`, or the budget is spent.

    Args:
        draw: `draw(m)` gives (B, m, rows) new squared norms.
        examples: B.
        focus: the row that `rtol` is asked of.
        numel: entries of the column block; `None` is returned when all unit vectors would cost no more.
        budget: when to stop.
    """
    wanted = min(max(2, -(-PILOT_SAMPLES // examples)), max(budget.max_products, 2))
    if numel <= wanted:
        return None
    count, total, squares = 0, np.zeros(0), np.zeros(0)
    while True:
        new = draw(wanted - count)
        total = total + new.sum(axis=1) if count else new.sum(axis=1)  # (B, rows)
        squares = squares + (new**2).sum(axis=1) if count else (new**2).sum(axis=1)
        count = wanted
        mean = total / count
        within = np.maximum(squares / count - mean**2, 0) * count / (count - 1)  # (B, rows)
        value = mean.mean(axis=0)
        stderr = np.sqrt(within.sum(axis=0) / count) / examples
        relative = stderr[focus] / value[focus] if value[focus] > 0 else 0.0
        if relative <= budget.rtol or count >= budget.max_products:
            return Column(value, stderr, count, "rtol" if relative <= budget.rtol else "budget")
        wanted = max(count + 1, math.ceil(MARGIN * count * (relative / budget.rtol) ** 2))
        if numel <= wanted - count and numel <= budget.max_products:
            return None
        wanted = min(wanted, budget.max_products)


@dataclass(frozen=True)
class _Sampler:
    """Draws probes for one block after another and measures the column of blocks that each gives."""

    products: Products
    batch: Batch
    per: str
    budget: Budget
    memory: int

    @property
    def examples(self) -> int:
        return self.batch.size if self.per == "example" else 1

    def column(self, block: Block, rows: Sequence[Block], generator: torch.Generator) -> Column:
        def draw(count: int) -> Array:
            shape = (self.examples, count, *block.shape)
            signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
            return self.norms(block, rows, signs)

        if not self.budget.exhaustive:
            focus = list(rows).index(block)
            sampled = sample_until(draw, examples=self.examples, focus=focus, numel=block.numel, budget=self.budget)
            if sampled is not None:
                return sampled
        return self.unit_vectors(block, rows)

    def unit_vectors(self, block: Block, rows: Sequence[Block]) -> Column:
        """Σ_k ‖H e_k‖², exact."""
        value = np.zeros(len(rows))
        for start in range(0, block.numel, 64):
            units = torch.arange(start, min(start + 64, block.numel))
            probes = torch.zeros(len(units), block.numel, dtype=torch.int8)
            probes[torch.arange(len(units)), units] = 1
            shared = probes.view(1, len(units), *block.shape).expand(self.examples, -1, *block.shape)
            value += self.norms(block, rows, shared).sum(axis=1).mean(axis=0)
        return Column(value, np.zeros(len(rows)), block.numel, "exact")

    def norms(self, block: Block, rows: Sequence[Block], probes: Tensor) -> Array:
        """Probes (B, M, *shape) to squared norms (B, M, rows), in chunks that fit the memory."""
        like = block_parameter(self.products.model, block)
        per_product = 3 * like.element_size() * sum(row.numel for row in (*rows, block))  # probe, tangent, gradients
        pairs = max(1, self.memory // per_product)
        at_once = min(probes.shape[1], pairs)
        pieces = []
        chunk = max(1, pairs // at_once)
        for start in range(0, self.examples, chunk):
            stop = min(start + chunk, self.examples)
            row = []
            for first in range(0, probes.shape[1], at_once):
                moved = probes[start:stop, first : first + at_once].to(like)
                if self.per == "batch":
                    norms = self.products.batch_column_norms(block, rows, moved[0], self.batch).unsqueeze(0)
                else:
                    norms = self.products.column_norms(block, rows, moved, self.batch.narrow(start, stop))
                row.append(norms.detach())
            pieces.append(torch.cat(row, dim=1))
        return np.asarray(torch.cat(pieces).double().cpu().numpy())
