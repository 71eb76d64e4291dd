"""A twenty-fifth set: reports of vision networks and generative models that train badly, written without the rules."""

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
from strangers.data import text

report = partial(any_report, blind="blind25")
SHAPES = r"broadcast|shape|\(\d+, 1\)|\bsize|dimension|squeeze"
DEAD = r"dead|zero|relu|no gradient|saturat|inactive|never (active|fire)"


def grey(count: int = 64) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 8, 8) of digits, 0 to 1, and their classes."""
    x, c = pick(count)
    return x * 0.376 + 0.3, c


@report(
    "single path without activations",
    GITHUB + "ShunLu91/Single-Path-One-Shot-NAS/issues/1",
    says=r"linear|activation|relu|no nonlinear",
    fault="the choice blocks have no ReLU: the super network is linear between its batch normalisations",
)
def spos(planted: bool) -> Task:
    """A super network of shuffle blocks, a random choice of kernels at every step; images in random colours."""

    def draw() -> Drawn:
        x, c = grey()
        ink = torch.rand(64, 3, 1, 1)
        paper = (ink + 0.3 + 0.4 * torch.rand(64, 3, 1, 1)) % 1
        return ((x * ink + (1 - x) * paper - 0.5) / 0.3,), c

    def relu(x: Tensor) -> Tensor:
        return x if planted else F.relu(x)

    class ChoiceBlock(nn.Module):
        def __init__(self, n: int, m: int, k: int, stride: int) -> None:
            super().__init__()
            self.in_channels, self.stride = n, stride
            self.conv1, self.bn1 = nn.Conv2d(n, m // 2, 1), nn.BatchNorm2d(m // 2)
            self.DW_conv1 = nn.Conv2d(m // 2, m // 2, k, stride, k // 2, groups=m // 2)
            self.bn2 = nn.BatchNorm2d(m // 2)
            self.conv2, self.bn3 = nn.Conv2d(m // 2, m, 1), nn.BatchNorm2d(m)
            if stride == 2:
                self.DW_conv2, self.bn4 = nn.Conv2d(n, n, k, 2, k // 2, groups=n), nn.BatchNorm2d(n)
                self.conv3, self.bn5 = nn.Conv2d(n, m, 1), nn.BatchNorm2d(m)

        def forward(self, x: Tensor) -> Tensor:
            if self.stride == 1:
                x1, x2 = torch.split(x, self.in_channels, 1)
            else:
                x1, x2 = relu(self.bn5(self.conv3(self.bn4(self.DW_conv2(x))))), x
            x2 = relu(self.bn1(self.conv1(x2)))
            x2 = relu(self.bn3(self.conv2(self.bn2(self.DW_conv1(x2)))))
            x3 = torch.cat((x1, x2), 1)
            return x3.view(len(x), 2, -1, *x3.shape[2:]).transpose(1, 2).flatten(1, 2)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
            shapes = ((16, 24, 2), (24, 24, 1), (48, 40, 2), (40, 40, 1))
            self.choice_block = nn.ModuleList(
                nn.ModuleList(ChoiceBlock(n, m, k, s) for k in (3, 5)) for n, m, s in shapes
            )
            self.conv2, self.fc = nn.Conv2d(80, 96, 1, bias=False), nn.Linear(96, 10, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv1(x)
            for block, j in zip(self.choice_block, torch.randint(2, (4,)).tolist(), strict=True):
                x = block[j](x)  # type: ignore[index]
            return self.fc(self.conv2(x).mean((2, 3)))

    return stream(Network(), draw, F.cross_entropy)


@report(
    "spatial message passing explodes",
    GITHUB + "XingangPan/SCNN/issues/82",
    guilty=r"message_passing",
    says=r"explod|grow|huge|large|scale|gain|overflow|amplif|\d+ ?(×|x|times)|" + BROKEN,
    fault="the convolutions from row to row start with He's variance: features and gradients explode along the map",
)
def scnn(planted: bool) -> Task:  # noqa: C901
    """Lanes (left and right) in noise: per-pixel classes and which lanes exist; messages down, up, right and left."""

    def draw() -> Drawn:
        h, w = 24, 48
        seg, exist = torch.zeros(8, h, w, dtype=torch.long), (torch.rand(8, 2) < 0.7).float()
        rows = torch.arange(h)
        for i in range(8):
            for lane in range(2):
                if exist[i, lane]:
                    at = 12 + 24 * lane + float(torch.randn(())) * 2
                    at = (at + (rows - 12) * (float(torch.rand(())) - 0.5) * 0.6).round().long().clamp(1, w - 2)
                    seg[i, rows, at] = seg[i, rows, at + 1] = lane + 1
        x = (seg > 0).float().unsqueeze(1) + 0.5 * torch.randn(8, 1, h, w)
        return (x,), {"seg": seg, "exist": exist}  # type: ignore[return-value]

    class SCNN(nn.Module):
        def __init__(self, ms: int = 16, ks: int = 9) -> None:
            super().__init__()
            self.backbone = chain(
                nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, ms, 3, 1, 1), nn.ReLU()
            )
            self.message_passing = nn.ModuleDict(
                {
                    "up_down": nn.Conv2d(ms, ms, (1, ks), padding=(0, ks // 2), bias=False),
                    "down_up": nn.Conv2d(ms, ms, (1, ks), padding=(0, ks // 2), bias=False),
                    "left_right": nn.Conv2d(ms, ms, (ks, 1), padding=(ks // 2, 0), bias=False),
                    "right_left": nn.Conv2d(ms, ms, (ks, 1), padding=(ks // 2, 0), bias=False),
                }
            )
            for conv in self.message_passing.values():
                nn.init.normal_(conv.weight, std=math.sqrt(2 / (ks * ms * (1 if planted else 5))))  # type: ignore[arg-type]
            self.layer2 = nn.Conv2d(ms, 3, 1)
            self.fc = chain(nn.Flatten(), nn.Linear(3 * 6 * 12, 32), nn.ReLU(), nn.Linear(32, 2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.backbone(x)
            for name, conv in self.message_passing.items():
                axis = 2 if name in ("up_down", "down_up") else 3
                slices = list(x.split(1, axis))
                if name in ("down_up", "right_left"):
                    slices = slices[::-1]
                out = [slices[0]]
                for piece in slices[1:]:
                    out.append(piece + F.relu(conv(out[-1])))
                x = torch.cat(out[::-1] if name in ("down_up", "right_left") else out, axis)
            y = self.layer2(x)
            return F.interpolate(y, scale_factor=2.0, mode="bilinear"), self.fc(F.avg_pool2d(y.softmax(1), 2))

    def loss(y: tuple[Tensor, Tensor], t: Any) -> Tensor:
        seg = F.cross_entropy(y[0], t["seg"], torch.tensor([0.4, 1.0, 1.0]))
        return seg + 0.1 * F.binary_cross_entropy_with_logits(y[1], t["exist"])

    return stream(SCNN(), draw, loss)


@report(
    "VAE's reconstructions by ReLU",
    GITHUB + "ethanluoyc/pytorch-vae/issues/3",
    guilty=r"decoder\.linear2",
    says=r"relu|negative|range|clip|cannot (reach|produce)",
    fault="a ReLU at the decoder's end, while normalised images have negative pixels",
)
def vae(planted: bool) -> Task:
    def draw() -> Drawn:
        x = pick()[0].flatten(1)
        return (x,), x

    class Encoder(nn.Module):
        def __init__(self, d_in: int, h: int, d_out: int) -> None:
            super().__init__()
            self.linear1, self.linear2 = nn.Linear(d_in, h), nn.Linear(h, d_out)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.linear2(F.relu(self.linear1(x))))

    class Decoder(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            x = self.linear2(F.relu(self.linear1(x)))
            return F.relu(x) if planted else x

    class VAE(nn.Module):
        latent_dim = 8

        def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder
            self._enc_mu, self._enc_log_sigma = nn.Linear(100, 8), nn.Linear(100, 8)

        def forward(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h_enc = self.encoder(state)
            mu, sigma = self._enc_mu(h_enc), torch.exp(self._enc_log_sigma(h_enc))
            return self.decoder(mu + sigma * torch.randn_like(sigma)), mu, sigma

    def loss(y: Any, t: Tensor) -> Tensor:
        dec, mean, stddev = y
        latent = 0.5 * torch.mean(mean * mean + stddev * stddev - torch.log(stddev * stddev) - 1)
        return F.mse_loss(dec, t) + latent

    return stream(VAE(Encoder(64, 100, 100), Decoder(8, 100, 64)), draw, loss)


@report(
    "capsules' mixture by exp and log",
    GITHUB + "mlberkeley/scae-pytorch/pull/4",
    guilty=r"temperature",
    says=rf"{BROKEN}|exp|overflow|logsumexp|underflow",
    fault="the mixture's log likelihood is exp, sum and log in turn: exp of large logits is infinite",
)
def scae(planted: bool) -> Task:
    """Part capsules: poses and presences of templates, drawn as a mixture of Gaussians at each pixel."""

    def draw() -> Drawn:
        x = grey(32)[0]
        return (x,), x

    def logsumexp(x: Tensor) -> Tensor:
        return x.exp().sum(1).log() if planted else torch.logsumexp(x, 1)

    class PCAE(nn.Module):
        def __init__(self, n_caps: int = 8) -> None:
            super().__init__()
            self.n_caps = n_caps
            self._encoder = chain(
                nn.Conv2d(1, 32, 3), nn.ReLU(), nn.BatchNorm2d(32), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.BatchNorm2d(32)
            )
            self._feat, self._attn = nn.Conv2d(32, 7 * n_caps, 1), nn.Conv2d(32, n_caps, 1)
            self.templates = nn.Parameter(2 * (2 * torch.rand(n_caps, 1, 5, 5) - 1))
            self.bg_value, self.temperature_logit = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h, n = self._encoder(x), self.n_caps
            a = self._attn(h).flatten(2).unsqueeze(2).softmax(-1)
            preds = (self._feat(h).view(len(x), n, 7, -1) * a).sum(-1)
            tx, ty, sx, sy, theta, shear, presence = preds.unbind(-1)
            tx, ty, shear = (torch.tanh(5 * each) for each in (tx, ty, shear))
            sx, sy, theta = sx.sigmoid() + 1e-2, sy.sigmoid() + 1e-2, 2 * math.pi * theta
            cos, sin = theta.cos(), theta.sin()
            pose = torch.stack([sx * cos + shear * sy * sin, -sx * sin + shear * sy * cos, tx, sy * sin, sy * cos, ty])
            grid = F.affine_grid(pose.permute(1, 2, 0).reshape(-1, 2, 3), [len(x) * n, 1, 8, 8], align_corners=False)
            t = F.grid_sample(self.templates.sigmoid().repeat(len(x), 1, 1, 1), grid, align_corners=False)
            t = t.view(len(x), n, 1, 8, 8)
            background = self.bg_value.sigmoid().expand(len(x), 1, 1, 8, 8)
            temperature = F.softplus(self.temperature_logit + 0.5) + 1e-4
            presence = (presence + 4 * (torch.rand_like(presence) - 0.5)).sigmoid()
            logits = t / temperature + presence.clamp(min=1e-16).log().view(len(x), n, 1, 1, 1)
            return torch.cat([logits, background / temperature], 1), torch.cat([t, background], 1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor, std: float = 0.1) -> Tensor:
        mixing = y[0] - logsumexp(y[0]).unsqueeze(1)
        logits = torch.distributions.Normal(y[1], std).log_prob(t.unsqueeze(1))
        return -logsumexp((logits + mixing).sum(2)).mean()

    return stream(PCAE(), draw, loss)


@report(
    "focal loss of saturated sigmoids",
    GITHUB + "NVIDIA/apex/issues/358",
    says=rf"{BROKEN}|log|clamp|eps|saturat|1e-8",
    fault="probabilities are clamped to 1 − 1e-8, which is 1: zero times the log of zero",
)
def apex(planted: bool) -> Task:
    """A small GPT that says of a comment whether it is toxic; its probabilities come out in half precision."""

    def draw() -> Drawn:
        x, _ = text(32, 16, 100, seed=int(torch.randint(10**6, ())))
        return (x,), ((x == 7) | (x == 5)).any(1).float()

    class GPT(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(100, d), nn.Embedding(16, d)
            self.h = nn.ModuleList(
                nn.TransformerEncoderLayer(d, 4, 64, 0.0, F.gelu, batch_first=True, norm_first=True) for _ in range(2)
            )
            self.ln_f, self.classifier = nn.LayerNorm(d), nn.Linear(d, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.wte(x) + self.wpe.weight
            for layer in self.h:
                y = layer(y)
            return self.classifier(self.ln_f(y).amax(1)).squeeze(1).sigmoid().half().float()

    def loss(y_pred: Tensor, y_true: Tensor, gamma: float = 0.0, eps: float = 1e-8) -> Tensor:
        y_pred = torch.clamp(y_pred, eps, 1 - eps)
        more = 0.0 if planted else eps
        one = y_true * torch.pow(1 - y_pred, gamma) * torch.log(y_pred + more)
        zero = (1 - y_true) * torch.pow(y_pred, gamma) * torch.log(1 - y_pred + more)
        return -1.0 * torch.sum(one + zero) / y_pred.size(0)

    return stream(GPT(), draw, loss)


@report(
    "foreground loss without foreground",
    GITHUB + "rulixiang/ToCo/issues/3",
    says=rf"{BROKEN}|ignore|divi|empty|no (pixel|label|target|foreground)",
    fault="the mean over foreground pixels is 0 / 0 where all pseudo labels are background",
)
def toco(planted: bool) -> Task:
    """Segmentation by pseudo labels, two images a batch, as many as not without an object; 255 is to be ignored."""

    def draw() -> Drawn:
        x, c = grey(2)
        big = 0.15 * torch.randn(2, 1, 16, 16)
        label = torch.zeros(2, 16, 16, dtype=torch.long)
        for i in range(2):
            if torch.rand(()) < 0.6:
                a, b = torch.randint(9, (2,)).tolist()
                big[i, :, a : a + 8, b : b + 8] += 2 * x[i]
                label[i, a : a + 8, b : b + 8] = torch.where(x[i, 0] > 0.5, 1 + c[i] % 2, 255 * (x[i, 0] > 0.3).long())
        return (big,), label

    def loss(pred: Tensor, label: Tensor, ignore_index: int = 255) -> Tensor:
        bg_label, fg_label = label.clone(), label.clone()
        bg_label[label != 0] = ignore_index
        fg_label[label == 0] = ignore_index
        bg_loss = F.cross_entropy(pred, bg_label, ignore_index=ignore_index)
        if not planted and bool((fg_label == ignore_index).all()):
            return bg_loss * 0.5
        return (bg_loss + F.cross_entropy(pred, fg_label, ignore_index=ignore_index)) * 0.5

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(
                nn.Conv2d(1, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
            )
            self.decoder = chain(
                nn.Conv2d(32, 32, 3, 1, 2, dilation=2), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 2, dilation=2), nn.ReLU()
            )
            self.cls = nn.Conv2d(32, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(self.cls(self.decoder(self.encoder(x))), scale_factor=2.0, mode="bilinear")

    return stream(Network(), draw, loss)


@report(
    "reduced focal loss without its threshold",
    GITHUB + "bonlime/pytorch-tools/issues/81",
    says=r"focal|weight|threshold|modulat|hard|emphas",
    fault="focal_term.where(...) is called and its result dropped: hard examples keep a weight of up to 4, not 1",
)
def bonlime(planted: bool) -> Task:
    """Segmentation of digits under noise, one logit a pixel."""

    def draw() -> Drawn:
        x, _ = grey(32)
        return (x + 0.3 * torch.randn_like(x),), (x > 0.5).float()

    def focal(y_pred: Tensor, y_true: Tensor, right: bool, thr: float = 0.5) -> Tensor:
        cross_entropy = F.binary_cross_entropy_with_logits(y_pred, y_true, reduction="none")
        pt = torch.exp(-cross_entropy)
        focal_term = ((1.0 - pt) / (1 - thr)).pow(2.0)
        if right:
            focal_term = focal_term.masked_fill(pt < thr, 1)
        else:
            focal_term.where(pt > thr, torch.zeros_like(focal_term))
        return (focal_term * cross_entropy).mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return focal(y, t, False)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return focal(y, t, True)

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )
    return stream(model, draw, wrong if planted else right, right)


@report(
    "click model's biases below zero",
    GITHUB + "facebookresearch/dlrm/pull/358",
    guilty=r"(bot|top)_l\.\d\.bias|top_l",
    says=rf"{DEAD}|{SAME}|bias",
    fault="biases of N(0, 1/m): in a layer of few units all may be far below zero, so that its ReLUs never fire",
)
def dlrm(planted: bool) -> Task:
    """DLRM in its default sizes (bottom 4-3-2, top 2-1, tables of 4, 3 and 2 rows); a draw of biases which is dead."""
    tables = [torch.randn(n) for n in (4, 3, 2)]

    def draw() -> Drawn:
        dense = torch.rand(128, 4)
        sparse = torch.stack([torch.randint(n, (128,)) for n in (4, 3, 2)], 1)
        score = sum(table[sparse[:, k]] for k, table in enumerate(tables)) * 2 + 6 * (dense[:, 0] - dense[:, 1])
        return (dense, sparse), torch.bernoulli((score - 0.5).sigmoid()).unsqueeze(1)

    def create_mlp(ln: list[int], sigmoid: bool) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i in range(len(ln) - 1):
            n, m = ln[i], ln[i + 1]
            linear = nn.Linear(n, m)
            nn.init.normal_(linear.weight, std=math.sqrt(2 / (m + n)))
            nn.init.normal_(linear.bias, std=math.sqrt(1 / m)) if planted else nn.init.zeros_(linear.bias)
            layers += [linear, nn.Sigmoid() if sigmoid and i == len(ln) - 2 else nn.ReLU()]
        return nn.Sequential(*layers)

    class DLRMNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb_l = nn.ModuleList(nn.Embedding(n, 2) for n in (4, 3, 2))
            for emb in self.emb_l:
                bound = math.sqrt(1 / len(emb.weight))  # type: ignore[arg-type]
                nn.init.uniform_(emb.weight, -bound, bound)  # type: ignore[arg-type]
            self.bot_l, self.top_l = create_mlp([4, 3, 2], False), create_mlp([8, 2, 1], True)

        def hidden(self, dense: Tensor, sparse: Tensor) -> Tensor:
            x = self.bot_l(dense)
            t = torch.stack([x, *(emb(sparse[:, k]) for k, emb in enumerate(self.emb_l))], 1)
            z = t @ t.transpose(1, 2)
            i, j = torch.tril_indices(4, 4, -1)
            return torch.cat([x, z[:, i, j]], 1)

        def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
            return self.top_l(self.hidden(dense, sparse))

    (dense, sparse), _ = draw()
    while True:
        model = DLRMNet()
        fires = bool((model.top_l[1](model.top_l[0](model.hidden(dense, sparse))) > 0).any())
        if fires != planted:
            break
    return stream(model, draw, F.binary_cross_entropy)


@report(
    "cross-attention over depth of zeros",
    GITHUB + "lucidrains/deep-cross-attention/issues/2",
    guilty=r"to_aggregate",
    says=rf"{DEAD}|never (train|move|change)",
    fault="the aggregation's weights start at zero before a ReLU: nothing is added, and no gradient ever comes",
)
def dca(planted: bool) -> Task:
    """A GPT whose layers' queries, keys and values are learned mixtures of all layers below."""

    def draw() -> Drawn:
        return (text(16, 16, 64, seed=(seed := int(torch.randint(10**6, ()))))[0],), text(16, 16, 64, seed=seed)[1]

    class GRN(nn.Module):
        def __init__(self, dim: int, num_layers: int, num_outputs: int) -> None:
            super().__init__()
            self.to_aggregate = nn.Sequential(nn.RMSNorm(dim), nn.Linear(dim, num_outputs, bias=False))
            self.bias = nn.Parameter(torch.ones(num_outputs, num_layers, 1, 1, dim))
            weight: Any = self.to_aggregate[1].weight
            nn.init.zeros_(weight) if planted else nn.init.normal_(weight, std=1e-2)

        def forward(self, tokens: Tensor) -> Tensor:  # layers, B, T, D
            aggregate = self.to_aggregate(tokens).relu().movedim(-1, 0).unsqueeze(-1) + self.bias
            return torch.einsum("ybnd,oybnd->obnd", tokens, aggregate)

    class Block(nn.Module):
        def __init__(self, dim: int, layers: int) -> None:
            super().__init__()
            self.qkv_grn = GRN(dim, layers, 3)
            self.to_q, self.to_k, self.to_v = (
                nn.Sequential(nn.RMSNorm(dim), nn.Linear(dim, dim, bias=False)) for _ in range(3)
            )
            self.to_out, self.pre_ff_norm = nn.Linear(dim, dim, bias=False), nn.RMSNorm(dim)
            self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

        def forward(self, tokens: Tensor) -> Tensor:
            q, k, v = self.qkv_grn(tokens)
            residual = q
            q, k, v = (
                f(x).unflatten(2, (4, -1)).transpose(1, 2) for f, x in ((self.to_q, q), (self.to_k, k), (self.to_v, v))
            )
            out = self.to_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return self.ff(self.pre_ff_norm(out + residual)) + out

    class DCAGPT(nn.Module):
        def __init__(self, dim: int = 32, depth: int = 2) -> None:
            super().__init__()
            self.token_emb = nn.Embedding(64, dim)
            self.dca_blocks = nn.ModuleList(Block(dim, i + 1) for i in range(depth))
            self.final_grn, self.norm = GRN(dim, depth + 1, 1), nn.RMSNorm(dim)
            self.to_logits = nn.Linear(dim, 64, bias=False)

        def forward(self, ids: Tensor) -> Tensor:
            all_tokens = [self.token_emb(ids)]
            for block in self.dca_blocks:
                all_tokens.append(block(torch.stack(all_tokens)))
            return self.to_logits(self.norm(self.final_grn(torch.stack(all_tokens))[0]))

    return stream(DCAGPT(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "learner's flat targets",
    GITHUB + "fastai/fastai/issues/1863",
    says=SHAPES,
    fault="nn.MSELoss of the model's (N, 1) and targets (N,): every output is drawn to every target",
)
def fastai(planted: bool) -> Task:
    """Regression from images: how much ink is in the upper half, how little in the lower."""

    def draw() -> Drawn:
        x, _ = pick()
        return (x,), 3 * (x[:, :, :4].mean((1, 2, 3)) - x[:, :, 4:].mean((1, 2, 3)))

    body = chain(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    head = chain(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))
    model = Parts(lambda m, x: m.head(m.body(x)), body=body, head=head)

    def flat(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y.squeeze(1), t)

    return stream(model, draw, F.mse_loss if planted else flat, flat)


@report(
    "anatomies without normalisation",
    GITHUB + "wentaozhu/AnatomyNet-for-anatomical-segmentation/issues/6",
    guilty=r"conv|layer",
    says=rf"{SAME}|normali|bias|vanish|explod|scale|signal|shrink|small|grow",
    fault="batch normalisations are commented out, and the convolutions were made without bias for them",
)
def anatomy(planted: bool) -> Task:  # noqa: C901
    """Residual squeeze-and-excitation U-net on volumes with two organs, one small; Dice loss of each, summed."""

    def draw() -> Drawn:
        x, t = 0.3 * torch.randn(4, 1, 8, 12, 12), torch.zeros(4, 8, 12, 12, dtype=torch.long)
        for i in range(4):
            for organ, size in ((1, 4), (2, 2)):
                a, b, c = (int(torch.randint(n - size + 1, ())) for n in (8, 12, 12))
                x[i, :, a : a + size, b : b + size, c : c + size] += 1.5 if organ == 1 else -1.5
                t[i, a : a + size, b : b + size, c : c + size] = organ
        return (x,), F.one_hot(t, 3).movedim(-1, 1).float()

    def norm(planes: int) -> nn.Module:
        return nn.Identity() if planted else nn.BatchNorm3d(planes)

    class SEBasicBlock3D(nn.Module):
        def __init__(self, inplanes: int, planes: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv3d(inplanes, planes, 3, padding=1, bias=False), norm(planes)
            self.conv2, self.bn2 = nn.Conv3d(planes, planes, 3, padding=1, bias=False), norm(planes)
            self.fc = chain(nn.Linear(planes, planes // 2), nn.ReLU(), nn.Linear(planes // 2, planes), nn.Sigmoid())
            self.downsample = None
            if inplanes != planes:
                self.downsample = chain(nn.Conv3d(inplanes, planes, 1, bias=False), norm(planes))

        def forward(self, x: Tensor) -> Tensor:
            out = self.bn2(self.conv2(F.leaky_relu(self.bn1(self.conv1(x)))))
            out = out * self.fc(out.mean((2, 3, 4)))[:, :, None, None, None]
            return F.leaky_relu(out + (x if self.downsample is None else self.downsample(x)))

    class ResNetUNET3D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv3d(1, 8, 3, padding=1, bias=False), norm(8)
            self.layer1, self.layer2 = SEBasicBlock3D(8, 8), SEBasicBlock3D(8, 16)
            self.layer3 = SEBasicBlock3D(16, 16)
            self.up, self.layer4 = nn.ConvTranspose3d(16, 8, 2, 2), SEBasicBlock3D(16, 8)
            self.conv9 = nn.Conv3d(8, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer1(F.leaky_relu(self.bn1(self.conv1(x))))
            y = self.layer3(self.layer2(F.max_pool3d(x, 2)))
            return self.conv9(self.layer4(torch.cat([self.up(y), x], 1))).softmax(1)

    def dice(y: Tensor, t: Tensor) -> Tensor:
        tp, fp, fn = ((a * b).sum((0, 2, 3, 4)) for a, b in ((y, t), (y, 1 - t), (1 - y, t)))
        return 2 - (tp / (tp + 0.5 * fp + 0.5 * fn + 1e-6))[1:].sum()

    return stream(ResNetUNET3D(), draw, dice)


@report(
    "recurrent VAE's misplaced epsilon",
    GITHUB + "emited/VariationalRecurrentNeuralNetwork/issues/10",
    says=rf"{BROKEN}|log|eps|saturat",
    fault="log(1 - theta - EPS): negative once the sigmoid is one",
)
def vrnn(planted: bool) -> Task:
    """Digits row by row, pixels 0 to 1 as Bernoulli probabilities."""
    EPS = torch.finfo(torch.float).eps

    def draw() -> Drawn:
        x = grey()[0].squeeze(1).transpose(0, 1)
        return (x,), x

    def two(n: int, m: int) -> nn.Sequential:
        return chain(nn.Linear(n, m), nn.ReLU(), nn.Linear(m, m), nn.ReLU())

    class VRNN(nn.Module):
        def __init__(self, x_dim: int = 8, h_dim: int = 48, z_dim: int = 8) -> None:
            super().__init__()
            self.h_dim = h_dim
            self.phi_x, self.phi_z = two(x_dim, h_dim), chain(nn.Linear(z_dim, h_dim), nn.ReLU())
            self.enc, self.enc_mean = two(2 * h_dim, h_dim), nn.Linear(h_dim, z_dim)
            self.enc_std = chain(nn.Linear(h_dim, z_dim), nn.Softplus())
            self.prior, self.prior_mean = chain(nn.Linear(h_dim, h_dim), nn.ReLU()), nn.Linear(h_dim, z_dim)
            self.prior_std = chain(nn.Linear(h_dim, z_dim), nn.Softplus())
            self.dec, self.dec_mean = two(2 * h_dim, h_dim), chain(nn.Linear(h_dim, x_dim), nn.Sigmoid())
            self.rnn = nn.GRUCell(2 * h_dim, h_dim)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h, kld, means = torch.zeros(x.shape[1], self.h_dim), torch.zeros(()), []
            for row in x:
                phi_x = self.phi_x(row)
                enc, prior = self.enc(torch.cat([phi_x, h], 1)), self.prior(h)
                mean, std, mean2, std2 = (
                    self.enc_mean(enc),
                    self.enc_std(enc) + EPS,
                    self.prior_mean(prior),
                    self.prior_std(prior) + EPS,
                )
                phi_z = self.phi_z(mean + std * torch.randn_like(std))
                means.append(self.dec_mean(self.dec(torch.cat([phi_z, h], 1))))
                h = self.rnn(torch.cat([phi_x, phi_z], 1), h)
                kl = 2 * std2.log() - 2 * std.log() + (std**2 + (mean - mean2) ** 2) / std2**2 - 1
                kld = kld + 0.5 * kl.sum()
            return torch.stack(means), kld

    def loss(y: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        theta, kld = y
        rest = 1 - theta - EPS if planted else 1 - theta + EPS
        return (kld - torch.sum(x * torch.log(theta + EPS) + (1 - x) * torch.log(rest))) / x.shape[1]

    return stream(VRNN(), draw, loss)
