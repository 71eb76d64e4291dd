"""Random gradients in the logits of a softmax over many classes, each made of few of them.

With p the probabilities at a position, the loss's Hessian there is S = Σ_c p_c (e_c − p)(e_c − p)ᵀ. Of s classes drawn
with probabilities π, and signs ε,

    φ = Σ_j ε_j √(p_c / (s π_c)) (e_c − p)  with c = c_j,   E φφᵀ = S,

as of a Gaussian direction; but what it makes of the weight that writes the logits is a sum of s of its rows, where that
of a Gaussian direction takes them all. π_c ∝ p_c |e_c − p|² makes all terms as long as each other, and each class is
drawn from a stratum of its own, so that φ is nearly as long each time.

With φ = E − σ p, where E has s classes at a site and σ is how often p is taken away, and H = uᵀu, that weight has

    ⟨J_k, J_m⟩ = Σ_tt' H_tt' (E_kt·E_mt' − σ_mt' E_kt·p_t' − σ_kt E_mt'·p_t + σ_kt σ_mt' p_t·p_t'),

whose first term takes only draws of the same class. Neither V × d nor T × V numbers are ever held for a gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.data.seeds import stream
from hessdiag.derivatives.jacobians import DenseJacobian, Jacobian, LowRankJacobian, enlarged, fitting

DRAWS = 64  # classes at a position
POSITIONS = 32  # whose distributions are held at once, in float64
SMALL = 1e-12  # |e_c − p|² that is rounding: the class is as good as certain
OFTEN = 128  # draws of a class from which it is multiplied for all gradients and sites, not pair by pair
FORMED = 2**22  # numbers of what is multiplied that are held at once


@dataclass(frozen=True)
class SampledSoftmax:
    """Gradients Σ_j a_j (e_{c_j} − p) in logits: C of them for each of B examples, at T positions.

    Attributes:
        classes, sizes: c and a, (C, B, T, s).
        p: probabilities, (B, T, V).
    """

    classes: Tensor
    sizes: Tensor
    p: Tensor

    @classmethod
    def draw(
        cls, y: Tensor, weights: Tensor, *, count: int, seed: int, name: str, examples: Collection[int]
    ) -> SampledSoftmax:
        """Draw random ones, with E φφᵀ = w S.

        An example is given the same whatever is measured with it.

        Args:
            y: logits (B, *positions, V).
            weights: w (B, *positions), which the loss of each position is multiplied by.
            count: C.
            seed, name: of the random streams.
            examples: numbers of the B examples.
        """
        p = F.softmax(y.detach(), dim=-1).flatten(1, -2)
        (B, T, _), weights = p.shape, weights.flatten(1).to(p)
        strata = torch.arange(DRAWS, dtype=torch.float64, device=p.device)
        classes = torch.empty(count, B, T, DRAWS, dtype=torch.int64, device=p.device)
        sizes = p.new_empty(count, B, T, DRAWS)
        shape = (T, count, DRAWS)
        for b, number in enumerate(examples):
            generator = stream(seed, f"{name} of example {number}")
            places = torch.rand(shape, generator=generator, dtype=torch.float64).to(p.device).add_(strata).div_(DRAWS)
            signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).to(p.device) * 2 - 1
            for start in range(0, T, POSITIONS):
                here = slice(start, start + POSITIONS)
                drawn, size = _drawn(p[b, here].double(), places[here])
                size = size * signs[here] * weights[b, here, None, None].double().sqrt()
                classes[:, b, here], sizes[:, b, here] = drawn.transpose(0, 1), size.transpose(0, 1).to(p)
        return cls(classes, sizes, p)

    def __len__(self) -> int:
        """C."""
        return len(self.classes)

    def narrow(self, start: int, stop: int) -> SampledSoftmax:
        """The same for examples `start` up to `stop`."""
        return SampledSoftmax(self.classes[:, start:stop], self.sizes[:, start:stop], self.p[start:stop])

    def of_cotangents(self, start: int, stop: int) -> SampledSoftmax:
        """The same for some of the C."""
        return replace(self, classes=self.classes[start:stop], sizes=self.sizes[start:stop])

    def formed(self) -> Tensor:
        """Form the gradients themselves, (C, B, T, V)."""
        return (-self.sizes.sum(dim=3, keepdim=True) * self.p).scatter_add_(3, self.classes, self.sizes)

    def through(self, weight: Tensor) -> Tensor:
        """Send them back to the inputs (C, B, T, d) of a layer whose weight (V, d) writes the logits."""
        classes, sizes = self.classes.flatten(0, 2), self.sizes.flatten(0, 2)
        rows = F.embedding_bag(classes, weight, per_sample_weights=sizes, mode="sum")
        return rows.view(*self.classes.shape[:3], -1) - self.sizes.sum(dim=3, keepdim=True) * (self.p @ weight)


def _drawn(p: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The classes at places (T, C, s) between 0 and 1 of π, of probabilities (T, V); and √(p / (s π)), as large."""
    distances = 1 - 2 * p + p.square().sum(dim=1, keepdim=True)  # |e_c − p|²
    distances[distances < SMALL] = 0
    reached = (p * distances).cumsum(dim=1)
    total = reached[:, -1:]
    flat = (places * total.unsqueeze(2)).flatten(1)
    classes = torch.searchsorted(reached, flat, right=True).clamp(max=p.shape[1] - 1)
    far = distances.gather(1, classes)
    sizes = (total / (places.shape[2] * far.clamp(min=SMALL))).sqrt()
    return classes.view(places.shape), sizes.view(places.shape)


@dataclass(frozen=True)
class SampledSoftmaxFactor(Jacobian):
    """J[b, c] = Σ_t φ[b, c, t] u[b, :, t]^T, of the layer that writes the logits.

    Attributes:
        u: (B, d, T) inputs of the layer, or (B, 1, T) ones for its bias.
        drawn: φ.
    """

    u: Tensor
    drawn: SampledSoftmax

    @classmethod
    def of(cls, u: Tensor, drawn: SampledSoftmax) -> SampledSoftmaxFactor:
        """With inputs whose squares fit their dtype."""
        fitted, size = fitting(u)
        return cls(fitted, drawn, size=size)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return self.drawn.classes.shape[1], self.drawn.classes.shape[0]

    def gram(self) -> Tensor:
        return enlarged(torch.stack([one._products() for one in self._one_by_one()]), self.size**2)

    def paired(self, other: Jacobian) -> Tensor:
        if isinstance(other, LowRankJacobian | DenseJacobian):
            return self.low_rank().paired(other)
        return other.paired(self).mT

    def cross(self, other: Jacobian) -> Tensor:
        return self.low_rank().cross(other.low_rank() if isinstance(other, SampledSoftmaxFactor) else other)

    def total(self) -> Tensor:
        return self.low_rank().total()

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        found = []
        for one, chosen in zip(self._one_by_one(), numbers, strict=True):
            classes, sizes, p = one.drawn.classes[:, 0], one.drawn.sizes[:, 0], one.drawn.p[0]
            places = torch.full((height,), len(chosen), device=chosen.device)
            places[chosen] = torch.arange(len(chosen), device=chosen.device)
            C, T, _ = classes.shape
            phi = sizes.new_zeros(C, T, len(chosen) + 1).scatter_add_(2, places[classes], sizes)
            phi = phi[..., places[chosen]] - sizes.sum(dim=2, keepdim=True) * p[:, chosen]
            found.append(phi.mT @ one.u[0].T)
        return torch.stack(found)

    def narrow(self, start: int, stop: int) -> SampledSoftmaxFactor:
        return replace(self, u=self.u[start:stop], drawn=self.drawn.narrow(start, stop))

    def of_cotangents(self, start: int, stop: int) -> SampledSoftmaxFactor:
        return replace(self, drawn=self.drawn.of_cotangents(start, stop))

    def over_cotangents(self) -> Jacobian:
        return self.low_rank().over_cotangents()

    def low_rank(self) -> LowRankJacobian:
        """The same with all φ formed."""
        return LowRankJacobian(self.u, self.drawn.formed().permute(1, 0, 3, 2), size=self.size)

    def dense(self) -> DenseJacobian:
        return self.low_rank().dense()

    def _one_by_one(self) -> Iterator[SampledSoftmaxFactor]:
        return (self.narrow(b, b + 1) for b in range(len(self.u)))

    def _products(self) -> Tensor:
        """⟨J, J⟩ / size² of one example, (C, C), in float64."""
        u, p, classes, sizes = self.u[0], self.drawn.p[0], self.drawn.classes[:, 0], self.drawn.sizes[:, 0]
        H, taken, columns = u.T @ u, sizes.sum(dim=2), p.T.contiguous()  # (T, T), σ (C, T), (V, T)
        met = []  # Σ_t H_tt' E_kt·p_t' of every gradient and site t'
        for drawn, weights in zip(classes, sizes, strict=True):
            met.append((F.embedding_bag(drawn, columns, per_sample_weights=weights, mode="sum") * H).sum(dim=0))
        mixed = (torch.stack(met) @ taken.T).double()
        both = taken @ (H * (p @ p.T)) @ taken.T
        return _pairs(classes, sizes, H) - mixed - mixed.T + both.double()


def _pairs(classes: Tensor, sizes: Tensor, H: Tensor) -> Tensor:
    """Σ_tt' H_tt' E_kt·E_mt' of draws (C, T, s), (C, C), in float64."""
    C, T, s = classes.shape
    flat = classes.flatten()
    gradient = torch.arange(C, device=H.device).repeat_interleave(T * s)
    site = torch.arange(T, device=H.device).repeat_interleave(s).repeat(C)
    many = torch.bincount(flat)[flat] > OFTEN
    draws = (flat, gradient, site, sizes.flatten())
    return _paired([each[~many] for each in draws], H, C) + _multiplied([each[many] for each in draws], H, C)


def _paired(draws: Sequence[Tensor], H: Tensor, C: int) -> Tensor:
    """Products of each draw with itself, and with those after it of the same class."""
    order = draws[0].argsort()
    classes, gradient, site, sizes = (each[order] for each in draws)
    product = H.new_zeros(C * C, dtype=torch.float64)
    first, lag = torch.arange(len(classes), device=H.device), 0
    while len(first):
        second = first + lag
        values = (sizes[first] * sizes[second] * H[site[first], site[second]]).double()
        product.index_add_(0, gradient[first] * C + gradient[second], values)
        if lag:  # and the other way round
            product.index_add_(0, gradient[second] * C + gradient[first], values)
        lag += 1
        first = first[first < len(classes) - lag]
        first = first[classes[first] == classes[first + lag]]
    return product.view(C, C)


def _multiplied(draws: Sequence[Tensor], H: Tensor, C: int) -> Tensor:
    """The same, from what each gradient has at every site of a class that many draws have."""
    product, T = H.new_zeros(C, C, dtype=torch.float64), len(H)
    classes, gradient, site, sizes = draws
    names, number = torch.unique(classes, return_inverse=True)
    at_once = max(1, FORMED // (C * T))
    for start in range(0, len(names), at_once):
        here = (number >= start) & (number < start + at_once)
        place = ((number[here] - start) * C + gradient[here]) * T + site[here]
        drawn = H.new_zeros(at_once * C * T).index_add_(0, place, sizes[here]).view(at_once, C, T)
        product += torch.matmul(drawn @ H, drawn.mT).double().sum(dim=0)
    return product
