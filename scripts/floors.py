"""What a measurement needs at least, counted from the shapes of layers, and what the machine can do at most.

A multiplication with its addition is two floating-point operations. A layer multiplies n × d weights by inputs at T
sites; C cotangents of every one of B examples are sent back. Numbers are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from alternating import seconds
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hessdiag.data.batch import Batch
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import owners_of
from hessdiag.network.trace import trace

BYTES = 4  # of a number


@dataclass(frozen=True)
class Layer:
    """A layer as the multiplication that it is.

    Attributes:
        n, d: rows and columns of the weight, of one group where there are several.
        sites: T, positions at which it is applied, times its groups.
        read, written: numbers of one example that it reads and writes.
    """

    n: int
    d: int
    sites: int
    read: int
    written: int

    @property
    def multiplications(self) -> int:
        """Of one example, forward; as many again send one cotangent back."""
        return self.n * self.d * self.sites


@dataclass(frozen=True)
class Floor:
    """Operations and bytes that an algorithm needs at least."""

    operations: float
    bytes: float

    def seconds(self, peak: Peak) -> float:
        """The time below which no program gets: computing and moving may overlap."""
        return max(self.operations / peak.operations, self.bytes / peak.bytes)

    def record(self, peak: Peak) -> dict[str, Any]:
        """As kept: what is needed, and the time that the machine needs for each."""
        compute, move = self.operations / peak.operations, self.bytes / peak.bytes
        return asdict(self) | {"compute_seconds": compute, "move_seconds": move, "seconds": max(compute, move)}


@dataclass(frozen=True)
class Peak:
    """What the machine does at most with the threads that it is given, a second."""

    operations: float
    bytes: float


def layers_of(problem: Problem) -> list[Layer]:
    """Linear and convolutional layers in the order of their calls, from one watched forward pass of one example.

    Embeddings multiply nothing; what else does counts as `other_operations`.
    """
    part = problem.batch.narrow(0, 1)
    seen = trace(problem.model, part, owners_of(b for b in problem.blocks if b.structured and b.kind == "weight"))
    found = []
    for call in seen.calls:
        weight, written = problem.model.get_submodule(call.owner).weight, call.output_shape.numel()
        groups = getattr(problem.model.get_submodule(call.owner), "groups", 1)
        channels = call.output_shape[1] if weight.dim() > 2 else call.output_shape[-1]
        n, d = channels // groups, weight.numel() // channels
        found.append(Layer(n, d, written // channels * groups, call.x.numel(), written))
    return found


def forward_operations(layers: Sequence[Layer]) -> int:
    """Σ_l 2 n d T of one example."""
    return sum(2 * layer.multiplications for layer in layers)


def backward_operations(layers: Sequence[Layer]) -> int:
    """Σ_{l>1} 2 n d T of one cotangent of one example: to the outputs of all layers, of which the first reads data."""
    return sum(2 * layer.multiplications for layer in layers[1:])


def gram_operations(layer: Layer, cotangents: int) -> int:
    """J Jᵀ of one example, (C, C), by the cheapest of three ways, symmetric halves once.

    With one site φ φᵀ times ‖u‖²: 2 (n + 1/2) C (C + 1)/2 + 2 d. With several, from the Gram matrices of the sites,
    2 n CT (CT + 1)/2 + 2 d T (T + 1)/2 + 2 T² C (C + 1)/2; or with J formed, 2 C n d T + 2 n d C (C + 1)/2.
    """
    n, d, T, C = layer.n, layer.d, layer.sites, cotangents
    half = C * (C + 1) // 2
    if T == 1:
        return (2 * n + 1) * half + 2 * d
    implicit = n * C * T * (C * T + 1) + d * T * (T + 1) + 2 * T * T * half
    formed = 2 * C * n * d * T + 2 * n * d * half
    return min(implicit, formed)


def map_operations(blocks: int, cotangents: int) -> int:
    """tr(S K_i S K_j) of one example for all pairs of blocks.

    S = diag(p) − p pᵀ of cross-entropy is applied as it is, 5 C² each block (scale, pᵀ K, subtract p times it), and a
    pair is an inner product, 2 C².
    """
    return cotangents**2 * (5 * blocks + blocks * (blocks + 1))


def exact_map(layers: Sequence[Layer], *, examples: int, outputs: int) -> Floor:
    """The exact per-example map: one forward pass, a cotangent for each output, Gram matrices, and their products.

    operations = B (Σ_l 2 n d T + C Σ_{l>1} 2 n d T + Σ_l gram_l(C) + C² (5 L + L (L + 1))), and bytes = 4 (Σ_l n d + B
    Σ_l (2 x_l + 3 C y_l)) with x_l read and y_l written by a layer for one example: activations are written and read
    once, cotangents written once and read twice, to be sent further and for the Gram matrix. What is formed for one
    example (J, K) stays in the cache.
    """
    each = (
        forward_operations(layers)
        + outputs * backward_operations(layers)
        + sum(gram_operations(layer, outputs) for layer in layers)
        + map_operations(len(layers), outputs)
    )
    return Floor(examples * each, _moved(layers, examples, outputs))


def batch_sketch(layers: Sequence[Layer], *, examples: int, directions: int, group: int) -> Floor:
    """All L × L blocks of a batch from q directions of each of m examples, paired in groups of so many directions.

    There are m q group / 2 pairs. With one site a pair takes the product of two inner products, 2 n + 2 d, else J is
    formed, 2 n d T a direction, and a pair takes 2 n d; and 2 a pair of blocks. Bytes are those of `exact_map`.
    """
    rows = examples * directions
    pairs = rows * group // 2
    operations = examples * (forward_operations(layers) + directions * backward_operations(layers))
    for layer in layers:
        if layer.sites == 1:
            operations += pairs * 2 * (layer.n + layer.d)
        else:
            operations += rows * 2 * layer.multiplications + pairs * 2 * layer.n * layer.d
    operations += pairs * len(layers) * (len(layers) + 1)
    return Floor(operations, _moved(layers, examples, directions))


def exact_batch_map(layers: Sequence[Layer], *, examples: int, outputs: int) -> Floor:
    """All L × L blocks of a batch exactly: ‖G_ij‖² = ⟨K_i, K_j⟩ with K_l the (B C, B C) Gram matrix of Aᵀ J_l.

    With N = B C, a layer with one site takes N (N + 1)/2 (2 n + 1) + 2 d B (B + 1)/2, others 2 N n d T to form J and
    2 n d N (N + 1)/2; a pair of blocks takes 2 N (N + 1)/2. Bytes are those of `exact_map`: panels stay in the cache.
    """
    B, N = examples, examples * outputs
    half = N * (N + 1) // 2
    operations = B * (forward_operations(layers) + outputs * backward_operations(layers))
    for layer in layers:
        if layer.sites == 1:
            operations += half * (2 * layer.n + 1) + layer.d * B * (B + 1)
        else:
            operations += 2 * N * layer.multiplications + 2 * layer.n * layer.d * half
    pairs = len(layers) * (len(layers) + 1) // 2
    return Floor(operations + 2 * half * pairs, _moved(layers, examples, outputs))


def example_sketch(layers: Sequence[Layer], other: float, *, examples: int, directions: int, draws: int = 0) -> Floor:
    """All L × L blocks of each example from q directions, as `exact_map` with C = q.

    Args:
        layers: of the network.
        other: operations of a forward pass of one example beside its layers, such as attention's own products; twice
            as many send a cotangent back through them, to both factors.
        examples, directions: B and q.
        draws: classes that are drawn at each of T sites of the last layer, where they are: it then counts as one that
            writes as many, but for its forward pass, and p pᵀ of all sites takes 2 V T².
    """
    more = 0
    if draws:
        head, few = layers[-1], replace(layers[-1], n=draws, written=draws * layers[-1].sites)
        layers = [*layers[:-1], few]
        more = 2 * (head.multiplications - few.multiplications) + 2 * head.n * head.sites**2
    known = exact_map(layers, examples=examples, outputs=directions)
    return Floor(known.operations + examples * (more + (1 + 2 * directions) * other), known.bytes)


def _moved(layers: Sequence[Layer], examples: int, cotangents: int) -> float:
    weights = sum(layer.n * layer.d for layer in layers)
    activations = sum(2 * layer.read + 3 * cotangents * layer.written for layer in layers)
    return float(BYTES * (weights + examples * activations))


def counted_operations(run: Callable[[], object]) -> int:
    """Operations of the matrix products and convolutions that a call executes."""
    # Attention as the products that it is: the counter does not know the processor's fused kernel.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def other_operations(model: nn.Module, batch: Batch, layers: Sequence[Layer]) -> float:
    """Operations of a forward pass of one example beside its layers."""
    one = batch.narrow(0, 1)
    with torch.no_grad():
        return float(max(0, counted_operations(lambda: one.call(model)) - forward_operations(layers)))


def measure_peak(device: torch.device, *, side: int = 1536, megabytes: int = 256, repeats: int = 5) -> Peak:
    """The best of some runs of a float32 matrix product and of a copy, which reads and writes every byte.

    Args:
        device: whose.
        side: of the matrices; 8192 on a GPU.
        megabytes: that are copied, more than any cache holds.
        repeats: of each, after one that warms up.
    """
    side = 8192 if device.type == "cuda" else side
    a, b = torch.randn(2, side, side, device=device)
    source = torch.zeros(megabytes * 2**18, device=device)
    target = torch.empty_like(source)
    torch.mm(a, b), target.copy_(source)
    product = min(seconds(lambda: torch.mm(a, b), device) for _ in range(repeats))
    copy = min(seconds(lambda: target.copy_(source), device) for _ in range(repeats))
    return Peak(2 * side**3 / product, 2 * megabytes * 2**20 / copy)
