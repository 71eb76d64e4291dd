"""The case study of the paper: ResNet-50 of several kinds at initialisation, γ, ν and σ² of every layer.

    python scripts/resnet.py

It does what `hessdiag reproduce resnet` does, without its options.
"""

from pathlib import Path

from hessdiag.execution.work import Work
from hessdiag.experiments.resnet_figure import FIGURE

measured = FIGURE.measure(work=Work())
FIGURE.save(measured, Path("figures"))
print(*FIGURE.summary(measured), sep="\n")
