"""What a measurement found: a frozen record that prints itself as a table and travels as JSON.

A report holds plain numbers (Python and NumPy, never tensors), to be read, plotted and compared without torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from hessdiag.arguments import few
from hessdiag.errors import HessdiagError
from hessdiag.results.blocks import MATRICES, MODES, BlockReport, Heatmap
from hessdiag.results.findings import Finding, Verdict, judge, others, told, weigh
from hessdiag.results.numbers import away, geometric_mean, percent, short, spread
from hessdiag.results.records import Record, saved
from hessdiag.results.signals import Signals
from hessdiag.results.text_table import Detail, Printed, TextTable, arranged, grouped, printable, siblings, size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "SPREAD_KEYS", "BlockReport", "Heatmap", "Report", "cells", "scale_invariant"]

SPREAD_KEYS = ("gamma", "nu", "avg_sq_singular_value")
# The last ones go first where it is narrow.
COLUMNS = ("block", "shape", "γ", "ν", "σ²", "± %", "γ/σ²", "relative", "tr G", "ς", "γ curv.")
MOST_FINDINGS = 2  # that are told in full, without -v
BLIND = 1e-4  # share of a gradient along its weight: about 1 in general, rounding where the network is blind to it
MOST_ROWS = 12
SEEN = 1e-3  # an error below it is none
BAR = 6  # columns to either side of the typical layer
TITLES = ("layer", "shape", "curvature", "range", "error", f"{'flat':>{BAR}}│{'steep':<{BAR}}")


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Printed, Record):
    """The diagnostic of one network on one batch. Its `repr` is the table.

    Attributes:
        blocks: one entry a block, in execution order.
        heatmap: the weight blocks against one another.
        skipped: `(name, reason)` of every parameter that is not a block.
        model, init, data: names under which they were asked for.
        loss, matrix, per, mode: what was measured; see `hessdiag.diagnose`. Older files are of mode "eval".
        method, method_reason: the algorithm that ran, and why it was picked.
        seed, batch_size, batches, outputs, rtol: settings; `batch_size` is the number of examples of all `batches`
            together, `outputs` the number of outputs of the network per example.
        batches_read, batches_given: how many batches were read, and how many there are: null where nobody knows.
        device, dtype, versions: what it ran on.
        findings: what the rules have to say, gravest first.
        signals, signals_missing: what runs through the network, on some examples of the first batch; or None, and why.
        output_sq, output_variance: E[y^2] and E[y^2] - E[y]^2 of the network's outputs.
    """

    schema: ClassVar[str] = "hessdiag.report/2"
    derived: ClassVar[tuple[str, ...]] = ("verdict", "spread")

    findings: tuple[Finding, ...] = ()
    blocks: tuple[BlockReport, ...]
    heatmap: Heatmap
    skipped: tuple[tuple[str, str], ...]
    model: str
    init: str
    loss: str
    matrix: str
    per: str
    mode: str = "eval"
    method: str
    method_reason: str
    seed: int
    batch_size: int
    outputs: int
    rtol: float | None
    device: str
    dtype: str
    data: str = "as given"
    batches: int = 1
    batches_read: int = field(default=0, compare=False)
    batches_given: int | None = field(default=None, compare=False)
    versions: Mapping[str, str] = field(default_factory=dict)
    output_sq: float = math.nan
    output_variance: float = math.nan
    signals: Signals | None = None
    signals_missing: str = ""

    def __iter__(self) -> Iterator[BlockReport]:
        return iter(self.blocks)

    def __getitem__(self, name: str) -> BlockReport:
        blocks = {block.name: block for block in self.blocks}
        if name not in blocks:
            near = few([block for block in blocks if name in block] or blocks)
            raise HessdiagError(f"the report has no block {name!r}: {dict(self.skipped).get(name, f'it has {near}')}")
        return blocks[name]

    def __contains__(self, block: object) -> bool:
        return any(block in (each.name, each) for each in self.blocks)

    @property
    def verdict(self) -> Verdict:
        """What was found, and how equally the weights are curved."""
        balance = weigh(self.weights, invariant=scale_invariant(self), why=self.method_reason)
        if self.signals is None:
            why = self.signals_missing or "the report was written without them"
            return Verdict(level="undecided", sentence=f"Undecided: no signals were measured ({why}).", balance=balance)
        level, sentence = judge(self.findings)
        if level == "no-problem" and self.loss == "model":
            sentence += " Its loss is inside of the model: to check that, return outputs, pass targets and loss=."
        return Verdict(level=level, sentence=sentence, balance=balance)

    @property
    def weights(self) -> tuple[BlockReport, ...]:
        """The weight blocks alone: those of the heatmap and the spread."""
        return tuple(block for block in self.blocks if block.kind == "weight")

    @property
    def spread(self) -> dict[str, float]:
        """Largest over smallest value among the weight blocks, for `gamma`, `nu` and `avg_sq_singular_value`."""
        return {key: spread([getattr(block, key) for block in self.weights]) for key in SPREAD_KEYS}

    def to_dataframe(self) -> pd.DataFrame:
        """One row a block, one column an attribute of `BlockReport`."""
        import pandas as pd

        rows = [asdict(block) | {"name": printable(block.name)} for block in self.blocks]
        return pd.DataFrame(rows, columns=[f.name for f in fields(BlockReport)])

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The blocks as CSV text, with full precision; also written to `path` when one is given."""
        frame = self.to_dataframe()
        for key in ("shape", "kernel"):
            frame[key] = ["x".join(map(str, sizes)) for sizes in frame[key]]
        # A spreadsheet computes what begins like a formula.
        frame["name"] = [f"'{name}" if name.startswith(("=", "+", "-", "@")) else name for name in frame["name"]]
        return saved(str(frame.to_csv(index=False, na_rep="nan", lineterminator="\n")), path)

    def text(self, detail: Detail = "table") -> str:
        """Return the verdict with the gravest findings and the balance (`"brief"`), a table of the layers, or all."""
        whole = detail == "whole"
        verdict = self.verdict
        most = len(self.findings) if whole else MOST_FINDINGS
        parts: list[Sequence[str | TextTable]] = [[verdict.sentence], *map(told, self.findings[:most])]
        parts[-1] = [*parts[-1], *others(self.findings[most:])]
        parts += [[verdict.balance.sentence, *(verdict.balance.notes if whole else ())]]
        if whole:
            none = [(b.name, "its gradient is 0 up to rounding") for b in self.blocks if b.avg_sq_singular_value == 0]
            parts += [[*self.header(), "", block_table(self), "", *self.summary()]]
            parts += [grouped("not measured:", self.skipped, whole=True), grouped("no curvature:", none)]
        elif detail == "table":
            shown: list[str | TextTable] = [*self.header()]
            if self.weights and self.method != "none":
                shown += ["", layer_table(self.weights)]
            more = f" and {len(self.skipped) - 1} more parameters" if self.skipped[1:] else ""
            shown += [f"Not measured: {name}{more} (-v says why)." for name, _ in self.skipped[:1]]
            parts += [shown]
        return arranged(parts, whole=whole)

    def header(self) -> list[str]:
        """Lines on what was measured, of what."""
        view = "per example" if self.per == "example" else "of the batch mean"
        measured = f"{MATRICES[self.matrix]} {view}" if self.method != "none" else "signals alone"
        size = "as one" if self.batch_size == 1 and (self.per == "batch" or self.loss == "model") else self.batch_size
        loss = f"loss {self.loss}{' (--data FILE:FN gives targets)' if self.loss == 'random-quadratic' else ''}"
        lines = [
            f"{self.model}, init {self.init}: {measured}, {MODES[self.mode]}",
            f"{loss}, batch {size} ({self.data}), seed {self.seed}, {self.device} {self.dtype}",
        ]
        count, given = self.batches_read, self.batches_given
        if count not in (0, given):
            more = "diagnose(model, data, batches=n) reads more of one shape"
            lines += [f"batches read of the data: {count} of {given or 'many'}; {more}"]
        if self.signals is not None and not math.isnan(fitted := self.signals.fitted_loss):
            losses = f"{short(self.signals.initial_loss)} to {short(fitted)}"
            lines += [f"training a copy on this batch alone takes its loss from {losses}"]
        if self.signals is not None and (norms := self.signals.fresh_norms):
            what = f"batch normalisations that have never seen data ({norms}) leave activations as they are"
            lines += [f'{what}: mode="train" measures the network as it trains']
        return lines

    def summary(self) -> list[str]:
        """Lines on the spread over the weights, the method, and what ended the sampling."""
        symbols = zip(("γ", "ν", "σ²"), self.spread.values(), strict=True)
        spreads = "   ".join(f"{symbol} {short(value)}" for symbol, value in symbols)
        how = f"method {self.method} ({self.method_reason})" if self.method != "none" else ""
        return [*filter(None, [f"spread over weight blocks, max/min:  {spreads}", how, sampling(self)])]


def sampling(report: Report) -> str:
    """How many random directions there were, and how large that leaves the errors; nothing where all is exact."""
    if not (sampled := [block for block in report.blocks if block.ended not in ("exact", "unmeasured")]):
        return ""
    most = max(block.products for block in report.blocks)
    how = f"at most {most} products a block" if most else "some of the examples"
    asked = "--rtol (rtol=) asks for smaller ones" if report.rtol is None else f"rtol {report.rtol:g} was asked for"
    shown = [block for block in sampled if block.kind == "weight"] or sampled
    worst = percent(float(np.max([block.relative_stderr for block in shown])))
    return f"sampling: {how}, standard errors up to {worst} % ({asked})"


def block_table(report: Report) -> TextTable:
    """All symbols of all blocks, in execution order."""
    return TextTable(COLUMNS, [cells(block) for block in report.blocks], left=2).with_values()


def cells(block: BlockReport) -> list[str]:
    """Texts of one row, in the order of `COLUMNS`."""
    sigma, of_sigma = short(block.avg_sq_singular_value), [block.relative_stderr, block.ratio, block.relative_ratio]
    if block.lost_in_noise:
        sigma, of_sigma = "undecided", [math.nan] * 3
    error = percent(of_sigma[0]) if block.stderr != 0 else ""
    others = (of_sigma[1], of_sigma[2], block.trace, block.activation_scaling, block.gamma_curvature)
    return [block.name, size(block.shape), short(block.gamma), short(block.nu), sigma, error, *map(short, others)]


def scale_invariant(report: Report) -> tuple[str, ...]:
    """Name the weights to whose scale the network is blind: no vector that is sent back sees it."""
    if report.signals is None:
        return ()
    radial = {p.name: p.radial for p in report.signals.parameters}
    return tuple(b.name for b in report.weights if radial.get(b.name, math.inf) < BLIND)


class Row(NamedTuple):
    """Siblings: their label, their shape, their curvatures over the typical one, and the largest error of these."""

    label: str
    shape: str
    ratios: list[float]
    error: float = 0.0

    @property
    def typical(self) -> float:
        """The mean of those that are known; 0, inf or NaN where all are."""
        mean = geometric_mean(self.ratios)
        return self.ratios[0] if math.isnan(mean) else mean

    @property
    def distance(self) -> float:
        """How far from 1 they are, up or down, as a logarithm; 0 where that is unknown."""
        return math.log(away(self.typical))


def layer_table(weights: Sequence[BlockReport]) -> TextTable:
    """Layers by their curvature, the largest first; siblings of one shape share a row.

    Of more than `MOST_ROWS` rows those nearest to the typical layer are counted in one.
    """
    curvatures = [root(block) for block in weights]
    middle = geometric_mean(curvatures)
    named = [(b.name, (b.shape, c == 0)) for b, c in zip(weights, curvatures, strict=True)]
    rows = []
    for label, places in siblings(named).items():
        error = float(np.max([weights[place].relative_stderr / 2 for place in places]))  # of roots
        rows.append(Row(label, size(weights[places[0]].shape), [curvatures[i] / middle for i in places], error))
    if len(rows) > MOST_ROWS:
        rows.sort(key=lambda row: row.distance)
        near = [ratio for row in rows[: 1 - MOST_ROWS] for ratio in row.ratios]
        rows = [Row(f"and {len(near)} more layers", "", near), *rows[1 - MOST_ROWS :]]
    rows.sort(key=lambda row: -1.0 if math.isnan(row.typical) else row.typical, reverse=True)
    longest = max([math.log(2), *(row.distance for row in rows if row.distance < math.inf)])
    return TextTable(TITLES, [_cells(row, longest) for row in rows], left=2).with_values()


def root(block: BlockReport) -> float:
    """σ, the size of a curvature; NaN where a sample of it came out below 0."""
    sq = block.avg_sq_singular_value
    return math.nan if sq < 0 or (sq == 0 and block.stderr > 0) else math.sqrt(sq)


def _cells(row: Row, longest: float) -> list[str]:
    known = [ratio for ratio in row.ratios if ratio > 0]
    span = f"{short(min(known), 2)}–{short(max(known), 2)}" if len(known) > 1 else ""
    error = f"± {short(100 * row.error, 2)} %" if SEEN < row.error < 1 else "" if row.error <= SEEN else "> 100 %"
    ratio = f"{short(row.typical)}×" if row.typical >= 0 else "–"
    bar = "█" * round(BAR * min(row.distance / longest, 1.0))
    left, right = (bar, "") if row.typical < 1 else ("", bar)
    return [row.label, row.shape, ratio, span, error, f"{left:>{BAR}}│{right:<{BAR}}"]
