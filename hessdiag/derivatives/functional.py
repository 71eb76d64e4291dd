"""The model as a pure function of chosen blocks, for torch.func; every other parameter is a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp, vmap

from hessdiag.data.batch import Batch
from hessdiag.network.blocks import Block, block_parameter, parameter_slots


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
        # Buffers too: a forward pass that binds a new tensor to one would leave a dead functorch wrapper behind.
        for path, module in model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._constants[f"{path}.{name}" if path else name] = buffer.detach().clone()

    def __call__(self, values: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Outputs (B, *out) with the named parameters set to `values`."""
        swapped = {slot: value for name, value in values.items() for slot in self._slots[name]}
        y = functional_call(
            self.model, {**self._constants, **swapped}, batch.args, dict(batch.kwargs), tie_weights=False
        )
        return batch.check_outputs(y)


def functional_jacobians(
    model: nn.Module, blocks: Sequence[Block], part: Batch, cotangents: Tensor
) -> dict[str, Tensor]:
    """cotangent^T ∂y/∂W of every example for blocks of any kind, (B, C, P) each, by reverse mode.

    Vmapped over examples and cotangents where every operation of the model allows it, else one by one.

    Args:
        model: the model.
        blocks: the blocks.
        part: B examples.
        cotangents: (C, B, *out).
    """
    network = FunctionalModel(model)
    at = {block.name: block_parameter(model, block).detach() for block in blocks}

    def one(args: Any, kwargs: Any, v: Tensor) -> dict[str, Tensor]:
        single = part.single(args, kwargs, None)
        _, pull, *_ = vjp(lambda values: network(values, single), at)
        return cast(dict[str, Tensor], vmap(lambda w: pull(w.unsqueeze(0))[0], randomness="same")(v))

    try:
        rows = vmap(one, in_dims=(*part.batched_dims()[:2], 1), randomness="same")(
            part.args, dict(part.kwargs), cotangents
        )
        return {name: rows[name].flatten(2) for name in at}
    except RuntimeError:  # an operation that cannot be vmapped
        return _jacobians_one_by_one(network, at, part, cotangents)


def _jacobians_one_by_one(
    network: FunctionalModel, at: Mapping[str, Tensor], part: Batch, cotangents: Tensor
) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = {name: [] for name in at}
    for b in range(part.size):
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        y = network(leaves, part.narrow(b, b + 1))
        at_leaves = list(leaves.values())
        rows = [
            torch.autograd.grad(y, at_leaves, v, retain_graph=True, allow_unused=True) for v in cotangents[:, b : b + 1]
        ]
        for number, (name, leaf) in enumerate(leaves.items()):
            column = [torch.zeros_like(leaf) if row[number] is None else row[number] for row in rows]
            found[name].append(torch.stack(column).flatten(1))
    return {name: torch.stack(examples) for name, examples in found.items()}


def output_tangent(model: nn.Module, block: Block, batch: Batch) -> Tensor:
    """∂y/∂u for a scalar block u, (B, *out), by one forward-mode pass.

    By reverse mode twice where an operation has no forward-mode rule, or where forward mode was found out to differ
    (`block.structured` is off): it differentiates what the model computes under `torch.no_grad()`.
    """
    network = FunctionalModel(model)
    value = block_parameter(model, block).detach()

    def outputs(u: Tensor) -> Any:
        return network({block.name: u}, batch)

    if block.structured:
        try:
            with torch.no_grad():  # only the tangent is wanted, no graph behind it
                return cast(Tensor, jvp(outputs, (value,), (torch.ones_like(value),))[1])
        except (RuntimeError, NotImplementedError):
            pass
    u = value.clone().requires_grad_()
    y = outputs(u)
    v = torch.zeros_like(y, requires_grad=True)
    if not y.requires_grad:
        return v.detach()
    (along,) = torch.autograd.grad(y, u, v, create_graph=True, materialize_grads=True)  # v^T ∂y/∂u
    if not along.requires_grad:
        return v.detach()
    return torch.autograd.grad(along, v, torch.ones_like(along))[0]
