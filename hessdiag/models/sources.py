"""From what a user types for MODEL to a network that can be built afresh; nothing is ever downloaded.

Networks of transformers, timm and torchvision have random weights. Those of transformers compute attention step by
step, because the fused kernels have no forward-mode derivative.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_kind, check_model, did_you_mean, kind_of
from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import NamedFunction, foreign_code, import_library, load_function, missing_file
from hessdiag.models.feedforward import StridedAlexNet, StridedLeNet, mlp, scaled
from hessdiag.models.residual import PreconditionedResNet, RescaleNet, centre
from hessdiag.network.blocks import STRUCTURED

SMALL: dict[str, Any] = {"depth": 14, "classes": 10, "side": 32}
DOWNLOADING = ("pretrained", "pretrained_cfg", "pretrained_backbone", "checkpoint_path", "weights", "weights_backbone")
Size = tuple[int, ...] | None  # shape of one example, where it is known
USUAL_LENGTH = 64  # tokens of one example
USUAL_SIDE = 224  # pixels, where the configuration does not say
SAVED = "hf:CONFIG.json, a configuration saved with save_pretrained (nothing is downloaded)"
FORMS = f"lenet, mlp:784-384-64-10, package.module:function, ./file.py:function, timm:NAME, torchvision:NAME or {SAVED}"


@dataclass(frozen=True)
class NormalInputs:
    """Draws numbers from N(0, 1): one tensor (B, *size), or the keyword argument `keyword`."""

    size: tuple[int, ...]  # shape of one example
    keyword: str = ""  # name of the network's argument; empty for the first one
    description: str = "random normal"

    def __call__(self, count: int, generator: torch.Generator) -> Tensor | dict[str, Tensor]:
        """(B, *size) in float32, on the CPU.

        >>> NormalInputs((3, 8))(2, torch.Generator()).shape
        torch.Size([2, 3, 8])
        """
        x = torch.randn(count, *self.size, generator=generator)
        return {self.keyword: x} if self.keyword else x


@dataclass(frozen=True)
class TokenInputs:
    """Draws token ids, all equally likely apart from the padding, (B, length)."""

    vocabulary: int  # ids run from 0 to this, exclusive
    length: int  # tokens of one example
    keywords: tuple[str, ...] = ("input_ids",)  # arguments of the network, each drawn anew; without any, the first one
    padding: int | None = None  # id that is never drawn, because networks leave such positions out
    description: str = "random tokens"

    def __call__(self, count: int, generator: torch.Generator) -> Tensor | dict[str, Tensor]:
        """(B, length) integers.

        >>> sorted(set(TokenInputs(3, 50, padding=1)(2, torch.Generator())["input_ids"].flatten().tolist()))
        [0, 2]
        """
        allowed = torch.arange(self.vocabulary)
        if self.padding is not None and self.vocabulary > 1:
            allowed = allowed[allowed != self.padding]

        def draw() -> Tensor:
            return allowed[torch.randint(len(allowed), (count, self.length), generator=generator)]

        return {keyword: draw() for keyword in self.keywords} or draw()


@dataclass(frozen=True)
class Network:
    """A network and how to draw its inputs; None where nothing says what it reads."""

    module: nn.Module
    inputs: NormalInputs | TokenInputs | None

    @property
    def input_size(self) -> tuple[int, ...] | None:
        """Shape of one example, for a network that reads numbers."""
        return self.inputs.size if isinstance(self.inputs, NormalInputs) else None


@dataclass(frozen=True)
class ModelSource:
    """A named network that can be built afresh.

    Attributes:
        name: as typed.
        build: makes a new network, with weights from torch's global random state.
        output: name or position of the output to measure, where it returns several.
        built: whether the network is there already, and each is a copy of it.
    """

    name: str
    build: Callable[[], Network]
    output: str | int | None = None
    built: bool = False


Model = str | ModelSource | Callable[..., Any]


def resolve_model(
    model: Model, *, arguments: Mapping[str, Any] | None = None, input_size: int | tuple[int, ...] | None = None,
    output: str | int | None = None,
) -> ModelSource:  # fmt: skip
    """The network that a text, a function or a source stands for; nothing is built yet.

    Args:
        model: a built-in name, such as `"lenet"`, `"alexnet"` or `"preconditioned-resnet50"`; `"mlp:784-384-64-10"`
            (widths), `"package.module:factory"`, `"./file.py:factory"`, `"hf:CONFIG.json"`, `"timm:NAME"` or
            `"torchvision:NAME"`; a function that returns a module or `(module, input_size)`; or a `ModelSource`.
        arguments: keyword arguments of the function that builds the network, for `hf:` entries of the configuration.
        input_size: shape of one example, in place of the network's own; for text the number of tokens.
        output: name or position of the output to measure, where the network returns several.

    Raises:
        HessdiagError: nothing goes by that name (the nearest is offered), or the network does not take the arguments.
    """
    check_kind("arguments", {} if arguments is None else arguments, Mapping, "pass a dict, such as {'bias': False}")
    given, size = dict(arguments or {}), None if input_size is None else as_size(input_size)
    if input_size is not None and size is None:
        raise HessdiagError(f"input_size {input_size!r}: pass the shape of one example, such as (3, 32, 32)")
    if isinstance(model, ModelSource):
        if given or size:
            raise HessdiagError("a ModelSource takes no widths, arguments or input_size: pass a name or a function")
        source = model
    elif isinstance(model, str):
        source = _named(model, given, size)
    elif isinstance(model, nn.Module):
        raise HessdiagError("model is a network that is already built: pass a function that builds it afresh")
    elif callable(model):
        named = NamedFunction("model", getattr(model, "__name__", repr(model)), model)
        source = factory_source(named, arguments=given, input_size=size)
    else:
        raise HessdiagError(f"model is {kind_of(model)}: pass a name such as 'lenet', or a function that builds it")
    return source if output is None else replace(source, output=output)


def factory_source(factory: NamedFunction, *, arguments: Mapping[str, Any], input_size: Size) -> ModelSource:
    """The networks that a factory of a module, or of `(module, input_size)`, builds, one a call with these arguments.

    The shape of one example is `input_size`, else the second thing returned, else the module's attribute `input_size`.

    Raises:
        HessdiagError: the factory does not take the arguments; on building, that it raised, or what it returned.
    """
    if there := isinstance(factory.function, nn.Module):
        factory = replace(factory, function=partial(deepcopy, factory.function))
    factory.check_arguments(arguments)

    def build() -> Network:
        built = factory(**arguments)
        built, given = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
        module, size = _check_module(built, factory.label), as_size(given)
        if given is not None and size is None:
            what = f"the modules {type(module).__name__} and {type(given).__name__}: return one of them"
            what = what if isinstance(given, nn.Module) else f"the input size {given!r}: return one such as (3, 32, 32)"
            raise HessdiagError(f"{factory.label} returned {what}")
        size = input_size or size or as_size(getattr(module, "input_size", None))
        return Network(module, _drawn(module, size) if size else None)

    return ModelSource(factory.reference, build, built=there)


def _drawn(module: nn.Module, size: tuple[int, ...]) -> NormalInputs | TokenInputs:
    """Tokens for a network that begins with a table, where a number of them was asked for."""
    first = next((layer for layer in module.modules() if isinstance(layer, (nn.Embedding, *STRUCTURED))), None)
    if isinstance(first, nn.Embedding) and len(size) == 1:
        return TokenInputs(first.num_embeddings, size[0], (), first.padding_idx)
    return NormalInputs(size)


def as_size(value: Any) -> Size:
    """A positive integer or several as a tuple; None for anything else.

    >>> as_size(784), as_size([3, 32, 32]), as_size("3,32")
    ((784,), (3, 32, 32), None)
    """
    sizes = (value,) if isinstance(value, int) else value
    several = isinstance(sizes, (tuple, list)) and len(sizes) > 0
    whole = several and all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    return tuple(sizes) if whole else None


def _named(name: str, arguments: Mapping[str, Any], size: Size) -> ModelSource:
    head, colon, _ = name.partition(":")
    if head == "hf":
        return _transformers(name, arguments, size)
    if name in BUILT_IN:
        function = NamedFunction("model", name, BUILT_IN[name])
    elif head in FAMILIES and colon:
        function = NamedFunction("model", name, FAMILIES[head](name, arguments))
    elif colon:
        function = load_function(name, what="model")
    else:
        raise HessdiagError(f"unknown model {name!r}: {f'{did_you_mean(name, BUILT_IN)} use {FORMS}'.lstrip()}")
    return factory_source(function, arguments=arguments, input_size=size)


def _check_module(module: Any, label: str) -> nn.Module:
    """Refuse what is no network with numbers; without numbers only where the default device is meta."""
    if not isinstance(module, nn.Module):
        what = f"the class {module.__name__}" if isinstance(module, type) else kind_of(module)
        raise HessdiagError(f"{label} returned {what}: return a torch.nn.Module, or (module, input_size)")
    check_model(module)
    for name, parameter in module.named_parameters():
        if parameter.is_meta and torch.get_default_device().type != "meta":
            raise HessdiagError(f"{label} has {name!r} on the meta device: build it with numbers, on the CPU")
    return module


def _residual(network: Callable[..., Any], *, centred: bool = True, **options: Any) -> nn.Module:
    built: Any = network(**options)
    if centred:
        centre(built, torch.randn(4, *built.input_size))
    return cast("nn.Module", built)


BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "lenet": StridedLeNet, "alexnet": StridedAlexNet,
    "preconditioned-resnet50": partial(_residual, PreconditionedResNet),
    "preconditioned-resnet14": partial(_residual, PreconditionedResNet, **SMALL),
    "rescalenet50": partial(_residual, RescaleNet), "rescalenet14": partial(_residual, RescaleNet, **SMALL),
}  # fmt: skip


def _perceptron(specification: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    if not re.fullmatch(r"mlp:[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})+", specification):
        raise HessdiagError(f"model {specification!r}: write the widths as in mlp:784-384-64-10 (input to output)")
    first, *hidden, last = map(int, specification.removeprefix("mlp:").split("-"))

    def perceptron(*, bias: bool = True, width: float = 1.0) -> Any:
        return mlp([first, *scaled(width, *hidden), last], bias=bias), first

    return perceptron


def _timm(specification: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """`timm.create_model(NAME, pretrained=False, **arguments)`, with the input size of its configuration."""
    timm = import_library("timm", label=f"model {specification!r}", install="timm")
    name = _checked_name(specification, timm.list_models(), arguments)

    def build(**options: Any) -> Any:
        module: nn.Module = timm.create_model(name, pretrained=False, **options)
        size = as_size((getattr(module, "pretrained_cfg", None) or {}).get("input_size"))
        return (module, size) if size else module

    return build


def _torchvision(specification: str, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """The builder of that name without weights, for images (3, 224, 224)."""
    models = import_library("torchvision", label=f"model {specification!r}", install="torchvision").models
    builder = models.get_model_builder(_checked_name(specification, models.list_models(), arguments))
    fixed: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        fixed["weights_backbone"] = None  # segmentation and detection fetch a backbone otherwise
    return lambda **options: (builder(**fixed, **options), (3, USUAL_SIDE, USUAL_SIDE))


FAMILIES = {"mlp": _perceptron, "timm": _timm, "torchvision": _torchvision}


def _checked_name(specification: str, known: list[str], arguments: Mapping[str, Any]) -> str:
    library, _, name = specification.partition(":")
    for key in (key for key in arguments if key in DOWNLOADING):
        raise HessdiagError(f"argument {key!r}: hessdiag downloads nothing, use load_state_dict (--weights FILE)")
    if name not in known:
        hint = did_you_mean(name, known, otherwise=f"{library}.list_models() lists them")
        raise HessdiagError(f"model {specification!r}: {library} has no model {name!r}; {hint}")
    return name


def _transformers(specification: str, arguments: Mapping[str, Any], input_size: Size) -> ModelSource:
    """`hf:CONFIG.json`: the first of the configuration's `architectures`, or its base model where it names none."""
    label = f"model {specification!r}"
    path = Path(specification.partition(":")[2])
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        advice = "hessdiag downloads nothing: save the configuration with AutoConfig.from_pretrained(…).save_pretrained"
        raise HessdiagError(f"{label}: {missing_file(path)} ({advice})")
    transformers = import_library("transformers", label=label, install="transformers")
    with foreign_code(label):
        config = _config(transformers, json.loads(path.read_text(encoding="utf-8")), arguments, label)
        names = config.architectures
        architecture = getattr(transformers, names[0]) if names else transformers.AutoModel.from_config

    def build() -> Network:
        with foreign_code(label):
            module = _check_module(architecture(config), label)
            inputs = _hf_inputs(module, config, input_size, label)
            if getattr(config, "pad_token_id", None) is None:
                # Classifiers of sequences look for padding even where there is none; no token has this id.
                module.config.pad_token_id = -1  # type: ignore[union-attr]
        return Network(module, inputs)

    return ModelSource(specification, build)


def _config(transformers: Any, record: Any, arguments: Mapping[str, Any], label: str) -> Any:
    if not isinstance(record, dict) or "model_type" not in record:
        raise HessdiagError(f"{label} has no 'model_type': pass a configuration of transformers")
    entries = {key: value for key, value in record.items() if key != "model_type"}
    plain: Any = transformers.AutoConfig.for_model(record["model_type"], **entries) if arguments else None
    for key in (key for key in arguments if not hasattr(plain, key)):
        raise HessdiagError(f"{label} takes no argument {key!r}: pass entries of its configuration")
    fixed = {"attn_implementation": "eager", "use_cache": False, "return_dict": True}
    return transformers.AutoConfig.for_model(record["model_type"], **(entries | dict(arguments) | fixed))


def _hf_inputs(module: nn.Module, config: Any, input_size: Size, label: str) -> NormalInputs | TokenInputs | None:
    """Token ids within the vocabulary, or pixels; None where the configuration does not say."""
    if (argument := str(getattr(module, "main_input_name", "input_ids"))) == "input_ids":
        if input_size and len(input_size) > 1:
            how = f"{label} reads tokens, pass their number, input_size=16 (--input-size 16)"
            raise HessdiagError(f"input_size {input_size}: {how}")
        inner = config.get_text_config()
        longest = getattr(inner, "max_position_embeddings", None) or USUAL_LENGTH
        keywords = ("input_ids", "decoder_input_ids") if config.is_encoder_decoder else ("input_ids",)
        length = input_size[0] if input_size else min(USUAL_LENGTH, longest)
        return TokenInputs(inner.vocab_size, length, keywords, getattr(config, "pad_token_id", None))
    if argument == "pixel_values" and not input_size:
        side = getattr(config, "image_size", None) or USUAL_SIDE
        sides = (side, side) if isinstance(side, int) else tuple(side)
        input_size = as_size((getattr(config, "num_channels", 3), *sides))
    return NormalInputs(input_size, argument) if input_size else None
