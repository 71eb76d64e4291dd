"""Block norms from products in weight space: Hutchinson's estimator, or Σ_k ‖H e_k‖² for small blocks.

For r with independent entries of mean 0 and variance 1, E‖H_ij r‖² = ‖H_ij‖_F² (M. F. Hutchinson, Communications in
Statistics – Simulation and Computation 18 (1989) 1059–1076). The entries are signs (Rademacher), whose estimate never
varies more than a Gaussian one's. Each example has its own probes, so that noise averages out over examples.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature, degrees_of_freedom, equal_parts, rounding_of, two_stages, widening
from hessdiag.data.memory import MemoryBudget, unless_out_of_memory
from hessdiag.data.seeds import stream
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import MIN_BYTES, CurvatureOperator, Matrix, Products
from hessdiag.network.blocks import block_parameter
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.numbers import Array

SAMPLES = 48  # probes over all examples, by default
LEAST = 2  # probes of an example: they tell their own noise
TAILS = 3.0  # how many times fewer degrees of freedom than of Gaussians
UNITS = 64  # unit vectors at a time


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
    """All blocks by products in weight space; the two estimates of a pair (i, j) and (j, i) are averaged. `exhaustive`
    takes all unit vectors, whatever they cost; `rtol` is the relative standard error of the diagonal, of which first
    probes tell how many it takes, None for the default number; `max_products` are of a block, per example.
    """
    blocks, examples, rounding = problem.blocks, problem.batch.size, rounding_of(problem)
    norms: Callable[[int, Sequence[int], Tensor], Array]
    if per == "batch":
        operator, examples = CurvatureOperator(problem, matrix, memory=memory.chunk, seed=seed), 1
        norms, reason = partial(_of_batch, operator), operator.ways.reason
    else:
        products = Products(problem, matrix, seed=seed)
        norms, reason = partial(_of_examples, problem, products, memory.chunk), products.reason

    def column(j: int, rows: Sequence[int], count: int, stage: str) -> tuple[Array, Array, int]:
        """By all unit vectors, exactly, where these are no more than the probes would be."""
        if (block := blocks[j]).numel <= count:
            value = np.zeros(len(rows))
            for units in torch.split(torch.arange(block.numel), UNITS):
                probes = (units.unsqueeze(1) == torch.arange(block.numel)).view(1, len(units), *block.shape)
                value += norms(j, rows, probes.expand(examples, *probes.shape[1:])).sum(axis=1).mean(axis=0)
            return value, np.zeros(len(rows)), block.numel
        generator = stream(seed, f"{stage}probes of {block.name} from example {problem.batch.offset}")
        size = (examples, count, *block.shape)
        signs = torch.randint(0, 2, size, generator=generator, dtype=torch.int8).mul_(2).sub_(1)
        return *hutchinson(norms(j, rows, signs)), count

    most, spent = max(max_products, LEAST), []
    values, errors = (np.zeros((len(blocks), len(blocks))) for _ in range(2))
    announce("probed blocks", len(blocks))
    for j, block in enumerate(blocks):
        rows = [i for i, other in enumerate(blocks) if i == j or block.kind == other.kind == "weight"]
        first = block.numel if exhaustive else min(probes_for(examples), most)
        measure = partial(column, j, rows)
        value, stderr, each = two_stages(measure, first, least=LEAST, most=most, own=[rows.index(j)], rtol=rtol)
        values[rows, j] = value
        errors[rows, j] = np.where(stderr > 0, np.maximum(stderr, rounding * value), 0)
        spent.append(sum(each))
        advance("probed blocks")
    return Curvature.sampled(*symmetrize(values, errors), spent, rtol=rtol, reason=reason)


def symmetrize(values: Array, errors: Array) -> tuple[Array, Array]:
    """One estimate for (i, j) and (j, i): the exact one if one is exact, else the mean of two independent ones.

    >>> symmetrize(np.array([[1.0, 2.0], [4.0, 1.0]]), np.array([[0.1, 0.3], [0.4, 0.1]]))[1]
    array([[0.1 , 0.25],
           [0.25, 0.1 ]])
    """
    here, there = errors == 0, errors.T == 0
    mean, error = (values + values.T) / 2, np.sqrt(errors**2 + errors.T**2) / 2
    off = ~np.eye(len(values), dtype=bool)
    value = np.where(here & ~there, values, np.where(there & ~here, values.T, mean))
    return value, np.where(off, np.where(here | there, 0.0, error), errors)


def hutchinson(norms: Array) -> tuple[Array, Array]:
    """Mean over examples b of E‖H^(b) r‖², and its standard error, from ‖H r‖² (B, m, rows) of m ≥ 2 probes of each.

    The variance of each example's mean comes from the spread between its own probes, not from that between examples.

    >>> value, stderr = hutchinson(np.array([[[1.0], [3.0]]]))
    >>> float(value[0]), bool(stderr[0] > 1)
    (2.0, True)
    """
    examples, count, _ = norms.shape
    within = norms.var(axis=1, ddof=1)  # (B, rows)
    variance = within.sum(axis=0)
    dof = degrees_of_freedom(count, equal_parts(variance, (within**2).sum(axis=0)), tails=TAILS)
    return norms.mean(axis=(0, 1)), widening(dof) * np.sqrt(variance / count) / examples


def _of_examples(problem: Problem, ways: Products, memory: int, j: int, rows: Sequence[int], probes: Tensor) -> Array:
    """Probes (B, M, *shape of block j) to squared norms (B, M, rows), in chunks that fit the memory."""
    column, blocks = problem.blocks[j], [problem.blocks[i] for i in rows]
    like = block_parameter(problem.model, column)
    numbers = 3 * sum(block.numel for block in (*blocks, column))  # probe, tangent, gradients
    pairs = max(1, memory // (numbers * like.element_size() + problem.shape.bytes_per_example(1)))
    at_once = min(probes.shape[1], pairs)

    def measure() -> Array:
        pieces = []
        for part in problem.batch.chunks(max(1, pairs // at_once)):
            start = part.offset - problem.batch.offset
            some = torch.split(probes[start : start + part.size], at_once, dim=1)
            row = [ways.column_norms(column, blocks, each.to(like), part).detach() for each in some]
            pieces.append(torch.cat(row, dim=1))
        return np.asarray(torch.cat(pieces).double().cpu().numpy())

    found = unless_out_of_memory(measure, examples=max(1, memory // MIN_BYTES))
    return _of_examples(problem, ways, memory // 4, j, rows, probes) if found is None else found


def _of_batch(operator: CurvatureOperator, j: int, rows: Sequence[int], probes: Tensor) -> Array:
    """The same of the mean over the batch, of probes (1, M, *shape of block j)."""
    blocks, starts, alone = operator.problem.blocks, operator.starts, rows == [j]
    columns = [(starts[j], r) for r in probes[0].reshape(probes.shape[1], -1).to(operator.like)]
    places = [slice(0, blocks[j].numel)] if alone else [slice(starts[i], starts[i] + blocks[i].numel) for i in rows]
    moved = operator.products(columns, whole=not alone)
    return np.array([[[float(w[place].double().square().sum()) for place in places] for w in moved]])
