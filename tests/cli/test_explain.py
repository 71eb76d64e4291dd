"""`hessdiag explain` and `diagnose --fail-on`."""

import json
from pathlib import Path
from textwrap import dedent

import pytest

from hessdiag.__main__ import main
from hessdiag.diagnosis.rules import CATALOGUE

SUNK = """
    from torch import nn

    def sunk(fill: float = -10.0):
        model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 3))
        nn.init.constant_(model[0].bias, fill)
        return model
"""


@pytest.fixture
def sunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sunk.py").write_text(dedent(SUNK))
    monkeypatch.chdir(tmp_path)
    return "sunk.py:sunk"


def test_every_rule_is_explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in listed if line.startswith("HD")] == list(CATALOGUE)
    for rule, entry in CATALOGUE.items():
        assert main(["explain", rule.lower()]) == 0
        out, err = capsys.readouterr()
        assert " ".join(out.split()).startswith(f"{rule}: {' '.join(entry.title.split())}")
        assert " ".join(out.split()).count(" ".join(entry.parts["Threshold"].split())) == 1
        assert max(len(line) for line in out.splitlines() if "://" not in line) <= 70
        assert not err


def diagnose(model: str, *options: str) -> int:
    return main(["diagnose", model, "--input-size", "4", "--batch-size", "16", *options])


def test_a_fault_fails_and_a_healthy_network_does_not(sunk: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnose(sunk, "--fail-on", "warning") == 1
    out, err = capsys.readouterr()
    assert out.startswith("1 fault")
    assert err == "hessdiag: fault HD402 at 0.bias, for --fail-on warning\n"
    assert diagnose(sunk, "--arg", "fill=0.0", "--fail-on", "warning", "--json", "-") == 0
    record = json.loads(capsys.readouterr().out)
    assert list(record)[:4] == ["schema", "verdict", "spread", "findings"]
    assert record["verdict"]["level"] == "no-problem"
    assert record["signals"]["layers"][0]["path"] == "0"
