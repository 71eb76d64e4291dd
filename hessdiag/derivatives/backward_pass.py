"""Jacobians of all blocks from passes back through a network, with the layers watched that have a structural rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.jacobian import block_jacobian, jacobians_of
from hessdiag.derivatives.jacobian_form import Dense, Jacobian
from hessdiag.derivatives.summed import concatenate_all
from hessdiag.network.blocks import Block, block_parameter, looked_up_in_common, owners_of, parameter_at
from hessdiag.network.hooks import LayerCall, Pieces, Trace, backpropagate, trace, writes_outputs
from hessdiag.network.layers import CONVOLUTIONS
from hessdiag.network.moved_norms import MovedNorms
from hessdiag.network.segments import gradients_by_segment

CONVOLVED = 2**20  # elements of an example that convolutions write, from which cotangents are sent back one by one
Numbered = tuple[int, Jacobian | None]  # of the blocks, and last of the steps of normalisations
MAX_APART = 2  # examples that are sent back one by one where a block has no rule


def all_jacobians(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    cotangents_of: Callable[[Tensor], Tensor],
    *,
    norms: MovedNorms | None = None,
) -> Iterator[Numbered]:
    """For each block, cotangent^T ∂y/∂W for C cotangents of every example; None where y does not depend on W.

    Layers with a structural rule share one watched forward pass and C backward passes to all of them; other blocks go
    through `functional_jacobians`, scalars through one forward-mode pass each.

    Args:
        model: the model.
        part: B examples.
        blocks: the blocks.
        cotangents_of: makes the cotangents (C, B, *out) from the outputs (B, *out).
        norms: where normalisations are moved, last comes cotangent^T ∂y/∂ε of the steps ε that they take together.

    Returns:
        With each the block's number, those first that are at hand first.
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
) -> Iterator[Numbered]:
    """As `all_jacobians`, of cotangents (C, B, *out) and a forward pass that are at hand, in `pieces` or at once.

    In pieces, the network is gone through in `hessdiag.network.segments`: what was yielded is no longer to be used when
    the next one is asked for. Blocks without a rule share the backward passes of a single example, where a parameter's
    gradient is one's Jacobian. Of drawn classes there must be none of these, and a `logits_call`.
    """
    others = [block for block in blocks if not block.structured and block.kind != "scalar"]
    if isinstance(cotangents, DrawnClasses):
        yield from _in_segments(model, part, blocks, seen, cotangents, pieces=pieces)
        return
    if others and 1 < part.size <= MAX_APART:
        yield from _one_by_one(model, part, blocks, cotangents, seen.norms)
        return
    if _convolves_much(model, seen, part.size):
        pieces = Pieces(1)
    if pieces is not None and not others:
        yield from _in_segments(model, part, blocks, seen, cotangents, pieces=pieces)
        return
    shared = others if part.size == 1 else []
    edges = [call.output_edge for call in seen.calls]
    leaves: list[Tensor] = [block_parameter(model, block) for block in shared]
    leaves += [] if seen.steps is None else [seen.steps]
    every = backpropagate(seen.y, [*edges, *map(get_gradient_edge, leaves)], cotangents, pieces=pieces)
    own = dict(zip([block.name for block in shared], every[len(edges) :], strict=False))
    yield from enumerate(jacobians_of(model, part, blocks, seen.calls, every[: len(edges)], cotangents, own))
    if seen.steps is not None:
        yield len(blocks), _of_steps(every[-1])


def _in_segments(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    seen: Trace,
    cotangents: Tensor | DrawnClasses,
    *,
    pieces: Pieces | None,
) -> Iterator[Numbered]:
    """As `sent_to_blocks`, each block once the way back has come by all calls of its layers."""
    start, sent, calls = _start(model, seen, cotangents)
    known: dict[int, Tensor | DrawnClasses | None] = {}
    if isinstance(cotangents, DrawnClasses):
        known[len(calls) - 1] = cotangents
    edges = [call.output_edge for call in calls[: len(calls) - len(known)]]
    sizes = [len(sent) * call.output_shape.numel() for call in calls]
    arriving = gradients_by_segment(start, [*edges, *seen.steps_taken], sizes, sent, pieces=pieces)
    waiting = {number: _places(block, calls) for number, block in enumerate(blocks)}
    of_steps: list[Tensor] = []
    for found in arriving:
        along = [found.pop(place) for place in sorted(found) if place >= len(edges)]
        of_steps += [one.clone() for one in along if one is not None]
        known.update(found)
        for number in [number for number, places in waiting.items() if places <= known.keys()]:
            there = sorted(waiting.pop(number))
            phis = [known[place] for place in there]
            yield number, _jacobian(model, blocks[number], part, [calls[place] for place in there], phis, cotangents)
            del phis
        read = frozenset[int]().union(*waiting.values())
        known = {place: _held(phi) if place in found else phi for place, phi in known.items() if place in read} | (
            dict.fromkeys(known.keys() - read)
        )
        found.clear()
    if seen.steps is not None:
        yield len(blocks), _of_steps(sum(of_steps[1:], start=of_steps[0]) if of_steps else None)


def _start(
    model: nn.Module, seen: Trace, cotangents: Tensor | DrawnClasses
) -> tuple[Tensor | GradientEdge, Tensor, list[LayerCall]]:
    """Where cotangents are sent back from, what they are there, and the calls, with one last that is left out.

    Drawn classes start from what the layer reads that writes the logits.
    """
    if not isinstance(cotangents, DrawnClasses):
        return seen.y, cotangents, [*seen.calls]
    head = logits_call(model, seen)
    if head is None or head.input_edge is None:
        raise RuntimeError("no layer writes the logits")
    weight = parameter_at(model.get_submodule(head.owner), "weight").detach()
    sent = cotangents.through(weight).view(len(cotangents), *head.x.shape)
    return head.input_edge, sent, [*(call for call in seen.calls if call is not head), head]


def _places(block: Block, calls: Sequence[LayerCall]) -> frozenset[int]:
    """Numbers of the calls of a block's layers."""
    return frozenset(place for place, call in enumerate(calls) if call.owner in block.owners)


def _jacobian(
    model: nn.Module,
    block: Block,
    part: Batch,
    calls: Sequence[LayerCall],
    phis: Sequence[Tensor | DrawnClasses | None],
    cotangents: Tensor | DrawnClasses,
) -> Jacobian | None:
    """Of a block with a rule, or a scalar."""
    if block.kind == "scalar":
        assert isinstance(cotangents, Tensor)
        return next(jacobians_of(model, part, [block], (), (), cotangents))
    return block_jacobian(model, block, calls, phis, examples=part.size)


def _held(phi: Tensor | DrawnClasses | None) -> Tensor | DrawnClasses | None:
    """The same in memory of its own."""
    return phi.clone() if isinstance(phi, Tensor) else phi


def _of_steps(along: Tensor | None) -> Jacobian | None:
    """Of the steps of normalisations, from gradients (C, B, O) in them."""
    return None if along is None else Dense(along.transpose(0, 1))


def logits_call(model: nn.Module, seen: Trace) -> LayerCall | None:
    """The one call of a linear layer that writes the outputs, if there is one."""
    writing = [call for call in seen.calls if writes_outputs(seen.y, call.output_edge)]
    if len(writing) != 1 or type(model.get_submodule(writing[0].owner)) is not nn.Linear:
        return None
    return writing[0]


def _convolves_much(model: nn.Module, seen: Trace, examples: int) -> bool:
    """Whether several cotangents at once are slower: PyTorch loops over them for a convolution, and copies them."""
    calls = [call for call in seen.calls if isinstance(model.get_submodule(call.owner), CONVOLUTIONS)]
    return sum(call.output_shape.numel() for call in calls) >= CONVOLVED * examples


def _one_by_one(
    model: nn.Module, part: Batch, blocks: Sequence[Block], cotangents: Tensor, norms: MovedNorms | None
) -> Iterator[Numbered]:
    """As `all_jacobians`, from a pass of each example's own."""
    examples = list(part.chunks(1))
    rows = [cotangents[:, number : number + 1] for number in range(part.size)]
    each = [
        sent_to_blocks(model, one, blocks, watch(model, one, blocks, norms=norms), row)
        for one, row in zip(examples, rows, strict=True)
    ]
    for found in zip(*each, strict=True):
        yield found[0][0], concatenate_all([jacobian for _, jacobian in found])


def unit_cotangents(y: Tensor) -> Tensor:
    """The N basis vectors of an example's outputs for every example, (N, B, *out)."""
    count = math.prod(y.shape[1:])
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:])
    return basis.expand(count, *y.shape)
