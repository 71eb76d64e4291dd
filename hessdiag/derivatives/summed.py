"""Jacobians of weights that several calls share, as layers with tied weights and those called twice do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from hessdiag.derivatives.class_sites import ClassSites
from hessdiag.derivatives.jacobian_form import Dense, Jacobian
from hessdiag.derivatives.lookup import Lookup
from hessdiag.derivatives.sites import Sites


@dataclass(frozen=True)
class Summed(Jacobian):
    """Sum of Jacobians of different forms in one weight, such as that of an embedding and of the head tied to it.

    A language model's is never formed: the rows that its tokens read are all that the two have in common.
    """

    terms: tuple[Jacobian, ...]
    size: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.terms[0].shape

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        gram = _sum([term.gram() for term in self.terms])
        for i, term in enumerate(self.terms):
            for other in self.terms[i + 1 :]:
                pair = term.paired(other)
                gram = gram + pair + pair.transpose(1, 2)
        return gram

    def paired(self, other: Jacobian) -> Tensor:
        """J of every example here with J of the same example there, (B, C, C')."""
        return _sum([term.paired(other) for term in self.terms])

    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        others = other.terms if isinstance(other, Summed) else (other,)
        return _sum([term.cross(one) for term in self.terms for one in others])

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        return _sum([term.total() for term in self.terms])

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        return _sum([term.along(u) for term in self.terms])

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example."""
        return _sum([term.rows(numbers, height) * term.size for term in self.terms])

    def narrow(self, start: int, stop: int) -> Summed:
        """The same for examples `start` up to `stop`."""
        return Summed(tuple(term.narrow(start, stop) for term in self.terms))

    def of_cotangents(self, start: int, stop: int) -> Summed:
        """The same for some of the C cotangents."""
        return Summed(tuple(term.of_cotangents(start, stop) for term in self.terms))

    def over_cotangents(self) -> Summed:
        """That of the sum of the C cotangents."""
        return Summed(tuple(term.over_cotangents() for term in self.terms))

    def dense(self) -> Dense:
        """The same with J formed."""
        return Dense.merge([term.dense() for term in self.terms])


FORMS: tuple[Callable[[Jacobian], bool], ...] = (
    lambda part: isinstance(part, Lookup),
    lambda part: isinstance(part, Sites) and not part.transposed,
    lambda part: isinstance(part, Sites) and part.transposed,
    lambda part: isinstance(part, Dense),
    lambda part: isinstance(part, ClassSites),
)


def merge(parts: Sequence[Jacobian]) -> Jacobian:
    """Sum of the Jacobians of several calls: those of one form become one."""
    each = [term for part in parts for term in (part.terms if isinstance(part, Summed) else (part,))]
    alike = [[part for part in each if is_of(part)] for is_of in FORMS]
    terms = [_form(group).merge(group) if len(group) > 1 else group[0] for group in alike if group]
    return terms[0] if len(terms) == 1 else Summed(tuple(terms))


def concatenate_all(parts: Sequence[Jacobian | None]) -> Jacobian | None:
    """`concatenate`, where the outputs of some examples, or of all, do not depend on the block."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    nothing = Dense(torch.zeros_like(present[0].dense().J)) if len(present) < len(parts) else present[0]
    return concatenate([nothing if part is None else part for part in parts])


def concatenate(parts: Sequence[Jacobian]) -> Jacobian:
    """The same block on more examples."""
    if all(isinstance(part, Summed) for part in parts):
        columns = zip(*(part.terms for part in parts if isinstance(part, Summed)), strict=True)
        return Summed(tuple(concatenate(column) for column in columns))
    if len({type(part) for part in parts}) > 1:
        return Dense.concatenate([part.dense() for part in parts])
    whole: Jacobian = _form(parts).concatenate(parts)
    return whole


def _form(parts: Sequence[Jacobian]) -> Any:
    """The one class of all."""
    return type(parts[0])


def _sum(terms: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, terms)
