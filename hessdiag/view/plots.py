"""Figures of a `Report`, `Setups`, an `InitCheck` or `Sharpness`, as a `matplotlib.figure.Figure`.

Nothing is measured here, and no figure touches pyplot's state or the caller's rcParams.
"""

import io
import math
import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from hessdiag.arguments import check_kind, joined
from hessdiag.errors import HessdiagError
from hessdiag.results.blocks import MATRICES
from hessdiag.results.numbers import Z95, Array, geometric_mean, percent, short
from hessdiag.results.records import write_bytes
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.setups import InitCheck, Setups
from hessdiag.results.sharpness import Sharpness
from hessdiag.results.text_table import fit_names, layer_of, printable

__all__ = [
    "caption", "draw_density", "draw_heatmap", "draw_heatmaps", "draw_init_check", "draw_layers",
    "draw_ratios", "save",
]  # fmt: skip

# --- What all figures share: colours and fonts, title and caption, names, and how they are saved ----------------------

SMALL, TEXT, TITLE = 7.0, 8.0, 10.0  # points
MUTED, WARNING, NEUTRAL = "#595959", "#a02c00", "#c8c8c8"  # explaining text, missing values, cells without a value
COLOURS = tuple(sns.color_palette("colorblind").as_hex()[i] for i in (0, 1, 2, 3, 4, 9, 7))
REFERENCE: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # a line to compare with
ENDINGS = (".png", ".svg")
SHEET = "hessdiag.view.figures"  # the file beside this one, as matplotlib names it


def context(seaborn_style: str = "ticks") -> AbstractContextManager[None]:
    """Set the look of all figures, whatever the caller's rcParams are; they are as before on leaving."""
    return matplotlib.style.context(["default", dict(sns.axes_style(seaborn_style)), SHEET])


def frame(figure: Figure, *, title: str, note: str, legend: Sequence[Artist] = (), compress: bool = False) -> None:
    """Put the title above, the caption below and the legend beside all axes, and let matplotlib lay them out."""
    width = figure.get_figwidth()
    figure.suptitle(textwrap.fill(printable(title), int(13 * width)), x=0.01, ha="left", fontsize=TITLE, weight="bold")
    noted = textwrap.fill(note, int(19 * width), break_on_hyphens=False)
    figure.supxlabel(noted, x=0.01, ha="left", fontsize=SMALL, color=MUTED)
    if legend:
        figure.legend(handles=list(legend), loc="outside right upper")
    figure.set_layout_engine("compressed" if compress else "constrained")
    # In a notebook as wide as it then is, in pixels; also where pyplot was never imported.
    vars(figure)["_repr_png_"] = lambda: (rendered(figure, "png"), {"width": round(96 * figure.get_figwidth())})


def save(figure: Figure, stem: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write `stem.png` (200 dpi) and `stem.svg`, each whole or not at all.

    A name that ends in `.png` or `.svg` is that file alone.

    Raises:
        HessdiagError: the folder does not exist or cannot be written.
    """
    check_kind("figure", figure, Figure, "draw one first, with draw_heatmap(report)")
    check_kind("stem", stem, (str, os.PathLike), "name a file without its ending, such as 'figures/heatmap'")
    names = [os.fspath(stem)] if os.fspath(stem).endswith(ENDINGS) else [f"{os.fspath(stem)}{each}" for each in ENDINGS]
    drawn = {name: rendered(figure, name[-3:]) for name in names}  # before any is written
    return tuple(write_bytes(name, content) for name, content in drawn.items())


def rendered(figure: Figure, form: str) -> bytes:
    """Return the figure as `"png"`, or as `"svg"` that needs no font and no other file."""
    stream = io.BytesIO()
    unsaid = ("Software",) if form == "png" else ("Creator", "Date", "Format", "Type")
    with context():
        figure.savefig(stream, format=form, dpi=200, metadata=dict.fromkeys(unsaid))
    return stream.getvalue()


def label_decades(axis: Axis) -> None:
    """Label the powers of ten of an axis whose limits are set, and 2 and 5 times these where it spans few."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def drawable(values: Array | float) -> Any:
    """Whether a number, or each of an array, has a place on a logarithmic axis."""
    return np.isfinite(values) & (np.asarray(values) > 0)


def short_labels(names: Sequence[str], *, limit: int = 28) -> list[str]:
    """Leave out a trailing ".weight" and a part of long names of blocks, the same part of all.

    >>> short_labels(["conv1.weight", "encoder.stages.2.layers.5.convolution.weight"])
    ['conv1', '…ages.2.layers.5.convolution']
    """
    return fit_names([printable(layer_of(name)) for name in names], limit)


def caption(*measured: Report | Setups) -> str:
    """Say in one line what a figure shows: model, initialisation, loss, matrix and view, size, method and seed.

    Settings in which several measurements differ are listed.
    """
    for each in measured:
        check_kind("a measurement", each, (Report, Setups), "pass reports or Setups, one after the other")
    counts = [len(m) if isinstance(m, Setups) else 1 for m in measured]
    seeds = [f"{m.seed}–{m.seed + n - 1}" if n > 1 else m.seed for m, n in zip(measured, counts, strict=True)]
    several = "s" if max(counts) > 1 else ""
    settings: list[tuple[str, list[Any]]] = [
        ("{}", [m.model for m in measured]), ("{} initialisation", [m.init for m in measured]),
        ("{} loss", [m.loss for m in measured]), ("{}", [f"{MATRICES[m.matrix]} per {m.per}" for m in measured]),
        ("batch size {}", [m.batch_size for m in measured]), (f"{{}} trial{several}", counts),
        ("{} method", [m.method for m in measured]), (f"seed{several} {{}}", seeds),
    ]  # fmt: skip
    return printable(" · ".join(form.format(joined(dict.fromkeys(map(str, values)))) for form, values in settings))


# --- The three numbers of every layer side by side: γ, ν and σ² -------------------------------------------------------


class Quantity(NamedTuple):
    """An attribute of a `BlockReport`, and how it is drawn."""

    key: str
    label: str
    marker: str
    colour: str
    offset: float  # in rows, so that equal values of a block do not hide one another


SIGMA_SQ = Quantity("avg_sq_singular_value", "σ², average squared singular value", "D", COLOURS[2], 0.0)
QUANTITIES = (
    Quantity("gamma", "γ, scaling factor of the theory", "o", COLOURS[0], -0.2),
    SIGMA_SQ,
    Quantity("nu", "ν, weight-gradient ratio", "s", COLOURS[1], 0.2),
)

MARKERS: dict[str, dict[str, Any]] = {  # of each kind of block
    "weight": {"markersize": 5.5, "markeredgewidth": 0.0},
    "bias": {"markersize": 4.0, "markeredgewidth": 1.1, "markerfacecolor": "white"},
    "scalar": {"markersize": 2.6, "markeredgewidth": 0.0},
}


def draw_layers(report: Report) -> Figure:
    """Draw γ, σ² and ν of every layer on one logarithmic axis, the first layer on top.

    A balanced network has each colour in a vertical line; the legend gives the largest over the smallest value among
    the weights. γ (blue) next to σ² (green) says how well the theory predicts the measurement. Biases are hollow and
    learnable scalars small, on the row of their layer. Bars on σ² are ±1.96 standard errors. What is undefined or zero
    is not drawn.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose")
    table, rows = report.to_dataframe(), row_names(report.blocks)
    names = list(dict.fromkeys(rows))
    places = np.array([names.index(row) for row in rows])
    with context("whitegrid"):
        figure = Figure(figsize=(8.5, (0.34 if len(names) <= 12 else 0.2) * len(names) + 1.7))
        axes = figure.subplots()
        axes.set_xscale("log", nonpositive="clip")
        for series in QUANTITIES:
            shown = table.assign(y=places + series.offset)[drawable(table[series.key].to_numpy(float))]
            weights = shown[shown["kind"] == "weight"]
            axes.plot(weights[series.key], weights["y"], color=series.colour, alpha=0.35, zorder=2)
            for kind, look in MARKERS.items():
                points = shown[shown["kind"] == kind]
                axes.plot(points[series.key], points["y"], linestyle="", color=series.colour, marker=series.marker,
                          zorder=4, gid=f"{kind}:{series.key}", **look)  # fmt: skip
            if series is SIGMA_SQ:
                noisy = shown[drawable(shown["stderr"].to_numpy(float))]
                axes.errorbar(noisy[series.key], noisy["y"], xerr=Z95 * noisy["stderr"], fmt="none",
                              ecolor=series.colour, elinewidth=1.6, zorder=3)  # fmt: skip
        axes.set_yticks(range(len(names)), labels=short_labels(names))
        axes.set(ylim=(len(names) - 0.45, -0.55), xlabel="value (logarithmic)")
        axes.tick_params(axis="y", length=0)
        low, high = axes.get_xlim()
        grow = max(1.0, math.sqrt(100 * low / high))  # two decades at least, for their ticks
        axes.set_xlim(low / grow, high * grow)
        label_decades(axes.xaxis)
        axes.legend(handles=[*_legend(report)], loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.3)
        frame(figure, title="Balance of the layers: γ, σ² and ν of each", note=caption(report))
    return figure


def row_names(blocks: Sequence[BlockReport]) -> list[str]:
    """Name the row of each block: biases and scalars join the weight of their module if it has just one."""
    owned = [(b.name.rpartition(".")[0], b) for b in blocks]
    weights = {owner: b.name for owner, b in owned if b.kind == "weight"}
    alone = Counter(owner for owner, b in owned if b.kind == "weight")
    return [weights[owner] if b.kind != "weight" and alone[owner] == 1 else b.name for owner, b in owned]


def _legend(report: Report) -> Iterator[Line2D]:
    for series in QUANTITIES:
        label = f"{series.label}\nmax/min {short(report.spread[series.key])}"
        if series is SIGMA_SQ and any(drawable(block.stderr) for block in report.blocks):
            label += ", bars: ± 1.96 stderr"
        yield Line2D([], [], color=series.colour, marker=series.marker, markersize=5.5, label=label)
    kinds = [kind for kind in ("bias", "scalar") if any(block.kind == kind for block in report.blocks)]
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "color": MUTED}
    yield from (Line2D([], [], label=kind, **look, **MARKERS[kind]) for kind in kinds)


# --- The curvature map: how large every block of the matrix is, of one network or of several initialisations ----------

MAX_ANNOTATED = 8  # blocks; with more, numbers would not fit their cells
# Titles of figures, and of their scales.
NORM = r"$\|H_{ij}\|_F^2\,/\,\sqrt{P_i P_j}$"
SIZE = (
    "Size of every block (i, j) of the curvature matrix",
    f"{NORM} \n(on the diagonal: average squared singular value)",
)
BALANCE = (
    "Balance of the blocks (i, j) of the curvature matrix: each map over its own level",
    f"{NORM} over the level:\nthe geometric mean of the map's diagonal",
)
SHARED = ("model", "names", "numel", "loss", "per", "batch_size")  # of all maps of a figure


def draw_heatmaps(panels: Sequence[Setups], *, relative: bool = False) -> Figure:
    """Draw maps of all blocks (i, j), averaged over trials: matrices from top to bottom, initialisations side by side.

    Yellow is large and dark blue small, on one logarithmic scale for all panels. A map whose diagonal has one colour
    belongs to a network whose layers are equally curved; the number in its title, the largest over the smallest
    diagonal entry, is then near 1. The caption has the largest relative standard error of a cell that the estimator
    adds to the spread between trials. Cells that are zero or undefined are grey.

    Args:
        panels: one a map.
        relative: draw each map over its own level, the geometric mean of its diagonal, on a scale from blue (below 1)
            to red (above 1): colours then speak of balance alone, and the level stands above the map.

    Raises:
        HessdiagError: there are no panels, two of them show the same, or they differ in what they must share.
    """
    _check_panels(panels)
    kinds = [(panel.matrix, panel.init) for panel in panels]
    matrices = sorted({matrix for matrix, _ in kinds}, key=[*MATRICES].index)
    inits = list(dict.fromkeys(init for _, init in kinds))
    levels = [geometric_mean(np.diagonal(p.normalized()).tolist()) if relative else 1.0 for p in panels]
    maps = [panel.normalized() / level for panel, level in zip(panels, levels, strict=True)]  # (L, L) each
    norm, colours = _scale(maps, relative=relative), "RdBu_r" if relative else "viridis"
    labels = short_labels(panels[0].names, limit=24)
    most = 7.0 if len(inits) == 1 else 3.6
    side = max(2.5, 0.44 * len(labels)) if len(labels) <= MAX_ANNOTATED else min(max(3.0, 0.115 * len(labels)), most)
    room = 0.075 * max(map(len, labels))  # of the names beside and below a map, in inches, as its side is
    with context("white"):
        figure = Figure(figsize=(len(inits) * (side + 0.12) + room + 1.7, len(matrices) * (side + 0.4) + room + 0.6))
        grid: list[list[Axes]] = figure.subplots(len(matrices), len(inits), squeeze=False).tolist()
        places = [grid[matrices.index(matrix)][inits.index(init)] for matrix, init in kinds]
        for axes in {axes for row in grid for axes in row} - set(places):
            axes.remove()
        for axes, panel, values, level in zip(places, panels, maps, levels, strict=True):
            _draw_map(axes, labels, values, norm, colours)
            heading = f"{printable(panel.init)}\ndiagonal max/min {short(panel.spread)}"
            axes.set_title(heading + (f" · level {short(level)}" if relative else ""))
            axes.set_ylabel(MATRICES[panel.matrix], labelpad=5)
            if len(matrices) * len(inits) == len(panels):  # a whole grid
                axes.label_outer()
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=places, fraction=0.05, aspect=22, pad=0.03)
        title, unit = BALANCE if relative else SIZE
        bar.set_label(unit, fontsize=SMALL, parse_math=True)
        bar.outline.set_visible(False)
        label_decades(bar.ax.yaxis)
        frame(figure, title=title, note=" · ".join([caption(*panels), *_notes(panels)]), compress=True)
    return figure


def draw_heatmap(report: Report) -> Figure:
    """Draw the map of all blocks (i, j) of one report; see `draw_heatmaps` for how to read it.

    Raises:
        HessdiagError: the report has no weight blocks.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or draw Setups with draw_heatmaps")
    if not report.heatmap.names:
        what = f"{report.model} has no measured weights to draw a map of"
        raise HessdiagError(f"{what}: use draw_layers, or leave quick out")
    return draw_heatmaps([Setups.collect([report])])


def draw_init_check(check: InitCheck) -> Figure:
    """Draw the block maps of the initialisations, the most balanced first, each map over its own level.

    A map whose diagonal has one colour is of an initialisation with equally curved layers; see `draw_heatmaps`.
    """
    check_kind("check", check, InitCheck, "pass what hessdiag.check_init returns")
    return draw_heatmaps([scheme.setups for scheme in check.schemes], relative=True)


def _check_panels(panels: Sequence[Setups]) -> None:
    check_kind("panels", panels, (list, tuple), "pass a list of Setups; draw a Report with draw_heatmap(report)")
    for panel in panels:
        check_kind("a panel", panel, Setups, "pass Setups as measure_setups returns; draw a Report with draw_heatmap")
    if not panels:
        raise HessdiagError("nothing to draw: pass at least one measurement")
    for key in SHARED:
        if len(differing := list(dict.fromkeys(getattr(panel, key) for panel in panels))) > 1:
            values = " and ".join(map(repr, differing[:2]))
            raise HessdiagError(f"panels differ in {key}: {values}; draw one experiment a figure")
    for (matrix, init), count in Counter((panel.matrix, panel.init) for panel in panels).items():
        if count > 1:
            raise HessdiagError(f"two panels show matrix {matrix!r} with init {init!r}: pass each combination once")


def _draw_map(axes: Axes, labels: Sequence[str], values: Array, norm: LogNorm, colours: str) -> None:
    few = len(labels) <= MAX_ANNOTATED
    sns.heatmap(
        pd.DataFrame(values, list(labels), list(labels)), mask=~drawable(values), norm=norm, cmap=colours,
        vmin=norm.vmin, vmax=norm.vmax,  # or seaborn warns of a map without a value
        annot=np.vectorize(short, otypes=[object])(values) if few else False, fmt="", annot_kws={"size": 6.5},
        rasterized=not few,  # thousands of cells would make an SVG slow to open: they are one picture in it
        linewidths=0.6 if few else 0.0, square=True, ax=axes, cbar=False,  # all maps share one
    )  # fmt: skip
    axes.tick_params(axis="y", rotation=0)
    axes.tick_params(length=0, pad=2)
    axes.set_facecolor(NEUTRAL)


def _scale(maps: Sequence[Array], *, relative: bool) -> LogNorm:
    """Span all values, and a decade at least, so that a flat map looks flat; symmetric around 1 where relative."""
    values = np.concatenate([each[drawable(each)] for each in maps])
    low, high = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
    if relative:
        reach = max(1 / low, high, math.sqrt(10))
        return LogNorm(1 / reach, reach)
    grow = max(1.0, math.sqrt(10 * low / high))
    return LogNorm(low / grow, high * grow)


def _notes(panels: Sequence[Setups]) -> list[str]:
    notes = ["grey: zero or undefined"] if not all(drawable(p.normalized()).all() for p in panels) else []
    if any(np.any(panel.estimator_stderr) for panel in panels):  # NaN counts
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.concatenate([(p.estimator_stderr / p.frobenius_sq).ravel() for p in panels])
        known = errors[np.isfinite(errors)]
        notes.append(f"estimator error ≤ {percent(float(known.max()) if known.size else math.nan)} %")
    return notes


# --- Distributions: the eigenvalues of a network's curvature, and γ/σ² over many trials -------------------------------

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
    with context("whitegrid"):
        figure = Figure(figsize=(5.6, 3.2))
        axes = figure.subplots(subplot_kw={"xscale": "log", "yscale": "log"})
        for (label, (share, error)), colour in zip(sides.items(), COLOURS, strict=False):
            if share.any():
                axes.step(at, np.where(share > 0, share, np.nan), where="post", color=colour, label=label)
                low, high = np.maximum(share - Z95 * error, 0.1 / block.numel), share + Z95 * error
                axes.fill_between(at, low, high, where=share > 0, step="post", color=colour, alpha=0.25, linewidth=0)
        axes.set(ylim=(0.5 / block.numel, 2), xlabel="λ", ylabel="share of eigenvalues")
        starts = len(block.nodes)
        how = "all eigenvalues" if starts == 1 else f"Lanczos quadrature, {starts} starts, bands of 95 %"
        note = " · ".join((how, found.matrix, found.loss, f"mean of {found.batch_size} examples", found.init))
        frame(figure, title=f"Eigenvalues of {name or found.name}", note=note, legend=axes.get_lines())
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
    with context("whitegrid"):
        figure = Figure(figsize=(max(4.4, 1.9 * columns), 1.8 * rows + 0.8))
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
        edges = _edges(ratio)
        for axes, label, values in zip(panels, short_labels(setups.names, limit=22), ratio.T, strict=False):
            _draw_panel(axes, label, values, edges)
        for place, axes in enumerate(panels):
            if place >= blocks:
                axes.remove()
            elif place + columns >= blocks:
                axes.tick_params(labelbottom=True)
                axes.set_xlabel("γ / σ²")
        figure.supylabel("number of trials", fontsize=TEXT)
        frame(figure, title="Theory over measurement, γ/σ², of each block", note=f"{READING} · {caption(setups)}")
    return figure


def _edges(ratio: Array) -> Array:
    """Return the edges of all bins, evenly spaced in the logarithm; 1 is one of them, so that no bin straddles it."""
    octaves = np.log2(ratio[np.isfinite(ratio) & (ratio > 0)])
    low, high = min([-MIN_OCTAVES, *octaves]), max([MIN_OCTAVES, *octaves])
    width = (high - low) / min(max(len(ratio) // 4, 12), 40)
    return np.asarray(2.0 ** (width * np.arange(math.floor(low / width - 0.5), math.ceil(high / width + 1.5))))


def _draw_panel(axes: Axes, label: str, values: Array, edges: Array) -> None:
    finite, colour = values[np.isfinite(values)], COLOURS[0]
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
    axes.axvline(1.0, **REFERENCE, gid="reference")
    undefined, zero = int((~np.isfinite(values)).sum()), int((values == 0).sum())
    missing = [f"{count} {what}" for count, what in ((undefined, "undefined"), (zero, "zero")) if count]
    axes.annotate(", ".join(missing), (0.04, 0.88), xycoords="axes fraction", fontsize=SMALL, color=WARNING)
    label_decades(axes.xaxis)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
