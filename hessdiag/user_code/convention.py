"""What a user's initialisation is a function of: a weight, every module, or the whole model.

The annotation of its first parameter tells, or else the parameter's name; where neither does, or where a function does
not do what its name promises, `hessdiag.user_code.custom_init` tries the others on a copy of the network.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from torch import Tensor, nn

from hessdiag.network.layers import CONVOLUTIONS, TRANSPOSED, is_linear


class Convention(Enum):
    """What an initialisation is called with; the values are what results say."""

    WEIGHT = "called with every weight, biases set to zero"
    MODULE = "called with every module, as by model.apply"
    LAYER = "called with every linear and convolutional layer"
    MODEL = "called once, with the whole model"


WEIGHT, MODULE, LAYER, MODEL = Convention
NAMES = {
    **dict.fromkeys(("weight", "w", "tensor"), WEIGHT),
    **dict.fromkeys(("module", "m", "layer"), MODULE),
    **dict.fromkeys(("model", "net", "network"), MODEL),
}


def conventions_of(function: Callable[..., object], model: nn.Module) -> tuple[Convention, ...]:
    """The conventions that a function may follow, the likeliest first; a single one needs no trial.

    >>> def scale(weight): ...
    >>> conventions_of(scale, nn.Linear(2, 2))
    (<Convention.WEIGHT: 'called with every weight, biases set to zero'>,)
    """
    name, hint = first_parameter(function)
    named = NAMES.get(name)
    if _is_any_of(hint, Tensor) or named is WEIGHT or not name:
        return (WEIGHT,) if not _is_any_of(hint, nn.Module) else (MODULE, LAYER)
    if _is_any_of(hint, nn.Module):
        return (MODEL,) if named is MODEL or _is_this_network(hint, model) else (MODULE, LAYER)
    if named is MODULE:
        return (MODULE, LAYER, MODEL, WEIGHT)
    if named is MODEL:
        return (MODEL, MODULE, LAYER, WEIGHT)
    return (WEIGHT, MODEL, MODULE, LAYER)


def first_parameter(function: Callable[..., object]) -> tuple[str, Any]:
    """Name and annotation of a function's first parameter: an empty name without one, None without an annotation."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):  # some functions written in C tell nothing
        return "", None
    if first is None:
        return "", None
    while isinstance(function, partial):
        function = function.func
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        return first.name, typing.get_type_hints(called).get(first.name)
    except Exception:  # annotations that cannot be evaluated: the name is all there is
        return first.name, None


def _is_any_of(hint: Any, kind: type) -> bool:
    """Whether an annotation is a class of that kind, or a union of such."""
    kinds = typing.get_args(hint) or (hint,)
    return all(isinstance(each, type) and issubclass(each, kind) for each in kinds)


def _is_this_network(hint: Any, model: nn.Module) -> bool:
    """Whether an annotation names the class of this network, rather than any module or a kind of layer."""
    is_layer = is_linear(model) or isinstance(model, (*CONVOLUTIONS, *TRANSPOSED))
    return isinstance(hint, type) and hint is not nn.Module and isinstance(model, hint) and not is_layer
