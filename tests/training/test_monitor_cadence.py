"""Measurements take their share of the time, on a clock of our own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hessdiag.training.cadence import FIRST_EXAMPLES, MAX_EXAMPLES, MIN_EXAMPLES, Cadence


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Training:
    """Steps of `step` seconds; a measurement takes `fixed` seconds and `each` more an example."""

    cadence: Cadence
    clock: Clock
    step: float = 1.0
    fixed: float = 0.0
    each: float = 1.0

    def run(self, steps: int) -> list[int]:
        """Numbers of the steps at which it measured."""
        measured = []
        for number in range(steps):
            if self.cadence.due():
                self.cadence.begin()
                self.clock.now += self.fixed + self.each * self.cadence.examples
                self.cadence.end()
                measured.append(number)
            self.clock.now += self.step
        return measured


def training(*, every: int = 10, overhead: float = 0.05, examples: int | None = None, **costs: float) -> Training:
    clock = Clock()
    cadence = Cadence(every, overhead, clock=clock)
    if examples is not None:
        cadence.examples, cadence.fixed = examples, True
    return Training(cadence, clock, **costs)


def test_a_cheap_measurement_comes_at_every_so_many_steps() -> None:
    assert training(examples=2, each=1e-4).run(35) == [0, 10, 20, 30]


def test_a_dear_one_waits_until_it_has_been_earned() -> None:
    run = training(examples=1, each=1.0)  # 20 steps earn one; the first one is in debt
    assert run.run(101) == [0, 40, 60, 80, 100]


@pytest.mark.parametrize("overhead", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("each", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("every", [1, 10])
def test_measurements_keep_to_their_share_from_the_second_on(overhead: float, each: float, every: int) -> None:
    run = training(overhead=overhead, each=each, every=every)
    measured = 0
    for _ in range(3000):
        measured += len(run.run(1))
        if measured > 1:
            assert run.cadence.spent <= overhead * run.cadence.trained * (1 + 1e-9)
    assert measured > 1 or each / overhead > 100


def test_what_is_earned_is_spent_where_a_measurement_is_dear() -> None:
    run = training(examples=1, each=3.0, every=1)
    run.run(5000)
    assert run.cadence.share == pytest.approx(0.05, rel=0.03)


def test_examples_grow_where_time_is_left_and_shrink_where_there_is_none() -> None:
    cheap = training(each=1e-4)
    cheap.run(100)
    assert cheap.cadence.examples == MAX_EXAMPLES
    dear = training(each=1.0)
    dear.run(1000)
    assert dear.cadence.examples == MIN_EXAMPLES
    right = training(each=0.1, every=10)  # 0.5 s are earned in ten steps, four examples take 0.4 s
    right.run(100)
    assert right.cadence.examples == FIRST_EXAMPLES


def test_a_number_of_examples_that_was_asked_for_stays() -> None:
    run = training(examples=3, each=1e-6)
    run.run(100)
    assert run.cadence.examples == 3


def test_a_pause_earns_nothing_and_one_that_is_not_announced_earns_two_measurements_at_most() -> None:
    run = training(examples=1, each=1.0, every=1)
    assert run.run(3) == [0]
    run.cadence.pause()
    run.clock.now += 1e6
    assert run.run(3) == []
    assert run.cadence.trained == pytest.approx(4.0)  # without the third step, during which training paused
    run.clock.now += 1e6
    assert run.run(10) == [0, 1]


def test_the_share_of_nothing_is_infinite() -> None:
    assert training().cadence.share == float("inf")
