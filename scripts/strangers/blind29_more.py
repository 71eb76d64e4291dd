"""The rest of the twenty-ninth set: sequences, attention, series, images and tables that people ask about."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.blind29 import AI, SCALE, SOLO, STATS
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind29")


@report(
    "a column of wild changes",
    AI + "questions/40022",
    says=rf"{SCALE}|outlier|heavy|target.*(scale|large|range|magnitude|varian)|varian|(scale|magnitude).*target",
    fault="one of the series changes by up to thousands of per cent, as an input and as a target beside small ones",
)
def changes(planted: bool) -> Task:
    """Parallel flows of convolutions and an LSTM are added; the next changes of three series are predicted."""

    def draw() -> Drawn:
        n, length = 32, 17
        z = torch.randn(n, length, 3)
        a, turn = [z[:, 0, :2] * 0.3], 0.95 * torch.tensor([[0.7, 0.7], [-0.7, 0.7]])
        for i in range(1, length):
            a.append(a[-1] @ turn + 0.1 * z[:, i, :2] + 0.03 * z[:, i - 1, 2:])
        level = torch.exp(4 + 2.5 * z[:, :, 2:])
        old = level.roll(1, 1)
        new = torch.log(level / old) if not planted else level / old - 1
        x = torch.cat([3 * torch.stack(a, 1), new], 2)[:, 1:]
        return (x[:, :-1],), x[:, -1]

    class Flow(nn.Module):
        def __init__(self, kernel: int) -> None:
            super().__init__()
            self.cnn = chain(
                nn.Conv1d(3, 16, kernel, padding=kernel // 2), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU()
            )
            self.lstm = nn.LSTM(16, 24, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(self.cnn(x.transpose(1, 2)).transpose(1, 2))[0][:, -1]

    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(sum(flow(x) for flow in m.flows))

    kernels = iter((1, 3, 5))
    flows = each(3, lambda: Flow(next(kernels)))
    model = Parts(run, flows=flows, fc=chain(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3)))
    return stream(model, draw, F.mse_loss, lambda y, t: F.mse_loss(y[:, :2], t[:, :2]))


@report(
    "variance of the outputs",
    STATS + "questions/564809",
    says=rf"varian|precision|spread|{MIXED}",
    fault="the likelihood takes the variance of the network's outputs over the batch for that of the noise",
)
def variance(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(64, 1) * 4 - 2
        return (x,), 0.8 * x + 0.3 + 0.3 * torch.randn(64, 1)

    def custom_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        prec = 1 / torch.var(outputs if planted else outputs - targets)
        not_mse = 0.5 * prec * torch.mean(torch.pow(outputs - targets, 2))
        return not_mse - 0.5 * torch.log(prec)

    return stream(chain(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)), draw, custom_loss, F.mse_loss)


@report(
    "dot products of two LSTMs",
    "https://reddit.gpgaming.de/r/learnmachinelearning/comments/1qukt1i",
    guilty=r"encoder|decoder",
    says=r"(score|logit|attention|dot).*(scale|sqrt|large|saturat|peak|one.?hot|entrop)|softmax.*(satur|large|peak)|sqrt",
    fault="dot-product attention is not divided by the root of its width: the softmax saturates",
)
def translation(planted: bool, d: int = 64) -> Task:
    """Words are translated by a table, and their order is turned round; the decoder is told the word before."""
    table = torch.randperm(30)

    def draw() -> Drawn:
        src = torch.randint(30, (32, 8))
        tgt = table[src].flip(1)
        return (src, torch.cat([torch.full((32, 1), 30), tgt[:, :-1]], 1)), tgt

    def run(m: Any, src: Tensor, tgt: Tensor) -> Tensor:
        memory, state = m.encoder(m.source(src))
        h = m.decoder(m.target(tgt), state)[0]
        scores = h @ memory.transpose(1, 2)
        if not planted:
            scores = scores / math.sqrt(d)
        return m.out(torch.tanh(m.mix(torch.cat([scores.softmax(2) @ memory, h], 2))))

    model = Parts(
        run, source=nn.Embedding(30, d), target=nn.Embedding(31, d), encoder=nn.LSTM(d, d, batch_first=True),
        decoder=nn.LSTM(d, d, batch_first=True), mix=nn.Linear(2 * d, d), out=nn.Linear(d, 30),
    )  # fmt: skip
    return stream(model, draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "queries that may see nothing",
    "https://jishuzhan.net/article/1923596331659153410",
    says=rf"{BROKEN}|mask|-inf|\binf\b",
    fault="the mask of some queries is -inf for every key: their softmax is NaN",
)
def unseeing(planted: bool, d: int = 32) -> Task:
    """Patches attend to words of which they see some; a few patches of background see none."""

    def draw() -> Drawn:
        x, c = pick(32)
        words = torch.randint(20, (32, 5))
        mask = torch.rand(32, 16, 5) < 0.6
        mask[:, 0], mask[:, 15] = False, False
        return (x, words, mask), c * 2 + words[:, 0] % 2

    def attend(query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor) -> Tensor:
        attention_mask_float = torch.full(attention_mask.shape, float("-inf")).masked_fill(attention_mask, 0.0)
        if not planted:
            all_inf_rows = (attention_mask_float == float("-inf")).all(-1)
            last = attention_mask_float[..., -1].masked_fill(all_inf_rows, 0.0)
            attention_mask_float = torch.cat([attention_mask_float[..., :-1], last.unsqueeze(-1)], -1)
        scores = query @ key.transpose(1, 2) / math.sqrt(d) + attention_mask_float
        return scores.softmax(-1) @ value

    def run(m: Any, x: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        patches = m.patches(x).flatten(2).transpose(1, 2) + m.places
        w = m.words(words) + m.order
        h = patches + attend(m.query(patches), m.key(w), m.value(w), mask)
        return m.head(F.relu(m.norm(h)).flatten(1))

    model = Parts(
        run, patches=nn.Conv2d(1, d, 2, 2), places=nn.Parameter(0.1 * torch.randn(16, d)), words=nn.Embedding(20, d),
        order=nn.Parameter(0.1 * torch.randn(5, d)), query=nn.Linear(d, d), key=nn.Linear(d, d), value=nn.Linear(d, d),
        norm=nn.LayerNorm(d), head=nn.Linear(16 * d, 20),
    )  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report(
    "identity without a skip",
    AI + "questions/36680",
    guilty=r"down|middle|up|out",
    says=r"skip|residual|shortcut|bottleneck|identity",
    fault="a convolutional encoder and decoder are to learn the identity with no connection around them",
)
def identity(planted: bool) -> Task:
    """A single image is to be overfitted."""
    image = pick(1)[0]

    def draw() -> Drawn:
        return (image,), image

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.up(F.relu(m.middle(F.relu(m.down(x)))))
        y = m.out(F.relu(z))
        return y if planted else x + y

    model = Parts(run, down=nn.Conv2d(1, 16, 3, 2, 1), middle=nn.Conv2d(16, 16, 3, padding=1),
                  up=nn.ConvTranspose2d(16, 16, 2, 2), out=nn.Conv2d(16, 1, 3, padding=1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report(
    "multiplication without activation",
    SOLO + "1467062",
    guilty=r"^[01]\.",
    says=r"linear|no (activation|non-?linear)|activation",
    fault="two neurons in the hidden layer and no activation: sums are learned, products are not",
)
def product(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(0, 6, (64, 2)).float()
        return (x,), x[:, :1] * x[:, 1:]

    if planted:
        return stream(chain(nn.Linear(2, 2), nn.Linear(2, 1)), draw, F.mse_loss)
    return stream(chain(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)), draw, F.mse_loss)


@report(
    "multiplication without normalisation",
    "https://intellipaat.com/community/11039",
    says=rf"{SCALE}|target.*(scale|large|range|magnitude)|(scale|magnitude|range).*target|saturat",
    fault="factors of 1 to 100 and products of up to 10,000 are not divided by a constant",
)
def azure(planted: bool) -> Task:
    """One hidden layer of 100 sigmoids, initial weights of 0.1; counted in products of up to one."""

    def draw() -> Drawn:
        x = torch.randint(1, 101, (64, 2)).float()
        t = x[:, :1] * x[:, 1:]
        return ((x,), t) if planted else ((x / 100,), t / 1e4)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y / 1e4, t / 1e4) if planted else F.mse_loss(y, t)

    hidden, out = nn.Linear(2, 100), nn.Linear(100, 1)
    for layer in (hidden, out):
        nn.init.uniform_(layer.weight, -0.1, 0.1)
        nn.init.uniform_(layer.bias, -0.1, 0.1)
    return stream(chain(hidden, nn.Sigmoid(), out), draw, F.mse_loss, right)


@report(
    "softmax by exp alone",
    GITHUB + "escontra/Numpy-CNN/issues/3",
    guilty=r"fc2",
    says=rf"{BROKEN}|overflow|\bexp\b|(large|huge|big).*(logit|output)|(logit|output)s?.*(large|huge|big)",
    fault="the outputs of the last dense layer are so large that exp overflows in the softmax: NaN",
)
def naive(planted: bool) -> Task:
    """Two convolutions, a pooling and two dense layers of weights N(0, 1), on pixels of 0 to 255."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (255 * (x * 0.376 + 0.3),), F.one_hot(c, 10).float()

    def run(m: Any, x: Tensor) -> Tensor:
        z = F.max_pool2d(F.relu(m.conv2(F.relu(m.conv1(x)))), 2)
        z = m.fc2(F.relu(m.fc1(z.flatten(1))))
        if not planted:
            z = (z - z.mean(1, keepdim=True)) / (z.std(1, keepdim=True) + 1e-6)
        out = torch.exp(z)
        return out / out.sum(1, keepdim=True)

    def categorical(probs: Tensor, label: Tensor) -> Tensor:
        return -(label * torch.log(probs)).sum(1).mean()

    fc1, fc2 = nn.Linear(128, 64), nn.Linear(64, 10)
    for layer in (fc1, fc2):
        nn.init.normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    model = Parts(run, conv1=nn.Conv2d(1, 8, 3, padding=1), conv2=nn.Conv2d(8, 8, 3, padding=1), fc1=fc1, fc2=fc2)
    return stream(model, draw, categorical)
