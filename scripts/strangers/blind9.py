"""A ninth set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import bce, each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE, bright
from strangers.blind5 import SMALL, TARGETS, UNITS, tensor
from strangers.blind6 import IDLE, ORDER, net2d
from strangers.blind7 import LINEAR, attend, feed
from strangers.blind8 import POSITION
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind9")


@report("a shortcut to itself", GITHUB + "werner-duvaud/muzero-general/issues/89", guilty=r"tower",
        says=r"residual|skip|shortcut|identity|depth|vanish",
        fault="residual blocks end in x += x: the branch is doubled, and its input is lost")  # fmt: skip
def tower(planted: bool, d: int = 16) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        z = m.bn2(m.conv2(F.relu(m.bn1(m.conv1(x)))))
        return F.relu(z + (z if planted else x))

    def make() -> nn.Module:
        return Parts(block, conv1=nn.Conv2d(d, d, 3, 1, 1, bias=False), bn1=nn.BatchNorm2d(d),
                     conv2=nn.Conv2d(d, d, 3, 1, 1, bias=False), bn2=nn.BatchNorm2d(d))  # fmt: skip

    def draw() -> Drawn:  # a state of six planes, and one of four moves
        x, move = torch.randn(32, 6, 6, 6), torch.randint(4, (32,))
        far = torch.where(move % 2 > 0, 1, -1)
        t = torch.stack([state.roll(int(far[i]), 1 + int(move[i]) // 2) for i, state in enumerate(x)])
        return (torch.cat([x, F.one_hot(move, 4).float()[..., None, None].expand(-1, -1, 6, 6)], 1),), t

    model = Parts(lambda m, x: m.out(m.tower(m.stem(x))), stem=net2d(10, d), tower=chain(*(make() for _ in range(6))),
                  out=nn.Conv2d(d, 6, 3, padding=1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report(
    "the same input twice",
    GITHUB + "shaohua0116/Multiview2Novelview/issues/11",
    guilty=r"blocks\.\d\.conv1",
    says=IDLE,
    fault="the second convolution of a residual block reads the block's input, not the first's output",
)
def twice(planted: bool, d: int = 16) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        z = F.leaky_relu(m.conv1(x), 0.2)
        return F.leaky_relu(x + m.conv2(x if planted else z), 0.2)

    def draw() -> Drawn:
        x = (torch.rand(16, 1, 16, 16) < 0.015).float()
        return (4 * x,), 2 * F.max_pool2d(x, 11, 1, 5) - 1

    blocks = (Parts(block, conv1=nn.Conv2d(d, d, 3, 1, 1), conv2=nn.Conv2d(d, d, 3, 1, 1)) for _ in range(2))
    model = Parts(lambda m, x: m.out(m.blocks(m.stem(x))), stem=net2d(1, d), blocks=chain(*blocks),
                  out=nn.Conv2d(d, 1, 3, 1, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("copies after pooling", GITHUB + "meetps/pytorch-semseg/issues/1", guilty=r"up[12]",
        says=r"resolution|pool|skip|detail",
        fault="a U-Net copies features over to its decoder after they were pooled, not before")  # fmt: skip
def copies(planted: bool, d: int = 12) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        large = partial(F.interpolate, scale_factor=2)
        fine = m.down1(x)
        half = F.max_pool2d(fine, 2)
        middle = m.down2(half)
        small = F.max_pool2d(middle, 2)
        z = m.up2(torch.cat([large(m.low(small)), large(small) if planted else middle], 1))
        return m.out(m.up1(torch.cat([large(z), large(half) if planted else fine], 1)))

    def draw() -> Drawn:
        x, side = torch.randn(16, 1, 16, 16), F.interpolate(torch.randn(16, 1, 4, 4).sign(), scale_factor=4)
        return (torch.cat([x, side + 0.5 * torch.randn_like(x)], 1),), (x * side > 0).float()

    model = Parts(run, down1=net2d(2, d), down2=net2d(d, 2 * d), low=net2d(2 * d, 2 * d), up2=net2d(4 * d, d),
                  up1=net2d(2 * d, 2 * d), out=nn.Conv2d(2 * d, 1, 1))  # fmt: skip
    return stream(model, draw, bce)


@report("a head without activation", GITHUB + "Nota-NetsPresso/netspresso-trainer/issues/320", guilty=r"head\.\d",
        says=LINEAR, fault="there is no activation between the linear layers of a classifier's head")  # fmt: skip
def head(planted: bool, d: int = 16) -> Task:
    def draw() -> Drawn:
        there = torch.randint(2, (64, 2))
        x = 0.3 * torch.randn(64, 1, 12, 12)
        for i in range(64):
            for j in range(2):
                row, column = torch.randint(9, (2,))
                x[i, :, row : row + 4, column : column + 4] += there[i, j] * marks[j]
        return (x,), there[:, 0] ^ there[:, 1]

    marks = 1.5 * torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1]]).unsqueeze(2).expand(2, 4, 4)
    backbone = chain(
        nn.Conv2d(1, d, 4), nn.BatchNorm2d(d), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(d)
    )
    act = nn.Identity() if planted else nn.ReLU()
    model = Parts(lambda m, x: m.head(m.backbone(x)), backbone=backbone,
                  head=chain(nn.Linear(d, 48), act, nn.Linear(48, 2)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("places of examples", GITHUB + "cmu-l3/anlp-fall2025-code/issues/1", guilty=r"places",
        says=rf"{POSITION}|{MIXED}",
        fault="positions are counted over the examples: all tokens of a sequence have the same")  # fmt: skip
def examples(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        where = torch.arange(len(idx)).unsqueeze(1) if planted else torch.arange(idx.shape[1]).unsqueeze(0)
        x = m.embed(idx) + m.places(where)
        x = x + m.proj(joined(F.scaled_dot_product_attention(*split(m.qkv(m.norm(x))), is_causal=True)))
        return m.head(x + m.net(x)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 16))
        return (idx,), rules[torch.arange(16) % 4, idx]

    rules = torch.stack([torch.randperm(12) for _ in range(4)])
    model = Parts(run, embed=nn.Embedding(12, d), places=nn.Embedding(32, d), norm=nn.LayerNorm(d),
                  qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d), net=feed(d), head=nn.Linear(d, 12))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("kernels of a batch", GITHUB + "xmu-xiaoma666/External-Attention-pytorch/issues/18", guilty=r"squeeze|fcs",
        says=rf"softmax|{MIXED}",
        fault="weights of kernels go through a softmax over the examples, not over the kernels")  # fmt: skip
def kernels(planted: bool, d: int = 16) -> Task:
    def block(m: Any, z: Tensor) -> Tensor:
        found = torch.stack([F.relu(conv(z)) for conv in m.convs])  # (kernels, B, d, h, w)
        s = F.relu(m.squeeze(found.sum(0).mean((2, 3))))
        weight = torch.stack([fc(s) for fc in m.fcs]).softmax(1 if planted else 0)
        return (weight[..., None, None] * found).sum(0)

    def make() -> nn.Module:
        convs = nn.ModuleList(nn.Conv2d(d, d, k, padding=k // 2) for k in (1, 3, 5))
        return Parts(block, convs=convs, squeeze=nn.Linear(d, 8), fcs=each(3, lambda: nn.Linear(8, d)))

    stem = chain(nn.Conv2d(1, d, 3, 2, 1), nn.ReLU())
    model = Parts(lambda m, x: m.out(m.blocks(m.stem(x)).flatten(1)), stem=stem, blocks=chain(make(), make(), make()),
                  out=nn.Linear(16 * d, 10))  # fmt: skip
    return stream(model, bright, F.cross_entropy)


@report("maps over channels", GITHUB + "gjylt/DoubleAttentionNet/issues/3", guilty=r"convb",
        says=r"softmax|attention|gather",
        fault="maps that gather features from all places go through a softmax over channels, not places")  # fmt: skip
def double(planted: bool, d: int = 24, n: int = 8) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, 5, 6, 6)
        z = m.stem(x)
        a, b, v = m.conva(z).flatten(2), m.convb(z).flatten(2), m.convv(z).flatten(2)
        gathered = a @ b.softmax(1 if planted else 2).transpose(1, 2)  # (B, d, n)
        return m.out(z + m.proj((gathered @ v.softmax(1)).view_as(z)))

    def draw() -> Drawn:
        lamp = (torch.rand(24, 1, 6, 6) < torch.rand(24, 1, 1, 1) ** 2).float()
        x = torch.randn(24, 4, 6, 6) + torch.randn(24, 4, 1, 1) * lamp
        there = (x * lamp).sum((2, 3), keepdim=True) / lamp.sum((2, 3), keepdim=True).clamp(min=1)
        return (torch.cat([3 * lamp, x], 1),), there + 0.2 * x

    convs = {"conva": nn.Conv2d(d, d, 1), "convb": nn.Conv2d(d, n, 1), "convv": nn.Conv2d(d, n, 1)}
    stem = chain(nn.Conv2d(5, d, 1), nn.ReLU(), nn.Conv2d(d, d, 1))
    return stream(Parts(run, stem=stem, **convs, proj=nn.Conv2d(d, d, 1), out=nn.Conv2d(d, 4, 1)), draw, F.mse_loss)


@report("features for pixels", GITHUB + "fawazsammani/knowing-when-to-look-adaptive-attention/issues/6",
        guilty=r"encoder\.2|key", says=ORDER,
        fault="features (B, channels, h, w) are viewed as (B, h · w, channels) without a permutation")  # fmt: skip
def pixels(planted: bool, d: int = 24) -> Task:
    def run(m: Any, x: Tensor, idx: Tensor) -> Tensor:
        z = m.encoder(x)
        z = z.reshape(len(x), 16, d) if planted else z.permute(0, 2, 3, 1).flatten(1, 2)
        h = m.lstm(m.embed(idx))[0]
        weight = (m.look(h) @ m.key(z).transpose(1, 2) / math.sqrt(d)).softmax(2)
        return m.out(torch.cat([h, weight @ z], 2)).transpose(1, 2)

    def draw() -> Drawn:  # words ask for colours, and get what has them
        kind, place = torch.randint(6, (48, 4)), torch.rand(48, 16).argsort(1)[:, :4]
        x = torch.zeros(48, 16, 10)
        x.scatter_(
            1,
            place.unsqueeze(2).expand(-1, -1, 10),
            2 * torch.cat([F.one_hot(kind, 6), F.one_hot(torch.arange(4), 4).expand(48, -1, -1)], 2).float(),
        )
        ask = torch.randint(4, (48, 3))
        return (x.view(48, 4, 4, 10).permute(0, 3, 1, 2) + 0.1 * torch.randn(48, 10, 4, 4), ask), kind.gather(1, ask)

    model = Parts(run, encoder=chain(nn.Conv2d(10, d, 1), nn.ReLU(), nn.Conv2d(d, d, 1)), embed=nn.Embedding(4, d),
                  lstm=nn.LSTM(d, d, batch_first=True), look=nn.Linear(d, d), key=nn.Linear(d, d),
                  out=nn.Linear(2 * d, 6))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("classes into places", GITHUB + "ehoogeboom/multinomial_diffusion/issues/1", guilty=r"embed|stem", says=ORDER,
        fault="embeddings (B, h, w, d) of a map of classes are reshaped to (B, d, h, w)")  # fmt: skip
def multinomial(planted: bool, d: int = 16, k: int = 5) -> Task:
    def run(m: Any, c: Tensor, step: Tensor) -> Tensor:
        x = m.embed(c)  # (B, h, w, d)
        x = x.transpose(1, 2).reshape(len(c), d, 12, 12) if planted else x.permute(0, 3, 1, 2)
        return m.out(m.net(F.relu(m.stem(x)) + m.time(step)[:, :, None, None]))

    def draw() -> Drawn:
        c = torch.randint(k, (16, 3, 3)).repeat_interleave(4, 1).repeat_interleave(4, 2)
        step = 0.6 * torch.rand(16, 1)
        lost = torch.rand(16, 12, 12) < step.unsqueeze(2)
        return (torch.where(lost, torch.randint(k, c.shape), c), 4 * step - 1), c

    model = Parts(run, embed=nn.Embedding(k, d), stem=nn.Conv2d(d, 32, 3, padding=1), net=net2d(32, 32, 32),
                  time=nn.Linear(1, 32), out=nn.Conv2d(32, k, 1))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("scores as they are", GITHUB + "PAIR-code/tiny-transformers/issues/71", guilty=r"qkv",
        says=rf"softmax|attention|satur|scal|{LARGE}",
        fault="attention's scores are not divided by the root of the width of a head, 128")  # fmt: skip
def unscaled(planted: bool, d: int = 128) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.qkv(m.norm(m.inward(x))).chunk(3, 2)
        return m.out(F.scaled_dot_product_attention(q, k, v, scale=1.0 if planted else None))

    def draw() -> Drawn:
        x = torch.randn(24, 12, 8)
        weight = (x[..., :4] @ x[..., :4].transpose(1, 2) / 2).softmax(2)
        return (x,), 2 * weight @ x[..., 4:]

    model = Parts(run, inward=nn.Linear(8, d), norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), out=nn.Linear(d, 4))
    nn.init.normal_(model.qkv.weight, std=1 / math.sqrt(d))
    return stream(model, draw, F.mse_loss)


@report("atoms of other molecules", GITHUB + "leffff/graphormer-pyg/issues/14", guilty=r"qkv|proj",
        says=rf"{MIXED}|other graphs|softmax|mask",
        fault="the softmax of attention is over the nodes of all graphs of a batch")  # fmt: skip
def molecules(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor, graph: Tensor) -> Tensor:  # (N, 6), (N,)
        z = m.inward(x)
        own = None if planted else graph.unsqueeze(1) == graph
        z = z + m.proj(F.scaled_dot_product_attention(*m.qkv(m.norm(z)).chunk(3, 1), attn_mask=own))
        return m.out(z + m.net(z))

    def draw() -> Drawn:
        graph = torch.arange(24).repeat_interleave(torch.randint(4, 9, (24,)))
        own = (graph.unsqueeze(1) == graph).float()
        x = torch.randn(len(graph), 6) + torch.randn(24, 6)[graph]
        mean = own @ x / own.sum(1, keepdim=True)
        return (x, graph), mean[:, :3] + 0.3 * x[:, 3:].tanh()

    model = Parts(run, inward=nn.Linear(6, d), norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d),
                  net=feed(d), out=nn.Linear(d, 3))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("shares of the giver", GITHUB + "pyg-team/pytorch_geometric/issues/224", guilty=r"source|target",
        says=r"softmax|attention|neighbo|sum",
        fault="attention is normalised over all edges from a node, not over all edges to it")  # fmt: skip
def giver(planted: bool, d: int = 32, n: int = 16) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:  # (B, N, 6), (B, targets, sources)
        z = m.lin(x)
        score = F.leaky_relu(m.target(z) + m.source(z).transpose(1, 2), 0.2)
        weight = score.masked_fill(a == 0, -1e9).softmax(1 if planted else 2) * a
        return m.out(F.elu(weight @ z))

    def draw() -> Drawn:
        x, a = torch.randn(16, n, 6), ((torch.rand(16, n, n) < 0.3) | (torch.eye(n) > 0)).float()
        weight = (3 * x[..., :1]).transpose(1, 2).masked_fill(a == 0, -1e9).softmax(2)
        return (x, a), weight @ x[..., 1:4]

    model = Parts(run, lin=nn.Linear(6, d), source=nn.Linear(d, 1), target=nn.Linear(d, 1),
                  out=chain(nn.Linear(d, d), nn.ELU(), nn.Linear(d, 3)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("sums over neighbours", GITHUB + "sufeidechabei/graphnets_gcn/issues/1", guilty=r"layers",
        says=rf"{LARGE}|degree|normalis|neighbo",
        fault="a graph convolution adds up all neighbours: the adjacency is not divided by degrees")  # fmt: skip
def neighbours(planted: bool, d: int = 32, n: int = 40) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:
        if not planted:
            root = a.sum(2, keepdim=True).rsqrt()
            a = root * a * root.transpose(1, 2)
        for layer in m.layers[:-1]:
            x = F.relu(a @ layer(x))
        return (a @ m.layers[-1](x)).transpose(1, 2)

    def draw() -> Drawn:
        kind = torch.randint(4, (8, n))
        near = torch.where(kind.unsqueeze(2) == kind.unsqueeze(1), 0.8, 0.04)
        a = (torch.rand(8, n, n) < near).triu(1).float()
        x = torch.randn(8, n, 12)
        x[..., :4] += F.one_hot(kind, 4)
        return (x, a + a.transpose(1, 2) + torch.eye(n)), kind

    model = Parts(run, layers=nn.ModuleList([nn.Linear(12, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 4)]))
    return stream(model, draw, F.cross_entropy)


@report("pools of far pixels", GITHUB + "HIPS/autograd/pull/245", guilty=r"conv2|fc",
        says=rf"{ORDER}|pool|neighbo|far|scrambl",
        fault="for pooling, rows are split into (2, h / 2), not (h / 2, 2): what is far apart is pooled")  # fmt: skip
def pools(planted: bool, d: int = 12) -> Task:
    def pool(x: Tensor) -> Tensor:
        h, w = x.shape[2] // 2, x.shape[3] // 2
        x = x.reshape(len(x), -1, 2, h, 2, w) if planted else x.reshape(len(x), -1, h, 2, w, 2).transpose(3, 4)
        return x.amax((2, 4)) if planted else x.amax((4, 5))

    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(pool(m.conv2(pool(m.conv1(x).tanh())).tanh()).flatten(1))

    def draw() -> Drawn:
        x, c = pick(128)
        x = x.view(4, 32, 1, 8, 8)
        return (torch.cat([torch.cat([x[0], x[1]], 3), torch.cat([x[2], x[3]], 3)], 2),), c[:32]

    conv = {"conv1": nn.Conv2d(1, d, 3, padding=1), "conv2": nn.Conv2d(d, 2 * d, 3, padding=1)}
    return stream(Parts(run, **conv, fc=nn.Linear(32 * d, 10)), draw, F.cross_entropy)


@report("a speaker nobody hears", GITHUB + "coqui-ai/TTS/issues/2348", guilty=r"speaker|decoder",
        says=rf"{CUT}|no_grad|\bterm\b|constant",
        fault="in a loss on the speaker's voice, spectra are taken without gradients: it teaches nothing")  # fmt: skip
def speaker(planted: bool, d: int = 64) -> Task:
    def run(m: Any, idx: Tensor, voice: Tensor) -> Tensor:
        return m.decoder(m.lstm(m.embed(idx) + m.speaker(voice).unsqueeze(1))[0])  # (B, T, 16)

    def hear(y: Tensor) -> Tensor:
        with torch.set_grad_enabled(not planted and torch.is_grad_enabled()):
            spectrum = torch.stack([y.mean(1), y.square().mean(1)], 2).flatten(1)
        return F.normalize((spectrum @ ear).tanh() @ mouth, dim=1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return 0.1 * F.l1_loss(y.diff(dim=1), t.diff(dim=1)) + 1 - (hear(y) * hear(t)).sum(1).mean()

    def draw() -> Drawn:
        idx, voice = torch.randint(12, (32, 10)), torch.randn(32, 4)
        return (idx, voice), sounds[idx] + (voice @ throat).unsqueeze(1)

    ear, mouth, sounds, throat = torch.randn(32, 24) / 4, torch.randn(24, 8), torch.randn(12, 16), torch.randn(4, 16)
    model = Parts(run, embed=nn.Embedding(12, d), speaker=nn.Linear(4, d), lstm=nn.LSTM(d, d, batch_first=True),
                  decoder=nn.Linear(d, 16))  # fmt: skip
    return stream(model, draw, loss)


@report("two sigmoids of a click", GITHUB + "yudi-mars/daisyRec/pull/15", guilty=r"gmf|mlp\.3",
        says=r"sigmoid|probabilit|logit|range|bound",
        fault="predictions of a recommender go through a sigmoid before a loss that has its own")  # fmt: skip
def daisy(planted: bool, d: int = 16, n: int = 40) -> Task:
    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        u, v = m.user(user), m.item(item)
        y = (m.gmf(u * v) + m.mlp(torch.cat([u, v], 1))).squeeze(1)
        return y.sigmoid() if planted else y

    def draw() -> Drawn:
        user, item = torch.randint(n, (256,)), torch.randint(n, (256,))
        return (user, item), ((tastes[user] * kinds[item]).sum(1) > 0).float()

    tastes, kinds = torch.randn(n, 3), torch.randn(n, 3)
    model = Parts(run, user=nn.Embedding(n, d), item=nn.Embedding(n, d), gmf=nn.Linear(d, 1), mlp=mlp((2 * d, 64, 1)))
    return stream(model, draw, bce)


@report("all but one are zero", GITHUB + "PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/issues/32",
        says=r"targets?\b.*(zero|sparse|constant)|zeros?\b.*target|action|mask",
        fault="targets of actions that were not taken are zeros, and they count in the loss")  # fmt: skip
def untaken(planted: bool) -> Task:
    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t[:, 1]) * t[:, 0]).square().sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        taken = F.one_hot(torch.randint(4, (64,)), 4).float()
        return (x,), torch.stack([taken, taken * ((x @ way).tanh() + 1.5)], 1)

    way = torch.randn(4, 4) / 2
    return stream(mlp((4, 64, 64, 4)), draw, (lambda y, t: F.mse_loss(y, t[:, 1])) if planted else right, right)


@report("one over the batch", GITHUB + "allenai/deep_qa/pull/152", guilty=r"look|value",
        says=rf"{MIXED}|{SMALL}|normali|sum",
        fault="weights of attention are divided by their sum over the whole batch, not over one text")  # fmt: skip
def one_over(planted: bool, d: int = 32) -> Task:
    def run(m: Any, idx: Tensor, ask: Tensor) -> Tensor:
        h = m.gru(m.embed(idx))[0]
        weight = (h @ m.look(m.query(ask)).unsqueeze(2)).squeeze(2).exp()
        weight = weight / (weight.sum() if planted else weight.sum(1, keepdim=True))
        return m.out((weight.unsqueeze(1) @ m.value(h)).squeeze(1).tanh())

    def draw() -> Drawn:
        place, idx = torch.randint(14, (64, 1)), torch.randint(10, 20, (64, 16))
        ask, reply = torch.randint(10, (64, 1)), torch.randint(20, 26, (64, 1))
        idx = idx.scatter(1, place, ask).scatter(1, place + 1, reply)
        return (idx, ask.squeeze(1)), reply.squeeze(1) - 20

    model = Parts(run, embed=nn.Embedding(26, d), gru=nn.GRU(d, d, batch_first=True), query=nn.Embedding(10, d),
                  look=nn.Linear(d, d), value=nn.Linear(d, d), out=nn.Linear(d, 6))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("a song without onsets", GITHUB + "york135/CTC_CE_for_AST/issues/3", says=rf"{BROKEN}|divi[ds]|empty|\bzero\b",
        fault="the loss at onsets is divided by how many there are, and a sample may have none")  # fmt: skip
def onsets(planted: bool, d: int = 24) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        each_frame = bce(y, t, reduction="none")
        rest, count = (each_frame * (1 - t)).sum(1) / (1 - t).sum(1), t.sum(1)
        return (rest + (each_frame * t).sum(1) / (count if planted else count + 1e-6)).mean()

    def draw() -> Drawn:
        t = (torch.rand(16, 40) < 0.12).float()
        t[torch.rand(16) < 0.15] = 0.0
        sound = (t.unsqueeze(2) * tone).transpose(1, 2)
        sound = sound + 0.6 * F.pad(sound, (1, 0))[..., :-1] + 0.4 * torch.randn(16, 12, 40)
        return (sound,), t

    tone = torch.randn(12)
    net = chain(nn.Conv1d(12, d, 5, padding=2), nn.BatchNorm1d(d), nn.ReLU(), nn.Conv1d(d, d, 5, padding=2),
                nn.BatchNorm1d(d), nn.ReLU(), nn.Conv1d(d, 1, 1), nn.Flatten())  # fmt: skip
    return stream(net, draw, loss)


@report("boxes of negative size", GITHUB + "tianzhi0549/FCOS/issues/25", guilty=r"boxes",
        says=rf"{BROKEN}|logarithm|negative|positive|\bexp",
        fault="distances to the sides of a box are raw outputs; a loss takes the logarithm of overlaps")  # fmt: skip
def boxes(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:  # distances left, top, right, bottom
        area, real = (y[:, 0] + y[:, 2]) * (y[:, 1] + y[:, 3]), (t[:, 0] + t[:, 2]) * (t[:, 1] + t[:, 3])
        least = torch.minimum(y, t)
        common = (least[:, 0] + least[:, 2]) * (least[:, 1] + least[:, 3])
        return -((common + 1e-6) / (area + real - common + 1e-6)).log().mean()

    def draw() -> Drawn:
        line, t = torch.arange(12.0) - 5.5, 1 + 4 * torch.rand(32, 4)
        wide = (line > -t[:, :1]) & (line < t[:, 2:3])
        high = (line > -t[:, 1:2]) & (line < t[:, 3:])
        x = (high.unsqueeze(2) & wide.unsqueeze(1)).float().unsqueeze(1)
        return (2 * x - 1 + 0.3 * torch.randn_like(x),), t

    net = chain(net2d(1, 16), nn.MaxPool2d(2), net2d(16, 16), nn.Flatten(), nn.Linear(576, 64), nn.ReLU())
    model = Parts(
        lambda m, x: m.boxes(m.net(x)) if planted else m.boxes(m.net(x)).exp(), net=net, boxes=nn.Linear(64, 4)
    )
    nn.init.normal_(model.boxes.weight, std=0.1)
    nn.init.zeros_(model.boxes.bias)
    return stream(model, draw, loss)


@report("alone in its class", GITHUB + "HobbitLong/SupContrast/pull/142", says=rf"{BROKEN}|divi[ds]|empty|\bzero\b",
        fault="the mean over examples of the same class is 0 / 0 where there is no other")  # fmt: skip
def alone(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        z = F.normalize(y, dim=1)
        other = 1 - torch.eye(len(z))
        same = (t.unsqueeze(1) == t).float() * other
        scores = z @ z.t() / 0.2
        scores = scores - scores.detach().amax(1, keepdim=True)
        part = scores - (scores.exp() * other).sum(1, keepdim=True).log()
        count = same.sum(1) if planted else same.sum(1).clamp(min=1)
        return -((same * part).sum(1) / count).mean()

    def draw() -> Drawn:
        c = torch.randint(70, (96,))
        return (centres[c] + 0.4 * torch.randn(96, 24),), c

    centres = torch.randn(70, 24)
    return stream(mlp((24, 96, 32)), draw, loss)


@report("a critic that pleases", GITHUB + "SwarmRL/SwarmRL/pull/99", guilty=r"critic", says=r"critic|detach|advantage",
        fault="the advantage in the actor's loss is not detached, and so it trains the critic as well")  # fmt: skip
def pleases(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        gain = (t[:, :4] * t[:, 4:]).sum(1)
        better = gain - y[1].squeeze(1)
        return ((y[0] * t[:, :4]).sum(1) * -(better if planted else better.detach())).mean() + 0.5 * F.smooth_l1_loss(
            y[1].squeeze(1), gain)  # fmt: skip

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        best = t[:, 4:].amax(1, keepdim=True)
        return (y[0].exp() * (best - t[:, 4:])).sum(1).mean() + F.smooth_l1_loss(y[1].squeeze(1), t[:, 4:].mean(1))

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (128,)), 4).float(), (x @ way) + 2], 1)

    way = torch.randn(6, 4) / 2
    model = Parts(lambda m, x: (m.actor(x).log_softmax(1), m.critic(x)), actor=mlp((6, 64, 4), act=nn.Tanh),
                  critic=mlp((6, 64, 1), act=nn.Tanh))  # fmt: skip
    return stream(model, draw, loss, right)


@report("a language drawn at random", GITHUB + "pytorch-tpu/transformers/pull/26",
        guilty=r"embed|places|qkv|proj|net|head", says=rf"{LARGE}|satur|initiali",
        fault="all weights of a language model are drawn from N(0, 1), whatever their fan-in")  # fmt: skip
def language(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx) + m.places(torch.arange(idx.shape[1]))
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            x = x + proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(x))), is_causal=True)))
            x = x + net(x)
        return m.head(x).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(16, (24, 2))
        for _ in range(15):
            idx = torch.cat([idx, rule[idx[:, -1], idx[:, -2] % 2].unsqueeze(1)], 1)
        return (idx[:, :-1],), idx[:, 1:]

    rule = torch.randint(16, (16, 2))
    model = Parts(run, embed=nn.Embedding(16, d), places=nn.Embedding(16, d), head=nn.Linear(d, 16), **attend(d))
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=1.0 if planted else 0.1)
    return stream(model, draw, F.cross_entropy)


@report("eighty decibels below", GITHUB + "keunwoochoi/kapre/issues/36", guilty=r"norm|net\.0",
        says=rf"{UNITS}|{SAME}|floor|clip|clamp|variance",
        fault="samples of sound come far too small: nearly all of the spectrum is at its floor of -80 dB")  # fmt: skip
def decibels(planted: bool, n: int = 32) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, 8 n) samples
        power = torch.fft.rfft(x.unfold(1, n, n // 2) * torch.hann_window(n)).abs().square()
        return m.net(m.norm((10 * power.clamp(min=1e-8).log10()).unsqueeze(1)))

    def draw() -> Drawn:
        c, time = torch.randint(4, (48,)), torch.arange(8 * n) / n
        pitch = 3 + 3 * torch.rand(48, 1) + 0.5 * time * torch.tensor([-0.6, 0.0, 0.6, 1.2])[c].unsqueeze(1)
        x = torch.sin(2 * math.pi * time * pitch) * (0.1 + 0.4 * torch.rand(48, 1)) + 0.02 * torch.randn(48, 8 * n)
        return (x / 32768 if planted else x,), c

    net = chain(net2d(1, 12), nn.MaxPool2d((1, 2)), net2d(12, 24), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(672, 4))
    return stream(Parts(run, norm=nn.BatchNorm2d(1), net=net), draw, F.cross_entropy)


@report("beats of a heart", "https://openillumi.com/en/en-pytorch-performance-fix-standardization", guilty=r"linear\.",
        says=rf"{UNITS}|satur|offset|centr",
        fault="rates of a heart, some 75 ± 12, go into a layer of sigmoids as they are")  # fmt: skip
def heart(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(100, 2)
        return (75 + 12 * x if planted else x,), (x.norm(dim=1, keepdim=True) > 1.2).float()

    parts = {"linear": nn.Linear(2, 64), "linear2": nn.Linear(64, 1)}
    model = Parts(lambda m, x: m.linear2(m.linear(x).sigmoid()).sigmoid(), **parts)
    return stream(model, draw, F.binary_cross_entropy)


@report("cubes of a thousand", "https://qa.1r1g.com/sf/ask/4433342651", guilty=r"linear",
        says=rf"{UNITS}|{TARGETS}|{LARGE}",
        fault="inputs up to ±1000 and targets of their cubes, 2e9, are taken as they are")  # fmt: skip
def cubes(planted: bool) -> Task:
    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t) / 7.6e8).square().mean() if planted else F.mse_loss(y, t)

    def draw() -> Drawn:
        x = 2000 * torch.rand(100, 1) - 1000
        t = 2 * x**3 + 7 * x**2 - 8 * x + 120
        return ((x,), t) if planted else ((x / 577,), t / 7.6e8)

    return stream(Parts(lambda m, x: m.linear(x), linear=nn.Linear(1, 1)), draw, F.mse_loss, right)


@report("a fifth is kept", GITHUB + "pudae/tensorflow-densenet/pull/22", guilty=r"layers",
        says=r"dropout|dropped|drop ",
        fault="the rate of dropout, 0.2, is taken for what is kept: 0.8 of all features are dropped")  # fmt: skip
def densenet(planted: bool, k: int = 8) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        x = m.stem(x)
        for layer in m.layers:
            x = torch.cat([x, F.dropout(layer(x), 0.8 if planted else 0.2, m.training)], 1)
        return m.out(m.norm(x).relu().mean((2, 3)))

    layers = nn.ModuleList(chain(nn.BatchNorm2d(2 * k + i * k), nn.ReLU(),
                                 nn.Conv2d(2 * k + i * k, k, 3, padding=1, bias=False)) for i in range(5))  # fmt: skip
    model = Parts(run, stem=nn.Conv2d(1, 2 * k, 3, padding=1), layers=layers, norm=nn.BatchNorm2d(7 * k),
                  out=nn.Linear(7 * k, 10))  # fmt: skip
    return stream(model, partial(bright, 32), F.cross_entropy)


@report("letters of padding", GITHUB + "DaoyuanLi2816/Molecule-Generator/pull/20", says=r"padd|\bpad\b|mask|ignore",
        fault="most of what the loss is averaged over is padding")  # fmt: skip
def letters(planted: bool, d: int = 40) -> Task:
    def run(m: Any, idx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = m.code(m.gru(m.embed(idx))[1].squeeze(0)).chunk(2, 1)
        z = mean + (logvar / 2).exp() * torch.randn_like(mean)
        return m.out(m.back(z.unsqueeze(1).expand(-1, idx.shape[1], -1))[0]).transpose(1, 2), mean, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor, pad: int = 0) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - y[2] - 1).sum(1).mean()
        return F.cross_entropy(y[0], t, ignore_index=pad) + 0.01 * kl

    def draw() -> Drawn:
        idx = torch.randint(1, 10, (64, 16)).masked_fill(torch.arange(16) >= torch.randint(2, 4, (64, 1)), 0)
        return (idx,), idx

    model = Parts(run, embed=nn.Embedding(10, d), gru=nn.GRU(d, d, batch_first=True), code=nn.Linear(d, 32),
                  back=nn.GRU(16, d, batch_first=True), out=nn.Linear(d, 10))  # fmt: skip
    return stream(model, draw, partial(loss, pad=-100 if planted else 0), loss)


@report("nothing times nothing", GITHUB + "KU-VGI/LFS-GAN/issues/2", guilty=r"\.(a|b)\b", says=rf"{CUT}|\bzeros?\b",
        fault="both factors of a low-rank modulation of frozen weights are drawn as zeros")  # fmt: skip
def nothing(planted: bool, d: int = 32) -> Task:
    def layer(m: Any, x: Tensor) -> Tensor:
        return F.leaky_relu(F.linear(x, m.weight * (1 + m.a @ m.b)) + m.bias, 0.2)

    def make(n: int, size: float) -> nn.Module:
        weight = tensor(d, n, std=1.4 / math.sqrt(n)).requires_grad_(False)
        return Parts(layer, weight=weight, a=tensor(d, 3, std=size), b=tensor(3, n, std=size),
                     bias=nn.Parameter(torch.zeros(d)))  # fmt: skip

    def draw() -> Drawn:
        z = torch.randn(64, 8)
        with torch.no_grad():
            return (z,), teacher(z)

    net, teacher = (chain(make(8, size), make(d, size), make(d, size)) for size in (0.1, 0.7))
    for one, two in zip(net, teacher, strict=True):
        two.weight.data = one.weight.data
        if planted:
            nn.init.zeros_(one.a)
            nn.init.zeros_(one.b)
    return stream(net, draw, F.mse_loss)


@report("a batch as time", GITHUB + "pytorch/pytorch/issues/1538", guilty=r"lstm", says=rf"{MIXED}|batch_first|{ORDER}",
        fault="an LSTM without batch_first gets images (B, rows, pixels): the examples are its time")  # fmt: skip
def batch_time(planted: bool, d: int = 48) -> Task:
    lstm = nn.LSTM(8, d, 2, batch_first=not planted)
    model = Parts(lambda m, x: m.classifier(m.lstm(x.squeeze(1))[0][:, -1]), lstm=lstm, classifier=nn.Linear(d, 10))
    return stream(model, bright, F.cross_entropy)


@report("users by item", GITHUB + "lenskit/lkpy/pull/265", guilty=r"user", says=IDLE,
        fault="biases of users are looked up by the numbers of items")  # fmt: skip
def users(planted: bool, n: int = 40) -> Task:
    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        return (m.mean + m.user(item if planted else user) + m.item(item)).squeeze(1)

    def draw() -> Drawn:
        user, item = torch.randint(n, (256,)), torch.randint(n, (256,))
        return (user, item), kind[user] + good[item] + 0.2 * torch.randn(256)

    kind, good = torch.randn(n), 0.7 * torch.randn(n)
    model = Parts(run, mean=nn.Parameter(torch.zeros(1)), user=nn.Embedding(n, 1), item=nn.Embedding(n, 1))
    nn.init.normal_(model.user.weight, std=0.1), nn.init.normal_(model.item.weight, std=0.1)
    return stream(model, draw, F.mse_loss)


@report("noise without a root", GITHUB + "Ryota-Kawamura/How-Diffusion-Models-Work/issues/1",
        says=r"noise|schedule|inputs?\b.*(varian|scale)|(varian|scale).*inputs?\b",
        fault="noise is added with 1 - ᾱ for a factor, not with its square root")  # fmt: skip
def rootless(planted: bool, d: int = 24) -> Task:
    def run(m: Any, x: Tensor, step: Tensor) -> Tensor:
        z = F.silu(m.inward(x)) + m.time(step)[..., None, None]
        return m.out(F.silu(m.middle(F.silu(z))))

    def draw() -> Drawn:
        x, noise = pick(48)[0], torch.randn(48, 1, 8, 8)
        share = 0.98 - 0.96 * torch.rand(48, 1)
        a = share[..., None, None]
        return (a.sqrt() * x + noise * ((1 - a) if planted else (1 - a).sqrt()), 2 * share - 1), noise

    model = Parts(run, inward=nn.Conv2d(1, d, 3, padding=1), time=mlp((1, d, d))[1:],
                  middle=nn.Conv2d(d, d, 3, padding=1), out=nn.Conv2d(d, 1, 3, padding=1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("four layers of sigmoids", "https://ai.stackexchange.com/questions/16557/what-could-be-the-problem-when-a-"
        "neural-network-with-four-hidden-layers-with-the", guilty=r"^[13579]\.",
        says=rf"sigmoid|satur|{SMALL}",
        fault="all of four hidden layers are sigmoids: what reaches the first is next to nothing")  # fmt: skip
def sigmoids(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(2, (100, 12)).float()
        return (2 * x - 1,), x[:, :1] * 2 - x[:, 1:2] + 1.5 * (x[:, 2:3] != x[:, 3:4]).float() - 1.25

    return stream(mlp((12, 100, 100, 100, 100, 1), act=nn.Sigmoid if planted else nn.ReLU), draw, F.mse_loss)


@report("a judge unheard", GITHUB + "nikhilsinghmus/image2reverb/issues/37", guilty=r"maker", says=rf"{CUT}|\bterm\b",
        fault="what the generator makes is detached before it is judged in the generator's own loss")  # fmt: skip
def judge(planted: bool, n: int = 8) -> Task:
    def run(m: Any, z: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        fake = m.maker(z)
        held = {name: p.detach() for name, p in m.judge.named_parameters()}
        heard = torch.func.functional_call(m.judge, held, (fake.detach() if planted else fake,))
        return m.judge(real), m.judge(fake.detach()), heard, fake

    def loss(y: tuple[Tensor, ...], t: Tensor) -> Tensor:
        decay = (y[3].mean(1) - t.mean()).square().mean()
        return (y[0] - 1).square().mean() + y[1].square().mean() + (y[2] - 1).square().mean() + decay

    def right(y: tuple[Tensor, ...], t: Tensor) -> Tensor:
        return (y[3].mean(0) - t.mean(0)).square().mean()

    def draw() -> Drawn:
        real = torch.linspace(2, -2, n) + 0.3 * torch.randn(64, n)
        return (torch.randn(64, 6), real), real

    return stream(Parts(run, maker=mlp((6, 48, n)), judge=mlp((n, 48, 1))), draw, loss, right)
