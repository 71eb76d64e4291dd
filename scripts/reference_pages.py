"""Write the pages of the reference that follow from the code: docs/rules.md and the tables of docs/file-formats.md.

`python scripts/reference_pages.py` writes them anew; tests/test_reference_pages.py fails where they are not the code's.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from textwrap import fill

from hessdiag.diagnosis.prescribe import Prescription, WeightPrescription
from hessdiag.results.comparison import BlockChange, Comparison, Ratio
from hessdiag.results.findings import Balance, Finding, Verdict
from hessdiag.results.init_check import InitCheck, Interval, SchemeCheck
from hessdiag.results.learning_rates import LearningRate, LearningRates
from hessdiag.results.prediction import BlockPrediction, Prediction
from hessdiag.results.records import Record
from hessdiag.results.report import BlockReport, Heatmap, Report
from hessdiag.results.setups import Setups
from hessdiag.results.sharpness import BlockSharpness, Sharpness
from hessdiag.results.signals import LayerSignals, ParameterSignals, Signals

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))

from attribute_docs import attributes, types_of  # noqa: E402  # beside the pages

WIDTH = 100
RECORDS: Mapping[str, tuple[type[Record], ...]] = {  # the schemas for users: what a file holds, and what is inside it
    "hessdiag.report/2": (
        Report,
        Verdict,
        Balance,
        Finding,
        BlockReport,
        Heatmap,
        LearningRate,
        Signals,
        LayerSignals,
        ParameterSignals,
    ),
    "hessdiag.comparison/2": (Comparison, BlockChange, Ratio),
    "hessdiag.prediction/2": (Prediction, BlockPrediction),
    "hessdiag.prescription/2": (Prescription, WeightPrescription),
    "hessdiag.init-check/3": (InitCheck, SchemeCheck, Interval),
    "hessdiag.learning-rates/1": (LearningRates,),
    "hessdiag.sharpness/1": (Sharpness, BlockSharpness),
    "hessdiag.setups/1": (Setups,),
}
KNOWN = {record.__name__ for records in RECORDS.values() for record in records}
PLAIN = {"float": "number", "int": "whole number", "bool": "true or false", "Array": "nested lists of numbers"}
FORMATS_HEAD = """# File formats

<!-- written by scripts/reference_pages.py from the dataclasses in hessdiag/ -->

Every file is one JSON object whose key `schema` names the format and its version; a change that a
reader could trip over raises the version. Keys are the attribute names. Undefined numbers are
`null`, and numbers too large for a float are `"inf"` or `"-inf"`. What wrote a file also reads it
back exactly, as in `Report.from_json("report.json")`, and refuses one of another schema.

`MODEL`, the options that write each file and the figures' own formats are in the
[reference](reference.md#files).
"""


def rules_page() -> str:
    """The page on the rules, which `hessdiag explain` reads too."""
    return (DOCS.parent / "hessdiag" / "diagnosis" / "rules.md").read_text(encoding="utf-8")


def wrapped(text: str) -> str:
    """Lines of prose, none of which begins with what Markdown takes for a list."""
    lines = fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return re.sub(r"\n(\d+)\. ", r"\n\1\\. ", re.sub(r"\n([-+*]) ", r"\n\\\1 ", lines))


def escaped(text: str) -> str:
    """Escape what Markdown would take for markup: brackets before parentheses, powers, products."""
    return re.sub(r"(?<!`)([*<>])(?!`)", r"\\\1", text)


def formats_page() -> str:
    """Every schema for users, with a table for each record in it."""
    parts = [FORMATS_HEAD]
    for schema, records in RECORDS.items():
        assert records[0].schema == schema, schema
        parts.append(f"## {schema}\n")
        for number, record in enumerate(records):
            parts.append(table(record, head="" if number == 0 else f"### `{record.__name__}`\n\n"))
    return "\n".join(parts)


def table(record: type[Record], *, head: str) -> str:
    """The keys of a record, their types and what they mean."""
    lines = [f"{head}{first_line(record)}\n", "| key | value | meaning |", "|---|---|---|"]
    for keys, kind, meaning in rows(record):
        names = ", ".join(f"`{key}`" for key in keys)
        lines.append(f"| {names} | {kind} | {cell(meaning)} |")
    return "\n".join(lines) + "\n"


def first_line(record: type[Record]) -> str:
    """What the class says of itself in its first sentence."""
    return wrapped(escaped((inspect.getdoc(record) or "").partition("\n")[0]))


def rows(record: type[Record]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Keys that are explained together, their type and their meaning, in the order of the documentation."""
    wanted = keys_of(record)
    types = types_of(record)
    told: set[str] = set()
    for names, meaning in attributes((inspect.getdoc(record) or "").splitlines()):
        keys = tuple(name for name in names if name in wanted)
        if keys:
            told.update(keys)
            yield keys, ", ".join(dict.fromkeys(json_type(types[key]) for key in keys if key in types)), meaning
    for key in wanted:
        if key not in told:
            yield (
                (key,),
                json_type(types.get(key) or property_type(record, key)),
                property_text(record, key),
            )


def json_type(hint: str) -> str:
    """Say what an annotation is in JSON.

    >>> json_type("tuple[Finding, ...]"), json_type("Signals | None"), json_type("Mapping[str, float]")
    ('list of `Finding`', '`Signals` or null', 'number by name')
    """
    if hint.endswith(" | None"):
        return f"{json_type(hint.removesuffix(' | None'))} or null"
    listed = re.fullmatch(r"tuple\[(.+), \.\.\.\]", hint)
    if listed:
        return f"list of {json_type(listed[1])}"
    if hint.startswith("tuple["):
        return f"[{', '.join(json_type(part) for part in hint[6:-1].split(', '))}]"
    named = re.fullmatch(r"(?:Mapping|dict)\[str, (.+)\]", hint)
    if named:
        return f"{json_type(named[1])} by name"
    if hint in KNOWN:
        return f"`{hint}`"
    return PLAIN.get(hint, "text")  # the rest are names of literals


def keys_of(record: type[Record]) -> list[str]:
    """What `Record.to_dict` writes, but the schema."""
    return [*record.derived, *(f.name for f in fields(record))]


def property_type(record: type[Record], name: str) -> str:
    """What a property is annotated to return; a list where it is no property."""
    found = getattr(record, name, None)
    function = found.fget if isinstance(found, property) else getattr(found, "func", None)
    return str(inspect.get_annotations(function)["return"]) if function else "tuple[str, ...]"


def property_text(record: type[Record], name: str) -> str:
    """First sentence of a property's docstring."""
    found = getattr(record, name, None)
    text = (inspect.getdoc(found) or "") if isinstance(found, (property, cached_property)) else ""
    return " ".join(text.partition("\n\n")[0].split())


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return escaped(text).replace("|", "\\|")


PAGES = {"rules.md": rules_page, "file-formats.md": formats_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
