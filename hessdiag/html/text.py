"""Texts of a model as a page can show them."""

from __future__ import annotations

import re

from markupsafe import Markup, escape


def breakable(name: str) -> Markup:
    """Escape a dotted name such that it may be broken over lines after its dots.

    >>> breakable("a<b.weight")
    Markup('a&lt;b.<wbr>weight')
    """
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[._])", name))


def embedded(json: str) -> Markup:
    r"""Write JSON as the content of a script element, which no text in it can close.

    >>> embedded('{"name": "</script>"}')
    Markup('{"name": "\\u003c/script\\u003e"}')
    """
    for character in "<>&":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return Markup(json)
