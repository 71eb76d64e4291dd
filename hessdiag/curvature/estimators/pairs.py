"""Sums over pairs of random directions, with unbiased variances (Hoeffding 1948, U-statistics of order 2).

For directions 1..q the estimate U is the mean over pairs k ≠ m of a symmetric kernel h_km. Its variance is
E[U²] − θ², and θ² has the unbiased estimate "mean of h_km h_st over pairs without a common index". A jackknife would
overestimate the variance twofold where the kernel is degenerate, which it is for matrices of high effective rank.
With few directions that estimate may come out near or below zero; the variance 2 ζ₂ / q(q−1) of unrelated pairs is a
lower bound and stands in for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessdiag.execution.work import Result


def pair_sums(X: Tensor, K: Tensor, *, fixed: int) -> Result:
    """Sums over examples of Σ_{k≠m} w X_i[k, m] X_j[m, k], for all pairs (i, j) of L blocks, with all that comes of it.

    Args:
        X: (B, L, m, m); the first `fixed` directions are a deflation basis, of weight 1 and without noise.
        K: (B, L, m, m) Gram matrices, whose rank is asked for.
        fixed: number of directions of the basis.

    Returns:
        `value` and `variance`, (L, L); `trace`, `trace_sq` and `norm_sq`, (L,): tr K, (tr K)² and ‖K‖².
    """
    X, K = X.double(), K.double()
    pairs = [pair_estimate(X[:, i : i + 1], X, fixed) for i in range(X.shape[1])]  # (B, L) each
    K = K[..., fixed:, fixed:]
    diagonal = torch.diagonal(K, dim1=2, dim2=3)  # (B, L, q)
    count = diagonal.shape[2]
    total, squares = diagonal.sum(dim=2), diagonal.square().sum(dim=2)  # (B, L)
    sums = {
        "value": torch.stack([value for value, _ in pairs], dim=1),
        "variance": torch.stack([variance for _, variance in pairs], dim=1),
        "trace": total / count,
        "trace_sq": (total.square() - squares) / (count * (count - 1)),
        "norm_sq": (K.square().sum(dim=(2, 3)) - squares) / (count * (count - 1)),
    }
    return {key: each.sum(dim=0).cpu().numpy() for key, each in sums.items()}


def pair_estimate(X: Tensor, Y: Tensor, fixed: int) -> tuple[Tensor, Tensor]:
    """Estimate Σ_{k, m} X[k, m] Y[m, k] over all directions, from a basis and a sample.

    Args:
        X, Y: (..., m, m); directions `fixed` and later are the random ones, q ≥ 4 of them.
        fixed: number of directions of weight 1 and no noise.

    Returns:
        The unbiased estimate, and its variance: the unbiased estimate of it, but never less than what pairs would have
        if no two of them shared a direction, both (...).
    """
    H = X * Y.transpose(-1, -2)  # (..., m, m)
    q = H.shape[-1] - fixed
    certain = H[..., :fixed, :fixed].sum(dim=(-1, -2))
    mixed = H[..., :fixed, fixed:].sum(dim=-2) + H[..., fixed:, :fixed].sum(dim=-1)  # (..., q)
    pairs = H[..., fixed:, fixed:]
    pairs = (pairs + pairs.transpose(-1, -2)) / 2
    kernel = pairs + (mixed.unsqueeze(-1) + mixed.unsqueeze(-2)) / 2 + certain[..., None, None]
    kernel = kernel * (1 - torch.eye(q, dtype=H.dtype, device=H.device))
    rows = kernel.sum(dim=-1)
    total, by_row, by_pair = rows.sum(dim=-1), rows.square().sum(dim=-1), kernel.square().sum(dim=(-1, -2))
    estimate = total / (q * (q - 1))
    disjoint = total.square() - 4 * by_row + 2 * by_pair
    unbiased = estimate.square() - disjoint / (q * (q - 1) * (q - 2) * (q - 3))
    spread = by_pair / (q * (q - 1)) - estimate.square()  # of the kernel over pairs
    return estimate, torch.maximum(unbiased, spread.clamp(min=0) * 2 / (q * (q - 1)))
