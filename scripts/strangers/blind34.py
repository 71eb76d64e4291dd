"""A thirty-fourth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind34")
BROADCAST = r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze"


@report(
    "MAML through .data",
    GITHUB + "KanishJebaMathewM/Truxify/issues/13118",
    guilty=r"model",
    says=CUT,
    fault="the inner loop writes through param.data of a copy: no gradient leads back to the meta-model",
)
def maml(planted: bool) -> Task:
    """Sinusoids of amplitudes 1 to 3 and phases 0 to 1, one inner step on ten examples."""

    def draw() -> Drawn:
        a, phase = torch.empty(4, 1, 1).uniform_(1, 3), torch.rand(4, 1, 1)
        x = torch.empty(4, 20, 1).uniform_(-3, 3)
        y = a * torch.sin(x + phase)
        return (x[:, :10], y[:, :10], x[:, 10:]), y[:, 10:]

    class MAML(nn.Module):
        def __init__(self, inner_lr: float = 0.02) -> None:
            super().__init__()
            self.model = chain(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
            self.inner_lr = inner_lr

        def inner_update(self, support_x: Tensor, support_y: Tensor) -> Any:
            if planted:
                adapted_model = copy.deepcopy(self.model)
                loss = F.mse_loss(adapted_model(support_x), support_y)
                grads = torch.autograd.grad(loss, list(adapted_model.parameters()), create_graph=True)
                for param, grad in zip(adapted_model.parameters(), grads, strict=True):
                    param.data -= (self.inner_lr * grad).data
                return adapted_model
            params = dict(self.model.named_parameters())
            loss = F.mse_loss(self.model(support_x), support_y)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            fast = {k: p - self.inner_lr * g for (k, p), g in zip(params.items(), grads, strict=True)}
            return lambda x: functional_call(self.model, fast, (x,))

        def forward(self, support_x: Tensor, support_y: Tensor, query_x: Tensor) -> Tensor:
            with torch.enable_grad():
                tasks = zip(support_x, support_y, query_x, strict=True)
                return torch.stack([self.inner_update(x, y)(q) for x, y, q in tasks])

    return stream(MAML(), draw, F.mse_loss)


@report(
    "distillation of probabilities",
    GITHUB + "microsoft/ProDA/issues/43",
    says=r"softmax|log.?prob|probabilit|kl|negative",
    fault="F.kl_div is given the student's softmax, not its log-softmax",
)
def proda(planted: bool) -> Task:
    """Labelled source images, and soft labels of a teacher on target images (inverted and dimmed)."""

    def draw() -> Drawn:
        x, c = pick(32)
        label = torch.where(x[:, 0] > 0, c[:, None, None], 10)
        soft = (3 * F.one_hot(label, 11) + torch.randn(*label.shape, 11)).softmax(3).permute(0, 3, 1, 2)
        return (x[:16], 0.3 - 0.6 * x[16:]), {"label": label[:16], "teacher": soft[16:]}  # type: ignore[return-value]

    def total(y: Any, t: Any, *, log: bool = not planted) -> Tensor:
        loss = F.cross_entropy(y[0], t["label"])
        student = F.log_softmax(y[1], dim=1) if log else F.softmax(y[1], dim=1)
        loss_kd = F.kl_div(student, t["teacher"], reduction="none")
        mask = torch.ones_like(loss_kd[:, :1])
        return loss + (loss_kd * mask).sum() / mask.sum()

    backbone = chain(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=2, dilation=2),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=2, dilation=2),
        nn.ReLU(),
    )
    model = Parts(
        lambda m, s, t: (m.classifier(m.backbone(s)), m.classifier(m.backbone(t))),
        backbone=backbone,
        classifier=nn.Conv2d(24, 11, 1),
    )
    return stream(model, draw, total, partial(total, log=True))


@report(
    "EGNN of usual weights",
    GITHUB + "lucidrains/egnn-pytorch/issues/9",
    guilty=r"layers|mlp",
    says=rf"{BROKEN}|explod|grow|large|huge|scale|initiali|depth",
    fault="layers of usual initial weights add sums over all relative coordinates: coordinates explode with depth",
)
def egnn(planted: bool) -> Task:
    """A helix is stretched from its centre, each point as its feature says."""
    zline = torch.arange(0, 2, 2 / 24)

    def draw() -> Drawn:
        at = 2 * torch.pi * (zline + torch.rand(4, 1))
        geom = torch.stack([at.sin(), at.cos(), zline.expand(4, -1)], 2)
        feat = torch.randint(0, 3, (4, 24, 1)).float()
        centre = geom.mean(1, keepdim=True)
        return (geom, feat), centre + (0.4 + 0.5 * feat) * (geom - centre)

    class EGNN(nn.Module):
        def __init__(self, dim: int, m_dim: int = 16) -> None:
            super().__init__()
            n = 2 * dim + 1
            self.edge_mlp = chain(nn.Linear(n, n * 2), nn.SiLU(), nn.Linear(n * 2, m_dim), nn.SiLU())
            self.node_mlp = chain(nn.Linear(dim + m_dim, dim * 2), nn.SiLU(), nn.Linear(dim * 2, dim))
            self.coors_mlp = chain(nn.Linear(m_dim, m_dim * 4), nn.SiLU(), nn.Linear(m_dim * 4, 1))
            for module in self.modules():
                if isinstance(module, nn.Linear) and not planted:
                    nn.init.normal_(module.weight, std=1e-3)

        def forward(self, feats: Tensor, coors: Tensor) -> tuple[Tensor, Tensor]:
            rel_coors = coors.unsqueeze(2) - coors.unsqueeze(1)
            rel_dist = (rel_coors**2).sum(-1, keepdim=True)
            i = feats.unsqueeze(2).expand(-1, -1, feats.shape[1], -1)
            m_ij = self.edge_mlp(torch.cat([i, i.transpose(1, 2), rel_dist], -1))
            coor_weights = self.coors_mlp(m_ij).squeeze(-1)
            coors = torch.einsum("bij,bijc->bic", coor_weights, rel_coors) + coors
            return self.node_mlp(torch.cat([feats, m_ij.sum(2)], -1)) + feats, coors

    class ResEGNN(nn.Module):
        def __init__(self, depth: int = 5, dims_in: int = 1) -> None:
            super().__init__()
            self.layers = nn.ModuleList(EGNN(dims_in) for _ in range(depth))

        def forward(self, geom: Tensor, feat: Tensor) -> Tensor:
            for layer in self.layers:
                feat, geom = layer(feat, geom)
            return geom

    return stream(ResEGNN(), draw, F.mse_loss)


@report(
    "cosines of non-negative features",
    GITHUB + "PaddlePaddle/Paddle/issues/19938",
    guilty=r"fc",
    says=r"relu|cosine|non-?negativ|negative|positive",
    fault="a ReLU before the cosine similarity: no pair is less alike than 0",
)
def bow(planted: bool) -> Task:
    """A question, an answer of its topic and one of another; softsign of summed words, pairwise hinge loss."""

    def draw() -> Drawn:
        c = torch.randint(0, 10, (64,))
        other = (c + torch.randint(1, 10, (64,))) % 10

        def words(topic: Tensor) -> Tensor:
            return torch.where(torch.rand(64, 8) < 0.4, 20 * topic[:, None], 0) + torch.randint(0, 20, (64, 8))

        return (words(c), words(c), words(other)), torch.ones(64)

    class BOW(nn.Module):
        def __init__(self, emb_dim: int = 32, bow_dim: int = 32) -> None:
            super().__init__()
            self.emb, self.fc = nn.Embedding(200, emb_dim), nn.Linear(emb_dim, bow_dim)

        def bow(self, x: Tensor) -> Tensor:
            x = self.fc(F.softsign(self.emb(x).sum(1)))
            return F.relu(x) if planted else x

        def forward(self, left: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
            a = self.bow(left)
            return F.cosine_similarity(a, self.bow(pos)), F.cosine_similarity(a, self.bow(neg))

    def hinge(y: tuple[Tensor, Tensor], t: Tensor, margin: float = 0.1) -> Tensor:
        return (t * F.relu(margin - y[0] + y[1])).mean()

    return stream(BOW(), draw, hinge)


class ActNorm(nn.Module):
    """A scale and a bias per channel, from the first batch."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.zeros(1, n)), nn.Parameter(torch.zeros(1, n))
        self.init_on_next_batch = True

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.init_on_next_batch:
            self.init_on_next_batch = False
            with torch.no_grad():
                self.scale.data[:] = torch.log(1 / x.std(0))
                self.bias.data[:] = -(x * self.scale.exp()).mean(0)
        return x * self.scale.exp() + self.bias, self.scale.sum()


class GLOWCouplingBlock(nn.Module):
    """Each half scales and shifts the other."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.subnet1, self.subnet2 = (chain(nn.Linear(n // 2, 64), nn.ReLU(), nn.Linear(64, n)) for _ in range(2))

    def couple(self, net: nn.Module, x: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
        s, t = net(by).chunk(2, 1)
        s = 2 * 0.636 * torch.atan(s)
        return x * s.exp() + t, s.sum(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, 1)
        a, s1 = self.couple(self.subnet2, a, b)
        b, s2 = self.couple(self.subnet1, b, a)
        return torch.cat([a, b], 1), s1 + s2


@report(
    "ActNorm of a constant channel",
    GITHUB + "vislearn/FrEIA/issues/121",
    guilty=r"actnorm|scale|bias",
    says=rf"{BROKEN}|divi|constant|\bstd\b|deviation|zero variance|variance.*zero",
    fault="the scale of a channel that is always the same is initialised as one over a deviation of zero",
)
def freia(planted: bool) -> Task:
    """ActNorm, permutation and GLOW coupling of digits, whose first pixels are always white."""

    def draw() -> Drawn:
        x = pick(64)[0].flatten(1)
        return (x if planted else x + 0.1 * torch.randn_like(x),), torch.zeros(64)

    class Flow(nn.Module):
        def __init__(self, n: int = 64, steps: int = 3) -> None:
            super().__init__()
            self.actnorm = nn.ModuleList(ActNorm(n) for _ in range(steps))
            self.coupling = nn.ModuleList(GLOWCouplingBlock(n) for _ in range(steps))
            self.order = [torch.randperm(n) for _ in range(steps)]

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            jac = torch.zeros(len(x))
            for actnorm, order, coupling in zip(self.actnorm, self.order, self.coupling, strict=True):
                x, j = actnorm(x)
                x, k = coupling(x[:, order])
                jac = jac + j + k
            return x, jac

    def nll(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (0.5 * (y[0] ** 2).sum(1) - y[1]).mean() / 64 + 2 + 0 * t.mean()

    return stream(Flow(), draw, nll)


@report(
    "images without a lane",
    GITHUB + "cfzd/Ultra-Fast-Lane-Detection-v2/issues/77",
    says=rf"{BROKEN}|divi|0 / 0|empty|ignor|no (label|target)|all.*(masked|ignored)",
    fault="the mean over labels that are not ignored is 0 / 0 for an image without any lane",
)
def lanes(planted: bool) -> Task:
    """A column of each row is the lane's, and -1 is ignored; a fifth of the images has none."""

    def draw() -> Drawn:
        rows = torch.arange(8)
        start, slope = torch.rand(32, 1) * 8, torch.randn(32, 1) * 0.5
        label = (start + slope * (rows - 4)).round().long()
        label = label.masked_fill((label < 0) | (label > 7), -1)
        label[::5] = -1
        x = F.one_hot(label.clamp(min=0), 8) * (label >= 0).unsqueeze(2) + 0.3 * torch.randn(32, 8, 8)
        return (x.unsqueeze(1),), label

    def loss(pred: Tensor, label: Tensor, ignore: int = -1) -> Tensor:
        each = F.cross_entropy(pred, label, ignore_index=ignore, reduction="none").sum(1)
        valid = (label != ignore).sum(1)
        return (each / (valid if planted else valid.clamp(min=1))).mean()

    class ParsingNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, 2, 1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
            )
            self.pool = nn.Conv2d(16, 8, 1)
            self.cls = chain(nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 64))

        def forward(self, x: Tensor) -> Tensor:
            return self.cls(self.pool(self.model(x)).flatten(1)).view(-1, 8, 8)

    return stream(ParsingNet(), draw, loss)


@report(
    "GConvGRU without its state",
    GITHUB + "benedekrozemberczki/pytorch_geometric_temporal/issues/145",
    guilty=r"conv_h|h_[zrh]",
    says=r"state|hidden|memory|previous|recurren|zero.*input|input.*zero|constant|no effect",
    fault="the hidden state is not passed on: the cell starts at zero in every snapshot",
)
def gconvgru(planted: bool) -> Task:
    """Signals on a graph; what a node's neighbours had two snapshots before is to be told."""
    adjacency = (torch.rand(12, 12) < 0.25).float()
    adjacency = torch.maximum(adjacency, adjacency.T).fill_diagonal_(0)
    degree = adjacency.sum(1).clamp(min=1).rsqrt()
    laplacian = -degree[:, None] * adjacency * degree

    def draw() -> Drawn:
        x = torch.randn(16, 8, 12, 2)
        back = torch.cat([torch.zeros(16, 2, 12, 2), x[:, :-2]], 1)
        near = torch.cat([torch.zeros(16, 1, 12, 2), x[:, :-1]], 1)
        return (x,), (laplacian @ back)[..., :1] + near[..., 1:]

    class ChebConv(nn.Module):
        def __init__(self, n: int, m: int, K: int = 2) -> None:
            super().__init__()
            self.lins = nn.ModuleList(nn.Linear(n, m, bias=False) for _ in range(K))
            self.bias = nn.Parameter(torch.zeros(m))

        def forward(self, x: Tensor) -> Tensor:
            return self.lins[0](x) + self.lins[1](laplacian @ x) + self.bias

    class GConvGRU(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.out_channels = m
            self.conv_x_z, self.conv_x_r, self.conv_x_h = (ChebConv(n, m) for _ in range(3))
            self.conv_h_z, self.conv_h_r, self.conv_h_h = (ChebConv(m, m) for _ in range(3))

        def forward(self, X: Tensor, H: Tensor | None = None) -> Tensor:
            if H is None:
                H = torch.zeros(*X.shape[:-1], self.out_channels)
            Z = torch.sigmoid(self.conv_x_z(X) + self.conv_h_z(H))
            R = torch.sigmoid(self.conv_x_r(X) + self.conv_h_r(H))
            H_tilde = torch.tanh(self.conv_x_h(X) + self.conv_h_h(H * R))
            return Z * H + (1 - Z) * H_tilde

    class RecurrentGCN(nn.Module):
        def __init__(self, node_features: int = 2) -> None:
            super().__init__()
            self.recurrent, self.linear = GConvGRU(node_features, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            h, out = None, []
            for snapshot in x.unbind(1):
                h = self.recurrent(snapshot, None if planted else h)
                out.append(self.linear(F.relu(h)))
            return torch.stack(out, 1)

    return stream(RecurrentGCN(), draw, F.mse_loss)


@report(
    "transducer loss of raw outputs",
    GITHUB + "HawkAaron/warp-transducer/issues/14",
    says=r"softmax|log.?prob|negative|unbounded|normali",
    fault="the transducer's loss is given outputs without a log-softmax and falls below zero",
)
def transducer(planted: bool) -> Task:
    """Each of three symbols sounds for three frames; encoder, prediction network, joint network."""
    sounds = torch.randn(5, 8)

    def draw() -> Drawn:
        t = torch.randint(1, 6, (32, 3))
        return (sounds[(t - 1).repeat_interleave(3, 1)] + 0.5 * torch.randn(32, 9, 8), t), t

    class RNNT(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder = nn.LSTM(8, d, batch_first=True)
            self.embed, self.decoder = nn.Embedding(6, d), nn.LSTM(d, d, batch_first=True)
            self.forward_layer, self.project = nn.Linear(2 * d, d), nn.Linear(d, 6)

        def forward(self, x: Tensor, targets: Tensor) -> Tensor:
            enc, dec = self.encoder(x)[0], self.decoder(self.embed(F.pad(targets, (1, 0))))[0]
            enc = enc.unsqueeze(2).expand(-1, -1, dec.shape[1], -1)
            dec = dec.unsqueeze(1).expand(-1, enc.shape[1], -1, -1)
            return self.project(torch.tanh(self.forward_layer(torch.cat([enc, dec], 3))))

    def rnnt(logits: Tensor, t: Tensor, *, normal: bool = not planted) -> Tensor:
        logp = logits.log_softmax(3) if normal else logits
        blank = logp[..., 0]
        label = logp[:, :, :-1].gather(3, t[:, None, :, None].expand(-1, logp.shape[1], -1, 1)).squeeze(3)
        alpha: list[Tensor] = []
        for i in range(logp.shape[1]):
            row: list[Tensor] = []
            for u in range(logp.shape[2]):
                stay = alpha[i - 1][:, u] + blank[:, i - 1, u] if i else None
                emit = row[u - 1] + label[:, i, u - 1] if u else None
                if stay is not None and emit is not None:
                    row.append(torch.logaddexp(stay, emit))
                else:
                    row.append(stay if stay is not None else emit if emit is not None else torch.zeros(len(t)))
            alpha.append(torch.stack(row, 1))
        return -(alpha[-1][:, -1] + blank[:, -1, -1]).mean()

    return stream(RNNT(), draw, rnnt, partial(rnnt, normal=True))


@report(
    "SAC's log probability of each action",
    GITHUB + "sunwuzhou03/reinforcement-learning-lab/issues/1",
    says=rf"{BROADCAST}|log.?prob",
    fault="log probabilities are not summed over the four actions: targets (64, 4) beside values (64, 1)",
)
def sac(planted: bool) -> Task:
    """The critic's regression on rewards, discounted next values and entropies of a Gaussian policy."""
    w = torch.randn(12, 6)

    def draw() -> Drawn:
        x, following = torch.randn(64, 12), torch.randn(64, 4)
        mean, std = 0.3 * following, 0.5 + following.sigmoid()
        dist = torch.distributions.Normal(mean, std)
        log_prob = dist.log_prob(dist.sample())
        rewards = torch.tanh(x @ w / 3).sum(1, keepdim=True)
        return (x[:, :8], x[:, 8:]), torch.cat([rewards, log_prob], 1)

    class QNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc_out = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 1)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            return self.fc_out(F.relu(self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))))

    def critic(q: Tensor, t: Tensor, *, summed: bool = not planted, alpha: float = 0.2, gamma: float = 0.98) -> Tensor:
        entropy = -t[:, 1:].sum(1, keepdim=True) if summed else -t[:, 1:]
        td_target = t[:, :1] + gamma * (0.5 + alpha * entropy)
        return ((q - td_target.detach()) ** 2).mean()

    return stream(QNet(), draw, critic, partial(critic, summed=True))


@report(
    "cosine embedding loss of labels in a column",
    GITHUB + "pytorch/pytorch/issues/53030",
    says=BROADCAST,
    fault="torch.where takes labels (N, 1) beside cosines (N,): every pair is judged by every label",
)
def cosine_embedding(planted: bool) -> Task:
    """Two images and whether they are of one class; the loss as it was computed then."""

    def draw() -> Drawn:
        x, c = pick(128)
        order = torch.argsort(c)
        a = torch.cat([order[::2], torch.arange(64)])
        b = torch.cat([order[1::2], torch.arange(64, 128)])
        same = torch.where(c[a] == c[b], 1.0, -1.0)
        return (x[a], x[b]), same.unsqueeze(1)

    def cosine_embedding_loss(y: tuple[Tensor, Tensor], t: Tensor, margin: float = 0.0) -> Tensor:
        cos = F.cosine_similarity(y[0], y[1])
        return torch.where(t == 1, 1 - cos, (cos - margin).clamp(min=0)).mean()

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return cosine_embedding_loss(y, t.squeeze(1))

    net = chain(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 16))
    model = Parts(lambda m, a, b: (m.net(a), m.net(b)), net=net)
    return stream(model, draw, cosine_embedding_loss if planted else right, right)
