"""A twenty-seventh set of faults: what people asked about networks that train badly, and were answered."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind27")
SHAPES = r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze"
SCALE = r"scale|large|huge|range|normali|standardi|magnitude|unscaled|satur"


def glorot(model: nn.Module) -> nn.Module:
    """Initialise as Keras does."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return model


def categorical(y: Tensor, t: Tensor) -> Tensor:
    """Cross-entropy of probabilities, clipped as Keras does."""
    return F.nll_loss(y.clamp(1e-7, 1 - 1e-7).log(), t)


@report(
    "sum of three columns",
    "https://discuss.pytorch.org/t/output-of-the-model-depends-on-the-shape-of-the-weights-tensor/148155",
    says=SHAPES,
    fault="MSE of outputs (N, 1) and targets (N,): every pair of examples is compared",
)
def columns(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(1024, 3)
        return (x,), x[:, 0] + x[:, 1] + x[:, 2]

    def right(y: Tensor, t: Tensor) -> Tensor:
        return (y - t.unsqueeze(1)).square().mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return (y - t).square().mean()

    m = chain(nn.Linear(3, 1, bias=False))
    m[0].weight = nn.Parameter(torch.tensor([[0, 0, 0]], dtype=torch.float))
    return stream(m, draw, wrong if planted else right, right)


@report(
    "head of one's own for RetinaNet",
    GITHUB + "yhenon/pytorch-retinanet/issues/41",
    guilty=r"output",
    says=r"prior|\bbias\b|imbalance|background|initiali[sz]|clamp|satur",
    fault="a new classification head is not initialised to rare objects as the focal loss needs it",
)
def retinanet(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(16)
        canvas, labels = -0.8 * torch.ones(16, 1, 32, 32), torch.zeros(16, 64, 10)
        places = torch.randint(0, 25, (16, 2)).tolist()
        for i, (r, s) in enumerate(places):
            canvas[i, :, r : r + 8, s : s + 8] = x[i]
            labels[i, 8 * ((r + 4) // 4 - (r + 4) // 32) + (s + 4) // 4 - (s + 4) // 32, c[i]] = 1
        return (canvas,), labels

    def focal(classification: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
        classification = torch.clamp(classification, 1e-4, 1.0 - 1e-4)
        alpha_factor = torch.where(targets == 1, alpha, 1 - alpha)
        focal_weight = alpha_factor * torch.where(targets == 1, 1 - classification, classification) ** gamma
        bce = -(targets * torch.log(classification) + (1 - targets) * torch.log(1 - classification))
        return (focal_weight * bce).sum() / targets.sum()

    class ClassificationModel(nn.Module):
        def __init__(self, n: int, width: int = 32) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(n, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
            self.output = nn.Conv2d(width, 10, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            out = self.output(F.relu(self.conv2(F.relu(self.conv1(x)))))
            return torch.sigmoid(out).permute(0, 2, 3, 1).flatten(1, 2)

    class RetinaNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(
                nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            )  # fmt: skip
            self.classificationModel = ClassificationModel(32)

        def forward(self, x: Tensor) -> Tensor:
            return self.classificationModel(self.body(x))

    model = RetinaNet()
    if not planted:
        model.classificationModel.output.weight.data.fill_(0)
        model.classificationModel.output.bias.data.fill_(-torch.tensor((1.0 - 0.01) / 0.01).log().item())  # type: ignore[union-attr]
    return stream(model, draw, focal)


@report(
    "exponential of the cross-entropy",
    "https://whosebug.com/question/6301115/Weird-behaviour-of-loss-function-in-pytorch",
    says=rf"{BROKEN}|\bexp|overflow|unbounded|explo|unstable",
    fault="the loss is exp(cross-entropy / 2): confident mistakes overflow it",
)
def exponential(planted: bool, eta: float = 2.0) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    def wrong(output: Tensor, target: Tensor) -> Tensor:
        return torch.exp(F.cross_entropy(output, target) / eta)

    client_model = chain(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    return stream(client_model, draw, wrong if planted else F.cross_entropy, F.cross_entropy)


@report(
    "root of a distance of zero",
    "http://ddrv.cn/?p=758668",
    says=rf"{BROKEN}|sqrt|square root|root of|derivative|(at|distance).*\bzero",
    fault="the square root of a squared distance, whose derivative is infinite where prediction and target agree",
)
def gps(planted: bool) -> Task:
    """The next position of a vehicle from its last eight; some are parked at the origin. Biases of 0, as in Keras."""

    def draw() -> Drawn:
        steps = 0.2 * torch.randn(64, 1, 2) + 0.05 * torch.randn(64, 9, 2)
        path = steps.cumsum(1) + torch.rand(64, 1, 2)
        path[::16] = 0
        return (path[:, :8],), path[:, 8]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        lx, ly = (y - t).unbind(1)
        square = torch.square(lx) + torch.square(ly)
        return torch.sqrt(square if planted else square + 1e-10).mean()

    model = chain(nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    return stream(glorot(model), draw, loss)


@report(
    "binary cross-entropy by hand",
    "https://e-com-net.com/article/1609698298044645376.htm",
    says=rf"{BROKEN}|\blog|clamp|satur|{SCALE}",
    fault="target * log(pred) + (1 - target) * log(1 - pred) without a clamp, where sigmoids reach 0 or 1",
)
def by_hand(planted: bool, weight: float = 2.0) -> Task:
    """A weighted loss; at first the predictions are very large or small."""
    w = torch.randn(12)

    def draw() -> Drawn:
        x = torch.randn(64, 12)
        return (x * 150,), (x @ w + 0.5 * torch.randn(64) > 0).float().unsqueeze(1)

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        if not planted:
            pred = torch.clamp(pred, min=1e-7, max=1 - 1e-7)
        return (-weight * target * torch.log(pred) - (1 - target) * torch.log(1 - pred)).mean()

    return stream(
        chain(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid()), draw, loss
    )


@report(
    "Celsius to Fahrenheit",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#celsius-to-f-linear-regression",
    says=SCALE,
    fault="temperatures of -500 to 500 are fed, and predicted, as they are",
)
def celsius(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(-500, 501, (128, 1)).float()
        f = 1.8 * c + 32 + 0.3 * torch.randn(128, 1)
        return ((c,), f) if planted else ((c / 289,), (f - 32) / 520)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / (520**2 if planted else 1)

    return stream(chain(nn.Linear(1, 1)), draw, F.mse_loss, right)


@report(
    "loss of the last character",
    "https://learn.biosrag.com/ai/rnn-training.html",
    says=r"last (step|time|position|output|character|token)|time.?steps?|positions?\b|only one",
    fault="a loop over the losses of all steps keeps the last alone",
)
def characters(planted: bool, d: int = 128) -> Task:
    def draw() -> Drawn:
        x, t = text(16, 16, 96, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class RNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cell_x = nn.Embedding(96, d), nn.Linear(d, d)
            self.cell_h, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, 96)

        def forward(self, x: Tensor) -> Tensor:
            h, outputs = torch.zeros(len(x), d), []
            for e in self.embed(x).unbind(1):
                h = torch.sigmoid(self.cell_x(e) + self.cell_h(h))
                outputs.append(self.out(h))
            return torch.stack(outputs, 1)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    def loss(y: Tensor, t: Tensor) -> Tensor:
        losses = [F.cross_entropy(y[:, i], t[:, i]) for i in range(t.shape[1])]
        return losses[-1] if planted else torch.stack(losses).sum()

    return stream(RNN(), draw, loss, right)


@report(
    "review read past its end",
    "https://seungminnam.github.io/DL-Projects/5_LSTM_Sentiment/summary.html",
    guilty=r"embedding|lstm",
    says=r"padd|mask|last (state|step|hidden)|forget|vanish|\blong\b",
    fault="the LSTM's last state is taken after dozens of steps of padding",
)
def sentiment(planted: bool, length: int = 96) -> Task:
    def draw() -> Drawn:
        n, t = torch.randint(6, 20, (48,)), torch.randint(0, 2, (48,))
        x = torch.randint(20, 200, (48, length))
        for i in range(48):
            at = torch.randperm(int(n[i]))[:2]
            x[i, at] = torch.randint(2, 11, (2,)) + 9 * t[i]
        return (x * (torch.arange(length) < n.unsqueeze(1)), n), t.float()

    class SentimentLSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(200, 32, padding_idx=0)
            self.lstm, self.fc = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 1)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            e: Any = self.embedding(x)
            if not planted:
                e = pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False)
            _, (h_n, _) = self.lstm(e)
            return self.fc(h_n[-1]).squeeze(1)

    return stream(SentimentLSTM(), draw, F.binary_cross_entropy_with_logits)


@report(
    "batch normalisation of a single image",
    "https://example-a.com/answer/67856852",
    guilty=r"batch_normalization|dense\.|conv",
    says=rf"{SAME}|{CUT}|batch.*(\bone\b|\b1\b|single)|(\bone|single).*(example|batch)|zero|normali",
    fault="batch normalisation after flattening in training mode with batches of one: its outputs are zero",
)
def single(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(1 if planted else 32)
        return (x,), c

    class BatchNormalization(nn.Module):
        def __init__(self, n: int, epsilon: float = 1e-3) -> None:
            super().__init__()
            self.gamma, self.beta, self.epsilon = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n)), epsilon

        def forward(self, x: Tensor) -> Tensor:
            mean, var = x.mean(0), x.var(0, correction=0)
            return (x - mean) / torch.sqrt(var + self.epsilon) * self.gamma + self.beta

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv2d, self.dropout = nn.Conv2d(1, 32, 3), nn.Dropout(0.1)
            self.dense, self.batch_normalization = nn.Linear(288, 64), BatchNormalization(64)
            self.dense_1 = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv2d(x)), 2)
            x = self.batch_normalization(F.relu(self.dense(self.dropout(x.flatten(1)))))
            return self.dense_1(x)

    return stream(Model(), draw, F.cross_entropy)


@report(
    "sine of a thousand steps",
    "https://stackoverflow.com/questions/46995209",
    guilty=r"^0\.",
    says=SCALE,
    fault="time steps of 0 to 1000 are fed into tanh units, which saturate",
)
def sine(planted: bool, steps: int = 1000) -> Task:
    def draw() -> Drawn:
        x = torch.randint(0, steps, (256, 1)).float()
        y = torch.sin(3.5 * torch.pi * x / steps)
        return ((x if planted else (x - steps / 2) / (0.289 * steps)),), y

    model = chain(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    return stream(glorot(model), draw, F.mse_loss)


@report(
    "model that knows of no layers",
    "https://theflyingbirds.in/blog/pytorch-mysteries-lets-understand-nnmodule-nnparameter-modulelist-sequential-and-"
    "the-classic-layers-linear-activations-dropout",
    guilty=r"layers",
    says=r"regist|ModuleList|parameters\(\)|plain list|not.*parameter",
    fault="the linear layers are kept in a Python list, so that the optimiser is given the normalisation alone",
)
def unknown(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(64)
            layers = [nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)]
            self.layers: Any = layers if planted else nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(x)
            for layer in self.layers[:-1]:
                x = F.relu(layer(x))
            return self.layers[-1](x)

    return stream(Net(), draw, F.cross_entropy)


@report(
    "CNN of bytes",
    "http://pullrequest.ru/10248037/cnn-keras-shodyatsya-odnomu-tomu-zhe-znacheniy-nezavisimo-vvoda",
    says=SCALE,
    fault="pixels of 0 to 255 are fed into a CNN",
)
def cnn_bytes(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        x = x * 0.376 + 0.3
        return (x * 255 if planted else x,), c

    model = chain(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10), nn.Softmax(1),
    )  # fmt: skip
    return stream(glorot(model), draw, categorical)


@report(
    "tutorial without the division by 255",
    "https://stats.stackexchange.com/questions/372762/why-normalize-when-all-features-are-on-the-same-scale",
    says=SCALE,
    fault="flattened pixels of 0 to 255 are fed into dense layers: the softmax starts saturated",
)
def mlp_bytes(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        x = x * 0.376 + 0.3
        return (x * 255 if planted else x,), c

    model = chain(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10), nn.Softmax(1))
    return stream(glorot(model), draw, categorical)
