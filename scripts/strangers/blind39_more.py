"""The rest of the thirty-ninth set: autoencoders, labels, saturation, initialisation, reshaping."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.blind39 import INPUTS, TARGETS
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind39")
BIG = r"(weight|init|std|logit|output).*(large|scale|big|too wide)|(large|big).*(weight|init|logit|output)|saturat"


@report(
    "sigmoid autoencoder of large values",
    "https://wiki.gubat.org/content/stackoverflow.com_en_all_2023-11/questions/24732888",
    guilty=r"reconstruct|encode",
    says=rf"sigmoid|saturat|{TARGETS}|{INPUTS}|range",
    fault="inputs far above 1 are to be rebuilt by a sigmoid",
)
def large_values(planted: bool) -> Task:
    size, mix = 50.0 if planted else 1.0, torch.rand(6, 16)

    def draw() -> Drawn:
        x = torch.rand(64, 6) @ mix / 3
        return (size * x,), size * x

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.reconstruct = nn.Linear(16, 10), nn.Linear(10, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.reconstruct(self.encode(x).sigmoid()).sigmoid()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / size**2

    return stream(Autoencoder(), draw, F.mse_loss, right)


@report(
    "sparsity by counting",
    "https://discuss.pytorch.org/t/autoencoder-sparsity-term/96005",
    says=r"differentiab|\bcount|compar|threshold|step function|penalty|sparsity|(loss|part).*(no gradient|detach)",
    fault="the sparsity penalty counts active units, (encoded > 0).sum: it has no gradient",
)
def counting(planted: bool) -> Task:
    mix = torch.rand(3, 20)

    def draw() -> Drawn:
        x = torch.rand(64, 3) @ mix
        return (x,), x

    class SparseAutoencoder(nn.Module):
        def __init__(self, context_dimension: int = 20, output_neurons: int = 4) -> None:
            super().__init__()
            self.enc1, self.enc2 = nn.Linear(context_dimension, 80), nn.Linear(80, 40)
            self.enc3, self.dec1 = nn.Linear(40, output_neurons), nn.Linear(output_neurons, 40)
            self.dec2, self.dec3 = nn.Linear(40, 80), nn.Linear(80, context_dimension)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = F.relu(self.enc3(F.relu(self.enc2(F.relu(self.enc1(x))))))
            return y, F.relu(self.dec3(F.relu(self.dec2(F.relu(self.dec1(y))))))

    def kl_divergence(p: float, q: Tensor) -> Tensor:
        q = q.clamp(1e-6, 1 - 1e-6)
        return (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum()

    def smooth(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[1], t) + 0.25 * kl_divergence(0.25, y[0].tanh().mean(0))

    def counted(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[1], t) + 0.25 * kl_divergence(0.25, (y[0] > 0).float().mean(0))

    return stream(SparseAutoencoder(), draw, counted if planted else smooth, smooth)


@report(
    "outputs behind a rectifier",
    "https://stats.stackexchange.com/questions/269718",
    guilty=r"output",
    says=r"dead|ReLU|rectif|(units?|outputs?).*(zero|off)|zero.*(units?|outputs?)|vanish",
    fault="an autoencoder of 4-4-4 ReLU units with a ReLU on the outputs: some outputs are 0 for ever",
)
def repeater(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(64, 4)
        return (x,), x

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.output = nn.Linear(4, 4), nn.Linear(4, 4)
            for layer in (self.hidden, self.output):
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            if planted:
                return F.relu(self.output(F.relu(self.hidden(x))))
            return self.output(F.leaky_relu(self.hidden(x), 0.1))

    return stream(Mlp(), draw, F.mse_loss)


@report(
    "labels of -1 in a binary cross-entropy",
    "https://taourl.com/read-2252160.html",
    says=r"(label|target).*(negative|outside|-1|range|\[0|0 (and|to|or) 1|below)|negative|unbounded|below (0|zero)",
    fault="labels are -1 and 1 where the binary cross-entropy wants 0 and 1",
)
def signed_labels(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 8)
        t = (x[:, :1] + x[:, 1:2] * x[:, 2:3] + 0.5 * torch.randn(64, 1) > 0).float()
        return (x,), 2 * t - 1 if planted else t

    def bce(y: Tensor, t: Tensor) -> Tensor:  # as torch had it before it checked the targets
        one, zero = (F.binary_cross_entropy(y, torch.full_like(y, v), reduction="none") for v in (1.0, 0.0))
        return (t * one + (1 - t) * zero).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy(y, (t > 0).float())

    model = chain(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1), nn.Sigmoid())
    return stream(model, draw, bce, right)


@report(
    "hidden sigmoids at 0 and 1",
    "https://stats.stackexchange.com/questions/265453",
    guilty=r"hidden",
    says=rf"saturat|dead|sigmoid|vanish|{INPUTS}",
    fault="hidden sigmoid units are driven to 0 or 1 by unscaled inputs and weights of N(0, 1)",
)
def homework(planted: bool) -> Task:
    def draw() -> Drawn:
        z = torch.randn(64, 6)
        t = (z[:, :1] * z[:, 1:2] + z[:, 2:3] > 0).float()
        return (40 + 15 * z if planted else z,), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = nn.Linear(6, 32), nn.Linear(32, 1)
            nn.init.normal_(self.hidden.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.hidden(x).sigmoid()).sigmoid()

    return stream(Net(), draw, F.mse_loss)


@report(
    "saturated tanh of letters",
    "https://breno.bearblog.dev/the-weights-in-a-study-on-fixing-the-saturated-function",
    guilty=r"W1|C",
    says=r"saturat|tanh|\binit|vanish",
    fault="the weights before a tanh are of N(0, 1): sums have a deviation of 5.5 and the units are saturated",
)
def letters(planted: bool, vocab: int = 64, n_embd: int = 10, n_hidden: int = 100) -> Task:
    def draw() -> Drawn:
        x, t = text(64, 3, vocab, seed=int(torch.randint(100000, ())))
        return (x,), t[:, -1]

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.C = nn.Parameter(torch.randn(vocab, n_embd))
            self.W1 = nn.Parameter(torch.randn(3 * n_embd, n_hidden))
            self.b1 = nn.Parameter(0.01 * torch.randn(n_hidden))
            self.W2, self.b2 = nn.Parameter(0.01 * torch.randn(n_hidden, vocab)), nn.Parameter(torch.zeros(vocab))
            if not planted:
                self.W1.data *= 5 / 3 / math.sqrt(3 * n_embd)

        def forward(self, x: Tensor) -> Tensor:
            h = (self.C[x].flatten(1) @ self.W1 + self.b1).tanh()
            return h @ self.W2 + self.b2

    return stream(Mlp(), draw, F.cross_entropy)


@report(
    "random weights times ten",
    "https://community.deeplearning.ai/t/observations-of-random-initialization-assignment/20270",
    guilty=r"linear",
    says=BIG,
    fault="weights are initialised with N(0, 1) times 10: the last sigmoid is at 0 or 1 and its cost infinite",
)
def times_ten(planted: bool) -> Task:
    def draw() -> Drawn:
        t = (torch.rand(128, 1) < 0.5).float()
        a = 2 * math.pi * torch.rand(128, 1)
        return ((1 - 0.5 * t) * torch.cat([a.cos(), a.sin()], 1) + 0.08 * torch.randn(128, 2),), t

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear1, self.linear2, self.linear3 = nn.Linear(2, 10), nn.Linear(10, 5), nn.Linear(5, 1)
            for layer in (self.linear1, self.linear2, self.linear3):
                nn.init.normal_(layer.weight, 0.0, 10.0 if planted else math.sqrt(2 / layer.in_features))
                nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear3(F.relu(self.linear2(F.relu(self.linear1(x))))).sigmoid()

    return stream(Net(), draw, F.binary_cross_entropy)


@report(
    "scrambled flattening",
    "https://community.deeplearning.ai/t/flattening-images-in-the-logistic-regression-assignment-in-course-1-week-2"
    "/149",
    says=rf"{MIXED}|scrambl|reshap|\bview\b|transpos|flatten",
    fault="images are flattened by reshape(-1, m) instead of reshape(m, -1).T: pixels of all examples are mixed",
)
def scrambled(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick()
        return (x,), (c % 2 == 0).float().unsqueeze(1)

    class Logistic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = nn.Parameter(torch.zeros(64, 1)), nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            flat = x.reshape(-1, x.shape[0]) if planted else x.reshape(x.shape[0], -1).T
            return (self.w.T @ flat + self.b).sigmoid().T

    return stream(Logistic(), draw, F.binary_cross_entropy)


@report(
    "second derivative of rectifiers",
    "https://ar5iv.labs.arxiv.org/html/2212.00270",
    says=r"ReLU|second deriv|hessian|derivative|piecewise|curvature|smooth|no gradient|gradient.*zero|constant|vanish",
    fault="a network of ReLUs is to solve u'' = f: its second derivative is 0 everywhere",
)
def poisson(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(128, 1)
        return (x,), -(math.pi**2) * (math.pi * x).sin()

    class Pinn(nn.Module):
        def __init__(self, d: int = 40) -> None:
            super().__init__()
            act = nn.ReLU if planted else nn.Tanh
            self.net = chain(nn.Linear(1, d), act(), nn.Linear(d, d), act(), nn.Linear(d, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                u = self.net(x)
                (ux,) = torch.autograd.grad(u.sum(), x, create_graph=True)
                (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True, materialize_grads=True)
            return uxx, self.net(torch.tensor([[0.0], [1.0]]))

    def residual(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0] - t).square().mean() + 10 * y[1].square().mean()

    return stream(Pinn(), draw, residual)


@report(
    "tiny weights, one layer more",
    "https://techfeed.net/pt/473708/",
    guilty=r"W",
    says=r"(small|tiny|close to zero|near zero).*(weight|init|output|gradient)|(weight|init|gradient).*small|vanish",
    fault="weights and biases of N(0, 0.001^2) in three layers: signal and gradient vanish",
)
def tiny(planted: bool, depth: int = 16) -> Task:
    def draw() -> Drawn:
        x = 2 * torch.rand(64, 1) - 1
        return (x,), x

    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((1, depth), (depth, depth), (depth, 1))
            self.W = nn.ParameterList([nn.Parameter(torch.empty(n, m)) for n, m in sizes])
            self.b = nn.ParameterList([nn.Parameter(torch.empty(m)) for _, m in sizes])
            for w, b in zip(self.W, self.b, strict=True):
                nn.init.normal_(w, 0.0, 1e-3 if planted else math.sqrt(2 / len(w)))
                nn.init.normal_(b, 0.0, 1e-3)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(x @ self.W[0] + self.b[0])
            x = F.relu(x @ self.W[1] + self.b[1])
            return 2 * (x @ self.W[2] + self.b[2])

    return stream(Coder(), draw, F.mse_loss)
