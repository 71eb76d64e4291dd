"""Several real processes share and gather; an error on one is raised on all, and a dead one ends the run."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import ALONE, Processes, default_group, launched

SCRIPT = """
import json, os, sys
from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import launched

def failing(rank):
    if rank == 1:
        raise ValueError("one too many")

with launched("cpu") as processes:
    rank = processes.rank
    told = [processes.gather(lambda: list(range(5))[processes.share(5)])]
    try:
        processes.gather(lambda: failing(rank))
    except (HessdiagError, ValueError) as error:
        told.append(f"{type(error).__name__}: {error}")
    if sys.argv[1] == "dies" and rank == 1:
        os._exit(9)
    try:
        processes.gather(lambda: rank)
    except HessdiagError as error:
        told.append(str(error))
    print(json.dumps(told), flush=True)
    if sys.argv[1] == "dies":
        os._exit(0)
"""


def run_two(tmp_path: Path, *arguments: str) -> list[str]:
    """What two processes print, which no launcher watches."""
    (tmp_path / "share.py").write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(tmp_path / "share.py"), *arguments]
    started = [
        subprocess.Popen(command, env={**shared, "RANK": rank}, stdout=subprocess.PIPE, text=True) for rank in "01"
    ]
    return [process.communicate(timeout=120)[0] for process in started]


def test_two_processes_share_and_gather(tmp_path: Path) -> None:
    first, second = run_two(tmp_path, "lives")
    assert first == '[[[0, 1, 2], [3, 4]], "HessdiagError: process 1 failed: one too many"]\n'
    assert second == '[[[0, 1, 2], [3, 4]], "ValueError: one too many"]\n'


def test_a_process_that_dies_ends_the_run_with_a_message(tmp_path: Path) -> None:
    first, second = run_two(tmp_path, "dies")
    assert "another process of this run is gone (" in first
    assert second == ""


def test_alone_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with launched("cpu") as processes:
        assert processes is ALONE
    assert ALONE.gather(lambda: 3) == [3]
    with pytest.raises(HessdiagError, match="distributed=True needs"):
        default_group()


@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_every_example_has_one_process(count: int) -> None:
    shares = [range(count)[Processes(rank, 3).share(count)] for rank in range(3)]
    assert [number for share in shares for number in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_launcher_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(HessdiagError, match="cannot join the other processes"), launched("cpu"):
        pass
