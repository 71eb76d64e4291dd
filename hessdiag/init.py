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

import torch
from torch import Tensor, nn

from hessdiag.blocks import CONVOLUTIONS, STRUCTURED
from hessdiag.errors import HessdiagError

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
    """Initialise every linear and convolutional layer of a model by a named scheme; biases are set to zero.

    The constant of the geometric mean is c = 2 / `typical_kernel(model)`.

    Raises:
        HessdiagError: there is no scheme of that name.
    """
    if scheme not in SCHEMES:
        raise HessdiagError(f"unknown initialisation {scheme!r}: use one of {', '.join(SCHEMES)}")
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
