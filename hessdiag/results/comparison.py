"""Two reports of one network side by side: which block changed, in what, and by how much.

The ranking puts blocks first whose weights differ by more than a new draw of them would (E[W²], see `RESAMPLED`), the
largest factor first; then come the others by their weight-gradient ratio ν, with the median change of all blocks taken
out, and those without a ν by σ likewise. `figures/comparison.json` holds how often this and other rankings put a block
first that was then repaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from hessdiag.arguments import check_kind
from hessdiag.errors import HessdiagError
from hessdiag.results.block_change import QUANTITIES, BlockChange, change_of, log_size, median_ratio
from hessdiag.results.comparison_findings import find
from hessdiag.results.finding_changes import gone, new
from hessdiag.results.findings import Finding
from hessdiag.results.records import Record
from hessdiag.results.rendering import Tabled
from hessdiag.results.report import Report

SCHEMA = "hessdiag.comparison/1"
SAME_KIND = ("loss", "matrix", "per")  # with another one of these the numbers mean something else
SAME_DATA = ("data", "batch_size", "seed", "outputs", "dtype")  # with another one they differ for that reason too


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Tabled, Record):
    """Two reports compared, block by block. Its `repr` is the table; iterating it gives the blocks' changes.

    Attributes:
        before, after: names of the two networks.
        changes: one entry a block that both have in the same shape, the most changed first.
        medians: for each of `QUANTITIES` the median ratio of the weight blocks, which `Ratio.relative` is relative to.
        only_before, only_after: names of blocks that only one of them has, or has in this shape.
        differences: what else differs between the two measurements, a sentence each.
        loss, matrix, per: what was measured, of both alike.
        gone: findings on the network before, with the blocks at which their rule has nothing to say any more.
        new: findings on the network after, with the blocks at which their rule had nothing to say before.
    """

    schema: ClassVar[str] = SCHEMA
    derived: ClassVar[tuple[str, ...]] = ("blocks", "findings")

    before: str
    after: str
    changes: tuple[BlockChange, ...]
    medians: Mapping[str, float]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    differences: tuple[str, ...]
    loss: str
    matrix: str
    per: str
    gone: tuple[Finding, ...] = ()
    new: tuple[Finding, ...] = ()

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks that both have, the most changed first."""
        return tuple(change.name for change in self.changes)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the comparison has to say of the numbers, gravest first; nothing where the two agree."""
        missing = (self.only_before, self.only_after)
        return find(self.changes, self.medians, *missing, gone=self.gone, new=self.new)

    def __getitem__(self, name: str) -> BlockChange:
        for change in self.changes:
            if change.name == name:
                return change
        raise KeyError(name)

    def __iter__(self) -> Iterator[BlockChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


def compare_reports(before: Report, after: Report) -> Comparison:
    """Compare two reports of one network, or of two versions of it.

    Raises:
        HessdiagError: they were measured with another loss, matrix or view, or share no block.
    """
    for name, report in (("before", before), ("after", after)):
        check_kind(name, report, Report, "pass the Report of hessdiag.diagnose, or the JSON file of one")
    check_comparable(before, **{key: getattr(after, key) for key in SAME_KIND})
    theirs = {block.name: block for block in after.blocks}
    pairs = [
        (block, theirs[block.name])
        for block in before.blocks
        if block.name in theirs and block.shape == theirs[block.name].shape
    ]
    if not pairs:
        raise HessdiagError(
            f"{before.model} and {after.model} have no block of the same name and shape in common: compare two versions"
            " of one network"
        )
    shared = {block.name for block, _ in pairs}
    medians = {key: median_ratio(pairs, key) for key in QUANTITIES}
    changes = [change_of(old, new, medians) for old, new in pairs]
    return Comparison(
        before=f"{before.model}, init {before.init}",
        after=f"{after.model}, init {after.init}",
        changes=tuple(sorted(changes, key=_place)),
        medians=medians,
        only_before=tuple(block.name for block in before.blocks if block.name not in shared),
        only_after=tuple(block.name for block in after.blocks if block.name not in shared),
        differences=_differences(before, after),
        gone=gone(before, after),
        new=new(before, after),
        **{key: getattr(before, key) for key in SAME_KIND},
    )


def check_comparable(before: Report, **settings: str) -> None:
    """Refuse to compare a report with another one that has other `settings`, of those in `SAME_KIND`.

    Raises:
        HessdiagError: says which one differs.
    """
    for key, value in settings.items():
        if getattr(before, key) != value:
            raise HessdiagError(
                f"the two reports differ in {key}, {getattr(before, key)!r} before and {value!r} after: measure both"
                " with the same one"
            )


def _place(change: BlockChange) -> tuple[bool, float, bool, float]:
    """Sort key: weights that differ, then by size; of two infinite ones a matrix before a vector, then by ν."""
    nu = log_size(change.ratios["nu"].relative)
    return (change.cause != "weights", -change.score, change.kind != "weight", 0.0 if math.isnan(nu) else -nu)


def _differences(before: Report, after: Report) -> tuple[str, ...]:
    return tuple(
        f"{key.replace('_', ' ')}: {getattr(before, key)} before, {getattr(after, key)} after"
        for key in SAME_DATA
        if getattr(before, key) != getattr(after, key)
    )
