"""A forty-fourth set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind44")


def conv(n: int, m: int, stride: int = 1) -> nn.Sequential:
    return chain(nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU())


@report(
    "DBNet threshold map without a sigmoid",
    GITHUB + "MhLiao/DB/issues/1",
    guilty=r"thresh",
    says=r"sigmoid|thresh|unbounded|range|exp|steep|saturat",
    fault="the threshold map is not squashed to (0, 1) before the steep differentiable binarisation",
)
def dbnet(planted: bool) -> Task:
    """Segmentation of strokes: probability map, threshold map around the border, approximate binary map."""

    def draw() -> Drawn:
        x = F.interpolate(pick(16)[0], scale_factor=2, mode="bilinear")
        text = (x > 0.3).float()
        wide = F.max_pool2d(text, 3, 1, 1)
        border = wide + F.max_pool2d(-text, 3, 1, 1)
        return (x,), torch.cat([text, 0.3 + 0.4 * F.avg_pool2d(border, 3, 1, 1), wide], 1)

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = m.backbone(x)
        p, t = m.binarize(z).sigmoid(), m.thresh(z)
        if not planted:
            t = t.sigmoid()
        return p, t, torch.reciprocal(1 + torch.exp(-50 * (p - t)))

    def loss(y: Any, t: Tensor) -> Tensor:
        text, border, wide = t[:, :1], t[:, 1:2], t[:, 2:]
        dice = 1 - 2 * (y[2] * text).sum() / (y[2].sum() + text.sum() + 1e-6)
        l1 = ((y[1] - border).abs() * wide).sum() / (wide.sum() + 1e-6)
        return dice + 10 * l1 + 5 * F.binary_cross_entropy(y[0], text)

    def head() -> nn.Sequential:
        return chain(conv(16, 16), nn.Conv2d(16, 1, 1))

    return stream(Parts(run, backbone=chain(conv(1, 16), conv(16, 16)), binarize=head(), thresh=head()), draw, loss)


@report(
    "YOWO mean over no boxes",
    GITHUB + "hope1337/YOWOv3/issues/19",
    says=rf"{BROKEN}|divi|zero|empty|0 / 0",
    fault="the box loss is divided by the number of ground truths, which is zero for frames without annotation",
)
def yowo(planted: bool) -> Task:
    """Digits somewhere on a canvas of 4 × 4 cells, or none: objectness and the box of the cell."""

    def draw() -> Drawn:
        d = (pick(24)[0] + 0.8) / 2
        x, t = torch.zeros(24, 1, 16, 16), torch.zeros(24, 3, 4, 4)
        for i in range(24):
            if i % 6:
                a, b = torch.randint(9, (2,)).tolist()
                x[i, :, a : a + 8, b : b + 8] = d[i]
                t[i, :, (a + 4) // 4, (b + 4) // 4] = torch.tensor([1.0, (a + 4) % 4 / 4, (b + 4) % 4 / 4])
        return (x,), t

    def loss(y: Tensor, t: Tensor) -> Tensor:
        found = t[:, 0]
        number = found.sum((1, 2))
        box = ((y[:, 1:] - t[:, 1:]).abs().sum(1) * found).sum((1, 2))
        cls = F.binary_cross_entropy_with_logits(y[:, 0], found, reduction="none").sum((1, 2))
        return (box / (number if planted else number.clamp(min=1))).mean() + cls.mean()

    model = chain(conv(1, 16), conv(16, 32, 2), conv(32, 32, 2), conv(32, 32), nn.Conv2d(32, 3, 1))
    return stream(model, draw, loss)


@report(
    "anemoi decodes what was not processed",
    GITHUB + "ecmwf/anemoi-core/pull/1166",
    guilty=r"processor",
    says=r"processor.*(unused|not|no |never)|unused",
    fault="without the latent skip the decoder is handed the encoder's output: the processor is never used",
)
def anemoi(planted: bool) -> Task:
    """A forecaster on a ring of 24 nodes: encoder, processor that passes messages, decoder."""

    def draw() -> Drawn:
        x = torch.randn(24, 24, 3)
        wind = 0.5 + 0.5 * torch.tanh(x[:, :, 2:])
        return (x,), wind * x[:, :, :2].roll(1, 1) + (1 - wind) * x[:, :, :2].roll(-2, 1)

    class Hop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mlp = nn.LayerNorm(32), chain(nn.Linear(96, 64), nn.SiLU(), nn.Linear(64, 32))

        def forward(self, x: Tensor) -> Tensor:
            z = self.norm(x)
            return x + self.mlp(torch.cat([z, z.roll(1, 1), z.roll(-1, 1)], 2))

    def run(m: Any, x: Tensor, latent_skip: bool = False) -> Tensor:
        x_latent = m.encoder(x)
        x_latent_proc = m.processor(x_latent)
        if planted:
            if latent_skip:
                x_latent = x_latent_proc + x_latent
            return m.decoder(x_latent)
        return m.decoder(x_latent_proc)

    encoder = chain(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 32))
    decoder = chain(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 2))
    return stream(Parts(run, encoder=encoder, processor=chain(Hop(), Hop()), decoder=decoder), draw, F.mse_loss)


@report(
    "EEGNeX without two activations",
    GITHUB + "braindecode/braindecode/issues/739",
    says=r"activation|non-?linear|\belu\b",
    fault="between batch normalisation and pooling the activations are missing, twice",
)
def eegnex(planted: bool) -> Task:
    """Three rhythms of random phase on six electrodes, in noise."""
    where = torch.randn(3, 6)

    def draw() -> Drawn:
        c = torch.randint(3, (24,))
        time, phase = torch.arange(64.0), 6.3 * torch.rand(24, 1)
        wave = torch.sin(time * (0.3 + 0.3 * c.unsqueeze(1)) + phase)
        return (where[c].unsqueeze(2) * wave.unsqueeze(1) + torch.randn(24, 6, 64),), c

    def act() -> nn.Module:
        return nn.Identity() if planted else nn.ELU()

    block_1 = chain(nn.Conv2d(1, 8, (1, 16), padding="same", bias=False), nn.BatchNorm2d(8))
    block_2 = chain(nn.Conv2d(8, 16, (1, 16), padding="same", bias=False), nn.BatchNorm2d(16), nn.ELU())
    block_3 = chain(nn.Conv2d(16, 32, (6, 1), groups=16, bias=False), nn.BatchNorm2d(32), act(),
                    nn.AvgPool2d((1, 4)), nn.Dropout(0.25))  # fmt: skip
    block_4 = chain(nn.Conv2d(32, 16, (1, 4), padding="same", dilation=(1, 2), bias=False), nn.BatchNorm2d(16))
    block_5 = chain(nn.Conv2d(16, 8, (1, 4), padding="same", dilation=(1, 4), bias=False), nn.BatchNorm2d(8), act(),
                    nn.AvgPool2d((1, 8)), nn.Dropout(0.25), nn.Flatten())  # fmt: skip
    parts = {"block_1": block_1, "block_2": block_2, "block_3": block_3, "block_4": block_4, "block_5": block_5}

    def run(m: Any, x: Tensor) -> Tensor:
        return m.final_layer(m.block_5(m.block_4(m.block_3(m.block_2(m.block_1(x.unsqueeze(1)))))))

    return stream(Parts(run, **parts, final_layer=nn.Linear(16, 3)), draw, F.cross_entropy)


@report(
    "VoxelMorph smooths the image",
    GITHUB + "Hsankesara/VoxelMorph-PyTorch/issues/6",
    says=r"smooth|regulari|(deformation|flow|field).*(not|never|no ).*(loss|penal)|(loss|penal).*(deformation|field)",
    fault="the smoothness loss is that of the registered image, not of the deformation field",
)
def voxelmorph(planted: bool) -> Task:
    """A U-Net of moving and fixed image gives a deformation; cross-correlation and 0.01 × smoothness."""

    def draw() -> Drawn:
        fixed = F.pad(pick(16)[0] + 0.8, (4, 4, 4, 4))
        moving = torch.stack([f.roll(torch.randint(-2, 3, (2,)).tolist(), (1, 2)) for f in fixed])
        return (moving, fixed), fixed

    def run(m: Any, moving: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        a = m.encoder(torch.cat([moving, fixed], 1))
        b = F.interpolate(m.bottleneck(a), scale_factor=2)
        deformation = m.flow(m.decoder(torch.cat([a, b], 1))).permute(0, 2, 3, 1)
        grid = F.affine_grid(torch.eye(2, 3).expand(len(moving), 2, 3), list(moving.shape), align_corners=False)
        return F.grid_sample(moving, grid + deformation, align_corners=False), deformation

    def cross_correlation_loss(i: Tensor, j: Tensor, n: int = 9) -> Tensor:
        def mean(x: Tensor) -> Tensor:
            return F.avg_pool2d(x, n, 1, n // 2)

        cross = mean(i * j) - mean(i) * mean(j)
        return (cross.square() / ((mean(i * i) - mean(i) ** 2) * (mean(j * j) - mean(j) ** 2) + 1e-2)).mean()

    def smoothing_loss(y: Tensor) -> Tensor:  # (B, H, W, C)
        return ((y[:, 1:] - y[:, :-1]).square().mean() + (y[:, :, 1:] - y[:, :, :-1]).square().mean()) / 2

    def loss(y: Any, t: Tensor, wrong: bool = planted) -> Tensor:
        smooth = smoothing_loss(y[0].permute(0, 2, 3, 1) if wrong else y[1])
        return -cross_correlation_loss(y[0], t) + 0.01 * smooth

    model = Parts(run, encoder=conv(2, 16), bottleneck=chain(conv(16, 32, 2), conv(32, 32)), decoder=conv(48, 16),
                  flow=nn.Conv2d(16, 2, 3, padding=1))  # fmt: skip
    return stream(model, draw, loss, partial(loss, wrong=False))


@report(
    "ConvLSTM softmax before cross entropy",
    GITHUB + "eriklindernoren/Action-Recognition/issues/23",
    says=r"softmax|probabilit|logit",
    fault="the output layers end in a softmax, and the cross entropy takes another",
)
def convlstm(planted: bool) -> Task:
    """Digits that move; encoder of frames, bidirectional LSTM, output layers."""

    def draw() -> Drawn:
        x, c = pick(24)
        return (torch.stack([x.roll(i, 3) for i in range(4)], 1),), c

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.encoder(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return m.output_layers(m.lstm(z)[0][:, -1])

    encoder = chain(conv(1, 16), conv(16, 32, 2), nn.Flatten(), nn.Linear(512, 32), nn.BatchNorm1d(32, momentum=0.01))
    end = [nn.Softmax(dim=-1)] if planted else []
    output_layers = chain(nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=0.01), nn.ReLU(), nn.Linear(64, 10), *end)
    lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
    model = Parts(run, encoder=encoder, lstm=lstm, output_layers=output_layers)

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss((y + 1e-12).log(), t) if planted else F.cross_entropy(y, t)

    return stream(model, draw, F.cross_entropy, right)


@report(
    "protein workshop softmax before cross entropy",
    GITHUB + "Graylab/DL4Proteins-notebooks/issues/13",
    says=r"softmax|probabilit|logit",
    fault="the CNN returns softmax(logits), and CrossEntropyLoss takes another",
)
def proteins(planted: bool) -> Task:
    """Secondary structure, one of three per residue, of one-hot sequences."""
    likes = torch.randn(20, 3)

    def draw() -> Drawn:
        x = F.one_hot(torch.randint(20, (24, 32)), 20).float().transpose(1, 2)
        score = F.avg_pool1d((x.transpose(1, 2) @ likes).transpose(1, 2), 5, 1, 2)
        return (x,), score.argmax(1)

    def run(m: Any, x: Tensor) -> Tensor:
        logits = m.conv3(F.relu(m.conv2(F.relu(m.conv1(x)))))
        return F.softmax(logits, dim=1) if planted else logits

    model = Parts(run, conv1=nn.Conv1d(20, 32, 5, padding=2), conv2=nn.Conv1d(32, 32, 5, padding=2),
                  conv3=nn.Conv1d(32, 3, 1))  # fmt: skip

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss((y + 1e-12).log(), t) if planted else F.cross_entropy(y, t)

    return stream(model, draw, F.cross_entropy, right)


@report(
    "BERT ignores sentences that do not follow",
    GITHUB + "codertimo/BERT-pytorch/issues/49",
    guilty=r"next_sentence",
    says=r"ignor|(label|class|target)s? (of )?0|one class|never.*(target|class|label)|single class",
    fault="NLLLoss(ignore_index=0) serves next-sentence prediction too, where 0 is one of the two labels",
)
def bert(planted: bool) -> Task:
    """Sentences of one of two topics; the second follows if it is of the same; a sixth of the tokens is masked."""

    def draw() -> Drawn:
        topic, follows = torch.randint(2, (24, 1)), torch.randint(2, (24, 1))
        topics = torch.cat([topic.expand(-1, 8), (topic ^ (1 - follows)).expand(-1, 8)], 1)
        words = 2 + 10 * topics + torch.randint(10, (24, 16))
        hidden = torch.rand(24, 16) < 0.16
        x = torch.cat([torch.full((24, 1), 22), words.masked_fill(hidden, 1)], 1)
        return (x,), torch.cat([follows, words.masked_fill(~hidden, 0)], 1)

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.transformer(m.token(x) + m.position + m.segment((torch.arange(17) > 8).long()))
        return m.next_sentence(z[:, 0]).log_softmax(-1), m.mask_lm(z).log_softmax(-1)

    def loss(y: Any, t: Tensor, ignore: int = 0 if planted else -100) -> Tensor:
        following = F.nll_loss(y[0], t[:, 0], ignore_index=ignore)
        return following + F.nll_loss(y[1][:, 1:].transpose(1, 2), t[:, 1:], ignore_index=0)

    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
    model = Parts(run, token=nn.Embedding(23, 32, padding_idx=0), position=nn.Parameter(0.02 * torch.randn(17, 32)),
                  segment=nn.Embedding(2, 32), next_sentence=nn.Linear(32, 2), mask_lm=nn.Linear(32, 23),
                  transformer=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))  # fmt: skip
    return stream(model, draw, loss, partial(loss, ignore=-100))


@report(
    "Ludwig TabNet under a penalty of one",
    GITHUB + "ludwig-ai/ludwig/issues/1677",
    says=r"regulari|penal|weight decay|\bL2\b|lambda",
    fault="an L2 penalty of all weights enters the loss with the factor 1",
)
def ludwig(planted: bool) -> Task:
    """TabNet of two steps with a softmax for its sparsemax."""

    def draw() -> Drawn:
        x = torch.randn(128, 12)
        return (x,), (x[:, 0] * x[:, 1] + x[:, 2] - 0.5 * x[:, 3].abs() > -0.4).long()

    class Glu(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.fc, self.bn = nn.Linear(n, 2 * m, bias=False), nn.BatchNorm1d(2 * m)

        def forward(self, x: Tensor) -> Tensor:
            return F.glu(self.bn(self.fc(x)))

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.batch_norm(x)
        prior, total, z = torch.ones_like(x), 0.0, m.features[0](x)
        for attention, features in zip(m.attention, m.features[1:], strict=True):
            mask = (attention(z[:, 16:]) * prior).softmax(1)
            prior = prior * (1.5 - mask)
            z = features(12 * mask * x)
            total = total + F.relu(z[:, :16])
        return m.output(total)

    features = nn.ModuleList(chain(Glu(12, 32), Glu(32, 32)) for _ in range(3))
    attention = nn.ModuleList(chain(nn.Linear(16, 12, bias=False), nn.BatchNorm1d(12)) for _ in range(2))
    model = Parts(run, batch_norm=nn.BatchNorm1d(12), features=features, attention=attention, output=nn.Linear(16, 2))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        penalty = sum((p.square().sum() for p in model.parameters()), torch.zeros(()))
        return F.cross_entropy(y, t) + (1.0 * penalty if planted else 0.0)

    return stream(model, draw, loss, F.cross_entropy)
