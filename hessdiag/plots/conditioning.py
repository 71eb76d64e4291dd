"""γ, ν and σ² along the layers of several networks: one line a network, one panel a quantity."""

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
from hessdiag.plots.frame import frame
from hessdiag.plots.labels import number
from hessdiag.plots.style import GAMMA, NU, SIGMA_SQ
from hessdiag.plots.ticks import label_decades
from hessdiag.results.numbers import spread
from hessdiag.results.setups import Setups

PANELS = (GAMMA, NU, SIGMA_SQ)


def draw_conditioning(panels: Mapping[str, Setups]) -> Figure:
    """Draw one panel a quantity, one line a network: mean over set-ups over the geometric mean along the layers.

    Layers run from the first to the last, shortcuts among them where they run. A network whose layers are equally
    conditioned has a level line at 1; the largest over the smallest value stands in the legend of each panel. Bands are
    ± 1 standard error over set-ups.

    Raises:
        HessdiagError: there is no network.
    """
    check_kind("panels", panels, Mapping, "pass a dict of Setups by title, such as {'LeNet': setups}")
    for panel in panels.values():
        check_kind("a panel", panel, Setups, "pass Setups as measure_setups returns; draw a Report with draw_layers")
    if not panels:
        raise HessdiagError("nothing to draw: pass at least one network")
    with style.context("whitegrid"):
        figure = Figure(figsize=(9.5, 2.3 * len(PANELS) + 0.3))
        grid: list[Axes] = list(figure.subplots(len(PANELS), 1, sharex=True))
        colours = dict(zip(panels, style.shades(len(panels)), strict=True))
        for axes, quantity in zip(grid, PANELS, strict=True):
            _draw_quantity(axes, panels, quantity.key, colours)
            axes.set_ylabel(f"{quantity.symbol} / mean along the layers", fontsize=style.SMALL)
            axes.set_title(quantity.label, loc="left", fontsize=style.TEXT, fontweight="bold")
        grid[-1].set_xlabel("weight layers in the order in which they run, from the first (0 %) to the last (100 %)")
        frame(
            figure,
            title="Are the layers equally conditioned at initialisation?",
            note=caption(*panels.values()),
        )
    return figure


def _draw_quantity(axes: Axes, panels: Mapping[str, Setups], key: str, colours: Mapping[str, str]) -> None:
    handles = []
    for title, panel in panels.items():
        values = panel.columns[key]  # (S, L)
        means = values.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = np.exp(np.log(means[means > 0]).mean()) if (means > 0).any() else np.nan
        at = np.linspace(0, 100, len(means))
        axes.plot(at, means / centre, color=colours[title], linewidth=1.2, marker="o", markersize=2.5)
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            low = np.maximum(means - error, means * 1e-2)  # a bar to 0 has no place on a logarithmic scale
            axes.fill_between(at, low / centre, (means + error) / centre, color=colours[title], alpha=0.18, linewidth=0)
        factor = number(spread([float(v) for v in means]))
        handles.append(Line2D([], [], color=colours[title], linewidth=1.5, label=f"{title}: max/min {factor}"))
    axes.set_yscale("log")
    axes.axhline(1, **style.reference())
    axes.set_ylim(axes.get_ylim())
    label_decades(axes.yaxis)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.005, 0.5), frameon=False)
