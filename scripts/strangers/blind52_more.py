"""The rest of the fifty-second set: reports out of issues and forums."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits

report = partial(any_report, blind="blind52")


@report(
    "autoencoder of noise with binary cross entropy",
    "https://stats.stackexchange.com/questions/441750/why-cant-this-autoencoder-reach-zero-loss",
    says=r"(?i)entropy of the target|floor|lower bound|loss.*(cannot|can't|never|not) .*(zero|\b0\b)"
    r"|targets?.*(between|binary|0 and 1|soft)",
    fault="binary cross entropy of targets between 0 and 1 has a floor far above zero: a poor match of data and loss",
)
def noise(planted: bool) -> Task:
    """Inputs from U(0, 1), five ReLU layers as wide as the input and a sigmoid; judged by squared error."""
    n = 16

    def draw() -> Drawn:
        x = torch.rand(256, n)
        return (x,), x

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Linear(n, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, n), nn.ReLU()
            )
            self.decoder = chain(
                nn.Linear(n, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, n), nn.Sigmoid()
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x))

    return stream(Autoencoder(), draw, F.binary_cross_entropy if planted else F.mse_loss, F.mse_loss)


def blobs(count: int = 16) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 16, 16) of a digit on noise, and the masks (count, 1, 16, 16) of its strokes."""
    x = pick(count)[0] * 0.376 + 0.3
    big = torch.zeros(count, 1, 16, 16)
    for i, (r, c) in enumerate(torch.randint(9, (count, 2)).tolist()):
        big[i, :, r : r + 8, c : c + 8] = x[i]
    return big + 0.2 * torch.randn_like(big), (big > 0.4).float()


@report(
    "binary segmentation with softmax over one channel",
    GITHUB + "open-mmlab/mmsegmentation/issues/2201",
    guilty=r"conv_seg",
    says=rf"(?i)softmax|{CUT}|{SAME}|(one|single) (channel|class|output|logit)|loss.*(zero|constant|always)",
    fault="out_channels=1 with the softmax cross entropy: over one channel it is always zero",
)
def mmseg(planted: bool) -> Task:
    """A backbone and a decode head with one output channel."""

    class Segmentor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
            )
            self.decode_head = nn.ModuleDict({"conv": nn.Conv2d(16, 16, 3, padding=1), "conv_seg": nn.Conv2d(16, 1, 1)})

        def forward(self, x: Tensor) -> Tensor:
            return self.decode_head["conv_seg"](F.relu(self.decode_head["conv"](self.backbone(x))))

    def cross_entropy(pred: Tensor, label: Tensor) -> Tensor:
        return -(label * pred.log_softmax(1)).mean()

    def draw() -> Drawn:
        x, t = blobs()
        return (x,), t

    return stream(Segmentor(), draw, cross_entropy if planted else bce, bce)


@report(
    "dice coefficient without epsilon",
    GITHUB + "nasa/delta/pull/115",
    says=rf"{BROKEN}|\bdivi|\beps|0 / 0",
    fault="the denominator of the dice loss is zero where nothing is labelled nor predicted: 0 / 0",
)
def delta(planted: bool) -> Task:
    """Segmentation of images with areas of no data, where labels and predictions are masked to zero."""

    def draw() -> Drawn:
        x, t = blobs()
        valid = torch.ones_like(t)
        valid[:, :, :, :3] = 0
        return (x * valid, valid), torch.cat([1 - t, t], 1) * valid

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 2, 1),
                nn.Softmax(1),
            )

        def forward(self, x: Tensor, valid: Tensor) -> Tensor:
            return self.layers(x) * valid

    def dice_coef(y_true: Tensor, y_pred: Tensor, epsilon: float) -> Tensor:
        intersection = (y_true * y_pred).abs().sum(1)
        return 2.0 * intersection / (y_true.square().sum(1) + y_pred.square().sum(1) + epsilon)

    def dice_loss(y: Tensor, t: Tensor) -> Tensor:
        return 1 - dice_coef(t, y, 0.0 if planted else 1e-7).mean()

    return stream(Net(), draw, dice_loss)


@report(
    "BCELoss of relabelled masks",
    GITHUB + "bodokaiser/piwise/issues/9",
    says=r"(?i)(target|label|mask)s?.*(outside|range|between|above|exceed|larger|greater|not in|0 and 1|binary|beyond)"
    r"|loss.*(negative|below zero)|unbounded",
    fault="ToLabel and Relabel(255, 21) give masks of 0 and 21, where BCELoss wants 0 to 1: the loss is negative",
)
def piwise(planted: bool) -> Task:
    """A small fully convolutional net, BCELoss of sigmoids."""

    def draw() -> Drawn:
        x, t = blobs()
        return (x,), t * 21 if planted else t

    net = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
        nn.Sigmoid(),
    )

    def bce_loss(y: Tensor, t: Tensor) -> Tensor:
        """As of 2017, without a check of targets."""
        return -(t * (y + 1e-12).log() + (1 - t) * (1 - y + 1e-12).log()).mean()

    return stream(net, draw, bce_loss, lambda y, t: F.binary_cross_entropy(y, t.clamp(max=1)))


@report(
    "VGG 19 from scratch",
    GITHUB + "tensorflow/models/issues/991",
    guilty=r"conv|fc",
    says=r"(?i)vanish|shrink|(gradient|activation|signal)s?.*(small|tiny|decay|fade|weak)|deep|depth|initiali",
    fault="sixteen convolutions and three dense layers from scratch; their authors trained it in stages",
)
def vgg(planted: bool) -> Task:
    """Slim's VGG 19, narrow: Xavier weights, zero biases, ReLU, dropout; repaired by batch norm."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class VGG19(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            n = 1
            for m in (8, 8, 0, 16, 16, 0, 24, 24, 24, 24, 0, 32, 32, 32, 32, 32, 32, 32, 32):
                if m == 0:
                    layers += [nn.MaxPool2d(2)]
                    continue
                layers += [nn.Conv2d(n, m, 3, padding=1), *([] if planted else [nn.BatchNorm2d(m)]), nn.ReLU()]
                n = m
            self.conv = chain(*layers, nn.Flatten())
            self.fc6, self.fc7, self.fc8 = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10)
            self.dropout = nn.Dropout(0.5)
            for layer in self.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            x = self.dropout(F.relu(self.fc6(self.conv(x))))
            return self.fc8(self.dropout(F.relu(self.fc7(x))))

    return stream(VGG19(), draw, F.cross_entropy)


@report(
    "AlexNet for cats and dogs",
    GITHUB + "chenyuntc/pytorch-book/issues/58",
    guilty=r"features|classifier",
    says=r"(?i)vanish|shrink|(gradient|activation|signal)s?.*(small|tiny|decay|fade|weak)|initiali",
    fault="AlexNet wants a strict initialisation; PyTorch's defaults leave it at a loss of 0.69",
)
def alexnet(planted: bool) -> Task:
    """torchvision's AlexNet, narrow, on two classes; repaired by He's initialisation."""
    images, labels = _digits()
    images, labels = images[(labels == 3) | (labels == 8)], labels[(labels == 3) | (labels == 8)]

    def draw() -> Drawn:
        k = torch.randint(len(labels), (64,))
        return (F.interpolate((images[k] - 0.3) / 0.376, size=(16, 16), mode="bilinear"),), (labels[k] == 8).long()

    class AlexNet(nn.Module):
        def __init__(self, num_classes: int = 2) -> None:
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 16, 5, 1, 2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 5, padding=2),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 48, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(48, 32, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(32, 32, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )
            self.classifier = chain(
                nn.Dropout(),
                nn.Linear(32 * 2 * 2, 128),
                nn.ReLU(inplace=True),
                nn.Dropout(),
                nn.Linear(128, 128),
                nn.ReLU(inplace=True),
                nn.Linear(128, num_classes),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.classifier(self.features(x).flatten(1))

    model = AlexNet()
    if not planted:
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
    return stream(model, draw, F.cross_entropy)


@report(
    "regression picked by the argmax of a classifier",
    "https://ai.stackexchange.com/questions/41264/how-to-do-backpropagation-with-argmax",
    guilty=r"classifier",
    says=rf"(?i){CUT}|\bround|argmax|integer|index|gather|differentia",
    fault="the soft argmax is rounded to an index: nothing flows back to the classifier",
)
def pickone(planted: bool) -> Task:
    """A classifier says which of the outputs of a linear network is the answer."""
    gate, w = torch.randn(6, 3) * 3, torch.randn(6, 3)

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        k = (x @ gate).argmax(1, keepdim=True)
        return (x,), (x @ w + torch.tensor([-3.0, 0.0, 3.0])).gather(1, k).squeeze(1)

    class SoftArgmax1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_index, self.step_size, self.softmax = 0, 1, nn.Softmax(dim=1)

        def forward(self, x: Tensor) -> Tensor:
            smax = self.softmax(x * 100)
            end_index = self.base_index + x.size()[1] * self.step_size
            indices = torch.arange(start=self.base_index, end=end_index, step=self.step_size)
            return (smax * indices).sum(1)

    class CombinedNetwork(nn.Module):
        def __init__(self, input_size: int, hidden_size: int, num_classes: int) -> None:
            super().__init__()
            self.classifier_fc1 = nn.Linear(input_size, hidden_size)
            self.classifier_fc2 = nn.Linear(hidden_size, num_classes)
            self.regression_fc = nn.Linear(input_size, num_classes)
            self.smax = SoftArgmax1D()

        def forward(self, x: Tensor) -> Tensor:
            classifier_x = self.classifier_fc2(F.relu(self.classifier_fc1(x)))
            regression_value = self.regression_fc(x)
            if not planted:
                return (classifier_x.softmax(1) * regression_value).sum(1)
            classification_value = self.smax(classifier_x)
            return regression_value.gather(1, classification_value.round().long().unsqueeze(1)).squeeze(1)

    return stream(CombinedNetwork(6, 32, 3), draw, F.mse_loss)


@report(
    "matrix of cosines by torch.tensor",
    "https://discuss.pytorch.org/t/gradient-is-lost-when-use-torch-tensor-t1-t2/23261",
    guilty=r"angles",
    says=rf"(?i){CUT}|torch\.tensor|copy|copied|graph",
    fault="torch.tensor([cosa, cosb]) copies values: the gradients of the angles are lost",
)
def cosines(planted: bool) -> Task:
    """A network gives two angles, whose cosines are multiplied by a matrix that is learned too."""
    mat, u = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.randn(4, 2)

    def draw() -> Drawn:
        x = torch.randn(32, 4)
        return (x,), torch.cos(x @ u) @ mat

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles = chain(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
            self.mat = nn.Parameter(torch.randn(2, 2))

        def forward(self, x: Tensor) -> Tensor:
            rows = [[torch.cos(a), torch.cos(b)] for a, b in self.angles(x)]
            y = torch.tensor(rows) if planted else torch.stack([torch.stack(row) for row in rows])
            return torch.matmul(y, self.mat)

    return stream(Net(), draw, F.mse_loss)
