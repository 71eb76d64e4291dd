"""How far outputs move along one direction of the scales and shifts of all normalisations, which are no blocks.

What a normalisation writes is linear in its scale and shift: where these move by (δw, δb), it moves by what the layer
writes with them in place of its own. Each example gets a step ε = 0 along each direction, taken in all these layers.
The gradient of vᵀ y in ε is vᵀ J (δw, δb) of all of them together, and comes with the backward pass to the blocks:
nothing but ε is held of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.network.blocks import parameter_slots

FEW = 16  # rows that are multiplied one by one: where several cotangents are sent back, a batched product copies
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
Moved = tuple[Tensor | None, Tensor | None]  # of the weight and of the bias


@dataclass(frozen=True)
class MovedNorms:
    """Directions of the scales and shifts of a model's normalisations.

    Attributes:
        count: O, how many directions.
        along: by the path of a module, its weight and its bias along each, (O, *shape) or None.
        names: of these parameters.
    """

    count: int
    along: Mapping[str, Moved]
    names: frozenset[str]

    @classmethod
    def of(cls, model: nn.Module, along: Mapping[str, Tensor]) -> MovedNorms:
        """Those of `along`, (O, *shape) by name, that a layer of torch's own holds, and it alone."""
        found: dict[str, dict[str, Tensor]] = {}
        names = set()
        for name, slots in parameter_slots(model).items():
            path, attribute = slots[0]
            if name in along and len(slots) == 1 and _moves_as_its_class(model.get_submodule(path)):
                found.setdefault(path, {})[attribute] = along[name]
                names.add(name)
        count = len(next(iter(along.values()))) if along else 0
        both = {path: (moved.get("weight"), moved.get("bias")) for path, moved in found.items()}
        return cls(count, both, frozenset(names))

    @contextmanager
    def taking_steps(self, model: nn.Module, examples: int, record: Callable[[GradientEdge], None]) -> Iterator[Tensor]:
        """Call the model in this context with steps (B, O) along the directions, all zero, which are yielded.

        Told to `record` is where the gradient of each normalisation's own steps arrives.
        """
        like = next(model.parameters())
        steps = like.new_zeros(examples, self.count).requires_grad_()
        handles = []
        try:
            for path, moved in self.along.items():
                hook = _hook(moved, steps, record)
                handles.append(model.get_submodule(path).register_forward_hook(hook, prepend=True))
            yield steps
        finally:
            for handle in handles:
                handle.remove()


def _moves_as_its_class(module: nn.Module) -> bool:
    """Whether what the module writes is known to be linear in its parameters, and of one example at a time."""
    if type(module) in BATCH_NORMS:
        return not module.training and module.running_mean is not None
    return type(module) in (nn.LayerNorm, nn.GroupNorm)


def _hook(
    moved: Moved, steps: Tensor, record: Callable[[GradientEdge], None]
) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        x = args[0] if args else None
        if not torch.is_grad_enabled() or not isinstance(x, Tensor) or len(x) % len(steps):
            return None
        if is_functorch_wrapped_tensor(x):
            return None
        own = steps.view_as(steps)
        record(get_gradient_edge(own))
        rows = own.repeat_interleave(len(x) // len(steps), dim=0) if len(x) > len(steps) else own
        written = [_written(module, x.detach(), *_one(moved, number)) for number in range(steps.shape[1])]
        return _Step.apply(output, rows, torch.stack(written, dim=1))  # type: ignore[no-untyped-call]

    return hook


class _Step(torch.autograd.Function):
    """output + Σ_o ε_o m_o at ε = 0: the output itself."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, steps: Tensor, moved: Tensor) -> Tensor:
        """Of outputs (R, ...), steps (R, O) and what each would add, (R, O, ...)."""
        ctx.save_for_backward(moved)
        return output.clone()  # no view, which could not be written to in place

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The gradient as it is, and its inner products with what each step would add."""
        (moved,) = ctx.saved_tensors
        (gradient,) = gradients
        rows, added = gradient.reshape(len(moved), -1), moved.flatten(2)
        if len(added) > FEW:
            return gradient, torch.bmm(added, rows.unsqueeze(2)).squeeze(2), None
        return gradient, torch.stack([each @ row for each, row in zip(added, rows.unbind(), strict=True)]), None


def _one(moved: Moved, number: int) -> Moved:
    weight, bias = moved
    return None if weight is None else weight[number], None if bias is None else bias[number]


def _written(module: nn.Module, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """What the layer writes with this weight and bias, zero where they are None."""
    held = dict(module.named_parameters(recurse=False))
    like = next(iter(held.values()))
    weight = torch.zeros_like(like) if weight is None else weight  # torch takes a missing one as ones
    with torch.no_grad():
        if isinstance(module, nn.LayerNorm):
            return F.layer_norm(x, module.normalized_shape, weight, bias, module.eps)
        if isinstance(module, nn.GroupNorm):
            return F.group_norm(x, module.num_groups, weight, bias, module.eps)
        assert isinstance(module, BATCH_NORMS)
        return F.batch_norm(x, module.running_mean, module.running_var, weight, bias, eps=module.eps)
