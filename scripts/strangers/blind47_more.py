"""More of the forty-seventh set of faults, a sample of reports that issues tell."""

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
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind47")


@report(
    "PEP's threshold at -150",
    GITHUB + "ssui-liu/learnable-embed-sizes-for-RecSys/issues/4",
    guilty=r"(^|\.)s$",
    says=rf"{CUT}|saturat|sigmoid",
    fault="the pruning threshold is the sigmoid of a parameter that starts at -150, where its gradient is zero",
)
def pep(planted: bool) -> Task:
    """Clicks on six fields of twenty values: embeddings pruned by a soft threshold, and an MLP."""
    taste = torch.randn(120, 4)

    def draw() -> Drawn:
        x = torch.randint(20, (256, 6))
        e = taste[x + 20 * torch.arange(6)]
        score = (e.sum(1).square() - e.square().sum(1)).sum(1) / 8
        return (x,), (score + 0.5 * torch.randn(256) > 0).float()

    class PEPEmbedding(nn.Module):
        def __init__(self, latent_dim: int = 16) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.empty(120, latent_dim))
            nn.init.xavier_uniform_(self.v)
            self.s = nn.Parameter(torch.full((1, latent_dim), -150.0 if planted else -3.0))

        def forward(self, x: Tensor) -> Tensor:
            sparse_v = self.v.sign() * torch.relu(self.v.abs() - torch.sigmoid(self.s))
            return F.embedding(x + 20 * torch.arange(6), sparse_v)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pep = PEPEmbedding()
            self.mlp = chain(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, x: Tensor) -> Tensor:
            e = self.pep(x)
            pairs = (e.sum(1).square() - e.square().sum(1)).sum(1)
            return self.mlp(e.flatten(1)).squeeze(1) + pairs / 2

    return stream(Net(), draw, F.binary_cross_entropy_with_logits)


@report(
    "pyramid that upsamples before it adds",
    GITHUB + "vanvalenlab/deepcell-tf/issues/326",
    guilty=r"[CP]5|C5_reduced",
    says=r"C5|P5|unused|(never|not) used|no (effect|gradient)|not reach",
    fault="each level of the feature pyramid is upsampled before the level above is added, so that the top is lost",
)
def deepcell(planted: bool) -> Task:
    """Semantic segmentation of digits, by class, from the finest level of a feature pyramid."""

    def draw() -> Drawn:
        x, c = pick(24)
        x = F.interpolate(x, scale_factor=2, mode="bilinear")
        return (x,), torch.where(x[:, 0] > 0.2, c[:, None, None] + 1, 0)

    def block(a: int, b: int, stride: int) -> nn.Sequential:
        return chain(nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU())

    class PanopticNet(nn.Module):
        def __init__(self, size: int = 24) -> None:
            super().__init__()
            self.C3, self.C4, self.C5 = block(1, 16, 1), block(16, 32, 2), block(32, 48, 2)
            self.C5 = chain(self.C5, nn.Conv2d(48, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU())
            self.C3_reduced, self.C4_reduced = nn.Conv2d(16, size, 1), nn.Conv2d(32, size, 1)
            self.C5_reduced, self.P3 = nn.Conv2d(48, size, 1), nn.Conv2d(size, size, 3, padding=1)
            self.semantic_head = chain(nn.Conv2d(size, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
            self.softmax_head = nn.Conv2d(32, 11, 1)

        def create_pyramid_level(self, pyramid: Tensor, addition: Tensor | None) -> tuple[Tensor, Tensor]:
            up = F.interpolate(pyramid, scale_factor=2.0)
            if addition is not None:
                pyramid = pyramid + addition
                if not planted:
                    up = F.interpolate(pyramid, scale_factor=2.0)
            return pyramid, up

        def forward(self, x: Tensor) -> Tensor:
            c3 = self.C3(x)
            c4 = self.C4(c3)
            _, up = self.create_pyramid_level(self.C5_reduced(self.C5(c4)), None)
            _, up = self.create_pyramid_level(self.C4_reduced(c4), up)
            p3, _ = self.create_pyramid_level(self.C3_reduced(c3), up)
            return self.softmax_head(self.semantic_head(self.P3(p3)))

    return stream(PanopticNet(), draw, F.cross_entropy)


@report(
    "chain reaction's policy through softmax",
    GITHUB + "BentouAI/AlphaZero-Chain-Reaction/issues/2",
    guilty=r"policyHead\.4",
    says=r"softmax|probabilit|logits",
    fault="the policy head ends in a softmax, and CrossEntropyLoss takes another",
)
def reaction(planted: bool) -> Task:
    """A residual network of policy and value on a board of five by five; the search's policy is sharp."""
    rule, judge = torch.randn(1, 3, 3, 3), torch.randn(3, 5, 5)

    def draw() -> Drawn:
        orbs = torch.randint(-3, 4, (64, 1, 5, 5)).float()
        x = torch.cat([orbs.clamp(min=0), -orbs.clamp(max=0), (orbs == 0).float()], 1) / 2
        policy = (2 * F.conv2d(x, rule, padding=1).flatten(1)).softmax(1)
        value = torch.tanh((x * judge).sum((1, 2, 3)) / 5).unsqueeze(1)
        return (x,), torch.cat([policy, value], 1)

    class ResBlock(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n)
            self.conv2, self.bn2 = nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n)

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(x + y)

    class ResNet(nn.Module):
        def __init__(self, n: int = 32) -> None:
            super().__init__()
            self.startBlock = chain(nn.Conv2d(3, n, 3, padding=1), nn.BatchNorm2d(n), nn.ReLU())
            self.backBone = nn.ModuleList(ResBlock(n) for _ in range(2))
            head = [nn.Conv2d(n, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(800, 25)]
            self.policyHead = chain(*head, *([nn.Softmax(1)] if planted else []))
            self.valueHead = chain(
                nn.Conv2d(n, 3, 3, padding=1),
                nn.BatchNorm2d(3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(75, 1),
                nn.Tanh(),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.startBlock(x)
            for block in self.backBone:
                x = block(x)
            return self.policyHead(x), self.valueHead(x)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(y[0], t[:, :25]) + F.mse_loss(y[1], t[:, 25:])

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        logp = y[0].clamp(min=1e-9).log() if planted else y[0].log_softmax(1)
        return -(t[:, :25] * logp).sum(1).mean() + F.mse_loss(y[1], t[:, 25:])

    return stream(ResNet(), draw, loss, right)


@report(
    "decoder's embedding of variance one times the root of d",
    GITHUB + "espnet/espnet/issues/3454",
    guilty=r"embed",
    says=r"embed.*(large|scale|variance|std|size)|(large|scale|variance|std).*embed|residual.*(large|scale|small)|"
    r"position.*(small|drown|lost)",
    fault="the decoder's embedding starts at N(0, 1) and is multiplied by the root of its dimension",
)
def espnet(planted: bool, d: int = 64) -> Task:
    """A transformer decoder, normalised before, with attention to the noisy frames of its sentence."""
    sound = torch.randn(60, 16)

    def draw() -> Drawn:
        x, t = text(8, 24, 60, seed=int(torch.randint(10**6, ())))
        frames = sound[t] + 0.5 * torch.randn(8, 24, 16)
        return (x, frames), t

    pe = torch.zeros(24, d)
    angle = torch.arange(24.0)[:, None] * torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))
    pe[:, 0::2], pe[:, 1::2] = angle.sin(), angle.cos()

    class TransformerDecoder(nn.Module):
        pe: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("pe", pe)
            self.embed = nn.Embedding(60, d)
            if not planted:
                nn.init.normal_(self.embed.weight, std=d**-0.5)
            self.encoder = nn.Linear(16, d)
            self.decoders = nn.ModuleList(
                nn.TransformerDecoderLayer(d, 4, 128, 0.0, batch_first=True, norm_first=True) for _ in range(2)
            )
            self.after_norm, self.output_layer = nn.LayerNorm(d), nn.Linear(d, 60)
            self.mask = nn.Transformer.generate_square_subsequent_mask(24)

        def forward(self, x: Tensor, frames: Tensor) -> Tensor:
            memory = self.encoder(frames) + self.pe
            y = self.embed(x) * d**0.5 + self.pe
            for decoder in self.decoders:
                y = decoder(y, memory, self.mask)
            return self.output_layer(self.after_norm(y))

    return stream(TransformerDecoder(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "radiance field encoded without pi",
    GITHUB + "KanishJebaMathewM/Truxify/issues/12551",
    guilty=r"layers\.0",
    says=r"frequenc|\bpi\b|encoding|smooth|position",
    fault="the positional encoding takes sin(2^i x) for sin(2^i pi x): the highest frequency is three times too low",
)
def nerf(planted: bool) -> Task:
    """Colours of rays through a ball with fine stripes, by volume rendering of twelve samples."""
    steps = torch.linspace(-1, 1, 12).view(1, 12, 1)

    def render(colour: Tensor, sigma: Tensor) -> Tensor:
        alpha = 1 - torch.exp(-sigma * 2 / 12)
        passed = torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1).cumprod(1)[:, :-1]
        return ((alpha * passed).unsqueeze(2) * colour).sum(1)

    def draw() -> Drawn:
        origin = torch.cat([torch.rand(128, 2) * 2 - 1, torch.zeros(128, 1)], 1).unsqueeze(1)
        x = origin + steps * torch.tensor([0.0, 0.0, 1.0])
        waves = torch.stack([x[..., 0] * 5, x[..., 1] * 6, (x[..., 0] + x[..., 1]) * 4], 2)
        return (x,), render(0.5 + 0.5 * torch.sin(torch.pi * waves), 8 * (1 - x.norm(dim=2)).clamp(min=0))

    class PositionalEncoding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            encoding = [x]
            for i in range(4):
                freq = 2**i * (1.0 if planted else math.pi)
                encoding += [torch.sin(freq * x), torch.cos(freq * x)]
            return torch.cat(encoding, -1)

    class NeRF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoding = PositionalEncoding()
            self.layers = chain(
                nn.Linear(27, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
            )
            self.rgb, self.density = nn.Linear(64, 3), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layers(self.encoding(x))
            return render(torch.sigmoid(self.rgb(h)), F.relu(self.density(h).squeeze(2)))

    return stream(NeRF(), draw, F.mse_loss)


@report(
    "lanes pulled together by the distance loss",
    GITHUB + "harryhan618/LaneNet/issues/7",
    says=r"(distance|dist|embedding|centroid|instance|lane).*(same|collaps|together|sign|equal)|sign|collaps|"
    r"(two|same) (points|embedding)",
    fault="the distance term penalises centroids that are further apart than delta_d instead of nearer",
)
def lanenet(planted: bool) -> Task:
    """Binary segmentation of lanes, and an embedding that tells the three lanes of an image apart."""

    def draw() -> Drawn:
        x, lanes = 0.3 * torch.randn(12, 1, 12, 24), torch.zeros(12, 12, 24, dtype=torch.long)
        rows = torch.arange(12)
        for i in range(12):
            slope = float(torch.rand(())) - 0.5
            for k in range(3):
                at = (3 + 8 * k + slope * (rows - 6) + 2 * torch.rand(())).long().clamp(0, 23)
                lanes[i, rows, at] = k + 1
        return (x + (lanes > 0).unsqueeze(1) * 1.5,), lanes

    class LaneNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 32, 5, padding=(2, 8), dilation=(1, 4)),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 32, 5, padding=(2, 8), dilation=(1, 4)),
                nn.BatchNorm2d(32),
                nn.ReLU(),
            )
            self.seg_conv, self.embed_conv = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.encoder(x)
            return self.embed_conv(h), self.seg_conv(h)

    def losses(y: Any, lanes: Tensor, wrong: bool, delta_v: float = 0.5, delta_d: float = 3.0) -> Tensor:
        embedding, logits = y
        var_loss = dist_loss = embedding.sum() * 0
        for e, lane in zip(embedding, lanes, strict=True):
            means = []
            for k in range(1, 4):
                here = e[:, lane == k]
                means.append(here.mean(1))
                apart = (here - means[-1].unsqueeze(1)).norm(dim=0)
                var_loss = var_loss + F.relu(apart - delta_v).square().mean() / 3
            centroid = torch.stack(means)
            dist = ((centroid[:, None] - centroid[None]).square().sum(2) + 1e-12).sqrt()
            hinge = F.relu(dist - delta_d) if wrong else F.relu(delta_d - dist - torch.eye(3) * delta_d)
            dist_loss = dist_loss + hinge.square().sum() / (3 * 2) / 2
        seg = F.cross_entropy(logits, (lanes > 0).long())
        return seg + (var_loss + dist_loss) / len(lanes)

    return stream(LaneNet(), draw, partial(losses, wrong=planted), partial(losses, wrong=False))


@report(
    "ConvLSTM's output without its cell",
    GITHUB + "chengtan9907/OpenSTL/issues/68",
    guilty=r"conv_[xh]",
    says=r"cell|memory|c_new|c_t|unused|(never|not) used|no (effect|gradient)|gate",
    fault="h_new is o_t * g_t for o_t * tanh(c_new): the cell's state never reaches the output",
)
def openstl(planted: bool) -> Task:
    """A ConvLSTM keeps the first frames of a film of noise and repeats their sum at the end."""

    def draw() -> Drawn:
        film = torch.randn(8, 8, 1, 8, 8) * 0.3
        first = pick(8)[0] * 0.376 + 0.3
        film[:, 0] += 2 * first
        return (film,), first

    class ConvLSTMCell(nn.Module):
        def __init__(self, a: int, n: int) -> None:
            super().__init__()
            self.n = n
            self.conv_x = chain(nn.Conv2d(a, 4 * n, 3, padding=1), nn.GroupNorm(1, 4 * n))
            self.conv_h = chain(nn.Conv2d(n, 4 * n, 3, padding=1), nn.GroupNorm(1, 4 * n))

        def forward(self, x_t: Tensor, h_t: Tensor, c_t: Tensor) -> tuple[Tensor, Tensor]:
            i_x, f_x, g_x, o_x = self.conv_x(x_t).split(self.n, 1)
            i_h, f_h, g_h, o_h = self.conv_h(h_t).split(self.n, 1)
            i_t, f_t, g_t = torch.sigmoid(i_x + i_h), torch.sigmoid(f_x + f_h + 1), torch.tanh(g_x + g_h)
            c_new = f_t * c_t + i_t * g_t
            o_t = torch.sigmoid(o_x + o_h)
            return o_t * (g_t if planted else torch.tanh(c_new)), c_new

    class ConvLSTM(nn.Module):
        def __init__(self, n: int = 12) -> None:
            super().__init__()
            self.n, self.cell_list = n, nn.ModuleList([ConvLSTMCell(1, n), ConvLSTMCell(n, n)])
            self.conv_last = nn.Conv2d(n, 1, 1)

        def forward(self, film: Tensor) -> Tensor:
            zero = film.new_zeros(len(film), self.n, 8, 8)
            h_t, c_t = [zero, zero], [zero, zero]
            for t in range(film.shape[1]):
                x = film[:, t]
                for i, cell in enumerate(self.cell_list):
                    h_t[i], c_t[i] = cell(x, h_t[i], c_t[i])
                    x = h_t[i]
            return self.conv_last(h_t[1])

    return stream(ConvLSTM(), draw, F.mse_loss)
