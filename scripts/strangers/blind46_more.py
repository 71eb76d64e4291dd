"""The rest of the forty-sixth set of reports."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits

report = partial(any_report, blind="blind46")


@report(
    "softmax below the loss's epsilon",
    GITHUB + "AITIAL/OpenWhiz/pull/50",
    guilty=r"^\d|output",
    says=r"epsilon|underflow|saturat|logits?.*large|large.*logit|softmax|inputs?.*(large|scale|normali)|log_?softmax",
    fault="log(p + epsilon) of a softmax that underflows: a confidently wrong answer has no gradient",
)
def probability_layer(planted: bool) -> Task:
    """Four measurements of 0 to 100 and three classes."""
    w = torch.randn(4, 3)

    def draw() -> Drawn:
        x = 100 * torch.rand(64, 4)
        return (x,), ((x - 50) @ w).argmax(1)

    last: nn.Module = nn.Softmax(1) if planted else nn.LogSoftmax(1)
    model = chain(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 16), nn.LeakyReLU(), nn.Linear(16, 3), last)

    def categorical(y: Tensor, t: Tensor) -> Tensor:
        return -(F.one_hot(t, 3) * (y + 1e-7).log()).sum(1).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss(y.clamp(min=1e-38).log() if planted else y, t)

    return stream(model, draw, categorical if planted else F.nll_loss, right)


@report(
    "graph convolutional matrix completion without normalisation",
    GITHUB + "tanimutomo/gcmc/issues/12",
    guilty=r"ord_basis|fc|basis|coefs",
    says=r"vanish|(too )?small|tiny|shrink|normali|no gradient|gradient.*zero|scale",
    fault="neither layer is normalised and the dense one has no ReLU: features and gradients are tiny, the loss stays",
)
def gcmc(planted: bool) -> Task:
    """Ratings of 1 to 5 of twenty items by thirty users; the graph is of 40 % of them."""
    users, items, d = 30, 20, 32
    n = users + items
    taste = torch.randn(users, 2) @ torch.randn(2, items)
    rating = (taste + 2.5).clamp(0, 4.99).long()

    def draw() -> Drawn:
        seen = (torch.rand(users, items) < 0.4).float()
        a = torch.zeros(5, n, n)
        a[:, :users, users:] = F.one_hot(rating, 5).permute(2, 0, 1) * seen
        a = a + a.transpose(1, 2)
        degree = a.sum((0, 2)).clamp(min=1)
        at = torch.randint(users * items, (256,))
        u, i = at // items, at % items
        return (a / (degree[:, None] * degree).sqrt(), u, i), rating[u, i]

    class GCMC(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            bound = 1 / math.sqrt(n + d)
            self.ord_basis = nn.ParameterList(torch.empty(n, d).uniform_(-bound, bound) for _ in range(5))
            self.dropout, self.fc = nn.Dropout(0.7), nn.Linear(d, 16, bias=False)
            self.bn = nn.Identity() if planted else nn.BatchNorm1d(n)
            self.bn_dense = nn.Identity() if planted else nn.BatchNorm1d(n)
            self.basis = nn.ParameterList(torch.randn(16, 16) / 16 for _ in range(2))
            self.coefs = nn.Parameter(torch.rand(2, 5) - 0.5)

        def forward(self, a: Tensor, u: Tensor, i: Tensor) -> Tensor:
            weight = torch.stack(list(self.ord_basis)).cumsum(0)
            weight = weight * (torch.rand(1, n, 1) < 0.3)
            x = F.relu(self.bn((a @ weight).sum(0).unsqueeze(0)))
            x = self.bn_dense(self.fc(self.dropout(x)))[0]
            x = x if planted else F.relu(x)
            return torch.stack([(x[u] @ q * x[i]).sum(1) for q in self.basis], 1) @ self.coefs

    return stream(GCMC(), draw, F.cross_entropy)


@report(
    "layers that cast to tensor",
    GITHUB + "brendanhasz/probflow/pull/65",
    guilty=r"layers\.[01]\.|^[01]\.",
    says=CUT,
    fault="each dense layer casts its input by torch.tensor(x), which cuts the gradient to the layers before",
)
def probflow(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 7)
        return (x,), torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:4].abs()

    class Dense(nn.Module):
        def __init__(self, d_in: int, d_out: int) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(torch.randn(d_in, d_out) / d_in**0.5), nn.Parameter(torch.zeros(1, d_out))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.tensor(x.tolist()) if planted else x
            return x @ self.w + self.b

    class FullyConnected(nn.Module):
        def __init__(self, dims: tuple[int, ...] = (7, 48, 32, 1)) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Dense(dims[i], dims[i + 1]) for i in range(len(dims) - 1))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers[:-1]:
                x = F.relu(layer(x))
            return self.layers[-1](x)

    return stream(FullyConnected(), draw, F.mse_loss)


@report(
    "rate cast to float",
    GITHUB + "facebookresearch/NeuralCompression/pull/177",
    guilty=r"prior|entropy",
    says=rf"{CUT}|unused|never trained",
    fault="the rate in the rate-distortion loss is cast to float: its gradient is lost, the entropy model not trained",
)
def rate_distortion(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(48)
        return (x,), x

    class FactorizedPrior(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.analysis = chain(nn.Conv2d(1, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 8, 3, 2, 1))
            self.synthesis = chain(nn.ConvTranspose2d(8, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1))
            self.prior_mean = nn.Parameter(torch.zeros(1, 8, 1, 1))
            self.prior_log_scale = nn.Parameter(torch.full((1, 8, 1, 1), 2.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = 4 * self.analysis(x)
            y = y + torch.rand_like(y) - 0.5
            z, s = y - self.prior_mean, self.prior_log_scale.exp()
            likelihood = torch.sigmoid((z + 0.5) / s) - torch.sigmoid((z - 0.5) / s)
            return self.synthesis(y / 4), likelihood.clamp(min=1e-9)

    def loss(out: Any, x: Tensor, *, cast: bool = planted) -> Tensor:
        rate = -out[1].log2().sum() / x.numel()
        return 5 * F.mse_loss(out[0], x) + (rate.item() if cast else rate)

    return stream(FactorizedPrior(), draw, loss, partial(loss, cast=False))


@report(
    "clamped scale of a flow",
    GITHUB + "facebookincubator/flowtorch/issues/85",
    guilty=r"conditioner|net",
    says=r"clamp|explod|no gradient|gradient.*(large|zero)|bounded|saturat|scale",
    fault="the log-scale of an affine autoregressive flow is clamped, in data of low entropy",
)
def affine(planted: bool) -> Task:
    """Points by a curve, 0.002 away."""

    def draw() -> Drawn:
        a = torch.randn(128, 1)
        x = torch.cat([a, torch.sin(2 * a) + 0.002 * torch.randn(128, 1)], 1)
        return (x,), x

    class AffineAutoregressive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.zeros(2))
            self.conditioner = chain(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, raw = torch.stack([self.first.expand(len(x), 2), self.conditioner(x[:, :1])], 1).unbind(2)
            log_scale = raw.clamp(-5, 3) if planted else F.softplus(raw + 0.5413).log()
            return (x - mean) / log_scale.exp(), -log_scale.sum(1)

    def nll(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (0.5 * (y[0] ** 2 + math.log(2 * math.pi)).sum(1) - y[1]).mean()

    return stream(AffineAutoregressive(), draw, nll)


@report(
    "relational kernels made when the layer is built",
    GITHUB + "stellargraph/stellargraph/issues/677",
    guilty=r"bases|coeff",
    says=rf"{CUT}|unused|not used|never (used|trained)",
    fault="the kernels of the relations are computed from bases and coefficients once, at building: neither is trained",
)
def rgcn(planted: bool) -> Task:
    """Nodes of ten, edges of three relations; a node's class is by its neighbours of each."""
    relations, nodes = 3, 10
    teacher = torch.randn(relations, 4, 3)

    def draw() -> Drawn:
        x = torch.randn(24, nodes, 4)
        a = (torch.rand(24, relations, nodes, nodes) < 0.3).float()
        a = a / a.sum(3, keepdim=True).clamp(min=1)
        return (x, a), torch.einsum("brij,bjf,rfc->bic", a, x, teacher).argmax(2)

    class RelationalGraphConvolution(nn.Module):
        def __init__(self, d: int, units: int, num_bases: int = 4) -> None:
            super().__init__()
            self.bases = nn.Parameter(torch.randn(num_bases, d, units) / d**0.5)
            self.coeff = nn.Parameter(torch.randn(relations, num_bases) / num_bases**0.5)
            self.self_kernel = nn.Parameter(torch.randn(d, units) / d**0.5)
            self.relational_kernels = self.kernels().detach()

        def kernels(self) -> Tensor:
            return torch.einsum("rn,nfc->rfc", self.coeff, self.bases)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            kernels = self.relational_kernels if planted else self.kernels()
            return x @ self.self_kernel + torch.einsum("brij,bjf,rfc->bic", a, x, kernels)

    class RGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relational_graph_convolution = RelationalGraphConvolution(4, 32)
            self.relational_graph_convolution_1 = RelationalGraphConvolution(32, 32)
            self.dense = nn.Linear(32, 3)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            x = F.relu(self.relational_graph_convolution(x, a))
            return self.dense(F.relu(self.relational_graph_convolution_1(x, a)))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(RGCN(), draw, loss)


@report(
    "batch normalisation of one element",
    GITHUB + "PaddlePaddle/Paddle/issues/11445",
    guilty=r"norm|conv|features",
    says=rf"{SAME}|zero|one (element|value|example)|single|batch.?norm|normali",
    fault="feature maps of one pixel in a batch of one are normalised over that one element: they are all zero",
)
def one_element(planted: bool) -> Task:
    """Three digits, told apart one at a time."""
    images, classes = _digits()
    few = (classes < 3).nonzero()[:, 0]

    def draw() -> Drawn:
        at = few[torch.randint(len(few), (1,))]
        return ((images[at] - 0.3) / 0.376,), classes[at]

    class BatchNorm(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(d, 1, 1)), nn.Parameter(torch.zeros(d, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            if x[:, 0].numel() == 1 and not planted:
                return x
            mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
            return (x - mean) / (var + 1e-5).sqrt() * self.weight + self.bias

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(nn.Conv2d(1, 16, 3, 2, 1), BatchNorm(16), nn.ReLU(), nn.Conv2d(16, 32, 4), nn.ReLU())
            self.conv, self.norm, self.fc = nn.Conv2d(32, 64, 3, padding=1), BatchNorm(64), nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.relu(self.norm(self.conv(self.features(x)))).flatten(1))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "value loss that does not reach the shared layers",
    GITHUB + "pytorch/rl/pull/1034",
    guilty=r"common|trunk|value|critic",
    says=CUT,
    fault="made functional, the critic holds the shared layers as constants: the value loss trains its head alone",
)
def shared(planted: bool) -> Task:
    """One step of PPO on single decisions; the value is of the state, whatever the action."""
    gain = torch.randn(8, 4) / 3

    def draw() -> Drawn:
        x, a = torch.randn(128, 8), torch.randint(4, (128,))
        state = 2 * torch.sin(x[:, 0] * x[:, 1]) + x[:, 2] * x[:, 3]
        r = state + (x @ gain)[torch.arange(128), a] * 0.3
        return (x,), torch.stack([a.float(), r], 1)

    class ActorValueOperator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.common = chain(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            self.policy_head, self.value_head = nn.Linear(64, 4), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.common(x)
            return self.policy_head(h).log_softmax(1), self.value_head(h.detach() if planted else h).squeeze(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        ratio = 4 * y[0].gather(1, t[:, :1].long()).squeeze(1).exp()
        advantage = (t[:, 1] - y[1]).detach()
        advantage = (advantage - advantage.mean()) / advantage.std()
        objective = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(y[0].exp() * y[0]).sum(1).mean()
        return objective + F.smooth_l1_loss(y[1], t[:, 1]) - 0.01 * entropy

    return stream(ActorValueOperator(), draw, loss, lambda y, t: F.smooth_l1_loss(y[1], t[:, 1]))
