"""Learning rates of several optimisers for one network, and what they were measured on."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from hessdiag.arguments import joined
from hessdiag.results.numbers import Z95, bounded, short
from hessdiag.results.records import Record
from hessdiag.results.text_table import Detail, Printed, TextTable, plain_text

NAMES = {"sgd": "SGD", "momentum": "SGD, momentum 0.9", "adam": "Adam"}
TITLES = ("optimizer", "learning rate", "± by the steps", "half → half", "steps")


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningRate(Record):
    """Where quadratic models of the loss are lowest along the directions u of an optimiser: Σ g·u / Σ uᵀGu.

    g is the gradient of a batch and G its Gauss-Newton matrix. SGD moves along u = g. A rate is NaN where the models
    have no minimum along u: the loss does not fall, or has no curvature.

    Attributes:
        value: for steps of all trainable parameters together.
        stderr: its standard error, from how the steps scatter. 1.96 of it reach to either end of a 95 % interval.
        examples: of the batch of a virtual step.
        steps: the rate before each virtual step on a copy, of which `value` is the summary.
        halves: the same of the earlier and of the later half of the steps alone.
        rises: whether it rises along the steps even where the walk ended.
    """

    value: float
    stderr: float
    examples: int = 0
    steps: tuple[float, ...] = ()
    halves: tuple[float, float] = (math.nan, math.nan)
    rises: bool = False


@dataclass(frozen=True, repr=False)
class LearningRates(Printed, Record, Mapping[str, LearningRate]):
    """A mapping from optimisers to their learning rates; printing it shows the table.

    Attributes:
        rates: by optimiser: `"sgd"`, `"momentum"` (SGD with momentum 0.9) or `"adam"`.
        model: name of its class, or what was typed.
        loss: name of the loss.
        data: what the examples are, such as `"random normal"`; empty where they were passed.
        init: what the weights are.
        batch_size: examples in the batch of a virtual step.
        fresh: whether slopes and curvatures are of other examples than the directions.
        seed: of what was drawn.
        device, dtype: where and in what precision.
        versions: of hessdiag and torch.
    """

    schema: ClassVar[str] = "hessdiag.learning-rates/1"

    rates: Mapping[str, LearningRate]
    model: str
    loss: str
    data: str = ""
    init: str = "as given"
    batch_size: int = 0
    fresh: bool = True
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    versions: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, optimizer: str) -> LearningRate:
        return self.rates[optimizer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rates)

    def __len__(self) -> int:
        return len(self.rates)

    def text(self, detail: Detail = "table") -> str:
        """Return the rates (`"brief"`), and the table with how far they may be off."""
        warnings = self._warnings()
        if detail == "brief":
            lines = [f"{NAMES[name]}: {bounded(rate.value, Z95 * rate.stderr)}" for name, rate in self.items()]
            return plain_text([*lines, *warnings])
        steps = max((len(rate.steps) for rate in self.values()), default=0)
        examples = f"batches of {self.batch_size} examples, measured on fresh ones"
        if not self.fresh:
            examples = f"the same {self.batch_size} examples: eight batches or more are better"
        return plain_text([
            f"{self.model}: learning rates before training, weights {self.init}, loss {self.loss}",
            f"{steps} virtual steps on {examples}" + (f" ({self.data})" if self.data else ""),
            "", TextTable(TITLES, [_cells(name, rate) for name, rate in self.items()]), "",
            "These are constant rates for the first hundreds of steps. The best rate is often 1.5×, now and then 4×"
            " away.",
            "± by the steps: 1.96 standard errors, as the steps scatter. Half → half: of the earlier and later steps.",
            *warnings,
        ])  # fmt: skip

    def _warnings(self) -> Iterator[str]:
        if self.data.startswith("random"):
            yield f"! These rates are for random data ({self.data}, random targets): measure them on yours."
        if rising := [NAMES[name] for name, rate in self.items() if rate.rises]:
            yield f"! The rate of {joined(rising)} still rises along the steps: pass more steps."
        if unsure := [NAMES[n] for n, rate in self.items() if rate.stderr > 0 and not all(h > 0 for h in rate.halves)]:
            yield f"! The rate of {joined(unsure)} is not determined: half of the steps give none."
        if dead := [NAMES[name] for name, rate in self.items() if math.isnan(rate.value)]:
            line = f"! No rate for {joined(dead)}: along these steps the loss of fresh examples is no number, or"
            yield f"{line} does not fall, or has no curvature, beyond noise and rounding."


def _cells(name: str, rate: LearningRate) -> list[str]:
    halves = " → ".join(short(half) if half > 0 else "–" for half in rate.halves)
    return [NAMES[name], short(rate.value), short(Z95 * rate.stderr), halves, str(len(rate.steps))]
