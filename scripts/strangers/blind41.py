"""A forty-first set of faults, a sample of reports that threads tell, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind41")
SCALE = r"(input|feature|column|target|label).*(scale|large|range|magnitude|unit|std|spread)|normali[sz]|standardi[sz]"


@report(
    "even and odd by the number",
    "https://stats.stackexchange.com/questions/161189",
    says=r"binary|\bbits?\b|one.?hot|represent|encod|integer|whole number|parity|modulo|oscillat|categor",
    fault="whether a number is even is to be learnt from the number itself as one input",
)
def parity(planted: bool) -> Task:
    """One input, nine hidden neurons, one output; repaired, the number in binary of fixed length."""

    def draw() -> Drawn:
        n = torch.randint(1, 101, (64, 1))
        x = n.float() if planted else (n >> torch.arange(7) & 1).float()
        return (x,), 1 - (n % 2).float()

    model = chain(nn.Linear(1 if planted else 7, 9), nn.Sigmoid(), nn.Linear(9, 1), nn.Sigmoid())
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "sine by the time index",
    "https://pytroubles.com/en/posts/id2679",
    guilty=r"lstm",
    says=SCALE + r"|\btime|\bramp|index|histor",
    fault="the LSTM reads the time index, up to two thousand, instead of the series, whose amplitude of 20 is raw",
)
def sine(planted: bool) -> Task:
    """The next 20 values of 20 sin x after a window of 20."""

    def draw() -> Drawn:
        x = torch.randint(0, 3960, (32, 1)) * 0.5 + torch.arange(40) * 0.5
        y = 20 * torch.sin(x)
        if planted:
            return (x[:, :20, None],), y[:, 20:]
        return (y[:, :20, None] / 20,), y[:, 20:] / 20

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.dense = nn.LSTM(1, 64, batch_first=True), nn.Linear(64, 20)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense(self.lstm(x)[0][:, -1])

    if planted:
        return stream(Net(), draw, F.mse_loss, lambda y, t: F.mse_loss(y / 20, t / 20))
    return stream(Net(), draw, F.mse_loss)


@report(
    "steering through a sigmoid",
    "http://dvbuntu.github.io/wisdom/2016/08/18/steer/",
    guilty=r"^8\.",
    says=r"sigmoid|(output|predict).*(range|reach|negative|bound|limit)|target.*(range|reach|negative|outside)",
    fault="steering from −1 to 1 is predicted through a sigmoid: zero for every turn to the left",
)
def steering(planted: bool) -> Task:
    """A road that bends, seen from above; a small convolutional network and the mean square."""
    rows, columns = torch.arange(16).view(16, 1) / 15, torch.arange(16).view(1, 16) / 7.5 - 1

    def draw() -> Drawn:
        s = torch.rand(32, 1) * 2 - 1
        bend = s.view(-1, 1, 1) * rows**2 + 0.1 * torch.randn(32, 1, 1)
        x = torch.exp(-((columns - bend) ** 2) / 0.05) + 0.1 * torch.randn(32, 16, 16)
        return (x.unsqueeze(1),), s

    layers: list[nn.Module] = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()]
    layers += [nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)]
    return stream(chain(*layers, *([nn.Sigmoid()] if planted else [])), draw, F.mse_loss)


@report(
    "identical digits of a VAE",
    "http://blog.shlomidom.com/Fixing-VAE-model-reconstructions",
    guilty=r"mu|logvar",
    says=r"\bKL|kld|posterior|collapse|latent|outweigh|dominat|reduction|balance|terms? of the loss|loss terms?",
    fault="the reconstruction error is a mean over pixels, the divergence a sum: every digit is rebuilt alike",
)
def shlomi(planted: bool) -> Task:
    """A VAE of digits; mended, the binary cross-entropy summed over the pixels."""

    def draw() -> Drawn:
        x = (pick(64)[0] * 0.376 + 0.3).clamp(0, 1).flatten(1)
        return (x,), x

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(64, 64), nn.ReLU())
            self.mu, self.logvar = nn.Linear(64, 8), nn.Linear(64, 8)
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.encoder(x)
            mu, logvar = self.mu(h), self.logvar(h)
            return self.decoder(mu + torch.randn_like(mu) * (0.5 * logvar).exp()), mu, logvar

    def divergence(mu: Tensor, logvar: Tensor) -> Tensor:
        return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()

    def wrong(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x) + divergence(y[1], y[2])

    def right(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.binary_cross_entropy(y[0], x, reduction="sum") / len(x) + divergence(y[1], y[2])

    return stream(VAE(), draw, wrong if planted else right, right)


@report(
    "rows that nobody reads",
    "https://discuss.pytorch.org/t/gradients-contaminated-by-unused-inputs/135053",
    says=rf"{BROKEN}|\bpad",
    fault="rows of NaN pass through the layer and are cut off after it: zero times NaN is in every gradient",
)
def unused_rows(planted: bool) -> Task:
    """Each batch is filled up to 64 rows; the loss sees the first 48."""
    w = torch.randn(8, 1)

    def draw() -> Drawn:
        x = torch.rand(48, 8)
        t = torch.sin(x @ w)
        return (torch.cat([x, torch.full((16, 8), math.nan if planted else 0.0)]),), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.L, self.out = nn.Linear(8, 64), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.tanh(self.L(x)[:48]))

    return stream(Net(), draw, F.mse_loss)


@report(
    "key points without a weight filler",
    GITHUB + "olddocks/caffe-facialkp/issues/1",
    guilty=r"conv|ip|weight|bias",
    says=r"\bzero|initiali[sz]|constant|same (output|answer|prediction)|symmetr|identical",
    fault="no weight filler in the network's file: every weight and bias starts at zero, all faces get the same points",
)
def facial(planted: bool) -> Task:
    """Centres of two blobs in an image, scaled to −1 and 1, by the square loss."""
    at = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))

    def draw() -> Drawn:
        points = torch.rand(32, 2, 2) * 8 + 4
        points[:, 1, 0] = points[:, 0, 0]
        points[:, 0, 1], points[:, 1, 1] = points[:, 0, 1] * 0.5, 8 + points[:, 1, 1] * 0.5
        x = torch.exp(-((at - points.view(32, 2, 2, 1, 1)) ** 2).sum(2) / 4).sum(1, keepdim=True)
        return (x + 0.05 * torch.randn(32, 1, 16, 16),), points.flatten(1) / 8 - 1

    class FacialNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.ip1, self.ip2 = nn.Linear(256, 64), nn.Linear(64, 4)
            for p in self.parameters() if planted else ():
                nn.init.zeros_(p)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            return self.ip2(F.relu(self.ip1(x.flatten(1))))

    return stream(FacialNet(), draw, F.mse_loss)


@report(
    "vanilla VGG of Torch",
    GITHUB + "soumith/imagenet-multiGPU.torch/issues/63",
    guilty=r"features.*weight",
    says=r"vanish|shrink|fade|decay|dies|small|initiali[sz]|same (output|answer|prediction)|constant|gradient|\bgain",
    fault="thirteen convolutions of Torch's own initialisation without a batch norm after them: nothing moves",
)
def vgg16(planted: bool) -> Task:
    """Digits; mended as in the thread, a batch norm after each convolution."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class VGG(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            n = 1
            for width in (8, 8, 0, 16, 16, 0, 24, 24, 24, 0, 32, 32, 32, 32, 32, 32):
                if width:
                    layers += [nn.Conv2d(n, width, 3, padding=1), *([] if planted else [nn.BatchNorm2d(width)])]
                    layers += [nn.ReLU()]
                    n = width
                else:
                    layers += [nn.MaxPool2d(2)]
            self.features, self.classifier = chain(*layers), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.classifier(self.features(x).flatten(1))

    return stream(VGG(), draw, F.cross_entropy)
