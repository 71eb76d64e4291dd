"""What all figures share: look, caption, block labels, number format and how a figure becomes files."""

from __future__ import annotations

import io
import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import matplotlib.style
import numpy as np
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_bytes
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

T = TypeVar("T")

INK = "#262626"
MUTED = "#595959"
WARNING = "#a02c00"
NEUTRAL = "#c8c8c8"  # no colour of viridis: a cell that has no value on the scale
BLUE, ORANGE, GREEN = (sns.color_palette("colorblind").as_hex()[i] for i in (0, 1, 2))

SMALL, TEXT, TITLE = 7.0, 8.0, 10.0  # points
_MARGIN = 0.08  # inches around the figure

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton"}

# DejaVu Sans travels with matplotlib, so a figure looks the same everywhere and has every glyph that we print.
_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.edgecolor": "#8c8c8c",
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "svg.hashsalt": "hessdiag",  # element ids otherwise differ from run to run
    "svg.fonttype": "path",  # outlines need no font on the reader's machine
}


@contextmanager
def context(seaborn_style: str = "ticks") -> Iterator[None]:
    """The look of all figures, whatever the caller's rcParams are; they are as before on leaving."""
    with matplotlib.style.context(["default", dict(sns.axes_style(seaborn_style)), _SETTINGS]):
        yield


def caption(*measured: Report | Setups) -> str:
    """One line that says what a figure shows: model, initialisation, loss, matrix and view, size, method and seed.

    Settings in which several measurements differ are listed.
    """
    return " · ".join(
        (
            _listed(m.model for m in measured),
            f"{_listed(m.init for m in measured)} initialisation",
            f"{_listed(m.loss for m in measured)} loss",
            f"{_listed(MATRIX_NAMES.get(m.matrix, m.matrix) for m in measured)}, "
            + _listed(f"per {m.per}" for m in measured),
            f"batch size {_listed(m.batch_size for m in measured)}",
            _listed(plural(_count(m), "set-up") for m in measured),
            f"{_listed(m.method for m in measured)} method",
            _listed(_seeds(m) for m in measured),
        )
    )


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "set-up"), plural(100, "set-up")
    ('1 set-up', '100 set-ups')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def number(value: float) -> str:
    """Two significant digits in the shortest form that a reader takes in at a glance; whole numbers from 100 to 999.

    >>> [number(v) for v in (3.21, 0.8449, 26.3, 472.6, 0.00142, 12345.0, 0.0, float("inf"), float("nan"))]
    ['3.2', '0.84', '26', '473', '1.4e-3', '1.2e4', '0', '∞', 'undefined']
    """
    if np.isnan(value):
        return "undefined"
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    if 99.5 <= abs(value) < 999.5:
        return f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = int(exponent)
    return f"{float(f'{value:.1e}'):.{1 - power}f}" if -2 <= power < 2 else f"{mantissa}e{power}"


def shades(count: int) -> list[str]:
    """As many colours as lines, told apart by readers who are colour-blind too; in order of depth where there are many.

    >>> len(shades(3)), len(shades(40))
    (3, 40)
    """
    named = sns.color_palette("colorblind").as_hex()
    few = [named[i] for i in (0, 1, 2, 3, 4, 9, 7)]
    return few[:count] if count <= len(few) else list(sns.color_palette("viridis", count).as_hex())


def short_labels(names: Sequence[str], *, limit: int = 28) -> list[str]:
    """Names of blocks without a trailing ".weight", the middle of long ones elided; distinct names stay distinct.

    >>> short_labels(["conv1.weight", "encoder.stages.2.layers.5.convolution.weight"])
    ['conv1', 'encoder…2…5.convolution']
    """
    whole = [name.removesuffix(".weight") for name in names]
    short = [_elide(name, limit) for name in whole]
    seen = Counter(short)
    return [s if seen[s] == 1 else w for s, w in zip(short, whole, strict=True)]


def text_width(text: str | Iterable[str], size: float, *, weight: str = "normal") -> float:
    """Width of a text (of the widest, for several) in inches."""
    font = FontProperties(family="DejaVu Sans", weight=weight)
    texts = [text] if isinstance(text, str) else text
    return max((TextPath((0, 0), t, size=size, prop=font).get_extents().x1 for t in texts if t.strip()), default=0) / 72


def head(axes: Axes, title: str, detail: str) -> None:
    """Title a panel with a name and, under it, what its numbers come to; both stand outside the data.

    The layout does not see `detail`: make panels at least `head_width` wide.
    """
    axes.set_title(title, loc="left", fontsize=TEXT, fontweight="bold", pad=SMALL + 8)
    line = axes.annotate(detail, (0, 1), xytext=(0, 4), xycoords="axes fraction", textcoords="offset points")
    line.set(fontsize=SMALL, color=MUTED, annotation_clip=False, in_layout=False)


def head_width(titles: Iterable[str], details: Iterable[str]) -> float:
    """Width in inches of the widest `head`."""
    return max(text_width(titles, TEXT, weight="bold"), text_width(details, SMALL))


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
    title = _wrapped(title, width, TITLE)
    note = _wrapped(note, width, SMALL)
    below_title = _text_height(title, TITLE) + _MARGIN
    top = below_title + _legend_height(legend)
    bottom = _text_height(note, SMALL) + 2 * _MARGIN
    height += top + bottom
    figure.set_size_inches(width, height)
    x = _MARGIN / width
    heading = figure.suptitle(title, x=x, y=1 - _MARGIN / height, ha="left", va="top", fontsize=TITLE, weight="bold")
    heading.set_in_layout(False)
    figure.text(x, _MARGIN / height, note, ha="left", va="bottom", fontsize=SMALL, color=MUTED, gid="caption")
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


def save(figure: Figure, stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write `stem.png` (200 dpi) and `stem.svg`, each whole or not at all; the same figure gives the same bytes.

    Raises:
        HessdiagError: the folder does not exist or cannot be written.
    """
    png, svg = io.BytesIO(), io.BytesIO()
    with context():
        figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
        figure.savefig(svg, format="svg", dpi=200, metadata={"Date": None})
    return write_bytes(f"{os.fspath(stem)}.png", png.getvalue()), write_bytes(f"{os.fspath(stem)}.svg", svg.getvalue())


def agree(measured: Sequence[T], keys: Sequence[str]) -> None:
    """Check that measurements drawn in one figure share the settings `keys`.

    Raises:
        HessdiagError: there is none, or two of them differ.
    """
    if not measured:
        raise HessdiagError("nothing to draw: pass at least one measurement")
    for other in measured[1:]:
        for key in keys:
            mine, theirs = getattr(measured[0], key), getattr(other, key)
            if mine != theirs:
                raise HessdiagError(f"panels differ in {key}: {mine!r} and {theirs!r}; draw one experiment a figure")


def _count(measured: Report | Setups) -> int:
    return len(measured) if isinstance(measured, Setups) else 1


def _seeds(measured: Report | Setups) -> str:
    last = measured.seed + _count(measured) - 1
    return f"seed {last}" if last == measured.seed else f"seeds {measured.seed}–{last}"


def _listed(values: Iterable[object]) -> str:
    texts = list(dict.fromkeys(str(value) for value in values))
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _elide(name: str, limit: int) -> str:
    # Words go before numbers, and outer containers before inner ones: what is left tells blocks apart.
    parts = name.split(".")
    while len(".".join(parts)) > limit:
        words = [i for i, part in enumerate(parts[1:-1], start=1) if part != "…" and not part.isdigit()]
        if not words:
            break
        parts[words[0]] = "…"
    text = ".".join(parts)
    while "…." in text or ".…" in text:
        text = text.replace("….", "…").replace(".…", "…").replace("……", "…")
    if len(text) <= limit:
        return text
    return text[: limit // 2] + "…" + text[len(text) - (limit - limit // 2 - 1) :]


def _wrapped(text: str, width: float, size: float) -> str:
    room = (width - 2 * _MARGIN) / text_width(text, size, weight="bold") * len(text)  # characters of average width
    # Settings are kept whole where they fit: a line ends with the dot after one.
    tied = text if "·" not in text else "\u00a0· ".join(part.replace(" ", "\u00a0") for part in text.split(" · "))
    return textwrap.fill(tied, max(20, int(room)), break_on_hyphens=False).replace("\u00a0", " ")


def _text_height(text: str, size: float) -> float:
    return (text.count("\n") + 1) * size * 1.35 / 72


def _legend_height(legend: Sequence[Artist]) -> float:
    return max((_text_height(str(handle.get_label()), SMALL) + 0.12 for handle in legend), default=0.0)
