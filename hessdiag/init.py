"""Initialisations of weights by fan-in, fan-out and their means (Section 6 of arXiv 1906.04267).

| scheme | E[W²] |
|---|---|
| fan-in | 2 / (n k²) |
| fan-out | 2 / (n' k²) |
| arithmetic | 2 / (½ (n + n') k²) |
| geometric | c / (k √(n n')), c = 2 / (typical k) |

n and n' are the channels that one output reads and one input feeds, k² the entries of the kernel. Mind the first power
of k in the geometric mean: JAX's `variance_scaling(2, "fan_geo_avg")` has k² and balances layers only where all kernels
have the same size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from hessdiag.blocks import CONVOLUTIONS, STRUCTURED
from hessdiag.custom_init import apply_function
from hessdiag.errors import HessdiagError
from hessdiag.importing import load_function
from hessdiag.suggestions import did_you_mean

Fans = tuple[float, float, float]


def fans(weight: Tensor, *, groups: int = 1) -> Fans:
    """(n, n', k) of a weight (out, in / groups, *kernel): channels in, channels out, root of the kernel's size.

    >>> fans(torch.empty(6, 3, 5, 5))
    (3.0, 6.0, 5.0)
    """
    if weight.dim() < 2:
        raise HessdiagError(f"a weight of shape {tuple(weight.shape)} has no fan-in: pass at least two dimensions")
    return float(weight.shape[1]), weight.shape[0] / groups, math.sqrt(math.prod(weight.shape[2:]))


def fan_in_(weight: Tensor, *, groups: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """Normal with E[W²] = 2 / (n k²), in place: `torch.nn.init.kaiming_normal_(mode="fan_in")`."""
    n, _, k = fans(weight, groups=groups)
    return _normal(weight, 2 / (n * k**2), generator)


def fan_out_(weight: Tensor, *, groups: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """Normal with E[W²] = 2 / (n' k²), in place: `torch.nn.init.kaiming_normal_(mode="fan_out")` without groups."""
    _, n, k = fans(weight, groups=groups)
    return _normal(weight, 2 / (n * k**2), generator)


def arithmetic_mean_(weight: Tensor, *, groups: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """Normal with E[W²] = 2 / (½ (n + n') k²), in place: `torch.nn.init.xavier_normal_(gain=sqrt(2))`."""
    n_in, n_out, k = fans(weight, groups=groups)
    return _normal(weight, 2 / (0.5 * (n_in + n_out) * k**2), generator)


def geometric_mean_(
    weight: Tensor, *, c: float = 2.0, groups: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    """Normal with E[W²] = c / (k √(n n')) (Eq. 3), in place.

    Args:
        weight: (out, in / groups, *kernel).
        c: a constant for the whole network; 2 / (typical k) keeps the signal's size, see `typical_kernel`.
        groups: groups of the convolution.
        generator: source of randomness.
    """
    n_in, n_out, k = fans(weight, groups=groups)
    return _normal(weight, c / (k * math.sqrt(n_in * n_out)), generator)


def typical_kernel(model: nn.Module) -> float:
    """The commonest root of a kernel's size among the convolutions, the larger of two; 1 without convolutions.

    >>> typical_kernel(nn.Sequential(nn.Conv2d(3, 6, 5), nn.Flatten(), nn.Linear(6, 2)))
    5.0
    """
    sizes = Counter(fans(module.weight)[2] for module in model.modules() if isinstance(module, CONVOLUTIONS))
    return max(sizes, key=lambda size: (sizes[size], size), default=1.0)


def apply(model: nn.Module, scheme: str, *, generator: torch.Generator | None = None) -> nn.Module:
    """Initialise every linear and convolutional layer of a model; see `resolve`."""
    return resolve(scheme)(model, generator=generator)


def resolve(scheme: str) -> Callable[..., nn.Module]:
    """A function `(model, *, generator=None)` that initialises a model in place.

    Args:
        scheme: a name of `SCHEMES`, for which biases are set to zero and the constant of the geometric mean is
            c = 2 / `typical_kernel(model)`; or `package.module:function` or `./file.py:function`, see
            `hessdiag.custom_init`.

    Raises:
        HessdiagError: there is no such scheme or function.
    """
    if scheme in SCHEMES:
        return partial(_apply_scheme, scheme=scheme)
    if ":" in scheme:
        return partial(apply_function, function=load_function(scheme, what="--init"))
    hint = did_you_mean(scheme, SCHEMES, otherwise=f"use one of {', '.join(SCHEMES)}, or ./file.py:function")
    raise HessdiagError(f"unknown initialisation {scheme!r}: {hint}")


def _apply_scheme(model: nn.Module, *, scheme: str, generator: torch.Generator | None = None) -> nn.Module:
    options = {"c": 2 / typical_kernel(model)} if scheme == "geometric" else {}
    for module in model.modules():
        if isinstance(module, STRUCTURED):
            groups = 1 if isinstance(module, nn.Linear) else module.groups
            SCHEMES[scheme](module.weight, groups=groups, generator=generator, **options)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


SCHEMES: dict[str, Callable[..., Tensor]] = {
    "fan-in": fan_in_,
    "fan-out": fan_out_,
    "arithmetic": arithmetic_mean_,
    "geometric": geometric_mean_,
}


def _normal(weight: Tensor, variance: float, generator: torch.Generator | None) -> Tensor:
    with torch.no_grad():
        return weight.normal_(0.0, math.sqrt(variance), generator=generator)
