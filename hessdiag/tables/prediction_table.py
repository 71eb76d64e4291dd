"""A prediction as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from hessdiag.results.numbers import short
from hessdiag.tables.report_table import WIDTH, fit_names, plain_text

if TYPE_CHECKING:
    from hessdiag.calculus.prediction import BlockPrediction, Prediction

COLUMNS = ("block", "shape", "E[W²]", "E[x²]", "E[y²]", "ς", "γ", "5–95 %", "ν")


def render(prediction: Prediction) -> str:
    """The table with what was predicted above it, and what could not be below."""
    return plain_text([*heading(prediction), block_table(COLUMNS, _rows(prediction)), *footing(prediction)])


def heading(prediction: Prediction) -> list[str]:
    """What was predicted, from what."""
    return [
        f"{prediction.model}: scaling predicted from shapes and E[W²] ({prediction.weights_from}), nothing measured",
        f"loss {prediction.loss}, {prediction.outputs} outputs, E[y²] {short(prediction.output_sq)},"
        f" moments {prediction.moments}, spread of set-ups at batch {prediction.batch_size}",
        "",
    ]


def block_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """One row a block; names get the room that the rest leaves."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for number, title in enumerate(columns):
        table.add_column(title, justify="left" if number < 2 else "right", no_wrap=True)
    taken = sum(2 + max(map(len, column)) for column in zip(columns[1:], *(row[1:] for row in rows), strict=True))
    for name, row in zip(fit_names([row[0] for row in rows], WIDTH - taken), rows, strict=True):
        table.add_row(name, *row[1:])
    return table


def footing(prediction: Prediction) -> list[str]:
    """Spread, approximations, and what has no rule."""
    spread = prediction.spread
    lines = ["", f"spread over weight blocks, max/min:  γ {short(spread['gamma'])}   ν {short(spread['nu'])}"]
    if prediction.notes:
        lines += ["beyond the paper:", *(f"  {note}" for note in prediction.notes)]
    if prediction.unsupported:
        lines += [
            "without a rule (what depends on it is left open):",
            *(f"  {place}: {reason}" for place, reason in prediction.unsupported),
        ]
    if prediction.skipped:
        lines += ["not predicted:", *(f"  {name}: {reason}" for name, reason in prediction.skipped)]
    return lines


def size(shape: Sequence[int]) -> str:
    """6×3×5×5, or 1 for a scalar."""
    return "×".join(map(str, shape)) or "1"


def _rows(prediction: Prediction) -> list[list[str]]:
    return [[block.name, size(block.shape), *_numbers(block)] for block in prediction.blocks]


def _numbers(block: BlockPrediction) -> list[str]:
    between = "–" if math.isnan(block.gamma_low) else f"{short(block.gamma_low)} – {short(block.gamma_high)}"
    return [
        short(block.weight_sq),
        short(block.x_sq),
        short(block.out_sq),
        short(block.activation_scaling),
        short(block.gamma),
        between,
        short(block.nu),
    ]
