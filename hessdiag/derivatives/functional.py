"""The model as a pure function of chosen blocks, for torch.func; every other parameter is a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from hessdiag.data.batch import Batch
from hessdiag.network.blocks import Block, block_parameter, parameter_slots
from hessdiag.network.preserve import caches_of, emptied
from hessdiag.network.torch_state import jvp

Values = dict[str, Tensor]


class FunctionalModel:
    """Call a model with some parameters replaced.

    Each distinct place that holds a parameter is replaced exactly once (`tie_weights=False`): torch's own handling of
    shared modules writes into the user's weights (pytorch#164759).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._caches = caches_of(model)
        self._slots = {name: [f"{p}.{a}" if p else a for p, a in s] for name, s in parameter_slots(model).items()}
        own = dict(model.named_parameters(remove_duplicate=False))
        self._constants = {slot: own[slots[0]].detach() for slots in self._slots.values() for slot in slots}
        self._counters: Values = {}  # a transform refuses to count in what was made outside of it
        # Buffers too: a forward pass that binds a new tensor to one would leave a dead functorch wrapper behind.
        for path, module in model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    held = self._counters if buffer.dim() == 0 else self._constants
                    held[f"{path}.{name}" if path else name] = buffer.detach().clone()

    def __call__(self, values: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Outputs (B, *out) with the named parameters set to `values`."""
        swapped = {slot: value for name, value in values.items() for slot in self._slots[name]}
        swapped |= {name: counter.clone() for name, counter in self._counters.items()}
        with emptied(self._caches), batch.replaying():
            y = functional_call(self.model, {**self._constants, **swapped}, *batch.arguments, tie_weights=False)
        return batch.read(y).y


def functional_jacobians(model: nn.Module, blocks: Sequence[Block], part: Batch, cotangents: Tensor) -> Values:
    """cotangent^T ∂y/∂W for blocks of any kind, (B, C, P) each, by reverse mode, of cotangents (C, B, *out).

    Vmapped over examples and cotangents where every operation of the model allows it, else one by one.
    """
    network = FunctionalModel(model)
    at = {block.name: block_parameter(model, block).detach() for block in blocks}

    def one(leaves: list[Tensor], v: Tensor) -> Values:
        single = part.single(leaves)
        _, pull, *_ = vjp(lambda values: network(values, single), at)
        return cast(Values, vmap(lambda w: pull(w.unsqueeze(0))[0], randomness="same")(v))

    if part.apart:
        try:
            rows = vmap(one, in_dims=(0, 1), randomness="same")(part.leaves, cotangents)
            # Detached: a parameter that the model reads from elsewhere has a gradient still.
            return {name: rows[name].detach().flatten(2) for name in at}
        except (RuntimeError, TypeError, ValueError, AttributeError):  # something that cannot be vmapped
            pass
    found: dict[str, list[Tensor]] = {name: [] for name in at}
    for b in range(part.size):
        leaves = leaves_of(at)
        y = network(leaves, part.narrow(b, b + 1))
        each = [reverse_gradient(y, leaves, v) for v in cotangents[:, b : b + 1]]
        for name, examples in found.items():
            examples.append(torch.stack([row[name].to_dense().flatten() for row in each]))
    return {name: torch.stack(examples) for name, examples in found.items()}


def output_tangent(model: nn.Module, block: Block, batch: Batch) -> Tensor:
    """∂y/∂u for a scalar block u, (B, *out).

    By reverse mode where forward mode was found out to differ (`block.structured` is off): it differentiates what the
    model computes under `torch.no_grad()`.
    """
    at = {block.name: block_parameter(model, block).detach()}
    along = {name: torch.ones_like(value) for name, value in at.items()}
    return outputs_and_tangent(FunctionalModel(model), at, along, batch, forward_mode=block.structured)[1]


def outputs_and_tangent(
    network: FunctionalModel, at: Mapping[str, Tensor], r: Mapping[str, Tensor], batch: Batch, *, forward_mode: bool
) -> tuple[Tensor, Tensor]:
    """Outputs y and J r, (B, *out) both, for a tangent r of the parameters named in `at`.

    Reverse mode twice, the gradient of ⟨Jᵀv, r⟩ in v, is for operations without a forward-mode rule, and for models
    that differentiate in their own forward pass.
    """
    if forward_mode:
        with suppress(RuntimeError, NotImplementedError), torch.no_grad():  # only the tangent is wanted, no graph
            y, moved, *_ = jvp(lambda values: network(values, batch), (dict(at),), (dict(r),))
            return y, moved
    leaves = leaves_of(at)
    y = network(leaves, batch)
    v = torch.zeros_like(y, requires_grad=True)
    back = reverse_gradient(y, leaves, v, create_graph=True)
    return y.detach(), reverse_gradient(inner_product(back, r), {"v": v})["v"]


def leaves_of(at: Mapping[str, Tensor]) -> Values:
    """Copies of values that gradients are taken in."""
    return {name: value.detach().clone().requires_grad_() for name, value in at.items()}


def inner_product(u: Mapping[str, Tensor], v: Mapping[str, Tensor]) -> Tensor:
    """⟨u, v⟩ over the parameters of v."""
    return torch.stack([(u[name] * v[name]).sum() for name in v]).sum()


def reverse_gradient(
    y: Tensor, at: Mapping[str, Tensor], v: Tensor | None = None, *, create_graph: bool = False
) -> Values:
    """vᵀ ∂y/∂W for each W by plain reverse mode; 0 where y does not depend on it."""
    if not y.requires_grad:
        return {name: torch.zeros_like(value) for name, value in at.items()}
    leaves = [*at.values()]
    found = torch.autograd.grad(y, leaves, v, create_graph=create_graph, retain_graph=True, materialize_grads=True)
    return dict(zip(at, found, strict=True))
