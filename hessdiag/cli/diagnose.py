"""`hessdiag diagnose`, one network on one batch; `compare`, what changed between two of these, or of their reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli.options import Csv, Curvature, FailOn, Fit, Html, MaxSpread, Model, Plots, Subject, grouped
from hessdiag.cli.printing import Printing, fail, gate_findings, gate_spread
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.results.report import Report

Before = Annotated[str, typer.Argument(metavar="BEFORE", help="JSON file of a report, or a MODEL as in diagnose")]
After = Annotated[str, typer.Argument(metavar="AFTER", help="another one")]


@grouped
def diagnose(
    model: Model, subject: Subject, curvature: Curvature, printing: Printing, csv: Csv = "",
    html: Html = "", plots: Plots = "", max_spread: MaxSpread = None, fit: Fit = False, fail_on: FailOn = None,
) -> None:  # fmt: skip
    """Measure MODEL: verdict, findings and a table of its layers."""
    if curvature.quick and max_spread is not None:
        raise HessdiagError("--max-spread is of the curvature, which --quick leaves out: pass one of them")
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag
    from hessdiag.diagnosis.diagnose import diagnose_prepared
    from hessdiag.parallel.processes import launched

    with launched(subject.torch_device) as processes, redirect_stdout(sys.stderr):
        report = diagnose_prepared(
            prepared, source, loss=subject.objective, mode=subject.mode, seed=subject.seed,
            distributed=processes.size > 1, fit=fit, progress=printing.progress, **asdict(curvature),
        )  # fmt: skip
    if processes.rank > 0:
        return

    def figures() -> dict[str, Any]:
        maps = {"heatmap": hessdiag.plots.draw_heatmap(report)} if report.heatmap.names else {}
        return maps | {"layers": hessdiag.plots.draw_layers(report)}

    printing.draw(figures, plots)
    printing.show(report, csv=csv, html=html)
    gate_spread(report.spread["avg_sq_singular_value"], max_spread)
    if fail_on and report.signals is None:
        fail(f"{report.verdict.sentence.rstrip('.')}, for --fail-on {fail_on}")
    gate_findings(report.findings, fail_on)


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
