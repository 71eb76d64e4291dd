"""Block norms from random probes: Σ_k ‖H e_k‖² for small blocks, Hutchinson's estimator or XSymRowNorm for the others.

For r with independent entries of mean 0 and variance 1, E‖H_ij r‖² = ‖H_ij‖_F². The entries are signs (Rademacher),
whose estimate never varies more than a Gaussian one's. Each example has its own probes, so that noise averages out
over examples; few products for each are then enough, and Hutchinson's estimator it is. A single matrix (of the batch,
or of one example) needs many, and their vectors, kept, say far more than their norms do: XSymRowNorm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.estimate import Column
from hessdiag.curvature.estimators.stopping import (
    LEAVE_ONE_OUT_PRODUCTS,
    PILOT_EXAMPLES,
    Budget,
    deflate_until,
    sample_until,
)
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.data.batch import Batch
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Matrix, Products
from hessdiag.execution.memory import is_out_of_memory, release
from hessdiag.execution.seeds import stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.shapes import NetworkShape
from hessdiag.results.numbers import Array

__all__ = ["Budget", "probe", "symmetrize"]

MIN_BYTES = 2**16  # bytes of a chunk that are never too many
ENOUGH_PRODUCTS = 128  # of XSymRowNorm, beyond which Hutchinson's with a larger budget seldom knows more
KEPT_BYTES = 2**30  # of product vectors of one column; the same on all devices, so that results are too


def probe(
    problem: Problem,
    *,
    matrix: Matrix,
    per: str,
    budget: Budget,
    shape: NetworkShape,
    seed: int,
    memory: int,
    work: Work = ALL_HERE,
) -> Curvature:
    """All blocks by products in weight space; the two estimates of a pair (i, j) and (j, i) are averaged.

    Args:
        problem: what to measure.
        matrix: `"hessian"` or `"ggn"`.
        per: `"example"` or `"batch"`.
        budget: when to stop.
        shape: sizes of the network.
        seed: of the probes, which do not depend on the device.
        memory: bytes that one vmapped chunk may take.
        work: carries out the blocks.
    """
    weights = problem.weights
    products = Products(problem, matrix, seed=seed)
    sampler = _Sampler(products, problem.batch, per, budget, memory, shape.bytes_per_example(1))
    first = f" from example {problem.batch.offset}" if problem.batch.offset else ""

    def measure(block: Block) -> Result:
        rows = weights if block.kind == "weight" else [block]
        return sampler.fitting_column(block, rows, seed, f"probes of {block.name}{first}").result

    found = work.each("probed blocks", problem.blocks, measure)
    columns = {block.name: Column.from_result(result) for block, result in zip(problem.blocks, found, strict=True)}
    diagonal = {}
    for block in problem.blocks:
        own = weights.index(block) if block.kind == "weight" else 0
        c = columns[block.name]
        diagonal[block.name] = Diagonal(float(c.frobenius_sq[own]), float(c.bars[own]), c.products, c.ended)
    size = len(weights)
    # Column j holds the estimates of (i, j), row i of the stack: transpose.
    values = np.array([columns[b.name].frobenius_sq for b in weights]).reshape(size, size).T
    errors = np.array([columns[b.name].bars for b in weights]).reshape(size, size).T
    return Curvature(diagonal, *symmetrize(values, errors), how=products.reason)


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


@dataclass(frozen=True)
class _Sampler:
    """Draws probes for one block after another and measures the column of blocks that each gives."""

    products: Products
    batch: Batch
    per: str
    budget: Budget
    memory: int
    bytes_per_example: int

    @property
    def examples(self) -> int:
        return self.batch.size if self.per == "example" else 1

    def fitting_column(self, block: Block, rows: Sequence[Block], seed: int, purpose: str) -> Column:
        """The column with probes from a stream; what does not fit into memory is tried again in smaller chunks."""
        try:
            return self.column(block, rows, stream(seed, purpose))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or self.memory < MIN_BYTES:
                raise
        release()  # outside the handler, whose traceback holds on to tensors
        return replace(self, memory=self.memory // 4).fitting_column(block, rows, seed, purpose)

    def column(self, block: Block, rows: Sequence[Block], generator: torch.Generator) -> Column:
        sampled = None if self.budget.exhaustive else self.sample(block, rows, generator)
        return self.unit_vectors(block, rows) if sampled is None else sampled

    def sample(self, block: Block, rows: Sequence[Block], generator: torch.Generator) -> Column | None:
        """By XSymRowNorm as far as its vectors may be kept, else by Hutchinson's estimator; `None`: unit vectors."""
        vectors = self.kept_vectors(block, rows)
        room = min(self.budget.max_products, 2 * vectors)
        enough = min(self.budget.max_products, ENOUGH_PRODUCTS)
        if self.examples > 1 or room < max(enough, LEAVE_ONE_OUT_PRODUCTS):
            return self.hutchinson(block, rows, generator, self.budget)
        return self.leave_one_out(block, rows, generator, replace(self.budget, max_products=room))

    def kept_vectors(self, block: Block, rows: Sequence[Block]) -> int:
        """How many probes' products, and as many of the basis, fit `KEPT_BYTES`."""
        each = 2 * sum(row.numel for row in rows) * block_parameter(self.products.model, block).element_size()
        return KEPT_BYTES // (each + 3 * 8 * block.numel)  # probes, images and basis in float64

    def hutchinson(
        self, block: Block, rows: Sequence[Block], generator: torch.Generator, budget: Budget
    ) -> Column | None:
        def draw(count: int) -> Array:
            return self.norms(block, rows, _signs((self.examples, count, *block.shape), generator))

        few = self.few()

        def draw_pilot(count: int) -> Array:
            return few.norms(block, rows, _signs((few.examples, count, *block.shape), generator))

        return sample_until(
            draw,
            examples=self.examples,
            focus=list(rows).index(block),
            numel=block.numel,
            budget=budget,
            eps=torch.finfo(block_parameter(self.products.model, block).dtype).eps,
            draw_pilot=draw_pilot,
        )

    def few(self) -> _Sampler:
        """The same for the examples of a pilot, spread over the batch."""
        count = min(self.examples, PILOT_EXAMPLES)
        if count == self.examples:
            return self
        chosen = [number * self.batch.size // count for number in range(count)]
        return replace(self, batch=self.batch.select(chosen))

    def leave_one_out(
        self, block: Block, rows: Sequence[Block], generator: torch.Generator, budget: Budget
    ) -> Column | None:
        return deflate_until(
            lambda count: _signs((count, block.numel), generator),
            lambda vectors: self.vectors(block, rows, vectors.reshape(-1, *block.shape)),
            focus=list(rows).index(block),
            numel=block.numel,
            budget=budget,
        )

    def unit_vectors(self, block: Block, rows: Sequence[Block]) -> Column:
        """Σ_k ‖H e_k‖², exact."""
        value = np.zeros(len(rows))
        for start in range(0, block.numel, 64):
            units = torch.arange(start, min(start + 64, block.numel))
            probes = torch.zeros(len(units), block.numel, dtype=torch.int8)
            probes[torch.arange(len(units)), units] = 1
            shared = probes.view(1, len(units), *block.shape).expand(self.examples, -1, *block.shape)
            value += self.norms(block, rows, shared).sum(axis=1).mean(axis=0)
        return Column.exact(value, block.numel)

    def norms(self, block: Block, rows: Sequence[Block], probes: Tensor) -> Array:
        """Probes (B, M, *shape) to squared norms (B, M, rows), in chunks that fit the memory."""
        if self.per == "batch" and self.examples_at_once < self.batch.size:
            parts = self.vectors(block, rows, probes[0])  # (M, P_i) each
            norms = torch.stack([part.square().sum(dim=1) for part in parts], dim=1)
            return np.asarray(norms.unsqueeze(0).double().cpu().numpy())
        like = block_parameter(self.products.model, block)
        pairs = self.pairs_at_once(block, rows)
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

    def vectors(self, block: Block, rows: Sequence[Block], probes: Tensor) -> list[Tensor]:
        """Probes (M, *shape) to products (M, P_i) of the one matrix, in chunks that fit the memory."""
        like = block_parameter(self.products.model, block)
        chunks = torch.split(probes, self.pairs_at_once(block, rows))
        parts = [self.mean_product(block, rows, chunk.to(like)) for chunk in chunks]
        return [torch.cat(row).detach() for row in zip(*parts, strict=True)]

    def mean_product(self, block: Block, rows: Sequence[Block], probes: Tensor) -> list[Tensor]:
        """Probes (M, *shape) to products (M, P_i) of the batch's mean, as many examples at once as fit the memory."""
        total: list[Tensor] = []
        for part in self.batch.chunks(self.examples_at_once):
            products = self.products.batch_column(block, rows, probes, part)
            share = [product.detach() * (part.size / self.batch.size) for product in products]
            total = [a + b for a, b in zip(total, share, strict=True)] if total else share
        return total

    @property
    def examples_at_once(self) -> int:
        """Examples of the batch view whose activations fit the memory of one chunk, at least 1."""
        return max(1, self.memory // self.bytes_per_example)

    def pairs_at_once(self, block: Block, rows: Sequence[Block]) -> int:
        """Products that fit the memory of one chunk, at least 1."""
        numbers = 3 * sum(row.numel for row in (*rows, block))  # probe, tangent, gradients
        examples = min(self.batch.size, self.examples_at_once) if self.per == "batch" else 1
        size = numbers * block_parameter(self.products.model, block).element_size() + examples * self.bytes_per_example
        return max(1, self.memory // size)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
