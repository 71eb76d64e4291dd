"""An initialisation check as text: the ranking, the layers of the checked one, the sweep over widths, the verdict."""

from __future__ import annotations

import math

import numpy as np

from hessdiag.results.init_check import InitCheck, Interval, SchemeCheck, WidthSweep, fixes
from hessdiag.results.numbers import short
from hessdiag.tables.text_table import Part, TextTable, fit_names, make_table, plain_text

RANKING = (
    "initialisation",
    "σ² spread",
    "γ spread",
    "ν spread",
    "γ/σ²",
    "E[y²]",
    "Var[y]",
    "forward",
    "backward",
    "γ/γᵇ in",
)
EXPENDABLE = ("γ/γᵇ in", "γ/σ²", "backward", "forward", "ν spread", "E[y²]", "γ spread")
LAYERS = ("layer", "σ²/mean", "γ/mean", "ν/mean", "variance ×")
MAX_NAME = 26
MARK = "*"  # of the checked one


def render(check: InitCheck) -> str:
    """All of it, the verdict first."""
    setups = check.checked.setups
    parts: list[Part] = [
        check.verdict,
        "",
        f"{check.model}: initialisation {check.init} against {len(check.schemes) - 1} others,"
        f" {len(setups)} set-ups each, the same seeds for all",
        f"loss {setups.loss}, batch {setups.batch_size} ({setups.data}), seeds {setups.seed} to"
        f" {setups.seed + len(setups) - 1}, method {setups.method}",
        "",
        ranking(check),
        "",
        f"{MARK} the one asked about. Spreads: max/min over weight blocks of means over set-ups, (95 % interval).",
        "forward: E[x²] after the last layer over the first; backward: E[Δx²] after the first over the last.",
        "γ/γᵇ in: weight over bias of the first layer; 1 after hessdiag.surgery.scale_input.",
    ]
    if any(scheme.saturates for scheme in check.schemes):
        parts.append("! variance of the outputs outside 0.01 to 0.1, the range that suits log-softmax losses.")
    parts += check.conventions
    parts += ["", f"layers under {check.init}", layers(check)]
    if check.widths is not None:
        parts += ["", "σ² of each layer over the geometric mean of all, by width", sweep(check.widths)]
    return plain_text(parts)


def render_brief(check: InitCheck) -> str:
    """The verdict."""
    return plain_text([check.verdict])


def ranking(check: InitCheck) -> TextTable:
    """One row an initialisation, the most balanced first."""
    names = fit_names([scheme.init for scheme in check.schemes], MAX_NAME)
    marked = [f"{n} {MARK}" if s is check.checked else n for n, s in zip(names, check.schemes, strict=True)]
    rows = [[n, *cells(s)] for n, s in zip(marked, check.schemes, strict=True)]
    return make_table(RANKING, rows, expendable=EXPENDABLE)


def cells(scheme: SchemeCheck) -> list[str]:
    """The texts of one row behind the name."""
    _, *others = scheme_values(scheme)
    texts = [with_interval(scheme.spread()), *(short(value) for value in others)]
    texts[5] += " !" if scheme.saturates else ""
    return texts


def scheme_values(scheme: SchemeCheck) -> list[float]:
    """The numbers of one row behind the name."""
    return [
        scheme.spread().value,
        scheme.spread("gamma").value,
        scheme.spread("nu").value,
        scheme.ratio,
        scheme.output_sq_mean,
        scheme.output_variance_mean,
        scheme.forward_growth,
        scheme.backward_growth,
        scheme.input_balance,
    ]


def with_interval(interval: Interval) -> str:
    """A number and its interval.

    >>> with_interval(Interval(1.234, 1.1, 1.52))
    '1.23 (1.10–1.52)'
    """
    if math.isnan(interval.low):
        return short(interval.value)
    return f"{short(interval.value)} ({short(interval.low)}–{short(interval.high)})"


def layers(check: InitCheck) -> TextTable:
    """One row a block of the checked initialisation, relative to the geometric mean of all blocks."""
    return make_table(LAYERS, layer_rows(check))


def layer_rows(check: InitCheck) -> list[list[str]]:
    """The texts of `layers`."""
    names = check.checked.setups.names
    return [[name, *map(short, values)] for name, values in zip(names, layer_values(check), strict=True)]


def layer_values(check: InitCheck) -> list[list[float]]:
    """The numbers of `layers` behind the names; NaN where no factor on the variance is known."""
    checked = check.checked
    relative = []
    for key in ("avg_sq_singular_value", "gamma", "nu"):
        values = checked.means(key)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative.append(values / np.exp(np.log(values).mean()))
    factors = {fix.block: fix.variance for fix in fixes(checked.setups.names, checked.means())}
    return [
        [*(float(values[i]) for values in relative), factors.get(name, math.nan)]
        for i, name in enumerate(checked.setups.names)
    ]


def sweep(widths: WidthSweep) -> TextTable:
    """One line a layer, one column a width."""
    return make_table(("layer", *(f"{width:g}×" for width in widths.widths)), sweep_rows(widths))


def sweep_rows(widths: WidthSweep) -> list[list[str]]:
    """The texts of `sweep`: the layers, then the spread and the second moment of the outputs."""
    names = (*widths.names, "spread", "E[y²]")
    return [[name, *map(short, values)] for name, values in zip(names, sweep_values(widths), strict=True)]


def sweep_values(widths: WidthSweep) -> list[list[float]]:
    """The numbers of `sweep` behind the names."""
    layers = widths.relative().T.tolist()  # (L, W)
    return [*layers, widths.spreads(), [float(value) for value in widths.output_sq]]
