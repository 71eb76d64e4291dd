"""The short commands: `hessdiag predict`, `prescribe` and `explain`; and what `diagnose --fail-on` fails on."""

import json
from importlib import import_module

import pytest

import hessdiag
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.loading.prepare import prepare
from hessdiag.models.sources import resolve_model


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
        status, out, err = run(f"explain {rule.lower()}")
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
