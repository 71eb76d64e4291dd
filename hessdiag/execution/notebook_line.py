"""A line in a notebook: what is being done, how far it is, since when and for how long still."""

from __future__ import annotations

import sys
import time
from typing import Any

from hessdiag.execution.progress_texts import PATIENCE, WIDTH, clock

REFRESHED = 0.2  # seconds between two writings


class NotebookLine:
    """A line in a notebook that says how far it is; gone when it is over."""

    def __init__(self, title: str, total: int | None) -> None:
        self.title, self.fixed = title, total is not None
        self.step, self.done, self.total = "", 0, total
        self.batches: tuple[int, int | None] = 0, None  # number of the one that is measured, and how many
        self.began = self.phase = self.shown = time.monotonic()
        self.handle: Any = None

    def start(self) -> None:
        """Appear with the first step that is late enough."""

    def stop(self) -> None:
        """Disappear."""
        if self.handle is not None:
            self._write("")

    def plan(self, step: str, count: int) -> None:
        """Begin a phase of `count` steps."""
        if not self.fixed:
            self.step, self.done, self.total, self.phase = step[:WIDTH], 0, count, time.monotonic()
            self._show()

    def batch(self, number: int, total: int | None) -> None:
        """Begin a batch."""
        self.batches = number, total

    def __call__(self, *step: str) -> None:
        """Note that a step is done."""
        self.done += 1
        self._show()

    def line(self, now: float) -> str:
        """What is to be read."""
        name = f": {self.step}" if self.step else ""
        count = f"{self.done}/{self.total}" if self.total else f"{self.done}"
        left = self._left(now)
        still = f", {clock(left)} left" if left else ""
        return f"{self.title}{self._batches()}{name} {count}, {clock(now - self.began)} elapsed{still}"

    def _left(self, now: float) -> float:
        """Seconds by those of the batches before this one, or else by those of the steps of this phase."""
        number, batches = self.batches
        if batches and number > 1:
            return (now - self.began) * max(0.0, batches / (number - 0.5) - 1)  # in the midst of one
        if batches in (None, 1) and self.total and 0 < self.done < self.total:
            return (now - self.phase) / self.done * (self.total - self.done)
        return 0.0

    def _batches(self) -> str:
        number, batches = self.batches
        if number == 0 or batches == 1:
            return ""
        return f", batch {number}" + (f" of {batches}" if batches else "")

    def _show(self) -> None:
        now = time.monotonic()
        if now - self.began >= PATIENCE and now - self.shown >= REFRESHED:
            self.shown = now
            self._write(self.line(now))

    def _write(self, text: str) -> None:
        display = sys.modules["IPython"].display.display  # a kernel has imported it

        content = {"text/plain": text}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)
        else:
            self.handle.update(content, raw=True)
