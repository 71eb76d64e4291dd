"""`hessdiag describe`: a dry run."""

from __future__ import annotations

from hessdiag.cli.options import Matrix, Method, Model, Per, Subject, grouped
from hessdiag.cli.printing import Printing


@grouped
def describe(
    model: Model,
    subject: Subject,
    printing: Printing,
    matrix: Matrix = "ggn",
    per: Per = "example",
    method: Method = "auto",
) -> None:
    """List the blocks of MODEL, what is left out and why, and what measuring them would cost."""
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag

    inputs = prepared.batch.inputs
    printing.show(
        hessdiag.describe(prepared.module, inputs, output=source.output, matrix=matrix, per=per, method=method)
    )
