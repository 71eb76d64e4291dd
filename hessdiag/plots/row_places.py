"""Where the rows of a finished figure are, for pages that link to them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Labels of axes whose rows can be found: rows of maps fill whole numbers, the others stand on them.
MAP, LAYERS, INITIALISATIONS = "map", "layers", "initialisations"


@dataclass(frozen=True)
class Band:
    """A row of a figure, in percent of the figure's width and height from its upper left corner."""

    left: float
    top: float
    width: float
    height: float


def mark_rows(axes: Axes, kind: str) -> None:
    """Say what the rows of some axes are, so that `bands` finds them."""
    axes.set_label(kind)


def bands(figure: Figure, kind: str, count: int) -> list[list[Band]]:
    """Find the rows of all axes of a kind in a figure that has been drawn or saved, from left to right.

    The first band of a line of axes begins at the left edge of the figure, with the names of the rows.
    """
    found = sorted((a for a in figure.axes if a.get_label() == kind), key=lambda a: a.get_position().x0)
    edges = [0.0] + [100 * axes.get_position().x0 for axes in found[1:]]
    return [_bands(figure, axes, kind, count, left) for axes, left in zip(found, edges, strict=True)]


def _bands(figure: Figure, axes: Axes, kind: str, count: int, left: float) -> list[Band]:
    to_figure = axes.transData + figure.transFigure.inverted()
    x = axes.get_xlim()[0]  # a position that has a place also where the axis is logarithmic
    first = 0.0 if kind == MAP else -0.5
    heights = [100 * (1 - float(to_figure.transform((x, first + row))[1])) for row in range(count + 1)]
    width = 100 * axes.get_position().x1 - left
    return [
        Band(round(left, 2), round(top, 2), round(width, 2), round(bottom - top, 2))
        for top, bottom in pairwise(heights)
    ]
