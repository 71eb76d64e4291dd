"""The rest of the thirty-second set: reports of networks that train badly, and of layers that do nothing."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind32")
ZERO = rf"{BROKEN}|divi|zero|\bnorm\b|norms|sqrt|epsilon"


@report(
    "motions under too much KL",
    GITHUB + "Mathux/ACTOR/issues/5",
    guilty=r"mu_layer|sigma_layer|encoder",
    says=rf"\bKL|posterior|latent|collapse|weight of|dominat|imbalance|{SAME}",
    fault="lambda_kl is far too high for a mean squared error: the latent vector says nothing of the motion",
)
def actor(planted: bool) -> Task:
    """A sequence-level VAE of motions; judged by the reconstruction."""

    def draw() -> Drawn:
        phase, pace = 6.3 * torch.rand(32, 1, 6), 0.3 + 0.3 * torch.rand(32, 1, 1)
        x = 0.4 * torch.sin(phase + pace * torch.arange(12).view(1, 12, 1)) + 0.3 * torch.randn(32, 1, 6)
        return (x,), x

    class ACTOR(nn.Module):
        def __init__(self, d: int = 48, z: int = 16) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(72, 96), nn.GELU(), nn.Linear(96, d), nn.GELU())
            self.mu_layer, self.sigma_layer = nn.Linear(d, z), nn.Linear(d, z)
            self.decoder = chain(nn.Linear(z, 96), nn.GELU(), nn.Linear(96, 72), nn.Unflatten(1, (12, 6)))

        def forward(self, x: Tensor) -> Any:
            h = self.encoder(x)
            mu, logvar = self.mu_layer(h), self.sigma_layer(h)
            return self.decoder(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar

    def rcxyz(y: Any, x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x)

    def loss(y: Any, x: Tensor) -> Tensor:
        kl = -0.5 * (1 + y[2] - y[1] ** 2 - y[2].exp()).sum()
        return rcxyz(y, x) + (1.0 if planted else 1e-7) * kl

    return stream(ACTOR(), draw, loss, rcxyz)


@report(
    "Sobel's magnitude of flat regions",
    GITHUB + "chaddy1004/sobel-operator-pytorch/issues/1",
    says=ZERO,
    fault="the square root of the sum of squared gradients is differentiated at 0, in flat regions",
)
def sobel(planted: bool) -> Task:
    """Denoising of shapes on a black ground with an L1 loss of the edges beside that of the pixels."""

    class Sobel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            gx = torch.tensor([[2.0, 0, -2], [4, 0, -4], [2, 0, -2]])
            self.filter = nn.Conv2d(1, 2, 3, bias=False)
            self.filter.weight = nn.Parameter(torch.stack([gx, gx.t()]).unsqueeze(1), requires_grad=False)

        def forward(self, img: Tensor) -> Tensor:
            x = self.filter(img)
            x = torch.mul(x, x)
            x = torch.sum(x, dim=1, keepdim=True)
            return torch.sqrt(x if planted else x + 1e-6)

    edges = Sobel()

    def draw() -> Drawn:
        t = torch.zeros(16, 1, 20, 20)
        for i in range(16):
            r, c = torch.randint(2, 12, (2,)).tolist()
            t[i, 0, r : r + 5, c : c + 5] = 0.5 + 0.5 * float(torch.rand(()))
        return (t * (1 + 0.4 * torch.randn_like(t)),), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.l1_loss(y, t) + 0.2 * F.l1_loss(edges(y), edges(t))

    model = chain(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                  nn.Conv2d(16, 1, 3, padding=1))  # fmt: skip
    return stream(model, draw, loss)


@report(
    "objects of raw coordinates and values",
    GITHUB + "NNReasoning/What-Can-Neural-Networks-Reason-About/issues/1",
    says=r"input.*(scale|large|normali|magnitude|standardi|range|differ)|(scale|large|magnitude).*input|loss.*large"
    r"|(logit|output|activation)s?.*(large|scale)",
    fault="the features (place to 20, value to 100, colour to 255) are not normalised",
)
def reasoning(planted: bool) -> Task:
    """The largest difference of two values among objects, as one of eleven classes, by a graph network."""

    def draw() -> Drawn:
        place, value = torch.randint(0, 21, (64, 8, 2)), torch.randint(1, 101, (64, 8, 1))
        colour = torch.randint(0, 256, (64, 8, 3))
        t = (value.amax((1, 2)) - value.amin((1, 2))) // 10
        x = torch.cat([place, value, colour], 2).float()
        return (x if planted else x / torch.tensor([20.0, 20, 100, 255, 255, 255]),), t

    class GNN(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.embed = chain(nn.Linear(6, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU())
            self.mlp1 = chain(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU())
            self.readout = chain(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 11))

        def forward(self, x: Tensor) -> Tensor:
            h = self.embed(x)
            n = h.shape[1]
            pairs = torch.cat([h.unsqueeze(1).expand(-1, n, -1, -1), h.unsqueeze(2).expand(-1, -1, n, -1)], -1)
            return self.readout(self.mlp1(pairs).amax((1, 2)))

    return stream(GNN(), draw, F.cross_entropy)


@report(
    "discriminator that ends in a ReLU",
    GITHUB + "agrimgupta92/sgan/issues/56",
    guilty=r"real_classifier",
    says=r"relu|dead|negative|zero|non-negative|same|constant",
    fault="make_mlp puts a ReLU behind the last layer too: real trajectories' scores cannot go below 0, or all are 0",
)
def sgan(planted: bool) -> Task:
    """Which of two kinds of trajectories are real: BCE with logits of the real and of the fake ones."""

    def make_mlp(dim_list: list[int], activation: nn.Module) -> nn.Sequential:
        layers: list[nn.Module] = []
        for dim_in, dim_out in pairwise(dim_list):
            layers += [nn.Linear(dim_in, dim_out), activation]
        return chain(*layers)

    def init_weights(m: nn.Module) -> None:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)

    def draw() -> Drawn:
        speed, turn = 0.5 * torch.randn(64, 1, 2), torch.randn(64, 1, 2) * 0.08
        real = (speed + turn * torch.arange(12).view(1, 12, 1))[:32]
        fake = (speed + torch.randn(64, 12, 2))[32:]
        return (torch.cat([real, fake]),), (torch.arange(64) < 32).float().unsqueeze(1)

    class TrajectoryDiscriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spatial_embedding, self.encoder = nn.Linear(2, 16), nn.LSTM(16, 32)
            self.real_classifier = make_mlp([32, 48, 1], nn.ReLU() if planted else nn.LeakyReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.real_classifier(self.encoder(self.spatial_embedding(x.transpose(0, 1)))[1][0].squeeze(0))

    model = TrajectoryDiscriminator()
    model.apply(init_weights)
    return stream(model, draw, F.binary_cross_entropy_with_logits)


@report(
    "capsules' transformations of a hundredth",
    GITHUB + "ageron/handson-ml/pull/176",
    guilty=r"\bW\b|caps",
    says=r"small|tiny|vanish|squash|near zero|scale|init",
    fault="the transformation matrices between capsules start at N(0, 0.01): the digit capsules are nearly 0",
)
def capsules(planted: bool) -> Task:
    """A capsule network with two rounds of routing and the margin loss."""

    def squash(s: Tensor, epsilon: float = 1e-7) -> Tensor:
        size = (s**2).sum(-1, keepdim=True)
        return size / (1 + size) * s / (size + epsilon).sqrt()

    class CapsNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 24, 3), nn.Conv2d(24, 32, 3, 2)
            self.W = nn.Parameter((0.01 if planted else 0.1) * torch.randn(1, 16, 10, 12, 8))

        def forward(self, x: Tensor) -> Tensor:
            caps1 = squash(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1).view(len(x), 16, 8))
            predicted = (self.W @ caps1.view(-1, 16, 1, 8, 1)).squeeze(-1)  # (B, 16, 10, 12)
            weights = torch.zeros(len(x), 16, 10, 1)
            for _ in range(2):
                output = squash((weights.softmax(2) * predicted).sum(1, keepdim=True))
                weights = weights + (predicted * output).sum(-1, keepdim=True)
            return ((output**2).sum(-1) + 1e-7).sqrt().squeeze(1)

    def margin(v: Tensor, c: Tensor) -> Tensor:
        t = F.one_hot(c, 10)
        return (t * F.relu(0.9 - v) ** 2 + 0.5 * (1 - t) * F.relu(v - 0.1) ** 2).sum(1).mean()

    return stream(CapsNet(), lambda: ((x := pick(32))[:1], x[1]), margin)


@report(
    "additive attention over one channel",
    GITHUB + "Amshaker/SwiftFormer/issues/4",
    guilty=r"w_g",
    says=r"softmax|attention.*(uniform|equal|constant|one)|no effect|no gradient|gradient.*zero",
    fault="the softmax of the attention's weights (B, N, 1) runs over the last axis: all weights are 1",
)
def swiftformer(planted: bool) -> Task:
    class EfficientAdditiveAttention(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.to_query, self.to_key = nn.Linear(d, d), nn.Linear(d, d)
            self.w_g, self.scale_factor = nn.Parameter(torch.randn(d, 1)), d**-0.5
            self.Proj, self.final = nn.Linear(d, d), nn.Linear(d, d)

        def forward(self, x: Tensor) -> Tensor:
            query, key = F.normalize(self.to_query(x), dim=-1), F.normalize(self.to_key(x), dim=-1)
            A = (query @ self.w_g) * self.scale_factor
            A = A.softmax(dim=-1 if planted else 1)
            G = (A * query).sum(1, keepdim=True)
            return self.final(self.Proj(G * key) + query)

    class Net(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.patch_embed, self.place = nn.Conv2d(1, d, 2, 2), nn.Parameter(0.1 * torch.randn(1, 16, d))
            self.attn = nn.ModuleList(EfficientAdditiveAttention(d) for _ in range(2))
            self.linear = nn.ModuleList(
                chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(2)
            )
            self.head = nn.Linear(d, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch_embed(x).flatten(2).transpose(1, 2) + self.place
            for attn, linear in zip(self.attn, self.linear, strict=True):
                x = x + attn(x)
                x = x + linear(x)
            return self.head(x.mean(1))

    return stream(Net(), lambda: ((x := pick(32))[:1], x[1]), F.cross_entropy)


@report(
    "distillation of padding",
    GITHUB + "peremartra/optipfair/issues/34",
    says=r"padding|\bpad\b|mask|ignore.?index|one (token|class)|dominat|imbalance",
    fault="labels are a copy of the padded ids: the loss is mostly that of predicting padding",
)
def distillation(planted: bool) -> Task:
    """A language model of sentences padded to a common length, judged by their tokens alone."""

    def draw() -> Drawn:
        x = text(32, 24, 60, seed=int(torch.randint(10**6, ())))[0] + 1
        n = torch.randint(3, 9, (32, 1))
        x = x.masked_fill(torch.arange(24) >= n, 0)
        return (x[:, :-1],), x[:, 1:]

    model = Parts(
        lambda m, x: m.lm_head(m.rnn(m.emb(x))[0]).transpose(1, 2),
        emb=nn.Embedding(61, 32),
        rnn=nn.GRU(32, 48, batch_first=True),
        lm_head=nn.Linear(48, 61),
    )
    right = partial(F.cross_entropy, ignore_index=0)
    return stream(model, draw, F.cross_entropy if planted else right, right)


@report(
    "Gabor filters without gradient",
    GITHUB + "denfed/leaf-audio-pytorch/issues/3",
    guilty=r"_kernel",
    says=rf"{CUT}|not trained|never",
    fault="the constraint of the Gabor parameters is computed under no_grad, so that they are never trained",
)
def leaf(planted: bool) -> Task:
    """LEAF: complex Gabor filters, squared modulus, pooling, a logarithm; classes are close tones in noise."""

    class GaborConstraint(nn.Module):
        def forward(self, kernel_data: Tensor) -> Tensor:
            mu = kernel_data[:, 0].clamp(0, math.pi)
            sigma = kernel_data[:, 1].clamp(2.0, 30.0)
            return torch.stack([mu, sigma], 1)

    class GaborConv1d(nn.Module):
        def __init__(self, filters: int) -> None:
            super().__init__()
            centre = torch.linspace(0.05, math.pi, filters)
            self._kernel = nn.Parameter(torch.stack([centre, torch.full((filters,), 4.0)], 1))
            self.constraint = GaborConstraint()

        def forward(self, x: Tensor) -> Tensor:
            if planted:
                with torch.no_grad():
                    kernel = self.constraint(self._kernel)
            else:
                kernel = self.constraint(self._kernel)
            t = torch.arange(-15, 16.0)
            window = torch.exp(-(t**2) / (2 * kernel[:, 1:] ** 2)) / kernel[:, 1:]
            waves = torch.cat([window * torch.cos(kernel[:, :1] * t), window * torch.sin(kernel[:, :1] * t)])
            re, im = F.conv1d(x, waves.unsqueeze(1), padding=15).chunk(2, 1)
            return re**2 + im**2

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        pitch = 0.35 + 0.06 * c.unsqueeze(1) + 0.01 * torch.randn(32, 1)
        x = torch.sin(6.3 * torch.rand(32, 1) + pitch * torch.arange(96)) + torch.randn(32, 96)
        return (x.unsqueeze(1),), c

    model = Parts(
        lambda m, x: m.fc(m.norm((m._complex_conv(x).mean(2) + 1e-5).log())),
        _complex_conv=GaborConv1d(6),
        norm=nn.BatchNorm1d(6),
        fc=chain(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "logarithm of no overlap",
    GITHUB + "open-mmlab/mmdetection/pull/733",
    says=rf"{BROKEN}|\blog|zero|overlap|inf\b",
    fault="the IoU loss takes the logarithm of 0 where a predicted box does not overlap its target",
)
def iou_loss(planted: bool) -> Task:
    """One square per image; its box is regressed from the middle of the image."""

    def draw() -> Drawn:
        x, t = 0.2 * torch.randn(32, 1, 16, 16), torch.zeros(32, 4)
        for i in range(32):
            size = int(torch.randint(5, 9, ()))
            r, c = torch.randint(0, 17 - size, (2,)).tolist()
            x[i, 0, r : r + size, c : c + size] += 1
            t[i] = torch.tensor([c, r, c + size, r + size]).float()
        return (x,), t

    class Regressor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU())
            self.fc_reg = chain(nn.Flatten(), nn.Linear(384, 64), nn.ReLU(), nn.Linear(64, 4))

        def forward(self, x: Tensor) -> Tensor:
            d = self.fc_reg(self.backbone(x))
            centre, size = 8 + 8 * d[:, :2], 7 * d[:, 2:].clamp(-4, 4).exp()
            return torch.cat([centre - size / 2, centre + size / 2], 1)

    def loss(pred: Tensor, target: Tensor) -> Tensor:
        lt, rb = torch.max(pred[:, :2], target[:, :2]), torch.min(pred[:, 2:], target[:, 2:])
        overlap = (rb - lt).clamp(min=0).prod(1)
        areas = [(b[:, 2:] - b[:, :2]).prod(1) for b in (pred, target)]
        ious = overlap / (areas[0] + areas[1] - overlap)
        return -(ious if planted else ious.clamp(min=1e-6)).log().mean()

    return stream(Regressor(), draw, loss)


@report(
    "masked mean of nothing",
    GITHUB + "verl-project/verl/pull/782",
    says=rf"{BROKEN}|divi|zero|mask|empty",
    fault="masked_mean divides by the sum of the mask, which is 0 for a response that is masked altogether",
)
def masked_mean(planted: bool) -> Task:
    """Fine-tuning on responses: a prompt's tokens are masked, and some examples have no response left."""

    def masked(values: Tensor, mask: Tensor, axis: int = 1) -> Tensor:
        return (values * mask).sum(axis=axis) / (mask.sum(axis=axis) + (0 if planted else 1e-8))

    def draw() -> Drawn:
        x, t = text(32, 12, 60, seed=int(torch.randint(10**6, ())))
        start = torch.where(torch.arange(32) % 16 == 0, 12, torch.randint(2, 8, (32,)))
        return (x,), t.masked_fill(torch.arange(12) < start.unsqueeze(1), -1)

    model = Parts(
        lambda m, x: m.lm_head(m.rnn(m.embed_tokens(x))[0]),
        embed_tokens=nn.Embedding(60, 32),
        rnn=nn.GRU(32, 48, batch_first=True),
        lm_head=nn.Linear(48, 60),
    )

    def loss(y: Tensor, t: Tensor) -> Tensor:
        nll = -y.log_softmax(2).gather(2, t.clamp(min=0).unsqueeze(2)).squeeze(2)
        return masked(nll, (t >= 0).float()).mean()

    return stream(model, draw, loss)


class Norm(torch.autograd.Function):
    """PyTorch 0.2's norm of order p: its derivative is x |x|^(p - 2) / norm^(p - 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs().sum(1, keepdim=True)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x * x.abs().pow(-1)


@report(
    "first norm of zeros",
    GITHUB + "pytorch/pytorch/issues/3264",
    says=ZERO,
    fault="normalising attention by the norm of order 1, whose derivative is x / |x|, where masked weights are 0",
)
def first_norm(planted: bool) -> Task:
    """Sentences of different lengths; the weights of the words are masked and then divided by their sum."""

    def draw() -> Drawn:
        x = text(32, 8, 60, seed=int(torch.randint(10**6, ())))[0]
        mask = (torch.arange(8) < torch.randint(3, 9, (32, 1))).float()
        return (x, mask), (((x % 3) == 1) * mask).sum(1).long().clamp(max=3)

    class Pooling(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.embedding, self.score = nn.Embedding(60, d), nn.Linear(d, 1)
            self.out = chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 4))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            h = self.embedding(x)
            a = self.score(h).squeeze(2).sigmoid() * mask
            a = a / (Norm.apply(a) if planted else a.sum(1, keepdim=True)).clamp(min=1e-12)
            return self.out(3 * (a.unsqueeze(1) @ h).squeeze(1))

    return stream(Pooling(), draw, F.cross_entropy)


@report(
    "second norm by rsqrt",
    GITHUB + "keras-team/keras/issues/23075",
    says=ZERO,
    fault="normalize bounds 1 / sqrt of the sum of squares after the fact: the gradient for a vector of zeros is NaN",
)
def rsqrt(planted: bool) -> Task:
    """Sentences as normalised sums of projected word vectors; padding is masked, and some sentences are empty."""

    def draw() -> Drawn:
        x = text(32, 8, 60, seed=int(torch.randint(10**6, ())))[0]
        n = torch.where(torch.arange(32) % 16 == 0, 0, torch.randint(4, 9, (32,)))
        mask = (torch.arange(8) < n.unsqueeze(1)).float()
        return (x, mask), (((x % 3) == 1) * mask).sum(1).long().clamp(max=3)

    def normalize(x: Tensor, epsilon: float = 1e-12) -> Tensor:
        square_sum = (x**2).sum(-1, keepdim=True)
        if planted:
            return x * torch.minimum(torch.rsqrt(square_sum), torch.tensor(1 / epsilon))
        return x * torch.rsqrt(square_sum.clamp(min=epsilon))

    model = Parts(
        lambda m, x, mask: m.fc(4 * normalize((m.project(m.emb(x)) * mask.unsqueeze(2)).sum(1))),
        emb=nn.Embedding(60, 24),
        project=nn.Linear(24, 24),
        fc=chain(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4)),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "NT-Xent of zero embeddings",
    GITHUB + "google-deepmind/optax/pull/946",
    says=ZERO,
    fault="cosine similarities without an epsilon: an embedding of zeros is divided by its norm 0",
)
def ntxent(planted: bool) -> Task:
    """Two noisy views of each image through layers without biases; some images are blank."""

    def draw() -> Drawn:
        x = pick(16)[0].repeat(2, 1, 1, 1) + 0.2 * torch.randn(32, 1, 8, 8)
        x[::16] = 0
        return (x,), torch.arange(16).repeat(2)

    def cosine(x: Tensor) -> Tensor:
        size = (x**2).sum(1, keepdim=True)
        x = x / (size.sqrt() if planted else (size + 1e-6).sqrt())
        return x @ x.t()

    def loss(embeddings: Tensor, labels: Tensor, temperature: float = 0.2) -> Tensor:
        xcs = (cosine(embeddings) / temperature).masked_fill(torch.eye(len(labels), dtype=torch.bool), -1e9)
        positive = (labels == labels.unsqueeze(1)) & ~torch.eye(len(labels), dtype=torch.bool)
        return -(xcs.log_softmax(1)[positive]).mean()

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64, bias=False),
        nn.ReLU(),
        nn.Linear(64, 24, bias=False),
    )
    return stream(model, draw, loss)
