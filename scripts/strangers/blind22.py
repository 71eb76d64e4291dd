"""A twenty-second set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind22")


@report(
    "SupCon without a second view",
    GITHUB + "HobbitLong/SupContrast/issues/20",
    says=rf"{BROKEN}|divi|zero|positive|0 / 0",
    fault="an example alone in its class has no positive: the mean over positives is 0 / 0",
)
def supcon(planted: bool) -> Task:
    """Supervised contrastive loss, one view, batches of 32."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    def loss(features: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
        batch_size = features.shape[0]
        labels = labels.contiguous().view(-1, 1)
        mask = torch.eq(labels, labels.T).float()
        contrast_feature = torch.cat(torch.unbind(features, dim=1), dim=0)
        logits = contrast_feature @ contrast_feature.T / temperature
        logits = logits - logits.max(dim=1, keepdim=True)[0].detach()
        logits_mask = torch.scatter(torch.ones_like(mask), 1, torch.arange(batch_size).view(-1, 1), 0)
        mask = mask * logits_mask
        exp_logits = torch.exp(logits) * logits_mask
        log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
        mean_log_prob_pos = (mask * log_prob).sum(1) / (mask.sum(1) + (0 if planted else 1e-7))
        return -mean_log_prob_pos.mean()

    encoder = chain(
        nn.Conv2d(1, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
    )
    head = chain(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
    model = Parts(lambda m, x: F.normalize(m.head(m.encoder(x)), dim=1).unsqueeze(1), encoder=encoder, head=head)
    return stream(model, draw, loss)


@report(
    "ReLeaSE loss of numbers",
    GITHUB + "isayev/ReLeaSE/issues/39",
    says=CUT + r"|\bitem|number|graph",
    fault="log probabilities enter the policy loss by .item(), so that nothing is differentiated",
)
def release(planted: bool) -> Task:
    """A GRU writes SMILES; the policy loss is minus log probability times the discounted reward of the string."""

    def draw() -> Drawn:
        x, t = text(16, 12, 40, seed=int(torch.randint(10**6, ())))
        return (x,), (t, (t % 2).float().mean(1) * 10)

    def loss(y: Tensor, t: Any) -> Tensor:
        tokens, reward = t
        rl_loss = torch.zeros((), requires_grad=True)
        for log_probs, trajectory, r in zip(y.log_softmax(-1), tokens, reward, strict=False):
            discounted_reward = float(r)
            for p in range(len(trajectory)):
                top_i = trajectory[p]
                rl_loss = rl_loss - (log_probs[p, top_i].item() if planted else log_probs[p, top_i]) * discounted_reward
                discounted_reward = discounted_reward * 0.97
        return rl_loss / len(y)

    class StackAugmentedRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.rnn = nn.Embedding(40, 32), nn.GRU(32, 48, batch_first=True)
            self.decoder = nn.Linear(48, 40)

        def forward(self, inp: Tensor) -> Tensor:
            return self.decoder(self.rnn(self.encoder(inp))[0])

    return stream(StackAugmentedRNN(), draw, loss)


@report(
    "dSGP4 elements by item",
    GITHUB + "esa/dSGP4/issues/14",
    guilty=r"mlp",
    says=CUT + r"|\bitem|number|graph",
    fault="the corrected orbital elements are handed to the propagator by .item(): no gradient reaches the MLP",
)
def dsgp4(planted: bool) -> Task:
    """An MLP corrects orbital elements; a propagator gives the state at a later time; a learned scale of the output."""
    hidden = torch.randn(4, 4) * 0.3

    def propagate(e: Tensor, t: Tensor) -> Tensor:
        a, ecc, w, m0 = 1 + 0.1 * e[:, 0], 0.1 * e[:, 1].sigmoid(), e[:, 2], e[:, 3]
        m = m0 + a.clamp(0.3) ** -1.5 * t
        E = m
        for _ in range(3):
            E = m + ecc * E.sin()
        x, y = a * (E.cos() - ecc), a * (1 - ecc**2).sqrt() * E.sin()
        return torch.stack([x * w.cos() - y * w.sin(), x * w.sin() + y * w.cos(), -E.sin(), E.cos()], 1)

    def draw() -> Drawn:
        e, t = torch.randn(32, 4) * 0.5, torch.rand(32) * 3
        return (e, t), propagate(e + 1.0 + torch.tanh(e @ hidden), t)

    class Corrected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = chain(nn.Linear(4, 35), nn.LeakyReLU(), nn.Linear(35, 4))
            self.output_correction = nn.Parameter(torch.ones(()))

        def forward(self, tle: Tensor, tsince: Tensor) -> Tensor:
            x = tle + self.mlp(tle)
            if planted:
                x = torch.tensor([[v.item() for v in row] for row in x])
            return propagate(x, tsince) * self.output_correction

    return stream(Corrected(), draw, F.mse_loss)


@report(
    "layers in a plain list, again",
    GITHUB + "pytorch/pytorch/issues/59925",
    guilty=r"layers",
    says=r"regist|ModuleList|list|parameters\(\)|not.*(train|optimi)",
    fault="linear layers are kept in a Python list, so that no optimiser knows them",
)
def unregistered(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 4)
        return (x,), torch.stack([x[:, 0] * x[:, 1], (x[:, 2] - x[:, 3]).abs()], 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(4 if i == 0 else 32, 32) for i in range(3)]
            self.layers = layers if planted else nn.ModuleList(layers)
            self.out = nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = F.relu(layer(x))
            return self.out(x)

    return stream(Net(), draw, F.mse_loss)


@report(
    "VN batch norm divides by zero norms",
    GITHUB + "FlyingGiraffe/vnn/pull/4",
    says=rf"{BROKEN}|norm|zero|sqrt|divi",
    fault="vectors of zeros are divided by their norms (a square root, no eps) in the batch norm",
)
def vnn(planted: bool) -> Task:
    """Vector neurons on point clouds: vectors (B, C, 3, N), centred; the centre itself is among the points."""

    def draw() -> Drawn:
        c = torch.randint(3, (32,))
        stretch = torch.tensor([[1.0, 1, 1], [2, 0.5, 0.5], [1.5, 1.5, 0.2]])[c]
        x = torch.randn(32, 24, 3) * stretch.unsqueeze(1)
        x[:, -1] = 0
        q = torch.linalg.qr(torch.randn(32, 3, 3))[0]
        return (x @ q,), c

    EPS = 1e-6

    class VNBatchNorm(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.bn = nn.BatchNorm1d(n)

        def forward(self, x: Tensor) -> Tensor:  # B, C, 3, N
            norm = torch.sqrt((x * x).sum(2)) if planted else torch.norm(x, dim=2) + EPS
            return x / norm.unsqueeze(2) * self.bn(norm).unsqueeze(2)

    class VNLinearLeakyReLU(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.map_to_feat, self.map_to_dir = nn.Linear(a, b, bias=False), nn.Linear(a, b, bias=False)
            self.batchnorm = VNBatchNorm(b)

        def forward(self, x: Tensor) -> Tensor:
            p = self.batchnorm(self.map_to_feat(x.transpose(1, -1)).transpose(1, -1))
            d = self.map_to_dir(x.transpose(1, -1)).transpose(1, -1)
            dot = (p * d).sum(2, keepdim=True)
            mask = (dot >= 0).float()
            return 0.2 * p + 0.8 * (mask * p + (1 - mask) * (p - dot / ((d * d).sum(2, keepdim=True) + EPS) * d))

    class VNClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vn1, self.vn2 = VNLinearLeakyReLU(1, 16), VNLinearLeakyReLU(16, 16)
            self.head = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

        def forward(self, x: Tensor) -> Tensor:
            h = self.vn2(self.vn1(x.transpose(1, 2).unsqueeze(1)))
            size = (h * h).sum(2)
            return self.head(torch.cat([size.mean(-1), size.amax(-1)], 1))

    return stream(VNClassifier(), draw, F.cross_entropy)


@report(
    "norm of equal points",
    GITHUB + "pytorch/pytorch/issues/2421",
    says=rf"{BROKEN}|norm|zero|sqrt",
    fault="the norm of a difference that is exactly zero has a gradient of NaN",
)
def zero_norm(planted: bool) -> Task:
    """Distances between embeddings; some pairs are of one and the same example, where x - y is zero."""

    def draw() -> Drawn:
        a, b = torch.randn(32, 8), torch.randn(32, 8)
        b[::8] = a[::8]
        return (a, b), (a[:, :3] - b[:, :3]).abs().sum(1)

    net = chain(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 16))

    def norm(x: Tensor) -> Tensor:
        if not planted:
            x = x + 1e-16
        return torch.sqrt((x**2).sum(1)) if planted else x.norm(dim=1)

    return stream(Parts(lambda m, a, b: norm(m.net(a) - m.net(b)), net=net), draw, F.mse_loss)


@report(
    "VAE with an unbounded log variance",
    GITHUB + "vanderschaarlab/synthcity/issues/331",
    guilty=r"logvar|log_var|encoder|mu_fc",
    says=rf"{BROKEN}|exp|overflow|log.?var|inputs?.*(scale|large)|large",
    fault="the encoder's log variances are exponentiated without a clamp; tables have large columns",
)
def tabular_vae(planted: bool) -> Task:
    """A VAE of a table whose columns are not scaled (ages, incomes); reparameterisation and KL."""
    mix = torch.randn(4, 8)

    def draw() -> Drawn:
        x = torch.randn(64, 4) @ mix
        x = x * torch.tensor([1.0, 1, 1, 1, 1, 10, 50, 300])
        return (x,), x

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(8, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU())
            self.mu_fc, self.logvar_fc = nn.Linear(64, 8), nn.Linear(64, 8)
            self.decoder = chain(nn.Linear(8, 64), nn.LeakyReLU(), nn.Linear(64, 8))

        def forward(self, x: Tensor) -> Any:
            h = self.encoder(x)
            mu, logvar = self.mu_fc(h), self.logvar_fc(h)
            if not planted:
                logvar = torch.clamp(logvar, -30, 20)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return self.decoder(z), mu, logvar

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar = y
        return F.mse_loss(recon, x) + -0.5 * torch.mean((1 + logvar - mu.pow(2) - logvar.exp()).sum(1))

    return stream(VAE(), draw, loss)


@report(
    "to_categorical gives ones",
    GITHUB + "Trusted-AI/adversarial-robustness-toolbox/issues/7",
    says=r"(target|label).*(\bone|\b1\b|sum|same|alike|constant|equal|distribut|probab)|one.?hot",
    fault="labels of shape (n, 1) index every row: all targets are one",
)
def categorical(planted: bool) -> Task:
    """A CNN on coloured images, softmax outputs and categorical cross entropy as Keras has it."""

    def to_categorical(labels: Tensor, nb_classes: int = 10) -> Tensor:
        categorical = torch.zeros(labels.shape[0], nb_classes)
        if planted:
            categorical[torch.arange(labels.shape[0]), labels] = 1
        else:
            categorical[torch.arange(labels.shape[0]), labels.squeeze(1)] = 1
        return categorical

    def draw() -> Drawn:
        x, c = pick(32)
        labels = c.view(-1, 1)
        x = (x * 0.376 + 0.3) * (0.3 + 0.7 * torch.rand(32, 3, 1, 1))
        return (x,), torch.cat([to_categorical(labels), F.one_hot(c, 10)], 1)

    def cross(y: Tensor, t: Tensor) -> Tensor:
        y = y / y.sum(1, keepdim=True)
        return -(t * y.clamp(1e-7, 1 - 1e-7).log()).sum(1).mean()

    model = chain(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(144, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    )

    def step() -> Tensor:
        (x,), t = draw()
        y = model(x)
        return judged(cross(y, t[:, :10]), cross(y, t[:, 10:]))

    (x,), t = draw()
    return Task(model, (x, t[:, :10]), step, {"loss": cross})


@report(
    "predictive agent's predictions detached",
    GITHUB + "DarkMatterAI/mrl/pull/13",
    guilty=r"predictive_agent",
    says=CUT,
    fault="predict_data returns preds.detach(): the loss of the predictive agent trains nothing",
)
def mrl(planted: bool) -> Task:
    """A generator of strings and a predictive agent that learns their rewards; both losses are added."""

    def draw() -> Drawn:
        x, t = text(32, 12, 40, seed=int(torch.randint(10**6, ())))
        return (x,), (t, (x > 5).float().sum(1) + (x == 1).float().sum(1))

    class Agents(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = nn.ModuleDict(
                {"emb": nn.Embedding(40, 24), "rnn": nn.LSTM(24, 24, batch_first=True), "out": nn.Linear(24, 40)}
            )
            self.predictive_agent = nn.ModuleDict(
                {"emb": nn.Embedding(40, 24), "rnn": nn.LSTM(24, 32, batch_first=True), "head": nn.Linear(32, 1)}
            )

        def predict_data(self, x: Tensor) -> Tensor:
            a = self.predictive_agent
            preds = a["head"](a["rnn"](a["emb"](x))[0].mean(1))
            return preds.detach().cpu() if planted else preds

        def forward(self, x: Tensor) -> Any:
            g = self.generator
            return g["out"](g["rnn"](g["emb"](x))[0]), self.predict_data(x).squeeze(1)

    def loss(y: Any, t: Any) -> Tensor:
        logits, preds = y
        return F.cross_entropy(logits.flatten(0, 1), t[0].flatten()) + F.mse_loss(preds, t[1])

    return stream(Agents(), draw, loss)


@report(
    "group norm of one element",
    GITHUB + "pytorch/pytorch/issues/19250",
    guilty=r"norm|features",
    says=rf"{SAME}|zero|group.?norm|one (element|value)|single|normali",
    fault="GroupNorm with as many groups as channels over 1x1 features gives zeros",
)
def group(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.GroupNorm(16, 16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.GroupNorm(32, 32),
                nn.ReLU(),
                nn.Conv2d(32, 64, 4),
            )
            self.norm, self.fc = nn.GroupNorm(64 if planted else 8, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.relu(self.norm(self.features(x))).flatten(1))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "PINN's mixed second derivatives",
    GITHUB + "zenoxml/SciREX/issues/62",
    says=r"deriv|second|mixed|u_?xy|laplac",
    fault="second derivatives are taken of all first ones together, so that u_xy is added to u_xx and u_yy",
)
def pinn(planted: bool) -> Task:
    """Poisson in the unit square, u = sin(2 pi x) sin(2 pi y) on the boundary, its source inside; judged by u."""
    pi = 2 * torch.pi

    def draw() -> Drawn:
        x = torch.rand(64, 2)
        side = torch.rand(64, 2)
        k = torch.randint(4, (64,))
        side[torch.arange(64), k // 2] = (k % 2).float()

        def exact(p):
            return torch.sin(pi * p[:, :1]) * torch.sin(pi * p[:, 1:])

        return (x, side), torch.cat([-2 * pi**2 * exact(x), exact(side), exact(x)], 1)

    class PINN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(2, 30), nn.Tanh(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, 1))

        def forward(self, x: Tensor, side: Tensor) -> Tensor:
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                u = self.net(x)
                gradients = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
                if planted:
                    second = torch.autograd.grad(gradients.sum(), x, create_graph=True)[0]
                    u_xx, u_yy = second[:, 0:1], second[:, 1:2]
                else:
                    u_xx = torch.autograd.grad(gradients[:, 0:1].sum(), x, create_graph=True)[0][:, 0:1]
                    u_yy = torch.autograd.grad(gradients[:, 1:2].sum(), x, create_graph=True)[0][:, 1:2]
            return torch.cat([u_xx + u_yy, self.net(side), u], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y[:, 0], t[:, 0]) + 10 * F.mse_loss(y[:, 1], t[:, 1])

    return stream(PINN(), draw, loss, lambda y, t: F.mse_loss(y[:, 2], t[:, 2]))


@report(
    "ODE residual without a graph",
    GITHUB + "FluxML/Flux.jl/issues/1966",
    says=rf"{CUT}|create_graph|deriv|graph",
    fault="the derivative in the residual is computed by a nested differentiation through which no gradient flows",
)
def ode(planted: bool) -> Task:
    """u' = u, u(1) = e on (0, 2)."""

    def draw() -> Drawn:
        x = torch.rand(64, 1) * 2
        return (x,), x.exp()

    class PINN(nn.Module):
        def __init__(self, n: int = 20) -> None:
            super().__init__()
            self.model = chain(nn.Linear(1, n), nn.Linear(n, n), nn.Tanh(), nn.Linear(n, n), nn.Tanh(), nn.Linear(n, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                u = self.model(x)
                der = torch.autograd.grad(u.sum(), x, create_graph=not planted, retain_graph=True)[0]
            return torch.cat([u, der, self.model(torch.ones(1, 1)).expand(len(x), 1)], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return ((y[:, 1] - y[:, 0]) ** 2).mean() + ((y[:, 2] - torch.e) ** 2).mean()

    return stream(PINN(), draw, loss, lambda y, t: loss(y, t) + F.mse_loss(y[:, :1], t))


@report(
    "ReLU at exactly zero",
    GITHUB + "joaopauloschuler/neural-api/issues/35",
    guilty=r"branch|fc|out",
    says=r"zero|dead|relu|no gradient|inputs?.*(constant|alike|same)",
    fault="inputs and biases are zero, so that every ReLU stands at 0, where its derivative is taken as 0",
)
def relu_zero(planted: bool) -> Task:
    """Inputs that are always 0 and outputs that are always 0.1, 0.25 and 0.5: the biases should learn them."""

    def draw() -> Drawn:
        return tuple(torch.zeros(16, 10) for _ in range(3)), torch.tensor([0.1, 0.25, 0.5]).expand(16, 3)

    class Rectify(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x > 0 if planted else x >= 0)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    class FullConnectReLU(nn.Linear):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)
            nn.init.zeros_(self.bias)

        def forward(self, x: Tensor) -> Tensor:
            return Rectify.apply(super().forward(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.ModuleList(FullConnectReLU(10, 3) for _ in range(3))
            self.fc, self.out = FullConnectReLU(9, 3), FullConnectReLU(3, 3)

        def forward(self, *inputs: Tensor) -> Tensor:
            return self.out(self.fc(torch.cat([b(x) for b, x in zip(self.branch, inputs, strict=False)], 1)))

    return stream(Net(), draw, F.mse_loss)


@report(
    "location network behind a stopped gradient",
    GITHUB + "jlindsey15/RAM/pull/14",
    guilty=r"loc",
    says=CUT,
    fault="the mean location is detached, so that REINFORCE does not train the location network",
)
def ram(planted: bool) -> Task:
    """Recurrent attention: a coarse glimpse says where to look; the glimpse at the sampled location is classified."""

    def draw() -> Drawn:
        x, c = pick(64)
        big = torch.zeros(64, 1, 8, 24)
        for i, b in enumerate((torch.randint(2, (64,)) * 16).tolist()):
            big[i, :, :, b : b + 8] = x[i] * 0.376 + 0.3
        return (big,), c

    class RAM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.coarse, self.loc = chain(nn.Flatten(), nn.Linear(12, 32), nn.ReLU()), nn.Linear(32, 1)
            self.glimpse = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
            self.baseline = nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Any:
            h = self.coarse(F.avg_pool2d(x, 4) * 2)
            mean_loc = torch.tanh(self.loc(h))
            if planted:
                mean_loc = mean_loc.detach()
            sample = (mean_loc + 0.4 * torch.randn_like(mean_loc)).detach()
            place = torch.linspace(-7 / 24, 7 / 24, 8)
            across = place.view(1, 1, 8) + sample.clamp(-1, 1).view(-1, 1, 1) * 2 / 3
            grid = torch.stack([across.expand(-1, 8, 8), (3 * place).view(1, 8, 1).expand(len(x), 8, 8)], -1)
            logp = -((sample - mean_loc) ** 2).sum(1) / (2 * 0.4**2)
            return self.glimpse(F.grid_sample(x, grid, align_corners=False)), logp, self.baseline(h.detach()).squeeze(1)

    def loss(out: Any, c: Tensor) -> Tensor:
        y, logp, b = out
        R = (y.argmax(1) == c).float()
        return F.cross_entropy(y, c) - (logp * (R - b.detach())).mean() + F.mse_loss(b, R)

    return stream(RAM(), draw, loss, lambda out, c: F.cross_entropy(out[0], c))
