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
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import BALANCED, UNBALANCED
from hessdiag.results.numbers import Array, geometric_mean, percent, short
from hessdiag.results.report import Report
from hessdiag.results.setups import InitCheck, Setups
from hessdiag.results.text_table import printable
from hessdiag.view.plots import style

ROWS = {"hessian": "Hessian", "ggn": "Gauss-Newton (GGN)"}
MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
SIZE = r"$\|H_{ij}\|_F^2\,/\,\sqrt{P_i P_j}$"
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
    matrices = sorted({matrix for matrix, _ in kinds}, key=lambda m: (m not in ROWS, m != "hessian"))
    inits = list(dict.fromkeys(init for _, init in kinds))
    side, names = map_size(panels[0].names, len(inits))
    with style.context("white"):
        figure = Figure(figsize=(len(inits) * (side + 0.12) + names + 1.7, len(matrices) * (side + 0.4) + names + 0.6))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        places = [grid[matrices.index(matrix)][inits.index(init)] for matrix, init in kinds]
        for axes in {axes for row in grid for axes in row} - set(places):
            axes.remove()
        draw_maps(figure, places, panels, relative=relative)
        title = "Size of every block (i, j) of the curvature matrix"
        if relative:
            title = "Balance of the blocks (i, j) of the curvature matrix: each map over its own level"
        style.frame(figure, title=title, note=" · ".join([style.caption(*panels), *_notes(panels)]), compress=True)
    return figure


def draw_heatmap(report: Report, *, relative: bool = False) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.heatmap.names:
        raise HessdiagError(
            f"{report.model} has no measured weights to draw a map of: use draw_layers, or leave quick out"
        )
    return draw_heatmaps([Setups.collect([report])], relative=relative)


def map_size(names: Sequence[str], columns: int) -> tuple[float, float]:
    """Choose the side of a map of these blocks, one of several side by side, and the room of their names, in inches."""
    most = 7.0 if columns == 1 else 3.6
    side = max(2.5, 0.44 * len(names)) if len(names) <= MAX_ANNOTATED else min(max(3.0, 0.115 * len(names)), most)
    return side, 0.075 * max(map(len, style.short_labels(names, limit=24)))


def draw_maps(figure: Figure, places: Sequence[Axes], panels: Sequence[Setups], *, relative: bool) -> None:
    """Draw maps with their titles and, where they fit, numbers, and the scale that they share at the right of them."""
    levels = [geometric_mean(np.diagonal(p.normalized()).tolist()) if relative else 1.0 for p in panels]
    maps = [panel.normalized() / level for panel, level in zip(panels, levels, strict=True)]  # (L, L) each
    norm, colours = _scale(maps, relative=relative), "RdBu_r" if relative else "viridis"
    for axes, panel, values, level in zip(places, panels, maps, levels, strict=True):
        _draw_map(axes, panel.names, values, norm, colours)
        axes.set_title(
            f"{printable(panel.init)}\ndiagonal max/min {short(panel.spread)}"
            + (f" · level {short(level)}" if relative else "")
        )
        axes.tick_params(axis="y", rotation=0)
        axes.tick_params(length=0, pad=2)
        axes.set_ylabel(ROWS.get(panel.matrix, printable(panel.matrix)), labelpad=5)
        if len({p.matrix for p in panels}) * len({p.init for p in panels}) == len(panels):  # a whole grid
            axes.label_outer()
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(places), fraction=0.05, aspect=22, pad=0.03)
    unit = "over the level:\nthe geometric mean of the map's diagonal"
    if not relative:
        unit = "\n(on the diagonal: average squared singular value)"
    bar.set_label(f"{SIZE} {unit}", fontsize=style.SMALL, parse_math=True)
    bar.outline.set_visible(False)
    style.label_decades(bar.ax.yaxis)


def _draw_map(axes: Axes, names: Sequence[str], values: Array, norm: LogNorm, colours: str) -> None:
    few = len(names) <= MAX_ANNOTATED
    labels = style.short_labels(names, limit=24)
    sns.heatmap(
        pd.DataFrame(values, labels, labels),
        mask=~style.drawable(values),
        norm=norm,
        vmin=norm.vmin,  # or seaborn warns of a map without a value
        vmax=norm.vmax,
        cmap=colours,
        annot=np.vectorize(short, otypes=[object])(values) if few else False,
        fmt="",
        annot_kws={"size": 6.5},
        linewidths=0.6 if few else 0.0,
        rasterized=not few,  # thousands of cells would make an SVG slow to open: they are one picture in it
        square=True,
        cbar=False,  # all maps share one
        ax=axes,
    )
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
    grey = sum(int((~style.drawable(panel.normalized())).sum()) for panel in panels)
    notes = [f"grey: {grey} cell{'s' if grey > 1 else ''} zero or undefined"] if grey else []
    if any(np.any(panel.estimator_stderr) for panel in panels):  # NaN counts
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.concatenate([(p.estimator_stderr / p.frobenius_sq).ravel() for p in panels])
        known = errors[np.isfinite(errors)]
        notes.append(f"estimator error ≤ {percent(float(known.max()))} %" if known.size else "estimator error unknown")
    return notes


def draw_init_check(check: InitCheck, *, relative: bool = False) -> Figure:
    """Draw block maps of the initialisations, the most balanced first, above the spreads of γ, σ² and ν.

    A map whose diagonal has one colour, and a marker near 1, belong to an initialisation under which all layers are
    equally curved. The dashed lines are where the verdict turns to uneven and to unbalanced. `relative` is that of
    `draw_heatmaps`.
    """
    check_kind("check", check, InitCheck, "pass what hessdiag.check_init returns")
    panels = [scheme.setups for scheme in check.schemes]
    side, names = map_size(panels[0].names, len(panels))
    with style.context("white"):
        above, below = side + names + 0.4, 0.3 * len(check.schemes) + 0.5
        figure = Figure(figsize=(max(len(panels) * (side + 0.12) + names + 1.7, 8.5), above + below + 0.7))
        grid = figure.add_gridspec(2, len(panels), height_ratios=[above, below])
        places = [figure.add_subplot(grid[0, i]) for i in range(len(panels))]
        draw_maps(figure, places, panels, relative=relative)
        _draw_spreads(figure.add_subplot(grid[1, :]), check)
        title = f"Initialisation {check.init} among others: are the layers equally curved?"
        style.frame(figure, title=title, note=style.caption(*panels))
    return figure


def _draw_spreads(axes: Axes, check: InitCheck) -> None:
    axes.set_xscale("log")
    axes.grid(axis="x")
    for row, scheme in enumerate(check.schemes):
        for series in style.QUANTITIES:
            interval, y = scheme.spread(series.key), row + series.offset
            if not np.isfinite(interval.value):
                axes.annotate("undefined", (1, y), fontsize=style.SMALL, color=style.MUTED, va="center")
                continue
            axes.plot([interval.value], [y], series.marker, color=series.colour, markersize=4.5)
            if np.isfinite(interval.low):
                axes.plot([interval.low, interval.high], [y, y], color=series.colour, linewidth=1.2)
    for factor in (BALANCED, UNBALANCED):
        axes.axvline(factor, **style.REFERENCE)
    axes.set_xlim(left=0.9, right=max(axes.get_xlim()[1], 2 * UNBALANCED))
    style.label_decades(axes.xaxis)
    axes.set_yticks(range(len(check.schemes)), labels=style.short_labels([s.init for s in check.schemes]))
    for text, scheme in zip(axes.get_yticklabels(), check.schemes, strict=True):
        text.set_fontweight("bold" if scheme is check.checked else "normal")
    axes.set_ylim(len(check.schemes) - 0.5, -0.5)
    axes.set_xlabel("largest over smallest weight block (1: all equal), with 95 % intervals over trials")
    axes.spines[["top", "right", "left"]].set_visible(False)
    lines = [Line2D([], [], color=s.colour, marker=s.marker, markersize=4.5, label=s.label) for s in style.QUANTITIES]
    axes.legend(handles=lines, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0)
