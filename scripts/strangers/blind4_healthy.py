"""Healthy networks of public repositories, a fourth set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import bce, each, pick, stream
from strangers.blind2_healthy import chain, drawn
from strangers.blind3 import Drawn
from strangers.blind3_healthy import block, feed, joined, patches, speak, split
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind4")


def causal(m: Any, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, **options)


@healthy("dynamic tanh", GITHUB + "jiachenzhu/DyT")
def dyt(_: bool, d: int = 48) -> Task:
    """No normalisation at all: tanh(x / 2) with gains and biases in its place."""

    def norm() -> nn.Module:
        alpha, gain, bias = nn.Parameter(torch.full((1,), 0.5)), nn.Parameter(torch.ones(d)), torch.zeros(d)
        return Parts(lambda m, x: m.gain * (m.alpha * x).tanh() + m.bias, alpha=alpha, gain=gain,
                     bias=nn.Parameter(bias))  # fmt: skip

    def make() -> nn.Module:
        net = chain(norm(), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        return block(lambda m, z: joined(F.scaled_dot_product_attention(*split(m.qkv(z)))), d, norm=norm(), net=net)

    mean = Parts(lambda m, x: x.mean(1))
    return drawn(chain(patches(d), make(), make(), norm(), mean, nn.Linear(d, 10)))


@healthy("normalised transformer", GITHUB + "NVIDIA/ngpt")
def ngpt(_: bool, d: int = 48) -> Task:
    """Every vector has length one; branches move it by learned rates of 0.05, logits are scaled by a parameter."""

    def mix(m: Any, x: Tensor) -> Tensor:
        q, k, v = split(m.qkv(x))
        q, k = F.normalize(q, dim=3) * m.sqk, F.normalize(k, dim=3)
        y = F.normalize(m.proj(joined(causal(m, q, k, v, scale=1.0))), dim=2)
        x = F.normalize(x + m.alpha * (y - x), dim=2)
        one, two = m.up(x).chunk(2, 2)
        y = F.normalize(m.down(F.silu(math.sqrt(d) * one) * two), dim=2)
        return F.normalize(x + m.beta * (y - x), dim=2)

    def make() -> nn.Module:
        rates = {name: nn.Parameter(torch.full((d,), 0.05)) for name in ("alpha", "beta")}
        return Parts(mix, qkv=nn.Linear(d, 3 * d, bias=False), proj=nn.Linear(d, d, bias=False), **rates,
                     sqk=nn.Parameter(torch.tensor(math.sqrt(d / 4))), up=nn.Linear(d, 4 * d, bias=False),
                     down=nn.Linear(2 * d, d, bias=False))  # fmt: skip

    def draw() -> Drawn:
        idx = torch.randint(24, (32, 16))
        return (idx,), (idx + 5 + idx.roll(1, 1) * (torch.arange(16) > 0) * (idx > 20)) % 24

    model = Parts(lambda m, idx: (m.scale * m.head(m.blocks(F.normalize(m.embed(idx), dim=2)))).transpose(1, 2),
                  embed=nn.Embedding(24, d), blocks=chain(make(), make()), head=nn.Linear(d, 24, bias=False),
                  scale=nn.Parameter(torch.full((24,), 4.0)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("speedrun GPT", GITHUB + "KellerJordan/modded-nanogpt")
def modded(_: bool, d: int = 48) -> Task:
    """Projections and head start at zero, squared ReLU, queries and keys normalised, logits capped at ±15."""

    def mix(m: Any, z: Tensor) -> Tensor:
        q, k, v = split(m.qkv(z))
        return joined(causal(m, F.rms_norm(q, (d // 4,)), F.rms_norm(k, (d // 4,)), v, scale=0.12))

    def make() -> nn.Module:
        act = Parts(lambda m, x: F.relu(x).square())
        proj, down = nn.Linear(d, d, bias=False), nn.Linear(4 * d, d, bias=False)
        nn.init.zeros_(proj.weight)
        nn.init.zeros_(down.weight)
        norm = nn.RMSNorm(d, elementwise_affine=False)
        return block(mix, d, norm=norm, proj=proj, net=chain(norm, nn.Linear(d, 4 * d, bias=False), act, down))

    head = nn.Linear(d, 256, bias=False)
    nn.init.zeros_(head.weight)
    return speak(make, d, chain(head, Parts(lambda m, x: 15 * (x / 15).tanh())))


@healthy("differential attention", GITHUB + "microsoft/unilm")
def differential(_: bool, d: int = 48) -> Task:
    """One softmax less 0.2 of another; heads are normalised and multiplied by 0.8."""

    def mix(m: Any, z: Tensor) -> Tensor:
        q, k, v = split(m.qkv(z))
        one, two = (causal(m, a, b, v) for a, b in zip(q.chunk(2, 3), k.chunk(2, 3), strict=True))
        rate = (m.one * m.two).sum().exp() - (m.three * m.four).sum().exp() + 0.2
        return joined(0.8 * F.rms_norm(one - rate * two, (d // 4,)))

    def make() -> nn.Module:
        names = ("one", "two", "three", "four")
        return block(mix, d, **{name: nn.Parameter(0.1 * torch.randn(d // 8)) for name in names})

    return speak(make, d)


@healthy("delta rule", GITHUB + "fla-org/flash-linear-attention")
def deltanet(_: bool, d: int = 32) -> Task:
    """A matrix as state: what a key stands for is erased in part before it is written anew."""

    def mix(m: Any, z: Tensor) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in split(F.silu(m.qkv(z))))  # (B, T, 4, d / 4)
        q, k, rate = F.normalize(q, dim=3), F.normalize(k, dim=3), m.rate(z).sigmoid()
        state, y = torch.zeros(len(z), 4, d // 4, d // 4), []
        for i in range(z.shape[1]):
            old = torch.einsum("bhkv,bhk->bhv", state, k[:, i])
            new = rate[:, i].unsqueeze(2) * (v[:, i] - old)
            state = state + torch.einsum("bhk,bhv->bhkv", k[:, i], new)
            y.append(torch.einsum("bhkv,bhk->bhv", state, q[:, i]))
        return F.rms_norm(torch.stack(y, 1), (d // 4,)).flatten(2)

    return speak(lambda: block(mix, d, rate=nn.Linear(d, 4)), d)


@healthy("xLSTM", GITHUB + "NX-AI/xlstm")
def slstm(_: bool, d: int = 32) -> Task:
    """Exponential input gates with a running maximum, forget gates biased towards 1 by 3 to 6."""

    def run(m: Any, x: Tensor) -> Tensor:
        h = c = n = top = torch.zeros(len(x), d)
        for i in range(x.shape[1]):
            z, i_, f, o = (m.read(x[:, i]) + m.recall(h)).chunk(4, 1)
            f = F.logsigmoid(f)
            top, before = torch.maximum(f + top, i_), top
            keep, put = (f + before - top).exp(), (i_ - top).exp()
            c, n = keep * c + put * z.tanh(), keep * n + put
            h = o.sigmoid() * c / n.clamp(min=1e-6)
        return m.head(h)

    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        x = 0.3 * torch.randn(48, 16, 4)
        x[:, 0] += F.one_hot(c, 4)
        return (x,), c

    model = Parts(run, read=nn.Linear(4, 4 * d), recall=nn.Linear(d, 4 * d, bias=False), head=nn.Linear(d, 4))
    model.read.bias.data[2 * d : 3 * d] = torch.linspace(3, 6, d)
    nn.init.zeros_(model.recall.weight)
    return stream(model, draw, F.cross_entropy)


@healthy("linear recurrent unit", GITHUB + "NicolasZucchet/minimal-LRU")
def lru(_: bool, d: int = 24, n: int = 32) -> Task:
    """Complex states whose eigenvalues lie in a ring of radii 0.9 to 0.999, inputs scaled by √(1 − |λ|²)."""

    def run(m: Any, x: Tensor) -> Tensor:
        size = torch.exp(-m.nu.exp())
        turn = torch.polar(size, m.theta.exp())
        u = (1 - size.square()).sqrt() * (m.embed(x).to(torch.complex64) @ torch.view_as_complex(m.b))
        h, y = torch.zeros(len(x), n, dtype=torch.complex64), []
        for i in range(x.shape[1]):
            h = turn * h + u[:, i]
            y.append(h)
        z = (torch.stack(y, 1) @ torch.view_as_complex(m.c)).real
        return m.out(F.gelu(m.norm(z)))[:, -1]

    def draw() -> Drawn:
        x = torch.randn(48, 24, 2)
        return (x,), x[:, :, :1].mean(1) * 5 + x[:, -4, 1:]

    radius = torch.sqrt(torch.rand(n) * (0.999**2 - 0.9**2) + 0.9**2)
    model = Parts(run, embed=nn.Linear(2, d), nu=nn.Parameter((-radius.log()).log()), norm=nn.LayerNorm(d),
                  theta=nn.Parameter((6.28 * torch.rand(n)).log()), out=nn.Linear(d, 1),
                  b=nn.Parameter(torch.randn(d, n, 2) / math.sqrt(2 * d)),
                  c=nn.Parameter(torch.randn(n, d, 2) / math.sqrt(n)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("closed-form continuous time", GITHUB + "mlech26l/ncps")
def cfc(_: bool, d: int = 32) -> Task:
    """Two candidates of the next state, mixed by a gate that depends on the time between observations."""

    def run(m: Any, x: Tensor, gaps: Tensor) -> Tensor:
        h = torch.zeros(len(x), d)
        for i in range(x.shape[1]):
            z = m.trunk(torch.cat([x[:, i], h], 1))
            gate = (m.time_a(z) * gaps[:, i] + m.time_b(z)).sigmoid()
            h = m.one(z).tanh() * (1 - gate) + gate * m.two(z).tanh()
        return m.out(h)

    def draw() -> Drawn:
        gaps = 0.1 + torch.rand(48, 12, 1)
        time, phase = gaps.cumsum(1), 6.28 * torch.rand(48, 1, 1)
        return ((time + phase).sin(), gaps), (time[:, -1] + phase[:, 0]).cos()

    lecun = Parts(lambda m, x: 1.7159 * (0.666 * x).tanh())
    model = Parts(run, trunk=chain(nn.Linear(1 + d, 64), lecun), out=nn.Linear(d, 1),
                  **{name: nn.Linear(64, d) for name in ("one", "two", "time_a", "time_b")})  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("TabNet", GITHUB + "dreamquark-ai/tabnet")
def tabnet(_: bool, d: int = 16) -> Task:
    """Sparse masks choose features step by step; gated units, residuals times √0.5, batch normalised inputs."""

    def sparsemax(z: Tensor) -> Tensor:
        order = z.sort(1, descending=True)[0]
        total, count = order.cumsum(1) - 1, torch.arange(1, z.shape[1] + 1)
        support = (count * order > total).sum(1, keepdim=True)
        return F.relu(z - total.gather(1, support - 1) / support)

    def unit(n: int) -> nn.Module:
        return chain(nn.Linear(n, 4 * d, bias=False), nn.BatchNorm1d(4 * d), nn.GLU())

    def run(m: Any, x: Tensor) -> Tensor:
        x, prior, y = m.norm(x), torch.ones_like(x), torch.zeros(len(x), d)
        a = m.shared(x)[:, d:]
        for choose, first, second in zip(m.choose, m.first, m.second, strict=True):
            mask = sparsemax(choose(a) * prior)
            prior = prior * (1.3 - mask)
            z = first(mask * x)
            z = (z + second(z)) * math.sqrt(0.5)
            y, a = y + F.relu(z[:, :d]), z[:, d:]
        return m.out(y)

    def draw() -> Drawn:
        x = 5 * torch.randn(64, 10) + 3
        return (x,), ((x[:, 0] > 3) ^ (x[:, 1] > 6)).long() + (x[:, 2] > 3).long()

    choose = each(3, lambda: chain(nn.Linear(d, 10, bias=False), nn.BatchNorm1d(10)))
    model = Parts(run, norm=nn.BatchNorm1d(10), shared=unit(10), choose=choose, first=each(3, lambda: unit(10)),
                  second=each(3, lambda: unit(2 * d)), out=nn.Linear(d, 3, bias=False))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("InceptionTime", GITHUB + "hfawaz/InceptionTime")
def inception(_: bool, d: int = 12) -> Task:
    """Kernels of 5, 11 and 21 side by side behind a bottleneck, beside a pooled branch; batch normalised together."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.narrow(x)
        return F.relu(m.norm(torch.cat([*(conv(z) for conv in m.convs), m.pooled(F.max_pool1d(x, 3, 1, 1))], 1)))

    def module(n: int) -> nn.Module:
        convs = nn.ModuleList(nn.Conv1d(d, d, k, padding=k // 2, bias=False) for k in (5, 11, 21))
        return Parts(run, narrow=nn.Conv1d(n, d, 1, bias=False), convs=convs, pooled=nn.Conv1d(n, d, 1, bias=False),
                     norm=nn.BatchNorm1d(4 * d))  # fmt: skip

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        time, phase = torch.arange(48), 6.28 * torch.rand(32, 1)
        x = torch.sin(0.3 * (1 + c % 2).unsqueeze(1) * time + phase)
        x = torch.where((c > 1).unsqueeze(1), x.sign(), x) + 0.1 * torch.randn(32, 48)
        return (x.unsqueeze(1),), c

    mean = Parts(lambda m, x: x.mean(2))
    return stream(chain(module(1), module(4 * d), mean, nn.Linear(4 * d, 4)), draw, F.cross_entropy)


@healthy("SASRec", GITHUB + "pmixer/SASRec.pytorch")
def sasrec(_: bool, d: int = 32) -> Task:
    """Item vectors times √d, convolutions of one in place of linear layers, scores by products with the same items."""

    def run(m: Any, past: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        x = math.sqrt(d) * m.items(past) + m.places
        x = F.dropout(x, 0.2, m.training)
        z = m.norm1(x)
        x = z + m.attention(z, x, x, attn_mask=hidden, need_weights=False)[0]
        x = m.norm2(x)
        x = m.last(x + m.two(F.relu(m.one(x.transpose(1, 2)))).transpose(1, 2))
        return torch.stack([(x * m.items(idx)).sum(2) for idx in (positive, negative)], 2)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return F.softplus(-y[..., 0]).mean() + F.softplus(y[..., 1]).mean()

    def draw() -> Drawn:
        past = (torch.randint(40, (32, 1)) + 3 * torch.arange(11)) % 40
        return (past[:, :-1], past[:, 1:], torch.randint(40, (32, 10))), torch.zeros(32)

    hidden = torch.ones(10, 10, dtype=torch.bool).triu(1)
    model = Parts(run, items=nn.Embedding(40, d), places=nn.Parameter(0.1 * torch.randn(10, d)), norm1=nn.LayerNorm(d),
                  attention=nn.MultiheadAttention(d, 1, batch_first=True), norm2=nn.LayerNorm(d),
                  one=nn.Conv1d(d, d, 1), two=nn.Conv1d(d, d, 1), last=nn.LayerNorm(d))  # fmt: skip
    nn.init.xavier_normal_(model.items.weight)
    return stream(model, draw, loss)


@healthy("LightGCN", GITHUB + "gusye1234/LightGCN-PyTorch")
def lightgcn(_: bool, d: int = 24) -> Task:
    """Nothing but embeddings of N(0, 0.1²), averaged over three steps in a normalised graph; ranked in pairs."""
    likes = (torch.arange(30).unsqueeze(1) % 5 == torch.arange(20) % 5).float() * (torch.rand(30, 20) < 0.8)
    likes[torch.arange(30), torch.arange(30) % 5] = 1
    a = torch.zeros(50, 50)
    a[:30, 30:] = likes
    a = a + a.t()
    a = a / (a.sum(0).clamp(min=1) * a.sum(1, keepdim=True).clamp(min=1)).sqrt()

    def run(m: Any, users: Tensor, pairs: Tensor) -> Tensor:
        x = total = torch.cat([m.users.weight, m.items.weight])
        for _ in range(3):
            x = a @ x
            total = total + x
        total = total / 4
        return (total[users].unsqueeze(1) * total[30 + pairs]).sum(2)

    def draw() -> Drawn:
        users = torch.randint(30, (64,))
        pairs = torch.cat([torch.multinomial(share[users] + 1e-9, 1) for share in (likes, 1 - likes)], 1)
        return (users, pairs), torch.zeros(64)

    model = Parts(run, users=nn.Embedding(30, d), items=nn.Embedding(20, d))
    for table in (model.users, model.items):
        nn.init.normal_(table.weight, 0.0, 0.1)
    return stream(model, draw, lambda y, _: F.softplus(y[:, 1] - y[:, 0]).mean())


@healthy("predict, then propagate", GITHUB + "gasteigerjo/ppnp")
def appnp(_: bool) -> Task:
    """An MLP of each node, then ten steps of personalised PageRank without any weights."""
    a = (torch.rand(32, 32) < 0.1).float().triu(1)
    a = a + a.t() + torch.eye(32)
    a = a / (a.sum(0) * a.sum(1, keepdim=True)).sqrt()
    spread = torch.linalg.inv(torch.eye(32) - 0.9 * a) * 0.1

    def run(m: Any, x: Tensor) -> Tensor:
        z = first = m.net(F.dropout(x, 0.3, m.training))
        for _ in range(10):
            z = 0.9 * a @ z + 0.1 * first
        return z.transpose(1, 2)

    def draw() -> Drawn:
        x = torch.randn(16, 32, 8)
        return (x,), (spread @ (x[..., :3] + x[..., 3:6].abs())).argmax(2)

    return stream(Parts(run, net=chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))), draw, F.cross_entropy)


@healthy("GATv2", GITHUB + "tech-srl/how_attentive_are_gats")
def gatv2(_: bool, d: int = 32) -> Task:
    """Scores of pairs by a vector on a LeakyReLU of sums, a softmax over neighbours, heads averaged at the end."""
    a = (torch.rand(20, 20) < 0.2) | torch.eye(20, dtype=torch.bool)

    def run(m: Any, x: Tensor) -> Tensor:
        one, two = (f(x).unflatten(2, (4, -1)) for f in (m.one, m.two))  # (B, N, 4, d)
        scores = (F.leaky_relu(one.unsqueeze(2) + two.unsqueeze(1), 0.2) * m.score).sum(4)
        return torch.einsum("bijh,bjhd->bihd", scores.masked_fill(~a.unsqueeze(2), -torch.inf).softmax(2), two)

    def layer(n: int) -> nn.Module:
        model = Parts(run, one=nn.Linear(n, d), two=nn.Linear(n, d), score=nn.Parameter(torch.empty(4, d // 4)))
        for weight in (model.one.weight, model.two.weight, model.score):
            nn.init.xavier_normal_(weight, 1.414)
        return model

    def draw() -> Drawn:
        x = torch.randn(16, 20, 3)
        scores = (2 * x[:, None, :, 1]).masked_fill(~a, -torch.inf).softmax(2)
        return (x,), 2 * scores @ x[:, :, :1]

    join = Parts(lambda m, x: F.elu(x.flatten(2)))
    mean = Parts(lambda m, x: x.mean(2))
    return stream(chain(layer(3), join, layer(d), mean, nn.Linear(d // 4, 1)), draw, F.mse_loss)


@healthy("E(n) graph network", GITHUB + "vgsatorras/egnn")
def egnn(_: bool, d: int = 24) -> Task:
    """Coordinates are moved along differences by weights that start near zero; targets turn with the inputs."""

    def run(m: Any, x: Tensor, h: Tensor) -> Tensor:
        h, place = m.embed(h), x
        for edge, move, node in zip(m.edges, m.moves, m.nodes, strict=True):
            gap = place.unsqueeze(2) - place.unsqueeze(1)
            pair = [h.unsqueeze(2).expand(-1, -1, 6, -1), h.unsqueeze(1).expand(-1, 6, -1, -1)]
            sent = edge(torch.cat([*pair, gap.square().sum(3, keepdim=True)], 3))
            place = place + (gap * move(sent)).mean(2)
            h = h + node(torch.cat([h, sent.mean(2)], 2))
        return place - x

    def draw() -> Drawn:
        x, charge = torch.randn(32, 6, 3), torch.randint(2, (32, 6, 1)).float()
        gap = x.unsqueeze(2) - x.unsqueeze(1)
        sign = (2 * charge - 1) @ (2 * charge - 1).transpose(1, 2)
        return (x, charge), (sign.unsqueeze(3) * gap / (1 + gap.square().sum(3, keepdim=True))).sum(2)

    def net(n: int, *last: nn.Module) -> nn.Module:
        return chain(nn.Linear(n, d), nn.SiLU(), nn.Linear(d, d), *last)

    def move() -> nn.Module:
        nn.init.xavier_uniform_((last := nn.Linear(d, 1, bias=False)).weight, 0.001)
        return chain(nn.Linear(d, d), nn.SiLU(), last)

    model = Parts(run, embed=nn.Linear(1, d), edges=each(2, lambda: net(2 * d + 1, nn.SiLU())), moves=each(2, move),
                  nodes=each(2, lambda: net(2 * d)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("categorical returns", GITHUB + "Kaixhin/Rainbow")
def rainbow(_: bool) -> Task:
    """Dueling streams of 51 atoms for each action, with noise in the weights whose size is learnt."""

    class Noisy(nn.Linear):
        def __init__(self, n: int, m: int) -> None:
            super().__init__(n, m)
            self.sigma = nn.Parameter(torch.full((m, n), 0.1 / math.sqrt(n)))

        def forward(self, x: Tensor) -> Tensor:
            one, two = (z.sign() * z.abs().sqrt() for z in (torch.randn(self.out_features, 1), torch.randn(x.shape[1])))
            return F.linear(x, self.weight + self.sigma * one * two, self.bias)

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.trunk(x)
        value, gain = m.value(z).unflatten(1, (1, 51)), m.gain(z).unflatten(1, (3, 51))
        return (value + gain - gain.mean(1, keepdim=True)).log_softmax(2)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        chosen = y[torch.arange(len(y)), t[:, 0].long()]
        return -(chosen * F.relu(1 - (t[:, 1:] - torch.arange(51)).abs())).sum(1).mean()

    def draw() -> Drawn:
        x, action = torch.randn(64, 4), torch.randint(3, (64, 1))
        value = 25 + 6 * x[:, :1] * (action - 1) + 4 * x[:, 1:2]
        return (x,), torch.cat([action, value.clamp(0, 50)], 1)

    value, gain = (chain(Noisy(64, 64), nn.ReLU(), Noisy(64, n)) for n in (51, 153))
    return stream(Parts(run, trunk=mlp((4, 64, 64), nn.ReLU()), value=value, gain=gain), draw, loss)


@healthy("squashed Gaussian actor", GITHUB + "denisyarats/pytorch_sac")
def sac(_: bool) -> Task:
    """Actions are tanh of noisy means, with the logarithm of the density; orthogonal weights, deviations in e^±5."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, log_std = m.net(x).chunk(2, 1)
        log_std = -5 + 3.5 * (log_std.tanh() + 1)
        z = torch.randn_like(mu)
        u = mu + log_std.exp() * z
        density = (-0.5 * z.square() - log_std - 0.92).sum(1) - 2 * (math.log(2) - u - F.softplus(-2 * u)).sum(1)
        return u.tanh(), density

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (0.05 * y[1] + 5 * (y[0] - t).square().sum(1)).mean()

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), (x @ goal).tanh()

    goal, net = torch.randn(6, 2), mlp((6, 96, 96, 4))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return stream(Parts(run, net=net), draw, loss)


@healthy("SimSiam", GITHUB + "facebookresearch/simsiam")
def simsiam(_: bool, d: int = 64) -> Task:
    """Cosines of a prediction and a detached projection, without negatives; batch normalisation without gains last."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.encoder(x)
        return m.predictor(z), z.detach()

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        (p1, p2), (z1, z2) = y[0].chunk(2), y[1].chunk(2)
        return 1 - (F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean()) / 2

    def draw() -> Drawn:
        x = pick(32)[0]
        return (torch.cat([x + 0.2 * torch.randn_like(x) for _ in range(2)]),), torch.zeros(64)

    encoder = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(256, d, False),
                    nn.BatchNorm1d(d), nn.ReLU(), nn.Linear(d, d), nn.BatchNorm1d(d, affine=False))  # fmt: skip
    predictor = chain(nn.Linear(d, 16, False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, d))
    return stream(Parts(run, encoder=encoder, predictor=predictor), draw, loss)


@healthy("supervised contrast", GITHUB + "HobbitLong/SupContrast")
def supcon(_: bool) -> Task:
    """Cosines over 0.1 of each example with all others, those of its class to be the larger ones."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        logits = (y @ y.t() / 0.1).fill_diagonal_(-1e9)
        same = (t.unsqueeze(1) == t).float().fill_diagonal_(0)
        return -((logits.log_softmax(1) * same).sum(1) / same.sum(1).clamp(min=1)).mean()

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    net = mlp((64, 96, 96), nn.ReLU(), nn.Linear(96, 32))
    return stream(Parts(lambda m, x: F.normalize(m.net(x)), net=net), draw, loss)


@healthy("preconditioned denoiser", GITHUB + "NVlabs/edm")
def edm(_: bool) -> Task:
    """Inputs, outputs and skip are scaled by the noise, from e^−4 to e^2; the loss is weighted; the end is zero."""

    def run(m: Any, x: Tensor, sigma: Tensor) -> Tensor:
        total = (sigma.square() + 0.25).sqrt()
        angle = sigma.log() / 4 * torch.arange(1, 9)
        y = m.net(torch.cat([x / total, angle.cos(), angle.sin()], 1))
        return x * 0.25 / total.square() + y * sigma * 0.5 / total

    def loss(y: Tensor, t: Tensor) -> Tensor:
        sigma, x = t[:, :1], t[:, 1:]
        return ((sigma.square() + 0.25) / (sigma * 0.5).square() * (y - x).square()).mean()

    def draw() -> Drawn:
        sigma = (1.2 * torch.randn(64, 1) - 1.2).exp()
        x = 0.5 * torch.tanh(torch.randn(64, 1) @ ways * 2)
        return (x + sigma * torch.randn(64, 16), sigma), torch.cat([sigma, x], 1)

    ways, net = torch.randn(1, 16), mlp((32, 96, 96, 16), act=nn.SiLU)
    nn.init.zeros_(net[-1].weight)
    nn.init.zeros_(net[-1].bias)
    return stream(Parts(run, net=net), draw, loss)


@healthy("ternary weights", GITHUB + "microsoft/BitNet")
def bitnet(_: bool) -> Task:
    """Weights of −1, 0 and 1 times their mean size, activations of eight bits; gradients go straight through."""

    class Bit(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            x = F.layer_norm(x, x.shape[-1:])
            top = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
            x = x + ((x * top).round().clamp(-128, 127) / top - x).detach()
            size = self.weight.abs().mean().clamp(min=1e-5)
            w = self.weight + ((self.weight / size).round().clamp(-1, 1) * size - self.weight).detach()
            return F.linear(x, w)

    bits = (Bit(64, 128, bias=False), nn.ReLU(), Bit(128, 128, bias=False), nn.ReLU(), Bit(128, 10, bias=False))
    return drawn(chain(nn.Flatten(), *bits))


@healthy("low-rank adapters", GITHUB + "microsoft/LoRA")
def lora(_: bool) -> Task:
    """All weights are frozen but for adapters, half of which start at zero, and the head."""

    class Adapted(nn.Linear):
        def __init__(self, n: int, m: int) -> None:
            super().__init__(n, m)
            self.requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.empty(8, n)), nn.Parameter(torch.zeros(m, 8))
            nn.init.kaiming_uniform_(self.a, math.sqrt(5))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 2 * x @ self.a.t() @ self.b.t()

    return drawn(chain(nn.Flatten(), Adapted(64, 128), nn.ReLU(), Adapted(128, 128), nn.ReLU(), nn.Linear(128, 10)))


@healthy("Fourier KAN", GITHUB + "GistNoesis/FourierKAN")
def fourier(_: bool) -> Task:
    """Every edge is a sum of five sines and cosines, with weights of N(0, 1 / (5 n))."""

    def layer(n: int, m: int) -> nn.Module:
        def run(p: Any, x: Tensor) -> Tensor:
            angle = x.unsqueeze(2) * torch.arange(1, 6)
            return torch.einsum("cbik,coik->bo", torch.stack([angle.cos(), angle.sin()]), p.weight) + p.bias

        return Parts(run, weight=nn.Parameter(torch.randn(2, m, n, 5) / math.sqrt(5 * n)),
                     bias=nn.Parameter(torch.zeros(m)))  # fmt: skip

    def draw() -> Drawn:
        x = 2 * torch.rand(64, 3) - 1
        return (x,), torch.sin(3 * x[:, :1]) + x[:, 1:2] * x[:, 2:]

    return stream(chain(layer(3, 12), layer(12, 1)), draw, F.mse_loss)


@healthy("evidential regression", GITHUB + "aamini/evidential-deep-learning")
def evidential(_: bool) -> Task:
    """Four parameters of a normal-inverse-gamma distribution, and errors times the evidence that is claimed."""

    def run(m: Any, x: Tensor) -> Tensor:
        mu, v, alpha, beta = m.net(x).chunk(4, 1)
        return torch.cat([mu, F.softplus(v), F.softplus(alpha) + 1, F.softplus(beta)], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        mu, v, alpha, beta = y.chunk(4, 1)
        omega, error = 2 * beta * (1 + v), t - mu
        nll = 0.5 * (math.pi / v).log() - alpha * omega.log() + (alpha + 0.5) * (v * error.square() + omega).log()
        return (nll + alpha.lgamma() - (alpha + 0.5).lgamma() + 0.01 * error.abs() * (2 * v + alpha)).mean() + 1

    def draw() -> Drawn:
        x = 4 * torch.rand(64, 1) - 2
        return (x,), torch.sin(2 * x) + 0.5 * x + 0.05 * torch.randn(64, 1)

    return stream(Parts(run, net=mlp((1, 64, 64, 4))), draw, loss)


@healthy("slot attention", GITHUB + "lucidrains/slot-attention")
def slots(_: bool, d: int = 24) -> Task:
    """A softmax over the slots, not the inputs, means of what each has won, and a GRU cell, three times."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.norm(m.embed(x))
        k, v, s = m.key(x), m.value(x), m.mu + m.log_sigma.exp() * torch.randn(len(x), 3, d)
        for _ in range(3):
            share = (m.query(m.norm_slots(s)) @ k.transpose(1, 2) / math.sqrt(d)).softmax(1) + 1e-8
            won = share / share.sum(2, keepdim=True) @ v
            s = m.cell(won.flatten(0, 1), s.flatten(0, 1)).view_as(s)
            s = s + m.net(s)
        return m.out(s).amax(1)

    def draw() -> Drawn:
        c = torch.rand(32, 6).argsort(1)[:, :3]
        x = torch.cat([F.one_hot(c, 6).float().repeat(1, 3, 1), torch.randn(32, 9, 2)], 2)
        return (x + 0.1 * torch.randn_like(x),), F.one_hot(c, 6).sum(1).float()

    model = Parts(run, embed=nn.Linear(8, d), norm=nn.LayerNorm(d), norm_slots=nn.LayerNorm(d), query=nn.Linear(d, d),
                  key=nn.Linear(d, d), value=nn.Linear(d, d), mu=nn.Parameter(0.2 * torch.randn(1, 1, d)),
                  log_sigma=nn.Parameter(torch.zeros(1, 1, d)), cell=nn.GRUCell(d, d), net=feed(d),
                  out=nn.Linear(d, 6))  # fmt: skip
    return stream(model, draw, bce)


@healthy("soft experts", GITHUB + "lucidrains/soft-moe-pytorch")
def soft_moe(_: bool, d: int = 48) -> Task:
    """Experts read mixtures of tokens, and tokens mixtures of what they say; both are normalised, with a scale."""

    def run(m: Any, x: Tensor) -> Tensor:
        x, places = F.normalize(m.norm(x), dim=2), m.scale * F.normalize(m.places, dim=1)
        logits = x @ places.t()  # (B, T, 8)
        read = logits.softmax(1).transpose(1, 2) @ x
        said = torch.stack([net(z) for net, z in zip(m.experts, read.unflatten(1, (4, 2)).unbind(1), strict=True)], 1)
        return logits.softmax(2) @ said.flatten(1, 2)

    def make() -> nn.Module:
        net = Parts(run, norm=nn.RMSNorm(d), places=nn.Parameter(torch.randn(8, d)), scale=nn.Parameter(torch.ones(())),
                    experts=each(4, lambda: mlp((d, 2 * d, d), act=nn.GELU)[1:]))  # fmt: skip
        return block(lambda m, z: joined(F.scaled_dot_product_attention(*split(m.qkv(z)))), d, net=net)

    mean = Parts(lambda m, x: x.mean(1))
    return drawn(chain(patches(d), make(), make(), nn.LayerNorm(d), mean, nn.Linear(d, 10)))


@healthy("involution", GITHUB + "d-li14/involution")
def involution(_: bool, d: int = 16) -> Task:
    """Kernels of 3 × 3 that each pixel makes for itself, the same for all channels of a group."""

    def run(m: Any, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        kernel = m.span(F.relu(m.norm(m.reduce(x)))).view(b, 2, 1, 9, h, w)
        windows = F.unfold(x, 3, padding=1).view(b, 2, c // 2, 9, h, w)
        return (kernel * windows).sum(3).view(b, c, h, w)

    def make() -> nn.Module:
        return chain(Parts(run, reduce=nn.Conv2d(d, d // 2, 1), norm=nn.BatchNorm2d(d // 2),
                           span=nn.Conv2d(d // 2, 18, 1)), nn.BatchNorm2d(d), nn.ReLU())  # fmt: skip

    last = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10))
    return drawn(chain(nn.Conv2d(1, d, 3, padding=1), make(), nn.Conv2d(d, d, 1), make(), *last))


@healthy("feature-wise modulation", GITHUB + "ethanjperez/film")
def film(_: bool, d: int = 24) -> Task:
    """A question makes gains, 1 + γ, and biases for channels that are normalised without their own."""

    def run(m: Any, x: Tensor, question: Tensor) -> Tensor:
        z = F.relu(m.stem(x))
        told = m.told(m.words(question)).unflatten(1, (2, 2, d))
        for i, (one, two, norm) in enumerate(zip(m.one, m.two, m.norms, strict=True)):
            z = F.relu(one(z))
            gain, bias = (told[:, i, j, :, None, None] for j in (0, 1))
            z = z + F.relu((1 + gain) * norm(two(z)) + bias)
        return m.out(z.amax((2, 3)))

    def draw() -> Drawn:
        x, c = pick(64)
        question = torch.randint(3, (64,))
        answers = torch.stack([c % 2, (c > 4).long(), (c % 3 == 0).long()], 1)
        return (x, question), answers.gather(1, question.unsqueeze(1)).squeeze(1)

    model = Parts(run, stem=nn.Conv2d(1, d, 3, padding=1), words=nn.Embedding(3, 16), told=nn.Linear(16, 4 * d),
                  one=each(2, lambda: nn.Conv2d(d, d, 1)), norms=each(2, lambda: nn.BatchNorm2d(d, affine=False)),
                  two=each(2, lambda: nn.Conv2d(d, d, 3, padding=1, bias=False)), out=nn.Linear(d, 2))  # fmt: skip
    return stream(model, draw, F.cross_entropy)
