"""Further healthy networks, held apart: scored once before any threshold was changed for them."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.gallery.case import Batch, Healthy
from tests.gallery.convolutional import calibrate, he
from tests.gallery.data import VOCABULARY, images, points, regression, text, topics
from tests.gallery.healthy import NanoGPT, ResNet18, plain, trained
from tests.gallery.plain import dense


def orthogonal() -> nn.Module:
    model = dense([32] + [256] * 8 + [10], nn.Tanh, variance=1.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return model


class Squeeze(nn.Module):
    """EfficientNet's block: depthwise convolution, squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand, self.bn1 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.depthwise = nn.Conv2d(4 * width, 4 * width, 3, 1, 1, groups=4 * width, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * width)
        self.reduce, self.gate = nn.Conv2d(4 * width, width, 1), nn.Conv2d(width, 4 * width, 1)
        self.project, self.bn3 = nn.Conv2d(4 * width, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.bn2(self.depthwise(F.silu(self.bn1(self.expand(x))))))
        y = y * torch.sigmoid(self.gate(F.silu(self.reduce(y.mean((2, 3), keepdim=True)))))
        return x + self.bn3(self.project(y))


def efficientnet() -> nn.Module:
    return calibrate(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(), *(Squeeze(32) for _ in range(5)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    ))  # fmt: skip


def decoder() -> nn.Module:
    """A generator: transposed convolutions of std 0.02 with GroupNorm."""
    layers: list[nn.Module] = [nn.Linear(64, 128 * 16), nn.Unflatten(1, (128, 4, 4))]
    for n in (128, 64):
        layers += [nn.ConvTranspose2d(n, n // 2, 4, 2, 1, bias=False), nn.GroupNorm(8, n // 2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    for layer in model:
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, std=0.02)
    return model


class Mixer(nn.Module):
    """MLP-Mixer's block."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token = nn.Sequential(nn.Linear(tokens, 64), nn.GELU(), nn.Linear(64, tokens))
        self.channel = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


class MixerNet(nn.Module):
    """Patches, mixers, mean, head."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 256, 8, 8)
        self.blocks = nn.Sequential(*(Mixer(16, 256) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 10)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patch(x).flatten(2).transpose(1, 2))).mean(1))


class Dense(nn.Module):
    """DenseNet's block: what came before is kept beside what is new."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, growth, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    return calibrate(he(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), *(Dense(32 + 16 * i, 16) for i in range(6)), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )))  # fmt: skip


def weight_norm() -> nn.Module:
    model = dense([32, 256, 256, 10], nn.ReLU, variance=2.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            parametrizations.weight_norm(layer)
    return model


def fixup() -> nn.Module:
    """Post-activation residual MLP, last layers of branches at zero, so is the head."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(256, 256), nn.Linear(256, 256)
            nn.init.kaiming_normal_(self.first.weight)
            nn.init.zeros_(self.last.weight)
            nn.init.zeros_(self.last.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.last(F.relu(self.first(x)))

    model = nn.Sequential(nn.Linear(32, 256), *(Block() for _ in range(8)), nn.Linear(256, 10))
    nn.init.zeros_(model[-1].weight)
    return model


def gpt_loss_trained() -> nn.Module:
    """nanoGPT after 120 steps of AdamW."""
    return trained(lambda: NanoGPT(256, 4), text, 120, kind=torch.optim.AdamW)


def attention_classifier() -> nn.Module:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, 256, padding_idx=0)
            self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
            self.head = nn.Linear(256, 10)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            return self.head(x.mean(1) + self.attention(x, x, x, need_weights=False)[0].mean(1))

    return Classifier()


def dirac() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1)]
    for _ in range(5):
        conv = nn.Conv2d(64, 64, 3, 1, 1)
        nn.init.dirac_(conv.weight)
        layers += [nn.ReLU(), conv]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def latent(seed: int) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(16, 64, generator=draw), images(seed)[0] / 3


EXTRA_HEALTHY: tuple[Healthy, ...] = (
    Healthy("orthogonal-tanh", orthogonal, points),
    Healthy("he-20-layers", plain(32, *[256] * 20, 10), points),
    Healthy("efficientnet-se", efficientnet, images),
    Healthy("dcgan-generator", decoder, latent, loss="mse"),
    Healthy("mixer-zero-head", MixerNet, images, note="the head starts at zero"),
    Healthy("densenet", densenet, images),
    Healthy("weight-norm", weight_norm, points),
    Healthy("fixup-zero-head", fixup, points, note="head and last layers of branches start at zero"),
    Healthy("nanogpt-trained", gpt_loss_trained, text),
    Healthy("attention-classifier", attention_classifier, topics),
    Healthy("dirac", dirac, images),
    Healthy("resnet-trained", partial(trained, lambda: calibrate(ResNet18(32)), images, 20), images),
    Healthy(
        "regression-mlp", plain(64, 256, 256, 4, activation=nn.GELU, variance=math.sqrt(2)), regression, loss="mse"
    ),
)
