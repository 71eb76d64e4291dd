"""Jacobians of all blocks from passes back through a network, with the layers watched that have a structural rule."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.data.batch import Batch
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.jacobian import block_jacobian, jacobians_of
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.summed import concatenate, concatenate_all
from hessdiag.network.blocks import Block, block_parameter, looked_up_in_common, owners_of, parameter_at
from hessdiag.network.hooks import LayerCall, Pieces, Trace, trace, writes_outputs
from hessdiag.network.layers import CONVOLUTIONS
from hessdiag.network.segments import gradients_by_segment

CONVOLVED = 2**20  # elements of an example that convolutions write, from which cotangents are sent back one by one
Numbered = tuple[int, Jacobian | None]
MAX_APART = 2  # examples that are sent back one by one where a block has no rule


def all_jacobians(
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    cotangents_of: Callable[[Tensor], Tensor],
) -> Iterator[Numbered]:
    """For each block, cotangent^T ∂y/∂W for C cotangents of every example; None where y does not depend on W.

    Layers with a structural rule share one watched forward pass and C backward passes to all of them; other blocks go
    through `functional_jacobians`, scalars through one forward-mode pass each.

    Args:
        model: the model.
        part: B examples.
        blocks: the blocks.
        cotangents_of: makes the cotangents (C, B, *out) from the outputs (B, *out).

    Returns:
        With each the block's number, those first that are at hand first.
    """
    seen = watch(model, part, blocks)
    yield from sent_to_blocks(model, part, blocks, seen, cotangents_of(seen.y.detach()))


def watch(model: nn.Module, part: Batch, blocks: Sequence[Block]) -> Trace:
    """One forward pass with the layers watched that have a structural rule."""
    structured = [block for block in blocks if block.structured]
    return trace(model, part, owners_of(structured), in_common=looked_up_in_common(structured))


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
    rest = {number: block for number, block in enumerate(blocks) if _is_its_own(block)}
    if _convolves_much(model, seen, part.size):
        pieces = Pieces(1)
    if rest and 1 < part.size <= MAX_APART:
        yield from _one_by_one(model, part, blocks, cotangents, pieces)
        return
    arriving = dict(enumerate(blocks))
    if rest and part.size > 1:
        assert isinstance(cotangents, Tensor)
        yield from zip(rest, jacobians_of(model, part, [*rest.values()], (), (), cotangents), strict=True)
        arriving = {number: block for number, block in arriving.items() if number not in rest}
    yield from _as_they_arrive(model, part, arriving, seen, cotangents, pieces)


def _is_its_own(block: Block) -> bool:
    """Whether a block is measured by gradients in the parameter itself."""
    return not block.structured and block.kind != "scalar"


def _as_they_arrive(
    model: nn.Module,
    part: Batch,
    blocks: Mapping[int, Block],
    seen: Trace,
    cotangents: Tensor | DrawnClasses,
    pieces: Pieces | None,
) -> Iterator[Numbered]:
    """As `sent_to_blocks`, each block once the way back has come by all calls of its layers, or by its parameter."""
    start, sent, calls = _start(model, seen, cotangents)
    leaves = [number for number, block in blocks.items() if _is_its_own(block)]
    parameters = [get_gradient_edge(block_parameter(model, blocks[number])) for number in leaves]
    edges = dict(enumerate([*(call.output_edge for call in calls), *parameters]))
    sizes = {place: len(sent) * call.output_shape.numel() for place, call in enumerate(calls)}
    known: dict[int, Tensor | DrawnClasses | None] = {}
    if isinstance(cotangents, DrawnClasses):
        known[len(calls) - 1] = cotangents
    waiting = {number: _places(block, calls) for number, block in blocks.items()}
    waiting |= {number: {place} for place, number in enumerate(leaves, start=len(calls))}
    asked = {place: edge for place, edge in edges.items() if place not in known}
    for found in gradients_by_segment(start, asked, sizes, sent, pieces=pieces):
        known |= found
        for number in [number for number, places in waiting.items() if places <= known.keys()]:
            there = {place: known[place] for place in sorted(waiting.pop(number))}
            yield number, _jacobian(model, part, blocks[number], calls, there, cotangents)
            there.clear()
        read = set[int]().union(*waiting.values())
        known = {place: None if place not in read else _held(known[place], place in found) for place in known}
        found.clear()


def _places(block: Block, calls: Sequence[LayerCall]) -> set[int]:
    """Numbers of the calls of a block's layers; a scalar is measured without."""
    return {place for place, call in enumerate(calls) if block.kind != "scalar" and call.owner in block.owners}


def _jacobian(
    model: nn.Module,
    part: Batch,
    block: Block,
    calls: Sequence[LayerCall],
    found: Mapping[int, Tensor | DrawnClasses | None],
    cotangents: Tensor | DrawnClasses,
) -> Jacobian | None:
    """Of one block, from what was found at calls of its layers, or at its parameter."""
    if block.structured and block.kind != "scalar":
        return block_jacobian(model, block, [calls[place] for place in found], [*found.values()], examples=part.size)
    assert isinstance(cotangents, Tensor)
    (gradient,) = found.values() or [None]
    assert not isinstance(gradient, DrawnClasses)
    return next(jacobians_of(model, part, [block], (), (), cotangents, {block.name: gradient}))


def _held(phi: Tensor | DrawnClasses | None, new: bool) -> Tensor | DrawnClasses | None:
    """What is still needed in later stretches, in memory of its own."""
    return phi.clone() if new and isinstance(phi, Tensor) else phi


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
    model: nn.Module,
    part: Batch,
    blocks: Sequence[Block],
    cotangents: Tensor | DrawnClasses,
    pieces: Pieces | None,
) -> Iterator[Numbered]:
    """As `all_jacobians`, from a pass of each example's own."""
    assert isinstance(cotangents, Tensor)
    examples = list(part.chunks(1))
    rows = [cotangents[:, number : number + 1] for number in range(part.size)]
    each = [
        sent_to_blocks(model, one, blocks, watch(model, one, blocks), row, pieces=_own(pieces))
        for one, row in zip(examples, rows, strict=True)
    ]
    waiting: dict[int, dict[int, Jacobian | None]] = defaultdict(dict)
    for found in zip(*each, strict=True):
        for example, (number, jacobian) in enumerate(found):
            waiting[number][example] = jacobian
        for number in [number for number, one in waiting.items() if len(one) == part.size]:
            one = waiting.pop(number)
            yield number, concatenate_all([one[example] for example in range(part.size)])
        for example, (number, jacobian) in enumerate(found):  # another example takes another path
            if number in waiting:
                waiting[number][example] = None if jacobian is None else concatenate([jacobian])


def _own(pieces: Pieces | None) -> Pieces | None:
    """The same with memory of its own."""
    return pieces if pieces is None or pieces.kept is None else Pieces(pieces.at_once, {})


def unit_cotangents(y: Tensor) -> Tensor:
    """The N basis vectors of an example's outputs for every example, (N, B, *out)."""
    count = math.prod(y.shape[1:])
    basis = torch.eye(count, dtype=y.dtype, device=y.device).view(count, 1, *y.shape[1:])
    return basis.expand(count, *y.shape)
