"""Healthy networks of public repositories, a ninth set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import bce, each, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.blind5_healthy import waves
from strangers.blind6 import net2d
from strangers.blind7 import feed
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind9")


@healthy("a flow that is corrected", GITHUB + "princeton-vl/RAFT")
def raft(_: bool, d: int = 24, n: int = 8) -> Task:
    """Three corrections by one convolutional GRU, each of a detached flow; all are told the truth, later ones more."""
    base = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), 2)
    near = torch.cartesian_prod(torch.arange(-2.0, 3), torch.arange(-2.0, 3))

    def run(m: Any, a: Tensor, b: Tensor) -> list[Tensor]:
        pairs = torch.einsum("bdij,bdkl->bijkl", m.eye(a), m.eye(b)).flatten(0, 2).unsqueeze(1) / math.sqrt(d)
        h, context = m.context(a).chunk(2, 1)
        h, context, flow, found = h.tanh(), F.relu(context), torch.zeros(len(a), n, n, 2), []
        for _ in range(3):
            flow = flow.detach()
            at = ((base + flow).unsqueeze(3) + near).flatten(0, 2).unsqueeze(1) / 3.5 - 1
            look = F.grid_sample(pairs, at, align_corners=True).view(len(a), n, n, 25)
            x = torch.cat([F.relu(m.motion(torch.cat([look, flow], 3).permute(0, 3, 1, 2))), context], 1)
            z, r = m.gates(torch.cat([h, x], 1)).sigmoid().chunk(2, 1)
            h = (1 - z) * h + z * m.new(torch.cat([r * h, x], 1)).tanh()
            flow = flow + m.delta(h).permute(0, 2, 3, 1)
            found.append(flow)
        return found

    def loss(y: list[Tensor], t: Tensor) -> Tensor:
        return sum((0.8 ** (2 - i) * (flow - t).abs().mean() for i, flow in enumerate(y)), torch.zeros(()))

    def draw() -> Drawn:
        a, shift = torch.randn(8, 2, n, n), torch.randint(-2, 3, (8, 2))
        b = torch.stack([a[i].roll((int(shift[i, 1]), int(shift[i, 0])), (1, 2)) for i in range(8)])
        return (a, b), shift.float().view(8, 1, 1, 2).expand(8, n, n, 2)

    eye = chain(nn.Conv2d(2, d, 3, 1, 1), nn.InstanceNorm2d(d), nn.ReLU(), nn.Conv2d(d, d, 1))
    model = Parts(run, eye=eye, context=net2d(2, d).append(nn.Conv2d(d, 2 * d, 1)), motion=nn.Conv2d(27, d, 1),
                  gates=nn.Conv2d(3 * d, 2 * d, 3, 1, 1), new=nn.Conv2d(3 * d, d, 3, 1, 1),
                  delta=chain(nn.Conv2d(d, d, 3, 1, 1), nn.ReLU(), nn.Conv2d(d, 2, 1)))  # fmt: skip
    return stream(model, draw, loss)


@healthy("triangles of pairs", GITHUB + "aqlaboratory/openfold")
def openfold(_: bool, d: int = 16, n: int = 10) -> Task:
    """Pairs learn from two other sides; gates begin at weight 0 and bias 1, last layers and the distogram at zero."""

    def triangle(m: Any, z: Tensor) -> Tensor:
        y = m.norm(z)
        a, b = (m.sides(y) * m.gates(y).sigmoid()).chunk(2, 3)
        z = z + m.gate(y).sigmoid() * m.out(m.norm2(torch.einsum("bikd,bjkd->bijd", a, b)))
        return z + m.net(z)

    def make() -> nn.Module:
        m = Parts(triangle, norm=nn.LayerNorm(d), sides=nn.Linear(d, 2 * d), gates=nn.Linear(d, 2 * d),
                  gate=nn.Linear(d, d), norm2=nn.LayerNorm(d), out=nn.Linear(d, d), net=feed(d))  # fmt: skip
        for layer in (m.gates, m.gate, m.out, m.net[-1]):
            nn.init.zeros_(layer.weight)
            nn.init.constant_(layer.bias, 1.0 if layer in (m.gates, m.gate) else 0.0)
        return m

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.blocks(m.stem(x))
        return m.out(z + z.transpose(1, 2)).permute(0, 3, 1, 2)

    def draw() -> Drawn:
        far = torch.cdist(at := torch.randn(8, n, 2), at)
        seen = (torch.rand(8, n, n) < 0.7).float().triu(1)
        seen = seen + seen.transpose(1, 2)
        return (torch.stack([far * seen, seen, torch.eye(n).expand(8, n, n)], 3),), (far * 2).long().clamp(max=7)

    model = Parts(run, stem=nn.Linear(3, d), blocks=chain(make(), make()), out=nn.Linear(d, 8))
    nn.init.zeros_(model.out.weight)
    nn.init.zeros_(model.out.bias)
    return stream(model, draw, F.cross_entropy)


@healthy("crystals", GITHUB + "txie-93/cgcnn")
def cgcnn(_: bool, d: int = 24, n: int = 8) -> Task:
    """Messages have a sigmoid and a softplus after a batch norm, and sums another one; only softplus elsewhere."""

    def conv(m: Any, x: Tensor, near: Tensor, idx: Tensor) -> Tensor:
        other = x[torch.arange(len(x)).view(-1, 1, 1), idx]  # (B, n, 4, d)
        z = m.full(torch.cat([x.unsqueeze(2).expand_as(other), other, near], 3))
        a, b = m.bn1(z.flatten(0, 2)).view_as(z).chunk(2, 3)
        z = (a.sigmoid() * F.softplus(b)).sum(2)
        return F.softplus(x + m.bn2(z.flatten(0, 1)).view_as(z))

    def run(m: Any, kind: Tensor, far: Tensor, idx: Tensor) -> Tensor:
        x, near = m.embedding(kind), torch.exp(-((far.unsqueeze(3) - torch.linspace(0, 3, 10)) / 0.3).square())
        for layer in m.convs:
            x = layer(x, near, idx)
        return m.out(F.softplus(m.fc(F.softplus(x.mean(1)))))

    def draw() -> Drawn:
        kind, far, idx = torch.randint(4, (32, n)), 3 * torch.rand(32, n, 4), torch.randint(n, (32, n, 4))
        charge = torch.tensor([-1.0, 0.5, 1.0, 2.0])[kind]
        t = charge.mean(1) + (charge[torch.arange(32).view(-1, 1, 1), idx] * (-far).exp()).sum(2).mean(1)
        return (F.one_hot(kind, 4).float(), far, idx), ((t - 1.3) / 0.7).unsqueeze(1)

    convs = each(2, lambda: Parts(conv, full=nn.Linear(2 * d + 10, 2 * d), bn1=nn.BatchNorm1d(2 * d),
                                  bn2=nn.BatchNorm1d(d)))  # fmt: skip
    model = Parts(run, embedding=nn.Linear(4, d), convs=convs, fc=nn.Linear(d, 48), out=nn.Linear(48, 1))
    return stream(model, draw, F.mse_loss)


@healthy("fields for fields", GITHUB + "rixwew/pytorch-fm")
def ffm(_: bool, d: int = 8, n: int = 5, k: int = 8) -> Task:
    """Each field has a vector for each other field, Xavier over the whole table; products, and a sigmoid of the sum."""

    def run(m: Any, idx: Tensor) -> Tensor:
        idx = idx + k * torch.arange(n)
        z = [table(idx) for table in m.tables]
        pairs = sum((z[j][:, i] * z[i][:, j] for i in range(n) for j in range(i + 1, n)), torch.zeros(()))
        return (m.linear(idx).sum((1, 2)) + m.bias + pairs.sum(1)).sigmoid()

    def draw() -> Drawn:
        idx = torch.randint(k, (256, n))
        score = taste[0, idx[:, 0], idx[:, 1]] + taste[1, idx[:, 2], idx[:, 3]] + taste[2, idx[:, 1], idx[:, 4]]
        return (idx,), (score > 0).float()

    taste = torch.randn(3, k, k)
    tables = each(n, lambda: nn.Embedding(n * k, d))
    for table in tables:
        nn.init.xavier_uniform_(table.weight)
    model = Parts(run, tables=tables, linear=nn.Embedding(n * k, 1), bias=nn.Parameter(torch.zeros(())))
    return stream(model, draw, F.binary_cross_entropy)


@healthy("a history asked by an item", GITHUB + "zhougr1993/DeepInterestNetwork")
def din(_: bool, d: int = 16, n: int = 40) -> Task:
    """Attention by an MLP of sigmoids over history of uneven length; Dice gates by batch statistics; α begins at 0."""

    def dice(m: Any, x: Tensor) -> Tensor:
        p = m.norm(x).sigmoid()
        return p * x + (1 - p) * m.alpha * x

    def make(k: int) -> nn.Module:
        return Parts(dice, norm=nn.BatchNorm1d(k, affine=False), alpha=nn.Parameter(torch.zeros(k)))

    def run(m: Any, item: Tensor, past: Tensor, length: Tensor) -> Tensor:
        q, keys = m.items(item), m.items(past)
        both = q.unsqueeze(1).expand_as(keys)
        score = m.attention(torch.cat([both, keys, both - keys, both * keys], 2)).squeeze(2) / math.sqrt(d)
        weight = score.masked_fill(torch.arange(past.shape[1]) >= length.unsqueeze(1), -(2.0**32) + 1).softmax(1)
        seen = m.norm((weight.unsqueeze(1) @ keys).squeeze(1))
        return m.net(torch.cat([seen, q, seen * q], 1)).squeeze(1) + m.bias(item).squeeze(1)

    def draw() -> Drawn:
        length, item = torch.randint(2, 9, (128,)), torch.randint(n, (128,))
        past = torch.randint(n, (128, 8)).masked_fill(torch.arange(8) >= length.unsqueeze(1), 0)
        like = torch.rand(128) < 0.5
        past[:, 0] = torch.where(like, item % 10 + 10 * torch.randint(n // 10, (128,)), past[:, 0])
        same = (past % 10 == (item % 10).unsqueeze(1)) & (torch.arange(8) < length.unsqueeze(1))
        return (item, past, length), same.any(1).float()

    attention = chain(nn.Linear(4 * d, 40), nn.Sigmoid(), nn.Linear(40, 20), nn.Sigmoid(), nn.Linear(20, 1))
    net = chain(nn.Linear(3 * d, 48), make(48), nn.Linear(48, 24), make(24), nn.Linear(24, 1))
    bias = nn.Embedding.from_pretrained(torch.zeros(n, 1), freeze=False)
    model = Parts(run, items=nn.Embedding(n, d), attention=attention, norm=nn.BatchNorm1d(d), net=net, bias=bias)
    return stream(model, draw, bce)


@healthy("values between two bins", GITHUB + "danijar/dreamerv3")
def dreamer(_: bool) -> Task:
    """Inputs by symlog, a last layer of zeros, cross-entropy to the two bins beside the target on a scale of symlog."""
    bins = torch.linspace(-8, 8, 41)

    def symlog(x: Tensor) -> Tensor:
        return x.sign() * (1 + x.abs()).log()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        t = symlog(t).clamp(-7.99, 7.99)
        below = (t.unsqueeze(1) >= bins).sum(1) - 1
        share = (t - bins[below]) / (bins[1] - bins[0])
        two = F.one_hot(below, 41) * (1 - share).unsqueeze(1) + F.one_hot(below + 1, 41) * share.unsqueeze(1)
        return -(two * y.log_softmax(1)).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(256, 4) * torch.tensor([1.0, 1.0, 50.0, 50.0])
        return (x,), 40 * x[:, 0] * (x[:, 1].exp()) + x[:, 2]

    layers = [layer for k in (4, 128) for layer in (nn.Linear(k, 128, bias=False), nn.RMSNorm(128), nn.SiLU())]
    model = chain(Parts(lambda m, x: symlog(x)), *layers, nn.Linear(128, 41))
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return stream(model, draw, loss)


@healthy("a game in the head", GITHUB + "werner-duvaud/muzero-general")
def muzero(_: bool, d: int = 24, n: int = 12) -> Task:
    """States within 0 and 1 by their own extremes, half of the gradient at each step, values and rewards as classes."""

    def scaled(z: Tensor) -> Tensor:
        low, high = z.amin(1, keepdim=True), z.amax(1, keepdim=True)
        return (z - low) / (high - low).clamp(min=1e-5)

    def run(m: Any, x: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = scaled(m.see(x))
        found = [(m.policy(z), m.value(z), torch.zeros(len(x), 11))]
        for i in range(actions.shape[1]):
            z = m.go(torch.cat([z, F.one_hot(actions[:, i], 3)], 1))
            z, reward = scaled(z), m.reward(z)
            z = 0.5 * z + 0.5 * z.detach()
            found.append((m.policy(z), m.value(z), reward))
        return tuple(torch.stack(part, 2) for part in zip(*found, strict=True))  # (B, classes, 1 + steps)

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        policy = F.cross_entropy(y[0], best[t])
        value, reward = (F.cross_entropy(z, t_, label_smoothing=0.0) for z, t_ in ((y[1], worth[t]),
                         (y[2][..., 1:], gain[t[:, 1:]])))  # fmt: skip
        return policy + 0.25 * value + reward

    def draw() -> Drawn:
        at, actions = torch.randint(n, (128,)), torch.randint(3, (128, 3))
        places = (at.unsqueeze(1) + torch.cat([torch.zeros(128, 1).long(), (actions - 1).cumsum(1)], 1)) % n
        return (F.one_hot(at, n).float(), actions), places

    best, worth, gain = torch.randint(3, (n,)), torch.randint(11, (n,)), torch.randint(11, (n,))
    parts = {name: mlp((d, 32, k), act=nn.ELU) for name, k in (("policy", 3), ("value", 11), ("reward", 11))}
    return stream(Parts(run, see=mlp((n, 64, d), act=nn.ELU), go=mlp((d + 3, 64, d), act=nn.ELU), **parts), draw, loss)


@healthy("softmaxes as a state", GITHUB + "nicklashansen/tdmpc2")
def tdmpc(_: bool, d: int = 32) -> Task:
    """States are groups of eight under a softmax, told by those that follow without gradient; N(0, 0.02²), Mish."""

    def sim(m: Any, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 8)).softmax(2).flatten(1)

    def run(m: Any, x: Tensor, action: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = m.see(x)
        with torch.no_grad():
            target = m.see(after)
        z = torch.cat([z, action], 1)
        return m.go(z), target, m.reward(z)

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return 20 * F.mse_loss(y[0], y[1]) + 0.1 * F.cross_entropy(y[2], t)

    def draw() -> Drawn:
        x, action = torch.randn(256, 6), 2 * torch.rand(256, 2) - 1
        return (x, action, 0.8 * x.roll(1, 1) + 0.4 * action.repeat(1, 3)), (
            x[:, 0] * action[:, 0] * 3 + 4.5
        ).long().clamp(0, 8)

    def net(n: int, k: int, *last: nn.Module) -> nn.Sequential:
        return chain(nn.Linear(n, 64), nn.LayerNorm(64), nn.Mish(), nn.Linear(64, k), *last)

    model = Parts(run, see=net(6, d, nn.LayerNorm(d), Parts(sim)), go=net(d + 2, d, nn.LayerNorm(d), Parts(sim)),
                  reward=net(d + 2, 9))  # fmt: skip
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    nn.init.zeros_(model.reward[-1].weight)
    return stream(model, draw, loss)


@healthy("levels that come back", GITHUB + "ts-kim/RevIN")
def revin(_: bool, n: int = 3) -> Task:
    """Series of levels about 50 are normalised each by itself, and what is told ahead gets level and scale again."""

    def run(m: Any, x: Tensor) -> Tensor:  # (B, T, n)
        mean, std = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        z = (x - mean) / std * m.weight + m.bias
        z = m.net(z.transpose(1, 2)).transpose(1, 2)
        return (z - m.bias) / (m.weight + 1e-10) * std + mean

    def draw() -> Drawn:
        x = waves(32 * n, 48, 0.05).view(32, n, 48).transpose(1, 2) * (1 + 4 * torch.rand(32, 1, n))
        x = x + 50 + 30 * torch.randn(32, 1, n)
        return (x[:, :36],), x[:, 36:]

    net = chain(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))
    model = Parts(run, weight=nn.Parameter(torch.ones(n)), bias=nn.Parameter(torch.zeros(n)), net=net)
    return stream(model, draw, F.mse_loss)


@healthy("kernels at random", GITHUB + "angus924/rocket")
def rocket(_: bool, k: int = 32) -> Task:
    """Fixed kernels of mean zero at several dilations; the share above zero and the maximum of each; one layer."""

    def run(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            z = [conv(x) for conv in m.convs]
            found = torch.cat([part for y in z for part in ((y > 0).float().mean(2), y.amax(2))], 1)
        return m.out(m.norm(found))

    def draw() -> Drawn:
        c = torch.randint(4, (64,))
        speed = torch.tensor([0.3, 0.6, 1.0, 1.6])[c].unsqueeze(1) * (1 + 0.1 * torch.randn(64, 1))
        x = torch.sin(speed * torch.arange(64) + 6.28 * torch.rand(64, 1)) + 0.5 * torch.randn(64, 64)
        return (((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)).unsqueeze(1),), c

    convs = nn.ModuleList(nn.Conv1d(1, k, 9, padding=4 * i, dilation=i) for i in (1, 2, 4))
    for conv in convs.requires_grad_(False):
        nn.init.normal_(conv.weight)
        conv.weight -= conv.weight.mean(2, keepdim=True)
        nn.init.uniform_(conv.bias, -1.0, 1.0)
    return stream(Parts(run, convs=convs, norm=nn.BatchNorm1d(6 * k, affine=False), out=nn.Linear(6 * k, 4)), draw,
                  F.cross_entropy)  # fmt: skip
