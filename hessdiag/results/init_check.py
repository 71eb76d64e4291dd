"""Initialisations of one network side by side: what was measured of each, and what it comes to.

An `InitCheck` is plain numbers, like a `Report`: printing it shows the ranked table and the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hessdiag.results.findings import level_of
from hessdiag.results.numbers import Array, short, spread
from hessdiag.results.records import Record
from hessdiag.results.setups import Setups
from hessdiag.results.text_table import Detail, Printed, TextTable, plain_text

KEYS = ("avg_sq_singular_value", "gamma", "nu")
RESAMPLES = 1000
CONFIDENCE = 0.95
WORTH_NAMING = 1.5  # how much more balanced another initialisation must be to be recommended
RANKING = (
    "initialisation",
    "σ² spread",
    "γ spread",
    "ν spread",
    "γ/σ²",
    "E[y²]",
    "Var[y]",
    "forward",
    "backward",
    "γ/γᵇ in",
)
LAYERS = ("layer", "σ²/mean", "γ/mean", "ν/mean", "variance ×")
MARK = "*"  # of the checked one
OUTPUT_VARIANCE = (0.01, 0.1)  # "reasonable choices" for log-softmax losses (Section 7 of arXiv 1906.04267)


@dataclass(frozen=True)
class Interval(Record):
    """A number and the interval that the choice of set-ups leaves open, at 95 %.

    Attributes:
        value: the number.
        low, high: ends of the interval; undefined for a single set-up.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SchemeCheck(Record):
    """S set-ups of the network under one initialisation.

    Attributes:
        setups: γ, ν and σ² of every weight block, (S, L) each, and the block map.
        layers: paths of the D layers that `forward_sq` and `backward_sq` are of.
        forward_sq, backward_sq: (S, D), E[x²] and E[Δx²] of what each layer writes.
        bias_balance: (S,), γ of the first layer's weight over γ of its bias.
        output_sq, output_variance: (S,), of the network's outputs.
        convention: what a user's initialisation was called with; empty for any other.
    """

    derived: ClassVar[tuple[str, ...]] = (
        "init",
        "spreads",
        "ratio",
        "output_sq_mean",
        "output_variance_mean",
        "saturates",
        "forward_growth",
        "backward_growth",
        "input_balance",
    )

    setups: Setups
    layers: tuple[str, ...]
    forward_sq: Array
    backward_sq: Array
    bias_balance: Array
    output_sq: Array
    output_variance: Array
    convention: str = ""

    @property
    def init(self) -> str:
        """Name of the initialisation."""
        return self.setups.init

    def means(self, key: str = "avg_sq_singular_value") -> Array:
        """(L,), mean over set-ups of a quantity of each block."""
        return np.asarray(self.setups.columns[key].mean(axis=0))

    def spread(self, key: str = "avg_sq_singular_value") -> Interval:
        """Largest over smallest of the blocks' means, with a bootstrap interval over set-ups.

        Set-ups are resampled whole, all blocks of one together: they share weights, inputs and loss.
        """
        values = self.setups.columns[key]  # (S, L)
        estimate = spread([float(v) for v in values.mean(axis=0)])
        if not math.isfinite(estimate) or len(values) < 2:
            return Interval(estimate, math.nan, math.nan)
        draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
        means = values[draws].mean(axis=1)  # (R, L)
        tail = (1 - CONFIDENCE) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = np.quantile(means.max(axis=1) / means.min(axis=1), [tail, 1 - tail])
        return Interval(estimate, float(low), float(high))

    @property
    def spreads(self) -> dict[str, Interval]:
        """`spread` of `avg_sq_singular_value`, `gamma` and `nu`."""
        return {key: self.spread(key) for key in KEYS}

    @property
    def ratio(self) -> float:
        """Median of γ/σ², theory over measurement, over blocks and set-ups."""
        return _median(self.setups.columns["ratio"])

    @property
    def output_sq_mean(self) -> float:
        """E[y²], mean over set-ups."""
        return float(self.output_sq.mean())

    @property
    def output_variance_mean(self) -> float:
        """Variance of the outputs, mean over set-ups."""
        return float(self.output_variance.mean())

    @property
    def saturates(self) -> bool:
        """Whether the variance of the outputs is outside the range that suits a log-softmax loss."""
        low, high = OUTPUT_VARIANCE
        return not low <= self.output_variance_mean <= high

    @property
    def forward_growth(self) -> float:
        """E[x²] after the last layer over that after the first, median over set-ups."""
        return _median(_divide(self.forward_sq[:, -1], self.forward_sq[:, 0])) if self.layers else math.nan

    @property
    def backward_growth(self) -> float:
        """E[Δx²] after the first layer over that after the last, median over set-ups."""
        return _median(_divide(self.backward_sq[:, 0], self.backward_sq[:, -1])) if self.layers else math.nan

    @property
    def input_balance(self) -> float:
        """γ of the first layer's weight over γ of its bias, mean over set-ups."""
        return float(self.bias_balance.mean())


@dataclass(frozen=True)
class Fix(Record):
    """What makes one block as curved as the others.

    W → √v W with the input scaled by 1/√v leaves the function as it is and multiplies σ² of this block by v⁻², of no
    other block. Without the factor on the input, the signal's size changes as well; in a ReLU network without biases
    the balance is the same.

    Attributes:
        block: name of the weight.
        excess: its σ² over the median of the other blocks' σ².
        variance: factor v = √excess on the variance of its initialisation.
        before: fixed factor 1/√v to insert before its layer, to keep the signal; for linear and convolutional layers.
    """

    derived: ClassVar[tuple[str, ...]] = ("variance", "before")

    block: str
    excess: float

    @property
    def variance(self) -> float:
        """Factor on E[W²]."""
        return math.sqrt(self.excess)

    @property
    def before(self) -> float:
        """Factor on the layer's input."""
        return 1 / math.sqrt(self.variance)

    @property
    def layer(self) -> str:
        """Path of the module that holds the weight."""
        return self.block.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class WidthSweep(Record):
    """The checked initialisation on wider and narrower versions of the network.

    Attributes:
        widths: factors on the width, W of them.
        names: the L weight blocks.
        avg_sq_singular_value, gamma, nu: (W, L), means over set-ups.
        output_sq: (W,), E[y²].
    """

    widths: tuple[float, ...]
    names: tuple[str, ...]
    avg_sq_singular_value: Array
    gamma: Array
    nu: Array
    output_sq: Array

    def relative(self, key: str = "avg_sq_singular_value") -> Array:
        """(W, L), each row over its geometric mean: does a layer keep its place as the network grows?"""
        return _relative(np.asarray(getattr(self, key)))

    def spreads(self, key: str = "avg_sq_singular_value") -> list[float]:
        """Largest over smallest block at each width."""
        return [spread([float(v) for v in row]) for row in getattr(self, key)]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InitCheck(Printed, Record):
    """An initialisation against others on one network; see `hessdiag.check_init`.

    Attributes:
        init: the initialisation that was asked about.
        schemes: all of them, the most balanced first: by the spread of σ², undefined ones last.
        widths: the sweep over widths, where one was asked for.
    """

    schema: ClassVar[str] = "hessdiag.init-check/2"
    derived: ClassVar[tuple[str, ...]] = ("model", "level", "verdict", "rank", "spread", "fixes")

    init: str
    schemes: tuple[SchemeCheck, ...]
    widths: WidthSweep | None = None

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
    def conventions(self) -> tuple[str, ...]:
        """A sentence for every initialisation of a user: what it was called with."""
        return tuple(f"{scheme.init}: {scheme.convention}." for scheme in self.schemes if scheme.convention)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """For every block, what would make it as curved as the others are on average; the worst one first.

        Each is meant alone. None where some σ² is zero or undefined.
        """
        return fixes(self.checked.setups.names, self.checked.means())

    @property
    def level(self) -> str:
        """`"balanced"`, `"uneven"`, `"unbalanced"` or `"undecided"`, as of the balance of a report."""
        return _judge(self)[0]

    @property
    def verdict(self) -> str:
        """What to take away, in a few sentences."""
        return _judge(self)[1]

    def text(self, detail: Detail = "table") -> str:
        """Return the verdict (`"brief"`), then the ranking, the layers of the checked one and the sweep."""
        if detail == "brief":
            return plain_text([self.verdict])
        setups = self.checked.setups
        parts: list[str | TextTable] = [
            self.verdict,
            "",
            f"{self.model}: initialisation {self.init} against {len(self.schemes) - 1} others,"
            f" {len(setups)} set-ups each, the same seeds for all",
            f"loss {setups.loss}, batch {setups.batch_size} ({setups.data}), seeds {setups.seed} to"
            f" {setups.seed + len(setups) - 1}, method {setups.method}",
            "",
            TextTable(RANKING, [[self._marked(scheme), *cells(scheme)] for scheme in self.schemes]),
            "",
            f"{MARK} the one asked about. Spreads: max/min over the weights of means over set-ups (95 % interval).",
            "forward: E[x²] after the last layer over the first; backward: E[Δx²] after the first over the last.",
            "γ/γᵇ in: weight over bias of the first layer; 1 after hessdiag.surgery.scale_input.",
        ]
        if any(scheme.saturates for scheme in self.schemes):
            parts.append("! variance of the outputs outside 0.01 to 0.1, the range that suits log-softmax losses.")
        parts += [*self.conventions, "", f"layers under {self.init}"]
        parts.append(TextTable(LAYERS, _rows(setups.names, layer_values(self))))
        if self.widths is not None:
            titles = ("layer", *(f"{width:g}×" for width in self.widths.widths))
            parts += ["", "σ² of each layer over the geometric mean of all, by width"]
            parts.append(TextTable(titles, _rows(swept_names(self.widths), sweep_values(self.widths))))
        return plain_text(parts, whole=detail == "whole")

    def _marked(self, scheme: SchemeCheck) -> str:
        return f"{scheme.init} {MARK}" if scheme is self.checked else scheme.init


def _rows(names: Sequence[str], values: Sequence[Sequence[float]]) -> list[list[str]]:
    return [[name, *map(short, row)] for name, row in zip(names, values, strict=True)]


def cells(scheme: SchemeCheck) -> list[str]:
    """Texts of one row of the ranking after the name."""
    interval = scheme.spread()
    texts = [short(value) for value in scheme_values(scheme)]
    if not math.isnan(interval.low):
        texts[0] += f" ({short(interval.low)}–{short(interval.high)})"
    texts[RANKING.index("Var[y]") - 1] += " !" if scheme.saturates else ""
    return texts


def scheme_values(scheme: SchemeCheck) -> list[float]:
    """Numbers of one row of the ranking after the name."""
    return [
        *(scheme.spread(key).value for key in KEYS),
        scheme.ratio,
        scheme.output_sq_mean,
        scheme.output_variance_mean,
        scheme.forward_growth,
        scheme.backward_growth,
        scheme.input_balance,
    ]


def layer_values(check: InitCheck) -> list[list[float]]:
    """Numbers of `LAYERS` after the names, relative to the geometric mean; NaN where no factor is known."""
    names = check.checked.setups.names
    factors = {fix.block: fix.variance for fix in check.fixes}
    columns = [_relative(check.checked.means(key)) for key in KEYS]
    return [[*map(float, row), factors.get(name, math.nan)] for name, *row in zip(names, *columns, strict=True)]


def swept_names(widths: WidthSweep) -> tuple[str, ...]:
    """The layers, then what `sweep_values` has below them."""
    return (*widths.names, "spread", "E[y²]")


def sweep_values(widths: WidthSweep) -> list[list[float]]:
    """Numbers by width of each layer, then the spread and the second moment of the outputs."""
    return [*widths.relative().T.tolist(), widths.spreads(), [float(value) for value in widths.output_sq]]


def ranked(schemes: Sequence[SchemeCheck]) -> tuple[SchemeCheck, ...]:
    """The most balanced first; undefined spreads last."""

    def place(scheme: SchemeCheck) -> float:
        value = scheme.spread().value
        return math.inf if math.isnan(value) else value

    return tuple(sorted(schemes, key=place))


def fixes(names: Sequence[str], sigma: Array) -> tuple[Fix, ...]:
    """A `Fix` for every block, the block farthest from the others first; none where there is nothing to compare.

    >>> worst = fixes(["a", "b", "c"], np.array([1.0, 1.0, 1e4]))[0]
    >>> worst.block, round(worst.excess), round(worst.variance)
    ('c', 10000, 100)
    """
    if len(names) < 2 or not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        return ()
    logs = np.log(sigma)
    middle = float(np.median(logs))
    order = sorted(range(len(names)), key=lambda i: -abs(logs[i] - middle))
    others = [np.median(np.delete(logs, i)) for i in range(len(names))]  # another bad layer does not move it
    return tuple(Fix(names[i], float(np.exp(logs[i] - others[i]))) for i in order)


def _median(values: Array) -> float:
    defined = values[np.isfinite(values)]
    return float(np.median(defined)) if defined.size else math.nan


def _relative(values: Array) -> Array:
    """Over the geometric mean along the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(values / np.exp(np.log(values).mean(axis=-1, keepdims=True)))


def _divide(a: Array, b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b)


def _judge(check: InitCheck) -> tuple[str, str]:
    """Level and sentences. σ² is a *squared* curvature, so that curvatures differ by the root of its spread."""
    checked = check.checked
    interval = checked.spread()
    level = level_of(interval.value)
    names, means = checked.setups.names, checked.means()
    if len(names) < 2:
        return "undecided", f"{check.init}: nothing to compare, the network has {len(names)} weight block."
    if level == "undecided" or math.isinf(interval.value):
        flat = [name for name, value in zip(names, means, strict=True) if value == 0]  # below 0 it is noise
        blocks = ", ".join(flat) or "some block"
        return (
            "unbalanced" if flat else "undecided",
            f"{check.init}: {blocks} has no curvature in any set-up, or an undefined one; there is nothing to scale.",
        )
    room = f" ({short(interval.low)} to {short(interval.high)} over set-ups)" if math.isfinite(interval.low) else ""
    if level == "balanced":
        sentences = [f"{check.init}: balanced, σ² within {short(interval.value)}×{room}."]
    else:
        sentences = [
            f"{check.init}: {level}, σ² spreads over {short(interval.value)}×{room}, curvatures over about"
            f" {short(math.sqrt(interval.value))}×, from {names[int(means.argmin())]} to {names[int(means.argmax())]}.",
            _blame(check),
        ]
    return level, " ".join([*sentences, *_comparison(check), *_outputs(checked)])


def _blame(check: InitCheck) -> str:
    """The block farthest from the others, and what brings it back."""
    fix = check.fixes[0]
    more = fix.excess > 1
    times = fix.excess if more else 1 / fix.excess
    what = (
        f"{fix.block} has {short(times)}× {'more' if more else 'less'} σ² than the others in the median (about"
        f" {short(math.sqrt(times))}× too {'much' if more else 'little'} curvature): multiply its variance by"
        f" {short(fix.variance)} (its standard deviation by {short(math.sqrt(fix.variance))})"
    )
    if fix.layer not in check.checked.layers:  # an embedding, say, does not multiply what it reads
        return f"{what}."
    return f"{what}; to keep the signal as it is, also insert a fixed factor {short(fix.before)} before it."


def _comparison(check: InitCheck) -> list[str]:
    best, mine = check.schemes[0], check.checked
    if len(check.schemes) < 2:
        return []
    place = f"Rank {check.rank} of {len(check.schemes)}"
    if best is mine:
        second = check.schemes[1]
        return [f"{place}; {second.init} comes next with {short(second.spread().value)}×."]
    better = mine.spread().value / best.spread().value
    if better < WORTH_NAMING:
        return [f"{place}, about as balanced as the first, {best.init} ({short(best.spread().value)}×)."]
    return [f"{place}; {best.init} is the most balanced, within {short(best.spread().value)}×."]


def _outputs(checked: SchemeCheck) -> list[str]:
    if not checked.saturates:
        return []
    variance = short(checked.output_variance_mean)
    return [
        f"The outputs' variance is {variance}: for a log-softmax loss bring it into 0.01 to 0.1, with"
        " hessdiag.surgery.normalise_output."
    ]
