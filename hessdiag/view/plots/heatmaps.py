"""The curvature map: how large every block of the Hessian or Gauss-Newton matrix is, against every other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.numbers import Array, geometric_mean, spread
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups
from hessdiag.view.plots import style
from hessdiag.view.plots.style import number

ROWS = {"hessian": "Hessian", "ggn": "Gauss-Newton (GGN)"}
MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
SIZE = r"$\|H_{ij}\|_F^2\,/\,\sqrt{P_i P_j}$"


@dataclass(frozen=True)
class Panel:
    """One map, ready to draw.

    Attributes:
        matrix, init, names: what it is of.
        values: (L, L), normalised.
        error: largest relative standard error of a cell, from the estimator alone; 0 where exact.
        level: what the values have been divided by; `None` where they are as measured.
    """

    matrix: str
    init: str
    names: tuple[str, ...]
    values: Array
    error: float
    level: float | None = None

    @classmethod
    def of_setups(cls, setups: Setups) -> Panel:
        """Take the mean map over set-ups."""
        error = _relative_error(setups.estimator_stderr, setups.frobenius_sq)
        return cls(setups.matrix, setups.init, setups.names, setups.normalized(), error)

    @classmethod
    def of_report(cls, report: Report) -> Panel:
        """Take the map of one report."""
        heatmap = report.heatmap
        error = _relative_error(heatmap.stderr, heatmap.frobenius_sq)
        return cls(report.matrix, report.init, heatmap.names, heatmap.normalized(), error)

    def relative(self) -> Panel:
        """Divide all cells by the geometric mean of the diagonal; undefined where that has no positive value."""
        level = geometric_mean(np.diagonal(self.values).tolist())
        return replace(self, values=self.values / level, level=level)

    @property
    def title(self) -> str:
        """The initialisation, how unequal the diagonal is, and the level where the values are relative."""
        level = "" if self.level is None else f" · level {number(self.level)}"
        return (
            f"{style.printable(self.init)}\ndiagonal max/min {number(spread(np.diagonal(self.values).tolist()))}{level}"
        )

    @property
    def drawable(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Cells that have a place on a logarithmic scale."""
        return np.asarray(np.isfinite(self.values) & (self.values > 0))


def draw_heatmaps(panels: Sequence[Setups], *, relative: bool = False) -> Figure:
    """Draw maps of all blocks (i, j), averaged over set-ups: matrices from top to bottom, initialisations side by side.

    Yellow is large and dark blue small, on one logarithmic scale for all panels. A map whose diagonal has one colour
    belongs to a network whose layers are equally curved; the number in its title, the largest over the smallest
    diagonal entry, is then near 1. Left of each row stands the largest relative standard error of its cells that the
    estimator adds to the spread between set-ups. Cells that are zero or undefined are grey.

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
    style.check_same(panels, ("model", "names", "numel", "loss", "per", "batch_size"))
    places = [(panel.matrix, panel.init) for panel in panels]
    for matrix, init in places:
        if places.count((matrix, init)) > 1:
            raise HessdiagError(f"two panels show matrix {matrix!r} with init {init!r}: pass each combination once")
    return _draw([Panel.of_setups(setups) for setups in panels], note=style.caption(*panels), relative=relative)


def draw_heatmap(report: Report, *, relative: bool = False) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.weights:
        raise HessdiagError(f"{report.model} has no weight block to draw a map of: use draw_layers")
    return _draw([Panel.of_report(report)], note=style.caption(report), relative=relative)


def _draw(panels: Sequence[Panel], *, note: str, relative: bool) -> Figure:
    matrices = sorted(dict.fromkeys(p.matrix for p in panels), key=lambda m: (m not in ROWS, m != "hessian"))
    inits = list(dict.fromkeys(p.init for p in panels))
    panels = [panel.relative() for panel in panels] if relative else panels
    side, names = map_size(panels[0].names, len(inits))
    grey = sum(int((~panel.drawable).sum()) for panel in panels)
    note += f" · grey: {style.plural(grey, 'cell')} zero or undefined" if grey else ""
    title = "Size of every block (i, j) of the curvature matrix"
    if relative:
        title = "Balance of the blocks (i, j) of the curvature matrix: each map over its own level"
    with style.context("white"):
        figure = Figure(figsize=(len(inits) * (side + 0.12) + names + 1.7, len(matrices) * (side + 0.4) + names + 0.6))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        places = [grid[matrices.index(panel.matrix)][inits.index(panel.init)] for panel in panels]
        for axes in {axes for row in grid for axes in row} - set(places):
            axes.remove()
        draw_maps(figure, places, panels)
        style.frame(figure, title=title, note=note, compress=True)
    return figure


def map_size(names: Sequence[str], columns: int) -> tuple[float, float]:
    """Choose the side of a map of these blocks, one of several side by side, and the room of their names, in inches."""
    most = 7.0 if columns == 1 else 3.6
    side = max(2.5, 0.44 * len(names)) if len(names) <= MAX_ANNOTATED else min(max(3.0, 0.115 * len(names)), most)
    return side, 0.075 * max(map(len, style.short_labels(names, limit=24)))


def draw_maps(figure: Figure, places: Sequence[Axes], panels: Sequence[Panel]) -> None:
    """Draw maps with their titles and, where they fit, numbers, and the scale that they share at the right of them.

    Names of blocks stand at the left of the first map of each row and below the lowest of each column.
    """
    relative = panels[0].level is not None
    norm, colours = _scale(panels, relative=relative), "RdBu_r" if relative else "viridis"
    found = [axes.get_subplotspec() for axes in places]
    spots = [(spot.rowspan.start, spot.colspan.start) for spot in found if spot is not None]
    for axes, panel, (i, j) in zip(places, panels, spots, strict=True):
        _draw_map(axes, panel, norm, colours)
        first, lowest = j == min(c for r, c in spots if r == i), i == max(r for r, c in spots if c == j)
        axes.tick_params(axis="y", rotation=0)
        axes.tick_params(labelbottom=lowest, labelleft=first, length=0, pad=2)
        if first:
            row = [other for other, (r, _) in zip(panels, spots, strict=True) if r == i]
            matrix = ROWS.get(panel.matrix, style.printable(panel.matrix))
            axes.set_ylabel(f"{matrix}\n{_precision(row)}", labelpad=5)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(places), fraction=0.05, aspect=22, pad=0.03)
    unit = "over the level:\nthe geometric mean of the map's diagonal"
    if not relative:
        unit = "\n(on the diagonal: average squared singular value)"
    bar.set_label(f"{SIZE} {unit}", fontsize=style.SMALL, parse_math=True)
    bar.outline.set_visible(False)
    style.label_decades(bar.ax.yaxis)


def _draw_map(axes: Axes, panel: Panel, norm: LogNorm, colours: str) -> None:
    few = len(panel.names) <= MAX_ANNOTATED
    labels = style.short_labels(panel.names, limit=24)
    texts = np.vectorize(number, otypes=[object])(panel.values)
    sns.heatmap(
        pd.DataFrame(panel.values, labels, labels),
        mask=~panel.drawable,
        norm=norm,
        vmin=norm.vmin,  # or seaborn warns of a map without a value
        vmax=norm.vmax,
        cmap=colours,
        annot=texts if few else False,
        fmt="",
        annot_kws={"size": 6.5},
        linewidths=0.6 if few else 0.0,
        rasterized=not few,  # thousands of cells would make an SVG slow to open: they are one picture in it
        square=True,
        cbar=False,  # all maps share one
        ax=axes,
    )
    axes.set_facecolor(style.NEUTRAL)
    axes.set_title(panel.title)


def _scale(panels: Sequence[Panel], *, relative: bool) -> LogNorm:
    """Span all values, and a decade at least, so that a flat map looks flat; symmetric around 1 where relative."""
    values = np.concatenate([p.values[p.drawable] for p in panels])
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    if relative:
        reach = max(1 / low, high, math.sqrt(10))
        return LogNorm(1 / reach, reach)
    grow = max(1.0, math.sqrt(10 * low / high))
    return LogNorm(low / grow, high * grow)


def _relative_error(stderr: Array, estimate: Array) -> float:
    """Return the largest of the defined ones; NaN when noise was measured but no cell is there to compare it with."""
    if not np.any(stderr):  # NaN counts as not exact
        return 0.0
    defined = np.isfinite(estimate) & (estimate > 0) & np.isfinite(stderr)
    return float((stderr[defined] / estimate[defined]).max()) if defined.any() else math.nan


def _precision(panels: Sequence[Panel]) -> str:
    errors = [p.error for p in panels]
    if any(math.isnan(e) for e in errors):
        return "estimator error unknown"
    return f"estimator error ≤ {number(100 * max(errors))} %" if any(errors) else "exact"
