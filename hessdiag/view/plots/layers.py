"""The three numbers of every layer side by side: γ, ν and σ²."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.results.numbers import Z95, short
from hessdiag.results.report import BlockReport, Report
from hessdiag.view.plots import style
from hessdiag.view.plots.style import drawable


class Quantity(NamedTuple):
    """An attribute of a `BlockReport`, and how it is drawn."""

    key: str
    label: str
    marker: str
    colour: str
    offset: float  # in rows, so that equal values of a block do not hide one another


SIGMA_SQ = Quantity("avg_sq_singular_value", "σ², average squared singular value", "D", style.COLOURS[2], 0.0)
QUANTITIES = (
    Quantity("gamma", "γ, scaling factor of the theory", "o", style.COLOURS[0], -0.2),
    SIGMA_SQ,
    Quantity("nu", "ν, weight-gradient ratio", "s", style.COLOURS[1], 0.2),
)

MARKERS: dict[str, dict[str, Any]] = {  # of each kind of block
    "weight": {"markersize": 5.5, "markeredgewidth": 0.0},
    "bias": {"markersize": 4.0, "markeredgewidth": 1.1, "markerfacecolor": "white"},
    "scalar": {"markersize": 2.6, "markeredgewidth": 0.0},
}


def draw_layers(report: Report) -> Figure:
    """Draw γ, σ² and ν of every layer on one logarithmic axis, the first layer on top.

    A balanced network has each colour in a vertical line; the legend gives the largest over the smallest value among
    the weights. γ (blue) next to σ² (green) says how well the theory predicts the measurement. Biases are hollow and
    learnable scalars small, on the row of their layer. Bars on σ² are ±1.96 standard errors. What is undefined or zero
    is not drawn.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose")
    frame, rows = report.to_dataframe(), row_names(report.blocks)
    names = list(dict.fromkeys(rows))
    places = np.array([names.index(row) for row in rows])
    with style.context("whitegrid"):
        figure = Figure(figsize=(8.5, (0.34 if len(names) <= 12 else 0.2) * len(names) + 1.7))
        axes = figure.subplots()
        axes.set_xscale("log", nonpositive="clip")
        for series in QUANTITIES:
            shown = frame.assign(y=places + series.offset)[drawable(frame[series.key].to_numpy(float))]
            weights = shown[shown["kind"] == "weight"]
            axes.plot(weights[series.key], weights["y"], color=series.colour, alpha=0.35, zorder=2)
            for kind, look in MARKERS.items():
                points = shown[shown["kind"] == kind]
                axes.plot(points[series.key], points["y"], linestyle="", color=series.colour, marker=series.marker,
                          zorder=4, gid=f"{kind}:{series.key}", **look)  # fmt: skip
            if series is SIGMA_SQ:
                noisy = shown[drawable(shown["stderr"].to_numpy(float))]
                axes.errorbar(noisy[series.key], noisy["y"], xerr=Z95 * noisy["stderr"], fmt="none",
                              ecolor=series.colour, elinewidth=1.6, zorder=3)  # fmt: skip
        axes.set_yticks(range(len(names)), labels=style.short_labels(names))
        axes.set(ylim=(len(names) - 0.45, -0.55), xlabel="value (logarithmic)")
        axes.tick_params(axis="y", length=0)
        low, high = axes.get_xlim()
        grow = max(1.0, math.sqrt(100 * low / high))  # two decades at least, for their ticks
        axes.set_xlim(low / grow, high * grow)
        style.label_decades(axes.xaxis)
        axes.legend(handles=[*_legend(report)], loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.3)
        style.frame(figure, title="Balance of the layers: γ, σ² and ν of each", note=style.caption(report))
    return figure


def row_names(blocks: Sequence[BlockReport]) -> list[str]:
    """Name the row of each block: biases and scalars join the weight of their module if it has just one."""
    owned = [(b.name.rpartition(".")[0], b) for b in blocks]
    weights = {owner: b.name for owner, b in owned if b.kind == "weight"}
    alone = Counter(owner for owner, b in owned if b.kind == "weight")
    return [weights[owner] if b.kind != "weight" and alone[owner] == 1 else b.name for owner, b in owned]


def _legend(report: Report) -> Iterator[Line2D]:
    for series in QUANTITIES:
        label = f"{series.label}\nmax/min {short(report.spread[series.key])}"
        if series is SIGMA_SQ and any(drawable(block.stderr) for block in report.blocks):
            label += ", bars: ± 1.96 stderr"
        yield Line2D([], [], color=series.colour, marker=series.marker, markersize=5.5, label=label)
    kinds = [kind for kind in ("bias", "scalar") if any(block.kind == kind for block in report.blocks)]
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "color": style.MUTED}
    yield from (Line2D([], [], label=kind, **look, **MARKERS[kind]) for kind in kinds)
