"""How all figures look, on a light page and on a dark one: colours, fonts, and the three quantities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import seaborn as sns
from matplotlib import colormaps
from matplotlib.colors import to_hex

SMALL, TEXT, TITLE = 7.0, 8.0, 10.0  # points

_COLORBLIND = sns.color_palette("colorblind").as_hex()


@dataclass(frozen=True)
class Theme:
    """The colours of a page and of what stands on it.

    Attributes:
        page: the background.
        ink, muted, warning: texts that matter, that explain, and that something is missing.
        edge, grid: frames and grid lines of axes.
        neutral: a cell without a value; no colour of viridis.
        lines: colours of lines, told apart also by readers who are colour-blind.
        first_shade: where viridis starts to differ from the page.
        sizes, balance: colour maps: of sizes, and of ratios, whose middle is 1 and as pale or dark as the page.
    """

    page: str
    ink: str
    muted: str
    warning: str
    edge: str
    grid: str
    neutral: str
    lines: tuple[str, ...]
    first_shade: float
    sizes: str
    balance: str


LIGHT = Theme(
    page="white",
    ink="#262626",
    muted="#595959",
    warning="#a02c00",
    edge="#8c8c8c",
    grid="#e3e3e3",
    neutral="#c8c8c8",
    lines=tuple(_COLORBLIND[i] for i in (0, 1, 2, 3, 4, 9, 7)),
    first_shade=0.0,
    sizes="viridis",
    balance="RdBu_r",
)
DARK = Theme(
    page="#14161a",
    ink="#e7e9ed",
    muted="#a7adb8",
    warning="#ff9d7a",
    edge="#6b7280",
    grid="#30353e",
    neutral="#5c5c5c",
    lines=("#4c9fd8", "#f0a830", "#2fc69a", "#ff7f50", "#dd93cd", "#9ad5f5", "#b0b0b0"),
    first_shade=0.25,
    sizes="viridis",
    balance="icefire",
)

_THEME: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


@dataclass(frozen=True)
class Quantity:
    """One of the three numbers of a block, drawn alike in all figures.

    Attributes:
        key: the attribute of a `BlockReport`.
        symbol, meaning: what it is called.
        marker: shape of its dots.
        line: place of its colour among a theme's.
        offset: rows, so that equal values of a block do not hide one another.
    """

    key: str
    symbol: str
    meaning: str
    marker: str
    line: int
    offset: float

    @property
    def label(self) -> str:
        """Symbol and meaning."""
        return f"{self.symbol}, {self.meaning}"

    @property
    def colour(self) -> str:
        """Its colour on the page of the theme in force."""
        return theme().lines[self.line]


GAMMA = Quantity("gamma", "γ", "scaling factor of the theory", "o", 0, -0.2)
SIGMA_SQ = Quantity("avg_sq_singular_value", "σ²", "average squared singular value", "D", 2, 0.0)
NU = Quantity("nu", "ν", "weight-gradient ratio", "s", 1, 0.2)
QUANTITIES = (GAMMA, SIGMA_SQ, NU)

# DejaVu Sans travels with matplotlib, so a figure looks the same everywhere and has every glyph that we print.
_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.8,
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # a $ in the name of a block is a $
    "svg.hashsalt": "hessdiag",  # element ids otherwise differ from run to run
    "svg.fonttype": "path",  # outlines need no font on the reader's machine
}


def theme() -> Theme:
    """Return the theme in force: `LIGHT` unless `themed` says otherwise."""
    return _THEME.get()


@contextmanager
def themed(chosen: Theme) -> Iterator[None]:
    """Draw for a page of other colours."""
    token = _THEME.set(chosen)
    try:
        yield
    finally:
        _THEME.reset(token)


@contextmanager
def context(seaborn_style: str = "ticks") -> Iterator[None]:
    """Set the look of all figures, whatever the caller's rcParams are; they are as before on leaving."""
    with matplotlib.style.context(["default", dict(sns.axes_style(seaborn_style)), _SETTINGS, _colours(theme())]):
        yield


def _colours(chosen: Theme) -> dict[str, str]:
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), chosen.ink)
    page = dict.fromkeys(("figure.facecolor", "axes.facecolor"), chosen.page)
    return ink | page | {"axes.edgecolor": chosen.edge, "grid.color": chosen.grid}


def reference() -> dict[str, Any]:
    """Return the looks of a line that values are compared with."""
    return {"color": theme().muted, "linewidth": 0.9, "linestyle": (0, (4, 3))}


def shades(count: int) -> list[str]:
    """Choose as many colours as there are lines; in order of depth where they are many.

    >>> len(shades(3)), len(shades(40))
    (3, 40)
    """
    few, first = theme().lines, theme().first_shade
    if count <= len(few):
        return list(few[:count])
    viridis = colormaps["viridis"]
    return [to_hex(viridis(first + (1 - first) * (i + 0.5) / count)) for i in range(count)]
