"""Training losses of initialisations: a line a data set, and the losses against the balance measured at the start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.plots import style
from hessdiag.plots.frame import frame, head
from hessdiag.plots.labels import number
from hessdiag.plots.ticks import label_decades
from hessdiag.results.balance_and_loss import correlate, spreads
from hessdiag.results.numbers import Array
from hessdiag.results.scheme_ranking import best_losses, normalised_losses
from hessdiag.results.training_study import TrainingStudy

ROW = 0.2  # inches
SHIFT = 0.15  # rows between the schemes of a data set, so that equal losses do not hide one another
HOLLOW = ("v", "^", "s", "D")


def draw_scheme_losses(study: TrainingStudy, main: Sequence[str]) -> Figure:
    """Draw the loss of each scheme over the worst one's, by data set, and against the largest over smallest σ².

    Args:
        study: with at least one data set.
        main: the schemes of the left panel, in colour.
    """
    shared = [scheme for scheme in study.schemes if scheme in main] or list(study.schemes)
    with style.context("whitegrid"):
        figure = Figure(figsize=(7.6, max(2.8, ROW * len(study.blocks) + 0.9)))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        _by_dataset(left, study, shared)
        _by_balance(right, study, shared)
        note = (
            f"{study.optimizer} · batch {study.batch_size} · median training loss after {study.epochs} epochs over"
            f" {study.blocks[0].losses.shape[-1]} seeds · best learning rate of the widened grid · σ² of the weights on"
            " the first minibatch, median of"
            f" {study.blocks[0].sigma_spread.shape[-1]} networks"
        )
        frame(figure, title="Does balance help training?", note=note, legend=_legend(study, shared))
    return figure


def _by_dataset(axes: Axes, study: TrainingStudy, shared: Sequence[str]) -> None:
    losses = normalised_losses(best_losses(study, shared, widened=True))  # (D, schemes)
    for place, scheme in enumerate(shared):
        rows = [row + SHIFT * (place - (len(shared) - 1) / 2) for row in range(len(study.blocks))]
        axes.plot(losses[:, place], rows, **_look(scheme, shared), linestyle="")
    axes.set_yticks(range(len(study.blocks)), [block.name for block in study.blocks])
    axes.set_ylim(len(study.blocks) - 0.5, -0.5)
    axes.set_xlim(*_limits(losses))
    axes.set_xlabel("training loss / loss of the worst of the four" if len(shared) == 4 else "loss / worst loss")
    means = ", ".join(number(mean) for mean in losses.mean(axis=0))
    head(axes, "Loss by data set", f"averages, in the order of the legend: {means}")


def _by_balance(axes: Axes, study: TrainingStudy, shared: Sequence[str]) -> None:
    losses = normalised_losses(best_losses(study, study.schemes, widened=True))
    sigma = spreads(study, "sigma")
    for place, scheme in enumerate(study.schemes):
        axes.plot(sigma[:, place], losses[:, place], **_look(scheme, shared), linestyle="")
    axes.set_xscale("log")
    label_decades(axes.xaxis)
    axes.set_ylim(*_limits(losses))
    axes.set_xlabel("largest / smallest σ² of the layers at the start")
    axes.set_ylabel("loss / worst loss on the data set")
    found = correlate(study, "sigma")
    mean, low, high = (f"{value:.2f}".replace("-", "−") for value in (found.mean, found.low, found.high))
    detail = f"rank correlation within data sets {mean} ({low} to {high})"
    head(axes, "Loss against balance", detail)


def _limits(losses: Array) -> tuple[float, float]:
    return max(-0.03, math.floor(10 * float(losses.min())) / 10 - 0.03), 1.05


def _look(scheme: str, shared: Sequence[str]) -> dict[str, Any]:
    if scheme in shared:
        return {"marker": "o", "color": style.theme().lines[shared.index(scheme) % 7], "markersize": 4.5, "alpha": 0.85}
    return {"marker": _hollow(scheme), "color": style.theme().muted, "markerfacecolor": "none", "markersize": 4.5}


def _hollow(scheme: str) -> str:
    known = ("xavier", "lecun", "pytorch-default", "geometric-orthogonal")
    return HOLLOW[known.index(scheme)] if scheme in known else "x"


def _legend(study: TrainingStudy, shared: Sequence[str]) -> list[Line2D]:
    ordered = [*shared, *(scheme for scheme in study.schemes if scheme not in shared)]
    return [Line2D([], [], linestyle="", label=scheme, **_look(scheme, shared)) for scheme in ordered]
