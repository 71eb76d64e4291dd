"""Steps are shown to functions, terminals and nobody; trials run here or in processes, and are kept in a file."""

import io
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.parallel import progress
from hessdiag.parallel.processes import Processes, TrialFile, measure_trials
from hessdiag.parallel.progress import advance, announce, showing


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def a_terminal() -> Iterator[Terminal]:
    """Stderr is one; a fixture could not set it, as pytest sets its own for the test."""
    with pytest.MonkeyPatch.context() as patched:
        screen = Terminal()
        patched.setenv("TERM", "xterm")
        patched.setenv("COLUMNS", "100")
        patched.setattr(sys, "stderr", screen)
        yield screen


def two_steps() -> None:
    announce("moments [x]", 2)
    advance("moments")
    advance("moments")


def test_functions_see_each_finished_step_and_what_cannot_show_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with showing(told.append, title="outer"):
        two_steps()
        with showing(False, title="inner"):
            advance("unheard")
    advance("after")
    assert told == ["moments", "moments"]
    with pytest.raises(HessdiagError, match="progress 'loud': pass True"), showing("loud", title="x"):  # type: ignore[arg-type]
        pass
    monkeypatch.setenv("RANK", "1")
    with a_terminal() as screen, showing(True, title="measuring"):
        two_steps()
    assert screen.getvalue() == ""


def test_a_line_in_a_terminal_has_title_step_and_count_and_goes() -> None:
    for total, seen in ((None, "measuring, 0 s so far: moments [x] 0/2"), (5, "so far: moments 2/5")):
        with a_terminal() as screen, showing(True, title="measuring", total=total):
            two_steps()
        assert seen in screen.getvalue()
        assert "\n" not in screen.getvalue()
        assert screen.getvalue().endswith("\r\x1b[2K")


def test_a_line_appears_where_it_takes_long_or_is_asked_for(monkeypatch, capsys) -> None:
    with a_terminal() as screen, showing(None, title="measuring"):
        two_steps()
        assert screen.getvalue() == ""
        monkeypatch.setattr(progress.time, "monotonic", lambda: 1e9)
        two_steps()
    assert "2/2" in screen.getvalue()
    for asked in (None, False):
        with showing(asked, title="measuring"):
            two_steps()
    assert capsys.readouterr() == ("", "")
    with showing(True, title="measuring"):
        two_steps()
    assert capsys.readouterr().err.splitlines() == [
        f"hessdiag: measuring, 0 s so far: moments {step}" for step in ("[x] 0/2", "1/2", "2/2")
    ]


def test_elsewhere_long_measurements_tell_their_cost_and_a_line_each_half_minute(monkeypatch, capsys) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with showing(None, title="measuring"):
        announce("moments", 1, gradients=4)
        now = 8.0
        advance("moments")
        announce("sketches", 20, gradients=25)  # each gradient took 2 s
        for _ in range(20):
            now += 2.5
            advance("sketches")
    said = "hessdiag: measuring, {} s so far: sketches {}/20 (25 gradients), ~58 s in all"
    assert capsys.readouterr() == ("", "\n".join([said.format(8, 0), said.format(38, 12), ""]))


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
    assert (asked, steps) == ([1, 2, 3, 3], ["trials"] * 3)


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
    assert (asked, found) == ([2], ["theirs", "mine", "theirs"])


@pytest.mark.parametrize(("content", "told"), [
    (json.dumps({"of": {"model": "mlp"}}) + "\n", "another measurement, model was mlp and is lenet"),
    ("a letter\nto somebody\n", "cannot resume from"), ("[1, 2]\n", "cannot resume from"),
])  # fmt: skip
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "run").write_text(content)
    with pytest.raises(HessdiagError, match=told):
        TrialFile(tmp_path / "run", OF)
    assert (tmp_path / "run").read_text() == content
