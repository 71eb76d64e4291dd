"""How the eigenvalues of a network's curvature are distributed: the share of them above each number."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hessdiag.results.numbers import Z95
from hessdiag.results.sharpness import Sharpness
from hessdiag.view.plots import style

SIZE = (5.6, 3.2)  # inches
DECADES, POINTS = 6, 400


def draw_density(found: Sharpness, name: str = "") -> Figure:
    """Draw the share of eigenvalues above λ, and of those below −λ, with 95 % bands over the random starts.

    Of the block of this name, or of the whole, which was measured with `density=True`.
    """
    block = found[name] if name else found
    top = max(abs(block.largest), abs(block.smallest) if np.isfinite(block.smallest) else 0.0)
    at = np.geomspace(top * 10.0**-DECADES, top, POINTS)
    sides = {"above λ": block.density(at), "below −λ": block.density(-at, below=True)}
    with style.context("whitegrid"):
        figure = Figure(figsize=SIZE)
        axes = figure.subplots(subplot_kw={"xscale": "log", "yscale": "log"})
        legend = []
        for (label, (share, error)), colour in zip(sides.items(), style.COLOURS, strict=False):
            if share.any():
                shown = np.where(share > 0, share, np.nan)
                axes.step(at, shown, where="post", color=colour)
                low, high = np.maximum(share - Z95 * error, 0.1 / block.numel), share + Z95 * error
                axes.fill_between(at, low, high, where=share > 0, step="post", color=colour, alpha=0.25, linewidth=0)
                legend.append(Line2D([], [], color=colour, label=label))
        axes.set(ylim=(0.5 / block.numel, 2), xlabel="λ", ylabel="share of eigenvalues")
        starts = len(block.nodes)
        how = "all eigenvalues" if starts == 1 else f"Lanczos quadrature, {starts} starts, bands of 95 %"
        note = " · ".join((how, found.matrix, found.loss, f"mean of {found.batch_size} examples", found.init))
        style.frame(figure, title=f"Eigenvalues of {name or found.name}", note=note, legend=legend)
    return figure
