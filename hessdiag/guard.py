"""The user's model, random state and backend settings come back exactly as they were, also after an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn


@contextmanager
def unharmed(model: nn.Module, *, seed: int) -> Iterator[None]:
    """Measure inside this context: gradients on, TF32 off, random state forked; buffers and `.grad` are put back.

    Weights need no copy: nothing in hessdiag writes to them. Buffers do, because a forward pass in training mode
    updates running statistics.
    """
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_without_tf32())
        torch.manual_seed(seed)
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, saved in buffers:
                    if not torch.equal(buffer, saved):  # leave untouched buffers' version counters alone
                        buffer.copy_(saved)
            for parameter, saved_grad in grads:
                if parameter.grad is not saved_grad:
                    parameter.grad = saved_grad


@contextmanager
def _without_tf32() -> Iterator[None]:
    """TF32 convolutions are on by default on CUDA and cost three digits."""
    saved = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = saved
