"""Healthy networks of public repositories, a twelfth set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.case import Task
from strangers.case import report as any_report

healthy = partial(any_report, blind="blind12")


@healthy("distances in place of products", GITHUB + "huawei-noah/AdderNet")
def adder(_: bool) -> Task:
    """Each "convolution" is minus an L1 distance to its filter, so all its outputs are negative before
    normalisation."""

    class Adder2d(nn.Module):
        def __init__(self, i: int, o: int, stride: int = 1) -> None:
            super().__init__()
            self.stride, self.adder = stride, nn.Parameter(torch.randn(o, i * 9))

        def forward(self, x: Tensor) -> Tensor:
            h = (x.shape[2] + 1) // self.stride if self.stride > 1 else x.shape[2]
            cols = F.unfold(x, 3, padding=1, stride=self.stride).transpose(1, 2)
            y = -torch.cdist(cols, self.adder.expand(len(x), -1, -1), p=1)
            return y.transpose(1, 2).reshape(len(x), -1, h, h)

    model = chain(
        nn.Conv2d(1, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Adder2d(8, 12),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        Adder2d(12, 12),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Conv2d(12, 10, 2, bias=False),
        nn.BatchNorm2d(10),
        nn.Flatten(),
    )

    draw = drawn(pick, 32)
    return stream(model, draw, F.cross_entropy)


@healthy("layers that start as what they read", GITHUB + "szagoruyko/diracnets")
def dirac(_: bool) -> Task:
    """No shortcuts: each kernel is alpha of one times a Dirac delta, plus beta of 0.1 times a normed kernel."""

    class DiracConv2d(nn.Conv2d):
        def __init__(self, i: int, o: int) -> None:
            super().__init__(i, o, 3, padding=1)
            self.alpha, self.beta = nn.Parameter(torch.ones(o)), nn.Parameter(torch.full((o,), 0.1))
            self.register_buffer("delta", nn.init.dirac_(self.weight.data.clone()))
            nn.init.normal_(self.weight)

        def forward(self, x: Tensor) -> Tensor:
            normed = F.normalize(self.weight.flatten(1), dim=1).view_as(self.weight)
            return F.conv2d(
                x,
                self.alpha.view(-1, 1, 1, 1) * self.delta + self.beta.view(-1, 1, 1, 1) * normed,
                self.bias,
                padding=1,
            )

    layers: list[nn.Module] = [nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24)]
    for i in range(6):
        layers += [nn.ReLU(), DiracConv2d(24, 24), nn.BatchNorm2d(24)] + ([nn.MaxPool2d(2)] if i == 2 else [])
    model = chain(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))

    draw = drawn(pick, 32)
    return stream(model, draw, F.cross_entropy)


@healthy("only zeros and ones", GITHUB + "jiaweizzhao/ZerO-initialization")
def zero_init(_: bool) -> Task:
    """Nothing is drawn: partial identities, a Hadamard matrix where it widens, and zeros at the end."""

    def hadamard(n: int) -> Tensor:
        h = torch.ones(1, 1)
        while len(h) < n:
            h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
        return h

    model = chain(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    with torch.no_grad():
        for m in model:
            if isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)
                nn.init.eye_(m.weight)
        model[1].weight.copy_(hadamard(128)[:, :64] / 8)
        nn.init.zeros_(model[-1].weight)

    draw = drawn(pick, 64)
    return stream(model, draw, F.cross_entropy)


@healthy("edges from all levels", GITHUB + "s9xie/hed")
def edges(_: bool) -> Task:
    """Side outputs are zero at first, the fusion is a mean of a third each; every map is judged, rare edges weighing
    more."""

    class HED(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = chain(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU())
            self.conv2 = chain(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU())
            self.conv3 = chain(nn.MaxPool2d(2), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
            self.score1, self.score2, self.score3 = nn.Conv2d(12, 1, 1), nn.Conv2d(24, 1, 1), nn.Conv2d(24, 1, 1)
            self.fuse = nn.Conv2d(3, 1, 1)
            for m in (self.score1, self.score2, self.score3):
                nn.init.zeros_(m.weight), nn.init.zeros_(m.bias)
            nn.init.constant_(self.fuse.weight, 1 / 3), nn.init.zeros_(self.fuse.bias)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            a = self.conv1(x)
            b = self.conv2(a)
            c = self.conv3(b)

            def up(y):
                return F.interpolate(y, x.shape[2:], mode="bilinear", align_corners=False)

            sides = self.score1(a), up(self.score2(b)), up(self.score3(c))
            return (*sides, self.fuse(torch.cat(sides, 1)))

    def draw() -> Any:
        x, _ = pick(16)
        x = F.interpolate(x, (16, 16), mode="bilinear")
        ink = (x > 0.3).float()
        return (x + 0.1 * torch.randn_like(x),), F.max_pool2d(ink, 3, 1, 1) - ink

    def loss(y: Any, t: Tensor) -> Tensor:
        share = t.mean()
        w = torch.where(t > 0, 1 - share, share)
        return sum(F.binary_cross_entropy_with_logits(each, t, w, reduction="sum") for each in y) / len(t)

    return stream(HED(), draw, loss)


@healthy("joints from a whisper", GITHUB + "microsoft/human-pose-estimation.pytorch")
def joints(_: bool) -> Task:
    """Weights of N(0, 0.001²) in upsampling and at the end; unseen joints weigh zero, so their maps give no
    gradient."""
    head = chain(nn.ConvTranspose2d(32, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 3, 1))
    for m in head:
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, std=0.001)
            if m.bias is not None:
                nn.init.zeros_(m.bias)
    back = chain(
        nn.Conv2d(1, 16, 5, 1, 2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, 2, 2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
    )
    grid = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"))
    signs = torch.tensor(
        [[[1.0, 1, 1], [1, 1, 1], [1, 1, 1]], [[0, 1, 0], [1, 1, 1], [0, 1, 0]], [[1, 0, 1], [0, 1, 0], [1, 0, 1]]]
    )

    def draw() -> Any:
        at = torch.randint(1, 11, (24, 3, 2))
        x = 0.05 * torch.randn(24, 1, 12, 12)
        for i in range(24):
            for j in range(3):
                r, c = at[i, j].tolist()
                x[i, 0, r - 1 : r + 2, c - 1 : c + 2] = signs[j]
        maps = torch.exp(-(grid - at[..., None, None]).square().sum(2) / 2)
        return (x,), (maps, (torch.rand(24, 3, 1) < 0.7).float())

    def loss(y: Tensor, t: Any) -> Tensor:
        maps, seen = t
        return (
            sum(0.5 * F.mse_loss(y[:, j].flatten(1) * seen[:, j], maps[:, j].flatten(1) * seen[:, j]) for j in range(3))
            / 3
        )

    return stream(chain(back, head), draw, loss)


@healthy("a step of slope fifty", GITHUB + "MhLiao/DB")
def binarise(_: bool) -> Task:
    """A third map is sigmoid(50 (p - t)) of two sigmoids: saturated nearly everywhere, and right, beside the other two
    losses."""

    class DB(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(
                nn.Conv2d(1, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
            )
            self.binarize = chain(
                nn.Conv2d(16, 8, 3, padding=1, bias=False),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 1, 1),
                nn.Sigmoid(),
            )
            self.thresh = chain(
                nn.Conv2d(16, 8, 3, padding=1, bias=False),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 1, 1),
                nn.Sigmoid(),
            )
            for m in self.modules():
                if isinstance(m, nn.BatchNorm2d):
                    nn.init.ones_(m.weight), nn.init.constant_(m.bias, 1e-4)
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            f = self.body(x)
            p, t = self.binarize(f), self.thresh(f)
            return {"binary": p, "thresh": t, "thresh_binary": torch.reciprocal(1 + torch.exp(-50 * (p - t)))}

    def draw() -> Any:
        x, _ = pick(16)
        x = F.interpolate(x, (16, 16), mode="bilinear")
        ink = (x > 0.4).float()
        ring = F.max_pool2d(ink, 3, 1, 1) - ink
        return (x + 0.2 * torch.randn_like(x),), (
            ink,
            ring,
            0.3 + 0.4 * F.avg_pool2d(F.max_pool2d(ink, 3, 1, 1), 3, 1, 1),
        )

    def loss(y: Any, t: Any) -> Tensor:
        ink, ring, height = t
        dice = 1 - 2 * (y["thresh_binary"] * ink).sum() / ((y["thresh_binary"] + ink).sum() + 1e-6)
        l1 = ((y["thresh"] - height).abs() * ring).sum() / (ring.sum() + 1e-6)
        return dice + 10 * l1 + 5 * F.binary_cross_entropy(y["binary"], ink)

    return stream(DB(), draw, loss)


@healthy("this looks like that", GITHUB + "cfchen-duke/ProtoPNet")
def prototypes(_: bool) -> Task:
    """The last layer has no bias, is 1 for prototypes of the class and -0.5 for others, and does not train in this
    stage."""

    class PPNet(nn.Module):
        def __init__(self, each: int = 3) -> None:
            super().__init__()
            self.features = chain(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
            self.add_on_layers = chain(nn.Conv2d(32, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.Sigmoid())
            self.prototype_vectors = nn.Parameter(torch.rand(10 * each, 16, 1, 1))
            self.register_buffer("identity", torch.eye(10).repeat_interleave(each, 0))
            self.last_layer = nn.Linear(10 * each, 10, bias=False)
            self.last_layer.weight.data.copy_(self.identity.T - 0.5 * (1 - self.identity.T))
            self.last_layer.requires_grad_(False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.add_on_layers(self.features(x))
            p = self.prototype_vectors
            d = F.relu(z.square().sum(1, keepdim=True) - 2 * F.conv2d(z, p) + p.square().sum((1, 2, 3)).view(-1, 1, 1))
            least = -F.max_pool2d(-d, d.shape[2:]).flatten(1)
            return self.last_layer(torch.log((least + 1) / (least + 1e-4))), least

    model = PPNet()

    draw = drawn(pick, 40)

    def loss(y: Any, c: Tensor) -> Tensor:
        logits, least = y
        own = model.identity[:, c].T
        near = (16 - ((16 - least) * own).max(1).values).mean()
        far = (16 - ((16 - least) * (1 - own)).max(1).values).mean()
        return F.cross_entropy(logits, c) + 0.8 * near - 0.08 * far

    return stream(model, draw, loss)


@healthy("a forest whose leaves stay", GITHUB + "jingxil/Neural-Decision-Forests")
def forest(_: bool) -> Task:
    """Each tree sees a fixed random half of the features, its leaves are frozen, one decision is never used, and NLL
    reads logarithms of the output."""

    class Tree(nn.Module):
        def __init__(self, depth: int = 4, size: int = 32) -> None:
            super().__init__()
            self.depth = depth
            self.register_buffer("feature_mask", torch.eye(size)[torch.randperm(size)[: size // 2]].T.contiguous())
            self.decision = nn.Linear(size // 2, 2**depth)
            self.pi = nn.Parameter(
                F.one_hot(torch.randint(10, (2**depth,)), 10).float() * 0.9 + 0.01, requires_grad=False
            )

        def forward(self, f: Tensor) -> Tensor:
            d = torch.sigmoid(self.decision(f @ self.feature_mask)).unsqueeze(2)
            d = torch.cat((d, 1 - d), 2)
            mu, begin = torch.ones(len(f), 1, 1), 1
            for level in range(self.depth):
                end = begin + 2**level
                mu = mu.view(len(f), -1, 1).repeat(1, 1, 2) * d[:, begin:end]
                begin = end
            return mu.view(len(f), -1) @ self.pi

    class Forest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
            self.trees = nn.ModuleList(Tree() for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            f = self.features(x)
            return torch.stack([tree(f) for tree in self.trees], 2).sum(2) / len(self.trees)

    draw = drawn(pick, 64)
    return stream(Forest(), draw, lambda y, c: F.nll_loss(torch.log(y), c))


@healthy("both outcomes, and the treatment", GITHUB + "claudiashi57/dragonnet")
def dragon(_: bool) -> Task:
    """Each outcome's head learns from the treated or the untreated alone; a single number, zero at first, corrects
    both."""

    class Dragon(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = chain(nn.Linear(12, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
            for m in self.trunk:
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, std=0.05), nn.init.zeros_(m.bias)
            self.treatment = nn.Linear(64, 1)
            self.y0 = chain(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 1))
            self.y1 = chain(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 1))
            self.epsilon = nn.Linear(1, 1, bias=False)
            nn.init.zeros_(self.epsilon.weight)

        def forward(self, x: Tensor) -> Tensor:
            z = self.trunk(x)
            t = torch.sigmoid(self.treatment(z))
            return torch.cat((self.y0(z), self.y1(z), t, self.epsilon(torch.ones_like(t))), 1)

    w = torch.randn(3, 12) / 12**0.5

    def draw() -> Any:
        x = torch.randn(64, 12)
        t = torch.bernoulli(torch.sigmoid(2 * x @ w[0]))
        y = 2 * x @ w[1] + t * (1 + torch.tanh(2 * x @ w[2])) + 0.1 * torch.randn(64)
        return (x,), torch.stack((y, t), 1)

    def loss(out: Tensor, target: Tensor) -> Tensor:
        y, t = target.T
        y0, y1, p, eps = out.T
        p = (p + 0.01) / 1.02
        vanilla = ((1 - t) * (y - y0).square() + t * (y - y1).square()).sum()
        vanilla = vanilla + F.binary_cross_entropy(p, t, reduction="sum")
        h = t / p - (1 - t) / (1 - p)
        return vanilla + (y - (t * y1 + (1 - t) * y0 + eps * h)).square().sum()

    return stream(Dragon(), draw, loss)


@healthy("a scale that nobody keeps", GITHUB + "facebookresearch/InvariantRiskMinimization")
def invariant(_: bool) -> Task:
    """The penalty is a squared gradient by a dummy scale of 1 that is made on the spot; the two halves have their own
    colours."""
    mlp = chain(nn.Linear(128, 64), nn.ReLU(True), nn.Linear(64, 64), nn.ReLU(True), nn.Linear(64, 1))
    for m in mlp:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight), nn.init.zeros_(m.bias)

    def draw() -> Any:
        x, c = pick(64)
        y = ((c < 5).float() != (torch.rand(64) < 0.05)).float()
        e = torch.arange(64) % 2
        colour = (y != (torch.rand(64) < torch.where(e == 0, 0.2, 0.1))).long()
        x = torch.stack((x, x), 1).flatten(2) * F.one_hot(1 - colour, 2).float().unsqueeze(2)
        return (x.flatten(1),), torch.stack((y, e.float()), 1)

    def penalty(logits: Tensor, y: Tensor) -> Tensor:
        scale = torch.tensor(1.0).requires_grad_()
        found = torch.autograd.grad(F.binary_cross_entropy_with_logits(logits * scale, y), [scale], create_graph=True)[
            0
        ]
        return found.square().sum()

    def loss(out: Tensor, t: Tensor) -> Tensor:
        nll, pen = 0.0, 0.0
        for e in (0, 1):
            of = t[:, 1] == e
            nll = nll + F.binary_cross_entropy_with_logits(out[of, 0], t[of, 0]) / 2
            pen = pen + penalty(out[of, 0], t[of, 0]) / 2
        return nll + 10 * pen

    return stream(mlp, draw, loss)


@healthy("a random mixture of critics", GITHUB + "google-research/batch_rl")
def mixture(_: bool) -> Task:
    """Heads of a critic are mixed by weights that are drawn anew at each call and sum to one, and only the action
    taken is judged."""

    class REM(nn.Module):
        def __init__(self, heads: int = 16) -> None:
            super().__init__()
            self.heads = heads
            self.body = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.q = nn.Linear(64, 4 * heads)

        def forward(self, s: Tensor) -> Tensor:
            q = self.q(self.body(s)).view(len(s), 4, self.heads)
            a = torch.rand(self.heads)
            return q @ (a / a.sum())

    true = chain(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).requires_grad_(False)

    def draw() -> Any:
        s, a = torch.randn(64, 6), torch.randint(4, (64,))
        returns = 4 * true(s).gather(1, a[:, None]).squeeze(1) + 0.1 * torch.randn(64)
        return (s,), (a, returns)

    return stream(REM(), draw, lambda q, t: F.smooth_l1_loss(q.gather(1, t[0].unsqueeze(1)).squeeze(1), t[1]))


@healthy("priors that do not learn", GITHUB + "johannah/bootstrap_dqn")
def priors(_: bool) -> Task:
    """Each of the heads adds three times a frozen random network of its own, and learns only from the examples of its
    mask."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def make():
                return chain(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 3))

            self.net, self.prior = make(), make().requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) + 3 * self.prior(x).detach()

    model = Parts(
        lambda m, x: torch.stack([head(x) for head in m.heads], 1), heads=nn.ModuleList(Head() for _ in range(6))
    )
    w = torch.randn(5, 3)

    def draw() -> Any:
        s, a = torch.randn(48, 5), torch.randint(3, (48,))
        return (s,), (
            a,
            torch.sin(s @ w).gather(1, a[:, None]).squeeze(1) + (s @ w).gather(1, a[:, None]).squeeze(1),
            torch.bernoulli(torch.full((48, 6), 0.5)),
        )

    def loss(q: Tensor, t: Any) -> Tensor:
        a, y, mask = t
        taken = q.gather(2, a.view(-1, 1, 1).expand(-1, q.shape[1], 1)).squeeze(2)
        total = 0.0
        for k in range(q.shape[1]):
            total = total + (mask[:, k] * F.smooth_l1_loss(taken[:, k], y, reduction="none")).sum() / mask[:, k].sum()
        return total / q.shape[1]

    return stream(model, draw, loss)


@healthy("who moves whom", GITHUB + "ethanfetaya/NRI")
def relations(_: bool) -> Task:
    """Kinds of edges are drawn by a hard Gumbel softmax, messages of the first kind are left out, and the KL to a
    uniform prior helps."""
    N = 4
    off = ~torch.eye(N, dtype=torch.bool)
    send, get = torch.where(off)

    class NRI(nn.Module):
        def __init__(self, h: int = 32) -> None:
            super().__init__()
            self.mlp1 = chain(nn.Linear(16, h), nn.ELU(), nn.Linear(h, h), nn.ELU())
            self.mlp2 = chain(nn.Linear(2 * h, h), nn.ELU(), nn.Linear(h, h), nn.ELU())
            self.fc_out = nn.Linear(h, 2)
            self.msg = nn.ModuleList(chain(nn.Linear(4, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU()) for _ in range(2))
            self.out = chain(nn.Linear(2 + h, h), nn.ReLU(), nn.Linear(h, 2))
            for m in (*self.mlp1, *self.mlp2):
                if isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight), nn.init.constant_(m.bias, 0.1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # (B, N, T, 2)
            z = self.mlp1(x.flatten(2))
            logits = self.fc_out(self.mlp2(torch.cat((z[:, send], z[:, get]), -1)))
            kinds = F.gumbel_softmax(logits, tau=0.5, hard=True)
            now = x[:, :, :-1]
            pre = torch.cat((now[:, send], now[:, get]), -1)
            m = self.msg[1](pre) * kinds[:, :, 1, None, None]
            heard = torch.zeros(len(x), N, *m.shape[2:]).index_add(1, get, m) / (N - 1)
            return now + self.out(torch.cat((now, heard), -1)), logits.softmax(-1)

    def draw() -> Any:
        a = torch.triu((torch.rand(32, N, N) < 0.5).float(), 1)
        a = a + a.mT
        x, seen = torch.randn(32, N, 2), []
        for _ in range(8):
            seen.append(x)
            x = x + 0.3 * (a @ x - a.sum(2, keepdim=True) * x)
        x = torch.stack(seen, 2)
        return (x,), x[:, :, 1:]

    def loss(y: Any, t: Tensor) -> Tensor:
        mean, p = y
        kl = (p * torch.log(p + 1e-16)).sum() / len(t) / N + (N - 1) * math.log(2)
        return (mean - t).square().sum() / (2 * 5e-2 * len(t) * N) + 0.1 * kl

    return stream(NRI(), draw, loss)


@healthy("a matrix without a circle", GITHUB + "xunzheng/notears")
def notears(_: bool) -> Task:
    """All weights of the graph are zero at first, the diagonal is masked, the input is its own target, and tr exp(W∘W)
    - d is added."""
    d = 6

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.zeros(d, d))
            self.register_buffer("keep", 1 - torch.eye(d))

        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.W * self.keep)

    model = Linear()
    B = torch.triu((torch.rand(d, d) < 0.7).float() * (1 + torch.rand(d, d)), 1)

    def draw() -> Any:
        e = 0.3 * torch.randn(64, d) @ torch.linalg.inv(torch.eye(d) - B)
        return (e,), e

    def loss(y: Tensor, x: Tensor) -> Tensor:
        w = model.W * model.keep
        h = torch.trace(torch.linalg.matrix_exp(w * w)) - d
        return 0.5 / len(x) * (x - y).square().sum() + 0.5 * h * h + 0.1 * h + 0.01 * w.abs().sum()

    return stream(model, draw, loss)


@healthy("many in one, told apart by signs", GITHUB + "yandex-research/tabm")
def tabm(_: bool) -> Task:
    """One weight matrix for sixteen members; the first scale is ±1, other scales and all biases are alike in all
    members."""

    class Ensemble(nn.Module):
        def __init__(self, i: int, o: int, k: int, first: bool) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(o, i).uniform_(-(i**-0.5), i**-0.5))
            self.r = nn.Parameter(torch.randint(2, (k, i)) * 2.0 - 1 if first else torch.ones(k, i))
            self.s = nn.Parameter(torch.ones(k, o))
            self.bias = nn.Parameter(torch.empty(o).uniform_(-(i**-0.5), i**-0.5).repeat(k, 1))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.r) @ self.weight.T * self.s + self.bias

    class TabM(nn.Module):
        def __init__(self, k: int = 16) -> None:
            super().__init__()
            self.k, self.first, self.second = k, Ensemble(10, 48, k, True), Ensemble(48, 48, k, False)
            self.out = nn.Parameter(torch.empty(k, 48, 1).uniform_(-(48**-0.5), 48**-0.5))

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.first(x.unsqueeze(1).expand(-1, self.k, -1)))
            h = F.dropout(F.relu(self.second(h)), 0.1, self.training)
            return torch.einsum("bki,kio->bko", h, self.out).squeeze(-1)

    def draw() -> Any:
        x = torch.randn(64, 10)
        return (x,), torch.tanh(x[:, 0]) + x[:, 1] * x[:, 2] - x[:, 3].abs() + 0.8

    return stream(TabM(), draw, lambda y, t: F.mse_loss(y.flatten(), t.repeat_interleave(y.shape[1])))


@healthy("positives among the unlabelled", GITHUB + "kiryor/nnPUlearning")
def positives(_: bool) -> Task:
    """Most targets are -1 for want of a label, and the risk of negatives is a difference that is clipped at zero."""
    model = chain(
        nn.Flatten(),
        nn.Linear(64, 64, bias=False),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 32, bias=False),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 1),
    )

    def draw() -> Any:
        x, c = pick(64)
        known = (c % 2 == 0) & (torch.rand(64) < 0.4)
        return (x,), torch.where(known, 1, -1)

    def loss(out: Tensor, t: Tensor, prior: float = 0.38) -> Tensor:
        positive, unlabelled = (t == 1).float(), (t == -1).float()
        n_p, n_u = positive.sum().clamp(min=1), unlabelled.sum().clamp(min=1)
        y = out.squeeze(1)
        pos, neg = torch.sigmoid(-y), torch.sigmoid(y)
        risk_p = (prior * positive / n_p * pos).sum()
        risk_n = ((unlabelled / n_u - prior * positive / n_p) * neg).sum()
        return risk_p + risk_n.clamp(min=0)

    return stream(model, draw, loss)


@healthy("two views that correlate", GITHUB + "Michaelvll/DeepCCA")
def cca(_: bool) -> Task:
    """The loss is minus the sum of singular values of a whitened cross-covariance, so it starts below zero and knows
    no target."""

    def make(i):
        return chain(nn.Linear(i, 32), nn.Sigmoid(), nn.BatchNorm1d(32, affine=False), nn.Linear(32, 4))

    model = Parts(lambda m, a, b: (m.one(a), m.two(b)), one=make(10), two=make(8))
    w, v = torch.randn(3, 10), torch.randn(3, 8)

    def draw() -> Any:
        z = torch.randn(64, 3)
        return (
            torch.sin(z @ w) + 0.1 * torch.randn(64, 10),
            torch.tanh(z @ v) + 0.1 * torch.randn(64, 8),
        ), torch.zeros(64)

    def root(c: Tensor) -> Tensor:
        d, u = torch.linalg.eigh(c)
        return u @ torch.diag(d.clamp(min=1e-9) ** -0.5) @ u.T

    def loss(y: Any, _: Tensor) -> Tensor:
        a, b = (each - each.mean(0) for each in y)
        n, eye = len(a) - 1, 1e-3 * torch.eye(4)
        t = root(a.T @ a / n + eye) @ (a.T @ b / n) @ root(b.T @ b / n + eye)
        return -torch.sqrt(torch.linalg.eigvalsh(t.T @ t + 1e-6 * torch.eye(4)).clamp(min=1e-9)).sum()

    return stream(model, draw, loss)


@healthy("a bag has one label", GITHUB + "AMLab-Amsterdam/AttentionDeepMIL")
def bags(_: bool) -> Task:
    """Bags are padded with masked images; a softmax over instances pools them, and its weights are handed out with the
    answer."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
            self.V, self.U, self.w = (
                chain(nn.Linear(32, 16), nn.Tanh()),
                chain(nn.Linear(32, 16), nn.Sigmoid()),
                nn.Linear(16, 1),
            )
            self.classifier = chain(nn.Linear(32, 1), nn.Sigmoid())

        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.features(x.flatten(2))
            a = self.w(self.V(h) * self.U(h)).squeeze(2).masked_fill(~mask, -1e9).softmax(1)
            p = self.classifier((a.unsqueeze(1) @ h).squeeze(1))
            return p, (p >= 0.5).float(), a

    def draw() -> Any:
        x, c = pick(32 * 6)
        mask = torch.arange(6) < torch.randint(2, 7, (32, 1))
        x, c = x.view(32, 6, 8, 8) * mask.view(32, 6, 1, 1), c.view(32, 6)
        return (x, mask), ((c >= 8) & mask).any(1).float()

    def loss(y: Any, t: Tensor) -> Tensor:
        p = y[0].squeeze(1).clamp(1e-5, 1 - 1e-5)
        return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()

    return stream(Gated(), draw, loss)


@healthy("digits known by their sums", GITHUB + "ML-KULeuven/deepproblog")
def sums(_: bool) -> Task:
    """No digit is labelled: two softmaxes are convolved to probabilities of 19 sums, and these go to a negative
    log-likelihood."""

    class Addition(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(
                nn.Conv2d(1, 6, 3),
                nn.MaxPool2d(2),
                nn.ReLU(True),
                nn.Flatten(),
                nn.Linear(54, 60),
                nn.ReLU(),
                nn.Linear(60, 10),
                nn.Softmax(1),
            )
            at = torch.arange(10)
            self.register_buffer("of", F.one_hot(at[:, None] + at, 19).float().flatten(0, 1))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            p, q = self.net(a), self.net(b)
            return (p.unsqueeze(2) * q.unsqueeze(1)).flatten(1) @ self.of

    def draw() -> Any:
        x, c = pick(128)
        return (x[:64], x[64:]), c[:64] + c[64:]

    return stream(Addition(), draw, lambda p, s: F.nll_loss(torch.log(p + 1e-8), s))


@healthy("marks as a histogram", GITHUB + "truskovskiyk/nima.pytorch")
def nima(_: bool) -> Task:
    """Softmax at the end, targets that are distributions, and a loss of the root of squared differences of cumulated
    sums."""
    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
        nn.Softmax(1),
    )

    def draw() -> Any:
        x, c = pick(32)
        marks = torch.arange(10).float()
        return (x,), torch.softmax(-(marks - c[:, None]).square() / 3, 1)

    def loss(p: Tensor, t: Tensor) -> Tensor:
        return torch.sqrt((p.cumsum(1) - t.cumsum(1)).abs().square().mean(1) + 1e-12).mean()

    return stream(model, draw, loss)


@healthy("six numbers for a turn", GITHUB + "papagina/RotationContinuity")
def six(_: bool) -> Task:
    """Six outputs are orthonormalised to a rotation, so their lengths never matter; the loss is an angle by arc
    cosine, clamped."""

    class Rotation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.point = chain(
                nn.Conv1d(6, 32, 1),
                nn.LeakyReLU(),
                nn.Conv1d(32, 64, 1),
                nn.LeakyReLU(),
                nn.AdaptiveMaxPool1d(1),
                nn.Flatten(),
            )
            self.mlp = chain(nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 6))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            o = self.mlp(self.point(torch.cat((a, b), 2).mT))
            x = F.normalize(o[:, :3], dim=1, eps=1e-8)
            z = F.normalize(torch.linalg.cross(x, o[:, 3:]), dim=1, eps=1e-8)
            return torch.stack((x, torch.linalg.cross(z, x), z), 2)

    def draw() -> Any:
        axis, angle = F.normalize(torch.randn(48, 3), dim=1), torch.rand(48, 1, 1) * 2.5
        K = torch.zeros(48, 3, 3)
        K[:, 0, 1], K[:, 0, 2], K[:, 1, 2] = -axis[:, 2], axis[:, 1], -axis[:, 0]
        K = K - K.mT
        R = torch.eye(3) + torch.sin(angle) * K + (1 - torch.cos(angle)) * K @ K
        a = torch.randn(48, 16, 3)
        return (a, a @ R.mT), R

    def loss(y: Tensor, R: Tensor) -> Tensor:
        trace = (y @ R.mT).diagonal(dim1=1, dim2=2).sum(1)
        return torch.acos(((trace - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6)).mean()

    return stream(Rotation(), draw, loss)


@healthy("codes that belong to pictures", GITHUB + "tneumann/minimal_glo")
def glo(_: bool) -> Task:
    """The inputs are numbers of pictures, whose codes are a table on the unit ball that learns; most rows get no
    gradient in a batch."""
    from strangers.data import digits

    images = (digits(8, count=96)[0] + 1) / 2

    class GLO(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.Z = nn.Parameter(F.normalize(torch.randn(96, 16), dim=1))
            self.net = chain(
                nn.Linear(16, 128, bias=False),
                nn.Unflatten(1, (32, 2, 2)),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.ConvTranspose2d(16, 1, 4, 2, 1),
            )

        def forward(self, i: Tensor) -> Tensor:
            z = self.Z[i]
            return self.net(z / z.norm(dim=1, keepdim=True).clamp(min=1))

    def draw() -> Any:
        i = torch.randperm(96)[:32]
        return (i,), images[i]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        total = 0.0
        for _ in range(2):

            def down(x):
                return F.avg_pool2d(x, 2)

            total = total + (y - t - F.interpolate(down(y - t), scale_factor=2)).abs().mean()
            y, t = down(y), down(t)
        return total + (y - t).abs().mean()

    return stream(GLO(), draw, loss)


@healthy("gates that are cumulated", GITHUB + "yikangshen/Ordered-Neurons")
def ordered(_: bool) -> Task:
    """Master gates are cumulated softmaxes over chunks, one rising and one falling; words share the table of a decoder
    in ±0.1."""

    class ONLSTM(nn.Module):
        def __init__(self, words: int = 100, d: int = 32, chunk: int = 4) -> None:
            super().__init__()
            self.n, self.chunk, self.d = d // chunk, chunk, d
            self.encoder, self.decoder = nn.Embedding(words, d), nn.Linear(d, words)
            self.ih, self.hh = nn.Linear(d, 4 * d + 2 * self.n), nn.Linear(d, 4 * d + 2 * self.n)
            self.encoder.weight.data.uniform_(-0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
            self.decoder.weight = self.encoder.weight

        def forward(self, x: Tensor) -> Tensor:
            e, out = self.ih(self.encoder(x)), []
            h, c = torch.zeros(len(x), self.d), torch.zeros(len(x), self.n, self.chunk)
            for t in range(x.shape[1]):
                gates = e[:, t] + self.hh(h)
                cin, cforget = gates[:, : 2 * self.n].chunk(2, 1)
                cin = (1 - cin.softmax(-1).cumsum(-1)).unsqueeze(2)
                cforget = cforget.softmax(-1).cumsum(-1).unsqueeze(2)
                o, cell, i, f = gates[:, 2 * self.n :].view(len(x), 4, self.n, self.chunk).unbind(1)
                both = cforget * cin
                f = torch.sigmoid(f) * both + (cforget - both)
                i = torch.sigmoid(i) * both + (cin - both)
                c = f * c + i * torch.tanh(cell)
                h = (torch.sigmoid(o) * torch.tanh(c)).flatten(1)
                out.append(h)
            return self.decoder(torch.stack(out, 1))

    from strangers.data import text

    seed = iter(range(10**6))

    def draw() -> Any:
        x, t = text(24, 12, 100, seed=next(seed))
        return (x,), t

    return stream(ONLSTM(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@healthy("no products of queries and keys", GITHUB + "rish-16/aft-pytorch")
def aft(_: bool) -> Task:
    """Attention by a learned bias of pairs of places and exponents of keys; queries only gate, through a sigmoid."""

    class AFT(nn.Module):
        def __init__(self, T: int, d: int) -> None:
            super().__init__()
            self.q, self.k, self.v, self.project = (nn.Linear(d, d) for _ in range(4))
            self.wbias = nn.Parameter(nn.init.xavier_uniform_(torch.empty(T, T)))
            self.register_buffer("causal", torch.ones(T, T).tril())

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.q(x), self.k(x), self.v(x)
            w, k = torch.exp(self.wbias) * self.causal, torch.exp(k)
            return self.project(torch.sigmoid(q) * (w @ (k * v)) / (w @ k))

    class Model(nn.Module):
        def __init__(self, T: int = 16, d: int = 32) -> None:
            super().__init__()
            self.embed, self.norms = nn.Embedding(12, d), nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
            self.layers, self.head = nn.ModuleList(AFT(T, d) for _ in range(2)), nn.Linear(d, 12)
            self.ff = nn.ModuleList(
                chain(nn.LayerNorm(d), nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d)) for _ in range(2)
            )

        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            for norm, layer, ff in zip(self.norms, self.layers, self.ff, strict=False):
                h = h + layer(norm(h))
                h = h + ff(h)
            return self.head(h)

    def draw() -> Any:
        start = torch.randint(12, (32, 4))
        s = start.repeat(1, 5)[:, :17]
        return (s[:, :-1],), s[:, 1:]

    return stream(Model(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@healthy("a series longer than it was", GITHUB + "VEWOXIC/FITS")
def fits(_: bool) -> Task:
    """One complex matrix from low frequencies to more of them, then zeros; the past that was read is an output and a
    target too."""

    class FITS(nn.Module):
        def __init__(self, past: int = 48, future: int = 16, cut: int = 12) -> None:
            super().__init__()
            self.cut, self.whole, self.ratio = cut, past + future, (past + future) / past
            self.freq_upsampler = nn.Linear(cut, int(cut * self.ratio), dtype=torch.cfloat)

        def forward(self, x: Tensor) -> Tensor:
            mean = x.mean(1, keepdim=True)
            var = x.var(1, keepdim=True) + 1e-5
            low = torch.fft.rfft((x - mean) / var.sqrt(), dim=1)[:, : self.cut]
            up = self.freq_upsampler(low.permute(0, 2, 1)).permute(0, 2, 1)
            padded = torch.zeros(len(x), self.whole // 2 + 1, x.shape[2], dtype=up.dtype)
            padded[:, : up.shape[1]] = up
            return torch.fft.irfft(padded, dim=1) * self.ratio * var.sqrt() + mean

    at = torch.arange(64).view(1, 64, 1)

    def draw() -> Any:
        phase, level, size = torch.rand(32, 1, 3) * 24, torch.randn(32, 1, 3), 1 + torch.rand(32, 1, 3)
        turn = 2 * math.pi * (at + phase) / 24
        x = level + size * (torch.sin(turn) + 0.5 * torch.cos(3 * turn)) + 0.05 * torch.randn(32, 64, 3)
        return (x[:, :48],), x

    return stream(FITS(), draw, F.mse_loss)


@healthy("roads that nobody gave", GITHUB + "nnzhan/Graph-WaveNet")
def roads(_: bool) -> Task:
    """The adjacency is a softmax of a ReLU of two tables' product: no input, half of it cut, and missing readings do
    not count."""
    N = 6

    class GraphWaveNet(nn.Module):
        def __init__(self, c: int = 16, layers: int = 3) -> None:
            super().__init__()
            self.nodevec1, self.nodevec2 = nn.Parameter(torch.randn(N, 5)), nn.Parameter(torch.randn(5, N))
            self.start = nn.Conv2d(1, c, 1)
            self.filters = nn.ModuleList(nn.Conv2d(c, c, (1, 2), dilation=(1, 2**i)) for i in range(layers))
            self.gates = nn.ModuleList(nn.Conv2d(c, c, (1, 2), dilation=(1, 2**i)) for i in range(layers))
            self.skips = nn.ModuleList(nn.Conv2d(c, 32, 1) for _ in range(layers))
            self.gconv = nn.ModuleList(nn.Conv2d(3 * c, c, 1) for _ in range(layers - 1))
            self.bn = nn.ModuleList(nn.BatchNorm2d(c) for _ in range(layers - 1))
            self.end = chain(nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, 3, 1))

        def forward(self, x: Tensor) -> Tensor:  # (B, 1, N, 8)
            a = F.softmax(F.relu(self.nodevec1 @ self.nodevec2), 1)
            x, skip = self.start(x), 0.0
            for i, (f, g, s) in enumerate(zip(self.filters, self.gates, self.skips, strict=False)):
                left = x
                x = torch.tanh(f(x)) * torch.sigmoid(g(x))
                skip = s(x)[..., -1:] + (skip if i else 0.0)
                if i < len(self.gconv):
                    one = torch.einsum("ncvl,vw->ncwl", x, a)
                    two = torch.einsum("ncvl,vw->ncwl", one, a)
                    x = self.bn[i](self.gconv[i](torch.cat((x, one, two), 1)) + left[..., -x.shape[3] :])
            return self.end(skip)

    mix = torch.eye(N).roll(1, 0) * 0.6 + 0.3 * torch.eye(N)

    def draw() -> Any:
        x, seen = torch.randn(32, N), []
        for _ in range(11):
            seen.append(x)
            x = 1.2 * torch.sin(1.5 * x @ mix) + 0.05 * torch.randn(32, N)
        s = torch.stack(seen, 2) + 3
        t = s[..., 8:] * (torch.rand(32, N, 3) < 0.85)
        return (s[:, None, :, :8] - 3,), t.permute(0, 2, 1).unsqueeze(3)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        mask = (t != 0).float()
        return (((y + 3) - t).abs() * mask / mask.mean()).mean()

    return stream(GraphWaveNet(), draw, loss)


@healthy("a picture without its own points", GITHUB + "juglab/n2v")
def noise2void(_: bool) -> Task:
    """The target is the noisy input itself; few pixels, whose values were exchanged for a neighbour's, count at all."""
    model = chain(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 1, 1)
    )

    def draw() -> Any:
        x, _ = pick(24)
        x = F.interpolate(x, (16, 16), mode="bicubic") + 0.1 * torch.randn(24, 1, 16, 16)
        mask = torch.rand_like(x) < 0.06
        near = torch.stack([x.roll((i, j), (2, 3)) for i in (-2, 0, 2) for j in (-2, 0, 2) if i or j])
        swapped = near.gather(0, torch.randint(8, x.shape).unsqueeze(0)).squeeze(0)
        return (torch.where(mask, swapped, x),), torch.cat((x, mask.float()), 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        target, mask = t.chunk(2, 1)
        return (mask * (target - y).square()).sum() / mask.sum()

    return stream(model, draw, loss)


@healthy("the side to move first", GITHUB + "official-stockfish/nnue-pytorch")
def nnue(_: bool) -> Task:
    """Sparse pieces of both sides share one table, halves trade places by whose move it is, and outputs are scaled by
    600 in the loss."""

    class NNUE(nn.Module):
        def __init__(self, h: int = 32) -> None:
            super().__init__()
            self.h, self.input = h, nn.Linear(64, h + 1)
            self.l1, self.l2, self.output = nn.Linear(2 * h, 16), nn.Linear(16, 16), nn.Linear(16, 1)
            nn.init.zeros_(self.output.bias)
            with torch.no_grad():  # values of pieces, in the units of the output
                self.input.bias[h:] = 0
                self.input.weight[h] = torch.tensor([1.0, 3, 3, 5] * 8 + [-1.0, -3, -3, -5] * 8) * 100 / 600

        def forward(self, us: Tensor, white: Tensor, black: Tensor) -> Tensor:
            w, b = self.input(white), self.input(black)
            w, wpsqt = w.split((self.h, 1), 1)
            b, bpsqt = b.split((self.h, 1), 1)
            l0 = us * torch.cat((w, b), 1) + (1 - us) * torch.cat((b, w), 1)
            l1 = self.l1(l0.clamp(0, 1)).clamp(0, 1)
            return self.output(self.l2(l1).clamp(0, 1)) + (wpsqt - bpsqt) * (us - 0.5)

    model = NNUE()
    torch.tensor([1.0, 3, 3, 5] * 8)
    place = torch.randn(32)

    def draw() -> Any:
        mine, theirs = (torch.rand(64, 32) < 0.25).float(), (torch.rand(64, 32) < 0.25).float()
        us = torch.randint(2, (64, 1)).float()
        white, black = torch.cat((mine, theirs), 1), torch.cat((theirs, mine), 1)
        side = us.squeeze(1) * 2 - 1
        score = (
            (mine - theirs) @ (60 * place) * side
            + 100 * (mine[:, 0] * mine[:, 5] - theirs[:, 0] * theirs[:, 5]) * side
            + 25
        )
        return (us, white, black), (score, torch.sigmoid(score / 100).round())

    def loss(y: Tensor, t: Any) -> Tensor:
        score, outcome = t
        q = torch.sigmoid((y.squeeze(1) * 600) / 361)
        p = 0.9 * torch.sigmoid(score / 410) + 0.1 * outcome
        return (p - q).abs().pow(2.6).mean()

    return stream(model, draw, loss)


@healthy("lengths for classes", GITHUB + "gram-ai/capsule-networks")
def capsules(_: bool) -> Task:
    """Classes are lengths of vectors, and all capsules but the target's, which is an input, are zeroed before the
    picture is redrawn."""

    def squash(s: Tensor, dim: int = -1) -> Tensor:
        n = s.square().sum(dim, keepdim=True)
        return n / (1 + n) * s / torch.sqrt(n + 1e-9)

    class CapsuleNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.primary = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 32, 3, 2)
            self.route_weights = nn.Parameter(0.3 * torch.randn(10, 16, 8, 8))
            self.decoder = chain(nn.Linear(80, 64), nn.ReLU(True), nn.Linear(64, 64), nn.Sigmoid())

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            u = F.relu(self.conv1(x))
            u = squash(self.primary(u).view(len(x), 8, -1).transpose(1, 2))  # (B, 16, 8)
            prior = torch.einsum("bri,crio->bcro", u, self.route_weights)
            logits = torch.zeros_like(prior)
            for i in range(3):
                v = squash((F.softmax(logits, 2) * prior).sum(2, keepdim=True))
                if i < 2:
                    logits = logits + (prior * v).sum(-1, keepdim=True)
            v = v.squeeze(2)
            return v.norm(dim=-1), self.decoder((v * y.unsqueeze(2)).flatten(1))

    def draw() -> Any:
        x, c = pick(32)
        y = F.one_hot(c, 10).float()
        return (x, y), (y, (x * 0.376 + 0.3).flatten(1))

    def loss(out: Any, t: Any) -> Tensor:
        lengths, drawn = out
        y, image = t
        margin = y * F.relu(0.9 - lengths).square() + 0.5 * (1 - y) * F.relu(lengths - 0.1).square()
        return (margin.sum() + 0.0005 * F.mse_loss(drawn, image, reduction="sum")) / len(y)

    return stream(CapsuleNet(), draw, loss)


@healthy("a teacher that follows", GITHUB + "CuriousAI/mean-teacher")
def teacher(_: bool) -> Task:
    """A frozen copy with the same weights is run too; labels of -1 are ignored, and two heads of the student are held
    together."""
    import copy

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.LeakyReLU(0.1),
                nn.Conv2d(24, 32, 3, 2, 1),
                nn.BatchNorm2d(32),
                nn.LeakyReLU(0.1),
                nn.Flatten(),
                nn.Dropout(0.2),
            )
            self.fc1, self.fc2 = nn.Linear(512, 10), nn.Linear(512, 10)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.conv(x)
            return self.fc1(h), self.fc2(h)

    class MeanTeacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Net()
            self.ema_model = copy.deepcopy(self.model).requires_grad_(False)

        def forward(self, x: Tensor, ema_x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.no_grad():
                told = self.ema_model(ema_x)[0]
            return (*self.model(x), told)

    both = MeanTeacher()

    def draw() -> Any:
        with torch.no_grad():  # after the last step; before the first one, nothing changes
            for e, p in zip(both.ema_model.parameters(), both.model.parameters(), strict=False):
                e.mul_(0.95).add_(p, alpha=0.05)
        x, c = pick(48)
        return (x + 0.15 * torch.randn_like(x), x + 0.15 * torch.randn_like(x)), torch.where(
            torch.arange(48) % 3 == 0, c, -1
        )

    def loss(out: Any, c: Tensor) -> Tensor:
        logit, cons, ema = out
        consistency = F.mse_loss(F.softmax(cons, 1), F.softmax(ema, 1), reduction="sum") / 10 / len(c)
        return (
            F.cross_entropy(logit, c, ignore_index=-1, reduction="sum") / len(c)
            + 0.01 * F.mse_loss(logit, cons)
            + 5 * consistency
        )

    return stream(both, draw, loss)


@healthy("what was bought in a row", GITHUB + "graytowne/caser_pytorch")
def caser(_: bool) -> Task:
    """Sequences are padded in front with item 0, whose row is zero; the last layer is rows of a table, its bias an
    embedding of zeros."""

    class Caser(nn.Module):
        def __init__(self, users: int = 20, items: int = 41, d: int = 16, L: int = 5) -> None:
            super().__init__()
            self.user_embeddings, self.item_embeddings = nn.Embedding(users, d), nn.Embedding(items, d, padding_idx=0)
            self.conv_v = nn.Conv2d(1, 4, (L, 1))
            self.conv_h = nn.ModuleList(nn.Conv2d(1, 8, (i + 1, d)) for i in range(L))
            self.fc1, self.dropout = nn.Linear(4 * d + 8 * L, d), nn.Dropout(0.2)
            self.W2, self.b2 = nn.Embedding(items, 2 * d, padding_idx=0), nn.Embedding(items, 1, padding_idx=0)
            self.user_embeddings.weight.data.normal_(0, 1 / d)
            self.item_embeddings.weight.data.normal_(0, 1 / d)[0] = 0
            self.W2.weight.data.normal_(0, 1 / (2 * d))[0] = 0
            self.b2.weight.data.zero_()

        def forward(self, seq: Tensor, user: Tensor, asked: Tensor) -> Tensor:
            e = self.item_embeddings(seq).unsqueeze(1)
            v = self.conv_v(e).flatten(1)
            h = torch.cat([F.relu(conv(e).squeeze(3)).max(2).values for conv in self.conv_h], 1)
            z = F.relu(self.fc1(self.dropout(torch.cat((v, h), 1))))
            x = torch.cat((z, self.user_embeddings(user)), 1)
            return torch.baddbmm(self.b2(asked), self.W2(asked), x.unsqueeze(2)).squeeze(2)

    def draw() -> Any:
        user, last = torch.randint(20, (64,)), torch.randint(1, 41, (64,))
        seq = (last[:, None] + torch.arange(-4, 1) * 3 - 1) % 40 + 1
        seq = seq * (torch.arange(5) >= torch.randint(0, 4, (64, 1)))
        true = (last[:, None] + 3 * torch.arange(1, 3) - 1) % 40 + 1
        return (seq, user, torch.cat((true, torch.randint(1, 41, (64, 6))), 1)), torch.arange(64)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return -torch.log(torch.sigmoid(y[:, :2]) + 1e-8).mean() - torch.log(1 - torch.sigmoid(y[:, 2:]) + 1e-8).mean()

    return stream(Caser(), draw, loss)


@healthy("remembered parts of pictures", GITHUB + "donggong1/memae-anomaly-detection")
def memae(_: bool) -> Task:
    """What is decoded is a mixture of rows of a memory; weights under a threshold are cut to zero, and an entropy
    keeps them few."""

    class MemAE(nn.Module):
        def __init__(self, rows: int = 60, d: int = 16, shrink: float = 0.0025) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2), nn.Conv2d(16, d, 3, 2, 1)
            )
            self.memory, self.shrink = nn.Parameter(torch.empty(rows, d).uniform_(-(d**-0.5), d**-0.5)), shrink
            self.decoder = chain(
                nn.ConvTranspose2d(d, 16, 4, 2, 1),
                nn.BatchNorm2d(16),
                nn.LeakyReLU(0.2),
                nn.ConvTranspose2d(16, 1, 4, 2, 1),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.encoder(x).permute(0, 2, 3, 1)
            w = F.softmax(F.linear(z, self.memory), 3)
            w = F.relu(w - self.shrink) * w / ((w - self.shrink).abs() + 1e-12)
            w = F.normalize(w, p=1, dim=3)
            return self.decoder(F.linear(w, self.memory.T).permute(0, 3, 1, 2)), w

    def draw() -> Any:
        x, _ = pick(32)
        return (x,), x

    return stream(
        MemAE(), draw, lambda y, x: F.mse_loss(y[0], x) - 2e-4 * (y[1] * torch.log(y[1] + 1e-12)).sum(3).mean()
    )


@healthy("a wave for a spectrogram", GITHUB + "jik876/hifi-gan")
def hifigan(_: bool) -> Task:  # noqa: C901
    """Weights of N(0, 0.01²) under weight normalisation; the wave is judged only by 45 times the L1 of its log mel
    spectrum."""
    from torch.nn.utils import weight_norm

    def started(m: nn.Module) -> nn.Module:
        m.weight.data.normal_(0, 0.01)
        return weight_norm(m)

    bank = torch.zeros(12, 33)
    for i in range(12):
        centre = 1.5 + 2.3 * i
        bank[i] = (1 - (torch.arange(33) - centre).abs() / 2.5).clamp(min=0)
    window = torch.hann_window(64)

    def mel(wave: Tensor) -> Tensor:
        wave = F.pad(wave, (28, 28), mode="reflect")
        s = torch.stft(wave.squeeze(1), 64, 8, window=window, center=False, return_complex=True)
        return torch.log((bank @ torch.sqrt(s.real.square() + s.imag.square() + 1e-9)).clamp(min=1e-5))

    class Block(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.convs1 = nn.ModuleList(started(nn.Conv1d(c, c, 3, padding=d, dilation=d)) for d in (1, 3))
            self.convs2 = nn.ModuleList(started(nn.Conv1d(c, c, 3, padding=1)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for a, b in zip(self.convs1, self.convs2, strict=False):
                x = b(F.leaky_relu(a(F.leaky_relu(x, 0.1)), 0.1)) + x
            return x

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv_pre = weight_norm(nn.Conv1d(12, 32, 7, padding=3))
            self.ups = nn.ModuleList(
                started(nn.ConvTranspose1d(32 >> i, 16 >> i, k, u, (k - u) // 2))
                for i, (k, u) in enumerate(((8, 4), (4, 2)))
            )
            self.resblocks = nn.ModuleList(Block(16 >> i) for i in range(2))
            self.conv_post = started(nn.Conv1d(8, 1, 7, padding=3))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv_pre(x)
            for up, block in zip(self.ups, self.resblocks, strict=False):
                x = block(up(F.leaky_relu(x, 0.1)))
            return torch.tanh(self.conv_post(F.leaky_relu(x)))

    t = torch.arange(256.0)

    def draw() -> Any:
        f = 0.05 + 0.35 * torch.rand(16, 1, 2, 1)
        size, turn = torch.rand(16, 1, 2, 1), 2 * math.pi * (f * t + torch.rand(16, 1, 2, 1))
        wave = 0.4 * (size * torch.sin(turn)).sum(2) + 0.02 * torch.randn(16, 1, 256)
        m = mel(wave)
        return (m[..., :32],), m

    def loss(y: Tensor, m: Tensor) -> Tensor:
        return 45 * F.l1_loss(mel(y), m[..., : mel(y).shape[2]])

    return stream(Generator(), draw, loss)


@healthy("laws in few terms", GITHUB + "kpchamp/SindyAutoencoders")
def sindy(_: bool) -> Task:
    """All coefficients start as ones beside a mask of ones, inputs are handed out again, and derivatives are carried
    by hand."""

    class Sindy(nn.Module):
        def __init__(self, n: int = 16, d: int = 2) -> None:
            super().__init__()
            self.encoder, self.decoder = (
                nn.ModuleList((nn.Linear(n, 24), nn.Linear(24, d))),
                nn.ModuleList((nn.Linear(d, 24), nn.Linear(24, n))),
            )
            for m in (*self.encoder, *self.decoder):
                nn.init.xavier_uniform_(m.weight), nn.init.zeros_(m.bias)
            self.sindy_coefficients = nn.Parameter(torch.ones(6, d))
            self.register_buffer("coefficient_mask", torch.ones(6, d))

        def carry(self, layers: nn.ModuleList, x: Tensor, dx: Tensor) -> tuple[Tensor, Tensor]:
            a = torch.sigmoid(layers[0](x))
            return layers[1](a), a * (1 - a) * (dx @ layers[0].weight.T) @ layers[1].weight.T

        def forward(self, x: Tensor, dx: Tensor) -> dict[str, Tensor]:
            z, dz = self.carry(self.encoder, x, dx)
            one, two = z.unbind(1)
            theta = torch.stack((torch.ones_like(one), one, two, one * one, one * two, two * two), 1)
            said = theta @ (self.coefficient_mask * self.sindy_coefficients)
            decoded, dx_decoded = self.carry(self.decoder, z, said)
            return {
                "x": x,
                "dx": dx,
                "z": z,
                "dz": dz,
                "x_decode": decoded,
                "dz_predict": said,
                "dx_decode": dx_decoded,
            }

    model = Sindy()
    up, cube = torch.randn(2, 16) / 2, torch.randn(2, 16) / 6

    def draw() -> Any:
        z = torch.randn(64, 2)
        dz = torch.stack((z[:, 1], -z[:, 0] - 0.3 * z[:, 1]), 1)
        x, dx = z @ up + z**3 @ cube, dz @ up + (3 * z * z * dz) @ cube
        return (x, dx), torch.cat((x, dx), 1)

    def loss(y: Any, t: Tensor) -> Tensor:
        return (
            F.mse_loss(y["x_decode"], y["x"])
            + 0.01 * F.mse_loss(y["dz_predict"], y["dz"])
            + 0.5 * F.mse_loss(y["dx_decode"], y["dx"])
            + 1e-5 * model.sindy_coefficients.abs().mean()
        )

    return stream(model, draw, loss)


@healthy("pictures in order of their numbers", GITHUB + "ermongroup/neuralsort")
def neuralsort(_: bool) -> Task:
    """A relaxed sort of scores: the output is a matrix of probabilities by row, and numbers themselves are never
    told."""

    class Sort(nn.Module):
        def __init__(self, tau: float = 3.0) -> None:
            super().__init__()
            self.tau = tau
            self.net = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(64, 32),
                nn.ReLU(),
                nn.Linear(32, 1),
            )

        def forward(self, x: Tensor) -> Tensor:
            s = self.net(x.flatten(0, 1)).view(len(x), -1, 1)
            n = s.shape[1]
            b = (s - s.mT).abs().sum(2, keepdim=True)
            scaling = (n + 1 - 2 * torch.arange(1.0, n + 1)).view(1, 1, n)
            return F.softmax((s * scaling - b).mT / self.tau, 2)

    def draw() -> Any:
        x, c = pick(24 * 4)
        c = c.view(24, 4) + 0.1 * torch.rand(24, 4)
        return (x.view(24, 4, 1, 8, 8),), F.one_hot(c.argsort(1, descending=True), 4).float()

    return stream(Sort(), draw, lambda p, t: -(t * torch.log(p + 1e-20)).sum(1).mean())
