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
weight (Eq. 2), which asks for E[W²] = c / √P. Without groups P = k² n n'; with g P = k² n n' g, n and n' of a group.

The functions fill a weight (out, in / groups, *kernel), or (in, out / groups, *kernel) with `transposed`, in place.
"""

import math
import re
from collections import Counter
from numbers import Real
from typing import Any

import torch
from torch import Generator, Tensor, nn

from hessdiag.arguments import check_kind, check_model, did_you_mean
from hessdiag.errors import HessdiagError
from hessdiag.network.blocks import CONVOLUTIONS, TRANSPOSED, fans, is_linear, settable_layers, stores_inputs_first

SCHEMES = ("fan-in", "fan-out", "arithmetic", "geometric")
VARIANTS = (*(f"{scheme}-orthogonal" for scheme in SCHEMES), "fan-geo-avg")
GEOMETRIC = ("geometric", "geometric-orthogonal")  # those with a constant c
ELSEWHERE = {"kaiming": "fan-in", "he": "fan-in", "xavier": "arithmetic", "glorot": "arithmetic"}


def geometric_mean_(
    weight: Tensor, *, c: float = 2.0, groups: int = 1, transposed: bool = False, generator: Generator | None = None
) -> Tensor:
    """Normal with E[W²] = c / (k √(n n')) (Eq. 3), in place; with groups c / √(entries of the weight).

    A constant c = 2 / (typical k) for the whole network keeps the signal's size, see `typical_kernel`.
    """
    return _fill(weight, "geometric", c=c, groups=groups, transposed=transposed, generator=generator)


def orthogonal_(weight: Tensor, variance: float, *, groups: int = 1, generator: Generator | None = None) -> Tensor:
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


def apply(model: nn.Module, scheme: str, *, c: float | None = None, generator: Generator | None = None) -> nn.Module:
    """Initialise every linear and convolutional layer of a model, transposed ones too; biases become zero.

    Args:
        model: changed in place.
        scheme: a name of `SCHEMES` or `VARIANTS`.
        c: constant of the geometric mean; None is 2 / `typical_kernel(model)`.
        generator: source of randomness.

    Raises:
        HessdiagError: there is no such scheme, or it has no constant c.

    >>> model = apply(nn.Sequential(nn.Linear(4, 4)), "geometric-orthogonal", c=2.0)
    >>> round(float(model[0].weight.detach().square().mean()), 4)  # 2 / √(4 · 4)
    0.5
    """
    check_model(model)
    check_scheme(scheme)
    check_kind("generator", generator, (Generator, type(None)), "pass torch.Generator().manual_seed(0)")
    if c is not None and not (scheme in GEOMETRIC and isinstance(c, Real) and 0 < c < math.inf):
        raise HessdiagError(f"c={c!r} with {scheme!r}: c is a positive constant of {' and '.join(GEOMETRIC)}")
    usual = c or 2 / typical_kernel(model)
    for _, module in settable_layers(model):
        _fill(module.weight, scheme, c=usual, generator=generator, **layout(module))
        if isinstance(module.bias, Tensor):
            nn.init.zeros_(module.bias)
    return model


def check_scheme(scheme: Any) -> None:
    """Refuse what is no name of `SCHEMES` or `VARIANTS`, with the nearest one."""
    known = (*SCHEMES, *VARIANTS)
    check_kind("init", scheme, str, "pass a name, such as 'fan-in'")
    if scheme in known:
        return
    if own := ELSEWHERE.get(re.split("[-_ ]", scheme.lower())[0]):
        raise HessdiagError(f"unknown initialisation {scheme!r}: it is called {own} here")
    hint = did_you_mean(scheme, known, otherwise=f"use one of {', '.join(known)}")
    raise HessdiagError(f"unknown initialisation {scheme!r}: {hint}")


def layout(layer: Any) -> dict[str, Any]:
    """Arguments of `fans` for the weight of a layer."""
    return {"groups": 1 if is_linear(layer) else layer.groups, "transposed": stores_inputs_first(layer)}


def second_moment(weight: Tensor, scheme: str, *, c: float, groups: int = 1, transposed: bool = False) -> float:
    """E[W²] that a scheme of this module gives to a weight, from its shape alone; orthogonal variants have the same.

    >>> second_moment(torch.empty(2, 8), "fan-in", c=2.0)
    0.25
    """
    n, m, k = fans(weight, groups=groups, transposed=transposed)
    if (name := scheme.removesuffix("-orthogonal")) == "geometric":
        return c / (k * math.sqrt(n * m * groups))
    channels = {"fan-in": n, "fan-out": m, "arithmetic": (n + m) / 2, "fan-geo-avg": math.sqrt(n * m)}
    return 2 / (channels[name] * k**2)


def _fill(weight: Tensor, scheme: str, groups: int, transposed: bool, generator: Generator | None, c: float) -> Tensor:
    variance = second_moment(weight, scheme, c=c, groups=groups, transposed=transposed)
    if scheme.endswith("-orthogonal"):
        return orthogonal_(weight, variance, groups=groups, generator=generator)
    with torch.no_grad():
        return weight.normal_(0.0, math.sqrt(variance), generator=generator)
