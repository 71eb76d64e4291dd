"""`hessdiag reproduce`: the paper's figures of LeNet, measured anew."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.arguments import did_you_mean
from hessdiag.cli.options import Place, grouped, writable_folder
from hessdiag.cli.printing import Printing
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.results.setups import Setups

SHOWS = {
    "ratios": "Figure 1: histograms of γ/σ² of every block, 100 trials; a minute on 2 cores",
    "heatmaps": "Figure 2: Hessian and Gauss-Newton block maps, four initialisations; half an hour",
}
# \b keeps the lines of the list apart in the help.
HELP = "Measure and draw a figure of the paper, of the strided LeNet; numbers and figure go to --out.\n\n\b\nFigures:\n"
HELP += "\n".join(f"  {name:9} {shows}" for name, shows in SHOWS.items())
HELP += "\n\nAll other figures and tables: python scripts/paper/NAME.py"

ELSEWHERE = "use ratios or heatmaps; all other figures of the paper are in scripts/paper/ of the repository"
SIZES = (100, 1024)  # trials and examples of each: the paper's
QUICK = {"ratios": (10, 128), "heatmaps": (5, 64)}

Name = Annotated[str, typer.Argument(metavar="FIGURE", help=", ".join(SHOWS))]
Out = Annotated[
    str,
    typer.Option(metavar="DIR", callback=writable_folder, help="folder for the numbers (JSON) and figures (png, svg)"),
]
Quick = Annotated[bool, typer.Option("--quick", help="few trials and small batches: a look, not the figure")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing on stderr but errors")]


@grouped
def reproduce(name: Name, place: Place, out: Out = "figures", quick: Quick = False, quiet: Quiet = False) -> None:
    """Measure, save and draw one figure; an unusable folder is refused before the measuring."""
    if name not in SHOWS:
        raise HessdiagError(f"unknown figure {name!r}: {did_you_mean(name, SHOWS, otherwise=ELSEWHERE)}")
    printing = Printing(verbose=False if quiet else None)
    from hessdiag.parallel.processes import launched
    from hessdiag.results.records import make_folder

    with launched(place.torch_device) as processes, redirect_stdout(sys.stderr):
        make_folder(out, f"--out {out!r}: cannot make that folder")
        setups, batch_size = QUICK[name] if quick else SIZES
        panels = _measure(
            name, setups=setups, batch_size=batch_size, seed=place.seed, device=place.torch_device,
            distributed=processes.size > 1, progress=printing.progress,
        )  # fmt: skip
    if processes.rank > 0:
        return
    for path in _save(name, panels, Path(out)):
        printing.say(f"wrote {path}")
    print("\n".join(_summary(name, panels)))


def _measure(name: str, **options: Any) -> tuple[Setups, ...]:
    """Measure on the same seeds under every initialisation, so that panels differ in nothing else.

    The paper's caption of the maps says Hessian; its theory is of the Gauss-Newton matrix. On the diagonal the two
    agree in a piecewise-linear network, off it they do not, so both are shown.
    """
    from hessdiag.diagnosis.random_setups import measure_setups
    from hessdiag.init import SCHEMES

    if name == "ratios":
        return (measure_setups("lenet", init="geometric", **options),)
    kinds = [(matrix, init) for matrix in ("hessian", "ggn") for init in SCHEMES]
    return tuple(measure_setups("lenet", init=init, matrix=matrix, **options) for matrix, init in kinds)


def _save(name: str, panels: tuple[Setups, ...], out: Path) -> list[Path]:
    """Write the numbers as JSON and draw them; return the files."""
    from hessdiag import plots
    from hessdiag.results.setups import Study

    source = out / f"{name}.json"
    if name == "ratios":
        panels[0].to_json(source)
        return [source, *plots.save(plots.draw_ratios(panels[0]), out / name)]
    Study(panels).to_json(source)
    relative = plots.save(plots.draw_heatmaps(panels, relative=True), out / f"{name}-relative")
    return [source, *plots.save(plots.draw_heatmaps(panels), out / name), *relative]


def _summary(name: str, panels: tuple[Setups, ...]) -> list[str]:
    """Say how far theory and measurement agree, or how unequal the blocks are."""
    import numpy as np

    from hessdiag.results.numbers import spread

    if name == "ratios":
        (setups,) = panels
        rows = zip(setups.names, *np.nanquantile(setups.columns["ratio"], [0.5, 0.05, 0.95], axis=0), strict=True)
        lines = ["{:14} {:.2f}  {:.2f}-{:.2f}".format(*row) for row in rows]
        return [f"γ/σ² over {len(setups)} trials: median, 5-95 % range", *lines]
    lines = [
        f"{panel.matrix:8} {panel.init:11} {panel.spread:8.3g} {spread(panel.normalized().ravel().tolist()):8.3g}"
        for panel in panels
    ]
    return ["mean over trials: max/min of the diagonal, of all cells", *lines]
