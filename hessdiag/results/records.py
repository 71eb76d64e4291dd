"""Results as JSON and back, by the fields of their dataclasses; and files, written whole or not at all.

Undefined numbers are NaN in Python and `null` in JSON; an overflow is `"inf"` or `"-inf"`.
"""

import json
import math
import os
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from hessdiag.errors import HessdiagError

R = TypeVar("R", bound="Record")
_hints = cache(typing.get_type_hints)  # evaluating annotations takes longer than the rest of reading a block


class Record:
    """A dataclass that travels as JSON: a mixin.

    With `eq=False` it is equal to another one with the same numbers, undefined ones included.
    """

    schema: ClassVar[str] = ""  # name and version of the format, a file's first key; empty for a part of another record
    derived: ClassVar[tuple[str, ...]] = ()  # properties that are written beside the fields, and dropped when read

    def to_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes as plain dicts, lists and numbers; undefined numbers are None."""
        held = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        derived = {key: _plain(getattr(self, key)) for key in self.derived}
        return {"schema": self.schema} | derived | held if self.schema else held | derived

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return JSON text, which `from_json` reads back exactly; also write it to `path` when one is given."""
        return saved(dumps(self.to_dict()), path)

    @classmethod
    def from_json(cls: type[R], source: str | os.PathLike[str]) -> R:
        """Read back what `to_json` wrote, from text or from a file."""
        return cls.from_dict(loads(source, cls.schema))

    @classmethod
    def from_dict(cls: type[R], record: Mapping[str, Any]) -> R:
        """Build the dataclass from what `to_dict` returns; fields with defaults may be missing."""
        try:
            return _typed(record, cls)  # type: ignore[no-any-return]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = cls.schema or cls.__name__
            raise HessdiagError(f"the {what} record is damaged ({error}): write it anew with hessdiag") from error

    def __eq__(self, other: object) -> bool:
        """Compare what files hold, where undefined numbers are equal."""
        return self.to_dict() == other.to_dict() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))  # a set of records is small


def versions() -> Mapping[str, str]:
    """Versions that a measurement runs on, by name."""
    return {name: metadata.version(name) for name in ("hessdiag", "torch")}


def dumps(record: Mapping[str, Any]) -> str:
    """Write strict JSON (no NaN literals), one line for each top-level key and each block."""
    parts = []
    for key, value in record.items():
        plain = _plain(value)
        body = json.dumps(plain, allow_nan=False)
        if plain and isinstance(plain, list) and isinstance(plain[0], dict):
            body = "[\n  " + ",\n  ".join(json.dumps(each, allow_nan=False) for each in plain) + "\n ]"
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def loads(source: str | os.PathLike[str], schema: str) -> dict[str, Any]:
    """Parse what `dumps` wrote, from text or file, and check its schema; the `"schema"` key is dropped."""
    if not isinstance(source, str | os.PathLike):
        raise HessdiagError(f"source is of type {type(source).__name__}: pass JSON text or the name of a file")
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    where = "the JSON text" if is_text else repr(str(source))
    try:
        record = json.loads(str(source) if is_text else Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise HessdiagError(f"cannot read {where} ({error.strerror}): name a file that hessdiag wrote") from error
    except (ValueError, RecursionError) as error:  # no text, no JSON, or lists in lists without end
        raise HessdiagError(f"{where} is not valid JSON ({error}): expected a {schema} file") from error
    found = record.pop("schema", None) if isinstance(record, dict) else None
    if found != schema:
        old = isinstance(found, str) and found.partition("/")[0] == schema.partition("/")[0]
        advice = "; another version of hessdiag wrote it: measure again" if old else ""
        raise HessdiagError(f"{where} has schema {found!r}, expected {schema!r}{advice}")
    return dict(record)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value.to_dict() if isinstance(value, Record) else value


def _typed(value: Any, hint: Any) -> Any:
    """Convert parsed JSON to the type that a field is annotated with."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return math.nan if value is None else float(value)
    if origin is np.ndarray:
        array = np.asarray(value, dtype=np.float64)  # None becomes NaN
        array.setflags(write=False)
        return array
    if origin is tuple:
        inner = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        return tuple(_typed(each, kind) for each, kind in zip(value, inner, strict=True))
    if origin in (dict, Mapping):
        return {key: _typed(each, arguments[1]) for key, each in value.items()}
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _typed(value, next(h for h in arguments if h is not types.NoneType))
    if isinstance(hint, type) and issubclass(hint, Record):
        hints = _hints(hint)  # type: ignore[arg-type]
        known = {f.name for f in fields(hint)} & value.keys()  # type: ignore[arg-type]  # other versions have others
        return hint(**{name: _typed(value[name], hints[name]) for name in known})
    return value


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder where it is missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HessdiagError(f"cannot make the folder {str(folder)!r} ({error.strerror})") from error
    return Path(folder)


def saved(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return a text, also written to `path` when one is given."""
    if path is not None:
        write_text(path, text)
    return text


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` to `path` through a temporary file beside it, so that a kill never leaves half a file."""
    return write_bytes(path, text.encode(errors="backslashreplace"))  # halves of surrogate pairs, too


def write_bytes(path: str | os.PathLike[str], content: bytes) -> Path:
    """As `write_text`, for bytes."""
    if not isinstance(path, str | os.PathLike):
        raise HessdiagError(f"path is of type {type(path).__name__}: name a file")
    target = Path(path)
    part = Path(f"{os.path.realpath(target)}.{os.getpid()}")  # a link stays one
    try:
        if target.exists() and not target.is_file():  # a pipe or /dev/stdout is written to, never replaced
            target.write_bytes(content)
        else:
            part.write_bytes(content)
            os.replace(part, os.path.realpath(target))
    except OSError as error:
        why = f"cannot write {str(target)!r} ({error.strerror})"
        raise HessdiagError(f"{why}: name a file in an existing, writable folder") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target
