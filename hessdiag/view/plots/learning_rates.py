"""The best rate before each virtual step of an optimiser, and what is made of them."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hessdiag.results.learning_rates import NAMES, LearningRates
from hessdiag.view.plots import style

SIZE = (5.6, 2.8)  # inches


def draw_learning_rates(rates: LearningRates) -> Figure:
    """Draw the best rate before each virtual step: a colour an optimiser, a dot a step, a line what is made of them.

    Steps along which the fresh batch's loss does not fall have no dot.
    """
    colours = dict(zip(rates, style.COLOURS, strict=False))
    with style.context("whitegrid"):
        figure = Figure(figsize=SIZE)
        axes = figure.subplots(subplot_kw={"yscale": "log"})
        for optimizer, colour in colours.items():
            rate = rates[optimizer]
            shown = [(number, each) for number, each in enumerate(rate.steps, 1) if each > 0]
            if shown:
                axes.plot(*zip(*shown, strict=True), "o", color=colour, markersize=4, alpha=0.8)
            if math.isfinite(rate.value):
                axes.axhline(rate.value, color=colour, linewidth=1.4)
        style.label_decades(axes.yaxis)
        axes.set(xlabel="virtual step", ylabel="learning rate")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend = [Line2D([], [], color=c, marker="o", markersize=4, label=NAMES[o]) for o, c in colours.items()]
        batch = f"{'a fresh batch of' if rates.fresh else 'the same'} {rates.batch_size} examples"
        measured = f"dots: where the quadratic model of {batch} is lowest along the step"
        settings = (rates.loss, rates.init, *([rates.data] if rates.data else []))
        note = " · ".join((measured, "lines: the learning rate that follows", *settings))
        style.frame(figure, title=f"Learning rates of {rates.model} along virtual steps", note=note, legend=legend)
    return figure
