"""A prediction as text."""

from __future__ import annotations

import math

from hessdiag.calculus.prediction import BlockPrediction, Prediction
from hessdiag.results.numbers import short
from hessdiag.tables.text_table import TextTable, grouped, listed, make_table, plain_text, size

EXPENDABLE = ("E[y²]", "E[x²]", "shape", "5–95 %", "E[W²]")
COLUMNS = ("block", "shape", "E[W²]", "E[x²]", "E[y²]", "ς", "γ", "5–95 %", "ν")


def render(prediction: Prediction) -> str:
    """The table with what was predicted above it, and what could not be below."""
    return plain_text([*header(prediction), block_table(prediction), *footer(prediction)])


def render_whole(prediction: Prediction) -> str:
    """The same with all columns, and everything that was left out by name."""
    return plain_text([*header(prediction), block_table(prediction), *footer(prediction, whole=True)], whole=True)


def render_brief(prediction: Prediction) -> str:
    """The spread, and what it does not cover."""
    return plain_text([spread_line(prediction), *missing(prediction)])


def block_table(prediction: Prediction) -> TextTable:
    """One row a block."""
    return make_table(COLUMNS, _rows(prediction), left=2, expendable=EXPENDABLE)


def header(prediction: Prediction) -> list[str]:
    """What was predicted, from what."""
    return [
        f"{prediction.model}: scaling predicted from shapes and E[W²] ({prediction.weights_from}), nothing measured",
        f"loss {prediction.loss}, {prediction.outputs} outputs, E[y²] {short(prediction.output_sq)},"
        f" moments {prediction.moments}, spread of set-ups at batch {prediction.batch_size}",
        "",
    ]


def footer(prediction: Prediction, *, whole: bool = False) -> list[str]:
    """Spread, approximations, and what has no rule."""
    lines = ["", spread_line(prediction)]
    if prediction.notes:
        lines += ["beyond the paper:", *(f"  {note}" for note in prediction.notes)]
    return lines + missing(prediction, whole=whole)


def spread_line(prediction: Prediction) -> str:
    """How unequal the blocks are."""
    spread = prediction.spread
    return f"spread over weight blocks, max/min:  γ {short(spread['gamma'])}   ν {short(spread['nu'])}"


def missing(prediction: Prediction, *, whole: bool = False) -> list[str]:
    """What has no rule, and what is no block."""
    lines = listed("without a rule (what depends on it is left open):", prediction.unsupported)
    return lines + grouped("not predicted:", prediction.skipped, whole=whole)


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
