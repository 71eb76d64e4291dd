"""Steps of a measurement, told to a function or to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hessdiag.errors import HessdiagError

WIDTH = 60  # characters of a step's name


def as_progress(progress: Any) -> Callable[..., None]:
    """A function to call after each step: the one given, one that prints for True, or one that is silent for False.

    >>> as_progress(False)("a step")
    """
    if progress is None or progress is False:
        return _silent
    if progress is True:
        return _Printed()
    if not callable(progress):
        raise HessdiagError(f"progress {progress!r}: pass True, or a function that is called after each step")
    found: Callable[..., None] = progress
    return found


def _silent(*step: str) -> None:
    """Say nothing."""


class _Printed:
    """Prints the name of each step on stderr, over the one before where that is a terminal."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, step: str = "set-up") -> None:
        """Say that a step is done."""
        self.done += 1
        line = f"hessdiag: {self.done} done, last {step[:WIDTH]}"
        if sys.stderr.isatty():
            print(f"{line:{WIDTH + 30}}", end="\r", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr)
