"""How often the intervals of a report hold the truth: one dot a block, with a binomial interval, beside 92 to 98 %."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hessdiag.plots import style
from hessdiag.plots.frame import frame
from hessdiag.results.coverage_study import CoverageRow

BAND = (0.92, 0.98)  # where 95 % intervals are good enough
ROW = 0.085  # inches a dot


def draw_coverage(rows: Sequence[CoverageRow]) -> Figure:
    """Draw the share of seeds whose 95 % interval held the truth: a line a method, a dot a block, a colour a network.

    Filled dots are diagonal blocks, open ones off-diagonal. The band is 92 to 98 %; a dot outside whose binomial
    interval does not reach it has a wrong standard error. Blocks whose value a method always finds to rounding are left
    out.
    """
    methods = list(dict.fromkeys(row.method for row in rows))
    networks = list(dict.fromkeys(row.network for row in rows))
    judged = [row for row in rows if not row.exact]
    shown = [method for method in methods if any(row.method == method for row in judged)]
    colours = dict(zip(networks, style.shades(len(networks)), strict=True))
    heights = [max(3, sum(row.method == method for row in judged)) ** 0.75 for method in shown]
    with style.context("whitegrid"):
        figure = Figure(figsize=(6.8, ROW * sum(heights) + 0.9))
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, method in zip(panels, shown, strict=True):
            _draw_method(axes, method, [row for row in judged if row.method == method], colours)
        panels[-1].set_xlabel("share of seeds whose 95 % interval holds the truth")
        legend: list[Line2D | Patch] = [
            Line2D([], [], color=colours[n], marker="o", linestyle="", markersize=4, label=n) for n in networks
        ]
        open_dot = Line2D([], [], color=style.theme().ink, marker="o", linestyle="", markersize=4, label="off-diagonal")
        open_dot.set_markerfacecolor(style.theme().page)
        legend.append(open_dot)
        legend.append(Patch(color=style.theme().neutral, alpha=0.5, label="92–98 %"))
        seeds = max((row.seeds + row.undecided for row in rows), default=0)
        left_out = [method for method in methods if method not in shown]
        note = (
            f"one dot a block, with its 95 % binomial interval · {seeds} seeds · value ± 1.96 standard errors"
            " · default budgets, or as named"
        ) + (f" · always right to rounding: {', '.join(left_out)}" if left_out else "")
        frame(figure, title="How often 95 % intervals hold the truth", note=note, legend=legend)
    return figure


def _draw_method(axes: Axes, method: str, rows: Sequence[CoverageRow], colours: dict[str, str]) -> None:
    axes.axvspan(*BAND, color=style.theme().neutral, alpha=0.5, linewidth=0)
    axes.axvline(0.95, **style.reference())
    for place, row in enumerate(rows):
        colour = colours[row.network]
        axes.plot(row.interval(), [place, place], color=colour, linewidth=0.6, alpha=0.6)
        face = colour if row.row == row.column else style.theme().page
        axes.plot(row.share, place, "o", color=colour, markerfacecolor=face, markersize=2.4, markeredgewidth=0.7)
    axes.set_ylim(len(rows) - 0.25, -0.75)
    axes.set_xlim(0.9, 1.0)
    axes.set_xticks(np.arange(0.9, 1.001, 0.02))
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_ylabel(method.replace(", ", "\n"), rotation=0, ha="right", va="center", fontsize=style.SMALL)
