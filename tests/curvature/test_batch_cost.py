"""Which algorithm the batch view takes: costs that were measured, and memory."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.curvature.batch_cost import WORKING, Limits, batch_cost, examples_together, pairs_fit
from hessdiag.curvature.plan import plan
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import CrossEntropy, RandomQuadratic
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import measure_shapes


def test_the_cheapest_algorithm_is_chosen_and_the_report_says_why() -> None:
    torch.manual_seed(0)
    lenet, x = hessdiag.models.StridedLeNet(), torch.randn(2, 3, 32, 32)
    blocks = find_blocks(lenet)[0]
    shape = measure_shapes(lenet, Batch.of(x, None), blocks)
    options = {"matrix": "ggn", "per": "batch", "outputs": 10}
    methods = {}
    for size in (8, 1024):
        cost = batch_cost(shape, blocks, size, Limits())
        methods[size] = plan(method="auto", batch_size=size, cost=cost, **options)
    assert (methods[8].method, methods[1024].method) == ("exact", "sketch")
    assert 500 < batch_cost(shape, blocks, 1024, Limits()).exact < 1100  # 751 were measured
    for word in ("Gram matrices", "sketches of the whole batch", "products in weight space"):
        assert word in methods[1024].reason
    two_sided = batch_cost(shape, blocks, 1024, Limits(has_root=False))
    assert plan(method="auto", batch_size=1024, cost=two_sided, **options).method == "sketch"
    tight = batch_cost(shape, blocks, 1024, Limits(fits=False, memory=2**20))
    assert plan(method="auto", batch_size=1024, cost=tight, **options).method == "probe"
    assert "too many for the memory" in plan(method="auto", batch_size=1024, cost=tight, **options).reason


def test_sketches_that_do_not_fit_are_refused() -> None:
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model, x = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), *pooled), torch.randn(8, 3, 20, 20)
    with pytest.raises(hessdiag.HessdiagError, match=r"max_memory .* method 'sketch' per batch needs at least"):
        hessdiag.diagnose(model, x, per="batch", method="sketch", max_memory="8MiB")


def test_memory_is_that_of_two_directions_of_four_examples() -> None:
    model, x = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4)), torch.randn(8, 6)
    shape = measure_shapes(model, Batch.of(x, None), find_blocks(model)[0])
    least = 4 * shape.bytes_per_example(2) * WORKING
    assert pairs_fit(shape, CrossEntropy(), int(least + 1))
    assert not pairs_fit(shape, CrossEntropy(), int(least * 0.99))
    no_root = RandomQuadratic.draw(4, seed=0, like=x)
    assert not pairs_fit(shape, no_root, int(least + 1))


def test_a_group_fits_with_its_products() -> None:
    """Of many blocks, all directions with all take more than activations do."""
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(100))), torch.randn(8, 4)
    problem = Problem(model, Batch.of(x, None), CrossEntropy(), find_blocks(model)[0])
    shape = measure_shapes(model, problem.batch, problem.blocks)
    few, many = (examples_together(shape, problem, 2, memory=memory) for memory in (2**24, 2**30))
    assert 200 * (2 * few) ** 2 * 8 * 4 <= 2**24 / 3 < 200 * (2 * few + 2) ** 2 * 8 * 4
    assert many > 5 * few
    assert examples_together(shape, problem, 4, memory=2**24) == few // 2
    two_sided = replace(problem, loss=RandomQuadratic.draw(4, seed=0, like=x))
    assert examples_together(shape, two_sided, 2, memory=2**24) == few // 2
