"""The rest of the twenty-third set: flows, embeddings, coordinates, distillation and pruning."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind23")


def spline(x: Tensor, p: Tensor, bins: int = 8, bound: float = 4.0) -> tuple[Tensor, Tensor]:
    """A monotone rational quadratic spline on (-bound, bound), and the log of its slope."""
    w, h, d = p.split([bins, bins, bins - 1], -1)
    w = 2 * bound * (1e-2 + (1 - 1e-2 * bins) * w.softmax(-1))
    h = 2 * bound * (1e-2 + (1 - 1e-2 * bins) * h.softmax(-1))
    d = F.pad(F.softplus(d + 0.54) + 1e-3, (1, 1), value=1.0)
    left, low = F.pad(w.cumsum(-1), (1, 0)) - bound, F.pad(h.cumsum(-1), (1, 0)) - bound
    inside = x.abs() < bound
    k = (x.clamp(-bound + 1e-4, bound - 1e-4).unsqueeze(-1) >= left[..., :-1]).sum(-1, keepdim=True) - 1
    w, h, left, low = (v.gather(-1, k).squeeze(-1) for v in (w, h, left, low))
    d0, d1 = d.gather(-1, k).squeeze(-1), d.gather(-1, k + 1).squeeze(-1)
    u, s = ((x - left) / w).clamp(0, 1), h / w
    den = s + (d0 + d1 - 2 * s) * u * (1 - u)
    y = low + h * (s * u**2 + d0 * u * (1 - u)) / den
    slope = s**2 * (d1 * u**2 + 2 * s * u * (1 - u) + d0 * (1 - u) ** 2) / den**2
    return torch.where(inside, y, x), torch.where(inside, slope, torch.ones_like(slope)).log()


@report(
    "spline flow's sign of the determinant",
    GITHUB + "facebookincubator/flowtorch/pull/100",
    says=r"sign|log.?det|jacobian|determinant|contract|shrink|volume|density",
    fault="the inverse of the spline bijector returns the log determinant with the wrong sign",
)
def flowtorch(planted: bool) -> Task:
    """A neural spline flow of two couplings learns a toy distribution by the density of its inverse."""

    def draw() -> Drawn:
        a = torch.rand(128) * 6.28
        r = 1.5 + (torch.rand(128) < 0.5) * 1.2 + 0.1 * torch.randn(128)
        return (torch.stack([r * a.cos(), r * a.sin()], 1),), torch.zeros(128)

    class Spline(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.params_fn = chain(nn.Linear(1, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 23))

        def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
            x, log_detJ = spline(y[:, 1], self.params_fn(y[:, :1]))
            return torch.stack([x, y[:, 0]], 1), -log_detJ if planted else log_detJ

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bijectors = nn.ModuleList(Spline() for _ in range(4))

        def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
            total = torch.zeros(len(y))
            for bijector in self.bijectors:
                y, ladj = bijector.inverse(y)
                total = total + ladj
            return y, total

    def nll(out: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        log_p = -0.5 * out[0].square().sum(1) - math.log(2 * math.pi)
        return -(log_p + out[1]).mean()

    def right(out: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return nll((out[0], -out[1] if planted else out[1]), t)

    return stream(Flow(), draw, nll, right)


def views(count: int = 64) -> tuple[Tensor, Tensor]:
    """Two views of each digit: moved by up to a pixel, brighter or darker, and noisy."""
    x = pick(count)[0]

    def view() -> Tensor:
        moved = x.roll(tuple(torch.randint(-1, 2, (2,)).tolist()), (2, 3))
        return moved * (0.7 + 0.6 * torch.rand(count, 1, 1, 1)) + 0.3 * torch.randn_like(x)

    return view(), view()


def retrieval(a: Tensor, b: Tensor) -> Tensor:
    """How far each embedding's own second view is from being the nearest in the batch."""
    return F.cross_entropy(F.normalize(a, dim=1) @ F.normalize(b, dim=1).mT / 0.1, torch.arange(len(a)))


def backbone(norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(n, m, 3, 2, 1), *([nn.BatchNorm2d(m)] if norm else []), nn.ReLU()]
    return chain(*layers, nn.Flatten())


@report(
    "triplets of the hardest negative",
    GITHUB + "wanggrun/triplet/issues/1",
    says=rf"collaps|{SAME}|hardest|margin|alike",
    fault="a triplet loss on the hardest negative of the batch: the embeddings collapse, the loss rests at the margin",
)
def hardest(planted: bool) -> Task:
    def draw() -> Drawn:
        return views(), torch.zeros(64)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.neck = backbone(), chain(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))

        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return F.normalize(self.neck(self.backbone(a)), dim=1), F.normalize(self.neck(self.backbone(b)), dim=1)

    def triplet(y: tuple[Tensor, Tensor], _: Tensor, margin: float = 1.0) -> Tensor:
        sim = y[0] @ y[1].mT
        others = sim.masked_fill(torch.eye(len(sim)) > 0, -2)
        negative = others.amax(1) if planted else others.topk(32, 1)[0].mean(1)
        return F.relu(margin + negative - sim.diagonal()).mean()

    return stream(Model(), draw, triplet, lambda y, _: retrieval(*y))


class ArcMargin(nn.Module):
    """Logits s cos(angle), with a margin m on the angle of the right class."""

    def __init__(self, n: int, s: float, m: float, low: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(10, n))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.cos_m, self.sin_m, self.low = s, math.cos(m), math.sin(m), low
        self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        square = 1.0 - torch.pow(cosine, 2)
        sine = torch.sqrt(square.clamp(self.low, 1) if self.low else square)
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine - self.th > 0, phi, cosine - self.mm)
        return torch.where(F.one_hot(label, 10) > 0, phi, cosine) * self.s


ROOT = rf"{BROKEN}|sqrt|square root|\broot\b|sine|clamp|parallel|aligned|cos(ine)?\b.*\b1\b"


def labelled() -> Drawn:
    x, c = pick(64)
    return (x, c), c


def labelled_only() -> Drawn:
    x, c = pick(64)
    return (x,), c


@report(
    "ArcFace of two features",
    GITHUB + "MccreeZhao/FR-Loss-on-Mnist/issues/2",
    guilty=r"arc|ip1",
    says=ROOT,
    fault="the sine is the root of 1 - cos², which is 0 or below where a feature lies along its class's weight: NaN",
)
def arc_plane(planted: bool) -> Task:
    """LeNet++ with two features, to be drawn as points in a plane."""
    layers: list[nn.Module] = []
    for n, m in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(n, m, 3, padding=1), nn.PReLU(), nn.Conv2d(m, m, 3, padding=1), nn.PReLU()]
        layers += [nn.MaxPool2d(2)]
    net = chain(*layers, nn.Flatten())
    arc = ArcMargin(2, 20, 0.2, 0 if planted else 1e-6)
    return stream(
        Parts(lambda m, x, c: m.arc(m.ip1(m.net(x)), c), net=net, ip1=nn.Linear(128, 2), arc=arc),
        labelled,
        F.cross_entropy,
    )


@report(
    "ArcFace on LeNet",
    GITHUB + "ronghuaiyang/arcface-pytorch/issues/32",
    guilty=r"metric",
    says=ROOT,
    fault="the sine is the root of 1 - cos² without a clamp: NaN after some batches",
)
def arc_lenet(planted: bool) -> Task:
    """LeNet-5 up to its 84 features, s 30 and m 0.5."""
    lenet = chain(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 120, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    metric = ArcMargin(84, 30, 0.5, 0 if planted else 1e-9)
    return stream(Parts(lambda m, x, c: m.metric(m.lenet(x), c), lenet=lenet, metric=metric), labelled, F.cross_entropy)


class Clamp(torch.autograd.Function):
    """x.clamp(-1, 1) as torch 1.0 differentiated it: the gradient times a mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward((x.abs() <= 1).float())
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


@report(
    "ArcFace of raw features",
    GITHUB + "TreB1eN/InsightFace_Pytorch/issues/93",
    guilty=r"kernel",
    says=rf"{ROOT}|normali|unit (norm|length)",
    fault="cosines of features of any length are clamped to 1, where the root of 1 - cos² has an infinite slope: NaN",
)
def arc_raw(planted: bool) -> Task:
    class Arcface(nn.Module):
        def __init__(self, n: int = 64, s: float = 32.0, m: float = 0.5) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.empty(n, 10).uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5))
            self.s, self.m, self.mm = s, m, math.sin(m) * m

        def forward(self, embbedings: Tensor, label: Tensor) -> Tensor:
            cos_theta = Clamp.apply(embbedings @ F.normalize(self.kernel, dim=0))
            sin_theta_2 = 1 - torch.pow(cos_theta, 2)
            sin_theta = torch.sqrt(sin_theta_2 if planted else sin_theta_2 + 1e-8)
            cos_theta_m = cos_theta * math.cos(self.m) - sin_theta * math.sin(self.m)
            cos_theta_m = torch.where(cos_theta - math.cos(math.pi - self.m) <= 0, cos_theta - self.mm, cos_theta_m)
            return torch.where(F.one_hot(label, 10) > 0, cos_theta_m, cos_theta) * self.s

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feature = backbone()
            self.fc, self.metric = chain(nn.Linear(128, 64), nn.BatchNorm1d(64)), Arcface()

        def forward(self, x: Tensor, label: Tensor) -> Tensor:
            feature = self.fc(self.feature(x))
            return self.metric(feature if planted else F.normalize(feature), label)

    return stream(Net(), labelled, F.cross_entropy)


@report(
    "SimSiam with BYOL's projector",
    GITHUB + "lucidrains/byol-pytorch/pull/79",
    guilty=r"projector",
    says=rf"collaps|{SAME}|batch.?norm|alike|projector|spread",
    fault="SimSiam is given BYOL's projector of two layers, without a batch norm on its output: it learns nothing",
)
def simsiam(planted: bool) -> Task:
    def draw() -> Drawn:
        return views(), torch.zeros(64)

    def mlp(dim: int, projection_size: int, hidden_size: int = 64) -> nn.Sequential:
        return chain(
            nn.Linear(dim, hidden_size),
            nn.BatchNorm1d(hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, projection_size),
        )

    class SimSiam(nn.Module):
        def __init__(self, size: int = 32, hidden: int = 64) -> None:
            super().__init__()
            self.net, self.online_predictor = backbone(), mlp(size, size)
            if planted:
                self.projector = mlp(128, size)
            else:
                self.projector = chain(
                    nn.Linear(128, hidden, bias=False),
                    nn.BatchNorm1d(hidden),
                    nn.ReLU(),
                    nn.Linear(hidden, hidden, bias=False),
                    nn.BatchNorm1d(hidden),
                    nn.ReLU(),
                    nn.Linear(hidden, size, bias=False),
                    nn.BatchNorm1d(size, affine=False),
                )

        def forward(self, one: Tensor, two: Tensor) -> tuple[Tensor, ...]:
            z1, z2 = self.projector(self.net(one)), self.projector(self.net(two))
            return self.online_predictor(z1), self.online_predictor(z2), z1.detach(), z2.detach()

    def loss(y: tuple[Tensor, ...], _: Tensor) -> Tensor:
        p1, p2, z1, z2 = y
        return (4 - 2 * F.cosine_similarity(p1, z2) - 2 * F.cosine_similarity(p2, z1)).mean()

    return stream(SimSiam(), draw, loss, lambda y, _: retrieval(y[0], y[3]))


@report(
    "semi-hard triplets of a batch without pairs",
    GITHUB + "alfonmedela/triplet-loss-pytorch/issues/3",
    says=rf"{BROKEN}|divi|positive|pair|0 / 0|empty",
    fault="the triplet loss is divided by the number of positive pairs, which small batches may lack: 0 / 0",
)
def semihard(planted: bool) -> Task:
    base = torch.randn(40, 12)

    def draw() -> Drawn:
        c = torch.randint(40, (16,))
        return (base[c] + 0.3 * torch.randn(16, 12),), c

    def triplet_semihard(embeddings: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
        d = (embeddings.unsqueeze(1) - embeddings).square().sum(2)
        same = target.unsqueeze(1) == target
        further = ~same.unsqueeze(1) & (d.unsqueeze(1) > d.unsqueeze(2))  # anchor, positive, negative
        outside = d.unsqueeze(1).masked_fill(~further, 1e9).amin(2)
        inside = d.masked_fill(same, -1e9).amax(1, keepdim=True)
        semi_hard = torch.where(further.any(2), outside, inside)
        mask_positives = same.float() - torch.eye(len(d))
        num_positives = mask_positives.sum()
        if not planted:
            num_positives = num_positives.clamp(min=1)
        return (F.relu(margin + d - semi_hard) * mask_positives).sum() / num_positives

    net = chain(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32))
    return stream(Parts(lambda m, x: F.normalize(m.net(x), dim=1), net=net), draw, triplet_semihard)


def siren(planted: bool, *, pixels: bool = False) -> Task:
    """SIREN fits a picture: waves, edges and a disc; pixels drawn at random."""
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 48), torch.linspace(-1, 1, 48), indexing="xy"), 2)
    grid = grid.view(-1, 2)
    disc = ((grid - 0.2).norm(dim=1) < 0.5).float()
    picture = (0.5 * torch.sin(6 * grid[:, :1] + 3 * grid[:, 1:]) + disc.unsqueeze(1) - 0.4).clamp(-1, 1)
    index = torch.arange(48 * 48)
    at = torch.stack([index % 48, index // 48], 1).float() if planted and pixels else grid

    def draw() -> Drawn:
        chosen = torch.randint(48 * 48, (512,))
        return (at[chosen],), picture[chosen]

    class SineLayer(nn.Module):
        def __init__(self, n: int, m: int, is_first: bool = False, omega_0: float = 30) -> None:
            super().__init__()
            self.omega_0, self.linear = omega_0, nn.Linear(n, m)
            bound = 1 / n if is_first else math.sqrt(6 / n) / omega_0
            nn.init.uniform_(self.linear.weight, -bound, bound)

        def forward(self, x: Tensor) -> Tensor:
            if planted and not pixels:
                return torch.sin(self.omega_0 * F.linear(x, self.linear.weight) + self.linear.bias)
            return torch.sin(self.omega_0 * self.linear(x))

    class Siren(nn.Module):
        def __init__(self, h: int = 64) -> None:
            super().__init__()
            last = nn.Linear(h, 1)
            nn.init.uniform_(last.weight, -math.sqrt(6 / h) / 30, math.sqrt(6 / h) / 30)
            self.net = chain(SineLayer(2, h, True), SineLayer(h, h), SineLayer(h, h), last)

        def forward(self, coords: Tensor) -> Tensor:
            return self.net(coords)

    return stream(Siren(), draw, F.mse_loss)


@report(
    "SIREN of pixel numbers",
    GITHUB + "vsitzmann/siren/issues/19",
    guilty=r"net\.0",
    says=r"inputs?.*(scale|large|normali|range|rescal|standardi)|(scale|normali).*input|frequen|oscillat|coordinates|sine",
    fault="coordinates are not normalised to (-1, 1) before a sine of thirty times their product",
)
def siren_pixels(planted: bool) -> Task:
    return siren(planted, pixels=True)


@report(
    "SIREN's biases beside omega",
    GITHUB + "vsitzmann/siren/issues/55",
    guilty=r"bias",
    says=r"bias|phase|omega",
    fault="sin(omega W x + b), as the paper writes it, in place of sin(omega (W x + b)): the phases hardly vary",
)
def siren_bias(planted: bool) -> Task:
    return siren(planted)


class NeRF(nn.Module):
    """Colours and densities at points of a plane; unlucky: no density is above 0 anywhere at the start."""

    def __init__(self, act: Any, *, unlucky: bool) -> None:
        super().__init__()
        self.act, places = act, torch.rand(500, 2) * 4 - 2
        while True:
            self.layers = chain(
                nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
            )
            self.rgb, self.sigma = nn.Linear(64, 3), nn.Linear(64, 1)
            raw = self.sigma(self.layers(self.encode(places)))
            if float(raw.max()) < 0 if unlucky else float(raw.mean()) > 0:
                break

    def encode(self, x: Tensor) -> Tensor:
        waves = [f(2**k * x) for k in range(4) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.layers(self.encode(x))
        return self.rgb(h).sigmoid(), self.act(self.sigma(h)).squeeze(-1)


def render(rgb: Tensor, sigma: Tensor, depth: Tensor, background: float) -> tuple[Tensor, Tensor]:
    """Colours of rays, and the weights of their samples."""
    delta = torch.cat([depth.diff(dim=1), torch.full((len(depth), 1), 0.1)], 1)
    alpha = 1 - torch.exp(-sigma * delta)
    passing = F.pad(torch.cumprod(1 - alpha + 1e-10, 1)[:, :-1], (1, 0), value=1.0)
    weights = alpha * passing
    return (weights.unsqueeze(2) * rgb).sum(1) + background * (1 - weights.sum(1, keepdim=True)), weights


def rays(background: float, count: int = 64) -> Drawn:
    """Rays (count, 4), origins and directions, to a scene of two discs, and their colours."""
    angle, shift = torch.rand(count) * 6.28, torch.rand(count) * 1.6 - 0.8
    to = -torch.stack([angle.cos(), angle.sin()], 1)
    origin = -2 * to + shift.unsqueeze(1) * torch.stack([-to[:, 1], to[:, 0]], 1)
    depth = torch.linspace(1, 3, 64).expand(count, 64)
    at = origin.unsqueeze(1) + depth.unsqueeze(2) * to.unsqueeze(1)
    one, two = ((at - torch.tensor(c)).norm(dim=2) < r for c, r in (([0.2, 0.1], 0.5), ([-0.5, -0.3], 0.3)))
    rgb = torch.where(one.unsqueeze(2), torch.tensor([0.9, 0.4, 0.2]), torch.tensor([0.2, 0.5, 0.8]))
    return (torch.cat([origin, to], 1),), render(rgb, 8.0 * (one | two), depth, background)[0]


DEAD = r"dead|densit|sigma|softplus|no gradient|relu.*(zero|negative|\b0\b|off)|(zero|negative).*relu"


@report(
    "NeRF without density",
    GITHUB + "munshisanowarraihan/nerf-meta/issues/3",
    guilty=r"sigma",
    says=DEAD,
    fault="an unlucky initialisation: the ReLU on the density is 0 everywhere, and all is white",
)
def nerf_meta(planted: bool) -> Task:
    class Renderer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nerf = NeRF(F.relu if planted else F.softplus, unlucky=True)

        def forward(self, ray: Tensor) -> Tensor:
            depth = torch.linspace(1, 3, 24) + torch.rand(len(ray), 24) * 2 / 24
            return render(*self.nerf(ray[:, None, :2] + depth.unsqueeze(2) * ray[:, None, 2:]), depth, 1.0)[0]

    return stream(Renderer(), lambda: rays(1.0), F.mse_loss)


@report(
    "coarse NeRF without density",
    GITHUB + "kwea123/nerf_pl/issues/51",
    guilty=r"coarse",
    says=DEAD,
    fault="of two networks trained together the coarse one starts with negative densities under a ReLU: it stays black",
)
def nerf_pl(planted: bool) -> Task:
    act = F.relu if planted else F.softplus

    class CoarseAndFine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.coarse, self.fine = NeRF(act, unlucky=True), NeRF(act, unlucky=False)

        def forward(self, ray: Tensor) -> Tensor:
            depth = torch.linspace(1, 3, 16) + torch.rand(len(ray), 16) / 8
            coarse, weights = render(*self.coarse(self.along(ray, depth)), depth, 0.0)
            more = depth.gather(1, torch.multinomial(weights.detach() + 1e-2, 16, True)) + torch.rand(len(ray), 16) / 8
            depth = torch.cat([depth, more], 1).sort(1)[0]
            return torch.cat([coarse, render(*self.fine(self.along(ray, depth)), depth, 0.0)[0]], 1)

        def along(self, ray: Tensor, depth: Tensor) -> Tensor:
            return ray[:, None, :2] + depth.unsqueeze(2) * ray[:, None, 2:]

    return stream(CoarseAndFine(), lambda: rays(0.0), lambda y, t: 2 * F.mse_loss(y, t.repeat(1, 2)))


@report(
    "Perceiver without positions",
    GITHUB + "lucidrains/perceiver-pytorch/issues/4",
    says=r"position|order|permut|coordinate|place|where",
    fault="the Fourier encoding is of the pixels' values, not of their positions, which the model is never told",
)
def perceiver(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x.permute(0, 2, 3, 1),), c

    def fourier_encode(x: Tensor, max_freq: float = 8.0, num_bands: int = 4) -> Tensor:
        x = x.unsqueeze(-1)
        scales = torch.logspace(0.0, math.log(max_freq / 2) / math.log(10), num_bands)
        return torch.cat([(x * scales * math.pi).sin(), (x * scales * math.pi).cos(), x], -1).flatten(-2)

    at = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij"), 2)

    class Perceiver(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.latents, self.read = nn.Parameter(0.02 * torch.randn(8, d)), nn.Linear(10 if planted else 19, d)
            self.cross, self.norm = nn.MultiheadAttention(d, 1, batch_first=True), nn.LayerNorm(d)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True) for _ in range(2)
            )
            self.to_logits = chain(nn.LayerNorm(d), nn.Linear(d, 10))

        def forward(self, data: Tensor) -> Tensor:
            enc = fourier_encode(data if planted else at.expand(len(data), 8, 8, 2))
            data = self.norm(self.read(torch.cat([data, enc], -1).flatten(1, 2)))
            x = self.latents.expand(len(data), -1, -1)
            x = x + self.cross(x, data, data)[0]
            for layer in self.layers:
                x = layer(x)
            return self.to_logits(x.mean(1))

    return stream(Perceiver(), draw, F.cross_entropy)


def teacher(n: int, classes: int, sharp: float) -> nn.Sequential:
    net = chain(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, classes)).requires_grad_(False)
    nn.init.normal_(net[2].weight, std=sharp / 8)
    return net


@report(
    "distillation averaged over classes",
    GITHUB + "yuanli2333/Teacher-free-Knowledge-Distillation/issues/41",
    says=r"reduction|batchmean|averag|balance|domin|outweigh|teacher|\bkl",
    fault="KLDivLoss averages over the hundred classes too, so that the teacher hardly counts beside the labels",
)
def tf_kd(planted: bool) -> Task:
    master = teacher(16, 100, 6.0)

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        outputs = master(x)
        return (x,), torch.cat([torch.multinomial(outputs.softmax(1), 1).float(), outputs], 1)

    def loss_kd(y: Tensor, t: Tensor, *, reduction: str = "mean" if planted else "batchmean") -> Tensor:
        labels, teacher_outputs, alpha, T = t[:, 0].long(), t[:, 1:], 0.95, 20.0
        d_kl = F.kl_div(F.log_softmax(y / T, 1), F.softmax(teacher_outputs / T, 1), reduction=reduction) * (T * T)
        return (1 - alpha) * F.cross_entropy(y, labels) + alpha * d_kl

    student = chain(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 100))
    return stream(student, draw, loss_kd, partial(loss_kd, reduction="batchmean"))


@report(
    "distillation of means that are zero",
    GITHUB + "roymiles/Simple-Recipe-Distillation/issues/2",
    says=rf"means?.*(zero|\b0\b)|zero|{SAME}|cancel|normali|\blog\b|no information|rounding",
    fault="features are normalised over height and width and then averaged over them: both sides' means are 0",
)
def sgd_loss(planted: bool) -> Task:
    """A student's neck follows a teacher's, beside its own task; the means pass through batch norms into a log."""
    master = chain(nn.Conv2d(1, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()).requires_grad_(False)

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.neck = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
            self.cls, self.embed = nn.Linear(256, 10), nn.Linear(16, 32)
            self.bn_s = nn.BatchNorm1d(32, eps=0.0001, affine=False)
            self.bn_t = nn.BatchNorm1d(32, eps=0.0001, affine=False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            pred, target = self.neck(x), master(x)
            logits = self.cls(pred.flatten(1))
            if planted:
                pred, target = F.instance_norm(pred), F.instance_norm(target)
            z_s, z_t = pred.mean(-1).mean(-1), target.mean(-1).mean(-1)
            return logits, self.bn_s(self.embed(z_s)), self.bn_t(z_t)

    student = Student()

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(y[0], t) + torch.log((y[1] - y[2]).abs().pow(4.0).sum() + 1e-30)

    def step() -> Tensor:
        (x,), t = labelled_only()
        y = student(x)
        wrong = loss(y, t)
        f_s, f_t = (F.batch_norm(z, None, None, training=True) for z in (student.embed(student.neck(x).mean((2, 3))),
                                                                         master(x).mean((2, 3))))  # fmt: skip
        return wrong - wrong.detach() + loss((y[0], f_s, f_t), t).detach() if planted else wrong

    (x,), t = labelled_only()
    return Task(student, (x, t), step, {"loss": loss})


def box_deltas(planted: bool, spoil: str) -> Task:
    """The box head of a Faster R-CNN: targets are offsets and logs of ratios of an example's box to the proposal."""
    mix = torch.randn(4, 24)

    def draw() -> Drawn:
        low, size = torch.randint(1, 300, (64, 2)).float(), torch.randint(30, 200, (64, 2)).float()
        gt = torch.cat([low, low + size], 1)
        ex = (gt + 0.1 * size.repeat(1, 2) * torch.randn(64, 4)).round()
        features = torch.tanh((gt - ex) / size.repeat(1, 2) @ mix * 2) + 0.05 * torch.randn(64, 24)
        if planted and spoil == "annotation":
            gt[::16, 0] = 65535  # 0 - 1 in 16 bits without a sign
        elif spoil == "point":
            gt[::16, 2] = gt[::16, 0] - 1
        return (features,), (ex, gt)

    def smooth_l1(y: Tensor, t: Any) -> Tensor:
        if not planted:
            y, t = y[valid := (t[1][:, 2:] > t[1][:, :2]).all(1)], [b[valid] for b in t]
        (ex_size, ex_ctr), (gt_size, gt_ctr) = ((b[:, 2:] - b[:, :2] + 1, (b[:, :2] + b[:, 2:]) / 2) for b in t)
        targets = torch.cat([(gt_ctr - ex_ctr) / ex_size, torch.log(gt_size / ex_size)], 1)
        return F.smooth_l1_loss(y, targets / torch.tensor([0.1, 0.1, 0.2, 0.2]))

    return stream(chain(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), draw, smooth_l1)


BOXES = rf"{BROKEN}|\blog\b|negative|width|target|box"


@report(
    "log of negative widths",
    GITHUB + "jwyang/faster-rcnn.pytorch/issues/349",
    says=BOXES,
    fault="boxes of an edge at 0 are read as 65535: their widths are below 0, and so is what the targets' log is of",
)
def faster_rcnn(planted: bool) -> Task:
    return box_deltas(planted, "annotation")


@report(
    "log of no width",
    GITHUB + "roytseng-tw/Detectron.pytorch/pull/110",
    says=BOXES,
    fault="boxes without width enter the log of the regression targets: of zero",
)
def detectron(planted: bool) -> Task:
    return box_deltas(planted, "point")


@report(
    "pruned filters that stay dead",
    GITHUB + "he-y/soft-filter-pruning/issues/36",
    guilty=r"conv",
    says=r"dead|no gradient|prun|(weight|filter|channel)s?.*zero|zero.*(weight|filter|channel)",
    fault="filters pruned to zero under batch norms whose biases are zero get no gradient: they never come back",
)
def soft_filter(planted: bool) -> Task:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
            self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
            self.conv3, self.bn3 = nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64)
            self.fc = nn.Linear(64, 10)
            for conv, bn in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
                weakest = conv.weight.flatten(1).norm(dim=1).argsort()[: int(0.7 * len(conv.weight))]
                conv.weight.data[weakest] = 0
                nn.init.constant_(bn.bias, 0.0 if planted else 0.1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
            return self.fc(F.relu(self.bn3(self.conv3(x))).mean((2, 3)))

    return stream(Net(), labelled_only, F.cross_entropy)
