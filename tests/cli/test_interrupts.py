"""Ctrl-C is one line and exit status 130, and a run over many trials goes on where it was, however it ended."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from tests.processes import ended, start

SLOW = """
import os, time
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return super().forward(x)

def build(): return Slow(4, 2), 4
"""
CHECK = ["check-init", "geometric", "--model", "./net.py:build", "--against", "fan-in", "--setups", "2"]
CHECK += ["--batch-size", "2", "--resume", "trials"]
RUN = "from hessdiag.__main__ import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SLOW)
    return tmp_path


def test_an_interrupt_while_libraries_are_imported(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    class Interrupting:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "hessdiag.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith("hessdiag.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main(["explain"]) == 130
    assert capsys.readouterr() == ("", "hessdiag: interrupted\n")


def test_a_check_that_is_interrupted_or_killed_ends_with_the_same_bytes(folder: Path, capsys) -> None:
    line = [*CHECK, "--json", "two.json"]
    process = start(RUN, line, ("/dev/null", "out", "err"), SLOW="0.01")
    trials, started = folder / "trials", time.monotonic()
    while not trials.exists() or trials.read_bytes().count(b"\n") < 2:
        assert time.monotonic() - started < 120
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, "out", "err") == (130, "", "hessdiag: interrupted\n")
    assert not (folder / "two.json").exists()
    assert main(line) == 0
    finished, whole = (folder / "two.json").read_bytes(), trials.read_bytes()
    trials.write_bytes(whole[: len(whole) * 2 // 3])  # killed while a line was written
    assert main(line) == 0
    assert ((folder / "two.json").read_bytes(), trials.read_bytes()) == (finished, whole)
    assert main([*CHECK[:-2], "--json", "one.json"]) == 0
    assert (folder / "one.json").read_bytes() == finished
    assert main([*CHECK, "--input-size", "4"]) == 2
    assert "it is of another measurement, input_size was None and is (4,)" in capsys.readouterr().err
    (folder / "net.py").write_text(SLOW + "# changed")
    assert main(CHECK) == 2
    assert "cannot resume from 'trials' (it is of another measurement, net.py was" in capsys.readouterr().err
