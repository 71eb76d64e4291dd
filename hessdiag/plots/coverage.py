"""How often the intervals of a report hold the truth: one dot a block, with a binomial interval, beside 92 to 98 %."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hessdiag.files import write_text


@dataclass(frozen=True, kw_only=True)
class CoverageRow:
    """How often 95 % intervals of one block (i, j) held its true value.

    Attributes:
        method, network: what was measured, of what.
        row, column: names of the blocks i and j.
        covered, seeds: intervals that held it, of how many.
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


SCHEMA = "hessdiag.coverage/1"


def coverage_to_json(rows: Sequence[CoverageRow], path: str | os.PathLike[str]) -> None:
    lines = ",\n  ".join(json.dumps(asdict(row)) for row in rows)
    write_text(path, f'{{\n "schema": "{SCHEMA}",\n "rows": [\n  {lines}\n ]\n}}\n')


def coverage_from_json(path: str | os.PathLike[str]) -> list[CoverageRow]:
    return [CoverageRow(**row) for row in json.loads(Path(path).read_text())["rows"]]


def draw_coverage(rows): ...
