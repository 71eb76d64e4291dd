"""Initialisations that users write.

A function whose first parameter is called `module`, or annotated as an `nn.Module`, is given every linear and
convolutional layer and does with it as it likes. Any other is given their weights, in place like those of
`torch.nn.init` or returning a tensor of the same shape; biases are set to zero, as by the built-in initialisations.

Weights are handed over as (out, in / groups, *kernel) whatever the layer stores, because that is what the functions of
`torch.nn.init` take them for: transposed convolutions and the `Conv1D` of transformers keep inputs first.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import CONVOLUTIONS, TRANSPOSED, is_linear
from hessdiag.user_code.named_function import NamedFunction


def apply_function(model: nn.Module, function: NamedFunction, *, generator: torch.Generator | None = None) -> nn.Module:
    """Initialise every linear and convolutional layer of a model by a function of the layer or of its weight.

    Args:
        model: changed in place.
        function: see above.
        generator: seeds torch's global random state, which such functions draw from; None leaves it alone.

    Raises:
        HessdiagError: the function raised, or left a weight of another shape, or one that is not finite.
    """
    takes_module = takes_modules(function.function)
    with torch.random.fork_rng(devices=[], enabled=generator is not None), torch.no_grad():
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for path, module in settable_layers(model):
            shape = module.weight.shape
            if takes_module:
                function(module)
            else:
                _fill(module, function)
            _check(module, shape, path, function)
    return model


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


def takes_modules(function: Callable[..., object]) -> bool:
    """Whether a function initialises layers rather than weights.

    >>> def scale(module): ...
    >>> takes_modules(scale), takes_modules(nn.init.ones_)
    (True, False)
    """
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
        hint = typing.get_type_hints(function).get(first.name) if first is not None else None
    except Exception:  # no signature, or annotations that cannot be evaluated: the name is all there is
        hint = None
        names = getattr(getattr(function, "__code__", None), "co_varnames", ())
        return bool(names[:1] == ("module",))
    is_module = isinstance(hint, type) and issubclass(hint, nn.Module)
    return is_module or (first is not None and first.name == "module")


def _fill(module: Any, function: NamedFunction) -> None:
    swapped = stores_inputs_first(module)
    groups = 1 if is_linear(module) else module.groups
    weight = swap_inputs_and_outputs(module.weight, groups=groups) if swapped else module.weight
    result = function(weight)
    if isinstance(result, Tensor) and result is not weight:
        if result.shape != weight.shape:
            raise HessdiagError(
                f"{function.what} {function.reference!r} returned shape {tuple(result.shape)} for a weight of shape"
                f" {tuple(weight.shape)}: return one of the same shape, or change it in place"
            )
        weight.copy_(result)
    if swapped:
        module.weight.copy_(swap_inputs_and_outputs(weight, groups=groups))
    if isinstance(module.bias, Tensor):
        nn.init.zeros_(module.bias)


def _check(module: nn.Module, shape: torch.Size, path: str, function: NamedFunction) -> None:
    weight = module.weight
    label = f"{function.what} {function.reference!r}"
    if not isinstance(weight, nn.Parameter) or weight.shape != shape:
        raise HessdiagError(f"{label} left {path!r} without a weight of shape {tuple(shape)}: change weights in place")
    if not bool(weight.isfinite().all()):
        raise HessdiagError(f"{label} left NaN or infinite values in the weight of {path!r}")
