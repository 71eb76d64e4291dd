"""Around the axes: titles, legend and caption, and how the whole becomes files."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from hessdiag.arguments import check_kind
from hessdiag.plots import style
from hessdiag.plots.labels import printable, text_width
from hessdiag.results.files import write_bytes

_MARGIN = 0.08  # inches around the figure


def head(axes: Axes, title: str, detail: str) -> None:
    """Title a panel with a name and, under it, what its numbers come to; both stand outside the data.

    The layout does not see `detail`: make panels at least `head_width` wide.
    """
    axes.set_title(printable(title), loc="left", fontsize=style.TEXT, fontweight="bold", pad=style.SMALL + 8)
    line = axes.annotate(detail, (0, 1), xytext=(0, 4), xycoords="axes fraction", textcoords="offset points")
    line.set(fontsize=style.SMALL, color=style.theme().muted, annotation_clip=False, in_layout=False)


def head_width(titles: Iterable[str], details: Iterable[str]) -> float:
    """Measure the width in inches of the widest `head`."""
    return max(text_width(titles, style.TEXT, weight="bold"), text_width(details, style.SMALL))


def frame(figure: Figure, *, title: str, note: str, legend: Sequence[Artist] = (), compress: bool = False) -> None:
    """Put title and legend above and the caption below all axes, and lay the axes out between them.

    Args:
        figure: as tall as its axes need; the height of title, legend and caption is added to it here.
        title: what the figure shows; wrapped to the figure's width.
        note: the caption; wrapped between the settings that it lists.
        legend: handles, drawn in one row.
        compress: draw axes of a fixed aspect close together.
    """
    width, height = figure.get_size_inches()
    title = _wrapped(printable(title), width, style.TITLE)
    note = _wrapped(note, width, style.SMALL)
    below_title = _text_height(title, style.TITLE) + _MARGIN
    top = below_title + _legend_height(legend)
    bottom = _text_height(note, style.SMALL) + 2 * _MARGIN
    height += top + bottom
    figure.set_size_inches(width, height)
    x = _MARGIN / width
    title_text = figure.suptitle(
        title, x=x, y=1 - _MARGIN / height, ha="left", va="top", fontsize=style.TITLE, weight="bold"
    )
    title_text.set_in_layout(False)
    figure.text(
        x,
        _MARGIN / height,
        note,
        ha="left",
        va="bottom",
        fontsize=style.SMALL,
        color=style.theme().muted,
        gid="caption",
    )
    if legend:
        box = figure.legend(
            handles=list(legend),
            ncols=len(legend),
            loc="upper left",
            bbox_to_anchor=(x, 1 - below_title / height),
            frameon=False,
            borderaxespad=0,
        )
        box.set_in_layout(False)
    rect = (x, bottom / height, 1 - 2 * x, 1 - (top + bottom) / height)
    figure.set_layout_engine("compressed" if compress else "constrained", rect=rect)
    vars(figure)["_repr_png_"] = partial(_in_notebook, figure)  # shown also where pyplot was never imported


ENDINGS = (".png", ".svg")


def save(figure: Figure, stem: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write `stem.png` (200 dpi) and `stem.svg`, each whole or not at all; the same figure gives the same bytes.

    A name that ends in `.png` or `.svg` is that file alone.

    Raises:
        HessdiagError: the folder does not exist or cannot be written.
    """
    check_kind("figure", figure, Figure, "draw one first, with draw_heatmap(report)")
    check_kind("stem", stem, (str, os.PathLike), "name a file without its ending, such as 'figures/heatmap'")
    name, ending = os.path.splitext(os.fspath(stem))
    names = {ending: f"{name}{ending}"} if ending in ENDINGS else {each: f"{os.fspath(stem)}{each}" for each in ENDINGS}
    drawn = {each: to_png(figure) if each == ".png" else to_svg(figure) for each in names}  # before any is written
    return tuple(write_bytes(names[each], content) for each, content in drawn.items())


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG of 200 dpi; the same figure gives the same bytes."""
    stream = io.BytesIO()
    with style.context(), _laid_out(figure):
        figure.savefig(stream, format="png", dpi=200, metadata={"Software": None})
    return stream.getvalue()


def _in_notebook(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """Return the figure as PNG, and how many pixels wide it is to be shown."""
    return to_png(figure), {"width": round(96 * figure.get_size_inches()[0])}


def to_svg(figure: Figure) -> bytes:
    """Return the figure as SVG that needs no font and no other file; the same figure gives the same bytes."""
    stream = io.BytesIO()
    with style.context(), _laid_out(figure):
        figure.savefig(stream, format="svg", dpi=200, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return stream.getvalue()


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Lay the axes out and round their places: the solver's last digits, and so the bytes, differ from run to run."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    engine.execute(figure)
    for axes in figure.axes:
        sides = (round(side, 6) for side in axes.get_position(original=True).bounds)
        axes.set_position(Bbox.from_bounds(*sides))
    figure.set_layout_engine("none")
    try:
        yield
    finally:
        figure.set_layout_engine(engine)


def _wrapped(text: str, width: float, size: float) -> str:
    room = max(20, int((width - 2 * _MARGIN) / text_width(text, size, weight="bold") * len(text)))  # characters
    # Settings are kept whole where they fit: a line ends with the dot after one.
    parts = [part.replace(" ", "\u00a0") if len(part) < room else part for part in text.split(" · ")]
    tied = text if len(parts) == 1 else "\u00a0· ".join(parts)
    return textwrap.fill(tied, room, break_on_hyphens=False).replace("\u00a0", " ")


def _text_height(text: str, size: float) -> float:
    return (text.count("\n") + 1) * size * 1.35 / 72


def _legend_height(legend: Sequence[Artist]) -> float:
    return max((_text_height(str(handle.get_label()), style.SMALL) + 0.12 for handle in legend), default=0.0)
