"""`hessdiag prescribe`: what to change before training."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace

from hessdiag.cli.options import Method, Model, Rtol, Subject, grouped
from hessdiag.cli.printing import Printing


@grouped
def prescribe(model: Model, subject: Subject, printing: Printing, method: Method = "auto", rtol: Rtol = None) -> None:
    """Find scales that make all layers equally curved."""
    source, prepared = subject.prepare(model, say=printing.say)
    from hessdiag.diagnosis.prescribe import prescribe as find

    with redirect_stdout(sys.stderr):
        found = find(
            prepared.module, prepared.batches(), loss=subject.objective, mode=subject.mode, seed=subject.seed,
            method=method, rtol=rtol, progress=printing.progress, **prepared.how,
        )  # fmt: skip
    printing.show(replace(found, model=source.name, init=prepared.init, data=prepared.data))
