"""The table of blocks on a report's page: σ² beside the names, so that a phone shows it, and all values exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hessdiag.html.cells import Cell, exact
from hessdiag.plots.block_rows import row_names
from hessdiag.results.report import COLUMNS as ATTRIBUTES
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.report import cells as texts_of

# What the columns of the text table are called in full.
MEANINGS = {
    "ς": "activation scaling",
    "γ": "scaling factor of the theory",
    "γ curv.": "scaling factor with the gradient replaced by a vector sent through the Hessian of the loss",
    "ν": "weight-gradient ratio",
    "σ²": "average squared singular value, measured",
    "± %": "standard error of σ² in percent",
    "γ/σ²": "theory over measurement",
    "relative": "theory over measurement, divided by its geometric mean over the weight blocks",
}
FIRST = ("block", "σ²", "± %")
COLUMNS = (*FIRST, *(title for title in ATTRIBUTES if title not in FIRST))  # in the order of the page


@dataclass(frozen=True)
class Row:
    """One block in the table.

    Attributes:
        block: the block.
        number: its place in the report, which links to it go by.
        drawn: the place of the block on whose row of the figure it is.
        cells: behind its name, in the order of `COLUMNS`.
        place: percent of the way from the smallest to the largest σ² of a weight, on a logarithmic scale; `None` for
            other blocks and where σ² has no place on one.
        extreme: `"largest"` or `"smallest"` of the weights, or nothing.
    """

    block: BlockReport
    number: int
    drawn: int
    cells: tuple[Cell, ...]
    place: float | None
    extreme: str


def rows(report: Report) -> list[Row]:
    """List the table's rows in the report's order."""
    sizes = [b.avg_sq_singular_value for b in report.weights]
    sizes = [size for size in sizes if size > 0 and math.isfinite(size)]
    low, high = (math.log10(min(sizes)), math.log10(max(sizes))) if sizes else (0.0, 0.0)
    room = max(0.0, 1.0 - (high - low)) / 2  # a decade at least, so that equal blocks look equal
    names, drawn = [block.name for block in report.blocks], row_names(report.blocks)
    found = []
    for number, block in enumerate(report.blocks):
        by_title = dict(zip(ATTRIBUTES, texts_of(block), strict=True))
        cells = tuple(_cell(block, title, by_title[title]) for title in COLUMNS[1:])
        place, extreme = _place(block, low - room, high + room), _extreme(block, sizes)
        found.append(Row(block, number, names.index(drawn[number]), cells, place, extreme))
    return found


def _cell(block: BlockReport, title: str, text: str) -> Cell:
    """Put the exact number behind a text of the text table."""
    if title == "shape":
        return Cell(text, block.numel, f"{block.numel:,} parameters")
    value = 100 * block.relative_stderr if title == "± %" else float(getattr(block, ATTRIBUTES[title]))
    if title == "σ²" and block.ended != "exact":
        return Cell(text, value, f"{exact(value)} ± {exact(block.stderr)}")
    return Cell(text, value)


def _place(block: BlockReport, low: float, high: float) -> float | None:
    size = block.avg_sq_singular_value
    if block.kind != "weight" or not (size > 0 and math.isfinite(size)):
        return None
    return round(100 * (math.log10(size) - low) / (high - low), 1)


def _extreme(block: BlockReport, sizes: Sequence[float]) -> str:
    if block.kind != "weight" or not sizes or min(sizes) == max(sizes):
        return ""
    return {max(sizes): "largest", min(sizes): "smallest"}.get(block.avg_sq_singular_value, "")
