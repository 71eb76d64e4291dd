"""A fortieth set of faults, a sample of reports that issues tell, written without sight of the rules."""

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

report = partial(any_report, blind="blind40")


@report(
    "HyPINO's two zero factors",
    GITHUB + "wandb/senpai/pull/2385",
    guilty=r"hyper",
    says=r"zero.*(init|gradient|weight)|no gradient|gradient.*zero|never (train|update|learn)",
    fault="the hypernetwork's factors U and V both start at zero: neither gets a gradient, the correction stays zero",
)
def hypino(planted: bool) -> Task:
    """A surrogate of a flow: nodes with flow parameters; the refinement head's weights get low-rank corrections."""
    mix = torch.randn(3, 6)

    def draw() -> Drawn:
        x, cond = torch.randn(24, 16, 6), torch.randn(24, 3)
        wave = torch.sin((x * (cond @ mix).unsqueeze(1)).sum(2, keepdim=True))
        return (x, cond), torch.cat([wave, (x[..., :1] * cond[:, None, :1])], 2)

    class HyperSRF(nn.Module):
        def __init__(self, d: int = 48, rank: int = 4) -> None:
            super().__init__()
            self.backbone = chain(nn.Linear(9, d), nn.GELU(), nn.Linear(d, d), nn.GELU())
            self.srf, self.out = nn.Linear(d, d), nn.Linear(d, 2)
            self.hyper = chain(nn.Linear(3, 32), nn.GELU())
            self.hyper_u, self.hyper_v = nn.Linear(32, d * rank), nn.Linear(32, d * rank)
            self.d, self.rank = d, rank
            for layer in (self.hyper_u, self.hyper_v):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
            if not planted:
                nn.init.normal_(self.hyper_v.weight, 0.0, 0.01)
                nn.init.normal_(self.hyper_v.bias, 0.0, 0.01)

        def forward(self, x: Tensor, cond: Tensor) -> Tensor:
            h = self.backbone(torch.cat([x, cond.unsqueeze(1).expand(-1, x.shape[1], -1)], 2))
            code = self.hyper(cond)
            u, v = self.hyper_u(code).view(-1, self.d, self.rank), self.hyper_v(code).view(-1, self.d, self.rank)
            return self.out(F.gelu(self.srf(h) + (h @ v) @ u.mT))

    return stream(HyperSRF(), draw, F.mse_loss)


@report(
    "LaneNet sees one lane",
    GITHUB + "klintan/pytorch-lanenet/issues/22",
    says=r"collapse|push|apart|dist_?loss|one (lane|instance|label|class)|single|trivial|only one|same (label|target)",
    fault="the instance target is one-hot of lane or not: with one lane the loss never pushes lanes apart",
)
def lanenet(planted: bool) -> Task:  # noqa: C901
    """Embeddings of pixels; the discriminative loss pulls them to their lane's mean and pushes the means apart."""

    def draw() -> Drawn:
        t = torch.zeros(8, 16, 16, dtype=torch.long)
        rows = torch.arange(16)
        for i in range(8):
            for lane in range(3):
                at = 1 + 5 * lane + 2.5 * torch.rand(()) + (0.2 * torch.randn(())) * (rows - 8) / 4
                t[i, rows, at.long().clamp(0, 15)] = lane + 1
        return ((t > 0).float().unsqueeze(1) + 0.1 * torch.randn(8, 1, 16, 16),), t

    def discriminative(y: Tensor, t: Tensor, delta_var: float = 0.5, delta_dist: float = 1.5) -> Tensor:
        var_loss, dist_loss, reg_loss = y.new_zeros(()), y.new_zeros(()), y.new_zeros(())
        for embedding, seg in zip(y, t, strict=True):
            labels = seg.unique()
            labels = labels[labels != 0]
            num_lanes = len(labels)
            means = []
            for lane in labels:
                e = embedding[:, seg == lane]
                mean = e.mean(1)
                means.append(mean)
                pull = F.relu(((e - mean.unsqueeze(1)) ** 2).sum(0).add(1e-12).sqrt() - delta_var)
                var_loss = var_loss + (pull**2).mean() / num_lanes
            centroid = torch.stack(means)
            if num_lanes > 1:
                far = (((centroid.unsqueeze(1) - centroid.unsqueeze(0)) ** 2).sum(2) + 1e-12).sqrt()
                far = far + torch.eye(num_lanes) * delta_dist
                dist_loss = dist_loss + (F.relu(-far + delta_dist) ** 2).sum() / (num_lanes * (num_lanes - 1)) / 2
            reg_loss = reg_loss + centroid.norm(dim=1).mean()
        return (var_loss + dist_loss + 0.001 * reg_loss) / len(y)

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return discriminative(y, (t > 0).long() if planted else t)

    class LaneNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(3, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=2, dilation=2),
                nn.BatchNorm2d(16),
                nn.ReLU(),
            )
            self.pixel_layer = nn.Conv2d(16, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            at = torch.linspace(-1, 1, 16)
            grid = torch.stack([at.view(1, 16).expand(16, 16), at.view(16, 1).expand(16, 16)])
            return self.pixel_layer(self.encoder(torch.cat([x, grid.expand(len(x), 2, 16, 16)], 1)))

    return stream(LaneNet(), draw, wrong, discriminative)


@report(
    "layer norm forgets the atom count",
    GITHUB + "pgniewko/gt-pyg/issues/110",
    guilty=r"readout_norm",
    says=r"norm.*(scale|size|magnitude|count|length|remov)|(scale|size|magnitude|count).*(lost|remov|discard)",
    fault="a LayerNorm after the sum over atoms removes the scale, which carries the number of atoms",
)
def gt_pyg(planted: bool) -> Task:
    """Molecules of 4 to 20 atoms; LogD and the like grow with their size."""
    worth = 0.3 + 0.2 * torch.randn(6)

    def draw() -> Drawn:
        n = torch.randint(4, 21, (32,))
        kind = torch.randint(6, (32, 20))
        mask = (torch.arange(20) < n.unsqueeze(1)).float()
        t = (worth[kind] * mask).sum(1, keepdim=True)
        return (kind, mask), (t - 3.6) / 1.6

    class GTConv(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.ffn = chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, 2)
            scores = (q @ k.mT / math.sqrt(q.shape[2])).masked_fill(mask.unsqueeze(1) == 0, -1e9)
            x = self.norm1(x + self.proj(scores.softmax(2) @ v))
            return self.norm2(x + self.ffn(x))

    class GraphTransformerNet(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.node_emb = nn.Embedding(6, d)
            self.gt_layers = nn.ModuleList([GTConv(d), GTConv(d)])
            self.readout_norm = nn.LayerNorm(d) if planted else nn.Identity()
            self.head = chain(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

        def forward(self, kind: Tensor, mask: Tensor) -> Tensor:
            h = self.node_emb(kind)
            for layer in self.gt_layers:
                h = layer(h, mask)
            g = (h * mask.unsqueeze(2)).sum(1)
            return self.head(self.readout_norm(g))

    return stream(GraphTransformerNet(), draw, F.mse_loss)


@report(
    "SchNet's raw energies",
    GITHUB + "atomistic-machine-learning/schnetpack/issues/336",
    says=r"target.*(large|scale|normal|standard|mean|offset|range|far)|(loss|outputs?).*(large|huge|small|scale|far)",
    fault="several properties, not standardised by mean and deviation: the loss is of the order of 1e8",
)
def schnet(planted: bool) -> Task:
    """Atoms of five kinds; energies in thousands beside smaller properties; sums over atoms."""
    kinds = torch.tensor([13.6, 1035.0, 1488.0, 2043.0, 2713.0])
    mean, std = torch.tensor([-11500.0, 40.0]), torch.tensor([2300.0, 8.0])

    def draw() -> Drawn:
        z, r = torch.randint(5, (16, 8)), 1.5 * torch.randn(16, 8, 3)
        far = (r.unsqueeze(2) - r.unsqueeze(1)).norm(dim=3)
        energy = -kinds[z].sum(1) + 5 * torch.exp(-far).sum((1, 2))
        return (z, r), torch.stack([energy, 10 * far.mean((1, 2)) + 2 * z.float().sum(1) - 1], 1)

    class SchNet(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, d)
            self.filter = chain(nn.Linear(12, d), nn.Softplus(), nn.Linear(d, d))
            self.in2f, self.f2out = nn.Linear(d, d, bias=False), chain(nn.Linear(d, d), nn.Softplus(), nn.Linear(d, d))
            self.outnet = chain(nn.Linear(d, d // 2), nn.Softplus(), nn.Linear(d // 2, 2))

        def forward(self, z: Tensor, r: Tensor) -> Tensor:
            far = ((r.unsqueeze(2) - r.unsqueeze(1)) ** 2).sum(3).add(1e-6).sqrt()
            basis = torch.exp(-4 * (far.unsqueeze(3) - torch.linspace(0, 5, 12)) ** 2)
            x = self.embedding(z)
            x = x + self.f2out((self.filter(basis) * self.in2f(x).unsqueeze(1)).sum(2))
            y = self.outnet(x)
            if not planted:
                y = y * std + mean / 8
            return y.sum(1)

    return stream(SchNet(), draw, F.mse_loss)


@report(
    "hypernetwork of Xavier weights",
    GITHUB + "AUTOMATIC1111/stable-diffusion-webui/issues/4350",
    guilty=r"hyper",
    says=r"init|residual|branch|swamp|drown|large",
    fault="the hypernetwork's residual branch is initialised by Xavier, not N(0, 0.01): it ruins the context at once",
)
def webui(planted: bool) -> Task:
    """Keys and values of a frozen cross attention come of context + hypernetwork(context)."""
    d = 32
    shift = torch.randn(d, d) / math.sqrt(d)

    class HypernetworkModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = chain(nn.Linear(d, 2 * d), nn.Linear(2 * d, d))
            for layer in self.linear:
                if isinstance(layer, nn.Linear):
                    if planted:
                        nn.init.xavier_normal_(layer.weight)
                    else:
                        nn.init.normal_(layer.weight, 0.0, 0.01)
                    nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear(x)

    class CrossAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_q, self.to_k, self.to_v = (nn.Linear(d, d, bias=False) for _ in range(3))
            self.to_out = nn.Linear(d, d)
            self.requires_grad_(False)
            self.hyper_k, self.hyper_v = HypernetworkModule(), HypernetworkModule()

        def attend(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = 6 * self.to_q(x) @ self.to_k(k).mT / math.sqrt(d)
            return self.to_out(3 * scores.softmax(2) @ self.to_v(v))

        def forward(self, x: Tensor, context: Tensor) -> Tensor:
            return self.attend(x, self.hyper_k(context), self.hyper_v(context))

    model = CrossAttention()

    def draw() -> Drawn:
        x, context = torch.randn(16, 12, d), torch.randn(16, 8, d)
        with torch.no_grad():
            wanted = context + 0.3 * context @ shift
            return (x, context), model.attend(x, wanted, wanted)

    return stream(model, draw, F.mse_loss)


@report(
    "VAE's last ReLU",
    GITHUB + "yzhao062/pyod/issues/651",
    guilty=r"decoder",
    says=r"relu|negative|non-?negative|below zero|below 0",
    fault="a ReLU ends the decoder, while the inputs are standardised and half of them negative",
)
def pyod(planted: bool) -> Task:
    mix = torch.randn(3, 10)

    def draw() -> Drawn:
        x = (torch.randn(64, 3) @ mix + 0.1 * torch.randn(64, 10)) / math.sqrt(3)
        return (x,), x

    class VAEModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.encoder_mu, self.encoder_logvar = nn.Linear(32, 4), nn.Linear(32, 4)
            last: list[nn.Module] = [nn.ReLU()] if planted else []
            self.decoder = chain(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10), *last)

        def forward(self, x: Tensor) -> Any:
            h = self.encoder(x)
            mu, logvar = self.encoder_mu(h), self.encoder_logvar(h)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return self.decoder(z), mu, logvar

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, mu, logvar = y
        kld = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        return F.mse_loss(recon, x, reduction="none").sum(1).mean() + 0.1 * kld

    return stream(VAEModel(), draw, loss)


@report(
    "C51's vanishing mass",
    GITHUB + "floringogianu/categorical-dqn/pull/2",
    says=r"target.*(zero|sum|mass|empty|distribut|probab)|mass|examples?.*(zero|no|without) (loss|gradient|effect)",
    fault="where the projected atom falls on an integer, u - b and b - l are both 0: the target distribution is empty",
)
def c51(planted: bool) -> Task:
    """Rewards are integers, most transitions terminal; atoms at -10, ..., 10."""
    atoms, v_min, v_max = 21, -10.0, 10.0
    support = torch.linspace(v_min, v_max, atoms)
    want = torch.randn(6, 3)
    target_net = chain(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, atoms)).requires_grad_(False)

    def draw() -> Drawn:
        x, action, x2 = torch.randn(64, 6), torch.randint(3, (64,)), torch.randn(64, 6)
        reward = (2 * (x @ want)[torch.arange(64), action]).clamp(-8, 8).round()
        mask = (torch.rand(64) < 0.2).float()
        return (x,), torch.cat([torch.stack([action.float(), reward, mask], 1), target_net(x2).softmax(1)], 1)

    def cross(y: Tensor, t: Tensor, *, fixed: bool) -> Tensor:
        action, reward, mask, qa_probs = t[:, 0].long(), t[:, 1:2], t[:, 2:3], t[:, 3:]
        bellman_op = (reward + 0.99 * mask * support).clamp(v_min, v_max)
        b = (bellman_op - v_min) / ((v_max - v_min) / (atoms - 1))
        low, up = b.floor().long(), b.ceil().long()
        if fixed:  # fix disappearing probability mass
            low = torch.where((up > 0) & (low == up), low - 1, low)
            up = torch.where((low < atoms - 1) & (low == up), up + 1, up)
        m = torch.zeros_like(qa_probs)
        m.scatter_add_(1, low, qa_probs * (up.float() - b))
        m.scatter_add_(1, up, qa_probs * (b - low.float()))
        logp = y.view(-1, 3, atoms)[torch.arange(len(y)), action].log_softmax(1)
        return -(m * logp).sum(1).mean()

    net = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3 * atoms))
    right = partial(cross, fixed=True)
    return stream(net, draw, partial(cross, fixed=not planted), right)


@report(
    "time of 0 to 1 in a DiT",
    GITHUB + "ArchiMickey/Just-a-DiT/pull/9",
    guilty=r"t_embedder",
    says=r"time|embedding.*(constant|alike|same|vary)|constant|frequen|inputs?.*(small|range|scale|no effect)",
    fault="flow matching's times lie in 0 to 1, the sinusoidal embedding has periods up to 10000: almost constant",
)
def dit(planted: bool) -> Task:
    """Velocities x1 - x0 on the way from noise to digits, a block modulated by the embedding of the time."""

    def draw() -> Drawn:
        x1 = pick(64)[0].flatten(1)
        x0, t = torch.randn_like(x1), torch.rand(64)
        return ((1 - t[:, None]) * x0 + t[:, None] * x1, t), x1 - x0

    class TimestepEmbedder(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.mlp = chain(nn.Linear(64, d), nn.SiLU(), nn.Linear(d, d))

        def forward(self, t: Tensor) -> Tensor:
            freqs = torch.exp(-math.log(10000) * torch.arange(32) / 32)
            args = (t if planted else 1000 * t)[:, None] * freqs
            return self.mlp(torch.cat([args.cos(), args.sin()], 1))

    class DiTBlock(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(d, elementwise_affine=False)
            self.fc1, self.fc2, self.adaLN = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.Linear(d, 3 * d)
            nn.init.zeros_(self.adaLN.weight)
            nn.init.zeros_(self.adaLN.bias)

        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            shift, scale, gate = self.adaLN(F.silu(c)).chunk(3, 1)
            return x + gate * self.fc2(F.gelu(self.fc1(self.norm(x) * (1 + scale) + shift)))

    class DiT(nn.Module):
        def __init__(self, d: int = 96) -> None:
            super().__init__()
            self.x_embedder, self.t_embedder = nn.Linear(64, d), TimestepEmbedder(d)
            self.blocks = nn.ModuleList(DiTBlock(d) for _ in range(3))
            self.final_layer = nn.Linear(d, 64)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            x, c = self.x_embedder(x), self.t_embedder(t)
            for block in self.blocks:
                x = block(x, c)
            return self.final_layer(x)

    return stream(DiT(), draw, F.mse_loss)


@report(
    "auraloss of a silent target",
    GITHUB + "csteinmetz1/auraloss/issues/25",
    says=rf"{BROKEN}|divi|silen|zero|0 / 0",
    fault="the scale of the projection is 0 / 0 where the target is silent",
)
def auraloss(planted: bool) -> Task:
    """A mask on a learned basis separates one tone of a mixture; some targets are silent."""
    time = torch.arange(64) / 4

    def draw() -> Drawn:
        on = (torch.rand(16, 1) > 0.15).float()
        tone = on * torch.sin(1.7 * time + 6.28 * torch.rand(16, 1))
        rest = torch.sin(4.1 * time + 6.28 * torch.rand(16, 1)) + 0.3 * torch.randn(16, 64)
        return ((tone + rest).unsqueeze(1),), tone.unsqueeze(1)

    def sisdr(y: Tensor, t: Tensor, eps: float = 1e-8) -> Tensor:
        y, t = y - y.mean(-1, keepdim=True), t - t.mean(-1, keepdim=True)
        alpha = (y * t).sum(-1) / ((t**2).sum(-1) + (0 if planted else eps))
        t = t * alpha.unsqueeze(-1)
        res = y - t
        return -(10 * torch.log10((t**2).sum(-1) / ((res**2).sum(-1) + eps) + eps)).mean()

    class Separator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Conv1d(1, 32, 16, 4, 6), nn.ConvTranspose1d(32, 1, 16, 4, 6)
            self.mask = chain(nn.Conv1d(32, 32, 3, padding=1), nn.PReLU(), nn.Conv1d(32, 32, 3, padding=1))

        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(x)
            return self.decoder(h * self.mask(h).sigmoid())

    return stream(Separator(), draw, sisdr)
