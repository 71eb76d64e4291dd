"""A forty-ninth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind49")


def large(count: int, size: int = 16) -> tuple[Tensor, Tensor]:
    """Images (count, 1, size, size) of digits from 0 to 1, and their classes."""
    x, c = pick(count)
    return F.interpolate((x * 0.376 + 0.3).clamp(0, 1), size=(size, size), mode="bilinear"), c


@report(
    "perceptual loss on pixels to 255",
    GITHUB + "gordicaleksa/pytorch-neural-style-transfer-johnson/issues/2",
    says=r"255|(input|image|pixel|feature|activation|output)s?.*(large|scale|range|normali|standardi)|"
    r"loss.*(large|huge|dominat|scale|outweigh)|dominat|outweigh",
    fault="images of 0 to 255 enter the VGG of the perceptual loss, made for normalised ones: style loss of 1e9",
)
def johnson(planted: bool) -> Task:
    """A transformer net after Johnson; content and style losses of frozen features; weights for normalised images."""
    vgg = nn.ModuleList(
        [
            chain(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU()),
            chain(nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU()),
        ]
    )
    for p in vgg.parameters():
        nn.init.kaiming_normal_(p) if p.dim() > 1 else nn.init.zeros_(p)
        p.requires_grad_(False)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)

    def gram(x: Tensor) -> Tensor:
        x = x.flatten(2)
        return x @ x.transpose(1, 2) / (x.shape[1] * x.shape[2])

    def perceptual(y: Tensor, t: Tensor, *, normalise: bool) -> Tensor:
        features = []
        for image in (y, t, style):
            x = (image / 255 - mean) / std if normalise else image
            found = []
            for part in vgg:
                x = part(x)
                found.append(x)
            features.append(found)
        content = F.mse_loss(features[0][1], features[1][1])
        pairs = zip(features[0], features[2], strict=True)
        styles = [F.mse_loss(gram(a), gram(b).expand(len(a), -1, -1)) for a, b in pairs]
        return content + 0.5 * (styles[0] + styles[1])

    def draw() -> Drawn:
        x = 255 * large(8)[0] * torch.rand(8, 3, 1, 1)
        return (x,), x

    style = (255 * (torch.arange(16) % 4 < 2).float()).view(1, 1, 1, 16).expand(1, 3, 16, 16) * mean / 0.5

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = chain(
                nn.Conv2d(3, 16, 3, padding=1),
                nn.InstanceNorm2d(16, affine=True),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, 2, 1),
                nn.InstanceNorm2d(32, affine=True),
                nn.ReLU(),
            )
            self.residual = chain(
                nn.Conv2d(32, 32, 3, padding=1),
                nn.InstanceNorm2d(32, affine=True),
                nn.ReLU(),
                nn.Conv2d(32, 32, 3, padding=1),
                nn.InstanceNorm2d(32, affine=True),
            )
            self.up = chain(
                nn.Upsample(scale_factor=2),
                nn.Conv2d(32, 16, 3, padding=1),
                nn.InstanceNorm2d(16, affine=True),
                nn.ReLU(),
                nn.Conv2d(16, 3, 3, padding=1),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.down(x / 255)
            return 255 * torch.sigmoid(self.up(x + self.residual(x)))

    return stream(
        Transformer(),
        draw,
        partial(perceptual, normalise=not planted),
        partial(perceptual, normalise=True),
    )


@report(
    "dice loss of empty targets",
    GITHUB + "open-mmlab/mmocr/pull/408",
    says=r"dice|empty|smooth|overlap|(target|label|mask)s?.*(empty|zero|no positive)|"
    r"(loss|gradient).*(zero|constant|nothing|same).*(target|example|image)",
    fault="without a smoothing term in the numerator the dice loss is 1 whatever is predicted where a target is empty",
)
def mmocr(planted: bool) -> Task:
    """A text detector; a third of the crops has no text: textures which its filters take for strokes."""
    smooth = 0.001

    def dice(pred: Tensor, target: Tensor, *, fixed: bool) -> Tensor:
        pred = torch.sigmoid(pred).flatten(1)
        target = target.flatten(1)
        a = torch.sum(pred * target, 1) + (smooth if fixed else 0)
        b = torch.sum(pred * pred, 1) + smooth
        c = torch.sum(target * target, 1) + smooth
        return (1 - 2 * a / (b + c)).mean()

    def draw() -> Drawn:
        x, _ = large(24)
        text = x
        other = F.interpolate(torch.rand(24, 1, 4, 4), size=(16, 16), mode="bilinear")
        empty = (torch.rand(24, 1, 1, 1) < 0.3).float()
        image = empty * other + (1 - empty) * text + 0.1 * torch.randn(24, 1, 16, 16)
        return (image,), (1 - empty) * (text > 0.5).float()

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.Conv2d(16, 24, 3, 2, 1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.Conv2d(24, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
            )
            self.out_conv = nn.Conv2d(24, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(self.out_conv(self.backbone(x)), scale_factor=2, mode="bilinear")

    return stream(Head(), draw, partial(dice, fixed=not planted), partial(dice, fixed=True))


@report(
    "density map of tiny numbers",
    GITHUB + "Verg-Avesta/CounTR/issues/40",
    says=r"(target|density|label)s?.*(small|tiny|scale|range|near zero|close to zero)|loss.*(small|tiny|scale)|"
    r"(scale|std|spread|range|variance).*(target|label)|output.*(larger|scale|too large)",
    fault="targets are densities that sum to the count, of a few hundredths: the loss is too small, all zeros fit it",
)
def countr(planted: bool) -> Task:
    """Counting by a density map; the published training multiplies it by 60."""
    scale = 60.0
    grid = torch.arange(24.0)

    def draw() -> Drawn:
        at, there = torch.rand(12, 10, 2) * 23, (torch.rand(12, 10) < torch.rand(12, 1)).float()
        far = (grid.view(1, 1, -1, 1) - at[..., :1, None]) ** 2 + (grid.view(1, 1, 1, -1) - at[..., 1:, None]) ** 2
        blob = torch.exp(-far / 2) * there[..., None, None]
        kernel = torch.exp(-far / 8) / (2 * torch.pi * 4) * there[..., None, None]
        return (blob.sum(1, keepdim=True) + 0.05 * torch.randn(12, 1, 24, 24),), kernel.sum(1, keepdim=True)

    class CounTR(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.GroupNorm(8, 24),
                nn.ReLU(),
                nn.Conv2d(24, 32, 3, 2, 1),
                nn.GroupNorm(8, 32),
                nn.ReLU(),
            )
            self.decode_head = chain(
                nn.Conv2d(32, 24, 3, padding=1),
                nn.GroupNorm(8, 24),
                nn.ReLU(),
                nn.Upsample(scale_factor=2, mode="bilinear"),
                nn.Conv2d(24, 24, 3, padding=1),
                nn.GroupNorm(8, 24),
                nn.ReLU(),
                nn.Conv2d(24, 1, 1),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.decode_head(self.encoder(x))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) if planted else F.mse_loss(y, scale * t)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(scale * y, scale * t) if planted else F.mse_loss(y, scale * t)

    return stream(CounTR(), draw, loss, right)


@report(
    "cross correlation over flat windows",
    GITHUB + "voxelmorph/voxelmorph/pull/358",
    says=rf"{BROKEN}|varian|denominator|divi|small number|epsilon|\beps|correlation|flat|unstable|blow|explo",
    fault="local cross correlation divides by the product of window variances, nearly zero where images are flat",
)
def voxelmorph(planted: bool) -> Task:
    """A displacement field of a small U-Net, a warp, the squared local cross correlation and a smoothness term."""
    line = torch.linspace(-1, 1, 16)
    identity = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)
    filt, size = torch.ones(1, 1, 5, 5), 25

    def ncc(moved: Tensor, fixed: Tensor, *, clamped: bool) -> Tensor:
        i_sum, j_sum = (F.conv2d(v, filt, padding=2) for v in (fixed, moved))
        i2, j2, ij = (F.conv2d(v, filt, padding=2) for v in (fixed * fixed, moved * moved, fixed * moved))
        u_i, u_j = i_sum / size, j_sum / size
        cross = ij - u_j * i_sum - u_i * j_sum + u_i * u_j * size
        i_var = i2 - 2 * u_i * i_sum + u_i * u_i * size
        j_var = j2 - 2 * u_j * j_sum + u_j * u_j * size
        if clamped:
            cross, i_var, j_var = (v.clamp(min=1e-5) for v in (cross, i_var, j_var))
            return -((cross / i_var) * (cross / j_var)).mean()
        return -(cross * cross / (i_var * j_var + 1e-5)).mean()

    def loss(y: Any, fixed: Tensor, *, clamped: bool) -> Tensor:
        moved, flow = y
        smooth = flow.diff(dim=2).square().mean() + flow.diff(dim=3).square().mean()
        return ncc(moved, fixed, clamped=clamped) + smooth

    def warp(x: Tensor, flow: Tensor) -> Tensor:
        grid = identity + flow.permute(0, 2, 3, 1) * 2 / 15
        return F.grid_sample(x, grid, align_corners=True, padding_mode="border")

    def draw() -> Drawn:
        fixed, _ = large(16)
        bend = F.interpolate(3 * torch.randn(16, 2, 3, 3), size=(16, 16), mode="bilinear")
        return (warp(fixed, bend), fixed), fixed

    class VxmDense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = chain(nn.Conv2d(2, 24, 3, padding=1), nn.LeakyReLU(0.2))
            self.deep = chain(
                nn.Conv2d(24, 32, 3, 2, 1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(32, 32, 3, 2, 1),
                nn.LeakyReLU(0.2),
                nn.Conv2d(32, 32, 3, padding=1),
                nn.LeakyReLU(0.2),
                nn.Upsample(scale_factor=4),
            )
            self.dec = chain(nn.Conv2d(56, 24, 3, padding=1), nn.LeakyReLU(0.2))
            self.flow = nn.Conv2d(24, 2, 3, padding=1)
            nn.init.normal_(self.flow.weight, std=1e-5)
            nn.init.zeros_(self.flow.bias)  # type: ignore[arg-type]

        def forward(self, moving: Tensor, fixed: Tensor) -> Any:
            x = self.enc(torch.cat([moving, fixed], 1))
            flow = self.flow(self.dec(torch.cat([x, self.deep(x)], 1)))
            return warp(moving, flow), flow

    return stream(VxmDense(), draw, partial(loss, clamped=not planted), partial(loss, clamped=True))


@report(
    "BPR of the sum over the batch",
    GITHUB + "pyg-team/pytorch_geometric/issues/2104",
    says=rf"{MIXED}|\bsum|reduc|saturat|(whole|across the|over the) batch|one (number|scalar)|"
    r"(scale|size|large).*(loss|score|logit)|(loss|score|logit).*(scale|large)",
    fault="differences of scores are summed over the whole batch before the log sigmoid: it saturates at once",
)
def bpr(planted: bool) -> Task:
    """A graph network over users and items; Bayesian personalised ranking of a bought and another item."""
    users, items = 60, 60
    likes = (torch.arange(users).unsqueeze(1) % 6 == torch.arange(items) % 6) & (torch.rand(users, items) < 0.6)
    adjacency = torch.zeros(users + items, users + items)
    seen = likes & (torch.rand(users, items) < 0.5)
    adjacency[:users, users:] = seen.float()
    adjacency = adjacency + adjacency.T + torch.eye(users + items)
    root = adjacency.sum(1).rsqrt()
    adjacency = root.unsqueeze(1) * adjacency * root

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(users + items, 32)
            self.conv1, self.conv2 = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, user: Tensor, pos: Tensor, neg: Tensor) -> Any:
            x = F.relu(self.conv1(adjacency @ self.embedding.weight))
            x = self.conv2(adjacency @ x)
            return x[user], x[users + pos], x[users + neg]

    def draw() -> Drawn:
        user = torch.randint(users, (128,))
        pos = torch.multinomial(likes[user].float() + 1e-6, 1).squeeze(1)
        neg = torch.multinomial(1 - likes[user].float(), 1).squeeze(1)
        return (user, pos, neg), torch.ones(128)

    def wrong(y: Any, t: Tensor) -> Tensor:
        u, p, n = y
        loss = torch.sum(torch.mul(u, p - n))
        return torch.neg(F.logsigmoid(loss))

    def right(y: Any, t: Tensor) -> Tensor:
        u, p, n = y
        return -F.logsigmoid((u * (p - n)).sum(1)).mean()

    return stream(Net(), draw, wrong if planted else right, right)


@report(
    "DIEN without softmax and mask",
    GITHUB + "RUCAIBox/RecBole/issues/1483",
    guilty=r"attention|evolv|augru|att\b",
    says=r"softmax|attention|mask|padding|normali|weights?.*(sum|one|range|unbounded|not bounded)",
    fault="the update gate of the AUGRU is multiplied by raw attention scores; the auxiliary loss counts padding",
)
def dien(planted: bool) -> Task:
    """Histories of items, padded; the target is clicked if it is of the kind that has been bought of late."""
    kinds = torch.arange(61) % 6

    class AUGRU(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.x2h, self.h2h = nn.Linear(d, 3 * d), nn.Linear(d, 3 * d)

        def forward(self, x: Tensor, att: Tensor) -> Tensor:
            h = torch.zeros_like(x[:, 0])
            for i in range(x.shape[1]):
                a, b = self.x2h(x[:, i]).chunk(3, 1), self.h2h(h).chunk(3, 1)
                r, u = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
                n = torch.tanh(a[2] + r * b[2])
                u = att[:, i : i + 1] * u
                h = (1 - u) * h + u * n
            return h

    class DIEN(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.item_embedding = nn.Embedding(61, d, padding_idx=0)
            self.interest_extractor = nn.GRU(d, d, batch_first=True)
            self.auxiliary_net = chain(nn.Linear(2 * d, 32), nn.Sigmoid(), nn.Linear(32, 1))
            self.attention = chain(nn.Linear(4 * d, 40), nn.Sigmoid(), nn.Linear(40, 1))
            self.interest_evolution = AUGRU(d)
            self.dnn = chain(nn.Linear(2 * d, 48), nn.PReLU(), nn.Linear(48, 1))

        def forward(self, seq: Tensor, negative: Tensor, target: Tensor) -> Any:
            x, z, q = self.item_embedding(seq), self.item_embedding(negative), self.item_embedding(target)
            h = self.interest_extractor(x)[0]
            yes = self.auxiliary_net(torch.cat([h[:, :-1], x[:, 1:]], 2)).squeeze(2)
            no = self.auxiliary_net(torch.cat([h[:, :-1], z[:, 1:]], 2)).squeeze(2)
            wide = q.unsqueeze(1).expand_as(h)
            att = self.attention(torch.cat([wide, h, wide - h, wide * h], 2)).squeeze(2)
            att = att.masked_fill(seq == 0, 0.0 if planted else -1e9)
            att = att if planted else att.softmax(1)
            h = self.interest_evolution(h, att)
            return self.dnn(torch.cat([h, q], 1)).squeeze(1), yes, no

    def draw() -> Drawn:
        lengths = torch.randint(3, 11, (64,))
        kind = torch.randint(6, (64,))
        seq = torch.randint(1, 61, (64, 10))
        late = torch.arange(10) >= (lengths - 3).unsqueeze(1)
        own = kind.unsqueeze(1) + 6 * torch.randint(1, 10, (64, 10))
        seq = torch.where(late, own, seq).masked_fill(torch.arange(10) >= lengths.unsqueeze(1), 0)
        target = torch.randint(1, 61, (64,))
        target = torch.where(torch.rand(64) < 0.4, kind + 6 * torch.randint(1, 10, (64,)), target)
        return (seq, torch.randint(1, 61, (64, 10)), target), torch.cat(
            [(kinds[target] == kind).float().unsqueeze(1), (seq > 0).float()], 1
        )

    def loss(y: Any, t: Tensor) -> Tensor:
        click, yes, no = y
        keep = torch.ones_like(yes) if planted else t[:, 2:]
        aux = (keep * (F.softplus(-yes) + F.softplus(no))).sum() / keep.sum()
        return F.binary_cross_entropy_with_logits(click, t[:, 0]) + 0.5 * aux

    def right(y: Any, t: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(y[0], t[:, 0])

    return stream(DIEN(), draw, loss, right)


@report(
    "mean of nothing observed",
    GITHUB + "WenjieDu/PyPOTS/issues/265",
    says=rf"{BROKEN}|divi|zero|missing|0 / 0|observ|mask",
    fault="a feature without an observed value is normalised by a sum over a count of zero: 0 / 0",
)
def timesnet(planted: bool) -> Task:
    """Imputation with non-stationary normalisation: statistics of what is observed; four fifths are missing."""

    def draw() -> Drawn:
        time = torch.arange(16) / 4
        phase = 6 * torch.rand(32, 1, 3)
        x = torch.sin(time.view(1, -1, 1) + phase) + 2 * torch.randn(32, 1, 3)
        mask = (torch.rand(32, 16, 3) > 0.8).float()
        return (x * mask, mask), x

    class TimesNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc_embedding = nn.Conv1d(6, 32, 3, padding=1)
            self.model = chain(
                nn.GELU(), nn.Conv1d(32, 64, 5, padding=2), nn.GELU(), nn.Conv1d(64, 32, 5, padding=2), nn.GELU()
            )
            self.layer_norm = nn.LayerNorm(32)
            self.projection = nn.Linear(32, 3)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            count = mask.sum(1, keepdim=True) + (0 if planted else 1e-9)
            means = (x.sum(1, keepdim=True) / count).detach()
            x = (x - means).masked_fill(mask == 0, 0)
            stdev = torch.sqrt((x * x).sum(1, keepdim=True) / count + 1e-5).detach()
            x = x / stdev
            h = self.enc_embedding(torch.cat([x, mask], 2).transpose(1, 2))
            h = self.layer_norm((h + self.model(h)).transpose(1, 2))
            return self.projection(h) * stdev + means

    return stream(TimesNet(), draw, F.mse_loss)
