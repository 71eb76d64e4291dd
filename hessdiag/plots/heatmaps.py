"""The curvature map: how large every block of the Hessian or Gauss-Newton matrix is, against every other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.captions import agree, caption
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number, plural, printable, short_labels, text_width
from hessdiag.plots.row_places import MAP, mark_rows
from hessdiag.plots.ticks import label_decades
from hessdiag.results.numbers import Array, spread
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

ROWS = {"hessian": "Hessian", "ggn": "Gauss-Newton (GGN)"}
MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
CMAP = "viridis"
NUMBER, TICK = 6.5, 6.0  # points: numbers in cells, names of many blocks
CELL, PITCH = 0.44, 0.115  # inches a side: cells with and without a number
MIN_SIDE = 2.5  # inches a side, of a map: the colourbar's label needs them
MAX_SIDE, MAX_SIDE_OF_MANY = 7.0, 3.6  # inches a side: a single map, one of several side by side

COLOURBAR = "$\\|H_{ij}\\|_F^2\\,/\\,\\sqrt{P_i P_j}$\n(on the diagonal: average squared singular value)"
TITLE = "Size of every block (i, j) of the curvature matrix"


@dataclass(frozen=True)
class Panel:
    """One map, ready to draw."""

    matrix: str
    init: str
    names: tuple[str, ...]
    values: Array  # (L, L), normalised
    error: float  # largest relative standard error of a cell, from the estimator alone; 0 where exact

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

    @property
    def spread(self) -> float:
        """Largest over smallest diagonal entry."""
        return spread([float(v) for v in np.diagonal(self.values)])

    @property
    def drawable(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Cells that have a place on a logarithmic scale."""
        return np.asarray(np.isfinite(self.values) & (self.values > 0))


def draw_heatmaps(panels: Sequence[Setups]) -> Figure:
    """Draw maps of all blocks (i, j), averaged over set-ups: matrices from top to bottom, initialisations side by side.

    Yellow is large and dark blue small, on one logarithmic scale for all panels. A map whose diagonal has one colour
    belongs to a network whose layers are equally curved; the number in its title, the largest over the smallest
    diagonal entry, is then near 1. Left of each row stands the largest relative standard error of its cells that the
    estimator adds to the spread between set-ups. Cells that are zero or undefined are grey.

    Raises:
        HessdiagError: there are no panels, two of them show the same, or they differ in what they must share.
    """
    check_kind("panels", panels, (list, tuple), "pass a list of Setups; draw a Report with draw_heatmap(report)")
    for panel in panels:
        check_kind("a panel", panel, Setups, "pass Setups as measure_setups returns; draw a Report with draw_heatmap")
    agree(panels, ("model", "names", "numel", "loss", "per", "batch_size"))
    drawn = [Panel.of_setups(setups) for setups in panels]
    places = [(panel.matrix, panel.init) for panel in drawn]
    for place in places:
        if places.count(place) > 1:
            matrix, init = place
            raise HessdiagError(f"two panels show matrix {matrix!r} with init {init!r}: pass each combination once")
    return _draw(drawn, note=caption(*panels))


def draw_heatmap(report: Report) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.weights:
        raise HessdiagError(f"{report.model} has no weight block to draw a map of: use draw_layers")
    return _draw([Panel.of_report(report)], note=caption(report))


def _draw(panels: Sequence[Panel], *, note: str) -> Figure:
    matrices = sorted(dict.fromkeys(p.matrix for p in panels), key=lambda m: (m not in ROWS, m != "hessian"))
    inits = list(dict.fromkeys(p.init for p in panels))
    norm = shared_norm(panels)
    labels = Labels.of(panels[0].names, columns=len(inits))
    with style.context("white"):
        figure = Figure(figsize=labels.figure_size(len(matrices), len(inits)))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        shown = {}
        for panel in panels:
            axes = grid[matrices.index(panel.matrix)][inits.index(panel.init)]
            draw_panel(axes, panel, norm, labels)
            shown[axes] = panel
        label_outside(grid, shown, labels)
        draw_colourbar(figure, norm, list(shown))
        frame(figure, title=TITLE, note=note + _grey_note(panels), compress=True)
    return figure


@dataclass(frozen=True)
class Labels:
    """Names of the blocks along both sides of a map, and the room that they take."""

    texts: list[str]
    side: float  # inches, of a map
    size: float  # points

    @classmethod
    def of(cls, names: Sequence[str], *, columns: int) -> Labels:
        """Make labels that fit a figure of so many maps side by side."""
        texts = short_labels(names, limit=24)
        if len(texts) <= MAX_ANNOTATED:
            return cls(texts, max(MIN_SIDE, CELL * len(texts)), style.SMALL)
        return cls(texts, min(max(3.0, PITCH * len(texts)), MAX_SIDE if columns == 1 else MAX_SIDE_OF_MANY), TICK)

    @property
    def upright(self) -> bool:
        """Whether the names stand on end below the map, being wider than its cells."""
        return text_width(self.texts, self.size) > self.side / len(self.texts)

    @property
    def step(self) -> int:
        """Every how many blocks a name fits."""
        return math.ceil(len(self.texts) * self.size * 1.15 / 72 / self.side)

    def figure_size(self, rows: int, columns: int) -> tuple[float, float]:
        """Return inches, without title and caption."""
        width = text_width(self.texts, self.size)
        return (
            columns * (self.side + 0.12) + width + 1.6,
            rows * (self.side + 0.42) + (width if self.upright else 0.15),
        )

    def put(self, axes: Axes, *, left: bool, below: bool) -> None:
        """Write the names along the sides of a map."""
        at = range(0, len(self.texts), self.step)
        texts = self.texts[:: self.step]
        axes.set_yticks([i + 0.5 for i in at] if left else [], labels=texts if left else [], fontsize=self.size)
        axes.set_xticks([i + 0.5 for i in at] if below else [], labels=texts if below else [], fontsize=self.size)
        axes.tick_params(axis="x", rotation=90 if self.upright else 0)
        axes.tick_params(length=2 if self.step > 1 else 0, pad=2, left=left, bottom=below)


def draw_panel(axes: Axes, panel: Panel, norm: LogNorm, labels: Labels) -> None:
    """Draw one map with its head and, where they fit, its numbers."""
    blocks = len(panel.names)
    seam = 0.6 if blocks <= MAX_ANNOTATED else 0.0
    sns.heatmap(
        panel.values,
        mask=~panel.drawable,
        norm=norm,
        vmin=norm.vmin,  # or seaborn warns of a map without a value
        vmax=norm.vmax,
        cmap=CMAP,
        linewidths=seam,
        linecolor=style.theme().page,
        rasterized=not seam,  # thousands of cells would make an SVG slow to open: they are one picture in it
        square=True,
        cbar=False,  # all maps share one
        xticklabels=False,
        yticklabels=False,
        ax=axes,
    )
    mark_rows(axes, MAP)
    axes.set_facecolor(style.theme().neutral)
    head(axes, panel.init, f"diagonal max/min {number(panel.spread)}")
    if blocks <= MAX_ANNOTATED:
        for (i, j), value in np.ndenumerate(panel.values):
            _annotate(axes, i, j, float(value), norm)  # seaborn's numbers have less contrast, and grey cells none


def _annotate(axes: Axes, i: int, j: int, value: float, norm: LogNorm) -> None:
    drawable = math.isfinite(value) and value > 0
    colour = to_rgb(matplotlib.colormaps[CMAP](norm(value)) if drawable else style.theme().neutral)
    text = "–" if math.isnan(value) else number(value)
    axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=NUMBER, color=_contrasting(colour))


def _contrasting(colour: tuple[float, float, float]) -> str:
    """Choose black or white, whichever has the larger contrast by the definition of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def draw_colourbar(figure: Figure, norm: LogNorm, beside: Sequence[Axes]) -> None:
    """Draw the scale that all maps share at the right of them."""
    bar = figure.colorbar(ScalarMappable(norm, CMAP), ax=beside, fraction=0.05, aspect=22, pad=0.03)
    bar.set_label(COLOURBAR, fontsize=style.SMALL, parse_math=True)
    bar.outline.set_visible(False)
    label_decades(bar.ax.yaxis)


def label_outside(grid: Sequence[Sequence[Axes]], shown: Mapping[Axes, Panel], labels: Labels) -> None:
    """Name the blocks at the left and lower edge only, say what each row is, and remove places without a panel."""
    for row in grid:
        for column, axes in enumerate(row):
            if axes not in shown:
                axes.remove()
                continue
            first = next(a for a in row if a in shown)
            last = [a for a in (r[column] for r in grid) if a in shown][-1]
            labels.put(axes, left=axes is first, below=axes is last)
        panels = [shown[a] for a in row if a in shown]
        matrix = panels[0].matrix
        first.set_ylabel(f"{ROWS.get(matrix, printable(matrix))}\n{_precision(panels)}", labelpad=5)


def shared_norm(panels: Sequence[Panel]) -> LogNorm:
    """Make one scale for all panels. It spans a decade at least, so that a flat map looks flat."""
    values = np.concatenate([p.values[p.drawable] for p in panels])
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
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


def _grey_note(panels: Sequence[Panel]) -> str:
    grey = sum(int((~p.drawable).sum()) for p in panels)
    return f" · grey: {plural(grey, 'cell')} zero or undefined" if grey else ""
