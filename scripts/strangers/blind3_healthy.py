"""Healthy networks of public repositories, a third set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts, words
from strangers.blind2 import bce, each, pick, stream
from strangers.blind2_healthy import chain, drawn, residual
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import digits, text
from strangers.reports import mlp

healthy = partial(any_report, blind="blind3")


def patches(d: int) -> nn.Module:
    """Tokens (B, 16, d) of images (B, 1, 8, 8), with positions."""
    return Parts(lambda m, x: m.conv(x).flatten(2).transpose(1, 2) + m.places, conv=nn.Conv2d(1, d, 2, 2),
                 places=nn.Parameter(0.02 * torch.randn(16, d)))  # fmt: skip


def feed(d: int) -> nn.Sequential:
    return chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


def split(z: Tensor, parts: int = 3) -> list[Tensor]:
    """Heads (B, 4, T, d) of queries, keys and values (B, T, 12 d)."""
    return [part.unflatten(2, (4, -1)).transpose(1, 2) for part in z.chunk(parts, 2)]


def joined(z: Tensor) -> Tensor:
    return z.transpose(1, 2).flatten(2)


def block(mix: Callable[[Any, Tensor], Tensor], d: int, **others: Any) -> nn.Module:
    """Add the projection of what is mixed of the normalised input, and then an MLP of that."""
    parts = {"norm": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "proj": nn.Linear(d, d), "net": feed(d)} | others
    return Parts(lambda m, x: (z := x + m.proj(mix(m, m.norm(x)))) + m.net(z), **parts)


def speak(make: Callable[[], nn.Module], d: int, head: nn.Module | None = None) -> Task:
    last = chain(nn.LayerNorm(d), head or nn.Linear(d, 256))
    return words(chain(nn.Embedding(256, d), make(), make(), last), *text(16, 24))


@healthy("CaiT", GITHUB + "facebookresearch/deit")
def cait(_: bool, d: int = 48) -> Task:
    """Branches start at LayerScale 1e-5; a class token comes last and attends to patches."""

    def scaled(net: nn.Module) -> nn.Module:
        return Parts(lambda m, x: m.scale * m.net(x), net=net, scale=nn.Parameter(torch.full((d,), 1e-5)))

    def make() -> nn.Module:
        return block(lambda m, z: joined(F.scaled_dot_product_attention(*split(m.qkv(z)))), d,
                     proj=scaled(nn.Linear(d, d)), net=scaled(feed(d)))  # fmt: skip

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.blocks(m.patches(x))
        return m.head(m.last(torch.cat([m.token.expand(len(x), 1, -1), x], 1))[:, 0])

    head, token = chain(nn.LayerNorm(d), nn.Linear(d, 10)), nn.Parameter(0.02 * torch.randn(d))
    return drawn(Parts(run, patches=patches(d), blocks=chain(make(), make()), last=make(), token=token, head=head))


@healthy("NFNet", GITHUB + "google-deepmind/deepmind-research")
def nfnet(_: bool, d: int = 24) -> Task:
    """Weights standardised with gains, activations scaled to variance one, and branches that start at gain zero."""

    class Conv(nn.Conv2d):
        def __init__(self, n: int, m: int, kernel: int = 3) -> None:
            super().__init__(n, m, kernel, padding=kernel // 2)
            self.gain = nn.Parameter(torch.ones(m, 1, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            w = w / (w.var((1, 2, 3), keepdim=True) * w[0].numel() + 1e-4).sqrt()
            return F.conv2d(x, self.gain * w, self.bias, padding=self.padding)

    def run(m: Any, x: Tensor) -> Tensor:
        return x + 0.2 * m.skip * m.two(1.7868 * F.silu(m.one(1.7868 * F.silu(x * m.beta))))

    blocks = [Parts(run, one=Conv(d, d), two=Conv(d, d), skip=nn.Parameter(torch.zeros(())), beta=beta)
              for beta in (1.0, 0.98, 0.96)]  # fmt: skip
    return drawn(chain(Conv(1, d), *blocks, nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10)))


@healthy("RetNet", GITHUB + "microsoft/torchscale")
def retnet(_: bool, d: int = 48) -> Task:
    """No softmax: keys decay with distance, 1/32 to 1/256 a step; heads are normalised and gated."""
    apart = torch.arange(24)[:, None] - torch.arange(24)
    decay = (1 - 2.0 ** -torch.arange(5, 9))[:, None, None] ** apart.clamp(min=0) * (apart >= 0)

    def mix(m: Any, z: Tensor) -> Tensor:
        q, k, v = split(m.qkv(z))
        y = F.layer_norm((q @ k.transpose(2, 3) / math.sqrt(d / 4) * decay) @ v, (d // 4,))
        return F.silu(m.gate(z)) * joined(y)

    return speak(lambda: block(mix, d, gate=nn.Linear(d, d)), d)


@healthy("Hyena", GITHUB + "HazyResearch/safari")
def hyena(_: bool, d: int = 48) -> Task:
    """Long convolutions by FFT whose filters a network of sines makes of the position, under a window that decays."""
    time = torch.linspace(0, 1, 24)[:, None]
    waves = torch.cat([time, *(f(6.28 * time * torch.arange(1, 5)) for f in (torch.cos, torch.sin))], 1)
    window = torch.exp(-time * torch.linspace(1, 8, d))

    def mix(m: Any, z: Tensor) -> Tensor:
        one, two, v = F.conv1d(m.qkv(z).transpose(1, 2), m.short, None, 1, 2, 1, 3 * d)[..., :24].chunk(3, 1)
        kernel = (m.last(torch.sin(10 * m.first(waves))) * window).t()
        v = v * one
        y = torch.fft.irfft(torch.fft.rfft(v, 48) * torch.fft.rfft(kernel, 48), 48)[..., :24] + m.skip[:, None] * v
        return (y * two).transpose(1, 2)

    return speak(lambda: block(mix, d, short=nn.Parameter(torch.randn(3 * d, 1, 3) / 3), first=nn.Linear(9, 24),
                               last=nn.Linear(24, d, bias=False), skip=nn.Parameter(torch.randn(d))), d)  # fmt: skip


@healthy("Set Transformer", GITHUB + "juho-lee/set_transformer")
def set_transformer(_: bool, d: int = 32) -> Task:
    """Learned points attend to the set and it to them; a learned seed asks for the sum."""

    def mab(m: Any, x: Tensor, y: Tensor) -> Tensor:
        z = m.q(x) + joined(F.scaled_dot_product_attention(*split(m.q(x), 1), *split(m.k(y), 1), *split(m.v(y), 1)))
        return z + F.relu(m.o(z))

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.up(x, m.down(m.points.expand(len(x), -1, -1), x))
        return m.out(m.pool(m.seed.expand(len(x), -1, -1), x)[:, 0])

    def make(n: int, m: int) -> nn.Module:
        return Parts(mab, q=nn.Linear(n, d), k=nn.Linear(m, d), v=nn.Linear(m, d), o=nn.Linear(d, d))

    points, seed = (nn.init.xavier_uniform_(nn.Parameter(torch.empty(n, d))) for n in (8, 1))
    model = Parts(run, down=make(d, 2), up=make(2, d), pool=make(d, d), points=points, seed=seed, out=nn.Linear(d, 1))
    return stream(model, lambda: (((x := torch.randn(64, 12, 2)),), x[:, :, 0].amax(1, keepdim=True)), F.mse_loss)


@healthy("PointNet++", GITHUB + "yanx27/Pointnet_Pointnet2_pytorch")
def pointnet2(_: bool) -> Task:
    """Neighbours of a few centres, in coordinates relative to these; maxima of each group, then of all."""

    def run(m: Any, x: Tensor) -> Tensor:
        near = torch.cdist(x[:, :12], x).topk(8, largest=False)[1]
        group = x.unsqueeze(1).expand(-1, 12, -1, -1).gather(2, near.unsqueeze(3).expand(-1, -1, -1, 3))
        z = m.one((group - x[:, :12].unsqueeze(2)).permute(0, 3, 1, 2)).amax(3)
        return m.head(m.two(torch.cat([z, x[:, :12].transpose(1, 2)], 1)).amax(2))

    def draw() -> tuple[tuple[Tensor], Tensor]:
        c, x = torch.randint(3, (32,)), torch.randn(32, 48, 3)
        size = torch.stack([x.norm(p, 2, keepdim=True) for p in (1, 2, torch.inf)])
        return (x / size[c, torch.arange(32)],), c

    one = chain(nn.Conv2d(3, 24, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 48, 1), nn.BatchNorm2d(48), nn.ReLU())
    two = chain(nn.Conv1d(51, 96, 1), nn.BatchNorm1d(96), nn.ReLU())
    head = chain(nn.Linear(96, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.4), nn.Linear(48, 3))
    return stream(Parts(run, one=one, two=two, head=head), draw, F.cross_entropy)


@healthy("SchNet", GITHUB + "atomistic-machine-learning/schnetpack")
def schnet(_: bool, d: int = 32) -> Task:
    """Filters of distances in 16 Gaussians, a softplus less log 2, and sums of atoms' energies."""
    places, act = torch.linspace(0, 5, 16), Parts(lambda m, x: F.softplus(x) - math.log(2))

    def run(m: Any, x: Tensor, kind: Tensor) -> Tensor:
        far = (x.unsqueeze(2) - x.unsqueeze(1) + 1e-6).norm(dim=3)
        rings = torch.exp(-4.5 * (far.unsqueeze(3) - places).square())
        cut = 0.5 * (1 + torch.cos(math.pi * far / 5)) * (far < 5) * (1 - torch.eye(8))
        z = m.embed(kind)
        for filters, lift, net in zip(m.filters, m.lift, m.nets, strict=True):
            z = z + net(torch.einsum("bijd,bjd->bid", filters(rings) * cut.unsqueeze(3), lift(z)))
        return m.out(z).sum(1)

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        x, kind = 1.5 * torch.randn(32, 8, 3), torch.randint(3, (32, 8))
        return (x, kind), (kind.unsqueeze(2) * torch.exp(-torch.cdist(x, x))).sum((1, 2)).unsqueeze(1) - 8

    def net(n: int) -> nn.Module:
        return chain(nn.Linear(n, d), act, nn.Linear(d, d))

    return stream(Parts(run, embed=nn.Embedding(3, d), filters=each(2, lambda: net(16)), nets=each(2, lambda: net(d)),
                        lift=each(2, lambda: nn.Linear(d, d, bias=False)), out=chain(net(d), act, nn.Linear(d, 1))),
                  draw, F.mse_loss)  # fmt: skip


@healthy("DLinear", GITHUB + "cure-lab/LTSF-Linear")
def dlinear(_: bool) -> Task:
    """Two linear maps, of the trend and of the rest, whose weights are all 1/48 at first."""

    def run(m: Any, x: Tensor) -> Tensor:
        trend = F.avg_pool1d(F.pad(x.unsqueeze(1), (4, 4), mode="replicate"), 9, 1).squeeze(1)
        return m.trend(trend) + m.season(x - trend)

    def draw() -> tuple[tuple[Tensor], Tensor]:
        time = torch.arange(60)
        x = torch.randn(64, 1) * time / 60 + torch.sin(time * 0.52 + 6.28 * torch.rand(64, 1))
        return (x[:, :48],), x[:, 48:]

    model = Parts(run, trend=nn.Linear(48, 12), season=nn.Linear(48, 12))
    for layer in (model.trend, model.season):
        nn.init.constant_(layer.weight, 1 / 48)
    return stream(model, draw, F.mse_loss)


@healthy("DCN-V2", GITHUB + "reczoo/FuxiCTR")
def dcn(_: bool) -> Task:
    """Cross layers x₀ · (W x + b) + x on embeddings of N(0, 1e-4), beside a deep network."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = first = m.embed(idx + 10 * torch.arange(6)).flatten(1)
        for layer in m.cross:
            x = first * layer(x) + x
        return m.out(torch.cat([x, m.deep(first)], 1))

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx = torch.randint(10, (256, 6))
        return (idx,), ((idx[:, 0] + idx[:, 1]) % 10 < 5).float().unsqueeze(1)

    model = Parts(run, embed=nn.Embedding(60, 8), cross=each(2, lambda: nn.Linear(48, 48)), deep=mlp((48, 64, 32)),
                  out=nn.Linear(80, 1))  # fmt: skip
    nn.init.normal_(model.embed.weight, 0.0, 1e-4)
    return stream(model, draw, bce)


@healthy("Sentence-BERT pairs", GITHUB + "huggingface/sentence-transformers")
def pairs(_: bool) -> Task:
    """Cosines of a batch's pairs times 20 as logits; each is in its own row and column."""

    def run(m: Any, one: Tensor, two: Tensor) -> Tensor:
        a, b = (F.normalize(m.net(m.embed(idx).mean(1))) for idx in (one, two))
        return 20 * a @ b.t()

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        topic = torch.randperm(40)[:32, None]
        one, two = (torch.where(torch.rand(32, 10) < 0.5, 5 * topic, 0) + torch.randint(5, (32, 10)) for _ in range(2))
        return (one, two), torch.arange(32)

    return stream(Parts(run, embed=nn.Embedding(200, 32), net=mlp((32, 64, 32))), draw, F.cross_entropy)


@healthy("VICReg", GITHUB + "facebookresearch/vicreg")
def vicreg(_: bool) -> Task:
    """Distances of two views, a hinge on deviations, and covariances: a loss without targets or negatives."""

    def loss(y: Tensor, _: Tensor) -> Tensor:
        one, two = y.chunk(2)
        total = 25 * F.mse_loss(one, two)
        for z in (one - one.mean(0), two - two.mean(0)):
            total = total + 12.5 * F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
            total = total + (z.t() @ z / (len(z) - 1)).fill_diagonal_(0).square().sum() / z.shape[1]
        return total

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x = pick(48)[0]
        return (torch.cat([x + 0.2 * torch.randn_like(x) for _ in range(2)]),), torch.zeros(96)

    net = chain(nn.Conv2d(1, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return stream(chain(net, nn.Linear(256, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 64)), draw, loss)


@healthy("RetinaNet", GITHUB + "yhenon/pytorch-retinanet")
def retinanet(_: bool) -> Task:
    """Focal loss by the number of objects; the head starts at zero weights and bias −4.6, a share of 1 %."""

    def focal(y: Tensor, t: Tensor) -> Tensor:
        wrong = (y.sigmoid() - t).abs()
        return ((0.25 * t + 0.75 * (1 - t)) * wrong.square() * bce(y, t, reduction="none")).sum() / t.sum()

    def draw() -> tuple[tuple[Tensor], Tensor]:
        t = (torch.rand(32, 1, 16, 16) < 0.02).float()
        t[:, 0, 3, 3] = 1
        return (F.max_pool2d(t, 3, 1, 1) + 0.3 * torch.randn(32, 1, 16, 16),), t

    model = chain(*(layer for n in (1, 24, 24) for layer in (nn.Conv2d(n, 24, 3, padding=1), nn.ReLU())),
                  nn.Conv2d(24, 1, 3, padding=1))  # fmt: skip
    nn.init.zeros_(model[-1].weight)
    nn.init.constant_(model[-1].bias, -math.log(99))
    return stream(model, draw, focal)


@healthy("QuartzNet", GITHUB + "NVIDIA-NeMo/Speech")
def quartznet(_: bool) -> Task:
    """Depthwise convolutions along time, residual and normalised, and CTC."""

    def unit() -> nn.Module:
        depthwise, mixing = nn.Conv1d(48, 48, 9, padding=4, groups=48, bias=False), nn.Conv1d(48, 48, 1, bias=False)
        return chain(Parts(residual, net=chain(depthwise, mixing, nn.BatchNorm1d(48))), nn.ReLU())

    def ctc(y: Tensor, t: Tensor) -> Tensor:
        y = y.permute(2, 0, 1).log_softmax(2)
        return F.ctc_loss(y, t, torch.full((len(t),), len(y)), torch.full((len(t),), 4))

    stem = chain(nn.Conv1d(8, 48, 5, 2, 2, bias=False), nn.BatchNorm1d(48), nn.ReLU())
    model = chain(stem, unit(), unit(), nn.Conv1d(48, 11, 1))
    x, t = digits(8, count=64)
    x, t = torch.cat(x.chunk(4), 3).squeeze(1), torch.stack(t.chunk(4), 1) + 1
    return Task(model, (x, t), lambda: ctc(model(x), t), {"loss": ctc})


@healthy("mixture density", GITHUB + "sagelywizard/pytorch-mdn")
def mdn(_: bool) -> Task:
    """Five Gaussians of one number; deviations are exponentials, and the likelihood is a sum of densities."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        weight, mean, log_std = y.chunk(3, 1)
        density = -0.5 * ((t - mean) / log_std.exp()).square() - log_std - 0.92
        return 1 - (weight.log_softmax(1) + density).logsumexp(1).mean()

    def draw() -> tuple[tuple[Tensor], Tensor]:
        t = 2 * torch.rand(256, 1) - 1
        return (2 * t + 0.8 * torch.sin(9 * t) + 0.05 * torch.randn(256, 1),), 3 * t

    return stream(chain(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 15)), draw, loss)


@healthy("temporal fusion", GITHUB + "google-research/google-research")
def fusion(_: bool, d: int = 32) -> Task:
    """Gated residual networks, weights of variables by a softmax, and three quantiles at once."""

    def grn(m: Any, x: Tensor) -> Tensor:
        return m.norm(x + F.glu(m.gate(m.two(F.elu(m.one(x)))), -1))

    def make() -> nn.Module:
        return Parts(grn, one=nn.Linear(d, d), two=nn.Linear(d, d), gate=nn.Linear(d, 2 * d), norm=nn.LayerNorm(d))

    def run(m: Any, x: Tensor) -> Tensor:
        z = x.unsqueeze(3) * m.scale + m.shift  # (B, T, variables, d)
        z = (m.weigh(x).softmax(2).unsqueeze(3) * z).sum(2)
        return m.out(m.after(m.before(z) + m.lstm(z)[0])[:, -1])

    def pinball(y: Tensor, t: Tensor) -> Tensor:
        rest, q = t - y, torch.tensor([0.1, 0.5, 0.9])
        return torch.maximum(q * rest, (q - 1) * rest).mean()

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x = torch.randn(64, 12, 4)
        return (x,), 2 * x[:, -1, :1] - x[:, -3, 1:2] + 0.1 * torch.randn(64, 1)

    scale, shift = nn.Parameter(torch.randn(4, d)), nn.Parameter(torch.zeros(4, d))
    model = Parts(run, scale=scale, shift=shift, before=make(), weigh=nn.Linear(4, 4), after=make(),
                  lstm=nn.LSTM(d, d, batch_first=True), out=nn.Linear(d, 3))  # fmt: skip
    return stream(model, draw, pinball)


@healthy("maximal update", GITHUB + "microsoft/mup")
def mup(_: bool, d: int = 64) -> Task:
    """Scores over d, not √d; queries and the head start at zero."""

    def mix(m: Any, z: Tensor) -> Tensor:
        return joined(F.scaled_dot_product_attention(*split(m.qkv(z)), is_causal=True, scale=8 / (d / 4)))

    def make() -> nn.Module:
        nn.init.zeros_((made := block(mix, d)).qkv.weight[:d].data)
        return made

    nn.init.zeros_((head := nn.Linear(d, 256)).weight)
    return speak(make, d, head)


@healthy("sigmoid attention", GITHUB + "apple/ml-sigmoid-attention")
def sigmoid(_: bool, d: int = 48) -> Task:
    """Sigmoids of scores less log 16 in place of a softmax; queries and keys are normalised."""

    def mix(m: Any, z: Tensor) -> Tensor:
        q, k, v = split(m.qkv(z))
        scores = m.q_norm(q) @ m.k_norm(k).transpose(2, 3) / math.sqrt(d / 4)
        return joined((scores - math.log(16)).sigmoid() @ v)

    blocks = [block(mix, d, q_norm=nn.LayerNorm(d // 4), k_norm=nn.LayerNorm(d // 4)) for _ in range(2)]
    mean = Parts(lambda m, x: x.mean(1))
    return drawn(chain(patches(d), *blocks, mean, nn.LayerNorm(d), nn.Linear(d, 10)))


class Root(nn.Module):
    """Normalises by the root mean square and multiplies by 1 + a gain of zero."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gain.shape, 1 + self.gain)


@healthy("Gemma", GITHUB + "google/gemma_pytorch")
def gemma(_: bool, d: int = 64) -> Task:
    """Embeddings of N(0, 0.02²) times √d, shared with the head; gains are 1 + 0; one key for all heads."""

    def mix(m: Any, z: Tensor) -> Tensor:
        q, (k, v) = m.qkv(z).unflatten(2, (4, -1)).transpose(1, 2), m.kv(z).unsqueeze(1).chunk(2, 3)
        return joined(F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True))

    def make() -> nn.Module:
        gate, up, down = (nn.Linear(*shape, bias=False) for shape in ((d, 3 * d), (d, 3 * d), (3 * d, d)))
        net = Parts(lambda m, x: m.down(F.gelu(m.gate(m.norm(x))) * m.up(m.norm(x))), norm=Root(d), gate=gate, up=up,
                    down=down)  # fmt: skip
        q, kv = nn.Linear(d, d, bias=False), nn.Linear(d, d // 2, bias=False)
        return block(mix, d, norm=Root(d), qkv=q, kv=kv, net=net)

    model = Parts(lambda m, idx: F.linear(m.norm(m.blocks(math.sqrt(d) * m.embed(idx))), m.embed.weight),
                  embed=nn.Embedding(256, d), blocks=chain(make(), make()), norm=Root(d))  # fmt: skip
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0.0, 0.02)
    return words(model, *text(16, 24))


@healthy("ConvNeXt V2", GITHUB + "facebookresearch/ConvNeXt-V2")
def convnext2(_: bool, d: int = 32) -> Task:
    """Responses normalised over space and channels, with a gain and a bias of zero, inside a residual branch."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = F.gelu(m.up(m.norm(m.conv(x).permute(0, 2, 3, 1))))
        size = z.norm(dim=(1, 2), keepdim=True)
        z = m.gain * z * size / (size.mean(3, keepdim=True) + 1e-6) + m.bias + z
        return x + m.down(z).permute(0, 3, 1, 2)

    def make() -> nn.Module:
        gain, bias = (nn.Parameter(torch.zeros(2 * d)) for _ in range(2))
        return Parts(run, conv=nn.Conv2d(d, d, 5, padding=2, groups=d), norm=nn.LayerNorm(d), up=nn.Linear(d, 2 * d),
                     gain=gain, bias=bias, down=nn.Linear(2 * d, d))  # fmt: skip

    head = chain(nn.Flatten(), nn.LayerNorm(16 * d), nn.Linear(16 * d, 10))
    return drawn(chain(nn.Conv2d(1, d, 2, 2), make(), make(), head))


@healthy("RotatE", GITHUB + "DeepGraphLearning/KnowledgeGraphEmbedding")
def rotate(_: bool, d: int = 16) -> Task:
    """Relations turn complex entities; scores are a margin of 12 less the distance, tables of U(±14/d)."""

    def run(m: Any, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        one, two = (torch.view_as_complex(m.entities(idx).unflatten(1, (d, 2))) for idx in (head, tail))
        return 12 - (one * torch.exp(1j * m.relations(relation) * math.pi * d / 14) - two).abs().sum(1)

    def draw() -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        head, relation, wrong = torch.randint(40, (256,)), torch.randint(4, (256,)), torch.randint(40, (256,))
        t = (torch.arange(256) % 2).float()
        return (head, relation, torch.where(t > 0, (head + 3 * relation + 1) % 40, wrong)), t

    model = Parts(run, entities=nn.Embedding(40, 2 * d), relations=nn.Embedding(4, d))
    for table in (model.entities, model.relations):
        nn.init.uniform_(table.weight, -14 / d, 14 / d)
    return stream(model, draw, bce)


@healthy("Deep SVDD", GITHUB + "lukasruff/Deep-SVDD-PyTorch")
def svdd(_: bool) -> Task:
    """No biases at all; distances of one class to the centre of its first outputs, which is not trained."""
    layers: list[nn.Module] = []
    for n, m in ((1, 8), (8, 16)):
        layers += [nn.Conv2d(n, m, 3, padding=1, bias=False), nn.BatchNorm2d(m, affine=False), nn.LeakyReLU()]
        layers += [nn.MaxPool2d(2)]
    model = chain(*layers, nn.Flatten(), nn.Linear(64, 32, bias=False))
    x, c = digits(8, count=400)
    x = x[c == 3]
    centre = model(x).mean(0).detach()
    t = centre.where(centre.abs() > 0.1, 0.1 * centre.sign()).expand(len(x), -1).clone()
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("cellular automaton", GITHUB + "google-research/self-organising-systems")
def automaton(_: bool) -> Task:
    """Fixed filters, a last layer of zeros, and half of the cells updated at random, twelve times."""
    grow = torch.tensor([1.0, 2.0, 1.0])[:, None] * torch.tensor([-1.0, 0.0, 1.0]) / 8
    filters = torch.stack([F.pad(torch.ones(1, 1), (1, 1, 1, 1)), grow, grow.t()]).repeat(8, 1, 1).unsqueeze(1)

    def run(m: Any, x: Tensor) -> Tensor:
        for _ in range(12):
            z = m.two(F.relu(m.one(F.conv2d(x, filters, padding=1, groups=8))))
            x = x + z * (torch.rand_like(x[:, :1]) < 0.5)
        return x[:, :1]

    model = Parts(run, one=nn.Conv2d(24, 48, 1), two=nn.Conv2d(48, 8, 1, bias=False))
    nn.init.zeros_(model.two.weight)
    x = torch.zeros(8, 8, 9, 9)
    x[:, 1:, 4, 4] = 1
    place = torch.arange(9) - 4
    t = ((place[:, None].abs() + place.abs()) < 4).float().expand(8, 1, 9, 9).clone()
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("RepVGG", GITHUB + "DingXiaoH/RepVGG")
def repvgg(_: bool, d: int = 24) -> Task:
    """Three branches, each normalised, are added: a kernel of three, one of one, and the input itself."""

    def branch(kernel: int) -> nn.Module:
        return chain(nn.Conv2d(d, d, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(d))

    blocks = [Parts(lambda m, x: F.relu(m.three(x) + m.one(x) + m.same(x)), three=branch(3), one=branch(1),
                    same=nn.BatchNorm2d(d)) for _ in range(3)]  # fmt: skip
    return drawn(chain(nn.Conv2d(1, d, 3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10)))


@healthy("Gumbel-softmax VAE", GITHUB + "YongfeiYan/Gumbel_Softmax_VAE")
def gumbel(_: bool) -> Task:
    """Twelve latent classes of ten, drawn by a softmax of noisy logits; KL against equal shares."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = m.encoder(x).unflatten(1, (12, 10))
        return m.decoder(F.gumbel_softmax(logits, 1.0).flatten(1)), logits

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        share = y[1].softmax(2)
        kl = (share * (share + 1e-9).log()).sum((1, 2)).mean() + 12 * math.log(10)
        return bce(y[0], t, reduction="sum") / len(t) + 0.2 * kl

    def draw() -> tuple[tuple[Tensor], Tensor]:
        t = (pick()[0].flatten(1) > 0).float()
        return (t,), t

    return stream(Parts(run, encoder=mlp((64, 128, 120)), decoder=mlp((120, 128, 64))), draw, loss)


@healthy("minGRU", GITHUB + "lucidrains/minGRU-pytorch")
def mingru(_: bool, d: int = 48) -> Task:
    """Gates see the input alone; states are a running average of candidates that are all positive."""

    def mix(m: Any, z: Tensor) -> Tensor:
        candidate, gate = m.qkv(z).chunk(2, 2)
        candidate, gate = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid()), gate.sigmoid()
        h, states = torch.zeros_like(gate[:, 0]), []
        for i in range(z.shape[1]):
            h = h + gate[:, i] * (candidate[:, i] - h)
            states.append(h)
        return torch.stack(states, 1)

    return speak(lambda: block(mix, d, norm=nn.RMSNorm(d), proj=nn.Linear(3 * d // 2, d, bias=False)), d)
