"""The learning rates of a report in a sentence: does one rate suit all blocks, for the optimiser that was asked about?

σ² speaks for SGD alone, which moves a block by its gradient. Adam moves every weight by about the same, so that the
curvature along the sign of the gradient counts. Both are in the rates at which a step of one block is best.
"""

from __future__ import annotations

import math

from hessdiag.results.findings import is_as_grave
from hessdiag.results.judgement import Balance
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.numbers import short, with_error
from hessdiag.results.report import Report

UNTRAINED = "random-quadratic"  # the paper's loss: nobody trains with it
TITLES = {"sgd": "SGD", "adam": "Adam"}


def told_rates(report: Report) -> LearningRate | None:
    """The rates of the report's optimiser; None where there are none, or the loss is not one that is trained with."""
    return report.learning_rates.get(report.optimizer) if report.loss != UNTRAINED else None


def balance_sentence(report: Report, balance: Balance) -> str:
    """The balance of σ², which is SGD's: said so where another optimiser was asked about.

    That blocks are unbalanced is said as what it is, a fact about learning rates that networks which train well share.
    """
    if told_rates(report) is not None and report.optimizer != "sgd":
        return f"For SGD: {balance.sentence}"
    if balance.level != "unbalanced":
        return balance.sentence
    alarming = not math.isfinite(balance.factor) or any(is_as_grave(f, "warning") for f in report.findings)
    usual = "" if alarming else " So are many networks that train well."
    return f"Learning rates: unbalanced, {balance.sentence.removeprefix('Unbalanced: ')}{usual}"


def rate_sentence(report: Report) -> str:
    """What the rates say of one learning rate for all weight blocks; empty where there are none."""
    rate = told_rates(report)
    if rate is None:
        return ""
    title = TITLES.get(report.optimizer, report.optimizer)
    if not math.isfinite(rate.value):
        return f"{title}: the loss has no minimum along the first step, so that no learning rate can be told."
    first = f"{title}: the first step is best at a learning rate of {with_error(rate.value, rate.stderr)}"
    weights = {block.name for block in report.weights}
    own = {name: value for name, value in rate.blocks.items() if name in weights and math.isfinite(value)}
    if len(own) < 2:
        return f"{first}."
    low, high = min(own, key=own.__getitem__), max(own, key=own.__getitem__)
    apart = own[high] / own[low]
    ends = f"from {short(own[low])} ({low}) to {short(own[high])} ({high})"
    return f"{first}; for one weight alone {ends}, {short(apart)}×."
