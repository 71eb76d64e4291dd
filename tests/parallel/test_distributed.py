"""Several real processes share a diagnosis: the numbers of one, and a message where something goes wrong."""

import math
import socket
from pathlib import Path

import pytest

import hessdiag
from hessdiag.__main__ import main
from hessdiag.parallel.processes import ALONE, Processes, default_group, launched
from tests.processes import ended, start

FACTORY = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)), (6,)

"""
DIAGNOSES = [
    f"diagnose ./nets.py:net --device cpu {options}" for options in
    ("--method sketch --batch-size 5", "--matrix hessian --batch-size 5", "--per batch --method exact --batch-size 6")
]  # fmt: skip
CHECK = "check-init geometric --model ./nets.py:net --device cpu --against fan-in --setups 2 --batch-size 2"
PROCESS = """
import os, sys, torch, hessdiag, torch.distributed as dist
from hessdiag.__main__ import main
from hessdiag.errors import HessdiagError
from hessdiag.parallel.processes import launched
from nets import net

ports = sys.argv[1].split(",")
for line in sys.argv[2:]:  # on the command line
    os.environ["MASTER_PORT"] = ports.pop()
    assert main(line.split()) == 0

os.environ["MASTER_PORT"] = ports.pop()  # of a library that has a group of its own
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
except HessdiagError as error:
    print(error, flush=True, file=sys.stderr)
dist.destroy_process_group()

def failing(rank):
    if rank == 1:
        raise ValueError("one too many")

os.environ["MASTER_PORT"] = ports.pop()  # and what goes wrong
with launched("cpu") as processes:
    rank = processes.rank
    print(processes.gather(lambda: list(range(5))[processes.share(5)]), file=sys.stderr)
    try:
        processes.gather(lambda: failing(rank))
    except (HessdiagError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", flush=True, file=sys.stderr)
    if rank == 1:
        sys.stdout.flush()
        os._exit(9)
    try:
        processes.gather(lambda: rank)
    except HessdiagError as error:
        print(error, flush=True, file=sys.stderr)
    sys.stdout.flush()
    os._exit(0)
"""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return str(held.getsockname()[1])


def run_two(code: str, *arguments: str) -> list[tuple[int, str, str]]:
    """Status and outputs of two processes of one run, which no launcher watches."""
    shared = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    streams = [("/dev/null", f"out{rank}", f"err{rank}") for rank in range(2)]
    started = [start(code, arguments, each, RANK=str(rank), **shared) for rank, each in enumerate(streams)]
    return [ended(process, *each[1:]) for process, each in zip(started, streams, strict=True)]


def assert_alike(found: hessdiag.Report, expected: hessdiag.Report) -> None:
    assert (found.batch_size, found.batches, found.skipped) == (expected.batch_size, expected.batches, expected.skipped)
    for a, b in zip(found.blocks, expected.blocks, strict=True):
        assert (a.name, a.gamma, a.nu) == (b.name, pytest.approx(b.gamma, rel=1e-4), pytest.approx(b.nu, rel=1e-4))
        apart = 1e-4 * b.avg_sq_singular_value + 5 * math.hypot(a.stderr, b.stderr)
        assert abs(a.avg_sq_singular_value - b.avg_sq_singular_value) <= apart


def test_two_processes_find_what_one_does_and_errors_reach_both(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    lines = [f"{line} --json both{number}.json" for number, line in enumerate(DIAGNOSES)]
    lines.append(f"{CHECK} --resume trials --json both.json")
    both = run_two(PROCESS, ",".join(free_port() for _ in range(len(lines) + 2)), *lines)
    assert [status for status, _, _ in both] == [0, 9], both
    printed = ""
    for number, line in enumerate(DIAGNOSES):
        assert main(f"{line} --json one.json".split()) == 0
        assert_alike(hessdiag.Report.from_json(f"both{number}.json"), hessdiag.Report.from_json("one.json"))
        printed += capsys.readouterr().out
    assert main(f"{CHECK} --json one.json".split()) == 0
    printed += capsys.readouterr().out
    assert main(f"{CHECK} --resume trials --json resumed.json".split()) == 0  # by the file that both wrote
    assert Path("both.json").read_bytes() == Path("resumed.json").read_bytes() == Path("one.json").read_bytes()
    capsys.readouterr()
    assert both[0][1].count("\n") == printed.count("\n")  # once, by the first
    assert both[1][1] == ""
    ranks = [hessdiag.Report.from_json(f"rank{rank}.json") for rank in range(2)]
    assert ranks[0] == ranks[1]
    assert_alike(ranks[0], hessdiag.Report.from_json("alone.json"))
    first, second = (told.splitlines() for _, _, told in both)
    assert first[-4] == second[-3]
    assert first[-4].startswith("the processes hold different weights: give every one the same")
    assert first[-3:-1] == ["[[0, 1, 2], [3, 4]]", "HessdiagError: process 1 failed: one too many"]
    assert first[-1].startswith("another process of this run is gone (")
    assert second[-2:] == ["[[0, 1, 2], [3, 4]]", "ValueError: one too many"]


def test_alone_without_a_launcher_or_where_it_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with launched("cpu") as processes:
        assert processes is ALONE
    assert ALONE.gather(lambda: 3) == [3]
    with pytest.raises(hessdiag.HessdiagError, match="distributed=True: call"):
        default_group()
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(hessdiag.HessdiagError, match="cannot join the other processes"), launched("cpu"):
        pass
    for count in (0, 1, 7, 8):
        shares = [range(count)[Processes(rank, 3).share(count)] for rank in range(3)]
        assert [number for share in shares for number in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
