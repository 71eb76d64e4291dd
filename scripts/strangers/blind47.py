"""A forty-seventh set of faults, a sample of reports that issues tell, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind47")


@report(
    "E3D-LSTM returns the old global memory",
    GITHUB + "google/e3d_lstm/issues/1",
    guilty=r"global_memory",
    says=r"global_memory|memory.*(zero|constant|not updated)|inputs?.*(zero|constant)",
    fault="the cell returns the global memory that it was given, so that the memory stays at zero",
)
def e3d(planted: bool) -> Task:
    """Two cells with an eidetic memory predict the next frame of a digit that moves at its own speed."""

    def draw() -> Drawn:
        x = pick(8)[0] * 0.376 + 0.3
        speed = torch.randint(-2, 3, (8,)).tolist()
        film = torch.stack([torch.stack([x[i].roll(v * t, 2) for t in range(5)]) for i, v in enumerate(speed)])
        return (film[:, :-1],), film[:, 1:]

    class Eidetic3DLSTMCell(nn.Module):
        def __init__(self, a: int, c: int) -> None:
            super().__init__()
            self.c = c
            self.hidden, self.inputs = nn.Conv2d(c, 4 * c, 3, padding=1), nn.Conv2d(a, 7 * c, 3, padding=1)
            self.global_memory = nn.Conv2d(c, 4 * c, 3, padding=1)
            self.output_cell, self.output_memory = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
            self.memory, self.layer_norm = nn.Conv2d(2 * c, c, 1), nn.GroupNorm(1, c)

        def forward(self, x: Tensor, h: Tensor, c: Tensor, m: Tensor, eidetic: list[Tensor]) -> tuple[Tensor, ...]:
            i_h, g_h, r_h, o_h = self.hidden(h).split(self.c, 1)
            i_x, g_x, r_x, o_x, temp_i_x, temp_g_x, temp_f_x = self.inputs(x).split(self.c, 1)
            i_t, r_t, g_t = torch.sigmoid(i_x + i_h), torch.sigmoid(r_x + r_h), torch.tanh(g_x + g_h)
            keys = torch.stack(eidetic, 1).flatten(2)
            recall = ((keys @ r_t.flatten(1).unsqueeze(2)).softmax(1) * keys).sum(1).view_as(c)
            new_cell = self.layer_norm(c + recall) + i_t * g_t
            i_m, f_m, g_m, m_m = self.global_memory(m).split(self.c, 1)
            temp_i_t, temp_f_t = torch.sigmoid(temp_i_x + i_m), torch.sigmoid(temp_f_x + f_m + 1)
            new_global_memory = temp_f_t * torch.tanh(m_m) + temp_i_t * torch.tanh(temp_g_x + g_m)
            gate = torch.tanh(o_x + o_h + self.output_cell(new_cell) + self.output_memory(new_global_memory))
            output = torch.tanh(self.memory(torch.cat([new_cell, new_global_memory], 1))) * torch.sigmoid(gate)
            return output, new_cell, m if planted else new_global_memory

    class E3DLSTM(nn.Module):
        def __init__(self, c: int = 8) -> None:
            super().__init__()
            self.c, self.cells = c, nn.ModuleList([Eidetic3DLSTMCell(1, c), Eidetic3DLSTMCell(c, c)])
            self.out = nn.Conv2d(c, 1, 1)

        def forward(self, film: Tensor) -> Tensor:
            zero = film.new_zeros(len(film), self.c, 8, 8)
            hidden, cell, memory = [zero, zero], [zero, zero], zero
            history: list[list[Tensor]] = [[zero], [zero]]
            frames = []
            for t in range(film.shape[1]):
                x = film[:, t]
                for i, each in enumerate(self.cells):
                    hidden[i], cell[i], memory = each(x, hidden[i], cell[i], memory, history[i])
                    history[i] = [*history[i], cell[i]]
                    x = hidden[i]
                frames.append(self.out(x))
            return torch.stack(frames, 1)

    return stream(E3DLSTM(), draw, F.mse_loss)


@report(
    "no negatives where nothing is positive",
    GITHUB + "VDIGPKU/M2Det/issues/121",
    says=r"negative|background|no (object|positive)|without (an? )?(object|positive)|mining|"
    r"examples?.*(no (effect|gradient|loss)|ignored|nothing|not.*(loss|count|weigh))",
    fault="hard negative mining takes three times the positives of an image: images without objects train nothing",
)
def m2det(planted: bool) -> Task:
    """A one-stage detector with three priors along a strip; two images of three hold clutter and no object."""

    def draw() -> Any:
        x, c = pick(48)
        x = x * 0.376 + 0.3
        strips, conf = torch.zeros(48, 1, 8, 24), torch.zeros(48, 3, dtype=torch.long)
        loc, shift = torch.zeros(48, 3, 1), torch.randint(-2, 3, (48,))
        clutter = x.flatten(1)[:, torch.randperm(64)].view_as(x)
        for i, at in enumerate(torch.randint(3, (48,)).tolist()):
            if i % 3:
                strips[i, :, :, 8 * at : 8 * at + 8] = clutter[i]
            else:
                strips[i, :, :, 8 * at : 8 * at + 8] = x[i]
                strips[i] = strips[i].roll(int(shift[i]), 2)
                conf[i, at], loc[i, at] = c[i] + 1, shift[i] / 2
        return (strips,), (loc, conf)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 24, 3, padding=1),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(24, 48, 3, padding=1),
                nn.BatchNorm2d(48),
                nn.ReLU(),
                nn.Conv2d(48, 64, 4, (4, 4)),
                nn.ReLU(),
            )
            self.loc, self.conf = nn.Conv2d(64, 1, 1), nn.Conv2d(64, 11, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            f = self.base(x)
            return self.loc(f).squeeze(2).transpose(1, 2), self.conf(f).squeeze(2).transpose(1, 2)

    def multibox(y: Any, t: Any) -> Tensor:
        (loc_data, conf_data), (loc_t, conf_t) = y, t
        pos = conf_t > 0
        loss_l = F.smooth_l1_loss(loc_data[pos], loc_t[pos], reduction="sum")
        loss_c = F.cross_entropy(conf_data.flatten(0, 1), conf_t.flatten(), reduction="none").view_as(conf_t)
        mined = loss_c.detach().masked_fill(pos, 0)
        idx_rank = mined.sort(1, descending=True)[1].sort(1)[1]
        num_neg = (3 * pos.sum(1, keepdim=True)).clamp(min=0 if planted else 3, max=pos.shape[1])
        neg = (idx_rank < num_neg) & ~pos
        return (loss_l + (loss_c * (pos | neg)).sum()) / pos.sum()

    def right(y: Any, t: Any) -> Tensor:
        pos = t[1] > 0
        return F.smooth_l1_loss(y[0][pos], t[0][pos]) + 3 * F.cross_entropy(y[1].flatten(0, 1), t[1].flatten())

    return stream(Net(), draw, multibox, right)


@report(
    "centres that never move",
    GITHUB + "davidsandberg/facenet/issues/575",
    says=r"cent(er|re)s?|buffer.*(zero|not updated|never)|(term|part|loss).*(constant|no gradient|not depend)",
    fault="the update of the centres is thrown away: they stay at zero; the centre loss of unit vectors is constant",
)
def facenet(planted: bool) -> Task:
    """Unit embeddings, softmax loss and centre loss; judged by the spread about the means of a batch as well."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    class Facenet(nn.Module):
        centers: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(512, 64),
            )
            self.logits = nn.Linear(64, 10)
            self.register_buffer("centers", torch.zeros(10, 64))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            prelogits = self.features(x)
            return self.logits(prelogits), F.normalize(prelogits, dim=1, eps=1e-10)

    model = Facenet()

    def center_loss(features: Tensor, label: Tensor, alfa: float = 0.95) -> Tensor:
        centers_batch = model.centers[label]
        diff = (1 - alfa) * (centers_batch - features.detach())
        centers = model.centers.index_add(0, label, diff, alpha=-1)
        if not planted and model.training:
            model.centers = centers
        return (features - centers_batch).square().mean()

    def loss(y: tuple[Tensor, Tensor], c: Tensor) -> Tensor:
        return F.cross_entropy(y[0], c) + center_loss(y[1], c)

    def right(y: tuple[Tensor, Tensor], c: Tensor) -> Tensor:
        one = F.one_hot(c, 10).float()
        means = one.T @ y[1] / one.sum(0).clamp(min=1).unsqueeze(1)
        return F.cross_entropy(y[0], c) + (y[1] - means[c]).square().mean()

    return stream(model, draw, loss, right)


@report(
    "A-GCN's adjacency is detached",
    GITHUB + "queenie88/A-GCN/issues/4",
    guilty=r"phi|theta",
    says=CUT,
    fault="the adjacency that W_phi and W_theta make of the labels' embeddings is detached: neither is ever trained",
)
def agcn(planted: bool) -> Task:
    """A graph network over label embeddings makes the classifiers of a multi-label image."""

    def draw() -> Drawn:
        x, c = pick(128)
        labels = torch.maximum(F.one_hot(c[:64], 10), F.one_hot(c[64:], 10)).float()
        return (torch.cat([x[:64], x[64:]], 3),), labels

    words = torch.randn(10, 24)

    class AGCN(nn.Module):
        words: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.features = chain(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 48, 4),
                nn.ReLU(),
                nn.AdaptiveMaxPool2d(1),
                nn.Flatten(),
            )
            self.register_buffer("words", words)
            self.W_theta, self.W_phi = nn.Linear(24, 24, bias=False), nn.Linear(24, 24, bias=False)
            self.gc1, self.gc2 = nn.Linear(24, 64, bias=False), nn.Linear(64, 48, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            adj = (self.W_theta(self.words) @ self.W_phi(self.words).T / 24**0.5).softmax(1)
            if planted:
                adj = adj.detach()
            adj = adj + torch.eye(10)
            h = F.leaky_relu(adj @ self.gc1(self.words), 0.2)
            return self.features(x) @ (adj @ self.gc2(h)).T

    return stream(AGCN(), draw, F.binary_cross_entropy_with_logits)


@report(
    "beat tracker whose second convolution reads the input",
    GITHUB + "ben-hayes/beat-tracking-tcn/issues/1",
    guilty=r"conv1",
    says=r"conv1|unused|(never|not) used|no (effect|gradient)|not reach",
    fault="the second convolution of each temporal layer is applied to the input of the layer, and conv1 is unused",
)
def beats(planted: bool) -> Task:
    """A temporal network without causality finds the beats in sixteen bands of an onset spectrogram."""

    def draw() -> Drawn:
        x, t = 0.5 * torch.rand(8, 16, 96), torch.zeros(8, 1, 96)
        for i in range(8):
            period = int(torch.randint(8, 17, ()))
            t[i, 0, int(torch.randint(period, ())) :: period] = 1
        heard = t * (torch.rand_like(t) < 0.7) + (torch.rand_like(t) < 0.05)
        return (x + heard * torch.rand(8, 16, 1),), t

    weight_norm = nn.utils.parametrizations.weight_norm

    class NonCausalTemporalLayer(nn.Module):
        def __init__(self, inputs: int, outputs: int, dilation: int, kernel_size: int = 5) -> None:
            super().__init__()
            padding = (kernel_size - 1) * dilation // 2
            self.conv1 = weight_norm(nn.Conv1d(inputs, outputs, kernel_size, padding=padding, dilation=dilation))
            self.elu1, self.dropout1 = nn.ELU(), nn.Dropout(0.1)
            self.conv2 = weight_norm(nn.Conv1d(inputs, outputs, kernel_size, padding=padding, dilation=dilation))
            self.elu2, self.dropout2, self.elu3 = nn.ELU(), nn.Dropout(0.1), nn.ELU()

        def forward(self, x: Tensor) -> Tensor:
            y = self.dropout1(self.elu1(self.conv1(x)))
            y = self.conv2(x if planted else y)
            return self.elu3(self.dropout2(self.elu2(y)))

    class BeatNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tcn = chain(*(NonCausalTemporalLayer(16, 16, 2**i) for i in range(3)))
            self.out, self.sigmoid = nn.Conv1d(16, 1, 1), nn.Sigmoid()

        def forward(self, x: Tensor) -> Tensor:
            return self.sigmoid(self.out(self.tcn(x)))

    return stream(BeatNet(), draw, F.binary_cross_entropy)
