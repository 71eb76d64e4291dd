"""Batches from a function that users write.

The function takes no argument and returns a batch, an iterable of batches (a generator, a list, a `DataLoader`), or a
`Dataset` of single examples; see `hessdiag.data.stream`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hessdiag.data.batch import Batch
from hessdiag.data.stream import EXPECTED, Tally, batches
from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream
from hessdiag.network.torch_state import seed_torch
from hessdiag.user_code.named_function import NamedFunction


def read_batches(
    function: NamedFunction, *, batch_size: int, most: int | None, tally: Tally | None = None
) -> Iterator[Batch]:
    """The batches that a function gives, up to `most`; later ones are never asked for.

    Args:
        function: the user's.
        batch_size: the examples that are taken of a single batch; of several, each is taken whole.
        most: how many batches; None takes all.
        tally: counts them.

    Raises:
        HessdiagError: the function raised, or gave something that is no batch, or none.
    """
    function.check_arguments({})
    content = function()
    label = f"{function.what} {function.reference!r}"
    source = batches(content, label=label, batch_size=batch_size, tally=tally or Tally())
    read = 0
    while read != most:
        with function.running():
            batch = next(source, None)
        if batch is None:
            break
        read += 1
        yield batch.narrow(0, batch_size) if most == 1 else batch
    if not read:
        raise HessdiagError(f"{label} gives no batch: {EXPECTED}")


def seeded(read: Iterator[Batch], seed: int) -> Iterator[Batch]:
    """The same batches with torch's random numbers from a seed while each is read, as where a DataLoader shuffles."""
    state: Tensor | None = None
    while True:
        with torch.random.fork_rng(devices=[]):
            if state is None:
                seed_torch(stream(seed, "data").initial_seed())
            else:
                torch.set_rng_state(state)
            batch = next(read, None)
            state = torch.get_rng_state()
        if batch is None:
            return
        yield batch
