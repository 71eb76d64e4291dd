"""`hessdiag diagnose --junit`: held to Jenkins' schema, and to what the gate says."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from hessdiag.__main__ import main
from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.integrations.junit import render
from hessdiag.results.comparison_rules import COMPARISON_RULES
from hessdiag.results.findings import Finding
from tests.integrations.models import write_models
from tests.pages import ROOT
from tests.reports import build_report

SCHEMA = xmlschema.XMLSchema(str(ROOT / "tests" / "schemas" / "junit-10.xsd"))
SINGLE = [rule for rule in CATALOGUE if rule not in COMPARISON_RULES]


def checked(text: str) -> ET.Element:
    """Parse a file that keeps to the schema, and whose counts are right; return its suite."""
    SCHEMA.validate(text)
    root = ET.fromstring(text)
    (suite,) = root
    for element in (root, suite):
        assert int(element.attrib["tests"]) == len(suite.findall("testcase"))
        assert int(element.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(element.attrib["errors"]) == len(suite.findall("testcase/error"))
    return suite


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)


def diagnose(model: str, *options: str) -> tuple[int, ET.Element]:
    words = ["diagnose", model, "--batch-size", "16", "--loss", "cross-entropy", "--junit", "j.xml", *options]
    return main(words), checked(Path("j.xml").read_text(encoding="utf-8"))


def rules(suite: ET.Element, outcome: str = "") -> list[str]:
    cases = [case for case in suite.findall("testcase") if not outcome or case.find(outcome) is not None]
    return [case.attrib["name"].partition(" ")[0] for case in cases]


def test_a_rule_is_a_test_and_fails_with_the_gate() -> None:
    status, suite = diagnose("./nets.py:sunk")
    assert (status, rules(suite), rules(suite, "failure")) == (0, SINGLE, ["HD205", "HD402"])
    failure = suite.find("testcase/failure[@type='fault']")
    assert failure is not None
    assert failure.text is not None
    lines = failure.text.splitlines()
    assert lines[0] == "fault HD402 at 0.bias, 0.weight"
    assert lines[1] == f"seen: {failure.attrib['message']}"
    assert lines[2].startswith("do: Start the bias at zero")
    assert {case.attrib["classname"] for case in suite} == {"hessdiag.nets:sunk"}
    status, suite = diagnose("./nets.py:sunk", "--fail-on", "fault")
    assert (status, rules(suite, "failure"), rules(suite, "system-out")) == (1, ["HD402"], ["HD205"])


def test_a_healthy_network_passes_all_tests() -> None:
    status, suite = diagnose("./nets.py:network", "--fail-on", "warning")
    assert (status, rules(suite), rules(suite, "failure")) == (0, SINGLE, [])


def test_with_a_baseline_its_rules_are_tests_too() -> None:
    assert (
        main(["diagnose", "./nets.py:network", "--batch-size", "16", "--loss", "cross-entropy", "--json", "b.json"])
        == 0
    )
    status, suite = diagnose("./nets.py:network", "--arg", "fill=5.0", "--baseline", "b.json", "--fail-on", "warning")
    assert (status, rules(suite)) == (1, list(CATALOGUE))
    assert "HD601" in rules(suite, "failure")


def test_names_are_escaped() -> None:
    name = 'a<b>&"\x00\x1b]]>'
    odd = Finding(rule="HD601", severity="fault", blocks=(name,), message=name, advice=name, value=1.0, threshold=0.0)
    suite = checked(render(build_report(model=name), (odd,)))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == 'a<b>&"??]]>'
    assert 'at a<b>&"??]]>' in (failure.text or "")


def test_rules_that_could_not_be_applied_are_errors() -> None:
    suite = checked(render(build_report(signals=None, signals_missing="it raised"), ()))
    assert rules(suite, "error") == SINGLE
    assert rules(suite) == list(CATALOGUE)
    error = suite.find("testcase/error")
    assert error is not None
    assert "it raised" in error.attrib["message"]
