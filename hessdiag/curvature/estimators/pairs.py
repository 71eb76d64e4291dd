"""Sums over pairs of random directions, with unbiased variances (Hoeffding 1948, U-statistics of order 2).

For directions 1..q the estimate U is the mean over pairs k ≠ m of a symmetric kernel h_km of mean θ. Its variance is

    Var U = (4 (q − 2) ζ₁ + 2 ζ₂) / (q (q − 1)),   ζ₁ = Cov(h_km, h_kt),   ζ₂ = Var h_km,

with ζ₁, ζ₂ from the means of h_km h_kt and of h_km², less θ², whose unbiased estimate is the mean of h_km h_st over
pairs without a common index. A jackknife would overestimate the variance twofold where the kernel is degenerate
(ζ₁ = 0), which it is for matrices of high effective rank. With few directions the estimate of Var U may come out near
or below zero; the variance 2 ζ₂ / q(q−1) of unrelated pairs is a lower bound and stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessdiag.execution.work import Result


@dataclass(frozen=True)
class PairStatistics:
    """What pairs of directions tell of Σ_{k, m} X[k, m] Y[m, k], (...) each.

    Attributes:
        estimate: without bias.
        variance: of `estimate`, without bias, but never less than if no two pairs shared a direction.
        shared: ζ₁, the covariance of two pairs that share a direction, without bias.
        apart: ζ₂, the variance of a pair, without bias.
        size: the same sum over absolute values: what rounding is relative to.
    """

    estimate: Tensor
    variance: Tensor
    shared: Tensor
    apart: Tensor
    size: Tensor


def pair_sums(X: Tensor, K: Tensor, *, fixed: int) -> Result:
    """Sums over examples of Σ_{k≠m} w X_i[k, m] X_j[m, k], for all pairs (i, j) of L blocks, with all that comes of it.

    Args:
        X: (B, L, m, m); the first `fixed` directions are a deflation basis, of weight 1 and without noise.
        K: (B, L, m, m) Gram matrices, whose rank is asked for.
        fixed: number of directions of the basis.

    Returns:
        `value`, `variance`, `shared`, `apart` and `size`, (L, L), of `PairStatistics`, and `fourth`, Σ variance²;
        `trace`, `trace_sq` and `norm_sq`, (L,): tr K, (tr K)² and ‖K‖².
    """
    X, K = X.double(), K.double()
    pairs = [pair_statistics(X[:, i : i + 1], X, fixed) for i in range(X.shape[1])]  # (B, L) each
    K = K[..., fixed:, fixed:]
    diagonal = torch.diagonal(K, dim1=2, dim2=3)  # (B, L, q)
    count = diagonal.shape[2]
    total, squares = diagonal.sum(dim=2), diagonal.square().sum(dim=2)  # (B, L)
    variance = torch.stack([each.variance for each in pairs], dim=1)
    sums = {
        "value": torch.stack([each.estimate for each in pairs], dim=1),
        "variance": variance,
        "fourth": variance.square(),
        "shared": torch.stack([each.shared for each in pairs], dim=1),
        "apart": torch.stack([each.apart for each in pairs], dim=1),
        "size": torch.stack([each.size for each in pairs], dim=1),
        "trace": total / count,
        "trace_sq": (total.square() - squares) / (count * (count - 1)),
        "norm_sq": (K.square().sum(dim=(2, 3)) - squares) / (count * (count - 1)),
    }
    return {key: each.sum(dim=0).cpu().numpy() for key, each in sums.items()}


def pair_statistics(X: Tensor, Y: Tensor, fixed: int) -> PairStatistics:
    """Estimate Σ_{k, m} X[k, m] Y[m, k] over all directions, from a basis and a sample.

    Args:
        X, Y: (..., m, m); directions `fixed` and later are the random ones, q ≥ 4 of them.
        fixed: number of directions of weight 1 and no noise.
    """
    H = X * Y.transpose(-1, -2)  # (..., m, m)
    kernel = _kernel(H, fixed)
    q = kernel.shape[-1]
    rows = kernel.sum(dim=-1)
    total, by_row, by_pair = rows.sum(dim=-1), rows.square().sum(dim=-1), kernel.square().sum(dim=(-1, -2))
    estimate = total / (q * (q - 1))
    truth_sq = (total.square() - 4 * by_row + 2 * by_pair) / (q * (q - 1) * (q - 2) * (q - 3))
    shared = (by_row - by_pair) / (q * (q - 1) * (q - 2)) - truth_sq
    apart = by_pair / (q * (q - 1)) - truth_sq
    spread = by_pair / (q * (q - 1)) - estimate.square()  # of the kernel over pairs
    variance = torch.maximum(estimate.square() - truth_sq, spread.clamp(min=0) * 2 / (q * (q - 1)))
    size = _kernel(H.abs(), fixed).sum(dim=(-1, -2)) / (q * (q - 1))
    return PairStatistics(estimate, variance, shared, apart, size)


def _kernel(H: Tensor, fixed: int) -> Tensor:
    """h_km of the random directions, (..., q, q), 0 on the diagonal: terms of the basis are shared out to all pairs."""
    q = H.shape[-1] - fixed
    certain = H[..., :fixed, :fixed].sum(dim=(-1, -2))
    mixed = H[..., :fixed, fixed:].sum(dim=-2) + H[..., fixed:, :fixed].sum(dim=-1)  # (..., q)
    pairs = H[..., fixed:, fixed:]
    pairs = (pairs + pairs.transpose(-1, -2)) / 2
    kernel = pairs + (mixed.unsqueeze(-1) + mixed.unsqueeze(-2)) / 2 + certain[..., None, None]
    return kernel * (1 - torch.eye(q, dtype=H.dtype, device=H.device))
