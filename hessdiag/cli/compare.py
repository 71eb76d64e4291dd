"""`hessdiag compare`: what changed between two reports, or between two models on the same inputs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.cli.options import Curvature, FailOn, Subject, grouped
from hessdiag.cli.printing import Printing, gate_findings
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.results.report import Report

Before = Annotated[str, typer.Argument(metavar="BEFORE", help="JSON file of a report, or a MODEL as in diagnose")]
After = Annotated[str, typer.Argument(metavar="AFTER", help="another one")]


@grouped
def compare(
    before: Before, after: After, subject: Subject, curvature: Curvature, printing: Printing, fail_on: FailOn = None
) -> None:
    """Name what changed between two reports, or between two models."""
    from hessdiag.results.comparison import compare_reports
    from hessdiag.results.report import Report

    sides = (before, after)
    models = [side for side in sides if not is_report(side)]
    if not models and (subject, curvature) != (Subject(), Curvature()):
        raise HessdiagError("reports are measured: leave out the options that say how to measure")
    measured = iter(_measure(models, subject, curvature, printing))
    comparison = compare_reports(*(Report.from_json(side) if is_report(side) else next(measured) for side in sides))
    printing.show(comparison)
    gate_findings((*comparison.new, *comparison.findings), fail_on)


def is_report(side: str) -> bool:
    """Whether an argument names a report, not a model.

    >>> is_report("runs/before.json"), is_report("hf:config.json"), is_report("lenet")
    (True, False, False)
    """
    return side.endswith(".json") and not side.startswith("hf:")


def _measure(models: Sequence[str], subject: Subject, curvature: Curvature, printing: Printing) -> list[Report]:
    """Measure models on the batch of the first: a function of random data returns another each time."""
    from hessdiag.diagnosis.diagnose import diagnose_prepared

    prepared = [subject.prepare(name, say=printing.say) for name in models]
    reports = []
    for source, ready in prepared:
        same = replace(ready, batch=prepared[0][1].batch, data=prepared[0][1].data)
        settings = {"loss": subject.objective, "mode": subject.mode, "seed": subject.seed, **asdict(curvature)}
        with redirect_stdout(sys.stderr):
            reports.append(diagnose_prepared(same, source, progress=printing.progress, **settings))
    return reports
