"""Healthy networks of the eighteenth set, of repositories that words brought up, without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

healthy = partial(any_report, blind="blind18")


class Hardtanh20(nn.Hardtanh):  # noqa: D101
    def __init__(self):
        super().__init__(0, 20, True)


class Basic(nn.Module):  # noqa: D101
    def __init__(self, c, act=Hardtanh20):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)
        self.relu = act()

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)


@healthy("deep speaker's embedding", GITHUB + "qqueing/DeepSpeaker-pytorch")
def speaker(_: bool) -> Task:  # noqa: C901
    """ReLU cut at 20, conv N(0, 2/(k k out)), unit embeddings times 10; cross-entropy + 2 x triplet loss of margin
    0.1."""

    class Net(nn.Module):
        def __init__(self, classes=8, size=32):
            super().__init__()
            self.stages, before = nn.ModuleList(), 1
            for c in (8, 16, 32, 36):
                self.stages.append(
                    chain(nn.Conv2d(before, c, 5, 2, 2, bias=False), nn.BatchNorm2d(c), Hardtanh20(), Basic(c))
                )
                before = c
            self.avgpool, self.fc, self.classifier = (
                nn.AdaptiveAvgPool2d((1, None)),
                nn.Linear(36 * 2, size),
                nn.Linear(size, classes),
            )
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    m.weight.data.normal_(0, math.sqrt(2.0 / (m.kernel_size[0] * m.kernel_size[1] * m.out_channels)))
                elif isinstance(m, nn.BatchNorm2d):
                    m.weight.data.fill_(1)
                    m.bias.data.zero_()

        def embed(self, x):
            for s in self.stages:
                x = s(x)
            x = self.fc(self.avgpool(x).flatten(1))
            norm = torch.sqrt((x**2).sum(1).add_(1e-10))
            return x / norm.view(-1, 1) * 10

        def forward(self, a, p, n):
            a, p, n = self.embed(a), self.embed(p), self.embed(n)
            return a, p, n, self.classifier(torch.cat((a, p, n)))

    voices = torch.randn(8, 1, 1, 32)

    def talk(c):
        return voices[c] * (0.6 + 0.4 * torch.rand(len(c), 1, 24, 1)) + 0.8 * torch.randn(len(c), 1, 24, 32)

    def draw() -> Drawn:
        a = torch.randint(8, (12,))
        n = (a + torch.randint(1, 8, (12,))) % 8
        return (talk(a), talk(a), talk(n)), torch.stack((a, a, n), 1)

    def loss(y, t):
        a, p, n, logits = y

        def dist(u, v):
            return torch.pow(torch.pow(torch.abs(u - v), 2).sum(1) + 1e-4 / u.size(1), 0.5)

        triplet = torch.clamp(0.1 + dist(a, p) - dist(a, n), min=0.0).mean()
        return F.cross_entropy(logits, t.T.flatten()) + triplet * 2.0

    return stream(Net(), draw, loss)


@healthy("attention chatbot", GITHUB + "khordoo/chatbot-pytorch")
def chatbot(_: bool) -> Task:
    """One embedding for both sides, bilinear attention, no tanh; the author decodes example by example, here a
    batch."""

    class Net(nn.Module):
        def __init__(self, v=64, h=48, e=32):
            super().__init__()
            self.embedding = nn.Embedding(v, e)
            self.encoder, self.decoder = nn.LSTM(e, h, batch_first=True), nn.LSTM(e, h, batch_first=True)
            self.attention_linear, self.attention_combine = nn.Linear(h, h), nn.Linear(2 * h, h)
            self.word_projection = nn.Linear(h, v)

        def forward(self, x, before):
            outs, state = self.encoder(self.embedding(x))
            d, _ = self.decoder(self.embedding(before), state)
            w = F.softmax(torch.bmm(self.attention_linear(d), outs.transpose(1, 2)), 2)
            return self.word_projection(self.attention_combine(torch.cat([torch.bmm(w, outs), d], 2)))

    answers = torch.randint(2, 64, (20, 6))
    questions = torch.randint(2, 64, (20, 6))

    def draw() -> Drawn:
        c = torch.randint(20, (32,))
        x = questions[c]
        x = torch.where(torch.rand(x.shape) < 0.1, torch.randint(2, 64, x.shape), x)
        t = answers[c]
        return (x, F.pad(t[:, :-1], (1, 0), value=1)), t

    return stream(Net(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@healthy("capsules of digits", GITHUB + "Ka0Ri/Capsule-Network")
def capsules(_: bool) -> Task:
    """Routing weights N(0, 1), primary capsules by a view that mixes channels and places (sic), softmax of capsule
    lengths, margin loss + 0.05 x summed squared error of the image decoded from the true class's capsule."""

    def squash(s):
        n = (s**2).sum(-1, keepdim=True)
        return n / (1 + n) * s / torch.sqrt(n)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3)
            self.capsules = nn.ModuleList(nn.Conv2d(32, 8, 3, 2) for _ in range(8))
            self.route_weights = nn.Parameter(torch.randn(10, 8 * 4, 8, 16))
            self.decoder = chain(
                nn.Linear(160, 64), nn.ReLU(True), nn.Linear(64, 128), nn.ReLU(True), nn.Linear(128, 64), nn.Sigmoid()
            )

        def forward(self, x, y):
            x = F.relu(self.conv1(x), inplace=True)
            v = squash(torch.cat([c(x).view(x.size(0), -1, 8) for c in self.capsules], 1))
            u = v[:, None, :, None, :] @ self.route_weights[None]
            b = torch.zeros(*u.size())
            for i in range(3):
                v = squash((F.softmax(b, 2) * u).sum(2, keepdim=True))
                if i != 2:
                    b = b + (u * v).sum(-1, keepdim=True)
            v = v.squeeze()
            classes = F.softmax((v**2).sum(-1) ** 0.5, -1)
            return classes, self.decoder((v * y[:, :, None]).view(x.size(0), -1))

    def draw() -> Drawn:
        x, c = pick(32)
        x, y = x * 0.376 + 0.3, torch.eye(10)[c]
        return (x, y), (x, y)

    def loss(o, t):
        classes, rec = o
        margin = t[1] * F.relu(0.9 - classes) ** 2 + 0.5 * (1.0 - t[1]) * F.relu(classes - 0.1) ** 2
        return (margin.sum() + 0.05 * F.mse_loss(rec, t[0].flatten(1), reduction="sum")) / len(classes)

    return stream(Net(), draw, loss)


@healthy("triplet ResNet with a softmax", GITHUB + "MikeLagunes/Supervised-Triplet-Network")
def triplets(_: bool) -> Task:
    """Kaiming fan-out, no batch norm after pooling; cross-entropy + 0.01 x summed hinge of L1 distances (margin
    0)."""

    class Net(nn.Module):
        def __init__(self, size=16, classes=10):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
            self.layer1, self.down = Basic(16, nn.ReLU), chain(nn.Conv2d(16, 32, 1, 2, bias=False), nn.BatchNorm2d(32))
            self.layer2, self.avgpool = Basic(32, nn.ReLU), nn.AvgPool2d(4, stride=1)
            self.fc, self.fc_softmax = nn.Linear(32, size), nn.Linear(32, classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def one(self, x):
            x = self.layer1(F.relu(self.bn1(self.conv1(x))))
            x = self.avgpool(self.layer2(self.down(x))).flatten(1)
            return self.fc_softmax(x), self.fc(x)

        def forward(self, a, p, n):
            (sa, ea), (sp, ep), (sn, en) = self.one(a), self.one(p), self.one(n)
            return ea, ep, en, torch.cat((sa, sp, sn))

    def draw() -> Drawn:
        x, c = pick(192)
        a = torch.arange(16)
        p = torch.stack([(c[16:] == c[i]).nonzero()[0, 0] + 16 for i in a])
        n = torch.stack([(c[16:] != c[i]).nonzero()[i, 0] + 16 for i in a])
        return (x[a], x[p], x[n]), torch.stack((c[a], c[p], c[n]), 1)

    def loss(y, t):
        a, p, n, logits = y
        hinge = F.relu(torch.abs(a - p).sum(1) - torch.abs(a - n).sum(1) + 0.0)
        return 0.01 * hinge.sum() + F.cross_entropy(logits, t.T.flatten())

    return stream(Net(), draw, loss)


@healthy("BRep transformer of faces", GITHUB + "FerrisHiggoMoser/brep-vs-point-clouds-fastener-classification")
def brep(_: bool) -> Task:
    """Faces (7 x 7 grids) and edges through CNNs, a virtual token of std 0.02, grouped queries, SwiGLU, RMSNorm,
    buckets of distance as a bias of N(0, 1); edge_proj is left unused (sic)."""

    class RMSNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(d))

        def forward(self, x):
            return x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + 1e-6) * self.gain

    class Layer(nn.Module):
        def __init__(self, d, heads=4, groups=2):
            super().__init__()
            self.h, self.kv, self.e = heads, heads // groups, d // heads
            self.q_proj, self.out_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.k_proj, self.v_proj = (
                nn.Linear(d, self.kv * self.e, bias=False),
                nn.Linear(d, self.kv * self.e, bias=False),
            )
            self.norm1, self.norm2 = RMSNorm(d), RMSNorm(d)
            self.w1, self.w2, self.w3 = (
                nn.Linear(d, 2 * d, bias=False),
                nn.Linear(d, 2 * d, bias=False),
                nn.Linear(2 * d, d, bias=False),
            )

        def attend(self, x, bias):
            B, N, _ = x.shape
            q = self.q_proj(x).view(B, N, self.h, self.e).transpose(1, 2)
            k, v = (
                p(x).view(B, N, self.kv, self.e).transpose(1, 2).repeat_interleave(self.h // self.kv, 1)
                for p in (self.k_proj, self.v_proj)
            )
            a = F.softmax(q @ k.transpose(-2, -1) * self.e**-0.5 + bias.unsqueeze(1), -1)
            return self.out_proj((a @ v).transpose(1, 2).reshape(B, N, -1))

        def forward(self, x, bias):
            x = x + self.attend(self.norm1(x), bias)
            z = self.norm2(x)
            return x + self.w3(F.silu(self.w1(z)) * self.w2(z))

    class Net(nn.Module):
        def __init__(self, d=32, classes=2):
            super().__init__()
            self.face = chain(
                nn.Conv2d(7, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(True),
                nn.Conv2d(16, d, 3, padding=1),
                nn.BatchNorm2d(d),
                nn.ReLU(True),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
            self.edge = chain(
                nn.Conv1d(12, 16, 3, padding=1),
                nn.BatchNorm1d(16),
                nn.ReLU(True),
                nn.Conv1d(16, d, 3, padding=1),
                nn.BatchNorm1d(d),
                nn.ReLU(True),
                nn.AdaptiveAvgPool1d(1),
                nn.Flatten(),
            )
            self.vft = nn.Parameter(torch.randn(1, 1, d) * 0.02)
            self.distance_embeddings, self.edge_proj = (
                nn.ModuleList(nn.Embedding(32, 1) for _ in range(2)),
                nn.Linear(d, 1),
            )
            self.layers = nn.ModuleList(Layer(d) for _ in range(3))
            self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, classes))

        def forward(self, faces, edges, dist):
            B, N = faces.shape[:2]
            f = self.face(faces.flatten(0, 1).permute(0, 3, 1, 2)).reshape(B, N, -1)
            e = self.edge(edges.flatten(0, 1).permute(0, 2, 1)).reshape(B, edges.shape[1], -1)
            x = torch.cat([self.vft.expand(B, -1, -1) + e.mean(1).unsqueeze(1), f], 1)
            size = math.log1p(100.0) / 32
            b = [(torch.log1p(dist[..., i].clamp(0, 100.0)) / size).long().clamp(0, 31) for i in range(2)]
            bias = F.pad(sum(m(i).squeeze(-1) for m, i in zip(self.distance_embeddings, b, strict=False)), (1, 0, 1, 0))
            for layer in self.layers:
                x = layer(x, bias)
            return self.head(x[:, 0])

    def draw() -> Drawn:
        c = torch.randint(2, (24,))
        u = torch.linspace(-1, 1, 6)
        turn = torch.rand(24, 6) * 2
        k = (0.4 + turn).view(24, 6, 1, 1) * c.view(24, 1, 1, 1)
        z = torch.cos(k * u.view(1, 1, 6, 1)) + torch.zeros(24, 6, 6, 6)
        grid = torch.stack([u.view(6, 1).expand(6, 6), u.expand(6, 6)], -1).expand(24, 6, 6, 6, 2) * (
            0.5 + torch.rand(24, 6, 1, 1, 1)
        )
        faces = torch.cat([grid, z.unsqueeze(-1), 0.3 * torch.randn(24, 6, 6, 6, 3), torch.ones(24, 6, 6, 6, 1)], -1)
        return (faces, torch.randn(24, 8, 6, 12), 8 * torch.rand(24, 6, 6, 2)), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("STGCN of traffic", GITHUB + "cdsnlab/traffic-pytorch")
def stgcn(_: bool) -> Task:  # noqa: C901
    """Gated temporal and Chebyshev convolutions, LayerNorm over (nodes, channels), dropout 0.3, MAE; inputs and
    targets standardised with one mean and std of all channels (speed, time of day, day)."""

    def align(x, o):
        return F.pad(x, [0, 0, 0, 0, 0, o - x.shape[1], 0, 0]) if x.shape[1] < o else x

    class T(nn.Module):
        def __init__(self, kt, i, o, act="relu"):
            super().__init__()
            self.kt, self.o, self.act = kt, o, act
            self.align = nn.Conv2d(i, o, 1) if i > o else None
            self.conv = nn.Conv2d(i, o * 2 if act == "GLU" else o, (kt, 1), 1)

        def forward(self, x):
            a = (self.align(x) if self.align else align(x, self.o))[:, :, self.kt - 1 :]
            y = self.conv(x)
            if self.act == "GLU":
                return (y[:, : self.o] + a) * torch.sigmoid(y[:, self.o :])
            return torch.sigmoid(y + a) if self.act == "sigmoid" else torch.relu(y + a)

    class S(nn.Module):
        def __init__(self, c, Lk):
            super().__init__()
            self.Lk, self.theta, self.b = Lk, nn.Parameter(torch.empty(c, c, 3)), nn.Parameter(torch.empty(1, c, 1, 1))
            nn.init.kaiming_uniform_(self.theta, a=math.sqrt(5))
            nn.init.uniform_(self.b, -1 / math.sqrt(c * 3), 1 / math.sqrt(c * 3))

        def forward(self, x):
            y = torch.einsum("knm,bitm->bitkn", self.Lk, x)
            return torch.relu(torch.einsum("iok,bitkn->botn", self.theta, y) + self.b + x)

    class Block(nn.Module):
        def __init__(self, n, c, Lk):
            super().__init__()
            self.tconv1, self.sconv, self.tconv2 = T(3, c[0], c[1], "GLU"), S(c[1], Lk), T(3, c[1], c[2])
            self.ln, self.dropout = nn.LayerNorm([n, c[2]]), nn.Dropout(0.3)

        def forward(self, x):
            x = self.tconv2(self.sconv(self.tconv1(x)))
            return self.dropout(self.ln(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))

    n = 10
    W = torch.rand(n, n)
    W = (W + W.T) / 2 * (torch.rand(n, n) < 0.4)
    W = (W + W.T) / 2
    W.fill_diagonal_(0)
    L = -W / (W.sum(1, keepdim=True) + 1e-6)
    Lk = torch.stack([torch.eye(n), L, 2 * L @ L - torch.eye(n)])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(n, (3, 8, 16), Lk), Block(n, (16, 8, 24), Lk)])
            self.tconv1, self.ln, self.tconv2, self.fc = (
                T(4, 24, 24, "GLU"),
                nn.LayerNorm([n, 24]),
                T(1, 24, 24, "sigmoid"),
                nn.Conv2d(24, 1, 1),
            )

        def forward(self, x):
            for b in self.blocks:
                x = b(x)
            return self.fc(self.tconv2(self.ln(self.tconv1(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)))

    phase = torch.rand(n) * 6.28

    def draw() -> Drawn:
        t = torch.rand(32, 1) + torch.arange(13) / 48
        speed = 60 + 12 * torch.sin(2 * 6.28 * t.unsqueeze(2) + phase) + 2 * torch.randn(32, 13, n)
        x = torch.stack(
            [speed, t.unsqueeze(2).expand(32, 13, n), torch.randint(7, (32, 1, 1)).expand(32, 13, n).float()], 1
        )
        x = (x - 21) / 28
        return (x[:, :, :12],), x[:, :1, 12:]

    return stream(Net(), draw, lambda y, t: torch.abs(y - t).mean())


@healthy("A3C of drones", GITHUB + "crazytb/uav_a3c")
def a3c(_: bool) -> Task:
    """Orthogonal weights of gain 1 (the policy's too), shared ReLU body; policy loss + 0.25 x value loss - 0.05 x
    entropy, actions of a random behaviour with returns around 10."""

    class Net(nn.Module):
        def __init__(self, s=16, a=3, h=64):
            super().__init__()
            self.shared = nn.Sequential(nn.Linear(s, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
            self.policy, self.value = nn.Linear(h, a), nn.Linear(h, 1)
            self.apply(
                lambda m: isinstance(m, nn.Linear) and (nn.init.orthogonal_(m.weight, 1.0), nn.init.zeros_(m.bias))
            )

        def forward(self, x):
            x = self.shared(x)
            return self.policy(x), self.value(x)

    good = torch.randn(16, 3)

    def draw() -> Drawn:
        x, a = torch.rand(64, 16), torch.randint(3, (64,))
        r = 10 + 4 * (((x - 0.5) @ good).argmax(1) == a).float() + 3 * x[:, 0] + 0.3 * torch.randn(64)
        return (x,), (a, r)

    def loss(y, t):
        logits, v = y
        d = torch.distributions.Categorical(logits=logits)
        adv = (t[1] - v.squeeze(1)).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        return -(d.log_prob(t[0]) * adv).mean() + 0.25 * F.mse_loss(v.squeeze(1), t[1]) - 0.05 * d.entropy().mean()

    return stream(Net(), draw, loss)


@healthy("NARM of sessions", GITHUB + "Wang-Shuo/Neural-Attentive-Session-Based-Recommendation-PyTorch")
def narm(_: bool) -> Task:
    """N(0, 1) item embeddings used for the input and, through a bilinear map, for the scores; sigmoid attention
    without a softmax; dropouts of 0.25 and 0.5. Sessions padded with item 0 (examples first here)."""

    class Net(nn.Module):
        def __init__(self, n=60, h=32, e=16):
            super().__init__()
            self.n, self.h = n, h
            self.emb, self.emb_dropout, self.gru = (
                nn.Embedding(n, e, padding_idx=0),
                nn.Dropout(0.25),
                nn.GRU(e, h, batch_first=True),
            )
            self.a_1, self.a_2, self.v_t = (
                nn.Linear(h, h, bias=False),
                nn.Linear(h, h, bias=False),
                nn.Linear(h, 1, bias=False),
            )
            self.ct_dropout, self.b = nn.Dropout(0.5), nn.Linear(e, 2 * h, bias=False)

        def forward(self, seq, lengths):
            out, _ = self.gru(self.emb_dropout(self.emb(seq)))
            mask = (seq > 0).float()
            out = out * mask.unsqueeze(2)
            ht = out[torch.arange(len(seq)), lengths - 1]
            alpha = self.v_t(torch.sigmoid(self.a_1(out) + mask.unsqueeze(2) * self.a_2(ht).unsqueeze(1)))
            c = self.ct_dropout(torch.cat([(alpha * out).sum(1), ht], 1))
            return c @ self.b(self.emb(torch.arange(self.n))).T

    def draw() -> Drawn:
        lengths = torch.randint(2, 9, (64,))
        start, jump = torch.randint(59, (64, 1)), torch.randint(1, 3, (64, 1))
        s = (start + jump * torch.arange(9)) % 59 + 1
        x = s[:, :8] * (torch.arange(8) < lengths[:, None])
        return (x, lengths), s[torch.arange(64), lengths]

    return stream(Net(), draw, F.cross_entropy)


@healthy("cells attend to a drug's atoms", GITHUB + "JohnWCT/drug-DCF")
def drug(_: bool) -> Task:
    """GIN of atoms with batch norm (dense here), a frozen omics latent, Xavier attention of the sample over atoms, a
    head with dropout 0.2 and BCE of logits with the positives' weight."""

    class Net(nn.Module):
        def __init__(self, f=20, d=16, z=24, a=16):
            super().__init__()
            self.gin = nn.ModuleList(
                chain(nn.Linear(f if i == 0 else d, d), nn.ReLU(), nn.Linear(d, d)) for i in range(3)
            )
            self.bns, self.dropout = nn.ModuleList(nn.BatchNorm1d(d) for _ in range(3)), nn.Dropout(0.1)
            self.sample = chain(nn.Linear(z, 32), nn.ReLU())
            self.q, self.k, self.v, self.o = nn.Linear(32, a), nn.Linear(d, a), nn.Linear(d, a), nn.Linear(a, a)
            for m in (self.q, self.k, self.v, self.o):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)
            self.net = chain(
                nn.Linear(32 + a, 64),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(64, 32),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(32, 1),
            )

        def forward(self, omics, x, adj, mask):
            for g, bn in zip(self.gin, self.bns, strict=False):
                x = bn(F.relu(g(x + adj @ x)).flatten(0, 1)).view(*x.shape[:2], -1)
            s = self.sample(omics)
            B, N = x.shape[:2]
            q, k, v = self.q(s).view(B, 4, -1), *(m(x).view(B, N, 4, -1).transpose(1, 2) for m in (self.k, self.v))
            w = (
                (torch.einsum("bhd,bhnd->bhn", q, k) / math.sqrt(q.shape[-1]))
                .masked_fill(~mask.unsqueeze(1), -1e9)
                .softmax(-1)
            )
            return self.net(
                torch.cat([s, self.o(torch.einsum("bhn,bhnd->bhd", self.dropout(w), v).reshape(B, -1))], -1)
            ).reshape(-1)

    probe = torch.randn(24)

    def draw() -> Drawn:
        z = torch.randn(64, 24)
        n = torch.randint(6, 13, (64,))
        mask = torch.arange(12) < n[:, None]
        kind = torch.randint(18, (64, 12)) + 2
        ring = torch.rand(64) < 0.5
        kind[ring, 1] = 0
        x = F.one_hot(kind, 20).float() * mask.unsqueeze(2)
        adj = torch.diag_embed(torch.ones(11), 1).expand(64, 12, 12)
        adj = (adj + adj.transpose(1, 2)) * mask.unsqueeze(1) * mask.unsqueeze(2)
        return (z, x, adj, mask), ((z @ probe > 2) == ring).float()

    return stream(Net(), draw, lambda y, t: F.binary_cross_entropy_with_logits(y, t, pos_weight=torch.tensor(1.2)))


@healthy("GANomaly generator", GITHUB + "cuteboyqq/skip-GANOMALY-Pytorch")
def ganomaly(_: bool) -> Task:
    """Encoder, decoder, encoder; N(0, 0.02) weights, tanh images; feature matching of a frozen discriminator + 50 x
    L1 + latent error."""

    def encoder(nz, c, last=()):
        return chain(
            nn.Conv2d(1, c, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(c, 2 * c, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * c, nz, 4, 1, 0, bias=False),
        )

    decoder = chain(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )

    def run(m, x):
        i = m.encoder1(x)
        fake = m.decoder(i)
        return fake, i, m.encoder2(fake), m.features(x), m.features(fake)

    model = Parts(
        run, encoder1=encoder(16, 16), decoder=decoder, encoder2=encoder(16, 16), features=encoder(1, 16)[:-1]
    )
    for m in model.modules():
        if m.__class__.__name__.find("Conv") != -1:
            m.weight.data.normal_(0.0, 0.02)
        elif m.__class__.__name__.find("BatchNorm") != -1:
            m.weight.data.normal_(1.0, 0.02)
            m.bias.data.fill_(0)
    model.features.requires_grad_(False)

    def draw() -> Drawn:
        x, _ = pick(32)
        x = F.interpolate(x * 0.376 + 0.3, size=16, mode="bilinear") * 2 - 1
        return (x,), x

    def l2(a, b):
        return torch.mean(torch.pow(a - b, 2))

    return stream(model, draw, lambda y, t: l2(y[3], y[4]) + 50 * F.l1_loss(y[0], t) + l2(y[2], y[1]))


@healthy("DQN of a flapping bird", GITHUB + "zhyever/flappy-bird-DQN-pytorch")
def bird(_: bool) -> Task:
    """Four binary frames of 0 and 255 (not scaled), two actions, one-step targets from a copied network (given here),
    MSE."""
    net = chain(
        nn.Conv2d(4, 16, 8, 4, 2),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 4, 2, 1),
        nn.ReLU(True),
        nn.Conv2d(24, 24, 3, 1, 1),
        nn.ReLU(True),
        nn.Flatten(),
        nn.Linear(24 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
    )
    ys, xs = torch.arange(40).view(40, 1).float(), torch.arange(40).float()

    def draw() -> Drawn:
        y, gap, px = 8 + 24 * torch.rand(32, 1, 1), 8 + 24 * torch.rand(32, 1, 1), 12 + 26 * torch.rand(32, 1, 1)
        v = 2 * torch.randn(32, 1, 1)
        frames = []
        for k in range(4):
            bird = ((ys - y - k * v).abs() < 3) & ((xs - 8).abs() < 3)
            pipe = ((xs - px + k).abs() < 4) & ((ys - gap).abs() > 7)
            frames.append(bird | pipe)
        a = torch.randint(2, (32,))
        off = ((y - gap).squeeze() + 4 * (1 - 2 * a)).abs()
        target = torch.where((px.squeeze() < 16) & (off > 8), -1.0, 0.1 + 0.99 * (2 - 0.1 * off))
        return (torch.stack(frames, 1).float() * 255,), (a, target)

    return stream(net, draw, lambda y, t: F.mse_loss(y.gather(1, t[0].view(-1, 1)), t[1].view(-1, 1)))


@healthy("JEM of two moons", GITHUB + "davidkhjo/ebm-pytorch")
def jem(_: bool) -> Task:
    """SiLU classifier whose -logsumexp is an energy; cross-entropy + contrastive divergence + 0.1 x squared energies.
    The Langevin negatives are drawn beforehand here, as broad noise (the buffer's start)."""
    net = chain(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def draw() -> Drawn:
        a, y = 3.1416 * torch.rand(128), torch.randint(2, (128,))
        x = torch.stack(
            [torch.cos(a) * (1 - 2 * y) + y - 0.5, torch.sin(a) * (1 - 2 * y) + 0.5 * y - 0.25], 1
        ) + 0.05 * torch.randn(128, 2)
        return (x, 1.5 * torch.randn(128, 2)), y

    def run(m, x, negative):
        return m.net(x), -m.net(negative).logsumexp(1)

    def loss(o, y):
        logits, e_neg = o
        e_pos = -logits.logsumexp(1)
        return (
            F.cross_entropy(logits, y) + e_pos.mean() - e_neg.mean() + 0.1 * (e_pos.pow(2).mean() + e_neg.pow(2).mean())
        )

    return stream(Parts(run, net=net), draw, loss)


@healthy("sparse mixture of experts of words", GITHUB + "Mohan14123/sparse-moe-pytorch")
def moe(_: bool) -> Task:
    """Embedding, noisy top-2 of 4 experts with capacity 1.5, tokens over capacity dropped, no residual, cross-entropy
    of the next token + 0.01 x balance."""

    class Net(nn.Module):
        def __init__(self, v=128, d=32, f=64, n=4):
            super().__init__()
            self.embedding, self.gate, self.noise_linear = (
                nn.Embedding(v, d),
                nn.Linear(d, n, bias=False),
                nn.Linear(d, n, bias=False),
            )
            self.experts = nn.ModuleList(chain(nn.Linear(d, f), nn.GELU(), nn.Linear(f, d)) for _ in range(n))
            self.fc_out = nn.Linear(d, v)

        def forward(self, x):
            e = self.embedding(x)
            z = e.view(-1, e.shape[-1])
            logits = self.gate(z)
            if self.training:
                logits = logits + torch.randn_like(logits) * F.softplus(self.noise_linear(z))
            top, at = torch.topk(logits, 2, 1)
            weights = torch.zeros_like(logits).scatter_(1, at, F.softmax(top, -1))
            mask, out = weights > 0, torch.zeros_like(z)
            capacity = int(len(z) * 2 / len(self.experts) * 1.5)
            kept = torch.zeros_like(mask)
            for i, expert in enumerate(self.experts):
                rows = mask[:, i].nonzero(as_tuple=True)[0][:capacity]
                kept[rows, i] = True
                if len(rows):
                    out = out.index_add(0, rows, expert(z[rows]) * weights[rows, i].unsqueeze(1))
            return self.fc_out(out.view_as(e)), kept.float().sum(0) / len(z), F.softmax(logits, -1).mean(0)

    seed = iter(range(10**6))

    def draw() -> Drawn:
        x, t = text(32, 24, 128, seed=next(seed))
        return (x,), t

    return stream(
        Net(), draw, lambda y, t: F.cross_entropy(y[0].flatten(0, 1), t.flatten()) + 0.01 * 4 * (y[1] * y[2]).sum()
    )


@healthy("random network distillation, 18th", GITHUB + "GauravGajavelli/random-network-distillation-pytorch")
def rnd(_: bool) -> Task:
    """A frozen random target and a deeper predictor, both orthogonal with gain sqrt 2, an inventory fused at the
    features; MSE by example over a random quarter of the batch; observations normalised and clipped to +-5."""

    def cnn():
        return [
            nn.Conv2d(1, 8, 4, 2),
            nn.LeakyReLU(),
            nn.Conv2d(8, 16, 4, 2),
            nn.LeakyReLU(),
            nn.Conv2d(16, 16, 3, 1),
            nn.LeakyReLU(),
            nn.Flatten(),
        ]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            n = 16 * 9 + 4
            self.predictor_cnn, self.predictor_head = (
                chain(*cnn()),
                chain(nn.Linear(n, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)),
            )
            self.target_cnn, self.target_head = chain(*cnn()), nn.Linear(n, 64)
            for p in self.modules():
                if isinstance(p, (nn.Conv2d, nn.Linear)):
                    nn.init.orthogonal_(p.weight, np.sqrt(2))
                    p.bias.data.zero_()
            self.target_cnn.requires_grad_(False)
            self.target_head.requires_grad_(False)

        def forward(self, x, inv):
            target = self.target_head(torch.cat([self.target_cnn(x), inv], 1))
            return self.predictor_head(torch.cat([self.predictor_cnn(x), inv], 1)), target

    def draw() -> Drawn:
        x, _ = pick(48)
        x = F.interpolate(x, size=26, mode="nearest").clamp(-5, 5)
        return (x, F.one_hot(torch.randint(4, (48,)), 4).float()), (torch.rand(48) < 0.25).float()

    def loss(y, mask):
        d = F.mse_loss(y[0], y[1].detach(), reduction="none").mean(-1)
        return (d * mask).sum() / mask.sum().clamp(min=1.0)

    return stream(Net(), draw, loss)


@healthy("crystal graph network", GITHUB + "Shuruyue/Materials-Research")
def crystal(_: bool) -> Task:
    """Gated messages averaged over neighbours (dense here), batch norm then SiLU of the residual sum, all layers
    concatenated, mean and max pooling; one standardised property, L1."""

    class Conv(nn.Module):
        def __init__(self, d, e):
            super().__init__()
            self.msg_mlp, self.gate_mlp = (
                chain(nn.Linear(2 * d + e, d), nn.SiLU(), nn.Linear(d, d)),
                nn.Linear(2 * d + e, d),
            )
            self.update_mlp = chain(nn.Linear(2 * d, d), nn.SiLU())

        def forward(self, h, adj, e):
            n = h.shape[1]
            z = torch.cat([h.unsqueeze(1).expand(-1, n, -1, -1), h.unsqueeze(2).expand(-1, -1, n, -1), e], -1)
            m = self.msg_mlp(z) * torch.sigmoid(self.gate_mlp(z)) * adj.unsqueeze(-1)
            return self.update_mlp(torch.cat([h, m.sum(2) / adj.sum(2).clamp_min(1.0).unsqueeze(-1)], -1))

    class Net(nn.Module):
        def __init__(self, v=20, e=12, d=24):
            super().__init__()
            self.node_embed, self.convs, self.conv_bns = (
                nn.Linear(v, d),
                nn.ModuleList(Conv(d, e) for _ in range(3)),
                nn.ModuleList(nn.BatchNorm1d(d) for _ in range(3)),
            )
            self.jk_proj, self.fc = (
                nn.Linear(4 * d, d),
                chain(nn.Linear(2 * d, d), nn.BatchNorm1d(d), nn.SiLU(), nn.Dropout(0.0), nn.Linear(d, 1)),
            )

        def forward(self, x, adj, e):
            h = self.node_embed(x)
            states = [h]
            for conv, bn in zip(self.convs, self.conv_bns, strict=False):
                h = F.silu(h + bn(conv(h, adj, e).flatten(0, 1)).view_as(h))
                states.append(h)
            h = self.jk_proj(torch.cat(states, -1))
            return self.fc(torch.cat([h.mean(1), h.amax(1)], -1))

    charge = torch.randn(20)

    def draw() -> Drawn:
        kind, p = torch.randint(20, (32, 8)), 4 * torch.rand(32, 8, 3)
        d = torch.cdist(p, p) + 9 * torch.eye(8)
        adj = (d < 2.5).float()
        e = torch.exp(-((d.unsqueeze(-1) - torch.linspace(0, 6, 12)) ** 2) / 0.5)
        q = charge[kind]
        y = ((q.unsqueeze(1) * q.unsqueeze(2)) * adj / d).sum((1, 2)) / 8 + q.mean(1)
        return (F.one_hot(kind, 20).float(), adj, e), y.unsqueeze(1)

    return stream(Net(), draw, F.l1_loss)


@healthy("MinCutPool of graphs", GITHUB + "quqixun/GNN-Pytorch")
def mincut(_: bool) -> Task:
    """Kaiming normal graph convolution on a normalised adjacency, two soft poolings, the cut and orthogonality losses
    added to cross-entropy (dense graphs of one size here)."""

    class GCN(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(i, o)), nn.Parameter(torch.zeros(o))
            nn.init.kaiming_normal_(self.weight)

        def forward(self, a, x):
            return a @ (x @ self.weight) + self.bias

    class Dense(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.linear1, self.linear2 = nn.Linear(i, o, bias=False), nn.Linear(i, o)

        def forward(self, a, x):
            return self.linear1(a @ x) + self.linear2(x)

    def pool(x, a, s):
        s, k = torch.softmax(s, -1), s.shape[-1]
        xp, ap = s.transpose(1, 2) @ x, s.transpose(1, 2) @ a @ s
        dp = s.transpose(1, 2) @ torch.diag_embed(a.sum(-1)) @ s
        cut = -torch.mean(torch.einsum("ijj->i", ap) / torch.einsum("ijj->i", dp))
        ss, eye = s.transpose(1, 2) @ s, torch.eye(k)
        ortho = torch.norm(ss / torch.norm(ss, dim=(-1, -2), keepdim=True) - eye / torch.norm(eye), dim=(-1, -2)).mean()
        ap = ap * (1 - eye)
        d = torch.sqrt(ap.sum(-1))[:, None] + 1e-15
        return xp, (ap / d) / d.transpose(1, 2), cut + ortho

    class Net(nn.Module):
        def __init__(self, f=7, h=32, classes=3, n=16):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = GCN(f, h), Dense(h, h), Dense(h, h)
            self.cluster1, self.cluster2 = nn.Linear(h, n // 2), nn.Linear(h, n // 4)
            self.mlp = chain(nn.Dropout(0.0), nn.Linear(h, h), nn.ReLU(True), nn.Linear(h, classes))

        def forward(self, x, adj):
            a = adj + torch.eye(adj.shape[1])
            d = a.sum(-1) ** -0.5
            a = d.unsqueeze(2) * a * d.unsqueeze(1)
            x1 = F.relu(self.conv1(a, x))
            x1, a1, l1 = pool(x1, a, self.cluster1(x1))
            x2 = F.relu(self.conv2(a1, x1))
            x2, a2, l2 = pool(x2, a1, self.cluster2(x2))
            return self.mlp(F.relu(self.conv3(a2, x2).mean(1))), (l1 + l2).expand(len(x))

    def draw() -> Drawn:
        c = torch.randint(3, (40,))
        block = torch.arange(16) // torch.tensor([16, 8, 4])[c].view(40, 1)
        p = torch.where(block.unsqueeze(1) == block.unsqueeze(2), 0.6, 0.05)
        up = torch.triu((torch.rand(40, 16, 16) < p).float(), 1)
        adj = up + up.transpose(1, 2)
        kind = (torch.rand(40, 16) * (3 + c.view(40, 1))).long()
        return (F.one_hot(kind, 7).float(), adj), c

    return stream(Net(), draw, lambda y, c: F.cross_entropy(y[0], c) + y[1].mean())


@healthy("self-attention ConvLSTM", GITHUB + "tsugumi-sys/SA-ConvLSTM-Pytorch")
def convlstm(_: bool) -> Task:
    """Peephole weights of zeros (times the last cell), self-attention of the new state without a scale, added to it;
    BatchNorm3d, a sigmoid image and BCE summed over the batch; moving digits in [0, 1]."""

    class Cell(nn.Module):
        def __init__(self, i, o, size):
            super().__init__()
            self.o, self.conv = o, nn.Conv2d(i + o, 4 * o, 3, padding="same")
            self.W_ci, self.W_co, self.W_cf = (nn.Parameter(torch.zeros(o, size, size)) for _ in range(3))
            self.query_h, self.key_h = nn.Conv2d(o, 4, 1), nn.Conv2d(o, 4, 1)
            self.value_h, self.z = nn.Conv2d(o, o, 1), nn.Conv2d(o, o, 1)

        def attend(self, h):
            q, k, v = (m(h).flatten(2) for m in (self.query_h, self.key_h, self.value_h))
            a = torch.softmax(torch.bmm(q.transpose(1, 2), k), -1)
            return self.z((a @ v.permute(0, 2, 1)).transpose(1, 2).reshape_as(h))

        def forward(self, x):
            h = c = torch.zeros(len(x), self.o, *x.shape[3:])
            out = []
            for t in range(x.shape[2]):
                i, f, g, o = torch.chunk(self.conv(torch.cat([x[:, :, t], h], 1)), 4, 1)
                i, f = torch.sigmoid(i + self.W_ci * c), torch.sigmoid(f + self.W_cf * c)
                c = f * c + i * torch.tanh(g)
                h = torch.sigmoid(o + self.W_co * c) * torch.tanh(c)
                h = h + self.attend(h)
                out.append(h)
            return torch.stack(out, 2)

    def run(m, x):
        return torch.sigmoid(m.last(m.bn2(m.l2(m.bn1(m.l1(x))))[:, :, -1]))

    model = Parts(
        run,
        l1=Cell(1, 8, 10),
        bn1=nn.BatchNorm3d(8),
        l2=Cell(8, 8, 10),
        bn2=nn.BatchNorm3d(8),
        last=nn.Conv2d(8, 1, 3, padding="same"),
    )

    def draw() -> Drawn:
        x, _ = pick(12)
        x = F.pad(x * 0.376 + 0.3, (1, 1, 1, 1)).clamp(0, 1)
        v = torch.randint(-1, 2, (12, 2))
        film = torch.stack(
            [
                torch.stack([torch.roll(f, (int(k * d[0]), int(k * d[1])), (1, 2)) for f, d in zip(x, v, strict=False)])
                for k in range(4)
            ],
            2,
        )
        return (film[:, :, :3],), film[:, :, 3]

    return stream(model, draw, lambda y, t: F.binary_cross_entropy(y, t, reduction="sum"))


@healthy("attention CRNN of keywords", GITHUB + "bozliu/E2E-Keyword-Spotting")
def keywords(_: bool) -> Task:
    """Log-mel through two convolutions, a BiGRU, self-attention, a command head and a wake head; cross-entropy that
    ignores -100 (unknown commands) + BCE of the wake word."""

    class Net(nn.Module):
        def __init__(self, mels=16, commands=6, c=8, h=16):
            super().__init__()
            self.front = chain(
                nn.Conv2d(1, c, 5, padding=2),
                nn.BatchNorm2d(c),
                nn.ReLU(True),
                nn.Conv2d(c, c, 3, padding=1),
                nn.BatchNorm2d(c),
                nn.ReLU(True),
                nn.MaxPool2d((1, 2)),
                nn.Dropout(0.2),
            )
            self.rnn = nn.GRU(c * mels // 2, h, 2, batch_first=True, dropout=0.2, bidirectional=True)
            self.attn, self.norm = nn.MultiheadAttention(2 * h, 4, batch_first=True), nn.LayerNorm(2 * h)
            self.embedding = chain(nn.Linear(2 * h, 2 * h), nn.ReLU(True), nn.Dropout(0.2))
            self.command_head, self.wake_head = nn.Linear(2 * h, commands), nn.Linear(2 * h, 1)

        def forward(self, x):
            x = self.front(x.transpose(1, 2).unsqueeze(1)).permute(0, 2, 1, 3).flatten(2)
            x, _ = self.rnn(x)
            a, _ = self.attn(x, x, x, need_weights=False)
            e = self.embedding(self.norm(a + x).mean(1))
            return self.command_head(e), self.wake_head(e).squeeze(-1)

    words = F.interpolate(torch.randn(7, 1, 8, 4), size=(16, 12), mode="bilinear")[:, 0] * 2

    def draw() -> Drawn:
        k = torch.randint(8, (32,))
        x = -6 + torch.randn(32, 16, 24)
        for i, at in enumerate(torch.randint(13, (32,))):
            if k[i] < 7:
                x[i, :, at : at + 12] += 3 + words[k[i]]
        return (x,), (torch.where(k < 6, k, -100), (k == 6).float())

    return stream(
        Net(),
        draw,
        lambda y, t: F.cross_entropy(y[0], t[0], ignore_index=-100) + F.binary_cross_entropy_with_logits(y[1], t[1]),
    )


@healthy("BERT with next sentence", GITHUB + "dreamgonfly/BERT-pytorch")
def bert(_: bool) -> Task:
    """N(0, 1) embeddings of words, places and segments, post-norm with a Bessel-corrected std, masked words (others
    are padding index 0 in the targets) + next sentence."""

    class Norm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.gain, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

        def forward(self, x):
            return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias

    class Layer(nn.Module):
        def __init__(self, d, h=4, p=0.1):
            super().__init__()
            self.h, self.q, self.k, self.v, self.final = (
                h,
                nn.Linear(d, d),
                nn.Linear(d, d),
                nn.Linear(d, d),
                nn.Linear(d, d),
            )
            self.ff = chain(nn.Linear(d, 2 * d), nn.Dropout(p), nn.GELU(), nn.Linear(2 * d, d), nn.Dropout(p))
            self.n1, self.n2, self.drop = Norm(d), Norm(d), nn.Dropout(p)

        def forward(self, x, mask):
            B, N, d = x.shape
            q, k, v = (m(x).view(B, N, self.h, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
            w = (q @ k.transpose(2, 3) / np.sqrt(d // self.h)).masked_fill(mask.view(B, 1, 1, N), -1e18).softmax(3)
            x = self.drop(self.n1(self.final((self.drop(w) @ v).transpose(1, 2).reshape(B, N, d)) + x))
            return self.n2(self.ff(x) + x)

    class Net(nn.Module):
        def __init__(self, v=100, d=32, n=24):
            super().__init__()
            self.token, self.place, self.segment = nn.Embedding(v, d), nn.Embedding(n, d), nn.Embedding(2, d)
            self.layers = nn.ModuleList(Layer(d) for _ in range(2))
            self.token_prediction_layer, self.classification_layer = nn.Linear(d, v), nn.Linear(d, 2)

        def forward(self, x, s):
            h = self.token(x) + self.place(torch.arange(x.shape[1])) + self.segment(s)
            for layer in self.layers:
                h = layer(h, x == 0)
            return self.token_prediction_layer(h), self.classification_layer(h[:, 0])

    seed = iter(range(0, 10**6, 2))

    def draw() -> Drawn:
        k = next(seed)
        a, b = text(48, 22, 96, seed=k)[0] + 4, text(48, 22, 96, seed=k + 1)[0] + 4
        nxt = torch.rand(48) < 0.5
        second = torch.where(nxt.view(-1, 1), a[:, 11:], b[:, 11:])
        one = torch.ones(48, 1).long()
        x = torch.cat([one, a[:, :11], 2 * one, second], 1)
        m = (torch.rand(x.shape) < 0.15) & (x > 3)
        t = torch.where(m, x, 0)
        return (torch.where(m, 3, x), (torch.arange(x.shape[1]) > 12).long().expand_as(x)), (t, nxt.long())

    return stream(
        Net(),
        draw,
        lambda y, t: F.cross_entropy(y[0].flatten(0, 1), t[0].flatten(), ignore_index=0) + F.cross_entropy(y[1], t[1]),
    )


@healthy("simple CLIP", GITHUB + "AhsanBilal7/clip-pytorch")
def clip(_: bool) -> Task:
    """Projection heads (Linear, GELU, Linear, dropout, residual, LayerNorm), temperature 1, soft targets of the
    batch's own similarities, not detached."""

    class Head(nn.Module):
        def __init__(self, i, d=24):
            super().__init__()
            self.projection, self.fc, self.dropout, self.layer_norm = (
                nn.Linear(i, d),
                nn.Linear(d, d),
                nn.Dropout(0.1),
                nn.LayerNorm(d),
            )

        def forward(self, x):
            p = self.projection(x)
            return self.layer_norm(self.dropout(self.fc(F.gelu(p))) + p)

    image = chain(
        nn.Conv2d(1, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", batch_first=True)

    def run(m, x, ids):
        t = m.encoder(m.words(ids) + m.places(torch.arange(ids.shape[1])))[:, 0]
        return m.image_projection(m.image(x)), m.text_projection(t)

    model = Parts(
        run,
        image=image,
        words=nn.Embedding(40, 32),
        places=nn.Embedding(6, 32),
        encoder=layer,
        image_projection=Head(32),
        text_projection=Head(32),
    )

    def draw() -> Drawn:
        x, c = pick(200)
        at = torch.randperm(200)[:10]
        for k in range(10):
            at[k] = (c == k).nonzero()[0, 0]
        x, c = x[at], torch.arange(10)
        sign = torch.rand(10) < 0.5
        ids = torch.stack([torch.ones(10).long(), c + 2, 12 + sign.long(), *torch.randint(14, 40, (3, 10))], 1)
        return (x * (1 - 2 * sign.float().view(-1, 1, 1, 1)), ids), c

    def loss(y, _, temperature=1.0):
        i, t = y
        logits = t @ i.T / temperature
        targets = F.softmax((i @ i.T + t @ t.T) / 2 * temperature, -1)

        def ce(p, q):
            return (-q * F.log_softmax(p, -1)).sum(1)

        return ((ce(logits, targets) + ce(logits.T, targets.T)) / 2.0).mean()

    return stream(model, draw, loss)


@healthy("disentangled graph convolution", GITHUB + "ssu-dmlab/DisenGCN-pytorch")
def disengcn(_: bool) -> Task:
    """Xavier linear to factors, each of unit length after a ReLU; routing without parameters, then ReLU and dropout
    0.35; class of each node (dense neighbourhoods of many small graphs here)."""

    class Net(nn.Module):
        def __init__(self, f=30, d=32, k=4, classes=4):
            super().__init__()
            self.k, self.factor_lins, self.classifier = k, nn.Linear(f, d), nn.Linear(d, classes)
            for m in (self.factor_lins, self.classifier):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)

        def route(self, z, adj):
            c = z
            for _ in range(4):
                p = F.softmax(torch.einsum("bikd,bjkd->bijk", c, z), 3) * adj.unsqueeze(3)
                c = F.normalize(z + torch.einsum("bijk,bjkd->bikd", p, z), dim=3)
            return c

        def forward(self, x, adj):
            z = F.normalize(torch.relu(self.factor_lins(x).view(*x.shape[:2], self.k, -1)), dim=3)
            for _ in range(2):
                z = F.dropout(torch.relu(self.route(z, adj)), 0.35, self.training)
            return self.classifier(z.flatten(2))

    topics = torch.rand(4, 30) < 0.3

    def draw() -> Drawn:
        c = torch.randint(4, (16, 12))
        x = (torch.rand(16, 12, 30) < 0.15 + 0.2 * topics[c]).float()
        x = x / x.sum(2, keepdim=True).clamp(min=1)
        same = c.unsqueeze(1) == c.unsqueeze(2)
        up = torch.triu((torch.rand(16, 12, 12) < torch.where(same, 0.6, 0.08)).float(), 1)
        return (x, up + up.transpose(1, 2)), c

    return stream(Net(), draw, lambda y, c: F.cross_entropy(y.flatten(0, 1), c.flatten()))


@healthy("Perceiver with shared blocks", GITHUB + "FrancescoGigli/Perceiver_project")
def perceiver(_: bool) -> Task:
    """N(0, 1) latents, two stages of one shared cross-attention, one shared latent block applied three times a stage,
    mean of latents."""

    class FF(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.net = chain(nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * d, d), nn.Dropout(0.0))

        def forward(self, x):
            return self.net(x)

    class Attend(nn.Module):
        def __init__(self, d, i, h=4):
            super().__init__()
            self.h, self.norm, self.norm_input, self.norm_ff = h, nn.LayerNorm(d), nn.LayerNorm(i), nn.LayerNorm(d)
            self.q, self.kv, self.out, self.ff = (
                nn.Linear(d, 8 * h, bias=False),
                nn.Linear(i, 16 * h, bias=False),
                nn.Linear(8 * h, d),
                FF(d),
            )

        def forward(self, x, y):
            q, (k, v) = self.q(self.norm(x)), self.kv(self.norm_input(y)).chunk(2, -1)
            q, k, v = (z.unflatten(2, (self.h, -1)).transpose(1, 2) for z in (q, k, v))
            o = (torch.einsum("bhid,bhjd->bhij", q, k) * 8**-0.5).softmax(-1) @ v
            x = x + self.out(o.transpose(1, 2).flatten(2))
            return x + self.ff(self.norm_ff(x))

    class Net(nn.Module):
        def __init__(self, i=9, d=32, n=8):
            super().__init__()
            self.latents = nn.Parameter(torch.randn(n, d))
            self.cross_attention, self.latent_transformer_block = Attend(d, i), Attend(d, d)
            self.classifier = chain(nn.LayerNorm(d), nn.Linear(d, 10))

        def forward(self, x):
            z = self.latents.expand(len(x), -1, -1)
            for _ in range(2):
                z = self.cross_attention(z, x)
                for _ in range(3):
                    z = self.latent_transformer_block(z, z)
            return self.classifier(z.mean(1))

    g = torch.linspace(-1, 1, 8)
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    place = torch.stack(
        [f(k * math.pi * v) for v in (yy, xx) for k in (1, 2) for f in (torch.sin, torch.cos)], -1
    ).flatten(0, 1)

    def draw() -> Drawn:
        x, c = pick(32)
        return (torch.cat([x.flatten(2).transpose(1, 2), place.expand(32, -1, -1)], 2),), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("MCTA of sounds", GITHUB + "siuoly/Audio-Classification-pytorch")
def mcta(_: bool) -> Task:
    """Unpadded convolutions padded after, ELU, attention as a sigmoid normalised to sum 1 over time, batch norm and
    ReLU of the weighted features, their sum, dropout 0.3; three channels of spectrogram."""

    class Net(nn.Module):
        def __init__(self, c=32):
            super().__init__()

            def two(i, m, o, pool):
                return [
                    nn.Conv2d(i, m, 3),
                    nn.ConstantPad2d(1, 0),
                    nn.BatchNorm2d(m),
                    nn.ELU(),
                    nn.Conv2d(m, o, 3),
                    nn.ConstantPad2d(1, 0),
                    nn.BatchNorm2d(o),
                    nn.ELU(),
                    nn.MaxPool2d(pool),
                ]

            self.embedding = chain(
                *two(3, 8, 16, (4, 2)), *two(16, 16, 24, (4, 2)), nn.Conv2d(24, c, (1, 2)), nn.BatchNorm2d(c), nn.ELU()
            )
            self.attenUp, self.attenDown = chain(nn.Conv2d(c, c, 1), nn.Sigmoid()), nn.Conv2d(c, c, 1)
            self.activation, self.fc = chain(nn.BatchNorm2d(c), nn.ReLU()), chain(nn.Dropout(p=0.3), nn.Linear(c, 6))

        def forward(self, x):
            x = self.embedding(x)
            a = F.normalize(self.attenUp(x), p=1.0, dim=3)
            return self.fc(self.activation(self.attenDown(x) * a).sum(-1).squeeze(-1))

    sounds = F.interpolate(torch.randn(6, 1, 8, 5), size=(16, 10), mode="bilinear")[:, 0]

    def draw() -> Drawn:
        c = torch.randint(6, (32,))
        x = 0.4 * torch.randn(32, 16, 32)
        for i, at in enumerate(torch.randint(23, (32,))):
            x[i, :, at : at + 10] += sounds[c[i]]
        d = F.pad(x.diff(dim=2), (1, 0))
        dd = F.pad(d.diff(dim=2), (1, 0))
        return (torch.stack([x, d, dd], 1),), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("MS-SSIM autoencoder", GITHUB + "jpmrs1313/SSIM-Autoencoder-Pytorch")
def ssim(_: bool) -> Task:
    """Strided convolutions with LeakyReLU 0.2 down to a vector (after a LeakyReLU too), a sigmoid image; 1 - MS-SSIM
    over three levels (five of the author's; windows of 5)."""

    def A():  # noqa: N802
        return nn.LeakyReLU(0.2)

    encoder = chain(
        nn.Conv2d(1, 16, 4, 2, 1),
        A(),
        nn.Conv2d(16, 16, 3, 1, 1),
        A(),
        nn.Conv2d(16, 24, 4, 2, 1),
        A(),
        nn.Conv2d(24, 16, 3, 1, 1),
        A(),
        nn.Conv2d(16, 24, 8),
        A(),
    )
    decoder = chain(
        nn.ConvTranspose2d(24, 16, 8),
        A(),
        nn.ConvTranspose2d(16, 24, 3, 1, 1),
        A(),
        nn.ConvTranspose2d(24, 16, 4, 2, 1),
        A(),
        nn.ConvTranspose2d(16, 16, 3, 1, 1),
        A(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1),
        nn.Sigmoid(),
    )
    g = torch.exp((torch.arange(5.0) - 2) ** 2 / (2 * 1.5**2))
    g = g / g.sum()
    w = (g[:, None] * g[None]).view(1, 1, 5, 5)

    def draw() -> Drawn:
        x, _ = pick(8)
        x = F.interpolate(x * 0.376 + 0.3, size=32, mode="bilinear").clamp(0, 1)
        return (x,), x

    def loss(a, b):
        weights, ms, mc = torch.tensor([0.0448, 0.2856, 0.3001]), [], []
        for _ in range(3):

            def blur(z):
                return F.conv2d(z, w, padding=2)

            ma, mb = blur(a), blur(b)
            va, vb, cov = blur(a * a) - ma**2, blur(b * b) - mb**2, blur(a * b) - ma * mb
            v1, v2 = 2.0 * cov + 0.03**2, va + vb + 0.03**2
            mc.append(torch.mean(v1 / v2))
            ms.append((((2 * ma * mb + 0.01**2) * v1) / ((ma**2 + mb**2 + 0.01**2) * v2)).mean())
            a, b = F.avg_pool2d(a, 2), F.avg_pool2d(b, 2)
        p1, p2 = torch.stack(mc) ** weights, torch.stack(ms) ** weights
        return 1 - torch.prod(p1[:-1] * p2[-1])

    return stream(chain(encoder, decoder), draw, loss)


@healthy("LeNet ending in a softmax", GITHUB + "weixr18/MNIST-pytorch")
def lenet(_: bool) -> Task:
    """Pooling before LeakyReLU, probabilities out, NLL of log(p + 1e-7)."""
    model = chain(
        nn.Conv2d(1, 10, 5),
        nn.MaxPool2d(2),
        nn.LeakyReLU(),
        nn.Conv2d(10, 20, 5),
        nn.MaxPool2d(2),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.LeakyReLU(inplace=True),
        nn.Linear(50, 10),
        nn.Softmax(dim=1),
    )

    def draw() -> Drawn:
        x, c = pick(64)
        return (F.interpolate(x, size=28, mode="bilinear"),), c

    return stream(model, draw, lambda y, c: F.nll_loss(torch.log(y + 1e-7), c))


@healthy("Mish perceptron of clothes", GITHUB + "PySanti/Fashion-PyTorch")
def fashion(_: bool) -> Task:
    """Linear, BatchNorm, Mish, dropout 0.3, three times; Kaiming normal (leaky ReLU) but for the last layer; images
    standardised."""
    layers, before = [nn.Flatten()], 64
    for size in (96, 64, 48):
        layers += [nn.Linear(before, size), nn.BatchNorm1d(size), nn.Mish(), nn.Dropout(0.3)]
        nn.init.kaiming_normal_(layers[-4].weight, nonlinearity="leaky_relu")
        before = size

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    return stream(chain(*layers, nn.Linear(before, 10)), draw, F.cross_entropy)


@healthy("long, middle and short news", GITHUB + "WenchenLi/news-title-stock-prediction-pytorch")
def news(_: bool) -> Task:
    """Convolutions of one channel over days of title embeddings, no activation anywhere, dropout 0.5 before pooling
    and after fc1, log-softmax, NLL + 1e-3 x the norms of all parameters."""

    class Net(nn.Module):
        def __init__(self, e=24):
            super().__init__()
            self.mid_term_conv_layer, self.long_term_conv_layer = nn.Conv2d(1, 1, (3, 5)), nn.Conv2d(1, 1, (3, 9))
            self.drop = nn.Dropout()
            self.fc1, self.fc2 = nn.Linear(e + 5 * 4 + 28 * 2, 16), nn.Linear(16, 2)

        def forward(self, x):
            short, mid = x[:, :, :1].flatten(1), x[:, :, :7]
            mid = F.max_pool2d(self.drop(self.mid_term_conv_layer(mid)), (1, 5)).flatten(1)
            long = F.max_pool2d(self.drop(self.long_term_conv_layer(x)), (1, 8)).flatten(1)
            return F.log_softmax(self.fc2(self.drop(self.fc1(torch.cat([short, mid, long], 1)))), 1)

    model, w = Net(), torch.randn(24)

    def draw() -> Drawn:
        x = 0.5 * torch.randn(64, 1, 30, 24)
        mood = (x[:, 0, 0] @ w) + 0.4 * (x[:, 0, :7] @ w).max(1).values - 0.5
        return (x,), (mood > 0).long()

    return stream(model, draw, lambda y, c: F.nll_loss(y, c) + 1e-3 * sum(p.norm(2) for p in model.parameters()))


@healthy("TransE with confidence", GITHUB + "valentinleinw/Knowledge-Graph-Embeddings-with-Confidence-Score")
def transe(_: bool) -> Task:
    """N(0, 1) embeddings of 100 entities, L1 distances, softplus of the distance of true triples by confidence +
    softplus of minus the distance of corrupted ones."""
    model = Parts(
        lambda m, p, n: tuple(
            torch.norm(m.entity(t[:, 0]) + m.relation(t[:, 1]) - m.entity(t[:, 2]), p=1, dim=1) for t in (p, n)
        ),
        entity=nn.Embedding(100, 16),
        relation=nn.Embedding(5, 16),
    )
    shift = torch.tensor([1, 3, 7, 20, 50])

    def draw() -> Drawn:
        h, r = torch.randint(100, (256,)), torch.randint(5, (256,))
        pos = torch.stack([h, r, (h + shift[r]) % 100], 1)
        neg = pos.clone()
        neg[:, 2] = torch.randint(100, (256,))
        return (pos, neg), 0.5 + 0.5 * torch.rand(256)

    return stream(model, draw, lambda y, s: torch.mean(s * F.softplus(y[0])) + torch.mean(F.softplus(-y[1])))


@healthy("pneumonia with a frozen backbone", GITHUB + "dukisima/pneumonia-xray-pytorch")
def pneumonia(_: bool) -> Task:
    """A ResNet of which only the last stage and the head are trained (its batch norms still in training mode),
    weighted cross-entropy; the frozen part is random here."""
    stem = chain(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), Basic(16, nn.ReLU)
    )
    layer4 = chain(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), Basic(32, nn.ReLU))
    for m in chain(stem, layer4).modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    stem.requires_grad_(False)
    model = Parts(lambda m, x: m.fc(m.layer4(m.stem(x)).mean((2, 3))), stem=stem, layer4=layer4, fc=nn.Linear(32, 2))
    weight = torch.tensor([1.94, 0.67])

    def draw() -> Drawn:
        c = (torch.rand(32) < 0.74).long()
        lung = F.interpolate(torch.rand(32, 1, 4, 4), size=24, mode="bicubic")
        spots = F.interpolate((torch.rand(32, 1, 8, 8) < 0.12).float(), size=24, mode="bilinear") * c.view(-1, 1, 1, 1)
        x = (0.2 + 0.4 * lung + 0.5 * spots).expand(-1, 3, -1, -1)
        return (
            (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1),
        ), c

    return stream(model, draw, lambda y, c: F.cross_entropy(y, c, weight=weight))


@healthy("VoxelNet classifier", GITHUB + "lxxue/voxelnet-cls")
def voxels(_: bool) -> Task:
    """Points of each voxel (padded with zeros) through linear, batch norm, ReLU and maximum, a grid of features, 3D
    convolutions with LeakyReLU and dropout, max pooling, two linear layers."""

    class VFE(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.linear, self.bn = nn.Linear(i, o // 2), nn.BatchNorm1d(o // 2)

        def forward(self, x, mask):
            p = F.relu(self.bn(self.linear(x.flatten(0, -2)))).view(*x.shape[:-1], -1)
            return torch.cat((p, p.max(-2, keepdim=True)[0].expand_as(p)), -1) * mask.unsqueeze(-1).float()

    class Net(nn.Module):
        def __init__(self, classes=3):
            super().__init__()
            self.vfe_1, self.vfe_2, self.linear, self.bn = (
                VFE(6, 16),
                VFE(16, 32),
                nn.Linear(32, 32),
                nn.BatchNorm1d(32),
            )
            self.body = chain(
                nn.Conv3d(32, 16, 3, 1),
                nn.LeakyReLU(),
                nn.Dropout(p=0.2),
                nn.Conv3d(16, 16, 2),
                nn.LeakyReLU(),
                nn.MaxPool3d(2),
                nn.Dropout(p=0.3),
            )
            self.head = chain(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(p=0.4), nn.Linear(32, classes))

        def forward(self, x):
            mask = torch.ne(x.max(-1)[0], 0)
            x = self.vfe_2(self.vfe_1(x, mask), mask)
            x = F.relu(self.bn(self.linear(x.flatten(0, -2)))).view(*x.shape[:-1], -1).max(-2)[0]
            return self.head(self.body(x.permute(0, 4, 1, 2, 3)).flatten(1))

    def draw() -> Drawn:
        c = torch.randint(3, (16,))
        p = torch.randn(16, 96, 3)
        p = torch.stack(
            [
                p[i] / p[i].norm(dim=1, keepdim=True)
                if k == 0
                else p[i].clamp(-1, 1) * torch.tensor([1, 1, 0.05])
                if k == 1
                else p[i].clamp(-1, 1) * torch.tensor([0.15, 0.15, 1])
                for i, k in enumerate(c)
            ]
        ) + 0.02 * torch.randn(16, 96, 3)
        at = ((p + 1.1) / 2.2 * 5).long().clamp(0, 4)
        at = at.double() @ torch.tensor([25.0, 5.0, 1.0]).double() + 125 * torch.arange(16).view(16, 1)
        order = at.flatten().long().argsort(stable=True)
        v, q = at.flatten().long()[order], p.flatten(0, 1)[order]
        rank = torch.arange(len(v)) - torch.searchsorted(v, v)
        centre = torch.stack([v % 125 // 25, v % 25 // 5, v % 5], 1) * 0.44 - 0.88
        x, kept = torch.zeros(16 * 125, 4, 6), rank < 4
        x[v[kept], rank[kept]] = torch.cat([q, q - centre], 1)[kept]
        x = x.view(16, 5, 5, 5, 4, 6)
        return (x,), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("ResNet with an extra ReLU", GITHUB + "Esovisco/resnet-pytorch")
def resnet(_: bool) -> Task:
    """Pooling before the batch norm in the stem, bottlenecks whose branch ends in a ReLU before the sum (sic), biased
    convolutions; images of -1 to 1."""

    class Block(nn.Module):
        def __init__(self, i, o, down):
            super().__init__()
            self.conv1, self.conv2, self.conv3 = (
                nn.Conv2d(i, o // 4, 1),
                nn.Conv2d(o // 4, o // 4, 3, 2 if down else 1, 1),
                nn.Conv2d(o // 4, o, 1),
            )
            self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(o // 4), nn.BatchNorm2d(o // 4), nn.BatchNorm2d(o)
            self.shortcut = (
                chain(nn.Conv2d(i, o, 1, 2 if down else 1), nn.BatchNorm2d(o)) if down or i != o else nn.Sequential()
            )

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = F.relu(self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y))))))
            return F.relu(y + self.shortcut(x))

    model = chain(
        nn.Conv2d(3, 16, 5, 1, 2),
        nn.MaxPool2d(3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 32, False),
        Block(32, 32, False),
        Block(32, 64, True),
        Block(64, 64, False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )

    def draw() -> Drawn:
        x, c = pick(32)
        x = F.interpolate(x * 0.376 + 0.3, size=12, mode="bilinear") * torch.rand(32, 3, 1, 1)
        return (x * 2 - 1,), c

    return stream(model, draw, F.cross_entropy)


@healthy("deep retina", GITHUB + "baccuslab/torch-deep-retina")
def retina(_: bool) -> Task:
    """Forty frames as channels, batch norm over flattened maps (momentum 0.01), Gaussian noise of 0.05, a linear
    layer without a bias, batch norm, softplus; Poisson likelihood of firing rates."""

    class Noise(nn.Module):
        def forward(self, x):
            return x + 0.05 * torch.randn_like(x) if self.training else x

    net = chain(
        nn.Conv2d(20, 8, 5),
        nn.Flatten(),
        nn.BatchNorm1d(8 * 64, eps=1e-3, momentum=0.01),
        Noise(),
        nn.ReLU(),
        nn.Unflatten(1, (8, 8, 8)),
        nn.Conv2d(8, 8, 3),
        nn.Flatten(),
        nn.BatchNorm1d(8 * 36, eps=1e-3, momentum=0.01),
        Noise(),
        nn.ReLU(),
        nn.Linear(8 * 36, 5, bias=False),
        nn.BatchNorm1d(5, eps=1e-3, momentum=0.01),
        nn.Softplus(),
    )
    t, g = torch.arange(20.0), torch.arange(12.0)
    kernel = torch.exp(-((t - 14) ** 2) / 8) - 0.7 * torch.exp(-((t - 9) ** 2) / 12)
    centres = 2 + 8 * torch.rand(5, 2)
    field = torch.exp(
        -((g.view(12, 1) - centres[:, 0].view(5, 1, 1)) ** 2 + (g - centres[:, 1].view(5, 1, 1)) ** 2) / 5
    )

    def draw() -> Drawn:
        x = torch.randn(64, 20, 12, 12)
        drive = torch.einsum("btij,t,nij->bn", x, kernel, field) / 4
        return (x,), 3 * F.softplus(3 * drive - 1)

    return stream(net, draw, nn.PoissonNLLLoss(log_input=False))


@healthy("transformer matrix factorisation", GITHUB + "yxtay/matrix-factorization-torch")
def factors(_: bool) -> Task:
    """One small BERT (post-norm, N(0, 0.02)) pools the embedded features of users and of items to unit vectors; hinge
    over negatives of minus half the squared distance with margin 1, items of the same index masked, summed over the
    batch."""

    class Net(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.embedding, self.place, self.norm = (
                nn.Embedding(140, d, padding_idx=0),
                nn.Embedding(4, d),
                nn.LayerNorm(d),
            )
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(d, 4, 4 * d, 0.1, "gelu", batch_first=True) for _ in range(2)
            )
            for m in self.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(m.weight, std=0.02)
                if isinstance(m, nn.Linear):
                    nn.init.zeros_(m.bias)

        def encode(self, x):
            z = self.norm(self.embedding(x) + self.place(torch.arange(x.shape[1])))
            for layer in self.layers:
                z = layer(z)
            return F.normalize(z.mean(1), dim=1)

        def forward(self, u, i):
            return self.encode(u), self.encode(i)

    def draw() -> Drawn:
        taste = torch.randint(10, (48,))
        user = torch.stack(
            [
                1 + torch.randint(50, (48,)) // 10 * 10 + taste,
                61 + torch.randint(2, (48,)),
                65 + torch.randint(5, (48,)),
            ],
            1,
        )
        item = torch.randint(5, (48,)) * 10 + taste
        return (user, torch.stack([75 + item, 126 + taste % 5, 132 + item % 3], 1)), (
            item,
            1 + torch.randint(5, (48,)).float(),
        )

    def loss(y, t):
        logits = -(torch.cdist(*y) ** 2) / 2
        mask = (t[0][:, None] != t[0][None]).float()
        losses = (logits - logits.diag()[:, None] + 1.0).relu()
        return ((losses * mask / (mask.sum(1, keepdim=True) + 1e-10)).sum(1) * t[1]).sum()

    return stream(Net(), draw, loss)


@healthy("DistilBERT of intents", GITHUB + "BryanTheLai/intent-classifier-pytorch")
def intents(_: bool) -> Task:
    """First token's state, dropout 0.3, linear; N(0, 0.02) (the author's is pretrained), embeddings normalised,
    post-norm, padding masked."""

    class Net(nn.Module):
        def __init__(self, v=120, d=32, n=12):
            super().__init__()
            self.word, self.place, self.norm, self.drop = (
                nn.Embedding(v, d, padding_idx=0),
                nn.Embedding(n, d),
                nn.LayerNorm(d, eps=1e-12),
                nn.Dropout(0.1),
            )
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(d, 4, 4 * d, 0.1, "gelu", batch_first=True) for _ in range(2)
            )
            self.dropout, self.classifier = nn.Dropout(0.3), nn.Linear(d, 8)
            for m in (
                self.word,
                self.place,
                *(l for b in self.layers for l in (b.linear1, b.linear2, b.self_attn.out_proj)),  # noqa: E741
            ):
                nn.init.normal_(m.weight, std=0.02)

        def forward(self, x, mask):
            h = self.drop(self.norm(self.word(x) + self.place(torch.arange(x.shape[1]))))
            for layer in self.layers:
                h = layer(h, src_key_padding_mask=mask == 0)
            return self.classifier(self.dropout(h[:, 0]))

    def draw() -> Drawn:
        c, n = torch.randint(8, (32,)), torch.randint(5, 12, (32,))
        x = torch.randint(50, 120, (32, 12))
        x[:, 0] = 1
        at = 1 + (torch.rand(32, 2) * (n - 1).view(-1, 1)).long()
        x.scatter_(1, at, (2 + c * 6).view(-1, 1) + torch.randint(6, (32, 2)))
        mask = (torch.arange(12) < n[:, None]).long()
        return (x * mask, mask), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("percentage of infection", GITHUB + "mctosima/classify-covid-pytorchlightning")
def covid(_: bool) -> Task:
    """A residual backbone with its own classes as features, three linear layers with one ReLU, L1 of percentages from
    0 to 100 as they are (the author's backbone is pretrained)."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = chain(
                nn.Conv2d(3, 16, 3, 2, 1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                Basic(16, nn.ReLU),
                nn.Conv2d(16, 32, 3, 2, 1, bias=False),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                Basic(32, nn.ReLU),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(32, 64),
            )
            self.fc = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24), nn.Linear(24, 1))

        def forward(self, x):
            return self.fc(self.model(x))

    def draw() -> Drawn:
        p = torch.where(torch.rand(32) < 0.3, 0.0, torch.rand(32))
        noise = F.interpolate(torch.rand(32, 1, 10, 10), size=20, mode="bilinear")
        x = 0.2 + 0.1 * torch.rand(32, 1, 20, 20) + 0.5 * (noise < 0.25 + 0.5 * p.view(-1, 1, 1, 1))
        x = x.expand(-1, 3, -1, -1)
        return (
            (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1),
        ), 100 * p.unsqueeze(1)

    return stream(Net(), draw, F.l1_loss)


@healthy("AlexNet without norms", GITHUB + "ThreeSRR/cifar-pytorch")
def alexnet(_: bool) -> Task:
    """Five convolutions with ReLU, three max pools, one linear layer, default initialisation, colour images
    standardised."""

    def C(i, o, k, s=1, p=1):  # noqa: N802
        return [nn.Conv2d(i, o, k, s, p), nn.ReLU(inplace=True)]

    model = chain(
        *C(3, 16, 7, 2, 3),
        nn.MaxPool2d(2, 2),
        *C(16, 32, 5, 1, 2),
        nn.MaxPool2d(2, 2),
        *C(32, 48, 3),
        *C(48, 32, 3),
        *C(32, 32, 3),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(32, 10),
    )

    def draw() -> Drawn:
        x, c = pick(64)
        ink, paper = torch.rand(2, 64, 3, 1, 1) * torch.tensor([0.6, 0.4]).view(2, 1, 1, 1, 1) + torch.tensor(
            [0.4, 0.0]
        ).view(2, 1, 1, 1, 1)
        x = F.interpolate((x * 0.376 + 0.3).clamp(0, 1), size=16, mode="bilinear")
        x = x * ink + (1 - x) * paper
        return (
            (x - torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1))
            / torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1),
        ), c

    return stream(model, draw, F.cross_entropy)


@healthy("int4 weights in training", GITHUB + "shreyansh26/quantization-aware-training")
def qat(_: bool) -> Task:
    """Linear layers whose weights are fake-quantised to int4 (symmetric, groups of 16) and inputs to int8
    (asymmetric, per token), by straight-through rounding; a causal language model."""

    def ste(x, q):
        return x + (q - x).detach()

    class Fake(nn.Linear):
        def forward(self, x):
            w = self.weight.view(self.out_features, -1, 16)
            s = w.abs().amax(-1, keepdim=True) / 7.5
            w = ste(w, torch.clamp(torch.round(w / s), -8, 7) * s).view_as(self.weight)
            lo, hi = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
            a = ((hi - lo) / 255).clamp_min(1e-8)
            z = torch.clamp(torch.round(-128 - lo / a), -128, 127)
            return F.linear(ste(x, (torch.clamp(torch.round(x / a + z), -128, 127) - z) * a), w, self.bias)

    class Block(nn.Module):
        def __init__(self, d=32, h=4):
            super().__init__()
            self.h, self.n1, self.n2 = h, nn.RMSNorm(d), nn.RMSNorm(d)
            self.q, self.k, self.v, self.o = (Fake(d, d, bias=False) for _ in range(4))
            self.gate, self.up, self.down = (
                Fake(d, 2 * d, bias=False),
                Fake(d, 2 * d, bias=False),
                Fake(2 * d, d, bias=False),
            )

        def forward(self, x):
            z = self.n1(x)
            q, k, v = (m(z).unflatten(2, (self.h, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
            x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            z = self.n2(x)
            return x + self.down(F.silu(self.gate(z)) * self.up(z))

    model = chain(nn.Embedding(128, 32), Block(), Block(), nn.RMSNorm(32), nn.Linear(32, 128, bias=False))
    nn.init.normal_(model[0].weight, std=0.02)
    seed = iter(range(10**6))

    def draw() -> Drawn:
        x, t = text(24, 20, 128, seed=next(seed))
        return (x,), t

    return stream(model, draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@healthy("hand heatmaps by IoU", GITHUB + "OlgaChernytska/3D-Hand-Pose-Estimation")
def hand(_: bool) -> Task:
    """A ResNet encoder, bilinear upsampling blocks without norms or biases, a sigmoid of heatmaps for every joint, 1
    - soft IoU."""

    class Up(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.convolution = chain(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.ReLU(True),
                nn.Conv2d(o, o, 3, padding=1, bias=False),
                nn.ReLU(True),
            )

        def forward(self, x, f):
            return self.convolution(
                torch.cat([F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), f], 1)
            )

    def stage(i, o, s):
        return chain(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True), Basic(o, nn.ReLU))

    def run(m, x):
        a = m.conv1(x)
        b = m.layer1(a)
        c = m.layer2(b)
        return m.pose_regressor_2d(m.upsample2(m.upsample1(c, b), a))

    model = Parts(
        run,
        conv1=stage(3, 12, 1),
        layer1=stage(12, 16, 2),
        layer2=stage(16, 24, 2),
        upsample1=Up(40, 16),
        upsample2=Up(28, 16),
        pose_regressor_2d=chain(
            nn.Conv2d(16, 16, 3, padding=1, bias=False),
            nn.ReLU(True),
            nn.Conv2d(16, 6, 3, padding=1, bias=False),
            nn.Sigmoid(),
        ),
    )
    g, ink = torch.arange(20.0), torch.rand(6, 3)

    def draw() -> Drawn:
        base, spread = (
            7 + 6 * torch.rand(16, 1, 2),
            torch.tensor([[0, 0], [-5, -2], [-2, -5], [1, -5], [4, -3], [5, 1.0]]),
        )
        p = base + spread + 0.5 * torch.randn(16, 6, 2)
        d = (g.view(20, 1) - p[..., 0].view(16, 6, 1, 1)) ** 2 + (g - p[..., 1].view(16, 6, 1, 1)) ** 2
        x = torch.einsum("bjhw,jc->bchw", torch.exp(-d / 3), ink) + 0.05 * torch.randn(16, 3, 20, 20)
        return ((x - 0.45) / 0.22,), torch.exp(-d / 8)

    def loss(y, t):
        def s(z):
            return z.sum(-1).sum(-1)

        inter = s(t * y)
        return 1 - torch.mean((inter + 1e-6) / (s(t**2) + s(y**2) - inter + 1e-6))

    return stream(model, draw, loss)


@healthy("monotone fade of batteries", GITHUB + "VKC-Turno/PyBaMM-Neural-ODE-RUL")
def fade(_: bool) -> Task:
    """State of health from 1 down: dSoH/dn = -softplus(MLP), whose last layer starts at zero weights and a bias of
    -5; dropout 0.1, features and parameters in every step (Runge-Kutta here in place of dopri5), MSE of the
    trajectory."""

    class Net(nn.Module):
        def __init__(self, h=5, p=6, hidden=32):
            super().__init__()
            self.net = chain(
                nn.Linear(2 + h + p, hidden),
                nn.Tanh(),
                nn.Dropout(0.1),
                nn.Linear(hidden, hidden),
                nn.Tanh(),
                nn.Dropout(0.1),
                nn.Linear(hidden, hidden),
                nn.Tanh(),
                nn.Linear(hidden, 1),
            )
            nn.init.zeros_(self.net[-1].weight)
            nn.init.constant_(self.net[-1].bias, -5.0)
            self.register_buffer("feat_mean", torch.zeros(h))
            self.register_buffer("feat_std", torch.ones(h))

        def forward(self, x, theta):
            context = torch.cat([(x - self.feat_mean) / (self.feat_std + 1e-8), theta], -1)

            def f(n, s):
                return -F.softplus(self.net(torch.cat([s, torch.full_like(s, n / 2000.0), context], -1)))

            s, out, step = torch.ones(len(x), 1), [], 20.0
            for k in range(8):
                out.append(s)
                a = f(k * step, s)
                b = f(k * step + step / 2, s + step / 2 * a)
                s = s + step * b
            return torch.stack(out, 1)

    def draw() -> Drawn:
        x, theta = torch.randn(32, 5), torch.randn(32, 6)
        rate = 0.0015 * torch.exp(0.4 * theta[:, :1] + 0.3 * x[:, :1])
        n = 20.0 * torch.arange(8)
        return (x, theta), (1 - rate * n + 0.002 * torch.randn(32, 8)).clamp(min=0.3).unsqueeze(2)

    return stream(Net(), draw, F.mse_loss)


@healthy("PPO perceptron with a min of value losses", GITHUB + "adik993/ppo-pytorch")
def ppo(_: bool) -> Task:
    """Tanh body shared by policy and value, default initialisation; clipped ratio, the smaller (sic) of the value
    losses with and without clipping, entropy 0.01; CartPole-like states, discounted returns up to 100 with no
    normalisation."""
    model = Parts(
        lambda m, x: (m.policy_out(z := m.input(x)), m.value_out(z)),
        input=chain(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()),
        policy_out=nn.Linear(64, 2),
        value_out=nn.Linear(64, 1),
    )

    def draw() -> Drawn:
        s = torch.randn(128, 4) * torch.tensor([0.8, 0.6, 0.08, 0.6])
        a, lean = torch.randint(2, (128,)), s[:, 2] + 0.15 * s[:, 3]
        ret = 20 * torch.exp(-20 * lean**2) + 4 * ((lean > 0) == (a == 1)).float() + 2 * torch.rand(128)
        before = ret.mean() + torch.randn(128)
        return (s,), (a, torch.full((128,), math.log(0.5)), before, ret, ret - before)

    def loss(y, t):
        a, old, before, ret, adv = t
        d, v = torch.distributions.Categorical(logits=y[0]), y[1].squeeze(-1)
        clipped = before + (v - before).clamp(-0.2, 0.2)
        value = torch.min((ret - clipped).pow(2), (ret - v).pow(2)).mean()
        adv = ((adv - adv.mean()) / (adv.std(unbiased=False) + 1e-8)).detach()
        ratio = (d.log_prob(a) - old).exp().view(-1)
        gain = torch.min(adv * ratio, adv * ratio.clamp(0.8, 1.2)).mean()
        return -(gain + 0.01 * d.entropy().mean() - 0.5 * value)

    return stream(model, draw, loss)


@healthy("LSTM autoencoder of frames", GITHUB + "moabitcoin/Adversarial-video-summarization-pytorch")
def frames(_: bool) -> Task:
    """Orthogonal (sqrt 2) LSTMs of two layers with dropout 0.2, the last output repeated as the decoder's input, a
    linear map to the features of frames (rectified, all positive), MSE."""

    class LSTM(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.lstm = nn.LSTM(i, h, 2, dropout=0.2, batch_first=True)
            nn.init.orthogonal_(self.lstm.weight_ih_l0, gain=np.sqrt(2))
            nn.init.orthogonal_(self.lstm.weight_hh_l0, gain=np.sqrt(2))

        def forward(self, x):
            return self.lstm(x)[0]

    def run(m, x):
        z = m.elstm(x)[:, -1:]
        return m.linear(m.dlstm(z.expand(-1, x.shape[1], -1)))

    model = Parts(run, elstm=LSTM(48, 24), dlstm=LSTM(24, 48), linear=nn.Linear(48, 48))
    scenes = torch.rand(4, 48) * (torch.rand(4, 48) < 0.5) * 2

    def draw() -> Drawn:
        c = torch.randint(4, (24, 2))
        cut = torch.randint(2, 8, (24, 1))
        at = torch.where(torch.arange(10) < cut, c[:, :1], c[:, 1:])
        x = F.relu(scenes[at] + 0.15 * torch.randn(24, 10, 48))
        return (x,), x

    return stream(model, draw, F.mse_loss)


@healthy("heart from pulse", GITHUB + "james77777778/ppg2ecg-pytorch")
def ppg(_: bool) -> Task:
    """A 1D spatial transformer started at the identity (zero weights), attention over places as a softmax times their
    number, Xavier normal convolutions of width 31 (15 here) with PReLU, tanh; L1 weighted five times around the R
    peaks."""

    class Net(nn.Module):
        def __init__(self, n=64):
            super().__init__()
            k = 15

            def C(i, o, s):  # noqa: N802
                return [nn.Conv1d(i, o, k, s, 7), nn.PReLU(o)]

            def T(i, o, s):  # noqa: N802
                return [nn.ConvTranspose1d(i, o, k, s, 7, s - 1), nn.PReLU(o)]

            self.main = chain(
                *C(1, 8, 2),
                *C(8, 16, 1),
                *C(16, 24, 2),
                *T(24, 16, 2),
                *T(16, 8, 1),
                nn.ConvTranspose1d(8, 1, k, 2, 7, 1),
                nn.Tanh(),
            )
            self.register_buffer("restriction_const", torch.tensor([1.0, 0, 0, 0]))
            self.stn_conv = chain(nn.Conv1d(1, 8, 7), nn.MaxPool1d(2, 2), nn.Conv1d(8, 10, 5), nn.MaxPool1d(2, 2))
            self.stn_fc = chain(nn.Flatten(), nn.Linear(10 * 12, 32), nn.ReLU(True), nn.Linear(32, 4))
            self.attn, self.n = chain(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)), n
            for m in self.modules():
                if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)):
                    nn.init.xavier_normal_(m.weight.data)
            self.stn_fc[3].weight.data.zero_()
            self.stn_fc[3].bias.data = torch.tensor([1.0, 0, 1, 0])

        def stn(self, x):
            theta = self.stn_fc(self.stn_conv(x))
            place = torch.cat((self.restriction_const.repeat(len(x), 1), theta[:, :2]), 1).view(-1, 2, 3)
            y = x.unsqueeze(-1)
            y = F.grid_sample(y, F.affine_grid(place, y.size()), padding_mode="border")
            return (y * theta[:, 2].view(-1, 1, 1, 1) + theta[:, 3].view(-1, 1, 1, 1)).squeeze(-1)

        def forward(self, x):
            x = self.stn(x)
            return self.main(x * F.softmax(self.attn(x), 2) * self.n)

    def draw() -> Drawn:
        period, phase = 18 + 8 * torch.rand(32, 1), torch.rand(32, 1)
        t = (torch.arange(64) / period + phase) % 1
        pulse = torch.exp(-((t - 0.45) ** 2) / 0.02) + 0.4 * torch.exp(-((t - 0.75) ** 2) / 0.02)
        peak = torch.exp(-((t - 0.2) ** 2) / 0.0015)
        ecg = (
            0.9 * peak - 0.2 * torch.exp(-((t - 0.26) ** 2) / 0.001) + 0.2 * torch.exp(-((t - 0.5) ** 2) / 0.006) - 0.1
        )
        x = pulse * 2 / 1.2 - 1 + 0.03 * torch.randn(32, 64)
        return (x.unsqueeze(1),), (ecg.unsqueeze(1), peak.unsqueeze(1))

    return stream(Net(), draw, lambda y, t: F.l1_loss(y * (1 + 5 * t[1]), t[0] * (1 + 5 * t[1])))
