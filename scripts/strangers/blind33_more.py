"""The rest of the thirty-third set: reports out of issues."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind33")


@report(
    "sigmoid at the end of a Wasserstein critic",
    GITHUB + "timsainb/tensorflow2-generative-models/issues/16",
    guilty=r"disc\.3",
    says=r"sigmoid|bounded|range|saturat|wasserstein|unbounded",
    fault="the critic of a WGAN-GP ends in a sigmoid, which bounds the distance and flattens its slope",
)
def critic(planted: bool) -> Task:
    """The critic alone, digits against what a generator makes at first; gradient penalty of ten."""

    def draw() -> Drawn:
        real = pick(32)[0] * 0.376 + 0.3
        fake = torch.sigmoid(0.3 * torch.randn(32, 1, 8, 8))
        return (real, fake, torch.rand(32, 1, 1, 1)), torch.zeros(32)

    class WGAN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.disc = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 1))
            self.end = nn.Sigmoid() if planted else nn.Identity()

        def forward(self, real: Tensor, fake: Tensor, epsilon: Tensor) -> Tensor:
            x_hat = (epsilon * real + (1 - epsilon) * fake).detach().requires_grad_(True)
            with torch.enable_grad():
                d_hat = self.end(self.disc(x_hat))
                gradients = torch.autograd.grad(d_hat.sum(), x_hat, create_graph=True)[0]
            slope = (gradients.flatten(1).square().sum(1) + 1e-12).sqrt()
            return torch.stack([self.end(self.disc(real)).squeeze(1), self.end(self.disc(fake)).squeeze(1), slope], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (y[:, 1] - y[:, 0]).mean() + 10 * ((y[:, 2] - 1) ** 2).mean()

    return stream(WGAN(), draw, loss)


@report(
    "defect masks of 255",
    GITHUB + "zacario-li/Segmentation-based-deep-learning-approach-for-surface-defect-detection/issues/2",
    says=r"target|label|255|between 0 and 1|outside|negative loss|unbounded|probabilit",
    fault="binary cross entropy against masks of 0 and 255",
)
def masks(planted: bool) -> Task:
    """A small segmentation network of surfaces with bright defects."""

    def draw() -> Drawn:
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        c = torch.rand(16, 2, 1, 1) * 10 + 3
        t = (((y - c[:, 0]) ** 2 + (x - c[:, 1]) ** 2) < 6).float().unsqueeze(1)
        return (1.2 * t + 0.6 * torch.randn(16, 1, 16, 16),), 255 * t

    def right(y: Tensor, t: Tensor) -> Tensor:
        return bce(y, t.clamp(0, 1))

    model = chain(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )
    return stream(model, draw, bce if planted else right, right)


@report(
    "cross entropy of one output",
    GITHUB + "darioizzo/dcgp/issues/86",
    says=rf"softmax|{SAME}|{CUT}|one (class|output)|single|zero",
    fault="cross entropy over a softmax of one output: the loss is always 0",
)
def one_output(planted: bool) -> Task:
    """Two inputs, one output, labels 0 and 1 in a column."""

    def draw() -> Drawn:
        x = torch.rand(64, 2) * 2 - 1
        return (x,), (x[:, :1] * x[:, 1:] > 0).float()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return -(t * y.log_softmax(1)).sum(1).mean()

    model = chain(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    return stream(model, draw, wrong if planted else bce, bce)


@report(
    "encoder of nothing but padding",
    GITHUB + "pytorch/pytorch/issues/24816",
    guilty=r"self_attn",
    says=rf"{BROKEN}|mask|padding|softmax",
    fault="some sequences are padding altogether: the softmax over no key is NaN",
)
def all_padding(planted: bool) -> Task:
    """A transformer encoder of sequences of 0 to 8 vectors; their sum of signs."""

    def draw() -> Drawn:
        x, n = torch.randn(32, 8, 16), torch.randint(0, 9, (32,))
        padding = torch.arange(8) >= n.unsqueeze(1)
        x = x.masked_fill(padding.unsqueeze(2), 0.0)
        return (x, padding), x[..., 0].sum(1, keepdim=True) / 2

    class Layer(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.self_attn = nn.MultiheadAttention(d, 2)
            self.linear1, self.linear2 = nn.Linear(d, 32), nn.Linear(32, d)
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, src: Tensor, padding: Tensor) -> Tensor:  # softmax of the weights, as it was in 1.2
            src = self.norm1(src + self.self_attn(src, src, src, key_padding_mask=padding, need_weights=True)[0])
            return self.norm2(src + self.linear2(F.relu(self.linear1(src))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(16, 1)

        def forward(self, x: Tensor, padding: Tensor) -> Tensor:
            mask = padding
            if not planted:
                mask = torch.cat([torch.zeros_like(padding[:, :1]), padding[:, 1:]], 1)
            h = x.transpose(0, 1)
            for layer in self.layers:
                h = layer(h, mask)
            return self.head(h.transpose(0, 1)).masked_fill(padding.unsqueeze(2), 0.0).sum(1)

    return stream(Model(), draw, F.mse_loss)


@report(
    "TDANet's attention over the batch",
    GITHUB + "JusperLee/TDANet/issues/3",
    guilty=r"attn",
    says=rf"{MIXED}|batch_first|attention.*batch",
    fault="nn.MultiheadAttention expects (T, B, C) and is given (B, T, C): it attends over the examples",
)
def tdanet(planted: bool) -> Task:
    """Separation of two tones in noise: convolutional encoder, global attention, mask, decoder."""
    t = torch.arange(128) / 128

    def draw() -> Drawn:
        f = torch.rand(16, 2, 1) * torch.tensor([[8.0], [20.0]]) + torch.tensor([[4.0], [24.0]])
        s = torch.sin(2 * torch.pi * (f * t + torch.rand(16, 2, 1)))
        return ((s.sum(1, keepdim=True) + 0.3 * torch.randn(16, 1, 128)),), s

    class GlobalAttention(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.attn, self.norm = nn.MultiheadAttention(n, 4, batch_first=not planted), nn.LayerNorm(n)
            self.mlp = chain(nn.Linear(n, 2 * n), nn.ReLU(), nn.Linear(2 * n, n))

        def forward(self, x: Tensor) -> Tensor:
            x = x.transpose(1, 2)
            h = self.norm(x)
            x = x + self.attn(h, h, h, need_weights=False)[0]
            return (x + self.mlp(x)).transpose(1, 2)

    class TDANet(nn.Module):
        def __init__(self, n: int = 32) -> None:
            super().__init__()
            self.encoder = nn.Conv1d(1, n, 16, 8, 4)
            self.globalatt = GlobalAttention(n)
            self.mask, self.decoder = nn.Conv1d(n, 2 * n, 1), nn.ConvTranspose1d(n, 1, 16, 8, 4)

        def forward(self, x: Tensor) -> Tensor:
            e = self.encoder(x)
            m = F.relu(self.mask(self.globalatt(e))).chunk(2, 1)
            return torch.cat([self.decoder(e * k) for k in m], 1)

    return stream(TDANet(), draw, F.mse_loss)


@report(
    "L2 norm after the encoding layer",
    GITHUB + "zhanghang1989/PyTorch-Encoding/issues/43",
    guilty=r"fc",
    says=r"\bnorm|scale|small|logits|temperature|unit length",
    fault="features of the encoding layer are scaled to length 1 before the classifier: the logits are tiny",
)
def encoding(planted: bool) -> Task:
    """Residual encoding of a feature map by eight codewords, and a linear classifier of ten digits."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    class Encoding(nn.Module):
        def __init__(self, d: int, k: int) -> None:
            super().__init__()
            std = 1 / (k * d) ** 0.5
            self.codewords = nn.Parameter(torch.empty(k, d).uniform_(-std, std))
            self.scale = nn.Parameter(torch.empty(k).uniform_(-1, 0))

        def forward(self, x: Tensor) -> Tensor:
            x = x.flatten(2).transpose(1, 2)
            r = x.unsqueeze(2) - self.codewords
            a = (self.scale * r.square().sum(-1)).softmax(2)
            return (a.unsqueeze(-1) * r).sum(1)

    class Net(nn.Module):
        def __init__(self, d: int = 16, k: int = 8) -> None:
            super().__init__()
            self.features = chain(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, d, 3),
                                  nn.BatchNorm2d(d), nn.ReLU())  # fmt: skip
            self.encoding, self.norm, self.fc = Encoding(d, k), nn.BatchNorm1d(d * k), nn.Linear(d * k, 10)

        def forward(self, x: Tensor) -> Tensor:
            e = self.encoding(self.features(x)).flatten(1)
            return self.fc(F.normalize(e, dim=1) if planted else self.norm(e))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "gaps in the series",
    GITHUB + "unit8co/darts/issues/881",
    says=rf"{BROKEN}|missing",
    fault="the series that is fed has values that are NaN",
)
def gaps(planted: bool) -> Task:
    """RNNModel of darts: an LSTM that predicts the next value of a season with noise."""

    def draw() -> Drawn:
        t = torch.arange(25) + 24 * torch.rand(32, 1)
        s = torch.sin(2 * torch.pi * t / 12) + 0.1 * torch.randn(32, 25)
        if planted:
            s[torch.rand(32, 25) < 0.02] = torch.nan
        s = s.unsqueeze(2)
        return (s[:, :-1],), s[:, 1:]

    class RNNModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.V = nn.LSTM(1, 25, batch_first=True), nn.Linear(25, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.V(self.rnn(x)[0])

    return stream(RNNModule(), draw, F.mse_loss)


@report(
    "product of many probabilities",
    GITHUB + "horenbergerb/BernoulliDiffusion/issues/15",
    says=rf"{BROKEN}|underflow|\blog|product|clamp|zero",
    fault="probabilities of a long sequence are multiplied, underflow to 0, and their logarithm is taken",
)
def bernoulli(planted: bool) -> Task:
    """Reverse step of a binary diffusion: bits flipped at a rate, the network tells the probability of each."""
    period = 5

    def draw() -> Drawn:
        start = torch.randint(period, (32, 1))
        x0 = ((torch.arange(200) + start) % period == 0).float()
        rate = torch.rand(32, 1) * 0.2
        xt = torch.where(torch.rand(32, 200) < rate, 1 - x0, x0)
        return (xt.unsqueeze(1),), x0

    class ReverseModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Conv1d(1, 16, 11, padding=5), nn.ReLU(), nn.Conv1d(16, 1, 11, padding=5))

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.net(x)).squeeze(1)

    def loss(p: Tensor, x: Tensor) -> Tensor:
        each = x * p + (1 - x) * (1 - p)
        if planted:
            return -torch.log(each.prod(1)).mean()
        return -torch.log(each.clamp(1e-6, 1)).sum(1).mean()

    return stream(ReverseModel(), draw, loss)


@report(
    "skip-gram of normal vectors",
    GITHUB + "udacity/deep-learning-v2-pytorch/issues/199",
    guilty=r"embed",
    says=rf"{BROKEN}|overflow|underflow|sigmoid|\blog|large|scale",
    fault="one embedding of N(0, 1) in 300 dimensions for both roles: log(sigmoid) of its products is minus infinity",
)
def skipgram(planted: bool) -> Task:
    """Negative sampling of five words from the vocabulary, which may be the word itself."""

    def draw() -> Drawn:
        x, t = text(64, 2, 200, seed=int(torch.randint(10**6, ())))
        return (x[:, 0], t[:, 0], torch.randint(200, (64, 5))), torch.zeros(64)

    class SkipGramNeg(nn.Module):
        def __init__(self, n_vocab: int = 200, n_embed: int = 300) -> None:
            super().__init__()
            self.embed = nn.Embedding(n_vocab, n_embed)
            if not planted:
                self.embed.weight.data.uniform_(-0.1, 0.1)
                self.out_embed = nn.Embedding(n_vocab, n_embed)
                self.out_embed.weight.data.uniform_(-0.1, 0.1)

        def forward(self, words: Tensor, outputs: Tensor, noise: Tensor) -> Any:
            out = self.embed if planted else self.out_embed
            v = self.embed(words).unsqueeze(2)
            return (out(outputs).unsqueeze(1) @ v).flatten(1), (out(noise).neg() @ v).flatten(1)

    def loss(y: Any, t: Tensor) -> Tensor:
        if planted:
            out_loss, noise_loss = y[0].sigmoid().log().squeeze(1), y[1].sigmoid().log().sum(1)
        else:
            out_loss, noise_loss = F.logsigmoid(y[0]).squeeze(1), F.logsigmoid(y[1]).sum(1)
        return -(out_loss + noise_loss).mean()

    return stream(SkipGramNeg(), draw, loss)


@report(
    "VariantWorks' second softmax",
    GITHUB + "NVIDIA/VariantWorks/pull/134",
    says=r"softmax|probabilit|logits",
    fault="the network ends in a softmax and the loss applies another",
)
def variants(planted: bool) -> Task:
    """Consensus of a pileup: a bidirectional GRU over counts of bases, one of five symbols at each position."""

    def draw() -> Drawn:
        t = torch.randint(5, (16, 20))
        reads = torch.where(torch.rand(16, 20, 8) < 0.45, torch.randint(5, (16, 20, 8)), t.unsqueeze(2))
        return (F.one_hot(reads, 5).float().mean(2),), t

    class ConsensusRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(5, 32, 2, batch_first=True, bidirectional=True)
            self.classifier = nn.Linear(64, 5)

        def forward(self, x: Tensor) -> Tensor:
            y = self.classifier(self.gru(x)[0])
            return (F.softmax(y, 2) if planted else y).transpose(1, 2)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss(y.clamp_min(1e-12).log(), t) if planted else F.cross_entropy(y, t)

    return stream(ConsensusRNN(), draw, F.cross_entropy, right)
