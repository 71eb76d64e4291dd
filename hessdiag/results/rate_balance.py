"""The balance of σ² in a sentence: as a fact about learning rates where nothing else is wrong."""

from __future__ import annotations

import math

from hessdiag.results.findings import is_as_grave
from hessdiag.results.judgement import Balance
from hessdiag.results.report import Report

UNTRAINED = "random-quadratic"  # the paper's loss: nobody trains with it


def balance_sentence(report: Report, balance: Balance) -> str:
    """The balance of σ². That blocks are unbalanced is a fact about learning rates that well-trained networks share."""
    if balance.level != "unbalanced":
        return balance.sentence
    alarming = not math.isfinite(balance.factor) or any(is_as_grave(f, "warning") for f in report.findings)
    usual = "" if alarming else " So are many networks that train well."
    return f"Learning rates: unbalanced, {balance.sentence.removeprefix('Unbalanced: ')}{usual}"
