"""A sixteenth set of faults, a sample of reports, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind16")


@report(
    "relu on logits",
    GITHUB + "pytorch/tutorials/pull/1644",
    guilty=r"linear_relu_stack\.4",
    says=r"relu|negative|clip|dead|(last|final|output).*activation|activation.*(last|final|output|logit)",
    fault="the stack ends in a ReLU, and its outputs go to the cross entropy as logits",
)
def relu_logits(planted: bool) -> Task:
    class NeuralNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.flatten = nn.Flatten()
            self.linear_relu_stack = nn.Sequential(
                nn.Linear(8 * 8, 128),
                nn.ReLU(),
                nn.Linear(128, 128),
                nn.ReLU(),
                nn.Linear(128, 10),
                *([nn.ReLU()] if planted else []),
            )

        def forward(self, x):
            return self.linear_relu_stack(self.flatten(x))

    def draw() -> Drawn:
        x, c = pick(64)
        return (x * 0.376 + 0.3,), c  # ToTensor(): 0 to 1

    return stream(NeuralNetwork(), draw, F.cross_entropy)


SOFTMAX = r"softmax|probabilit|logit|sum to (1|one)"


def double_softmax(model: nn.Module, planted: bool, draw) -> Task:
    return stream(
        Parts(lambda m, x: F.softmax(m.net(x), dim=-1) if planted else m.net(x), net=model),
        draw,
        lambda y, t: F.cross_entropy(y.flatten(0, -2), t.flatten()),
        (lambda y, t: F.nll_loss((y.flatten(0, -2) + 1e-8).log(), t.flatten())) if planted else None,
    )


def raw() -> Drawn:
    x, c = pick(64)
    return (x * 0.376 + 0.3,), c  # 0 to 1


@report(
    "softmax twice, cookbook",
    GITHUB + "nfmcclure/tensorflow_cookbook/issues/86",
    guilty=r"net\.out",
    says=SOFTMAX,
    fault="logits_out is a softmax, and the loss is sparse_softmax_cross_entropy_with_logits",
)
def softmax_cookbook(planted: bool) -> Task:
    """09/02: spam from the last output of an RNN of 10 units over embeddings of 50."""

    def draw() -> Drawn:
        x = torch.randint(20, 200, (64, 25))
        c = torch.randint(2, (64,))
        hit = (torch.rand(64, 25) < 0.2) & (c[:, None] == 1)  # words of spam
        return (torch.where(hit, torch.randint(0, 20, (64, 25)), x),), c

    def run(m, x):
        y, _ = m.rnn(m.embedding(x))
        return m.out(F.dropout(y[:, -1], 0.2))

    net = Parts(run, embedding=nn.Embedding(200, 50), rnn=nn.RNN(50, 10, batch_first=True), out=nn.Linear(10, 2))
    nn.init.uniform_(net.embedding.weight, -1, 1)
    return double_softmax(net, planted, draw)


@report(
    "weights never initialised",
    GITHUB + "davharris/mistnet/issues/87",
    guilty=r"weight",
    says=r"zero|symmetr|same|dead|no gradient|gradient.*(vanish|zero|0)|constant",
    fault="the weights of every layer are left at zero",
)
def mistnet(planted: bool) -> Task:
    """Presences of 30 species from 6 measures of the climate and 4 latent draws; a rectifier and a logistic output."""
    true = torch.randn(6, 8), torch.randn(8, 30)

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        odds = torch.relu(x @ true[0]) @ true[1]
        return (torch.cat([x, torch.randn(64, 4)], 1),), torch.bernoulli(torch.sigmoid(odds))

    model = Parts(
        lambda m, x: torch.sigmoid(m.layer2(F.relu(m.layer1(x)))), layer1=nn.Linear(10, 40), layer2=nn.Linear(40, 30)
    )
    for m in (model.layer1, model.layer2):
        nn.init.zeros_(m.bias)
        nn.init.zeros_(m.weight) if planted else nn.init.normal_(m.weight, std=0.1)
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "policy head detaches",
    GITHUB + "lebrice/Sequoia/pull/77",
    guilty=r"encoder",
    says=CUT + r"|encoder.*not.*(train|learn)",
    fault="the policy head does representations.float().detach()",
)
def sequoia(planted: bool) -> Task:
    """Policy gradient on pictures of a leaning pole, two frames of 16 x 16: reward 1 for a push to its side."""

    def draw() -> Drawn:
        angle, foot, speed = torch.rand(64) - 0.5, 5 + 6 * torch.rand(64), (torch.rand(64) - 0.5)
        h = torch.arange(12.0)
        frames = []
        for k in (0, 1):
            x = foot[:, None] + torch.tan(angle + 0.3 * k * speed)[:, None] * h
            frames.append(torch.exp(-((torch.arange(16.0) - x[..., None]) ** 2) * 2))
        image = F.pad(torch.stack(frames, 1), (0, 0, 2, 2)).flip(2)
        action = torch.randint(2, (64,))
        return (image,), {"action": action, "reward": (action == (angle + speed > 0)).float()}

    class PolicyHead(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.dense = nn.Linear(n, 2)

        def forward(self, representations):
            representations = representations.float().detach() if planted else representations.float()
            return self.dense(representations)

    encoder = chain(
        nn.Conv2d(2, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 60),
        nn.ReLU(),
        nn.Linear(60, 32),
        nn.ReLU(),
    )
    model = Parts(lambda m, x: m.output_head(m.encoder(x)), encoder=encoder, output_head=PolicyHead(32))

    def loss(y, t):
        return -(F.log_softmax(y, 1).gather(1, t["action"][:, None])[:, 0] * t["reward"]).mean()

    return stream(model, draw, loss)


@report(
    "padding sentences divide by zero",
    GITHUB + "allenai/deep_qa/pull/123",
    guilty=r"(?!)",
    says=BROKEN + r"|mask|divi|padd|empty",
    fault="one over the number of words is 0 / 0 for sentences of padding; and (1 - j) / m stands for 1 - j / m",
)
def deep_qa(planted: bool) -> Task:
    """A memory network: a question attends to background sentences, all by positional encoders; an answer."""

    class PositionalEncoder(nn.Module):
        def forward(self, x, mask):
            ones_like_x = torch.ones_like(x) * mask.float()[..., None]
            masked_m = ones_like_x.sum(-2, keepdim=True)
            k_over_d = ones_like_x.cumsum(-1) / x.shape[-1]
            if planted:
                one_over_m = ones_like_x / masked_m
                j_index = ones_like_x.cumsum(-2)
                weights = (ones_like_x - j_index) * one_over_m - k_over_d * ((ones_like_x - 2 * j_index) * one_over_m)
            else:
                one_over_m = torch.where(ones_like_x > 0, ones_like_x / masked_m, torch.zeros_like(x))
                j_index = ones_like_x.cumsum(-2) * mask.float()[..., None]
                weights = (ones_like_x - j_index * one_over_m) - k_over_d * (ones_like_x - 2 * j_index * one_over_m)
            return (weights * x).sum(-2)

    def run(m, question, background):
        q, b = (m.encoder(m.embedding(w), w != 0) for w in (question, background))
        for hop in m.hops:
            scores = (b * q[:, None]).sum(-1) - 1e4 * (background == 0).all(-1).float()
            q = F.relu(hop(torch.cat([q, (F.softmax(scores, 1)[..., None] * b).sum(1)], 1)))
        return m.answer(q)

    def draw() -> Drawn:
        """Facts "who went where", up to six of them; the question is where someone is."""
        n, who = torch.randint(2, 7, (64, 1)), torch.stack([torch.randperm(6) for _ in range(64)])
        where = torch.randint(6, (64, 6))
        went, to = torch.full_like(who, 13), torch.full_like(who, 14)
        facts = torch.stack([1 + who, went, to, 7 + where, torch.zeros_like(who)], 2)
        facts = facts * (torch.arange(6) < n)[..., None]
        asked = (torch.rand(64, 1) * n).long()
        question = torch.stack([torch.full((64,), 15), torch.full((64,), 16), 1 + who.gather(1, asked)[:, 0]], 1)
        return (question, facts), where.gather(1, asked)[:, 0]

    model = Parts(
        run,
        embedding=nn.Embedding(17, 32),
        encoder=PositionalEncoder(),
        hops=nn.ModuleList([nn.Linear(64, 32)]),
        answer=nn.Linear(32, 6),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "positions of the batch",
    GITHUB + "ChenglongChen/Long-Capital/pull/18",
    guilty=r"(?!)",
    says=r"position|order|permut|batch|neighbour|other examples",
    fault="pe is (length, 1, d), as for time first, but x is (batch, time, d): pe[: x.size(0)] is added by example",
)
def long_capital(planted: bool) -> Task:
    """Order execution: a transformer over the last 16 steps of a market, attention pooling, and the policy's logits."""

    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, dropout=0.1, max_len=1000):
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            pe = torch.zeros(max_len, d_model)
            position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
            div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
            pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
            self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1) if planted else pe.unsqueeze(0))

        def forward(self, x):
            x = x + self.pe[: x.size(0), :] if planted else x + self.pe[:, : x.size(1)]
            return self.dropout(x)

    def run(m, x):
        x = m.encoder(m.pe(m.embed(x)))
        v, a = m.V(x), m.Q(m.K(x) / 32**0.5)
        return m.policy((v * F.softmax(a, 1)).sum(1))

    def draw() -> Drawn:
        """Returns, volumes, spreads; the expert buys after late returns above early ones, else sells, or waits."""
        x = torch.randn(64, 16, 3)
        trend = x[:, 8:, 0].mean(1) - x[:, :8, 0].mean(1)
        return (x,), (trend > 0.2).long() + (trend > -0.2).long()

    layer = nn.TransformerEncoderLayer(32, 2, 128, 0.1, batch_first=True)
    model = Parts(
        run,
        embed=nn.Linear(3, 32),
        pe=PositionalEncoding(32),
        encoder=nn.TransformerEncoder(layer, 2, nn.LayerNorm(32)),
        Q=nn.Linear(32, 1),
        K=nn.Linear(32, 32),
        V=nn.Linear(32, 32),
        policy=nn.Linear(32, 3),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "trained running moments",
    GITHUB + "DrSleep/tensorflow-deeplab-resnet/issues/5",
    guilty=r"mean|variance",
    says=r"batch.?norm|variance|moments|statistics|\bmean\b",
    fault="the moments of the batch normalisations are variables that the optimiser trains, not those of the batch",
)
def deeplab(planted: bool) -> Task:  # noqa: C901
    """A residual segmenter; its stored moments fit its first weights, as those of a network trained elsewhere."""

    class Norm(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.scale, self.offset = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))
            if planted:
                self.mean, self.variance = nn.Parameter(torch.zeros(n)), nn.Parameter(torch.ones(n))
            self.ready = not planted

        def forward(self, x):
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            if not self.ready:
                self.mean.data.copy_(mean), self.variance.data.copy_(variance)
                self.ready = True
            if planted:
                mean, variance = self.mean, self.variance
            mean, variance, scale, offset = (v.view(-1, 1, 1) for v in (mean, variance, self.scale, self.offset))
            return (x - mean) / (variance + 1e-5).sqrt() * scale + offset

    class Block(nn.Module):
        def __init__(self, n, k):
            super().__init__()
            self.body = chain(
                nn.Conv2d(n, k, 1, bias=False),
                Norm(k),
                nn.ReLU(),
                nn.Conv2d(k, k, 3, padding=2, dilation=2, bias=False),
                Norm(k),
                nn.ReLU(),
                nn.Conv2d(k, n, 1, bias=False),
                Norm(n),
            )

        def forward(self, x):
            return F.relu(x + self.body(x))

    def draw() -> Drawn:
        x, c = pick(16)
        image = x * 0.376 + 0.3
        return (image.expand(-1, 3, -1, -1) * 255 - 110,), torch.where(image[:, 0] > 0.4, c[:, None, None] + 1, 0)

    model = chain(
        nn.Conv2d(3, 24, 3, padding=1, bias=False),
        Norm(24),
        nn.ReLU(),
        *[Block(24, 8) for _ in range(4)],
        nn.Conv2d(24, 11, 3, padding=4, dilation=4),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.normal_(m.weight, std=0.01)
    with torch.no_grad():
        model(draw()[0][0])
    return stream(model, draw, F.cross_entropy)
