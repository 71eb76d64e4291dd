"""Kinds of layers: which there are, how many channels their weights join, and how the weights are stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from hessdiag.errors import HessdiagError

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
STRUCTURED = (nn.Linear, *CONVOLUTIONS)
Fans = tuple[float, float, float]


def is_linear(module: nn.Module) -> bool:
    """A layer y = W x + b on the last dimension; transformers' `Conv1D` is one, with W stored as (inputs, outputs)."""
    return isinstance(module, nn.Linear) or (
        type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")
    )


def has_rule(module: nn.Module) -> bool:
    """Whether the Jacobian of the module's weight follows from its input and its output gradients."""
    return is_linear(module) or isinstance(module, CONVOLUTIONS)


def looks_up(module: nn.Module) -> bool:
    """An embedding: rows of its weight, by number; one that weighs its gradient otherwise is none here."""
    return (
        isinstance(module, nn.Embedding)
        and type(module).forward is nn.Embedding.forward
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and "weight" in module._parameters
        and module.weight.numel() > 1
    )


def initialised_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Path and module of every layer whose weight an initialisation sets: linear and convolutional, transposed or not.

    >>> [path for path, _ in initialised_layers(nn.Sequential(nn.ConvTranspose1d(2, 3, 2), nn.ReLU()))]
    ['0']
    """
    for path, module in model.named_modules():
        if is_linear(module) or isinstance(module, (*CONVOLUTIONS, *TRANSPOSED)):
            yield path, module


def settable_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """As `initialised_layers`, to set their weights.

    Raises:
        HessdiagError: a weight is computed from other parameters, as with weight norm.
    """
    for path, module in initialised_layers(model):
        if "weight" not in module._parameters:
            raise HessdiagError(
                f"layer {path!r} computes its weight from other parameters, as with weight norm: initialise the network"
                " first and parametrise it after"
            )
        yield path, module


def stores_inputs_first(module: nn.Module) -> bool:
    """Whether the weight is (in, out / groups, *kernel) rather than (out, in / groups, *kernel)."""
    return isinstance(module, TRANSPOSED) or (is_linear(module) and not isinstance(module, nn.Linear))


def swap_inputs_and_outputs(weight: Tensor, *, groups: int) -> Tensor:
    """(a, b / groups, *kernel) as (b, a / groups, *kernel), a copy; it is its own inverse.

    >>> swap_inputs_and_outputs(torch.empty(4, 3, 5), groups=2).shape
    torch.Size([6, 2, 5])
    """
    first, second, *kernel = weight.shape
    blocks = weight.detach().reshape(groups, first // groups, second, *kernel)
    return blocks.transpose(1, 2).reshape(groups * second, first // groups, *kernel).clone()


def fans(weight: Tensor, *, groups: int = 1, transposed: bool = False) -> Fans:
    """(n, n', k) of a weight: channels that one output reads, channels that one input feeds, root of the kernel's size.

    Args:
        weight: (out, in / groups, *kernel), or, with `transposed`, (in, out / groups, *kernel).
        groups: groups of the convolution.
        transposed: whether inputs come first, as in transposed convolutions and in the `Conv1D` of transformers.

    Raises:
        HessdiagError: the weight has fewer than two dimensions, or cannot be cut into that many groups.

    >>> fans(torch.empty(6, 3, 5, 5))
    (3.0, 6.0, 5.0)
    >>> fans(torch.empty(6, 3, 5, 5), transposed=True)
    (6.0, 3.0, 5.0)
    """
    if weight.dim() < 2:
        raise HessdiagError(f"a weight of shape {tuple(weight.shape)} has no fan-in: pass at least two dimensions")
    if groups < 1 or weight.shape[0] % groups:
        raise HessdiagError(
            f"a weight of shape {tuple(weight.shape)} has no {groups} groups: its first dimension must be a multiple"
        )
    first, second = weight.shape[0] / groups, float(weight.shape[1])
    n, m = (first, second) if transposed else (second, first)
    return n, m, math.sqrt(math.prod(weight.shape[2:]))


def fans_of(module: nn.Module, attribute: str, parameter: nn.Parameter) -> tuple[int, int, tuple[int, ...]]:
    """Find fan-in, fan-out and kernel of a layer; for an unknown one those of a matrix (outputs, inputs)."""
    weight = _weight(module) if attribute == "bias" else parameter
    shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else tuple(parameter.shape)
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, ()
    if is_linear(module) and not isinstance(module, nn.Linear):
        return shape[0], shape[1], ()
    if isinstance(module, TRANSPOSED):
        return shape[0] // module.groups, shape[1] * module.groups, shape[2:]
    return shape[1], shape[0], shape[2:]


def _weight(module: nn.Module) -> object:
    """The module's weight; of a parametrized one what it is computed from, for to compute it may change buffers."""
    if is_parametrized(module, "weight"):
        return max(module.parametrizations["weight"].parameters(), key=torch.Tensor.numel)  # type: ignore[union-attr, index]
    return getattr(module, "weight", None)
