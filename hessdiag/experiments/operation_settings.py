"""The settings of Table 1 of arXiv 1906.04267: each operation, what it reads, and whether the paper says it keeps ς."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

CHANNELS, SIDE, WIDTH = 32, 12, 128


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One operation in one setting.

    Attributes:
        row: of the paper's table.
        detail: the setting.
        paper: the paper's ✓ or ✗ for it; "" where its table does not say.
        build: makes the operation.
        reads: `"centred"` (outputs of a random layer), `"relu"` (those behind a ReLU) or `"residual"` (a sum of two
            ReLU outputs).
        image: whether it reads images rather than vectors.
        gain: standard deviation of what it reads, for the centred input.
    """

    row: str
    detail: str
    paper: str
    build: Callable[[], nn.Module]
    reads: str = "centred"
    image: bool = True
    gain: float = 1.0


class Residual(nn.Module):
    """α x + β F(x)."""

    def __init__(self, branch: nn.Module, skip: float = 1.0, weight: float = 1.0) -> None:
        super().__init__()
        self.branch, self.skip, self.weight = branch, skip, weight

    def forward(self, x: Tensor) -> Tensor:
        """Return what is shaped like x."""
        return self.skip * x + self.weight * self.branch(x)  # type: ignore[no-any-return]


def _conv(k: int, stride: int = 1, padding: int = 0, out: int = CHANNELS) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, out, k, stride, padding, bias=False)


def _branch() -> nn.Module:
    return nn.Sequential(nn.ReLU(), _conv(3, 1, 1))


def _weighted(b: float) -> nn.Module:
    return Residual(_branch(), math.sqrt(1 - b), math.sqrt(b))


def _linear() -> list[Setting]:
    return [
        Setting(
            row="linear layer", detail=f"{WIDTH} → {m}", paper="✓", image=False,
            build=partial(nn.Linear, WIDTH, m, bias=False), reads=reads,
        )
        for m, reads in ((WIDTH, "centred"), (512, "centred"), (512, "relu"), (32, "relu"))
    ]  # fmt: skip


def _convolutions() -> list[Setting]:
    return [
        Setting(
            row="convolution", detail=f"kernel {k}, stride {s}, padding {p}", paper="✓" if k == s else "✗",
            build=partial(_conv, k, s, p), reads=reads,
        )
        for k, s, p, reads in (
            (2, 2, 0, "relu"), (3, 3, 0, "relu"), (3, 1, 0, "relu"), (3, 1, 1, "relu"), (3, 2, 1, "relu"),
            (5, 2, 0, "relu"), (5, 1, 0, "centred"), (1, 2, 0, "relu"),
        )
    ]  # fmt: skip


def _skips() -> list[Setting]:
    plain = [
        Setting(row="skip connection", detail="x + F(x)", paper="✓", build=lambda: Residual(_branch()), reads=reads)
        for reads in ("centred", "relu")
    ]
    weighted = [
        Setting(row="skip connection", detail=f"α² {1 - b:g}, β² {b:g}", paper="✓", build=partial(_weighted, b))
        for b in (0.5, 0.1)
    ]
    return [
        *plain,
        *weighted,
        Setting(row="skip connection", detail="F ends in a ReLU", paper="✓", reads="relu", build=_rectified),
    ]


def _rectified() -> nn.Module:
    return Residual(nn.Sequential(_conv(3, 1, 1), nn.ReLU()))


def _pools() -> list[Setting]:
    average = [
        Setting(
            row="average pooling", detail=f"kernel {k}, stride {s}", paper="✓" if k == s else "✗",
            build=partial(nn.AvgPool2d, k, s), reads=reads,
        )
        for reads in ("centred", "relu")
        for k, s in ((2, 2), (3, 3), (3, 2), (SIDE, SIDE))
    ]  # fmt: skip
    largest = [
        Setting(
            row="max pooling", detail=f"kernel {k}, stride {s}", paper="✗", build=partial(nn.MaxPool2d, k, s),
            reads=reads,
        )
        for reads in ("centred", "relu")
        for k, s in ((2, 2), (3, 2))
    ]  # fmt: skip
    return [*average, *largest]


def _elementwise() -> list[Setting]:
    dropouts = [
        Setting(row="dropout", detail=f"p {p:g}", paper="✓", build=partial(nn.Dropout, p), reads="relu")
        for p in (0.1, 0.5, 0.9)
    ]
    rectifiers = [
        Setting(row="ReLU", detail="of centred inputs", paper="✓", build=nn.ReLU),
        Setting(row="ReLU", detail="of ReLU outputs", paper="✓", build=nn.ReLU, reads="relu"),
        Setting(row="ReLU", detail="of a sum of ReLU outputs and a layer", paper="✓", build=nn.ReLU, reads="residual"),
        Setting(row="leaky ReLU", detail="slope 0.01", paper="✓", build=lambda: nn.LeakyReLU(0.01)),
        Setting(row="leaky ReLU", detail="slope 0.3", paper="✓", build=lambda: nn.LeakyReLU(0.3)),
    ]
    curved = [
        # Small inputs stay where tanh is linear.
        Setting(
            row=name, detail=f"inputs of deviation {gain:g}", paper="✓" if (name, gain) == ("tanh", 0.1) else "✗",
            build=kind, gain=gain,
        )
        for name, kind in (("sigmoid", nn.Sigmoid), ("tanh", nn.Tanh))
        for gain in (0.1, 1.0, 3.0)
    ]  # fmt: skip
    return [*dropouts, *rectifiers, *curved]


SETTINGS = (*_linear(), *_convolutions(), *_skips(), *_pools(), *_elementwise())
