"""A prediction beside a measurement as text."""

from __future__ import annotations

import math

from hessdiag.calculus.predicted_vs_measured import Beside
from hessdiag.results.numbers import short
from hessdiag.tables.prediction_table import footer, header
from hessdiag.tables.text_table import make_table, plain_text, size

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
    error = (
        f"measured: median of {beside.setups} random set-ups;"
        f" median |log2(predicted/measured)| of γ {short(beside.error())}"
    )
    table = make_table(COLUMNS, _rows(beside), left=2, fit=True)
    return plain_text([*header(beside.prediction), table, "", error, *footer(beside.prediction)])


def _rows(beside: Beside) -> list[list[str]]:
    rows = []
    for block in beside.prediction.blocks:
        seen = beside.measured.get(block.name, {})
        sigma = seen.get("avg_sq_singular_value", math.nan)
        pairs = [(getattr(block, key), seen.get(key, math.nan), beside.ratio(block, key)) for key in ("gamma", "nu")]
        numbers = [*(value for triple in pairs for value in triple), sigma, block.gamma / sigma if sigma else math.nan]
        rows.append([block.name, size(block.shape), *map(short, numbers)])
    return rows
