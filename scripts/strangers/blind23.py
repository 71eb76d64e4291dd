"""A twenty-third set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind23")


def patches(count: int = 8, size: int = 14) -> tuple[Tensor, Tensor]:
    """Images (count, 1, size, size) of three kinds of squares in noise, and the kind at each pixel, 0 for none."""
    t = torch.zeros(count, size, size, dtype=torch.long)
    for i in range(count):
        for kind in (1, 2, 3):
            a, b = torch.randint(0, size - 4, (2,)).tolist()
            t[i, a : a + 4, b : b + 4] = kind
    return t.unsqueeze(1) * 0.8 - 0.5 + 0.4 * torch.randn(count, 1, size, size), t


@report(
    "PreAct ResNet without its last norm",
    GITHUB + "kuangliu/pytorch-cifar/issues/137",
    guilty=r"linear",
    says=r"(final|last|no|missing|without|never).{0,30}norm|norm.{0,30}(final|last|missing)|residual|grow|explod",
    fault="a pre-activation ResNet lacks the batch norm and ReLU between its last block and the pooling",
)
def preact(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class PreActBlock(nn.Module):
        def __init__(self, in_planes: int, planes: int, stride: int) -> None:
            super().__init__()
            self.bn1, self.bn2 = nn.BatchNorm2d(in_planes), nn.BatchNorm2d(planes)
            self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
            if stride != 1 or in_planes != planes:
                self.shortcut = chain(nn.Conv2d(in_planes, planes, 1, stride, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            out = F.relu(self.bn1(x))
            shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
            return self.conv2(F.relu(self.bn2(self.conv1(out)))) + shortcut

    class PreActResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
            self.layer1 = chain(PreActBlock(16, 16, 1), PreActBlock(16, 16, 1))
            self.layer2 = chain(PreActBlock(16, 32, 2), PreActBlock(32, 32, 1))
            self.layer3 = chain(PreActBlock(32, 64, 2), PreActBlock(64, 64, 1))
            if not planted:
                self.bn = nn.BatchNorm2d(64)
            self.linear = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer3(self.layer2(self.layer1(self.conv1(x))))
            if not planted:
                out = F.relu(self.bn(out))
            return self.linear(F.avg_pool2d(out, 2).flatten(1))

    return stream(PreActResNet(), draw, F.cross_entropy)


@report(
    "ONI's scale in a residual network",
    GITHUB + "huangleiBuaa/ONI/issues/1",
    guilty=r"conv|net\.0\.",
    says=r"explod|grow|residual|\bgain|(activation|output|signal|feature|logit)s?.*(large|scale|magnitude)",
    fault="orthogonal convolutions scaled by the root of two in a residual network without normalisation: signals grow",
)
def oni(planted: bool) -> Task:
    """Weights orthogonalised by Newton's iteration; eight residual blocks, as in a ResNet-18."""
    wn_scale = 2**0.5 if planted else 0.6

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class ONIConv2d(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            z = self.weight.flatten(1)
            z = z - z.mean(1, keepdim=True)
            z = z / z.norm()
            s = z @ z.mT
            b = torch.eye(len(z))
            for _ in range(5):
                b = 1.5 * b - 0.5 * (b @ b @ b) @ s
            return self._conv_forward(x, (b @ z).view_as(self.weight) * wn_scale, self.bias)

    class BasicBlock(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = ONIConv2d(n, n, 3, padding=1), ONIConv2d(n, n, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.conv2(F.relu(self.conv1(x))) + x)

    blocks = [BasicBlock(16) for _ in range(8)]
    model = chain(ONIConv2d(1, 16, 3, 2, 1), nn.ReLU(), *blocks, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    return stream(Parts(lambda m, x: m.net(x), net=model), draw, F.cross_entropy)


@report(
    "TBraTS' Dice of alphas",
    GITHUB + "Cocofeat/TBraTS/issues/6",
    says=r"negative|unbounded|not bounded|probabilit|softmax|(outside|above|exceed|beyond).*(\b1\b|one|range)",
    fault="the Dice loss is given the Dirichlet's alphas, from 1 to infinity, in place of probabilities",
)
def tbrats(planted: bool) -> Task:
    """Evidential segmentation into four classes: digamma loss, Dice, and KL to the uniform Dirichlet."""

    def draw() -> Drawn:
        x, t = patches()
        return (x,), t

    def dice(output: Tensor, target: Tensor, eps: float = 1e-5) -> Tensor:
        target = target.float()
        return 1.0 - 2 * (output * target).sum() / (output.sum() + target.sum() + eps)

    def kl(alpha: Tensor, c: int) -> Tensor:
        beta = torch.ones(1, c)
        s_alpha, s_beta = alpha.sum(1, keepdim=True), beta.sum(1, keepdim=True)
        lnb = torch.lgamma(s_alpha) - torch.lgamma(alpha).sum(1, keepdim=True)
        lnb_uni = torch.lgamma(beta).sum(1, keepdim=True) - torch.lgamma(s_beta)
        gap = torch.digamma(alpha) - torch.digamma(s_alpha)
        return ((alpha - beta) * gap).sum(1, keepdim=True) + lnb + lnb_uni

    def dce_eviloss(evidence: Tensor, p: Tensor, *, of_alphas: bool = planted, c: int = 4) -> Tensor:
        alpha = evidence + 1
        output = alpha if of_alphas else alpha / alpha.sum(1, keepdim=True)
        l_dice = dice(output[:, 1], p == 1) + dice(output[:, 2], p == 2) + dice(output[:, 3], p == 3)
        alpha = alpha.flatten(2).transpose(1, 2).reshape(-1, c)
        s, label = alpha.sum(1, keepdim=True), F.one_hot(p, c).view(-1, c)
        l_ace = (label * (torch.digamma(s) - torch.digamma(alpha))).sum(1, keepdim=True)
        alp = (alpha - 1) * (1 - label) + 1
        return (l_ace + l_dice + 0.1 * kl(alp, c)).mean()

    backbone = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 4, 1),
    )
    model = Parts(lambda m, x: F.softplus(m.backbone(x)), backbone=backbone)
    return stream(model, draw, dce_eviloss, partial(dce_eviloss, of_alphas=False))


@report(
    "focal loss to the power of a half",
    GITHUB + "kaidic/LDAM-DRW/issues/17",
    says=rf"{BROKEN}|gamma|power|pow\b|root|focal",
    fault="(1 - p) ** 0.5 where p can be 1 (and the cross-entropy 0 or below): infinite slope, NaN",
)
def focal_half(planted: bool) -> Task:
    """Digits of a long tail: the classes' shares fall by half from each to the next but one."""
    share = 0.7 ** torch.arange(10)

    def draw() -> Drawn:
        x, c = pick(256)
        keep = torch.multinomial(share[c], 64)
        return (x[keep],), c[keep]

    def focal_loss(y: Tensor, t: Tensor, gamma: float = 0.5) -> Tensor:
        input_values = F.cross_entropy(y, t, reduction="none")
        if not planted:
            input_values = F.relu(input_values) + 1e-6
        p = torch.exp(-input_values)
        return ((1 - p) ** gamma * input_values).mean()

    def block(n: int, m: int, stride: int) -> nn.Sequential:
        return chain(nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU())

    model = chain(block(1, 16, 1), block(16, 32, 2), block(32, 64, 2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    return stream(model, draw, focal_loss)


@report(
    "edge weights of exactly 0 and 1",
    GITHUB + "gnn-tracking/gnn_tracking/issues/138",
    guilty=r"^W\.",
    says=rf"{BROKEN}|\blog\b|saturat|clamp|exactly",
    fault="the focal loss takes the log of sigmoids without masking those that are exactly 0 or 1",
)
def gnn_tracking(planted: bool) -> Task:
    """An interaction network weighs the edges between hits: straight tracks from the origin, layers as radii."""
    layers, tracks = 6, 12
    pairs = [(a, b) for a in range(layers * tracks) for b in range(layers * tracks) if b // tracks == a // tracks + 1]
    source, target = (torch.tensor(side) for side in zip(*pairs, strict=True))

    def draw() -> Drawn:
        phi = torch.empty(tracks).uniform_(-3.14, 3.14)
        r = torch.arange(1, layers + 1).repeat_interleave(tracks) / layers
        angle = phi.repeat(layers) + 0.02 * torch.randn(layers * tracks)
        x = torch.stack([r, angle / torch.pi, r * angle.cos(), r * angle.sin()], 1)
        return (x,), (source % tracks == target % tracks).float()

    def binary_focal_loss(inpt: Tensor, target: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
        if not planted:
            mask = ~((inpt < 1e-7) | (inpt > 1 - 1e-7))
            inpt, target = inpt[mask], target[mask]
        probs_pos, probs_neg = inpt, 1 - inpt
        pos_term = -alpha * probs_neg.pow(gamma) * target * probs_pos.log()
        neg_term = -(1 - alpha) * probs_pos.pow(gamma) * (1.0 - target) * probs_neg.log()
        return (pos_term + neg_term).mean()

    def mlp(n: int, m: int) -> nn.Sequential:
        return chain(nn.Linear(n, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, m))

    class EdgeClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relational_model, self.object_model, self.W = mlp(8, 4), mlp(8, 4), mlp(12, 1)

        def forward(self, x: Tensor) -> Tensor:
            e = self.relational_model(torch.cat([x[source], x[target]], 1))
            x1 = self.object_model(torch.cat([x, torch.zeros_like(x).index_add(0, target, e)], 1))
            return torch.sigmoid(self.W(torch.cat([x1[source], x1[target], e], 1))).squeeze(1)

    return stream(EdgeClassifier(), draw, binary_focal_loss)


def overlap(p: Tensor, g: Tensor, eps: float) -> Tensor:
    """Complete IoU of boxes (N, 4), corners; the angle of a box is of its width by its height, plus `eps`."""
    inter = (torch.min(p[:, 2:], g[:, 2:]) - torch.max(p[:, :2], g[:, :2])).clamp(min=0).prod(1)
    w, h = p[:, 2] - p[:, 0], p[:, 3] - p[:, 1] + eps
    w_gt, h_gt = g[:, 2] - g[:, 0], g[:, 3] - g[:, 1] + eps
    iou = inter / (w * h + w_gt * h_gt - inter + 1e-6)
    c = (torch.max(p[:, 2:], g[:, 2:]) - torch.min(p[:, :2], g[:, :2])).square().sum(1) + 1e-6
    d = ((p[:, :2] + p[:, 2:] - g[:, :2] - g[:, 2:]) / 2).square().sum(1)
    v = 4 / math.pi**2 * (torch.atan(w_gt / h_gt) - torch.atan(w / h)).square()
    with torch.no_grad():
        alpha = v / (1 - iou + v + 1e-6)
    return iou - d / c - alpha * v


@report(
    "CIoU of proposals without height",
    GITHUB + "Zzh-tju/DIoU-pytorch-detectron/issues/19",
    says=rf"{BROKEN}|divi|height|width|degenerate|area|atan",
    fault="proposals of no height are masked out after the division by their height: their gradients are NaN",
)
def ciou(planted: bool) -> Task:
    """The box head of a two-stage detector: pooled features and a proposal; some were clipped to the image's edge."""
    mix = torch.randn(4, 16)

    def draw() -> Drawn:
        centre, size = torch.empty(64, 2).uniform_(0.25, 0.75), torch.empty(64, 2).uniform_(0.15, 0.4)
        g = torch.cat([centre - size / 2, centre + size / 2], 1)
        rois = g + 0.06 * torch.randn(64, 4)
        rois[::16, 1::2] = 1.0  # [.2, 1, .3, 1]
        features = torch.tanh((g - rois) @ mix * 2) + 0.05 * torch.randn(64, 16)
        return (features, rois), torch.cat([g, (rois[:, 3:] > rois[:, 1:2]).float()], 1)

    class BoxHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.bbox_pred = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, 4)

        def forward(self, x: Tensor, rois: Tensor) -> Tensor:
            deltas = self.bbox_pred(F.relu(self.fc2(F.relu(self.fc1(x)))))
            size = rois[:, 2:] - rois[:, :2]
            centre = (rois[:, :2] + rois[:, 2:]) / 2 + deltas[:, :2] * size
            size = size * deltas[:, 2:].clamp(max=4).exp()
            return torch.cat([centre - size / 2, centre + size / 2], 1).clamp(0, 1)

    def compute_ciou(p: Tensor, g: Tensor, *, late: bool = planted) -> Tensor:
        valid, g = g[:, 4] > 0, g[:, :4]
        if not late:
            p, g, valid = p[valid], g[valid], valid[valid]
        ciouk = overlap(p, g, 0.0)
        return torch.where(valid, 1 - ciouk, torch.zeros_like(ciouk)).sum() / 64

    return stream(BoxHead(), draw, compute_ciou, partial(compute_ciou, late=False))


@report(
    "boxes without area",
    GITHUB + "open-mmlab/mmdetection/pull/3394",
    guilty=r"fcos_reg|scale",
    says=rf"{BROKEN}|divi|height|width|degenerate|area|atan|relu",
    fault="an anchor-free detector predicts boxes of zero width and height, whose CIoU is 0 / 0 without an epsilon",
)
def fcos(planted: bool) -> Task:
    """Each place of the feature map inside an object gives the distances to its four sides, through a ReLU."""
    at = torch.stack(torch.meshgrid(torch.arange(8) + 0.5, torch.arange(8) + 0.5, indexing="xy"), 2).view(-1, 2) * 2

    def draw() -> Drawn:
        low, size = torch.randint(0, 6, (8, 2)).float(), torch.randint(5, 11, (8, 2)).float()
        g = torch.cat([low, low + size], 1)
        y = torch.arange(16) + 0.5
        inside = [(y > g[:, i, None]) & (y < g[:, i + 2, None]) for i in (0, 1)]
        x = (inside[1][:, :, None] & inside[0][:, None]).float().unsqueeze(1) * 2 - 1
        return (x + 0.3 * torch.randn_like(x),), g

    class FCOSHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 5, 1, 2), nn.ReLU())
            self.reg_convs = chain(nn.Conv2d(32, 32, 5, 1, 2), nn.GroupNorm(8, 32), nn.ReLU())
            self.fcos_reg, self.scale = nn.Conv2d(32, 4, 3, padding=1), nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            reg = F.relu(self.scale * self.fcos_reg(self.reg_convs(self.backbone(x)))) * 4
            reg = reg.flatten(2).transpose(1, 2)  # (B, 64, 4): left, top, right, bottom
            return torch.cat([at - reg[:, :, :2], at + reg[:, :, 2:]], 2)

    def loss(boxes: Tensor, g: Tensor) -> Tensor:
        g = g.unsqueeze(1).expand_as(boxes)
        inside = ((at > g[:, :, :2]) & (at < g[:, :, 2:])).all(2)
        return (1 - overlap(boxes[inside], g[inside], 0.0 if planted else 1e-6)).mean()

    return stream(FCOSHead(), draw, loss)


@report(
    "heatmaps' log of zero",
    GITHUB + "maudzung/RTM3D/issues/13",
    guilty=r"hm",
    says=rf"{BROKEN}|\blog\b|saturat|clamp",
    fault="the focal loss of key points takes logs of sigmoids that are neither clamped nor given an epsilon",
)
def rtm3d(planted: bool) -> Task:
    """Heat maps of the centres of squares, as CornerNet trains them."""
    y = torch.arange(14)

    def draw() -> Drawn:
        centre = torch.randint(2, 12, (16, 2))
        d = [(y - centre[:, i, None]).float() for i in (0, 1)]
        x = ((d[0].abs() < 2).float()[:, :, None] * (d[1].abs() < 2).float()[:, None]).unsqueeze(1)
        gt = torch.exp(-(d[0].square()[:, :, None] + d[1].square()[:, None]) / 2).unsqueeze(1)
        return (x * 2 - 0.5 + 0.3 * torch.randn_like(x),), gt

    def neg_loss(pred: Tensor, gt: Tensor, alpha: int = 2, beta: int = 4) -> Tensor:
        pos_inds, neg_inds = gt.eq(1).float(), gt.lt(1).float()
        pos_loss = torch.log(pred) * torch.pow(1 - pred, alpha) * pos_inds
        neg_loss = torch.log(1 - pred) * torch.pow(pred, alpha) * torch.pow(1 - gt, beta) * neg_inds
        return -(pos_loss.sum() + neg_loss.sum()) / pos_inds.sum()

    def _sigmoid(x: Tensor) -> Tensor:
        return torch.sigmoid(x) if planted else torch.clamp(torch.sigmoid(x), min=1e-4, max=1 - 1e-4)

    body = chain(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    hm_mc = chain(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1))
    nn.init.constant_(hm_mc[2].bias, -2.19)
    return stream(Parts(lambda m, x: _sigmoid(m.hm_mc(m.body(x))), body=body, hm_mc=hm_mc), draw, neg_loss)


@report(
    "focal loss of raw outputs",
    GITHUB + "Hsuxu/Loss_ToolBox-PyTorch/issues/7",
    says=rf"{BROKEN}|softmax|probabilit|\blog\b|negative|raw|logit",
    fault="the focal loss takes the log of raw outputs, which no softmax has made probabilities: NaN where negative",
)
def raw_focal(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = patches()
        return (x,), t

    def focal_loss(logit: Tensor, target: Tensor, gamma: float = 2, epsilon: float = 1e-10) -> Tensor:
        logit = logit.flatten(2).transpose(1, 2).reshape(-1, 4)
        one_hot_key = F.one_hot(target.flatten(), 4).float()
        pt = (one_hot_key * logit).sum(1) + epsilon
        return (-1 * torch.pow((1 - pt), gamma) * pt.log()).mean()

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 4, 1),
    )
    if not planted:
        model.append(nn.Softmax(1))
    return stream(model, draw, focal_loss)


@report(
    "KL divergence to log-probabilities",
    GITHUB + "davidpengucf/SFDAHPE/issues/1",
    says=rf"{BROKEN}|\blog|softmax|probabilit|target.*negative|negative.*target",
    fault="KLDivLoss is given the target's log-probabilities where it expects probabilities: NaN",
)
def residual_heatmaps(planted: bool) -> Task:
    """A student's heat maps follow a teacher's outside their peaks, and the labels' by squared error."""
    y = torch.arange(8)
    blur = torch.tensor([[0.05, 0.1, 0.05], [0.1, 0.4, 0.1], [0.05, 0.1, 0.05]]).view(1, 1, 3, 3)

    def draw() -> Drawn:
        at = torch.randint(0, 8, (16, 3, 2))
        d = (y - at.unsqueeze(3)).float().square()
        maps = torch.exp(-(d[:, :, 0, :, None] + d[:, :, 1, None]) / 2)
        x = (maps * torch.tensor([1.0, 2, 3]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        teacher = 3 * F.conv2d(maps.flatten(0, 1).unsqueeze(1), blur, padding=1).view_as(maps)
        return (x + 0.1 * torch.randn_like(x),), torch.cat([maps, teacher], 1)

    class ResLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.criterion = nn.KLDivLoss(reduction="none")

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            heatmaps_pred, heatmaps_gt = output.flatten(2), target.flatten(2)
            mask = torch.ones_like(heatmaps_pred)
            mask.scatter_(2, heatmaps_pred.argmax(2, keepdim=True), 0)
            mask.scatter_(2, heatmaps_gt.argmax(2, keepdim=True), 0)
            heatmaps_pred = F.log_softmax(heatmaps_pred * mask, dim=-1)
            heatmaps_gt = (F.log_softmax if planted else F.softmax)(heatmaps_gt * mask, dim=-1)
            return self.criterion(heatmaps_pred, heatmaps_gt).sum(dim=-1).mean()

    res = ResLoss()

    def loss(output: Tensor, t: Tensor) -> Tensor:
        return 0.5 * F.mse_loss(output, t[:, :3]) + 0.1 * res(output, t[:, 3:])

    model = chain(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 3, 1),
    )
    return stream(model, draw, loss)


@report(
    "AdaBins on depths of zero",
    GITHUB + "shariqfarooq123/AdaBins/issues/16",
    says=rf"{BROKEN}|\blog\b|target.*(zero|\b0\b)|zero.*target|mask|clamp",
    fault="the scale-invariant log loss takes the log of measured depths some of which are zero",
)
def adabins(planted: bool) -> Task:
    """Depths from shading: nearer is brighter; a few of the measured depths are missing, that is 0."""

    def draw() -> Drawn:
        coarse = torch.rand(8, 1, 4, 4)
        depth = 1 + 9 * F.interpolate(coarse, size=12, mode="bilinear")
        x = 2 / depth - 0.5 + 0.05 * torch.randn_like(depth)
        depth = depth * (torch.rand_like(depth) > 0.02)
        return (x.repeat(1, 3, 1, 1),), depth

    def silog(y: Tensor, target: Tensor) -> Tensor:
        alpha = 0 if planted else 1e-3
        if not planted:
            y, target = y[target > 0], target[target > 0]
        g = torch.log(y + alpha) - torch.log(target + alpha)
        return 10 * torch.sqrt(torch.var(g) + 0.15 * torch.pow(torch.mean(g), 2))

    class UnetAdaptiveBins(nn.Module):
        def __init__(self, n_bins: int = 16, min_val: float = 1e-3, max_val: float = 10.0) -> None:
            super().__init__()
            self.min_val, self.max_val = min_val, max_val
            self.decoder = chain(nn.Conv2d(3, 32, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(32, 32, 3, padding=1))
            self.regressor = chain(nn.Linear(32, 64), nn.LeakyReLU(), nn.Linear(64, n_bins))
            self.conv_out = chain(nn.Conv2d(32, n_bins, 1), nn.Softmax(1))

        def forward(self, x: Tensor) -> Tensor:
            h = self.decoder(x)
            widths = F.relu(self.regressor(h.mean((2, 3)))) + 0.1
            widths = (self.max_val - self.min_val) * widths / widths.sum(1, keepdim=True)
            edges = torch.cumsum(F.pad(widths, (1, 0), value=self.min_val), 1)
            centers = 0.5 * (edges[:, :-1] + edges[:, 1:])
            return (self.conv_out(h) * centers[:, :, None, None]).sum(1, keepdim=True)

    return stream(UnetAdaptiveBins(), draw, silog)


@report(
    "KL summed beside a mean reconstruction",
    GITHUB + "podgorskiy/VAE/issues/1",
    guilty=r"fc1|fc2|mu|logvar",
    says=rf"KL|collaps|{SAME}|domin|outweigh|balance|loss terms|prior|latent",
    fault="the KL divergence is summed over the latents while the reconstruction is a mean over pixels: a blurry mean",
)
def vae(planted: bool) -> Task:
    def draw() -> Drawn:
        x = (pick(64)[0] * 0.376 + 0.3) * 2 - 1
        return (x,), x

    class VAE(nn.Module):
        def __init__(self, zsize: int = 512) -> None:
            super().__init__()
            self.conv = chain(
                nn.Conv2d(1, 32, 4, 2, 1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 64, 4, 2, 1),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.fc1, self.fc2, self.d1 = nn.Linear(256, zsize), nn.Linear(256, zsize), nn.Linear(zsize, 256)
            self.deconv = chain(
                nn.LeakyReLU(0.2),
                nn.Unflatten(1, (64, 2, 2)),
                nn.ConvTranspose2d(64, 32, 4, 2, 1),
                nn.BatchNorm2d(32),
                nn.LeakyReLU(0.2),
                nn.ConvTranspose2d(32, 1, 4, 2, 1),
                nn.Tanh(),
            )
            for module in self.modules():
                if isinstance(module, nn.ConvTranspose2d | nn.Conv2d):
                    nn.init.normal_(module.weight, 0, 0.02)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = self.conv(x)
            mu, logvar = self.fc1(h), self.fc2(h)
            z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
            return self.deconv(self.d1(z)), mu, logvar

    def loss_function(y: Any, x: Tensor, *, summed: bool = planted) -> Tensor:
        recon_x, mu, logvar = y
        each = 1 + logvar - mu.pow(2) - logvar.exp()
        kld = -0.5 * torch.mean(each.sum(1) if summed else each.mean(1))
        return torch.mean((recon_x - x) ** 2) + kld * 0.1

    return stream(VAE(), draw, loss_function, lambda y, x: loss_function(y, x, summed=False))


def wgan(planted: bool, critic: nn.Module) -> Task:
    """A critic tells digits from blurred noise: Wasserstein loss and gradient penalty, ten times."""
    blur = torch.ones(1, 1, 3, 3) / 9

    def draw() -> Drawn:
        real = (pick(32)[0] * 0.376 + 0.3) * 2 - 1
        fake = torch.tanh(3 * F.conv2d(torch.randn(32, 1, 8, 8), blur, padding=1) - 0.5)
        alpha = torch.rand(32, 1, 1, 1)
        return (real, fake, alpha), torch.zeros(32)

    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = critic

        def forward(self, real: Tensor, fake: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with torch.enable_grad():
                interpolates = (alpha * real + (1 - alpha) * fake).detach().requires_grad_(True)
                gradients = torch.autograd.grad(self.critic(interpolates).sum(), interpolates, create_graph=True)[0]
            return self.critic(real), self.critic(fake), gradients

    def disc_cost(y: tuple[Tensor, Tensor, Tensor], _: Tensor, *, flat: bool = not planted) -> Tensor:
        real, fake, gradients = y
        if flat:
            gradients = gradients.flatten(1)
        gradient_penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean() * 10
        return fake.mean() - real.mean() + gradient_penalty

    return stream(Critic(), draw, disc_cost, partial(disc_cost, flat=True))


PENALTY = (
    r"penalt|(per|each|every).?(pixel|element)|gradients?.{0,20}norm|norm.{0,20}gradient|flatten|lipschitz|dimension"
)


@report(
    "gradient penalty of each pixel",
    GITHUB + "caogang/wgan-gp/issues/27",
    says=PENALTY,
    fault="the penalty's norm is taken over the one channel: the gradient at each pixel is pulled to 1",
)
def wgan_gp(planted: bool) -> Task:
    net = chain(
        nn.Conv2d(1, 16, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 1),
        nn.Flatten(0),
    )
    return wgan(planted, net)


@report(
    "gradient penalty of each pixel, again",
    GITHUB + "Zeleni9/pytorch-wgan/issues/40",
    says=PENALTY,
    fault="gradients.norm(2, dim=1) of (B, 1, H, W): the penalty is of elements, far above a Lipschitz constant of 1",
)
def wgan_zeleni(planted: bool) -> Task:
    net = chain(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.InstanceNorm2d(16, affine=True),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.InstanceNorm2d(32, affine=True),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4),
        nn.Flatten(0),
    )
    return wgan(planted, net)


@report(
    "VQ loss of means beside a summed reconstruction",
    GITHUB + "clementchadebec/benchmark_VAE/pull/125",
    guilty=r"embeddings|codebook|quantizer",
    says=r"(vq|commit|codebook|quanti|embedding).*(small|weak|little|slow)|domin|outweigh|balance|loss terms",
    fault="the VQ losses are means while the reconstruction is summed over pixels: the codebook hardly learns",
)
def pythae(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick(32)[0] * 0.376 + 0.3
        return (x,), x

    class Quantizer(nn.Module):
        def __init__(self, num_embeddings: int = 32, embedding_dim: int = 16) -> None:
            super().__init__()
            self.embedding_dim, self.embeddings = embedding_dim, nn.Embedding(num_embeddings, embedding_dim)
            nn.init.uniform_(self.embeddings.weight, -1 / num_embeddings, 1 / num_embeddings)

        def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            flat = z.reshape(-1, self.embedding_dim)
            index = torch.cdist(flat, self.embeddings.weight).argmin(1)
            quantized = self.embeddings(index).view_as(z)
            return z + (quantized - z).detach(), z, quantized

    class VQVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
            self.encoder.append(nn.Conv2d(32, 16, 4, 2, 1))
            self.quantizer = Quantizer()
            self.decoder = chain(nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            st, z, quantized = self.quantizer(self.encoder(x).permute(0, 2, 3, 1))
            return self.decoder(st.permute(0, 3, 1, 2)), z, quantized

    def loss_function(y: tuple[Tensor, Tensor, Tensor], x: Tensor, *, summed: bool = not planted) -> Tensor:
        recon_x, z, quantized = y
        recon_loss = F.mse_loss(recon_x, x, reduction="none").flatten(1).sum(1)
        commitment = F.mse_loss(quantized.detach(), z, reduction="none").flatten(1)
        embedding = F.mse_loss(quantized, z.detach(), reduction="none").flatten(1)
        vq_loss = 0.25 * commitment + embedding
        return (recon_loss + (vq_loss.sum(1) if summed else vq_loss.mean())).mean()

    def right(y: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.mse_loss(y[0], x, reduction="none").flatten(1).sum(1).mean()

    return stream(VQVAE(), draw, loss_function, right)


@report(
    "ICNR under weight norm",
    GITHUB + "fastai/fastai/issues/3315",
    guilty=r"shuf",
    says=r"weight.?norm|initiali|icnr|checker|pixel.?shuffle|overwritten|no effect",
    fault="ICNR writes into the weight that weight norm computes anew: the pixel shuffle's initialisation is lost",
)
def icnr(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick(32)[0]
        return (F.avg_pool2d(x, 2),), x

    def icnr_init(x: Tensor, scale: int = 2) -> Tensor:
        k = nn.init.kaiming_normal_(torch.empty(len(x) // scale**2, *x.shape[1:]))
        return k.repeat_interleave(scale**2, 0)

    conv = nn.Conv2d(32, 16 * 4, 1)
    if not planted:
        conv.weight.data.copy_(icnr_init(conv.weight))
    shuf = weight_norm(conv)
    if planted:
        shuf.weight.data.copy_(icnr_init(shuf.weight))
    body = chain(nn.Conv2d(1, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
    last = chain(nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(16, 1, 3, 1, 1))
    model = Parts(lambda m, x: m.last(m.shuf(m.body(x))), body=body, shuf=shuf, last=last)
    return stream(model, draw, F.mse_loss)
