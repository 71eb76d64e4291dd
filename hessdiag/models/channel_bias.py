"""A bias as a layer of its own, and its data-dependent initialisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ChannelBias(nn.Module):
    """x -> x + b with one b a channel, zero at first.

    Unnormalised residual networks add biases *before* their convolutions, after the ReLU and its multiplier.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, *positions) in, the same out."""
        return x + self.bias.view(-1, *[1] * (x.dim() - 2))


def centre(model: nn.Module, x: Tensor) -> None:
    """Set every `ChannelBias` to minus the mean of what it reads on a batch, one after the other as they run.

    Signals then have mean zero in every channel, as RescaleNet's code does it over its first batches.

    >>> model = nn.Sequential(ChannelBias(2))
    >>> centre(model, torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    >>> model[0].bias.tolist()
    [-2.0, -2.0]
    """

    def subtract_mean(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        assert isinstance(module, ChannelBias)
        dims = [d for d in range(args[0].dim()) if d != 1]
        module.bias.copy_(-args[0].mean(dim=dims))

    handles = [m.register_forward_pre_hook(subtract_mean) for m in model.modules() if isinstance(m, ChannelBias)]
    try:
        with torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
