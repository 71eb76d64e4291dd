"""An orthonormal basis of where the blocks move the outputs, from random displacements of their weights.

A displacement r = Σ s_l a_l b_l^T, of rank one in each layer with a_l, b_l ~ N(0, 1), moves the outputs by a sample of
covariance Σ s_l² K_l (N. Halko, P. G. Martinsson and J. A. Tropp, arXiv 0909.4061). What layer l writes moves by
s_l a_l (b_l·u_l), which takes no second product with a weight, and several displacements share a forward pass, so that
a sample costs about half a gradient of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hessdiag.curvature.displacements import Factors, displaced_calls, moved_outputs
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import unit_cotangents
from hessdiag.derivatives.functional import FunctionalModel, tangent
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import is_out_of_memory
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.trace import Trace


def range_basis(
    problem: Problem, part: Batch, seen: Trace, *, count: int, scales: Sequence[float], generator: torch.Generator
) -> Tensor:
    """Orthonormal vectors (count, B, *out) near the range of A^T K_l A, or of K_l where the loss has no root.

    Any directions leave estimates unbiased that are drawn without regard to those that come after; these make them
    precise.

    Args:
        problem: what to measure.
        part: B examples.
        seen: their forward pass.
        count: vectors of an example, at most as many as it has outputs.
        scales: s_l of every block; 0 for those that do without.
        generator: the same for all parts, so that a displacement is one of the weights.
    """
    y = seen.y.detach()
    if not count:
        return y.new_zeros(0, *y.shape)
    if count == math.prod(y.shape[1:]):
        return unit_cotangents(y)
    samples = []
    for sample in _samples(problem, part, seen, count, scales, generator):
        if problem.loss.has_root:
            sample = problem.loss.root_transposed_product(y, part.targets, sample)
        samples.append(sample.flatten(1))  # (B, N)
    Q = torch.linalg.qr(torch.stack(samples, dim=2)).Q  # (B, N, r)
    basis: Tensor = Q.permute(2, 0, 1).reshape(Q.shape[2], *y.shape)
    return basis


def _samples(
    problem: Problem, part: Batch, seen: Trace, count: int, scales: Sequence[float], generator: torch.Generator
) -> Iterator[Tensor]:
    """What the outputs (B, *out) move by, `count` times."""
    largest = max(scales, default=0.0) or 1.0  # only ratios matter, and these fit float32
    weighted = zip(problem.blocks, scales, strict=True)
    factors = {block.name: _factors(block, scale / largest, count, generator, like=seen.y) for block, scale in weighted}
    ruled = [block for block in problem.blocks if block.structured and block.kind != "scalar"]
    network = FunctionalModel(problem.model)
    moved = moved_outputs(network, part, seen.calls, displaced_calls(problem.model, seen, ruled, factors), count)
    others = [
        block
        for block, scale in zip(problem.blocks, scales, strict=True)
        if scale > 0 and (moved is None or block not in ruled)
    ]
    for number in range(count):
        sample = torch.zeros_like(seen.y) if moved is None else moved[number]
        if others:
            sample = sample + _by_tangent(network, part, others, factors, number)
        yield sample.detach()


def _factors(block: Block, scale: float, count: int, generator: torch.Generator, like: Tensor) -> Factors:
    """Rows of vectors whose outer products displace a block: along its first dimension, and 1 or along the others."""
    first = block.shape[0] if block.shape else 1
    others = block.numel // first
    one = torch.randn(count, first, generator=generator).to(like) * scale
    return one, (torch.randn(count, others, generator=generator) if others > 1 else torch.ones(count, 1)).to(like)


def _by_tangent(
    network: FunctionalModel, part: Batch, blocks: Sequence[Block], factors: Mapping[str, Factors], number: int
) -> Tensor:
    """What the outputs move by along a displacement of some blocks, by a pass with the weights' tangents.

    Nothing where an operation, such as that of an `EmbeddingBag`, has no such derivative: a basis does without.
    """
    at = {block.name: block_parameter(network.model, block).detach() for block in blocks}
    along = {}
    for name, value in at.items():
        one, other = factors[name]
        along[name] = torch.outer(one[number], other[number]).view(value.shape).to(value)
    try:
        return tangent(network, at, along, part, forward_mode=True)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        return next(iter(at.values())).new_zeros(())
