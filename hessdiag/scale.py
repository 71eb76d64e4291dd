"""A fixed multiplier as a layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hessdiag.errors import HessdiagError


class Scale(nn.Module):
    """x -> factor · x. The factor is a buffer: saved in `state_dict`, moved with the module, never trained.

    Both the forward and the backward signal are multiplied by the factor, so that the activation scaling ς, and with it
    the balance of all layers, stays as it is (Table 1 of arXiv 1906.04267); the size of the signal changes.

    Args:
        factor: finite and not 0.

    Raises:
        HessdiagError: the factor is 0, infinite or NaN.

    >>> Scale(0.5)(torch.tensor([2.0, 4.0]))
    tensor([1., 2.])
    """

    factor: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        if not math.isfinite(factor) or factor == 0:
            raise HessdiagError(f"factor {factor!r}: a fixed multiplier is finite and not 0")
        self.register_buffer("factor", torch.tensor(float(factor)))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape in, the same out."""
        return x * self.factor

    def extra_repr(self) -> str:
        """The factor, in torch's way of printing a module."""
        return f"{float(self.factor):.6g}"
