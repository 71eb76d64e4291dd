"""What to change in a network before it is trained, each change with the measured number before and after it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from hessdiag.arguments import check_number
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import Finding
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.records import NumbersRecord, Record
from hessdiag.results.rendering import Tabled
from hessdiag.surgery import rescale_weight
from hessdiag.torch_arguments import check_model

SCHEMA = "hessdiag.recipe/1"
CAUTION = "# best for the first step alone, and several times off for what follows in many networks: try around it"
ALONG = "# for training: along virtual steps, most often within a factor of 2"
# How the learning rate of one weight would have to be multiplied to have the effect of a factor s on it: powers of s.
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
RATE_POWERS = {"sgd": -2.0, "adam": -1.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockRecipe(NumbersRecord):
    """The change of one weight, and what was measured of it before and after.

    Attributes:
        name, shape: of the weight.
        weight_factor: s, which multiplies the weight.
        multiplier: 1/s, the fixed number by which what the layer reads is multiplied (what it writes, of an embedding).
        rate_factor: what multiplies the learning rate of this weight to the same effect on training, in place of both.
        weight_sq_before, weight_sq: E[W²].
        curvature_before, curvature: σ².
        gamma_before, gamma: γ; NaN where the theory has none.
        nu_before, nu: ν.
        rate_before, rate: the learning rate at which a first step of this weight alone is best; NaN where unknown.
    """

    name: str
    shape: tuple[int, ...]
    weight_factor: float
    multiplier: float
    rate_factor: float
    weight_sq_before: float
    weight_sq: float
    curvature_before: float
    curvature: float
    gamma_before: float
    gamma: float
    nu_before: float
    nu: float
    rate_before: float = math.nan
    rate: float = math.nan


@dataclass(frozen=True, kw_only=True)
class RateGroup(Record):
    """Parameters that one learning rate suits.

    Attributes:
        names: of the parameters.
        lr: the learning rate.
    """

    names: tuple[str, ...]
    lr: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Recipe(Tabled, Record):
    """What `hessdiag.prescribe` found. Its `repr` is a page of text.

    Attributes:
        blocks: one entry a weight that is balanced, in execution order; a factor of 1 leaves it as it is.
        left_out: `(name, reason)` of every other weight that was measured.
        model, init, data: names under which they were asked for.
        loss, batch_size, seed: what was measured, and on how many examples.
        optimizer: `"sgd"` or `"adam"`, which `rate_factor` is for.
        balance: which quantity is made equal, `"sigma"`, `"gamma"` or `"rate"`.
        target: the spread at which the rounds end.
        spread_before, spread: largest over smallest σ², γ, ν and learning rate of the balanced weights, by name.
        spread_of_all_before, spread_of_all: that of the balanced quantity over all weights that were measured.
        rounds: how often the change was corrected after a measurement.
        sampling_error: largest relative standard error of the σ² that the scales follow from; 0 where they are exact.
            The same random directions serve before and after, so that the balance looks better than it is by as much.
        output_change: relative difference that the change makes to the outputs: rounding.
        learning_rate_before, learning_rate: of the optimiser's first step, see `LearningRate`; None where the loss is
            not one that is trained with, or has no minimum along the step.
        training_rate_before, training_rate: the constant rate that training is best with, along virtual steps; see
            `hessdiag.learning_rates`. None where it cannot be told.
        groups_before, groups: parameter groups that these rates ask for; one where a single rate suits all.
        findings: what the rules say of the network as it was; `hessdiag.surgery.apply_finding` makes those repairs that
            are mechanical.
    """

    schema: ClassVar[str] = SCHEMA
    derived: ClassVar[tuple[str, ...]] = ("code",)

    blocks: tuple[BlockRecipe, ...]
    left_out: tuple[tuple[str, str], ...]
    model: str
    loss: str
    batch_size: int
    seed: int
    optimizer: str
    balance: str
    target: float
    spread_before: Mapping[str, float]
    spread: Mapping[str, float]
    spread_of_all_before: float
    spread_of_all: float
    rounds: int
    sampling_error: float
    output_change: float
    learning_rate_before: LearningRate | None = None
    learning_rate: LearningRate | None = None
    training_rate_before: LearningRate | None = None
    training_rate: LearningRate | None = None
    groups_before: tuple[RateGroup, ...] = ()
    groups: tuple[RateGroup, ...] = ()
    findings: tuple[Finding, ...] = ()
    init: str = "as given"
    data: str = "as given"

    @property
    def repairs(self) -> tuple[Finding, ...]:
        """The findings that have a mechanical repair."""
        return tuple(finding for finding in self.findings if finding.repairs)

    @property
    def changed(self) -> tuple[BlockRecipe, ...]:
        """The blocks with a factor other than 1."""
        return tuple(block for block in self.blocks if block.weight_factor != 1)

    @property
    def code(self) -> str:
        """Write Python that makes the change in `model`, as `apply` does, and an optimiser with the rates measured."""
        lines = [f"rescale_weight(model, {block.name!r}, {block.weight_factor:.6g})" for block in self.changed]
        if lines:
            lines = ["from hessdiag.surgery import rescale_weight", "", *lines]
        if self.learning_rate is not None:
            lines = ["import torch", *lines, "", *self._optimizer_code(self.learning_rate)]
        return "\n".join(lines or ["# no weight needs another scale"]) + "\n"

    def _optimizer_code(self, rate: LearningRate) -> list[str]:
        kind, along = OPTIMIZERS[self.optimizer], self.training_rate
        said, value = (CAUTION, rate.value) if along is None else (ALONG, along.value)
        if len(self.groups) < 2:
            return [said, f"optimizer = torch.optim.{kind}(model.parameters(), lr={value:.3g})"]
        shared = value / rate.value  # from the first step to training, for all groups alike
        rows = [f"    ({group.lr * shared:.3g}, {list(group.names)!r})," for group in self.groups]
        return [
            said,
            "named = dict(model.named_parameters())",
            "groups = [",
            *rows,
            "]",
            "groups = [{'params': [named[name] for name in names], 'lr': lr} for lr, names in groups]",
            f"optimizer = torch.optim.{kind}(groups)",
        ]

    def to_code(self) -> str:
        """Return `code`."""
        return self.code

    def parameter_groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """Return groups for `torch.optim` that train a model as `apply` and one learning rate would, without any scale.

        For SGD, with momentum too, and for Adam where its eps is small beside the gradients. Weight decay and gradient
        clipping, which look at sizes, tell the two apart. Groups have a name beside `params` and `lr`.

        Args:
            model: the one that was measured, or the same network drawn anew; it is left as it is.
            lr: of everything that has no factor of its own.

        Raises:
            HessdiagError: the recipe is of another network.
        """
        check_model(model)
        check_number("lr", lr, "pass a learning rate above 0, such as 0.1", above=0)
        self._check_fits(model)
        own = {block.name: block for block in self.changed}
        others = [p for name, p in model.named_parameters() if name not in own]
        groups = [{"params": others, "lr": lr, "name": "others"}] if others else []
        return groups + [
            {"params": [model.get_parameter(name)], "lr": lr * block.rate_factor, "name": name}
            for name, block in own.items()
        ]

    def apply(self, model: nn.Module) -> nn.Module:
        """Make the change in a model, in place, and return it; it computes what it computed before.

        The model may be the one that was measured, a copy of it, or the same network drawn anew.

        Raises:
            HessdiagError: the recipe is of another network; nothing was changed.
        """
        check_model(model)
        self._check_fits(model)
        for block in self.changed:
            rescale_weight(model, block.name, block.weight_factor)
        return model

    def _check_fits(self, model: nn.Module) -> None:
        """Refuse a model that does not have the weights of the recipe."""
        named = dict(model.named_parameters())
        for block in self.blocks:
            if block.name not in named or tuple(named[block.name].shape) != block.shape:
                raise HessdiagError(f"the recipe has a weight {block.name!r} of shape {block.shape}: not this model")
