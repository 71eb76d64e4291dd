"""Networks that grow in one size at a time, with data, on which the growth of costs is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag import init
from hessdiag.models.feedforward import mlp

WIDTH, DEPTH, OUTPUTS, BATCH = 256, 8, 10, 128


class EncoderBlock(nn.Module):
    """Attention and a feed-forward part of four times the width, each beside a shortcut."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) to the same."""
        B, T, width = x.shape
        q, k, v = self.query_key_value(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(width / self.heads), dim=-1)  # (B, heads, T, T)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, width))
        return x + self.down(torch.relu(self.up(x)))


class Encoder(nn.Module):
    """Vectors (B, T, width) to outputs (B, classes), read from the mean over tokens."""

    def __init__(self, *, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(EncoderBlock(width) for _ in range(blocks)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean(dim=1))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """x + W relu(x) / √depth again and again: its curvature has the same effective rank at every depth, nearly."""

    def __init__(self, *, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth - 1))
        self.head = nn.Linear(width, outputs, bias=False)
        for layer in (*self.layers, self.head):
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(B, width) to (B, outputs)."""
        for layer in self.layers:
            x = x + layer(torch.relu(x)) / math.sqrt(len(self.layers))
        return self.head(x)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Growing:
    """A family of networks; sizes are four at least.

    Attributes:
        title: what grows, and which algorithm measures it.
        sizes: that are measured, of which the first few in a quick run.
        build: size to model, inputs (B, ...) and targets (B,).
        per: the view.
    """

    title: str
    sizes: Sequence[int]
    build: Callable[[int], tuple[nn.Module, Tensor, Tensor]]
    per: str = "example"


def perceptron(size: int, grows: str, **fixed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A ReLU network without biases, of `depth` weights; `grows` names the size that is given."""
    sizes = {"width": WIDTH, "depth": DEPTH, "outputs": OUTPUTS, "batch": BATCH} | fixed | {grows: size}
    hidden = [sizes["width"]] * sizes["depth"]
    model = init.apply(mlp([*hidden, sizes["outputs"]], bias=False), "geometric")
    return model, torch.randn(sizes["batch"], sizes["width"]), torch.randint(sizes["outputs"], (sizes["batch"],))


def residual(depth: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Of 256 outputs, more than are measured exactly."""
    model = Residual(width=WIDTH, depth=depth, outputs=256)
    return model, torch.randn(64, WIDTH), torch.randint(256, (64,))


def encoder(tokens: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Two blocks of width 64 on eight sequences."""
    return Encoder(width=64, blocks=2, classes=OUTPUTS), torch.randn(8, tokens, 64), torch.randint(OUTPUTS, (8,))


def _mlp(title: str, grows: str, sizes: Sequence[int], *, per: str = "example", **fixed: Any) -> Growing:
    return Growing(title, sizes, partial(perceptron, grows=grows, **fixed), per)


FAMILIES: dict[str, Growing] = {
    "blocks": _mlp("blocks, exact", "depth", (4, 8, 16, 32, 64)),
    "blocks-sketch": Growing("blocks, 256 outputs, sketch", (4, 8, 16, 32, 64), residual),
    "blocks-batch": _mlp("blocks, per batch", "depth", (2, 4, 8, 16), per="batch", batch=512, width=128),
    "batch": _mlp("batch size", "batch", (64, 128, 256, 512, 1024)),
    "outputs": _mlp("outputs, exact", "outputs", (8, 16, 32, 64, 128)),
    "outputs-sketch": _mlp("outputs, sketch", "outputs", (256, 512, 1024, 2048), batch=64),
    "width": _mlp("width", "width", (64, 128, 256, 512, 1024)),
    "tokens": Growing("tokens of an encoder", (16, 32, 64, 128, 256), encoder),
}
