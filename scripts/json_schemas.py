"""JSON Schemas of what hessdiag writes, from the annotations and docstrings of its records.

`reference_pages.py` writes them to docs/schemas/.
"""

import inspect
import json
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from hessdiag.diagnosis.describe import Description
from hessdiag.diagnosis.prescribe import Prescription
from hessdiag.results.comparison import Comparison
from hessdiag.results.learning_rates import LearningRates
from hessdiag.results.prediction import PredictedVsMeasured, Prediction
from hessdiag.results.records import Record
from hessdiag.results.report import Report
from hessdiag.results.setups import InitCheck, Setups, Study
from hessdiag.results.sharpness import Sharpness

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from attribute_docs import attributes

RECORDS = (
    Report, Comparison, Prediction, PredictedVsMeasured, Prescription, InitCheck, LearningRates, Sharpness, Description,
    Setups, Study,
)  # fmt: skip
PLAIN = {str: "string", int: "integer", bool: "boolean"}
SHARED: dict[str, Any] = {
    "number": {
        "description": "null where it is undefined; inf and -inf where it is too large for a float",
        "anyOf": [{"type": "number"}, {"enum": [None, "inf", "-inf"]}],
    },
    "array": {
        "description": "nested lists, one level for each dimension",
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/number"}, {"$ref": "#/$defs/array"}]},
    },
}


def pages() -> dict[str, Any]:
    """By path in the repository, what writes a schema."""
    return {path(record): lambda record=record: schema(record) for record in RECORDS}


def path(record: type[Record]) -> str:
    return f"docs/schemas/{record.schema.removeprefix('hessdiag.').replace('/', '-')}.json"


def schema(record: type[Record]) -> str:
    """The JSON Schema of a record and of all records in it."""
    found: dict[str, Any] = dict(SHARED)
    of_type(record, found)
    about = found.pop(record.__name__)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": record.schema, **about, "$defs": found}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def of_type(hint: Any, found: dict[str, Any]) -> dict[str, Any]:
    """What a value of that type is in JSON; records enter `found`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint is float or origin is np.ndarray:
        return {"$ref": f"#/$defs/{'number' if hint is float else 'array'}"}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": of_type(inner[1], found)}
    if origin is tuple and inner[1:] == (...,):
        return {"type": "array", "items": of_type(inner[0], found)}
    if origin is tuple:
        count = {"minItems": len(inner), "maxItems": len(inner)}
        return {"type": "array", "prefixItems": [of_type(each, found) for each in inner], **count}
    if origin in (typing.Union, types.UnionType):
        given = (each for each in inner if each is not types.NoneType)
        return {"anyOf": [*(of_type(each, found) for each in given), {"type": "null"}]}
    if hint.__name__ not in found:
        found[hint.__name__] = {}
        found[hint.__name__] |= of_record(hint, found)
    return {"$ref": f"#/$defs/{hint.__name__}"}


def of_record(record: Any, found: dict[str, Any]) -> dict[str, Any]:
    """An object with all fields and derived properties, and no others."""
    hints, texts = typing.get_type_hints(record), described(record)
    of = {field.name: hints[field.name] for field in fields(record)}
    for name in record.derived:
        getter = getattr(record, name).fget
        of[name], texts[name] = typing.get_type_hints(getter)["return"], summary(getter)
    properties: dict[str, Any] = {"schema": {"const": record.schema}} if record.schema else {}
    properties |= {name: {"description": texts[name]} | of_type(hint, found) for name, hint in of.items()}
    strict = {"properties": properties, "required": list(properties), "additionalProperties": False}
    return {"description": summary(record), "type": "object", **strict}


def described(record: Any) -> dict[str, str]:
    """The texts of the attributes, those of base classes first: they say most."""
    texts: dict[str, str] = {}
    for base in reversed(inspect.getmro(record)):
        for names, text in attributes(inspect.cleandoc(base.__doc__ or "").splitlines()):
            texts = dict.fromkeys(names, f"{', '.join(names)}: {text}" if names[1:] else text) | texts
    return texts


def summary(of: Any) -> str:
    return " ".join(inspect.getdoc(of).split("\n\n")[0].split())
