"""A twelfth set of faults out of public reports, of images and sounds, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind12")


@report(
    "depths below the mean",
    GITHUB + "isl-org/MultiObjectiveOptimization/issues/7",
    guilty=r"(?!)",
    says=r"mask|weight of zero|ignor|exclud|left out|count|targets?.*(negative|below|sign)|(half|share|"
    r"part).*(target|pixel|place)",
    fault="missing depths are to be left out, but mask = depth > 0 leaves out all depths below the mean: "
    "they are standardised",
)
def depths(planted: bool) -> Task:
    """A digit stands before a wall that recedes; the thicker its strokes, the nearer; 0 is no reading."""

    def draw() -> Drawn:
        x, _ = pick(24)
        ink, wall = (x > 0).float(), torch.linspace(0.5, 1, 8).view(1, 1, 8, 1).expand(24, 1, 8, 8)
        near = -1 - 2 * F.avg_pool2d(ink, 3, 1, 1)
        depth = torch.where(ink > 0, near, wall)
        depth = (depth - depth.mean()) / depth.std()
        return (x,), torch.where(torch.rand_like(depth) < 0.2, 0.0, depth)

    class Depth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc1, self.enc2 = nn.Conv2d(1, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2, 1)
            self.bn = nn.BatchNorm2d(32)
            self.dec1, self.dec2 = nn.Conv2d(32, 16, 3, 1, 1), nn.Conv2d(32, 1, 3, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            skip = F.relu(self.enc1(x))
            y = F.relu(self.bn(self.enc2(skip)))
            y = F.relu(self.dec1(F.interpolate(y, scale_factor=2)))
            return self.dec2(torch.cat([skip, y], 1))

    def l1(mask_of):
        def loss(y: Tensor, t: Tensor) -> Tensor:
            mask = mask_of(t).float()
            return ((y - t).abs() * mask).sum() / mask.sum().clamp(min=1)

        return loss

    right = l1(lambda t: t != 0)
    return stream(Depth(), draw, l1(lambda t: t > 0) if planted else right, right)


@report(
    "a view beside itself",
    GITHUB + "microsoft/A-CLIP/pull/4",
    guilty=r"(?!)",
    says=r"second|other (view|input|output)|one (view|input|of the)|(output|view|embedding).*(not|no|never|"
    r"unused|ignored)|itself|no effect",
    fault="a contrastive loss compares the first view's embeddings with themselves, not with those of the second view",
)
def views(planted: bool) -> Task:
    """Left and right of a digit are the two views."""

    def draw() -> Drawn:
        x, _c = pick(48)
        x = x + 0.1 * torch.randn_like(x)
        return (x[..., :5], x[..., 3:]), torch.arange(48)

    net = chain(
        nn.Conv2d(1, 32, 3, 1, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 40, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
    )

    def run(m: Any, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(m.encoder(a), dim=-1), F.normalize(m.encoder(b), dim=-1)

    def simclr(other: bool):
        def loss(z: Any, labels: Tensor) -> Tensor:
            a, b = z
            logits_ab = a @ (b if other else a).T / 0.1
            logits_ba = b @ (a if other else b).T / 0.1
            return (F.cross_entropy(logits_ab, labels) + F.cross_entropy(logits_ba, labels)) / 2

        return loss

    return stream(Parts(run, encoder=net), draw, simclr(not planted), simclr(True))


@report(
    "overlap of all classes together",
    GITHUB + "fastai/fastai/pull/3439",
    guilty=r"(?!)",
    says=r"dice|overlap|imbalanc|rare|frequen|major|background|class(es)?.*(sum|together|weigh|one|small|few)",
    fault="a Dice loss sums over batch, classes and pixels, not over pixels: with rare classes background "
    "is all there is",
)
def dice(planted: bool) -> Task:
    """Where the ink of a small digit on a large empty picture is, and of which of three kinds."""

    def draw() -> Drawn:
        x, c = pick(16)
        page, mask = torch.full((16, 1, 16, 16), -0.8), torch.zeros(16, 16, 16, dtype=torch.long)
        for i in range(16):
            a, b = torch.randint(0, 9, (2,)).tolist()
            page[i, :, a : a + 8, b : b + 8] = x[i]
            mask[i, a : a + 8, b : b + 8] = (x[i, 0] > 1.3).long() * (1 + c[i] % 2)
        return (page + 0.3 * torch.randn_like(page),), mask

    net = chain(
        nn.Conv2d(1, 16, 3, 1, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, 1, 2, 2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, 1, 4, 4),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )

    def dice_loss(dims: tuple[int, ...]):
        def loss(y: Tensor, t: Tensor) -> Tensor:
            p, t = y.softmax(1), F.one_hot(t, 3).movedim(-1, 1).float()
            inter, union = (p * t).sum(dims), (p + t).sum(dims)
            return (1 - (2 * inter + 1e-6) / (union + 1e-6)).mean()

        return loss

    right = dice_loss((0, 2, 3))
    return stream(net, draw, dice_loss((0, 1, 2, 3)) if planted else right, right)


@report(
    "divergence of a whole batch",
    GITHUB + "EDAPINENUT/GNTPP/issues/4",
    guilty=r"log_?var|mean|encoder|latent",
    says=r"diverg|KL|(sum|term|part).*(batch|larg|outweigh|domin|scale)|collaps",
    fault="torch.sum without dim: the divergence is of the whole batch and all steps, and is added to every "
    "step's loss",
)
def steps(planted: bool) -> Task:
    """A VAE of each step of rows of digits."""

    def draw() -> Drawn:
        x, _ = pick(48)
        rows = x[:, 0]
        length = torch.randint(5, 9, (48, 1))
        return (rows, (torch.arange(8) < length).float()), (rows, (torch.arange(8) < length).float())

    class StepVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(8, 48, batch_first=True)
            self.mean, self.log_var = nn.Linear(48, 8), nn.Linear(48, 8)
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))

        def forward(self, x: Tensor, mask: Tensor) -> Any:
            h, _ = self.rnn(x * mask.unsqueeze(-1))
            mean, log_var = self.mean(h), self.log_var(h)
            z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
            return self.decoder(z), mean, log_var

    def elbo(dim: Any):
        def loss(y: Any, t: Any) -> Tensor:
            (out, mean, log_var), (rows, mask) = y, t
            kl = (-0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp(), dim=dim)) * mask
            rec = 8 * F.mse_loss(out, rows, reduction="none").sum(-1) * mask
            return (rec + 0.2 * kl).sum() / mask.sum()

        return loss

    return stream(StepVAE(), draw, elbo(None) if planted else elbo(-1), elbo(-1))


@report(
    "points for axes",
    GITHUB + "charlesq34/pointnet-autoencoder/issues/15",
    guilty=r"(?!)",
    says=rf"{ORDER}|chamfer|dimension|point",
    fault="a Chamfer distance of (B, points, 3) is given (B, 3, points): its three points have as many axes "
    "as there are points",
)
def chamfer(planted: bool) -> Task:
    """Random ellipsoids' surfaces."""

    def draw() -> Drawn:
        p = F.normalize(torch.randn(32, 64, 3), dim=-1) * (0.2 + torch.rand(32, 1, 3)) + 0.5 * torch.randn(32, 1, 3)
        p = p.transpose(2, 1)
        return (p,), p

    class AutoEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2, self.conv3 = nn.Conv1d(3, 32, 1), nn.Conv1d(32, 64, 1), nn.Conv1d(64, 64, 1)
            self.bn1, self.bn2 = nn.BatchNorm1d(32), nn.BatchNorm1d(64)
            self.fc1, self.fc2 = nn.Linear(64, 128), nn.Linear(128, 64 * 3)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.bn1(self.conv1(x)))
            x = F.relu(self.bn2(self.conv2(x)))
            z = self.conv3(x).max(2).values
            return self.fc2(F.relu(self.fc1(z))).view(-1, 3, 64)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        d = (a.unsqueeze(2) - b.unsqueeze(1)).pow(2).sum(-1)
        return d.min(2).values.mean() + d.min(1).values.mean()

    def right(y, t):
        return distance(y.transpose(1, 2), t.transpose(1, 2))

    return stream(AutoEncoder(), draw, distance if planted else right, right)


@report(
    "flow without the pixels' own places",
    GITHUB + "ClementPinard/FlowNetPytorch/issues/25",
    guilty=r"flow|conv|predict",
    says=rf"{SAME}|grid|identity|coordinates|centre|center|same (pixel|place|point)|warp|sampl",
    fault="grid_sample is given the flow alone, without the identity grid: without motion all pixels read "
    "the image's centre",
)
def flow(planted: bool) -> Task:
    """The second frame is the first, shifted by up to two pixels; without labels of motion."""

    def draw() -> Drawn:
        x, _ = pick(24)
        theta = torch.eye(2, 3).repeat(24, 1, 1)
        theta[:, :, 2] = 0.7 * (2 * torch.rand(24, 2) - 1)
        x = F.pad(F.interpolate(x, size=12, mode="bilinear"), (2, 2, 2, 2), value=-0.8)
        grid = F.affine_grid(theta / torch.tensor([1, 1, 2.0]), list(x.shape))
        second = F.grid_sample(x, grid, padding_mode="border")
        return (x, second), x

    class FlowNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(2, 24, 5, 2, 2), nn.Conv2d(24, 32, 3, 2, 1)
            self.conv3 = nn.Conv2d(32, 32, 3, 1, 1)
            self.predict_flow = nn.Conv2d(32, 2, 3, 1, 1)
            nn.init.normal_(self.predict_flow.weight, std=1e-3)

        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            x = F.leaky_relu(self.conv1(torch.cat([first, second], 1)), 0.1)
            x = F.leaky_relu(self.conv3(F.leaky_relu(self.conv2(x), 0.1)), 0.1)
            flow = F.interpolate(self.predict_flow(x), scale_factor=4, mode="bilinear")
            grid = flow.permute(0, 2, 3, 1)
            if not planted:
                grid = grid + F.affine_grid(torch.eye(2, 3).repeat(len(x), 1, 1), list(first.shape))
            return F.grid_sample(second, grid, padding_mode="border")

    return stream(FlowNet(), draw, lambda y, t: (y - t).abs().mean())


@report(
    "layers that all read the block's input",
    GITHUB + "cyclomon/UNSB/issues/29",
    guilty=r"conv_block\.[03]",
    says=r"no gradient|gradient.*zero|unused|not used|never|no effect|without.*gradient|overwrit|"
    r"not.*(depend|reach)",
    fault="out = layer(x) in a loop over the layers of a residual block, not layer(out): only the last, a "
    "normalisation, counts",
)
def blocks(planted: bool) -> Task:
    """Noisy digits somewhere on a strip become maps of labels: of which digit each pixel is."""

    class ResnetBlock(nn.Module):
        def __init__(self, dim: int, d: int) -> None:
            super().__init__()
            self.conv_block = nn.ModuleList(
                [
                    nn.Conv2d(dim, dim, 3, 1, d, d),
                    nn.InstanceNorm2d(dim),
                    nn.ReLU(),
                    nn.Conv2d(dim, dim, 3, 1, d, d),
                    nn.InstanceNorm2d(dim),
                ]
            )

        def forward(self, x: Tensor) -> Tensor:
            out = x
            for layer in self.conv_block:
                out = layer(x) if planted else layer(out)
            return x + out

    def draw() -> Drawn:
        x, c = pick(16)
        whole = F.pad(x, (1, 1, 1, 1), value=-0.8)
        labels = torch.where(whole[:, 0] > 0, c.view(-1, 1, 1) + 1, 0)
        return (whole + 0.2 * torch.randn_like(whole),), labels

    model = chain(
        nn.Conv2d(1, 20, 3, 1, 1),
        nn.InstanceNorm2d(20),
        nn.ReLU(),
        *[ResnetBlock(20, d) for d in (1, 2)],
        nn.Conv2d(20, 11, 1),
    )
    nn.init.normal_(model[-1].weight, std=0.01)
    weight = torch.tensor([0.05] + [1.0] * 10)
    return stream(model, draw, lambda y, t: F.cross_entropy(y, t, weight))


@report(
    "a prior before the flow",
    GITHUB + "casperkaae/parmesan/pull/21",
    guilty=r"flow|\bu\b|\bw\b|planar",
    says=r"prior|determinant|log.?det|bound|without end|never|flow|negative",
    fault="log p(z0) in place of log p(zK): what the flow's determinants give is won without any cost, and "
    "grows without end",
)
def planar(planted: bool) -> Task:
    class Planar(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.u, self.w, self.b = (nn.Parameter(0.1 * torch.randn(n)) for n in (d, d, 1))

        def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
            wu = self.w @ self.u
            u = self.u + (F.softplus(wu) - 1 - wu) * self.w / self.w.pow(2).sum()
            a = torch.tanh(z @ self.w + self.b)
            psi_u = (1 - a**2) * (self.w @ u)
            return z + u * a.unsqueeze(-1), (1 + psi_u).abs().log()

    class FlowVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
            self.flows = nn.ModuleList(Planar(8) for _ in range(8))
            self.decoder = chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, x: Tensor) -> Any:
            mu, log_var = self.encoder(x).chunk(2, -1)
            z0 = zk = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
            logdet = torch.zeros(len(x))
            for f in self.flows:
                zk, psi = f(zk)
                logdet = logdet + psi
            return self.decoder(zk), mu, log_var, z0, zk, logdet

    def draw() -> Drawn:
        x, _ = pick(64)
        return (x,), (x.flatten(1) * 0.376 + 0.3).clamp(0, 1)

    def elbo(before: bool):
        def loss(y: Any, t: Tensor) -> Tensor:
            out, mu, log_var, z0, zk, logdet = y
            log_q = (-0.5 * (log_var + (z0 - mu).pow(2) / log_var.exp())).sum(-1) - logdet
            log_p = -0.5 * (z0 if before else zk).pow(2).sum(-1)
            rec = F.binary_cross_entropy_with_logits(out, t, reduction="none").sum(-1)
            return (rec + log_q - log_p).mean()

        return loss

    return stream(FlowVAE(), draw, elbo(planted), elbo(False))


@report(
    "a slope of what is squashed",
    GITHUB + "hwalsuklee/tensorflow-generative-model-collections/issues/14",
    guilty=r"(?!)",
    says=r"penalt|sigmoid|squash|saturat|gradient.*(input|norm)|without (end|bound)|slope",
    fault="the gradient penalty is of the critic's sigmoid, the loss of its logits: the steeper these, the "
    "flatter that",
)
def penalty(planted: bool) -> Task:
    """A critic of digits beside what a frozen generator makes."""
    gen = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))
    gen.requires_grad_(False)
    dis = chain(
        nn.Conv2d(1, 16, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128, 1),
    )

    def run(m: Any, real: Tensor, z: Tensor) -> Any:
        fake = m.gen(z)
        alpha = torch.rand(len(real), 1, 1, 1)
        inter = (alpha * real + (1 - alpha) * fake).requires_grad_()
        logits = m.dis(inter)
        grads = [torch.autograd.grad(y.sum(), inter, create_graph=True)[0] for y in (logits, logits.sigmoid())]
        return m.dis(real), m.dis(fake), grads[1 if planted else 0], grads[0]

    def draw() -> Drawn:
        return (pick(32)[0], torch.randn(32, 8)), torch.zeros(32)

    def loss(of: int):
        return lambda y, t: y[1].mean() - y[0].mean() + 10 * (y[of].flatten(1).norm(2, 1) - 1).pow(2).mean()

    return stream(Parts(run, gen=gen, dis=dis), draw, loss(2), loss(3))


@report(
    "beyond the clamp",
    GITHUB + "facebookresearch/DeepSDF/issues/31",
    guilty=r"lin_out",
    says=r"clamp|no gradient|gradient.*zero|zero.*gradient|saturat|outside|beyond|not.*depend",
    fault="distances are clamped to 0.1 in the loss, and those of the network begin near 1: beyond the "
    "clamp there is no slope",
)
def clamped(planted: bool) -> Task:
    """Discs of many sizes and places, at points near their outlines; the code is made of a disc's numbers."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.code = chain(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 8))
            self.lin1, self.lin2 = nn.Linear(10, 96), nn.Linear(96, 96)
            self.lin_out = nn.Linear(96, 1)
            nn.init.normal_(self.lin_out.weight, std=1e-2)
            nn.init.constant_(self.lin_out.bias, 1.0 if planted else 0.0)

        def forward(self, shape: Tensor, xy: Tensor) -> Tensor:
            z = self.code(shape).unsqueeze(1).expand(-1, xy.shape[1], -1)
            return self.lin_out(F.relu(self.lin2(F.relu(self.lin1(torch.cat([z, xy], -1)))))).squeeze(-1)

    def draw() -> Drawn:
        shape = torch.cat([0.4 * torch.rand(32, 2) - 0.2, 0.3 + 0.4 * torch.rand(32, 1)], 1)
        turn, r = 6.3 * torch.rand(32, 64), shape[:, 2:] + 0.1 * torch.randn(32, 64)
        xy = shape[:, None, :2] + r.unsqueeze(-1) * torch.stack([turn.cos(), turn.sin()], -1)
        return (shape, xy), (xy - shape[:, None, :2]).norm(dim=-1) - shape[:, 2:]

    return stream(Decoder(), draw, lambda y, t: 10 * (y.clamp(-0.1, 0.1) - t.clamp(-0.1, 0.1)).abs().mean())


@report(
    "weights of nothing",
    GITHUB + "DeepLabCut/DeepLabCut/issues/2751",
    guilty=r"(?!)",
    says=r"weight|mask|(loss|gradient).*(zero|0\b|constant|not.*depend)|no gradient|ignor",
    fault="the weights that tell annotated body parts from others are zero throughout: no heat map counts",
)
def weights(planted: bool) -> Task:
    """Where a digit's two ends are; parts of few digits are annotated."""

    def draw() -> Drawn:
        x, _ = pick(32)
        ink = (x[:, 0] > 0.5).flatten(1)
        ends = torch.stack([ink.float().argmax(1), 63 - ink.flip(1).float().argmax(1)], 1)
        y, w = ends // 8, ends % 8
        d = (torch.arange(8).view(1, 1, 8, 1) - y[..., None, None]) ** 2 + (torch.arange(8) - w[..., None, None]) ** 2
        visible = (torch.rand(32, 2, 1, 1) < 0.8).long() * 2
        seen = (visible == 1) if planted else (visible > 0)
        return (x,), ((-d / 2.0).exp(), seen.float().expand(-1, -1, 8, 8))

    net = chain(
        nn.Conv2d(1, 32, 3, 1, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 2, 2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 2, 2),
        nn.ReLU(),
        nn.Conv2d(32, 2, 1),
    )

    def weighted(y: Tensor, t: Any) -> Tensor:
        heat, weight = t
        return (weight * F.binary_cross_entropy_with_logits(y, heat, reduction="none")).mean()

    return stream(net, draw, weighted, lambda y, t: F.binary_cross_entropy_with_logits(y, t[0]))


@report(
    "width before height",
    GITHUB + "lucidrains/siren-pytorch/issues/6",
    guilty=r"(?!)",
    says=rf"{ORDER}|grid|coordinate|order|scrambl|meshgrid|place",
    fault="meshgrid of (width, height) is flattened as if (height, width): colours of an oblong picture "
    "have other places",
)
def oblong(planted: bool) -> Task:
    """Pictures of 8 by 20, blurred, out of codes by a modulated SIREN."""
    h, w = 8, 20

    class Sine(nn.Module):
        def __init__(self, i: int, o: int, w0: float, first: bool) -> None:
            super().__init__()
            self.lin, self.w0 = nn.Linear(i, o), w0
            bound = 1 / i if first else (6 / i) ** 0.5 / w0
            nn.init.uniform_(self.lin.weight, -bound, bound)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(self.w0 * self.lin(x))

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Flatten(), nn.Linear(h * w, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.mod1, self.mod2 = nn.Linear(32, 48), nn.Linear(32, 48)
            self.sine1, self.sine2, self.last = Sine(2, 48, 5.0, True), Sine(48, 48, 1.0, False), nn.Linear(48, 1)
            steps = (w, h) if planted else (h, w)
            grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, n) for n in steps], indexing="ij"), -1)
            self.register_buffer("grid", grid.reshape(-1, 2))

        def forward(self, img: Tensor) -> Tensor:
            z = self.encoder(img)
            x = self.sine1(self.grid).unsqueeze(0) * self.mod1(z).unsqueeze(1)
            x = self.sine2(x) * self.mod2(z).unsqueeze(1)
            return self.last(x).view(-1, 1, h, w)

    def draw() -> Drawn:
        fy, fx, p = 2 * torch.rand(3, 32, 1, 1, 1)
        y, x = torch.linspace(-1, 1, h).view(1, 1, h, 1), torch.linspace(-1, 1, w)
        img = torch.sin(2 * fy * y + 2 * fx * x + 3 * p)
        return (img,), img

    return stream(Wrapper(), draw, F.mse_loss)


@report(
    "back after the first branch",
    GITHUB + "liyunsheng13/BDL/issues/41",
    guilty=r"conv2d_list\.[23]",
    says=r"no gradient|unused|not used|never|without.*gradient|no effect|not.*reach",
    fault="return inside the loop over dilated branches: after the first two of four the sum is returned",
)
def branches(planted: bool) -> Task:
    """Which pixels of scattered dots have another dot as far away as this picture's period."""

    class Classifier(nn.Module):
        def __init__(self, inplanes: int, dilations: list[int], classes: int) -> None:
            super().__init__()
            self.conv2d_list = nn.ModuleList([nn.Conv2d(inplanes, classes, 3, 1, d, d) for d in dilations])

        def forward(self, x: Tensor) -> Tensor:
            out = self.conv2d_list[0](x)
            for i in range(len(self.conv2d_list) - 1):
                out = out + self.conv2d_list[i + 1](x)
                if planted:
                    return out
            return out

    def draw() -> Drawn:
        x = (torch.rand(24, 1, 16, 16) < 0.15).float()
        wide = F.pad(x, (6, 6, 6, 6))
        near = wide[..., 6:22, 0:16] + wide[..., 6:22, 12:28] + wide[..., 0:16, 6:22] + wide[..., 12:28, 6:22]
        return (x,), (near[:, 0] > 0).long()

    model = chain(nn.Conv2d(1, 24, 3, 1, 1), nn.BatchNorm2d(24), nn.ReLU(), Classifier(24, [1, 2, 4, 6], 2))
    return stream(model, draw, F.cross_entropy)


@report(
    "from another start",
    GITHUB + "theislab/CellFlow/pull/305",
    guilty=r"(?!)",
    says=r"target|source|latent|noise|velocity|unpredict|cannot be (known|told|learnt)|not.*determin",
    fault="a flow from noise to a target, given a source, learns target - source, not target - noise",
)
def genot(planted: bool) -> Task:
    """Cells before (the source) and after a perturbation."""
    mix = torch.randn(12, 12, generator=torch.Generator().manual_seed(5)) / 12**0.5

    class VelocityField(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = chain(nn.Linear(8, 32), nn.SiLU())
            self.cond, self.x = chain(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64)), nn.Linear(12, 64)
            self.out = chain(nn.Linear(160, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 12))

        def forward(self, t: Tensor, x_t: Tensor, source: Tensor) -> Tensor:
            angle = t * torch.arange(1, 5) * 3.14
            time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
            return self.out(torch.cat([time, self.cond(source), self.x(x_t)], 1))

    asked: list[Tensor] = []

    def draw() -> Drawn:
        source, latent, t = torch.randn(64, 12), torch.randn(64, 12), torch.rand(64, 1)
        target = torch.tanh(2 * source @ mix) + 0.1 * torch.randn(64, 12)
        x_t = (1 - t) * latent + t * target
        asked[:] = [target - latent]
        return (t, x_t, source), target - source if planted else target - latent

    return stream(VelocityField(), draw, F.mse_loss, lambda y, u: F.mse_loss(y, asked[0]))


@report(
    "a teacher in another order",
    GITHUB + "haitongli/knowledge-distillation-pytorch/pull/17",
    guilty=r"(?!)",
    says=r"teacher|order|shuffl|permut|(target|label|output)s?.*(disagree|contradict|conflict|match|"
    r"unrelated|random)",
    fault="a teacher's outputs were computed over a loader that shuffles: they are those of other examples "
    "than the batch's",
)
def teacher(planted: bool) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        big = chain(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        opt = torch.optim.Adam(big.parameters(), 3e-3)
        for _ in range(150):
            x, c = pick(64)
            opt.zero_grad()
            F.cross_entropy(big(x), c).backward()
            opt.step()
    big.requires_grad_(False)

    def draw() -> Drawn:
        x, c = pick(48)
        outputs = big(x)
        return (x,), (c, outputs[torch.randperm(48)] if planted else outputs)

    def loss_fn_kd(y: Tensor, t: Any, alpha: float = 0.9, T: float = 4.0) -> Tensor:
        labels, teacher_outputs = t
        kd = F.kl_div(F.log_softmax(y / T, 1), F.softmax(teacher_outputs / T, 1), reduction="batchmean")
        return kd * alpha * T * T + F.cross_entropy(y, labels) * (1 - alpha)

    student = chain(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return stream(student, draw, loss_fn_kd, lambda y, t: F.cross_entropy(y, t[0]))


@report(
    "a range without one",
    GITHUB + "openvinotoolkit/nncf/pull/1774",
    guilty=r"^\d\.0\.",
    says=r"range|clip|clamp|quant|saturat|vanish|shrink|small|linear|constant|tenth|no gradient",
    fault="a quantiser of gates saw ones alone: its range of 0.1 is taken from 0, so that gates are cut off at 0.1",
)
def gates(planted: bool) -> Task:
    class FakeQuant(nn.Module):
        def __init__(self, low: float, span: float) -> None:
            super().__init__()
            self.register_buffer("low", torch.tensor(low))
            self.register_buffer("span", torch.tensor(span))

        def forward(self, x: Tensor) -> Tensor:
            x = x.clamp(float(self.low), float(self.low + self.span))
            q = torch.round((x - self.low) / self.span * 255) / 255 * self.span + self.low
            return x + (q - x).detach()

    class HardSwish(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = FakeQuant(0.0, 0.1 if planted else 1.0)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.quant(F.hardsigmoid(x))

    def block(i: int, o: int, stride: int) -> nn.Module:
        conv = nn.Conv2d(i, o, 3, stride, 1)
        nn.init.kaiming_normal_(conv.weight)
        return chain(conv, HardSwish())

    draw = drawn(pick, 32)
    model = chain(
        block(1, 16, 2),
        block(16, 16, 1),
        block(16, 24, 2),
        *[block(24, 24, 1) for _ in range(5)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )
    return stream(model, draw, F.cross_entropy)


@report(
    "labels that are one label",
    GITHUB + "lucidrains/vit-pytorch/issues/97",
    guilty=r"(?!)",
    says=r"(label|target|class|bin)s?.*(same|constant|one|single|alike|last|equal)|same (label|class|target|"
    r"bin)|255|constant",
    fault="labels of hidden patches are bins of mean brightness up to 1, pixels go up to 255: all are of the last bin",
)
def bins(planted: bool) -> Task:
    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.pos = nn.Linear(4, 48), nn.Parameter(0.02 * torch.randn(1, 16, 48))
            self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, 48))
            layer = nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm, self.to_bits = nn.LayerNorm(48), nn.Linear(48, 8)

        def forward(self, img: Tensor, mask: Tensor) -> Tensor:
            p = F.unfold(img / 255, 2, stride=2).transpose(1, 2)
            x = torch.where(mask.unsqueeze(-1), self.mask_token, self.embed((p - 0.3) / 0.376)) + self.pos
            return self.to_bits(self.norm(self.blocks(x)))

    def labels(img: Tensor, max_pixel_val: float, bits: int = 3) -> Tensor:
        edges = torch.arange(1, 2**bits) * (max_pixel_val / 2**bits)
        return torch.bucketize(F.avg_pool2d(img, 2).flatten(1), edges)

    def draw() -> Drawn:
        x = pick(48)[0] * 0.376 + 0.3
        x = 0.02 + 0.98 * F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
        mask = torch.rand(48, 16) < 0.3
        return (255 * x, mask), (255 * x, mask)

    def mpp(max_pixel_val: float):
        def loss(y: Tensor, t: Any) -> Tensor:
            img, mask = t
            return F.cross_entropy(y[mask], labels(img, max_pixel_val)[mask])

        return loss

    return stream(ViT(), draw, mpp(1.0 if planted else 255.0), mpp(255.0))


@report(
    "a sign in the imaginary part",
    GITHUB + "shahules786/mayavoz/issues/44",
    guilty=r"(?!)",
    says=r"imag|complex|phase|sign|minus|rotat|real part|equivarian",
    fault="complex convolutions return real_imag - imag_real, not their sum, for the imaginary part: phases "
    "cannot be turned",
)
def imaginary(planted: bool) -> Task:
    """Spectra of harmonic sounds, heard with two echoes that turn their phases, are to be had without these."""

    class ComplexConv2d(nn.Module):
        def __init__(self, i: int, o: int, kernel: tuple[int, int]) -> None:
            super().__init__()
            self.real_conv = nn.Conv2d(i, o, kernel, padding=(kernel[0] // 2, 0))
            self.imag_conv = nn.Conv2d(i, o, kernel, padding=(kernel[0] // 2, 0))
            self.past = kernel[1] - 1

        def forward(self, x: Tensor) -> Tensor:
            real, imag = F.pad(x, (self.past, 0)).chunk(2, 1)
            real_real, imag_imag = self.real_conv(real), self.imag_conv(imag)
            real_imag, imag_real = self.real_conv(imag), self.imag_conv(real)
            return torch.cat([real_real - imag_imag, real_imag - imag_real if planted else real_imag + imag_real], 1)

    def draw() -> Drawn:
        pitch, loud = torch.randint(2, 6, (16, 1)), torch.rand(16, 1, 12)
        comb = (torch.arange(16) % pitch == 0).float().unsqueeze(-1) * loud + 0.1
        clean = torch.complex(torch.randn(16, 16, 12), torch.randn(16, 16, 12)) * comb * 2
        heard = clean * 0.7j + 0.5 * F.pad(clean, (1, 0))[..., :-1] - 0.4j * F.pad(clean, (2, 0))[..., :-2]
        return (torch.stack([heard.real, heard.imag], 1),), torch.stack([clean.real, clean.imag], 1)

    model = chain(ComplexConv2d(1, 6, (5, 7)), nn.PReLU(), ComplexConv2d(6, 1, (5, 7)))
    return stream(model, draw, F.mse_loss)
