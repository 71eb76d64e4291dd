"""`hessdiag sharpness`: traces and top eigenvalues of a network's curvature, whole and by layer."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated, Literal

import typer

from hessdiag.cli.options import Blocks, Matrix, Model, Plots, Subject, grouped
from hessdiag.cli.printing import Printing

SPLIT = "take packed parameters apart, where that is certain; auto: queries, keys and values"
Split = Annotated[Literal["auto", "none", "qkv", "heads", "experts"], typer.Option(help=SPLIT)]
Density = Annotated[bool, typer.Option("--density", help="also measure how the eigenvalues are distributed")]


@grouped
def sharpness(
    model: Model, subject: Subject, printing: Printing, matrix: Matrix = "ggn", blocks: Blocks = None,
    split: Split = "auto", density: Density = False, plots: Plots = "",
) -> None:  # fmt: skip
    """Measure traces and extreme eigenvalues, whole and by layer."""
    source, prepared = subject.prepare(model, say=printing.say)
    import hessdiag

    with redirect_stdout(sys.stderr):
        measured = hessdiag.sharpness(
            prepared.module, prepared.batches(), loss=subject.objective, matrix=matrix, mode=subject.mode,
            blocks=blocks, split=None if split == "none" else split, density=density or bool(plots),
            seed=subject.seed, progress=printing.progress, **prepared.how,
        )  # fmt: skip
    found = replace(measured, name=source.name, init=prepared.init, data=prepared.data)
    printing.draw(lambda: {"density": hessdiag.plots.draw_density(found)}, plots)
    printing.show(found)
