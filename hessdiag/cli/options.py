"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hessdiag.errors import HessdiagError

if TYPE_CHECKING:
    import torch

    from hessdiag.models import ModelSource

Model = Annotated[str, typer.Argument(metavar="MODEL", help="lenet, or widths as in mlp:784-384-64-10")]
InChannels = Annotated[int, typer.Option(help="input channels of lenet")]
InputSize = Annotated[str, typer.Option(help="shape of one input, as in 3,32,32  [default: the model's own]")]
BatchSize = Annotated[int, typer.Option(help="examples")]
Loss = Annotated[str, typer.Option(help="random-quadratic, cross-entropy or mse")]
Matrix = Annotated[str, typer.Option(help="ggn or hessian")]
Per = Annotated[str, typer.Option(help="example: each example's own matrix, averaged; batch: that of the mean loss")]
Method = Annotated[str, typer.Option(help="auto, exact or probe")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Dtype = Annotated[str, typer.Option(help="float32 or float64")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of weights, inputs, loss and probes")]


def model_source(model: str, in_channels: int, input_size: str = "") -> ModelSource:
    """The network to build, with the input size that was asked for."""
    from dataclasses import replace

    from hessdiag.models import resolve_model

    source = resolve_model(model, in_channels=in_channels)
    if not input_size:
        return source
    source = replace(source, input_size=parse_size(input_size))
    _check_input_size(source)
    return source


def _check_input_size(source: ModelSource) -> None:
    """Refuse sizes that the network cannot read, from a forward pass without numbers."""
    import torch

    try:
        with torch.device("meta"):
            source.build()(torch.empty(2, *source.input_size))
    except RuntimeError as error:
        size, why = ",".join(map(str, source.input_size)), str(error).splitlines()[0]
        raise HessdiagError(f"--input-size {size}: {source.name} cannot read such inputs ({why})") from error


def parse_size(text: str) -> tuple[int, ...]:
    """`"3,32,32"` as a tuple.

    >>> parse_size("3,32,32")
    (3, 32, 32)
    """
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise HessdiagError(f"--input-size {text!r}: write positive sizes as in 3,32,32")
    return tuple(int(part) for part in parts)


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
