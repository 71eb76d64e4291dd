"""Names in sentences: the nearest right spelling of one that does not exist, and lists of several."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """A question to end a message with, or `otherwise` where nothing known resembles the word.

    >>> did_you_mean("lenett", ["lenet", "mlp"])
    'did you mean lenet?'
    >>> did_you_mean("x", ["lenet"], otherwise="use lenet")
    'use lenet'
    """
    spellings = {name.lower(): name for name in known}
    if word.lower() in spellings:
        return f"did you mean {spellings[word.lower()]}?"
    near = [spellings[name] for name in difflib.get_close_matches(word.lower(), list(spellings), n=3, cutoff=0.6)]
    if not near:
        return otherwise
    return f"did you mean {' or '.join(near)}?"


def few(names: Iterable[str], limit: int = 3) -> str:
    """The first names of a list, and how many more there are.

    >>> few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    names = list(names)
    text = ", ".join(names[:limit])
    return f"{text} and {len(names) - limit} more" if len(names) > limit else text


def joined(names: Iterable[str]) -> str:
    """Names as a sentence lists them.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
