"""A thirty-third set of faults, a sample of reports of bad training, written without sight of the rules."""

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

report = partial(any_report, blind="blind33")
UNSET = rf"{BROKEN}|uninitiali|not initiali|torch\.empty|garbage|huge|extreme|very large|overflow"


@report(
    "logistic layers one on another",
    "http://stackoverflow.com/questions/20009078/neural-network-architecture-design",
    guilty=r"hidden\.[024]\.",
    says=r"vanish|sigmoid|logistic|saturat|gradient.*(small|shrink|decay)",
    fault="several hidden layers of logistic units and a squared error: gradients shrink from layer to layer",
)
def logistic(planted: bool) -> Task:
    act: type[nn.Module] = nn.Sigmoid if planted else nn.ReLU

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), F.one_hot(c, 10).float()

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = chain(nn.Linear(64, 32), act(), nn.Linear(32, 32), act(), nn.Linear(32, 32), act(),
                                nn.Linear(32, 32), act())  # fmt: skip
            self.output = nn.Linear(32, 10)
            for layer in self.hidden[::2]:
                nn.init.xavier_normal_(layer.weight) if planted else nn.init.kaiming_normal_(layer.weight)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.output(self.hidden(x)))

    return stream(Network(), draw, F.mse_loss)


@report(
    "LSTM with a softmax of one unit",
    "https://stackoverflow.com/questions/47241622/is-it-okay-to-use-stateful-recurrent-nn-lstm-for-classification",
    guilty=r"dense",
    says=rf"softmax|{SAME}|{CUT}",
    fault="softmax over a single output unit: the probability is always 1",
)
def one_unit(planted: bool) -> Task:
    """Rows of binary features, read one after another, and a binary class."""

    def draw() -> Drawn:
        p = torch.rand(64, 1) * 0.8 + 0.1
        x = (torch.rand(64, 24) < p).float()
        return (x.unsqueeze(2),), (x.sum(1, keepdim=True) > 12).float()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.dense = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 1)
            self.activation = nn.Softmax(1) if planted else nn.Sigmoid()

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.dense(self.lstm(x)[0][:, -1]))

    return stream(Model(), draw, F.binary_cross_entropy)


@report(
    "real and fake batches normalised apart",
    "https://ovgu-ailab.github.io/blog/methods/2022/07/07/batchnorm-gans.html",
    guilty=r"d\.(1|4)\.|d\.0\.",
    says=rf"batch.?norm|batch statistic|{MIXED}|{SAME}",
    fault="batch norms of the discriminator see real and fake batches apart: they take away by what these differ",
)
def batches_apart(planted: bool) -> Task:
    """Points in the plane: real ones far from the origin, and those of a generator that is not trained yet."""

    def norm() -> nn.Module:
        return nn.BatchNorm1d(32) if planted else nn.Identity()

    def draw() -> Drawn:
        real, fake = torch.randn(64, 2) * 0.5 + torch.tensor([2.0, -1.0]), torch.randn(64, 2)
        return (real, fake), torch.cat([torch.ones(64, 1), torch.zeros(64, 1)])

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d = chain(nn.Linear(2, 32), norm(), nn.LeakyReLU(0.2), nn.Linear(32, 32), norm(), nn.LeakyReLU(0.2),
                           nn.Linear(32, 1))  # fmt: skip

        def forward(self, real: Tensor, fake: Tensor) -> Tensor:
            return torch.cat([self.d(real), self.d(fake)])

    return stream(Discriminator(), draw, bce)


@report(
    "sigmoid before logits and weights swapped",
    "https://discuss.pytorch.org/t/predictions-stuck-at-zero-when-positive-label-1-is-only-16-of-data/145203/2",
    says=r"sigmoid|logits?|probabilit|class weight|imbalanc|weight.*(class|positive)",
    fault="BCEWithLogitsLoss of probabilities, and the weights of the frequent and the rare class are swapped",
)
def swapped(planted: bool) -> Task:
    """A small CNN of two outputs; about one label in six is positive."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), ((c == 3) | ((c == 8) & (torch.rand(64) < 0.6))).float()

    def right(out: Tensor, labels: Tensor) -> Tensor:
        weight = torch.tensor([0.16, 0.84])[labels.view(-1).long()].view_as(labels)
        return (bce(out[:, 1] - out[:, 0], labels, reduction="none") * weight).mean()

    def wrong(out: Tensor, labels: Tensor) -> Tensor:
        weight = torch.tensor([0.84, 0.16])
        weight_ = weight[labels.data.view(-1).long()].view_as(labels)
        m = nn.Sigmoid()
        loss = bce(m(out[:, 1] - out[:, 0]), labels, reduction="none")
        return (loss * weight_).mean()

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 2),
    )
    return stream(model, draw, wrong if planted else right, right)


@report(
    "pos_weight upside down",
    "https://cloud.tencent.com.cn/developer/article/2568430",
    says=r"pos_weight|imbalanc|rare|class.*weight|weight.*(class|positive)|positive.*(rare|few|weigh)|all.*(negative|zero)",
    fault="pos_weight is positives over negatives, not the inverse: rare labels count for less yet",
)
def upside_down(planted: bool) -> Task:
    """Five labels that 1 to 20 examples of 100 have."""
    rates = torch.tensor([0.01, 0.02, 0.05, 0.1, 0.2])
    threshold = torch.distributions.Normal(0.0, 1.0).icdf(1 - rates)

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        score = torch.stack([(x[:, 3 * i] + x[:, 3 * i + 1]) / 2**0.5 for i in range(5)], 1)
        return (x,), (score > threshold).float()

    def right(logits: Tensor, labels: Tensor) -> Tensor:
        return bce(logits, labels, pos_weight=(1 - rates) / rates)

    def wrong(logits: Tensor, labels: Tensor) -> Tensor:
        pos = labels.sum(dim=0) + 1e-6
        neg = labels.numel() / 5 - pos
        wrong_pos_weight = (pos / neg).clamp(min=1e-3)
        elem_weight = torch.ones_like(labels) * 0.5
        return bce(logits, labels, pos_weight=wrong_pos_weight, weight=elem_weight)

    model = chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5))
    return stream(model, draw, wrong if planted else right, right)


@report(
    "deep Ritz method with ReLU",
    "https://arxiv.org/html/2512.11184v2",
    guilty=r"net\.0\.bias",
    says=r"relu|second deriv|curvature|smooth|piecewise|kink|discontinu",
    fault="an energy of first derivatives of a ReLU network: the gradient does not see where the kinks are",
)
def ritz(planted: bool) -> Task:
    """-u'' = b on (0, 1), u = sin(2 pi x); zero at both ends by construction; judged by u."""
    tau = 2 * torch.pi

    def draw() -> Drawn:
        x = torch.rand(128, 1)
        return (x,), torch.cat([tau**2 * torch.sin(tau * x), torch.sin(tau * x)], 1)

    class Ritz(nn.Module):
        def __init__(self, n: int = 50) -> None:
            super().__init__()
            self.net = chain(nn.Linear(1, n), nn.ReLU() if planted else nn.Tanh(), nn.Linear(n, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                u = torch.sin(torch.pi * x) * self.net(x)
                du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            return torch.cat([u, du], 1)

    def energy(y: Tensor, t: Tensor) -> Tensor:
        return (0.5 * y[:, 1] ** 2 - t[:, 0] * y[:, 0]).mean()

    return stream(Ritz(), draw, energy, lambda y, t: F.mse_loss(y[:, 0], t[:, 1]))


@report(
    "STALE's empty background embedding",
    GITHUB + "sauradip/STALE/issues/16",
    guilty=r"bg_embeddings",
    says=rf"{BROKEN}|uninitiali|torch\.empty|zero|norm|divi",
    fault="the embedding of the background is torch.empty, here zeros, and is divided by its norm",
)
def stale(planted: bool) -> Task:
    """Snippets against embeddings of the class names, and one more for the background."""
    names = torch.randn(5, 32)

    def draw() -> Drawn:
        c = torch.randint(6, (64,))
        x = torch.cat([names, torch.zeros(1, 32)])[c] + 0.7 * torch.randn(64, 32)
        return (x,), c

    class STALE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
            self.bg_embeddings = nn.Parameter(torch.zeros(1, 32))
            if not planted:
                nn.init.kaiming_uniform_(self.bg_embeddings, nonlinearity="relu")
            self.logit_scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            feat, text = self.mlp(x), torch.cat([names, self.bg_embeddings])
            feat = feat / feat.norm(dim=-1, keepdim=True)
            text = text / text.norm(dim=-1, keepdim=True)
            return self.logit_scale.exp() * feat @ text.t()

    return stream(STALE(), draw, F.cross_entropy)


@report(
    "convNd without initialisation",
    GITHUB + "pvjosue/pytorch_convNd/issues/4",
    guilty=r"conv.*bias|bias",
    says=UNSET,
    fault="the bias of the n-dimensional convolution is never initialised: it holds what the memory held",
)
def convnd(planted: bool) -> Task:
    """A U-Net's first block of convNd, the convolution over depth made of 2D convolutions."""

    def draw() -> Drawn:
        x = torch.randn(8, 1, 4, 8, 8)
        return (x,), F.avg_pool3d(x.abs(), 3, 1, 1)

    class ConvNd(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.conv_layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for _ in range(3))
            self.bias = nn.Parameter(torch.zeros(b))
            if planted:  # as memory may be
                self.bias.data[::3] = torch.nan

        def forward(self, x: Tensor) -> Tensor:
            depth = x.shape[2]
            x = F.pad(x, (0, 0, 0, 0, 1, 1))
            frames = [
                torch.stack([layer(x[:, :, i + k]) for k, layer in enumerate(self.conv_layers)]).sum(0)
                for i in range(depth)
            ]
            return torch.stack(frames, 2) + self.bias.view(1, -1, 1, 1, 1)

    model = chain(ConvNd(1, 8), nn.ReLU(), ConvNd(8, 1))
    return stream(model, draw, F.mse_loss)


@report(
    "CRF without initialisation",
    GITHUB + "kmkurn/pytorch-crf/issues/1",
    guilty=r"crf|transitions",
    says=UNSET,
    fault="start, end and transition scores of the CRF are not initialised: the likelihood is NaN",
)
def crf(planted: bool) -> Task:
    """Tags of eight words by an LSTM, a linear layer and a CRF; negative log likelihood."""

    def draw() -> Drawn:
        x = torch.randn(32, 8, 6)
        tags = x[..., :4].argmax(-1)
        tags[:, 1:] = torch.where(x[:, 1:, 4] > 0.5, tags[:, :-1], tags[:, 1:])
        return (x,), tags

    def empty(*shape: int) -> nn.Parameter:
        w = torch.empty(*shape).uniform_(-0.1, 0.1)
        if planted:  # as memory may be
            w.view(-1)[::3], w.view(-1)[1::3] = 3e38, -3e38
        return nn.Parameter(w)

    class Tagger(nn.Module):
        def __init__(self, num_tags: int = 4) -> None:
            super().__init__()
            self.lstm, self.linear = nn.LSTM(6, 32, batch_first=True), nn.Linear(32, num_tags)
            self.start_transitions, self.end_transitions = empty(num_tags), empty(num_tags)
            self.transitions = empty(num_tags, num_tags)

        def forward(self, x: Tensor) -> Any:
            return self.linear(self.lstm(x)[0]), self.start_transitions, self.transitions, self.end_transitions

    def nll(out: Any, tags: Tensor) -> Tensor:
        e, start, trans, end = out
        score = start[tags[:, 0]] + e.gather(2, tags.unsqueeze(2)).sum((1, 2)) + end[tags[:, -1]]
        score = score + trans[tags[:, :-1], tags[:, 1:]].sum(1)
        alpha = start + e[:, 0]
        for i in range(1, e.shape[1]):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + trans, 1) + e[:, i]
        return (torch.logsumexp(alpha + end, 1) - score).mean()

    return stream(Tagger(), draw, nll)


@report(
    "AGCRN's pools without initialisation",
    GITHUB + "LeiBAI/AGCRN/issues/12",
    guilty=r"weights_pool|bias_pool",
    says=UNSET,
    fault="weights_pool and bias_pool are torch.FloatTensor of a shape, which holds garbage",
)
def agcrn(planted: bool) -> Task:
    """Node adaptive graph convolutions in a GRU; the next values of twelve sensors."""
    mix = torch.softmax(torch.randn(12, 12), 1)

    def draw() -> Drawn:
        x = [torch.randn(16, 12, 1)]
        for _ in range(6):
            x.append(0.9 * torch.einsum("nm,bmi->bni", mix, x[-1]) * 2 + 0.1 * torch.randn(16, 12, 1))
        return (torch.stack(x[:-1], 1),), x[-1]

    def pool(*shape: int) -> nn.Parameter:
        w = torch.randn(*shape) * 0.2
        if planted:  # as memory may be: mostly nothing, some large
            w = torch.where(torch.rand(shape) < 0.05, 1e14 * torch.randn(shape), torch.zeros(shape))
        return nn.Parameter(w)

    class AVWGCN(nn.Module):
        def __init__(self, dim_in: int, dim_out: int, embed_dim: int = 4) -> None:
            super().__init__()
            self.weights_pool, self.bias_pool = pool(embed_dim, 2, dim_in, dim_out), pool(embed_dim, dim_out)

        def forward(self, x: Tensor, e: Tensor) -> Tensor:
            supports = torch.stack([torch.eye(12), torch.softmax(F.relu(e @ e.t()), 1)])
            weights, bias = torch.einsum("nd,dkio->nkio", e, self.weights_pool), e @ self.bias_pool
            return torch.einsum("bnki,nkio->bno", torch.einsum("knm,bmc->bnkc", supports, x), weights) + bias

    class AGCRN(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.node_embeddings = nn.Parameter(torch.randn(12, 4))
            self.gate, self.update, self.end = AVWGCN(1 + d, 2 * d), AVWGCN(1 + d, d), nn.Linear(d, 1)
            self.d = d

        def forward(self, x: Tensor) -> Tensor:
            h = x.new_zeros(len(x), 12, self.d)
            for i in range(x.shape[1]):
                z, r = torch.sigmoid(self.gate(torch.cat([x[:, i], h], 2), self.node_embeddings)).chunk(2, 2)
                hc = torch.tanh(self.update(torch.cat([x[:, i], z * h], 2), self.node_embeddings))
                h = r * h + (1 - r) * hc
            return self.end(h)

    return stream(AGCRN(), draw, F.mse_loss)


@report(
    "cirkit's sums of either sign",
    GITHUB + "april-tools/cirkit/issues/279",
    guilty=r"sum|weight",
    says=rf"{BROKEN}|\blog|negative|softmax|non-?negativ",
    fault="weights of the sum units are normal by default, so that the logarithm of a negative sum is taken",
)
def cirkit(planted: bool) -> Task:
    """A circuit over sixteen pixels of four levels: categorical inputs, products of pairs, sums; log likelihood."""

    def draw() -> Drawn:
        x, _ = pick(64)
        x = F.avg_pool2d((x * 0.376 + 0.3).clamp(0, 1), 2).flatten(1)
        x = (x * 4).long().clamp(0, 3)
        return (x,), x

    class SumLayer(nn.Module):
        def __init__(self, regions: int, a: int, b: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(regions, a, b))

        def forward(self, x: Tensor) -> Tensor:
            w = self.weight if planted else self.weight.softmax(1)
            top = x.amax(2, keepdim=True).detach()
            return top + torch.log(torch.einsum("bra,rac->brc", (x - top).exp(), w))

    class Circuit(nn.Module):
        def __init__(self, units: int = 12) -> None:
            super().__init__()
            self.input = nn.Parameter(torch.randn(16, units, 4))
            self.sums = nn.ModuleList(SumLayer(r, units, units if r > 1 else 1) for r in (8, 4, 2, 1))

        def forward(self, x: Tensor) -> Tensor:
            logp = self.input.log_softmax(2)
            h = torch.stack([logp[i].t()[x[:, i]] for i in range(16)], 1)
            for layer in self.sums:
                h = layer(h[:, ::2] + h[:, 1::2])
            return h[:, 0, 0]

    return stream(Circuit(), draw, lambda y, t: -y.mean())


@report(
    "biaffine weights of torch.Tensor",
    GITHUB + "suolyer/PyTorch_BERT_Biaffine_NER/pull/3",
    guilty=r"biaffine|\bU\b|\.U$",
    says=UNSET,
    fault="the biaffine weights are torch.Tensor of a shape: huge values, and logits that are NaN",
)
def biaffine(planted: bool) -> Task:
    """Spans of a sentence by a biaffine layer of start and end representations."""

    def draw() -> Drawn:
        x = torch.randn(16, 10, 8)
        s, e = x[..., :2].argmax(-1), x[..., 2:4].argmax(-1)
        return (x,), s.unsqueeze(2) + e.unsqueeze(1)

    class Biaffine(nn.Module):
        def __init__(self, size: int, out: int) -> None:
            super().__init__()
            self.U = nn.Parameter(torch.randn(size + 1, out, size + 1) * 0.1)
            if planted:  # as memory may be
                self.U.data = torch.where(torch.rand_like(self.U) < 0.1, 1e36 * torch.randn_like(self.U), 0.0)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x, y = (torch.cat([z, torch.ones_like(z[..., :1])], -1) for z in (x, y))
            return torch.einsum("bxi,ioj,byj->bxyo", x, self.U, y)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 24, batch_first=True, bidirectional=True)
            self.start_layer, self.end_layer = (chain(nn.Linear(48, 24), nn.ReLU()) for _ in range(2))
            self.biaffine_layer = Biaffine(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.lstm(x)[0]
            return self.biaffine_layer(self.start_layer(h), self.end_layer(h)).permute(0, 3, 1, 2)

    return stream(Model(), draw, F.cross_entropy)
