"""Measure an initialisation against others: the same networks, inputs and losses, only the weights drawn otherwise."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hessdiag.arguments import check_kind, check_number, check_options, check_path, check_whole
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.random_setups import CURVATURE_ALONE, FIXED, RandomSetups, as_text
from hessdiag.errors import HessdiagError
from hessdiag.execution.journal import journal
from hessdiag.execution.progress import watched
from hessdiag.execution.ranks import ALONE, all_ranks
from hessdiag.execution.work import Result, Work
from hessdiag.init import SCHEMES
from hessdiag.loading.initialisation import Scheme, name_of
from hessdiag.loading.models import Model, resolve_model
from hessdiag.loading.prepare import Prepared
from hessdiag.results.init_check import KEYS, InitCheck, SchemeCheck, WidthSweep, ranked
from hessdiag.results.report import BlockReport, Report
from hessdiag.results.setups import Setups


def check_init(
    init: Scheme,
    *,
    model: Model,
    against: Sequence[Scheme] = tuple(SCHEMES),
    setups: int = 20,
    batch_size: int = 64,
    widths: Sequence[float] = (),
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
    progress: Callable[[], None] | bool | None = None,
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
        widths: factors on the width for a sweep with `init`; the factory must take the argument `width`.
        arguments: keyword arguments of the function that builds the network.
        input_size: shape of one example, where the network does not say.
        output: name or position of the output to measure, where the network returns several.
        evaluate: put the networks in evaluation mode, for a function that builds them in training mode.
        loss, seed, device, dtype: as of `hessdiag.measure_setups`.
        resume: file in which finished set-ups are kept; a killed run that is started again with the same file goes on
            where it was, to the same numbers.
        distributed: share the set-ups with the other processes of torch.distributed's default group.
        progress: called after each set-up, of which there are `setups` for each initialisation and each width; else
            as in `hessdiag.diagnose`.
        options: of `hessdiag.diagnose`, such as `method` or `matrix`.

    Returns:
        An `InitCheck`; printing it shows the table and the verdict.

    Raises:
        HessdiagError: an argument cannot be used; two initialisations have one name.

    >>> check = check_init("fan-in", model="mlp:8-8-4", against=["geometric"], setups=2, batch_size=4)
    >>> sorted(scheme.init for scheme in check.schemes)
    ['fan-in', 'geometric']
    """
    check_path("resume", resume)
    check_whole("setups", setups)
    if setups < 1:
        raise HessdiagError(f"{setups} set-ups: ask for at least 1")
    check_kind("widths", widths, (list, tuple, np.ndarray), "pass a list of factors, such as [0.5, 1, 2, 4]")
    for width in widths:
        check_number("width", width, "pass positive factors, such as [0.5, 1, 2, 4]", above=0)
    check_options(options, diagnose, fixed=list(FIXED))
    against = [against] if isinstance(against, str) or callable(against) else against
    check_kind("against", against, (list, tuple), "pass a list of initialisations, such as ['fan-in', 'geometric']")
    schemes = _without_repeats(init, against)
    options = CURVATURE_ALONE | options
    shared: dict[str, Any] = {"setups": setups, "batch_size": batch_size, "loss": loss, "seed": seed}
    shared |= {"device": device, "dtype": dtype, "class_dim": options.pop("class_dim", None), "options": options}
    check_kind("arguments", {} if arguments is None else arguments, Mapping, "pass a dict, such as {'bias': False}")
    given = dict(arguments or {})
    asked: dict[str, Any] = {"input_size": input_size, "evaluate": evaluate, "output": output}
    wide = [given | {"width": width} for width in widths]
    sources = [resolve_model(model, arguments=each, **asked) for each in wide]  # refused before measuring
    source = resolve_model(model, arguments=given, **asked)
    plans = [RandomSetups(source=source, init=scheme, **shared) for scheme in schemes]
    wider = [RandomSetups(source=each, init=init, **shared) for each in sources]
    ranks = all_ranks() if distributed else ALONE
    total = setups * (len(plans) + len(wider))
    with (
        journal(resume, {"check": name_of(init), "seed": str(seed)}) as kept,
        watched(progress, title=f"measuring {source.name}", total=total) as told,
    ):
        work = Work(ranks, kept, lambda step: told())
        measured = [check_scheme(each, work) for each in plans]
        swept = [check_scheme(each, work.within(f"width {w:g}")) for w, each in zip(widths, wider, strict=True)]
    sweep = _sweep(widths, swept) if swept else None
    return InitCheck(init=name_of(init), schemes=ranked(measured), widths=sweep)


def check_scheme(planned: RandomSetups, work: Work) -> SchemeCheck:
    """Measure the set-ups of one initialisation."""

    def measure(prepared: Prepared, seed: int) -> Result:
        return {
            "report": as_text(planned.report(prepared, seed)),
            "convention": np.array(prepared.convention),
        }

    found = planned.each(work, measure)
    reports = [Report.from_json(str(result["report"])) for result in found]
    seen = [[block for block in report.weights if not math.isnan(block.x_sq)] for report in reports]
    return SchemeCheck(
        convention=str(found[-1]["convention"]),
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


def _sweep(widths: Sequence[float], wider: Sequence[SchemeCheck]) -> WidthSweep:
    names = {scheme.setups.names for scheme in wider}
    if len(names) > 1:
        raise HessdiagError("the network has other layers at other widths: there are no lines to draw over widths")
    means = {key: np.stack([scheme.means(key) for scheme in wider]) for key in KEYS}  # (W, L) each
    return WidthSweep(
        widths=tuple(float(width) for width in widths),
        names=names.pop(),
        output_sq=np.array([scheme.output_sq_mean for scheme in wider]),
        **means,
    )
