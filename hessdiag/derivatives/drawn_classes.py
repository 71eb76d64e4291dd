"""Random gradients in the logits of a softmax over many classes, each made of few of them.

With p the probabilities at a position, the loss's Hessian there is S = Σ_c p_c (e_c − p)(e_c − p)ᵀ. Of s classes drawn
with probabilities π, and signs ε,

    φ = Σ_j ε_j √(p_c / (s π_c)) (e_c − p)  with c = c_j,   E φφᵀ = S,

as of a Gaussian direction; but what it makes of the weight that writes the logits is a sum of s of its rows, where that
of a Gaussian direction takes them all. π_c ∝ p_c |e_c − p|² makes all terms as long as each other, and each class is
drawn from a stratum of its own, so that φ is nearly as long each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hessdiag.derivatives.jacobian_form import LONG
from hessdiag.execution.seeds import stream

DRAWS = 64  # classes at a position
POSITIONS = 32  # whose distributions are held at once, in float64
SMALL = 1e-12  # |e_c − p|² that is rounding: the class is as good as certain


@dataclass(frozen=True)
class DrawnClasses:
    """Gradients Σ_j a_j (e_{c_j} − p) in logits: C of them for each of B examples, at T positions.

    Attributes:
        classes, sizes: c and a, (C, B, T, s).
        p: probabilities, (B, T, V).
        labels, weights: the gradient of the loss is w (p − e_c) of one class c, (B, T) each.
    """

    classes: Tensor
    sizes: Tensor
    p: Tensor
    labels: Tensor
    weights: Tensor

    @classmethod
    def draw(
        cls,
        y: Tensor,
        weights: Tensor,
        labels: Tensor,
        *,
        count: int,
        seed: int,
        name: str,
        examples: Collection[int],
    ) -> DrawnClasses:
        """Random ones, with E φφᵀ = w S.

        What an example is given does not depend on the examples that are measured together with it.

        Args:
            y: logits (B, *positions, V).
            weights: w (B, *positions), which the loss of each position is multiplied by.
            labels: the class of each position; any where it is left out.
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
        return cls(classes, sizes, p, torch.where(weights != 0, labels.flatten(1), 0), weights)

    def with_slope(self) -> tuple[DrawnClasses, float]:
        """The same with the gradient of the loss behind, made as large.

        Returns:
            And what it has been multiplied by.
        """
        own, others = float(self.weights.abs().max()), float(self.sizes.abs().max())
        size = others / own if own > 0 and others > 0 else 1.0
        classes = self.classes.new_zeros(1, *self.classes.shape[1:])
        sizes = self.sizes.new_zeros(classes.shape)
        classes[0, ..., 0] = self.labels
        sizes[0, ..., 0] = -size * self.weights
        both = torch.cat([self.classes, classes]), torch.cat([self.sizes, sizes])
        return replace(self, classes=both[0], sizes=both[1]), size

    def __len__(self) -> int:
        """C."""
        return len(self.classes)

    @property
    def sums(self) -> Tensor:
        """Σ_j a_j, (C, B, T): how often p is taken away."""
        return self.sizes.sum(dim=3)

    def narrow(self, start: int, stop: int) -> DrawnClasses:
        """The same for examples `start` up to `stop`."""
        here = slice(start, stop)
        return DrawnClasses(
            self.classes[:, here], self.sizes[:, here], self.p[here], self.labels[here], self.weights[here]
        )

    def _one_by_one(self) -> Iterator[DrawnClasses]:
        return (self.narrow(b, b + 1) for b in range(len(self.p)))

    @classmethod
    def concatenate(cls, parts: Sequence[DrawnClasses]) -> DrawnClasses:
        """The same of more examples."""
        classes, sizes = (torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("classes", "sizes"))
        rest = (torch.cat([getattr(part, name) for part in parts]) for name in ("p", "labels", "weights"))
        return cls(classes, sizes, *rest)

    def of_cotangents(self, start: int, stop: int) -> DrawnClasses:
        """The same for some of the C."""
        here = slice(start, stop)
        return replace(self, classes=self.classes[here], sizes=self.sizes[here])

    def formed(self) -> Tensor:
        """(C, B, T, V)."""
        whole = -self.sums.unsqueeze(3) * self.p
        return whole.scatter_add_(3, self.classes, self.sizes)

    def through(self, weight: Tensor) -> Tensor:
        """What they are in the inputs (C, B, T, d) of a layer whose weight (V, d) writes the logits."""
        rows = F.embedding_bag(
            self.classes.flatten(0, 2), weight, per_sample_weights=self.sizes.flatten(0, 2), mode="sum"
        )
        sent = rows.view(*self.classes.shape[:3], -1)
        return sent - self.sums.unsqueeze(3) * (self.p @ weight)

    def along(self, moved: Tensor) -> Tensor:
        """Their products with what logits (O, B, T, V) move by, (B, C, O), in float64."""
        each = []
        for one, rows in zip(self._one_by_one(), moved.unbind(1), strict=True):
            classes, sizes = one.classes[:, 0], one.sizes[:, 0].double()
            (C, T, s), optimisers = classes.shape, len(rows)
            there = classes.transpose(0, 1).reshape(1, T, C * s).expand(optimisers, -1, -1)
            found = rows.gather(2, there).view(optimisers, T, C, s).double()
            found = torch.einsum("otcs,cts->co", found, sizes)
            each.append(found - sizes.sum(dim=2) @ _long_means(one.p[0], rows))
        return torch.stack(each)


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


def _long_means(p: Tensor, rows: Tensor) -> Tensor:
    """Σ_c p_c of rows (O, T, V), (T, O), in float64 over pieces."""
    total = p.new_zeros(len(p), len(rows), dtype=torch.float64)
    for start in range(0, p.shape[1], LONG):
        here = slice(start, start + LONG)
        total += torch.einsum("tv,otv->to", p[:, here], rows[..., here])
    return total
