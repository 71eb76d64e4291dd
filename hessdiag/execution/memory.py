"""Moved to `hessdiag.data.memory`, but for what goes: the allocator trick and the peak."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

from hessdiag.data.memory import (
    CHUNK,
    MIN_MEMORY,
    OVERHEAD,
    as_bytes,
    free_memory,
    is_out_of_memory,
    release,
    unless_out_of_memory,
)
from hessdiag.data.memory import MemoryBudget as Memory

__all__ = [
    "CHUNK",
    "MIN_MEMORY",
    "OVERHEAD",
    "Memory",
    "as_bytes",
    "free_memory",
    "is_out_of_memory",
    "release",
    "unless_out_of_memory",
]
LARGEST_OF_HEAP = 2**25 - 2**16  # bytes; glibc takes blocks of 32 MiB and more from the system, whatever was freed


@cache
def keep_freed_memory() -> None:
    """Have C's allocator keep up to 64 MiB of what is freed, instead of giving it back and asking for it again.

    glibc keeps twice the size of the largest block that it took from the system by itself and was freed (`man mallopt`,
    M_MMAP_THRESHOLD). Nothing is written to the one here, so that it takes no memory; other allocators do as they do.
    """
    torch.empty(LARGEST_OF_HEAP, dtype=torch.uint8)


@contextmanager
def watching_peak(device: torch.device) -> Iterator[list[int]]:
    """Note how much memory is taken inside the context at most, beside what was in use before, in bytes.

    That is memory of this process, or what torch holds on the GPU.
    """
    peak: list[int] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        _reset_peak()
        before = _peak()
    try:
        yield peak
    finally:
        after = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _peak()
        peak.append(max(0, after - before))


def _reset_peak() -> None:
    with suppress(OSError):  # not Linux: the peak is that of the whole process so far
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
