"""A forty-fifth set of faults, a sample of reports that forum pages tell, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind45")
SCALE = (
    r"inputs?.*(scale|large|range|normal|size|unit|cent|standard)|(scale|large|normal|cent|standard)\w*.*inputs?"
    r"|features?.*(scale|large|range)"
)
TARGETS = r"targets?.*(scale|large|range|reach|outside|beyond|unit|negative)|(range|reach|bounded|outside).*targets?"
SYMMETRY = r"symmetr|identical|\bsame\b|alike|all.*(zero|equal)|zero|constant"


@report(
    "XOR in thousands",
    "https://example-a.com/answer/8705822",
    guilty=r"hidden|output",
    says=rf"{SCALE}|{TARGETS}|saturat|sigmoid",
    fault="one input and the targets are 0 to 1000 where the network of tanh and sigmoid expects 0 to 1",
)
def xor_thousands(planted: bool) -> Task:
    def draw() -> Drawn:
        bits = torch.randint(2, (64, 2)).float()
        t = 1000 * (bits[:, :1] != bits[:, 1:]).float()
        return (bits * torch.tensor([1000.0 if planted else 1.0, 1.0]),), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t if planted else t / 1000)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return loss(y, t) / (1e6 if planted else 1.0)

    class Backprop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.output = nn.Linear(2, 16), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.hidden(x).tanh()).sigmoid()

    return stream(Backprop(), draw, loss, right)


@report(
    "angles in a thousand bins",
    "https://stats.stackexchange.com/questions/218407",
    guilty=r"net\.4",
    says=r"softmax|one.?hot|imbalanc|sparse|rare|mostly zero|targets?.*(zero|constant|rare|sparse)|predict.*zero",
    fault="an angle is one of 1000 sigmoid outputs under the squared error: zeros everywhere are almost right",
)
def angle_bins(planted: bool) -> Task:
    mix = torch.randn(2, 16)

    def draw() -> Drawn:
        angle = torch.rand(64) * 2 * math.pi
        x = torch.stack([angle.cos(), angle.sin()], 1) @ mix
        return (x.tanh() + 0.05 * torch.randn(64, 16),), angle

    def loss(y: Tensor, angle: Tensor) -> Tensor:
        if planted:
            return F.mse_loss(y, F.one_hot((angle / (2 * math.pi) * 1000).long().clamp(max=999), 1000).float())
        return F.mse_loss(y, torch.stack([angle.cos(), angle.sin()], 1))

    def right(y: Tensor, angle: Tensor) -> Tensor:
        guess = (y.argmax(1) + 0.5) / 1000 * 2 * math.pi if planted else torch.atan2(y[:, 1], y[:, 0])
        return (1 - (guess - angle).cos()).mean()

    last: list[nn.Module] = [nn.Linear(64, 1000), nn.Sigmoid()] if planted else [nn.Linear(64, 2)]
    net = chain(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), *last)
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, loss, right)


@report(
    "bpnn asked for one to four",
    "http://ansaurus.com/question/3644795-neural-network-python",
    guilty=r"wo",
    says=rf"tanh|{TARGETS}|saturat|(outputs?|last layer).*(bound|range|between)",
    fault="a tanh at the output, targets are 1, 2, 3 and 4",
)
def bpnn(planted: bool) -> Task:
    def draw() -> Drawn:
        bits = torch.randint(2, (32, 2)).float()
        return (bits,), 1 + 2 * bits[:, :1] + bits[:, 1:]

    class NN(nn.Module):
        def __init__(self, ni: int = 2, nh: int = 8, no: int = 1) -> None:
            super().__init__()
            self.wi, self.wo = nn.Linear(ni, nh), nn.Linear(nh, no)

        def forward(self, x: Tensor) -> Tensor:
            ao = self.wo(self.wi(x).tanh())
            return ao.tanh() if planted else ao

    return stream(NN(), draw, lambda y, t: 0.5 * F.mse_loss(y, t))


@report(
    "an if statement around one",
    "https://stats.stackexchange.com/questions/267848",
    guilty=r"^(W|b|W1|b1)$",
    says=rf"{SCALE}|inputs?.*(vary|narrow|alike|similar|mean)|small|positive|initial|{SAME}",
    fault="inputs of 0.95 to 1.05 are not standardised, and hidden weights are all positive and tiny",
)
def if_statement(planted: bool) -> Task:
    def draw() -> Drawn:
        k = torch.randint(3, (60, 1))
        x = 0.95 + 0.05 * k + 0.005 * torch.randn(60, 1)
        return (x if planted else (x - 1) / 0.041,), (k == 1).float()

    class Net(nn.Module):
        def __init__(self, hidden: int = 10) -> None:
            super().__init__()
            self.W, self.b = nn.Parameter(torch.empty(1, hidden)), nn.Parameter(torch.zeros(hidden))
            self.W1, self.b1 = nn.Parameter(torch.empty(hidden, hidden)), nn.Parameter(torch.zeros(hidden))
            self.W2, self.b2 = nn.Parameter(torch.empty(hidden, 1)), nn.Parameter(torch.zeros(1))
            nn.init.uniform_(self.W2, -1, 1)
            for w in (self.W, self.W1):
                nn.init.uniform_(w, 0.001, 0.01) if planted else nn.init.uniform_(w, -1, 1)

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.relu(x @ self.W + self.b)
            hidden1 = F.relu(hidden @ self.W1 + self.b1)
            return (hidden1 @ self.W2 + self.b2).sigmoid()

    return stream(Net(), draw, F.binary_cross_entropy)


@report(
    "XOR on a grid from zero to one",
    "https://stats.stackexchange.com/questions/386214",
    guilty=r"Theta1|Bias1",
    says=rf"{SCALE}|inputs?.*(mean|positive|origin)|bias.*(zero|origin)",
    fault="grid points between 0 and 1 are not centred, while all biases start at zero",
)
def xor_grid(planted: bool) -> Task:
    def draw() -> Drawn:
        i = torch.randint(4, (64, 2))
        x = i / 3
        t = ((i[:, :1] > 1) != (i[:, 1:] > 1)).float()
        return (x if planted else (x - 0.5) / 0.373,), t

    class Mlp(nn.Module):
        def __init__(self, hidden: int = 32) -> None:
            super().__init__()
            self.Theta1, self.Bias1 = nn.Parameter(torch.empty(2, hidden)), nn.Parameter(torch.zeros(hidden))
            self.Theta2, self.Bias2 = nn.Parameter(torch.empty(hidden, 1)), nn.Parameter(torch.zeros(1))
            nn.init.uniform_(self.Theta1, -1, 1)
            nn.init.uniform_(self.Theta2, -1, 1)

        def forward(self, x: Tensor) -> Tensor:
            a2 = (x @ self.Theta1 + self.Bias1).sigmoid()
            return (a2 @ self.Theta2 + self.Bias2).sigmoid()

    return stream(Mlp(), draw, F.binary_cross_entropy)


@report(
    "reverse half of the last step",
    GITHUB + "yunjey/pytorch-tutorial/issues/149",
    guilty=r"reverse",
    says=r"revers|backward (direction|lstm|half)|bidirectional|last (step|time|output)|direction",
    fault="out[:, -1] of a bidirectional LSTM: the reverse direction has seen one row of the image",
)
def birnn(planted: bool) -> Task:
    """Rows of a digit are the steps; the first rows are the better to read."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.squeeze(1),), c

    class BiRNN(nn.Module):
        def __init__(self, input_size: int = 8, hidden_size: int = 24, num_classes: int = 10) -> None:
            super().__init__()
            self.hidden_size = hidden_size
            self.lstm = nn.LSTM(input_size, hidden_size, 1, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(hidden_size * 2, num_classes)

        def forward(self, x: Tensor) -> Tensor:
            out = self.lstm(x)[0]
            n = self.hidden_size
            return self.fc(out[:, -1, :] if planted else torch.cat([out[:, -1, :n], out[:, 0, n:]], 1))

    return stream(BiRNN(), draw, F.cross_entropy)


@report(
    "hh stays zero over all frames",
    GITHUB + "JWFanggit/LOTVS-CAP/issues/9",
    guilty=r"gru.*hh",
    says=r"hidden state|state.*(zero|never|constant|ignor)|recurren|\bhh\b|zero.*(state|input)|never.*used|no gradient",
    fault="the GRU is fed the initial state of zeros at each frame, and its new state is thrown away",
)
def lotvs(planted: bool) -> Task:
    """Accident anticipation: whether what is seen over all frames adds up; the later frames weigh more."""

    def draw() -> Drawn:
        x = torch.randn(64, 10, 6)
        return (x,), (x[:, :, 0].sum(1) + 0.5 * x[:, :, 1].sum(1) > 0).long()

    class GRUNet(nn.Module):
        def __init__(self, input_dim: int, hidden_dim: int) -> None:
            super().__init__()
            self.gru = nn.GRU(input_dim, hidden_dim, 1, batch_first=True)
            self.dense1, self.dense2 = nn.Linear(hidden_dim, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor, h: Tensor) -> Any:
            out, h = self.gru(x, h)
            return self.dense2(F.relu(self.dense1(F.relu(out[:, -1])))), h

    class CAP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.gru_net = chain(nn.Linear(6, 16), nn.ReLU()), GRUNet(16, 24)

        def forward(self, x: Tensor) -> Tensor:
            hh = torch.zeros(1, x.size(0), 24)
            all_output = []
            for i in range(x.size(1)):
                output, new = self.gru_net(self.features(x[:, i]).unsqueeze(1), hh)
                if not planted:
                    hh = new
                all_output.append(output)
            return torch.stack(all_output, 1)

    def loss(y: Tensor, c: Tensor) -> Tensor:
        penalty = torch.exp((torch.arange(y.shape[1]) - y.shape[1] + 1) / 3)
        each = F.cross_entropy(y.flatten(0, 1), c.repeat_interleave(y.shape[1]), reduction="none")
        return (each.view(len(c), -1) * penalty / penalty.sum()).sum(1).mean()

    return stream(CAP(), draw, loss)


@report(
    "zeros behind a hidden softmax",
    "http://pullrequest.ru/11818227",
    guilty=r"W1|W2",
    says=rf"{SYMMETRY}|softmax|initial",
    fault="both layers start at zero, and the hidden activation is a softmax",
)
def hidden_softmax(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(100)
        return ((x * 0.376 + 0.3).flatten(1),), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in {"W1": (64, 10), "b1": (10,), "W2": (10, 10), "b2": (10,)}.items():
                p = nn.Parameter(torch.zeros(*shape))
                if not planted:
                    nn.init.trunc_normal_(p, std=0.1, a=-0.2, b=0.2)
                self.register_parameter(name, p)

        def forward(self, x: Tensor) -> Tensor:
            z = x @ self.W1 + self.b1
            out1 = z.softmax(1) if planted else z.sigmoid()
            return (out1 @ self.W2 + self.b2).softmax(1)

    def cross_entropy(y: Tensor, c: Tensor) -> Tensor:
        return -(F.one_hot(c, 10) * y.clamp(min=1e-10).log()).sum(1).mean()

    return stream(Net(), draw, cross_entropy)


@report(
    "tutorial zeros in two layers",
    "https://stats.stackexchange.com/questions/316898",
    guilty=r"^W2?$",
    says=rf"{SYMMETRY}|initial",
    fault="W of the hidden layer and W2 of the output are both tf.zeros: all hidden units remain equal",
)
def tutorial_zeros(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(100)
        return ((x * 0.376 + 0.3).flatten(1),), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W, self.b = nn.Parameter(torch.zeros(64, 100)), nn.Parameter(torch.zeros(100))
            self.W2 = nn.Parameter(torch.zeros(100, 10) if planted else 0.1 * torch.randn(100, 10))
            self.b2 = nn.Parameter(torch.zeros(10))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.W + self.b).sigmoid() @ self.W2 + self.b2

    return stream(Net(), draw, F.cross_entropy)


@report(
    "truncated normal of one under ReLU",
    "https://e-com-net.com/article/1281957349447188480.htm",
    guilty=r"weight|W_",
    says=r"initial|(weights?|activations?|outputs?|loss|logits?).*(large|grow|explo|huge)|std|variance",
    fault="weights of a ReLU network are drawn with the default standard deviation of 1",
)
def truncated_one(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(50)
        return (x * 0.376 + 0.3,), c

    layers = (nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1), nn.Linear(128, 64), nn.Linear(64, 10))
    for layer in layers:
        std = 1.0 if planted else 0.1
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        nn.init.constant_(layer.bias, 0.1)
    conv1, conv2, fc1, fc2 = layers
    model = chain(
        conv1,
        nn.ReLU(),
        nn.MaxPool2d(2),
        conv2,
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        fc1,
        nn.ReLU(),
        fc2,
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "softmax loss of one logit for XOR",
    "https://geek-questions.imtqy.com/articles/1237100",
    guilty=r"out",
    says=rf"softmax|one (class|output|logit)|single|{CUT}|constant|loss.*zero",
    fault="softmax cross entropy over the one output of each example: its probability is always 1",
)
def one_logit(planted: bool) -> Task:
    def draw() -> Drawn:
        bits = torch.randint(2, (32, 2)).float()
        return (bits,), (bits[:, :1] != bits[:, 1:]).float()

    def wrong(logits: Tensor, y_input: Tensor) -> Tensor:
        return -(y_input * logits.log_softmax(1)).sum(1).mean()

    def l2(logits: Tensor, y_input: Tensor) -> Tensor:
        return 0.5 * (logits - y_input).square().mean()

    model = Parts(lambda m, x: m.out(m.hidden(x).sigmoid()), hidden=nn.Linear(2, 16), out=nn.Linear(16, 1))
    return stream(model, draw, wrong if planted else l2, l2)
