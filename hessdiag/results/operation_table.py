"""What was measured of operations: whether each keeps ς, the activation scaling factor, a row a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hessdiag.results.records import Record


@dataclass(frozen=True, kw_only=True)
class OperationRow(Record):
    """What was measured for one setting of one operation.

    Attributes:
        row, detail, reads, paper: of the setting.
        ratio, low, high: geometric mean over draws of ς behind over ς before, with its 95 % interval.
        predicted: the same by the calculus with `kernel` moments; NaN where it has no rule.
        verdict: ✓ where ς changes by less than 5 % or the interval holds 1, else ✗.
        draws: random networks.
    """

    row: str
    detail: str
    reads: str
    paper: str
    ratio: float
    low: float
    high: float
    predicted: float
    verdict: str
    draws: int


@dataclass(frozen=True)
class OperationTable(Record):
    """The rows of all settings, in the order of the paper's table."""

    schema: ClassVar[str] = "hessdiag.layers/1"

    blocks: tuple[OperationRow, ...]
