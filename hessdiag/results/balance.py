"""The balance in a sentence: are the weight blocks of a report equally curved?

The factor is the largest over the smallest average squared singular value σ² among the weight blocks, the
`Report.spread` of the table. σ² is the mean of *squared* singular values, so that curvatures, and the learning rates
that suit them, differ by the root of that factor. Where σ² was sampled, the sentence never claims more than the
sampling noise allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hessdiag.arguments import check_kind
from hessdiag.results.judgement import Balance, BalanceLevel
from hessdiag.results.numbers import short, spread
from hessdiag.results.report import BlockReport, Report
from hessdiag.suggestions import few, joined

BALANCED = 2.0  # below it
UNBALANCED = 10.0  # above it
CONFIDENCE = 0.95
MAX_ERROR = 0.5  # relative; with more, 0 is within the 95 % interval, and its logarithm has none
BLIND = 1e-4  # share of a gradient along its weight: about 1 in general, rounding where the network is blind to it
MAX_NAMED = 3  # blocks in a sentence


def weigh(report: Report) -> Balance:
    """Weigh the blocks of a report, from its numbers alone.

    Args:
        report: of any network; the weight blocks count, biases and scalars do not.
    """
    check_kind("report", report, Report, "pass the Report of hessdiag.diagnose, or Report.from_json(file)")
    invariant = scale_invariant(report)
    weights = [b for b in report.weights if b.name not in invariant]
    curved = [b for b in weights if b.avg_sq_singular_value > 0 and math.isfinite(b.avg_sq_singular_value)]
    factor = _Factor.of(curved)
    level, sentence = _judge(weights, curved, factor)
    if len(curved) < len(weights):
        whole = spread([b.avg_sq_singular_value for b in weights])
        factor = _Factor(whole, whole, whole)
    notes = _notes(report, invariant)
    return Balance(level=level, sentence=sentence, notes=notes, factor=factor.value, low=factor.low, high=factor.high)


def scale_invariant(report: Report) -> tuple[str, ...]:
    """Name the weight blocks to whose scale the network is blind: no vector that is sent back sees it."""
    if report.signals is None:
        return ()
    radial = {p.name: p.radial for p in report.signals.parameters}
    return tuple(b.name for b in report.weights if radial.get(b.name, math.inf) < BLIND)


def level_of(factor: float) -> BalanceLevel:
    """The level of a factor that is known exactly.

    >>> [level_of(f) for f in (1.0, 1.99, 2.0, 10.0, 10.1, float("inf"), float("nan"))]
    ['balanced', 'balanced', 'uneven', 'uneven', 'unbalanced', 'unbalanced', 'undecided']
    """
    if math.isnan(factor):
        return "undecided"
    return "balanced" if factor < BALANCED else "uneven" if factor <= UNBALANCED else "unbalanced"


def missed_rtol(block: BlockReport, rtol: float) -> bool:
    """Whether the sampling of a block left its standard error above `rtol`."""
    return block.ended == "budget" and not 0 < block.stderr <= rtol * block.avg_sq_singular_value


@dataclass(frozen=True)
class _Factor:
    """Largest over smallest σ² of some blocks, and the interval that sampling noise leaves open."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, blocks: Sequence[BlockReport]) -> _Factor:
        if not blocks:
            return cls(math.nan, math.nan, math.nan)
        value = spread([b.avg_sq_singular_value for b in blocks])
        if all(b.stderr == 0 for b in blocks):
            return cls(value, value, value)
        logs = np.log([b.avg_sq_singular_value for b in blocks])  # (L,)
        errors = np.array([b.relative_stderr for b in blocks])  # (L,), standard errors of logs
        errors[~(errors < MAX_ERROR)] = np.inf
        apart = logs[:, None] - logs  # (L, L)
        # Intervals that hold for all pairs at once (Bonferroni): the extremes of many noisy blocks differ by chance.
        count = len(blocks)
        z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (count * (count - 1))) if count > 1 else 1.0
        room = np.where(np.eye(count, dtype=bool), 0.0, z * np.hypot(errors[:, None], errors))
        return cls(value, _exp((apart - room).max()), _exp((apart + room).max()))

    @property
    def exact(self) -> bool:
        return self.low == self.value == self.high

    @property
    def may_be_noise(self) -> bool:
        """Whether the blocks may all be equal as far as the estimates tell."""
        return not self.exact and self.low == 1.0


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf


def _judge(weights: Sequence[BlockReport], curved: Sequence[BlockReport], factor: _Factor) -> tuple[BalanceLevel, str]:
    undefined = [b.name for b in weights if not math.isfinite(b.avg_sq_singular_value)]
    lost = [b.name for b in weights if b.avg_sq_singular_value <= 0 < b.stderr]
    flat = [b.name for b in weights if b.avg_sq_singular_value <= 0 and b.name not in lost]
    if not weights:
        return "undecided", "Nothing to compare: no weight block was measured."
    if undefined:
        others = _flat_clause(flat, ", and ") + _of_the_others(curved, factor)
        return "undecided", f"Undecided: the curvature of {_listed(undefined)} is undefined or infinite{others}."
    if len(weights) == 1:
        return (
            "undecided",
            f"Nothing to compare: {weights[0].name} is the only weight block{_flat_clause(flat, ', and ')}.",
        )
    if lost:
        return _lost(lost, flat, curved, factor)
    if not curved:
        return "undecided", "Undecided: no weight block has any curvature on this batch (σ² is 0 in all of them)."
    if flat:
        it = "it does" if len(flat) == 1 else "they do"
        what = f"{_flat_clause(flat)}, as if {it} not reach the loss{_of_the_others(curved, factor)}"
        return "unbalanced", f"Unbalanced: {what}."
    return _compare(curved, factor)


def _lost(
    lost: Sequence[str], flat: Sequence[str], curved: Sequence[BlockReport], factor: _Factor
) -> tuple[BalanceLevel, str]:
    """The verdict where noise hides even the sign of some σ²; the others may be apart enough to decide it."""
    others = _flat_clause(flat, ", and ") + _of_the_others(curved, factor)
    if level_of(factor.low) == "unbalanced":
        return "unbalanced", f"Unbalanced: the curvature of {_listed(lost)} is lost in sampling noise{others}."
    return "undecided", f"Undecided: the curvature of {_listed(lost)} is lost in sampling noise{others}."


def _flat_clause(flat: Sequence[str], joint: str = "") -> str:
    verb = "has" if len(flat) == 1 else "have"
    return f"{joint}{_listed(flat)} {verb} no curvature at all on this batch (σ² is 0)" if flat else ""


def _compare(curved: Sequence[BlockReport], factor: _Factor) -> tuple[BalanceLevel, str]:
    """The verdict on two blocks or more, all with positive σ²."""
    times, root = short(factor.value), short(math.sqrt(factor.value))
    largest = max(curved, key=lambda b: b.avg_sq_singular_value).name
    smallest = min(curved, key=lambda b: b.avg_sq_singular_value).name
    level = level_of(factor.value)
    if factor.may_be_noise and level_of(factor.high) != "balanced":
        return "undecided", (
            f"Undecided: {largest} seems to have {times}× the average squared singular value of {smallest}, but this"
            f" may be sampling noise alone; the true factor can be anything up to {short(factor.high)}."
        )
    noise = "" if level_of(factor.low) == level_of(factor.high) else f" ({_interval(factor)})"
    if level == "balanced" and factor.may_be_noise:
        return level, f"Balanced within {times}×{noise}: what differs is no larger than the sampling noise."
    if level == "balanced":
        return level, (
            f"Balanced within {times}×{noise}: no weight block has more than {times} times the average squared"
            " singular value of another."
        )
    what = f"{largest} has {times}× the average squared singular value of {smallest}{noise}"
    if level == "uneven":
        return (
            level,
            f"Uneven: {what}; curvatures, and the learning rates that suit them, differ by about {root}×.",
        )
    return level, f"Unbalanced: {what}, about {root}× the curvature; one learning rate will not suit both."


def _of_the_others(curved: Sequence[BlockReport], factor: _Factor) -> str:
    """A clause on the blocks that can be compared, when some cannot."""
    if len(curved) < 2:
        return ""
    noise = "" if factor.exact else f" ({_interval(factor)})"
    return f"; among the other {len(curved)} weight blocks the largest is {short(factor.value)}× the smallest{noise}"


def _interval(factor: _Factor) -> str:
    return f"{short(factor.low)} to {short(factor.high)} with sampling noise"


def _notes(report: Report, invariant: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if invariant:
        notes.append(
            f"{_listed(invariant)} {'is' if len(invariant) == 1 else 'are'} left out: a normalisation follows, so that"
            " the network does not depend on the scale of the weight, and σ² on little else."
        )
    missed = [b.name for b in report.weights if missed_rtol(b, report.rtol)]
    if missed:
        notes.append(
            f"Sampling left the standard error above {100 * report.rtol:g} % for {_listed(missed)}; a larger"
            " max_products or a smaller rtol narrows it."
        )
    if report.skipped:
        names = _listed([name for name, _ in report.skipped])
        notes.append(f"The verdict does not cover what was not measured: {names}.")
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= MAX_NAMED + 1:
        return joined(names)
    return few(names, MAX_NAMED)
