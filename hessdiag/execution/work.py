"""Units of work: each is done once, by one rank, in this run or an earlier one.

A measurement is a number of independent units (chunks of examples, blocks, set-ups), each a pure function of the model,
the data and the seed. That is all that is needed to share them among processes, to keep them in a file, and to split
one that does not fit into memory; the numbers depend on none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy.typing as npt

from hessdiag.data.batch import Batch
from hessdiag.errors import HessdiagError
from hessdiag.execution.journal import Journal
from hessdiag.execution.memory import unless_out_of_memory
from hessdiag.execution.progress import Progress, announce
from hessdiag.execution.ranks import ALONE, Ranks

Unit = TypeVar("Unit")
Result = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Work:
    """Carries out units of work.

    Attributes:
        ranks: the processes that share the units.
        journal: where finished units are kept; None forgets them.
        progress: called with the name of each unit's kind after each unit.
        scope: leads the names of all units, so that those of two batches are told apart.
    """

    ranks: Ranks = ALONE
    journal: Journal | None = None
    progress: Progress = lambda step: None
    scope: str = ""

    def within(self, scope: str) -> Work:
        """The same for a part of the work."""
        return replace(self, scope=f"{self.scope}{scope}: ")

    def each(
        self,
        name: str,
        units: Sequence[Unit],
        measure: Callable[[Unit], Result],
        *,
        label: Callable[[Unit], str] | None = None,
    ) -> list[Result]:
        """`measure(unit)` of every unit, in order, on all ranks alike.

        Args:
            name: of the kind of work.
            units: what there is to do.
            measure: does one.
            label: tells a unit from those of a run that cuts the work otherwise, as with less memory; by default a unit
                is known by its place.

        Raises:
            HessdiagError: a unit cannot be measured, on whatever rank.
        """
        results: dict[int, Result] = {}
        failure: Exception | None = None
        mine = range(self.ranks.rank, len(units), self.ranks.size)
        announce(self.progress, name, len(mine))
        for number in mine:
            try:
                unit = units[number]
                which = label(unit) if label else f"{number + 1}/{len(units)}"
                results[number] = self._once(f"{self.scope}{name} {which}", unit, measure)
            except Exception as error:
                if self.ranks.size == 1:
                    raise
                failure = error  # the others wait for an answer
                break
            self.progress(name)
        for rank, (share, message) in enumerate(self.ranks.gather((results, _text(failure)))):
            if failure is not None:
                raise failure
            if message:
                raise HessdiagError(f"rank {rank} failed: {message}")
            results.update(share)
        return [results[number] for number in range(len(units))]

    def total(self, name: str, parts: Sequence[Batch], measure: Callable[[Batch], Result]) -> Result:
        """Sum over chunks of examples of what `measure` finds; a chunk that does not fit into memory is halved."""
        return add(self.each(name, parts, lambda part: _halving(measure, part), label=_examples))

    def _once(self, key: str, unit: Unit, measure: Callable[[Unit], Result]) -> Result:
        kept = self.journal.get(key) if self.journal else None
        if kept is not None:
            return kept
        result = measure(unit)
        if self.journal:
            self.journal.put(key, result)
        return result


ALL_HERE = Work()


def add(results: Sequence[Result]) -> Result:
    """Sums of arrays under the same names, in order.

    >>> add([{"a": 1.0, "b": 0.5}, {"a": 2.0, "b": 0.0}])
    {'a': 3.0, 'b': 0.5}
    """
    total = dict(results[0])
    for result in results[1:]:
        for key, value in result.items():
            total[key] = total[key] + value
    return total


def _examples(part: Batch) -> str:
    return f"of examples {part.offset} to {part.offset + part.size}"


def _text(failure: Exception | None) -> str:
    return "" if failure is None else str(failure) or type(failure).__name__


def _halving(measure: Callable[[Batch], Result], part: Batch) -> Result:
    found = unless_out_of_memory(partial(measure, part), examples=part.size)
    if found is not None:
        return found
    half = part.size // 2
    return add([_halving(measure, part.narrow(0, half)), _halving(measure, part.narrow(half, part.size))])


def number(result: Result, key: str) -> float:
    """The one number under a key."""
    return float(cast(Any, result[key]))
