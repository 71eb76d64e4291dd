"""Sums over pairs of random directions, with unbiased variances (Hoeffding 1948, U-statistics of order 2).

For directions 1..q the estimate U is the mean over pairs k ≠ m of a symmetric kernel h_km of mean θ. Its variance is

    Var U = (4 (q − 2) ζ₁ + 2 ζ₂) / (q (q − 1)),   ζ₁ = Cov(h_km, h_kt),   ζ₂ = Var h_km,

with ζ₁, ζ₂ from the means of h_km h_kt and of h_km², less θ², whose unbiased estimate is the mean of h_km h_st over
pairs without a common index. A jackknife would overestimate the variance twofold where the kernel is degenerate
(ζ₁ = 0), which it is for matrices of high effective rank. With few directions the estimate of Var U may come out near
or below zero; the variance 2 ζ₂ / q(q−1) of unrelated pairs is a lower bound and stands in for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

AT_ONCE = 2**24  # numbers of a factor, some of which are held at once


def pair_sums(X: Tensor, *, fixed: int) -> dict[str, Tensor]:
    """Sums over examples of the `pair_statistics` of all pairs of L blocks, (L, L), and `fourth`, Σ variance².

    Args:
        X: (B, L, m, m); the first `fixed` directions are a deflation basis, of weight 1 and without noise.
        fixed: number of directions of the basis.
    """
    _, L, m, _ = X.shape
    total: dict[str, Tensor] = {}
    for some in torch.split(X, max(1, AT_ONCE // (m * L * max(m, L)))):
        each = pair_statistics(some.double(), fixed)
        each["fourth"] = each["variance"].square()
        total = {key: total.get(key, 0) + value.sum(dim=0) for key, value in each.items()}
    return total


def pair_statistics(X: Tensor, fixed: int) -> dict[str, Tensor]:
    """Estimate Σ_{k, m} X_i[k, m] X_j[m, k] over all directions, from a basis and a sample, for all i and j.

    With a_km = X_i[k, m] X_j[m, k], c its sum over the basis and b_k = Σ_{f of the basis} a_kf + a_fk, the kernel is
    h_km = (a_km + a_mk)/2 + (b_k + b_m)/2 + c for k ≠ m. What is needed of it are Σ h, Σ_k (Σ_m h_km)² and Σ h², all of
    which are matrix products over i and j: no h is formed for a pair. c varies nothing and is left out of squares,
    where it would drown small variances in rounding.

    Args:
        X: (B, L, m, m); directions `fixed` and later are the random ones, q ≥ 4 of them.
        fixed: number of directions of weight 1 and no noise.

    Returns:
        (B, L, L) each: `value`, without bias; its `variance`, without bias, but never less than if no two pairs shared
        a direction; `size`, the same sum over absolute values: what rounding is relative to.
    """
    q, Z = X.shape[-1] - fixed, X.mT
    weights = X.new_ones(q + fixed, q + fixed)  # of a_km in q (q − 1) means of h
    weights[:fixed] = weights[:, :fixed] = q - 1
    weights[:fixed, :fixed] = q * (q - 1)
    weights.diagonal()[fixed:] = 0
    estimate = _products(X * weights, Z) / (q * (q - 1))
    size = _products(X.abs() * weights, Z.abs()) / (q * (q - 1))
    mixed = _by_direction(X[..., fixed:, :fixed], Z[..., fixed:, :fixed])
    mixed = mixed + _by_direction(X[..., :fixed, fixed:].mT, Z[..., :fixed, fixed:].mT)  # b, (B, q, I, J)
    off = 1 - torch.eye(q, dtype=X.dtype, device=X.device)
    X, Z = X[..., fixed:, fixed:] * off, Z[..., fixed:, fixed:] * off
    pairs = (_by_direction(X, Z) + _by_direction(X.mT, Z.mT)) / 2  # Σ_m (a_km + a_mk)/2
    both = mixed.sum(dim=1)
    rows = pairs + ((q - 2) * mixed + both.unsqueeze(1)) / 2  # Σ_m h_km, without c
    total, by_row = rows.sum(dim=1), rows.square().sum(dim=1)
    by_pair = (_products(X.square(), Z.square()) + _products(X * X.mT, Z * Z.mT)) / 2 + 2 * (mixed * pairs).sum(dim=1)
    by_pair = by_pair + ((q - 2) * mixed.square().sum(dim=1) + both.square()) / 2  # of Σ_{k≠m} ((b_k + b_m)/2)²
    mean = total / (q * (q - 1))
    truth_sq = (total.square() - 4 * by_row + 2 * by_pair) / (q * (q - 1) * (q - 2) * (q - 3))
    spread = by_pair / (q * (q - 1)) - mean.square()  # of the kernel over pairs
    variance = torch.maximum(mean.square() - truth_sq, spread.clamp(min=0) * 2 / (q * (q - 1)))
    return {"value": estimate, "variance": variance, "size": size}


def _products(X: Tensor, Z: Tensor) -> Tensor:
    """Σ_{k, m} X_i[k, m] Z_j[k, m], (B, I, J)."""
    return torch.bmm(X.flatten(2), Z.flatten(2).transpose(1, 2))


def _by_direction(X: Tensor, Z: Tensor) -> Tensor:
    """Σ_m X_i[k, m] Z_j[k, m] for every k, (B, q, I, J)."""
    return torch.matmul(X.transpose(1, 2), Z.permute(0, 2, 3, 1))
