"""The model as a pure function of chosen blocks, for torch.func; every other parameter is a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from hessdiag.batch import Batch
from hessdiag.blocks import Block, block_parameter, parameter_slots


class FunctionalModel:
    """Call a model with some parameters replaced.

    Each distinct place that holds a parameter is replaced exactly once (`tie_weights=False`): torch's own handling of
    shared modules writes into the user's weights (pytorch#164759).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._slots = {name: [f"{p}.{a}" if p else a for p, a in s] for name, s in parameter_slots(model).items()}
        held = dict(model.named_parameters(remove_duplicate=False))
        self._constants = {slot: held[slots[0]].detach() for slots in self._slots.values() for slot in slots}

    def __call__(self, values: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Outputs (B, *out) with the named parameters set to `values`."""
        swapped = {slot: value for name, value in values.items() for slot in self._slots[name]}
        y = functional_call(
            self.model, {**self._constants, **swapped}, batch.args, dict(batch.kwargs), tie_weights=False
        )
        return batch.check_outputs(y)


def output_tangent(model: nn.Module, block: Block, batch: Batch) -> Tensor:
    """∂y/∂u for a scalar block u, (B, *out), by one forward-mode pass."""
    network = FunctionalModel(model)
    value = block_parameter(model, block).detach()

    def outputs(u: Tensor) -> Any:
        return network({block.name: u}, batch)

    with torch.no_grad():  # only the tangent is wanted, no graph behind it
        return cast(Tensor, jvp(outputs, (value,), (torch.ones_like(value),))[1])
