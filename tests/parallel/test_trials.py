"""Trials are shared among processes and counted."""

from hessdiag.parallel.processes import Processes, measure_trials
from hessdiag.parallel.progress import showing


def test_trials_are_in_order_and_counted() -> None:
    steps: list[str] = []
    with showing(steps.append, title="thirds"):
        assert measure_trials(range(1, 4), lambda seed: seed / 3) == [1 / 3, 2 / 3, 1.0]
    assert steps == ["trials"] * 3


def test_processes_measure_each_their_share() -> None:
    asked: list[int] = []

    class Second(Processes):
        def gather(self, measure):  # type: ignore[no-untyped-def]
            return [{1: "theirs", 3: "theirs"}, measure()]

    found = measure_trials([1, 2, 3], lambda seed: asked.append(seed) or "mine", processes=Second(1, 2))
    assert asked == [2]
    assert found == ["theirs", "mine", "theirs"]
