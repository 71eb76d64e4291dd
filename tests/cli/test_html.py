"""`hessdiag diagnose --html`: the page beside the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hessdiag import to_html
from hessdiag.__main__ import main
from hessdiag.results.report import Report

SMALL = ["diagnose", "mlp:6-5-4", "--batch-size", "4"]


def test_saves_the_page_and_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, json = tmp_path / "page.html", tmp_path / "report.json"
    assert main([*SMALL, "--html", str(page), "--json", str(json)]) == 0
    said = capsys.readouterr()
    assert "spread over weight blocks" in said.out
    assert str(page) in said.err
    assert page.read_text(encoding="utf-8") == to_html(Report.from_json(json))


def test_goes_with_json_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--html", str(tmp_path / "page.html"), "--json", "-"]) == 0
    report = Report.from_json(capsys.readouterr().out)
    assert to_html(report) == (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["missing/page.html", "."])
def test_refuses_a_place_that_cannot_be_written_before_measuring(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hessdiag.diagnosis.diagnose.diagnose_prepared", lambda *args, **options: pytest.fail("measured")
    )
    assert main([*SMALL, "--html", str(tmp_path / target)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"hessdiag: cannot write .*\n", error)


def test_is_saved_also_when_the_gate_fails(tmp_path: Path) -> None:
    assert main([*SMALL, "--html", str(tmp_path / "page.html"), "--max-spread", "1.0001"]) == 1
    assert (tmp_path / "page.html").exists()
