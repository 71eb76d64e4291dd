"""What each layer reads and writes per example, from a forward pass of one or two examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hessdiag.batch import Batch
from hessdiag.blocks import CONVOLUTIONS, Block, owners_of
from hessdiag.capture import trace


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer per example.

    Attributes:
        inputs, outputs: elements that it reads and writes.
        sites: positions at which it writes.
        patches: elements of its unfolded input.
        forward_macs: multiply-adds of its forward pass.
    """

    inputs: int
    outputs: int
    sites: int
    patches: int
    forward_macs: int


@dataclass(frozen=True)
class NetworkShape:
    """Layers by path in execution order, outputs per example, and bytes of one number."""

    layers: dict[str, LayerShape]
    outputs: int
    element_size: int

    def bytes_per_example(self, cotangents: int) -> int:
        """Memory of one example when `cotangents` are back-propagated at once to every layer."""
        return self.element_size * sum(
            layer.inputs + layer.patches + (2 * cotangents + 2) * layer.outputs for layer in self.layers.values()
        )

    def chunk(self, cotangents: int, *, memory: int) -> int:
        """Examples that fit into `memory` bytes at once, at least 1."""
        return max(1, memory // max(self.bytes_per_example(cotangents), 1))


def measure_shapes(model: nn.Module, batch: Batch, blocks: Sequence[Block]) -> NetworkShape:
    """Run two examples forward and note what every layer reads and writes."""
    few = batch.narrow(0, 2)  # two, because batch normalisation in training mode refuses one
    seen = trace(model, few, owners_of(blocks))
    layers: dict[str, LayerShape] = {}
    for call in seen.calls:
        module = model.get_submodule(call.owner)
        reads, writes = call.x.numel() // few.size, math.prod(call.output_shape) // few.size
        channels = writes
        patch = reads
        if isinstance(module, nn.Linear):
            channels, patch = call.output_shape[-1], module.in_features
        elif isinstance(module, CONVOLUTIONS):
            channels, patch = call.output_shape[1], module.in_channels * math.prod(module.kernel_size)
        sites = writes // max(channels, 1)
        groups = module.groups if isinstance(module, CONVOLUTIONS) else 1
        new = LayerShape(reads, writes, sites, patch * sites, writes * patch // groups)
        old = layers.get(call.owner)
        layers[call.owner] = new if old is None else LayerShape(*map(sum, zip(_tuple(old), _tuple(new), strict=True)))
    return NetworkShape(layers, math.prod(seen.y.shape[1:]), seen.y.element_size())


def default_memory(device: torch.device) -> int:
    """Bytes for one chunk: what stays in a processor's cache, or a share of a GPU's memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free // 4)
    return 48 * 2**20


def _tuple(shape: LayerShape) -> tuple[int, ...]:
    return shape.inputs, shape.outputs, shape.sites, shape.patches, shape.forward_macs
