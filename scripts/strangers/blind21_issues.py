"""The rest of the twenty-first set: reports that issues tell."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind21")


@report(
    "DoRA with A and B of zeros",
    GITHUB + "catid/dora/pull/1",
    guilty=r"lora",
    says=r"zero|no gradient|gradients?.* none",
    fault="DoRA: lora_A and lora_B both begin with zeros, so neither gets a gradient (fix: lora_A at random)",
)
def dora(planted: bool) -> Task:
    class DoRALayer(nn.Module):
        def __init__(self, d_in, d_out, rank=4, weight=None, bias=None):
            super().__init__()
            self.weight = nn.Parameter(weight, requires_grad=False)
            self.bias = nn.Parameter(bias, requires_grad=False)
            self.m = nn.Parameter(self.weight.norm(p=2, dim=0, keepdim=True))
            self.lora_A = nn.Parameter(torch.zeros(d_out, rank))
            if not planted:
                nn.init.normal_(self.lora_A, std=rank**-0.5)
            self.lora_B = nn.Parameter(torch.zeros(rank, d_in))

        def forward(self, x):
            adapted = self.weight + self.lora_A @ self.lora_B
            return F.linear(x, self.m * (adapted / adapted.norm(p=2, dim=0, keepdim=True)), self.bias)

    first, last = nn.Linear(16, 48), nn.Linear(48, 8)  # as trained before, on another task
    new = nn.Linear(16, 8)
    model = chain(
        DoRALayer(16, 48, 4, first.weight.data.clone(), first.bias.data.clone()),
        nn.ReLU(),
        DoRALayer(48, 8, 4, last.weight.data.clone(), last.bias.data.clone()),
    )

    def draw() -> Drawn:
        x = torch.randn(32, 16)
        with torch.no_grad():
            return (x,), 2 * new(x)

    return stream(model, draw, F.mse_loss)


@report(
    "returns over a std of zero",
    GITHUB + "pytorch/examples/pull/76",
    says=BROKEN + r"|\bstd\b|deviation|0 ?/ ?0|divi",
    fault="REINFORCE: (rewards - mean) / std is 0 / 0 in an episode that never saw a reward (fix: + eps)",
)
def reinforce(planted: bool) -> Task:
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1, self.affine2 = nn.Linear(4, 128), nn.Linear(128, 2)

        def forward(self, x):
            return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=-1)

    def draw() -> Drawn:
        x = torch.randn(32, 12, 4)
        a = torch.randint(2, (32, 12))
        good = (a == (x[..., 0] + x[..., 1] > 0)) & (x[..., 2] > 0.7)
        return (x,), {"action": a, "reward": good.float()}

    def finish_episode(p, t):
        R, rewards = 0, []
        for r in t["reward"].flip(1).unbind(1):
            R = r + 0.5 * R
            rewards.insert(0, R)
        rewards = torch.stack(rewards, 1)
        std = rewards.std(1, keepdim=True)
        rewards = (rewards - rewards.mean(1, keepdim=True)) / (std if planted else std + torch.finfo(torch.float32).eps)
        chosen = p.gather(2, t["action"].unsqueeze(2)).squeeze(2)
        return -(chosen.clamp(1e-4).log() * rewards).sum(1).mean()

    return stream(Policy(), draw, finish_episode)


@report(
    "Normalization with a variance of zero",
    GITHUB + "Dobiasd/frugally-deep/pull/384",
    says=BROKEN + r"|varian|divi",
    fault="a Normalization layer divides by the square root of a variance that is 0 where a pixel is always black",
)
def normalization(planted: bool) -> Task:
    class Normalization(nn.Module):
        def __init__(self, data):
            super().__init__()
            self.register_buffer("mean", data.mean(0))
            self.register_buffer("variance", data.var(0, unbiased=False))

        def forward(self, x):
            return (x - self.mean) / (self.variance.sqrt() if planted else self.variance.sqrt().clamp(min=1e-7))

    def draw() -> Drawn:
        x, c = pick(64)
        return ((x * 0.376 + 0.3).clamp(min=0).flatten(1).mul(16).round().div(16),), c

    every = torch.cat([draw()[0][0] for _ in range(20)])
    return stream(chain(Normalization(every), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), draw, F.cross_entropy)


@report(
    "blank images over their std",
    GITHUB + "vanvalenlab/deepcell-toolbox/pull/72",
    says=BROKEN + r"|std|deviation",
    fault="each image and channel is divided by its standard deviation without an epsilon: a blank channel is NaN",
)
def deepcell(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(16)
        cells = (F.interpolate(x, size=16, mode="bilinear") > 0.3).float()
        nuclei = 0.2 + cells * torch.rand(16, 1, 1, 1) + 0.05 * torch.randn(16, 1, 16, 16)
        membrane = F.max_pool2d(cells, 3, 1, 1) - cells
        membrane = membrane * (torch.rand(16, 1, 1, 1) > 0.1)  # the stain of some fields is missing
        image = torch.cat([nuclei, membrane], 1)
        std = image.std((2, 3), keepdim=True)
        return ((image - image.mean((2, 3), keepdim=True)) / (std if planted else std + 1e-7),), cells

    model = chain(
        nn.Conv2d(2, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )
    return stream(model, draw, F.binary_cross_entropy_with_logits)


@report(
    "ReLU before LogSoftmax",
    GITHUB + "gcr/torch-residual-networks/issues/1",
    guilty=r"^8\.",
    says=r"relu|negative|clip|dead",
    fault="the residual network ends Linear, ReLU, LogSoftmax (fix: no ReLU)",
)
def gcr(planted: bool) -> Task:
    class Residual(nn.Module):
        def __init__(self, i, o, stride=1):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o)
            self.stride, self.more = stride, o - i

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            x = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
            return F.relu(x + y)

    model = chain(
        nn.Conv2d(1, 16, 3, 1, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16, 16),
        Residual(16, 24, 2),
        Residual(24, 24),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 40),
        nn.ReLU() if planted else nn.Identity(),
        nn.LogSoftmax(dim=1),
    )

    def draw() -> Drawn:
        x, c = pick(32)
        turn = torch.randint(4, (32,))
        return (torch.stack([i.rot90(int(k), (1, 2)) for i, k in zip(x, turn, strict=False)]),), 4 * c + turn

    return stream(model, draw, F.nll_loss)


@report(
    "corner taken for a centre, SSD",
    GITHUB + "pierluigiferrari/ssd_keras/issues/15",
    says=r"(targets?|box|boxes|labels?).*(off|shift|wrong|range|scale|large|mean)|corner|cent(re|er)|encod",
    fault="boxes (x, y, w, h) whose x, y are the top left corner are read as centres: targets are half a box off",
)
def ssd_corner(planted: bool) -> Task:
    size = 16
    grid = (torch.arange(4).float() + 0.5) * 4
    anchors = torch.stack([grid.view(1, 4).expand(4, 4), grid.view(4, 1).expand(4, 4)], -1).reshape(16, 2)
    anchors = torch.cat([anchors, torch.full((16, 2), 6.0)], 1)  # centres and sizes

    class SSD(nn.Module):
        def __init__(self, d=24):
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, d, 3, 1, 1),
                nn.ReLU(),
                nn.Conv2d(d, d, 3, 2, 1),
                nn.ReLU(),
                nn.Conv2d(d, d, 3, 2, 1),
                nn.ReLU(),
            )
            self.classes, self.boxes = nn.Conv2d(d, 2, 3, padding=1), nn.Conv2d(d, 4, 3, padding=1)

        def forward(self, x):
            f = self.base(x)
            return torch.cat([self.classes(f), self.boxes(f)], 1).flatten(2).transpose(1, 2)  # (B, 16, 2 + 4)

    def encode(box):  # (B, 4) centres and sizes, to (B, 16, 1 + 4): class and offsets of each anchor
        a, b = anchors.unsqueeze(0), box.unsqueeze(1)
        low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
        high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
        both = (high - low).clamp(min=0).prod(-1)
        iou = both / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - both)
        sizes = (b[..., 2:] / a[..., 2:]).log() / 0.2
        offsets = torch.cat([(b[..., :2] - a[..., :2]) / a[..., 2:] / 0.1, sizes], -1)
        return torch.cat([(iou > 0.4).float().unsqueeze(-1), offsets], -1)

    def loss(y, t):
        on = t[..., 0]
        c = F.cross_entropy(y[..., :2].transpose(1, 2), on.long())
        far = F.smooth_l1_loss(y[..., 2:], t[..., 1:], reduction="none").sum(-1)
        return c + (far * on).sum() / on.sum().clamp(min=1)

    def draw() -> Drawn:
        wh = 4 + 4 * torch.rand(32, 2)
        xy = torch.rand(32, 2) * (size - wh)
        at = torch.arange(size) + 0.5

        def inside(k):
            return ((at > xy[:, k : k + 1]) & (at < (xy + wh)[:, k : k + 1])).float()

        image = inside(1).unsqueeze(2) * inside(0).unsqueeze(1)
        return (image.unsqueeze(1) + 0.1 * torch.randn(32, 1, size, size),), torch.cat([xy, wh], 1)

    def read(t):
        return encode(t if planted else torch.cat([t[:, :2] + t[:, 2:] / 2, t[:, 2:]], 1))

    def true(t):
        return encode(torch.cat([t[:, :2] + t[:, 2:] / 2, t[:, 2:]], 1))

    return stream(SSD(), draw, lambda y, t: loss(y, read(t)), lambda y, t: loss(y, true(t)))


@report(
    "double sigmoid, transformer on dynamic graphs",
    GITHUB + "YXNTU/GeneralDyG/issues/6",
    says=r"sigmoid|(logits|probabilit).*(twice|expect|already|between|range|0 (to|and) 1)|saturat",
    fault="the classifier ends in a sigmoid, and binary_cross_entropy_with_logits applies another",
)
def generaldyg(planted: bool) -> Task:
    class TransformerBinaryClassifier(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.embed = nn.Linear(8, d)
            layer = nn.TransformerEncoderLayer(d, 4, 64, 0.1, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.classifier, self.sigmoid = nn.Linear(d, 1), nn.Sigmoid()

        def forward(self, x, mask):
            h = self.encoder(self.embed(x), src_key_padding_mask=~mask)
            h = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
            logits = self.classifier(h)
            if planted:
                logits = self.sigmoid(logits)
            return logits.squeeze(1)

    def draw() -> Drawn:
        mask = torch.arange(10) < torch.randint(5, 11, (32, 1))
        odd = (torch.rand(32) < 0.15).float()
        x = torch.randn(32, 10, 8)
        x[:, :, 0] = x[:, :, 1] * 0.8 + 0.3 * x[:, :, 0]
        x[:, 0:4, 0] += 2 * odd.unsqueeze(1)
        return (x, mask), odd

    def criterion(logits, labels):
        return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean()

    return stream(TransformerBinaryClassifier(), draw, criterion)


@report(
    "argmax between two modules",
    GITHUB + "pytorch/pytorch/issues/1339",
    guilty=r"first",
    says=rf"{CUT}|argmax|never.*gradient|not.*updated",
    fault="the first module's output goes through max(1)[1] to the second: no gradient for the first (softmax)",
)
def argmax_between(planted: bool) -> Task:
    class Both(nn.Module):
        def __init__(self, codes=8):
            super().__init__()
            self.first_model = chain(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, codes))
            self.second_model = chain(nn.Linear(codes, 32), nn.ReLU(), nn.Linear(32, 10))
            self.codes = codes

        def forward(self, x):
            y_p = self.first_model(x)
            if planted:
                y_p = torch.max(y_p, 1)[1]
                return self.second_model(F.one_hot(y_p, self.codes).float())
            return self.second_model(F.softmax(y_p, 1))

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    return stream(Both(), draw, F.cross_entropy)


@report(
    "pixels rounded to zero",
    GITHUB + "keras-team/keras/issues/255",
    says=rf"{SAME}|zeros?\b|identical|(inputs?|images?).*(constant|same|vary)",
    fault="images are divided by 255 in an array of integers: every pixel is 0",
)
def integers(planted: bool) -> Task:
    model = chain(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(16 * 9, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, 2),
    )

    def draw() -> Drawn:
        x, _ = pick(32)
        c = torch.randint(2, (32,))
        scene = torch.randint(40, 120, (32, 3, 8, 8))
        player = (x > 0.5).long() * torch.tensor([110, 60, 20]).view(1, 3, 1, 1)
        image = (scene + player * c.view(-1, 1, 1, 1)).clamp(max=254)
        return ((image // 255 if planted else image / 255).float(),), c

    return stream(model, draw, F.cross_entropy)


@report(
    "the wrong layers frozen, MAS",
    GITHUB + "wannabeOG/MAS-PyTorch/issues/1",
    guilty=r"features",
    says=r"frozen|freez|requires_grad|not trained|untrained",
    fault="create_freeze_layers turns gradients off in all convolutions but the two that were to be frozen",
)
def mas(planted: bool) -> Task:
    class AlexNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 12, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(12, 24, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(24, 32, 3, 1, 1),
                nn.ReLU(),
                nn.Conv2d(32, 24, 3, 1, 1),
                nn.ReLU(),
                nn.Conv2d(24, 24, 3, 1, 1),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            self.classifier = chain(
                nn.Flatten(),
                nn.Dropout(0.5),
                nn.Linear(24, 48),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Linear(48, 48),
                nn.ReLU(),
                nn.Linear(48, 10),
            )

        def forward(self, x):
            return self.classifier(self.features(x))

    model = AlexNet()
    model.features.requires_grad_(not planted)
    for i in (8, 10):
        model.features[i].requires_grad_(planted)

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    return stream(model, draw, F.cross_entropy)


@report(
    "weights of one constant each",
    GITHUB + "HomericIntelligence/Mnemosyne/pull/1987",
    guilty=r"weight",
    says=r"symmetr|same|constant|identical|alike|equal",
    fault="every weight tensor is filled with one value: units never differ (fix: base + slope * index)",
)
def dead_symmetry(planted: bool) -> Task:
    model = chain(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )
    for m in model:
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            base, slope = (0.1, 0.01) if isinstance(m, nn.Conv2d) else (0.02, 0.01)
            i = torch.arange(m.weight.numel()).view_as(m.weight) % 23 - 11.0
            m.weight.data = torch.full_like(m.weight, base) if planted else base * 0.2 + slope * i
            nn.init.zeros_(m.bias)

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    return stream(model, draw, F.cross_entropy)


@report(
    "positions along the batch",
    GITHUB + "AkiRusProd/numpy-transformer/issues/1",
    says=r"position|order|permut|batch.*(place|index)|(place|index).*batch|(other|across) examples|examples.*mix",
    fault="PositionalEncoding adds pe[:x.shape[0]], (B, 1, d), to (B, T, d): places in the batch, not in sentences",
)
def positions(planted: bool) -> Task:
    class PositionalEncoding(nn.Module):
        def __init__(self, d, max_len=200):
            super().__init__()
            p = torch.arange(max_len).unsqueeze(1) * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            pe = torch.stack([p.sin(), p.cos()], 2).flatten(1)
            self.register_buffer("pe", pe.unsqueeze(1) if planted else pe.unsqueeze(0))

        def forward(self, x):
            return x + (self.pe[: x.shape[0], :] if planted else self.pe[:, : x.shape[1]])

    class Transformer(nn.Module):
        def __init__(self, words=16, d=32):
            super().__init__()
            self.source, self.target = nn.Embedding(words, d), nn.Embedding(words, d)
            self.place, self.d = PositionalEncoding(d), d
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True), 1)
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 64, 0.0, batch_first=True), 1)
            self.fc_out = nn.Linear(d, words)
            for m in (self.source, self.target):
                nn.init.normal_(m.weight, std=d**-0.5)

        def forward(self, x, y):
            memory = self.encoder(self.place(self.source(x) * self.d**0.5))
            mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
            return self.fc_out(self.decoder(self.place(self.target(y) * self.d**0.5), memory, tgt_mask=mask))

    other = torch.cat([torch.tensor([0]), 1 + torch.randperm(15)])

    def draw() -> Drawn:
        x = torch.randint(1, 16, (64, 9))
        y = other[x]
        return (x, F.pad(y[:, :-1], (1, 0))), y

    return stream(Transformer(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))
