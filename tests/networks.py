"""Small networks of every kind that hessdiag measures, in float64: name -> (model, inputs)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """What a module holds, by name, and its forward pass as a function of the module and its inputs."""

    def __init__(self, rule: Callable[..., Any], **held: Any) -> None:
        super().__init__()
        self.rule = rule
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any, **by_name: Any) -> Any:
        return self.rule(self, *inputs, **by_name)


def network(forward: Callable[..., Any], **layers: nn.Module) -> nn.Module:
    """A module with this method, whose arguments have names."""
    model: nn.Module = type("Network", (nn.Module,), {"forward": forward})()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def having(layer: nn.Module, **attributes: Any) -> nn.Module:
    """The layer, with attributes set: a weight that it shares, say."""
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


def chain(*layers: nn.Module, last: tuple[int, int]) -> nn.Sequential:
    """Layers that lead to vectors, and a linear layer on these."""
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(*last))


class Multiplier(nn.Module):
    """x -> u x with one learnable scalar."""

    def __init__(self, value: float = 0.7) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor) -> Tensor:
        return self.u * x


def called_twice() -> nn.Module:
    rule = lambda m, x: m.last(F.relu(m.shared(F.relu(m.shared(x)))))  # noqa: E731
    return Net(rule, shared=nn.Linear(4, 4), last=nn.Linear(4, 3))


def tied() -> nn.Module:
    rule = lambda m, x: m.last(F.relu(m.second(F.relu(m.first(x)))))  # noqa: E731
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    return Net(rule, first=first, second=having(second, weight=first.weight), last=nn.Linear(4, 3))


def two_paths() -> nn.Module:
    layer = nn.Linear(4, 4)
    return Net(lambda m, x: m.last(F.relu(m.alias(x))), layer=layer, alias=layer, last=nn.Linear(4, 3))


def residual() -> nn.Module:
    """The input of a layer is read by a skip connection as well."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = F.relu(m.first(x))
        return m.last(x + F.relu(m.second(x)))

    return Net(forward, first=nn.Linear(4, 5), second=nn.Linear(5, 5), last=nn.Linear(5, 3))


def rows_merged() -> nn.Module:
    """Positions are folded into the batch dimension, as `view(-1, n)` does."""
    rows = lambda m, x: F.relu(m.first(x.reshape(-1, 3)))  # noqa: E731  (B 5, 4)
    return Net(lambda m, x: m.last(rows(m, x).view(len(x), -1)), first=nn.Linear(3, 4), last=nn.Linear(5 * 4, 3))


def frozen() -> nn.Module:
    """A layer whose weight is frozen between two that are not."""
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model[2].weight.requires_grad_(False)
    return model


def dot_product() -> nn.Module:
    """`scaled_dot_product_attention` called directly, with a projection of its own for each argument."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = F.scaled_dot_product_attention(m.q(x), m.k(x), m.v(x), is_causal=True)  # (B, T, 4)
        return m.last(h.mean(1))

    return Net(forward, **{name: nn.Linear(4, 4, bias=False) for name in "qkv"}, last=nn.Linear(4, 3))


def last_state(cell: nn.Module, size: int) -> nn.Module:
    return Net(lambda m, x: m.last(m.cell(x)[0][:, -1]), cell=cell, last=nn.Linear(size, 3))


def attention() -> nn.Module:
    """Self-attention: three projections in one weight, and an output layer whose forward is never called."""
    rule = lambda m, x: m.last(m.attend(x, x, x, need_weights=False)[0].mean(1))  # noqa: E731
    return Net(rule, attend=nn.MultiheadAttention(4, 2, batch_first=True), last=nn.Linear(4, 3))


def between(*layers: nn.Module) -> nn.Sequential:
    """Layers between two linear ones, the first of which is given."""
    return nn.Sequential(*layers, nn.Linear(5, 3))


BUILDERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 3, bias=False)), (4,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "inplace relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)), (4,)),
    "leaky relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.1), nn.Linear(6, 3)), (4,)),
    "sequence": (lambda: chain(nn.Linear(3, 4), nn.ReLU(), last=(20, 3)), (5, 3)),
    "rows merged": (rows_merged, (5, 3)),
    "conv stride": (lambda: chain(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), last=(12, 3)), (2, 6, 5)),
    "convs strided": (lambda: chain(
        nn.Conv2d(2, 3, 2, bias=False), nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(),
        last=(36, 3)), (2, 6, 7)),
    "conv padding": (lambda: chain(nn.Conv2d(2, 3, (3, 2), padding=(1, 0)), nn.ReLU(), last=(36, 3)), (2, 4, 4)),
    "conv dilation": (lambda: chain(nn.Conv2d(2, 3, 2, dilation=2, bias=False), nn.ReLU(), last=(12, 3)), (2, 4, 4)),
    "conv groups": (lambda: chain(nn.Conv2d(4, 6, 3, groups=2, padding=1), nn.ReLU(), last=(54, 3)), (4, 3, 3)),
    "depthwise": (lambda: chain(nn.Conv2d(3, 3, 2, groups=3), nn.ReLU(), last=(12, 2)), (3, 3, 3)),
    "conv same": (lambda: chain(nn.Conv2d(2, 2, 3, padding="same"), nn.ReLU(), last=(18, 2)), (2, 3, 3)),
    "conv circular": (lambda: chain(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.ReLU(), last=(18, 2)),
        (2, 3, 3)),
    "conv1d": (lambda: chain(nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.ReLU(), last=(12, 3)), (2, 7)),
    "conv3d": (lambda: chain(nn.Conv3d(1, 2, 2), nn.ReLU(), last=(16, 3)), (1, 3, 3, 3)),
    "pooled": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten()), (2, 8, 8)),
    "batchnorm eval": (lambda: between(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU()).eval(), (4,)),
    "groupnorm": (lambda: chain(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), last=(16, 3)), (2, 3, 3)),
    "residual": (residual, (4,)), "called twice": (called_twice, (4,)),
    "tied": (tied, (4,)), "two paths": (two_paths, (4,)),
    "multiplier": (lambda: between(nn.Linear(4, 5), nn.ReLU(), Multiplier()), (4,)),
    "prelu": (lambda: between(nn.Linear(4, 5), nn.PReLU()), (4,)),
    "unused": (lambda: Net(lambda m, x: m.used(x), used=nn.Linear(4, 3), unused=nn.Linear(4, 3)), (4,)),
    "lstm": (lambda: last_state(nn.LSTM(2, 2, batch_first=True), 2), (2, 2)), "attention": (attention, (3, 4)),
    "layernorm": (lambda: between(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU()), (4,)),
    "conv transpose": (lambda: chain(nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), last=(27, 2)), (2, 2, 2)),
    "conv transpose 1d": (lambda: chain(nn.ConvTranspose1d(2, 3, 2, stride=2), nn.ReLU(), last=(18, 2)), (2, 3)),
    "conv transpose 3d": (lambda: chain(nn.ConvTranspose3d(2, 2, 2, groups=2), nn.ReLU(), last=(54, 2)), (2, 2, 2, 2)),
    "max pooled": (lambda: chain(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), last=(12, 3)), (1, 6, 6)),
    "adaptive max pooled": (lambda: chain(nn.Conv1d(2, 3, 2), nn.ReLU(), nn.AdaptiveMaxPool1d(2), last=(6, 2)), (2, 6)),
    "dropout eval": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)).eval(), (4,)),
    "frozen": (frozen, (4,)),
    "instancenorm": (lambda: chain(nn.Conv2d(1, 2, 2), nn.InstanceNorm2d(2, affine=True), nn.ReLU(), last=(8, 3)),
        (1, 3, 3)),
    "rmsnorm": (lambda: between(nn.Linear(4, 5), nn.RMSNorm(5), nn.SiLU()), (4,)),
    "gru": (lambda: last_state(nn.GRU(2, 2, num_layers=2, bias=False, batch_first=True), 2), (2, 2)),
    "dot product": (dot_product, (3, 4)),
    "softplus": (lambda: chain(nn.Conv1d(2, 3, 2), nn.Softplus(), last=(9, 2)), (2, 4)),
    "tanh": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), (4,)),
}  # fmt: skip

RECURRENT = ("lstm", "gru")
CURVED = ("tanh", "groupnorm", "prelu", "called twice", "tied", "attention", "layernorm", "softplus", "instancenorm",
    "rmsnorm", "dot product", *RECURRENT)  # fmt: skip
PLAIN = {"signals": False}  # options of `diagnose`: blocks alone

PIECEWISE_LINEAR = [name for name in BUILDERS if name not in CURVED]


def build(name: str, *, batch: int = 5, device: str = "cpu") -> tuple[nn.Module, Tensor]:
    """The named network with random weights, and a random batch."""
    torch.manual_seed(0)
    make, size = BUILDERS[name]
    return make().double().to(device), torch.randn(batch, *size, dtype=torch.float64).to(device)
