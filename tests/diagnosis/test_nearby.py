"""Behind layers that start at zero the Hessian is right, or refused."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import RandomQuadratic
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.nearby import check_nearby
from hessdiag.network.blocks import find_blocks
from hessdiag.network.preserve import preserve_state
from tests.unchanged import unchanged


def zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer


class SumBehindZeros(nn.Module):
    """The first layer reads a sum over examples, and all it does is hidden by two layers of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = zero(nn.Linear(3, 3, bias=False)), zero(nn.Linear(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.first(x.cumsum(0)))


class ReadFromAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3, bias=False), zero(nn.Linear(3, 2))
        self.held = [self.first.weight]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.linear(x, self.held[0]).tanh())


class RunsHereOnly(nn.Linear):
    """Its outputs are NaN at other weights."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.here = self.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (1 - 1e6 * (self.weight - self.here).square().sum()).sqrt() - 1


class ByTwoNames(nn.Module):
    """One weight, that modules hold by different names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.turned = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x).tanh() @ self.turned


def problem(model: nn.Module, *, examples: int = 3) -> Problem:
    model.double()
    x = torch.randn(examples, 3, dtype=torch.float64)
    with torch.no_grad():
        y = model(x)
    blocks, skipped = find_blocks(model)
    return Problem(model, Batch.of(x, None), RandomQuadratic.draw(y[0].numel(), seed=0, like=y), blocks, skipped)


def test_mixing_behind_zeros_is_refused() -> None:
    model, x = SumBehindZeros().double(), torch.randn(3, 3, dtype=torch.float64)
    with unchanged(model, x), pytest.raises(hessdiag.HessdiagError, match="an example on its own gives other outputs"):
        hessdiag.diagnose(model, x, matrix="hessian")


def test_the_gauss_newton_matrix_needs_first_derivatives_alone() -> None:
    model, x = SumBehindZeros().double(), torch.randn(3, 3, dtype=torch.float64)
    report = hessdiag.diagnose(model, x)
    assert {block.name: block.avg_sq_singular_value for block in report.blocks}["first.weight"] == 0


def test_a_weight_that_is_read_from_a_list_behind_zeros_is_skipped() -> None:
    model = ReadFromAList()
    model.held = [model.first.weight]
    x = torch.randn(3, 3, dtype=torch.float64)
    model.double()
    with unchanged(model, x):
        report = hessdiag.diagnose(model, x, matrix="hessian")
    assert dict(report.skipped)["first.weight"].endswith("such as a list or a view of it")
    assert [block.name for block in report.blocks] == ["last.weight", "last.bias"]


def test_a_model_that_runs_at_its_own_weights_alone_is_measured() -> None:
    torch.manual_seed(0)
    case = problem(RunsHereOnly())
    assert check_nearby(case, chunk=4, seed=0) == []


@pytest.mark.parametrize("model", [ByTwoNames(), nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))])
@pytest.mark.parametrize("examples", [1, 3])
def test_weights_are_back_afterwards(model: nn.Module, examples: int) -> None:
    case = problem(model, examples=examples)
    with unchanged(model):
        assert check_nearby(case, chunk=4, seed=0) == []


def test_weights_are_back_after_a_refusal() -> None:
    case = problem(SumBehindZeros())
    with unchanged(case.model), preserve_state(case.model, seed=0), pytest.raises(hessdiag.HessdiagError):
        check_nearby(case, chunk=4, seed=0)


def test_recurrent_layers_read_their_weights_as_before() -> None:
    """They hold them by a list of their own, which follows."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.last = nn.GRU(1, 2, batch_first=True), zero(nn.Linear(2, 2))

        def forward(self, x: Tensor) -> Any:
            return self.last(self.cell(x.unsqueeze(2))[0][:, -1])

    case = problem(Last())
    x = case.batch.args[0]
    expected = case.model(x)
    with preserve_state(case.model, seed=0):
        assert check_nearby(case, chunk=4, seed=0) == []
    assert torch.equal(case.model(x), expected)
