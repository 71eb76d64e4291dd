"""Convolutional classifiers: first networks, VGG, residual, mobile, dense, efficient; and other normalisations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, stranger
from strangers.data import digits


def classifier(model: nn.Module, size: int = 32, channels: int = 3, *, count: int = 32, **data: bool) -> Task:
    """Images, class indices, `F.cross_entropy`."""
    x, t = digits(size, channels, count=count, **data)
    return Task(model, (x, t), lambda: F.cross_entropy(model(x), t), {"loss": "cross-entropy"})


class MnistExample(nn.Module):
    """Two convolutions, dropout, two linear layers, log-softmax."""

    def __init__(self, *, probabilities: bool = False) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)
        self.probabilities = probabilities

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = self.dropout2(F.relu(self.fc1(torch.flatten(self.dropout1(x), 1))))
        return F.softmax(self.fc2(x), dim=1) if self.probabilities else F.log_softmax(self.fc2(x), dim=1)


@stranger("MNIST example", "log-softmax with NLL; dropout", fault="softmax before NLL", guilty="fc2",
          says="probabilit|softmax")  # fmt: skip
def mnist_example(planted: bool) -> Task:
    model, (x, t) = MnistExample(probabilities=planted), digits(28)
    return Task(model, (x, t), lambda: F.nll_loss(model(x), t), {"loss": F.nll_loss})


@stranger("Quickstart MLP", "flattens images itself", fault="pixels 0–255", says="input")
def quickstart(planted: bool) -> Task:
    widths = (784, 512, 512)
    layers: list[nn.Module] = [nn.Flatten()]
    for n, m in zip(widths, (*widths[1:], 512), strict=True):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return classifier(nn.Sequential(*layers, nn.Linear(512, 10)), 28, 1, bytes_=planted)


@stranger("First CNN", "batch normalisation and dropout", fault="second convolution frozen by mistake", guilty=r"^4\.")
def first_cnn(planted: bool) -> Task:
    layers: list[nn.Module] = []
    for n, m in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(1024, 10))
    if planted:
        model[4].requires_grad_(False)
    return classifier(model)


class Vgg(nn.Module):
    """VGG-11 with batch normalisation for 32×32 images, a quarter as wide."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 3
        for entry in (16, "M", 32, "M", 64, 64, "M", 128, 128, "M", 128, 128, "M"):
            if isinstance(entry, str):
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(width, entry, 3, padding=1), nn.BatchNorm2d(entry), nn.ReLU(inplace=True)]
                width = entry
        self.features, self.classifier = nn.Sequential(*layers, nn.AvgPool2d(1)), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


@stranger("VGG-11-BN", "batch normalisation; in-place ReLU", fault="shift of one batch normalisation at −4: dead ReLUs",
          guilty=r"features\.(8|9)\.")  # fmt: skip
def vgg(planted: bool) -> Task:
    model = Vgg()
    if planted:
        nn.init.constant_(model.features[9].bias, -4.0)
    return classifier(model)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, n: int, m: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.bn2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.downsample = None
        if stride > 1 or n != m:
            self.downsample = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Stages of two basic blocks; He initialisation by fan-out."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        stages, n = [], widths[0]
        for place, m in enumerate(widths):
            stages.append(nn.Sequential(BasicBlock(n, m, 2 if place else 1), BasicBlock(m, m, 1)))
            n = m
        self.layers, self.fc = nn.Sequential(*stages), nn.Linear(n, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


@stranger(
    "ResNet-18", "residual, batch normalisation", fault="gains drawn from N(0, 0.02²)", guilty=r"bn\d\.|sample\.1"
)
def resnet(planted: bool) -> Task:
    model = ResNet()
    for module in model.modules():
        if planted and isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 0.0, 0.02)
    return classifier(model)


class InvertedResidual(nn.Module):
    """Widen, convolve each channel, narrow."""

    def __init__(self, n: int, m: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner, layers = n * expansion, list[nn.Module]()
        if expansion > 1:
            layers += [nn.Conv2d(n, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner)]
        layers += [nn.ReLU6(inplace=True), nn.Conv2d(inner, m, 1, bias=False), nn.BatchNorm2d(m)]
        self.conv, self.same = nn.Sequential(*layers), stride == 1 and n == m

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.same else self.conv(x)


def mobile(stages: tuple[tuple[int, int, int, int], ...], last: int) -> nn.Sequential:
    """Stages of (expansion, width, blocks, stride), then dropout and a classifier drawn from N(0, 0.01²)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True)]
    n = 16
    for expansion, m, blocks, stride in stages:
        for place in range(blocks):
            layers.append(InvertedResidual(n, m, 1 if place else stride, expansion))
            n = m
    layers += [nn.Conv2d(n, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(inplace=True)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(last, 10))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    nn.init.normal_(model[-1].weight, 0.0, 0.01)
    nn.init.zeros_(model[-1].bias)
    return model


@stranger("MobileNetV2", "depthwise convolutions, ReLU6", fault="classifier drawn from N(0, 1)", guilty=r"^\d+\.weight")
def mobilenet(planted: bool) -> Task:
    model = mobile(((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 2), (6, 32, 2, 2)), 128)
    if planted:
        nn.init.normal_(model[-1].weight)
    return classifier(model)


class DenseLayer(nn.Module):
    """Reads all earlier features; adds a few."""

    def __init__(self, n: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(n), nn.Conv2d(n, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.detached = False

    def forward(self, features: list[Tensor]) -> Tensor:
        x = torch.cat(features, 1)
        y = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return y.detach() if self.detached else y


class DenseBlock(nn.ModuleDict):
    """Layers by name."""

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """Three dense blocks, narrowed between them."""

    def __init__(self, growth: int = 12, blocks: tuple[int, ...] = (3, 3, 3)) -> None:
        super().__init__()
        n = 2 * growth
        layers: list[nn.Module] = [nn.Conv2d(3, n, 3, padding=1, bias=False)]
        for place, count in enumerate(blocks):
            layers.append(DenseBlock({f"denselayer{i + 1}": DenseLayer(n + i * growth, growth) for i in range(count)}))
            n += count * growth
            if place < len(blocks) - 1:
                layers += [nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, n // 2, 1, bias=False), nn.AvgPool2d(2)]
                n //= 2
        self.features, self.norm, self.classifier = nn.Sequential(*layers), nn.BatchNorm2d(n), nn.Linear(n, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.relu(self.norm(self.features(x))).mean((2, 3)))


@stranger("DenseNet", "lists of tensors between modules", fault="one layer's output detached", guilty="layer2")
def densenet(planted: bool) -> Task:
    model = DenseNet()
    model.features[1].denselayer2.detached = planted
    return classifier(model, count=16)


class SqueezeExcite(nn.Module):
    """A gate a channel, from its mean."""

    def __init__(self, n: int, inner: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(n, inner, 1), nn.Conv2d(inner, n, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))))


def drop_path(x: Tensor, rate: float, training: bool) -> Tensor:
    """Leave out the branch of some examples: a function, with a draw of its own, and no module."""
    if not training or not rate:
        return x
    keep = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= rate
    return x * keep / (1 - rate)


class MBConv(nn.Module):
    """An inverted residual with a gate."""

    def __init__(self, n: int, m: int, stride: int, expansion: int, rate: float) -> None:
        super().__init__()
        inner = n * expansion
        self.expand = nn.Sequential(nn.Conv2d(n, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU())
        self.depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.norm, self.se = nn.BatchNorm2d(inner), SqueezeExcite(inner, max(1, n // 4))
        self.project = nn.Sequential(nn.Conv2d(inner, m, 1, bias=False), nn.BatchNorm2d(m))
        self.same, self.rate = stride == 1 and n == m, rate

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.se(F.silu(self.norm(self.depthwise(self.expand(x))))))
        return x + drop_path(y, self.rate, self.training) if self.same else y


class EfficientNet(nn.Module):
    """Five MBConv blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        sizes = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1))
        self.blocks = nn.Sequential(*(MBConv(n, m, s, 4, 0.05 * i) for i, (n, m, s) in enumerate(sizes)))
        self.head = nn.Sequential(nn.Conv2d(40, 128, 1, bias=False), nn.BatchNorm2d(128), nn.SiLU())
        self.classifier = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.blocks(self.stem(x))).mean((2, 3))
        return self.classifier(F.dropout(x, 0.2, self.training))


@stranger("EfficientNet", "squeeze-excitation; dropout and drop path as functions", fault="gates of one block closed",
          guilty=r"blocks\.3\.")  # fmt: skip
def efficientnet(planted: bool) -> Task:
    model = EfficientNet()
    if planted:
        nn.init.constant_(model.blocks[3].se.expand.bias, -12.0)
    return classifier(model)


class ChannelNorm(nn.Module):
    """Layer normalisation over the channels of (B, C, H, W)."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(n)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A 7×7 depthwise convolution, then an MLP with a scale a channel."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.dwconv, self.norm = nn.Conv2d(n, n, 7, padding=3, groups=n), nn.LayerNorm(n, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.gamma = nn.Parameter(1e-6 * torch.ones(n))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


@stranger(
    "ConvNeXt",
    "channels last inside; LayerScale of 1e-6",
    fault="LayerScale of 10 in place of 1e-6",
    guilty="gamma|pwconv2",
)
def convnext(planted: bool) -> Task:
    stages: list[nn.Module] = [nn.Conv2d(3, 24, 4, 4), ChannelNorm(24), ConvNeXtBlock(24), ConvNeXtBlock(24)]
    stages += [ChannelNorm(24), nn.Conv2d(24, 48, 2, 2), ConvNeXtBlock(48), ConvNeXtBlock(48)]
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 10))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        if planted and isinstance(module, ConvNeXtBlock):
            nn.init.constant_(module.gamma, 10.0)
    return classifier(model)


def plain(norm: type[nn.Module] | None, widths: tuple[int, ...] = (16, 32, 64)) -> nn.Sequential:
    """Convolutions with a normalisation, pooled at the end."""
    layers, n = list[nn.Module](), 3
    for m in widths:
        own = nn.GroupNorm(4, m) if norm is nn.GroupNorm else ChannelNorm(m)
        layers += [nn.Conv2d(n, m, 3, padding=1), own, nn.ReLU(), nn.MaxPool2d(2)]
        n = m
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 10))


@stranger("GroupNorm CNN", "no statistics of the batch", fault="last layer's weights × 100", guilty=r"^14\.")
def group_norm(planted: bool) -> Task:
    model = plain(nn.GroupNorm)
    if planted:
        model[14].weight.data *= 100
    return classifier(model)
