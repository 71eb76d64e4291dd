"""Results as JSON and back, by the fields of their dataclasses.

Undefined numbers are NaN in Python and `null` in JSON; an overflow is `"inf"` or `"-inf"`.
"""

from __future__ import annotations

import json
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text
from hessdiag.results.numbers import Array

R = TypeVar("R", bound="Record")
WRITTEN = {"written": True}  # metadata of a field that does not count in comparisons, and is in files all the same


class Record:
    """A dataclass that travels as JSON: a mixin.

    Attributes:
        schema: name of the format, the first key of a file; empty for a part of another record.
        derived: properties that are written beside the fields for readers of the JSON, and dropped when it is read.
    """

    schema: ClassVar[str] = ""
    derived: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def written_fields(cls) -> list[str]:
        """Names of the fields that files hold."""
        return [f.name for f in fields(cls) if f.compare or f.metadata.get("written")]  # type: ignore[arg-type]

    def to_record(self) -> dict[str, Any]:
        """Return the fields that files hold, and what is derived from them, by name."""
        named = {name: getattr(self, name) for name in self.written_fields()}
        head = {"schema": self.schema} if self.schema else {}
        return head | named | {name: getattr(self, name) for name in self.derived}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return JSON text, which `from_json` reads back exactly; also write it to `path` when one is given."""
        text = dumps(self.to_record())
        if path is not None:
            write_text(path, text)
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes as plain dicts, lists and numbers; undefined numbers are None."""
        return dict(json.loads(dumps(self.to_record())))

    @classmethod
    def from_json(cls: type[R], source: str | os.PathLike[str]) -> R:
        """Read back what `to_json` wrote, from text or from a file.

        Raises:
            HessdiagError: the text is not JSON, of another schema, or damaged.
        """
        return cls.from_record(loads(source, cls.schema))

    @classmethod
    def from_record(cls: type[R], record: Mapping[str, Any]) -> R:
        """Build the dataclass from parsed JSON; fields with defaults may be missing.

        Raises:
            HessdiagError: something is missing, unknown or of another type.
        """
        with complete(cls.schema or cls.__name__):
            dropped = {"schema", *cls.derived}
            given = {key: value for key, value in dict(record).items() if key not in dropped}
            hints = _hints(cls)  # type: ignore[arg-type]  # mypy takes a class variable for unhashable
            known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
            missing = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
            for name in missing:
                if name not in given:
                    raise KeyError(name)
            return cls(**{k: _typed(v, hints[k]) if k in known else v for k, v in given.items()})


class NumbersRecord(Record):
    """A record that is equal to another one with the same numbers, undefined ones included: for `eq=False` dataclasses.

    Containers compare by identity first, so one NaN object serves for all; and records compare as tuples, because the
    method that dataclasses generate compares field by field from Python 3.13 on.
    """

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, f.name, _one_nan(getattr(self, f.name)))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return tuple(vars(self).values()) == tuple(vars(other).values())

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def _one_nan(value: Any) -> Any:
    """The value with `math.nan` for every undefined number in it."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value
    if value is None or isinstance(value, str | int):  # most of a report: asking for a mapping takes long
        return value
    if isinstance(value, tuple):
        return tuple(map(_one_nan, value))
    if isinstance(value, Mapping):
        return {key: _one_nan(each) for key, each in value.items()}
    return value


@cache  # evaluating annotations takes longer than the rest of reading a block
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def dumps(record: Mapping[str, Any]) -> str:
    """Write strict JSON (no NaN literals), one line for each top-level key and each block."""
    parts = []
    for key, value in record.items():
        plain = _to_plain(value)
        if key == "blocks" and isinstance(plain, list):
            body = "[\n  " + ",\n  ".join(json.dumps(b, allow_nan=False) for b in plain) + "\n ]" if plain else "[]"
        else:
            body = json.dumps(plain, allow_nan=False)
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def loads(source: str | os.PathLike[str], schema: str) -> dict[str, Any]:
    """Parse what `dumps` wrote, from text or file, and check its schema; the `"schema"` key is dropped."""
    check_kind("source", source, (str, os.PathLike), "pass JSON text or the name of a file")
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    where = "the JSON text" if is_text else repr(str(source))
    try:
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise HessdiagError(f"cannot read {where} ({error.strerror}): name a file that hessdiag wrote") from error
    except ValueError as error:  # bytes that are no text
        raise HessdiagError(f"{where} is not a text file: name a file that hessdiag wrote") from error
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise HessdiagError(f"{where} is not valid JSON ({error}): expected a {schema} file") from error
    found = record.pop("schema", None) if isinstance(record, dict) else None
    if found != schema:
        raise HessdiagError(f"{where} has schema {found!r}, expected {schema!r}")
    return dict(record)


@contextmanager
def complete(schema: str) -> Iterator[None]:
    """Refuse a record of the right schema in which something is missing, unknown or of another type."""
    try:
        yield
    except HessdiagError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HessdiagError(f"the {schema} record is damaged ({error}): write it anew with hessdiag") from error


def to_array(nested: Any) -> Array:
    """Make a read-only NumPy array of nested JSON lists of numbers, `null`, `"inf"` and `"-inf"`."""
    array = np.asarray(_numbers(nested), dtype=np.float64)
    array.setflags(write=False)
    return array


def _to_plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, np.ndarray):
        return _to_plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_to_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _to_plain(v) for k, v in value.items()}
    if isinstance(value, Record):
        return _to_plain(value.to_record())
    if is_dataclass(value):
        return {f.name: _to_plain(getattr(value, f.name)) for f in fields(value)}
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return math.nan if value is None else float(value)


def _typed(value: Any, hint: Any) -> Any:
    """Convert parsed JSON to the type that a field is annotated with."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return _numbers(value)
    if origin is np.ndarray:
        return to_array(value)
    if origin is tuple:
        inner = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        return tuple(_typed(v, h) for v, h in zip(value, inner, strict=True))
    if origin in (dict, Mapping):
        return {key: _typed(v, arguments[1]) for key, v in value.items()}
    if origin in (typing.Union, types.UnionType):
        chosen = next(h for h in arguments if h is not types.NoneType)
        return None if value is None and chosen is not float else _typed(value, chosen)
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_record(value)
    return value
