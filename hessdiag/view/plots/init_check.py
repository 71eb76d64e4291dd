"""Initialisations side by side: the block map of each, and how far the layers of each are apart."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.results.findings import BALANCED, UNBALANCED
from hessdiag.results.init_check import InitCheck
from hessdiag.view.plots import style
from hessdiag.view.plots.heatmaps import draw_maps, map_size


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
