"""A dry run: outputs of one or two examples, and what each layer reads and writes per example, in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.data.outputs import Outputs
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import CONVOLUTIONS, Block, is_linear, looked_up_in_common, owners_of
from hessdiag.network.trace import LayerCall, Trace, trace, writes_outputs

SENT_AT_ONCE = 4  # cotangents at a time where all do not fit into memory together


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer per example.

    Attributes:
        inputs, outputs: elements that it reads and writes.
        sites_in, sites: positions at which it reads and writes.
        channels_in: input channels.
        patches: elements of its unfolded input.
        forward_macs: multiply-adds of its forward pass.
    """

    inputs: int
    outputs: int
    sites_in: int
    sites: int
    patches: int
    forward_macs: int
    channels_in: int

    def __add__(self, other: LayerShape) -> LayerShape:
        """Both calls of a layer that is called twice."""
        summed = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        return LayerShape(**summed | {"channels_in": self.channels_in})

    @classmethod
    def of(cls, module: nn.Module, call: LayerCall, examples: int) -> LayerShape:
        """Of one call on some examples."""
        reads, writes = call.x.numel() // examples, math.prod(call.output_shape) // examples
        c_in, c_out = _channels(module, call.x.shape), _channels(module, call.output_shape)
        patch, groups = c_in if is_linear(module) else 1, 1
        if isinstance(module, CONVOLUTIONS):
            patch, groups = module.in_channels * math.prod(module.kernel_size), module.groups
        sites = writes // max(c_out, 1)
        return cls(reads, writes, reads // max(c_in, 1), sites, patch * sites, writes * patch // groups, c_in)


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of a network.

    Attributes:
        layers: by path.
        outputs: N, per example.
        element_size: bytes of one number.
        order: all owners of blocks, in execution order.
        dense: entries of the blocks whose Jacobians are formed whole.
        looked_up: elements that embeddings write, per example.
        unread: names of the blocks that were taken to have a rule, but that an embedding reads in some other way than
            row by row of an example.
        in_common: paths of embeddings that look (T,) rows up for all examples together.
        returned: outputs that a layer itself writes, not what is computed of that.
        positions: at which it does.
        parameters: bytes of all of them.
    """

    layers: dict[str, LayerShape]
    outputs: int
    element_size: int
    order: tuple[str, ...]
    dense: int = 0
    looked_up: int = 0
    unread: frozenset[str] = frozenset()
    in_common: frozenset[str] = frozenset()
    returned: int = 0
    parameters: int = 0
    positions: int = 0

    def bytes_per_example(self, cotangents: int) -> int:
        """Memory of one example when `cotangents` are back-propagated at once to every layer."""
        layers = sum(layer.inputs + layer.patches for layer in self.layers.values())
        return self.element_size * (layers + (2 * cotangents + 2) * self.written + cotangents * self.dense)

    @property
    def written(self) -> int:
        """Elements that layers write, and the network: where gradients arrive."""
        return sum(layer.outputs for layer in self.layers.values()) + self.looked_up + self.outputs

    def most_cotangents(self, memory: int) -> int:
        """Cotangents of one example that can be back-propagated at once in `memory` bytes."""
        more = self.bytes_per_example(1) - self.bytes_per_example(0)
        return max(0, memory * 3 // 4 - self.bytes_per_example(0)) // max(more, 1)  # the rest is for what is passing

    def most_in_pieces(self, memory: int, *, drawn: bool = False) -> int:
        """Cotangents of one example that can be sent back `SENT_AT_ONCE` at a time.

        Where they are `drawn`, those in the outputs are not held.
        """
        room = memory * 7 // 8 - self.bytes_per_example(SENT_AT_ONCE)
        held = self.written - self.returned + self.dense - drawn * self.outputs
        return max(0, room) // max(self.element_size * held, 1)

    def as_read(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """The blocks in execution order, those never called last, with what is known now of how they are read."""
        unread = [replace(block, structured=False) if block.name in self.unread else block for block in blocks]
        known = [replace(block, in_common=tuple(self.in_common & {*block.owners})) for block in unread]
        place = {owner: number for number, owner in enumerate(self.order)}
        return tuple(sorted(known, key=lambda block: min(place.get(owner, len(place)) for owner in block.owners)))

    def chunk(self, cotangents: int, *, memory: int) -> int:
        """Examples that fit into `memory` bytes at once, at least 1."""
        return max(1, memory // max(self.bytes_per_example(cotangents), 1))


@dataclass(frozen=True)
class DryRun:
    """What one run of a few examples shows.

    Attributes:
        outputs: of these examples, outside of any graph.
        shape: sizes of the network and of its layers, in execution order.
    """

    outputs: Outputs
    shape: NetworkShape


def measure_shapes(model: nn.Module, batch: Batch, blocks: Sequence[Block]) -> NetworkShape:
    """Run two examples forward and note what every layer reads and writes."""
    return run_dry(model, batch.narrow(0, 2), blocks).shape  # batch normalisation in training mode refuses one


def run_dry(model: nn.Module, few: Batch, blocks: Sequence[Block]) -> DryRun:
    """Run examples forward, once where no embedding asks for more, and note what every layer reads and writes."""
    order: list[str] = []
    returned: list[Any] = []  # the last one is that of the whole model, where it calls itself
    with ExitStack() as hooks:
        for owner in owners_of(blocks):
            layer = model.get_submodule(owner)
            hooks.enter_context(layer.register_forward_pre_hook(lambda *_, owner=owner: order.append(owner)))
        hooks.enter_context(model.register_forward_hook(lambda module, args, output: returned.append(output)))
        seen, unread, in_common = _trace(model, few, blocks)
    if torch.is_grad_enabled() and not seen.y.requires_grad and any(p.requires_grad for p in model.parameters()):
        why = "forward runs under torch.no_grad(), or detaches them; measure the model without that"
        raise HessdiagError(f"the outputs have no gradient: {why}")
    layers: dict[str, LayerShape] = {}
    for call in seen.calls:
        if call.input_edge is not None:
            new = LayerShape.of(model.get_submodule(call.owner), call, few.size)
            layers[call.owner] = layers[call.owner] + new if call.owner in layers else new
    writing = [call.output_shape for call in seen.calls if writes_outputs(seen.y, call.output_edge)]
    shape = NetworkShape(
        layers,
        outputs=math.prod(seen.y.shape[1:]),
        element_size=seen.y.element_size(),
        order=tuple(dict.fromkeys(order)),
        dense=sum(block.numel for block in blocks if not block.structured or block.name in unread),
        looked_up=sum(math.prod(call.output_shape) // few.size for call in seen.calls if call.input_edge is None),
        unread=unread,
        in_common=in_common,
        returned=sum(math.prod(shape) // few.size for shape in writing),
        positions=sum(math.prod(shape[:-1]) // few.size for shape in writing),
        parameters=sum(parameter.nbytes for parameter in model.parameters()),
    )
    outputs = few.read(returned[-1])
    return DryRun(replace(outputs, y=outputs.y.detach()), shape)


def _trace(model: nn.Module, few: Batch, blocks: Sequence[Block]) -> tuple[Trace, frozenset[str], frozenset[str]]:
    """A traced pass of a few examples, and how embeddings are read: `unread` and `in_common` of `NetworkShape`.

    What an embedding writes for all examples together is written for each of them as long as it is traced. A model that
    cannot take that is traced without embeddings.
    """
    ruled = [block for block in blocks if block.structured]
    lookups = [block for block in ruled if block.looked_up]
    others = owners_of(block for block in ruled if not block.looked_up)
    if not lookups:
        return trace(model, few, others), frozenset(), frozenset()
    in_common = looked_up_in_common(lookups)
    for _ in range(2):
        try:
            seen = trace(model, few, owners_of(ruled), in_common=in_common)
        except Exception:
            break
        strange = [call for call in seen.calls if call.input_edge is None and len(call.x) != few.size]
        rows = {call.owner for call in strange if call.x.dim() == 1}
        if not rows or in_common:
            owners = {call.owner for call in strange}
            return seen, frozenset(block.name for block in lookups if owners & {*block.owners}), in_common
        in_common = frozenset(rows)
    return trace(model, few, others), frozenset(block.name for block in lookups), frozenset()


def _channels(module: nn.Module, shape: torch.Size) -> int:
    """Size of the channel dimension: the last one of a linear layer's activations, else the second."""
    return shape[-1 if is_linear(module) or len(shape) < 2 else 1]
