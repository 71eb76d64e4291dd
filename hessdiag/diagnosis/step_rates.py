"""Learning rates of the first step, from what `hessdiag.curvature.first_step` summed up over examples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hessdiag.curvature.estimators.student import widening
from hessdiag.execution.work import Result
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.numbers import Array


def rates_of(
    sums: Result, optimizers: Sequence[str], blocks: Sequence[str], *, examples: int
) -> dict[str, LearningRate]:
    """The rate of each optimiser: that of a joint step, and those of one block alone.

    Args:
        sums: of `step_sums`, over all examples.
        optimizers: their names, O.
        blocks: names of the L blocks.
        examples: how many there were.
    """
    found = {}
    for o, optimizer in enumerate(optimizers):
        rates, errors = _ratios(sums["step_sums"][:, o], examples)  # (L + 2,): blocks, the rest, all together
        alone = np.nan_to_num(rates[: len(blocks)], nan=0.0)
        slopes = sums["step_sums"][0, o, : len(blocks)]
        together = _ratio(
            float(alone @ slopes), float(alone @ sums["step_map"][o][: len(blocks), : len(blocks)] @ alone)
        )
        found[optimizer] = LearningRate(
            value=float(rates[-1]),
            stderr=float(errors[-1]),
            blocks=dict(zip(blocks, rates.tolist(), strict=False)),
            block_stderr=dict(zip(blocks, errors.tolist(), strict=False)),
            together=together,
            examples=examples,
        )
    return found


def _ratios(sums: Array, examples: int) -> tuple[Array, Array]:
    """Σ s / Σ q of each column of (5, columns) sums, and standard errors from the residuals s − r q of the examples."""
    s, q, s_sq, s_q, q_sq = sums
    rates = np.array([_ratio(slope, curvature) for slope, curvature in zip(s, q, strict=True)])
    if examples < 2:
        return rates, np.full_like(rates, math.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = np.maximum(s_sq - 2 * rates * s_q + rates**2 * q_sq, 0)
        errors = np.sqrt(residuals * examples / (examples - 1)) / q
    return rates, errors * widening(examples - 1)


def _ratio(slope: float, curvature: float) -> float:
    """Slope over curvature, where the quadratic model has a minimum along the step."""
    positive = slope > 0 and curvature > 0 and math.isfinite(slope) and math.isfinite(curvature)
    return slope / curvature if positive else math.nan
