"""Block norms from products in weight space: Hutchinson's estimator, or Σ_k ‖H e_k‖² for small blocks.

For r with independent entries of mean 0 and variance 1, E‖H_ij r‖² = ‖H_ij‖_F² (M. F. Hutchinson, Communications in
Statistics – Simulation and Computation 18 (1989) 1059–1076). The entries are signs (Rademacher), whose estimate never
varies more than a Gaussian one's. Each example has its own probes, so that noise averages out over examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature, degrees_of_freedom, equal_parts, rounding_of, two_stages, widening
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, is_out_of_memory
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
    problem: Problem, memory: MemoryBudget, *, matrix: Matrix, per: str = "example", exhaustive: bool = False,
    rtol: float | None = None, max_products: int = 400, seed: int = 0,
) -> Curvature:  # fmt: skip
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
    products, blocks, rounding = Products(problem, matrix, seed=seed), problem.blocks, rounding_of(problem)
    prober = _Prober(products, problem.batch, per, memory.chunk, problem.shape.bytes_per_example(1), seed)
    most, spent = max(max_products, LEAST), []
    values, errors = (np.zeros((len(blocks), len(blocks))) for _ in range(2))
    announce("probed blocks", len(blocks))
    for j, block in enumerate(blocks):
        rows = [i for i, other in enumerate(blocks) if i == j or block.kind == other.kind == "weight"]
        measure = partial(prober.column, block, [blocks[i] for i in rows])
        first = block.numel if exhaustive else min(probes_for(prober.examples), most)
        value, stderr, each = two_stages(measure, first, least=LEAST, most=most, own=[rows.index(j)], rtol=rtol)
        values[rows, j] = value
        errors[rows, j] = np.where(stderr > 0, np.maximum(stderr, rounding * value), 0)
        spent.append(sum(each))
        advance("probed blocks")
    return Curvature.sampled(*symmetrize(values, errors), spent, rtol=rtol, reason=products.reason)


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
    seed: int

    @property
    def examples(self) -> int:
        return self.batch.size if self.per == "example" else 1

    def column(self, block: Block, rows: Sequence[Block], count: int, stage: str) -> tuple[Array, Array, int]:
        """Squared norms of a column of blocks, their standard errors, and products spent.

        By all unit vectors, exactly, where these are no more than the probes would be. What does not fit into memory is
        tried again in smaller chunks.
        """
        generator = stream(self.seed, f"{stage}probes of {block.name} from example {self.batch.offset}")
        try:
            if block.numel <= count:
                return self.unit_vectors(block, rows), np.zeros(len(rows)), block.numel
            size = (self.examples, count, *block.shape)
            signs = torch.randint(0, 2, size, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
            norms = self.norms(block, rows, signs)
            return *hutchinson(norms), count
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or self.memory < MIN_BYTES:
                raise
        torch.cuda.empty_cache()  # outside the handler, whose traceback holds on to tensors
        return replace(self, memory=self.memory // 4).column(block, rows, count, stage)

    def unit_vectors(self, block: Block, rows: Sequence[Block]) -> Array:
        """Σ_k ‖H e_k‖², exact."""
        value = np.zeros(len(rows))
        for start in range(0, block.numel, UNITS):
            units = torch.arange(start, min(start + UNITS, block.numel))
            probes = torch.zeros(len(units), block.numel, dtype=torch.int8)
            probes[torch.arange(len(units)), units] = 1
            shared = probes.view(1, len(units), *block.shape).expand(self.examples, -1, *block.shape)
            value += self.norms(block, rows, shared).sum(axis=1).mean(axis=0)
        return value

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
