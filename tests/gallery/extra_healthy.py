"""Further healthy networks, held apart: scored once before any threshold was changed for them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.gallery.case import Batch, Healthy
from tests.gallery.convolutional import calibrate, he
from tests.gallery.data import VOCABULARY, images, points, regression, text, topics
from tests.gallery.healthy import nanogpt, plain, resnet18, trained
from tests.gallery.plain import dense
from tests.networks import Net


def orthogonal() -> nn.Module:
    model = dense([32] + [256] * 8 + [10], nn.Tanh, variance=1.0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
    return model


def squeeze(width: int) -> nn.Module:
    """EfficientNet's block: depthwise convolution, squeeze and excitation."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = F.silu(m.bn2(m.depthwise(F.silu(m.bn1(m.expand(x))))))
        y = y * torch.sigmoid(m.gate(F.silu(m.reduce(y.mean((2, 3), keepdim=True)))))
        return x + m.bn3(m.project(y))

    inner = 4 * width
    return Net(
        forward,
        expand=nn.Conv2d(width, inner, 1, bias=False),
        bn1=nn.BatchNorm2d(inner),
        depthwise=nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
        bn2=nn.BatchNorm2d(inner),
        reduce=nn.Conv2d(inner, width, 1),
        gate=nn.Conv2d(width, inner, 1),
        project=nn.Conv2d(inner, width, 1, bias=False),
        bn3=nn.BatchNorm2d(width),
    )


def efficientnet() -> nn.Module:
    return calibrate(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(), *(squeeze(32) for _ in range(5)),
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


def perceptron(size: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))


def mixer(tokens: int, width: int) -> nn.Module:
    """MLP-Mixer's block."""

    def forward(m: Any, x: Tensor) -> Tensor:
        x = x + m.token(m.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channel(m.norm2(x))

    norms = {"norm1": nn.LayerNorm(width), "norm2": nn.LayerNorm(width)}
    return Net(forward, **norms, token=perceptron(tokens, 64), channel=perceptron(width, 2 * width))


def mixer_net() -> nn.Module:
    """Patches, mixers, mean, head."""
    model = Net(
        lambda m, x: m.head(m.norm(m.blocks(m.patch(x).flatten(2).transpose(1, 2))).mean(1)),
        patch=nn.Conv2d(3, 256, 8, 8),
        blocks=nn.Sequential(*(mixer(16, 256) for _ in range(4))),
        norm=nn.LayerNorm(256),
        head=nn.Linear(256, 10),
    )
    nn.init.zeros_(model.head.weight)
    return model


def growing(width: int, growth: int) -> nn.Module:
    """DenseNet's block: what came before is kept beside what is new."""
    rule = lambda m, x: torch.cat([x, m.conv(F.relu(m.norm(x)))], 1)  # noqa: E731
    return Net(rule, norm=nn.BatchNorm2d(width), conv=nn.Conv2d(width, growth, 3, 1, 1, bias=False))


def densenet() -> nn.Module:
    return calibrate(he(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), *(growing(32 + 16 * i, 16) for i in range(6)), nn.BatchNorm2d(128), nn.ReLU(),
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

    def block() -> nn.Module:
        layers = {"first": nn.Linear(256, 256), "last": nn.Linear(256, 256)}
        nn.init.kaiming_normal_(layers["first"].weight)
        nn.init.zeros_(layers["last"].weight)
        nn.init.zeros_(layers["last"].bias)
        return Net(lambda m, x: x + m.last(F.relu(m.first(x))), **layers)

    model = nn.Sequential(nn.Linear(32, 256), *(block() for _ in range(8)), nn.Linear(256, 10))
    nn.init.zeros_(model[-1].weight)
    return model


def gpt_loss_trained() -> nn.Module:
    """nanoGPT after 120 steps of AdamW."""
    return trained(lambda: nanogpt(256, 4), text, 120, kind=torch.optim.AdamW)


def attention_classifier() -> nn.Module:
    def forward(m: Any, tokens: Tensor) -> Tensor:
        x = m.embedding(tokens)
        return m.head(x.mean(1) + m.attention(x, x, x, need_weights=False)[0].mean(1))

    return Net(
        forward,
        embedding=nn.Embedding(VOCABULARY, 256, padding_idx=0),
        attention=nn.MultiheadAttention(256, 4, batch_first=True),
        head=nn.Linear(256, 10),
    )


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
    Healthy("mixer-zero-head", mixer_net, images, note="the head starts at zero"),
    Healthy("densenet", densenet, images),
    Healthy("weight-norm", weight_norm, points),
    Healthy("fixup-zero-head", fixup, points, note="head and last layers of branches start at zero"),
    Healthy("nanogpt-trained", gpt_loss_trained, text),
    Healthy("attention-classifier", attention_classifier, topics),
    Healthy("dirac", dirac, images),
    Healthy("resnet-trained", partial(trained, lambda: calibrate(resnet18(32)), images, 20), images),
    Healthy(
        "regression-mlp", plain(64, 256, 256, 4, activation=nn.GELU, variance=math.sqrt(2)), regression, loss="mse"
    ),
)
