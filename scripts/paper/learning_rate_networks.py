"""Forty networks that train in seconds, with their data: those on which predicted learning rates are held to sweeps.

Images and features come from `--data-dir`: `libsvm/letter.scale.bz2` as on the LIBSVM page, `cifar10/data_batch_1.bin`
as on the CIFAR-10 page. The text is source code and documentation strings of Python's own standard library.
"""

from __future__ import annotations

import bz2
import re
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

MODULES = ("argparse", "ast", "calendar", "datetime", "difflib", "doctest", "inspect", "pathlib", "random", "tarfile")
TOKENS, CHARACTERS = 32, 97  # length of a piece of text; printable ASCII, the new line, everything else

Loss = Callable[[Tensor, Tensor], Tensor]
Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """One network, what it is trained on, and how many seeds its sweep can afford.

    Attributes:
        make: draws the network; the caller seeds.
        data: name of a function of `DATA`.
        loss: mean over examples of `(outputs, targets)`.
        family: for tables: mlp, cnn, resnet, vit, gpt, mse.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    data: str
    batch: int = 128
    seeds: int = 2

    @property
    def loss(self) -> Loss:
        """Squared error for real-valued targets, else cross-entropy over the last dimension of the outputs."""
        return squared_error if self.family == "mse" else cross_entropy


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over examples, and over the tokens of each."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over examples and entries."""
    return functional.mse_loss(outputs, targets)


# Data -------------------------------------------------------------------------------------------------------------


@cache
def letter(root: Path) -> Data:
    """16 features in -1 to 1 of 15 000 letters, 26 classes."""
    features, labels = np.zeros((15000, 16), np.float32), np.zeros(15000, np.int64)
    with bz2.open(root / "libsvm" / "letter.scale.bz2", "rt") as lines:
        for row, line in enumerate(lines):
            label, *entries = line.split()
            labels[row] = int(float(label)) - 1
            for entry in entries:
                index, value = entry.split(":")
                features[row, int(index) - 1] = float(value)
    return torch.from_numpy(features), torch.from_numpy(labels)


@cache
def images(root: Path) -> Data:
    """10 000 images of CIFAR-10, averaged to 16 x 16 pixels, each channel with mean 0 and variance 1."""
    rows = np.fromfile(root / "cifar10" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)
    pixels = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32))
    pixels = functional.avg_pool2d(pixels, 2)
    pixels = (pixels - pixels.mean((0, 2, 3), keepdim=True)) / pixels.std((0, 2, 3), keepdim=True)
    return pixels, torch.from_numpy(rows[:, 0].astype(np.int64))


@cache
def text(root: Path) -> Data:
    """Pieces of 32 characters, and the characters one further."""
    folder = Path(sysconfig.get_path("stdlib"))
    joined = "\n".join(re.sub(r" +", " ", (folder / f"{name}.py").read_text("utf-8")) for name in MODULES)
    codes = torch.tensor([ord(letter) - 32 if 32 <= ord(letter) < 127 else 95 + (letter != "\n") for letter in joined])
    pieces = (len(codes) - 1) // TOKENS
    inputs, targets = codes[: pieces * TOKENS], codes[1 : pieces * TOKENS + 1]
    return inputs.view(-1, TOKENS), targets.view(-1, TOKENS)


def letter_features(root: Path) -> Data:
    """Features as inputs and as targets: an autoencoder's."""
    features, _ = letter(root)
    return features, features


def letter_one_hot(root: Path) -> Data:
    """Features, and classes as vectors of length one: a regression on labels."""
    features, labels = letter(root)
    return features, functional.one_hot(labels, 26).float()


def image_pixels(root: Path) -> Data:
    """Images as inputs and as targets."""
    pixels, _ = images(root)
    return pixels, pixels


DATA: Mapping[str, Callable[[Path], Data]] = {
    each.__name__: each for each in (letter, images, text, letter_features, letter_one_hot, image_pixels)
}


# Initialisations --------------------------------------------------------------------------------------------------


def he(model: nn.Module, gain: float = 1.0) -> nn.Module:
    """Variance gain²·2/fan-in, biases zero."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            module.weight.data.mul_(gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def xavier(model: nn.Module) -> nn.Module:
    """Variance 2/(fan-in + fan-out), biases zero."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)
    return model


def orthogonal(model: nn.Module) -> nn.Module:
    """Orthogonal weights with the gain of ReLU, biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.orthogonal_(module.weight, gain=2**0.5)
            nn.init.zeros_(module.bias)
    return model


def normal(model: nn.Module, std: float = 0.02) -> nn.Module:
    """N(0, std²) as GPT-2 and ViT have it, biases zero."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=std)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
    return model


def as_built(model: nn.Module) -> nn.Module:
    """PyTorch's own."""
    return model


def zero_last(model: nn.Module) -> nn.Module:
    """He, and a last layer that starts at zero."""
    he(model)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    return model


# Networks ---------------------------------------------------------------------------------------------------------


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, norm: bool = False) -> nn.Module:
    """Linear layers with an activation between them, and LayerNorm before each where asked."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), *([nn.LayerNorm(n_out)] if norm else []), activation()]
    return nn.Sequential(*layers[: -2 if norm else -1])


class Residual(nn.Module):
    """x + branch(x), multiplied by a fixed number."""

    def __init__(self, branch: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.branch, self.scale = branch, scale

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the branch."""
        return inputs + self.scale * self.branch(inputs)


def residual_mlp(width: int = 64, blocks: int = 4, norm: bool = True) -> nn.Module:
    """Pre-norm residual MLP."""
    branches = [
        Residual(
            nn.Sequential(
                nn.LayerNorm(width) if norm else nn.Identity(),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, width),
            )
        )
        for _ in range(blocks)
    ]
    return nn.Sequential(nn.Linear(16, width), *branches, nn.LayerNorm(width), nn.Linear(width, 26))


def convolution(n_in: int, n_out: int, *, stride: int = 1, norm: bool = False, groups: int = 1) -> list[nn.Module]:
    """3 x 3, with GroupNorm of four channels a group where asked."""
    layer = nn.Conv2d(n_in, n_out, 3, stride, 1, groups=groups)
    return [layer, *([nn.GroupNorm(n_out // 4, n_out)] if norm else [])]


def cnn(*channels: int, activation: type[nn.Module] = nn.ReLU, norm: bool = False, pooled: bool = False) -> nn.Module:
    """Convolutions, every second with stride 2, then a linear layer on all pixels or on their mean."""
    layers: list[nn.Module] = []
    for number, (n_in, n_out) in enumerate(zip((3, *channels), channels, strict=False)):
        layers += [*convolution(n_in, n_out, stride=2 - number % 2, norm=norm), activation()]
    side = 16 >> ((len(channels) + 1) // 2)
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else [nn.Flatten()]
    return nn.Sequential(*layers, *end, nn.Linear(channels[-1] * (1 if pooled else side * side), 10))


def lenet() -> nn.Module:
    """Tanh, average pooling, three linear layers."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def separable(channels: int = 24) -> nn.Module:
    """Depthwise and pointwise convolutions with GroupNorm."""
    layers = [*convolution(3, channels, stride=2, norm=True), nn.ReLU()]
    for stride in (1, 2):
        layers += [*convolution(channels, channels, stride=stride, norm=True, groups=channels), nn.ReLU()]
        layers += [nn.Conv2d(channels, channels, 1), nn.GroupNorm(channels // 4, channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def resnet(channels: int = 16, blocks: int = 3, *, norm: bool = True, scale: float = 1.0) -> nn.Module:
    """A strided convolution, residual blocks of two, the mean over pixels."""
    branches = [
        Residual(
            nn.Sequential(
                *convolution(channels, channels, norm=norm), nn.ReLU(), *convolution(channels, channels, norm=norm)
            ),
            scale,
        )
        for _ in range(blocks)
    ]
    activated = [layer for branch in branches for layer in (branch, nn.ReLU())]
    start = [*convolution(3, channels, stride=2, norm=norm), nn.ReLU()]
    return nn.Sequential(*start, *activated, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def fixup() -> nn.Module:
    """A residual network without normalisation whose branches and last layer start at zero."""
    model = zero_last(resnet(norm=False))
    for module in model.modules():
        if isinstance(module, Residual):
            nn.init.zeros_([each for each in module.modules() if isinstance(each, nn.Conv2d)][-1].weight)
    return model


def autoencoder(activation: type[nn.Module] = nn.Tanh) -> nn.Module:
    """Through a layer of eight."""
    return mlp(16, 64, 8, 64, 16, activation=activation)


def image_autoencoder() -> nn.Module:
    """Two strided convolutions and back."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 3, 2, 2),
    )  # fmt: skip


class Attention(nn.Module):
    """Multi-head self-attention, causal where asked."""

    def __init__(self, width: int, heads: int, *, causal: bool, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Attend: (B, tokens, width) to the same shape."""
        size, tokens, width = inputs.shape
        query, key, value = self.qkv(inputs).view(size, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # (B,h,T,d)
        scores = query @ key.transpose(-2, -1) * key.shape[-1] ** -0.5  # (B, h, T, T)
        if self.causal:
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = scores.softmax(-1) @ value  # (B, h, T, d)
        return self.out(mixed.transpose(1, 2).reshape(size, tokens, width))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply the two halves."""
        return self.down(functional.silu(self.gate(inputs)) * self.up(inputs))


def transformer(width: int, layers: int, *, causal: bool = True, modern: bool = False) -> list[nn.Module]:
    """Pre-norm blocks; the modern kind has RMSNorm, SwiGLU and no biases."""
    norm = nn.RMSNorm if modern else nn.LayerNorm
    blocks: list[nn.Module] = []
    for _ in range(layers):
        feed = Gated(width, 2 * width) if modern else mlp(width, 4 * width, width, activation=nn.GELU)
        blocks += [
            Residual(nn.Sequential(norm(width), Attention(width, 4, causal=causal, bias=not modern))),
            Residual(nn.Sequential(norm(width), feed)),
        ]
    return [*blocks, norm(width)]


class Gpt(nn.Module):
    """Characters in, scores of the next ones out."""

    def __init__(self, width: int = 32, layers: int = 2, *, tied: bool = False, modern: bool = False) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(CHARACTERS, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.Sequential(*transformer(width, layers, modern=modern))
        self.head = nn.Linear(width, CHARACTERS, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, codes: Tensor) -> Tensor:
        """Score: (B, tokens) to (B, tokens, characters)."""
        return self.head(self.blocks(self.embedding(codes) + self.position.weight[: codes.shape[1]]))


def scaled_projections(model: nn.Module, layers: int = 2) -> nn.Module:
    """GPT-2's: N(0, 0.02²), and what writes to the residual stream divided by √(2 layers)."""
    normal(model)
    for module in model.modules():
        if isinstance(module, Residual):
            last = [each for each in module.modules() if isinstance(each, nn.Linear)][-1]
            last.weight.data.mul_((2 * layers) ** -0.5)
    return model


class Vit(nn.Module):
    """Patches of 4 x 4, learned positions, the mean over tokens."""

    def __init__(self, width: int = 32, layers: int = 2, *, post_norm: bool = False, mixer: bool = False) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(torch.randn(16, width) * 0.02)
        if post_norm:
            layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            blocks: list[nn.Module] = [nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)]
        elif mixer:
            blocks = [part for _ in range(layers) for part in mixing(width)]
        else:
            blocks = transformer(width, layers, causal=False)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Score: (B, 3, 16, 16) to (B, 10)."""
        tokens = self.patches(pixels).flatten(2).transpose(1, 2) + self.position  # (B, 16, width)
        return self.head(self.blocks(tokens).mean(1))


class Transposed(nn.Module):
    """Apply to the tokens instead of the channels."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        """Swap, apply, swap back."""
        return self.inner(inputs.transpose(1, 2)).transpose(1, 2)


def mixing(width: int) -> list[nn.Module]:
    """One layer of an MLP-Mixer on 16 tokens."""
    across = Transposed(mlp(16, 32, 16, activation=nn.GELU))
    return [
        Residual(nn.Sequential(nn.LayerNorm(width), across)),
        Residual(nn.Sequential(nn.LayerNorm(width), mlp(width, 2 * width, width, activation=nn.GELU))),
    ]


SEEDS = {"mlp": 3, "mse": 2}  # others take longer


def _case(
    name: str,
    family: str,
    init: Callable[[nn.Module], nn.Module],
    build: Callable[[], nn.Module],
    data: str = "images",
) -> Case:
    batch = {"gpt": 32, "resnet": 64, "vit": 64}.get(family, 128)
    data = {"mlp": "letter", "gpt": "text"}.get(family, data)
    return Case(name, family, lambda: init(build()), data, batch=batch, seeds=SEEDS.get(family, 1))


CASES: tuple[Case, ...] = (
    _case("mlp relu he", "mlp", he, partial(mlp, 16, 128, 128, 26)),
    _case("mlp relu default", "mlp", as_built, partial(mlp, 16, 128, 128, 128, 26)),
    _case("mlp relu he deep", "mlp", he, partial(mlp, 16, *[64] * 6, 26)),
    _case("mlp relu default deep", "mlp", as_built, partial(mlp, 16, *[64] * 6, 26)),
    _case("mlp relu he layernorm", "mlp", he, partial(mlp, 16, 128, 128, 128, 26, norm=True)),
    _case("mlp relu default deep layernorm", "mlp", as_built, partial(mlp, 16, *[64] * 6, 26, norm=True)),
    _case("mlp gelu default", "mlp", as_built, partial(mlp, 16, 128, 128, 128, 26, activation=nn.GELU)),
    _case("mlp gelu he layernorm", "mlp", he, partial(mlp, 16, *[96] * 4, 26, activation=nn.GELU, norm=True)),
    _case("mlp tanh xavier", "mlp", xavier, partial(mlp, 16, 128, 128, 128, 26, activation=nn.Tanh)),
    _case("mlp tanh default deep", "mlp", as_built, partial(mlp, 16, *[64] * 6, 26, activation=nn.Tanh)),
    _case("mlp relu he wide", "mlp", he, partial(mlp, 16, 512, 256, 26)),
    _case("mlp relu he bottleneck", "mlp", he, partial(mlp, 16, 256, 64, 16, 26)),
    _case("mlp relu orthogonal", "mlp", orthogonal, partial(mlp, 16, 128, 128, 128, 128, 26)),
    _case("mlp silu he", "mlp", he, partial(mlp, 16, 128, 128, 128, 26, activation=nn.SiLU)),
    _case("mlp relu zero head", "mlp", zero_last, partial(mlp, 16, 128, 128, 128, 26)),
    _case("mlp relu large weights", "mlp", partial(he, gain=2.0), partial(mlp, 16, 128, 128, 128, 26)),
    _case("softmax regression", "mlp", as_built, partial(mlp, 16, 26)),
    _case("mlp residual layernorm", "mlp", as_built, residual_mlp),
    _case("cnn relu default", "cnn", as_built, partial(cnn, 16, 16, 32)),
    _case("cnn relu he", "cnn", he, partial(cnn, 16, 16, 32)),
    _case("cnn gelu default", "cnn", as_built, partial(cnn, 16, 16, 32, activation=nn.GELU)),
    _case("cnn groupnorm default", "cnn", as_built, partial(cnn, 16, 16, 32, norm=True)),
    _case("cnn groupnorm he pooled", "cnn", he, partial(cnn, 16, 16, 32, norm=True, pooled=True)),
    _case("cnn relu he deep", "cnn", he, partial(cnn, 12, 12, 24, 24, 32, 32)),
    _case("cnn lenet tanh", "cnn", as_built, lenet),
    _case("cnn separable groupnorm", "cnn", as_built, separable),
    _case("resnet groupnorm he", "resnet", he, resnet),
    _case("resnet plain he", "resnet", he, partial(resnet, norm=False, scale=0.5)),
    _case("resnet plain default", "resnet", as_built, partial(resnet, norm=False)),
    _case("resnet fixup", "resnet", as_built, fixup),
    _case("vit 0.02", "vit", normal, Vit),
    _case("vit default", "vit", as_built, Vit),
    _case("vit post-norm", "vit", as_built, partial(Vit, post_norm=True)),
    _case("mixer default", "vit", as_built, partial(Vit, mixer=True)),
    _case("gpt 0.02", "gpt", normal, Gpt),
    _case("gpt scaled projections", "gpt", partial(scaled_projections, layers=3), partial(Gpt, layers=3)),
    _case("gpt tied", "gpt", normal, partial(Gpt, tied=True)),
    _case("gpt default", "gpt", as_built, Gpt),
    _case("gpt swiglu rmsnorm", "gpt", normal, partial(Gpt, modern=True)),
    Case("autoencoder tanh default", "mse", autoencoder, "letter_features"),
    Case("autoencoder relu he", "mse", lambda: he(autoencoder(nn.ReLU)), "letter_features"),
    Case("regression on labels", "mse", lambda: he(mlp(16, 128, 128, 26)), "letter_one_hot"),
    Case("image autoencoder", "mse", image_autoencoder, "image_pixels"),
)


def batches(case: Case, root: Path, *, size: int, seed: int) -> Callable[[], Data]:
    """Draw batches without replacement within an epoch, the same ones for the same seed."""
    inputs, targets = DATA[case.data](root)
    generator = torch.Generator().manual_seed(seed)
    order: list[Tensor] = []

    def draw() -> Data:
        if not order:
            whole = len(inputs) // size * size
            order.extend(torch.randperm(len(inputs), generator=generator)[:whole].view(-1, size))
        chosen = order.pop()
        return inputs[chosen], targets[chosen]

    return draw
