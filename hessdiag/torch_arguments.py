"""Networks, tensors, devices and types that callers pass, or something else in their place."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import kind_of
from hessdiag.errors import HessdiagError

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def check_model(model: Any) -> None:
    """Refuse what is not a built network.

    Raises:
        HessdiagError: it is a class, a name, weights or anything else that is not a `torch.nn.Module`.
    """
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type):
        raise HessdiagError(f"model is the class {model.__name__}: pass an instance, as in {model.__name__}(...)")
    if isinstance(model, str):
        raise HessdiagError(
            f"model is the text {model!r}: pass a torch.nn.Module, such as"
            f" hessdiag.models.resolve_model({model!r}).build().module"
        )
    if hasattr(model, "build"):
        raise HessdiagError(f"model is a {type(model).__name__}: pass what it builds, model.build().module")
    if isinstance(model, Mapping):
        raise HessdiagError("model is a dict: load it into a network with load_state_dict, and pass the network")
    if callable(model):
        name = getattr(model, "__name__", type(model).__name__)
        raise HessdiagError(
            f"model is the function {name}: pass a torch.nn.Module; if it builds one, call it and pass that"
        )
    raise HessdiagError(f"model is {kind_of(model)}: pass a torch.nn.Module")


def as_dtype(dtype: Any) -> torch.dtype:
    """A floating-point type, or the one of that name.

    >>> as_dtype("float64")
    torch.float64
    """
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if found not in DTYPES.values():
        raise HessdiagError(f"dtype {dtype!r}: use {' or '.join(DTYPES)}")
    assert isinstance(found, torch.dtype)
    return found


def as_device(device: Any) -> torch.device:
    """A device that is there.

    >>> as_device("cpu")
    device(type='cpu')
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise HessdiagError(f"device {device!r}: use cpu or cuda") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise HessdiagError("device cuda: torch finds no CUDA device here; use device='cpu'")
    return found


def to_tensor(value: Any, name: str) -> str:
    """What to write to make a tensor of an array or list; empty for anything else.

    >>> to_tensor([1.0, 2.0], "inputs")
    'pass torch.tensor(inputs)'
    """
    if isinstance(value, Tensor):
        return ""
    if type(value).__module__.partition(".")[0] == "numpy":
        return f"pass torch.from_numpy({name})"
    if hasattr(value, "to_numpy"):  # data frames
        return f"pass torch.from_numpy({name}.to_numpy())"
    if hasattr(value, "__array_interface__"):  # images of PIL
        return f"pass torch.from_numpy(numpy.array({name}))"
    if isinstance(value, (list, tuple)) and value:
        if isinstance(value, tuple) and all(isinstance(size, int) for size in value):  # a shape
            return f"pass a tensor, such as torch.randn(64, {', '.join(map(str, value))})"
        first = value[0]
        return f"pass torch.tensor({name})" if isinstance(first, numbers.Real) or to_tensor(first, "") else ""
    return ""
