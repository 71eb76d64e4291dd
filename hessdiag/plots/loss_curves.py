"""Training curves: median and quartiles over seeds, and the sweep that the learning rates come from."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.results.numbers import short
from hessdiag.results.training_curves import TrainingCurves

ROOM = 0.05  # of the range of losses, above and below it


def draw_training_curves(curves: TrainingCurves, *, title: str) -> Figure:
    """Draw the loss against the step at the best rate of each set, and the loss of each rate of the sweep.

    Args:
        curves: of at most seven sets.
        title: what the figure shows.
    """
    with style.context("whitegrid"):
        figure = Figure(figsize=(7.6, 3.1))
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        colours = style.shades(len(curves.sets))
        _by_step(left, curves, colours)
        _by_rate(right, curves, colours)
        seeds = len(curves.sets[0].curves)
        note = f"{curves.model} · {curves.data} · {curves.training} · {seeds} seeds".replace(", ", " · ")
        lines = [
            Line2D([], [], color=colour, label=f"{each.name} (2^{each.power})")
            for each, colour in zip(curves.sets, colours, strict=True)
        ]
        frame(figure, title=title, note=note, legend=lines)
    return figure


def _by_step(axes: Axes, curves: TrainingCurves, colours: list[str]) -> None:
    for each, colour in zip(curves.sets, colours, strict=True):
        losses = np.where(np.isfinite(each.curves), each.curves, np.nan)
        low, middle, high = np.nanquantile(losses, (0.25, 0.5, 0.75), axis=0)
        axes.plot(curves.steps, middle, color=colour, linewidth=1.4)
        axes.fill_between(curves.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("step")
    axes.set_ylabel(f"training loss, mean of {curves.window} steps")
    head(axes, "At the best learning rate", "median and quartiles over seeds")


def _by_rate(axes: Axes, curves: TrainingCurves, colours: list[str]) -> None:
    for each, colour in zip(curves.sets, colours, strict=True):
        losses = np.median(each.sweep, axis=1)
        known = np.isfinite(losses)
        axes.plot(np.array(each.powers)[known], losses[known], color=colour, marker="o", markersize=3.5, linewidth=1.0)
    powers = sorted({power for each in curves.sets for power in each.powers})
    axes.set_xticks(powers, [f"2^{power}" for power in powers])
    axes.set_xlabel("learning rate")
    finals = ", ".join(short(float(np.median(each.final))) for each in curves.sets)
    head(axes, "Loss in the last window of the sweep", f"at the best: {finals}")
