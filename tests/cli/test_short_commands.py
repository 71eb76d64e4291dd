"""The short commands: `predict`, `prescribe`, `explain` and `compare`; and what `diagnose --fail-on` fails on."""

import json
from importlib import import_module
from pathlib import Path

import pytest

import hessdiag
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.loading.prepare import prepare
from hessdiag.models.sources import resolve_model
from hessdiag.results.comparison import Comparison


@pytest.mark.parametrize("moments", ["paper", "kernel"])
def test_prediction_on_stdout(run, moments):
    status, out, _ = run(f"predict mlp:20-30-5 --init fan-in --moments {moments} --json -")
    record = json.loads(out)
    assert status == 0
    assert (record["schema"], record["model"], record["moments"]) == ("hessdiag.prediction/2", "mlp:20-30-5", moments)
    assert [block["name"] for block in record["blocks"]] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]


@pytest.mark.parametrize("asked", ["--setups 3", "--compare --setups 3", "--compare"])
def test_compare_measures_too(run, tmp_path, monkeypatch, asked):
    monkeypatch.setattr(import_module("hessdiag.cli.predict"), "TRIALS", 3)  # the package holds the command
    status, out, _ = run(f"predict mlp:20-30-5 {asked} --batch-size 8 --json out.json")
    assert status == 0
    assert "mean of 3 random trials" in out
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["setups"] == 3
    assert record["prediction"]["blocks"][0]["gamma"] > 0
    assert [block["name"] for block in record["prediction"]["blocks"]] == list(record["measured"])


def test_tokens_are_taken_as_independent(run, tmp_path):
    config = {"model_type": "gpt2", "vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2}
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["GPT2LMHeadModel"]}))
    status, out, _ = run("predict hf:config.json --loss cross-entropy")
    assert status == 0
    assert "scores are taken as Gaussian and independent of the values" in out


def test_the_page_of_scales_has_numbers_before_and_after_and_code_that_makes_the_spread_fall(run):
    status, out, err = run("prescribe mlp:20-30-40-5 --batch-size 16")
    assert (status, err) == (0, "")
    said = "mlp:20-30-40-5, init as built: scales that make σ² of its weights equal; nothing was changed"
    assert out.startswith(said)
    assert "σ² before  σ² after  weight ×  input ×  or SGD lr ×" in out
    prepared = prepare(resolve_model("mlp:20-30-40-5"), batch_size=16)
    model, batches = prepared.module, list(prepared.batches())
    before = hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"]
    code = out.partition("as code:\n")[2]
    assert run("prescribe mlp:20-30-40-5 --batch-size 16 -q")[1] == code
    exec(code, {"model": model})
    assert before > 2
    assert hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"] < 1.01


def test_prescription_on_stdout_and_in_a_file(run, tmp_path):
    status, out, _ = run("prescribe mlp:20-30-5 --batch-size 8 --json -")
    record = json.loads(out)
    assert (status, record["schema"]) == (0, "hessdiag.prescription/3")
    assert record["spread"]["avg_sq_singular_value"] == pytest.approx(1, abs=1e-4)
    status, page, err = run("prescribe mlp:20-30-5 --batch-size 8 --json found.json")
    assert (status, err) == (0, "wrote found.json\n")
    assert repr(hessdiag.Prescription.from_json(tmp_path / "found.json")) + "\n" == page


SUNK = """
from torch import nn

def sunk(fill: float = -10.0):
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
    nn.init.constant_(model[0].bias, fill)
    return model
"""


def test_every_rule_is_explained(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    listed = run("explain").out.splitlines()
    assert [line.partition(" ")[0] for line in listed if line.startswith("HD")] == list(CATALOGUE)
    for rule, entry in CATALOGUE.items():
        status, out, err = run(f"explain {rule.lower() if rule < 'HD2' else rule[2:]}")
        assert (status, err) == (0, "")
        assert " ".join(out.split()).startswith(f"{rule}: {' '.join(entry.title.split())}")
        assert " ".join(out.split()).count(" ".join(entry.parts["Threshold"].split())) == 1
        assert max(len(line) for line in out.splitlines() if "://" not in line) <= 70


def test_a_fault_fails_and_a_healthy_network_does_not(run, tmp_path):
    (tmp_path / "sunk.py").write_text(SUNK)
    line = "diagnose sunk.py:sunk --input-size 4 --batch-size 16 --fail-on warning"
    status, out, err = run(line)
    assert (status, err) == (1, "hessdiag: fault HD402 at 0.bias, for --fail-on warning\n")
    assert out.startswith("1 fault")
    status, out, _ = run(f"{line} --arg fill=0.0 --json -")
    record = json.loads(out)
    assert (status, record["verdict"]["level"]) == (0, "no-problem")
    assert list(record)[:4] == ["schema", "verdict", "spread", "findings"]
    assert record["signals"]["layers"][0]["path"] == "0"


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
    assert (comparison.blocks[0], repr(comparison)) == ("2.weight", out.rstrip("\n"))


@pytest.mark.usefixtures("measured")
def test_reports_give_the_same_comparison_as_models_and_both_models_see_the_same_data(run) -> None:
    status, out, err = run("compare before.json after.json --json -")
    assert (status, err) == (0, "")
    of_models = run("compare ./nets.py:net ./nets.py:louder --batch-size 8 --json -").out
    mixed = run("compare before.json ./nets.py:louder --batch-size 8 --json -").out
    assert json.loads(out) == json.loads(of_models) == json.loads(mixed)
    equal = json.loads(run("compare ./nets.py:net ./nets.py:net --data ./nets.py:noise --batch-size 8 --json -").out)
    assert (len(equal["changes"]), {change["score"] for change in equal["changes"]}) == (6, {0.0})
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
