"""γ, ν and σ² along the layers of several networks: a row a network, a column a quantity, the others in grey."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.plots import style
from hessdiag.plots.captions import caption
from hessdiag.plots.frame import frame, head, head_width
from hessdiag.plots.labels import number
from hessdiag.plots.style import GAMMA, NU, SIGMA_SQ, Quantity
from hessdiag.plots.ticks import label_decades
from hessdiag.results.numbers import Array, geometric_mean, spread
from hessdiag.results.setups import Setups

COLUMNS = (GAMMA, NU, SIGMA_SQ)
WIDTH, HEIGHT = 2.9, 1.25  # inches of a panel, at least


def draw_conditioning(panels: Mapping[str, Setups]) -> Figure:
    """Draw a row a network and a column a quantity: mean over set-ups over the geometric mean along the layers.

    Layers run from the first to the last, shortcuts among them where they run. A network whose layers are equally
    conditioned has a level line at 1; the largest over the smallest value stands above each panel. The other networks
    are grey lines behind it, on the same scale. Bands are ± 1 standard error over set-ups.

    Raises:
        HessdiagError: there is no network.
    """
    check_kind("panels", panels, Mapping, "pass a dict of Setups by title, such as {'LeNet': setups}")
    for panel in panels.values():
        check_kind("a panel", panel, Setups, "pass Setups as measure_setups returns; draw a Report with draw_layers")
    if not panels:
        raise HessdiagError("nothing to draw: pass at least one network")
    details = [[_detail(panel, quantity) for quantity in COLUMNS] for panel in panels.values()]
    with style.context("whitegrid"):
        width = max(WIDTH, head_width(panels, [text for row in details for text in row]) + 0.3)
        figure = Figure(figsize=(width * len(COLUMNS), HEIGHT * len(panels) + 0.5))
        shape = (len(panels), len(COLUMNS))
        grid: list[list[Axes]] = figure.subplots(*shape, sharex=True, sharey="col", squeeze=False).tolist()
        for row, texts, title in zip(grid, details, panels, strict=True):
            for axes, text, quantity in zip(row, texts, COLUMNS, strict=True):
                _draw_panel(axes, panels, title, quantity)
                head(axes, title, text)
        for axes in grid[0]:  # a column shares its axis
            axes.set_yscale("log")
            axes.set_ylim(axes.get_ylim())
            label_decades(axes.yaxis)
        for axes in grid[-1]:
            axes.set_xlabel("weight layers, first (0 %) to last (100 %)", fontsize=style.SMALL)
        title = "Are the layers equally conditioned at initialisation?"
        frame(figure, title=title, note=caption(*panels.values()), legend=_legend(len(panels)))
    return figure


def _detail(panel: Setups, quantity: Quantity) -> str:
    return f"{quantity.symbol}: max/min {number(spread(_means(panel, quantity).tolist()))}"


def _means(panel: Setups, quantity: Quantity) -> Array:
    return np.asarray(panel.columns[quantity.key].mean(axis=0))


def _draw_panel(axes: Axes, panels: Mapping[str, Setups], title: str, quantity: Quantity) -> None:
    for other in panels:
        if other != title:
            at, means, _ = _relative(panels[other], quantity)
            axes.plot(at, means, color=style.theme().neutral, linewidth=0.7, zorder=1)
    at, means, error = _relative(panels[title], quantity)
    if error is not None:
        low = np.maximum(means - error, means * 1e-2)  # a bar to 0 has no place on a logarithmic scale
        axes.fill_between(at, low, means + error, color=quantity.colour, alpha=0.25, linewidth=0, zorder=2)
    axes.plot(at, means, color=quantity.colour, linewidth=1.2, marker="o", markersize=2.5, zorder=3)
    axes.axhline(1, **style.reference(), zorder=1.5)
    axes.set_ylabel(f"{quantity.symbol} / mean", fontsize=style.SMALL)


def _relative(panel: Setups, quantity: Quantity) -> tuple[Array, Array, Array | None]:
    """Return places in percent, means over their geometric mean along the layers, and standard errors if there are."""
    values, means = panel.columns[quantity.key], _means(panel, quantity)
    centre = geometric_mean(means.tolist())
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) / centre if len(values) > 1 else None
    return np.linspace(0, 100, len(means)), means / centre, error


def _legend(networks: int) -> list[Line2D]:
    lines = [Line2D([], [], color=q.colour, marker="o", markersize=3, label=q.label) for q in COLUMNS]
    others = Line2D([], [], color=style.theme().neutral, linewidth=1.0, label="the other networks")
    return [*lines, others] if networks > 1 else lines
