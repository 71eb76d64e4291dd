"""A thirty-sixth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, unit
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind36")


def raw(count: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 8, 8) of digits, 0 to 1, and their classes."""
    x, c = pick(count)
    return x * 0.376 + 0.3, c


def scenes(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Black images (count, 1, 32, 32) with one digit in one of 4 by 4 cells, the cell, and the class."""
    x, c = raw(count)
    cell, large = torch.randint(16, (count,)), torch.zeros(count, 1, 32, 32)
    for i, k in enumerate(cell.tolist()):
        large[i, :, 8 * (k // 4) : 8 * (k // 4) + 8, 8 * (k % 4) : 8 * (k % 4) + 8] = x[i]
    return large, cell, c


@report(
    "CSP biases of each other's head",
    GITHUB + "lwpyr/CSP-pedestrian-detection-in-pytorch/issues/4",
    guilty=r"pos_conv|reg_conv",
    says=r"bias|initial|large.*(start|begin|loss)|prior",
    fault="the prior bias -log(0.99/0.01) of the centre head is given to the scale head, and 0 to the centre head",
)
def csp(planted: bool) -> Task:
    """Pedestrians: a centre map with a focal loss, and the log of the height at the centre."""

    def draw() -> Drawn:
        x, t = 0.2 * torch.randn(32, 1, 32, 32), torch.zeros(32, 2, 8, 8)
        for i in range(32):
            h, r, c = int(torch.randint(3, 8, ())), int(torch.randint(8, 24, ())), int(torch.randint(4, 28, ()))
            x[i, 0, r - h : r + h, c - 1 : c + 2] += 1
            t[i, 0, r // 4, c // 4], t[i, 1, r // 4, c // 4] = 1, math.log(2 * h)
        return (x,), t

    class CSPNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.MaxPool2d(2), unit(32, 32, 5))
            self.pos_conv, self.reg_conv = nn.Conv2d(32, 1, 1), nn.Conv2d(32, 1, 1)
            nn.init.xavier_normal_(self.pos_conv.weight)
            nn.init.xavier_normal_(self.reg_conv.weight)
            prior = -math.log(0.99 / 0.01)
            assert self.pos_conv.bias is not None
            assert self.reg_conv.bias is not None
            nn.init.constant_(self.pos_conv.bias, 0 if planted else prior)
            nn.init.constant_(self.reg_conv.bias, prior if planted else 0)

        def forward(self, x: Tensor) -> Tensor:
            x = self.base(x)
            return torch.cat([torch.sigmoid(self.pos_conv(x)), self.reg_conv(x)], 1)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        p, pos = y[:, 0].clamp(1e-6, 1 - 1e-6), t[:, 0]
        weight = pos * (1 - p) ** 2 + (1 - pos) * p**2
        cls = (weight * F.binary_cross_entropy(p, pos, reduction="none")).sum() / pos.sum()
        reg = (F.smooth_l1_loss(y[:, 1], t[:, 1], reduction="none") * pos).sum() / pos.sum()
        return 0.01 * cls + reg

    return stream(CSPNet(), draw, loss)


class UNet(nn.Module):
    """A U-Net of two levels, as milesial's: double convolutions with batch norm."""

    def __init__(self, last: nn.Module | None = None, labels: int = 1) -> None:
        super().__init__()
        self.inc, self.down = chain(unit(1, 12), unit(12, 12)), chain(nn.MaxPool2d(2), unit(12, 24), unit(24, 24))
        self.up, self.conv = nn.ConvTranspose2d(24, 12, 2, 2), chain(unit(24, 12), unit(12, 12))
        self.outc, self.last = nn.Conv2d(12, labels, 1), last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        a = self.inc(x)
        return self.last(self.outc(self.conv(torch.cat([a, self.up(self.down(a))], 1))))


def shapes(count: int = 16) -> tuple[Tensor, Tensor]:
    """Noisy images (count, 1, 16, 16) of a disk, and its mask."""
    place = torch.arange(16.0)
    r, c, s = (*(5 + 6 * torch.rand(2, count, 1, 1)).unbind(), 2 + 2 * torch.rand(count, 1, 1))
    t = (((place.view(1, -1, 1) - r) ** 2 + (place.view(1, 1, -1) - c) ** 2) < s**2).float().unsqueeze(1)
    return t + 0.7 * torch.randn_like(t), t


def dice_loss(y: Tensor, t: Tensor) -> Tensor:
    inter = (y * t).sum((1, 2, 3))
    return 1 - ((2 * inter + 1e-5) / (y.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1e-5)).mean()


@report(
    "Dice of raw outputs",
    GITHUB + "milesial/Pytorch-UNet/issues/271",
    guilty=r"outc",
    says=r"sigmoid|logit|probabilit|unbounded|(loss|dice).*negative|not (limited|bounded)|outside.*0.*1",
    fault="the Dice loss is computed of outputs that no sigmoid limits to 0 and 1: it falls to -1000",
)
def raw_dice(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = shapes()
        return (x,), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return dice_loss(y if planted else y.sigmoid(), t)

    return stream(UNet(), draw, loss, lambda y, t: dice_loss(y.sigmoid(), t))


@report(
    "Dice whose mask comes before the sigmoid",
    GITHUB + "Project-MONAI/MONAI/issues/8655",
    says=r"mask.*sigmoid|sigmoid.*mask|\b0\.5\b|half",
    fault="logits are masked to zero and then go through the sigmoid: what is masked counts as one half",
)
def masked_dice(planted: bool) -> Task:
    """A U-Net of which a random quarter of each image is labelled."""

    def draw() -> Drawn:
        x, t = shapes()
        mask = torch.zeros_like(t)
        for i in range(len(t)):
            h = int(torch.randint(2, ())) * 8
            mask[i, :, :, h : h + 8] = 1
            mask[i, :, int(torch.randint(2, ())) * 8 :][:, :8] *= 0
        return (x,), torch.cat([t, mask], 1)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return dice_loss(y.sigmoid() * t[:, 1:], t[:, :1] * t[:, 1:])

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return dice_loss((y * t[:, 1:]).sigmoid(), t[:, :1] * t[:, 1:])

    return stream(UNet(), draw, wrong if planted else right, right)


@report(
    "reversed mask where nothing is missing",
    GITHUB + "Jireh-Jam/R-MNet-Inpainting-keras/issues/4",
    says=r"mask|(always|identically|constantly) (0|zero)|term.*(zero|constant|gradient)|pasted|copied",
    fault="the reversed mask loss compares the pixels outside the hole, which are copied: it is always 0",
)
def rmnet(planted: bool) -> Task:
    """Inpainting: the output is pasted into the hole; a perceptual and a reversed mask loss."""
    vgg = chain(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    vgg.requires_grad_(False)

    def draw() -> Drawn:
        x, _ = raw(64)
        mask = torch.zeros_like(x)  # 1 in the hole
        for i, (r, c) in enumerate(torch.randint(5, (64, 2)).tolist()):
            mask[i, :, r : r + 4, c : c + 4] = 1
        return (x * (1 - mask), mask), torch.cat([x, mask], 1)

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(unit(2, 16), nn.MaxPool2d(2), unit(16, 32), unit(32, 32))
            self.decoder = chain(nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU(), unit(16, 16), nn.Conv2d(16, 1, 3, 1, 1))

        def forward(self, image: Tensor, mask: Tensor) -> Tensor:
            y = torch.sigmoid(self.decoder(self.encoder(torch.cat([image, mask], 1))))
            return image + y * mask

    def loss(y: Tensor, t: Tensor) -> Tensor:
        true, mask = t[:, :1], t[:, 1:]
        region = 1 - mask if planted else mask
        reversed_mask_loss = F.mse_loss(y * region, true * region)
        return 0.4 * F.mse_loss(vgg(y), vgg(true)) + 0.6 * reversed_mask_loss

    return stream(Generator(), draw, loss, lambda y, t: F.mse_loss(y, t[:, :1]))


@report(
    "teacher of dehazing behind a ReLU",
    GITHUB + "FadeoN/Distilling-Image-Dehazing-With-Heterogeneous-Task-Imitation/issues/5",
    guilty=r"^out\.",
    says=r"relu.*(last|end|out|final)|(last|end|out|final).*relu|negative|below (0|zero)",
    fault="images are normalised to -1 to 1, and the network ends with a ReLU that gives nothing below zero",
)
def dehazing(planted: bool) -> Task:
    """The teacher network reconstructs the clear image; L1."""

    def draw() -> Drawn:
        x, _ = raw(32)
        x = F.interpolate(x, size=(16, 16), mode="bilinear") * (0.2 + 0.8 * torch.rand(32, 3, 1, 1))
        return (2 * x - 1 if planted else x,), 2 * x - 1 if planted else x

    class Teacher(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU())
            self.decoder = chain(
                nn.ConvTranspose2d(48, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 16, 4, 2, 1), nn.ReLU()
            )
            self.out = nn.Conv2d(16, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.out(self.decoder(self.encoder(x)))
            return F.relu(y) if planted else (torch.tanh(y) + 1) / 2

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.l1_loss(y, t) / (2 if planted else 1)

    return stream(Teacher(), draw, F.l1_loss, right)


def patients(count: int, share: float) -> tuple[Tensor, Tensor]:
    """Covariates, and times with events (count, 2), sorted by falling time; few have the event."""
    x = torch.randn(count, 8)
    risk = 1.5 * x[:, 0] + x[:, 1] * x[:, 2]
    time = torch.distributions.Exponential(risk.exp()).sample() + 1e-3
    event = (torch.rand(count) < share).float()
    order = time.argsort(descending=True)
    return x[order], torch.stack([time, event], 1)[order]


@report(
    "Breslow loss over no observation",
    GITHUB + "liupei101/TFDeepSurv/issues/15",
    says=rf"{BROKEN}|divi|no event|(count|number|sum|denominator|total).*(zero|\b0\b)|empty|0 / 0",
    fault="the partial likelihood is divided by the number of events, which is 0 in some batches",
)
def breslow(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = patients(32, 0.05)
        return (x,), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        time, event = t.unbind(1)
        obs = event.sum()
        at_risk = (time.unsqueeze(0) >= time.unsqueeze(1)).float()
        total = (at_risk * y.exp().T).sum(1).log()
        loss_breslow = ((total - y.squeeze(1)) * event).sum()
        return loss_breslow / (obs if planted else obs.clamp(min=1))

    net = chain(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    return stream(net, draw, loss)


@report(
    "pycox on small batches",
    GITHUB + "havakv/pycox/issues/124",
    says=rf"{BROKEN}|divi|no event|(count|number|sum|denominator|total).*(zero|\b0\b)|empty|0 / 0",
    fault="cox_ph_loss divides by the number of events, which is zero in small batches of censored patients",
)
def pycox(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = patients(64, 0.03)
        return (x,), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        log_h, events, eps = y.view(-1), t[:, 1], 1e-7
        gamma = log_h.max()
        log_cumsum_h = log_h.sub(gamma).exp().cumsum(0).add(eps).log().add(gamma)
        return -log_h.sub(log_cumsum_h).mul(events).sum().div(events.sum() if planted else events.sum() + eps)

    net = chain(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 32), nn.ReLU(), nn.BatchNorm1d(32),
                nn.Dropout(0.1), nn.Linear(32, 1, bias=False))  # fmt: skip
    return stream(net, draw, loss)


@report(
    "Mamba without softplus",
    GITHUB + "alxndrTL/mamba.py/issues/53",
    guilty=r"dt_proj|A_log",
    says=rf"{BROKEN}|softplus|delta|\bexp\b|overflow|explod|grow|unstable",
    fault="delta is not made positive by a softplus: exp(delta A) is huge, and so are the states",
)
def mamba(planted: bool) -> Task:
    """One block and a head; the tokens two steps back are to be told."""

    def draw() -> Drawn:
        x = torch.randint(16, (16, 20))
        return (x,), x.roll(2, 1)

    class Mamba(nn.Module):
        def __init__(self, d: int = 24, n: int = 8, rank: int = 4) -> None:
            super().__init__()
            self.embedding, self.norm, self.n, self.rank = nn.Embedding(16, d), nn.LayerNorm(d), n, rank
            self.in_proj, self.conv1d = nn.Linear(d, 4 * d, bias=False), nn.Conv1d(2 * d, 2 * d, 4, padding=3, groups=2)
            self.x_proj, self.dt_proj = nn.Linear(2 * d, rank + 2 * n, bias=False), nn.Linear(rank, 2 * d)
            dt = torch.exp(torch.rand(2 * d) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
            self.dt_proj.bias.data.copy_(dt + torch.log(-torch.expm1(-dt)))
            self.A_log = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(2 * d, 1))
            self.D, self.out_proj, self.head = nn.Parameter(torch.ones(2 * d)), nn.Linear(2 * d, d), nn.Linear(d, 16)

        def forward(self, idx: Tensor) -> Tensor:
            h = self.embedding(idx)
            x, z = self.in_proj(self.norm(h)).chunk(2, -1)
            x = F.silu(self.conv1d(x.mT)[:, :, : idx.shape[1]].mT)
            delta, B, C = self.x_proj(x).split([self.rank, self.n, self.n], -1)
            delta = self.dt_proj(delta) if planted else F.softplus(self.dt_proj(delta))
            deltaA = torch.exp(delta.unsqueeze(-1) * -self.A_log.exp())
            BX = delta.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1)
            state, ys = torch.zeros_like(BX[:, 0]), []
            for a, b, c in zip(deltaA.unbind(1), BX.unbind(1), C.unbind(1), strict=False):
                state = a * state + b
                ys.append((state @ c.unsqueeze(-1)).squeeze(-1))
            return self.head(h + self.out_proj((torch.stack(ys, 1) + self.D * x) * F.silu(z)))

    return stream(Mamba(), draw, lambda y, t: F.cross_entropy(y[:, 2:].flatten(0, 1), t[:, 2:].flatten()))


@report(
    "attention bias of whatever memory held",
    GITHUB + "EdGENetworks/attention-networks-for-classification/issues/7",
    guilty=r"bias_word",
    says=rf"{BROKEN}|uninitiali|not initiali|empty|memory",
    fault="bias_word is made by torch.Tensor(n, 1) and never initialised: it holds NaN",
)
def han(planted: bool) -> Task:
    """Word attention of a hierarchical attention network; one of four key words tells the class."""

    def draw() -> Drawn:
        x, c = torch.randint(4, 40, (48, 12)), torch.randint(4, (48,))
        x[torch.arange(48), torch.randint(12, (48,))] = c
        return (x,), c

    class AttentionWordRNN(nn.Module):
        def __init__(self, num_tokens: int = 40, embed_size: int = 24, word_gru_hidden: int = 16) -> None:
            super().__init__()
            h = 2 * word_gru_hidden
            self.lookup = nn.Embedding(num_tokens, embed_size)
            self.word_gru = nn.GRU(embed_size, word_gru_hidden, bidirectional=True, batch_first=True)
            self.weight_W_word = nn.Parameter(torch.empty(h, h).uniform_(-0.1, 0.1))
            self.bias_word = nn.Parameter(torch.empty(h, 1).uniform_(-0.1, 0.1))
            self.weight_proj_word = nn.Parameter(torch.empty(h, 1).uniform_(-0.1, 0.1))
            self.final_linear = nn.Linear(h, 4)
            if planted:  # what torch.Tensor(h, 1) may find
                self.bias_word.data[::7] = math.nan

        def forward(self, embed: Tensor) -> Tensor:
            output_word = self.word_gru(self.lookup(embed))[0]
            word_squish = torch.tanh(output_word @ self.weight_W_word + self.bias_word.T)
            word_attn_norm = (word_squish @ self.weight_proj_word).softmax(1)
            return F.log_softmax(self.final_linear((output_word * word_attn_norm).sum(1)), 1)

    return stream(AttentionWordRNN(), draw, F.nll_loss)


@report(
    "alignment over an empty answer",
    GITHUB + "wjbianjason/Dynamic-Clip-Attention/issues/4",
    says=rf"{BROKEN}|divi|(count|number|sum|denominator|total).*(zero|\b0\b)|empty|0 / 0",
    fault="attention is divided by its sum over the words that are not padding, which is zero for an empty answer",
)
def alignment(planted: bool) -> Task:
    """Answers to a question are ranked in a list of six; some lists are filled up with empty answers."""

    def draw() -> Drawn:
        q, a = torch.randint(1, 30, (16, 6)), torch.randint(1, 30, (16, 6, 8))
        best = torch.randint(4, (16,))
        a[torch.arange(16), best, 1:5] = q[:, 1:5]
        a[:, 5] = 0
        a[:, :, 7:] = 0
        return (q, a), best

    class Matcher(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, d, padding_idx=0)
            self.sigmoid_dense, self.tanh_dense = nn.Linear(d, d), nn.Linear(d, d)
            self.cnns = nn.ModuleList(nn.Conv1d(d, d, k, padding=k // 2) for k in (1, 3))
            self.output, self.score = nn.Linear(2 * d, d), nn.Linear(d, 1)

        def proj(self, idx: Tensor) -> Tensor:
            x = self.embedding(idx)
            return self.sigmoid_dense(x).sigmoid() * self.tanh_dense(x).tanh()

        def forward(self, question: Tensor, answers: Tensor) -> Tensor:
            k = answers.shape[1]
            q, a = self.proj(question).repeat_interleave(k, 0), self.proj(answers.flatten(0, 1))
            length = (answers.flatten(0, 1) != 0).float()
            att = q @ a.mT
            e = torch.exp(att - att.max(-1, keepdim=True)[0])
            g = e * length.unsqueeze(1)
            s = g.sum(-1, keepdim=True)
            sm_att = g / s if planted else g / (s + 1e-7)
            sim = (q * (sm_att @ a)).mT
            feature = torch.cat([F.relu(cnn(sim)).amax(2) for cnn in self.cnns], 1)
            return self.score(torch.tanh(self.output(feature))).view(-1, k)

    return stream(Matcher(), draw, F.cross_entropy)


@report(
    "softmax over labels without background",
    GITHUB + "ellisdg/3DUnetCNN/issues/148",
    guilty=r"outc",
    says=r"softmax|background|sum to (one|1)|sigmoid",
    fault="softmax over three labels, of which none is the background: every pixel must be one of them",
)
def background(planted: bool) -> Task:
    """Three exclusive regions of a tumour; Dice of each label."""

    def draw() -> Drawn:
        place = torch.arange(16.0)
        r, c = (6 + 4 * torch.rand(2, 16, 1, 1)).unbind()
        d = ((place.view(1, -1, 1) - r) ** 2 + (place.view(1, 1, -1) - c) ** 2).sqrt()
        t = torch.stack([d < 1.6, (d >= 1.6) & (d < 3), (d >= 3) & (d < 4.2)], 1).float()
        x = (t * torch.tensor([3.0, 2, 1]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        return (x + 0.3 * torch.randn_like(x),), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        inter = (y * t).sum((0, 2, 3))
        return 1 - ((2 * inter + 1e-5) / (y.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1e-5)).mean()

    return stream(UNet(nn.Softmax(1) if planted else nn.Sigmoid(), 3), draw, loss)


@report(
    "encoder layers that start over",
    GITHUB + "Atcold/NYU-DLSP20/issues/270",
    guilty=r"enc_layers\.[01]\.",
    says=r"not used|unused|no gradient|never|discard|overwrit|only.*last|ignor|no effect",
    fault="each encoder layer is applied to the embedding, so that all but the last are thrown away",
)
def startover(planted: bool, d: int = 32) -> Task:
    """Which of three key words is among the words."""

    def draw() -> Drawn:
        x, c = torch.randint(3, 24, (48, 12)), torch.randint(3, (48,))
        x[torch.arange(48), torch.randint(12, (48,))] = c
        return (x,), c

    class EncoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mha = nn.MultiheadAttention(d, 4, batch_first=True)
            self.cnn = chain(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
            self.layernorm1, self.layernorm2 = nn.LayerNorm(d), nn.LayerNorm(d)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layernorm1(x + self.mha(x, x, x, need_weights=False)[0])
            return self.layernorm2(x + self.cnn(x))

    class Encoder(nn.Module):
        def __init__(self, num_layers: int = 3) -> None:
            super().__init__()
            self.embedding, self.pos = nn.Embedding(24, d), nn.Parameter(torch.randn(12, d) * 0.3)
            self.enc_layers = nn.ModuleList(EncoderLayer() for _ in range(num_layers))
            self.dense = nn.Linear(d, 3)

        def forward(self, idx: Tensor) -> Tensor:
            embedding = self.embedding(idx) + self.pos
            x = embedding
            for layer in self.enc_layers:
                x = layer(embedding if planted else x)
            return self.dense(x.amax(1))

    return stream(Encoder(), draw, F.cross_entropy)


@report(
    "slots that are sampled without a gradient",
    GITHUB + "evelinehong/slot-attention-pytorch/issues/8",
    guilty=r"slots_mu|slots_sigma",
    says=rf"{CUT}|sample|never (trained|learned)|not (trained|learned)",
    fault="the slots are drawn by Normal.sample(), not rsample(): slots_mu and slots_sigma have no gradient",
)
def slots(planted: bool, d: int = 24) -> Task:
    """Sets of noisy copies of three of eight objects are told by three slots."""
    objects = torch.randn(8, 16)

    def draw() -> Drawn:
        which = torch.rand(48, 8).argsort(1)[:, :3]
        clean = objects[which.gather(1, torch.randint(3, (48, 12)))]
        return (clean + 0.3 * torch.randn_like(clean),), clean

    class SlotAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slots_mu = nn.Parameter(torch.randn(1, 1, d))
            self.slots_sigma = nn.Parameter(torch.rand(1, 1, d))
            self.input = chain(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, d), nn.LayerNorm(d))
            self.to_q, self.to_k, self.to_v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
            self.gru, self.norm_slots = nn.GRUCell(d, d), nn.LayerNorm(d)
            self.decoder, self.place = chain(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 16)), nn.Linear(d, d)

        def forward(self, x: Tensor) -> Tensor:
            h, b = self.input(x), len(x)
            normal = torch.distributions.Normal(self.slots_mu.expand(b, 3, -1), self.slots_sigma.abs().expand(b, 3, -1))
            s = normal.sample() if planted else normal.rsample()
            k, v = self.to_k(h), self.to_v(h)
            for _ in range(3):
                attn = (self.to_q(self.norm_slots(s)) @ k.mT / math.sqrt(d)).softmax(1) + 1e-8
                updates = attn / attn.sum(-1, keepdim=True) @ v
                s = self.gru(updates.flatten(0, 1), s.flatten(0, 1)).view(b, 3, d)
            alpha = (h @ self.place(s).mT / math.sqrt(d)).softmax(-1)
            return alpha @ self.decoder(s)

    return stream(SlotAttention(), draw, F.mse_loss)
