"""Learning rates that were predicted before training against the best ones of sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number
from hessdiag.plots.ticks import label_decades
from hessdiag.results.learning_rate_study import RateRow, RateStudy, score
from hessdiag.results.learning_rates import NAMES

SIZE = (8.6, 3.3)  # inches
MARGIN = 2.0  # factor between the best rates and the ends of an axis
KINDS = (  # kind, source, label, marker, filled
    ("steps", "fresh", "12 virtual steps", "o", True),
    ("first", "256", "first step alone, 256 examples", "o", False),
    ("range", "fastai minimum", "range test, a tenth of the minimum", "x", True),
)


def draw_rate_study(study: RateStudy) -> Figure:
    """Draw predicted against best rates, a panel an optimiser, a dot a network, with bands of factors 2 and 4.

    Dots beyond the panel are drawn at its edge.
    """
    optimizers = list(dict.fromkeys(row.optimizer for row in study.rows))
    with style.context("ticks"):
        figure = Figure(figsize=SIZE)
        panels = figure.subplots(1, len(optimizers), squeeze=False)[0]
        for axes, optimizer in zip(panels, optimizers, strict=True):
            _draw_optimizer(axes, [row for row in study.rows if row.optimizer == optimizer])
        panels[0].set_ylabel("predicted learning rate")
        neutral = style.theme().neutral
        legend: list[Line2D | Patch] = [_dot(*kind[2:]) for kind in KINDS]
        legend.append(Patch(color=neutral, alpha=0.45, linewidth=0, label="within a factor 2, 4"))
        networks = len({row.network for row in study.rows})
        note = (
            f"{networks} networks, 200 steps at a constant rate · best rate: lowest mean loss of the last 25 steps"
            " · beyond the panel: drawn at its edge"
        )
        frame(figure, title="Learning rates predicted before training", note=note, legend=legend)
    return figure


def _draw_optimizer(axes: Axes, rows: Sequence[RateRow]) -> None:
    best = [row.best for row in rows]
    low, high = min(best) / MARGIN, max(best) * MARGIN
    bottom, top = low / 4, high * 4
    for factor in (4.0, 2.0):
        line = [low, high]
        below, above = [x / factor for x in line], [x * factor for x in line]
        axes.fill_between(line, below, above, color=style.theme().neutral, alpha=0.45, linewidth=0)
    axes.plot([low, high], [low, high], **style.reference())
    for kind, source, _, marker, filled in reversed(KINDS):
        known = [row for row in rows if kind != "range" or row.gradients]
        rates = [getattr(row, kind).get(source, math.nan) for row in known]
        shown = [min(max(rate, bottom * 1.1), top / 1.1) if rate > 0 else bottom * 1.1 for rate in rates]
        axes.plot([row.best for row in known], shown, **_looks(marker, filled))
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top), xlabel="best learning rate of the sweep")
    label_decades(axes.xaxis)
    label_decades(axes.yaxis)
    found = score(rows, "steps", "fresh")
    head(axes, NAMES[rows[0].optimizer], f"median error ×{number(2**found.median)}, {100 * found.near:.0f} % within ×4")


def _looks(marker: str, filled: bool) -> dict[str, Any]:
    theme = style.theme()
    if marker == "x":
        return {"marker": "x", "linestyle": "", "markersize": 3.5, "color": theme.muted, "markeredgewidth": 0.7}
    face = theme.lines[0] if filled else "none"
    size = 4.5 if filled else 4.0
    edge = theme.page if filled else theme.lines[1]
    looks: dict[str, Any] = {"marker": marker, "linestyle": "", "markersize": size, "color": theme.lines[0]}
    return looks | {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.5 if filled else 0.8}


def _dot(label: str, marker: str, filled: bool) -> Line2D:
    dot = Line2D([], [], label=label)
    dot.set(**_looks(marker, filled))
    return dot
