"""Distributions: the eigenvalues of a network's curvature, and γ/σ² over many trials."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hessdiag.arguments import check_kind
from hessdiag.results.numbers import Z95, Array, short
from hessdiag.results.setups import Setups
from hessdiag.results.sharpness import Sharpness
from hessdiag.view.plots import style

DECADES, POINTS = 6, 400
MIN_OCTAVES = 2.4  # octaves on either side of 1 that the axis shows at least
READING = "dashed: 1, theory equals measurement · solid: median · band: 5–95 % of trials"


def draw_density(found: Sharpness, name: str = "") -> Figure:
    """Draw the share of eigenvalues above λ, and of those below −λ, with 95 % bands over the random starts.

    Of the block of this name, or of the whole, which was measured with `density=True`.
    """
    block = found[name] if name else found
    top = max(abs(block.largest), abs(block.smallest) if np.isfinite(block.smallest) else 0.0)
    at = np.geomspace(top * 10.0**-DECADES, top, POINTS)
    sides = {"above λ": block.density(at), "below −λ": block.density(-at, below=True)}
    with style.context("whitegrid"):
        figure = Figure(figsize=(5.6, 3.2))
        axes = figure.subplots(subplot_kw={"xscale": "log", "yscale": "log"})
        for (label, (share, error)), colour in zip(sides.items(), style.COLOURS, strict=False):
            if share.any():
                axes.step(at, np.where(share > 0, share, np.nan), where="post", color=colour, label=label)
                low, high = np.maximum(share - Z95 * error, 0.1 / block.numel), share + Z95 * error
                axes.fill_between(at, low, high, where=share > 0, step="post", color=colour, alpha=0.25, linewidth=0)
        axes.set(ylim=(0.5 / block.numel, 2), xlabel="λ", ylabel="share of eigenvalues")
        starts = len(block.nodes)
        how = "all eigenvalues" if starts == 1 else f"Lanczos quadrature, {starts} starts, bands of 95 %"
        note = " · ".join((how, found.matrix, found.loss, f"mean of {found.batch_size} examples", found.init))
        style.frame(figure, title=f"Eigenvalues of {name or found.name}", note=note, legend=axes.get_lines())
    return figure


def draw_ratios(setups: Setups) -> Figure:
    """Draw histograms of γ/σ², theory over measurement, one panel a block, over all trials.

    A panel whose bars sit on the dashed line at 1 says that the theory predicts the curvature of that block; bars to
    the left say that it predicts too little. The solid line is the median, the band the 5–95 % range; both are printed
    above the panel. Ratios that are undefined (no finite number) or 0 have no place on the axis and are counted there.
    """
    check_kind("setups", setups, Setups, "pass Setups as measure_setups returns")
    ratio = np.asarray(setups.columns["ratio"], dtype=np.float64)  # (S, L)
    blocks = ratio.shape[1]
    columns = blocks if blocks <= 5 else min(7, math.ceil(math.sqrt(1.2 * blocks)))
    rows = math.ceil(blocks / columns)
    labels = style.short_labels(setups.names, limit=22)
    with style.context("whitegrid"):
        figure = Figure(figsize=(max(4.4, 1.9 * columns), 1.8 * rows + 0.8))
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
        edges = _edges(ratio)
        for axes, label, values in zip(panels, labels, ratio.T, strict=False):
            _draw_panel(axes, label, values, edges)
        for place, axes in enumerate(panels):
            if place >= blocks:
                axes.remove()
            elif place + columns >= blocks:
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("γ / σ²")
        figure.supylabel("number of trials", fontsize=style.TEXT)
        note = f"{READING} · {style.caption(setups)}"
        style.frame(figure, title="Theory over measurement, γ/σ², of each block", note=note)
    return figure


def _edges(ratio: Array) -> Array:
    """Return the edges of all bins, evenly spaced in the logarithm; 1 is one of them, so that no bin straddles it."""
    octaves = np.log2(ratio[np.isfinite(ratio) & (ratio > 0)])
    low, high = min([-MIN_OCTAVES, *octaves]), max([MIN_OCTAVES, *octaves])
    width = (high - low) / min(max(len(ratio) // 4, 12), 40)
    return np.asarray(2.0 ** (width * np.arange(math.floor(low / width - 0.5), math.ceil(high / width + 1.5))))


def _draw_panel(axes: Axes, label: str, values: Array, edges: Array) -> None:
    finite, colour = values[np.isfinite(values)], style.COLOURS[0]
    statistics = "no defined value\n"
    axes.set(xscale="log", xlim=(edges[0], edges[-1]))
    axes.hist(finite[finite > 0], bins=edges.tolist(), color=colour, alpha=0.55)
    if len(finite):
        low, median, high = np.percentile(finite, (5, 50, 95))
        statistics = f"median {short(median)}\n5–95 %: {short(low)}–{short(high)}"
        if low < high:
            axes.axvspan(max(low, edges[0]), high, color=colour, alpha=0.13, linewidth=0, zorder=0, gid="range")
        if median > 0:
            axes.axvline(median, color=colour, linewidth=1.6, gid="median")
    axes.set_title(f"{label}\n{statistics}")
    axes.axvline(1.0, **style.REFERENCE, gid="reference")
    undefined, zero = int((~np.isfinite(values)).sum()), int((values == 0).sum())
    missing = [f"{count} {what}" for count, what in ((undefined, "undefined"), (zero, "zero")) if count]
    axes.annotate(", ".join(missing), (0.04, 0.88), xycoords="axes fraction", fontsize=style.SMALL, color=style.WARNING)
    style.label_decades(axes.xaxis)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
