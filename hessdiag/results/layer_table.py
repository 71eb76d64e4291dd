"""The table that a report opens with: the curvature of each layer over that of the typical one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from hessdiag.results.blocks import BlockReport
from hessdiag.results.numbers import geometric_mean, short
from hessdiag.results.text_table import TextTable, siblings, size

MOST_ROWS = 12
SEEN = 1e-3  # an error below it is none
BAR = 6  # columns to either side of the typical layer
TITLES = ("layer", "shape", "curvature", "range", "error", f"{'flat':>{BAR}}│{'steep':<{BAR}}")


class Row(NamedTuple):
    """Siblings: their label, their shape, their curvatures over the typical one, and the largest error of these."""

    label: str
    shape: str
    ratios: list[float]
    error: float = 0.0

    @property
    def typical(self) -> float:
        """The mean of those that are known; 0, inf or NaN where all are."""
        mean = geometric_mean(self.ratios)
        return self.ratios[0] if math.isnan(mean) else mean

    @property
    def away(self) -> float:
        """How far from 1 they are, up or down, as a logarithm; 0 where that is unknown."""
        if math.isnan(self.typical):
            return 0.0
        return abs(math.log(self.typical)) if 0 < self.typical < math.inf else math.inf


def layer_table(weights: Sequence[BlockReport]) -> TextTable:
    """Layers by their curvature, the largest first; siblings of one shape share a row.

    Of more than `MOST_ROWS` rows those nearest to the typical layer are counted in one.
    """
    curvatures = [root(block) for block in weights]
    middle = geometric_mean(curvatures)
    rows = []
    for label, places in siblings(
        [(b.name, (b.shape, c == 0)) for b, c in zip(weights, curvatures, strict=True)]
    ).items():
        errors = [weights[place].relative_stderr / 2 for place in places]  # of roots
        error = math.inf if any(map(math.isnan, errors)) else max(errors)
        rows.append(Row(label, size(weights[places[0]].shape), [curvatures[i] / middle for i in places], error))
    rows.sort(key=lambda row: -1.0 if math.isnan(row.typical) else row.typical, reverse=True)
    longest = max([math.log(2), *(row.away for row in rows if row.away < math.inf)])
    if len(rows) > MOST_ROWS:
        far = sorted(rows, key=lambda row: row.away)[1 - MOST_ROWS :]
        near = [ratio for row in rows if row not in far for ratio in row.ratios]
        place = next(i for i, row in enumerate(rows) if row not in far)
        rows = [row for row in rows if row in far]
        rows.insert(place, Row(f"and {len(near)} more layers", "", near))
    cells = [_cells(row, longest) for row in rows]
    kept = [i < 3 or any(row[i] for row in cells) for i in range(len(TITLES))]
    return TextTable([*compress(TITLES, kept)], [[*compress(row, kept)] for row in cells], left=2)


def root(block: BlockReport) -> float:
    """σ, the size of a curvature; NaN where a sample of it came out below 0."""
    sq = block.avg_sq_singular_value
    return math.nan if sq < 0 or (sq == 0 and block.stderr > 0) else math.sqrt(sq)


def _cells(row: Row, longest: float) -> list[str]:
    known = [ratio for ratio in row.ratios if ratio > 0]
    span = f"{short(min(known), 2)}–{short(max(known), 2)}" if len(known) > 1 else ""
    error = f"± {short(100 * row.error, 2)} %" if SEEN < row.error < 1 else "" if row.error <= SEEN else "> 100 %"
    ratio = f"{short(row.typical)}×" if row.typical >= 0 else "–"
    length = BAR if row.away == math.inf else round(BAR * row.away / longest)
    left, right = ("█" * length, "") if row.typical < 1 else ("", "█" * length if row.typical >= 1 else "")
    return [row.label, row.shape, ratio, span, error, f"{left:>{BAR}}│{right:<{BAR}}"]
