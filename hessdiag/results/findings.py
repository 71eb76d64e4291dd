"""What a rule has to say about a network: the number, the threshold that it passed, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hessdiag.results.records import Record

Severity = Literal["fault", "warning", "note"]
GRAVITY: tuple[Severity, ...] = ("fault", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """One finding on a network.

    Attributes:
        rule: stable id, such as `"HD104"`; `hessdiag explain HD104` says more.
        severity: `"fault"` (it will hardly train as it is), `"warning"` (unlike every healthy network measured) or
            `"note"` (worth knowing; healthy networks do this too).
        blocks: names of parameters, the most suspicious first.
        message: what was measured, in a sentence.
        advice: what to do about it, in a sentence.
        value, threshold: the measured number, and the one that it passed.
    """

    rule: str
    severity: Severity
    blocks: tuple[str, ...]
    message: str
    advice: str
    value: float
    threshold: float

    def __str__(self) -> str:
        return f"{self.rule} {self.severity}: {self.message} {self.advice}"


def is_as_grave(finding: Finding, severity: Severity) -> bool:
    """Whether a finding is as grave as `severity`, or graver."""
    return GRAVITY.index(finding.severity) <= GRAVITY.index(severity)
