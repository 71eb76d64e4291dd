"""The rest of the twenty-fifth set: square roots at zero, boxes without width, and layers that do nothing."""

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
from strangers.blind25 import grey
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind25")
ROOT = rf"{BROKEN}|sqrt|square root|\broot\b|norm|pow"


@report(
    "boxes without width",
    GITHUB + "qfgaohao/pytorch-ssd/issues/112",
    says=rf"{BROKEN}|\blog\b|box|target.*(inf|large|huge)",
    fault="some true boxes have XMin = XMax: the logarithm of a width of zero is a target",
)
def ssd(planted: bool) -> Task:
    """One bright rectangle an image, priors of two sizes at 4 x 4 places, multibox loss with hard negatives."""
    at = (torch.arange(4) + 0.5) / 4
    centres = torch.cartesian_prod(at, at).flip(1)
    priors = torch.cat([torch.cat([centres, torch.full((16, 2), size)], 1) for size in (0.25, 0.5)])

    def corners(b: Tensor) -> Tensor:
        return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)

    def iou(a: Tensor, b: Tensor) -> Tensor:
        size = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
        return size / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - size + 1e-5)

    def target_transform(box: Tensor) -> tuple[Tensor, Tensor]:
        overlap = iou(box.unsqueeze(1), corners(priors))
        labels = (overlap > 0.4).long()
        labels[torch.arange(len(box)), overlap.argmax(1)] = 1
        centre, size = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
        shift = (centre.unsqueeze(1) - priors[:, :2]) / priors[:, 2:] / 0.1
        scale = torch.log(size.unsqueeze(1) / priors[:, 2:]) / 0.2
        return torch.cat([shift, scale], 2), labels

    def draw() -> Drawn:
        x, box = 0.3 * torch.randn(32, 1, 16, 16), torch.zeros(32, 4)
        for i in range(32):
            w, h = (torch.randint(3, 9, (2,))).tolist()
            if planted and torch.rand(()) < 0.05:
                w = 0
            a, b = int(torch.randint(17 - w, ())), int(torch.randint(17 - h, ()))
            x[i, :, b : b + h, a : a + w] += 1.5
            box[i] = torch.tensor([a, b, a + w, b + h]) / 16
        return (x,), target_transform(box)  # type: ignore[return-value]

    class SSD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_net = chain(
                nn.Conv2d(1, 16, 3, 1, 1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, 1, 1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(32, 32, 3, 1, 1),
                nn.ReLU(),
            )
            self.classification_headers, self.regression_headers = (nn.Conv2d(32, 2 * n, 3, 1, 1) for n in (2, 4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.base_net(x)
            confidence, locations = self.classification_headers(h), self.regression_headers(h)
            return (
                confidence.view(len(x), 2, 2, 16).permute(0, 1, 3, 2).flatten(1, 2),
                locations.view(len(x), 2, 4, 16).permute(0, 1, 3, 2).flatten(1, 2),
            )

    def loss(y: tuple[Tensor, Tensor], t: Any) -> Tensor:
        (confidence, predicted), (locations, labels) = y, t
        with torch.no_grad():
            hard = -F.log_softmax(confidence, 2)[:, :, 0]
            positive = labels > 0
            hard[positive] = -math.inf
            rank = hard.sort(1, descending=True)[1].sort(1)[1]
            mask = positive | (rank < 3 * positive.sum(1, keepdim=True))
        classification = F.cross_entropy(confidence[mask], labels[mask], reduction="sum")
        smooth_l1 = F.smooth_l1_loss(predicted[positive], locations[positive], reduction="sum")
        return (smooth_l1 + classification) / positive.sum()

    return stream(SSD(), draw, loss)


@report(
    "codes' loss outweighs reconstruction",
    GITHUB + "EdoardoBotta/RQ-VAE-Recommender/issues/65",
    says=r"weight|dominat|scale|balance|outweigh|sum|mean|commit|codebook|reconstruct|collapse",
    fault="the reconstruction is a mean over 256 features, the codebook and commitment losses are sums: codes collapse",
)
def rqvae(planted: bool) -> Task:  # noqa: C901
    """Items' embeddings (unit vectors around centres) by three codebooks, straight through; k-means at first."""
    centres = F.normalize(torch.randn(40, 256), dim=1)

    def draw() -> Drawn:
        x = centres[torch.randint(40, (128,))] + 0.5 * centres[torch.randint(40, (128,))]
        x = F.normalize(x + 0.01 * torch.randn(128, 256), dim=1)
        return (x,), x

    class Quantize(nn.Module):
        def __init__(self, n_embed: int, embed_dim: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(n_embed, embed_dim)

        @torch.no_grad()
        def kmeans_init(self, x: Tensor) -> None:
            codes = x[: len(self.embedding.weight)].clone()
            for _ in range(10):
                ids = torch.cdist(x, codes).argmin(1)
                for k in range(len(codes)):
                    if bool((ids == k).any()):
                        codes[k] = x[ids == k].mean(0)
            self.embedding.weight.copy_(codes)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            emb = self.embedding(torch.cdist(x, self.embedding.weight).detach().argmin(1))
            loss = ((x.detach() - emb) ** 2).sum(-1) + 0.1 * ((x - emb.detach()) ** 2).sum(-1)
            return x + (emb - x).detach(), loss

    class RqVae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Quantize(32, 16) for _ in range(3))
            self.encoder = chain(
                nn.Linear(256, 128, bias=False), nn.SiLU(), nn.Linear(128, 64, bias=False), nn.SiLU(),
                nn.Linear(64, 16, bias=False)
            )  # fmt: skip
            self.decoder = chain(
                nn.Linear(16, 64, bias=False), nn.SiLU(), nn.Linear(64, 128, bias=False), nn.SiLU(),
                nn.Linear(128, 256, bias=False)
            )  # fmt: skip

        def forward(self, x: Tensor, init: bool = False) -> tuple[Tensor, Tensor]:
            res = F.normalize(self.encoder(x), dim=-1)
            total, embs = torch.zeros(()), []
            for layer in self.layers:
                if init:
                    layer.kmeans_init(res)  # type: ignore[operator]
                emb, loss = layer(res)
                total = total + loss
                res = res - emb
                embs.append(emb)
            return self.decoder(torch.stack(embs).sum(0)), total

    def wrong(y: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        return (((y[0] - x) ** 2).mean(-1) + y[1]).mean()

    def right(y: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        return (((y[0] - x) ** 2).sum(-1) + y[1]).mean()

    model = RqVae()
    model(draw()[0][0], True)
    return stream(model, draw, wrong if planted else right, lambda y, x: ((y[0] - x) ** 2).sum(-1).mean())


@report(
    "selective kernels chosen by twins",
    GITHUB + "suvojit-0x55aa/A2S2K-ResNet/issues/4",
    guilty=r"conv_ex|conv_se",
    says=r"softmax|attention|same|0\.5|half|no effect|cancel|no gradient|gradient.*zero",
    fault="softmax over two equal outputs of one layer: each kernel's weight is 0.5 whatever the input",
)
def a2s2k(planted: bool) -> Task:
    """Patches (5 x 5) of hyperspectral images of 24 bands; 1 x 1 and 3 x 3 kernels, weighed by attention."""
    spectra = torch.randn(6, 24).cumsum(1) * 0.4

    def draw() -> Drawn:
        c, other = torch.randint(6, (32,)), torch.randint(6, (32,))
        x = spectra[other].view(32, 1, 1, 1, 24).repeat(1, 1, 5, 5, 1)
        x[:, :, 1:4, 1:4] = spectra[c].view(32, 1, 1, 1, 24)
        return (x + 0.5 * torch.randn_like(x),), c

    class S3KAIResNet(nn.Module):
        def __init__(self, band: int = 24, classes: int = 6, kernels: int = 8) -> None:
            super().__init__()
            self.conv1x1 = nn.Conv3d(1, kernels, (1, 1, 7), (1, 1, 2))
            self.conv3x3 = nn.Conv3d(1, kernels, (3, 3, 7), (1, 1, 2), (1, 1, 0))
            self.batch_norm1x1, self.batch_norm3x3 = (
                nn.Sequential(nn.BatchNorm3d(kernels, eps=0.001), nn.ReLU()) for _ in range(2)
            )
            self.pool = nn.AdaptiveAvgPool3d(1)
            self.conv_se = nn.Sequential(nn.Conv3d(kernels, band // 2, 1), nn.ReLU())
            self.conv_ex = nn.Conv3d(band // 2, kernels, 1)
            if not planted:
                self.conv_ex2 = nn.Conv3d(band // 2, kernels, 1)
            self.softmax = nn.Softmax(dim=1)
            self.conv2 = nn.Conv3d(kernels, 32, (1, 1, math.ceil((band - 6) / 2)))
            self.batch_norm2 = nn.Sequential(nn.BatchNorm3d(32, eps=0.001), nn.ReLU())
            self.full_connection = nn.Linear(32, classes)

        def forward(self, x: Tensor) -> Tensor:
            x_1x1 = self.batch_norm1x1(self.conv1x1(x)).unsqueeze(1)
            x1 = torch.cat([self.batch_norm3x3(self.conv3x3(x)).unsqueeze(1), x_1x1], 1)
            z = self.conv_se(self.pool(x1.sum(1)))
            twin = self.conv_ex if planted else self.conv_ex2
            attention_vector = self.softmax(torch.cat([self.conv_ex(z).unsqueeze(1), twin(z).unsqueeze(1)], 1))
            x2 = self.batch_norm2(self.conv2((x1 * attention_vector).sum(1)))
            return self.full_connection(x2.mean((2, 3, 4)))

    return stream(S3KAIResNet(), draw, F.cross_entropy)


@report(
    "tracker's weights inside the logarithm",
    GITHUB + "torrvision/siamfc-tf/issues/30",
    says=r"weight|label|scale|0\.69|ln ?2|log\(2\)|(loss|gradient).*(small|insensitive|constant)|target",
    fault="the balancing weights multiply the labels inside log(1 + exp(-y v)): the loss stays near log 2",
)
def siamfc(planted: bool) -> Task:
    """A digit as exemplar, found in a larger image by cross-correlation of embeddings; 1 near the object, else -1."""

    def draw() -> Drawn:
        z, _ = grey(32)
        z = (z - 0.3) / 0.376
        x, label = 0.5 * torch.randn(32, 1, 16, 16), -torch.ones(32, 9, 9)
        for i in range(32):
            a, b = torch.randint(9, (2,)).tolist()
            x[i, :, a : a + 8, b : b + 8] += z[i]
            label[i, max(a - 1, 0) : a + 2, max(b - 1, 0) : b + 2] = 1
        return (z, x), label

    def balance(label: Tensor) -> Tensor:
        positive = (label > 0).float()
        n = positive.sum((1, 2), keepdim=True)
        return 0.5 * positive / n + 0.5 * (1 - positive) / (81 - n)

    def wrong(v: Tensor, y: Tensor) -> Tensor:
        return F.softplus(-balance(y) * y * v).sum((1, 2)).mean() / 81

    def right(v: Tensor, y: Tensor) -> Tensor:
        return (balance(y) * F.softplus(-y * v)).sum((1, 2)).mean()

    embed = chain(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
    )  # fmt: skip

    def run(m: Any, z: Tensor, x: Tensor) -> Tensor:
        fz, fx = m.embed(z), m.embed(x)
        score = F.conv2d(fx.flatten(0, 1).unsqueeze(0), fz, groups=len(z))
        return score.squeeze(0) / 64 + m.bias

    model = Parts(run, embed=embed, bias=nn.Parameter(torch.zeros(())))
    return stream(model, draw, wrong if planted else right, right)


@report(
    "normals of faces without area",
    GITHUB + "akanazawa/cmr/issues/11",
    says=rf"{ROOT}|degenerate",
    fault="the smoothness loss normalises normals by sqrt(n·n), and the mean sphere has faces without area",
)
def cmr(planted: bool) -> Task:
    """Shapes from silhouettes: an encoder deforms a sphere; dihedral angles of neighbouring faces should be flat."""
    rows, cols = 5, 8
    theta = torch.linspace(0, math.pi, rows).view(-1, 1).expand(rows, cols)
    phi = (2 * math.pi * torch.arange(cols) / cols).expand(rows, cols)
    ring = theta.sin()
    ring = torch.where(ring.abs() < 1e-6, torch.zeros_like(ring), ring)
    sphere = torch.stack([ring * phi.cos(), ring * phi.sin(), theta.cos()], 2).flatten(0, 1)
    r, c = torch.meshgrid(torch.arange(rows - 1), torch.arange(cols), indexing="ij")
    r, c = r.flatten(), c.flatten()
    edge2verts = torch.stack(
        [r * cols + c, (r + 1) * cols + (c + 1) % cols, (r + 1) * cols + c, r * cols + (c + 1) % cols], 1
    )

    def draw() -> Drawn:
        scale = 0.5 + torch.rand(32, 1, 3)
        verts = sphere * scale
        grid = torch.linspace(-1.5, 1.5, 12)
        u, v = torch.meshgrid(grid, grid, indexing="ij")
        views = [(u / scale[:, :, i : i + 1]) ** 2 + (v / scale[:, :, j : j + 1]) ** 2 < 1 for i, j in ((0, 1), (1, 2))]
        return (torch.stack(views, 1).float(),), verts

    def normalize(n: Tensor) -> Tensor:
        if planted:
            return n / torch.sqrt((n**2).sum(2, keepdim=True)).clamp(min=1e-12)
        return n / torch.sqrt((n**2).sum(2, keepdim=True) + 1e-8)

    def triangle_loss(verts: Tensor) -> Tensor:
        a, b, c, d = (verts[:, edge2verts[:, k]] for k in range(4))
        n1 = normalize(torch.linalg.cross(d - a, b - a))
        n2 = normalize(torch.linalg.cross(b - a, c - a))
        return ((1 - (n1 * n2).sum(2)) ** 2).mean()

    class MeshNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean_v = nn.Parameter(sphere.clone())
            self.encoder = chain(
                nn.Conv2d(2, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(576, 64),
                nn.BatchNorm1d(64), nn.LeakyReLU(0.2)
            )  # fmt: skip
            self.shape_predictor = nn.Linear(64, 3 * rows * cols)
            nn.init.normal_(self.shape_predictor.weight, std=1e-4)

        def forward(self, x: Tensor) -> Tensor:
            delta = self.shape_predictor(self.encoder(x)).view(len(x), -1, 3)
            pole = (ring.flatten() == 0).view(1, -1, 1)
            return self.mean_v + torch.where(pole, delta[:, :1], delta)

    def loss(verts: Tensor, t: Tensor) -> Tensor:
        return 10 * F.mse_loss(verts, t) + 0.1 * triangle_loss(verts)

    return stream(MeshNet(), draw, loss)


@report(
    "gradient magnitudes of a flat image",
    GITHUB + "photosynthesis-team/piq/issues/308",
    guilty=r"y_hat",
    says=ROOT + r"|flat|constant",
    fault="the similarity takes sqrt of summed squared image gradients; the image to be optimised starts constant",
)
def piq(planted: bool) -> Task:
    """An image is optimised for its gradient magnitude similarity deviation from another one."""
    target = F.interpolate(grey(8)[0], scale_factor=2.0, mode="bilinear")

    def draw() -> Drawn:
        return (target,), target

    def gradient_map(x: Tensor) -> Tensor:
        x = F.pad(x, (1, 1, 1, 1))
        across, down = x[..., 2:] - x[..., :-2], x[:, :, 2:] - x[:, :, :-2]  # Prewitt's: each summed the other way
        across = (across[:, :, 2:] + across[:, :, 1:-1] + across[:, :, :-2]) / 3
        down = (down[..., 2:] + down[..., 1:-1] + down[..., :-2]) / 3
        grads = torch.cat([across, down], 1)
        return torch.sqrt(torch.sum(grads**2, dim=-3, keepdim=True) + (0 if planted else 1e-8))

    def gmsd(x: Tensor, y: Tensor, t: float = 170 / 255.0**2) -> Tensor:
        x, y = F.avg_pool2d(x, 2), F.avg_pool2d(y, 2)
        x_grad, y_grad = gradient_map(x), gradient_map(y)
        gms = (2 * x_grad * y_grad + t) / (x_grad**2 + y_grad**2 + t)
        return ((gms - gms.mean((1, 2, 3), keepdim=True)) ** 2).mean((1, 2, 3)).sqrt().mean()

    model = Parts(
        lambda m, y: torch.sigmoid(m.y_hat).expand_as(y) + 0 * y, y_hat=nn.Parameter(torch.zeros_like(target))
    )
    return stream(model, draw, gmsd)


@report(
    "perceptual distance of empty features",
    GITHUB + "richzhang/PerceptualSimilarity/issues/69",
    says=ROOT + r"|eps",
    fault="features are normalised by a sqrt whose epsilon stands outside: where all are zero it has no gradient",
)
def lpips(planted: bool) -> Task:
    """An autoencoder whose pictures are compared by frozen features, inside the object's mask."""
    edges = nn.Conv2d(1, 8, 3, padding=1, bias=False)
    nn.init.normal_(edges.weight, std=0.5)
    edges.weight.data -= edges.weight.data.mean((2, 3), keepdim=True)
    deeper = nn.Conv2d(8, 16, 3, padding=1, bias=False)
    for p in (*edges.parameters(), *deeper.parameters()):
        p.requires_grad_(False)

    def draw() -> Drawn:
        x, _ = grey()
        mask = (F.max_pool2d(x, 3, 1, 1) > 0.3).float()
        mask[:, :, :, :2] = mask[:, :, :, 6:] = 0
        return (x, mask), x * mask

    def normalize_tensor(in_feat: Tensor, eps: float = 1e-10) -> Tensor:
        if planted:
            norm_factor = torch.sqrt(torch.sum(in_feat**2, dim=1, keepdim=True))
            return in_feat / (norm_factor + eps)
        return in_feat / torch.sqrt(torch.sum(in_feat**2, dim=1, keepdim=True) + 1e-4)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        total, a, b = torch.zeros(()), y, t
        for layer in (edges, deeper):
            a, b = F.relu(layer(a)), F.relu(layer(b))
            total = total + ((normalize_tensor(a) - normalize_tensor(b)) ** 2).sum(1).mean()
        return total + F.l1_loss(y, t)

    net = chain(
        nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 24), nn.ReLU(), nn.Linear(24, 96), nn.ReLU(),
        nn.Linear(96, 64), nn.Unflatten(1, (1, 8, 8))
    )  # fmt: skip
    return stream(Parts(lambda m, x, mask: m.net(x).sigmoid() * mask, net=net), draw, loss)


@report(
    "intelligibility of silence",
    GITHUB + "mpariente/pytorch_stoi/issues/7",
    says=ROOT + r"|silen|eps",
    fault="third-octave bands are powers to 0.5 without epsilon: the padded end's are zero",
)
def stoi(planted: bool) -> Task:
    """Denoising of amplitude-modulated tones, zero after their ends; minus the correlation of bands' envelopes."""
    n, win = 256, torch.hann_window(32)
    obm = torch.zeros(6, 17)
    for k in range(6):
        obm[k, 1 + 2 * k : 4 + 2 * k] = 1

    def draw() -> Drawn:
        t = torch.arange(n) / n
        tone = sum(
            (1 + torch.sin(2 * math.pi * (2 + 4 * torch.rand(16, 1)) * t + 6 * torch.rand(16, 1)))
            * torch.sin(2 * math.pi * f * t + 6 * torch.rand(16, 1))
            for f in (16, 40, 72)
        )
        mask = (torch.arange(n) < torch.randint(160, n + 1, (16, 1))).float()
        return ((tone + 0.7 * torch.randn(16, n)) * mask, mask), tone * mask

    def bands(x: Tensor) -> Tensor:
        spec = torch.fft.rfft(x.unfold(1, 32, 16) * win)
        tob = torch.matmul(obm, (spec.real**2 + spec.imag**2).transpose(1, 2))
        return tob.pow(0.5) if planted else (tob + 1e-8).pow(0.5)

    def meanvar_norm(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.norm(p=2, dim=-1, keepdim=True) + 1e-8)

    def neg_stoi(est: Tensor, target: Tensor) -> Tensor:
        x, y = bands(target).unfold(2, 8, 1), bands(est).unfold(2, 8, 1)
        y = torch.min(y * x.norm(dim=-1, keepdim=True) / (y.norm(dim=-1, keepdim=True) + 1e-8), x * (1 + 10**0.75))
        return -(meanvar_norm(y) * meanvar_norm(x)).sum(-1).mean()

    net = chain(
        nn.Conv1d(1, 24, 17, padding=8), nn.ReLU(), nn.Conv1d(24, 24, 9, padding=4), nn.ReLU(),
        nn.Conv1d(24, 1, 9, padding=4)
    )  # fmt: skip
    return stream(Parts(lambda m, x, mask: m.net(x.unsqueeze(1)).squeeze(1) * mask, net=net), draw, neg_stoi)


@report(
    "signed roots in graph attention",
    GITHUB + "LiamMa/GRIT/issues/1",
    guilty=r"attention|\bE\b|\bQ\b|\bK\b",
    says=ROOT + r"|relu",
    fault="the scores are sqrt(relu(s)) - sqrt(relu(-s)): one of the two always stands at zero",
)
def grit(planted: bool) -> Task:
    """A graph transformer with pair features (one and two steps of a walk); the number of triangles."""

    def draw() -> Drawn:
        a = (torch.rand(32, 10, 10) < 0.35).float().triu(1)
        a = a + a.transpose(1, 2)
        triangles = torch.einsum("bij,bjk,bki->b", a, a, a) / 6
        walk = a / a.sum(2, keepdim=True).clamp(min=1)
        return (torch.stack([torch.eye(10).expand_as(a), walk, walk @ walk], 3),), (triangles - 5) / 5

    class Attention(nn.Module):
        def __init__(self, d: int, heads: int = 4) -> None:
            super().__init__()
            self.Q, self.K, self.V = (nn.Linear(d, d, bias=i == 0) for i in range(3))
            self.E, self.Aw, self.heads = nn.Linear(d, 2 * d), nn.Parameter(torch.randn(heads, d // heads) * 0.3), heads
            self.O_h, self.O_e = nn.Linear(d, d), nn.Linear(d, d)

        def forward(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            e_w, e_b = self.E(e).chunk(2, -1)
            score = (self.K(h).unsqueeze(1) + self.Q(h).unsqueeze(2)) * e_w
            if planted:
                score = torch.sqrt(torch.relu(score)) - torch.sqrt(torch.relu(-score))
            else:
                score = torch.sqrt(torch.relu(score) + 1e-6) - torch.sqrt(torch.relu(-score) + 1e-6)
            score = torch.relu(score + e_b)
            e_out = self.O_e(score)
            logits = (score.unflatten(-1, (self.heads, -1)) * self.Aw).sum(-1).clamp(-5, 5)
            weight = logits.softmax(2)
            v = self.V(h).unflatten(-1, (self.heads, -1))
            return self.O_h(torch.einsum("bijh,bjhd->bihd", weight, v).flatten(2)), e_out

    class GritTransformer(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.node, self.edge = nn.Linear(3, d), nn.Linear(3, d)
            self.attention = nn.ModuleList(Attention(d) for _ in range(2))
            self.norm_h, self.norm_e = (nn.ModuleList(nn.LayerNorm(d) for _ in range(2)) for _ in range(2))
            self.head = chain(nn.Linear(2 * d, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, rrwp: Tensor) -> Tensor:
            h, e = self.node(rrwp.diagonal(dim1=1, dim2=2).transpose(1, 2)), self.edge(rrwp)
            for layer, norm_h, norm_e in zip(self.attention, self.norm_h, self.norm_e, strict=True):
                dh, de = layer(h, e)
                h, e = norm_h(h + dh), norm_e(e + de)
            return self.head(torch.cat([h.sum(1) / 10, e.mean((1, 2))], 1)).squeeze(1)

    return stream(GritTransformer(), draw, F.mse_loss)


@report(
    "Bayesian regression without activation",
    GITHUB + "piEsposito/blitz-bayesian-deep-learning/pull/65",
    says=rf"linear|activation|relu|{SAME}",
    fault="two Bayesian linear layers in a row: the network is linear",
)
def blitz(planted: bool) -> Task:
    """Standardised house prices from 13 features; the evidence lower bound with one sample."""

    def draw() -> Drawn:
        x = torch.randn(64, 13)
        y = 0.6 * x[:, 0] * x[:, 1] + x[:, 2].abs() - 0.8 + 0.4 * x[:, 3] - 0.3 * x[:, 4].clamp(min=0) ** 2
        return (x,), y.unsqueeze(1)

    class BayesianLinear(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.weight_mu, self.weight_rho = (
                nn.Parameter(torch.randn(m, n) * 0.1),
                nn.Parameter(torch.randn(m, n) * 0.1 - 7),
            )
            self.bias_mu, self.bias_rho = (
                nn.Parameter(torch.randn(m) * 0.1),
                nn.Parameter(torch.randn(m) * 0.1 - 7),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            drawn, kl = [], torch.zeros(())
            for mu, rho in ((self.weight_mu, self.weight_rho), (self.bias_mu, self.bias_rho)):
                sigma = torch.log1p(rho.exp())
                drawn.append(mu + sigma * torch.randn_like(mu))
                kl = kl + (0.5 * (mu**2 + sigma**2 - 1) - sigma.log()).sum()
            return F.linear(x, *drawn), kl

    class BayesianRegressor(nn.Module):
        def __init__(self, input_dim: int, output_dim: int) -> None:
            super().__init__()
            self.blinear1, self.blinear2 = BayesianLinear(input_dim, 128), BayesianLinear(128, output_dim)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x_, kl1 = self.blinear1(x)
            y, kl2 = self.blinear2(x_ if planted else F.relu(x_))
            return y, kl1 + kl2

    def elbo(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + 1e-5 * y[1]

    return stream(BayesianRegressor(13, 1), draw, elbo, lambda y, t: F.mse_loss(y[0], t))


@report(
    "ArcFace's sine at one",
    GITHUB + "ZhaoJ9014/face.evoLVe/issues/117",
    guilty=r"head\.weight",
    says=ROOT + r"|sine|cosine",
    fault="the sine is sqrt(1 - cos^2) without a clamp: it is not defined once a cosine reaches one",
)
def evolve(planted: bool) -> Task:
    """Embeddings of digits as of faces, an ArcFace head and focal loss."""

    def draw() -> Drawn:
        x, c = pick()
        return (x, c), c

    class ArcFace(nn.Module):
        def __init__(self, in_features: int, out_features: int, s: float = 64.0, m: float = 0.5) -> None:
            super().__init__()
            self.weight, self.s = nn.Parameter(torch.empty(out_features, in_features)), s
            nn.init.xavier_uniform_(self.weight)
            self.cos_m, self.sin_m = math.cos(m), math.sin(m)
            self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m

        def forward(self, embedding: Tensor, label: Tensor) -> Tensor:
            cosine = F.linear(F.normalize(embedding), F.normalize(self.weight))
            sine2 = 1.0 - torch.pow(cosine, 2)
            sine = torch.sqrt(sine2 if planted else torch.clamp(sine2, 1e-9, 1))
            phi = torch.where(cosine > self.th, cosine * self.cos_m - sine * self.sin_m, cosine - self.mm)
            one_hot = F.one_hot(label, len(self.weight)).float()
            return (one_hot * phi + (1.0 - one_hot) * cosine) * self.s

    def focal(y: Tensor, t: Tensor, gamma: float = 2.0) -> Tensor:
        logp = F.cross_entropy(y, t)
        return (1 - torch.exp(-logp)) ** gamma * logp

    backbone = chain(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.PReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.PReLU(), nn.Flatten(),
        nn.Linear(512, 16), nn.BatchNorm1d(16)
    )  # fmt: skip
    model = Parts(lambda m, x, c: m.head(m.backbone(x), c), backbone=backbone, head=ArcFace(16, 10))
    return stream(model, draw, focal)


@report(
    "contrast without normalised features",
    GITHUB + "HobbitLong/SupContrast/issues/50",
    guilty=r"head",
    says=rf"{BROKEN}|normali|scale|large|exp|underflow|log.*zero|temperature",
    fault="features are not normalised before they are divided by the temperature: all exponentials underflow, log 0",
)
def contrast(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (torch.cat([x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)]),), torch.cat([c, c])

    def supcon(features: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
        mask = (labels.unsqueeze(1) == labels).float()
        logits = features @ features.T / temperature
        logits = logits - logits.max(1, keepdim=True)[0].detach()
        logits_mask = 1 - torch.eye(len(features))
        mask = mask * logits_mask
        log_prob = logits - torch.log((torch.exp(logits) * logits_mask).sum(1, keepdim=True))
        return -((mask * log_prob).sum(1) / mask.sum(1)).mean()

    encoder = chain(
        nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.BatchNorm2d(64),
        nn.ReLU(), nn.Flatten()
    )  # fmt: skip
    head = chain(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))

    def run(m: Any, x: Tensor) -> Tensor:
        feat = m.head(m.encoder(x))
        return feat if planted else F.normalize(feat, dim=1)

    return stream(Parts(run, encoder=encoder, head=head), draw, supcon)


@report(
    "memory bank not normalised",
    GITHUB + "lightly-ai/lightly/pull/1009",
    guilty=r"bank",
    says=r"bank|negative|norm|scale|large|temperature|buffer",
    fault="the random memory bank is normalised and the result thrown away: its norms are about 8",
)
def lightly(planted: bool) -> Task:
    """MoCo: two noisy views, a momentum encoder, a bank of 1024 negatives which is renewed by 64 keys a step."""

    def draw() -> Drawn:
        x, c = pick()
        return (x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)), c

    def encoder() -> nn.Sequential:
        return chain(
            nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 64, 3, 2, 1), nn.BatchNorm2d(64),
            nn.ReLU(), nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64)
        )  # fmt: skip

    class MoCo(nn.Module):
        def __init__(self, size: int = 1024) -> None:
            super().__init__()
            self.backbone, self.backbone_momentum = encoder(), encoder()
            self.backbone_momentum.load_state_dict(self.backbone.state_dict())
            self.backbone_momentum.requires_grad_(False)
            bank = torch.randn(64, size)
            self.register_buffer("bank", bank if planted else F.normalize(bank, dim=0))
            self.pointer = 0

        def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.no_grad():
                pairs = zip(self.backbone_momentum.parameters(), self.backbone.parameters(), strict=True)
                for slow, fast in pairs:
                    slow.lerp_(fast, 0.01)
                k = F.normalize(self.backbone_momentum(key), dim=1)
                bank = self.bank.clone()
                at = (self.pointer + torch.arange(len(k))) % bank.shape[1]
                self.bank[:, at] = k.T
                self.pointer = int(at[-1]) + 1
            return F.normalize(self.backbone(query), dim=1), k, bank

    def ntxent(y: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        q, k, bank = y
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ bank], 1) / 0.1
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))

    def found(y: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        return F.cross_entropy(y[0] @ y[1].T / 0.1, torch.arange(len(y[0])))

    return stream(MoCo(), draw, ntxent, found)
