"""Cells of a page's tables: what they show, the exact number on hover, and what their column is sorted by."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what it shows.
        value: the number behind it, which its column is sorted by; `None` sorts by the text, NaN stands last.
        hint: what hovering shows; the exact value if empty.
    """

    text: str
    value: float | None = None
    hint: str = ""

    @property
    def title(self) -> str:
        """What hovering shows; empty for a text."""
        return self.hint or ("" if self.value is None else exact(self.value))

    @property
    def key(self) -> str:
        """The number as a script reads it; empty where there is none to sort by."""
        if self.value is None or math.isnan(self.value):
            return ""
        return repr(float(self.value)).replace("inf", "Infinity")


def exact(value: float) -> str:
    """Write a number with all its digits.

    >>> exact(0.1 + 0.2), exact(float("nan"))
    ('0.30000000000000004', 'undefined')
    """
    return "undefined" if math.isnan(value) else repr(float(value))
