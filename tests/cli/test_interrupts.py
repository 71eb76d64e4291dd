"""Ctrl-C is one line and exit status 130."""

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
        open("called", "w").close()
        time.sleep(float(os.environ.get("SLOW", 0)))
        return super().forward(x)

def build(): return Slow(4, 2), 4
"""
CHECK = ["check-init", "geometric", "--model", "./net.py:build", "--against", "fan-in", "--setups", "200"]
CHECK += ["--batch-size", "2"]
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


def test_a_check_that_is_interrupted_writes_nothing(folder: Path) -> None:
    process = start(RUN, [*CHECK, "--json", "two.json"], ("/dev/null", "out", "err"), SLOW="0.01")
    started = time.monotonic()
    while not (folder / "called").exists():
        assert time.monotonic() - started < 120
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process, "out", "err") == (130, "", "hessdiag: interrupted\n")
    assert not (folder / "two.json").exists()
