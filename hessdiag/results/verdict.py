"""The diagnosis in a sentence: is the network healthy, and how equally are its blocks curved?

The level comes from the findings alone. The balance of the blocks, see `hessdiag.results.balance`, stands beside it:
healthy networks are unbalanced by many orders of magnitude.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hessdiag.arguments import check_kind
from hessdiag.results.balance import weigh
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.judgement import Verdict, VerdictLevel
from hessdiag.results.report import Report


def judge(report: Report) -> Verdict:
    """Judge a report, from its numbers alone: the same as `report.verdict`.

    Args:
        report: of any network.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or Report.from_json(file)")
    level, sentence = _judge(report)
    return Verdict(level=level, sentence=sentence, balance=weigh(report))


def _judge(report: Report) -> tuple[VerdictLevel, str]:
    if report.signals is None:
        why = report.signals_missing or "the report was written without them"
        return "undecided", f"Undecided: nothing is known of the signals in the network ({why})."
    return judge_findings(report.findings)


def judge_findings(findings: Sequence[Finding]) -> tuple[VerdictLevel, str]:
    """Judge findings on a network whose signals are known: level and sentence.

    >>> judge_findings([])[0]
    'healthy'
    """
    counts = Counter(finding.severity for finding in findings)
    said = [f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}" for kind in GRAVITY if counts[kind]]
    if not counts["fault"] and not counts["warning"]:
        notes = f" ({said[0]})" if said else ""
        return "healthy", f"Healthy: nothing was found that networks that train well do not show, too{notes}."
    first = findings[0]
    level: VerdictLevel = "faulty" if counts["fault"] else "suspicious"
    return level, f"{level.capitalize()}: {', '.join(said)}; look first at {_where(first)} ({first.rule})."


def _where(finding: Finding) -> str:
    """The block that a reader should look at first."""
    more = len(finding.blocks) - 1
    name = finding.blocks[0] if finding.blocks else "the model"
    return name + (f" and {more} more" if more > 0 else "")
