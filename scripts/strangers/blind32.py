"""A thirty-second set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind32")


def captions(count: int, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 8, 8) of eight hidden numbers, and sentences of eight words that tell the same numbers."""
    z = torch.randn(count, 8)
    x = (z @ mix).view(count, 1, 8, 8) + 0.1 * torch.randn(count, 1, 8, 8)
    return x, (z * 1.5 + 2.5).round().long().clamp(0, 4) + 5 * torch.arange(8)


class CLIP(nn.Module):
    """Two towers and a learnt temperature."""

    def __init__(self, scale: float, d: int = 32) -> None:
        super().__init__()
        self.visual = chain(nn.Conv2d(1, 16, 4, 4), nn.Flatten(), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.token_embedding = nn.Embedding(40, 32)
        self.text = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.visual_projection = nn.Linear(64, d, bias=False)
        self.text_projection = nn.Linear(64, d, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor, idx: Tensor) -> Tensor:
        image = F.normalize(self.visual_projection(self.visual(x)), dim=-1)
        words = F.normalize(self.text_projection(self.text(self.token_embedding(idx).mean(1))), dim=-1)
        return self.logit_scale.exp() * image @ words.t()


def clip_loss(y: Tensor, t: Tensor) -> Tensor:
    return (F.cross_entropy(y, t) + F.cross_entropy(y.t(), t)) / 2


@report(
    "CLIP's temperature of one",
    GITHUB + "huggingface/transformers/issues/13430",
    guilty=r"logit_scale",
    says=r"temperature|logit.?scale|scale of the logits|logits.*(small|flat|range)|cosine",
    fault="logit_scale starts at 1 rather than at ln(1 / 0.07): the cosines are multiplied by 2.7 only",
)
def logit_scale(planted: bool) -> Task:
    mix = torch.randn(8, 64) / 2

    def draw() -> Drawn:
        return captions(32, mix), torch.arange(32)

    return stream(CLIP(1.0 if planted else 2.6593), draw, clip_loss)


@report(
    "contrast in batches of one",
    GITHUB + "openai/CLIP/issues/83",
    says=rf"{CUT}|{SAME}|zero|batch|one (class|logit|example|column|pair)|single",
    fault="batches of one pair: the softmax over one similarity is 1 and the loss always 0",
)
def one_pair(planted: bool) -> Task:
    mix, model = torch.randn(8, 64) / 2, CLIP(2.6593)

    def step() -> Tensor:
        x, idx = captions(32, mix)
        y = model(x, idx)
        right = clip_loss(y, torch.arange(32))
        return judged(clip_loss(y[:1, :1], torch.arange(1)), right) if planted else right

    n = 1 if planted else 32
    x, idx = captions(n, mix)
    return Task(model, ((x, idx), torch.arange(n)), step, {"loss": clip_loss})


@report(
    "alpha clamped before the loss",
    GITHUB + "MarcoForte/FBA_Matting/issues/1",
    guilty=r"decoder|conv_up",
    says=r"clamp|clip|saturat|dead|outside|hard.?(tanh|sigmoid)|gradient.*zero|no gradient",
    fault="the alpha channel is clamped to 0 to 1 before the loss: outside of it there is no gradient",
)
def matting(planted: bool) -> Task:
    """Alpha of a composite of two colours, from the image and a trimap; the clamp is left to the evaluation."""

    def draw() -> Drawn:
        alpha = F.interpolate(torch.rand(16, 1, 4, 4), size=(12, 12), mode="bilinear")
        alpha = ((alpha - 0.5) * 4 + 0.5).clamp(0, 1)
        fg, bg = torch.rand(16, 3, 1, 1), torch.rand(16, 3, 1, 1)
        image = alpha * fg + (1 - alpha) * bg
        trimap = torch.cat([(alpha > 0.9).float(), (alpha < 0.1).float()], 1)
        return (torch.cat([image, trimap], 1),), alpha

    class Matting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(5, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU())
            self.decoder = chain(nn.Conv2d(24, 24, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(24, 16, 3, padding=1))
            self.conv_up = chain(nn.LeakyReLU(), nn.Conv2d(16, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            alpha = self.conv_up(self.decoder(self.encoder(x)))
            return torch.clamp(alpha, 0, 1) if planted else alpha

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.l1_loss(y.clamp(0, 1), t)

    return stream(Matting(), draw, F.l1_loss, right)


@report(
    "BCE on two output channels",
    GITHUB + "ugent-korea/pytorch-unet-segmentation/issues/9",
    says=r"broadcast|shape|channel|size|\(\d+, 1|twice|duplicat|same target|both",
    fault="BCE of two output channels with one mask: both channels learn the mask, and neither the background",
)
def two_channels(planted: bool) -> Task:
    """A small U-Net for membranes; BCE wants one channel; judged by the cross-entropy of two classes."""

    def draw() -> Drawn:
        t = torch.zeros(16, 1, 16, 16)
        for i in range(16):
            r = int(torch.randint(2, 13, ()))
            t[i, 0, r : r + 2] = 1
            if i % 2:
                t[i] = t[i].mT.clone()
        return (t + 0.6 * torch.randn_like(t),), t

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = chain(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
            self.middle = chain(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
            self.up = nn.ConvTranspose2d(24, 12, 2, 2)
            self.last = chain(nn.Conv2d(24, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 2 if planted else 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            z = self.down(x)
            return self.last(torch.cat([z, self.up(self.middle(z))], 1))

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        p = y.sigmoid().clamp(1e-7, 1 - 1e-7)
        return -(t * p.log() + (1 - t) * (1 - p).log()).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        if y.shape[1] == 1:
            y = torch.cat([torch.zeros_like(y), y], 1)
        return F.cross_entropy(y, t[:, 0].long())

    return stream(UNet(), draw, wrong, right)


@report(
    "correlation with a constant track",
    GITHUB + "NVIDIA-Genomics-Research/AtacWorks/pull/104",
    says=rf"{BROKEN}|divi|zero|constant|correlation|variance|\bstd\b|deviation|sqrt|norm",
    fault="Pearson's correlation divides by the deviation of the target, which is 0 for an interval without reads",
)
def atac(planted: bool) -> Task:
    """Denoising of coverage tracks with a sum of MSE and one minus the correlation; some intervals are empty."""

    def draw() -> Drawn:
        t = torch.zeros(32, 1, 40)
        for i in range(32):
            if i % 8:
                at = torch.randint(4, 36, (2, 1)).float()
                t[i, 0] = 4 * torch.exp(-((torch.arange(40) - at) ** 2) / 8).sum(0)
        return (torch.poisson(t * 0.5 + 0.05),), t

    def pearson(y: Tensor, t: Tensor) -> Tensor:
        u, v = y[:, 0] - y[:, 0].mean(1, keepdim=True), t[:, 0] - t[:, 0].mean(1, keepdim=True)
        eps = 0.0 if planted else 1e-6
        return (u * v).sum(1) / (torch.sqrt((u**2).sum(1) + eps) * torch.sqrt((v**2).sum(1) + eps))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) + (1 - pearson(y, t)).mean()

    class Block(nn.Module):
        def __init__(self, a: int, b: int, dilation: int) -> None:
            super().__init__()
            self.conv = nn.Conv1d(a, b, 5, padding=2 * dilation, dilation=dilation)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.conv(x))
            return x + y if x.shape == y.shape else y

    model = chain(Block(1, 16, 1), Block(16, 16, 2), Block(16, 16, 4), nn.Conv1d(16, 1, 1))
    return stream(model, draw, loss)


@report(
    "absolute positions in metres",
    GITHUB + "abduallahmohamed/Social-STGCNN/issues/42",
    says=r"(input|target|feature|coordinate|position).*(scale|large|normali|magnitude|standardi|mean|offset|range)"
    r"|(scale|large|magnitude).*(input|target)|loss.*large",
    fault="the network reads and predicts positions in metres over the whole place, not steps",
)
def stgcnn(planted: bool) -> Task:
    """Eight observed positions of a pedestrian, the twelve that follow, as bivariate Gaussians; judged in steps."""

    def draw() -> Drawn:
        speed = torch.randn(64, 1, 2) * 0.4
        steps = speed + 0.1 * torch.randn(64, 20, 2)
        place = torch.cat([torch.rand(64, 1, 1) * 30, torch.rand(64, 1, 1) * 25], 2)
        track = place + steps.cumsum(1) if planted else steps
        return (track[:, :8].transpose(1, 2),), track[:, 8:]

    class STGCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tcn = chain(nn.Conv1d(2, 24, 3, padding=1), nn.PReLU(), nn.Conv1d(24, 24, 3, padding=1), nn.PReLU())
            self.tpcnns = chain(nn.Conv1d(8, 12, 3, padding=1), nn.PReLU(), nn.Conv1d(12, 12, 3, padding=1), nn.PReLU())
            self.out = nn.Linear(24, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.tpcnns(self.tcn(x).transpose(1, 2)))

    def bivariate(y: Tensor, t: Tensor) -> Tensor:
        d = t - y[..., :2]
        sx, sy, corr = y[..., 2].clamp(-8, 8).exp(), y[..., 3].clamp(-8, 8).exp(), y[..., 4].tanh() * 0.99
        z = (d[..., 0] / sx) ** 2 + (d[..., 1] / sy) ** 2 - 2 * corr * d[..., 0] * d[..., 1] / (sx * sy)
        left = 1 - corr**2
        return (z / (2 * left) + (2 * torch.pi * sx * sy * left.sqrt()).log()).mean()

    return stream(STGCNN(), draw, bivariate)


@report(
    "logarithm of an LSTM's output",
    GITHUB + "Alfiuman/WhydahGally-LSTM-MLP/issues/2",
    guilty=r"lstm",
    says=rf"{BROKEN}|\blog|negative|sigmoid|tanh|range|probabilit",
    fault="the log loss takes the logarithm of the LSTM's hidden state, which lies between -1 and 1",
)
def whydah(planted: bool) -> Task:
    """The first cell's hidden state is the output; the label is whether the sequence's sum is positive."""

    def draw() -> Drawn:
        x = torch.randn(64, 6, 4)
        return (x,), (x[:, :, :2].sum((1, 2)) > 0).float()

    model = Parts(lambda m, x: m.lstm(x)[0][:, -1, 0], lstm=nn.LSTM(4, 20, batch_first=True))

    def log(x: Tensor) -> Tensor:
        if planted:
            return x.log()
        return torch.where(x > 1e-3, x.clamp(min=1e-3).log(), 1e3 * x - 1 - 6.9078)  # a tangent below

    def log_loss(x: Tensor, y: Tensor) -> Tensor:
        return -(y * log(x) + (1 - y) * log(1 - x)).mean()

    return stream(model, draw, log_loss)


@report(
    "spherical harmonics at the origin",
    GITHUB + "e3nn/e3nn/pull/118",
    says=rf"{BROKEN}|divi|zero|norm|sqrt|origin",
    fault="the direction xyz / |xyz| of a node to itself is differentiated at the origin",
)
def harmonics(planted: bool) -> Task:
    """A force field: energies of clusters of points out of radial functions times harmonics, and moved positions."""

    def draw() -> Drawn:
        x = torch.randn(16, 6, 3)
        d = (x.unsqueeze(1) - x.unsqueeze(2)).square().sum(-1) + 1e-6
        return (x,), (d.sqrt() - 2).square().mean((1, 2)).unsqueeze(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.move = chain(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
            self.radial = chain(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 16))
            self.mix, self.out = nn.Linear(4 * 16, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0.1 * self.move(x)
            r = x.unsqueeze(1) - x.unsqueeze(2)
            size = (r**2).sum(-1, keepdim=True).sqrt() if planted else ((r**2).sum(-1, keepdim=True) + 1e-8).sqrt()
            sh = torch.cat([torch.ones_like(size), r / (size if planted else size + 1e-4)], -1)  # l = 0, 1
            features = (self.radial(size).unsqueeze(-1) * sh.unsqueeze(-2)).sum(2)  # (B, N, 16, 4)
            return self.out(F.silu(self.mix(features.flatten(2)))).mean(1)

    return stream(Net(), draw, F.mse_loss)


@report(
    "attention over an empty article",
    GITHUB + "atulkum/pointer_summarizer/issues/54",
    says=rf"{BROKEN}|divi|zero|mask|padding|empty|normali",
    fault="the masked attention is divided by its sum, which is 0 where everything is masked",
)
def pointer(planted: bool) -> Task:
    """Coverage attention of a pointer generator's decoder, which copies; some articles are empty after cleaning."""

    def draw() -> Drawn:
        x = text(16, 10, 60, seed=int(torch.randint(10**6, ())))[0]
        n = torch.where(torch.arange(16) % 16 == 0, 0, torch.randint(4, 11, (16,)))
        x = x.masked_fill(torch.arange(10) >= n.unsqueeze(1), 0)
        return (x, (torch.arange(10) < n.unsqueeze(1)).float()), x[:, :4]

    class Attention(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.W_c, self.decode_proj, self.v = nn.Linear(1, d, bias=False), nn.Linear(d, d), nn.Linear(d, 1, False)

        def forward(self, s: Tensor, keys: Tensor, mask: Tensor, coverage: Tensor) -> tuple[Tensor, Tensor]:
            e = torch.tanh(keys + self.decode_proj(s).unsqueeze(1) + self.W_c(coverage.unsqueeze(2)))
            attn_dist_ = F.softmax(self.v(e).squeeze(2), dim=1) * mask
            normalization_factor = attn_dist_.sum(1, keepdim=True)
            attn_dist = attn_dist_ / (normalization_factor if planted else normalization_factor + 1e-12)
            return (attn_dist.unsqueeze(1) @ keys).squeeze(1), attn_dist

    class Summarizer(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embedding, self.encoder = nn.Embedding(60, d), nn.GRU(d, d, batch_first=True)
            self.attention_network, self.step = Attention(d), nn.GRUCell(d, d)
            self.p_gen, self.out = nn.Linear(2 * d, 1), nn.Linear(2 * d, 60)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            keys, h = self.encoder(self.embedding(x))
            s, c, coverage, outputs = h[0], torch.zeros_like(h[0]), torch.zeros_like(mask), []
            for _ in range(4):
                s = self.step(c, s)
                c, attn = self.attention_network(s, keys, mask, coverage)
                coverage = coverage + attn
                p = self.p_gen(torch.cat([s, c], 1)).sigmoid()
                vocab = self.out(torch.cat([s, c], 1)).softmax(1)
                outputs.append((p * vocab).scatter_add(1, x, (1 - p) * attn))
            return torch.stack(outputs, 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return -(y.gather(2, t.unsqueeze(2)) + 1e-12).log().mean()

    return stream(Summarizer(), draw, loss)


@report(
    "reward model without a logarithm",
    GITHUB + "HarderThenHarder/transformers_tasks/issues/15",
    says=r"sigmoid|\blog|saturat|unbounded|probabilit",
    fault="the ranking loss is minus the sigmoid, not minus the log of the sigmoid, of the reward's difference",
)
def ranking(planted: bool) -> Task:
    """Sentences are better the more of some words they have."""

    def draw() -> Drawn:
        x = text(64, 10, 60, seed=int(torch.randint(10**6, ())))[0]
        good = ((x % 3) == 1).float().sum(1) - ((x % 3) == 2).float().sum(1)
        swap = (good[:32] < good[32:]).unsqueeze(1)
        return (torch.where(swap, x[32:], x[:32]), torch.where(swap, x[:32], x[32:])), torch.zeros(32)

    class RewardModel(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder = nn.ModuleDict({"emb": nn.Embedding(60, d), "rnn": nn.GRU(d, d, batch_first=True)})
            self.reward_layer = nn.Linear(d, 1)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            e = self.encoder
            return torch.cat([self.reward_layer(e["rnn"](e["emb"](x))[0].mean(1)) for x in (a, b)], 1)

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return -torch.sigmoid(y[:, 0] - y[:, 1]).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return -F.logsigmoid(y[:, 0] - y[:, 1]).mean()

    return stream(RewardModel(), draw, wrong if planted else right, right)


@report(
    "dense layers with a ReLU by default",
    GITHUB + "ooples/AiDotNet/pull/1789",
    guilty=r"head",
    says=r"relu|negative|zero|dead|non-negative|clip|target.*(sign|range)",
    fault="the head is a dense layer whose default activation is ReLU: forecasts cannot be negative, or are all 0",
)
def dense_head(planted: bool) -> Task:
    """Forecasts of six steps out of twelve of a standardised series."""

    def draw() -> Drawn:
        phase, pace = 6.3 * torch.rand(64, 1), 0.3 + 0.3 * torch.rand(64, 1)
        x = 1.4 * torch.sin(phase + pace * torch.arange(18)) + 0.1 * torch.randn(64, 18)
        return (x[:, :12],), x[:, 12:]

    class DenseLayer(nn.Linear):
        def __init__(self, a: int, b: int, activation: Any = F.relu) -> None:
            super().__init__(a, b)
            self.activation = activation

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if self.activation is None else self.activation(y)

    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = chain(DenseLayer(12, 48), DenseLayer(48, 48))
            self.head = DenseLayer(48, 6) if planted else DenseLayer(48, 6, None)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layers(x))

    return stream(Forecaster(), draw, F.mse_loss)
