"""An eleventh set of faults out of public reports, of images and sounds, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts, judged
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind11")


@report(
    "a critic with one bracket too late",
    GITHUB + "YeonwooSung/GAN_Implementation/issues/5",
    says=r"sign|unbounded|no (lower|minimum)|below|cancel|wrong (way|direction)|"
    r"both.*(real|fake)|same direction|not depend|minus",
    fault="-mean(D(real) + mean(D(fake))): the bracket closes late, and fakes are praised as real images are",
)
def bracket(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(32)
        fake = torch.randn(32, 1, 8, 8) * 0.6
        return (torch.cat([x, fake]),), torch.zeros(64)

    body = chain(
        nn.Conv2d(1, 16, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128, 1),
    )

    def penalty(s: Tensor) -> Tensor:
        return 0.05 * s.square().mean()  # drift, as in the progressive GAN

    def right(s: Tensor, _: Tensor) -> Tensor:
        real, fake = s.chunk(2)
        return -torch.mean(real) + torch.mean(fake) + penalty(s)

    def wrong(s: Tensor, _: Tensor) -> Tensor:
        real, fake = s.chunk(2)
        return -torch.mean(real + torch.mean(fake)) + penalty(s)

    return stream(Parts(lambda m, x: m.body(x).squeeze(1), body=body), draw, wrong if planted else right, right)


@report(
    "what was seen is filled in",
    GITHUB + "Sllambias/asparagus/pull/12",
    says=r"mask|visible|seen|invert|copy|already (in|given)|hidden",
    fault="~mask picks visible voxels, not the hidden ones, for the loss of a masked autoencoder",
)
def seen(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(48)
        mask = (torch.rand(48, 1, 4, 4) < 0.5).repeat_interleave(2, 2).repeat_interleave(2, 3)  # true: kept
        return (x * mask,), (x, mask)

    model = chain(
        nn.Conv2d(1, 24, 3, 1, 1),
        nn.GELU(),
        nn.Conv2d(24, 24, 3, 1, 2, dilation=2),
        nn.GELU(),
        nn.Conv2d(24, 24, 3, 1, 2, dilation=2),
        nn.GELU(),
        nn.Conv2d(24, 1, 3, 1, 1),
    )

    def right(y: Tensor, t: Any) -> Tensor:
        x, mask = t
        return F.mse_loss(y[~mask], x[~mask])

    def wrong(y: Tensor, t: Any) -> Tensor:
        x, mask = t
        return F.mse_loss(y.masked_fill(~mask, 0), x.masked_fill(~mask, 0))

    return stream(model, draw, wrong if planted else right, right)


@report(
    "targets that agree with themselves",
    GITHUB + "moein-shariatnia/OpenAI-CLIP/issues/27",
    says=r"target.*(own|model|output|soft|collaps|predict)|collaps|constant|"
    r"same (embedding|vector)|identity|diagonal|all alike",
    fault="targets of a contrastive loss are a softmax of the embeddings' own similarities: all alike is best",
)
def themselves(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randperm(64)[:32]
        shades = torch.stack([c // 8, c % 8], 1)
        bars = torch.arange(8).view(1, 1, 8) <= shades.unsqueeze(2)
        image = torch.zeros(32, 2, 4, 8) + bars.unsqueeze(2) + 0.2 * torch.randn(32, 2, 4, 8)
        return (image, shades), torch.arange(32)

    def towers(m: nn.Module, image: Tensor, text: Tensor) -> Any:
        return m.image(image), m.text(m.words(text).flatten(1))

    def tower(n: int) -> nn.Module:
        return chain(nn.Linear(n, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32))

    model = Parts(towers, image=chain(nn.Flatten(), *tower(64)), words=nn.Embedding(8, 16), text=tower(32))

    def right(y: Any, t: Tensor) -> Tensor:
        i, w = (F.normalize(e, dim=1) for e in y)
        logits = i @ w.T / 0.5
        return (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2

    def wrong(y: Any, _: Tensor) -> Tensor:
        i, w = (F.normalize(e, dim=1) for e in y)
        logits = i @ w.T / 0.5
        targets = F.softmax((i @ i.T + w @ w.T) / 2 / 0.5, dim=-1)
        rows = (-targets * F.log_softmax(logits, 1)).sum(1)
        columns = (-targets.T * F.log_softmax(logits.T, 1)).sum(1)
        return (rows + columns).mean() / 2

    return stream(model, draw, wrong if planted else right, right)


@report(
    "blocks dropped with their dropout",
    GITHUB + "speechbrain/speechbrain/issues/1124",
    guilty=r"conv|norm|reduce",
    says=r"no gradient|without.*gradient|unused|not (used|reach)|has no effect|overwrit|discard|bypass|skip",
    fault="a residual block ends in out = self.drop(x): convolutions and shortcut are computed and thrown away",
)
def drop(planted: bool) -> Task:
    tones = torch.linspace(0.15, 1.2, 6)

    def draw() -> Drawn:
        c = torch.randint(6, (48,))
        t = torch.arange(64.0)
        wave = torch.sin(tones[c].unsqueeze(1) * t + 6.283 * torch.rand(48, 1)) + 0.3 * torch.randn(48, 64)
        return (wave.unsqueeze(1),), c

    class ConvBlock(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(n, n, 5, padding=2),
                nn.BatchNorm1d(n),
                nn.LeakyReLU(),
                nn.Conv1d(n, n, 5, padding=2),
                nn.BatchNorm1d(n),
                nn.LeakyReLU(),
            )
            self.reduce_conv = nn.Conv1d(n, n, 1)
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            out = self.convs(x)
            out = out + self.reduce_conv(x)
            out = self.drop(x if planted else out)
            return out

    front = nn.Conv1d(1, 16, 1)
    return stream(
        Parts(
            lambda m, x: m.head(m.blocks(m.front(x)).mean(2)),
            front=front,
            blocks=chain(ConvBlock(16), ConvBlock(16)),
            head=nn.Linear(16, 6),
        ),
        draw,
        F.cross_entropy,
    )


@report(
    "a flow that knows no condition",
    GITHUB + "danielward27/flowjax/issues/147",
    guilty=r"weight|made|net|context",
    says=r"mask|condition|context|no (effect|gradient|path|influence)|not (depend|reach|use)|constant|zero|ignor",
    fault="ranks of conditions are -1, those of hidden units 0 and more: all weights to the only output are masked",
)
def condition(planted: bool) -> Task:
    def draw() -> Drawn:
        c = 2 * torch.rand(64, 2) - 1
        x = 2 * torch.sin(3 * c[:, :1]) + c[:, 1:] + 0.1 * torch.randn(64, 1)
        return (torch.cat([x, c], 1),), torch.zeros(64)

    class MaskedLinear(nn.Linear):
        def __init__(self, ranks_in: Tensor, ranks_out: Tensor, strict: bool = False) -> None:
            super().__init__(len(ranks_in), len(ranks_out))
            mask = ranks_out[:, None] > ranks_in if strict else ranks_out[:, None] >= ranks_in
            self.register_buffer("mask", mask.float())

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight * self.mask, self.bias)

    class MAF(nn.Module):
        def __init__(self, dim: int, cond_dim: int, width: int) -> None:
            super().__init__()
            ranks_in = torch.cat([torch.arange(dim), -torch.ones(cond_dim)])
            ranks_hidden = torch.arange(width) % dim - (0 if planted else 1)
            ranks_out = torch.arange(dim).repeat(2)
            self.made = nn.Sequential(
                MaskedLinear(ranks_in, ranks_hidden),
                nn.Tanh(),
                MaskedLinear(ranks_hidden, ranks_hidden),
                nn.Tanh(),
                MaskedLinear(ranks_hidden, ranks_out, strict=True),
            )
            self.dim = dim

        def forward(self, xc: Tensor) -> Any:
            loc, log_scale = self.made(xc).chunk(2, 1)
            z = (xc[:, : self.dim] - loc) * torch.exp(-log_scale)
            return z, -log_scale.sum(1)

    def nll(y: Any, _: Tensor) -> Tensor:
        z, log_det = y
        return (0.5 * z.square().sum(1) - log_det).mean()

    return stream(MAF(1, 2, 48), draw, nll)


@report(
    "all joints in the last map",
    GITHUB + "fire717/movenet.pytorch/issues/2",
    says=r"channel|map|joint|target.*(zero|empty|constant|same|no)|one (of|output)|column|label",
    fault="peaks of all joints go to the channel of an outer loop's last index: all other target maps are empty",
)
def joints(planted: bool) -> Task:
    grid = torch.arange(16.0)

    def draw() -> Drawn:
        points = torch.randint(2, 14, (24, 4, 2)).float()
        blobs = torch.exp(
            -(
                (grid.view(1, 1, 1, 16) - points[..., :1, None]) ** 2
                + (grid.view(1, 1, 16, 1) - points[..., 1:, None]) ** 2
            )
            / 2
        )
        colours = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
        image = torch.einsum("bkhw,kc->bchw", blobs, colours) + 0.1 * torch.randn(24, 3, 16, 16)
        return (image,), points

    def heatmaps(points: Tensor, fault: bool) -> Tensor:
        maps, kid = torch.zeros(len(points), 4, 16, 16), 3  # kid: where the loop over the person in the centre ended
        for kid2 in range(4):
            x, y = points[:, kid2, 0], points[:, kid2, 1]
            d = (grid.view(1, 1, 16) - x.view(-1, 1, 1)) ** 2 + (grid.view(1, 16, 1) - y.view(-1, 1, 1)) ** 2
            k = kid if fault else kid2
            maps[:, k] = torch.maximum(maps[:, k], torch.exp(-d / 2))
        return maps

    def mse(y: Tensor, maps: Any) -> Tensor:
        return F.mse_loss(y, maps) * 16

    model = chain(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, 4, 1))

    def step() -> Tensor:
        (x,), points = draw()
        y = model(x)
        return judged(mse(y, heatmaps(points, planted)), mse(y, heatmaps(points, False)))

    (x,), points = draw()
    return Task(model, (x, heatmaps(points, planted)), step, {"loss": mse})


@report(
    "anchors in pixels, boxes in cells",
    GITHUB + "hunglc007/tensorflow-yolov4-tflite/pull/384",
    guilty=r"box",
    says=r"anchor|target|label|positive|object|no (gradient|boxes)|empty|assign|match|\biou\b|zero",
    fault="overlaps of boxes in cells with anchors in pixels are small: no anchor is ever assigned to any box",
)
def anchors(planted: bool) -> Task:
    stride, sizes, places = 4, torch.tensor([[6.0, 6.0], [12.0, 6.0], [6.0, 12.0]]), torch.arange(32.0)

    def draw() -> Drawn:
        wh = sizes[torch.randint(3, (16,))] * (0.8 + 0.4 * torch.rand(16, 2))
        xy = wh / 2 + torch.rand(16, 2) * (32 - wh)
        on = ((places - xy.unsqueeze(2)).abs() <= wh.unsqueeze(2) / 2).float()  # x, y
        image = torch.einsum("bw,bh->bhw", *on.unbind(1)).unsqueeze(1) + 0.1 * torch.randn(16, 1, 32, 32)
        return (image,), torch.cat([xy, wh], 1)

    def encode(boxes: Tensor, fault: bool) -> Tensor:
        target = torch.zeros(len(boxes), 8, 8, 3, 5)
        anchors_scaled = sizes if fault else sizes / stride
        for n, cells in enumerate(boxes / stride):
            both = torch.minimum(cells[2:], anchors_scaled).prod(1)
            iou = both / (cells[2:].prod() + anchors_scaled.prod(1) - both)
            i, j = cells[:2].int().tolist()
            for k in (iou > 0.3).nonzero().flatten().tolist():
                target[n, j, i, k, :2] = cells[:2] - cells[:2].floor()
                target[n, j, i, k, 2:4] = (cells[2:] * stride / sizes[k]).log()
                target[n, j, i, k, 4] = 1
        return target

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(1, 16, 3, 2, 1),
                nn.LeakyReLU(0.1),
                nn.Conv2d(16, 32, 3, 2, 1),
                nn.LeakyReLU(0.1),
                nn.Conv2d(32, 32, 3, 1, 1),
                nn.LeakyReLU(0.1),
            )
            self.box, self.confidence = nn.Conv2d(32, 12, 1), nn.Conv2d(32, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.backbone(x)
            box = self.box(x).view(len(x), 3, 4, 8, 8).permute(0, 3, 4, 1, 2)
            return torch.cat([box, self.confidence(x).permute(0, 2, 3, 1).unsqueeze(4)], 4)

    def yolo_loss(y: Tensor, t: Tensor) -> Tensor:
        has = t[..., 4:]
        box = (has * (y[..., :4] - t[..., :4]).square()).sum() / len(y)
        return box + 2 * F.binary_cross_entropy_with_logits(y[..., 4:], has, pos_weight=torch.tensor(20.0))

    model = Yolo()

    def step() -> Tensor:
        (x,), boxes = draw()
        y = model(x)
        return judged(yolo_loss(y, encode(boxes, planted)), yolo_loss(y, encode(boxes, False)))

    (x,), boxes = draw()
    return Task(model, (x, encode(boxes, planted)), step, {"loss": yolo_loss})


@report(
    "a grid of height and width",
    GITHUB + "bubbliiiing/yolo3-tf2/issues/6",
    says=r"target|negative|outside|range|\b0(\.0)? (to|and) 1|swap|order|"
    r"(no|lower) (bound|minimum)|unbounded|probabilit",
    fault="centres are scaled by (rows, columns), not (columns, rows), to offsets: far from 0 to 1, for a BCE",
)
def shape(planted: bool) -> Task:
    def draw() -> Drawn:
        xy = torch.rand(32, 2) * 0.9 + 0.05
        h, w = torch.arange(16.0), torch.arange(40.0)
        x, y = (xy.view(-1, 2, 1, 1) * torch.tensor([40, 16]).view(2, 1, 1) - 0.5).unbind(1)
        d = (w - x) ** 2 + (h.unsqueeze(1) - y) ** 2
        image = torch.exp(-d / 6).unsqueeze(1) + 0.05 * torch.randn(32, 1, 16, 40)
        return (image,), xy

    def detect(m: nn.Module, x: Tensor) -> Tensor:
        return m.head(m.conv(x))

    model = Parts(
        detect,
        conv=chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        head=nn.Conv2d(32, 3, 3, 1, 1),
    )

    def loss(fault: bool) -> Any:
        def yolo(y: Tensor, xy: Tensor) -> Tensor:
            grid_shape, rows = torch.tensor(y.shape[2:]), torch.arange(len(y))
            cell = (xy * grid_shape.flip(0)).floor()
            raw_true_xy = xy * (grid_shape if fault else grid_shape.flip(0)) - cell
            i, j = cell.long().unbind(1)
            has = torch.zeros_like(y[:, 2]).index_put_((rows, j, i), torch.ones(()))
            at = F.binary_cross_entropy_with_logits(y[rows, :2, j, i], raw_true_xy)
            return at + F.binary_cross_entropy_with_logits(y[:, 2], has)

        return yolo

    return stream(model, draw, loss(planted), loss(False))


@report(
    "objects of the first class",
    GITHUB + "duanyiqun/YOLO-Minimal/issues/2",
    says=r"mask|index|column|object|target|confidence|few|most (cells|of)",
    fault="cells with objects are where target[..., 5] > 0, the first class; objectness is target[..., 4]",
)
def first(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        at = torch.randint(16, (16, 4))
        image, target = torch.full((16, 1, 32, 32), -0.8), torch.zeros(16, 16, 15)
        for n in range(16):
            for k, place in enumerate(at[n].tolist()):
                j, i = divmod(place, 4)
                image[n, 0, 8 * j : 8 * j + 8, 8 * i : 8 * i + 8] = x[4 * n + k, 0]
                target[n, place, :5] = torch.tensor([0.5, 0.5, 0.25, 0.25, 1.0])
                target[n, place, 5:] = F.one_hot(c[4 * n + k], 10)
        return (image,), target

    model = chain(
        nn.Conv2d(1, 48, 4, 4),
        nn.ReLU(),
        nn.Conv2d(48, 64, 2, 2),
        nn.ReLU(),
        nn.Conv2d(64, 15, 1),
        nn.Flatten(2),
        nn.Sigmoid(),
    )

    def loss(where: int) -> Any:
        def yolo(y: Tensor, target_tensor: Tensor) -> Tensor:
            pred = y.transpose(1, 2)
            coord_mask, noobj_mask = target_tensor[:, :, where] > 0, target_tensor[:, :, where] == 0
            coord_pred, coord_target = pred[coord_mask], target_tensor[coord_mask]
            noobj = F.mse_loss(pred[noobj_mask][:, 4], torch.zeros_like(pred[noobj_mask][:, 4]), reduction="sum")
            box = F.mse_loss(coord_pred[:, :4], coord_target[:, :4], reduction="sum")
            obj = F.mse_loss(coord_pred[:, 4], coord_target[:, 4], reduction="sum")
            classes = F.mse_loss(coord_pred[:, 5:], coord_target[:, 5:], reduction="sum")
            return (5 * box + obj + 0.5 * noobj + classes) / len(y)

        return yolo

    return stream(model, draw, loss(5 if planted else 4), loss(4))


@report(
    "a score uphill",
    GITHUB + "soran-ghaderi/torchebm/pull/333",
    says=r"\bsign|opposite|minus|negativ|direction|uphill",
    fault="the gradient of an energy is matched with the score, -noise / sigma^2, which is minus that gradient",
)
def uphill(planted: bool) -> Task:
    sigma = 0.5

    def draw() -> Drawn:
        angle = 6.2832 * torch.rand(64, 1)
        x = 2 * torch.cat([angle.cos(), angle.sin()], 1)
        noise = torch.randn(64, 2) * sigma
        return (x + noise,), (x, noise)

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
            self.scale = nn.Linear(64, 8)

        def energy(self, x: Tensor) -> Tensor:
            return self.scale(self.net(x)).square().sum(1) / 2

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]

    def loss(fault: bool) -> Any:
        def dsm(score: Tensor, t: Any) -> Tensor:
            _, noise = t
            target_score = -noise / sigma**2 if fault else noise / sigma**2
            return 0.5 * (score - target_score).square().sum(1).mean()

        return dsm

    return stream(Energy(), draw, loss(planted), loss(False))


@report(
    "teacher and student change places",
    GITHUB + "mishra-18/ML-Models/pull/1",
    guilty=r"student|backbone|head",
    says=rf"{CUT}|swap|order|places|frozen|teacher",
    fault="DINO's loss is called with student and teacher the wrong way round: it is the student that is detached",
)
def places(planted: bool) -> Task:
    def network() -> nn.Module:
        return chain(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(128, 64),
            nn.GELU(),
            nn.Linear(64, 32),
        )

    def draw() -> Drawn:
        x, _ = pick(48)
        return (x + 0.3 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)), torch.zeros(48)

    class Dino(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = network(), network()
            nn.init.normal_(self.teacher[-1].weight, std=6.0)  # as if it were some way into training

        def forward(self, local: Tensor, whole: Tensor) -> Any:
            return self.student(local), self.teacher(whole)

    def dino_loss(student_output: Tensor, teacher_output: Tensor) -> Tensor:
        teacher_output = teacher_output.detach()
        probabilities = F.softmax((teacher_output - teacher_output.mean(0)) / 0.3, dim=1)
        return -(probabilities * F.log_softmax(student_output / 0.5, dim=1)).sum(1).mean()

    def right(y: Any, _: Tensor) -> Tensor:
        student, teacher = y
        return dino_loss(student, teacher)

    def wrong(y: Any, _: Tensor) -> Tensor:
        student, teacher = y
        return dino_loss(teacher, student)

    return stream(Dino(), draw, wrong if planted else right, right)


@report(
    "one frame over and over",
    GITHUB + "automan000/Convolutional_LSTM_PyTorch/issues/15",
    says=r"frames?\b|same (input|image)|only.*first|later|ignor|no (effect|influence)|"
    r"not (used|reach|read|depend)|unused|repeat",
    fault="x = input at every step of a ConvLSTM, not input[step]: it sees the same frame five times over",
)
def memory(planted: bool) -> Task:
    def draw() -> Drawn:
        """Frames of two moving squares: which way each pixel's square has gone."""
        start, step = torch.randint(2, 6, (16, 2)), torch.randint(4, (16,))
        move = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])[step]
        video = torch.zeros(16, 5, 1, 8, 8)
        for t in range(5):
            at = (start + t * move) % 8
            video[torch.arange(16), t, 0, at[:, 0], at[:, 1]] = 2
        return (video + 0.1 * torch.randn_like(video),), step

    class ConvLSTMCell(nn.Module):
        def __init__(self, n: int, hidden: int) -> None:
            super().__init__()
            self.conv = nn.Conv2d(n + hidden, 4 * hidden, 3, padding=1, padding_mode="circular")

        def forward(self, x: Tensor, state: Any) -> Any:
            h, c = state
            i, f, o, g = self.conv(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

    class VisionNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = ConvLSTMCell(1, 12), nn.Linear(12, 4)

        def forward(self, video: Tensor) -> Tensor:
            video = video.transpose(0, 1)
            hidden = cell = torch.zeros(len(video[0]), 12, 8, 8)
            for step in range(5):
                x = video[0] if planted else video[step]
                hidden, cell = self.lstm(x, (hidden, cell))
            return self.head(hidden.amax((2, 3)))

    return stream(VisionNetwork(), draw, F.cross_entropy)


@report(
    "matches the wrong way round",
    GITHUB + "Visual-Behavior/detr-tensorflow/issues/35",
    says=r"match|order|permut|ind(ex|ices)|swap|assign|other box",
    fault="the matcher returns predictions' indices first, and they are taken for the targets' indices",
)
def matches(planted: bool) -> Task:
    from scipy.optimize import linear_sum_assignment

    grid = torch.linspace(0, 1, 12)

    def draw() -> Drawn:
        boxes = torch.rand(24, 5, 2)
        d = (grid.view(1, 1, 1, 12) - boxes[..., :1, None]) ** 2 + (grid.view(1, 1, 12, 1) - boxes[..., 1:, None]) ** 2
        return (torch.exp(-d * 60).sum(1, keepdim=True),), boxes

    class Detr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(1, 48, 4, 2, 1), nn.ReLU())
            self.pos, self.queries = nn.Parameter(0.5 * torch.randn(36, 48)), nn.Parameter(torch.randn(5, 48))
            self.decoder = nn.TransformerDecoderLayer(48, 4, 96, 0.0, batch_first=True)
            self.box = nn.Linear(48, 2)

        def forward(self, x: Tensor) -> Tensor:
            memory = self.backbone(x).flatten(2).transpose(1, 2) + self.pos
            return self.box(self.decoder(self.queries.expand(len(x), -1, -1), memory)).sigmoid()

    def hungarian_matching(p_bbox: Tensor, t_bbox: Tensor) -> Any:
        pairs = [linear_sum_assignment(c) for c in torch.cdist(p_bbox.detach(), t_bbox, p=1).numpy()]
        return tuple(torch.stack([torch.as_tensor(pair[k]) for pair in pairs]) for k in (0, 1))

    def loss(fault: bool) -> Any:
        def detr(y: Tensor, boxes: Tensor) -> Tensor:
            if fault:
                t_indices, p_indices = hungarian_matching(y, boxes)
            else:
                p_indices, t_indices = hungarian_matching(y, boxes)
            rows = torch.arange(len(y)).unsqueeze(1)
            return 5 * F.l1_loss(y[rows, p_indices], boxes[rows, t_indices])

        return detr

    return stream(Detr(), draw, loss(planted), loss(False))


@report(
    "an identity in another layout",
    GITHUB + "DeepRegNet/DeepReg/issues/533",
    guilty=r"theta",
    says=r"identity|theta|affine|degenera|collaps|constant|flat|plane|\bgrid|rank|layout|transpos|no gradient",
    fault="the identity as a bias, flattened as 3 by 4, is read as 4 by 3: a volume shrinks to one plane at first",
)
def layout(planted: bool) -> Task:
    line = torch.linspace(-1, 1, 8)
    grid = torch.stack([*torch.meshgrid(line, line, line, indexing="ij"), torch.ones(8, 8, 8)], 3)

    def resample(image: Tensor, where: Tensor) -> Tensor:
        return F.grid_sample(image, where.flip(-1), padding_mode="border", align_corners=True)

    def draw() -> Drawn:
        centres = 1.2 * torch.rand(16, 3, 3) - 0.6
        d = (grid[..., :3] - centres.view(16, 3, 1, 1, 1, 3)).square().sum(-1)
        moving = torch.exp(-4 * d).sum(1, keepdim=True)
        shift = 0.8 * torch.rand(16, 1, 1, 1, 3) - 0.4
        return (moving, resample(moving, grid[..., :3].expand(16, -1, -1, -1, -1) + shift)), torch.zeros(16)

    class GlobalNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv3d(2, 16, 3, 2, 1), nn.ReLU(), nn.Conv3d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
            )
            self.dense_theta = nn.Linear(256, 12)
            nn.init.zeros_(self.dense_theta.weight)
            identity = torch.eye(3, 4) if planted else torch.eye(4, 3)
            self.dense_theta.bias.data = identity.flatten()

        def forward(self, moving: Tensor, fixed: Tensor) -> Any:
            theta = self.dense_theta(self.encoder(torch.cat([moving, fixed], 1))).view(-1, 4, 3)
            return resample(moving, torch.einsum("xyzi,bij->bxyzj", grid, theta)), fixed

    return stream(GlobalNet(), draw, lambda y, t: 100 * F.mse_loss(*y))


@report(
    "as unlike the prior as can be",
    GITHUB + "dev4488/VAE_gumble_softmax/issues/1",
    says=r"sign|minus|negative|\bkl|divergence|prior|subtract|entropy",
    fault="the divergence of categories from even ones has a minus before it, and is made as large as it can be",
)
def unlike(planted: bool) -> Task:
    def draw() -> Drawn:
        x, _ = pick(64)
        return ((x * 0.376 + 0.3).flatten(1).clamp(0, 1),), torch.zeros(64)

    class GumbelVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16 * 10))
            self.decoder = nn.Sequential(nn.Linear(16 * 10, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())

        def forward(self, x: Tensor) -> Any:
            q = self.encoder(x).view(-1, 16, 10)
            z = F.gumbel_softmax(q, tau=1.0)
            return self.decoder(z.flatten(1)), x, F.softmax(q, dim=2)

    def loss(fault: bool) -> Any:
        def elbo(y: Any, _: Tensor) -> Tensor:
            recon_x, x, qy = y
            BCE = F.binary_cross_entropy(recon_x, x, reduction="sum") / len(x)
            log_ratio = torch.log(qy * 10 + 1e-20)
            KLD = (-torch.sum(qy * log_ratio) if fault else torch.sum(qy * log_ratio)) / len(x)
            return BCE + KLD

        return elbo

    return stream(GumbelVAE(), draw, loss(planted), loss(False))
