"""Random trials of one network, new weights, inputs and loss each time, and initialisations compared by them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import as_device, as_dtype, check_kind, check_whole
from hessdiag.diagnosis.diagnose import diagnose_prepared
from hessdiag.errors import HessdiagError
from hessdiag.init import SCHEMES
from hessdiag.loading.initialisation import AS_BUILT, Scheme, name_of
from hessdiag.loading.prepare import prepare, random_network
from hessdiag.loading.user_code import NamedFunction, load_function
from hessdiag.models.sources import Model, ModelSource, resolve_model
from hessdiag.parallel.processes import ALONE, Processes, TrialFile, default_group, measure_trials
from hessdiag.parallel.progress import Progress, showing
from hessdiag.results.report import Report, scale_invariant
from hessdiag.results.setups import InitCheck, SchemeCheck, Setups, ranked


@dataclass(frozen=True, kw_only=True)
class RandomTrials:
    """Random trials of one network: trial s has seed `seed + s`, from which everything in it follows."""

    source: ModelSource
    options: dict[str, Any]  # of `hessdiag.diagnose`, such as `{"matrix": "hessian"}`
    device: str
    dtype: torch.dtype
    init: Scheme = AS_BUILT
    setups: int = 20  # how many
    batch_size: int = 64  # examples of each
    seed: int = 0  # of the first
    loss: Any = "random-quadratic"  # as of `hessdiag.diagnose`
    class_dim: int | None = None
    data: NamedFunction | None = None  # that gives each trial its batch, in place of random inputs

    def __post_init__(self) -> None:
        check_whole("setups", self.setups, least=1)
        check_whole("batch_size", self.batch_size, least=1)
        check_whole("seed", self.seed)

    @classmethod
    def of(cls, source: ModelSource, *, device: Any = "cpu", dtype: Any = "float32", **settings: Any) -> RandomTrials:
        """Sort settings into the attributes of this class and options of `hessdiag.diagnose`."""
        if source.built:
            raise HessdiagError(f"model {source.name!r} is already built, hence no random one: name a function")
        if (data := settings.get("data")) is not None:
            named = isinstance(data, str)
            settings["data"] = (
                load_function(data, what="--data") if named else NamedFunction("data", name_of(data), data)
            )
            settings.setdefault("loss", None)
        own = {f.name: settings.pop(f.name) for f in fields(cls) if f.name in settings}
        options = {"mode": "train", "signals": False, **settings}  # one trial is none to diagnose
        return cls(source=source, options=options, device=str(as_device(device)), dtype=as_dtype(dtype), **own)

    def reports(self, *, file: TrialFile | None = None, processes: Processes = ALONE) -> list[Report]:
        """Diagnose every trial."""
        asked = {"loss": self.loss, "class_dim": self.class_dim, **self.options}
        asked |= {"data": self.data.reference} if self.data else {}
        name = f"{self.source.name} {name_of(self.init)} batch {self.batch_size} {self.device} {self.dtype} {asked}"
        seeds = range(self.seed, self.seed + self.setups)
        return list(map(Report.from_json, measure_trials(name, seeds, self._measure, file=file, processes=processes)))

    def _measure(self, seed: int) -> str:
        keys = ("source", "batch_size", "init", "loss", "class_dim", "device", "dtype", "data")
        how, options = {key: getattr(self, key) for key in keys}, dict(self.options)
        prepared = prepare(**how, mode=options["mode"], seed=seed)
        options["signals"] |= seed == self.seed  # the first says which weights have a scale that matters
        return diagnose_prepared(prepared, self.source, loss=self.loss, seed=seed, progress=False, **options).to_json()


def measure_setups(
    source: Model, *, resume: str | os.PathLike[str] | None = None, distributed: bool = False,
    progress: Progress = None, **settings: Any,
) -> Setups:  # fmt: skip
    """Diagnose random networks, each on its own random batch and with its own random loss.

    Args:
        source: what `hessdiag.models.resolve_model` takes or returns, or a function that builds a network.
        resume: file of finished trials; a killed run that is started again with it goes on, to the same numbers.
        distributed: share the trials with the other processes of torch.distributed's default group.
        progress: as in `hessdiag.diagnose`, of the trials.
        settings: `setups=20`, how many, `batch_size=64`, examples of each, `init="as built"` (see
            `hessdiag.init.resolve`), `seed=0` of the first (trial s has seed `seed + s`), `device`, `dtype`, `data`,
            a function of no arguments that returns a batch, or `"./file.py:function"`, called for each trial, and
            options of `hessdiag.diagnose`, such as `loss`, `matrix="hessian"` and `mode="eval"`.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    planned = RandomTrials.of(resolve_model(source), **settings)
    processes = default_group() if distributed else ALONE
    file = trial_file(resume, {"model": planned.source.name}, [planned.source.name, planned.init], processes)
    title = f"measuring {planned.source.name}, init {name_of(planned.init)}"
    with showing(progress, title=title, total=planned.setups):
        return Setups.collect(planned.reports(file=file, processes=processes))


def trial_file(
    path: str | os.PathLike[str] | None, of: Mapping[str, Any], functions: list[Any], processes: Processes
) -> TrialFile | None:
    """Open a file of trials; None where none is named. `of` is what all share, and the content of `functions`."""
    if path is None:
        return None
    check_kind("resume", path, (str, os.PathLike), "pass the name of a file, as in resume='trials'")
    files = [Path(name.rpartition(":")[0]) for name in functions if isinstance(name, str)]
    code = {str(file): f"{zlib.crc32(file.read_bytes()):08x}" for file in files if file.is_file()}
    return TrialFile(path, {key: str(value) for key, value in of.items()} | code, processes)


def check_init(
    init: Scheme, *, model: Model, against: Sequence[Scheme] = tuple(SCHEMES),
    arguments: Mapping[str, Any] | None = None, resume: str | os.PathLike[str] | None = None, distributed: bool = False,
    progress: Progress = None, **settings: Any,
) -> InitCheck:  # fmt: skip
    """Rank an initialisation among others by how equally curved it makes the layers of a network.

    Set-up s of every initialisation has the seed `seed + s`, hence the same inputs and the same loss.

    Args:
        init: a name (`"fan-in"`), `"./file.py:function"`, or a function of a weight, a module or the model, see
            `hessdiag.loading.initialisation`; `"as built"` leaves the network as its factory makes it.
        model: what `hessdiag.models.resolve_model` takes, what it returns, or a function that builds a network.
        against: initialisations to compare with, likewise.
        arguments: keyword arguments of the function that builds the network.
        resume, distributed, progress: as of `hessdiag.measure_setups`.
        settings: those of `hessdiag.measure_setups`; and of the network `input_size=(3, 32, 32)`, the shape of one
            example, where it does not say, and `output`, a name or position, where it returns several.

    Returns:
        An `InitCheck`; printing it shows the table and the verdict.

    Raises:
        HessdiagError: an argument cannot be used; two initialisations have one name.

    >>> check = check_init("fan-in", model="mlp:8-8-4", against=["geometric"], setups=2, batch_size=4)
    >>> sorted(scheme.init for scheme in check.schemes)
    ['fan-in', 'geometric']
    """
    against = [against] if isinstance(against, str) or callable(against) else against
    check_kind("against", against, (list, tuple), "pass a list of initialisations, such as ['fan-in', 'geometric']")
    schemes = list(dict.fromkeys([init, *against]))
    names = [name_of(scheme) for scheme in schemes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise HessdiagError(f"two initialisations are called {twice[0]!r}: rename one of the functions")
    asked = {key: settings.pop(key, None) for key in ("input_size", "output")}
    source = resolve_model(model, arguments=arguments, **asked)
    plans = [RandomTrials.of(source, init=scheme, **settings) for scheme in schemes]
    processes = default_group() if distributed else ALONE
    of = {"model": source.name, "arguments": dict(arguments or {}), **asked}
    file = trial_file(resume, of, [source.name, *schemes], processes)
    with showing(progress, title=f"measuring {source.name}", total=plans[0].setups * len(plans)):
        measured = [_check_scheme(each, each.reports(file=file, processes=processes)) for each in plans]
    return InitCheck(init=name_of(init), schemes=ranked(measured))


def _check_scheme(plan: RandomTrials, reports: Sequence[Report]) -> SchemeCheck:
    conventions: list[str] = []
    if callable(plan.init) or ":" in plan.init:  # a user's function
        random_network(plan.source, init=plan.init, seed=plan.seed, say=conventions.append)
    square, variance = (np.array([getattr(r, key) for r in reports]) for key in ("output_sq", "output_variance"))
    return SchemeCheck(
        convention="".join(conventions), invariant=scale_invariant(reports[0]), setups=Setups.collect(reports),
        output_sq=square, output_variance=variance,
    )  # fmt: skip
