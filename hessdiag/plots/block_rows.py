"""The three numbers of every layer side by side: gamma, nu and sigma^2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from hessdiag.plots import style
from hessdiag.results.report import BlockReport, Report


@dataclass(frozen=True)
class _Series:
    """One quantity: where it is kept, what it is called and how it is drawn."""

    key: str
    symbol: str
    meaning: str
    colour: str
    marker: str
    offset: float  # rows, so that equal values do not hide one another


SERIES = (
    _Series("gamma", "γ", "scaling factor, theory for σ²", style.BLUE, "o", -0.2),
    _Series("avg_sq_singular_value", "σ²", "average squared singular value", style.GREEN, "D", 0.0),
    _Series("nu", "ν", "weight-gradient ratio", style.ORANGE, "s", 0.2),
)

# Markers of each kind of block: (size in points, filled).
MARKERS = {"weight": (5.5, True), "bias": (4.0, False), "scalar": (2.6, True)}
Z95 = 1.96


def draw_layers(report: Report) -> Figure:
    """γ, σ² and ν of every layer on one logarithmic axis, the first layer on top.

    A balanced network has each colour in a vertical line; the legend gives the largest over the smallest value among
    the weights. γ (blue) next to σ² (green) says how well the theory predicts the measurement. Biases are hollow and
    learnable scalars small, on the row of their layer. Bars on σ² are ±1.96 standard errors. What is undefined or zero
    is not drawn, and is named at the right of its row.
    """
    rows = _rows(report.blocks)
    names = list(dict.fromkeys(rows))
    with style.context("whitegrid"):
        labels = style.short_labels(names)
        pitch = 0.34 if len(names) <= 12 else 0.2
        figure = Figure(figsize=(max(7.3, 6.0 + style.text_width(labels, style.SMALL)), pitch * len(names) + 0.6))
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_xlim(*_limits(report.blocks))
        for series in SERIES:
            _draw_line(axes, series, report.blocks, rows, names)
            for block, row in zip(report.blocks, rows, strict=True):
                _draw_value(axes, series, block, names.index(row))
        everywhere = _missing_everywhere(report.blocks)
        _say_missing(axes, report.blocks, rows, names, but=everywhere)
        _label(axes, labels)
        note = style.caption(report) + "".join(
            f" · {_symbol(key)} {why} in every {kind}" for (key, kind), why in everywhere.items()
        )
        style.frame(figure, title="Balance of the layers: γ, σ² and ν of each", note=note, legend=_legend(report))
    return figure


def _rows(blocks: Sequence[BlockReport]) -> list[str]:
    """The row of each block: biases and scalars join the weight of their module if it has just one."""
    weights = {_owner(b.name): b.name for b in blocks if b.kind == "weight"}
    alone = Counter(_owner(b.name) for b in blocks if b.kind == "weight")
    return [weights[_owner(b.name)] if b.kind != "weight" and alone[_owner(b.name)] == 1 else b.name for b in blocks]


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _drawable(value: float) -> bool:
    return bool(np.isfinite(value) and value > 0)


def _limits(blocks: Sequence[BlockReport]) -> tuple[float, float]:
    """Decades' worth of room for all values and for the error bars, as far as these are positive."""
    bars = [b.avg_sq_singular_value + sign * Z95 * b.stderr for b in blocks for sign in (-1, 1)]
    values = [getattr(b, s.key) for b in blocks for s in SERIES]
    logs = np.log10([v for v in values + bars if _drawable(v)] or [1.0])
    pad = max(0.06 * float(np.ptp(logs)), 0.25, 1.0 - float(np.ptp(logs)) / 2)  # two decades at least, for their ticks
    return float(10 ** (logs.min() - pad)), float(10 ** (logs.max() + pad))


def _draw_line(
    axes: Axes, series: _Series, blocks: Sequence[BlockReport], rows: Sequence[str], names: Sequence[str]
) -> None:
    points = [
        (getattr(b, series.key), names.index(row) + series.offset)
        for b, row in zip(blocks, rows, strict=True)
        if b.kind == "weight" and _drawable(getattr(b, series.key))
    ]
    axes.plot([x for x, _ in points], [y for _, y in points], color=series.colour, alpha=0.35, linewidth=1.0, zorder=2)


def _draw_value(axes: Axes, series: _Series, block: BlockReport, row: int) -> None:
    value = getattr(block, series.key)
    if not _drawable(value):
        return
    y = row + series.offset
    size, filled = MARKERS[block.kind]
    if series.key == "avg_sq_singular_value" and _drawable(block.stderr):
        # An interval that reaches 0 runs to the edge of the axis.
        low = max(value - Z95 * block.stderr, axes.get_xlim()[0])
        axes.plot([low, value + Z95 * block.stderr], [y, y], color=series.colour, linewidth=1.6, zorder=3, gid="stderr")
    axes.plot(
        [value],
        [y],
        marker=series.marker,
        markersize=size,
        color=series.colour,
        markerfacecolor=series.colour if filled else "white",
        markeredgewidth=0.0 if filled else 1.1,
        zorder=4,
        gid=f"{block.name}:{series.key}",
    )


def _missing_everywhere(blocks: Sequence[BlockReport]) -> dict[tuple[str, str], str]:
    """Quantities that all blocks of a kind lack for one reason, as zero biases lack nu: said once, not in each row."""
    found: dict[tuple[str, str], str] = {}
    for kind in dict.fromkeys(block.kind for block in blocks):
        for series in SERIES:
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
            for series in SERIES
            if row == name and not _drawable(getattr(block, series.key)) and (series.key, block.kind) not in but
        ]
        at = axes.get_yaxis_transform()  # x in the width of the axes, y in rows
        axes.text(1.01, place, ", ".join(said), transform=at, va="center", fontsize=6.0, color=style.WARNING)


def _symbol(key: str) -> str:
    return next(series.symbol for series in SERIES if series.key == key)


def _why(value: float) -> str:
    return "undefined" if np.isnan(value) else "infinite" if np.isinf(value) else "zero"


def _label(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels=list(labels))
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("value (logarithmic)")
    axes.tick_params(axis="y", length=0)


def _legend(report: Report) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=5.5, linewidth=1.0, label=_entry(s, report))
        for s in SERIES
    ]
    kinds = {block.kind for block in report.blocks}
    for kind in ("bias", "scalar"):
        if kind in kinds:
            size, filled = MARKERS[kind]
            face, edge = (style.MUTED, 0.0) if filled else ("white", 1.1)
            line = Line2D([], [], linestyle="", marker="o", markersize=size, color=style.MUTED, label=kind)
            line.set(markerfacecolor=face, markeredgewidth=edge)
            handles.append(line)
    return handles


def _entry(series: _Series, report: Report) -> str:
    bars = series.key == "avg_sq_singular_value" and any(_drawable(b.stderr) for b in report.blocks)
    largest = style.number(report.spread[series.key])
    return f"{series.symbol}, {series.meaning}\nmax/min {largest}" + (", bars: ± 1.96 stderr" if bars else "")
