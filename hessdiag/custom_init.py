"""Initialisations that users write.

A function whose first parameter is called `module`, or annotated as an `nn.Module`, is given every linear and
convolutional layer and does with it as it likes. Any other is given their weights, in place like those of
`torch.nn.init` or returning a tensor of the same shape; biases are set to zero, as by the built-in initialisations.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hessdiag.blocks import STRUCTURED
from hessdiag.errors import HessdiagError
from hessdiag.importing import NamedFunction


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
        for path, module in model.named_modules():
            if isinstance(module, STRUCTURED):
                shape = module.weight.shape
                if takes_module:
                    function(module)
                else:
                    _fill(module, function)
                _check(module, shape, path, function)
    return model


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


def _fill(module: nn.Module, function: NamedFunction) -> None:
    weight = module.weight
    assert isinstance(weight, Tensor)
    result = function(weight)
    if isinstance(result, Tensor) and result is not weight:
        if result.shape != weight.shape:
            raise HessdiagError(
                f"{function.what} {function.reference!r} returned shape {tuple(result.shape)} for a weight of shape"
                f" {tuple(weight.shape)}: return one of the same shape, or change it in place"
            )
        weight.copy_(result)
    if isinstance(module.bias, Tensor):
        nn.init.zeros_(module.bias)


def _check(module: nn.Module, shape: torch.Size, path: str, function: NamedFunction) -> None:
    weight = module.weight
    label = f"{function.what} {function.reference!r}"
    if not isinstance(weight, nn.Parameter) or weight.shape != shape:
        raise HessdiagError(f"{label} left {path!r} without a weight of shape {tuple(shape)}: change weights in place")
    if not bool(weight.isfinite().all()):
        raise HessdiagError(f"{label} left NaN or infinite values in the weight of {path!r}")
