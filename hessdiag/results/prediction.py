"""What the scaling calculus predicts, and the same compared with what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import ClassVar

from hessdiag.results.blocks import BlockScaling
from hessdiag.results.numbers import short, spread
from hessdiag.results.records import Record
from hessdiag.results.report import SPREAD_KEYS, Report
from hessdiag.results.text_table import Detail, Printed, TextTable, grouped, plain_text, size

MEASURED = ("gamma", "nu", "activation_scaling", "avg_sq_singular_value")
COLUMNS = ("block", "shape", "γ", "σ²", "ν", "ς", "E[W²]", "E[x²]", "E[y²]")
COMPARED = ("block", "γ", "measured", "ratio", "σ²", "measured", "ratio", "ν", "measured", "ratio", "shape")


@dataclass(frozen=True, kw_only=True)
class BlockPrediction(Record, BlockScaling):
    """What the calculus says of one block: the attributes of `hessdiag.BlockReport`, predicted.

    Of `avg_sq_singular_value` where only the paper's rules are asked for, γ.
    """


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Printed, Record):
    """What `predict` found. Its `repr` is a table.

    Attributes:
        blocks: in execution order; those that are never called, or that depend on an unsupported operation, have NaN.
        skipped: `(name, reason)` of every parameter that is not a block, or has no γ or no σ².
        unsupported: `(operation and its place, reason)`.
        notes: approximations beyond the paper that entered.
        output_sq: E[y²] of the network's outputs.
        outputs: outputs per example.
        model, init, loss, moments, weights_from: what was asked for, and where E[W²] came from.
        versions: that it ran on.
        design: between which kinds of layers γ differs most; empty for fewer than two kinds.
    """

    schema: ClassVar[str] = "hessdiag.prediction/2"
    derived: ClassVar[tuple[str, ...]] = ("spread",)

    blocks: tuple[BlockPrediction, ...]
    skipped: tuple[tuple[str, str], ...]
    unsupported: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    output_sq: float
    outputs: int
    model: str
    init: str
    loss: str
    moments: str
    weights_from: str
    versions: Mapping[str, str] = field(default_factory=dict)
    design: str = ""

    @property
    def weights(self) -> tuple[BlockPrediction, ...]:
        """Take the weight blocks alone."""
        return tuple(block for block in self.blocks if block.kind == "weight")

    @property
    def spread(self) -> dict[str, float]:
        """Divide the largest by the smallest value among the weights that have one, as in `Report.spread`."""
        return {key: spread([v for w in self.weights if (v := getattr(w, key)) == v]) for key in SPREAD_KEYS}

    def block(self, name: str) -> BlockPrediction:
        """Find the block of that name."""
        return next(block for block in self.blocks if block.name == name)

    def text(self, detail: Detail = "table") -> str:
        """Return the spread (`"brief"`), and the table of all blocks."""
        return self.text_with([], TextTable(COLUMNS, list(map(_cells, self.blocks)), left=2), detail)

    def text_with(self, conclusion: Sequence[str], table: TextTable, detail: Detail) -> str:
        """Return the text around a table of the blocks, with lines above the conclusion."""
        whole = detail == "whole"
        spreads = self.spread
        both = f"γ {short(spreads['gamma'])}   σ² {short(spreads['avg_sq_singular_value'])}   ν {short(spreads['nu'])}"
        last = [*conclusion, f"spread over weight blocks, max/min:  {both}", *filter(None, [self.design])]
        last += ["beyond the paper:", *(f"  {note}" for note in self.notes)] if self.notes and detail != "brief" else []
        last += grouped("without a rule (what depends on it is left open):", self.unsupported, whole=True)
        last += grouped("not predicted:", self.skipped, whole=whole)
        if detail == "brief":
            return plain_text(last)
        head = [
            f"{self.model}: scaling predicted from shapes and E[W²] ({self.weights_from}), nothing measured",
            f"loss {self.loss}, {self.outputs} outputs, E[y²] {short(self.output_sq)}, moments {self.moments}",
        ]
        return plain_text([*head, "", table, "", *last], whole=whole)


def _cells(block: BlockPrediction) -> list[str]:
    first = (block.gamma, block.avg_sq_singular_value, block.nu, block.activation_scaling)
    return [block.name, size(block.shape), *map(short, (*first, block.weight_sq, block.x_sq, block.out_sq))]


@dataclass(frozen=True, repr=False)
class PredictedVsMeasured(Printed, Record):
    """A prediction and the mean of what several random trials of the same network measured. Its `repr` is a table.

    Attributes:
        prediction: what the calculus says.
        measured: by block name, the mean over trials of each quantity in `MEASURED`.
        setups: how many were measured.
    """

    schema: ClassVar[str] = "hessdiag.predicted-vs-measured/2"

    prediction: Prediction
    measured: Mapping[str, Mapping[str, float]]
    setups: int

    @classmethod
    def of(cls, prediction: Prediction, reports: Sequence[Report]) -> PredictedVsMeasured:
        """Compare a prediction with the reports of one network, one for each random trial."""
        names = [block.name for block in reports[0].blocks]
        found = {name: {key: mean(getattr(each[name], key) for each in reports) for key in MEASURED} for name in names}
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

    def text(self, detail: Detail = "table") -> str:
        """Return how far the two are apart (`"brief"`), and the table of all blocks."""
        errors = f"γ {short(self.error())}, of σ² {short(self.error('avg_sq_singular_value'))}"
        error = f"measured: mean of {self.setups} random trials; median |log2(predicted/measured)| of {errors}"
        table = TextTable(COMPARED, [self._cells(block) for block in self.prediction.blocks])
        return self.prediction.text_with([error], table, detail)

    def _cells(self, block: BlockPrediction) -> list[str]:
        measured = self.measured.get(block.name, {})
        numbers: list[float] = []
        for key in ("gamma", "avg_sq_singular_value", "nu"):
            numbers += [getattr(block, key), measured.get(key, math.nan), self.ratio(block, key)]
        return [block.name, *map(short, numbers), size(block.shape)]
