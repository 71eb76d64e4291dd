"""Two reports of one network compared: which parameter changed, in what, and by how much.

Parameters whose weights differ by more than a new draw of them would come first, the largest factor first; then the
others by their weight-gradient ratio ν with the median change of all taken out, and those without a ν by σ likewise.
`figures/comparison.json` holds how often this ranking puts a parameter first that was then repaired.

Between two seeds of one initialisation, 224 pairs of healthy and repaired networks of the gallery on one batch, 99.9 %
of parameters and the largest of all: E[W²] 2.9 and 3.5 standard errors; relative ν (and E[ΔW²]) 2.8 and 3.4; relative
σ² 9.4 and 17; medians of ν and σ² at most 3.4 and 17. The thresholds are 1.5 times the largest.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar, Literal

from hessdiag.arguments import few, joined
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import MAX_ERROR, Finding, Severity, is_as_grave
from hessdiag.results.numbers import Z95, away, short
from hessdiag.results.records import Record
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.text_table import Detail, Printed, TextTable, label, plain_text

Cause = Literal["weights", "gradients", "curvature", "nothing"]

QUANTITIES = (
    "weight_sq", "nu", "avg_sq_singular_value", "curvature_scaling", "activation_scaling", "gamma", "x_sq", "out_sq",
    "x_gradient_sq", "out_gradient_sq",
)  # fmt: skip
SAMPLED = ("avg_sq_singular_value", "curvature_scaling")  # those with a standard error
SAME_KIND = ("loss", "matrix", "per")  # with another one of these the numbers mean something else
SAME_DATA = ("data", "batch_size", "seed", "outputs", "dtype")  # with another one they differ for that reason too
MIN_SQUARE = 2.0**-252  # square of the smallest normal number of float32: denormals count as zero
RESAMPLED = 5.0  # standard errors between two draws of a Gaussian W
RESAMPLED_FACTOR = 1.1  # of E[W²]: a difference that many entries make certain may still be nothing
NU_FACTOR = 5.0
SIGMA_FACTOR = 25.0
MOST_NAMES = 5  # in a sentence
RELATIVE = (  # rules on what changed relative to the median weight: cause, quantity, its name, threshold
    ("HD602", "gradients", "nu", "weight-gradient ratio ν", NU_FACTOR),
    ("HD603", "curvature", "avg_sq_singular_value", "σ²", SIGMA_FACTOR),
)
ADVICE = {
    "HD601": "If not on purpose: restore how these weights were initialised or loaded; the other differences follow.",
    "HD602": "If not on purpose: look at what lies between these layers and the loss, and at the loss and its scale.",
    "HD603": "If not on purpose: look at what curves the loss here: nonlinearities, outputs, the loss.",
}
COLUMNS = ("parameter", "differs in", "E[W²]", "ν", "σ²", "ν rel.", "σ² rel.", "Pσ²E[W²]²")


@dataclass(frozen=True, kw_only=True)
class Ratio(Record):
    """One quantity of a parameter, after over before.

    Attributes:
        before, after: the two values.
        value: after / before; 1 where both are zero, NaN where one is undefined or lost in sampling noise.
        relative: `value` over the median of the weights.
        low, high: 95 % interval of `value`, log-normal, from the standard errors of both; equal to it if exact.
    """

    before: float
    after: float
    value: float
    relative: float
    low: float
    high: float

    def __str__(self) -> str:
        """The ratio, with the factor that sampling noise leaves open at 95 %.

        >>> str(Ratio(before=1.0, after=2.0, value=2.0, relative=1.0, low=1.0, high=4.0))
        '2.00 ×/÷ 2.00'
        """
        noisy = self.low < self.value
        return f"{short(self.value)} ×/÷ {short(self.high / self.value)}" if noisy else short(self.value)


@dataclass(frozen=True, kw_only=True)
class BlockChange(Record):
    """What changed about one parameter.

    Attributes:
        name, kind, shape, numel: what it is, see `BlockReport`.
        cause: the first of these that differs beyond what two seeds of one initialisation give: `"weights"` (E[W²]),
            `"gradients"` (ν), `"curvature"` (σ²), or `"nothing"`.
        score: |ln| of the ratio that the parameter is ranked by: that of E[W²] where the weights differ, else the
            relative one of ν, or of σ, the root of σ², where there is no ν; infinite where only one of two values is 0.
        ratios: a `Ratio` for each of `QUANTITIES`; `curvature_scaling`, P σ² E[W²]², is for relative changes of W.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    numel: int
    cause: Cause
    score: float
    ratios: Mapping[str, Ratio]


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Printed, Record):
    """Two reports compared. Its `repr` is the table; iterating it gives the changes, the largest first.

    Attributes:
        before, after: names of the two networks.
        findings: what changed, gravest first; nothing where the two agree.
        resolved: findings on the network before, with the parameters at which their rule finds nothing any more.
        new: findings on the network after, with the parameters at which their rule found nothing before.
        changes: one entry a parameter that both have in the same shape, the most changed first.
        medians: for each of `QUANTITIES` the median ratio of the weights, which `Ratio.relative` is relative to.
        only_before, only_after: names of parameters that only one of them has, or has in this shape.
        differences: what else differs between the two measurements, a sentence each.
        loss, matrix, per: what was measured, of both alike.
    """

    schema: ClassVar[str] = "hessdiag.comparison/2"
    derived: ClassVar[tuple[str, ...]] = ("blocks",)

    before: str
    after: str
    findings: tuple[Finding, ...]
    resolved: tuple[Finding, ...]
    new: tuple[Finding, ...]
    changes: tuple[BlockChange, ...]
    medians: Mapping[str, float]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    differences: tuple[str, ...]
    loss: str
    matrix: str
    per: str

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the parameters that both have, the most changed first."""
        return tuple(change.name for change in self.changes)

    def __getitem__(self, name: str) -> BlockChange:
        return {change.name: change for change in self.changes}[name]

    def __iter__(self) -> Iterator[BlockChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def text(self, detail: Detail = "table") -> str:
        """Return what changed (`"brief"`), and the table of all parameters."""
        lines = [" ".join(f"resolved: {f.rule} {few(f.blocks)} ({f.severity})".split()) for f in self.resolved]
        lines += [f"new: {finding}" for finding in self.new] + [str(finding) for finding in self.findings]
        lines = lines or [f"None of {len(self)} parameters differs by more than two seeds of one initialisation do."]
        lines += [f"measured otherwise: {difference}" for difference in self.differences]
        if detail == "brief":
            return plain_text(lines)
        lines += ["", f"before: {self.before}", f"after:  {self.after}"]
        lines += [f"loss {self.loss}, matrix {self.matrix}, per {self.per}"]
        lines += ["ratios are after over before; rel.: over that of the median weight", ""]
        rows = []
        for change in self.changes:
            measured = [change.ratios[key] for key in ("weight_sq", "nu", "avg_sq_singular_value")]
            numbers = [ratio.relative for ratio in measured[1:]] + [change.ratios["curvature_scaling"].value]
            cause = "–" if change.cause == "nothing" else change.cause
            rows.append([change.name, cause, *map(str, measured), *map(short, numbers)])
        return plain_text([*lines, TextTable(COLUMNS, rows, left=2)], whole=detail == "whole")


def compare_reports(before: Report, after: Report) -> Comparison:
    """Compare two reports of one network, or of two versions of it."""
    for key in (*SAME_KIND, "mode"):
        was, now = getattr(before, key), getattr(after, key)
        if was != now:
            both = f"{was!r} before and {now!r} after"
            raise HessdiagError(f"the two reports differ in {key}, {both}: measure both with the same one")
    theirs = {block.name: block for block in after.blocks}
    pairs = [(b, theirs[b.name]) for b in before.blocks if b.name in theirs and b.shape == theirs[b.name].shape]
    if not pairs:
        message = f"{before.model} and {after.model} have no parameter of the same name and shape in common: compare"
        raise HessdiagError(f"{message} two versions of one network")
    shared = {block.name for block, _ in pairs}
    only_before, only_after = (tuple(b.name for b in r.blocks if b.name not in shared) for r in (before, after))
    medians = {key: _median_ratio(pairs, key) for key in QUANTITIES}
    changes = sorted((_change(old, new, medians) for old, new in pairs), key=_place)
    resolved = tuple(_missing(before.findings, after.findings)) if after.signals is not None else ()
    new = tuple(_missing(after.findings, before.findings)) if before.signals is not None else ()
    data = [(key.replace("_", " "), getattr(before, key), getattr(after, key)) for key in SAME_DATA]
    differences = tuple(f"{key}: {was} before, {now} after" for key, was, now in data if was != now)
    return Comparison(
        before=f"{before.model}, init {before.init}", after=f"{after.model}, init {after.init}",
        findings=(*_find(changes, medians, resolved, new), *_not_compared((*only_before, *only_after))),
        resolved=resolved, new=new, changes=tuple(changes), medians=medians, only_before=only_before,
        only_after=only_after, differences=differences, **{key: getattr(before, key) for key in SAME_KIND},
    )  # fmt: skip


def ratio_of(before: float, after: float) -> float:
    """Divide two numbers that are not negative; two zeros are equal, and denormals are zeros.

    >>> [ratio_of(2.0, 6.0), ratio_of(0.0, 0.0), ratio_of(0.0, 1.0), ratio_of(1.0, 0.0), ratio_of(1.0, -1.0)]
    [3.0, 1.0, inf, 0.0, nan]
    """
    if not (before >= 0 and after >= 0) or math.isinf(before) or math.isinf(after):
        return math.nan
    before, after = (0.0 if value < MIN_SQUARE else value for value in (before, after))
    return after / before if before else math.inf if after else 1.0


def resampled_factor(numel: int) -> float:
    """The factor that E[W²] of two draws of P Gaussian entries stays within, or `RESAMPLED_FACTOR` if that is larger.

    The logarithm of the mean of P squares of Gaussians has the variance trigamma(P/2), about 2/P + 2/P².
    """
    return max(math.exp(RESAMPLED * math.sqrt(2 * (2 / numel + 2 / numel**2))), RESAMPLED_FACTOR)


def _ratio(old: BlockReport, new: BlockReport, key: str, median_ratio: float) -> Ratio:
    name = "relative_curvature" if key == "curvature_scaling" else key
    before, after = getattr(old, name), getattr(new, name)
    value, noise = ratio_of(before, after), 1.0
    if key in SAMPLED:
        sigmas = [(b.stderr, b.avg_sq_singular_value) for b in (old, new)]
        errors = [stderr / sigma if sigma > 0 else 0.0 for stderr, sigma in sigmas]
        noise = math.exp(Z95 * math.hypot(*errors)) if max(errors) < MAX_ERROR else math.inf
        value = math.nan if old.lost_in_noise or new.lost_in_noise else value
    ends = {"low": value / noise, "high": value if value == 0 else value * noise}
    return Ratio(before=before, after=after, value=value, relative=value / median_ratio, **ends)


def _median_ratio(pairs: Sequence[tuple[BlockReport, BlockReport]], key: str) -> float:
    """Of the weights, or of all parameters where there is none; 1 where no ratio is positive and finite."""
    weights = [pair for pair in pairs if pair[0].kind == "weight"] or pairs
    values = [_ratio(old, new, key, 1.0).value for old, new in weights]
    logs = [math.log(value) for value in values if 0 < value < math.inf]
    return math.exp(median(logs)) if logs else 1.0


def _change(old: BlockReport, new: BlockReport, medians: Mapping[str, float]) -> BlockChange:
    ratios = {key: _ratio(old, new, key, medians[key]) for key in QUANTITIES}
    cause = _cause(ratios, old.numel)
    nu, sigma = ratios["nu"].relative, ratios["avg_sq_singular_value"].relative
    score = math.log(away(sigma)) / 2 if math.isnan(nu) else math.log(away(nu))
    if cause == "weights":
        score = math.log(away(ratios["weight_sq"].value))
    what = {key: getattr(old, key) for key in ("name", "kind", "shape", "numel")}
    return BlockChange(**what, cause=cause, score=score, ratios=ratios)


def _cause(ratios: Mapping[str, Ratio], numel: int) -> Cause:
    weight_sq, nu = ratios["weight_sq"].value, ratios["nu"].relative
    if away(weight_sq) > resampled_factor(numel):
        return "weights"
    # E[ΔW²] too: E[W²] of a few entries, which ν is relative to, differs between draws.
    if min(away(nu), away(nu * weight_sq)) > NU_FACTOR:
        return "gradients"
    sigma = ratios["avg_sq_singular_value"]
    noise = sigma.high / sigma.value if 0 < sigma.value < math.inf else 1.0
    return "curvature" if away(sigma.relative) > SIGMA_FACTOR * noise else "nothing"


def _place(change: BlockChange) -> tuple[bool, float, bool, float]:
    """Sort key: weights that differ, then by size; of two infinite ones a matrix before a vector, then by ν."""
    return (change.cause != "weights", -change.score, change.kind != "weight", -away(change.ratios["nu"].relative))


def _missing(findings: Sequence[Finding], others: Sequence[Finding]) -> Iterator[Finding]:
    """Those of `findings` that `others` do not have, as far as they do not: by their rules and parameters."""
    rules = {finding.rule for finding in others}
    places = {(finding.rule, name) for finding in others for name in finding.blocks}
    for finding in findings:
        blocks = tuple(name for name in finding.blocks if (finding.rule, name) not in places)
        if blocks or (not finding.blocks and finding.rule not in rules):
            yield replace(finding, blocks=blocks)


def _find(
    changes: Sequence[BlockChange], medians: Mapping[str, float], resolved: Sequence[Finding], new: Sequence[Finding]
) -> Iterator[Finding]:
    """What differs by more than two seeds of one initialisation do; what a repair explains is a note."""
    mended = [finding for finding in resolved if is_as_grave(finding, "warning")]
    broken = {name for finding in new if is_as_grave(finding, "warning") for name in finding.blocks}
    repaired = {name for finding in mended for name in finding.blocks} - broken
    weights = [change for change in changes if change.cause == "weights"]
    advised = [change for change in weights if change.name in repaired]
    yield from _weights([change for change in weights if change not in advised])
    if advised:
        rules = dict.fromkeys(f.rule for f in mended if any(change.name in f.blocks for change in advised))
        yield from _weights(advised, f"{joined(rules)} resolved here: nothing is to be done.")
    explained = "This may follow from the weights that differ: look at those first." if weights else ""
    if mended and not weights:
        explained = f"This may follow from the repair of {joined(dict.fromkeys(f.rule for f in mended))}."
    yield from _elsewhere(changes, medians, explained)


def _weights(changes: Sequence[BlockChange], explained: str = "") -> Iterator[Finding]:
    """HD601: weights that grew, and those that shrank, by more than another draw of them does."""
    for grew in dict.fromkeys(change.ratios["weight_sq"].value > 1 for change in changes):
        group = [change for change in changes if (change.ratios["weight_sq"].value > 1) == grew]
        squares = [change.ratios["weight_sq"].value for change in group]
        where = label([change.name for change in group], MOST_NAMES)
        message = f"{where}: weights {_times(list(map(math.sqrt, squares)))}."
        yield _finding("HD601", group, message, explained, away(squares[0]), resampled_factor(group[0].numel))


def _elsewhere(changes: Sequence[BlockChange], medians: Mapping[str, float], explained: str) -> Iterator[Finding]:
    """HD602 and HD603: what stands out from the change of all, or the change of all, where weights are the same."""
    for rule, cause, key, name, limit in RELATIVE:
        if group := [change for change in changes if change.cause == cause]:
            ratios = [change.ratios[key].relative for change in group]
            where = label([change.name for change in group], MOST_NAMES)
            message = f"The weights agree, but {name} changed, relative to the median weight: {where} {_times(ratios)}."
            yield _finding(rule, group, message, explained, away(ratios[0]), limit)
        elif away(medians[key]) > limit and all(change.cause == "nothing" for change in changes):
            message = f"All weights agree, but {name} of the median one is {_times([medians[key]])}."
            yield _finding(rule, (), message, explained, away(medians[key]), limit)


def _not_compared(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        message = f"{len(names)} parameters have no counterpart of their name and shape: {few(names, MOST_NAMES)}."
        advice = "Rename what was renamed, to compare it too."
        yield Finding("HD604", "note", tuple(names), message, advice, float(len(names)), 0.0)


def _finding(rule: str, group: Sequence[BlockChange], message: str, why: str, value: float, limit: float) -> Finding:
    """Make a finding: a warning with advice, or a note where `why` says that nothing follows."""
    severity: Severity = "note" if why else "warning"
    return Finding(rule, severity, tuple(change.name for change in group), message, why or ADVICE[rule], value, limit)


def _times(ratios: Sequence[float]) -> str:
    """Say by what factor numbers changed.

    >>> _times([4.9, 4.8]), _times([0.25, 0.5]), _times([math.inf])
    ('4.80 to 4.90× as large', '2.00 to 4.00× smaller', 'no longer zero')
    """
    low, high = min(ratios), max(ratios)
    if low == math.inf:
        return "no longer zero"
    if high == 0:
        return "now zero"
    low, high, how = (1 / high, 1 / low, "smaller") if 0 < low <= high < 1 else (low, high, "as large")
    return f"{' to '.join(dict.fromkeys([short(low), short(high)]))}× {how}"
