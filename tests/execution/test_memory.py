"""Memory is asked for, bounded, and noted."""

import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.errors import HessdiagError
from hessdiag.execution.memory import CHUNK, MIN_MEMORY, Memory, free_memory, is_out_of_memory, watching_peak

CPU = torch.device("cpu")


def test_half_of_what_is_free_by_default() -> None:
    total = Memory.of(None, CPU).total
    assert 0.3 * free_memory(CPU) < total < 0.7 * free_memory(CPU)


def test_what_was_asked_for_bounds_the_chunks() -> None:
    assert Memory.of(2**40, CPU).chunk == CHUNK
    assert Memory.of(8 * 2**20, CPU).chunk < 8 * 2**20
    with pytest.raises(HessdiagError, match="pass a number of bytes, at least"):
        Memory.of(MIN_MEMORY - 1, CPU)


def test_an_allocation_that_fails_is_recognised() -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**62, dtype=torch.uint8)
    assert is_out_of_memory(failure.value)
    assert not is_out_of_memory(RuntimeError("size mismatch"))


def test_the_peak_is_that_of_the_measurement() -> None:
    held = torch.ones(64 * 2**20)
    with watching_peak(CPU) as idle:
        pass
    with watching_peak(CPU) as during:
        more = torch.ones(64 * 2**20)
        del more
    assert len(held) > 0
    assert idle[0] < 100 * 2**20
    assert 200 * 2**20 < during[0] < 400 * 2**20


def test_numbers_do_not_depend_on_the_memory() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 200)).double()
    x = torch.randn(9, 30, dtype=torch.float64)
    for method in ("exact", "sketch"):
        much, little = (hessdiag.diagnose(model, x, method=method, max_memory=m) for m in (2**30, 2**22))
        for a, b in zip(much.blocks, little.blocks, strict=True):
            assert a.avg_sq_singular_value == pytest.approx(b.avg_sq_singular_value, rel=1e-11)
            assert a.gamma_curvature == pytest.approx(b.gamma_curvature, rel=1e-11)


LIMITED = """
import resource, sys, torch, hessdiag
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model, x = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 100)), torch.randn(600, 300)
options = {"noise_scale": False, "signals": False, "learning_rates": False}
hessdiag.diagnose(model, x[:2], **options)
from hessdiag.execution import memory
memory.CHUNK = 2**31  # chunks that are far too large
if sys.argv[1] == "limited":
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 220 * 2**20,) * 2)
print(hessdiag.diagnose(model, x, max_memory=2**34, **options).blocks[0].avg_sq_singular_value)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
def test_chunks_are_halved_where_memory_really_runs_out() -> None:
    found = [
        float(subprocess.run([sys.executable, "-c", LIMITED, how], check=True, capture_output=True, text=True).stdout)
        for how in ("free", "limited")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


FAULTS = """
import resource, torch
from hessdiag.execution.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        first, second = torch.ones(2**24, dtype=torch.uint8), torch.ones(2**24, dtype=torch.uint8)
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
keep_freed_memory()
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="as glibc's allocator does")
def test_what_is_freed_is_not_asked_for_again() -> None:
    """Two blocks of 16 MiB are more than is kept by itself, in most processes: a page is then a fault each time."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    for _ in range(8):
        ran = subprocess.run(
            [sys.executable, "-c", FAULTS], env=environment, check=True, capture_output=True, text=True
        )
        given_back, kept = map(int, ran.stdout.split())
        assert kept < 1000
        if given_back > 1000:  # of 4 rounds of 8192 pages
            return
    pytest.skip("this allocator gives nothing back")
