"""An orthonormal basis of where the blocks move the outputs, from random displacements of their weights.

A displacement r = Σ s_l a_l b_l^T, of rank one in each layer with a_l, b_l ~ N(0, 1), moves the outputs by a sample of
covariance Σ s_l² K_l (N. Halko, P. G. Martinsson and J. A. Tropp, arXiv 0909.4061). What layer l writes moves by
s_l a_l (b_l·u_l), which takes no second product with a weight, and several displacements share a forward pass, so that
a sample costs little more than a third of a gradient of the batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jvp, vmap

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward_pass import unit_cotangents
from hessdiag.derivatives.functional import FunctionalModel, tangent
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import is_out_of_memory
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.hooks import LayerCall, Trace
from hessdiag.network.layers import CONVOLUTIONS, looks_up, stores_inputs_first

TOGETHER = 4  # displacements that share a forward pass, and are in memory at once

Factors = tuple[Tensor, Tensor]
Displacement = Callable[[int], Tensor]


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
    moved = _moved_outputs(network, part, seen.calls, _displaced(problem.model, seen, ruled, factors), count)
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


def _displaced(
    model: nn.Module, seen: Trace, blocks: Sequence[Block], factors: Mapping[str, Factors]
) -> list[list[Displacement]]:
    """For each call what it writes more, by the number of the displacement."""
    owned: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        for owner in block.owners:
            owned[owner].append(block)
    return [
        [_moved(model.get_submodule(call.owner), block, call, *factors[block.name]) for block in owned[call.owner]]
        for call in seen.calls
    ]


def _moved(module: nn.Module, block: Block, call: LayerCall, one: Tensor, other: Tensor) -> Displacement:
    """What a call writes more where its weight moves by the outer product of two rows, or its bias by the first."""
    if looks_up(module):
        return lambda k: one[k][call.x].unsqueeze(-1) * other[k]
    if not isinstance(module, CONVOLUTIONS):
        if block.kind == "bias":
            return lambda k: one[k]
        writes, reads = (other, one) if stores_inputs_first(module) else (one, other)
        read = call.x @ reads.T  # (..., count)
        return lambda k: read[..., k, None] * writes[k]
    columns = one.view(len(one), -1, *[1] * len(module.kernel_size))
    if block.kind == "bias":
        return lambda k: columns[k]
    if module.groups > 1:
        return lambda k: module._conv_forward(call.x, torch.outer(one[k], other[k]).view(block.shape), None)
    sites = module._conv_forward(call.x, other.view(len(other), *block.shape[1:]), None)  # (R, count, *sites)
    return lambda k: columns[k] * sites[:, k : k + 1]


def _moved_outputs(
    network: FunctionalModel,
    part: Batch,
    calls: Sequence[LayerCall],
    displaced: Sequence[Sequence[Displacement]],
    count: int,
) -> list[Tensor] | None:
    """What the outputs move by where what the calls write does, in forward mode; None where the model has none.

    Several displacements share a forward pass.
    """
    moving = _Moving(network, calls)
    found: list[Tensor] = []
    try:
        for start in range(0, count, TOGETHER):
            together = range(start, min(start + TOGETHER, count))
            rows = [_stacked(call, each, together) for call, each in zip(calls, displaced, strict=True)]
            found.extend(moving.along(part, rows))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # something that has no such derivative
        if is_out_of_memory(error):
            raise
        return None
    return found


def _stacked(call: LayerCall, displaced: Sequence[Displacement], together: range) -> Tensor:
    """(displacements, *output shape) of a call."""
    zero = call.x.new_zeros(()).expand(call.output_shape)
    return torch.stack([reduce(torch.add, (moved(k) for moved in displaced), zero) for k in together])


@dataclass(frozen=True)
class _Moving:
    """A model whose watched layers write more than they do by themselves."""

    network: FunctionalModel
    calls: Sequence[LayerCall]

    def along(self, part: Batch, rows: Sequence[Tensor]) -> Iterator[Tensor]:
        """The derivative of the outputs, (B, *out), along each of the displacements (K, *output shape) of the calls."""
        primals = tuple(torch.zeros_like(row[0]) for row in rows)

        def outputs(*more: Tensor) -> Tensor:
            with self._writing(more):
                return self.network({}, part)

        def derivative(*tangents: Tensor) -> Tensor:
            moved: Tensor = jvp(outputs, primals, tangents)[1]
            return moved

        with torch.no_grad():
            yield from vmap(derivative, randomness="same")(*rows)

    @contextmanager
    def _writing(self, more: Sequence[Tensor]) -> Iterator[None]:
        left = iter(zip(self.calls, more, strict=True))

        def hook(owner: str, output: Any) -> Any:
            call, extra = next(left, (None, None))
            if call is None or extra is None or call.owner != owner:
                raise RuntimeError(f"{owner!r} is called out of turn")
            return output + extra

        handles = [
            self.network.model.get_submodule(owner).register_forward_hook(lambda _, __, y, owner=owner: hook(owner, y))
            for owner in dict.fromkeys(call.owner for call in self.calls)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


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
