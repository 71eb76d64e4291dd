"""Findings as JUnit XML, which servers for continuous integration show as tests.

A rule is a test case, so that the list is the same in every run and a viewer can tell since when one fails. It fails
with what would end `--fail-on`; what is less grave stands in its output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from hessdiag.diagnosis.rules import CATALOGUE
from hessdiag.results.comparison_rules import COMPARISON_RULES
from hessdiag.results.findings import Finding, Severity, is_as_grave
from hessdiag.results.report import Report

NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not even escaped
TIME = "0"  # rules read numbers that are there


def render(report: Report, changes: Sequence[Finding] | None = None, *, fail_on: Severity = "warning") -> str:
    """Write the findings of a report as JUnit XML.

    Args:
        report: of `hessdiag.diagnose`.
        changes: findings of a comparison with an earlier report; None where there was none.
        fail_on: findings as grave as that, or graver, fail their test case.
    """
    applied = list(CATALOGUE) if changes is not None else [rule for rule in CATALOGUE if rule not in COMPARISON_RULES]
    findings = [*report.findings, *(changes or ())]
    suite = ET.Element("testsuite", name=_text(f"hessdiag {report.model}"))
    for rule in applied:
        case = ET.SubElement(
            suite, "testcase", classname=_class_name(report.model), name=f"{rule} {CATALOGUE[rule].title}", time=TIME
        )
        of_rule = [finding for finding in findings if finding.rule == rule]
        if report.signals is None and rule not in COMPARISON_RULES:
            ET.SubElement(case, "error", type="undecided", message=_text(report.verdict.sentence))
        elif of_rule:
            _tell(case, of_rule, fail_on)
    counts = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    numbers = {key: str(len(suite.findall(path))) for key, path in counts.items()}
    suite.attrib.update(numbers, skipped="0", time=TIME)
    suites = ET.Element("testsuites", {"name": "hessdiag", **numbers, "time": TIME})
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _tell(case: ET.Element, findings: Sequence[Finding], fail_on: Severity) -> None:
    """A failure for what is grave, which makes the case fail; the rest as output."""
    grave = [finding for finding in findings if is_as_grave(finding, fail_on)]
    if grave:
        failure = ET.SubElement(case, "failure", type=grave[0].severity, message=_text(grave[0].message))
        failure.text = _text("\n\n".join(map(describe, grave)))
    if rest := [finding for finding in findings if finding not in grave]:
        ET.SubElement(case, "system-out").text = _text("\n\n".join(map(describe, rest)))


def describe(finding: Finding) -> str:
    """Tell one finding in lines: how grave, where, what is seen, what to do."""
    return "\n".join(
        [
            f"{finding.severity} {finding.rule} at {', '.join(finding.blocks) or 'the model'}",
            f"seen: {finding.message}",
            f"do: {finding.advice}",
        ]
    )


def _class_name(model: str) -> str:
    """A name that viewers cut into packages at its dots.

    >>> _class_name("./nets/small.py:net"), _class_name("lenet")
    ('hessdiag.nets.small:net', 'hessdiag.lenet')
    """
    parts = re.split(r"[/\\]", model.replace(".py:", ":"))
    return _text(".".join(["hessdiag", *(part for part in parts if part.strip("."))]))


def _text(text: str) -> str:
    """Replace what XML has no form for, such as control characters in a parameter's name."""
    return NOT_XML.sub("?", text)
