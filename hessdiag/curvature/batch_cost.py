"""What each algorithm of the batch view costs, in gradients of the same batch, from the sizes of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hessdiag.derivatives.losses import Loss, RandomQuadratic
from hessdiag.derivatives.problem import Problem
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import Block, block_parameter
from hessdiag.network.shapes import NetworkShape

PANELS = 1.5  # seconds of a multiply-add of an exact panel, over that of a gradient: measured on LeNet
BACKWARD = 2 / 3  # of a gradient, per direction of a sketch
DIRECTIONS = 48  # of pilots and basis of a sketch
PER_RTOL = 3.0  # over `rtol`: directions of the estimate where the effective rank is high
CANCELLED = 8.0  # times as many where S is indefinite and its signs nearly cancel: random quadratic on LeNet, at least
MAX_SIGNED = 2048  # outputs, of a matrix whose eigenvalues are wanted
LEAST = 12  # directions whose gradients must fit into memory at once
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
        has_root: whether S = A Aᵀ, so that nothing cancels.
        directions: whose gradients fit into memory at once.
        memory: bytes; None where all fits.
    """

    rtol: float = 0.05
    max_products: int = 400
    has_root: bool = True
    directions: int | None = None
    memory: int | None = None


def batch_cost(shape: NetworkShape, blocks: Sequence[Block], batch_size: int, limits: Limits) -> BatchCost:
    """Estimate all three for a batch."""
    apart = PER_RTOL / limits.rtol
    passes = DIRECTIONS + apart if limits.has_root else 2 * DIRECTIONS + CANCELLED * apart
    fits = limits.directions is None or limits.directions >= 2 * LEAST
    products = sum(min(PRODUCTS, limits.max_products, block.numel) for block in blocks)
    return BatchCost(
        exact=_exact(shape, blocks, batch_size, limits.memory),
        sketch=BACKWARD * passes if fits else math.inf,
        probe=PRODUCT * products,
    )


def _exact(shape: NetworkShape, blocks: Sequence[Block], batch_size: int, memory: int | None) -> float:
    """Of Gram matrices of all outputs of a batch: Hadamard products for linear layers of one site, else of rows."""
    N, L = shape.outputs, len(blocks)
    held = 2 * batch_size * (shape.bytes_per_example(N) + 8 * N * N)
    if memory is not None and held > memory:
        return math.inf
    side = (batch_size * N) ** 2
    gram = sum(side * _rows(shape, block, N) for block in blocks)
    curved = 2 * L * side * N + L * L * side  # S K and K S, and the inner products of all pairs
    gradient = 3 * batch_size * max(sum(layer.forward_macs for layer in shape.layers.values()), 1)
    return PANELS * (gram + curved) / gradient + N * BACKWARD


def _rows(shape: NetworkShape, block: Block, outputs: int) -> float:
    """Multiply-adds of an entry of a block's Gram matrix."""
    layers = [shape.layers[owner] for owner in block.owners if owner in shape.layers]
    if block.structured and block.kind == "weight" and len(layers) == 1 and layers[0].sites == 1:
        return block.fan_out + block.numel / block.fan_out / outputs**2
    return block.numel


def directions_that_fit(problem: Problem, *, outputs: int, memory: int) -> int:
    """Directions whose gradients and cotangents fit `memory` bytes at once.

    Gradients may take half of it: activations take a quarter, and a basis that grows stands there twice for a while. A
    direction also stands there in float64, to be made orthogonal to the basis.
    """
    return memory // _bytes_of_direction(problem, outputs)


def check_directions_fit(problem: Problem, *, outputs: int, memory: int) -> int:
    """`directions_that_fit`, at least `LEAST`.

    Raises:
        HessdiagError: it is less.
    """
    fitting = directions_that_fit(problem, outputs=outputs, memory=memory)
    if fitting < LEAST:
        least = LEAST * _bytes_of_direction(problem, outputs)
        raise HessdiagError(
            f"max_memory {memory} bytes: method 'sketch' per batch needs at least {least}, for the gradients of"
            f" {LEAST} directions at once: use method 'probe'"
        )
    return fitting


def has_signed_root(loss: Loss, outputs: int) -> bool:
    """Whether S = A D Aᵀ with signs D is the same for all examples, and soon found."""
    return isinstance(loss, RandomQuadratic) and outputs <= MAX_SIGNED


def sides_of(loss: Loss, outputs: int) -> int:
    """Backward passes of a direction."""
    return 1 if loss.has_root or has_signed_root(loss, outputs) else 2


def _bytes_of_direction(problem: Problem, outputs: int) -> int:
    size = block_parameter(problem.model, problem.blocks[0]).element_size()
    sides = sides_of(problem.loss, outputs)
    gradients = 2 * sides * size * sum(block.numel for block in problem.blocks)
    cotangents = (16 + (1 + sides) * size) * problem.batch.size * outputs
    return gradients + cotangents
