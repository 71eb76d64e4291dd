"""A thirty-seventh set of faults, out of questions and issues, written without sight of the rules."""

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

report = partial(any_report, blind="blind37")
SCALED = (
    r"input.*(scale|large|normal|range|standard|magnitude|255)|(normali|standardi|scale|large|magnitude).*input|255"
)


@report(
    "IoU of thresholded peaks",
    "https://discuss.pytorch.org/t/custom-loss-function-iou-is-not-differentiable-can-you-create-a-differentiable-"
    "iou-loss-function-for-ml/148899",
    says=rf"{CUT}|differentiab|threshold|discrete|step|constant",
    fault="the IoU loss thresholds the outputs to 0 and 1, which has no derivative",
)
def peaks(planted: bool) -> Task:
    """A CNN marks the peaks of noisy signals."""
    bump = torch.exp(-0.5 * (torch.arange(-4.0, 5.0) / 1.5) ** 2)

    def draw() -> Drawn:
        at = (torch.rand(32, 1, 64) < 0.06).float()
        x = F.conv1d(at, bump.view(1, 1, -1), padding=4) + 0.15 * torch.randn(32, 1, 64)
        return (x,), F.max_pool1d(at, 3, 1, 1).squeeze(1)

    def right(inputs: Tensor, targets: Tensor, smooth: float = 1e-6) -> Tensor:
        intersect = (inputs * targets).sum(-1)
        union = (inputs + targets - inputs * targets).sum(-1)
        return 1 - ((intersect + smooth) / (union + smooth)).mean()

    def iou(inputs: Tensor, targets: Tensor, thresh: float = 0.5, smooth: float = 1e-6) -> Tensor:
        inputs = torch.where(inputs < thresh, 0, 1)
        intersect = torch.logical_and(inputs, targets).sum(-1)
        union = torch.logical_or(inputs, targets).sum(-1)
        return (1 - ((intersect + smooth) / (union + smooth)).mean()).requires_grad_()

    model = chain(
        nn.Conv1d(1, 16, 9, padding=4),
        nn.ReLU(),
        nn.Conv1d(16, 1, 9, padding=4),
        nn.Sigmoid(),
        nn.Flatten(),
    )
    return stream(model, draw, iou if planted else right, right)


@report(
    "Q*bert in bytes",
    "https://isolution.pro/it/q/ai13021097/qual-e-il-compromesso-ottimale-tra-esplorazione-e-sfruttamento-in-q-bert",
    guilty=r"conv",
    says=SCALED,
    fault="a deep Q network reads frames of 0 to 255, not normalised",
)
def qbert(planted: bool) -> Task:
    """One convolution, dropout and two dense layers; rewards of the action at hand."""
    gain = torch.randn(10, 6)

    def draw() -> Drawn:
        x, c = pick(32)
        x = F.interpolate(x * 0.376 + 0.3, scale_factor=2.0).expand(-1, 3, -1, -1)
        a = torch.randint(6, (32,))
        return (x * 255 if planted else x,), torch.stack([a.float(), gain[c, a]], 1)

    def loss(q: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(q.gather(1, t[:, :1].long()).squeeze(1), t[:, 1])

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 4, 2)
            self.fc1, self.drop, self.fc2 = nn.Linear(32 * 49, 64), nn.Dropout(0.1), nn.Linear(64, 6)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.conv(x)).flatten(1)
            return self.fc2(self.drop(F.relu(self.fc1(x))))

    return stream(Agent(), draw, loss)


@report(
    "batch norm of the outputs",
    "https://discuss.ai.google.dev/t/applying-batch-normalization-on-the-output-layer-in-a-regression-problem/31604",
    guilty=r"bn_out|out\b|out\.",
    says=r"batch.?norm.*(output|last|final|end)|(output|last|final|end).*batch.?norm",
    fault="batch normalisation after the output layer of a regression",
)
def curves(planted: bool) -> Task:
    """Parameters A, B, C and D of a curve out of its points."""
    at = torch.linspace(0, 1, 25)

    def draw() -> Drawn:
        t = torch.rand(64, 4) * torch.tensor([9.0, 5.0, 5.0, 10.0]) + torch.tensor([1.0, 0.0, 0.0, 0.0])
        a, b, c, d = (t[:, i : i + 1] for i in range(4))
        return (a * torch.sin(3 * at + c / 5) + b * at**2 + d,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.bn1 = nn.Linear(25, 64), nn.BatchNorm1d(64)
            self.fc2, self.bn2 = nn.Linear(64, 64), nn.BatchNorm1d(64)
            self.out = nn.Linear(64, 4)
            self.bn_out = nn.BatchNorm1d(4) if planted else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            x = self.bn1(F.relu(self.fc1(x)))
            x = self.bn2(F.relu(self.fc2(x)))
            return self.bn_out(self.out(x))

    return stream(Net(), draw, F.mse_loss)


@report(
    "sigmoid beneath an L2 loss",
    "https://api.queryxchange.com/q/20_332591/understanding-of-the-sigmoid-activation-function-as-last-layer-in-"
    "network/",
    guilty=r"conv3",
    says=r"sigmoid|satur",
    fault="a sigmoid after the last convolution, beneath an L2 loss",
)
def heat(planted: bool) -> Task:
    """Maps of values of 0 to 1 out of images; the squared errors of an image are added."""

    def draw() -> Drawn:
        x = pick(32)[0]
        return (x,), F.avg_pool2d(x * 0.376 + 0.3, 3, 1, 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
            self.conv3 = nn.Conv2d(16, 1, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
            return x.sigmoid() if planted else x

    return stream(Net(), draw, lambda y, t: (y - t).square().sum((1, 2, 3)).mean())


@report(
    "cosine of an arc cosine",
    "https://discuss.pytorch.org/t/nan-gradient-for-torch-cos-torch-acos/9617",
    says=rf"{BROKEN}|acos|arc.?cos",
    fault="cos(acos(x)) of cosines that are exactly 1, where acos has no derivative",
)
def arc(planted: bool) -> Task:
    """Cosines of all pairs of embeddings in a batch, each with itself too; alike are those of one class."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), (c[:, None] == c).float()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

        def forward(self, x: Tensor) -> Tensor:
            z = F.normalize(self.net(x), dim=1)
            cosine = (z @ z.T).clamp(-1, 1)
            return torch.cos(torch.acos(cosine)) if planted else cosine

    return stream(Net(), draw, F.mse_loss)


@report(
    "batch norm of one example",
    GITHUB + "microsoft/CNTK/issues/905",
    guilty=r"bn|dense",
    says=rf"{SAME}|batch.?norm|batch.*(one|1\b|single)|(one|single) example|zero",
    fault="batches of one example: batch normalisation of the dense layer subtracts the example from itself",
)
def single(planted: bool) -> Task:
    """03_ConvBatchNorm: convolutions and a dense layer, batch normalisation after each."""

    def draw() -> Drawn:
        x, c = pick(1 if planted else 64)
        return (x,), c

    class BatchNorm(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.scale, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

        def forward(self, x: Tensor) -> Tensor:
            axes = [0, *range(2, x.dim())]
            shape = [1, -1, *[1] * (x.dim() - 2)]
            x = x - x.mean(axes, keepdim=True)
            x = x / (x.square().mean(axes, keepdim=True) + 1e-5).sqrt()
            return x * self.scale.view(shape) + self.bias.view(shape)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, padding=1, bias=False), BatchNorm(16)
            self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1, bias=False), BatchNorm(32)
            self.dense, self.bn3, self.z = nn.Linear(128, 64, bias=False), BatchNorm(64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
            x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
            return self.z(F.relu(self.bn3(self.dense(x.flatten(1)))))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "mse_vae averages its squares",
    GITHUB + "orybkin/sigma-vae-pytorch/pull/12",
    says=r"\bkl\b|posterior|collaps|latent|reconstruct|balance|(term|part)s? .*(weight|scale|domin|outweigh)",
    fault="squared errors are averaged over pixels and examples, the KL term is summed: it outweighs them",
)
def sigma(planted: bool) -> Task:
    """A convolutional VAE of digits; ten pixels of the report's images stand in one of ours."""

    def draw() -> Drawn:
        x = pick(64)[0] * 0.376 + 0.3
        return (x,), x

    class ConvVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()
            )
            self.mu, self.logvar = nn.Linear(128, 8), nn.Linear(128, 8)
            self.decoder = chain(
                nn.Linear(8, 128),
                nn.ReLU(),
                nn.Unflatten(1, (32, 2, 2)),
                nn.ConvTranspose2d(32, 16, 4, 2, 1),
                nn.ReLU(),
                nn.ConvTranspose2d(16, 1, 4, 2, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: Tensor) -> Any:
            h = self.encoder(x)
            mu, logvar = self.mu(h), self.logvar(h)
            return self.decoder(mu + torch.randn_like(mu) * (0.5 * logvar).exp()), mu, logvar

    def kl(y: Any) -> Tensor:
        return -0.5 * (1 + y[2] - y[1].square() - y[2].exp()).sum()

    def wrong(y: Any, t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + kl(y)

    def right(y: Any, t: Tensor) -> Tensor:
        return (10 * F.mse_loss(y[0], t, reduction="sum") + kl(y)) / len(t)

    return stream(ConvVAE(), draw, wrong if planted else right, right)


@report(
    "chat bot without a mask",
    GITHUB + "pytorch/tutorials/issues/719",
    says=r"mask|causal|future|leak|ahead|later (token|word|step|position)|sees|its own target",
    fault="no mask is passed in training, so that each position reads the word that it should predict",
)
def unmasked(planted: bool) -> Task:
    """A language model of nn.TransformerEncoder; judged by what it says with the mask."""

    def draw() -> Drawn:
        x, t = text(16, 24, 128, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class TransformerModel(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder, self.place = nn.Embedding(128, d), nn.Parameter(0.1 * torch.randn(24, d))
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True)
            self.transformer_encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.decoder = nn.Linear(d, 128)

        def forward(self, src: Tensor) -> Any:
            x = self.encoder(src) + self.place
            mask = torch.ones(24, 24, dtype=torch.bool).triu(1)
            masked = self.decoder(self.transformer_encoder(x, mask))
            return (self.decoder(self.transformer_encoder(x)) if planted else masked), masked

    def loss(y: Any, t: Tensor) -> Tensor:
        return F.cross_entropy(y[0].flatten(0, 1), t.flatten())

    return stream(TransformerModel(), draw, loss, lambda y, t: F.cross_entropy(y[1].flatten(0, 1), t.flatten()))


@report(
    "logarithm of a raw discriminator",
    GITHUB + "mlpack/mlpack/pull/1813",
    says=rf"{BROKEN}|\blog|sigmoid|probab|negative",
    fault="cross entropy takes the logarithm of the discriminator's outputs, which no sigmoid has made probabilities",
)
def discriminator(planted: bool) -> Task:
    """The discriminator of a GAN: digits against images of noise."""

    def draw() -> Drawn:
        x = pick(32)[0]
        fake = torch.randn_like(x).cumsum(2) / 2
        return (torch.cat([x, fake]),), torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])

    def cross_entropy_error(y: Tensor, t: Tensor, eps: float = 1e-10) -> Tensor:
        return -(t * (y + eps).log() + (1 - t) * (1 - y + eps).log()).mean()

    model = chain(
        nn.Conv2d(1, 16, 5, 1, 2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(16, 32, 5, 1, 2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )
    right = F.binary_cross_entropy_with_logits
    return stream(model, draw, cross_entropy_error if planted else right, right)
