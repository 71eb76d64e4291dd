"""What the outputs move by where layers write more than they do by themselves, in forward mode.

Several displacements of the weights share a forward pass, whose values are computed once. What a layer writes more is
formed where it is added, and not before: for all layers together it takes far more memory than what is passing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import make_dual, unpack_dual
from torch.func import jvp, vmap

from hessdiag.data.batch import Batch
from hessdiag.derivatives.functional import FunctionalModel
from hessdiag.execution.memory import is_out_of_memory
from hessdiag.network.blocks import Block
from hessdiag.network.layers import CONVOLUTIONS, looks_up, stores_inputs_first
from hessdiag.network.trace import LayerCall, Trace

TOGETHER = 4  # displacements that share a forward pass, and are in memory at once

Factors = tuple[Tensor, Tensor]  # rows of vectors, whose outer products displace a weight
Product = tuple[Tensor, ...]  # factors that are multiplied where the product is needed
Displacement = Callable[[slice], Product]


def displaced_calls(
    model: nn.Module, seen: Trace, blocks: Sequence[Block], factors: Mapping[str, Factors]
) -> list[list[Displacement]]:
    """For each call what it writes more along some of the displacements, by their numbers."""
    owned: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        for owner in block.owners:
            owned[owner].append(block)
    return [
        [_moved(model.get_submodule(call.owner), block, call, *factors[block.name]) for block in owned[call.owner]]
        for call in seen.calls
    ]


def _moved(module: nn.Module, block: Block, call: LayerCall, one: Tensor, other: Tensor) -> Displacement:
    """What a call writes more where its weight moves by the outer product of two rows, or its bias by the first.

    Returns:
        Of K displacements, factors (K, ...) whose product can be expanded to (K, *output shape).
    """
    inner = [1] * (len(call.output_shape) - 1)
    if looks_up(module):
        return lambda ks: (one[ks, call.x].unsqueeze(-1), other[ks].view(-1, *inner, other.shape[1]))
    if not isinstance(module, CONVOLUTIONS):
        if block.kind == "bias":
            return lambda ks: (one[ks].view(-1, *inner, one.shape[1]),)
        writes, reads = (other, one) if stores_inputs_first(module) else (one, other)
        read = torch.movedim(call.x @ reads.T, -1, 0).unsqueeze(-1)  # (count, ..., 1)
        return lambda ks: (read[ks], writes[ks].view(-1, *inner, writes.shape[1]))
    columns = one.view(len(one), 1, -1, *[1] * len(module.kernel_size))
    if block.kind == "bias":
        return lambda ks: (columns[ks],)
    if module.groups > 1:
        weights = [torch.outer(*pair).view(block.shape) for pair in zip(one, other, strict=True)]
        return lambda ks: (torch.stack([module._conv_forward(call.x, weight, None) for weight in weights[ks]]),)
    sites = module._conv_forward(call.x, other.view(len(other), *block.shape[1:]), None)  # (R, count, *sites)
    return lambda ks: (sites[:, ks].transpose(0, 1).unsqueeze(2), columns[ks])


def moved_outputs(
    network: FunctionalModel,
    part: Batch,
    calls: Sequence[LayerCall],
    displaced: Sequence[Sequence[Displacement]],
    count: int,
) -> list[Tensor] | None:
    """What the outputs move by where what the calls write does, in forward mode; None where the model has none.

    Several displacements share a forward pass.
    """
    moving = _Moving(network, calls)
    found: list[Tensor] = []
    try:
        for start in range(0, count, TOGETHER):
            together = slice(start, min(start + TOGETHER, count))
            found.extend(moving.along(part, [[moved(together) for moved in each] for each in displaced]))
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # something that has no such derivative
        if is_out_of_memory(error):
            raise
        return None
    return found


def _unpacked(y: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is written, and what it moves by in forward mode, if it does."""
    value, along = unpack_dual(y)  # type: ignore[no-untyped-call]
    return value, along


def _dual(value: Tensor, along: Tensor) -> Tensor:
    """Both in one, as forward mode takes them."""
    dual: Tensor = make_dual(value, along)  # type: ignore[no-untyped-call]
    return dual


def _written_more(y: Tensor, moved: Sequence[Tensor]) -> Tensor:
    """What a layer writes and what it writes more, whose sum in forward mode has one value for all displacements."""
    value, along = _unpacked(y)
    total = reduce(torch.add, moved if along is None else [along, *moved])
    return _dual(value, total if total.shape == y.shape else total.expand(y.shape).clone())


@dataclass(frozen=True)
class _Moving:
    """A model whose watched layers write more than they do by themselves."""

    network: FunctionalModel
    calls: Sequence[LayerCall]

    def along(self, part: Batch, displaced: Sequence[Sequence[Product]]) -> Iterator[Tensor]:
        """The derivative of the outputs, (B, *out), along each of K displacements of what the calls write."""

        def derivative(moved: Sequence[Sequence[Product]]) -> Tensor:
            nothing = torch.zeros(())  # what moves is what the hooks add

            def outputs(_: Tensor) -> Tensor:
                with self._writing(moved):
                    return self.network({}, part)

            along: Tensor = jvp(outputs, (nothing,), (nothing,))[1]
            return along

        with torch.no_grad():
            yield from vmap(derivative, randomness="same")(displaced)

    @contextmanager
    def _writing(self, displaced: Sequence[Sequence[Product]]) -> Iterator[None]:
        left = iter(zip(self.calls, displaced, strict=True))

        def hook(owner: str, output: Any) -> Any:
            call, products = next(left, (None, ()))
            if call is None or call.owner != owner:
                raise RuntimeError(f"{owner!r} is called out of turn")
            return _written_more(output, [reduce(torch.mul, product) for product in products]) if products else output

        handles = [
            self.network.model.get_submodule(owner).register_forward_hook(lambda _, __, y, owner=owner: hook(owner, y))
            for owner in dict.fromkeys(call.owner for call in self.calls)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
