"""From what a user types for MODEL to a network that can be built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hessdiag.errors import HessdiagError
from hessdiag.loading.built_in import BUILT_IN
from hessdiag.loading.factory import factory_source
from hessdiag.loading.huggingface import huggingface_source
from hessdiag.loading.model_source import ModelSource
from hessdiag.loading.timm_torchvision import timm_source, torchvision_source
from hessdiag.models.mlp import mlp
from hessdiag.user_code.named_function import NamedFunction, load_function
from hessdiag.user_code.suggestions import did_you_mean

LIBRARIES = {"hf": huggingface_source, "timm": timm_source, "torchvision": torchvision_source}
FORMS = {
    **{name: name for name in BUILT_IN},
    "mlp": "mlp:784-384-64-10",
    "hf": "hf:CONFIG.json",
    "timm": "timm:NAME",
    "torchvision": "torchvision:NAME",
}
OTHERS = [form for name, form in FORMS.items() if name == "lenet" or name not in BUILT_IN]  # one name stands for all
EVERY_FORM = f"use {', '.join(OTHERS)}, package.module:function or ./file.py:function"
MOST_DIGITS = 9


def resolve_model(
    specification: str,
    *,
    in_channels: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    input_size: tuple[int, ...] | None = None,
) -> ModelSource:
    """The network that a specification names; nothing is built yet, and nothing is ever downloaded.

    Args:
        specification: a name of `hessdiag.loading.built_in`, such as `"lenet"`, `"alexnet"` or
            `"preconditioned-resnet50"`; `"mlp:784-384-64-10"` (widths), `"package.module:factory"`,
            `"./file.py:factory"`, `"hf:CONFIG.json"`, `"timm:NAME"` or `"torchvision:NAME"`.
        in_channels: input channels of lenet.
        arguments: keyword arguments of the function that builds the network.
        input_size: shape of one example, in place of the network's own.

    Raises:
        HessdiagError: nothing goes by that name (the nearest right specification is offered), or the network does not
            take the arguments.
    """
    head, colon, tail = specification.partition(":")
    given = _arguments(specification, arguments, in_channels)
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
        raise HessdiagError(f"model {specification!r}: write {head} alone, and pass options as in --arg classes=100")
    if colon:
        return factory_source(load_function(specification, what="model"), arguments=given, input_size=input_size)
    raise HessdiagError(f"unknown model {specification!r}: {_nearest_form(specification)}")


def _arguments(specification: str, arguments: Mapping[str, Any] | None, in_channels: int | None) -> Mapping[str, Any]:
    """With `in_channels` among them."""
    if in_channels is None:
        return dict(arguments or {})
    if specification != "lenet":
        raise HessdiagError(f"--in-channels is for lenet: shape the inputs of {specification!r} with --input-size")
    if in_channels < 1:
        raise HessdiagError(f"--in-channels {in_channels}: a network needs at least 1 input channel")
    return dict(arguments or {}) | {"in_channels": in_channels}


def _nearest_form(specification: str) -> str:
    """What to type instead of a name that stands alone."""
    if specification.endswith(".py") or Path(specification).is_file():
        return f"add the function that builds the network, as in {specification}:build"
    if specification in FORMS:
        return f"write it as in {FORMS[specification]}"
    near = did_you_mean(specification, FORMS)
    return f"{near} {EVERY_FORM}" if near else EVERY_FORM


def _widths(specification: str, text: str) -> list[int]:
    parts = text.split("-")
    whole = all(part.isdecimal() and len(part) <= MOST_DIGITS and int(part) > 0 for part in parts)
    if len(parts) < 2 or not whole:
        raise HessdiagError(f"model {specification!r}: write the widths as in mlp:784-384-64-10 (input to output)")
    return [int(part) for part in parts]
