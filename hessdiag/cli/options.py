"""Options that commands share, each declared once, and how their texts become values."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    from hessdiag.loading.prepare import Prepared
    from hessdiag.models.sources import ModelSource


def writable_file(path: str) -> str:
    """Refuse before measuring what could not be saved after it."""
    if path not in ("", "-") and (Path(path).is_dir() or not os.access(Path(path).parent, os.W_OK)):
        raise HessdiagError(f"cannot write {path!r}: name a file in a writable folder that exists")
    return path


def writable_folder(path: str) -> str:
    """The same for a folder that is made only when there is something to put in."""
    nearest = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise HessdiagError(f"cannot make the folder {path!r}: {str(nearest)!r} is a file, or cannot be written")
    return path


MAX_DIGITS = 10
LIBRARIES = "hf:CONFIG.json, timm:NAME or torchvision:NAME"
MODELS = f"lenet, alexnet, mlp:784-384-64-10, package.module:factory, ./file.py:factory, {LIBRARIES}"
LOSSES = "random-quadratic, cross-entropy, mse, model (its own) or ./file.py:function  [default: by targets]"
OUTPUTS = "which of several outputs, by name or position, and the dimension of its classes, as in 0:1 or :-1"
INITS = "fan-in, fan-out, arithmetic, geometric or ./file.py:function  [default: as built]"
DATA = "inputs or (inputs, targets), or what returns them; else random"
WEIGHTS = "load weights: .safetensors, or of torch.save"
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODELS)]
Matrix = Annotated[Literal["ggn", "hessian"], typer.Option(help="ggn: Gauss-Newton")]
Per = Annotated[Literal["example", "batch"], typer.Option(help="the matrix of each example, or of the mean loss")]
Method = Annotated[Literal["auto", "exact", "sketch", "probe"], typer.Option(help="exact, or sampled in two ways")]
Blocks = Annotated[list[str] | None, typer.Option(metavar="PATTERN", help="only these parameters, such as 'h.0.*'")]
Rtol = Annotated[float | None, typer.Option(metavar="X", help="relative standard error that sampling is to reach")]
Csv = Annotated[str, typer.Option(metavar="FILE", callback=writable_file, help="also save the table as CSV")]
Html = Annotated[str, typer.Option(metavar="FILE", callback=writable_file, help="also save all as one web page")]
Plots = Annotated[str, typer.Option(metavar="DIR", callback=writable_folder, help="also draw figures, as png and svg")]
RESUME = "keep finished trials there; killed and started again, go on where it was"
Resume = Annotated[str, typer.Option(metavar="FILE", callback=writable_file, help=RESUME)]
MaxSpread = Annotated[float | None, typer.Option(metavar="X", min=1, help="exit with 1 if σ² spreads over X times")]
FIT = "also train a copy on the batch, 80 gradients: a loss that stays is a fault"
Fit = Annotated[bool, typer.Option("--fit", help=FIT)]
FailOn = Annotated[Literal["fault", "warning"] | None, typer.Option(help="exit with 1 if a finding is as severe")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Declare the fields of a command's dataclass parameters as options, and call it with the dataclasses."""
    groups, parameters = dict[str, Any](), list[Parameter]()
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            typed = get_type_hints(parameter.annotation, include_extras=True)
            declared = inspect.signature(groups[parameter.name]).parameters.values()
            parameters += [option.replace(annotation=typed[option.name]) for option in declared]
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a command computes, and the seed of everything random."""

    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="where to compute")] = "auto"
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of weights, inputs, loss and directions")] = 0

    @property
    def torch_device(self) -> str:
        """`"cuda"` where there is one and nothing else was asked for."""
        import torch

        return self.device.replace("auto", "cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, kw_only=True)
class Network(Place):
    """The same with the network that MODEL names."""

    dtype: Annotated[Literal["float32", "float64"], typer.Option(help="precision")] = "float32"
    arg: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="of the factory; repeatable")] = None
    evaluate: Annotated[bool, typer.Option("--eval", help="measure as for inference, not as it trains")] = False
    input_size: Annotated[str, typer.Option(help="shape of one input, as in 3,32,32; for text, tokens")] = ""

    def source(self, model: str, *, output: str | int | None = None) -> ModelSource:
        """Find the network that MODEL names."""
        from hessdiag.models.sources import resolve_model

        with redirect_stdout(sys.stderr):
            return resolve_model(model, arguments=self.arguments, input_size=self.shape, output=output)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the factory."""
        return parse_arguments(self.arg or [])

    @property
    def mode(self) -> str:
        """`mode=` of what measures."""
        return "eval" if self.evaluate else "train"

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one input, where it was given."""
        return parse_size(self.input_size) if self.input_size else None


@dataclass(frozen=True, kw_only=True)
class Measured(Network):
    """The same with what the network's outputs are, and how many examples are measured."""

    batch_size: Annotated[int, typer.Option(min=1, max=10**9, help="examples")] = 64
    loss: Annotated[str, typer.Option(help=LOSSES)] = ""
    output: Annotated[str, typer.Option(metavar="NAME[:DIM]", help=OUTPUTS)] = ""

    @property
    def objective(self) -> Any:
        """`loss=` of what measures: a name, or the function of that name."""
        from hessdiag.loading.user_code import load_function

        if ":" not in self.loss:
            return self.loss or None
        loaded = load_function(self.loss, what="--loss")
        return loaded() if isinstance(loaded.function, type) else loaded.function


@dataclass(frozen=True, kw_only=True)
class Subject(Measured):
    """The same with weights and data."""

    init: Annotated[str, typer.Option(metavar="NAME|MOD:FN", help=INITS)] = ""
    weights: Annotated[str, typer.Option(metavar="FILE[:KEY]", help=WEIGHTS)] = ""
    data: Annotated[str, typer.Option(metavar="MOD:FN", help=DATA)] = ""

    def prepare(self, model: str, *, say: Callable[[str], None], **changed: Any) -> tuple[ModelSource, Prepared]:
        """Build the network and a batch; prints of the user's code go to stderr.

        `say` is told what was done with weights and initialisation; `changed` are further settings of `prepare`.
        """
        if self.init and self.weights:
            raise HessdiagError("--init and --weights both say what the weights are: pass one of them")
        output, class_dim = parse_output(self.output)
        source = self.source(model, output=output)
        from hessdiag.loading import prepare as preparation
        from hessdiag.loading.initialisation import AS_BUILT
        from hessdiag.loading.user_code import load_function

        data = load_function(self.data, what="--data") if self.data else None
        own = {key: getattr(self, key) for key in ("weights", "batch_size", "loss", "mode", "seed", "dtype")}
        settings = own | {"init": self.init or AS_BUILT, "data": data, "class_dim": class_dim, "say": say}
        with redirect_stdout(sys.stderr):
            return source, preparation.prepare(source, device=self.torch_device, **(settings | changed))


@dataclass(frozen=True, kw_only=True)
class Curvature:
    """Which matrix is measured, and how."""

    matrix: Matrix = "ggn"
    per: Per = "example"
    method: Method = "auto"
    rtol: Rtol = None
    blocks: Blocks = None
    quick: Annotated[bool, typer.Option("--quick", help="signals and findings alone, no curvature")] = False


def parse_output(text: str) -> tuple[str | int | None, int | None]:
    """Name or position of an output, and the dimension of its classes, each `None` where it is left out.

    >>> parse_output("pooler_output"), parse_output("0:1"), parse_output(":-1")
    (('pooler_output', None), (0, 1), (None, -1))
    """
    name, colon, dim = text.partition(":")
    if colon and not re.fullmatch(r"-?[0-9]", dim):
        raise HessdiagError(f"--output {text!r}: write the dimension of the classes behind the colon, as in :1 or :-1")
    position = len(name) < MAX_DIGITS and re.fullmatch(r"-?[0-9]+", name)
    return int(name) if position else name or None, int(dim) if dim else None


def parse_arguments(texts: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as keyword arguments: values are Python literals, or else text.

    >>> parse_arguments(["depth=3", "sizes=[4, 5]", "norm=layer"])
    {'depth': 3, 'sizes': [4, 5], 'norm': 'layer'}
    """
    arguments: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise HessdiagError(f"--arg {text!r}: write a name and a value, as in --arg depth=3")
        arguments[key] = value
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # which other texts raise
            arguments[key] = ast.literal_eval(value)
    return arguments


def parse_size(text: str) -> tuple[int, ...]:
    """`"3,32,32"` as a tuple.

    >>> parse_size("3,32,32")
    (3, 32, 32)
    """
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() and len(part) < MAX_DIGITS and int(part) > 0 for part in parts):
        raise HessdiagError(f"--input-size {text!r}: write positive sizes as in 3,32,32")
    return tuple(int(part) for part in parts)
