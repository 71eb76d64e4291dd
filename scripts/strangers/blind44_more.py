"""More of the forty-fourth set of faults, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind44")


@report(
    "EGNN sums coordinates without bound",
    GITHUB + "lucidrains/egnn-pytorch/issues/7",
    guilty=r"coors_mlp|edge_mlp",
    says=rf"{BROKEN}|explod|grow|coordinate|larger? (and larger|from layer)|scale",
    fault="each layer adds an unbounded weighted sum of relative coordinates of all nodes to the coordinates",
)
def egnn(planted: bool) -> Task:
    """Denoise a helix of 24 nodes in four layers."""
    at = 0.5 * torch.arange(24)
    helix = torch.stack([at.cos(), at.sin(), 0.25 * at - 1.4], 1)

    def draw() -> Drawn:
        x = helix.expand(8, 24, 3) @ torch.linalg.qr(torch.randn(8, 3, 3))[0]
        return (x + 0.5 * torch.randn(8, 24, 3),), x

    class EGNN(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.edge_mlp = chain(nn.Linear(2 * d + 1, 32), nn.SiLU(), nn.Linear(32, 16), nn.SiLU())
            self.node_mlp = chain(nn.Linear(d + 16, 32), nn.SiLU(), nn.Linear(32, d))
            self.coors_mlp = chain(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 1))
            self.scale = None if planted else nn.Parameter(torch.tensor(1e-2))

        def forward(self, feats: Tensor, coors: Tensor) -> tuple[Tensor, Tensor]:
            rel = coors.unsqueeze(2) - coors.unsqueeze(1)
            dist, n = rel.square().sum(-1, keepdim=True), coors.shape[1]
            i, j = feats.unsqueeze(2).expand(-1, -1, n, -1), feats.unsqueeze(1).expand(-1, n, -1, -1)
            m_ij = self.edge_mlp(torch.cat([i, j, dist], -1))
            if self.scale is not None:
                rel = rel / (dist + 1e-8).sqrt() * self.scale
            coors = coors + (self.coors_mlp(m_ij) * rel).sum(2)
            return feats + self.node_mlp(torch.cat([feats, m_ij.sum(2)], -1)), coors

    def run(m: Any, coors: Tensor) -> Tensor:
        feats = m.token.expand(len(coors), -1, -1)
        for layer in m.layers:
            feats, coors = layer(feats, coors)
        return coors

    layers = nn.ModuleList(EGNN() for _ in range(4))
    return stream(Parts(run, token=nn.Parameter(torch.randn(24, 16)), layers=layers), draw, F.mse_loss)


@report(
    "EGNNConv of nodes at one place",
    GITHUB + "dmlc/dgl/issues/7271",
    says=rf"{BROKEN}|sqrt|square root|zero|distance|norm",
    fault="distances of nodes with equal coordinates go through a square root at zero",
)
def egnn_conv(planted: bool) -> Task:
    """Ten nodes in a ring, all at the origin; one layer applied three times."""
    src = torch.cat([torch.arange(10), torch.arange(10)])
    dst = torch.cat([(torch.arange(10) + 1) % 10, (torch.arange(10) - 1) % 10])

    def draw() -> Drawn:
        h = torch.randn(16, 10, 16)
        return (h, torch.zeros(16, 10, 3)), (h.roll(1, 1) + h.roll(-1, 1))[..., :4]

    def run(m: Any, h: Tensor, x: Tensor) -> Tensor:
        for _ in range(3):
            x_diff = x[:, src] - x[:, dst]
            radial = x_diff.square().sum(-1, keepdim=True)
            x_diff = x_diff / (radial.sqrt() + 1e-30 if planted else (radial + 1e-8).sqrt())
            msg_h = m.edge_mlp(torch.cat([h[:, src], h[:, dst], radial], -1))
            msg_x = m.coord_mlp(msg_h) * x_diff
            h_neigh = torch.zeros(*h.shape[:2], 16).index_add(1, dst, msg_h)
            h = m.node_mlp(torch.cat([h, h_neigh], -1))
            x = x + torch.zeros_like(x).index_add(1, dst, msg_x) / 2
        return m.out(h)

    edge_mlp = chain(nn.Linear(33, 32), nn.SiLU(), nn.Linear(32, 16), nn.SiLU())
    node_mlp = chain(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 16))
    coord_mlp = chain(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1, bias=False))
    model = Parts(run, edge_mlp=edge_mlp, node_mlp=node_mlp, coord_mlp=coord_mlp, out=nn.Linear(16, 4))
    return stream(model, draw, F.mse_loss)


@report(
    "nussl SI-SDR of silence",
    GITHUB + "nussl/nussl/pull/169",
    says=rf"{BROKEN}|log|zero|silen|eps",
    fault="the logarithm of the signal-to-distortion ratio has no epsilon: a silent source gives log(0)",
)
def nussl(planted: bool) -> Task:
    """Extract a slow wave out of a mixture with a fast one; in some examples there is no slow wave."""

    def draw() -> Drawn:
        time, f = torch.arange(64.0), 0.1 + 0.1 * torch.rand(24, 1)
        slow = torch.sin(f * time + 6.3 * torch.rand(24, 1))
        slow[::8] = 0
        fast = torch.sin((1 + torch.rand(24, 1)) * time + 6.3 * torch.rand(24, 1))
        return ((slow + fast).unsqueeze(1),), slow

    def loss(y: Tensor, t: Tensor, eps: float = 1e-8) -> Tensor:
        scale = (y * t).sum(1, keepdim=True) / (t.square().sum(1, keepdim=True) + eps)
        e_true = scale * t
        ratio = e_true.square().sum(1) / ((y - e_true).square().sum(1) + eps)
        return -(10 * torch.log10(ratio if planted else ratio + 1e-4)).mean()

    encoder = chain(nn.Conv1d(1, 32, 9, padding=4), nn.ReLU(), nn.Conv1d(32, 32, 9, padding=4), nn.ReLU())
    model = Parts(lambda m, x: m.decoder(m.encoder(x)).squeeze(1), encoder=encoder,
                  decoder=nn.Conv1d(32, 1, 9, padding=4))  # fmt: skip
    return stream(model, draw, loss)
