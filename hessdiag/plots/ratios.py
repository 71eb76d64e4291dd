"""Theory against measurement: one histogram of gamma / sigma^2 a block, over many set-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hessdiag.arguments import check_kind
from hessdiag.plots import style
from hessdiag.plots.captions import caption
from hessdiag.plots.frame import frame, head, head_width
from hessdiag.plots.labels import number, short_labels
from hessdiag.plots.ticks import label_octaves
from hessdiag.results.numbers import Array
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

PERCENTILES = (5, 50, 95)
MAX_TICKS = 7
MAX_BINS = 60
MIN_OCTAVES = 2.4  # octaves on either side of 1 that the axis shows at least


def draw_report_ratios(report: Report) -> Figure:
    """Draw γ/σ² of the weight blocks of one report: a bar a panel, where `draw_ratios` has a histogram."""
    return draw_ratios(Setups.collect([report]))


def draw_ratios(setups: Setups) -> Figure:
    """Draw histograms of γ/σ², theory over measurement, one panel a block, over all set-ups.

    A panel whose bars sit on the dashed line at 1 says that the theory predicts the curvature of that block; bars to
    the left say that it predicts too little. The solid line is the median, the band the 5–95 % range; both are printed
    above the panel. Ratios that are undefined (no finite number) or 0 have no place on the axis and are counted there.
    """
    check_kind("setups", setups, Setups, "pass Setups as measure_setups returns; draw a Report with draw_layers")
    ratio = np.asarray(setups.columns["ratio"], dtype=np.float64)  # (S, L)
    blocks = ratio.shape[1]
    columns = _columns(blocks)
    rows = math.ceil(blocks / columns)
    details = [_statistics(column) for column in ratio.T]
    labels = short_labels(setups.names, limit=24)
    with style.context("whitegrid"):
        width = max(2.0 if rows == 1 else 1.8, head_width(labels, details) + 0.15)
        height = 1.75 if rows == 1 else 1.35
        figure = Figure(figsize=(max(4.4, columns * width + 0.5), rows * height + 0.55))
        grid: list[list[Axes]] = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).tolist()
        axis = _Axis.covering(ratio)
        for axes, label, detail, values in zip(chain(*grid), labels, details, ratio.T, strict=False):
            head(axes, label, detail)
            _draw_panel(axes, values, axis)
        _label_outside(grid, blocks)
        figure.supylabel("number of set-ups", fontsize=style.TEXT)
        title = "Theory over measurement, γ/σ², of each block"
        frame(figure, title=title, note=caption(setups), legend=_legend())
    return figure


@dataclass(frozen=True)
class _Axis:
    """The x axis that all panels share: whole bins, of which 1 is an edge, so that none straddles the reference."""

    width: float  # of a bin, in octaves: log2 of the ratio
    first: int  # edge, in bins from 1
    last: int

    @classmethod
    def covering(cls, ratio: Array) -> _Axis:
        drawable = np.isfinite(ratio) & (ratio > 0)
        octaves = np.log2(ratio, out=np.full(ratio.shape, np.nan), where=drawable)  # (S, L)
        seen = octaves[drawable].tolist()
        low, high = min([-MIN_OCTAVES, *seen]), max([MIN_OCTAVES, *seen])
        width = _bin_width(octaves, high - low)
        return cls(width=width, first=math.floor(low / width - 0.5), last=math.ceil(high / width + 0.5))

    @property
    def octaves(self) -> Array:
        """Edges of the bins, as logarithms to base 2."""
        return np.asarray(self.width * np.arange(self.first, self.last + 1))

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends of the axis."""
        return float(2.0 ** self.octaves[0]), float(2.0 ** self.octaves[-1])

    @property
    def exponents(self) -> list[int]:
        """Powers of 2 to print: 1 among them, not more than fit, none so near an end that it meets the next panel's."""
        margin = 0.05 * (self.last - self.first)
        low = math.ceil((self.first + margin) * self.width)
        high = math.floor((self.last - margin) * self.width)
        step = math.ceil((high - low + 1) / MAX_TICKS)
        return [e for e in range(low, high + 1) if e % step == 0]


def _bin_width(octaves: Array, span: float) -> float:
    """Apply Freedman and Diaconis' rule for the median block, within what a small panel can show."""
    columns = [column[np.isfinite(column)] for column in octaves.T]
    ranges = [np.subtract(*np.percentile(column, (75, 25))) for column in columns if len(column) >= 5]
    spread = float(np.median(ranges)) if ranges else 0.0
    if spread == 0:
        return span / 20
    return float(np.clip(2 * spread / len(octaves) ** (1 / 3), span / MAX_BINS, span / 10))


def _draw_panel(axes: Axes, values: Array, axis: _Axis) -> None:
    finite, colour = values[np.isfinite(values)], style.GAMMA.colour
    axes.set_xscale("log", base=2)
    axes.set_xlim(axis.limits)
    histogram = {"color": colour, "alpha": 0.55, "linewidth": 0}
    sns.histplot(x=finite[finite > 0], bins=axis.octaves.tolist(), ax=axes, **histogram)
    axes.set(xlabel="", ylabel="")
    if len(finite):
        low, median, high = np.percentile(finite, PERCENTILES)
        if low < high:
            low = max(low, axis.limits[0])  # 0 has no place on the axis
            axes.axvspan(low, high, color=colour, alpha=0.13, linewidth=0, zorder=0, gid="range")
        if median > 0:
            axes.axvline(median, color=colour, linewidth=1.6, gid="median")
    axes.axvline(1.0, **style.reference(), gid="reference")
    _say_missing(axes, values)
    label_octaves(axes, axis.exponents)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _statistics(values: Array) -> str:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "no defined value"
    low, median, high = (number(v) for v in np.percentile(finite, PERCENTILES))
    return f"median {median}, 5–95 %: {low}–{high}" if len(finite) > 1 else f"one value: {median}"


def _say_missing(axes: Axes, values: Array) -> None:
    undefined, zero = int((~np.isfinite(values)).sum()), int((values == 0).sum())
    said = [f"{count} {what}" for count, what in ((undefined, "undefined"), (zero, "zero")) if count]
    box = {"facecolor": style.theme().page, "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
    if said:
        at, warning = axes.transAxes, style.theme().warning
        axes.text(0.04, 0.94, ", ".join(said), transform=at, va="top", size=style.SMALL, color=warning, bbox=box)


def _label_outside(grid: Sequence[Sequence[Axes]], used: int) -> None:
    """Remove empty panels, and label the x axis of the lowest panel left in each column."""
    columns = len(grid[0])
    for place, axes in enumerate(chain(*grid)):
        if place >= used:
            axes.remove()
        elif place + columns >= used:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("γ / σ²")


def _columns(blocks: int) -> int:
    if blocks <= 5:
        return blocks
    rows = math.ceil(blocks / min(8, math.ceil(math.sqrt(1.2 * blocks))))
    return math.ceil(blocks / rows)  # as even as it goes


def _legend() -> list[Line2D | Patch]:
    colour = style.GAMMA.colour
    return [
        Line2D([], [], **style.reference(), label="1: theory equals measurement"),
        Line2D([], [], color=colour, linewidth=1.6, label="median"),
        Patch(color=colour, alpha=0.13, linewidth=0, label="5–95 % of set-ups"),
    ]
