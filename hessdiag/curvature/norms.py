"""Squared Frobenius norms of blocks with their standard errors: what every algorithm returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import stdtrit
from torch import Tensor

from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import block_parameter
from hessdiag.results.blocks import Ended
from hessdiag.results.numbers import Z95, Array

AT_ONCE = 2**24  # numbers of a factor, some of which are held at once
ROUNDING = 64  # rounding of a norm, in units of the dtype's eps
TAILS = 6.0  # how many times fewer degrees of freedom the variance of fourth powers of Gaussians has than of Gaussians
MARGIN = 1.2  # on the standard error that a first stage foretells
UNMEASURED = "leave quick (--quick) out for it"


@dataclass(frozen=True)
class Curvature:
    """Squared Frobenius norms of the blocks G_ij of L parameters, averaged over examples in the per-example view."""

    # (L, L), without bias, hence below 0 at times; off the diagonal only those of two weights are sure to be measured
    frobenius_sq: Array
    stderr: Array  # (L, L), for this batch, of which 1.96 reach to either end of a 95 % interval; 0 where exact
    products: Array  # (L,) matrix-vector products spent on each column, per example in the per-example view
    traces: Array  # (L,), see `BlockReport`
    rtol: float | None = None  # relative standard error that sampling was to reach
    reason: str = ""  # clauses on the algorithm, for the report
    method: str = "exact"  # the algorithm that ran

    @classmethod
    def sampled(cls, value: Array, stderr: Array, products: ArrayLike, *, rtol: float | None, reason: str) -> Curvature:
        """What random directions tell, which is no trace."""
        size = len(value)
        return cls(value, stderr, np.broadcast_to(products, size), np.full(size, math.nan), rtol, reason)

    @property
    def ended(self) -> list[Ended]:
        """What came of the sampling of each block."""

        def of(value: float, stderr: float) -> Ended:
            if math.isnan(value):
                return "unmeasured"
            if stderr == 0:
                return "exact"
            return "sampled" if self.rtol is None else "rtol" if stderr <= self.rtol * value else "budget"

        return list(map(of, self.frobenius_sq.diagonal(), self.stderr.diagonal()))


def unmeasured(blocks: int) -> Curvature:
    """For a diagnosis of signals alone."""
    none = np.full((blocks, blocks), math.nan)
    return Curvature(none, none, np.zeros(blocks), none[0], reason=UNMEASURED, method="none")


def merge(parts: Sequence[Curvature], sizes: Sequence[int]) -> Curvature:
    """The mean over all examples, from means over batches of `sizes` examples that were measured independently."""
    weights = np.array(sizes, dtype=np.float64) / sum(sizes)
    return replace(
        parts[0], frobenius_sq=np.tensordot(weights, [part.frobenius_sq for part in parts], axes=1),
        stderr=np.sqrt(np.tensordot(weights**2, [part.stderr**2 for part in parts], axes=1)),
        products=np.max([part.products for part in parts], axis=0),
        traces=np.tensordot(weights, [part.traces for part in parts], axes=1),
    )  # fmt: skip


def mean_of_some(
    some: Sequence[Curvature], *, of: int, like: Sequence[Curvature] = (), known: Curvature | None = None,
    shares: Array | float = 1.0, rounding: float = 0.0,
) -> Curvature:  # fmt: skip
    """The mean over `of` examples from n of them, and its standard error.

    Where norms `like` these are known of the same examples and, as a mean, of all, the ratio of the two is what is
    estimated (W. G. Cochran, Sampling Techniques, 3rd edition 1977, section 6.3): 1 where they are the same but for
    `rounding`. Examples that were drawn more often than others count less, `shares` each.
    """
    n = len(some)
    values = np.array([part.frobenius_sq for part in some])  # (n, L, L)
    if known is None:
        value, traces = values.mean(axis=0), np.mean([part.traces for part in some], axis=0)
        stderr = np.sqrt(np.sum([part.stderr**2 for part in some], axis=0)) / n
    else:
        near, whole = np.array([part.frobenius_sq for part in like]), known.frobenius_sq
        values, near = ((each.T * shares).T for each in (values, near))
        usable = near.mean(axis=0) > 0
        near, whole = np.where(usable, near, 1), np.where(usable, whole, 1)
        ratio = values.mean(axis=0) / near.mean(axis=0)
        left = values - ratio * near
        same = (np.abs(values - near) <= rounding * np.abs(near)).all(axis=0)
        ratio, left = np.where(same, 1, ratio), np.where(same, 0, left)
        own = widening((n - 1) / 2) * left.std(axis=0, ddof=1) / math.sqrt(n) * whole / near.mean(axis=0)
        value, stderr = ratio * whole, np.hypot(own, np.where(usable, ratio * known.stderr, 0))
        traces = np.full(len(value), math.nan)
    return Curvature(
        value, stderr, np.sum([part.products for part in (*some, *like)], axis=0), traces, method=some[0].method,
        reason=f"{n} of {of} examples, each within its batch; {some[0].reason.removeprefix('asked for; ')}",
    )  # fmt: skip


def degrees_of_freedom(directions: Array | float, parts: Array | float, *, tails: float = TAILS) -> Array:
    """Degrees of freedom of a variance that was estimated from so many directions for each of so many equal parts."""
    return np.asarray(np.maximum((directions + 1) * parts - 2, directions - 1) / tails)


def equal_parts(variance: Array, fourth: Array) -> Array:
    """How many equal parts a sum of variances V would have, (Σ V)² / Σ V², after Welch and Satterthwaite."""
    return np.divide(variance**2, fourth, out=np.ones_like(variance), where=fourth > 0)


def widening(dof: Array | float) -> Array:
    """Student's 97.5 % quantile over the normal one: an error so much wider makes ± 1.96 of it a 95 % interval.

    >>> widening(np.array([np.inf, 10.0])).round(3)
    array([1.   , 1.137])
    """
    return np.asarray(stdtrit(np.maximum(dof, 0.5), 0.975) / Z95)


def rounding_of(problem: Problem) -> float:
    """Relative rounding of a norm, in the dtype that the model is in."""
    return ROUNDING * float(torch.finfo(block_parameter(problem.model, problem.blocks[0]).dtype).eps)


def two_stages(
    measure: Callable[[int, str], tuple[Array, Array, int]], first: int, *, least: int, most: int, own: Any,
    rtol: float | None,
) -> tuple[Array, Array, list[int]]:  # fmt: skip
    """Measure with a `first` number of samples, and anew with as many as that says are needed for `rtol`.

    The second stage alone makes the estimate (C. Stein, Annals of Mathematical Statistics 16 (1945) 243-258): stopping
    at samples that look precise would bias them, low estimates of a skewed sum looking the more precise.

    Args:
        measure: values, standard errors and products spent, of so many samples and a prefix to their random streams.
        first: samples of the first stage, or of the only one.
        least, most: samples of a second stage, and products that may be spent in all.
        own: indices of the values that `rtol` is of.
        rtol: relative standard error; None for one stage.

    Returns:
        Values, standard errors, and the products spent in each stage.
    """
    value, stderr, spent = measure(first, "")
    left = most - spent - max(spent - first, 0)  # what the first stage spent on top, the second does too
    if rtol is None or left < least or not stderr[own].any():
        return value, stderr, [spent]
    again = min(max(least, math.ceil(times_wanted(value[own], stderr[own], rtol) * first)), left)
    value, stderr, more = measure(again, "second ")
    return value, stderr, [spent, more]


def times_wanted(value: Array, stderr: Array, rtol: float) -> float:
    """How many times the samples of a first stage, of `value` and `stderr` (L,), bring all to a relative `rtol`."""
    lost = stderr >= np.abs(value)  # the estimate is noise: so is what it says of itself
    relative = np.where(lost, 1.0, stderr / np.where(lost, 1.0, np.abs(value)))
    return float((MARGIN * relative[np.isfinite(relative) & (stderr > 0)].max(initial=0.0) / rtol) ** 2)


# Sums over pairs of random directions, with unbiased variances (Hoeffding 1948, U-statistics of order 2).
#
# For directions 1..q the estimate U is the mean over pairs k ≠ m of a symmetric kernel h_km of mean θ. Its variance is
#
#     Var U = (4 (q − 2) ζ₁ + 2 ζ₂) / (q (q − 1)),   ζ₁ = Cov(h_km, h_kt),   ζ₂ = Var h_km,
#
# with ζ₁, ζ₂ from the means of h_km h_kt and of h_km², less θ², whose unbiased estimate is the mean of h_km h_st over
# pairs without a common index. A jackknife would overestimate the variance twofold where the kernel is degenerate
# (ζ₁ = 0), which it is for matrices of high effective rank. With few directions the estimate of Var U may come out near
# or below zero; the variance 2 ζ₂ / q(q−1) of unrelated pairs is a lower bound and stands in for it.


def pair_sums(X: Tensor, *, fixed: int) -> dict[str, Tensor]:
    """Sums over examples of the `pair_statistics` of X (B, L, m, m), (L, L) each, and `fourth`, Σ variance²."""
    _, L, m, _ = X.shape
    total: dict[str, Tensor] = {}
    for some in torch.split(X, max(1, AT_ONCE // (m * L * max(m, L)))):
        each = pair_statistics(some.double(), fixed)
        each["fourth"] = each["variance"].square()
        total = {key: total.get(key, 0) + value.sum(dim=0) for key, value in each.items()}
    return total


def mean_of(sums: Mapping[str, Array], parts: int, random: int, rounding: float) -> tuple[Array, Array]:
    """The mean of `pair_sums` over examples and rounds, and its standard error: rounding does not average out."""
    value, floor = sums["value"] / parts, rounding * sums["size"] / parts
    wide = widening(degrees_of_freedom(random, equal_parts(sums["variance"], sums["fourth"])))
    return value, np.maximum(wide * np.sqrt(sums["variance"]) / parts, floor)


def pair_statistics(X: Tensor, fixed: int) -> dict[str, Tensor]:
    """Estimate Σ_{k, m} X_i[k, m] X_j[m, k] over all directions, from a basis and a sample, for all i and j.

    With a_km = X_i[k, m] X_j[m, k], c its sum over the basis and b_k = Σ_{f of the basis} a_kf + a_fk, the kernel is
    h_km = (a_km + a_mk)/2 + (b_k + b_m)/2 + c for k ≠ m. What is needed of it are Σ h, Σ_k (Σ_m h_km)² and Σ h², all of
    which are matrix products over i and j: no h is formed for a pair. c varies nothing and is left out of squares,
    where it would drown small variances in rounding.

    Args:
        X: (B, L, m, m); directions `fixed` and later are the random ones, q ≥ 4; those before a basis, without noise.

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
