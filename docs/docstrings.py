"""Docstrings for Sphinx: Google's sections, code marked as in Markdown, and symbols such as |x| that mean nothing else.

A section `Attributes:` becomes a list with the types of the dataclass's fields; one entry may be of several names.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from attribute_docs import attributes, section_of, types_of
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

SETTINGS = Config(napoleon_use_param=True, napoleon_use_rtype=False)
CODE = re.compile(r"(`+[^`]+`+)")
EMPHASIS = re.compile(r"(?<![\w*])\*(?=\w)([^*\n]+)(?<=\w)\*(?![\w*])")


def listed_attributes(cls: Any, lines: list[str]) -> list[str]:
    """The lines with the section of attributes written as a list."""
    if "Attributes:" not in lines or not inspect.isclass(cls):
        return lines
    types = types_of(cls)
    items = []
    for names, text in attributes(lines):
        kinds = sorted({types[name] for name in names if name in types})
        told = f" ({', '.join(f'``{kind}``' for kind in kinds)})" if kinds else ""
        items.append(f"* {', '.join(f'**{name}**' for name in names)}{told}: {text}")
    start = lines.index("Attributes:")
    rest = lines[start + 1 + len(section_of(lines)) :]
    return [*lines[:start], ".. rubric:: Attributes", "", *items, "", *rest]


def as_restructured_text(line: str) -> str:
    """Escape what reStructuredText would take for markup, outside of code."""
    if line.lstrip().startswith(">>>"):
        return line
    parts = CODE.split(line)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = EMPHASIS.sub(keep, text)
    text = re.sub(r"(?<!\*)\*(?!\*)|\|", lambda match: "\\" + match[0], text)
    text = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text)
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place; called by autodoc."""
    text = listed_attributes(obj, [as_restructured_text(line) for line in lines])
    # As a method: of a property, a sentence up to its colon would be taken for a type.
    kind = "method" if what in {"property", "attribute", "data"} else what
    lines[:] = GoogleDocstring(text, SETTINGS, app, kind, name, obj, options).lines()
