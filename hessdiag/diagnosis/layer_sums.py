"""What a layer read and wrote, summed over chunks of examples: the numbers do not depend on where the chunks end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hessdiag.diagnosis.parameter_signals import TINY, mean_sq
from hessdiag.diagnosis.roles import Role
from hessdiag.results.signals import LayerSignals


@dataclass
class Moments:
    """E[v²] of values that come in chunks, and the share of it that varies between examples.

    Deviations from the mean are summed chunk by chunk and joined by Chan, Golub & LeVeque's formula, which is precise
    also where hardly anything varies.

    >>> whole, parts = Moments(), Moments()
    >>> values = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64)
    >>> whole.add(values, 3)
    >>> for part in values.split(2):
    ...     parts.add(part, len(part))
    >>> [round(number, 12) for number in (whole.sq, parts.sq, whole.varies * whole.sq, parts.varies * parts.sq)]
    [13.666666666667, 13.666666666667, 7.0, 7.0]
    """

    count: int = 0
    squares: float = 0.0
    rows: int = 0
    mean: Tensor | None = None  # over examples
    deviation: float = 0.0  # Σ (v − mean)²

    def add(self, values: Tensor, examples: int) -> None:
        """Add the values of some examples."""
        sq = mean_sq(values)
        self.count += values.numel()
        self.squares += sq * values.numel()
        dim = example_dim(values.shape, examples)
        if values.shape[dim] == 1:
            self._join(values.squeeze(dim).double(), 0.0, 1)
            return
        scale = math.sqrt(sq) if 0 < sq < math.inf else 1.0
        scaled = values / scale
        mean = scaled.mean(dim, keepdim=True)  # var_mean over a first dimension takes fifty times as long
        deviation = float(scaled.sub_(mean).square_().sum(dtype=torch.float64)) / values.shape[dim]
        self._join(scale * mean.squeeze(dim).double(), scale * scale * deviation, values.shape[dim])

    def _join(self, mean: Tensor, deviation: float, rows: int) -> None:
        if self.mean is None:
            self.mean, self.deviation, self.rows = mean, rows * deviation, rows
            return
        if self.mean.shape != mean.shape:  # of a layer that sees as many positions as it likes
            self.deviation = math.nan
            return
        apart, total = mean - self.mean, self.rows + rows
        self.deviation += rows * deviation + mean_sq(apart) * apart.numel() * self.rows * rows / total
        self.mean = self.mean.add(apart, alpha=rows / total)
        self.rows = total

    @property
    def sq(self) -> float:
        """E[v²]; NaN of nothing."""
        return self.squares / self.count if self.count else math.nan

    @property
    def varies(self) -> float:
        """Share of E[v²] that differs from one example to the other; NaN for a single one."""
        if self.count and self.sq == 0:
            return 0.0
        if self.mean is None or self.rows < 2 or not self.sq < math.inf:
            return math.nan
        return self.deviation / (self.rows - 1) / self.mean.numel() / self.sq


def example_dim(shape: torch.Size, examples: int) -> int:
    """Find the dimension that runs over the examples: the first, unless only the second can.

    Sequences that come first and are as long as there are examples cannot be told from examples; they are rare.

    >>> example_dim(torch.Size([6, 3, 8]), 6), example_dim(torch.Size([5, 6, 8]), 6)  # sequences first
    (0, 1)
    """
    first = shape[0] % examples == 0 if examples > 1 else shape[0] == 1
    return 1 if not first and len(shape) > 2 and shape[1] == examples else 0


@dataclass
class Units:
    """The largest value of each unit, on all samples."""

    top: Tensor | None = None

    def add(self, values: Tensor, channel: int) -> None:
        """Add values whose dimension `channel` runs over units."""
        others = [dim for dim in range(values.dim()) if dim != channel]
        top = values.amax(others) if others else values
        self.top = top if self.top is None else torch.maximum(self.top, top)


@dataclass
class LayerSums:
    """All sums of one layer."""

    path: str
    kind: str
    reads: int = -1
    normalises: bool = False
    samples: int = 0
    x: Moments = field(default_factory=Moments)
    out: Moments = field(default_factory=Moments)
    written: Units = field(default_factory=Units)
    back: Units = field(default_factory=Units)
    gradient: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # Σ Δ², elements, examples
    x_gradient: list[float] = field(default_factory=lambda: [0.0, 0.0])
    role: Role | None = None
    behind: dict[str, list[float]] = field(default_factory=dict)  # of what is behind it: sum, examples

    def write(self, out: Tensor, channel: int, examples: int) -> None:
        """Add what the layer wrote for some examples."""
        self.out.add(out, examples)
        self.written.add(out, channel)
        self.samples += out.numel() // max(out.shape[channel], 1)

    def send_back(self, gradient: Tensor | None, channel: int, examples: int) -> None:
        """Add the gradient of some examples where it writes."""
        if gradient is not None:
            added = (mean_sq(gradient) * gradient.numel(), gradient.numel(), examples)
            self.gradient = [old + new for old, new in zip(self.gradient, added, strict=True)]
            self.back.add(gradient.abs(), channel)

    def send_back_to_input(self, gradient: Tensor | None, count: int) -> None:
        """Add the gradient where it reads; None where there is no way to it."""
        self.x_gradient[0] += 0.0 if gradient is None else mean_sq(gradient) * count
        self.x_gradient[1] += count

    def play(self, role: Role, examples: int) -> None:
        """Add what the nonlinearity behind it did; where the output goes is the same for all examples."""
        self.role = self.role or role
        self.measure(role.numbers, examples)

    def measure(self, numbers: Mapping[str, float], examples: int) -> None:
        """Add shares, and roots of mean squares, of what is behind it."""
        for key, value in numbers.items():
            row = self.behind.setdefault(key, [0.0, 0.0])
            row[0] += examples * (value**2 if key.endswith("_rms") else value)
            row[1] += examples

    def signals(self) -> LayerSignals:
        """The numbers in the end."""
        role = self.role or Role()
        if not self.out.count:  # an expert to which nothing of this batch was sent
            return LayerSignals(path=self.path, kind=self.kind)
        numbers: dict[str, Any] = {key: total / weight for key, (total, weight) in self.behind.items()}
        numbers = {key: math.sqrt(v) if key.endswith("_rms") else v for key, v in numbers.items()}
        squares, count, examples = self.gradient
        return LayerSignals(
            path=self.path,
            kind=self.kind,
            labels=tuple(sorted(role.labels)),
            stream=role.stream,
            reads=self.reads,
            normalises=self.normalises,
            samples=self.samples,
            x_sq=self.x.sq,
            x_varies=self.x.varies,
            out_sq=self.out.sq,
            out_varies=self.out.varies,
            x_gradient_sq=self.x_gradient[0] / self.x_gradient[1] if self.x_gradient[1] else math.nan,
            out_gradient_sq=squares / count if count else 0.0,
            out_gradient_total=squares / examples if examples else 0.0,
            off_share=_share(self.written.top, at_most=0.0),
            dead_share=1.0 if self.back.top is None else _share(self.back.top, below=TINY),
            **numbers,
        )


def _share(top: Tensor | None, *, at_most: float = -math.inf, below: float = -math.inf) -> float:
    return 0.0 if top is None else float(((top <= at_most) | (top < below)).double().mean())
