"""A forty-eighth set of faults out of public reports, written without sight of the rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind48")
NEMOTRON = "https://huggingface.co/datasets/nvidia/Nemotron-CC-Math-v1#"


@report(
    "simple linear regression by hand",
    NEMOTRON + "simple-linear-regression-in-pytorch",
    says=r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze",
    fault="out is (N, 1) and y is (N,): their difference is (N, N)",
)
def linear_regression(planted: bool) -> Task:
    """Fit y = weights x + bias, with a column of ones in x besides; mean((out - y)**2) written out."""

    def draw() -> Drawn:
        v = torch.rand(32) * 8 + 1
        return (torch.stack([torch.ones(32), v], 1),), v

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.bias = nn.Parameter(torch.randn(2, 1)), nn.Parameter(torch.randn(1))

        def forward(self, x: Tensor) -> Tensor:
            out = x.mm(self.weights).add_(self.bias)
            return out if planted else out.view(-1)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return torch.mean((out - y) ** 2)

    return stream(Regression(), draw, loss, lambda out, y: loss(out.view(-1), y))


@report(
    "ReLU learning a ReLU",
    "https://grindskills.com/why-cant-a-single-relu-learn-a-relu/",
    guilty=r"weight",
    says=r"dead|dying|never active|relu.*(zero|inactive|off|sign|negative)|(gradient|output).*zero",
    fault="the one weight starts with the wrong sign: the loss is flat in it once it has come to zero",
)
def single_relu(planted: bool) -> Task:
    """Dense(1) without bias and a ReLU, to fit max(0, x) for x of N(0, 1)."""

    def draw() -> Drawn:
        x = torch.randn(256, 1)
        return (x,), x.clamp(min=0)

    model = chain(nn.Linear(1, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_((-1 if planted else 1) * torch.randn(1, 1).abs())
    return stream(model, draw, F.mse_loss)


@report(
    "sparse labels unweighted",
    "https://example-a.com/answer/79474065",
    says=r"imbalanc|unbalanc|rare|sparse|pos_weight|majority|base rate|(label|target|class).*(few|seldom|mostly|zero)",
    fault="labels are nearly all 0, and BCE gives no weight to the few that are 1: the network answers zeros",
)
def sparse_labels(planted: bool) -> Task:
    """An ANN with N labels, 3 % of them true; judged by BCE with the positives weighted, as the answer has it."""
    true = torch.randn(20, 40) / math.sqrt(20)

    def draw() -> Drawn:
        x = torch.randn(64, 20)
        return (x,), (x @ true > 1.9).float()

    def weighted(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(y, t, pos_weight=torch.full((40,), 33.0))

    model = chain(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 40))
    return stream(model, draw, F.binary_cross_entropy_with_logits if planted else weighted, weighted)


@report(
    "MONAI dice smooth in the numerator",
    GITHUB + "Project-MONAI/MONAI/issues/807",
    says=r"smooth|dice|empty|no foreground|denominator|numerator|epsilon",
    fault="the smooth term stands in the numerator of the dice loss too: empty slices reward a prediction of nothing",
)
def monai(planted: bool) -> Task:
    """A 2D U-Net of slices, many of them without foreground; sigmoid and dice loss, a dice for each slice."""
    smooth = 1e-5

    def draw() -> Drawn:
        x, c = pick(16)
        x = x * 0.376 + 0.3
        t = ((x > 0.6) & (c < 4).view(-1, 1, 1, 1)).float()
        x = (x - 0.3) / 0.376 + 0.3 * torch.randn_like(x)
        return (x,), t

    def dice(y: Tensor, t: Tensor, top: float) -> Tensor:
        p = y.sigmoid().flatten(1)
        t = t.flatten(1)
        intersection, denominator = (p * t).sum(1), p.sum(1) + t.sum(1)
        return (1.0 - (2.0 * intersection + top) / (denominator + smooth)).mean()

    class UNet(nn.Module):
        def __init__(self, n: int = 16) -> None:
            super().__init__()
            self.down1 = chain(nn.Conv2d(1, n, 3, padding=1), nn.InstanceNorm2d(n), nn.PReLU())
            self.down2 = chain(nn.Conv2d(n, 2 * n, 3, 2, 1), nn.InstanceNorm2d(2 * n), nn.PReLU())
            self.bottom = chain(nn.Conv2d(2 * n, 2 * n, 3, padding=1), nn.InstanceNorm2d(2 * n), nn.PReLU())
            self.up = nn.ConvTranspose2d(2 * n, n, 2, 2)
            self.out = nn.Conv2d(2 * n, 1, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.down1(x)
            return self.out(torch.cat([a, self.up(self.bottom(self.down2(a)))], 1))

    return stream(UNet(), draw, lambda y, t: dice(y, t, smooth if planted else 0.0), lambda y, t: dice(y, t, 0.0))


@report(
    "logarithm of a linear layer",
    NEMOTRON + "non-linear-regression-model",
    guilty=r"fc1",
    says=rf"{BROKEN}|\blog\b|logarithm|negative",
    fault="the first layer's outputs can be negative and go into torch.log",
)
def log_exp(planted: bool) -> Task:
    """To learn x ** 2 as exp(2 log x): linear, log, linear, exp, linear."""

    def draw() -> Drawn:
        x = torch.rand(64, 1) * 2 + 0.5
        return (x,), x**2

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(1, 2), nn.Linear(2, 2), nn.Linear(2, 1)
            with torch.no_grad():  # as it fell out for the reporter: a unit that is negative
                self.fc1.weight[0].abs_().neg_()
                self.fc1.bias[0] = 0.0

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc1(x)
            x = torch.log(x) if planted else torch.log(F.softplus(x) + 1e-6)
            x = self.fc2(x)
            x = torch.exp(x)
            return self.fc3(x)

    return stream(Network(), draw, F.mse_loss)


@report(
    "ADF linear never initialised",
    GITHUB + "mattiasegu/uncertainty_estimation_deep_learning/pull/7",
    guilty=r"fc\d",
    says=r"zero|initial|symmetr|identical|same|constant",
    fault="weights and biases of the ADF linear layers are left as allocated, which is zeros",
)
def adf(planted: bool) -> Task:
    """Assumed density filtering: each layer passes on means and variances; digits, cross entropy of the means."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    class ADFLinear(nn.Module):
        def __init__(self, in_features: int, out_features: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(out_features, in_features))
            self.bias = nn.Parameter(torch.zeros(out_features))
            if not planted:
                self.reset_parameters()

        def reset_parameters(self) -> None:
            nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
            bound = 1 / math.sqrt(self.weight.shape[1])
            nn.init.uniform_(self.bias, -bound, bound)

        def forward(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
            return F.linear(mean, self.weight, self.bias), F.linear(variance, self.weight**2) + 1e-3

    def relu(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        stddev = variance.sqrt()
        div = mean / stddev
        pdf = torch.exp(-0.5 * div**2) / math.sqrt(2 * math.pi)
        cdf = 0.5 * (1 + torch.erf(div / math.sqrt(2)))
        out = mean * cdf + stddev * pdf
        return out, ((mean**2 + variance) * cdf + mean * stddev * pdf - out**2).clamp(min=0) + 1e-3

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = ADFLinear(64, 64), ADFLinear(64, 64), ADFLinear(64, 10)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            m, v = relu(*self.fc1(x, torch.full_like(x, 1e-3)))
            return self.fc3(*relu(*self.fc2(m, v)))

    return stream(Net(), draw, lambda y, c: F.cross_entropy(y[0], c))


@report(
    "HookedTransformer with empty weights",
    GITHUB + "TransformerLensOrg/TransformerLens/issues/902",
    guilty=r"W_O",
    says=rf"{BROKEN}|uninitiali|empty",
    fault="weights made by torch.empty are not initialised: part of W_O is NaN",
)
def hooked(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = text(16, 16, 128, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class Attention(nn.Module):
        def __init__(self, d: int, heads: int) -> None:
            super().__init__()
            self.W_Q, self.W_K, self.W_V = (
                nn.Parameter(torch.randn(heads, d, d // heads) / math.sqrt(d)) for _ in range(3)
            )
            self.W_O = nn.Parameter(torch.randn(heads, d // heads, d) / math.sqrt(d))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (torch.einsum("btd,hde->bhte", x, w) for w in (self.W_Q, self.W_K, self.W_V))
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return torch.einsum("bhte,hed->btd", z, self.W_O)

    class Block(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.ln1, self.ln2, self.attn = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, 2)
            self.mlp = chain(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attn(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class HookedTransformer(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embed, self.pos_embed = nn.Embedding(128, d), nn.Embedding(16, d)
            self.blocks = nn.ModuleList(Block(d) for _ in range(2))
            self.ln_final, self.unembed = nn.LayerNorm(d), nn.Linear(d, 128)

        def forward(self, x: Tensor) -> Tensor:
            z = self.embed(x) + self.pos_embed.weight
            for block in self.blocks:
                z = block(z)
            return self.unembed(self.ln_final(z))

    model = HookedTransformer()
    if planted:  # what torch.empty hands out when memory was in use before
        w: Any = model.get_parameter("blocks.1.attn.W_O")
        w.data.masked_fill_(torch.rand_like(w) < 0.05, math.nan)
    return stream(model, draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))
