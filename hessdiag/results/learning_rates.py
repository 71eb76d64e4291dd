"""The learning rate of an optimiser, as a plain record."""

from __future__ import annotations

from dataclasses import dataclass

from hessdiag.results.records import NumbersRecord


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningRate(NumbersRecord):
    """Where quadratic models of the loss are lowest along the directions u of an optimiser: Σ g·u / Σ uᵀGu.

    g is the gradient of a batch and G its Gauss-Newton matrix. SGD moves along u = g. A rate is NaN where the models
    have no minimum along u: the loss does not fall, or has no curvature.

    Attributes:
        value: for steps of all trainable parameters together.
        stderr: its standard error, from how the steps scatter. 1.96 of it reach to either end of a 95 % interval.
        examples: of the batch of a virtual step.
        steps: the rate before each virtual step on a copy, of which `value` is the summary.
    """

    value: float
    stderr: float
    examples: int = 0
    steps: tuple[float, ...] = ()
