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
from hessdiag.data.memory import is_out_of_memory
from hessdiag.data.seeds import gaussians, stream
from hessdiag.derivatives.backward import block_vjps, logits_call, trace_blocks, unit_cotangents
from hessdiag.derivatives.functional import FunctionalModel, outputs_and_tangent
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.sampled_softmax import SampledSoftmax
from hessdiag.network.blocks import block_parameter
from hessdiag.network.trace import Trace

BASIS = 7  # vectors: deep ReLU networks at initialisation have K_l of rank 1 to 3
SCALED_BY = 4  # examples with a direction each that tell tr(K_l)
MANY_CLASSES, MANY_POSITIONS = 1024, 16  # from which classes are drawn


@dataclass(frozen=True)
class Directions:
    """How to draw output directions.

    Attributes:
        random: how many random ones.
        scales: s_l of the blocks, for a basis; without them there is none.
        name: tells the random streams of different rounds apart.
    """

    random: int
    scales: tuple[float, ...] = ()
    name: str = "sketch"

    def fixed(self, outputs: int) -> int:
        """Vectors of the basis, for so many outputs."""
        return min(BASIS, outputs) if self.scales else 0

    def cotangents(self, problem: Problem, part: Batch, seen: Trace, seed: int) -> Tensor | SampledSoftmax:
        """What is sent back for a part whose forward pass has been `seen`, the basis first."""
        if not self.scales:
            classes = draw_classes(problem, part, seen, count=self.random, seed=seed, name=self.name)
            if classes is not None:
                return classes
        y = seen.y.detach()
        z = gaussians(seed, f"sketches, {self.name},", part.numbers, (self.random, *y.shape[1:])).to(y)
        if self.scales:
            basis = self._basis(problem, part, y, seed)
            along = torch.einsum("rbn,qbn->qrb", basis.flatten(2), z.flatten(2))
            z -= torch.einsum("qrb,rbn->qbn", along, basis.flatten(2)).view_as(z)
            z = torch.cat([basis, z])
        return both_sides(problem, part, y, z)

    def _basis(self, problem: Problem, part: Batch, y: Tensor, seed: int) -> Tensor:
        """Orthonormal vectors (r, B, *out); any that do not depend on the random directions leave no bias."""
        count = math.prod(y.shape[1:])
        if count <= BASIS:
            return unit_cotangents(y)
        samples = weight_jvps(problem, part, self.scales, BASIS, seed)
        if problem.loss.has_root:
            samples = (problem.loss.root_transposed_product(y, part.targets, sample) for sample in samples)
        Q = torch.linalg.qr(torch.stack([sample.flatten(1) for sample in samples], dim=2)).Q  # (B, N, r)
        basis: Tensor = Q.permute(2, 0, 1).reshape(Q.shape[2], *y.shape)
        return basis


def both_sides(problem: Problem, part: Batch, y: Tensor, z: Tensor) -> Tensor:
    """The cotangents of directions z (q, B, *out): A z where the loss has a root, else z and S z."""
    if problem.loss.has_root:
        return problem.loss.root_products(y, part.targets, z)
    return torch.cat([z, problem.loss.hessian_products(y, part.targets, z)])


def range_scales(problem: Problem, seed: int) -> tuple[float, ...]:
    """s_l of all blocks; none where each example has several output positions, as sequences have: their rank is high.

    None either where the weights have no forward-mode derivative.
    """
    outputs = problem.shape.outputs
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
    scales = tuple(math.sqrt(min(known) / square) if square in known else 0.0 for square in squares)
    if outputs <= BASIS or not any(scales):
        return scales if outputs <= BASIS else ()
    try:
        list(weight_jvps(problem, problem.batch.narrow(0, 1), scales, 1, seed))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        return ()
    return scales


def weight_jvps(problem: Problem, part: Batch, scales: Sequence[float], count: int, seed: int) -> Iterator[Tensor]:
    """J r, (B, *out), for `count` random displacements r of the weights, which all parts share.

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
        yield outputs_and_tangent(network, at, along, part, forward_mode=True)[1].detach()


def may_draw_classes(problem: Problem) -> bool:
    """Whether `draw_classes` draws any, as far as the sizes of the network tell."""
    shape = problem.shape
    if shape.returned != shape.outputs or not shape.positions:
        return False
    return _may_draw(problem, positions=shape.positions, classes=shape.outputs // shape.positions)


def draw_classes(
    problem: Problem, part: Batch, seen: Trace, *, count: int, seed: int, name: str
) -> SampledSoftmax | None:
    """`count` cotangents φ with E φφᵀ = S; None where they are to be other ones.

    Drawn where all blocks have a rule, and a linear layer writes the logits of one label at every position.
    """
    y, loss = seen.y.detach(), problem.loss
    positions = y[:1, ..., 0].numel() if y.dim() > 2 else 0
    if not _may_draw(problem, positions=positions, classes=y.shape[-1]) or logits_call(problem.model, seen) is None:
        return None
    assert isinstance(loss, CrossEntropy)
    weights = loss.label_weights(y, part.targets) if loss.class_dim % y.dim() == y.dim() - 1 else None
    if weights is None or part.targets is None:
        return None
    purpose = f"classes, {name},"
    return SampledSoftmax.draw(y, weights, count=count, seed=seed, name=purpose, examples=part.numbers)


def _may_draw(problem: Problem, *, positions: int, classes: int) -> bool:
    if positions < MANY_POSITIONS or classes < MANY_CLASSES or not isinstance(problem.loss, CrossEntropy):
        return False
    return all(block.structured and block.kind != "scalar" for block in problem.blocks)
