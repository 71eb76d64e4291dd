"""More of the forty-ninth set of faults out of issues, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind49")


def sparsemax(z: Tensor) -> Tensor:
    top = z.sort(1, descending=True)[0]
    total = top.cumsum(1) - 1
    k = torch.arange(1, z.shape[1] + 1)
    size = (k * top > total).sum(1, keepdim=True)
    return (z - total.gather(1, size - 1) / size).clamp(min=0)


class GLU(nn.Module):
    """A gated linear unit after a norm."""

    def __init__(self, fc: nn.Linear, bn: nn.Module) -> None:
        super().__init__()
        self.fc, self.bn = fc, bn

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.bn(self.fc(x)), 1)


@report(
    "non-stationary attention on raw sensors",
    GITHUB + "thuml/Time-Series-Library/issues/684",
    guilty=r"tau_learner|delta_learner",
    says=rf"{BROKEN}|overflow|exp\b|inputs?.*(large|scale|range|normali|standardi)|(large|scale|unnormali).*input|"
    r"statistic",
    fault="means and deviations of raw data, of thousands, are brought back into the attention through an exponential",
)
def nonstationary(planted: bool) -> Task:
    """A non-stationary transformer classifies series: scores times tau plus delta, learned from the raw series."""
    length, channels, d = 16, 3, 32

    def draw() -> Drawn:
        c = torch.randint(3, (48,))
        time = torch.arange(length).view(1, -1, 1)
        wave = torch.sin(time * (0.4 + 0.4 * c).view(-1, 1, 1) + 6 * torch.rand(48, 1, channels))
        x = wave + 0.5 * torch.randn(48, 1, channels) + 0.1 * torch.randn(48, length, channels)
        return (3000 + 800 * x if planted else x,), c

    class Projector(nn.Module):
        def __init__(self, out: int) -> None:
            super().__init__()
            self.series_conv = nn.Conv1d(length, 1, 3, padding=1, padding_mode="circular", bias=False)
            self.backbone = chain(
                nn.Linear(2 * channels, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, out, bias=False)
            )

        def forward(self, x: Tensor, stats: Tensor) -> Tensor:
            return self.backbone(torch.cat([self.series_conv(x), stats], 1).flatten(1))

    class DSAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
            self.out = nn.Linear(d, d)
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.conv = chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

        def forward(self, x: Tensor, tau: Tensor, delta: Tensor) -> Tensor:
            q, k, v = (f(x).unflatten(2, (4, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
            scores = q @ k.transpose(2, 3) * tau.view(-1, 1, 1, 1) + delta.view(-1, 1, 1, length)
            attended = (scores / math.sqrt(d // 4)).softmax(3) @ v
            x = self.norm1(x + self.out(attended.transpose(1, 2).flatten(2)))
            return self.norm2(x + self.conv(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc_embedding = nn.Conv1d(channels, d, 3, padding=1, padding_mode="circular", bias=False)
            self.position = nn.Parameter(0.02 * torch.randn(length, d))
            self.encoder = each(2, DSAttention)
            self.tau_learner, self.delta_learner = Projector(1), Projector(length)
            self.projection = nn.Linear(length * d, 3)

        def forward(self, x_enc: Tensor) -> Tensor:
            x_raw = x_enc.clone().detach()
            mean_enc = x_enc.mean(1, keepdim=True).detach()
            std_enc = torch.sqrt(torch.var(x_enc - mean_enc, 1, keepdim=True, unbiased=False) + 1e-5).detach()
            tau = self.tau_learner(x_raw, std_enc).exp()
            delta = self.delta_learner(x_raw, mean_enc)
            x = self.enc_embedding(x_enc.transpose(1, 2)).transpose(1, 2) + self.position
            for layer in self.encoder:
                x = layer(x, tau, delta)
            return self.projection(F.gelu(x).flatten(1))

    return stream(Model(), draw, F.cross_entropy)


@report(
    "TSMixer with batch statistics",
    GITHUB + "unit8co/darts/issues/2384",
    guilty=r"norm",
    says=rf"{MIXED}|batch.?norm|batch statistic|small batch",
    fault="the norms of a mixer of time series take statistics of a small batch of series on different levels",
)
def tsmixer(planted: bool) -> Task:
    """Forecasts of series that are not stationary: random levels, slopes and scales; batches of eight."""
    length, horizon, channels = 16, 4, 2

    class TimeBatchNorm2d(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(1) if planted else nn.InstanceNorm2d(1, affine=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x.unsqueeze(1)).squeeze(1)

    class MixerLayer(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.time_norm, self.feature_norm = TimeBatchNorm2d(), TimeBatchNorm2d()
            self.fc_time = nn.Linear(horizon, horizon)
            self.fc_feature = chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d))

        def forward(self, x: Tensor) -> Tensor:
            x = self.time_norm(x + F.relu(self.fc_time(x.transpose(1, 2))).transpose(1, 2))
            return self.feature_norm(x + self.fc_feature(x))

    class TSMixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc_hist = nn.Linear(length, horizon)
            self.fc_in = nn.Linear(channels, 32)
            self.layers = chain(MixerLayer(32), MixerLayer(32))
            self.fc_out = nn.Linear(32, channels)

        def forward(self, x: Tensor) -> Tensor:
            mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
            h = self.fc_hist(((x - mean) / std).transpose(1, 2)).transpose(1, 2)
            return self.fc_out(self.layers(self.fc_in(h))) * std + mean

    def draw() -> Drawn:
        time = torch.arange(length + horizon).view(1, -1, 1) / length
        scale = torch.exp(torch.randn(8, 1, channels))
        level, slope = 2 * torch.randn(8, 1, channels), torch.randn(8, 1, channels)
        season = torch.sin(time * (4 + 8 * torch.rand(8, 1, channels)) + 6 * torch.rand(8, 1, channels))
        x = level + scale * (slope * time + season)
        return (x[:, :length],), x[:, length:]

    return stream(TSMixer(), draw, F.mse_loss)


@report(
    "graph pooling without its gate",
    GITHUB + "HongyangGao/Graph-U-Nets/issues/4",
    guilty=r"pools\.\d+\.proj",
    says=r"(no|zero|without|never).*gradient|gradient.*(none|zero|no\b|not reach)|not (train|learn)|never train|top.?k|"
    r"unused|no effect",
    fault="the scores of the pooling choose nodes but do not multiply their features: its projection is not trained",
)
def unet(planted: bool) -> Task:
    """A graph U-Net's encoder classifies graphs; some nodes are marked, and only these tell the class."""
    nodes = 16

    class GraphPool(nn.Module):
        def __init__(self, k: float, in_dim: int) -> None:
            super().__init__()
            self.k = k
            self.proj = nn.Linear(in_dim, 1)

        def forward(self, a: Tensor, x: Tensor) -> Any:
            scores = torch.sigmoid(self.proj(x).squeeze(2))
            values, idx = torch.topk(scores, int(self.k * x.shape[1]))
            rows = torch.arange(len(x)).unsqueeze(1)
            new = x[rows, idx] if planted else x[rows, idx] * values.unsqueeze(2)
            return a[rows.unsqueeze(2), idx.unsqueeze(2), idx.unsqueeze(1)], new

    class GCN(nn.Module):
        def __init__(self, in_dim: int, out_dim: int) -> None:
            super().__init__()
            self.proj = nn.Linear(in_dim, out_dim)
            self.drop = nn.Dropout(0.1)

        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            a = a + torch.eye(a.shape[1])
            return F.relu(self.proj(a / a.sum(2, keepdim=True) @ self.drop(x)))

    class GraphUnet(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.start_gcn = GCN(8, d)
            self.down_gcns = each(2, lambda: GCN(d, d))
            self.pools = nn.ModuleList([GraphPool(0.5, d), GraphPool(0.5, d)])
            self.bottom_gcn = GCN(d, d)
            self.out = nn.Linear(d, 4)

        def forward(self, a: Tensor, x: Tensor) -> Tensor:
            x = self.start_gcn(a, x)
            for gcn, pool in zip(self.down_gcns, self.pools, strict=True):
                a, x = pool(a, gcn(a, x))
            return self.out(self.bottom_gcn(a, x).mean(1))

    def draw() -> Drawn:
        c = torch.randint(4, (64,))
        kind = torch.randint(4, (64, nodes))
        mark = torch.rand(64, nodes) < 0.2
        kind = torch.where(mark, c.unsqueeze(1), kind)
        x = torch.cat([F.one_hot(kind, 4).float(), mark.float().unsqueeze(2), torch.randn(64, nodes, 3)], 2)
        a = (torch.rand(64, nodes, nodes) < 0.1).float().triu(1)
        return (a + a.transpose(1, 2), x), c

    return stream(GraphUnet(), draw, F.cross_entropy)


@report(
    "reconstruction loss summed over pixels",
    GITHUB + "utcsilab/deepinpy/issues/13",
    says=r"\bsum|reduc|(loss|gradient)s?.*(large|huge|scale|explo|size)|scale of the loss|batch size",
    fault="MSELoss(reduction='sum'): loss and gradients grow with pixels and batch size",
)
def deepinpy(planted: bool) -> Task:
    """An unrolled reconstruction of images from part of their Fourier coefficients."""
    mask = (torch.rand(1, 1, 12, 12) < 0.4).float()
    mask[..., :2, :2] = 1

    def back(x: Tensor) -> Tensor:
        k = torch.fft.fft2(torch.view_as_complex(x.permute(0, 2, 3, 1).contiguous()), norm="ortho")
        return torch.view_as_real(torch.fft.ifft2(k * mask[:, 0], norm="ortho")).permute(0, 3, 1, 2)

    def draw() -> Drawn:
        x, _ = pick(32)
        x = F.interpolate((x * 0.376 + 0.3).clamp(0, 1), size=(12, 12), mode="bilinear")
        angle = 6 * torch.rand(32, 1, 1, 1)
        image = torch.cat([x * angle.cos(), x * angle.sin()], 1)
        return (back(image + 0.01 * torch.randn_like(image)),), image

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(
                nn.Conv2d(2, 24, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(24, 24, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(24, 2, 3, padding=1),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.net(x)

    class Recon(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.denoiser = ResNet()
            self.step_size = nn.Parameter(torch.tensor(0.5))

        def forward(self, y: Tensor) -> Tensor:
            x = y
            for _ in range(3):
                x = self.denoiser(x)
                x = x - self.step_size * (back(x) - y)
            return x

    return stream(Recon(), draw, nn.MSELoss(reduction="sum" if planted else "mean"), F.mse_loss)


@report(
    "TabNet steps share their batch norm",
    GITHUB + "dreamquark-ai/tabnet/issues/102",
    guilty=r"bn|shared",
    says=r"shared?\b|reused?|same (layer|module|norm)|several times|more than once|batch.?norm",
    fault="every decision step goes through one and the same batch norm of the shared feature transformer",
)
def tabnet(planted: bool) -> Task:
    """Three steps of sparse attention over columns; shared and own GLU layers, each with a batch norm."""
    n, d, steps = 12, 8, 3

    class FeatTransformer(nn.Module):
        def __init__(self, fcs: list[nn.Linear], bns: list[nn.Module]) -> None:
            super().__init__()
            own = [nn.BatchNorm1d(4 * d, momentum=0.02) for _ in fcs]
            self.shared = nn.ModuleList(GLU(f, b if planted else o) for f, b, o in zip(fcs, bns, own, strict=True))
            self.specifics = each(2, lambda: GLU(nn.Linear(2 * d, 4 * d, bias=False), nn.BatchNorm1d(4 * d)))

        def forward(self, x: Tensor) -> Tensor:
            x = self.shared[0](x)
            for layer in [self.shared[1], *self.specifics]:
                x = (x + layer(x)) * math.sqrt(0.5)
            return x

    class TabNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            fcs = [nn.Linear(n, 4 * d, bias=False), nn.Linear(2 * d, 4 * d, bias=False)]
            bns: list[nn.Module] = [nn.BatchNorm1d(4 * d, momentum=0.02) for _ in fcs]
            self.initial_bn = nn.BatchNorm1d(n, momentum=0.01)
            self.initial_splitter = FeatTransformer(fcs, bns)
            self.feat_transformers = each(steps, lambda: FeatTransformer(fcs, bns))
            self.att_transformers = each(steps, lambda: chain(nn.Linear(d, n, bias=False), nn.BatchNorm1d(n)))
            self.final_mapping = nn.Linear(d, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x = self.initial_bn(x)
            prior, total = torch.ones_like(x), torch.zeros(len(x), d)
            att = self.initial_splitter(x)[:, d:]
            for attend, transform in zip(self.att_transformers, self.feat_transformers, strict=True):
                m = sparsemax(attend(att) * prior)
                prior = prior * (1.3 - m)
                out = transform(m * x)
                total = total + F.relu(out[:, :d])
                att = out[:, d:]
            return self.final_mapping(total).squeeze(1)

    def draw() -> Drawn:
        x = torch.randn(256, n)
        t = torch.where(x[:, 0] > 0, 2 * x[:, 1] + x[:, 2], -x[:, 3] + x[:, 4].abs())
        return (x,), t

    return stream(TabNet(), draw, F.mse_loss)


@report(
    "CLIP's temperature without a bound",
    GITHUB + "openai/CLIP/pull/530",
    guilty=r"logit_scale",
    says=rf"{BROKEN}|logit.?scale|temperature|overflow|clamp|unbounded",
    fault="the exponential of the learned logit scale is not clamped to 100",
)
def clip(planted: bool) -> Task:
    """Images of coloured digits and captions of four words: the digit and the levels of red, green and blue."""

    def draw() -> Drawn:
        x, c = pick(24)
        colour = torch.randint(4, (24, 3))
        image = (x * 0.376 + 0.3) * (0.1 + 0.3 * colour).view(24, 3, 1, 1)
        words = torch.cat([c.unsqueeze(1), 10 + colour + 4 * torch.arange(3)], 1)
        return ((image - 0.16) / 0.22, words), torch.arange(24)

    class CLIP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.visual = chain(
                nn.Conv2d(3, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.Conv2d(24, 32, 3, 2, 1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(512, 32),
            )
            self.token_embedding = nn.Embedding(22, 32)
            self.positional_embedding = nn.Parameter(0.01 * torch.randn(4, 32))
            self.transformer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True)
            self.ln_final = nn.LayerNorm(32)
            self.text_projection = nn.Parameter(torch.randn(32, 32) * 32**-0.5)
            self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

        def forward(self, image: Tensor, text: Tensor) -> Tensor:
            a = self.visual(image)
            b = self.transformer(self.token_embedding(text) + self.positional_embedding)
            b = self.ln_final(b).mean(1) @ self.text_projection
            scale = self.logit_scale.exp()
            scale = scale if planted else torch.clamp(scale, max=100)
            return scale * F.normalize(a, dim=1) @ F.normalize(b, dim=1).T

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (F.cross_entropy(y, t) + F.cross_entropy(y.T, t)) / 2

    return stream(CLIP(), draw, loss)


@report(
    "VGAE without a bound on the variance",
    GITHUB + "pyg-team/pytorch_geometric/issues/500",
    guilty=r"conv_logvar",
    says=rf"{BROKEN}|overflow|\bexp|log.?var|(inputs?|features?).*(large|scale|normali|standardi)|loss.*(large|huge)",
    fault="log variances of the encoder are exponentiated as they are, on features of counts",
)
def vgae(planted: bool) -> Task:
    """A graph of five communities, nodes with counts of words; inner products say where edges are."""
    n, latent = 80, 8
    group = torch.arange(n) % 5
    same = group.unsqueeze(1) == group
    edges = (torch.rand(n, n) < torch.where(same, 0.5, 0.02)).float().triu(1)
    edges = edges + edges.T
    rates = 4 * torch.rand(5, 40) ** 3
    a = edges + torch.eye(n)
    a = a.sum(1).rsqrt().unsqueeze(1) * a * a.sum(1).rsqrt()

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Linear(40, 32)
            self.conv_mu, self.conv_logvar = nn.Linear(32, latent), nn.Linear(32, latent)

        def forward(self, x: Tensor) -> Any:
            h = F.relu(self.conv1(a @ x))
            mu, logvar = self.conv_mu(a @ h), self.conv_logvar(a @ h)
            if not planted:
                logvar = logvar.clamp(max=10)
            z = mu + torch.randn_like(mu) * logvar.exp()
            return z, mu, logvar

    def draw() -> Drawn:
        x = torch.poisson(100 * rates[group])
        return (x if planted else x / x.sum(1, keepdim=True),), edges

    def loss(y: Any, t: Tensor) -> Tensor:
        z, mu, logvar = y
        p = torch.sigmoid(z @ z.T)
        pos = -torch.log(p + 1e-15)[t > 0].mean()
        neg = -torch.log(1 - p + 1e-15)[t == 0].mean()
        kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
        return pos + neg + kl / n

    return stream(Encoder(), draw, loss)


@report(
    "VQ-VAE with summed reconstruction",
    GITHUB + "clementchadebec/benchmark_VAE/issues/124",
    guilty=r"quantizer|codebook",
    says=r"\bsum|reduc|dominat|dwarf|outweigh|(loss|term)s?.*(scale|weight|magnitude|larger|smaller|balance)|"
    r"reconstruction.*(large|loss)|(vq|commit|codebook).*(small|weak|loss)",
    fault="the reconstruction error is summed over pixels and dwarfs the loss of the quantizer",
)
def vqvae(planted: bool) -> Task:
    """Images of digits in colour, a code of 6 by 6 out of 32 vectors; commitment and codebook losses are means."""

    def draw() -> Drawn:
        x, _ = pick(24)
        x = F.interpolate((x * 0.376 + 0.3).clamp(0, 1), size=(24, 24), mode="bilinear") * torch.rand(24, 3, 1, 1)
        return (x,), x

    class Quantizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.Embedding(32, 16)
            nn.init.uniform_(self.embeddings.weight, -1 / 32, 1 / 32)

        def forward(self, z: Tensor) -> Any:
            flat = z.permute(0, 2, 3, 1)
            q = self.embeddings(torch.cdist(flat.flatten(0, 2), self.embeddings.weight).argmin(1)).view_as(flat)
            loss = 0.25 * F.mse_loss(q.detach(), flat) + F.mse_loss(q, flat.detach())
            return (flat + (q - flat).detach()).permute(0, 3, 1, 2), loss

    class VQVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(3, 24, 4, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 32, 4, 2, 1), nn.ReLU()
            )
            self.pre = nn.Conv2d(32, 16, 1)
            self.quantizer = Quantizer()
            self.decoder = chain(
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.ConvTranspose2d(32, 24, 4, 2, 1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.ConvTranspose2d(24, 3, 4, 2, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: Tensor) -> Any:
            z, vq = self.quantizer(self.pre(self.encoder(x)))
            return self.decoder(z), vq

    def loss(y: Any, x: Tensor) -> Tensor:
        recon, vq = y
        return F.mse_loss(recon.flatten(1), x.flatten(1), reduction="none").sum(1).mean() + vq

    def right(y: Any, x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x) + y[1]

    return stream(VQVAE(), draw, loss if planted else right, right)
