"""Progress of a measurement: a bar where somebody watches, lines or a function where that is asked for."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import count
from typing import Any

from hessdiag.errors import HessdiagError

PATIENCE = 1.0  # seconds before a bar that nobody asked for appears: short measurements stay silent
WIDTH = 60  # characters of a step's name
Progress = Callable[[str], None] | bool | None
_SHOWN: ContextVar[_Called | _Bar | None] = ContextVar("progress display", default=None)


@contextmanager
def showing(progress: Progress, *, title: str, total: int | None = None) -> Iterator[None]:
    """Show the steps that `announce` and `advance` name inside this context.

    Args:
        progress: None for a bar where stderr is a terminal, or in a notebook, of what takes longer than a second; True
            for one at once, and elsewhere for a line a step; False for silence; or a function that is called with the
            name of each finished step.
        title: what is measured.
        total: steps in all; None where each phase announces its own number.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise HessdiagError(f"progress {progress!r}: pass True, or a function that is called after each step")
    with _display_for(progress, title, total) as display:
        token = _SHOWN.set(display)
        try:
            yield
        finally:
            _SHOWN.reset(token)


def announce(step: str, count: int) -> None:
    """Tell the innermost `showing` that `count` steps of a kind are to come."""
    if display := _SHOWN.get():
        display.announce(step, count)


def advance(step: str) -> None:
    """Tell the innermost `showing` that a step is done."""
    if display := _SHOWN.get():
        display.advance(step)


def _display_for(progress: Progress, title: str, total: int | None) -> AbstractContextManager[_Called | _Bar | None]:
    if progress is not None and not isinstance(progress, bool):
        return nullcontext(_Called(progress))
    if progress is False or os.environ.get("RANK", "0") != "0":  # of several processes, the first one shows
        return nullcontext()
    if _in_notebook() or _is_terminal():
        return _Bar(title, total, patience=0.0 if progress else PATIENCE)
    number = count(1)
    line = "hessdiag: {} done, last {}"
    say = _Called(lambda step: print(line.format(next(number), step[:WIDTH]), file=sys.stderr))
    return nullcontext(say if progress else None)


def _in_notebook() -> bool:
    found = sys.modules.get("IPython")
    return found is not None and type(found.get_ipython()).__name__ == "ZMQInteractiveShell"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # none, or a closed one
        return False


class _Called:
    def __init__(self, function: Callable[[str], None]) -> None:
        self.advance = function

    def announce(self, step: str, count: int) -> None:
        pass


class _Bar:
    """A bar by rich, which appears with the first step after `patience` seconds and goes at the end."""

    def __init__(self, title: str, total: int | None, *, patience: float) -> None:
        self.title, self.total, self.patience = title, total, patience
        self.began = time.monotonic()
        self.done, self.count, self.step = 0, total, title
        self.bar: Any = None  # rich.progress.Progress, imported when it is needed

    def __enter__(self) -> _Bar:
        self._refresh()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def announce(self, step: str, count: int) -> None:
        if self.total is None:
            self.done, self.count, self.step = 0, count, f"{self.title}: {step[:WIDTH]}"
        self._refresh()

    def advance(self, step: str) -> None:
        self.done += 1
        self._refresh()

    def _refresh(self) -> None:
        if self.bar is None and time.monotonic() - self.began >= self.patience:
            self._appear()
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, total=self.count, description=self.step)

    def _appear(self) -> None:
        from rich.console import Console
        from rich.errors import LiveError
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
        self.bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False)
        self.task = self.bar.add_task(self.step, total=self.count)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets shows no bar
            try:
                self.bar.start()
            except LiveError:  # the caller shows a bar of its own
                self.patience, self.bar = float("inf"), None
