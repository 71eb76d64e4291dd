"""Maps of blocks before they are drawn: their cells, and the scale that the maps of a figure share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, to_rgb

from hessdiag.plots import style
from hessdiag.plots.labels import number
from hessdiag.results.numbers import Array, geometric_mean, spread
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

SIZE = "$\\|H_{ij}\\|_F^2\\,/\\,\\sqrt{P_i P_j}$"


@dataclass(frozen=True)
class Panel:
    """One map, ready to draw.

    Attributes:
        matrix, init, names: what it is of.
        values: (L, L), normalised.
        error: largest relative standard error of a cell, from the estimator alone; 0 where exact.
        level: what the values have been divided by; `None` where they are as measured.
    """

    matrix: str
    init: str
    names: tuple[str, ...]
    values: Array
    error: float
    level: float | None = None

    @classmethod
    def of_setups(cls, setups: Setups) -> Panel:
        """Take the mean map over set-ups."""
        error = _relative_error(setups.estimator_stderr, setups.frobenius_sq)
        return cls(setups.matrix, setups.init, setups.names, setups.normalized(), error)

    @classmethod
    def of_report(cls, report: Report) -> Panel:
        """Take the map of one report."""
        heatmap = report.heatmap
        error = _relative_error(heatmap.stderr, heatmap.frobenius_sq)
        return cls(report.matrix, report.init, heatmap.names, heatmap.normalized(), error)

    def relative(self) -> Panel:
        """Divide all cells by the geometric mean of the diagonal, so that 1 is a block that is as curved as the others.

        Without a positive value on the diagonal, all cells are undefined.
        """
        level = geometric_mean([float(v) for v in np.diagonal(self.values)])
        return replace(self, values=self.values / level, level=level)

    @property
    def detail(self) -> str:
        """How unequal the diagonal is, and the level where the values are relative."""
        spread = f"diagonal max/min {number(self.spread)}"
        return spread if self.level is None else f"{spread} · level {number(self.level)}"

    @property
    def spread(self) -> float:
        """Largest over smallest diagonal entry."""
        return spread([float(v) for v in np.diagonal(self.values)])

    @property
    def drawable(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Cells that have a place on a logarithmic scale."""
        return np.asarray(np.isfinite(self.values) & (self.values > 0))


@dataclass(frozen=True)
class Scale:
    """From values to colours, alike in all maps of a figure.

    Attributes:
        norm: from values to the unit interval.
        colours: name of a colour map; the theme's.
        label: what the values are.
        title: what the figure shows.
    """

    norm: LogNorm
    colours: str
    label: str
    title: str

    @classmethod
    def of(cls, panels: Sequence[Panel]) -> Scale:
        """Span all values as they were measured, and a decade at least, so that a flat map looks flat."""
        low, high = _ends(panels)
        grow = max(1.0, math.sqrt(10 * low / high))
        label = f"{SIZE}\n(on the diagonal: average squared singular value)"
        title = "Size of every block (i, j) of the curvature matrix"
        return cls(LogNorm(low / grow, high * grow), style.theme().sizes, label, title)

    @classmethod
    def around_1(cls, panels: Sequence[Panel]) -> Scale:
        """Span as much below 1 as above it, at least a factor √10."""
        low, high = _ends(panels)
        reach = max(1 / low, high, math.sqrt(10))
        label = f"{SIZE}, over the level:\nthe geometric mean of the map's diagonal"
        title = "Balance of the blocks (i, j) of the curvature matrix: each map over its own level"
        return cls(LogNorm(1 / reach, reach), style.theme().balance, label, title)

    def colour(self, value: float) -> tuple[float, float, float]:
        """Return the colour of a value that has one."""
        return to_rgb(matplotlib.colormaps[self.colours](self.norm(value)))


def _ends(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the smallest and the largest value that can be drawn."""
    values = np.concatenate([p.values[p.drawable] for p in panels])
    return (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)


def scaled(panels: Sequence[Panel], *, relative: bool) -> tuple[list[Panel], Scale]:
    """Choose what maps show, and the scale that they share: sizes, or each over its own level around 1."""
    if not relative:
        return list(panels), Scale.of(panels)
    over_level = [panel.relative() for panel in panels]
    return over_level, Scale.around_1(over_level)


def _relative_error(stderr: Array, estimate: Array) -> float:
    """Return the largest of the defined ones; NaN when noise was measured but no cell is there to compare it with."""
    if not np.any(stderr):  # NaN counts as not exact
        return 0.0
    defined = np.isfinite(estimate) & (estimate > 0) & np.isfinite(stderr)
    return float((stderr[defined] / estimate[defined]).max()) if defined.any() else math.nan
