"""Several real processes share a diagnosis: the numbers of one, and a message where something goes wrong."""

import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from hessdiag.results.report import Report

FACTORY = """
import os, torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (6,)

class Dying(nn.Linear):
    calls = 0
    def forward(self, x):
        Dying.calls += 1
        if os.environ.get("RANK") == "1" and Dying.calls > 2:
            os.kill(os.getpid(), 9)
        return super().forward(x)

def dying():
    torch.manual_seed(0)
    return nn.Sequential(Dying(6, 8), nn.ReLU(), nn.Linear(8, 5)), (6,)
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


def test_a_process_that_dies_ends_the_run_with_a_message(folder: Path) -> None:
    first, second = run_two("-m", "hessdiag", "diagnose", "./nets.py:dying", "--json", "no.json")
    assert (first[0], second[0]) == (2, -9)
    assert re.fullmatch(r"hessdiag: another process of this run is gone \(.*", first[2].strip().splitlines()[-1])
    assert not (folder / "no.json").exists()
