"""Final training losses over seeds, at the best rate of each, and how sure the differences are."""

from __future__ import annotations

import numpy as np

from hessdiag.results.numbers import short
from hessdiag.results.text_table import make_table, plain_text
from hessdiag.results.training_curves import CurveSet, TrainingCurves

MIDDLE = 0.5  # of the training, at which losses are compared as well
EXPENDABLE = ("p half-way", "half-way", "quartiles")
TITLES = ("", "rate", "loss", "quartiles", "diverged", "p", "half-way", "p half-way")


def render_curves(curves: TrainingCurves, *, reference: str = "") -> str:
    """One row a set, of the least final loss first; p of Welch's t-test against the `reference`."""
    ordered = sorted(curves.sets, key=lambda each: float(np.median(each.final)))
    rows = [_row(curves, each, reference) for each in ordered]
    note = f"p: Welch's t-test over seeds against {reference}, two-sided" if reference else ""
    seeds = len(curves.sets[0].curves)
    head = [
        f"{curves.model} on {curves.data}",
        f"{curves.training}; {seeds} seeds; loss: median of means over the last {curves.window} steps",
        "",
    ]
    return plain_text([*head, make_table(TITLES, rows, expendable=EXPENDABLE), *(["", note] if note else [])])


def _row(curves: TrainingCurves, found: CurveSet, reference: str) -> list[str]:
    half = int(MIDDLE * (len(curves.steps) - 1))
    low, high = np.quantile(found.final, (0.25, 0.75), method="nearest")
    lost = int((~np.isfinite(found.final)).sum())
    compared = reference and found.name != reference
    return [
        found.name,
        f"2^{found.power}",
        short(float(np.median(found.final))),
        f"{short(float(low))}–{short(float(high))}",
        f"{lost}/{len(found.final)}",
        short(curves.p_value(found.name, reference)) if compared else "",
        short(float(np.median(found.curves[:, half]))),
        short(curves.p_value(found.name, reference, point=half)) if compared else "",
    ]
