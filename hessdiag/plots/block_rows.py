"""The three numbers of every layer side by side: gamma, nu and sigma^2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.plots import style
from hessdiag.plots.captions import caption
from hessdiag.plots.frame import frame
from hessdiag.plots.labels import number, plural, printable, short_labels, text_width
from hessdiag.plots.row_places import LAYERS, mark_rows
from hessdiag.plots.style import QUANTITIES, SIGMA_SQ, Quantity
from hessdiag.plots.ticks import label_decades
from hessdiag.results.numbers import Z95
from hessdiag.results.report import BlockReport, Report

# Markers of each kind of block: (size in points, filled).
MARKERS = {"weight": (5.5, True), "bias": (4.0, False), "scalar": (2.6, True)}
EDGES = {"<": 0.008, ">": 0.992}  # markers of values beyond the ends of the axis, and where in its width they are
REACH = 0.25  # of the decades that the weights span, one at least: so far beyond them the axis goes for other blocks


def draw_layers(report: Report) -> Figure:
    """Draw γ, σ² and ν of every layer on one logarithmic axis, the first layer on top.

    A balanced network has each colour in a vertical line; the legend gives the largest over the smallest value among
    the weights. γ (blue) next to σ² (green) says how well the theory predicts the measurement. Biases are hollow and
    learnable scalars small, on the row of their layer. Bars on σ² are ±1.96 standard errors. What is undefined or zero
    is not drawn, and is named at the right of its row. The weights set the scale: biases and scalars far beyond them
    are arrows at the edge, and the caption counts them.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose")
    rows = row_names(report.blocks)
    names = list(dict.fromkeys(rows))
    with style.context("whitegrid"):
        labels = short_labels(names)
        pitch = 0.34 if len(names) <= 12 else 0.2
        figure = Figure(figsize=(max(7.3, 6.0 + text_width(labels, style.SMALL)), pitch * len(names) + 0.6))
        axes = figure.subplots()
        mark_rows(axes, LAYERS)
        axes.set_xscale("log")
        axes.set_xlim(*_limits(report.blocks))
        for series in QUANTITIES:
            _draw_line(axes, series, report.blocks, rows, names)
            for block, row in zip(report.blocks, rows, strict=True):
                _draw_value(axes, series, block, names.index(row))
        everywhere = _missing_everywhere(report.blocks)
        _say_missing(axes, report.blocks, rows, names, but=everywhere)
        _label(axes, labels)
        beyond = _count_beyond(axes, report.blocks)
        note = caption(report) + "".join(
            f" · {_symbol(key)} {why} in every {kind}" for (key, kind), why in everywhere.items()
        )
        note += f" · ◁ ▷ {plural(beyond, 'value')} of biases or scalars beyond the axis" if beyond else ""
        frame(figure, title="Balance of the layers: γ, σ² and ν of each", note=note, legend=_legend(report))
    return figure


def row_names(blocks: Sequence[BlockReport]) -> list[str]:
    """Name the row of each block: biases and scalars join the weight of their module if it has just one."""
    weights = {_owner(b.name): b.name for b in blocks if b.kind == "weight"}
    alone = Counter(_owner(b.name) for b in blocks if b.kind == "weight")
    return [weights[_owner(b.name)] if b.kind != "weight" and alone[_owner(b.name)] == 1 else b.name for b in blocks]


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _drawable(value: float) -> bool:
    return bool(np.isfinite(value) and value > 0)


def _limits(blocks: Sequence[BlockReport]) -> tuple[float, float]:
    """Leave room for the weights with their error bars, and for other blocks unless they are far beyond these."""
    weights = _decades([block for block in blocks if block.kind == "weight"])
    others = _decades([block for block in blocks if block.kind != "weight"])
    own = np.array(weights or others or [0.0])
    reach = max(1.0, REACH * float(np.ptp(own)))
    near = [decade for decade in others if own.min() - reach <= decade <= own.max() + reach]
    logs = np.array([*own, *near])
    pad = max(0.06 * float(np.ptp(logs)), 0.25, 1.0 - float(np.ptp(logs)) / 2)  # two decades at least, for their ticks
    return float(10 ** (logs.min() - pad)), float(10 ** (logs.max() + pad))


def _decades(blocks: Sequence[BlockReport]) -> list[float]:
    """List the logarithms of all values and ends of error bars, as far as these are positive."""
    bars = [b.avg_sq_singular_value + sign * Z95 * b.stderr for b in blocks for sign in (-1, 1)]
    values = [getattr(b, s.key) for b in blocks for s in QUANTITIES]
    return [float(np.log10(v)) for v in values + bars if _drawable(v)]


def _edge(value: float, axes: Axes) -> str:
    """Choose the arrow of a value beyond the axis; nothing for one on it."""
    low, high = axes.get_xlim()
    return "<" if value < low else ">" if value > high else ""


def _count_beyond(axes: Axes, blocks: Sequence[BlockReport]) -> int:
    values = [getattr(block, series.key) for block in blocks for series in QUANTITIES]
    return sum(bool(_edge(value, axes)) for value in values if _drawable(value))


def _draw_line(
    axes: Axes, series: Quantity, blocks: Sequence[BlockReport], rows: Sequence[str], names: Sequence[str]
) -> None:
    points = [
        (getattr(b, series.key), names.index(row) + series.offset)
        for b, row in zip(blocks, rows, strict=True)
        if b.kind == "weight" and _drawable(getattr(b, series.key))
    ]
    axes.plot([x for x, _ in points], [y for _, y in points], color=series.colour, alpha=0.35, linewidth=1.0, zorder=2)


def _draw_value(axes: Axes, series: Quantity, block: BlockReport, row: int) -> None:
    value = getattr(block, series.key)
    if not _drawable(value):
        return
    y = row + series.offset
    size, filled = MARKERS[block.kind]
    arrow = _edge(value, axes)
    if series is SIGMA_SQ and _drawable(block.stderr) and not arrow:
        # An interval that reaches 0 runs to the edge of the axis.
        ends = [max(value - Z95 * block.stderr, axes.get_xlim()[0]), value + Z95 * block.stderr]
        axes.plot(ends, [y, y], color=series.colour, linewidth=1.6, zorder=3, gid="stderr")
    axes.plot(
        [EDGES.get(arrow, value)],
        [y],
        marker=arrow or series.marker,
        transform=axes.get_yaxis_transform() if arrow else axes.transData,  # x in the width of the axes, y in rows
        markersize=size,
        color=series.colour,
        markerfacecolor=series.colour if filled else style.theme().page,
        markeredgewidth=0.0 if filled else 1.1,
        zorder=4,
        gid=printable(f"{block.name}:{series.key}"),
    )


def _missing_everywhere(blocks: Sequence[BlockReport]) -> dict[tuple[str, str], str]:
    """Find quantities that all blocks of a kind lack for one reason, as zero biases lack nu, to say so once."""
    found: dict[tuple[str, str], str] = {}
    for kind in dict.fromkeys(block.kind for block in blocks):
        for series in QUANTITIES:
            values = [getattr(block, series.key) for block in blocks if block.kind == kind]
            reasons = {"drawn" if _drawable(value) else _why(value) for value in values}
            if len(values) > 1 and len(reasons) == 1 and reasons != {"drawn"}:
                found[series.key, kind] = reasons.pop()
    return found


def _say_missing(
    axes: Axes,
    blocks: Sequence[BlockReport],
    rows: Sequence[str],
    names: Sequence[str],
    *,
    but: Container[tuple[str, str]],
) -> None:
    for place, name in enumerate(names):
        said = [
            f"{series.symbol}{'' if block.kind == 'weight' else f' of {block.kind}'} {_why(getattr(block, series.key))}"
            for block, row in zip(blocks, rows, strict=True)
            for series in QUANTITIES
            if row == name and not _drawable(getattr(block, series.key)) and (series.key, block.kind) not in but
        ]
        at = axes.get_yaxis_transform()
        axes.text(1.01, place, ", ".join(said), transform=at, va="center", fontsize=6.0, color=style.theme().warning)


def _symbol(key: str) -> str:
    return next(series.symbol for series in QUANTITIES if series.key == key)


def _why(value: float) -> str:
    return "undefined" if np.isnan(value) else "infinite" if np.isinf(value) else "zero"


def _label(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels=list(labels))
    axes.set_ylim(len(labels) - 0.45, -0.55)
    label_decades(axes.xaxis)
    axes.set_xlabel("value (logarithmic)")
    axes.tick_params(axis="y", length=0)


def _legend(report: Report) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=5.5, linewidth=1.0, label=_entry(s, report))
        for s in QUANTITIES
    ]
    kinds, muted = {block.kind for block in report.blocks}, style.theme().muted
    for kind in ("bias", "scalar"):
        if kind in kinds:
            size, filled = MARKERS[kind]
            face, edge = (muted, 0.0) if filled else (style.theme().page, 1.1)
            line = Line2D([], [], linestyle="", marker="o", markersize=size, color=muted, label=kind)
            line.set(markerfacecolor=face, markeredgewidth=edge)
            handles.append(line)
    return handles


def _entry(series: Quantity, report: Report) -> str:
    bars = series is SIGMA_SQ and any(_drawable(b.stderr) for b in report.blocks)
    largest = number(report.spread[series.key])
    return f"{series.label}\nmax/min {largest}" + (", bars: ± 1.96 stderr" if bars else "")
