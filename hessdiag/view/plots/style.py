"""What all figures share: colours and fonts, title and caption, names, and how they are saved."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from hessdiag.arguments import check_kind, joined
from hessdiag.results.blocks import MATRICES
from hessdiag.results.numbers import Array
from hessdiag.results.records import write_bytes
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups
from hessdiag.results.text_table import fit_names, layer_of, printable

SMALL, TEXT, TITLE = 7.0, 8.0, 10.0  # points
MUTED, WARNING, NEUTRAL = "#595959", "#a02c00", "#c8c8c8"  # explaining text, missing values, cells without a value
COLOURS = tuple(sns.color_palette("colorblind").as_hex()[i] for i in (0, 1, 2, 3, 4, 9, 7))
REFERENCE: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # a line to compare with
ENDINGS = (".png", ".svg")
SHEET = "hessdiag.view.plots.figures"  # the file beside this one, as matplotlib names it


@contextmanager
def context(seaborn_style: str = "ticks") -> Iterator[None]:
    """Set the look of all figures, whatever the caller's rcParams are; they are as before on leaving."""
    with matplotlib.style.context(["default", dict(sns.axes_style(seaborn_style)), SHEET]):
        yield


def frame(figure: Figure, *, title: str, note: str, legend: Sequence[Artist] = (), compress: bool = False) -> None:
    """Put the title above, the caption below and the legend beside all axes, and let matplotlib lay them out."""
    width = figure.get_figwidth()
    figure.suptitle(textwrap.fill(printable(title), int(13 * width)), x=0.01, ha="left", fontsize=TITLE, weight="bold")
    noted = textwrap.fill(note, int(19 * width), break_on_hyphens=False)
    figure.supxlabel(noted, x=0.01, ha="left", fontsize=SMALL, color=MUTED)
    if legend:
        figure.legend(handles=list(legend), loc="outside right upper")
    figure.set_layout_engine("compressed" if compress else "constrained")
    vars(figure)["_repr_png_"] = partial(_in_notebook, figure)  # shown also where pyplot was never imported


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


def _in_notebook(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """Return the figure as PNG, and how many pixels wide it is to be shown."""
    return rendered(figure, "png"), {"width": round(96 * float(figure.get_figwidth()))}


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
