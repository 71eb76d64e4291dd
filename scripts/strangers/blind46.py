"""A forty-sixth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
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
    "observation nodes seeded with zeros",
    GITHUB + "openclimatefix/graph_weather/issues/3",
    guilty=r"decoder|node_encoder",
    says=rf"{SAME}|zeros?\b.*input|input.*(zero|unused)|unused|never used|not used",
    fault="the decoder's observation nodes are zeros in place of the encoder's features of each observation",
)
def graph_weather(planted: bool) -> Task:
    """Observations in cells of a ring: the encoder gathers them per cell, the decoder moves each from its cell."""
    obs, cells, d = 24, 6, 24
    cell = torch.arange(obs) % cells
    gather = F.one_hot(cell, cells).float().t() / (obs / cells)

    def draw() -> Drawn:
        x = torch.randn(32, obs, 3)
        wide = (gather @ x)[:, cell, :1]
        return (x,), x[..., :1] + torch.tanh(2 * x[..., 1:2] * x[..., :1]) + wide

    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.node_encoder = chain(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d), nn.LayerNorm(d))
            self.processor = nn.ModuleList(chain(nn.Linear(3 * d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(2))
            self.edge_decoder = chain(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d), nn.LayerNorm(d))
            self.node_decoder = chain(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))

        def forward(self, features: Tensor) -> Tensor:
            nodes = self.node_encoder(features)
            h = gather @ nodes
            for block in self.processor:
                h = h + block(torch.cat([h, h.roll(1, 1), h.roll(-1, 1)], 2))
            seed = torch.zeros_like(nodes) if planted else nodes
            message = self.edge_decoder(torch.cat([seed, h[:, cell]], 2))
            return features[..., :1] + self.node_decoder(torch.cat([seed, message], 2))

    return stream(Forecaster(), draw, F.mse_loss)


@report(
    "silhouette masked after the antialiasing",
    GITHUB + "NVlabs/nvdiffrast/issues/14",
    guilty=r"body|vertices",
    says=rf"{CUT}|differentiable|step function|threshold|flat",
    fault="the antialiased picture is multiplied by the point-sampled coverage, which leaves no gradient of position",
)
def nvdiffrast(planted: bool) -> Task:
    size = 16
    rows, columns = torch.meshgrid(torch.arange(size) + 0.5, torch.arange(size) + 0.5, indexing="ij")

    def rasterize(pos: Tensor) -> tuple[Tensor, Tensor]:
        """Signed distance of each pixel to a disc (row, column, radius), and which pixels it covers."""
        a, b, r = (each[:, None, None] for each in pos.unbind(1))
        away = ((rows - a) ** 2 + (columns - b) ** 2 + 1e-6).sqrt() - r
        return away, (away < 0).float()

    def antialias(color: Tensor, away: Tensor) -> Tensor:
        return torch.where(away < 0, color, 2 * torch.sigmoid(-away))

    def draw() -> Drawn:
        pos = torch.cat([4 + 8 * torch.rand(48, 2), 2 + 3 * torch.rand(48, 1)], 1)
        away, _ = rasterize(pos)
        alpha = antialias(torch.ones_like(away), away)
        return ((alpha + 0.1 * torch.randn_like(alpha)).unsqueeze(1),), alpha

    class Fit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(), nn.Flatten())
            self.vertices = nn.Linear(384, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.vertices(self.body(x))
            away, mask = rasterize(torch.cat([8 + 4 * y[:, :2], 3.5 + y[:, 2:]], 1))
            color = antialias(torch.ones_like(away), away)
            return color * mask if planted else color

    return stream(Fit(), draw, F.mse_loss)


class ForegroundMask(torch.autograd.Function):
    """The renderer's picture of a foreground mask, without its gradient."""

    @staticmethod
    def forward(ctx: Any, heights: Tensor, rows: Tensor) -> Tensor:
        ctx.shape = heights.shape
        return torch.sigmoid(2 * (heights.unsqueeze(1) - rows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return torch.zeros(ctx.shape), None


@report(
    "renderer without gradients in its mask mode",
    GITHUB + "ayushtewari/GVV-Differentiable-CUDA-Renderer/issues/2",
    guilty=r"encoder|vertex",
    says=rf"{CUT}|backward|differentiable",
    fault="the renderer's backward pass of the foreground mask is missing: the vertex positions get zeros",
)
def gvv(planted: bool) -> Task:
    """A profile of twelve vertices over columns, fitted by the mask below it."""
    rows = torch.arange(12.0).view(1, 12, 1)

    def draw() -> Drawn:
        phase, size = 6.3 * torch.rand(48, 1), 1 + 3 * torch.rand(48, 1)
        heights = 6 + size * torch.sin(torch.arange(12.0) / 2 + phase)
        mask = torch.sigmoid(2 * (heights.unsqueeze(1) - rows))
        return (mask + 0.2 * torch.randn_like(mask),), mask

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(144, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
            self.vertex_pos = nn.Linear(64, 12)

        def forward(self, x: Tensor) -> Tensor:
            heights = 6 + 3 * self.vertex_pos(self.encoder(x))
            if planted:
                return ForegroundMask.apply(heights, rows)
            return torch.sigmoid(2 * (heights.unsqueeze(1) - rows))

    return stream(Network(), draw, F.mse_loss)


@report(
    "relation module outside classical training",
    GITHUB + "sicara/easy-few-shot-learning/issues/142",
    guilty=r"relation_module",
    says=rf"{CUT}|unused|not used|never (used|trained)",
    fault="the network is trained as a classifier, so that the relation module, which judges pairs, is never trained",
)
def relation(planted: bool) -> Task:
    """Five ways, five shots, five queries each; the relation scores should be 1 for the right prototype."""
    images, classes = _digits()
    where = [(classes == c).nonzero()[:, 0] for c in range(10)]
    local = torch.arange(5).repeat_interleave(5)

    def draw() -> Drawn:
        ways = torch.randperm(10)[:5]
        chosen = torch.stack([where[c][torch.randint(len(where[c]), (10,))] for c in ways.tolist()])
        x = (images[chosen] - 0.3) / 0.376
        both = torch.cat([ways.repeat_interleave(5)] * 2)
        return (x[:, :5].flatten(0, 1), x[:, 5:].flatten(0, 1)), both

    class RelationNetworks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            )  # fmt: skip
            self.relation_module = chain(
                nn.Conv2d(64, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid(),
            )  # fmt: skip
            self.fc = nn.Linear(32, 10) if planted else None

        def forward(self, support: Tensor, query: Tensor) -> Any:
            z = self.backbone(torch.cat([support, query]))
            prototypes = z[:25].unflatten(0, (5, 5)).mean(1)
            pairs = torch.cat([prototypes.expand(25, -1, -1, -1, -1), z[25:].unsqueeze(1).expand(-1, 5, -1, -1, -1)], 2)
            scores = self.relation_module(pairs.flatten(0, 1)).view(25, 5)
            return scores, self.fc(z.mean((2, 3))) if self.fc is not None else None

    def episodic(y: Any, _: Tensor) -> Tensor:
        return F.mse_loss(y[0], F.one_hot(local, 5).float())

    def classical(y: Any, t: Tensor) -> Tensor:
        return F.cross_entropy(y[1], t)

    return stream(RelationNetworks(), draw, classical if planted else episodic, episodic)


@report(
    "ReLU in place of the sigmoid, weights of N(0, 1)",
    GITHUB + "MichalDanielDobrzanski/DeepLearningPython/issues/13",
    guilty=r"weight",
    says=r"init|too large|large.*(output|weight|loss)|explod|dead|relu|scale|grow",
    fault="weights and biases of N(0, 1), made for sigmoids, in a network of ReLUs, the output's included",
)
def network_relu(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        x = F.interpolate(x * 0.376 + 0.3, size=(28, 28), mode="bilinear").clamp(min=0)
        return (x.flatten(1),), F.one_hot(c, 10).float()

    class Network(nn.Module):
        def __init__(self, sizes: tuple[int, ...] = (784, 30, 10)) -> None:
            super().__init__()
            scale = 1.0 if planted else 0.1
            self.weights = nn.ParameterList(scale * torch.randn(y, x) for x, y in pairwise(sizes))
            self.biases = nn.ParameterList(scale * torch.randn(y) for y in sizes[1:])

        def forward(self, a: Tensor) -> Tensor:
            for w, b in zip(self.weights, self.biases, strict=True):
                a = F.relu(F.linear(a, w, b))
            return a

    def cost(y: Tensor, t: Tensor) -> Tensor:
        return 0.5 * ((y - t) ** 2).sum(1).mean()

    return stream(Network(), draw, cost)


@report(
    "tanh over a continuous target",
    GITHUB + "UC-IIC2613/Syllabus/issues/208",
    guilty=r"^(4|model\.4)\.",
    says=r"tanh|range|bounded|saturat|targets?.*(outside|beyond|reach|large|scale)",
    fault="a tanh after the last layer of a regression, whose targets lie outside (-1, 1)",
)
def last_tanh(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (x,), 4 + 2 * (x[:, :1] + torch.sin(2 * x[:, 1:2]) + 0.5 * x[:, 2:3] * x[:, 3:4])

    layers = [nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)]
    return stream(chain(*layers, *([nn.Tanh()] if planted else [])), draw, F.mse_loss)


@report(
    "decoder embeddings behind a stopped gradient",
    GITHUB + "tensorflow/tensorflow/pull/882",
    guilty=r"decoder_embedding",
    says=rf"{CUT}|frozen|never trained",
    fault="with feed_previous the embedded argmax passes a stop_gradient: the decoder's embeddings stay random",
)
def feed_previous(planted: bool) -> Task:
    """Say a sequence backwards; the decoder reads its own last symbol."""

    def draw() -> Drawn:
        x = torch.randint(12, (64, 5))
        return (x,), x.flip(1)

    class EmbeddingSeq2Seq(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.encoder_embedding, self.decoder_embedding = nn.Embedding(12, 24), nn.Embedding(13, 24)
            self.encoder, self.cell = nn.GRU(24, d, batch_first=True), nn.GRUCell(24, d)
            self.projection = nn.Linear(d, 12)

        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(self.encoder_embedding(x))[1][0]
            prev = torch.full((len(x),), 12)
            outputs = []
            for _ in range(x.shape[1]):
                emb_prev = self.decoder_embedding(prev)
                h = self.cell(emb_prev.detach() if planted else emb_prev, h)
                outputs.append(self.projection(h))
                prev = outputs[-1].argmax(1)
            return torch.stack(outputs, 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(EmbeddingSeq2Seq(), draw, loss)
