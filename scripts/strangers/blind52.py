"""A fifty-second set of faults, out of questions and their answers, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits

report = partial(any_report, blind="blind52")
SCALE = r"inputs?.*(scale|large|normali|standardi|range|magnitude|\bmean\b)|unscaled|unnormali|not (normali|standardi)"


@report(
    "FashionMNIST classifier with ReLU after every linear layer",
    "https://xue-jishu.com/wei-shen-me-zai-xian-xing-ceng-hou-shi-yong-relu-ji-huo-han-shu-hui-dao-zhi-zhun-que-lyu-xia",
    guilty=r"fc2",
    says=r"(?i)relu.*(last|output|logit|final|end)|(last|output|logit|final).*(relu|negative|non-?negative)",
    fault="a ReLU after the last linear layer: logits below zero are cut and pass no gradient",
)
def fashion(planted: bool) -> Task:
    """Two convolutions of 5x5, each with ReLU and pooling, two linear layers; pixels from 0 to 1."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (F.interpolate(x * 0.376 + 0.3, size=(16, 16), mode="bilinear"),), c

    class FashionMnistClassifier(nn.Module):
        def __init__(self, n_inputs: int, n_out: int) -> None:
            super().__init__()
            self.cnn1 = nn.Conv2d(n_inputs, out_channels=16, kernel_size=5)
            self.cnn2 = nn.Conv2d(16, out_channels=32, kernel_size=5)
            self.fc1 = nn.Linear(32, out_features=100)
            self.fc2 = nn.Linear(100, out_features=n_out)
            self.relu = nn.ReLU()
            self.pool = nn.MaxPool2d(kernel_size=2)

        def forward(self, x: Tensor) -> Tensor:
            out = self.pool(self.relu(self.cnn1(x)))
            out = self.pool(self.relu(self.cnn2(out)))
            out = self.relu(self.fc1(out.view(out.size(0), -1)))
            out = self.fc2(out)
            return self.relu(out) if planted else out

    return stream(FashionMnistClassifier(1, 10), draw, nn.CrossEntropyLoss())


@report(
    "focal loss of clamped sigmoids on raw data",
    "https://e-com-net.com/article/1304735720488865792.htm",
    guilty=r"net\.(0|6)\.",
    says=rf"{SCALE}|saturat|clamp",
    fault="data are not normalised: the sigmoid saturates, and the clamp in the own focal loss stops all gradients",
)
def focal(planted: bool) -> Task:
    """Four linear layers, ReLU, a sigmoid, two classes; own focal loss that clamps its input."""
    scale, shift = torch.logspace(0, 4, 12), torch.logspace(0, 4, 12) * torch.randn(12).abs()
    w = torch.randn(12)

    def draw() -> Drawn:
        z = torch.randn(64, 12)
        t = (z @ w + 2 * z[:, 0] * z[:, 1] > 0).float().unsqueeze(1)
        return (z * scale + shift if planted else z,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(
                nn.Linear(12, 64),
                nn.ReLU(),
                nn.Linear(64, 64),
                nn.ReLU(),
                nn.Linear(64, 32),
                nn.ReLU(),
                nn.Linear(32, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    def focal_loss(p: Tensor, t: Tensor, alpha: float = 0.5, gamma: float = 2.0) -> Tensor:
        p = torch.clamp(p, 1e-4, 1 - 1e-4)
        pos = -alpha * (1 - p) ** gamma * t * torch.log(p)
        neg = -(1 - alpha) * p**gamma * (1 - t) * torch.log(1 - p)
        return (pos + neg).mean()

    return stream(Net(), draw, focal_loss)


@report(
    "3 or 7 in pixels of 0 to 255",
    "https://forums.fast.ai/t/lesson-3-book-chapter-4-dividing-by-255/107811",
    guilty=r"^(0|2)\.",
    says=rf"{SCALE}|saturat|255",
    fault="images are not divided by 255, so that the sigmoid in the loss saturates",
)
def threes(planted: bool) -> Task:
    """The book's simple net on flattened images and its mnist_loss; threes against sevens."""
    images, labels = _digits()
    images, labels = images[(labels == 3) | (labels == 7)], labels[(labels == 3) | (labels == 7)]

    def draw() -> Drawn:
        k = torch.randint(len(labels), (64,))
        x = F.interpolate(images[k], size=(28, 28), mode="bilinear").view(-1, 28 * 28) * 255
        return (x if planted else x / 255,), (labels[k] == 3).float().unsqueeze(1)

    def mnist_loss(predictions: Tensor, targets: Tensor) -> Tensor:
        predictions = predictions.sigmoid()
        return torch.where(targets == 1, 1 - predictions, predictions).mean()

    return stream(chain(nn.Linear(28 * 28, 30), nn.ReLU(), nn.Linear(30, 1)), draw, mnist_loss)


@report(
    "CNN with softmax on its only neuron",
    "https://wwe.bdsfgr1.cloudns.ch/localsearch/search?FORM=HDRSC2&q=SoftMax+Activation+Function",
    guilty=r"dense2",
    says=rf"(?i)softmax|{SAME}",
    fault="a softmax over one output is 1 for every input",
)
def neuron(planted: bool) -> Task:
    """Two classes of images, one output neuron, binary cross entropy of probabilities."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x * 0.376 + 0.3,), (c > 4).float().unsqueeze(1)

    class CNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
            self.dense1, self.dense2 = nn.Linear(128, 64), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.dense2(F.relu(self.dense1(x.flatten(1))))
            return torch.softmax(x, 1) if planted else torch.sigmoid(x)

    return stream(CNN(), draw, F.binary_cross_entropy)


class ConvVAE(nn.Module):
    """Images in and out, mean and log variance of the latents."""

    def __init__(self, channels: int, latent: int, size: int = 8) -> None:
        super().__init__()
        k = size // 4
        self.encoder = chain(
            nn.Conv2d(channels, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.z_mean, self.z_log_sigma_sq = nn.Linear(32 * k * k, latent), nn.Linear(32 * k * k, latent)
        self.decoder = chain(
            nn.Linear(latent, 32 * k * k),
            nn.ReLU(),
            nn.Unflatten(1, (32, k, k)),
            nn.ConvTranspose2d(32, 16, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, channels, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Any:
        h = self.encoder(x)
        mu, log_sigma_sq = self.z_mean(h), self.z_log_sigma_sq(h)
        return self.decoder(mu + torch.randn_like(mu) * torch.exp(0.5 * log_sigma_sq)), mu, log_sigma_sq


KL = r"(?i)\bKLD?\b|divergence|posterior|\bprior\b|(term|weight|part)s?.*(domina|outweigh|balance)"


@report(
    "VAE's KL summed over latents beside a mean over pixels",
    "https://stats.stackexchange.com/questions/332179/how-to-weight-kld-loss-vs-reconstruction-loss-in-variational-auto-encoder",
    guilty=r"z_mean|z_log",
    says=KL,
    fault="the KL divergence is summed over latents, the squared error averaged over pixels: KL dominates",
)
def kld(planted: bool) -> Task:
    """A convolutional VAE of digits, judged by its squared error."""

    def draw() -> Drawn:
        x = F.interpolate(pick(64)[0] * 0.376 + 0.3, size=(24, 24), mode="bilinear")
        return (x,), x

    def loss(out: Any, x: Tensor) -> Tensor:
        y, mu, log_sigma_sq = out
        kl_loss = -0.5 * torch.sum(1 + log_sigma_sq - mu.square() - log_sigma_sq.exp(), 1)
        squared = (y - x).square()
        rec_loss = squared.mean((1, 2, 3)) if planted else squared.sum((1, 2, 3))
        return (kl_loss + rec_loss).mean()

    return stream(ConvVAE(1, 16, 24), draw, loss, lambda out, x: F.mse_loss(out[0], x))


@report(
    "VAE of paintings with an unscaled KL term",
    "https://wiki.keldo.uk/content/ai.stackexchange.com_en_all_2023-10/questions/24418/"
    "what-is-the-impact-of-scaling-the-kl-divergence-and-reconstruction-loss-in-the",
    guilty=r"z_mean|z_log",
    says=KL,
    fault="the KL term at weight 1 makes reconstructions unrecognisable; at 0.1 they are good",
)
def paintings(planted: bool) -> Task:
    """A convolutional VAE of coloured images, the squared error summed over pixels; judged by that error."""

    def draw() -> Drawn:
        x = pick(64)[0] * 0.376 + 0.3
        ink, paper = torch.rand(64, 3, 1, 1), torch.rand(64, 3, 1, 1)
        x = x * ink + (1 - x) * paper
        return (x,), x

    def loss(out: Any, x: Tensor) -> Tensor:
        y, mu, log_sigma_sq = out
        kl = -0.5 * torch.sum(1 + log_sigma_sq - mu.square() - log_sigma_sq.exp(), 1)
        return ((y - x).square().sum((1, 2, 3)) + (1.0 if planted else 0.1) * kl).mean()

    return stream(ConvVAE(3, 32), draw, loss, lambda out, x: F.mse_loss(out[0], x))
