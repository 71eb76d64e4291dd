"""Training curves of several networks: by step with the sweep of learning rates, or by epoch with the accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number, plural
from hessdiag.plots.ticks import raised
from hessdiag.results.training_curves import CurveSet, TrainingCurves
from hessdiag.results.training_runs import TrainingRuns

SIZE = (7.6, 3.1)  # inches
PANELS = {
    "validation_accuracy": ("Validation images", "top-1 accuracy in %", 100.0),
    "train_loss": ("Training images", "loss, mean of the epoch", 1.0),
}


def draw_training_curves(curves: TrainingCurves, *, title: str) -> Figure:
    """Draw the loss against the step at the best rate of each set, and the loss of each rate of the sweep.

    Args:
        curves: of at most seven sets.
        title: what the figure shows.
    """
    with style.context("whitegrid"):
        figure = Figure(figsize=SIZE)
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
        colours = style.shades(len(curves.sets))
        for each, colour in zip(curves.sets, colours, strict=True):
            _by_step(left, curves, each, colour)
            _by_rate(right, each, colour)
        left.set_xlabel("step")
        left.set_ylabel(f"training loss, mean of {curves.window} steps")
        head(left, "At the best learning rate", "median and quartiles over seeds")
        _label_rates(right, curves)
        note = [curves.model, curves.data, curves.training, plural(len(curves.sets[0].curves), "seed")]
        labels = [
            f"{each.name}\nrate 2{raised(each.power)}, loss {number(float(np.median(each.final)))}"
            for each in curves.sets
        ]
        _frame(figure, title, note, labels, colours)
    return figure


def draw_accuracy_curves(runs: TrainingRuns, *, title: str) -> Figure:
    """Draw validation accuracy and training loss by epoch: the mean over seeds in bold, every seed thin.

    Args:
        runs: of at most seven networks.
        title: what the figure shows.
    """
    with style.context("whitegrid"):
        figure = Figure(figsize=SIZE)
        colours = style.shades(len(runs.names))
        for axes, (column, (panel, label, factor)) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            for name, colour in zip(runs.names, colours, strict=True):
                _by_epoch(axes, runs.values(name, "number")[0], factor * runs.values(name, column), colour)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_ylabel(label)
            head(axes, panel, "mean over seeds, and each seed")
        finals = [
            ", ".join(number(float(factor * runs.values(name, column)[:, -1].mean())) for column, factor in _factors())
            for name in runs.names
        ]
        labels = [f"{name}\nat the end {final}" for name, final in zip(runs.names, finals, strict=True)]
        seeds = max(len(runs.values(name, "number")) for name in runs.names)
        _frame(figure, title, [runs.data, runs.training, plural(seeds, "seed")], labels, colours)
    return figure


def _frame(figure: Figure, title: str, note: Sequence[str], labels: Sequence[str], colours: Sequence[str]) -> None:
    lines = [Line2D([], [], color=colour, label=label) for label, colour in zip(labels, colours, strict=True)]
    frame(figure, title=title, note=" · ".join(note).replace(", ", " · "), legend=lines)


def _factors() -> list[tuple[str, float]]:
    return [(column, factor) for column, (_, _, factor) in PANELS.items()]


def _by_step(axes: Axes, curves: TrainingCurves, each: CurveSet, colour: str) -> None:
    losses = np.where(np.isfinite(each.curves), each.curves, np.nan)
    low, middle, high = np.nanquantile(losses, (0.25, 0.5, 0.75), axis=0)
    axes.plot(curves.steps, middle, color=colour, linewidth=1.4)
    axes.fill_between(curves.steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _by_rate(axes: Axes, each: CurveSet, colour: str) -> None:
    losses = np.median(each.sweep, axis=1)
    known = np.isfinite(losses)
    axes.plot(np.array(each.powers)[known], losses[known], color=colour, marker="o", markersize=3.5, linewidth=1.0)


def _label_rates(axes: Axes, curves: TrainingCurves) -> None:
    powers = sorted({power for each in curves.sets for power in each.powers})
    axes.set_xticks(powers, [f"2{raised(power)}" for power in powers])
    axes.set_xlabel("learning rate")
    axes.set_ylabel("training loss at the end")
    seeds = curves.sets[0].sweep.shape[1]
    head(axes, "Sweep of learning rates", f"median of {plural(seeds, 'seed')}; no dot: diverged or not tried")


def _by_epoch(axes: Axes, numbers: np.ndarray, values: np.ndarray, colour: str) -> None:  # (E,), (seeds, E)
    if len(values) > 1:
        axes.plot(numbers, values.T, color=colour, linewidth=0.6, alpha=0.4)
    axes.plot(numbers, np.mean(values, axis=0), color=colour, linewidth=1.6)
