"""The user's model, random state and backend settings come back exactly as they were, also after an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hessdiag.errors import HessdiagError


@contextmanager
def unharmed(model: nn.Module, *, seed: int) -> Iterator[None]:
    """Measure inside this context: gradients on, TF32 off, random state forked; buffers and `.grad` are put back.

    Weights need no copy: nothing in hessdiag writes to them, and a model whose own forward does is refused. Buffers do,
    because a forward pass in training mode updates running statistics.

    Raises:
        HessdiagError: the model's forward pass changed one of its parameters.
    """
    versions = {name: parameter._version for name, parameter in model.named_parameters()}
    held = [(module, dict(module._buffers)) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_without_tf32())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the only attention kernel with second derivatives
        if any(isinstance(module, nn.RNNBase) for module in model.modules()):
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))  # cuDNN's have none
        torch.manual_seed(seed)
        try:
            yield
        finally:
            for module, names in held:  # a forward pass may bind a new tensor to the name
                module._buffers.update(names)
            with torch.no_grad():
                for buffer, saved in buffers:
                    if not torch.equal(buffer, saved):  # leave untouched buffers' version counters alone
                        buffer.copy_(saved)
            for parameter, saved_grad in grads:
                if parameter.grad is not saved_grad:
                    parameter.grad = saved_grad
    for name, parameter in model.named_parameters():
        if parameter._version != versions.get(name, parameter._version):
            raise HessdiagError(
                f"the model's forward pass changes its own parameter {name!r}: measure a copy in eval mode"
            )


@contextmanager
def _without_tf32() -> Iterator[None]:
    """TF32 convolutions are on by default on CUDA and cost three digits."""
    backends: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    saved = [_tf32_setting(backend) for backend in backends]
    for backend, (name, _) in zip(backends, saved, strict=True):
        setattr(backend, name, False if name == "allow_tf32" else "ieee")
    try:
        yield
    finally:
        for backend, (name, value) in zip(backends, saved, strict=True):
            setattr(backend, name, value)


def _tf32_setting(backend: Any) -> tuple[str, Any]:
    """Name and value of the setting; once the newer one was used, torch refuses to read the older."""
    try:
        return "allow_tf32", backend.allow_tf32
    except RuntimeError:
        return "fp32_precision", backend.fp32_precision
