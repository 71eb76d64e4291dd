"""Processes that share one measurement, by torch.distributed; most often there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from hessdiag.errors import HessdiagError, RankGoneError
from hessdiag.execution.memory import is_out_of_memory

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # a slow unit of another rank is no reason to give up; a dead rank is noticed at once


@dataclass(frozen=True)
class Ranks:
    """This process among those that share the work.

    Attributes:
        rank: number of this one, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    def gather(self, value: T) -> list[T]:
        """What every rank has, in their order.

        Raises:
            HessdiagError: another process is gone.
        """
        if self.size == 1:
            return [value]
        everything: list[T | None] = [None] * self.size
        with noticing_death():
            dist.all_gather_object(everything, value)
        return cast(list[T], everything)

    def from_first(self, value: T) -> T:
        """What the first rank has.

        Raises:
            HessdiagError: another process is gone.
        """
        if self.size == 1:
            return value
        shared: list[T] = [value]
        with noticing_death():
            dist.broadcast_object_list(shared, src=0)
        return shared[0]

    def agree(self, what: str, value: str) -> None:
        """Refuse to go on where ranks were given different things.

        Raises:
            HessdiagError: `value` is not the same on all ranks.
        """
        if len(set(self.gather(value))) > 1:
            raise HessdiagError(
                f"the ranks hold different {what}: give every one the same, seeded alike, and all of the data;"
                " hessdiag deals the examples out itself"
            )


ALONE = Ranks()


def all_ranks() -> Ranks:
    """The processes of torch.distributed's default group.

    Raises:
        HessdiagError: there is none.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise HessdiagError(
            "distributed=True needs torch.distributed: call torch.distributed.init_process_group first, or use"
            " torchrun -m hessdiag"
        )
    return Ranks(dist.get_rank(), dist.get_world_size())


def launched_rank() -> int | None:
    """Number of this process among those that torchrun, or a launcher that speaks like it, started; None when alone."""
    size, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    return int(rank) if size.isdecimal() and rank.isdecimal() and int(size) > 1 else None


@contextmanager
def launched(device: str) -> Iterator[Ranks]:
    """The processes that torchrun started, joined by NCCL on CUDA, else gloo; this one alone where it started none.

    Raises:
        HessdiagError: the others cannot be reached.
    """
    if launched_rank() is None:
        yield ALONE
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:  # what cannot connect is a RuntimeError
        raise HessdiagError(
            f"cannot join the other processes ({' '.join(str(error).split())[:120]}): start them with torchrun"
        ) from error
    try:
        yield all_ranks()
    finally:
        dist.destroy_process_group()


@contextmanager
def noticing_death() -> Iterator[None]:
    """Say that another process is gone where talking to it failed.

    Raises:
        RankGoneError: what was tried raised a RuntimeError that is not about memory.
    """
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise RankGoneError(
            f"another process of this run is gone ({' '.join(str(error).split())[:120]}): start it again"
        ) from error
