"""How many bottleneck blocks a residual network has, and what each reads and writes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hessdiag.errors import HessdiagError

DEPTHS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # weight layers: blocks of each stage
EXPANSION = 4
SMALL_SIDE = 64  # pixels, below which the stem neither strides nor pools


@dataclass(frozen=True)
class Bottleneck:
    """One block: channels in, inside and out, its stride, and its place among the L blocks of the network.

    Attributes:
        fan_in, inner, fan_out: channels n, w and m.
        stride: 1, or 2 where the block halves the resolution.
        number: 0 for the first block.
        count: L.
    """

    fan_in: int
    inner: int
    fan_out: int
    stride: int
    number: int
    count: int

    @property
    def projects(self) -> bool:
        """Whether the shortcut needs a convolution."""
        return self.stride > 1 or self.fan_in != self.fan_out

    @property
    def alpha(self) -> float:
        """Weight of the shortcut, √(k / (k + 1)) with k = L − 1, ..., 2L − 2 over the blocks (RescaleNet's)."""
        k = self.count - 1 + self.number
        return math.sqrt(k / (k + 1))

    @property
    def beta(self) -> float:
        """Weight of the main branch: α² + β² = 1."""
        return math.sqrt(1 / (self.count + self.number))


def bottlenecks(depth: int, *, base: int) -> tuple[Bottleneck, ...]:
    """The blocks of a network of a given depth, with `base` channels inside those of the first stage.

    Raises:
        HessdiagError: there is no network of that depth.

    >>> [(block.fan_in, block.inner, block.fan_out, block.stride) for block in bottlenecks(14, base=16)]
    [(16, 16, 64, 1), (64, 32, 128, 2), (128, 64, 256, 2), (256, 128, 512, 2)]
    """
    if depth not in DEPTHS:
        raise HessdiagError(f"depth {depth}: there are residual networks of depth {', '.join(map(str, DEPTHS))}")
    stages = DEPTHS[depth]
    blocks: list[Bottleneck] = []
    channels = base
    for stage, repeats in enumerate(stages):
        inner = base * 2**stage
        for repeat in range(repeats):
            stride = 2 if stage > 0 and repeat == 0 else 1
            blocks.append(Bottleneck(channels, inner, EXPANSION * inner, stride, len(blocks), sum(stages)))
            channels = EXPANSION * inner
    return tuple(blocks)


def channels(width: float, side: int) -> int:
    """Channels of the stem: 64 for photographs, 16 for small images, times a factor."""
    return max(1, round(width * (16 if side <= SMALL_SIDE else 64)))
