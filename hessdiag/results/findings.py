"""What is said of a network: findings of rules, the balance of its weights, and the verdict.

The verdict comes from the findings only. The balance is no verdict: the curvatures of healthy networks differ by many
orders of magnitude. Its factor is the largest over the smallest average squared singular value σ² among the weights,
the mean of *squared* singular values, so that curvatures, and the learning rates that suit them, differ by its root.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from hessdiag.results.blocks import BlockReport
from hessdiag.results.numbers import short, spread
from hessdiag.results.records import Record
from hessdiag.results.text_table import label, layer_of

Severity = Literal["fault", "warning", "note"]
BalanceLevel = Literal["balanced", "uneven", "unbalanced", "undecided"]
VerdictLevel = Literal["no-problem", "suspicious", "faulty", "undecided"]

CHECKS = 29  # rules on one network
GRAVITY: tuple[Severity, ...] = ("fault", "warning", "note")
BALANCED = 2.0  # below it
UNBALANCED = 10.0  # above it
CONFIDENCE = 0.95
MAX_ERROR = 0.5  # relative; with more, 0 is within the 95 % interval, and its logarithm has none


@dataclass(frozen=True)
class Finding(Record):
    """One finding on a network.

    Attributes:
        rule: stable id, such as `"HD104"`; `hessdiag explain HD104` says more.
        severity: `"fault"` (it will hardly train as it is), `"warning"` (unlike every healthy network measured) or
            `"note"` (worth knowing; healthy networks do this too).
        blocks: names of parameters, the most suspicious first.
        message: what was measured, in a sentence.
        advice: what to do about it, in a sentence.
        value, threshold: the measured number, and the one that it passed.
    """

    rule: str
    severity: Severity
    blocks: tuple[str, ...]
    message: str
    advice: str
    value: float
    threshold: float

    def __str__(self) -> str:
        return f"{self.rule} {self.severity}: {self.message} {self.advice}"


@dataclass(frozen=True, kw_only=True)
class Balance(Record):
    """How equally the weights are curved.

    Attributes:
        level: `"balanced"` (factor below 2), `"uneven"` (2 to 10), `"unbalanced"` (above 10, or a weight without any
            curvature), or `"undecided"` where there is nothing to compare, a value is undefined, or lost in noise.
        sentence: how far curvatures are apart. It holds names from the model: escape it where that matters.
        notes: what the sentence leaves out, a sentence each.
        factor: largest over smallest σ² among the weights, as in `Report.spread`.
        low, high: interval around `factor` that sampling noise leaves open, at 95 %; equal to it where σ² is exact.
    """

    level: BalanceLevel
    sentence: str
    notes: tuple[str, ...]
    factor: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """What a reader should take away.

    Attributes:
        level: `"faulty"` (a rule found a fault), `"suspicious"` (a warning), `"no-problem"` (neither; notes do not
            count) or `"undecided"` where the network's signals were not measured.
        sentence: the verdict in plain words. It holds names from the model: escape it where that matters.
        balance: the statement on σ², see `Balance`.
    """

    level: VerdictLevel
    sentence: str
    balance: Balance


def is_as_grave(finding: Finding, severity: Severity) -> bool:
    """Whether a finding is as grave as `severity`, or graver."""
    return GRAVITY.index(finding.severity) <= GRAVITY.index(severity)


def judge(findings: Sequence[Finding]) -> tuple[VerdictLevel, str]:
    """Judge findings, the gravest first, on a network whose signals are known: level and sentence.

    >>> judge([])[0]
    'no-problem'
    """
    counts = Counter(finding.severity for finding in findings)
    found = ", ".join(f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}" for kind in GRAVITY if counts[kind])
    if not counts["fault"] and not counts["warning"]:
        return "no-problem", f"No problem found in {CHECKS} checks{f' ({found})' if found else ''}."
    first = findings[0]
    where = layer_of(first.blocks[0]) if first.blocks else _whole(first)
    return "faulty" if counts["fault"] else "suspicious", f"{found}: look first at {where} ({first.rule})."


def level_of(factor: float) -> BalanceLevel:
    """The level of a factor that is known exactly.

    >>> [level_of(f) for f in (1.0, 1.99, 2.0, 10.0, 10.1, float("inf"), float("nan"))]
    ['balanced', 'balanced', 'uneven', 'uneven', 'unbalanced', 'unbalanced', 'undecided']
    """
    if math.isnan(factor):
        return "undecided"
    return "balanced" if factor < BALANCED else "uneven" if factor <= UNBALANCED else "unbalanced"


def weigh(weights: Sequence[BlockReport], *, invariant: Sequence[str] = (), why: str = "") -> Balance:
    """Weigh the weights of a report without the `invariant` ones, on whose scale the network does not depend.

    `why` says why the curvature was not measured, where it was not.
    """
    if any(block.ended == "unmeasured" for block in weights):
        sentence = f"The curvature was not measured: {why}."
        return Balance(level="undecided", sentence=sentence, notes=(), factor=math.nan, low=math.nan, high=math.nan)
    kept = [block for block in weights if block.name not in invariant]
    curved = [block for block in kept if 0 < block.avg_sq_singular_value < math.inf]
    missing = {
        "is undefined or infinite": [b.name for b in kept if not math.isfinite(b.avg_sq_singular_value)],
        "is lost in sampling noise": [b.name for b in kept if b.avg_sq_singular_value <= 0 < b.stderr],
        "is zero, as of a linear loss": [b.name for b in kept if b.avg_sq_singular_value <= 0 and not b.stderr > 0],
    }
    undefined, lost, flat = missing.values()
    value, low, high = _factor(curved)
    level = level_of(value)
    if len(kept) < 2 or undefined or not curved or (low == 1.0 < high and level_of(high) != "balanced"):
        level = "undecided"
    elif lost:
        level = "unbalanced" if level_of(low) == "unbalanced" else "undecided"
    elif flat:
        level = "unbalanced"
    said = [f"The curvature of {label(names)} {why}." for why, names in missing.items() if names]
    said += [*_difference(kept, curved, (value, low, high)), *uncounted(invariant)]
    if len(curved) < len(kept):
        value = low = high = spread([block.avg_sq_singular_value for block in kept])
    notes = (f"Before a normalisation: {label(invariant)}.",) if invariant else ()
    return Balance(level=level, sentence=" ".join(said), notes=notes, factor=value, low=low, high=high)


def uncounted(invariant: Sequence[str]) -> list[str]:
    """Say how many weights are left out because the network does not depend on their scale; nothing of none."""
    who, do = ("1 layer", "does") if len(invariant) == 1 else (f"{len(invariant)} layers", "do")
    return [f"{who} before a normalisation {do} not count: scale does not matter there."] if invariant else []


def _difference(kept: list[BlockReport], curved: list[BlockReport], factor: tuple[float, float, float]) -> list[str]:
    """How far the curvatures of weights are apart: roots of σ², of which `factor` has the largest over the smallest."""
    if len(curved) < 2:
        return [] if len(kept) > 1 else ["Too few layers count to judge differences in curvature."]
    value, low, high = (short(math.sqrt(each), 2) for each in factor)
    noise = "" if low == high else f" ({low} to {high} with sampling noise)"
    noise = " (not resolved: pass a smaller rtol, --rtol)" if math.isinf(factor[2]) else noise
    largest = layer_of(max(curved, key=lambda block: block.avg_sq_singular_value).name)
    smallest = layer_of(min(reversed(curved), key=lambda block: block.avg_sq_singular_value).name)
    among = "layers" if len(curved) == len(kept) else f"the other {len(curved)} layers"
    return [f"Curvature differs by {value}×{noise} between {among}: most in {largest}, least in {smallest}."]


def _factor(blocks: Sequence[BlockReport]) -> tuple[float, float, float]:
    """Largest over smallest σ², and the interval that sampling noise leaves open."""
    value = spread([block.avg_sq_singular_value for block in blocks])
    if all(block.stderr == 0 for block in blocks):
        return value, value, value
    logs = np.log([block.avg_sq_singular_value for block in blocks])  # (L,)
    errors = np.array([block.relative_stderr for block in blocks])  # (L,), standard errors of logs
    errors[~(errors < MAX_ERROR)] = np.inf
    apart = logs[:, None] - logs  # (L, L)
    # Intervals that hold for all pairs at once (Bonferroni): the extremes of many noisy blocks differ by chance.
    count = len(blocks)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (count * (count - 1))) if count > 1 else 1.0
    noise = np.where(np.eye(count, dtype=bool), 0.0, z * np.hypot(errors[:, None], errors))
    with np.errstate(over="ignore"):
        return value, float(np.exp((apart - noise).max())), float(np.exp((apart + noise).max()))


def _whole(finding: Finding) -> str:
    return "the loss" if finding.rule == "HD113" and "loss" in finding.message else "the model"


def told(finding: Finding, most: int = 1) -> list[str]:
    """Lines of a finding: where, in `most` layers by name, what was found, what to do, and where it says why."""
    where = label(finding.blocks, most) or _whole(finding)
    lines = [f"{finding.rule} {finding.severity}: {where}", f"  found: {finding.message}"]
    lines += [f"  do: {finding.advice}"] if finding.advice else []
    return [*lines, f"  why: hessdiag explain {finding.rule}"]


def others(findings: Sequence[Finding]) -> list[str]:
    """A line that names findings which are not shown; none where there are none."""
    named = ", ".join(f"{finding.rule} {finding.severity}" for finding in findings)
    return [f"and {len(findings)} more: {named} (-v shows all)"] if findings else []
