"""Many trials of one experiment, and initialisations compared by them: new weights, inputs and loss each time.

The theory speaks of averages over random networks, so a figure shows the distribution over trials: `Setups` keeps the
per-trial numbers of every block as (S, L) arrays, and the average block map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hessdiag.arguments import check_kind, few
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import CONFIDENCE, BalanceLevel, level_of, uncounted
from hessdiag.results.numbers import Array, geometric_mean, normalize, short, spread
from hessdiag.results.records import Record
from hessdiag.results.report import Report
from hessdiag.results.text_table import Detail, Printed, TextTable, plain_text

COLUMNS = (
    "activation_scaling", "gamma", "gamma_intrinsic", "gamma_curvature", "nu", "avg_sq_singular_value", "stderr",
    "ratio", "relative_ratio",
)  # fmt: skip

SHARED = ("model", "init", "loss", "matrix", "per", "method", "batch_size", "device", "dtype", "data", "versions")
KEYS = ("avg_sq_singular_value", "gamma", "nu")
RESAMPLES = 1000
RANKING = ("initialisation", "σ² spread", "γ spread", "ν spread", "γ/σ²", "E[y²]", "Var[y]")
LAYERS = ("layer", "σ²/mean", "γ/mean", "ν/mean", "variance ×")
MARK = "*"  # of the checked one
OUTPUT_VARIANCE = (0.01, 0.1)  # "reasonable choices" for log-softmax losses (Section 7 of arXiv 1906.04267)


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
        if not (reports := tuple(reports)):
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
            names=first.heatmap.names, numel=first.heatmap.numel, **{key: getattr(first, key) for key in SHARED},
            columns={key: np.array([[getattr(b, key) for b in r.weights] for r in reports]) for key in COLUMNS},
            frobenius_sq=maps.mean(axis=0), frobenius_sq_stderr=between / np.sqrt(count),
            estimator_stderr=np.sqrt((noise**2).sum(axis=0)) / count, seed=first.seed,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Study(Record):
    """Several experiments: what a figure with several panels is drawn from.

    Attributes:
        panels: the experiments.
    """

    schema: ClassVar[str] = "hessdiag.study/1"

    panels: tuple[Setups, ...]


@dataclass(frozen=True)
class Interval(Record):
    """A number and the interval that the choice of trials leaves open, at 95 %.

    Attributes:
        value: the number.
        low, high: ends of the interval; undefined for a single trial.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SchemeCheck(Record):
    """S trials of the network under one initialisation.

    Attributes:
        setups: γ, ν and σ² of every weight block, (S, L) each, and the block map.
        output_sq, output_variance: (S,), of the network's outputs.
        convention: what a user's initialisation was called with; empty for any other.
        invariant: weights before a normalisation, on whose scale the network does not depend: spreads leave them out.
    """

    derived = ("init", "spreads", "ratio", "output_sq_mean", "output_variance_mean", "saturates")

    setups: Setups
    output_sq: Array
    output_variance: Array
    convention: str = ""
    invariant: tuple[str, ...] = ()

    @property
    def init(self) -> str:
        """Name of the initialisation."""
        return self.setups.init

    @property
    def names(self) -> tuple[str, ...]:
        """The K weights that are compared."""
        return tuple(name for name in self.setups.names if name not in self.invariant)

    def values(self, key: str = "avg_sq_singular_value") -> Array:
        """(S, K), a quantity of each of them in each trial."""
        return self.setups.columns[key][:, [name not in self.invariant for name in self.setups.names]]

    def means(self, key: str = "avg_sq_singular_value") -> Array:
        """(K,), its mean over trials."""
        return np.asarray(self.values(key).mean(axis=0))

    def spread(self, key: str = "avg_sq_singular_value") -> Interval:
        """Largest over smallest of the blocks' means, with a bootstrap interval over trials.

        Trials are resampled whole, all blocks of one together: they share weights, inputs and loss.
        """
        values = self.values(key)  # (S, K)
        estimate = spread([float(v) for v in values.mean(axis=0)])
        if not math.isfinite(estimate) or len(values) < 2:
            return Interval(estimate, math.nan, math.nan)
        draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
        means = values[draws].mean(axis=1)  # (R, L)
        tail = (1 - CONFIDENCE) / 2
        with np.errstate(divide="ignore", invalid="ignore"):  # estimates of small ones may be below 0
            low, high = np.quantile(means.max(axis=1) / means.min(axis=1).clip(0), [tail, 1 - tail])
        return Interval(estimate, float(low), float(high))

    @property
    def spreads(self) -> dict[str, Interval]:
        """`spread` of `avg_sq_singular_value`, `gamma` and `nu`."""
        return {key: self.spread(key) for key in KEYS}

    @property
    def ratio(self) -> float:
        """Median of γ/σ², theory over measurement, over blocks and trials."""
        defined = [value for value in self.setups.columns["ratio"].flat if math.isfinite(value)]
        return float(np.median(defined)) if defined else math.nan

    @property
    def output_sq_mean(self) -> float:
        """E[y²], mean over trials."""
        return float(self.output_sq.mean())

    @property
    def output_variance_mean(self) -> float:
        """Variance of the outputs, mean over trials."""
        return float(self.output_variance.mean())

    @property
    def saturates(self) -> bool:
        """Whether the variance of the outputs is outside the range that suits a log-softmax loss."""
        low, high = OUTPUT_VARIANCE
        return not low <= self.output_variance_mean <= high


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InitCheck(Printed, Record):
    """An initialisation against others on one network; see `hessdiag.check_init`.

    Attributes:
        init: the initialisation that was asked about.
        schemes: all of them, the most balanced first: by the spread of σ², undefined ones last.
    """

    schema: ClassVar[str] = "hessdiag.init-check/3"
    derived: ClassVar[tuple[str, ...]] = ("model", "level", "verdict", "rank", "spread", "variance_factors")

    init: str
    schemes: tuple[SchemeCheck, ...]

    @property
    def checked(self) -> SchemeCheck:
        """What was measured of the initialisation that was asked about."""
        return next(scheme for scheme in self.schemes if scheme.init == self.init)

    @property
    def rank(self) -> int:
        """Its place among all of them, 1 for the most balanced."""
        return 1 + self.schemes.index(self.checked)

    @property
    def model(self) -> str:
        """The network."""
        return self.checked.setups.model

    @property
    def spread(self) -> dict[str, float]:
        """Of the checked one, largest over smallest block: `gamma`, `nu` and `avg_sq_singular_value`."""
        return {key: self.checked.spread(key).value for key in KEYS}

    @property
    def variance_factors(self) -> dict[str, float]:
        """Factor on the variance of each weight that makes it as curved as the others, the worst one first."""
        return variance_factors(self.checked.names, self.checked.means())

    @property
    def level(self) -> BalanceLevel:
        """`"balanced"`, `"uneven"`, `"unbalanced"` or `"undecided"`, as of the balance of a report."""
        return level_of(self.checked.spread().value) if len(self.checked.names) > 1 else "undecided"

    @property
    def verdict(self) -> str:
        """What to take away, in a few sentences; curvatures differ by the root of the spread of σ²."""
        checked, interval, names, means = self.checked, self.checked.spread(), self.checked.names, self.checked.means()
        if len(names) < 2:
            sentences = [f"{self.init}: nothing to compare, {len(names)} weight of the network counts."]
        elif not 0 < interval.value < math.inf:
            flat = few(name for name, value in zip(names, means, strict=True) if not value > 0)
            sentences = [f"{self.init}: {flat} has no curvature, or an undefined one; there is nothing to scale."]
        else:
            room = f" ({short(interval.low)} to {short(interval.high)} over trials)" if len(checked.setups) > 1 else ""
            sentences = [f"{self.init}: {self.level}, σ² within {short(interval.value)}×{room}."]
            if self.level != "balanced":
                apart, (worst, factor) = short(math.sqrt(interval.value)), next(iter(self.variance_factors.items()))
                ends = f"from {names[int(means.argmin())]} to {names[int(means.argmax())]}"
                sentences.append(f"Curvatures differ by about {apart}×, {ends}.")
                sentences.append(f"{worst} is the farthest from the others: multiply its variance by {short(factor)}.")
            if len(self.schemes) > 1:
                best = self.schemes[0]
                sentences.append(f"Rank {self.rank} of {len(self.schemes)}.")
                if best is not checked:
                    sentences.append(f"{best.init} is the most balanced, within {short(best.spread().value)}×.")
        sentences += uncounted(checked.invariant)
        if checked.saturates:
            sentences.append(f"The outputs' variance is {short(checked.output_variance_mean)}.")
            sentences.append("For a log-softmax loss bring it into 0.01 to 0.1: hessdiag.surgery.normalise_output.")
        return " ".join(sentences)

    def text(self, detail: Detail = "table") -> str:
        """Return the verdict (`"brief"`), then the ranking and the layers of the checked one."""
        if detail == "brief":
            return plain_text([self.verdict])
        setups = self.checked.setups
        parts: list[str | TextTable] = [
            self.verdict, "",
            f"{self.model}: initialisation {self.init} against {len(self.schemes) - 1} others,"
            f" {len(setups)} trials each, the same seeds for all",
            f"loss {setups.loss}, batch {setups.batch_size} ({setups.data}), seeds {setups.seed} to"
            f" {setups.seed + len(setups) - 1}, method {setups.method}",
            "", TextTable(RANKING, list(map(self._cells, self.schemes))), "",
            f"{MARK} the one asked about. Spreads: max/min over the weights of means over trials (95 % interval).",
        ]  # fmt: skip
        conventions = [f"{scheme.init}: {scheme.convention}." for scheme in self.schemes if scheme.convention]
        columns = [values / geometric_mean(values.tolist()) for values in map(self.checked.means, KEYS)]  # of (K,)
        factors = [self.variance_factors.get(name, math.nan) for name in self.checked.names]
        rows = [[name, *map(short, row)] for name, *row in zip(self.checked.names, *columns, factors, strict=True)]
        parts += [*conventions, "", f"layers under {self.init}", TextTable(LAYERS, rows)]
        return plain_text(parts, whole=detail == "whole")

    def _cells(self, scheme: SchemeCheck) -> list[str]:
        sigma, gamma, nu = (scheme.spread(key) for key in KEYS)
        name = f"{scheme.init} {MARK}" if scheme is self.checked else scheme.init
        room = "" if math.isnan(sigma.low) else f" ({short(sigma.low)}–{short(sigma.high)})"
        others = (gamma.value, nu.value, scheme.ratio, scheme.output_sq_mean, scheme.output_variance_mean)
        return [name, short(sigma.value) + room, *map(short, others)]


def ranked(schemes: Sequence[SchemeCheck]) -> tuple[SchemeCheck, ...]:
    """The most balanced first; undefined spreads last."""
    return tuple(sorted(schemes, key=lambda scheme: (math.isnan(scheme.spread().value), scheme.spread().value)))


def variance_factors(names: Sequence[str], sigma: Array) -> dict[str, float]:
    """Find v for every weight, such that W → √v W makes it as curved as the others; the worst one first.

    With its input scaled by 1/√v, W → √v W leaves the function as it is and multiplies σ² of this weight by v⁻², of no
    other one. v² is its σ² over the median of the others'. Each is meant alone; none where a σ² is zero or undefined.

    >>> round(variance_factors(["a", "b", "c"], np.array([1.0, 1.0, 1e4]))["c"])
    100
    """
    if len(names) < 2 or not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        return {}
    logs = np.log(sigma)
    order = np.argsort(-np.abs(logs - np.median(logs)), kind="stable")
    return {names[i]: float(np.exp((logs[i] - np.median(np.delete(logs, i))) / 2)) for i in order}
