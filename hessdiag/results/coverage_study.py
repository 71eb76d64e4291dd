"""How often the intervals of a report hold the truth, a row a block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hessdiag.results.numbers import Z95
from hessdiag.results.records import Record


@dataclass(frozen=True, kw_only=True)
class CoverageRow(Record):
    """How often 95 % intervals of one block (i, j) held its true value.

    Attributes:
        method, network: what was measured, of what.
        row, column: names of the blocks i and j.
        covered, seeds: intervals that held it, of how many seeds in which there was one.
        missed: share of the seeds whose standard error is above 5 %.
        bias, bias_stderr: mean of (estimate − truth) / truth over the seeds, and its standard error.
        stderr: median of the reported standard errors, over the truth.
        spread: standard deviation of the estimates over the seeds, over the truth.
        products: mean number of products spent.
        undecided: seeds in which no interval was given, which do not count in `seeds`.
    """

    method: str
    network: str
    row: str
    column: str
    covered: int
    seeds: int
    missed: float
    bias: float
    bias_stderr: float
    stderr: float
    spread: float
    products: float
    undecided: int

    @property
    def share(self) -> float:
        """Covered seeds of all."""
        return self.covered / self.seeds

    @property
    def exact(self) -> bool:
        """Whether what the seeds differ by is rounding, so that there is no interval to judge."""
        return self.spread < 1e-9 or self.stderr == 0

    def interval(self) -> tuple[float, float]:
        """Compute Wilson's 95 % interval of the share."""
        n, p, z = self.seeds, self.share, Z95
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


@dataclass(frozen=True)
class CoverageStudy(Record):
    """The rows of all methods and networks."""

    schema: ClassVar[str] = "hessdiag.coverage/1"

    rows: tuple[CoverageRow, ...]
