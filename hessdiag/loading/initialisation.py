"""Initialisations by name, and those that users write.

| first parameter | the function is called with |
|---|---|
| `weight`, `w`, `tensor` | every weight of a linear or convolutional layer; biases become 0 |
| `module`, `m`, `layer` | every module, as by `model.apply` |
| `model`, `net`, `network` | the whole model, once |

A function whose first parameter says none of these is one of a weight, like those of `torch.nn.init`. Weights are
filled in place or returned anew. They are handed over as (out, in / groups, *kernel) whatever the layer stores, because
the functions of `torch.nn.init` take them for that: transposed convolutions and the `Conv1D` of transformers keep
inputs first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag import init
from hessdiag.arguments import few, kind_of
from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import NamedFunction, load_function
from hessdiag.network.blocks import (
    initialised_layers,
    is_linear,
    settable_layers,
    stores_inputs_first,
    swap_inputs_and_outputs,
)
from hessdiag.network.torch_state import seeded_rng

Scheme = str | Callable[..., object]
AS_BUILT = "as built"
CALLED = {
    "weight": "called with every weight, biases set to zero",
    "module": "called with every module, as by model.apply",
    "model": "called once, with the whole model",
}
NAMES = {"w": "weight", "tensor": "weight", "m": "module", "layer": "module", "net": "model", "network": "model"}
ADVICE = "name its first parameter weight, module or model, for what it is to be called with"


def resolve(scheme: Scheme, *, say: Callable[[str], None] = lambda message: None) -> Callable[..., nn.Module]:
    """A function `(model, *, generator=None)` that initialises a model in place; see `apply_function`.

    The scheme is a name of `hessdiag.init`, `package.module:function` or `./file.py:function`, or a function.
    """
    if isinstance(scheme, str) and ":" not in scheme:
        init.check_scheme(scheme)
        return partial(init.apply, scheme=scheme)
    if isinstance(scheme, str):
        return partial(apply_function, function=load_function(scheme, what="init"), say=say)
    if not callable(scheme) or isinstance(scheme, nn.Module):
        raise HessdiagError(f"init is {kind_of(scheme)}: pass a name such as 'fan-in', or a function")
    given = scheme if isinstance(scheme, NamedFunction) else NamedFunction("init", name_of(scheme), scheme)
    return partial(apply_function, function=given, say=say)


def name_of(scheme: Scheme) -> str:
    """The name by which tables and files call an initialisation.

    >>> name_of("fan-in"), name_of(nn.init.orthogonal_)
    ('fan-in', 'orthogonal_')
    """
    if isinstance(scheme, str):
        return scheme
    return scheme.reference if isinstance(scheme, NamedFunction) else getattr(scheme, "__name__", repr(scheme))


def apply_function(
    model: nn.Module,
    function: NamedFunction,
    *,
    generator: torch.Generator | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> nn.Module:
    """Initialise a model by a user's function of a weight, a module or the model, in place.

    A generator seeds torch's global random state, which such functions draw from. `say` is told what the function was
    called with, and which layers it left alone.
    """
    layers = list(settable_layers(model))  # refused before anything is changed
    before = {n: (p, p._version, p.detach().clone()) for n, p in model.named_parameters() if p.dim() > 1}
    shapes = {path: module.weight.shape for path, module in initialised_layers(model)}
    kind = called_with(function.function)
    seed = None if generator is None else int(torch.randint(2**62, (), generator=generator))
    with nullcontext() if seed is None else seeded_rng(seed), torch.no_grad():
        if kind == "weight":
            for _, layer in layers:
                _fill(layer, function)
        elif kind == "module":
            model.apply(lambda module: _call(module, function))
        else:
            _call(model, function)
    modules, now = dict(model.named_modules()), dict(model.named_parameters())
    for path, shape in shapes.items():
        _check(modules.get(path), shape, path, function)
    alone = {n for n, was in before.items() if n in now and _is_unchanged(now[n], *was)}
    if before and len(alone) == len(before):
        raise HessdiagError(f"{function.label} was {CALLED[kind]}, and changed no weight: {ADVICE}")
    unchanged = {id(now[name]) for name in alone}
    left = [repr(path) for path, module in initialised_layers(model) if id(module.weight) in unchanged]
    say(CALLED[kind] + (f"; it left the weights of {few(left)} as they were" if left else ""))
    return model


def called_with(function: Callable[..., object]) -> str:
    """What a function initialises, by its first parameter: `"weight"`, `"module"` or `"model"`.

    >>> called_with(nn.init.orthogonal_), called_with(lambda m: None)
    ('weight', 'module')
    """
    try:
        first = next(iter(inspect.signature(function).parameters), "weight")
    except (TypeError, ValueError):  # some functions written in C tell nothing
        first = "weight"
    named = NAMES.get(first, first)
    return named if named in CALLED else "weight"


def _is_unchanged(now: Tensor, parameter: Tensor, version: int, values: Tensor) -> bool:
    """Whether nobody wrote to it; writing through `.data` counts no versions."""
    return now is parameter and now._version == version and torch.equal(now, values)


def _call(module: nn.Module, function: NamedFunction) -> None:
    """Call a function of a module, which changes it in place."""
    try:
        result = function(module)
    except HessdiagError as error:
        if isinstance(error.__cause__, AttributeError):  # of a container or a norm
            raise HessdiagError(f"{error}: it was called with a {type(module).__name__}; {ADVICE}") from error
        raise
    if isinstance(result, nn.Module) and result is not module:
        raise HessdiagError(f"{function.label} returned another module: change the one that it is given, in place")


def _fill(layer: Any, function: NamedFunction) -> None:
    """Call a function of a weight with that of a layer, outputs first; the bias becomes zero."""
    swapped, groups = stores_inputs_first(layer), 1 if is_linear(layer) else layer.groups
    weight = swap_inputs_and_outputs(layer.weight, groups=groups) if swapped else layer.weight
    before = (weight, weight._version, weight.detach().clone())
    result = function(weight)
    if result is not None:
        dense = isinstance(result, Tensor) and result.layout is torch.strided and not result.is_meta
        if not (dense and result.is_floating_point() and result.shape == weight.shape):
            found = f"a {result.dtype} of shape {tuple(result.shape)}" if dense else kind_of(result)
            wanted = f"return a dense float tensor of the weight's shape {tuple(weight.shape)}, or change it in place"
            raise HessdiagError(f"{function.label} returned {found}: {wanted}")
        if result.data_ptr() != weight.data_ptr():
            weight.copy_(result)
    if swapped and not _is_unchanged(weight, *before):
        layer.weight.copy_(swap_inputs_and_outputs(weight, groups=groups))
    if isinstance(layer.bias, Tensor):
        nn.init.zeros_(layer.bias)


def _check(module: Any, shape: torch.Size, path: str, function: NamedFunction) -> None:
    """Refuse a layer without its weight, or with one that is not real and finite."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.shape != shape:
        what = f"without a weight of shape {tuple(shape)}: change weights in place"
        raise HessdiagError(f"{function.label} left {path!r} {what}")
    if not weight.is_floating_point() or not bool(weight.isfinite().all()):
        kind = "NaN or infinite values" if weight.is_floating_point() else f"{weight.dtype} numbers"
        raise HessdiagError(f"{function.label} left {kind} in the weight of {path!r}: leave finite real ones")
