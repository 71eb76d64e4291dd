"""Learning rates as text: one row an optimiser, and what the rates are of."""

from __future__ import annotations

import math

from hessdiag.results.learning_rate_report import NAMES, LearningRates
from hessdiag.results.numbers import Z95, short, short_error, with_error
from hessdiag.results.text_table import Part, make_table, plain_text

EXPENDABLE = ("along the steps",)
TITLES = ("optimizer", "learning rate", "± by the steps", "along the steps")


def render(rates: LearningRates) -> str:
    """The rates, and how far they may be off."""
    steps = max((len(rate.steps) for rate in rates.values()), default=0)
    parts: list[Part] = [
        f"{rates.model}: learning rates before training, weights {rates.init}, loss {rates.loss}",
        f"{steps} virtual steps on {_examples(rates)}" + (f" ({rates.data})" if rates.data else ""),
        "",
        make_table(TITLES, [_row(rates, optimizer) for optimizer in rates], expendable=EXPENDABLE),
        "",
        "Constant rates for the first hundreds of steps: the best one is often a factor 1.5 off, and now and then 4.",
        "± by the steps: 1.96 standard errors, as the steps scatter. Along the steps: lowest to highest rate of one.",
    ]
    return plain_text([*parts, *warnings(rates)])


def render_brief(rates: LearningRates) -> str:
    """The rates alone, and what a reader must know before using them."""
    lines = [f"{NAMES[name]}: {with_error(rate.value, Z95 * rate.stderr)}" for name, rate in rates.items()]
    return plain_text([*lines, *warnings(rates)])


def _examples(rates: LearningRates) -> str:
    if rates.fresh:
        return f"batches of {rates.batch_size} examples, measured on fresh ones"
    return f"the same {rates.batch_size} examples: eight batches or more are better"


def _row(rates: LearningRates, optimizer: str) -> list[str]:
    rate = rates[optimizer]
    scatter = short_error(Z95 * rate.stderr, rate.value)
    falling = [each for each in rate.steps if each > 0]
    seen = f"{short(min(falling))}–{short(max(falling))}" if falling else "–"
    return [NAMES[optimizer], short(rate.value), scatter, seen]


def warnings(rates: LearningRates) -> list[str]:
    """What a reader must know before using them."""
    lines = []
    if rates.random_data:
        lines.append(f"! These rates are for random data ({rates.data}, random targets): measure them on yours.")
    if dead := [NAMES[name] for name, rate in rates.items() if math.isnan(rate.value)]:
        lines.append(
            f"! No rate for {' and '.join(dead)}: along these steps the loss of fresh examples does not fall, or has no"
            " curvature."
        )
    return lines
