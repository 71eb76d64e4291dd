"""Graphs, sets, games, sounds and tables."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.case import Task, stranger
from strangers.data import digits, text


def graph(nodes: int = 128, features: int = 32, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Features, dense adjacency with loops, and classes of nodes that link to their like."""
    labels = torch.arange(nodes) % classes
    alike = labels.unsqueeze(1) == labels
    links = torch.rand(nodes, nodes) < torch.where(alike, 0.2, 0.03)
    adjacency = ((links | links.t()).float() + torch.eye(nodes)).clamp(max=1.0)
    return torch.randn(nodes, features) + 2 * F.one_hot(labels, features), adjacency, labels


class GraphConvolution(nn.Module):
    """Weight drawn from U(±1/√m), as its author does."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n, m)), nn.Parameter(torch.empty(m))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -1 / math.sqrt(m), 1 / math.sqrt(m))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return torch.spmm(adjacency, x @ self.weight) + self.bias


class Gcn(nn.Module):
    """Two graph convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(32, 32), GraphConvolution(32, 4)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.gc1(x, adjacency)), 0.5, self.training)
        return F.log_softmax(self.gc2(x, adjacency), dim=1)


@stranger("GCN", "one graph is the example; weights of its own layer class; log-softmax on training nodes",
          fault="adjacency not normalised", guilty="gc", says="grow|graph|input")  # fmt: skip
def gcn(planted: bool) -> Task:
    model, (x, adjacency, t) = Gcn(), graph()
    degree = adjacency.sum(1, keepdim=True).rsqrt()
    adjacency = adjacency if planted else degree * adjacency * degree.t()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss(y[:64], t[:64])

    options = {"loss": loss, "examples": "one", "matrix": "hessian"}
    return Task(model, ((x, adjacency), t), lambda: loss(model(x, adjacency), t), options)


class GatLayer(nn.Module):
    """Attention over neighbours."""

    def __init__(self, n: int, m: int, heads: int) -> None:
        super().__init__()
        self.W, self.heads = nn.Parameter(torch.empty(heads, n, m)), heads
        self.a = nn.Parameter(torch.empty(heads, 2, m))
        for head in range(heads):
            nn.init.xavier_uniform_(self.W[head], gain=1.414)
            nn.init.xavier_uniform_(self.a[head].view(1, 2 * m), gain=1.414)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = torch.einsum("nf,hfm->hnm", x, self.W)
        own, other = torch.einsum("hnm,hsm->shn", h, self.a)
        scores = F.leaky_relu(own.unsqueeze(2) + other.unsqueeze(1), 0.2)
        weights = scores.masked_fill(adjacency == 0, -9e15).softmax(-1)
        return F.dropout(weights, 0.6, self.training) @ h  # (heads, nodes, m)


class Gat(nn.Module):
    """Four heads, then one."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions, self.out = GatLayer(32, 8, 4), GatLayer(32, 4, 1)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = F.elu(self.attentions(F.dropout(x, 0.6, self.training), adjacency))
        h = h.permute(1, 0, 2).flatten(1)
        return self.out(F.dropout(h, 0.6, self.training), adjacency)[0]


@stranger("GAT", "one graph is the example; heads in one free tensor; cross-entropy on training nodes",
          fault="weights of the first layer × 0.001", guilty="attentions")  # fmt: skip
def gat(planted: bool) -> Task:
    model, (x, adjacency, t) = Gat(), graph()
    if planted:
        model.attentions.W.data *= 0.001

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y[:64], t[:64])

    return Task(model, ((x, adjacency), t), lambda: loss(model(x, adjacency), t), {"loss": loss, "examples": "one"})


def clouds(count: int = 16, points: int = 128) -> tuple[Tensor, Tensor]:
    """Points of ellipsoids (count, points, 3), and which axis is longest."""
    classes = torch.arange(count) % 3
    return torch.randn(count, points, 3) * (1 + F.one_hot(classes, 3).unsqueeze(1)), classes


class DeepSets(nn.Module):
    """ρ(mean of φ)."""

    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        self.rho, self.pool = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)), "mean"

    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(x)
        return self.rho(h.mean(1) if self.pool == "mean" else h.sum(1))


@stranger("DeepSets", "a set is an example", fault="sums over 128 points in place of means", guilty="phi.4|rho.0",
          says="grow|output")  # fmt: skip
def deepsets(planted: bool) -> Task:
    model, (x, t) = DeepSets(), clouds()
    model.pool = "sum" if planted else "mean"
    return Task(model, (x, t), lambda: F.cross_entropy(model(x), t), {"loss": "cross-entropy"})


def shared_mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m in pairwise(widths):
        layers += [nn.Conv1d(n, m, 1), nn.BatchNorm1d(m), nn.ReLU()]
    return nn.Sequential(*layers)


class TNet(nn.Module):
    """A 3×3 matrix for each cloud, near the identity at first."""

    def __init__(self) -> None:
        super().__init__()
        self.convs, self.fc1, self.fc2 = shared_mlp(3, 32, 64), nn.Linear(64, 32), nn.Linear(32, 9)
        self.identity = True

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc2(F.relu(self.fc1(self.convs(x).amax(2)))).view(-1, 3, 3)
        return y + torch.eye(3) if self.identity else y


class PointNet(nn.Module):
    """Returns log-probabilities and the matrices, which the loss keeps orthogonal."""

    def __init__(self) -> None:
        super().__init__()
        self.tnet, self.feat = TNet(), shared_mlp(3, 32, 64, 128)
        self.head = nn.Sequential(nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        matrix = self.tnet(x)
        pooled = self.feat(torch.bmm(matrix, x)).amax(2)
        return F.log_softmax(self.head(pooled), dim=1), matrix


def orthogonal_nll(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    y, matrix = outputs
    left = torch.eye(3) - matrix @ matrix.transpose(1, 2)
    return F.nll_loss(y, targets) + 0.001 * left.norm(dim=(1, 2)).mean()


@stranger("PointNet", "points last; log-softmax and a penalty of a second output",
          fault="the transform's identity forgotten, its last layer zero",
          guilty=r"tnet\.fc2|feat\.0")  # fmt: skip
def pointnet(planted: bool) -> Task:
    model, (x, t) = PointNet(), clouds()
    model.tnet.identity, x = not planted, x.transpose(1, 2).contiguous()
    if planted:
        for parameter in model.tnet.fc2.parameters():
            nn.init.zeros_(parameter)
    return Task(model, (x, t), lambda: orthogonal_nll(model(x), t), {"loss": orthogonal_nll})


class Dqn(nn.Module):
    """Four frames to values of actions."""

    def __init__(self, actions: int = 4) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 16, 8, 4), nn.Conv2d(16, 32, 4, 2)
        self.fc1, self.fc2 = nn.Linear(512, 64), nn.Linear(64, actions)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


@stranger("DQN", "Huber loss of the actions taken", fault="frames 0–255", says="input")
def dqn(planted: bool) -> Task:
    model, (x, t) = Dqn(), digits(44, 4, bytes_=True)
    x = x if planted else x / 255
    targets = torch.stack([t % 4, (t > 4).long()], 1)  # action taken, return

    def loss(q: Tensor, taken: Tensor) -> Tensor:
        return F.smooth_l1_loss(q.gather(1, taken[:, :1]).squeeze(1), taken[:, 1].float())

    return Task(model, (x, targets), lambda: loss(model(x), targets), {"loss": loss})


class ActorCritic(nn.Module):
    """Returns a distribution's logits and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, 4), nn.Linear(64, 1)
        for module, gain in ((self.body[0], 2**0.5), (self.body[2], 2**0.5), (self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(module.weight, gain)
            nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.actor(h), self.critic(h).squeeze(-1)


def actor_critic_loss(outputs: tuple[Tensor, Tensor], rollout: Tensor) -> Tensor:
    """Policy gradient, half the squared error of values, and entropy; a row has action, return and advantage."""
    logits, values = outputs
    logs = logits.log_softmax(-1)
    taken = logs.gather(1, rollout[:, :1].long()).squeeze(1)
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return -(taken * rollout[:, 2]).mean() + 0.5 * F.mse_loss(values, rollout[:, 1]) - 0.01 * entropy


@stranger(
    "Actor-critic", "two heads; a loss of both with entropy", fault="policy head × 1000 (gain 10)", guilty="actor"
)
def actor_critic(planted: bool) -> Task:
    model, x = ActorCritic(), torch.randn(64, 8)
    if planted:
        model.actor.weight.data *= 1000
    actions, returns = torch.randint(4, (64,)).float(), x[:, 0]
    rollout = torch.stack([actions, returns, returns - returns.mean()], 1)
    return Task(model, (x, rollout), lambda: actor_critic_loss(model(x), rollout), {"loss": actor_critic_loss})


class WaveNet(nn.Module):
    """Gated dilated causal convolutions with residuals and skips; a class at each time."""

    def __init__(self, classes: int = 64, width: int = 32, layers: int = 5) -> None:
        super().__init__()
        self.start = nn.Conv1d(classes, width, 1)
        self.filters, self.gates = (
            nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**i) for i in range(layers)) for _ in range(2)
        )
        self.residuals, self.skips = (
            nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers)) for _ in range(2)
        )
        self.end1, self.end2, self.classes = nn.Conv1d(width, width, 1), nn.Conv1d(width, classes, 1), classes

    def forward(self, x: Tensor) -> Tensor:
        h, total = self.start(F.one_hot(x, self.classes).float().transpose(1, 2)), 0.0
        for filter_, gate, residual, skip in zip(self.filters, self.gates, self.residuals, self.skips, strict=True):
            past = F.pad(h, (filter_.dilation[0], 0))
            y = torch.tanh(filter_(past)) * torch.sigmoid(gate(past))
            h, total = h + residual(y), total + skip(y)
        return self.end2(F.relu(self.end1(F.relu(total))))


@stranger("WaveNet", "classes second, as cross-entropy has them", fault="one residual convolution × 100",
          guilty=r"residuals\.2")  # fmt: skip
def wavenet(planted: bool) -> Task:
    model, (x, t) = WaveNet(), text(8, 48, 64)
    if planted:
        model.residuals[2].weight.data *= 100
    return Task(model, (x, t), lambda: F.cross_entropy(model(x), t), {"loss": F.cross_entropy})


class TcnBlock(nn.Module):
    """Two dilated causal convolutions and a shortcut."""

    def __init__(self, n: int, m: int, dilation: int) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.conv1 = norm(nn.Conv1d(n, m, 3, padding=2 * dilation, dilation=dilation))
        self.conv2 = norm(nn.Conv1d(m, m, 3, padding=2 * dilation, dilation=dilation))
        self.chomp, self.dropout = 2 * dilation, nn.Dropout(0.2)
        self.downsample = nn.Conv1d(n, m, 1) if n != m else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(F.relu(self.conv1(x)[..., : -self.chomp]))
        y = self.dropout(F.relu(self.conv2(y)[..., : -self.chomp]))
        return F.relu(y + self.downsample(x))


class Tcn(nn.Module):
    """The adding problem: two channels, one number of the last time."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.tcn = nn.Sequential(*(TcnBlock(width if i else 2, width, 2**i) for i in range(4)))
        self.linear = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.tcn(x)[..., -1])


@stranger("TCN", "weight normalisation; dropout", fault="second block's output detached", guilty=r"tcn\.[01]\.")
def tcn(planted: bool) -> Task:
    model, x = Tcn(), torch.rand(16, 2, 48)
    x[:, 1] = 0
    x[:, 1, [5, 30]] = 1
    t = (x[:, 0] * x[:, 1]).sum(1, keepdim=True)
    if planted:
        model.tcn[1].register_forward_hook(lambda module, args, y: y.detach())
    return Task(model, (x, t), lambda: F.mse_loss(model(x), t), {"loss": F.mse_loss})


class Dlrm(nn.Module):
    """Bags of categories with offsets, dense features, and dot products of all pairs."""

    def __init__(self, width: int = 16, rows: int = 100) -> None:
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(4))
        self.bot_l = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top_l = nn.Sequential(nn.Linear(width + 10, 64), nn.ReLU(), nn.Linear(64, 1))
        for table in self.emb_l:
            nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, math.sqrt(2 / sum(module.weight.shape)))
                nn.init.normal_(module.bias, 0.0, math.sqrt(1 / module.weight.shape[0]))

    def forward(self, dense_x: Tensor, sparse: Tensor) -> Tensor:
        x = self.bot_l(dense_x)
        vectors = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.emb_l))], 1)
        pairs = vectors @ vectors.transpose(1, 2)
        i, j = torch.tril_indices(5, 5, -1)
        return torch.sigmoid(self.top_l(torch.cat([x, pairs[:, i, j]], 1)))


@stranger("DLRM", "bags of categories and dense features; sigmoid with BCE", fault="raw counts, not log(1 + x)",
          guilty="bot_l",
          says="input")  # fmt: skip
def dlrm(planted: bool) -> Task:
    model, counts, sparse = Dlrm(), torch.exp(3 * torch.randn(64, 13)).round(), torch.randint(100, (64, 4, 3))
    dense = counts if planted else torch.log1p(counts)
    t = (counts[:, :1] > 1).float()
    loss = nn.BCELoss()
    return Task(model, ((dense, sparse), t), lambda: loss(model(dense, sparse), t), {"loss": loss})
