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

from hessdiag.report import Array


class PairSum:
    """Accumulates Σ_{k≠m} w X_i[k, m] X_j[m, k] over examples, for all pairs (i, j) of L blocks.

    The first `fixed` directions are a deflation basis, of weight 1 and without noise; the others are random.
    """

    def __init__(self, blocks: int, fixed: int) -> None:
        self.fixed = fixed
        self.examples = 0
        self.value = torch.zeros(blocks, blocks, dtype=torch.float64)
        self.variance = torch.zeros(blocks, blocks, dtype=torch.float64)
        self.trace = torch.zeros(blocks, dtype=torch.float64)
        self.trace_sq = torch.zeros(blocks, dtype=torch.float64)
        self.norm_sq = torch.zeros(blocks, dtype=torch.float64)

    def add(self, X: Tensor, K: Tensor) -> None:
        """Add examples: X, and the Gram matrices K whose rank is asked for, are (B, L, m, m)."""
        X, K = X.double(), K.double()
        self.examples += len(X)
        for i in range(X.shape[1]):
            value, variance = pair_estimate(X[:, i : i + 1], X, self.fixed)  # (B, L)
            self.value[i] += value.sum(dim=0).cpu()
            self.variance[i] += variance.sum(dim=0).cpu()
        K = K[..., self.fixed :, self.fixed :]
        diagonal = torch.diagonal(K, dim1=2, dim2=3)  # (B, L, q)
        count = diagonal.shape[2]
        total = diagonal.sum(dim=2)
        off = K.square().sum(dim=(2, 3)) - diagonal.square().sum(dim=2)
        self.norm_sq += (off / (count * (count - 1))).sum(dim=0).cpu()
        self.trace += (total / count).sum(dim=0).cpu()
        pairs = (total.square() - diagonal.square().sum(dim=2)) / (count * (count - 1))
        self.trace_sq += pairs.sum(dim=0).cpu()

    def mean(self) -> tuple[Array, Array]:
        """(L, L) means over examples, and their variances."""
        return (self.value / self.examples).numpy(), (self.variance / self.examples**2).numpy()

    def rank_statistics(self) -> tuple[Array, Array, Array]:
        """Means over examples of tr K, (tr K)² and ‖K‖², for each block."""
        sums = (self.trace, self.trace_sq, self.norm_sq)
        trace, trace_sq, norm_sq = ((total / self.examples).numpy() for total in sums)
        return trace, trace_sq, norm_sq


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
