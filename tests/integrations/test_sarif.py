"""`hessdiag diagnose --sarif`: held to the schema of OASIS, and to what viewers need beyond it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hessdiag.__main__ import main
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.integrations.definition import Definition, find_definition
from hessdiag.integrations.sarif import render
from hessdiag.results.findings import Finding
from tests.integrations.models import DEFINED_AT, write_models
from tests.pages import ROOT
from tests.reports import build_report

SCHEMA = json.loads((ROOT / "tests" / "schemas" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
ODD = Finding(
    rule="HD301",
    severity="note",
    blocks=('a"\n<b>.weight', "é\x00"),
    message="m",
    advice="a",
    value=math.inf,
    threshold=0,
)


def checked(text: str) -> dict[str, Any]:
    """Parse a log that keeps to the schema; return its run."""
    log = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def diagnose(model: str, *options: str) -> int:
    return main(["diagnose", model, "--batch-size", "16", "--loss", "cross-entropy", *options])


def test_findings_stand_at_the_parameters_and_where_the_network_is_defined(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnose("./nets.py:sunk", "--sarif", "s.sarif", "--json", "r.json") == 0
    assert capsys.readouterr().err == "wrote r.json\nwrote s.sarif\n"
    run = checked(Path("s.sarif").read_text(encoding="utf-8"))
    findings = json.loads(Path("r.json").read_text(encoding="utf-8"))["findings"]
    assert [finding["rule"] for finding in findings] == ["HD402", "HD205"]
    for result, finding in zip(run["results"], findings, strict=True):
        assert result["ruleId"] == finding["rule"]
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == finding["rule"]
        assert result["level"] == {"fault": "error", "warning": "warning"}[finding["severity"]]
        assert finding["message"] in result["message"]["text"]
        assert finding["advice"] in result["message"]["text"]
        assert result["properties"] == finding
        names = [place["logicalLocations"][0]["fullyQualifiedName"] for place in result["locations"]]
        assert names == finding["blocks"]
        for place in result["locations"]:  # without a file, code scanning refuses a result
            assert place["physicalLocation"]["artifactLocation"]["uri"] == "nets.py"
            assert place["physicalLocation"]["region"] == {"startLine": DEFINED_AT}
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert run["properties"]["verdict"] == "faulty"


def test_every_rule_is_listed_with_its_text() -> None:
    rules = checked(render(build_report()))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CATALOGUE)
    for rule in rules:
        entry = CATALOGUE[rule["id"]]
        assert rule["shortDescription"]["text"] == f"{entry.title}."
        assert " ".join(entry.repair.split()) in " ".join(rule["help"]["text"].split())


def test_a_healthy_network_has_no_results() -> None:
    assert diagnose("./nets.py:network", "--sarif", "s.sarif") == 0
    assert checked(Path("s.sarif").read_text(encoding="utf-8"))["results"] == []


def test_what_changed_since_a_baseline_is_a_result_too() -> None:
    assert diagnose("./nets.py:network", "--json", "before.json") == 0
    options = ("--arg", "fill=5.0", "--baseline", "before.json", "--sarif", "s.sarif", "--fail-on", "warning")
    assert diagnose("./nets.py:network", *options) == 1  # written before the gate fails
    rules = [result["ruleId"] for result in checked(Path("s.sarif").read_text(encoding="utf-8"))["results"]]
    assert "HD601" in rules


def test_odd_names_and_numbers_are_kept_to_the_format() -> None:
    (result,) = checked(render(build_report(model="a b/é"), (ODD,), definition=Definition("é d/n.py", 3)))["results"]
    names = [place["logicalLocations"][0]["fullyQualifiedName"] for place in result["locations"]]
    assert names == list(ODD.blocks)
    assert result["level"] == "note"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "%C3%A9%20d/n.py"
    assert result["properties"]["value"] == "inf"


def test_a_finding_on_the_whole_model_has_a_place() -> None:
    whole = Finding(rule="HD105", severity="warning", blocks=(), message="m", advice="a", value=1.0, threshold=0.0)
    (result,) = checked(render(build_report(), (whole,)))["results"]
    assert result["locations"] == [
        {"logicalLocations": [{"name": "hand-made", "fullyQualifiedName": "hand-made", "kind": "module"}]}
    ]


def test_a_fingerprint_does_not_depend_on_numbers_or_on_the_order_of_names() -> None:
    def fingerprint(**changes: Any) -> str:
        finding = Finding(
            **{"rule": "HD301", "severity": "note", "blocks": ("a", "b"), "message": "m", "advice": "a"} | changes,
            value=changes.get("value", 1.0),
            threshold=0.0,
        )
        (result,) = checked(render(build_report(), (finding,)))["results"]
        return str(result["partialFingerprints"]["hessdiagFinding/v1"])

    assert fingerprint() == fingerprint(message="n", blocks=("b", "a"))
    assert len({fingerprint(), fingerprint(rule="HD401"), fingerprint(blocks=("a",))}) == 3


def test_rules_that_could_not_be_applied_are_no_clean_bill() -> None:
    run = checked(render(build_report(signals=None, signals_missing="it raised")))
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "it raised" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


def test_a_definition_is_found_in_this_folder_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_definition("./nets.py:sunk") == Definition("nets.py", DEFINED_AT)
    for elsewhere in ("lenet", "mlp:4-3", "./nets.py:none", "math:sqrt", "json:dumps", "torch.nn:Linear"):
        assert find_definition(elsewhere) is None
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert find_definition("../nets.py:sunk") is None


def test_a_file_that_cannot_be_written_is_refused_before_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnose("./nets.py:sunk", "--sarif", "no/s.sarif") == 2
    assert capsys.readouterr().err == "hessdiag: cannot write 'no/s.sarif': there is no folder 'no'\n"
