"""Random gradients in the logits of a softmax over many classes, each made of few of them.

With p the probabilities at a position, the loss's Hessian there is S = Σ_c p_c (e_c − p)(e_c − p)ᵀ. Of s classes drawn
with probabilities π, and signs ε,

    φ = Σ_j ε_j √(p_c / (s π_c)) (e_c − p)  with c = c_j,   E φφᵀ = S,

as of a Gaussian direction; but what it makes of the weight that writes the logits is a sum of s of its rows, where that
of a Gaussian direction takes them all. π_c ∝ p_c |e_c − p|² makes all terms as long as each other, and each class is
drawn from a stratum of its own, so that φ is nearly as long each time.

Gradients are formed for a part of the classes at a time: neither V × d nor T × V numbers are held for one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.data.seeds import stream
from hessdiag.derivatives.jacobians import DenseJacobian, Jacobian, LookupJacobian, LowRankJacobian, enlarged

DRAWS = 64  # classes at a position
POSITIONS = 32  # whose distributions are held at once, in float64
SMALL = 1e-12  # |e_c − p|² that is rounding: the class is as good as certain
FORMED = 2**22  # numbers of gradients that are held at once


@dataclass(frozen=True)
class SampledSoftmax:
    """Gradients Σ_j a_j (e_{c_j} − p) in logits: C of them for each of B examples, at T positions."""

    classes: Tensor  # c, (C, B, T, s)
    sizes: Tensor  # a, likewise
    p: Tensor  # probabilities, (B, T, V)

    @classmethod
    def draw(
        cls, y: Tensor, weights: Tensor, *, count: int, seed: int, name: str, examples: Collection[int]
    ) -> SampledSoftmax:
        """Draw `count` random ones for logits y (B, *positions, V), with E φφᵀ = w S and weights w (B, *positions).

        An example is given the same whatever is measured with it.
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

    def formed(self, example: int, chosen: Tensor) -> Tensor:
        """Form the gradients of one example in K chosen logits, (C, T, K)."""
        classes, sizes, p = self.classes[:, example], self.sizes[:, example], self.p[example]
        places = torch.full((p.shape[1],), len(chosen), device=p.device)
        places[chosen] = torch.arange(len(chosen), device=p.device)
        drawn = sizes.new_zeros(*classes.shape[:2], len(chosen) + 1).scatter_add_(2, places[classes], sizes)
        return drawn[..., places[chosen]] - sizes.sum(dim=2, keepdim=True) * p[:, chosen]

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
    sizes = (total / (places.shape[2] * distances.gather(1, classes).clamp(min=SMALL))).sqrt()
    return classes.view(places.shape), sizes.view(places.shape)


@dataclass(frozen=True)
class SampledSoftmaxFactor(Jacobian):
    """J[b, c] = Σ_t φ[b, c, t] u[b, :, t]^T, of the layer that writes the logits."""

    u: Tensor  # (B, d, T) inputs of the layer, or (B, 1, T) ones for its bias
    drawn: SampledSoftmax  # φ

    @property
    def shape(self) -> tuple[int, int]:
        return self.drawn.classes.shape[1], self.drawn.classes.shape[0]

    def gram(self) -> Tensor:
        C, B, T, _ = self.drawn.classes.shape
        gram = self.u.new_zeros(B, C, C, dtype=torch.float64)
        for b in range(B):
            for some in torch.split(self._all_classes(), max(1, FORMED // (C * T))):
                gram[b] += LowRankJacobian(self.u[b : b + 1], self.drawn.formed(b, some).mT.unsqueeze(0)).gram()[0]
        return enlarged(gram, self.size**2)

    def cross(self, other: Jacobian) -> Tensor:
        if isinstance(other, LookupJacobian):  # of a weight that an embedding shares: only its rows count
            return other.cross(self).permute(2, 3, 0, 1)
        return self.low_rank().cross(other.low_rank() if isinstance(other, SampledSoftmaxFactor) else other)

    def total(self) -> Tensor:
        return self.low_rank().total()

    def rows(self, numbers: Tensor, height: int) -> Tensor:
        each = enumerate(zip(self.u, numbers, strict=True))
        return torch.stack([self.drawn.formed(b, chosen).mT @ u.T for b, (u, chosen) in each])

    def narrow(self, start: int, stop: int) -> SampledSoftmaxFactor:
        classes, sizes, p = self.drawn.classes, self.drawn.sizes, self.drawn.p
        drawn = SampledSoftmax(classes[:, start:stop], sizes[:, start:stop], p[start:stop])
        return replace(self, u=self.u[start:stop], drawn=drawn)

    def low_rank(self) -> LowRankJacobian:
        """The same with all φ formed."""
        phi = torch.stack([self.drawn.formed(b, self._all_classes()).mT for b in range(len(self.u))])
        return LowRankJacobian(self.u, phi, size=self.size)

    def dense(self) -> DenseJacobian:
        return self.low_rank().dense()

    def _all_classes(self) -> Tensor:
        return torch.arange(self.drawn.p.shape[2], device=self.u.device)
