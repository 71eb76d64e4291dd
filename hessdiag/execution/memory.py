"""Moved to `hessdiag.data.memory`, but for what goes: the allocator trick and the peak."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def watching_peak(device: torch.device) -> Iterator[list[int]]:
    """Note by how many bytes the peak of this process, or of torch on the GPU, rises inside the context."""
    peak: list[int] = []
    before = _peak(device)
    try:
        yield peak
    finally:
        peak.append(max(0, _peak(device) - before))


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
