"""The curvature map: how large every block of the matrix is, of one network or of several initialisations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.blocks import MATRICES
from hessdiag.results.numbers import Array, geometric_mean, percent, short
from hessdiag.results.report import Report
from hessdiag.results.setups import InitCheck, Setups
from hessdiag.results.text_table import printable
from hessdiag.view.plots import style

MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
# Titles of figures, and of their scales.
NORM = r"$\|H_{ij}\|_F^2\,/\,\sqrt{P_i P_j}$"
SIZE = (
    "Size of every block (i, j) of the curvature matrix",
    f"{NORM} \n(on the diagonal: average squared singular value)",
)
BALANCE = (
    "Balance of the blocks (i, j) of the curvature matrix: each map over its own level",
    f"{NORM} over the level:\nthe geometric mean of the map's diagonal",
)
SHARED = ("model", "names", "numel", "loss", "per", "batch_size")  # of all maps of a figure


def draw_heatmaps(panels: Sequence[Setups], *, relative: bool = False) -> Figure:
    """Draw maps of all blocks (i, j), averaged over trials: matrices from top to bottom, initialisations side by side.

    Yellow is large and dark blue small, on one logarithmic scale for all panels. A map whose diagonal has one colour
    belongs to a network whose layers are equally curved; the number in its title, the largest over the smallest
    diagonal entry, is then near 1. The caption has the largest relative standard error of a cell that the estimator
    adds to the spread between trials. Cells that are zero or undefined are grey.

    Args:
        panels: one a map.
        relative: draw each map over its own level, the geometric mean of its diagonal, on a scale from blue (below 1)
            to red (above 1): colours then speak of balance alone, and the level stands above the map.

    Raises:
        HessdiagError: there are no panels, two of them show the same, or they differ in what they must share.
    """
    _check_panels(panels)
    kinds = [(panel.matrix, panel.init) for panel in panels]
    matrices = sorted({matrix for matrix, _ in kinds}, key=[*MATRICES].index)
    inits = list(dict.fromkeys(init for _, init in kinds))
    levels = [geometric_mean(np.diagonal(p.normalized()).tolist()) if relative else 1.0 for p in panels]
    maps = [panel.normalized() / level for panel, level in zip(panels, levels, strict=True)]  # (L, L) each
    norm, colours = _scale(maps, relative=relative), "RdBu_r" if relative else "viridis"
    labels = style.short_labels(panels[0].names, limit=24)
    most = 7.0 if len(inits) == 1 else 3.6
    side = max(2.5, 0.44 * len(labels)) if len(labels) <= MAX_ANNOTATED else min(max(3.0, 0.115 * len(labels)), most)
    room = 0.075 * max(map(len, labels))  # of the names beside and below a map, in inches, as its side is
    with style.context("white"):
        figure = Figure(figsize=(len(inits) * (side + 0.12) + room + 1.7, len(matrices) * (side + 0.4) + room + 0.6))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        places = [grid[matrices.index(matrix)][inits.index(init)] for matrix, init in kinds]
        for axes in {axes for row in grid for axes in row} - set(places):
            axes.remove()
        for axes, panel, values, level in zip(places, panels, maps, levels, strict=True):
            _draw_map(axes, labels, values, norm, colours)
            heading = f"{printable(panel.init)}\ndiagonal max/min {short(panel.spread)}"
            axes.set_title(heading + (f" · level {short(level)}" if relative else ""))
            axes.set_ylabel(MATRICES[panel.matrix], labelpad=5)
            if len(matrices) * len(inits) == len(panels):  # a whole grid
                axes.label_outer()
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=places, fraction=0.05, aspect=22, pad=0.03)
        title, unit = BALANCE if relative else SIZE
        bar.set_label(unit, fontsize=style.SMALL, parse_math=True)
        bar.outline.set_visible(False)
        style.label_decades(bar.ax.yaxis)
        style.frame(figure, title=title, note=" · ".join([style.caption(*panels), *_notes(panels)]), compress=True)
    return figure


def draw_heatmap(report: Report) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.heatmap.names:
        what = f"{report.model} has no measured weights to draw a map of"
        raise HessdiagError(f"{what}: use draw_layers, or leave quick out")
    return draw_heatmaps([Setups.collect([report])])


def draw_init_check(check: InitCheck) -> Figure:
    """Draw the block maps of the initialisations, the most balanced first, each map over its own level.

    A map whose diagonal has one colour belongs to an initialisation under which all layers are equally curved; see
    `draw_heatmaps`.
    """
    check_kind("check", check, InitCheck, "pass what hessdiag.check_init returns")
    return draw_heatmaps([scheme.setups for scheme in check.schemes], relative=True)


def _check_panels(panels: Sequence[Setups]) -> None:
    """Refuse maps that one figure cannot compare."""
    check_kind("panels", panels, (list, tuple), "pass a list of Setups; draw a Report with draw_heatmap(report)")
    for panel in panels:
        check_kind("a panel", panel, Setups, "pass Setups as measure_setups returns; draw a Report with draw_heatmap")
    if not panels:
        raise HessdiagError("nothing to draw: pass at least one measurement")
    for key in SHARED:
        if len(differing := list(dict.fromkeys(getattr(panel, key) for panel in panels))) > 1:
            values = " and ".join(map(repr, differing[:2]))
            raise HessdiagError(f"panels differ in {key}: {values}; draw one experiment a figure")
    kinds = [(panel.matrix, panel.init) for panel in panels]
    for matrix, init in kinds:
        if kinds.count((matrix, init)) > 1:
            raise HessdiagError(f"two panels show matrix {matrix!r} with init {init!r}: pass each combination once")


def _draw_map(axes: Axes, labels: Sequence[str], values: Array, norm: LogNorm, colours: str) -> None:
    few = len(labels) <= MAX_ANNOTATED
    sns.heatmap(
        pd.DataFrame(values, list(labels), list(labels)), mask=~style.drawable(values), norm=norm, cmap=colours,
        vmin=norm.vmin, vmax=norm.vmax,  # or seaborn warns of a map without a value
        annot=np.vectorize(short, otypes=[object])(values) if few else False, fmt="", annot_kws={"size": 6.5},
        rasterized=not few,  # thousands of cells would make an SVG slow to open: they are one picture in it
        linewidths=0.6 if few else 0.0, square=True, ax=axes, cbar=False,  # all maps share one
    )  # fmt: skip
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(length=0, pad=2)
    axes.set_facecolor(style.NEUTRAL)


def _scale(maps: Sequence[Array], *, relative: bool) -> LogNorm:
    """Span all values, and a decade at least, so that a flat map looks flat; symmetric around 1 where relative."""
    values = np.concatenate([each[style.drawable(each)] for each in maps])
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    if relative:
        reach = max(1 / low, high, math.sqrt(10))
        return LogNorm(1 / reach, reach)
    grow = max(1.0, math.sqrt(10 * low / high))
    return LogNorm(low / grow, high * grow)


def _notes(panels: Sequence[Setups]) -> list[str]:
    notes = ["grey: zero or undefined"] if not all(style.drawable(p.normalized()).all() for p in panels) else []
    if any(np.any(panel.estimator_stderr) for panel in panels):  # NaN counts
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.concatenate([(p.estimator_stderr / p.frobenius_sq).ravel() for p in panels])
        known = errors[np.isfinite(errors)]
        notes.append(f"estimator error ≤ {percent(float(known.max()) if known.size else math.nan)} %")
    return notes
