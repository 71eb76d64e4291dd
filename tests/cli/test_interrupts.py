"""Ctrl-C and a kill: one line and exit status 130, and a run over many trials that goes on where it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hessdiag.__main__ import main

SLOW = """
import time
from pathlib import Path
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        Path('started').touch()
        time.sleep(0.02)
        return super().forward(x)

def build(): return Slow(4, 2), 4
"""
CHECK = ["check-init", "geometric", "--model", "./net.py:build", "--against", "fan-in", "--setups", "3"]
CHECK += ["--batch-size", "2", "--resume", "trials"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SLOW)
    return tmp_path


def start(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "hessdiag", *arguments]
    pipe = subprocess.PIPE
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, preexec_fn=heed_interrupts)


def heed_interrupts() -> None:
    """Tests that run in the background of a shell ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(path: Path, lines: int) -> None:
    started = time.monotonic()
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert time.monotonic() - started < 120
        time.sleep(0.01)


def test_an_interrupt_is_one_line(folder: Path) -> None:
    process = start("diagnose", "./net.py:build", "--batch-size", "4000", "--matrix", "hessian", "--method", "probe")
    wait_for(folder / "started", lines=0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "hessdiag: interrupted\n")


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


def test_a_check_that_is_interrupted_and_killed_ends_with_the_same_bytes(folder: Path) -> None:
    assert main([*CHECK[:-1], "undisturbed", "--json", "one.json"]) == 0
    for lines, each in ((2, signal.SIGINT), (4, signal.SIGKILL)):
        process = start(*CHECK, "--json", "two.json")
        wait_for(folder / "trials", lines)
        process.send_signal(each)
        process.communicate(timeout=60)
        assert not (folder / "two.json").exists()
    assert main([*CHECK, "--json", "two.json"]) == 0
    assert (folder / "two.json").read_bytes() == (folder / "one.json").read_bytes()
    assert (folder / "trials").read_bytes() == (folder / "undisturbed").read_bytes()


def test_trials_of_edited_code_or_other_settings_are_refused(folder: Path, capsys) -> None:
    assert main(CHECK) == 0
    (folder / "net.py").write_text(SLOW.replace("0.02", "0.01"))
    assert main(CHECK) == 2
    assert "cannot resume from 'trials': it is of another measurement, net.py was" in capsys.readouterr().err
    (folder / "net.py").write_text(SLOW)
    assert main([*CHECK, "--eval"]) == 2
    assert "it is of another measurement, evaluate was False and is True" in capsys.readouterr().err


def test_trials_are_shared_by_processes(folder: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hessdiag"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *CHECK, "--json", "two.json"], env=environment, check=True, capture_output=True)
    assert main([*CHECK, "--json", "resumed.json"]) == 0  # by the file that two processes wrote
    assert main([*CHECK[:-2], "--json", "one.json"]) == 0
    assert (folder / "two.json").read_bytes() == (folder / "one.json").read_bytes()
    assert (folder / "resumed.json").read_bytes() == (folder / "one.json").read_bytes()
