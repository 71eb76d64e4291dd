"""The rest of the thirty-fifth set: losses, agents and initial weights out of reports."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.blind35 import INPUTS, STATS, TARGETS
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind35")


@report(
    "binary cross entropy of prices",
    "https://openillumi.com/en/en-keras-tf-fix-huge-negative-loss-regression",
    guilty=r"out\.",
    says=rf"{TARGETS}|target.*(\[0, ?1\]|0 and 1|0 to 1|outside|probabilit|above 1|> ?1)|negative|sigmoid|bounded",
    fault="prices are regressed by a sigmoid and binary cross entropy, which is negative beyond bounds",
)
def price(planted: bool) -> Task:
    """Twelve features of a car, prices about 7000."""
    w, deviation = torch.randn(12) / 12**0.5, 2000.0

    def draw() -> Drawn:
        x = torch.randn(64, 12)
        t = ((x @ w + 0.5 * x[:, 0] * x[:, 1]) / 1.12).unsqueeze(1)
        return (x,), 7000 + deviation * t if planted else t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = chain(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.out = nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.out(self.dense(x))
            return y.sigmoid() if planted else y

    def binary_crossentropy(y: Tensor, t: Tensor) -> Tensor:
        y = y.clamp(1e-7, 1 - 1e-7)
        return -(t * y.log() + (1 - t) * (1 - y).log()).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / deviation**2 if planted else F.mse_loss(y, t)

    return stream(Net(), draw, binary_crossentropy if planted else F.mse_loss, right)


@report(
    "four hidden layers of sigmoids",
    STATS + "230193",
    guilty=r"hidden",
    says=r"vanish|saturat|sigmoid|gradients?.*(small|tiny|fade|shrink|die)",
    fault="gradients vanish through four hidden layers of sigmoids",
)
def sigmoids(planted: bool) -> Task:
    """22 inputs, 19, 15, 12 and 8 hidden units, and one output between 0 and 1."""
    w = torch.randn(22) / 22**0.5

    def draw() -> Drawn:
        x = torch.rand(64, 22) * 2 - 1
        return (x,), (3 * (x @ w)).sigmoid().unsqueeze(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in ((22, 19), (19, 15), (15, 12), (12, 8)))
            self.output = nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.hidden:
                x = layer(x).sigmoid() if planted else F.relu(layer(x))
            return self.output(x).sigmoid()

    return stream(Net(), draw, F.mse_loss)


def chosen(y: Tensor, t: Tensor) -> Tensor:
    """Mean squared error of the value of the action taken; t (B, 2): the action and what came of it."""
    return F.mse_loss(y.gather(1, t[:, :1].long()), t[:, 1:])


@report(
    "softmax over the values of actions",
    GITHUB + "thu-ml/tianshou/issues/725",
    guilty=r"model\.4",
    says=rf"softmax|bounded|range|{TARGETS}",
    fault="the network of a DQN ends in a softmax, so that values of actions stay between 0 and 1 and add up to 1",
)
def tianshou(planted: bool) -> Task:
    """Discounted returns of four actions after eight numbers of state, about 0 to 10."""
    w = torch.randn(8, 4) / 8**0.5

    def draw() -> Drawn:
        x, a = torch.randn(64, 8), torch.randint(4, (64, 1))
        q = 5 + 2.5 * torch.tanh(x @ w) + 0.5 * torch.randn(64, 4)
        return (x,), torch.cat([a.float(), q.gather(1, a)], 1)

    class Net(nn.Module):
        def __init__(self, *, softmax: bool) -> None:
            super().__init__()
            self.softmax = softmax
            self.model = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

        def forward(self, obs: Tensor) -> Tensor:
            logits = self.model(obs)
            return torch.softmax(logits, dim=-1) if self.softmax else logits

    return stream(Net(softmax=planted), draw, chosen)


@report(
    "ReLU on the values of actions",
    GITHUB + "dennybritz/reinforcement-learning/pull/104",
    guilty=r"predictions",
    says=r"relu|negative|below (0|zero)|\bsigns?\b",
    fault="fully_connected's default ReLU stands on the predicted values, which cannot be negative",
)
def pong(planted: bool) -> Task:
    """Values from -1 to 1 of four actions after an image."""
    worth = torch.randn(10, 4)

    def draw() -> Drawn:
        (x, c), a = pick(64), torch.randint(4, (64, 1))
        return (x,), torch.cat([a.float(), torch.tanh(worth[c]).gather(1, a)], 1)

    class Estimator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
            self.fc1, self.predictions = nn.Linear(512, 64), nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            z = F.relu(self.fc1(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)))
            y = self.predictions(z)
            return F.relu(y) if planted else y

    return stream(Estimator(), draw, chosen)


@report(
    "gamma correction of black pixels",
    GITHUB + "tensorflow/tensorflow/issues/2295",
    says=rf"{BROKEN}|pow|power|at (0|zero)|root",
    fault="pixels are clamped to 0..1 and raised to 1/2.4, whose derivative at 0 is infinite",
)
def gamma(planted: bool) -> Task:
    """A colour matrix is learnt between linear RGB and back; black pixels stay black."""
    mix = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])

    def draw() -> Drawn:
        x = torch.rand(16, 3, 8, 8) * (torch.rand(16, 1, 8, 8) < 0.7)
        t = torch.einsum("ij,bjhw->bihw", mix, x**2.4) ** (1 / 2.4)
        return (x,), t

    class Correct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.colour = nn.Conv2d(3, 3, 1, bias=False)
            nn.init.dirac_(self.colour.weight)

        def forward(self, x: Tensor) -> Tensor:
            y = self.colour(x**2.4)
            y = torch.clamp(y, 0.0 if planted else 1e-5, 1.0)
            return torch.pow(y, 1 / 2.4)

    return stream(Correct(), draw, F.mse_loss)


@report(
    "first loss of 26",
    "https://bigghis.github.io/AI-appunti/guide/optimizations/initialloss.html",
    guilty=r"W2|b2",
    says=r"logits?.*(large|scale|big|spread)|loss.*(chance|uniform|guess|start|begin)|initial.*loss|confident",
    fault="the output layer's weights are N(0, 1) over 200 units: logits are huge at the beginning",
)
def makemore(planted: bool) -> Task:
    """An MLP after three letters; each letter depends on the one before it."""
    table = torch.randn(27, 27) * 2

    def draw() -> Drawn:
        x = torch.randint(27, (64, 3))
        return (x,), torch.distributions.Categorical(logits=table[x[:, 2]]).sample()

    class MLP(nn.Module):
        def __init__(self, n_embd: int = 10, n_hidden: int = 200) -> None:
            super().__init__()
            self.C = nn.Parameter(torch.randn(27, n_embd))
            self.W1, self.b1 = nn.Parameter(torch.randn(3 * n_embd, n_hidden)), nn.Parameter(torch.randn(n_hidden))
            s = 1.0 if planted else 0.01
            self.W2 = nn.Parameter(torch.randn(n_hidden, 27) * s)
            self.b2 = nn.Parameter(torch.randn(27) * (1.0 if planted else 0.0))

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.C[x].flatten(1) @ self.W1 + self.b1)
            return h @ self.W2 + self.b2

    return stream(MLP(), draw, F.cross_entropy)


@report(
    "positive weights on raw columns",
    "https://ramilus.com/post/99",
    guilty=r"dense",
    says=rf"{INPUTS}|explo|initiali[sz]|initial weight|grow|{BROKEN}|positive|loss.*(huge|large)",
    fault="weights are drawn from 0 to 1 and the columns are not scaled, so that activations and gradients explode",
)
def wine(planted: bool) -> Task:
    """Dense layers of 100, 20, 10 and 1 units on eleven columns of a wine table; quality about 6."""
    mean = torch.tensor([6.9, 0.28, 0.33, 6.4, 0.046, 35.0, 138.0, 0.994, 3.19, 0.49, 10.5])
    deviation = torch.tensor([0.84, 0.1, 0.12, 5.0, 0.022, 17.0, 42.0, 0.003, 0.15, 0.11, 1.2])
    w = torch.randn(11) / 11**0.5

    def draw() -> Drawn:
        z = torch.randn(64, 11)
        t = 5.9 + 0.9 * torch.tanh(z @ w).unsqueeze(1) + 0.2 * torch.randn(64, 1)
        return (mean + deviation * z if planted else z,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in ((11, 100), (100, 20), (20, 10), (10, 1)))
            for layer in self.dense:
                if planted:
                    nn.init.uniform_(layer.weight, 0.0, 1.0)
                else:
                    nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.dense[:-1]:
                x = F.relu(layer(x))
            return self.dense[-1](x)

    return stream(Net(), draw, F.mse_loss)


@report(
    "softplus that takes exponentials first",
    GITHUB + "tracel-ai/burn/issues/5373",
    says=rf"{BROKEN}|overflow|\bexp\b|exponent|softplus",
    fault="softplus is log(1 + exp(5 x)) / 5 and overflows beyond 18, with NaN gradients",
)
def softplus(planted: bool) -> Task:
    """A table of columns of deviation 50, as they are."""

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (50 * x,), (torch.sin(x[:, :1]) + x[:, 1:2].abs() + 0.5 * x[:, 2:3])

    def activate(x: Tensor, beta: float = 5.0) -> Tensor:
        return ((x * beta).exp() + 1).log() / beta if planted else F.softplus(x, beta)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(8, 48), nn.Linear(48, 48), nn.Linear(48, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc3(activate(self.fc2(activate(self.fc1(x)))))

    return stream(Net(), draw, F.mse_loss)


@report(
    "policy normalised over the batch",
    GITHUB + "DeepReinforcementLearning/DeepReinforcementLearningInAction/issues/32",
    says=rf"softmax|{MIXED}|sum.*batch|dim(ension)? ?(=|of)? ?0",
    fault="Softmax(dim=0) of a batch of states normalises over the states, not over the actions",
)
def reinforce(planted: bool) -> Task:
    """States of four numbers, two actions drawn from the policy, a reward of 1 for the better one; judged by regret."""

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        return (x,), (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()

    class Policy(nn.Module):
        def __init__(self, l1: int = 4, l2: int = 150, l3: int = 2) -> None:
            super().__init__()
            self.model = chain(nn.Linear(l1, l2), nn.LeakyReLU(), nn.Linear(l2, l3))

        def forward(self, x: Tensor) -> Any:
            y = self.model(x)
            return y.softmax(0 if planted else 1), y.softmax(1)  # the second as each state alone is played

    def loss(y: Any, t: Tensor) -> Tensor:
        pred, played = y
        a = torch.multinomial(played.detach(), 1)
        r = (a.squeeze(1) == t).float()
        return -(r * pred.gather(1, a).squeeze(1).log()).mean()

    def regret(y: Any, t: Tensor) -> Tensor:
        return 1 - y[1].gather(1, t[:, None]).mean()

    return stream(Policy(), draw, loss, regret)


@report(
    "ReLU on the class scores",
    GITHUB + "WeiTang114/MVCNN-TensorFlow/issues/14",
    guilty=r"fc8",
    says=rf"relu|negative|dead|{SAME}",
    fault="fc8 is followed by a ReLU: the network comes to classify everything as class 0",
)
def mvcnn(planted: bool) -> Task:
    """Four views of an image, pooled by their maximum, in AlexNet's manner."""

    def draw() -> Drawn:
        x, c = pick(24)
        return (torch.stack([x, x.flip(3), x.roll(1, 2), x.roll(-1, 3)], 1),), c

    class MVCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
            self.fc6, self.fc7, self.fc8 = nn.Linear(512, 96), nn.Linear(96, 96), nn.Linear(96, 10)

        def forward(self, views: Tensor) -> Tensor:
            z = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(views.flatten(0, 1))))), 2)
            z = z.flatten(1).unflatten(0, views.shape[:2]).amax(1)
            z = F.dropout(F.relu(self.fc6(z)), 0.5, self.training)
            z = F.dropout(F.relu(self.fc7(z)), 0.5, self.training)
            y = self.fc8(z)
            return F.relu(y) if planted else y

    return stream(MVCNN(), draw, F.cross_entropy)


@report(
    "Euclidean similarity of duplicates",
    GITHUB + "huggingface/sentence-transformers/pull/4033",
    says=rf"{BROKEN}|sqrt|root|distance.*(zero|\b0\b)|(zero|\b0\b).*distance|identical|duplicate|same pair",
    fault="the root of a sum of squares is differentiated at zero, where anchor and positive are the same sentence",
)
def triplets(planted: bool) -> Task:
    """Sentences of six topics, each of which prefers other words; every eighth positive is the anchor itself."""

    def sentences(c: Tensor) -> Tensor:
        own = 1 + c[:, None] * 30 + torch.randint(30, (len(c), 10))
        return torch.where(torch.rand(len(c), 10) < 0.4, own, torch.randint(1, 181, (len(c), 10)))

    def draw() -> Drawn:
        c = torch.randint(6, (48,))
        anchor, positive = sentences(c), sentences(c)
        positive[::8] = anchor[::8]
        return (anchor, positive, sentences((c + torch.randint(1, 6, (48,))) % 6)), c

    class SentenceTransformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings, self.dense = nn.Embedding(181, 32), nn.Linear(32, 32)

        def encode(self, x: Tensor) -> Tensor:
            return torch.tanh(self.dense(self.embeddings(x).mean(1)))

        def forward(self, *reps: Tensor) -> Any:
            return tuple(self.encode(x) for x in reps)

    def euclidean(a: Tensor, b: Tensor) -> Tensor:
        return ((a - b) ** 2).sum(1).sqrt() if planted else torch.linalg.vector_norm(a - b, dim=1)

    def loss(y: Any, _: Tensor) -> Tensor:
        anchor, positive, negative = y
        return F.relu(euclidean(anchor, positive) - euclidean(anchor, negative) + 5.0).mean()

    return stream(SentenceTransformer(), draw, loss)


@report(
    "distances of windows to themselves",
    GITHUB + "tilman151/rul-adapt/pull/22",
    says=rf"{BROKEN}|sqrt|root|distance.*(zero|\b0\b)|(zero|\b0\b).*distance|identical|same pair",
    fault="the pairwise Euclidean distance has no epsilon under its root, and some pairs are one window twice",
)
def degradation(planted: bool) -> Task:
    """Windows of six sensors along a run to failure; distances of features are to tell how far apart they are."""
    drift = torch.randn(1, 6, 1)

    def window(at: Tensor) -> Tensor:
        return drift * (at.view(-1, 1, 1) ** 2) * 2 + 0.3 * torch.randn(len(at), 6, 16)

    def draw() -> Drawn:
        a, b = torch.rand(32), torch.rand(32)
        b[::8] = a[::8]
        x, z = window(a), window(b)
        z[::8] = x[::8]
        return (x, z), (a - b).abs()

    class Pretraining(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feature_extractor = chain(
                nn.Conv1d(6, 16, 3), nn.ReLU(), nn.Conv1d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(192, 16)
            )

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            squares = (self.feature_extractor(x) - self.feature_extractor(z)) ** 2
            return torch.sqrt(squares.sum(1) + (0.0 if planted else 1e-8))

    return stream(Pretraining(), draw, F.mse_loss)
