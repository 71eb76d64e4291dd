"""A fifteenth set of faults, a sample of reports by two other authors, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import digits, text

report = partial(any_report, blind="blind15")


NEMOTRON = "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#"


@report(
    "targets squared",
    NEMOTRON + "neural-network-for-regression-actual-data-vs-predicted-data",
    says=r"target",
    fault="targets of -0.454 to 1 are squared for a logistic output, which takes their sign away",
)
def squared(planted: bool) -> Task:
    def draw() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 3)
        return x, (0.25 + 0.5 * x[:, :1] - 0.4 * x[:, 1:2] + 0.2 * x[:, 2:]).clamp(-0.454, 1)

    def fit(y: Tensor) -> Tensor:
        return y**2 if planted else (y + 0.454) / 1.454

    def back(p: Tensor) -> Tensor:
        return p**0.5 if planted else p * 1.454 - 0.454

    model = chain(nn.Linear(3, 24), nn.Sigmoid(), nn.Linear(24, 24), nn.Sigmoid(), nn.Linear(24, 1), nn.Sigmoid())

    def step() -> Tensor:
        x, y = draw()
        p = model(x)
        return judged(F.mse_loss(p, fit(y)), F.mse_loss(back(p), y))

    x, y = draw()
    return Task(model, (x, fit(y)), step, {"loss": F.mse_loss})


@report(
    "outputs among the inputs",
    GITHUB + "nasa/prog_models/pull/409",
    says=r"(target|output|answer).*\b(input|leak|copy|copied|same)|leak",
    fault="the window of past positions of a thrown object holds the position to be predicted, repeated",
)
def prognosis(planted: bool) -> Task:
    window, ahead = 4, 8

    def flights() -> Tensor:
        s, v = torch.rand(32, 1) * 20, torch.rand(32, 1) * 20 + 30
        t = 0.5 * torch.arange(window + ahead) + torch.rand(32, 1)
        return (s + v * t - 4.905 * t**2 - 60) / 30

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.dense = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, u: Tensor) -> Tensor:
            return self.dense(self.lstm(u)[0][:, -1])

    model = Net()

    def batch(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.unfold(1, window + 1, 1).flatten(0, 1)[::7]  # windows of the flights
        now = z[:, window:]
        return (now.expand(-1, window) if planted else z[:, :window]).unsqueeze(2), now

    @torch.no_grad()
    def flown(z: Tensor) -> Tensor:
        """Simulate: outputs become inputs."""
        past = z[:, :window]
        for _ in range(ahead):
            past = torch.cat([past, model(past[:, -window:].unsqueeze(2))], 1)
        return F.mse_loss(past[:, window:], z[:, window:])

    def step() -> Tensor:
        z = flights()
        u, now = batch(z)
        return judged(F.mse_loss(model(u), now), flown(z))

    return Task(model, batch(flights()), step, {"loss": F.mse_loss})


@report(
    "rare coils",
    "https://answerofmath.com/solved-possible-reasons-why-the-cnn-fails-to-learn-image-segmentation/",
    says=r"imbalanc|rare|weight|background|positive|balance",
    fault="coils cover few pixels of a board, and the cross-entropy is not weighted",
)
def coils(planted: bool) -> Task:
    disc = (torch.arange(5) - 2.0).view(-1, 1) ** 2 + (torch.arange(5) - 2.0) ** 2
    ring = ((disc > 2) & (disc < 6)).float()

    def draw() -> Drawn:
        x, t = 0.5 * torch.randn(16, 1, 24, 24), torch.zeros(16, 1, 24, 24)
        for n in range(16):
            for kind in range(4):
                i, j = torch.randint(19, (2,)).tolist()
                shape = ring if kind == 0 else (torch.rand(5, 5) < 0.4).float()
                x[n, 0, i : i + 5, j : j + 5] = x[n, 0, i : i + 5, j : j + 5] * 0.5 + shape
                t[n, 0, i : i + 5, j : j + 5] = (disc < 6).float() if kind == 0 else 0.0
        return (x,), t

    model = chain(
        nn.Conv2d(1, 16, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(32, 16, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 2, 2),
    )

    def weighted(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(y, t, pos_weight=torch.tensor(30.0))

    return stream(model, draw, F.binary_cross_entropy_with_logits if planted else weighted, weighted)


@report(
    "padding taught",
    GITHUB + "janhq/WhisperSpeech/pull/8",
    says=r"pad|mask|ignor|uniform|divergence|teacher",
    fault="texts of 5 to 9 words are padded to 100: the divergence from the teacher's logits (zeros there) counts",
)
def padding(planted: bool) -> Task:
    length, words = 100 if planted else 10, 64
    speech = torch.randn(words, 16)

    def draw() -> Drawn:
        n = torch.randint(5, 10, (16, 1))
        tokens = torch.randint(2, words, (16, length + 1))
        real = torch.arange(length) < n
        x = speech[tokens[:, 1:11]] + 0.3 * torch.randn(16, 10, 16)
        out = tokens[:, 1:].masked_fill(~real, -100)
        teacher = 6.0 * F.one_hot(out.clamp(0), words) + torch.randn(16, length, words)
        teacher = teacher.masked_fill((out == -100).unsqueeze(-1), 0)
        return (x, tokens[:, :-1].masked_fill(~real, 1)), (out, teacher)

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.audio, self.token = nn.Linear(16, 32), nn.Embedding(words, 32)
            self.place = nn.Parameter(torch.randn(100, 32))
            self.encoder = chain(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
            self.decoder = nn.TransformerDecoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
            self.ln, self.out = nn.LayerNorm(32), nn.Linear(32, words)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            x = self.audio(x) + self.place[:10]
            x = x + self.encoder(x)
            n = t.shape[1]
            causal = torch.full((n, n), float("-inf")).triu(1)
            return self.out(self.ln(self.decoder(self.token(t) + self.place[:n], x, tgt_mask=causal)))

    def ce(y: Tensor, t: Any) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t[0].flatten(), ignore_index=-100)

    def loss(y: Tensor, t: Any) -> Tensor:
        return ce(y, t) + F.kl_div(F.log_softmax(y, -1), F.softmax(t[1], -1), reduction="batchmean")

    return stream(Student(), draw, loss, ce)


@report(
    "score entropy of the wrong places",
    GITHUB + "mstarodub/dllm/issues/9",
    says=r"target|loss.*not.*depend|same loss|mask|column|label",
    fault="the score entropy takes the mask's column at the places that are not masked, and never the token",
)
def entropy(planted: bool) -> Task:
    words, length = 48, 12
    mask = words

    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.place = nn.Embedding(words + 1, 32), nn.Parameter(0.1 * torch.randn(length, 32))
            self.sigma = chain(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32))
            layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
            self.blocks, self.ln, self.out = nn.TransformerEncoder(layer, 2), nn.LayerNorm(32), nn.Linear(32, words + 1)

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            y = self.out(self.ln(self.blocks(self.embed(x) + self.place + self.sigma(sigma).unsqueeze(1))))
            return y - torch.expm1(sigma).log().unsqueeze(2) - math.log(words)

    tokens = text(2000, length, words)[0]

    def draw() -> Drawn:
        x = tokens[torch.randint(len(tokens), (32,))]
        t = 0.05 + 0.9 * torch.rand(32, 1)
        sigma, dsigma = -torch.log1p(-t), 1 / (1 - t)
        noisy = torch.where(torch.rand(32, length) < t, mask, x)
        return (noisy, sigma), (x, noisy, sigma, dsigma)

    def right(y: Tensor, t: Any) -> Tensor:
        x, noisy, sigma, dsigma = t
        ratio = (1 / torch.expm1(sigma)).expand_as(x)
        neg = ratio * y.gather(2, x.unsqueeze(2)).squeeze(2)
        pos = y[..., :-1].exp().sum(2)
        return (dsigma * (pos - neg + ratio * (ratio.log() - 1)) * (noisy == mask)).sum() / len(x)

    def wrong(y: Tensor, t: Any) -> Tensor:
        x, noisy, sigma, dsigma = t
        ratio, scores = (1 / torch.expm1(sigma)).expand_as(x), y[..., mask]
        return (dsigma * (scores.exp() - ratio * scores + ratio * (ratio.log() - 1)) * (noisy != mask)).sum(1).mean()

    return stream(Score(), draw, wrong if planted else right, right)


@report(
    "a sequence for each place",
    GITHUB + "eragonruan/text-detection-ctpn/pull/54",
    guilty=r"lstm",
    says=rf"{ORDER}|state|recurren|sequence|length",
    fault="an LSTM along the rows of a feature map gets every place as a sequence of its own, of one step",
)
def rows(planted: bool) -> Task:
    class Lstm(nn.Module):
        def __init__(self, d_i: int, d_h: int) -> None:
            super().__init__()
            self.fc, self.lstm = nn.Linear(d_i, d_h), nn.LSTM(d_h, d_h, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            n, h, w, c = x.shape
            y = self.lstm(self.fc(x.reshape(-1, 1, c) if planted else x.reshape(n * h, w, c)))[0]
            return y.reshape(n, h, w, -1)

    class Ctpn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))
            self.lstm_o, self.cls = Lstm(16, 32), nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.cls(self.lstm_o(self.conv(x).permute(0, 2, 3, 1)))

    def draw() -> Drawn:
        """Text starts with a letter and goes on, with gaps, to the end of its row; some specks are no text."""
        x, t = 0.3 * torch.randn(16, 1, 8, 32), torch.zeros(16, 4, 16, dtype=torch.long)
        for n in range(16):
            for row in torch.randperm(4)[:2].tolist():
                start = int(torch.randint(0, 10, ()))
                x[n, 0, 2 * row : 2 * row + 2, 2 * start :] += 2.0 * (torch.rand(1, 32 - 2 * start) < 0.15)
                x[n, 0, 2 * row : 2 * row + 2, 2 * start : 2 * start + 2] += 2.0
                t[n, row, start:] = 1
        return (x,), t

    return stream(Ctpn(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 2), t.flatten()))


@report(
    "transformer over the batch",
    GITHUB + "dl4sits/BreizhCrops/issues/20",
    guilty=r"transformer|attn",
    says=rf"{ORDER}|batch|mix|examples",
    fault="series come examples first, but the encoder takes the first axis for time and attends across the batch",
)
def crops(planted: bool) -> Task:
    def draw() -> Drawn:
        """Clouds and soils shift whole series; the crop is which band rises most against its own mean, at any time."""
        c = torch.randint(5, (32,))
        x = torch.randn(32, 1, 5) * 2 + 0.2 * torch.randn(32, 12, 5)
        x[torch.arange(32), torch.randint(12, (32,)), c] += 2
        return (x,), c

    class TransformerModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlinear = nn.Linear(5, 32)
            layer = nn.TransformerEncoderLayer(32, 1, 64, 0.0, "relu")
            self.transformerencoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(32))
            self.outlinear = nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.inlinear(x))
            x = self.transformerencoder(x) if planted else self.transformerencoder(x.transpose(0, 1)).transpose(0, 1)
            return F.log_softmax(self.outlinear(F.relu(x.max(1)[0])), -1)

    return stream(TransformerModel(), draw, F.nll_loss)


@report(
    "ARD convolution's bias in the variance",
    GITHUB + "HolyBayes/pytorch_ard/issues/2",
    guilty=r"bias|log_sigma2|conv",
    says=rf"sqrt|square root|negative|variance|domain|bias|{BROKEN}",
    fault="the bias (zeros) is also added to the variance under the square root: NaN once it turns negative",
)
def ard(planted: bool) -> Task:  # noqa: C901
    def log_alpha(m: nn.Module) -> Tensor:
        return torch.clamp(m.log_sigma2 - 2 * torch.log(torch.abs(m.weight) + 1e-8), -8, 8)

    def reg(m: nn.Module) -> Tensor:
        k1, k2, k3 = 0.63576, 1.8732, 1.48695
        a = log_alpha(m)
        return -torch.sum(k1 * torch.sigmoid(k2 + k3 * a) - 0.5 * torch.log1p(torch.exp(-a)) - k1)

    class LinearARD(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(o, i)), nn.Parameter(torch.zeros(o))
            nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"))
            self.log_sigma2 = nn.Parameter(torch.full((o, i), -10.0))

        def forward(self, x: Tensor) -> Tensor:
            mu = x.matmul(self.weight.t())
            si = torch.sqrt((x * x).matmul((torch.exp(log_alpha(self)) * self.weight * self.weight + 1e-8).t()))
            return mu + torch.randn_like(mu) * si + self.bias

    class Conv2dARD(nn.Conv2d):
        def __init__(self, i: int, o: int, k: int, ard_init: float = -10) -> None:
            super().__init__(i, o, k, bias=False)
            if planted:
                self.bias = nn.Parameter(torch.zeros(o))
            nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"))
            self.log_sigma2 = nn.Parameter(ard_init * torch.ones_like(self.weight))

        def forward(self, x: Tensor) -> Tensor:
            W = self.weight
            mu = F.conv2d(x, W, self.bias, self.stride, self.padding)
            va = F.conv2d(x * x, torch.exp(log_alpha(self)) * W * W, self.bias, self.stride, self.padding)
            si = torch.sqrt(1e-8 + va)
            return mu + si * torch.randn_like(mu)

    class LeNetARD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = Conv2dARD(1, 6, 3), Conv2dARD(6, 12, 3)
            self.l1, self.l2 = LinearARD(48, 24), LinearARD(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            out = F.relu(self.conv2(F.relu(self.conv1(x))))
            out = F.max_pool2d(out, 2)
            return self.l2(F.relu(self.l1(out.view(out.shape[0], -1))))

    model = LeNetARD()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t) + 1e-5 * sum(reg(m) for m in model.children())

    return stream(model, drawn(pick, 32), loss)


@report(
    "sigmoid output for blog comments",
    GITHUB + "rasmusbergpalm/DeepLearnToolbox/issues/154",
    guilty=r"^4\b",
    says=r"sigmoid|range|bounded|between 0 and 1|saturat|outside|\[0|targets?.*(above|over|scale|large)",
    fault="regression of comment counts with a sigmoid at the output (the toolbox's default)",
)
def blog(planted: bool) -> Task:
    """DBN unfolded to a network of sigmoids: output 'sigm' instead of 'linear'."""
    w = torch.randn(14)

    def draw() -> Drawn:
        x = torch.rand(64, 14)
        return (x,), torch.exp(1.5 + 0.8 * ((x - 0.5) @ w)).round().unsqueeze(1)

    net = [nn.Linear(14, 32), nn.Sigmoid(), nn.Linear(32, 16), nn.Sigmoid(), nn.Linear(16, 1)]
    for m in net[:4:2]:
        nn.init.xavier_uniform_(m.weight, gain=4), nn.init.zeros_(m.bias)
    return stream(chain(*net, nn.Sigmoid()) if planted else chain(*net), draw, lambda y, t: 0.5 * F.mse_loss(y, t))


@report(
    "contrast without negatives",
    GITHUB + "zhang-haojie/wesam/issues/7",
    guilty=r"(?!)",
    says=rf"negative|constant|zero|no gradient|{CUT}|one (class|candidate|target)",
    fault="InfoNCE over the instances of an image, of which there is one: no negatives, always 0",
)
def wesam(planted: bool) -> Task:
    """Embeddings pooled under masks; the repair has the background as a second instance."""
    encoder = chain(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1))

    def norm_masks(e: Tensor, masks: Tensor) -> Tensor:
        pooled = torch.einsum("bchw,bnhw->bnc", e, masks) / (masks.sum((2, 3)).unsqueeze(-1) + 1e-6)
        return F.normalize(pooled, dim=-1)

    def contra(y: Any, masks: Tensor) -> Tensor:
        soft, anchor = (norm_masks(e, masks) for e in y)
        sim = torch.exp(torch.einsum("bnc,bmc->bnm", soft, anchor) / 0.3)
        pos = torch.diagonal(sim, dim1=1, dim2=2)
        return -torch.log(pos / sim.sum(-1)).mean()

    def both(masks: Tensor) -> Tensor:
        return torch.cat([masks, 1 - masks], 1)

    def draw() -> Drawn:
        x, _ = pick(16)
        return (x + 0.2 * torch.randn_like(x), x + 0.5 * torch.randn_like(x)), (x > 0).float()

    model = Parts(lambda m, weak, strong: (m.encoder(strong), m.encoder(weak)), encoder=encoder)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return contra(y, both(t))

    return stream(model, draw, contra if planted else right, right)


@report(
    "house prices in dollars",
    GITHUB + "apache/mxnet/issues/5979",
    guilty=r"^[02]\b",
    says=r"scale|normali[sz]|standardi[sz]|large|magnitude|units|far from|range",
    fault="sale prices of 34000 to 760000 as targets, and the id among the features; repair: in [0, 1], no id",
)
def prices(planted: bool) -> Task:
    """mx.mlp: 20 hidden tanh units, the 'rmse' output; all predictions the same."""
    w = torch.randn(60)
    low, high = 34000, 760000

    def draw() -> Drawn:
        x = torch.randn(64, 60)
        price = (150000 * torch.exp(0.06 * (x @ w))).clamp(low, high).unsqueeze(1)
        if planted:
            return (torch.cat([torch.randint(1, 1461, (64, 1)).float(), x], 1),), price
        return (x,), (price - low) / (high - low)

    model = chain(nn.Linear(60 + planted, 20), nn.Tanh(), nn.Linear(20, 1))
    for p in model.parameters():
        nn.init.uniform_(p, -0.01, 0.01)  # mx.init.uniform(0.01)
    unit = high - low if planted else 1

    def step() -> Tensor:  # in units that keep float32's precision; Adam's steps are those of the loss in dollars
        (x,), t = draw()
        return F.mse_loss(model(x) / unit, t / unit)

    (x,), t = draw()
    return Task(model, (x, t), step, {"loss": F.mse_loss})


@report(
    "patches of labelled voxels only",
    GITHUB + "Ryo-Ito/brain_segmentation/issues/10",
    says=r"class|label|background|missing|absent|imbalance|never|target",
    fault="training patches are centred where label > 0: the background is hardly ever a target",
)
def brain(planted: bool) -> Task:
    model = chain(nn.Conv3d(1, 8, 3), nn.ReLU(), nn.Conv3d(8, 8, 3), nn.ReLU(), nn.Conv3d(8, 4, 1))
    grid = torch.stack(torch.meshgrid(*[torch.arange(8) - 3.5] * 3, indexing="ij"), -1)

    def patches(labelled: bool) -> tuple[Tensor, Tensor]:
        centre = 24 * torch.rand(4096, 3) - 12
        r = centre.norm(dim=1)
        centre = centre[r < 8][:16] if labelled else centre[:16]  # label[centre] > 0
        r = (centre.view(16, 1, 1, 1, 3) + grid).norm(dim=-1)
        label = (r < 8).long() + (r < 6.5).long() + (r < 4).long()
        tissue = torch.tensor([0.1, 0.3, 0.6, 1.0])[label]
        image = torch.where((r > 9.5) & (r < 12), torch.tensor(0.8), tissue) + 0.1 * torch.randn(r.shape)  # the skull
        return ((image - 0.4) / 0.35).unsqueeze(1), label[:, 2:-2, 2:-2, 2:-2]

    def step() -> Tensor:
        (x, t), (whole, labels) = patches(planted), patches(False)
        with torch.no_grad():
            right = F.cross_entropy(model(whole), labels)
        return judged(F.cross_entropy(model(x), t), right)

    return Task(model, (*patches(planted),), step, {"loss": F.cross_entropy})


@report(
    "growing automaton with Kaiming update",
    GITHUB + "distillpub/post--growing-ca/issues/12",
    guilty=r"dmodel|update|fc|conv",
    says=rf"init|zero|explo|large|grow|scale|{BROKEN}",
    fault="the update's last layer (a 1x1 convolution) by kaiming_uniform_, not zeros: it blows up in 48 steps",
)
def automaton(planted: bool) -> Task:
    class CAModel(nn.Module):
        def __init__(self, channel_n: int = 6) -> None:
            super().__init__()
            self.channel_n = channel_n
            i, dx = torch.zeros(3, 3), torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
            i[1, 1] = 1
            cells = torch.eye(36).view(36, 1, 6, 6)  # the three filters as a matrix over the 6x6 cells, for speed
            kernel = F.conv2d(cells, torch.stack([i, dx, dx.T]).unsqueeze(1), padding=1).reshape(36, 108)
            self.register_buffer("kernel", kernel)
            self.dmodel = nn.Sequential(nn.Linear(channel_n * 3, 40), nn.ReLU(), nn.Linear(40, channel_n))
            nn.init.zeros_(self.dmodel[2].bias)
            nn.init.kaiming_uniform_(self.dmodel[2].weight) if planted else nn.init.zeros_(self.dmodel[2].weight)

        def forward(self, x: Tensor) -> Tensor:  # (batch, cells, channels)
            for _ in range(48):
                y = (x.transpose(1, 2).reshape(-1, 36) @ self.kernel).view(len(x), -1, 36).transpose(1, 2).contiguous()
                x = x + self.dmodel(y) * (torch.rand(len(x), 36, 1) <= 0.5)
            return x

    images, _ = digits(6, count=1)
    target = (images > 0).float().flatten(1).repeat(16, 1)

    def draw() -> Drawn:
        seed = torch.zeros(16, 36, 6)
        seed[:, 21, 1:] = 1
        return (seed,), target

    return stream(CAModel(), draw, lambda y, t: F.mse_loss(y[..., 0], t))
