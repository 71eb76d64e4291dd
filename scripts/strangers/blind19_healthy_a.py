"""Healthy networks of the nineteenth set, of every other second word, without sight of the rules."""

from __future__ import annotations

import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

healthy = partial(any_report, blind="blind19")


def smooth(x: Tensor, k: int = 5) -> Tensor:
    """A running mean along the last axis."""
    return F.avg_pool1d(x.flatten(0, -2).unsqueeze(1), k, 1, k // 2).view_as(x)


@healthy("deforestation Siamese residual pairs", GITHUB + "akhiyarwaladi/LandCover_Research")
def landcover(_: bool) -> Task:
    """23 bands and indices at two times, a shared ResNet, [f1; f2; |f1 - f2|], focal loss (gamma 2) with class
    weights."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.down = None if i == o else chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.down is None else self.down(x)))

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(23, 12, 7, 2, 3, bias=False), nn.BatchNorm2d(12)
            self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            self.layer1, self.layer2, self.avgpool = Block(12, 12, 1), Block(12, 24, 2), nn.AdaptiveAvgPool2d((1, 1))
            self.classifier = chain(
                nn.Linear(72, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(32, 2)
            )
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def features(self, x: Tensor) -> Tensor:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            return torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1)

        def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
            f1, f2 = self.features(x1), self.features(x2)
            return self.classifier(torch.cat([f1, f2, torch.abs(f1 - f2)], dim=1))

    forest, bare = torch.randn(23, 1, 1), torch.randn(23, 1, 1)

    def draw() -> Drawn:
        t = (torch.rand(32) < 0.3).long()
        base = forest + 0.5 * F.interpolate(torch.randn(32, 23, 4, 4), size=(32, 32), mode="bilinear")
        hole = (torch.rand(32, 1, 4, 4) < 0.4).float().repeat_interleave(8, 2).repeat_interleave(8, 3) * t.view(
            -1, 1, 1, 1
        )
        after = base * (1 - hole) + bare * hole
        return (base + 0.3 * torch.randn_like(base), after + 0.3 * torch.randn_like(base)), t

    weight = torch.tensor([0.7, 1.6])

    def focal(y: Tensor, t: Tensor) -> Tensor:
        ce = F.cross_entropy(y, t, weight=weight, reduction="none")
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    return stream(Siamese(), draw, focal)


@healthy("fire probability patch seq2seq", GITHUB + "LOFIBOY217/wildfire-refactored")
def wildfire(_: bool) -> Task:
    """Flattened weather patches, an encoder of 7 days, a decoder over future weather, a logit a pixel, pos_weight
    capped at 10."""

    class Positions(nn.Module):
        def __init__(self, d: int, n: int = 96) -> None:
            super().__init__()
            pe, at = torch.zeros(n, d), torch.arange(n).float().unsqueeze(1)
            div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
            pe[:, 0::2], pe[:, 1::2] = torch.sin(at * div), torch.cos(at * div)
            self.register_buffer("pe", pe.unsqueeze(0))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.pe[:, : x.size(1)]

    def run(m: nn.Module, past: Tensor, future: Tensor) -> Tensor:
        enc = m.pos_enc(m.embed_drop(m.enc_embed(past)))
        dec = m.pos_enc(m.embed_drop(m.dec_embed(future)))
        return m.proj(m.transformer.decoder(dec, m.transformer.encoder(enc)))

    model = Parts(
        run,
        enc_embed=nn.Linear(48, 32),
        dec_embed=nn.Linear(48, 32),
        embed_drop=nn.Dropout(0.1),
        pos_enc=Positions(32),
        proj=nn.Linear(32, 16),
        transformer=nn.Transformer(32, 4, 2, 2, 64, 0.1, batch_first=True),
    )

    def draw() -> Drawn:
        w = smooth(torch.randn(32, 48, 20), 7).transpose(1, 2) * 2.6
        past, future = w[:, :7], w[:, 7:18]
        fwi = future.view(32, 11, 16, 3)
        danger = 2 * fwi[..., 0] + fwi[..., 1] - fwi[..., 2] + past.view(32, 7, 16, 3)[..., 0].mean(1, keepdim=True)
        return (past, future), (danger > 3.6).float()

    return stream(model, draw, nn.BCEWithLogitsLoss(pos_weight=torch.tensor([10.0])))


@healthy("collision events mixed-type VAE", GITHUB + "LukVic/vae-generator-for-particle-physics")
def particles(_: bool) -> Task:
    """Gaussian, Bernoulli and categorical heads of one decoder; std = exp(sigma); BCE and CE summed and weighted by
    0.01."""
    z, real, n_in = 4, 8, 8 + 2 + 4

    def part(i: int, o: int) -> nn.Module:
        return chain(nn.Linear(i, o), nn.LayerNorm(o), nn.GELU())

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        mu, s = torch.split(m.enc(x), z, dim=1)
        std = torch.exp(s)
        code = mu + std * torch.randn_like(std)
        xhat = m.dec(code)
        return (
            mu,
            std,
            code,
            xhat[:, :real],
            torch.exp(xhat[:, real : 2 * real]),
            torch.sigmoid(xhat[:, 2 * real : 2 * real + 2]),
            xhat[:, -4:],
        )

    model = Parts(
        run,
        enc=chain(part(n_in, 64), part(64, 32), nn.Linear(32, 2 * z)),
        dec=chain(part(z, 32), part(32, 64), nn.Linear(64, 2 * real + 6)),
    )
    for m in model.modules():
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    mix = torch.randn(3, real) / 3**0.5

    def draw() -> Drawn:
        h = torch.randn(64, 3)
        x = torch.tanh(h @ mix) * 1.5 + 0.1 * torch.randn(64, real)
        b = torch.sign(h[:, :2])
        c = F.one_hot((h[:, 0] > 0).long() * 2 + (h[:, 2] > 0).long(), 4).float()
        row = torch.cat([x, b, c], 1)
        return (row,), row

    def loss(y, t: Tensor) -> Tensor:
        mu, std, code, m, s, p, logits = y
        rec = torch.distributions.Normal(m, s).log_prob(t[:, :real]).sum(1)
        kl = (
            torch.distributions.Normal(mu, std).log_prob(code) - torch.distributions.Normal(0.0, 1.0).log_prob(code)
        ).sum(1)
        bce = F.binary_cross_entropy(p, (torch.sign(t[:, real : real + 2]) + 1) / 2, reduction="sum")
        ce = F.cross_entropy(logits, t[:, -4:].argmax(1), reduction="sum")
        return -rec.mean() + kl.mean() + 0.01 * bce + 0.01 * ce

    return stream(model, draw, loss)


@healthy("CSI amplitude and phase spectrogram activities", GITHUB + "DiogoRibeiro7/wifi-csi-activity-recognition")
def csi(_: bool) -> Task:
    model = Parts(
        lambda m, x: m.classifier(torch.flatten(m.pool(m.features(x)), 1)),
        features=chain(
            nn.Conv2d(2, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
        ),
        pool=nn.AdaptiveAvgPool2d(1),
        classifier=nn.Linear(32, 6),
    )
    carriers, times = torch.arange(30.0).view(1, 30, 1), torch.arange(32.0).view(1, 1, 32)

    def draw() -> Drawn:
        c = torch.randint(6, (32,))
        speed = (0.2 + 0.25 * c).view(-1, 1, 1)
        turn = speed * times + carriers * 0.2 + 6.28 * torch.rand(32, 1, 1)
        x = torch.stack([1 + torch.sin(turn), torch.atan2(torch.sin(turn), 0.3 + torch.cos(turn))], 1)
        return (x + 0.3 * torch.randn_like(x),), c

    return stream(model, draw, nn.CrossEntropyLoss())


@healthy("car speed of optical-flow frames", GITHUB + "Flo-Wo/DL-Visual-Odometry")
def odometry(_: bool) -> Task:
    """A batch norm of the input, strided LeakyReLU convolutions, kaiming 'relu' and zero biases; speeds in m/s as
    they are."""

    def conv(i: int, o: int, k: int, s: int = 1) -> nn.Module:
        return chain(nn.Conv2d(i, o, k, s), nn.LeakyReLU())

    def fc(i: int, o: int) -> nn.Module:
        return chain(nn.Linear(i, o), nn.LeakyReLU())

    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.conv3(m.pool1(m.conv2(m.conv1(m.bn1(x)))))
        x = m.pool2(m.conv5(m.conv4(m.drop(x)))).view(-1, 16 * 1 * 3)
        return m.fc4(m.fc3(m.fc2(m.fc1(x)))).squeeze(1)

    model = Parts(
        run,
        bn1=nn.BatchNorm2d(3),
        conv1=conv(3, 6, 5, 2),
        conv2=conv(6, 9, 5, 2),
        pool1=nn.MaxPool2d(2, 2, 1),
        conv3=conv(9, 12, 5, 2),
        drop=nn.Dropout2d(0.5),
        conv4=conv(12, 16, 3),
        conv5=conv(16, 16, 3),
        pool2=nn.MaxPool2d(2, 2, 1),
        fc1=fc(48, 100),
        fc2=fc(100, 50),
        fc3=fc(50, 10),
        fc4=nn.Linear(10, 1),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_uniform_(m.weight, mode="fan_in", nonlinearity="relu")
            nn.init.zeros_(m.bias)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 105), torch.linspace(-1, 1, 160), indexing="ij")

    def draw() -> Drawn:
        v = 28 * torch.rand(16)
        size = (x**2 + y**2).sqrt() * (v / 28).view(-1, 1, 1) + 0.05 * torch.randn(16, 1, 1)
        hue = (torch.atan2(y, x) / 6.283 + 0.5).expand(16, -1, -1)
        frames = torch.stack([hue, torch.ones_like(hue), size.clamp(0, 1)], 1)
        return (frames + 0.02 * torch.randn_like(frames),), v

    return stream(model, draw, nn.MSELoss())


@healthy("vessel track bidirectional LSTM with attention", GITHUB + "Marimuda/maritime-trajectory-prediction")
def vessels(_: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 16, 2, dropout=0.2, bidirectional=True, batch_first=True)
            self.attn = nn.MultiheadAttention(32, 8, dropout=0.2, batch_first=True)
            self.norm = nn.LayerNorm(32)
            self.proj = chain(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))

        def forward(self, x: Tensor) -> Tensor:
            out = self.norm(self.lstm(x)[0])
            return self.proj(out + self.attn(out, out, out)[0])

    def draw() -> Drawn:
        n, t = 32, 13
        sog, cog = (
            (torch.rand(n, 1) + 0.3 + 0.02 * torch.randn(n, t).cumsum(1)),
            6.28 * torch.rand(n, 1) + 0.15 * torch.randn(n, 1) * torch.arange(t),
        )
        at = torch.stack([torch.cos(cog) * sog, torch.sin(cog) * sog], -1).cumsum(1) * 0.2 + torch.randn(n, 1, 2)
        row = torch.cat(
            [
                at,
                sog.unsqueeze(-1),
                torch.cos(cog).unsqueeze(-1),
                torch.sin(cog).unsqueeze(-1),
                torch.randn(n, 1, 1).expand(-1, t, -1),
            ],
            -1,
        )
        return (row[:, :-1],), row[:, 1:, :4]

    return stream(Net(), draw, nn.MSELoss())


@healthy("regional brain volumes to age in years", GITHUB + "yein-hwang/Region-Wise-Brain-Age-Estimation")
def brain(_: bool) -> Task:
    """Conv, ReLU and then BatchNorm; kaiming_uniform and zero biases; ages of 45 to 82 as they are."""

    def two(i: int, o: int, last: nn.Module) -> nn.Module:
        return chain(
            nn.Conv3d(i, o, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.BatchNorm3d(o),
            nn.Conv3d(o, o, 3, padding="same"),
            nn.ReLU(inplace=True),
            last,
            nn.MaxPool3d(2),
        )

    def run(m: nn.Module, x: Tensor) -> Tensor:
        return m.fc(m.flatten(m.conv3(m.conv2(m.conv1(x)))))

    model = Parts(
        run,
        conv1=two(1, 4, nn.Dropout3d(0.2)),
        conv2=two(4, 8, nn.Dropout3d(0.2)),
        conv3=two(8, 12, nn.BatchNorm3d(12)),
        flatten=nn.Flatten(),
        fc=chain(nn.Linear(96, 48), nn.ReLU(inplace=True), nn.Linear(48, 16), nn.ReLU(inplace=True), nn.Linear(16, 1)),
    )
    for m in model.modules():
        if isinstance(m, (nn.Conv3d, nn.Linear)):
            nn.init.kaiming_uniform_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)
    g = torch.linspace(-1, 1, 16)
    r = (g.view(-1, 1, 1) ** 2 + g.view(-1, 1) ** 2 + g**2).sqrt()

    def draw() -> Drawn:
        age = 45 + 37 * torch.rand(16)
        inner = (0.2 + (age - 45) / 37 * 0.5 + 0.03 * torch.randn(16)).view(-1, 1, 1, 1, 1)
        tissue = torch.sigmoid(20 * (r - inner)) * (r < 0.95)
        return (tissue * 0.6 + 0.1 * torch.randn(16, 1, 16, 16, 16),), age.view(-1, 1)

    return stream(model, draw, nn.MSELoss())


@healthy("biaffine arcs and labels of padded sentences", GITHUB + "antoniaboca/semi-supervised-dependency-parser")
def arcs(_: bool) -> Task:
    """Frozen vectors, a BiLSTM, arc scores with head and dependent terms, labels gathered at the gold heads,
    ignore_index -1."""

    class Biaffine(nn.Module):
        def __init__(self, d: int, o: int) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.empty(o, d, d))
            nn.init.xavier_uniform_(self.W)

        def forward(self, head: Tensor, dep: Tensor) -> Tensor:
            return (head.unsqueeze(1) @ self.W @ dep.unsqueeze(1).transpose(-1, -2)).squeeze(1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embedding = nn.Embedding.from_pretrained(torch.randn(60, 24) * 0.5, padding_idx=0)
            self.lstm = nn.LSTM(24, 24, 1, bidirectional=True, batch_first=True)
            self.dropout = nn.Dropout(0.2)
            for n, d in (("arc", 24), ("lab", 16)):
                setattr(self, n + "_linear_h", nn.Linear(48, d))
                setattr(self, n + "_linear_d", nn.Linear(48, d))
            self.arc_score_h, self.arc_score_d = nn.Linear(24, 1), nn.Linear(24, 1)
            self.arc_biaffine, self.lab_biaffine = Biaffine(24, 1), Biaffine(16, 5)

        def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
            x = self.lstm(self.word_embedding(words))[0]
            h, d = (self.dropout(F.relu(f(x))) for f in (self.arc_linear_h, self.arc_linear_d))
            hl, dl = (self.dropout(F.relu(f(x))) for f in (self.lab_linear_h, self.lab_linear_d))
            return self.arc_biaffine(h, d) + self.arc_score_h(h) + self.arc_score_d(d).transpose(
                1, 2
            ), self.lab_biaffine(hl, dl)

    def draw() -> Drawn:
        n, t = 32, 12
        words, length = torch.randint(1, 60, (n, t)), torch.randint(6, t + 1, (n,))
        at, off = torch.arange(t).expand(n, t), torch.where(words % 3 == 0, -1, torch.where(words % 3 == 1, 1, -2))
        parents = (at + off).clamp(min=0)
        parents = torch.minimum(parents, (length - 1).view(-1, 1))
        labels = (words.gather(1, parents) + words) % 5
        pad = at >= length.view(-1, 1)
        parents, labels = parents.masked_fill(pad, -1), labels.masked_fill(pad, -1)
        parents[:, 0] = labels[:, 0] = -1
        return (words.masked_fill(pad, 0),), {"parents": parents, "labels": labels}

    def loss(y, t) -> Tensor:
        arc, lab = y
        heads = t["parents"].clamp(min=0)[:, None, None].expand(-1, lab.size(1), -1, -1)
        lab = torch.gather(lab, 2, heads).squeeze(2).transpose(-1, -2)
        return F.cross_entropy(arc.flatten(0, 1), t["parents"].flatten(), ignore_index=-1) + F.cross_entropy(
            lab.flatten(0, 1), t["labels"].flatten(), ignore_index=-1
        )

    return stream(Net(), draw, loss)


@healthy("attention over fixed places, learner sentences", GITHUB + "puchinc/Grammar-Correction")
def grammar(_: bool) -> Task:
    """The tutorial's seq2seq by GRUs with teacher forcing; NLL of log_softmax, summed over the steps."""
    T, V, H = 8, 40, 48

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc_embedding, self.enc_gru = nn.Embedding(V, H), nn.GRU(H, H, batch_first=True)
            self.embedding, self.attn, self.attn_combine = nn.Embedding(V, H), nn.Linear(2 * H, T), nn.Linear(2 * H, H)
            self.dropout, self.gru, self.out = nn.Dropout(0.1), nn.GRU(H, H), nn.Linear(H, V)

        def forward(self, source: Tensor, before: Tensor) -> Tensor:
            states, hidden = self.enc_gru(self.enc_embedding(source))
            outs = []
            for i in range(before.shape[1]):
                e = self.dropout(self.embedding(before[:, i]))
                w = F.softmax(self.attn(torch.cat((e, hidden[0]), 1)), dim=1)
                applied = torch.bmm(w.unsqueeze(1), states).squeeze(1)
                o = F.relu(self.attn_combine(torch.cat((e, applied), 1)))
                o, hidden = self.gru(o.unsqueeze(0), hidden)
                outs.append(F.log_softmax(self.out(o[0]), dim=1))
            return torch.stack(outs, 1)

    def draw() -> Drawn:
        right = torch.randint(2, V, (32, 1))
        right = (right + torch.arange(T) * (1 + right % 3)) % (V - 2) + 2
        wrong = torch.where(torch.rand(32, T) < 0.15, torch.randint(2, V, (32, T)), right)
        return (wrong, torch.cat([torch.zeros(32, 1).long(), right[:, :-1]], 1)), right

    return stream(Net(), draw, lambda y, t: sum(F.nll_loss(y[:, i], t[:, i]) for i in range(T)))


@healthy("heart-sound states of synchrosqueezed frames", GITHUB + "alvgaona/heart-sounds-segmentation")
def heart(_: bool) -> Task:
    """Random constant first states, the second LSTM begins with the first one's last; log_softmax before
    CrossEntropyLoss."""

    class Net(nn.Module):
        def __init__(self, i: int = 22, h: int = 20, b: int = 16) -> None:
            super().__init__()
            self.register_buffer("h0", torch.randn(2, b, h))
            self.register_buffer("c0", torch.randn(2, b, h))
            self.lstm_1 = nn.LSTM(i, h, bidirectional=True, batch_first=True)
            self.lstm_2 = nn.LSTM(2 * h, h, bidirectional=True, batch_first=True)
            self.dropout, self.relu, self.linear, self.softmax = (
                nn.Dropout(0.2),
                nn.ReLU(),
                nn.Linear(2 * h, 4),
                nn.LogSoftmax(dim=2),
            )

        def forward(self, x: Tensor) -> Tensor:
            h0, c0 = self.h0[:, : x.shape[0]].contiguous(), self.c0[:, : x.shape[0]].contiguous()
            o, state = self.lstm_1(x, (h0, c0))
            o = self.dropout(self.relu(o))
            o = self.dropout(self.relu(self.lstm_2(o, state)[0]))
            return self.softmax(self.linear(o))

    place = torch.randn(4, 22) * 0.7
    order = torch.tensor([0] * 4 + [1] * 6 + [2] * 3 + [3] * 11)

    def draw() -> Drawn:
        state = order[(torch.arange(48) + torch.randint(24, (16, 1))) % 24]
        loud = torch.tensor([1.0, 0.1, 0.9, 0.1])[state].unsqueeze(-1)
        return (place[state] * loud + 0.6 * torch.randn(16, 48, 22),), state

    return stream(Net(), draw, lambda y, t: F.cross_entropy(y.permute(0, 2, 1), t))


@healthy("advection-diffusion Fourier maps, relative error", GITHUB + "nickhnelsen/fourier-neural-mappings")
def fourier(_: bool) -> Task:
    """Complex weights of torch.rand / (in * out), zero padding of the domain, grid features, GELU but after the last
    layer."""

    class Spectral(nn.Module):
        def __init__(self, c: int, k: int) -> None:
            super().__init__()
            self.k, self.weights1 = k, nn.Parameter(torch.rand(c, c, k, dtype=torch.cfloat) / (c * c))

        def forward(self, x: Tensor) -> Tensor:
            f = torch.fft.rfft(x)
            out = torch.zeros(*x.shape[:2], x.shape[-1] // 2 + 1, dtype=torch.cfloat)
            out[:, :, : self.k] = torch.einsum("bi...,io...->bo...", f[:, :, : self.k], self.weights1)
            return torch.fft.irfft(out, n=x.shape[-1])

    class FNO(nn.Module):
        def __init__(self, c: int = 16, k: int = 8, n: int = 4) -> None:
            super().__init__()
            self.fc0 = nn.Linear(2, c)
            self.speconvs = nn.ModuleList(Spectral(c, k) for _ in range(n))
            self.ws = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(n))
            self.mlp0 = chain(nn.Linear(c, 32), nn.GELU(), nn.Linear(32, 1))

        def forward(self, x: Tensor) -> Tensor:
            r = x.shape[-1]
            x = torch.cat((x.permute(0, 2, 1), torch.linspace(0, 1, r).view(1, r, 1).repeat(len(x), 1, 1)), -1)
            x = F.pad(self.fc0(x).permute(0, 2, 1), [0, r // 8])
            for i, (s, w) in enumerate(zip(self.speconvs, self.ws, strict=False)):
                x = w(x) + s(x)
                x = F.gelu(x) if i < 3 else x
            return self.mlp0(x[..., : -(r // 8)].permute(0, 2, 1)).permute(0, 2, 1)

    k = torch.arange(1, 7.0).view(1, 6, 1)
    s = torch.linspace(0, 1, 64)

    def draw() -> Drawn:
        a, p = torch.randn(20, 6, 1) / k**1.5, 6.28 * torch.rand(20, 6, 1)
        u = (a * torch.sin(6.283 * k * s + p)).sum(1, keepdim=True)
        v = (a * torch.exp(-0.08 * k**2) * torch.sin(6.283 * k * (s - 0.15) + p)).sum(1, keepdim=True)
        return (u,), v

    return stream(FNO(), draw, lambda y, t: ((y - t).flatten(1).norm(dim=1) / t.flatten(1).norm(dim=1)).mean())


@healthy("masked lattice weather to capacity factors", GITHUB + "minsu0011/wind-power-forecasting")
def windpower(_: bool) -> Task:
    """Masked means of two rasters an hour, residual dilated convolutions, 1.02 sigmoid, smooth L1 (beta 0.05), low
    hours at 0.25."""

    class Spatial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(11, 16, 3, padding=1), nn.GroupNorm(4, 16)
            self.conv2, self.norm2 = nn.Conv2d(16, 24, 3, padding=1), nn.GroupNorm(4, 24)

        def forward(self, v: Tensor) -> Tensor:
            mask = v[:, 8:9]
            e = F.silu(self.norm2(self.conv2(F.silu(self.norm1(self.conv1(v)))))) * mask
            return e.sum((-2, -1)) / mask.sum((-2, -1))

    class Block(nn.Module):
        def __init__(self, c: int, d: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv1d(c, c, 3, padding=d, dilation=d), nn.GroupNorm(4, c)
            self.conv2, self.norm2, self.dropout = (
                nn.Conv1d(c, c, 3, padding=d, dilation=d),
                nn.GroupNorm(4, c),
                nn.Dropout(0.1),
            )

        def forward(self, v: Tensor) -> Tensor:
            return F.silu(self.norm2(self.conv2(self.dropout(F.silu(self.norm1(self.conv1(v)))))) + v)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ldaps_spatial, self.gfs_spatial, self.fusion = Spatial(), Spatial(), nn.Linear(52, 48)
            self.temporal = chain(Block(48, 1), Block(48, 2))
            self.group_heads = nn.ModuleDict({g: nn.Conv1d(48, 1, 1) for g in ("g1", "g2", "g3")})

        def forward(self, ldaps: Tensor, gfs: Tensor) -> Tensor:
            b, h = ldaps.shape[:2]
            a, g = (
                self.ldaps_spatial(ldaps.flatten(0, 1)).view(b, h, 24),
                self.gfs_spatial(gfs.flatten(0, 1)).view(b, h, 24),
            )
            t = 2 * math.pi * torch.arange(1.0, h + 1) / 24
            at = torch.stack((t.sin(), t.cos(), (2 * t).sin(), (2 * t).cos()), -1).expand(b, -1, -1)
            y = self.temporal(F.silu(self.fusion(torch.cat((a, g, at), -1))).transpose(1, 2))
            return torch.stack([1.02 * torch.sigmoid(head(y).squeeze(1)) for head in self.group_heads.values()], 1)

    hole = torch.ones(4, 5)
    hole[0, 4] = hole[3, 0] = hole[3, 4] = 0

    def draw() -> Drawn:
        n, h = 16, 12
        wind = smooth(torch.randn(n, 8, h + 4), 5)[..., 2:-2] * 2.2

        def raster(mask: Tensor) -> Tensor:
            r = torch.zeros(n, h, 11, *mask.shape)
            r[:, :, :8] = wind.transpose(1, 2)[..., None, None] + 0.3 * torch.randn(n, h, 8, *mask.shape)
            r[:, :, 9], r[:, :, 10] = (
                torch.linspace(1.3, -1.3, len(mask)).view(-1, 1),
                torch.linspace(-1.3, 1.3, mask.shape[1]),
            )
            r[:, :, 8] = 1
            return r * mask

        cf = torch.stack([torch.sigmoid(2.5 * (wind[:, 0] + 0.5 * wind[:, i + 1]) - 1.0) for i in range(3)], 1)
        return (raster(hole), raster(torch.ones(3, 3))), (cf + 0.02 * torch.randn_like(cf)).clamp(0, 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        w = torch.where(t >= 0.10, 1.0, 0.25)
        return (F.smooth_l1_loss(y, t, reduction="none", beta=0.05) * w).sum() / w.sum()

    return stream(Net(), draw, loss)


@healthy("waveform and RAM image, gated, smoothed labels", GITHUB + "SismoKaos-Research/cnn_earthquake")
def quakes(_: bool) -> Task:
    """A BiLSTM with attention over Z/N/E and a CNN over the image of one window; labels of 0.1 and 0.9; one logit (B,
    1)."""

    class Net(nn.Module):
        def __init__(self, hidden: int = 12, dim: int = 24, p: float = 0.4) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, hidden, batch_first=True, bidirectional=True)
            self.attn, self.norm = (
                nn.MultiheadAttention(2 * hidden, 4, dropout=p, batch_first=True),
                nn.LayerNorm(2 * hidden),
            )
            self.net = chain(
                nn.Conv2d(3, 8, 3, padding=1, bias=False),
                nn.BatchNorm2d(8),
                nn.GELU(),
                nn.Conv2d(8, 16, 3, 2, 1, bias=False),
                nn.BatchNorm2d(16),
                nn.GELU(),
                nn.Dropout2d(p),
                nn.Conv2d(16, 32, 3, 2, 1, bias=False),
                nn.BatchNorm2d(32),
                nn.GELU(),
                nn.AdaptiveAvgPool2d(1),
            )
            self.p1, self.p2 = nn.Linear(2 * hidden, dim), nn.Linear(32, dim)
            self.gate = chain(nn.Linear(2 * dim, 12), nn.GELU(), nn.Dropout(0.1), nn.Linear(12, 1))
            self.head = chain(
                nn.LayerNorm(dim), nn.Dropout(p), nn.Linear(dim, dim), nn.GELU(), nn.Dropout(p), nn.Linear(dim, 1)
            )

        def forward(self, seq: Tensor, img: Tensor) -> Tensor:
            h = self.lstm(seq)[0]
            f1 = self.p1(self.norm(h + self.attn(h, h, h)[0]).mean(1))
            f2 = self.p2(torch.flatten(self.net(img), 1))
            g = torch.sigmoid(self.gate(torch.cat([f1, f2], 1)))
            return self.head(g * f1 + (1 - g) * f2)

    t = torch.arange(64.0)

    def draw() -> Drawn:
        n, y = 32, (torch.rand(32, 1) < 0.5).float()
        onset = torch.randint(8, 40, (n, 1))
        burst = torch.sin(t * (0.6 + 0.6 * torch.rand(n, 1))) * torch.exp(-(t - onset).clamp(min=0) / 12) * (t >= onset)
        w = smooth(torch.randn(n, 3, 64), 3) + 3 * (y * burst).unsqueeze(1) * torch.rand(n, 3, 1)
        w = (w - w.mean(-1, keepdim=True)) / w.std(-1, keepdim=True)
        turn = torch.acos((w / w.abs().amax(-1, keepdim=True)).clamp(-1, 1)[..., ::4])
        return (w.transpose(1, 2), torch.cos(turn.unsqueeze(-1) - turn.unsqueeze(-2))), y * 0.8 + 0.1

    return stream(Net(), draw, nn.BCEWithLogitsLoss())


@healthy("mel autoencoder by swapped halves and instance statistics", GITHUB + "KimythAnly/PyTorch-Voice-Conversion")
def again(_: bool) -> Task:
    """A sigmoid of 0.1 x as the bottleneck, means and deviations of each block handed over; an unused 2-d stem; L1."""

    def stats(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mean(-1, keepdim=True), (x.var(-1, keepdim=True) + 1e-5).sqrt()

    def conv(i: int, o: int, k: int = 1) -> nn.Module:
        c = nn.Conv1d(i, o, k, padding=k // 2)
        nn.init.xavier_uniform_(c.weight)
        return c

    def pair(c: int) -> nn.Module:
        return chain(conv(c, c, 3), nn.BatchNorm1d(c), nn.LeakyReLU(), conv(c, c, 3))

    class Net(nn.Module):
        def __init__(self, mel: int = 20, c: int = 24, out: int = 4, n: int = 3) -> None:
            super().__init__()
            self.conv2d_blocks = chain(
                nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 1, 1), nn.BatchNorm2d(1), nn.LeakyReLU()
            )
            self.conv1d_first, self.conv1d_blocks, self.enc_out = (
                conv(mel, c),
                nn.ModuleList(pair(c) for _ in range(n)),
                conv(c, out),
            )
            self.in_layer, self.dec, self.gen = (
                conv(out, c, 3),
                nn.ModuleList(pair(c) for _ in range(n)),
                nn.ModuleList(pair(c) for _ in range(n)),
            )
            self.last_cnn, self.out_layer = chain(conv(c, c), conv(c, c)), nn.Linear(c, mel)

        def encode(self, x: Tensor) -> tuple[Tensor, list]:
            y, kept = self.conv1d_first(x), []
            for block in self.conv1d_blocks:
                y = y + block(y)
                m, s = stats(y)
                kept.append((m, s))
                y = (y - m) / s
            return 1 / (1 + torch.exp(-0.1 * self.enc_out(y))), kept

        def forward(self, x: Tensor) -> Tensor:
            h = x.shape[-1] // 2
            (y1, _), (y2, kept) = self.encode(x), self.encode(torch.cat((x[..., h:], x[..., :h]), -1))
            m, s = stats(y2)
            a, b = stats(y1)
            y = F.leaky_relu(self.in_layer((y1 - a) / b * s + m))
            for d, g, (m, s) in zip(self.dec, self.gen, kept, strict=False):
                z = d(y)
                y = y + z + g(z)
                a, b = stats(y)
                y = (y - a) / b * s + m
            return self.out_layer(self.last_cnn(y).transpose(1, 2)).transpose(1, 2)

    bins = torch.arange(20.0).view(1, 20, 1)

    def draw() -> Drawn:
        n, t = 16, 32
        pitch = 3 + 10 * torch.rand(n, 1, 1) + 3 * smooth(torch.randn(n, 1, t), 9)
        loud = smooth(torch.randn(n, 1, t), 9) * 2
        x = (
            -4
            + loud
            + 2 * torch.exp(-(((bins - pitch) / 2) ** 2))
            + torch.exp(-(((bins - 2 * pitch) / 2) ** 2))
            + torch.randn(n, 1, 1) * bins / 20
        )
        return (x,), x

    return stream(Net(), draw, nn.L1Loss())


@healthy("protein pairs with sinusoid distances, two poolings", GITHUB + "elangovana/PPI-typed-relation-extractor")
def ppi(_: bool) -> Task:
    """Frozen word vectors and fixed position vectors, a 2-layer BiLSTM, max and average pools of 4 steps, a flat
    head."""
    T = 24

    class Net(nn.Module):
        def __init__(self, h: int = 16) -> None:
            super().__init__()
            self.embeddings = nn.Embedding.from_pretrained(torch.randn(50, 20) * 0.4)
            at, div = torch.arange(T).float().view(-1, 1), torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
            self.register_buffer("positions", torch.cat([torch.sin(at * div), torch.cos(at * div)], 1))
            self.lstm = nn.LSTM(36, h, 2, batch_first=True, bidirectional=True, dropout=0.3)
            self.max_pooling, self.avg_pooling = nn.MaxPool1d(4), nn.AvgPool1d(4)
            self.fc = chain(nn.Linear(T // 4 * 2 * 2 * h, 30), nn.ReLU(), nn.Dropout(0.2), nn.Linear(30, 3))

        def forward(self, text: Tensor, one: Tensor, two: Tensor) -> Tensor:
            x = [self.embeddings(text)]
            for e in (one, two):
                place = (text == e).float().argmax(1, keepdim=True)
                x.append(self.positions[(torch.arange(T) - place).abs()])
            y = self.lstm(torch.cat(x, 2))[0].permute(0, 2, 1)
            y = torch.cat([self.max_pooling(y), self.avg_pooling(y)], 2)
            return self.fc(y.reshape(len(y), -1))

    def draw() -> Drawn:
        n = 32
        text = torch.randint(10, 48, (n, T))
        a, b, y = torch.randint(0, 10, (n,)), torch.randint(12, T - 2, (n,)), torch.randint(3, (n,))
        r = torch.arange(n)
        text[r, a], text[r, b], text[r, a + 1] = 48, 49, y * 3 + 1
        return (text, torch.full((n, 1), 48), torch.full((n, 1), 49)), y

    return stream(Net(), draw, nn.CrossEntropyLoss())


@healthy(
    "head rotations by audio, dense decoder", GITHUB + "lelechen63/Talking-head-Generation-with-Rhythmic-Head-Motion"
)
def heads(_: bool) -> Task:
    """Past rotations and translations through temporal convolutions, audio of each frame through linear and BatchNorm
    layers, MSE."""
    past, future, A = 16, 12, 24

    def linear(i: int, o: int) -> nn.Module:
        return chain(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(True), nn.Dropout(0.2))

    def flat(layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1)

    def run(m: nn.Module, rt: Tensor, audio: Tensor) -> Tensor:
        a = flat(m.audio_l, audio)
        h = torch.cat([flat(m.l, rt), a[:, :past]], -1).transpose(1, 2)
        h = m.backend_conv1(h).mean(-1)
        f = torch.cat([h.unsqueeze(1).repeat(1, future, 1), a[:, past:]], -1)
        b, t, d = f.shape
        f = f.reshape(b * t, d)
        o1 = m.l1(f)
        o2 = m.l2(torch.cat([o1, f], -1))
        return m.l3(torch.cat([o2, o1], -1)).reshape(b, t, -1)

    def conv(c: int) -> list[nn.Module]:
        return [nn.Conv1d(c, c, 5, 2), nn.BatchNorm1d(c), nn.LeakyReLU(0.3), nn.Dropout(0.2)]

    model = Parts(
        run,
        audio_l=chain(
            nn.Linear(7, 16),
            nn.BatchNorm1d(16),
            nn.LeakyReLU(0.3),
            nn.Dropout(0.2),
            nn.Linear(16, A),
            nn.BatchNorm1d(A),
            nn.LeakyReLU(0.3),
        ),
        l=chain(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.3), nn.Linear(16, A)),
        backend_conv1=chain(*conv(2 * A), *conv(2 * A)),
        l1=linear(3 * A, A),
        l2=linear(4 * A, 16),
        l3=chain(*linear(16 + A, 16), nn.Linear(16, 6)),
    )
    beat = torch.randn(7, 6) * 0.4

    def draw() -> Drawn:
        n, t = 32, past + future
        audio = smooth(torch.randn(n, 7, t), 3).transpose(1, 2) * 1.7
        rt = torch.randn(n, 1, 6) + torch.tanh(audio @ beat) + 0.05 * torch.randn(n, t, 6)
        return (rt[:, :past], audio), rt[:, past:]

    return stream(model, draw, nn.MSELoss())


@healthy(
    "news topics, mean of post-norm layers without a mask",
    GITHUB + "sadhchanGitHub/transformer-from-scratch-news-classifier",
)
def news(_: bool) -> Task:
    """Embeddings times sqrt(d), sinusoids, own attention, mean over padding too, a linear head."""

    class Layer(nn.Module):
        def __init__(self, d: int = 32, heads: int = 4) -> None:
            super().__init__()
            self.heads, self.d_head = heads, d // heads
            self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d, d) for _ in range(4))
            self.linear1, self.linear2, self.norm1, self.norm2, self.dropout = (
                nn.Linear(d, 2 * d),
                nn.Linear(2 * d, d),
                nn.LayerNorm(d),
                nn.LayerNorm(d),
                nn.Dropout(0.1),
            )

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                w(x).view(*x.shape[:2], self.heads, self.d_head).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v)
            )
            a = torch.softmax(q @ k.transpose(-2, -1) / self.d_head**0.5, -1) @ v
            x = self.norm1(x + self.dropout(self.W_o(a.transpose(1, 2).contiguous().view(x.shape))))
            return self.norm2(x + self.dropout(self.linear2(F.relu(self.linear1(x)))))

    class Net(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embedding, self.layers, self.classifier, self.dropout = (
                nn.Embedding(200, d),
                nn.ModuleList(Layer() for _ in range(2)),
                nn.Linear(d, 4),
                nn.Dropout(0.1),
            )
            at, div = (
                torch.arange(64).float().unsqueeze(1),
                torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d)),
            )
            self.register_buffer(
                "pe", torch.stack([torch.sin(at * div), torch.cos(at * div)], -1).flatten(1).unsqueeze(0)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.dropout(self.embedding(x) * math.sqrt(32) + self.pe[:, : x.shape[1]])
            for layer in self.layers:
                x = layer(x)
            return self.classifier(x.mean(1))

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        own, common = torch.randint(2, 40, (32, 24)) + 40 * c.view(-1, 1), torch.randint(2, 200, (32, 24))
        x = torch.where(torch.rand(32, 24) < 0.3, own, common)
        return (x.masked_fill(torch.arange(24) >= torch.randint(10, 25, (32, 1)), 0),), c

    return stream(Net(), draw, nn.CrossEntropyLoss())


@healthy("episodic memory among three alternatives, summed loss", GITHUB + "foamliu/Reading-Comprehension")
def reading(_: bool) -> Task:
    """Position-encoded sentences, attention GRU over three hops, uniform(-sqrt 3, sqrt 3) words, 0.001 of all squares
    in the loss."""
    H, V, S, T = 24, 60, 3, 5

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embedding = nn.Embedding(V, H, padding_idx=0)
            nn.init.uniform_(self.word_embedding.weight, -(3**0.5), 3**0.5)
            self.input_gru, self.question_gru = (
                nn.GRU(H, H, bidirectional=True, batch_first=True),
                nn.GRU(H, H, batch_first=True),
            )
            for n, p in self.input_gru.named_parameters():
                if "weight" in n:
                    nn.init.xavier_normal_(p)
            self.Wr, self.Ur, self.W, self.U = (nn.Linear(H, H) for _ in range(4))
            self.z1, self.z2, self.next_mem, self.z, self.dropout = (
                nn.Linear(4 * H, H),
                nn.Linear(H, 1),
                nn.Linear(3 * H, H),
                nn.Linear(2 * H, V),
                nn.Dropout(0.1),
            )
            for m in (self.Wr, self.Ur, self.W, self.U, self.z1, self.z2, self.next_mem, self.z):
                nn.init.xavier_normal_(m.weight)
            s, e = torch.arange(T).view(-1, 1) / (T - 1), torch.arange(H) / (H - 1)
            self.register_buffer("place", (1 - s) - e * (1 - 2 * s))

        def forward(self, contexts: Tensor, questions: Tensor, alternatives: Tensor) -> Tensor:
            f = self.input_gru(self.dropout((self.word_embedding(contexts) * self.place).sum(2)))[0]
            f = f[..., :H] + f[..., H:]
            q = self.question_gru(self.word_embedding(questions))[1].transpose(0, 1)
            m = q
            for _ in range(3):
                Q, M = q.expand_as(f), m.expand_as(f)
                g = F.softmax(
                    self.z2(torch.tanh(self.z1(torch.cat([f * Q, f * M, (f - Q).abs(), (f - M).abs()], 2)))).squeeze(
                        -1
                    ),
                    -1,
                )
                c = torch.zeros(len(f), H)
                for i in range(f.shape[1]):
                    r = torch.sigmoid(self.Wr(f[:, i]) + self.Ur(c))
                    c = g[:, i, None] * torch.tanh(self.W(f[:, i]) + r * self.U(c)) + (1 - g[:, i, None]) * c
                m = F.relu(self.next_mem(torch.cat([m.squeeze(1), c, q.squeeze(1)], 1))).unsqueeze(1)
            return torch.gather(self.z(torch.cat([self.dropout(m), q], 2).squeeze(1)), 1, alternatives)

    model = Net()

    def draw() -> Drawn:
        n = 32
        who, where = torch.stack([torch.randperm(10)[:S] for _ in range(n)]) + 1, torch.randint(11, 19, (n, S))
        contexts = torch.stack(
            [who, torch.full_like(who, 20), where, torch.randint(21, V, (n, S)), torch.zeros_like(who)], 2
        )
        k = torch.randint(S, (n, 1))
        right = where.gather(1, k)
        alts = torch.cat(
            [
                right,
                (right - 11 + torch.randint(1, 4, (n, 1))) % 8 + 11,
                (right - 11 + torch.randint(4, 8, (n, 1))) % 8 + 11,
            ],
            1,
        )
        order = torch.argsort(torch.rand(n, 3), 1)
        return (
            contexts,
            torch.cat([who.gather(1, k), torch.full((n, 1), 20)], 1),
            alts.gather(1, order),
        ), order.argmin(1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t, reduction="sum") + sum(0.001 * (p * p).sum() for p in model.parameters())

    return stream(model, draw, loss)


@healthy("partial charges to the next voltage", GITHUB + "Augusteing/battery-soh")
def battery(_: bool) -> Task:
    """Pretraining of the shared encoder: current, voltage and capacity through linear layers and an LSTM, MSE of the
    next voltage."""
    model = Parts(
        lambda m, x: m.voltage_head(m.lstm(m.embed(x))[0]).squeeze(-1),
        embed=chain(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 16)),
        lstm=nn.LSTM(16, 32, batch_first=True),
        voltage_head=chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)),
    )

    def draw() -> Drawn:
        n, t = 32, 40
        q = 0.5 * torch.rand(n, 1) + torch.arange(t + 1) * 0.0099
        age, current = 0.2 * torch.rand(n, 1), 1 + 3 * torch.rand(n, 1)
        z = q / (1 - age)
        v = (
            3.0
            + 0.25 * torch.tanh(8 * z)
            + 0.15 * z
            + 0.05 * current * (0.3 + age)
            + 0.4 * torch.relu(z - 0.85)
            + 0.002 * torch.randn(n, t + 1)
        )
        return (torch.stack([current.expand(-1, t), v[:, :-1], q[:, :-1]], -1),), v[:, 1:]

    return stream(model, draw, nn.MSELoss())


@healthy("slices of four modalities, softmax Dice logarithm", GITHUB + "raywu0123/Brain-Tumor-Segmentation")
def tumor(_: bool) -> Task:
    """InstanceNorm without its convolution's first input normalised, (x + input) / 2 in each block; CE by inverse
    frequency - log Dice."""

    class Convs(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.in_conv = nn.Conv2d(i, o, 3, padding=1)
            self.convs = nn.ModuleList([nn.Conv2d(o, o, 3, padding=1)])
            self.norms = nn.ModuleList(nn.InstanceNorm2d(o) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = y = self.in_conv(x)
            for c, n in zip(self.convs, self.norms, strict=False):
                y = F.relu(n(c(y)))
            return (y + x) / 2

    class Net(nn.Module):
        def __init__(self, c: int = 6) -> None:
            super().__init__()
            self.head, self.down1, self.down2 = Convs(4, c), Convs(c, 2 * c), Convs(2 * c, 4 * c)
            self.t2, self.up2, self.t1, self.up1 = (
                nn.ConvTranspose2d(4 * c, 2 * c, 3, 2, 1),
                Convs(4 * c, 2 * c),
                nn.ConvTranspose2d(2 * c, c, 3, 2, 1),
                Convs(2 * c, c),
            )
            self.tail = chain(Convs(c, c), nn.Conv2d(c, 3, 1))

        def up(self, t: nn.Module, conv: nn.Module, x: Tensor, skip: Tensor) -> Tensor:
            x = t(x)
            return conv(torch.cat([F.pad(x, (0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2])), skip], 1))

        def forward(self, x: Tensor) -> Tensor:
            a = self.head(x)
            b = self.down1(F.max_pool2d(a, 2))
            c = self.down2(F.max_pool2d(b, 2))
            return F.softmax(self.tail(self.up(self.t1, self.up1, self.up(self.t2, self.up2, c, b), a)), dim=1)

    g = torch.linspace(-1, 1, 24)

    def draw() -> Drawn:
        n = 12
        cx, cy, r = (
            (torch.rand(n, 1, 1) - 0.5) * 0.9,
            (torch.rand(n, 1, 1) - 0.5) * 0.9,
            0.2 + 0.25 * torch.rand(n, 1, 1),
        )
        d = ((g.view(1, -1, 1) - cy) ** 2 + (g.view(1, 1, -1) - cx) ** 2).sqrt()
        t = (d < r).long() + (d < r / 2).long()
        shade = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.2, 0.8, 1.5], [0.2, 1.6, 1.0, 0.9]])[t].permute(0, 3, 1, 2)
        x = shade + 0.5 * torch.randn(n, 4, 24, 24) + 0.5 * torch.randn(n, 4, 1, 1)
        return ((x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), keepdim=True),), F.one_hot(t, 3).permute(
            0, 3, 1, 2
        ).float()

    def loss(p: Tensor, t: Tensor) -> Tensor:
        f = t.mean((0, 2, 3))
        w = torch.where(f > 0, 1 / f.clamp(min=1e-8), torch.ones(3)).view(1, 3, 1, 1)
        ce = -(t * w * torch.log(p + 1e-8)).sum(1).mean()
        a, b = p[:, 1:].flatten(2), t[:, 1:].flatten(2)
        return ce - torch.log(((2 * (a * b).sum(2) + 1e-8) / ((a**2).sum(2) + (b**2).sum(2) + 1e-8)).mean())

    return stream(Net(), draw, loss)


@healthy(
    "bags of lower-back windows, gated attention", GITHUB + "FrankieLingIsHere/imu_post-stroke-gait-classification"
)
def gait(_: bool) -> Task:
    """Inception blocks of long kernels without biases over a bag of windows, tanh times sigmoid attention, one logit
    a person."""

    class Inception(nn.Module):
        def __init__(self, i: int, o: int = 4) -> None:
            super().__init__()
            b = min(8, i)
            self.b, self.pool, self.bn = (
                nn.Conv1d(i, b, 1, bias=False),
                nn.Conv1d(i, o, 1, bias=False),
                nn.BatchNorm1d(4 * o),
            )
            self.br = nn.ModuleList(nn.Conv1d(b, o, k, padding=k // 2, bias=False) for k in (7, 15, 25))
            self.res = nn.Conv1d(i, 4 * o, 1, bias=False) if i != 4 * o else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            y = self.b(x)
            y = torch.cat([*(f(y) for f in self.br), self.pool(F.max_pool1d(x, 3, 1, 1))], 1)
            return F.gelu(self.bn(y) + self.res(x))

    class MIL(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(Inception(1), nn.MaxPool1d(2), Inception(16), nn.AdaptiveAvgPool1d(1))
            self.attention_v, self.attention_u, self.attention_w = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 1)
            self.classifier = chain(nn.Dropout(0.25), nn.Linear(16, 1))

        def forward(self, bags: Tensor) -> Tensor:
            b, n, c, t = bags.shape
            e = self.encoder(bags.reshape(b * n, c, t)).flatten(1).reshape(b, n, -1)
            w = torch.softmax(
                self.attention_w(torch.tanh(self.attention_v(e)) * torch.sigmoid(self.attention_u(e))).squeeze(-1), 1
            )
            return self.classifier((e * w.unsqueeze(-1)).sum(1)).squeeze(1)

    at = torch.arange(80.0)

    def draw() -> Drawn:
        y = (torch.rand(16) < 0.5).float()
        step = (0.35 - 0.08 * y + 0.04 * torch.randn(16)).view(-1, 1, 1, 1)
        turn = step * at + 6.28 * torch.rand(16, 4, 1, 1)
        limp = 0.6 * y.view(-1, 1, 1, 1) * torch.sin(turn / 2)
        return (torch.sin(turn) + limp + 0.5 * torch.sin(2 * turn) + 0.4 * torch.randn(16, 4, 1, 80),), y

    return stream(MIL(), draw, nn.BCEWithLogitsLoss())


@healthy("pattern and upsampled spectrum discriminator", GITHUB + "kyg1552/nanophotonics_dcgan")
def nanophotonics(_: bool) -> Task:
    """The discriminator's step of a conditional GAN: N(0, 0.02) weights, patterns of 0 to 1 against a generator's
    tanh, BCE of rho 0.5."""

    def run(m: nn.Module, real: Tensor, fake: Tensor, spectrum: Tensor) -> tuple[Tensor, Tensor]:
        s = m.spectrum(spectrum.expand(-1, -1, 32, 32))
        return tuple(m.dn(torch.cat([m.x_gn_z(x), s], 1)).view(-1, 1).squeeze(1) for x in (real, fake))

    def conv(i: int, o: int, norm: bool = True) -> list[nn.Module]:
        return [
            nn.Conv2d(i, o, 4, 2, 1, bias=False),
            *([nn.BatchNorm2d(o)] if norm else []),
            nn.LeakyReLU(0.2, inplace=True),
        ]

    model = Parts(
        run,
        x_gn_z=chain(*conv(1, 8, False)),
        spectrum=chain(*conv(20, 8, False)),
        dn=chain(*conv(16, 24), *conv(24, 32), nn.Conv2d(32, 1, 4, bias=False), nn.Sigmoid()),
    )
    generator = chain(
        nn.ConvTranspose2d(28, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 8, 4, 2, 1, bias=False),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    for m in (*model.modules(), *generator):
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, 0, 0.02)
        if isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.weight, 1, 0.02)
    g = torch.linspace(-1, 1, 32)

    def draw() -> Drawn:
        n = 32
        r, thick = 0.3 + 0.5 * torch.rand(n, 1, 1, 1), 0.1 + 0.2 * torch.rand(n, 1, 1, 1)
        d = (g.view(-1, 1) ** 2 + g**2).sqrt()
        real = ((d < r) & (d > r - thick)).float()
        spectrum = torch.exp(-(((torch.arange(20.0) / 20 - r.flatten(1)) / thick.flatten(1)) ** 2)).view(n, 20, 1, 1)
        with torch.no_grad():
            fake = generator(torch.cat([torch.randn(n, 8, 1, 1), spectrum], 1))
        return (real, fake, spectrum), (torch.ones(n), torch.zeros(n))

    return stream(
        model, draw, lambda y, t: 0.5 * F.binary_cross_entropy(y[0], t[0]) + 0.5 * F.binary_cross_entropy(y[1], t[1])
    )


@healthy("remaining life in ordinal bins over frozen embeddings", GITHUB + "blozanod/Predictive-Maintenance-LSTM")
def rul(_: bool) -> Task:
    """A two-layer head with K - 1 conditional logits and the CORN loss; targets are cycles up to 125, in 25 bins."""
    K = 25
    model = chain(nn.Linear(48, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, K - 1))
    a, b = torch.randn(14, 48) / 14**0.5, torch.randn(48)
    slope = torch.randn(14)

    def draw() -> Drawn:
        life = (150 * torch.rand(64)).clamp(max=125)
        wear = torch.exp(-life / 40).unsqueeze(1) * slope + 0.15 * torch.randn(64, 14)
        return (torch.tanh(wear @ a + b),), life

    def corn(y: Tensor, t: Tensor) -> Tensor:
        bins, total, seen = (t / 5).floor().long().clamp(0, K - 1), 0.0, 0
        for k in range(K - 1):
            of = bins > k - 1
            if of.sum() < 1:
                continue
            p, up = y[of, k], (bins[of] > k).float()
            total, seen = total - (F.logsigmoid(p) * up + (F.logsigmoid(p) - p) * (1 - up)).sum(), seen + len(p)
        return total / seen

    return stream(model, draw, corn)


@healthy("pupil intensity and wrapped phase to phase and modes", GITHUB + "Ze-ark/AO_DL_Turbulence")
def turbulence(_: bool) -> Task:
    """Residual SiLU blocks in a U, bilinear ways up; MSE inside the pupil plus that of the projected modes; phases in
    radians."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.block = chain(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.SiLU(inplace=True),
                nn.Conv2d(o, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
            )
            self.skip, self.activation = (
                nn.Identity() if i == o else nn.Conv2d(i, o, 1, bias=False),
                nn.SiLU(inplace=True),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.block(x) + self.skip(x))

    def up(m: nn.Module, x: Tensor, e: Tensor) -> Tensor:
        return m(torch.cat([F.interpolate(x, size=e.shape[-2:], mode="bilinear", align_corners=False), e], 1))

    def run(m: nn.Module, x: Tensor) -> Tensor:
        a = m.enc1(x)
        b = m.enc2(F.max_pool2d(a, 2))
        c = m.enc3(F.max_pool2d(b, 2))
        return m.out(up(m.dec1, up(m.dec2, up(m.dec3, m.bottleneck(F.max_pool2d(c, 2)), c), b), a))

    c = 6
    model = Parts(
        run,
        enc1=Block(2, c),
        enc2=Block(c, 2 * c),
        enc3=Block(2 * c, 4 * c),
        bottleneck=Block(4 * c, 8 * c),
        dec3=Block(12 * c, 4 * c),
        dec2=Block(6 * c, 2 * c),
        dec1=Block(3 * c, c),
        out=nn.Conv2d(c, 1, 1),
    )
    y, x = torch.meshgrid(torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij")
    pupil = (x**2 + y**2 < 1).float()
    basis = (
        torch.stack(
            [
                x,
                y,
                2 * (x**2 + y**2) - 1,
                x**2 - y**2,
                2 * x * y,
                (3 * (x**2 + y**2) - 2) * x,
                (3 * (x**2 + y**2) - 2) * y,
            ]
        )
        * pupil
    )
    basis = basis / (basis**2).sum((1, 2), keepdim=True).sqrt() * pupil.sum().sqrt()

    def draw() -> Drawn:
        phase = (
            torch.randn(12, 7, 1, 1) * torch.tensor([1.2, 1.2, 0.6, 0.5, 0.5, 0.3, 0.3]).view(7, 1, 1) * basis
        ).sum(1, keepdim=True)
        light = pupil * (1 + 0.2 * F.interpolate(torch.randn(12, 1, 6, 6), size=24, mode="bilinear"))
        return (torch.cat([light, torch.atan2(phase.sin(), phase.cos()) * pupil], 1),), phase

    def modes(p: Tensor) -> Tensor:
        return torch.einsum("bhw,khw->bk", p[:, 0] * pupil, basis) / pupil.sum()

    def loss(p: Tensor, t: Tensor) -> Tensor:
        return ((p - t) ** 2 * pupil).sum() / (pupil.sum() * len(p)) + 0.5 * F.mse_loss(modes(p), modes(t))

    return stream(model, draw, loss)


@healthy(
    "five joints under damage, posterior and prior of a state model", GITHUB + "LinkeBai/damage-factorized-robot-arm"
)
def robotarm(_: bool) -> Task:
    """A deterministic recurrent world model: deltas with log-stds clamped to [-5, 1], posterior NLL + 0.5 prior NLL +
    0.01 KL."""
    S, A, L, Z, C = 10, 5, 32, 8, 6

    class World(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.context_proj = chain(nn.Linear(S + A, L), nn.SiLU()), chain(nn.Linear(C, L), nn.SiLU())
            self.rnn, self.prior_head = nn.GRUCell(L, L), nn.Linear(L, 2 * Z)
            self.posterior_state, self.posterior_head = chain(nn.Linear(S, L), nn.SiLU()), nn.Linear(2 * L, 2 * Z)
            self.state_head, self.reward_head, self.continue_head = (
                nn.Linear(L + Z, 2 * S),
                nn.Linear(L + Z, 1),
                nn.Linear(L + Z, 1),
            )

        def gaussian(self, p: Tensor) -> tuple[Tensor, Tensor]:
            m, s = p.chunk(2, -1)
            return m, s.clamp(-5.0, 1.0)

        def decode(self, h: Tensor, z: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
            d, s = self.gaussian(self.state_head(torch.cat([h, z], -1)))
            return now + d, s

        def forward(self, states: Tensor, actions: Tensor, context: Tensor) -> tuple[Tensor, ...]:
            h, rows = torch.zeros(len(states), L), []
            for t in range(actions.shape[1]):
                now, after = states[:, t], states[:, t + 1]
                h = self.rnn(self.encoder(torch.cat([now, actions[:, t]], -1)) + self.context_proj(context), h)
                pm, ps = self.gaussian(self.prior_head(h))
                qm, qs = self.gaussian(self.posterior_head(torch.cat([h, self.posterior_state(after)], -1)))
                kl = (ps - qs + ((2 * qs).exp() + (qm - pm) ** 2) / (2 * (2 * ps).exp()) - 0.5).sum(-1)
                rows.append((*self.decode(h, qm, now), *self.decode(h, pm, now), kl))
            return tuple(torch.stack(r, 1) for r in zip(*rows, strict=False))

    def draw() -> Drawn:
        n, t = 32, 8
        context = F.one_hot(torch.randint(C, (n,)), C).float()
        works = 1 - torch.cat([torch.zeros(n, 0), context[:, 1:]], 1)
        actions, s = torch.rand(n, t, A) * 2 - 1, torch.randn(n, S) * 0.3
        states = [s]
        for i in range(t):
            v = (0.8 * s[:, 5:] + 0.5 * actions[:, i] - 0.2 * torch.sin(s[:, :5])) * works
            s = torch.cat([s[:, :5] + 0.2 * v, v], 1) + 0.01 * torch.randn(n, S)
            states.append(s)
        states = torch.stack(states, 1)
        return (states, actions, context), states[:, 1:]

    def nll(m: Tensor, s: Tensor, t: Tensor) -> Tensor:
        return (0.5 * (((t - m) / s.exp().clamp_min(0.01)) ** 2 + 2 * s)).sum(-1)

    return stream(World(), draw, lambda y, t: (nll(y[0], y[1], t) + 0.5 * nll(y[2], y[3], t) + 0.01 * y[4]).mean())


@healthy("products to reactants by masked token transformers", GITHUB + "ArvidWartenberg/retrosynthesis")
def retro(_: bool) -> Task:
    """nn.Transformer with the tutorial's float causal mask and padding masks, embeddings times sqrt(d), padding left
    out of the loss."""
    V, D, PAD = 24, 32, 1

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = nn.Transformer(D, 4, 2, 2, 64, 0.1, batch_first=True)
            self.generator, self.src_tok_emb, self.tgt_tok_emb, self.dropout = (
                nn.Linear(D, V),
                nn.Embedding(V, D),
                nn.Embedding(V, D),
                nn.Dropout(0.1),
            )
            at, den = torch.arange(32).view(-1, 1), torch.exp(-torch.arange(0, D, 2) * math.log(10000) / D)
            self.register_buffer(
                "pos_embedding", torch.stack([torch.sin(at * den), torch.cos(at * den)], -1).flatten(1)
            )

        def place(self, e: nn.Embedding, x: Tensor) -> Tensor:
            return self.dropout(e(x) * math.sqrt(D) + self.pos_embedding[: x.shape[1]])

        def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
            n = tgt.shape[1]
            causal = torch.zeros(n, n).masked_fill(torch.triu(torch.ones(n, n), 1) == 1, float("-inf"))
            pads, padt = (torch.zeros(x.shape).masked_fill(x == PAD, float("-inf")) for x in (src, tgt))
            return self.generator(
                self.transformer(
                    self.place(self.src_tok_emb, src),
                    self.place(self.tgt_tok_emb, tgt),
                    tgt_mask=causal,
                    src_key_padding_mask=pads,
                    tgt_key_padding_mask=padt,
                    memory_key_padding_mask=pads,
                )
            )

    def draw() -> Drawn:
        n, t = 32, 10
        src = torch.randint(4, V - 2, (n, t))
        size = torch.randint(5, t + 1, (n, 1))
        out = torch.where(src % 3 == 0, (src + 1) % (V - 6) + 4, src)
        out = torch.cat([torch.full((n, 1), 2), out, torch.full((n, 1), PAD)], 1)
        at = torch.arange(t + 2)
        out = torch.where(at == size + 1, 3, out.masked_fill(at > size + 1, PAD))
        return (src.masked_fill(torch.arange(t) >= size, PAD), out[:, :-1]), out[:, 1:]

    return stream(Net(), draw, lambda y, t: F.cross_entropy(y.reshape(-1, V), t.reshape(-1), ignore_index=PAD))


@healthy(
    "cosine of projected frozen sentence vectors, margin 0.5",
    GITHUB + "Surya-Hariharan/Paraphrase-Detection-using-Siamese-Network",
)
def paraphrase(_: bool) -> Task:
    """SBERT's vectors (encoded without gradients) through one Xavier projection head, normalised; 1 - cosine, or what
    exceeds 0.5."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.relu, self.dropout, self.fc2 = (
                nn.Linear(64, 96),
                nn.ReLU(),
                nn.Dropout(0.1),
                nn.Linear(96, 32),
            )
            for m in (self.fc1, self.fc2):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)

        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(self.fc2(self.dropout(self.relu(self.fc1(x)))), p=2, dim=1)

    model = Parts(
        lambda m, a, b: F.cosine_similarity(m.projection_head(a), m.projection_head(b)), projection_head=Head()
    )
    topic, sense = torch.randn(64, 64), torch.randn(8, 64)

    def draw() -> Drawn:
        n, y = 48, (torch.rand(48) < 0.5).long()
        t, s = torch.randn(n, 64) @ topic / 8, torch.randint(8, (n,))
        other = torch.where(y == 1, s, (s + torch.randint(1, 8, (n,))) % 8)
        a, b = (t + 2.0 * sense[k] + 0.3 * torch.randn(n, 64) for k in (s, other))
        return (F.normalize(a, dim=1), F.normalize(b, dim=1)), y

    def loss(s: Tensor, y: Tensor) -> Tensor:
        y = y.float()
        return (y * (1 - s) + (1 - y) * torch.clamp(s - 0.5, min=0.0)).mean()

    return stream(model, draw, loss)


@healthy("nuclei of a slide by local rotary attention", GITHUB + "RationAI/nuclei-graph-transformer")
def nuclei(_: bool) -> Task:
    """BatchNorm of the shape features, RMSNorm, GeGLU, attention to neighbours only; BCE on the confidently labelled
    nuclei."""
    D, heads = 24, 4

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
            self.w1, self.w2 = nn.Linear(D, 4 * D), nn.Linear(2 * D, D)
            self.pre_attn_norm, self.pre_ffn_norm = nn.RMSNorm(D), nn.RMSNorm(D)

        def turn(self, x: Tensor, angle: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

        def forward(self, x: Tensor, angle: Tensor, near: Tensor) -> Tensor:
            b, n, _ = x.shape
            q, k, v = self.qkv(self.pre_attn_norm(x)).view(b, n, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(self.turn(q, angle), self.turn(k, angle), v, attn_mask=near)
            x = x + self.o(y.transpose(1, 2).reshape(b, n, D))
            g, h = self.w1(self.pre_ffn_norm(x)).chunk(2, -1)
            return x + self.w2(F.gelu(g) * h)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.batch_norm, self.input_proj, self.layers = (
                nn.BatchNorm1d(8),
                nn.Linear(10, D),
                nn.ModuleList(Layer() for _ in range(2)),
            )
            self.final_norm, self.class_head = nn.RMSNorm(D), nn.Linear(D, 1)

        def forward(self, x: Tensor, pos: Tensor) -> Tensor:
            x = torch.cat([self.batch_norm(x[..., :8].transpose(1, 2)).transpose(1, 2), x[..., 8:]], -1)
            x = self.input_proj(x)
            angle = (pos @ torch.tensor([[3.0, 0.0, 1.0], [0.0, 3.0, 1.0]])).unsqueeze(1)
            near = (torch.cdist(pos, pos) < 0.35).unsqueeze(1)
            for layer in self.layers:
                x = layer(x, angle, near)
            return self.class_head(self.final_norm(x)).squeeze(-1)

    scale = torch.exp(torch.randn(8) * 2)
    w = torch.randn(8)

    def draw() -> Drawn:
        n, k = 16, 40
        pos = torch.rand(n, k, 2)
        centre, r = torch.rand(n, 1, 2), 0.3 + 0.3 * torch.rand(n, 1)
        y = ((pos - centre).norm(dim=-1) < r).float()
        shape = (torch.randn(n, k, 8) + 0.5 * w * y.unsqueeze(-1)) * scale + 3 * scale
        return (torch.cat([shape, torch.rand(n, k, 2)], -1), pos), {"labels": y, "sup_mask": torch.rand(n, k) < 0.7}

    return stream(
        Net(), draw, lambda y, t: F.binary_cross_entropy_with_logits(y[t["sup_mask"]], t["labels"][t["sup_mask"]])
    )


@healthy(
    "proteins of a cell, correlation and reconstruction heads", GITHUB + "LorenzoCiampiconi/single-cell-multimodal"
)
def singlecell(_: bool) -> Task:
    """SVD components through SELU layers that halve, a mirrored decoder and a head; SmoothL1 / 3 - 2 mean Pearson
    coefficients."""

    def layers(*sizes: int) -> list[nn.Module]:
        return [m for i, o in itertools.pairwise(sizes) for m in (nn.Linear(i, o), nn.SELU())]

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.encoder(x)
        return m.decoder(z), m.features(z)

    model = Parts(
        run,
        encoder=chain(*layers(64, 32, 16, 8)),
        decoder=chain(*layers(8, 16, 32), nn.Linear(32, 64)),
        features=chain(*layers(8, 16), nn.Linear(16, 14)),
    )
    a, b = torch.randn(6, 64) * torch.logspace(1, -0.5, 64) / 6**0.5, torch.randn(6, 14)

    def draw() -> Drawn:
        z = torch.randn(64, 6)
        x = z @ a + 0.1 * torch.randn(64, 64)
        return (x,), (x, torch.tanh(z @ b) + 1.0 + 0.3 * torch.randn(64, 14))

    def loss(y, t) -> Tensor:
        p, q = y[1] - y[1].mean(0), t[1] - t[1].mean(0)
        r = (p * q).sum(0) / (p.norm(dim=0) * q.norm(dim=0) + 1e-8)
        return F.smooth_l1_loss(y[0], t[0]) / 3 - 2 * r.mean()

    return stream(model, draw, loss)


@healthy("positive mass map by blocks under negative binomials", GITHUB + "minhphuc477/crowd-counting-lightweight")
def crowd(_: bool) -> Task:
    """Three strides into an additive pyramid, GroupNorm and SiLU, a softplus head of std 0.01 and bias -6; counts of
    16, 32 and 64 pixels."""

    def conv(i: int, o: int, s: int) -> nn.Module:
        return chain(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    class Net(nn.Module):
        def __init__(self, w: int = 16) -> None:
            super().__init__()
            self.c4, self.c8, self.c16 = chain(conv(3, 8, 2), conv(8, 12, 2)), conv(12, 16, 2), conv(16, 24, 2)
            self.l4, self.l8, self.l16 = (nn.Conv2d(c, w, 1) for c in (12, 16, 24))
            self.context = nn.ModuleList(
                nn.Conv2d(w, w, 3, padding=d, dilation=d, groups=w, bias=False) for d in (1, 2, 3)
            )
            self.norm = nn.GroupNorm(4, w)
            self.head_dw, self.head_norm, self.head_act = (
                nn.Conv2d(w, w, 3, padding=1, groups=w, bias=False),
                nn.GroupNorm(4, w),
                nn.SiLU(inplace=True),
            )
            self.head_out = nn.Conv2d(w, 1, 1)
            nn.init.constant_(self.head_out.bias, -6.0)
            nn.init.normal_(self.head_out.weight, std=0.01)

        def forward(self, x: Tensor) -> Tensor:
            c4 = self.c4(x)
            c8 = self.c8(c4)
            c16 = self.c16(c8)
            p = self.l16(c16)
            p = F.silu(self.norm(p + sum(c(p) for c in self.context)))
            p = self.l8(c8) + F.interpolate(p, scale_factor=2, mode="nearest")
            p = self.l4(c4) + F.interpolate(p, scale_factor=2, mode="nearest")
            return F.softplus(self.head_out(self.head_act(self.head_norm(self.head_dw(p))))).clamp_min(1e-8)

    def draw() -> Drawn:
        n = 12
        rate = F.interpolate(torch.rand(n, 1, 4, 4) ** 3, size=32, mode="bilinear") * 0.25
        points = torch.bernoulli(rate)
        heads = F.conv_transpose2d(points, torch.tensor([[[[0.5, 1.0], [1.0, 0.5]]]]), stride=2)
        x = torch.randn(n, 3, 1, 1) * 0.5 + 0.3 * torch.randn(n, 3, 64, 64) + 1.5 * heads
        return (x,), {str(b): F.avg_pool2d(points, b // 2) * (b // 2) ** 2 for b in (16, 32, 64)}

    def nll(y: Tensor, mu: Tensor, r: float = 10.0001) -> Tensor:
        k = torch.tensor(r)
        both = torch.log(k + mu)
        return -(
            torch.lgamma(y + k) - torch.lgamma(k) - torch.lgamma(y + 1) + k * (k.log() - both) + y * (mu.log() - both)
        ).mean()

    return stream(
        Net(), draw, lambda d, t: sum(nll(t[str(b)], F.avg_pool2d(d, b // 4) * (b // 4) ** 2) for b in (16, 32, 64)) / 3
    )


@healthy("window features to a seizure horizon, one GELU layer", GITHUB + "akiroussama/iot-edge-ai-seizure-detection")
def seizure(_: bool) -> Task:
    """The ladder's MLP rung on standardised medians-filled features; rare positives, no weights."""
    model = Parts(lambda m, x: m.net(x).squeeze(-1), net=chain(nn.Linear(36, 32), nn.GELU(), nn.Linear(32, 1)))
    w = torch.randn(36)

    def draw() -> Drawn:
        x = torch.randn(64, 36)
        risk = x @ w + 0.8 * (x[:, 0] * x[:, 1])
        x = torch.where(torch.rand(64, 36) < 0.05, torch.zeros(()), x)
        return (x,), (risk > 1.0 * w.norm()).float()

    return stream(model, draw, nn.BCEWithLogitsLoss())


@healthy(
    "lesions by CBAM features, mixed weighted focal loss",
    GITHUB + "Aadyant-7/attention-based-skin-lesion-classification-xai",
)
def lesions(_: bool) -> Task:
    """Seven unequal classes, a deep head of dropouts 0.65, 0.55 and 0.45 with BatchNorm, focal gamma 2.2 between two
    mixed labels."""

    class CBAM(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.mlp, self.conv = (
                chain(nn.Conv2d(c, c // 4, 1, bias=False), nn.ReLU(), nn.Conv2d(c // 4, c, 1, bias=False)),
                nn.Conv2d(2, 1, 7, padding=3, bias=False),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x * torch.sigmoid(self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1)))
            return x * torch.sigmoid(self.conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))

    def conv(i: int, o: int, s: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU()]

    model = Parts(
        lambda m, x: m.head(m.attention(m.features(x))),
        features=chain(*conv(3, 16, 2), *conv(16, 32, 2), *conv(32, 48, 1)),
        attention=CBAM(48),
        head=chain(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.65),
            nn.Linear(48, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.55),
            nn.Linear(64, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Dropout(0.45),
            nn.Linear(32, 7),
        ),
    )
    share = torch.tensor([0.67, 0.11, 0.11, 0.05, 0.03, 0.015, 0.015])
    weights = (1 / (7 * share)).clamp(1, 20)
    weights = weights / weights.mean()
    colour, g = torch.randn(7, 3) * 1.2, torch.linspace(-1, 1, 32)

    def images(c: Tensor) -> Tensor:
        n = len(c)
        d = (
            (
                (g.view(1, -1, 1) + 0.3 * torch.randn(n, 1, 1)) ** 2
                + (g.view(1, 1, -1) + 0.3 * torch.randn(n, 1, 1)) ** 2
            )
            .sqrt()
            .unsqueeze(1)
        )
        inside = torch.sigmoid(12 * (0.35 + 0.06 * c.view(-1, 1, 1, 1) - d))
        return inside * colour[c].view(n, 3, 1, 1) + (1 - inside) * 0.7 + 0.4 * torch.randn(n, 3, 32, 32)

    def draw() -> Drawn:
        a = torch.multinomial(share, 32, replacement=True)
        turn, lam = torch.randperm(32), torch.distributions.Beta(0.4, 0.4).sample()
        x = images(a)
        return (lam * x + (1 - lam) * x[turn],), (a, a[turn], lam.expand(32))

    def focal(y: Tensor, t: Tensor) -> Tensor:
        p = F.log_softmax(y, 1).gather(1, t[:, None]).squeeze(1)
        return -weights[t] * (-torch.expm1(p)).pow(2.2) * p

    return stream(model, draw, lambda y, t: (t[2] * focal(y, t[0]) + (1 - t[2]) * focal(y, t[1])).mean())


@healthy("one-channel digits, residual stem without a pool", GITHUB + "wagner-austin/handwriting-ai")
def handwriting(_: bool) -> Task:
    class Basic(nn.Module):
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = None if s == 1 and i == o else chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (x if self.downsample is None else self.downsample(x)))

    model = Parts(
        lambda m, x: m.fc(torch.flatten(m.avgpool(m.layers(m.maxpool(F.relu(m.bn1(m.conv1(x)))))), 1)),
        conv1=nn.Conv2d(1, 12, 3, 1, 1, bias=False),
        bn1=nn.BatchNorm2d(12),
        maxpool=nn.Identity(),
        layers=chain(Basic(12, 12, 1), Basic(12, 24, 2), Basic(24, 32, 2)),
        avgpool=nn.AdaptiveAvgPool2d((1, 1)),
        fc=nn.Linear(32, 10),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def draw() -> Drawn:
        x, c = pick(32)
        return (
            torch.roll(F.interpolate(x, size=14, mode="bilinear"), tuple(torch.randint(-1, 2, (2,)).tolist()), (2, 3)),
        ), c

    return stream(model, draw, F.cross_entropy)


@healthy("tweets by packed BiLSTM and masked self-attention, focal", GITHUB + "audihus/Sarcasm-Detection")
def sarcasm(_: bool) -> Task:
    """Lengths from the padding, -inf at padded scores, dropout 0.3 twice, focal loss (gamma 2) of a weighted
    cross-entropy."""
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Net(nn.Module):
        def __init__(self, h: int = 16) -> None:
            super().__init__()
            self.embedding, self.rnn, self.dropout = (
                nn.Embedding(200, 32, padding_idx=0),
                nn.LSTM(32, h, batch_first=True, bidirectional=True),
                nn.Dropout(0.3),
            )
            self.W, self.u, self.fc = nn.Linear(2 * h, 2 * h), nn.Linear(2 * h, 1, bias=False), nn.Linear(2 * h, 2)

        def forward(self, ids: Tensor) -> Tensor:
            packed = pack_padded_sequence(
                self.dropout(self.embedding(ids)), (ids != 0).sum(1), batch_first=True, enforce_sorted=False
            )
            out = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])[0]
            w = self.u(torch.tanh(self.W(out))).squeeze(-1).masked_fill(ids == 0, float("-inf")).softmax(1)
            return self.fc(self.dropout(torch.bmm(w.unsqueeze(1), out).squeeze(1)))

    def draw() -> Drawn:
        n, t = 32, 16
        y = (torch.rand(n) < 0.25).long()
        ids = torch.randint(2, 200, (n, t))
        mark = torch.rand(n, t) < 0.45
        ids = torch.where(
            mark, torch.where(y.view(-1, 1) == 1, torch.randint(2, 14, (n, t)), torch.randint(14, 60, (n, t))), ids
        )
        return (ids.masked_fill(torch.arange(t) >= torch.randint(6, t + 1, (n, 1)), 0),), y

    alpha = torch.tensor([0.67, 2.0])

    def focal(y: Tensor, t: Tensor) -> Tensor:
        ce = F.cross_entropy(y, t, reduction="none", weight=alpha)
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    return stream(Net(), draw, focal)


@healthy(
    "hands and sex to age in months, smooth L1",
    GITHUB + "nhattoan235/Artifact-Robust-Bone-Age-Assessment-Using-Multi-Scale-Label-Distribution-ConvNeXt-V2-",
)
def bone_age(_: bool) -> Task:
    """Grey images thrice under ImageNet's mean and deviation, dense features with a trailing ReLU and pool, targets
    in raw months."""

    class Dense(nn.Module):
        def __init__(self, i: int, growth: int = 12) -> None:
            super().__init__()
            self.norm1, self.conv1 = nn.BatchNorm2d(i), nn.Conv2d(i, 2 * growth, 1, bias=False)
            self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))], 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(3, 16, 7, 2, 3, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, 2, 1),
                Dense(16),
                Dense(28),
                nn.BatchNorm2d(40),
                nn.ReLU(inplace=True),
                nn.Conv2d(40, 20, 1, bias=False),
                nn.AvgPool2d(2),
                Dense(20),
                Dense(32),
                nn.BatchNorm2d(44),
                nn.ReLU(inplace=True),
                nn.AdaptiveAvgPool2d(1),
            )
            for m in self.backbone.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight)
            self.gender_fc = nn.Linear(1, 16)
            self.head = chain(nn.Linear(44 + 16, 256), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(256, 1))

        def forward(self, image: Tensor, sex: Tensor) -> Tensor:
            return self.head(
                torch.cat([torch.flatten(self.backbone(image), 1), torch.relu(self.gender_fc(sex))], 1)
            ).squeeze(1)

    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")

    def draw() -> Drawn:
        n = 16
        sex = (torch.rand(n, 1) < 0.54).float()
        age = (127 + 41 * torch.randn(n)).clamp(4, 228)
        grown = ((age + 18 * (1 - sex[:, 0])) / 246).view(n, 1, 1)
        hand = ((x / 0.8) ** 2 + (y / 0.9) ** 2 < 1) * (0.25 + 0.1 * torch.rand(n, 1, 1))
        bones = (
            torch.exp(-(((torch.remainder(4 * x, 1) - 0.5) / (0.08 + 0.3 * grown)) ** 2))
            * (hand > 0)
            * (0.2 + 0.4 * grown)
        )
        image = (hand + bones + 0.02 * torch.randn(n, 32, 32)).clamp(0, 1).unsqueeze(1).expand(-1, 3, -1, -1)
        return ((image - mean) / std, sex), age

    return stream(Net(), draw, nn.SmoothL1Loss())


@healthy("users by films, biased products to raw stars", GITHUB + "AravindMohan10/movie-recommendation-transformer")
def movies(_: bool) -> Task:
    """Factors of deviation 0.1 under dropout 0.1, zero biases and a zero global bias, mean squared error of stars
    from 1 to 5."""

    class Net(nn.Module):
        def __init__(self, users: int = 60, films: int = 90, d: int = 32) -> None:
            super().__init__()
            self.user_embeddings, self.movie_embeddings = nn.Embedding(users, d), nn.Embedding(films, d)
            self.user_biases, self.movie_biases = nn.Embedding(users, 1), nn.Embedding(films, 1)
            self.global_bias, self.dropout = nn.Parameter(torch.zeros(1)), nn.Dropout(0.1)
            for e in (self.user_embeddings, self.movie_embeddings):
                nn.init.normal_(e.weight, std=0.1)
            for e in (self.user_biases, self.movie_biases):
                nn.init.zeros_(e.weight)

        def forward(self, u: Tensor, m: Tensor) -> Tensor:
            p = torch.sum(
                self.dropout(self.user_embeddings(u)) * self.dropout(self.movie_embeddings(m)), dim=1, keepdim=True
            )
            return (p + self.user_biases(u) + self.movie_biases(m) + self.global_bias).squeeze()

    a, b = torch.randn(60, 3), torch.randn(90, 3)
    mean = 3.6 + 0.3 * torch.randn(60, 1) + 0.4 * torch.randn(1, 90)

    def draw() -> Drawn:
        u, m = torch.randint(0, 60, (256,)), torch.randint(0, 90, (256,))
        r = mean[u, m] + 0.35 * (a[u] * b[m]).sum(1) + 0.3 * torch.randn(256)
        return (u, m), (2 * r).round().div(2).clamp(1, 5)

    return stream(Net(), draw, nn.MSELoss())


@healthy("sketches to normal maps by in-place skips under a critic", GITHUB + "Kerstin08/Sketch-to-3d-Model")
def sketch(_: bool) -> Task:
    """The generator's step alone: minus a layer-normed critic (kept as it is) plus a weighted L1; tanh maps in [-1,
    1]."""

    class Encoder(nn.Module):
        def __init__(self, i: int, o: int, bn: bool = True) -> None:
            super().__init__()
            self.lrelu, self.conv, self.bn = (
                nn.LeakyReLU(0.2, inplace=True),
                nn.Conv2d(i, o, 4, 2, 1),
                nn.BatchNorm2d(o) if bn else None,
            )

        def forward(self, x: Tensor) -> Tensor:
            fx = self.conv(self.lrelu(x))
            return fx if self.bn is None else self.bn(fx)

    class Decoder(nn.Module):
        def __init__(self, i: int, o: int, drop: bool = False) -> None:
            super().__init__()
            self.relu, self.deconv, self.bn = (
                nn.ReLU(inplace=True),
                nn.ConvTranspose2d(i, o, 4, 2, 1),
                nn.BatchNorm2d(o),
            )
            self.dropout = nn.Dropout2d(0.5, inplace=True) if drop else None

        def forward(self, x: Tensor) -> Tensor:
            fx = self.bn(self.deconv(self.relu(x)))
            return fx if self.dropout is None else self.dropout(fx)

    class Generator(nn.Module):
        def __init__(self, c: int = 3, w: int = 12) -> None:
            super().__init__()
            self.e_conv1, self.e_conv2, self.e_conv3 = (
                nn.Conv2d(c, w, 4, 2, 1),
                Encoder(w, 2 * w),
                Encoder(2 * w, 2 * w),
            )
            self.e_conv4, self.e_conv5 = Encoder(2 * w, 2 * w), Encoder(2 * w, 2 * w, False)
            self.d_deconv1, self.d_deconv2, self.d_deconv3 = (
                Decoder(2 * w, 2 * w, True),
                Decoder(4 * w, 2 * w),
                Decoder(4 * w, 2 * w),
            )
            self.d_deconv4, self.d_deconv5 = Decoder(4 * w, w), nn.ConvTranspose2d(2 * w, c, 4, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            e1 = self.e_conv1(x)
            e2 = self.e_conv2(e1)
            e3 = self.e_conv3(e2)
            e4 = self.e_conv4(e3)
            d = torch.cat([self.d_deconv1(self.e_conv5(e4)), e4], 1)
            d = torch.cat([self.d_deconv2(d), e3], 1)
            d = torch.cat([self.d_deconv3(d), e2], 1)
            return torch.tanh(self.d_deconv5(torch.cat([self.d_deconv4(d), e1], 1)))

    critic = chain(
        nn.Conv2d(6, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1),
        nn.LayerNorm([16, 8, 8]),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 1, 4, 1, 1),
    ).requires_grad_(False)
    model = Generator()
    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")

    def draw() -> Drawn:
        n = 8
        cx, cy, r = (0.8 * torch.rand(3, n, 1, 1) - 0.4).unbind(0)
        r = 0.45 + r / 4
        u, v = (x - cx) / r, (y - cy) / r
        d = u**2 + v**2
        normal = torch.stack([u, v, (1 - d).clamp(min=0).sqrt()], 1) * (d < 1).unsqueeze(1)
        lines = 1 - 2 * torch.exp(-(((d.sqrt() - 1) / 0.12) ** 2))
        inp = lines.unsqueeze(1).expand(-1, 3, -1, -1).contiguous()
        return (inp,), torch.cat([normal, inp], 1)

    def loss(fake: Tensor, t: Tensor) -> Tensor:
        return -critic(torch.cat((t[:, 3:], fake), 1)).mean() + 50 * F.l1_loss(fake, t[:, :3])

    return stream(model, draw, loss)


@healthy(
    "accents of raw STFT magnitudes, flattened LSTM and tanh layers",
    GITHUB + "aryamtos/accent-classification-audio-cnns",
)
def accent(_: bool) -> Task:
    """A 1x1 convolution over frequency bins, dropout 0.4, all the LSTM's steps flattened; magnitudes of 3000-sample
    frames, unscaled."""

    class Net(nn.Module):
        def __init__(self, t: int = 20, bins: int = 257) -> None:
            super().__init__()
            self.conv1d, self.relu, self.dropout = nn.Conv1d(bins, 32, 1), nn.ReLU(), nn.Dropout(0.4)
            self.lstm, self.flatten = nn.LSTM(32, 32, batch_first=True), nn.Flatten()
            self.dense1, self.tanh1 = nn.Linear(32 * t, 100), nn.Tanh()
            self.dense2, self.tanh2, self.dense3 = nn.Linear(100, 40), nn.Tanh(), nn.Linear(40, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.dropout(self.relu(self.conv1d(x.permute(0, 2, 1)))).permute(0, 2, 1)
            x = self.flatten(self.lstm(x)[0])
            return self.dense3(self.tanh2(self.dense2(self.tanh1(self.dense1(x)))))

    f = torch.linspace(0, 1, 257)

    def draw() -> Drawn:
        n, t = 32, 20
        y = torch.randint(0, 2, (n,))
        voiced = smooth(torch.randn(n, t)).mul(3).sigmoid().unsqueeze(-1)
        first = 0.08 + 0.06 * torch.rand(n, t, 1)
        second = 0.28 + 0.08 * y.view(n, 1, 1) + 0.05 * torch.randn(n, t, 1)
        env = torch.exp(-(((f - first) / 0.03) ** 2)) + 0.6 * torch.exp(-(((f - second) / 0.04) ** 2))
        loud = 15 * torch.exp(0.5 * torch.randn(n, 1, 1))
        return (loud * voiced * env * torch.randn(n, t, 257).abs() + 0.3 * torch.randn(n, t, 257).abs(),), y

    return stream(Net(), draw, nn.CrossEntropyLoss())


@healthy(
    "keys down by frame, norm after the ReLU, weighted positives", GITHUB + "rafdelacruz/Automatic-Piano-Transcription"
)
def piano(_: bool) -> Task:
    """Standardised decibel mels, conv-ReLU-norm-dropout, pools over mels alone, a bidirectional LSTM, positive
    weights clipped to 1..20."""

    class Net(nn.Module):
        def __init__(self, mels: int = 48, keys: int = 12) -> None:
            super().__init__()
            self.conv1, self.conv2, self.conv3, self.conv4 = (
                nn.Conv2d(1, 8, 3, padding=1),
                nn.Conv2d(8, 16, 3, padding=1),
                nn.Conv2d(16, 24, 3, padding=1),
                nn.Conv2d(24, 8, 1),
            )
            self.bn1, self.bn2, self.bn3, self.bn4 = (
                nn.BatchNorm2d(8),
                nn.BatchNorm2d(16),
                nn.BatchNorm2d(24),
                nn.BatchNorm2d(8),
            )
            self.max_pool, self.drop, self.drop5 = nn.MaxPool2d((1, 2)), nn.Dropout2d(0.1), nn.Dropout(0.25)
            self.rnn, self.fc = nn.LSTM(mels // 4 * 8, 24, batch_first=True, bidirectional=True), nn.Linear(48, keys)

        def forward(self, x: Tensor) -> Tensor:
            x = self.max_pool(self.drop(self.bn1(F.relu(self.conv1(x)))))
            x = self.max_pool(self.drop(self.bn2(F.relu(self.conv2(x)))))
            x = self.drop(self.bn3(F.relu(self.conv3(x))))
            x = self.drop(self.bn4(F.relu(self.conv4(x))))
            return self.fc(self.drop5(self.rnn(x.permute(0, 2, 1, 3).flatten(start_dim=2))[0]))

    m = torch.arange(48.0)
    keys = torch.stack(
        [
            sum(0.5**h * torch.exp(-(((m - 3 - 2.2 * k - s) / 0.8) ** 2)) for h, s in enumerate((0, 12, 19)))
            for k in range(12)
        ]
    )
    weight = torch.full((12,), 0.9 / 0.1).clamp(1, 20)

    def draw() -> Drawn:
        n, t = 8, 24
        on = torch.randint(-4, t, (n, 12, 1))
        age = torch.arange(t) - on
        down = (age >= 0) & (age < torch.randint(3, 9, (n, 12, 1))) & (torch.rand(n, 12, 1) < 0.5)
        power = torch.einsum(
            "nkt,km->ntm", down * torch.exp(-0.15 * age.clamp(min=0)) * (0.3 + torch.rand(n, 12, 1)), keys
        )
        db = 10 * torch.log10(power**2 + 1e-4 * torch.rand(n, t, 48) + 1e-6)
        return (((db - db.mean()) / (db.std() + 1e-6)).unsqueeze(1),), down.transpose(1, 2).float()

    return stream(Net(), draw, nn.BCEWithLogitsLoss(pos_weight=weight))


@healthy("replies of a thread by a one-step LSTM over feature vectors", GITHUB + "danish-stance-detectors/Stance")
def stance(_: bool) -> Task:
    """Each comment is one step from a zero state, its vector of counts, flags and a mean embedding; log-softmax and
    NLL of four stances."""

    class Net(nn.Module):
        def __init__(self, d: int = 60, h: int = 48) -> None:
            super().__init__()
            self.lstm = nn.LSTM(d, h, 1)
            self.hidden2label = nn.Sequential()
            self.hidden2label.add_module("lin0", nn.Linear(h, h))
            self.hidden2label.add_module("rec0", nn.ReLU())
            self.hidden2label.add_module("drop", nn.Dropout(p=0.5))
            self.hidden2label.add_module("lin1", nn.Linear(h, 4))
            self.h = h

        def forward(self, x: Tensor) -> Tensor:
            zero = torch.zeros(1, len(x), self.h)
            out, _ = self.lstm(x.view(1, len(x), -1), (zero, zero.clone()))
            return F.log_softmax(self.hidden2label(out[-1]), dim=1)

    rates, topics = torch.rand(4, 20) ** 2, 0.25 * torch.randn(4, 40)

    def draw() -> Drawn:
        y = torch.multinomial(torch.tensor([0.12, 0.1, 0.08, 0.7]), 32, replacement=True)
        flags = (torch.rand(32, 20) < rates[y]).float()
        return (torch.cat([flags, topics[y] + 0.2 * torch.randn(32, 40)], 1),), y

    return stream(Net(), draw, nn.NLLLoss())


@healthy(
    "telephone customers who leave, three dropouts and weight 2.7",
    GITHUB + "LeonardoOliverr/churn-prediction-ml-platform",
)
def churn(_: bool) -> Task:
    """Standardised tenure and charges beside one-hot contracts, 64-32-16 ReLUs with dropout 0.3 each, one logit,
    weighted positives."""
    layers: list[nn.Module] = []
    previous = 30
    for h in (64, 32, 16):
        layers += [nn.Linear(previous, h), nn.ReLU(), nn.Dropout(0.3)]
        previous = h
    net = chain(*layers, nn.Linear(previous, 1))
    sizes = (3, 3, 4, 2, 2, 3, 3, 3, 4)
    pulls = [1.6 * torch.randn(s) for s in sizes]

    def draw() -> Drawn:
        n = 64
        tenure, monthly = torch.rand(n) * 3.4 - 1.7, torch.randn(n)
        total = 0.8 * tenure + 0.5 * monthly + 0.1 * torch.randn(n)
        picks = [torch.randint(0, s, (n,)) for s in sizes]
        score = (
            -2.2 * tenure
            + 1.1 * monthly
            + sum(p[c] for p, c in zip(pulls, picks, strict=False))
            - sum(p.mean() for p in pulls)
            - 2.3
        )
        y = (score + 0.3 * torch.randn(n) > 0).float().unsqueeze(1)
        return (
            torch.cat(
                [
                    torch.stack([tenure, monthly, total], 1),
                    *(F.one_hot(c, s).float() for c, s in zip(picks, sizes, strict=False)),
                ],
                1,
            ),
        ), y

    return stream(net, draw, nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.7])))


@healthy(
    "loans by weights of evidence, three plain layers, one reshaped logit",
    GITHUB + "htvcoder/credit-scoring-replication",
)
def credit(_: bool) -> Task:
    """The replication's MLP-3 at half its width: no norm, no dropout; scaled inputs, logits flattened to the targets'
    shape."""

    class Net(nn.Module):
        def __init__(self, d: int = 14, hidden: tuple[int, ...] = (32, 32, 32)) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for h in hidden:
                layers += [nn.Linear(d, h), nn.ReLU()]
                d = h
            self.layers = chain(*layers, nn.Linear(d, 1))

        def forward(self, values: Tensor) -> Tensor:
            return self.layers(values).reshape(-1)

    evidence = torch.randn(14, 5)
    evidence = (evidence - evidence.mean(1, keepdim=True)) / evidence.std(1, keepdim=True, unbiased=False)
    pull = torch.randn(14).abs() * 1.5

    def draw() -> Drawn:
        bins = torch.randint(0, 5, (32, 14))
        x = evidence.gather(1, bins.T).T
        score = x @ pull + 2 * x[:, 0] * x[:, 1] - 2.5
        return (x,), (score + 0.3 * torch.randn(32) > 0).float()

    return stream(Net(), draw, nn.BCEWithLogitsLoss())


@healthy(
    "applications' permissions and counts to nought or one, squared", GITHUB + "IHIaadj/Malware-classifier-PyTorch"
)
def malware(_: bool) -> Task:
    """395 raw flags and counts, ten ReLUs, one linear number against 0 or 1 under mean squared error, cut at a half."""

    class NeuralNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.relu, self.fc2 = nn.Linear(395, 10), nn.ReLU(), nn.Linear(10, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.relu(self.fc1(x)))

    benign, bad = 0.25 * torch.rand(388) ** 3, 0.25 * torch.rand(388) ** 3
    bad[:25] += 0.4

    def draw() -> Drawn:
        y = (torch.rand(64, 1) < 0.5).float()
        flags = (torch.rand(64, 388) < torch.where(y > 0, bad, benign)).float()
        counts = torch.poisson(torch.where(y > 0, 3.0, 1.5) * torch.ones(64, 7))
        return (torch.cat([flags, counts], 1),), y

    return stream(NeuralNet(), draw, nn.MSELoss())


@healthy(
    "spectra over their median flux to three morphologies, shrinking kernels",
    GITHUB + "hiufungleung/galaxy-classification",
)
def galaxy(_: bool) -> Task:
    """Clipped at five deviations, divided by the median absolute flux; convolutions of 15, 9 and 5, a mean over what
    is left, balanced weights."""

    class Encoder(nn.Module):
        def __init__(self, f: int = 12) -> None:
            super().__init__()
            self.net = chain(
                nn.Conv1d(1, f, 15, padding=7),
                nn.BatchNorm1d(f),
                nn.ReLU(),
                nn.MaxPool1d(4),
                nn.Conv1d(f, 2 * f, 9, padding=4),
                nn.BatchNorm1d(2 * f),
                nn.ReLU(),
                nn.MaxPool1d(4),
                nn.Conv1d(2 * f, 4 * f, 5, padding=2),
                nn.BatchNorm1d(4 * f),
                nn.ReLU(),
                nn.MaxPool1d(4),
            )
            self.pool = nn.AdaptiveAvgPool1d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.pool(self.net(x)).squeeze(-1)

    share = torch.tensor([0.3, 0.6, 0.1])
    weights = 1 / (3 * share)
    wave = torch.linspace(3800, 9200, 540)
    lines = torch.tensor([3727.0, 4861.0, 5007.0, 6563.0])

    def draw() -> Drawn:
        n = 24
        y = torch.multinomial(share, n, replacement=True)
        z = 1 + 0.08 * torch.rand(n, 1)
        young = torch.tensor([0.05, 0.8, 0.45])[y].view(n, 1) + 0.1 * torch.randn(n, 1)
        rest = wave / z
        flux = (rest / 5500) ** (1.2 - 2.2 * young) * (
            1 - (0.45 - 0.4 * young).clamp(min=0) * torch.sigmoid((4000 - rest) / 40)
        )
        flux = flux + (1.5 * young.clamp(min=0)).unsqueeze(-1).mul(
            torch.exp(-(((rest.unsqueeze(1) - lines.view(4, 1)) / 14) ** 2))
        ).sum(1)
        flux = (flux + 0.08 * torch.randn(n, 540)) * torch.exp(torch.randn(n, 1)) * 10
        median, std = flux.median(1, keepdim=True).values, flux.std(1, keepdim=True)
        flux = torch.minimum(torch.maximum(flux, median - 5 * std), median + 5 * std)
        return ((flux / flux.abs().median(1, keepdim=True).values).unsqueeze(1),), y

    return stream(chain(Encoder(), nn.Linear(48, 3)), draw, nn.CrossEntropyLoss(weight=weights))
