"""Two batches at a time that share no example, as often as asked: from many batches, or from one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import torch

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream


def pairs_of(batches: Sequence[Batch], *, count: int, batch_size: int, seed: int) -> Iterator[tuple[Batch, Batch]]:
    """`count` pairs of batches.

    Args:
        batches: several are taken whole and in turn, over again where they are too few; of a single one, random
            examples are drawn.
        count: how many pairs.
        batch_size: examples drawn of a single batch for each of a pair; half of it where there are fewer.
        seed: of what is drawn.

    Raises:
        HessdiagError: there is a single example.
    """
    if len(batches) > 1:
        turns = cycle(batches)
        for _ in range(count):
            yield next(turns), next(turns)
        return
    (whole,) = batches
    if whole.size < 2:
        raise HessdiagError("inputs hold one example: virtual steps need two or more, or pass steps=0")
    size = examples_of(batches, batch_size)
    generator = stream(seed, "examples of virtual steps")
    order: list[int] = []
    for _ in range(count):
        if len(order) < 2 * size:
            order = torch.randperm(whole.size, generator=generator).tolist()
        chosen, order = order[: 2 * size], order[2 * size :]
        yield whole.select(chosen[:size]), whole.select(chosen[size:])


def examples_of(batches: Sequence[Batch], batch_size: int) -> int:
    """How many examples each batch of a pair has."""
    return batches[0].size if len(batches) > 1 else min(batch_size, batches[0].size // 2)
