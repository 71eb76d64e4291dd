"""Many trials of one experiment: new weights, new inputs and a new loss each time, measured alike.

The theory speaks of averages over random networks, so a figure shows the distribution over trials: `Setups` keeps the
per-trial numbers of every block as (S, L) arrays, and the average block map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.numbers import Array, normalize, spread
from hessdiag.results.records import Record
from hessdiag.results.report import Report

COLUMNS = (
    "activation_scaling", "gamma", "gamma_intrinsic", "gamma_curvature", "nu", "avg_sq_singular_value", "stderr",
    "ratio", "relative_ratio",
)  # fmt: skip

SHARED = ("model", "init", "loss", "matrix", "per", "method", "batch_size", "device", "dtype", "data", "versions")


@dataclass(frozen=True, kw_only=True, eq=False)
class Setups(Record):
    """S trials of one network, its L weight blocks in execution order.

    Attributes:
        names, numel: the weight blocks and their numbers of entries P.
        columns: for each name in `COLUMNS` an (S, L) array, as in `BlockReport`.
        frobenius_sq: (L, L) mean over trials of ||H_ij||_F^2.
        frobenius_sq_stderr: (L, L) standard error of that mean from the spread between trials.
        estimator_stderr: (L, L) the part of it that is sampling noise of the estimator; 0 where exact.
        model, init, loss, matrix, per, method, batch_size, seed, device, dtype, data, versions: as in `Report`;
            trial s has seed `seed + s`.
    """

    schema: ClassVar[str] = "hessdiag.setups/1"

    names: tuple[str, ...]
    numel: tuple[int, ...]
    columns: Mapping[str, Array]
    frobenius_sq: Array
    frobenius_sq_stderr: Array
    estimator_stderr: Array
    model: str
    init: str
    loss: str
    matrix: str
    per: str
    method: str
    batch_size: int
    seed: int
    device: str
    dtype: str
    data: str = "as given"
    versions: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["gamma"])

    def normalized(self) -> Array:
        """(L, L) mean of ||H_ij||_F^2, divided by sqrt(P_i P_j)."""
        return normalize(self.frobenius_sq, self.numel)

    @property
    def spread(self) -> float:
        """Largest over smallest diagonal entry of `normalized()`."""
        return spread([float(v) for v in np.diagonal(self.normalized())])

    @classmethod
    def collect(cls, reports: Iterable[Report]) -> Setups:
        """Gather the reports of the trials of one experiment."""
        reports = tuple(reports)
        if not reports:
            raise HessdiagError("no trials were measured: ask for at least 1")
        first = reports[0]
        for report in reports:
            check_kind("one of the reports", report, Report, "pass a list of reports of hessdiag.diagnose")
            for key in (*SHARED, "mode"):
                if getattr(report, key) != getattr(first, key):
                    both = f"{getattr(first, key)!r} and {getattr(report, key)!r}"
                    raise HessdiagError(f"trials differ in {key}: {both}; collect one experiment at a time")
            if (report.heatmap.names, report.heatmap.numel) != (first.heatmap.names, first.heatmap.numel):
                raise HessdiagError("trials have different blocks: collect reports of one network at a time")
        maps = np.stack([report.heatmap.frobenius_sq for report in reports])  # (S, L, L)
        noise = np.stack([report.heatmap.stderr for report in reports])  # (S, L, L)
        count = len(reports)
        between = maps.std(axis=0, ddof=1) if count > 1 else np.full(maps.shape[1:], np.nan)
        return cls(
            names=first.heatmap.names,
            numel=first.heatmap.numel,
            columns={key: np.array([[getattr(b, key) for b in r.weights] for r in reports]) for key in COLUMNS},
            frobenius_sq=maps.mean(axis=0),
            frobenius_sq_stderr=between / np.sqrt(count),
            estimator_stderr=np.sqrt((noise**2).sum(axis=0)) / count,
            seed=first.seed,
            **{key: getattr(first, key) for key in SHARED},
        )


@dataclass(frozen=True, eq=False)
class Study(Record):
    """Several experiments: what a figure with several panels is drawn from.

    Attributes:
        panels: the experiments.
    """

    schema: ClassVar[str] = "hessdiag.study/1"

    panels: tuple[Setups, ...]
