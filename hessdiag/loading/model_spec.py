"""From what a user types for MODEL to a network that can be built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from hessdiag.arguments import check_kind, check_whole, kind_of
from hessdiag.errors import HessdiagError
from hessdiag.loading.built_in import BUILT_IN
from hessdiag.loading.factory import as_size, factory_source
from hessdiag.loading.huggingface import huggingface_source
from hessdiag.loading.libraries import library_form
from hessdiag.loading.model_source import ModelSource, in_evaluation_mode
from hessdiag.loading.timm_torchvision import timm_source, torchvision_source
from hessdiag.models.feedforward import mlp
from hessdiag.suggestions import did_you_mean
from hessdiag.user_code.named_function import NamedFunction, load_function

LIBRARIES = {"timm": timm_source, "torchvision": torchvision_source}
FORMS = {
    **{name: name for name in BUILT_IN},
    "mlp": "mlp:784-384-64-10",
    "hf": "hf:CONFIG.json",
    "timm": "timm:NAME",
    "torchvision": "torchvision:NAME",
}
OTHERS = [form for name, form in FORMS.items() if name == "lenet" or name not in BUILT_IN]  # one name stands for all
EVERY_FORM = f"use {', '.join(OTHERS)}, package.module:function or ./file.py:function"
MAX_DIGITS = 9


Model = str | ModelSource | Callable[..., Any]


def resolve_model(
    specification: str,
    *,
    in_channels: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    input_size: tuple[int, ...] | None = None,
    output: str | int | None = None,
) -> ModelSource:
    """The network that a specification names; nothing is built yet, and nothing is ever downloaded.

    Args:
        specification: a name of `hessdiag.loading.built_in`, such as `"lenet"`, `"alexnet"` or
            `"preconditioned-resnet50"`; `"mlp:784-384-64-10"` (widths), `"package.module:factory"`,
            `"./file.py:factory"`, `"hf:CONFIG.json"`, `"timm:NAME"` or `"torchvision:NAME"`.
        in_channels: input channels of lenet.
        arguments: keyword arguments of the function that builds the network.
        input_size: shape of one example, in place of the network's own.
        output: name or position of the output to measure, where the network returns several.

    Raises:
        HessdiagError: nothing goes by that name (the nearest right specification is offered), or the network does not
            take the arguments.
    """
    check_kind("model", specification, str, f"pass a name; {EVERY_FORM}")
    input_size = check_size(input_size)
    given = _arguments(specification, arguments, in_channels)
    if specification.startswith("hf:"):
        return huggingface_source(specification, arguments=given, input_size=input_size, output=output)
    return replace(_source(specification, given, input_size), output=output)


def _source(specification: str, given: Mapping[str, Any], input_size: tuple[int, ...] | None) -> ModelSource:
    head, colon, tail = specification.partition(":")
    if specification in BUILT_IN:
        factory = NamedFunction("model", specification, BUILT_IN[specification])
        return factory_source(factory, arguments=given, input_size=input_size)
    if head == "mlp":
        widths = _widths(specification, tail)

        def perceptron(*, bias: bool = True, width: float = 1.0) -> Any:
            hidden = [max(1, round(width * size)) for size in widths[1:-1]]
            return mlp([widths[0], *hidden, widths[-1]], bias=bias), widths[0]

        return factory_source(NamedFunction("model", specification, perceptron), arguments=given, input_size=input_size)
    if head in LIBRARIES:
        return LIBRARIES[head](specification, arguments=given, input_size=input_size)
    if head in BUILT_IN:
        raise HessdiagError(
            f"model {specification!r}: write {head} alone, and pass options as in arguments={{'classes': 100}}"
        )
    if colon:
        return factory_source(load_function(specification, what="model"), arguments=given, input_size=input_size)
    raise HessdiagError(f"unknown model {specification!r}: {_nearest_form(specification)}")


def as_source(
    model: Model,
    *,
    arguments: Mapping[str, Any] | None = None,
    input_size: tuple[int, ...] | None = None,
    output: str | int | None = None,
    evaluate: bool = False,
    name: str = "model",
) -> ModelSource:
    """The network that a name, a function that builds it or a source stands for.

    Raises:
        HessdiagError: it is none of these, or a network that is already built.
    """
    if evaluate:
        built = as_source(model, arguments=arguments, input_size=input_size, output=output, name=name)
        return in_evaluation_mode(built)
    arguments, input_size = check_arguments(arguments), check_size(input_size)
    if isinstance(model, ModelSource):
        if arguments or input_size:
            raise HessdiagError("a ModelSource takes no widths, arguments or input_size: pass a name or a function")
        return model if output is None else replace(model, output=output)
    if isinstance(model, str):
        return resolve_model(model, arguments=arguments, input_size=input_size, output=output)
    if isinstance(model, nn.Module):
        raise HessdiagError(f"{name} is a network that is already built: pass a function that builds it afresh")
    if not callable(model):
        raise HessdiagError(f"{name} is {kind_of(model)}: pass a name such as 'lenet', or a function that builds it")
    named = NamedFunction("model", getattr(model, "__name__", repr(model)), model)
    return replace(factory_source(named, arguments=arguments, input_size=input_size), output=output)


def check_arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Keyword arguments of a function that builds a network."""
    check_kind("arguments", {} if arguments is None else arguments, Mapping, "pass a dict, such as {'bias': False}")
    return dict(arguments or {})


def check_size(size: Any) -> tuple[int, ...] | None:
    """The shape of one example, if there is one."""
    found = None if size is None else as_size(size)
    if size is not None and found is None:
        raise HessdiagError(f"input_size {size!r}: pass the shape of one example, such as (3, 32, 32)")
    return found


def _arguments(specification: str, arguments: Mapping[str, Any] | None, in_channels: int | None) -> Mapping[str, Any]:
    """With `in_channels` among them."""
    given = check_arguments(arguments)
    if in_channels is None:
        return given
    if specification != "lenet":
        raise HessdiagError(
            f"in_channels is for lenet: shape the inputs of {specification!r} with input_size=(3, 32, 32)"
        )
    check_whole("in_channels", in_channels)
    if in_channels < 1:
        raise HessdiagError(f"in_channels {in_channels}: a network needs at least 1 input channel")
    return given | {"in_channels": in_channels}


def _nearest_form(specification: str) -> str:
    """What to type instead of a name that stands alone."""
    if specification.endswith(".py") or Path(specification).is_file():
        return f"add the function that builds the network, as in {specification}:build"
    if specification in FORMS:
        return f"write it as in {FORMS[specification]}"
    library = library_form(specification)
    if library:
        return library
    near = did_you_mean(specification, FORMS)
    return f"{near} {EVERY_FORM}" if near else EVERY_FORM


def _widths(specification: str, text: str) -> list[int]:
    parts = text.split("-")
    whole = all(part.isdecimal() and len(part) <= MAX_DIGITS and int(part) > 0 for part in parts)
    if len(parts) < 2 or not whole:
        raise HessdiagError(f"model {specification!r}: write the widths as in mlp:784-384-64-10 (input to output)")
    return [int(part) for part in parts]
