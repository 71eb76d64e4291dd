"""Operations counted from shapes are those that loops and torch's own counter count."""

from __future__ import annotations

from copy import deepcopy
from itertools import product

import pytest
import torch
from benchmark_subjects import Subject, lenet
from floors import (
    BYTES,
    Layer,
    Peak,
    backward_operations,
    batch_sketch,
    counted_operations,
    exact_batch_map,
    exact_map,
    forward_operations,
    gram_operations,
    map_operations,
    other_operations,
)
from torch import nn

from hessdiag.data.batch import Batch
from hessdiag.network.trace import backpropagate, trace

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return lenet(3, CPU)


def test_a_forward_pass_takes_what_torch_counts(subject: Subject) -> None:
    one = subject.problem.batch.narrow(0, 1)
    assert forward_operations(subject.layers) == counted_operations(lambda: one.call(subject.problem.model))
    assert other_operations(subject.problem.model, subject.problem.batch, subject.layers) == 0


def test_a_cotangent_takes_what_torch_counts(subject: Subject) -> None:
    """In float64, where hessdiag sends back through strided convolutions as torch does, not by a faster product."""
    one = Batch.of(subject.task.x[:1].double(), None)
    model = deepcopy(subject.problem.model).double()
    seen = trace(model, one, [block.owners[0] for block in subject.problem.blocks])
    edges = [call.output_edge for call in seen.calls]
    cotangent = torch.randn(1, *seen.y.shape, dtype=torch.float64)
    assert backward_operations(subject.layers) == counted_operations(lambda: backpropagate(seen.y, edges, cotangent))


def test_attention_is_counted_beside_the_layers() -> None:
    x = torch.randn(2, 1, 5, 4)  # one head of width 4, five tokens
    attention = nn.functional.scaled_dot_product_attention
    assert counted_operations(lambda: attention(x, x, x)) == 2 * (2 * 2 * 5 * 5 * 4)  # q kᵀ, then times v, of two


def test_groups_are_counted() -> None:
    x, targets = torch.randn(2, 4, 6, 6), torch.zeros(2, dtype=torch.long)
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.Flatten(), nn.Linear(96, 3, bias=False))
    subject = Subject.of("groups", model, x, targets)
    assert subject.layers[0] == Layer(3, 18, 32, 144, 96)
    assert forward_operations(subject.layers) == counted_operations(lambda: model(x[:1]))


def formed_by_loops(layer: Layer, cotangents: int) -> int:
    """J of every cotangent, then J Jᵀ in its upper half: two operations each time an innermost line is reached."""
    forming = sum(2 for _ in product(range(cotangents), range(layer.n), range(layer.d), range(layer.sites)))
    pairs = [(a, b) for a in range(cotangents) for b in range(a, cotangents)]
    return forming + sum(2 for _ in product(pairs, range(layer.n * layer.d)))


def implicit_by_loops(layer: Layer, cotangents: int) -> int:
    """Gram matrices of φ and u over sites in their upper halves, then their products summed."""
    rows = [(c, t) for c in range(cotangents) for t in range(layer.sites)]
    phi = sum(2 for _ in product([(a, b) for a in rows for b in rows if a <= b], range(layer.n)))
    sites = [(s, t) for s in range(layer.sites) for t in range(s, layer.sites)]
    u = sum(2 for _ in product(sites, range(layer.d)))
    pairs = [(a, b) for a in range(cotangents) for b in range(a, cotangents)]
    return phi + u + sum(2 for _ in product(pairs, range(layer.sites), range(layer.sites)))


@pytest.mark.parametrize("layer", [Layer(2, 3, 7, 0, 0), Layer(5, 9, 2, 0, 0), Layer(4, 4, 4, 0, 0)])
@pytest.mark.parametrize("cotangents", [1, 3])
def test_a_gram_matrix_takes_what_loops_count(layer: Layer, cotangents: int) -> None:
    expected = min(formed_by_loops(layer, cotangents), implicit_by_loops(layer, cotangents))
    assert gram_operations(layer, cotangents) == expected


def test_one_site_takes_an_outer_product() -> None:
    n, d, pairs = 4, 6, [(a, b) for a in range(3) for b in range(a, 3)]
    phi = sum(2 for _ in product(pairs, range(n))) + len(pairs)  # times the one number ‖u‖²
    assert gram_operations(Layer(n, d, 1, d, n), 3) == phi + 2 * d


def test_the_exact_map_is_the_sum_of_its_parts(subject: Subject) -> None:
    layers = subject.layers
    parts = forward_operations(layers) + 10 * backward_operations(layers) + map_operations(5, 10)
    parts += sum(gram_operations(layer, 10) for layer in layers)
    floor = exact_map(layers, examples=3, outputs=10)
    assert floor.operations == 3 * parts
    weights = sum(p.numel() for p in subject.problem.model.parameters())
    moved = sum(2 * x + 3 * 10 * y for x, y in [(3072, 1176), (1176, 400), (400, 120), (120, 84), (84, 10)])
    assert floor.bytes == BYTES * (weights + 3 * moved)


def test_the_exact_map_of_a_batch_of_one_linear_layer() -> None:
    layer, N = Layer(4, 6, 1, 6, 4), 2 * 3
    half = [(a, b) for a in range(N) for b in range(a, N)]
    phi = sum(2 for _ in product(half, range(4))) + len(half)
    u = sum(2 for _ in product([(0, 0), (0, 1), (1, 1)], range(6)))
    forward, one_pair = 2 * 2 * 4 * 6, 2 * len(half)
    assert exact_batch_map([layer], examples=2, outputs=3).operations == forward + phi + u + one_pair


def test_a_floor_is_the_longer_of_computing_and_moving(subject: Subject) -> None:
    floor = exact_map(subject.layers, examples=1, outputs=10)
    assert floor.seconds(Peak(1.0, 1e30)) == floor.operations
    record = floor.record(Peak(1e30, 2.0))
    assert record["seconds"] == record["move_seconds"] == floor.bytes / 2


def test_a_sketch_of_a_batch_by_loops() -> None:
    """A layer of one site and a convolution; so many pairs of directions in groups."""
    layers = [Layer(3, 8, 4, 32, 12), Layer(5, 12, 1, 12, 5)]
    found = batch_sketch(layers, examples=10, directions=2, group=4)
    rows, pairs = 20, 40
    forward = sum(2 * layer.n * layer.d * layer.sites for layer in layers)
    backward = 2 * 5 * 12
    formed = 2 * 3 * 8 * 4  # of a direction of the convolution
    expected = 10 * forward + rows * backward + rows * formed + pairs * (2 * 3 * 8 + 2 * (5 + 12) + 2 * 3)
    assert found.operations == expected
