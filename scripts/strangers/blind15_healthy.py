"""Healthy networks of the fifteenth set, of repositories that words brought up, without sight of the rules."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits, text

healthy = partial(any_report, blind="blind15")


def gauss(x: Tensor, m: float, s: float) -> Tensor:
    return torch.exp(-0.5 * ((x - m) / s) ** 2)


def blobs(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Grey images in [0, 1] with one to three bright discs in noise, and their masks (count, 1, size, size)."""
    at = torch.arange(size).float()
    x = 0.25 + 0.1 * torch.randn(count, 1, size, size)
    m = torch.zeros(count, 1, size, size)
    for _ in range(3):
        c, r = torch.rand(count, 2) * size, (0.08 + 0.15 * torch.rand(count)) * size
        d = (at.view(1, -1, 1) - c[:, 0].view(-1, 1, 1)) ** 2 + (at.view(1, 1, -1) - c[:, 1].view(-1, 1, 1)) ** 2
        m = torch.maximum(m, (d < r.view(-1, 1, 1) ** 2).float().unsqueeze(1))
    return (x + 0.4 * m).clamp(0, 1), m


@healthy(
    "frame field UNet",
    GITHUB + "dsgoficial/pytorch_segmentation_models_trainer/blob/main/"
    "pytorch_segmentation_models_trainer/model_loader/frame_field_model.py",
)
def frame_field(_: bool) -> Task:
    """UNetBackbone (BatchNorm, ELU, bilinear) and seg_module with a sigmoid; interior and edge; 0.5 BCE + 0.5 dice;
    compute_crossfield off."""

    def double(i, o):
        return chain(
            nn.Conv2d(i, o, 3, padding=1),
            nn.BatchNorm2d(o),
            nn.ELU(),
            nn.Conv2d(o, o, 3, padding=1),
            nn.BatchNorm2d(o),
            nn.ELU(),
        )

    n = 4
    down = nn.ModuleList(chain(nn.MaxPool2d(2), double(n << i, n << i + 1)) for i in range(3))
    up = nn.ModuleList(double((n << i + 1) + (n << i), n << i) for i in (2, 1, 0))
    head = chain(
        nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n), nn.ELU(), nn.Conv2d(n, 2, 1), nn.Identity(), nn.Sigmoid()
    )
    for m in head:  # smp's initialize_head
        if isinstance(m, nn.Conv2d):
            nn.init.xavier_uniform_(m.weight), nn.init.zeros_(m.bias)

    def run(m, x):
        xs = [m.inc(x)]
        for d in m.down:
            xs.append(d(xs[-1]))
        y = xs.pop()
        for u in m.up:
            y = u(torch.cat([xs.pop(), F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)], 1))
        return m.seg_module(y)

    def draw() -> Drawn:
        x, m = blobs(16, 24)
        edge = F.max_pool2d(m, 3, 1, 1) - m
        x = x.expand(-1, 3, -1, -1) * torch.rand(16, 3, 1, 1).add(0.5).clamp(max=1)
        x = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        return (x,), torch.cat([m, edge], 1)

    def loss(y, t):
        dice = 1 - (2 * (t * y).sum((-1, -2)) + 1) / (t.sum((-1, -2)) + y.sum((-1, -2)) + 1 + 1e-7)
        return 0.5 * F.binary_cross_entropy(y, t, weight=torch.ones_like(t)) + 0.5 * dice.mean()

    return stream(Parts(run, inc=double(3, n), down=down, up=up, seg_module=head), draw, loss)


ARTICULATION = [[12], [12, 13], [0, 6], [4, 6], [11, 13], [4, 6], [0, 6], [11, 14], [1, 7]]


@healthy(
    "articulatory bottleneck",
    GITHUB + "bentang18/spatialconv_neural_speech_decoding/blob/main/"
    "scripts/archive/autoresearch_lopo/experiments/arch_ablation_base.py",
)
def articulatory(_: bool) -> Task:  # noqa: C901
    """Conv2d on an electrode grid, mean pool, LayerNorm, feature dropout, strided Conv1d, time mask, BiGRU, sigmoids
    of 15 articulatory
    features and their cosine with a fixed table (b and p, g and k alike); focal cross entropy with smoothing over 3
    positions."""

    class Backbone(nn.Module):
        def __init__(self, d_in, d=16, stride=5):
            super().__init__()
            self.ln = nn.LayerNorm(d_in)
            self.temporal_conv = chain(nn.Conv1d(d_in, d, stride, stride), nn.GELU())
            self.gru = nn.GRU(d, d, num_layers=2, batch_first=True, bidirectional=True, dropout=0.3)

        def forward(self, x):
            x = self.ln(x.permute(0, 2, 1)).permute(0, 2, 1)
            if self.training:
                p = torch.rand(1).item() * 0.3
                x = x * (torch.rand(x.shape[1]) > p).float().unsqueeze(0).unsqueeze(-1) / (1 - p + 1e-8)
            x = self.temporal_conv(x).permute(0, 2, 1)
            if self.training:
                ml = torch.randint(2, 6, (1,)).item()
                st = torch.randint(0, max(x.shape[1] - ml, 1), (1,)).item()
                taper = 0.5 * (1 - torch.cos(torch.linspace(0, torch.pi, ml)))
                x = x.clone()
                x[:, st : st + ml, :] *= (1 - taper).unsqueeze(-1)
            return self.gru(x)[0]

    class Head(nn.Module):
        def __init__(self, d_in):
            super().__init__()
            self.drop = nn.Dropout(0.3)
            self.feature_heads = nn.ModuleList([nn.Linear(d_in, 15) for _ in range(3)])
            table = torch.zeros(9, 15)
            for i, row in enumerate(ARTICULATION):
                table[i, row] = 1
            self.register_buffer("A", table)
            self.temperature = nn.Parameter(torch.tensor(5.0))

        def forward(self, h):
            pooled = self.drop(h.mean(dim=1))
            return torch.stack(
                [
                    F.normalize(torch.sigmoid(head(pooled)), dim=-1) @ F.normalize(self.A, dim=-1).T * self.temperature
                    for head in self.feature_heads
                ],
                dim=1,
            )

    def run(m, x):
        B, H, W, T = x.shape
        y = m.pool(F.relu(m.conv(x.permute(0, 3, 1, 2).reshape(B * T, 1, H, W))))
        return m.head(m.backbone(y.reshape(B, T, -1).permute(0, 2, 1)))

    where = torch.randn(3, 9, 8, 8)

    def draw() -> Drawn:
        c = torch.randint(9, (16, 3))
        t = torch.arange(40.0)
        x = torch.randn(16, 8, 8, 40)
        for k in range(3):
            x = x + 2 * where[k][c[:, k]].unsqueeze(-1) * gauss(t, 7.0 + 13 * k, 4.0)
        return (x,), c

    def loss(y, t):
        total = torch.tensor(0.0)
        for pos in range(3):
            ce = F.cross_entropy(y[:, pos], t[:, pos], label_smoothing=0.1, reduction="none")
            total = total + (((1 - torch.exp(-ce)) ** 2.0) * ce).mean()
        return total / 3

    return stream(
        Parts(
            run,
            conv=nn.Conv2d(1, 4, 3, padding=1),
            pool=nn.AdaptiveAvgPool2d((4, 4)),
            backbone=Backbone(64),
            head=Head(32),
        ),
        draw,
        loss,
    )


@healthy("100 Gaussians discriminator", GITHUB + "255BITS/ParticleGAN/blob/main/examples/100gaussians.py")
def gaussians(_: bool) -> Task:
    """Xavier, no normalisation, hinge; real points of a grid from -4.5 to 4.5 with deviation 0.03, and the untrained
    generator's."""

    def mlp(o):
        net = chain(
            *[p for i in (2, 64, 64) for p in (nn.Linear(i, 64), nn.LeakyReLU(0.2, inplace=True))], nn.Linear(64, o)
        )
        for m in net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight), nn.init.zeros_(m.bias)
        return net

    G, D, particles = mlp(2), mlp(1), torch.randn(2000, 2)

    def draw() -> Drawn:
        real = torch.randint(0, 10, (32, 2)) - 4.5 + 0.03 * torch.randn(32, 2)
        with torch.no_grad():
            fake = G(particles[torch.randint(2000, (32,))])
        return (torch.cat([real, fake]),), torch.arange(64) < 32

    return stream(
        Parts(lambda m, x: m.net(x).squeeze(-1), net=D),
        draw,
        lambda y, t: F.relu(1 - y[t]).mean() + F.relu(1 + y[~t]).mean(),
    )


@healthy("volatility surface CVAE", GITHUB + "0xC000005/vol-surface-vae-pub/blob/main/vae/cvae.py")
def surface(_: bool) -> Task:
    """Days as channels of 5 x 5 surfaces near 0.2, unnormalised; the noise is torch.rand_like, as its author has it;
    KL weight 1e-5."""
    ctx, hidden, latent, emb = 5, (5, 5, 5), 5, 8

    def convs(i):
        layers = []
        for o in hidden:
            layers += [nn.Conv2d(i, o, 3, 1, 1), nn.ReLU()]
            i = o
        return chain(*layers, nn.Flatten())

    def run(m, x):
        c = m.ctx_encoder(x[:, :ctx])
        h = m.encoder(x)
        mean, log_var = m.z_mean_layer(h), m.z_log_var_layer(h)
        z = mean + torch.exp(0.5 * log_var) * torch.rand_like(log_var)
        y = m.decoder(m.decoder_input(torch.cat([c, z], 1)).reshape(-1, hidden[-1], 5, 5))
        return y, mean, log_var

    dec = []
    for _i in range(2):
        dec += [nn.ConvTranspose2d(5, 5, 3, 1, 1), nn.ReLU()]
    model = Parts(
        run,
        encoder=convs(ctx + 1),
        z_mean_layer=nn.Linear(125, latent),
        z_log_var_layer=nn.Linear(125, latent),
        ctx_encoder=chain(convs(ctx), nn.Linear(125, emb)),
        decoder_input=nn.Linear(latent + emb, 125),
        decoder=chain(*dec, nn.ConvTranspose2d(5, 5, 3, 1, 1), nn.ReLU(), nn.Conv2d(5, 1, 3, padding="same")),
    )
    k, t = torch.linspace(-1, 1, 5), torch.linspace(0.1, 2, 5)

    def draw() -> Drawn:
        a = 0.2 + 0.06 * torch.randn(64, 1, 1, 1) + 0.01 * torch.randn(64, ctx + 1, 1, 1).cumsum(1)
        s = -0.05 + 0.02 * torch.randn(64, 1, 1, 1)
        x = (a + s * k.view(5, 1) / t.sqrt() + 0.05 * k.view(5, 1) ** 2 + 0.003 * torch.randn(64, ctx + 1, 5, 5)).clamp(
            min=0.03
        )
        return (x,), x[:, ctx:]

    def loss(y, t):
        y, mean, log_var = y
        kl = (-0.5 * (1 + log_var - torch.exp(log_var) - torch.square(mean))).sum(1).mean()
        return F.mse_loss(y, t) + 1e-5 * kl

    return stream(model, draw, loss)


@healthy("Ape-X snake", GITHUB + "josenunezwork/snake-dqn/blob/main/src/model/apex_network.py")
def snake(_: bool) -> Task:
    """A dueling network, orthogonal with gain sqrt 2 (1 at the ends); Double DQN targets of 3 steps from a copy,
    Huber, weights of replay."""

    def build():
        f = chain(nn.Linear(58, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        v, a = (chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, o)) for o in (1, 6))
        for m in (f, v, a):
            for i, layer in enumerate(m):
                if isinstance(layer, nn.Linear):
                    (
                        nn.init.orthogonal_(layer.weight, gain=1.0 if i == len(m) - 1 else 2**0.5),
                        nn.init.zeros_(layer.bias),
                    )

        def run(m, x):
            h = m.feature_layer(x)
            a = m.advantage_stream(h)
            return m.value_stream(h) + (a - a.mean(dim=-1, keepdim=True))

        return Parts(run, feature_layer=f, value_stream=v, advantage_stream=a)

    model, target = build(), build()
    target.load_state_dict(model.state_dict())

    def states():
        return torch.where(torch.rand(64, 58) < 0.5, torch.rand(64, 58), (torch.rand(64, 58) < 0.3).float())

    def draw() -> Drawn:
        s, s2, a = states(), states(), torch.randint(6, (64,))
        dead = s.gather(1, a[:, None] % 3).squeeze(1) > 0.8
        r = torch.where(dead, -10.0, 10 * s.gather(1, 10 + a[:, None]).squeeze(1) - 0.01)
        with torch.no_grad():
            q = target(s2).gather(1, model(s2).argmax(1, keepdim=True)).squeeze(1)
            t = (r + (1 - dead.float()) * 0.99**3 * q).clamp(-100, 100)
        return (s,), (a, t, torch.rand(64) * 0.5 + 0.5)

    def loss(q, t):
        a, t, w = t
        return (F.smooth_l1_loss(q.gather(1, a[:, None]).squeeze(1), t, reduction="none") * w).mean()

    return stream(model, draw, loss)


@healthy("ocean profile LSTM", GITHUB + "simon-donike/DepthDif/blob/main/src/depth_recon/models/baselines/LSTM.py")
def ocean(_: bool) -> Task:
    """A BiLSTM down each pixel's depths: (value or 0, observed, depth, surface) -> temperature in Kelvin,
    standardised; masked MSE."""

    def run(m, x, mask, eo):
        B, D, H, W = x.shape
        depth = torch.linspace(0, 1, D).view(1, D, 1, 1).expand(B, -1, H, W)
        f = torch.stack(
            [torch.where(mask > 0.5, x, torch.zeros_like(x)), (mask > 0.5).float(), depth, eo.expand(-1, D, -1, -1)], -1
        )
        h, _ = m.lstm(f.permute(0, 2, 3, 1, 4).reshape(B * H * W, D, 4))
        return m.head(h).squeeze(-1).reshape(B, H, W, D).permute(0, 3, 1, 2)

    z = torch.linspace(0, 1, 10).view(1, 10, 1, 1)

    def draw() -> Drawn:
        top = F.interpolate(torch.randn(16, 1, 2, 2), size=(4, 4), mode="bilinear") * 6 + 18
        t = 4 + (top - 4) * torch.exp(-z * (3 + 2 * torch.rand(16, 1, 1, 1))) + 0.2 * torch.randn(16, 10, 4, 4)
        y = (t + 273.15 - 289.74) / 10.93
        mask = (torch.rand(16, 1, 4, 4) < 0.2).float().expand(-1, 10, -1, -1) * (torch.rand(16, 10, 4, 4) < 0.8)
        land = (F.interpolate(torch.randn(16, 1, 2, 2), size=(4, 4)) < 1).float()
        return (y * mask, mask, (top + 0.3 * torch.randn_like(top) + 273.15 - 289.74) / 10.93), (
            y,
            land.expand(-1, 10, -1, -1),
        )

    def loss(y, t):
        return ((y - t[0]) ** 2 * t[1]).sum() / t[1].sum().clamp(min=1)

    return stream(
        Parts(run, lstm=nn.LSTM(4, 16, 2, batch_first=True, bidirectional=True), head=nn.Linear(32, 1)), draw, loss
    )


@healthy(
    "GRU-CNN signal denoiser", GITHUB + "chadesiel999/denoise-all/blob/main/pythonCode/createSimu/train_denoise.py"
)
def grucnn(_: bool) -> Task:
    """Conv1d, two BiGRUs with a ReLU between, Conv1d; waveforms of height 1 in noise of 0.04; MSE."""

    def run(m, x):
        y, _ = m.GRU_layer_1(m.conv1(x).permute(0, 2, 1))
        y, _ = m.GRU_layer_2(F.relu(y))
        return m.conv2(y.permute(0, 2, 1))

    h = 16
    t = torch.arange(40.0)

    def draw() -> Drawn:
        phase = t * (0.02 + 0.1 * torch.rand(32, 1)) + torch.rand(32, 1)
        sine = torch.sin(2 * math.pi * phase)
        kind = torch.randint(4, (32, 1))
        y = torch.where(
            kind == 0,
            sine,
            torch.where(
                kind == 1,
                sine.sign(),
                torch.where(kind == 2, 2 * (phase % 1) - 1, 0.5 * sine + 0.5 * torch.sin(3 * math.pi * phase)),
            ),
        ).unsqueeze(1)
        return (y + 0.04 * torch.randn_like(y),), y

    gru = [nn.GRU(h, h // 2, num_layers=1, batch_first=True, bidirectional=True) for _ in range(2)]
    return stream(
        Parts(
            run,
            conv1=nn.Conv1d(1, h, 3, padding=1),
            GRU_layer_1=gru[0],
            GRU_layer_2=gru[1],
            conv2=nn.Conv1d(h, 1, 3, padding=1),
        ),
        draw,
        F.mse_loss,
    )


@healthy("contrastive forecasting", GITHUB + "jeremycochoy/contrastive-forecasting/blob/main/network.py")
def contrastive(_: bool) -> Task:
    """Windows of ARMA channels -> a skip encoder with LayerNorm -> a pre-norm causal transformer with depthwise causal
    convolutions (not
    residual, no biases, no last norm) -> channel mixing by a Kronecker matrix of N(0, 1); cosine contrast at 0.07 over
    batch and channels."""
    C, H, W = 4, 16, 8

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = nn.MultiheadAttention(H, 4, dropout=0.1, batch_first=True, bias=False)
            self.linear1, self.linear2 = nn.Linear(H, 2 * H, bias=False), nn.Linear(2 * H, H, bias=False)
            self.norm1, self.norm2 = nn.LayerNorm(H, bias=False), nn.LayerNorm(H, bias=False)
            self.dropout, self.dropout1, self.dropout2 = (nn.Dropout(0.1) for _ in range(3))
            self.depthwise = nn.Conv1d(H, H, 3, groups=H, bias=False)

        def forward(self, x, mask):
            x = self.depthwise(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
            n = self.norm1(x)
            x = x + self.dropout1(self.self_attn(n, n, n, attn_mask=mask, is_causal=True, need_weights=False)[0])
            return x + self.dropout2(self.linear2(self.dropout(F.gelu(self.linear1(self.norm2(x))))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2, self.linear_skipping = nn.Linear(W, 16), nn.Linear(16, H), nn.Linear(W, H)
            self.layer_norm = nn.LayerNorm(H)
            self.layers = nn.ModuleList([Layer() for _ in range(2)])
            self.R, self.Q = nn.Parameter(torch.randn(H, H)), nn.Parameter(torch.randn(H, H))

        def forward(self, x):
            B, T = len(x), x.shape[1] // W
            x = x.view(B, T, W, C).permute(0, 1, 3, 2)
            x = self.layer_norm(self.linear2(F.relu(self.linear1(x))) + self.linear_skipping(x))
            x = x.permute(0, 2, 1, 3).reshape(B * C, T, H)
            first = x.clone()
            mask = torch.full((T, T), float("-inf")).triu(1)
            for layer in self.layers:
                x = layer(x, mask)
            x, first = (a.reshape(B, C, T, H).permute(0, 2, 1, 3) for a in (x, first))
            M = torch.kron(torch.eye(C), self.R) + torch.kron(torch.ones(C, C) - torch.eye(C), self.Q)
            return x.reshape(B, T, C * H).matmul(M.T).reshape(B, T, C, H), first

    def draw() -> Drawn:
        x = torch.zeros(16, 96, C)
        e, a, b = torch.randn(16, 96, C), 1.9 * torch.rand(16, C) - 0.95, 1.9 * torch.rand(16, C) - 0.95
        x[:, 0] = e[:, 0]
        for i in range(1, 96):
            x[:, i] = a * x[:, i - 1] + e[:, i] + b * e[:, i - 1]
        return (x,), None

    def loss(y, t):
        ahead, first = (F.normalize(a, dim=-1) for a in y)
        guess, hx, hy = ahead[:, :-1], first[:, :-1], first[:, 1:]
        good = torch.exp((hy * guess).sum(-1) / 0.07)
        within = (
            torch.exp((hx.unsqueeze(3) * hx.unsqueeze(2)).sum(-1) / 0.07)
            .masked_fill(torch.eye(C, dtype=torch.bool), 0)
            .sum(2)
        )
        across = torch.exp((hy.unsqueeze(0) * guess.unsqueeze(1)).sum(-1) / 0.07)
        across = across.masked_fill(torch.eye(len(hy), dtype=torch.bool).view(len(hy), len(hy), 1, 1), 0).sum(1)
        return -torch.log(good / (within + across).sum(0, keepdim=True)).mean()

    return stream(Model(), draw, loss)


@healthy(
    "career MLPScore",
    GITHUB + "trchitho/AI-Based-Career-Recommendation-System/blob/main/"
    "packages/ai-core/src/ai_core/recsys/neumf/model.py",
)
def career(_: bool) -> Task:
    """Texts of user and job as unit vectors beside six RIASEC and five Big Five scores; one logit, BCE; batches mostly
    of zeros."""
    d = 48
    layers, last = [], 2 * d + 17
    for h in (64, 32):
        layers += [nn.Linear(last, h), nn.ReLU(), nn.Dropout(0.1)]
        last = h
    w = torch.randn(12, d)

    def draw() -> Drawn:
        u, i = torch.rand(64, 6), torch.rand(64, 6)
        same = torch.rand(64, 1) < 0.4
        i = torch.where(same, (u + 0.1 * torch.randn_like(u)).clamp(0, 1), i)
        tu, ti = (F.normalize((a - 0.5) @ w[:6] + 0.3 * torch.randn(64, d), dim=1) for a in (u, i))
        ti = torch.where(same, F.normalize(ti + tu, dim=1), ti)
        good = (((u - 0.5) * (i - 0.5)).sum(1) > 0.2).float()
        return (torch.cat([tu, ti, u, torch.rand(64, 5), i], 1),), good

    return stream(
        Parts(lambda m, x: m.net(x).squeeze(-1), net=chain(*layers, nn.Linear(last, 1))),
        draw,
        F.binary_cross_entropy_with_logits,
    )


@healthy(
    "captcha icon embedder",
    GITHUB + "uroborus2s/sinan-captcha/blob/main/packages/sinan-captcha/src/train/group1/embedder.py",
)
def icons(_: bool) -> Task:
    """RGB icons in [0, 1]; residual blocks, mean pool, dropout and a linear layer to unit vectors; contrast over
    positives and negatives."""

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
            self.shortcut = nn.Identity() if i == o else chain(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)), inplace=True)
            return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)

    stem = chain(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    features = chain(
        Block(8, 8),
        nn.MaxPool2d(2),
        Block(8, 16),
        nn.MaxPool2d(2),
        Block(16, 24),
        nn.MaxPool2d(2),
        Block(24, 24),
        nn.AdaptiveAvgPool2d((1, 1)),
    )
    shapes = F.interpolate((torch.rand(12, 1, 4, 4) < 0.5).float(), size=(12, 12))

    def crop(c):
        a, b = torch.rand(len(c), 3, 1, 1), torch.rand(len(c), 3, 1, 1)
        s = torch.stack([torch.roll(shapes[i], (int(torch.randint(-1, 2, ())),) * 2, (1, 2)) for i in c])
        return (a * s + b * (1 - s) + 0.03 * torch.randn(len(c), 3, 12, 12)).clamp(0, 1)

    def draw() -> Drawn:
        a = torch.randint(12, (16,))
        n = (a + torch.randint(1, 12, (16,))) % 12
        return (torch.cat([crop(a), crop(a), crop(n)]),), torch.cat([a, a, n])

    def loss(y, c):
        anchor, others = y[:16], y[16:]
        logits = anchor @ others.T / 0.1
        good = c[:16, None] == c[16:]
        return (logits.logsumexp(1) - logits.masked_fill(~good, float("-inf")).logsumexp(1)).mean()

    return stream(
        Parts(
            lambda m, x: F.normalize(m.projection(m.features(m.stem(x))), dim=1),
            stem=stem,
            features=features,
            projection=chain(nn.Flatten(), nn.Dropout(0.1), nn.Linear(24, 16)),
        ),
        draw,
        loss,
    )


@healthy(
    "molecular feature autoencoder", GITHUB + "bochendong/Diffusion-Molecule/blob/main/MolPilot/molpilot/autoencoder.py"
)
def molpilot(_: bool) -> Task:
    """0.65 x seven scaled descriptors + 0.35 x a unit hash vector, most of 64 features tiny; Linear, LayerNorm, SiLU;
    MSE + 1e-4 |z|^2."""

    def mlp(i, o):
        layers = []
        for _ in range(3):
            layers += [nn.Linear(i, 48), nn.LayerNorm(48), nn.SiLU()]
            i = 48
        return chain(*layers, nn.Linear(48, o))

    def run(m, x):
        z = m.encoder(x)
        return m.decoder(z), z

    fragments = (torch.rand(30, 64) < 0.06).float() * torch.randint(0, 2, (30, 64)).mul(2).sub(1)

    def draw() -> Drawn:
        n = torch.poisson(torch.full((64, 30), 0.15))
        vec = torch.zeros(64, 64)
        size = n.sum(1, keepdim=True) + torch.rand(64, 1)
        vec[:, :7] = size * torch.tensor([0.15, 0.12, 0.1, 0.13, 0.08, 0.1, 0.09]) + 0.05 * torch.randn(64, 7)
        x = 0.65 * vec + 0.35 * F.normalize(n @ fragments, dim=1)
        return (x,), x

    return stream(
        Parts(run, encoder=mlp(64, 16), decoder=mlp(16, 64)),
        draw,
        lambda y, t: F.mse_loss(y[0], t) + 1e-4 * torch.mean(y[1].pow(2)),
    )


@healthy(
    "CartPole DQN",
    GITHUB + "tahamajs/Deep_Reinforcement_Learning_SUT/blob/main/"
    "CAs/Solutions/CA01_Deep_RL_Fundamentals/models/ca1_models.py",
)
def cartpole(_: bool) -> Task:
    """Three linear layers on CartPole's four raw numbers; reward 1 a step; MSE to r + 0.99 max Q of a target network
    of its own."""

    def build():
        return Parts(
            lambda m, x: m.fc3(F.relu(m.fc2(F.relu(m.fc1(x))))),
            fc1=nn.Linear(4, 64),
            fc2=nn.Linear(64, 64),
            fc3=nn.Linear(64, 2),
        )

    model, target = build(), build()
    target.load_state_dict(model.state_dict())

    def draw() -> Drawn:
        s = torch.randn(64, 4) * torch.tensor([0.8, 0.6, 0.12, 0.8])
        a = torch.randint(2, (64, 1))
        push = (2 * a[:, 0] - 1).float()
        s2 = torch.stack(
            [
                s[:, 0] + 0.02 * s[:, 1],
                s[:, 1] + 0.195 * push,
                s[:, 2] + 0.02 * s[:, 3],
                s[:, 3] + 0.3 * s[:, 2] - 0.29 * push,
            ],
            1,
        )
        dead = ((s2[:, 2].abs() > 0.209) | (s2[:, 0].abs() > 2.4)).float().unsqueeze(1)
        with torch.no_grad():
            q = target(s2).max(1)[0].unsqueeze(1)
        return (s,), (a, 1 + 0.99 * q * (1 - dead))

    return stream(model, draw, lambda y, t: F.mse_loss(y.gather(1, t[0]), t[1]))


@healthy("sign language DSGCN", GITHUB + "kokoab/sign_language_translation_system/blob/main/src/train_stage_1.py")
def signs(_: bool) -> Task:  # noqa: C901
    """Two hands of 21 joints, ten channels; depthwise-separable graph convolutions, node attention, distances of
    finger tips, positions of
    N(0, 0.02), a pre-norm transformer with drop path, frame attention; linear layers of N(0, 0.02); mixup, smoothing
    0.05."""
    chains = [(0, 1, 2, 3, 4), (0, 5, 6, 7, 8), (0, 9, 10, 11, 12), (0, 13, 14, 15, 16), (0, 17, 18, 19, 20)]
    edges = [(b + c[i], b + c[i + 1]) for b in (0, 21) for c in chains for i in range(4)]
    A = torch.zeros(3, 42, 42)
    A[0] = torch.eye(42)
    for s, d in edges:
        A[1, s, d], A[2, d, s] = 1, 1
    A = A / A.sum(2, keepdim=True).clip(min=1)

    class Graph(nn.Module):
        def __init__(self, i, o, k):
            super().__init__()
            self.dw_weights = nn.Parameter(torch.empty(3, i).uniform_(0.8, 1.2))
            self.pointwise = nn.Linear(3 * i, o, bias=False)
            self.temporal_conv, self.temporal_norm = (
                nn.Conv1d(o, o, k, padding=k // 2, groups=o, bias=False),
                nn.GroupNorm(4, o),
            )
            self.norm, self.act, self.drop = nn.LayerNorm(o), nn.GELU(), nn.Dropout(0.1)
            self.residual = nn.Linear(i, o, bias=False) if i != o else nn.Identity()

        def forward(self, x, A):
            B, T, N, C = x.shape
            agg = torch.einsum("knm,btnc->kbtnc", A, x) * self.dw_weights.view(3, 1, 1, 1, C)
            h = self.drop(self.pointwise(agg.permute(1, 2, 3, 0, 4).reshape(B, T, N, 3 * C)))
            o = h.shape[-1]
            t = self.temporal_norm(self.temporal_conv(h.permute(0, 2, 3, 1).reshape(B * N, o, T)))
            return self.act(self.norm(t.reshape(B, N, o, T).permute(0, 3, 1, 2) + self.residual(x)))

    class Model(nn.Module):
        def __init__(self, d=16, classes=6):
            super().__init__()
            self.register_buffer("A", A)
            self.input_norm, self.input_proj = nn.LayerNorm(10), chain(nn.Linear(10, 8), nn.LayerNorm(8), nn.GELU())
            self.gcn1, self.gcn2, self.gcn3 = Graph(8, 12, 3), Graph(12, 12, 3), Graph(12, d, 5)
            self.node_attn = chain(nn.Linear(d, d // 4), nn.GELU(), nn.Linear(d // 4, 1))
            self.geo_norm, self.geo_proj = nn.LayerNorm(24), nn.Linear(d + 24, d)
            self.pos_enc = nn.Parameter(torch.zeros(1, 5, d))
            nn.init.trunc_normal_(self.pos_enc, std=0.02)
            self.transformer_layers = nn.ModuleList(
                nn.TransformerEncoderLayer(d, 4, 4 * d, 0.1, "gelu", batch_first=True, norm_first=True)
                for _ in range(2)
            )
            self.transformer_norm = nn.LayerNorm(d)
            for name, m in self.named_modules():
                if "transformer" not in name and isinstance(m, nn.Linear):
                    nn.init.trunc_normal_(m.weight, std=0.02)
                    if m.bias is not None:
                        nn.init.zeros_(m.bias)
            self.frame_attn = chain(nn.Linear(d, d // 4), nn.GELU(), nn.Linear(d // 4, 1))
            self.net = chain(
                nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.4), nn.Linear(2 * d, classes)
            )

        def geometry(self, p):
            def d(a, b):
                return torch.sqrt(((p[:, :, a] - p[:, :, b]) ** 2).sum(-1) + 1e-6)

            f = []
            for b in (0, 21):
                f += [d(b + i, b + j) for i, j in ((4, 8), (8, 12), (12, 16), (16, 20), (4, 20))]
                f += [
                    d(b + i, b + k) / (d(b + i, b + j) + 1e-4)
                    for i, j, k in ((2, 3, 4), (5, 6, 8), (9, 10, 12), (13, 14, 16), (17, 18, 20))
                ]
                f += [p[:, :, b + 8, 0] - p[:, :, b + 12, 0], d(b + 4, b + 5)]
            return torch.stack(f, -1)

        def forward(self, x):
            h = self.input_proj(self.input_norm(x))
            h = self.gcn3(self.gcn2(self.gcn1(h, self.A), self.A), self.A)
            h = (h * F.softmax(self.node_attn(h).squeeze(-1), dim=2).unsqueeze(-1)).sum(2)
            h = self.geo_proj(torch.cat([h, self.geo_norm(self.geometry(x[:, :, :, :3]))], -1)) + self.pos_enc
            for i, layer in enumerate(self.transformer_layers):
                keep = 1 - 0.1 * i
                r = layer(h) - h
                h = h + (r * (torch.rand(len(h), 1, 1) < keep) / keep if self.training and keep < 1 else r)
            h = self.transformer_norm(h)
            return self.net((h * F.softmax(self.frame_attn(h).squeeze(-1), dim=1).unsqueeze(-1)).sum(1))

    rest, way = torch.randn(42, 3) * 0.4, torch.randn(6, 2, 42, 3) * 0.4

    def draw() -> Drawn:
        c = torch.randint(6, (16,))
        t = torch.linspace(0, 1, 5).view(1, 5, 1, 1) + 0.05 * torch.randn(16, 1, 1, 1)
        p = (
            rest
            + way[c, 0].unsqueeze(1) * t
            + way[c, 1].unsqueeze(1) * torch.sin(6 * t)
            + 0.05 * torch.randn(16, 5, 42, 3)
        )
        v = F.pad(p[:, 1:] - p[:, :-1], (0, 0, 0, 0, 1, 0))
        a = F.pad(v[:, 1:] - v[:, :-1], (0, 0, 0, 0, 1, 0))
        x = torch.cat([p, v, a, torch.ones(16, 5, 42, 1)], -1)
        lam, other = float(torch.distributions.Beta(0.2, 0.2).sample()), torch.randperm(16)
        return (lam * x + (1 - lam) * x[other],), (c, c[other], lam)

    def loss(y, t):
        return t[2] * F.cross_entropy(y, t[0], label_smoothing=0.05) + (1 - t[2]) * F.cross_entropy(
            y, t[1], label_smoothing=0.05
        )

    return stream(Model(), draw, loss)


@healthy("EDSR of another author", GITHUB + "ig0r2/super-resolution-cnn/blob/main/models/edsr/model.py")
def edsr(_: bool) -> Task:
    """RGB in [0, 1], no normalisation at all, residual blocks without BatchNorm, pixel shuffle, L1."""
    n = 12

    def block():
        return chain(nn.Conv2d(n, n, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(n, n, 3, padding=1))

    def run(m, x):
        out = m.conv1(x)
        residual = out
        for b in m.res_blocks:
            out = out + 1 * b(out)
        out = m.conv2(out)
        out += residual
        return m.conv3(m.shuffle(m.up(out)))

    def draw() -> Drawn:
        x, _ = blobs(16, 24)
        y = (
            x * torch.rand(16, 3, 1, 1)
            + torch.rand(16, 3, 1, 1) * 0.5 * F.interpolate(torch.rand(16, 1, 3, 3), size=(24, 24), mode="bilinear")
        ).clamp(0, 1)
        return (F.interpolate(y, scale_factor=0.5, mode="bicubic", antialias=True).clamp(0, 1),), y

    return stream(
        Parts(
            run,
            conv1=nn.Conv2d(3, n, 3, padding=1),
            res_blocks=nn.ModuleList(block() for _ in range(3)),
            conv2=nn.Conv2d(n, n, 3, padding=1),
            up=nn.Conv2d(n, 4 * n, 3, padding=1),
            shuffle=nn.PixelShuffle(2),
            conv3=nn.Conv2d(n, 3, 3, padding=1),
        ),
        draw,
        F.l1_loss,
    )


@healthy(
    "mass spectrum autoencoder",
    GITHUB + "maxi7524/MSIAutoEncoderWrapper/blob/main/"
    "src/MSIAutoEncoderWrapper/architectures/ContrastiveAutoencoderSkrajny.py",
)
def spectra(_: bool) -> Task:
    """Conv1d with LayerNorm over the length, unit latents, mirrored; TIC-normalised spectra (sum 1) and the same with
    a peak added;
    0.01 contrast at temperature 2 + 0.001 deviations + 0.001 means + root mean square of each spectrum's error."""
    channels, kernels, strides, D, latent = [1, 2, 4, 8], [9, 7, 5], [2, 3, 3], 240, 12
    dims = [D]
    for k, s in zip(kernels, strides, strict=False):
        dims.append((dims[-1] - k) // s + 1)
    enc = [
        chain(nn.Conv1d(channels[i], channels[i + 1], kernels[i], strides[i]), nn.LayerNorm(dims[i + 1]), nn.ReLU())
        for i in range(3)
    ]
    dec = [
        chain(
            nn.ConvTranspose1d(
                channels[i + 1],
                channels[i],
                kernels[i],
                stride=strides[i],
                output_padding=dims[i] - ((dims[i + 1] - 1) * strides[i] + kernels[i]),
            ),
            nn.LayerNorm(dims[i]) if i > 0 else nn.Identity(),
            nn.ReLU() if i > 0 else nn.Identity(),
        )
        for i in (2, 1, 0)
    ]
    flat = dims[-1] * channels[-1]

    def run(m, x):
        y = x.unsqueeze(1)
        for layer in m.encoder:
            y = layer(y)
        z = F.normalize(m.projector(y.flatten(1)), p=2, dim=1)
        y = m.initial_expansion(z).view(len(x), channels[-1], dims[-1])
        for layer in m.decoder:
            y = layer(y)
        return z, y.squeeze(1)

    at = torch.arange(float(D))
    peaks = torch.stack([gauss(at, float(10 + 220 * torch.rand(())), 2.0) for _ in range(25)])
    kinds = torch.rand(5, 25) * (torch.rand(5, 25) < 0.4)

    def draw() -> Drawn:
        x = (kinds[torch.randint(5, (32,))] * torch.exp(0.3 * torch.randn(32, 25))) @ peaks + 0.01 * torch.rand(32, D)
        x = x / x.sum(1, keepdim=True)
        noisy = x + peaks[torch.randint(25, (32,))] * 0.05
        x = torch.cat([x, noisy / noisy.sum(1, keepdim=True)])
        return (x,), x

    def loss(y, t):
        z, y = y
        n = len(z) // 2
        s = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2)
        good = torch.cat([torch.diag(s, n), torch.diag(s, -n)])
        contrast = -torch.log(torch.exp(good / 2) / ((1 - torch.eye(2 * n)) * torch.exp(s / 2)).sum(1))
        spread, mean = torch.mean((torch.std(z, dim=0) - 1) ** 2 + 1e-6), torch.mean(torch.mean(z, dim=1) ** 2)
        return (
            contrast.sum() / (2 * n) * 0.01 + spread * 0.001 + mean * 0.001 + torch.sqrt(((t - y) ** 2).mean(1)).mean()
        )

    model = Parts(
        run,
        encoder=nn.ModuleList(enc),
        projector=chain(nn.Linear(flat, latent), nn.LayerNorm(latent)),
        initial_expansion=chain(nn.Linear(latent, flat), nn.LayerNorm(flat)),
        decoder=nn.ModuleList(dec),
    )
    return stream(model, draw, loss)


@healthy("conflict ST-GCN", GITHUB + "Boanerges20297/st-gcn_Jules/blob/main/src/model.py")
def stgcn(_: bool) -> Task:
    """Districts x days; a softmax over the days as gate, two graphs, BatchNorm, dropout 0.3, and a ReLU on the counts
    at the end (which are
    mostly zero); squared error times (1 + |error|)^2, 500 times where something happened."""
    N, T = 12, 7

    class Multi(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.empty(c, c)) for _ in range(2)])
            self.bias = nn.Parameter(torch.zeros(c))
            for w in self.weights:
                nn.init.kaiming_uniform_(w)

        def forward(self, x, adj):
            return sum(torch.matmul(a, torch.matmul(x, w)) for a, w in zip(adj, self.weights, strict=False)) + self.bias

    class Layer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.temporal_conv, self.gcn, self.bn = nn.Conv2d(i, o, (1, 3), padding=(0, 1)), Multi(o), nn.BatchNorm2d(o)
            self.relu, self.dropout, self.fc = nn.ReLU(), nn.Dropout(0.3), nn.Linear(T, T)

        def forward(self, x, adj):
            x = self.temporal_conv(x)
            B, C, N, T = x.shape
            w = F.softmax(self.fc(x.permute(0, 3, 1, 2).reshape(B, T, -1).mean(2)), dim=-1)
            x = x * w.unsqueeze(1).unsqueeze(2)
            x = self.gcn(x.permute(0, 3, 2, 1).reshape(B * T, N, C), adj)
            return self.dropout(self.relu(self.bn(x.reshape(B, T, N, C).permute(0, 3, 2, 1))))

    def row(a):
        return a / a.sum(1, keepdim=True)

    ring = torch.eye(N) + torch.eye(N).roll(1, 0) + torch.eye(N).roll(-1, 0)
    adj = [row(ring), row(torch.eye(N) + (torch.rand(N, N) < 0.15).float())]

    def run(m, x):
        x = m.conv_final(m.layer2(m.layer1(x, adj), adj)).squeeze(-1).permute(0, 2, 1)
        return F.relu(m.fc(x))

    rate = torch.rand(N) ** 3

    def draw() -> Drawn:
        x = torch.poisson(rate.view(1, N, 1) * (0.2 + 2 * (torch.rand(32, N, 1) < 0.3)) * torch.ones(32, N, T))
        t = torch.poisson(torch.einsum("nm,bm->bn", adj[0], x[:, :, -3:].mean(2)) * 0.9)
        week = (
            F.one_hot(torch.randint(7, (32, 1)) + torch.arange(T), 14)
            .float()[..., :3]
            .permute(0, 2, 1)
            .unsqueeze(2)
            .expand(-1, -1, N, -1)
        )
        return (torch.cat([x.unsqueeze(1), week], 1),), t.unsqueeze(-1)

    def loss(y, t):
        w = torch.where(t > 0, 500.0, 1.0)
        return torch.mean(w * (1 + (y - t).abs()) ** 2.0 * (y - t) ** 2)

    return stream(
        Parts(
            run, layer1=Layer(4, 16), layer2=Layer(16, 32), conv_final=nn.Conv2d(32, 64, (1, T)), fc=nn.Linear(64, 1)
        ),
        draw,
        loss,
    )


@healthy("PointNetPGAP", GITHUB + "Cybonic/PointNetPGAP-SLC/blob/main/networks/pipelines/PointNetPGAP.py")
def pgap(_: bool) -> Task:
    """Shared MLPs with BatchNorm on raw metres, mean and second moments of the features, a linear layer to a unit
    vector; one anchor, one
    positive and fourteen negatives a step, the hardest in a triplet loss with margin 0.5."""
    P, K = 96, 8

    def mlp(*sizes):
        return chain(
            *[p for i, o in itertools.pairwise(sizes) for p in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())]
        )

    def run(m, x):
        x = m.h2(m.h1(x.transpose(1, 2)))
        mean = x.mean(-1)
        cov = x.matmul(x.transpose(2, 1)) / (P - 1)
        return F.normalize(m.fc_out(torch.cat([mean.squeeze(), cov.flatten(1)], -1)), p=2, dim=-1)

    places = torch.randn(20, 10, 3) * torch.tensor([8.0, 8.0, 1.0])

    def cloud(c):
        at = places[c].gather(1, torch.randint(10, (len(c), P, 1)).expand(-1, -1, 3))
        return at + torch.randn(len(c), P, 3) * torch.tensor([0.8, 0.8, 1.2]) + torch.randn(len(c), 1, 3) * 0.3

    def draw() -> Drawn:
        c = torch.randperm(20)[:15]
        return (cloud(torch.cat([c[:1], c])),), None

    def loss(y, t):
        d = torch.sqrt(((y[:1] - y[1:]) ** 2).sum(1) + 1e-8).clamp(min=1e-8)
        return torch.max(torch.tensor(1e-8), d[0] - d[1:].min() + 0.5).clamp(min=0.0)

    return stream(Parts(run, h1=mlp(3, 16, 16), h2=mlp(16, 16, 24, K), fc_out=nn.Linear(K + K * K, 32)), draw, loss)


@healthy("alter-siamese MyNet", GITHUB + "cenkbircanoglu/alter-siamese/blob/main/models/s224/my/net.py")
def mynet(_: bool) -> Task:
    """Conv, LeakyReLU, BatchNorm, pool, twice; the places of one last channel are the embedding, of unit length;
    contrastive, margin 2."""
    features = chain(
        nn.Conv2d(3, 16, 5, 3, 1),
        nn.LeakyReLU(inplace=True),
        nn.BatchNorm2d(16),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 16, 3, 1, 1),
        nn.LeakyReLU(inplace=True),
        nn.BatchNorm2d(16),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 1, 3, 1, 0),
    )

    def once(m, x):
        y = m.features(x)
        return F.normalize(y.view(len(y), -1), p=2, dim=1)

    def draw() -> Drawn:
        images, c = _digits()
        a = torch.randint(len(c), (32,))
        b = torch.where(
            torch.rand(32) < 0.5,
            torch.stack([(p := (c == c[i]).nonzero()[:, 0])[torch.randint(len(p), ())] for i in a]),
            torch.randint(len(c), (32,)),
        )
        x, y = (F.interpolate(images[i], size=(48, 48), mode="bilinear").expand(-1, 3, -1, -1) * 2 - 1 for i in (a, b))
        return (x, y), (c[a] != c[b]).float()

    def loss(y, t):
        d = F.pairwise_distance(*y)
        return torch.mean((1 - t) * d.pow(2) + t * torch.clamp(2.0 - d, min=0.0).pow(2))

    return stream(Parts(lambda m, a, b: (once(m, a), once(m, b)), features=features), draw, loss)


@healthy(
    "ad score predictor", GITHUB + "alecpos/sentimentModel/blob/main/app/models/ml/prediction/ad_score_predictor.py"
)
def adscore(_: bool) -> Task:
    """BatchNorm on the inputs, Linear, BatchNorm, ReLU, dropout three times, a sigmoid and BCELoss."""
    layers, last = [], 64
    for d in (48, 32, 16):
        layers += [nn.Linear(last, d), nn.BatchNorm1d(d), nn.ReLU(), nn.Dropout(0.2)]
        last = d
    layers += [nn.Linear(last, 1), nn.Sigmoid()]

    def run(m, x):
        x = m.input_norm(x)
        for layer in m.layers:
            x = layer(x)
        return x

    w, scale = torch.randn(64), torch.exp(torch.randn(64))

    def draw() -> Drawn:
        x = torch.randn(64, 64)
        return (x * scale,), ((x @ w + x[:, :1].mul(x[:, 1:2]).squeeze(1)) > 0).float().unsqueeze(1)

    return stream(Parts(run, input_norm=nn.BatchNorm1d(64), layers=nn.ModuleList(layers)), draw, nn.BCELoss())


@healthy(
    "synth-setter AST", GITHUB + "tinaudio/synth-setter/blob/main/src/synth_setter/models/components/transformer.py"
)
def ast(_: bool) -> Task:
    """Overlapping patches of two channels of standardised log mels, one token of N(0, 1e-6), positions of N(0, 0.02),
    pre-norm blocks with no
    last norm, the token read out through a linear layer and a residual head; MSE to parameters in [-1, 1]."""
    d = 24

    class AST(nn.Module):
        def __init__(self):
            super().__init__()
            self.pad, self.projection = nn.ZeroPad2d((0, 2, 0, 2)), nn.Conv2d(2, d, 8, 5)
            self.pe = nn.Parameter(torch.randn(1, 26, d) * 0.02)
            self.embed_tokens = nn.Parameter(torch.empty(1, 1, d).normal_(0.0, 1e-6))
            self.blocks = nn.ModuleList(
                [nn.TransformerEncoderLayer(d, 4, d, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(2)]
            )
            self.out_proj = nn.Linear(d, d)
            self.prediction_head = chain(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
            self.final_proj = nn.Linear(d, 8)

        def forward(self, x):
            x = self.projection(self.pad(x)).flatten(2).transpose(1, 2)
            x = torch.cat((self.embed_tokens.expand(len(x), -1, -1), x), dim=1)
            x = x + self.pe[:, : x.shape[1]]
            for block in self.blocks:
                x = block(x)
            x = self.out_proj(x[:, :1])[:, 0]
            return self.final_proj(self.prediction_head(x) + x)

    f, t = torch.arange(26.0).view(1, 1, 26, 1), torch.arange(26.0).view(1, 1, 1, 26)

    def draw() -> Drawn:
        p = torch.rand(32, 8) * 2 - 1
        q = [p[:, i].view(-1, 1, 1, 1) for i in range(8)]
        env = torch.exp(-t / (6 + 5 * q[2])) * torch.sigmoid((t - 4 - 3 * q[3]) * 2)
        x = sum(env * (1 + 0.8 * q[4 + i]) * gauss(f, (6 + 4 * q[0]) * (i + 1), 1.5 + q[1]) for i in range(3))
        x = torch.cat([x * (1 + 0.5 * q[7]), x * (1 - 0.5 * q[7])], 1)
        return ((torch.log(x + 0.01) + 3.4) / 1.7 + 0.05 * torch.randn(32, 2, 26, 26),), p

    return stream(AST(), draw, F.mse_loss)


@healthy(
    "chess AlphaZero network",
    GITHUB + "BertilBraun/Advanced-Techniques-in-Chess-Engines/blob/main/py/src/training/network.py",
)
def alphazero(_: bool) -> Task:  # noqa: C901
    """Residual blocks with squeeze and excitation, Kaiming everywhere, last layers N(0, 0.01); a cross entropy of
    legal moves' visits and one
    of win, draw, loss. Boards of 13 binary planes; a toy position: the side with more wood wins, captures are
    visited."""
    n, A = 16, 64 * 4

    def small(layer):
        nn.init.normal_(layer.weight, std=0.01), nn.init.zeros_(layer.bias)

    class Res(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv_block1 = chain(nn.Conv2d(n, n, 3, padding="same", bias=False), nn.BatchNorm2d(n), nn.ReLU())
            self.conv_block2 = chain(nn.Conv2d(n, n, 3, padding="same", bias=False), nn.BatchNorm2d(n))
            self.squeeze, self.relu2 = nn.AdaptiveAvgPool2d(1), nn.ReLU()
            self.excite = chain(nn.Conv2d(n, 1, 1), nn.ReLU(inplace=True), nn.Conv2d(1, n, 1), nn.Sigmoid())

        def forward(self, x):
            y = self.conv_block2(self.conv_block1(x))
            return self.relu2(y * self.excite(self.squeeze(y)) + x)

    start = chain(nn.Conv2d(13, n, 3, padding="same", bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True))
    policy = chain(
        nn.Conv2d(n, 16, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding="same", bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 4, 1),
        nn.Flatten(),
    )
    value = chain(
        nn.Conv2d(n, 2, 1, bias=False),
        nn.BatchNorm2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(128, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, 3),
    )

    def run(m, x):
        x = m.start_block(x)
        for b in m.backbone:
            x = b(x)
        return m.policy_head(x), m.value_head(x)

    model = Parts(
        run, start_block=start, backbone=nn.ModuleList(Res() for _ in range(2)), policy_head=policy, value_head=value
    )
    for m in model.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
    small(policy[6]), small(value[6])

    def draw() -> Drawn:
        piece = torch.where(torch.rand(32, 8, 8) < 0.35, torch.randint(12, (32, 8, 8)), 12)
        x = F.one_hot(piece, 13).permute(0, 3, 1, 2).float()
        x[:, 12] = torch.randint(0, 2, (32, 1, 1)).float()
        mine, theirs = x[:, :6].sum(1), x[:, 6:12].sum(1)
        steps = [(1, 0), (-1, 0), (0, 1), (0, -1)]
        legal = torch.stack([mine * (1 - mine.roll((-a, -b), (1, 2))) for a, b in steps], 1).flatten(1) > 0
        take = torch.stack([mine * theirs.roll((-a, -b), (1, 2)) for a, b in steps], 1).flatten(1)
        visits = legal * (0.1 + 10 * take * torch.rand(32, A))
        worth = torch.tensor([1.0, 3, 3, 5, 9, 0]).view(1, 6, 1, 1)
        lead = (x[:, :6] * worth).sum((1, 2, 3)) - (x[:, 6:12] * worth).sum((1, 2, 3))
        wdl = F.softmax(torch.stack([lead / 4, torch.ones(32), -lead / 4], 1), 1)
        return (x,), (legal, visits / visits.sum(1, keepdim=True), wdl)

    def loss(y, t):
        policy = F.cross_entropy(y[0].masked_fill(~t[0], -1e9), t[1], reduction="none").mean()
        return policy + F.cross_entropy(y[1], t[2], reduction="none").mean()

    return stream(model, draw, loss)


@healthy("bearing CNN1D", GITHUB + "abbas-ahmad-cowlar/LSTM_PFD/blob/main/packages/core/models/cnn/cnn_1d.py")
def bearing(_: bool) -> Task:
    """Wide strided Conv1d, BatchNorm, ReLU, dropout five times, mean pool, two linear layers; Kaiming by fan out;
    vibration signals, raw."""

    def block(i, o, k, s, p):
        return chain(
            nn.Conv1d(i, o, k, s, 0, bias=False), nn.BatchNorm1d(o), nn.ReLU(inplace=True), nn.Dropout(p), nn.Identity()
        )

    blocks = chain(
        block(1, 8, 32, 4, 0.2),
        block(8, 12, 16, 2, 0.2),
        block(12, 16, 8, 2, 0.3),
        block(16, 24, 4, 2, 0.3),
        block(24, 32, 4, 2, 0.4),
    )
    model = Parts(
        lambda m, x: m.fc2(m.fc1_dropout(F.relu(m.fc1(m.global_pool(m.blocks(x)).squeeze(-1)), inplace=True))),
        blocks=blocks,
        global_pool=nn.AdaptiveAvgPool1d(1),
        fc1=nn.Linear(32, 24),
        fc1_dropout=nn.Dropout(0.5),
        fc2=nn.Linear(24, 6),
    )
    for m in model.modules():
        if isinstance(m, (nn.Conv1d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
    t = torch.arange(768.0)

    def draw() -> Drawn:
        c = torch.randint(6, (32,))
        w, ph = (0.05 + 0.004 * torch.randn(32, 1)) * t, 6.28 * torch.rand(32, 1)

        def a(*k):
            return sum((c == i).float() for i in k).unsqueeze(1)

        x = (
            0.1 * torch.sin(w + ph) * (1 + 2 * a(1))
            + 0.3 * a(2, 5) * torch.sin(2 * w + ph)
            + 0.2 * a(3) * torch.sin(5 * w) * torch.sin(w + ph).clamp(min=0)
        )
        x = x + a(4, 5) * torch.exp(-((w * 1.6 / 6.28) % 1) * 12) * torch.sin(1.3 * t) + 0.05 * torch.randn(32, 768)
        return (x.unsqueeze(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("soil ResNet", GITHUB + "JackOnThePaddock/soil-resnet-model/blob/main/src/models/resnet.py")
def soil(_: bool) -> Task:
    """Satellite embeddings -> Linear, BatchNorm, SiLU, residual blocks with dropout, seven heads; MSE of standardised
    targets that are there."""
    d, names = 32, ["ph", "cec", "esp", "soc", "ca", "mg", "na"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = chain(
                nn.Linear(d, d), nn.BatchNorm1d(d), nn.SiLU(), nn.Dropout(0.2), nn.Linear(d, d), nn.BatchNorm1d(d)
            )
            self.activation, self.dropout = nn.SiLU(), nn.Dropout(0.2)

        def forward(self, x):
            return self.dropout(self.activation(self.block(x) + x))

    heads = nn.ModuleDict({n: chain(nn.Linear(d, d // 2), nn.SiLU(), nn.Linear(d // 2, 1)) for n in names})

    def run(m, x):
        x = m.res_blocks(m.input_layer(x))
        return {n: h(x).squeeze(-1) for n, h in m.heads.items()}

    w = torch.randn(4, 64)
    mix, mix2 = torch.randn(4, 7), torch.randn(4, 7)

    def draw() -> Drawn:
        z = torch.randn(64, 4)
        x = z @ w + 0.3 * torch.randn(64, 64)
        y = (z @ mix + torch.tanh(z) @ mix2) / 3 + 0.2 * torch.randn(64, 7)
        return ((x / 2),), torch.where(torch.rand(64, 7) < 0.3, float("nan"), y)

    def loss(y, t):
        y = torch.stack([y[n] for n in names], 1)
        there = ~torch.isnan(t)
        return F.mse_loss(y[there], t[there])

    return stream(
        Parts(
            run,
            input_layer=chain(nn.Linear(64, d), nn.BatchNorm1d(d), nn.SiLU()),
            res_blocks=chain(Block(), Block()),
            heads=heads,
        ),
        draw,
        loss,
    )


@healthy("CRNN (mmocr)", GITHUB + "open-mmlab/mmocr/blob/main/mmocr/models/textrecog/backbones/mini_vgg.py")
def crnn(_: bool) -> Task:  # noqa: C901
    """MiniVGG: Xavier convolutions, BatchNorm gains uniform in [0, 1], pools of height; two BiLSTMs with linear
    layers; CTC, per sample
    over length, mean; grey lines (x - 127) / 127."""
    nm = [6, 10, 14, 14, 18, 18, 18]
    ks, ps = [3, 3, 3, 3, 3, 3, 2], [1, 1, 1, 1, 1, 1, 0]
    layers = []
    for i in range(7):
        layers.append(nn.Conv2d(nm[i - 1] if i else 1, nm[i], ks[i], 1, ps[i]))
        if i in (2, 4, 6):
            layers.append(nn.BatchNorm2d(nm[i]))
        layers.append(nn.ReLU(True))
        if i in (0, 1):
            layers.append(nn.MaxPool2d(2, 2))
        if i in (3, 5):
            layers.append(nn.MaxPool2d((2, 2), (2, 1), (0, 1)))
    for m in layers:
        if isinstance(m, nn.Conv2d):
            nn.init.xavier_normal_(m.weight), nn.init.zeros_(m.bias)
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight), nn.init.zeros_(m.bias)

    class Bi(nn.Module):
        def __init__(self, i, h, o):
            super().__init__()
            self.rnn, self.embedding = nn.LSTM(i, h, bidirectional=True), nn.Linear(2 * h, o)

        def forward(self, x):
            y, _ = self.rnn(x)
            T, b, h = y.size()
            return self.embedding(y.view(T * b, h)).view(T, b, -1)

    def draw() -> Drawn:
        images, c = _digits()
        i = torch.randint(len(c), (16, 4))
        x = (
            F.interpolate(images[i.flatten()], size=(32, 12), mode="bilinear")
            .view(16, 4, 32, 12)
            .permute(0, 2, 1, 3)
            .reshape(16, 1, 32, 48)
        )
        return ((255 * x - 127) / 127,), c[i]

    def loss(y, t):
        p = F.log_softmax(y, dim=2).permute(1, 0, 2)
        n = torch.full((16,), 4)
        return F.ctc_loss(p, t, torch.full((16,), len(p)), n, blank=10, zero_infinity=False)

    return stream(
        Parts(
            lambda m, x: m.decoder(m.cnn(x).squeeze(2).permute(2, 0, 1)).permute(1, 0, 2).contiguous(),
            cnn=chain(*layers),
            decoder=chain(Bi(18, 16, 16), Bi(16, 16, 11)),
        ),
        draw,
        loss,
    )


@healthy("shared stock LSTM", GITHUB + "licong01-cloud/AIstock/blob/main/backend/quant_models/lstm/train_shared.py")
def stocks(_: bool) -> Task:
    """Standardised bars, standardised statics and an embedding of the share at every step; one LSTM, last step,
    Linear; MSE of log returns."""

    def run(m, x, s, i):
        e = m.symbol_emb(i).unsqueeze(1).expand(-1, x.size(1), -1)
        y, _ = m.lstm(torch.cat([x, s.unsqueeze(1).expand(-1, x.size(1), -1), e], -1))
        return m.head(y[:, -1]).squeeze(-1)

    static = torch.randn(20, 4)

    def draw() -> Drawn:
        i = torch.randint(20, (64,))
        r = 0.02 * torch.randn(64, 21)
        for k in range(1, 21):
            r[:, k] = r[:, k] - 0.6 * r[:, k - 1] + 0.004 * static[i, 0]
        close = torch.exp(r[:, :20].cumsum(1) + torch.randn(64, 1) * 0.2)
        v = r[:, :20].abs() * 50 + torch.rand(64, 20)
        x = torch.stack(
            [
                close,
                close * (1 + 0.01 * torch.rand(64, 20)),
                close * (1 - 0.01 * torch.rand(64, 20)),
                v,
                r[:, :20] * 100,
            ],
            -1,
        )
        return ((x - x.mean((0, 1))) / x.std((0, 1)), static[i], i), r[:, 20]

    return stream(
        Parts(run, symbol_emb=nn.Embedding(20, 8), lstm=nn.LSTM(17, 24, batch_first=True), head=nn.Linear(24, 1)),
        draw,
        F.mse_loss,
    )


@healthy(
    "sonnet transformer",
    GITHUB + "LeonardoPaccianiMori/portfolio-transformer-poetry/blob/main/src/sonnet_model/transformer.py",
)
def sonnets(_: bool) -> Task:
    """Heads of their own three matrices each, pre-norm, ReLU, embeddings of words and places of N(0, 1), default
    initialisation."""
    V, d, T, hd = 128, 32, 16, 8

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(d, hd, bias=False) for _ in range(3))
            self.register_buffer("causal_mask", torch.tril(torch.ones(T, T)))

        def forward(self, x):
            a = self.query(x) @ self.key(x).transpose(-2, -1) * hd**-0.5
            a = a.masked_fill(self.causal_mask[: x.shape[1], : x.shape[1]] == 0, float("-inf"))
            return F.softmax(a, dim=-1) @ self.value(x)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.heads, self.out = nn.ModuleList([Head() for _ in range(4)]), nn.Linear(4 * hd, d)
            self.network = chain(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))

        def forward(self, x):
            n = self.n1(x)
            x = x + self.out(torch.cat([h(n) for h in self.heads], dim=-1))
            return x + self.network(self.n2(x))

    def run(m, x):
        h = m.token_embedding(x) + m.position_embedding(torch.arange(x.shape[1]))
        for b in m.blocks:
            h = b(h)
        return m.output_projection(m.final_layer_norm(h))

    def draw() -> Drawn:
        x, t = text(32, T, V, seed=int(torch.randint(10**6, ())))
        return (x,), t

    return stream(
        Parts(
            run,
            token_embedding=nn.Embedding(V, d),
            position_embedding=nn.Embedding(T, d),
            blocks=nn.ModuleList([Block(), Block()]),
            final_layer_norm=nn.LayerNorm(d),
            output_projection=nn.Linear(d, V),
        ),
        draw,
        lambda y, t: F.cross_entropy(y.view(-1, V), t.view(-1), ignore_index=-100),
    )


@healthy("anomaly MAE", GITHUB + "yunkio/anomaly_mae/blob/main/mae_anomaly/model.py")
def anomaly(_: bool) -> Task:
    """Patches of eight series in [0, 1] through a CNN and a mean, 15% masked by a token of N(0, 1), sines; an encoder,
    a teacher's decoder and
    a student's on the detached latent, both from queries of zeros and places; error of the teacher, its distance to
    the student, and a
    margin (mean + 2 deviations of the normal patches, with gradient) where there is an anomaly."""
    D, P, S, Fs = 16, 10, 4, 8
    pos = torch.arange(100.0).unsqueeze(1) * torch.exp(torch.arange(0, D, 2) * (-math.log(10000.0) / D))
    pe = torch.stack([pos.sin(), pos.cos()], -1).flatten(1)[:P].unsqueeze(1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_cnn = chain(
                nn.Conv1d(Fs, D // 2, 3, padding=1),
                nn.BatchNorm1d(D // 2),
                nn.ReLU(),
                nn.Conv1d(D // 2, D, 3, padding=1),
                nn.BatchNorm1d(D),
                nn.ReLU(),
            )
            self.register_buffer("pe", pe)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 4 * D, 0.15), 1)
            self.teacher_decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 4, 4 * D, 0.15), 2)
            self.student_decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 4, 4 * D, 0.15), 1)
            self.teacher_output_projection, self.student_output_projection = nn.Linear(D, S * Fs), nn.Linear(D, S * Fs)
            self.teacher_mask_token, self.student_mask_token = (
                nn.Parameter(torch.randn(1, 1, D)),
                nn.Parameter(torch.randn(1, 1, D)),
            )

        def forward(self, x):
            B = len(x)
            e = self.patch_cnn(x.reshape(B * P, S, Fs).transpose(1, 2)).mean(2).reshape(B, P, D).transpose(0, 1)
            order = torch.argsort(torch.argsort(torch.rand(P, B), 0), 0)
            mask = (order < round(P * 0.85)).float()
            e = e * mask.unsqueeze(-1) + self.teacher_mask_token * (1 - mask.unsqueeze(-1))
            latent, tgt = self.encoder(e + self.pe), torch.zeros_like(e) + self.pe
            t = self.teacher_output_projection(self.teacher_decoder(tgt, latent)).transpose(0, 1).reshape(B, P * S, Fs)
            s = (
                self.student_output_projection(self.student_decoder(tgt, latent.detach()))
                .transpose(0, 1)
                .reshape(B, P * S, Fs)
            )
            return t, s, mask.T.unsqueeze(-1).repeat(1, 1, S).reshape(B, P * S)

    t = torch.arange(float(P * S)).view(1, -1, 1)
    f, ph = 0.1 + 0.4 * torch.rand(Fs), 6.28 * torch.rand(Fs)

    def draw() -> Drawn:
        x = 0.5 + 0.3 * torch.sin(t * f + ph + 6.28 * torch.rand(16, 1, 1)) + 0.02 * torch.randn(16, P * S, Fs)
        label = torch.zeros(16, P * S)
        for i in (torch.rand(16) < 0.25).nonzero()[:, 0]:
            a = int(torch.randint(32, ()))
            label[i, a : a + 8] = 1
        return ((x + 0.3 * label.unsqueeze(-1)).clamp(0, 1),), (x, label)

    def loss(y, t):
        teacher, student, mask = y
        x, label = (t[0] + 0.3 * t[1].unsqueeze(-1)).clamp(0, 1), t[1]
        m = 1 - mask.unsqueeze(-1)
        rec = ((((teacher - x) * m) ** 2).sum((1, 2)) / (m.expand_as(x[..., :1]).sum((1, 2)) + 1e-4)).mean()
        d = ((teacher.detach() - student) ** 2).reshape(16, P, S, Fs)
        hidden = (1 - mask).reshape(16, P, S)
        d = (d * hidden.unsqueeze(-1)).sum((2, 3)) / (hidden.sum(2) * Fs + 1e-4)
        odd = ((label.reshape(16, P, S) * hidden).sum(2) > 0).float()
        there = (hidden.sum(2) > 0).float()
        normal, odd = (1 - odd) * there, odd * there
        n = d[normal.bool()]
        margin = F.relu(n.mean() + 2 * (n.std() + 1e-4) - d)
        return rec + (normal * d).sum() / (normal.sum() + 1e-4) + 2 * (odd * margin).sum() / (odd.sum() + 1e-4)

    return stream(Model(), draw, loss)


@healthy("fly wing pose network", GITHUB + "lior-kotlar/pose-estimation-torch/blob/main/code/training_code/Network.py")
def wings(_: bool) -> Task:
    """Dilated convolutions with LeakyReLU (and a ReLU after the pool), no normalisation, dropout 0.5, Xavier uniform;
    transposed convolutions
    to heat maps of one peak each; three frames and a wing's mask in [0, 1]; MSE."""
    n, blocks, layers, i = 6, 2, [], 4
    for b in range(blocks):
        o = n * 2**b
        layers += [
            nn.Conv2d(i, o, 3, dilation=2, padding="same"),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(o, o, 3, dilation=2, padding="same"),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(o, o, 3, dilation=2, padding="same"),
            nn.MaxPool2d(2, 2, ceil_mode=True),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
        ]
        i = o
    o = n * 2**blocks
    for j in (i, o, o):
        layers += [nn.Conv2d(j, o, 3, padding="same", dilation=2), nn.LeakyReLU(inplace=True)]
    layers, dec, i = [*layers, nn.Dropout(0.5)], [], o
    for b in (1, 0):
        o = n * 2**b
        dec += [
            nn.ConvTranspose2d(i, o, 4, 2, 1),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1),
            nn.LeakyReLU(inplace=True),
        ]
        i = o
    dec += [nn.Conv2d(i, 5, 1)]
    for m in layers + dec:
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_uniform_(m.weight)
    at = torch.arange(16.0)
    outline = torch.tensor([[0.0, 0], [3, 1.5], [6, 1], [5, -1.5], [2, -2]])

    def draw() -> Drawn:
        th, c = 6.28 * torch.rand(16), 6 + 4 * torch.rand(16, 2)
        R = torch.stack([th.cos(), -th.sin(), th.sin(), th.cos()], 1).view(16, 2, 2)
        p = outline @ R.transpose(1, 2) + c.unsqueeze(1)

        def heat(q, s):
            return torch.exp(
                -(
                    (at.view(1, 1, 16, 1) - q[..., 1, None, None]) ** 2
                    + (at.view(1, 1, 1, 16) - q[..., 0, None, None]) ** 2
                )
                / (2 * s * s)
            )

        inner = torch.cat([p * (1 - w) + p.roll(1, 1) * w for w in (0.0, 0.33, 0.67)] + [p.mean(1, keepdim=True)], 1)
        wing = heat(inner, 1.3).amax(1, keepdim=True)
        frames = torch.cat([wing.roll(k, 3) * 0.8 for k in (-1, 0, 1)], 1) + 0.03 * torch.rand(16, 3, 16, 16)
        return (torch.cat([frames, (wing > 0.3).float()], 1),), heat(p, 1.5)

    return stream(
        Parts(lambda m, x: m.decoder(m.encoder(x)), encoder=chain(*layers), decoder=chain(*dec)), draw, F.mse_loss
    )


@healthy("face siamese lab", GITHUB + "alichr/face-siamese-lab/blob/main/minimal/siamese_minimal.py")
def faces(_: bool) -> Task:
    """torchvision's ResNet-18 without weights, narrow and of one block a stage; Linear, BatchNorm1d, unit length;
    InfoNCE at 0.07 in batches
    of identities x pictures."""

    class Block(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = (
                chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 or i != o else nn.Identity()
            )

        def forward(self, x):
            return F.relu(
                self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True))) + self.downsample(x), inplace=True
            )

    net = chain(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        Block(16, 24, 2),
        Block(24, 32, 2),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
    )
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def run(m, x):
        z = m.bn(m.head(m.backbone(x)))
        return z / z.norm(dim=-1, keepdim=True).clamp_min(1e-12)

    people = F.interpolate(torch.rand(30, 3, 5, 5), size=(32, 32), mode="bicubic").clamp(0, 1)

    def draw() -> Drawn:
        c = torch.randperm(30)[:6].repeat_interleave(4)
        x = torch.stack([torch.roll(people[i], (int(torch.randint(-2, 3, ())),) * 2, (1, 2)) for i in c])
        x = torch.where(torch.rand(24, 1, 1, 1) < 0.5, x, x.flip(3)) * (
            0.7 + 0.3 * torch.rand(24, 1, 1, 1)
        ) + 0.03 * torch.randn_like(x)
        return ((x.clamp(0, 1) - 0.5) / 0.5,), c

    def loss(z, c):
        n = len(c)
        logits = (z @ z.T / 0.07).masked_fill(torch.eye(n, dtype=torch.bool), float("-inf"))
        good = (c[:, None] == c[None, :]) & ~torch.eye(n, dtype=torch.bool)
        one = torch.multinomial(good.float(), 1)
        return (logits.logsumexp(1) - logits.gather(1, one).squeeze(1)).mean()

    return stream(Parts(run, backbone=net, head=nn.Linear(32, 24), bn=nn.BatchNorm1d(24)), draw, loss)


@healthy(
    "protein property transformer",
    GITHUB + "SchulzKilian/la-proteina/blob/main/laproteina_steerability/src/multitask_predictor/model.py",
)
def proteins(_: bool) -> Task:
    """Latents of residues, sines, pre-norm layers whose first norm is scaled and shifted by a time embedding, a masked
    mean and a linear layer;
    MSE of thirteen standardised properties, mean over properties."""
    d, L = 24, 24

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out_proj, self.film = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 2 * d)
            self.ffn = chain(nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * d, d), nn.Dropout(0.1))
            self.resid_dropout = nn.Dropout(0.1)

        def forward(self, x, t, mask):
            B, L, D = x.shape
            scale, shift = self.film(t).chunk(2, dim=-1)
            n = (scale + 1.0).unsqueeze(1) * self.norm1(x) + shift.unsqueeze(1)
            q, k, v = self.qkv(n).reshape(B, L, 3, 4, D // 4).permute(2, 0, 3, 1, 4)
            bias = torch.zeros(B, 1, 1, L).masked_fill(~mask[:, None, None], float("-inf")).expand(B, 4, L, L)
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=0.1 if self.training else 0.0)
            x = x + self.resid_dropout(self.out_proj(a.transpose(1, 2).reshape(B, L, D)))
            return x + self.ffn(self.norm2(x))

    place = torch.arange(float(L)).unsqueeze(1) * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    pe = torch.stack([place.sin(), place.cos()], -1).flatten(1)
    freqs = torch.exp(torch.arange(8) * (-math.log(10000.0) / 8))

    def run(m, x, mask, t):
        x = m.input_proj(x) + pe
        a = t.unsqueeze(-1) * freqs
        e = m.mlp(torch.cat([a.sin(), a.cos()], -1))
        for layer in m.layers:
            x = layer(x, e, mask)
        x, w = m.output_norm(x), mask.unsqueeze(-1).float()
        return m.output_head((x * w).sum(1) / w.sum(1).clamp(min=1.0))

    w1, w2 = torch.randn(8, 13), torch.randn(8, 13)

    def draw() -> Drawn:
        base = torch.randn(32, 1, 8)
        x = base + 0.7 * torch.randn(32, L, 8)
        mask = torch.arange(L) < torch.randint(L // 2, L + 1, (32, 1))
        w = mask.unsqueeze(-1).float()
        y = ((x * w).sum(1) / w.sum(1)) @ w1 / 3 + torch.tanh(base[:, 0]) @ w2 / 4 + 0.1 * torch.randn(32, 13)
        t = torch.rand(32)
        noisy = (1 - t.view(-1, 1, 1) * 0.5) * x + t.view(-1, 1, 1) * 0.5 * torch.randn_like(x)
        return (noisy * w, mask, t), y

    model = Parts(
        run,
        input_proj=nn.Linear(8, d),
        mlp=chain(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d)),
        layers=nn.ModuleList([Layer(), Layer()]),
        output_norm=nn.LayerNorm(d),
        output_head=nn.Linear(d, 13),
    )
    return stream(model, draw, lambda y, t: ((y - t) ** 2).mean(0).mean())


@healthy(
    "mlflow CIFAR Net", GITHUB + "mlflow/mlflow/blob/main/examples/pytorch/AxHyperOptimization/AxHyperOptimization.py"
)
def cifar(_: bool) -> Task:
    """The tutorial's two convolutions and three linear layers, images (x - 0.5) / 0.5; classes in colours of their
    own, as in CIFAR."""

    def run(m, x):
        x = m.pool(F.relu(m.conv1(x)))
        x = m.pool(F.relu(m.conv2(x))).view(-1, 12 * 25)
        return m.fc3(F.relu(m.fc2(F.relu(m.fc1(x)))))

    palette = torch.rand(2, 10, 3, 1, 1)

    def draw() -> Drawn:
        images, c = _digits()
        i = torch.randint(len(c), (16,))
        x = F.interpolate(images[i], size=(32, 32), mode="bilinear")
        x = x * (palette[0, c[i]] + 0.15 * torch.randn(16, 3, 1, 1)) + (1 - x) * (
            palette[1, c[i]] + 0.15 * torch.randn(16, 3, 1, 1)
        )
        x = x.clamp(0, 1)
        return ((x - 0.5) / 0.5,), c[i]

    return stream(
        Parts(
            run,
            conv1=nn.Conv2d(3, 6, 5),
            pool=nn.MaxPool2d(2, 2),
            conv2=nn.Conv2d(6, 12, 5),
            fc1=nn.Linear(300, 60),
            fc2=nn.Linear(60, 42),
            fc3=nn.Linear(42, 10),
        ),
        draw,
        F.cross_entropy,
    )


@healthy("ECG U-Net", GITHUB + "DeepPSP/torch_ecg/blob/main/torch_ecg/models/unets/ecg_unet.py")
def ecg(_: bool) -> Task:
    """Double Conv1d blocks with BatchNorm and ReLU, He normal, nearest upsampling, BatchNorm even after the last
    convolution; binary focal
    loss of four classes of samples (P, QRS, T, none) of ECG in z-scores."""

    def cba(i, o, k, act=True):
        conv = nn.Conv1d(i, o, k, padding=k // 2)
        nn.init.kaiming_normal_(conv.weight), nn.init.zeros_(conv.bias)
        return [conv, nn.BatchNorm1d(o)] + ([nn.ReLU(inplace=True)] if act else [])

    def double(i, o, k):
        return chain(*cba(i, o, k), *cba(o, o, k))

    n = 4
    down = nn.ModuleList(chain(nn.MaxPool1d(2), double(n << i, n << i + 1, 7)) for i in range(3))
    up = nn.ModuleList(double((n << i + 1) + (n << i), n << i, 7) for i in (2, 1, 0))

    def run(m, x):
        xs = [m.init_conv(x)]
        for d in m.down:
            xs.append(d(xs[-1]))
        y = xs.pop()
        for u in m.up:
            y = u(torch.cat([xs.pop(), F.interpolate(y, scale_factor=2, mode="nearest")], 1))
        return m.out_conv(y).permute(0, 2, 1)

    t = torch.arange(160.0)

    def draw() -> Drawn:
        x, y = 0.05 * torch.randn(16, 160) + 0.1 * torch.sin(t * 0.03 + 6 * torch.rand(16, 1)), torch.zeros(16, 160, 4)
        for b in range(3):
            r = 30 + 50 * b + 6 * torch.rand(16, 1)
            for k, (at, w, a) in enumerate(((-12, 3.0, 0.2), (0, 1.2, 1.3), (17, 5.0, 0.35))):
                x = (
                    x
                    + a * torch.exp(-(((t - r - at) / w) ** 2) / 2)
                    - (0.3 * torch.exp(-(((t - r - 3) / 1.2) ** 2) / 2) if k == 1 else 0)
                )
                y[..., k] = torch.maximum(y[..., k], ((t - r - at).abs() < (2 * w if k != 1 else 4)).float())
        y[..., 3] = (y[..., :3].sum(-1) == 0).float()
        return ((((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)).unsqueeze(1)),), y

    def loss(y, t):
        bce = F.binary_cross_entropy_with_logits(y, t, reduction="none")
        p = torch.sigmoid(y)
        return ((1 - (p * t + (1 - p) * (1 - t))) ** 2.0 * bce).mean()

    return stream(
        Parts(run, init_conv=double(1, n, 9), down=down, up=up, out_conv=chain(*cba(n, 4, 9, False))), draw, loss
    )


@healthy("traffic FC-LSTM", GITHUB + "exiaohu/traffic-prediction/blob/main/networks/fc_lstm.py")
def fclstm(_: bool) -> Task:
    """An LSTM over each sensor's hour, another from zeros over the next, fed its own answers; scaled inputs (0 where
    missing), answers scaled
    back; masked MAE in miles per hour."""
    T, N = 6, 4

    def run(m, x):
        B = len(x)
        _, (h, c) = m.encoder(x.transpose(0, 1).reshape(T, B * N, -1))
        y, outputs = torch.zeros(1, B * N, 1), []
        for _t in range(T):
            y, (h, c) = m.decoder(y, (h, c))
            y = m.projector(y)
            outputs.append(y)
        return torch.cat(outputs).reshape(T, B, N, -1).transpose(0, 1)

    rush, free = 0.35 + 0.3 * torch.rand(N), 60 + 6 * torch.randn(N)

    def draw() -> Drawn:
        t = torch.rand(32, 1, 1) + torch.arange(2 * T).view(1, -1, 1) * 0.02
        day = t % 1
        v = (
            free
            - 35 * torch.exp(-(((day - rush) / 0.06) ** 2)) * (0.5 + torch.rand(32, 1, 1))
            + 1.5 * torch.randn(32, 2 * T, N)
        )
        v = torch.where(torch.rand_like(v) < 0.06, torch.zeros_like(v), v)
        s = torch.where(v != 0, (v - 55) / 14, torch.zeros_like(v))
        return (torch.stack([s, day.expand_as(v)], -1)[:, :T],), v[:, T:].unsqueeze(-1)

    def loss(y, t):
        w = (t != 0).float()
        w = w / w.mean()
        return (F.l1_loss(y * 14 + 55, t, reduction="none") * w).mean()

    return stream(
        Parts(run, encoder=nn.LSTM(2, 24, 2), decoder=nn.LSTM(1, 24, 2), projector=nn.Linear(24, 1)), draw, loss
    )


@healthy("BERT4Rec", GITHUB + "torchme/sasrec-bert4rec-recsys23/blob/main/src/models/bert4rec.py")
def bert4rec(_: bool) -> Task:
    """transformers' BertModel from its configuration (with the pooler that is not used) and a linear layer, N(0,
    0.02); a fifth of the items
    masked, the others not counted; short histories padded on the left."""
    from transformers import BertConfig, BertModel

    items, L, d = 40, 12, 24
    bert = BertModel(
        BertConfig(
            vocab_size=items + 2,
            hidden_size=d,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=4 * d,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            max_position_embeddings=L,
            type_vocab_size=1,
            pad_token_id=0,
        )
    )
    model = Parts(
        lambda m, x: m.out(m.bert(input_ids=x, attention_mask=(x != 0).long()).last_hidden_state),
        bert=bert,
        out=nn.Linear(d, items + 2),
    )
    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data.normal_(mean=0.0, std=0.02)
            if isinstance(m, nn.Embedding) and m.padding_idx is not None:
                m.weight.data[m.padding_idx].zero_()
        if isinstance(m, nn.Linear) and m.bias is not None:
            m.bias.data.zero_()

    def draw() -> Drawn:
        taste = torch.randint(5, (64, 1)) * 8
        x = taste + (torch.randint(8, (64, 1)) + torch.arange(L)) % 8 + 1
        x = torch.where(torch.rand(64, L) < 0.1, torch.randint(1, items + 1, (64, L)), x)
        x = torch.where(torch.arange(L) < torch.randint(0, L - 4, (64, 1)), 0, x)
        hide = (torch.rand(64, L) < 0.2) & (x != 0)
        return (torch.where(hide, items + 1, x),), torch.where(hide, x, -100)

    return stream(model, draw, lambda y, t: F.cross_entropy(y.view(-1, items + 2), t.view(-1), ignore_index=-100))
