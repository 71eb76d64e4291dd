"""What the site makes of a docstring: docs/docstrings.py."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.pages import ROOT

pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs"))

import docstrings
from sphinx.util.docstrings import prepare_docstring


@dataclass
class Sample:
    """A record.

    Attributes:
        low, high: ends of |x|, in
            metres.
        name: what it is called.
    """

    low: float
    high: float
    name: str | None


def processed(what: str, obj: Any, text: str) -> list[str]:
    lines = prepare_docstring(text)
    docstrings.process(None, what, "sample", obj, None, lines)  # type: ignore[arg-type]  # the application is not used
    return lines


def test_attributes_are_listed_with_their_types() -> None:
    lines = processed("class", Sample, Sample.__doc__ or "")
    assert ".. rubric:: Attributes" in lines
    assert "* **low**, **high** (``float``): ends of \\|x\\|, in metres." in lines
    assert "* **name** (``str | None``): what it is called." in lines


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("|x| of a *relative* change", "\\|x\\| of a *relative* change"),
        ("(B, *outputs)", "(B, \\*outputs)"),
        ("`|x|` and geometric_mean_ fill", "`|x|` and geometric_mean\\_ fill"),
        (">>> a * b | c", ">>> a * b | c"),
    ],
)
def test_symbols_are_no_markup(text: str, escaped: str) -> None:
    assert docstrings.as_restructured_text(text) == escaped


def test_the_sentence_of_a_property_is_no_type() -> None:
    assert processed("property", Sample, "A number: the largest.") == ["A number: the largest.", ""]
