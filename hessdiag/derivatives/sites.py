"""Jacobians of layers that multiply their input by W at T sites, held as the factors they are made of.

J_c = Σ_t φ_ct ⊗ u_t for output c, with u_t the (unfolded) input that site t reads, of length d, and φ_ct the gradient
of output c in what site t writes. Everything that hessdiag needs is a Gram matrix J J^T, which never takes holding J.
Where sites are fewer than inputs, u = Q R with orthonormal columns Q, and φ_c Rᵀ is J_c in these T coordinates: as
precise as J itself, also where the sum over sites cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import torch
from torch import Tensor

from hessdiag.derivatives.jacobian_form import FORMED, Dense, Jacobian, enlarged, fitting, groups_from, long_products

CROSSED = 2**22  # numbers of J held at once while all rows are multiplied with all
STRIPS = 4  # of a triangular factor: a quarter more arithmetic than its half, in products that are still large
ALONE = 2**22  # multiply-adds of an example from which its layout in memory counts, and examples are taken one by one


@dataclass(frozen=True)
class Sites(Jacobian):
    """Rank-T form of a layer without groups: J[b, c] = Σ_t φ[b, c, :, t] u[b, :, t]^T.

    Attributes:
        u: (B, d, T) inputs.
        phi: (B, C, n, T) gradients of C outputs in the layer's outputs.
        transposed: the weight is stored as (inputs, outputs), which orders the entries of J.
        size: J is this many times what `u` and `phi` make.
    """

    u: Tensor
    phi: Tensor
    transposed: bool = False
    size: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.phi.shape[0], self.phi.shape[1]

    @classmethod
    def of(cls, u: Tensor, phi: Tensor, *, transposed: bool = False, size: float | None = None) -> Sites:
        """With factors whose squares fit their dtype; where `size` is given, `u` has been divided by it and does."""
        (u, u_size), (phi, phi_size) = fitting(u) if size is None else (u, size), fitting(phi)
        return cls(u, phi, transposed, u_size * phi_size)

    @property
    def is_cheaper_formed(self) -> bool:
        """Whether several questions are answered faster from J itself, which is small enough."""
        B, C, n, T = self.phi.shape
        d = self.u.shape[1]
        return T > 1 and not _pays_to_factor(d, T, C * n) and B * C * n * d <= FORMED

    def pays_formed(self, directions: int) -> bool:
        """Whether J itself tells its Gram matrices, and what it makes of so many directions, with fewer products."""
        B, C, n, T = self.phi.shape
        return T > 1 and directions >= C and B * C * n * self.u.shape[1] <= FORMED

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C); J is never held whole."""
        B, C, n, T = self.phi.shape
        if T == 1:
            rows = self.phi.squeeze(3)
            gram = torch.bmm(rows, rows.transpose(1, 2)) * self.u.square().sum(dim=(1, 2)).view(B, 1, 1)
        else:
            factor = _coordinates(self.u, C * n)
            gram = _gram(factor, self.phi, triangular=factor is not self.u)
        return enlarged(gram, self.size**2)

    def paired(self, other: Jacobian) -> Tensor:
        """J of every example here with J of the same example there, (B, C, C')."""
        return super().paired(other) if isinstance(other, Sites | Dense) else other.paired(self).transpose(1, 2)

    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        if isinstance(other, Dense) or (isinstance(other, Sites) and other.transposed != self.transposed):
            return self.dense().cross(other)
        if not isinstance(other, Sites):
            return other.cross(self).permute(2, 3, 0, 1)
        shape = (*self.shape, *other.shape)
        if self.phi.shape[3] == other.phi.shape[3] == 1:
            u = self.u.squeeze(2) @ other.u.squeeze(2).T  # (B, B')
            phi = self.phi.squeeze(3).flatten(0, 1) @ other.phi.squeeze(3).flatten(0, 1).T  # (B C, B' C')
            product = phi.view(shape) * u.view(shape[0], 1, shape[2], 1)
        else:
            product = self._formed_cross(other).view(shape)
        return enlarged(product, self.size * other.size)

    def cross_within(self, firsts: Sequence[int], size: int) -> Tensor:
        """`cross` of the `size` examples from each of the `firsts` on with each other, (G, size, C, size, C)."""
        if self.phi.shape[3] > 1:
            return super().cross_within(firsts, size)
        examples, C = groups_from(firsts, size), self.phi.shape[1]
        u, phi = self.u.squeeze(2)[examples], self.phi.squeeze(3)[examples].flatten(1, 2)
        product = torch.bmm(phi, phi.mT).view(len(firsts), size, C, size, C)
        return enlarged(product * torch.bmm(u, u.mT)[:, :, None, :, None], self.size**2)

    def _formed_cross(self, other: Sites) -> Tensor:
        """The same, (B C, B' C'), from J of a few output channels at a time."""
        here, there = _common_coordinates(self, other)
        B, C, n, _ = self.phi.shape
        product = self.phi.new_zeros(B * C, other.phi.shape[0] * other.phi.shape[1])
        channels = max(1, CROSSED // ((B * C + product.shape[1]) * here.shape[1]))
        for start in range(0, n, channels):
            J = _formed(here, self.phi[:, :, start : start + channels]).flatten(0, 1)
            same = other is self
            product += J @ (J if same else _formed(there, other.phi[:, :, start : start + channels]).flatten(0, 1)).T
        return product

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        B, C, n, T = self.phi.shape
        rows = self.phi.permute(1, 2, 0, 3).reshape(C * n, B * T)
        J = (rows @ self.u.transpose(1, 2).reshape(B * T, -1)).view(C, n, -1)
        return (J.transpose(1, 2) if self.transposed else J).flatten(1).mul_(self.size)

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O)."""
        B, C, n, T = self.phi.shape
        matrices = u.view(len(u), -1, n).transpose(1, 2) if self.transposed else u.view(len(u), n, -1)
        rows = matrices.reshape(len(u) * n, -1)
        if T > 1 and self.phi.stride(2) == 1:  # channels innermost: no copy is made
            sent = self.phi.transpose(2, 3).reshape(B, C, T * n)
            written = torch.matmul(self.u.transpose(1, 2), rows.T).view(B, T, len(u), n).permute(0, 2, 1, 3)
            return long_products(sent, written.reshape(B, len(u), T * n)) * self.size
        # What the layer writes when its weight moves; few rows times many columns, which is faster than transposed.
        moved = (self.u.squeeze(2) @ rows.T if T == 1 else torch.matmul(rows, self.u)).reshape(B, len(u), n * T)
        return long_products(self.phi.reshape(B, C, n * T), moved) * self.size

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example."""
        found = []
        for u, phi, chosen in zip(self.u, self.phi, numbers, strict=True):
            if self.transposed:
                found.append(u[chosen] @ phi.transpose(1, 2))  # (K, T) @ (C, T, n)
            else:
                found.append(phi[:, chosen] @ u.T)  # (C, K, T) @ (T, d)
        return torch.stack(found)

    def narrow(self, start: int, stop: int) -> Sites:
        """The same for examples `start` up to `stop`."""
        return Sites(self.u[start:stop], self.phi[start:stop], self.transposed, self.size)

    def of_cotangents(self, start: int, stop: int) -> Sites:
        """The same for some of the C cotangents."""
        return Sites(self.u, self.phi[:, start:stop], self.transposed, self.size)

    def over_cotangents(self) -> Sites:
        """That of the sum of the C cotangents."""
        return Sites(self.u, self.phi.sum(dim=1, keepdim=True), self.transposed, self.size)

    def dense(self) -> Dense:
        """The same with J formed."""
        B, C, n, T = self.phi.shape
        J = torch.bmm(self.phi.reshape(B, C * n, T), self.u.transpose(1, 2))  # (B, C n, d)
        if self.transposed:
            return Dense(J.view(B, C, n, -1).transpose(2, 3).flatten(2), self.size)
        return Dense(J.view(B, C, -1), self.size)

    @staticmethod
    def concatenate(parts: Sequence[Sites]) -> Sites:
        """The same layer on more examples."""
        size = max(part.size for part in parts)
        phi = torch.cat([part.phi if part.size == size else part.phi * (part.size / size) for part in parts])
        return Sites(torch.cat([part.u for part in parts]), phi, parts[0].transposed, size)

    @staticmethod
    def merge(parts: Sequence[Sites]) -> Sites:
        """Sum of the Jacobians of several calls: their sites together."""
        size = max(part.size for part in parts)
        # Channels innermost, as linear layers have them.
        phi = torch.cat([part.phi.transpose(2, 3) * (part.size / size) for part in parts], dim=2).transpose(2, 3)
        return Sites(torch.cat([part.u for part in parts], dim=2), phi, parts[0].transposed, size)


def _coordinates(u: Tensor, rows: int) -> Tensor:
    """u (B, d, T), or (B, T, T) with the same inner products, where that pays for J with so many rows."""
    _, d, T = u.shape
    if not _pays_to_factor(d, T, rows) or u.is_cuda:
        return u
    factor: Tensor = torch.linalg.qr(u, mode="r").R
    return factor


def _pays_to_factor(d: int, T: int, rows: int) -> bool:
    """A factorisation runs at about a quarter of a product's speed."""
    return 4 * T * d < rows * (d - T)


def _common_coordinates(here: Sites, there: Sites) -> tuple[Tensor, Tensor]:
    """Inputs of both, (B, d, T) and (B', d, T'), or fewer coordinates of them with the same inner products."""
    both = [here] if there is here else [here, there]
    columns = torch.cat([part.u.transpose(0, 1).flatten(1) for part in both], dim=1)  # (d, B T + B' T')
    rows = sum(part.phi.shape[1] * part.phi.shape[2] for part in both)
    few = _coordinates(columns.unsqueeze(0), rows).squeeze(0)
    if few is columns or len(few) == len(columns):
        return here.u, there.u
    B, T = len(here.u), here.u.shape[2]
    first = few[:, : B * T].view(-1, B, T).transpose(0, 1)
    return first, first if there is here else few[:, B * T :].view(len(few), *there.u.shape[::2]).transpose(0, 1)


def _gram(u: Tensor, phi: Tensor, *, triangular: bool) -> Tensor:
    """Gram matrices (B, C, C) of Σ_t φ_ct ⊗ u_t, formed for a few of the n channels at a time."""
    B, C, n, T = phi.shape
    r = u.shape[1]
    gram = phi.new_zeros(B, C, C)
    if phi.stride(2) == 1 and C * n * T * r >= ALONE:  # of a linear layer: to copy it would take as long
        strips = _strips(T) if triangular else [slice(0, r)]
        for each, factor, rows in zip(gram, u, phi.transpose(2, 3), strict=True):  # rows are (C, T, n)
            channels = max(1, FORMED // (C * r))
            for start, strip in product(range(0, n, channels), strips):
                first = strip.start  # left of it there are zeros
                J = torch.matmul(factor[strip, first:], rows[:, first:, start : start + channels]).flatten(1)
                each += J @ J.T  # (C, strip channels)
        return gram
    channels = max(1, FORMED // max(B * C * r, 1))
    for start in range(0, n, channels):
        J = _formed(u, phi[:, :, start : start + channels])
        gram += torch.bmm(J, J.transpose(1, 2))
    return gram


def _strips(T: int) -> list[slice]:
    """Rows of a triangular factor that are multiplied one strip after the other.

    >>> _strips(10)
    [slice(0, 2, None), slice(2, 5, None), slice(5, 7, None), slice(7, 10, None)]
    """
    ends = [T * number // STRIPS for number in range(STRIPS + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _formed(u: Tensor, phi: Tensor) -> Tensor:
    """Σ_t φ_ct ⊗ u_t, (B, C, n r)."""
    B, C, n, T = phi.shape
    return torch.bmm(phi.reshape(B, C * n, T), u.transpose(1, 2)).view(B, C, -1)
