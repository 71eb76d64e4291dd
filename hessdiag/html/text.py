"""Texts of a model as a page can show them."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# HTML, XML and UTF-8 have no place for control characters, halves of surrogate pairs and non-characters; marks that
# turn the direction of writing would turn the sentence around a name.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    r"""A text with a replacement character for what no page can hold.

    >>> printable("a\x07b")
    'a�b'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def breakable(name: str) -> Markup:
    """A dotted name, escaped, that may be broken over lines after its dots.

    >>> breakable("a<b.weight")
    Markup('a&lt;b.<wbr>weight')
    """
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._])", name))


def embedded(json: str) -> Markup:
    r"""JSON as the content of a script element, which no text in it can close.

    >>> embedded('{"name": "</script>"}')
    Markup('{"name": "\\u003c/script\\u003e"}')
    """
    for character in "<>&":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return Markup(json)
