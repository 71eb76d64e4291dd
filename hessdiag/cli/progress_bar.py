"""Progress on stderr, only where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

QUIET: ContextVar[bool] = ContextVar("quiet", default=False)  # whether nothing is said but results and errors


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on stderr when it is a terminal; yields a function to call after each step, whatever it is given.

    Args:
        title: what is done.
        total: steps; None where each phase says how many it has.
    """
    from hessdiag.execution.progress import watched

    with watched(False if QUIET.get() else None, title=title, total=total, patience=0.0) as step:
        yield step


def note_quiet(context: typer.Context, quiet: bool) -> bool:
    """Note whether the command that runs was called with `--quiet`, until it ends."""
    token = QUIET.set(quiet)
    context.call_on_close(lambda: QUIET.reset(token))
    return quiet


class _ByteBar:
    """What pooch calls a progress bar, drawn by rich."""

    def __init__(self, progress: Any, title: str) -> None:
        self.progress, self.task, self.total = progress, progress.add_task(title, total=None), 0

    def update(self, count: int) -> None:
        """Note that so many bytes have come."""
        self.progress.update(self.task, advance=count, total=self.total or None)

    def reset(self) -> None:
        """Begin anew."""
        self.progress.reset(self.task)

    def close(self) -> None:
        """Stop; the bar goes when the download is over."""


@contextmanager
def byte_bar(title: str) -> Iterator[Any]:
    """A bar of bytes on stderr when it is a terminal, for `hessdiag.datasets`; else None."""
    if not sys.stderr.isatty() or QUIET.get():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _ByteBar(progress, title)


def say(message: str) -> None:
    """A line for the user, apart from the results; none with `--quiet`."""
    if not QUIET.get():
        complain(message)


def complain(message: str) -> None:
    """A line that is said with `--quiet` too, as why a gate failed."""
    print(message, file=sys.stderr)
