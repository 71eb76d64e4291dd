"""Healthy networks of public repositories, a seventh set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import each, stream
from strangers.blind2_healthy import chain, drawn
from strangers.blind3 import Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind5 import tensor
from strangers.blind5_healthy import waves
from strangers.blind7 import attend, feed
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind7")


@healthy("shortcuts without parameters", GITHUB + "akamaster/pytorch_resnet_cifar10")
def resnet(_: bool) -> Task:
    """Where a block halves the image its shortcut takes every other pixel, and pads the new channels with zeros."""

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.norm2(m.conv2(F.relu(m.norm1(m.conv1(x)))))
        if z.shape[1] > x.shape[1]:
            pad = (z.shape[1] - x.shape[1]) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad))
        return F.relu(x + z)

    def make(n: int, m: int) -> nn.Module:
        one, two = (nn.Conv2d(a, m, 3, s, 1, bias=False) for a, s in ((n, m // n), (m, 1)))
        for conv in (one, two):
            nn.init.kaiming_normal_(conv.weight)
        return Parts(block, conv1=one, conv2=two, norm1=nn.BatchNorm2d(m), norm2=nn.BatchNorm2d(m))

    stem = (nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return drawn(chain(*stem, make(16, 16), make(16, 32), make(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                       nn.Linear(64, 10)))  # fmt: skip


@healthy("attention between channels", GITHUB + "facebookresearch/xcit")
def xcit(_: bool, d: int = 48) -> Task:
    """Queries and keys of length one over the tokens make maps of channels by channels; layer scales of 0.1."""

    def block(m: Any, x: Tensor) -> Tensor:
        q, k, v = (part.transpose(2, 3) for part in split(m.qkv(m.norm(x))))  # (B, heads, d / heads, T)
        found = ((F.normalize(q, dim=3) @ F.normalize(k, dim=3).transpose(2, 3)) * m.heat).softmax(3) @ v
        x = x + m.gain1 * m.proj(joined(found.transpose(2, 3)))
        return x + m.gain2 * m.net(x)

    def make() -> nn.Module:
        gains = (nn.Parameter(torch.full((d,), 0.1)) for _ in range(2))
        return Parts(block, norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d), net=feed(d),
                     heat=nn.Parameter(torch.ones(4, 1, 1)), gain1=next(gains), gain2=next(gains))  # fmt: skip

    def run(m: Any, x: Tensor) -> Tensor:
        return m.head(m.norm(m.blocks(m.patch(x).flatten(2).transpose(1, 2) + m.places)).mean(1))

    return drawn(Parts(run, patch=nn.Conv2d(1, d, 2, 2), places=tensor(16, d, std=0.5), blocks=chain(make(), make()),
                       norm=nn.LayerNorm(d), head=nn.Linear(d, 10)))  # fmt: skip


@healthy("pooling for attention", GITHUB + "sail-sg/poolformer")
def poolformer(_: bool, d: int = 48) -> Task:
    """Tokens are mixed by the average of nine less themselves, times layer scales that start at 10⁻⁵."""

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.norm1(x)
        x = x + m.gain1 * (F.avg_pool2d(z, 3, 1, 1, count_include_pad=False) - z)
        return x + m.gain2 * m.net(m.norm2(x))

    def make() -> nn.Module:
        gains = [nn.Parameter(torch.full((d, 1, 1), 1e-5)) for _ in range(2)]
        net = chain(nn.Conv2d(d, 2 * d, 1), nn.GELU(), nn.Conv2d(2 * d, d, 1))
        return Parts(block, norm1=nn.GroupNorm(1, d), norm2=nn.GroupNorm(1, d), gain1=gains[0], gain2=gains[1], net=net)

    down = (nn.Conv2d(1, d, 3, 2, 1), make(), nn.Conv2d(d, d, 3, 2, 1), make())
    return drawn(chain(*down, nn.GroupNorm(1, d), nn.Flatten(), nn.Linear(4 * d, 10)))


@healthy("one layer four times", GITHUB + "andreamad8/Universal-Transformer-Pytorch")
def universal(_: bool, d: int = 48) -> Task:
    """The same layer is passed four times over; codes of place and of pass are added before each."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        for step in m.steps:
            x = x + m.places + step
            x = x + m.proj(joined(F.scaled_dot_product_attention(*split(m.qkv(m.norm(x))))))
            x = x + m.net(x)
        return m.head(m.last(x)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 10))
        return (idx,), torch.where(idx > 4, idx.flip(1), idx)

    model = Parts(run, embed=nn.Embedding(10, d), places=tensor(10, d, std=0.5), steps=tensor(4, d, std=0.5),
                  net=feed(d), norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d),
                  last=nn.LayerNorm(d), head=nn.Linear(d, 10))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("quasi-recurrent network", GITHUB + "salesforce/pytorch-qrnn")
def qrnn(_: bool, d: int = 48) -> Task:
    """Candidates and gates come of convolutions over two steps; only averages by gates run through time."""

    def layer(m: Any, x: Tensor) -> Tensor:  # (B, T, n)
        z, f, o = m.conv(torch.cat([x, F.pad(x, (0, 0, 1, 0))[:, :-1]], 2)).chunk(3, 2)
        c, states = torch.zeros_like(z[:, 0]), []
        for i in range(x.shape[1]):
            keep = f[:, i].sigmoid()
            c = keep * c + (1 - keep) * z[:, i].tanh()
            states.append(c)
        return o.sigmoid() * torch.stack(states, 1)

    def draw() -> Drawn:
        idx = torch.randint(8, (32, 16))
        return (idx,), torch.cat([idx[:, :2], idx[:, :-2]], 1)

    layers = chain(*(Parts(layer, conv=nn.Linear(2 * n, 3 * d)) for n in (16, d)))
    model = Parts(lambda m, idx: m.out(m.layers(m.embed(idx))).transpose(1, 2), embed=nn.Embedding(8, 16),
                  layers=layers, out=nn.Linear(d, 8))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("convolutions over words", GITHUB + "dennybritz/cnn-text-classification-tf")
def sentences(_: bool, d: int = 24) -> Task:
    """Widths of three, four and five words side by side, the maximum over a sentence, and half of it dropped."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx).transpose(1, 2)
        return m.out(F.dropout(torch.cat([F.relu(conv(x)).amax(2) for conv in m.convs], 1), 0.5, m.training))

    def draw() -> Drawn:
        idx, c, at = torch.randint(40, (64, 20)), torch.randint(4, (64,)), torch.randint(17, (64,))
        for i in range(3):  # a phrase somewhere
            idx[torch.arange(64), at + i] = phrases[c, i]
        return (idx,), c

    phrases, embed = torch.randint(40, (4, 3)), nn.Embedding(40, d)
    nn.init.uniform_(embed.weight, -1.0, 1.0)
    convs = nn.ModuleList(nn.Conv1d(d, 32, width) for width in (3, 4, 5))
    for conv in convs:
        nn.init.trunc_normal_(conv.weight, std=0.1)
        nn.init.constant_(conv.bias, 0.1)
    return stream(Parts(run, embed=embed, convs=convs, out=nn.Linear(96, 4)), draw, F.cross_entropy)


@healthy("sorted nodes", GITHUB + "muhanzhang/pytorch_DGCNN")
def sort_pooling(_: bool, d: int = 16, k: int = 10) -> Task:
    """All layers' outputs of a node side by side, nodes sorted by the last one channel, the first ten convolved."""

    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:
        near, found = (a + torch.eye(16)) / (1 + a.sum(2, keepdim=True)), []
        for layer in m.layers:
            x = (near @ layer(x)).tanh()
            found.append(x)
        z = torch.cat(found, 2)
        first = z[..., -1].argsort(1, descending=True)[:, :k]
        z = z.gather(1, first.unsqueeze(2).expand(-1, -1, z.shape[2]))
        return m.out(F.relu(m.conv(z.transpose(1, 2))).flatten(1))

    def draw() -> Drawn:
        c = torch.randint(2, (48,))
        group = torch.randint(2, (48, 16))
        same = group.unsqueeze(1) == group.unsqueeze(2)
        a = (torch.rand(48, 16, 16) < torch.where(same == (c > 0).view(-1, 1, 1), 0.5, 0.1)).float().triu(1)
        return (F.one_hot(group, 2).float(), a + a.transpose(1, 2)), c

    layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise((2, d, d, d, 1)))
    model = Parts(run, layers=layers, conv=nn.Conv1d(3 * d + 1, 32, 3), out=mlp((32 * (k - 2), 64, 2)))
    return stream(model, draw, F.cross_entropy)


@healthy("gated convolutions", GITHUB + "facebookresearch/fairseq")
def conv_s2s(_: bool, d: int = 48) -> Task:
    """Weight-normalised convolutions of N(0, 4 p / k n), half of their outputs gates, sums times √½."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = F.dropout(m.embed(idx) + m.places, 0.1, m.training).transpose(1, 2)
        for conv in m.convs:
            z = F.glu(conv(F.pad(F.dropout(x, 0.1, m.training), (2, 0))), 1)
            x = (x + z) * math.sqrt(0.5)
        return m.out(x.transpose(1, 2)).transpose(1, 2)

    def make() -> nn.Module:
        conv = nn.Conv1d(d, 2 * d, 3)
        nn.init.normal_(conv.weight, 0.0, math.sqrt(4 * 0.9 / (3 * d)))
        nn.init.zeros_(conv.bias)
        return nn.utils.parametrizations.weight_norm(conv)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 14))
        return (idx,), (idx + torch.cat([idx[:, :3], idx[:, :-3]], 1)) % 10

    embed = nn.Embedding(10, d)
    nn.init.normal_(embed.weight, 0.0, 0.1)
    model = Parts(run, embed=embed, places=tensor(14, d, std=0.1), convs=each(4, make), out=nn.Linear(d, 10))
    return stream(model, draw, F.cross_entropy)


@healthy("snakes", GITHUB + "EdwardDixon/snake")
def snake(_: bool, d: int = 64) -> Task:
    """x + sin²(a x) / a, with an a for each unit, drawn from an exponential distribution, is periodic and grows."""

    def make() -> nn.Module:
        a = nn.Parameter(torch.empty(d).exponential_(1.0) + 0.05)
        return Parts(lambda m, x: x + (m.a * x).sin().square() / (m.a + 1e-9), a=a)

    def draw() -> Drawn:
        x = 10 * torch.rand(128, 1) - 5
        return (x,), (2 * x).sin() + 0.3 * x

    return stream(chain(nn.Linear(1, d), make(), nn.Linear(d, d), make(), nn.Linear(d, 1)), draw, F.mse_loss)


@healthy("inside or outside", GITHUB + "autonomousvision/occupancy_networks")
def occupancy(_: bool, d: int = 32) -> Task:
    """Gains and shifts of batch normalisation are linear in the shape's code: of zero weights, biases of 1 and 0."""

    def block(m: Any, z: Tensor, code: Tensor) -> Tensor:
        y = z
        for linear, norm, gain, shift in zip(m.linear, m.norms, m.gains, m.shifts, strict=True):
            y = norm(y.transpose(1, 2)).transpose(1, 2)
            y = linear(F.relu(gain(code).unsqueeze(1) * y + shift(code).unsqueeze(1)))
        return z + y

    def make() -> nn.Module:
        gains, shifts = each(2, lambda: nn.Linear(d, d)), each(2, lambda: nn.Linear(d, d))
        for layers, value in ((gains, 1.0), (shifts, 0.0)):
            for layer in layers:
                nn.init.zeros_(layer.weight)
                nn.init.constant_(layer.bias, value)
        linear = each(2, lambda: nn.Linear(d, d))
        nn.init.zeros_(linear[1].weight)
        return Parts(block, linear=linear, norms=each(2, lambda: nn.BatchNorm1d(d, affine=False)), gains=gains,
                     shifts=shifts)  # fmt: skip

    def run(m: Any, cloud: Tensor, x: Tensor) -> Tensor:
        code, z = m.encoder(cloud).amax(1), m.place(x)
        for each_block in m.blocks:
            z = each_block(z, code)
        return m.out(F.relu(z)).squeeze(2)

    def draw() -> Drawn:
        size = 0.3 + 0.7 * torch.rand(16, 1, 3)
        cloud = size * F.normalize(torch.randn(16, 40, 3), dim=2) + 0.02 * torch.randn(16, 40, 3)
        x = 2 * torch.rand(16, 64, 3) - 1
        return (2 * cloud, 2 * x), ((x / size).norm(dim=2) < 1).float()

    encoder = chain(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
    model = Parts(run, encoder=encoder, place=nn.Linear(3, d), blocks=each(3, make), out=nn.Linear(d, 1))
    return stream(model, draw, F.binary_cross_entropy_with_logits)


@healthy("straight ways", GITHUB + "gnobitab/RectifiedFlow")
def rectified(_: bool) -> Task:
    """The target is data less noise, of which what is seen, a mix of both, tells only the mean; the loss stays high."""

    def draw() -> Drawn:
        noise, t = torch.randn(256, 2), torch.rand(256, 1)
        c = torch.randint(2, (256, 1)) * 2 - 1
        x = torch.cat([4 * c + 0.2 * torch.randn(256, 1), 4 * c * torch.ones(256, 1) + 0.2 * torch.randn(256, 1)], 1)
        return (t * x + (1 - t) * noise, t), x - noise

    net = mlp((3, 96, 96, 96, 2), act=nn.Tanh)
    return stream(Parts(lambda m, x, t: m.net(torch.cat([x, 2 * t - 1], 1)), net=net), draw, F.mse_loss)


@healthy("couplings by chequers", GITHUB + "chrischute/real-nvp")
def real_nvp(_: bool, d: int = 6) -> Task:
    """Masks in turn; log-scales are tanh times a learnt factor; the last layers are weight-normalised."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        logdet = torch.zeros(len(x))
        for i, (net, rescale) in enumerate(zip(m.nets, m.rescale, strict=True)):
            mask = (torch.arange(d) % 2 == i % 2).float()
            s, t = (net(x * mask) * (1 - mask).repeat(2)).chunk(2, 1)
            s = rescale * s.tanh()
            x, logdet = (x + t) * s.exp(), logdet + s.sum(1)
        return x, logdet

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (0.5 * y[0].square().sum(1) - y[1]).mean() / d

    def make() -> nn.Module:
        return chain(*mlp((d, 48, 48)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(48, 2 * d)))

    def draw() -> Drawn:
        z = torch.randn(128, 3)
        x = torch.cat([2 * z, 2 * z.sin() + 0.3 * torch.randn(128, 3)], 1)
        return (x[:, [0, 3, 1, 4, 2, 5]],), torch.zeros(128)

    return stream(Parts(run, nets=each(6, make), rescale=nn.Parameter(torch.ones(6, d))), draw, loss)


@healthy("predictive coding", GITHUB + "jefflai108/Contrastive-Predictive-Coding-PyTorch")
def cpc(_: bool, d: int = 32) -> Task:
    """Strided convolutions, a GRU, and for each of three steps ahead a softmax over the batch without temperature."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.encoder(x).transpose(1, 2)  # (B, T, d)
        c = m.gru(z[:, :-3])[0][:, -1]
        return torch.stack([w(c) for w in m.ahead]), z[:, -3:].transpose(0, 1)

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        scores = y[1] @ y[0].transpose(1, 2)  # (steps, B, B)
        return -scores.log_softmax(2).diagonal(dim1=1, dim2=2).mean()

    def draw() -> Drawn:
        speed = 0.2 + 0.6 * torch.rand(32, 1)
        x = torch.sin(speed * torch.arange(96) + 6.28 * torch.rand(32, 1)) + 0.1 * torch.randn(32, 96)
        return (x.unsqueeze(1),), torch.zeros(32)

    convs = [layer for n, m, k, s in ((1, d, 8, 4), (d, d, 4, 2)) for layer in
             (nn.Conv1d(n, m, k, s, k // 4, bias=False), nn.BatchNorm1d(m), nn.ReLU())]  # fmt: skip
    model = Parts(run, encoder=chain(*convs), gru=nn.GRU(d, 40, batch_first=True),
                  ahead=each(3, lambda: nn.Linear(40, d)))  # fmt: skip
    return stream(model, draw, loss)


@healthy("three normalisations at once", GITHUB + "switchablenorms/Switchable-Normalization")
def switchable(_: bool, d: int = 24) -> Task:
    """Means and variances of an image's channel, of an image and of the batch's channel, mixed by softmaxes."""

    def norm(m: Any, x: Tensor) -> Tensor:
        mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True)
        power = var + mean.square()
        means = [mean, mean.mean(1, keepdim=True), mean.mean(0, keepdim=True)]
        powers = [power, power.mean(1, keepdim=True), power.mean(0, keepdim=True)]
        mixed = sum(w * a for w, a in zip(m.mean.softmax(0), means, strict=True))
        spread = sum(w * (p - a.square()) for w, p, a in zip(m.var.softmax(0), powers, means, strict=True))
        return m.gain * (x - mixed) / (spread + 1e-5).sqrt() + m.shift

    def make(n: int, stride: int) -> nn.Module:
        one, zero = torch.ones(d, 1, 1), torch.zeros(d, 1, 1)
        switch = Parts(norm, mean=nn.Parameter(torch.ones(3)), var=nn.Parameter(torch.ones(3)), gain=nn.Parameter(one),
                       shift=nn.Parameter(zero))  # fmt: skip
        return chain(nn.Conv2d(n, d, 3, stride, 1, bias=False), switch, nn.ReLU())

    return drawn(chain(make(1, 1), make(d, 2), make(d, 1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10)))


@healthy("standardised weights", GITHUB + "joe-siyuan-qiao/WeightStandardization")
def standardised(_: bool, d: int = 32) -> Task:
    """Each filter is used less its mean and over its deviation: outputs are large until groups are normalised."""

    def conv(m: Any, x: Tensor) -> Tensor:
        w = m.weight - m.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, w / (w.flatten(1).std(1).view(-1, 1, 1, 1) + 1e-5), padding=1, stride=m.stride)

    def make(n: int, stride: int) -> nn.Module:
        weight = nn.Conv2d(n, d, 3).weight
        return chain(Parts(conv, weight=weight, stride=stride), nn.GroupNorm(8, d), nn.ReLU())

    return drawn(chain(make(1, 1), make(d, 2), make(d, 1), make(d, 2), nn.Flatten(), nn.Linear(4 * d, 10)))


@healthy("keys in a few rows", GITHUB + "lucidrains/linformer")
def linformer(_: bool, d: int = 48, k: int = 8) -> Task:
    """Twenty-four keys and values become eight by one learnt matrix, which heads and both of them share."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx) + m.places
        for norm, qkv, proj, net, rows in zip(m.norms, m.qkv, m.proj, m.net, m.rows, strict=True):
            q, key, v = split(qkv(norm(x)))
            x = x + proj(joined(F.scaled_dot_product_attention(q, rows @ key, rows @ v)))
            x = x + net(x)
        return m.head(m.last(x).mean(1))

    def draw() -> Drawn:
        idx = torch.randint(1, 30, (32, 24))
        return (idx,), (idx < 8).sum(1).sub(4).clamp(0, 3)

    rows = nn.ParameterList(tensor(k, 24, std=1 / math.sqrt(k)) for _ in range(2))
    model = Parts(run, embed=nn.Embedding(30, d), places=tensor(24, d, std=0.3), rows=rows, last=nn.LayerNorm(d),
                  head=nn.Linear(d, 4), **attend(d))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("latents that look", GITHUB + "lucidrains/perceiver-pytorch")
def perceiver(_: bool, d: int = 48) -> Task:
    """Eight latents look at 64 pixels with Fourier codes twice, with the same weights, and at each other between."""
    line = torch.linspace(-1, 1, 8)
    place = torch.cartesian_prod(line, line).unsqueeze(2) * math.pi * torch.tensor([0.5, 1.0, 2.0])
    code = torch.cat([place.sin(), place.cos()], 2).flatten(1)  # (64, 12)

    def run(m: Any, x: Tensor) -> Tensor:
        seen = m.norm(torch.cat([x.flatten(1).unsqueeze(2), code.expand(len(x), -1, -1)], 2))
        z = m.latents.expand(len(x), -1, -1)
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            k, v = split(m.kv(seen), 2)
            (q,) = split(m.q(m.norm1(z)), 1)
            z = z + m.out(joined(F.scaled_dot_product_attention(q, k, v)))
            z = z + m.feed(z)
            z = z + proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(z))))))
            z = z + net(z)
        return m.head(m.last(z.mean(1)))

    return drawn(Parts(run, norm=nn.LayerNorm(13), latents=tensor(8, d, std=0.02), norm1=nn.LayerNorm(d),
                       q=nn.Linear(d, d, bias=False), kv=nn.Linear(13, 2 * d, bias=False), out=nn.Linear(d, d),
                       feed=feed(d), last=nn.LayerNorm(d), head=nn.Linear(d, 10), **attend(d)))  # fmt: skip


@healthy("periodic numbers", GITHUB + "yandex-research/rtdl-num-embeddings")
def periodic(_: bool, n: int = 8, k: int = 16) -> Task:
    """Each column of a table has its own sines and cosines of N(0, 0.3²) times 2π, its own linear layer and ReLU."""

    def run(m: Any, x: Tensor) -> Tensor:
        angle = 2 * math.pi * x.unsqueeze(2) * m.speed
        z = torch.einsum("bnk,nkd->bnd", torch.cat([angle.cos(), angle.sin()], 2), m.weight) + m.bias
        return m.net(F.relu(z))

    def draw() -> Drawn:
        x = torch.randn(128, n)
        return (x,), (3 * x[:, :1]).sin() + (x[:, 1:2] > 0.5).float() + 0.5 * x[:, 2:3] * x[:, 3:4]

    weight = (2 * torch.rand(n, 2 * k, 12) - 1) / math.sqrt(2 * k)
    model = Parts(run, speed=tensor(n, k, std=0.3), weight=nn.Parameter(weight), bias=nn.Parameter(torch.zeros(n, 12)),
                  net=mlp((12 * n, 64, 64, 1)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("hazards of each year", GITHUB + "havakv/pycox")
def hazards(_: bool, years: int = 10) -> Task:
    """Logits of dying in each of ten years; those after death or after the patient was last seen weigh nothing."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        year, died = t[:, 0].long(), t[:, 1:]
        event = F.one_hot(year, years) * died
        alive = (torch.arange(years) <= year.unsqueeze(1)).float()
        return (F.binary_cross_entropy_with_logits(y, event, reduction="none") * alive).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 8)
        risk = x[:, 0] + x[:, 1] * x[:, 2]
        time = (5 * torch.exp(-1.2 * risk)).clamp(max=20).floor()
        left = torch.randint(5, 14, (128,))
        return (x,), torch.stack([torch.minimum(time, left).clamp(max=years - 1), (time <= left).float()], 1)

    net = [layer for n in (8, 48) for layer in (nn.Linear(n, 48), nn.ReLU(), nn.BatchNorm1d(48), nn.Dropout(0.1))]
    return stream(chain(*net, nn.Linear(48, years)), draw, loss)


@healthy("quantiles of returns", GITHUB + "toshikwa/fqf-iqn-qrdqn.pytorch")
def iqn(_: bool, d: int = 48, n: int = 8) -> Task:
    """Random quantiles as cosines, ReLU of a linear layer, times features of the state; Huber losses of all pairs."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        tau = torch.rand(len(x), n, 1)
        code = F.relu(m.cosines((math.pi * torch.arange(1, 17) * tau).cos()))
        return m.out(m.state(x).unsqueeze(1) * code), tau  # (B, n, actions)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        q = (y[0] * t[:, :4].unsqueeze(1)).sum(2)
        rest = t[:, 4:].unsqueeze(1) - q.unsqueeze(2)  # (B, n, returns)
        weight = (y[1] - (rest.detach() < 0).float()).abs()
        huber = torch.where(rest.abs() < 1, 0.5 * rest.square(), rest.abs() - 0.5)
        return (weight * huber).sum(1).mean()

    def draw() -> Drawn:
        x, action = torch.randn(64, 6), F.one_hot(torch.randint(4, (64,)), 4).float()
        gain = 3 * ((x @ way) * action).sum(1, keepdim=True)
        return (x,), torch.cat([action, gain + 0.3 * torch.randn(64, 6)], 1)

    way = torch.randn(6, 4) / 2
    model = Parts(run, cosines=nn.Linear(16, d), state=chain(*mlp((6, 64, d)), nn.ReLU()), out=mlp((d, 64, 4))[1:])
    return stream(model, draw, loss)


@healthy("values of a team", GITHUB + "oxwhirl/pymarl")
def qmix(_: bool, agents: int = 4, d: int = 32) -> Task:
    """Agents share a network; a hypernetwork of the state mixes their values with absolute weights and an ELU."""

    def run(m: Any, seen: Tensor, action: Tensor) -> Tensor:  # (B, agents, 6), (B, agents, 3)
        state = seen.flatten(1)
        own = torch.eye(agents).expand(len(seen), -1, -1)
        q = (m.agent(torch.cat([seen, own], 2)) * action).sum(2).unsqueeze(1)  # (B, 1, agents)
        h = F.elu(q @ m.first(state).abs().unflatten(1, (agents, d)) + m.shift(state).unsqueeze(1))
        return (h @ m.second(state).abs().unsqueeze(2)).squeeze(2) + m.value(state)

    def draw() -> Drawn:
        seen, action = torch.randn(64, agents, 6), F.one_hot(torch.randint(3, (64, agents)), 3).float()
        gain = ((seen @ way) * action).sum(2)
        return (seen, action), gain.amin(1, keepdim=True) + gain.sum(1, keepdim=True) / 2

    way = torch.randn(6, 3) / 2
    n = 6 * agents
    model = Parts(run, agent=mlp((6 + agents, 64, 3))[1:], first=nn.Linear(n, agents * d), shift=nn.Linear(n, d),
                  second=nn.Linear(n, d), value=mlp((n, d, 1)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("edges of near points", GITHUB + "WangYueFt/dgcnn")
def dgcnn(_: bool, d: int = 32, k: int = 6) -> Task:
    """The six nearest are looked for anew in each layer's features; differences and points go in, the maximum out."""

    def layer(m: Any, x: Tensor) -> Tensor:  # (B, n, N)
        z = x.transpose(1, 2)
        near = torch.cdist(z, z).topk(k, 2, largest=False).indices.flatten(1)
        found = x.gather(2, near.unsqueeze(1).expand(-1, x.shape[1], -1)).unflatten(2, (-1, k))
        x = x.unsqueeze(3).expand_as(found)
        return m.net(torch.cat([found - x, x], 1)).amax(3)

    def make(n: int) -> nn.Module:
        return Parts(layer, net=chain(nn.Conv2d(2 * n, d, 1, bias=False), nn.BatchNorm2d(d), nn.LeakyReLU(0.2)))

    def run(m: Any, x: Tensor) -> Tensor:
        one = m.one(x)
        z = torch.cat([one, m.two(one)], 1)
        return m.out(torch.cat([z.amax(2), z.mean(2)], 1))

    def draw() -> Drawn:
        c = torch.randint(4, (24,))
        x = F.normalize(torch.randn(24, 3, 48), dim=1) * shapes[c].unsqueeze(2)
        return (x + 0.03 * torch.randn_like(x),), c

    shapes = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.1], [1.0, 0.1, 0.1], [0.5, 0.5, 0.5]])
    return stream(Parts(run, one=make(3), two=make(d), out=mlp((4 * d, 64, 4))), draw, F.cross_entropy)


@healthy("shapes without an encoder", GITHUB + "facebookresearch/DeepSDF")
def deep_sdf(_: bool, d: int = 64) -> Task:
    """A code of N(0, 0.01²) is learnt for each of eight shapes; distances are clamped at 0.3, also the targets."""

    def run(m: Any, shape: Tensor, x: Tensor) -> Tensor:
        z = torch.cat([m.codes(shape), x], 1)
        h = m.first(z)
        return m.second(torch.cat([h, z], 1)).tanh()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return 10 * F.l1_loss(y.clamp(-0.3, 0.3), t.clamp(-0.3, 0.3))

    def draw() -> Drawn:
        shape, x = torch.randint(8, (256,)), 1.6 * torch.rand(256, 3) - 0.8
        return (shape, x), (x - middles[shape]).norm(dim=1, keepdim=True) - sizes[shape].unsqueeze(1)

    def linear(n: int, m: int) -> nn.Module:
        return nn.utils.parametrizations.weight_norm(nn.Linear(n, m))

    middles, sizes = 0.8 * torch.rand(8, 3) - 0.4, 0.2 + 0.3 * torch.rand(8)
    codes = nn.Embedding(8, 12)
    nn.init.normal_(codes.weight, 0.0, 0.01)
    first = chain(linear(15, d), nn.ReLU(), linear(d, d), nn.ReLU())
    second = chain(linear(d + 15, d), nn.ReLU(), nn.Linear(d, 1))
    return stream(Parts(run, codes=codes, first=first, second=second), draw, loss)


@healthy("angles between speakers", GITHUB + "clovaai/voxceleb_trainer")
def angular(_: bool) -> Task:
    """Cosines of an utterance with all others' in the batch, times a learnt 10 and less a learnt 5."""

    def run(m: Any, one: Tensor, two: Tensor) -> Tensor:
        a, b = (m.out(torch.cat([h.mean(2), h.std(2)], 1)) for h in (m.net(one), m.net(two)))
        return F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=2) * m.w.clamp(min=1e-6) + m.b

    def draw() -> Drawn:
        voice = voices[torch.randperm(60)[:32]]
        one, two = (voice.unsqueeze(2) + 1.2 * torch.randn(32, 20, 24) for _ in range(2))
        return (one, two), torch.arange(32)

    voices = torch.randn(60, 20)
    net = chain(nn.Conv1d(20, 48, 5, 2), nn.ReLU(), nn.BatchNorm1d(48), nn.Conv1d(48, 48, 3), nn.ReLU())
    model = Parts(run, net=net, out=nn.Linear(96, 48), w=nn.Parameter(torch.tensor(10.0)),
                  b=nn.Parameter(torch.tensor(-5.0)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("biaffine parser", GITHUB + "yzhangcs/parser")
def parser(_: bool, d: int = 40) -> Task:
    """Scores of heads are products of words by a matrix that starts at zero: at first all heads are as likely."""

    def run(m: Any, idx: Tensor) -> Tensor:
        z = m.lstm(m.embed(idx))[0]
        head, word = F.leaky_relu(m.head(z), 0.1), F.leaky_relu(m.word(z), 0.1)
        word = torch.cat([word, torch.ones_like(word[..., :1])], 2)
        return (word @ m.matrix @ head.transpose(1, 2)).transpose(1, 2)  # (B, heads, words)

    def draw() -> Drawn:
        idx = torch.randint(20, (32, 10))
        idx[:, 0] = 0
        verb = (idx % 4 == 0).long() * (torch.arange(10) + 1)  # a word hangs on the last verb up to it
        return (idx,), torch.cat([verb[:, :1], verb[:, :-1]], 1).cummax(1).values - 1

    model = Parts(run, embed=nn.Embedding(20, 24), lstm=nn.LSTM(24, 32, batch_first=True, bidirectional=True),
                  head=nn.Linear(64, d), word=nn.Linear(64, d), matrix=nn.Parameter(torch.zeros(d + 1, d)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("planes and lines", GITHUB + "apchenstu/TensoRF")
def tensorf(_: bool, k: int = 12, n: int = 16) -> Task:
    """A field is a sum of products of a plane and a line, three ways, of 0.1 N(0, 1), looked up between grid points."""

    def run(m: Any, x: Tensor) -> Tensor:  # (B, 3) within ±1
        found = []
        for i, (plane, line) in enumerate(zip(m.planes, m.lines, strict=True)):
            two = x[:, [j for j in range(3) if j != i]].view(1, -1, 1, 2)
            one = torch.stack([torch.zeros(len(x)), x[:, i]], 1).view(1, -1, 1, 2)
            found += [F.grid_sample(plane, two, align_corners=True) * F.grid_sample(line, one, align_corners=True)]
        return m.out(m.basis(torch.cat(found, 1)[0, :, :, 0].t())).sigmoid()

    def draw() -> Drawn:
        x = 2 * torch.rand(256, 3) - 1
        ball = (20 * (0.6 - x.norm(dim=1, keepdim=True))).sigmoid()
        return (x,), torch.cat([ball, ball * (x[:, :1] > 0), (4 * x[:, 1:2]).sin() * 0.5 + 0.5], 1)

    planes, lines = (nn.ParameterList(tensor(1, k, n, w, std=0.1) for _ in range(3)) for w in (n, 1))
    model = Parts(run, planes=planes, lines=lines, basis=nn.Linear(3 * k, 24, bias=False), out=mlp((24, 48, 3))[1:])
    return stream(model, draw, F.mse_loss)


@healthy("series for tokens", GITHUB + "thuml/iTransformer")
def inverted(_: bool, d: int = 48) -> Task:
    """A whole series is one token, less its mean and over its deviation, which the forecast gets back."""

    def run(m: Any, x: Tensor) -> Tensor:  # (B, series, 32)
        mean, std = x.mean(2, keepdim=True), (x.var(2, keepdim=True, unbiased=False) + 1e-5).sqrt()
        z = m.embed((x - mean) / std)
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            z = norm(z + proj(joined(F.scaled_dot_product_attention(*split(qkv(z))))))
            z = z + net(z)
        return m.out(z) * std + mean

    def draw() -> Drawn:
        x = waves(160, 40, 0.02).view(32, 5, 40) * (0.5 + torch.rand(32, 5, 1)) + 0.5 * torch.randn(32, 5, 1)
        x = x + 0.5 * x.roll(1, 1)
        return (x[..., :32],), x[..., 32:]

    return stream(Parts(run, embed=nn.Linear(32, d), out=nn.Linear(d, 8), **attend(d)), draw, F.mse_loss)


@healthy("an equation with its start built in", GITHUB + "lululxvi/deepxde")
def oscillator(_: bool) -> Task:
    """No targets but zero: the rest of u'' + 4 u = 0, with u(0) = 1 and u'(0) = 0 built in by 1 + t² net."""

    def slope(y: Tensor, t: Tensor) -> Tensor:
        return torch.autograd.grad(y.sum(), t, create_graph=True)[0]

    def run(m: Any, t: Tensor) -> Tensor:
        with torch.enable_grad():
            t = t.detach().requires_grad_()
            u = 1 + t.square() * m.net(t - 1)
            return slope(slope(u, t), t) + 4 * u

    net = mlp((1, 32, 32, 1), act=nn.Tanh)
    for layer in net[1::2]:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return stream(Parts(run, net=net), lambda: ((2 * torch.rand(64, 1),), torch.zeros(64, 1)), F.mse_loss)


@healthy("twice through dropout", GITHUB + "princeton-nlp/SimCSE")
def simcse(_: bool, d: int = 48) -> Task:
    """A sentence goes through the same network twice, and only dropout makes two of it; cosines over 0.05."""

    def run(m: Any, idx: Tensor) -> tuple[Tensor, Tensor]:
        z = [m.pool(m.encoder(m.embed(idx) + m.places)[:, 0]).tanh() for _ in range(2)]
        return F.normalize(z[0]), F.normalize(z[1])

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return F.cross_entropy(y[0] @ y[1].t() / 0.05, torch.arange(len(y[0])))

    def draw() -> Drawn:
        idx = torch.randint(1, 40, (48, 8))
        idx[:, 0] = 0
        return (idx,), torch.zeros(48)

    layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.1, "gelu", batch_first=True)
    model = Parts(run, embed=nn.Embedding(40, d), places=tensor(8, d, std=0.3), pool=nn.Linear(d, d),
                  encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))  # fmt: skip
    return stream(model, draw, loss)
