"""Two batches at a time, as often as asked: one to act on, and a fresh one to measure on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch

from hessdiag.data.batch import Batch
from hessdiag.execution.seeds import stream

MIN_BATCHES = 8  # with fewer, what was acted on comes back too soon to be fresh


@dataclass(frozen=True)
class BatchPairs:
    """Where pairs of batches come from.

    Attributes:
        batches: several are taken whole and in turn, over again where they are too few; of a single one, random
            examples are drawn. Where all of them together are less than `MIN_BATCHES` batches, both batches of a pair
            are all examples.
        batch_size: examples that are drawn of a single batch.
    """

    batches: Sequence[Batch]
    batch_size: int

    @property
    def fresh(self) -> bool:
        """Whether the batches of a pair share no example."""
        if len(self.batches) > 1:
            return len(self.batches) >= MIN_BATCHES
        return self.batches[0].size >= MIN_BATCHES * self.batch_size

    @property
    def examples(self) -> int:
        """How many examples a batch of a pair has."""
        if not self.fresh:
            return sum(batch.size for batch in self.batches)
        return self.batches[0].size if len(self.batches) > 1 else self.batch_size

    def draw(self, count: int, *, seed: int) -> Iterator[tuple[Batch, Batch]]:
        """`count` pairs, in an order that follows from the seed."""
        if not self.fresh:
            whole = Batch.concatenate(self.batches)
            yield from ((whole, whole) for _ in range(count))
        elif len(self.batches) > 1:
            turns = cycle(self.batches)
            yield from ((next(turns), next(turns)) for _ in range(count))
        else:
            yield from self._drawn(count, seed)

    def _drawn(self, count: int, seed: int) -> Iterator[tuple[Batch, Batch]]:
        (whole,), size = self.batches, self.batch_size
        generator = stream(seed, "examples of virtual steps")
        order: list[int] = []
        for _ in range(count):
            if len(order) < 2 * size:
                order = torch.randperm(whole.size, generator=generator).tolist()
            chosen, order = order[: 2 * size], order[2 * size :]
            yield whole.select(chosen[:size]), whole.select(chosen[size:])
