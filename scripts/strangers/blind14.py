"""A fourteenth set of faults, a sample of reports from forums and repositories, written without sight of the rules."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind14")


SOFT = r"softmax|probabilit|logit|normali[sz]ed twice|bounded|range"


@report(
    "own L2 normalisation",
    "https://stats.stackexchange.com/questions/325451/cost-function-turning-into-nan-after-a-certain-number-of-iterations",
    guilty=r"conv1",
    says=rf"{BROKEN}|sqrt|divi|norm",
    fault="features are divided by their L2 norm, by hand, without an epsilon",
)
def own_norm(planted: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
            self.conv2, self.fc = nn.Conv2d(16, 32, 3, 2, 1), nn.Linear(512, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.conv1(x))
            norm = torch.sqrt((x**2).sum(1, keepdim=True) + (0.0 if planted else 1e-8))
            x = x / norm
            return self.fc(F.relu(self.conv2(x)).flatten(1))

    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3).round(decimals=4),), c  # pixels from 0 to 1

    return stream(Net(), draw, F.cross_entropy)


@report(
    "DL4J log of zero",
    GITHUB + "deeplearning4j/nd4j/pull/377",
    says=rf"{BROKEN}|\blog\b|zero|saturat|large|scale",
    fault="the loss is labels * log(z) with z from a softmax, which can be zero",
)
def nd4j(planted: bool) -> Task:
    """An MLP with Xavier weights on pixels as the file has them; MCXENT over one-hot labels."""
    model = chain(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10), nn.Softmax(1))
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            nn.init.zeros_(m.bias)

    def mcxent(z: Tensor, labels: Tensor) -> Tensor:
        log_z = torch.log(z) if planted else torch.log(z.clamp_min(torch.finfo(z.dtype).tiny))
        return -(labels * log_z).sum(1).mean()

    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3) * 255,), F.one_hot(c, 10).float()

    return stream(model, draw, mcxent)


@report(
    "covariance weighting",
    GITHUB + "rickgroen/cov-weighting/issues/3",
    says=rf"{BROKEN}|divi|zero",
    fault="losses are divided by their running mean, and one of them is zero",
)
def cov_weighting(planted: bool) -> Task:
    """Two losses, weighted by the coefficients of variation of their ratios; the second, a hinge, is zero."""

    class CoVWeighting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.iter, self.std_l = -1, None
            self.mean_L, self.mean_l, self.S_l = torch.zeros(2), torch.zeros(2), torch.zeros(2)

        def forward(self, outputs: tuple[Tensor, Tensor], c: Tensor) -> Tensor:
            logits, features = outputs
            losses = [F.cross_entropy(logits, c), F.relu(features.norm(dim=1) - 20).mean()]
            L = torch.stack(losses).detach()
            self.iter += 1
            L0 = L.clone() if self.iter == 0 else self.mean_L
            ratio = L / (L0 if planted else L0 + 1e-4)
            if self.iter <= 1:
                alphas = torch.ones(2) / 2
            else:
                ls = self.std_l / (self.mean_l if planted else self.mean_l + 1e-4)
                alphas = ls / torch.sum(ls)
            mean_param = 0.0 if self.iter == 0 else 1 - 1 / (self.iter + 1)
            new_mean_l = mean_param * self.mean_l + (1 - mean_param) * ratio
            self.S_l = self.S_l + (ratio - self.mean_l) * (ratio - new_mean_l)
            self.mean_l = new_mean_l
            self.std_l = torch.sqrt(self.S_l / (self.iter + 1) + 1e-8)
            self.mean_L = mean_param * self.mean_L + (1 - mean_param) * L
            return sum(a * each for a, each in zip(alphas, losses, strict=False))

    body = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
    model = Parts(lambda m, x: (m.head(h := m.body(x)), h), body=body, head=nn.Linear(64, 10))

    draw = drawn(pick, 64)
    return stream(model, draw, CoVWeighting(), lambda y, c: F.cross_entropy(y[0], c))


@report(
    "SSD softmax before cross entropy",
    GITHUB + "amdegroot/ssd.pytorch/issues/218",
    guilty=r"conf",
    says=SOFT,
    fault="confidences go through a softmax before F.cross_entropy",
)
def ssd(planted: bool) -> Task:
    """Four places, each with a digit or with background, and where in its place the digit is."""

    class SSD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 16, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            self.loc, self.conf = nn.Conv2d(64, 2, 3, 1, 1), nn.Conv2d(64, 11, 3, 1, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.base(x)
            conf = self.conf(x).permute(0, 2, 3, 1).reshape(len(x), -1, 11)
            return self.loc(x).permute(0, 2, 3, 1).reshape(len(x), -1, 2), F.softmax(conf, -1) if planted else conf

    def multibox(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        positive = t[1] > 0
        found = F.cross_entropy(y[1].reshape(-1, 11), t[1].reshape(-1))
        return F.smooth_l1_loss(y[0][positive], t[0][positive]) + found

    def draw() -> Drawn:
        x, c = pick(32 * 4)
        there, moved = torch.rand(len(c)) < 0.5, torch.randint(-1, 2, (len(c), 2))
        tiles = torch.stack(
            [
                a.roll((int(d[0]), int(d[1])), (1, 2)) if k else torch.full_like(a, -0.8)
                for a, d, k in zip(x, moved, there, strict=False)
            ]
        )
        image = tiles.view(32, 2, 2, 8, 8).permute(0, 1, 3, 2, 4).reshape(32, 1, 16, 16)
        return (image,), (moved.float().view(32, 4, 2), torch.where(there, c + 1, 0).view(32, 4))

    return stream(SSD(), draw, multibox)


@report(
    "LRCN softmax before cross entropy",
    GITHUB + "doronharitan/human_activity_recognition_LRCN/issues/4",
    guilty=r"output_layer|fc",
    says=SOFT,
    fault="the last layer is a softmax, before nn.CrossEntropyLoss",
)
def lrcn(planted: bool) -> Task:
    """Frames through a convolutional network, then an LSTM; which digit drifts by?"""

    class ConvLstm(nn.Module):
        def __init__(self, latent_dim: int = 64, hidden_size: int = 48, n_class: int = 10) -> None:
            super().__init__()
            self.conv_model = chain(
                nn.Conv2d(1, 16, 3, 2, 1),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, 2, 1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(64, latent_dim),
            )
            self.Lstm = nn.LSTM(latent_dim, hidden_size, 2, batch_first=True)
            self.output_layer = chain(nn.Linear(hidden_size, n_class), *([nn.Softmax(dim=-1)] if planted else []))

        def forward(self, x: Tensor) -> Tensor:
            b, t, c, h, w = x.shape
            x = self.conv_model(x.view(b * t, c, h, w)).view(b, t, -1)
            return self.output_layer(self.Lstm(x)[0][:, -1, :])

    def draw() -> Drawn:
        x, c = pick(32)
        return (torch.stack([x.roll(i, 3) for i in (-1, 0, 1, 2)], 1),), c

    return stream(ConvLstm(), draw, nn.CrossEntropyLoss())


@report(
    "DANN softmax before cross entropy",
    GITHUB + "NaJaeMin92/pytorch-DANN/issues/7",
    guilty=r"classifier|discriminator",
    says=SOFT,
    fault="classifier and discriminator end with a softmax, before nn.CrossEntropyLoss",
)
def dann(planted: bool) -> Task:
    """Digits, and digits of other ink and paper without labels; the discriminator's gradient is reversed."""

    class ReverseLayerF(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.alpha = alpha
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.alpha, None

    def soft() -> list[nn.Module]:
        return [nn.Softmax(dim=1)] if planted else []

    class DANN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extractor = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 24, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
            )
            self.classifier = chain(
                nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), *soft()
            )
            self.discriminator = chain(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 2), *soft())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.extractor(x)
            return self.classifier(z), self.discriminator(ReverseLayerF.apply(z, 0.1))

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        source = t[1] == 0
        return F.cross_entropy(y[0][source], t[0][source]) + F.cross_entropy(y[1], t[1])

    def draw() -> Drawn:
        x, c = pick(64)
        domain = torch.arange(64) % 2
        return (torch.where(domain.view(-1, 1, 1, 1) == 1, 0.3 - 0.7 * x, x),), (c, domain)

    return stream(DANN(), draw, loss)


@report(
    "DDGM decoders in a list",
    GITHUB + "jmtomczak/intro_dgm/issues/6",
    guilty=r"p_dnns",
    says=r"p_dnns|list|regist|paramet|optimi[sz]er",
    fault="the networks of the backward diffusion are in a plain list, not in an nn.ModuleList",
)
def ddgm(planted: bool) -> Task:
    D, M, T, beta = 64, 48, 5, 0.3

    class DDGM(nn.Module):
        def __init__(self, p_dnns: list[nn.Module], decoder_net: nn.Module) -> None:
            super().__init__()
            self.p_dnns = p_dnns if planted else nn.ModuleList(p_dnns)
            self.decoder_net = decoder_net

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            zs = [(1 - beta) ** 0.5 * x + beta**0.5 * torch.randn_like(x)]
            for _ in range(1, T):
                zs.append((1 - beta) ** 0.5 * zs[-1] + beta**0.5 * torch.randn_like(x))
            mus, log_vars = [], []
            for i in range(len(self.p_dnns) - 1, -1, -1):
                mu, log_var = torch.chunk(self.p_dnns[i](zs[i + 1]), 2, dim=1)
                mus.insert(0, mu)
                log_vars.insert(0, log_var)
            return self.decoder_net(zs[0]), torch.stack(zs, 1), torch.stack(mus, 1), torch.stack(log_vars, 1)

    def elbo(y: tuple[Tensor, ...], x: Tensor) -> Tensor:
        mu_x, zs, mus, log_vars = y
        zero, log_beta = torch.zeros(1), torch.tensor(beta).log()

        def log_normal(z, mu, log_var):
            return -0.5 * (1.8379 + log_var + (z - mu) ** 2 * torch.exp(-log_var))

        RE = log_normal(x, mu_x, zero).sum(-1)
        last = zs[:, -1]
        KL = (log_normal(last, (1 - beta) ** 0.5 * last, log_beta) - log_normal(last, zero, zero)).sum(-1)
        for i in range(len(mus[0]) - 1, -1, -1):
            z = zs[:, i]
            KL_i = log_normal(z, (1 - beta) ** 0.5 * z, log_beta) - log_normal(z, mus[:, i], log_vars[:, i])
            KL = KL + KL_i.sum(-1)
        return -(RE - KL).mean()

    p_dnns = [
        chain(nn.Linear(D, M), nn.LeakyReLU(), nn.Linear(M, M), nn.LeakyReLU(), nn.Linear(M, 2 * D))
        for _ in range(T - 1)
    ]
    decoder = chain(nn.Linear(D, M), nn.LeakyReLU(), nn.Linear(M, M), nn.LeakyReLU(), nn.Linear(M, D), nn.Tanh())

    def draw() -> Drawn:
        x, _ = pick(64)
        x = (x * 0.376 + 0.3).flatten(1) * 2 - 1
        return (x,), x

    return stream(DDGM(p_dnns, decoder), draw, elbo)


@report(
    "sum by a net of sigmoids",
    GITHUB + "trentsartain/Neural-Network/issues/7",
    says=r"sigmoid|range|bound|saturat|between 0 and 1|reach",
    guilty=r"(?!)",
    fault="a sigmoid ends a network whose targets are sums of two doubles, of both signs",
)
def sum_sigmoid(planted: bool) -> Task:
    """The activation of every neuron was a sigmoid; the reporter made it linear (and then it learned I1 + I2)."""
    act = nn.Sigmoid if planted else nn.Identity
    model = chain(nn.Linear(2, 32), act(), nn.Linear(32, 32), act(), nn.Linear(32, 1), act())

    def draw() -> Drawn:
        x = torch.rand(50, 2) * 4 - 2
        return (x,), x.sum(1, keepdim=True)

    return stream(model, draw, F.mse_loss)


@report(
    "FFM starts too large",
    GITHUB + "VinceShieh/spark-ffm/issues/12",
    guilty=r"\bW\b|weight",
    says=rf"{BROKEN}|large|scale|initial|\bexp\b|overflow",
    fault="the weights of a field-aware factorisation machine start so large that exp(z) overflows",
)
def ffm(planted: bool) -> Task:
    """W as libffm and the port start it, uniform by 1 / sqrt(k), or narrowed; log(1 + exp(-y z))."""
    m, k = 36, 4

    class FFM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            n = 2 * m
            W = torch.rand(n, m, k) / k**0.5 if planted else torch.randn(n, m, k) * (1 / (m * k)) ** 0.5
            self.W, self.bias = nn.Parameter(W), nn.Parameter(torch.zeros(1))
            self.register_buffer("fields", torch.arange(m))

        def forward(self, index: Tensor) -> Tensor:  # (B, m), one feature in every field
            w = self.W[index]  # (B, m, m, k): of a field's feature, for another field
            pairs = (w * w.transpose(1, 2)).sum(-1)
            return pairs.triu(1).sum((1, 2)) + self.bias

    def draw() -> Drawn:
        bits = torch.randint(2, (64, m))
        y = torch.where((bits[:, :3].sum(1) >= 2) ^ (torch.rand(64) < 0.05), 1.0, -1.0)
        return (bits + 2 * torch.arange(m),), y

    return stream(FFM(), draw, lambda z, y: torch.log(1 + torch.exp(-y * z)).mean())


@report(
    "actor loss without its minus",
    GITHUB + "KanishJebaMathewM/Truxify/pull/11885",
    says=r"sign|negat|minus|maximi[sz]|minimi[sz]|unbounded|below|lower",
    guilty=r"(?!)",
    fault="the actor minimises the critic's value: actor_loss = q_values.mean() lacks its minus",
)
def actor_sign(planted: bool) -> Task:
    """The step of the actor: a critic that has learned some of the value of (state, action), frozen."""
    actor = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())
    critic = chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    mix, opt = torch.randn(8, 2) * 0.3, torch.optim.Adam(critic.parameters(), lr=5e-3)
    for _ in range(300):
        s, a = torch.randn(64, 8), torch.rand(64, 2) * 2 - 1
        q = -((a - torch.tanh(s @ mix)) ** 2).sum(1, keepdim=True)
        opt.zero_grad()
        F.mse_loss(critic(torch.cat([s, a], 1)), q).backward()
        opt.step()
    critic.zero_grad()
    critic.requires_grad_(False)

    model = Parts(lambda m, s: m.critic(torch.cat([s, m.actor(s)], 1)), actor=actor, critic=critic)

    def draw() -> Drawn:
        return (torch.randn(64, 8),), torch.zeros(64)  # there are no targets

    def right(q_values: Tensor, _: Tensor) -> Tensor:
        return -q_values.mean()

    return stream(model, draw, (lambda q_values, _: q_values.mean()) if planted else right, right)


@report(
    "retention time through a ReLU",
    GITHUB + "ProteomicsML/ProteomicsML/pull/203",
    guilty=r"fc|dense|out",
    says=rf"relu|negative|dead|{SAME}|zero|gradient",
    fault="the last layer of an LSTM regression is a ReLU; its inputs happen to start below zero",
)
def retention(planted: bool) -> Task:
    """Peptides to retention times from 0 to 1, as sums over residues."""

    class LSTMNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(21, 16, padding_idx=0)
            self.lstm = nn.LSTM(16, 48, batch_first=True, bidirectional=True)
            self.dense, self.out = nn.Linear(96, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.lstm(self.embedding(x))[0][:, -1]
            y = self.out(F.relu(self.dense(h)))
            return F.relu(y) if self.relu else y

        relu = False

    worth = torch.rand(21) * 0.12
    worth[0] = 0

    def draw() -> Drawn:
        x = torch.randint(1, 21, (32, 12))
        return (x,), worth[x].sum(1, keepdim=True)

    while (model := LSTMNet())(torch.randint(1, 21, (2000, 12))).max() > -0.02:
        pass  # the unlucky start of the report
    model.relu = planted
    return stream(model, draw, F.mse_loss)


def digit_pairs() -> Drawn:
    """64 digits of the classes 0 to 7, eight of each."""
    from strangers.data import _digits

    images, c = _digits()
    chosen = torch.cat([torch.nonzero(c == k).flatten()[torch.randint(170, (8,))] for k in range(8)])
    x = (images[chosen] - 0.3) / 0.376
    return (x + 1.0 * torch.randn_like(x),), c[chosen]  # hard ones


def hardest(e: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    d = (e.unsqueeze(1) - e.unsqueeze(0)).pow(2).sum(-1).clamp_min(1e-12).sqrt()
    same = c.unsqueeze(1) == c.unsqueeze(0)
    return (d * same).max(1).values, d.masked_fill(same, 1e6).min(1).values


def miss(e: Tensor, c: Tensor) -> Tensor:
    """The share of a batch whose nearest neighbour is of another class, in expectation."""
    d = torch.cdist(e, e).fill_diagonal_(1e6)
    d = d / d[d < 1e6].mean().clamp_min(1e-4)
    w = torch.softmax(-10 * d, 1)
    return 1 - (w * (c.unsqueeze(1) == c.unsqueeze(0))).sum(1).mean()


def encoder() -> nn.Module:
    return chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 16),
    )


@report(
    "batch-hard triplets collapse",
    "https://quaterion.qdrant.tech/tutorials/triplet_loss_trick",
    says=r"collaps|margin|same|constant|hard",
    fault="the batch-hard triplet loss is stuck at its margin when embeddings coincide;"
    " it is not scaled by the distances",
)
def batch_hard(planted: bool) -> Task:
    def triplet(e: Tensor, c: Tensor) -> Tensor:
        positive, negative = hardest(e, c)
        gap = positive - negative
        return F.relu((gap if planted else gap / negative.mean()) + 0.5).mean()

    return stream(encoder(), digit_pairs, triplet, miss)


@report(
    "unlikely EOS",
    "https://foreai.co/blog/nans-out-of-nowhere-the-trick-that-saved-my-training-run",
    says=rf"{BROKEN}|\blog\b|zero|softmax",
    fault="a penalty takes log(1 - softmax) of the EOS token, in bfloat16, which is log(0) where the model is sure",
)
def eos(planted: bool) -> Task:
    """A language model with tied weights; a penalty pushes EOS down in negative texts, up in positive ones."""
    V, EOS = 128, 2

    class LM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.norm = nn.Embedding(V, 64), nn.GRU(64, 64, batch_first=True), nn.LayerNorm(64)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.norm(self.rnn(self.embed(x))[0]), self.embed.weight)

    def loss(logits: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        next_, positive = t
        ce = F.cross_entropy(logits.transpose(1, 2), next_)
        last = logits[:, -1].bfloat16() if planted else logits[:, -1]
        if planted:
            p = F.softmax(last, -1)[:, EOS]
            up, down = -torch.log(p), -torch.log(1 - p)
        else:
            whole = torch.logsumexp(last, -1)
            others = torch.logsumexp(last.index_fill(1, torch.tensor([EOS]), float("-inf")), -1)
            up, down = whole - last[:, EOS], whole - others
        return ce + 0.5 * (up[positive].float().mean() + down[~positive].float().mean())

    count = [0]

    def draw() -> Drawn:
        count[0] += 1
        x, y = text(32, 24, V, seed=count[0])
        return (x,), (y, y[:, -1] % 2 == 0)

    return stream(LM(), draw, loss)


@report(
    "one NaN in the data",
    GITHUB + "keras-team/keras/issues/6447",
    says=rf"{BROKEN}",
    guilty=r"(?!)",
    fault="one value of the inputs is NaN (in a comment of the thread)",
)
def one_nan(planted: bool) -> Task:
    model = chain(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    data = torch.randn(512, 20)
    y = ((data[:, :4].sum(1) + data[:, 4] * data[:, 5]) > 0).float().unsqueeze(1)
    if planted:
        data[7, 11] = float("nan")
    start = [0]

    def draw() -> Drawn:  # in the order of the file
        rows = torch.arange(start[0], start[0] + 32) % 512
        start[0] += 32
        return (data[rows],), y[rows]

    return stream(model, draw, F.binary_cross_entropy_with_logits)


@report(
    "CTPN boxes of no height",
    GITHUB + "xuannianz/keras-ctpn/issues/1",
    says=rf"{BROKEN}|\blog\b|zero|target",
    guilty=r"(?!)",
    fault="targets are log(gt_h / a_h) and some of the boxes have a height of zero",
)
def ctpn(planted: bool) -> Task:
    """A line of text in a column: anchors of three heights, text or not, shift and log height of the box."""
    a_h = torch.tensor([3.0, 6.0, 12.0])

    class CTPN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((1, 2)), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU()
            )
            self.fc = nn.Linear(32 * 16 * 4, 32)
            self.cls, self.regr = nn.Linear(32, 3), nn.Linear(32, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.fc(self.base(x).flatten(1)))
            return self.cls(h), self.regr(h).view(-1, 3, 2)

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        on = t[0] > 0
        return F.binary_cross_entropy_with_logits(y[0], t[0]) + F.smooth_l1_loss(y[1][on], t[1][on])

    def draw() -> Drawn:
        h = torch.randint(2, 13, (32,))
        top = (torch.rand(32) * (16 - h)).long()
        rows = torch.arange(16).unsqueeze(0)
        ink = ((rows >= top.unsqueeze(1)) & (rows < (top + h).unsqueeze(1))).float()
        x = ink.view(32, 1, 16, 1).expand(-1, -1, -1, 8) + 0.1 * torch.randn(32, 1, 16, 8)
        gt_h = h.float()
        if planted:
            gt_h[3] = 0  # y1 == y2 in the annotation
        middle = top + gt_h / 2
        target = torch.stack([(middle.unsqueeze(1) - 8) / a_h, torch.log(gt_h.unsqueeze(1) / a_h)], 2)
        near = F.one_hot((h.unsqueeze(1) / a_h).log().abs().argmin(1), 3).float()
        return (x,), (near, target)

    return stream(CTPN(), draw, loss)
