"""What changed about one block between two reports: the ratio of every quantity, after over before, and its cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from hessdiag.results.records import Record
from hessdiag.results.report import BlockReport

Cause = Literal["weights", "gradients", "curvature", "nothing"]

QUANTITIES = (
    "weight_sq",
    "nu",
    "avg_sq_singular_value",
    "curvature_scaling",
    "activation_scaling",
    "gamma",
    "x_sq",
    "out_sq",
    "x_gradient_sq",
    "out_gradient_sq",
)
SAMPLED = ("avg_sq_singular_value", "curvature_scaling")  # those with a standard error
MIN_SQUARE = 2.0**-252  # square of the smallest normal number of float32: denormals count as zero
Z_95 = 1.96
MAX_ERROR = 0.5  # relative; with more, 0 is within the 95 % interval, and its logarithm has none

EQUAL = 1.001  # factor below which numbers agree: rounding in float32, in another order
# Between two seeds of one initialisation, 224 pairs of healthy and repaired networks of the gallery on one batch,
# 99.9 % of blocks and the largest of all (figures/comparison.json): E[W²] 2.9 and 3.5 standard errors; relative ν (and
# E[ΔW²]) 2.8 and 3.4; relative σ² 9.4 and 17; medians of ν and σ² at most 3.4 and 17.
# The thresholds are 1.5 times the largest.
RESAMPLED = 5.0  # standard errors between two draws of a Gaussian W
RESAMPLED_FACTOR = 1.1  # of E[W²]: a difference that many entries make certain may still be nothing
NU_FACTOR = 5.0
SIGMA_FACTOR = 25.0
MEDIAN_NU_FACTOR = 5.0
MEDIAN_SIGMA_FACTOR = 25.0


@dataclass(frozen=True, kw_only=True)
class Ratio(Record):
    """One quantity of a block, after over before.

    Attributes:
        before, after: the two values.
        value: after / before; 1 where both are zero, NaN where one is undefined or lost in sampling noise.
        relative: `value` over the median of the blocks.
        low, high: 95 % interval of `value`, log-normal, from the standard errors of both; equal to it where both
            are exact.
    """

    before: float
    after: float
    value: float
    relative: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether sampling noise leaves no doubt that the two differ."""
        return max(away(self.value), 1.0) > EQUAL and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, kw_only=True)
class BlockChange(Record):
    """What changed about one block.

    Attributes:
        name, kind, shape, numel: what it is, see `BlockRecord`.
        cause: the first of these that differs beyond what two seeds of one initialisation give: `"weights"` (E[W²]),
            `"gradients"` (ν), `"curvature"` (σ²), or `"nothing"`.
        score: |ln| of the ratio that the block is ranked by: that of E[W²] where the weights differ, else the relative
            one of ν, or of σ, the root of σ², where there is no ν; infinite where only one of two values is zero.
        ratios: a `Ratio` for each of `QUANTITIES`; `curvature_scaling` is P σ² E[W²]², the curvature for a relative
            change of the weights.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    numel: int
    cause: Cause
    score: float
    ratios: Mapping[str, Ratio]


def ratio_of(before: float, after: float) -> float:
    """Divide two numbers that are not negative; two zeros are equal, and denormals are zeros.

    >>> [ratio_of(2.0, 6.0), ratio_of(0.0, 0.0), ratio_of(0.0, 1.0), ratio_of(1.0, 0.0), ratio_of(1.0, -1.0)]
    [3.0, 1.0, inf, 0.0, nan]
    """
    if not (before >= 0 and after >= 0) or math.isinf(before) or math.isinf(after):
        return math.nan
    before, after = (0.0 if value < MIN_SQUARE else value for value in (before, after))
    if before == 0:
        return 1.0 if after == 0 else math.inf
    return after / before


def _ratio(old: BlockReport, new: BlockReport, key: str, median_ratio: float) -> Ratio:
    before, after = quantity(old, key), quantity(new, key)
    sampled = key in SAMPLED
    value = math.nan if sampled and (old.lost_in_noise or new.lost_in_noise) else ratio_of(before, after)
    room = _room(old, new) if sampled else 1.0
    return Ratio(
        before=before,
        after=after,
        value=value,
        relative=value / median_ratio,
        low=value / room,
        high=value if value == 0 else value * room,
    )


def quantity(block: BlockReport, key: str) -> float:
    """One of `QUANTITIES` of a block; NaN where its report has none."""
    if key == "curvature_scaling":
        return block.relative_curvature
    return float(getattr(block, key, math.nan))


def change_of(old: BlockReport, new: BlockReport, medians: Mapping[str, float]) -> BlockChange:
    """Compare one block of two reports, given the median ratio of each quantity."""
    ratios = {key: _ratio(old, new, key, medians[key]) for key in QUANTITIES}
    cause = _cause(ratios, old.numel)
    nu, sigma = log_size(ratios["nu"].relative), log_size(ratios["avg_sq_singular_value"].relative)
    score = log_size(ratios["weight_sq"].value) if cause == "weights" else sigma / 2 if math.isnan(nu) else nu
    return BlockChange(
        name=old.name,
        kind=old.kind,
        shape=old.shape,
        numel=old.numel,
        cause=cause,
        score=0.0 if math.isnan(score) else score,
        ratios=ratios,
    )


def _cause(ratios: Mapping[str, Ratio], numel: int) -> Cause:
    nu = ratios["nu"].relative
    if weights_differ(ratios["weight_sq"].value, numel):
        return "weights"
    # E[ΔW²] too: E[W²] of a few entries, which ν is relative to, differs between draws.
    if min(away(nu), away(nu * ratios["weight_sq"].value)) > NU_FACTOR:
        return "gradients"
    sigma = ratios["avg_sq_singular_value"]
    room = sigma.high / sigma.value if 0 < sigma.value < math.inf else 1.0
    if away(sigma.relative) > SIGMA_FACTOR * room:
        return "curvature"
    return "nothing"


def weights_differ(ratio: float, numel: int) -> bool:
    """Whether E[W²] differs by more than two draws of W from one distribution do.

    >>> weights_differ(1.2, 100), weights_differ(1.2, 10_000), weights_differ(1.05, 10**9)
    (False, True, False)
    """
    return away(ratio) > resampled_factor(numel)


def resampled_factor(numel: int) -> float:
    """The factor that E[W²] of two draws of P Gaussian entries stays within, or `RESAMPLED_FACTOR` if that is larger.

    The logarithm of the mean of P squares of Gaussians has the variance trigamma(P/2), about 2/P + 2/P².
    """
    error = math.sqrt(2 * (2 / numel + 2 / numel**2))
    return max(math.exp(RESAMPLED * error), RESAMPLED_FACTOR)


def median_ratio(pairs: Sequence[tuple[BlockReport, BlockReport]], key: str) -> float:
    """Of the weight blocks, or of all where there is none; 1 where no ratio is positive and finite."""
    weights = [pair for pair in pairs if pair[0].kind == "weight"] or pairs
    values = [_ratio(old, new, key, 1.0).value for old, new in weights]
    logs = [math.log(value) for value in values if 0 < value < math.inf]
    return math.exp(median(logs)) if logs else 1.0


def _room(old: BlockReport, new: BlockReport) -> float:
    """The factor that sampling leaves open around the ratio of two σ²; infinite where one may be 0."""
    errors = [b.stderr / b.avg_sq_singular_value if b.avg_sq_singular_value > 0 else 0.0 for b in (old, new)]
    return math.exp(Z_95 * math.hypot(*errors)) if max(errors) < MAX_ERROR else math.inf


def log_size(ratio: float) -> float:
    """|ln ratio|; infinite for 0 and inf, NaN for NaN."""
    return abs(math.log(ratio)) if ratio > 0 else math.nan if math.isnan(ratio) else math.inf


def away(ratio: float) -> float:
    """A ratio or its inverse, whichever is larger; 1 where it is undefined."""
    return 1.0 if math.isnan(ratio) else max(ratio, 1 / ratio) if ratio > 0 else math.inf
