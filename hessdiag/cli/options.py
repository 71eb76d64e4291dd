"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import ast
import os
import re
import sys
from contextlib import redirect_stdout
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessdiag.cli.progress_bar import note_quiet, say
from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    import torch

    from hessdiag.loading.models import ModelSource
    from hessdiag.loading.prepare import Prepared

MAX_DIGITS = 10
MODELS = (
    "lenet, alexnet, resnet50, mlp:784-384-64-10, package.module:factory, ./file.py:factory, hf:CONFIG.json, timm:NAME"
    " or torchvision:NAME"
)
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODELS)]
Arg = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="KEY=VALUE", help="argument of the factory, a Python literal or text; repeatable"),
]
Init = Annotated[
    str,
    typer.Option(
        metavar="NAME|MOD:FN", help="fan-in, fan-out, arithmetic, geometric or ./file.py:function  [default: as built]"
    ),
]
Weights = Annotated[
    str, typer.Option(metavar="FILE", help="load weights: .safetensors, or a state_dict that torch.save wrote")
]
Data = Annotated[
    str,
    typer.Option(metavar="MOD:FN", help="function that returns inputs or (inputs, targets)  [default: random]"),
]
InChannels = Annotated[int | None, typer.Option(help="input channels of lenet  [default: 3]")]
Eval = Annotated[
    bool, typer.Option("--eval", help="put the network in evaluation mode: no dropout, running batch statistics")
]
WeightsKey = Annotated[
    str, typer.Option(metavar="KEY", help="entry of --weights that holds the network, as in ema  [default: found]")
]
InputSize = Annotated[
    str, typer.Option(help="shape of one input, as in 3,32,32; for text, tokens  [default: the model's own]")
]
BatchSize = Annotated[int, typer.Option(help="examples")]
Loss = Annotated[str, typer.Option(help="random-quadratic, cross-entropy or mse")]
ClassDim = Annotated[
    int | None,
    typer.Option(
        metavar="DIM", help="dimension of the classes in the outputs: 1, or -1 for (batch, positions, classes)"
    ),
]
Output = Annotated[str, typer.Option(metavar="NAME|INDEX", help="which output, of a model that returns several")]
Matrix = Annotated[str, typer.Option(help="ggn or hessian")]
Per = Annotated[str, typer.Option(help="example: each example's own matrix, averaged; batch: that of the mean loss")]
Method = Annotated[str, typer.Option(help="auto, exact, sketch or probe")]
Rtol = Annotated[float, typer.Option(help="relative standard error at which probing stops")]
MaxProducts = Annotated[int, typer.Option(help="matrix-vector products that probing may spend on a block")]
MaxMemory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="memory to measure in, as 4GiB  [default: half of what is free]"),
]
Batches = Annotated[
    str, typer.Option(metavar="N|all", help="how many batches of --data to read, whole and weighted by their examples")
]
RELATIVE = "of --plots: draw each map over the geometric mean of its diagonal, on a scale around 1"
Relative = Annotated[bool, typer.Option("--relative", help=RELATIVE)]
Resume = Annotated[
    str, typer.Option(metavar="FILE", help="keep finished work there; killed and started again, go on where it was")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Dtype = Annotated[str, typer.Option(help="float32 or float64")]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", callback=note_quiet, help="print the conclusion alone, and nothing on stderr but errors"
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="leave nothing out: all columns, findings and omissions, by name")
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of weights, inputs, loss and probes")]


class Detail(Enum):
    """How much of a result is printed, as `text(detail)` of a result takes it."""

    BRIEF = "brief"
    TABLE = "table"
    WHOLE = "whole"


def choose_detail(*, quiet: bool, verbose: bool) -> Detail:
    """What `--quiet` and `--verbose` ask for."""
    if quiet and verbose:
        raise HessdiagError("--quiet and --verbose ask for opposites: pass one of them")
    return Detail.BRIEF if quiet else Detail.WHOLE if verbose else Detail.TABLE


def model_source(
    model: str,
    *,
    in_channels: int | None,
    input_size: str,
    arg: list[str] | None,
    output: str = "",
    evaluate: bool = False,
) -> ModelSource:
    """The network that MODEL and its options ask for."""
    from hessdiag.loading.models import resolve_model

    size = parse_size(input_size) if input_size else None
    arguments = parse_arguments(arg or []) | ({} if in_channels is None else {"in_channels": in_channels})
    return resolve_model(model, arguments=arguments, input_size=size, output=parse_output(output), evaluate=evaluate)


def prepare(
    source: ModelSource, *, weights: str, weights_key: str = "", data: str, init: str, **settings: Any
) -> Prepared:
    """Network and batch, from the texts of `--weights`, `--data` and `--init`; prints of the model go to stderr."""
    if init and weights:
        raise HessdiagError("--init and --weights both say what the weights are: pass one of them")
    if weights_key and not weights:
        raise HessdiagError(f"--weights-key {weights_key!r} is an entry of --weights: pass that too")
    from hessdiag.loading import prepare as preparation
    from hessdiag.loading.initialisation import AS_BUILT
    from hessdiag.loading.user_code import load_function
    from hessdiag.loading.weights import read_checkpoint

    with redirect_stdout(sys.stderr):
        return preparation.prepare(
            source,
            init=init or AS_BUILT,
            checkpoint=read_checkpoint(weights, key=weights_key) if weights else None,
            data=load_function(data, what="--data") if data else None,
            say=say,
            **settings,
        )


def parse_output(text: str) -> str | int | None:
    """A name, a position, or `None` for the empty text.

    >>> parse_output("pooler_output"), parse_output("-1"), parse_output("")
    ('pooler_output', -1, None)
    """
    if len(text) < MAX_DIGITS and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text or None


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
        if key in arguments:
            raise HessdiagError(f"--arg {text!r}: {key} was given twice")
        try:
            arguments[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # what it raises for other texts
            arguments[key] = value
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


def parse_batches(text: str, *, data: str) -> int | None:
    """A number of batches, or `None` for `all`.

    >>> parse_batches("12", data="d:f")
    12
    """
    if text != "1" and not data:
        raise HessdiagError(f"--batches {text!r}: random inputs are one batch; pass --data, or a larger --batch-size")
    if text == "all":
        return None
    if not (text.isdecimal() and 0 < len(text) < MAX_DIGITS and int(text) > 0):
        raise HessdiagError(f"--batches {text!r}: write a number of at least 1, or all")
    return int(text)


def parse_memory(text: str) -> int | None:
    """Bytes of a text such as 4GiB, 500M or 2000000; the empty text is `None`.

    >>> parse_memory("2GiB")
    2147483648
    """
    from hessdiag.execution.memory import as_bytes

    return as_bytes(text) if text else None


def check_file(path: str) -> None:
    """Refuse before measuring what could not be saved after it."""
    folder = Path(path).parent
    if path and not folder.is_dir():
        raise HessdiagError(f"cannot write {path!r}: there is no folder {str(folder)!r}")
    if path and Path(path).is_dir():
        raise HessdiagError(f"cannot write {path!r}: it is a folder, name a file in it")
    if path and not os.access(folder, os.W_OK):
        raise HessdiagError(f"cannot write {path!r}: the folder {str(folder)!r} is not writable")


def check_plots(path: str, *, relative: bool = False) -> None:
    """As `check_file`, for a folder that is made only when there is something to draw; `relative` needs one."""
    if relative and not path:
        raise HessdiagError("--relative is of the figures: name a folder for them with --plots")
    if path:
        nearest = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
        if not nearest.is_dir():
            raise HessdiagError(f"--plots {path!r}: {str(nearest)!r} is a file, name a folder")


def resolve_device(name: str) -> str:
    """`"cuda"` where there is one and nothing else was asked for."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise HessdiagError(f"--device {name!r}: use auto, cpu or cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HessdiagError("--device cuda: torch finds no CUDA device here; use --device cpu")
    return "cuda" if name == "auto" and available else name.replace("auto", "cpu")


def resolve_dtype(name: str) -> torch.dtype:
    """The floating-point type of that name."""
    import torch

    known = {"float32": torch.float32, "float64": torch.float64}
    if name not in known:
        raise HessdiagError(f"--dtype {name!r}: use float32 or float64")
    return known[name]
