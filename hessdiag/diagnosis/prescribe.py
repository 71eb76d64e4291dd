"""Scales that make the measured curvature of all weights equal, and leave the function of the network as it is.

W → s W with a multiplier 1/s on the layer's input changes nothing but this one block, whose σ², γ and ν are multiplied
by s⁻⁴. So s = (σ²/σ²*)^¼ brings a measured σ² to σ*², whatever the architecture around it is, also on residual
branches, where σ² is β² γ. One correction is enough; the result is measured again all the same.
"""

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_model, one_line
from hessdiag.data.batch import Batch, Inputs, tensors_in
from hessdiag.data.stream import batches_for
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.errors import HessdiagError
from hessdiag.network.preserve import preserve_state
from hessdiag.results.numbers import geometric_mean, percent, short, spread
from hessdiag.results.records import Record
from hessdiag.results.report import SPREAD_KEYS, Report, scale_invariant
from hessdiag.results.text_table import Detail, Printed, TextTable, grouped, plain_text, size
from hessdiag.surgery import rescale_weight

TRIED = 4  # examples on which a factor is tried
MAX_CHANGE = 1e-3  # of the outputs, relative
SYMBOLS = {"avg_sq_singular_value": "σ²", "gamma": "γ", "nu": "ν"}


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightPrescription(Record):
    """The change of one weight, with its σ² before and after.

    Attributes:
        name, shape: of the weight.
        weight_factor: s, which multiplies the weight.
        multiplier: 1/s, the fixed number that multiplies the layer's input (the output of an embedding).
        avg_sq_singular_value_before, avg_sq_singular_value: measured σ².
        gamma_before, gamma: γ; NaN where the theory has none.
    """

    name: str
    shape: tuple[int, ...]
    weight_factor: float
    multiplier: float
    avg_sq_singular_value_before: float
    avg_sq_singular_value: float
    gamma_before: float
    gamma: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Prescription(Printed, Record):
    """The scales found by `hessdiag.prescribe`. Its `repr` is a page of text.

    Attributes:
        blocks: one entry a weight that is balanced, in execution order.
        left_out: `(name, reason)` of every other weight.
        model, init, data: names under which they were asked for.
        loss, batch_size, seed: of the measurement.
        spread_before, spread: largest over smallest σ², γ and ν of the balanced weights, by name.
        sampling_error: largest relative standard error of the σ² that the scales follow from; 0 where they are exact.
            The same random directions serve before and after, so that the balance looks better than it is by as much.
    """

    schema: ClassVar[str] = "hessdiag.prescription/3"
    derived: ClassVar[tuple[str, ...]] = ("code",)

    blocks: tuple[WeightPrescription, ...]
    left_out: tuple[tuple[str, str], ...]
    model: str
    loss: str
    batch_size: int
    seed: int
    spread_before: Mapping[str, float]
    spread: Mapping[str, float]
    sampling_error: float
    init: str = "as given"
    data: str = "as given"

    @property
    def code(self) -> str:
        """Write Python that makes the change in `model`, as `apply` does."""
        lines = [f"rescale_weight(model, {block.name!r}, {block.weight_factor:.6g})" for block in self.blocks]
        return "\n".join(["from hessdiag.surgery import rescale_weight", "", *lines]) + "\n"

    def apply(self, model: nn.Module) -> nn.Module:
        """Make the change in a model, in place, and return it; it computes what it computed before.

        The model may be the one that was measured, a copy of it, or the same network drawn anew.

        Raises:
            HessdiagError: the prescription is of another network; nothing was changed.
        """
        check_model(model)
        named = dict(model.named_parameters())
        for block in self.blocks:
            if block.name not in named or tuple(named[block.name].shape) != block.shape:
                what = f"a weight {block.name!r} of shape {block.shape}"
                raise HessdiagError(f"the prescription has {what}: pass the measured model")
        for block in self.blocks:
            rescale_weight(model, block.name, block.weight_factor)
        return model

    def text(self, detail: Detail = "table") -> str:
        """Return the code (`"brief"`), and what it changes."""
        if detail == "brief":
            return self.code.rstrip()
        keys = ("avg_sq_singular_value_before", "avg_sq_singular_value", "weight_factor", "multiplier")
        numbers = ([*(getattr(block, key) for key in keys), block.weight_factor**-2] for block in self.blocks)
        rows = [(b.name, size(b.shape), *map(short, each)) for b, each in zip(self.blocks, numbers, strict=True)]
        columns = ("weight", "shape", "σ² before", "σ² after", "weight ×", "input ×", "or SGD lr ×")
        before, after, error = self.spread_before, self.spread, percent(self.sampling_error)
        changes = [f"{symbol} {short(before[key])} → {short(after[key])}" for key, symbol in SYMBOLS.items()]
        sampled = [f"σ² is sampled: its standard error is up to {error} %."] if self.sampling_error > 0 else []
        parts: list[str | TextTable] = [
            f"{self.model}, init {self.init}: scales that make σ² of its weights equal; nothing was changed",
            f"loss {self.loss}, batch {self.batch_size} ({self.data}), seed {self.seed}", "",
            TextTable(columns, rows, left=2), "",
            f"largest/smallest of these weights, before → after:  {'   '.join(changes)}", *sampled,
            "Multiply each weight by its factor and the layer's input by the inverse: the network computes the same.",
            *grouped("left as they are:", self.left_out), "", "as code:",
        ]  # fmt: skip
        return f"{plain_text(parts, whole=detail == 'whole')}\n{self.code.rstrip()}"


def prescribe(
    model: nn.Module, inputs: Inputs | Iterable[Any], targets: Inputs | None = None, **options: Any
) -> Prescription:
    """Find the scales at which all weights of a network are equally curved, and measure σ² before and after.

    The model is left as it was: all is tried on a copy. `prescription.apply(model)` makes the change.

    Args:
        model, inputs, targets: as for `hessdiag.diagnose`; batches are kept to be measured again.
        options: of `hessdiag.diagnose`, such as `loss="cross-entropy"`.

    Raises:
        HessdiagError: an argument cannot be used, or no weight of the network can be balanced.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    >>> found = prescribe(model, torch.ones(4, 2).double(), torch.zeros(4, 1).double(), loss="mse")
    >>> round(found.spread["avg_sq_singular_value"], 6)
    1.0
    """
    how = {key: options[key] for key in {"batch_dim", "examples"} & {*options}}
    stream = [*batches_for(model, inputs, targets, **how)]
    batches = [batch.given for batch in stream]
    before = diagnose(model, batches, quick=False, signals=True, **options)  # of which neither can be asked for
    if before.method == "none":
        raise HessdiagError(before.method_reason)
    try:
        scaled = copy.deepcopy(model)
    except Exception as error:  # of modules that hold what cannot be copied
        raise HessdiagError(f"{type(model).__name__} cannot be copied to try scales on ({one_line(error)})") from error
    left_out = _left_out(before, scaled, replace(stream[0], output=options.get("output")).narrow(0, TRIED))
    if not (names := [block.name for block in before.weights if block.name not in left_out]):
        first = next((f"{name}: {reason}" for name, reason in left_out.items()), "")
        raise HessdiagError(f"no weight of {type(model).__name__} can be balanced ({first})")
    blind = scale_invariant(before)  # what cannot be scaled but counts sets the level
    level = geometric_mean([before[name].avg_sq_singular_value for name in left_out if name not in blind])
    if math.isnan(level):
        level = geometric_mean([before[name].avg_sq_singular_value for name in names])
    factors = {name: (before[name].avg_sq_singular_value / level) ** 0.25 for name in names}
    for name, factor in factors.items():
        rescale_weight(scaled, name, factor)
    after = diagnose(scaled, batches, **options)
    return Prescription(
        blocks=tuple(WeightPrescription(
            name=name, shape=before[name].shape, weight_factor=factor, multiplier=1 / factor,
            **{f"{key}_before": getattr(before[name], key) for key in ("avg_sq_singular_value", "gamma")},
            **{key: getattr(after[name], key) for key in ("avg_sq_singular_value", "gamma")},
        ) for name, factor in factors.items()),
        left_out=tuple(left_out.items()), spread_before=_spread(before, names), spread=_spread(after, names),
        sampling_error=max(before[name].relative_stderr for name in names),
        **{key: getattr(before, key) for key in ("model", "loss", "batch_size", "seed")},
    )  # fmt: skip


def _left_out(report: Report, scaled: nn.Module, batch: Batch) -> dict[str, str]:
    """Name the weights that are not balanced, and why; `scaled` computes the same as before."""
    invariant, y = scale_invariant(report), _outputs(scaled, batch, report.seed)
    found = {}
    for block in report.weights:
        if block.name in invariant:
            found[block.name] = "a normalisation follows: the network does not depend on its scale"
        elif block.lost_in_noise or not 0 < block.avg_sq_singular_value < math.inf:
            found[block.name] = "its σ² is zero on this batch, undefined, or lost in sampling noise"
        else:
            try:
                rescale_weight(scaled, block.name, 2.0)  # exact in binary: outputs stay the same to the last digit
            except HessdiagError as error:
                found[block.name] = str(error).rpartition(":")[0]
                continue
            if float((_outputs(scaled, batch, report.seed) - y).norm()) > MAX_CHANGE * (float(y.norm()) or 1.0):
                found[block.name] = "the model reads it outside of the layer that holds it"
            rescale_weight(scaled, block.name, 0.5)
    return found


def _spread(report: Report, names: Iterable[str]) -> dict[str, float]:
    return {key: spread([getattr(report[name], key) for name in names]) for key in SPREAD_KEYS}


def _outputs(model: nn.Module, batch: Batch, seed: int) -> Tensor:
    """All numbers that a model returns; with the same random numbers each time."""
    with preserve_state(model, seed=seed, call=lambda: batch.run(model)):
        found = [v.detach().double().flatten() for v in tensors_in(batch.run(model)) if v.is_floating_point()]
    return torch.cat(found)
