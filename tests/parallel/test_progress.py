"""Steps are shown to functions, terminals and nobody."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.parallel import progress
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


def test_elsewhere_long_measurements_tell_their_cost_beforehand_and_a_line_each_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
