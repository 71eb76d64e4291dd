"""`hessdiag compare`: what changed between two reports, or between two models on the same inputs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli.options import Curvature, FailOn, Subject, grouped
from hessdiag.cli.printing import Printing, gate_findings
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.results.comparison import Comparison

Before = Annotated[str, typer.Argument(metavar="BEFORE", help="JSON file of a report, or a MODEL as in diagnose")]
After = Annotated[str, typer.Argument(metavar="AFTER", help="another one of the same kind")]


@grouped
def compare(
    before: Before, after: After, subject: Subject, curvature: Curvature, printing: Printing, fail_on: FailOn = None
) -> None:
    """Name the layers that changed between two reports, or between two models on the same inputs."""
    reports = [is_report(side) for side in (before, after)]
    if any(reports) and not all(reports):
        raise HessdiagError(f"of {before} and {after} one is a report and one a model: pass two of a kind")
    if all(reports):
        if (subject, curvature) != (Subject(), Curvature()):
            raise HessdiagError("reports are measured: leave out the options that say how to measure")
        from hessdiag.results.comparison import compare_reports
        from hessdiag.results.report import Report

        comparison = compare_reports(Report.from_json(before), Report.from_json(after))
    else:
        comparison = _compare_models(before, after, subject, curvature, printing)
    printing.show(comparison)
    gate_findings((*comparison.new, *comparison.findings), fail_on)


def is_report(side: str) -> bool:
    """Whether an argument names a report, not a model.

    >>> is_report("runs/before.json"), is_report("hf:config.json"), is_report("lenet")
    (True, False, False)
    """
    return side.endswith(".json") and not side.startswith("hf:")


def _compare_models(before: str, after: str, subject: Subject, curvature: Curvature, printing: Printing) -> Comparison:
    """Measure two models on the batch of the first: a function of random data returns another each time."""
    from hessdiag.diagnosis.diagnose import diagnose_prepared
    from hessdiag.results.comparison import compare_reports

    prepared = [subject.prepare(name, say=printing.say) for name in (before, after)]
    first = prepared[0][1]
    reports = []
    for source, ready in prepared:
        same = replace(ready, batch=first.batch, data=first.data)
        settings = {"loss": subject.objective, "mode": subject.mode, "seed": subject.seed, **asdict(curvature)}
        with redirect_stdout(sys.stderr):
            reports.append(diagnose_prepared(same, source, progress=printing.progress, **settings))
    return compare_reports(*reports)
