"""Several real processes: equal results, and a message instead of a hang when one dies."""

import math
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hessdiag.__main__ import main
from hessdiag.errors import HessdiagError
from hessdiag.execution.ranks import ALONE, all_ranks, launched, launched_rank
from hessdiag.results.report import Report

FACTORY = """
import os, torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (6,)

def unseeded():
    torch.manual_seed(int(os.environ.get("RANK", 0)))
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

def data():
    torch.manual_seed(1)
    for size in (7, 7, 3):
        yield torch.randn(size, 6), torch.randint(5, (size,))
"""


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Two processes under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SHARED = [
    "--batch-size 9 --max-memory 1MiB",
    "--method sketch --batch-size 5",
    "--matrix hessian --batch-size 5",
    "--per batch --method exact --batch-size 6",
    "--per batch --method sketch --batch-size 30 --rtol 0.1 --max-memory 1MiB",
    "--data ./nets.py:data --batches all --loss cross-entropy",
]
ONE_AFTER_ANOTHER = """
import os, sys
from contextlib import redirect_stdout
from hessdiag.__main__ import main

for number, port_and_options in enumerate(sys.argv[1:]):
    os.environ["MASTER_PORT"], _, options = port_and_options.partition(" ")
    with open(f"{number}.txt", "a") as printed, redirect_stdout(printed):
        assert main(f"diagnose ./nets.py:net {options} --json both{number}.json".split()) == 0
"""


def free_ports(count: int) -> list[str]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(each.getsockname()[1]) for each in held]


def begin(folder: Path, *arguments: str) -> list["subprocess.Popen[str]"]:
    """Two processes of one run, which no launcher watches."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={"MASTER_PORT": port, **shared, "RANK": rank},
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        for port in free_ports(1)
        for rank in "01"
    ]


def test_two_processes_find_what_one_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several measurements by the same two processes: to start two takes longer than any of these."""
    (folder / "measure.py").write_text(ONE_AFTER_ANOTHER)
    runs = [f"{port} {options}" for port, options in zip(free_ports(len(SHARED)), SHARED, strict=True)]
    for process in begin(folder, "measure.py", *runs):
        told = process.communicate(timeout=120)[1]
        assert process.returncode == 0, told
    for number, options in enumerate(SHARED):
        assert main(f"diagnose ./nets.py:net {options} --json one.json".split()) == 0
        both, one = Report.from_json(f"both{number}.json"), Report.from_json("one.json")
        assert (both.batch_size, both.batches, both.skipped) == (one.batch_size, one.batches, one.skipped)
        for a, b in zip(both.blocks, one.blocks, strict=True):
            assert (a.name, a.gamma, a.nu) == (b.name, pytest.approx(b.gamma, rel=1e-4), pytest.approx(b.nu, rel=1e-4))
            apart = 1e-4 * b.avg_sq_singular_value + 5 * math.hypot(a.stderr, b.stderr)
            assert abs(a.avg_sq_singular_value - b.avg_sq_singular_value) <= apart, options
        printed = (folder / f"{number}.txt").read_text()
        assert printed.count("\n") == capsys.readouterr().out.count("\n"), options  # once


def test_a_rank_that_dies_ends_the_run_with_a_message(folder: Path) -> None:
    ranks = begin(folder, "-m", "hessdiag", "diagnose", "./nets.py:dying", "--json", "no.json")
    messages = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [2, -9]
    assert messages[0].startswith("hessdiag: another process of this run is gone (")
    assert messages[0].count("\n") == 1
    assert not (folder / "no.json").exists()


def test_ranks_with_different_weights_are_refused(folder: Path) -> None:
    script = folder / "own.py"
    script.write_text(
        "import sys, torch, hessdiag, torch.distributed as dist\n"
        "from nets import unseeded\n"
        "dist.init_process_group('gloo')\n"
        "model, size = unseeded()\n"
        "try:\n    hessdiag.diagnose(model, torch.ones(4, 6), distributed=True)\n"
        "except hessdiag.HessdiagError as error:\n    sys.stderr.write(f'refused: {error}\\n')\n"
        "dist.destroy_process_group()\n"
    )
    for process in begin(folder, script.name):
        told = process.communicate(timeout=120)[1]
        assert told.count("refused: the processes hold different weights") == 1, told


def test_bad_input_is_said_once(folder: Path) -> None:
    refused = launch(folder, *["-m", "hessdiag", "diagnose", "./nets.py:net", "--method", "magic"])
    assert refused.returncode != 0
    assert len(re.findall("^hessdiag: ", refused.stderr, flags=re.MULTILINE)) == 1


def test_alone_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert launched_rank() is None
    with launched("cpu") as ranks:
        assert ranks is ALONE
    assert ALONE.gather(3) == [3]
    with pytest.raises(HessdiagError, match="distributed=True needs"):
        all_ranks()


def test_a_launcher_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(HessdiagError, match="cannot join the other processes"), launched("cpu"):
        pass
