"""Sums over chunks of examples; a chunk that does not fit into memory is halved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from hessdiag.data.batch import Batch
from hessdiag.data.memory import unless_out_of_memory
from hessdiag.parallel.progress import advance, announce

Sums = Mapping[str, npt.NDArray[Any]]


def add(sums: Sequence[Sums]) -> Sums:
    """Add arrays under the same names, in order.

    >>> add([{"a": 1.0, "b": 0.5}, {"a": 2.0, "b": 0.0}])
    {'a': 3.0, 'b': 0.5}
    """
    total = dict(sums[0])
    for each in sums[1:]:
        for key, value in each.items():
            total[key] = total[key] + value if key in total else value
    return total


def sum_over(parts: Sequence[Batch], measure: Callable[[Batch], Sums], *, step: str, gradients: float = 0) -> Sums:
    """Add what `measure` finds, the same names for every chunk of examples; all cost as much as so many `gradients`."""
    announce(step, len(parts), gradients=gradients)
    found = []
    for part in parts:
        found.append(_halving(measure, part))
        advance(step)
    return add(found)


def _halving(measure: Callable[[Batch], Sums], part: Batch) -> Sums:
    found = unless_out_of_memory(lambda: measure(part), examples=part.size)
    if found is not None:
        return found
    half = part.size // 2
    return add([_halving(measure, part.narrow(0, half)), _halving(measure, part.narrow(half, part.size))])
