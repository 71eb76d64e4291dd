"""What a measurement is of, as short digests: the same weights, data, code and settings give the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.execution.digests import ADDRESS, LENGTH, bytes_of, digest_of, parts_of
from hessdiag.network.preserve import preserve_state

FEW = 2  # examples of a probe
UNREPEATABLE = "differs from call to call"


def digest_of_model(model: nn.Module) -> str:
    """Of the names and values of all parameters and buffers, and of the modes and texts of the modules."""
    modes = "".join(f"{name}{module.training}" for name, module in model.named_modules())
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return _digest([ADDRESS.sub("", repr(model)), modes, *(part for name, value in tensors for part in (name, value))])


def digest_of_code(model: nn.Module) -> str:
    """Of the classes of all modules: their methods, and what these call and read; see `hessdiag.execution.digests`."""
    return digest_of(type(module) for module in model.modules())


def digest_of_attributes(model: nn.Module) -> str:
    """Of what the modules hold beside parameters and buffers, whether their texts show it or not."""
    known = [*model.modules(), *model.parameters(), *model.buffers()]
    return digest_of((parts_of(module) for module in model.modules()), known=known)


def digest_of_loss(loss: str | Callable[..., Any]) -> str:
    """Of its name, or of the code of a function, what it calls and what it reads."""
    return loss if isinstance(loss, str) else digest_of([loss])


def digest_of_batch(batch: Batch) -> str:
    """Of all inputs and targets."""
    values = (*batch.args, *batch.kwargs, *batch.kwargs.values(), batch.targets)
    return _digest(value if isinstance(value, Tensor) else repr(value) for value in values)


def digest_of_outputs(model: nn.Module, batch: Batch, *, seed: int) -> str:
    """Of the outputs for the first few examples, bit for bit; the model is left as it was.

    They tell what no reading of code does. One thread computes them, because sums round otherwise with more. A model
    whose outputs are others each time has none to be known by.
    """

    def outputs() -> str:
        with preserve_state(model, seed=seed), torch.no_grad(), _repeatably():
            return _digest([batch.narrow(0, FEW).call(model)])

    found = outputs()
    return found if found == outputs() else UNREPEATABLE


@contextmanager
def _repeatably() -> Iterator[None]:
    """Compute in one thread, and by the deterministic algorithms of cuDNN."""
    cudnn = torch.backends.cudnn
    threads, benchmark, deterministic = torch.get_num_threads(), cudnn.benchmark, cudnn.deterministic
    try:
        torch.set_num_threads(1)
        cudnn.benchmark, cudnn.deterministic = False, True
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.benchmark, cudnn.deterministic = benchmark, deterministic


def _digest(parts: Iterable[str | Tensor]) -> str:
    summed = hashlib.blake2b(digest_size=LENGTH)
    for part in parts:
        if isinstance(part, Tensor):
            summed.update(f"{part.dtype}{tuple(part.shape)}".encode())
            summed.update(bytes_of(part))
        else:
            summed.update(part.encode(errors="surrogatepass"))
    return summed.hexdigest()
