"""Initialisations of LeNet ranked, the spoilt one found and mended, and what cannot be compared refused."""

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hessdiag
from hessdiag import check_init, diagnose, init, predict, surgery
from hessdiag.__main__ import main
from hessdiag.models import StridedLeNet
from hessdiag.models.sources import resolve_model
from hessdiag.results.setups import InitCheck, variance_factors
from tests.networks import Net

LENET = ("conv1", "conv2", "fc1", "fc2", "fc3")
FACTORS = {"fc2": 10.0, "conv1": 10.0, "fc3": 0.1}  # on the standard deviation of one layer
SIZES = {tuple(p.shape): name.split(".")[0] for name, p in StridedLeNet().named_parameters()}


def spoilt(layer: str, more: float = 1.0):
    """Geometric-mean initialisation of LeNet with one layer's standard deviation multiplied."""

    def fill(weight: torch.Tensor) -> None:
        init.geometric_mean_(weight, c=2 / 5)
        if SIZES[tuple(weight.shape)] == layer:
            weight.mul_(FACTORS[layer] * more)

    fill.__name__ = f"spoilt_{layer}"
    return fill


@pytest.fixture(scope="module")
def lenet() -> InitCheck:
    return check_init("geometric", model="lenet", against=[*init.SCHEMES, "fan-geo-avg"], setups=10, batch_size=16)


def test_the_ranking_of_lenet(lenet: InitCheck) -> None:
    assert [scheme.init for scheme in lenet.schemes] == ["geometric", "fan-in", "fan-geo-avg", "arithmetic", "fan-out"]
    expected = {"geometric": 1.2, "fan-in": 7.6, "arithmetic": 26, "fan-out": 470, "fan-geo-avg": 25}
    for scheme in lenet.schemes:
        assert scheme.spread().value == pytest.approx(expected[scheme.init], rel=0.35)
        assert 0 < scheme.spread().low <= scheme.spread().value <= scheme.spread().high
    assert (lenet.rank, lenet.level) == (1, "balanced")
    gamma = next(scheme for scheme in lenet.schemes if scheme.init == "fan-geo-avg").means("gamma")
    assert gamma[:2].mean() / gamma[2:].mean() == pytest.approx(25, rel=0.2)  # convolutions apart from linear layers
    small: dict[str, Any] = {"setups": 2, "batch_size": 4}
    mine = check_init("fan-out", model="mlp:6-5-4", against=[], **small).checked.setups
    assert mine.to_json() == hessdiag.measure_setups(resolve_model("mlp:6-5-4"), init="fan-out", **small).to_json()
    # Fan-in initialisation keeps E[x²] from layer to layer, apart from E[y²] = 2 E[x²] behind the last ReLU's half.
    fan_in = next(scheme for scheme in lenet.schemes if scheme.init == "fan-in")
    assert fan_in.output_sq_mean == pytest.approx(2, rel=0.4)
    assert fan_in.saturates
    geometric = lenet.schemes[0]
    assert not geometric.saturates
    assert geometric.ratio == pytest.approx(1, abs=0.4)


def test_a_spoilt_layer_is_named_and_the_fix_mends_it(lenet: InitCheck) -> None:
    for layer, factor in FACTORS.items():
        check = check_init(spoilt(layer), model="lenet", against=[], setups=4, batch_size=16)
        worst, variance = next(iter(check.variance_factors.items()))
        assert worst == f"{layer}.weight"
        assert (variance, check.level) == (pytest.approx(factor**-2, rel=0.5), "unbalanced")
        assert f"{layer}.weight is the farthest" in check.verdict
        assert f"from {layer}.weight to " in check.verdict or f" to {layer}.weight." in check.verdict
        assert f"multiply its variance by {variance:.3g}." in check.verdict
        mended = spoilt(layer, math.sqrt(variance))
        after = check_init(mended, model="lenet", against=[], setups=4, batch_size=16)
        assert after.checked.spread().value < 1.5 * lenet.checked.spread().value


def test_a_fix_with_its_factor_leaves_the_network_and_the_other_layers_alone() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 4)).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    before, y = diagnose(model, x).weights, model(x)
    sigma = np.array([before[1].avg_sq_singular_value, before[0].avg_sq_singular_value])
    factor = variance_factors(["2.weight", "0.weight"], sigma)["2.weight"]
    model[2].weight.data.mul_(math.sqrt(factor))
    surgery.insert_scale(model, factor**-0.5, before="2")
    torch.testing.assert_close(model(x), y)
    sigma = [block.avg_sq_singular_value for block in diagnose(model, x).weights]
    assert sigma[0] == pytest.approx(before[0].avg_sq_singular_value, rel=1e-9)
    assert (sigma[2], sigma[1]) == pytest.approx((before[2].avg_sq_singular_value, sigma[0]), rel=1e-9)


def test_the_table_has_a_row_for_each_and_the_verdict_and_json_gives_it_back(lenet: InitCheck, tmp_path: Path) -> None:
    text = repr(lenet)
    assert max(map(len, text.splitlines())) <= 120
    table = text.partition("\ninitialisation ")[2]
    rows = [line.split()[0] for line in table.splitlines() if line.startswith(("geo", "fan", "arith"))]
    assert rows[:5] == [scheme.init for scheme in lenet.schemes]
    assert "geometric *" in text
    assert " ".join(text.split()).startswith(lenet.verdict)
    assert "balanced, σ² within" in lenet.verdict
    assert "Rank 1 of 5." in lenet.verdict
    written, again = lenet.to_json(tmp_path / "check.json"), InitCheck.from_json(tmp_path / "check.json")
    assert (repr(again), again.to_json()) == (text, written)
    with pytest.raises(hessdiag.HessdiagError, match=r"expected 'hessdiag\.init-check/3'"):
        InitCheck.from_json('{"schema": "hessdiag.report/1"}')


def dead(weight: torch.Tensor) -> None:
    nn.init.zeros_(weight) if weight.shape[0] == 3 else nn.init.normal_(weight)


@pytest.mark.parametrize(("how", "model", "levels", "words"), [
    (dead, "mlp:6-5-3", ("unbalanced", "undecided"), "no curvature"),
    ("fan-in", "mlp:6-3", ("undecided",), "nothing to compare"),
])  # fmt: skip
def test_where_nothing_can_be_balanced_it_is_said(how, model: str, levels: tuple[str, ...], words: str) -> None:
    check = check_init(how, model=model, against=[], setups=2, batch_size=4)
    assert check.level in levels
    assert words in check.verdict
    assert check.variance_factors == {}
    assert repr(check)


def test_an_embedding_counts_as_a_layer() -> None:
    def words() -> nn.Module:
        layers = {"embed": nn.Embedding(9, 5), "first": nn.Linear(5, 6), "last": nn.Linear(6, 3)}
        nn.init.normal_(layers["embed"].weight, std=0.01)
        return Net(lambda m, x: m.last(m.first(m.embed(x.argmax(1))).relu()), **layers)

    check = check_init("fan-in", model=lambda: (words(), 9), against=[], setups=2, batch_size=4)
    assert next(iter(check.variance_factors)) == "embed.weight"
    assert "embed.weight is the farthest" in check.verdict


def test_the_farthest_from_the_middle_is_blamed() -> None:
    name, factor = next(iter(variance_factors(["a", "b", "c", "d"], np.array([1.0, 2.0, 1.0, 0.001])).items()))
    assert name == "d"
    assert factor**2 == pytest.approx(0.001)  # the median of the others is 1
    assert variance_factors(["a"], np.array([1.0])) == {}
    assert variance_factors(["a", "b"], np.array([1.0, 0.0])) == {}
    both = list(variance_factors(list("abcde"), np.array([1e4, 1.0, 1.0, 1.0, 1e-4])).items())
    assert dict(both[:2]) == pytest.approx({"a": 100.0, "e": 0.01})


@pytest.mark.parametrize(("options", "message"), [
    ({"setups": 0}, "setups 0: pass at least 1"),
    ({"against": ["fan-inn"]}, "unknown initialisation 'fan-inn': did you mean fan-in"),
    ({"against": ["geometric", lambda w: None, lambda w: None]}, "two initialisations are called '<lambda>'"),
    ({"model": nn.Linear(2, 2)}, "already built"),
])  # fmt: skip
def test_what_cannot_be_is_refused(options, message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=message):
        check_init("fan-in", **({"model": "mlp:4-3-2", "setups": 1, "batch_size": 2, "against": []} | options))


def normalised(first: float = 1.0) -> tuple[nn.Module, tuple[int, ...]]:
    """Batch norm sees no scale, layer norm that of a weight with a bias beside it."""
    stem = [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6)]
    rest = [nn.LayerNorm(6), nn.Linear(6, 5, bias=False), nn.LayerNorm(5), nn.Linear(5, 3)]
    stem[0].weight.data.mul_(first)
    return nn.Sequential(OrderedDict(zip("abcdefghi", [*stem, *rest], strict=True))), (2, 6, 6)


def test_every_command_leaves_out_the_same_weights_before_normalisations() -> None:
    said = "2 layers before a normalisation do not count: scale does not matter there."
    model, size = normalised()
    report = diagnose(model, torch.randn(8, *size))
    check = check_init("as built", model=normalised, against=[], setups=2)
    assert report.verdict.balance.sentence.endswith(said)
    assert predict(model, size).design.endswith(said)
    assert check.checked.invariant == ("a.weight", "g.weight")
    assert said in check.verdict
    assert set(check.variance_factors) == {"e.weight", "i.weight"}
    spoilt = check_init("as built", model=normalised, arguments={"first": 100.0}, against=[], setups=2)
    assert spoilt.spread == pytest.approx(check.spread, rel=1e-3)


TWO_INPUTS = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.o = torch.nn.Linear(4, 8), torch.nn.Embedding(9, 8), torch.nn.Linear(8, 3)

    def forward(self, x, n):
        return self.o((self.a(x) + self.b(n)).tanh())

def data():
    return {"x": torch.randn(16, 4), "n": torch.randint(9, (16,))}, torch.randint(3, (16,))
"""


def test_networks_of_several_inputs_are_tried_on_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO_INPUTS)
    names = {"model": f"{file}:Two", "data": f"{file}:data"}
    check = hessdiag.check_init("fan-in", against=["fan-out"], setups=2, progress=False, **names)
    command = ["check-init", "fan-in", "--against", "fan-out", "--setups", "2", "-q", "--json", str(tmp_path / "json")]
    main([*command, "--model", names["model"], "--data", names["data"]])
    mine, theirs = (json.loads(text)["schemes"] for text in (check.to_json(), (tmp_path / "json").read_text()))
    assert mine == theirs
