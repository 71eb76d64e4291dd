"""Figures of a page, as pictures inside it: one on a light page and one on a dark one, with links on their rows."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from hessdiag.plots import draw_heatmap, draw_init_check, draw_layers, draw_widths
from hessdiag.plots.block_rows import row_names
from hessdiag.plots.frame import to_svg
from hessdiag.plots.row_places import INITIALISATIONS, LAYERS, MAP, Band, bands
from hessdiag.plots.style import DARK, LIGHT, Theme, themed
from hessdiag.results.init_check import InitCheck
from hessdiag.results.numbers import short
from hessdiag.results.report import Report

PIXELS = 96  # an inch
LEGIBLE = 0.65  # of its natural size, down to which a picture shrinks with its page; below, it scrolls


@dataclass(frozen=True)
class Spot:
    """A part of a picture that links to a row of a table.

    Attributes:
        id: of the part, for links to it.
        target: id of the row.
        name: what the row is called.
        band: where it is.
    """

    id: str
    target: str
    name: str
    band: Band


@dataclass(frozen=True)
class Picture:
    """A figure ready for a page. As an image it can neither run anything nor reach the rest of the page.

    Attributes:
        key: short name.
        title, description: what it shows, for readers who cannot see it.
        width, height: its natural size in pixels.
        light, dark: the addresses of both versions, which hold the whole SVG.
        spots: what of it leads to rows of tables.
    """

    key: str
    title: str
    description: str
    width: int
    height: int
    light: str
    dark: str
    spots: tuple[Spot, ...] = ()

    @property
    def least(self) -> int:
        """The least width at which it is legible, in pixels."""
        return round(LEGIBLE * self.width)


def report_pictures(report: Report) -> list[Picture]:
    """Draw what has something to show: the map of weight blocks, and the layers' numbers side by side."""
    pictures = []
    names = [block.name for block in report.blocks]
    if report.weights:
        title = "Map of the size of every pair of weight blocks"
        rows = [(f"block-{names.index(name)}", name) for name in report.heatmap.names]
        drawn = picture("heatmap", title, _describe(report), lambda: draw_heatmap(report), {MAP: rows})
        pictures.append(drawn)
    if report.blocks:
        title = "γ, σ² and ν of every layer"
        rows = [(f"block-{names.index(name)}", name) for name in dict.fromkeys(row_names(report.blocks))]
        drawn = picture("layers", title, _describe(report), lambda: draw_layers(report), {LAYERS: rows})
        pictures.append(drawn)
    return pictures


def check_pictures(check: InitCheck) -> list[Picture]:
    """Draw the initialisations side by side, and the layers over widths where these were measured.

    The page asks which of them is balanced: each map is over its own level, which stands above it.
    """
    described, widths = "The tables of this page hold the numbers.", check.widths
    title = "Block maps, and spreads of each initialisation"
    layers = [(f"layer-{number}", name) for number, name in enumerate(check.checked.setups.names)]
    schemes = [(f"scheme-{number}", scheme.init) for number, scheme in enumerate(check.schemes)]
    rows = {MAP: layers, INITIALISATIONS: schemes}
    pictures = [picture("maps", title, described, lambda: draw_init_check(check, relative=True), rows)]
    if widths is not None:
        pictures.append(picture("widths", "σ² of every layer by width", described, lambda: draw_widths(widths), {}))
    return pictures


def picture(
    key: str, title: str, description: str, draw: Callable[[], Figure], rows: Mapping[str, Sequence[tuple[str, str]]]
) -> Picture:
    """Draw a figure in both themes; `rows` are the ids and names of the table rows that those of its axes lead to."""
    (light, figure), (dark, _) = (_inline(draw, theme) for theme in (LIGHT, DARK))
    width, height = (round(PIXELS * float(side)) for side in figure.get_size_inches())
    spots = tuple(spot for kind, targets in rows.items() for spot in _spots(key, figure, kind, targets))
    return Picture(key, title, description, width, height, light, dark, spots)


def _spots(key: str, figure: Figure, kind: str, targets: Sequence[tuple[str, str]]) -> Iterator[Spot]:
    for place, column in enumerate(bands(figure, kind, len(targets))):
        for (target, name), band in zip(targets, column, strict=True):
            yield Spot(f"{key}-{place}-{target}", target, name, band)


def _inline(draw: Callable[[], Figure], theme: Theme) -> tuple[str, Figure]:
    """Return the address of a figure, and the figure."""
    with themed(theme):
        figure = draw()
        svg = to_svg(figure)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", figure


def _describe(report: Report) -> str:
    spread = report.spread
    return (
        f"Largest over smallest value among the {len(report.weights)} weight blocks: γ {short(spread['gamma'])},"
        f" ν {short(spread['nu'])}, σ² {short(spread['avg_sq_singular_value'])}."
        " The table above holds the numbers of every block."
    )
