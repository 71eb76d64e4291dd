"""Two models on the same examples, against closed forms and the gallery; random trials are new, or the same again."""

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from strangers.gallery import CASES
from torch import nn

import hessdiag
from hessdiag.diagnosis.random_setups import RandomTrials, measure_setups
from hessdiag.loading.prepare import prepare, random_network
from hessdiag.models.sources import resolve_model
from tests.unchanged import unchanged

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
CASE = {case.name: case for case in CASES}
SOURCE = resolve_model("mlp:6-5-4")


def relu_net() -> nn.Sequential:
    torch.manual_seed(0)
    first, middle, last = nn.Linear(4, 40, bias=False), nn.Linear(40, 40, bias=False), nn.Linear(40, 3, bias=False)
    return nn.Sequential(first, nn.ReLU(), middle, nn.ReLU(), last).double()


def scaled(model: nn.Module, name: str, factor: float) -> nn.Module:
    model = copy.deepcopy(model)
    model.get_parameter(name).data.mul_(factor)
    return model


def test_ratios_of_one_layer_ten_times_as_large_and_the_other_way_round() -> None:
    """y is homogeneous in W_2, so with L = yᵀRy: Δ_2 ~ s, Δ_others ~ s², G_2 fixed, G_others ~ s² (σ² ~ s⁴)."""
    model = relu_net()
    comparison = hessdiag.compare(model, scaled(model, "2.weight", 10.0), X)
    assert comparison.blocks[0] == "2.weight"
    middle = comparison["2.weight"].ratios
    expected = {"weight_sq": 1e2, "nu": 1.0, "avg_sq_singular_value": 1.0, "curvature_scaling": 1e4}
    assert {key: middle[key].value for key in expected} == pytest.approx(expected, rel=1e-9)
    for name in ("0.weight", "4.weight"):
        other = comparison[name].ratios
        expected = {"weight_sq": 1.0, "nu": 1e4, "avg_sq_singular_value": 1e4}
        assert {key: other[key].value for key in expected} == pytest.approx(expected, rel=1e-9)
        assert other["nu"].relative == pytest.approx(1.0)
    assert middle["nu"].relative == pytest.approx(1e-4)
    assert comparison.findings[0].blocks == ("2.weight",)
    assert "weights 10.0× as large" in comparison.findings[0].message
    model = relu_net()
    other = scaled(model, "4.weight", 0.2)
    there, back = hessdiag.compare(model, other, X), hessdiag.compare(other, model, X)
    assert there.blocks[0] == back.blocks[0] == "4.weight"
    for change in there:
        for key, ratio in change.ratios.items():
            if ratio.value == ratio.value:
                assert back[change.name].ratios[key].value == pytest.approx(1 / ratio.value, rel=1e-9)


class FreshNoise:
    """Batches that are drawn anew whenever they are read."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.randn(4, 4, dtype=torch.float64) for _ in range(2)])


def test_both_models_see_the_same_examples_and_two_seeds_of_one_network_give_no_warning() -> None:
    comparison = hessdiag.compare(relu_net(), relu_net(), FreshNoise())
    assert (comparison.findings, {change.score for change in comparison}) == ((), {0.0})
    case = CASE["linear-default"]
    inputs, targets = case.batch(seed=0)
    models = [case.build("after", seed=seed, width=64) for seed in (0, 1)]
    comparison = hessdiag.compare(*models, inputs[:16], targets[:16], loss=case.loss)
    assert comparison.findings == ()


def test_reports_files_and_models_compare_alike(tmp_path: Path) -> None:
    model = relu_net()
    other, path = scaled(model, "0.weight", 3.0), tmp_path / "before.json"
    with unchanged(model):
        reports = [hessdiag.diagnose(each, X) for each in (model, other)]
        reports[0].to_json(path)
        direct = hessdiag.compare(model, other, X).to_json()
        assert hessdiag.compare(*reports).to_json() == direct
        assert hessdiag.compare(path, reports[1]).to_json() == direct
        assert hessdiag.compare(str(path), other, X).to_json() == direct


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((3, "a.json"), {}, "of type int: pass JSON text or the name of a file"),
    ((relu_net(), relu_net()), {}, "pass inputs too"),
    ((relu_net(), nn.Linear(4, 3).double(), X), {}, "no parameter of the same name and shape in common"),
    (("missing.json", "b.json"), {}, "cannot read 'missing.json'"), (("lenet", "b.json"), {}, "cannot read 'lenet'"),
    (("a.json", "b.json"), {"loss": "mse"}, "reports hold what was measured"),
])  # fmt: skip
def test_refusals(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message):
        hessdiag.compare(*arguments, **options)


def test_set_ups_differ_and_repeat_by_their_own_seeds_and_leave_the_random_state_alone() -> None:
    first, again = (measure_setups(SOURCE, setups=3, batch_size=4, init="fan-in") for _ in range(2))
    assert (len(first), first.to_json()) == (3, again.to_json())
    for column in first.columns.values():
        if column.any():  # standard errors of exact values are all zero
            assert len(np.unique(column[:, 0])) == 3
    three = measure_setups(SOURCE, setups=3, batch_size=4, init="fan-in", seed=5)
    last = measure_setups(SOURCE, setups=1, batch_size=4, init="fan-in", seed=7)
    np.testing.assert_array_equal(three.columns["gamma"][2], last.columns["gamma"][0])
    before = torch.get_rng_state()
    random_network(SOURCE, init="geometric", seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_inputs_and_loss_are_drawn_apart_and_targets_fit_the_outputs() -> None:
    (report,) = RandomTrials.of(SOURCE, setups=1, batch_size=4, init="fan-out", seed=3).reports()
    assert (report.model, report.init, report.data, report.seed) == ("mlp:6-5-4", "fan-out", "random normal", 3)
    prepared = prepare(SOURCE, batch_size=4, init="fan-out", seed=3)
    (inputs,), targets = prepared.batch.args, prepared.batch.targets
    assert targets is None
    weight = next(prepared.module.parameters()).detach().flatten()[:24]
    assert abs(float(torch.corrcoef(torch.stack([weight, inputs.flatten()]))[0, 1])) < 0.9
    for loss, shape in (("cross-entropy", (4,)), ("mse", (4, 4))):
        (report,) = RandomTrials.of(SOURCE, setups=1, batch_size=4, loss=loss).reports()
        assert report.loss == loss
        assert prepare(SOURCE, batch_size=4, loss=loss, seed=0).batch.targets.shape == shape
