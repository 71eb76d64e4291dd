"""Measure many random set-ups of one network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import check_options, check_whole
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.execution.digests import digest_of
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.init import resolve
from hessdiag.loading.model_source import ModelSource
from hessdiag.loading.model_spec import Model, as_source
from hessdiag.loading.prepare import AS_BUILT, Prepared, prepare
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups
from hessdiag.torch_arguments import as_device, as_dtype


def measure_setups(
    source: Model,
    *,
    setups: int = 20,
    batch_size: int = 64,
    init: str = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    work: Work = ALL_HERE,
    **options: Any,
) -> Setups:
    """Diagnose `setups` random networks, each on its own random batch and with its own random loss.

    Args:
        source: what `hessdiag.models.resolve_model` takes or returns, or a function that builds a network.
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
    check_whole("setups", setups, least=1)
    check_whole("batch_size", batch_size, least=1)
    check_whole("seed", seed)
    check_options(options, diagnose, fixed=["targets", "seed", "distributed", "resume"])
    source = as_source(source, name="source")
    where, dtype = str(as_device(device)), as_dtype(dtype)

    def measure(number: int) -> Result:
        report = diagnose_random(
            source, batch_size=batch_size, init=init, seed=number, device=where, dtype=dtype, **options
        )
        return {"report": np.array(report.to_json())}

    name = f"{source.name} {init} batch {batch_size} {options}"
    if work.journal is not None:
        name += f" {digest_of([source.build, init if init == AS_BUILT else resolve(init)])}"
    found = work.each(f"{name} set-up", range(seed, seed + setups), measure)
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
    class_dim: int | None = None,
    **options: Any,
) -> Report:
    """Diagnose one random network on one random batch; everything follows from the seed, on every device alike."""
    prepared = prepare(
        source,
        batch_size=batch_size,
        init=init,
        loss=loss,
        class_dim=class_dim,
        seed=seed,
        device=device,
        dtype=dtype,
    )
    return diagnose_prepared(prepared, source, loss=loss, seed=seed, **options)


def diagnose_prepared(prepared: Prepared, source: ModelSource, **options: Any) -> Report:
    """Diagnose what `prepare` made of a source; the report says where weights and data came from."""
    report = diagnose(
        prepared.module, prepared.batches(), class_dim=prepared.class_dim, output=source.output, **options
    )
    return replace(report, model=source.name, init=prepared.init, data=prepared.data)
