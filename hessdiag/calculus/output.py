"""The gradient that a loss sends into the network: second moments in closed form from E[y²]."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.calculus.activation import Activation, Gradient
from hessdiag.data.seeds import stream
from hessdiag.derivatives.losses import NAMES
from hessdiag.errors import HessdiagError

SAMPLES, MAX_DRAWN_CLASSES = 2048, 2048


@dataclass(frozen=True)
class OutputGradient:
    """What enters the backward pass.

    Attributes:
        gradient: moments of Δy.
        curvature: E[(S u)²] / E[Δy²], with S the Hessian of the loss in the outputs and u ~ N(0, E[y²]).
        slope: d log E[Δy²] / d log E[y²].
        variance: relative variance of |Δy|² over draws of the loss, for outputs that all point the same way.
    """

    gradient: Gradient
    curvature: float
    variance: float
    slope: float


def output_gradient(loss: str, y: Activation, examples: int) -> OutputGradient:
    """Find the moments of the gradient of each example's own loss.

    random-quadratic: with S = R + Rᵀ, E[S_ij²] = 2 and E[S_ii²] = 4, so that E[Δy_i²] = 2 Σ_j E[y_j²] + 2 E[y_i²],
    (2N + 2) E[y²] for N equal outputs. mse, targets N(0, 1): 4 (E[y²] + 1) / N². Cross-entropy, labels at random:
    p - t with p the softmax of Gaussian logits.

    Args:
        loss: one of `hessdiag.derivatives.losses.NAMES`.
        y: moments of the outputs (B, N...).
        examples: B.

    Raises:
        HessdiagError: there is no closed form for the loss.
    """
    if loss not in NAMES:
        raise HessdiagError(f"loss {loss!r} has no prediction: use one of {', '.join(NAMES)}")
    N = y.sq.numel() // examples
    if loss == "random-quadratic":
        flat = y.sq.reshape(examples, N)
        sq = (2 * flat.sum(1, keepdim=True) + 2 * flat).reshape(y.sq.shape)
        return OutputGradient(
            Gradient(sq, example_correlation=y.example_correlation), 1.0, (8 * N + 24) / (2 * N + 2) ** 2, 1.0
        )
    if loss == "mse":
        sq = 4 * (y.sq + 1) / N**2
        share = float((y.sq / (y.sq + 1)).detach().mean())
        return OutputGradient(Gradient(sq, example_correlation=y.example_correlation * share), share, 0.0, share)
    return _cross_entropy(y, N)


def _cross_entropy(y: Activation, outputs: int) -> OutputGradient:
    classes = y.sq.shape[1]
    positions = outputs // classes
    q = y.second_moment
    error, curvature = softmax_moments(float(q.detach()), classes)
    sq = torch.full_like(y.sq.detach(), error / (classes * positions**2))
    ratio = float(q.detach()) * curvature / error if error else math.nan
    return OutputGradient(Gradient(sq), ratio, 0.0, 0.0)


def softmax_moments(q: float, classes: int) -> tuple[float, float]:
    """Find (E|p - t|², E tr S²) for p the softmax of `classes` logits N(0, q), t a random label, S = diag(p) - p pᵀ.

    >>> softmax_moments(0.0, 2)
    (0.5, 0.25)
    """
    if math.isnan(q):
        return math.nan, math.nan
    if classes > MAX_DRAWN_CLASSES:  # sums over many classes hardly vary
        second = min(math.exp(min(q, 50.0)) / classes, 1.0)
        return 1 + second - 2 / classes, second * (1 - second) + second**2
    logits = torch.randn(SAMPLES, classes, generator=stream(0, "softmax moments"), dtype=torch.float64)
    p: Tensor = torch.softmax(math.sqrt(q) * logits, dim=1)
    squares, cubes = p.square().sum(1), p.pow(3).sum(1)
    return float(squares.mean() + 1 - 2 / classes), float((squares - 2 * cubes + squares.square()).mean())
