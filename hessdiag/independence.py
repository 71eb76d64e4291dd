"""Which examples are kept apart: those of the model must be, and the rows of a layer may be.

Random cotangents of some examples' outputs are sent back alone. Where they reach another example's inputs, or where
the same examples have other outputs without the rest of the batch, the model mixes examples, and no matrix of one
example's loss exists. Where they reach another example's rows of a layer, only that layer's rows are no examples: it
runs over time, windows or a table, and is measured without a rule. What is kept apart gets exactly zero, so that no
tolerance hides a weak mixing; a random split of a batch separates any two examples with probability 1/2, and splits
by the bits of an example's number separate all pairs of a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hessdiag.batch import Batch
from hessdiag.capture import LayerCall, backpropagate, trace
from hessdiag.errors import HessdiagError
from hessdiag.seeds import stream

PAIRWISE = 4  # examples of which all pairs are told apart
SAME = {torch.float32: 3e-4, torch.float64: 1e-10}  # outputs of one example, in different batches


def splits_of(part: Batch, seed: int) -> list[Tensor]:
    """Splits of a batch in two, (B,) booleans each: by bits for a few examples, else one at random; none of one."""
    if part.size == 1:
        return []
    if part.size <= PAIRWISE:
        numbers = torch.arange(part.size)
        return [(numbers >> bit) % 2 == 0 for bit in range((part.size - 1).bit_length())]
    order = torch.randperm(part.size, generator=stream(seed, f"split of examples from {part.offset}"))
    return [order < part.size // 2]


def both_sides(splits: Sequence[Tensor]) -> list[Tensor]:
    """The examples on either side of each split."""
    return [side for split in splits for side in (split, ~split)]


def sides_of(cotangent: Tensor, splits: Sequence[Tensor]) -> Tensor:
    """A cotangent (B, *out) on either side of each split, zero on the other: (2 splits, B, *out)."""
    return torch.stack([_keeping(cotangent, side) for side in both_sides(splits)])


def reaches_others(gradient: Tensor | None, splits: Sequence[Tensor]) -> bool:
    """Whether what was sent back from the sides of splits, (2 splits, rows, ...), reached rows of another side.

    The rows must run over the examples, equally many of each.
    """
    if gradient is None:
        return False
    for number, side in enumerate(both_sides(splits)):
        rows = gradient[number].reshape(len(side), -1)
        strays = rows[~side.to(rows.device)]
        if bool(((strays != 0) & ~strays.isnan()).any()):
            return True
    return False


def mixes_rows(call: LayerCall, gradient: Tensor | None, splits: Sequence[Tensor], examples: int) -> bool:
    """Whether the rows of a layer's output are not equally many of one example after the other.

    Args:
        call: a call of the layer.
        gradient: what was sent back from the sides of the splits to its output.
        splits: of the batch.
        examples: B.
    """
    shapes = (call.output_shape, call.x.shape)
    if any(len(shape) == 0 or shape[0] == 0 or shape[0] % examples for shape in shapes):
        return True
    return reaches_others(gradient, splits)


def differentiable(part: Batch) -> tuple[Batch, list[GradientEdge]]:
    """The batch with copies of its floating-point tensors that gradients flow to, and where they arrive."""
    edges: list[GradientEdge] = []

    def watched(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        copied = value.detach().requires_grad_().clone()  # no leaf: the model may write to it
        edges.append(get_gradient_edge(copied))
        return copied

    args = tuple(map(watched, part.args))
    kwargs = {key: watched(value) for key, value in part.kwargs.items()}
    return replace(part, args=args, kwargs=kwargs), edges


def check_pairs(model: nn.Module, few: Batch, owners: Sequence[str], seed: int) -> set[str]:
    """Layers whose rows are not those of one example after the other, from all pairs of a few examples.

    Raises:
        HessdiagError: the model mixes examples.
    """
    watched, inputs = differentiable(few)
    seen = trace(model, watched, owners)
    y = seen.y.detach()
    splits = splits_of(few, seed)
    check_outputs(model, few, y, list(torch.eye(few.size, dtype=torch.bool)))
    z = torch.randn(y.shape, generator=stream(seed, "pairs of examples")).to(y)
    edges = [*inputs, *(call.output_edge for call in seen.calls)]
    back = backpropagate(seen.y, edges, sides_of(z, splits))
    check_inputs(model, back[: len(inputs)], splits)
    calls = zip(seen.calls, back[len(inputs) :], strict=True)
    return {call.owner for call, gradient in calls if mixes_rows(call, gradient, splits, few.size)}


def check_outputs(model: nn.Module, part: Batch, y: Tensor, groups: Sequence[Tensor]) -> None:
    """Examples give the same outputs without the rest of the batch.

    Args:
        model: the model.
        part: B examples.
        y: their outputs (B, *out).
        groups: (B,) booleans each; examples that are called without the others.

    Raises:
        HessdiagError: they do not.
    """
    largest = float(y.flatten(1).norm(dim=1).max())
    for side in groups:
        chosen = [number for number, inside in enumerate(side.tolist()) if inside]
        try:
            alone = part.select(chosen).call(model).detach()
        except ValueError:  # batch normalisation in training mode refuses a single example
            raise _mixing(model) from None
        expected = y[chosen]
        if alone.shape != expected.shape:
            raise _mixing(model)
        off = float((alone - expected).flatten(1).norm(dim=1).max())
        if not off <= SAME[y.dtype] * largest:
            raise _mixing(model)


def check_inputs(model: nn.Module, gradients: Sequence[Tensor | None], splits: Sequence[Tensor]) -> None:
    """Outputs of examples on one side of a split do not depend on inputs on the other.

    Raises:
        HessdiagError: they do.
    """
    if any(reaches_others(gradient, splits) for gradient in gradients):
        raise _mixing(model)


def _mixing(model: nn.Module) -> HessdiagError:
    """The refusal of a model that mixes examples, with what to do about it."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            return HessdiagError(
                "the outputs of one example depend on others:"
                f" batch normalisation {name!r} is in training mode, call model.eval() first"
            )
    return HessdiagError(
        "an example on its own gives other outputs than in the batch: the model runs over the first dimension (a layer"
        " without batch_first=True, a sum over it), uses statistics of the batch, branches on its values, or updates"
        " itself; call model.eval() first, or keep examples apart"
    )


def _keeping(cotangent: Tensor, side: Tensor) -> Tensor:
    """The cotangent of the examples on one side, zero elsewhere."""
    return cotangent * side.to(cotangent).view(-1, *[1] * (cotangent.dim() - 1))
