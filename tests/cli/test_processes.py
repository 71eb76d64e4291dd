"""Several processes share a figure's set-ups: the same numbers, and none outlives the others."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hessdiag.cli.processes import in_processes, is_launched, usable_cores

RATIOS = [sys.executable, "-m", "hessdiag", "reproduce", "ratios"]


def test_two_processes_measure_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # sums round otherwise with more threads
    for count in ("1", "2"):
        command = [*RATIOS, "--quick", "--processes", count, "--out", str(tmp_path / count)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("γ/σ² over 10")
    assert (tmp_path / "1" / "ratios.json").read_bytes() == (tmp_path / "2" / "ratios.json").read_bytes()


def begun(tmp_path: Path) -> tuple["subprocess.Popen[str]", psutil.Process]:
    """The figure in two processes, the second of which has loaded all it needs."""
    command = [*RATIOS, "--processes", "2", "--out", str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        for child in psutil.Process(first.pid).children():
            if child.memory_info().rss > 2**27:
                return first, child
        time.sleep(0.05)
    first.kill()
    pytest.fail("the second process has not begun")


def test_the_others_end_when_the_first_is_killed(tmp_path: Path) -> None:
    first, second = begun(tmp_path)
    first.kill()
    first.communicate()
    second.wait(20)
    assert not second.is_running()


def test_the_first_ends_when_another_is_killed(tmp_path: Path) -> None:
    first, second = begun(tmp_path)
    second.kill()
    _, told = first.communicate(timeout=20)
    assert first.returncode == 2
    assert told.strip().splitlines()[-1] == "hessdiag: another process of this run is gone: start it again"


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    before = dict(os.environ)
    assert not is_launched()
    with in_processes(2, ["--version"]):
        assert is_launched()
        assert os.environ["RANK"] == "0"
        assert os.environ["LOCAL_WORLD_SIZE"] == "2"  # by which those that read images share the cores
    assert dict(os.environ) == before


def test_cores_are_those_that_were_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = usable_cores()
    assert every >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert usable_cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", str(every + 5))
    assert usable_cores() == every


@pytest.mark.parametrize("size", ["1", "2"])
def test_a_process_ends_as_it_should_whatever_pytorch_does(size: str) -> None:
    """What was registered to run at the end runs, what was printed is there, and the status is the one asked for."""
    code = "import atexit; from hessdiag.__main__ import end; atexit.register(print, 'at the end', end=''); end(3)"
    environment = os.environ | {"WORLD_SIZE": size}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "at the end", "")
