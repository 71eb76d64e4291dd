"""Networks, in float64, some of whose layers do not run over the examples; and some that mix examples."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TimeFirst(nn.Module):
    """An encoder over (time, batch, features) inside a model whose batch comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.encode = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encode(self.read(x).transpose(0, 1)).mean(0))


class TimeFirstLinear(nn.Module):
    """A layer that is called on (time, batch, features), as many times as examples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.transpose(0, 1)).tanh().mean(0))


class PositionTable(nn.Module):
    """Swin v2's continuous position bias: a small network on a table, the same for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 8).view(4, 2))
        self.bias, self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) * self.bias(self.table.to(x)).sum(1)
        return self.last(h.tanh())


class Windows(nn.Module):
    """Windows of all examples, the examples running fastest."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(2, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.cat([x[:, :2], x[:, 2:]])  # (2 B, 2)
        h = self.inner(rows).tanh()
        return self.last(torch.cat(h.chunk(2), dim=1))


class WithoutPadding(nn.Module):
    """Only the positions that are no padding are read: more rows of some examples than of others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = self.first(x[mask]).tanh()
        filled = x.new_zeros(*mask.shape, 4)
        filled[mask] = rows
        return self.last(filled.sum(1))


class Packed(nn.Module):
    """A packed sequence through a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        h = packed._replace(data=self.first(packed.data).tanh())
        return self.last(nn.utils.rnn.pad_packed_sequence(h, batch_first=True)[0].sum(1))


class Experts(nn.Module):
    """Each example goes to one of two experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.last = nn.Linear(3, 2), nn.Linear(3, 2)
        self.experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        scores = self.gate(x).softmax(1)
        best = scores.argmax(1)
        h = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            chosen = (best == number).nonzero()[:, 0]
            h = h.index_add(0, chosen, expert(x[chosen]).tanh() * scores[chosen, number : number + 1])
        return self.last(h)


class Hypernetwork(nn.Module):
    """A layer whose weight another layer makes of a learnable code."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(1, 3))
        self.make, self.last = nn.Linear(3, 12), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.linear(x, self.make(self.code.squeeze(0)).view(3, 4)).tanh())


class PadsItself(nn.Conv2d):
    """As timm's `Conv2dSame`: what is padded is known in the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised in the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, w, self.bias)


class Doubled(nn.Linear):
    """A linear layer whose own forward pass keeps the shapes."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, 2 * self.weight**2, self.bias)


class FaintBranch(nn.Module):
    """A branch scaled down by 1e-5 that uses a layer's weight once more."""

    def __init__(self, scale: float = 1e-5) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        h = F.linear(self.second(x).tanh(), self.second.weight).tanh()
        return self.last(self.first(x).tanh() + self.scale * h)


class Padded(nn.Module):
    """`nn.TransformerEncoder` with a padding mask, which has kernels of its own for inference."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0, batch_first=True)
        self.encode, self.last = nn.TransformerEncoder(layer, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        h = self.encode(x, src_key_padding_mask=padding)
        return self.last(h.masked_fill(padding.unsqueeze(2), 0).sum(1))


class Physics(nn.Module):
    """A physics-informed network: its outputs hold its derivative in its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_() if not x.requires_grad else x
        u = self.last(self.first(x).tanh())
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return torch.cat([u, du], dim=1)


class Words(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(6, 3, sparse=True), nn.Linear(3, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.embed(tokens).tanh().mean(1))


class Siamese(nn.Module):
    """Both sides of a pair in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.tower, self.last = nn.Linear(4, 3), nn.Linear(6, 2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        u, v = self.tower(torch.cat([a, b])).tanh().chunk(2)
        return self.last(torch.cat([u, v], dim=1))


class SumOverFirst(nn.Module):
    """A running sum over the examples."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.turned = turned

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        h = h.flip(0).cumsum(0).flip(0) if self.turned else h.cumsum(0)
        return self.last(h)


class ForgottenBatchFirst(nn.Module):
    """A recurrent layer that takes examples for time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.LSTM(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0][:, -1])


class CausalFirst(nn.Module):
    """Causal attention over the first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.attend, self.last = nn.Linear(3, 4), nn.MultiheadAttention(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.read(x)
        mask = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        return self.last(self.attend(h, h, h, attn_mask=mask, need_weights=False)[0])


class Whisper(nn.Module):
    """A mixing of neighbours too weak to be seen in the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        return self.last(h + 1e-14 * h.roll(1, 0))


LENGTHS = torch.tensor([5, 3, 2, 2])


def of(*size: int, batch: int = 4) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, *size, dtype=torch.float64)


def ragged() -> Tensor:
    """The positions that are no padding, (4, 5)."""
    return torch.arange(5) < LENGTHS.view(4, 1)


def convolved(layer: type[nn.Conv2d], *args: int, sites: int, **options: int) -> Callable[[], nn.Module]:
    """One convolution of that class on (B, 1, 3, 3), with an output layer."""
    return lambda: nn.Sequential(layer(*args, **options), nn.Tanh(), nn.Flatten(), nn.Linear(2 * sites, 2))


Made = tuple[Callable[[], nn.Module], Callable[[], Any]]

WITHOUT_RULES: dict[str, Made] = {
    "time first encoder": (TimeFirst, of(4, 3)),
    "time first": (TimeFirstLinear, of(3, 3)),
    "time first, as many as examples": (TimeFirstLinear, of(4, 3)),
    "position table": (PositionTable, of(3)),
    "windows": (Windows, of(4)),
    "without padding": (WithoutPadding, lambda: (of(5, 3)(), ragged())),
    "packed sequence": (Packed, lambda: (of(5, 3)(), LENGTHS)),
    "experts": (Experts, of(3)),
    "hypernetwork": (Hypernetwork, of(4)),
    "siamese": (Siamese, lambda: (of(4)(), of(4)())),
    "pads itself": (convolved(PadsItself, 1, 2, 2, sites=4, stride=2), of(1, 3, 3)),
    "standardised": (convolved(Standardised, 1, 2, 2, sites=4), of(1, 3, 3)),
    "own forward": (lambda: nn.Sequential(Doubled(4, 3), nn.Tanh(), nn.Linear(3, 2)), of(4)),
    "faint branch": (lambda: FaintBranch(0.1), of(4)),
    "padding mask": (lambda: Padded().eval(), lambda: (of(5, 4)(), ~ragged())),
    "physics informed": (Physics, of(2)),
}

MIXING: dict[str, Made] = {
    "sum over the examples": (SumOverFirst, of(4)),
    "sum over later examples": (lambda: SumOverFirst(turned=True), of(4)),
    "forgotten batch_first": (ForgottenBatchFirst, of(3, 3)),
    "causal over the examples": (CausalFirst, of(3)),
    "weak mixing": (Whisper, of(4)),
}
