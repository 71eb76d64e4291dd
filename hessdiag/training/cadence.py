"""When a monitor measures, so that it takes no more than its share of the time.

Training earns time for measurements, `overhead` seconds a second, and a measurement spends what it takes. The next one
waits until its expected cost, that of the last one, has been earned, and never comes earlier than `every` steps after
it. At most the cost of two is saved up, so that a pause of training does not buy many. The first measurement, at the
first step, goes into debt: from the second one on, all measurements together have taken at most `overhead` of the
training time, as far as their cost was foreseen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Cadence:
    """The time that training has earned and measurements have spent.

    Attributes:
        every: fewest steps from one measurement to the next.
        overhead: share of the training time that measurements may take.
        clock: seconds.
        trained, spent: seconds of training and of measurements so far.
    """

    every: int
    overhead: float
    clock: Callable[[], float] = time.perf_counter
    trained: float = 0.0
    spent: float = 0.0
    _cost: float | None = None  # of the last measurement
    _credit: float = 0.0
    _steps: int = 0  # since the last measurement
    _since: float | None = None  # when training went on

    def due(self) -> bool:
        """Count a step of training, and return whether to measure at it."""
        self.begin()
        self._steps += 1
        return self._cost is None or (self._steps >= self.every and self._credit >= self._cost)

    @property
    def missing(self) -> float:
        """Seconds to be earned before a measurement that `every` alone would take now; 0 at other steps."""
        return max(0.0, self._cost - self._credit) if self._cost is not None and self._steps == self.every else 0.0

    def begin(self) -> None:
        """Credit the training since the last call: what the device still had to do until now was training, too."""
        now = self.clock()
        earned = 0.0 if self._since is None else now - self._since
        self._since = now
        self.trained += earned
        self._credit = min(self._credit + self.overhead * earned, 2 * (self._cost or 0.0))

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
