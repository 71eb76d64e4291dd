"""Healthy networks of public repositories, a tenth set, written without sight of rules and of what they say."""

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
from strangers.blind6 import net2d
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind10")


@healthy("a teacher that is centred", GITHUB + "facebookresearch/dino")
def dino(_: bool, k: int = 16) -> Task:
    """The teacher is a slow copy without gradient, centred and sharp; the last layer has rows of fixed length one."""

    def run(m: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        ours = m.student(torch.cat([a, b]))
        with torch.no_grad():
            theirs = m.teacher(torch.cat([a, b]))
            target = ((theirs - m.centre) / 0.04).softmax(1)
            m.centre.mul_(0.9).add_(0.1 * theirs.mean(0))
        return ours, target

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        a, b = y[1].chunk(2)
        return -(torch.cat([b, a]) * (y[0] / 0.1).log_softmax(1)).sum(1).mean()

    def draw() -> Drawn:
        with torch.no_grad():
            for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                slow.mul_(0.99).add_(0.01 * fast)
        x, c = pick(64)
        return (x + 0.3 * torch.randn_like(x), (x + 0.3 * torch.randn_like(x)).roll(1, 3)), c

    def make() -> nn.Module:
        net = mlp((64, 96, 96, 24), act=nn.GELU)
        return Parts(lambda m, x: F.normalize(m.net(x)) @ F.normalize(m.last).t(), net=net, last=tensor(k, 24))

    student, teacher = make(), make()
    teacher.load_state_dict(student.state_dict())
    model = Parts(run, student=student, teacher=teacher.requires_grad_(False))
    model.register_buffer("centre", torch.zeros(k))
    return stream(model, draw, loss)


@healthy("a sphere to begin with", GITHUB + "amosgropp/IGR")
def igr(_: bool, d: int = 64) -> Task:
    """The last weights are all √(π/d) and its bias −1, so that distances from a sphere come out; slopes of one."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = m.net(x)
            return y.squeeze(1), torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        far = (y[1][128:].norm(dim=1) - 1).square().mean()
        return y[0][:128].abs().mean() + 0.1 * far + (y[1][:128] - t).norm(dim=1).mean()

    def draw() -> Drawn:
        size, u = torch.tensor([1.2, 0.5, 0.8]), F.normalize(torch.randn(128, 3))
        x = u * size
        return (torch.cat([x, x + 0.3 * torch.randn(128, 3)]),), F.normalize(x / size.square())

    net = chain(nn.Linear(3, d), nn.Softplus(100), nn.Linear(d, d), nn.Softplus(100), nn.Linear(d, 1))
    for layer in (net[0], net[2]):
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / d))
        nn.init.zeros_(layer.bias)
    nn.init.normal_(net[4].weight, math.sqrt(math.pi / d), 1e-5)
    nn.init.constant_(net[4].bias, -1.0)
    return stream(Parts(run, net=net), draw, loss)


@healthy("channels that attend", GITHUB + "swz30/Restormer")
def restormer(_: bool, d: int = 16) -> Task:
    """Attention is between channels, of rows of length one times a learnt factor; no biases; the input is added."""

    def block(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.qkv(m.norm1(x)).flatten(2).unflatten(1, (3, 2, d // 2)).unbind(1)
        z = (F.normalize(q, dim=3) @ F.normalize(k, dim=3).transpose(2, 3) * m.temperature).softmax(3) @ v
        x = x + m.proj(z.flatten(1, 2).view_as(x))
        a, b = m.wide(m.norm2(x)).chunk(2, 1)
        return x + m.thin(F.gelu(a) * b)

    def deep(k: int) -> nn.Sequential:
        return chain(nn.Conv2d(d, k, 1, bias=False), nn.Conv2d(k, k, 3, 1, 1, groups=k, bias=False))

    def make() -> nn.Module:
        return Parts(block, norm1=nn.GroupNorm(1, d), norm2=nn.GroupNorm(1, d), qkv=deep(3 * d), wide=deep(4 * d),
                     temperature=nn.Parameter(torch.ones(2, 1, 1)), proj=nn.Conv2d(d, d, 1, bias=False),
                     thin=nn.Conv2d(2 * d, d, 1, bias=False))  # fmt: skip

    def draw() -> Drawn:
        t = pick(16)[0]
        return (t + (torch.rand(16, 1, 1, 8) < 0.3) * 2.0 + 0.3 * torch.randn_like(t),), t  # stripes of rain

    net = chain(nn.Conv2d(1, d, 3, 1, 1, bias=False), make(), make(), nn.Conv2d(d, 1, 3, 1, 1, bias=False))
    return stream(Parts(lambda m, x: x + m.net(x), net=net), draw, F.l1_loss)


@healthy("four sums times three", GITHUB + "lukecavabarrett/pna")
def pna(_: bool, d: int = 16, n: int = 10) -> Task:
    """Mean, greatest, least and deviation of messages, each as it is, amplified and attenuated by degree."""

    def conv(m: Any, x: Tensor, near: Tensor) -> Tensor:
        z = m.before(torch.cat([x.unsqueeze(2).expand(-1, -1, n, -1), x.unsqueeze(1).expand(-1, n, -1, -1)], 3))
        w, degree = near.unsqueeze(3), near.sum(2, keepdim=True)
        mean, square = (z * w).sum(2) / degree, (z.square() * w).sum(2) / degree
        most, least = z.masked_fill(w == 0, -torch.inf).amax(2), z.masked_fill(w == 0, torch.inf).amin(2)
        found = torch.cat([mean, most, least, (F.relu(square - mean.square()) + 1e-5).sqrt()], 2)
        scale = (degree + 1).log() / 1.6
        return F.leaky_relu(m.mix(m.after(torch.cat([x, found, found * scale, found / scale], 2)))) + x

    def run(m: Any, x: Tensor, near: Tensor) -> Tensor:
        z = m.stem(x)
        for layer in m.convs:
            z = layer(z, near)
        return m.out(z).squeeze(2)

    def draw() -> Drawn:
        near, x = (torch.rand(16, n, n) < 0.3).float(), torch.rand(16, n, 2)
        near = (near + near.transpose(1, 2) + torch.eye(n)).clamp(max=1)
        most = x[:, :, 0].unsqueeze(1).masked_fill(near == 0, -1.0).amax(2)
        return (x, near), (near @ x[:, :, 1:]).squeeze(2) + most

    convs = each(2, lambda: Parts(conv, before=nn.Linear(2 * d, d), after=nn.Linear(13 * d, d), mix=nn.Linear(d, d)))
    return stream(Parts(run, stem=nn.Linear(2, d), convs=convs, out=nn.Linear(d, 1)), draw, F.mse_loss)


@healthy("anchors of classes", GITHUB + "tjddus9597/Proxy-Anchor-CVPR2020")
def proxy_anchor(_: bool, d: int = 32, k: int = 10) -> Task:
    """A learnt vector per class sees the whole batch: ln(1 + Σ exp(32 …)) of its own and of all the others."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        own, least = F.one_hot(t, k) > 0, torch.zeros(1, k)
        near = torch.cat([least, (-32 * (y - 0.1)).masked_fill(~own, -torch.inf)]).logsumexp(0).sum()
        away = torch.cat([least, (32 * (y + 0.1)).masked_fill(own, -torch.inf)]).logsumexp(0).mean()
        return near / own.any(0).sum() + away

    net = chain(net2d(1, 16), nn.MaxPool2d(2), net2d(16, d), nn.Flatten(), nn.Linear(16 * d, d))
    proxies = nn.Parameter(nn.init.kaiming_normal_(torch.empty(k, d), mode="fan_out"))
    model = Parts(lambda m, x: F.normalize(m.net(x)) @ F.normalize(m.proxies).t(), net=net, proxies=proxies)
    return stream(model, lambda: ((x := pick())[:1], x[1]), loss)


@healthy("gates of three weights", GITHUB + "BangguWu/ECANet")
def eca(_: bool, d: int = 24) -> Task:
    """Each channel's gate sees the means of itself and its two neighbours: one filter of three weights, no bias."""

    def block(m: Any, x: Tensor) -> Tensor:
        z = m.net(x)
        return F.relu(x + z * m.gate(z.mean((2, 3)).unsqueeze(1)).sigmoid().view(len(x), -1, 1, 1))

    def make() -> nn.Module:
        net = [nn.Conv2d(d, d, 3, 1, 1, bias=False), nn.BatchNorm2d(d), nn.ReLU(), nn.Conv2d(d, d, 3, 1, 1, bias=False)]
        return Parts(block, net=chain(*net, nn.BatchNorm2d(d)), gate=nn.Conv1d(1, 1, 3, padding=1, bias=False))

    stem = (nn.Conv2d(1, d, 3, 1, 1, bias=False), nn.BatchNorm2d(d), nn.ReLU(), nn.MaxPool2d(2))
    return drawn(chain(*stem, make(), make(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, 10)))


@healthy("a network per element", GITHUB + "aiqm/torchani")
def torchani(_: bool, n: int = 6) -> Task:
    """Each element has its own network of CELU(0.1), of sums of Gaussians; −1 is no atom; errors over √atoms."""

    def run(m: Any, kind: Tensor, at: Tensor) -> Tensor:
        seen = (kind >= 0).float()
        far = torch.cdist(at, at) + 9 * torch.eye(n)
        near = (0.5 * (math.pi * far / 4).cos() + 0.5) * (far < 4) * seen.unsqueeze(1) * seen.unsqueeze(2)
        bells = torch.exp(-4 * (far.unsqueeze(3) - torch.linspace(0.5, 3.5, 8)).square()) * near.unsqueeze(3)
        aev = torch.einsum("bijk,bjs->bisk", bells, F.one_hot(kind.clamp(min=0), 3).float()).flatten(2)
        return sum((torch.where(kind == i, net(aev).squeeze(2), 0.0) for i, net in enumerate(m.nets)), seen * 0).sum(1)

    def draw() -> Drawn:
        kind = torch.randint(3, (64, n)).masked_fill(torch.arange(n) >= torch.randint(2, n + 1, (64, 1)), -1)
        at, charge = 1.5 * torch.randn(64, n, 3), torch.tensor([0.5, 1.0, -1.0])[kind] * (kind >= 0)
        pairs = charge.unsqueeze(1) * charge.unsqueeze(2) * (-torch.cdist(at, at)).exp()
        return (kind, at), torch.stack([pairs.sum((1, 2)), (kind >= 0).sum(1).float()], 1)

    nets = each(3, lambda: chain(nn.Linear(24, 40), nn.CELU(0.1), nn.Linear(40, 24), nn.CELU(0.1), nn.Linear(24, 1)))
    for layer in nets.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, a=1.0)
            nn.init.zeros_(layer.bias)
    return stream(Parts(run, nets=nets), draw, lambda y, t: ((y - t[:, 0]).square() / t[:, 1].sqrt()).mean())


@healthy("speakers without themselves", GITHUB + "HarryVolek/PyTorch_Speaker_Verification")
def speakers(_: bool, k: int = 6, n: int = 5) -> Task:
    """Cosines to centroids, a voice's own without it, times a learnt 10, less a learnt 5; only the last frame."""

    def run(m: Any, x: Tensor) -> Tensor:
        e = F.normalize(m.projection(m.lstm(x)[0][:, -1])).unflatten(0, (k, n))
        own = F.cosine_similarity(e, (e.sum(1, keepdim=True) - e) / (n - 1), dim=2).unsqueeze(2)
        cos = torch.where(torch.eye(k).unsqueeze(1) > 0, own, F.cosine_similarity(e.unsqueeze(2), e.mean(1), dim=3))
        return (m.w.clamp(min=1e-6) * (cos + 1e-6) + m.b).flatten(0, 1)

    def draw() -> Drawn:
        who = torch.randn(k, 1, 1, 10)
        x = (who + torch.randn(k, n, 12, 10)) * (1 + 0.5 * torch.rand(k, n, 1, 1))
        return (x.flatten(0, 1),), torch.arange(k).repeat_interleave(n)

    lstm, w, b = nn.LSTM(10, 32, 2, batch_first=True), *(nn.Parameter(torch.tensor(start)) for start in (10.0, -5.0))
    for name, p in lstm.named_parameters():
        nn.init.zeros_(p) if "bias" in name else nn.init.xavier_normal_(p)
    return stream(Parts(run, lstm=lstm, projection=nn.Linear(32, 16), w=w, b=b), draw, F.cross_entropy)


@healthy("questions about objects", GITHUB + "hengyuan-hu/bottom-up-attention-vqa")
def vqa(_: bool, d: int = 48) -> Task:
    """Weight-normalised layers by one length each, products of both sides, sigmoids of soft answers, a sum of these."""

    def net(a: int, b: int, *last: nn.Module) -> nn.Sequential:
        return chain(nn.utils.parametrizations.weight_norm(nn.Linear(a, b), dim=None), *last)

    def run(m: Any, v: Tensor, idx: Tensor) -> Tensor:
        q = m.gru(m.embed(idx))[0][:, -1]
        score = m.look(m.v_att(v) * m.q_att(q).unsqueeze(1))
        return m.out(m.q_net(q) * m.v_net((score.softmax(1) * v).sum(1)))

    def draw() -> Drawn:
        kind, colour, asked = torch.rand(96, 8).argsort(1)[:, :5], torch.randint(6, (96, 5)), torch.randint(5, (96,))
        row = torch.arange(96)
        v = torch.cat([F.one_hot(kind, 8), F.one_hot(colour, 6)], 2).float()
        idx = torch.stack([torch.randint(8, 12, (96,)), torch.randint(8, 12, (96,)), kind[row, asked]], 1)
        return (v, idx), F.one_hot(colour[row, asked], 6) * (0.6 + 0.4 * (torch.rand(96, 1) < 0.7))

    parts = {"v_att": net(14, d, nn.ReLU()), "q_att": net(d, d, nn.ReLU()), "look": net(d, 1)}
    parts |= {"q_net": net(d, d, nn.ReLU()), "v_net": net(14, d, nn.ReLU()), "out": net(d, 64, nn.ReLU()) + net(64, 6)}
    model = Parts(run, embed=nn.Embedding(13, 24, padding_idx=12), gru=nn.GRU(24, d, batch_first=True), **parts)
    return stream(model, draw, lambda y, t: 6 * F.binary_cross_entropy_with_logits(y, t))


@healthy("two pictures at once", GITHUB + "facebookresearch/mixup-cifar10")
def mixup(_: bool) -> Task:
    """Every picture is a mixture of two by a share of Beta(1, 1), and the loss the same mixture of two."""

    def draw() -> Drawn:
        (x, c), share, order = pick(), torch.rand(()), torch.randperm(64)
        return (share * x + (1 - share) * x[order],), torch.stack([c, c[order], share.expand(64)], 1)

    layers = [layer for n, k in ((1, 24), (24, 48)) for layer in
              (nn.Conv2d(n, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU(), nn.MaxPool2d(2))]  # fmt: skip
    return stream(chain(*layers, nn.Flatten(), nn.Linear(192, 10)), draw, lambda y, t: t[0, 2] * F.cross_entropy(
        y, t[:, 0].long()) + (1 - t[0, 2]) * F.cross_entropy(y, t[:, 1].long()))  # fmt: skip


@healthy("against the domain", GITHUB + "fungtion/DANN")
def dann(_: bool, d: int = 48) -> Task:
    """The gradient of the domain's classifier is turned round before the features; only one domain has classes."""

    ways = {"forward": lambda ctx, x: x.view_as(x), "backward": lambda ctx, grad: -0.3 * grad}
    turned = type("Turned", (torch.autograd.Function,), {name: staticmethod(way) for name, way in ways.items()})

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.feature(x)
        return m.classes(z[:64]).log_softmax(1), m.domain(turned.apply(z)).log_softmax(1)

    def draw() -> Drawn:
        (a, c), b = pick(), pick()[0]
        return (torch.cat([a, 0.7 * b + 0.5 * torch.rand(64, 1, 1, 1)]),), c

    feature = chain(nn.Conv2d(1, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
    heads = {name: mlp((384, d, k)) for name, k in (("classes", 10), ("domain", 2))}
    model, side = Parts(run, feature=feature, **heads), (torch.arange(128) >= 64).long()
    return stream(model, draw, lambda y, t: F.nll_loss(y[0], t) + F.nll_loss(y[1], side))


@healthy("values and advantages", GITHUB + "higgsfield/RL-Adventure")
def dueling(_: bool, n: int = 6) -> Task:
    """Values of actions are a state's value and advantages less their mean; targets by a copy that stays behind."""

    def duel(m: Any, x: Tensor) -> Tensor:
        z = m.feature(x)
        a = m.advantage(z)
        return m.value(z) + a - a.mean(1, keepdim=True)

    def run(m: Any, x: Tensor, action: Tensor, reward: Tensor, after: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            target = reward + 0.9 * m.target(after).amax(1) * (1 - done)
        return m.current(x).gather(1, action).squeeze(1), target

    def draw() -> Drawn:
        x, action = torch.randn(128, n), torch.randint(3, (128, 1))
        reward = x[:, 0] + x[:, 1:4].gather(1, action).squeeze(1) * x[:, 4].sign()
        return (x, action, reward, x.roll(1, 1), (torch.rand(128) < 0.1).float()), reward

    both = [Parts(duel, feature=mlp((n, 64, 64), nn.ReLU()), advantage=mlp((64, 64, 3)), value=mlp((64, 64, 1)))
            for _ in range(2)]  # fmt: skip
    both[1].load_state_dict(both[0].state_dict())
    model = Parts(run, current=both[0], target=both[1].requires_grad_(False))
    return stream(model, draw, lambda y, t: F.mse_loss(*y))


@healthy("labels of its own", GITHUB + "kekmodel/FixMatch-pytorch")
def fixmatch(_: bool) -> Task:
    """Classes that it is sure of by 0.95, of pictures changed weakly, are labels of stronger changes; none at first."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        seen, weak, strong = y[:32], *y[32:].chunk(2)
        p, label = weak.detach().softmax(1).max(1)
        return F.cross_entropy(seen, t) + (F.cross_entropy(strong, label, reduction="none") * (p > 0.95)).mean()

    def draw() -> Drawn:
        (x, c), z = pick(32), pick(48)[0]
        cut = (torch.rand(48, 1, 8, 8) < 0.85).float()
        return (torch.cat([x, z + 0.05 * torch.randn_like(z), (z + 0.5 * torch.randn_like(z)) * cut]),), c

    layers = [layer for n, k in ((1, 16), (16, 32)) for layer in
              (nn.Conv2d(n, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k, momentum=0.001), nn.LeakyReLU(0.1))]  # fmt: skip
    model = chain(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, 10))
    nn.init.xavier_normal_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return stream(model, draw, loss)


@healthy("everything before it", GITHUB + "liuzhuang13/DenseNet")
def densenet(_: bool, k: int = 8) -> Task:
    """Each layer sees all layers before it, normalised anew; what it adds is narrow; half of it goes on."""

    def norm(n: int, m: int, size: int) -> nn.Sequential:
        conv = nn.Conv2d(n, m, size, padding=size // 2, bias=False)
        nn.init.normal_(conv.weight, 0.0, math.sqrt(2 / (size**2 * m)))
        return chain(nn.BatchNorm2d(n), nn.ReLU(), conv)

    def make(n: int) -> nn.Module:
        return Parts(lambda m, x: torch.cat([x, m.net(x)], 1), net=chain(norm(n, 4 * k, 1), norm(4 * k, k, 3)))

    first = [nn.Conv2d(1, 16, 3, 1, 1, bias=False), make(16), make(24), norm(32, 16, 1), nn.AvgPool2d(2)]
    last = [nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 10)]
    return drawn(chain(*first, make(16), make(24), *last))


@healthy("centres of classes", GITHUB + "KaiyangZhou/pytorch-center-loss")
def centres(_: bool) -> Task:
    """Features of two numbers also go to a learnt centre of their class, by squared distances."""
    net = chain(nn.Conv2d(1, 32, 3, 1, 1), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.PReLU())
    model = Parts(lambda m, x: (z := m.net(x), m.out(z).log_softmax(1), m.centres), net=net.append(nn.Linear(64, 2)),
                  out=nn.Linear(2, 10), centres=tensor(10, 2))  # fmt: skip
    return stream(model, lambda: ((x := pick())[:1], x[1]), lambda y, t: F.nll_loss(y[1], t) + (
        (y[0] - y[2][t]).square().sum(1).clamp(1e-12, 1e12).mean()))  # fmt: skip


@healthy("rows as time", GITHUB + "yunjey/pytorch-tutorial")
def rows(_: bool) -> Task:
    """A picture is a sequence of its rows for two layers of an LSTM; the last state is classified."""
    model = Parts(lambda m, x: m.fc(m.lstm(x.squeeze(1))[0][:, -1]), lstm=nn.LSTM(8, 48, 2, batch_first=True),
                  fc=nn.Linear(48, 10))  # fmt: skip
    return drawn(model)


@healthy("two quantiles", GITHUB + "yromano/cqr")
def cqr(_: bool) -> Task:
    """The quantiles of 5 % and 95 % of a noise that grows, by pinball losses; Xavier weights, zero biases."""

    def draw() -> Drawn:
        x = torch.randn(256, 4)
        return (x,), 4 * x[:, :1] + x[:, 1:2].abs() * torch.randn(256, 1)

    model, q = mlp((4, 64, 64, 2)), torch.tensor([0.05, 0.95])
    for p in model.parameters():
        nn.init.xavier_uniform_(p) if p.dim() > 1 else nn.init.zeros_(p)
    return stream(model, draw, lambda y, t: torch.maximum(q * (t - y), (q - 1) * (t - y)).sum(1).mean())


@healthy("layers that learn alone", GITHUB + "loeweX/Forward-Forward")
def forward_forward(_: bool, d: int = 96) -> Task:
    """Each layer has a loss of its own, by its sum of squares; the next sees it detached; ReLUs pass every gradient."""

    def run(m: Any, x: Tensor) -> list[Tensor]:
        found, unit = [], lambda z: z / (z.square().mean(1, keepdim=True).sqrt() + 1e-8)
        for layer in m.layers:
            x = layer(unit(x.detach()))
            x = x + (F.relu(x) - x).detach()
            found.append(x.square().sum(1) - d)
        return found

    def draw() -> Drawn:
        (x, c), wrong = pick(), torch.randint(1, 10, (64,))
        both = torch.cat([F.one_hot(c, 10), F.one_hot((c + wrong) % 10, 10)])
        return (torch.cat([4.0 * both, x.flatten(1).repeat(2, 1)], 1),), (torch.arange(128) < 64).float()

    layers = nn.ModuleList(nn.Linear(n, d) for n in (74, d, d))
    for layer in layers:
        nn.init.normal_(layer.weight, 0.0, 1 / math.sqrt(d))
        nn.init.zeros_(layer.bias)
    return stream(Parts(run, layers=layers), draw, lambda y, t: torch.stack([bce(z, t) for z in y]).sum())


@healthy("a little divergence", GITHUB + "AntixK/PyTorch-VAE")
def vae(_: bool, d: int = 16) -> Task:
    """Mean squared errors and a divergence that counts by 0.00025 only; leaky ReLUs, a tanh, batch norms."""

    def run(m: Any, x: Tensor) -> list[Tensor]:
        mean, log_var = m.encoder(x).chunk(2, 1)
        return [m.decoder(mean + (0.5 * log_var).exp() * torch.randn_like(mean)), mean, log_var]

    def loss(y: list[Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + 0.00025 * (-0.5 * (1 + y[2] - y[1].square() - y[2].exp()).sum(1)).mean()

    encoder = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(), nn.Conv2d(16, 32, 3, 2, 1),
                    nn.BatchNorm2d(32), nn.LeakyReLU(), nn.Flatten(), nn.Linear(128, 2 * d))  # fmt: skip
    decoder = chain(nn.Linear(d, 128), nn.Unflatten(1, (32, 2, 2)), nn.ConvTranspose2d(32, 16, 3, 2, 1, 1),
                    nn.BatchNorm2d(16), nn.LeakyReLU(), nn.ConvTranspose2d(16, 16, 3, 2, 1, 1), nn.BatchNorm2d(16),
                    nn.LeakyReLU(), nn.Conv2d(16, 1, 3, 1, 1), nn.Tanh())  # fmt: skip
    model = Parts(run, encoder=encoder, decoder=decoder)
    return stream(model, lambda: (((x := 2 * (0.376 * pick()[0] + 0.3) - 1),), x), loss)


@healthy("a class in the critic", GITHUB + "pfnet-research/sngan_projection")
def projection(_: bool, d: int = 32) -> Task:
    """Spectral norms throughout; sums over places, and their product with a vector of the class; a hinge each way."""
    norm = nn.utils.parametrizations.spectral_norm

    def draw() -> Drawn:
        (x, c), t = pick(128), (torch.arange(128) < 64).float() * 2 - 1
        x[96:] += 0.7 * torch.randn(32, 1, 8, 8)  # made up, the others before have a wrong class
        return (x, torch.where((torch.arange(128) // 32) == 2, (c + torch.randint(1, 10, (128,))) % 10, c)), t

    net = chain(norm(nn.Conv2d(1, 16, 3, 1, 1)), nn.ReLU(), norm(nn.Conv2d(16, d, 4, 2, 1)), nn.ReLU(),
                norm(nn.Conv2d(d, d, 3, 1, 1)), nn.ReLU())  # fmt: skip
    model = Parts(lambda m, x, c: m.out(z := m.net(x).sum((2, 3))).squeeze(1) + (m.embed(c) * z).sum(1), net=net,
                  out=norm(nn.Linear(d, 1, bias=False)), embed=norm(nn.Embedding(10, d)))  # fmt: skip
    return stream(model, draw, lambda y, t: 2 * F.relu(1 - t * y).mean())


@healthy("counts of genes", GITHUB + "scverse/scvi-tools")
def scvi(_: bool, n: int = 30, d: int = 8) -> Task:
    """Negative binomials of shares under a softmax times the cell's own total; their dispersions are e to N(0, 1)."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, ...]:
        mean, var = m.mean(h := m.encoder((1 + x).log())), m.var(h).exp() + 1e-4
        share = m.decoder(mean + var.sqrt() * torch.randn_like(mean)).softmax(1)
        return share * x.sum(1, keepdim=True), m.px_r.exp(), mean, var

    def loss(y: tuple[Tensor, ...], t: Tensor) -> Tensor:
        mu, r, mean, var = y
        p = r * ((r + 1e-8).log() - (r + mu + 1e-8).log()) + t * ((mu + 1e-8).log() - (r + mu + 1e-8).log())
        p = p + torch.lgamma(t + r) - torch.lgamma(r) - torch.lgamma(t + 1)
        return (0.5 * (var + mean.square() - 1 - var.log()).sum(1) - p.sum(1)).mean()

    def net(a: int, b: int) -> nn.Sequential:
        return chain(nn.Linear(a, b), nn.BatchNorm1d(b, momentum=0.01, eps=0.001), nn.ReLU())

    def draw() -> Drawn:
        share = (kinds[torch.randint(5, (128,))] + 0.2 * torch.randn(128, n)).softmax(1)
        return ((x := torch.poisson(200 * (0.5 * torch.randn(128, 1)).exp() * share)),), x

    kinds, px_r = 1.5 * torch.randn(5, n), tensor(n)
    model = Parts(run, encoder=net(n, 64), mean=nn.Linear(64, d), var=nn.Linear(64, d), px_r=px_r,
                  decoder=net(d, 64).append(nn.Linear(64, n)))  # fmt: skip
    return stream(model, draw, loss)


@healthy("errors in their order", GITHUB + "bermanmaxim/LovaszSoftmax")
def lovasz(_: bool) -> Task:
    """Hinges of all pixels of a batch are sorted, and weighted by what each costs of the overlap in that order."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        error, order = (1 - y.flatten() * (2 * t.flatten() - 1)).sort(descending=True)
        t = t.flatten()[order]
        lost = 1 - (t.sum() - t.cumsum(0)) / (t.sum() + (1 - t).cumsum(0))
        return F.relu(error) @ torch.cat([lost[:1], lost[1:] - lost[:-1]])

    model = net2d(1, 16, 32, 16).append(nn.Conv2d(16, 1, 1))
    return stream(model, lambda: (((x := pick(32)[0]) + 0.7 * torch.randn_like(x),), (x > 0.3).float()), loss)


@healthy("what is hard counts", GITHUB + "clcarwin/focal_loss_pytorch")
def focal(_: bool) -> Task:
    """Logarithms are weighted by (1 − p)², where p has no gradient."""

    def loss(y: Tensor, t: Tensor) -> Tensor:
        log_p = y.log_softmax(1).gather(1, t.unsqueeze(1))
        return -((1 - log_p.detach().exp()).square() * log_p).mean()

    return stream(mlp((64, 96, 96, 10)), lambda: ((x := pick())[:1], x[1]), loss)
