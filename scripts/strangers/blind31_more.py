"""The rest of the thirty-first set: initialisations, scales, masks and losses that people reported."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, Parts
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind31 import UNSCALED
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind31")
GITHUB = "https://github.com/"
EMPTY = rf"{BROKEN}|divi|0 ?/ ?0|empty"


@report(
    "zeros as in logistic regression",
    "https://axeldomingues.dev/blog/initialization-scale-fragility-of-deep-networks",
    guilty=r"weight",
    says=rf"zero|symmetr|identical|{SAME}|{CUT}",
    fault="all weights of a deep network start at zero",
)
def zeros(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), c

    model = chain(
        nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(),
        nn.Linear(48, 10),
    )  # fmt: skip
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight) if planted else nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return stream(model, draw, F.cross_entropy)


@report(
    "loss_1 dominates",
    "https://discuss.pytorch.org/t/how-to-balance-different-loss-term/6417",
    says=r"dominat|balanc|weigh|term|scale|magnitude|larger|huge",
    fault="the loss of an output of an intermediate layer is thousands of times that of the last layer's output",
)
def balance(planted: bool) -> Task:
    """The intermediate output repeats the pixels, with a sum of squares; the last one classifies, and is judged."""

    def draw() -> Drawn:
        x, c = pick(64)
        return (x,), torch.cat([x.flatten(1), c[:, None].float()], 1)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = chain(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.output1 = nn.Linear(16, 64)
            self.last = chain(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.first(x)
            return self.output1(h), self.last(h)

    def total(y: tuple[Tensor, Tensor], t: Tensor, alpha: float = 1.0) -> Tensor:
        loss_1 = F.mse_loss(y[0], t[:, :64], reduction="sum")
        loss_2 = F.cross_entropy(y[1], t[:, 64].long())
        return alpha * loss_1 + loss_2

    def second(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.cross_entropy(y[1], t[:, 64].long())

    return stream(Network(), draw, total if planted else partial(total, alpha=1e-4), second)


@report(
    "labels of twelve thousand beside labels of one",
    "https://discuss.pytorch.org/t/how-to-deal-with-the-labels-having-drastically-different-values/116598",
    guilty=r"fc\.|^fc",
    says=rf"target|label|{UNSCALED}",
    fault="two of sixteen labels are about 12000, the others about 1, and the loss is a plain MSE",
)
def labels(planted: bool) -> Task:
    """Images to 16 numbers; judged in standard deviations of each."""
    mean = torch.ones(16).index_fill(0, torch.tensor([0, 3]), 12000.0)
    std = torch.full((16,), 0.5).index_fill(0, torch.tensor([0, 3]), 300.0)
    w = torch.randn(64, 16) / 8

    def draw() -> Drawn:
        x = pick(64)[0]
        z = torch.tanh(2 * x.flatten(1) @ w)
        return (x,), mean + std * z if planted else z

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
            self.hidden, self.fc = nn.Linear(256, 64), nn.Linear(64, 16)

        def forward(self, x: Tensor) -> Tensor:
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2).flatten(1)
            return self.fc(F.relu(self.hidden(x)))

    def standardised(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t) / std).square().mean() if planted else F.mse_loss(y, t)

    return stream(Net(), draw, F.mse_loss, standardised)


@report(
    "nodes of 100, 200, 300",
    "https://taourl.com/read-2674918.html",
    guilty=r"conv1",
    says=rf"input|feature|{UNSCALED}",
    fault="node features of hundreds enter the graph convolutions as they are",
)
def nodes(planted: bool) -> Task:
    """The label of a node depends on its feature and on its neighbours'."""
    link = (torch.rand(40, 40, generator=torch.Generator().manual_seed(0)) < 0.06).float()
    a = ((link + link.t()) > 0).float().fill_diagonal_(1)
    norm = a / (a.sum(0).sqrt() * a.sum(1, keepdim=True).sqrt())
    mean = a / a.sum(1, keepdim=True)

    def draw() -> Drawn:
        x = torch.rand(8, 40, 1) * 200 + 100
        t = (mean @ x).squeeze(2)
        return (x if planted else (x - 200) / 57.7,), (t > 185).long() + (t > 215).long()

    class GCNConv(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.lin, self.bias = nn.Linear(n, m, bias=False), nn.Parameter(torch.zeros(m))
            nn.init.xavier_uniform_(self.lin.weight)

        def forward(self, x: Tensor) -> Tensor:
            return norm @ self.lin(x) + self.bias

    class GNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(1, 32), GCNConv(32, 32)
            self.out = nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.relu(self.conv2(F.relu(self.conv1(x)))))

    return stream(GNN(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "last output is of the padding",
    GITHUB + "thtrieu/qclass_dl/issues/1",
    guilty=r"lstm|embedding",
    says=r"padding|\bpad\b|last (step|output|state)|length|final (step|state)",
    fault="the classifier reads outputs[-1], the LSTM's output after the padding, not after the last word",
)
def questions(planted: bool) -> Task:
    """Questions of 4 to 10 words, padded to 40, to six classes by their first words."""

    def draw() -> Drawn:
        n = torch.randint(4, 11, (48,))
        x = torch.randint(1, 200, (48, 40))
        c = torch.randint(6, (48,))
        x[:, 0] = 1 + c // 3
        x[:, 1] = 3 + c % 3
        x = x * (torch.arange(40) < n[:, None])
        return (x, n), c

    class LSTMClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(200, 32), nn.LSTM(32, 32, batch_first=True)
            self.output = nn.Linear(32, 6)

        def forward(self, x: Tensor, real_len: Tensor) -> Tensor:
            outputs = self.lstm(self.embedding(x))[0]
            last = outputs[:, -1] if planted else outputs[torch.arange(len(x)), real_len - 1]
            return self.output(last)

    return stream(LSTMClassifier(), draw, F.cross_entropy)


@report(
    "black pixels under a clamp",
    GITHUB + "torch/torch7/issues/734",
    guilty=r"image",
    says=rf"clamp|clip|hardtanh|satura|bound|dead|{CUT}",
    fault="the image is clamped to (0, 1), with derivative 0 at the bounds: its black pixels are never updated",
)
def pixels(planted: bool) -> Task:
    """An image is optimised until the features of it, jittered, are those of another image."""
    images = ((pick(2)[0] * 0.376 + 0.3) * 16).round() / 16  # as they were: black is exactly 0
    features = chain(nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1)).requires_grad_(False)

    def draw() -> Drawn:
        noise = 0.05 * torch.randn(8, 1, 8, 8)
        return (noise,), features(images[1:] + noise)

    def run(m: Any, noise: Tensor) -> Tensor:
        return m.features(F.hardtanh(m.image, 0.0 if planted else -1e-3, 1.0) + noise)

    model = Parts(run, image=nn.Parameter(images[:1].clone().clamp(0, 1)), features=features)
    return stream(model, draw, F.mse_loss)


@report(
    "sample weights that are all zero",
    GITHUB + "keras-team/keras/issues/3270",
    says=EMPTY,
    fault="the score is divided by the mean of the weights' mask, which is 0 where a small batch has no weight",
)
def weighted(planted: bool) -> Task:
    w = torch.randn(8, 1)

    def draw() -> Drawn:
        x = torch.randn(4, 8)
        return (x,), torch.cat([torch.tanh(x @ w), (torch.rand(4, 1) < 0.5).float()], 1)

    def weighted_objective(y_pred: Tensor, t: Tensor) -> Tensor:
        y_true, weights = t[:, :1], t[:, 1]
        score_array = (y_pred - y_true).square().mean(-1) * weights
        share = (weights != 0).float().mean()
        return (score_array / (share if planted else share.clamp(min=1e-7))).mean()

    return stream(chain(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)), draw, weighted_objective)


def shapes(count: int, *, line: bool) -> tuple[Tensor, Tensor]:
    """Noisy images (count, 1, 12, 12), of which four in ten are empty, and where their square or line is."""
    t = torch.zeros(count, 12, 12)
    for i in range(count):
        if torch.rand(()) < 0.6:
            a, b = torch.randint(0, 7, (2,)).tolist()
            t[i, a : a + (1 if line else 5), b : b + 5] = 1
    return (t + 0.5 * torch.randn_like(t)).unsqueeze(1), t


@report(
    "images without an edge",
    GITHUB + "Deci-AI/super-gradients/issues/912",
    says=EMPTY,
    fault="the edge loss is the mean over the pixels of edges, of which images of one class have none",
)
def edges(planted: bool) -> Task:
    """DiceCEEdgeLoss: cross entropy and Dice everywhere, cross entropy once more along the edges; batches of two."""

    def draw() -> Drawn:
        x, t = shapes(2, line=False)
        return (x,), t.long()

    def edge_loss(y: Tensor, t: Tensor) -> Tensor:
        one = t.float().unsqueeze(1)
        mask = (F.max_pool2d(one, 3, 1, 1) + F.max_pool2d(-one, 3, 1, 1)).squeeze(1)
        mask_loss = F.cross_entropy(y, t, reduction="none") * mask
        mask_loss = mask_loss[mask == 1]
        if not planted and len(mask_loss) == 0:
            return y.sum() * 0
        return mask_loss.mean()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        p = y.softmax(1)[:, 1]
        dice = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
        return F.cross_entropy(y, t) + dice + 0.5 * edge_loss(y, t)

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1)
    )
    return stream(model, draw, loss)


@report(
    "no line in the batch",
    GITHUB + "lhwcv/mlsd_pytorch/issues/9",
    says=EMPTY,
    fault="the loss of the lines' pixels is divided by their number, which is 0 where no image has a line",
)
def mlsd(planted: bool) -> Task:
    def draw() -> Drawn:
        x, t = shapes(2, line=True)
        return (x,), t.unsqueeze(1)

    def weighted_bce_with_logits(out: Tensor, gt: Tensor, pos_w: float = 1.0, neg_w: float = 30.0) -> Tensor:
        pos_mask, neg_mask = (gt != 0).float(), (gt == 0).float()
        loss = F.binary_cross_entropy_with_logits(out, gt, reduction="none")
        pos_sum, neg_sum = pos_mask.sum(), neg_mask.sum()
        if not planted:
            pos_sum = pos_sum.clamp(min=1)
        return pos_w * (loss * pos_mask).sum() / pos_sum + neg_w * (loss * neg_mask).sum() / neg_sum

    model = chain(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.Conv2d(16, 1, 3, padding=1),
    )
    return stream(model, draw, weighted_bce_with_logits)


@report(
    "dialogue without an answer",
    GITHUB + "LAION-AI/Open-Assistant/pull/2001",
    says=EMPTY,
    fault="the loss is the mean over the tokens that the mask keeps: none, where the whole input is masked",
)
def assistant(planted: bool) -> Task:
    """A language model that learns the tokens of answers alone; four in ten inputs are all prompt; batches of three."""

    def draw() -> Drawn:
        x, t = text(3, 24, 64, seed=int(torch.randint(10**6, ())))
        begin = torch.randint(4, 12, (3, 1)).masked_fill(torch.rand(3, 1) < 0.4, 24)
        return (x,), torch.stack([t, (torch.arange(24) >= begin).long()], 2)

    class CrossEntropyLoss(nn.Module):
        def forward(self, input: Tensor, t: Tensor) -> Tensor:
            mask = t[..., 1].flatten().bool()
            input, target = input.flatten(0, 1)[mask], t[..., 0].flatten()[mask]
            loss = F.cross_entropy(input, target, reduction="none")
            return loss.mean() if planted else loss.sum() / max(len(target), 1)

    def run(m: Any, x: Tensor) -> Tensor:
        return m.head(m.rnn(m.embed(x))[0])

    model = Parts(run, embed=nn.Embedding(64, 32), rnn=nn.GRU(32, 48, batch_first=True), head=nn.Linear(48, 64))
    return stream(model, draw, CrossEntropyLoss())


@report(
    "LSTM with ReLU for its tanh",
    GITHUB + "AlexanderVNikitin/tsgm/issues/59",
    guilty=r"lstm|cell",
    says=r"relu|unbounded|explo|grow|recurr|large|huge|satura|overflow",
    fault="the LSTMs' activation is ReLU instead of a saturating one: state and loss can explode",
)
def conv_lstm(planted: bool) -> Task:
    """Convolutions and LSTMs in turn over noisy waves, to the class of their frequency."""
    act = F.relu if planted else torch.tanh

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        phase = 6.28 * torch.rand(32, 1)
        x = torch.sin(phase + torch.arange(24) * (0.3 + 0.3 * c[:, None]))
        return ((x + 0.3 * torch.randn(32, 24)).unsqueeze(1),), c

    class LSTM(nn.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(n, m)

        def forward(self, x: Tensor) -> Tensor:
            cell, out = self.cell, []
            h = c = x.new_zeros(len(x), cell.hidden_size)
            for z in F.linear(x, cell.weight_ih, cell.bias_ih + cell.bias_hh).unbind(1):
                i, f, g, o = (z + h @ cell.weight_hh.t()).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * act(g)
                h = o.sigmoid() * act(c)
                out.append(h)
            return torch.stack(out, 1)

    class ConvnLSTMnArchitecture(nn.Module):
        def __init__(self, n_conv_lstm_blocks: int = 2, d: int = 32) -> None:
            super().__init__()
            sizes = [1] + [d] * n_conv_lstm_blocks
            self.conv = nn.ModuleList(nn.Conv1d(n, d, 3, padding=1) for n in sizes[:-1])
            self.lstm = nn.ModuleList(LSTM(d, d) for _ in sizes[1:])
            self.dense = nn.Linear(d, 4)

        def forward(self, x: Tensor) -> Tensor:
            for conv, lstm in zip(self.conv, self.lstm, strict=True):
                x = lstm(F.dropout(F.relu(conv(x)), 0.2, self.training).mT).mT
            return self.dense(x[..., -1])

    return stream(ConvnLSTMnArchitecture(), draw, F.cross_entropy)


@report(
    "U-Net with a softmax of its own",
    GITHUB + "milesial/Pytorch-UNet/issues/186",
    guilty=r"outc",
    says=r"softmax|probabilit|logit",
    fault="a softmax layer is added to the output, which the cross entropy takes for logits",
)
def unet(planted: bool) -> Task:
    """Twenty-one classes: digits and letters stand for them, in a U-Net of one level; judged by the right loss."""

    def draw() -> Drawn:
        x, c = pick(16)
        bright = x > 0.5
        return (x,), torch.where(bright[:, 0], 1 + 2 * c[:, None, None] + (torch.arange(8) > 3).long(), 0)

    def double_conv(n: int, m: int) -> nn.Sequential:
        return chain(
            nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(),
            nn.Conv2d(m, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self, n_classes: int = 21) -> None:
            super().__init__()
            self.inc, self.down = double_conv(1, 16), chain(nn.MaxPool2d(2), double_conv(16, 32))
            self.up, self.conv = nn.ConvTranspose2d(32, 16, 2, 2), double_conv(32, 16)
            self.deep, self.outc = chain(nn.MaxPool2d(4), double_conv(32, 32)), nn.Conv2d(16, n_classes, 1)

        def forward(self, x: Tensor) -> Tensor:
            x1 = self.inc(x)
            x2 = self.down(x1)
            x2 = x2 + self.deep(x2)
            y = self.outc(self.conv(torch.cat([x1, self.up(x2)], 1)))
            return F.softmax(y, dim=1) if planted else y

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.nll_loss(y.clamp(min=1e-12).log(), t) if planted else F.cross_entropy(y, t)

    return stream(UNet(), draw, F.cross_entropy, right)


@report(
    "language model of RNN_RELU",
    GITHUB + "chenxie95/deeplearning_course_sjtu/issues/31",
    guilty=r"rnn",
    says=r"relu|unbounded|explo|grow|recurr|large|huge|satura|overflow",
    fault="the recurrent layers' non-linearity is ReLU, under which loss and gradients explode",
)
def rnn_relu(planted: bool) -> Task:
    """The word language model of PyTorch's examples: uniform embeddings of 0.1, two layers, dropout."""

    def draw() -> Drawn:
        x, t = text(16, 35, 128, seed=int(torch.randint(10**6, ())))
        return (x,), t

    class RNNModel(nn.Module):
        def __init__(self, ntoken: int = 128, ninp: int = 48, nhid: int = 48) -> None:
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(ntoken, ninp)
            nonlinearity = "relu" if planted else "tanh"
            self.rnn = nn.RNN(ninp, nhid, 2, nonlinearity=nonlinearity, dropout=0.2, batch_first=True)
            self.decoder = nn.Linear(nhid, ntoken)
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(self.decoder(self.drop(self.rnn(self.drop(self.encoder(x)))[0])), dim=-1)

    return stream(RNNModel(), draw, lambda y, t: F.nll_loss(y.flatten(0, 1), t.flatten()))


@report(
    "distances saturate",
    GITHUB + "huanghoujing/AlignedReID-Re-Production-Pytorch/issues/2",
    guilty=r"conv|bn|local",
    says=rf"satura|norm|scale|large|tanh|distance|{CUT}",
    fault="distances of features without normalisation are so large that (e^d - 1) / (e^d + 1) is 1 and flat",
)
def aligned(planted: bool) -> Task:
    """Triplets by the shortest path through the distances of stripes; judged as the repaired loss would."""

    def draw() -> Drawn:
        x, c = pick(24)
        return (x,), c

    class Model(nn.Module):
        def __init__(self, local_conv_out_channels: int = 128) -> None:
            super().__init__()
            self.base = chain(
                nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            )  # fmt: skip
            self.local_conv = nn.Conv2d(64, local_conv_out_channels, 1)
            self.local_bn = nn.BatchNorm2d(local_conv_out_channels)

        def forward(self, x: Tensor) -> Tensor:
            feat = self.base(x).mean(3, keepdim=True)
            return F.relu(self.local_bn(self.local_conv(feat))).squeeze(3).mT  # (B, 4 stripes, d)

    def triplet(y: Tensor, c: Tensor, *, normal: bool = not planted, margin: float = 0.3) -> Tensor:
        if normal:
            y = y / (y.norm(dim=-1, keepdim=True) + 1e-12)
        z = y.flatten(0, 1)
        square = z.square().sum(1, keepdim=True) + z.square().sum(1) - 2 * z @ z.t()
        dist = torch.tanh(square.clamp(min=1e-12).sqrt() / 2).view(len(c), 4, len(c), 4).transpose(1, 2)
        path: list[list[Tensor]] = [[dist[..., 0, 0]] * 4 for _ in range(4)]
        for i in range(4):
            for j in range(4):
                before = ([path[i - 1][j]] if i else []) + ([path[i][j - 1]] if j else [])
                best = torch.stack(before).amin(0) if before else torch.zeros_like(dist[..., 0, 0])
                path[i] = [*path[i][:j], best + dist[..., i, j], *path[i][j + 1 :]]
        d, same = path[3][3], c[:, None] == c
        positive = d.masked_fill(~same, -1).amax(1)
        negative = d.masked_fill(same, 1e3).amin(1)
        return F.relu(positive - negative + margin).mean()

    return stream(Model(), draw, triplet, partial(triplet, normal=True))
