"""Whether this is one of several processes of one command. Nothing here imports torch."""

from __future__ import annotations

import os


def is_launched() -> bool:
    """Whether this is one of several processes that torchrun started."""
    size = os.environ.get("WORLD_SIZE", "")
    return size.isdecimal() and int(size) > 1
