"""A report as one flat dict, such as loggers of training take."""

from __future__ import annotations

from collections import Counter

from hessdiag.results.findings import GRAVITY
from hessdiag.results.report import Report

Record = dict[str, float | str]


def flat(report: Report) -> Record:
    """Name every number of a report by quantity and block, `sigma2/fc1.weight`, the verdict and its findings.

    The same network gives the same keys in the same order, whatever was found.
    """
    counts = Counter(finding.severity for finding in report.findings)
    verdict = report.verdict
    record: Record = {"verdict": verdict.level, "balance": verdict.balance.level}
    record["findings"] = " ".join(dict.fromkeys(finding.rule for finding in report.findings))
    record |= {f"findings/{severity}": float(counts[severity]) for severity in GRAVITY}
    if report.signals is not None:
        record["loss"] = report.signals.initial_loss
    record |= {f"spread/{key}": report.spread[attribute] for key, attribute in _SPREADS.items()}
    for key, attribute in _QUANTITIES.items():
        record |= {f"{key}/{block.name}": float(getattr(block, attribute)) for block in report.blocks}
    return record


_QUANTITIES = {"sigma2": "avg_sq_singular_value", "sigma2_stderr": "stderr", "gamma": "gamma", "nu": "nu"}
_SPREADS = {"sigma2": "avg_sq_singular_value", "gamma": "gamma", "nu": "nu"}
