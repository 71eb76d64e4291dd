"""Runs of Weights & Biases that stay on this machine."""

import time
from pathlib import Path

DEADLINE = 20.0  # seconds


def read_offline_run(folder: Path, *, last: bytes) -> bytes:
    """Read the only run below a folder once it holds `last`: another process writes it, a moment after its end."""
    (path,) = folder.rglob("run-*.wandb")
    end = time.monotonic() + DEADLINE
    while last not in (content := path.read_bytes()) and time.monotonic() < end:
        time.sleep(0.01)
    return content
