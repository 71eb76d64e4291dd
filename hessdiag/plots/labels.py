"""Texts of figures: numbers, names of blocks, and how wide they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from hessdiag.results.numbers import short

PLAIN = range(-2, 3)  # powers of ten that need no exponent in a figure

# HTML, XML and UTF-8 have no place for control characters, halves of surrogate pairs and non-characters; marks that
# turn the direction of writing would turn the sentence around a name.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def number(value: float) -> str:
    """Write three significant digits in the form that is read at a glance, as in all figures.

    >>> [number(v) for v in (3.21, 0.8449, 26.3, 472.6, 0.00142, 12345.0, 0.0, float("inf"), float("nan"))]
    ['3.21', '0.845', '26.3', '473', '1.42e-3', '1.23e4', '0', '∞', 'undefined']
    """
    if np.isnan(value):
        return "undefined"
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    return short(value, plain=PLAIN)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> plural(1, "set-up"), plural(100, "set-up")
    ('1 set-up', '100 set-ups')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    r"""Put a replacement character for what no page and no font holds.

    >>> printable("a\x07b")
    'a�b'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def short_labels(names: Sequence[str], *, limit: int = 28) -> list[str]:
    """Leave out a trailing ".weight" and the middle of long names of blocks; distinct names stay distinct.

    >>> short_labels(["conv1.weight", "encoder.stages.2.layers.5.convolution.weight"])
    ['conv1', 'encoder…2…5.convolution']
    """
    whole = [printable(name.removesuffix(".weight")) for name in names]
    short = [_elide(name, limit) for name in whole]
    seen = Counter(short)
    return [s if seen[s] == 1 else w for s, w in zip(short, whole, strict=True)]


def text_width(text: str | Iterable[str], size: float, *, weight: str = "normal") -> float:
    """Measure the width of a text (of the widest, for several) in inches."""
    font = FontProperties(family="DejaVu Sans", weight=weight, size=size)
    texts = [text] if isinstance(text, str) else text
    return (
        max((text_to_path.get_text_width_height_descent(t, font, False)[0] for t in texts if t.strip()), default=0) / 72
    )


def _elide(name: str, limit: int) -> str:
    # Words go before numbers, and outer containers before inner ones: what is left tells blocks apart.
    parts = name.split(".")
    while len(".".join(parts)) > limit:
        words = [i for i, part in enumerate(parts[1:-1], start=1) if part != "…" and not part.isdigit()]
        if not words:
            break
        parts[words[0]] = "…"
    text = ".".join(parts)
    while "…." in text or ".…" in text:
        text = text.replace("….", "…").replace(".…", "…").replace("……", "…")
    if len(text) <= limit:
        return text
    return text[: limit // 2] + "…" + text[len(text) - (limit - limit // 2 - 1) :]
