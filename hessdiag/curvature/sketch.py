"""Gauss-Newton blocks of networks with many outputs, from random output directions.

With K_l = J_l J_l^T and S the Hessian of the loss in the outputs, ‖G_ij‖_F² = tr(S K_j S K_i). Let z_1..z_m be
directions whose weighted outer products average to the identity. Back-propagating z_k and S z_k once gives
X_l[k, m] = z_k^T K_l S z_m for *every* block l, and

    tr(S K_j S K_i) = E Σ_{k≠m} w_km X_i[k, m] X_j[m, k],

so that the number of backward passes does not depend on the number of blocks. Where S = A A^T (cross-entropy, squared
error) A z_k alone are sent back, and X_l is the Gram matrix of A^T K_l A.

*Plain*: all directions are Gaussian. Right for high effective rank, where the error falls like 1/q.

*Deflated*: deep ReLU networks at initialisation have K_l of rank 1 to 3, and q plain directions leave an error of
1/√q. First find the range: forward-mode passes with random weight tangents give samples of N(0, K), Q = orth of them
(Halko, Martinsson & Tropp, arXiv 0909.4061). Then Q is treated exactly and only (I − QQ^T)ω is random. Any Q that is
independent of the ω leaves the estimate unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.pairs import pair_sums
from hessdiag.curvature.estimators.student import t_quantile
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import FunctionalModel, tangent
from hessdiag.derivatives.jacobian import all_jacobians
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import gaussians, stream
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import block_parameter
from hessdiag.results.report import Array, Ended

PILOT = 8  # directions of the pilot
PILOT_EXAMPLES = 8
BASIS = 16  # of the range finder: what it leaves must be small, or the error bars have heavy tails
MOST_BASIS = 64
LOW_RANK = 10.0  # effective rank under which deflation pays: a basis of 16 catches most of it
RANDOM = 12  # directions of the first round
FEWEST = 6  # directions that still tell their own noise
LEVEL = 0.975  # at which standard errors are widened for few directions
MARGIN = 1.2  # more directions than the noise asks for, so that another look rarely comes


def sketch_per_example(
    problem: Problem,
    *,
    outputs: int,
    rtol: float,
    max_products: int,
    chunk: Callable[[int], int],
    most: int,
    seed: int,
    work: Work = ALL_HERE,
) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks.

    Args:
        problem: what to measure.
        outputs: N, outputs per example.
        rtol: relative standard error of the weight blocks' diagonal at which sampling stops.
        max_products: directions that may be sent back in all, per example.
        chunk: `chunk(m)` examples are measured at once when m cotangents are sent back.
        most: cotangents of one example that fit into memory.
        seed: of the directions.
        work: carries out each round.
    """
    few = replace(problem, batch=problem.batch.narrow(0, PILOT_EXAMPLES))
    pilot = _round(few, _Directions(PILOT, name="pilot"), chunk, seed, work)
    ranks = pilot.effective_ranks()
    deflated = float(np.nanmedian(ranks)) < LOW_RANK
    scales = pilot.trace_scales() if deflated else None
    random, spent, basis = RANDOM, PILOT, BASIS
    rounds: list[_Round] = []
    while True:
        fixed = min(basis, outputs) if deflated else 0
        random = max(FEWEST, min(random, most - fixed))
        directions = _Directions(random, fixed, scales, name=f"round {len(rounds) + 1}")
        rounds.append(_round(problem, directions, chunk, seed, work))
        spent += directions.cost
        total = _combine(rounds)
        worst = total.worst_relative_error(problem)
        basis = min(2 * basis, MOST_BASIS)
        room = max_products - spent - (2 * min(basis, outputs) if deflated else 0)
        if worst <= rtol or room < FEWEST:
            break
        # The variance falls at best with the number of pairs; never more than 4 times the directions at once.
        pairs = sum(r.random**2 for r in rounds)
        wanted = math.ceil(min(math.sqrt(pairs * ((MARGIN * worst / rtol) ** 2 - 1)), 4 * random))
        random = max(FEWEST, min(wanted, room))
    ended: Ended = "rtol" if worst <= rtol else "budget"
    how = f"{'deflated' if deflated else 'plain'} sketches, median effective rank {np.nanmedian(ranks):.1f}"
    return replace(total.curvature(problem, spent, ended), how=how)


@dataclass(frozen=True)
class _Directions:
    """How many output directions to draw: `random` ones, and a deflation basis of `fixed` ones.

    The `name` tells the streams of different rounds apart.
    """

    random: int
    fixed: int = 0
    scales: list[float] | None = None
    name: str = ""

    @property
    def cost(self) -> int:
        """Passes through the network, forward-mode ones included."""
        return self.random + 2 * self.fixed


@dataclass
class _Round:
    """Estimates of all L x L norms (weights, then other blocks on the diagonal) with unbiased variances."""

    value: Array
    variance: Array
    random: int
    traces: Array
    traces_sq: Array
    norms_sq: Array

    def effective_ranks(self) -> Array:
        """(tr K)² / ‖K‖² of every block, both estimated without bias from pairs of directions."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.norms_sq > 0, self.traces_sq / self.norms_sq, np.nan)

    def trace_scales(self) -> list[float]:
        """1 / √tr(K_l): gives every block equal weight in the range finder."""
        return [1 / math.sqrt(t) if t > 0 else 0.0 for t in self.traces]


@dataclass
class _Total:
    value: Array
    variance: Array

    def worst_relative_error(self, problem: Problem) -> float:
        """Largest relative standard error among the weight blocks that are not zero."""
        own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
        value, error = np.diagonal(self.value)[own], np.sqrt(np.maximum(np.diagonal(self.variance)[own], 0))
        return float(max((e / v for v, e in zip(value, error, strict=True) if v > 0), default=0.0))

    def curvature(self, problem: Problem, products: int, ended: Ended) -> Curvature:
        """Diagonal of all blocks, map of the weights."""
        stderr = np.sqrt(np.maximum(self.variance, 0))
        diagonal = {
            block.name: Diagonal(float(max(self.value[i, i], 0)), float(stderr[i, i]), products, ended)
            for i, block in enumerate(problem.blocks)
        }
        own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
        return Curvature(diagonal, np.maximum(self.value[own][:, own], 0), stderr[own][:, own])


def _combine(rounds: list[_Round]) -> _Total:
    """Independent rounds, weighted by their numbers of pairs: weights fixed beforehand keep the mean unbiased."""
    pairs = sum(r.random**2 for r in rounds)
    value = sum((r.random**2 * r.value for r in rounds), np.zeros(())) / pairs
    variance = sum((r.random**4 * r.variance for r in rounds), np.zeros(())) / pairs**2
    wider = t_quantile(LEVEL, sum(r.random for r in rounds) - 1) / t_quantile(LEVEL, math.inf)
    return _Total(np.asarray(value), np.asarray(variance * wider**2))


def _round(problem: Problem, directions: _Directions, chunk: Callable[[int], int], seed: int, work: Work) -> _Round:
    """One independent set of directions for every example of a batch."""

    def measure(part: Batch) -> Result:
        return pair_sums(*_grams(problem, part, directions, seed), fixed=directions.fixed)

    batch, q = problem.batch, directions.random
    cotangents = (q + directions.fixed) * (1 if problem.loss.has_root else 2)
    name = f"sketches, {directions.name}, {q} + {directions.fixed} directions"
    sums = work.total(name, list(batch.chunks(max(1, chunk(cotangents)))), measure)
    mean = {key: total / batch.size for key, total in sums.items()}
    # That variance is itself estimated from q directions, and its tails are heavy.
    variance = mean["variance"] / batch.size * (q + 1) / (q - 3)
    return _Round(mean["value"], variance, q, mean["trace"], mean["trace_sq"], mean["norm_sq"])


def _grams(problem: Problem, part: Batch, directions: _Directions, seed: int) -> tuple[Tensor, Tensor]:
    """X_l[k, m] = z_k^T K_l S z_m and z_k^T K_l z_m for all blocks, (B, L, m, m), the deflation basis first."""
    loss = problem.loss
    y = part.call(problem.model).detach()  # not under no_grad, where a model may take another path, or need its own
    basis = _range(problem, part, y, directions, seed)  # (r, B, *out)
    omega = gaussians(seed, f"sketches, {directions.name},", part.numbers, (directions.random, *y.shape[1:])).to(y)
    if len(basis):
        flat = basis.flatten(2)  # (r, B, N)
        along = torch.einsum("rbn,qbn->qrb", flat, omega.flatten(2))
        omega = omega - torch.einsum("qrb,rbn->qbn", along, flat).view_as(omega)
    z = torch.cat([basis, omega])  # (m, B, *out)
    if loss.has_root:
        X = _jacobian_grams(problem, part, torch.stack([loss.root_product(y, part.targets, v) for v in z]))
        return X, X
    curved = torch.stack([loss.hessian_product(y, part.targets, v) for v in z])
    both = _jacobian_grams(problem, part, torch.cat([z, curved]))
    return both[:, :, : len(z), len(z) :], both[:, :, : len(z), : len(z)]


def _jacobian_grams(problem: Problem, part: Batch, cotangents: Tensor) -> Tensor:
    """Gram matrices of cotangent^T J_l of every block, (B, L, m, m)."""
    grams = []
    for jacobian in all_jacobians(problem.model, part, problem.blocks, lambda y: cotangents):
        if jacobian is None:
            size = len(cotangents)
            grams.append(cotangents.new_zeros(part.size, size, size, dtype=torch.float64))
        else:
            grams.append(jacobian.gram().double())
    return torch.stack(grams, dim=1).detach()


def _range(problem: Problem, part: Batch, y: Tensor, directions: _Directions, seed: int) -> Tensor:
    """An orthonormal basis of where the blocks move the outputs, (r, B, *out); empty without deflation.

    One weight tangent serves all examples: for each of them J r is a sample of N(0, Σ K_l).
    """
    if not directions.fixed:
        return y.new_zeros(0, *y.shape)
    assert directions.scales is not None
    generator = stream(seed, f"weight tangents, {directions.name}")  # the same for all examples, in all chunks
    network = FunctionalModel(problem.model)
    at = {block.name: block_parameter(problem.model, block).detach() for block in problem.blocks}
    samples = []
    for _ in range(directions.fixed):
        moved = {
            block.name: torch.randn(block.shape, generator=generator).to(y) * scale
            for block, scale in zip(problem.blocks, directions.scales, strict=True)
        }
        sample = tangent(network, at, moved, part, forward_mode=True)
        if problem.loss.has_root:
            sample = problem.loss.root_transposed_product(y, part.targets, sample)
        samples.append(sample.flatten(1))  # (B, N)
    Q = torch.linalg.qr(torch.stack(samples, dim=2)).Q  # (B, N, r)
    basis: Tensor = Q.permute(2, 0, 1).reshape(Q.shape[2], *y.shape)
    return basis
