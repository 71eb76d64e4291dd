"""Figure 2 of arXiv 1906.04267: block maps of the strided LeNet under four initialisations.

The paper's caption says Hessian; its theory is of the Gauss-Newton matrix. On the diagonal the two agree in a
piecewise-linear network, off it they do not, so both are shown: the Hessian from probes, the other exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.init import SCHEMES
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.numbers import spread
from hessdiag.results.setups import Setups, study_from_json, study_to_json

SETUPS, BATCH_SIZE = 100, 1024  # the paper's
QUICK_SETUPS, QUICK_BATCH_SIZE = 5, 64
MATRICES = ("hessian", "ggn")


def steps(*, quick: bool) -> int:
    """Count the units of work."""
    return len(MATRICES) * len(SCHEMES) * (QUICK_SETUPS if quick else SETUPS)


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> tuple[Setups, ...]:
    """Measure every initialisation and both matrices on the same seeds, so that panels differ in nothing else."""
    return tuple(
        measure_setups(
            resolve_model("lenet"),
            setups=QUICK_SETUPS if quick else SETUPS,
            batch_size=QUICK_BATCH_SIZE if quick else BATCH_SIZE,
            init=init,
            matrix=matrix,
            seed=seed,
            device=device,
            work=work,
        )
        for matrix in MATRICES
        for init in SCHEMES
    )


def draw(panels: Sequence[Setups]) -> Any:
    """Draw one map a panel: matrices from top to bottom, initialisations side by side."""
    from hessdiag.plots import draw_heatmaps

    return draw_heatmaps(panels)


def draw_relative(panels: Sequence[Setups]) -> Any:
    """Draw each map over its own level: the balance, without the sizes."""
    from hessdiag.plots import draw_heatmaps

    return draw_heatmaps(panels, relative=True)


def summary(panels: Sequence[Setups]) -> list[str]:
    """Say how unequal the blocks are under each initialisation."""
    lines = ["mean over set-ups: max/min of the diagonal, of all cells"]
    for panel in panels:
        cells = panel.normalized()
        lines.append(f"{panel.matrix:8} {panel.init:11} {panel.spread:8.3g} {spread(cells.ravel().tolist()):8.3g}")
    return lines


FIGURE: Figure[tuple[Setups, ...]] = Figure(
    name="heatmaps",
    steps=steps,
    measure=measure,
    write=study_to_json,
    read=study_from_json,
    draw=draw,
    summary=summary,
    views={"relative": draw_relative},
)
