"""Measure many random set-ups of one network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from hessdiag.diagnosis import diagnose
from hessdiag.errors import HessdiagError
from hessdiag.models import ModelSource
from hessdiag.preparation import AS_BUILT, Prepared, prepare
from hessdiag.report import Report
from hessdiag.setups import Setups


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
        init: an initialisation, see `hessdiag.init.resolve`, or `"as built"`.
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
    prepared = prepare(source, batch_size=batch_size, init=init, loss=loss, seed=seed, device=device, dtype=dtype)
    return diagnose_prepared(prepared, source, loss=loss, seed=seed, **options)


def diagnose_prepared(prepared: Prepared, source: ModelSource, **options: Any) -> Report:
    """Diagnose what `prepare` made of a source; the report says where weights and data came from."""
    report = diagnose(prepared.module, prepared.batches(), **options)
    return replace(report, model=source.name, init=prepared.init, data=prepared.data)
