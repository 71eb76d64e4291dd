"""How the variance of an estimate over pairs of Gaussian directions splits up, from few directions.

For directions ω of a matrix Y and the kernel h_km = Y_km Y_mk of pairs (`hessdiag.curvature.estimators.pairs`), beside
an exact basis Q or none, E[h_km | ω_k] = ω_kᵀ Y² ω_k up to a constant, so that with B = P Y² P and P = I − QQᵀ

    ζ₁ = tr(B²) + tr(B Bᵀ),   Var U = 4 ζ₁ / q + 2 V / (q (q − 1)),   V ≈ tr(PYPY)² + ‖PYP‖_F⁴ + ζ₁,

and ζ₂ = 2 ζ₁ + V. Both traces are sums over cycles k → a → m → b of distinct directions. That the directions are
Gaussian is put to use: of a high rank, a dozen of them tell ζ₂ three times as precisely as the covariances of kernels
in `pairs` do, and ζ₁ one and a half times.

ζ₁/θ² is 2/r for a flat spectrum of rank r and more for others; still the largest of a hundred estimates of it is
mostly noise, and would ask for several times as many directions as any block needs. So it is shrunk towards c/r, with
one c for all blocks, as far as the scatter about that is noise (B. Efron & C. Morris, Journal of the American
Statistical Association 70 (1975) 311–319).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hessdiag.execution.work import Result
from hessdiag.results.numbers import Array

CYCLE_VARIANCE = 7.0  # of twice a cycle, in θ⁴, where the rank is high


def component_sums(X: Tensor, *, fixed: int) -> Result:
    """Sums over examples of ζ₁ and ζ₂ − 3 ζ₁ of the diagonal blocks, `shared` and `apart`; (L, L), zero elsewhere.

    Args:
        X: (B, L, m, m), zᵀ Y z of the directions z; q = m - `fixed` ≥ 4 of them are random.
        fixed: number of directions of the basis, which come first.
    """
    X = X.double()
    q = X.shape[-1] - fixed
    random = X[..., fixed:, fixed:] * (1 - torch.eye(q, dtype=X.dtype, device=X.device))
    shared = _covariance(random, X[..., fixed:, :fixed] @ X[..., :fixed, fixed:])
    pairs = q * (q - 1)
    trace = (random * random.mT).sum(dim=(2, 3)) / pairs  # of PYPY
    norm_sq = random.square().sum(dim=(2, 3)) / pairs
    sums = {"shared": shared, "apart": trace.square() + norm_sq.square()}
    return {key: torch.diag(each.sum(dim=0)).cpu().numpy() for key, each in sums.items()}


def _covariance(random: Tensor, through_basis: Tensor) -> Tensor:
    """ζ₁, (B, L): the mean over k ≠ m of (Y²)_km² + (Y²)_km (Y²)_mk, each with two distinct directions in between.

    Args:
        random: Y along the random directions, (B, L, q, q), with zeros on the diagonal.
        through_basis: Σ_f Y_kf Y_fm over the basis, of the same shape.
    """
    q = random.shape[-1]
    once, twice = q - 2, (q - 2) * (q - 3)  # directions, and pairs of them, that are neither k nor m
    F, A = through_basis, random @ random
    same = random.square() @ random.square()
    turned = random * random.mT
    squares = F.square() + 2 * F * A / once + (A.square() - same) / twice
    products = F * F.mT + (F * A.mT + F.mT * A) / once + (A * A.mT - turned @ turned) / twice
    total = squares + products
    return (total.sum(dim=(2, 3)) - total.diagonal(dim1=2, dim2=3).sum(dim=2)) / (q * (q - 1))


def shrunk(shared: Array, ranks: Array, *, cycles: float) -> Array:
    """ζ₁/θ² of all blocks, never less than that of a flat spectrum.

    Args:
        shared: unbiased estimates of them, (L,).
        ranks: effective ranks r of the blocks.
        cycles: of four distinct directions, that each estimate is the mean of.
    """
    flat = 2 / np.maximum(ranks, 1)
    pooled = max(float(shared.sum() / flat.sum()), 1.0) * flat
    scatter = float(np.square(shared - pooled).mean())
    left = max(scatter - CYCLE_VARIANCE / cycles, 0.0)
    share = left / scatter if left else 0.0
    return np.asarray(np.maximum(pooled + share * (shared - pooled), flat))


def cycles_of(q: int) -> float:
    """How many cycles of four distinct directions there are.

    >>> cycles_of(4)
    3.0
    """
    return q * (q - 1) * (q - 2) * (q - 3) / 8
