"""Steps told to functions, terminals, notebooks and nobody."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.execution import notebook_line
from hessdiag.execution.notebook_line import NotebookLine
from hessdiag.execution.progress import watched
from hessdiag.execution.work import Work

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def a_terminal() -> Iterator[Terminal]:
    """Stderr is one; afterwards, no bar is left that waits to appear."""
    screen, before = Terminal(), sys.stderr
    sys.stderr = screen
    try:
        yield screen
    finally:
        sys.stderr = before
    assert [thread.name for thread in threading.enumerate() if isinstance(thread, threading.Timer)] == []


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def measure(**options: object) -> None:
    hessdiag.diagnose(nn.Linear(4, 3), X, **options)


def test_in_a_terminal_a_bar_has_title_total_and_time() -> None:
    with a_terminal() as screen:
        measure(progress=True)
    for said in ("measuring Linear: moments", "measuring Linear: exact blocks", "0/1", "0:00"):
        assert said in screen.getvalue()


def test_what_is_over_in_a_moment_shows_no_bar() -> None:
    with a_terminal() as screen, watched(None, title="measuring", total=2, patience=60.0) as step:
        step()
    assert screen.getvalue() == ""


def test_a_bar_counts_and_tells_what_is_left() -> None:
    with a_terminal() as screen, watched(None, title="measuring [x]", total=3, patience=0.0) as step:
        step("one")
        time.sleep(0.6)
        step("two")
        step.display.refresh()
    text = screen.getvalue()
    assert "measuring [x]" in text
    assert "2/3" in text
    assert " left" in text


def test_batches_have_a_bar_of_their_own() -> None:
    with a_terminal() as screen:
        hessdiag.diagnose(nn.Linear(4, 3), [(part, None) for part in X.split(2)], progress=True)
    assert "measuring Linear: batches" in screen.getvalue()
    assert "2/3" in screen.getvalue()


@pytest.mark.parametrize(("most", "per", "seen"), [(None, "example", 3), (2, "example", 2), (None, "batch", 1)])
def test_batches_are_announced_with_their_number(most: int | None, per: str, seen: int) -> None:
    told = []

    def step(name: str) -> None:
        told.append(name)

    step.batch = lambda number, total: told.append((number, total))
    batches = [(part, None) for part in X.split(2)]
    hessdiag.diagnose(nn.Linear(4, 3), batches, batches=most, per=per, progress=step)
    assert [each for each in told if isinstance(each, tuple)] == [(number + 1, seen) for number in range(seen)]
    assert told[0] == (1, seen)


def test_a_bar_inside_another_one_does_not_disturb() -> None:
    with a_terminal() as screen, watched(True, title="outer", total=1):
        measure(progress=True)
    assert "outer" in screen.getvalue()


def test_elsewhere_nothing_is_said_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    measure()
    assert capsys.readouterr() == ("", "")
    measure(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "hessdiag: 1 done, last moments"


def test_of_several_processes_the_first_one_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with a_terminal() as screen:
        measure(progress=True)
    assert screen.getvalue() == ""


def test_units_are_announced_before_they_are_done() -> None:
    told = []

    def step(name: str) -> None:
        told.append(name)

    step.plan = lambda name, count: told.append((name, count))
    Work(progress=step).each("squares", [3, 1], lambda n: {"n": np.array(n * n)})
    assert told == [("squares", 2), "squares", "squares"]


def test_a_notebook_has_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    updated = SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        shown.append(content["text/plain"])
        return updated

    shell = type("ZMQInteractiveShell", (), {})()
    library = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", library)
    monkeypatch.setattr(notebook_line, "PATIENCE", 0.0)
    monkeypatch.setattr(notebook_line, "REFRESHED", 0.0)
    measure()
    assert shown[0].startswith("measuring Linear: moments 0/1, 0:00 elapsed")
    assert shown[-1] == ""


def test_the_line_tells_how_long_it_takes_still() -> None:
    line = NotebookLine("measuring", None)
    line.step, line.done, line.total, line.phase, line.began = "blocks", 2, 8, 10.0, 5.0
    assert line.line(20.0) == "measuring: blocks 2/8, 0:15 elapsed, 0:30 left"
    line.batch(2, 4)
    assert line.line(20.0) == "measuring, batch 2 of 4: blocks 2/8, 0:15 elapsed, 0:25 left"


@pytest.mark.parametrize(
    ("call", "steps"),
    [
        (lambda told: hessdiag.measure_setups("mlp:4-3-2", setups=2, batch_size=4, progress=told), 2),
        (lambda told: hessdiag.learning_rates(nn.Linear(4, 3), X, torch.arange(6) % 3, steps=4, progress=told), 4),
        (lambda told: hessdiag.predict(nn.Linear(4, 3), (4,), progress=told), 2),
    ],
    ids=["set-ups", "steps", "operations"],
)
def test_other_measurements_tell_their_steps_too(call, steps: int) -> None:
    told: list[str] = []
    call(lambda *step: told.append(*step))
    assert len(told) >= steps
