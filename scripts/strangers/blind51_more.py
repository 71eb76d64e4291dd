"""The rest of the fifty-first set: reports about molecules, equations, graphs and returns."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind51")


@report(
    "convolution along the alphabet",
    GITHUB + "topazape/molecular-VAE/issues/2",
    guilty=r"conv1d",
    says=r"transpos|axis|axes|permut|channel|(sequence|length|position).*(channel|dim)|alphabet|order of",
    fault="the positions of the string are the channels of the convolutions, which slide along the alphabet",
)
def molecular_vae(planted: bool) -> Task:
    """A VAE of one-hot strings (B, 24, 20): convolutions, a code, a GRU."""

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1d1 = nn.Conv1d(24 if planted else 20, 9, kernel_size=5)
            self.conv1d2 = nn.Conv1d(9, 9, kernel_size=5)
            self.conv1d3 = nn.Conv1d(9, 10, kernel_size=5)
            self.fc0 = nn.Linear(80 if planted else 120, 64)
            self.fc11, self.fc12 = nn.Linear(64, 16), nn.Linear(64, 16)
            self.gru, self.fc2 = nn.GRU(16, 64, batch_first=True), nn.Linear(64, 20)

        def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.conv1d1(x if planted else x.transpose(1, 2)))
            h = F.relu(self.conv1d2(h))
            h = F.relu(self.conv1d3(h))
            h = F.relu(self.fc0(h.view(h.size(0), -1)))
            return self.fc11(h), self.fc12(h)

        def forward(self, x: Tensor) -> Any:
            mu, logvar = self.encode(x)
            z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
            out = self.gru(z.unsqueeze(1).repeat(1, 24, 1))[0]
            return F.softmax(self.fc2(out), dim=2), mu, logvar

    def draw() -> Drawn:
        idx = text(64, 24, 20, seed=int(torch.randint(10**6, ())))[0]
        x = F.one_hot(idx, 20).float()
        return (x,), x

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar = y
        xent = 24 * F.binary_cross_entropy(recon.clamp(1e-6, 1 - 1e-6), x)
        return xent - 0.005 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())

    return stream(VAE(), draw, loss)


@report(
    "half of a regressor dropped",
    GITHUB + "materialyzeai/megnet/issues/252",
    says=r"drop",
    fault="a dropout of 0.5 after every layer of a graph network that regresses energies",
)
def megnet(planted: bool) -> Task:
    """MEGNet: updates of bonds, atoms and state, a Gaussian expansion of distances, MAE."""
    p = 0.5 if planted else 0.0

    def mlp(n: int, *sizes: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for m in sizes:
            layers += [nn.Linear(n, m), nn.Softplus(), nn.Dropout(p)]
            n = m
        return chain(*layers)

    class MEGNetLayer(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.phi_e, self.phi_v, self.phi_u = mlp(4 * d, 32, d), mlp(3 * d, 32, d), mlp(3 * d, 32, d)

        def forward(self, e: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            b, n, _, d = e.shape
            vi, vj = v.unsqueeze(2).expand(b, n, n, d), v.unsqueeze(1).expand(b, n, n, d)
            e = e + self.phi_e(torch.cat([e, vi, vj, u.view(b, 1, 1, d).expand(b, n, n, d)], 3))
            v = v + self.phi_v(torch.cat([e.mean(2), v, u.unsqueeze(1).expand(b, n, d)], 2))
            return e, v, u + self.phi_u(torch.cat([e.mean((1, 2)), v.mean(1), u], 1))

    class MEGNetModel(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.embedding, self.bond = nn.Embedding(5, d), mlp(20, d)
            self.layers = nn.ModuleList([MEGNetLayer(d), MEGNetLayer(d)])
            self.head = chain(mlp(3 * d, 32), nn.Linear(32, 1))
            self.register_buffer("centers", torch.linspace(0, 5, 20))

        def forward(self, z: Tensor, r: Tensor) -> Tensor:
            distance = (r.unsqueeze(2) - r.unsqueeze(1)).norm(dim=3, keepdim=True)
            e = self.bond(torch.exp(-((distance - self.centers) ** 2) / 0.5**2))
            v = self.embedding(z)
            u = torch.zeros_like(v[:, 0])
            for layer in self.layers:
                e, v, u = layer(e, v, u)
            return self.head(torch.cat([e.mean((1, 2)), v.mean(1), u], 1)).squeeze(1)

    charge = torch.tensor([-1.0, -0.5, 0.2, 0.6, 1.2])

    def draw() -> Drawn:
        z, r = torch.randint(0, 5, (32, 6)), torch.randn(32, 6, 3)
        distance = (r.unsqueeze(2) - r.unsqueeze(1)).norm(dim=3)
        q = charge[z]
        pairs = q.unsqueeze(2) * q.unsqueeze(1) / (1 + distance) + torch.exp(-(distance**2))
        return (z, r), q.sum(1) / 2 + (pairs.sum((1, 2)) - 11) / 2

    return stream(MEGNetModel(), draw, F.l1_loss)


@report(
    "Helmholtz with mixed derivatives",
    GITHUB + "prateekbhustali/Physics-Informed-Neural-Networks/issues/2",
    says=r"deriv|second|mixed|u_?xy|laplac",
    fault="the second derivatives are taken of both first ones together: u_xy is added to u_xx and to u_yy",
)
def helmholtz(planted: bool) -> Task:
    """u_xx + u_yy + u = q on the square (-1, 1), u = sin(pi x) sin(pi y); judged by u."""
    pi = torch.pi

    def exact(g: Tensor) -> Tensor:
        return torch.sin(pi * g[:, [0]]) * torch.sin(pi * g[:, [1]])

    def draw() -> Drawn:
        inside, edge = torch.rand(96, 2) * 2 - 1, torch.rand(64, 2) * 2 - 1
        k = torch.randint(4, (64,))
        edge[torch.arange(64), k // 2] = 2.0 * (k % 2) - 1
        u = exact(inside)
        return (inside, edge), torch.cat([(1 - 2 * pi**2) * u, u], 1)

    class FCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = chain(
                nn.Linear(2, 50),
                nn.Tanh(),
                nn.Linear(50, 50),
                nn.Tanh(),
                nn.Linear(50, 50),
                nn.Tanh(),
                nn.Linear(50, 1),
            )

        def forward(self, inside: Tensor, edge: Tensor) -> Any:
            g = inside.detach().requires_grad_(True)
            with torch.enable_grad():
                u = self.linears(g)
                u_x = torch.autograd.grad(u, g, torch.ones_like(u), create_graph=True)[0]
                if planted:
                    u_xx = torch.autograd.grad(u_x, g, torch.ones_like(u_x), create_graph=True)[0]
                    u_xx1, u_xx2 = u_xx[:, [0]], u_xx[:, [1]]
                else:
                    ones = torch.ones_like(u)
                    u_xx1 = torch.autograd.grad(u_x[:, [0]], g, ones, create_graph=True)[0][:, [0]]
                    u_xx2 = torch.autograd.grad(u_x[:, [1]], g, ones, create_graph=True)[0][:, [1]]
            return u_xx1 + u_xx2 + u, self.linears(edge), u

    def loss(y: Any, t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t[:, :1]) + 10 * (y[1] ** 2).mean()

    return stream(FCN(), draw, loss, lambda y, t: F.mse_loss(y[2], t[:, 1:]))


@report(
    "ReLU on the last embedding",
    GITHUB + "fani-lab/OpeNTF/issues/349",
    guilty=r"encoder\.1|encoder\.2",
    says=r"relu|negative|dead|sparse|bound|\b0\.5\b|" + SAME,
    fault="the encoder applies a ReLU after its last graph convolution too: logits are products of numbers above zero",
)
def opentf(planted: bool) -> Task:
    """Teams, skills and experts in one graph; an expert belongs to a team if the product of embeddings says so."""
    skill, n = torch.randn(60, 6), 60
    taste = torch.nn.functional.normalize(skill, dim=1)
    adjacency = ((taste @ taste.T) > 0.6).float()
    adjacency = adjacency / adjacency.sum(1, keepdim=True)
    features = skill + 0.3 * torch.randn(n, 6)

    def draw() -> Drawn:
        team, expert = torch.randint(0, n, (256,)), torch.randint(0, n, (256,))
        likely = (taste[team] * taste[expert]).sum(1)
        return (team, expert), (likely > 0).float()

    class SAGEConv(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.lin_l, self.lin_r = nn.Linear(a, b), nn.Linear(a, b, bias=False)

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            return self.lin_l(adj @ x) + self.lin_r(x)

    class GNN(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder = nn.ModuleList([SAGEConv(6, d), SAGEConv(d, d)])
            self.register_buffer("x", features)
            self.register_buffer("adj", adjacency)

        def forward(self, team: Tensor, expert: Tensor) -> Tensor:
            x: Any = self.x
            for i, conv in enumerate(self.encoder):
                x = conv(x, self.adj)
                if planted or i + 1 < len(self.encoder):
                    x = F.relu(x)
            return (x[team] * x[expert]).sum(-1)

    return stream(GNN(), draw, F.binary_cross_entropy_with_logits)


@report(
    "hypergraph with an isolated vertex",
    GITHUB + "iMoonLab/HGNN/issues/14",
    says=rf"{BROKEN}|degree|isolated|\bdivi|\binf\b",
    fault="a vertex of no hyperedge has degree 0: its inverse square root is infinite and G is full of NaN",
)
def hgnn(planted: bool) -> Task:
    """HGNN: features times G = DV^-1/2 H W DE^-1 H' DV^-1/2, two layers; the class of a vertex from its hyperedges."""
    kind = torch.randint(0, 4, (64,))
    H = torch.zeros(64, 24)
    for j in range(24):
        members = (kind == j % 4).nonzero().squeeze(1)
        H[members[torch.randperm(len(members))[:6]], j] = 1
    H[7] = 0  # the isolated one
    H[:7, 0] = 1

    def generate_g_from_h() -> Tensor:
        DV, DE = H.sum(1), H.sum(0)
        invDE, DV2 = torch.diag(DE.pow(-1)), DV.pow(-0.5)
        if not planted:
            DV2[torch.isinf(DV2)] = 0
        DV2 = torch.diag(DV2)
        return DV2 @ H @ invDE @ H.T @ DV2

    G, centers = generate_g_from_h(), torch.randn(4, 16)

    def draw() -> Drawn:
        return (centers[kind] + 2 * torch.randn(64, 16), G), kind

    class HGNNConv(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(a, b)), nn.Parameter(torch.empty(b))
            for q in self.parameters():
                nn.init.uniform_(q, -(b**-0.5), b**-0.5)

        def forward(self, x: Tensor, G: Tensor) -> Tensor:
            return G @ (x @ self.weight + self.bias)

    class HGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hgc1, self.hgc2 = HGNNConv(16, 32), HGNNConv(32, 4)

        def forward(self, x: Tensor, G: Tensor) -> Tensor:
            return self.hgc2(F.dropout(F.relu(self.hgc1(x, G)), 0.2, self.training), G)

    return stream(HGNN(), draw, F.cross_entropy)


class CategoricalDQN(nn.Module):
    """Distributions over atoms for each of three actions."""

    def __init__(self, num_atoms: int, hidden: int = 64) -> None:
        super().__init__()
        self.num_atoms = num_atoms
        self.linear1, self.linear2 = nn.Linear(6, hidden), nn.Linear(hidden, hidden)
        self.linear3 = nn.Linear(hidden, 3 * num_atoms)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        z = self.linear3(F.relu(self.linear2(F.relu(self.linear1(x)))))
        dist = F.softmax(z.view(-1, 3, self.num_atoms), dim=2)
        return dist[torch.arange(len(x)), action]


def project(dist: Tensor, Tz: Tensor, low: float, high: float, *, safe: bool) -> Tensor:
    """Project a distribution whose atoms have moved to Tz back on the support."""
    atoms = dist.shape[1]
    b = (Tz.clamp(low, high) - low) / ((high - low) / (atoms - 1))
    lower = b.floor().long()
    upper = lower + 1 if safe else b.ceil().long()
    proj = torch.zeros_like(dist)
    proj.scatter_add_(1, lower, dist * (upper.float() - b))
    return proj.scatter_add_(1, upper.clamp(max=atoms - 1), dist * (b - lower.float()))


@report(
    "holes in the projected distribution",
    GITHUB + "Curt-Park/rainbow-is-all-you-need/pull/76",
    says=r"target|\bsum|\bmass|probab|normali|distribut|\bhole",
    fault="where a moved atom falls on an atom, floor and ceil are equal and its probability is lost",
)
def holes(planted: bool) -> Task:
    """Categorical DQN: rewards are whole numbers, as the atoms 0 to 20 are; half of the transitions end the episode."""
    w, frozen, support = torch.randn(6, 3), CategoricalDQN(21).requires_grad_(False), torch.arange(21.0)

    def draw() -> Drawn:
        x, action, done = torch.randn(64, 6), torch.randint(0, 3, (64,)), (torch.rand(64, 1) < 0.5).float()
        reward = (6 + 3 * torch.tanh((x @ w).gather(1, action[:, None]))).round()
        after = torch.randn(64, 6)
        with torch.no_grad():
            next_dist = frozen(after, torch.randint(0, 3, (64,)))
        Tz = reward + (1 - done) * 0.99 * support
        both = [project(next_dist, Tz, 0, 20, safe=safe) for safe in (False, True)]
        return (x, action), torch.cat(both, 1)

    def wrong(dist: Tensor, t: Tensor) -> Tensor:
        return -(t[:, :21] * dist.clamp(min=1e-3).log()).sum(1).mean()

    def right(dist: Tensor, t: Tensor) -> Tensor:
        return -(t[:, 21:] * dist.clamp(min=1e-3).log()).sum(1).mean()

    return stream(CategoricalDQN(21), draw, wrong if planted else right, right)


@report(
    "probabilities times their returns",
    GITHUB + "higgsfield/RL-Adventure/issues/8",
    says=r"target|\bsum|negative|\bmass|probab|normali|distribut|unbounded|minus infinity",
    fault="the distribution to be projected has been multiplied by the support: the targets are no probabilities",
)
def returns_twice(planted: bool) -> Task:
    """Categorical DQN with atoms from -10 to 10; the best next action is found by the expected return."""
    w, frozen, support = torch.randn(6, 3), CategoricalDQN(51).requires_grad_(False), torch.linspace(-10, 10, 51)

    def projection_distribution(after: Tensor, reward: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            raw = torch.stack([frozen(after, torch.full((len(after),), a)) for a in range(3)], 1)
        next_dist = raw * support
        next_action = next_dist.sum(2).argmax(1)
        at = torch.arange(len(after))
        Tz = reward + (1 - done) * 0.99 * support
        wrong = project(next_dist[at, next_action], Tz, -10, 10, safe=False)
        return wrong, project(raw[at, next_action], Tz, -10, 10, safe=False)

    def draw() -> Drawn:
        x, action, done = torch.randn(64, 6), torch.randint(0, 3, (64,)), (torch.rand(64, 1) < 0.3).float()
        reward = 4 * torch.tanh((x @ w).gather(1, action[:, None]))
        return (x, action), torch.cat(projection_distribution(torch.randn(64, 6), reward, done), 1)

    def wrong(dist: Tensor, t: Tensor) -> Tensor:
        return -(t[:, :51] * dist.clamp(0.001, 0.999).log()).sum(1).mean()

    def right(dist: Tensor, t: Tensor) -> Tensor:
        return -(t[:, 51:] * dist.clamp(0.001, 0.999).log()).sum(1).mean()

    return stream(CategoricalDQN(51), draw, wrong if planted else right, right)
