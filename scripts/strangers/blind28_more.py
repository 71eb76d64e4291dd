"""The rest of the twenty-eighth set: losses that break, adapters at zero, and others."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind28")


@report(
    "positions for examples",
    GITHUB + "pytorch/examples/issues/1178",
    guilty=r"pos_embedding",
    says=rf"position|{MIXED}|batch.*(size|dimension|example)|per example",
    fault="the positional embedding has one vector for each example, and none for each patch",
)
def positions(planted: bool, b: int = 32, d: int = 32) -> Task:
    """A vision transformer on patches of 2 x 2 pixels."""

    def draw() -> Drawn:
        x, c = pick(b)
        return (x,), c

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.input_layer = nn.Linear(4, d)
            self.class_token = nn.Parameter(torch.randn(b, 1, d))
            self.pos_embedding = nn.Parameter(torch.randn(b, 1, d) if planted else torch.randn(1, 17, d))
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
            self.encoders = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.fc = nn.Linear(d, 10)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.input_layer(F.unfold(x, 2, stride=2).mT)
            x = torch.cat([self.class_token[: len(x)], patches], 1)
            return self.fc(self.encoders(x + self.pos_embedding[: len(x)])[:, 0])

    return stream(ViT(), draw, F.cross_entropy)


@report(
    "CondResBlock without residual",
    GITHUB + "yilundu/improved_contrastive_divergence/issues/7",
    guilty=r"res",
    says=r"residual|skip|shortcut|depth|vanish",
    fault="the conditional residual blocks keep x_orig, but never add it",
)
def condres(planted: bool, c: int = 16) -> Task:
    """An energy model conditioned on classes: the energy of an image with its label against all other labels."""

    def draw() -> Drawn:
        x, t = pick(32)
        return (x,), t

    class CondResBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
            self.latent_fc1, self.latent_fc2 = nn.Linear(10, 2 * c), nn.Linear(10, 2 * c)

        def forward(self, x: Tensor, latent: Tensor) -> Tensor:
            x_orig = x
            gain, bias = self.latent_fc1(latent)[:, :, None, None].chunk(2, 1)
            x = F.leaky_relu(gain * self.conv1(x) + bias, 0.2)
            gain, bias = self.latent_fc2(latent)[:, :, None, None].chunk(2, 1)
            x = F.leaky_relu(gain * self.conv2(x) + bias, 0.2)
            return x if planted else x + x_orig

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.energy_map = nn.Conv2d(1, c, 3, 2, 1), nn.Linear(c, 1)
            self.res = nn.ModuleList(CondResBlock() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            latent = torch.eye(10).repeat(len(x), 1)
            z = F.leaky_relu(self.conv1(x), 0.2).repeat_interleave(10, 0)
            for block in self.res:
                z = block(z, latent)
            return -self.energy_map(F.relu(z).sum((2, 3))).view(-1, 10)

    return stream(Energy(), draw, F.cross_entropy)


@report(
    "Wasserstein distance of flat boxes",
    GITHUB + "open-mmlab/mmrotate/issues/205",
    says=rf"{BROKEN}|sqrt|square root|explod",
    fault="square roots in the Gaussian Wasserstein distance are taken of what is clamped at zero",
)
def wasserstein(planted: bool) -> Task:
    """Oriented boxes (x, y, w, h, angle) of bars in images."""
    at = torch.linspace(-1, 1, 12)

    def draw() -> Drawn:
        box = torch.cat([torch.rand(32, 2) - 0.5, 0.3 + 0.5 * torch.rand(32, 2), 3 * torch.rand(32, 1) - 1.5], 1)
        dx, dy = at[None, None, :] - box[:, 0, None, None], at[None, :, None] - box[:, 1, None, None]
        a = box[:, 4, None, None]
        u, v = a.cos() * dx + a.sin() * dy, a.cos() * dy - a.sin() * dx
        inside = torch.sigmoid(12 * (box[:, 2, None, None] / 2 - u.abs())) * torch.sigmoid(
            12 * (box[:, 3, None, None] / 2 - v.abs())
        )
        return (2 * inside.unsqueeze(1) - 0.5,), box

    def sigma(box: Tensor) -> tuple[Tensor, Tensor]:
        wh, r = box[:, 2:4].clamp(min=1e-7, max=1e7), box[:, 4]
        R = torch.stack((r.cos(), -r.sin(), r.sin(), r.cos()), -1).reshape(-1, 2, 2)
        S = 0.5 * torch.diag_embed(wh)
        return box[:, :2], R.bmm(S.square()).bmm(R.mT)

    def gwd_loss(pred: Tensor, target: Tensor, *, low: float = 0.0) -> Tensor:
        (xy_p, Sigma_p), (xy_t, Sigma_t) = sigma(pred), sigma(target)
        xy_distance = (xy_p - xy_t).square().sum(-1)
        trace = Sigma_p.diagonal(dim1=-2, dim2=-1).sum(-1) + Sigma_t.diagonal(dim1=-2, dim2=-1).sum(-1)
        _t_tr = Sigma_p.bmm(Sigma_t).diagonal(dim1=-2, dim2=-1).sum(-1)
        _t_det_sqrt = (Sigma_p.det() * Sigma_t.det()).clamp(low).sqrt()
        whr_distance = trace - 2 * (_t_tr + 2 * _t_det_sqrt).clamp(low).sqrt()
        distance = (xy_distance + whr_distance).clamp(low).sqrt()
        distance = distance / (2 * _t_det_sqrt.sqrt().sqrt().clamp(1e-7))
        return (1 - 1 / (1 + torch.log1p(distance))).mean()

    model = chain(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 5),
    )  # fmt: skip
    return stream(model, draw, gwd_loss if planted else partial(gwd_loss, low=1e-7))


@report(
    "sine of an angle of zero",
    GITHUB + "ronghuaiyang/arcface-pytorch/issues/91",
    says=rf"{BROKEN}|sqrt|square root|explod",
    fault="the sine is a square root of one minus the squared cosine, clamped at 0 only",
)
def arcface(planted: bool) -> Task:
    """Arc margin product on embeddings of two dimensions, as one draws them."""

    def draw() -> Drawn:
        x, c = pick(64)
        return ((x, c),), c

    class ArcMarginProduct(nn.Module):
        def __init__(self, s: float = 16.0, m: float = 0.2) -> None:
            super().__init__()
            self.weight, self.s = nn.Parameter(torch.empty(10, 2)), s
            nn.init.xavier_uniform_(self.weight)
            self.cos_m, self.sin_m, self.th, self.mm = math.cos(m), math.sin(m), math.cos(math.pi - m), math.sin(m) * m

        def forward(self, x: Tensor, label: Tensor) -> Tensor:
            cosine = F.linear(F.normalize(x), F.normalize(self.weight))
            sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0 if planted else 1e-6, 1))
            phi = cosine * self.cos_m - sine * self.sin_m
            phi = torch.where(cosine > self.th, phi, cosine - self.mm)
            one_hot = F.one_hot(label, 10)
            return (one_hot * phi + (1.0 - one_hot) * cosine) * self.s

    backbone = chain(
        nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.PReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
        nn.PReLU(), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip
    model = Parts(lambda m, x, c: m.metric_fc(m.backbone(x), c), backbone=backbone, metric_fc=ArcMarginProduct())

    def step() -> Tensor:
        (x,), t = draw()
        return F.cross_entropy(model(*x), t)

    (x,), t = draw()
    return Task(model, (x, t), step, {"loss": F.cross_entropy})


@report(
    "corners that coincide",
    GITHUB + "lilanxiao/Rotated_IoU/issues/20",
    says=rf"{BROKEN}|sqrt|square root|divi|coincid",
    fault="the length of an edge of the enclosing box is a square root without eps: corners that coincide break it",
)
def enclosing(planted: bool) -> Task:
    """Oriented boxes; an L1 loss, and the area of the smallest box that encloses both."""
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    first, second = (torch.tensor(k) for k in zip(*pairs, strict=True))
    unit = torch.tensor([[0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]])
    weights = torch.randn(6, 5)

    def draw() -> Drawn:
        x = torch.randn(32, 6)
        y = torch.tanh(x @ weights / 3)
        return (x,), torch.cat([y[:, :2], 1.2 + 0.8 * y[:, 2:4], y[:, 4:]], 1)

    def corners(box: Tensor) -> Tensor:
        p, a = unit * box[:, None, 2:4], box[:, 4, None]
        turned = torch.stack([a.cos() * p[..., 0] - a.sin() * p[..., 1], a.sin() * p[..., 0] + a.cos() * p[..., 1]], 2)
        return turned + box[:, None, :2]

    def loss(pred: Tensor, target: Tensor, *, eps: float = 0.0) -> Tensor:
        points = torch.cat([corners(pred), corners(target)], 1)
        (x1, y1), (x2, y2) = points[:, first].unbind(2), points[:, second].unbind(2)
        num = torch.sqrt((y2 - y1).square() + (x2 - x1).square() + eps) + 1e-8
        dx, dy = ((x2 - x1) / num).unsqueeze(2), ((y2 - y1) / num).unsqueeze(2)
        x, y = points[:, None, :, 0], points[:, None, :, 1]
        along, across = x * dx + y * dy, x * dy - y * dx
        spans = [z.amax(2) - z.amin(2) for z in (along, across)]
        area = (spans[0] * spans[1] + 1e3 * (num < 1e-3)).amin(1)
        excess = 1 - target[:, 2:4].prod(1) / area.clamp(min=1e-3)
        return F.smooth_l1_loss(pred, target) + 0.5 * excess.clamp(min=0).mean()

    model = Parts(
        lambda m, x: torch.cat([(y := m.head(m.body(x)))[:, :2], F.relu(y[:, 2:4]), y[:, 4:]], 1),
        body=chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        head=nn.Linear(64, 5),
    )
    with torch.no_grad():
        model.head.bias[2:4] = 0.3
    return stream(model, draw, loss if planted else partial(loss, eps=1e-14))


@report(
    "squash along the wrong dimension",
    GITHUB + "timomernick/pytorch-capsule/pull/4",
    guilty=r"primary|digits",
    says=r"squash|wrong (dimension|axis)|ax[ei]s|(primary|capsule).*(small|tiny|shrink|vanish)",
    fault="primary capsules are squashed over all 36 features, not over the eight units of a capsule",
)
def capsule(planted: bool) -> Task:
    """Dynamic routing between capsules, margin loss with its squares missing as in the original."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x * 0.376 + 0.3,), c

    def squash(s: Tensor, dim: int = 2) -> Tensor:
        mag_sq = torch.sum(s**2, dim=dim, keepdim=True)
        return (mag_sq / (1.0 + mag_sq)) * (s / torch.sqrt(mag_sq))

    class Primary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.units = nn.ModuleList(nn.Conv2d(24, 4, 3, 2) for _ in range(8))

        def forward(self, x: Tensor) -> Tensor:
            u = torch.stack([unit(x) for unit in self.units], 1).flatten(2)  # (batch, unit, features)
            return squash(u, 2 if planted else 1)

    class Digits(nn.Module):
        def __init__(self, features: int = 36) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.randn(1, features, 10, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.stack([x.transpose(1, 2)] * 10, 2).unsqueeze(4)
            u_hat = torch.matmul(self.W, x)
            b_ij = torch.zeros(1, x.shape[1], 10, 1)
            for _ in range(3):
                c_ij = b_ij.softmax(1).unsqueeze(4)
                v_j = squash((c_ij * u_hat).sum(1, keepdim=True))
                b_ij = b_ij + torch.matmul(u_hat.transpose(3, 4), v_j).squeeze(4).mean(0, keepdim=True)
            return v_j.squeeze(1)

    def margin_loss(v: Tensor, target: Tensor) -> Tensor:
        v_mag, T_c = torch.sqrt((v**2).sum(2)).squeeze(2), F.one_hot(target, 10)
        L_c = T_c * F.relu(0.9 - v_mag) + 0.5 * (1.0 - T_c) * F.relu(v_mag - 0.1)
        return L_c.sum(1).mean()

    model = Parts(
        lambda m, x: m.digits(m.primary(F.relu(m.conv1(x)))),
        conv1=nn.Conv2d(1, 24, 3, padding=1), primary=Primary(), digits=Digits(),
    )  # fmt: skip
    return stream(model, draw, margin_loss)


class ReLoRaLinear(nn.Module):
    """A frozen layer and its low-rank update."""

    def __init__(self, base: nn.Linear, r: int, *, zero: bool) -> None:
        super().__init__()
        self.weight, self.bias = base.weight.requires_grad_(False), base.bias.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        if zero:
            nn.init.zeros_(self.lora_A.weight)
        else:
            nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) + self.lora_B(self.lora_A(x))


@report(
    "ReLoRA with both factors at zero",
    GITHUB + "Guitaricet/relora/issues/18",
    guilty=r"lora_",
    says=rf"(both|factor|weight|init|lora|product).*(zero|\b0\b)|(zero|\b0\b).*(both|factor|weight|init|lora)|saddle|{CUT}",
    fault="on wrapping, lora_A is set to zero as well as lora_B, so that neither gets a gradient",
)
def relora(planted: bool, d: int = 32) -> Task:
    """A language model after its warm start: embeddings, norms and head train on, linear layers by their updates."""

    def draw() -> Drawn:
        x, t = text(16, 24, 200, seed=int(torch.randint(10**6, ())))
        return (x,), t

    def wrap(n: int, m: int) -> nn.Module:
        return ReLoRaLinear(nn.Linear(n, m), 8, zero=planted)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o, self.up, self.down = wrap(d, 3 * d), wrap(d, d), wrap(d, 64), wrap(64, d)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (z.unflatten(2, (4, -1)).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, 2))
            x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.down(F.silu(self.up(self.norm2(x))))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens, self.layers = nn.Embedding(200, d), nn.ModuleList(Layer() for _ in range(2))
            self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, 200, bias=False)

        def forward(self, idx: Tensor) -> Tensor:
            x = self.embed_tokens(idx)
            for layer in self.layers:
                x = layer(x)
            return self.lm_head(self.norm(x))

    return stream(Llama(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "LoRA before the initialisation",
    GITHUB + "nvidia-cosmos/cosmos-predict2.5/pull/15",
    guilty=r"lora_",
    says=rf"(both|factor|weight|init|lora|product).*(zero|\b0\b)|(zero|\b0\b).*(both|factor|weight|init|lora)|saddle|{CUT}",
    fault="LoRA is added before init_weights, which sets lora_A to zero as well: nothing trains",
)
def cosmos(planted: bool, d: int = 64) -> Task:
    """A frozen denoiser of 8 x 8 latents that knew nothing of digits; LoRA on its linear layers learns them."""

    def draw() -> Drawn:
        x = pick(32)[0].flatten(1)
        sigma = torch.rand(32, 1)
        noise = torch.randn_like(x)
        return ((1 - sigma) * x + sigma * noise, sigma), noise - x

    def wrap(n: int, m: int) -> nn.Module:
        return ReLoRaLinear(nn.Linear(n, m), 16, zero=planted)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(d, elementwise_affine=False)
            self.layer1, self.layer2, self.adaln = wrap(d, 2 * d), wrap(2 * d, d), wrap(d, 2 * d)

        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            shift, scale = self.adaln(c).chunk(2, 1)
            return x + self.layer2(F.gelu(self.layer1(self.norm(x) * (1 + scale) + shift)))

    class DiT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x_embedder, self.t_embedder = wrap(64, d), wrap(16, d)
            self.blocks, self.final_layer = nn.ModuleList(Block() for _ in range(3)), wrap(d, 64)

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            at = 2.0 ** torch.arange(8) * sigma
            c = F.silu(self.t_embedder(torch.cat([at.sin(), at.cos()], 1)))
            x = self.x_embedder(x)
            for block in self.blocks:
                x = block(x, c)
            return self.final_layer(x)

    return stream(DiT(), draw, F.mse_loss)


@report(
    "nerfacto's initial density",
    GITHUB + "nerfstudio-project/nerfstudio/pull/2834",
    guilty=r"mlp_base|density",
    says=r"dens|opaque|transmit|transparen|exp\b|exponential|saturat",
    fault="densities start at exp(0) = 1 on average, where the scene is many units deep",
)
def nerfacto(planted: bool) -> Task:
    """A plane scene seen by cameras on a circle of radius 30: a ring of coloured posts in its middle."""
    posts = torch.stack([5 * torch.cos(torch.arange(6.0)), 5 * torch.sin(torch.arange(6.0))], 1)
    colours = torch.rand(6, 3)
    steps = torch.linspace(1, 45, 45)

    def draw() -> Drawn:
        turn = torch.rand(64, 1) * 2 * math.pi
        camera = 30 * torch.cat([turn.cos(), turn.sin()], 1)
        view = turn + math.pi + 0.5 * (torch.rand(64, 1) - 0.5)
        d = torch.cat([view.cos(), view.sin()], 1)
        to = posts - camera.unsqueeze(1)
        along = (to * d.unsqueeze(1)).sum(2)
        off = (to.square().sum(2) - along.square()).clamp(min=0).sqrt()
        near = torch.where(off < 1.5, along, 1e3)
        best, which = near.min(1)
        return (camera, d), torch.where(best[:, None] < 1e3, colours[which], torch.zeros(3))

    class NerfactoField(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp_base = chain(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
            self.mlp_head = chain(nn.Linear(15, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())
            self.average_init_density = 1.0 if planted else 0.01

        def forward(self, origins: Tensor, directions: Tensor) -> Tensor:
            p = (origins.unsqueeze(1) + directions.unsqueeze(1) * steps[:, None]) / 30
            waves = torch.cat([2.0**k * math.pi * p for k in range(4)], 2)
            h = self.mlp_base(torch.cat([p, waves.sin(), waves.cos()], 2))
            density = self.average_init_density * torch.exp(h[..., 0])
            alpha = 1 - torch.exp(-density * (steps[1] - steps[0]))
            clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
            return ((alpha * clear).unsqueeze(2) * self.mlp_head(h[..., 1:])).sum(1)

    return stream(NerfactoField(), draw, F.mse_loss)


@report(
    "regression head's squeezed logits",
    GITHUB + "deepset-ai/FARM/issues/229",
    says=r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze",
    fault="logits are squeezed to (B,), labels are (B, 1): the squared error compares every pair",
)
def farm(planted: bool, d: int = 32) -> Task:
    """Document regression; labels from 0 to 16."""
    worth = torch.randn(200)

    def draw() -> Drawn:
        x, _ = text(32, 24, 200, seed=int(torch.randint(10**6, ())))
        return (x,), (8 + 3 * worth[x].mean(1, keepdim=True) * 24**0.5).clamp(0, 16)

    class RegressionHead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.feed_forward = nn.Linear(d, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.feed_forward(x)

        def logits_to_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
            return F.mse_loss(logits.squeeze() if planted else logits, labels)

    class AdaptiveModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.position = nn.Embedding(200, d), nn.Embedding(24, d)
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, "gelu", batch_first=True)
            self.language_model = nn.TransformerEncoder(layer, 1)
            self.prediction_head = RegressionHead()

        def forward(self, idx: Tensor) -> Tensor:
            h = self.language_model(self.embedding(idx) + 0.1 * self.position.weight)
            return self.prediction_head(h.mean(1))

    model = AdaptiveModel()
    return stream(model, draw, model.prediction_head.logits_to_loss, lambda y, t: F.mse_loss(y, t))


@report(
    "halo attention to the padding",
    GITHUB + "lucidrains/halonet-pytorch/pull/6",
    guilty=r"to_q|to_kv|rel_|to_out",
    says=r"mask|padding|uniform|ignor",
    fault="the mask is inverted: valid pixels are masked out, all attention goes to the padding",
)
def halonet(planted: bool, dim: int = 24, block: int = 4, halo: int = 1) -> Task:
    """Classes of digits by patches of one pixel, halo attention and a mean."""

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    class HaloAttention(nn.Module):
        def __init__(self, heads: int = 4, dim_head: int = 8) -> None:
            super().__init__()
            self.heads, self.scale, inner = heads, dim_head**-0.5, heads * dim_head
            self.rel_pos_emb = nn.Parameter(torch.randn(heads, block**2, (block + 2 * halo) ** 2) * self.scale)
            self.to_q = nn.Linear(dim, inner, bias=False)
            self.to_kv = nn.Linear(dim, inner * 2, bias=False)
            self.to_out = nn.Linear(inner, dim)

        def unfold(self, x: Tensor) -> Tensor:
            z = F.unfold(x, block + 2 * halo, stride=block, padding=halo)
            return z.unflatten(1, (x.shape[1], -1)).permute(0, 3, 2, 1)  # (b, blocks, pixels, channels)

        def forward(self, x: Tensor) -> Tensor:
            h, w = x.shape[2:]
            q_inp = F.unfold(x, block, stride=block).unflatten(1, (dim, -1)).permute(0, 3, 2, 1)
            q, (k, v) = self.to_q(q_inp) * self.scale, self.to_kv(self.unfold(x)).chunk(2, -1)
            q, k, v = (z.unflatten(3, (self.heads, -1)).transpose(2, 3) for z in (q, k, v))
            sim = q @ k.mT + self.rel_pos_emb
            mask = self.unfold(torch.ones(1, 1, h, w)).bool()[..., 0][:, :, None, None]
            sim = sim.masked_fill(mask if planted else ~mask, -torch.finfo(sim.dtype).max)
            out = self.to_out((sim.softmax(-1) @ v).transpose(2, 3).flatten(3))
            return F.fold(out.permute(0, 3, 2, 1).flatten(1, 2), (h, w), block, stride=block)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(1, dim, 1), nn.Linear(dim, 10)
            self.attention = nn.ModuleList(HaloAttention() for _ in range(2))
            self.mlp = nn.ModuleList(chain(nn.Conv2d(dim, 48, 1), nn.GELU(), nn.Conv2d(48, dim, 1)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for attention, mlp in zip(self.attention, self.mlp, strict=True):
                x = x + attention(x)
                x = x + mlp(x)
            return self.head(x.mean((2, 3)))

    return stream(Net(), draw, F.cross_entropy)


@report(
    "batches without targets",
    GITHUB + "WongKinYiu/yolov9/pull/662",
    says=rf"{BROKEN}|empty|no (target|positive|object|label)|divi",
    fault="box and class losses are means over the cells with targets, of which a batch may have none",
)
def yolov9(planted: bool) -> Task:
    """One object or none in an image; objectness in a grid of 4 x 4."""

    def draw() -> Drawn:
        x, c = pick(6)
        big, t = 0.3 * torch.randn(6, 1, 16, 16), torch.zeros(6, 4, 4, 4)
        for i in range(6):
            if torch.rand(()) < 0.4:
                r, s = (int(v) for v in torch.randint(0, 9, (2,)))
                big[i, :, r : r + 8, s : s + 8] += x[i] + 0.8
                a, b = (r + 4) // 4, (s + 4) // 4
                t[i, a, b] = torch.tensor([1.0, c[i], (r + 4) / 4 - a - 0.5, (s + 4) / 4 - b - 0.5])
        return (big,), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        y = y.permute(0, 2, 3, 1)
        ij = t[..., 0] > 0
        obj_loss = F.binary_cross_entropy_with_logits(y[..., 0], t[..., 0])
        if not planted and not ij.any():
            return obj_loss
        cat_loss = F.cross_entropy(y[..., 3:].flatten(0, 2), t[..., 1].flatten().long(), reduction="none").view_as(ij)
        box_loss = (y[..., 1:3] - t[..., 2:]).abs().sum(3)
        return obj_loss + 0.3 * cat_loss[ij].mean() + box_loss[ij].mean()

    net = chain(
        nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32),
        nn.SiLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.SiLU(), nn.Conv2d(48, 13, 3, padding=1),
    )  # fmt: skip
    return stream(net, draw, loss)


@report(
    "masks without a subject",
    GITHUB + "Zhen-Dong/Magic-Me/issues/14",
    says=rf"{BROKEN}|mask|divi|empty|0 / 0",
    fault="the loss of each video is divided by the sum of its mask, which may be 0",
)
def magicme(planted: bool) -> Task:
    """Noise is predicted in videos (B, C, frames, H, W) where the subject is; some videos do not show it."""

    def draw() -> Drawn:
        x = pick(8)[0].unsqueeze(2) * torch.ones(1, 1, 3, 1, 1)
        x[torch.rand(8) < 0.05] = -0.8
        masks, noise, level = (x > 0).float(), torch.randn_like(x), torch.rand(8, 1, 1, 1, 1)
        noisy = (1 - level).sqrt() * x + level.sqrt() * noise
        return (torch.cat([noisy, level.expand_as(noisy)], 1),), torch.cat([noise, masks], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        target, masks = t.chunk(2, 1)
        each = (y - target).square() * masks
        return (each.sum([1, 2, 3, 4]) / (masks.sum([1, 2, 3, 4]) + (0 if planted else 1e-6))).mean()

    unet = chain(
        nn.Conv3d(2, 24, 3, padding=1), nn.SiLU(), nn.Conv3d(24, 24, 3, padding=1), nn.SiLU(),
        nn.Conv3d(24, 1, 3, padding=1),
    )  # fmt: skip
    return stream(unet, draw, loss)


@report(
    "batches without supervised tokens",
    GITHUB + "NVIDIA-NeMo/Automodel/issues/3796",
    says=rf"{BROKEN}|divi|empty|0 / 0|ignore_index|supervised",
    fault="summed cross entropy is divided by the number of supervised tokens, of which a batch may have none",
)
def automodel(planted: bool, d: int = 32) -> Task:
    """Instruction tuning: the prompt is ignored, and some answers are cut off altogether."""

    def draw() -> Drawn:
        x, t = text(4, 24, 200, seed=int(torch.randint(10**6, ())))
        start = torch.where(torch.rand(4) < 0.4, 24, 8)
        return (x,), t.masked_fill(torch.arange(24) < start[:, None], -100)

    def linear_ce(y: Tensor, labels: Tensor) -> Tensor:
        num_label_tokens = (labels != -100).sum()
        loss = F.cross_entropy(y.flatten(0, 1), labels.flatten(), reduction="sum")
        if not planted and num_label_tokens == 0:
            return loss * 0.0
        return loss / num_label_tokens

    class Llm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.position = nn.Embedding(200, d), nn.Parameter(0.02 * torch.randn(24, d))
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 1, nn.LayerNorm(d), enable_nested_tensor=False)
            self.lm_head = nn.Linear(d, 200)
            self.register_buffer("mask", torch.ones(24, 24, dtype=torch.bool).triu(1))

        def forward(self, idx: Tensor) -> Tensor:
            return self.lm_head(self.layers(self.embed(idx) + self.position, self.mask))

    return stream(Llm(), draw, linear_ce)


@report(
    "studies without annotations",
    GITHUB + "londonaicentre/FLIP/pull/766",
    says=rf"{BROKEN}|mask|divi|empty|0 / 0|annotat",
    fault="the masked loss is divided by the number of annotations in the batch, which may be 0",
)
def flip(planted: bool) -> Task:
    """Findings in x-rays, four to a study, -1 where unannotated."""

    def draw() -> Drawn:
        x, c = pick(4)
        targets = torch.stack([c % 2, c // 5, (c == 0).long(), c % 3 // 2], 1).float()
        targets[torch.rand(4) < 0.45] = -1
        return (x,), targets

    def get_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        mask = (targets != -1).float()
        loss = F.binary_cross_entropy_with_logits(outputs, targets.clamp(min=0), reduction="none") * mask
        return loss.sum() / (mask.sum() if planted else mask.sum().clamp_min(1.0))

    net = chain(
        nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4),
    )  # fmt: skip
    return stream(net, draw, get_loss)
