"""Figure 2 of the paper: block maps of LeNet's Hessian and Gauss-Newton matrix, four initialisations.

    python scripts/heatmaps.py

It does what `hessdiag reproduce heatmaps` does, without its options.
"""

from pathlib import Path

from hessdiag.execution.work import Work
from hessdiag.experiments.heatmap_figure import FIGURE

measured = FIGURE.measure(work=Work())
FIGURE.save(measured, Path("figures"))
print(*FIGURE.summary(measured), sep="\n")
