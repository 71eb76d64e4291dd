"""A fifty-third set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import copy
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

report = partial(any_report, blind="blind53")


@report(
    "rotation at the identity",
    GITHUB + "oarriaga/paz/pull/383",
    guilty=r"omega|rotation",
    says=rf"{CUT}|vanish|norm.*zero|zero.*norm",
    fault="SO3.exp normalises the axis with a safe norm that is constant at 0, so that a rotation of 0 has no gradient",
)
def analysis_by_synthesis(planted: bool) -> Task:
    """The pose of an object, its translation and brightness fitted to its soft silhouette."""
    points = torch.randn(12, 3) * torch.tensor([1.0, 0.6, 0.3])
    grid = torch.stack(torch.meshgrid(torch.linspace(-2, 2, 16), torch.linspace(-2, 2, 16), indexing="ij"), -1)

    def hat(w: Tensor) -> Tensor:
        zero = torch.zeros(())
        return torch.stack([zero, -w[2], w[1], w[2], zero, -w[0], -w[1], w[0], zero]).view(3, 3)

    def safe_norm(w: Tensor) -> Tensor:
        square = (w * w).sum()
        is_zero = square == 0
        return torch.where(is_zero, 0.0, torch.sqrt(torch.where(is_zero, 1.0, square)))

    def exp(w: Tensor) -> Tensor:
        theta = safe_norm(w)
        if planted:
            W = hat(w / torch.where(theta == 0, 1.0, theta) * (theta != 0))
            return torch.eye(3) + torch.sin(theta) * W + (1 - torch.cos(theta)) * W @ W
        square = (w * w).sum()
        small = square < 1e-6
        s = torch.where(small, 1.0, square)
        r = torch.sqrt(s)
        A = torch.where(small, 1 - square / 6, torch.sin(r) / r)
        B = torch.where(small, 0.5 - square / 24, (1 - torch.cos(r)) / s)
        return torch.eye(3) + A * hat(w) + B * hat(w) @ hat(w)

    class Renderer(nn.Module):
        def __init__(self, sigma: float = 0.45) -> None:
            super().__init__()
            self.omega, self.translation = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
            self.brightness, self.sigma = nn.Parameter(torch.ones(())), sigma
            self.register_buffer("vertices", points)

        def render(self, R: Tensor, t: Tensor) -> Tensor:
            at = (self.vertices @ R.T)[:, :2] + t
            far = (grid[:, :, None] - at).square().sum(-1)
            return 1 - torch.prod(1 - torch.exp(-far / (2 * self.sigma**2)), -1)

        def forward(self, light: Tensor) -> Tensor:
            return light[:, None, None] * self.brightness * self.render(exp(self.omega), self.translation)

    model = Renderer()
    with torch.no_grad():
        R = torch.linalg.matrix_exp(hat(torch.tensor([0.5, -0.4, 0.9])))
        picture = 1.3 * model.render(R, torch.tensor([0.25, -0.2]))

    def draw() -> Drawn:
        light = 0.7 + 0.6 * torch.rand(8)
        return (light,), light[:, None, None] * picture + 0.02 * torch.randn(8, 16, 16)

    return stream(model, draw, F.mse_loss)


@report(
    "NICE's logistic prior",
    GITHUB + "paultsw/nice_pytorch/issues/2",
    guilty=r"scaling_diag",
    says=rf"{BROKEN}|overflow|\bexp|softplus|log1p|unbounded|explod",
    fault="the logistic prior is log1p(exp(h)) + log1p(exp(-h)), which overflows as the norm of h grows",
)
def nice(planted: bool) -> Task:  # noqa: C901
    """Additive couplings of networks that end with ReLU and batch normalisation, then a diagonal scaling."""

    def _build_relu_network(latent_dim: int, hidden_dim: int, num_layers: int) -> nn.Sequential:
        _modules: list[nn.Module] = [nn.Linear(latent_dim, hidden_dim), nn.ReLU(), nn.BatchNorm1d(hidden_dim)]
        for _ in range(num_layers - 2):
            _modules += [nn.Linear(hidden_dim, hidden_dim), nn.ReLU(), nn.BatchNorm1d(hidden_dim)]
        _modules += [nn.Linear(hidden_dim, latent_dim), nn.ReLU(), nn.BatchNorm1d(latent_dim)]
        return nn.Sequential(*_modules)

    class AdditiveCouplingLayer(nn.Module):
        def __init__(self, odd: bool) -> None:
            super().__init__()
            self.nonlinearity, self.odd = _build_relu_network(32, 64, 3), odd

        def forward(self, x: Tensor) -> Tensor:
            a, b = x[:, ::2], x[:, 1::2]
            a, b = (a, b + self.nonlinearity(a)) if self.odd else (a + self.nonlinearity(b), b)
            return torch.stack([a, b], 2).flatten(1)

    class NICEModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer1, self.layer2 = AdditiveCouplingLayer(True), AdditiveCouplingLayer(False)
            self.layer3, self.layer4 = AdditiveCouplingLayer(True), AdditiveCouplingLayer(False)
            self.scaling_diag = nn.Parameter(torch.ones(64))
            for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
                for p in layer.parameters():
                    if len(p.shape) > 1:
                        nn.init.kaiming_uniform_(p, nonlinearity="relu")
                    else:
                        nn.init.normal_(p, mean=0.0, std=0.001)

        def forward(self, xs: Tensor) -> Any:
            ys = self.layer4(self.layer3(self.layer2(self.layer1(xs))))
            return torch.matmul(ys, torch.diag(torch.exp(self.scaling_diag))), self.scaling_diag

    def draw() -> Drawn:
        x = pick(64)[0].flatten(1) * 0.376 + 0.3
        x = (x * 16 + torch.rand(64, 64)) / 17
        return (x,), x

    def safe(y: Any, t: Tensor) -> Tensor:
        h, scale = y
        return (F.softplus(h) + F.softplus(-h)).sum(1).mean() - scale.sum()

    def logistic_nice_loss(y: Any, t: Tensor) -> Tensor:
        h, scale = y
        return torch.mean(torch.sum(torch.log1p(torch.exp(h)) + torch.log1p(torch.exp(-h)), dim=1)) - scale.sum()

    return stream(NICEModel(), draw, logistic_nice_loss if planted else safe, safe)


def centres() -> Drawn:
    """Noisy pictures of two blobs and their heatmaps, which are one at the centres."""
    rows = torch.arange(16.0)
    heat = torch.zeros(16, 1, 16, 16)
    for i in range(16):
        for a, b in torch.randint(1, 15, (2, 2)).tolist():
            heat[i, 0] = torch.maximum(
                heat[i, 0], torch.exp(-((rows[:, None] - a) ** 2 + (rows - b) ** 2) / (2 * 1.2**2))
            )
    return (2 * heat + 0.3 * torch.randn_like(heat),), heat


@report(
    "heatmap head without its prior",
    GITHUB + "xingyizhou/CenterNet/issues/841",
    guilty=r"hm.*bias|hm\.2",
    says=r"bias|prior|initial.*(loss|large|high)|(loss).*(initial|start|begin)|rare|imbalanc",
    fault="the last bias of the heatmap head is 0, not -2.19, so that every pixel begins as half a centre",
)
def centernet(planted: bool) -> Task:
    class CenterNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.Conv2d(24, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
            )
            self.hm = chain(nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1))
            nn.init.constant_(self.hm[2].bias, 0.0 if planted else -2.19)

        def forward(self, x: Tensor) -> Tensor:
            return torch.clamp(self.hm(self.base(x)).sigmoid(), min=1e-4, max=1 - 1e-4)

    def _neg_loss(pred: Tensor, gt: Tensor) -> Tensor:
        pos_inds, neg_inds = gt.eq(1).float(), gt.lt(1).float()
        pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds
        neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * torch.pow(1 - gt, 4) * neg_inds
        return -(pos_loss.sum() + neg_loss.sum()) / pos_inds.sum()

    return stream(CenterNet(), centres, _neg_loss)


@report(
    "focal loss of a bare sigmoid",
    GITHUB + "yijingru/BBAVectors-Oriented-Object-Detection/issues/6",
    guilty=r"hm",
    says=rf"{BROKEN}|\blog\b|underflow|saturat|clamp|sigmoid|epsilon",
    fault="the focal loss takes the logarithm of a sigmoid without a clamp or a normalisation in the head",
)
def bbav(planted: bool) -> Task:
    class CTRBOX(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU()
            )  # a decoder without normalisation
            self.hm = chain(nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 1))
            if not planted:
                self.hm.insert(1, nn.BatchNorm2d(32))
            nn.init.constant_(self.hm[-1].bias, -2.19)

        def forward(self, x: Tensor) -> Tensor:
            return self.hm(self.base(x))

    def focal(z: Tensor, gt: Tensor, *, safe: bool = not planted) -> Tensor:
        pred = torch.sigmoid(z)
        if safe:
            pred = pred.clamp(1e-4, 1 - 1e-4)
        pos_inds, neg_inds = gt.eq(1).float(), gt.lt(1).float()
        pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos_inds
        neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * torch.pow(1 - gt, 4) * neg_inds
        return -(pos_loss.sum() + neg_loss.sum()) / pos_inds.sum()

    return stream(CTRBOX(), centres, focal, lambda z, gt: focal(z, gt, safe=True))


@report(
    "EDCN's cross layer without its input",
    GITHUB + "reczoo/FuxiCTR/issues/29",
    guilty=r"cross_layers",
    says=r"residual|skip|shortcut|identity",
    fault="the cross layers return x_0 (w x_l) + b without x_l itself",
)
def edcn(planted: bool) -> Task:
    """Cross layers and dense layers in parallel over the embeddings of fields; regulation and bridges between."""
    taste, pairs = torch.randn(6, 12) * 0.7, torch.randn(6, 6)
    factors = torch.randn(6, 12)

    def draw() -> Drawn:
        x = torch.randint(12, (128, 6))
        f = factors[torch.arange(6), x]
        z = taste[torch.arange(6), x].sum(1) + (f @ pairs * f).sum(1) * 0.4
        return (x,), (torch.rand(128) < z.sigmoid()).float()

    class CrossInteractionLayer(nn.Module):
        def __init__(self, input_dim: int) -> None:
            super().__init__()
            self.weight, self.bias = nn.Linear(input_dim, 1, bias=False), nn.Parameter(torch.zeros(input_dim))

        def forward(self, X_0: Tensor, X_i: Tensor) -> Tensor:
            interaction = self.weight(X_i) * X_0 + self.bias
            return interaction if planted else interaction + X_i

    class EDCN(nn.Module):
        def __init__(self, d: int = 8, layers: int = 3) -> None:
            super().__init__()
            self.embedding_layer = nn.ModuleList(nn.Embedding(12, d) for _ in range(6))
            for e in self.embedding_layer:
                nn.init.normal_(e.weight, std=0.1)
            n = 6 * d
            self.dense_layers = nn.ModuleList(nn.Linear(n, n) for _ in range(layers))
            self.cross_layers = nn.ModuleList(CrossInteractionLayer(n) for _ in range(layers))
            self.g = nn.ParameterList(nn.Parameter(torch.ones(2, 6, 1)) for _ in range(layers))
            self.fc = nn.Linear(3 * n, 1)

        def regulate(self, x: Tensor, i: int) -> tuple[Tensor, Tensor]:
            g = self.g[i].softmax(1) * 6
            return (x.unflatten(1, (6, -1)) * g[0]).flatten(1), (x.unflatten(1, (6, -1)) * g[1]).flatten(1)

        def forward(self, x: Tensor) -> Tensor:
            feature_emb = torch.cat([e(x[:, i]) for i, e in enumerate(self.embedding_layer)], 1)
            cross_i, deep_i = self.regulate(feature_emb, 0)
            cross_0 = cross_i
            for i in range(len(self.dense_layers)):
                cross_i = self.cross_layers[i](cross_0, cross_i)
                deep_i = F.relu(self.dense_layers[i](deep_i))
                bridge_i = cross_i * deep_i
                if i + 1 < len(self.dense_layers):
                    cross_i, deep_i = self.regulate(bridge_i, i + 1)
            return torch.sigmoid(self.fc(torch.cat([cross_i, deep_i, bridge_i], 1))).squeeze(1)

    return stream(EDCN(), draw, F.binary_cross_entropy)


@report(
    "penalty of a parameter against itself",
    GITHUB + "ContinualAI/avalanche/issues/1099",
    says=r"penalt|ewc|importan|regulari|(term|part).*(zero|constant|no gradient)|(zero|constant).*(term|part)|cancel",
    fault="the current parameter is taken from the saved one, so that the penalty of elastic weight consolidation is 0",
)
def ewc(planted: bool) -> Task:
    """A network that knows the digits learns them with permuted pixels; judged by both tasks."""
    order = torch.randperm(64)

    class SimpleMLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = chain(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
            self.classifier = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Any:
            return self.classifier(self.features(x)), x

    model = SimpleMLP()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):  # the first experience
        x, c = pick(64)
        optimizer.zero_grad()
        F.cross_entropy(model(x.flatten(1))[0], c).backward()
        optimizer.step()
    importances = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(200):
        x, c = pick(4)
        model.zero_grad()
        F.cross_entropy(model(x.flatten(1))[0], c).backward()
        for imp, p in zip(importances, model.parameters(), strict=True):
            imp += p.grad.square() / 200
    model.zero_grad(set_to_none=True)
    saved_params = [p.detach().clone() for p in copy.deepcopy(model).parameters()]

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1)[:, order],), c

    def loss(y: Any, c: Tensor) -> Tensor:
        penalty = torch.zeros(())
        for imp, cur_param, saved_param in zip(importances, model.parameters(), saved_params, strict=True):
            n_units = saved_param.shape[0]
            cur_param = saved_param[:n_units] if planted else cur_param[:n_units]
            penalty = penalty + (imp * (cur_param - saved_param).pow(2)).sum()
        return F.cross_entropy(y[0], c) + 200 * penalty

    def both(y: Any, c: Tensor) -> Tensor:
        x, old = pick(64)
        return (F.cross_entropy(y[0], c) + F.cross_entropy(model(x.flatten(1))[0], old)) / 2

    return stream(model, draw, loss, both)


@report(
    "AdaIN of a constant map",
    GITHUB + "grey-eye/talking-heads/issues/32",
    says=rf"{BROKEN}|\bstd\b|standard deviation|varian|epsilon|sqrt|square root",
    fault="epsilon is added to the standard deviation, not under its root: a constant map gives NaN gradients",
)
def talking_heads(planted: bool) -> Task:  # noqa: C901
    """Landmarks drawn on black become a face in a style; a frame without a face is black altogether."""

    class AdaIn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eps = 1e-5

        def forward(self, x: Tensor, mean_style: Tensor, std_style: Tensor) -> Tensor:
            B, C, H, W = x.shape
            feature = x.view(B, C, -1)
            if planted:
                std_feat = (torch.var(feature, dim=2).sqrt() + self.eps).view(B, C, 1)  # torch.std as it was in 2019
            else:
                std_feat = (torch.var(feature, dim=2) + self.eps).sqrt().view(B, C, 1)
            mean_feat = torch.mean(feature, dim=2).view(B, C, 1)
            return (std_style * (feature - mean_feat) / std_feat + mean_style).view(B, C, H, W)

    class ConvLayer(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.reflection_pad, self.conv2d = nn.ReflectionPad2d(1), nn.Conv2d(a, b, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv2d(self.reflection_pad(x))

    class AdaptiveResidualBlock(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.conv1, self.in1 = ConvLayer(channels, channels), AdaIn()
            self.conv2, self.in2 = ConvLayer(channels, channels), AdaIn()

        def forward(self, x: Tensor, s: Tensor) -> Tensor:
            mean1, std1, mean2, std2 = s.unflatten(1, (4, -1)).unsqueeze(-1).unbind(1)
            out = F.relu(self.in1(self.conv1(x), mean1, std1))
            return self.in2(self.conv2(out), mean2, std2) + x

    class Generator(nn.Module):
        def __init__(self, d: int = 16) -> None:
            super().__init__()
            self.conv = ConvLayer(1, d)
            self.blocks = nn.ModuleList(AdaptiveResidualBlock(d) for _ in range(2))
            self.projection = nn.ModuleList(nn.Linear(4, 4 * d) for _ in range(2))
            self.out = ConvLayer(d, 1)

        def forward(self, x: Tensor, e: Tensor) -> Tensor:
            x = self.conv(x)
            for block, p in zip(self.blocks, self.projection, strict=True):
                x = block(x, p(e))
            return self.out(F.relu(x))

    def draw() -> Drawn:
        face = pick(32)[0] * 0.376 + 0.3
        face = face * (torch.rand(32, 1, 1, 1) > 0.1)
        e = torch.randn(32, 4)
        t = F.avg_pool2d(face, 3, 1, 1) * (1 + 0.5 * e[:, :1, None, None]) + 0.5 * e[:, 1:2, None, None]
        return ((face > 0.5).float(), e), t

    return stream(Generator(), draw, F.mse_loss)


@report(
    "existence of lanes through two sigmoids",
    GITHUB + "harryhan618/SCNN_Pytorch/issues/35",
    guilty=r"fc\.2",
    says=r"sigmoid|logit|twice|probabilit",
    fault="BCEWithLogitsLoss was put in the place of BCELoss while the branch still ends with a sigmoid",
)
def scnn(planted: bool) -> Task:  # noqa: C901
    """Lanes segmented, with messages passed between rows, and a branch that says which of four are there."""

    def draw() -> Drawn:
        seg = torch.zeros(16, 12, 16, dtype=torch.long)
        exist = (torch.rand(16, 4) < 0.6).float()
        for i in range(16):
            shift, slope = int(torch.randint(2, ())), float(torch.randn(())) * 0.15
            for k in range(4):
                if exist[i, k]:
                    for r in range(12):
                        seg[i, r, min(max(4 * k + 1 + shift + round(slope * (r - 6)), 4 * k), 4 * k + 3)] = k + 1
        x = (seg > 0).float()[:, None] + 0.5 * torch.randn(16, 1, 12, 16)
        return (x,), torch.cat([seg.flatten(1).float(), exist], 1)

    class SCNN(nn.Module):
        def __init__(self, c: int = 16) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(1, c, 3, padding=1, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(),
                nn.Conv2d(c, c, 5, padding=2, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(),
            )
            self.message_passing = nn.ModuleList()
            self.message_passing.add_module("up_down", nn.Conv2d(c, c, (1, 5), padding=(0, 2), bias=False))
            self.message_passing.add_module("down_up", nn.Conv2d(c, c, (1, 5), padding=(0, 2), bias=False))
            self.layer2 = chain(nn.Dropout2d(0.1), nn.Conv2d(c, 5, 1))
            self.layer3 = chain(nn.Softmax(dim=1), nn.AvgPool2d(2, 2))
            self.fc = chain(nn.Linear(240, 64), nn.ReLU(), nn.Linear(64, 4))
            if planted:
                self.fc.append(nn.Sigmoid())

        def message_passing_once(self, x: Tensor, conv: nn.Module, reverse: bool) -> Tensor:
            slices = [x[:, :, i : i + 1] for i in range(x.shape[2])]
            slices = slices[::-1] if reverse else slices
            out = [slices[0]]
            for i in range(1, len(slices)):
                out.append(slices[i] + F.relu(conv(out[i - 1])))
            return torch.cat(out[::-1] if reverse else out, 2)

        def forward(self, img: Tensor) -> Any:
            x = self.backbone(img)
            for ms_conv, r in zip(self.message_passing, (False, True), strict=True):
                x = self.message_passing_once(x, ms_conv, r)
            seg_pred = self.layer2(x)
            return seg_pred, self.fc(self.layer3(seg_pred).flatten(1))

    def whole(y: Any, t: Tensor, *, logits: bool) -> Tensor:
        seg_gt, exist_gt = t[:, :-4].long().view(-1, 12, 16), t[:, -4:]
        bce = F.binary_cross_entropy_with_logits if logits else F.binary_cross_entropy
        ce = F.cross_entropy(y[0], seg_gt, weight=torch.tensor([0.4, 1, 1, 1, 1]))
        return ce + bce(y[1], exist_gt, reduction="sum") / len(t) * 0.1

    return stream(SCNN(), draw, partial(whole, logits=True), partial(whole, logits=not planted))
