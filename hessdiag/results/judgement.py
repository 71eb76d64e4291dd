"""What is said of a whole report, as plain records: its verdict, and the balance of its blocks.

`hessdiag.results.verdict` and `hessdiag.results.balance` say how they are reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hessdiag.results.records import Record

BalanceLevel = Literal["balanced", "uneven", "unbalanced", "undecided"]
VerdictLevel = Literal["healthy", "suspicious", "faulty", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Balance(Record):
    """How equally the weight blocks are curved.

    Attributes:
        level: `"balanced"` (factor below 2), `"uneven"` (2 to 10), `"unbalanced"` (above 10, or a block without any
            curvature), or `"undecided"` where there is nothing to compare, a value is undefined, or lost in noise.
        sentence: the balance in plain words. It holds names from the model: escape it where that matters.
        notes: what the sentence leaves out, a sentence each.
        factor: largest over smallest σ² among the weight blocks, as in `Report.spread`.
        low, high: interval around `factor` that sampling noise leaves open, at 95 %; equal to it where σ² is exact.
    """

    level: BalanceLevel
    sentence: str
    notes: tuple[str, ...]
    factor: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """What a reader should take away.

    Attributes:
        level: `"faulty"` (a rule found a fault), `"suspicious"` (a warning), `"healthy"` (neither; notes do not count)
            or `"undecided"` where the network's signals were not measured.
        sentence: the verdict in plain words. It holds names from the model: escape it where that matters.
        balance: the statement on σ², see `Balance`.
    """

    level: VerdictLevel
    sentence: str
    balance: Balance

    @property
    def factor(self) -> float:
        """That of the balance."""
        return self.balance.factor

    @property
    def low(self) -> float:
        """That of the balance."""
        return self.balance.low

    @property
    def high(self) -> float:
        """That of the balance."""
        return self.balance.high

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the balance."""
        return self.balance.notes
