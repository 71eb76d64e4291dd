"""What operations do to ς: one dot with an interval a setting, on a logarithmic axis around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.frame import frame
from hessdiag.plots.labels import number, plural
from hessdiag.plots.ticks import label_octaves, octaves_within
from hessdiag.results.operation_table import OperationRow

ROW = 0.17  # inches
READS = {
    "centred": "outputs of a random layer",
    "relu": "those behind a ReLU",
    "residual": "a ReLU's output plus a layer's",
}


def draw_scaling(rows: Sequence[OperationRow]) -> Figure:
    """Draw ς behind an operation over ς before it: measured, with its 95 % interval, and predicted; a line a setting.

    A dot on the dashed line says that the operation keeps ς. Blue dots agree with the paper's ✓ or ✗, orange ones do
    not; upright ticks are what the calculus with `kernel` moments predicts. The measured number stands at the right.
    """
    check_kind("rows", rows, (list, tuple), "pass the rows of hessdiag.experiments.operation_figure")
    if not rows:
        raise HessdiagError("nothing to draw: pass at least one row")
    agrees, differs, *_ = style.theme().lines
    with style.context("whitegrid"):
        figure = Figure(figsize=(7.2, ROW * len(rows) + 1.0))
        axes = figure.subplots()
        for place, row in enumerate(rows):
            _draw_row(axes, place, row, agrees if row.paper == row.verdict else differs)
        for place in (i for i in range(1, len(rows)) if rows[i].row != rows[i - 1].row):
            axes.axhline(place - 0.5, color=style.theme().edge, linewidth=0.8)
        axes.axvline(1.0, **style.reference(), zorder=1)
        axes.set_xscale("log", base=2)
        label_octaves(axes, octaves_within(*axes.get_xlim()))
        axes.set_yticks(range(len(rows)), [f"{row.row}, {row.detail} ({row.reads})  {row.paper}" for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ς behind the operation / ς before it (dashed: ς is kept)")
        frame(figure, title="What operations do to the activation scaling ς", note=_note(rows), legend=_legend())
    return figure


def _draw_row(axes: Axes, place: int, row: OperationRow, colour: str) -> None:
    if math.isfinite(row.predicted):  # taller than the dot, which it lies behind
        axes.plot(row.predicted, place, "|", color=style.theme().ink, markersize=9, markeredgewidth=1.3, zorder=2)
    axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.6, zorder=3)
    axes.plot(row.ratio, place, "o", color=colour, markersize=4, zorder=3)
    at = axes.get_yaxis_transform()  # x in the width of the axes, y in rows
    value = axes.text(1.01, place, number(row.ratio), transform=at, va="center", color=style.theme().muted)
    value.set_fontsize(style.SMALL)


def _legend() -> list[Line2D]:
    agrees, differs, *_ = style.theme().lines
    tick = Line2D([], [], color=style.theme().ink, marker="|", linestyle="", markersize=9, markeredgewidth=1.3)
    tick.set_label("predicted by the calculus")
    return [
        Line2D([], [], color=agrees, marker="o", markersize=4, label="measured, as the paper says"),
        Line2D([], [], color=differs, marker="o", markersize=4, label="measured, against the paper"),
        tick,
    ]


def _note(rows: Sequence[OperationRow]) -> str:
    """Explain the marks."""
    reads = ", ".join(f"{key}: {READS[key]}" for key in dict.fromkeys(row.reads for row in rows) if key in READS)
    return (
        "✓ the paper's table says that ς is kept, ✗ that it is not"
        f" · in brackets what the operation reads; {reads}"
        f" · numbers: measured, geometric mean over {plural(rows[0].draws, 'random network')} a setting"
        " · bars: its 95 % interval, often narrower than the dot"
    )
