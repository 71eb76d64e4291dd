"""The curvature map: how large every block of the Hessian or Gauss-Newton matrix is, against every other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.block_map import Panel, Scale, scaled
from hessdiag.plots.captions import agree, caption
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number, plural, printable, short_labels, text_width
from hessdiag.plots.row_places import MAP, mark_rows
from hessdiag.plots.ticks import label_decades
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

ROWS = {"hessian": "Hessian", "ggn": "Gauss-Newton (GGN)"}
MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
NUMBER, TICK = 6.5, 6.0  # points: numbers in cells, names of many blocks
CELL, PITCH = 0.44, 0.115  # inches a side: cells with and without a number
MIN_SIDE = 2.5  # inches a side, of a map: the colourbar's label needs them
MAX_SIDE, MAX_SIDE_OF_MANY = 7.0, 3.6  # inches a side: a single map, one of several side by side


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
    agree(panels, ("model", "names", "numel", "loss", "per", "batch_size"))
    drawn = [Panel.of_setups(setups) for setups in panels]
    places = [(panel.matrix, panel.init) for panel in drawn]
    for place in places:
        if places.count(place) > 1:
            matrix, init = place
            raise HessdiagError(f"two panels show matrix {matrix!r} with init {init!r}: pass each combination once")
    return _draw(drawn, note=caption(*panels), relative=relative)


def draw_heatmap(report: Report, *, relative: bool = False) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.weights:
        raise HessdiagError(f"{report.model} has no weight block to draw a map of: use draw_layers")
    return _draw([Panel.of_report(report)], note=caption(report), relative=relative)


def _draw(panels: Sequence[Panel], *, note: str, relative: bool) -> Figure:
    matrices = sorted(dict.fromkeys(p.matrix for p in panels), key=lambda m: (m not in ROWS, m != "hessian"))
    inits = list(dict.fromkeys(p.init for p in panels))
    panels, scale = scaled(panels, relative=relative)
    labels = Labels.of(panels[0].names, columns=len(inits))
    with style.context("white"):
        figure = Figure(figsize=labels.figure_size(len(matrices), len(inits)))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        shown = {}
        for panel in panels:
            axes = grid[matrices.index(panel.matrix)][inits.index(panel.init)]
            draw_panel(axes, panel, scale, labels)
            shown[axes] = panel
        label_outside(grid, shown, labels)
        draw_colourbar(figure, scale, list(shown))
        frame(figure, title=scale.title, note=note + _grey_note(panels), compress=True)
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


def draw_panel(axes: Axes, panel: Panel, scale: Scale, labels: Labels) -> None:
    """Draw one map with its head and, where they fit, its numbers."""
    blocks = len(panel.names)
    seam = 0.6 if blocks <= MAX_ANNOTATED else 0.0
    sns.heatmap(
        panel.values,
        mask=~panel.drawable,
        norm=scale.norm,
        vmin=scale.norm.vmin,  # or seaborn warns of a map without a value
        vmax=scale.norm.vmax,
        cmap=scale.colours,
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
    head(axes, panel.init, panel.detail)
    if blocks <= MAX_ANNOTATED:
        for (i, j), value in np.ndenumerate(panel.values):
            _annotate(axes, i, j, float(value), scale)  # seaborn's numbers have less contrast, and grey cells none


def _annotate(axes: Axes, i: int, j: int, value: float, scale: Scale) -> None:
    drawable = math.isfinite(value) and value > 0
    colour = scale.colour(value) if drawable else to_rgb(style.theme().neutral)
    text = "–" if math.isnan(value) else number(value)
    axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=NUMBER, color=_contrasting(colour))


def _contrasting(colour: tuple[float, float, float]) -> str:
    """Choose black or white, whichever has the larger contrast by the definition of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def draw_colourbar(figure: Figure, scale: Scale, beside: Sequence[Axes]) -> None:
    """Draw the scale that all maps share at the right of them."""
    bar = figure.colorbar(ScalarMappable(scale.norm, scale.colours), ax=beside, fraction=0.05, aspect=22, pad=0.03)
    bar.set_label(scale.label, fontsize=style.SMALL, parse_math=True)
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


def _precision(panels: Sequence[Panel]) -> str:
    errors = [p.error for p in panels]
    if any(math.isnan(e) for e in errors):
        return "estimator error unknown"
    return f"estimator error ≤ {number(100 * max(errors))} %" if any(errors) else "exact"


def _grey_note(panels: Sequence[Panel]) -> str:
    grey = sum(int((~p.drawable).sum()) for p in panels)
    return f" · grey: {plural(grey, 'cell')} zero or undefined" if grey else ""
