"""The usual ResNet with batch normalisation, beside which the paper's networks are held."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from hessdiag.models.residual import Bottleneck, bottlenecks, channels


class StandardBlock(nn.Module):
    """relu(S(x) + F(x)), a bottleneck with batch normalisation after every convolution."""

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        n, w, m = block.fan_in, block.inner, block.fan_out
        self.main = nn.Sequential(
            *_normalised(n, w, 1),
            nn.ReLU(),
            *_normalised(w, w, 3, stride=block.stride),
            nn.ReLU(),
            *_normalised(w, m, 1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if block.projects:
            self.shortcut = nn.Sequential(*_normalised(n, m, 1, stride=block.stride))

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, h, w) to (B, m, h / stride, w / stride)."""
        return (self.shortcut(x) + self.main(x)).relu()  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """The network, with fan-out initialisation of the convolutions, as the common libraries have it.

    Args:
        depth: weight layers on the longest path: 14, 26 or 50.
        classes: number of outputs.
        side: of the images, in pixels; up to 64 the stem is a 3 x 3 convolution of stride 1 with 16 channels, and
            there is no max pooling.
        width: factor on all channels.
    """

    def __init__(self, depth: int = 50, classes: int = 1000, side: int = 224, width: float = 1.0) -> None:
        super().__init__()
        self.input_size = (3, side, side)
        base = channels(width, side)
        small = base < channels(width, 224)
        kernel, stride = (3, 1) if small else (7, 2)
        self.stem = nn.Sequential(*_normalised(3, base, kernel, stride=stride))
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        plan = bottlenecks(depth, base=base)
        self.blocks = nn.Sequential(*[StandardBlock(block) for block in plan])
        self.fc = nn.Linear(plan[-1].fan_out, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, side, side) to outputs (B, classes)."""
        x = self.pool(self.stem(x).relu())  # (B, 64, side / 4, side / 4)
        x = self.blocks(x).mean(dim=(2, 3))  # (B, 2048)
        return self.fc(x)  # type: ignore[no-any-return]  # (B, classes)


def calibrate(model: nn.Module, x: Tensor) -> None:
    """Give every batch normalisation the mean and variance of one batch, and put the model in evaluation mode.

    In training mode the examples of a batch depend on one another; in evaluation mode, with the statistics of a random
    batch, a fresh network passes signals of the same size without that.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average, here over one batch
    model.train()
    with torch.no_grad():
        model(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _normalised(fan_in: int, fan_out: int, kernel: int, *, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    layer = nn.Conv2d(fan_in, fan_out, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer, nn.BatchNorm2d(fan_out)


def resnet(depth: int = 14, classes: int = 10, side: int = 32, width: float = 1.0) -> nn.Module:
    """Build one in evaluation mode, with the batch statistics of random images."""
    network = ResNet(depth, classes, side, width)
    calibrate(network, torch.randn(4, *network.input_size))
    return network


STANDARD = {"resnet14": resnet, "resnet50": partial(resnet, 50, 1000, 224)}
