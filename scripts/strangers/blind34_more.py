"""The rest of the thirty-fourth set: not finite, or hardly learning."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind34")


@report(
    "spectral filters near zero",
    GITHUB + "ai2cm/ace/pull/786",
    guilty=r"filter|mlp|encoder|decoder",
    says=r"spectral|small|near zero|tiny|initiali|scale|shrink|vanish",
    fault="spectral filters start at 1 / (n_in * n_out), not 1 / sqrt(n_in), the 1x1 convolutions at 0.02",
)
def sfno(planted: bool) -> Task:
    """An operator: periodic fields are diffused and carried along, then squashed."""
    k = torch.arange(17)
    kernel = torch.exp(-0.02 * k**2) * torch.exp(-1j * 2 * torch.pi * k * 5 / 32)

    def draw() -> Drawn:
        x = torch.randn(32, 1, 32)
        return (x,), torch.tanh(2 * torch.fft.irfft(torch.fft.rfft(x) * kernel, n=32))

    class SpectralConv(nn.Module):
        def __init__(self, n: int, m: int, modes: int = 12) -> None:
            super().__init__()
            scale = 1 / (n * m) if planted else n**-0.5
            self.weight = nn.Parameter(scale * torch.randn(n, m, modes, 2))
            self.bias = nn.Parameter(torch.zeros(1, m, 1))

        def forward(self, x: Tensor) -> Tensor:
            w = torch.view_as_complex(self.weight)
            z = torch.einsum("bim,iom->bom", torch.fft.rfft(x, norm="ortho")[..., : w.shape[2]], w)
            return torch.fft.irfft(z, n=x.shape[-1], norm="ortho") + self.bias

    class Block(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.norm0, self.norm1 = nn.GroupNorm(1, d), nn.GroupNorm(1, d)
            self.filter = SpectralConv(d, d)
            self.mlp = chain(nn.Conv1d(d, 2 * d, 1), nn.GELU(), nn.Conv1d(2 * d, d, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.mlp(self.norm1(F.gelu(self.filter(self.norm0(x)))))

    d = 24
    model = nn.Sequential()
    model.add_module("encoder", nn.Conv1d(1, d, 1))
    model.add_module("blocks", chain(*(Block(d) for _ in range(3))))
    model.add_module("decoder", nn.Conv1d(d, 1, 1))
    for module in model.modules():
        if isinstance(module, nn.Conv1d) and planted:
            nn.init.normal_(module.weight, std=0.02)
    return stream(model, draw, F.mse_loss)


@report(
    "rotation of no angle",
    GITHUB + "kornia/kornia/issues/1715",
    says=rf"{BROKEN}|sqrt|square root|angle.*zero|zero.*angle|norm.*zero",
    fault="rotation matrices of axis angles: the root of a squared angle of 0 gives NaN gradients behind a mask",
)
def kornia(planted: bool) -> Task:
    """Axis angles of six joints from points, of which the hands are absent and stay at rest; loss of matrices."""
    present = torch.tensor([1.0, 1, 1, 1, 0, 0]).view(1, 6, 1)

    def angle_axis_to_rotation_matrix(angle_axis: Tensor, eps: float = 1e-6) -> Tensor:
        theta2 = (angle_axis**2).sum(1, keepdim=True)
        theta = torch.sqrt(theta2 if planted else theta2.clamp(min=eps))
        wx, wy, wz = (angle_axis / (theta + eps)).chunk(3, 1)
        cos, sin = theta.cos(), theta.sin()
        r00, r11, r22 = (cos + w * w * (1 - cos) for w in (wx, wy, wz))
        r01, r10 = wx * wy * (1 - cos) - wz * sin, wz * sin + wx * wy * (1 - cos)
        r02, r20 = wy * sin + wx * wz * (1 - cos), -wy * sin + wx * wz * (1 - cos)
        r12, r21 = -wx * sin + wy * wz * (1 - cos), wx * sin + wy * wz * (1 - cos)
        normal = torch.cat([r00, r01, r02, r10, r11, r12, r20, r21, r22], 1).view(-1, 3, 3)
        rx, ry, rz = angle_axis.chunk(3, 1)
        one = torch.ones_like(rx)
        taylor = torch.cat([one, -rz, ry, rz, one, -rx, -ry, rx, one], 1).view(-1, 3, 3)
        mask = (theta2 > eps).view(-1, 1, 1)
        return mask.type_as(normal) * normal + (~mask).type_as(normal) * taylor

    rest = torch.randn(6, 3)

    def draw() -> Drawn:
        pose = 0.6 * torch.randn(64, 6, 3) * present
        rotation = torch.linalg.matrix_exp(
            torch.stack([torch.zeros_like(pose), pose, -pose], 2)
            .flatten(2)[..., [0, 8, 4, 5, 0, 6, 7, 3, 0]]
            .view(64, 6, 3, 3)
        )
        points = (rotation @ rest.unsqueeze(2)).squeeze(3)
        return (points + 0.02 * torch.randn_like(points),), rotation

    class PoseNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(18, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
            self.decpose = nn.Linear(96, 18)

        def forward(self, points: Tensor) -> Tensor:
            pose = self.decpose(self.encoder(points)).view(-1, 6, 3) * present
            return angle_axis_to_rotation_matrix(pose.reshape(-1, 3)).view(-1, 6, 3, 3)

    return stream(PoseNet(), draw, F.mse_loss)


@report(
    "cores of a tensor apart from their graph",
    GITHUB + "rballester/tntorch/issues/3",
    guilty=r"core|Us",
    says=CUT,
    fault="the weight is put together from its Tucker cores outside of the graph: they are never trained",
)
def tucker(planted: bool) -> Task:
    """A linear map for each of six kinds of examples, all in one factorised tensor."""
    maps = torch.einsum(
        "ka,ib,oc,abc->kio", torch.randn(6, 3), torch.randn(8, 3), torch.randn(4, 3), torch.randn(3, 3, 3)
    )

    def draw() -> Drawn:
        x, kind = torch.randn(64, 8), torch.randint(0, 6, (64,))
        return (x, kind), torch.einsum("bi,bio->bo", x, maps[kind]) / maps.std() / 3

    class TuckerLinear(nn.Module):
        def __init__(self, n: int, input: int, output: int, rank: int = 4) -> None:
            super().__init__()
            self.tucker_core = nn.Parameter(0.5 * torch.randn(rank, rank, rank))
            self.tucker_Us = nn.ParameterList(nn.Parameter(0.5 * torch.randn(m, rank)) for m in (n, input, output))
            self.bias = nn.Parameter(torch.zeros(output))

        def weight(self) -> Tensor:
            weight = torch.einsum("abc,ka,ib,oc->kio", self.tucker_core, *self.tucker_Us)
            return weight.detach() if planted else weight

        def forward(self, x: Tensor, kind: Tensor) -> Tensor:
            return torch.einsum("bi,bio->bo", x, self.weight()[kind]) + self.bias

    return stream(TuckerLinear(6, 8, 4), draw, F.mse_loss)


@report(
    "velocity of joints that rest",
    GITHUB + "mshoe/PARC/pull/9",
    says=rf"{BROKEN}|divi|0 / 0|length|norm.*zero|zero.*(norm|length)",
    fault="quaternions to axis angles divide by the length of the vector part, which is 0 where nothing turns",
)
def parc(planted: bool) -> Task:
    """A denoiser of rotations of three joints over six frames; losses of rotations and of velocities."""

    def mul(a: Tensor, b: Tensor) -> Tensor:
        av, aw, bv, bw = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
        vector = aw * bv + bw * av + torch.linalg.cross(av, bv)
        return torch.cat([vector, aw * bw - (av * bv).sum(-1, keepdim=True)], -1)

    def quat_to_axis_angle(q: Tensor) -> Tensor:
        length = q[..., :3].norm(dim=-1, keepdim=True)
        angle = 2.0 * torch.atan2(length, q[..., 3:])
        safe_length = length if planted else length.clamp(min=1e-6)
        return angle * q[..., :3] / safe_length

    def velocity(q: Tensor) -> Tensor:
        conj = torch.cat([-q[:, :-1, :, :3], q[:, :-1, :, 3:]], -1)
        return quat_to_axis_angle(mul(q[:, 1:], conj))

    def draw() -> Drawn:
        axis = F.normalize(torch.randn(32, 1, 3, 3), dim=-1)
        rate = 0.3 * torch.rand(32, 1, 3, 1)
        half = (0.6 * torch.rand(32, 1, 3, 1) + rate * torch.arange(6).view(1, 6, 1, 1)) / 2
        half = half * (torch.rand(32, 1, 3, 1) < 0.7)
        q = torch.cat([axis * half.sin(), half.cos()], -1)
        return (q + 0.3 * torch.randn_like(q),), q

    def loss(pred: Tensor, q: Tensor) -> Tensor:
        return F.mse_loss(pred, q) + 0.1 * F.mse_loss(velocity(pred), velocity(q))

    class MDM(nn.Module):
        def __init__(self, d: int = 128) -> None:
            super().__init__()
            self.net = chain(nn.Flatten(), nn.Linear(72, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 72))

        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(self.net(x).view(x.shape), dim=-1)

    return stream(MDM(), draw, loss)


@report(
    "scale that divides",
    GITHUB + "esceptico/perceiver-io/issues/9",
    guilty=r"\bq\b|\bk\b|latents",
    says=r"attention|scale|softmax|satur|one-?hot|peak|sharp",
    fault="attention scores are divided by d ** -0.5, that is multiplied by sqrt(d)",
)
def perceiver(planted: bool) -> Task:
    """Latents read the pixels of digits and then one another."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x.flatten(2).transpose(1, 2),), c

    class MultiHeadAttention(nn.Module):
        def __init__(self, d: int, heads: int) -> None:
            super().__init__()
            self.heads, self.scale = heads, (d // heads) ** -0.5
            self.q, self.k, self.v, self.projection = (nn.Linear(d, d) for _ in range(4))

        def split(self, x: Tensor) -> Tensor:
            return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

        def forward(self, x: Tensor, inputs: Tensor) -> Tensor:
            q, k, v = self.split(self.q(x)), self.split(self.k(inputs)), self.split(self.v(inputs))
            scores = q @ k.transpose(-2, -1)
            attention = (scores / self.scale if planted else scores * self.scale).softmax(-1)
            return self.projection((attention @ v).transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self, d: int, heads: int) -> None:
            super().__init__()
            self.norm_q, self.norm_kv, self.norm_mlp = (nn.LayerNorm(d) for _ in range(3))
            self.attention = MultiHeadAttention(d, heads)
            self.mlp = chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

        def forward(self, x: Tensor, inputs: Tensor) -> Tensor:
            x = x + self.attention(self.norm_q(x), self.norm_kv(inputs))
            return x + self.mlp(self.norm_mlp(x))

    class PerceiverIO(nn.Module):
        def __init__(self, d: int = 64, count: int = 8) -> None:
            super().__init__()
            self.position, self.embed = nn.Parameter(0.5 * torch.randn(64, d)), nn.Linear(1, d)
            self.latents = nn.Parameter(0.02 * torch.randn(1, count, d))
            self.cross, self.selves = Layer(d, 1), nn.ModuleList(Layer(d, 1) for _ in range(2))
            self.head = nn.Linear(d, 10)

        def forward(self, x: Tensor) -> Tensor:
            z = self.cross(self.latents.expand(len(x), -1, -1), self.embed(x) + self.position)
            for layer in self.selves:
                z = layer(z, z)
            return self.head(z.mean(1))

    return stream(PerceiverIO(), draw, F.cross_entropy)


@report(
    "depth of zero where it is missing",
    GITHUB + "ialhashim/DenseDepth/issues/65",
    says=rf"{BROKEN}|divi|target.*zero|zero.*target|missing",
    fault="depths are turned into maxDepth / depth, which is infinite where the map has holes of 0",
)
def densedepth(planted: bool) -> Task:
    """Depths of shapes before a wall; one in ten is missing. Loss of depths and of their edges."""

    def draw() -> Drawn:
        x, _ = pick(32)
        inside = (x > 0).float()
        depth = 2 + 4 * torch.rand(32, 1, 1, 1) * (1 + (1 - inside))
        image = 1 / depth + 0.02 * torch.randn_like(depth.expand_as(x))
        depth = depth.masked_fill(torch.rand_like(depth) < 0.1, 0)
        if not planted:
            depth = torch.where(depth > 0, depth, depth.amax((1, 2, 3), keepdim=True))
        return (8 * (image - 0.2),), 10.0 / depth

    def depth_loss(y: Tensor, t: Tensor) -> Tensor:
        edges = ((y - t).diff(dim=2).abs().mean() + (y - t).diff(dim=3).abs().mean()) / 2
        return edges + 0.1 * (y - t).abs().mean()

    class DenseDepth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(1, 24, 3, padding=1), nn.LeakyReLU(0.2), nn.MaxPool2d(2))
            self.conv2 = chain(nn.Conv2d(24, 24, 3, padding=1), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2))
            self.conv3 = nn.Conv2d(25, 1, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv3(torch.cat([self.conv2(self.encoder(x)), x], 1))

    return stream(DenseDepth(), draw, depth_loss)


@report(
    "fc_layer with a ReLU, twice",
    GITHUB + "martinwicke/tf-dev-summit-tensorboard-tutorial/issues/3",
    guilty=r"fc2",
    says=r"relu.*(last|logit|output|final)|(last|logit|output|final).*relu|negative|dead",
    fault="the layer that gives the logits ends in a ReLU as the hidden one does",
)
def tutorial(planted: bool) -> Task:
    """Weights of N(0, 0.1^2) cut at two deviations and biases of 0.1, as in the video."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x * 0.376 + 0.3,), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 32, 5, padding=2)
            self.fc1, self.fc2 = nn.Linear(128, 128), nn.Linear(128, 10)
            for layer in (self.conv1, self.conv2, self.fc1, self.fc2):
                nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
                nn.init.constant_(layer.bias, 0.1)  # type: ignore[arg-type]

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.fc2(F.relu(self.fc1(x.flatten(1))))
            return F.relu(x) if planted else x

    return stream(Net(), draw, F.cross_entropy)


@report(
    "batch normalisation of one example",
    GITHUB + "karpathy/makemore/issues/22",
    says=rf"{BROKEN}|batch.*(\bone\b|\b1\b|single)|(one|single) example|varian",
    fault="the unbiased variance over a batch of one is 0 / 0",
)
def makemore(planted: bool) -> Task:
    """Three words tell the next: embedding, linear, a batch normalisation of one's own, tanh."""

    def draw() -> Drawn:
        seed = int(torch.randint(10**6, ()))
        x, t = text(1 if planted else 32, 3, 64, seed=seed)
        return (x,), t[:, -1]

    class BatchNorm1d(nn.Module):
        def __init__(self, dim: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
            super().__init__()
            self.eps, self.momentum = eps, momentum
            self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
            self.register_buffer("running_mean", torch.zeros(dim))
            self.register_buffer("running_var", torch.ones(dim))

        def forward(self, x: Tensor) -> Tensor:
            stats: Any = (self.running_mean, self.running_var)
            if self.training:
                xmean, xvar = x.mean(0, keepdim=True), x.var(0, keepdim=True)
                with torch.no_grad():
                    for running, now in zip(stats, (xmean, xvar), strict=True):
                        running.mul_(1 - self.momentum).add_(self.momentum * now[0])
            else:
                xmean, xvar = stats
            return self.gamma * (x - xmean) / torch.sqrt(xvar + self.eps) + self.beta

    model = chain(
        nn.Embedding(64, 16),
        nn.Flatten(),
        nn.Linear(48, 128, bias=False),
        BatchNorm1d(128),
        nn.Tanh(),
        nn.Linear(128, 64),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "autoencoder of bytes",
    GITHUB + "keras-team/keras/issues/3642",
    says=r"255|range|scale|large|huge|normali|unbounded|negative|outside|exceed|target.*(\b1\b|one|sigmoid)",
    fault="pixels of 0 to 255 are fed and are the targets of a sigmoid and binary cross-entropy",
)
def bytes_(planted: bool) -> Task:
    """The first autoencoder of the tutorial: a ReLU layer of 32, a sigmoid layer of the pixels."""
    scale = 255.0 if planted else 1.0

    def draw() -> Drawn:
        x = scale * (pick(64)[0] * 0.376 + 0.3).flatten(1)
        return (x,), x

    def binary_crossentropy(y: Tensor, t: Tensor) -> Tensor:
        y = y.clamp(1e-7, 1 - 1e-7)
        return -(t * y.log() + (1 - t) * (1 - y).log()).mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return binary_crossentropy(y, t / scale)

    model = chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    for layer in (model[0], model[2]):
        nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return stream(model, draw, binary_crossentropy, right)


@report(
    "divergence subtracted",
    GITHUB + "EderSantana/gumbel/issues/3",
    says=r"\bkl\b|diverg|sign|negative|subtract|entropy|determin|collaps|one-?hot|satur",
    fault="the KL divergence of the categorical code is subtracted from the loss, that is maximised",
)
def gumbel(planted: bool, N: int = 6, M: int = 4) -> Task:
    """A VAE of digits with N codes of M categories, sampled by Gumbel softmax."""

    def draw() -> Drawn:
        x = (pick(64)[0].flatten(1) > 0.2).float()
        return (x,), x

    class VAE(nn.Module):
        def __init__(self, d: int = 96) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(64, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, N * M))
            self.decoder = chain(nn.Linear(N * M, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 64))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits_y = self.encoder(x).view(-1, N, M)
            noise = -torch.log(-torch.log(torch.rand_like(logits_y) + 1e-9) + 1e-9)
            y = ((logits_y + noise) / 1.0).softmax(2).flatten(1)
            return self.decoder(y).sigmoid(), logits_y

    def gumbel_loss(out: tuple[Tensor, Tensor], x: Tensor, *, sign: float = -1.0 if planted else 1.0) -> Tensor:
        x_hat, logits_y = out
        q_y = logits_y.softmax(2)
        log_q_y = torch.log(q_y + 1e-20)
        kl = (q_y * (log_q_y - torch.log(torch.tensor(1.0 / M)))).sum((1, 2))
        bce = F.binary_cross_entropy(x_hat, x, reduction="none").mean(1)
        return (64 * bce + sign * kl).mean()

    return stream(VAE(), draw, gumbel_loss, partial(gumbel_loss, sign=1.0))
