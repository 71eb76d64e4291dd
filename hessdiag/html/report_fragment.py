"""What a notebook shows of a report: verdict, findings and table, without a page around them."""

from __future__ import annotations

from hessdiag.html.environment import environment
from hessdiag.results.report import Report
from hessdiag.results.text_table import grouped
from hessdiag.tables.report_table import COLUMNS, balance, header, measured, rows

MAX_OPEN = 40  # blocks; the table of more is shown when it is clicked
COLOURS = {"healthy": "#2e8b57", "suspicious": "#c77700", "faulty": "#d03030", "undecided": "#808080"}
SEVERITIES = {"fault": COLOURS["faulty"], "warning": COLOURS["suspicious"], "note": COLOURS["undecided"]}
TEXTS = COLUMNS[:2]  # columns aligned on the left


def render(report: Report) -> str:
    """Write the fragment; every text of the model in it is escaped."""
    verdict = report.verdict
    return (
        environment()
        .get_template("report_fragment.html.jinja")
        .render(
            level=verdict.sentence.partition(":")[0],
            sentence=verdict.sentence.partition(":")[2],
            colour=COLOURS[verdict.level],
            findings=[(finding, SEVERITIES[finding.severity]) for finding in report.findings],
            header=[line for line in header(report) if line],
            opened=len(report) <= MAX_OPEN,
            columns=COLUMNS,
            left=TEXTS,
            rows=rows(report),
            footer=[*measured(report), *balance(report)],
            skipped=[line.strip() for line in grouped("", report.skipped)[1:]],
            count=len(report.skipped),
        )
    )
