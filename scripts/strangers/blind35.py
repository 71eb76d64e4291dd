"""The thirty-fifth set: faults out of questions and reports, written without sight of rules and findings."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind35")
STATS = "https://stats.stackexchange.com/questions/"
INPUTS = r"inputs?.*(scale|large|normali[sz]|standardi[sz]|range|magnitude)|(scale|large|normali[sz]).*inputs?"
TARGETS = r"targets?.*(scale|large|normali[sz]|standardi[sz]|range|magnitude|far|mean)|(scale|large).*targets?"


@report(
    "square of numbers up to a thousand",
    "https://imathworks.com/matlab/matlab-neural-nets-gradient-descent-issue-for-polynomial-functions",
    says=rf"{INPUTS}|{TARGETS}|saturat",
    guilty=r"net\.0\.",
    fault="inputs 0 to 1000 and targets of variance 9e10 are not standardised",
)
def parabola(planted: bool) -> Task:
    """feedforwardnet(10): ten tanh units and a linear output fit y = x² + 1."""
    mean, deviation = 1e6 / 3 + 1, 298142.0

    def draw() -> Drawn:
        x = torch.rand(64, 1) * 1000
        t = x**2 + 1
        return ((x,), t) if planted else (((x - 500) / 288.7,), (t - mean) / deviation)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / deviation**2 if planted else F.mse_loss(y, t)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    return stream(Net(), draw, F.mse_loss, right)


@report(
    "fourth power of numbers up to a hundred",
    "https://stackoverflow.com/questions/52800582",
    says=rf"{INPUTS}|{TARGETS}|saturat",
    guilty=r"dense1",
    fault="inputs -100 to 100 saturate the sigmoids and outputs reach 1e8",
)
def fourth(planted: bool) -> Task:
    """Dense(50, sigmoid), Dense(50, elu), Dense(1) with Keras's initial weights."""
    deviation = 2.667e7

    def draw() -> Drawn:
        x = torch.rand(64, 1) * 200 - 100
        t = x**4
        return ((x,), t) if planted else ((x / 57.7,), (t - 2e7) / deviation)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / deviation**2 if planted else F.mse_loss(y, t)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense1, self.dense2, self.dense3 = nn.Linear(1, 50), nn.Linear(50, 50), nn.Linear(50, 1)
            for layer in (self.dense1, self.dense2, self.dense3):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.dense3(F.elu(self.dense2(self.dense1(x).sigmoid())))

    return stream(Net(), draw, F.mse_loss, right)


@report(
    "RNN of raw token numbers",
    "https://discuss.pytorch.org/t/what-it-means-when-model-is-unable-to-overfit-small-batch-of-examples-even-though-"
    "it-is-not-small/151285",
    says=rf"{INPUTS}|saturat|vanish",
    guilty=r"rnn",
    fault="numbers of tokens go into an RNN as they are, whose tanh saturates; batch normalisation cured it",
)
def tokens(planted: bool) -> Task:
    """Sentences of four classes, each of which prefers other words of the vocabulary."""

    def draw() -> Drawn:
        c = torch.randint(4, (64,))
        x = torch.randint(1, 2000, (64, 16))
        own = c[:, None] * 500 + torch.randint(1, 500, (64, 16))
        return (torch.where(torch.rand(64, 16) < 0.5, own, x).float(),), c

    class RNN(nn.Module):
        def __init__(self, input_size: int = 1, hidden_size: int = 64, num_classes: int = 4) -> None:
            super().__init__()
            self.norm = None if planted else nn.BatchNorm1d(1)
            self.rnn = nn.RNN(input_size, hidden_size, batch_first=True)
            self.fc = nn.Linear(hidden_size, num_classes)

        def forward(self, x: Tensor) -> Tensor:
            x = x.unsqueeze(-1)
            if self.norm is not None:
                x = self.norm(x.transpose(1, 2)).transpose(1, 2)
            _, h_n = self.rnn(x)
            return self.fc(h_n.squeeze(0))

    return stream(RNN(), draw, F.cross_entropy)


@report(
    "log variances of a wide layer",
    "https://kkew3.github.io/2022/08/31/vae-training-trick.html",
    guilty=r"log_?var",
    says=rf"{BROKEN}|\bexp\b|exponent|overflow|varianc",
    fault="log variances come of a linear layer of N(0, 1) weights over 1024 inputs, and their exponentials overflow",
)
def wide_vae(planted: bool) -> Task:
    k, mix = 1024, torch.randn(8, 1024) / 8**0.5

    def draw() -> Drawn:
        x = torch.randn(64, 8) @ mix + 0.1 * torch.randn(64, k)
        return (x,), x

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mu, self.logvar = nn.Linear(k, 8), nn.Linear(k, 8)
            nn.init.normal_(self.logvar.weight)
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, k))

        def forward(self, x: Tensor) -> Any:
            mu, logvar = self.mu(x), self.logvar(x)
            if not planted:
                logvar = logvar / k
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return self.decoder(z), mu, logvar

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar = y
        return ((recon - x) ** 2).sum(1).mean() - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()

    return stream(VAE(), draw, loss)


@report(
    "polynomial out of linear layers",
    "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#neural-network-for-polynomial-fit",
    guilty=r"net\.\d\.",
    says=r"non-?linear|activation|\blinear (map|function|in|net)|collapse|in a row|affine",
    fault="only linear layers follow each other, so that the network can fit a straight line alone",
)
def cubic(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(64, 1) * 2 - 1
        return (x,), 3 * x**3 + 2 * x**2 + x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = (
                chain(nn.Linear(1, 10), nn.Linear(10, 10), nn.Linear(10, 1))
                if planted
                else chain(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 1))
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    return stream(Net(), draw, F.mse_loss)


@report(
    "LSTM autoencoder ends in a ReLU",
    GITHUB + "cran2367/lstm_autoencoder_classifier/issues/2",
    guilty=r"time_distributed",
    says=r"relu|negative|below (0|zero)|\bsigns?\b",
    fault="the reconstruction passes a ReLU, but standardised data are negative in part",
)
def lstm_autoencoder(planted: bool) -> Task:
    """Five sensors over eight steps, standardised."""
    mix = torch.randn(2, 5)

    def draw() -> Drawn:
        phase, speed = torch.rand(32, 1, 2) * 6.28, 0.3 + torch.rand(32, 1, 2)
        x = torch.sin(phase + speed * torch.arange(8).view(1, 8, 1)) @ mix
        x = x / (0.5 * (mix**2).sum(0)).sqrt()
        return (x,), x

    class LSTMAutoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.LSTM(5, 32, batch_first=True), nn.LSTM(32, 32, batch_first=True)
            self.time_distributed = nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            code = self.encoder(x)[1][0][0]
            y = self.time_distributed(self.decoder(code.unsqueeze(1).repeat(1, 8, 1))[0])
            return F.relu(y) if planted else y

    return stream(LSTMAutoencoder(), draw, F.mse_loss)


@report(
    "ReLU at the end of a variational encoder",
    GITHUB + "pixelite1201/pytorch_coma/issues/21",
    guilty=r"enc_lin",
    says=r"relu|negative|below (0|zero)|varianc|dead",
    fault="F.relu at the end of the encoder keeps means and log variances from being negative",
)
def coma(planted: bool) -> Task:
    """Meshes of 20 vertices with six ways to deform."""
    shapes = torch.randn(6, 60) / 6**0.5

    def draw() -> Drawn:
        x = torch.randn(32, 6) @ shapes
        return (x,), x

    class Coma(nn.Module):
        def __init__(self, z: int = 8) -> None:
            super().__init__()
            self.cheb, self.cheb_dec = chain(nn.Linear(60, 64), nn.ReLU()), nn.Linear(64, 60)
            self.enc_lin, self.dec_lin = nn.Linear(64, 2 * z), nn.Linear(z, 64)

        def forward(self, x: Tensor) -> Any:
            mu, s = self.enc_lin(self.cheb(x)).chunk(2, 1)
            if planted:
                mu, logvar = F.relu(mu), F.relu(s)
            else:
                mu, logvar = F.leaky_relu(mu), 2 * F.logsigmoid(s)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return self.cheb_dec(F.relu(self.dec_lin(z))), mu, logvar

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar = y
        return F.l1_loss(recon, x) - 0.5e-3 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()

    return stream(Coma(), draw, loss)


def cells(count: int = 16) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 16, 16) of a noisy round cell, 0 to 1, and its mask."""
    at, r = 4 + 8 * torch.rand(count, 2, 1, 1), 2 + 3 * torch.rand(count, 1, 1)
    line = torch.arange(16.0)
    t = (((line.view(16, 1) - at[:, 0]) ** 2 + (line - at[:, 1]) ** 2) < r**2).float().unsqueeze(1)
    return (0.3 + 0.4 * t + 0.2 * torch.randn_like(t)).clamp(0, 1), t


@report(
    "two channels behind a ReLU before the sigmoid",
    GITHUB + "zhixuhao/unet/issues/148",
    guilty=r"conv9|conv10",
    says=rf"relu|dead|bottleneck|two channels|{SAME}",
    fault="a convolution to two channels with a ReLU stands before the last sigmoid: images are grey, black or white",
)
def unet(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = cells()
        return (x,), t

    class Unet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.conv3, self.up8 = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
            self.conv8 = nn.Conv2d(16, 8, 3, padding=1)
            self.conv9 = nn.Conv2d(8, 2, 3, padding=1) if planted else None
            self.conv10 = nn.Conv2d(2 if planted else 8, 1, 1)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight)
                    nn.init.zeros_(m.bias)  # type: ignore[arg-type]

        def forward(self, x: Tensor) -> Tensor:
            conv1 = F.relu(self.conv1(x))
            z = F.relu(self.conv3(F.relu(self.conv2(F.max_pool2d(conv1, 2)))))
            z = F.relu(self.up8(F.interpolate(z, scale_factor=2)))
            z = F.relu(self.conv8(torch.cat([conv1, z], 1)))
            if self.conv9 is not None:
                z = F.relu(self.conv9(z))
            return self.conv10(z).sigmoid()

    return stream(Unet(), draw, F.binary_cross_entropy)


@report(
    "Jaccard index of rounded predictions",
    GITHUB + "Golbstein/Keras-segmentation-deeplab-v3.1/issues/6",
    says=rf"{CUT}|\bround|argmax|differentiab|step|piecewise|constant|flat",
    fault="the Jaccard index is computed of rounded predictions and has no gradient",
)
def jaccard(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = cells()
        return (x,), torch.cat([1 - t, t], 1)

    def index(y: Tensor, t: Tensor) -> Tensor:
        inter, union = (y * t).sum((2, 3)), (y + t - y * t).sum((2, 3))
        return 1 - ((inter + 1) / (union + 1)).mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return index(y.round(), t)

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 2, 1),
        nn.Softmax(1),
    )
    return stream(model, draw, wrong if planted else index, index)


@report(
    "series transformer without positions",
    GITHUB + "oliverguhr/transformer-time-series-prediction/issues/3",
    says=r"position|permut|\border of|order.*(ignor|unknown|lost|step)|time step",
    fault="no positional encodings are added, so that the model cannot order the items",
)
def transam(planted: bool) -> Task:
    """Two sines and noise; each step is to tell the value five steps later from all before it."""
    d, steps = 32, 24
    angle = torch.arange(steps).unsqueeze(1) * torch.exp(-9.21 * torch.arange(0, d, 2) / d)
    mask = torch.ones(steps, steps, dtype=torch.bool).triu(1)

    def draw() -> Drawn:
        at = torch.rand(32, 1) * 400 + torch.arange(steps + 5)
        x = torch.sin(at * 0.3) + torch.sin(at * 0.15) + 0.1 * torch.randn(32, steps + 5)
        return (x[:, :-5, None],), x[:, 5:, None]

    class TransAm(nn.Module):
        pe: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("pe", torch.stack([angle.sin(), angle.cos()], 2).flatten(1))
            self.embed = nn.Linear(1, d)
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True)
            self.transformer_encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.decoder = nn.Linear(d, 1)

        def forward(self, src: Tensor) -> Tensor:
            src = self.embed(src)
            return self.decoder(self.transformer_encoder(src if planted else src + self.pe, mask))

    return stream(TransAm(), draw, F.mse_loss)


@report(
    "tied embeddings of unit deviation",
    "https://www.kikim.co/blog/tiny-transformer-lessons",
    guilty=r"token|embed|head",
    says=r"embedding|logits?.*(large|scale|big)|loss.*(chance|uniform|guess)|initial.*loss",
    fault="nn.Embedding's N(0, 1) instead of 0.02 in a small transformer: the loss begins at 80",
)
def tiny(planted: bool) -> Task:
    d, steps = 128, 24
    mask = torch.ones(steps, steps, dtype=torch.bool).triu(1)

    def draw() -> Drawn:
        x, t = text(16, steps, 128, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(128, d), nn.Embedding(steps, d)
            layer = nn.TransformerEncoderLayer(d, 8, 256, 0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d), enable_nested_tensor=False)
            self.head = nn.Linear(d, 128, bias=False)
            self.head.weight = self.token.weight
            if not planted:
                nn.init.normal_(self.token.weight, std=0.02)
                nn.init.normal_(self.position.weight, std=0.02)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.blocks(self.token(x) + self.position.weight, mask))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(Tiny(), draw, loss)


@report(
    "weights between zero and one",
    STATS + "286424",
    guilty=r"hidden|output",
    says=rf"saturat|positive|{SAME}|vanish|sigmoid",
    fault="weights and biases are drawn from 0 to 1, so that all sigmoids saturate",
)
def mnist_random(planted: bool) -> Task:
    """784 inputs, 15 sigmoids, 10 sigmoids, half the squared error."""

    def draw() -> Drawn:
        x, c = pick(32)
        x = F.pad(F.interpolate(x * 0.376 + 0.3, size=(20, 20), mode="bilinear"), (4, 4, 4, 4))
        return (x.flatten(1),), F.one_hot(c, 10).float()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.output = nn.Linear(784, 15), nn.Linear(15, 10)
            for p in self.parameters():
                nn.init.uniform_(p, 0.0 if planted else -0.5, 1.0 if planted else 0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.hidden(x).sigmoid()).sigmoid()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return 0.5 * ((y - t) ** 2).sum(1).mean()

    return stream(Net(), draw, loss)
