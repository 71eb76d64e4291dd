"""Small networks of every kind that hessdiag measures, in float64: name -> (model, inputs)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Multiplier(nn.Module):
    """x -> u x with one learnable scalar."""

    def __init__(self, value: float = 0.7) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        return self.u * x


class Residual(nn.Module):
    """The input of a layer is read by a skip connection as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        return self.last(x + F.relu(self.second(x)))


class CalledTwice(nn.Module):
    """One layer used at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.shared(F.relu(self.shared(x)))))


class Tied(nn.Module):
    """Two layers hold the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.second(F.relu(self.first(x)))))


class TwoPaths(nn.Module):
    """One submodule reachable under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.alias = self.layer
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.alias(x)))


class RowsMerged(nn.Module):
    """Positions are folded into the batch dimension, as `view(-1, n)` does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(5 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = F.relu(self.first(x.reshape(-1, 3)))  # (B 5, 4)
        return self.last(rows.view(len(x), -1))


class Unused(nn.Module):
    """A layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


class Recurrent(nn.Module):
    """An LSTM's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0][:, -1])


class Gated(nn.Module):
    """A two-layer GRU's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(3, 2, num_layers=2, batch_first=True), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0][:, -1])


class Frozen(nn.Module):
    """A layer whose weight is frozen between two that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 3)
        self.second.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.second(F.relu(self.first(x)))))


class DotProduct(nn.Module):
    """`scaled_dot_product_attention` called directly, with a projection of its own for each argument."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), is_causal=True)  # (B, T, 4)
        return self.last(h.mean(1))


class Attention(nn.Module):
    """Self-attention: three projections in one weight, and an output layer whose forward is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attend(x, x, x, need_weights=False)[0].mean(1))


BUILDERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 3, bias=False)), (4,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "inplace relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)), (4,)),
    "leaky relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.1), nn.Linear(6, 3)), (4,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)), (5, 3)),
    "rows merged": (RowsMerged, (5, 3)),
    "conv stride": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
        (2, 6, 5),
    ),
    "convs strided": (
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 3, 2, bias=False), nn.ReLU(inplace=True)),
            *(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
        ),
        (2, 6, 7),
    ),
    "conv padding": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, (3, 2), padding=(1, 0)), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
        (2, 4, 4),
    ),
    "conv dilation": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 2, dilation=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
        (2, 4, 4),
    ),
    "conv groups": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(54, 3)),
        (4, 3, 3),
    ),
    "depthwise": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 2, groups=3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)),
        (3, 3, 3),
    ),
    "conv same": (
        lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding="same"), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)),
        (2, 3, 3),
    ),
    "conv circular": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)
        ),
        (2, 3, 3),
    ),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
        (2, 7),
    ),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
        (1, 3, 3, 3),
    ),
    "pooled": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        (2, 8, 8),
    ),
    "batchnorm eval": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)).eval(),
        (4,),
    ),
    "groupnorm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
        (2, 3, 3),
    ),
    "residual": (Residual, (4,)),
    "called twice": (CalledTwice, (4,)),
    "tied": (Tied, (4,)),
    "two paths": (TwoPaths, (4,)),
    "multiplier": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), Multiplier(), nn.Linear(5, 3)), (4,)),
    "prelu": (lambda: nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)), (4,)),
    "unused": (Unused, (4,)),
    "lstm": (Recurrent, (3, 3)),
    "attention": (Attention, (3, 4)),
    "layernorm": (lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3)), (4,)),
    "conv transpose": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)),
        (2, 2, 2),
    ),
    "conv transpose 1d": (
        lambda: nn.Sequential(nn.ConvTranspose1d(2, 3, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)),
        (2, 3),
    ),
    "conv transpose 3d": (
        lambda: nn.Sequential(nn.ConvTranspose3d(2, 2, 2, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 2)),
        (2, 2, 2, 2),
    ),
    "max pooled": (
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)),
        (1, 6, 6),
    ),
    "adaptive max pooled": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.ReLU(), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(6, 2)),
        (2, 6),
    ),
    "dropout eval": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)).eval(),
        (4,),
    ),
    "frozen": (Frozen, (4,)),
    "instancenorm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
        ),
        (1, 3, 3),
    ),
    "rmsnorm": (lambda: nn.Sequential(nn.Linear(4, 5), nn.RMSNorm(5), nn.SiLU(), nn.Linear(5, 3)), (4,)),
    "gru": (Gated, (3, 3)),
    "dot product": (DotProduct, (3, 4)),
    "softplus": (lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Softplus(), nn.Flatten(), nn.Linear(9, 2)), (2, 4)),
    "tanh": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), (4,)),
}

RECURRENT = ("lstm", "gru")
CURVED = (
    *("tanh", "groupnorm", "prelu", "called twice", "tied", "attention", "layernorm", "softplus"),
    *("instancenorm", "rmsnorm", "dot product", *RECURRENT),
)
PLAIN = {"signals": False}  # options of `diagnose`: blocks alone

PIECEWISE_LINEAR = [name for name in BUILDERS if name not in CURVED]


def build(name: str, *, batch: int = 5, device: str = "cpu") -> tuple[nn.Module, Tensor]:
    """The named network with random weights, and a random batch."""
    torch.manual_seed(0)
    make, size = BUILDERS[name]
    model = make().double().to(device)
    return model, torch.randn(batch, *size, dtype=torch.float64).to(device)
