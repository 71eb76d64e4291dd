"""Jacobians of all blocks from passes back through a network, with the layers watched that have a structural rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.jacobian import block_jacobian, jacobians_of
from hessdiag.derivatives.jacobian_form import Dense, Jacobian
from hessdiag.derivatives.summed import concatenate_all
from hessdiag.network.blocks import Block, block_parameter, looked_up_in_common, owners_of, parameter_at
from hessdiag.network.hooks import LayerCall, Pieces, Trace, backpropagate, trace, writes_outputs
from hessdiag.network.layers import CONVOLUTIONS
from hessdiag.network.moved_norms import MovedNorms

CONVOLVED = 2**20  # elements of an example that convolutions write, from which cotangents are sent back one by one
MAX_APART = 2  # examples that are sent back one by one where a block has no rule


def all_jacobians(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    cotangents_of: Callable[[Tensor], Tensor],
    *,
    norms: MovedNorms | None = None,
) -> Iterator[Jacobian | None]:
    """For each block in turn, cotangent^T ∂y/∂W for C cotangents of every example; None where y does not depend on W.

    Layers with a structural rule share one watched forward pass and C backward passes to all of them; other blocks go
    through `functional_jacobians`, scalars through one forward-mode pass each.

    Args:
        model: the model.
        part: B examples.
        blocks: the blocks.
        cotangents_of: makes the cotangents (C, B, *out) from the outputs (B, *out).
        norms: where normalisations are moved, last comes cotangent^T ∂y/∂ε of the steps ε that they take together.
    """
    seen = watch(model, part, blocks, norms=norms)
    yield from sent_to_blocks(model, part, blocks, seen, cotangents_of(seen.y.detach()))


def watch(model: nn.Module, part: Batch, blocks: Sequence[Block], *, norms: MovedNorms | None = None) -> Trace:
    """One forward pass with the layers watched that have a structural rule, and perhaps normalisations moved."""
    structured = [block for block in blocks if block.structured]
    return trace(model, part, owners_of(structured), in_common=looked_up_in_common(structured), norms=norms)


def sent_to_blocks(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    seen: Trace,
    cotangents: Tensor | DrawnClasses,
    *,
    pieces: Pieces | None = None,
) -> Iterator[Jacobian | None]:
    """As `all_jacobians`, of cotangents (C, B, *out) and a forward pass that are at hand, in `pieces` or at once.

    Blocks without a rule share the backward passes of a single example, where a parameter's gradient is one's Jacobian.
    Of drawn classes there must be none of these, and a `logits_call`.
    """
    if isinstance(cotangents, DrawnClasses):
        yield from _drawn_to_blocks(model, part, blocks, seen, cotangents, pieces=pieces)
        return
    others = [block for block in blocks if not block.structured and block.kind != "scalar"]
    if others and 1 < part.size <= MAX_APART:
        yield from _one_by_one(model, part, blocks, cotangents, seen.norms)
        return
    shared = others if part.size == 1 else []
    edges = [call.output_edge for call in seen.calls]
    if _convolves_much(model, seen, part.size):
        pieces = Pieces(1)
    leaves: list[Tensor] = [block_parameter(model, block) for block in shared]
    leaves += [] if seen.steps is None else [seen.steps]
    every = backpropagate(seen.y, [*edges, *map(get_gradient_edge, leaves)], cotangents, pieces=pieces)
    own = dict(zip([block.name for block in shared], every[len(edges) :], strict=False))
    yield from jacobians_of(model, part, blocks, seen.calls, every[: len(edges)], cotangents, own)
    if seen.steps is not None:
        along = every[-1]
        yield None if along is None else Dense(along.transpose(0, 1))


def logits_call(model: nn.Module, seen: Trace) -> LayerCall | None:
    """The one call of a linear layer that writes the outputs, if there is one."""
    writing = [call for call in seen.calls if writes_outputs(seen.y, call.output_edge)]
    if len(writing) != 1 or type(model.get_submodule(writing[0].owner)) is not nn.Linear:
        return None
    return writing[0]


def _drawn_to_blocks(
    model: nn.Module, part: Batch, blocks: Sequence[Block], seen: Trace, drawn: DrawnClasses, *, pieces: Pieces | None
) -> Iterator[Jacobian | None]:
    """As `sent_to_blocks`, from what the layer reads that writes the logits."""
    head = logits_call(model, seen)
    if head is None or head.input_edge is None:
        raise RuntimeError("no layer writes the logits")
    weight = parameter_at(model.get_submodule(head.owner), "weight")
    others = [call for call in seen.calls if call is not head]
    edges = [call.output_edge for call in others]
    leaves = [] if seen.steps is None else [get_gradient_edge(seen.steps)]
    sent = drawn.through(weight.detach()).view(len(drawn), *head.x.shape)
    every = backpropagate(head.input_edge, [*edges, *leaves], sent, pieces=pieces)
    phis = [*every[: len(edges)], drawn]
    for block in blocks:
        yield block_jacobian(model, block, [*others, head], phis, examples=part.size)
    if leaves:
        yield None if every[-1] is None else Dense(every[-1].transpose(0, 1))


def _convolves_much(model: nn.Module, seen: Trace, examples: int) -> bool:
    """Whether several cotangents at once are slower: PyTorch loops over them for a convolution, and copies them."""
    calls = [call for call in seen.calls if isinstance(model.get_submodule(call.owner), CONVOLUTIONS)]
    return sum(call.output_shape.numel() for call in calls) >= CONVOLVED * examples


def _one_by_one(
    model: nn.Module, part: Batch, blocks: Sequence[Block], cotangents: Tensor, norms: MovedNorms | None
) -> Iterator[Jacobian | None]:
    """As `all_jacobians`, from a pass of each example's own."""
    examples = list(part.chunks(1))
    rows = [cotangents[:, number : number + 1] for number in range(part.size)]
    each = [
        sent_to_blocks(model, one, blocks, watch(model, one, blocks, norms=norms), row)
        for one, row in zip(examples, rows, strict=True)
    ]
    yield from map(concatenate_all, zip(*each, strict=True))


def unit_cotangents(y: Tensor) -> Tensor:
    """The N basis vectors of an example's outputs for every example, (N, B, *out)."""
    count = math.prod(y.shape[1:])
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:])
    return basis.expand(count, *y.shape)
