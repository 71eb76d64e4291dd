"""`hessdiag reproduce`: the paper's two figures of the strided LeNet, measured anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.arguments import did_you_mean
from hessdiag.cli import options
from hessdiag.cli.progress_bar import say
from hessdiag.errors import HessdiagError
from hessdiag.results.files import make_folder

if TYPE_CHECKING:
    from hessdiag.results.setups import Setups

FIGURES = {
    "ratios": "Figure 1: histograms of γ/σ² of every layer of the strided LeNet, 100 trials; a minute or two",
    "heatmaps": "Figure 2: Hessian and Gauss-Newton maps of it, four initialisations; half an hour",
}
SETUPS, BATCH_SIZE = 100, 1024  # the paper's
QUICK = {"ratios": (10, 128), "heatmaps": (5, 64)}
ELSEWHERE = "the other figures of the paper are scripts in scripts/paper/ of the repository"

# \b keeps the lines of the list apart in the help.
HELP = "Measure and draw a figure of the paper; numbers and figure go to --out.\n\n\b\n"
HELP += "\n".join(f"  {name:9} {shows}" for name, shows in FIGURES.items())

Name = Annotated[str, typer.Argument(metavar="FIGURE", help=", ".join(FIGURES))]
Out = Annotated[Path, typer.Option(metavar="DIR", help="folder for the numbers (JSON) and figures (png, svg)")]
Quick = Annotated[bool, typer.Option("--quick", help="few trials and small batches: a look, not the figure")]


def reproduce(
    name: Name,
    out: Out = Path("figures"),
    quick: Quick = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
) -> None:
    """Measure, save and draw one figure; an unusable folder is refused before the measuring."""
    if name not in FIGURES:
        advice = did_you_mean(name, FIGURES, otherwise=f"use {' or '.join(FIGURES)}; {ELSEWHERE}")
        raise HessdiagError(f"unknown figure {name!r}: {advice}")
    from hessdiag import plots
    from hessdiag.diagnosis.random_setups import measure_setups
    from hessdiag.init import SCHEMES
    from hessdiag.results.setups import study_to_json

    setups, batch_size = QUICK[name] if quick else (SETUPS, BATCH_SIZE)
    where = options.resolve_device(device)
    make_folder(out, f"--out {str(out)!r}: cannot make that folder")
    # Every panel is measured on the same seeds, so that panels differ in nothing else.
    asked = [("ggn", "geometric")] if name == "ratios" else [(m, i) for m in ("hessian", "ggn") for i in SCHEMES]
    panels = [
        measure_setups("lenet", setups=setups, batch_size=batch_size, init=init, matrix=matrix, seed=seed, device=where)
        for matrix, init in asked
    ]
    source = out / f"{name}.json"
    if name == "ratios":
        panels[0].to_json(source)
        drawn = {"": plots.draw_ratios(panels[0])}
    else:
        study_to_json(panels, source)
        drawn = {"": plots.draw_heatmaps(panels), "-relative": plots.draw_heatmaps(panels, relative=True)}
    files = [path for suffix, figure in drawn.items() for path in plots.save(figure, out / f"{name}{suffix}")]
    for path in (source, *files):
        say(f"wrote {path}")
    print(ratio_lines(panels[0]) if name == "ratios" else heatmap_lines(panels))


def ratio_lines(setups: Setups) -> str:
    """Write median and 5-95 % range of γ/σ² of each layer."""
    import numpy as np

    low, middle, high = np.nanquantile(setups.columns["ratio"], [0.05, 0.5, 0.95], axis=0)
    rows = zip(setups.names, middle, low, high, strict=True)
    lines = ["{:14} {:.2f}  {:.2f}-{:.2f}".format(*row) for row in rows]
    return "\n".join([f"γ/σ² over {len(setups)} set-ups: median, 5-95 % range", *lines])


def heatmap_lines(panels: list[Setups]) -> str:
    """Write how unequal the layers are under each initialisation."""
    from hessdiag.results.numbers import spread

    lines = ["mean over set-ups: max/min of the diagonal, of all cells"]
    for panel in panels:
        cells = spread(panel.normalized().ravel().tolist())
        lines.append(f"{panel.matrix:8} {panel.init:11} {panel.spread:8.3g} {cells:8.3g}")
    return "\n".join(lines)
