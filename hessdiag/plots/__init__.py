"""Figures of saved measurements: every function takes a `Report` or `Setups` and gives a `matplotlib.figure.Figure`.

Nothing is measured here, and no figure touches pyplot's state or the caller's rcParams.
"""

from hessdiag.plots.heatmaps import draw_heatmap, draw_heatmaps
from hessdiag.plots.layers import draw_layers
from hessdiag.plots.ratios import draw_ratios
from hessdiag.plots.scaling import draw_scaling
from hessdiag.plots.style import caption, save

__all__ = ["caption", "draw_heatmap", "draw_heatmaps", "draw_layers", "draw_ratios", "draw_scaling", "save"]
