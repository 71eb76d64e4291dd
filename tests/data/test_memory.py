"""Memory is bounded, and chunks are halved when it runs out: sums over them do not depend on that."""

import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MIN_MEMORY, MemoryBudget, Sums, as_bytes, free_memory, is_out_of_memory, sum_over
from hessdiag.parallel.progress import showing
from tests.processes import ended, start

CPU = torch.device("cpu")


def test_half_of_the_free_memory_by_default_and_what_is_asked_for_bounds_the_chunks() -> None:
    assert 0.3 * free_memory(CPU) < MemoryBudget.of(None, CPU).total < 0.7 * free_memory(CPU)
    assert MemoryBudget.of(2**40, CPU).chunk == 64 * 2**20
    assert MemoryBudget.of(8 * 2**20, CPU).chunk < 8 * 2**20
    with pytest.raises(hessdiag.HessdiagError, match="pass a number of bytes, at least"):
        MemoryBudget.of(MIN_MEMORY - 1, CPU)
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**62, dtype=torch.uint8)
    assert is_out_of_memory(failure.value)
    assert not is_out_of_memory(RuntimeError("size mismatch"))


def test_sizes_in_words_and_what_is_none() -> None:
    assert [as_bytes(text) for text in ("4GiB", "500 mb", "2000000")] == [2**32, 500 * 2**20, 2000000]
    for asked in ("much", "-4GiB", "1.5GiB", True, float("nan"), None):
        with pytest.raises(hessdiag.HessdiagError, match="pass a size such as '4GiB'"):
            as_bytes(asked)


def test_numbers_do_not_depend_on_the_memory() -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 200)).double()
    x = torch.randn(9, 30, dtype=torch.float64)
    for method in ("exact", "sketch"):
        much, little = (hessdiag.diagnose(model, x, method=method, max_memory=m) for m in (2**30, 2**22))
        for a, b in zip(much.blocks, little.blocks, strict=True):
            assert a.avg_sq_singular_value == pytest.approx(b.avg_sq_singular_value, rel=1e-11)
            assert a.gamma_curvature == pytest.approx(b.gamma_curvature, rel=1e-11)


# What takes memory has a process of its own.
MEASURED = """
import os, resource, sys, torch, hessdiag
from hessdiag.data import memory
from torch import nn


def net(*widths):
    torch.manual_seed(0)
    layers = [layer for n, m in zip(widths, widths[1:]) for layer in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def asked_for():
    model, x, t = net(300, 1000, 1000, 500, 500, 10), torch.randn(128, 300), torch.randint(10, (128,))
    before = peak()
    hessdiag.diagnose(model, x, t, loss="cross-entropy", max_memory="100MiB")
    print(peak() - before)

def sketched(most):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 5), nn.Flatten(), nn.Linear(9216, 10))
    x, t, before = torch.randn(40, 3, 32, 32), torch.randint(10, (40,)), peak()
    options = {"loss": "cross-entropy", "per": "batch", "method": "sketch", "signals": False}
    block = hessdiag.diagnose(model, x, t, max_memory=most, **options).blocks[0]
    print(peak() - before, block.avg_sq_singular_value, block.stderr)

def limited(more):
    model, x = net(150, 150, 60), torch.randn(400, 150)
    hessdiag.diagnose(model, x[:2], signals=False)
    memory.CHUNK, failed, is_out_of_memory = 2**31, [], memory.is_out_of_memory  # chunks that are far too large
    memory.is_out_of_memory = lambda error: failed.append(1) or is_out_of_memory(error)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    if more:
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
    report = hessdiag.diagnose(model, x, max_memory=2**34, signals=False)
    print(len(failed), report.blocks[0].avg_sq_singular_value)

for measure, *given in ((asked_for,), (sketched, "48MiB"), (sketched, "2GiB"), (limited, 60 * 2**20), (limited, 0)):
    if os.fork() == 0:
        warm = net(3, 4, 5), torch.randn(2, 3), torch.randint(5, (2,))  # loads code, which is not of the measurement
        hessdiag.diagnose(*warm, loss="cross-entropy")
        measure(*given)
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    out = str(tmp_path_factory.mktemp("measured") / "out")
    status, printed = ended(start(MEASURED, streams=("/dev/null", out)), out)
    assert status == 0
    return [[float(number) for number in line.split()] for line in printed.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="limits a process, and knows its peak, as Linux does")
def test_memory_stays_within_what_it_may_take_and_chunks_are_halved_where_it_runs_out(measured) -> None:
    assert measured[0][0] < 1.2 * as_bytes("100MiB")
    (small, value, error), (large, other, other_error) = measured[1:3]
    assert small <= as_bytes("48MiB") < large
    assert abs(value - other) <= 4 * (error**2 + other_error**2) ** 0.5
    (halved, limited), (whole, free) = measured[3:]
    assert halved > whole == 0
    assert free == pytest.approx(limited, rel=1e-5)


EIGHT = Batch.of(torch.arange(8.0), None)


def summed(part: Batch) -> Sums:
    return Sums(sum=np.array([float(part.args[0].sum())]))


def test_sums_do_not_depend_on_the_chunks() -> None:
    for size in (1, 3, 8):
        steps: list[str] = []
        with showing(steps.append, title="sums"):
            assert sum_over(list(EIGHT.chunks(size)), summed, step="sum")["sum"].tolist() == [28.0]
        assert steps == ["sum"] * -(-8 // size)
    assert (Sums(a=np.ones(2)) + Sums(b=np.ones(1)))["a"].tolist() == [1, 1]


@pytest.mark.parametrize("fitting", [1, 2, 3, 8])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_chunk_that_does_not_fit_is_halved_until_it_does(fitting: int, error: Exception) -> None:
    sizes = []

    def measure(part: Batch) -> Sums:
        sizes.append(part.size)
        if part.size > fitting:
            raise error
        return summed(part)

    assert float(sum_over(list(EIGHT.chunks(5)), measure, step="sum")["sum"][0]) == 28.0
    assert sizes[0] == 5
    assert min(sizes) <= fitting


def test_what_halving_does_not_help_is_raised() -> None:
    for message in ("CUDA out of memory. Tried to allocate 2 GiB", "shapes differ"):
        with pytest.raises(RuntimeError, match=message):
            sum_over(list(EIGHT.chunks(4)), Mock(side_effect=RuntimeError(message)), step="sum")
