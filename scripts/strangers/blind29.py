"""A twenty-ninth set of faults, a sample of reports that people ask about, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits

report = partial(any_report, blind="blind29")
STATS, FORUM, AI = "https://stats.stackexchange.com/", "https://discuss.pytorch.org/t/", "https://ai.stackexchange.com/"
SCIENCE, SOLO = "https://datascience.stackexchange.com/", "https://www.sololearn.com/Discuss/"
MIRROR = "https://kiwix.lema.org/stackoverflow.com_en_all_2023-11/questions/"
STEP = r"differentiab|discrete|compar|step|piecewise|threshold|argmax|round"
SCALE = r"(input|feature|pixel|value)s?.*(scale|large|range|255|magnitude|normali|standardi|unit)|unscaled|unnormal"


def keras(model: nn.Sequential) -> nn.Sequential:
    """Initialise as Keras does: Glorot's uniform weights and biases of zero."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


@report(
    "parabola by ReLU of positive numbers",
    STATS + "questions/280372",
    guilty=r"^[02]\.",
    says=r"linear|kink|always (on|active)|centr|cent(er|red)|bias.*zero",
    fault="inputs of 0 to 1 and biases of zero: every ReLU is linear over the data and cannot bend it",
)
def parabola(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(100, (64, 1)) * 0.01
        return (x,), (x - 0.5) ** 2

    act = nn.ReLU if planted else nn.Tanh
    return stream(keras(chain(nn.Linear(1, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 1))), draw, F.mse_loss)


@report(
    "line through a ReLU",
    "https://community.deeplearning.ai/t/loss-values-do-not-change/324182",
    guilty=r"^4\.",
    says=r"(last|final|output|end).*ReLU|ReLU.*(last|final|output|end)|negative (target|value|label)|dead|never active",
    fault="a ReLU after the output of a regression whose targets are also negative",
)
def line(planted: bool) -> Task:
    """y = 2x - 1 of seven numbers; as many layers and neurons as one likes."""

    def draw() -> Drawn:
        x = torch.arange(-1.0, 6).unsqueeze(1)
        return (x,), 2 * x - 1

    last = [nn.ReLU()] if planted else []
    model = chain(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1), *last)
    return stream(model, draw, F.mse_loss)


@report(
    "TransformerEncoder as a bag of words",
    "https://openillumi.com/?p=74183",
    guilty=r"embeddings",
    says=r"position|order|permut",
    fault="nothing tells the encoder the positions of the words, on which the class depends",
)
def bag(planted: bool, d: int = 32) -> Task:
    """Four classes: the quarter of the sequence in which the marked word is."""
    angle = torch.arange(16).unsqueeze(1) * torch.exp(-torch.arange(0, d, 2) / d * 9.21)
    encoding = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)

    def draw() -> Drawn:
        x, at = torch.randint(1, 40, (64, 16)), torch.randint(16, (64,))
        x[torch.arange(64), at] = 0
        return (x,), at // 4

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.embeddings(x)
        if not planted:
            x = x + encoding
        return m.fc(m.transformer_encoder(x).mean(1))

    layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = Parts(run, embeddings=nn.Embedding(40, d), transformer_encoder=encoder, fc=nn.Linear(d, 4))
    return stream(model, draw, F.cross_entropy)


@report(
    "Q-values out of a softmax",
    MIRROR + "66072364",
    guilty=r"^6\.",
    says=r"softmax|probabilit|sum to (1|one)|bounded|between 0 and 1",
    fault="a softmax at the end of a Q-network, whose values are rewards, large and negative at death",
)
def snake(planted: bool) -> Task:
    """A section of the board around the agent (11 x 11) and its direction; turn left, turn right, do nothing."""
    moves = torch.tensor([[-1, 0], [0, 1], [1, 0], [0, -1]])

    def draw() -> Drawn:
        board = (torch.rand(64, 11, 11) < 0.3).float()
        d = torch.randint(4, (64,))
        q = torch.stack([free(board, (d + turn) % 4) for turn in (3, 1, 0)], 1)
        return (torch.cat([board.flatten(1), F.one_hot(d, 4).float()], 1),), q

    def free(board: Tensor, d: Tensor) -> Tensor:
        at, rows = moves[d], torch.arange(64)
        first, second = (board[rows, 5 + k * at[:, 0], 5 + k * at[:, 1]] for k in (1, 2))
        return torch.where(first > 0, torch.tensor(-10.0), 1 + (1 - second))

    last = [nn.Softmax(1)] if planted else []
    model = chain(
        nn.Linear(125, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, 3), *last,
    )  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report(
    "2048 policy of differences",
    MIRROR + "50181477",
    says=rf"{CUT}|constant|cancel|vanish|sum to (1|one)|softmax|log",
    fault="the loss sums (action - probability) * reward over the actions: probabilities sum to 1, so it is constant",
)
def policy(planted: bool) -> Task:
    """The logarithms of sixteen tiles; which of four moves is best; scores are centred over the batch."""
    w = torch.randn(16, 4)

    def draw() -> Drawn:
        x = torch.randint(0, 8, (64, 16)).float() / 8
        return (x,), (x - 0.44) @ w

    def act(p: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        action = F.one_hot(torch.multinomial(p.detach(), 1).squeeze(1), 4).float()
        reward = (action * gain).sum(1, keepdim=True)
        return action, (reward - reward.mean()) / reward.std()

    def wrong(net_output: Tensor, t: Tensor) -> Tensor:
        action, reward = act(net_output, t)
        return ((action - net_output) * reward).sum()

    def reinforce(net_output: Tensor, t: Tensor) -> Tensor:
        action, reward = act(net_output, t)
        return -((action * net_output.clamp(min=1e-8).log()).sum(1, keepdim=True) * reward).mean()

    def regret(p: Tensor, t: Tensor) -> Tensor:
        return (p * (t.max(1, keepdim=True)[0] - t)).sum(1).mean()

    model = chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4), nn.Softmax(1))
    return stream(model, draw, wrong if planted else reinforce, regret)


def slopes(net: nn.Module, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A network's outputs at t, and their first and second derivatives."""
    t = t.detach().requires_grad_(True)
    with torch.enable_grad():
        x = net(t)
        dx = torch.autograd.grad(x.sum(), t, create_graph=True)[0]
        return (
            x,
            dx,
            torch.autograd.grad(dx.sum(), t, create_graph=True)[0] if dx.requires_grad else torch.zeros_like(x),
        )


@report(
    "oscillator that rarely starts",
    STATS + "questions/493558",
    says=r"initial (condition|value)|boundary|weight|domina|(rare|few|infrequent|sparse)|imbalanc|trivial",
    fault="the initial conditions count only for the sample at t = 0, one of 200: x = 0 solves all the others",
)
def oscillator(planted: bool) -> Task:
    """x'' + 14 x' + 49 x = 0, x(0) = 0, x'(0) = -3."""

    def draw() -> Drawn:
        t = torch.randint(200, (32, 1)) * 0.01
        return (t,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, t: Tensor) -> Tensor:
            x, dx, ddx = slopes(self.net, t)
            x0, dx0, _ = slopes(self.net, torch.zeros_like(t))
            return torch.cat([x, dx, ddx, x0, dx0], 1)

    def residual(y: Tensor) -> Tensor:
        return (y[:, 2] + 14 * y[:, 1] + 49 * y[:, 0]) ** 2

    def rare(y: Tensor, t: Tensor) -> Tensor:
        start = (y[:, 1] + 3) ** 2 + y[:, 0] ** 2
        return (residual(y) + torch.where(t[:, 0] == 0, start, torch.zeros_like(start))).mean()

    def always(y: Tensor, t: Tensor) -> Tensor:
        return (residual(y) + (y[:, 4] + 3) ** 2 + y[:, 3] ** 2).mean()

    return stream(Net(), draw, rare if planted else always, always)


@report(
    "dy/dt = -y by ReLU",
    "https://discourse.julialang.org/t/unable-to-solve-a-differential-equation-using-neural-network/103723",
    guilty=r"nn\.4\.",
    says=r"deriv|constant|ReLU.*(last|final|end|output)|(last|final|end|output).*ReLU|dead|never active|all ones",
    fault="a ReLU also after the output, and the derivative taken by the prediction (all ones), not by t",
)
def decay(planted: bool) -> Task:
    def draw() -> Drawn:
        t = torch.arange(21.0).unsqueeze(1) / 10
        return (t,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            act = nn.ReLU if planted else nn.Tanh
            last = [nn.ReLU()] if planted else []
            self.nn = keras(chain(nn.Linear(1, 16), act(), nn.Linear(16, 16), act(), nn.Linear(16, 1), *last))

        def forward(self, t: Tensor) -> Tensor:
            prediction, slope, _ = slopes(self.nn, t)
            with torch.enable_grad():
                ones = torch.autograd.grad(prediction.sum(), prediction, retain_graph=True)[0]
            return torch.cat([prediction, slope, ones, self.nn(torch.zeros_like(t))], 1)

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return ((y[:, 2] + y[:, 0]) ** 2).mean() + ((y[:, 3] - 1) ** 2).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y[:, 1] + y[:, 0]) ** 2).mean() + ((y[:, 3] - 1) ** 2).mean()

    return stream(Net(), draw, wrong if planted else right, right)


@report(
    "0-1 loss by if and else",
    FORUM + "built-in-0-1-loss-function/216747",
    says=rf"{CUT}|{STEP}|graph|constant",
    fault="the loss is 0 or 1 by an if, in a new tensor that requires a gradient: nothing is differentiated",
)
def zero_one(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    def loss(input: Tensor, target: Tensor) -> Tensor:
        wrong = 0
        for y, t in zip(input.argmax(1), target, strict=True):
            if int(y) == int(t):
                wrong += 0
            else:
                wrong += 1
        return torch.tensor(wrong / len(target), requires_grad=True)

    model = chain(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    return stream(model, draw, loss if planted else F.cross_entropy, F.cross_entropy)


@report(
    "a threshold that masks",
    FORUM + "optimize-masking-parameter/204381",
    guilty=r"threshold",
    says=rf"{CUT}|{STEP}|mask",
    fault="points are kept where their norm is below a learned threshold: it has no gradient",
)
def masking(planted: bool) -> Task:
    """The mean norm of points below the threshold; that of those below 1.5 is wanted."""

    def draw() -> Drawn:
        x = torch.randn(16, 40, 3)
        n = x.norm(dim=2)
        keep = (n < 1.5).float()
        return (x,), (keep * n).sum(1) / keep.sum(1)

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.threshold, self.X = nn.Parameter(torch.tensor(3.0)), nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            n = (x + self.X).norm(dim=2)
            mask = (n < self.threshold).float() if planted else torch.sigmoid(10.0 * (self.threshold - n))
            return (mask * n).sum(1) / mask.sum(1)

    return stream(Masked(), draw, F.mse_loss)


@report(
    "logarithm of a count",
    FORUM + "how-can-custom-loss-function-be-backpropagated/90501",
    says=rf"{CUT}|{STEP}|graph|constant|number|count",
    fault="the loss counts 1 or 2 by an if on each output and takes math.log10: its gradient is zero",
)
def counted(planted: bool) -> Task:
    w = torch.randn(8)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (x,), (x @ w > 0).float()

    def myloss(data: Tensor, t: Tensor) -> Tensor:
        tmp = torch.zeros((), requires_grad=True)
        for i in range(len(data)):
            tmp = tmp + 1 if (data[i] > 0.5) == (t[i] > 0.5) else tmp + 2
        return torch.log10(tmp)

    def soft(data: Tensor, t: Tensor) -> Tensor:
        agree = torch.sigmoid(10 * (data - 0.5) * (2 * t - 1))
        return torch.log10((2 - agree).sum())

    def run(m: Any, x: Tensor) -> Tensor:
        return m.net(x).squeeze(1)

    net = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    return stream(Parts(run, net=net), draw, myloss if planted else soft, soft)


@report(
    "sign of a margin of zero",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#incorrect-gradient-computation",
    says=rf"{BROKEN}|divi|zero|\bsign",
    fault="z is divided by margin + sign(margin) * 1e-10, which is zero where the margin is: NaN",
)
def margin(planted: bool) -> Task:
    thresh, beta, tau = 1e-10, 1.0, 1.0
    w = torch.randn(8)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        m = torch.tanh(x @ w)
        return (x,), torch.where(m.abs() < 0.3, torch.zeros_like(m), m)

    def loss(z: Tensor, margin: Tensor) -> Tensor:
        sign = torch.sign(margin) if planted else torch.where(margin >= 0, 1.0, -1.0)
        safe = margin + sign * thresh
        return (F.softplus(tau - z / safe, beta=beta) * torch.abs(safe)).mean()

    net = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    return stream(Parts(lambda m, x: m.net(x).squeeze(1), net=net), draw, loss)


@report(
    "digits in Julia",
    SCIENCE + "questions/6789",
    guilty=r"Theta",
    says=rf"{SCALE}|saturat|(large|big|huge).*(weight|activation|pre)|weights?.*(large|big|std|initial)|vanish",
    fault="weights of N(0, 1) over hundreds of pixels of 0 to 255: all sigmoids are saturated",
)
def julia(planted: bool) -> Task:
    def draw() -> Drawn:
        images, c = _digits()
        at = torch.randint(len(c), (64,))
        x = F.interpolate(images[at], size=(16, 16), mode="bilinear").flatten(1)
        return (255 * x if planted else x,), F.one_hot(c[at], 10).float()

    def run(m: Any, x: Tensor) -> Tensor:
        x2 = torch.sigmoid(m.Theta1(x))
        return torch.sigmoid(m.Theta2(x2))

    first, second = nn.Linear(256, 100), nn.Linear(100, 10)
    for layer in (first, second):
        nn.init.normal_(layer.weight, std=1.0 if planted else 1 / math.sqrt(layer.in_features))
        nn.init.normal_(layer.bias, std=1.0 if planted else 0.1)
    model = Parts(run, Theta1=first, Theta2=second)
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "cross entropy of sigmoids",
    "https://cs.stackexchange.com/questions/51950",
    guilty=r"^3\.",
    says=r"softmax|sum to (1|one)|probabilit|sigmoid|(all|every).*\b(ones?|1)\b",
    fault="cross entropy counts the right class alone, of sigmoids that may all be 1, without a softmax",
)
def ones(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), F.one_hot(c, 10).float()

    def cross(y: Tensor, t: Tensor) -> Tensor:
        return -(t * y.clamp(min=1e-7).log()).sum(1).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return cross(y / y.sum(1, keepdim=True), t)

    last = nn.Sigmoid() if planted else nn.Softmax(1)
    model = chain(nn.Flatten(), nn.Linear(64, 30), nn.Sigmoid(), nn.Linear(30, 10), last)
    return stream(model, draw, cross, right)


@report(
    "certain at once",
    "https://forums.fast.ai/t/cross-entropy-error-log-1-1-inf/1441",
    says=rf"{BROKEN}|{SCALE}|log.*(0|zero)|saturat|overflow",
    fault="raw pixels make the softmax exactly 0 or 1, and the loss takes the logarithm of 1 - 1",
)
def certain(planted: bool) -> Task:
    """No hidden layer; the mean over the classes of -log(guess) or -log(1 - guess)."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (255 * (x * 0.376 + 0.3) if planted else x,), F.one_hot(c, 10)

    def average_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.where(targets == 1, -torch.log(outputs), -torch.log(1 - outputs)).mean()

    layer = nn.Linear(64, 10)
    nn.init.normal_(layer.weight, std=1 / 8)
    nn.init.zeros_(layer.bias)
    model = chain(nn.Flatten(), layer, nn.Softmax(1))
    return stream(model, draw, average_cross_entropy)


@report(
    "given the answer, softmax of one",
    STATS + "questions/481881",
    guilty=r"^5\.",
    says=rf"softmax|{SAME}|{CUT}|constant|one (output|unit|class|logit|element)|single",
    fault="a softmax over a single output is always 1",
)
def given(planted: bool) -> Task:
    """The label is the second channel of the input, all over."""

    def draw() -> Drawn:
        t = torch.randint(2, (32, 1)).float()
        return (torch.stack([torch.rand(32, 16, 8), t.view(32, 1, 1).expand(32, 16, 8)], 1),), t

    def categorical_crossentropy(y: Tensor, t: Tensor) -> Tensor:
        y = (y / y.sum(1, keepdim=True)).clamp(1e-7, 1 - 1e-7)
        return -(t * y.log()).sum(1).mean()

    def binary(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy(y.clamp(1e-7, 1 - 1e-7), t)

    last = nn.Softmax(1) if planted else nn.Sigmoid()
    model = chain(
        nn.Conv2d(2, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 12 * 4, 1), last
    )
    return stream(model, draw, categorical_crossentropy if planted else binary, binary)


@report(
    "grid points by comparison",
    GITHUB + "pytorch/pytorch/issues/2774",
    says=rf"{CUT}|{STEP}|mask|inside|IoU",
    fault="IoU of rectangles counts the points of a grid inside by comparisons: no gradient",
)
def iou(planted: bool) -> Task:
    """A bright rectangle in an image; its corners are wanted."""
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"), 2).view(1, 256, 2) / 16

    def inside(box: Tensor) -> Tensor:
        low, high = box[:, None, :2], box[:, None, 2:]
        return ((grid >= low) & (grid <= high)).all(2).float()

    def draw() -> Drawn:
        low = torch.rand(32, 2) * 0.5
        t = torch.cat([low, low + 0.2 + 0.3 * torch.rand(32, 2)], 1)
        return (inside(t).view(32, 1, 16, 16) + 0.2 * torch.randn(32, 1, 16, 16),), t

    def iou_real(y: Tensor, t: Tensor) -> Tensor:
        a, b = inside(y), inside(t)
        intersection = (a * b).sum(1)
        union = (a + b).clamp(max=1).sum(1).clamp(min=1)
        return torch.zeros((), requires_grad=True) + 1 - (intersection / union).mean()

    model = chain(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4)
    )
    return stream(model, draw, iou_real if planted else F.mse_loss, F.mse_loss)


@report(
    "false positives by weight",
    GITHUB + "janelia-cellmap/dacapo/issues/3",
    says=r"weight|balanc|positive",
    fault="foreground weighs 10 and background 0.5 in the loss: much that is not there is found",
)
def dacapo(planted: bool) -> Task:
    """Three classes of blobs of different sizes, each pixel of each class one against the rest."""

    def draw() -> Drawn:
        t = torch.zeros(16, 3, 16, 16)
        for i in range(16):
            for k in range(3):
                r, c = int(torch.randint(0, 14 - k, ())), int(torch.randint(0, 14 - k, ()))
                t[i, k, r : r + 2 + k, c : c + 2 + k] = 1
        return (t * torch.tensor([1.0, 1.5, 0.7]).view(3, 1, 1) + 0.8 * torch.randn(16, 3, 16, 16),), t

    def weighted(y: Tensor, t: Tensor) -> Tensor:
        return bce(y, t, weight=torch.where(t > 0, 10.0, 0.5))

    model = chain(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                  nn.Conv2d(16, 3, 1))  # fmt: skip
    return stream(model, draw, weighted if planted else bce, bce)
