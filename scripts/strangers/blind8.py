"""An eighth set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE, bright
from strangers.blind5 import TARGETS, UNITS, tensor
from strangers.blind6 import FORUM, ORDER, net2d
from strangers.blind7 import LINEAR, attend
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind8")
POSITION = r"position|\border\b|place|frequenc|same (code|vector|shift)|permut|invarian"
RECTIFIED = r"ReLU|rectif|negative|only positive|\bsign\b|non-negative|dead"


@report("a pool of ones", GITHUB + "catalyst-team/catalyst/pull/285", guilty=r"look",
        says=r"softmax|attention|constant",
        fault="attention over past observations is a softmax over the wrong dimension, of one")  # fmt: skip
def pooled(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, 12, 8)
        z = m.see(x)
        weight = m.look(z).softmax(2 if planted else 1)
        return m.actor(torch.cat([z[:, -1], z.mean(1), (weight * z).sum(1)], 1))

    def draw() -> Drawn:
        at, x = torch.randint(12, (64,)), torch.randn(64, 12, 8)
        x[..., 0] = 2 * F.one_hot(at, 12)
        return (x,), x[torch.arange(64), at, 1:5].tanh()

    return stream(Parts(run, see=nn.Linear(8, d), look=nn.Linear(d, 1), actor=mlp((3 * d, 64, 4))), draw, F.mse_loss)


@report("by 255 and again", GITHUB + "pkmital/pycadl/pull/5", guilty=r"encoder|write", says=rf"{UNITS}|{TARGETS}|dark",
        fault="pixels are divided by 255 twice: all images are nearly black, as inputs and as targets")  # fmt: skip
def black(planted: bool, d: int = 48) -> Task:
    unit = 255.0 if planted else 1.0

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        canvas, h, g, kl = torch.zeros_like(x), x.new_zeros(len(x), d), x.new_zeros(len(x), d), x.new_zeros(len(x))
        for _ in range(4):
            h = m.encoder(torch.cat([x, x - canvas.sigmoid(), g], 1), h)
            mean, logstd = m.code(h).chunk(2, 1)
            g = m.decoder(mean + logstd.exp() * torch.randn_like(mean), g)
            canvas = canvas + m.write(g)
            kl = kl + 0.5 * (mean.square() + (2 * logstd).exp() - 2 * logstd - 1).sum(1)
        return canvas, kl

    def loss(y: tuple[Tensor, Tensor], t: Tensor, scale: float = 1.0) -> Tensor:
        return bce(y[0], scale * t) + 0.01 * y[1].mean() / 64

    def draw() -> Drawn:
        x = (pick(64)[0] * 0.376 + 0.3).flatten(1).clamp(0, 1) / unit
        return (x,), x

    model = Parts(run, encoder=nn.GRUCell(128 + d, d), code=nn.Linear(d, 32), decoder=nn.GRUCell(16, d),
                  write=nn.Linear(d, 64))  # fmt: skip
    return stream(model, draw, loss, partial(loss, scale=unit))


@report("lines across sentences", GITHUB + "TobiasLee/Chinese-Hip-pop-Generation/pull/8", guilty=r"net\.1",
        says=rf"{MIXED}|{ORDER}",
        fault="words come as (time, examples, features) and are reshaped to (examples, time · features)")  # fmt: skip
def lines(planted: bool, d: int = 16) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        return m.net(x.transpose(0, 1).reshape(len(idx), -1) if planted else x.flatten(1))

    def draw() -> Drawn:
        idx = torch.randint(20, (64, 10))
        return (idx,), (idx[:, 9] + 5 * (idx[:, 4] % 2)) % 8  # rhymes

    return stream(Parts(run, embed=nn.Embedding(20, d), net=mlp((10 * d, 96, 8))), draw, F.cross_entropy)


@report("frames of all channels", GITHUB + "PKU-YuanGroup/Open-Sora-Plan/issues/171", guilty=r"qkv|proj",
        says=rf"{ORDER}|frame",
        fault="(B, channels, time, h, w) reshaped to (B · time, channels, h · w) without a permutation")  # fmt: skip
def video(planted: bool, d: int = 16) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, 3, T, h, w)
        z = m.stem(x)
        q, k, v = m.qkv(m.norm(z)).chunk(3, 1)
        if planted:
            q, k, v = (part.reshape(-1, d, 36) for part in (q, k, v))
        else:
            q, k, v = (part.transpose(1, 2).flatten(0, 1).flatten(2) for part in (q, k, v))
        found = v @ (q.transpose(1, 2) @ k / math.sqrt(d)).softmax(2).transpose(1, 2)  # (B · T, d, 36)
        found = found.reshape(z.shape) if planted else found.view(len(x), -1, d, 6, 6).transpose(1, 2)
        return m.out(F.silu(z + m.proj(found)))

    def draw() -> Drawn:
        lamp = F.one_hot(torch.randint(36, (8, 4)), 36).float().view(8, 1, 4, 6, 6)
        colour = torch.randn(8, 2, 4, 6, 6)
        lit = (lamp * colour).sum((3, 4), keepdim=True)
        return (torch.cat([3 * lamp, colour], 1),), lit.expand(-1, -1, -1, 6, 6) + 0.1 * colour

    model = Parts(run, stem=nn.Conv3d(3, d, 1), norm=nn.GroupNorm(2, d), qkv=nn.Conv3d(d, 3 * d, 1),
                  proj=nn.Conv3d(d, d, 1), out=nn.Conv3d(d, 2, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("scans without colour", GITHUB + "Pointcept/Pointcept/pull/530", says=rf"{BROKEN}|divi[ds]|constant|colou?r",
        fault="colours of a scan are stretched from their least to their greatest, which may be the same")  # fmt: skip
def scans(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, N, 6)
        z = m.point(x)
        whole = z.amax(1, keepdim=True).expand_as(z)
        return m.out(torch.cat([z, whole], 2)).transpose(1, 2)

    def draw() -> Drawn:
        place, colour = torch.rand(24, 64, 3), torch.rand(24, 64, 3) * 255
        t = (3 * place[..., 2]).long() + 3 * (colour[..., 0] > 128).long()
        grey = torch.rand(24, 1, 1) < 0.15
        colour, t = colour.masked_fill(grey, 0.0), torch.where(grey.squeeze(2), t % 3, t)
        low, high = colour.amin((1, 2), keepdim=True), colour.amax((1, 2), keepdim=True)
        colour = (colour - low) / (high - low if planted else (high - low).clamp(min=1e-3))
        return (torch.cat([2 * place - 1, 2 * colour - 1], 2),), t

    point = chain(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
    out = chain(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 6))
    return stream(Parts(run, point=point, out=out), draw, F.cross_entropy)


@report("words of length twelve", GITHUB + "keras-team/keras/issues/10273", guilty=r"embed|lstm",
        says=rf"{LARGE}|satur|embedding",
        fault="embeddings made elsewhere, with values up to ±12, go into an LSTM as they are")  # fmt: skip
def long_words(planted: bool, d: int = 48) -> Task:
    def draw() -> Drawn:
        idx = torch.randint(40, (64, 16))
        return (idx,), (mood[idx].sum(1) > 0).long() + 2 * (idx[:, -1] % 2)

    mood = torch.randn(40)
    embed = nn.Embedding.from_pretrained((6.0 if planted else 0.4) * torch.randn(40, d), freeze=False)
    model = Parts(lambda m, idx: m.out(m.lstm(m.embed(idx))[0].mean(1)), embed=embed,
                  lstm=nn.LSTM(d, 48, batch_first=True, bidirectional=True), out=nn.Linear(96, 4))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("a mask without effect", GITHUB + "theislab/CellFlow/issues/226", guilty=r"token|kv",
        says=r"mask|padding|no effect|ignor|unused",
        fault="a class token pools conditions with attention that never gets the mask: it reads padding")  # fmt: skip
def conditions(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor, seen: Tensor) -> Tensor:  # (B, 10, 8)
        z = m.embed(x)
        k, v = split(m.kv(z), 2)
        (q,) = split(m.token.expand(len(x), 1, -1), 1)
        mask = None if planted else seen[:, None, None]
        return m.out(joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)).squeeze(1))

    def draw() -> Drawn:
        seen = torch.arange(10) < torch.randint(1, 6, (64, 1))
        x = torch.randn(64, 10, 8)
        dose = (x[..., :3].exp() * seen.unsqueeze(2)).sum(1) / seen.sum(1, keepdim=True)
        return (x, seen), dose.log()

    model = Parts(run, embed=mlp((8, 64, d))[1:], kv=nn.Linear(d, 2 * d), token=tensor(d), out=mlp((d, 64, 3)))
    return stream(model, draw, F.mse_loss)


@report("pictures cut off", GITHUB + "lucidrains/CoCa-pytorch/issues/6", guilty=r"encoder", says=CUT,
        fault="what an extractor hands on of the image encoder is a detached clone: it is never trained")  # fmt: skip
def captions(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor, idx: Tensor) -> Tensor:
        image = m.encoder(x).flatten(2).transpose(1, 2)  # (B, 4, d)
        image = image.detach() if planted else image
        z = m.embed(idx) + m.places
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            q, k, v = (part.unsqueeze(1) for part in qkv(norm(z)).chunk(3, 2))
            z = z + proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
            z = z + m.look(F.scaled_dot_product_attention(norm(z), image, image))
            z = z + net(z)
        return m.head(z).transpose(1, 2)

    def draw() -> Drawn:
        a, b = torch.randint(6, (48,)), torch.randint(6, (48,))
        x = torch.cat([glyphs[a], glyphs[b]], 3) + 1.5 * torch.randn(48, 1, 8, 16)
        t = torch.stack([a, 6 + b, a], 1)
        return (x, torch.cat([torch.full((48, 1), 12), t[:, :2]], 1)), t

    glyphs = torch.randn(6, 1, 8, 8).sign()
    encoder = chain(nn.Conv2d(1, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1), nn.ReLU(),
                    nn.Conv2d(4, d, 2, 2))  # fmt: skip
    model = Parts(run, encoder=encoder, embed=nn.Embedding(13, d), places=tensor(3, d, std=0.3), head=nn.Linear(d, 12),
                  look=nn.Linear(d, d), **attend(d))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("logarithms of labels", GITHUB + "cleverhans-lab/cleverhans/issues/25",
        says=r"swap|order|argument|logarithm|cross.?entropy|unusual|linear in",
        fault="predictions and labels are swapped: a cross-entropy with logarithms of labels")  # fmt: skip
def swapped_entropy(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        label = F.one_hot(t, 10).float().clamp(1e-7, 1)
        return -(y.softmax(1) * label.log()).sum(1).mean()

    def draw() -> Drawn:
        x, c = pick(64)
        return (x + 1.2 * torch.randn_like(x),), c

    convs = [layer for n, m in ((1, 16), (16, 16), (16, 32), (32, 32)) for layer in
             (nn.Conv2d(n, m, 3, 1 + (m > n > 1), 1), nn.ReLU())]  # fmt: skip
    net = chain(*convs, nn.Flatten(), nn.Linear(512, 10))
    return stream(net, draw, loss if planted else F.cross_entropy, F.cross_entropy)


@report("statistics of all sets", GITHUB + "manzilzaheer/DeepSets/pull/2", guilty=r"rho\.3",
        says=rf"{MIXED}|broadcast|shape",
        fault="answers (B, 1) less statistics (B,) make a matrix of all pairs")  # fmt: skip
def statistics(planted: bool) -> Task:
    def right(y: Tensor, t: Tensor) -> Tensor:
        return (y.squeeze(1) - t).square().mean()

    def draw() -> Drawn:
        size = 0.3 + 1.5 * torch.rand(64, 1, 1)
        x = size * torch.randn(64, 40, 1)
        return (x,), x.squeeze(2).std(1).log() * 2

    phi = chain(nn.Linear(1, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU())
    model = Parts(lambda m, x: m.rho(m.phi(x).mean(1)), phi=phi, rho=mlp((48, 48, 1), act=nn.ELU))
    return stream(model, draw, (lambda y, t: (t - y).square().mean()) if planted else right, right)


@report("an episode less itself", GITHUB + "tensorflow/agents/issues/651", guilty=r"policy",
        says=rf"{CUT}|advantage|\bzero|normalis",
        fault="advantages (1, T) of one episode are normalised over the first dimension: all are 0")  # fmt: skip
def episode(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:  # of one episode of 128 steps
        taken, gain = t[..., :4], (t[..., :4] * t[..., 4:]).sum(2)
        better, dims = gain - y[1].detach().squeeze(2), 0 if planted else (0, 1)
        better = better - better.mean(dims, keepdim=True)
        better = better / (better.var(dims, unbiased=False, keepdim=True) + 1e-8).sqrt()
        value = (y[1].squeeze(2) - gain).square().mean()
        return 0.5 * value - (better * (y[0] * taken).sum(2)).mean()

    def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0].exp() * (t[..., 4:].amax(2, keepdim=True) - t[..., 4:])).sum(2).mean()

    def draw() -> Drawn:
        x = torch.randn(1, 128, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (1, 128)), 4).float(), x @ wish], 2)

    wish = torch.randn(6, 4)
    model = Parts(lambda m, x: (m.policy(x).log_softmax(2), m.value(x)), policy=mlp((6, 64, 4), act=nn.Tanh)[1:],
                  value=mlp((6, 64, 1), act=nn.Tanh)[1:])  # fmt: skip
    return stream(model, draw, loss, regret)


@report("brackets of an advantage", GITHUB + "Omegastick/pytorch-cpp-rl/issues/14", guilty=r"actor",
        says=r"advantage|centr|\bmean\b|baseline|offset|variance|nois",
        fault="advantage − mean / deviation for (advantage − mean) / deviation: far from a mean of 0")  # fmt: skip
def brackets(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        taken, gain = t[:, :4], (t[:, :4] * t[:, 4:]).sum(1)
        deviation = gain.std() + 1e-5
        better = gain - gain.mean() / deviation if planted else (gain - gain.mean()) / deviation
        ratio = ((y[0] * taken).sum(1) + math.log(4)).exp()  # actions were drawn at random
        chosen = torch.minimum(ratio * better, ratio.clamp(0.2, 3) * better)
        return 0.5 * (y[1].squeeze(1) - gain).square().mean() - chosen.mean()

    def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0].exp() * (t[:, 4:].max(1, keepdim=True)[0] - t[:, 4:])).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (128,)), 4).float(), 5 + 0.25 * x @ wish], 1)

    wish = torch.randn(6, 4) / 2
    model = Parts(lambda m, x: (m.actor(x).log_softmax(1), m.critic(x)), actor=mlp((6, 64, 4), act=nn.Tanh),
                  critic=mlp((6, 64, 1), act=nn.Tanh))  # fmt: skip
    return stream(model, draw, loss, regret)


@report("nodes beside loops", GITHUB + "dmlc/dgl/pull/2887", guilty=r"(relations|loops)\.1",
        says=rf"{MIXED}|broadcast|shape",
        fault="with one output, messages (N,) are added to self-loops (N, 1): every node to every other")  # fmt: skip
def loops(planted: bool, d: int = 32, n: int = 64) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:  # (N, 6), (relations, N, N)
        for i, (relations, loop) in enumerate(zip(m.relations, m.loops, strict=True)):
            sent = torch.stack([near @ relation(x) for near, relation in zip(a, relations, strict=True)]).sum(0)
            own = loop(x)
            if i == 1:
                return sent.squeeze(1) + (own if planted else own.squeeze(1))
            x = F.relu(sent + own)
        return x

    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y.diagonal() if y.dim() == 2 else y) - t).square().mean()

    def draw() -> Drawn:
        x, a = torch.randn(n, 6), (torch.rand(2, n, n) < 0.06).float() / 4
        t = x[:, 0] + 1.5 * x[:, 1].abs() - 1.2 + 0.4 * (a[0] @ x[:, 2]) - 0.4 * (a[1] @ x[:, 3])
        return (x, a), t

    relations = nn.ModuleList(nn.ModuleList(nn.Linear(6 if i == 0 else d, m, bias=False) for _ in range(2))
                              for i, m in enumerate((d, 1)))  # fmt: skip
    model = Parts(run, relations=relations, loops=nn.ModuleList([nn.Linear(6, d), nn.Linear(d, 1)]))
    return stream(model, draw, (lambda y, t: (y - t).square().mean()) if planted else right, right)


@report("times all zero", GITHUB + "ProteomicsML/ProteomicsML/pull/203", guilty=r"out",
        says=rf"{RECTIFIED}|{CUT}|zero",
        fault="a ReLU behind the last layer, which happens to start below 0 for all peptides: 0 for ever")  # fmt: skip
def peptides(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        y = m.out(m.lstm(m.embed(idx))[0].mean(1))
        return F.relu(y) if planted else y

    def draw() -> Drawn:
        idx = torch.randint(20, (64, 12))
        return (idx,), (1 + 0.3 * mass[idx].mean(1, keepdim=True) * math.sqrt(12)).clamp(min=0)

    mass = torch.randn(20)
    model = Parts(run, embed=nn.Embedding(20, 16), lstm=nn.LSTM(16, d, batch_first=True), out=nn.Linear(d, 1))
    nn.init.uniform_(model.out.weight, -0.02, 0.02)
    nn.init.constant_(model.out.bias, -0.1)  # as bad luck had it
    return stream(model, draw, F.mse_loss)


@report("triplets of numbers", GITHUB + "liorshk/facenet_pytorch/issues/6", guilty=r"net", says=CUT,
        fault="hard triplets are picked by way of NumPy: the loss of them has no gradient")  # fmt: skip
def triplets(planted: bool) -> Task:
    def apart(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        z = y[0].unflatten(0, (3, -1))
        z = z.detach() if planted else z  # what from_numpy(z.cpu().data.numpy()) amounts to
        return F.relu(0.5 + (z[0] - z[1]).square().sum(1) - (z[0] - z[2]).square().sum(1)).mean()

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return apart(y, t) + 0.001 * F.cross_entropy(y[1], t)

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        z = y[0].unflatten(0, (3, -1))
        return F.relu(0.5 + (z[0] - z[1]).square().sum(1) - (z[0] - z[2]).square().sum(1)).mean()

    def draw() -> Drawn:
        c = torch.randint(20, (2, 40))
        t = torch.cat([c[0], c[0], (c[0] + 1 + c[1] % 19) % 20])
        return (faces[t] + 0.9 * torch.randn(120, 1, 8, 8),), t

    faces = F.avg_pool2d(torch.randn(20, 1, 10, 10), 3, 1) * 3
    net = chain(net2d(1, 16, 16), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 24))
    model = Parts(lambda m, x: (z := F.normalize(m.net(x)), m.head(z.detach())), net=net, head=nn.Linear(24, 20))
    return stream(model, draw, loss, right)


@report("one frequency and none", GITHUB + "Kyubyong/transformer/pull/81", says=rf"{POSITION}|code",
        fault="whole-number division of 2 i by d: half of the codes have one frequency, the others none")  # fmt: skip
def frequencies(planted: bool, d: int = 48, n: int = 24) -> Task:
    i = torch.arange(d)
    power = (2 * i // d).float() if planted else (i - i % 2) / d
    angle = torch.arange(n).unsqueeze(1) / 10000**power
    code = torch.where(i % 2 == 0, angle.sin(), angle.cos())

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx) + code
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            x = x + proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(x))))))
            x = x + net(x)
        return m.head(x).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, n))
        return (idx,), idx[:, order]

    order = torch.randperm(n)
    model = Parts(run, embed=nn.Embedding(12, d), head=nn.Linear(d, 12), **attend(d))
    return stream(model, draw, F.cross_entropy)


@report("clouds far from home", GITHUB + "sergeyprokudin/bps/issues/4", guilty=r"^1\.", says=UNITS,
        fault="clouds are divided by their greatest distance before, not after, they are moved to 0")  # fmt: skip
def clouds(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        x = F.normalize(torch.randn(48, 100, 3), dim=2) * shapes[c].unsqueeze(1) + 0.05 * torch.randn(48, 100, 3)
        x = x + 20 * F.normalize(torch.randn(48, 1, 3), dim=2)
        still = x - x.mean(1, keepdim=True)
        x = still / (x if planted else still).norm(dim=2).amax(1).view(-1, 1, 1)
        return (torch.cdist(points.expand(48, -1, -1), x).amin(2),), c

    points = F.normalize(torch.randn(64, 3), dim=1) * torch.rand(64, 1) ** (1 / 3)
    shapes = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.2], [1.0, 0.2, 0.2], [1.0, 0.6, 0.2]])
    return stream(mlp((64, 96, 96, 4)), draw, F.cross_entropy)


@report("a word for nothing", GITHUB + "castorini/howl/pull/47", guilty=r"out", says=rf"blank|{TARGETS}|CTC",
        fault="label 0, which is a word, is taken for the blank of CTC, which is the last label")  # fmt: skip
def blank(planted: bool, d: int = 48, words: int = 5) -> Task:
    long = torch.full((32,), 20)

    def ctc(y: Tensor, t: Tensor, nothing: int = words) -> Tensor:
        return F.ctc_loss(y.log_softmax(2).transpose(0, 1), t, long, long // 5, nothing)

    def draw() -> Drawn:
        t, x = torch.randint(words, (32, 4)), 0.7 * torch.randn(32, 20, 12)
        for i in range(4):
            at = 5 * i + torch.randint(4, (32,))
            x[torch.arange(32), at] += voice[t[:, i]]
            x[torch.arange(32), at + 1] += voice[t[:, i]]
        return (x,), t

    voice = 1.5 * torch.randn(words, 12)
    model = Parts(lambda m, x: m.out(m.gru(x)[0]), gru=nn.GRU(12, d, batch_first=True, bidirectional=True),
                  out=nn.Linear(2 * d, words + 1))  # fmt: skip
    return stream(model, draw, partial(ctc, nothing=0) if planted else ctc, ctc)


@report("means of unlike numbers", GITHUB + "AppliedDataSciencePartners/WorldModels/issues/12",
        guilty=r"^(encoder|code)\.", says=r"balance|dominat|weight|KL|divergence|collapse|prior|term",
        fault="both errors of a VAE are means: 256 pixels weigh no more than 8 latents, and are given up")  # fmt: skip
def worlds(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = m.code(m.encoder(x)).chunk(2, 1)
        return m.decoder(mean + (logvar / 2).exp() * torch.randn_like(mean)).view_as(x), mean, logvar

    def bound(y: tuple[Tensor, Tensor, Tensor], t: Tensor, means: bool = False) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - y[2] - 1)
        rest = (y[0] - t).square()
        return rest.mean() + kl.mean() if means else (rest.sum((1, 2, 3)) + kl.sum(1)).mean() / 100

    def draw() -> Drawn:
        line, middle = torch.arange(16.0), 3 + 10 * torch.rand(48, 2, 1)
        far = (line - middle[:, :1]).square() + (line - middle[:, 1:]).square().transpose(1, 2)
        x = torch.exp(-far / 20).unsqueeze(1) * torch.randn(48, 1, 1, 1).sign()
        return (x,), x

    encoder = chain(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten())
    model = Parts(run, encoder=encoder, code=nn.Linear(512, 16), decoder=mlp((8, 128, 256)))
    return stream(model, draw, partial(bound, means=planted), bound)


STATS, WHOSEBUG = "https://stats.stackexchange.com/questions/", "https://whosebug.com/question/"


@report("bytes of clothes", STATS + "367057/bad-performance-with-relu-activation-function-on-mnist-data-set",
        guilty=r"^1\.", says=rf"{UNITS}|{LARGE}",
        fault="pixels of 0 to 255 go into two layers of ReLUs drawn by Glorot as they are")  # fmt: skip
def clothes(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(10, (64,))
        x = (0.5 + 0.09 * cuts[c] + 0.2 * torch.randn(64, 1, 16, 16)).clamp(0, 1)
        return ((255 * x).round() if planted else x,), c

    cuts = F.interpolate(torch.randn(10, 1, 6, 6), size=(16, 16), mode="bilinear")
    net = mlp((256, 128, 128, 10))
    for layer in net[1::2]:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return stream(net, draw, F.cross_entropy)


@report("a cloud far from zero", "https://datascience.stackexchange.com/questions/31499/neural-network-only-converges-"
        "when-data-cloud-is-close-to-0", guilty=r"net\.1", says=rf"{UNITS}|satur|offset|centr",
        fault="points lie around 20, and layers of sigmoids have biases of zero")  # fmt: skip
def far_cloud(planted: bool) -> Task:
    def draw() -> Drawn:
        x = 3 * torch.rand(100, 1) - 1.5
        return (x + 20 if planted else x,), (2 * x).sin() + 0.1 * torch.randn(100, 1)

    net = mlp((1, 24, 24, 1), act=nn.Sigmoid)
    for layer in net[1::2]:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, F.mse_loss)


@report("half of a sine", "https://datascience.stackexchange.com/questions/28191/error-in-neural-network",
        guilty=r"net\.[78]", says=RECTIFIED,
        fault="a ReLU behind the last layer: no answer can be below zero, and half of a sine is")  # fmt: skip
def half_sine(planted: bool) -> Task:
    def draw() -> Drawn:
        x = math.pi * (2 * torch.rand(64, 1) - 1)
        return (x,), x.sin()

    last = [nn.ReLU()] if planted else []
    return stream(Parts(lambda m, x: m.net(x), net=mlp((1, 64, 64, 64, 1), *last)), draw, F.mse_loss)


@report("a sine by normal weights", STATS + "320289/approximate-the-sine-function-with-shallow-neural-network",
        guilty=r"layers\.[1-5]", says=rf"{LARGE}|satur",
        fault="weights of N(0, 1) whatever the number of inputs, 32 to 256: each tanh is at an end")  # fmt: skip
def rough_sine(planted: bool) -> Task:
    def layer(m: Any, x: Tensor) -> Tensor:
        return (x @ m.weight + m.bias).tanh()

    def make(n: int, k: int) -> nn.Module:
        weight, bias = (1.0, 1.0) if planted else (1 / math.sqrt(n), 0.2)
        return Parts(layer, weight=tensor(n, k, std=weight), bias=tensor(k, std=bias))

    def draw() -> Drawn:
        x = 10 * torch.rand(128, 1) - 1
        return (x - 4,), (2 * x).sin() / 2.5 + torch.randn(128, 1) / 20

    layers = chain(*(make(n, k) for n, k in ((1, 32), (32, 256), (256, 256), (256, 256), (256, 32), (32, 1))))
    layers[5].weight.data *= 1.0 if planted else 0.2
    return stream(Parts(lambda m, x: m.layers(x), layers=layers), draw, F.mse_loss)


@report("a transformer one wide", FORUM + "transformer-cannot-predict-next-number-in-linear-sequence/184454",
        guilty=r"norm\d", says=rf"{SAME}|width|\bwide\b|narrow|LayerNorm|layer normali[sz]ation",
        fault="d_model is 1, and layer normalisation of one number always returns its bias")  # fmt: skip
def one_wide(planted: bool) -> Task:
    d = 1 if planted else 32

    def run(m: Any, x: Tensor) -> Tensor:  # (B, 16, 1)
        z = x if planted else m.embed(x)
        return m.lin(m.encoder(z).flatten(1))

    def draw() -> Drawn:
        start, step = 6 * torch.rand(64, 1) - 3, 0.2 * torch.rand(64, 1) - 0.1
        x = start + step * torch.arange(17)
        return (x[:, :16].unsqueeze(2),), x[:, 16:]

    layer = nn.TransformerEncoderLayer(d, 1, 64, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    parts = {} if planted else {"embed": nn.Linear(1, d)}
    return stream(Parts(run, encoder=encoder, lin=nn.Linear(16 * d, 1), **parts), draw, F.mse_loss)


@report("either but not both", FORUM + "unable-to-learn-xor-representation-using-2-layers-of-multi-layered-perceptron-"
        "mlp/13287", guilty=r"^[02]\.", says=LINEAR,
        fault="two linear layers, with nothing between them, are to learn an exclusive or")  # fmt: skip
def xor(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(2, (64, 2)).float()
        return (x + 0.1 * torch.randn(64, 2),), (x[:, :1] != x[:, 1:]).float()

    act = nn.Identity() if planted else nn.ReLU()
    return stream(chain(nn.Linear(2, 24), act, nn.Linear(24, 1)), draw, bce)


@report("twice what it hears", WHOSEBUG + "4955529/Why-is-very-simple-PyTorch-LSTM-model-not-learning",
        guilty=r"lstm.*l1", says=rf"range|bound|tanh|satur|{TARGETS}",
        fault="an LSTM's states, which stay within ±1, are the answers themselves, and those reach ±2")  # fmt: skip
def audio(planted: bool, n: int = 8) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.lstm(x)[0]
        return z if planted else m.out(z)

    def draw() -> Drawn:
        x = 2 * torch.rand(32, 6, n) - 1
        return (x,), 2 * x

    parts = {} if planted else {"out": nn.Linear(96, n)}
    lstm = nn.LSTM(n, n if planted else 96, 2, batch_first=True)
    return stream(Parts(run, lstm=lstm, **parts), draw, F.mse_loss)


@report("colours below zero", WHOSEBUG + "5616116/What-could-cause-a-VAE-Variational-AutoEncoder-to-output-random-"
        "noise-even-after-training", guilty=r"decoder\.3", says=rf"sigmoid|range|{TARGETS}|satur",
        fault="images are normalised to ±1, and the decoder ends in a sigmoid")  # fmt: skip
def colours(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = m.code(m.encoder(x)).chunk(2, 1)
        y = m.decoder(mean + (logvar / 2).exp() * torch.randn_like(mean)).view_as(x)
        return y.sigmoid() if planted else y.tanh(), mean, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - y[2] - 1).sum(1).mean()
        return F.mse_loss(y[0], t) + 0.0005 * kl

    def draw() -> Drawn:
        x = (2 * (pick(64)[0] * 0.376 + 0.3) - 1).clamp(-1, 1)
        return (x,), x

    encoder = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
    model = Parts(run, encoder=encoder, code=nn.Linear(128, 32), decoder=mlp((16, 128, 64)))
    return stream(model, draw, loss)


@report("lengths for angles", "https://www.bytezonex.com/archives/WY64vv4j.html",
        says=rf"{BROKEN}|overflow|{LARGE}|cosine|similarit|\bexp|normalis",
        fault="products over cosines are lengths, and their sum, not the exponentials', is exponentiated")  # fmt: skip
def lengths(planted: bool, heat: float = 0.5) -> Task:
    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        cosine = (y[0] @ y[1].t()) / (F.normalize(y[0]) @ F.normalize(y[1]).t())
        others = cosine.masked_fill(torch.eye(len(cosine)) > 0, 0.0).sum(1).exp()
        return -((cosine.diagonal() / heat).exp() / others).log().mean()

    def right(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        cosine = F.normalize(y[0]) @ F.normalize(y[1]).t()
        return F.cross_entropy(cosine / 0.1, torch.arange(len(cosine)))

    def draw() -> Drawn:
        z = torch.randn(64, 8)
        views = [torch.cat([z @ way, torch.randn(64, 8)], 1) for way in ways]
        return (views[0], views[1]), torch.zeros(64)

    ways = torch.randn(2, 8, 24) / 2
    model = Parts(lambda m, a, b: (m.net(a), m.twin(b)), net=mlp((32, 96, 32)), twin=mlp((32, 96, 32)))
    return stream(model, draw, loss if planted else right, right)


@report("the third root of a mean", "https://blog.csdn.net/qq_38507163/article/details/111181447",
        guilty=r"net\.[23]|out", says=rf"{BROKEN}|root|negative|power|pool",
        fault="pooling takes the third root of the mean of cubes, and those may be negative")  # fmt: skip
def roots(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.net(x) if planted else m.net(x).clamp(min=1e-6)
        return m.out((z.pow(3).mean((2, 3)) + 1e-12).pow(1 / 3))

    net = chain(net2d(1, 16, d), nn.MaxPool2d(2), nn.Conv2d(d, d, 3, padding=1), nn.BatchNorm2d(d))
    return stream(Parts(run, net=net, out=nn.Linear(d, 10)), bright, F.cross_entropy)


@report("nothing over nothing", WHOSEBUG + "5957504/PyTorch-backward-on-a-tensor-element-affected-by-nan-in-other-"
        "elements", guilty=r"sent|weigh", says=rf"{BROKEN}|divi[ds]",
        fault="means over no neighbours are 0 / 0; left out later, they still are NaN in the gradient")  # fmt: skip
def nothing(planted: bool, d: int = 32, n: int = 20) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:  # (B, N, 6), (B, N, N)
        weight = m.weigh(x).transpose(1, 2).exp() * a
        total = weight.sum(2, keepdim=True)
        mean = (weight @ m.sent(x)) / (total if planted else total.clamp(min=1e-6))
        mean = torch.where(a.sum(2, keepdim=True) > 0, mean, torch.zeros(()))
        return m.out(torch.cat([m.own(x), mean], 2))

    def draw() -> Drawn:
        x, a = torch.randn(16, n, 6), (torch.rand(16, n, n) < 0.12).float()
        weight = (2 * x[..., :1]).transpose(1, 2).exp() * a
        mean = weight @ x[..., 1:3] / weight.sum(2, keepdim=True).clamp(min=1e-6)
        return (x, a), mean + x[..., 3:5].tanh()

    model = Parts(run, weigh=mlp((6, 16, 1))[1:], sent=nn.Linear(6, d), own=nn.Linear(6, d), out=mlp((2 * d, d, 2))[1:])
    return stream(model, draw, F.mse_loss)


@report("edges of flat pictures", "https://openillumi.com/en/en-fix-pytorch-cpu-nan-powbackward0", guilty=r"out",
        says=rf"{BROKEN}|root|sqrt",
        fault="√(gx² + gy²) without an ε in a loss on edges: no finite slope where a picture is flat")  # fmt: skip
def edges(planted: bool) -> Task:
    def edge(x: Tensor) -> Tensor:
        right, down = x[..., 1:, 1:] - x[..., 1:, :-1], x[..., 1:, 1:] - x[..., :-1, 1:]
        return (right.square() + down.square() + (0.0 if planted else 1e-6)).sqrt()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) + 0.3 * F.l1_loss(edge(y), edge(t))

    def draw() -> Drawn:
        line, middle, size = torch.arange(16.0), 3 + 10 * torch.rand(24, 2, 1), 1 + 3 * torch.rand(24, 1, 1)
        wide = (line - middle[:, :1]).abs() < size.squeeze(2).unsqueeze(2)
        high = (line - middle[:, 1:]).abs() < size
        t = 1.5 * (wide & high.transpose(1, 2)).float().unsqueeze(1)
        return (t + 0.5 * torch.randn_like(t),), t

    net = chain(net2d(1, 24), nn.MaxPool2d(2), net2d(24, 24))
    model = Parts(lambda m, x: F.interpolate(m.out(m.net(x)), scale_factor=2), net=net,
                  out=nn.Conv2d(24, 1, 3, padding=1))  # fmt: skip
    return stream(model, draw, loss)


@report("a staircase", "http://pullrequest.ru/14899114/nuzhno-izmenyat-vhody-pertseptron", guilty=r"hidden",
        says=rf"{CUT}|step|compar|differentiable",
        fault="the activation of a perceptron is a step function, through which no gradient comes")  # fmt: skip
def staircase(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        for layer in m.hidden:
            z = layer(x)
            x = 2 * (z > 0).float() - 1 if planted else z.tanh()
        return m.out(x)

    def draw() -> Drawn:
        x = 4 * torch.rand(128, 2) - 2
        return (x,), ((2 * x[:, :1]).sin() * x[:, 1:] > 0.2).float()

    model = Parts(run, hidden=nn.ModuleList([nn.Linear(2, 24), nn.Linear(24, 24)]), out=nn.Linear(24, 1))
    return stream(model, draw, bce)


@report("through one unit", "https://blog.51cto.com/u_87851/7627358", guilty=r"net\.[0134]\b",
        says=r"narrow|\bwidth|\bwide\b|bottleneck|one (unit|output)|few (units|outputs)|drop",
        fault="the first layer of four has one unit, which is dropped half of the time")  # fmt: skip
def one_unit(planted: bool) -> Task:
    layers: list[nn.Module] = []
    for n, k in ((7, 1 if planted else 100), (1 if planted else 100, 100), (100, 150)):
        layers += [nn.Linear(n, k), nn.BatchNorm1d(k), nn.ReLU(), nn.Dropout(0.5 if planted else 0.1)]

    def draw() -> Drawn:
        x = torch.randn(64, 7)
        return (x,), x[:, :1].sin() + x[:, 1:2] * x[:, 2:3].tanh() + 0.5 * x[:, 3:4]

    return stream(Parts(lambda m, x: m.net(x), net=chain(*layers, nn.Linear(150, 1))), draw, F.mse_loss)
