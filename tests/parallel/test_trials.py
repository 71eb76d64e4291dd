"""Finished trials are kept in a file, and a killed run ends with the same bytes as one that was left alone."""

import json
import math
from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import Processes, TrialFile, measure_trials
from hessdiag.parallel.progress import showing

OF = {"model": "lenet", "seed": "0"}


def third(seed: int) -> list[float]:
    return [seed / 3, math.inf]


def test_finished_trials_are_not_measured_again(tmp_path: Path) -> None:
    asked, steps = [], []

    def measure(seed: int) -> list[float]:
        asked.append(seed)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return third(seed)

    with pytest.raises(KeyboardInterrupt):
        measure_trials("thirds", range(1, 4), measure, file=TrialFile(tmp_path / "run", OF))
    with showing(steps.append, title="thirds"):
        found = measure_trials("thirds", range(1, 4), measure, file=TrialFile(tmp_path / "run", OF))
    assert found == [third(1), third(2), third(3)] == measure_trials("thirds", range(1, 4), third)
    assert asked == [1, 2, 3, 3]
    assert steps == ["trials"] * 3


def test_a_line_torn_anywhere_is_dropped_and_a_missing_folder_refused(tmp_path: Path) -> None:
    """Whatever part of the file was written when a run was killed, it ends with the same bytes."""
    path, cut = tmp_path / "whole", tmp_path / "cut"
    measure_trials("thirds", range(2), third, file=TrialFile(path, OF))
    whole = path.read_bytes()
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        assert measure_trials("thirds", range(2), third, file=TrialFile(cut, OF)) == [third(0), third(1)]
        assert cut.read_bytes() == whole
    with pytest.raises(HessdiagError, match="name a new file in a writable folder"):
        TrialFile(tmp_path / "no" / "run", OF)


def test_processes_measure_each_their_share(tmp_path: Path) -> None:
    asked: list[int] = []

    class Second(Processes):
        def gather(self, measure):  # type: ignore[no-untyped-def]
            return [{1: "theirs", 3: "theirs"}, measure()]

    found = measure_trials("shared", [1, 2, 3], lambda seed: asked.append(seed) or "mine", processes=Second(1, 2))
    assert asked == [2]
    assert found == ["theirs", "mine", "theirs"]


@pytest.mark.parametrize(("content", "told"), [
    (json.dumps({"of": {"model": "mlp"}}) + "\n", "another measurement, model was mlp and is lenet"),
    ("a letter\nto somebody\n", "cannot resume from"),
    ("[1, 2]\n", "cannot resume from"),
])  # fmt: skip
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "run").write_text(content)
    with pytest.raises(HessdiagError, match=told):
        TrialFile(tmp_path / "run", OF)
    assert (tmp_path / "run").read_text() == content
