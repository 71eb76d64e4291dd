"""A prediction beside a measurement as text."""

from __future__ import annotations

import math

from hessdiag.calculus.predicted_vs_measured import Beside
from hessdiag.results.numbers import short
from hessdiag.tables.prediction_table import footer, header, missing, spread_line
from hessdiag.tables.text_table import make_table, plain_text, size

EXPENDABLE = ("σ² measured", "shape", "γ/σ²")
COLUMNS = (
    "block",
    "shape",
    "γ predicted",
    "measured",
    "ratio",
    "ν predicted",
    "measured",
    "ratio",
    "σ² measured",
    "γ/σ²",
)


def render(beside: Beside) -> str:
    """Show the table under what was predicted, and how far the two are apart below."""
    table = make_table(COLUMNS, _rows(beside), left=2, expendable=EXPENDABLE)
    return plain_text([*header(beside.prediction), table, "", _error(beside), *footer(beside.prediction)])


def render_brief(beside: Beside) -> str:
    """How far the two are apart, and the predicted spread."""
    return plain_text([_error(beside), spread_line(beside.prediction), *missing(beside.prediction)])


def _error(beside: Beside) -> str:
    return (
        f"measured: median of {beside.setups} random set-ups;"
        f" median |log2(predicted/measured)| of γ {short(beside.error())}"
    )


def _rows(beside: Beside) -> list[list[str]]:
    rows = []
    for block in beside.prediction.blocks:
        seen = beside.measured.get(block.name, {})
        sigma = seen.get("avg_sq_singular_value", math.nan)
        pairs = [(getattr(block, key), seen.get(key, math.nan), beside.ratio(block, key)) for key in ("gamma", "nu")]
        numbers = [*(value for triple in pairs for value in triple), sigma, block.gamma / sigma if sigma else math.nan]
        rows.append([block.name, size(block.shape), *map(short, numbers)])
    return rows
