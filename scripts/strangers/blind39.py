"""A thirty-ninth set of faults out of public reports, written without sight of rules, findings and what they miss."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind39")
TARGETS = r"target.*(scale|large|unit|standardi|normali|offset|far)|(scale|size|range).*target|labels?.*(scale|large)"
INPUTS = r"inputs?.*(scale|large|standardi|normali|unit|range|bytes|pixel|0.{1,4}255)|pixel|unnormali|unscaled"


@report(
    "perceptron without bias",
    "http://www.chioka.in/why-do-we-need-a-bias-neuron/",
    says=r"\bbias|offset|intercept|origin|(not|un|off)[- ]?cent",
    fault="a perceptron without a bias: its line must pass through the origin, the classes part elsewhere",
)
def biasless(planted: bool) -> Task:
    def draw() -> Drawn:
        x = 4 * torch.rand(64, 2)
        return (x,), torch.where(x.sum(1, keepdim=True) + 0.2 * torch.randn(64, 1) > 4, 1.0, -1.0)

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.neuron = nn.Linear(2, 1, bias=not planted)

        def forward(self, x: Tensor) -> Tensor:
            return self.neuron(x)

    return stream(Perceptron(), draw, F.soft_margin_loss)


@report(
    "single neuron on bytes",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1"
    "#a-single-neuron-perceptron-with-sigmoid-activation-function",
    guilty=r"neuron",
    says=rf"{INPUTS}|saturat|sigmoid",
    fault="pixels of 0 to 255 drive the one sigmoid neuron into saturation",
)
def neuron(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick()
        x = x.flatten(1)
        return (255 * (0.376 * x + 0.3) if planted else x,), (c % 2 == 0).float().unsqueeze(1)

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.neuron = nn.Linear(64, 1)
            nn.init.uniform_(self.neuron.weight, -0.5, 0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.neuron(x).sigmoid()

    return stream(Perceptron(), draw, F.binary_cross_entropy)


@report(
    "house prices beside scaled features",
    "https://community.deeplearning.ai/t/multiple-linear-regression-housing-prices-problem-cost-too-high/211759",
    guilty=r"linear",
    says=TARGETS,
    fault="features are standardised, the prices are left in dollars",
)
def houses(planted: bool) -> Task:
    w, mean, std = torch.randn(30) / math.sqrt(30), 1.8e5, 8e4

    def draw() -> Drawn:
        x = torch.randn(64, 30)
        y = (x @ w + 0.1 * torch.randn(64)).unsqueeze(1)
        return (x,), mean + std * y if planted else y

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(30, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / (std**2 if planted else 1.0)

    return stream(Regression(), draw, F.mse_loss, right)


@report(
    "softmax for samples of sound",
    "https://discuss.tensorflow.org/t/lstm-only-yielding-outputs-between-0-1/3471",
    guilty=r"dense",
    says=r"softmax|cross.?entropy|probabilit|negative|regress|range of the (output|target)",
    fault="softmax and categorical cross-entropy for two samples of sound from -27 to 27",
)
def guitar(planted: bool) -> Task:
    size = 10.0 if planted else 1.0

    def draw() -> Drawn:
        start, rate = 6.3 * torch.rand(32, 1, 2), 0.2 + 0.6 * torch.rand(32, 1, 1)
        x = (start + rate * torch.arange(20.0).view(1, -1, 1)).sin() * (0.5 + 1.5 * torch.rand(32, 1, 1))
        return (size * x,), size * (0.6 * x[:, -1] + 0.4 * x[:, -4] - 0.3 * x[:, -9])

    class Effect(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.lstm1, self.lstm2 = nn.LSTM(2, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
            self.dropout, self.dense = nn.Dropout(0.1), nn.Linear(d, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.dense(self.dropout(self.lstm2(self.lstm1(x)[0])[0][:, -1]))
            return y.softmax(1) if planted else y

    def categorical(y: Tensor, t: Tensor) -> Tensor:
        return -(t * y.clamp(1e-7, 1 - 1e-7).log()).sum(1).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / size**2

    return stream(Effect(), draw, categorical if planted else F.mse_loss, right)


@report(
    "angles on a line",
    "https://stats.stackexchange.com/questions/425234",
    says=r"circular|wrap|period|discontin|modul|\bangle",
    fault="angles are one number with mean absolute error: -180 and 180 degrees are one direction, two ends",
)
def arrival(planted: bool) -> Task:
    sensors = torch.arange(8) * math.pi / 4

    def draw() -> Drawn:
        t = 2 * torch.rand(64, 1) - 1
        return ((math.pi * t - sensors).cos() + 0.1 * torch.randn(64, 8),), t

    def right(y: Tensor, t: Tensor) -> Tensor:
        a = y if planted else torch.atan2(y[:, 1:], y[:, :1]) / math.pi
        return ((a - t + 1) % 2 - 1).abs().mean()

    def both(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, torch.cat([(math.pi * t).cos(), (math.pi * t).sin()], 1))

    model = chain(nn.Linear(8, 128), nn.Sigmoid(), nn.Linear(128, 64), nn.Linear(64, 1 if planted else 2))
    return stream(model, draw, F.l1_loss if planted else both, right)


@report(
    "quaternions of one sign",
    "https://datascience.stackexchange.com/questions/36370",
    says=r"\bsigns?\b|discontin|double cover|symmetr|quaternion|ambigu",
    fault="squared error on quaternions with a positive first part, though q and -q are one rotation",
)
def skeleton(planted: bool) -> Task:
    def draw() -> Drawn:
        q = F.normalize(torch.randn(64, 4), dim=1)
        q = torch.where(q[:, :1] < 0, -q, q)
        w, v = q[:, 0].view(-1, 1, 1), q[:, 1:]
        cross = torch.linalg.cross(v.unsqueeze(1).expand(-1, 3, -1), torch.eye(3).expand(64, 3, 3), dim=2)
        back = torch.linalg.cross(v.unsqueeze(1).expand(-1, 3, -1), cross, dim=2)
        return ((torch.eye(3) + 2 * w * cross + 2 * back).flatten(1),), q

    def same(y: Tensor, t: Tensor) -> Tensor:
        return 1 - (F.normalize(y, dim=1) * t).sum(1).abs().mean()

    model = chain(nn.Linear(9, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 4))
    return stream(model, draw, F.mse_loss if planted else same, same)


@report(
    "softmax written out",
    "https://openillumi.com/en/en-fix-rl-softmax-nan-error",
    guilty=r"W1|W2",
    says=rf"{BROKEN}|overflow|\bexp|softmax|{INPUTS}",
    fault="the policy's softmax is exp(w) / sum(exp(w)) of large numbers: it overflows",
)
def policy(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick()
        return (255 * (0.376 * x.flatten(1) + 0.3),), F.one_hot(c % 3, 3).float()

    class Policy(nn.Module):
        def __init__(self, d: int = 64, h: int = 32, actions: int = 3) -> None:
            super().__init__()
            self.W1 = nn.Parameter(torch.randn(h, d) / math.sqrt(d))
            self.W2 = nn.Parameter(torch.randn(actions, h) / math.sqrt(h))

        def forward(self, x: Tensor) -> Tensor:
            w = F.relu(x @ self.W1.T) @ self.W2.T
            e = (w if planted else w - w.amax(1, keepdim=True)).exp()
            return e / e.sum(1, keepdim=True)

    def missed(p: Tensor, t: Tensor) -> Tensor:
        return 1 - (p * t).sum(1).mean()

    return stream(Policy(), draw, missed)


@report(
    "returns in thousands",
    "https://medium.com/mindboard/scaling-reward-values-for-improved-deep-reinforcement-learning-e9a89f89411d",
    guilty=r"^4\.",
    says=rf"{TARGETS}|reward|returns?\b.*(scale|large)",
    fault="the value network is to predict returns of thousands",
)
def returns(planted: bool) -> Task:
    size = 1000.0 if planted else 1.0

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), size * (x[:, :1] + (2 * x[:, 1:2]).sin() + x[:, 2:3] * x[:, 3:4])

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / size**2

    model = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return stream(model, draw, F.mse_loss, right)
