"""What each algorithm of the batch view costs, in gradients of the same batch, from the sizes of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hessdiag.derivatives.losses import Loss, sides_of
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block
from hessdiag.network.shapes import NetworkShape

PANELS = 1.5  # seconds of a multiply-add of an exact panel, over that of a gradient: measured on LeNet
FORWARD = 1 / 3  # of a gradient
BACKWARD = 2 / 3
ROWS_AT_RTOL = 12.0  # over rtol²: directions of all examples of a sketch together, where blocks have rank one
ROWS = 256  # directions of all examples of a group: their pairs take about as long as sending them back
ROWS_OF_ALL = 1024  # where these are of all examples: then none of their pairs is missing
GROUP = 4  # examples of a group, at least: fewer pairs do not tell how much they vary
WORKING = 3  # times the memory of activations and cotangents, of which products of all with all take copies
COPIES = 4  # of the products of all directions of a group with all, in float64
BASIS = 48  # passes of an example, with pilots and a basis that leaves little
PRODUCTS = 32  # that a block takes
PRODUCT = 2.3  # gradients


@dataclass(frozen=True)
class BatchCost:
    """Estimates, in gradients; infinite where an algorithm does not fit into memory."""

    exact: float
    sketch: float
    probe: float


@dataclass(frozen=True)
class Limits:
    """What the estimates depend on beside the network.

    Attributes:
        rtol, max_products: of the settings.
        has_root: whether S = A Aᵀ, so that a direction is sent back once.
        fits: whether the least sketch fits into memory.
        memory: bytes; None where all fits.
    """

    rtol: float = 0.05
    max_products: int = 400
    has_root: bool = True
    fits: bool = True
    memory: int | None = None


def batch_cost(shape: NetworkShape, blocks: Sequence[Block], batch_size: int, limits: Limits) -> BatchCost:
    """Estimate all three for a batch."""
    products = sum(min(PRODUCTS, limits.max_products, block.numel) for block in blocks)
    return BatchCost(
        exact=_exact(shape, blocks, batch_size, limits.memory),
        sketch=_sketch(shape, blocks, batch_size, limits) if limits.fits else math.inf,
        probe=PRODUCT * products,
    )


def _sketch(shape: NetworkShape, blocks: Sequence[Block], batch_size: int, limits: Limits) -> float:
    """Of a pilot and a round, and of all pairs of directions in a group of examples."""
    sides = 1 if limits.has_root else 2
    rows = ROWS_AT_RTOL / limits.rtol**2
    each = min(rows / batch_size, BASIS, limits.max_products)
    examples = min(1.0, rows / (2 * batch_size))
    products = ROWS * sides**2 * each * sum(_rows(shape, block, 1) for block in blocks)
    return examples * FORWARD + each * sides * BACKWARD + PANELS * products / (3 * _macs(shape))


def _exact(shape: NetworkShape, blocks: Sequence[Block], batch_size: int, memory: int | None) -> float:
    """Of Gram matrices of all outputs of a batch: Hadamard products for linear layers of one site, else of rows."""
    N, L = shape.outputs, len(blocks)
    held = 2 * batch_size * (shape.bytes_per_example(N) + 8 * N * N)
    if memory is not None and held > memory:
        return math.inf
    side = (batch_size * N) ** 2
    gram = sum(side * _rows(shape, block, N) for block in blocks)
    curved = 2 * L * side * N + L * L * side  # S K and K S, and the inner products of all pairs
    return PANELS * (gram + curved) / (3 * batch_size * _macs(shape)) + N * BACKWARD


def _macs(shape: NetworkShape) -> int:
    """Multiply-adds of a forward pass of an example."""
    return max(sum(layer.forward_macs for layer in shape.layers.values()), 1)


def _rows(shape: NetworkShape, block: Block, outputs: int) -> float:
    """Multiply-adds of an entry of a block's Gram matrix."""
    layers = [shape.layers[owner] for owner in block.owners if owner in shape.layers]
    if block.structured and block.kind == "weight" and len(layers) == 1 and layers[0].sites == 1:
        return block.fan_out + block.numel / block.fan_out / outputs**2
    return block.numel


def pairs_fit(shape: NetworkShape, loss: Loss, memory: int) -> bool:
    """Whether the least sketch does."""
    return _least(shape, loss) <= memory


def check_pairs_fit(shape: NetworkShape, loss: Loss, memory: int) -> None:
    """Refuse a sketch for which there is too little memory."""
    if not pairs_fit(shape, loss, memory):
        raise HessdiagError(
            f"max_memory leaves {memory} bytes for examples: method 'sketch' per batch needs at least"
            f" {_least(shape, loss)}, for two directions of {GROUP} of them at once: use method 'probe'"
        )


def examples_together(shape: NetworkShape, problem: Problem, directions: int, *, memory: int) -> int:
    """Examples of a group that fit into memory with so many directions of each, and their products for all blocks."""
    cotangents = directions * sides_of(problem.loss)
    rows = math.isqrt(memory // WORKING // (COPIES * 8 * len(problem.blocks)))
    return min(shape.chunk(cotangents, memory=memory // WORKING), max(1, rows // cotangents))


def _least(shape: NetworkShape, loss: Loss) -> int:
    return math.ceil(GROUP * WORKING * shape.bytes_per_example(2 * sides_of(loss)))
