"""Jacobians of layers that look rows of W up, as embeddings do: rank one a token, and never a V × n matrix.

J_c = Σ_t e_{i(t)} ⊗ φ_ct for output c, with i(t) the row that token t reads, and φ_ct the gradient of output c in what
it writes. Only the rows that an example reads are held, each once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.jacobian_form import FORMED, Dense, Jacobian, enlarged, fitting, long_products


@dataclass(frozen=True)
class Lookup(Jacobian):
    """J[b, c] = Σ_k e_{numbers[b, k]} ⊗ φ[b, c, k].

    Attributes:
        numbers: (B, K) rows that each example reads, each once; filled up with any where `phi` is zero.
        phi: (B, C, K, n) gradients of C outputs in these rows.
        height: V, rows of the weight.
        size: J is this many times what `numbers` and `phi` make.
    """

    numbers: Tensor
    phi: Tensor
    height: int
    size: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.phi.shape[0], self.phi.shape[1]

    @classmethod
    def of(cls, numbers: Tensor, phi: Tensor, height: int, *, padding: int | None = None) -> Lookup:
        """Sum up what was written for tokens that read the same row.

        Args:
            numbers: (B, T), the row that each token reads.
            phi: (B, C, T, n) gradients in what the tokens write.
            height: V, rows of the weight.
            padding: a row that gets no gradient.
        """
        rows, places = _distinct(numbers)
        (B, C, _, n), K = phi.shape, rows.shape[1]
        target = (places + K * torch.arange(B, device=places.device).unsqueeze(1)).flatten()
        summed = phi.new_zeros(C, B * K, n).index_add_(1, target, _flat(phi))  # (C, B K, n)
        if padding is not None:
            summed[:, rows.flatten() == padding] = 0
        fitted, size = fitting(summed)
        return cls(rows, fitted.view(C, B, K, n).transpose(0, 1), height, size)

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        rows = self.phi.flatten(2)
        return enlarged(torch.bmm(rows, rows.transpose(1, 2)), self.size**2)

    def paired(self, other: Jacobian) -> Tensor:
        """J of every example here with J of the same example there, (B, C, C'): only rows that are read here count."""
        there = other.rows(self.numbers, self.height).flatten(2)
        return enlarged(torch.bmm(self.phi.flatten(2), there.transpose(1, 2)), self.size * other.size)

    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        B, C = self.shape
        others = other.shape[0]
        at_once = max(1, FORMED // (other.shape[1] * self.phi.shape[2:].numel()))
        product = self.phi.new_empty(B, C, *other.shape)
        for start in range(0, others, at_once):
            few = other.narrow(start, min(start + at_once, others))
            for each, numbers, phi in zip(product, self.numbers, self.phi, strict=True):
                rows = few.rows(numbers.expand(few.shape[0], -1), self.height)  # (B', C', K, n)
                each[:, start : start + at_once] = torch.einsum("ckn,bekn->cbe", phi, rows)
        return enlarged(product, self.size * other.size)

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        C, n = self.phi.shape[1], self.phi.shape[3]
        total = self.phi.new_zeros(C, self.height, n).index_add_(1, self.numbers.flatten(), _flat(self.phi))
        return total.flatten(1).mul_(self.size)

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        rows = u.view(len(u), self.height, -1)[:, self.numbers]  # (O, B, K, n)
        return long_products(self.phi.flatten(2), rows.flatten(2).transpose(0, 1)) * self.size

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K') of the weight's `height` ones, of every example."""
        (B, C, K, n), wanted = self.phi.shape, numbers.shape[1]
        same = numbers.unsqueeze(2) == self.numbers.unsqueeze(1)  # (B, K', K)
        found, places = same.max(dim=2)  # the first: what is filled up with comes last
        source = (places + K * torch.arange(B, device=places.device).unsqueeze(1)).flatten()
        rows = _flat(self.phi).index_select(1, source).view(C, B, wanted, n)
        return (rows * found.to(rows).unsqueeze(2)).transpose(0, 1)

    def narrow(self, start: int, stop: int) -> Lookup:
        """The same for examples `start` up to `stop`."""
        return Lookup(self.numbers[start:stop], self.phi[start:stop], self.height, self.size)

    def of_cotangents(self, start: int, stop: int) -> Lookup:
        """The same for some of the C cotangents."""
        return Lookup(self.numbers, self.phi[:, start:stop], self.height, self.size)

    def over_cotangents(self) -> Lookup:
        """That of the sum of the C cotangents."""
        return Lookup(self.numbers, self.phi.sum(dim=1, keepdim=True), self.height, self.size)

    def dense(self) -> Dense:
        """The same with J formed."""
        B, C, _, n = self.phi.shape
        J = self.phi.new_zeros(B, C, self.height, n)
        for each, numbers, phi in zip(J, self.numbers, self.phi, strict=True):
            each.index_add_(1, numbers, phi)
        return Dense(J.flatten(2), self.size)

    @staticmethod
    def concatenate(parts: Sequence[Lookup]) -> Lookup:
        """The same layer on more examples."""
        size, most = max(part.size for part in parts), max(part.numbers.shape[1] for part in parts)
        missing = [most - part.numbers.shape[1] for part in parts]
        numbers = [F.pad(part.numbers, (0, more)) for part, more in zip(parts, missing, strict=True)]
        phi = [F.pad(part.phi * (part.size / size), (0, 0, 0, more)) for part, more in zip(parts, missing, strict=True)]
        return Lookup(torch.cat(numbers), torch.cat(phi), parts[0].height, size)

    @staticmethod
    def merge(parts: Sequence[Lookup]) -> Lookup:
        """Sum of the Jacobians of several calls."""
        size = max(part.size for part in parts)
        numbers = torch.cat([part.numbers for part in parts], dim=1)
        phi = torch.cat([part.phi * (part.size / size) for part in parts], dim=2)
        merged = Lookup.of(numbers, phi, parts[0].height)
        return Lookup(merged.numbers, merged.phi, merged.height, merged.size * size)


def _flat(phi: Tensor) -> Tensor:
    """(B, C, K, n) as (C, B K, n)."""
    return phi.transpose(0, 1).flatten(1, 2)


def _distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers (B, T) of every example each once, in order and filled up with 0, (B, K); and the place of each."""
    ordered, order = numbers.sort(dim=1)
    places = F.pad((ordered.diff(dim=1) != 0).long().cumsum(dim=1), (1, 0))  # of those in order
    rows = numbers.new_zeros(len(numbers), int(places.max()) + 1 if places.numel() else 0).scatter_(1, places, ordered)
    return rows, torch.empty_like(places).scatter_(1, order, places)
