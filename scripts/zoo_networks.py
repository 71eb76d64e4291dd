"""Small networks of many architectures, to hold predictions of the calculus against measurements.

Every network has no normalisation and no biases unless its name says so; inputs are N(0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.models.feedforward import StridedLeNet, mlp

Size = tuple[int, ...]


class PreActivation(nn.Module):
    """A pre-activation residual block without normalisation: shortcut + convolutions, each behind a ReLU.

    Args:
        channels_in, channels_out: of the block.
        stride: of its first 3x3 convolution and its shortcut.
        bottleneck: 1x1, 3x3, 1x1 with a quarter of the width, instead of two 3x3.
        skip, branch: weights α and β of the sum α S(x) + β F(x).
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        *,
        stride: int = 1,
        bottleneck: bool = False,
        skip: float = 1.0,
        branch: float = 1.0,
    ) -> None:
        super().__init__()
        inner = channels_out // 4 if bottleneck else channels_out
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        widths = [channels_in] + [inner] * (len(kernels) - 1) + [channels_out]
        self.convolutions = nn.ModuleList()
        for (n, m), k in zip(pairwise(widths), kernels, strict=True):
            first = len(self.convolutions) == (1 if bottleneck else 0)
            self.convolutions.append(nn.Conv2d(n, m, k, stride if first else 1, k // 2, bias=False))
        changes = stride > 1 or channels_in != channels_out
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False) if changes else nn.Identity()
        self.skip, self.branch = skip, branch

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels_in, h, w) to (B, channels_out, h / stride, w / stride)."""
        y = x
        for convolution in self.convolutions:
            y = convolution(F.relu(y))
        return self.skip * self.shortcut(x) + self.branch * y  # type: ignore[no-any-return]


def residual(
    blocks: Sequence[int], *, width: int, bottleneck: bool = False, skip: float = 1.0, branch: float = 1.0
) -> nn.Sequential:
    """A pre-activation residual network without normalisation: stages of `blocks` blocks, widths doubling."""
    growth = 4 if bottleneck else 1
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    channels = width
    for stage, count in enumerate(blocks):
        for number in range(count):
            out = width * 2**stage * growth
            stride = 2 if stage and number == 0 else 1
            layers.append(PreActivation(channels, out, stride=stride, bottleneck=bottleneck, skip=skip, branch=branch))
            channels = out
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10, bias=False))


def _plain(*convolutions: nn.Module, after: int, hidden: int = 64, outputs: int = 10) -> nn.Sequential:
    """Layers with a ReLU after each convolution, then two linear layers."""
    layers: list[nn.Module] = []
    for layer in convolutions:
        layers += [layer, nn.ReLU()] if isinstance(layer, nn.Conv2d) else [layer]
    head = [nn.Flatten(), nn.Linear(after, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, outputs, bias=False)]
    return nn.Sequential(*layers, *head)


def _conv(n: int, m: int, k: int, stride: int = 1, padding: int = 0, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(n, m, k, stride, padding, groups=groups, bias=False)


def _strided_alexnet() -> nn.Module:
    """AlexNet's kernels 11, 5, 3, 3, 3 with strides for its pooling, at an eighth of its width."""
    return _plain(
        _conv(3, 12, 11, 4, 2),
        _conv(12, 32, 5, 2, 2),
        _conv(32, 48, 3, 2, 1),
        _conv(48, 32, 3, 1, 1),
        _conv(32, 32, 3, 2, 1),
        after=32 * 2 * 2,
        hidden=128,
    )


def _vgg() -> nn.Module:
    """Pairs of padded 3x3 convolutions, average pooling between them."""
    pool = nn.AvgPool2d
    return _plain(
        _conv(3, 16, 3, 1, 1), _conv(16, 16, 3, 1, 1), pool(2),
        _conv(16, 32, 3, 1, 1), _conv(32, 32, 3, 1, 1), pool(2),
        _conv(32, 64, 3, 1, 1), _conv(64, 64, 3, 1, 1), pool(2),
        after=64 * 2 * 2,
    )  # fmt: skip


def _max_pooled() -> nn.Module:
    return _plain(_conv(3, 16, 3, 1, 1), nn.MaxPool2d(2), _conv(16, 32, 3, 1, 1), nn.MaxPool2d(2), after=32 * 4 * 4)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Size]] = {
    "lenet": (StridedLeNet, (3, 32, 32)),
    "mlp": (lambda: mlp([100, 384, 64, 10], bias=False), (100,)),
    "deep mlp": (lambda: mlp([50, *[100] * 12, 10], bias=False), (50,)),
    "mlp with biases": (lambda: mlp([100, 200, 50, 10]), (100,)),
    "padded cnn": (
        lambda: _plain(_conv(3, 16, 3, 1, 1), _conv(16, 32, 3, 2, 1), _conv(32, 32, 3, 2, 1), after=32 * 4 * 4),
        (3, 16, 16),
    ),
    "wide padding": (
        lambda: _plain(_conv(3, 16, 5, 1, 4), _conv(16, 32, 5, 2, 4), _conv(32, 32, 5, 2, 4), after=32 * 7 * 7),
        (3, 12, 12),
    ),
    "strided alexnet": (_strided_alexnet, (3, 64, 64)),
    "average pooled": (
        lambda: _plain(_conv(3, 16, 5), nn.AvgPool2d(2), _conv(16, 32, 5), nn.AvgPool2d(2), after=32 * 5 * 5),
        (3, 32, 32),
    ),
    "global pooled": (
        lambda: nn.Sequential(
            _conv(3, 32, 3, 1, 1), nn.ReLU(), _conv(32, 64, 3, 2, 1), nn.ReLU(), _conv(64, 64, 3, 1, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10, bias=False),
        ),
        (3, 16, 16),
    ),
    "vgg-like": (_vgg, (3, 16, 16)),
    "mixed kernels": (
        lambda: _plain(
            _conv(3, 16, 7, 2, 3), _conv(16, 32, 1), _conv(32, 32, 5, 2, 2), _conv(32, 64, 1), _conv(64, 32, 3, 2, 1),
            after=32 * 4 * 4,
        ),
        (3, 32, 32),
    ),
    "grouped": (
        lambda: _plain(
            _conv(4, 16, 3, 1, 1, 2), _conv(16, 32, 3, 2, 1, 4), _conv(32, 32, 3, 2, 1, 32), after=32 * 4 * 4
        ),
        (4, 16, 16),
    ),
    "leaky": (
        lambda: nn.Sequential(
            _conv(3, 16, 3, 2), nn.LeakyReLU(0.2), _conv(16, 32, 3, 2), nn.LeakyReLU(0.2), nn.Flatten(),
            nn.Linear(32 * 3 * 3, 10, bias=False),
        ),
        (3, 16, 16),
    ),
    "tanh": (
        lambda: nn.Sequential(
            nn.Linear(50, 100, bias=False), nn.Tanh(), nn.Linear(100, 60, bias=False), nn.Tanh(),
            nn.Linear(60, 10, bias=False),
        ),
        (50,),
    ),
    "max pooled": (_max_pooled, (3, 16, 16)),
    "preact resnet-18": (lambda: residual([2, 2, 2, 2], width=16), (3, 16, 16)),
    "preact resnet-50": (lambda: residual([3, 4, 6, 3], width=8, bottleneck=True), (3, 16, 16)),
    "weighted residual": (
        lambda: residual([2, 2, 2], width=16, skip=0.8**0.5, branch=0.2**0.5), (3, 16, 16)
    ),
}  # fmt: skip
