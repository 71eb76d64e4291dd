"""A model in training as a function of one example: dropout off, batch normalisation with statistics held fixed.

The curvature of one example's loss does not exist while batch normalisation mixes examples. The statistics of the
batch, as training uses them, are measured once and held fixed; running ones lag behind, and before the first step they
normalise nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hessdiag.data.batch import Batch
from hessdiag.network.preserve import preserve_state

Buffers = Mapping[nn.Module, Mapping[str, Tensor | None]]


@contextmanager
def evaluation_mode(model: nn.Module, batch: Batch, *, seed: int = 0) -> Iterator[None]:
    """Switch all modules to evaluation mode in this context; modes, buffers and random state are put back.

    Batch normalisations that are in training mode get the mean and variance of the batch as running statistics. With
    synchronised ones, whose forward pass waits for other processes, the running statistics stay. A forward function
    that accelerate has wrapped in autocast makes room for the one that it wraps.

    Args:
        model: measured in this context.
        batch: the whole batch of the training step.
        seed: of a forward pass that draws.
    """
    modes = {module: module.training for module in model.modules()}
    norms = [module for module in modes if _normalises_by_batch(module)]
    held = {norm: dict(norm._buffers) for norm in norms}
    wrapped = {module: vars(module)["forward"] for module in modes if _is_wrapped(module)}
    states = random.getstate(), np.random.get_state()  # noqa: NPY002, the user's
    try:
        for module in modes:
            module.training = False  # not eval(), which models override
        for module in wrapped:
            vars(module)["forward"] = vars(module)["_original_forward"]
        if norms and not any(isinstance(module, nn.SyncBatchNorm) for module in modes):
            for norm, buffers in held.items():  # copies: training may be between a forward and a backward pass
                norm._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})
            for norm, statistics in _statistics(model, norms, batch, seed).items():
                norm._buffers.update(statistics)
        yield
    finally:
        for norm, buffers in held.items():
            norm._buffers.update(buffers)
        for module, forward in wrapped.items():
            vars(module)["forward"] = forward
        for module, training in modes.items():
            module.training = training
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _normalises_by_batch(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and module.training and module.running_mean is not None


def _is_wrapped(module: nn.Module) -> bool:
    """By `Accelerator.prepare`, for mixed precision."""
    return "forward" in vars(module) and "_original_forward" in vars(module)


def _statistics(model: nn.Module, norms: list[nn.Module], batch: Batch, seed: int) -> Buffers:
    """Means and variances of the batch at every normalisation."""
    with preserve_state(model, seed=seed), torch.no_grad():
        for norm in norms:
            norm.training = True
            norm.momentum = 1.0  # type: ignore[assignment]
        model(*batch.args, **batch.kwargs)
        names = ("running_mean", "running_var")
        return {norm: {name: norm.get_buffer(name).clone() for name in names} for norm in norms}
