"""Healthy networks of public repositories, a sixth set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import each, pick, stream
from strangers.blind2_healthy import chain, drawn
from strangers.blind3 import Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind5 import tensor
from strangers.blind5_healthy import waves
from strangers.blind6 import bandit
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind6")


@healthy("squeeze and excitation", GITHUB + "hujie-frank/SENet")
def senet(_: bool, d: int = 32) -> Task:
    """Channels are multiplied by sigmoids of two linear layers without biases, of their means, at about a half."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.net(x)
        return F.relu(x + z * m.up(F.relu(m.down(z.mean((2, 3))))).sigmoid()[:, :, None, None])

    def make() -> nn.Module:
        convs = [layer for _ in range(2) for layer in (nn.Conv2d(d, d, 3, padding=1, bias=False), nn.BatchNorm2d(d))]
        return Parts(run, net=chain(*convs), down=nn.Linear(d, 4, bias=False), up=nn.Linear(4, d, bias=False))

    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, 10))
    return drawn(chain(nn.Conv2d(1, d, 3, 2, 1), nn.BatchNorm2d(d), nn.ReLU(), make(), make(), *last))


@healthy("shifted windows", GITHUB + "microsoft/Swin-Transformer")
def swin(_: bool, d: int = 32) -> Task:
    """Attention in windows of four by four, shifted by two in the second layer, with biases of relative positions."""
    place = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    away = (place[:, None] - place + 3) @ torch.tensor([7, 1])  # (16, 16)

    def block(m: Any, x: Tensor) -> Tensor:  # (B, 8, 8, d)
        z = m.norm1(x).roll((-m.shift, -m.shift), (1, 2))
        z = z.unflatten(1, (2, 4)).unflatten(3, (2, 4)).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, d)
        y = joined(F.scaled_dot_product_attention(*split(m.qkv(z)), attn_mask=m.bias[:, away]))
        y = m.proj(y).view(len(x), 2, 2, 4, 4, d).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        x = x + y.roll((m.shift, m.shift), (1, 2))
        return x + m.net(m.norm2(x))

    def make(shift: int) -> nn.Module:
        net = chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        return Parts(block, shift=shift, norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d),
                     proj=nn.Linear(d, d), bias=tensor(4, 49, std=0.02), net=net)  # fmt: skip

    def run(m: Any, x: Tensor) -> Tensor:
        return m.head(m.norm(m.blocks(m.embed(x.permute(0, 2, 3, 1)) + m.places)).mean((1, 2)))

    model = Parts(run, embed=nn.Linear(1, d), blocks=chain(make(0), make(2)), norm=nn.LayerNorm(d),
                  head=nn.Linear(d, 10), places=tensor(8, 8, d, std=0.5))  # fmt: skip
    return stream(model, lambda: ((x := pick(32))[:1], x[1]), F.cross_entropy)


@healthy("LeNet-5", GITHUB + "activatedgeek/LeNet-5")
def lenet(_: bool) -> Task:
    """Scaled tanh, 1.7159 tanh(2 x / 3), averages with a gain and a bias for each channel, no normalisation."""
    squash = Parts(lambda m, x: 1.7159 * (2 * x / 3).tanh())

    def pool(n: int) -> nn.Module:
        return Parts(lambda m, x: F.avg_pool2d(x, 2) * m.gain + m.bias, gain=nn.Parameter(torch.ones(n, 1, 1)),
                     bias=nn.Parameter(torch.zeros(n, 1, 1)))  # fmt: skip

    convs = (nn.Conv2d(1, 6, 3, padding=1), squash, pool(6), squash, nn.Conv2d(6, 16, 3, padding=1), squash, pool(16))
    return drawn(chain(*convs, squash, nn.Flatten(), nn.Linear(64, 84), squash, nn.Linear(84, 10)))


@healthy("lottery ticket", GITHUB + "rahulvigneswaran/Lottery-Ticket-Hypothesis-in-Pytorch")
def ticket(_: bool) -> Task:
    """Four fifths of all weights are zero and stay so: masks multiply them, some units have next to no input."""

    def sparse(n: int, m: int) -> nn.Module:
        layer = nn.Linear(n, m)
        mask = (torch.rand(m, n) < 0.2).float()
        layer.weight.data *= mask
        return Parts(lambda p, x: F.linear(x, p.weight * mask, p.bias), weight=layer.weight, bias=layer.bias)

    return drawn(chain(nn.Flatten(), sparse(64, 200), nn.ReLU(), sparse(200, 100), nn.ReLU(), sparse(100, 10)))


@healthy("XNOR network", GITHUB + "jiecaoyu/XNOR-Net-PyTorch")
def xnor(_: bool, d: int = 32) -> Task:
    """Weights and activations are signs, times the mean size of a filter; gradients pass where inputs are within ±1."""

    def sign(x: Tensor) -> Tensor:
        held = x.clamp(-1, 1)
        return held + (torch.where(x >= 0, 1.0, -1.0) - held).detach()

    def conv(m: Any, x: Tensor) -> Tensor:
        size = m.weight.abs().mean((1, 2, 3), keepdim=True)
        return F.conv2d(sign(m.norm(x)), sign(m.weight) * size.detach(), padding=1)

    def make() -> nn.Module:
        return Parts(conv, norm=nn.BatchNorm2d(d), weight=tensor(d, d, 3, 3, std=0.05))

    last = (nn.BatchNorm2d(d), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10))
    return drawn(chain(nn.Conv2d(1, d, 3, padding=1), make(), nn.MaxPool2d(2), make(), *last))


@healthy("ensemble of signs", GITHUB + "google/edward2")
def ensemble(_: bool, k: int = 4) -> Task:
    """Four members share weights, each times random signs on either side; they answer for a quarter of the batch."""

    def layer(m: Any, x: Tensor) -> Tensor:  # (k, B, n)
        return m.shared(x * m.left) * m.right + m.bias

    def make(n: int, m: int) -> nn.Module:
        left, right = (nn.Parameter(torch.randn(k, 1, s).sign()) for s in (n, m))
        return Parts(layer, shared=nn.Linear(n, m, bias=False), left=left, right=right, bias=tensor(k, 1, m, std=0.01))

    def run(m: Any, x: Tensor) -> Tensor:
        return m.net(x.flatten(1).unflatten(0, (k, -1))).flatten(0, 1)

    return drawn(Parts(run, net=chain(make(64, 96), nn.ReLU(), make(96, 96), nn.ReLU(), make(96, 10))))


@healthy("random Fourier features", GITHUB + "tancik/fourier-feature-networks")
def random_features(_: bool) -> Task:
    """Coordinates of 0 to 1 become sines of 64 frozen directions of N(0, 3²), and colours are sigmoids."""
    b = 3 * torch.randn(2, 64)

    def run(m: Any, x: Tensor) -> Tensor:
        angle = 2 * math.pi * x @ b
        return m.net(torch.cat([angle.sin(), angle.cos()], 1)).sigmoid()

    def draw() -> Drawn:
        x = torch.rand(256, 2)
        rings = (20 * (x - 0.5).norm(dim=1, keepdim=True)).sin()
        return (x,), torch.cat([0.5 + 0.5 * rings, (rings > 0).float(), x[:, :1].round()], 1)

    return stream(Parts(run, net=mlp((128, 96, 96, 3))), draw, F.mse_loss)


@healthy("radial basis functions", GITHUB + "JeremyLinux/PyTorch-Radial-Basis-Function-Layer")
def radial(_: bool, k: int = 64) -> Task:
    """Gaussians around centres of N(0, 1), of which most are nearly zero for most inputs, and one linear layer."""

    def run(m: Any, x: Tensor) -> Tensor:
        far = torch.cdist(x, m.centres) * m.width.exp()
        return m.out((-far.square()).exp())

    def draw() -> Drawn:
        x = torch.randn(128, 2)
        return (x,), (2 * x[:, :1]).sin() * x[:, 1:]

    model = Parts(run, centres=tensor(k, 2), width=nn.Parameter(torch.zeros(k)), out=nn.Linear(k, 1))
    return stream(model, draw, F.mse_loss)


@healthy("deep kernel", GITHUB + "cornellius-gp/gpytorch")
def kernel(_: bool) -> Task:
    """The marginal likelihood of a Gaussian process on features: no output is of one example alone."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.net(x)
        k = (-torch.cdist(z, z).square() / 2).exp() * m.scale.exp()
        return k + (m.noise.exp() + 1e-3) * torch.eye(len(x))

    def loss(k: Tensor, t: Tensor) -> Tensor:
        root = torch.linalg.cholesky(k)
        fit = torch.linalg.solve_triangular(root, t, upper=False).square().mean()
        return 0.5 * fit + root.diagonal().log().mean() + 1.2

    def draw() -> Drawn:
        x = torch.randn(48, 3)
        return (x,), (2 * x[:, :1]).sin() + (x[:, 1:2] > 0).float() - 0.5

    model = Parts(run, net=mlp((3, 48, 2)), scale=nn.Parameter(torch.zeros(())), noise=nn.Parameter(torch.zeros(())))
    return stream(model, draw, loss)


@healthy("multinomial autoencoder", GITHUB + "dawenl/vae_cf")
def multinomial(_: bool, n: int = 60) -> Task:
    """What a user has clicked, of length one and half dropped, in; a softmax over all items out; a tenth of the KL."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = m.encoder(F.dropout(F.normalize(x), 0.5, m.training)).chunk(2, 1)
        z = mean + (logvar / 2).exp() * torch.randn_like(mean) * m.training
        return m.decoder(z), mean, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - 1 - y[2]).sum(1).mean()
        right = -(y[0].log_softmax(1) * t).sum(1) / t.sum(1)
        return right.mean() - math.log(6) + 0.01 * kl

    def draw() -> Drawn:
        group = torch.randint(10, (64, 1))
        x = (torch.rand(64, n) < torch.where(torch.arange(n) // 6 == group, 0.9, 0.004)).float()
        x[:, 0] += 1 - x.amax(1)
        return (x,), x

    encoder, decoder = (mlp(widths, act=nn.Tanh) for widths in ((n, 64, 32), (16, 64, n)))
    for net in (encoder, decoder):
        for layer in (net[1], net[3]):
            nn.init.xavier_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.001)
    return stream(Parts(run, encoder=encoder, decoder=decoder), draw, loss)


@healthy("ranking of lists", GITHUB + "allegro/allRank")
def listnet(_: bool) -> Task:
    """Cross-entropy between softmaxes of scores and of relevance, over the documents of a query, less its least."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        p = t.softmax(1)
        return (p * (p.log() - y.log_softmax(1))).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(24, 20, 8)
        return (x,), (x[..., 0] + x[..., 1] * x[..., 2] + 0.5 * x[..., 3].abs()).clamp(-2, 4).round()

    model = Parts(lambda m, x: m.net(x).squeeze(2), net=chain(nn.LayerNorm(8), *mlp((8, 64, 64, 1))[1:]))
    return stream(model, draw, loss)


@healthy("graph autoencoder", GITHUB + "tkipf/gae")
def gae(_: bool, n: int = 40) -> Task:
    """Logits of edges are products of the nodes' latents; the few edges weigh as much as all that is not there."""

    def run(m: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        near = a + torch.eye(n)
        near = near / (near.sum(1, keepdim=True) * near.sum(2, keepdim=True)).sqrt()
        h = F.relu(near @ m.first)
        mean, logvar = near @ m.mean(h), near @ m.logvar(h)
        z = mean + (logvar / 2).exp() * torch.randn_like(mean) * m.training
        return z @ z.transpose(1, 2), mean, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        weight = (1 - t).sum() / t.sum()
        kl = 0.5 * (y[1].square() + y[2].exp() - 1 - y[2]).sum(2).mean() / n
        return 0.5 * F.binary_cross_entropy_with_logits(y[0], t, pos_weight=weight) * t.numel() / (1 - t).sum() + kl

    group = torch.arange(n) % 4

    def draw() -> Drawn:
        a = (torch.rand(8, n, n) < torch.where(group == group.unsqueeze(1), 0.8, 0.01)).float().triu(1)
        a = a + a.transpose(1, 2)
        return (a,), a

    model = Parts(run, first=tensor(n, 32, std=0.2), mean=nn.Linear(32, 12, bias=False),
                  logvar=nn.Linear(32, 12, bias=False))  # fmt: skip
    return stream(model, draw, loss)


@healthy("messages into a GRU", GITHUB + "brain-research/mpnn")
def mpnn(_: bool, d: int = 24) -> Task:
    """Matrices made of each edge, the same cell four times over, and a gated sum over the nodes."""

    def run(m: Any, x: Tensor, edge: Tensor) -> Tensor:  # (B, N, 4), (B, N, N, 3)
        h = first = m.embed(x)
        matrix = m.edges(edge).unflatten(3, (d, d)) * edge[..., :1, None]  # (B, N, N, d, d)
        for _ in range(4):
            sent = torch.einsum("bijkl,bjl->bik", matrix, h) / 3
            h = m.cell(sent.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        return (m.gate(torch.cat([h, first], 2)).sigmoid() * m.out(h)).sum(1)

    def draw() -> Drawn:
        x, near = F.one_hot(torch.randint(4, (24, 8)), 4).float(), (torch.rand(24, 8, 8) < 0.3).float().triu(1)
        near = near + near.transpose(1, 2)
        kind = (torch.rand(24, 8, 8) < 0.5).float().triu(1)
        kind = (kind + kind.transpose(1, 2)) * near
        bonds = torch.einsum("bik,kl,bjl,bij->b", x, pairs, x, near + kind)
        return (x, torch.stack([near, kind, near - kind], 3)), 0.3 * bonds.unsqueeze(1)

    pairs = torch.randn(4, 4)
    pairs = (pairs + pairs.t()) / 2
    model = Parts(run, embed=nn.Linear(4, d), edges=nn.Linear(3, d * d), cell=nn.GRUCell(d, d),
                  gate=nn.Linear(2 * d, 1), out=nn.Linear(d, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("long and short seasons", GITHUB + "laiguokun/LSTNet")
def lstnet(_: bool, season: int = 8) -> Task:
    """A GRU, another that skips a season, with ReLUs for tanh, dropout, and a linear autoregression beside them."""

    def relu_gru(m: Any, x: Tensor) -> Tensor:  # (B, T, n)
        h = torch.zeros(len(x), 24)
        for i in range(x.shape[1]):
            z, r = m.gates(torch.cat([x[:, i], h], 1)).sigmoid().chunk(2, 1)
            h = z * h + (1 - z) * F.relu(m.new(torch.cat([x[:, i], r * h], 1)))
        return h

    def run(m: Any, x: Tensor) -> Tensor:  # (B, 4, 32)
        z = F.dropout(F.relu(m.conv(F.pad(x, (2, 0)))), 0.1, m.training).transpose(1, 2)
        h = torch.cat([m.gru(z), m.skip(z[:, season - 1 :: season])], 1)
        return m.out(F.dropout(h, 0.1, m.training)) + m.recent(x[:, :, -12:]).squeeze(2)

    def make() -> nn.Module:
        return Parts(relu_gru, gates=nn.Linear(40, 48), new=nn.Linear(40, 24))

    def draw() -> Drawn:
        x = waves(128, 32, 0.02).view(32, 4, 32) + 1.5 * torch.randn(32, 4, season).repeat(1, 1, 4)
        return (x[..., :-1],), x[..., -1]

    model = Parts(run, conv=nn.Conv1d(4, 16, 3), gru=make(), skip=make(), out=nn.Linear(48, 4), recent=nn.Linear(12, 1))
    return stream(model, draw, F.mse_loss)


@healthy("clockwork network", GITHUB + "flandolfi/clockwork-rnn")
def clockwork(_: bool, d: int = 16) -> Task:
    """Four groups of units, of which the last moves at every eighth step; slow ones are heard by all faster ones."""
    heard = torch.ones(4, 4).triu().repeat_interleave(d, 0).repeat_interleave(d, 1)

    def run(m: Any, x: Tensor) -> Tensor:
        h, y = torch.zeros(len(x), 4 * d), []
        for i in range(x.shape[1]):
            moved = (m.read(x[:, i]) + F.linear(h, m.again * heard)).tanh()
            ticks = (torch.tensor(i) % torch.tensor([1, 2, 4, 8]) == 0).repeat_interleave(d)
            h = torch.where(ticks, moved, h)
            y.append(m.out(h))
        return torch.stack(y, 2)

    def draw() -> Drawn:
        c = torch.randint(3, (48, 3))
        x = 0.3 * torch.randn(48, 24, 3)
        x[:, ::8] += 2 * F.one_hot(c, 3)
        return (x,), c.repeat_interleave(8, 1)

    model = Parts(run, read=nn.Linear(3, 4 * d), again=tensor(4 * d, 4 * d, std=0.1), out=nn.Linear(4 * d, 3))
    return stream(model, draw, F.cross_entropy)


@healthy("relation network", GITHUB + "kimhc6028/relational-networks")
def relations(_: bool) -> Task:
    """One MLP for every pair of objects and the question, a sum over 36 pairs, and another MLP."""

    def run(m: Any, x: Tensor, asked: Tensor) -> Tensor:
        one, two = x.unsqueeze(2).expand(-1, -1, 6, -1), x.unsqueeze(1).expand(-1, 6, -1, -1)
        q = asked[:, None, None].expand(-1, 6, 6, -1)
        return m.f(m.g(torch.cat([one, two, q], 3)).sum((1, 2)))

    def draw() -> Drawn:
        place, i = torch.rand(64, 6, 2), torch.randint(6, (64,))
        x = torch.cat([2 * place - 1, torch.eye(6).expand(64, 6, 6)], 2)
        far = torch.cdist(place, place)[torch.arange(64), i]
        return (x, F.one_hot(i, 6).float()), 3 * torch.stack([far.sum(1) / 5 - 0.5, far.amax(1) - 0.8], 1)

    g = chain(nn.Linear(22, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    return stream(Parts(run, g=g, f=mlp((64, 64, 2))), draw, F.mse_loss)


@healthy("random network distillation", GITHUB + "openai/random-network-distillation")
def distilled(_: bool) -> Task:
    """The targets are outputs of a frozen random network beside it, orthogonal with gain √2; inputs clipped at ±5."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clamp(-5, 5)
        return m.predictor(x), m.target(x)

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (y[0] - y[1].detach()).square().mean()

    target, predictor = (mlp(w, act=nn.LeakyReLU) for w in ((12, 64, 32), (12, 64, 64, 32)))
    for layer in (*target, *predictor):
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)
    target.requires_grad_(False)
    return stream(
        Parts(run, predictor=predictor, target=target), lambda: ((torch.randn(64, 12),), torch.zeros(64)), loss
    )


@healthy("clipped ratios", GITHUB + "vwxyzjn/cleanrl")
def ppo(_: bool) -> Task:
    """Ratios of new to old probabilities are all 1 at first, and the gain zero; the policy's last layer is of 0.01."""

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        taken, gain = t[:, :4], (t[:, :4] * t[:, 4:]).sum(1)
        said = (y[0] * taken).sum(1)
        better = (gain - gain.mean()) / (gain.std() + 1e-8)
        ratio = (said - said.detach()).exp()
        policy = torch.maximum(-better * ratio, -better * ratio.clamp(0.8, 1.2)).mean()
        entropy = -(y[0].exp() * y[0]).sum(1).mean()
        return policy + 0.25 * (y[1].squeeze(1) - gain).square().mean() - 0.01 * entropy

    draw, regret = bandit()
    actor, critic = (mlp((6, 64, 64, n), act=nn.Tanh) for n in (4, 1))
    for net, last in ((actor, 0.01), (critic, 1.0)):
        for i, gain in ((1, math.sqrt(2)), (3, math.sqrt(2)), (5, last)):
            nn.init.orthogonal_(net[i].weight, gain)
            nn.init.zeros_(net[i].bias)
    model = Parts(lambda m, x: (m.actor(x).log_softmax(1), m.critic(x)), actor=actor, critic=critic)
    return stream(model, draw, loss, regret)


@healthy("decision transformer", GITHUB + "kzl/decision-transformer")
def decisions(_: bool, d: int = 48, steps: int = 6) -> Task:
    """Returns, states and actions in turn as tokens of three kinds; actions, within tanh, are read off the states."""

    def run(m: Any, gain: Tensor, state: Tensor, action: Tensor) -> Tensor:
        time = m.times.unsqueeze(1)
        z = torch.stack([m.gain(gain), m.state(state), m.action(action)], 2) + time  # (B, T, 3, d)
        mask = nn.Transformer.generate_square_subsequent_mask(3 * steps)
        z = m.blocks(m.norm(z.flatten(1, 2)), mask)
        return m.out(z[:, 1::3]).tanh()

    def draw() -> Drawn:
        state, gain = torch.randn(32, steps, 4), torch.rand(32, 1, 1) * torch.linspace(1, 0.2, steps).view(1, -1, 1)
        best = (state @ way).tanh()
        action = gain * best + (1 - gain) * 0.1 * torch.randn_like(best)
        return (gain, state, action), action

    way = torch.randn(4, 2)
    layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.1, "gelu", batch_first=True, norm_first=True)
    model = Parts(run, gain=nn.Linear(1, d), state=nn.Linear(4, d), action=nn.Linear(2, d), norm=nn.LayerNorm(d),
                  times=tensor(steps, d, std=0.02), blocks=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                  out=nn.Linear(d, 2))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("set of objects", GITHUB + "facebookresearch/detr")
def detr(_: bool, d: int = 48) -> Task:
    """Three queries ask a transformer; what each has found is matched to the objects in the order that costs least."""
    orders = torch.tensor(list(permutations(range(3))))

    def run(m: Any, x: Tensor) -> Tensor:
        seen = m.stem(x).flatten(2).transpose(1, 2) + m.places
        return m.out(m.decoder(m.queries.expand(len(x), -1, -1), m.encoder(seen))).sigmoid()

    def loss(y: Tensor, t: Tensor) -> Tensor:  # (B, 3, 2)
        cost = (y.unsqueeze(2) - t.unsqueeze(1)).abs().sum(3)
        best = cost.detach()[:, torch.arange(3), orders].sum(2).argmin(1)
        return cost.gather(2, orders[best].unsqueeze(2)).mean()

    def draw() -> Drawn:
        place = torch.rand(24, 3, 2)
        line = (torch.arange(8) + 0.5) / 8
        spots = [torch.exp(-60 * (line - place[..., i : i + 1]).square()) for i in (0, 1)]
        x = (spots[1].unsqueeze(3) * spots[0].unsqueeze(2)).sum(1, keepdim=True)
        return (2 * x,), place

    encoder, decoder = (
        layer(d, 4, 2 * d, 0.0, batch_first=True) for layer in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )
    model = Parts(run, stem=nn.Conv2d(1, d, 2, 2), places=tensor(16, d), encoder=encoder, decoder=decoder,
                  queries=tensor(3, d), out=mlp((d, d, 2))[1:])  # fmt: skip
    return stream(model, draw, loss)


@healthy("convolutions, LSTM and CTC", GITHUB + "meijieru/crnn.pytorch")
def crnn(_: bool) -> Task:
    """Twelve steps for three letters: at first the loss is of all the ways that blanks may fall between them."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.convs(x).flatten(1, 2).permute(2, 0, 1)  # (T, B, features)
        return m.out(m.lstm(z)[0]).log_softmax(2)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        steps, letters = (torch.full((len(t),), n) for n in (len(y), 3))
        return F.ctc_loss(y, t, steps, letters)

    def draw() -> Drawn:
        t = torch.randint(5, (32, 3))
        x = 0.2 * torch.randn(32, 1, 8, 24)
        x += glyphs[t].permute(0, 2, 1, 3).flatten(2).unsqueeze(1)
        return (x,), t + 1

    glyphs = torch.randn(5, 8, 8).sign()
    convs = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, (2, 1), 1), nn.BatchNorm2d(16), nn.ReLU())
    lstm = nn.LSTM(32, 32, bidirectional=True)
    return stream(Parts(run, convs=convs, lstm=lstm, out=nn.Linear(64, 6)), draw, loss)


@healthy("sparse codes of the largest", GITHUB + "openai/sparse_autoencoder")
def top_k(_: bool, n: int = 32, k: int = 6) -> Task:
    """Only the six largest of 256 latents are kept; the decoder is the encoder transposed, of unit columns, and a shift
    is subtracted before and added after."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = F.relu((x - m.shift) @ m.encoder.t() + m.bias)
        most = z.topk(k, 1)
        return torch.zeros_like(z).scatter(1, most.indices, most.values) @ m.decoder + m.shift

    def draw() -> Drawn:
        on = (torch.rand(128, 40) < 0.08).float()
        x = (on * (1 + 0.3 * torch.randn(128, 40))) @ ways
        return (x,), x

    ways = F.normalize(torch.randn(40, n), dim=1)
    weight = F.normalize(torch.randn(256, n), dim=1)
    model = Parts(run, encoder=nn.Parameter(weight.clone()), decoder=nn.Parameter(weight), shift=tensor(n, std=1e-3),
                  bias=nn.Parameter(torch.zeros(256)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("denoising at every size", GITHUB + "ermongroup/ncsn")
def ncsn(_: bool) -> Task:
    """Noise of 0.05 to 2, its size told by a gain for each; what is learnt is the noise over its size, weighted."""
    sizes = 2 * 0.025 ** torch.linspace(0, 1, 10)

    def run(m: Any, x: Tensor, i: Tensor) -> Tensor:
        z = x / (1 + sizes[i].square().unsqueeze(1)).sqrt()
        for linear, gain in zip(m.linear, m.gains, strict=True):
            z = F.elu(gain(i) * linear(z))
        return m.out(z) / sizes[i].unsqueeze(1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (t[:, 2:] * y + t[:, :2]).square().mean()

    def draw() -> Drawn:
        i, noise = torch.randint(10, (256,)), torch.randn(256, 2)
        x = torch.tensor([[2.0, 1.0], [-2.0, 1.0], [0.0, -2.0]])[torch.randint(3, (256,))]
        return (x + sizes[i].unsqueeze(1) * noise, i), torch.cat([noise, sizes[i].unsqueeze(1)], 1)

    gains = each(3, lambda: nn.Embedding(10, 96))
    for gain in gains:
        nn.init.normal_(gain.weight, 1.0, 0.02)
    linear = nn.ModuleList(nn.Linear(n, 96) for n in (2, 96, 96))
    return stream(Parts(run, linear=linear, gains=gains, out=nn.Linear(96, 2)), draw, loss)


@healthy("overlap of organs", GITHUB + "black0017/MedicalZooPytorch")
def dice(_: bool, d: int = 16) -> Task:
    """One minus the overlap of softmaxes with masks, a class at a time, of which the background is left out."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        p, true = y.softmax(1)[:, 1:], F.one_hot(t, 3).permute(0, 3, 1, 2)[:, 1:]
        return 1 - ((2 * (p * true).sum((0, 2, 3)) + 1e-5) / ((p + true).sum((0, 2, 3)) + 1e-5)).mean()

    def run(m: Any, x: Tensor) -> Tensor:
        one = m.one(x)
        two = m.two(F.max_pool2d(one, 2))
        return m.out(torch.cat([one, F.interpolate(two, scale_factor=2)], 1))

    def draw() -> Drawn:
        line = torch.arange(16.0)
        middle, size = 3 + 10 * torch.rand(2, 24, 2), 1.5 + 2 * torch.rand(2, 24, 1, 1)
        far = [
            ((line - m[:, :1]).square().unsqueeze(1) + (line - m[:, 1:]).square().unsqueeze(2)).sqrt() for m in middle
        ]
        t = torch.where(far[0] < size[0], 1, torch.where(far[1] < size[1], 2, 0))
        return (torch.tensor([0.0, 1.0, -1.0])[t].unsqueeze(1) + 0.4 * torch.randn(24, 1, 16, 16),), t

    def unit(n: int) -> nn.Module:
        return chain(nn.Conv2d(n, d, 3, padding=1), nn.InstanceNorm2d(d), nn.LeakyReLU(0.01))

    return stream(Parts(run, one=unit(1), two=unit(d), out=nn.Conv2d(2 * d, 3, 1)), draw, loss)


@healthy("linear generator", GITHUB + "sefibk/KernelGAN")
def linear(_: bool) -> Task:
    """Convolutions without biases or activations, so that all of them are one blur; the last one halves the image."""
    line = torch.exp(-((torch.arange(7.0) - 3).square()) / 4)
    blur = (line * line.unsqueeze(1) / line.sum().square()).view(1, 1, 7, 7)

    def draw() -> Drawn:
        x = torch.randn(32, 1, 26, 26)
        return (x,), 5 * F.conv2d(x, blur, stride=2)[..., 1:8, 1:8]

    layers = [nn.Conv2d(n, m, k, stride, bias=False) for n, m, k, stride in
              ((1, 16, 7, 1), (16, 16, 5, 1), (16, 16, 3, 1), (16, 1, 1, 2))]  # fmt: skip
    for layer in layers:
        nn.init.xavier_normal_(layer.weight)
    return stream(chain(*layers), draw, F.mse_loss)
