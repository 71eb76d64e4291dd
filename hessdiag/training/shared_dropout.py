"""Dropout with masks that follow from the seed and the step, however many processes share a minibatch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hessdiag.execution.ranks import ALONE, Ranks
from hessdiag.execution.seeds import stream


class SharedDropout(nn.Module):
    """As `nn.Dropout`, but the mask of the whole minibatch is drawn and this process's share of it used.

    A run that is resumed, or shared among other processes, drops the same entries.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.seed, self.ranks = 0, ALONE

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) in, the same out."""
        if not self.training or self.rate == 0:
            return x
        generator = torch.Generator(x.device).manual_seed(self.seed)
        shape = (self.ranks.size, *x.shape)
        mask = torch.rand(shape, generator=generator, device=x.device)[self.ranks.rank] >= self.rate
        return x * mask / (1 - self.rate)


def share_dropout(network: nn.Module) -> list[SharedDropout]:
    """Replace every `nn.Dropout` of a network in place, and return what replaces them."""
    replaced: list[SharedDropout] = []
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                replaced.append(SharedDropout(child.p))
                setattr(parent, name, replaced[-1])
    return replaced


def draw_masks(layers: list[SharedDropout], *, seed: int, step: int, ranks: Ranks) -> None:
    """Set which masks the next step of the training draws."""
    for number, layer in enumerate(layers):
        layer.seed = stream(seed, f"dropout {number} of step {step}").initial_seed()
        layer.ranks = ranks
