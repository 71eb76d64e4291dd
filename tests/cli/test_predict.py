"""hessdiag predict."""

import json
from importlib import import_module

import pytest


@pytest.mark.parametrize("moments", ["paper", "kernel"])
def test_json_on_stdout(run, moments):
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
