"""Networks, in float64, some of whose layers do not run over the examples; and some that mix examples."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks import Net, last_state

Rule = Callable[..., Any]


def two(rule: Rule, *sizes: int, **held: Any) -> nn.Module:
    """Two linear layers, `first` of sizes 0 to 1 and `last` of sizes 2 to 3 or of 1 to 2."""
    return Net(rule, first=nn.Linear(*sizes[:2]), last=nn.Linear(*sizes[-2:]), **held)


def time_first_encoder() -> nn.Module:
    """An encoder over (time, batch, features) inside a model whose batch comes first."""
    rule = lambda m, x: m.last(m.encode(m.read(x).transpose(0, 1)).mean(0))  # noqa: E731
    layers = {"read": nn.Linear(3, 4), "last": nn.Linear(4, 2)}
    return Net(rule, **layers, encode=nn.TransformerEncoderLayer(4, 2, 2, dropout=0.0))


def time_first() -> nn.Module:
    """A layer that is called on (time, batch, features), as many times as examples."""
    return two(lambda m, x: m.last(m.first(x.transpose(0, 1)).tanh().mean(0)), 3, 4, 2)


def position_table() -> nn.Module:
    """Swin v2's continuous position bias: a small network on a table, the same for all examples."""
    rule = lambda m, x: m.last((m.first(x) * m.bias(m.table.to(x)).sum(1)).tanh())  # noqa: E731
    model = Net(rule, bias=nn.Linear(2, 3), first=nn.Linear(3, 4), last=nn.Linear(4, 2))
    model.register_buffer("table", torch.linspace(-1, 1, 8).view(4, 2))
    return model


def windows() -> nn.Module:
    """Windows of all examples, the examples running fastest."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(torch.cat([x[:, :2], x[:, 2:]])).tanh()  # (2 B, 3)
        return m.last(torch.cat(h.chunk(2), dim=1))

    return two(forward, 2, 3, 6, 2)


def without_padding() -> nn.Module:
    """Only the positions that are no padding are read: more rows of some examples than of others."""

    def forward(m: Any, x: Tensor, mask: Tensor) -> Tensor:
        filled = x.new_zeros(*mask.shape, 4)
        filled[mask] = m.first(x[mask]).tanh()
        return m.last(filled.sum(1))

    return two(forward, 3, 4, 2)


def packed_sequence() -> nn.Module:

    def forward(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        h = packed._replace(data=m.first(packed.data).tanh())
        return m.last(nn.utils.rnn.pad_packed_sequence(h, batch_first=True)[0].sum(1))

    return two(forward, 3, 4, 2)


def experts() -> nn.Module:

    def forward(m: Any, x: Tensor) -> Tensor:
        scores = m.gate(x).softmax(1)
        best, h = scores.argmax(1), torch.zeros_like(x)
        for number, expert in enumerate(m.experts):
            chosen = (best == number).nonzero()[:, 0]
            h = h.index_add(0, chosen, expert(x[chosen]).tanh() * scores[chosen, number : number + 1])
        return m.last(h)

    layers = {"gate": nn.Linear(3, 2), "last": nn.Linear(3, 2)}
    return Net(forward, **layers, experts=nn.ModuleList([nn.Linear(3, 3) for _ in range(2)]))


def hypernetwork() -> nn.Module:
    """A layer whose weight another layer makes of a learnable code."""
    weight = lambda m: m.first(m.code.squeeze(0)).view(3, 4)  # noqa: E731
    return two(lambda m, x: m.last(F.linear(x, weight(m)).tanh()), 3, 12, 3, 2, code=nn.Parameter(torch.randn(1, 3)))


def siamese() -> nn.Module:

    def forward(m: Any, a: Tensor, b: Tensor) -> Tensor:
        return m.last(torch.cat(m.first(torch.cat([a, b])).tanh().chunk(2), dim=1))

    return two(forward, 4, 3, 6, 2)


def own_forward(kind: type[Any], forward: Rule, *args: int, **options: int) -> nn.Module:
    """A layer of a subclass, with another forward pass."""
    return type("Own", (kind,), {"forward": forward})(*args, **options)


def convolved(forward: Rule, **options: int) -> Callable[[], nn.Module]:
    """One convolution with that forward pass on (B, 1, 3, 3), and an output layer."""
    layer = lambda: own_forward(nn.Conv2d, forward, 1, 2, 2, **options)  # noqa: E731
    return lambda: nn.Sequential(layer(), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2))


def pads_itself(m: Any, x: Tensor) -> Tensor:
    """As timm's `Conv2dSame`: what is padded is known in the forward pass."""
    return F.conv2d(F.pad(x, (0, 1, 0, 1)), m.weight, m.bias, m.stride)


def standardised(m: Any, x: Tensor) -> Tensor:
    """A convolution whose weight is standardised in the forward pass."""
    return F.conv2d(x, m.weight - m.weight.mean((1, 2, 3), keepdim=True), m.bias, padding=m.padding)


def doubled(m: Any, x: Tensor) -> Tensor:
    """A linear layer whose own forward pass keeps the shapes."""
    return F.linear(x, 2 * m.weight**2, m.bias)


def faint_branch(scale: float) -> nn.Module:
    """A branch scaled down that uses a layer's weight once more."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = F.linear(m.second(x).tanh(), m.second.weight).tanh()
        return m.last(m.first(x).tanh() + scale * h)

    return Net(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4), last=nn.Linear(4, 3))


def padded() -> nn.Module:
    """`nn.TransformerEncoder` with a padding mask, which has kernels of its own for inference."""

    def forward(m: Any, x: Tensor, padding: Tensor) -> Tensor:
        return m.last(m.encode(x, src_key_padding_mask=padding).masked_fill(padding.unsqueeze(2), 0).sum(1))

    layer = nn.TransformerEncoderLayer(4, 2, 2, dropout=0.0, batch_first=True)
    return Net(forward, encode=nn.TransformerEncoder(layer, 1), last=nn.Linear(4, 2)).eval()


def physics() -> nn.Module:
    """A physics-informed network: its outputs hold its derivative in its inputs."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x.requires_grad_() if not x.requires_grad else x
        u = m.last(m.first(x).tanh())
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return torch.cat([u, du], dim=1)

    return two(forward, 2, 5, 1)


def mixed(mix: Callable[[Tensor], Tensor]) -> nn.Module:
    """A function of the activations of all examples, between two layers."""
    return two(lambda m, x: m.last(mix(m.first(x).tanh())), 4, 4, 2)


def sum_over_first(turned: bool = False) -> nn.Module:
    return mixed(lambda h: h.flip(0).cumsum(0).flip(0) if turned else h.cumsum(0))


def causal_over_first() -> nn.Module:

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.read(x)
        mask = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        return m.last(m.attend(h, h, h, attn_mask=mask, need_weights=False)[0])

    return Net(forward, read=nn.Linear(3, 4), attend=nn.MultiheadAttention(4, 2), last=nn.Linear(4, 2))


LENGTHS = torch.tensor([5, 3, 2, 2])


def of(*size: int, batch: int = 4) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, *size, dtype=torch.float64)


def ragged() -> Tensor:
    return torch.arange(5) < LENGTHS.view(4, 1)


Made = tuple[Callable[[], nn.Module], Callable[[], Any]]

WITHOUT_RULES: dict[str, Made] = {
    "time first encoder": (time_first_encoder, of(2, 3, batch=2)), "time first": (time_first, of(3, 3)),
    "time first, as many as examples": (time_first, of(4, 3)), "position table": (position_table, of(3)),
    "windows": (windows, of(4)), "without padding": (without_padding, lambda: (of(5, 3)(), ragged())),
    "packed sequence": (packed_sequence, lambda: (of(5, 3)(), LENGTHS)), "experts": (experts, of(3)),
    "hypernetwork": (hypernetwork, of(4)), "siamese": (siamese, lambda: (of(4)(), of(4)())),
    "pads itself": (convolved(pads_itself, stride=2), of(1, 3, 3)),
    "standardised": (convolved(standardised), of(1, 3, 3)),
    "own forward": (lambda: nn.Sequential(own_forward(nn.Linear, doubled, 4, 3), nn.Tanh(), nn.Linear(3, 2)), of(4)),
    "faint branch": (lambda: faint_branch(0.1), of(4)),
    "padding mask": (padded, lambda: (of(2, 4, batch=2)(), torch.arange(2) > torch.tensor([[1], [0]]))),
    "physics informed": (physics, of(2)),
}  # fmt: skip

MIXING: dict[str, Made] = {
    "sum over the examples": (sum_over_first, of(4)),
    "sum over later examples": (lambda: sum_over_first(turned=True), of(4)),
    "forgotten batch_first": (lambda: last_state(nn.LSTM(3, 4), 4), of(3, 3)),  # takes examples for time
    "causal over the examples": (causal_over_first, of(3)),
    "weak mixing": (lambda: mixed(lambda h: h + 1e-14 * h.roll(1, 0)), of(4)),  # not to be seen in the outputs
}
