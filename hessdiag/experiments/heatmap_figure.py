"""Figure 2 of arXiv 1906.04267: block maps of the strided LeNet under four initialisations.

The paper's caption says Hessian; its theory is of the Gauss-Newton matrix. On the diagonal the two agree in a
piecewise-linear network, off it they do not, so both are shown: the Hessian from probes, the other exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.execution.work import Work
from hessdiag.init import SCHEMES
from hessdiag.loading.model_spec import resolve_model
from hessdiag.results.report import spread
from hessdiag.results.setups import Setups, study_from_json, study_to_json

SETUPS, BATCH_SIZE = 100, 1024  # the paper's
QUICK_SETUPS, QUICK_BATCH_SIZE = 5, 64
MATRICES = ("hessian", "ggn")


def steps(*, quick: bool) -> int:
    """Units of work."""
    return len(MATRICES) * len(SCHEMES) * (QUICK_SETUPS if quick else SETUPS)


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work) -> tuple[Setups, ...]:
    """The same seeds for every initialisation and both matrices, so that panels differ in nothing else."""
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


def draw(panels: Sequence[Setups], out: Path) -> list[Path]:
    """Save the numbers as `heatmaps.json`, and the figure drawn from that file as `heatmaps.png` and `.svg`."""
    from hessdiag import plots

    source = out / "heatmaps.json"
    study_to_json(panels, source)
    return [source, *plots.save(plots.draw_heatmaps(study_from_json(source)), out / "heatmaps")]


def summary(panels: Sequence[Setups]) -> list[str]:
    """How unequal the blocks are under each initialisation."""
    lines = ["mean over set-ups: max/min of the diagonal, of all cells"]
    for panel in panels:
        cells = panel.normalized()
        lines.append(f"{panel.matrix:8} {panel.init:11} {panel.spread:8.3g} {spread(cells.ravel().tolist()):8.3g}")
    return lines
