"""What every form of per-example Jacobians ∂y/∂W can tell, however it is held."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.derivatives.magnitude import largest_entry

SMALL = 1e-8  # its fourth power is about the least normal float32
LONG = 2**16  # numbers that are added up in one go
FORMED = 2**24  # numbers of J held at once while its Gram matrix is summed up


class Jacobian(ABC):
    """cotangent^T ∂y/∂W, (B, C, P): of C cotangents for each of B examples, in the P entries of one weight.

    Attributes:
        size: J is this many times what is held.
    """

    size: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(B, C)."""

    @property
    def is_cheaper_formed(self) -> bool:
        """Whether several questions are answered faster from J itself, which is small enough."""
        return False

    def pays_formed(self, directions: int) -> bool:
        """Whether J itself tells its Gram matrices, and what it makes of so many directions, with fewer products."""
        return False

    @abstractmethod
    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""

    def paired(self, other: Jacobian) -> Tensor:
        """J of every example here with J of the same example there, (B, C, C')."""
        here, there = self.dense(), other.dense()
        return enlarged(torch.bmm(here.J, there.J.transpose(1, 2)), here.size * there.size)

    @abstractmethod
    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""

    def cross_within(self, firsts: Sequence[int], size: int) -> Tensor:
        """`cross` of the `size` examples from each of the `firsts` on with each other, (G, size, C, size, C)."""
        groups = [self.narrow(first, first + size) for first in firsts]
        return torch.stack([few.cross(few) for few in groups])

    @abstractmethod
    def total(self) -> Tensor:
        """Sum of J over examples, (C, P), in memory of its own."""

    @abstractmethod
    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O), in float64."""

    @abstractmethod
    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example: (B, C, K, P / height) of J / size."""

    @abstractmethod
    def narrow(self, start: int, stop: int) -> Jacobian:
        """The same for examples `start` up to `stop`."""

    @abstractmethod
    def of_cotangents(self, start: int, stop: int) -> Jacobian:
        """The same for some of the C cotangents."""

    @abstractmethod
    def over_cotangents(self) -> Jacobian:
        """That of the sum of the C cotangents."""

    @abstractmethod
    def dense(self) -> Dense:
        """The same with J formed."""


@dataclass(frozen=True)
class Dense(Jacobian):
    """`size` times J, (B, C, P), itself."""

    J: Tensor
    size: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.J.shape[0], self.J.shape[1]

    @classmethod
    def of(cls, J: Tensor) -> Dense:
        """With entries whose squares fit their dtype."""
        return cls(*fitting(J))

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        return enlarged(torch.bmm(self.J, self.J.transpose(1, 2)), self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        there = other.dense()
        product = self.J.flatten(0, 1) @ there.J.flatten(0, 1).T
        return enlarged(product.view(*self.J.shape[:2], *there.J.shape[:2]), self.size * there.size)

    def cross_within(self, firsts: Sequence[int], size: int) -> Tensor:
        """`cross` of the `size` examples from each of the `firsts` on with each other, (G, size, C, size, C)."""
        J = self.J[groups_from(firsts, size)].flatten(1, 2)  # (G, size C, P)
        C = self.J.shape[1]
        return enlarged(torch.bmm(J, J.mT).view(len(firsts), size, C, size, C), self.size**2)

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        return self.J.sum(dim=0).mul_(self.size)

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        return long_products(self.J, u.unsqueeze(0).expand(len(self.J), -1, -1)) * self.size

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example."""
        B, C, _ = self.J.shape
        matrices = self.J.view(B, C, height, -1)
        return torch.stack([J[:, chosen] for J, chosen in zip(matrices, numbers, strict=True)])

    def narrow(self, start: int, stop: int) -> Dense:
        """The same for examples `start` up to `stop`."""
        return Dense(self.J[start:stop], self.size)

    def of_cotangents(self, start: int, stop: int) -> Dense:
        """The same for some of the C cotangents."""
        return Dense(self.J[:, start:stop], self.size)

    def over_cotangents(self) -> Dense:
        """That of the sum of the C cotangents."""
        return Dense(self.J.sum(dim=1, keepdim=True), self.size)

    def dense(self) -> Dense:
        """Itself."""
        return self

    @staticmethod
    def concatenate(parts: Sequence[Dense]) -> Dense:
        """The same layer on more examples."""
        size = max(part.size for part in parts)
        return Dense(torch.cat([part.J * (part.size / size) for part in parts]), size)

    @staticmethod
    def merge(parts: Sequence[Dense]) -> Dense:
        """Sum of the Jacobians of several calls."""
        size = max(part.size for part in parts)
        J = parts[0].J * (parts[0].size / size)
        for part in parts[1:]:
            J += part.J * (part.size / size)
        return Dense(J, size)


def groups_from(firsts: Sequence[int], size: int) -> Tensor:
    """Numbers of the `size` examples from each of the `firsts` on, (G, size)."""
    return torch.tensor(firsts, dtype=torch.int64).unsqueeze(1) + torch.arange(size)


def fitting(values: Tensor) -> tuple[Tensor, float]:
    """Values whose squares fit their dtype, and their size: deep networks leave the range of float32."""
    if values.dtype == torch.float64:
        return values, 1.0
    largest = largest_entry(values)
    if SMALL < largest < 1 / SMALL or largest == 0 or not math.isfinite(largest):
        return values, 1.0
    return values / largest, largest


def long_products(rows: Tensor, others: Tensor) -> Tensor:
    """Rows (B, C, K) times others (B, O, K), (B, C, O), in float64 over pieces: float32 loses digits of long sums."""
    total = rows.new_zeros(*rows.shape[:2], others.shape[1], dtype=torch.float64)
    for start in range(0, rows.shape[2], LONG):
        here, there = rows[..., start : start + LONG], others[..., start : start + LONG]
        total += torch.bmm(here, there.transpose(1, 2))
    return total


def enlarged(gram: Tensor, factor: float) -> Tensor:
    """Products of what `fitting` has made smaller or larger, in float64 where that had to be."""
    return gram if factor == 1.0 else gram.double() * factor
