"""The three numbers of every layer side by side: γ, ν and σ²."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.results.numbers import Z95
from hessdiag.results.report import BlockReport, Report
from hessdiag.view.plots import style
from hessdiag.view.plots.style import QUANTITIES, SIGMA_SQ, Quantity, drawable

# Markers of each kind of block: (size in points, filled).
MARKERS = {"weight": (5.5, True), "bias": (4.0, False), "scalar": (2.6, True)}


def draw_layers(report: Report) -> Figure:
    """Draw γ, σ² and ν of every layer on one logarithmic axis, the first layer on top.

    A balanced network has each colour in a vertical line; the legend gives the largest over the smallest value among
    the weights. γ (blue) next to σ² (green) says how well the theory predicts the measurement. Biases are hollow and
    learnable scalars small, on the row of their layer. Bars on σ² are ±1.96 standard errors. What is undefined or zero
    is not drawn, and the caption counts it. The weights set the scale: biases and scalars far beyond them are arrows at
    the edge.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose")
    rows = row_names(report.blocks)
    names = list(dict.fromkeys(rows))
    with style.context("whitegrid"):
        figure = Figure(figsize=(8.5, (0.34 if len(names) <= 12 else 0.2) * len(names) + 1.7))
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_xlim(*_limits(report.blocks))
        for series in QUANTITIES:
            points = [(block, names.index(row)) for block, row in zip(report.blocks, rows, strict=True)]
            points = [(block, row) for block, row in points if drawable(getattr(block, series.key))]
            line = [(getattr(b, series.key), row + series.offset) for b, row in points if b.kind == "weight"]
            axes.plot(*np.transpose(line or np.empty((0, 2))), color=series.colour, alpha=0.35, zorder=2)
            for block, row in points:
                _draw_value(axes, series, block, row)
        axes.set_yticks(range(len(names)), labels=style.short_labels(names))
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.set_xlabel("value (logarithmic)")
        axes.tick_params(axis="y", length=0)
        style.label_decades(axes.xaxis)
        axes.legend(handles=_legend(report), loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.3)
        arrows = ["◁ ▷: beyond the axis"] if any(line.get_marker() in ("<", ">") for line in axes.lines) else []
        note = " · ".join([style.caption(report), *arrows, *_missing(report.blocks)])
        style.frame(figure, title="Balance of the layers: γ, σ² and ν of each", note=note)
    return figure


def row_names(blocks: Sequence[BlockReport]) -> list[str]:
    """Name the row of each block: biases and scalars join the weight of their module if it has just one."""
    weights = {_owner(b.name): b.name for b in blocks if b.kind == "weight"}
    alone = Counter(_owner(b.name) for b in blocks if b.kind == "weight")
    return [weights[_owner(b.name)] if b.kind != "weight" and alone[_owner(b.name)] == 1 else b.name for b in blocks]


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _limits(blocks: Sequence[BlockReport]) -> tuple[float, float]:
    """Leave room for the weights with their error bars, and for other blocks unless they are far beyond these."""
    weights = _decades([block for block in blocks if block.kind == "weight"])
    others = _decades([block for block in blocks if block.kind != "weight"])
    own = np.array(weights or others or [0.0])
    reach = max(1.0, 0.25 * float(np.ptp(own)))
    near = [decade for decade in others if own.min() - reach <= decade <= own.max() + reach]
    logs = np.array([*own, *near])
    pad = max(0.06 * float(np.ptp(logs)), 0.25, 1.0 - float(np.ptp(logs)) / 2)  # two decades at least, for their ticks
    return float(10 ** (logs.min() - pad)), float(10 ** (logs.max() + pad))


def _decades(blocks: Sequence[BlockReport]) -> list[float]:
    """List the logarithms of all values and ends of error bars, as far as these are positive."""
    bars = [b.avg_sq_singular_value + sign * Z95 * b.stderr for b in blocks for sign in (-1, 1)]
    values = [getattr(b, s.key) for b in blocks for s in QUANTITIES]
    return [float(np.log10(v)) for v in values + bars if drawable(v)]


def _draw_value(axes: Axes, series: Quantity, block: BlockReport, row: int) -> None:
    value, y = getattr(block, series.key), row + series.offset
    low, high = axes.get_xlim()
    size, filled = MARKERS[block.kind]
    marker = "<" if value < low else ">" if value > high else series.marker
    if series is SIGMA_SQ and drawable(block.stderr) and low <= value <= high:
        ends = [max(value - Z95 * block.stderr, low), value + Z95 * block.stderr]  # an interval may reach 0
        axes.plot(ends, [y, y], color=series.colour, linewidth=1.6, zorder=3, gid="stderr")
    look = _look(series.colour, size, filled=filled)
    name = style.printable(f"{block.name}:{series.key}")
    axes.plot([min(max(value, low), high)], [y], marker=marker, clip_on=False, zorder=4, gid=name, **look)


def _look(colour: str, size: float, *, filled: bool) -> dict[str, Any]:
    face, edge = (colour, 0.0) if filled else ("white", 1.1)
    return {"color": colour, "markersize": size, "markerfacecolor": face, "markeredgewidth": edge}


def _missing(blocks: Sequence[BlockReport]) -> Iterator[str]:
    """Say what is not drawn: each quantity of each kind of block, how often and why."""
    counts: Counter[str] = Counter()
    for block in blocks:
        for series in QUANTITIES:
            value = getattr(block, series.key)
            if not drawable(value):
                why = "undefined" if np.isnan(value) else "infinite" if np.isinf(value) else "zero"
                counts[f"{series.symbol} {why} in {{}} {block.kind}"] += 1
    kinds = Counter(str(block.kind) for block in blocks)
    for text, count in counts.items():
        total = kinds[text.rpartition(" ")[2]]
        yield text.format("every" if count == total > 1 else count) + ("s" if 1 < count < total else "")


def _legend(report: Report) -> list[Artist]:
    handles: list[Artist] = []
    for series in QUANTITIES:
        bars = series is SIGMA_SQ and any(drawable(b.stderr) for b in report.blocks)
        label = f"{series.label}\nmax/min {style.number(report.spread[series.key])}"
        label += ", bars: ± 1.96 stderr" if bars else ""
        handles.append(Line2D([], [], color=series.colour, marker=series.marker, markersize=5.5, label=label))
    for kind in ("bias", "scalar"):
        if any(block.kind == kind for block in report.blocks):
            size, filled = MARKERS[kind]
            look = _look(style.MUTED, size, filled=filled)
            handles.append(Line2D([], [], linestyle="", marker="o", label=kind, **look))
    return handles
