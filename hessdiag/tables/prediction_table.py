"""A prediction as text."""

from __future__ import annotations

import math

from hessdiag.calculus.prediction import BlockPrediction, Prediction
from hessdiag.results.numbers import short
from hessdiag.tables.text_table import listed, make_table, plain_text, size

COLUMNS = ("block", "shape", "E[W²]", "E[x²]", "E[y²]", "ς", "γ", "5–95 %", "ν")


def render(prediction: Prediction) -> str:
    """The table with what was predicted above it, and what could not be below."""
    return plain_text(
        [*header(prediction), make_table(COLUMNS, _rows(prediction), left=2, fit=True), *footer(prediction)]
    )


def header(prediction: Prediction) -> list[str]:
    """What was predicted, from what."""
    return [
        f"{prediction.model}: scaling predicted from shapes and E[W²] ({prediction.weights_from}), nothing measured",
        f"loss {prediction.loss}, {prediction.outputs} outputs, E[y²] {short(prediction.output_sq)},"
        f" moments {prediction.moments}, spread of set-ups at batch {prediction.batch_size}",
        "",
    ]


def footer(prediction: Prediction) -> list[str]:
    """Spread, approximations, and what has no rule."""
    spread = prediction.spread
    lines = ["", f"spread over weight blocks, max/min:  γ {short(spread['gamma'])}   ν {short(spread['nu'])}"]
    if prediction.notes:
        lines += ["beyond the paper:", *(f"  {note}" for note in prediction.notes)]
    lines += listed("without a rule (what depends on it is left open):", prediction.unsupported)
    return lines + listed("not predicted:", prediction.skipped)


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
