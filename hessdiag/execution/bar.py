"""A bar in the terminal: what is being done, how far it is, since when and for how long still."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from hessdiag.execution.progress_texts import WIDTH, clock

MEMORY = 3600.0  # seconds of steps that the remaining time is told from
STYLE = "cyan"


class Bar:
    """A bar for the steps of a phase, with another one for batches where there are several; gone when it is over.

    Args:
        title: what is measured.
        total: steps; without it, each phase has its own.
        patience: seconds before it appears.
    """

    def __init__(self, title: str, total: int | None, *, patience: float = 0.0) -> None:
        self.title, self.total = title, total
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20, complete_style=STYLE, finished_style=STYLE, pulse_style=STYLE),
            MofNCompleteColumn(),
            _Times(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            speed_estimate_period=MEMORY,
        )
        self.batches = self.display.add_task(f"{title}: batches", total=None, visible=False)
        self.steps = self.display.add_task(title, total=total)
        self.timer = threading.Timer(patience, self._appear)
        self.timer.daemon = True

    def start(self) -> None:
        """Appear, now or after a while."""
        if self.timer.interval:
            self.timer.start()
        else:
            self._appear()

    def stop(self) -> None:
        """Disappear."""
        self.timer.cancel()
        if self.timer.ident is not None:
            self.timer.join()
        self.display.stop()

    def plan(self, step: str, count: int) -> None:
        """Begin a phase of `count` steps."""
        if self.total is None:
            self.display.reset(self.steps, total=count, description=f"{self.title}: {step[:WIDTH]}")

    def batch(self, number: int, total: int | None) -> None:
        """Begin a batch."""
        several = number > 1 or (total or 0) > 1
        self.display.update(self.batches, completed=number - 1, total=total, visible=several)

    def __call__(self, *step: str) -> None:
        """Note that a step is done."""
        self.display.advance(self.steps)

    def _appear(self) -> None:
        with suppress(LiveError):  # another one is there already, of whoever calls this
            self.display.start()


class _Times(ProgressColumn):
    """Time since the bar was made, and the time that is left of the row's steps where that can be told."""

    def __init__(self) -> None:
        super().__init__()
        self.began = time.monotonic()

    def render(self, task: Task) -> Text:
        """One row."""
        left = task.time_remaining
        still = f", {clock(left)} left" if left else ""
        return Text(f"{clock(time.monotonic() - self.began)}{still}", style="progress.elapsed")
