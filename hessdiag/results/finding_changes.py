"""What a change did to the findings of a network: which are gone, and which are new.

A finding is told by its rule and its places; that its numbers differ is no change. What a network whose signals were
not measured does not show may be there all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.report import Report


def gone(before: Report, after: Report) -> tuple[Finding, ...]:
    """Findings before, each with the blocks at which its rule has nothing to say any more."""
    return () if after.signals is None else _missing(before.findings, after.findings)


def new(before: Report, after: Report) -> tuple[Finding, ...]:
    """Findings after, each with the blocks at which its rule had nothing to say before."""
    return () if before.signals is None else _missing(after.findings, before.findings)


def repaired(gone: Sequence[Finding], new: Sequence[Finding] = ()) -> frozenset[str]:
    """Names of the parameters that findings which are gone were about, unless one as grave is new there."""
    was, has = _gravest(gone), _gravest(new)
    return frozenset(name for name, rank in was.items() if rank < has.get(name, len(GRAVITY)))


def _gravest(findings: Sequence[Finding]) -> dict[str, int]:
    """The place in `GRAVITY` of the gravest finding on each parameter; 0 is the gravest."""
    ranks: dict[str, int] = {}
    for finding in findings:
        rank = GRAVITY.index(finding.severity)
        for name in finding.blocks:
            ranks[name] = min(rank, ranks.get(name, rank))
    return ranks


def _missing(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of `findings` that `others` do not have, as far as they do not."""
    rules = {finding.rule for finding in others}
    places = {(finding.rule, name) for finding in others for name in finding.blocks}
    found = []
    for finding in findings:
        blocks = tuple(name for name in finding.blocks if (finding.rule, name) not in places)
        if blocks or (not finding.blocks and finding.rule not in rules):
            found.append(replace(finding, blocks=blocks))
    return tuple(found)
