"""What a random network is made of: an operation by name, as a module or as a function of a module's own layers. An
operation looks at where the network stands (`Site`) and gives the module that comes next, or None where it does not
fit. `Site.layout` says how the tensor at hand holds the examples: rarely as simply as "in the first dimension".
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.kinds import Cube
from tests.layouts import own_forward, pads_itself, standardised
from tests.networks import Multiplier, Net, having


class Remember(nn.Identity):
    """The start of a skip connection."""


class Recall(nn.Identity):
    """The end of a skip connection, where the shapes agree."""


@dataclass
class Site:
    """Where a network stands while it is built. A layout is `"rows"` (B, F), `"sequence"` (B, T, F), `"time"` (T, B,
    F), `"folded"` (B T, F), `"interleaved"` (T B, F), `"doubled"` (2 B, F), `"signal"` (B, C, L) or `"image"` (B, C, H,
    W).
    """

    h: Tensor  # the one at hand, for a sample of examples
    layout: str
    examples: int  # B
    draw: random.Random  # of sizes
    positions: int = 1  # T, where the shape does not tell
    made: list[nn.Module] = field(default_factory=list)  # so far

    @property
    def width(self) -> int:
        return self.h.shape[-1]

    @property
    def channels(self) -> int:
        return self.h.shape[1]

    def size(self, low: int = 2, high: int = 4) -> int:
        return self.draw.randint(low, high)

    def earlier(self, kind: type[nn.Module], fits: Callable[[Any], bool]) -> Any:
        """A layer made before, perhaps deep inside a module."""
        found = [m for step in self.made for m in step.modules() if type(m) is kind and fits(m)]
        return self.draw.choice(found) if found else None


Make = Callable[[Site], Any]
OPERATIONS: dict[str, Make] = {}  # those that keep examples apart
MIXING: dict[str, Make] = {}  # those that may not, or that nobody can differentiate

BATCH_FIRST = ("rows", "sequence", "signal", "image")
ANY = (*BATCH_FIRST, "time", "folded", "interleaved", "doubled")
ROWS, SEQUENCE, IMAGE, CONVOLVED = ("rows",), ("sequence",), ("image",), ("signal", "image")
CONVOLUTIONS: dict[str, Any] = {"signal": nn.Conv1d, "image": nn.Conv2d}
TRANSPOSED: dict[str, Any] = {"signal": nn.ConvTranspose1d, "image": nn.ConvTranspose2d}


def add(operations: dict[str, Make], layouts: tuple[str, ...] = ANY, into: dict[str, Make] = OPERATIONS) -> None:
    """Register operations that fit these layouts."""
    for name, make in operations.items():
        into[name] = lambda s, make=make: make(s) if s.layout in layouts else None


def of(forward: Callable[[Any, Tensor], Any], **held: Make) -> Make:
    """A module that holds what `held` makes, with that forward pass."""
    return lambda s: Net(forward, **{name: each(s) for name, each in held.items()})


def plain(function: Callable[[Tensor], Tensor]) -> Make:
    return of(lambda _, h: function(h))


def linear(s: Site) -> nn.Linear:
    return nn.Linear(s.width, s.size())


def square(s: Site) -> nn.Linear:
    return nn.Linear(s.width, s.width)


def zero(s: Site) -> nn.Linear:
    layer = nn.Linear(s.width, s.width, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def narrow(s: Site) -> nn.Linear:
    return nn.Linear(s.width, 3)


def attending(s: Site, batch_first: bool = True) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(s.width, 1, batch_first=batch_first)


def parameter(*size: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size))


# Modules, wherever examples are.


def tied(s: Site) -> nn.Module | None:
    found = s.earlier(nn.Linear, lambda m: m.in_features == s.width)
    return found and having(nn.Linear(found.in_features, found.out_features), weight=found.weight)


def tied_to_embedding(s: Site) -> nn.Module | None:
    found = s.earlier(nn.Embedding, lambda m: m.embedding_dim == s.width)
    return found and having(nn.Linear(s.width, found.num_embeddings, bias=False), weight=found.weight)


def own(forward: Callable[..., Any]) -> Make:
    """A linear layer of a subclass, with another forward pass."""
    return lambda s: own_forward(nn.Linear, forward, s.width, s.size())


def weight_in_a_list(s: Site) -> nn.Module:
    weight = nn.Parameter(torch.randn(2, s.width).double())
    return Net(lambda m, h: F.linear(h, m.held[0]), weight=weight, held=[weight])


def without_gradient(m: Any, h: Tensor) -> Tensor:
    with torch.no_grad():
        scale = m.layer(h).square().mean(-1, keepdim=True)
    return m.layer(h) * scale


def weight_kept_after_use(m: Any, h: Tensor) -> Tensor:
    """What is computed from the weight is kept from call to call, as attention biases are."""
    if "scaled" not in m.cache:
        m.cache["scaled"] = 2 * m.layer.weight
    return F.linear(h, m.cache["scaled"])


def slice_in_place(m: Any, h: Tensor) -> Tensor:
    out = m.layer(h)
    out[..., :1] = out[..., 1:2].clone().sin()
    return out


add({
    "linear": lambda s: nn.Linear(s.width, s.size(), bias=s.draw.random() < 0.7),
    "again": lambda s: s.earlier(nn.Linear, lambda m: m.in_features == s.width),  # called before, too
    "tied": tied, "tied_to_embedding": tied_to_embedding,
    "doubled_weight": own(lambda m, h: F.linear(2 * h, m.weight, m.bias)),
    "normalised_weight": own(lambda m, h: F.linear(h, m.weight / m.weight.norm(dim=1, keepdim=True), m.bias)),
    "weight_norm": lambda s: parametrizations.weight_norm(linear(s)),
    "spectral_norm": lambda s: parametrizations.spectral_norm(linear(s)).eval(),
    "frozen": lambda s: linear(s).requires_grad_(False), "weight_in_a_list": weight_in_a_list,
    "scalar": lambda s: Multiplier(s.draw.uniform(-1, 2)), "prelu": lambda s: nn.PReLU(),
    "linear_relu_in_place": lambda s: nn.Sequential(linear(s), nn.ReLU(inplace=True)),
    "layer_norm": lambda s: nn.LayerNorm(s.width), "rms_norm": lambda s: nn.RMSNorm(s.width),
    "remember": lambda s: Remember(), "recall": lambda s: Recall(),
    "without_gradient": of(without_gradient, layer=linear),
    "weight_kept_after_use": of(weight_kept_after_use, layer=linear, cache=lambda s: {}),
    "slice_in_place": of(slice_in_place, layer=linear), "by_keyword": of(lambda m, h: m.layer(input=h), layer=linear),
    "residual": of(lambda m, h: h + m.last(m.first(h).tanh()), first=narrow, last=lambda s: nn.Linear(3, s.width)),
    # A residual branch that starts at zero: gradients before it vanish.
    "zero_branch": of(lambda m, h: h + m.last(m.first(h)), first=square, last=zero),
    "weight_used_twice": of(lambda m, h: F.linear(m.layer(h).tanh(), m.layer.weight.T), layer=square),
    "weight_as_penalty": of(lambda m, h: m.layer(h) * m.layer.weight.square().mean(), layer=linear),
    "never_called": of(lambda m, h: F.linear(h, m.layer.weight, m.layer.bias), layer=linear),
    "own_parameter": of(
        lambda m, h: torch.einsum("...i,oi->...o", h, m.weight), weight=lambda s: parameter(s.size(), s.width)),
    "unused": of(lambda m, h: h, layer=lambda s: nn.Linear(s.width, 2)),
    "checkpointed": of(lambda m, h: checkpoint(lambda z: m.layer(z).tanh(), h, use_reentrant=False), layer=linear),
    "vmapped": of(lambda m, h: torch.vmap(m.layer)(h), layer=linear),
    "bilinear": of(lambda m, h: m.layer(h, h.tanh()), layer=lambda s: nn.Bilinear(s.width, s.width, s.size())),
    "gated": of(lambda m, h: F.glu(m.layer(h), dim=-1), layer=lambda s: nn.Linear(s.width, 2 * s.size())),
    # Weights that another layer makes of a learnt code: what it reads has no examples.
    "weights_from_a_code": of(lambda m, h: F.linear(h, m.layer(m.code).tanh()),
        code=lambda s: parameter(3, 2), layer=lambda s: nn.Linear(2, s.width)),
    "layer_scale": of(lambda m, h: h * m.gain, gain=lambda s: parameter(s.width)),
    "one_row_of_the_weight": of(lambda m, h: m.layer(h).tanh() + F.linear(h, m.layer.weight[:1]), layer=narrow),
    "tiny_branch": of(lambda m, h: h + 1e-9 * m.layer(h).tanh(), layer=square),  # layer scale at the start
    "linear_times_in_place": of(lambda m, h: m.layer(h).mul_(2).add_(0.1), layer=linear),
    "complex_weight": of(lambda m, h: (h.to(m.weight.dtype) @ m.weight).abs(),  # No block, but others are.
        weight=lambda s: nn.Parameter(torch.randn(s.width, 2, dtype=torch.complex128))),
    **{function.__name__: plain(function) for function in (F.relu, torch.tanh, F.gelu, F.silu)},
    "softmax": plain(lambda h: h.softmax(-1)), "square": plain(torch.square),
    "detached_gate": plain(lambda h: h * h.detach().sigmoid()),
    "straight_through": plain(lambda h: h + (h.round() - h).detach()),
    "where": plain(lambda h: torch.where(h > 0, h.sin(), 0.1 * h)),
    "sort_features": plain(lambda h: h.sort(-1).values),
    "spectrum": plain(lambda h: torch.fft.rfft(h, dim=-1).abs().square()),
    "flip_features": plain(lambda h: h.flip(-1)), "leading_one": plain(lambda h: h.unsqueeze(0).sin().squeeze(0)),
    "own_function": plain(Cube.apply), "much_larger": plain(lambda h: 1e5 * h),
    "much_smaller": plain(lambda h: 1e-5 * h),
})  # fmt: skip


# Where examples are in the first dimension.


def sorted_and_back(m: Any, h: Tensor) -> Tensor:
    """Examples in another order, as packed sequences have them."""
    order = h.flatten(1).sum(1).argsort()
    return m.layer(h[order])[order.argsort()]


def siamese(m: Any, h: Tensor) -> Tensor:
    """Two views of every example behind one another in one batch."""
    one, other = m.layer(torch.cat([h, h.square()])).tanh().chunk(2)
    return one * other


def experts(m: Any, h: Tensor) -> Tensor:
    out, chosen = h.new_zeros(len(h), m.layers[0].out_features), h.sum(1) > 0
    for number, layer in enumerate(m.layers):
        rows = (chosen == bool(number)).nonzero().squeeze(1)
        out = out.index_add(0, rows, layer(h[rows]))
    return out


def batch_norm(s: Site) -> nn.Module:
    layer = (nn.BatchNorm2d if s.layout == "image" else nn.BatchNorm1d)(s.channels)
    layer.running_var.uniform_(0.5, 2)
    return layer.eval()


# Weights that another layer makes of the example.
hypernetwork = of(
    lambda m, h: (m.layer(h).unflatten(-1, (h.shape[-1], 2)) * h.unsqueeze(-1)).sum(-2),
    layer=lambda s: nn.Linear(s.width, s.width * 2),
)
# A layer called once for each example, on a tensor without a dimension of examples.
one_by_one = of(lambda m, h: torch.stack([m.layer(row) for row in h]), layer=linear)
add({"hypernetwork": hypernetwork}, ("rows", "sequence", "folded"))
add({"one_by_one": one_by_one}, ("rows", "sequence", "image"))
add({
    "slice_by_slice": of(lambda m, h: torch.cat([m.layer(row) for row in h.split(1)]), layer=linear),
    "sorted_and_back": of(sorted_and_back, layer=linear),
    "reversed_and_back": of(lambda m, h: m.layer(h.flip(0)).flip(0), layer=linear),
    "siamese": of(siamese, layer=linear),
    "padded_batch": of(lambda m, h: m.layer(torch.cat([h, torch.ones_like(h[:1])]))[:-1], layer=linear),
}, BATCH_FIRST)  # fmt: skip
add({"experts": of(experts, layers=lambda s: nn.ModuleList([nn.Linear(s.width, n) for n in [s.size()] * 2]))}, ROWS)
add({"batch_norm": batch_norm}, ("rows", "signal", "image"))


# Convolutions.


def convolution(s: Site) -> nn.Module | None:
    if min(s.h.shape[2:]) < 2:
        return None
    mode = s.draw.choice(["zeros", "zeros", "circular", "replicate", "reflect"])
    options = {"stride": s.size(1, 2), "padding": 1, "padding_mode": mode}
    return CONVOLUTIONS[s.layout](s.channels, s.size(), s.size(2, 3), **options)


def convolution_in_groups(s: Site) -> nn.Module:
    n = s.channels
    return CONVOLUTIONS[s.layout](n, n * s.size(1, 2), 3, padding="same", groups=n)


def average_pool(s: Site) -> nn.Module | None:
    kind: Any = {"signal": nn.AvgPool1d, "image": nn.AvgPool2d}[s.layout]
    return kind(2, stride=1) if min(s.h.shape[2:]) >= 2 else None


def one_channel(s: Site) -> nn.Conv2d:
    return nn.Conv2d(1, 1, 3, padding=1)


add({
    "convolution": convolution, "convolution_in_groups": convolution_in_groups,
    "convolution_dilated": lambda s: CONVOLUTIONS[s.layout](s.channels, s.size(), 2, padding=2, dilation=2),
    "convolution_transposed": lambda s: TRANSPOSED[s.layout](s.channels, s.size(), 2),
    "group_norm": lambda s: nn.GroupNorm(1, s.channels), "average_pool": average_pool,
}, CONVOLVED)  # fmt: skip
add({
    "convolution_of_one_image": of(lambda m, h: torch.stack([m.layer(image) for image in h]),
        layer=lambda s: nn.Conv2d(s.channels, s.size(), 2, padding=1)),
    "channels_as_images": of(lambda m, h: m.layer(h.flatten(0, 1).unsqueeze(1)).view_as(h), layer=one_channel),
    "convolution_padding_itself": lambda s: own_forward(
        nn.Conv2d, pads_itself, s.channels, s.size(), 2, stride=s.size(1, 2)),
    "convolution_standardised": lambda s: own_forward(nn.Conv2d, standardised, s.channels, s.size(), 3, padding=1),
    "instance_norm": lambda s: nn.InstanceNorm2d(s.channels, affine=True) if s.h[0, 0].numel() > 1 else None,
    "max_pool": lambda s: nn.MaxPool2d(2) if min(s.h.shape[2:]) >= 2 else None,
}, IMAGE)  # fmt: skip


# Sequences.


def bias_of_positions(s: Site) -> nn.Module:
    """Relative positions through a small network, as Swin v2 has them: its rows are not examples."""
    held = {"first": nn.Linear(1, 3), "last": nn.Linear(3, s.width, bias=False)}
    module = Net(lambda m, h: h * m.last(m.first(m.rows).relu()).sigmoid(), **held)
    module.register_buffer("rows", torch.linspace(-1, 1, s.h.shape[1], dtype=torch.float64).unsqueeze(1))
    return module


def positions(**options: Any) -> Make:
    layer = lambda s: nn.Embedding(s.h.shape[1], s.width, **options)  # noqa: E731
    return of(lambda m, h: h + m.layer(torch.arange(h.shape[1])), layer=layer)


def attend(m: Any, h: Tensor) -> Tensor:
    return m.layer(h, h, h, need_weights=False)[0]


def recurrent(s: Site) -> nn.Module:
    kind = s.draw.choice([nn.RNN, nn.GRU, nn.LSTM])
    cell = kind(s.width, 2, batch_first=s.layout == "sequence", bidirectional=s.draw.random() < 0.3)
    return Net(lambda m, h: m.cell(h)[0], cell=cell)


def linear_on_packed(m: Any, h: Tensor) -> Tensor:
    """A layer on the positions that count, of all examples behind one another."""
    kept = h[..., 0] > 0
    return h.new_zeros(*h.shape[:2], m.layer.out_features).masked_scatter(kept.unsqueeze(-1), m.layer(h[kept]))


add({
    "bias_of_positions": bias_of_positions,
    "positions_learnt": of(lambda m, h: h + m.weight, weight=lambda s: parameter(1, *s.h.shape[1:])),
    "positions_embedded": positions(), "positions_sparse": positions(sparse=True),
    # A learnt token, through a layer before it meets the examples.
    "class_token": of(
        lambda m, h: torch.cat([m.layer(m.token).expand(len(h), -1, -1), h], 1),
        token=lambda s: parameter(1, 1, s.width),
        layer=square,
    ),
    "step_by_step": of(lambda m, h: torch.stack([m.layer(h[:, t]) for t in range(h.shape[1])], 1), layer=linear),
    "mixed_over_positions": of(
        lambda m, h: m.layer(h.transpose(1, 2)).transpose(1, 2),
        layer=lambda s: nn.Linear(s.h.shape[1], s.h.shape[1]),
    ),
    "linear_on_packed": of(linear_on_packed, layer=linear),
}, SEQUENCE)  # fmt: skip
add({
    "attention": lambda s: Net(attend, layer=attending(s, s.layout == "sequence")), "recurrent": recurrent,
}, ("sequence", "time"))  # fmt: skip


# From one layout to another.


def to(layout: str, function: Callable[[Tensor], Tensor], s: Site, positions: int = 1) -> nn.Module:
    """A reshape, after which the layout is another."""
    s.layout, s.positions = layout, positions
    return plain(function)(s)


def fold(s: Site) -> nn.Module:
    first = s.layout == "sequence"
    return to("folded" if first else "interleaved", lambda h: h.flatten(0, 1), s, s.h.shape[int(first)])


def home(s: Site) -> nn.Module:
    """Back to a layout with examples in the first dimension."""
    T = s.positions
    back: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
        "time": ("sequence", lambda h: h.transpose(0, 1)),
        "folded": ("sequence", lambda h: h.unflatten(0, (-1, T))),
        "interleaved": ("sequence", lambda h: h.unflatten(0, (T, -1)).transpose(0, 1)),
        "doubled": ("rows", lambda h: torch.cat(h.chunk(2), 1)),
    }
    return to(*back[s.layout], s)


def flatten(s: Site) -> nn.Module | None:
    return to("rows", lambda h: h.flatten(1), s) if s.h[0].numel() <= 12 else None


def mean_pool(s: Site) -> nn.Module:
    axes = (1,) if s.layout == "sequence" else tuple(range(2, s.h.dim()))
    return to("rows", lambda h: h.mean(axes), s)


add({"fold": fold}, ("sequence", "time"))
add({"examples_first": home}, ("time", "folded", "interleaved", "doubled"))
add({"flatten": flatten, "mean_pool": mean_pool}, ("sequence", "signal", "image"))
for name, before, after, reshape in [
    ("time_first", "sequence", "time", lambda h: h.transpose(0, 1)),
    ("double", "rows", "doubled", lambda h: torch.cat([h, h.cos()])),  # the same examples once more behind them
    ("features_to_channels", "sequence", "signal", lambda h: h.transpose(1, 2)),
    ("as_image", "sequence", "image", lambda h: h.unsqueeze(1)),
    ("rows_as_sequence", "rows", "sequence", lambda h: torch.stack([h, h.sin()], 1)),
    ("patches", "image", "sequence", lambda h: h.flatten(2).transpose(1, 2)),
    ("channels_to_features", "signal", "sequence", lambda h: h.transpose(1, 2)),
    ("last_position", "sequence", "rows", lambda h: h[:, -1]),
]:
    add({name: lambda s, after=after, reshape=reshape: to(after, reshape, s)}, (before,))


# Where examples see one another.


def input_in_place(m: Any, h: Tensor) -> Tensor:
    """What a layer has read is written over afterwards: autograd itself refuses this one."""
    h = h.clone()
    out = m.layer(h)
    h.mul_(2)
    return torch.cat([out, h], -1)


def counts_its_calls(m: Any, h: Tensor) -> Tensor:
    m.calls += 1
    return h * m.calls


add({"input_in_place": of(input_in_place, layer=linear)}, ANY, MIXING)
add({
    "running_sum": plain(lambda h: h.cumsum(0)),
    "previous_example": plain(lambda h: h + 0.1 * torch.cat([torch.zeros_like(h[:1]), h[:-1]])),
    "rolled": plain(lambda h: h + h.roll(1, 0)),
    "rolled_in_gradient_alone": plain(lambda h: h + h.roll(1, 0) - h.roll(1, 0).detach()),
    "rolled_in_curvature_alone": plain(lambda h: h + (h.roll(1, 0) - h.roll(1, 0).detach()).square()),
    "first_example": plain(lambda h: h + h[:1]), "first_example_gates": plain(lambda h: h * h[:1].sigmoid()),
    "centred": plain(lambda h: h - h.mean(0)), "softmax_over_examples": plain(lambda h: h.softmax(0)),
    "by_size_of_batch": plain(lambda h: h * len(h)),
    "pairs": plain(lambda h: h + h.view(-1, 2, *h.shape[1:]).flip(1).reshape(h.shape)),
    "mixed_times_zero": plain(lambda h: h + 0 * h.roll(1, 0)),
    "mixed_a_little": plain(lambda h: h + 1e-7 * h.roll(1, 0)),
    "mixed_in_large_batches": plain(lambda h: h + h.roll(1, 0) if len(h) > 2 else h),
    "dropout": plain(lambda h: F.dropout(h, 0.5)),
    "branches_on_the_last": plain(lambda h: h.sin() if float(h[-1].detach().sum()) > 0 else h.cos()),
    "late_neighbour": plain(lambda h: torch.cat([h[:-1], h[-1:] + h[-2:-1].detach()]) if len(h) > 2 else h),
    "tiny_branch_of_the_mean": plain(lambda h: h + 1e-13 * h.mean(0).detach()),
    "order_by_size": plain(lambda h: h[h.flatten(1).sum(1).argsort()]),
    # Too small to be seen in the outputs, but not in the weight's own gradient.
    "tiny_branch_of_a_sum": of(lambda m, h: h + 1e-13 * m.layer(h.cumsum(0).detach()), layer=square),
    # The weight starts at zero and reads what is mixed.
    "zero_head_of_a_sum": of(lambda m, h: h + m.layer(h.cumsum(0)), layer=zero),
    "zero_head_of_a_neighbour": of(
        lambda m, h: h + m.layer(torch.cat([h[:-1], h[-2:-1].detach()]) if len(h) > 1 else h), layer=zero
    ),
}, BATCH_FIRST, MIXING)  # fmt: skip
add({
    "embedding_renormalised": positions(max_norm=0.5),  # the forward pass writes to the weight
    "attention_over_examples": of(attend, layer=lambda s: attending(s, False)),
    "recurrent_over_examples": of(lambda m, h: m.cell(h)[0], cell=lambda s: nn.GRU(s.width, 2)),
}, SEQUENCE, MIXING)  # fmt: skip
add({
    "counts_its_calls": of(counts_its_calls, calls=lambda s: 0),
    "features_across_examples": plain(lambda h: h.t().reshape(h.shape)),
    "linear_over_examples": of(lambda m, h: h + m.layer(h.T).T, layer=lambda s: nn.Linear(s.examples, s.examples)),
    "convolution_over_examples": of(
        lambda m, h: m.layer(h.T.unsqueeze(1)).squeeze(1).T, layer=lambda s: nn.Conv1d(1, 1, 3, padding=1)
    ),
    "parameter_of_each_example": of(
        lambda m, h: h * m.gain[: len(h)], gain=lambda s: parameter(s.examples, s.width)
    ),
    # A weight that only the second example meets.
    "examples_counted": of(lambda m, h: torch.cat([h[:1], m.layer(h[1:])]), layer=square),
}, ROWS, MIXING)  # fmt: skip
