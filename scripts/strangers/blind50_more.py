"""The rest of the fiftieth set: losses that count the wrong things, outputs out of reach, noise before a regressor."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.blind50 import MATH
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind50")


class Decoder(nn.Module):
    """A causal transformer of one layer."""

    def __init__(self, vocabulary: int, length: int, outputs: int, d: int = 32) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True)
        self.head = nn.Linear(d, outputs)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        return self.head(self.layer(self.embedding(x) + self.position.weight, src_mask=mask))


@report(
    "blanks counted in a transformer's loss",
    "https://openillumi.com/?p=108163",
    says=r"\bpad|ignor|mask|(class|token|target|label).*(frequent|dominat|imbalanc|most|majority)|imbalanc|dominat",
    fault="the loss is the mean over all tokens, padding among them, which the model then mostly predicts",
)
def blanks(planted: bool) -> Task:
    """Sentences of 2 to 8 words in rows of 24; token 0 is <blank>."""

    def draw() -> Drawn:
        x, t = text(32, 24, 64, seed=int(torch.randint(10**6, ())))
        on = torch.arange(24) < torch.randint(2, 9, (32, 1))
        return ((x + 1) * on,), (t + 1) * on

    def safe(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=0)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(Decoder(65, 24, 65), draw, loss if planted else safe, safe)


@report(
    "ignored rows of minus infinity",
    "http://jkschin.com/blog/2023/cross-entropy-loss-ignore-index/",
    says=rf"{BROKEN}|\binf\b|-inf|infinit|mask",
    fault="rows of logits that ignore_index skips are masked to -inf altogether: their softmax has a gradient of NaN",
)
def ignored(planted: bool) -> Task:
    """A small GPT; only some tokens of the vocabulary are allowed, and only the first rows have a target."""

    def draw() -> Drawn:
        x = torch.randint(0, 12, (32, 5))
        n = torch.randint(2, 5, (32, 1))
        t = (x + x.roll(1, 1)) % 2
        t[:, 0] = x[:, 0] % 2
        return (x, n), t.masked_fill(torch.arange(5) >= n, -1)

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = Decoder(12, 5, 6)

        def forward(self, x: Tensor, n: Tensor) -> Tensor:
            on = (torch.arange(5) < n).unsqueeze(-1)
            allowed = torch.arange(6) < 2
            mask = torch.where(on & allowed, 0.0, -torch.inf)
            if not planted:
                mask = torch.where(on, mask, 0.0)
            return self.transformer(x) + mask

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten(), ignore_index=-1)

    return stream(GPT(), draw, loss)


@report(
    "Q values out of a softmax",
    "https://ai.stackexchange.com/questions/34589/"
    "using-softmax-non-linear-vs-linear-activation-function-in-deep-reinforceme",
    guilty=r"^5\.",
    says=r"softmax|bounded|sum.*(one|\b1\b)|target.*(range|beyond|outside|reach|large|scale)|outputs?.*(between|range|limit)",
    fault="a softmax gives action values between 0 and 1 where returns are tens",
)
def q_softmax(planted: bool) -> Task:
    """CartPole: discounted returns of two actions; the error of the chosen action alone."""

    def draw() -> Drawn:
        x = torch.randn(64, 4) * torch.tensor([1.0, 0.5, 0.1, 0.5])
        tilt = 4 * x[:, 2] + x[:, 3]
        q = 20 - 8 * torch.tanh(tilt.abs()).unsqueeze(1) + 6 * torch.stack([-tilt, tilt], 1).tanh()
        a = F.one_hot(torch.randint(0, 2, (64,)), 2)
        return (x.unsqueeze(1),), torch.stack([q + torch.randn_like(q), a.float()], 1)

    def masked_error(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t[:, 0]) * t[:, 1]).square().sum(1).mean()

    layers: list[nn.Module] = [
        nn.Flatten(),
        nn.Linear(4, 24),
        nn.ReLU(),
        nn.Linear(24, 24),
        nn.ReLU(),
        nn.Linear(24, 2),
    ]
    return stream(chain(*layers, *([nn.Softmax(1)] if planted else [])), draw, masked_error)


@report(
    "skip-gram with a bare product",
    "https://taourl.com/read-2680104.html",
    says=r"bound|infinit|no minim|diverg|grow|(loss|objective).*(negative|below|sign)|log.?sigmoid",
    fault="the positive term of negative sampling is the product itself, without log and sigmoid: no lower bound",
)
def skip_gram(planted: bool) -> Task:
    """Words, one of their neighbours and eight negative samples."""

    def draw() -> Drawn:
        x, t = text(16, 8, 128, seed=int(torch.randint(10**6, ())))
        return (x.flatten(), t.flatten(), torch.randint(0, 128, (128, 8))), x.flatten()

    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.target, self.context = nn.Embedding(128, 16), nn.Embedding(128, 16)
            for table in (self.target, self.context):
                nn.init.uniform_(table.weight, -0.1, 0.1)

        def forward(self, word: Tensor, context: Tensor, negative: Tensor) -> Any:
            v = self.target(word)
            return (v * self.context(context)).sum(1), (self.context(negative) @ v.unsqueeze(2)).squeeze(2)

    def wrong(y: Any, _: Tensor) -> Tensor:
        return -(y[0] - y[1].exp().sum(1).log()).mean()

    def right(y: Any, _: Tensor) -> Tensor:
        return -(F.logsigmoid(y[0]) + F.logsigmoid(-y[1]).sum(1)).mean()

    return stream(SkipGram(), draw, wrong if planted else right, right)


@report(
    "dropout before a volume is read off",
    "https://towardsdatascience.com/pitfalls-with-dropout-and-batchnorm-in-regression-problems-39e02ce08e4d/",
    says=r"drop",
    fault="a dropout between the features and the regression head rescales what a volume is computed from",
)
def volumes(planted: bool) -> Task:
    """Depth images of cylinders of radius 0.3 to 0.5 and height 5 to 35, and their volumes."""
    grid = torch.linspace(-0.6, 0.6, 16)
    distance = (grid[:, None].square() + grid[None, :].square()).sqrt()

    def draw() -> Drawn:
        r, h = torch.empty(32, 1).uniform_(0.3, 0.5), torch.empty(32, 1).uniform_(5, 35)
        x = h[..., None] * ((r[..., None] - distance) * 20).clamp(0, 1)
        return (x.unsqueeze(1),), math.pi * r.square() * h

    layers: list[nn.Module] = []
    for n, m in ((1, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(n, m, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    drop = [nn.Dropout(0.5)] if planted else []
    model = chain(*layers, nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), *drop, nn.Linear(64, 1))
    return stream(model, draw, F.mse_loss)


@report(
    "dropout all through a regressor",
    "https://iphone-swift.wekeepcoding.com/article/16814492/Drop+out+in+regression+task+for+neural+network",
    says=r"drop",
    fault="dropout after each layer of a regression network, the last among them",
)
def dropped(planted: bool) -> Task:
    """A real number between 0 and 1."""
    w = torch.randn(8) / 8**0.5

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (x,), torch.sigmoid(2 * (x @ w) + x[:, 0] * x[:, 1]).unsqueeze(1)

    drop = [nn.Dropout(0.5)] if planted else []
    model = chain(
        nn.Linear(8, 64), nn.ReLU(), *drop, nn.Linear(64, 64), nn.ReLU(), *drop, nn.Linear(64, 1), nn.Sigmoid(), *drop
    )
    return stream(model, draw, F.mse_loss)


@report(
    "a hundred sines beside a hundredth of a cosine",
    MATH + "normalize-errors-of-multiple-outputs",
    guilty=r"^2\.",
    says=r"scale|units?\b|magnitude|range|dominat|normali|standardi|differ.*(target|output)|(target|output).*differ|large",
    fault="one squared error for two outputs, one of which ranges over 200 and the other over 0.02",
)
def two_ranges(planted: bool) -> Task:
    """Judged with each error relative to its output's range."""
    size = torch.tensor([100.0, 0.01])

    def draw() -> Drawn:
        x = torch.rand(64, 1) * 2 - 1
        return (x,), torch.cat([100 * torch.sin(x), 0.01 * torch.cos(x)], 1)

    def normalized(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t / size)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y / size, t / size)

    model = chain(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 2))
    return stream(model, draw, F.mse_loss, right) if planted else stream(model, draw, normalized)
