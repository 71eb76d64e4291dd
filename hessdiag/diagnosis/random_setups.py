"""Random trials of one network, new weights, inputs and loss each time, and initialisations compared by them."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import as_device, as_dtype, check_kind, check_options, check_path, check_whole
from hessdiag.diagnosis.diagnose import diagnose, diagnose_prepared
from hessdiag.errors import HessdiagError
from hessdiag.init import SCHEMES
from hessdiag.loading.initialisation import AS_BUILT, Scheme, name_of
from hessdiag.loading.models import Model, ModelSource, resolve_model
from hessdiag.loading.prepare import prepare
from hessdiag.parallel.processes import ALONE, Processes, default_group
from hessdiag.parallel.progress import Progress, showing
from hessdiag.parallel.trials import TrialFile, measure_trials
from hessdiag.results.init_check import InitCheck, SchemeCheck, ranked
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.setups import Setups

CURVATURE_ALONE = {"signals": False}  # one trial is none to diagnose
FIXED = ("targets", "seed", "distributed", "progress")  # arguments of `diagnose` that a trial decides itself


@dataclass(frozen=True, kw_only=True)
class RandomTrials:
    """Random trials of one network: trial s has seed `seed + s`, from which everything in it follows.

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

    def measure(self, *, file: TrialFile | None = None, processes: Processes = ALONE) -> list[tuple[Report, str]]:
        """Diagnose every trial; return its report, and what a user's initialisation was called with."""
        asked = {"loss": self.loss, "class_dim": self.class_dim, **CURVATURE_ALONE, **self.options}
        name = f"{self.source.name} {name_of(self.init)} batch {self.batch_size}"
        name += f" {self.device} {self.dtype} {asked}"
        seeds = range(self.seed, self.seed + self.setups)
        found = measure_trials(name, seeds, self._measure, file=file, processes=processes)
        return [(Report.from_json(each["report"]), each["convention"]) for each in found]

    def reports(self, *, file: TrialFile | None = None, processes: Processes = ALONE) -> list[Report]:
        """Diagnose every trial."""
        return [report for report, _ in self.measure(file=file, processes=processes)]

    def _measure(self, seed: int) -> dict[str, str]:
        keys = ("source", "batch_size", "init", "loss", "class_dim", "device", "dtype")
        prepared = prepare(**{key: getattr(self, key) for key in keys}, seed=seed)
        options: dict[str, Any] = {**CURVATURE_ALONE, **self.options}
        report = diagnose_prepared(prepared, self.source, loss=self.loss, seed=seed, progress=False, **options)
        return {"report": report.to_json(), "convention": prepared.convention}


def measure_setups(
    source: Model,
    *,
    setups: int = 20,
    batch_size: int = 64,
    init: Scheme = AS_BUILT,
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    resume: str | os.PathLike[str] | None = None,
    distributed: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Setups:
    """Diagnose `setups` random networks, each on its own random batch and with its own random loss.

    Args:
        source: what `hessdiag.models.resolve_model` takes or returns, or a function that builds a network.
        setups: how many; trial s has seed `seed + s`.
        batch_size: examples of each.
        init: an initialisation, see `hessdiag.init.resolve`, or `"as built"`.
        seed, device, dtype: of the first trial; of all.
        resume: file in which finished trials are kept; a killed run that is started again with the same file goes on
            where it was, to the same numbers.
        distributed: share the trials with the other processes of torch.distributed's default group.
        progress: as in `hessdiag.diagnose`, of the trials.
        options: of `hessdiag.diagnose`, such as `matrix="hessian"`.

    Raises:
        HessdiagError: an argument cannot be used.
    """
    given: dict[str, Any] = {key: options.pop(key) for key in ("loss", "class_dim") if key in options}
    given |= {"setups": setups, "batch_size": batch_size, "seed": seed, "device": device, "dtype": dtype}
    planned = RandomTrials(source=resolve_model(source), init=init, options=options, **given)
    processes = default_group() if distributed else ALONE
    file = trial_file(resume, {"model": planned.source.name}, [planned.source.name, init], processes)
    with showing(progress, title=f"measuring {planned.source.name}", total=setups):
        return Setups.collect(planned.reports(file=file, processes=processes))


def trial_file(
    path: str | os.PathLike[str] | None, of: Mapping[str, Any], functions: list[Any], processes: Processes
) -> TrialFile | None:
    """Open a file of trials; None where none is named.

    Args:
        path: the file.
        of: what all of its trials have in common.
        functions: names of functions, as in `"./file.py:function"`: where a file of them is edited, trials are others.
        processes: that measure the trials.
    """
    check_path("resume", path)
    if path is None:
        return None
    files = [Path(name.rpartition(":")[0]) for name in functions if isinstance(name, str)]
    code = {str(file): f"{zlib.crc32(file.read_bytes()):08x}" for file in files if file.is_file()}
    identity = {key: str(value) for key, value in of.items()}
    return TrialFile(path, identity | code, processes)


def diagnose_random(source: ModelSource, *, seed: int = 0, **settings: Any) -> Report:
    """Diagnose one random network on one random batch; everything follows from the seed, on every device alike.

    Args:
        source: the network.
        seed: of weights, inputs, targets and loss.
        settings: of `RandomTrials`, or of `hessdiag.diagnose`.
    """
    own = {f.name for f in fields(RandomTrials)}
    options = {"signals": True} | {key: value for key, value in settings.items() if key not in own}
    mine = {key: value for key, value in settings.items() if key in own}
    return RandomTrials(source=source, setups=1, seed=seed, options=options, **mine).reports()[0]


def check_init(
    init: Scheme,
    *,
    model: Model,
    against: Sequence[Scheme] = tuple(SCHEMES),
    setups: int = 20,
    batch_size: int = 64,
    arguments: Mapping[str, Any] | None = None,
    input_size: tuple[int, ...] | None = None,
    output: str | int | None = None,
    evaluate: bool = False,
    loss: str = "random-quadratic",
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    resume: str | os.PathLike[str] | None = None,
    distributed: bool = False,
    progress: Progress = None,
    **options: Any,
) -> InitCheck:
    """Rank an initialisation among others by how equally curved it makes the layers of a network.

    Set-up s of every initialisation has the seed `seed + s`, hence the same inputs and the same loss.

    Args:
        init: a name (`"fan-in"`), `"./file.py:function"`, or a function of a weight, a module or the model, see
            `hessdiag.loading.initialisation`; `"as built"` leaves the network as its factory makes it.
        model: what `hessdiag.models.resolve_model` takes, what it returns, or a function that builds a network.
        against: initialisations to compare with, likewise.
        setups: random networks under each.
        batch_size: examples of each.
        arguments: keyword arguments of the function that builds the network.
        input_size: shape of one example, where the network does not say.
        output: name or position of the output to measure, where the network returns several.
        evaluate: put the networks in evaluation mode, for a function that builds them in training mode.
        loss, seed, device, dtype, resume, distributed, progress: as of `hessdiag.measure_setups`.
        options: of `hessdiag.diagnose`, such as `method` or `matrix`.

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
    schemes = _without_repeats(init, against)
    shared: dict[str, Any] = {"setups": setups, "batch_size": batch_size, "loss": loss, "seed": seed}
    shared |= {"device": device, "dtype": dtype, "class_dim": options.pop("class_dim", None), "options": options}
    check_kind("arguments", {} if arguments is None else arguments, Mapping, "pass a dict, such as {'bias': False}")
    given = dict(arguments or {})
    asked: dict[str, Any] = {"input_size": input_size, "evaluate": evaluate, "output": output}
    source = resolve_model(model, arguments=given, **asked)
    plans = [RandomTrials(source=source, init=scheme, **shared) for scheme in schemes]
    processes = default_group() if distributed else ALONE
    of = {"model": source.name, "arguments": given, **asked}
    file = trial_file(resume, of, [source.name, *schemes], processes)
    with showing(progress, title=f"measuring {source.name}", total=setups * len(plans)):
        measured = [check_scheme(each, file, processes) for each in plans]
    return InitCheck(init=name_of(init), schemes=ranked(measured))


def check_scheme(planned: RandomTrials, file: TrialFile | None = None, processes: Processes = ALONE) -> SchemeCheck:
    """Measure the trials of one initialisation."""
    found = planned.measure(file=file, processes=processes)
    reports = [report for report, _ in found]
    seen = [[block for block in report.weights if not math.isnan(block.x_sq)] for report in reports]
    return SchemeCheck(
        convention=found[-1][1],
        setups=Setups.collect(reports),
        layers=tuple(block.name.removesuffix(".weight") for block in seen[0]),
        forward_sq=np.array([[block.out_sq for block in blocks] for blocks in seen]),
        backward_sq=np.array([[block.out_gradient_sq for block in blocks] for blocks in seen]),
        bias_balance=np.array([_bias_balance(blocks) for blocks in seen]),
        output_sq=np.array([report.output_sq for report in reports]),
        output_variance=np.array([report.output_variance for report in reports]),
    )


def _bias_balance(blocks: Sequence[BlockReport]) -> float:
    """n k² E[x²]² of the first layer: γ of its weight over γ of its bias, had it one (Section 8.1)."""
    return blocks[0].fan_in * math.prod(blocks[0].kernel) * blocks[0].x_sq ** 2 if blocks else math.nan


def _without_repeats(init: Scheme, against: Sequence[Scheme]) -> list[Scheme]:
    """All initialisations to measure, the checked one first."""
    schemes = [init, *(scheme for scheme in dict.fromkeys(against) if scheme != init)]
    names = [name_of(scheme) for scheme in schemes]
    for name in names:
        if names.count(name) > 1:
            raise HessdiagError(f"two initialisations are called {name!r}: rename one of the functions")
    return schemes
