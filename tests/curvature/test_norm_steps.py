"""Normalisations are moved by hooks only where that is what moving their parameters does."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature.norm_steps import movable_norms
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks


class Normalised(nn.Module):
    """A normalisation that is called, or whose scale is read beside that, or that runs over time first."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.kind == "called":
            return self.head(self.norm(h).mean(1))
        if self.kind == "read elsewhere":
            return self.head(F.layer_norm(self.norm(h), (6,), self.norm.weight, self.norm.bias).mean(1))
        return self.head(self.norm(h.transpose(0, 1)).mean(0))


def problem_of(kind: str) -> tuple[Problem, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = Normalised(kind).double()
    batch = Batch.of(torch.randn(6, 4, 4, dtype=torch.float64), torch.randint(3, (6,)))
    y = batch.call(model)
    loss = resolve_loss("cross-entropy", y=y, targets=batch.targets, seed=0)
    along = {name: torch.randn(2, *p.shape).double() for name, p in model.named_parameters()}
    return Problem(model, batch, loss, find_blocks(model)[0]), along


def test_a_layer_that_is_called_is_moved() -> None:
    norms = movable_norms(*problem_of("called"))
    assert norms is not None
    assert norms.names == {"norm.weight", "norm.bias"}


@pytest.mark.parametrize("kind", ["read elsewhere", "over time first"])
def test_another_layer_is_left_to_forward_mode(kind: str) -> None:
    assert movable_norms(*problem_of(kind)) is None


@pytest.mark.parametrize("kind", ["called", "read elsewhere", "over time first"])
def test_learning_rates_are_those_of_forward_mode(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = problem_of(kind)
    model, x, t = problem.model, problem.batch.args[0], problem.batch.targets
    found = hessdiag.diagnose(model, x, t, loss="cross-entropy").learning_rates
    monkeypatch.setattr("hessdiag.curvature.first_step.movable_norms", lambda problem, along: None)
    expected = hessdiag.diagnose(model, x, t, loss="cross-entropy").learning_rates
    for name, rate in expected.items():
        assert found[name].value == pytest.approx(rate.value, rel=1e-12)
