"""The page of an initialisation check: verdict, ranking, figures, layers, and the data inside."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hessdiag.html.cells import Cell, exact
from hessdiag.html.environment import environment
from hessdiag.html.figures import check_pictures
from hessdiag.html.text import embedded
from hessdiag.plots.init_comparison import shown
from hessdiag.results.init_check import (
    LAYERS,
    RANKING,
    InitCheck,
    SchemeCheck,
    cells,
    layer_values,
    scheme_values,
    sweep_values,
    swept_names,
)
from hessdiag.results.numbers import short

MEANINGS = {
    "σ² spread": "largest over smallest average squared singular value among the weight blocks, with 95 % interval",
    "γ spread": "the same of the theory's scaling factor",
    "ν spread": "the same of the weight-gradient ratio",
    "γ/σ²": "theory over measurement, median",
    "E[y²]": "second moment of the outputs",
    "Var[y]": "variance of the outputs; ! outside 0.01 to 0.1",
    "forward": "E[x²] after the last layer over that after the first",
    "backward": "E[Δx²] after the first layer over that after the last",
    "γ/γᵇ in": "γ of the first layer's weight over γ of its bias",
}


def render(check: InitCheck) -> str:
    """Write the whole page; the same check gives the same text."""
    setups = check.checked.setups
    settings = {key: getattr(setups, key) for key in ("loss", "matrix", "per", "method", "batch_size", "data", "seed")}
    return (
        environment()
        .get_template("init_page.html.jinja")
        .render(
            check=check,
            level=check.level,
            tone=check.level,
            sentence=check.verdict,
            setups=len(setups),
            settings=[
                *((key.replace("_", " "), str(value)) for key, value in settings.items()),
                *setups.versions.items(),
            ],
            ranking=RANKING,
            meanings=MEANINGS,
            rows=[(scheme.init, _scheme(scheme)) for scheme in check.schemes],
            place=check.rank - 1,
            drawn=shown(check).index(check.checked),
            layer_titles=LAYERS,
            layers=named(setups.names, layer_values(check)),
            widths=None if check.widths is None else named(swept_names(check.widths), sweep_values(check.widths)),
            width_titles=() if check.widths is None else ["layer", *(f"{width:g}×" for width in check.widths.widths)],
            figures=check_pictures(check),
            data_id="init-check",
            data_class="InitCheck",
            json=embedded(check.to_json()),
        )
    )


def named(names: Sequence[str], values: Sequence[Sequence[float]]) -> list[tuple[str, list[Cell]]]:
    """Rows of numbers with their names."""
    return [(name, [Cell(short(value), value) for value in row]) for name, row in zip(names, values, strict=True)]


def _scheme(scheme: SchemeCheck) -> list[Cell]:
    interval = scheme.spread()
    hint = (
        "" if math.isnan(interval.low) else f"{exact(interval.value)}, {exact(interval.low)} to {exact(interval.high)}"
    )
    values = scheme_values(scheme)
    return [
        Cell(text, value, hint if number == 0 else "")
        for number, (text, value) in enumerate(zip(cells(scheme), values, strict=True))
    ]
