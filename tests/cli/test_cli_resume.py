"""Figures and checks over many set-ups go on where they were."""

from pathlib import Path

import pytest

from hessdiag.__main__ import main


def test_an_initialisation_check_resumes_by_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["check-init", "geometric", "--model", "mlp:8-9-4", "--setups", "2", "--batch-size", "4"]
    resumed = [*command, "--resume", "run"]
    assert main([*command, "--json", "plain.json"]) == 0
    assert main([*resumed, "--json", "first.json"]) == 0
    again = "hessdiag.diagnosis.random_setups.diagnose_prepared"
    monkeypatch.setattr(again, lambda *_, **__: pytest.fail("measured again"))
    assert main([*resumed, "--json", "second.json"]) == 0
    assert Path("first.json").read_text() == Path("second.json").read_text() == Path("plain.json").read_text()


def test_a_comparison_with_predictions_resumes_by_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["predict", "mlp:8-9-4", "--init", "geometric", "--compare", "--setups", "2", "--batch-size", "4"]
    resumed = [*command, "--resume", "run"]
    assert main([*resumed, "--json", "first.json"]) == 0
    fresh = "hessdiag.diagnosis.random_setups.diagnose_prepared"
    monkeypatch.setattr(fresh, lambda *_, **__: pytest.fail("measured again"))
    assert main([*resumed, "--json", "second.json"]) == 0
    assert Path("first.json").read_text() == Path("second.json").read_text()
    assert main([*command[:4], "--resume", "run"]) == 2  # nothing to resume without --compare
