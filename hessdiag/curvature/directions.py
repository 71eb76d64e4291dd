"""Output directions of each example: random ones, and a deflation basis that is treated exactly.

The basis spans where the weights move the outputs. A random displacement r = Σ s_l r_l of the weights moves them by a
sample of covariance Σ s_l² K_l, one forward-mode pass each (N. Halko, P. G. Martinsson and J. A. Tropp, arXiv
0909.4061). With s_l = 1 / √tr(K_l) all blocks weigh alike.

Where a linear layer writes many classes at many positions, as of a language model, a Gaussian direction would take as
many random numbers, and a third of its backward pass would be this layer's: there directions are drawn classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget, is_out_of_memory
from hessdiag.data.seeds import gaussians, stream
from hessdiag.derivatives.backward import block_vjps, logits_call, trace_blocks, unit_cotangents
from hessdiag.derivatives.functional import FunctionalModel, outputs_and_tangent
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.sampled_softmax import SampledSoftmax
from hessdiag.network.blocks import block_parameter
from hessdiag.network.trace import Trace

BASIS = 8  # vectors: deep ReLU networks at initialisation have K_l of rank 1 to 3
SCALED_BY = 4  # examples with a direction each that tell tr(K_l)
MANY_CLASSES, MANY_POSITIONS = 1024, 16  # from which classes are drawn


@dataclass(frozen=True)
class Directions:
    """How to draw output directions.

    Attributes:
        random: how many random ones.
        basis: orthonormal vectors (r, B, *out) for each example of the batch.
        name: tells the random streams of different rounds apart.
    """

    random: int
    basis: Tensor | None = None
    name: str = "sketch"

    @property
    def fixed(self) -> int:
        """Vectors of the basis."""
        return 0 if self.basis is None else len(self.basis)

    def cotangents(self, problem: Problem, part: Batch, seen: Trace, seed: int) -> Tensor | SampledSoftmax:
        """What is sent back for a part whose forward pass has been `seen`, the basis first."""
        if self.basis is None:
            classes = draw_classes(problem, part, seen, count=self.random, seed=seed, name=self.name)
            if classes is not None:
                return classes
        y = seen.y.detach()
        z = gaussians(seed, f"sketches, {self.name},", part.numbers, (self.random, *y.shape[1:])).to(y)
        if self.basis is not None:
            first = part.offset - problem.batch.offset
            basis = self.basis[:, first : first + part.size]
            along = torch.einsum("rbn,qbn->qrb", basis.flatten(2), z.flatten(2))
            z -= torch.einsum("qrb,rbn->qbn", along, basis.flatten(2)).view_as(z)
            z = torch.cat([basis, z])
        if problem.loss.has_root:
            return problem.loss.root_products(y, part.targets, z)
        return torch.cat([z, problem.loss.hessian_products(y, part.targets, z)])


def range_basis(problem: Problem, memory: MemoryBudget, seed: int) -> Tensor | None:
    """Orthonormal vectors (r, B, *out); any that do not depend on the random directions leave no bias.

    None where each example has several output positions, as sequences have: their rank is high; and where the weights
    have no forward-mode derivative. Many examples at once: a pass forward holds nothing, and its overhead is large.
    """
    scales, found = range_scales(problem, seed), []
    for part in problem.batch.chunks(problem.shape.chunk(1, memory=memory.total // 2)) if scales else ():
        if problem.shape.outputs <= BASIS:
            found.append(unit_cotangents(part.call(problem.model).detach()))
            continue
        samples = []
        try:
            for y, moved in weight_jvps(problem, part, scales, BASIS, seed):
                root = problem.loss.has_root
                along = problem.loss.root_transposed_product(y, part.targets, moved) if root else moved
                samples.append(along.flatten(1))
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            if is_out_of_memory(error):
                raise
            return None
        Q = torch.linalg.qr(torch.stack(samples, dim=2)).Q  # (B, N, r)
        found.append(Q.permute(2, 0, 1).reshape(Q.shape[2], *y.shape))
    return torch.cat(found, dim=1) if found else None


def range_scales(problem: Problem, seed: int) -> tuple[float, ...]:
    """s_l of all blocks; none where each example has several output positions."""
    squares = [0.0] * len(problem.blocks)
    for part in problem.batch.narrow(0, SCALED_BY).chunks(1):
        seen = trace_blocks(problem.model, part, problem.blocks)
        if seen.y.dim() > 2:
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
    """Outputs y and J r, (B, *out), for `count` random displacements r of the weights, which all parts share.

    That of a block is an outer product of two random vectors, which is quick to draw, times its s_l.
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
        y, moved = outputs_and_tangent(network, at, along, part, forward_mode=True)
        yield y.detach(), moved.detach()


def may_draw_classes(problem: Problem) -> bool:
    """Whether sizes allow it: a layer writes many classes at many positions, and all blocks have a rule."""
    shape = problem.shape
    if shape.returned != shape.outputs or shape.positions < MANY_POSITIONS:
        return False
    if not isinstance(problem.loss, CrossEntropy) or shape.outputs // shape.positions < MANY_CLASSES:
        return False
    return all(block.structured and block.kind != "scalar" for block in problem.blocks)


def draw_classes(
    problem: Problem, part: Batch, seen: Trace, *, count: int, seed: int, name: str
) -> SampledSoftmax | None:
    """`count` cotangents φ with E φφᵀ = S; None where no linear layer writes the logits of one label a position."""
    y, loss = seen.y.detach(), problem.loss
    if not may_draw_classes(problem) or logits_call(problem.model, seen) is None:
        return None
    assert isinstance(loss, CrossEntropy)
    weights = loss.label_weights(y, part.targets) if loss.class_dim % y.dim() == y.dim() - 1 else None
    if weights is None:
        return None
    purpose = f"classes, {name},"
    return SampledSoftmax.draw(y, weights, count=count, seed=seed, name=purpose, examples=part.numbers)
