"""A thirtieth set: faults out of public reports, written without sight of the rules and of what they say."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind30")
RECTIFIED = r"[Rr]e[Ll][Uu].*(last|end|output|final)|(last|end|output|final).*[Rr]e[Ll][Uu]|negative|rectif|below zero"


@report(
    "head pose behind a ReLU",
    GITHUB + "konpatp/diffae/issues/8",
    guilty=r"linear",
    says=rf"{RECTIFIED}|[Rr]e[Ll][Uu]|sign of",
    fault="a ReLU stands after the only layer of a linear regression onto yaw, pitch and roll, which have both signs",
)
def head_pose(planted: bool) -> Task:
    """Semantic codes, normalised, to angles in degrees, which are not."""
    w = torch.randn(64, 3)

    def draw() -> Drawn:
        cond = torch.randn(128, 64)
        return (cond,), cond @ w + torch.randn(128, 3)

    class Regressor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 3)

        def forward(self, cond: Tensor) -> Tensor:
            y = self.linear(cond)
            return F.relu(y) if planted else y

    return stream(Regressor(), draw, F.mse_loss)


@report(
    "boxes in pixels behind an exponential",
    GITHUB + "tianzhi0549/FCOS/issues/36",
    guilty=r"bbox_pred|scales",
    says=r"scale|large|magnitude|range|normali|\bexp\b|exponential|far from|huge",
    fault="distances to the sides of the box are regressed in pixels, by exp() and the logarithm of the IoU",
)
def fcos(planted: bool) -> Task:
    """Rectangles on a canvas; each of 8 x 8 locations within one regresses l, t, r, b."""
    at = torch.arange(8) * 16.0 + 8

    def draw() -> Drawn:
        centre, half = torch.randint(40, 88, (16, 2)).float(), torch.randint(20, 60, (16, 2)).float()
        lo, hi = (centre - half).clamp(min=0), (centre + half).clamp(max=128)
        y, x = torch.meshgrid(torch.arange(64) * 2.0, torch.arange(64) * 2.0, indexing="ij")
        inside = [(g >= a[:, None, None]) & (g <= b[:, None, None])
                  for g, a, b in ((x, lo[:, 0], hi[:, 0]), (y, lo[:, 1], hi[:, 1]))]  # fmt: skip
        image = (inside[0] & inside[1]).float().unsqueeze(1) + 0.1 * torch.randn(16, 1, 64, 64)
        gx, gy = at.expand(8, 8), at.unsqueeze(1).expand(8, 8)
        sides = [gx - lo[:, 0, None, None], gy - lo[:, 1, None, None],
                 hi[:, 0, None, None] - gx, hi[:, 1, None, None] - gy]  # fmt: skip
        return (image,), torch.stack(sides, 1)

    class FCOSHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for n, m in ((1, 16), (16, 24), (24, 32)):
                layers += [nn.Conv2d(n, m, 3, 2, 1), nn.GroupNorm(8, m), nn.ReLU()]
            self.bbox_tower, self.scales = chain(*layers), nn.Parameter(torch.ones(1))
            self.context = chain(nn.Conv2d(32, 32, 7, padding=3), nn.GroupNorm(8, 32), nn.ReLU())
            self.bbox_pred = nn.Conv2d(32, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(self.scales * self.bbox_pred(self.context(self.bbox_tower(x))))

    def flat(y: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        y, t = y.permute(0, 2, 3, 1).flatten(0, 2), t.permute(0, 2, 3, 1).flatten(0, 2)
        positive = t.amin(1) > 0
        return y[positive], t[positive]

    def iou_loss(y: Tensor, t: Tensor) -> Tensor:
        y, t = flat(y, t)
        area, wanted = ((z[:, 0] + z[:, 2]) * (z[:, 1] + z[:, 3]) for z in (y, t))
        m = torch.min(y, t)
        both = (m[:, 0] + m[:, 2]) * (m[:, 1] + m[:, 3])
        return -((both + 1) / (area + wanted - both + 1)).log().mean()

    def normalised(y: Tensor, t: Tensor) -> Tensor:
        return iou_loss(16 * y, t)

    return stream(FCOSHead(), draw, iou_loss if planted else normalised)


@report(
    "no blue and no green",
    GITHUB + "2014mchidamb/DeepColorization/issues/2",
    guilty=r"out\b|out\.",
    says=rf"{RECTIFIED}|sign of|target.*(scale|large|range)|range",
    fault="a ReLU in the last layer, while the a and b of Lab go from -128 to 128",
)
def colorization(planted: bool) -> Task:
    """Luminance of four textures in quadrants, each of a colour of its own."""
    i = torch.arange(16)
    textures = torch.stack([(i % 2).expand(16, 16), (i % 2).unsqueeze(1).expand(16, 16),
                            (i.unsqueeze(1) + i) % 2, torch.full((16, 16), 1)]).float()  # fmt: skip
    colours = torch.tensor([[70.0, 60.0], [-70.0, 50.0], [20.0, -90.0], [-40.0, -30.0]])

    def draw() -> Drawn:
        which = torch.randint(4, (24, 2, 2)).repeat_interleave(8, 1).repeat_interleave(8, 2)
        light = textures.expand(24, 4, 16, 16).gather(1, which.unsqueeze(1))
        ab = colours[which].permute(0, 3, 1, 2) + 5 * torch.randn(24, 2, 1, 1)
        return (light + 0.1 * torch.randn_like(light),), ab

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, 1),
                nn.ReLU(),
                nn.Conv2d(32, 32, 3, padding=1),
                nn.ReLU(),
                nn.Upsample(scale_factor=2),
            )
            self.out = nn.Conv2d(32, 2, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.out(self.features(x))
            return F.relu(y) if planted else torch.tanh(y)

    def unit_mse(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y / 128 if planted else y, t / 128)

    return stream(Net(), draw, F.mse_loss if planted else unit_mse, unit_mse)


@report(
    "weight normalisation of zero weights",
    GITHUB + "pytorch/pytorch/issues/19126",
    guilty=r"out",
    says=rf"{BROKEN}|zero.*(norm|weight)|(norm|weight).*zero|divi",
    fault="a layer is initialised to zero and then weight-normalised: its weight is 0 / 0",
)
def zero_weight_norm(planted: bool) -> Task:
    """Gated dilated convolutions that predict a wave's next sample."""
    time = torch.arange(33)

    def draw() -> Drawn:
        wave = sum(torch.sin(time * (0.2 + torch.rand(32, 1)) + 6.28 * torch.rand(32, 1)) for _ in range(2))
        assert isinstance(wave, Tensor)
        return (wave[:, None, :-1],), wave[:, None, 1:]

    class Block(nn.Module):
        def __init__(self, d: int, dilation: int) -> None:
            super().__init__()
            self.dilation = dilation
            self.conv, self.res = weight_norm(nn.Conv1d(d, 2 * d, 2, dilation=dilation)), nn.Conv1d(d, d, 1)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, 1)
            return x + self.res(torch.tanh(a) * torch.sigmoid(b))

    class WaveNet(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.start = weight_norm(nn.Conv1d(1, d, 1))
            self.blocks = chain(*(Block(d, 2**i) for i in range(4)))
            out = nn.Conv1d(d, 1, 1)
            if planted:
                nn.init.zeros_(out.weight)
            self.out = weight_norm(out)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.relu(self.blocks(self.start(x))))

    return stream(WaveNet(), draw, F.mse_loss)


@report(
    "spectral normalisation of zero weights",
    GITHUB + "pytorch/pytorch/issues/20192",
    guilty=r"fc",
    says=rf"{BROKEN}|zero.*(norm|weight)|(norm|weight).*zero|divi|spectral",
    fault="spectral_norm of a layer whose weights are zero divides them by the largest singular value, 0",
)
def zero_spectral_norm(planted: bool) -> Task:
    """Digits against the same pixels in disorder, by a spectrally normalised discriminator."""

    def draw() -> Drawn:
        x, _ = pick(64)
        x[32:] = x[32:].flatten(1)[:, torch.randperm(64)].view(32, 1, 8, 8)
        return (x,), (torch.arange(64) < 32).float().unsqueeze(1)

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sn = nn.utils.spectral_norm
            self.features = chain(
                sn(nn.Conv2d(1, 16, 3, padding=1)),
                nn.LeakyReLU(0.1),
                sn(nn.Conv2d(16, 32, 4, 2, 1)),
                nn.LeakyReLU(0.1),
                nn.Flatten(),
            )
            fc = nn.Linear(512, 1)
            if planted:
                fc.weight.data.zero_()
            self.fc = sn(fc)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.features(x))

    return stream(Discriminator(), draw, bce)


@report(
    "DoRA of empty rows",
    GITHUB + "KohakuBlueleaf/LyCORIS/pull/166",
    guilty=r"dora|lora",
    says=rf"{BROKEN}|zero.*norm|norm.*zero|divi",
    fault="weight decomposition divides by the norm of each row of the weight, and some rows are zero",
)
def dora(planted: bool) -> Task:
    """A frozen network, adapted to another function of its inputs by decomposed low-rank updates."""
    w = torch.randn(16, 4) / 4

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        return (x,), 2 * torch.tanh(x @ w)

    class LoConModule(nn.Module):
        def __init__(self, org: nn.Linear, rank: int = 8) -> None:
            super().__init__()
            self.org = org.requires_grad_(False)
            self.lora_down = nn.Linear(org.in_features, rank, bias=False)
            self.lora_up = nn.Linear(rank, org.out_features, bias=False)
            nn.init.zeros_(self.lora_up.weight)
            self.dora_scale = nn.Parameter(org.weight.detach().norm(dim=1, keepdim=True))

        def apply_weight_decompose(self, weight: Tensor) -> Tensor:
            weight_norm = weight.norm(dim=1, keepdim=True)
            if not planted:
                weight_norm = weight_norm + torch.finfo(weight.dtype).eps
            return weight * (self.dora_scale / weight_norm)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.apply_weight_decompose(self.org.weight + self.lora_up.weight @ self.lora_down.weight)
            return F.linear(x, weight, self.org.bias)

    first, last = nn.Linear(16, 64), nn.Linear(64, 4)
    first.weight.data[60:] = 0  # pruned
    return stream(chain(LoConModule(first), nn.SiLU(), LoConModule(last)), draw, F.mse_loss)


@report(
    "logarithm of a ray's empty samples",
    GITHUB + "dunbar12138/DSNeRF/issues/97",
    says=rf"{BROKEN}|\blog\b|logarithm|\binf\b",
    fault="the depth loss takes the logarithm of weights that are exactly zero where the density's ReLU is off",
)
def dsnerf(planted: bool) -> Task:
    """Rays through a curved coloured surface: colour by volume rendering, depth by the sigma loss."""
    z_vals = torch.linspace(1, 3, 24)

    def draw() -> Drawn:
        u = 2 * torch.rand(48, 1) - 1
        depth = 2 + 0.5 * torch.sin(3 * u)
        rgb = torch.cat([0.5 + 0.4 * torch.sin(4 * u), 0.5 + 0.4 * torch.cos(5 * u), 0.5 - 0.4 * u], 1)
        return (u,), torch.cat([rgb, depth], 1)

    class NeRF(nn.Module):
        def __init__(self, d: int = 64) -> None:
            super().__init__()
            self.pts_linears = chain(
                nn.Linear(18, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU()
            )
            self.alpha_linear, self.rgb_linear = nn.Linear(d, 1), nn.Linear(d, 3)

        def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
            pts = torch.stack([u.expand(-1, 24), (z_vals - 2).expand(len(u), 24)], 2)
            waves = [f(pts * 2**k) for k in range(4) for f in (torch.sin, torch.cos)]
            h = self.pts_linears(torch.cat([pts, *waves], 2))
            raw, rgb = self.alpha_linear(h).squeeze(2), torch.sigmoid(self.rgb_linear(h))
            alpha = 1 - torch.exp(-F.relu(raw) * (2 / 23) * 10)
            free = torch.cumprod(torch.cat([torch.ones(len(u), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
            weights = alpha * free
            return (weights.unsqueeze(2) * rgb).sum(1), weights

    def sigma_loss(weights: Tensor, depths: Tensor) -> Tensor:
        if not planted:
            weights = weights + 1e-5
        loss = -torch.log(weights) * torch.exp(-((z_vals - depths) ** 2) / (2 * 0.1**2)) * (2 / 23)
        return loss.sum(1).mean()

    def total(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t[:, :3]) + 0.1 * sigma_loss(y[1], t[:, 3:])

    return stream(NeRF(), draw, total)


@report(
    "hypernetwork that only adds",
    GITHUB + "AUTOMATIC1111/stable-diffusion-webui/pull/3698",
    guilty=r"hyper_[kv]\.linear\.2",
    says=rf"{RECTIFIED}|last.*activation|activation.*last|positive",
    fault="a ReLU after the last layer: what the hypernetwork adds to the context is never negative",
)
def hypernetwork(planted: bool) -> Task:
    """Frozen cross attention, whose context is nudged for keys and for values towards its opposite."""
    d = 24
    to = {name: nn.Linear(d, d, bias=False) for name in ("q", "k", "v")}
    shift = torch.randn(d)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(to["q"](q), to["k"](k), to["v"](v))

    def draw() -> Drawn:
        x, context = torch.randn(32, 6, d), torch.randn(32, 8, d)
        with torch.no_grad():
            return (x, context), attend(x, context, shift - 0.5 * context)

    class HypernetworkModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[nn.Module] = [nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)]
            self.linear = chain(*layers, *([nn.ReLU()] if planted else []))
            for layer in self.linear:
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, 0.0, 0.01)
                    nn.init.zeros_(layer.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear(x)

    frozen = nn.ModuleDict(to).requires_grad_(False)

    def run(m: Any, x: Tensor, context: Tensor) -> Tensor:
        return attend(x, m.hyper_k(context), m.hyper_v(context))

    return stream(
        Parts(run, frozen=frozen, hyper_k=HypernetworkModule(), hyper_v=HypernetworkModule()), draw, F.mse_loss
    )


@report(
    "SIREN's first layer like its others",
    GITHUB + "AvivNavon/DWSNets/issues/7",
    guilty=r"seq\.0\.",
    says=r"first layer|frequenc|\bomega\b|\bw0\b|sine|initiali|too small|(almost|nearly) linear",
    fault="is_first is not used: the first layer is initialised as the hidden ones, divided by w0; biases are zero",
)
def inr(planted: bool) -> Task:
    """One garment of 28 x 28 pixels, from coordinates in [-1, 1]."""
    image = F.interpolate(pick(1)[0] * 0.376 + 0.3, size=(28, 28), mode="bilinear")[0, 0]
    i = torch.arange(28)
    image = image * (0.6 + 0.4 * ((i // 2 + i.unsqueeze(1) // 2) % 2))

    def draw() -> Drawn:
        at = torch.randint(28, (256, 2))
        return (at / 13.5 - 1,), image[at[:, 0], at[:, 1]].unsqueeze(1)

    class Siren(nn.Module):
        def __init__(self, n: int, m: int, *, w0: float = 30.0, is_first: bool = False) -> None:
            super().__init__()
            w_std = 1 / n if is_first and not planted else (6.0 / n) ** 0.5 / w0
            weight, bias = torch.zeros(m, n), torch.zeros(m)
            weight.uniform_(-w_std, w_std)
            if not planted:
                bias.uniform_(-w_std, w_std)
            self.weight, self.bias, self.w0 = nn.Parameter(weight), nn.Parameter(bias), w0

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(self.w0 * F.linear(x, self.weight, self.bias))

    class INR(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.seq = chain(Siren(2, d, is_first=True), Siren(d, d), nn.Linear(d, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.seq(x) + 0.5

    return stream(INR(), draw, F.mse_loss)


@report(
    "Hamiltonian of ReLUs",
    GITHUB + "CampusAI/Hamiltonian-Generative-Networks/issues/68",
    says=r"[Rr]e[Ll][Uu]|second.*deriv|smooth|piecewise|curvature|differentiab",
    fault="the Hamiltonian network has ReLUs, whose second derivatives, by which it would be trained, are zero",
)
def hamiltonian(planted: bool) -> Task:
    """Pendulums at each of 4 x 4 places: the energy's derivatives are to be their velocities and forces."""

    def draw() -> Drawn:
        q, p = 3 * torch.rand(16, 1, 4, 4) - 1.5, 2 * torch.rand(16, 1, 4, 4) - 1
        return (q, p), torch.cat([p, -torch.sin(q)], 1)

    def act() -> nn.Module:
        return nn.ReLU() if planted else nn.Softplus()

    class HamiltonianNet(nn.Module):
        def __init__(self, n: int = 32) -> None:
            super().__init__()
            self.hnn = chain(
                nn.Conv2d(2, n // 2, 3, padding=1),
                act(),
                nn.Conv2d(n // 2, n, 2, 2),
                act(),
                nn.Conv2d(n, n, 2, padding="same"),
                act(),
                nn.Conv2d(n, 1, 2, 2),
            )

        def forward(self, q: Tensor, p: Tensor) -> Tensor:
            with torch.enable_grad():
                q, p = q.detach().requires_grad_(True), p.detach().requires_grad_(True)
                energy = self.hnn(torch.cat([q, p], 1)).sum()
                dq, dp = torch.autograd.grad(energy, (q, p), create_graph=True)
            return torch.cat([dp, -dq], 1)

    return stream(HamiltonianNet(), draw, F.mse_loss)


def clips(count: int = 32, frames: int = 16, bins: int = 24) -> tuple[Tensor, Tensor]:
    """Spectrograms (count, frames, bins) of a band, one of four, with silence before and after; and the bands."""
    c = torch.randint(4, (count,))
    band = torch.exp(-0.5 * ((torch.arange(bins) - (4 + 5 * c).unsqueeze(1)) / 2.0) ** 2)
    start, stop = torch.randint(0, 4, (count, 1)), torch.randint(10, frames - 1, (count, 1))
    i = torch.arange(frames)
    loud = ((i >= start) & (i < stop)).float() * (0.5 + torch.rand(count, frames))
    return loud.unsqueeze(2) * band.unsqueeze(1), c


@report(
    "logarithm of silent frames",
    GITHUB + "csteinmetz1/auraloss/issues/63",
    says=rf"{BROKEN}|\blog\b|logarithm|\binf\b",
    fault="L1 of the logarithms of magnitudes without an epsilon: silence has magnitude 0",
)
def log_magnitudes(planted: bool) -> Task:
    """A mask on noisy magnitudes; noise is only where the recording is, silence is digital."""

    def draw() -> Drawn:
        clean, _ = clips()
        on = (clean.sum(2, keepdim=True) > 0).float()
        clean = clean + 0.01 * on
        return (clean + 0.5 * torch.rand_like(clean) * on,), clean

    class Enhancer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.mask = nn.GRU(24, 48, batch_first=True), nn.Linear(48, 24)

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(self.mask(self.rnn(x)[0]))

    def stft_magnitude_loss(x_mag: Tensor, y_mag: Tensor) -> Tensor:
        eps = 0.0 if planted else 1e-8
        return F.l1_loss(torch.log(x_mag + eps), torch.log(y_mag + eps))

    return stream(Enhancer(), draw, stft_magnitude_loss)


@report(
    "square root of an empty spectrum",
    GITHUB + "speechbrain/speechbrain/issues/181",
    says=rf"{BROKEN}|sqrt|square root|power|\binf\b",
    fault="spectral magnitudes to the power of 0.5 have an infinite gradient where the spectrum is zero",
)
def spectral_magnitude(planted: bool) -> Task:
    """Enhancement of padded waves, compared by L1 of spectral magnitudes."""
    window = torch.hann_window(32)

    def draw() -> Drawn:
        t = torch.arange(256)
        clean = torch.sin(t * (0.1 + 0.6 * torch.rand(16, 1))) * (t < torch.randint(120, 190, (16, 1)))
        return ((clean + 0.5 * torch.randn(16, 256) * (clean != 0)),), clean

    class Enhancement(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = chain(
                nn.Linear(17, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 17), nn.Sigmoid()
            )

        def forward(self, wave: Tensor) -> Tensor:
            spec = stft(wave)  # B, T, F, 2
            return spec * self.mask(torch.log1p((spec**2).sum(3))).unsqueeze(3)

    def stft(wave: Tensor) -> Tensor:
        z = torch.stft(wave, 32, 16, window=window, return_complex=True).transpose(1, 2)
        return torch.view_as_real(z)

    def spectral(spec: Tensor, power: float = 0.5) -> Tensor:
        spectr = spec.pow(2).sum(-1)
        if not planted and power < 1:
            spectr = spectr + 1e-14
        return spectr.pow(power)

    def loss(y: Tensor, wave: Tensor) -> Tensor:
        return F.l1_loss(spectral(y), spectral(stft(wave)))

    return stream(Enhancement(), draw, loss)


@report(
    "loudest of a silent clip",
    GITHUB + "UCSD-E4E/acoustic-multiclass-training/pull/9",
    says=rf"{BROKEN}|divi|zero.*(max|largest)|(max|largest).*zero",
    fault="mel spectrograms are divided by their largest value, which is 0 in a silent clip",
)
def silent_clip(planted: bool) -> Task:
    """Multi-label classification of clips; one in sixteen holds nothing at all."""

    def draw() -> Drawn:
        mel, c = clips()
        t = F.one_hot(c, 4).float()
        mel[::16], t[::16] = 0, 0
        return (mel.unsqueeze(1) * torch.empty(32, 1, 1, 1).uniform_(0.1, 3),), t

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = chain(
                nn.Conv2d(1, 16, 3, 2, 1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, 1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d((1, 6)),
                nn.Flatten(),
                nn.Linear(192, 4),
            )

        def forward(self, mel: Tensor) -> Tensor:
            top = mel.amax((1, 2, 3), keepdim=True)
            return self.cnn(mel / (top if planted else top + 1e-5))

    return stream(Model(), draw, bce)
