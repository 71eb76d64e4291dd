"""Nonlinearities of Gaussian variables: second moments, means, and correlations before and after.

For the ReLU the map of correlations is the arc-cosine kernel of order one (Cho & Saul 2009), for its derivative that of
order zero; every other function, and a ReLU of a variable with a mean, is integrated on a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

NODES, REACH = 400, 7.0  # midpoints of a symmetric grid: a kink at 0 falls between two of them


@dataclass(frozen=True)
class Nonlinearity:
    """A function of one number, applied entry by entry.

    Attributes:
        name: as in `NONLINEARITIES`.
        parameters: those of the function, such as the slope of a leaky ReLU.
    """

    name: str
    parameters: tuple[float, ...] = ()

    @property
    def homogeneous(self) -> bool:
        """Say whether φ(s x) = s φ(x) for s > 0, so that second moments scale by a constant."""
        return self.name in ("relu", "leaky_relu", "identity")

    def __call__(self, x: Tensor) -> Tensor:
        """Apply φ to every entry."""
        return NONLINEARITIES[self.name](x, *self.parameters)

    def derivative(self, x: Tensor) -> Tensor:
        """Apply φ' to every entry."""
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self(leaf).sum(), leaf)[0]


NONLINEARITIES: dict[str, Callable[..., Tensor]] = {
    "identity": lambda x: x * 1.0,
    "relu": F.relu,
    "leaky_relu": lambda x, slope: F.leaky_relu(x, slope),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "elu": lambda x, alpha: F.elu(x, alpha),
    "selu": F.selu,
    "softplus": F.softplus,
    "mish": F.mish,
    "relu6": F.relu6,
    "hardtanh": lambda x, low, high: F.hardtanh(x, low, high),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "squared_relu": lambda x: F.relu(x).square(),
}


@dataclass(frozen=True)
class Response:
    """What a nonlinearity makes of x ~ N(m, v) with E[x²] = q: moments of y = φ(x) and of its derivative.

    Attributes:
        sq: E[y²].
        mean_sq: E[y]².
        slope_sq: E[φ'²], the factor on the gradient's second moment.
    """

    sq: float
    mean_sq: float
    slope_sq: float


@lru_cache(maxsize=4096)
def respond(phi: Nonlinearity, q: float, mean: float) -> Response:
    """Find the moments of φ(x), x Gaussian with E[x²] = q, of which `mean` is the square of the mean.

    >>> respond(Nonlinearity("relu"), 2.0, 0.0)
    Response(sq=1.0, mean_sq=0.3183..., slope_sq=0.5)
    """
    if phi.name == "relu" and mean == 0:
        return Response(q / 2, q / (2 * math.pi), 0.5)
    if phi.name == "leaky_relu" and mean == 0:
        (a,) = phi.parameters
        return Response(q * (1 + a * a) / 2, q * (1 - a) ** 2 / (2 * math.pi), (1 + a * a) / 2)
    z, weights = _grid()
    x = math.sqrt(mean * q) + math.sqrt((1 - mean) * q) * z
    y = phi(x)
    return Response(
        float((weights * y.square()).sum()),
        float((weights * y).sum()) ** 2,
        float((weights * phi.derivative(x).square()).sum()),
    )


@lru_cache(maxsize=4096)
def correlate(phi: Nonlinearity, q: float, mean: float, correlation: float) -> tuple[float, float]:
    """Find (E[φ(x) φ(x')] / E[φ²], E[φ'(x) φ'(x')] / E[φ'²]) of two such variables with E[x x'] = `correlation` q.

    For a ReLU of variables without mean, with ρ = cos θ: (√(1-ρ²) + ρ (π - θ)) / π and 1 - θ/π.

    >>> correlate(Nonlinearity("relu"), 1.0, 0.0, 0.0)
    (0.3183..., 0.5)
    """
    if math.isnan(correlation):
        return math.nan, math.nan
    correlation = min(max(correlation, mean if mean > 0 else -1.0), 1.0)
    if phi.name == "relu" and mean == 0:
        theta = math.acos(correlation)
        return (math.sin(theta) + correlation * (math.pi - theta)) / math.pi, 1 - theta / math.pi
    alone = respond(phi, q, mean)
    z, weights = _grid()
    shared = max(correlation - mean, 0.0)  # part of q that both variables have in common
    common = math.sqrt(mean * q) + math.sqrt(shared * q) * z
    own = math.sqrt(max(1 - mean - shared, 0.0) * q) * z
    x = common[:, None] + own  # (nodes of the shared part, of the own part)
    y = (phi(x) * weights).sum(1)
    slope = (phi.derivative(x) * weights).sum(1)
    return (
        float((weights * y.square()).sum()) / alone.sq if alone.sq else math.nan,
        float((weights * slope.square()).sum()) / alone.slope_sq if alone.slope_sq else math.nan,
    )


@lru_cache(maxsize=1024)
def respond_of_largest(phi: Nonlinearity, mean: float, correlation: float, count: int) -> tuple[float, float, float]:
    """The largest of `count` Gaussians with E[x²] = 1 and pairwise E[x x'] = `correlation`, seen through a rising φ.

    Returns:
        E[φ(M)²] / E[φ(x)²], the correlation of two such largest values that share no entry, and
        E[φ'(M)²] / E[φ'(x)²]: the largest is more often on the steep side.
    """
    z, weights = _grid()
    shared = max(correlation - mean, 0.0)
    own = math.sqrt(max(1 - mean - shared, 1e-12))
    # density of the largest of `count` independent standard normals
    step = float(z[1] - z[0])
    edges = torch.cat([z - step / 2, z[-1:] + step / 2])
    mass = torch.special.ndtr(edges).pow(count).diff()  # (nodes,)
    x = math.sqrt(mean) + math.sqrt(shared) * z[:, None] + own * z  # (shared, own)
    y = phi(x)
    given = (y * mass).sum(1)
    sq = float((weights * (y.square() * mass).sum(1)).sum())
    slope = float((weights * (phi.derivative(x).square() * mass).sum(1)).sum())
    alone = respond(phi, 1.0, mean)
    return sq / alone.sq, float((weights * given.square()).sum()) / sq, slope / alone.slope_sq


def _grid() -> tuple[Tensor, Tensor]:
    """Nodes and weights of an integral over N(0, 1)."""
    step = 2 * REACH / NODES
    z = (torch.arange(NODES, dtype=torch.float64) + 0.5) * step - REACH
    weights = torch.exp(-z.square() / 2)
    return z, weights / weights.sum()
