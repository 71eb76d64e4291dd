"""Figures of a `Report`, `Setups`, an `InitCheck` or `Sharpness`, as a `matplotlib.figure.Figure`.

Nothing is measured here, and no figure touches pyplot's state or the caller's rcParams.
"""

from hessdiag.view.plots.curves import draw_density, draw_ratios
from hessdiag.view.plots.layers import draw_layers
from hessdiag.view.plots.maps import draw_heatmap, draw_heatmaps, draw_init_check
from hessdiag.view.plots.style import caption, save

__all__ = [
    "caption", "draw_density", "draw_heatmap", "draw_heatmaps", "draw_init_check", "draw_layers",
    "draw_ratios", "save",
]  # fmt: skip
