"""Learning rates that were predicted before training, beside the best ones of sweeps: a row a network and optimiser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from hessdiag.results.rank_correlation import rank_correlation
from hessdiag.results.records import Record

NEAR = 4.0  # factor


@dataclass(frozen=True, kw_only=True)
class RateRow(Record):
    """One network trained with one optimiser.

    Attributes:
        network, family, optimizer: which.
        fitting: whether the factors of the estimates were fitted on it.
        best: rate with the lowest loss, the vertex of a parabola through the lowest three in log2 of the rate.
        low, high: rates from here to there lose at most a twentieth of what the best one gains.
        initial, loss: before training, and at the best rate.
        seeds: of which losses were averaged.
        steps: estimates along virtual steps by the data they had: `"fresh"` batches, or so many examples.
        first: of the first step alone, by examples.
        range: what rules of learning-rate finders suggest; NaN where they suggest nothing.
        gradients: how many a finder's run took.
    """

    network: str
    family: str
    optimizer: str
    fitting: bool
    best: float
    low: float
    high: float
    initial: float
    loss: float
    seeds: int
    steps: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    range: Mapping[str, float] = field(default_factory=dict)
    gradients: Mapping[str, float] = field(default_factory=dict)

    def error(self, rate: float) -> float:
        """How many times too large a rate is, as log2; inf where there is none."""
        return math.log2(rate / self.best) if rate > 0 else math.inf

    def outside(self, rate: float) -> float:
        """How far a rate is from the good ones, as log2: 0 among them."""
        return max(0.0, math.log2(rate / self.high), math.log2(self.low / rate)) if rate > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class BlockRow(Record):
    """The blocks of one network: each one's own best rate with all others frozen, and the one predicted.

    Attributes:
        network, optimizer: which.
        best, predicted: by block.
    """

    network: str
    optimizer: str
    best: Mapping[str, float]
    predicted: Mapping[str, float]

    @property
    def spearman(self) -> float:
        """Rank correlation of the two."""
        return rank_correlation(list(self.best.values()), [self.predicted[name] for name in self.best])


@dataclass(frozen=True, kw_only=True)
class RateStudy(Record):
    """All rows.

    Attributes:
        factors: by optimiser, with which estimates along virtual steps are multiplied.
        rows: of networks.
        blocks: of their blocks.
        costs: of twelve steps in gradients of the examples of a step, by network.
    """

    schema: ClassVar[str] = "hessdiag.learning-rate-study/1"

    factors: Mapping[str, float]
    rows: tuple[RateRow, ...]
    block_rows: tuple[BlockRow, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """How good a kind of estimate is over networks.

    Attributes:
        median: of |log2(estimate / best)|.
        near: share within a factor 4 of the best.
        window: share within a factor 4 of the good rates.
        offset: median of log2(estimate / best): above 0 where it is too large.
        count: networks.
    """

    median: float
    near: float
    window: float
    offset: float
    count: int


def score(rows: Sequence[RateRow], kind: str, source: str) -> Score:
    """Score one kind of estimate, such as `"steps", "fresh"`."""
    rates = [getattr(row, kind).get(source, math.nan) for row in rows]
    errors = [row.error(rate) for row, rate in zip(rows, rates, strict=True)]
    outside = [row.outside(rate) for row, rate in zip(rows, rates, strict=True)]
    near = math.log2(NEAR)
    return Score(
        median=median(map(abs, errors)),
        near=sum(abs(error) <= near for error in errors) / len(rows),
        window=sum(each <= near for each in outside) / len(rows),
        offset=median(errors),
        count=len(rows),
    )
