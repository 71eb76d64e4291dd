"""Initialisations side by side: the block map of each, and how far the layers of each are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.block_map import Panel, scaled
from hessdiag.plots.captions import caption
from hessdiag.plots.frame import frame
from hessdiag.plots.heatmaps import Labels, draw_colourbar, draw_panel, label_outside
from hessdiag.plots.labels import number, short_labels
from hessdiag.plots.row_places import INITIALISATIONS, mark_rows
from hessdiag.plots.ticks import label_decades
from hessdiag.results.findings import BALANCED, UNBALANCED
from hessdiag.results.init_check import InitCheck, SchemeCheck, WidthSweep

MAX_MAPS = 6
ROW = 0.3  # inches an initialisation takes among the spreads


def draw_init_check(check: InitCheck, *, relative: bool = False) -> Figure:
    """Draw block maps of the initialisations, the most balanced first, above the spreads of γ, σ² and ν.

    A map whose diagonal has one colour, and a marker near 1, belong to an initialisation under which all layers are
    equally curved. The dashed lines are where the verdict turns to uneven and to unbalanced. Of more than six
    initialisations only the first five and the one asked about have a map. `relative` is that of `draw_heatmaps`.
    """
    check_kind("check", check, InitCheck, "pass what hessdiag.check_init returns")
    schemes = shown(check)
    panels, scale = scaled([Panel.of_setups(scheme.setups) for scheme in schemes], relative=relative)
    labels = Labels.of(panels[0].names, columns=len(panels))
    with style.context("white"):
        width, height = labels.figure_size(1, len(panels))
        below = ROW * len(check.schemes) + 0.5
        figure = Figure(figsize=(max(width, 6.5), height + below))
        grid = figure.add_gridspec(2, len(panels), height_ratios=[height, below])
        maps: list[Axes] = [figure.add_subplot(grid[0, i]) for i in range(len(panels))]
        for axes, panel in zip(maps, panels, strict=True):
            draw_panel(axes, panel, scale, labels)
        label_outside([maps], dict(zip(maps, panels, strict=True)), labels)
        draw_colourbar(figure, scale, maps)
        _draw_spreads(figure.add_subplot(grid[1, :]), check)
        note = caption(*(scheme.setups for scheme in schemes))
        title = f"Initialisation {check.init} among others: are the layers equally curved?"
        frame(figure, title=title, note=note, legend=_legend())
    return figure


def draw_widths(sweep: WidthSweep) -> Figure:
    """Draw σ² of every layer over the geometric mean of all, against the width: one line a layer.

    As in a coordinate check, lines that stay level say that the balance holds as the network grows.

    Raises:
        HessdiagError: no width has a defined value for all layers.
    """
    check_kind("sweep", sweep, WidthSweep, "pass check_init(..., widths=[0.5, 1, 2]).widths")
    relative = sweep.relative()  # (W, L)
    if not np.isfinite(relative).any():
        raise HessdiagError("σ² is zero or undefined at every width: there is nothing to draw")
    with style.context("whitegrid"):
        figure = Figure(figsize=(6.4, 3.4))
        axes = figure.subplots()
        names = short_labels(sweep.names)
        colours = style.shades(len(names))
        for name, values, colour in zip(names, relative.T, colours, strict=True):
            axes.plot(sweep.widths, values, marker="o", markersize=3.5, linewidth=1.3, color=colour, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(list(sweep.widths), labels=[f"{width:g}×" for width in sweep.widths])
        axes.set_xlabel("width of the hidden layers")
        axes.set_ylabel("σ² / geometric mean of all layers")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.3), max(high, 3.0))  # a decade, so that level lines look level
        axes.axhline(1, **style.reference())
        if len(names) <= 12:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        label_decades(axes.yaxis)
        pairs = zip(sweep.widths, sweep.spreads(), strict=True)
        note = "largest over smallest σ²: " + ", ".join(f"{number(s)} at {w:g}×" for w, s in pairs)
        frame(figure, title="Balance of the layers as the network grows", note=note)
    return figure


def shown(check: InitCheck) -> Sequence[SchemeCheck]:
    """Choose the initialisations that have a map, in the order of the maps."""
    if len(check.schemes) <= MAX_MAPS:
        return check.schemes
    first = list(check.schemes[:MAX_MAPS])
    return first if check.checked in first else [*first[:-1], check.checked]


def _draw_spreads(axes: Axes, check: InitCheck) -> None:
    mark_rows(axes, INITIALISATIONS)
    axes.set_xscale("log")
    axes.grid(axis="x")
    for row, scheme in enumerate(check.schemes):
        for series in style.QUANTITIES:
            interval = scheme.spread(series.key)
            if not np.isfinite(interval.value):
                axes.annotate("undefined", (1, row), fontsize=style.SMALL, color=style.theme().muted)
                continue
            y = row + series.offset
            axes.plot([interval.value], [y], series.marker, color=series.colour, markersize=4.5)
            if np.isfinite(interval.low):
                axes.plot([interval.low, interval.high], [y, y], color=series.colour, linewidth=1.2)
    for factor in (BALANCED, UNBALANCED):
        axes.axvline(factor, **style.reference())
    axes.set_xlim(left=0.9, right=max(axes.get_xlim()[1], 2 * UNBALANCED))
    label_decades(axes.xaxis)
    axes.set_yticks(range(len(check.schemes)), labels=short_labels([s.init for s in check.schemes]))
    for text, scheme in zip(axes.get_yticklabels(), check.schemes, strict=True):
        text.set_fontweight("bold" if scheme is check.checked else "normal")
    axes.set_ylim(len(check.schemes) - 0.5, -0.5)
    axes.set_xlabel("largest over smallest weight block (1: all equal), with 95 % intervals over set-ups")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(left=False)


def _legend() -> list[Artist]:
    return [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=4.5, linewidth=1.2, label=s.label)
        for s in style.QUANTITIES
    ]
