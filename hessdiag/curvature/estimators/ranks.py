"""Effective rank of the examples' blocks, from random directions: whether a deflation basis would pay."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hessdiag.execution.work import Result
from hessdiag.results.numbers import Array

KEYS = ("trace", "trace_sq", "norm_sq")


def rank_sums(K: Tensor, *, fixed: int) -> dict[str, Tensor]:
    """Sums over examples, (L,) each, of tr K, (tr K)² and ‖K‖² of what a basis leaves, without bias.

    Args:
        K: (B, L, m, m) Gram matrices along directions, of which the first `fixed` are the basis.
        fixed: number of directions of the basis.
    """
    K = K[..., fixed:, fixed:]
    diagonal = torch.diagonal(K, dim1=2, dim2=3)  # (B, L, q)
    count = diagonal.shape[2]
    pairs = count * (count - 1)
    total, squares = diagonal.sum(dim=2), diagonal.square().sum(dim=2)  # (B, L)
    sums = {
        "trace": total / count,
        "trace_sq": (total.square() - squares) / pairs,
        "norm_sq": (K.square().sum(dim=(2, 3)) - squares) / pairs,
    }
    return {key: each.sum(dim=0) for key, each in sums.items()}


@dataclass(frozen=True)
class Ranks:
    """Means over examples of what `rank_sums` finds, (L,) each."""

    traces: Array
    traces_sq: Array
    norms_sq: Array

    @classmethod
    def of(cls, sums: Result) -> Ranks:
        """From sums, or means: all that is told are ratios, and the traces."""
        return cls(*(np.asarray(sums[key]) for key in KEYS))

    def effective(self) -> Array:
        """(tr K)² / ‖K‖² of every block, both estimated without bias from pairs of directions."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.norms_sq > 0, self.traces_sq / self.norms_sq, np.nan)

    def median(self) -> float:
        """The median of these; NaN where no block has any curvature."""
        ranks = self.effective()
        return float(np.median(ranks[np.isfinite(ranks)])) if np.isfinite(ranks).any() else math.nan

    def scales(self) -> list[float]:
        """1 / √tr(K_l): gives every block equal weight in the range finder."""
        return [1 / math.sqrt(t) if t > 0 else 0.0 for t in self.traces]
