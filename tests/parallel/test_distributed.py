"""Several real processes share a diagnosis: the numbers of one, and a message where something goes wrong."""

import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import ALONE, Processes, default_group, launched
from hessdiag.results.report import Report

FACTORY = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (6,)

"""
SHARED = [
    "--batch-size 9",
    "--method sketch --batch-size 5",
    "--matrix hessian --batch-size 5",
    "--per batch --method exact --batch-size 6",
]
MEASURE = """
import os, sys
from hessdiag.__main__ import main

for number, port_and_options in enumerate(sys.argv[1:]):
    os.environ["MASTER_PORT"], _, options = port_and_options.partition(" ")
    assert main(f"diagnose ./nets.py:net {options} --json both{number}.json".split()) == 0
"""
LIBRARY = """
import os, torch, hessdiag, torch.distributed as dist
from nets import net

dist.init_process_group("gloo")
torch.manual_seed(0)
model, x, t = net()[0], torch.randn(17, 6), torch.arange(17) % 5
batches = [(x[start : start + 7], t[start : start + 7]) for start in (0, 7, 14)]
report = hessdiag.diagnose(model, batches, loss="cross-entropy", distributed=True)
report.to_json(f"rank{dist.get_rank()}.json")
hessdiag.diagnose(model, batches, loss="cross-entropy").to_json("alone.json")
model[0].weight.data.add_(dist.get_rank())
try:
    hessdiag.diagnose(model, x, distributed=True)
except hessdiag.HessdiagError as error:
    print(error, flush=True)
dist.destroy_process_group()
"""

GATHER = """
import os
from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import launched

def failing(rank):
    if rank == 1:
        raise ValueError("one too many")

with launched("cpu") as processes:
    rank = processes.rank
    print(processes.gather(lambda: list(range(5))[processes.share(5)]))
    try:
        processes.gather(lambda: failing(rank))
    except (HessdiagError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    if rank == 1:
        os._exit(9)
    try:
        processes.gather(lambda: rank)
    except HessdiagError as error:
        print(error, flush=True)
    os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return str(held.getsockname()[1])


def run_two(*arguments: str) -> list[tuple[int, str, str]]:
    """Status and outputs of two processes of one run, which no launcher watches."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=shared | {"OMP_NUM_THREADS": "1", "RANK": rank},
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for rank in "01"
    ]
    told = [process.communicate(timeout=120) for process in started]
    return [(process.returncode, *each) for process, each in zip(started, told, strict=True)]


def assert_alike(found: Report, expected: Report) -> None:
    assert (found.batch_size, found.batches, found.skipped) == (expected.batch_size, expected.batches, expected.skipped)
    for a, b in zip(found.blocks, expected.blocks, strict=True):
        assert (a.name, a.gamma, a.nu) == (b.name, pytest.approx(b.gamma, rel=1e-4), pytest.approx(b.nu, rel=1e-4))
        apart = 1e-4 * b.avg_sq_singular_value + 5 * math.hypot(a.stderr, b.stderr)
        assert abs(a.avg_sq_singular_value - b.avg_sq_singular_value) <= apart


def test_two_processes_find_what_one_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several measurements by the same two processes: to start two takes longer than any of these."""
    (folder / "measure.py").write_text(MEASURE)
    both = run_two("measure.py", *(f"{free_port()} {options}" for options in SHARED))
    assert [status for status, _, _ in both] == [0, 0], both
    printed = ""
    for number, options in enumerate(SHARED):
        assert main(f"diagnose ./nets.py:net {options} --json one.json".split()) == 0
        assert_alike(Report.from_json(f"both{number}.json"), Report.from_json("one.json"))
        printed += capsys.readouterr().out
    assert both[0][1].count("\n") == printed.count("\n")  # once, by the first
    assert both[1][1] == ""


def test_batches_are_shared_and_different_weights_refused(folder: Path) -> None:
    (folder / "library.py").write_text(LIBRARY)
    for status, out, err in run_two("library.py"):
        assert status == 0, err
        assert out.startswith("the processes hold different weights: give every one the same")
    ranks = [Report.from_json(f"rank{rank}.json") for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert_alike(ranks[0], Report.from_json("alone.json"))


def test_errors_reach_all_processes_and_a_dead_one_ends_the_run_with_a_message(folder: Path) -> None:
    (folder / "share.py").write_text(GATHER)
    (first, told, _), (second, other, _) = run_two("share.py")
    assert (first, second) == (0, 9)
    shared, failed, gone = told.splitlines()
    assert (shared, failed) == ("[[0, 1, 2], [3, 4]]", "HessdiagError: process 1 failed: one too many")
    assert gone.startswith("another process of this run is gone (")
    assert other.splitlines() == [shared, "ValueError: one too many"]


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
