"""Jacobians of the layer that writes the logits, along gradients that are few classes each.

J_c = Σ_t φ_ct ⊗ u_t as for any layer at T sites, with φ = E − σ p of `hessdiag.derivatives.drawn_classes`: E has s
classes at a site, and σ is how often p is taken away. With H = uᵀu,

    ⟨J_k, J_m⟩ = Σ_tt' H_tt' (E_kt·E_mt' − σ_mt' E_kt·p_t' − σ_kt E_mt'·p_t + σ_kt σ_mt' p_t·p_t'),

whose first term takes only draws of the same class: those that few have are paired with each other, those that many
have are multiplied as they are. Neither V × d nor T × V numbers are ever held for a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.jacobian_form import Dense, Jacobian, enlarged, fitting
from hessdiag.derivatives.sites import Sites

OFTEN = 128  # draws of a class from which it is multiplied for all gradients and sites, not pair by pair
FORMED = 2**22  # numbers of what is multiplied that are held at once


@dataclass(frozen=True)
class ClassSites(Jacobian):
    """J[b, c] = Σ_t φ[b, c, t] u[b, :, t]^T.

    Attributes:
        u: (B, d, T) inputs of the layer, or (B, 1, T) ones for its bias.
        drawn: φ.
        size: J is this many times what `u` and `drawn` make.
    """

    u: Tensor
    drawn: DrawnClasses
    size: float = 1.0

    @classmethod
    def of(cls, u: Tensor, drawn: DrawnClasses) -> ClassSites:
        """With inputs whose squares fit their dtype."""
        fitted, size = fitting(u)
        return cls(fitted, drawn, size)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.drawn.classes.shape[1], self.drawn.classes.shape[0]

    def gram(self) -> Tensor:
        """J J^T of every example, (B, C, C)."""
        grams = [each._products() for each in self._one_by_one()]
        return enlarged(torch.stack(grams), self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        """J of every example here with J of every example there, (B, C, B', C')."""
        if other is self:
            product = self._products().view(*self.shape, *self.shape)
            return enlarged(product, self.size**2)
        if isinstance(other, ClassSites | Sites | Dense):
            return self.sites().cross(other.sites() if isinstance(other, ClassSites) else other)
        return other.cross(self).permute(2, 3, 0, 1)

    def paired(self, other: Jacobian) -> Tensor:
        """J of every example here with J of the same example there, (B, C, C')."""
        if isinstance(other, ClassSites | Sites | Dense):
            return self.sites().paired(other.sites() if isinstance(other, ClassSites) else other)
        return other.paired(self).transpose(1, 2)

    def total(self) -> Tensor:
        """Sum of J over examples, (C, P)."""
        return self.sites().total()

    def along(self, u: Tensor) -> Tensor:
        """J u of every example for O directions (O, P) of the weight, (B, C, O), in float64."""
        rows = u.view(len(u), self.drawn.p.shape[2], -1)  # (O, V, d)
        each = [one.drawn.along((one.u[0].T @ rows.mT).unsqueeze(1)) for one in self._one_by_one()]
        return torch.cat(each) * self.size

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        """Rows (B, K) of the weight's `height` ones, of every example: (B, C, K, d) of J / size."""
        found = []
        for one, chosen in zip(self._one_by_one(), numbers, strict=True):
            classes, sizes, p = one.drawn.classes[:, 0], one.drawn.sizes[:, 0], one.drawn.p[0]
            places = torch.full((height,), len(chosen), device=chosen.device)
            places[chosen] = torch.arange(len(chosen), device=chosen.device)
            C, T, _ = classes.shape
            phi = sizes.new_zeros(C, T, len(chosen) + 1).scatter_add_(2, places[classes], sizes)
            phi = phi[..., places[chosen]] - one.drawn.sums.squeeze(1).unsqueeze(2) * p[:, chosen]
            found.append(phi.mT @ one.u[0].T)
        return torch.stack(found)

    def narrow(self, start: int, stop: int) -> ClassSites:
        """The same for examples `start` up to `stop`."""
        return replace(self, u=self.u[start:stop], drawn=self.drawn.narrow(start, stop))

    def of_cotangents(self, start: int, stop: int) -> ClassSites:
        """The same for some of the C cotangents."""
        return replace(self, drawn=self.drawn.of_cotangents(start, stop))

    def over_cotangents(self) -> Sites:
        """That of the sum of the C cotangents."""
        return self.sites().over_cotangents()

    def sites(self) -> Sites:
        """The same with all φ formed."""
        return Sites(self.u, self.drawn.formed().permute(1, 0, 3, 2), size=self.size)

    def dense(self) -> Dense:
        """The same with J formed."""
        return self.sites().dense()

    @staticmethod
    def concatenate(parts: Sequence[ClassSites]) -> ClassSites:
        """The same layer on more examples."""
        size = max(part.size for part in parts)
        u = torch.cat([part.u * (part.size / size) for part in parts])
        return ClassSites(u, DrawnClasses.concatenate([part.drawn for part in parts]), size)

    def _one_by_one(self) -> Iterator[ClassSites]:
        return (self.narrow(b, b + 1) for b in range(len(self.u)))

    def _products(self) -> Tensor:
        """⟨J, J⟩ / size² of all gradients of all examples, (B C, B C)."""
        drawn, (B, C) = self.drawn, self.shape
        d, T = self.u.shape[1:]
        sites = self.u.transpose(1, 2).reshape(B * T, d)
        H, p = sites @ sites.T, drawn.p.flatten(0, 1)  # of all sites of all examples
        classes, sizes = drawn.classes.transpose(0, 1).flatten(0, 1), drawn.sizes.transpose(0, 1).flatten(0, 1)
        own = torch.arange(B * T, device=H.device).view(B, T).repeat_interleave(C, dim=0)  # sites of each gradient
        taken = H.new_zeros(B * C, B * T).scatter_(1, own, sizes.sum(dim=2))  # σ
        met = _met(classes, sizes, p, own, H)
        mixed = (met @ taken.T).double()
        both = taken @ (H * (p @ p.T)) @ taken.T
        return _pairs(classes, sizes, own, H) - mixed - mixed.T + both.double()


def _met(classes: Tensor, sizes: Tensor, p: Tensor, own: Tensor, H: Tensor) -> Tensor:
    """Σ_t H_tt' E_kt·p_t' of every gradient k and site t', (R, N).

    Args:
        classes, sizes: (R, T, s).
        p: (N, V).
        own: the sites t of a gradient, (R, T).
        H: (N, N).
    """
    columns = p.T.contiguous()  # (V, N)
    found = []
    for rows, draws, places in zip(classes, sizes, own, strict=True):
        along = F.embedding_bag(rows, columns, per_sample_weights=draws, mode="sum")  # (T, N)
        found.append((along * H[places]).sum(dim=0))
    return torch.stack(found)


def _pairs(classes: Tensor, sizes: Tensor, own: Tensor, H: Tensor) -> Tensor:
    """Σ_tt' H_tt' E_kt·E_mt' of all gradients, (R, R), in float64."""
    R, T, s = classes.shape
    flat = classes.flatten()
    counts = torch.bincount(flat)
    gradient = torch.arange(R, device=flat.device).view(R, 1, 1).expand(R, T, s).flatten()
    site = own.unsqueeze(2).expand(R, T, s).flatten()
    many = counts > OFTEN
    rare = _Draws(flat, gradient, site, sizes.flatten()).chosen(~many[flat])
    product = rare.paired(R, H)
    if bool(many.any()):
        number = torch.cumsum(many, dim=0) - 1  # of each such class among them
        common = _Draws(number[flat], gradient, site, sizes.flatten()).chosen(many[flat])
        product += common.multiplied(R, H, int(many.sum()))
    return product


@dataclass(frozen=True)
class _Draws:
    """Single draws: of which class, for which gradient, at which site, and how large; (n,) each."""

    classes: Tensor
    gradient: Tensor
    site: Tensor
    sizes: Tensor

    def chosen(self, which: Tensor) -> _Draws:
        """Some of them."""
        return _Draws(self.classes[which], self.gradient[which], self.site[which], self.sizes[which])

    def paired(self, R: int, H: Tensor) -> Tensor:
        """Their products by gradient, (R, R): each with itself, and with those behind it of the same class."""
        draws = self.chosen(self.classes.argsort())
        product = H.new_zeros(R * R, dtype=torch.float64)
        first = torch.arange(len(draws.classes), device=H.device)
        lag = 0
        while len(first):
            second = first + lag
            values = draws.sizes[first] * draws.sizes[second] * H[draws.site[first], draws.site[second]]
            product.index_add_(0, draws.gradient[first] * R + draws.gradient[second], values.double())
            if lag:  # and the other way round
                product.index_add_(0, draws.gradient[second] * R + draws.gradient[first], values.double())
            lag += 1
            first = first[: len(first) - int((first >= len(draws.classes) - lag).sum())]
            first = first[draws.classes[first] == draws.classes[first + lag]]
        return product.view(R, R)

    def multiplied(self, R: int, H: Tensor, classes: int) -> Tensor:
        """The same, of few classes, from what each gradient has of them at every site."""
        product, N = H.new_zeros(R, R, dtype=torch.float64), len(H)
        at_once = max(1, FORMED // (R * N))
        place = (self.classes * R + self.gradient) * N + self.site
        order = self.classes.argsort()
        bounds = torch.searchsorted(self.classes[order], torch.arange(0, classes + at_once, at_once, device=H.device))
        for number, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            here = order[start:stop]
            few = H.new_zeros(at_once * R * N).index_add_(0, place[here] - number * at_once * R * N, self.sizes[here])
            few = few.view(at_once, R, N)
            product += torch.matmul(few @ H, few.mT).double().sum(dim=0)
        return product
