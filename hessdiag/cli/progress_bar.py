"""Progress on stderr, only where somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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


def say(message: str) -> None:
    """A line for the user, apart from the results; none with `--quiet`."""
    if not QUIET.get():
        complain(message)


def complain(message: str) -> None:
    """A line that is said with `--quiet` too, as why a gate failed."""
    print(message, file=sys.stderr)
