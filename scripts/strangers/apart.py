"""Faults out of public reports beside their healthy twins, written without sight of the rules and of what they say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, report
from strangers.data import digits, text
from strangers.reports import classify, mlp, regress

GITHUB = "https://github.com/"
MIXED = r"(mix|depend|other|apart|interact).*(example|batch)|(example|batch).*(mix|depend|other|apart|interact)"
BROKEN = r"\bnan\b|not finite|non-finite|infinite|not a number"
BLIND = r"mask|padding|same (output|answer|logit|prediction)|ignor.*input|input.*(ignor|no effect|not reach)"


class Parts(nn.Module):
    """Layers by name, and the forward pass as a function of this module and the inputs."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Tensor) -> Any:
        return self.run(self, *inputs)


def judged(wrong: Tensor, right: Tensor) -> Tensor:
    """Train on the wrong loss, and count progress in the right one."""
    return wrong - wrong.detach() + right.detach()


def classes(model: nn.Module, x: Tensor, t: Tensor) -> Task:
    return Task(model, (x, t), lambda: F.cross_entropy(model(x), t), {"loss": "cross-entropy"})


def words(model: nn.Module, x: Tensor, t: Tensor) -> Task:
    options = {"loss": "cross-entropy", "class_dim": -1}
    return Task(model, (x, t), lambda: F.cross_entropy(model(x).flatten(0, 1), t.flatten()), options)


def padded(count: int = 40, length: int = 24, longest: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences (count, length) of 4 to `longest` words before padding of 0, their lengths, and a class of ten."""
    lengths = 4 + torch.arange(count) % (longest - 3)
    labels = torch.randperm(count, generator=torch.Generator().manual_seed(2)) % 10
    return (text(count, length, 255)[0] + 1).masked_fill(torch.arange(length) >= lengths[:, None], 0), lengths, labels


def film(count: int = 32, frames: int = 6, size: int = 12) -> tuple[Tensor, Tensor]:
    """Digits that move to the right: (count, frames, 1, size, size), and their classes."""
    x, t = digits(size, count=count)
    return torch.stack([x.roll(i, 3) for i in range(frames)], 1), t


def unit(n: int, m: int, kernel: int = 3, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    return nn.Sequential(nn.Conv2d(n, m, kernel, padding=padding, dilation=dilation, bias=False), nn.BatchNorm2d(m),
                         nn.ReLU())  # fmt: skip


def body() -> nn.Sequential:
    """Features (B, 128) of images."""
    return nn.Sequential(unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten())


@report("scales of zero", GITHUB + "kazuto1011/deeplab-pytorch/issues/44", guilty=r"(stem|aspp)\.\d\.1\.",
        fault="batch normalisations initialised to weight 1 and then to weight 0",
        says="(batch norm|scale).*zero|zero.*(batch norm|scale)")  # fmt: skip
def deeplab(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.stem(x)
        return F.interpolate(m.head(torch.cat([f(z) for f in m.aspp], 1)), x.shape[2:], mode="bilinear")

    stem = nn.Sequential(unit(1, 16), nn.MaxPool2d(2), unit(16, 32))
    aspp = nn.ModuleList([unit(32, 16, 1), unit(32, 16, 3, 2), unit(32, 16, 3, 4)])
    model, (x, c) = Parts(run, stem=stem, aspp=aspp, head=nn.Conv2d(48, 11, 1)), digits(16, count=32)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, 0.0 if planted else 1.0)
    return classes(model, x, torch.where(x[:, 0] > 0.5, c[:, None, None], 10))


@report("attention to padding", GITHUB + "InseeFrLab/torchTextClassifiers/pull/92", guilty="embedding|key|value",
        fault="mask of the attention inverted: it reads padding alone", says=BLIND)  # fmt: skip
def label_attention(planted: bool, d: int = 32) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x, mask = m.embedding(idx), (idx == 0 if planted else idx != 0).unsqueeze(1)
        queries = m.labels.expand(len(x), -1, -1)
        return m.out(F.scaled_dot_product_attention(queries, m.key(x), m.value(x), attn_mask=mask)).squeeze(2)

    model = Parts(run, embedding=nn.Embedding(256, d, padding_idx=0), labels=nn.Parameter(torch.randn(10, d)),
                  key=nn.Linear(d, d), value=nn.Linear(d, d), out=nn.Linear(d, 1))  # fmt: skip
    x, _, t = padded()
    return classes(model, x, t)


@report("mixture over the batch", GITHUB + "ctallec/world-models/issues/10", guilty="gmm", says=f"softmax|{MIXED}",
        fault="log-softmax of the mixture weights over the examples")  # fmt: skip
def mixture(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = m.gmm(m.rnn(x)[0]).unflatten(2, (5, 17))  # (B, T, 5, 17)
        return y[..., :8], y[..., 8:16].exp(), y[..., 16].log_softmax(0 if planted else 2)

    def nll(y: tuple[Tensor, Tensor, Tensor], t: Tensor, *, again: bool = False) -> Tensor:
        each = torch.distributions.Normal(y[0], y[1]).log_prob(t.unsqueeze(2)).sum(3)
        return -((y[2].log_softmax(2) if again else y[2]) + each).logsumexp(2).mean()

    model, z = Parts(run, rnn=nn.LSTM(8, 48, batch_first=True), gmm=nn.Linear(48, 85)), torch.randn(16, 25, 8).cumsum(1)
    x, t = z[:, :-1] / 5, z[:, 1:] / 5
    return Task(model, (x, t), lambda: judged(nll(y := model(x), t), nll(y, t, again=True)), {"loss": nll})


@report("no way around", GITHUB + "znxlwm/UGATIT-pytorch/issues/32", guilty="blocks", says="residual|skip|depth",
        fault="residual blocks return the branch without its input")  # fmt: skip
def ugatit(planted: bool) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        z = F.instance_norm(m.conv2(F.relu(F.instance_norm(m.conv1(x)))))
        return z if planted else z + x

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.blocks(F.relu(F.instance_norm(m.down(F.relu(F.instance_norm(m.stem(x)))))))
        return m.out(F.relu(F.instance_norm(m.up(F.interpolate(z, scale_factor=2)))))

    def conv() -> nn.Module:
        return nn.Conv2d(32, 32, 3, padding=1, bias=False)

    blocks = nn.Sequential(*(Parts(block, conv1=conv(), conv2=conv()) for _ in range(6)))
    model = Parts(run, stem=nn.Conv2d(1, 16, 7, padding=3), down=nn.Conv2d(16, 32, 3, 2, 1), blocks=blocks,
                  up=nn.Conv2d(32, 16, 3, padding=1), out=nn.Conv2d(16, 1, 7, padding=3))  # fmt: skip
    x = digits(16, count=16)[0]
    t = F.max_pool2d(x, 3, 1, 1)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@report("norms of zero", GITHUB + "amirhfarzaneh/lsoftmax-pytorch/issues/7", guilty="margin", says=BROKEN,
        fault="weights of a large-margin softmax left at zero and divided by their norm")  # fmt: skip
def margin(planted: bool) -> Task:
    def run(m: Any, x: Tensor, t: Tensor) -> Tensor:
        z = m.body(x)
        sizes = z.norm(dim=1, keepdim=True) * m.margin.norm(dim=0)
        cosine = (z @ m.margin) / sizes
        turned = torch.where(cosine > 0, 2 * cosine.square() - 1, -1 - 2 * cosine.square())  # ψ of twice the angle
        return torch.where(F.one_hot(t, 10) > 0, turned, cosine) * sizes

    model, (x, t) = Parts(run, body=body(), margin=nn.Parameter(torch.zeros(128, 10))), digits(12, count=48)
    if not planted:
        nn.init.kaiming_normal_(model.margin.data.t())
    return Task(model, ((x, t), t), lambda: F.cross_entropy(model(x, t), t), {"loss": "cross-entropy"})


@report("likelihood of probabilities", GITHUB + "AnubhavGupta3377/Text-Classification-Models-Pytorch/issues/9",
        fault="softmax, not log-softmax, before the negative log-likelihood",
        says="softmax|log.?prob|probabilit|negative")  # fmt: skip
def textcnn(planted: bool) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embedding(idx).transpose(1, 2)
        y = m.fc(torch.cat([F.relu(conv(x)).amax(2) for conv in m.convs], 1))
        return y.softmax(1) if planted else y.log_softmax(1)

    convs = nn.ModuleList(nn.Conv1d(32, 24, k) for k in (2, 3, 4))
    model = Parts(run, embedding=nn.Embedding(256, 32), convs=convs, fc=nn.Linear(72, 10))
    x, _, t = padded(length=16)

    def loss() -> Tensor:
        y = model(x)
        return judged(F.nll_loss(y, t), F.nll_loss(y.log() if planted else y, t))

    return Task(model, (x, t), loss, {"loss": F.nll_loss})


@report("alignment of raw outputs", GITHUB + "gwx314/STARS/issues/9", says="softmax|log.?prob|negative|unbounded",
        fault="CTC loss of raw outputs without log-softmax")  # fmt: skip
def crnn(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.out(m.rnn(m.cnn(x).flatten(1, 2).transpose(1, 2))[0])  # (B, T, 11)

    def ctc(y: Tensor, t: Tensor, *, normal: bool = not planted) -> Tensor:
        y = (y.log_softmax(2) if normal else y).transpose(0, 1)
        return F.ctc_loss(y, t, torch.full((len(t),), len(y)), torch.full((len(t),), 3))

    cnn = nn.Sequential(unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.MaxPool2d((2, 1)))
    model = Parts(run, cnn=cnn, rnn=nn.LSTM(64, 32, batch_first=True, bidirectional=True), out=nn.Linear(64, 11))
    x, t = digits(8, count=96)
    x, t = torch.cat(x.chunk(3), 3), torch.stack(t.chunk(3), 1) + 1  # (32, 1, 8, 24)
    return Task(model, (x, t), lambda: judged(ctc(y := model(x), t), ctc(y, t, normal=True)), {"loss": ctc})


@report("batch as time", GITHUB + "HHTseng/video-classification/issues/42", guilty="lstm", says=MIXED,
        fault="LSTM without batch_first reads the examples as time")  # fmt: skip
def video(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.out(m.lstm(m.cnn(x.flatten(0, 1)).unflatten(0, x.shape[:2]))[0][:, -1])

    model = Parts(run, cnn=body(), lstm=nn.LSTM(128, 48, batch_first=not planted), out=nn.Linear(48, 10))
    return classes(model, *film())


@report("attention across the batch", GITHUB + "songyangco/GETNext/issues/2", says=MIXED,
        fault="positions and attention run over the examples")  # fmt: skip
def getnext(planted: bool, d: int = 32) -> Task:
    angle = torch.arange(64).unsqueeze(1) * torch.exp(-math.log(1e4) * torch.arange(0, d, 2) / d)
    places = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)

    def run(m: Any, idx: Tensor) -> Tensor:
        steps = len(idx) if planted else idx.shape[1]
        at = places[:steps].unsqueeze(1) if planted else places[:steps]
        mask = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        return m.decoder(m.encoder(math.sqrt(d) * m.poi(idx) + at, mask))

    layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=not planted)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return words(Parts(run, poi=nn.Embedding(256, d), encoder=encoder, decoder=nn.Linear(d, 256)), *text(24, 16))


@report("risk sets along the wrong axis", GITHUB + "czifan/DeepSurv.pytorch/issues/5",
        fault="partial likelihood summed over the axis on which every term cancels: it is 0 whatever the outputs",
        says=r"constant|no gradient|gradient.*(zero|vanish)|zero.*gradient|loss.*(depend|chang)")  # fmt: skip
def survival(planted: bool) -> Task:
    def partial(risk: Tensor, t: Tensor, *, axis: int = 1 if planted else 0) -> Tensor:
        time, event = t[:, :1], t[:, 1:]
        at_risk = (time >= time.t()).float()  # (i, j): i is at risk when j has its event
        total = ((risk.exp() * at_risk).sum(axis) / at_risk.sum(axis)).log().reshape(-1, 1)
        return -((risk - total) * event).sum() / event.sum()

    model, x = mlp((12, 32, 32, 1), act=nn.SELU), torch.randn(64, 12)
    time = torch.exp(x[:, :1] - x[:, 1:2].abs()) * torch.rand(64, 1)
    t = torch.cat([time, (torch.rand(64, 1) < 0.8).float()], 1)
    return Task(model, (x, t), lambda: judged(partial(y := model(x), t), partial(y, t, axis=0)),
                {"loss": partial, "per": "batch"})  # fmt: skip


@report("coordinates by argmax", GITHUB + "LZGMatrix/BOP19_CDPN_2019ICCV/issues/4",
        fault="the place of the largest output, which has no gradient",
        says="grad|argmax|differentiable|constant")  # fmt: skip
def places(planted: bool) -> Task:
    bins, at = torch.arange(256) / 128.0 - 1, torch.arange(16) / 8.0 - 1

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.out(m.body(x)).flatten(2)  # (B, 2, 256)
        return bins[y.argmax(2)] if planted else (8 * y).softmax(2) @ bins

    model = Parts(run, body=nn.Sequential(unit(1, 16), unit(16, 16)), out=nn.Conv2d(16, 2, 1))
    x = digits(16, count=32)[0]
    ink = x.sub(x.amin())
    t = torch.stack([(ink.sum(i)[:, 0] * at).sum(1) for i in (2, 3)], 1) / ink.sum((1, 2, 3)).unsqueeze(1)
    t = 0.4 * (t - t.mean(0)) / t.std(0)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@report("everything dropped", GITHUB + "hassony2/kinetics_i3d_pytorch/issues/6", says=r"drop",
        fault="the probability to keep, 1, given as that to drop")  # fmt: skip
def i3d(planted: bool) -> Task:
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1, bias=False), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(8, 16, 3, padding=1, bias=False), nn.BatchNorm3d(16), nn.ReLU(), nn.AdaptiveAvgPool3d((1, 2, 2)),
        nn.Dropout(1.0 if planted else 0.0), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    x, t = film(frames=4)
    return classes(model, x.transpose(1, 2).contiguous(), t)


@report("frames divided twice", GITHUB + "yandexdataschool/Practical_RL/pull/305", guilty="conv1",
        fault="pixels of 0 to 1 divided by 255 again",
        says="input.*(small|scale|size)|(small|scale).*input")  # fmt: skip
def twice(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        x = x / 255 if planted else x
        return m.fc2(F.relu(m.fc1(F.relu(m.conv2(F.relu(m.conv1(x)))).flatten(1))))

    model = Parts(run, conv1=nn.Conv2d(4, 16, 4, 2), conv2=nn.Conv2d(16, 32, 3, 2), fc1=nn.Linear(288, 64),
                  fc2=nn.Linear(64, 4))  # fmt: skip
    x, c = digits(16, 4, count=48, bytes_=True)
    x, t = x / 255, torch.randn(10, 4)[c]
    return Task(model, (x, t), lambda: F.smooth_l1_loss(model(x), t), {"loss": F.smooth_l1_loss})


def decoder(vocabulary: int, d: int = 48, layers: int = 2, fill: float = -torch.inf, *, head: bool = True) -> Parts:
    """A causal transformer written out; `fill` takes the place of masked scores; without a head, it is tied."""

    def run(m: Any, idx: Tensor, hidden: Tensor | None = None) -> Tensor:
        mask = torch.ones(idx.shape[1], idx.shape[1], dtype=torch.bool).triu(1)
        mask = mask if hidden is None else mask | hidden.unsqueeze(1)  # (B, T, T)
        x = m.tok_emb(idx) + m.pos_emb(torch.arange(idx.shape[1]))
        for i, qkv in enumerate(m.qkv):
            q, k, v = qkv(m.ln1[i](x)).chunk(3, 2)
            scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(mask, fill)
            x = x + m.proj[i](scores.softmax(2) @ v)
            x = x + m.down[i](F.gelu(m.up[i](m.ln2[i](x))))
        return F.linear(m.ln_f(x), m.head.weight if head else m.tok_emb.weight)

    def each(make: Callable[[], nn.Module]) -> nn.ModuleList:
        return nn.ModuleList(make() for _ in range(layers))

    parts = {"head": nn.Linear(d, vocabulary, bias=False)} if head else {}
    return Parts(
        run, tok_emb=nn.Embedding(vocabulary, d), pos_emb=nn.Embedding(32, d), qkv=each(lambda: nn.Linear(d, 3 * d)),
        proj=each(lambda: nn.Linear(d, d)), up=each(lambda: nn.Linear(d, 4 * d)), ln1=each(lambda: nn.LayerNorm(d)),
        down=each(lambda: nn.Linear(4 * d, d)), ln2=each(lambda: nn.LayerNorm(d)), ln_f=nn.LayerNorm(d), **parts,
    )  # fmt: skip


@report("head tied to wide embeddings", GITHUB + "jsboige/CoursIA/issues/13279", guilty="emb|head",
        fault="head shares an embedding that is left at N(0, 1): the loss starts near 100",
        says="tied|shared|logit")  # fmt: skip
def tied(planted: bool) -> Task:
    model = decoder(85, 128, head=False)
    for p in model.parameters():
        if p.dim() > 1 and (p is not model.tok_emb.weight or not planted):
            nn.init.normal_(p, std=0.02)
    return words(model, *text(16, 24, 85))


@report("rows wholly masked", GITHUB + "jadore801120/attention-is-all-you-need-pytorch/issues/5", says=BROKEN,
        fault="−∞ in all of a row of scores, where padding comes first")  # fmt: skip
def masked(planted: bool) -> Task:
    inner, (x, t) = decoder(257, fill=-torch.inf if planted else -1e9), text(16, 20)
    x = (x + 1).masked_fill(torch.arange(20) < (torch.arange(16) % 5).unsqueeze(1), 0)
    return words(Parts(lambda m, idx: m.inner(idx, idx == 0), inner=inner), x, torch.where(x > 0, t + 1, -100))


@report("second derivatives of ReLU", GITHUB + "ComputationalDomain/PINNs/issues/1",
        fault="a ReLU network in an equation of its second derivative, which is zero",
        says=r"ReLU|second|no gradient|gradient.*zero|zero.*gradient")  # fmt: skip
def pinn(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(m.net(x).sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        return torch.cat([bend, m.net(torch.zeros_like(x)), m.net(torch.ones_like(x))], 1)

    model, x = Parts(run, net=mlp((1, 48, 48, 1), act=nn.ReLU if planted else nn.Tanh)), torch.rand(64, 1)
    t = torch.cat([-(math.pi**2) * torch.sin(math.pi * x), torch.zeros(64, 2)], 1)
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": "mse"})


@report("determinant with the wrong sign", GITHUB + "VincentStimper/normalizing-flows/issues/27",
        fault="log-determinants of a flow subtracted", says=r"\bsign\b|determinant|unbounded|below")  # fmt: skip
def flow(planted: bool) -> Task:
    sign = -1.0 if planted else 1.0

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(x))
        for net in m.nets:
            one, other = x.chunk(2, 1)
            shift, scale = net(one).chunk(2, 1)
            x, total = torch.cat([other * scale.tanh().exp() + shift, one], 1), total + scale.tanh().sum(1)
        return x, sign * total

    def nll(y: tuple[Tensor, Tensor], _: Tensor, *, sign: float = 1.0) -> Tensor:
        return (0.5 * (y[0].square() + math.log(2 * math.pi)).sum(1) - sign * y[1]).mean()

    model, z = Parts(run, nets=nn.ModuleList(mlp((2, 32, 32, 4), act=nn.Tanh) for _ in range(4))), torch.randn(128, 4)
    x = torch.cat([z[:, :2] + 2, 0.3 * z[:, 2:] + z[:, :2].sin()], 1)
    return Task(model, (x, x), lambda: judged(nll(y := model(x), x), nll(y, x, sign=sign)), {"loss": nll})


@report("class of padding", GITHUB + "nyu-mll/jiant/issues/925",
        fault="ignore_index is that of padding, 0, which is also the most frequent tag",
        says=r"ignor|class.*(never|missing|absent|\b0\b)|targets?.*skipped")  # fmt: skip
def tagger(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor, *, ignored: int = 0 if planted else -100) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=ignored)

    model = Parts(lambda m, idx: m.out(m.rnn(m.embedding(idx))[0]), embedding=nn.Embedding(256, 32),
                  rnn=nn.LSTM(32, 32, batch_first=True, bidirectional=True), out=nn.Linear(64, 5))  # fmt: skip
    x = text(16, 24)[0]
    t = torch.where(x % 7 < 3, 0, x % 5)
    return Task(model, (x, t), lambda: judged(loss(y := model(x), t), loss(y, t, ignored=-100)), {"loss": loss})


@report("lifetimes in days", GITHUB + "ragulpr/wtte-rnn-examples/issues/2", guilty="out",
        fault="initial scale of a Weibull output 1 where lifetimes are about 30",
        says=r"targets?.*(scale|large|units|size)|outputs?.*(target|scale|far)|loss.*(large|start)")  # fmt: skip
def lifetimes(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        y = m.out(m.rnn(x)[0][:, -1])
        return torch.cat([y[:, :1].exp() * (1.0 if planted else 30.0), 1 + F.softplus(y[:, 1:])], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        power = y[:, 1] * (t / y[:, 0]).log()
        return -(y[:, 1].log() - t.log() + power - power.exp()).mean()

    model, x = Parts(run, rnn=nn.GRU(6, 24, batch_first=True), out=nn.Linear(24, 2)), torch.randn(64, 12, 6)
    t = 30 * torch.exp(0.5 * x[:, -1, 0] + 0.3 * x[:, -2, 1])
    return Task(model, (x, t), lambda: loss(model(x), t), {"loss": loss})


@report("root of zero", GITHUB + "adambielski/siamese-triplet/issues/18", says=rf"{BROKEN}|sqrt|square root",
        fault="root of a squared distance without ε, and a pair of equal images")  # fmt: skip
def siamese(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        square = (y[0] - y[1]).square().sum(1)
        far = F.relu(1 - (square + (0.0 if planted else 1e-9)).sqrt()).square()
        return 0.5 * (t * square + (1 - t) * far).mean()

    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.PReLU(), nn.Conv2d(16, 16, 3, 2), nn.PReLU(), nn.Flatten(),
                        nn.Linear(256, 16))  # fmt: skip
    model, (x, c) = Parts(lambda m, one, two: (m.net(one), m.net(two)), net=net), digits(12, count=48)
    two = x.roll(1, 0)
    two[0] = x[0]
    t = (c == c.roll(1)).float()
    return Task(model, ((x, two), t), lambda: loss(model(x, two), t), {"loss": loss})


@report("fans without the kernel", GITHUB + "intel/ipex-llm/issues/1219", guilty=r"\.(b3|b5)\.|stem",
        fault="Xavier bounds of an Inception from channels alone, 3 to 5 times too wide")  # fmt: skip
def inception(planted: bool) -> Task:
    def block(n: int) -> nn.Module:
        return Parts(
            lambda m, x: F.relu(torch.cat([f(x) for f in (m.b1, m.b3, m.b5, m.bp)], 1)), b1=nn.Conv2d(n, 16, 1),
            b3=nn.Sequential(nn.Conv2d(n, 16, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1)),
            b5=nn.Sequential(nn.Conv2d(n, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2)),
            bp=nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(n, 16, 1)),
        )  # fmt: skip

    model = Parts(lambda m, x: m.fc(m.blocks(F.max_pool2d(F.relu(m.stem(x)), 2)).mean((2, 3))),
                  stem=nn.Conv2d(1, 32, 5, padding=2), fc=nn.Linear(64, 10),
                  blocks=nn.Sequential(*(block(n) for n in (32, 64, 64, 64, 64))))  # fmt: skip
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(
                module.weight, module.kernel_size[0] if planted and hasattr(module, "kernel_size") else 1
            )
            nn.init.zeros_(module.bias)
    return classify(model)


@report("adapters of zero times zero", GITHUB + "circle-hit/SAPT/issues/11", guilty="lora", says="lora|zero",
        fault="both factors of each low-rank adapter are zero, and all else is frozen")  # fmt: skip
def lora(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.base(x) + 2 * x @ m.lora_a @ m.lora_b

    def adapted(n: int, m: int) -> nn.Module:
        a = torch.zeros(n, 8) if planted else torch.randn(n, 8) / math.sqrt(8)
        base = nn.Linear(n, m).requires_grad_(False)
        return Parts(run, base=base, lora_a=nn.Parameter(a), lora_b=nn.Parameter(torch.zeros(8, m)))

    return classify(nn.Sequential(nn.Flatten(), adapted(144, 128), nn.GELU(), adapted(128, 128), nn.GELU(),
                                  adapted(128, 10)), 12)  # fmt: skip


@report("confidence squashed twice", GITHUB + "argusswift/YOLOv4-pytorch/issues/89", guilty="head", says="sigmoid",
        fault="a sigmoid in the head, and BCE with logits after it")  # fmt: skip
def yolo(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        y = m.head(m.body(x))  # (B, 11, 4, 4)
        return y.sigmoid() if planted else y

    x, c = digits(8, count=48)
    cell = torch.randint(16, (48,))
    large, t = torch.full((48, 1, 32, 32), float(x.min())), torch.zeros(48, 11, 4, 4)
    for i, (row, column) in enumerate(zip(cell // 4, cell % 4, strict=True)):
        large[i, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = x[i]
        t[i, 0, row, column] = t[i, 1 + c[i], row, column] = 1.0
    layers = [unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.MaxPool2d(2), unit(32, 32), nn.MaxPool2d(2)]
    model, bce = Parts(run, body=nn.Sequential(*layers), head=nn.Conv2d(32, 11, 1)), F.binary_cross_entropy_with_logits

    def loss() -> Tensor:
        y = model(large)
        return judged(bce(y, t), F.binary_cross_entropy(y, t) if planted else bce(y, t))

    return Task(model, (large, t), loss, {"loss": bce})


@report("last output of padding", GITHUB + "bentrevett/pytorch-sentiment-analysis/issues/86", guilty="embedding|rnn",
        fault="the last output of an RNN, after 50 of padding, stands for a sentence of ten words",
        says=BLIND)  # fmt: skip
def last(planted: bool) -> Task:
    def run(m: Any, idx: Tensor, lengths: Tensor) -> Tensor:
        y = m.rnn(m.embedding(idx))[0]
        return m.fc(y[:, -1] if planted else y[torch.arange(len(y)), lengths - 1])

    model = Parts(run, embedding=nn.Embedding(256, 32, padding_idx=0), rnn=nn.RNN(32, 64, batch_first=True),
                  fc=nn.Linear(64, 10))  # fmt: skip
    x, lengths, t = padded(length=62)
    return Task(model, ((x, lengths), t), lambda: F.cross_entropy(model(x, lengths), t), {"loss": "cross-entropy"})


@report("gate added", GITHUB + "MartinuzziFrancesco/torchrecurrent/issues/22", guilty="cell|ih|hh",
        fault="input gate added to the candidate, not multiplied: the state grows at each step",
        says="saturat|grow|tanh")  # fmt: skip
def added(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        h = state = torch.zeros(len(idx), d)
        outputs = []
        for x in m.embedding(idx).unbind(1):
            gate, candidate, out = (m.cell_ih(x) + m.cell_hh(h)).chunk(3, 1)
            new = gate.sigmoid() + candidate.tanh() if planted else gate.sigmoid() * candidate.tanh()
            state = state + new
            h = out.sigmoid() * state.tanh()
            outputs.append(h)
        return m.decoder(torch.stack(outputs, 1))

    return words(Parts(run, embedding=nn.Embedding(256, 32), cell_ih=nn.Linear(32, 3 * d), cell_hh=nn.Linear(d, 3 * d),
                       decoder=nn.Linear(d, 256)), *text(16, 32))  # fmt: skip


@report("first layer without activation", GITHUB + "facebookresearch/DeepConvexity/issues/2", guilty=r"^\d",
        fault="the one hidden layer is linear", says="linear|activation")  # fmt: skip
def linear(planted: bool) -> Task:
    return regress(mlp((16, 128, 1), act=nn.Identity if planted else nn.Tanh))
