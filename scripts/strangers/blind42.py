"""The forty-second set: reports out of threads about research repositories, written without sight of the tool."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind42")


def shown(count: int = 16) -> Drawn:
    x, t = pick(count)
    return (x,), t


def margins(v: Tensor, t: Tensor) -> Tensor:
    """Margin loss of the lengths of digit capsules (B, 10, d)."""
    length, hot = (v.square().sum(-1) + 1e-9).sqrt(), F.one_hot(t, 10).float()
    each = hot * F.relu(0.9 - length).square() + 0.5 * (1 - hot) * F.relu(length - 0.1).square()
    return each.sum(1).mean()


class PrimaryCaps(nn.Module):
    """Capsules (B, 8 * 36, 4) of images (B, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.primary = nn.Conv2d(16, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        u = self.primary(F.relu(self.conv1(x)))
        return u.unflatten(1, (8, 4)).permute(0, 1, 3, 4, 2).flatten(1, 3)


def squash(s: Tensor, dim: int = -1) -> Tensor:
    square = s.square().sum(dim, keepdim=True)
    return square / (1 + square) * s / (square + 1e-9).sqrt()


@report(
    "routing weights of randn",
    GITHUB + "motokimura/capsnet_pytorch/pull/1",
    guilty=r"\bW$",
    says=r"(weight|init\w*|\bW\b).*(large|big|scale|std|randn)|(large|big).*(weight|init)|saturat",
    fault="the transformation matrices of 288 capsules are initialised by randn, not uniform(-stdv, stdv)",
)
def capsnet(planted: bool) -> Task:
    class CapsNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.primary_caps = PrimaryCaps()
            self.W = nn.Parameter(torch.randn(288, 10, 4, 8))
            if not planted:
                stdv = 1 / math.sqrt(288)
                nn.init.uniform_(self.W, -stdv, stdv)

        def forward(self, x: Tensor) -> Tensor:
            u_hat = torch.einsum("bic,ijcd->bijd", squash(self.primary_caps(x)), self.W)
            b_ij = torch.zeros(len(x), 288, 10, 1)
            v = u_hat[:, 0]
            for _ in range(3):
                v = squash((F.softmax(b_ij, 2) * u_hat).sum(1))
                b_ij = b_ij + (u_hat * v.unsqueeze(1)).sum(-1, keepdim=True)
            return v

    return stream(CapsNet(), shown, margins)


@report(
    "routing softmax over inputs",
    GITHUB + "cedrickchee/capsule-net-pytorch/issues/3",
    guilty=r"\bW$",
    says=r"softmax|squash|wrong (axis|dim)|normali[sz]\w* (over|along|across)",
    fault="routing logits (1, 288, 10, 1) are normalised over the input capsules, and squash runs over the classes",
)
def capsule_net(planted: bool) -> Task:
    class CapsuleLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(0.05 * torch.randn(288, 10, 4, 8))

        def forward(self, u: Tensor) -> Tensor:
            u_hat = torch.einsum("bic,ijcd->bijd", u, self.W)
            b_ij = torch.zeros(1, 288, 10, 1)
            v_j = u_hat[:, :1]
            for _ in range(3):
                c_ij = F.softmax(b_ij, 1 if planted else 2)
                v_j = squash((c_ij * u_hat).sum(1, keepdim=True), 2 if planted else 3)
                b_ij = b_ij + (u_hat * v_j).sum(-1, keepdim=True).mean(0, keepdim=True)
            return v_j.squeeze(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.primary, self.digits = PrimaryCaps(), CapsuleLayer()

        def forward(self, x: Tensor) -> Tensor:
            return self.digits(squash(self.primary(x)))

    return stream(Net(), shown, margins)


@report(
    "focal loss of one channel",
    GITHUB + "Project-MONAI/MONAI/issues/2509",
    says=rf"{CUT}|softmax|(one|single|1) channel|focal|always (zero|0)|constant",
    fault="without background one channel is left, whose log_softmax is 0: the focal half of the loss is always 0",
)
def dice_focal(planted: bool) -> Task:
    def draw() -> Drawn:
        at, size = torch.rand(16, 2, 1, 1) * 10 + 3, torch.rand(16, 1, 1) * 2 + 2
        row, col = torch.arange(16).view(1, 16, 1), torch.arange(16).view(1, 1, 16)
        t = ((row - at[:, 0]).square() + (col - at[:, 1]).square() < size.square()).long().unsqueeze(1)
        return (t + 0.8 * torch.randn(16, 1, 16, 16),), t

    def focal(i: Tensor, t: Tensor, *, gamma: float = 2.0, one: bool = planted) -> Tensor:
        if one:
            logpt = F.log_softmax(i, dim=1)
            return (-((1 - logpt.exp()) ** gamma) * logpt * t).mean()
        return ((F.logsigmoid(-i * (t * 2 - 1)) * gamma).exp() * F.binary_cross_entropy_with_logits(i, t)).mean()

    def dice(y: Tensor, t: Tensor) -> Tensor:
        p, axes = y.softmax(1)[:, 1:], (2, 3)
        return (1 - (2 * (p * t).sum(axes) + 1e-5) / (p.sum(axes) + t.sum(axes) + 1e-5)).mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return dice(y, t.float()) + focal(y[:, 1:], t.float())

    def right(y: Tensor, t: Tensor) -> Tensor:
        return dice(y, t.float()) + focal(y[:, 1:], t.float(), one=False)

    model = chain(
        nn.Conv3d(1, 8, (1, 3, 3), padding=(0, 1, 1)),
        nn.InstanceNorm3d(8),
        nn.PReLU(),
        nn.Conv3d(8, 16, (1, 3, 3), padding=(0, 1, 1)),
        nn.InstanceNorm3d(16),
        nn.PReLU(),
        nn.Conv3d(16, 2, 1),
    )
    net = chain(nn.Unflatten(1, (1, 1)), model, nn.Flatten(2, 3))
    return stream(net, draw, wrong if planted else right, right)


@report(
    "views normalised, not features",
    GITHUB + "HobbitLong/SupContrast/issues/10",
    says=rf"{BROKEN}|normali[sz].*(axis|dim|view|feature)|(large|huge).*(logit|similarit)|overflow|underflow",
    fault="F.normalize over the two views, not the features: products near 64 / 0.07, all other exponentials are 0",
)
def supcon(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = pick(32)
        return (torch.stack([x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)], 1),), t

    class SupConNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU())
            self.head = chain(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))

        def forward(self, x: Tensor) -> Tensor:
            features = self.head(self.encoder(x.flatten(0, 1))).unflatten(0, x.shape[:2])
            return F.normalize(features, dim=1 if planted else 2)

    def loss(features: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
        mask = torch.eq(labels[:, None], labels[None]).float().repeat(2, 2)
        contrast = torch.cat(features.unbind(1))
        logits = contrast @ contrast.t() / temperature
        logits = logits - logits.max(1, keepdim=True)[0].detach()
        others = 1 - torch.eye(len(logits))
        mask = mask * others
        exp_logits = logits.exp() * others
        log_prob = logits - exp_logits.sum(1, keepdim=True).log()
        return -((mask * log_prob).sum(1) / mask.sum(1)).mean()

    return stream(SupConNet(), draw, loss)


@report(
    "standard deviations below zero",
    GITHUB + "sweetice/Deep-reinforcement-learning-with-pytorch/issues/35",
    guilty=r"sigma",
    says=rf"{BROKEN}|negative|softplus|\blog\b|positive|sigma|standard deviation",
    fault="sigma of the policy is a linear output without softplus: the log-density of negative ones is NaN",
)
def ppo2(planted: bool) -> Task:
    def draw() -> Drawn:
        s, a = torch.randn(128, 4), torch.randn(128, 1)
        best = torch.tanh(s[:, :1] - 0.5 * s[:, 1:2])
        gain = -(a - best).square()
        old = -0.5 * a.square() - 0.5 * math.log(2 * math.pi)
        return (s,), torch.cat([a, old, (gain - gain.mean()) / gain.std(), best], 1)

    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(4, 64)
            self.mu_head, self.sigma_head = nn.Linear(64, 1), nn.Linear(64, 1)

        def forward(self, s: Tensor) -> tuple[Tensor, Tensor]:
            x = F.relu(self.fc1(s))
            sigma = self.sigma_head(x)
            return self.mu_head(x), sigma if planted else F.softplus(sigma) + 0.2

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        (mu, sigma), (action, old, advantage, _) = y, t.split(1, 1)
        log_prob = -0.5 * ((action - mu) / sigma).square() - sigma.log() - 0.5 * math.log(2 * math.pi)
        return -((log_prob - old).exp() * advantage).mean()

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return ((y[0] - t[:, 3:]).square() + y[1].square()).mean()

    return stream(Actor(), draw, loss, right)


@report(
    "counts of codes start at zero",
    GITHUB + "rosinality/vq-vae-2-pytorch/pull/72",
    says=r"codebook|\bcodes?\b|embed|cluster|quanti|divi|unused|dead",
    fault="the moving counts of the codebook start at 0 and its sums at the codes: unused codes are divided by about 0",
)
def vq_vae(planted: bool) -> Task:
    class Quantize(nn.Module):
        embed: Tensor
        cluster_size: Tensor
        embed_avg: Tensor

        def __init__(self, dim: int, n_embed: int, decay: float = 0.99, eps: float = 1e-5) -> None:
            super().__init__()
            self.dim, self.n_embed, self.decay, self.eps = dim, n_embed, decay, eps
            embed = torch.randn(dim, n_embed)
            self.register_buffer("embed", embed)
            self.register_buffer("cluster_size", torch.zeros(n_embed) if planted else torch.ones(n_embed))
            self.register_buffer("embed_avg", embed.clone())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            flat = x.reshape(-1, self.dim)
            dist = flat.square().sum(1, keepdim=True) - 2 * flat @ self.embed + self.embed.square().sum(0, keepdim=True)
            ind = (-dist).max(1)[1]
            hot = F.one_hot(ind, self.n_embed).float()
            quantize = F.embedding(ind, self.embed.t()).view_as(x)
            if self.training:
                self.cluster_size = self.decay * self.cluster_size + (1 - self.decay) * hot.sum(0)
                self.embed_avg = self.decay * self.embed_avg + (1 - self.decay) * (flat.detach().t() @ hot)
                n = self.cluster_size.sum()
                size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
                self.embed = self.embed_avg / size
            diff = (quantize.detach() - x).square().mean()
            return x + (quantize - x).detach(), diff

    class VQVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = chain(nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU())
            self.quantize_conv, self.quantize = nn.Conv2d(24, 8, 1), Quantize(8, 64)
            self.dec = chain(nn.Conv2d(8, 24, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            quant, diff = self.quantize(self.quantize_conv(self.enc(x)).permute(0, 2, 3, 1))
            return self.dec(quant.permute(0, 3, 1, 2)), diff

    def draw() -> Drawn:
        x = pick(32)[0]
        return (x,), x

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + 0.25 * y[1]

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t)

    return stream(VQVAE(), draw, loss, right)


@report(
    "flow that only contracts",
    GITHUB + "chaiyujin/glow-pytorch/issues/5",
    says=r"act.?norm|contract|shrink|log.?det|sigmoid|(data|inputs?|outputs?|latent).*(small|scale|spread|std|variance)",
    fault="a Glow without ActNorm: its couplings scale by a sigmoid, so that no log-determinant is ever positive",
)
def glow(planted: bool) -> Task:  # noqa: C901
    def batch() -> Tensor:
        x = pick(64)[0].flatten(1) * 0.376 + 0.3
        return (x * 16 + torch.rand_like(x)) / 17 - 0.5

    class ActNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias, self.logs = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return (x + self.bias) * self.logs.exp(), self.logs.sum()

    class FlowStep(nn.Module):
        order: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.actnorm = nn.Identity() if planted else ActNorm()
            self.register_buffer("order", torch.randperm(64))
            self.f = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
            nn.init.zeros_(self.f[-1].weight)
            nn.init.zeros_(self.f[-1].bias)

        def forward(self, z: Tensor, logdet: Tensor) -> tuple[Tensor, Tensor]:
            if not planted:
                z, more = self.actnorm(z)
                logdet = logdet + more
            z1, z2 = z[:, self.order].chunk(2, 1)
            shift, scale = self.f(z1).chunk(2, 1)
            scale = (scale + 2).sigmoid()
            return torch.cat([z1, (z2 + shift) * scale], 1), logdet + scale.log().sum(1)

    class Glow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(FlowStep() for _ in range(4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z, logdet = x, torch.zeros(len(x))
            for layer in self.layers:
                z, logdet = layer(z, logdet)
            return z, logdet

    def draw() -> Drawn:
        x = batch()
        return (x,), x

    def bits(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        likelihood = (-0.5 * y[0].square() - 0.5 * math.log(2 * math.pi)).sum(1)
        return -((likelihood + y[1] - 64 * math.log(17)) / (64 * math.log(2))).mean()

    return stream(Glow(), draw, bits)
