"""What is compared are the same numbers: peers' products against dense matrices, references against hessdiag."""

import json

import benchmark_growth
import benchmark_peers
import peers
import pytest
import torch
import torch.nn.functional as F
from benchmark_growth import Exponent
from benchmark_peers import error_of, lenet, norms, products_needed, reference
from peers import Task, double_backward_map, torch_func_diagonal, torch_func_map
from torch import nn

from tests.oracles import ggn_blocks
from tests.pages import read

CPU = torch.device("cpu")


@pytest.fixture
def task() -> Task:
    layers = (nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False), nn.Tanh(), nn.Linear(2, 3))
    model = nn.Sequential(*layers).double()
    return Task(model, torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0]))


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("estimate", [torch_func_map, double_backward_map])
def test_products_are_those_of_the_dense_matrix(task: Task, estimate: peers.Estimate, at_once: int) -> None:
    names, generator = [name for name, _ in task.model.named_parameters()], torch.Generator().manual_seed(7)
    G = ggn_blocks(task.model, task.x, task.targets, F.cross_entropy, names)
    expected = torch.zeros(len(G), len(G), dtype=torch.float64)
    for j, weight in enumerate(task.weights):
        r = torch.randint(0, 2, (4, *weight.shape), generator=generator, dtype=torch.int8).double() * 2 - 1
        for i in range(len(G)):
            expected[i, j] = (G[i][j] @ r.flatten(1).T).square().sum() / 4
    expected = (expected + expected.T) / 2
    if at_once == 1:  # random signs are drawn one vector after the other, which is the same stream
        torch.testing.assert_close(estimate(task, [4, 4, 4, 4], 7, 4), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(estimate(task, [4, 4, 4, 4], 7, at_once), expected, rtol=1e-10, atol=0)
    for counts in ([6] * 4, [3, 1, 2, 5]):  # the diagonal alone, also where each block has its own number
        whole = torch_func_map(task, counts, 1, 2)
        torch.testing.assert_close(torch_func_diagonal(task, counts, 1, 2), whole.diagonal(), rtol=1e-10, atol=0)


def test_the_reference_is_what_hessdiag_finds_and_a_missing_peer_is_skipped_with_a_word() -> None:
    _, own = lenet(3, CPU)
    assert error_of([norms(own, method="exact") / reference(own)])["most"] < 1e-4
    said = peers.skipped("a_package_that_nobody_has")
    assert said.startswith("skipped: a_package_that_nobody_has is not installed (pip install --no-deps ")
    assert peers.skipped(None) == peers.skipped("torch") == ""


def test_costs_follow_from_the_spread_of_single_products_and_exponents_from_least_squares() -> None:
    pool = 1 + 0.3 * torch.randn(4000, 2, 2)
    expected = (0.6745 * 0.3 / 0.05) ** 2  # median of |N(0, σ²/M)| is 0.05
    found = products_needed(pool.flatten(1))
    assert abs(found - expected) <= 0.2 * expected
    assert products_needed(3 * pool.flatten(1)) == found  # noise, no bias
    assert products_needed(torch.ones(10, 4)) == 2
    sizes, values = [2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 2.3, 3.9, 8.8, 15.0]
    x, y = (torch.tensor(each, dtype=torch.float64).log() for each in (sizes, values))
    A = torch.stack([x, torch.ones(5, dtype=torch.float64)], dim=1)
    slope = torch.linalg.lstsq(A, y.unsqueeze(1)).solution.squeeze(1)
    variance = (y - A @ slope).square().sum() / 3 * torch.linalg.inv(A.T @ A)[0, 0]
    found = Exponent.fit(sizes, values)
    assert (found.value, found.stderr) == pytest.approx((float(slope[0]), float(variance.sqrt())), abs=1e-10)


def test_committed_results_are_drawn() -> None:
    kept, growth = (json.loads(read(f"figures/{name}.json"))["items"] for name in ("benchmark_peers", "growth"))
    assert any("BackPACK" in line for line in benchmark_peers.lines_of(kept))
    assert benchmark_peers.draw(kept).axes
    assert "Beyond the gradient" in benchmark_growth.table_of(growth)
    assert len(benchmark_growth.draw(growth, "a line").axes) >= len(growth)
