"""How many samples to take, in two stages (C. Stein, Annals of Mathematical Statistics 16 (1945) 243–258).

Optional stopping biases a mean and its error bar: of a skewed sample, low means also look precise. Hence a pilot tells
how many probes the wanted error takes, and only probes drawn after that make the estimate, all of them: given the
pilot they are a sample of fixed size. Nothing is looked at twice. The estimate may therefore end a little above `rtol`;
then the report says so. A budget with no room for pilot and measurement is spent at once: that is a fixed size too.
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
from hessdiag.results.numbers import Array

PILOT_SAMPLES = 64  # Hutchinson's probes, over all examples of the pilot
PILOT_EXAMPLES = 32  # as many examples tell the noise of all
MIN_SAMPLES = 32  # over all examples: fewer do not tell their own noise
PILOT_PROBES = 16  # of XSymRowNorm
MIN_FRESH = 16  # after the pilot: fewer do not tell their own noise
MAX_FRESH = 4  # times the probes of a pilot, or a larger pilot finds more of the range first
LEAVE_ONE_OUT_PRODUCTS = 24  # with fewer, half of them as probes are too few to tell the noise
MARGIN = 1.3  # on the standard error that a pilot foretells: its own noise must rarely miss `rtol`
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
    draw_pilot: Callable[[int], Array] | None = None,
) -> Column | None:
    """Hutchinson's estimate, of as many probes as a pilot says that the focused row takes, or as the budget allows.

    Args:
        draw: `draw(m)` gives (B, m, rows) new squared norms.
        examples: B.
        focus: the row that `rtol` is asked of.
        numel: entries of the column block; `None` is returned when all unit vectors would cost no more.
        budget: when to stop.
        eps: of the dtype that the products are computed in.
        draw_pilot: `draw` for the examples of the pilot; by default that of all.
    """
    few = examples if draw_pilot is None else min(examples, PILOT_EXAMPLES)
    pilot = max(2, -(-PILOT_SAMPLES // few))
    least = max(2, -(-MIN_SAMPLES // examples))
    most = max(budget.max_products, 2)
    spent = 0
    if numel <= min(pilot, most):
        return None
    if most < pilot + max(pilot, least):
        wanted = most
    else:
        relative = hutchinson((draw_pilot or draw)(pilot)).precision(focus)
        spent = pilot
        if not math.isfinite(relative):
            relative = 0.0  # more of them will not help
        samples = pilot * few * (MARGIN * relative / budget.rtol) ** 2
        wanted = max(least, math.ceil(samples / examples))
        if numel <= wanted and numel <= budget.max_products:
            return None
        wanted = min(wanted, most - spent)
    return _column(hutchinson(draw(wanted)).with_rounding(eps), wanted + spent, focus, budget)


def deflate_until(
    signs: Callable[[int], Tensor],
    multiply: Callable[[Tensor], Sequence[Tensor]],
    *,
    focus: int,
    numel: int,
    budget: Budget,
) -> Column | None:
    """XSymRowNorm's estimate for one matrix, of as many probes as a pilot says that the focused row takes.

    The pilot's products are not lost: they stay in the range Q, of which any is right that is independent of the probe
    that it is used with; only the values of its probes do not count. A pilot that has found the whole range needs no
    more probes. No product is done twice: the basis grows, and its products with it.

    Args:
        signs: `signs(m)` gives (m, n) new random signs.
        multiply: (m, n) vectors in any dtype to their products with each row block, (m, n_i) each.
        focus: the diagonal block among the rows, of which `rtol` is asked.
        numel: n; `None` is returned when all unit vectors would cost no more.
        budget: when to stop; at least `LEAVE_ONE_OUT_PRODUCTS`.
    """
    most = min(budget.max_products // 2, numel)
    pilot = PILOT_PROBES
    if numel <= 2 * min(pilot, most):
        return None
    sketch = _Sketch(multiply, focus)
    if most < pilot + MIN_FRESH:
        sketch.grow(signs(most))
        return _column(sketch.estimate(0), sketch.products, focus, budget)
    while True:
        sketch.grow(signs(pilot - sketch.probes))
        found = sketch.estimate(0)
        relative = found.precision(focus)
        if sketch.has_all or not math.isfinite(relative):
            return _column(found, sketch.products, focus, budget)
        fresh = max(MIN_FRESH, math.ceil(pilot * (MARGIN * relative / budget.rtol) ** 2))
        if numel <= 2 * fresh and numel <= budget.max_products:
            return None
        if fresh <= MAX_FRESH * pilot or 4 * pilot > most:
            break
        pilot *= 2
    sketch.grow(signs(min(fresh, most - pilot)))
    return _column(sketch.estimate(pilot), sketch.products, focus, budget)


def _column(estimate: Estimate, products: int, focus: int, budget: Budget) -> Column:
    return Column.of(estimate, products, "rtol" if estimate.precision(focus) <= budget.rtol else "budget")


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

    @property
    def has_all(self) -> bool:
        """Whether the range was found: one more product would have added nothing to it."""
        return self.basis.shape[1] < self.probes

    def estimate(self, pilot: int) -> Estimate:
        """From all products; the values of the first `pilot` probes do not count."""
        own = self.Y[self.focus]
        S = downdated(self.basis, own.double().T).downdates
        W = self.basis.T @ self.omega.to(S).T  # (p, k)
        blocks = [Grams.of(Z, Y) for Z, Y in zip(self.Z, self.Y, strict=True)]
        return xsymrownorm(blocks, S, W, pilot=pilot).with_rounding(torch.finfo(own.dtype).eps)
