"""What every way of measuring curvature returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hessdiag.results.numbers import Array
from hessdiag.results.report import Ended


@dataclass(frozen=True)
class Diagonal:
    """Squared Frobenius norm of one diagonal block.

    Attributes:
        frobenius_sq: ‖G_l‖_F², averaged over examples in the per-example view; without bias, hence below 0 at times.
        stderr: its standard error for this batch, of which 1.96 reach to either end of a 95 % interval; 0 where exact.
        products: matrix-vector products spent, per example in the per-example view.
        ended: `"exact"`, or whether `rtol` was reached.
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


def merge(parts: Sequence[Curvature], sizes: Sequence[int], *, rtol: float) -> Curvature:
    """The mean over all examples, from means over batches of `sizes` examples that were measured independently.

    A block that a batch left short of `rtol` counts as known to it when the mean is.
    """
    weights = np.array(sizes, dtype=np.float64) / sum(sizes)
    if len(parts) == 1:
        return parts[0]
    diagonal = {}
    for name in parts[0].diagonal:
        each = [part.diagonal[name] for part in parts]
        value = float(weights @ [d.frobenius_sq for d in each])
        stderr = float(np.sqrt(weights**2 @ [d.stderr**2 for d in each]))
        ended: Ended = (
            "exact" if all(d.ended == "exact" for d in each) else "rtol" if stderr <= rtol * value else "budget"
        )
        diagonal[name] = Diagonal(value, stderr, max(d.products for d in each), ended)
    maps = np.tensordot(weights, [part.frobenius_sq for part in parts], axes=1)
    errors = np.sqrt(np.tensordot(weights**2, [part.stderr**2 for part in parts], axes=1))
    return Curvature(diagonal, maps, errors, parts[0].how)
