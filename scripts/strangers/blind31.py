"""A thirty-first set of faults: questions about networks that do not train, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind31")
UNSCALED = r"scal(e|ing)|large|huge|normali[sz]|standardi[sz]|magnitude|range|far from (0|zero)"


@report(
    "Titanic with softmax of one unit",
    "https://wiki.hoelee.com/content/stats.stackexchange.com_en_all_2022-05/questions/511722",
    guilty=r"^18\.",
    says=rf"softmax|{SAME}|{CUT}",
    fault="the one output goes through a softmax over itself: it is 1 for every passenger",
)
def titanic(planted: bool) -> Task:
    """Class, age, fare and sex of passengers, as they are, to survival."""

    def draw() -> Drawn:
        pclass = torch.randint(1, 4, (128, 1)).float()
        age = (30 + 14 * torch.randn(128, 1)).clamp(1, 80)
        fare = torch.exp(5 - pclass + 0.5 * torch.randn(128, 1))
        female = (torch.rand(128, 1) < 0.4).float()
        logit = 6 * female - 1.5 * (pclass - 2) - 0.05 * (age - 30) - 3
        t = (torch.rand(128, 1) < logit.sigmoid()).float()
        return (torch.cat([pclass, age, fare, female, 1 - female], 1),), t

    def dense(n: int, m: int, *, bias: bool = False) -> nn.Linear:
        layer = nn.Linear(n, m, bias=bias)
        nn.init.kaiming_normal_(layer.weight)
        return layer

    model = chain(
        nn.Linear(5, 32),
        nn.ReLU(),
        dense(32, 64),
        nn.ReLU(),
        nn.BatchNorm1d(64),
        dense(64, 128),
        nn.ReLU(),
        nn.Dropout(0.1),
        dense(128, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(0.15),
        nn.Linear(32, 16),
        nn.ReLU(),
        dense(16, 8),
        nn.ReLU(),
        nn.Linear(8, 1),
        nn.Softmax(1) if planted else nn.Sigmoid(),
    )
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "CartPole's policy is always 1",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#softmax-always-returns-1",
    guilty=r"action|out",
    says=rf"softmax|{SAME}|{CUT}",
    fault="softmax of a single float: the probability of the action is always 1",
)
def cartpole(planted: bool) -> Task:
    """One logit for the push to the right, trained by the policy gradient; judged by the regret."""
    w = torch.tensor([0.1, 0.4, 1.0, 0.8])

    def draw() -> Drawn:
        x = torch.randn(128, 4)
        return (x,), torch.tanh(2 * x @ w).unsqueeze(1)

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.action = nn.Linear(4, 24), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.action(F.relu(self.hidden(x)))
            return F.softmax(y, dim=1) if planted else torch.sigmoid(y)

    def loss(p: Tensor, gain: Tensor) -> Tensor:
        policy = torch.distributions.Bernoulli(probs=p)
        a = policy.sample()
        return -(policy.log_prob(a) * (2 * a - 1) * gain).mean()

    def regret(p: Tensor, gain: Tensor) -> Tensor:
        return (gain.abs() - (2 * p - 1) * gain).mean()

    return stream(Policy(), draw, loss, regret)


@report(
    "California housing as it comes",
    "https://thepalindrome.org/p/linear-regression-and-the-exploding-gradients",
    guilty=r"linear\.weight",
    says=UNSCALED,
    fault="features are not scaled: the population is in thousands, its gradient far larger than the others'",
)
def california(planted: bool) -> Task:
    def draw() -> Drawn:
        z = torch.randn(64, 8)
        income = torch.exp(1.3 + 0.45 * z[:, 0])
        age = (28.6 + 12.6 * z[:, 1]).clamp(1, 52)
        rooms, bedrooms = 5.4 + 2.5 * z[:, 2].abs(), 1.1 + 0.1 * z[:, 3].abs()
        population, occupation = torch.exp(6.9 + 0.75 * z[:, 4]), 3 + 0.8 * z[:, 5].abs()
        latitude, longitude = 35.6 + 2.1 * z[:, 6], -119.6 + 2 * z[:, 7]
        x = torch.stack([income, age, rooms, bedrooms, population, occupation, latitude, longitude], 1)
        scaled = (x - mean) / std
        t = 2.07 + 0.8 * scaled[:, :1] + 0.15 * scaled[:, 1:2] - 0.5 * scaled[:, 6:7] - 0.5 * scaled[:, 7:8]
        return (x if planted else scaled,), t + 0.4 * torch.randn(64, 1)

    mean = torch.tensor([4.06, 28.6, 7.4, 1.18, 1314, 3.64, 35.6, -119.6])
    std = torch.tensor([1.9, 12.2, 1.5, 0.06, 1140, 0.48, 2.1, 2.0])

    class LinearRegression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    return stream(LinearRegression(), draw, F.mse_loss)


@report(
    "bedrooms from rooms",
    "https://example-a.com/answer/74986467",
    guilty=r"weight",
    says=UNSCALED,
    fault="rooms, population, households and the bedrooms to be predicted are counts in thousands, unscaled",
)
def bedrooms(planted: bool) -> Task:
    """Three counts of a district to a fourth one; weights start at one."""

    def draw() -> Drawn:
        size = torch.exp(6.2 + 0.7 * torch.randn(64, 1))  # households
        rooms = size * (5.3 + 1.2 * torch.randn(64, 1))
        population = size * (2.9 + 0.6 * torch.randn(64, 1))
        x = torch.cat([rooms, population, size], 1)
        t = 1.05 * size + 0.03 * (rooms - 5.3 * size) + 20 * torch.randn(64, 1)
        if not planted:
            x = (x - torch.tensor([3340.0, 1827, 630])) / torch.tensor([2700.0, 1500, 500])
            t = (t - 661) / 525
        return (x,), t

    model = nn.Linear(3, 1)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)

    def scaled(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y / 525, t / 525) if planted else F.mse_loss(y, t)

    return stream(model, draw, F.mse_loss, scaled)


@report(
    "sine out of a sigmoid",
    "https://stackoverflow.com/questions/1565115",
    guilty=r"^2\.",
    says=r"sigmoid|range|between 0 and 1|\(0, 1\)|bounded|reach|satura",
    fault="the output unit is a sigmoid, the sine is not confined to (0, 1)",
)
def sine(planted: bool) -> Task:
    """The interval is the one reported, 0 to pi."""

    def draw() -> Drawn:
        x = torch.rand(64, 1) * torch.pi
        return (x,), torch.sin(x)

    model = chain(nn.Linear(1, 8), nn.Sigmoid(), nn.Linear(8, 1), nn.Sigmoid() if planted else nn.Identity())
    return stream(model, draw, F.mse_loss)


@report(
    "autoencoder of 1, 2, 3",
    "https://stackoverflow.com/questions/44601367",
    guilty=r"decoded",
    says=r"sigmoid|range|between 0 and 1|\(0, 1\)|bounded|reach|satura",
    fault="the decoder ends in a sigmoid, the inputs to be repeated are 1, 2 and 3",
)
def autoencoder(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.tensor([1.0, 2, 3]).expand(4, 3)
        return (x,), x

    class Autoencoder(nn.Module):
        def __init__(self, encoding_dim: int = 3) -> None:
            super().__init__()
            self.encoded, self.decoded = nn.Linear(3, encoding_dim), nn.Linear(encoding_dim, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.decoded(F.relu(self.encoded(x)))
            return torch.sigmoid(y) if planted else y

    return stream(Autoencoder(), draw, F.mse_loss)


@report(
    "DQN's loss clipped",
    "https://techfeed.net/402773",
    says=rf"clip|clamp|satura|{CUT}",
    fault="the loss of each transition is clipped to (-1, 1), where it has no gradient, instead of the error's slope",
)
def dqn(planted: bool) -> Task:
    """Q-values of four actions; targets are rewards and the discounted values of the next states."""
    w, g = torch.randn(8, 4) / 8**0.5, torch.randn(8) / 8**0.5

    def draw() -> Drawn:
        s = torch.randn(64, 8)
        a = torch.randint(4, (64, 1))
        reward = torch.tanh(s @ w).gather(1, a)
        value = 5 + 2 * torch.tanh(s @ g).unsqueeze(1)
        return (s,), torch.cat([a.float(), reward + 0.99 * value], 1)

    def errors(q: Tensor, t: Tensor) -> Tensor:
        return q.gather(1, t[:, :1].long()) - t[:, 1:]

    def clipped(q: Tensor, t: Tensor) -> Tensor:
        loss = errors(q, t).square()
        return torch.clamp(loss, -1, 1).mean()

    def huber(q: Tensor, t: Tensor) -> Tensor:
        e = errors(q, t)
        return F.smooth_l1_loss(e, torch.zeros_like(e))

    model = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    return stream(model, draw, clipped if planted else huber, huber)


@report(
    "layers made in forward",
    "https://thecodeforge.io/ml-ai/pytorch-neural-network",
    guilty=r"fc",
    says=r"(creat|made|new|random|re-?initiali|chang).*(forward|pass|call|batch|time)|(forward|pass|call).*(creat|new|random"
    r"|chang|differ)|unregistered|not registered|determinis|reproduc",
    fault="the classifier is a new nn.Linear at every forward pass: the optimiser updates weights that are discarded",
)
def layers_in_forward(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    class NeuralNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
            if not planted:
                self.fc1, self.fc2 = nn.Linear(128, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
            if planted:
                self.fc1 = nn.Linear(128, 64)
                self.fc2 = nn.Linear(64, 10)
            return self.fc2(F.relu(self.fc1(x)))

    return stream(NeuralNetwork(), draw, F.cross_entropy)


@report(
    "correlation as a loss",
    "https://datascience.stackexchange.com/questions/114455",
    guilty=r"bias",
    says=rf"invarian|shift|offset|correlation|{CUT}",
    fault="the loss is the negative correlation, which neither the mean nor the scale of the predictions changes",
)
def correlation(planted: bool) -> Task:
    """y = 5 x + 10 by one unit."""

    def draw() -> Drawn:
        x = torch.randn(100, 1)
        return (x,), 5 * x + 10 + torch.randn(100, 1)

    def corr(y_pred: Tensor, y_true: Tensor) -> Tensor:
        res_true, res_pred = y_true - y_true.mean(), y_pred - y_pred.mean()
        cov = (res_true * res_pred).mean()
        sigma_true, sigma_pred = res_true.square().mean().sqrt(), res_pred.square().mean().sqrt()
        return -cov / (sigma_true * sigma_pred)

    return stream(chain(nn.Linear(1, 1)), draw, corr if planted else F.mse_loss, F.mse_loss)


@report(
    "AlexNet's biases of one",
    "https://library.kiwix.org/datascience.stackexchange.com_en_all_2021-04/A/question/37314.html",
    guilty=r"(conv[245]|fc[12]).*bias",
    says=r"bias|dead|dying|zero",
    fault="biases of the second, fourth and fifth convolution and of the hidden dense layers start at 1",
)
def alexnet(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (F.interpolate(x, size=(16, 16), mode="bilinear"),), c

    class AlexNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1)
            self.conv3, self.conv4 = nn.Conv2d(24, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
            self.conv5 = nn.Conv2d(32, 24, 3, padding=1)
            self.fc1, self.fc2, self.fc3 = nn.Linear(96, 128), nn.Linear(128, 128), nn.Linear(128, 10)
            for name, layer in self.named_children():
                one = planted and name in ("conv2", "conv4", "conv5", "fc1", "fc2")
                nn.init.constant_(layer.bias, 1.0 if one else 0.0)  # type: ignore[arg-type]

        def forward(self, x: Tensor) -> Any:
            x = F.max_pool2d(F.local_response_norm(F.relu(self.conv1(x)), 5, alpha=1e-4, k=2), 2)
            x = F.max_pool2d(F.local_response_norm(F.relu(self.conv2(x)), 5, alpha=1e-4, k=2), 2)
            x = F.max_pool2d(F.relu(self.conv5(F.relu(self.conv4(F.relu(self.conv3(x)))))), 2).flatten(1)
            x = F.dropout(F.relu(self.fc1(x)), 0.5, self.training)
            return self.fc3(F.dropout(F.relu(self.fc2(x)), 0.5, self.training))

    return stream(AlexNet(), draw, F.cross_entropy)
