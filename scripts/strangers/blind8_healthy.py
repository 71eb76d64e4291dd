"""Healthy networks of public repositories, an eighth set, written without sight of rules and of what they say."""

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
from strangers.blind5 import tensor
from strangers.blind5_healthy import waves
from strangers.blind6 import net2d
from strangers.blind7 import feed
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind8")


@healthy("channels that go ahead", GITHUB + "mit-han-lab/temporal-shift-module")
def shifted(_: bool, d: int = 24) -> Task:
    """An eighth of the channels come from the frame before and an eighth from that behind; a mean over frames."""

    def shift(z: Tensor) -> Tensor:  # (B, T, d, h, w)
        k, none = d // 8, torch.zeros_like(z[:, :1])
        before, behind = torch.cat([none, z[:, :-1]], 1), torch.cat([z[:, 1:], none], 1)
        return torch.cat([before[:, :, :k], behind[:, :, k : 2 * k], z[:, :, 2 * k :]], 2)

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.stem(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        for conv, norm in zip(m.convs, m.norms, strict=True):
            z = F.relu(z + norm(conv(shift(z).flatten(0, 1))).unflatten(0, x.shape[:2]))
        return m.out(z.mean((3, 4))).mean(1)

    def draw() -> Drawn:
        c, at = torch.randint(4, (24,)), torch.randint(64, (24,))
        x = F.one_hot(at, 64).float().view(24, 1, 1, 8, 8).repeat(1, 5, 1, 1, 1)
        way = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])[c]
        for i in range(24):
            for j in range(5):
                x[i, j] = x[i, j].roll((j * way[i]).tolist(), (1, 2))
        return (3 * x + 0.2 * torch.randn_like(x),), c

    convs = each(3, lambda: nn.Conv2d(d, d, 3, padding=1, bias=False))
    model = Parts(run, stem=net2d(1, d), convs=convs, norms=each(3, lambda: nn.BatchNorm2d(d)), out=nn.Linear(d, 4))
    return stream(model, draw, F.cross_entropy)


@healthy("ghosts of features", GITHUB + "huawei-noah/Efficient-AI-Backbones")
def ghosts(_: bool) -> Task:
    """Half of the features are cheap filters of the others; linear ends of blocks; gates of hard sigmoids."""

    def ghost(m: Any, x: Tensor) -> Tensor:
        z = m.main(x)
        return torch.cat([z, m.cheap(z)], 1)

    def make(n: int, k: int, *act: nn.Module) -> nn.Module:
        main = chain(nn.Conv2d(n, k // 2, 1, bias=False), nn.BatchNorm2d(k // 2), *act)
        cheap = chain(nn.Conv2d(k // 2, k // 2, 3, 1, 1, groups=k // 2, bias=False), nn.BatchNorm2d(k // 2), *act)
        return Parts(ghost, main=main, cheap=cheap)

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.wide(x)
        z = z * F.hardsigmoid(m.gate(z.mean((2, 3)))).unsqueeze(2).unsqueeze(3)
        return x + m.thin(z)

    blocks = [Parts(block, wide=make(16, 48, nn.ReLU()), thin=make(48, 16),
                    gate=chain(nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 48))) for _ in range(3)]  # fmt: skip
    stem = (nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return drawn(chain(*stem, *blocks[:2], nn.MaxPool2d(2), blocks[2], nn.Flatten(), nn.Linear(256, 10)))


@healthy("no activation at all", GITHUB + "megvii-research/NAFNet")
def nafnet(_: bool, d: int = 16) -> Task:
    """Products of halves are the only non-linearity; what blocks add is times factors that start at zero."""

    def block(m: Any, x: Tensor) -> Tensor:
        a, b = m.deep(m.wide(m.norm1(x))).chunk(2, 1)
        z = a * b
        y = x + m.beta * m.thin(z * m.look(z.mean((2, 3), keepdim=True)))
        a, b = m.wide2(m.norm2(y)).chunk(2, 1)
        return y + m.gamma * m.thin2(a * b)

    def make() -> nn.Module:
        zeros = [nn.Parameter(torch.zeros(d, 1, 1)) for _ in range(2)]
        return Parts(block, norm1=nn.GroupNorm(1, d), norm2=nn.GroupNorm(1, d), wide=nn.Conv2d(d, 2 * d, 1),
                     deep=nn.Conv2d(2 * d, 2 * d, 3, 1, 1, groups=2 * d), look=nn.Conv2d(d, d, 1),
                     thin=nn.Conv2d(d, d, 1), wide2=nn.Conv2d(d, 2 * d, 1), thin2=nn.Conv2d(d, d, 1), beta=zeros[0],
                     gamma=zeros[1])  # fmt: skip

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.out(m.blocks(m.stem(x)))

    def draw() -> Drawn:
        t = pick(24)[0]
        return (t + torch.randn_like(t),), t

    blocks, stem, out = chain(*(make() for _ in range(4))), nn.Conv2d(1, d, 3, 1, 1), nn.Conv2d(d, 1, 3, 1, 1)
    return stream(Parts(run, stem=stem, blocks=blocks, out=out), draw, F.mse_loss)


@healthy("dense blocks in dense blocks", GITHUB + "xinntao/ESRGAN")
def esrgan(_: bool, d: int = 16) -> Task:
    """Weights of He times 0.1, branches times 0.2, no normalisation; twice as large a picture, absolute errors."""

    def dense(m: Any, x: Tensor) -> Tensor:
        found = [x]
        for i, conv in enumerate(m.convs):
            z = conv(torch.cat(found, 1))
            found.append(F.leaky_relu(z, 0.2) if i < 3 else z)
        return x + 0.2 * found[-1]

    def make() -> nn.Module:
        convs = nn.ModuleList(nn.Conv2d(d + 8 * i, 8 if i < 3 else d, 3, 1, 1) for i in range(4))
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight)
            conv.weight.data *= 0.1
            nn.init.zeros_(conv.bias)
        return Parts(dense, convs=convs)

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.stem(x)
        z = z + m.trunk(z + 0.2 * (m.blocks(z) - z))
        return m.out(F.leaky_relu(m.up(F.interpolate(z, scale_factor=2)), 0.2))

    def draw() -> Drawn:
        t = pick(16)[0]
        return (F.avg_pool2d(t, 2),), t

    stem, trunk, up, out = (nn.Conv2d(n, m, 3, 1, 1) for n, m in ((1, d), (d, d), (d, d), (d, 1)))
    model = Parts(run, stem=stem, blocks=chain(make(), make(), make()), trunk=trunk, up=up, out=out)
    return stream(model, draw, F.l1_loss)


@healthy("a mean of disparities", GITHUB + "JiaRenChang/PSMNet")
def stereo(_: bool, d: int = 12, far: int = 6) -> Task:
    """Features of both eyes side by side for each shift, 3D convolutions, and the mean shift under a softmax."""

    def run(m: Any, left: Tensor, right: Tensor) -> Tensor:
        a, b = m.eye(left), m.eye(right)
        cost = torch.stack([torch.cat([a, b.roll(i, 3)], 1) for i in range(far)], 2)  # (B, 2 d, far, h, w)
        p = (-m.cost(cost).squeeze(1)).softmax(1)
        return (p * torch.arange(float(far)).view(-1, 1, 1)).sum(1)

    def draw() -> Drawn:
        shift = torch.randint(far, (8,))
        right = torch.randn(8, 1, 10, 12)
        left = torch.stack([right[i].roll(int(shift[i]), 2) for i in range(8)])
        return (left, right), shift.float().view(8, 1, 1).expand(8, 10, 12)

    cost = chain(nn.Conv3d(2 * d, d, 3, 1, 1), nn.BatchNorm3d(d), nn.ReLU(), nn.Conv3d(d, 1, 3, 1, 1))
    return stream(Parts(run, eye=net2d(1, d, d), cost=cost), draw, F.smooth_l1_loss)


@healthy("two resolutions", GITHUB + "leoxiaobin/deep-high-resolution-net.pytorch")
def hrnet(_: bool, d: int = 16) -> Task:
    """A fine and a coarse branch tell each other; the targets are small Gaussians, nearly all of them zero."""

    def block(m: Any, z: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = m.fine(z[0]), m.coarse(z[1])
        return F.relu(a + F.interpolate(m.up(b), scale_factor=2)), F.relu(b + m.down(a))

    def conv(n: int, k: int, s: int = 1) -> nn.Sequential:
        return chain(nn.Conv2d(n, k, 3, s, 1, bias=False), nn.BatchNorm2d(k))

    def make() -> nn.Module:
        up = chain(nn.Conv2d(2 * d, d, 1, bias=False), nn.BatchNorm2d(d))
        fine, coarse = (conv(n, n).append(nn.ReLU()) for n in (d, 2 * d))
        return Parts(block, fine=fine, coarse=coarse, up=up, down=conv(d, 2 * d, 2))

    def run(m: Any, x: Tensor) -> Tensor:
        a = F.relu(m.stem(x))
        z = (a, F.relu(m.start(a)))
        for each_block in m.blocks:
            z = each_block(z)
        return m.out(z[0])

    def draw() -> Drawn:
        line, middle = torch.arange(16.0), 2 + 12 * torch.rand(16, 3, 2)
        far = [(line - middle[..., i : i + 1]).square() for i in (0, 1)]
        t = torch.exp(-(far[0].unsqueeze(2) + far[1].unsqueeze(3)) / 4)
        x = torch.stack([t[:, 0] + t[:, 1], t[:, 1] + t[:, 2]], 1)
        return (2 * x + 0.2 * torch.randn_like(x),), t

    model = Parts(run, stem=conv(2, d), start=conv(d, 2 * d, 2), blocks=each(2, make), out=nn.Conv2d(d, 3, 1))
    nn.init.normal_(model.out.weight, 0.0, 0.001)
    return stream(model, draw, F.mse_loss)


@healthy("kernels in four turns", GITHUB + "tscohen/GrouPy")
def turned(_: bool, d: int = 12) -> Task:
    """Each kernel is used in four turns, the next ones over turns as well; the greatest over turns comes out."""

    def lift(m: Any, x: Tensor) -> Tensor:
        weight = torch.cat([m.weight.rot90(i, (2, 3)) for i in range(4)])  # turns come first
        return F.conv2d(x, weight, padding=1)

    def group(m: Any, x: Tensor) -> Tensor:  # (B, 4 d, h, w)
        weight = torch.cat([m.weight.rot90(i, (3, 4)).roll(i, 1).flatten(1, 2) for i in range(4)])
        return F.conv2d(x, weight, padding=1)

    def norm(m: Any, x: Tensor) -> Tensor:
        return m.norm(x.unflatten(1, (4, -1)).transpose(1, 2)).transpose(1, 2).flatten(1, 2)

    layers: list[nn.Module] = [Parts(lift, weight=tensor(d, 1, 3, 3, std=math.sqrt(2 / 9)))]
    for _ in range(2):
        layers += [Parts(norm, norm=nn.BatchNorm3d(d)), nn.ReLU(), nn.MaxPool2d(2),
                   Parts(group, weight=tensor(d, 4, d, 3, 3, std=math.sqrt(2 / (36 * d))))]  # fmt: skip
    most = Parts(lambda m, x: x.unflatten(1, (4, -1)).amax(1).mean((2, 3)))
    return drawn(chain(*layers, Parts(norm, norm=nn.BatchNorm3d(d)), nn.ReLU(), most, nn.Linear(d, 10)))


@healthy("products of features", GITHUB + "HaoMood/bilinear-cnn")
def bilinear(_: bool, d: int = 16) -> Task:
    """The mean over places of products of all pairs of channels, signed roots of these, and length one."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.net(x).flatten(2)
        z = (z @ z.transpose(1, 2) / z.shape[2]).flatten(1)
        return m.out(F.normalize(z.sign() * (z.abs() + 1e-5).sqrt()))

    return drawn(Parts(run, net=chain(net2d(1, d), nn.MaxPool2d(2), net2d(d, 2 * d, d)), out=nn.Linear(d * d, 10)))


@healthy("two sentences", GITHUB + "facebookresearch/InferSent")
def infersent(_: bool, d: int = 32) -> Task:
    """Fixed word vectors, the maximum over time of a two-way LSTM, u, v, |u − v| and u v, and a linear classifier."""

    def run(m: Any, a: Tensor, b: Tensor) -> Tensor:
        u, v = (m.lstm(m.embed(idx))[0].amax(1) for idx in (a, b))
        return m.classifier(torch.cat([u, v, (u - v).abs(), u * v], 1))

    def draw() -> Drawn:
        a, c = torch.randint(30, (64, 8)), torch.randint(3, (64,))
        b = a[:, torch.randperm(8)[:5]]
        b = torch.where((c == 1).unsqueeze(1), (b + 15) % 30, b)  # 15 on is its contrary
        b = torch.where((c == 2).unsqueeze(1), torch.randint(30, (64, 5)), b)
        return (a, b), c

    embed, lstm = nn.Embedding.from_pretrained(0.3 * torch.randn(30, 24)), nn.LSTM(24, d, 1, True, True, 0.0, True)
    classifier = chain(nn.Linear(8 * d, 64), nn.Linear(64, 64), nn.Linear(64, 3))
    return stream(Parts(run, embed=embed, lstm=lstm, classifier=classifier), draw, F.cross_entropy)


@healthy("where an answer starts", GITHUB + "allenai/bi-att-flow")
def bidaf(_: bool, d: int = 24) -> Task:
    """Attention from text to question and back by w · [h, u, h u]; two softmaxes over the words of the text."""

    def run(m: Any, text: Tensor, asked: Tensor) -> Tensor:
        h, u = m.context(m.embed(text))[0], m.context(m.embed(asked))[0]
        a, b = h.unsqueeze(2).expand(-1, -1, u.shape[1], -1), u.unsqueeze(1).expand(-1, h.shape[1], -1, -1)
        s = m.alike(torch.cat([a, b, a * b], 3)).squeeze(3)
        seen = s.softmax(2) @ u
        back = (s.amax(2).softmax(1).unsqueeze(1) @ h).expand_as(h)
        g = torch.cat([h, seen, h * seen, h * back], 2)
        return torch.cat([m.start(g), m.end(m.modeling(g)[0])], 2)  # (B, T, 2)

    def draw() -> Drawn:
        text, at = torch.randint(10, 30, (48, 16)), torch.randint(1, 12, (48,))
        key, wide = torch.randint(10, (48,)), torch.randint(3, (48,))
        text[torch.arange(48), at - 1] = key  # the answer follows, and ends with 30
        text[torch.arange(48), at + wide] = 30
        return (text, torch.stack([key, torch.full((48,), 31)], 1)), torch.stack([at, at + wide], 1)

    lstm = nn.LSTM(d, d, batch_first=True, bidirectional=True)
    modeling = nn.LSTM(8 * d, d, batch_first=True, bidirectional=True)
    model = Parts(run, embed=nn.Embedding(32, d), context=lstm, alike=nn.Linear(6 * d, 1, bias=False),
                  modeling=modeling, start=nn.Linear(8 * d, 1), end=nn.Linear(2 * d, 1))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("words that are copied", GITHUB + "abisee/pointer-generator")
def pointers(_: bool, d: int = 32, known: int = 20) -> Task:
    """A learnt share of each probability goes to words of the source by attention; logarithms of their sum."""

    def run(m: Any, source: Tensor, before: Tensor) -> Tensor:
        h, z = m.encoder(m.embed(source))[0], m.embed(before)
        s = m.decoder(z)[0]
        e = m.v((m.wh(h).unsqueeze(1) + m.ws(s).unsqueeze(2)).tanh()).squeeze(3)
        a = e.softmax(2)  # (B, T, S)
        context = a @ h
        share = m.share(torch.cat([context, s, z], 2)).sigmoid()
        p = share * m.out(torch.cat([s, context], 2)).softmax(2)
        p = p.scatter_add(2, source.unsqueeze(1).expand(-1, a.shape[1], -1), (1 - share) * a)
        return (p + 1e-12).log().transpose(1, 2)

    def draw() -> Drawn:
        source = torch.randint(2, known, (48, 8))
        t = torch.stack([source[:, 2], source[:, 5], torch.full((48,), 1), source[:, 7]], 1)
        return (source, torch.cat([torch.zeros(48, 1, dtype=torch.long), t[:, :-1]], 1)), t

    model = Parts(run, embed=nn.Embedding(known, d), encoder=nn.LSTM(d, d // 2, batch_first=True, bidirectional=True),
                  decoder=nn.LSTM(d, d, batch_first=True), wh=nn.Linear(d, d, bias=False), ws=nn.Linear(d, d),
                  v=nn.Linear(d, 1, bias=False), share=nn.Linear(3 * d, 1), out=nn.Linear(2 * d, known))  # fmt: skip
    return stream(model, draw, F.nll_loss)


@healthy("words of letters", GITHUB + "yoonkim/lstm-char-cnn")
def letters(_: bool, d: int = 48) -> Task:
    """Filters of two to four letters, the maximum over a word, highways that begin at −2, an LSTM; U(−0.05, 0.05)."""

    def run(m: Any, idx: Tensor) -> Tensor:  # (B, T, 6)
        x = m.letters(idx).flatten(0, 1).transpose(1, 2)
        z = torch.cat([conv(x).tanh().amax(2) for conv in m.convs], 1)
        for gate, net in zip(m.gates, m.nets, strict=True):
            g = gate(z).sigmoid()
            z = g * F.relu(net(z)) + (1 - g) * z
        return m.out(m.lstm(z.unflatten(0, idx.shape[:2]))[0]).transpose(1, 2)

    def draw() -> Drawn:
        word = torch.randint(24, (24, 8))
        return (spelling[word],), (word + torch.cat([word[:, :1], word[:, :-1]], 1) // 12) % 8

    spelling = torch.randint(12, (24, 6))
    convs = nn.ModuleList(nn.Conv1d(12, 16, k) for k in (2, 3, 4))
    model = Parts(run, letters=nn.Embedding(12, 12), convs=convs, gates=each(2, lambda: nn.Linear(48, 48)),
                  nets=each(2, lambda: nn.Linear(48, 48)), lstm=nn.LSTM(48, d, batch_first=True),
                  out=nn.Linear(d, 8))  # fmt: skip
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    for gate in model.gates:
        nn.init.constant_(gate.bias, -2.0)
    return stream(model, draw, F.cross_entropy)


@healthy("the greatest of three pieces", GITHUB + "explosion/spaCy")
def maxout(_: bool, d: int = 32) -> Task:
    """Words are sums of four rows of a small table; windows of three words; maxima of three pieces, normalised."""

    def window(m: Any, x: Tensor) -> Tensor:
        z = torch.cat([F.pad(x, (0, 0, 1, 0))[:, :-1], x, F.pad(x, (0, 0, 0, 1))[:, 1:]], 2)
        return x + m.norm(m.pieces(z).unflatten(2, (d, 3)).amax(3))

    def make() -> nn.Module:
        return Parts(window, pieces=nn.Linear(3 * d, 3 * d), norm=nn.LayerNorm(d))

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.rows(keys[idx]).sum(2)
        return m.out(m.windows(m.norm(m.mix(x).unflatten(2, (d, 3)).amax(3)))).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(80, (32, 12))
        return (idx,), tags[idx, torch.cat([idx[:, :1], idx[:, :-1]], 1) % 2]

    keys, tags = torch.randint(50, (80, 4)), torch.randint(6, (80, 2))
    rows = nn.Embedding(50, d)
    nn.init.uniform_(rows.weight, -0.1, 0.1)
    model = Parts(run, rows=rows, mix=nn.Linear(d, 3 * d), norm=nn.LayerNorm(d), windows=chain(make(), make()),
                  out=nn.Linear(d, 6))  # fmt: skip
    nn.init.zeros_(model.out.weight)
    nn.init.zeros_(model.out.bias)
    return stream(model, draw, F.cross_entropy)


@healthy("a segment before", GITHUB + "kimiyoung/transformer-xl")
def transformer_xl(_: bool, d: int = 32, n: int = 8) -> Task:
    """States of the segment before are read without gradient; places are relative, with two biases of queries."""
    angle = torch.arange(2 * n - 1, -n, -1.0).unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(0, d, 2) / d)
    code = torch.cat([angle.sin(), angle.cos()], 1)
    ahead = torch.ones(n, 2 * n).triu(n + 1) > 0
    far = (torch.arange(n).unsqueeze(1) + n - torch.arange(2 * n)).neg() + 2 * n - 1  # the row of code for each pair

    def layer(m: Any, x: Tensor, before: Tensor) -> Tensor:
        z = torch.cat([before.detach(), x], 1)
        q, k, v = m.q(x), m.k(z), m.v(z)
        scores = (q + m.u) @ k.transpose(1, 2) + ((q + m.w) @ m.r(code).t()).gather(2, far.expand(len(x), -1, -1))
        z = m.norm(x + m.proj((scores / math.sqrt(d)).masked_fill(ahead, -torch.inf).softmax(2) @ v))
        return m.last(z + m.net(z))

    def make() -> nn.Module:
        return Parts(layer, q=nn.Linear(d, d, bias=False), k=nn.Linear(d, d, bias=False), v=nn.Linear(d, d, bias=False),
                     r=nn.Linear(d, d, bias=False), u=tensor(d, std=0.02), w=tensor(d, std=0.02), proj=nn.Linear(d, d),
                     norm=nn.LayerNorm(d), last=nn.LayerNorm(d), net=feed(d))  # fmt: skip

    def run(m: Any, first: Tensor, second: Tensor) -> Tensor:
        old, new = m.embed(first), m.embed(second)
        for each_layer in m.layers:
            old, new = each_layer(old, torch.zeros_like(old)), each_layer(new, old)
        return m.head(new).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 2 * n))
        return (idx[:, :n], idx[:, n:]), idx[:, n - 3 : -3]

    model = Parts(run, embed=nn.Embedding(10, d), layers=each(2, make), head=nn.Linear(d, 10))
    return stream(model, draw, F.cross_entropy)


@healthy("samples of neighbours", GITHUB + "williamleif/GraphSAGE")
def sage(_: bool, d: int = 32) -> Task:
    """The node and the mean of five neighbours drawn anew, side by side; what leaves is of length one."""

    def run(m: Any, x: Tensor, near: Tensor) -> Tensor:  # (N, 8), (N, 5)
        z = F.relu(torch.cat([m.own1(x), m.sent1(x[near].mean(1))], 1))
        z = torch.cat([m.own2(z), m.sent2(z[near].mean(1))], 1)
        return m.out(F.normalize(z))

    def draw() -> Drawn:
        x = torch.randn(120, 8) + 2 * kinds[group]
        near = torch.where(torch.rand(120, 5) < 0.8, same[group, torch.randint(24, (120, 5)).t()].t(),
                           torch.randint(120, (120, 5)))  # fmt: skip
        return (x, near), group

    group, kinds = torch.arange(5).repeat(24), 0.4 * torch.randn(5, 8)
    same = torch.stack([(group == c).nonzero().squeeze(1) for c in range(5)])
    parts = {f"{name}{i}": nn.Linear(n, d, bias=False) for name in ("own", "sent") for i, n in ((1, 8), (2, 2 * d))}
    return stream(Parts(run, out=nn.Linear(2 * d, 5), **parts), draw, F.cross_entropy)


@healthy("twin critics", GITHUB + "sfujim/TD3")
def td3(_: bool) -> Task:
    """Both critics are told the lesser value of slow copies at a noisy action; copies take no part in training."""

    def run(m: Any, state: Tensor, action: Tensor) -> Tensor:
        x = torch.cat([state, action], 1)
        return torch.cat([m.q1(x), m.q2(x)], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        with torch.no_grad():
            after = t[:, 1:7]
            action = (after[:, :2].tanh() + (0.2 * torch.randn(len(t), 2)).clamp(-0.5, 0.5)).clamp(-1, 1)
            x = torch.cat([after, action], 1)
            target = t[:, :1] + 0.9 * torch.minimum(slow[0](x), slow[1](x))
        return F.mse_loss(y[:, :1], target) + F.mse_loss(y[:, 1:], target)

    def draw() -> Drawn:
        state, action, after = torch.randn(128, 6), 2 * torch.rand(128, 2) - 1, torch.randn(128, 6)
        reward = 2 * (state[:, :2] * action).sum(1, keepdim=True) - action.square().sum(1, keepdim=True)
        return (state, action), torch.cat([reward, after], 1)

    slow = [mlp((8, 64, 64, 1)).requires_grad_(False) for _ in range(2)]
    return stream(Parts(run, q1=mlp((8, 64, 64, 1)), q2=mlp((8, 64, 64, 1))), draw, loss)


@healthy("a critic with a slope of one", GITHUB + "igul222/improved_wgan_training")
def critic(_: bool) -> Task:
    """Scores have no bound, the loss is their difference plus ten times (slope − 1)²: it falls below zero."""

    def run(m: Any, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            share = torch.rand(len(real), 1)
            x = (share * real + (1 - share) * fake).detach().requires_grad_()
            slope = torch.autograd.grad(m.net(x).sum(), x, create_graph=True)[0]
        return m.net(real), m.net(fake), slope

    def loss(y: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        return y[1].mean() - y[0].mean() + 10 * (y[2].norm(dim=1) - 1).square().mean()

    def draw() -> Drawn:
        real = 3 * F.normalize(torch.randn(128, 2)) + 0.1 * torch.randn(128, 2)
        return (real, 0.5 * torch.randn(128, 2)), torch.zeros(128)

    return stream(Parts(run, net=mlp((2, 64, 64, 64, 1))), draw, loss)


@healthy("splines of rational quadratics", GITHUB + "bayesiains/nflows")
def splines(_: bool, d: int = 4, k: int = 8) -> Task:
    """Half of the numbers bend the others by monotone splines within ±4, outside of which nothing is changed."""

    def bend(x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        wide = (0.001 + (1 - 0.001 * k) * raw[..., :k].softmax(-1)) * 8
        high = (0.001 + (1 - 0.001 * k) * raw[..., k : 2 * k].softmax(-1)) * 8
        steep = F.pad(0.001 + F.softplus(raw[..., 2 * k :] + 0.54), (1, 1), value=1.0)
        left, low = (F.pad(z.cumsum(-1), (1, 0)) - 4 for z in (wide, high))
        inside = (x > -3.99) & (x < 3.99)
        i = ((x.clamp(-3.99, 3.99).unsqueeze(-1) >= left[..., 1:]).sum(-1, keepdim=True)).clamp(max=k - 1)
        w, h, a, b, s0, s1 = (z.gather(-1, j).squeeze(-1) for z, j in
                              ((wide, i), (high, i), (left, i), (low, i), (steep, i), (steep, i + 1)))  # fmt: skip
        t, s = (x.clamp(-3.99, 3.99) - a) / w, h / w
        rest = s + (s0 + s1 - 2 * s) * t * (1 - t)
        y = b + h * (s * t.square() + s0 * t * (1 - t)) / rest
        slope = s.square() * (s1 * t.square() + 2 * s * t * (1 - t) + s0 * (1 - t).square()) / rest.square()
        return torch.where(inside, y, x), torch.where(inside, slope.log(), torch.zeros(()))

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        logdet = torch.zeros(len(x))
        for net in m.nets:
            a, b = x.chunk(2, 1)
            b, part = bend(b, net(a).unflatten(1, (d // 2, 3 * k - 1)))
            x, logdet = torch.cat([b, a], 1), logdet + part.sum(1)
        return x, logdet

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (0.5 * y[0].square().sum(1) - y[1]).mean() / d

    def draw() -> Drawn:
        side = torch.randint(2, (128, 2)) * 4.0 - 2
        z = side + 0.2 * torch.randn(128, 2)
        return (torch.cat([z, 1.5 * z.sin() + 0.15 * torch.randn(128, 2)], 1),), torch.zeros(128)

    return stream(Parts(run, nets=each(4, lambda: mlp((d // 2, 48, 48, d // 2 * (3 * k - 1))))), draw, loss)


@healthy("a prior of made-up pictures", GITHUB + "jmtomczak/vae_vampprior")
def vamp(_: bool, d: int = 8, k: int = 10) -> Task:
    """The prior is the mean of what the encoder says of ten learnt pictures; gates instead of activations."""

    def gated(n: int, m: int) -> nn.Module:
        return Parts(lambda p, x: p.h(x) * p.g(x).sigmoid(), h=nn.Linear(n, m), g=nn.Linear(n, m))

    def density(z: Tensor, mean: Tensor, logvar: Tensor) -> Tensor:
        return -0.5 * (logvar + (z - mean).square() / logvar.exp()).sum(-1)

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, logvar = m.encoder(x).chunk(2, 1)
        z = mean + (logvar / 2).exp() * torch.randn_like(mean)
        means, logvars = m.encoder(m.made_up.clamp(0, 1)).chunk(2, 1)
        prior = density(z.unsqueeze(1), means, logvars).logsumexp(1) - math.log(k)
        return m.decoder(z), density(z, mean, logvar) - prior

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (bce(y[0], t, reduction="none").sum(1) + y[1]).mean() / 64

    def draw() -> Drawn:
        x = (pick(64)[0] > 0.4).float().flatten(1)
        return (x,), x

    encoder, decoder = (chain(gated(n, 64), gated(64, 64), nn.Linear(64, m)) for n, m in ((64, 2 * d), (d, 64)))
    made_up = nn.Parameter(0.3 + 0.05 * torch.randn(k, 64))
    return stream(Parts(run, encoder=encoder, decoder=decoder, made_up=made_up), draw, loss)


@healthy("rows that read each other", GITHUB + "somepago/saint")
def saint(_: bool, d: int = 12, n: int = 6) -> Task:
    """After the attention between columns there is attention between the rows of the batch, on purpose."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = x.unsqueeze(2) * m.scale + m.shift  # (B, n, d)
        z = (z + F.scaled_dot_product_attention(*m.columns(m.norm1(z)).chunk(3, 2))).flatten(1)
        q, k, v = m.rows(m.norm2(z)).unsqueeze(0).chunk(3, 2)
        return m.out(F.gelu(m.norm3(z + F.scaled_dot_product_attention(q, k, v)[0])))

    def draw() -> Drawn:
        x = torch.randn(64, n)
        return (x,), (x[:, :1] * x[:, 1:2] + x[:, 2:3] > 0).float()

    model = Parts(run, scale=tensor(n, d), shift=tensor(n, d), columns=nn.Linear(d, 3 * d), norm1=nn.LayerNorm(d),
                  rows=nn.Linear(n * d, 3 * n * d), norm2=nn.LayerNorm(n * d), norm3=nn.LayerNorm(n * d),
                  out=mlp((n * d, 64, 1)))  # fmt: skip
    return stream(model, draw, bce)


@healthy("few points between which to draw lines", GITHUB + "Nixtla/neuralforecast")
def nhits(_: bool) -> Task:
    """Blocks see what is left of a series through maxima of eight, four and one, and tell a few points ahead."""

    def run(m: Any, x: Tensor) -> Tensor:  # (B, 1, 64)
        ahead = torch.zeros(len(x), 1, 16)
        for k, net in zip((8, 4, 1), m.nets, strict=True):
            z = net(F.max_pool1d(x, k)).unsqueeze(1)
            x = x - F.interpolate(z[..., : 64 // k], size=64, mode="linear")
            ahead = ahead + F.interpolate(z[..., 64 // k :], size=16, mode="linear")
        return ahead

    def draw() -> Drawn:
        x = (waves(64, 80, 0.05) + torch.randn(64, 1) + torch.randn(64, 1) * torch.linspace(-1, 1, 80)).unsqueeze(1)
        return (x[..., :64],), x[..., 64:]

    return stream(Parts(run, nets=nn.ModuleList(mlp((64 // k, 96, 96, 80 // k)) for k in (8, 4, 1))), draw, F.l1_loss)


@healthy("what others clicked", GITHUB + "hidasib/GRU4Rec")
def clicks(_: bool, d: int = 32, n: int = 60) -> Task:
    """Scores are of the next items of the batch alone: others' are the wrong ones, weighed by their softmax."""

    def run(m: Any, idx: Tensor, after: Tensor) -> Tensor:
        h = m.gru(m.items(idx))[0][:, -1].tanh()
        return h @ m.items(after).t() + m.bias(after).t()

    def loss(y: Tensor, _: Tensor) -> Tensor:
        own = torch.eye(len(y)) > 0
        weight = y.masked_fill(own, -torch.inf).softmax(1)
        return -((weight * (y.diagonal().unsqueeze(1) - y).sigmoid()).sum(1) + 1e-24).log().mean()

    def draw() -> Drawn:
        idx = torch.randint(n, (32, 5))
        return (idx, (idx[:, -1] * 7 + idx[:, -2] // 30) % n), torch.zeros(32)

    model = Parts(run, items=nn.Embedding(n, d), gru=nn.GRU(d, d, batch_first=True), bias=nn.Embedding(n, 1))
    nn.init.xavier_uniform_(model.items.weight)
    nn.init.zeros_(model.bias.weight)
    return stream(model, draw, loss)


@healthy("a share of the mixture", GITHUB + "sigsep/open-unmix-pytorch")
def unmix(_: bool, d: int = 48, n: int = 24) -> Task:
    """Learnt means and scales around the network, a way past the LSTM, and a rectified mask of the mixture."""

    def norm(layer: nn.Module, z: Tensor) -> Tensor:
        return layer(z.flatten(0, 1)).view_as(z)

    def run(m: Any, x: Tensor) -> Tensor:  # (B, T, n)
        z = norm(m.norm1, m.fc1((x + m.mean) * m.scale)).tanh()
        z = F.relu(norm(m.norm2, m.fc2(torch.cat([z, m.lstm(z)[0]], 2))))
        return F.relu(norm(m.norm3, m.fc3(z)) * m.out_scale + m.out_mean) * x

    def draw() -> Drawn:
        loud = torch.rand(16, 10, 2)
        voice, drums = (F.relu(loud[..., i : i + 1] * tone[i] * (1 + 0.3 * torch.randn(16, 10, n))) for i in (0, 1))
        return (3 * (voice + drums),), 3 * voice

    tone = torch.randn(2, 1, n).abs()
    values = {"mean": -1.5, "scale": 0.7, "out_scale": 1.0, "out_mean": 1.0}
    parts = {name: nn.Parameter(torch.full((n,), value)) for name, value in values.items()}
    model = Parts(run, fc1=nn.Linear(n, d, bias=False), norm1=nn.BatchNorm1d(d), fc2=nn.Linear(2 * d, d, bias=False),
                  norm2=nn.BatchNorm1d(d), fc3=nn.Linear(d, n, bias=False), norm3=nn.BatchNorm1d(n),
                  lstm=nn.LSTM(d, d // 2, batch_first=True, bidirectional=True), **parts)  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("a sheet folded twice", GITHUB + "antao97/UnsupervisedPointCloudReconstruction")
def folding(_: bool, d: int = 48) -> Task:
    """A square is bent into the cloud by two networks that get its code; each point to the nearest, both ways."""
    square = torch.cartesian_prod(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8))

    def run(m: Any, x: Tensor) -> Tensor:
        code = m.encoder(x).amax(1).unsqueeze(1).expand(-1, 64, -1)
        once = m.once(torch.cat([code, square.expand(len(x), -1, -1)], 2))
        return m.twice(torch.cat([code, once], 2))

    def chamfer(y: Tensor, t: Tensor) -> Tensor:
        far = torch.cdist(y, t)
        return far.amin(1).mean() + far.amin(2).mean()

    def draw() -> Drawn:
        x = F.normalize(torch.randn(16, 80, 3), dim=2) * (0.3 + 1.2 * torch.rand(16, 1, 3))
        return (x,), x

    encoder, once, twice = (mlp((n, 64, 64, m))[1:] for n, m in ((3, d), (d + 2, 3), (d + 3, 3)))
    return stream(Parts(run, encoder=encoder, once=once, twice=twice), draw, chamfer)


@healthy("compared by a network", GITHUB + "floodsung/LearningToCompare_FSL")
def compared(_: bool, d: int = 16) -> Task:
    """Sums of features of one's own examples beside those of a question; a sigmoid and squared errors to 1 or 0."""

    def run(m: Any, shown: Tensor, asked: Tensor) -> Tensor:  # (5, 3, ...), (B, ...)
        z = m.embed(shown.flatten(0, 1)).unflatten(0, (5, 3)).sum(1)
        q = m.embed(asked)
        pairs = torch.cat([z.unsqueeze(0).expand(len(q), -1, -1, -1, -1), q.unsqueeze(1).expand(-1, 5, -1, -1, -1)], 2)
        return m.relation(pairs.flatten(0, 1)).view(-1, 5)

    def draw() -> Drawn:
        kinds, c = 2 * F.interpolate(torch.randn(5, 1, 4, 4), size=(8, 8)), torch.randint(5, (24,))
        shown = kinds.unsqueeze(1) + 0.3 * torch.randn(5, 3, 1, 8, 8)
        return (shown, kinds[c] + 0.3 * torch.randn(24, 1, 8, 8)), F.one_hot(c, 5).float()

    embed = chain(nn.Conv2d(1, d, 3, 1, 1), nn.BatchNorm2d(d), nn.ReLU(), nn.MaxPool2d(2))
    relation = chain(nn.Conv2d(2 * d, d, 3, 1, 1), nn.BatchNorm2d(d), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                     nn.Linear(4 * d, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())  # fmt: skip
    return stream(Parts(run, embed=embed, relation=relation), draw, F.mse_loss)


@healthy("cosines that stay", GITHUB + "google/uncertainty-baselines")
def sngp(_: bool, d: int = 64) -> Task:
    """Residual layers of bounded norm, 256 random cosines that are never trained, and one linear layer of zeros."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.first(x)
        for layer in m.layers:
            z = z + F.relu(layer(z))
        return m.out(math.sqrt(2 / 256) * (m.norm(z) @ m.fixed + m.phase).cos())

    def draw() -> Drawn:
        turn, c = 3 * torch.rand(128), torch.randint(2, (128,))
        x = torch.stack([turn.cos(), turn.sin()], 1) * (1 - 2 * c).unsqueeze(1) + (c * 0.5).unsqueeze(1)
        return (x + 0.1 * torch.randn(128, 2),), c

    layers = each(3, lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(d, d)))
    model = Parts(run, first=nn.Linear(2, d), layers=layers, norm=nn.LayerNorm(d), out=nn.Linear(256, 2))
    model.register_buffer("fixed", torch.randn(d, 256) / 4)
    model.register_buffer("phase", 6.28 * torch.rand(256))
    nn.init.zeros_(model.out.weight)
    return stream(model, draw, F.cross_entropy)


@healthy("tasks weighed by their noise", GITHUB + "yaringal/multi-task-learning-example")
def weighed(_: bool) -> Task:
    """Errors are divided by learnt variances, whose logarithms are added: the loss may fall below zero."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return m.net(x), m.noise

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return ((-y[1]).exp() * (y[0] - t).square() + y[1]).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 5)
        t = torch.stack([(2 * x[:, 0]).sin() + x[:, 1], 3 * x[:, 2] * x[:, 3]], 1)
        return (x,), t + torch.tensor([0.1, 1.0]) * torch.randn(128, 2)

    return stream(Parts(run, net=mlp((5, 96, 96, 2)), noise=nn.Parameter(torch.zeros(2))), draw, loss)
