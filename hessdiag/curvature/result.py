"""What every way of measuring curvature returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hessdiag.report import Array, Ended


@dataclass(frozen=True)
class Diagonal:
    """Squared Frobenius norm of one diagonal block.

    Attributes:
        frobenius_sq: ‖G_l‖_F², averaged over examples in the per-example view.
        stderr: its standard error for this batch; 0 where exact.
        products: matrix-vector products spent, per example in the per-example view.
        ended: what ended the sampling.
    """

    frobenius_sq: float
    stderr: float
    products: int
    ended: Ended


@dataclass(frozen=True)
class Curvature:
    """Squared Frobenius norms of blocks.

    Attributes:
        diagonal: by block name, of all kinds.
        frobenius_sq, stderr: (L, L) arrays over the weight blocks, in the order they were asked for.
        how: a clause on what the algorithm chose on its way, for the report.
    """

    diagonal: Mapping[str, Diagonal]
    frobenius_sq: Array
    stderr: Array
    how: str = ""
