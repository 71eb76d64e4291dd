"""When to stop sampling.

Optional stopping biases a mean and its error bar. Hence a pilot of a fixed size, a number of further probes computed
once from it, and few looks after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.epperly2025 import Grams, downdated, new_directions, xsymrownorm
from hessdiag.curvature.estimators.estimate import Column, Estimate
from hessdiag.curvature.estimators.hutchinson import hutchinson
from hessdiag.results.report import Array

PILOT_SAMPLES = 64  # Hutchinson's probes, over all examples, before the noise is judged
PILOT_PRODUCTS = 32  # of XSymRowNorm, before the noise is judged
LEAVE_ONE_OUT_PRODUCTS = 24  # with fewer, half of them as probes are too few to tell the noise
MARGIN = 1.2  # more probes than the pilot's noise asks for, so that a second look rarely comes
FLOAT64_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Budget:
    """How long to sample: to a relative standard error `rtol` of the diagonal, within `max_products` a block.

    `exhaustive` asks for Σ_k ‖H e_k‖² whatever it costs.
    """

    rtol: float
    max_products: int
    exhaustive: bool = False


def sample_until(
    draw: Callable[[int], Array],
    *,
    examples: int,
    focus: int,
    numel: int,
    budget: Budget,
    eps: float = FLOAT64_EPS,
) -> Column | None:
    """Hutchinson's estimate, until the focused row is known to `rtol` or the budget is spent.

    Args:
        draw: `draw(m)` gives (B, m, rows) new squared norms.
        examples: B.
        focus: the row that `rtol` is asked of.
        numel: entries of the column block; `None` is returned when all unit vectors would cost no more.
        budget: when to stop.
        eps: of the dtype that the products are computed in.
    """
    wanted = min(max(2, -(-PILOT_SAMPLES // examples)), max(budget.max_products, 2))
    if numel <= wanted:
        return None
    count, total, squares = 0, np.zeros(0), np.zeros(0)
    while True:
        new = draw(wanted - count)
        total = total + new.sum(axis=1) if count else new.sum(axis=1)  # (B, rows)
        squares = squares + (new**2).sum(axis=1) if count else (new**2).sum(axis=1)
        count = wanted
        estimate = hutchinson(count, total, squares).with_rounding(eps)
        relative = estimate.relative(focus)
        if relative <= budget.rtol or count >= budget.max_products or not math.isfinite(relative):
            return Column.of(estimate, count, "rtol" if relative <= budget.rtol else "budget")
        wanted = max(count + 1, math.ceil(MARGIN * count * (relative / budget.rtol) ** 2))
        if numel <= wanted - count and numel <= budget.max_products:
            return None
        wanted = min(wanted, budget.max_products)


def deflate_until(
    signs: Callable[[int], Tensor],
    multiply: Callable[[Tensor], Sequence[Tensor]],
    *,
    focus: int,
    numel: int,
    budget: Budget,
) -> Column | None:
    """XSymRowNorm's estimate for one matrix, until the focused row is known to `rtol` or the budget is spent.

    The number of probes at most doubles from look to look: where the spectrum decays, fewer do than the pilot's noise
    asks for. No product is done twice: the basis grows, and its products with it.

    Args:
        signs: `signs(m)` gives (m, n) new random signs.
        multiply: (m, n) vectors in any dtype to their products with each row block, (m, n_i) each.
        focus: the diagonal block among the rows, of which `rtol` is asked.
        numel: n; `None` is returned when all unit vectors would cost no more.
        budget: when to stop; at least `LEAVE_ONE_OUT_PRODUCTS`.
    """
    most = min(budget.max_products // 2, numel)
    wanted = min(PILOT_PRODUCTS // 2, most)
    if numel <= 2 * wanted:
        return None
    sketch = _Sketch(multiply, focus)
    while True:
        sketch.grow(signs(wanted - sketch.probes))
        estimate = sketch.estimate()
        relative, k = estimate.relative(focus), sketch.probes
        if relative <= budget.rtol or k >= most or not math.isfinite(relative):
            return Column.of(estimate, sketch.products, "rtol" if relative <= budget.rtol else "budget")
        wanted = min(max(k + 1, math.ceil(MARGIN * k * (relative / budget.rtol) ** 2)), 2 * k)
        if numel <= 2 * (wanted - k) and numel <= budget.max_products:
            return None
        wanted = min(wanted, most)


class _Sketch:
    """Products HΩ and HQ of a column of blocks, which grow from look to look."""

    def __init__(self, multiply: Callable[[Tensor], Sequence[Tensor]], focus: int) -> None:
        self.multiply = multiply
        self.focus = focus
        self.products = 0
        self.omega = torch.zeros(0)  # (k, n)
        self.basis = torch.zeros(0)  # (n, p), float64
        self.Y: list[Tensor] = []  # BΩ, (k, n_i) for each row block
        self.Z: list[Tensor] = []  # BQ, (p, n_i)

    @property
    def probes(self) -> int:
        return len(self.omega)

    def grow(self, omega: Tensor) -> None:
        """Add probes (m, n)."""
        first = not self.probes
        Y = list(self.multiply(omega))
        self.omega = omega if first else torch.cat([self.omega, omega])
        self.Y = Y if first else [torch.cat(both) for both in zip(self.Y, Y, strict=True)]
        images = Y[self.focus].double().T  # (n, m)
        basis = images[:, :0] if first else self.basis
        scale = float(torch.linalg.matrix_norm(self.Y[self.focus].double()))
        # Nothing can be made orthogonal to an overflow: it stays, and is reported.
        new = new_directions(basis, images, scale=scale) if math.isfinite(scale) else images[:, :0]
        self.basis = torch.cat([basis, new], dim=1)
        self.products += len(omega) + new.shape[1]
        Z = list(self.multiply(new.T)) if new.shape[1] else [y[:0] for y in Y]
        self.Z = Z if first else [torch.cat(both) for both in zip(self.Z, Z, strict=True)]

    def estimate(self) -> Estimate:
        own = self.Y[self.focus]
        S = downdated(self.basis, own.double().T).downdates
        W = self.basis.T @ self.omega.to(S).T  # (p, k)
        blocks = [Grams.of(Z, Y) for Z, Y in zip(self.Z, self.Y, strict=True)]
        return xsymrownorm(blocks, S, W).with_rounding(torch.finfo(own.dtype).eps)
