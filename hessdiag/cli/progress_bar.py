"""Progress on stderr, only where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on stderr when it is a terminal; yields a function to call after each step, whatever it is given."""
    if not sys.stderr.isatty():
        yield lambda *step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda *step: progress.advance(task)


def say(message: str) -> None:
    """A line for the user, apart from the results."""
    print(message, file=sys.stderr)
