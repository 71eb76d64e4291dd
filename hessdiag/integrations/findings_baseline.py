"""What was known of models at some time: a file with the reports of checks, to tell old findings from new ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text
from hessdiag.results.findings import Finding, is_as_grave
from hessdiag.results.records import loads
from hessdiag.results.report import Heatmap, Report

SCHEMA = "hessdiag.baseline/1"
NO_MAP = Heatmap(names=(), numel=(), frobenius_sq=np.zeros((0, 0)), stderr=np.zeros((0, 0)))
NO_MAP_RECORD = NO_MAP.to_dict()
LEFT_OUT = ("schema", "signals", "heatmap", "signals_missing", *Report.derived)  # of no use to a comparison, or derived


def to_line(report: Report) -> str:
    """Write the part of a report that a later one is compared with, as one line of JSON."""
    record = replace(report, heatmap=NO_MAP, signals=None).to_dict()
    return json.dumps({key: value for key, value in record.items() if key not in LEFT_OUT}, ensure_ascii=False)


def read_baseline(path: str | os.PathLike[str]) -> dict[str, Report]:
    """Read the reports of a baseline file, by the names of their checks.

    Raises:
        HessdiagError: there is no such file, or it is none that was written here.
    """
    try:
        return {name: Report.from_record({"heatmap": NO_MAP_RECORD} | record) for name, record in _checks(path).items()}
    except HessdiagError as error:
        raise HessdiagError(f"baseline {str(path)!r}: {error}") from None


def update_baseline(path: str | os.PathLike[str], lines: Mapping[str, str]) -> None:
    """Write checks to a baseline file; those of the file that are not among them stay.

    Args:
        path: a file, which may not exist yet.
        lines: what `to_line` returned, by the names of the checks. One line each, so that version control can merge.
    """
    before = _checks(path) if os.path.exists(path) else {}
    kept = {name: json.dumps(record, ensure_ascii=False) for name, record in before.items()}
    entries = [f"  {json.dumps(name)}: {line}" for name, line in sorted((kept | dict(lines)).items())]
    text = f'{{\n "schema": "{SCHEMA}",\n "checks": {{\n' + ",\n".join(entries) + "\n }\n}\n"
    write_text(path, text)


def _checks(path: str | os.PathLike[str]) -> Mapping[str, dict[str, object]]:
    checks = loads(path, SCHEMA).get("checks")
    if not isinstance(checks, dict) or not all(isinstance(record, dict) for record in checks.values()):
        raise HessdiagError(f"the {SCHEMA} record is damaged (no checks): delete it, and write it anew")
    return checks


def is_known(finding: Finding, before: Report) -> bool:
    """Whether a report has a finding already: the same rule, as grave or graver, at all of its blocks.

    Numbers and the order of names may differ; a block that the rule did not name before makes it a new finding.
    """
    same = [old for old in before.findings if old.rule == finding.rule and is_as_grave(old, finding.severity)]
    return bool(same) and set(finding.blocks) <= {name for old in same for name in old.blocks}
