"""Predicted beside measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hessdiag.calculus.prediction import BlockPrediction, Prediction
from hessdiag.errors import HessdiagError
from hessdiag.results.records import Record
from hessdiag.results.rendering import Tabled
from hessdiag.results.report import Report

MEASURED = ("gamma", "nu", "activation_scaling", "avg_sq_singular_value")


@dataclass(frozen=True, repr=False)
class Beside(Tabled, Record):
    """A prediction and the median of what several random set-ups of the same network measured. Its `repr` is a table.

    Attributes:
        prediction: what the calculus says.
        measured: by block name, the median over set-ups of each quantity in `MEASURED`.
        setups: how many were measured.
    """

    prediction: Prediction
    measured: dict[str, dict[str, float]]
    setups: int

    @classmethod
    def of(cls, prediction: Prediction, reports: Sequence[Report]) -> Beside:
        """Put a prediction beside the reports of one network, one for each random set-up.

        Raises:
            HessdiagError: there is no report.
        """
        if not reports:
            raise HessdiagError("no set-ups were measured: ask for at least 1")
        found: dict[str, dict[str, float]] = {}
        for block in reports[0].blocks:
            rows = [next(b for b in report.blocks if b.name == block.name) for report in reports]
            found[block.name] = {key: median([getattr(row, key) for row in rows]) for key in MEASURED}
        return cls(prediction, found, len(reports))

    def ratio(self, block: BlockPrediction, key: str = "gamma") -> float:
        """Divide predicted by measured; NaN where either is missing."""
        measured = self.measured.get(block.name, {}).get(key, math.nan)
        return float(getattr(block, key) / measured) if measured else math.nan

    def error(self, key: str = "gamma") -> float:
        """Find the median of |log2(predicted / measured)| over the blocks that have both."""
        ratios = [self.ratio(block, key) for block in self.prediction.blocks]
        logarithms = [abs(math.log2(r)) for r in ratios if math.isfinite(r) and r > 0]
        return median(logarithms) if logarithms else math.nan

    def to_record(self) -> dict[str, Any]:
        """Return the prediction's record with `measured` and `ratio_to_measured` beside each block."""
        record = self.prediction.to_record()
        record["blocks"] = [
            block.to_record() | {"measured": self.measured.get(block.name), "ratio_to_measured": self.ratio(block)}
            for block in self.prediction.blocks
        ]
        return record | {"setups": self.setups}
