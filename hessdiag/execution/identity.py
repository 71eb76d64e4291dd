"""What a measurement is of, as short digests: the same weights, data and settings give the same numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch

LENGTH = 16  # bytes of a digest
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object without a text of its own: new in every process


def digest_of_model(model: nn.Module) -> str:
    """Of the names and values of all parameters and buffers, and of the modes and texts of the modules."""
    modes = "".join(f"{name}{module.training}" for name, module in model.named_modules())
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return _digest([ADDRESS.sub("", repr(model)), modes, *(part for name, value in tensors for part in (name, value))])


def digest_of_loss(loss: str | Callable[..., Any]) -> str:
    """Of its name, and of the code of a function: not of what the code calls."""
    if isinstance(loss, str):
        return loss
    name = getattr(loss, "__qualname__", type(loss).__qualname__)
    code = getattr(loss, "__code__", None)
    told = "" if code is None else f"{code.co_code.hex()}{code.co_names}{code.co_consts}"
    return _digest([name, ADDRESS.sub("", told if code else repr(loss))])


def digest_of_batch(batch: Batch) -> str:
    """Of all inputs and targets."""
    values = (*batch.args, *batch.kwargs, *batch.kwargs.values(), batch.targets)
    return _digest(value if isinstance(value, Tensor) else repr(value) for value in values)


def _digest(parts: Iterable[str | Tensor]) -> str:
    summed = hashlib.blake2b(digest_size=LENGTH)
    for part in parts:
        if isinstance(part, Tensor):
            summed.update(f"{part.dtype}{tuple(part.shape)}".encode())
            values = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            summed.update(values.numpy().data)
        else:
            summed.update(part.encode(errors="surrogatepass"))
    return summed.hexdigest()
