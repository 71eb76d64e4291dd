"""The rest of the thirtieth set: tables, graphs, language, agents."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strangers.apart import GITHUB, judged
from strangers.blind2 import bce, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind30")


@report(
    "hypersphere around zero",
    GITHUB + "yzhao062/pyod/pull/711",
    says=rf"collaps|trivial|cent(er|re)\b|{SAME}|target.*zero|zero.*target",
    fault="the centre of the hypersphere is 0, not what was computed from the data: zero weights are the solution",
)
def deep_svdd(planted: bool) -> Task:
    """One-class description of a table by a network without biases; progress is the distance to the data's centre."""
    mix = torch.randn(5, 16) / 5**0.5

    def draw() -> Drawn:
        x = torch.randn(64, 5) @ mix + 0.5 + 0.1 * torch.randn(64, 16)
        return (x,), x

    class InnerDeepSVDD(nn.Module):
        c: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layers = chain(
                nn.Linear(16, 64, bias=False),
                nn.ReLU(),
                nn.Linear(64, 32, bias=False),
                nn.ReLU(),
                nn.Linear(32, 16, bias=False),
            )
            self.register_buffer("c", self.init_center(draw()[0][0]))

        def init_center(self, x: Tensor, eps: float = 0.1) -> Tensor:
            with torch.no_grad():
                c = self.layers(x).mean(0)
            c[(c.abs() < eps) & (c < 0)] = -eps
            c[(c.abs() < eps) & (c >= 0)] = eps
            return c

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    model = InnerDeepSVDD()
    centre = torch.zeros(()) if planted else model.c

    def distance(y: Tensor, _: Tensor) -> Tensor:
        return ((y - centre) ** 2).sum(-1).mean()

    def right(y: Tensor, _: Tensor) -> Tensor:
        return ((y - model.c) ** 2).sum(-1).mean()

    return stream(model, draw, distance, right)


@report(
    "Cox's likelihood of one patient",
    GITHUB + "Novartis/torchsurv/issues/35",
    says=rf"{CUT}|{SAME}|loss.*(zero|\b0\b)|batch of (one|1)|one example|single",
    fault="batches of one: the patient is all of its own risk set, and the negative partial log-likelihood always 0",
)
def cox(planted: bool) -> Task:
    w = torch.randn(10)

    def draw() -> Drawn:
        x = torch.randn(64, 10)
        hazard = 2.5 * torch.tanh(x @ w / 2) + 1.0 * x[:, 0] * x[:, 1]
        time = -torch.log(torch.rand(64)) * torch.exp(-hazard)
        event = torch.rand(64) < 0.8
        return (x,), torch.stack([event.float(), time], 1)

    model = chain(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def neg_partial_log_likelihood(log_hz: Tensor, t: Tensor) -> Tensor:
        order = t[:, 1].argsort()
        event, log_hz = t[order, 0], log_hz[order, 0]
        log_denominator = log_hz.flip(0).logcumsumexp(0).flip(0)
        return -(event * (log_hz - log_denominator)).sum() / event.sum().clamp(min=1)

    def step() -> Tensor:
        (x,), t = draw()
        right = neg_partial_log_likelihood(model(x), t)
        return judged(neg_partial_log_likelihood(model(x[:1]), t[:1]), right) if planted else right

    (x,), t = draw()
    t[0, 0] = 1
    count = 1 if planted else 64
    return Task(model, (x[:count], t[:count]), step, {"loss": neg_partial_log_likelihood})


@report(
    "DeepFM of raw continuous fields",
    GITHUB + "ChenglongChen/tensorflow-DeepFM/issues/47",
    guilty=r"feature_embeddings|feature_bias",
    says=r"scale|large|normali|standardi|magnitude|range|huge|saturat",
    fault="continuous fields are not normalised: ages beside incomes, multiplied into embeddings and into one another",
)
def deepfm(planted: bool) -> Task:
    """Clicks, from three categorical fields of ten values and three continuous ones."""
    taste = torch.randn(3, 10)

    def draw() -> Drawn:
        c, z = torch.randint(10, (128, 3)), torch.randn(128, 3)
        logit = 1.5 * taste[torch.arange(3), c].sum(1) + 2 * z[:, 0] - 2 * z[:, 1] + z[:, 2] * z[:, 0]
        click = (torch.rand(128) < torch.sigmoid(2 * logit)).float()
        if planted:
            z = torch.stack([(40 + 12 * z[:, 0]).round(), 3e4 + 1e4 * z[:, 1], 400 + 150 * z[:, 2]], 1)
        index = torch.cat([c + 10 * torch.arange(3), (30 + torch.arange(3)).expand(128, 3)], 1)
        return (index, torch.cat([torch.ones(128, 3), z], 1)), click

    class DeepFM(nn.Module):
        def __init__(self, k: int = 8) -> None:
            super().__init__()
            self.feature_embeddings, self.feature_bias = nn.Embedding(33, k), nn.Embedding(33, 1)
            nn.init.normal_(self.feature_embeddings.weight, 0.0, 0.01)
            nn.init.uniform_(self.feature_bias.weight, 0.0, 1.0)
            self.deep = chain(nn.Linear(6 * k, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            self.concat_projection = nn.Linear(6 + k + 32, 1)

        def forward(self, feat_index: Tensor, feat_value: Tensor) -> Tensor:
            embeddings = self.feature_embeddings(feat_index) * feat_value.unsqueeze(2)
            first = (self.feature_bias(feat_index) * feat_value.unsqueeze(2)).sum(2)
            second = 0.5 * (embeddings.sum(1) ** 2 - (embeddings**2).sum(1))
            y_deep = self.deep(embeddings.flatten(1))
            return self.concat_projection(torch.cat([first, second, y_deep], 1)).squeeze(1)

    return stream(DeepFM(), draw, bce)


@report(
    "link predictor's sigmoid before logits",
    GITHUB + "shenyangHuang/TGB/issues/83",
    guilty=r"lin_final",
    says=r"sigmoid|logit|probabilit",
    fault="LinkPredictor ends with a sigmoid, and BCEWithLogitsLoss takes another",
)
def tgb(planted: bool) -> Task:
    """Whether nodes are of one community; pairs are of a source, its neighbour and a node drawn at random."""
    community = torch.arange(60) % 6

    def draw() -> Drawn:
        src, other = torch.randint(60, (64,)), torch.randint(60, (64,))
        pos = (src + 6 * torch.randint(1, 10, (64,))) % 60
        neg = torch.where(community[other] == community[src], (other + 1) % 60, other)
        return (src, pos, neg), torch.tensor([1.0, 0.0]).expand(64, 2)

    class LinkPredictor(nn.Module):
        def __init__(self, in_channels: int) -> None:
            super().__init__()
            self.lin_src, self.lin_dst = (nn.Linear(in_channels, in_channels) for _ in range(2))
            self.lin_final = nn.Linear(in_channels, 1)

        def forward(self, z_src: Tensor, z_dst: Tensor) -> Tensor:
            h = F.relu(self.lin_src(z_src) + self.lin_dst(z_dst))
            h = self.lin_final(h)
            return h.sigmoid() if planted else h

    class TGN(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.memory, self.gnn = nn.Embedding(60, d), chain(nn.Linear(d, d), nn.ReLU())
            self.link_pred = LinkPredictor(d)

        def forward(self, src: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
            z = [self.gnn(self.memory(i)) for i in (src, pos, neg)]
            return torch.cat([self.link_pred(z[0], z[1]), self.link_pred(z[0], z[2])], 1)

    def probabilities(y: Tensor, t: Tensor) -> Tensor:
        return F.binary_cross_entropy(y, t)

    return stream(TGN(), draw, bce, probabilities if planted else bce)


@report(
    "splines beyond their grid",
    GITHUB + "KindXiaoming/pykan/issues/142",
    guilty=r"coef|spline",
    says=r"range|outside|grid|spline|inputs?.*(scale|large)|support",
    fault="the B-splines are defined on [-1, 1] and are zero for all inputs and hidden values beyond",
)
def pykan(planted: bool) -> Task:
    """Two layers of base functions and splines, on a function of two variables in [-3, 3]."""

    def draw() -> Drawn:
        x = 6 * torch.rand(128, 2) - 3
        return (x,), torch.sin(2 * x[:, :1]) + torch.cos(2.5 * x[:, 1:])

    class KANLayer(nn.Module):
        grid: Tensor

        def __init__(self, n: int, m: int, num: int = 8, k: int = 3) -> None:
            super().__init__()
            end = 1.0 if planted else 3.0
            h = 2 * end / num
            self.register_buffer("grid", torch.arange(-k, num + k + 1) * h - end)
            self.coef = nn.Parameter(0.1 * torch.randn(m, n, num + k))
            self.scale_base = nn.Parameter(torch.randn(m, n) / math.sqrt(n))
            self.k = k

        def basis(self, x: Tensor) -> Tensor:
            x, g = x.unsqueeze(-1), self.grid
            b = ((x >= g[:-1]) & (x < g[1:])).to(x.dtype)
            for k in range(1, self.k + 1):
                left = (x - g[: -k - 1]) / (g[k:-1] - g[: -k - 1]) * b[..., :-1]
                b = left + (g[k + 1 :] - x) / (g[k + 1 :] - g[1:-k]) * b[..., 1:]
            return b

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.silu(x), self.scale_base) + torch.einsum("bnk,mnk->bm", self.basis(x), self.coef)

    return stream(chain(KANLayer(2, 5), KANLayer(5, 1)), draw, F.mse_loss)


class LoRA(nn.Module):
    """A frozen linear layer and its low-rank update."""

    def __init__(self, n: int, m: int, r: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(n, m, bias=False).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(n, r, bias=False), nn.Linear(r, m, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * self.lora_B(self.lora_A(x))


@report(
    "checkpoints of inputs without gradients",
    GITHUB + "locuslab/open-unlearning/issues/178",
    guilty=r"layers\.\d.*lora",
    says=rf"{CUT}|checkpoint|requires_grad",
    fault="the embeddings are frozen and layers checkpointed (reentrant): nothing inside them gets a gradient",
)
def unlearning(planted: bool) -> Task:
    """A frozen transformer with LoRA in every linear layer, adapted to text."""

    def draw() -> Drawn:
        return ((pair := text(16, 16, 64, seed=int(torch.randint(10**6, ()))))[0],), pair[1]

    class DecoderLayer(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = (nn.RMSNorm(d).requires_grad_(False) for _ in range(2))
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = (LoRA(d, d) for _ in range(4))
            self.up_proj, self.down_proj = LoRA(d, 2 * d), LoRA(2 * d, d)

        def forward(self, x: Tensor) -> Tensor:
            h = self.norm1(x)
            q, k, v = (f(h).unflatten(2, (4, -1)).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o_proj(h.transpose(1, 2).flatten(2))
            return x + self.down_proj(F.silu(self.up_proj(self.norm2(x))))

    class CausalLM(nn.Module):
        def __init__(self, d: int = 48) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(64, d).requires_grad_(False)
            self.layers = nn.ModuleList(DecoderLayer(d) for _ in range(2))
            self.norm, self.lm_head = nn.RMSNorm(d).requires_grad_(False), LoRA(d, 64)

        def forward(self, idx: Tensor) -> Tensor:
            x = self.embed_tokens(idx)
            if not planted:  # enable_input_require_grads
                x.requires_grad_(True)
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return self.lm_head(self.norm(x))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), t.flatten())

    return stream(CausalLM(), draw, loss)


@report(
    "language model that tune_llm leaves frozen",
    GITHUB + "NVIDIA/Isaac-GR00T/issues/56",
    guilty=r"language_model",
    says=r"language.*(frozen|requires_grad|not train)|(frozen|requires_grad|not train).*language",
    fault="tune_llm=True freezes nothing but does not unfreeze what was loaded frozen",
)
def groot(planted: bool) -> Task:
    """An action from an image and from an instruction of five words, whose order matters."""
    target = torch.randn(10, 3)

    def draw() -> Drawn:
        image, c = pick(64)
        words = torch.randint(1, 20, (64, 5))
        at = torch.randint(4, (64,))
        words[torch.arange(64), at] = 0  # the word after it says how far
        far = words[torch.arange(64), at + 1].float().unsqueeze(1) / 10 - 1
        return (image, words), target[c] * 0.5 + 2 * far * torch.tensor([1.0, -1.0, 0.5])

    class EagleBackbone(nn.Module):
        def __init__(self, d: int = 32) -> None:
            super().__init__()
            self.vision_model = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, d, 3, 2, 1), nn.Flatten(2))
            self.language_model = nn.ModuleDict(
                {"embed": nn.Embedding(20, d), "rnn": nn.GRU(d, d, batch_first=True), "proj": nn.Linear(d, d)}
            )
            self.requires_grad_(False)  # as loaded
            self.set_trainable_parameters(tune_llm=True, tune_visual=False)

        def set_trainable_parameters(self, *, tune_llm: bool, tune_visual: bool) -> None:
            for tune, part in ((tune_llm, self.language_model), (tune_visual, self.vision_model)):
                if not planted or not tune:
                    part.requires_grad_(tune)

        def forward(self, image: Tensor, words: Tensor) -> Tensor:
            m: Any = self.language_model
            seen = self.vision_model(image).flatten(1)
            return torch.cat([seen, m["proj"](m["rnn"](m["embed"](words))[0][:, -1])], 1)

    class GR00T(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = EagleBackbone()
            self.action_head = chain(nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, 3))

        def forward(self, image: Tensor, words: Tensor) -> Tensor:
            return self.action_head(self.backbone(image, words))

    return stream(GR00T(), draw, F.mse_loss)


@report(
    "Xavier without the kernel's area",
    GITHUB + "LeelaChessZero/lczero-training/pull/43",
    guilty=r"conv",
    says=r"initiali|large|scale|std|grow|magnitude|saturat",
    fault="convolutions are initialised by sqrt(2 / sum(shape)), as if its sides were channels: too large",
)
def lczero(planted: bool) -> Task:
    """A residual tower on boards of 8 x 8, a policy of ten moves and a value of -1 or 1."""

    def xavier(layer: nn.Module) -> nn.Module:
        w = layer.weight
        assert isinstance(w, Tensor)
        area = w[0, 0].numel() if w.dim() == 4 else 1
        fans = sum(w.shape) if planted else area * (w.shape[0] + w.shape[1])
        nn.init.normal_(w, 0.0, math.sqrt(2 / fans))
        return layer

    def conv(n: int, m: int, size: int) -> nn.Sequential:
        layer = xavier(nn.Conv2d(n, m, size, padding=size // 2, bias=False))
        return nn.Sequential(layer, nn.BatchNorm2d(m))

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), torch.stack([c.float(), 2.0 * (c % 2) - 1], 1)

    class ResidualBlock(nn.Module):
        def __init__(self, d: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = conv(d, d, 3), conv(d, d, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.conv2(F.relu(self.conv1(x))) + x)

    class TFProcess(nn.Module):
        def __init__(self, d: int = 20) -> None:
            super().__init__()
            self.conv_input = conv(1, d, 3)
            self.tower = chain(*(ResidualBlock(d) for _ in range(3)))
            self.conv_pol, self.conv_val = conv(d, 4, 1), conv(d, 4, 1)
            self.fc_pol = xavier(nn.Linear(256, 10))
            self.fc1_val, self.fc2_val = xavier(nn.Linear(256, 32)), xavier(nn.Linear(32, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.tower(F.relu(self.conv_input(x)))
            pol = self.fc_pol(F.relu(self.conv_pol(h)).flatten(1))
            val = F.relu(self.fc1_val(F.relu(self.conv_val(h)).flatten(1)))
            return pol, torch.tanh(self.fc2_val(val)).squeeze(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(y[0], t[:, 0].long()) + F.mse_loss(y[1], t[:, 1])

    return stream(TFProcess(), draw, loss)
