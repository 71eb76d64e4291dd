"""Torch's global random state: set to a seed for a while, and put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded_rng(seed: int) -> Iterator[None]:
    """Draw as a seed has it, on the CPU and on the CUDA devices in use; their random states are put back."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if in_use else []
    with torch.random.fork_rng(devices=devices):
        seed_torch(seed, devices)
        yield


def seed_torch(seed: int, devices: Iterable[int] = ()) -> None:
    """Seed the CPU and these CUDA devices.

    `torch.manual_seed` asks for devices of every kind, and keeps a stack trace at each call for those not in use.
    """
    torch.default_generator.manual_seed(seed)
    for device in devices:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
