"""Processes that share a measurement, by torch.distributed, most often one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hessdiag.arguments import one_line
from hessdiag.errors import HessdiagError
from hessdiag.parallel.progress import advance, announce

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that share a measurement."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """Those of `count` examples or trials that are this process's, as even as can be.

        >>> [Processes(rank, 3).share(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        each, more = divmod(count, self.size)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    def gather(self, measure: Callable[[], T]) -> list[T]:
        """Call `measure` on every process and return all of their results, in order.

        All processes must call this equally often. What `measure` returns must be picklable and on the CPU.
        """
        if self.size == 1:
            return [measure()]
        value, failure = None, None
        try:
            value = measure()
        except Exception as error:
            failure = error
        everything: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(everything, (value, None if failure is None else str(failure) or repr(failure)))
        except RuntimeError as error:
            raise HessdiagError(f"another process of this run is gone ({one_line(error)}): start it again") from error
        if failure is not None:
            raise failure
        for rank, (_, message) in enumerate(everything):
            if message is not None:
                raise HessdiagError(f"process {rank} failed: {message}")
        return [value for value, _ in everything]

    def check_alike(self, held: Mapping[str, Sequence[Tensor]]) -> None:
        """Refuse to go on where processes were given different weights or data."""
        for what, tensors in held.items():
            sums = [float(tensor.detach().double().sum()) for tensor in tensors if not tensor.is_complex()]
            held_there: list[list[float]] = self.gather(lambda sums=sums: sums)  # type: ignore[misc]
            if any(other != sums for other in held_there):
                raise HessdiagError(
                    f"the processes hold different {what}: give every one the same, seeded alike, and all of the data;"
                    " hessdiag deals the examples out itself"
                )


ALONE = Processes()


def default_group() -> Processes:
    """The processes of torch.distributed's default group."""
    if not (dist.is_available() and dist.is_initialized()):
        raise HessdiagError("distributed=True: call torch.distributed.init_process_group first, or use torchrun")
    return Processes(dist.get_rank(), dist.get_world_size())


@contextmanager
def launched(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, by NCCL on CUDA, else gloo; this one alone where it started none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        # Shares may end hours apart; by default gloo gives up after half an hour, NCCL after ten minutes.
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(days=1))
    except (RuntimeError, ValueError) as error:  # what cannot connect is a RuntimeError
        raise HessdiagError(f"cannot join the other processes ({one_line(error)}): start them with torchrun") from error
    try:
        yield default_group()
    finally:
        dist.destroy_process_group()


def measure_trials(seeds: Sequence[int], measure: Callable[[int], T], *, processes: Processes = ALONE) -> list[T]:
    """`measure(seed)` of every trial, in order, on all processes alike."""
    mine = seeds[processes.rank :: processes.size]
    announce("trials", len(mine))

    def measured() -> dict[int, T]:
        found = {}
        for seed in mine:
            found[seed] = measure(seed)
            advance("trials")
        return found

    results = {seed: result for part in processes.gather(measured) for seed, result in part.items()}
    return [results[seed] for seed in seeds]
