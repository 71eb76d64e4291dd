"""`hessdiag explain` and `diagnose --fail-on`."""

import json
from pathlib import Path

import pytest

from hessdiag.diagnosis.rules import CATALOGUE

SUNK = """
from torch import nn

def sunk(fill: float = -10.0):
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
    nn.init.constant_(model[0].bias, fill)
    return model
"""


def test_every_rule_is_explained(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    listed = run("explain").out.splitlines()
    assert [line.partition(" ")[0] for line in listed if line.startswith("HD")] == list(CATALOGUE)
    for rule, entry in CATALOGUE.items():
        status, out, err = run(f"explain {rule.lower()}")
        assert (status, err) == (0, "")
        assert " ".join(out.split()).startswith(f"{rule}: {' '.join(entry.title.split())}")
        assert " ".join(out.split()).count(" ".join(entry.parts["Threshold"].split())) == 1
        assert max(len(line) for line in out.splitlines() if "://" not in line) <= 70


def test_a_fault_fails_and_a_healthy_network_does_not(run, tmp_path: Path) -> None:
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
