"""Networks from a function or class that builds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.model_source import ModelSource, Network, NormalInputs, check_module
from hessdiag.user_code.named_function import NamedFunction


def factory_source(
    factory: NamedFunction, *, arguments: Mapping[str, Any], input_size: tuple[int, ...] | None
) -> ModelSource:
    """The networks that a factory builds, one a call.

    Args:
        factory: returns a module, or `(module, input_size)`.
        arguments: keyword arguments of every call.
        input_size: shape of one example; otherwise the second thing returned, otherwise the module's attribute
            `input_size`.

    Raises:
        HessdiagError: the factory does not take the arguments; on building, that it raised, or what it returned.
    """
    if isinstance(factory.function, nn.Module):
        raise HessdiagError(
            f"{factory.what} {factory.reference!r} is a network that is already built: name a function that builds it"
        )
    factory.check_arguments(arguments)
    return ModelSource(factory.reference, lambda: _network(factory, arguments, input_size))


def as_size(value: Any) -> tuple[int, ...] | None:
    """A positive integer or several as a tuple; None for anything else.

    >>> as_size(784), as_size([3, 32, 32]), as_size("3,32")
    ((784,), (3, 32, 32), None)
    """
    sizes = (value,) if isinstance(value, int) else value
    if not isinstance(sizes, (tuple, list)) or not sizes:
        return None
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    return tuple(sizes) if whole else None


def _network(factory: NamedFunction, arguments: Mapping[str, Any], input_size: tuple[int, ...] | None) -> Network:
    label = f"{factory.what} {factory.reference!r}"
    built, size = factory(**arguments), None
    if isinstance(built, tuple) and len(built) == 2:
        built, given = built
        size = as_size(given)
        if size is None:
            raise HessdiagError(f"{label} returned the input size {given!r}: return one such as (3, 32, 32)")
    module = check_module(built, label)
    size = input_size or size or as_size(getattr(module, "input_size", None))
    return Network(module, NormalInputs(size) if size else None)
