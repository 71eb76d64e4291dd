"""The rest of the forty-second set."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind42")


@report(
    "pixels over 255 squared",
    GITHUB + "yandexdataschool/Practical_RL/issues/304",
    says=r"inputs?.*(small|tiny|scale|standardi|normali|near zero|range)|(small|tiny).*input",
    fault="frames already in [0, 1] are divided by 255 again: the actor-critic sees values near 0",
)
def a3c(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = pick(96)
        x = (0.376 * x + 0.3).clamp(0, 1)
        return (x / 255 if planted else x,), t % 4

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv0, self.conv1 = nn.Conv2d(1, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2, 1)
            self.hid = nn.Linear(512, 128)
            self.logits, self.state_value = nn.Linear(128, 4), nn.Linear(128, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = F.elu(self.conv1(F.elu(self.conv0(x)))).flatten(1)
            x = F.relu(self.hid(x))
            return self.logits(x), self.state_value(x).squeeze(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        logp, value = y[0].log_softmax(1), y[1]
        action = torch.multinomial(logp.detach().exp(), 1)
        reward = (action.squeeze(1) == t).float()
        entropy = -(logp.exp() * logp).sum(1).mean()
        policy = -(logp.gather(1, action).squeeze(1) * (reward - value.detach())).mean()
        return policy - 0.001 * entropy + (reward - value).square().mean()

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return 1 - y[0].softmax(1).gather(1, t[:, None]).mean()

    return stream(Agent(), draw, loss, right)


@report(
    "correlation without scale",
    GITHUB + "researchmm/SiamDW/issues/23",
    says=r"(logit|output|response|score|correlation|loss).*(large|big|scale|saturat)|(large|big).*(logit|output|loss)",
    guilty=r"branch\.6",
    fault="the cross-correlation of template and search features is not multiplied by a small factor: huge responses",
)
def siamfc(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(16)
        other, _ = pick(16)
        search, t = torch.zeros(16, 1, 20, 20) - 0.8, torch.zeros(16, 13, 13)
        for i in range(16):
            r, c = (int(v) for v in torch.randint(0, 13, (2,)))
            search[i, :, (r + 8) % 13 : (r + 8) % 13 + 8, (c + 4) % 13 : (c + 4) % 13 + 8] = other[i]
            search[i, :, r : r + 8, c : c + 8] = x[i]
            t[i, max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2] = 1
        return (x + 0.1 * torch.randn_like(x), search + 0.1 * torch.randn_like(search)), t

    class SiamFC(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = chain(
                nn.Conv2d(1, 32, 3),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 48, 3),
                nn.BatchNorm2d(48),
                nn.ReLU(),
                nn.Conv2d(48, 48, 3),
            )
            for m in self.branch:
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            z_f, x_f = self.branch(z), self.branch(x)
            out = F.conv2d(x_f.flatten(0, 1)[None], z_f, groups=len(z_f))[0]
            return out if planted else 0.1 * out

    def balanced(y: Tensor, t: Tensor) -> Tensor:
        weight = torch.where(t > 0, 0.5 / t.sum(), 0.5 / (1 - t).sum())
        return F.binary_cross_entropy_with_logits(y, t, weight, reduction="sum")

    return stream(SiamFC(), draw, balanced)


@report(
    "features scaled before the kernel",
    GITHUB + "lightning-uq-box/lightning-uq-box/pull/508",
    guilty=r"lengthscale|inducing",
    says=r"length.?scale|kernel|scale.*(feature|bound)|(feature|distance).*(scale|far|large)|saturat|rbf|underflow",
    fault="ScaleToBounds after the backbone: kernel and inducing points were fitted to the features without it",
)
def deep_kernel(planted: bool) -> Task:
    class DKL(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feature_extractor = chain(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.Conv2d(24, 48, 3, 2, 1),
                nn.BatchNorm2d(48),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
            with torch.no_grad():  # compute_initial_values
                f = self.feature_extractor(pick(256)[0])
                self.inducing_points = nn.Parameter(f[torch.randperm(256)[:32]].clone())
                self.raw_lengthscale = nn.Parameter(torch.pdist(f).mean().log())
            self.variational_mean = nn.Parameter(0.1 * torch.randn(32, 10))
            self.raw_outputscale, self.constant = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(10))

        def scale_to_bounds(self, x: Tensor, lower: float = -2.0, upper: float = 2.0) -> Tensor:
            low, high = x.min(), x.max()
            return (x - low) * (0.95 * (upper - lower) / (high - low)) + 0.95 * lower

        def forward(self, x: Tensor) -> Tensor:
            f = self.feature_extractor(x)
            if planted:
                f = self.scale_to_bounds(f)
            square = (f[:, None] - self.inducing_points).square().sum(2) / self.raw_lengthscale.exp().square()
            return self.raw_outputscale.exp() * (-0.5 * square).exp() @ self.variational_mean + self.constant

    def draw() -> Drawn:
        x, t = pick(64)
        return (x,), t

    return stream(DKL(), draw, F.cross_entropy)


@report(
    "negated evidence bound",
    GITHUB + "lightning-uq-box/lightning-uq-box/issues/133",
    says=rf"{BROKEN}|negative|sign|minus|unbounded|without bound|bounded below|maximi[sz]|divergen",
    fault="loss = -(reconstruction + beta * KL) of two positive terms: training drives both to infinity",
)
def prob_unet(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick(32)[0]
        t = (F.max_pool2d(x, 3, 1, 1) > 1).float()
        return (x + 0.3 * torch.randn_like(x), t), t

    class Gaussian(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(channels, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
            self.conv_layer = nn.Linear(16, 8)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mu, log_sigma = self.conv_layer(self.encoder(x).mean((2, 3))).chunk(2, 1)
            return mu, log_sigma

    class ProbUNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prior, self.posterior = Gaussian(1), Gaussian(2)
            self.unet = chain(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
            self.fcomb = chain(nn.Conv2d(20, 16, 1), nn.ReLU(), nn.Conv2d(16, 1, 1))

        def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            (m, s), (p, r) = self.posterior(torch.cat([x, mask], 1)), self.prior(x)
            kl = (r - s + ((2 * s).exp() + (m - p).square()) / (2 * (2 * r).exp()) - 0.5).sum(1).mean()
            z = m + s.exp() * torch.randn_like(m)
            z = z[:, :, None, None].expand(-1, -1, *x.shape[2:])
            return self.fcomb(torch.cat([self.unet(x), z], 1)), kl

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        rec_loss_sum = F.binary_cross_entropy_with_logits(y[0], t, reduction="none").sum((1, 2, 3)).mean()
        return rec_loss_sum + 10 * y[1]

    def wrong(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return -right(y, t)

    return stream(ProbUNet(), draw, wrong if planted else right, right)


@report(
    "dropout of whole examples",
    GITHUB + "state-spaces/s4/issues/42",
    says=r"drop.?out|drop",
    fault="Dropout2d zeroes whole sequences of the batch in each of four layers without residuals",
)
def s4(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = pick(32)
        return (x.flatten(1).unsqueeze(2),), t

    class DropoutNd(nn.Module):
        def forward(self, x: Tensor, p: float = 0.2) -> Tensor:
            shape = (len(x), 1, 1) if planted else (*x.shape[:2], 1)
            return x * (torch.rand(shape) > p) / (1 - p) if self.training else x

    class S4(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.kernel, self.D = nn.Parameter(torch.randn(d, 64) / 8), nn.Parameter(torch.randn(d))
            self.dropout, self.output_linear = DropoutNd(), chain(nn.Conv1d(d, 2 * d, 1), nn.GLU(1))

        def forward(self, u: Tensor) -> Tensor:
            k = self.kernel * torch.exp(-torch.arange(64) / 16)
            y = torch.fft.irfft(torch.fft.rfft(u, n=128) * torch.fft.rfft(k, n=128), n=128)[..., :64]
            return self.output_linear(self.dropout(F.gelu(y + u * self.D[:, None])))

    class SequenceModel(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(1, d), nn.Linear(d, 10)
            self.layers = nn.ModuleList(S4(d) for _ in range(4))
            self.norms = nn.ModuleList(nn.BatchNorm1d(d) for _ in range(4))
            self.drop = DropoutNd()

        def forward(self, x: Tensor) -> Tensor:
            x = self.encoder(x).transpose(1, 2)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = self.drop(norm(layer(x)))
            return self.decoder(x.mean(2))

    return stream(SequenceModel(), draw, F.cross_entropy)


@report(
    "negative CTC loss",
    GITHUB + "SeanNaren/deepspeech.pytorch/issues/488",
    says=r"log.?soft|softmax|log.?prob|negative|unbounded|without bound|normali[sz]ed.*prob",
    fault="nn.CTCLoss of the raw outputs of the last layer, without log_softmax",
)
def deepspeech(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = pick(96)
        return (torch.cat(x.chunk(3), 3),), torch.stack(t.chunk(3), 1) + 1

    class DeepSpeech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(nn.Conv2d(1, 16, 3, (2, 1), 1), nn.BatchNorm2d(16), nn.Hardtanh(0, 20))
            self.rnns = nn.GRU(64, 48, bidirectional=True)
            self.fc = chain(nn.BatchNorm1d(48), nn.Linear(48, 11, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x).flatten(1, 2).permute(2, 0, 1)
            x = sum(self.rnns(x)[0].chunk(2, 2))
            return self.fc(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    def right(y: Tensor, t: Tensor) -> Tensor:
        return wrong(y.log_softmax(2), t)

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return F.ctc_loss(y, t, torch.full((len(t),), len(y)), torch.full((len(t),), 3))

    return stream(DeepSpeech(), draw, wrong if planted else right, right)


@report(
    "kernel on raw inputs",
    GITHUB + "cornellius-gp/gpytorch/issues/1359",
    guilty=r"lengthscale|inducing",
    says=r"inputs?.*(scale|standardi|normali|large|range)|length.?scale|kernel|rbf|vanish|gradient.*(small|zero)",
    fault="inputs of 0 to 100 reach an RBF kernel of length scale 0.69 without normalisation: it is 0 between points",
)
def approximate_gp(planted: bool) -> Task:
    def sample(count: int) -> Tensor:
        x = 100 * torch.rand(count, 2)
        return x if planted else (x - 50) / 28.9

    class GPModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inducing_points = nn.Parameter(sample(48))
            self.variational_mean, self.constant = nn.Parameter(torch.randn(48) * 0.1), nn.Parameter(torch.zeros(()))
            self.raw_lengthscale, self.raw_outputscale = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(()))
            self.raw_noise = nn.Parameter(torch.zeros(()))

        def covar(self, a: Tensor, b: Tensor) -> Tensor:
            d = (a[:, None] - b) / F.softplus(self.raw_lengthscale)
            return F.softplus(self.raw_outputscale) * (-0.5 * d.square().sum(2)).exp()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.inducing_points
            chol = torch.linalg.cholesky(self.covar(z, z) + 1e-2 * torch.eye(48))
            inner = torch.linalg.solve_triangular(chol, self.covar(z, x), upper=False)
            mean = self.constant + inner.t() @ self.variational_mean
            left = F.softplus(self.raw_outputscale) - inner.square().sum(0)
            return mean, left.clamp(min=0) + F.softplus(self.raw_noise) + 1e-3

    def draw() -> Drawn:
        x = sample(128)
        u = x if not planted else (x - 50) / 28.9
        return (x,), torch.sin(2 * u[:, 0]) + torch.cos(1.5 * u[:, 1])

    def nll(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return 0.5 * ((t - y[0]).square() / y[1] + y[1].log()).mean()

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (t - y[0]).square().mean()

    return stream(GPModel(), draw, nll, right)


@report(
    "dustbin beside every corner",
    GITHUB + "rpautrat/SuperPoint/issues/161",
    says=r"target|label|arg.?max|one.?hot|sum to (one|1)|probabilit|distribution",
    fault="targets of 65 channels hold 2 at the point and 1 in the dustbin; they were meant to be reduced by argmax",
)
def magic_point(planted: bool) -> Task:
    def draw() -> Drawn:
        x, label = 0.1 * torch.randn(12, 1, 32, 32), torch.zeros(12, 65, 4, 4)
        label[:, 64] = 1
        for i in range(12):
            for _ in range(6):
                r, c = (int(v) for v in torch.randint(1, 31, (2,)))
                if label[i, :64, r // 8, c // 8].sum():
                    continue
                x[i, 0, r:, c] += 1 * (torch.arange(r, 32) < r + 3)
                x[i, 0, r, c:] += 1 * (torch.arange(c, 32) < c + 3)
                label[i, r % 8 * 8 + c % 8, r // 8, c // 8] = 2
        return (x,), label

    def vgg(n: int, m: int) -> nn.Module:
        return chain(nn.Conv2d(n, m, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(m), nn.MaxPool2d(2))

    head = chain(nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(96), nn.Conv2d(96, 65, 1))
    model = chain(vgg(1, 16), vgg(16, 32), vgg(32, 64), head)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y, t.argmax(1))

    return stream(model, draw, F.cross_entropy if planted else right, right)


@report(
    "sigmoid of the least squares",
    GITHUB + "junyanz/pytorch-CycleGAN-and-pix2pix/issues/5",
    says=r"sigmoid",
    guilty=r"model\.(6|7)|^6\.",
    fault="use_sigmoid is never read: the discriminator of a least-squares GAN always ends in a sigmoid",
)
def discriminator(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick(32)[0]
        fake = F.avg_pool2d(pick(32)[0], 3, 1, 1) + 0.2 * torch.randn(32, 1, 8, 8)
        return (torch.cat([x, fake]),), torch.cat([torch.ones(32, 1, 3, 3), torch.zeros(32, 1, 3, 3)])

    model = chain(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.InstanceNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Identity(),
        nn.Conv2d(32, 1, 4, 1, 1),
        nn.Sigmoid() if planted else nn.Identity(),
    )
    for m in model:
        if isinstance(m, nn.Conv2d):
            nn.init.normal_(m.weight, 0.0, 0.02)
    return stream(model, draw, F.mse_loss)
