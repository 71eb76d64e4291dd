"""What is known of the network's inputs: moments, and arguments of their shapes to trace with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import kind_of, to_tensor
from hessdiag.errors import HessdiagError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class InputMoments:
    """Moments of what the network reads.

    Attributes:
        sq: E[x²].
        mean, site_correlation, example_correlation: as in `Activation`.
    """

    sq: float = 1.0
    mean: float = 0.0
    site_correlation: float = 0.0
    example_correlation: float = 0.0


def example_inputs(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any], InputMoments]:
    """Make arguments to trace with, two examples of them, and find the moments of the floating-point ones."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    size = _shape_of_one_example(inputs)
    if size is not None:
        return (torch.empty(2, *size, device=device, dtype=dtype),), {}, InputMoments()
    args, kwargs = _arguments(inputs)
    numbers = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and v.is_floating_point()]
    moments = measured_inputs(numbers[0]) if numbers and not numbers[0].is_meta else InputMoments()
    two = {key: _two_examples(value, device) for key, value in kwargs.items()}
    return tuple(_two_examples(value, device) for value in args), two, moments


def _shape_of_one_example(inputs: Any) -> tuple[int, ...] | None:
    """The shape that the user gave; None where tensors were given."""
    size = (inputs,) if isinstance(inputs, int) else inputs
    if not (isinstance(size, (tuple, list)) and size and all(isinstance(v, int) for v in size)):
        return None
    if min(size) < 1:
        raise HessdiagError(f"input size {tuple(size)}: pass positive sizes such as (3, 32, 32)")
    return tuple(size)


def _arguments(inputs: Any) -> Arguments:
    """Arguments by position and by name, as `diagnose` takes them."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)) and inputs:
        return tuple(inputs), {}
    found = f"the text {inputs!r}" if isinstance(inputs, str) else kind_of(inputs)
    how = to_tensor(inputs, "inputs") or "pass the shape of one example such as (3, 32, 32), or tensors"
    raise HessdiagError(f"inputs are {found}: {how}")


def _two_examples(value: Any, device: torch.device) -> Any:
    """An empty tensor of two examples of the value's shape."""
    if not isinstance(value, Tensor):
        return value
    if value.dim() == 0 or value.shape[0] < 1:
        raise HessdiagError("inputs hold no example: their first dimension must run over examples")
    return torch.empty((2, *value.shape[1:]), dtype=value.dtype, device=device)


def measured_inputs(x: Tensor) -> InputMoments:
    """Measure E[x²] of given inputs (B, ...) and the correlation between examples."""
    values = x.detach().double().flatten(1)  # (B, P)
    sq = float(values.square().mean())
    size = len(values)
    if size < 2 or sq == 0:
        return InputMoments(sq)
    cross = (values.sum(0).square() - values.square().sum(0)).mean() / (size * (size - 1))
    shared = min(max(float(cross) / sq, 0.0), 1.0)
    noise = 3 / math.sqrt(values.shape[1] * size * (size - 1) / 2)  # of the correlation of independent examples
    return InputMoments(sq, example_correlation=shared, site_correlation=shared) if shared > noise else InputMoments(sq)
