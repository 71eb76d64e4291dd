"""A layer followed by a fixed multiplier: the one place where a prescription changes a network."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Multiplied(nn.Module):
    """x -> factor · layer(x); the factor is a buffer, saved with the weights and never trained.

    Args:
        layer: any layer that gives one tensor.
        factor: the multiplier.

    >>> Multiplied(nn.Identity(), 0.5)(torch.ones(2))
    tensor([0.5000, 0.5000])
    """

    factor: Tensor

    def __init__(self, layer: nn.Module, factor: float) -> None:
        super().__init__()
        self.layer = layer
        like = next(layer.parameters(), torch.empty(0))
        self.register_buffer("factor", torch.tensor(factor, dtype=like.dtype, device=like.device))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output times the factor."""
        return self.factor * self.layer(x)  # type: ignore[no-any-return]


def multiply_output(model: nn.Module, path: str, factor: float) -> None:
    """Put a fixed multiplier behind the layer at `path`, in place; its parameters move to `path.layer`."""
    parent, _, name = path.rpartition(".")
    holder = model.get_submodule(parent)
    setattr(holder, name, Multiplied(model.get_submodule(path), factor))
