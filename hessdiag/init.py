"""Initialisations of weights by fan-in, fan-out and their means (Section 6 of arXiv 1906.04267).

| scheme | E[W²] | elsewhere |
|---|---|---|
| fan-in | 2 / (n k²) | Kaiming, `torch.nn.init.kaiming_normal_` with `mode="fan_in"` |
| fan-out | 2 / (n' k²) | Kaiming, `mode="fan_out"` |
| arithmetic | 2 / (½ (n + n') k²) | Xavier, `torch.nn.init.xavier_normal_` with `gain=sqrt(2)` |
| geometric | c / (k √(n n')), c = 2 / (typical k) | nowhere |
| fan-geo-avg | 2 / (k² √(n n')) | JAX, `variance_scaling(2, "fan_geo_avg", "normal")` |

n and n' are the channels that one output reads and that one input feeds, k² the entries of the kernel. Mind the first
power of k in the geometric mean: JAX's has the second, and balances layers only where all kernels have the same size.
Each of the first four has an orthogonal variant (`fan-in-orthogonal`, ...) with the same E[W²].

Groups count once more in the geometric mean. Its purpose is an equal γ = ς / (P E[W²]²) with P the entries of the
weight (Eq. 2), which asks for E[W²] = c / √P. Without groups P = k² n n'; with g groups P = k² n n' g, since n and n'
are those of one group.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import check_kind, is_positive, kind_of
from hessdiag.errors import HessdiagError
from hessdiag.network.layers import (
    CONVOLUTIONS,
    TRANSPOSED,
    fans,
    is_linear,
    settable_layers,
    stores_inputs_first,
)
from hessdiag.suggestions import did_you_mean
from hessdiag.torch_arguments import check_model
from hessdiag.user_code.custom_init import apply_function
from hessdiag.user_code.named_function import NamedFunction, load_function

Scheme = str | Callable[..., object]


def fan_in_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Normal with E[W²] = 2 / (n k²), in place: `torch.nn.init.kaiming_normal_(mode="fan_in")`."""
    return _normal(weight, _fan_in(weight, groups=groups, transposed=transposed), generator)


def fan_out_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Normal with E[W²] = 2 / (n' k²), in place: `torch.nn.init.kaiming_normal_(mode="fan_out")` without groups."""
    return _normal(weight, _fan_out(weight, groups=groups, transposed=transposed), generator)


def arithmetic_mean_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Normal with E[W²] = 2 / (½ (n + n') k²), in place: `torch.nn.init.xavier_normal_(gain=sqrt(2))`, no groups."""
    return _normal(weight, _arithmetic(weight, groups=groups, transposed=transposed), generator)


def geometric_mean_(
    weight: Tensor,
    *,
    c: float = 2.0,
    groups: int = 1,
    transposed: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Normal with E[W²] = c / (k √(n n')) (Eq. 3), in place; with groups c / √(entries of the weight).

    Args:
        weight: (out, in / groups, *kernel), or (in, out / groups, *kernel) with `transposed`.
        c: a constant for the whole network; 2 / (typical k) keeps the signal's size, see `typical_kernel`.
        groups: groups of the convolution.
        transposed: see `fans`; it makes no difference here.
        generator: source of randomness.
    """
    return _normal(weight, _geometric(weight, groups=groups, transposed=transposed, c=c), generator)


def fan_geo_avg_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Normal with E[W²] = 2 / (k² √(n n')), in place: JAX's form, for comparison; see above."""
    return _normal(weight, _fan_geo_avg(weight, groups=groups, transposed=transposed), generator)


def fan_in_orthogonal_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """As `fan_in_`, but (semi-)orthogonal: see `orthogonal_`."""
    return orthogonal_(
        weight, _fan_in(weight, groups=groups, transposed=transposed), groups=groups, generator=generator
    )


def fan_out_orthogonal_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """As `fan_out_`, but (semi-)orthogonal: see `orthogonal_`."""
    return orthogonal_(
        weight, _fan_out(weight, groups=groups, transposed=transposed), groups=groups, generator=generator
    )


def arithmetic_mean_orthogonal_(
    weight: Tensor, *, groups: int = 1, transposed: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """As `arithmetic_mean_`, but (semi-)orthogonal: see `orthogonal_`."""
    return orthogonal_(
        weight, _arithmetic(weight, groups=groups, transposed=transposed), groups=groups, generator=generator
    )


def geometric_mean_orthogonal_(
    weight: Tensor,
    *,
    c: float = 2.0,
    groups: int = 1,
    transposed: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """As `geometric_mean_`, but (semi-)orthogonal: see `orthogonal_`."""
    return orthogonal_(
        weight, _geometric(weight, groups=groups, transposed=transposed, c=c), groups=groups, generator=generator
    )


def orthogonal_(
    weight: Tensor, variance: float, *, groups: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    """A random (semi-)orthogonal matrix in every group, scaled so that the mean of W² is `variance` exactly, in place.

    The matrix of a group has its first dimension as rows and all others as columns. A semi-orthogonal r x s matrix has
    min(r, s) rows or columns of unit length, hence the mean square 1 / max(r, s). "Ensuring the input-output second
    moment scaling is equal to the scaling required by our theory" (Section 6.2 of arXiv 1906.04267).

    >>> W = orthogonal_(torch.empty(2, 8), 0.5)
    >>> torch.allclose(W @ W.T, 4 * torch.eye(2), atol=1e-5)
    True
    """
    fans(weight, groups=groups)  # refuses vectors and impossible groups
    with torch.no_grad():
        for part in weight.chunk(groups):
            rows, columns = part.shape[0], part[0].numel()
            matrix = torch.empty(rows, columns, dtype=part.dtype, device=part.device)
            nn.init.orthogonal_(matrix, gain=math.sqrt(variance * max(rows, columns)), generator=generator)
            part.copy_(matrix.view_as(part))
    return weight


def typical_kernel(model: nn.Module) -> float:
    """The commonest root of a kernel's size among the convolutions, the larger of two; 1 without convolutions.

    >>> typical_kernel(nn.Sequential(nn.Conv2d(3, 6, 5), nn.Flatten(), nn.Linear(6, 2)))
    5.0
    """
    convolutions = (m for m in model.modules() if isinstance(m, (*CONVOLUTIONS, *TRANSPOSED)))
    sizes = Counter(fans(module.weight)[2] for module in convolutions)
    return max(sizes, key=lambda size: (sizes[size], size), default=1.0)


def apply(
    model: nn.Module, scheme: Scheme, *, c: float | None = None, generator: torch.Generator | None = None
) -> nn.Module:
    """Initialise every linear and convolutional layer of a model, transposed ones too; biases become zero.

    Args:
        model: changed in place.
        scheme: a name or a function, see `resolve`.
        c: constant of the geometric mean; None is 2 / `typical_kernel(model)`.
        generator: source of randomness.

    Raises:
        HessdiagError: there is no such scheme, or it has no constant c.

    >>> model = apply(nn.Sequential(nn.Linear(4, 4)), "geometric-orthogonal", c=2.0)
    >>> round(float(model[0].weight.detach().square().mean()), 4)  # 2 / √(4 · 4)
    0.5
    """
    check_model(model)
    if generator is not None:
        check_kind("generator", generator, torch.Generator, "pass torch.Generator().manual_seed(0)")
    if c is not None:
        if scheme not in GEOMETRIC or not is_positive(c):
            raise HessdiagError(
                f"c={c!r} with {name_of(scheme)!r}: c is a positive constant of {' and '.join(GEOMETRIC)}"
            )
        return _apply_scheme(model, scheme=str(scheme), c=c, generator=generator)
    return resolve(scheme)(model, generator=generator)


def resolve(
    scheme: Scheme, *, what: str = "init", say: Callable[[str], None] = lambda message: None
) -> Callable[..., nn.Module]:
    """A function `(model, *, generator=None)` that initialises a model in place.

    Args:
        scheme: a name of `SCHEMES` or `VARIANTS`, for which biases are set to zero and the constant of the geometric
            mean is c = 2 / `typical_kernel(model)`; `package.module:function` or `./file.py:function`; or a function
            itself. What functions are given is said in `hessdiag.user_code.custom_init`.
        what: what it is for, in messages.
        say: told what a function was called with.

    Raises:
        HessdiagError: there is no such scheme or function.
    """
    if not isinstance(scheme, str):
        if not callable(scheme) or isinstance(scheme, torch.nn.Module):
            raise HessdiagError(f"{what} is {kind_of(scheme)}: pass a name such as 'fan-in', or a function")
        given = scheme if isinstance(scheme, NamedFunction) else NamedFunction(what, name_of(scheme), scheme)
        return partial(apply_function, function=given, say=say)
    known = SCHEMES | VARIANTS
    if scheme in known:
        return partial(_apply_scheme, scheme=scheme)
    if ":" in scheme:
        return partial(apply_function, function=load_function(scheme, what=what), say=say)
    if own := ELSEWHERE.get(re.split("[-_ ]", scheme.lower())[0]):
        raise HessdiagError(f"unknown initialisation {scheme!r}: it is called {own} here")
    hint = did_you_mean(scheme, known, otherwise=f"use one of {', '.join(known)}, or ./file.py:function")
    raise HessdiagError(f"unknown initialisation {scheme!r}: {hint}")


def name_of(scheme: Scheme) -> str:
    """The name by which tables and files call an initialisation.

    >>> name_of("fan-in"), name_of(nn.init.orthogonal_)
    ('fan-in', 'orthogonal_')
    """
    if isinstance(scheme, str):
        return scheme
    return scheme.reference if isinstance(scheme, NamedFunction) else getattr(scheme, "__name__", repr(scheme))


def _apply_scheme(
    model: nn.Module, *, scheme: str, c: float | None = None, generator: torch.Generator | None = None
) -> nn.Module:
    fill = (SCHEMES | VARIANTS)[scheme]
    options = {"c": c or 2 / typical_kernel(model)} if scheme in GEOMETRIC else {}
    for _, module in settable_layers(model):
        groups = 1 if is_linear(module) else module.groups
        transposed = stores_inputs_first(module)
        fill(module.weight, groups=groups, transposed=transposed, generator=generator, **options)
        if isinstance(module.bias, Tensor):
            nn.init.zeros_(module.bias)
    return model


SCHEMES: dict[str, Callable[..., Tensor]] = {
    "fan-in": fan_in_,
    "fan-out": fan_out_,
    "arithmetic": arithmetic_mean_,
    "geometric": geometric_mean_,
}
VARIANTS: dict[str, Callable[..., Tensor]] = {
    "fan-in-orthogonal": fan_in_orthogonal_,
    "fan-out-orthogonal": fan_out_orthogonal_,
    "arithmetic-orthogonal": arithmetic_mean_orthogonal_,
    "geometric-orthogonal": geometric_mean_orthogonal_,
    "fan-geo-avg": fan_geo_avg_,
}
ELSEWHERE = {"kaiming": "fan-in", "he": "fan-in", "xavier": "arithmetic", "glorot": "arithmetic"}
GEOMETRIC = ("geometric", "geometric-orthogonal")  # those with a constant c


def second_moment(module: nn.Module, scheme: str, *, c: float) -> float:
    """E[W²] that a scheme of this module gives to a layer, from its shapes alone; orthogonal variants have the same.

    Args:
        module: a linear or convolutional layer, transposed ones too; it may be on the meta device.
        scheme: a name of `SCHEMES` or `VARIANTS`.
        c: constant of the geometric mean.

    >>> second_moment(nn.Linear(8, 2), "fan-in", c=2.0)
    0.25
    """
    layer: Any = module
    layout: dict[str, Any] = {"groups": 1 if is_linear(module) else layer.groups}
    layout["transposed"] = stores_inputs_first(module)
    kind = scheme.removesuffix("-orthogonal")
    return _geometric(layer.weight, c=c, **layout) if kind == "geometric" else MOMENTS[kind](layer.weight, **layout)


def _fan_in(weight: Tensor, **layout: int) -> float:
    n, _, k = fans(weight, **layout)  # type: ignore[arg-type]
    return 2 / (n * k**2)


def _fan_out(weight: Tensor, **layout: int) -> float:
    _, m, k = fans(weight, **layout)  # type: ignore[arg-type]
    return 2 / (m * k**2)


def _arithmetic(weight: Tensor, **layout: int) -> float:
    n, m, k = fans(weight, **layout)  # type: ignore[arg-type]
    return 2 / (0.5 * (n + m) * k**2)


def _geometric(weight: Tensor, *, c: float, groups: int, transposed: bool) -> float:
    n, m, k = fans(weight, groups=groups, transposed=transposed)
    return c / (k * math.sqrt(n * m * groups))


def _fan_geo_avg(weight: Tensor, **layout: int) -> float:
    n, m, k = fans(weight, **layout)  # type: ignore[arg-type]
    return 2 / (k**2 * math.sqrt(n * m))


MOMENTS = {"fan-in": _fan_in, "fan-out": _fan_out, "arithmetic": _arithmetic, "fan-geo-avg": _fan_geo_avg}


def _normal(weight: Tensor, variance: float, generator: torch.Generator | None) -> Tensor:
    with torch.no_grad():
        return weight.normal_(0.0, math.sqrt(variance), generator=generator)
