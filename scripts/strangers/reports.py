"""Faults out of public questions and reports, in small networks of their kind, and healthy networks that look odd."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, healthy, report
from strangers.data import digits, text

FORUM, OVERFLOW, RECIPE = "discuss.pytorch.org", "stackoverflow.com", "karpathy.github.io"
TORCH, LABML, FAIRSEQ = (
    "pytorch/pytorch",
    "labmlai/annotated_deep_learning_paper_implementations",
    "facebookresearch/fairseq",
)
D2L, TIMM, DIFFUSERS, TRANSFORMERS = (
    "d2l-ai/d2l-en",
    "rwightman/timm",
    "huggingface/diffusers",
    "huggingface/transformers",
)


def mlp(widths: Sequence[int], *last: nn.Module, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for n, m in pairwise(widths[:-1]):
        layers += [nn.Linear(n, m), act()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]), *last)


def cnn(width: int = 16, *, norm: bool = True, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(n, m, 3, padding=1), *([nn.BatchNorm2d(m)] if norm else []), act(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def classify(model: nn.Module, size: int = 16) -> Task:
    x, t = digits(size, count=64)
    return Task(model, (x, t), lambda: F.cross_entropy(model(x), t), {"loss": "cross-entropy"})


def regress(model: nn.Module, scale: float = 1.0, shift: float = 0.0, *, flat: bool = False) -> Task:
    x = torch.randn(64, 16)
    t = torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    t = scale * (t - t.mean()) / t.std() + shift
    t = t[:, 0] if flat else t
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": F.mse_loss if flat else "mse"})


class Lambda(nn.Module):
    """A function as a layer."""

    def __init__(self, function) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Block(nn.Module):
    """Pre-normalised attention and MLP, written out."""

    def __init__(self, d: int, *, scale: float, axis: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads, self.scale, self.axis = 4, scale, axis

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            f(self.norm1(x)).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        scores = (self.scale * q @ k.transpose(2, 3)).masked_fill(mask, -torch.inf)
        x = x + self.out((scores.softmax(self.axis) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A language model of such blocks, without a tied head."""

    def __init__(self, d: int = 64, layers: int = 3, *, scale: float = 0.25, axis: int = -1, where: str = "") -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, d), nn.Embedding(64, d)
        blocks = [Block(d, scale=scale, axis=axis) for _ in range(layers)]
        self.blocks = blocks if where == "list" else nn.ModuleList(blocks)  # type: ignore[assignment]
        self.norm, self.head, self.where = nn.LayerNorm(d), nn.Linear(d, 256), where
        for module in [*self.modules(), *(m for each in blocks for m in each.modules())]:
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, idx: Tensor) -> Tensor:
        t = idx.shape[1]
        at = torch.zeros(t, dtype=torch.long) if self.where == "zero" else torch.arange(t)
        x, mask = self.tokens(idx) + self.positions(at), torch.ones(t, t, dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def predict(model: nn.Module) -> Task:
    x, t = text(8, 64)
    return Task(model, (x, t), lambda: F.cross_entropy(model(x).flatten(0, 1), t.flatten()), {"loss": "cross-entropy"})


@report("probabilities into cross-entropy", RECIPE, fault="softmax at the end of the network", guilty="14.weight",
        says="softmax")  # fmt: skip
def probabilities(planted: bool) -> Task:
    return classify(nn.Sequential(cnn(), *([nn.Softmax(1)] if planted else [])))


@report("ReLU on the logits", FORUM, fault="a ReLU after the last layer", guilty=r"^5\.", says="ReLU.*last|last.*ReLU")
def relu_logits(planted: bool) -> Task:
    return regress(mlp((16, 64, 64, 1), *([nn.ReLU()] if planted else [])))


@report("sigmoid on unbounded targets", OVERFLOW, fault="a sigmoid at the end, targets −20 to 20", guilty=r"^5\.",
        says="sigmoid")  # fmt: skip
def sigmoid_targets(planted: bool) -> Task:
    return regress(mlp((16, 64, 64, 1), *([nn.Sigmoid()] if planted else [])), 5.0)


@report("raw targets", FORUM, fault="house prices in dollars as targets", guilty=r"^5\.", says="target")
def raw_targets(planted: bool) -> Task:
    return regress(mlp((16, 64, 64, 1)), *((8e4, 2e5) if planted else (1.0, 0.0)))


@report("targets broadcast", FORUM, fault="outputs (B, 1) beside targets (B,)", says="shape|broadcast")
def targets_broadcast(planted: bool) -> Task:
    return regress(nn.Sequential(mlp((16, 64, 64, 1)), *([] if planted else [nn.Flatten(0)])), flat=True)


@report(
    "layers in a list",
    FORUM,
    fault="blocks in a plain list: not registered",
    guilty="blocks",
    says="not registered|unregistered",
)
def layers_in_a_list(planted: bool) -> Task:
    return predict(Gpt(where="list" if planted else ""))


@report("positions all zero", TRANSFORMERS, fault="every position looks up row 0", guilty="positions")
def positions_all_zero(planted: bool) -> Task:
    return predict(Gpt(where="zero" if planted else ""))


@report("softmax over queries", LABML, fault="attention normalised over queries", guilty="query|key")
def softmax_over_queries(planted: bool) -> Task:
    return predict(Gpt(axis=-2 if planted else -1))


@report("unscaled scores", D2L, fault="attention logits × 64 in a network of unit weights", guilty="query|key")
def unscaled_scores(planted: bool) -> Task:
    model = Gpt(scale=64.0 if planted else 0.25)
    for block in model.blocks:
        nn.init.normal_(block.query.weight, std=0.125)
        nn.init.normal_(block.key.weight, std=0.125)
    return predict(model)


@report("equal weights", OVERFLOW, fault="all weights constant", guilty=r"weight")
def equal_weights(planted: bool) -> Task:
    model = mlp((256, 128, 128, 10))
    for p in model.parameters():
        if planted:
            nn.init.constant_(p, 0.01)
    return classify(model)


@report("zero weights", OVERFLOW, fault="all weights zero", guilty=r"weight")
def zero_weights(planted: bool) -> Task:
    model = mlp((256, 128, 128, 10))
    for p in model.parameters():
        if planted:
            nn.init.zeros_(p)
    return classify(model)


@report("deep sigmoids", D2L, fault="ten sigmoid layers from N(0, 1)", guilty=r"weight")
def deep_sigmoids(planted: bool) -> Task:
    model = mlp((256, *[64] * 5, 10), act=nn.Sigmoid if planted else nn.Tanh)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=1.0) if planted else nn.init.xavier_normal_(layer.weight)
    return classify(model)


@report("uninitialised", TORCH, fault="one weight is torch.empty of used memory", guilty=r"^3\.")
def uninitialised(planted: bool) -> Task:
    model = mlp((256, 128, 128, 10))
    if planted:  # as allocators hand it out: mostly nothing, a few large numbers
        w = model[3].weight.data
        w.copy_(torch.where(torch.rand_like(w) < 0.02, 300 * torch.randn_like(w), 1e-38 * torch.randn_like(w)))
    return classify(model)


@report(
    "instance normalisation of one pixel", FORUM, fault="instance normalisation after global pooling", guilty="^9|^8|^6"
)
def one_pixel(planted: bool) -> Task:
    base = cnn(norm=False)
    norm = nn.GroupNorm(64, 64) if planted else nn.GroupNorm(4, 64)
    return classify(
        nn.Sequential(*list(base)[:9], nn.AdaptiveAvgPool2d(1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 10))
    )


@report("ε of one", TIMM, fault="ε = 1 where activations are 0.02", guilty="norm|tokens|positions")
def epsilon_of_one(planted: bool) -> Task:
    model = Gpt()
    for module in model.modules():
        if planted and isinstance(module, nn.LayerNorm):
            module.eps = 1.0
    return predict(model)


@report("detached features", OVERFLOW, fault="features pass through numpy", guilty=r"^0\.")
def detached_features(planted: bool) -> Task:
    base = cnn()
    cut = Lambda(lambda x: torch.from_numpy(x.detach().numpy()) if planted else x)
    return classify(nn.Sequential(base[:10], cut, base[10:], nn.ReLU(), nn.Linear(10, 10)))


class Graph(nn.Module):
    """Sums over neighbours, or means."""

    def __init__(self, depth: int, *, mean: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(n, m) for n, m in zip([16] + [64] * depth, [64] * depth + [1], strict=True)
        )
        a = (torch.rand(24, 24, generator=torch.Generator().manual_seed(0)) < 0.5).float()
        self.register_buffer("a", a / a.sum(1, keepdim=True).clamp(min=1) if mean else a)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(self.a @ layer(x))
        return self.layers[-1](x).mean(1)


@report(
    "sum over neighbours",
    "pyg-team/pytorch_geometric",
    fault="adjacency not normalised",
    guilty="layers",
    says="between|operation",
)
def sum_over_neighbours(planted: bool) -> Task:
    torch.manual_seed(1)
    x = torch.randn(32, 24, 16)
    t = x[:, :, 0].mean(1, keepdim=True)
    model = Graph(4, mean=not planted)
    return Task(model, (x, t / t.std()), lambda: F.mse_loss(model(x), t / t.std()), {"loss": "mse"})


@report(
    "embedding times √d twice",
    FAIRSEQ,
    fault="embedding N(0, 1) × d before small layers, no final norm",
    guilty="tokens",
)
def embedding_twice(planted: bool) -> Task:
    model = Gpt()
    if planted:
        nn.init.normal_(model.tokens.weight, std=8.0)
        nn.init.normal_(model.positions.weight, std=0.02)
    return predict(model)


@report("forget gates closed", TORCH, fault="bias of all gates at −10", guilty="bias")
def forget_gates(planted: bool) -> Task:
    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.head = (
                nn.Embedding(256, 64),
                nn.LSTM(64, 64, batch_first=True),
                nn.Linear(64, 256),
            )

        def forward(self, idx: Tensor) -> Tensor:
            return self.head(self.rnn(self.embed(idx))[0])

    model = Lstm()
    if planted:
        nn.init.constant_(model.rnn.bias_ih_l0, -10.0)
    return predict(model)


@report("residual scaled by ten", DIFFUSERS, fault="branches × 10, no normalisation", guilty="conv|layers")
def residual_by_ten(planted: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(256, 64), nn.Linear(64, 10)
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x.flatten(1))
            for layer in self.layers:
                x = x + (10.0 if planted else 0.3) * layer(F.relu(x))
            return self.head(x)

    return classify(Net())


@report(
    "softmax over one class", OVERFLOW, fault="softmax over one output", guilty=r"^5\.", says="softmax|constant|vary"
)
def one_class(planted: bool) -> Task:
    model = mlp((256, 64, 64, 1), nn.Softmax(1) if planted else nn.Sigmoid())
    x, t = digits(16, count=64)
    y = (t > 4).float()[:, None]
    return Task(model, (x, y), lambda: F.binary_cross_entropy(model(x), y), {"loss": F.binary_cross_entropy})


@report("tanh for pixels", RECIPE, fault="tanh at the end, pixels 0–255 as targets", says="tanh|target", guilty=r"^5\.")
def tanh_pixels(planted: bool) -> Task:
    model, (x, _) = mlp((64, 32, 64, 64), nn.Tanh()), digits(8, count=64)
    x = x.flatten(1).clamp(-0.9, 0.9)
    t = 127.5 * (x + 1) if planted else x
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@report("gates of a squeeze closed", TIMM, fault="bias −8 before the sigmoid of a gate", guilty=r"gate")
def gates_closed(planted: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body = nn.Conv2d(1, 32, 3, 2, 1), nn.Conv2d(32, 32, 3, 2, 1)
            self.gate, self.head = nn.Linear(32, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.stem(x))
            x = F.relu(self.body(x)) * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None]
            return self.head(x.mean((2, 3)))

    model = Net()
    if planted:
        nn.init.constant_(model.gate.bias, -8.0)
    return classify(model)


@healthy("default deep MLP", TORCH)
def default_deep(_: bool) -> Task:
    return classify(mlp((256, *[128] * 9, 10)))


@healthy("weight-standardised CNN with gains", TIMM)
def standardised(_: bool) -> Task:
    class Conv(nn.Conv2d):
        def __init__(self, *shape: int) -> None:
            super().__init__(*shape, padding=1)
            self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True) / math.sqrt(w[0].numel())
            return F.conv2d(x, 1.7 * self.gain * w, self.bias, padding=1)

    layers: list[nn.Module] = []
    for n, m in ((1, 16), (16, 32), (32, 64)):
        layers += [Conv(n, m, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return classify(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)))


@healthy("Perceiver", "lucidrains/perceiver-pytorch")
def perceiver(_: bool) -> Task:
    class Net(nn.Module):
        def __init__(self, d: int = 64) -> None:
            super().__init__()
            self.read, self.latents = nn.Linear(17, d), nn.Parameter(0.02 * torch.randn(16, d))
            self.norm, self.cross = nn.LayerNorm(d), nn.MultiheadAttention(d, 1, batch_first=True)
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
                                        for _ in range(2))  # fmt: skip
            self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 10))

        def forward(self, x: Tensor) -> Tensor:
            at = torch.eye(16).expand(len(x), 16, 16)
            read = self.norm(self.read(torch.cat([x[:, 0], at], 2)[:, :, :17]))
            z = self.latents.expand(len(x), -1, -1)
            z = z + self.cross(z, read, read)[0]
            for layer in self.layers:
                z = layer(z)
            return self.head(z.mean(1))

    return classify(Net())


@healthy("Whisper", "openai/whisper")
def whisper(_: bool) -> Task:
    from transformers import WhisperConfig, WhisperForAudioClassification

    config = WhisperConfig(d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128,
                           num_mel_bins=16, max_source_positions=32, num_labels=10)  # fmt: skip
    x, t = torch.randn(16, 16, 64), torch.arange(16) % 10
    model = WhisperForAudioClassification(config)
    return Task(model, ({"input_features": x, "labels": t},), lambda: model(x, labels=t).loss, {"loss": "model"})
