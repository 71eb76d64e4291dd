"""A prescription as text."""

from __future__ import annotations

from hessdiag.calculus.prescription import LayerPrescription, Prescription
from hessdiag.results.numbers import short
from hessdiag.tables.text_table import listed, make_table, plain_text, size

COLUMNS = ("block", "shape", "γ as it is", "E[W²] as it is", "prescribed", "multiplier", "E[z²]", "γ")


def render(prescription: Prescription) -> str:
    """Show what to do layer by layer, what it comes to, and the code that does it."""
    before = short(prescription.spread_before)
    return plain_text(
        [
            f"{prescription.model}: initialise with N(0, E[W²]), biases 0, and multiply each layer's output by its"
            " multiplier",
            f"loss {prescription.loss}, moments {prescription.moments}",
            "",
            make_table(COLUMNS, [_row(layer) for layer in prescription.layers], left=2, fit=True),
            "",
            f"spread of predicted γ, max/min: {before} as it is, 1 as prescribed",
            *listed("left as they are:", prescription.left_out),
            "",
            "as code:",
            prescription.to_code(),
        ]
    )


def _row(layer: LayerPrescription) -> list[str]:
    numbers = (
        layer.gamma_before,
        layer.weight_sq_before,
        layer.weight_sq,
        layer.multiplier,
        layer.out_sq,
        layer.gamma,
    )
    return [layer.name, size(layer.shape), *map(short, numbers)]
