"""`hessdiag describe`: a dry run."""

from __future__ import annotations

from typing import Any

from hessdiag.cli.options import Matrix, Method, Model, Per, Subject, grouped
from hessdiag.cli.printing import Printing


@grouped
def describe(
    model: Model, subject: Subject, printing: Printing, matrix: Matrix = "ggn", per: Per = "example",
    method: Method = "auto",
) -> None:  # fmt: skip
    """List the layers of MODEL, and the cost of measuring them."""
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag

    how: dict[str, Any] = {"loss": subject.objective, "matrix": matrix, "per": per, "mode": subject.mode}
    printing.show(hessdiag.describe(prepared.module, prepared.batch.inputs, output=source.output, method=method, **how))
