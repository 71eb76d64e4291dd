"""Parameter groups for a torch optimiser, from the learning rates of blocks."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hessdiag.arguments import check_number
from hessdiag.errors import HessdiagError
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.numbers import geometric_mean

if TYPE_CHECKING:
    from torch import nn

FACTOR = 4.0  # rates that are closer share a group: one batch tells a rate to about a factor 2


def parameter_groups(rate: LearningRate, model: nn.Module, *, factor: float = FACTOR) -> list[dict[str, Any]]:
    """Sort a model's trainable parameters by the learning rates of their blocks.

    Blocks whose rates are within `factor` of one another share a group, at the geometric mean of their rates. The rates
    of the blocks alone are scaled by `rate.together`, with which a step of all of them ends at the minimum. Parameters
    without a rate of their own, such as the gains of normalisation layers, get that of the joint step.

    Args:
        rate: of one optimiser.
        model: the model that was measured.
        factor: how far apart rates have to be for groups of their own, above 1.

    Returns:
        What `torch.optim` takes: `{"params": [...], "lr": ...}` each, the largest group first.

    Raises:
        HessdiagError: the rate is undefined, or the model is not the one that was measured.
    """
    check_number("factor", factor, "pass a factor above 1, such as 4", above=1)
    if not math.isfinite(rate.value):
        raise HessdiagError("there is no learning rate to make groups of: the loss has no minimum along the first step")
    held = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if missing := [name for name in rate.blocks if name not in held]:
        raise HessdiagError(f"the model has no trainable parameter {missing[0]!r}: pass the model that was measured")
    own = {name: value * rate.together for name, value in rate.blocks.items() if math.isfinite(value * rate.together)}
    bins: defaultdict[int | None, list[str]] = defaultdict(list)
    apart = len(own) > 1 and max(own.values()) > factor * min(own.values())
    for name in held:
        bins[round(math.log(own[name] / rate.value, factor)) if apart and name in own else None].append(name)
    groups = [
        {"params": [held[name] for name in names], "lr": _rate(names, own, rate) if key is not None else rate.value}
        for key, names in bins.items()
    ]
    return sorted(groups, key=lambda group: -sum(p.numel() for p in group["params"]))


def _rate(names: list[str], own: dict[str, float], rate: LearningRate) -> float:
    return geometric_mean([own.get(name, rate.value) for name in names])
