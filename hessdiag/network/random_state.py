"""Torch's global random state: set to a seed for a while, and put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded_rng(seed: int | None) -> Iterator[None]:
    """Draw as a seed, if any, has it, on the CPU and on the CUDA devices in use; their random states are put back."""
    with torch.random.fork_rng(devices=_in_use()):
        if seed is not None:
            seed_torch(seed)
        yield


def seed_torch(seed: int, devices: Iterable[int] | None = None) -> None:
    """Seed the CPU and these CUDA devices, or those in use.

    `torch.manual_seed` asks for devices of every kind, and keeps a stack trace at each call for those not in use.
    """
    torch.default_generator.manual_seed(seed)
    for device in _in_use() if devices is None else devices:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _in_use() -> list[int]:
    initialised: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if initialised else []
