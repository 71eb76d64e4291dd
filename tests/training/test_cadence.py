"""Measurements take their share of the time, on a clock of our own."""

import pytest

from hessdiag.training.monitor import Cadence


class Training:
    """Steps of a second; a measurement takes `each` seconds."""

    def __init__(self, *, every: int = 10, overhead: float = 0.05, each: float) -> None:
        self.now, self.each = 0.0, each
        self.cadence = Cadence(every, overhead, clock=lambda: self.now)

    def run(self, steps: int) -> list[int]:
        """Numbers of the steps at which it measured."""
        measured = []
        for number in range(steps):
            if self.cadence.due():
                self.cadence.begin()
                self.now += self.each
                self.cadence.end()
                measured.append(number)
            self.now += 1.0
        return measured


def test_a_measurement_waits_until_it_has_been_earned() -> None:
    """A cheap one comes at every so many steps; 20 steps earn a dear one, and the first one is in debt."""
    assert Training(each=2e-4).run(35) == [0, 10, 20, 30]
    assert Training(each=1.0).run(101) == [0, 40, 60, 80, 100]


@pytest.mark.parametrize("overhead", [0.01, 0.5])
@pytest.mark.parametrize("each", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("every", [1, 10])
def test_measurements_keep_to_their_share_from_the_second_on(overhead: float, each: float, every: int) -> None:
    run = Training(overhead=overhead, each=each, every=every)
    measured = 0
    for _ in range(2000):
        measured += len(run.run(1))
        if measured > 1:
            assert run.cadence.spent <= overhead * run.cadence.trained * (1 + 1e-9)
    assert measured > 1 or each / overhead > 100


def test_what_is_earned_is_spent_and_a_pause_earns_nothing() -> None:
    run = Training(each=3.0, every=1)
    run.run(5000)
    assert run.cadence.spent / run.cadence.trained == pytest.approx(0.05, rel=0.03)
    run = Training(each=1.0, every=1)
    assert run.run(3) == [0]
    run.cadence.pause()
    run.now += 1e6
    assert run.run(3) == []
    assert run.cadence.trained == pytest.approx(4.0)  # without the third step, during which training paused
    run.now += 1e6
    assert run.run(10) == [0, 1]
