"""What is compared are the same numbers: peers' products against dense matrices, references against hessdiag."""

from __future__ import annotations

import math

import peers
import pytest
import torch
from benchmark_peers import error_of, products_needed
from benchmark_subjects import Subject, lenet
from peers import Task, double_backward_map, torch_func_diagonal, torch_func_map
from torch import Tensor, nn

CPU = torch.device("cpu")


@pytest.fixture
def task() -> Task:
    torch.manual_seed(0)
    layers = (nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False), nn.Tanh(), nn.Linear(2, 3))
    model = nn.Sequential(*layers).double()
    return Task(model, torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0]))


def dense(task: Task) -> list[list[Tensor]]:
    """Blocks of the Gauss-Newton matrix of the mean loss, row by row by plain autograd."""
    y = task.model(task.x)
    rows = [torch.autograd.grad(each, task.weights, retain_graph=True) for each in y.flatten()]
    J = [torch.stack([row[i].flatten() for row in rows]) for i in range(len(task.weights))]
    p = torch.softmax(y.detach(), dim=1)
    S = torch.block_diag(*(torch.diag(q) - torch.outer(q, q) for q in p)) / len(y)
    return [[a.T @ S @ b for b in J] for a in J]


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("estimate", [torch_func_map, double_backward_map])
def test_products_are_those_of_the_dense_matrix(task: Task, estimate: peers.Estimate, at_once: int) -> None:
    G, generator = dense(task), torch.Generator().manual_seed(7)
    expected = torch.zeros(len(G), len(G), dtype=torch.float64)
    for j, weight in enumerate(task.weights):
        r = torch.randint(0, 2, (4, *weight.shape), generator=generator, dtype=torch.int8).double() * 2 - 1
        for i in range(len(G)):
            expected[i, j] = (G[i][j] @ r.flatten(1).T).square().sum() / 4
    expected = (expected + expected.T) / 2
    if at_once == 1:  # random signs are drawn one vector after the other, which is the same stream
        torch.testing.assert_close(estimate(task, [4, 4, 4, 4], 7, 4), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(estimate(task, [4, 4, 4, 4], 7, at_once), expected, rtol=1e-10, atol=0)


def test_the_diagonal_alone_is_that_of_the_map(task: Task) -> None:
    whole = torch_func_map(task, [6] * 4, 1, 2)
    torch.testing.assert_close(torch_func_diagonal(task, [6] * 4, 1, 2), whole.diagonal(), rtol=1e-10, atol=0)


def test_the_reference_is_what_hessdiag_finds() -> None:
    subject: Subject = lenet(3, CPU)
    ratios = subject.exact_map() / subject.reference()
    assert error_of([ratios])["most"] < 1e-4


def test_a_peer_that_is_not_there_is_skipped_with_a_word() -> None:
    said = peers.skipped("a_package_that_nobody_has")
    assert said.startswith("skipped: a_package_that_nobody_has is not installed (pip install --no-deps ")
    assert peers.skipped(None) == peers.skipped("torch") == ""


def test_each_block_has_products_of_its_own(task: Task) -> None:
    counts = [3, 1, 2, 5]
    whole = torch_func_map(task, counts, 1, 8)
    torch.testing.assert_close(torch_func_diagonal(task, counts, 1, 8), whole.diagonal(), rtol=1e-10, atol=0)


def test_products_for_the_median_follow_from_the_spread_of_single_ones() -> None:
    torch.manual_seed(0)
    pool = 1 + 0.3 * torch.randn(4000, 2, 2)
    expected = (0.6745 * 0.3 / 0.05) ** 2  # median of |N(0, σ²/M)| is 0.05
    found = products_needed(pool.flatten(1), pool, worst=False)
    assert found == [found[0]] * 2
    assert abs(found[0] - expected) <= 0.2 * expected
    assert products_needed(3 * pool.flatten(1), pool, worst=False) == found  # noise, no bias
    assert products_needed(torch.ones(10, 4), pool, worst=False) == [2, 2]


def test_products_for_the_worst_follow_from_variances_block_by_block() -> None:
    torch.manual_seed(0)
    spread = torch.tensor([[0.5, 0.1], [0.1, 0.2]], dtype=torch.float64)
    pool = 1 + spread * torch.randn(4000, 2, 2, dtype=torch.float64)
    for asked in (pool.flatten(1), pool.diagonal(dim1=1, dim2=2)):  # σ²/0.05²
        assert products_needed(asked, pool, worst=True) == pytest.approx([100, 16], rel=0.1)
    pool[:, 0, 1] = pool[:, 1, 0] = 1 + 0.4 * torch.randn(4000, dtype=torch.float64)
    assert products_needed(pool.flatten(1), pool, worst=True) == pytest.approx([100, 64], rel=0.1)


def test_errors_are_over_all_entries() -> None:
    found = error_of([torch.tensor([1.1, 0.8]), torch.tensor([1.0, 1.3])])
    assert math.isclose(found["median"], 0.1, rel_tol=1e-5)
    assert math.isclose(found["most"], 0.3, rel_tol=1e-5)
    assert math.isclose(found["worst"], math.sqrt((0.2**2 + 0.3**2) / 2), rel_tol=1e-5)
