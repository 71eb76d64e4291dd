"""When a monitor measures, and on how many examples, so that it takes no more than its share of the time.

Training earns time for measurements, `overhead` seconds a second, and a measurement spends what it takes. The next one
waits until its expected cost has been earned, and never comes earlier than `every` steps after the last. At most the
cost of two is saved up (one may be on twice the examples), so that a pause of training does not buy many. The first
measurement, at the first step, goes into debt: from the second one on, all measurements together have taken at most
`overhead` of the training time, as far as their cost was foreseen.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MIN_EXAMPLES = 2  # one alone tells nothing of the spread over examples
FIRST_EXAMPLES = 4  # before the cost of a measurement is known
MAX_EXAMPLES = 32
REMEMBERED = 31  # steps whose median time counts


@dataclass
class Cadence:
    """The time that training has earned and measurements have spent.

    Attributes:
        every: fewest steps from one measurement to the next.
        overhead: share of the training time that measurements may take.
        examples: of the next measurement.
        fixed: whether that number was asked for, and stays.
        clock: seconds.
        trained, spent: seconds of training and of measurements so far.
    """

    every: int
    overhead: float
    examples: int = FIRST_EXAMPLES
    fixed: bool = False
    clock: Callable[[], float] = time.perf_counter
    trained: float = 0.0
    spent: float = 0.0
    _cost: float | None = None  # of the next measurement, as the last one tells
    _credit: float = 0.0
    _steps: int = 0  # since the last measurement
    _since: float | None = None  # when training went on
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def due(self) -> bool:
        """Count a step of training, and return whether to measure at it."""
        self._times.extend(self._earn())
        if self._cost is None:
            return True
        self._steps += 1
        if self._steps == self.every:
            self._choose_examples()
        return self._steps >= self.every and self._credit >= self._cost

    def begin(self) -> None:
        """Start a measurement; what the device still had to do until now was training."""
        self._earn()

    def end(self) -> float:
        """Finish a measurement, and return its seconds."""
        now = self.clock()
        seconds = now - (now if self._since is None else self._since)
        self.spent += seconds
        self._credit -= seconds
        self._cost, self._steps, self._since = seconds, 0, now
        return seconds

    def pause(self) -> None:
        """Leave the time until the next step out of the account."""
        self._since = None

    @property
    def share(self) -> float:
        """Seconds of measurements for each second of training so far."""
        return self.spent / self.trained if self.trained > 0 else float("inf")

    def _earn(self) -> list[float]:
        """Credit the training since the last call; its seconds, if training went on all the time."""
        now, since = self.clock(), self._since
        self._since = now
        if since is None:
            return []
        self.trained += now - since
        self._credit = min(self._credit + self.overhead * (now - since), 2 * (self._cost or 0.0))
        return [now - since]

    def _choose_examples(self) -> None:
        """Take twice as many where that keeps to `every` steps, half as many where the last ones did not."""
        assert self._cost is not None
        earned = self.overhead * self.every * statistics.median(self._times or [0.0])
        if self.fixed:
            return
        if self._cost > earned:
            self.examples = max(MIN_EXAMPLES, self.examples // 2)
        elif 2 * self._cost <= earned and self.examples < MAX_EXAMPLES:
            self.examples *= 2
            self._cost *= 2
