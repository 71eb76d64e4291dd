"""Memory is asked for and bounded, and chunks are halved where it runs out."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.data.memory import CHUNK, MIN_MEMORY, MemoryBudget, as_bytes, free_memory, is_out_of_memory
from hessdiag.errors import HessdiagError

CPU = torch.device("cpu")


def test_half_of_the_free_memory_by_default() -> None:
    total = MemoryBudget.of(None, CPU).total
    assert 0.3 * free_memory(CPU) < total < 0.7 * free_memory(CPU)


def test_the_memory_asked_for_bounds_the_chunks() -> None:
    assert MemoryBudget.of(2**40, CPU).chunk == CHUNK
    assert MemoryBudget.of(8 * 2**20, CPU).chunk < 8 * 2**20
    with pytest.raises(HessdiagError, match="pass a number of bytes, at least"):
        MemoryBudget.of(MIN_MEMORY - 1, CPU)


@pytest.mark.parametrize(("text", "size"), [("4GiB", 2**32), ("500 mb", 500 * 2**20), ("2000000", 2000000)])
def test_sizes_in_words(text: str, size: int) -> None:
    assert as_bytes(text) == size


@pytest.mark.parametrize("asked", ["much", "-4GiB", "1.5GiB", True, float("nan"), None])
def test_what_is_no_size_is_refused(asked: object) -> None:
    with pytest.raises(HessdiagError, match="pass a size such as '4GiB'"):
        as_bytes(asked)


def test_an_allocation_that_fails_is_recognised() -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**62, dtype=torch.uint8)
    assert is_out_of_memory(failure.value)
    assert not is_out_of_memory(RuntimeError("size mismatch"))


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
import resource, torch, hessdiag
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model, x = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 100)), torch.randn(600, 300)
hessdiag.diagnose(model, x[:2], signals=False)
from hessdiag.data import memory
memory.CHUNK = 2**31  # chunks that are far too large
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)
for limit in (used + 220 * 2**20, most):
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    print(hessdiag.diagnose(model, x, max_memory=2**34, signals=False).blocks[0].avg_sq_singular_value)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
def test_chunks_are_halved_where_memory_really_runs_out() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], check=True, capture_output=True, text=True)
    limited, free = map(float, done.stdout.split())
    assert free == pytest.approx(limited, rel=1e-5)
