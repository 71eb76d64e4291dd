"""Measure an initialisation against others: the same networks, inputs and losses, only the weights drawn otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hessdiag.diagnosis.random_setups import diagnose_prepared
from hessdiag.diagnosis.signals import measure_signals
from hessdiag.errors import HessdiagError
from hessdiag.init import SCHEMES, Scheme, name_of
from hessdiag.loading.factory import factory_source
from hessdiag.loading.model_source import ModelSource
from hessdiag.loading.model_spec import resolve_model
from hessdiag.loading.prepare import prepare
from hessdiag.results.init_check import KEYS, InitCheck, SchemeCheck, WidthSweep, ranked
from hessdiag.results.setups import Setups
from hessdiag.user_code.named_function import NamedFunction

Model = str | ModelSource | Callable[..., Any]


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
    loss: str = "random-quadratic",
    seed: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Callable[[], None] = lambda: None,
    **options: Any,
) -> InitCheck:
    """Rank an initialisation among others by how equally curved it makes the layers of a network.

    Set-up s of every initialisation has the seed `seed + s`, hence the same inputs and the same loss.

    Args:
        init: a name (`"fan-in"`), `"./file.py:function"`, or a function that fills a weight or sets a layer, see
            `hessdiag.user_code.custom_init`; `"as built"` leaves the network as its factory makes it.
        model: what `hessdiag.models.resolve_model` takes, what it returns, or a function that builds a network.
        against: initialisations to compare with, likewise.
        setups: random networks under each.
        batch_size: examples of each.
        widths: factors on the width for a sweep with `init`; the factory must take the argument `width`.
        arguments: keyword arguments of the function that builds the network.
        input_size: shape of one example, where the network does not say.
        loss, seed, device, dtype: as of `hessdiag.measure_setups`.
        progress: called after each set-up; there are `setups` of them for each initialisation and each width.
        options: of `hessdiag.diagnose`, such as `method` or `matrix`.

    Returns:
        An `InitCheck`; printing it shows the table and the verdict.

    Raises:
        HessdiagError: an argument cannot be used; two initialisations have one name.

    >>> check = check_init("fan-in", model="mlp:8-8-4", against=["geometric"], setups=2, batch_size=4)
    >>> sorted(scheme.init for scheme in check.schemes)
    ['fan-in', 'geometric']
    """
    if setups < 1:
        raise HessdiagError(f"{setups} set-ups: ask for at least 1")
    for width in widths:
        if not 0 < width < float("inf"):
            raise HessdiagError(f"width {width:g}: pass positive factors, as in 0.5,1,2,4")
    schemes = _without_repeats(init, against)
    shared: dict[str, Any] = {
        "setups": setups,
        "batch_size": batch_size,
        "loss": loss,
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "progress": progress,
        **options,
    }
    shared.setdefault("noise_scale", False)
    given = dict(arguments or {})
    sources = [_source(model, given | {"width": width}, input_size) for width in widths]  # refused before measuring
    source = _source(model, given, input_size)
    measured = [check_scheme(source, scheme, **shared) for scheme in schemes]
    wider = [check_scheme(each, init, **shared) for each in sources]
    sweep = _sweep(widths, wider) if wider else None
    return InitCheck(init=name_of(init), schemes=ranked(measured), widths=sweep)


def check_scheme(
    source: ModelSource,
    init: Scheme,
    *,
    setups: int,
    batch_size: int,
    loss: str,
    seed: int,
    device: str,
    dtype: torch.dtype,
    progress: Callable[[], None],
    **options: Any,
) -> SchemeCheck:
    """Set-ups of one initialisation."""
    reports, signals = [], []
    for number in range(seed, seed + setups):
        prepared = prepare(source, batch_size=batch_size, init=init, loss=loss, seed=number, device=device, dtype=dtype)
        reports.append(diagnose_prepared(prepared, source, loss=loss, seed=number, **options))
        signals.append(measure_signals(prepared.module, prepared.batch, loss=loss, seed=number))
        progress()
    return SchemeCheck(
        setups=Setups.collect(reports),
        layers=signals[0].layers,
        forward_sq=np.array([s.forward_sq for s in signals]),
        backward_sq=np.array([s.backward_sq for s in signals]),
        bias_balance=np.array([s.bias_balance for s in signals]),
        output_sq=np.array([s.output_sq for s in signals]),
        output_variance=np.array([s.output_variance for s in signals]),
    )


def _without_repeats(init: Scheme, against: Sequence[Scheme]) -> list[Scheme]:
    """All initialisations to measure, the checked one first."""
    schemes = [init, *(scheme for scheme in dict.fromkeys(against) if scheme != init)]
    names = [name_of(scheme) for scheme in schemes]
    for name in names:
        if names.count(name) > 1:
            raise HessdiagError(f"two initialisations are called {name!r}: rename one of the functions")
    return schemes


def _source(model: Model, arguments: Mapping[str, Any], input_size: tuple[int, ...] | None) -> ModelSource:
    if isinstance(model, ModelSource):
        if arguments or input_size:
            raise HessdiagError("a ModelSource takes no widths, arguments or input_size: pass a name or a function")
        return model
    if isinstance(model, str):
        return resolve_model(model, arguments=arguments, input_size=input_size)
    if isinstance(model, nn.Module):
        raise HessdiagError("model is a network that is already built: pass a function that builds it afresh")
    named = NamedFunction("model", getattr(model, "__name__", repr(model)), model)
    return factory_source(named, arguments=arguments, input_size=input_size)


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
