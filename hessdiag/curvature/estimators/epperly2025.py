"""XSymRowNorm: squared norms from products that serve both as a range finder and as probes of what it leaves.

E. N. Epperly, *Make the most of what you have: resource-efficient randomized algorithms for matrix computations*
(arXiv 2512.15929), chapter 17; the leave-one-out construction is that of XTrace (arXiv 2301.07825).

For H symmetric, k random sign vectors Ω and Q = orth(HΩ), ‖H‖_F² = ‖HQ‖_F² + ‖H(I − QQᵀ)‖_F². To estimate the second
term, a probe must be independent of Q. Hence each probe ω_l is left out of the Q that it is used with:
    v_l = ‖H Q_l‖_F² + ‖H(I − Q_l Q_lᵀ) ω_l‖²,   Q_l = orth of HΩ without its column l,
k unbiased estimates, whose mean is returned. With HΩ = QR and s_l = R⁻ᵀ e_l normalised, Q_l Q_lᵀ = Q(I − s_l s_lᵀ)Qᵀ.
So all v_l follow from Y = HΩ and Z = HQ, 2k products, with x_l = (I − s_l s_lᵀ)Qᵀω_l:
    v_l = ‖Z‖_F² − ‖Z s_l‖² + ‖y_l − Z x_l‖².

Any Q_l independent of ω_l will do, so that the same formula, with the same Q, is unbiased for every other block B of
the column that H is a diagonal block of (y_l = Bω_l, Z = BQ). It is sharp where the right singular vectors of B are in
the range of H.

The v_l are not independent: the spread of them alone, as XTrace's error estimate takes it, gives bars that are up to
40 % too short here. The variance (derived for this package) is Var(mean) = E[s²]/k + Cov(v_l, v_m), with s² the sample
variance of the v_l. Let v_lm be v_l with probe m left out of Q as well. Given all other probes, v_lm does not depend
on ω_m, nor v_ml on ω_l, and each of v_l, v_lm has mean ‖B‖_F² over its own ω_l. Of the four products in
    Cov(v_l, v_m) = E[(v_l − v_lm)(v_m − v_ml)]
only the first is therefore correlated, so that the mean over all pairs is an unbiased estimate of the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.estimate import Estimate
from hessdiag.curvature.estimators.student import skewed_dof
from hessdiag.results.numbers import Array

RANK_TOLERANCE = 1e-13  # of the largest singular value: directions below are rounding
SHARED = 1e-8  # a column whose leverage is this far below 1 is in the range of the others
MAX_COVARIANCE = 4.0  # times s²/k: for fast decay the noise of the covariance estimate is far above that
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Range:
    """Orthonormal basis Q of the range of Y, and how it changes when one column of Y is left out.

    Attributes:
        basis: Q, (n, p).
        downdates: S, (p, k); Q(I − s_l s_lᵀ)Qᵀ projects on the range of Y without column l. 0 where that is the same.
    """

    basis: Tensor
    downdates: Tensor


def new_directions(basis: Tensor, images: Tensor, *, scale: float) -> Tensor:
    """Orthonormal basis (n, q <= m) of what the columns of `images` (n, m) add to the range of `basis` (n, p).

    Args:
        basis: orthonormal, float64.
        images: float64.
        scale: singular values below `RANK_TOLERANCE` of it are none.
    """
    Q, R = torch.linalg.qr(images - basis @ (basis.T @ images))
    U, sigma, _ = torch.linalg.svd(R)
    found: Tensor = Q @ U[:, : int((sigma > RANK_TOLERANCE * scale).sum())]
    if found.shape[1]:  # small directions, normalised, show what rounding left of the basis
        found = torch.linalg.qr(found - basis @ (basis.T @ found)).Q
    return found


def downdated(basis: Tensor, images: Tensor) -> Range:
    """The range of `images` (n, k) with orthonormal `basis` (n, p), p <= k, ready to be left one column out."""
    coordinates = basis.T @ images  # (p, k)
    if not len(coordinates):
        return Range(basis, coordinates)
    U, sigma, Vt = torch.linalg.svd(coordinates, full_matrices=False)
    S = U @ (Vt / sigma[:, None])  # (p, k); R⁻ᵀ where p = k
    essential = 1 - Vt.square().sum(dim=0) < SHARED
    return Range(basis, torch.where(essential, S / torch.linalg.vector_norm(S, dim=0), 0.0))


@dataclass(frozen=True)
class Grams:
    """All that the estimate needs of the products with one block B.

    Attributes:
        ZZ: (p, p), Gram matrix of BQ.
        ZY: (p, k), inner products of BQ and BΩ.
        YY: (k,), squared norms of BΩ.
    """

    ZZ: Tensor
    ZY: Tensor
    YY: Tensor

    @classmethod
    def of(cls, Z: Tensor, Y: Tensor) -> Grams:
        """Sums in float64 over `Z` (p, n_i) and `Y` (k, n_i), product vectors of any dtype in their rows."""
        p, k = len(Z), len(Y)
        both = torch.zeros(p, p + k, dtype=torch.float64, device=Y.device)
        norms = torch.zeros(k, dtype=torch.float64, device=Y.device)
        for start in range(0, Y.shape[1], ROWS_AT_ONCE):
            z, y = (V[:, start : start + ROWS_AT_ONCE].double() for V in (Z, Y))
            both += z @ torch.cat([z, y]).T
            norms += y.square().sum(dim=1)
        return cls(both[:, :p], both[:, p:], norms)


def leave_one_out(grams: Grams, S: Tensor, W: Tensor) -> tuple[Array, Array]:
    """Estimates v_l (k,) of ‖B‖_F², and v_l − v_lm (k, k), 0 on the diagonal.

    Args:
        grams: of the products with B.
        S: (p, k), downdates of the range.
        W: QᵀΩ, (p, k).
    """
    X = W - S * (S * W).sum(dim=0)  # (p, k)
    GX = grams.ZZ @ X
    A = S.T @ grams.ZZ @ S  # (k, k)
    residual = grams.YY - 2 * (X * grams.ZY).sum(dim=0) + (X * GX).sum(dim=0)  # ‖y_l − Z x_l‖²
    v = grams.ZZ.diagonal().sum() - A.diagonal() + residual
    # t = (s_m − ρ s_l)/√(1 − ρ²) is what leaving out m removes from Q_l. It changes v_l by
    # v_l − v_lm = ‖Z t‖² − 2 (tᵀx_l)(y_l − Z x_l)ᵀZ t − (tᵀx_l)² ‖Z t‖².
    rho = S.T @ S
    length = (1 - rho.square()).clamp(min=torch.finfo(rho.dtype).eps).sqrt()
    a = A.diagonal()
    Zt_sq = (a[None, :] - 2 * rho * A + rho.square() * a[:, None]) / length.square()  # (l, m)
    tx = (X.T @ S) / length  # s_lᵀx_l = 0
    cross = (grams.ZY - GX).T @ S
    Zt_residual = (cross - rho * cross.diagonal()[:, None]) / length
    h = Zt_sq - 2 * tx * Zt_residual - tx.square() * Zt_sq
    return v.cpu().numpy(), h.fill_diagonal_(0.0).cpu().numpy()


def xsymrownorm(blocks: list[Grams], S: Tensor, W: Tensor, *, pilot: int = 0) -> Estimate:
    """‖B‖_F² for every block B of a column, with standard errors from leaving out one probe and two.

    The degrees of freedom are k − 1, and fewer for the skewness of the v_l.

    Args:
        blocks: Gram matrices of the products with each block.
        S, W: (p, k), downdates of the range of the diagonal block's products, and QᵀΩ.
        pilot: the first so many probes, with which k was chosen, serve Q alone.
    """
    k = S.shape[1] - pilot
    values, errors, dofs = [], [], []
    for grams in blocks:
        v, h = leave_one_out(grams, S, W)
        v, h = v[pilot:], h[pilot:, pilot:]
        with np.errstate(invalid="ignore"):  # products that overflowed have no variance
            independent = v.var(ddof=1) / k
            covariance = (h * h.T).sum() / (k * (k - 1))
            error = np.sqrt(independent + np.clip(covariance, 0.0, MAX_COVARIANCE * independent))
        below = float(grams.ZZ.diagonal().sum()) - v.mean()  # ‖B‖_F² is no less than ‖BQ‖_F²: an error seen
        values.append(max(v.mean(), 0.0))
        errors.append(max(error, below))
        dofs.append(skewed_dof(np.array(k - 1.0), _skewness(v) / np.sqrt(k)))
    return Estimate(np.array(values), np.array(errors), np.array(dofs))


def _skewness(v: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = v - v.mean()
        skewness: Array = np.nan_to_num(np.asarray((apart**3).mean() / (apart**2).mean() ** 1.5))
    return skewness
