"""Figures of saved measurements, of a `Report`, `Setups` or what is made of them, as a `matplotlib.figure.Figure`.

Nothing is measured here, and no figure touches pyplot's state or the caller's rcParams.
"""

from hessdiag.plots.learning_rate_steps import draw_learning_rates
from hessdiag.view.plots import (
    caption,
    draw_heatmap,
    draw_heatmaps,
    draw_init_check,
    draw_layers,
    draw_ratios,
    draw_widths,
    save,
)

__all__ = [
    "caption",
    "draw_heatmap",
    "draw_heatmaps",
    "draw_init_check",
    "draw_layers",
    "draw_learning_rates",
    "draw_ratios",
    "draw_widths",
    "save",
]
