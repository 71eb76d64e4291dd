"""Findings as SARIF 2.1.0 (OASIS), the JSON that code scanning and editors read.

A finding is a result. Its logical locations are the parameters that it names; its physical one is where the network is
defined, since viewers of code show nothing without a file. All rules of the catalogue are listed with their texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from typing import Any
from urllib.parse import quote

from hessdiag.diagnosis.rules import CATALOGUE, Entry, explain
from hessdiag.integrations.definition import Definition
from hessdiag.results.findings import Finding, Severity
from hessdiag.results.report import Report
from hessdiag.suggestions import few

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: dict[Severity, str] = {"fault": "error", "warning": "warning", "note": "note"}
RULES = tuple(CATALOGUE)


def render(report: Report, changes: Sequence[Finding] = (), *, definition: Definition | None = None) -> str:
    """Write the findings of a report as SARIF.

    Args:
        report: of `hessdiag.diagnose`.
        changes: findings of a comparison with an earlier report.
        definition: where the network is defined, if that is known.
    """
    found = [_result(finding, report.model, definition) for finding in (*report.findings, *changes)]
    run = {
        "tool": {
            "driver": {
                "name": "hessdiag",
                "version": metadata.version("hessdiag"),
                "rules": [_rule(name, CATALOGUE[name]) for name in RULES],
            }
        },
        "automationDetails": {"id": f"hessdiag/{report.model}/"},
        "invocations": [_invocation(report)],
        "columnKind": "unicodeCodePoints",
        "results": found,
        "properties": _settings(report),
    }
    record = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rule(name: str, entry: Entry) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": f"{entry.title}."},
        "fullDescription": {"text": entry.measures},
        "defaultConfiguration": {"level": "warning"},  # every result has its own
        "help": {"text": explain(name)},
    }


def _result(finding: Finding, model: str, definition: Definition | None) -> dict[str, Any]:
    where = f"{few(finding.blocks)}: " if finding.blocks else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": RULES.index(finding.rule),
        "kind": "fail",
        "level": LEVELS[finding.severity],
        "message": {"text": f"{where}{finding.message} {finding.advice}"},
        "locations": [_location(name, definition) for name in finding.blocks] or [_location("", definition, model)],
        "partialFingerprints": {"hessdiagFinding/v1": _fingerprint(finding, model)},
        "properties": finding.to_dict(),
    }


def _location(name: str, definition: Definition | None, model: str = "") -> dict[str, Any]:
    """A parameter, or the whole model where no parameter is named."""
    whole = {"name": model, "fullyQualifiedName": model, "kind": "module"}
    part = {"name": name.rpartition(".")[2], "fullyQualifiedName": name, "kind": "member"}
    logical = {"logicalLocations": [part if name else whole]}
    if definition is None:
        return logical
    place = {
        "artifactLocation": {"uri": quote(definition.path), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": definition.line},
    }
    return {"physicalLocation": place} | logical


def _fingerprint(finding: Finding, model: str) -> str:
    """The same for a finding whose numbers or order of names have changed."""
    identity = "\n".join([model, finding.rule, *sorted(finding.blocks)])
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32]


def _invocation(report: Report) -> dict[str, Any]:
    """Whether the rules could be applied: not where nothing is known of the signals."""
    if report.signals is not None:
        return {"executionSuccessful": True}
    notification = {"level": "error", "message": {"text": report.verdict.sentence}}
    return {"executionSuccessful": False, "toolExecutionNotifications": [notification]}


def _settings(report: Report) -> dict[str, Any]:
    keys = ("model", "init", "data", "loss", "matrix", "per", "method", "seed", "batch_size", "device", "dtype")
    verdict = report.verdict
    settings = {key: getattr(report, key) for key in keys} | {"versions": dict(report.versions)}
    return settings | {"verdict": verdict.level, "balance": verdict.balance.level}
