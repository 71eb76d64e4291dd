"""The rest of the fifty-third set: recurrent, memory, matching and image-to-image networks, and a flow."""

from __future__ import annotations

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

report = partial(any_report, blind="blind53")


@report(
    "deviations of a world model's mixture",
    GITHUB + "hardmaru/WorldModelsExperiments/issues/3",
    guilty=r"output",
    says=rf"{BROKEN}|log.?std|deviation|varian|unbounded|clamp|minus infinity|-inf",
    fault="the log deviations of the mixture density network are not bounded and go to minus infinity",
)
def mdn_rnn(planted: bool) -> Task:
    """An LSTM that predicts the next latent code; two dimensions of the code are dead."""
    mix = torch.randn(8, 8) * 0.5

    def draw() -> Drawn:
        z = [torch.randn(32, 8)]
        for _ in range(12):
            z.append(torch.tanh(z[-1] @ mix) + 0.3 * torch.randn(32, 8))
        codes = torch.stack(z, 1) * (torch.arange(8) < 6)
        return (codes[:, :-1],), codes[:, 1:]

    class MDNRNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.output = nn.LSTM(8, 48, batch_first=True), nn.Linear(48, 8 * 5 * 3)

        def forward(self, x: Tensor) -> Any:
            out = self.output(self.rnn(x)[0]).unflatten(2, (8, 15))
            out_logmix, out_mean, out_logstd = out.split(5, 3)
            return out_logmix - out_logmix.logsumexp(3, keepdim=True), out_mean, out_logstd

    def get_lossfunc(y: Any, t: Tensor, *, safe: bool = not planted) -> Tensor:
        logmix, mean, logstd = y
        if safe:
            logstd = logstd.clamp(min=-3)
        lognormal = -0.5 * ((t.unsqueeze(3) - mean) / torch.exp(logstd)) ** 2 - logstd - 0.9189
        return -torch.logsumexp(logmix + lognormal, 3).mean()

    return stream(MDNRNN(), draw, get_lossfunc, partial(get_lossfunc, safe=True))


@report(
    "disparities of one sign",
    GITHUB + "gengshan-y/high-res-stereo/issues/12",
    says=r"range|negative|both signs|target|bound|cannot.*reach|out of reach",
    fault="the regression is a mean over disparities from 0 up, while those of satellite images are of both signs",
)
def stereo(planted: bool) -> Task:
    """A correlation volume, filtered, and the expectation of the disparity over a softmax."""

    def draw() -> Drawn:
        wide = F.avg_pool1d(torch.randn(16, 16, 64), 3, 1, 1).unsqueeze(1) * 1.7
        disparity = torch.randint(-6, 7, (16,))
        left = wide[..., 16:48]
        right = torch.stack([w[..., 16 + int(d) : 48 + int(d)] for w, d in zip(wide, disparity, strict=True)])
        return (left, right), disparity.float().view(16, 1, 1).expand(16, 16, 32)

    class HSMNet(nn.Module):
        def __init__(self, maxdisp: int = 8) -> None:
            super().__init__()
            self.feature_extraction = chain(
                nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
            )
            self.decoder = chain(
                nn.Conv2d(2 * maxdisp, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 2 * maxdisp, 3, padding=1),
            )
            low = 0 if planted else -maxdisp
            self.disps = list(range(low, low + 2 * maxdisp))
            self.register_buffer("disp", torch.tensor(self.disps).float().view(1, -1, 1, 1))

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            a, b = self.feature_extraction(left), self.feature_extraction(right)
            cost = torch.stack([(a * b.roll(d, 3)).mean(1) for d in self.disps], 1)
            cost = 4 * cost + self.decoder(cost)
            return (F.softmax(cost, 1) * self.disp).sum(1)

    return stream(HSMNet(), draw, F.smooth_l1_loss)


@report(
    "initial weights of the heads learned as they are",
    GITHUB + "snipsco/ntm-lasagne/issues/2",
    guilty=r"weights_init",
    says=rf"{BROKEN}|negative|power|\bpow\b|fraction|simplex|softmax|distribution",
    fault="the learned initial weights of the heads have no softmax: they become negative and are raised to a power",
)
def ntm(planted: bool) -> Task:
    """A neural Turing machine that copies what it has seen."""

    class Head(nn.Module):
        def __init__(self, hidden: int, n: int, m: int, write: bool) -> None:
            super().__init__()
            self.key, self.beta, self.gate = nn.Linear(hidden, m), nn.Linear(hidden, 1), nn.Linear(hidden, 1)
            self.shift, self.gamma = nn.Linear(hidden, 3), nn.Linear(hidden, 1)
            if write:
                self.erase, self.add = nn.Linear(hidden, m), nn.Linear(hidden, m)
            self.weights_init = nn.Parameter(torch.full((1, n), 1 / n) if planted else torch.zeros(1, n))

        def initial(self) -> Tensor:
            return self.weights_init if planted else self.weights_init.softmax(1)

        def forward(self, h: Tensor, M: Tensor, w: Tensor) -> Tensor:
            K = F.cosine_similarity(self.key(h).unsqueeze(1), M, dim=2, eps=1e-3)
            w_c = F.softmax(F.softplus(self.beta(h)) * K, 1)
            g = torch.sigmoid(self.gate(h))
            w_g = g * w_c + (1 - g) * w
            s = F.softmax(self.shift(h), 1)
            w_tilde = sum(s[:, i : i + 1] * w_g.roll(i - 1, 1) for i in range(3))
            w = w_tilde ** (1 + F.softplus(self.gamma(h)))
            return w / (w.sum(1, keepdim=True) + 1e-9)

    class NTM(nn.Module):
        def __init__(self, n: int = 12, m: int = 8, hidden: int = 48) -> None:
            super().__init__()
            self.controller = nn.Linear(6 + m, hidden)
            self.write, self.read = Head(hidden, n, m, True), Head(hidden, n, m, False)
            self.out, self.memory_init = nn.Linear(hidden + m, 4), nn.Parameter(0.1 * torch.randn(1, n, m))

        def forward(self, x: Tensor) -> Tensor:
            M = self.memory_init.expand(len(x), -1, -1)
            w, r = (head.initial().expand(len(x), -1) for head in (self.write, self.read))
            read, outputs = (r.unsqueeze(2) * M).sum(1), []
            for t in range(x.shape[1]):
                h = torch.tanh(self.controller(torch.cat([x[:, t], read], 1)))
                w = self.write(h, M, w)
                erase, add = torch.sigmoid(self.write.erase(h)), torch.tanh(self.write.add(h))
                M = M * (1 - w.unsqueeze(2) * erase.unsqueeze(1)) + w.unsqueeze(2) * add.unsqueeze(1)
                r = self.read(h, M, r)
                read = (r.unsqueeze(2) * M).sum(1)
                outputs.append(self.out(torch.cat([h, read], 1)))
            return torch.stack(outputs[-2:], 1)

    def draw() -> Drawn:
        bits = (torch.rand(48, 2, 4) < 0.5).float()
        x = torch.zeros(48, 5, 6)
        x[:, :2, :4], x[:, :2, 4], x[:, 2, 5] = bits, 1, 1
        return (x,), bits

    return stream(NTM(), draw, F.binary_cross_entropy_with_logits)


@report(
    "instance normalisation of an eye's colour",
    GITHUB + "HzDmS/gaze_redirection/issues/3",
    guilty=r"norm",
    says=r"instance.?norm|normali|colou?r|contrast|brightness|mean.*(lost|remov|lose)|(lost|remov|lose).*mean",
    fault="instance normalisations in the generator remove the colour of the eye that it must keep",
)
def gaze(planted: bool) -> Task:
    """An eye is redrawn with another gaze, in its own colours."""
    rows = torch.arange(12.0)

    def eye(skin: Tensor, iris: Tensor, at: Tensor) -> Tensor:
        far = (rows.view(1, 12, 1) - 6) ** 2 + (rows.view(1, 1, 12) - 6 - 3 * at.view(-1, 1, 1)) ** 2
        disk = torch.sigmoid(2 * (5 - far)).unsqueeze(1)
        return skin[:, :, None, None] * (1 - disk) + iris[:, :, None, None] * disk

    def draw() -> Drawn:
        skin, iris = torch.rand(32, 3) * 2 - 1, torch.rand(32, 3) * 2 - 1
        a, b = torch.rand(32) * 2 - 1, torch.rand(32) * 2 - 1
        return (eye(skin, iris, a), b), eye(skin, iris, b)

    class Generator(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.conv = nn.ModuleList(
                [
                    nn.Conv2d(6, d, 7, padding=3, padding_mode="reflect"),
                    nn.Conv2d(d, 2 * d, 4, 2, 1),
                    nn.Conv2d(2 * d, 2 * d, 3, padding=1),
                    nn.Conv2d(2 * d, 2 * d, 3, padding=1),
                    nn.ConvTranspose2d(2 * d, d, 4, 2, 1),
                ]
            )
            self.norm = nn.ModuleList(
                nn.InstanceNorm2d(c, affine=True) if planted else nn.Identity() for c in (d, 2 * d, 2 * d, 2 * d, d)
            )
            self.out = nn.Conv2d(d, 3, 7, padding=3, padding_mode="reflect")

        def forward(self, x: Tensor, angle: Tensor) -> Tensor:
            place = (rows / 6 - 1).view(1, 1, 1, 12).expand(len(x), 1, 12, 12)
            angles = angle.view(-1, 1, 1, 1).expand(-1, 1, 12, 12)
            x = torch.cat([x, angles, place, place.mT], 1)
            for i, (conv, norm) in enumerate(zip(self.conv, self.norm, strict=True)):
                x = x + F.relu(norm(conv(x))) if i in (2, 3) else F.relu(norm(conv(x)))
            return torch.tanh(self.out(x))

    return stream(Generator(), draw, F.l1_loss)


@report(
    "scales of a flow without a bound",
    GITHUB + "openai/glow/issues/62",
    guilty=r"coupling.*\.(last|net)",
    says=rf"{BROKEN}|\bexp|bound|explod|diverg|overflow",
    fault="the scales of the affine couplings are exp of the networks' outputs, not a sigmoid of them",
)
def glow(planted: bool) -> Task:
    """Activation norms and affine couplings over images of digits with noise."""

    def draw() -> Drawn:
        x = pick(64)[0].flatten(1) * 0.376 + 0.3
        x = (x * 16 + torch.rand(64, 64)) / 17 - 0.5
        return (x,), x

    class Coupling(nn.Module):
        def __init__(self, hidden: int = 64) -> None:
            super().__init__()
            self.logs, self.b = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))
            self.net = chain(nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
            self.last, self.last_logs = nn.Linear(hidden, 64), nn.Parameter(torch.zeros(64))
            nn.init.zeros_(self.last.weight), nn.init.zeros_(self.last.bias)
            for layer in (self.net[0], self.net[2]):
                nn.init.normal_(layer.weight, std=0.05)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = (x + self.b) * self.logs.exp()
            a, b = x.chunk(2, 1)
            h = self.last(self.net(a)) * torch.exp(3 * self.last_logs)
            shift, s = h[:, ::2], h[:, 1::2]
            scale = torch.exp(s) if planted else torch.sigmoid(s + 2)
            b = (b + shift) * scale
            return torch.cat([b, a], 1), self.logs.sum() + scale.log().sum(1)

    class Glow(nn.Module):
        def __init__(self, depth: int = 6) -> None:
            super().__init__()
            self.coupling = nn.ModuleList(Coupling() for _ in range(depth))
            self.register_buffer("order", torch.stack([torch.randperm(64) for _ in range(depth)]))

        def forward(self, x: Tensor) -> Any:
            logdet = torch.zeros(len(x))
            for step, order in zip(self.coupling, self.order, strict=True):
                x, more = step(x[:, order])
                logdet = logdet + more
            return x, logdet

    def loss(y: Any, t: Tensor) -> Tensor:
        z, logdet = y
        return (0.5 * z.square().sum(1) + 0.9189 * 64 - logdet).mean() / 64

    return stream(Glow(), draw, loss)


@report(
    "Bernoulli likelihood by hand",
    GITHUB + "emited/VariationalRecurrentNeuralNetwork/issues/2",
    guilty=r"dec|std",
    says=rf"{BROKEN}|\blog\b|saturat|epsilon|clamp|underflow|std|deviation",
    fault="the likelihood and the KL take logarithms of a sigmoid and of standard deviations that may be 0",
)
def vrnn(planted: bool) -> Task:
    """A variational recurrent network that reads a digit row by row."""
    eps = 0.0 if planted else 1e-5

    class VRNN(nn.Module):
        def __init__(self, x: int = 8, h: int = 48, z: int = 8) -> None:
            super().__init__()
            self.phi_x, self.phi_z = chain(nn.Linear(x, h), nn.ReLU()), chain(nn.Linear(z, h), nn.ReLU())
            self.enc, self.prior = chain(nn.Linear(2 * h, h), nn.ReLU()), chain(nn.Linear(h, h), nn.ReLU())
            self.enc_mean, self.enc_std = nn.Linear(h, z), chain(nn.Linear(h, z), nn.Softplus())
            self.prior_mean, self.prior_std = nn.Linear(h, z), chain(nn.Linear(h, z), nn.Softplus())
            self.dec = chain(nn.Linear(2 * h, h), nn.ReLU())
            self.dec_mean = chain(nn.Linear(h, x), nn.Sigmoid())
            self.rnn, self.h = nn.GRUCell(2 * h, h), h

        def forward(self, x: Tensor) -> Any:
            h, kld, means = torch.zeros(len(x), self.h), torch.zeros(()), []
            for t in range(x.shape[1]):
                phi_x = self.phi_x(x[:, t])
                enc, prior = self.enc(torch.cat([phi_x, h], 1)), self.prior(h)
                mean_1, std_1 = self.enc_mean(enc), self.enc_std(enc) + eps
                mean_2, std_2 = self.prior_mean(prior), self.prior_std(prior) + eps
                z = mean_1 + std_1 * torch.randn_like(std_1)
                phi_z = self.phi_z(z)
                means.append(self.dec_mean(self.dec(torch.cat([phi_z, h], 1))))
                element = 2 * torch.log(std_2) - 2 * torch.log(std_1)
                element = element + (std_1**2 + (mean_1 - mean_2) ** 2) / std_2**2 - 1
                kld = kld + 0.5 * element.sum() / len(x)
                h = self.rnn(torch.cat([phi_x, phi_z], 1), h)
            return torch.stack(means, 1), kld

    def draw() -> Drawn:
        x = (pick(32)[0].squeeze(1) * 0.376 + 0.3 > 0.5).float()
        return (x,), x

    def loss(y: Any, x: Tensor) -> Tensor:
        theta, kld = y
        nll = -(x * torch.log(theta + eps) + (1 - x) * torch.log(1 - theta + eps)).sum() / len(x)
        return nll + kld

    return stream(VRNN(), draw, loss)


@report(
    "logarithm of a ray's weights",
    GITHUB + "dunbar12138/DSNeRF/issues/69",
    guilty=r"alpha_linear",
    says=rf"{BROKEN}|infinit|\blog\b|zero|epsilon|softplus|ReLU",
    fault="the depth loss takes the logarithm of weights that are 0 wherever the raw density is negative",
)
def dsnerf(planted: bool) -> Task:
    """Rays that meet a wall; a small field of colours and densities; a loss of colours and one of depths."""

    class NeRF(nn.Module):
        def __init__(self, d: int = 64) -> None:
            super().__init__()
            self.pts_linears = nn.ModuleList([nn.Linear(14, d), nn.Linear(d, d)])
            self.alpha_linear, self.rgb_linear = nn.Linear(d, 1), nn.Linear(d, 3)

        def forward(self, o: Tensor) -> Any:
            z_vals = torch.linspace(0, 4, 25)[:-1].expand(len(o), -1) + torch.rand(len(o), 24) / 6
            pts = torch.stack([o.expand(-1, 24), z_vals], 2)
            h = torch.cat([pts, *(f(pts * k) for f in (torch.sin, torch.cos) for k in (1, 2, 4))], 2)
            for layer in self.pts_linears:
                h = F.relu(layer(h))
            raw, rgb = self.alpha_linear(h).squeeze(2), torch.sigmoid(self.rgb_linear(h))
            dists = torch.full_like(raw, 1 / 6)
            alpha = 1 - torch.exp(-F.relu(raw) * dists)
            through = torch.cat([torch.ones(len(o), 1), 1 - alpha + 1e-10], 1).cumprod(1)[:, :-1]
            weights = alpha * through
            return (weights.unsqueeze(2) * rgb).sum(1), weights, z_vals

    def draw() -> Drawn:
        o = torch.rand(64, 1) * 4 - 2
        depth = 2 + 0.6 * torch.sin(2 * o)
        return (o,), torch.cat([depth, torch.sigmoid(torch.cat([o, -o, o * 2], 1))], 1)

    def whole(y: Any, t: Tensor, *, eps: float) -> Tensor:
        rgb, weights, z_vals = y
        sigma = -torch.log(weights + eps) * torch.exp(-((z_vals - t[:, :1]) ** 2) / (2 * 0.15**2)) / 6
        return F.mse_loss(rgb, t[:, 1:]) + 0.1 * sigma.sum(1).mean()

    return stream(NeRF(), draw, partial(whole, eps=0.0 if planted else 1e-5), partial(whole, eps=1e-5))
