"""`hessdiag lr` and `check-init`: on random data and a user's own, files, and what is refused."""

import json
from pathlib import Path

import pytest

from hessdiag.results.learning_rates import LearningRates
from hessdiag.results.setups import InitCheck

OWN = """
import torch


def classes():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(1)


def values():
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    return [(x[:20], x[:20, :3]), (x[20:40], x[20:40, :3]), (x[40:], x[40:, :3])]
"""


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)


def test_random_data_are_said_to_be_random_and_ones_own_are_not(run) -> None:
    status, out, err = run("lr mlp:6-8-3 --batch-size 16 --steps 4")
    assert (status, err) == (0, "")
    assert out.startswith("mlp:6-8-3: learning rates before training, weights as built, loss cross-entropy\n")
    assert "8 virtual steps on the same 32 examples: eight batches or more are better (random normal)" in out
    assert "! These rates are for random data (random normal, random targets): measure them on yours." in out
    for name in ("SGD ", "SGD, momentum 0.9", "Adam"):
        assert f"\n{name}" in out
    status, out, _ = run("lr mlp:6-8-3 --data ./own.py:classes --steps 3 --batch-size 6")
    assert status == 0
    said = "loss cross-entropy\n3 virtual steps on batches of 6 examples, measured on fresh ones (./own.py:classes)"
    assert said in out
    assert "!" not in out


def test_the_loss_is_one_that_is_trained_with(run) -> None:
    for line in ("mlp:6-8-3 --data ./own.py:values", "mlp:6-8-1", "mlp:6-8-3 --loss mse"):
        status, out, _ = run(f"lr {line} --steps 2 --json -")
        assert (status, json.loads(out)["loss"]) == (0, "mse")


def test_files(run, tmp_path: Path) -> None:
    status, out, err = run("lr mlp:6-8-3 --data ./own.py:classes --optimizer adam --json rates.json")
    assert status == 0
    rates = LearningRates.from_json(tmp_path / "rates.json")
    assert (list(rates), out) == (["adam"], repr(rates) + "\n")
    assert "wrote rates.json" in err


def test_some_layers_alone(run, tmp_path: Path) -> None:
    """A rate of the last layer alone is another one; sharpness and predictions take the same patterns."""
    rates = []
    for options in ("", " --blocks fc2", " --blocks fc*"):
        assert run(f"lr mlp:6-8-3 --steps 2 --optimizer sgd --json out.json{options}").status == 0
        rates.append(json.loads((tmp_path / "out.json").read_text())["rates"]["sgd"]["value"])
    assert rates[0] == rates[2] != rates[1]
    for command in ("predict", "sharpness"):
        assert run(f"{command} mlp:6-8-3 --blocks fc2 --json out.json").status == 0
        blocks = json.loads((tmp_path / "out.json").read_text())["blocks"]
        assert [block["name"] for block in blocks] == ["fc2.weight", "fc2.bias"]
        assert "blocks 'fc9' (--blocks) matches no block" in run(f"{command} mlp:6-8-3 --blocks fc9").err
    status, out, err = run("sharpness mlp:6-8-3 --matrix hessian --plots drawn")
    assert status == 0
    assert "λ_min is -" in out
    assert "drew drawn/density.png" in err


CONVENTIONS = """
import torch
from torch import nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight)
        nn.init.zeros_(m.bias)


def init_all(model):
    for module in model.modules():
        init_weights(module)


def init_weight(weight):
    return torch.nn.init.kaiming_normal_(weight)
"""
SAID = {
    "init_weights": "called with every module, as by model.apply",
    "init_all": "called once, with the whole model",
    "init_weight": "called with every weight, biases set to zero",
}
SMALL = "--model mlp:8-9-7-4 --setups 2 --batch-size 4"


@pytest.mark.parametrize("name", SAID)
def test_every_convention_is_understood_and_said(run, name: str, tmp_path: Path) -> None:
    """All draw the same weights by the same seed, hence the same numbers."""
    (tmp_path / "ways.py").write_text(CONVENTIONS)
    status, out, err = run(f"check-init ./ways.py:{name} {SMALL} --against ./ways.py:init_weight --json c.json")
    check = InitCheck.from_json("c.json")
    assert (status, err) == (0, "wrote c.json\n")
    assert check.checked.convention.startswith(SAID[name])
    assert check.schemes[0].setups.columns["gamma"].tolist() == check.schemes[-1].setups.columns["gamma"].tolist()
    assert f"./ways.py:{name}: {SAID[name]}" in " ".join(out.split())
    status, _, err = run(f"diagnose mlp:8-9-7-4 --batch-size 2 --init ./ways.py:{name}")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(f"hessdiag: --init ./ways.py:{name}: {SAID[name]}")


def test_check_init_writes_files(run, tmp_path: Path) -> None:
    status, out, err = run(f"check-init fan-out {SMALL} --against geometric --max-spread 1 --json c.json --plots drawn")
    assert status == 1
    assert "spread of σ² under fan-out is" in err
    assert json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))["schema"] == "hessdiag.init-check/3"
    assert repr(InitCheck.from_json("c.json")) == out.rstrip("\n")
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["init-check.png", "init-check.svg"]
    assert [line.split()[0] for line in err.splitlines()] == ["drew"] * 2 + ["wrote"] + ["hessdiag:"]
