"""Learning rates of an optimiser's first step, as plain records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from hessdiag.results.numbers import spread
from hessdiag.results.records import NumbersRecord

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningRate(NumbersRecord):
    """Where the quadratic model of the loss is lowest along the first step u of an optimiser: g·u / (uᵀGu).

    g is the gradient of the batch and G its Gauss-Newton matrix. SGD moves along u = g, Adam along u = sign(g). A rate
    is NaN where the model has no minimum along u: no gradient, or a curvature that is not positive.

    Attributes:
        value: for a step of all trainable parameters together.
        stderr: its standard error as an estimate for the data that the examples are of, with u held fixed; it contains
            the noise of sampled directions. 1.96 of it reach to either end of a 95 % interval.
        blocks: for a step of one block alone, the others frozen, by the block's name.
        block_stderr: likewise.
        together: the factor on the rates of `blocks` with which all blocks together step to the minimum: what the
            curvature between blocks leaves of them, at most 1 where it adds up.
        examples: of the batch, or of a virtual step's.
        steps: the rate before each virtual step on a copy, of which `value` is the summary; empty where `value` is of
            one point, the weights as they are.
    """

    derived: ClassVar[tuple[str, ...]] = ("spread",)

    value: float
    stderr: float
    blocks: Mapping[str, float] = field(default_factory=dict)
    block_stderr: Mapping[str, float] = field(default_factory=dict)
    together: float = math.nan
    examples: int = 0
    steps: tuple[float, ...] = ()

    @property
    def spread(self) -> float:
        """Largest over smallest rate of a block: how far one learning rate is from suiting all blocks."""
        known = [rate for rate in self.blocks.values() if math.isfinite(rate)]
        return spread(known) if known else math.nan
