"""How large the entries of a tensor are: the largest of them, and the sum of their squares."""

from typing import TypeVar

import torch
from torch import Tensor

Values = TypeVar("Values", Tensor, Tensor | None)
PIECE = 2**16


def as_real(values: Values) -> Values:
    """Complex numbers as pairs of real ones."""
    return torch.view_as_real(values.resolve_conj()) if values is not None and values.is_complex() else values


def _in_memory(values: Tensor) -> Tensor:
    return values.detach().permute(sorted(range(values.dim()), key=values.stride, reverse=True))  # else copied


def largest_entry(values: Tensor) -> float:
    """The largest |v|, by the least and the largest value, as the infinity norm is not vectorised; 0 of nothing.

    >>> largest_entry(torch.tensor([1.0, -3.0])), largest_entry(torch.empty(0))
    (3.0, 0.0)
    """
    if not (values := as_real(values)).numel():
        return 0.0
    low, high = torch.aminmax(_in_memory(values))
    return max(-float(low), float(high))


def mean_sq(values: Tensor) -> float:
    """E[v²] in float64, which does not overflow where the tensor would; 0 of nothing.

    >>> mean_sq(torch.tensor([3e30, 4e30]))  # doctest: +ELLIPSIS
    1.2...e+61
    """
    return sum_of_squares(values := as_real(values)) / max(values.numel(), 1)


def sum_of_squares(values: Tensor) -> float:
    """Σ v², in float64, as squares underflow first: by pieces that stay in a cache: far faster than a copy."""
    if values.is_cuda:  # which copies nothing, and waits for every number
        return float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64).square())
    pieces = (piece.double() for piece in torch.split(_in_memory(values).reshape(-1), PIECE))
    return sum(float(piece.dot(piece)) for piece in pieces)
