"""Measure an initialisation against others: the same networks, inputs and losses, only the weights drawn otherwise."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import check_kind
from hessdiag.diagnosis.random_setups import RandomTrials, trial_file
from hessdiag.errors import HessdiagError
from hessdiag.init import SCHEMES
from hessdiag.loading.initialisation import Scheme, name_of
from hessdiag.loading.models import Model, resolve_model
from hessdiag.parallel.processes import ALONE, Processes, default_group
from hessdiag.parallel.progress import Progress, showing
from hessdiag.parallel.trials import TrialFile
from hessdiag.results.init_check import InitCheck, SchemeCheck, ranked
from hessdiag.results.report import BlockReport
from hessdiag.results.setups import Setups


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
        loss, seed, device, dtype: as of `hessdiag.measure_setups`.
        resume: file in which finished trials are kept; a killed run that is started again with the same file goes on
            where it was, to the same numbers.
        distributed: share the trials with the other processes of torch.distributed's default group.
        progress: as in `hessdiag.diagnose`, of the trials: `setups` for each initialisation.
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
