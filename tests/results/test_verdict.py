"""The verdict follows the gravest finding, and stands first wherever a report is shown."""

import json

import pytest

from hessdiag import Report, verdict
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.report import BlockReport
from tests.reports import build_block, build_report
from tests.signals import network

FIRST = "look first at fc1.weight and 1 more (HD202)."


def finding(severity: Severity, rule: str = "HD202", name: str = "fc1.weight") -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        blocks=(name, "fc2.weight"),
        message=f"A {severity} <b>here</b>.",
        advice="Do this.",
        value=5.0,
        threshold=4.0,
    )


def report_with(*severities: Severity) -> Report:
    return build_report(findings=tuple(map(finding, severities)), signals=network())


@pytest.mark.parametrize(
    ("severities", "level", "sentence"),
    [
        ((), "healthy", "Healthy: nothing was found that networks that train well do not show, too."),
        (("note",), "healthy", "Healthy: nothing was found that networks that train well do not show, too (1 note)."),
        (
            ("warning", "note"),
            "suspicious",
            "Suspicious: 1 warning, 1 note; " + FIRST,
        ),
        (
            ("fault", "fault", "note"),
            "faulty",
            "Faulty: 2 faults, 1 note; " + FIRST,
        ),
    ],
)
def test_the_gravest_finding_decides(severities: tuple[Severity, ...], level: str, sentence: str) -> None:
    report = report_with(*severities)
    assert (report.verdict.level, report.verdict.sentence) == (level, sentence)
    assert verdict.judge(report) == report.verdict


def test_without_signals_it_is_undecided() -> None:
    assert build_report().verdict.level == "undecided"
    assert "(ValueError: no)" in build_report(signals_missing="ValueError: no").verdict.sentence


def test_the_balance_stands_beside_it() -> None:
    found = report_with("fault").verdict
    assert found.balance.level == "undecided"  # of one block
    assert (found.notes, found.factor) == (found.balance.notes, found.balance.factor)


def test_table_page_and_json_begin_with_it() -> None:
    report = report_with("fault", "note")
    lines = repr(report).splitlines()
    assert lines[0] == report.verdict.sentence
    assert lines[1] == "  fault HD202: A fault <b>here</b>. Do this."
    page = report.to_html()
    assert 0 < page.index("Faulty: 1 fault") < page.index("A fault &lt;b&gt;here&lt;/b&gt;.") < page.index("<table")
    record = json.loads(report.to_json())
    assert list(record)[:3] == ["schema", "verdict", "findings"]
    assert Report.from_json(report.to_json()) == report


def test_many_findings_are_summed_up() -> None:
    report = report_with("fault", *["note"] * 6)
    lines = repr(report).splitlines()
    assert lines[5] == "  and 3 more: note HD202, note HD202, note HD202"


def test_a_file_from_before_still_loads() -> None:
    record = json.loads(build_report().to_json())
    for key in ("verdict", "findings", "signals", "signals_missing"):
        del record[key]
    for block in record["blocks"]:
        del block["relative_curvature"]
    assert Report.from_json(json.dumps(record)) == build_report()


def test_blocks_by_name_and_in_turn() -> None:
    second = build_block(name="fc2.weight")
    report = build_report(build_block(), second, skipped=(("norm.weight", "vector of 6"),))
    assert report["fc2.weight"] is second
    assert [block.name for block in report] == ["fc1.weight", "fc2.weight"]
    with pytest.raises(HessdiagError, match=r"no block 'norm\.weight': vector of 6"):
        report["norm.weight"]
    with pytest.raises(HessdiagError, match=r"no block 'fc3': it has 2 blocks, see report\.blocks"):
        report["fc3"]


def test_relative_curvature_is_in_the_file() -> None:
    block = build_block(numel=12, avg_sq_singular_value=2.0, weight_sq=0.5)
    assert block.relative_curvature == 12 * 2.0 * 0.25
    assert json.loads(build_report(block).to_json())["blocks"][0]["relative_curvature"] == 6.0
    assert BlockReport.from_record(block.to_record()) == block
