"""Figure 1 of the paper: γ over measured σ² of every block of 100 random LeNets, one histogram a block.

    python scripts/ratios.py

It does what `hessdiag reproduce ratios` does, without its options.
"""

from pathlib import Path

from hessdiag.execution.work import Work
from hessdiag.experiments.ratio_figure import FIGURE

measured = FIGURE.measure(work=Work())
FIGURE.save(measured, Path("figures"))
print(*FIGURE.summary(measured), sep="\n")
