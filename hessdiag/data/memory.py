"""How much memory there is, when it ran out, and sums over chunks of examples, halved where they do not fit."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import psutil
import torch

from hessdiag.arguments import one_line
from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.parallel.progress import advance, announce

Found = TypeVar("Found")
SHARE = 2  # of the free memory, by default: half
CHUNK = 64 * 2**20  # bytes of activations at once, on a processor: larger tensors are new to it each time
OVERHEAD = 6  # what a chunk takes in all, over its activations and cotangents
MIN_MEMORY = 2**20
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory", "size calculation overflowed")
CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int:
    """Bytes that could be taken now: of the GPU, or of the machine and the container that this process runs in."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no such file, or "max"
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used))
    return free


def as_bytes(asked: Any) -> int:
    """Bytes of a number, or of a text such as 4GiB, 500M or 2000000.

    >>> as_bytes("2GiB")
    2147483648
    """
    size = None
    if isinstance(asked, str):
        found = re.fullmatch(r"([0-9]{1,12})\s*([KMGT]?)(?:i?B)?", asked.strip(), flags=re.IGNORECASE)
        size = int(found[1]) * UNITS[found[2].upper()] if found else None
    elif isinstance(asked, Real) and not isinstance(asked, bool) and math.isfinite(asked):
        size = int(float(asked))
    if size is None:
        raise HessdiagError(f"max_memory {asked!r}: pass a size such as '4GiB' or '500MiB', or a number of bytes")
    if size < MIN_MEMORY:
        raise HessdiagError(f"max_memory {asked!r}: pass a number of bytes, at least {MIN_MEMORY} (1MiB)")
    return size


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes that a measurement may take."""

    total: int  # in all, beside the model and the data
    chunk: int  # activations and cotangents of a chunk of examples: a share of a GPU's; on a processor what pays

    @classmethod
    def of(cls, asked: int | str | None, device: torch.device) -> MemoryBudget:
        """Those asked for, or half of what is free."""
        total = max(free_memory(device) // SHARE, MIN_MEMORY) if asked is None else as_bytes(asked)
        return cls(total, total // OVERHEAD if device.type == "cuda" else min(CHUNK, total // OVERHEAD))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def unless_out_of_memory(measure: Callable[[], Found], *, examples: int) -> Found | None:
    """What `measure` finds of so many examples; None, with the memory released, where they do not fit."""
    try:
        return measure()
    except (RuntimeError, MemoryError) as error:
        if examples == 1 or not is_out_of_memory(error):
            raise
    gc.collect()  # outside the handler, whose traceback holds on to tensors, as hooks and their passes do on each other
    torch.cuda.empty_cache()
    return None


class Sums(dict[str, npt.NDArray[Any]]):
    """Sums over some examples, by name; those of other examples are added to them.

    >>> Sums(a=1.0, b=0.5) + Sums(a=2.0)
    {'a': 3.0, 'b': 0.5}
    """

    def __add__(self, more: Mapping[str, npt.NDArray[Any]]) -> Sums:
        return Sums(self | {name: self[name] + value if name in self else value for name, value in more.items()})


def sum_over(parts: Sequence[Batch], measure: Callable[[Batch], Sums], *, step: str, gradients: float = 0) -> Sums:
    """Add what `measure` finds, the same names for every chunk of examples; all cost as much as so many `gradients`."""
    announce(step, len(parts), gradients=gradients)
    found = []
    for part in parts:
        try:
            found.append(_halving(measure, part))
        except HessdiagError:  # a ValueError
            raise
        except (IndexError, ValueError) as error:  # of ids, or numbers, that the first examples do not have
            raise HessdiagError(f"an example from number {part.offset} on cannot be run ({one_line(error)})") from error
        advance(step)
    return sum(found, Sums())


def _halving(measure: Callable[[Batch], Sums], part: Batch) -> Sums:
    if (found := unless_out_of_memory(lambda: measure(part), examples=part.size)) is not None:
        return found
    half = part.size // 2
    return _halving(measure, part.narrow(0, half)) + _halving(measure, part.narrow(half, part.size))
