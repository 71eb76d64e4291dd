"""‖mean over examples of G^(b)‖² from pairs of examples, each with random directions of its own.

With w_ia = J_i^T A z_ia of example i and E z z^T = I, direction a of one example and b of another tell their inner
product, E ⟨w_ia, w_jb⟩² = ⟨G^(i), G^(j)⟩, as do two directions a ≠ b of one example for i = j. So a backward pass of
k directions for each of B examples gives (B k)² / 2 unbiased terms h of

    ‖(1/B) Σ_i G^(i)‖² = (1 − 1/B) mean_{i≠j} ⟨G^(i), G^(j)⟩ + (1/B) mean_i ‖G^(i)‖²,

where k directions of the whole batch would give k² / 2. Two errors add: of the directions, and of the examples where
they are g < B of them. Both are told by how much the estimate changes when a direction, or an example, is replaced by
another of its kind (B. Efron and C. Stein, Annals of Statistics 9 (1981) 586–596), which is never too little on
average: it counts twice what two of them vary together.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hessdiag.curvature.estimators.pairs import pair_statistics
from hessdiag.execution.work import Result

ENOUGH = 4  # directions of an example that tell their own variance
AT_ONCE = 2**23  # numbers of a factor that are held at once
INTERACTING = (12, 2**17)  # examples that tell how much pairs of them vary beyond each, at least; numbers of theirs


def example_pair_sums(X: Tensor, *, fixed: int, batch: int) -> Result:
    """The estimate of a group of examples, and its variances, for all pairs of L blocks.

    Args:
        X: (L, g, m, g, m), ⟨w_l(z_ia), w_l(S z_jb)⟩ of direction a of example i and b of j; the first `fixed`
            directions of an example are a deflation basis, of weight 1 and without noise.
        fixed: number of directions of the basis.
        batch: B, the examples that are meant.

    Returns:
        (L, L) each: `value`; `directions`, its variance over directions, and `directions_sq`, the sum of squares of
        what each example adds to it; `examples`, its variance over examples that are drawn anew, with directions of
        their own, `third` and `fourth`, sums of such powers of what each example changes; `pairings`, the variance over
        which examples are grouped with which; `size`, the sum over absolute values, or a bound of it: what rounding is
        relative to.
    """
    X = X.double()
    L, g, m, _, _ = X.shape
    between = (1 - 1 / batch) / (g * (g - 1)) if g > 1 else 0.0  # weight of a pair of examples
    apart, same = _weights(m, fixed, like=X)
    alone = torch.diagonal(X, dim1=1, dim2=3).permute(0, 3, 1, 2)  # (L, g, m, m)
    own = _sums_by_row(alone.permute(1, 0, 2, 3), same / (batch * g))  # (g, m, L, L)
    others = X.clone()
    others.diagonal(dim1=1, dim2=3).zero_()
    others = others.flatten(3).flatten(1, 2)  # (L, g m, g m)
    off = _sums_by_row(others.unsqueeze(0), (between * apart).repeat(g, g)).view(g, m, L, L)
    by_example = 2 * off.sum(dim=1) + own.sum(dim=1)  # that change with an example: it is twice in a pair
    squares = (others.square() * (between * apart).repeat(g, g)).sum(dim=(1, 2))
    squares = squares + (alone.square() * (same / (batch * g))).sum(dim=(1, 2, 3))
    d = by_example - by_example.mean(dim=0)
    own_variance = _of_own_pairs(alone, own.sum(dim=1), fixed=fixed, weight=1 / (batch * g))
    directions, squared = _over_directions(off[:, fixed:], own_variance)
    sums = {
        "value": off.sum(dim=(0, 1)) + own.sum(dim=(0, 1)),
        "directions": directions,
        "directions_sq": squared,
        "examples": d.square().sum(dim=0) * g / max(g - 1, 1),
        "third": d.pow(3).sum(dim=0),
        "fourth": d.pow(4).sum(dim=0),
        "pairings": _over_pairings(X, apart, batch),
        "size": torch.sqrt(squares[:, None] * squares),
    }
    return {key: (each + each.mT).div(2).cpu().numpy() for key, each in sums.items()}


def _weights(m: int, fixed: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (m, m) of the directions of two examples, and of one example, where none is paired with itself."""
    k = m - fixed
    each = like.new_ones(m)
    each[fixed:] = 1 / max(k, 1)
    apart = torch.outer(each, each)
    same = apart.clone()
    same[fixed:, fixed:] = 1 / (k * (k - 1)) if k > 1 else 0.0
    same.diagonal()[fixed:] = 0.0
    return apart, same


def _sums_by_row(X: Tensor, W: Tensor) -> Tensor:
    """Σ_s W_rs X_i[r, s] X_j[s, r] of every r, symmetric in i and j: of (g, L, n, n) and (n, n), (g, n, L, L)."""
    _, L, n, _ = X.shape
    step = max(1, AT_ONCE // (L * max(n, L)))
    found = []
    for start in range(0, n, step):
        some = slice(start, start + step)
        left = (X[:, :, some] * W[some]).transpose(1, 2)  # (g, r, L, n)
        found.append(left @ X[:, :, :, some].permute(0, 3, 2, 1))
    rows = torch.cat(found, dim=1)
    return (rows + rows.mT) / 2


def _over_directions(off: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """From the sums of every random direction of every example with others, (g, k, L, L), and of `_of_own_pairs`.

    A direction stands on either side of a pair, so that the estimate changes by twice what its own sum does.
    """
    k = off.shape[1]
    if k < 2:
        return off.new_zeros(off.shape[2:]), off.new_zeros(off.shape[2:])
    among = 4 * k * off.var(dim=1)  # (g, L, L)
    total = (among.sum(dim=0).sqrt() + own.sum(dim=0).sqrt()).square()  # at most, if both vary together
    return total, (among.square() + own.square()).sum(dim=0)


def _of_own_pairs(alone: Tensor, sums: Tensor, *, fixed: int, weight: float) -> Tensor:
    """Variance over its directions of what an example's own pairs tell, (g, L, L).

    Of few directions, all that is known is how their sum, (g, L, L), varies over examples.

    Args:
        alone: (L, g, m, m), of each example with itself.
        sums: Σ of their pairs, in the estimate.
        fixed: number of directions of the basis.
        weight: of an example.
    """
    g, k = len(sums), alone.shape[-1] - fixed
    if k >= ENOUGH:
        own = alone.transpose(0, 1)
        told = pair_statistics(own, own, fixed)
        return told.variance * weight**2
    return (sums - sums.mean(dim=0)).square() * g / (g - 1) if g > 1 else sums.square()


def _over_pairings(X: Tensor, apart: Tensor, batch: int) -> Tensor:
    """2 ζ₂ / g (g − 1) of the pairs of examples, for the share of all pairs of the batch that no group has.

    ζ₂ is told by some of the examples, as what a table of pairs has beyond an effect of each (B. Griffing, Australian
    Journal of Biological Sciences 9 (1956) 463–493, method 4); this error is small where examples are many.
    """
    L, g = X.shape[:2]
    missing = 1 - (g - 1) / max(batch - 1, 1)
    least, numbers = INTERACTING
    some = min(g, max(least, math.isqrt(numbers) // L))
    if some < 4 or missing <= 0:
        return X.new_zeros(L, L)
    X = X[:, :some, :, :some]
    left = (X * apart[:, None, :]).permute(1, 3, 0, 2, 4).flatten(3)  # (i, j, L, m m)
    H = left @ X.permute(3, 1, 4, 2, 0).flatten(2, 3)  # (i, j, L, L)
    H.diagonal(dim1=0, dim2=1).zero_()
    rows = H.sum(dim=1)
    squares, by_example, total = H.square().sum(dim=(0, 1)), rows.square().sum(dim=0), rows.sum(dim=0)
    left_over = squares / 2 - by_example / (some - 2) + total.square() / (2 * (some - 1) * (some - 2))
    return missing * 2 * left_over.clamp(min=0) * 2 / (some * (some - 3) * g * (g - 1))
