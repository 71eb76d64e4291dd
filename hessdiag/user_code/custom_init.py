"""Initialisations that users write, in the convention in which they write them.

A function may be one of a weight, like those of `torch.nn.init`; of a module, to be called with every one as
`model.apply` does, containers and norms included; or of the whole model, called once.
`hessdiag.user_code.convention` reads from its first parameter which; where that does not settle it, the conventions are
tried in turn on a copy, and the first in which the function sets a weight is used. A function of a module that fails on
containers or norms is called with the linear and convolutional layers only.

Weights are filled in place or returned anew; the biases beside them are set to zero, as by the built-in
initialisations. They are handed over as (out, in / groups, *kernel) whatever the layer stores, because that is what the
functions of `torch.nn.init` take them for: transposed convolutions and the `Conv1D` of transformers keep inputs first.
Functions of modules or of the model do with biases, and all else, as they like.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.errors import HessdiagError
from hessdiag.network.layers import (
    initialised_layers,
    is_linear,
    settable_layers,
    stores_inputs_first,
    swap_inputs_and_outputs,
)
from hessdiag.network.torch_state import seeded_rng
from hessdiag.suggestions import few
from hessdiag.user_code.convention import LAYER, MODEL, MODULE, WEIGHT, Convention, conventions_of
from hessdiag.user_code.named_function import NamedFunction

Say = Callable[[str], None]
NOTHING = "changed no weight"


def apply_function(
    model: nn.Module,
    function: NamedFunction,
    *,
    generator: torch.Generator | None = None,
    say: Say = lambda message: None,
) -> nn.Module:
    """Initialise a model by a function of a weight, of every module, or of the model.

    Args:
        model: changed in place.
        function: see above.
        generator: seeds torch's global random state, which such functions draw from; None leaves it alone.
        say: told what the function was called with, and which layers it left alone.

    Raises:
        HessdiagError: the function raised, set no weight, returned what is none, or left a weight of another shape, or
            one that is not finite.
    """
    list(settable_layers(model))  # refused before anything is changed
    seed = None if generator is None else int(torch.randint(2**62, (), generator=generator))
    candidates = conventions_of(function.function, model)
    failures: dict[Convention, str] = {}
    chosen = candidates[0]
    if len(candidates) > 1:
        chosen = _first_that_works(model, function, candidates, failures, seed)
    with _seeded(seed, forked=seed is not None):
        left = _initialise(model, function, chosen)
    say(_account(function, chosen, left, failures))
    return model


def _first_that_works(
    model: nn.Module,
    function: NamedFunction,
    candidates: Sequence[Convention],
    failures: dict[Convention, str],
    seed: int | None,
) -> Convention:
    """The first convention in which the function initialises a copy of the model; `failures` are of those before."""
    for convention in candidates:
        trial = _copy(model)
        if trial is None:
            return convention  # the likeliest, untried
        try:
            with _seeded(seed, forked=True):
                _initialise(trial, function, convention)
        except HessdiagError as error:
            failures[convention] = str(error)
        else:
            return convention
    raise HessdiagError(_why_none_works(_label(function), candidates[0], failures))


def _why_none_works(label: str, likeliest: Convention, failures: Mapping[Convention, str]) -> str:
    """What to say of a function that initialises in no convention: how it fails in the one that its name promises."""
    if likeliest is not WEIGHT:
        return failures[LAYER if likeliest is MODULE else likeliest]  # of a layer, not of a container
    told = [kind for kind in (WEIGHT, LAYER, MODEL) if NOTHING not in failures[kind]]
    ran = [kind for kind in told if not failures[kind].startswith(f"{label} raised ")]
    if ran or len(told) < 2:
        return failures[next(iter(ran or told), WEIGHT)]
    said = "; ".join(f"{kind.value}, it {failures[kind].removeprefix(label).strip()}" for kind in told)
    return f"{label} initialises neither weights, nor layers, nor the model: {said}"


def _copy(model: nn.Module) -> nn.Module | None:
    """A copy; None where the model's parts refuse to be copied, in whatever way."""
    try:
        return copy.deepcopy(model)
    except Exception:
        return None


@contextmanager
def _seeded(seed: int | None, *, forked: bool) -> Iterator[None]:
    """Draw from torch's global random state as a seed sets it, without gradients."""
    with seeded_rng(seed) if forked else nullcontext(), torch.no_grad():
        yield


def _initialise(model: nn.Module, function: NamedFunction, convention: Convention) -> list[str]:
    """Call the function in one convention; paths of the layers whose weights it left alone.

    Raises:
        HessdiagError: it set no weight, or went wrong.
    """
    before = {name: _Before.of(parameter) for name, parameter in model.named_parameters() if parameter.dim() > 1}
    shapes = {path: module.weight.shape for path, module in initialised_layers(model)}
    if convention is WEIGHT:
        for _, module in settable_layers(model):
            _fill(module, function)
    elif convention is MODULE:
        model.apply(lambda module: _call(module, function))
    elif convention is LAYER:
        for _, module in settable_layers(model):
            _call(module, function)
    else:
        _call(model, function)
    modules = dict(model.named_modules())
    for path, shape in shapes.items():
        _check(modules.get(path), shape, path, function)
    return _left_alone(model, before, function)


def _left_alone(model: nn.Module, before: Mapping[str, _Before], function: NamedFunction) -> list[str]:
    now = dict(model.named_parameters())
    alone = {name for name, was in before.items() if name in now and was.is_unchanged(now[name])}
    if before and len(alone) == len(before):
        raise HessdiagError(
            f"{_label(function)} {NOTHING}: write a function of a weight, of a module as for model.apply, or of the"
            " model, that changes weights in place"
        )
    unchanged = {id(now[name]) for name in alone}
    return [path for path, module in initialised_layers(model) if id(module.weight) in unchanged]


@dataclass(frozen=True)
class _Before:
    """A weight as it was: which object, how often written to, and its values."""

    parameter: Tensor
    version: int
    values: Tensor

    @classmethod
    def of(cls, parameter: Tensor) -> _Before:
        return cls(parameter, parameter._version, parameter.detach().clone())

    def is_unchanged(self, now: Tensor) -> bool:
        """Whether nobody wrote to it, through `.data` neither, which counts no versions."""
        return now is self.parameter and now._version == self.version and torch.equal(now, self.values)


def _call(module: nn.Module, function: NamedFunction) -> None:
    """Call a function of a module, which changes it in place."""
    result = function(module)
    _refuse_unstarted(result, function)
    if isinstance(result, nn.Module) and result is not module:
        raise HessdiagError(f"{_label(function)} returned another module: change the one that it is given, in place")


def _refuse_unstarted(result: object, function: NamedFunction) -> None:
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise HessdiagError(f"{_label(function)} returned a generator, which never ran: write it without yield")
    if inspect.iscoroutine(result):
        result.close()  # or Python warns that it was never awaited
        raise HessdiagError(f"{_label(function)} returned a coroutine, which never ran: write it without async")


def _fill(module: Any, function: NamedFunction) -> None:
    swapped = stores_inputs_first(module)
    groups = 1 if is_linear(module) else module.groups
    weight = swap_inputs_and_outputs(module.weight, groups=groups) if swapped else module.weight
    before = _Before.of(weight) if swapped else None
    result = function(weight)
    _check_result(result, weight, function)
    if isinstance(result, Tensor) and result.data_ptr() != weight.data_ptr():
        weight.copy_(result)
    if before is not None and not before.is_unchanged(weight):
        module.weight.copy_(swap_inputs_and_outputs(weight, groups=groups))
    if isinstance(module.bias, Tensor):
        nn.init.zeros_(module.bias)


def _check_result(result: object, weight: Tensor, function: NamedFunction) -> None:
    """Refuse what a function of a weight returned, other than nothing or real numbers of the weight's shape."""
    label, otherwise = _label(function), "return one of the same shape, or change it in place"
    if result is None:
        return
    _refuse_unstarted(result, function)
    if not isinstance(result, Tensor):
        raise HessdiagError(
            f"{label} returned a value of type {type(result).__name__}, not a torch.Tensor: {otherwise}"
        )
    if result.shape != weight.shape:
        raise HessdiagError(
            f"{label} returned shape {tuple(result.shape)} for a weight of shape {tuple(weight.shape)}: {otherwise}"
        )
    if not result.is_floating_point():
        raise HessdiagError(
            f"{label} returned {_short(result.dtype)} numbers: return real floating-point numbers,"
            " as of .to(weight.dtype)"
        )
    if result.layout is not torch.strided or result.is_meta:
        raise HessdiagError(f"{label} returned a tensor without all of its numbers: return a dense one, not on meta")


def _check(module: Any, shape: torch.Size, path: str, function: NamedFunction) -> None:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.shape != shape:
        raise HessdiagError(
            f"{_label(function)} left {path!r} without a weight of shape {tuple(shape)}: change weights in place"
        )
    if not weight.is_floating_point():
        raise HessdiagError(
            f"{_label(function)} left {_short(weight.dtype)} numbers in the weight of {path!r}: leave real ones"
        )
    if not bool(weight.isfinite().all()):
        raise HessdiagError(f"{_label(function)} left NaN or infinite values in the weight of {path!r}")


def _account(
    function: NamedFunction, chosen: Convention, left: Sequence[str], failures: Mapping[Convention, str]
) -> str:
    """What results say of the initialisation."""
    text = chosen.value
    if chosen is LAYER:
        text += f" only, because with every module it {failures[MODULE].removeprefix(_label(function)).strip()}"
    if left:
        text += f"; it left the weights of {few(map(repr, left))} as they were"
    return text


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _label(function: NamedFunction) -> str:
    return f"{function.what} {function.reference!r}"
