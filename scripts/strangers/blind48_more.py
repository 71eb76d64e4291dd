"""The rest of the forty-eighth set: norms and spreads of one value, losses of the wrong kind of number."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind48")
SPARSE = (
    r"imbalanc|unbalanc|rare|sparse|pos_weight|majority|base rate|(label|target|class).*(few|seldom|mostly|zero)|"
    + SAME
)
SCALE = (
    r"inputs?.*(scale|large|big|normali|standard|range|magnitude|unit|satur)|(not|un).?(normali|standard|scaled)|satur"
)


@report(
    "standard deviation of a constant",
    GITHUB + "pytorch/pytorch/issues/4320",
    says=rf"{BROKEN}|\bstd|deviation|sqrt|square root|variance",
    fault="the standard deviation of values that are all equal has a gradient of NaN",
)
def std_gradient(planted: bool) -> Task:
    """Statistics pooling: means and standard deviations over time after ReLUs; some recordings are silence."""

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        t = torch.arange(24).view(1, 1, -1)
        x = torch.sin(t * (0.4 + 0.5 * c.view(-1, 1, 1)) + 6.3 * torch.rand(32, 1, 1)) + 0.2 * torch.randn(32, 1, 24)
        return (x * (c != 0).view(-1, 1, 1),), c

    class Pooling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            # torch.std as it was when reported, without the zero gradient it has been given since
            std = torch.sqrt(x.var(2)) if planted else x.std(2)
            return torch.cat([x.mean(2), std], 1)

    model = chain(
        nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), Pooling(), nn.Linear(32, 32), nn.ReLU(),
        nn.Linear(32, 4),
    )  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report(
    "BASNet with batches of one",
    GITHUB + "xuebinqin/BASNet/issues/42",
    guilty=r"(encoder|bridge|decoder)\.\d\.1\.",
    says=r"batch.?(norm|size)|one example|single example|(mean|statistic|variance).*batch",
    fault="batch normalisation in training with batches of one image",
)
def basnet(planted: bool) -> Task:
    """Encoder and decoder that predict a saliency map by BCE, one image at a time; repaired by group norm."""

    def draw() -> Drawn:
        x, _ = pick(1)
        big = F.interpolate(x * 0.376 + 0.3, size=(16, 16), mode="bilinear")
        shade = 0.5 + torch.rand(1, 1, 1, 1)
        return (big * shade + 0.3 * torch.randn_like(big),), (big > 0.5).float()

    def norm(n: int) -> nn.Module:
        return nn.BatchNorm2d(n) if planted else nn.GroupNorm(4, n)

    def conv(n: int, m: int, dilation: int = 1) -> nn.Sequential:
        return chain(nn.Conv2d(n, m, 3, padding=dilation, dilation=dilation), norm(m), nn.ReLU())

    class BASNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleList([conv(1, 16), conv(16, 32)])
            self.bridge = nn.ModuleList([conv(32, 32, 2)])
            self.decoder = nn.ModuleList([conv(64, 16), conv(32, 16)])
            self.outconv = nn.Conv2d(16, 1, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.encoder[0](x)
            b = self.encoder[1](F.max_pool2d(a, 2))
            z = self.bridge[0](F.max_pool2d(b, 2))
            z = self.decoder[0](torch.cat([F.interpolate(z, scale_factor=2, mode="bilinear"), b], 1))
            z = self.decoder[1](torch.cat([F.interpolate(z, scale_factor=2, mode="bilinear"), a], 1))
            return torch.sigmoid(self.outconv(z))

    return stream(BASNet(), draw, F.binary_cross_entropy)


@report(
    "Bessel's correction of one value",
    GITHUB + "pytorch/pytorch/issues/1381",
    guilty=r"bn",
    says=rf"{BROKEN}|batch.?(norm|size)|one (value|example)|single|variance|0 / 0|divi",
    fault="the batch norm divides by the unbiased variance of one value, as the batch is one example of 1x1 pixels",
)
def bessel(planted: bool) -> Task:
    """A CNN that ends in 1x1 features and a batch norm, fed one example at a time; healthy with 32."""

    def draw() -> Drawn:
        x, c = pick(1 if planted else 32)
        return (x,), c

    class BatchNorm2d(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.weight, self.bias, self.eps = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n)), 1e-5

        def forward(self, x: Tensor) -> Tensor:
            mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)
            x = (x - mean) / (var + self.eps).sqrt()
            return x * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 16, 3), BatchNorm2d(16)
            self.conv2, self.bn2 = nn.Conv2d(16, 32, 6), BatchNorm2d(32)
            self.fc = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.bn1(self.conv1(x)))
            x = F.relu(self.bn2(self.conv2(x)))
            return self.fc(x.flatten(1))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "InputNormalization of one frame",
    GITHUB + "speechbrain/speechbrain/issues/493",
    says=rf"{BROKEN}|\bstd|deviation|one frame|single|normali[sz]",
    fault="features are divided by torch.std over time, which is NaN for a recording of one frame",
)
def one_frame(planted: bool) -> Task:
    """Features (B, T, F) normalised sentence by sentence over their lengths; some sentences have one frame."""

    def draw() -> Drawn:
        c, lengths = torch.randint(4, (32,)), torch.randint(8, 17, (32,))
        lengths[:2] = 1
        t = torch.arange(16).view(1, -1, 1)
        x = torch.sin(t * (0.4 + 0.5 * c.view(-1, 1, 1)) + 6.3 * torch.rand(32, 1, 6)) * 5 - 20
        x = x + torch.randn(32, 16, 6)
        return (x * (t < lengths.view(-1, 1, 1)), lengths), c

    class InputNormalization(nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            x = x.clone()
            for snt_id, n in enumerate(lengths.tolist()):
                current = x[snt_id, :n]
                std = torch.std(current, dim=0) if planted or n > 1 else torch.ones(x.shape[2])
                x[snt_id, :n] = (current - current.mean(dim=0)) / torch.max(std, torch.full_like(std, 1e-10))
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normalize = InputNormalization()
            self.conv1, self.conv2 = nn.Conv1d(6, 32, 5, padding=2), nn.Conv1d(32, 32, 5, padding=2)
            self.out = nn.Linear(32, 4)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            x = self.normalize(x, lengths).transpose(1, 2)
            return self.out(F.relu(self.conv2(F.relu(self.conv1(x)))).mean(2))

    return stream(Model(), draw, F.cross_entropy)


@report(
    "DCGAN discriminator's sigmoid and BCE",
    GITHUB + "soumith/ganhacks/issues/36",
    says=r"sigmoid|satur|logit",
    fault="a sigmoid at the discriminator's output and BCE of it, instead of BCE of logits: large logits saturate",
)
def discriminator(planted: bool) -> Task:
    """Digits against noise; judged by BCE of the discriminator's answers."""

    def draw() -> Drawn:
        x, _ = pick(32)
        return (torch.cat([x, torch.randn_like(x).tanh()]),), (torch.arange(64) < 32).float().unsqueeze(1)

    layers: list[nn.Module] = [
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 2, bias=False),
        nn.Flatten(),
    ]
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
    model = chain(*layers, *([nn.Sigmoid()] if planted else []))
    return stream(model, draw, F.binary_cross_entropy if planted else F.binary_cross_entropy_with_logits)


@report(
    "LSTM of sparse events",
    GITHUB + "keras-team/keras/issues/2578",
    says=SPARSE,
    fault="events of the next step are nearly all 0 and the binary cross entropy is not weighted: all answers are 0",
)
def sparse_events(planted: bool) -> Task:
    """Each of 12 events comes again after a period of its own; an LSTM predicts the next step's events."""

    def draw() -> Drawn:
        period = torch.arange(12) % 3 + 3
        start = torch.randint(60, (32, 1, 12))
        x = ((torch.arange(13).view(1, -1, 1) + start) % period == 0).float()
        return (x[:, :-1],), x[:, 1:]

    def weighted(y: Tensor, t: Tensor) -> Tensor:
        y = y.clamp(1e-7, 1 - 1e-7)
        return F.binary_cross_entropy(y, t, weight=1 + 2 * t)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.dense = nn.LSTM(12, 48, batch_first=True), nn.Linear(48, 12)

        def forward(self, x: Tensor) -> Any:
            return torch.sigmoid(self.dense(self.lstm(x)[0]))

    return stream(Net(), draw, F.binary_cross_entropy if planted else weighted, weighted)


@report(
    "binary weights without a last batch norm",
    GITHUB + "team-approx-bayes/BayesBiNN/issues/1",
    guilty=r"linear_last",
    says=r"(logit|output|loss).*(large|big|scale|magnitude|grow|normali)|(large|big|huge).*(logit|output|loss)",
    fault="the last layer's weights are 1 and -1 and no batch norm follows: logits are as large as the fan-in's root",
)
def bayes_binn(planted: bool) -> Task:
    """A VGG-like network whose weights are signs (gradients pass straight through), batch norm after every layer."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    def sign(w: Tensor) -> Tensor:
        return w + (torch.where(w >= 0, 1.0, -1.0) - w).detach()

    class BinaryConv(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, sign(self.weight), None, self.stride, self.padding)

    class BinaryLinear(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, sign(self.weight))

    class VGG(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = BinaryConv(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
            self.conv2, self.bn2 = BinaryConv(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
            self.linear1, self.bn3 = BinaryLinear(128, 256, bias=False), nn.BatchNorm1d(256)
            self.linear_last = BinaryLinear(256, 10, bias=False)
            self.bn_last = nn.Identity() if planted else nn.BatchNorm1d(10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(F.max_pool2d(self.bn1(self.conv1(x)), 2))
            x = F.relu(F.max_pool2d(self.bn2(self.conv2(x)), 2))
            x = F.relu(self.bn3(self.linear1(x.flatten(1))))
            return self.bn_last(self.linear_last(x))

    return stream(VGG(), draw, F.cross_entropy)


@report(
    "brain.js inputs as they come",
    GITHUB + "BrainJS/brain.js/issues/278",
    says=SCALE,
    fault="inputs are not normalised: they go up to thousands",
)
def brain(planted: bool) -> Task:
    """Four inputs, one hidden layer of sigmoids and a sigmoid output; repaired by division by the highest."""
    highest = 5000.0

    def draw() -> Drawn:
        x = torch.rand(64, 4)
        t = (0.1 + 0.5 * x[:, :1] + 0.3 * x[:, 1:2] * x[:, 2:3]).clamp(max=0.95)
        return (x * highest if planted else x,), t

    model = chain(nn.Linear(4, 20), nn.Sigmoid(), nn.Linear(20, 1), nn.Sigmoid())
    for p in model.parameters():
        nn.init.uniform_(p, -0.2, 0.2)
    return stream(model, draw, F.mse_loss)
