"""Accuracy and loss of trainings, epoch by epoch."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.results.training_runs import TrainingRuns

PANELS = {
    "validation_accuracy": ("Validation images", "top-1 accuracy in %", 100.0),
    "train_loss": ("Training images", "loss, mean of the epoch", 1.0),
}


def draw_accuracy_curves(runs: TrainingRuns, *, title: str) -> Figure:
    """Draw validation accuracy and training loss: the mean over seeds in bold, every seed thin.

    Args:
        runs: of at most seven networks.
        title: what the figure shows.
    """
    with style.context("whitegrid"):
        figure = Figure(figsize=(7.6, 3.1))
        colours = dict(zip(runs.names, style.shades(len(runs.names)), strict=True))
        for axes, (column, (panel, label, factor)) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            _draw(axes, runs, column, factor, colours)
            axes.set_ylabel(label)
            finals = [runs.values(name, column)[:, -1] * factor for name in runs.names]
            head(axes, panel, "at the end: " + ", ".join(f"{final.mean():.3g}" for final in finals))
        seeds = max(len(runs.values(name, "number")) for name in runs.names)
        note = f"{runs.data} · {runs.training} · {seeds} seed{'s' * (seeds > 1)}".replace(", ", " · ")
        frame(figure, title=title, note=note, legend=[Line2D([], [], color=c, label=n) for n, c in colours.items()])
    return figure


def _draw(axes: Axes, runs: TrainingRuns, column: str, factor: float, colours: dict[str, str]) -> None:
    for name, colour in colours.items():
        numbers, values = runs.values(name, "number")[0], factor * runs.values(name, column)  # (E,), (seeds, E)
        if len(values) > 1:
            axes.plot(numbers, values.T, color=colour, linewidth=0.6, alpha=0.4)
        axes.plot(numbers, np.mean(values, axis=0), color=colour, linewidth=1.6)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
