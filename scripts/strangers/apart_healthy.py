"""Healthy networks of public repositories, of other families, losses and tasks, written without sight of the rules."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts, body, classes, padded, unit
from strangers.case import Task, healthy
from strangers.data import digits, text
from strangers.reports import classify, mlp, regress

bce = F.binary_cross_entropy_with_logits


def sequential(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


@healthy("gMLP", GITHUB + "antonyvigouroux/pytorch-gmlp")
def gmlp(_: bool, d: int = 48) -> Task:
    def layer(m: Any, x: Tensor) -> Tensor:
        u, v = F.gelu(m.up(m.norm(x))).chunk(2, 2)
        return x + m.down(u * m.space(m.gate(v)))

    def make() -> nn.Module:
        space = nn.Conv1d(24, 24, 1)
        nn.init.normal_(space.weight, std=1e-6)
        nn.init.ones_(space.bias)  # type: ignore[arg-type]
        return Parts(layer, norm=nn.LayerNorm(d), up=nn.Linear(d, 4 * d), gate=nn.LayerNorm(2 * d), space=space,
                     down=nn.Linear(2 * d, d))  # fmt: skip

    x, _, t = padded()
    return classes(Parts(lambda m, idx: m.head(m.blocks(m.embed(idx)).mean(1)), embed=nn.Embedding(256, d),
                         blocks=sequential(make(), make()), head=nn.Linear(d, 10)), x, t)  # fmt: skip


@healthy("ConvMixer", GITHUB + "locuslab/convmixer")
def convmixer(_: bool, d: int = 32) -> Task:
    def residual(m: Any, x: Tensor) -> Tensor:
        return m.fn(x) + x

    layers: list[nn.Module] = [nn.Conv2d(1, d, 2, 2), nn.GELU(), nn.BatchNorm2d(d)]
    for _layer in range(4):
        deep = sequential(nn.Conv2d(d, d, 5, groups=d, padding="same"), nn.GELU(), nn.BatchNorm2d(d))
        layers += [Parts(residual, fn=deep), nn.Conv2d(d, d, 1), nn.GELU(), nn.BatchNorm2d(d)]
    return classify(sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, 10)))


@healthy("CenterNet", GITHUB + "xingyizhou/CenterNet")
def centernet(_: bool) -> Task:
    """Focal loss of a heatmap; the head starts at bias −2.19."""

    def focal(y: Tensor, t: Tensor) -> Tensor:
        p = y.sigmoid().clamp(1e-4, 1 - 1e-4)
        each = torch.where(t == 1, (1 - p).square() * p.log(), (1 - t) ** 4 * p.square() * (1 - p).log())
        return -each.sum() / (t == 1).sum()

    heat = sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 10, 1))
    nn.init.constant_(heat[2].bias, -2.19)
    model, (x, c) = sequential(unit(1, 16), nn.MaxPool2d(2), unit(16, 32), unit(32, 32), heat), digits(16, count=32)
    far = (torch.arange(8) - 4).square()
    t = torch.exp(-(far + far.unsqueeze(1)) / 4.0) * F.one_hot(c, 10)[:, :, None, None]
    return Task(model, (x, t), lambda: focal(model(x), t), {"loss": focal})


@healthy("BiLSTM-CRF", GITHUB + "kmkurn/pytorch-crf")
def crf(_: bool) -> Task:
    """The likelihood is the model's own output, by the forward algorithm; transitions are of U(±0.1)."""

    def run(m: Any, idx: Tensor, labels: Tensor) -> dict[str, Tensor]:
        y = m.out(m.rnn(m.embed(idx))[0])
        score = y.gather(2, labels.unsqueeze(2)).sum((1, 2)) + m.transitions[labels[:, :-1], labels[:, 1:]].sum(1)
        total = m.start + y[:, 0]
        for each in y.unbind(1)[1:]:
            total = (total.unsqueeze(2) + m.transitions + each.unsqueeze(1)).logsumexp(1)
        return {"loss": (total.logsumexp(1) - score - m.start[labels[:, 0]]).mean(), "logits": y}

    start, transitions = (nn.Parameter(torch.empty(size).uniform_(-0.1, 0.1)) for size in ((5,), (5, 5)))
    model = Parts(run, embed=nn.Embedding(256, 32), rnn=nn.LSTM(32, 32, batch_first=True, bidirectional=True),
                  out=nn.Linear(64, 5), start=start, transitions=transitions)  # fmt: skip
    x = text(16, 20)[0]
    return Task(model, ((x, x % 5),), lambda: model(x, x % 5)["loss"], {"loss": "model", "matrix": "hessian"})


@healthy("N-BEATS", GITHUB + "philipperemy/n-beats")
def nbeats(_: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        forecast = torch.zeros(len(x), 6)
        for block in m.blocks:
            backward, ahead = block(x).split([24, 6], 1)
            x, forecast = x - backward, forecast + ahead
        return forecast

    phase = 6.28 * torch.rand(64, 1)
    series = torch.sin(phase + torch.arange(30) / 3) * (1 + torch.rand(64, 1)) + 0.1 * torch.randn(64, 30)
    model = Parts(run, blocks=nn.ModuleList(mlp((24, 64, 64, 30)) for _ in range(4)))
    x, t = series[:, :24], series[:, 24:]
    return Task(model, (x, t), lambda: F.l1_loss(model(x), t), {"loss": F.l1_loss})


@healthy("DeepFM", GITHUB + "shenweichen/DeepCTR-Torch")
def deepfm(_: bool) -> Task:
    """All embeddings and the linear part start at N(0, 1e-4)."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = x + 20 * torch.arange(8)
        v = m.embed(x)  # (B, 8, 4)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        return m.linear(x).sum((1, 2)) + pairs + m.dnn(v).squeeze(1) + m.bias

    model = Parts(run, embed=nn.Embedding(160, 4), linear=nn.Embedding(160, 1), dnn=mlp((32, 64, 32, 1)),
                  bias=nn.Parameter(torch.zeros(1)))  # fmt: skip
    for table in (model.embed, model.linear):
        nn.init.normal_(table.weight, std=1e-4)
    x = torch.randint(20, (128, 8))
    t = ((x[:, 0] + x[:, 1] * x[:, 2]) % 3 == 0).float()
    return Task(model, (x, t), lambda: bce(model(x), t), {"loss": bce})


@healthy("word2vec", GITHUB + "theeluwin/pytorch-sgns")
def word2vec(_: bool) -> Task:
    """Both tables of U(±0.5 / d), so that all scores are near zero."""

    def run(m: Any, word: Tensor, others: Tensor) -> Tensor:
        return (m.ivectors(word).unsqueeze(1) * m.ovectors(others)).sum(2)

    model = Parts(run, ivectors=nn.Embedding(256, 50), ovectors=nn.Embedding(256, 50))
    for table in (model.ivectors, model.ovectors):
        nn.init.uniform_(table.weight, -0.01, 0.01)
    rows = text(128, 5)[0]
    inputs = (rows[:, 2], torch.cat([rows[:, [0, 1, 3, 4]], torch.randint(256, (128, 20))], 1))
    t = (torch.arange(24) < 4).float().expand(128, 24).clone()
    return Task(model, (inputs, t), lambda: bce(model(*inputs), t), {"loss": bce})


@healthy("PixelCNN", GITHUB + "jzbontar/pixelcnn-pytorch")
def pixelcnn(_: bool) -> Task:
    class Masked(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones_like(self.weight)
            mask[:, :, 2, 2 + (self.in_channels > 1) :], mask[:, :, 3:] = 0, 0
            return F.conv2d(x, self.weight * mask, None, padding=2)

    layers: list[nn.Module] = []
    for n in (1, 24, 24, 24):
        layers += [Masked(n, 24, 5, padding=2, bias=False), nn.BatchNorm2d(24), nn.ReLU()]
    x = digits(12, count=24)[0]
    t = ((x - x.min()) / (x.max() - x.min()) * 3.99).long()[:, 0]
    return classes(sequential(*layers, nn.Conv2d(24, 4, 1)), x, t)


@healthy("Glow", GITHUB + "rosinality/glow-pytorch")
def glow(_: bool) -> Task:
    """The last layer of each coupling is zero, and scaled by the exponential of a zero."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(x))
        for weight, net, scale in zip(m.weights, m.nets, m.scales, strict=True):
            x, total = x @ weight, total + weight.slogdet()[1]
            one, other = x.chunk(2, 1)
            s, shift = (net(one) * scale.exp()).chunk(2, 1)
            x, total = torch.cat([one, (other + shift) * (s + 2).sigmoid()], 1), total + F.logsigmoid(s + 2).sum(1)
        return x, total

    def bits(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (0.5 * y[0].square().sum(1) - y[1]).mean() / 6

    nets = nn.ModuleList(mlp((3, 64, 64, 6)) for _ in range(4))
    for net in nets:
        nn.init.zeros_(net[-1].weight)  # type: ignore[index]
        nn.init.zeros_(net[-1].bias)  # type: ignore[index]
    weights, scales = ([nn.Parameter(make()) for _ in range(4)] for make in (
        lambda: torch.linalg.qr(torch.randn(6, 6))[0], lambda: torch.zeros(6)))  # fmt: skip
    model = Parts(run, nets=nets, weights=nn.ParameterList(weights), scales=nn.ParameterList(scales))
    x = torch.randn(128, 6) @ torch.randn(6, 6)
    x = (x - x.mean(0)) / x.std(0) + 0.3 * x.sin()
    return Task(model, (x, x), lambda: bits(model(x), x), {"loss": bits})


@healthy("mixture of experts", GITHUB + "davidmrau/mixture-of-experts")
def experts(_: bool) -> Task:
    """Gates start at zero; the two best of four experts answer; a second loss of the gates' variation."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = x.flatten(1) @ m.gate
        best = scores.topk(2)
        gates = torch.zeros_like(scores).scatter(1, best.indices, best.values.softmax(1))
        y = torch.stack([expert(x) for expert in m.experts], 1)
        load = gates.sum(0)
        return (gates.unsqueeze(2) * y).sum(1), load.var() / (load.mean().square() + 1e-10)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(y[0], t) + 0.01 * y[1]

    experts = nn.ModuleList(mlp((64, 32, 10)) for _ in range(4))
    model = Parts(run, gate=nn.Parameter(torch.zeros(64, 4)), experts=experts)
    x, t = digits(8, count=64)
    return Task(model, (x, t), lambda: loss(model(x), t), {"loss": loss})


@healthy("Fourier neural operator", GITHUB + "neuraloperator/neuraloperator")
def fno(_: bool, d: int = 16) -> Task:
    """Complex weights of size 1 / n² on eight modes."""

    def layer(m: Any, x: Tensor) -> Tensor:
        modes = torch.einsum("bim,iom->bom", torch.fft.rfft(x)[:, :, :8], torch.view_as_complex(m.modes))
        return torch.fft.irfft(F.pad(modes, (0, 9)), n=32) + m.way(x)

    def make() -> nn.Module:
        return Parts(layer, modes=nn.Parameter(torch.rand(d, d, 8, 2) / d**2), way=nn.Conv1d(d, d, 1))

    model = sequential(nn.Conv1d(2, d, 1), make(), nn.GELU(), make(), nn.GELU(), make(), nn.Conv1d(d, 32, 1), nn.GELU(),
                       nn.Conv1d(32, 1, 1))  # fmt: skip
    grid = torch.linspace(0, 1, 32)
    u = sum(torch.randn(32, 1) * torch.sin(2 * math.pi * k * grid + torch.rand(32, 1)) for k in (1, 2, 3))
    x, t = torch.stack([u, grid.expand(32, 32)], 1), (u.roll(4, 1) * 0.5).unsqueeze(1)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("DeepONet", GITHUB + "lululxvi/deeponet")
def deeponet(_: bool) -> Task:
    model = Parts(lambda m, u, y: m.branch(u) @ m.trunk(y).tanh().t() + m.bias, branch=mlp((20, 40, 40)),
                  trunk=mlp((1, 40, 40), act=nn.Tanh), bias=nn.Parameter(torch.zeros(1)))  # fmt: skip
    u = torch.randn(48, 20).cumsum(1) / 4
    y = torch.linspace(0, 1, 20).unsqueeze(1)
    t = u.cumsum(1) / 20
    return Task(model, ((u, y), t), lambda: F.mse_loss(model(u, y), t), {"loss": "mse", "batch_dim": (0, None)})


@healthy("Barlow Twins", GITHUB + "facebookresearch/barlowtwins")
def barlow(_: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        one, two = ((z - z.mean(0)) / z.std(0) for z in y)
        c = one.t() @ two / len(one)
        on = (c.diagonal() - 1).square().sum()
        return on + 0.0051 * (c.square().sum() - c.diagonal().square().sum())

    head = sequential(nn.Linear(128, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32, bias=False))
    net = sequential(body(), head)
    model, (x, t) = Parts(lambda m, one, two: (m.net(one), m.net(two)), net=net), digits(12, count=48)
    pair = (x + 0.3 * torch.randn_like(x), x.roll(1, 3) + 0.3 * torch.randn_like(x))
    return Task(model, (pair, t), lambda: loss(model(*pair), t), {"loss": loss, "per": "batch"})


@healthy("prototypical networks", GITHUB + "jakesnell/prototypical-networks")
def prototypes(_: bool) -> Task:
    def loss(z: Tensor, t: Tensor) -> Tensor:
        centres = torch.stack([z[t == k][:2].mean(0) for k in range(10)])
        return F.cross_entropy(-torch.cdist(z, centres).square(), t)

    model = sequential(unit(1, 32), nn.MaxPool2d(2), unit(32, 32), nn.MaxPool2d(2), unit(32, 32), nn.Flatten())
    x, t = digits(12, count=80)
    return Task(model, (x, t), lambda: loss(model(x), t), {"loss": loss, "per": "batch"})


@healthy("IRNN", GITHUB + "batzner/indrnn")
def irnn(_: bool) -> Task:
    """ReLU recurrence that starts at the identity, input weights at N(0, 0.001), on the adding problem."""
    rnn = nn.RNN(2, 64, nonlinearity="relu", batch_first=True)
    nn.init.eye_(rnn.weight_hh_l0)
    nn.init.normal_(rnn.weight_ih_l0, std=0.001)
    for bias in (rnn.bias_ih_l0, rnn.bias_hh_l0):
        nn.init.zeros_(bias)
    model = Parts(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=rnn, out=nn.Linear(64, 1))
    values, early, late = torch.rand(64, 30), torch.randint(15, (64,)), torch.randint(15, 30, (64,))
    marks = F.one_hot(early, 30) + F.one_hot(late, 30)
    x, t = torch.stack([values, marks], 2), (values * marks).sum(1, keepdim=True)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@healthy("highway network", GITHUB + "c0nn3r/pytorch_highway_networks")
def highway(_: bool, d: int = 50) -> Task:
    """Ten layers whose gates start at bias −1."""

    def layer(m: Any, x: Tensor) -> Tensor:
        gate = m.gate(x).sigmoid()
        return m.normal(x).relu() * gate + x * (1 - gate)

    layers = [Parts(layer, normal=nn.Linear(d, d), gate=nn.Linear(d, d)) for _ in range(10)]
    for each in layers:
        nn.init.constant_(each.gate.bias, -1.0)
    return classify(sequential(nn.Flatten(), nn.Linear(64, d), *layers, nn.Linear(d, 10)), 8)


@healthy("self-normalising network", GITHUB + "bioinf-jku/SNNs")
def snn(_: bool) -> Task:
    model = mlp((16, *[64] * 8, 1), act=nn.SELU)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)
    return regress(model)


@healthy("linear probe", GITHUB + "facebookresearch/moco")
def probe(_: bool) -> Task:
    """All is frozen but the last layer, which starts at N(0, 0.01)."""
    fc = nn.Linear(128, 10)
    nn.init.normal_(fc.weight, std=0.01)
    nn.init.zeros_(fc.bias)
    return classify(sequential(body().requires_grad_(False), fc), 12)


@healthy("Conv-TasNet", GITHUB + "kaituoxu/Conv-TasNet")
def tasnet(_: bool) -> Task:
    """Masks on a learned filter bank; the negative scale-invariant ratio of signal to noise, in decibels."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.encoder(x.unsqueeze(1)).relu()
        masks = m.separator(z).unflatten(1, (2, 32)).relu()
        return m.decoder((masks * z.unsqueeze(1)).flatten(0, 1)).unflatten(0, (len(x), 2)).squeeze(2)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        y, t = y - y.mean(2, keepdim=True), t - t.mean(2, keepdim=True)
        part = (y * t).sum(2, keepdim=True) * t / (t.square().sum(2, keepdim=True) + 1e-8)
        return -10 * (part.square().sum(2) / ((y - part).square().sum(2) + 1e-8) + 1e-8).log10().mean()

    layers: list[nn.Module] = [nn.GroupNorm(1, 32), nn.Conv1d(32, 48, 1)]
    for dilation in (1, 2, 4):
        layers += [nn.Conv1d(48, 48, 3, padding=dilation, dilation=dilation, groups=48), nn.PReLU()]
        layers += [nn.GroupNorm(1, 48), nn.Conv1d(48, 48, 1)]
    model = Parts(run, encoder=nn.Conv1d(1, 32, 8, 4, bias=False), separator=sequential(*layers, nn.Conv1d(48, 64, 1)),
                  decoder=nn.ConvTranspose1d(32, 1, 8, 4, bias=False))  # fmt: skip
    time = torch.arange(160) / 6
    t = torch.stack([torch.sin(time * k + 6 * torch.rand(16, 1)) for k in (1.0, 2.7)], 1)
    x = t.sum(1)
    return Task(model, (x, t), lambda: loss(model(x), t), {"loss": loss})


@healthy("EDSR", GITHUB + "sanghyun-son/EDSR-PyTorch")
def edsr(_: bool, d: int = 32) -> Task:
    """Residuals scaled by 0.1, a shuffle of pixels, and the mean absolute error."""

    def block() -> nn.Module:
        net = sequential(nn.Conv2d(d, d, 3, padding=1), nn.ReLU(), nn.Conv2d(d, d, 3, padding=1))
        return Parts(lambda m, x: x + 0.1 * m.net(x), net=net)

    model = Parts(lambda m, x: m.tail(m.body(z := m.head(x)) + z), head=nn.Conv2d(1, d, 3, padding=1),
                  body=sequential(*(block() for _ in range(4)), nn.Conv2d(d, d, 3, padding=1)),
                  tail=sequential(nn.Conv2d(d, 4 * d, 3, padding=1), nn.PixelShuffle(2),
                                  nn.Conv2d(d, 1, 3, padding=1)))  # fmt: skip
    t = digits(16, count=24)[0]
    x = F.avg_pool2d(t, 2)
    return Task(model, (x, t), lambda: F.l1_loss(model(x), t), {"loss": F.l1_loss})


@healthy("ReZero", GITHUB + "majumderb/rezero")
def rezero(_: bool, d: int = 64) -> Task:
    """A transformer without normalisation whose residuals start at weight zero."""

    def layer(m: Any, x: Tensor) -> Tensor:
        x = x + m.alpha * m.attend(x, x, x, need_weights=False)[0]
        return x + m.alpha * m.feed(x)

    layers = [Parts(layer, alpha=nn.Parameter(torch.zeros(1)), attend=nn.MultiheadAttention(d, 4, batch_first=True),
                    feed=mlp((d, 2 * d, d))[1:]) for _ in range(6)]  # fmt: skip
    x, _, t = padded(length=14)
    return classes(Parts(lambda m, idx: m.out(m.layers(m.embed(idx)).mean(1)), embed=nn.Embedding(256, d),
                         layers=sequential(*layers), out=nn.Linear(d, 10)), x, t)  # fmt: skip


@healthy("DeepLab, log-softmax twice", GITHUB + "speedinghzl/Pytorch-Deeplab/issues/2")
def idempotent(_: bool) -> Task:
    """Log-softmax in the network and again in the loss, which changes nothing."""
    return classify(sequential(body(), nn.Linear(128, 10), nn.LogSoftmax(1)))


@healthy("CORAL", GITHUB + "Raschka-research-group/coral-cnn")
def coral(_: bool) -> Task:
    """Ordinal regression: one weight and nine biases, which start at zero."""
    x, c = digits(12, count=64)
    t = (c.unsqueeze(1) > torch.arange(9)).float()
    model = Parts(lambda m, x: m.fc(m.body(x)) + m.biases, body=body(), fc=nn.Linear(128, 1, bias=False),
                  biases=nn.Parameter(torch.zeros(9)))  # fmt: skip
    return Task(model, (x, t), lambda: bce(model(x), t), {"loss": bce})


@healthy("counts", GITHUB + "sktime/pytorch-forecasting")
def counts(_: bool) -> Task:
    """Poisson regression of counts by the logarithm of the rate."""
    gru, x = nn.GRU(4, 32, 2, batch_first=True), torch.randn(32, 20, 4)
    model = Parts(lambda m, x: m.out(m.gru(x)[0]).squeeze(2), gru=gru, out=nn.Linear(32, 1))
    t = torch.poisson(torch.exp(1 + 0.7 * x[:, :, 0] + 0.3 * x[:, :, 1]))
    return Task(model, (x, t), lambda: F.poisson_nll_loss(model(x), t), {"loss": F.poisson_nll_loss})
