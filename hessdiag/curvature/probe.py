"""Block norms from products in weight space: Hutchinson's estimator, or Σ_k ‖H e_k‖² for small blocks.

For r with independent entries of mean 0 and variance 1, E‖H_ij r‖² = ‖H_ij‖_F² (M. F. Hutchinson, Communications in
Statistics – Simulation and Computation 18 (1989) 1059–1076). The entries are signs (Rademacher), whose estimate never
varies more than a Gaussian one's. Each example has its own probes, so that noise averages out over examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import (
    Curvature,
    Diagonal,
    degrees_of_freedom,
    equal_parts,
    how_ended,
    rounding_of,
    times_wanted,
    widening,
)
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, is_out_of_memory, release
from hessdiag.data.seeds import stream
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Matrix, Products
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.numbers import Array

SAMPLES = 48  # probes over all examples, by default
LEAST = 2  # probes of an example: they tell their own noise
TAILS = 3.0  # how many times fewer degrees of freedom than of Gaussians
UNITS = 64  # unit vectors at a time
MIN_BYTES = 2**16  # of a chunk, which are never too many


def probes_for(examples: int) -> int:
    """Probes of each example by default.

    >>> probes_for(1), probes_for(64)
    (48, 2)
    """
    return max(LEAST, -(-SAMPLES // examples))


def probe(
    problem: Problem,
    memory: MemoryBudget,
    *,
    matrix: Matrix,
    per: str = "example",
    exhaustive: bool = False,
    rtol: float | None = None,
    max_products: int = 400,
    seed: int = 0,
) -> Curvature:
    """All blocks by products in weight space; the two estimates of a pair (i, j) and (j, i) are averaged.

    Args:
        problem: what to measure.
        memory: that may be taken.
        matrix: `"hessian"` or `"ggn"`.
        per: `"example"` or `"batch"`.
        exhaustive: take all unit vectors, whatever they cost.
        rtol: relative standard error of the diagonal, of which first probes tell how many it takes; None for the
            default number.
        max_products: of a block, per example.
        seed: of the probes, which do not depend on the device.
    """
    products, weights = Products(problem, matrix, seed=seed), problem.weights
    prober = _Prober(products, problem.batch, per, memory.chunk, problem.shape.bytes_per_example(1))
    most = math.inf if exhaustive else max(max_products, LEAST)
    diagonal, values, errors = {}, [], []
    announce("probed blocks", len(problem.blocks))
    for block in problem.blocks:
        rows = weights if block.kind == "weight" else [block]
        found = prober.column(block, rows, exhaustive, rtol, most, seed)
        own = rows.index(block)
        value, stderr = float(found.value[own]), max(float(found.stderr[own]), 0.0)
        if not found.exact:
            stderr = max(stderr, rounding_of(problem) * value)
        ended = "exact" if found.exact else how_ended(value, stderr, rtol)
        diagonal[block.name] = Diagonal(value, stderr, found.products, ended)
        if block.kind == "weight":
            values.append(found.value)
            errors.append(found.stderr)
        advance("probed blocks")
    shape_of = (len(weights), len(weights))
    # Column j holds the estimates of (i, j), row i of the stack: transpose.
    both = (np.array(each).reshape(shape_of).T for each in (values, errors))
    return Curvature(diagonal, *symmetrize(*both), reason=products.reason)


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
class _Column:
    """Squared norms of the blocks of a column, one a row block, with standard errors, 0 where exact."""

    value: Array
    stderr: Array
    products: int
    exact: bool = False


def hutchinson(norms: Array) -> tuple[Array, Array]:
    """Mean over examples b of E‖H^(b) r‖², and its standard error.

    The variance of each example's mean comes from the spread between its own probes: the spread between examples is no
    noise of the estimator.

    Args:
        norms: (B, m, rows), ‖H r‖² of m >= 2 probes of each example.

    >>> value, stderr = hutchinson(np.array([[[1.0], [3.0]]]))
    >>> float(value[0]), bool(stderr[0] > 1)
    (2.0, True)
    """
    examples, count, _ = norms.shape
    within = norms.var(axis=1, ddof=1)  # (B, rows)
    variance = within.sum(axis=0)
    dof = degrees_of_freedom(count, equal_parts(variance, (within**2).sum(axis=0)), tails=TAILS)
    return norms.mean(axis=(0, 1)), widening(dof) * np.sqrt(variance / count) / examples


@dataclass(frozen=True)
class _Prober:
    """Draws probes for one block after another, and measures the column of blocks that each gives."""

    products: Products
    batch: Batch
    per: str
    memory: int
    bytes_per_example: int

    @property
    def examples(self) -> int:
        return self.batch.size if self.per == "example" else 1

    def column(
        self, block: Block, rows: Sequence[Block], exhaustive: bool, rtol: float | None, most: float, seed: int
    ) -> _Column:
        """The column of a block; what does not fit into memory is tried again in smaller chunks."""
        generator = stream(seed, f"probes of {block.name} from example {self.batch.offset}")
        try:
            if exhaustive or block.numel <= min(probes_for(self.examples), most):
                return self.unit_vectors(block, rows)
            return self.sample(block, rows, rtol, int(most), generator)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or self.memory < MIN_BYTES:
                raise
        release()  # outside the handler, whose traceback holds on to tensors
        return replace(self, memory=self.memory // 4).column(block, rows, exhaustive, rtol, most, seed)

    def sample(
        self, block: Block, rows: Sequence[Block], rtol: float | None, most: int, generator: torch.Generator
    ) -> _Column:
        """By random probes, in two stages where `rtol` is given: the second alone makes the estimate."""

        def drawn(count: int) -> tuple[Array, Array]:
            return hutchinson(self.norms(block, rows, _signs((self.examples, count, *block.shape), generator)))

        count = min(probes_for(self.examples), most)
        value, stderr = drawn(count)
        if rtol is None or most - count < LEAST:
            return _Column(value, stderr, count)
        own = [list(rows).index(block)]
        wanted = max(LEAST, math.ceil(times_wanted(value[own], stderr[own], rtol) * count))
        if block.numel <= min(wanted, most):
            return self.unit_vectors(block, rows)
        wanted = min(wanted, most - count)
        return _Column(*drawn(wanted), count + wanted)

    def unit_vectors(self, block: Block, rows: Sequence[Block]) -> _Column:
        """Σ_k ‖H e_k‖², exact."""
        value = np.zeros(len(rows))
        for start in range(0, block.numel, UNITS):
            units = torch.arange(start, min(start + UNITS, block.numel))
            probes = torch.zeros(len(units), block.numel, dtype=torch.int8)
            probes[torch.arange(len(units)), units] = 1
            shared = probes.view(1, len(units), *block.shape).expand(self.examples, -1, *block.shape)
            value += self.norms(block, rows, shared).sum(axis=1).mean(axis=0)
        return _Column(value, np.zeros(len(rows)), block.numel, exact=True)

    def norms(self, block: Block, rows: Sequence[Block], probes: Tensor) -> Array:
        """Probes (B, M, *shape) to squared norms (B, M, rows), in chunks that fit the memory."""
        like = block_parameter(self.products.model, block)
        if self.per == "batch":
            parts = self._of_batch(block, rows, probes[0].to(like))
            norms = torch.stack([part.double().square().sum(dim=1) for part in parts], dim=1)
            return np.asarray(norms.unsqueeze(0).cpu().numpy())
        pairs = self._pairs_at_once(block, rows)
        at_once = min(probes.shape[1], pairs)
        pieces = []
        for part in self.batch.chunks(max(1, pairs // at_once)):
            start = part.offset - self.batch.offset
            some = torch.split(probes[start : start + part.size], at_once, dim=1)
            row = [self.products.column_norms(block, rows, each.to(like), part).detach() for each in some]
            pieces.append(torch.cat(row, dim=1))
        return np.asarray(torch.cat(pieces).double().cpu().numpy())

    def _of_batch(self, block: Block, rows: Sequence[Block], probes: Tensor) -> list[Tensor]:
        """Probes (M, *shape) to products (M, P_i) with the batch's mean, in chunks that fit the memory."""
        found = []
        for some in torch.split(probes, self._pairs_at_once(block, rows)):
            total: list[Tensor] = []
            for part in self.batch.chunks(self._examples_at_once):
                share = part.size / self.batch.size
                each = [p.detach() * share for p in self.products.batch_column(block, rows, some, part)]
                total = [a + b for a, b in zip(total, each, strict=True)] if total else each
            found.append(total)
        return [torch.cat(row) for row in zip(*found, strict=True)]

    @property
    def _examples_at_once(self) -> int:
        return max(1, self.memory // self.bytes_per_example)

    def _pairs_at_once(self, block: Block, rows: Sequence[Block]) -> int:
        """Products that fit the memory of one chunk, at least 1."""
        numbers = 3 * sum(row.numel for row in (*rows, block))  # probe, tangent, gradients
        examples = min(self.batch.size, self._examples_at_once) if self.per == "batch" else 1
        size = numbers * block_parameter(self.products.model, block).element_size() + examples * self.bytes_per_example
        return max(1, self.memory // size)


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
