"""What operations do to ς: one dot with an interval a setting, on a logarithmic axis around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.frame import frame
from hessdiag.plots.labels import plural
from hessdiag.plots.ticks import label_octaves, octaves_within
from hessdiag.results.operation_table import OperationRow

ROW = 0.17  # inches


def draw_scaling(rows: Sequence[OperationRow]) -> Figure:
    """Draw ς behind an operation over ς before it: measured, with its 95 % interval, and predicted; a line a setting.

    A dot on the dashed line says that the operation keeps ς. Blue dots agree with the paper's ✓ or ✗, orange ones do
    not; crosses are what the calculus with `kernel` moments predicts.
    """
    check_kind("rows", rows, (list, tuple), "pass the rows of hessdiag.experiments.operation_figure")
    if not rows:
        raise HessdiagError("nothing to draw: pass at least one row")
    agrees, differs, *_ = style.theme().lines
    ink = style.theme().ink
    with style.context("whitegrid"):
        figure = Figure(figsize=(6.6, ROW * len(rows) + 1.0))
        axes = figure.subplots()
        for place, row in enumerate(rows):
            colour = agrees if row.paper == row.verdict else differs
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.6)
            axes.plot(row.ratio, place, "o", color=colour, markersize=4)
            if math.isfinite(row.predicted):
                axes.plot(row.predicted, place, "x", color=ink, markersize=4)
        axes.axvline(1.0, **style.reference())
        axes.set_xscale("log", base=2)
        label_octaves(axes, octaves_within(*axes.get_xlim()))
        axes.set_yticks(range(len(rows)), [f"{row.row}, {row.detail} ({row.reads})  {row.paper}" for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("ς behind the operation / ς before it")
        legend = [
            Line2D([], [], color=agrees, marker="o", markersize=4, label="measured, as the paper's table says"),
            Line2D([], [], color=differs, marker="o", markersize=4, label="measured, against it"),
            Line2D([], [], color=ink, marker="x", linestyle="", markersize=4, label="predicted"),
        ]
        note = f"95 % intervals over {plural(rows[0].draws, 'random network')} a setting"
        frame(figure, title="What operations do to the activation scaling ς", note=note, legend=legend)
    return figure
