"""A prescription as text."""

from __future__ import annotations

from hessdiag.calculus.prescription import LayerPrescription, Prescription
from hessdiag.results.numbers import short, spread
from hessdiag.tables.text_table import Verbatim, grouped, make_table, plain_text, size

EXPENDABLE = ("E[z²]", "shape", "E[W²] as it is")
MEASURED = ("σ² as it is", "σ²")
COLUMNS = ("block", "shape", "γ as it is", "E[W²] as it is", "prescribed", "multiplier", "E[z²]", "γ")


def render(prescription: Prescription) -> str:
    """Show what to do layer by layer, what it comes to, and the code that does it."""
    measured = prescription.balance == "sigma"
    columns = (*COLUMNS, *MEASURED) if measured else COLUMNS
    rows = [_row(layer, measured) for layer in prescription.layers]
    return plain_text(
        [
            f"{prescription.model}: initialise with N(0, E[W²]), biases 0, and multiply each layer's output by its"
            " multiplier",
            f"loss {prescription.loss}, moments {prescription.moments}",
            "",
            make_table(columns, rows, left=2, expendable=EXPENDABLE),
            "",
            *_spreads(prescription),
            *grouped("left as they are:", prescription.left_out),
            "",
            "as code:",
            Verbatim(prescription.to_code()),
        ]
    )


def render_brief(prescription: Prescription) -> str:
    """The code that does it."""
    return prescription.to_code()


def _spreads(prescription: Prescription) -> list[str]:
    before, layers = short(prescription.spread_before), prescription.layers
    if prescription.balance == "gamma":
        return [f"spread of predicted γ, max/min: {before} as it is, {short(1.0)} as prescribed"]
    found = short(spread([layer.curvature_before for layer in layers]))
    then = short(spread([layer.curvature for layer in layers]))
    gamma = short(spread([layer.gamma for layer in layers]))
    where = f"over {prescription.setups} random set-ups that it was not found on"
    return [
        f"spread of measured σ², max/min: {found} as it is, {then} as prescribed, {where}",
        f"spread of predicted γ, max/min: {before} as it is, {gamma} as prescribed",
    ]


def _row(layer: LayerPrescription, measured: bool) -> list[str]:
    numbers = [
        layer.gamma_before,
        layer.weight_sq_before,
        layer.weight_sq,
        layer.multiplier,
        layer.out_sq,
        layer.gamma,
    ]
    if measured:
        numbers += [layer.curvature_before, layer.curvature]
    return [layer.name, size(layer.shape), *map(short, numbers)]
