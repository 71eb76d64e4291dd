"""A third set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from functools import partial
from itertools import permutations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from strangers.apart import BROKEN, GITHUB, MIXED, Parts, unit
from strangers.blind2 import each, pick, stream
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind3")
Drawn = tuple[tuple[Tensor, ...], Tensor]
SAME = r"constant|same (output|answer|prediction|logit)|(inputs?|examples).*(no effect|ignor|not reach|alike)"
CUT = r"detach|no gradient|gradient.*(zero|cut)|without.*gradient|(outputs?|loss).*not.*depend"


@report("advantages in a column", GITHUB + "RITCHIEHuang/DeepRL_Algorithms/issues/13", guilty="actor",
        says=rf"broadcast|shape|{MIXED}",
        fault="ratios (B,) times advantages (B, 1): each action is praised for all, on average for none")  # fmt: skip
def ppo(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        ratio, gain = 4 * (y[0].exp() * t[:, :4]).sum(1), (t[:, :4] * t[:, 4:]).sum(1, keepdim=True)
        advantage = gain - gain.mean() if planted else (gain - gain.mean()).squeeze(1)
        return 0.5 * (y[1] - gain).square().mean() - (ratio * advantage).mean()

    def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0].exp() * (t[:, 4:].max(1, keepdim=True)[0] - t[:, 4:])).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (128,)), 4).float(), x @ taste], 1)

    taste = torch.randn(6, 4)
    model = Parts(lambda m, x: (m.actor(z := m.trunk(x)).log_softmax(1), m.critic(z)), actor=nn.Linear(64, 4),
                  trunk=nn.Sequential(nn.Linear(6, 64), nn.Tanh()), critic=nn.Linear(64, 1))  # fmt: skip
    return stream(model, draw, loss, regret)


@report("displacements in pixels", GITHUB + "apache/mxnet/issues/5780", guilty="flow",
        says=rf"grid|outside|outputs?.*zero|{SAME}|{CUT}",
        fault="a bilinear sampler reads at pixels 0 to 15, not −1 to 1: nearly all is outside and zero")  # fmt: skip
def registration(planted: bool) -> Task:
    def run(m: Any, pair: Tensor) -> Tensor:
        flow = m.flow(m.net(pair)).permute(0, 2, 3, 1)
        place = torch.stack(torch.meshgrid(torch.arange(16), torch.arange(16), indexing="xy"), 2) + flow
        return F.grid_sample(pair[:, :1], place if planted else place / 7.5 - 1, align_corners=True)

    def draw() -> Drawn:
        x = F.interpolate(pick(32)[0], size=(16, 16), mode="bilinear") + 0.8
        return (torch.cat([x, x.roll(2, 3)], 1),), x.roll(2, 3)

    flow = nn.Conv2d(16, 2, 3, padding=1)
    nn.init.normal_(flow.weight, 0.0, 1e-5)
    nn.init.zeros_(flow.bias)  # type: ignore[arg-type]
    net = nn.Sequential(nn.Conv2d(2, 16, 5, padding=2), nn.LeakyReLU(0.2), nn.Conv2d(16, 16, 5, padding=2))
    return stream(Parts(run, net=net.append(nn.LeakyReLU(0.2)), flow=flow), draw, F.mse_loss)


@report("weights rounded to zero", GITHUB + "calad0i/HGQ2/issues/11", guilty="weight",
        says=rf"\bround|quanti|weights?.*zero|{SAME}",
        fault="steps of a quarter for weights of Glorot's size: all round to zero, if straight-through")  # fmt: skip
def rounded(planted: bool) -> Task:
    class Quantised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            step = 0.25 if planted else 1 / 64
            weight = self.weight + (step * (self.weight / step).round() - self.weight).detach()
            return F.linear(x, weight, self.bias)

    model = nn.Sequential(nn.Flatten())
    for n, m in ((64, 512), (512, 512), (512, 256), (256, 10)):
        model.extend([nn.ReLU()] * (len(model) > 1) + [layer := Quantised(n, m)])
        nn.init.xavier_normal_(layer.weight, 0.5)
        nn.init.zeros_(layer.bias)
    return stream(model, lambda: ((x := pick())[:1], x[1]), F.cross_entropy)


@report("a loss told to need gradients", GITHUB + "ronghuaiyang/arcface-pytorch/issues/56", says=CUT,
        fault="loss.requires_grad = True on a loss that the graph no longer reaches: nothing is trained")  # fmt: skip
def told_to(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.detach(), t).requires_grad_() if planted else F.cross_entropy(y, t)

    def separable(n: int, m: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(n, n, 5, 2, 2, groups=n), nn.Conv1d(n, m, 1), nn.GroupNorm(4, m), nn.SiLU())

    def draw() -> Drawn:
        c = torch.randint(5, (64,))
        return (torch.sin((0.3 + 0.3 * c[:, None, None]) * torch.arange(64) + 6.28 * torch.rand(64, 1, 1)),), c

    model = nn.Sequential(nn.Conv1d(1, 16, 7, padding=3), separable(16, 32), separable(32, 32),
                          nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 5))  # fmt: skip
    return stream(model, draw, loss, F.cross_entropy)


@report("labels shifted twice", GITHUB + "huggingface/transformers/pull/44642",
        says=r"shift|after next|(labels?|targets?).*(align|next|position|off by)",
        fault="labels shifted by the data and again by the loss: the word after the next is learnt")  # fmt: skip
def after_next(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor, shift: int = 0) -> Tensor:
        return F.cross_entropy(y[:, : 16 - shift].flatten(0, 1), t[:, shift:].flatten())

    def draw() -> Drawn:
        words = [torch.randint(31, (32,))]
        for _ in range(16):
            words.append(follows[words[-1]])
        return (torch.stack(words[:-1], 1),), torch.stack(words[1:], 1)

    follows = torch.randperm(31)
    model = Parts(lambda m, idx: m.head(m.rnn(m.embed(idx))[0]), embed=nn.Embedding(31, 32),
                  rnn=nn.LSTM(32, 64, 2, batch_first=True), head=nn.Linear(64, 31))  # fmt: skip
    return stream(model, draw, partial(loss, shift=int(planted)), loss)


@report("softmax over a basket", GITHUB + "HaojiHu/Sets2Sets/issues/3", guilty="out", says="softmax|sum to (1|one)",
        fault="softmax over items of which eight of 24 are right")  # fmt: skip
def basket(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(64, 5, 24).argsort(2).lt(8).float()
        return (x,), x[:, -1].roll(3, 1)

    squash = partial(torch.softmax, dim=1) if planted else torch.sigmoid
    model = Parts(lambda m, x: squash(m.out(m.gru(m.embed(x))[0][:, -1])), embed=nn.Linear(24, 64),
                  gru=nn.GRU(64, 96, batch_first=True), out=nn.Linear(96, 24))  # fmt: skip
    return stream(model, draw, F.binary_cross_entropy)


@report("a silent recording", GITHUB + "SeanNaren/deepspeech.pytorch/issues/272", says=BROKEN,
        fault="spectrograms divided by their deviation, which is zero where a microphone was off")  # fmt: skip
def silent(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(6, (32,))
        wave = torch.sin((0.3 + 0.4 * c[:, None]) * torch.arange(192)) + 0.3 * torch.randn(32, 192)
        wave[0] = 0
        x = torch.stft(wave, 32, 16, window=torch.hann_window(32), return_complex=True).abs().log1p()
        x, deviation = x - x.mean((1, 2), keepdim=True), x.std((1, 2), keepdim=True)
        return (x / deviation.clamp(min=0.0 if planted else 1e-3),), c

    model = Parts(lambda m, x: m.fc(m.rnn(m.conv(x.unsqueeze(1)).flatten(1, 2).transpose(1, 2))[0].mean(1)),
                  conv=nn.Sequential(nn.Conv2d(1, 8, 3, (2, 1), 1), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)),
                  rnn=nn.GRU(72, 32, batch_first=True, bidirectional=True), fc=nn.Linear(64, 6))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("the branch not taken", GITHUB + "pytorch/pytorch/issues/68425", guilty="query|key|score", says=BROKEN,
        fault="torch.where hides p·log p of masked choices, whose gradient is NaN all the same")  # fmt: skip
def pointer(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        h = m.rnn(x)[0]
        e = m.score((m.query(h[:, -1:]) + m.key(h)).tanh()).squeeze(2)
        return e.masked_fill(x[:, :, 1] > 0, -torch.inf).softmax(1)

    def loss(p: Tensor, t: Tensor) -> Tensor:
        safe = p if planted else p.clamp(min=1e-9)
        entropy = -torch.where(p > 0, p * safe.log(), torch.zeros_like(p)).sum(1).mean()
        return -p.gather(1, t.unsqueeze(1)).clamp(min=1e-9).log().mean() - 0.001 * entropy

    def draw() -> Drawn:
        x = torch.stack([torch.randn(64, 8), (torch.rand(64, 8) < 0.3).float()], 2)
        x[:, 0, 1] = 0
        return (x,), x[:, :, 0].masked_fill(x[:, :, 1] > 0, -9).argmax(1)

    model = Parts(run, rnn=nn.LSTM(2, 32, batch_first=True), query=nn.Linear(32, 32), key=nn.Linear(32, 32),
                  score=nn.Linear(32, 1, bias=False))  # fmt: skip
    return stream(model, draw, loss)


def graphs(count: int, nodes: int, share: float, common: float) -> tuple[Tensor, Tensor]:
    """Node features (count, nodes, 4), and adjacency matrices with loops, of rows that sum to one."""
    a = (torch.rand(count, nodes, nodes) < share).float().triu(1)
    a = a + a.transpose(1, 2) + torch.eye(nodes)
    return torch.randn(count, nodes, 4) + common * torch.randn(count, 1, 4), a / a.sum(2, keepdim=True)


@report("graphs pooled as one", GITHUB + "pyg-team/pytorch_geometric/issues/258", guilty=r"convs\.1|^out",
        says=f"{SAME}|{MIXED}",
        fault="the mean over all nodes of the batch, no vector that tells graphs apart")  # fmt: skip
def pooled(planted: bool) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:
        for conv in m.convs:
            x = F.relu(conv(torch.cat([x, a @ x], 2)))
        return m.out(x.mean((0, 1)).expand(len(x), -1) if planted else x.mean(1))

    def draw() -> Drawn:
        x, a = graphs(32, 10, 0.3, 1)
        return (x, a), x[:, :, :1].mean(1) * 2 + (a @ x).amax(1)[:, 1:2] - 1

    model = Parts(run, convs=nn.ModuleList((nn.Linear(8, 48), nn.Linear(96, 48))), out=mlp((48, 32, 1)))
    return stream(model, draw, F.mse_loss)


@report("centres as corners", GITHUB + "stevebottos/owl-vit-object-detection/issues/14", guilty="boxes",
        fault="boxes (centre, size) given to a GIoU of corners: widths are right edges, left of the left ones",
        says=r"\bbox|negative|corner|no gradient")  # fmt: skip
def boxes(planted: bool) -> Task:
    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(1)

    def giou(a: Tensor, b: Tensor) -> Tensor:
        inner = area(torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:]))
        union = area(a[:, :2], a[:, 2:]) + area(b[:, :2], b[:, 2:]) - inner
        hull = area(torch.min(a[:, :2], b[:, :2]), torch.max(a[:, 2:], b[:, 2:]))
        return (1 - inner / (union + 1e-6) + (hull - union) / (hull + 1e-6)).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return giou(*(torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1) for b in (y, t)))

    def draw() -> Drawn:
        size, middle = 0.15 + 0.2 * torch.rand(64, 2), 0.4 + 0.4 * torch.rand(64, 2)
        place = (torch.arange(16) + 0.5) / 16
        inside = [(place - middle[:, i : i + 1]).abs() < size[:, i : i + 1] / 2 for i in (0, 1)]
        image = (inside[1].unsqueeze(2) & inside[0].unsqueeze(1)).float().unsqueeze(1)
        return (image + 0.1 * torch.randn_like(image),), torch.cat([middle, size], 1)

    net = nn.Sequential(unit(1, 16), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(256, 128), nn.ReLU())
    model = Parts(lambda m, x: m.boxes(m.net(x)).sigmoid(), boxes=nn.Linear(128, 4), net=net)
    return stream(model, draw, giou if planted else right, right)


@report("weights of torch.rand", GITHUB + "AdaptInfer/Contextualized/issues/33", guilty=r"^w\d",
        says="positive|grow|explod|large",
        fault="weights of U(0, 1), all positive, in a network of every feature")  # fmt: skip
def additive(planted: bool, d: int = 24) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = F.relu(torch.einsum("bf,fh->bfh", x, m.w1) + m.b1)
        for w in (m.w2, m.w3):
            z = F.relu(torch.einsum("bfh,fhk->bfk", z, w))
        return torch.einsum("bfk,fk->b", z, m.w4).unsqueeze(1)

    def weights(*shape: int) -> nn.Parameter:
        w = torch.rand(6, *shape)
        return nn.Parameter(w if planted else (2 * w - 1) * math.sqrt(6 / shape[0] if len(shape) > 1 else 0.1))

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), (x[:, :3].abs() - 0.8).sum(1, keepdim=True) + torch.sin(2 * x[:, 3:4])

    b1 = nn.Parameter(torch.zeros(6, d))
    model = Parts(run, w1=weights(d), b1=b1, w2=weights(d, d), w3=weights(d, d), w4=weights(d))
    return stream(model, draw, F.mse_loss)


@report("a logarithm added", GITHUB + "FluxML/model-zoo/pull/147", guilty="latent",
        fault="KL with + log σ² in place of −: the smaller the deviations, the better, without end",
        says=r"\bsign\b|unbounded|below|negative|KL")  # fmt: skip
def process(planted: bool) -> Task:
    def run(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = m.encoder(torch.stack([x, y], 2)[:, :8].flatten(0, 1)).unflatten(0, (-1, 8)).mean(1)
        mu, logvar = m.latent(z).chunk(2, 1)
        z = (mu + (logvar / 2).exp() * torch.randn_like(mu)).unsqueeze(1).expand(-1, x.shape[1], -1)
        return m.decoder(torch.cat([z, x.unsqueeze(2)], 2).flatten(0, 1)).view_as(x), mu, logvar

    def elbo(y: tuple[Tensor, Tensor, Tensor], t: Tensor, sign: float) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - 1 + sign * y[2]).sum(1).mean()
        return 5 * (y[0] - t).square().sum(1).mean() + kl

    def draw() -> Drawn:
        x = 4 * torch.rand(64, 16) - 2
        y = torch.rand(64, 1) + torch.randn(64, 1) * torch.sin(x + 3 * torch.rand(64, 1))
        return (x, y), y

    model = Parts(run, encoder=mlp((2, 64, 64)), latent=nn.Linear(64, 32), decoder=mlp((17, 64, 64, 1)))
    return stream(model, draw, partial(elbo, sign=1.0 if planted else -1.0), partial(elbo, sign=-1.0))


@report("scales by Kaiming", GITHUB + "ELIFE-ASU/INNLab/issues/7", guilty=r"scales",
        fault="exponentials of unbounded scales, drawn as any layer: they multiply from coupling to coupling",
        says=f"{BROKEN}|grow|explod|overflow|large")  # fmt: skip
def couplings(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(x))
        for scale, shift in zip(m.scales, m.shifts, strict=True):
            one, two = x.chunk(2, 1)
            s = scale(one) if planted else scale(one).tanh()
            x, total = torch.cat([two * s.exp() + shift(one), one], 1), total + s.sum(1)
        return x, total

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (0.5 * y[0].square().sum(1) - y[1]).mean() + 8

    def draw() -> Drawn:
        return (2 * torch.randn(128, 16) @ mix,), torch.zeros(128)

    mix = torch.linalg.qr(torch.randn(16, 16))[0] * torch.linspace(0.5, 1.5, 16)
    scales, shifts = (each(6, lambda: mlp((8, 48, 48, 8))) for _ in range(2))
    for net in [*scales, *shifts]:
        for layer in net[1::2]:
            nn.init.kaiming_uniform_(layer.weight)
        if not planted:
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)
    return stream(Parts(run, scales=scales, shifts=shifts), draw, loss)


@report("no way through time", GITHUB + "yulinzhouZYL/MTIL/issues/1", guilty="cell", says=CUT,
        fault="the hidden state is detached at every step: what came first is never stored")  # fmt: skip
def through_time(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 48)
        for i in range(x.shape[1]):
            h = m.cell(x[:, i], h.detach() if planted else h)
        return m.head(h)

    def draw() -> Drawn:
        x, c = 0.5 * torch.randn(64, 18, 5), torch.randint(4, (64,))
        x[:, :, 4] = 0
        x[:, 0] = torch.cat([4.0 * F.one_hot(c, 4), torch.ones(64, 1)], 1)
        return (x,), c

    return stream(Parts(run, cell=nn.GRUCell(5, 48), head=nn.Linear(48, 4)), draw, F.cross_entropy)


@report("points without a permutation", GITHUB + "torch-points3d/torch-points3d/pull/76", guilty="head",
        says=rf"\bviews?\b|reshap|permut|transpos|{MIXED}",
        fault="scores (B, classes, points) viewed as (B · points, classes)")  # fmt: skip
def parts(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.local(x.transpose(1, 2))
        y = m.head(torch.cat([z, z.amax(2, keepdim=True).expand_as(z)], 1))
        return y.reshape(-1, 4) if planted else y.transpose(1, 2).reshape(-1, 4)

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t.flatten())

    def right(y: Tensor, t: Tensor) -> Tensor:
        return wrong(y.reshape(len(t), 4, -1).transpose(1, 2).reshape(-1, 4) if planted else y, t)

    def draw() -> Drawn:
        x = torch.randn(16, 64, 3)
        return (x,), (x[:, :, 0] > x[:, :, 0].mean(1, keepdim=True)).long() + 2 * (x[:, :, 2] > 0).long()

    local = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 48, 1), nn.ReLU())
    head = nn.Sequential(nn.Conv1d(96, 48, 1), nn.BatchNorm1d(48), nn.ReLU(), nn.Conv1d(48, 4, 1))
    return stream(Parts(run, local=local, head=head), draw, wrong, right)


@report("a generator cut off", GITHUB + "tamarott/SinGAN/pull/117", guilty="generator", says=CUT,
        fault="the critic's praise is of fakes that are detached: the generator is never trained")  # fmt: skip
def cut_off(planted: bool) -> Task:
    def run(m: Any, z: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fake, frozen = m.generator(z), {name: p.detach() for name, p in m.critic.named_parameters()}
        praise = functional_call(m.critic, frozen, (fake.detach() if planted else fake,))
        return m.critic(real), m.critic(fake.detach()), praise, fake

    def loss(y: tuple[Tensor, ...], _: Tensor) -> Tensor:
        return F.relu(1 - y[0]).mean() + F.relu(1 + y[1]).mean() - y[2].mean()

    def apart(y: tuple[Tensor, ...], t: Tensor) -> Tensor:
        return (y[3].mean(0) - t.mean(0)).square().sum() + (y[3].std(0) - t.std(0)).square().sum()

    def draw() -> Drawn:
        real = torch.randn(128, 4) * torch.tensor([0.5, 1.0, 0.5, 0.5]) + torch.tensor([1.5, -1.0, 0.0, 1.0])
        return (torch.randn(128, 8), real), real

    generator, critic = (mlp((n, 48, m), act=partial(nn.LeakyReLU, 0.2)) for n, m in ((8, 4), (4, 1)))
    return stream(Parts(run, generator=generator, critic=critic), draw, loss, apart)


@report("one query for all", GITHUB + "ShoufaChen/DiffusionDet/issues/14", guilty="queries|decoder",
        says="quer(y|ies)|symmetr|(same|equal|identical|alike).*(output|object|row)",
        fault="object queries are copies of one: all objects found are the same")  # fmt: skip
def one_query(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        memory = m.tokens(x) + m.places
        q = (m.queries[:1].expand(3, -1) if planted else m.queries).expand(len(x), -1, -1)
        for attention, norm, net in zip(m.decoder, m.norms, m.nets, strict=True):
            q = norm(q + attention(q, memory, memory, need_weights=False)[0])
            q = q + net(q)
        return m.out(q)

    def match(y: Tensor, t: Tensor) -> Tensor:
        orders = [(y[:, list(order)] - t).square().mean((1, 2)) for order in permutations(range(3))]
        return torch.stack(orders).amin(0).mean()

    def draw() -> Drawn:
        at = torch.rand(64, 12).argsort(1)[:, :3]
        x = F.one_hot(at, 12).sum(1).float().unsqueeze(2)
        return (torch.cat([x, 1 - x], 2),), ((at - 5.5) / 3.5).unsqueeze(2)

    model = Parts(run, tokens=nn.Linear(2, d), places=nn.Parameter(torch.randn(12, d)), out=nn.Linear(d, 1),
                  queries=nn.Parameter(torch.randn(3, d)), norms=each(2, lambda: nn.LayerNorm(d)),
                  nets=each(2, lambda: mlp((d, 64, d))[1:]),
                  decoder=each(2, lambda: nn.MultiheadAttention(d, 2, batch_first=True)))  # fmt: skip
    return stream(model, draw, match)


def attend(m: Any, x: Tensor, turn: Any = lambda z: z, bias: Tensor | float = 0.0) -> Tensor:
    """Causal attention of four heads, with keys and queries turned and a bias (heads, T, T)."""
    q, k, v = (z.unflatten(2, (4, -1)).transpose(1, 2) for z in m.qkv(x).chunk(3, 2))  # (B, heads, T, d)
    scores = turn(q) @ turn(k).transpose(2, 3) / math.sqrt(q.shape[3]) + bias
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return m.proj((scores.masked_fill(hidden, -torch.inf).softmax(3) @ v).transpose(1, 2).flatten(2))


@report("rotated by head", GITHUB + "mlfoundations/open_lm/issues/4", guilty="qkv",
        says=r"position|permut|\border of|rotar",
        fault="rotary angles run over the heads, not the positions")  # fmt: skip
def rotary(planted: bool, d: int = 64) -> Task:
    def turn(z: Tensor) -> Tensor:
        z = z if planted else z.transpose(1, 2)  # (B, T, heads, d): the second is turned
        one, two = z.chunk(2, 3)
        angle = (torch.arange(z.shape[1])[:, None] * 0.01 ** (torch.arange(8) / 8)).unsqueeze(1)
        z = torch.cat([one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()], 3)
        return z if planted else z.transpose(1, 2)

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.tokens(idx)
        x = x + attend(m, m.norm(x), turn)
        return m.head(x + m.net(x)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 16))
        return (idx,), torch.cat([idx[:, :3], idx[:, :-3]], 1)

    net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    model = Parts(run, tokens=nn.Embedding(12, d), norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), net=net,
                  proj=nn.Linear(d, d), head=nn.Linear(d, 12))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("slopes upwards", GITHUB + "meta-pytorch/attention-gym/pull/86", guilty="qkv",
        says="position|slope|distan|attention",
        fault="linear biases of the wrong sign: attention to what is farthest")  # fmt: skip
def slopes(planted: bool, d: int = 32) -> Task:
    apart = torch.arange(24)[:, None] - torch.arange(24)
    bias = (apart if planted else -apart) * 2.0 ** -torch.tensor([0, 1, 2, 3])[:, None, None]
    fade = 1.5 * 0.6 ** apart.clamp(min=0) * (apart > 0)

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.embed(x)
        return m.head(x + attend(m, m.norm(x), bias=bias))

    def draw() -> Drawn:
        x = torch.randn(32, 24, 2)
        x = torch.cat([x, x.prod(2, keepdim=True)], 2)
        return (x,), fade @ x[:, :, 2:]

    model = Parts(run, embed=nn.Linear(3, d), norm=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d),
                  head=mlp((d, 64, 1))[1:])  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("time in minutes", GITHUB + "rtqichen/torchdiffeq/issues/57", guilty="field",
        says=f"{BROKEN}|grow|explod|large|integrat",
        fault="a latent ODE is integrated to t = 0, 60, 120, 180")  # fmt: skip
def minutes(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z, outputs, h = m.encoder(x), [], 15.0 if planted else 15 / 180
        for _ in range(12):
            a = m.field(z)
            b = m.field(z + h / 2 * a)
            c = m.field(z + h / 2 * b)
            z = z + h / 6 * (a + 2 * b + 2 * c + m.field(z + h * c))
            outputs.append(m.decoder(z))
        return torch.cat(outputs, 1)

    def draw() -> Drawn:
        time = torch.arange(20) / 12
        wave = torch.exp(-time / 2) * torch.sin(4 * time + 6.28 * torch.rand(64, 1)) * (1 + torch.rand(64, 1))
        return (wave[:, :8],), wave[:, 8:]

    model = Parts(run, encoder=mlp((8, 32, 8)), field=nn.Sequential(nn.Linear(8, 48), nn.ELU(), nn.Linear(48, 8)),
                  decoder=nn.Linear(8, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("smoothed over", GITHUB + "yl-1993/learn-to-cluster/issues/23", guilty="convs|out",
        says=f"alike|smooth|vanish|{SAME}",
        fault="24 graph convolutions one after another: all nodes end alike")  # fmt: skip
def smoothed(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:
        x = first = F.relu(m.embed(x))
        for i, conv in enumerate(m.convs, 1):
            z = a @ x if planted else 0.8 * a @ x + 0.2 * first
            x = F.relu(conv(z) if planted else (1 - 0.5 / i) * z + 0.5 / i * conv(z))
        return m.out(x)

    def draw() -> Drawn:
        x, a = graphs(16, 12, 0.25, 0)
        return (x, a), torch.sin(2 * x[:, :, :1]) + (a @ x)[:, :, 1:2]

    model = Parts(run, embed=nn.Linear(4, d), convs=each(24, lambda: nn.Linear(d, d, bias=False)), out=nn.Linear(d, 1))
    for conv in model.convs:
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return stream(model, draw, F.mse_loss)


@report("edges of the first graph", GITHUB + "pyg-team/pytorch_geometric/issues/1499", guilty="message",
        fault="edges of a batch of graphs are not offset: all join nodes of the first",
        says=rf"{MIXED}|\bedges?\b|neighbo|isolated")  # fmt: skip
def first_graph(planted: bool) -> Task:
    def run(m: Any, x: Tensor, edges: Tensor) -> Tensor:  # (B, 8, 4), (B, 2, edges)
        start, end = (edges + (0 if planted else 8 * torch.arange(len(x))[:, None, None])).transpose(0, 1).flatten(1)
        z = m.embed(x.flatten(0, 1))
        for message, update in zip(m.message, m.update, strict=True):
            sent = message(torch.cat([z[start], z[end]], 1))
            z = z + update(torch.cat([z, torch.zeros_like(z).index_add(0, end, sent) / 4], 1))
        return m.out(z).unflatten(0, (-1, 8))

    def draw() -> Drawn:
        x, end = torch.randn(48, 8, 4), torch.arange(8).repeat(3).expand(48, -1)
        start = torch.randint(8, (48, 24))
        return (x, torch.stack([start, end], 1)), x[:, :, :1].gather(1, start.unsqueeze(2)).unflatten(1, (3, 8)).sum(1)

    model = Parts(run, embed=nn.Linear(4, 32), message=each(2, lambda: mlp((64, 32, 32))),
                  update=each(2, lambda: mlp((64, 32, 32))), out=nn.Linear(32, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("weights as new parameters", GITHUB + "lezcano/geotorch/issues/12", says=CUT,
        fault="weights that a hypernetwork made are wrapped as parameters: it gets no gradient itself")  # fmt: skip
def hyper(planted: bool) -> Task:
    def run(m: Any, x: Tensor, code: Tensor) -> Tensor:
        w = nn.Parameter(m.hyper(code)) if planted else m.hyper(code)
        z = torch.einsum("bi,bih->bh", x, w[:, :64].unflatten(1, (4, 16))).tanh()
        return (z * w[:, 64:]).sum(1, keepdim=True)

    def draw() -> Drawn:
        x, code = torch.randn(128, 4), torch.randn(128, 3)
        return (x, code), (x[:, :3] * code).sum(1, keepdim=True)

    return stream(Parts(run, hyper=mlp((3, 64, 80))), draw, F.mse_loss)


@report("forces without a graph", GITHUB + "facebookresearch/DomainBed/issues/50", says=rf"create_graph|{CUT}",
        fault="autograd.grad without create_graph: the term of forces has no gradient")  # fmt: skip
def forces(planted: bool) -> Task:
    def labels(energy: Any, x: Tensor, graph: bool) -> Tensor:
        with torch.enable_grad():
            e = energy(z := x.detach().requires_grad_())
            (force,) = torch.autograd.grad(e.sum(), z, create_graph=graph, retain_graph=True)
        return torch.cat([e.mean(0, keepdim=True).expand_as(e), force], 1)

    def energy(x: Tensor) -> Tensor:
        return (x[:, :-1] * x[:, 1:]).sum(1, keepdim=True) + torch.cos(x).sum(1, keepdim=True) - 7.3

    def draw() -> Drawn:
        x = torch.randn(64, 12)
        return (x.clone(),), labels(energy, x, False).detach()

    net = nn.Sequential(nn.Linear(12, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))
    return stream(Parts(lambda m, x: labels(m.net, x, not planted), net=net), draw, F.mse_loss)
