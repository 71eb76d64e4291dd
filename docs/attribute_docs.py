"""The section `Attributes:` of a docstring, and what the fields of its class are annotated with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

ENTRY = re.compile(r"    (?P<names>\w+(?:, \w+)*): (?P<text>.*)")


def attributes(lines: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Names and text of each entry below `Attributes:`."""
    if "Attributes:" not in lines:
        return
    names: tuple[str, ...] = ()
    text: list[str] = []
    for line in section_of(lines):
        entry = ENTRY.fullmatch(line)
        if entry:
            if names:
                yield names, " ".join(text)
            names, text = tuple(entry["names"].split(", ")), [entry["text"]]
        elif line.strip():
            text.append(line.strip())
    if names:
        yield names, " ".join(text)


def section_of(lines: list[str]) -> list[str]:
    """The indented lines below `Attributes:`."""
    start = lines.index("Attributes:") + 1
    end = next((i for i in range(start, len(lines)) if lines[i].strip() and not lines[i].startswith(" ")), len(lines))
    return lines[start:end]


def types_of(cls: Any) -> dict[str, str]:
    """What the fields are annotated with, as it is written."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(cls)):
        found |= {name: str(hint) for name, hint in inspect.get_annotations(base).items()}
    return found
