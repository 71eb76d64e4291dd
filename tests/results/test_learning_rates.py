"""Records of learning rates, the sentence on them, and parameter groups."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.errors import HessdiagError
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.parameter_groups import parameter_groups
from hessdiag.results.rate_balance import rate_sentence
from hessdiag.results.report import Report


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def report(model: nn.Module) -> Report:
    torch.manual_seed(0)
    return hessdiag.diagnose(model, torch.randn(20, 4), torch.randint(3, (20,)), loss="cross-entropy", optimizer="adam")


def test_they_travel_as_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report
    assert report.to_record()["learning_rates"]["adam"].blocks.keys() == {b.name for b in report.blocks}


def test_an_older_file_has_none(report: Report) -> None:
    record = Report.from_json(report.to_json()).to_record()
    for key in ("learning_rates", "optimizer", "schema"):
        del record[key]
    import json

    from hessdiag.results.records import dumps

    older = {k: v for k, v in json.loads(dumps(record)).items() if k not in ("verdict", "spread")}
    assert Report.from_record(older).learning_rates == {}


def test_equal_where_undefined() -> None:
    one, two = (LearningRate(value=float("nan"), stderr=math.inf, blocks={"a": float("nan")}) for _ in range(2))
    assert one == two


def test_the_sentence_speaks_of_the_optimiser_that_was_asked_about(report: Report) -> None:
    rates = report.learning_rates
    assert rate_sentence(report).startswith(
        f"Adam: the first step is best at a learning rate of {rates['adam'].value:.3g}"
    )
    assert "0.weight" in rate_sentence(report)
    assert rate_sentence(replace(report, optimizer="sgd")).startswith("SGD: ")
    assert rate_sentence(report) in " ".join(repr(report).split())
    assert "lr Adam" in repr(report)
    assert f"For SGD: {report.verdict.balance.sentence}" in " ".join(repr(report).split())
    assert "For SGD: " in report.to_html()
    assert "For SGD: " not in repr(replace(report, optimizer="sgd"))
    assert "lr SGD" in repr(replace(report, optimizer="sgd"))
    assert rate_sentence(report) in report.to_html()


def test_nothing_is_said_of_a_loss_that_nobody_trains_with(report: Report) -> None:
    untrained = replace(report, loss="random-quadratic")
    assert rate_sentence(untrained) == ""
    assert "lr" not in repr(untrained).split()


def test_one_group_where_rates_are_close(model: nn.Module) -> None:
    rate = LearningRate(value=0.1, stderr=0.0, blocks={"0.weight": 0.3, "3.weight": 0.5}, together=0.5)
    (group,) = parameter_groups(rate, model)
    assert group["lr"] == 0.1
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]


def test_groups_where_they_are_apart(model: nn.Module) -> None:
    rate = LearningRate(
        value=0.1,
        stderr=0.0,
        blocks={"0.weight": 20.0, "0.bias": 22.0, "3.weight": 0.2, "3.bias": math.nan},
        together=0.5,
    )
    groups = parameter_groups(rate, model)
    names = {id(p): name for name, p in model.named_parameters()}
    found = {frozenset(names[id(p)] for p in group["params"]): group["lr"] for group in groups}
    fast, own = frozenset({"0.weight", "0.bias"}), frozenset({"3.weight"})
    assert found[fast] == pytest.approx(math.sqrt(10.0 * 11.0))
    assert found[own] == pytest.approx(0.1)
    assert found[frozenset({"1.weight", "1.bias", "3.bias"})] == 0.1  # no rate of their own
    torch.optim.Adam(groups).step()


def test_a_step_of_all_groups_ends_at_the_minimum() -> None:
    """On a quadratic loss the rates of the blocks, times `together`, step to the minimum along that direction."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)).double()
    x, t = torch.randn(30, 6).double(), torch.randn(30, 4).double()
    rate = hessdiag.diagnose(model, x, t, loss="mse").learning_rates["sgd"]
    at = dict(model.named_parameters())
    loss = nn.functional.mse_loss(model(x), t)
    gradients = dict(zip(at, torch.autograd.grad(loss, list(at.values())), strict=True))
    step = {name: rate.blocks[name] * gradients[name] for name in at}
    _, moved = torch.func.jvp(lambda values: torch.func.functional_call(model, values, (x,)), (at,), (step,))
    slope = sum(float((gradients[name] * step[name]).detach().sum()) for name in at)
    curvature = float(2 * moved.detach().square().mean())
    assert rate.together == pytest.approx(slope / curvature, rel=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda report, model: report.parameter_groups(model, "lion"), "no learning rates for 'lion'"),
        (lambda report, model: report.parameter_groups(model, factor=1.0), "a factor above 1"),
        (lambda report, model: report.parameter_groups(nn.Linear(2, 2)), "pass the model that was measured"),
        (lambda report, model: parameter_groups(LearningRate(value=math.nan, stderr=math.nan), model), "no minimum"),
    ],
)
def test_what_cannot_be_used_is_refused(call, words: str, report: Report, model: nn.Module) -> None:
    with pytest.raises(HessdiagError, match=words):
        call(report, model)


def test_another_optimiser_is_refused() -> None:
    with pytest.raises(HessdiagError, match="optimizer 'lion' is not known: use one of sgd, adam"):
        hessdiag.diagnose(nn.Linear(2, 2), torch.ones(3, 2), optimizer="lion")
