"""A fiftieth set of faults, out of threads of questions and answers, written without sight of the rules."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind50")
MATH = "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#"


@report(
    "categorical loss of one sigmoid",
    "https://stats.stackexchange.com/questions/565956/confused-with-binary-cross-entropy-vs-categorical-cross-entropy",
    says=r"categorical|(one|single|1) (output|unit|class|column)|negative.*(ignor|no |not |without)"
    r"|regardless|always (1|one)|whatever the input|same (output|answer|prediction)|constant|zero.*(target|label)",
    fault="categorical cross entropy of one output is -y log p: nothing holds p down where y is 0",
)
def lone_sigmoid(planted: bool) -> Task:
    """Label-encoded categories over five time steps, an LSTM, one sigmoid; about a quarter of the labels are 1."""

    def draw() -> Drawn:
        x = torch.randint(0, 5, (64, 5, 10)).float()
        return (x,), ((x[:, -1, 0] + x[:, -1, 1] - x[:, -2, 2]) > 3.5).float().unsqueeze(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.dense = nn.LSTM(10, 48, batch_first=True), nn.Linear(48, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.dense(self.lstm(x)[0][:, -1]))

    def categorical_crossentropy(p: Tensor, y: Tensor) -> Tensor:
        return -(y * p.clamp(1e-7, 1 - 1e-7).log()).sum(1).mean()

    def binary_crossentropy(p: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), y)

    return stream(Model(), draw, categorical_crossentropy if planted else binary_crossentropy, binary_crossentropy)


@report(
    "softmax of one node under binary loss",
    "https://geek-tips.imtqy.com/articles/557592/index.html",
    guilty=r"output",
    says=rf"softmax|{SAME}|(one|single|1) (output|unit|node|class)|no gradient|gradient.*zero",
    fault="a softmax over the only output node is always 1",
)
def lone_softmax(planted: bool) -> Task:
    w = torch.randn(12)

    def draw() -> Drawn:
        x = torch.randn(64, 12)
        return (x,), ((x @ w + 2 * x[:, 0] * x[:, 1]) > 0).float().unsqueeze(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense1, self.dense2, self.output = nn.Linear(12, 64), nn.Linear(64, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.output(F.relu(self.dense2(F.relu(self.dense1(x)))))
            return F.softmax(x, 1) if planted else torch.sigmoid(x)

    def binary_crossentropy(p: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), y)

    return stream(Model(), draw, binary_crossentropy)


@report(
    "integers to a recurrent net as they are",
    "https://datascience.stackexchange.com/questions/28086/learning-a-simple-sequence-with-rnn-keras",
    guilty=r"rnn|dense",
    says=r"scale|large|range|normali|standardi|unscaled|magnitude|raw|saturat|mean of the target|embed|one.?hot",
    fault="integers from 0 to 99 are both inputs and targets of a tanh RNN, neither scaled nor encoded",
)
def integers(planted: bool) -> Task:
    """The number two steps before; the repaired twin has a vector for each number and standardised targets."""

    def draw() -> Drawn:
        x = torch.randint(0, 100, (64, 12))
        return (x[:, 2:],), x[:, :-2].float()

    class SimpleRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = None if planted else nn.Embedding(100, 16)
            self.rnn, self.dense = nn.RNN(1 if planted else 16, 16, batch_first=True), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.embedding(x) if self.embedding else x.float().unsqueeze(-1)
            return self.dense(self.rnn(h)[0]).squeeze(-1)

    def raw(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y[:, 2:], t[:, 2:])

    def scaled(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y[:, 2:], (t[:, 2:] - 49.5) / 28.9)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return raw(y, t) / 28.9**2

    return stream(SimpleRNN(), draw, raw, right) if planted else stream(SimpleRNN(), draw, scaled)


@report(
    "threshold without a bias",
    MATH + "why-is-my-very-simple-neural-network-not-doing-at-all-well",
    says=r"\bbias|intercept|offset",
    fault="one weight and no bias, though numbers from 0 to 200 are to be told apart at 100",
)
def threshold(planted: bool) -> Task:
    """In hundreds, for Adam's steps: as they are, the repaired neuron would need a bias of -100 weights."""

    def draw() -> Drawn:
        x = torch.randint(0, 201, (64, 1)).float() / 100
        return (x,), (x > 1).float()

    neuron = nn.Linear(1, 1, bias=not planted)
    nn.init.uniform_(neuron.weight, -1, 1)
    return stream(chain(neuron), draw, F.binary_cross_entropy_with_logits)


@report(
    "parabola of rectifiers that are all on",
    MATH + "neural-network-cannot-learn-a-simple-function",
    guilty=r"^[02]\.",
    says=r"relu|(is|are) linear|linear (function|map|network|there)|zero.?bias|bias.*zero|dead|always (on|active)",
    fault="ReLUs with zero biases on inputs from 0 to 1 are linear there: the network fits a line to a parabola",
)
def parabola(planted: bool) -> Task:
    """y = (x - 0.5)^2; Keras's initial weights."""

    def draw() -> Drawn:
        x = torch.randint(0, 100, (100, 1)).float() * 0.01
        return (x,), (x - 0.5) ** 2

    def act() -> nn.Module:
        return nn.ReLU() if planted else nn.Tanh()

    model = chain(nn.Linear(1, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return stream(model, draw, F.mse_loss)


@report(
    "RNN along the examples",
    "https://taourl.com/read-2624309.html",
    guilty=r"rnn",
    says=rf"{MIXED}|batch.?first|transpos|(time|sequence).*(batch|axis|dimension)|(axis|dimension).*(time|sequence)",
    fault="batch_first=False, but the inputs are (batch, time, features): the recurrence runs over the examples",
)
def rnn_axis(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(32, 10, 16)
        return (x,), x[:, -4, :4].argmax(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.fc = nn.RNN(16, 64, batch_first=not planted), nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.rnn(x)[0][:, -1])

    return stream(Net(), draw, F.cross_entropy)


@report(
    "kernels of nought before a rectifier",
    "https://taourl.com/read-2674227.html",
    guilty=r"^0\.|conv",
    says=rf"{SAME}|zero|dead|initiali|no gradient",
    fault="kernel_initializer='zeros' in the convolution: all its outputs are 0, where ReLU has no slope",
)
def nought(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    conv = nn.Conv2d(1, 32, 3)
    if planted:
        nn.init.zeros_(conv.weight)
    else:
        nn.init.xavier_uniform_(conv.weight)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return stream(chain(conv, nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10)), draw, F.cross_entropy)
