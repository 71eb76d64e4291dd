"""Per-example Jacobians ∂y/∂W of one weight, held as what they are made of.

J_c = Σ_t φ_ct ⊗ u_t for output c of a layer that multiplies what T sites read, u_t, by W: `LowRankJacobian`. Its Gram
matrix J Jᵀ never takes holding J: where sites are few, it is Σ_st φ_cs·φ_et u_s·u_t in float64; in a model in float64
and on one thread, u = Q R with orthonormal columns Q, and φ_c Rᵀ is J_c in these T coordinates. Both are as precise as
J itself, also where the sum over sites cancels. Of an embedding u_t is a row number: `LookupJacobian`. All other
Jacobians are `DenseJacobian`s, and those of a weight that layers of several kinds share a `JacobianSum`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.magnitude import largest_entry

SMALL = 1e-8  # its fourth power is about the least normal float32
FORMED = 2**24  # numbers of J held at once while its Gram matrix is summed up
CACHED = 2**21  # the same of several examples on a processor, which stay in its cache
CROSSED = 2**22  # the same while all rows are multiplied with all

Form = TypeVar("Form", bound="Jacobian")


@dataclass(frozen=True)
class Jacobian(ABC):
    """cotangent^T ∂y/∂W, (B, C, P): of C cotangents for each of B examples, in the P entries of one weight."""

    held: ClassVar[tuple[str, ...]] = ()  # attributes with a row for each example; the last one has one for each output
    size: float = field(default=1.0, kw_only=True)  # J is so many times what is held, whose squares fit their dtype

    @classmethod
    def of(cls: type[Form], *factors: Any, **how: Any) -> Form:
        """Made of these, with the squares of tensors among them brought to where they fit their dtype."""
        pairs = [fitting(each) if isinstance(each, Tensor) else (each, 1.0) for each in factors]
        return cls(*(values for values, _ in pairs), size=math.prod(size for _, size in pairs), **how)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        B, C = getattr(self, self.held[-1]).shape[:2]
        return B, C

    @abstractmethod
    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""

    @abstractmethod
    def dense(self) -> DenseJacobian:
        """The same with J formed."""

    @abstractmethod
    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""

    @abstractmethod
    def total(self) -> Tensor:
        """Sum of J over examples and cotangents, (P,), in memory of its own."""

    @abstractmethod
    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example: (B, C, K, P / height) of J / size."""

    def narrow(self: Form, start: int, stop: int) -> Form:
        """The same for examples `start` up to `stop`."""
        return replace(self, **{name: getattr(self, name)[start:stop] for name in self.held})

    def of_cotangents(self: Form, start: int, stop: int) -> Form:
        """The same for some of the C cotangents."""
        return replace(self, **{self.held[-1]: getattr(self, self.held[-1])[:, start:stop]})


@dataclass(frozen=True)
class DenseJacobian(Jacobian):
    """J, (B, C, P), itself."""

    held = ("J",)
    J: Tensor

    def gram(self) -> Tensor:
        return enlarged(torch.bmm(self.J, self.J.mT), self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        there = other.dense()
        product = self.J.flatten(0, 1) @ there.J.flatten(0, 1).T
        return enlarged(product.view(*self.shape, *there.shape), self.size * there.size)

    def total(self) -> Tensor:
        return self.J.sum(dim=(0, 1)).mul_(self.size)

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        matrices = self.J.view(*self.shape, height, -1)
        return torch.stack([J[:, chosen] for J, chosen in zip(matrices, numbers, strict=True)])

    def dense(self) -> DenseJacobian:
        return self


@dataclass(frozen=True)
class LowRankJacobian(Jacobian):
    """J[b, c] = Σ_t φ[b, c, :, t] u[b, :, t]^T, of a layer without groups at T sites."""

    held = ("u", "phi")
    u: Tensor  # (B, d, T) inputs
    phi: Tensor  # (B, C, n, T) gradients of C outputs in the layer's outputs
    transposed: bool = False  # the weight is stored as (inputs, outputs), which orders the entries of J

    def gram(self) -> Tensor:
        B, C, n, T = self.phi.shape
        if T == 1:
            rows = self.phi.squeeze(3)
            return enlarged(torch.bmm(rows, rows.mT) * self.u.square().sum(dim=(1, 2)).view(B, 1, 1), self.size**2)
        u, multiply, d = self.u, _of_rows, self.u.shape[1]
        # Where inner products of the sites take less than J, in float64, which has half the speed.
        if 2 * T * (T * (d + C * n) + C * C * n) < C * n * d * (T + C) and not u.is_cuda:
            single = u.dtype == torch.float32 and torch.get_num_threads() > 1  # where LAPACK gains nothing
            u, multiply = (u, _of_sites) if single else (torch.linalg.qr(u, mode="r").R, _of_rows)
        few = max(1, (FORMED if u.is_cuda else CACHED) // (C * n * u.shape[1]))
        gram = torch.cat(list(map(multiply, torch.split(u, few), torch.split(self.phi, few))))
        return enlarged(gram, self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        if not isinstance(other, LowRankJacobian):
            return other.cross(self).permute(2, 3, 0, 1)
        if other.transposed != self.transposed:
            return self.dense().cross(other)
        (B, C), (others, count) = self.shape, other.shape
        if self.phi.shape[3] == other.phi.shape[3] == 1:
            u = self.u.squeeze(2) @ other.u.squeeze(2).T  # (B, B')
            phi = self.phi.squeeze(3).flatten(0, 1) @ other.phi.squeeze(3).flatten(0, 1).T  # (B C, B' C')
            product = phi.view(B, C, others, count) * u.view(B, 1, others, 1)
        else:  # from J of a few output channels at a time
            product = self.phi.new_zeros(B * C, others * count)
            channels = max(1, CROSSED // ((B * C + others * count) * self.u.shape[1]))
            for phi, there in zip(*(torch.split(each.phi, channels, dim=2) for each in (self, other)), strict=True):
                J = _formed(self.u, phi).flatten(0, 1)
                product += J @ (J if other is self else _formed(other.u, there).flatten(0, 1)).T
        return enlarged(product.view(B, C, others, count), self.size * other.size)

    def total(self) -> Tensor:
        J = self.phi.sum(dim=1).transpose(0, 1).flatten(1) @ self.u.mT.flatten(0, 1)  # (n, B T) @ (B T, d)
        return (J.mT if self.transposed else J).flatten().mul_(self.size)

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        each = zip(self.u, self.phi, numbers, strict=True)
        if self.transposed:
            return torch.stack([u[chosen] @ phi.mT for u, phi, chosen in each])  # (K, T) @ (C, T, n)
        return torch.stack([phi[:, chosen] @ u.T for u, phi, chosen in each])  # (C, K, T) @ (T, d)

    def dense(self) -> DenseJacobian:
        J = _formed(self.u, self.phi).view(*self.phi.shape[:3], -1)
        return DenseJacobian((J.mT if self.transposed else J).flatten(2), size=self.size)


@dataclass(frozen=True)
class LookupJacobian(Jacobian):
    """J[b, c] = Σ_k e_{numbers[b, k]} ⊗ φ[b, c, k], of a layer that looks up rows of W: never a V × n matrix."""

    held = ("numbers", "phi")
    numbers: Tensor  # (B, K) rows that each example reads, each once; filled up with any where `phi` is zero
    phi: Tensor  # (B, C, K, n) gradients of C outputs in these rows
    height: int  # V, rows of the weight

    @classmethod
    def of(cls, numbers: Tensor, phi: Tensor, height: int, *, padding: int | None = None) -> LookupJacobian:
        """Of tokens that read rows `numbers` (B, T), and gradients (B, C, T, n) there; none of the row `padding`."""
        rows, places = _distinct(numbers)
        B, C, _, n = phi.shape
        summed = phi.new_zeros(B, C, rows.shape[1], n).scatter_add_(2, places[:, None, :, None].expand_as(phi), phi)
        if padding is not None:
            summed.masked_fill_((rows == padding)[:, None, :, None], 0)
        fitted, size = fitting(summed)
        return cls(rows, fitted, height, size=size)

    def gram(self) -> Tensor:
        rows = self.phi.flatten(2)
        return enlarged(torch.bmm(rows, rows.mT), self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        found = []
        for numbers, phi in zip(self.numbers, self.phi, strict=True):
            rows = other.rows(numbers.expand(other.shape[0], -1), self.height)  # (B', C', K, n)
            found.append(torch.einsum("ckn,bekn->cbe", phi, rows))
        return enlarged(torch.stack(found), self.size * other.size)

    def total(self) -> Tensor:
        rows = self.phi.sum(dim=1).flatten(0, 1)  # (B K, n)
        total = rows.new_zeros(self.height, rows.shape[1]).index_add_(0, self.numbers.flatten(), rows)
        return total.flatten().mul_(self.size)

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        same = numbers.unsqueeze(2) == self.numbers.unsqueeze(1)  # (B, K', K)
        found, places = same.max(dim=2)  # the first: what is filled up with comes last
        rows = torch.stack([phi[:, chosen] for phi, chosen in zip(self.phi, places, strict=True)])
        return rows * found[:, None, :, None]

    def dense(self) -> DenseJacobian:
        B, C, _, n = self.phi.shape
        J = self.phi.new_zeros(B, C, self.height, n)
        J.scatter_add_(2, self.numbers[:, None, :, None].expand_as(self.phi), self.phi)
        return DenseJacobian(J.flatten(2), size=self.size)


@dataclass(frozen=True)
class JacobianSum(Jacobian):
    """Sum of Jacobians of different forms in one weight, such as that of an embedding and of the head tied to it. A
    language model's is never formed: the rows that its tokens read are all that the two have in common.
    """

    terms: tuple[Jacobian, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0].shape

    def gram(self) -> Tensor:
        gram = _sum([term.gram() for term in self.terms])
        for term, other in combinations(self.terms, 2):
            examples = [(term.narrow(b, b + 1), other.narrow(b, b + 1)) for b in range(len(gram))]
            pair = torch.cat([one.cross(there).squeeze(2) for one, there in examples])
            gram = gram + pair + pair.mT
        return gram

    def cross(self, other: Jacobian) -> Tensor:
        others = other.terms if isinstance(other, JacobianSum) else (other,)
        return _sum([term.cross(one) for term in self.terms for one in others])

    def total(self) -> Tensor:
        return _sum([term.total() for term in self.terms])

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        return _sum([term.rows(numbers, height) * term.size for term in self.terms])

    def narrow(self, start: int, stop: int) -> JacobianSum:
        return JacobianSum(tuple(term.narrow(start, stop) for term in self.terms))

    def of_cotangents(self, start: int, stop: int) -> JacobianSum:
        return JacobianSum(tuple(term.of_cotangents(start, stop) for term in self.terms))

    def dense(self) -> DenseJacobian:
        formed = [term.dense() for term in self.terms]
        size = max(term.size for term in formed)
        return DenseJacobian(_sum([term.J * (term.size / size) for term in formed]), size=size)


def merge(parts: Sequence[Jacobian]) -> Jacobian:
    """Sum of the Jacobians of several calls of layers that share a weight: linear layers' become one."""
    low_rank = [part for part in parts if isinstance(part, LowRankJacobian)]
    dense = [part for part in parts if isinstance(part, DenseJacobian)]
    terms = [part for part in parts if not isinstance(part, LowRankJacobian | DenseJacobian)]
    for alike in ([part for part in low_rank if part.transposed == kind] for kind in (False, True)):
        if len(alike) > 1:  # their sites together, with channels innermost, as linear layers have them
            size = max(part.size for part in alike)
            phi = torch.cat([part.phi.mT * (part.size / size) for part in alike], dim=2).mT
            u = torch.cat([part.u for part in alike], dim=2)
            terms.append(LowRankJacobian(u, phi, alike[0].transposed, size=size))
        else:
            terms += alike
    terms += dense if len(dense) < 2 else [JacobianSum(tuple(dense)).dense()]
    return terms[0] if len(terms) == 1 else JacobianSum(tuple(terms))


def fitting(values: Tensor) -> tuple[Tensor, float]:
    """Values whose squares fit their dtype, and their size: deep networks leave the range of float32."""
    largest = 1.0 if values.dtype == torch.float64 else largest_entry(values)
    if SMALL < largest < 1 / SMALL or largest == 0 or not math.isfinite(largest):
        return values, 1.0
    return values / largest, largest


def enlarged(gram: Tensor, factor: float) -> Tensor:
    """Products of what `fitting` has made smaller or larger, in float64 where that had to be."""
    return gram if factor == 1.0 else gram.double() * factor


def _of_sites(u: Tensor, phi: Tensor) -> Tensor:
    """J Jᵀ of the inner products u_sᵀ u_t, in float64."""
    read, rows = u.double(), phi.double().flatten(1, 2)  # (B, d, T), (B, C n, T)
    left = torch.bmm(rows, torch.bmm(read.mT, read)).view(*phi.shape[:2], -1)  # (B, C, n T)
    return torch.bmm(left, rows.reshape(left.shape).mT).to(phi)


def _of_rows(u: Tensor, phi: Tensor) -> Tensor:
    """J Jᵀ of J, of a few output channels at a time where it is large."""
    channels = max(1, FORMED // (phi[:, :, 0, 0].numel() * u.shape[1]))
    return _sum(torch.bmm(J, J.mT) for J in (_formed(u, few) for few in torch.split(phi, channels, dim=2)))


def _formed(u: Tensor, phi: Tensor) -> Tensor:
    """Σ_t φ_ct ⊗ u_t, (B, C, n d)."""
    B, C, n, T = phi.shape
    return torch.bmm(phi.reshape(B, C * n, T), u.mT).view(B, C, -1)


def _distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers (B, T) of every example each once, in order and filled up with 0, (B, K); and the place of each."""
    ordered, order = numbers.sort(dim=1)
    places = F.pad((ordered.diff(dim=1) != 0).long().cumsum(dim=1), (1, 0))  # of those in order
    rows = numbers.new_zeros(len(numbers), int(places.max()) + 1 if places.numel() else 0).scatter_(1, places, ordered)
    return rows, torch.empty_like(places).scatter_(1, order, places)


def _sum(terms: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, terms)
