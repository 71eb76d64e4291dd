"""Progress of a measurement on stderr: a line that is written over in a terminal, elsewhere a line now and then."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from hessdiag.errors import HessdiagError

PATIENCE = 1.0  # seconds before a line in a terminal: short measurements stay silent
SILENCE, PAUSE = 10.0, 30.0  # elsewhere: seconds before the first line, and from one to the next
CLEAR = "\r\x1b[2K"  # the line of a terminal
Progress = Callable[[str], None] | bool | None
_SHOWN: ContextVar[Callable[[str], None] | None] = ContextVar("progress display", default=None)


@contextmanager
def showing(progress: Progress, *, title: str, total: int | None = None) -> Iterator[None]:
    """Show the steps that `announce` and `advance` name inside this context, `total` in all or as each phase announces.
    `progress` is None for a line in a terminal of what takes longer than a second, and elsewhere for one now and then
    of what takes longer than ten; True for a line a step; False for silence; or a function of each step's name.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise HessdiagError(f"progress {progress!r}: pass True, or a function that is called after each step")
    display: Callable[[str], None] | None = None
    if callable(progress):
        display = progress
    elif progress is not False and os.environ.get("RANK", "0") == "0":  # of several processes, the first one shows
        display = _Lines(title, total, at_once=bool(progress))
    token = _SHOWN.set(display)
    try:
        yield
    finally:
        _SHOWN.reset(token)
        if isinstance(display, _Lines) and display.over and display.shown:
            print(CLEAR, end="", file=sys.stderr, flush=True)


def announce(step: str, count: int, *, gradients: float = 0) -> None:
    """Tell the innermost `showing` that `count` steps of a kind are to come, as costly as so many gradients in all."""
    if isinstance(display := _SHOWN.get(), _Lines):
        display.announce(step, count, gradients)


def advance(step: str) -> None:
    """Tell the innermost `showing` that a step is done."""
    if display := _SHOWN.get():
        display(step)


class _Lines:
    """Lines on stderr. What a phase costs is said beforehand, by the time that a gradient took in those before it."""

    def __init__(self, title: str, total: int | None, *, at_once: bool) -> None:
        self.title, self.total, self.over = title, total, False
        with suppress(AttributeError, ValueError):  # no stderr, or a closed one
            self.over = sys.stderr.isatty()
        self.began = self.phase = time.monotonic()
        self.due = self.began + (0.0 if at_once else PATIENCE if self.over else SILENCE)
        self.pause = 0.0 if at_once or self.over else PAUSE
        self.done, self.count, self.cost, self.shown = 0, total, "", False
        self.gradients = self.spent = self.seconds = 0.0  # of this phase; of those before, and what they took

    def announce(self, step: str, count: int, gradients: float) -> None:
        now = time.monotonic()
        if self.gradients:
            self.spent, self.seconds = self.spent + self.gradients, self.seconds + now - self.phase
        self.phase, self.gradients = now, gradients
        if self.total is None:
            self.done, self.count = 0, count
        left = gradients * self.seconds / self.spent if self.spent else 0.0
        self.cost = f" ({gradients:.0f} gradients), ~{now - self.began + left:.0f} s in all" if left >= PATIENCE else ""
        self._say(step, beforehand=left >= SILENCE)

    def __call__(self, step: str) -> None:
        self.done += 1
        self._say(step)

    def _say(self, step: str, *, beforehand: bool = False) -> None:
        if (now := time.monotonic()) < self.due and not beforehand:
            return
        self.due, self.shown = now + self.pause, True
        text = f"hessdiag: {self.title}, {now - self.began:.0f} s so far: {step} {self.done}/{self.count}{self.cost}"
        if self.over:
            text = CLEAR + text[: shutil.get_terminal_size().columns - 1]
        print(text, end="" if self.over else "\n", file=sys.stderr, flush=True)
