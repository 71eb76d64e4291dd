"""`hessdiag reproduce`: the paper's figures of LeNet, measured anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hessdiag.cli.options import Place, Resume, grouped, writable_folder
from hessdiag.cli.printing import Printing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hessdiag.results.records import Record

    Drawn = tuple[Record, Callable[[], dict[str, Figure]], list[str]]  # numbers, how to draw them, and a summary

# \b keeps the lines of the list apart in the help.
HELP = """Measure and draw a figure of the paper, of the strided LeNet; numbers and figure go to --out.

\b
Figures:
  ratios    Figure 1: histograms of γ/σ² of every block, 100 trials; a minute on 2 cores
  heatmaps  Figure 2: Hessian and Gauss-Newton block maps, four initialisations; half an hour

All other figures and tables: python scripts/paper/NAME.py"""

SIZES = (100, 1024)  # trials and examples of each: the paper's
QUICK = {"ratios": (10, 128), "heatmaps": (5, 64)}

Name = Annotated[Literal["ratios", "heatmaps"], typer.Argument(metavar="FIGURE")]
OUT = "folder for the numbers (JSON) and figures (png, svg)"
Out = Annotated[str, typer.Option(metavar="DIR", callback=writable_folder, help=OUT)]
Quick = Annotated[bool, typer.Option("--quick", help="few trials and small batches: a look, not the figure")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing on stderr but errors")]


@grouped
def reproduce(
    name: Name, place: Place, out: Out = "figures", quick: Quick = False, resume: Resume = "", quiet: Quiet = False
) -> None:
    """Measure, draw and save one figure."""
    printing = Printing(verbose=False if quiet else None)
    from hessdiag.parallel.processes import launched

    with launched(place.torch_device) as processes, redirect_stdout(sys.stderr):
        setups, batch_size = QUICK[name] if quick else SIZES
        record, figures, summary = (_ratios if name == "ratios" else _heatmaps)(
            setups=setups, batch_size=batch_size, seed=place.seed, device=place.torch_device,
            resume=resume or None, distributed=processes.size > 1, progress=printing.progress,
        )  # fmt: skip
    if processes.rank > 0:
        return
    Path(out).mkdir(parents=True, exist_ok=True)
    record.to_json(Path(out) / f"{name}.json")
    printing.say(f"wrote {Path(out) / name}.json")
    printing.draw(figures, out)
    print("\n".join(summary))


def _ratios(**options: Any) -> Drawn:
    import numpy as np

    from hessdiag import plots
    from hessdiag.diagnosis.random_setups import measure_setups

    setups = measure_setups("lenet", init="geometric", **options)
    quantiles = np.nanquantile(setups.columns["ratio"], [0.5, 0.05, 0.95], axis=0)
    columns = zip(setups.names, *quantiles, strict=True)
    rows = [f"{name:14} {median:.2f}  {low:.2f}-{high:.2f}" for name, median, low, high in columns]
    summary = [f"γ/σ² over {len(setups)} trials: median, 5-95 % range", *rows]
    return setups, lambda: {"ratios": plots.draw_ratios(setups)}, summary


def _heatmaps(**options: Any) -> Drawn:
    """How unequal the blocks are, on the same seeds under every initialisation: panels differ in nothing else. The
    paper's caption of the maps says Hessian; its theory is of the Gauss-Newton matrix. On the diagonal the two agree in
    a piecewise-linear network, off it they do not, so both are shown.
    """
    from hessdiag import plots
    from hessdiag.diagnosis.random_setups import measure_setups
    from hessdiag.init import SCHEMES
    from hessdiag.results.numbers import spread
    from hessdiag.results.setups import Study

    kinds = [(matrix, init) for matrix in ("hessian", "ggn") for init in SCHEMES]
    panels = tuple(measure_setups("lenet", init=init, matrix=matrix, **options) for matrix, init in kinds)
    spreads = [(panel.spread, spread(panel.normalized().ravel().tolist())) for panel in panels]
    rows = [f"{kind:8} {init:11} {own:8.3g} {of:8.3g}" for (kind, init), (own, of) in zip(kinds, spreads, strict=True)]

    def figures() -> dict[str, Figure]:
        relative = plots.draw_heatmaps(panels, relative=True)
        return {"heatmaps": plots.draw_heatmaps(panels), "heatmaps-relative": relative}

    return Study(panels), figures, ["mean over trials: max/min of the diagonal, of all cells", *rows]
