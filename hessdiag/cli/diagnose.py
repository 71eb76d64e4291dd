"""`hessdiag diagnose`: measure one network on one batch."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

from hessdiag.cli.options import Csv, Curvature, FailOn, Fit, Html, MaxSpread, Model, Plots, Subject, grouped
from hessdiag.cli.printing import Printing, fail, gate_findings, gate_spread
from hessdiag.errors import HessdiagError


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
