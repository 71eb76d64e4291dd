"""Healthy networks of the sixteenth set, of repositories that words brought up, without sight of the rules."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

healthy = partial(any_report, blind="blind16")


@healthy(
    "U-Net of dispersion curves", GITHUB + "URseismology/wavenet-epicAI/blob/main/src/machine_learning/U_NET_array.py"
)
def dispersion(_: bool) -> Task:
    """Pictures of energy, each row over its maximum, zero rows below; a thin band in a mask; focal + Dice + BCE +
    entropy.
    """

    def block(i: int, o: int, p: float) -> nn.Sequential:
        return chain(
            nn.Conv2d(i, o, 3, padding=1),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Dropout2d(p),
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            features = (4, 8, 16)
            self.encoders = nn.ModuleList(block(i, o, p) for i, o, p in ((1, 4, 0.1), (4, 8, 0.1), (8, 16, 0.2)))
            self.pools = nn.ModuleList(nn.MaxPool2d(2) for _ in features)
            self.bottleneck = block(16, 32, 0.3)
            self.upconvs = nn.ModuleList(nn.ConvTranspose2d(2 * f, f, 2, 2) for f in features[::-1])
            self.decoders = nn.ModuleList(block(2 * f, f, p) for f, p in ((16, 0.2), (8, 0.1), (4, 0.1)))
            self.head = nn.Conv2d(4, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            skips = []
            for enc, pool in zip(self.encoders, self.pools, strict=False):
                x = enc(x)
                skips.append(x)
                x = pool(x)
            x = self.bottleneck(x)
            for up, dec, skip in zip(self.upconvs, self.decoders, skips[::-1], strict=False):
                x = dec(torch.cat([skip, up(x)], 1))
            return self.head(x)

    def draw() -> Drawn:
        rows = torch.arange(14.0)
        a, b, c = torch.rand(3, 16, 1)
        curve = 6 + 10 * a + (12 * b - 4) * (rows / 13) ** (0.5 + c)
        bins = torch.arange(32.0)
        energy = torch.exp(-((bins - curve[..., None]) ** 2) / 8) + 0.3 * torch.rand(16, 14, 32)
        energy = energy / energy.amax(2, keepdim=True)
        mask = ((bins - curve[..., None]).abs() <= 2).float()
        guide = F.pad(curve.clamp(0, 31) / 31, (0, 18)).unsqueeze(1)
        x = F.pad(torch.cat([energy, guide], 1), (0, 0, 0, 1)).unsqueeze(1)
        return (x,), F.pad(mask, (0, 0, 0, 2)).unsqueeze(1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        bce = F.binary_cross_entropy_with_logits(y, t, reduction="none")
        p = torch.sigmoid(y)
        right = p * t + (1 - p) * (1 - t)
        focal = ((0.25 * t + 0.75 * (1 - t)) * (1 - right) ** 2 * bce).mean()
        dice = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
        weighted = (bce * (15 * t + 1 - t)).mean()
        q = p.clamp(1e-7, 1 - 1e-7)
        entropy = -q * torch.log(q) - (1 - q) * torch.log(1 - q)
        sharp = (entropy * (t > 0.5)).sum() / (t > 0.5).sum()
        return 0.3 * focal + 0.3 * dice + 0.2 * weighted + 0.2 * sharp

    return stream(UNet(), draw, loss)


@healthy("word2vec with negatives", GITHUB + "1998x-stack/word2vec-factory/blob/main/w2v_factory/models/skipgram.py")
def skipgram(_: bool) -> Task:
    """Scores of one pair and of negatives; the loss is minus the sum of their log-sigmoids."""
    words = text(64, 200, 200)[0].flatten()

    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.in_embed = nn.Embedding(200, 32)
            self.out_embed = nn.Embedding(200, 32)
            bound = 1 / 32**0.5
            nn.init.uniform_(self.in_embed.weight, -bound, bound)
            nn.init.uniform_(self.out_embed.weight, -bound, bound)

        def forward(self, centers: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
            v = self.in_embed(centers)
            positive = torch.sum(v * self.out_embed(pos), dim=1)
            return positive, torch.bmm(self.out_embed(neg), v.unsqueeze(-1)).squeeze(-1)

    def draw() -> Drawn:
        at = torch.randint(2, len(words) - 2, (64,))
        shift = torch.randint(1, 3, (64,)) * (2 * torch.randint(0, 2, (64,)) - 1)
        weight = torch.bincount(words, minlength=200).float() ** 0.75
        pos = words[at + shift]
        neg = torch.multinomial(weight.expand(64, 200).scatter(1, pos[:, None], 0.0), 5)
        return (words[at], pos, neg), torch.ones(64)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return -(F.logsigmoid(y[0]) + F.logsigmoid(-y[1]).sum(1)).mean()

    return stream(SkipGram(), draw, loss)


@healthy("GGNN of program graphs", GITHUB + "yifan-zhou19/ggnn_graph_classification/blob/main/utils/model.py")
def ggnn(_: bool) -> Task:
    """In doubles; node states begin at zero, edges of two types in and out; a softmax, then the cross-entropy of it."""
    n, types, dim, classes = 12, 2, 5, 4

    class GGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i in range(types):
                self.add_module(f"in_{i}", nn.Linear(dim, dim))
                self.add_module(f"out_{i}", nn.Linear(dim, dim))
            self.reset_gate = chain(nn.Linear(dim * 3, dim), nn.Sigmoid())
            self.update_gate = chain(nn.Linear(dim * 3, dim), nn.Sigmoid())
            self.tansform = chain(nn.Linear(dim * 3, dim), nn.Tanh())
            self.out = chain(nn.Linear(dim, dim), nn.LeakyReLU(), nn.Linear(dim, 1), nn.Tanh())
            self.soft_attention = chain(nn.Linear(dim, dim), nn.LeakyReLU(), nn.Linear(dim, 1), nn.Sigmoid())
            self.class_prediction = chain(nn.Linear(n, 50), nn.Tanh(), nn.Linear(50, classes), nn.Softmax(dim=1))
            for m in self.modules():
                if isinstance(m, nn.Linear):
                    nn.init.xavier_normal_(m.weight)
                    nn.init.normal_(m.bias)

        def forward(self, h: Tensor, a: Tensor) -> Tensor:
            for _ in range(5):
                into = torch.cat([getattr(self, f"in_{i}")(h) for i in range(types)], 1)
                out = torch.cat([getattr(self, f"out_{i}")(h) for i in range(types)], 1)
                a_in = torch.bmm(a[:, :, : n * types], into)
                a_out = torch.bmm(a[:, :, n * types :], out)
                both = torch.cat((a_in, a_out, h), 2)
                r, z = self.reset_gate(both), self.update_gate(both)
                h = (1 - z) * h + z * self.tansform(torch.cat((a_in, a_out, r * h), 2))
            return self.class_prediction((self.out(h) * self.soft_attention(h)).sum(2))

    def draw() -> Drawn:
        c = torch.randint(classes, (32,))
        a = torch.zeros(32, n, n * types * 2)
        for b in range(32):
            size = int(torch.randint(8, n + 1, ()))
            for child in range(1, size):
                low, high = ((0, child), (child - 1, child), (0, 1), (max(0, child - 3), child))[int(c[b])]
                parent = int(torch.randint(low, high, ()))
                kind = int(torch.randint(0, types, ()))
                a[b, child, kind * n + parent] = 1
                a[b, parent, (kind + types) * n + child] = 1
        return (torch.zeros(32, n, dim).double(), a.double()), c

    return stream(GGNN().double(), draw, F.cross_entropy)


@healthy("Tacotron 2 of several speakers", GITHUB + "stefantaubert/tacotron2/blob/main/model.py")
def tacotron(_: bool) -> Task:  # noqa: C901
    """Teacher forcing, location-sensitive attention; squares of the log-mels before and after the postnet, BCE of the
    gate.
    """
    mels, enc, spk, rnn, att = 8, 32, 4, 32, 16

    def linear(i: int, o: int, bias: bool = True, gain: str = "linear") -> nn.Linear:
        layer = nn.Linear(i, o, bias)
        nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain(gain))
        return layer

    def conv(i: int, o: int, k: int, bias: bool = True, gain: str = "linear") -> nn.Conv1d:
        layer = nn.Conv1d(i, o, k, padding=k // 2, bias=bias)
        nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain(gain))
        return layer

    class Tacotron2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, enc)
            val = math.sqrt(3.0) * math.sqrt(2.0 / (20 + enc))
            self.embedding.weight.data.uniform_(-val, val)
            self.speakers_embedding = nn.Embedding(3, spk)
            nn.init.xavier_uniform_(self.speakers_embedding.weight)
            self.convolutions = nn.ModuleList(
                chain(conv(enc, enc, 5, gain="relu"), nn.BatchNorm1d(enc)) for _ in range(3)
            )
            self.lstm = nn.LSTM(enc, enc // 2, 1, batch_first=True, bidirectional=True)
            memory = enc + spk
            self.prenet = nn.ModuleList([linear(mels, 16, False), linear(16, 16, False)])
            self.attention_rnn = nn.LSTMCell(16 + memory, rnn)
            self.query_layer = linear(rnn, att, False, "tanh")
            self.memory_layer = linear(memory, att, False, "tanh")
            self.v = linear(att, 1, False)
            self.location_conv = conv(2, 8, 7, False)
            self.location_dense = linear(8, att, False, "tanh")
            self.decoder_rnn = nn.LSTMCell(rnn + memory, rnn)
            self.linear_projection = linear(rnn + memory, mels)
            self.gate_layer = linear(rnn + memory, 1, True, "sigmoid")
            sizes = (mels, 16, 16, 16, 16, mels)
            self.postnet = nn.ModuleList(
                chain(conv(i, o, 5, gain="tanh" if k < 4 else "linear"), nn.BatchNorm1d(o))
                for k, (i, o) in enumerate(itertools.pairwise(sizes))
            )

        def forward(self, letters: Tensor, target: Tensor, speaker: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x = self.embedding(letters).transpose(1, 2)
            for layer in self.convolutions:
                x = F.dropout(F.relu(layer(x)), 0.5, self.training)
            x, _ = self.lstm(x.transpose(1, 2))
            who = self.speakers_embedding(speaker.unsqueeze(1)).expand(-1, x.shape[1], -1)
            memory = torch.cat([x, who], -1)
            count = len(letters)
            frames = torch.cat([memory.new_zeros(1, count, mels), target.permute(2, 0, 1)])
            for layer in self.prenet:
                frames = F.dropout(F.relu(layer(frames)), 0.5, True)
            processed = self.memory_layer(memory)
            h = c = hd = cd = memory.new_zeros(count, rnn)
            weights = total = memory.new_zeros(count, memory.shape[1])
            context = memory.new_zeros(count, memory.shape[2])
            outs, gates = [], []
            for frame in frames[:-1]:
                h, c = self.attention_rnn(torch.cat((frame, context), -1), (h, c))
                h = F.dropout(h, 0.1, self.training)
                place = self.location_dense(self.location_conv(torch.stack((weights, total), 1)).transpose(1, 2))
                energy = self.v(torch.tanh(self.query_layer(h.unsqueeze(1)) + place + processed)).squeeze(-1)
                weights = F.softmax(energy, 1)
                total = total + weights
                context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
                hd, cd = self.decoder_rnn(torch.cat((h, context), -1), (hd, cd))
                hd = F.dropout(hd, 0.1, self.training)
                state = torch.cat((hd, context), 1)
                outs.append(self.linear_projection(state))
                gates.append(self.gate_layer(state).squeeze(1))
            mel = torch.stack(outs, 2)
            post = mel
            for layer in self.postnet[:-1]:
                post = F.dropout(torch.tanh(layer(post)), 0.5, self.training)
            post = F.dropout(self.postnet[-1](post), 0.5, self.training)
            return mel, mel + post, torch.stack(gates, 1)

    voice = 2.5 * torch.randn(20, mels)
    tone = 0.5 * torch.randn(3, mels)

    def draw() -> Drawn:
        letters = torch.randint(20, (16, 6))
        speaker = torch.randint(3, (16,))
        mel = (voice[letters].repeat_interleave(2, 1) + tone[speaker].unsqueeze(1) - 5).clamp(min=math.log(1e-5))
        mel = (mel + 0.2 * torch.randn_like(mel)).transpose(1, 2)
        gate = torch.zeros(16, 12)
        gate[:, -1] = 1
        return (letters, mel, speaker), (mel, gate)

    def loss(y: tuple[Tensor, ...], t: tuple[Tensor, Tensor]) -> Tensor:
        squares = F.mse_loss(y[0], t[0]) + F.mse_loss(y[1], t[0])
        return squares + F.binary_cross_entropy_with_logits(y[2].reshape(-1, 1), t[1].reshape(-1, 1))

    return stream(Tacotron2(), draw, loss)


@healthy(
    "autoencoder of a Koopman model",
    GITHUB + "HongyuCao3/autoencoder_koopman_core/blob/main/"
    "persona_drift_control/src/persona_drift/modeling/ae_baseline.py",
)
def koopman(_: bool) -> Task:
    """A reading in 0 to 1 and the last two inputs of 0 or 1, through 4 tanh units to 2 numbers and back."""
    encoder = chain(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    decoder = chain(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))

    def draw() -> Drawn:
        v = (torch.rand(64, 2) < 0.5).float()
        y = (0.3 + 0.3 * v[:, :1] + 0.2 * v[:, 1:] + 0.1 * torch.randn(64, 1)).clamp(0, 1)
        z = torch.cat([y, v], 1)
        return (z,), z

    return stream(Parts(lambda m, z: m.decoder(m.encoder(z)), encoder=encoder, decoder=decoder), draw, F.mse_loss)


@healthy(
    "discriminator of CycleGAN-VC2",
    GITHUB + "kkulesz/Voice_conversion_with_CycleGAN-VC2/blob/main/src/model/cycle_gan_vc2/discriminator.py",
)
def cyclegan(_: bool) -> Task:
    """Normalised mel-cepstra; x * sigmoid(x) as GLU; a fourth block is built and not used; squares to a sigmoid, D's
    part.
    """

    class GLU(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x)

    def down(i: int, o: int, k: tuple[int, int], stride: int, padding: Any) -> nn.Sequential:
        return chain(nn.Conv2d(i, o, k, stride, padding), nn.InstanceNorm2d(o, affine=True), GLU())

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv_layer = chain(nn.Conv2d(1, 8, 3, 1, 1), GLU())
            self.down_sample1 = down(8, 16, (3, 3), 2, 1)
            self.down_sample2 = down(16, 32, (3, 3), 2, 1)
            self.down_sample3 = down(32, 48, (3, 3), 2, 1)
            self.down_sample4 = down(48, 48, (1, 5), 1, (0, 2))
            self.output_conv = nn.Conv2d(48, 1, (1, 3), 1, (0, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv_layer(x.unsqueeze(1))
            x = self.down_sample3(self.down_sample2(self.down_sample1(x)))
            return torch.sigmoid(self.output_conv(x))

    def draw() -> Drawn:
        real = torch.rand(32) < 0.5
        time = torch.arange(32.0) + 32 * torch.rand(32, 1)
        rate = torch.rand(32, 24, 1) * 0.5
        smooth = math.sqrt(2) * torch.sin(rate * time.unsqueeze(1) + 6.28 * torch.rand(32, 24, 1))
        fake = 0.7 * smooth + 0.7 * torch.randn(32, 24, 32)
        return (torch.where(real.view(-1, 1, 1), smooth, fake),), real.float()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        t = t.view(-1, 1, 1, 1)
        return ((y - 1) ** 2 * t).mean() + (y**2 * (1 - t)).mean()

    return stream(Discriminator(), draw, loss)


@healthy(
    "land cover U-Net", GITHUB + "cariboumnr-png/landcover-seg-unet/blob/main/src/landseg/models/backbones/unet.py"
)
def landcover(_: bool) -> Task:
    """Normalised bands, Kaiming normal, group norm but for the first block; focal + Dice without the pixels ignored."""

    def double(i: int, o: int, norm: bool = True) -> nn.Sequential:
        return chain(
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.GroupNorm(1, o, eps=1e-4) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout2d(0.05),
            nn.Conv2d(o, o, 3, padding=1, bias=False),
            nn.GroupNorm(1, o, eps=1e-4) if norm else nn.Identity(),
            nn.ReLU(),
        )

    class UNet(nn.Module):
        def __init__(self, ch: int = 4) -> None:
            super().__init__()
            self.inc = double(5, ch, False)
            self.downs = nn.ModuleList(chain(nn.MaxPool2d(2), double(ch * k, ch * k * 2)) for k in (1, 2, 4))
            self.bottleneck = double(ch * 8, ch * 8)
            self.ups = nn.ModuleList(double(ch * k * 3, ch * k) for k in (4, 2, 1))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            self.head = nn.Conv2d(ch, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            skips = [self.inc(x)]
            for down in self.downs:
                skips.append(down(skips[-1]))
            x = self.bottleneck(skips.pop())
            for up in self.ups:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                x = up(torch.cat([x, skips.pop()], 1))
            return self.head(x)

    spectra = torch.randn(4, 5)

    def draw() -> Drawn:
        land = F.interpolate(torch.randn(16, 4, 4, 4), size=(16, 16), mode="bilinear").argmax(1)
        x = spectra[land].permute(0, 3, 1, 2) + 0.5 * torch.randn(16, 5, 16, 16)
        return (x,), torch.where(torch.rand(16, 16, 16) < 0.05, 255, land)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        valid = (t != 255).float()
        safe = torch.where(t == 255, 0, t)
        log_p = F.log_softmax(y, 1).gather(1, safe.unsqueeze(1)).squeeze(1).clamp(min=-20)
        focal = (-((1 - log_p.exp()) ** 2) * log_p * valid).sum() / valid.sum()
        p = F.softmax(y, 1) * valid.unsqueeze(1)
        hot = F.one_hot(safe, 4).permute(0, 3, 1, 2) * valid.unsqueeze(1)
        union = (p.sum((0, 2, 3)) + hot.sum((0, 2, 3))).clamp(min=1.0)
        dice = (2 * (p * hot).sum((0, 2, 3)) + 1) / (union + 1)
        return focal + 1 - dice.clamp(0, 1).mean()

    return stream(UNet(), draw, loss)


@healthy(
    "flow matching with a U-Net",
    GITHUB + "tomn681/Flow-Matching-and-Diffusion-Models/blob/main/src/models/unet/unet.py",
)
def efficient_unet(_: bool) -> Task:  # noqa: C901
    """Digits in -1 to 1; zero convolutions end each residual block, the attentions and the network; squares of the
    velocity.
    """
    emb = 32

    def zero(module: nn.Module) -> nn.Module:
        for p in module.parameters():
            p.detach().zero_()
        return module

    class Res(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.in_layers = chain(nn.GroupNorm(math.gcd(i, 4), i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1))
            self.emb_layers = chain(nn.SiLU(), nn.Linear(emb, 2 * o))
            self.norm = nn.GroupNorm(math.gcd(o, 4), o)
            self.rest = chain(nn.SiLU(), nn.Dropout(0.0), zero(nn.Conv2d(o, o, 3, padding=1)))
            self.skip = nn.Identity() if i == o else nn.Conv2d(i, o, 1)

        def forward(self, x: Tensor, e: Tensor) -> Tensor:
            scale, shift = self.emb_layers(e)[:, :, None, None].chunk(2, 1)
            return self.skip(x) + self.rest(self.norm(self.in_layers(x)) * (1 + scale) + shift)

    class Attention(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(math.gcd(dim, 4), dim)
            self.qkv = nn.Conv1d(dim, 2 * 8 * 3, 1)
            self.proj_out = zero(nn.Conv1d(2 * 8, dim, 1))

        def forward(self, x: Tensor, e: Tensor) -> Tensor:
            b, c, h, w = x.shape
            x = x.reshape(b, c, -1)
            qkv = self.qkv(self.norm(x))
            q, k, v = qkv.reshape(b, 2, qkv.shape[-1], -1).chunk(3, -1)
            y = F.scaled_dot_product_attention(q, k, v).reshape(b, 16, -1)
            return (x + self.proj_out(y)).reshape(b, c, h, w)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time_embed = chain(nn.Linear(8, emb), nn.SiLU(), nn.Linear(emb, emb))
            self.first = nn.Conv2d(1, 8, 3, padding=1)
            self.enc1 = Res(8, 8)
            self.down = nn.Conv2d(8, 8, 3, 2, 1)
            self.enc2 = Res(8, 16)
            self.middle = nn.ModuleList([Res(16, 16), Attention(16), Res(16, 16)])
            self.dec2 = nn.ModuleList([Res(32, 16), Res(24, 16)])
            self.up = nn.Conv2d(16, 16, 3, padding=1)
            self.dec1 = nn.ModuleList([Res(24, 8), Res(16, 8)])
            self.out = chain(nn.GroupNorm(4, 8), nn.SiLU(), zero(nn.Conv2d(8, 1, 3, padding=1)))

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            freq = torch.exp(-math.log(10000) * torch.arange(4) / 4)
            angle = t[:, None] * freq
            e = self.time_embed(torch.cat([angle.cos(), angle.sin()], 1))
            h1 = self.first(x)
            h2 = self.enc1(h1, e)
            h3 = self.down(h2)
            h = h4 = self.enc2(h3, e)
            for layer in self.middle:
                h = layer(h, e)
            for layer, skip in zip(self.dec2, (h4, h3), strict=False):
                h = layer(torch.cat([h, skip], 1), e)
            h = self.up(F.interpolate(h, scale_factor=2, mode="nearest"))
            for layer, skip in zip(self.dec1, (h2, h1), strict=False):
                h = layer(torch.cat([h, skip], 1), e)
            return self.out(h)

    def draw() -> Drawn:
        x = (pick(16)[0] * 0.376 + 0.3) * 2 - 1
        noise, t = torch.randn_like(x), torch.rand(16)
        at = t.view(-1, 1, 1, 1)
        return ((1 - at) * noise + at * x, t), x - noise

    return stream(UNet(), draw, F.mse_loss)


@healthy("translation by LSTM", GITHUB + "dilettacal/nmt_seq2seq/blob/main/project/model/models.py")
def nmt(_: bool) -> Task:
    """Two-layer encoder and decoder, time first within; a tanh and dropout before the output; no padding counted."""

    class Seq2Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.src = nn.Embedding(60, 32)
            self.encoder = nn.LSTM(32, 48, 2, dropout=0.25)
            self.trg = nn.Embedding(64, 32)
            self.decoder = nn.LSTM(32, 48, 2, dropout=0.25)
            self.dropout = nn.Dropout(0.25)
            self.output = nn.Linear(48, 64)

        def forward(self, src: Tensor, trg: Tensor) -> Tensor:
            _, state = self.encoder(self.dropout(self.src(src.T)))
            out, _ = self.decoder(self.dropout(self.trg(trg.T)), state)
            return self.output(self.dropout(torch.tanh(out))).transpose(0, 1)

    lexicon = 4 + torch.randperm(60)
    sentences = text(400, 8, 60)[0]

    def draw() -> Drawn:
        src = sentences[torch.randint(400, (32,))]
        length = torch.randint(4, 9, (32, 1))
        place = torch.arange(10)
        words = F.pad(lexicon[src], (1, 1))
        trg = torch.where(place == 0, 0, torch.where(place <= length, words, torch.where(place == length + 1, 1, 2)))
        return (src, trg[:, :-1]), trg[:, 1:]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.reshape(-1, 64), t.reshape(-1), ignore_index=2)

    return stream(Seq2Seq(), draw, loss)


@healthy("PPO on pictures", GITHUB + "Aethiles/ppo-pytorch/blob/main/source/policy/parameters.py")
def ppo(_: bool) -> Task:
    """Four grey pictures in 0 to 1; orthogonal weights, 0.01 for the actions; clipped ratios and values, old ones its
    own.
    """

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(4, 8, 8, 4)
            self.conv2 = nn.Conv2d(8, 16, 4, 2)
            self.conv3 = nn.Conv2d(16, 16, 3, 1)
            self.linear = nn.Linear(16, 64)
            self.value_output = nn.Linear(64, 1)
            self.action_output = nn.Linear(64, 4)
            relu = nn.init.calculate_gain("relu")
            for layer, gain in zip(self.children(), (relu, relu, relu, relu, 1, 0.01), strict=False):
                nn.init.orthogonal_(layer.weight, gain)
                nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))
            x = F.relu(self.linear(x.view(-1, 16)))
            return self.action_output(x), self.value_output(x)

    model = Policy()

    def draw() -> Drawn:
        x = torch.zeros(32, 4, 36, 36)
        place = torch.randint(2, 28, (32, 2))
        step = torch.randint(-1, 2, (32, 2))
        for b in range(32):
            for k in range(4):
                i, j = (place[b] + k * step[b]).clamp(0, 30).tolist()
                x[b, k, i : i + 6, j : j + 6] = 0.8
        x = x + 0.3 * (torch.arange(36) > 30)
        returns = 2 * (place[:, 1] / 28) + step[:, 1] + 0.2 * torch.randn(32)
        with torch.no_grad():
            logits, value = model(x)
            chosen = torch.distributions.Categorical(logits=logits)
            action = chosen.sample()
            gain = returns + (action == step[:, 1] + 1).float() - value[:, 0]
            advantage = (gain - gain.mean()) / (gain.std() + 1e-8)
            return (x,), (action, chosen.log_prob(action), value[:, 0], advantage, returns)

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, ...]) -> Tensor:
        action, old_log, old_value, advantage, returns = t
        chosen = torch.distributions.Categorical(logits=y[0])
        ratio = torch.exp(chosen.log_prob(action) - old_log)
        policy = torch.min(advantage * ratio, advantage * ratio.clamp(0.9, 1.1)).mean()
        value = y[1].squeeze(-1)
        clipped = old_value + (value - old_value).clamp(-0.1, 0.1)
        squares = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
        return -(policy - squares + 0.01 * chosen.entropy().mean())

    return stream(model, draw, loss)


@healthy("SAC critics of a pendulum", GITHUB + "taomo/sac-pytorch/blob/main/models/q_network.py")
def sac(_: bool) -> Task:
    """Xavier weights, biases of 0.01, a Q for each action; targets from copies and a policy that do not train here."""

    class Q(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear1 = nn.Linear(4, 64)
            self.linear2 = nn.Linear(64, 64)
            self.linear3 = nn.Linear(64, 1)
            for m in self.children():
                nn.init.xavier_uniform_(m.weight)
                m.bias.data.fill_(0.01)

        def forward(self, s: Tensor, a: Tensor) -> Tensor:
            return self.linear3(F.relu(self.linear2(F.relu(self.linear1(torch.cat((s, a), 1))))))

    q1, q2, target1, target2 = Q(), Q(), Q(), Q()
    target1.load_state_dict(q1.state_dict())
    target2.load_state_dict(q2.state_dict())
    body = chain(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def observe(angle: Tensor, speed: Tensor) -> Tensor:
        return torch.cat([angle.cos(), angle.sin(), speed], 1)

    def draw() -> Drawn:
        angle, speed = 6.28 * torch.rand(64, 1) - 3.14, 8 * torch.rand(64, 1) - 4
        a = 2 * torch.rand(64, 1) - 1
        reward = -(angle**2 + 0.1 * speed**2 + 0.001 * (2 * a) ** 2)
        faster = (speed + (15 * angle.sin() + 6 * a) * 0.05).clamp(-8, 8)
        after = observe(angle + 0.05 * faster, faster)
        with torch.no_grad():
            mean, log_std = body(after).chunk(2, 1)
            normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
            u = mean + normal.stddev * torch.randn(1)
            b = torch.tanh(u)
            log_pi = normal.log_prob(u) - torch.log(1 - b**2 + 1e-6)
            then = torch.min(target1(after, b), target2(after, b)) - 0.01 * log_pi
        return (observe(angle, speed), a), reward + 0.99 * then

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + F.mse_loss(y[1], t)

    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_network_1 = q1
            self.q_network_2 = q2

        def forward(self, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return self.q_network_1(s, a), self.q_network_2(s, a)

    return stream(Twins(), draw, loss)


@healthy("soft actor", GITHUB + "biegunk/soft-actor-critic-pytorch/blob/main/sac/network.py")
def actor(_: bool) -> Task:
    """The actor's step alone: temperature times log-probability less the smaller Q; the critics learn before each
    step.
    """

    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(8, 64)
            self.fc2 = nn.Linear(64, 64)
            self.mean_linear = nn.Linear(64, 2)
            self.log_std_linear = nn.Linear(64, 2)

        def forward(self, s: Tensor) -> tuple[Tensor, Tensor]:
            x = F.relu(self.fc2(F.relu(self.fc1(s))))
            mean, log_std = self.mean_linear(x), self.log_std_linear(x).clamp(-20.0, 2.0)
            u = mean + log_std.exp() * torch.randn_like(mean)
            a = torch.tanh(u)
            log_p = torch.distributions.Normal(mean, log_std.exp()).log_prob(u) - torch.log(1 - a**2 + 1e-6)
            return a, log_p.sum(-1, keepdim=True)

    def critic() -> nn.Sequential:
        return chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    model, q1, q2, target1, target2 = Actor(), critic(), critic(), critic(), critic()
    target1.load_state_dict(q1.state_dict())
    target2.load_state_dict(q2.state_dict())
    optimiser = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-3)
    right = torch.randn(8, 2)

    @torch.enable_grad()
    def learn(s: Tensor) -> None:
        a, after = 2 * torch.rand(64, 2) - 1, torch.randn(64, 8)
        reward = 1 - (a - torch.tanh(s @ right)).pow(2).mean(1, keepdim=True)
        with torch.no_grad():
            b, log_p = model(after)
            both = torch.cat((after, b), -1)
            t = reward + 0.99 * (torch.min(target1(both), target2(both)) - 0.1 * log_p)
        x = torch.cat((s, a), -1)
        optimiser.zero_grad()
        (F.mse_loss(q1(x), t) + F.mse_loss(q2(x), t)).backward()
        optimiser.step()
        for old, new in ((target1, q1), (target2, q2)):
            for p, q in zip(old.parameters(), new.parameters(), strict=False):
                p.data.copy_(0.005 * q.data + 0.995 * p.data)

    def draw() -> Drawn:
        learn(torch.randn(64, 8))
        s = torch.randn(64, 8)
        return (s,), s

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        x = torch.cat((t, y[0]), -1)
        return torch.mean(0.1 * y[1] - torch.min(q1(x), q2(x)))

    return stream(model, draw, loss)


@healthy("MTAD-GAT", GITHUB + "ML4ITS/mtad-gat-pytorch/blob/main/mtad_gat.py")
def mtad_gat(_: bool) -> Task:
    """Windows scaled to 0 to 1; attention over features and over times ends in a sigmoid; RMSE of forecast and
    window.
    """
    k, n, hid = 6, 12, 32

    class Attention(nn.Module):
        def __init__(self, nodes: int, width: int) -> None:
            super().__init__()
            self.nodes = nodes
            self.lin = nn.Linear(2 * width, 2 * width)
            self.a = nn.Parameter(torch.empty(2 * width, 1))
            nn.init.xavier_uniform_(self.a.data, gain=1.414)
            self.bias = nn.Parameter(torch.zeros(nodes, nodes))

        def forward(self, x: Tensor) -> Tensor:
            left = x.repeat_interleave(self.nodes, dim=1)
            right = x.repeat(1, self.nodes, 1)
            both = torch.cat((left, right), 2).view(len(x), self.nodes, self.nodes, -1)
            e = (F.leaky_relu(self.lin(both), 0.2) @ self.a).squeeze(3) + self.bias
            weights = torch.dropout(torch.softmax(e, 2), 0.2, self.training)
            return torch.sigmoid(weights @ x)

    class MTAD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(nn.ConstantPad1d(3, 0.0), nn.Conv1d(k, k, 7), nn.ReLU())
            self.feature_gat = Attention(k, n)
            self.temporal_gat = Attention(n, k)
            self.gru = nn.GRU(3 * k, hid, batch_first=True)
            self.forecast = chain(nn.Linear(hid, hid), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hid, k))
            self.decoder = nn.GRU(hid, hid, batch_first=True)
            self.fc = nn.Linear(hid, k)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.conv(x.permute(0, 2, 1)).permute(0, 2, 1)
            h_feat = self.feature_gat(x.permute(0, 2, 1)).permute(0, 2, 1)
            _, h = self.gru(torch.cat([x, h_feat, self.temporal_gat(x)], 2))
            h = h[-1]
            repeated = h.repeat_interleave(n, dim=1).view(len(x), n, -1)
            return self.forecast(h), self.fc(self.decoder(repeated)[0])

    rate = 0.2 + 0.5 * torch.rand(k)

    def draw() -> Drawn:
        time = 100 * torch.rand(32, 1, 1) + torch.arange(n + 1.0).view(1, -1, 1)
        x = (0.5 + 0.4 * torch.sin(rate * time) + 0.03 * torch.randn(32, n + 1, k)).clamp(0, 1)
        return (x[:, :-1],), (x[:, -1], x[:, :-1])

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        return torch.sqrt(F.mse_loss(y[0], t[0])) + torch.sqrt(F.mse_loss(y[1], t[1]))

    return stream(MTAD(), draw, loss)


@healthy("GraphSAGE of sampled neighbours", GITHUB + "bkj/pytorch-graphsage/blob/main/nn_modules.py")
def graphsage(_: bool) -> Task:
    """A node, its neighbours and theirs; the mean aggregator without biases, the result normalised before the
    classifier.
    """

    class Mean(nn.Module):
        def __init__(self, i: int, o: int, activation: bool) -> None:
            super().__init__()
            self.fc_x = nn.Linear(i, o, bias=False)
            self.fc_neib = nn.Linear(i, o, bias=False)
            self.activation = activation

        def forward(self, x: Tensor, neibs: Tensor) -> Tensor:
            mean = neibs.view(x.size(0), -1, neibs.size(1)).mean(dim=1)
            out = torch.cat([self.fc_x(x), self.fc_neib(mean)], dim=1)
            return F.relu(out) if self.activation else out

    class GSSupervised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.agg_layers = nn.ModuleList([Mean(16, 32, True), Mean(64, 32, False)])
            self.fc = nn.Linear(64, 5)

        def forward(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
            feats = [x, first.flatten(0, 1), second.flatten(0, 2)]
            for layer in self.agg_layers:
                feats = [layer(feats[i], feats[i + 1]) for i in range(len(feats) - 1)]
            return self.fc(F.normalize(feats[0], dim=1))

    centres = torch.randn(5, 16)

    def draw() -> Drawn:
        c = torch.randint(5, (64,))

        def near(c: Tensor, count: int) -> Tensor:
            other = torch.randint(5, (*c.shape, count))
            return torch.where(torch.rand(other.shape) < 0.7, c.unsqueeze(-1), other)

        first = near(c, 4)
        second = near(first, 3)
        return tuple(0.5 * centres[each] + torch.randn(*each.shape, 16) for each in (c, first, second)), c

    return stream(GSSupervised(), draw, F.cross_entropy)


@healthy("links of a graph in time", GITHUB + "longzoho/gcn-ma-link-prediction/blob/main/src/models/gcn_ma/model.py")
def gcn_ma(_: bool) -> Task:
    """An LSTM turns the weights of one snapshot into those of the next; S = A + b C + I, scaled; BCE of true and
    false links.
    """
    n, dim = 16, 16

    class GCNMA(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(3 * dim, 3 * dim)
            self.mha = nn.MultiheadAttention(dim, 4, dropout=0.1, batch_first=True)
            self.norm = nn.LayerNorm(dim)
            self.net = chain(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Dropout(0.1), nn.Linear(dim, 1))
            self.W0 = nn.Parameter(torch.empty(3, dim).uniform_(-1 / math.sqrt(3), 1 / math.sqrt(3)))

        def forward(self, x: Tensor, s: Tensor, edges: Tensor) -> Tensor:
            w, h, c = self.W0, torch.zeros(1, 3 * dim), torch.zeros(1, 3 * dim)
            for t in range(x.shape[1]):
                d = s[:, t].sum(2).clamp(min=1e-6).pow(-0.5)
                hidden = torch.relu((d.unsqueeze(2) * s[:, t] * d.unsqueeze(1)) @ x[:, t] @ w)
                if t < x.shape[1] - 1:
                    h, c = self.cell(w.reshape(1, -1), (h, c))
                    w = h.reshape(3, dim)
            z = self.norm(hidden + self.mha(hidden, hidden, hidden)[0])
            ends = z.gather(1, edges.flatten(1).unsqueeze(2).expand(-1, -1, dim)).view(*edges.shape, dim)
            return self.net(ends.flatten(2)).squeeze(-1)

    def draw() -> Drawn:
        busy = torch.rand(16, n) ** 2
        chance = (2 * busy.unsqueeze(1) * busy.unsqueeze(2)).clamp(0, 0.95)
        upper = torch.rand(16, 4, n, n).triu(1) < chance.unsqueeze(1)
        a = (upper & torch.ones(n, n).triu(1).bool()).float()
        a = a + a.transpose(2, 3)
        degree = a.sum(3)
        common = a @ a
        cc = (common * a).sum(3) / (degree * (degree - 1)).clamp(min=1)
        strength = degree * cc
        s = a + 0.5 * common * (1 - torch.eye(n)) * strength.unsqueeze(3) + torch.eye(n)
        x = torch.stack([degree, cc, strength], 3)
        flat = a[:, 3].flatten(1) + 1e-4
        true = torch.multinomial(flat, 12)
        false = torch.multinomial((1 - a[:, 3] - torch.eye(n)).flatten(1).clamp(min=1e-4), 12)
        both = torch.cat([true, false], 1)
        label = torch.cat([torch.ones(16, 12), torch.zeros(16, 12)], 1)
        return (x[:, :3], s[:, :3], torch.stack([both // n, both % n], 2)), label

    return stream(GCNMA(), draw, F.binary_cross_entropy_with_logits)


@healthy(
    "chemical names by BiLSTM-CRF", GITHUB + "hiroto0227/att-chemdner-pytorch/blob/main/scripts/model/bilstmcrf.py"
)
def bilstm_crf(_: bool) -> Task:
    """Labels go in with the words; the loss is minus the sum of log-likelihoods over the batch."""

    class BiLSTMCRF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(120, 32)
            self.lstm = nn.LSTM(32, 48, bidirectional=True)
            self.lstm_out2hidden = nn.Linear(96, 48)
            self.hidden2hidden = nn.Linear(48, 32)
            self.dropout = nn.Dropout(0.5)
            self.hidden2tag = nn.Linear(32, 5)
            self.start = nn.Parameter(torch.empty(5).uniform_(-0.1, 0.1))
            self.end = nn.Parameter(torch.empty(5).uniform_(-0.1, 0.1))
            self.transitions = nn.Parameter(torch.empty(5, 5).uniform_(-0.1, 0.1))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x, y = x.T, y.T
            h = self.dropout(self.lstm(self.embedding(x))[0])
            h = self.dropout(self.hidden2hidden(self.lstm_out2hidden(h)))
            out = self.hidden2tag(h)
            score = self.start[y[0]] + self.end[y[-1]] + out.gather(2, y.unsqueeze(2)).squeeze(2).sum(0)
            score = score + self.transitions[y[:-1], y[1:]].sum(0)
            total = self.start + out[0]
            for each in out[1:]:
                total = torch.logsumexp(total.unsqueeze(2) + self.transitions, 1) + each
            return score - torch.logsumexp(total + self.end, 1)

    kind = torch.randint(5, (120,)) * (torch.rand(120) < 0.5)
    sentences = text(400, 14, 120)[0]

    def draw() -> Drawn:
        x = sentences[torch.randint(400, (32,))]
        return (x, kind[x]), kind[x]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return -1 * y.sum()

    return stream(BiLSTMCRF(), draw, loss)


@healthy("GPT with one-hot words", GITHUB + "algrshn/gpt-pytorch/blob/main/model.py")
def gpt(_: bool) -> Task:
    """One matrix for the embedding and the output, of 0.02 as are the places; a linear layer a head; layer norm
    first.
    """
    words, dim, heads, length = 100, 32, 2, 16

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.ModuleList(nn.Linear(dim, 16, bias=False) for _ in range(heads))
            self.k = nn.ModuleList(nn.Linear(dim, 16, bias=False) for _ in range(heads))
            self.v = nn.ModuleList(nn.Linear(dim, 16, bias=False) for _ in range(heads))
            self.after = nn.Linear(16 * heads, dim, bias=False)
            self.ff = chain(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            self.layer_norm1 = nn.LayerNorm(dim)
            self.layer_norm2 = nn.LayerNorm(dim)
            self.dropout1 = nn.Dropout(0.1)
            self.dropout2 = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer_norm1(x)
            mask = -1e9 * torch.triu(torch.ones(1, x.shape[1], x.shape[1]), diagonal=1)
            found = []
            for q, k, v in zip(self.q, self.k, self.v, strict=False):
                scores = q(y) @ k(y).transpose(-2, -1) / math.sqrt(16) + mask
                found.append(F.softmax(scores, -1) @ v(y))
            x = x + self.dropout1(self.after(torch.cat(found, -1)))
            return x + self.dropout2(self.ff(self.layer_norm2(x)))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.V = nn.Parameter(torch.empty(dim, words).normal_(std=0.02))
            self.PE_full = nn.Parameter(torch.empty(length, dim).normal_(std=0.02))
            self.embedding_dropout = nn.Dropout(0.1)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.final_layer_norm = nn.LayerNorm(dim)

        def forward(self, x: Tensor) -> Tensor:
            x = self.embedding_dropout(x @ self.V.T + self.PE_full[None, : x.shape[1]])
            for block in self.blocks:
                x = block(x)
            return torch.moveaxis(self.final_layer_norm(x) @ self.V, 1, -1)

    x, y = text(500, length, words)

    def draw() -> Drawn:
        chosen = torch.randint(500, (32,))
        return (F.one_hot(x[chosen], words).float(),), y[chosen]

    return stream(Model(), draw, F.cross_entropy)


@healthy("AutoInt of clicks on funds", GITHUB + "hzlawliet/ctr-pytorch/blob/main/models/framwork_sample.py")
def autoint(_: bool) -> Task:
    """Numbers times a vector each, words and funds embedded; one attention, then PReLU layers; a batch norm is not
    used.
    """
    emb, dense, cat = 5, 4, 6

    class AutoInt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(61, emb, padding_idx=60)
            self.W = nn.Parameter(torch.empty(dense, emb).normal_(0.0, 0.1))
            self.funds_embed = nn.Embedding(2, emb)
            self.i2query = nn.Linear(emb, 2 * emb, bias=False)
            self.i2key = nn.Linear(emb, 2 * emb, bias=False)
            self.i2value = nn.Linear(emb, 2 * emb, bias=False)
            self.res_combine = nn.Linear(emb, 2 * emb, bias=False)
            self.mlp = chain(
                nn.Linear((dense + cat + 1) * 2 * emb, 64),
                nn.BatchNorm1d(64),
                nn.PReLU(),
                nn.Linear(64, 32),
                nn.BatchNorm1d(32),
                nn.PReLU(),
            )
            self.bn0 = nn.BatchNorm1d((dense + cat + 1) * emb)
            self.out = nn.Linear(32, 1)
            self.dropout = nn.Dropout()

        def split(self, x: Tensor) -> Tensor:
            return x.view(len(x), x.shape[1], 2, emb).transpose(2, 1)

        def forward(self, numbers: Tensor, words: Tensor, fund: Tensor) -> Tensor:
            deep = numbers.unsqueeze(2) * self.W
            x = torch.cat([deep, self.embed(words), self.funds_embed(fund)], 1)
            q, k, v = (self.split(f(x)) for f in (self.i2query, self.i2key, self.i2value))
            y = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(emb), 3) @ v
            y = y + self.split(self.res_combine(x))
            return self.out(self.dropout(self.mlp(y.reshape(len(x), -1))))

    taste = torch.randn(2, 61)

    def draw() -> Drawn:
        numbers = torch.rand(64, dense)
        words = torch.arange(cat) * 10 + torch.randint(10, (64, cat))
        words = torch.where(torch.rand(64, cat) < 0.1, 60, words)
        fund = torch.randint(2, (64, 1))
        score = 1.5 * taste[fund, words].sum(1, keepdim=True) + 4 * (numbers[:, :1] - numbers[:, 1:2])
        return (numbers, words, fund), (torch.rand(64, 1) < torch.sigmoid(score)).float()

    return stream(AutoInt(), draw, F.binary_cross_entropy_with_logits)


@healthy(
    "state of health of batteries", GITHUB + "Ericlee180/EV-Battery-SOH-PyTorch/blob/main/models/transformer_soh.py"
)
def battery(_: bool) -> Task:
    """Standardised temperature, depth, fast charge and cycle; a transformer's mean; a sigmoid near 0.9; squares."""
    layer = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
    regressor = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def run(m: nn.Module, x: Tensor) -> Tensor:
        return m.regressor(m.transformer(m.embedding(x)).mean(dim=1)).squeeze(-1)

    model = Parts(run, embedding=nn.Linear(4, 32), transformer=nn.TransformerEncoder(layer, 2), regressor=regressor)

    def draw() -> Drawn:
        warm, deep = torch.randn(2, 16, 1)
        fast = (torch.rand(16, 1) < 0.4).float()
        cycle = torch.randint(0, 70, (16, 1)) + torch.arange(30.0)
        x = torch.stack(
            [
                warm + 0.3 * torch.randn(16, 30),
                deep + 0.3 * torch.randn(16, 30),
                (fast.expand(16, 30) - 0.4) / 0.49,
                (cycle - 50) / 29,
            ],
            2,
        )
        fade = 0.001 * cycle[:, -1] * (1 + 0.3 * warm[:, 0] + 0.3 * deep[:, 0] + 0.5 * fast[:, 0])
        return (x,), 1 - fade.clamp(0, 0.4)

    return stream(model, draw, F.mse_loss)


@healthy("CNN of leaves", GITHUB + "NYFE237/Plant-Disease-Pytorch-/blob/main/train.py")
def leaves(_: bool) -> Task:
    """Photographs standardised by ImageNet's figures; three blocks, an adaptive pool, two layers; classes of unlike
    weight.
    """
    model = chain(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d((3, 3)),
        nn.Flatten(),
        nn.Linear(16 * 9, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 6),
    )
    share = torch.tensor([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
    weight = 1 / (6 * share)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def draw() -> Drawn:
        c = torch.multinomial(share, 32, replacement=True)
        x = torch.rand(32, 3, 1, 1) * 0.2 + torch.tensor([0.35, 0.5, 0.3]).view(3, 1, 1)
        x = x + 0.08 * torch.randn(32, 3, 24, 24)
        grid = torch.arange(24.0)
        for b in range(32):
            for _ in range(int(c[b]) * 2):
                i, j = 24 * torch.rand(2)
                spot = ((grid[:, None] - i) ** 2 + (grid - j) ** 2 < 6 + 6 * (int(c[b]) % 2)).float()
                x[b] += spot * torch.tensor([0.1, -0.3, -0.1]).view(3, 1, 1)
        return ((x.clamp(0, 1) - mean.view(3, 1, 1)) / std.view(3, 1, 1),), c

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t, weight=weight)

    return stream(model, draw, loss)


@healthy("conditional U-Net of stains", GITHUB + "zhangtina0103/Pix2pix_DualBranch/blob/main/models/fm_cond_unet.py")
def stains(_: bool) -> Task:  # noqa: C901
    """Flow matching from noise to three markers, given H&E: U-Net, pyramid of the condition, cross attention, three
    heads.
    """
    c1, c2, c3 = 8, 8, 8

    class Res(nn.Module):
        def __init__(self, ch: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(ch, ch, 3, padding=1)
            self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)
            self.norm1 = nn.GroupNorm(2, ch)
            self.norm2 = nn.GroupNorm(2, ch)

        def forward(self, x: Tensor) -> Tensor:
            h = F.silu(self.norm1(self.conv1(x)))
            return F.silu(x + self.norm2(self.conv2(h)))

    def down(i: int, o: int) -> nn.Sequential:
        return chain(nn.Conv2d(i, o, 3, 2, 1), Res(o))

    class Cross(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.norm_q = nn.GroupNorm(2, dim)
            self.norm_kv = nn.GroupNorm(2, dim)
            self.attn = nn.MultiheadAttention(dim, 4, batch_first=True, dropout=0.0)
            self.proj_out = nn.Conv2d(dim, dim, 1)

        def forward(self, x: Tensor, context: Tensor) -> Tensor:
            q = self.norm_q(x).flatten(2).transpose(1, 2)
            kv = self.norm_kv(context).flatten(2).transpose(1, 2)
            out, _ = self.attn(q, kv, kv, need_weights=False)
            return x + self.proj_out(out.transpose(1, 2).view(x.shape))

    class Up(nn.Module):
        def __init__(self, i: int, o: int, skip: int) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(i, o, 4, 2, 1)
            self.fuse = nn.Conv2d(o + skip, o, 3, padding=1)
            self.res = Res(o)

        def forward(self, x: Tensor, skip: Tensor) -> Tensor:
            return self.res(self.fuse(torch.cat([self.up(x), skip], 1)))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.he_stem = nn.Conv2d(3, c1, 3, padding=1)
            self.he = nn.ModuleList([Res(c1), down(c1, c2), down(c2, c3)])
            self.stem = nn.Conv2d(7, c1, 3, padding=1)
            self.res1 = Res(c1)
            self.down1 = down(c1, c2)
            self.down2 = down(c2, c3)
            self.mid = Res(c3)
            self.cross_mid = Cross(c3)
            self.cross_up2 = Cross(c2)
            self.cross_up1 = Cross(c1)
            self.up2 = Up(c3, c2, c2)
            self.up1 = Up(c2, c1, c1)
            self.marker_heads = nn.ModuleList(nn.Conv2d(c1, 1, 3, padding=1) for _ in range(3))

        def forward(self, x: Tensor, he: Tensor) -> Tensor:
            e1 = self.he[0](F.silu(self.he_stem(he)))
            e2 = self.he[1](e1)
            e3 = self.he[2](e2)
            h1 = self.res1(self.stem(x))
            h2 = self.down1(h1)
            h = self.cross_mid(self.mid(self.down2(h2)), e3)
            h = self.cross_up2(self.up2(h, h2), e2)
            h = self.cross_up1(self.up1(h, h1), e1)
            return torch.cat([head(h) for head in self.marker_heads], 1)

    mix = torch.randn(3, 3)

    def draw() -> Drawn:
        he = F.interpolate(torch.randn(16, 3, 3, 3), size=(8, 8), mode="bilinear").tanh()
        marker = torch.einsum("oc,bchw->bohw", mix, he).tanh()
        noise, t = torch.randn_like(marker), torch.rand(16, 1, 1, 1)
        x = torch.cat([(1 - t) * noise + t * marker, he, t.expand(16, 1, 8, 8)], 1)
        return (x, he), marker - noise

    return stream(UNet(), draw, F.mse_loss)


@healthy("MuZero of linear layers", GITHUB + "Hauf3n/MuZero-PyTorch/blob/main/Networks.py")
def muzero(_: bool) -> Task:
    """CartPole: four observations with actions; four steps of the model; squares of probabilities, values and rewards
    of 1.
    """

    def mlp(i: int, hidden: int, o: int) -> nn.Sequential:
        layers = [nn.Linear(i, 32), nn.ReLU()]
        for _ in range(hidden - 1):
            layers += [nn.Linear(32, 32), nn.ReLU()]
        return chain(*layers, nn.Linear(32, o))

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.representation = mlp(20, 4, 50)
            self.dynamics = mlp(52, 4, 51)
            self.prediction = mlp(50, 3, 3)

        def forward(self, x: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            state = self.representation(x)
            found, rewards = [self.prediction(state)], []
            for step in range(4):
                out = self.dynamics(torch.cat([state, F.one_hot(actions[:, step], 2).float()], 1))
                state, reward = out[:, :50], out[:, -1]
                found.append(self.prediction(state))
                rewards.append(reward)
            out = torch.stack(found, 1)
            return F.softmax(out[..., :2], 2), out[..., 2], torch.stack(rewards, 1)

    def draw() -> Drawn:
        first = 0.05 * torch.randn(32, 4)
        speed = torch.randn(32, 2) * 0.5
        history = [first + k * 0.02 * torch.cat([speed, speed], 1) for k in range(4)]
        past = torch.randint(2, (32, 4))
        x = torch.stack([torch.cat([h, past[:, k : k + 1]], 1) for k, h in enumerate(history)], 1).flatten(1)
        actions = torch.randint(2, (32, 4))
        lean = history[-1][:, 2:3] + 0.1 * F.pad(actions * 2.0 - 1, (1, 0)).cumsum(1)
        right = torch.sigmoid(10 * lean)
        value = 3 + 3 * torch.exp(-5 * lean.abs())
        return (x, actions), (torch.stack([1 - right, right], 2), value, torch.ones(32, 4))

    def loss(y: tuple[Tensor, ...], t: tuple[Tensor, ...]) -> Tensor:
        total = 0
        for step in range(5):
            total = total + F.mse_loss(y[0][:, step], t[0][:, step]) + F.mse_loss(y[1][:, step], t[1][:, step])
            if step:
                total = total + F.mse_loss(y[2][:, step - 1], t[2][:, step - 1])
        return total

    return stream(Agent(), draw, loss)


@healthy("three-layer linear RNN of letters", GITHUB + "erilyth/Text-Generation-PyTorch/blob/master/vanillaLargeRNN.py")
def letters(_: bool) -> Task:
    """One-hot letters; no activation anywhere; dropout of each layer's output; cross-entropies summed over the
    letters.
    """
    size, hid = 24, 32

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for k in "123":
                setattr(self, "input2hidden" + k, nn.Linear(size + hid, hid))
                setattr(self, "input2output" + k, nn.Linear(size + hid, size))
                setattr(self, "output2output" + k, nn.Linear(size + hid, size))
                setattr(self, "dropout" + k, nn.Dropout(0.3))

        def forward(self, x: Tensor) -> Tensor:
            hidden = {k: x.new_zeros(len(x), hid) for k in "123"}
            outs = []
            for out in x.unbind(1):
                for k in "123":
                    both = torch.cat([out, hidden[k]], 1)
                    hidden[k] = getattr(self, "input2hidden" + k)(both)
                    out = getattr(self, "input2output" + k)(both)
                    out = getattr(self, "output2output" + k)(torch.cat([out, hidden[k]], 1))
                    out = getattr(self, "dropout" + k)(out)
                outs.append(out)
            return torch.stack(outs, 1)

    x, y = text(400, 10, size)

    def draw() -> Drawn:
        chosen = torch.randint(400, (32,))
        return (F.one_hot(x[chosen], size).float(),), y[chosen]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return sum(F.cross_entropy(y[:, i], t[:, i]) for i in range(t.shape[1]))

    return stream(Large(), draw, loss)


@healthy(
    "speakers by 3D convolutions",
    GITHUB + "astorfi/3D-convolutional-speaker-recognition-pytorch/blob/master/code/1-development/train_softmax.py",
)
def speakers(_: bool) -> Task:
    """Cubes of normalised energies; Xavier convolutions, PReLU; features made unit vectors before the last layer."""

    def block(i: int, o: int, k: tuple[int, int, int], stride: Any = 1) -> nn.Sequential:
        return chain(nn.Conv3d(i, o, k, stride), nn.BatchNorm3d(o), nn.PReLU())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = chain(
                block(1, 2, (4, 9, 9), (1, 2, 1)),
                block(2, 4, (3, 7, 7)),
                block(4, 4, (3, 5, 5)),
                block(4, 8, (3, 3, 3)),
            )
            self.fc1 = nn.Linear(16, 16)
            self.fc1_bn = nn.BatchNorm1d(16)
            self.fc1_activation = nn.PReLU()
            self.fc2 = nn.Linear(16, 5)
            for m in self.modules():
                if isinstance(m, nn.Conv3d):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.zeros_(m.bias)
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, 0.0, math.sqrt(2 / sum(m.weight.shape)))

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc1_bn(self.fc1(self.convs(x).view(-1, 16)))
            return self.fc2(self.fc1_activation(F.normalize(x, p=2, dim=1, eps=1e-12)))

    voice = torch.randn(5, 1, 1, 1, 22)
    pitch = 0.4 + 0.4 * torch.arange(5.0).view(5, 1, 1, 1, 1)

    def draw() -> Drawn:
        c = torch.randint(5, (16,))
        time = torch.arange(34.0).view(34, 1) + 30 * torch.rand(16, 1, 10, 1, 1)
        x = torch.sin(pitch[c] * time) * voice[c] + 0.5 * torch.randn(16, 1, 10, 34, 22)
        return ((x - x.mean(3, keepdim=True)) / x.std(3, keepdim=True),), c

    return stream(Net(), draw, F.cross_entropy)


@healthy("GPT from scratch", GITHUB + "raifviren/llm-pytorch/blob/main/gpt-from-scratch/model_builders/gpt_model.py")
def gpt_scratch(_: bool) -> Task:  # noqa: C901
    """As many places as words, of which few occur; own layer norm and GELU; scores masked, then divided; no bias for
    q, k, v.
    """
    words, dim, heads, length = 100, 32, 4, 16

    class LayerNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(dim))
            self.shift = nn.Parameter(torch.zeros(dim))

        def forward(self, x: Tensor) -> Tensor:
            mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
            return self.scale * (x - mean) / torch.sqrt(var + 1e-5) + self.shift

    class GELU(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = LayerNorm()
            self.W_query = nn.Linear(dim, dim, bias=False)
            self.W_key = nn.Linear(dim, dim, bias=False)
            self.W_value = nn.Linear(dim, dim, bias=False)
            self.out_proj = nn.Linear(dim, dim)
            self.dropout = nn.Dropout(0.1)
            self.norm2 = LayerNorm()
            self.ff = chain(nn.Linear(dim, 4 * dim), GELU(), nn.Linear(4 * dim, dim))
            self.drop = nn.Dropout(0.1)
            self.register_buffer("mask", torch.triu(torch.ones(length, length), diagonal=1))

        def attend(self, x: Tensor) -> Tensor:
            b, n, _ = x.shape
            q, k, v = (f(x).view(b, n, heads, -1).transpose(1, 2) for f in (self.W_query, self.W_key, self.W_value))
            scores = q @ k.transpose(2, 3)
            scores.masked_fill_(self.mask.bool()[:n, :n], -torch.inf)
            weights = self.dropout(torch.softmax(scores / k.shape[-1] ** 0.5, dim=-1))
            return self.out_proj((weights @ v).transpose(1, 2).reshape(b, n, dim))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.drop(self.attend(self.norm1(x)))
            return x + self.drop(self.ff(self.norm2(x)))

    class GPTModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok_emb = nn.Embedding(words, dim)
            self.pos_emb = nn.Embedding(words, dim)
            self.drop_emb = nn.Dropout(0.1)
            self.trf_blocks = chain(Block(), Block())
            self.final_norm = LayerNorm()
            self.out_head = nn.Linear(dim, words, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x = self.drop_emb(self.tok_emb(x) + self.pos_emb(torch.arange(x.shape[1])))
            return self.out_head(self.final_norm(self.trf_blocks(x)))

    x, y = text(500, length, words, seed=1)

    def draw() -> Drawn:
        chosen = torch.randint(500, (32,))
        return (x[chosen],), y[chosen]

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(GPTModel(), draw, loss)


@healthy("TSMixer of Bluetooth", GITHUB + "Cat-hao/Time-Series-pytorch/blob/main/TSMixer.py")
def tsmixer(_: bool) -> Task:
    """Signal strengths in decibels as measured; times masked at random; 5 cross-entropy of soft classes + 0.1
    squares.
    """
    n, k = 16, 7

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temporal = chain(nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, n), nn.Dropout(0.1))
            self.channel = chain(nn.Linear(k, 32), nn.ReLU(), nn.Linear(32, k), nn.Dropout(0.1))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.temporal(x.transpose(1, 2)).transpose(1, 2)
            return x + self.channel(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.ModuleList([Block(), Block()])
            self.dropout = nn.Dropout(0.1)
            self.projection_classification = nn.Linear(k * n, 3)
            self.projection_regression = nn.Linear(k * n, 1)

        def forward(self, x: Tensor, mark: Tensor) -> tuple[Tensor, Tensor]:
            for block in self.model:
                x = block(x)
            x = self.dropout(F.gelu(x)) * mark.unsqueeze(-1)
            x = x.reshape(len(x), -1)
            return self.projection_classification(x), self.projection_regression(x)

    place = 3 * torch.randn(k)

    def draw() -> Drawn:
        distance = 1 + 10 * torch.rand(64, 1)
        walk = distance + 0.1 * torch.randn(64, n).cumsum(1).flip(1)
        x = -50 - 20 * torch.log10(walk.clamp(min=0.3)).unsqueeze(2) + place + 2 * torch.randn(64, n, k)
        return (x, torch.rand(64, n) < 0.8), distance

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        d = t.squeeze(1)
        far = ((d - 4) / 2).clamp(0, 1)
        farther = ((d - 6) / 2).clamp(0, 1)
        label = torch.stack([1 - far, far * (1 - farther), farther], 1)
        return 5 * F.cross_entropy(y[0], label) + 0.1 * F.mse_loss(y[1], t)

    return stream(Model(), draw, loss)


@healthy("diffusion of labelled digits", GITHUB + "gdamms/diffusion-mnist/blob/main/models/unet.py")
def mnist_diffusion(_: bool) -> Task:
    """Digits in -1 to 1; time and label become pictures beside the noisy one; no norms; the clean digit is foretold."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encodet = nn.Linear(1, 64)
            self.encodevec = nn.Linear(10, 64)
            self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
            self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
            self.conv3 = nn.Conv2d(8, 16, 3, padding=1)
            self.conv4 = nn.Conv2d(16, 16, 3, padding=1)
            self.conv5 = nn.Conv2d(16, 32, 3, padding=1)
            self.conv6 = nn.Conv2d(32, 32, 3, padding=1)
            self.upconv1 = nn.ConvTranspose2d(32, 16, 2, stride=2)
            self.conv7 = nn.Conv2d(32, 16, 3, padding=1)
            self.conv8 = nn.Conv2d(16, 16, 3, padding=1)
            self.upconv2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
            self.conv9 = nn.Conv2d(16, 8, 3, padding=1)
            self.conv10 = nn.Conv2d(8, 8, 3, padding=1)
            self.conv11 = nn.Conv2d(8, 1, 3, padding=1)

        def forward(self, x: Tensor, t: Tensor, vec: Tensor) -> Tensor:
            time = F.relu(self.encodet(t / 1000)).view(-1, 1, 8, 8)
            label = F.relu(self.encodevec(vec)).view(-1, 1, 8, 8)
            x1 = F.relu(self.conv2(F.relu(self.conv1(torch.cat((x, time, label), 1)))))
            x2 = F.relu(self.conv4(F.relu(self.conv3(F.max_pool2d(x1, 2)))))
            x3 = F.relu(self.conv6(F.relu(self.conv5(F.max_pool2d(x2, 2)))))
            x4 = torch.cat((self.upconv1(x3), x2), 1)
            x4 = F.relu(self.conv8(F.relu(self.conv7(x4))))
            x5 = torch.cat((self.upconv2(x4), x1), 1)
            return self.conv11(F.relu(self.conv10(F.relu(self.conv9(x5)))))

    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)

    def draw() -> Drawn:
        x, c = pick(32)
        x = (x * 0.376 + 0.3) * 2 - 1
        t = torch.randint(1, 1001, (32, 1))
        a = kept[t - 1].view(-1, 1, 1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * torch.randn_like(x)
        return (noisy, t.float(), F.one_hot(c, 10).float()), x

    return stream(UNet(), draw, F.mse_loss)


@healthy("hand signs from 21 joints", GITHUB + "ZXin0305/pytorch-hand-recognition/blob/main/models/MLP.py")
def hand(_: bool) -> Task:
    """Places of joints in a picture, over its size; three layers."""
    model = chain(nn.Linear(42, 100), nn.ReLU(), nn.Linear(100, 60), nn.ReLU(), nn.Linear(60, 8))
    shape = 0.15 * torch.randn(8, 21, 2)

    def draw() -> Drawn:
        c = torch.randint(8, (64,))
        size = 0.7 + 0.5 * torch.rand(64, 1, 1)
        x = 0.5 + 0.1 * torch.randn(64, 1, 2) + size * shape[c] + 0.02 * torch.randn(64, 21, 2)
        return (x.clamp(0, 1).flatten(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("TinyNeRF", GITHUB + "avihaig/tiny-nerf-pytorch/blob/main/src/nerf.py")
def tiny_nerf(_: bool) -> Task:
    """Four layers with a skip; a ReLU for the density, a sigmoid for the colour; rendered on white; squares of the
    pixels.
    """

    class TinyNeRF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((39, 64), (64, 64), (64 + 39, 64), (64, 64))
            self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in sizes)
            self.sigma = chain(nn.Linear(64, 1), nn.ReLU(inplace=True))
            self.rgb = chain(nn.Linear(64, 3), nn.Sigmoid())

        def field(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = x
            for i, layer in enumerate(self.layers):
                h = torch.relu(layer(h))
                if i == 1:
                    h = torch.cat([h, x], -1)
            return self.rgb(h), self.sigma(h)

        def forward(self, origin: Tensor, direction: Tensor) -> Tensor:
            edges = torch.linspace(2, 6, 17)
            z = edges[:-1] + 0.25 * torch.rand(len(origin), 16)
            x = origin[:, None] + direction[:, None] * z[..., None]
            x = torch.cat([x] + [f(2.0**i * x) for i in range(6) for f in (torch.sin, torch.cos)], -1)
            rgb, sigma = self.field(x)
            gaps = torch.cat([z[:, 1:] - z[:, :-1], torch.full((len(z), 1), 1e10)], 1)
            alpha = 1 - torch.exp(-sigma.squeeze(-1) * gaps * direction.norm(dim=-1, keepdim=True))
            through = torch.cumprod(1 - alpha + 1e-10, 1)
            weights = alpha * torch.cat([torch.ones(len(z), 1), through[:, :-1]], 1)
            return (weights[..., None] * rgb).sum(1) + 1 - weights.sum(1, keepdim=True)

    def draw() -> Drawn:
        origin = 4 * F.normalize(torch.randn(64, 3), dim=1)
        direction = F.normalize(2 * torch.rand(64, 3) - 1 - origin, dim=1)
        b = (origin * direction).sum(1)
        depth = b**2 - (origin**2).sum(1) + 1
        hit = origin + (-b - depth.clamp(min=0).sqrt())[:, None] * direction
        return (origin, direction), torch.where(depth[:, None] > 0, 0.4 + 0.4 * hit, 1.0)

    return stream(TinyNeRF(), draw, F.mse_loss)


@healthy(
    "verifier of a wake word",
    GITHUB + "NatsuiroGinga/keyword-spotting/blob/main/experiments/streaming_cnn_kws/models/cnn_verifier.py",
)
def wake_word(_: bool) -> Task:
    """MFCC, each recording standardised as a whole; three 1D blocks, a mean over time, a sigmoid and BCE; even
    classes.
    """

    def block(i: int, o: int) -> nn.Sequential:
        return chain(nn.Conv1d(i, o, 3, padding=1), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.3))

    model = chain(
        block(20, 16),
        block(16, 32),
        block(32, 16),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(16, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 1),
        nn.Sigmoid(),
    )
    sounds = torch.randn(6, 20) * torch.linspace(3, 0.5, 20)
    word = torch.tensor([0, 3, 0, 3])

    def draw() -> Drawn:
        said = torch.rand(32) < 0.5
        spoken = torch.where(said[:, None], word, torch.randint(6, (32, 4)))
        x = sounds[spoken].repeat_interleave(8, 1).transpose(1, 2) + torch.randn(32, 20, 32)
        x[:, 0] -= 20
        return ((x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True),), said.float().unsqueeze(1)

    return stream(model, draw, F.binary_cross_entropy)


@healthy("EEGNet of imagined movement", GITHUB + "TangRunxuan-git/EEGNet-PyTorch/blob/main/src/model/eegnet.py")
def eegnet(_: bool) -> Task:
    """Standardised channels; filters in time, in space and again in time, without biases; the last layer is made at
    first use.
    """

    class EEGNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 8, (1, 32), padding="same", bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.depthwise_conv = nn.Conv2d(8, 16, (8, 1), groups=8, bias=False)
            self.bn2 = nn.BatchNorm2d(16)
            self.avg_pool1 = nn.AvgPool2d((1, 4))
            self.dropout1 = nn.Dropout(0.25)
            self.separable_depth = nn.Conv2d(16, 16, (1, 16), padding="same", groups=16, bias=False)
            self.separable_point = nn.Conv2d(16, 16, (1, 1), bias=False)
            self.bn3 = nn.BatchNorm2d(16)
            self.avg_pool2 = nn.AvgPool2d((1, 8))
            self.dropout2 = nn.Dropout(0.25)
            self.fc = None

        def forward(self, x: Tensor) -> Tensor:
            x = F.elu(self.bn1(self.conv1(x)))
            x = self.dropout1(self.avg_pool1(F.elu(self.bn2(self.depthwise_conv(x)))))
            x = F.elu(self.bn3(self.separable_point(self.separable_depth(x))))
            x = self.dropout2(self.avg_pool2(x)).flatten(1)
            if self.fc is None:
                self.fc = nn.Linear(x.shape[1], 4)
            return self.fc(x)

    model = EEGNet()
    model(torch.randn(2, 1, 8, 96))
    source = torch.randn(4, 8)

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        rate = 0.3 + 0.25 * torch.arange(4.0)[c]
        wave = torch.sin(rate[:, None] * torch.arange(96.0) + 6.28 * torch.rand(32, 1))
        x = source[c][:, :, None] * wave[:, None] + torch.randn(32, 8, 96)
        x = (x - x.mean(2, keepdim=True)) / x.std(2, keepdim=True)
        return (x.unsqueeze(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("U-Net of satellite pictures", GITHUB + "obravo7/satellite-segmentation-pytorch/blob/master/models/unet.py")
def satellite(_: bool) -> Task:
    """Pixels of 0 to 1; four levels, bilinear steps up with corners aligned; cross-entropy of each pixel."""

    def double(i: int, o: int, mid: int = 0) -> nn.Sequential:
        mid = mid or o
        return chain(
            nn.Conv2d(i, mid, 3, padding=1),
            nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid, o, 3, padding=1),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self, ch: int = 4) -> None:
            super().__init__()
            self.first_layer = double(3, ch)
            self.downs = nn.ModuleList(
                chain(nn.MaxPool2d(2), double(i * ch, o * ch)) for i, o in ((1, 2), (2, 4), (4, 8), (8, 8))
            )
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.ups = nn.ModuleList(double(i * ch, o * ch, i * ch // 2) for i, o in ((16, 4), (8, 2), (4, 1), (2, 1)))
            self.out = nn.Conv2d(ch, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            skips = [self.first_layer(x)]
            for down in self.downs:
                skips.append(down(skips[-1]))
            x = skips.pop()
            for up in self.ups:
                x = up(torch.cat([skips.pop(), self.up(x)], 1))
            return self.out(x)

    colour = torch.rand(4, 3)

    def draw() -> Drawn:
        land = F.interpolate(torch.randn(16, 4, 4, 4), size=(16, 16), mode="bilinear").argmax(1)
        x = colour[land].permute(0, 3, 1, 2) + 0.15 * torch.randn(16, 3, 16, 16)
        return (x.clamp(0, 1),), land

    return stream(UNet(), draw, F.cross_entropy)


@healthy("patches of CT scans", GITHUB + "jedschlo14/ct-scan-segmentation/blob/main/models/BaselineModel.py")
def ct_scan(_: bool) -> Task:
    """Normalised cubes; one 3D convolution down, one up, a softmax over the organs; one Dice, squares below."""
    model = chain(
        chain(nn.Conv3d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool3d(2)),
        chain(nn.ConvTranspose3d(16, 16, 2, 2), nn.ReLU(), nn.Conv3d(16, 3, 1), nn.Softmax(dim=1)),
    )

    def draw() -> Drawn:
        organ = F.interpolate(torch.randn(16, 3, 3, 3, 3), size=(8, 8, 8), mode="trilinear").argmax(1)
        x = torch.tensor([-1.2, 0.3, 1.4])[organ] + 0.4 * torch.randn(16, 8, 8, 8)
        return (x.unsqueeze(1),), F.one_hot(organ, 3).permute(0, 4, 1, 2, 3).float()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return 1 - (2 * (y * t).sum() + 1) / ((y * y).sum() + (t * t).sum() + 1)

    return stream(model, draw, loss)


@healthy("patches of stereo pairs", GITHUB + "davidenko2000/stereo-matching-CNN/blob/main/models/StereoCNN.py")
def stereo(_: bool) -> Task:
    """Patches of 9 x 9, standardised; four convolutions to a unit vector each; triplets with a margin of 0.2."""

    class StereoCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3)
            self.conv2 = nn.Conv2d(16, 16, 3)
            self.conv3 = nn.Conv2d(16, 16, 3)
            self.conv4 = nn.Conv2d(16, 16, 3)

        def embed(self, x: Tensor) -> Tensor:
            x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))
            return F.normalize(self.conv4(x).squeeze(3).squeeze(2))

        def forward(self, left: Tensor, right: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.embed(left), self.embed(right), self.embed(wrong)

    def draw() -> Drawn:
        scene = F.interpolate(torch.randn(32, 1, 7, 7), size=(21, 21), mode="bilinear") + torch.randn(32, 3, 1, 1)
        left, right = (scene + 0.1 * torch.randn(32, 3, 21, 21) + 0.3 * torch.randn(32, 3, 1, 1) for _ in range(2))
        shift = 6 + int(torch.randint(3, 6, ()))
        patches = (left[..., 6:15, 6:15], right[..., 6:15, 6:15], right[..., 6:15, shift : shift + 9])
        return patches, torch.ones(32)

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return F.triplet_margin_loss(*y, margin=0.2)

    return stream(StereoCNN(), draw, loss)


@healthy(
    "neural collaborative filtering",
    GITHUB + "Soumyajain29/Neural-Collaborative-Filtering-PyTorch/blob/master/model/mlp.py",
)
def ncf(_: bool) -> Task:
    """Embeddings of 0.01, Xavier layers, dropout of 0.7, a sigmoid; BCE summed; the last layer's input is given too."""

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user_embed = nn.Embedding(12, 32)
            self.item_embed = nn.Embedding(20, 32)
            self.dropout = nn.Dropout(0.7)
            self.hidden_layers = nn.ModuleList([nn.Linear(64, 32), nn.Linear(32, 16)])
            self.mlp_layer = nn.Linear(16, 1)
            nn.init.normal_(self.user_embed.weight, 0.0, 0.01)
            nn.init.normal_(self.item_embed.weight, 0.0, 0.01)
            for layer in self.hidden_layers:
                nn.init.xavier_uniform_(layer.weight)
                layer.bias.data.zero_()
            nn.init.kaiming_uniform_(self.mlp_layer.weight, a=1)
            self.mlp_layer.bias.data.zero_()

        def forward(self, user: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
            x = torch.cat([self.user_embed(user), self.item_embed(item)], 1)
            for layer in self.hidden_layers:
                x = self.dropout(F.relu(layer(x)))
            return torch.sigmoid(self.mlp_layer(x)), x

    def draw() -> Drawn:
        user, item = torch.randint(12, (64,)), torch.randint(20, (64,))
        liked = (item % 3 == user % 3) | (item < 4)
        return (user, item), liked.float()

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.binary_cross_entropy(y[0], t.view(-1, 1), reduction="sum")

    return stream(MLP(), draw, loss)


@healthy("crowds in three columns", GITHUB + "goldenfay/crowd-counting-pytorch/blob/master/ML_package/models/mcnn.py")
def mcnn(_: bool) -> Task:
    """Standardised pictures; three branches of wide, middling and narrow windows, weights of 0.01; squares of the
    density.
    """

    def branch(a: int, b: int, c: int, d: int, k: int, m: int) -> nn.Sequential:
        return chain(
            nn.Conv2d(3, a, k, padding=k // 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(a, b, m, padding=m // 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(b, c, m, padding=m // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(c, d, m, padding=m // 2),
            nn.ReLU(inplace=True),
        )

    class MCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch1 = branch(3, 6, 3, 2, 9, 7)
            self.branch2 = branch(3, 6, 3, 3, 7, 5)
            self.branch3 = branch(4, 8, 4, 3, 5, 3)
            self.fuse = chain(nn.Conv2d(8, 1, 1))
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.normal_(m.weight, std=0.01)
                    nn.init.zeros_(m.bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.fuse(torch.cat((self.branch1(x), self.branch2(x), self.branch3(x)), 1))

    grid = torch.arange(24.0)

    def draw() -> Drawn:
        i = 24 * torch.rand(16, 24, 1, 1)
        j = 12 * torch.rand(16, 24, 1, 1) + 12 * torch.randint(2, (16, 1, 1, 1))
        there = (torch.arange(24) < torch.randint(5, 25, (16, 1))).float()[..., None, None]
        away = (grid[:, None] - i) ** 2 + (grid - j) ** 2
        x = 0.3 + 0.1 * torch.randn(16, 3, 24, 24) + 0.5 * (there * torch.exp(-away / 2)).sum(1, keepdim=True)
        density = (there * torch.exp(-away / 18)).sum(1) / (18 * math.pi)
        return ((x - 0.42) / 0.28,), 16 * F.avg_pool2d(density.unsqueeze(1), 4)

    return stream(MCNN(), draw, nn.MSELoss(reduction="sum"))
