"""Figures of a page, as pictures inside it: one on a light page and one on a dark one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from hessdiag.plots import draw_heatmap, draw_init_check, draw_layers, draw_widths
from hessdiag.plots.frame import to_svg
from hessdiag.plots.style import DARK, LIGHT, Theme, themed
from hessdiag.results.init_check import InitCheck
from hessdiag.results.numbers import short
from hessdiag.results.report import Report

PIXELS = 96  # an inch


@dataclass(frozen=True)
class Picture:
    """A figure ready for a page. As an image it can neither run anything nor reach the rest of the page.

    Attributes:
        key: short name.
        title, description: what it shows, for readers who cannot see it.
        width, height: its natural size in pixels.
        light, dark: the addresses of both versions, which hold the whole SVG.
    """

    key: str
    title: str
    description: str
    width: int
    height: int
    light: str
    dark: str


def report_pictures(report: Report) -> list[Picture]:
    """Draw what has something to show: the map of weight blocks, and the layers' numbers side by side."""
    pictures = []
    if report.weights:
        title = "Map of the size of every pair of weight blocks"
        pictures.append(picture("heatmap", title, _describe(report), lambda: draw_heatmap(report)))
    if report.blocks:
        title = "γ, σ² and ν of every layer"
        pictures.append(picture("layers", title, _describe(report), lambda: draw_layers(report)))
    return pictures


def check_pictures(check: InitCheck) -> list[Picture]:
    """Draw the initialisations side by side, and the layers over widths where these were measured."""
    described, widths = "The tables of this page hold the numbers.", check.widths
    title = "Block maps, and spreads of each initialisation"
    pictures = [picture("maps", title, described, lambda: draw_init_check(check))]
    if widths is not None:
        pictures.append(picture("widths", "σ² of every layer by width", described, lambda: draw_widths(widths)))
    return pictures


def picture(key: str, title: str, description: str, draw: Callable[[], Figure]) -> Picture:
    """Draw a figure in both themes; see `Picture`."""
    (light, width, height), (dark, *_) = (_inline(draw, theme) for theme in (LIGHT, DARK))
    return Picture(key, title, description, width, height, light, dark)


def _inline(draw: Callable[[], Figure], theme: Theme) -> tuple[str, int, int]:
    """Return address, width and height."""
    with themed(theme):
        figure = draw()
        svg = to_svg(figure)
    width, height = (round(PIXELS * float(side)) for side in figure.get_size_inches())
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", width, height


def _describe(report: Report) -> str:
    spread = report.spread
    return (
        f"Largest over smallest value among the {len(report.weights)} weight blocks: γ {short(spread['gamma'])},"
        f" ν {short(spread['nu'])}, σ² {short(spread['avg_sq_singular_value'])}."
        " The table above holds the numbers of every block."
    )
