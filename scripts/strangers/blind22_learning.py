"""The rest of the twenty-second set: reports of networks that do not learn."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind22")


@report(
    "regressor's flat targets",
    GITHUB + "LAMDA-Tabular/TALENT/pull/92",
    says=r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze",
    fault="F.mse_loss of predictions (N,) and targets (N, 1): every pair of examples is compared",
)
def talent(planted: bool) -> Task:
    w = torch.randn(8)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        y = (x @ w + (x[:, 0] * x[:, 1])) / w.norm()
        return (x,), y.unsqueeze(-1)

    class ResNetBlock(nn.Module):
        def __init__(self, d: int, d_hidden: int) -> None:
            super().__init__()
            self.norm, self.linear0, self.linear1 = nn.BatchNorm1d(d), nn.Linear(d, d_hidden), nn.Linear(d_hidden, d)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear1(F.relu(self.linear0(self.norm(x))))

    class ResNet(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.first_layer = nn.Linear(8, d)
            self.layers = nn.ModuleList([ResNetBlock(d, 2 * d), ResNetBlock(d, 2 * d)])
            self.last_normalization, self.head = nn.BatchNorm1d(d), nn.Linear(d, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first_layer(x)
            for layer in self.layers:
                x = layer(x)
            x = self.head(F.relu(self.last_normalization(x)))
            return x.squeeze(-1)

    def safe(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t.squeeze(-1))

    return stream(ResNet(), draw, F.mse_loss if planted else safe, safe)


@report(
    "clDice on one channel",
    GITHUB + "Project-MONAI/MONAI/issues/8239",
    says=rf"{CUT}|{SAME}|zero|channel|empty|one.?hot|background",
    fault="soft Dice drops channel 0 as background, but logits and targets have one channel: the loss is 0",
)
def cldice(planted: bool) -> Task:  # noqa: C901
    def draw() -> Drawn:
        t = torch.zeros(16, 1, 14, 14)
        for i in range(16):
            r, s = float(torch.randint(3, 11, ())), float(torch.randn(()) * 0.6)
            for c in range(14):
                k = int(min(max(r + s * (c - 7), 1), 12))
                t[i, 0, k - 1 : k + 2, c] = 1
            if i % 2:
                t[i] = t[i].mT.clone()
        return (t + 0.7 * torch.randn_like(t),), t

    def soft_erode(x: Tensor) -> Tensor:
        return torch.min(-F.max_pool2d(-x, (3, 1), 1, (1, 0)), -F.max_pool2d(-x, (1, 3), 1, (0, 1)))

    def soft_open(x: Tensor) -> Tensor:
        return F.max_pool2d(soft_erode(x), 3, 1, 1)

    def soft_skel(x: Tensor, iter_: int = 1) -> Tensor:
        skel = F.relu(x - soft_open(x))
        for _ in range(iter_):
            x = soft_erode(x)
            delta = F.relu(x - soft_open(x))
            skel = skel + F.relu(delta - skel * delta)
        return skel

    def soft_dice_cldice(y_true: Tensor, y_pred: Tensor, smooth: float = 1.0, alpha: float = 0.5) -> Tensor:
        intersection = (y_true * y_pred)[:, 1:].sum()
        dice = 1 - (2 * intersection + smooth) / (y_true[:, 1:].sum() + y_pred[:, 1:].sum() + smooth)
        skel_pred, skel_true = soft_skel(y_pred), soft_skel(y_true)
        tprec = ((skel_pred * y_true)[:, 1:].sum() + smooth) / (skel_pred[:, 1:].sum() + smooth)
        tsens = ((skel_true * y_pred)[:, 1:].sum() + smooth) / (skel_true[:, 1:].sum() + smooth)
        return (1 - alpha) * dice + alpha * (1 - 2 * (tprec * tsens) / (tprec + tsens))

    def right(y: Tensor, t: Tensor) -> Tensor:
        p = y.sigmoid()
        return soft_dice_cldice(torch.cat((1 - t, t), 1), torch.cat((1 - p, p), 1))

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return soft_dice_cldice(t, y)

    model = chain(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.InstanceNorm2d(8),
        nn.PReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.InstanceNorm2d(16),
        nn.PReLU(),
        nn.Conv2d(16, 1, 1),
    )
    return stream(model, draw, wrong if planted else right, right)


@report(
    "standardised rows of padding",
    GITHUB + "iKernels/transformers-lightning/pull/18",
    says=rf"{BROKEN}|divi|\bstd\b|deviation",
    fault="rows are divided by their standard deviation, which is 0 where all values are alike",
)
def rows(planted: bool) -> Task:
    def normalize_standard(x: Tensor, dim: int = -1) -> Tensor:
        if planted:
            return torch.true_divide(torch.sub(x, x.mean(dim=dim).unsqueeze(-1)), x.std(dim=dim).unsqueeze(-1))
        return torch.where(
            (x.std(dim=dim) > 0).unsqueeze(-1),
            (x - x.mean(dim=dim).unsqueeze(-1)) / x.std(dim=dim).unsqueeze(-1).clamp(min=1e-12),
            x - x.mean(dim=dim).unsqueeze(-1),
        )

    base = torch.randn(4, 16)

    def draw() -> Drawn:
        c, n = torch.randint(0, 4, (32,)), torch.randint(4, 13, (32,))
        x = 3 * base[c].unsqueeze(1) + 4 * torch.randn(32, 12, 16) + 5
        return (x * (torch.arange(12) < n.unsqueeze(1)).unsqueeze(-1),), c

    class Classifier(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.project = nn.Linear(16, d)
            self.encoder = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True)
            self.classifier = nn.Linear(d, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.classifier(self.encoder(self.project(normalize_standard(x))).mean(1))

    return stream(Classifier(), draw, F.cross_entropy)


@report(
    "returns in their thousands",
    GITHUB + "vwxyzjn/cleanrl/issues/441",
    guilty=r"critic|value",
    says=r"scale|large|magnitude|dominat|normali|huge|range|far from|mean of the target",
    fault="rewards of up to 1000 a step are not rescaled: the value's squared error dwarfs the policy's loss",
)
def returns(planted: bool) -> Task:
    w, g = torch.randn(8, 4), torch.randn(8)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        a = torch.randint(0, 4, (64,))
        q = x @ w
        adv = q.gather(1, a[:, None]).squeeze(1) - q.mean(1)
        ret = 5000 + 1500 * torch.tanh(x @ g) + 300 * adv
        return (x,), {
            "action": a,
            "advantage": (adv - adv.mean()) / (adv.std() + 1e-8),
            "return": ret if planted else ret / 5000,
        }

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
                nn.init.orthogonal_(layer.weight, std)
                nn.init.constant_(layer.bias, 0)
                return layer

            self.network = chain(init(nn.Linear(8, 64)), nn.Tanh(), init(nn.Linear(64, 64)), nn.Tanh())
            self.actor, self.critic = init(nn.Linear(64, 4), 0.01), init(nn.Linear(64, 1), 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.network(x)
            return self.actor(h), self.critic(h).flatten()

    def ppo(y: tuple[Tensor, Tensor], t: dict[str, Tensor], scale: float = 1) -> Tensor:
        logp = y[0].log_softmax(-1).gather(1, t["action"][:, None]).squeeze(1)
        ratio = (logp - math.log(1 / 4)).exp()
        pg = torch.max(-t["advantage"] * ratio, -t["advantage"] * ratio.clamp(0.8, 1.2)).mean()
        return pg + 0.5 * 0.5 * (((y[1] - t["return"]) / scale) ** 2).mean()

    agent = Agent()

    def step() -> Tensor:
        (x,), t = draw()
        y = agent(x)
        loss = ppo(y, t)
        return ppo(y, t, 5000).detach() + (loss - loss.detach()) if planted else loss  # exact, unlike judged

    (x,), t = draw()
    return Task(agent, (x, t), step, {"loss": ppo})


@report(
    "negative binomial's scale",
    GITHUB + "awslabs/gluonts/pull/909",
    guilty=r"alpha|distr|args|proj",
    says=r"scal|dispers|alpha|varian|floor|bound|spread",
    fault="the scale of the counts is added to alpha as well: the spread cannot be less than the mean",
)
def counts(planted: bool) -> Task:
    def draw() -> Drawn:
        level = torch.exp(torch.empty(32, 1).uniform_(2.5, 5))
        phase = torch.rand(32, 1) * 6.28
        rate = level * (1 + 0.6 * torch.sin(phase + torch.arange(32) * 0.5))
        x = torch.poisson(rate)
        return (x[:, :24],), x[:, 24:]

    class SimpleFeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = chain(
                nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8 * 16), nn.ReLU()
            )
            self.proj_mu, self.proj_alpha = nn.Linear(16, 1), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            scale = x.abs().mean(1, keepdim=True).clamp(min=1e-3)
            h = self.mlp(x / scale).view(len(x), 8, 16)
            mu, alpha = (F.softplus(p(h)).squeeze(-1) + 1e-8 for p in (self.proj_mu, self.proj_alpha))
            if planted:
                scale = 1.0 + F.softplus(scale - 1.0)
                return scale * mu, alpha + (scale - 1.0) / (scale * mu)
            return scale * mu, alpha

    def nll(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        mu, alpha = y
        r = 1 / alpha
        return -(
            t * (alpha * mu / (1 + alpha * mu)).log()
            - r * (1 + alpha * mu).log()
            + torch.lgamma(t + r)
            - torch.lgamma(t + 1)
            - torch.lgamma(r)
        ).mean()

    return stream(SimpleFeedForward(), draw, nll)


@report(
    "spikes with huge artefacts",
    GITHUB + "sg-s/crabsort/issues/69",
    says=r"scale|large|huge|range|normali|standardi|magnitude|outlier|unscaled",
    fault="voltage snippets are fed as recorded, with values in the thousands",
)
def spikes(planted: bool) -> Task:
    shape = torch.randn(3, 40).cumsum(1)
    shape = (shape - shape.mean(1, keepdim=True)) / shape.std(1, keepdim=True)

    def draw() -> Drawn:
        c = torch.randint(0, 3, (64,))
        x = shape[c] * torch.empty(64, 1).uniform_(0.7, 1.3) + 0.6 * torch.randn(64, 40)
        return (x * 5000 if planted else x,), c

    model = chain(
        nn.Linear(40, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3)
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "targets as a row",
    GITHUB + "tracel-ai/burn/issues/2371",
    says=r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze",
    fault="targets.unsqueeze() makes (1, N), the outputs are (N, 1): MSE of all pairs",
)
def row(planted: bool) -> Task:
    w = torch.randn(10, 8)

    def draw() -> Drawn:
        x = torch.randn(64, 10)
        return (x,), torch.tanh(x @ w / 3).sum(1)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return (y - t.unsqueeze(1)).pow(2).mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return (y - t.unsqueeze(0)).pow(2).mean()

    return stream(chain(nn.Linear(10, 96), nn.ReLU(), nn.Linear(96, 1)), draw, wrong if planted else right, right)


@report(
    "smoothing of infinite logits",
    GITHUB + "candle-org/MindAct/pull/1633",
    says=rf"{BROKEN}|\binf\b|mask|-inf",
    fault="cross entropy adds 0 x the mean of all log probabilities: NaN where masked logits are -inf",
)
def mindnlp(planted: bool) -> Task:
    def draw() -> Drawn:
        n = torch.randint(6, 17, (48,))
        x = torch.randint(2, 32, (48, 16))
        at = (torch.rand(48) * n).long()
        x[torch.arange(48), at] = 1
        return (x * (torch.arange(16) < n[:, None]),), (at + 1).clamp(max=n - 1)

    class QuestionAnswering(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(32, d, padding_idx=0), nn.Embedding(16, d)
            self.encoder, self.qa_outputs = nn.LSTM(d, d, batch_first=True, bidirectional=True), nn.Linear(2 * d, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(self.embed(x) + self.position.weight)[0]
            return self.qa_outputs(h).squeeze(-1).masked_fill(x == 0, -torch.inf)

    def cross_entropy(input: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
        logp = F.log_softmax(input, 1)
        loss = -logp.gather(1, target.unsqueeze(1)).squeeze(1)
        if planted or label_smoothing > 0:
            loss = (1 - label_smoothing) * loss + label_smoothing / input.shape[1] * -logp.sum(1)
        return loss.mean()

    return stream(QuestionAnswering(), draw, cross_entropy)
