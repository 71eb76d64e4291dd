"""Initialisations by name, and those that users write.

| first parameter | the function is called with |
|---|---|
| `weight`, `w`, `tensor` | every weight of a linear or convolutional layer; biases become 0 |
| `module`, `m`, `layer` | every module, as by `model.apply` |
| `model`, `net`, `network` | the whole model, once |

A function whose first parameter says none of these is one of a weight, like those of `torch.nn.init`. Weights are
filled in place or returned anew. They are handed over as (out, in / groups, *kernel) whatever the layer stores, because
the functions of `torch.nn.init` take them for that: transposed convolutions and `Conv1D` keep inputs first.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from hessdiag import init
from hessdiag.arguments import few, is_finite, kind_of
from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import NamedFunction, foreign_code, load_function
from hessdiag.network.blocks import is_linear, settable_layers, stores_inputs_first, swap_inputs_and_outputs
from hessdiag.network.torch_state import seeded_rng

Scheme = str | Callable[..., object]
Say = Callable[[str], None]
AS_BUILT = "as built"
CALLED = {
    "weight": "called with every weight, biases set to zero", "model": "called once, with the whole model",
    "module": "called with every module, as by model.apply",
}  # fmt: skip
NAMES = dict.fromkeys(("module", "m", "layer"), "module") | dict.fromkeys(("model", "net", "network"), "model")
ADVICE = "name its first parameter weight, module or model, for what it is to be called with"


def resolve(scheme: Scheme, *, say: Say = lambda message: None) -> Callable[..., nn.Module]:
    """A function `(model, *, generator=None)` that initialises a model in place; see `apply_function`. The scheme is a
    name of `hessdiag.init`, `package.module:function` or `./file.py:function`, or a function.
    """
    if isinstance(scheme, str) and ":" not in scheme:
        init.check_scheme(scheme)
        return partial(init.apply, scheme=scheme)
    if isinstance(scheme, str):
        return partial(apply_function, function=load_function(scheme, what="init"), say=say)
    if not callable(scheme) or isinstance(scheme, nn.Module):
        raise HessdiagError(f"init is {kind_of(scheme)}: pass a name such as 'fan-in', or a function")
    return partial(apply_function, function=NamedFunction("init", name_of(scheme), scheme), say=say)


def name_of(scheme: Scheme) -> str:
    """The name by which tables and files call an initialisation.

    >>> name_of("fan-in"), name_of(nn.init.orthogonal_)
    ('fan-in', 'orthogonal_')
    """
    return scheme if isinstance(scheme, str) else getattr(scheme, "__name__", repr(scheme))


def apply_function(
    model: nn.Module, function: NamedFunction, *, generator: Generator | None = None, say: Say = lambda message: None
) -> nn.Module:
    """Initialise a model by a user's function of a weight, a module or the model, in place. A generator seeds torch's
    global random state. `say` is told what the function was called with, and what it left.
    """
    layers = dict(settable_layers(model))  # refused before anything is changed
    before = {path: (x.weight, x.weight._version, x.weight.detach().clone()) for path, x in layers.items()}
    kind = called_with(function.function)
    seed = None if generator is None else int(torch.randint(2**62, (), generator=generator))
    with nullcontext() if seed is None else seeded_rng(seed), torch.no_grad():
        if kind == "weight":
            for layer in layers.values():
                _fill(layer, function)
        elif kind == "module":
            model.apply(lambda module: _call(module, function))
        else:
            _call(model, function)
    modules = dict(model.named_modules())
    for path, (weight, *_) in before.items():
        now, shape = getattr(modules.get(path), "weight", None), tuple(weight.shape)
        kept = isinstance(now, nn.Parameter) and tuple(now.shape) == shape and now.is_floating_point()
        if not kept or not is_finite(modules[path].weight):
            what = f"{function.label} left {path!r} without a weight of shape {shape} and finite real numbers"
            raise HessdiagError(f"{what}: change weights in place")
    left = [path for path, was in before.items() if _is_unchanged(modules[path].weight, *was)]
    if left and len(left) == len(before):
        raise HessdiagError(f"{function.label} was {CALLED[kind]}, and changed no weight: {ADVICE}")
    say(CALLED[kind] + (f"; it left the weights of {few(map(repr, left))} as they were" if left else ""))
    return model


def called_with(function: Callable[..., object]) -> str:
    """What a function initialises, by its first parameter: `"weight"`, `"module"` or `"model"`.

    >>> called_with(nn.init.orthogonal_), called_with(lambda m: None)
    ('weight', 'module')
    """
    with suppress(TypeError, ValueError):  # some functions written in C tell nothing
        return NAMES.get(next(iter(inspect.signature(function).parameters), ""), "weight")
    return "weight"


def _is_unchanged(now: Tensor, parameter: Tensor, version: int, values: Tensor) -> bool:
    """Whether nobody wrote to it; writing through `.data` counts no versions."""
    return now is parameter and now._version == version and torch.equal(now, values)


def _call(module: nn.Module, function: NamedFunction) -> None:
    with foreign_code(f"{function.label}, called with a {type(module).__name__},", function.folder):
        result = function.function(module)
    if isinstance(result, nn.Module) and result is not module:
        raise HessdiagError(f"{function.label} returned another module: change the one that it is given, in place")


def _fill(layer: Any, function: NamedFunction) -> None:
    """Call a function of a weight with that of a layer, outputs first; the bias becomes zero."""
    swapped, groups = stores_inputs_first(layer), 1 if is_linear(layer) else layer.groups
    weight = swap_inputs_and_outputs(layer.weight, groups=groups).contiguous() if swapped else layer.weight
    before = (weight, weight._version, weight.detach().clone())
    if (result := function(weight)) is not None:
        if not (isinstance(result, Tensor) and result.is_floating_point() and result.shape == weight.shape):
            found = f"{result.dtype} of shape {tuple(result.shape)}" if isinstance(result, Tensor) else kind_of(result)
            wanted = f"return a float tensor of the weight's shape {tuple(weight.shape)}, or change it in place"
            raise HessdiagError(f"{function.label} returned {found}: {wanted}")
        with function.running():  # sparse ones and those without numbers cannot be copied
            if result.data_ptr() != weight.data_ptr():
                weight.copy_(result)
    if swapped and not _is_unchanged(weight, *before):
        layer.weight.copy_(swap_inputs_and_outputs(weight, groups=groups))
    if isinstance(layer.bias, Tensor):
        nn.init.zeros_(layer.bias)
