"""Where Adam moves the weights, up to the learning rate, from the gradients of the batches it has seen."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Values = Mapping[str, Tensor]  # by name of the parameter

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


class AdamDirection:
    """m̂/(√v̂ + ε), as `torch.optim.Adam` has it (arXiv 1412.6980, Algorithm 1): the sign of the first gradient."""

    def __init__(self) -> None:
        self._steps = 0
        self._first: Values = {}
        self._second: Values = {}

    def __call__(self, gradient: Values) -> Values:
        """Return the direction of the next step, W ← W − rate · u, after a batch with this gradient."""
        self._steps += 1
        self._first = _averaged(self._first, gradient, BETAS[0])
        self._second = _averaged(self._second, {n: g.square() for n, g in gradient.items()}, BETAS[1])
        first, second = (1 - beta**self._steps for beta in BETAS)
        return {n: (m / first) / ((self._second[n] / second).sqrt() + EPSILON) for n, m in self._first.items()}


def _averaged(before: Values, now: Values, beta: float) -> Values:
    if not before:
        return {name: (1 - beta) * value for name, value in now.items()}
    return {name: torch.lerp(value, before[name], beta) for name, value in now.items()}
