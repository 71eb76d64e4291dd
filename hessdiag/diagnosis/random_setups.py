"""Measure many random set-ups of one network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.errors import HessdiagError
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.loading.model_source import ModelSource
from hessdiag.loading.prepare import AS_BUILT, Prepared, prepare
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups


def measure_setups(
    source: ModelSource,
    *,
    setups: int,
    batch_size: int,
    init: str = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    work: Work = ALL_HERE,
    **options: Any,
) -> Setups:
    """Diagnose `setups` random networks, each on its own random batch and with its own random loss.

    Args:
        source: the network; see `hessdiag.models.resolve_model`.
        setups: how many; set-up s has seed `seed + s`.
        batch_size: examples of each.
        init: an initialisation, see `hessdiag.init.resolve`, or `"as built"`.
        seed, device, dtype: of the first set-up; of all.
        work: carries out the set-ups, of which each is a unit.
        options: of `hessdiag.diagnose`, such as `matrix="hessian"`.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    options.setdefault("noise_scale", False)  # a set-up's share of it is too small to tell anything
    if setups < 1:
        raise HessdiagError(f"{setups} set-ups: ask for at least 1")

    def measure(number: int) -> Result:
        report = diagnose_random(
            source, batch_size=batch_size, init=init, seed=number, device=device, dtype=dtype, **options
        )
        return {"report": np.array(report.to_json())}

    found = work.each(f"{source.name} {init} batch {batch_size} {options} set-up", range(seed, seed + setups), measure)
    return Setups.collect(Report.from_json(str(result["report"])) for result in found)


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
