"""Steps of a measurement, told to a function, to the terminal or to a notebook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from hessdiag.errors import HessdiagError
from hessdiag.execution.notebook_line import NotebookLine
from hessdiag.execution.progress_texts import PATIENCE, WIDTH

if TYPE_CHECKING:
    from hessdiag.execution.bar import Bar


class Progress(Protocol):
    """Called after each step."""

    def __call__(self, step: str) -> None:
        """Note that a step of that name is done."""
        ...


@contextmanager
def watched(
    progress: Any, *, title: str, total: int | None = None, patience: float = PATIENCE
) -> Iterator[Callable[..., None]]:
    """Yield a function to call after each step, which may have methods `plan` and `batch`.

    Args:
        progress: the function; or None for a bar where stderr is a terminal or in a notebook, True for one that is
            there at once, and for a line a step elsewhere, and False for silence.
        title: what is measured.
        total: steps, where they are known from the start; else each phase announces its own with `plan`.
        patience: seconds before what was not asked for appears.
    """
    if progress is not None and not isinstance(progress, bool):
        if not callable(progress):
            raise HessdiagError(f"progress {progress!r}: pass True, or a function that is called after each step")
        yield progress
        return
    silent = progress is False or os.environ.get("RANK", "0") != "0"  # of several processes, the first one tells
    if not silent and in_notebook():
        yield from _lasting(NotebookLine(title, total))
    elif not silent and _is_terminal():
        from hessdiag.execution.bar import Bar  # with rich, which takes a moment to import

        yield from _lasting(Bar(title, total, patience=0.0 if progress else patience))
    else:
        yield PrintedLines() if progress and not silent else _silent


def announce(progress: Callable[..., None], step: str, count: int) -> None:
    """Tell how many steps of a kind are to come, to those that want to know."""
    plan = getattr(progress, "plan", None)
    if plan is not None:
        plan(step, count)


def announce_batch(progress: Callable[..., None], number: int, total: int | None) -> None:
    """Tell that a batch begins, of `total` where that is known."""
    begin = getattr(progress, "batch", None)
    if begin is not None:
        begin(number, total)


def in_notebook() -> bool:
    """Whether a kernel runs this, whose output goes to a page."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # none, or a closed one
        return False


def _silent(*step: str) -> None:
    """Say nothing."""


class PrintedLines:
    """Prints the name of each step on stderr."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, step: str = "set-up") -> None:
        """Say that a step is done."""
        self.done += 1
        print(f"hessdiag: {self.done} done, last {step[:WIDTH]}", file=sys.stderr)


def _lasting(bar: Bar | NotebookLine) -> Iterator[Callable[..., None]]:
    bar.start()
    try:
        yield bar
    finally:
        bar.stop()
