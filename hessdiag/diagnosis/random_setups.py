"""Random set-ups of one network: new weights, inputs and loss each time. The only loop over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import as_device, as_dtype, check_options, check_whole
from hessdiag.diagnosis.diagnose import diagnose, diagnose_prepared
from hessdiag.execution.digests import digest_of
from hessdiag.execution.progress import Progress, watched
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.loading.initialisation import AS_BUILT, Scheme, name_of, resolve
from hessdiag.loading.models import Model, ModelSource, resolve_model
from hessdiag.loading.prepare import Prepared, prepare
from hessdiag.results.report import Report
from hessdiag.results.setups import Setups

CURVATURE_ALONE = {"signals": False}  # one set-up is none to diagnose
FIXED = ("targets", "seed", "distributed", "resume")  # arguments of `diagnose` that a set-up decides itself


@dataclass(frozen=True, kw_only=True)
class RandomSetups:
    """Random set-ups of one network: set-up s has seed `seed + s`, from which everything in it follows.

    Attributes:
        source: the network.
        init: an initialisation, see `hessdiag.init.resolve`, or `"as built"`.
        setups, batch_size: how many, and examples of each.
        seed: of the first.
        loss, class_dim, device, dtype: of all.
        options: of `hessdiag.diagnose`, such as `{"matrix": "hessian"}`.

    Raises:
        HessdiagError: a value cannot be used.
    """

    source: ModelSource
    init: Scheme = AS_BUILT
    setups: int = 20
    batch_size: int = 64
    seed: int = 0
    loss: str = "random-quadratic"
    class_dim: int | None = None
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("setups", self.setups, least=1)
        check_whole("batch_size", self.batch_size, least=1)
        check_whole("seed", self.seed)
        check_options(self.options, diagnose, fixed=list(FIXED))
        object.__setattr__(self, "device", str(as_device(self.device)))
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def each(self, work: Work, measure: Callable[[Prepared, int], Result]) -> list[Result]:
        """Measure every set-up, each a unit of work, from what was prepared of it and its seed."""

        def unit(number: int) -> Result:
            prepared = prepare(
                self.source,
                batch_size=self.batch_size,
                init=self.init,
                loss=self.loss,
                class_dim=self.class_dim,
                seed=number,
                device=self.device,
                dtype=self.dtype,
            )
            return measure(prepared, number)

        return work.each(f"{self.name(work)} set-up", range(self.seed, self.seed + self.setups), unit)

    def name(self, work: Work) -> str:
        """Name the units; with their code where a journal keeps them, so that edited code is measured anew."""
        asked = {"loss": self.loss, "class_dim": self.class_dim, **self.options}
        name = f"{self.source.name} {name_of(self.init)} batch {self.batch_size} {self.device} {self.dtype} {asked}"
        if work.journal is None:
            return name
        return f"{name} {digest_of([self.source.build, self.init if self.init == AS_BUILT else resolve(self.init)])}"

    def report(self, prepared: Prepared, seed: int) -> Report:
        """Diagnose one set-up."""
        options = {"progress": False} | self.options  # told by who runs all of them
        return diagnose_prepared(prepared, self.source, loss=self.loss, seed=seed, **options)

    def reports(self, work: Work = ALL_HERE) -> list[Report]:
        """Diagnose all of them."""
        found = self.each(work, lambda prepared, seed: {"report": as_text(self.report(prepared, seed))})
        return [Report.from_json(str(result["report"])) for result in found]


def measure_setups(
    source: Model,
    *,
    setups: int = 20,
    batch_size: int = 64,
    init: Scheme = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    work: Work = ALL_HERE,
    progress: Progress | bool | None = None,
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
        progress: as in `hessdiag.diagnose`, of the set-ups, where `work` does not tell of them.
        options: of `hessdiag.diagnose`, such as `matrix="hessian"`.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    shared = {key: options.pop(key) for key in ("loss", "class_dim") if key in options}
    options = CURVATURE_ALONE | options
    planned = RandomSetups(
        source=resolve_model(source),
        init=init,
        setups=setups,
        batch_size=batch_size,
        seed=seed,
        device=device,
        dtype=dtype,
        options=options,
        **shared,
    )
    if work is not ALL_HERE:
        return Setups.collect(planned.reports(work))
    with watched(progress, title=f"measuring {planned.source.name}", total=setups) as told:
        return Setups.collect(planned.reports(replace(work, progress=told)))


def diagnose_random(source: ModelSource, *, seed: int = 0, **settings: Any) -> Report:
    """Diagnose one random network on one random batch; everything follows from the seed, on every device alike.

    Args:
        source: the network.
        seed: of weights, inputs, targets and loss.
        settings: of `RandomSetups`, or of `hessdiag.diagnose`.
    """
    own = {f.name for f in fields(RandomSetups)}
    options = {key: value for key, value in settings.items() if key not in own}
    mine = {key: value for key, value in settings.items() if key in own}
    return RandomSetups(source=source, setups=1, seed=seed, options=options, **mine).reports()[0]


def as_text(result: Any) -> Any:
    """Return a result as the array of its JSON text, which a journal keeps and ranks exchange."""
    return np.array(result.to_json())
