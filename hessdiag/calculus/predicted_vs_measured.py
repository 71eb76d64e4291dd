"""Predicted beside measured."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hessdiag.calculus.prediction import SCHEMA, BlockPrediction, Prediction
from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text
from hessdiag.results.numbers import short
from hessdiag.results.report import Report, dumps
from hessdiag.tables.prediction_table import block_table, footing, heading, size
from hessdiag.tables.report_table import plain_text

MEASURED = ("gamma", "nu", "activation_scaling", "avg_sq_singular_value")
COLUMNS = (
    "block",
    "shape",
    "γ predicted",
    "measured",
    "ratio",
    "ν predicted",
    "measured",
    "ratio",
    "σ² measured",
    "γ/σ²",
)


@dataclass(frozen=True, repr=False)
class Beside:
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
        """A prediction beside the reports of one network, a report a random set-up.

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
        """Predicted over measured; NaN where either is missing."""
        measured = self.measured.get(block.name, {}).get(key, math.nan)
        return float(getattr(block, key) / measured) if measured else math.nan

    def error(self, key: str = "gamma") -> float:
        """Median of |log2(predicted / measured)| over the blocks that have both."""
        ratios = [self.ratio(block, key) for block in self.prediction.blocks]
        logarithms = [abs(math.log2(r)) for r in ratios if math.isfinite(r) and r > 0]
        return median(logarithms) if logarithms else math.nan

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The prediction's JSON with `measured` and `ratio` beside each block; also written to `path` when given."""
        record: dict[str, Any] = {"schema": SCHEMA} | vars(self.prediction)
        record["blocks"] = [
            vars(block) | {"measured": self.measured.get(block.name), "ratio_to_measured": self.ratio(block)}
            for block in self.prediction.blocks
        ]
        text = dumps(record | {"spread": self.prediction.spread, "setups": self.setups})
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        rows = []
        for block in self.prediction.blocks:
            seen = self.measured.get(block.name, {})
            sigma = seen.get("avg_sq_singular_value", math.nan)
            rows.append(
                [
                    block.name,
                    size(block.shape),
                    *(
                        short(value)
                        for key in ("gamma", "nu")
                        for value in (getattr(block, key), seen.get(key, math.nan), self.ratio(block, key))
                    ),
                    short(sigma),
                    short(block.gamma / sigma if sigma else math.nan),
                ]
            )
        lines = [
            "",
            f"measured: median of {self.setups} random set-ups;"
            f" median |log2(predicted/measured)| of γ {short(self.error())}",
        ]
        return plain_text([*heading(self.prediction), block_table(COLUMNS, rows), *lines, *footing(self.prediction)])
