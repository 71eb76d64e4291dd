"""Gauss-Newton blocks of networks with many outputs, from random output directions.

With K_l = J_l J_l^T and S the Hessian of the loss in the outputs, ‖G_ij‖_F² = tr(S K_j S K_i). Let z_1..z_m be
directions whose weighted outer products average to the identity. Back-propagating z_k and S z_k once gives
X_l[k, m] = z_k^T K_l S z_m for *every* block l, and

    tr(S K_j S K_i) = E Σ_{k≠m} w_km X_i[k, m] X_j[m, k],

so that the number of backward passes does not depend on the number of blocks. Where S = A A^T (cross-entropy, squared
error) A z_k alone are sent back, and X_l is the Gram matrix of A^T K_l A.

Where each example has one output position, a basis Q of the range of K_l comes first: Q is treated exactly, and only
(I − QQ^T)ω is random. Without it, blocks of low rank leave an error of 1/√q. Q spans where the weights move the
outputs: a random displacement r = Σ s_l r_l of the weights moves them by a sample of covariance Σ s_l² K_l, one
forward-mode pass each (Halko, Martinsson and Tropp, arXiv 0909.4061). With s_l = 1 / √tr(K_l) all blocks weigh alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.norms import Curvature, mean_of, pair_sums, rounding_of, two_stages
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, Sums, is_out_of_memory, sum_over
from hessdiag.data.seeds import gaussians, stream
from hessdiag.derivatives.backward import FunctionalModel, block_vjps, outputs_and_tangent
from hessdiag.derivatives.losses import sides_of, unit_cotangents
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import block_parameter
from hessdiag.network.trace import SENT_AT_ONCE, Trace
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.numbers import Array

BASIS = 8  # vectors: deep ReLU networks at initialisation have K_l of rank 1 to 3
SCALED_BY = 4  # examples with a direction each that tell tr(K_l)
FEWEST, MOST = 6, 24  # directions of an example, where nothing is asked for
SPREAD_OVER = 28.0  # over the root of the number of examples: directions that leave about 7 % in blocks of high rank
LEAST = 4  # directions that tell their own variance


def directions_for(examples: int) -> int:
    """Random directions of each example by default.

    >>> [directions_for(examples) for examples in (1, 2, 8, 64)]
    [24, 20, 10, 6]
    """
    return min(MOST, max(FEWEST, math.ceil(SPREAD_OVER / math.sqrt(examples))))


def sketch_per_example(
    problem: Problem, memory: MemoryBudget, *, rtol: float | None = None, max_products: int = 400, seed: int = 0,
) -> Curvature:  # fmt: skip
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks. `rtol` is the relative standard error of the weight blocks'
    diagonal, None for the default number of directions; `max_products` may be sent back in all, per example.
    """
    basis = None if problem.coupled else range_basis(problem, memory, seed)
    vectors = 0 if basis is None else len(basis)  # each by a pass forward and one back

    def measure(count: int, stage: str) -> tuple[Array, Array, int]:
        return *_measure(problem, memory, Directions(count, basis, f"{stage}sketch"), seed), 2 * vectors + count

    own = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    first = min(directions_for(problem.batch.size), max(LEAST, max_products - 2 * vectors))
    value, stderr, spent = two_stages(measure, first, least=LEAST, most=max_products, own=(own, own), rtol=rtol)
    random = f"{spent[-1] - 2 * vectors} random directions of each example"
    reason = f"a basis of {vectors} and {random}" if vectors else random
    return Curvature.sampled(value, stderr, sum(spent), rtol=rtol, reason=reason)


def _measure(problem: Problem, memory: MemoryBudget, directions: Directions, seed: int) -> tuple[Array, Array]:
    """All norms and their standard errors, in as many equal rounds as it takes for an example's directions to fit."""
    sides, fixed, shape = sides_of(problem.loss), directions.fixed, problem.shape
    together = shape.most_cotangents(memory.total)
    most = max(together, shape.most_in_pieces(memory.total))
    rounds = -(-directions.random // max(LEAST, most // sides - fixed))
    each = max(LEAST, -(-directions.random // rounds))
    cotangents = (each + fixed) * sides
    at_once = None if cotangents <= together else SENT_AT_ONCE
    found = []
    for number in range(rounds):
        some = replace(directions, random=each, name=f"{directions.name} {number + 1}")

        def sums(part: Batch, some: Directions = some) -> Sums:
            X = products_of(problem, part, some, seed, at_once).transpose(0, 1)
            return Sums({key: total.cpu().numpy() for key, total in pair_sums(X, fixed=fixed).items()})

        parts = list(problem.batch.chunks(shape.chunk(cotangents, memory=memory.chunk)))
        found.append(sum_over(parts, sums, step="sketches", gradients=cotangents))
    return mean_of(sum(found, Sums()), rounds * problem.batch.size, each, rounding_of(problem))


def products_of(
    problem: Problem, part: Batch, directions: Directions, seed: int, at_once: int | None = None, across: bool = False
) -> Tensor:
    """z_k^T K S z_m of all blocks, (L, B, m, m); z_k^T A^T K A z_m where the loss has a root. Those `across` examples
    are z_ik^T J_i J_j^T S z_jm of any two, (L, B, m, B, m).
    """
    seen = problem.trace(part)
    sent = directions.cotangents(problem, part, seen, seed)
    B, m = part.size, len(sent)
    shape = (len(problem.blocks), B, m, B, m) if across else (len(problem.blocks), B, m, m)
    grams = torch.zeros(shape, dtype=torch.float64, device=seen.y.device)
    jacobians = block_vjps(problem.model, part, problem.blocks, seen, sent, at_once=at_once)
    for gram, jacobian in zip(grams, jacobians, strict=True):
        if jacobian is not None:
            gram.copy_((jacobian.cross(jacobian) if across else jacobian.gram()).detach())
    return grams if problem.loss.has_root else grams[:, :, : m // 2, ..., m // 2 :]


def drawn_by_size(problem: Problem, count: int, memory: MemoryBudget, seed: int) -> tuple[list[int], Array]:
    """Draw examples, those with large blocks more often: their numbers, and what each counts in a mean. Sizes are
    tr(G)² from a few directions, relative to the mean over examples; half of the chances are alike for all.
    """
    directions = Directions(LEAST, name="sizes")
    parts = problem.batch.chunks(problem.shape.chunk(2 * LEAST, memory=memory.chunk))
    own = [products_of(problem, part, directions, seed).diagonal(dim1=2, dim2=3).sum(dim=2).square() for part in parts]
    sizes = torch.cat(own, dim=1)  # (L, B)
    shares = (0.5 + 0.5 * (sizes / sizes.mean(dim=1, keepdim=True)).nan_to_num().mean(dim=0)).cpu().numpy()
    shares *= len(shares) / shares.sum()
    ends, points = np.cumsum(shares) / len(shares), (np.arange(count) + 0.5) / count
    chosen = np.minimum(np.searchsorted(ends, points), len(shares) - 1)
    return chosen.tolist(), 1 / shares[chosen]


@dataclass(frozen=True)
class Directions:
    """How to draw output directions."""

    random: int  # how many random ones
    basis: Tensor | None = None  # orthonormal vectors (r, B, *out) for each example of the batch
    name: str = "sketch"  # tells the random streams of different rounds apart

    @property
    def fixed(self) -> int:
        """Vectors of the basis."""
        return 0 if self.basis is None else len(self.basis)

    def cotangents(self, problem: Problem, part: Batch, seen: Trace, seed: int) -> Tensor:
        """What is sent back for a part whose forward pass has been `seen`, the basis first."""
        y, loss, count = seen.y.detach(), problem.loss, self.random
        z = gaussians(seed, f"sketches, {self.name},", part.numbers, (count, *y.shape[1:])).to(y)
        if self.basis is not None:
            first = part.offset - problem.batch.offset
            basis = self.basis[:, first : first + part.size]
            along = torch.einsum("rbn,qbn->qrb", basis.flatten(2), z.flatten(2))
            z -= torch.einsum("qrb,rbn->qbn", along, basis.flatten(2)).view_as(z)
            z = torch.cat([basis, z])
        if loss.has_root:
            return loss.root_products(y, part.targets, z)
        return torch.cat([z, loss.hessian_products(y, part.targets, z)])


def range_basis(problem: Problem, memory: MemoryBudget, seed: int) -> Tensor | None:
    """Orthonormal vectors (r, B, *out); any that do not depend on the random directions leave no bias. None where each
    example has several output positions, as sequences have: their rank is high; and where the weights have no
    forward-mode derivative. Many examples at once: a pass forward holds nothing, and its overhead is large.
    """
    if not (scales := range_scales(problem, seed)):
        return None
    parts = list(problem.batch.chunks(problem.shape.chunk(1, memory=memory.total // 2)))
    if problem.shape.outputs <= BASIS:
        return torch.cat([unit_cotangents(part.call(problem.model).detach()) for part in parts], dim=1)
    announce("bases", BASIS * len(parts), gradients=BASIS)
    found = []
    for part in parts:
        samples = []
        try:
            for y, moved in weight_jvps(problem, part, scales, BASIS, seed):
                if problem.loss.has_root:
                    moved = problem.loss.root_transposed_product(y, part.targets, moved)
                samples.append(moved.flatten(1))
                advance("bases")
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            if is_out_of_memory(error):
                raise
            return None
        Q = torch.linalg.qr(torch.stack(samples, dim=2)).Q  # (B, N, r)
        found.append(Q.permute(2, 0, 1).reshape(Q.shape[2], *y.shape))
    return torch.cat(found, dim=1)


def range_scales(problem: Problem, seed: int) -> tuple[float, ...]:
    """s_l of all blocks; none where each example has several output positions."""
    squares = [0.0] * len(problem.blocks)
    for part in problem.batch.narrow(0, SCALED_BY).chunks(1):
        if (seen := problem.trace(part)).y.dim() > 2:
            return ()
        z = gaussians(seed, "scales of a basis", part.numbers, (1, *seen.y.shape[1:])).to(seen.y)
        if problem.loss.has_root:
            z = problem.loss.root_products(seen.y.detach(), part.targets, z)
        for number, jacobian in enumerate(block_vjps(problem.model, part, problem.blocks, seen, z)):
            if jacobian is not None:
                squares[number] += float(jacobian.gram())
    known = [square for square in squares if 0 < square < math.inf]
    return tuple(math.sqrt(min(known) / square) if square in known else 0.0 for square in squares) if known else ()


def weight_jvps(
    problem: Problem, part: Batch, scales: Sequence[float], count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs y and J r, (B, *out), for `count` random displacements r of the weights, which all parts share. That of a
    block is an outer product of two random vectors, which is quick to draw, times its s_l.
    """
    network = FunctionalModel(problem.model)
    moving = [(block, scale) for block, scale in zip(problem.blocks, scales, strict=True) if scale > 0]
    at = {block.name: block_parameter(problem.model, block).detach() for block, _ in moving}
    generator = stream(seed, "weight tangents")
    for _ in range(count):
        along = {}
        for block, scale in moving:
            first = block.shape[0] if block.shape else 1
            one, other = torch.randn(first, generator=generator), torch.randn(block.numel // first, generator=generator)
            value = at[block.name]
            along[block.name] = torch.outer(one.to(value) * scale, other.to(value)).view(value.shape)
        yield outputs_and_tangent(network, at, along, part, forward_mode=True)
