"""`hessdiag compare`, with real files."""

import json
from pathlib import Path

import pytest

from hessdiag.results.comparison import Comparison

NETS = """
import torch

def net(gain=1.0):
    layers = [torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
    model = torch.nn.Sequential(*layers)
    model[2].weight.data.mul_(gain)
    return model, (8,)

def louder():
    return net(10.0)

def flat():
    model, size = net()
    model[2].weight.data.fill_(0.05), model[2].bias.data.zero_()
    model[4].weight.data[:] = torch.linspace(-0.2, 0.2, 4)[:, None]  # the units are read alike, too
    return model, size

def other():
    return torch.nn.Bilinear(8, 8, 4), (8,)

def noise():
    return torch.randn(64, 8)
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")


@pytest.fixture
def measured(run) -> None:
    for name, net in (("before", "net"), ("after", "louder")):
        assert run(f"diagnose ./nets.py:{net} --batch-size 8 --json {name}.json").status == 0


def test_two_models(run, tmp_path: Path) -> None:
    status, out, err = run("compare ./nets.py:net ./nets.py:louder --batch-size 8 --json c.json")
    assert (status, err) == (0, "wrote c.json\n")
    assert "HD601 warning: 2: weights 10.0× as large" in out
    comparison = Comparison.from_json(tmp_path / "c.json")
    assert comparison.blocks[0] == "2.weight"
    assert repr(comparison) == out.rstrip("\n")


@pytest.mark.usefixtures("measured")
def test_reports_give_the_same_comparison_as_models_and_both_models_see_the_same_data(run) -> None:
    status, out, err = run("compare before.json after.json --json -")
    assert (status, err) == (0, "")
    of_models = run("compare ./nets.py:net ./nets.py:louder --batch-size 8 --json -").out
    mixed = run("compare before.json ./nets.py:louder --batch-size 8 --json -").out
    assert json.loads(out) == json.loads(of_models) == json.loads(mixed)
    equal = json.loads(run("compare ./nets.py:net ./nets.py:net --data ./nets.py:noise --batch-size 8 --json -").out)
    assert len(equal["changes"]) == 6
    assert {change["score"] for change in equal["changes"]} == {0.0}
    quick = json.loads(run("compare ./nets.py:net ./nets.py:louder --quick --batch-size 8 --json -").out)
    ratios, whole = ({c["name"]: c["ratios"] for c in each["changes"]} for each in (quick, json.loads(of_models)))
    assert ratios["2.weight"]["avg_sq_singular_value"]["value"] is None
    assert {name: each["nu"] for name, each in ratios.items()} == {name: each["nu"] for name, each in whole.items()}


@pytest.mark.usefixtures("measured")
def test_gate(run) -> None:
    for fail_on, status in {"": 0, " --fail-on fault": 0, " --fail-on warning": 1}.items():
        found = run(f"compare before.json after.json{fail_on}")
        assert found.status == status
        assert "HD601" in found.out
        assert ("hessdiag: warning HD601 at 2.weight, for --fail-on warning" in found.err) == bool(status)


@pytest.mark.parametrize(("before", "after", "status"), [("flat", "net", 0), ("net", "flat", 1)])
def test_a_repair_passes_the_gate_and_a_new_finding_does_not(run, before: str, after: str, status: int) -> None:
    """`flat` has a layer whose units are all the same (HD208)."""
    done = run(f"compare ./nets.py:{before} ./nets.py:{after} --batch-size 8 --fail-on fault")
    assert done.status == status
    first = done.out.splitlines()[0]
    assert first.startswith("new: HD208 fault:") if status else first == "resolved: HD208 2.weight (fault)"


@pytest.mark.usefixtures("measured")
def test_refusals(run, tmp_path: Path) -> None:
    (tmp_path / "nets.json").write_text("{", encoding="utf-8")
    for line, message in {
        "before.json missing.json": "cannot read 'missing.json'",
        "before.json nets.json": "is not valid JSON",
        "before.json after.json --batch-size 8": "leave out the options that say how to measure",
        "before.json after.json --eval": "leave out the options that say how to measure",
        "before.json after.json --fail-on note": "'note' is not one of 'fault', 'warning'",
        "before.json after.json --json no/c.json": "cannot write 'no/c.json': name a file in a writable folder",
        "./nets.py:net lenet": "cannot read inputs of shape",
    }.items():
        status, out, err = run(f"compare {line}")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert message in err
