"""Table 1 of the paper: what each operation does to the activation scaling factor ς.

    python scripts/layers.py

It does what `hessdiag reproduce layers` does, without its options.
"""

from pathlib import Path

from hessdiag.execution.work import Work
from hessdiag.experiments.operation_figure import FIGURE

measured = FIGURE.measure(work=Work())
FIGURE.save(measured, Path("figures"))
print(*FIGURE.summary(measured), sep="\n")
