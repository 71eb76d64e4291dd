"""Measure many random set-ups of one network, and build the random networks and batches they consist of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag import init as initialisations
from hessdiag.diagnosis import diagnose
from hessdiag.errors import HessdiagError
from hessdiag.models import ModelSource
from hessdiag.report import Report
from hessdiag.seeds import stream
from hessdiag.setups import Setups

AS_BUILT = "as built"
RANDOM_DATA = "random normal"


def measure_setups(
    source: ModelSource,
    *,
    setups: int,
    batch_size: int,
    init: str = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Callable[[], None] = lambda: None,
    **options: Any,
) -> Setups:
    """Diagnose `setups` random networks, each on its own random batch and with its own random loss.

    Args:
        source: the network; see `hessdiag.models.resolve_model`.
        setups: how many; set-up s has seed `seed + s`.
        batch_size: examples of each.
        init: name of an initialisation, or `"as built"`.
        seed, device, dtype: of the first set-up; of all.
        progress: called after each set-up.
        options: of `hessdiag.diagnose`, such as `matrix="hessian"`.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    if setups < 1:
        raise HessdiagError(f"{setups} set-ups: ask for at least 1")
    reports = []
    for number in range(seed, seed + setups):
        reports.append(
            diagnose_random(
                source, batch_size=batch_size, init=init, seed=number, device=device, dtype=dtype, **options
            )
        )
        progress()
    return Setups.collect(reports)


def diagnose_random(
    source: ModelSource,
    *,
    batch_size: int,
    init: str = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    loss: str = "random-quadratic",
    **options: Any,
) -> Report:
    """Diagnose one random network on one random batch; everything follows from the seed, on every device alike."""
    model = random_network(source, init=init, seed=seed).to(device, dtype)
    inputs, targets = random_batch(model, source, batch_size=batch_size, loss=loss, seed=seed)
    report = diagnose(model, inputs, targets, loss=loss, seed=seed, **options)
    return replace(report, model=source.name, init=init, data=RANDOM_DATA)


def random_network(source: ModelSource, *, init: str, seed: int) -> nn.Module:
    """A new network from a seed; torch's global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "network").initial_seed())
        model = source.build()
    if init != AS_BUILT:
        initialisations.apply(model, init, generator=stream(seed, "weights"))
    return model


def random_batch(
    model: nn.Module, source: ModelSource, *, batch_size: int, loss: str, seed: int
) -> tuple[Tensor, Tensor | None]:
    """Inputs from N(0, 1), and random targets where the loss compares with some: labels, or values from N(0, 1)."""
    if batch_size < 1:
        raise HessdiagError(f"batch size {batch_size}: ask for at least 1 example")
    like = next(model.parameters())
    inputs = torch.randn(batch_size, *source.input_size, generator=stream(seed, "inputs")).to(like)
    if loss not in ("cross-entropy", "mse"):
        return inputs, None
    with torch.no_grad():
        shape = model(inputs[:1]).shape[1:]
    generator = stream(seed, "targets")
    if loss == "mse":
        return inputs, torch.randn(batch_size, *shape, generator=generator).to(like)
    classes = math.prod(shape[:1])
    return inputs, torch.randint(classes, (batch_size, *shape[1:]), generator=generator).to(like.device)
