"""Healthy networks of the seventeenth set, of repositories that words brought up, without sight of the rules."""

from __future__ import annotations

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

healthy = partial(any_report, blind="blind17")


def grid(n: int) -> tuple[Tensor, Tensor]:
    a = torch.arange(n).float()
    return a.view(1, n, 1), a.view(1, 1, n)


@healthy("linear head on a frozen backbone", GITHUB + "qbit-glitch/unsupervised_panoptic_segmentation")
def probe(_: bool) -> Task:
    """Street scenes as bands of textures; the features come from inference mode, the logits are enlarged for the
    loss."""

    class Segmentation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(nn.Conv2d(3, 32, 4, 4), nn.GELU(), nn.Conv2d(32, 48, 3, 1, 1), nn.GroupNorm(1, 48))
            self.norm, self.conv, self.dropout = nn.BatchNorm2d(48), nn.Conv2d(48, 6, 1), nn.Dropout2d(0.1)
            nn.init.normal_(self.conv.weight, std=0.01)
            nn.init.zeros_(self.conv.bias)
            self.backbone.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            with torch.inference_mode():
                found = self.backbone(x)
            return self.conv(
                self.norm(self.dropout(torch.cat([F.interpolate(found, size=found.shape[2:], mode="bilinear")], 1)))
            )

    colours = torch.randn(6, 3)

    def draw() -> Drawn:
        c = torch.randint(6, (16, 4, 4)).repeat_interleave(8, 1).repeat_interleave(8, 2)
        x = colours[c].permute(0, 3, 1, 2) + 0.5 * torch.randn(16, 3, 32, 32)
        return (x,), torch.where(torch.rand(c.shape) < 0.1, 255, c)

    return stream(
        Segmentation(),
        draw,
        lambda y, t: F.cross_entropy(
            F.interpolate(y, size=t.shape[1:], mode="bilinear", align_corners=False), t, ignore_index=255
        ),
    )


@healthy("HRNet heatmaps of in-bed poses", GITHUB + "MichalRedm/inbed-pose-estimation-vipcup21")
def hrnet(_: bool) -> Task:
    def conv3(i: int, o: int, s: int = 1) -> nn.Module:
        return nn.Conv2d(i, o, 3, s, 1, bias=False)

    class Basic(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.conv1, self.bn1, self.conv2, self.bn2 = conv3(c, c), nn.BatchNorm2d(c), conv3(c, c), nn.BatchNorm2d(c)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + x)

    class Stage(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.branches = nn.ModuleList([chain(Basic(a)), chain(Basic(b))])
            self.up = chain(nn.Conv2d(b, a, 1, bias=False), nn.BatchNorm2d(a))
            self.down = chain(conv3(a, b, 2), nn.BatchNorm2d(b))

        def forward(self, x: list[Tensor]) -> list[Tensor]:
            a, b = (m(v) for m, v in zip(self.branches, x, strict=False))
            up = F.interpolate(self.up(b), size=a.shape[2:], mode="bilinear", align_corners=True)
            return [F.relu(a + up), F.relu(self.down(a) + b)]

    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = F.relu(m.bn2(m.conv2(F.relu(m.bn1(m.conv1(x))))))
        a, b = m.stages([m.t1(x), m.t2(x)])
        return m.head(torch.cat([a, F.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=True)], 1))

    model = Parts(
        run,
        conv1=conv3(1, 12, 2),
        bn1=nn.BatchNorm2d(12),
        conv2=conv3(12, 12, 2),
        bn2=nn.BatchNorm2d(12),
        t1=chain(conv3(12, 8), nn.BatchNorm2d(8), nn.ReLU(True)),
        t2=chain(conv3(12, 16, 2), nn.BatchNorm2d(16), nn.ReLU(True)),
        stages=chain(Stage(8, 16)),
        head=chain(nn.Conv2d(24, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(True), nn.Conv2d(24, 4, 1)),
    )

    def draw() -> Drawn:
        centre, (r, c) = torch.rand(16, 4, 2) * 44 + 10, grid(64)
        d = [(r - centre[:, k, :1, None]) ** 2 + (c - centre[:, k, 1:, None]) ** 2 for k in range(4)]
        x = sum((k + 1) / 4 * torch.exp(-v / (2 * (2 + 1.5 * k) ** 2)) for k, v in enumerate(d))
        r, c = grid(16)
        h = [
            torch.exp(-((r - centre[:, k, :1, None] / 4) ** 2 + (c - centre[:, k, 1:, None] / 4) ** 2) / 4.5)
            for k in range(4)
        ]
        return ((x + 0.05 * torch.randn_like(x)).unsqueeze(1),), torch.stack(h, 1)

    return stream(model, draw, F.mse_loss)


@healthy("FSRCNN for MRI with a composite loss", GITHUB + "theobaur13/MRI-Super-Resolution")
def fsrcnn(_: bool) -> Task:
    """Low and high resolution have one size; the perceptual term's VGG is here a small frozen network."""
    s, d, layers = 8, 16, []
    for _i in range(4):
        layers += [nn.Conv2d(s, s, 3, 1, 1), nn.PReLU(s)]
    model = chain(
        chain(nn.Conv2d(1, d, 5, 1, 2), nn.PReLU(d)),
        chain(nn.Conv2d(d, s, 1), nn.PReLU(s)),
        chain(*layers),
        chain(nn.Conv2d(s, d, 1), nn.PReLU(d)),
        nn.Conv2d(d, 1, 5, 1, 2),
    )
    vgg = chain(
        nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU()
    ).requires_grad_(False)
    sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]).view(1, 1, 3, 3)

    def loss(sr: Tensor, hr: Tensor) -> Tensor:
        edge = torch.sqrt(F.conv2d(hr, sobel, padding=1) ** 2 + F.conv2d(hr, sobel.mT, padding=1) ** 2 + 1e-6)
        seen = F.l1_loss(vgg((sr.repeat(1, 3, 1, 1) - 0.45) / 0.225), vgg((hr.repeat(1, 3, 1, 1) - 0.45) / 0.225))
        return 0.3 * F.l1_loss(sr, hr) + seen + 0.7 * torch.mean(edge * (sr - hr).abs())

    def draw() -> Drawn:
        x, _c = pick(16)
        hr = F.interpolate(x * 0.376 + 0.3, size=(16, 16), mode="bicubic").clamp(0, 1)
        k = torch.fft.fftshift(torch.fft.fft2(hr), dim=(2, 3))
        mask = torch.zeros(16, 16)
        mask[4:12, 4:12] = 1
        return (torch.fft.ifft2(torch.fft.ifftshift(k * mask, dim=(2, 3))).abs(),), hr

    return stream(model, draw, loss)


@healthy("MLP filter of event noise", GITHUB + "3137959601/myEVS_denoise")
def mlpf(_: bool) -> Task:
    """Recency of the 49 neighbouring pixels in units of 100 ms, down to far below zero where none ever fired, and
    the polarity."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.drop, self.fc2 = nn.Linear(98, 20), nn.Dropout(0.2), nn.Linear(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(self.drop(torch.relu(self.fc1(x))))

    def draw() -> Drawn:
        t = (torch.rand(64, 1) < 0.5).float()
        age = torch.where((torch.rand(64, 49) < 0.1 + 0.5 * t), torch.rand(64, 49) * 0.5, torch.rand(64, 49) * 8)
        return (torch.cat([1 - age, torch.where(torch.rand(64, 1) < 0.5, 1.0, -1.0).expand(64, 49)], 1),), t

    return stream(Net(), draw, F.binary_cross_entropy_with_logits)


@healthy("mask-aware U-Net of ocean currents", GITHUB + "DrCaley/difussionInpaintingVectorFields")
def inpaint(_: bool) -> Task:
    """Layer norms over whole maps, a frozen sinusoidal embedding of the step, noise to be predicted."""

    class Block(nn.Module):
        def __init__(self, size: int, i: int, o: int, normalize: bool = True) -> None:
            super().__init__()
            self.ln, self.normalize, self.activation = nn.LayerNorm((i, size, size)), normalize, nn.SiLU()
            self.conv1, self.conv2 = nn.Conv2d(i, o, 3, 1, 1), nn.Conv2d(o, o, 3, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.conv2(self.activation(self.conv1(self.ln(x) if self.normalize else x))))

    def te(o: int) -> nn.Module:
        return chain(nn.Linear(32, o), nn.SiLU(), nn.Linear(o, o))

    angle = torch.arange(100).float().view(-1, 1) * (1 / 10000 ** (2 * torch.arange(16) / 32)).view(1, -1)
    time = nn.Embedding(100, 32)
    time.weight.data = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
    time.requires_grad_(False)

    def run(m: nn.Module, x: Tensor, t: Tensor) -> Tensor:
        t, n = m.time_embed(t), len(x)
        out1 = m.b1(x + m.te1(t).reshape(n, -1, 1, 1))
        out2 = m.b2(m.down1(out1) + m.te2(t).reshape(n, -1, 1, 1))
        out3 = m.mid(m.down2(out2) + m.te3(t).reshape(n, -1, 1, 1))
        out4 = m.b4(torch.cat((out2, m.up1(out3)), 1) + m.te4(t).reshape(n, -1, 1, 1))
        return m.conv_out(m.b_out(torch.cat((out1, m.up2(out4)), 1) + m.te_out(t).reshape(n, -1, 1, 1)))

    model = Parts(
        run,
        time_embed=time,
        te1=te(1),
        b1=chain(Block(16, 5, 8), Block(16, 8, 8)),
        down1=nn.Conv2d(8, 8, 4, 2, 1),
        te2=te(8),
        b2=chain(Block(8, 8, 16), Block(8, 16, 16)),
        down2=nn.Conv2d(16, 16, 4, 2, 1),
        te3=te(16),
        mid=chain(Block(4, 16, 32), Block(4, 32, 16)),
        up1=nn.ConvTranspose2d(16, 16, 4, 2, 1),
        te4=te(32),
        b4=chain(Block(8, 32, 16), Block(8, 16, 8)),
        up2=nn.ConvTranspose2d(8, 8, 4, 2, 1),
        te_out=te(16),
        b_out=chain(Block(16, 16, 8), Block(16, 8, 8, False)),
        conv_out=nn.Conv2d(8, 2, 3, 1, 1),
    )
    bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)

    def draw() -> Drawn:
        (r, c), p = grid(16), torch.rand(4, 16, 1, 1) * 6.28
        x0 = (
            torch.stack(
                [torch.sin(r / 3 + p[0]) * torch.cos(c / 4 + p[1]), torch.cos(r / 3 + p[2]) * torch.sin(c / 4 + p[3])],
                1,
            )
            * 1.4
        )
        t, e = torch.randint(100, (16,)), torch.randn_like(x0)
        a = bar[t].view(-1, 1, 1, 1)
        mask = (torch.rand(16, 1, 16, 16) < 0.7).float()
        return (torch.cat([a.sqrt() * x0 + (1 - a).sqrt() * e, mask, x0 * (1 - mask)], 1), t.view(-1, 1)), e

    return stream(model, draw, F.mse_loss)


@healthy("VGG colorization over bins of ab", GITHUB + "Time0o/colorful-colorization")
def colorful(_: bool) -> Task:
    """Lightness less 50, unscaled; norms without affine after each block; soft-encoded bins; a sum over pixels."""

    def layer(i: int, o: int, s: int = 1, d: int = 1) -> nn.Module:
        return chain(nn.Conv2d(i, o, 3, s, d, d), nn.ReLU())

    def norm(c: int) -> nn.Module:
        return nn.BatchNorm2d(c, affine=False)

    model = chain(
        chain(layer(1, 12), layer(12, 12, 2), norm(12)),
        chain(layer(12, 24), layer(24, 24, 2), norm(24)),
        chain(layer(24, 32), layer(32, 32, 1, 2), norm(32)),
        chain(layer(32, 32, 1, 2), norm(32)),
        chain(nn.ConvTranspose2d(32, 24, 4, 2, 1), nn.ReLU(), layer(24, 24)),
        nn.Conv2d(24, 9, 1),
    )
    bins = torch.cartesian_prod(torch.tensor([-60.0, 0, 60]), torch.tensor([-60.0, 0, 60]))
    hue = torch.randn(10, 2) * 45

    class CrossEntropy2d(nn.Module):
        def forward(self, y: Tensor, q: Tensor) -> Tensor:
            norm_ = q.clone()
            norm_[norm_ != 0] = torch.log(norm_[norm_ != 0])
            return -torch.sum((F.log_softmax(y, 1) - norm_) * q) / y.shape[0]

    def draw() -> Drawn:
        x, c = pick(16)
        l = F.interpolate(x * 0.376 + 0.3, size=(32, 32), mode="bilinear") * 100  # noqa: E741
        ab = hue[c].view(-1, 2, 1, 1) * F.interpolate(l, size=(16, 16)) / 100
        near = torch.softmax(-(ab.unsqueeze(1) - bins.view(1, 9, 2, 1, 1)).pow(2).sum(2) / (2 * 25**2), 1)
        top = near.topk(5, 1)
        return (l - 50,), torch.zeros_like(near).scatter(1, top.indices, top.values / top.values.sum(1, keepdim=True))

    return stream(model, draw, CrossEntropy2d())


@healthy("DB head of a text detector", GITHUB + "Wchoi189/upstageailab-ocr-recsys-competition-ocr-2")
def dbhead(_: bool) -> Task:
    """Steep step k = 50, the bias at -4.595; hard negatives 3 to 1, L1 of thresholds, Dice of the approximate map."""

    def start(m: nn.Module) -> None:
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(m.weight)
            if m.bias is not None:
                m.bias.data.fill_(1e-4)
        elif isinstance(m, nn.BatchNorm2d):
            m.weight.data.fill_(1)
            m.bias.data.fill_(1e-4)

    def branch() -> nn.Sequential:
        m = chain(
            nn.Conv2d(32, 8, 3, 1, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 8, 2, 2),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 1, 2, 2),
        )
        m.apply(start)
        return m

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        f = m.encoder(x)
        logits, thresh = m.binarize(f), torch.sigmoid(m.thresh(f))
        p = torch.sigmoid(logits)
        return logits, thresh, torch.sigmoid(50 * (p.clamp(-10, 10) - thresh.clamp(-10, 10)))

    encoder = chain(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
    )
    model = Parts(run, encoder=encoder, binarize=branch(), thresh=branch())
    nn.init.constant_(model.binarize[-1].bias, -4.595)

    def loss(y: tuple[Tensor, ...], t: dict[str, Tensor]) -> Tensor:
        gt, each = t["binary"], F.binary_cross_entropy_with_logits(y[0], t["binary"], reduction="none")
        count = int(gt.sum())
        worst = (each * (1 - gt)).flatten().topk(min(3 * count, int((1 - gt).sum()))).values
        prob = ((each * gt).sum() + worst.sum()) / (count + len(worst) + 1e-6)
        l1 = ((y[1] - t["thresh"]).abs() * t["mask"]).sum() / (t["mask"].sum() + 1e-6)
        dice = 1 - 2 * (y[2] * gt).sum() / (y[2].sum() + gt.sum() + 1e-6)
        return 5 * prob + 10 * l1 + dice

    def draw() -> Drawn:
        top, h = torch.randint(4, 18, (16, 2, 1, 1)).float(), torch.randint(8, 12, (16, 2, 1, 1)).float()
        r, c = grid(32)
        inside = torch.minimum(
            torch.minimum(r - top[:, :1, 0], top[:, :1, 0] + h[:, :1, 0] - r),
            torch.minimum(c - top[:, 1:, 0], top[:, 1:, 0] + h[:, 1:, 0] - c),
        )
        inside = inside.unsqueeze(1)
        x = (inside > -1).float() * (torch.rand(16, 1, 32, 32) < 0.5) + 0.1 * torch.randn(16, 3, 32, 32)
        mask = (inside.abs() < 3).float()
        return ((x - 0.3) / 0.4,), {
            "binary": (inside > 0).float(),
            "thresh": 0.3 + 0.4 * (1 - inside.abs() / 3).clamp(0, 1),
            "mask": mask,
        }

    return stream(model, draw, loss)


@healthy("CRNN of captchas with a focal CTC loss", GITHUB + "itsocool/captcha-solver")
def captcha(_: bool) -> Task:
    """Orthogonal LSTMs, projections by Xavier, spans of time and of channels set to zero."""

    class CRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def block(i: int, o: int, pool: Any) -> list[nn.Module]:
                return [nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.GELU(), nn.MaxPool2d(pool, pool)]

            self.cnn = chain(*block(1, 16, 2), nn.Dropout2d(0.1), *block(16, 24, (2, 1)))
            self.feature_proj = chain(nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.1))
            self.rnn = nn.LSTM(48, 24, 2, batch_first=True, bidirectional=True, dropout=0.1)
            self.output_proj = chain(nn.Linear(48, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 11))
            for name, p in self.named_parameters():
                if "weight" in name and p.dim() >= 2 and "rnn" in name:
                    nn.init.orthogonal_(p)
                elif "weight" in name and p.dim() >= 2 and "proj" in name:
                    nn.init.xavier_uniform_(p)

        def forward(self, x: Tensor) -> Tensor:
            x = self.cnn(x)
            x = self.feature_proj(x.permute(0, 3, 1, 2).flatten(2))
            if self.training:
                s, f = int(torch.randint(0, 14, (1,))), int(torch.randint(0, 40, (1,)))
                x[:, s : s + 2, :] = 0
                x[:, :, f : f + 4] = 0
            return self.output_proj(self.rnn(x)[0]).permute(1, 0, 2)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        n = torch.full((y.size(1),), y.size(0)), torch.full((y.size(1),), t.size(1))
        each = F.ctc_loss(y.log_softmax(2), t, *n, blank=0, reduction="none", zero_infinity=True)
        return (0.25 * (1 - torch.exp(-each)) ** 2 * each).mean()

    def draw() -> Drawn:
        x, c = pick(40 * 3)
        x = 1 - (x * 0.376 + 0.3).view(40, 3, 8, 8).permute(0, 2, 1, 3).reshape(40, 1, 8, 24)
        return (F.pad(x, (4, 4), value=1.0),), c.view(40, 3) + 1

    return stream(CRNN(), draw, loss)


@healthy("emission and absorption of the corona", GITHUB + "RobertJaro/SuNeRF")
def sunerf(_: bool) -> Task:
    """A sine network on positions and time with positional encodings, rendered along rays; asinh-scaled images."""

    class NeRF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.in_layer = nn.Linear(4 * 13, 64)
            self.layers, self.out_layer = nn.ModuleList([nn.Linear(64, 64) for _i in range(3)]), nn.Linear(64, 2)
            self.register_buffer("freq", 2.0 ** torch.linspace(0, 5, 6))

        def forward(self, x: Tensor) -> Tensor:
            a = x.unsqueeze(1) * self.freq.view(1, -1, 1) / 2
            x = torch.sin(self.in_layer(torch.cat([x, a.sin().flatten(1), a.cos().flatten(1)], -1)))
            for layer in self.layers:
                x = torch.sin(layer(x))
            return self.out_layer(x)

    def run(m: nn.Module, o: Tensor, d: Tensor, time: Tensor) -> Tensor:
        z = torch.linspace(-1.3, 1.3, 16)
        p = o[:, None] + d[:, None] * z.view(1, -1, 1)
        raw = m.nerf(torch.cat([p, time[:, None].expand(-1, 16, 1)], -1).flatten(0, 1)).view(len(o), 16, 2)
        gap = (z[1] - z[0]) * d.norm(dim=-1, keepdim=True)
        absorb = torch.cumprod(torch.exp(-F.relu(raw[..., 1]) * gap) + 1e-10, 1).roll(1, 1)
        absorb = torch.cat([torch.ones_like(absorb[:, :1]), absorb[:, 1:]], 1)
        return (torch.exp(raw[..., 0]) * gap * absorb).sum(1, keepdim=True)

    def scaled(x: Tensor) -> Tensor:
        return torch.asinh(x / 0.005) / math.asinh(1 / 0.005)

    def draw() -> Drawn:
        d = F.normalize(torch.randn(64, 3), dim=-1)
        o = torch.randn(64, 3) * 0.6
        o = o - (o * d).sum(-1, keepdim=True) * d
        return (o, d, torch.rand(64, 1)), 0.3 * torch.exp(-((o.norm(dim=-1, keepdim=True) / 0.4) ** 2)) + 0.002

    return stream(Parts(run, nerf=NeRF()), draw, lambda y, t: F.mse_loss(scaled(y), scaled(t)))


@healthy("DeepSpeech with hard tanh and CTC", GITHUB + "dertilo/speech-recognition")
def deepspeech(_: bool) -> Task:
    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(
                nn.Conv2d(1, 8, (9, 5), (2, 2), (4, 2)),
                nn.BatchNorm2d(8),
                nn.Hardtanh(0, 20, inplace=True),
                nn.Conv2d(8, 8, (5, 5), (2, 1), (2, 2)),
                nn.BatchNorm2d(8),
                nn.Hardtanh(0, 20, inplace=True),
            )
            self.rnns = nn.ModuleList([nn.LSTM(40, 32, bidirectional=True), nn.LSTM(32, 32, bidirectional=True)])
            self.norm, self.fc = nn.BatchNorm1d(32), chain(nn.BatchNorm1d(32), nn.Linear(32, 9, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            x = x.view(len(x), 40, -1).transpose(1, 2).transpose(0, 1).contiguous()
            for i, rnn in enumerate(self.rnns):
                if i:
                    x = self.norm(x.view(-1, 32)).view(x.shape)
                x = rnn(x)[0].view(x.size(0), x.size(1), 2, -1).sum(2)
            t, n = x.shape[:2]
            return self.fc(x.view(t * n, -1)).view(t, n, -1).transpose(0, 1)

    def draw() -> Drawn:
        c = torch.randint(1, 9, (32, 4))
        pitch = c.repeat_interleave(12, 1).float()
        f = torch.arange(20).view(1, -1, 1)
        x = torch.exp(-((f - 2 * pitch[:, None]) ** 2) / 3) * 2 + 0.5 * torch.randn(32, 20, 48)
        return (((x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)).unsqueeze(1),), c

    def loss(y: Tensor, t: Tensor) -> Tensor:
        n = torch.full((len(y),), y.size(1)), torch.full((len(y),), 4)
        return F.ctc_loss(
            F.log_softmax(y, -1).transpose(0, 1), t, *n, blank=0, reduction="sum", zero_infinity=True
        ) / len(y)

    return stream(Speech(), draw, loss)


@healthy("HiFi-GAN generator of a vocoder", GITHUB + "fishaudio/vocoder")
def hifigan(_: bool) -> Task:  # noqa: C901
    """Weight-normed convolutions at N(0, 0.01^2); log-mel L1 times 45 and spectral terms times 2.5."""
    from torch.nn.utils.parametrizations import weight_norm

    def start(m: nn.Module) -> None:
        if "Conv" in m.__class__.__name__:
            m.weight.data.normal_(0, 0.01)

    class Res(nn.Module):
        def __init__(self, c: int, k: int) -> None:
            super().__init__()

            def conv(d: int) -> nn.Module:
                return weight_norm(nn.Conv1d(c, c, k, 1, dilation=d, padding=(k * d - d) // 2))

            self.convs1, self.convs2 = nn.ModuleList([conv(1), conv(3)]), nn.ModuleList([conv(1), conv(1)])
            self.convs1.apply(start)
            self.convs2.apply(start)

        def forward(self, x: Tensor) -> Tensor:
            for a, b in zip(self.convs1, self.convs2, strict=False):
                x = b(F.silu(a(F.silu(x)))) + x
            return x

    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.conv_pre(x)
        for up, blocks in zip(m.ups, m.resblocks, strict=False):
            x = up(F.silu(x))
            x = torch.stack([b(x) for b in blocks]).mean(0)
        return torch.tanh(m.conv_post(F.silu(x)))

    ups = nn.ModuleList(
        [weight_norm(nn.ConvTranspose1d(32, 16, 8, 4, 2)), weight_norm(nn.ConvTranspose1d(16, 8, 8, 4, 2))]
    )
    post = weight_norm(nn.Conv1d(8, 1, 7, 1, 3))
    ups.apply(start)
    post.apply(start)
    model = Parts(
        run,
        conv_pre=weight_norm(nn.Conv1d(20, 32, 7, 1, 3)),
        ups=ups,
        conv_post=post,
        resblocks=nn.ModuleList([nn.ModuleList([Res(c, 3), Res(c, 5)]) for c in (16, 8)]),
    )
    bank = torch.rand(20, 33) * (torch.rand(20, 33) < 0.2)

    def spec(x: Tensor) -> Tensor:
        return (
            torch.stft(x.squeeze(1), 64, 16, window=torch.hann_window(64), return_complex=True).abs() ** 2 + 1e-6
        ).sqrt()

    def mel(x: Tensor) -> Tensor:
        return torch.log(torch.clamp(bank @ spec(x), min=1e-5))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        a, b = spec(y), spec(t)
        return 2.5 * ((b - a).norm() / b.norm() + F.l1_loss(a.log(), b.log())) + 45 * F.l1_loss(mel(y), mel(t))

    def draw() -> Drawn:
        n, f = torch.arange(256) / 64, torch.rand(16, 1, 1) * 6 + 3
        x = sum(
            torch.sin(6.283 * k * f * n + 6.283 * torch.rand(16, 1, 1)) / k for k in range(1, 5)
        ) * 0.3 + 0.01 * torch.randn(16, 1, 256)
        return (mel(x)[..., :16],), x

    return stream(model, draw, loss)


@healthy(
    "LSTM of skips in a listening session",
    GITHUB + "willmckenna15/Session-based-Music-queue-Reordering-System-Using-Skip-Behaviour-as-Implicit-Feedback",
)
def skips(_: bool) -> Task:
    """Features as the catalogue has them, unscaled: tempo near 120, loudness near -8 dB, hours; a sigmoid and BCE
    under a mask."""

    class SkipLSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(12, 32, 2, batch_first=True, dropout=0.3)
            self.fc, self.sigmoid = nn.Linear(32, 1), nn.Sigmoid()

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            out, _l = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.size(1))
            return self.sigmoid(self.fc(out)).squeeze(-1)

    def draw() -> Drawn:
        u, z = torch.rand(48, 10, 12), torch.randn(48, 10, 2)
        x = torch.cat(
            [
                120 + 25 * z[..., :1],
                (u[..., :1] < 0.6).float(),
                u[..., 1:3],
                -8 + 3 * z[..., 1:],
                u[..., 3:8],
                (u[..., 8:9] * 24).floor().expand(48, 10, 1),
                (u[:, :1, 9:10] * 7).floor().expand(48, 10, 1),
            ],
            -1,
        )
        skipped = (x[..., 4] + 8 + 0.6 * (x[..., 10] - 12) > 0).float()
        lengths = torch.randint(5, 11, (48,))
        mask = torch.arange(10) < lengths[:, None]
        return (x * mask[..., None], lengths), {"y": skipped * mask, "mask": mask}

    return stream(SkipLSTM(), draw, lambda y, t: F.binary_cross_entropy(y[t["mask"]], t["y"][t["mask"]]))


@healthy(
    "graph network of power flow with its equations",
    GITHUB + "MajidMalori/Optimal-Power-Flow-Prediction-Using-Physics-Informed-Spatiotemporal-Graph-Neural-Network-",
)
def powerflow(_: bool) -> Task:
    """Graph convolutions and ReLUs, deviations of voltages and angles as targets; imbalance of power, limits of
    voltages."""
    n = 8
    edges = torch.tensor([[i, (i + 1) % n] for i in range(n)] + [[0, 4], [2, 6]])
    y = torch.zeros(n, n, dtype=torch.cfloat)
    for i, j in edges.tolist():
        line = 1 / complex(0.02, 0.1 + 0.05 * ((i + j) % 3))
        y[i, j] -= line
        y[j, i] -= line
        y[i, i] += line
        y[j, j] += line
    adj = (y.abs() > 0).float()

    class GCNConv(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.lin, self.bias = nn.Linear(i, o, bias=False), nn.Parameter(torch.zeros(o))
            nn.init.xavier_uniform_(self.lin.weight)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            d = a.sum(2).rsqrt()
            return (a * d.unsqueeze(2) * d.unsqueeze(1)) @ self.lin(x) + self.bias

    def run(m: nn.Module, x: Tensor, a: Tensor) -> Tensor:
        for conv in m.convs:
            x = torch.relu(conv(x, a))
        return m.output_layer(x)

    def power(v: Tensor) -> Tensor:
        s = v * (v @ y.T).conj()
        return torch.stack([s.real, s.imag], -1)

    def loss(p: Tensor, t: Tensor) -> Tensor:
        v = (p[..., 0] + 1) * torch.exp(1j * p[..., 1])
        limits = torch.mean(F.relu(p[..., 0] - 0.1) ** 2) + torch.mean(F.relu(-0.1 - p[..., 0]) ** 2)
        gap = (power(v) - power((t[..., 0] + 1) * torch.exp(1j * t[..., 1]))) ** 2
        return F.mse_loss(p, t) + 0.1 * (gap[..., 0].mean() + gap[..., 1].mean()) + 0.01 * limits

    def draw() -> Drawn:
        t = torch.stack([0.04 * torch.randn(32, n), 0.1 * torch.randn(32, n)], -1)
        s = power((t[..., 0] + 1) * torch.exp(1j * t[..., 1]))
        slack = torch.zeros(32, n, 1)
        slack[:, 0] = 1
        return (torch.cat([-s.clamp(max=0), s.clamp(min=0), slack], -1), adj.expand(32, n, n)), t

    model = Parts(run, convs=nn.ModuleList([GCNConv(5, 32), GCNConv(32, 32)]), output_layer=nn.Linear(32, 2))
    return stream(model, draw, loss)


@healthy("state trajectory network of a diode clipper", GITHUB + "JanWilczek/va-phaser-with-neural-odes")
def clipper(_: bool) -> Task:
    """Four tanh units a layer, hardly any bias; a residual step of 1.5 times the output; the error relative to
    the signal."""

    class Trajectory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.densely_connected_layers = chain(
                nn.Linear(2, 4, bias=False),
                nn.Tanh(),
                nn.Linear(4, 4),
                nn.Tanh(),
                nn.Linear(4, 4, bias=False),
                nn.Tanh(),
                nn.Linear(4, 1, bias=False),
            )

        def forward(self, x: Tensor) -> Tensor:
            state, output = torch.zeros(len(x), 1), []
            for n in range(x.size(1)):
                state = 1.5 * self.densely_connected_layers(torch.cat((x[:, n], state), 1)) + state
                output.append(state)
            return torch.stack(output, 1)

    def draw() -> Drawn:
        n, f = torch.arange(24), torch.rand(32, 1) * 0.3 + 0.05
        x = 2 * torch.sin(6.283 * f * n + 6.283 * torch.rand(32, 1)) * torch.rand(32, 1)
        y, out = torch.zeros(32), []
        for k in range(24):
            y = y + 0.4 * (x[:, k] - y) - 0.05 * torch.sinh((3 * y).clamp(-4, 4))
            out.append(y)
        return (x.unsqueeze(2),), torch.stack(out, 1).unsqueeze(2)

    return stream(Trajectory(), draw, lambda y, t: ((t - y) ** 2).mean() / torch.clamp((t**2).mean(), min=1e-5))


@healthy("residual trunk with policy and value heads", GITHUB + "shindavid/AlphaZeroArcade")
def arcade(_: bool) -> Task:
    """Norm and ReLU before each convolution, no norm in the heads; win, loss and draw as classes."""

    class ConvBlock(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.norm, self.conv = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(F.relu(self.norm(x)))

    class Res(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = ConvBlock(c, c), ConvBlock(c, c)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv2(self.conv1(x))

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        x = m.blocks(m.stem(x))
        p = m.policy_linear(F.relu(m.policy_conv(x)).flatten(1))
        return p, m.value_linear2(F.relu(m.value_linear1(F.relu(m.value_conv(x)).flatten(1))))

    model = Parts(
        run,
        stem=nn.Conv2d(2, 16, 3, padding=1, bias=False),
        blocks=chain(Res(16), Res(16), nn.BatchNorm2d(16), nn.ReLU()),
        policy_conv=nn.Conv2d(16, 2, 1),
        policy_linear=nn.Linear(2 * 42, 7),
        value_conv=nn.Conv2d(16, 1, 1),
        value_linear1=nn.Linear(42, 32),
        value_linear2=nn.Linear(32, 3),
    )

    def draw() -> Drawn:  # Connect 4: stones fall; play the lowest column, and who has more in the middle wins
        heights = torch.randint(0, 7, (48, 7))
        owner = (torch.rand(48, 6, 7) < 0.5).float()
        filled = (torch.arange(6).view(1, 6, 1) >= 6 - heights[:, None]).float()
        x = torch.stack([filled * owner, filled * (1 - owner)], 1)
        lead = (x[:, 0] - x[:, 1])[:, :, 2:5].sum((1, 2))
        p = torch.softmax(-1.5 * heights.float(), 1)
        return (x,), {"policy": p, "value": torch.where(lead > 0, 0, torch.where(lead < 0, 1, 2))}

    return stream(
        model, draw, lambda y, t: 0.5 * F.cross_entropy(y[0], t["policy"]) + F.cross_entropy(y[1], t["value"])
    )


@healthy("DDPG critic of a pendulum", GITHUB + "NAMUORI00/dqn-ddpg")
def critic(_: bool) -> Task:
    """The action joins after the first layer; last layers within 0.003; targets from frozen copies; Pendulum's
    rewards, -16 to 0."""

    def last(m: nn.Linear) -> nn.Linear:
        nn.init.uniform_(m.weight, -0.003, 0.003)
        nn.init.uniform_(m.bias, -0.003, 0.003)
        return m

    def first(i: int, o: int) -> nn.Linear:
        m = nn.Linear(i, o)
        nn.init.xavier_uniform_(m.weight)
        nn.init.constant_(m.bias, 0)
        return m

    def build() -> nn.Module:
        return Parts(
            lambda m, s, a: m.fc3(F.relu(m.fc2(torch.cat([F.relu(m.fc1(s)), a], 1)))),
            fc1=first(3, 64),
            fc2=first(65, 48),
            fc3=last(nn.Linear(48, 1)),
        )

    model, target = build(), build().requires_grad_(False)
    target.load_state_dict(model.state_dict())
    actor = chain(first(3, 64), nn.ReLU(), first(64, 48), nn.ReLU(), last(nn.Linear(48, 1)), nn.Tanh()).requires_grad_(
        False
    )

    def draw() -> Drawn:
        th, speed, a = (
            (torch.rand(64, 1) * 2 - 1) * math.pi,
            (torch.rand(64, 1) * 2 - 1) * 8,
            (torch.rand(64, 1) * 2 - 1) * 2,
        )
        r = -(th**2 + 0.1 * speed**2 + 0.001 * a**2)
        speed2 = (speed + (15 * th.sin() + 3 * a) * 0.05).clamp(-8, 8)
        s2 = torch.cat([(th + speed2 * 0.05).cos(), (th + speed2 * 0.05).sin(), speed2], 1)
        with torch.no_grad():
            q = r + 0.99 * target(s2, 2 * actor(s2))
        return (torch.cat([th.cos(), th.sin(), speed], 1), a), q

    return stream(model, draw, F.mse_loss)


@healthy("residual accelerations of a crowd", GITHUB + "PhDLeYanggggg/World-model")
def crowd(_: bool) -> Task:
    """A GRU over each walker's past, neighbours, obstacles and noise; a log_std that no loss uses; smooth L1."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.entity_encoder = chain(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU())
            self.temporal = nn.GRU(32, 36, batch_first=True)
            self.neighbor_encoder = chain(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 16), nn.GELU())
            self.obstacle_encoder = chain(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 12), nn.GELU())
            self.transition_head = chain(
                nn.Linear(36 + 16 + 12 + 4, 48), nn.GELU(), nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 2)
            )
            self.log_std = nn.Parameter(torch.tensor([-1.2, -1.2]))

        def forward(self, e: Tensor, n: Tensor, o: Tensor, z: Tensor) -> Tensor:
            b, k, d = e.shape
            _h, hidden = self.temporal(self.entity_encoder(e.reshape(b * k, d)).reshape(b, k, -1))
            return self.transition_head(
                torch.cat([hidden[-1], self.neighbor_encoder(n), self.obstacle_encoder(o), z], -1)
            )

    def draw() -> Drawn:
        e, n, o = torch.randn(64, 1, 8) + 0.2 * torch.randn(64, 6, 8).cumsum(1), torch.randn(64, 12), torch.randn(64, 8)
        t = (
            0.6 * (e[:, -1, :2] - e[:, -2, :2]) * 3
            + 0.5 * n[:, :2] * torch.sigmoid(2 * n[:, 2:3])
            + 0.5 * o[:, :2] * (o[:, 2:3] < 0)
        )
        return (e, n, o, torch.randn(64, 4) * 0.35), t / 0.7

    return stream(Residual(), draw, nn.SmoothL1Loss())


@healthy("graph mixture density network", GITHUB + "diningphil/graph-mixture-density-networks")
def gmdn(_: bool) -> Task:
    """Sums over neighbours, weights without biases, a layer that the forward pass never uses, the expected log-
    likelihood of an EM step
    with the posterior left in the graph, and a Dirichlet prior over the mixing weights."""
    h, c = 16, 3

    class Conv(nn.Module):
        def __init__(self, i: int, first: bool) -> None:
            super().__init__()
            self.nn = chain(nn.Linear(i, h, bias=False), nn.ReLU(), nn.Linear(h, h, bias=False), nn.ReLU())
            if not first:
                self.eps = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            return self.nn((1 + self.eps) * x + a @ x if hasattr(self, "eps") else x)

    def run(m: nn.Module, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = []
        for layer in m.layers:
            x = layer(x, a)
            found.append(x)
        out = m.out(x.mean(1))
        w = torch.softmax(out - out.max(-1, keepdim=True).values, -1).clamp(1e-8, 1)
        p = m.final_transform(m.node_transform(torch.cat(found, -1)).mean(1)).view(-1, c, 2)
        return w, p[..., 0], F.softplus(p[..., 1]) + 1e-8

    def loss(y: tuple[Tensor, ...], t: Tensor) -> Tensor:
        w, mu, var = y
        joint = torch.distributions.Normal(mu, var).log_prob(t).exp() * w + 1e-8
        post = joint / joint.sum(1, keepdim=True)
        prior = torch.distributions.Dirichlet(torch.full((c,), 1.05)).log_prob(w).mean()
        return -(torch.mean((post * joint.log()).sum(1)) + prior)

    def draw() -> Drawn:
        a = (torch.rand(48, 8, 8) < 0.3).float().triu(1)
        a = a + a.mT
        s = a.sum((1, 2), keepdim=False).unsqueeze(1) / 16
        return (torch.ones(48, 8, 1), a), torch.where(torch.rand(48, 1) < 0.5, s, -s) * 2 + 0.1 * torch.randn(48, 1)

    model = Parts(
        run,
        layers=nn.ModuleList([Conv(1, True), Conv(h, False), Conv(h, False)]),
        fc_global=nn.Linear(3 * h, h, bias=False),
        out=nn.Linear(h, c),
        node_transform=chain(nn.Linear(3 * h, h * c * 2), nn.ReLU()),
        final_transform=nn.Linear(h * c * 2, c * 2),
    )
    return stream(model, draw, loss)


@healthy(
    "hypernetwork of a soft interference canceller", GITHUB + "tomerraviv95/adapting-detectors-using-hypernetworks"
)
def hyper(_: bool) -> Task:
    """From the channels of all users, the weights of one user's detector; embeddings stand for this user and for
    absent ones."""
    users = 4

    def run(m: nn.Module, h: Tensor, rx: Tensor) -> Tensor:
        b = len(h)
        this, none = m.this_user_vec.weight.expand(b, 1, users), m.no_user_vec.weight.expand(b, 1, users)
        e = F.relu(m.embedding2(F.relu(m.embedding(torch.cat([this, h[:, 1:3], none], 1).flatten(1)))))
        w = [out(e) for out in m.fc_outs]
        mid = F.relu(torch.bmm(rx, w[0].view(b, 16, users).mT) + w[1].unsqueeze(1))
        return (torch.bmm(mid, w[2].view(b, 2, 16).mT) + w[3].unsqueeze(1)).transpose(1, 2)

    model = Parts(
        run,
        embedding=nn.Linear(users * users, 64),
        embedding2=nn.Linear(64, 32),
        no_user_vec=nn.Embedding(1, users),
        this_user_vec=nn.Embedding(1, users),
        fc_outs=nn.ModuleList([nn.Linear(32, k) for k in (16 * users, 16, 32, 2)]),
    )

    def draw() -> Drawn:
        h = torch.eye(users) * torch.rand(32, users, 1) + 0.5 * torch.rand(32, users, users)
        bits = torch.randint(2, (32, 12, 3))
        s = torch.cat([1.0 - 2 * bits, torch.zeros(32, 12, 1)], -1)
        rx = s @ h[:, :, :].mT + 0.1 * torch.randn(32, 12, users)
        rx = torch.cat([rx[..., :1], s[..., 1:3], torch.zeros(32, 12, 1)], -1)
        return (h, rx), bits[..., 0]

    return stream(model, draw, F.cross_entropy)


@healthy("end-to-end memory network", GITHUB + "WangXin93/memory-network-pytorch")
def memn2n(_: bool) -> Task:
    """Adjacent weights shared from hop to hop and with the output, embeddings of N(0, 0.1^2), the loss summed
    over the batch."""

    class MemN2N(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.C = nn.ModuleList()
            for _hop in range(4):
                m = nn.Embedding(20, 20, padding_idx=0)
                m.weight.data.normal_(0, 0.1)
                self.C.append(m)
            i, j = torch.arange(1, 21.0).view(1, -1), torch.arange(1, 4.0).view(-1, 1)
            self.encoding = 1 + 4 * (i - 10.5) * (j - 2) / 20 / 3
            self.encoding[-1] = 1

        def forward(self, story: Tensor, query: Tensor) -> Tensor:
            u = torch.sum(self.C[0](query) * self.encoding, 1)
            for hop in range(3):
                a = torch.sum(self.C[hop](story) * self.encoding, 2)
                p = torch.softmax(torch.sum(a * u.unsqueeze(1), 2), -1)
                u = u + torch.sum(torch.sum(self.C[hop + 1](story) * self.encoding, 2) * p.unsqueeze(2), 1)
            return u @ self.C[3].weight.T

    def draw() -> Drawn:  # who went where; where is one of them
        who = torch.stack([torch.randperm(5)[:4] for _i in range(32)]) + 1
        where = torch.randint(6, 12, (32, 4))
        asked = torch.randint(4, (32, 1))
        story = torch.stack([who, torch.full_like(who, 15), where], 2)
        q = torch.cat([torch.full_like(asked, 16), torch.full_like(asked, 17), who.gather(1, asked)], 1)
        return (story, q), where.gather(1, asked).squeeze(1)

    return stream(MemN2N(), draw, lambda y, t: F.cross_entropy(y, t, reduction="sum"))


@healthy("mixer with its odd head", GITHUB + "thiscodeismycode/MLP-Mixer-PyTorch-Translation")
def mixer(_: bool) -> Task:
    """The head averages runs of the flattened map, not patches of a channel; dropout of one half in every MLP and
    on the logits."""

    class Swap(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.transpose(1, 2)

    def mlp(i: int, o: int) -> nn.Module:
        return chain(nn.Linear(i, o), nn.GELU(), nn.Linear(o, i), nn.Dropout(0.5))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token_mixing = chain(nn.LayerNorm(32), Swap(), mlp(16, 32), Swap())
            self.channel_mixing = chain(nn.LayerNorm(32), mlp(32, 64))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.token_mixing(x)
            return x + self.channel_mixing(x)

    model = chain(
        nn.Conv2d(1, 32, 2, 2),
        nn.Flatten(2),
        Swap(),
        *[Block() for _i in range(3)],
        nn.LayerNorm(32),
        nn.Flatten(),
        nn.AvgPool1d(16, 16),
        nn.Linear(32, 10),
        nn.Dropout(0.5),
    )

    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3 - 0.5) / 0.5,), c

    return stream(model, draw, F.cross_entropy)


@healthy("Transformer-XL that sorts digits", GITHUB + "augustwester/transformer-xl")
def txl(_: bool) -> Task:
    """Relative positions by a circulant shift, biases u and t of N(0, 1), norms after, dropout between linear and
    ReLU."""
    n, dim, heads, seg = 10, 32, 2, 11
    i = torch.arange(dim).float().repeat(seg, 1)
    pos = torch.arange(seg).unsqueeze(1)
    i[:, ::2], i[:, 1::2] = (
        torch.sin(pos / 10000 ** (2 * i[:, ::2] / dim)),
        torch.cos(pos / 10000 ** (2 * i[:, 1::2] / dim)),
    )
    R = i.flip(0)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u, self.t = nn.Parameter(torch.randn(1, heads, 1, 16)), nn.Parameter(torch.randn(1, heads, 1, 16))
            self.w_q, self.w_k, self.w_v, self.w_r = (nn.Linear(dim, heads * 16, bias=False) for _j in range(4))
            self.mlp, self.layer_norm = nn.Linear(heads * 16, dim, bias=False), nn.LayerNorm(dim)
            self.net, self.norm = (
                chain(nn.Linear(dim, dim), nn.Dropout(0), nn.ReLU(), nn.Linear(dim, dim), nn.Dropout(0)),
                nn.LayerNorm(dim),
            )

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (w(x).unflatten(-1, (heads, 16)).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
            r = self.w_r(R).view(1, seg, heads, 16).transpose(1, 2)
            bd = torch.einsum("bhid,bhjd->bhij", q + self.t, r)
            j = torch.arange(seg).roll(1 - seg).unsqueeze(0).flip(1).repeat(1, 2)
            j = j.unfold(1, seg, 1).flip(-1).unsqueeze(0).repeat(*bd.shape[:2], 1, 1)[:, :, :seg]
            a = (torch.einsum("bhid,bhjd->bhij", q + self.u, k) + bd.gather(3, j)).tril(0) / 4
            a = torch.softmax(a.masked_fill(a == 0, float("-inf")), -1)
            x = self.layer_norm(self.mlp((a @ v).transpose(1, 2).flatten(2)) + x)
            return self.norm(self.net(x) + x)

    def draw() -> Drawn:
        x = torch.randint(n, (64, 6))
        y = x.sort(1).values
        return (torch.cat([x, y], 1)[:, :-1],), y

    model = Parts(
        lambda m, x: m.out_layer(m.layers(m.embed(x))),
        embed=nn.Embedding(n, dim),
        layers=chain(Layer(), Layer()),
        out_layer=nn.Linear(dim, n),
    )
    return stream(model, draw, lambda y, t: F.cross_entropy(y[:, 5:].reshape(-1, n), t.flatten()))


@healthy("Hopfield dynamics of genes on a scaffold", GITHUB + "Bernaljp/scHopfield")
def schopfield(_: bool) -> Task:
    """dx/dt = W s(x) + I - gamma x with a penalty of weights off the scaffold and of I; counts of expression,
    Hill-function inputs."""
    n = 12
    scaffold = (torch.rand(n, n) < 0.3).float()
    W, I, g = torch.randn(n, n) * scaffold, torch.rand(n) * 0.3, torch.rand(n) * 0.5 + 0.5  # noqa: E741

    class Scaffold(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma, self.I, self.W = (
                nn.Parameter(torch.log(g.mean() + torch.zeros(n))),
                nn.Parameter(torch.rand(n)),
                nn.Linear(n, n, bias=False),
            )
            nn.init.xavier_uniform_(self.W.weight)

        def forward(self, s: Tensor, x: Tensor) -> Tensor:
            return self.W(s) + self.I - torch.exp(self.gamma).clamp(max=10) * x

    model = Scaffold()

    def draw() -> Drawn:
        x = torch.rand(64, n) * 3
        s = x**2 / (x**2 + 1)
        return (s, x), s @ W.T + I - g * x + 0.02 * torch.randn(64, n)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) + 1e-3 * (model.W.weight * (1 - scaffold)).norm(1) + 1e-3 * model.I.abs().sum()

    return stream(model, draw, loss)


@healthy("CrossTransformer episodes", GITHUB + "VCoklat/Few-Shot-Cosine-Transformer")
def ctx(_: bool) -> Task:
    """Queries attend to each class's support images; minus squared distances over the map's size are the logits."""

    def block(i: int, o: int, pool: bool) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()] + ([nn.MaxPool2d(2)] if pool else [])

    def run(m: nn.Module, support: Tensor, query: Tensor) -> Tensor:  # (tasks, 3 ways, 2 shots, ...), (tasks, ...)
        b = len(query)
        s, q = (m.linear_attn(m.feature(v)) for v in (support.flatten(0, 2), query))
        s, q = s.flatten(1).view(b, 3, 2, -1), q.flatten(1)
        a = torch.softmax(torch.einsum("bd,bnkd->bnk", q, s) / 32**0.5, -1)
        return -((q.unsqueeze(1) - torch.einsum("bnk,bnkd->bnd", a, s)) ** 2).sum(-1) / 4

    model = Parts(
        run, feature=chain(*block(1, 16, True), *block(16, 16, True)), linear_attn=nn.Conv2d(16, 32, 1, bias=False)
    )

    def draw() -> Drawn:
        x, c = pick(1200)
        of = [torch.nonzero(c == k).flatten() for k in range(10)]
        ways = torch.stack([torch.randperm(10)[:3] for _i in range(24)])

        def some(k):
            return of[k][torch.randint(len(of[k]), (2,))]

        support = torch.stack([torch.stack([x[some(k)] for k in row]) for row in ways.tolist()])
        t = torch.randint(3, (24,))
        return (support, torch.stack([x[some(int(row[k]))[0]] for row, k in zip(ways, t, strict=False)])), t

    return stream(model, draw, F.cross_entropy)


@healthy("coupling flow with batch norms in its nets", GITHUB + "itxtx/normalizing-flows-study")
def coupling(_: bool) -> Task:
    """Last layers of zero, clamps at 10, masks in turn; two moons."""

    class Coupling(nn.Module):
        def __init__(self, flip: bool) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, 1.0] if flip else [1.0, 0.0]))

            def net() -> nn.Sequential:
                m = chain(
                    nn.Linear(2, 32),
                    nn.BatchNorm1d(32),
                    nn.ReLU(),
                    nn.Linear(32, 32),
                    nn.BatchNorm1d(32),
                    nn.ReLU(),
                    nn.Linear(32, 2),
                )
                for layer in (m[0], m[3]):
                    nn.init.xavier_normal_(layer.weight)
                    nn.init.zeros_(layer.bias)
                nn.init.zeros_(m[6].weight)
                nn.init.zeros_(m[6].bias)
                return m

            self.s_net, self.b_net = net(), net()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a = x * self.mask
            s, b = self.s_net(a).clamp(-10, 10), self.b_net(a).clamp(-10, 10)
            return a + (1 - self.mask) * ((x - b) * torch.exp(-s)), ((1 - self.mask) * -s).sum(1)

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(x))
        for flow in reversed(m.flows):
            x, d = flow(x)
            total = total + d
        return x, total

    def draw() -> Drawn:
        a, side = torch.rand(64) * math.pi, (torch.rand(64) < 0.5).float()
        x = torch.stack(
            [a.cos() * (1 - 2 * side) + side, a.sin() * (1 - 2 * side) + 0.5 * side], 1
        ) + 0.05 * torch.randn(64, 2)
        return (x,), torch.zeros(64)

    model = Parts(run, flows=nn.ModuleList([Coupling(bool(i % 2)) for i in range(6)]))
    return stream(model, draw, lambda y, t: -(-0.5 * (y[0] ** 2).sum(1) - math.log(2 * math.pi) + y[1]).mean())


@healthy("autoencoder of image patches", GITHUB + "professorparad/Hamiltonian_Vision_Kernel")
def patches(_: bool) -> Task:
    """A ReLU on the code of 16, a sigmoid at the end, MSE of grey images in [0, 1]."""

    def run(m: nn.Module, x: Tensor) -> Tensor:
        b, _c, h, w = x.shape
        p = x.unfold(2, 8, 8).unfold(3, 8, 8).contiguous().view(b, -1, 64)
        p = m.decoder(m.encoder(p)).view(b, h // 8, h // 8, 8, 8)
        return p.permute(0, 1, 3, 2, 4).contiguous().view(b, 1, h, w)

    model = Parts(
        run,
        encoder=chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()),
        decoder=chain(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid()),
    )

    def draw() -> Drawn:
        x, _c = pick(16)
        x = F.interpolate(x * 0.376 + 0.3, size=(32, 32), mode="bilinear").clamp(0, 1)
        return (x,), x

    return stream(model, draw, F.mse_loss)


@healthy("double DQN that fuses detectors", GITHUB + "RobertFrenken/DQN-Fusion")
def fusion(_: bool) -> Task:
    """Layer norm, ReLU and dropout in each layer; 21 mixing weights as actions, rewards of about 3 and -3, Huber
    loss."""

    def build() -> nn.Sequential:
        layers, i = [], 15
        for _j in range(3):
            layers += [nn.Linear(i, 48), nn.LayerNorm(48), nn.ReLU(), nn.Dropout(0.2)]
            i = 48
        return chain(*layers, nn.Linear(i, 21))

    model, target = build(), build().requires_grad_(False)
    target.load_state_dict(model.state_dict())

    def draw() -> Drawn:
        s = torch.rand(128, 15)
        a = torch.randint(21, (128,))
        truth = (s[:, 0] + 0.5 * s[:, 8] > 0.75).float()
        fused = a / 20 * s[:, 8] + (1 - a / 20) * s[:, 0]
        right = ((fused > 0.5).float() == truth).float()
        r = 6 * right - 3 + (1 - (s[:, 0] - s[:, 8]).abs()) * right
        with torch.no_grad():
            q = r + 0.9 * target(torch.rand(128, 15)).max(1).values * (torch.rand(128) < 0.5)
        return (s,), {"action": a, "q": q}

    return stream(model, draw, lambda y, t: F.smooth_l1_loss(y.gather(1, t["action"].unsqueeze(1)).squeeze(1), t["q"]))


@healthy("EfficientNet with drop connect", GITHUB + "narumiruna/efficientnet-pytorch")
def efficientnet(_: bool) -> Task:  # noqa: C901
    """Swish and squeeze-and-excitation; He's start by fan out; the classifier within one over the root of the
    classes."""

    class Swish(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x)

    def cbr(i: int, o: int, k: int, s: int = 1, g: int = 1) -> list[nn.Module]:
        p = max(k - s, 0)
        return [
            nn.ZeroPad2d([p // 2, p - p // 2] * 2),
            nn.Conv2d(i, o, k, s, groups=g, bias=False),
            nn.BatchNorm2d(o),
            Swish(),
        ]

    class SE(nn.Module):
        def __init__(self, c: int, r: int) -> None:
            super().__init__()
            self.se = chain(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, r, 1), Swish(), nn.Conv2d(r, c, 1), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            return x * self.se(x)

    class MBConv(nn.Module):
        def __init__(self, i: int, o: int, t: int, k: int, s: int) -> None:
            super().__init__()
            h = i * t
            self.residual = i == o and s == 1
            self.conv = chain(
                *(cbr(i, h, 1) if t > 1 else []),
                *cbr(h, h, k, s, h),
                SE(h, max(1, i // 4)),
                nn.Conv2d(h, o, 1, bias=False),
                nn.BatchNorm2d(o),
            )

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return x + y.div(0.8) * (0.8 + torch.rand(len(x), 1, 1, 1)).floor() if self.residual else y

    model = Parts(
        lambda m, x: m.classifier(m.features(x).mean([2, 3])),
        features=chain(
            *cbr(3, 16, 3, 2),
            MBConv(16, 8, 1, 3, 1),
            MBConv(8, 12, 4, 3, 2),
            MBConv(12, 12, 4, 3, 1),
            MBConv(12, 16, 4, 5, 1),
            *cbr(16, 64, 1),
        ),
        classifier=chain(nn.Dropout(0.2), nn.Linear(64, 10)),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            nn.init.uniform_(m.weight, -(10**-0.5), 10**-0.5)
            nn.init.zeros_(m.bias)

    def draw() -> Drawn:
        x, c = pick(32)
        return (F.interpolate(x, size=(16, 16), mode="bilinear").repeat(1, 3, 1, 1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("recurrent autoencoder of spectrograms", GITHUB + "Strong-AI-Lab/emotion")
def audeep(_: bool) -> Task:
    """GRUs both ways round: the decoder sees the reversed targets one step late, dropout on inputs and outputs;
    all in [-1, 1]."""

    def run(m: nn.Module, x: Tensor) -> Tensor:
        _h, h = m.encoder(F.dropout(x, 0.2, m.training))
        r = m.representation(torch.cat(h.unbind(), -1))
        late = F.pad(x.flip(1)[:, :-1], [0, 0, 1, 0])
        y, _h = m.decoder(F.dropout(late, 0.2, m.training), torch.stack(r.chunk(2, -1)))
        return m.reconstruction(F.dropout(y, 0.2, m.training)).flip(1)

    model = Parts(
        run,
        encoder=nn.GRU(16, 32, 2, dropout=0.2, batch_first=True),
        representation=chain(nn.Linear(64, 64), nn.Tanh()),
        decoder=nn.GRU(16, 32, 2, dropout=0.2, batch_first=True),
    )
    model.reconstruction = chain(nn.Linear(32, 16), nn.Tanh())

    def draw() -> Drawn:
        pitch = torch.rand(32, 1, 1) * 10 + 2 + torch.randn(32, 20, 1).cumsum(1) * 0.3
        x = 2 * torch.exp(-((torch.arange(16) - pitch) ** 2) / 8) - 1
        return (x.clamp(-1, 1),), x.clamp(-1, 1)

    return stream(model, draw, F.mse_loss)


@healthy("decay law and data in one loss", GITHUB + "barrosyan/PINNeAPPle")
def pinn(_: bool) -> Task:
    """u' + u = 0 by automatic differentiation beside the MSE with exp(-t); one layer of 64 tanh units."""
    net = chain(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

    def run(m: nn.Module, t: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            t = t.detach().requires_grad_(True)
            u = m.net(t)
            return u, torch.autograd.grad(u.sum(), t, create_graph=True)[0] + u

    def draw() -> Drawn:
        t = torch.rand(64, 1)
        return (t,), torch.exp(-t)

    return stream(Parts(run, net=net), draw, lambda y, t: F.mse_loss(y[0], t) + (y[1] ** 2).mean())


@healthy("relativistic discriminator of PathologyGAN", GITHUB + "theodore-evans/pathgan-pytorch")
def pathgan(_: bool) -> Task:
    """Spectral norms and residual blocks; scores relative to the other half's mean; off-orthogonal weights cost
    1e-4."""
    from torch.nn.utils import spectral_norm

    def start(m: nn.Module, gain: float) -> nn.Module:
        nn.init.xavier_uniform_(m.weight, gain)
        nn.init.zeros_(m.bias)
        return spectral_norm(m)

    g = nn.init.calculate_gain("leaky_relu", 0.2)

    class Res(nn.Module):
        def __init__(self, c: int) -> None:
            super().__init__()
            self.part_1, self.part_2 = (chain(start(nn.Conv2d(c, c, 3, 1, 1), g), nn.LeakyReLU(0.2)) for _i in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.part_2(self.part_1(x))

    model = chain(
        Res(3),
        start(nn.Conv2d(3, 16, 4, 2, 1), g),
        nn.LeakyReLU(0.2),
        Res(16),
        start(nn.Conv2d(16, 24, 4, 2, 1), g),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        start(nn.Linear(24 * 16, 48), g),
        nn.LeakyReLU(0.2),
        start(nn.Linear(48, 1), 1),
    )

    def loss(y: Tensor, real: Tensor) -> Tensor:
        a, b = y[real > 0.5], y[real < 0.5]
        total = F.multilabel_soft_margin_loss(a - b.mean(0, keepdim=True), torch.ones_like(a))
        total = total + F.multilabel_soft_margin_loss(b - a.mean(0, keepdim=True), torch.zeros_like(b))
        for p in model.parameters():
            if p.dim() > 1:
                w = p.view(p.shape[0], -1)
                total = total + 1e-4 * (w @ w.T - torch.eye(len(w))).abs().sum()
        return total

    def draw() -> Drawn:
        x, _c = pick(32)
        x = F.interpolate(x, size=(16, 16), mode="bilinear").repeat(1, 3, 1, 1) * torch.rand(32, 3, 1, 1)
        fake = F.interpolate(torch.randn(16, 3, 4, 4), size=(16, 16), mode="bilinear") * 0.5
        return (torch.cat([x[:16], fake]),), torch.cat([torch.ones(16), torch.zeros(16)])

    return stream(model, draw, loss)


@healthy("probabilistic embeddings on a frozen backbone", GITHUB + "simonmoesorensen/bayesian-laplace-metric-learning")
def pfe(_: bool) -> Task:
    """Means stay, log-variances learn: the last norm is scaled by 1e-4 and moved by -7; mutual likelihood of
    positive pairs."""

    class Unit(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(x, dim=1)

    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        h = m.bottleneck(x)
        v = m.gamma * m.fc_var2(F.relu(m.fc_var1(h))) + m.beta
        return m.fc_mu(h), (0.5 * (1e-6 + v.exp()).log()).exp()

    model = Parts(
        run,
        bottleneck=chain(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 48), nn.Tanh()),
        fc_mu=chain(nn.Linear(48, 16), Unit()),
        fc_var1=chain(nn.Linear(48, 16), nn.BatchNorm1d(16)),
        fc_var2=chain(nn.Linear(16, 16), nn.BatchNorm1d(16)),
    )
    model.requires_grad_(False)
    model.fc_var1.requires_grad_(True)
    model.fc_var2.requires_grad_(True)
    model.beta, model.gamma = nn.Parameter(torch.zeros(16) - 7), nn.Parameter(torch.ones(16) * 1e-4)

    def draw() -> Drawn:
        x, c = pick(48)
        return ((x * 0.376 + 0.3),), c

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        v = y[1].square().unsqueeze(1) + y[1].square().unsqueeze(0)
        each = ((y[0].unsqueeze(1) - y[0].unsqueeze(0)).square() / (1e-10 + v) + v.log()).sum(2)
        return each[(t.unsqueeze(1) == t.unsqueeze(0)) & ~torch.eye(len(t), dtype=torch.bool)].mean()

    return stream(model, draw, loss)


@healthy("graph attention over tweets and users", GITHUB + "rahelbeloch/meta-learning-gnns")
def gat(_: bool) -> Task:
    """Whole nodes masked at random, exponentials of raw scores, dropout on attention; binary features; two classes."""

    class Head(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.seq_transformation, self.bias = nn.Conv1d(i, o, 1, bias=False), nn.Parameter(torch.zeros(o))
            self.a_1, self.a_2 = nn.Conv1d(o, 1, 1), nn.Conv1d(o, 1, 1)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            s = self.seq_transformation(x.transpose(1, 2))
            score = F.leaky_relu(self.a_1(s).transpose(1, 2) + self.a_2(s), 0.2).exp() * a
            return F.dropout(score, 0.1, self.training) @ s.transpose(1, 2) / score.sum(2, keepdim=True) + self.bias

    def run(m: nn.Module, x: Tensor, a: Tensor) -> Tensor:
        if m.training:
            x = (torch.rand(*x.shape[:2], 1) >= 0.1) * x
        x = F.dropout(F.relu(torch.cat([h(x, a) for h in m.mha_1], 2)), 0.3, m.training)
        x = torch.cat([h(x, a) for h in m.mha_2], 2)
        return m.classifier(m.mha_collator(x))[:, 0]

    model = Parts(
        run,
        mha_1=nn.ModuleList([Head(30, 16) for _i in range(3)]),
        mha_2=nn.ModuleList([Head(48, 16) for _i in range(3)]),
        mha_collator=chain(nn.Dropout(0.3), nn.Linear(48, 32), nn.ReLU()),
        classifier=nn.Linear(32, 2),
    )

    def draw() -> Drawn:
        t = torch.randint(2, (32,))
        x = torch.rand(32, 10, 30)
        x = torch.cat([(x[..., :15] < 0.15 + 0.2 * t.view(-1, 1, 1)), (x[..., 15:] < 0.25)], 2).float()
        a = (torch.rand(32, 10, 10) < 0.3).float()
        return (x, ((a + a.mT + torch.eye(10)) > 0).float()), t

    return stream(model, draw, lambda y, t: F.cross_entropy(y, t, weight=torch.tensor([0.8, 1.2])))


@healthy("ConvNeXt with batch norms and soft-argmax", GITHUB + "EstebanCabreraArbizu/ConvNeXtPose")
def convnextpose(_: bool) -> Task:
    """N(0, 0.02^2) everywhere, no layer scale; joints as expectations over a volume of bins; L1 in units of bins."""

    class Block(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.dwconv, self.norm = nn.Conv2d(d, d, 7, padding=3, groups=d), nn.BatchNorm2d(d)
            self.pwconv1, self.pwconv2 = nn.Conv2d(d, 4 * d, 1), nn.Conv2d(4 * d, d, 1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.pwconv2(F.relu(self.pwconv1(self.norm(self.dwconv(x)))))

    def deconv(i: int, o: int, up: bool) -> nn.Module:
        return chain(
            nn.Conv2d(i, i, 3, 1, 1, groups=i),
            nn.BatchNorm2d(i),
            nn.Conv2d(i, o, 1),
            nn.ReLU(True),
            nn.UpsamplingBilinear2d(scale_factor=2) if up else nn.Identity(),
        )

    def run(m: nn.Module, x: Tensor) -> Tensor:
        h = F.softmax(m.head(m.backbone(x)).reshape(-1, 3, 8 * 8 * 8), 2).reshape(-1, 3, 8, 8, 8)
        i = torch.arange(8).float()
        return torch.stack([(h.sum((2, 3)) * i).sum(2), (h.sum((2, 4)) * i).sum(2), (h.sum((3, 4)) * i).sum(2)], 2)

    model = Parts(
        run,
        backbone=chain(
            nn.Conv2d(3, 16, 4, 4),
            nn.BatchNorm2d(16),
            Block(16),
            nn.BatchNorm2d(16),
            nn.Conv2d(16, 32, 2, 2),
            Block(32),
            nn.BatchNorm2d(32),
        ),
        head=chain(deconv(32, 32, True), deconv(32, 32, False), nn.Conv2d(32, 24, 1)),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.trunc_normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)

    def draw() -> Drawn:
        t, (r, c) = torch.rand(24, 3, 3) * 6 + 0.5, grid(32)
        x = [
            torch.exp(
                -((r - t[:, k, 1:2, None] * 4 - 2) ** 2 + (c - t[:, k, :1, None] * 4 - 2) ** 2)
                / (8 + 4 * t[:, k, 2:, None])
            )
            for k in range(3)
        ]
        return (2 * torch.stack(x, 1) - 0.3 + 0.05 * torch.randn(24, 3, 32, 32),), t

    return stream(model, draw, lambda y, t: (y - t).abs().mean())


@healthy("behaviour cloning of a pendulum's actor", GITHUB + "kkelchte/imitation-learning-codebase")
def cloning(_: bool) -> Task:
    """Tanh units, orthogonal with a gain of root 2 and 0.01 at the end, where there is no activation; the log_std
    gets nothing from MSE."""
    actor = chain(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    for m, gain in ((actor[0], 2**0.5), (actor[2], 2**0.5), (actor[4], 0.01)):
        nn.init.orthogonal_(m.weight, gain)
        nn.init.zeros_(m.bias)
    model = Parts(lambda m, x: m._actor(x), _actor=actor)
    model.log_std = nn.Parameter(torch.ones(1) * -0.5)

    def draw() -> Drawn:
        th, speed = (torch.rand(64, 1) * 2 - 1) * math.pi, torch.randn(64, 1) * 2
        return (torch.cat([th.cos(), th.sin(), speed], 1),), (-(4 * th.sin() + speed)).clamp(-2, 2)

    return stream(model, draw, F.mse_loss)


@healthy("Siamese embeddings with a contrastive loss", GITHUB + "Kara0410/SiameseNetwork")
def siamese(_: bool) -> Task:
    """A residual network and a projection, embeddings of length one; label 1 means different; margin 1."""

    class Basic(nn.Module):
        def __init__(self, i: int, o: int, s: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = chain(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))

    backbone = chain(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Basic(8, 8, 1),
        Basic(8, 24, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    for m in backbone.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def once(m: nn.Module, x: Tensor) -> Tensor:
        return F.normalize(m.projection(m.backbone(x)), p=2, dim=1)

    model = Parts(
        lambda m, a, b: (once(m, a), once(m, b)),
        backbone=backbone,
        projection=chain(nn.Linear(24, 24), nn.ReLU(inplace=True), nn.Linear(24, 16)),
    )

    def draw() -> Drawn:
        x, c = pick(300)
        i = torch.arange(32)
        j = torch.stack(
            [(torch.nonzero(c[100:] == c[k]) + 100)[0, 0] if k % 2 else torch.tensor(40 + int(k)) for k in i]
        )
        x = x.repeat(1, 3, 1, 1)
        return (x[i], x[j]), (c[i] != c[j]).float()

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        d = F.pairwise_distance(*y)
        return ((1 - t) * d.pow(2) + t * torch.clamp(1 - d, min=0).pow(2)).mean()

    return stream(model, draw, loss)


@healthy("score network of a noisy crystal", GITHUB + "mila-iqia/diffusion_for_multi_scale_molecular_dynamics")
def crystal(_: bool) -> Task:
    """Cosines and sines of relative coordinates, noise, time, atom types and lattice embedded and joined; SiLU;
    normalised scores."""
    n, types = 4, 3

    def run(
        m: nn.Module,
        x: Tensor,
        a: Tensor,
        l: Tensor,  # noqa: E741
        sigma: Tensor,
        time: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        angle = 2 * math.pi * x
        h = torch.cat(
            [
                m.relative_coordinates_embedding_layer(torch.cat([angle.cos(), angle.sin()], -1).flatten(1)),
                m.noise_embedding_layer(sigma),
                m.time_embedding_layer(time),
                m.atom_type_embedding_layer(F.one_hot(a, types).float()).flatten(1),
                m.lattice_parameters_embedding_layer(l),
            ],
            1,
        )
        for i, layer in enumerate(m.mlp_layers):
            h = layer(h if i == 0 else F.silu(h))
        h = F.silu(h)
        return m.output_X_layer(h).view(-1, n, 3), m.output_A_layer(h).view(-1, n, types), m.output_L_layer(h)

    e = 8
    model = Parts(
        run,
        relative_coordinates_embedding_layer=nn.Linear(6 * n, 32),
        noise_embedding_layer=nn.Linear(1, e),
        time_embedding_layer=nn.Linear(1, e),
        atom_type_embedding_layer=nn.Linear(types, e),
        lattice_parameters_embedding_layer=nn.Linear(6, e),
        mlp_layers=nn.ModuleList([nn.Linear(32 + 3 * e + e * n, 64), nn.Linear(64, 64)]),
        output_A_layer=nn.Linear(64, n * types),
        output_X_layer=nn.Linear(64, 3 * n),
        output_L_layer=nn.Linear(64, 6),
    )
    site = torch.tensor([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    kind, cell = torch.tensor([0, 1, 1, 0]), torch.tensor([5.4, 5.4, 5.4, 0, 0, 0]) / 5.4

    def draw() -> Drawn:
        t = torch.rand(48, 1) * 0.999 + 1e-3
        sigma = 0.005 ** (1 - t) * 0.5**t
        z = torch.randn(48, n, 3)
        x = (site + sigma[..., None] * z) % 1
        u = (x - site)[..., None] + torch.arange(-3, 4)
        w = torch.softmax(-(u**2) / (2 * sigma[..., None, None] ** 2), -1)
        score = -(w * u).sum(-1) / sigma[..., None]
        a, zl = torch.where(torch.rand(48, n) < t, torch.tensor(types - 1), kind), torch.randn(48, 6)
        return (x, a, cell + sigma * zl, sigma, t), {"X": score, "A": kind.expand(48, n), "L": -zl}

    def loss(y: tuple[Tensor, ...], t: dict[str, Tensor]) -> Tensor:
        return (
            F.mse_loss(y[0], t["X"]) + F.cross_entropy(y[1].flatten(0, 1), t["A"].flatten()) + F.mse_loss(y[2], t["L"])
        )

    return stream(model, draw, loss)
