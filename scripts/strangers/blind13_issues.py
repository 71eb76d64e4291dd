"""A thirteenth set of faults, a sample of reports to repositories, written without sight of the rules."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind13")


class Heads(nn.Module):
    """Self-attention of a ViT; its softmax goes over the dimension given."""

    def __init__(self, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.softmax = heads, nn.Softmax(dim=dim)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        p = self.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
        return self.out((p @ v).permute(0, 2, 1, 3).reshape(x.shape))


class Block(nn.Module):
    """Attention and an MLP, each behind a normalisation."""

    def __init__(self, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Heads(width, heads, dim)
        self.mlp = chain(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@report(
    "OFT only the score is trained",
    GITHUB + "tom-roddick/oft/issues/6",
    guilty=r"pos|dim|ang|head",
    says=rf"{CUT}|not.*train|unused|never|no effect",
    fault="a line left from a test replaces the total loss by the score's",
)
def oft(planted: bool) -> Task:
    """Bird's-eye view cells with objects: a heatmap of scores, and where they are, positions, sizes and angles."""
    trunk = chain(
        nn.Conv2d(3, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU()
    )
    heads = {n: nn.Conv2d(24, k, 1) for n, k in (("score", 1), ("pos", 2), ("dim", 3), ("ang", 2))}
    model = Parts(lambda m, x: (lambda f: {n: getattr(m, n)(f) for n in heads})(m.trunk(x)), trunk=trunk, **heads)
    mix = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))

    def draw() -> Drawn:
        there = (torch.rand(16, 1, 12, 12) < 0.1).float()
        code = torch.randn(16, 7, 12, 12) * there
        x = torch.einsum("bkhw,kc->bchw", torch.cat([there * 2, code], 1), mix) + 0.1 * torch.randn(16, 3, 12, 12)
        near = x[:, :1].clamp(-3, 3)
        box = torch.cat([near, x[:, 1:2], x.abs(), x[:, 2:].sin(), x[:, 2:].cos()], 1)
        return (x,), {"score": there, "box": box}

    def parts(y, t) -> list[Tensor]:
        box, there = t["box"], t["score"]

        def l1(a, b):
            return ((a - b).abs() * there).sum() / there.sum().clamp(min=1)

        return [
            F.l1_loss(y["score"], there),
            l1(y["pos"], box[:, :2]),
            l1(y["dim"], box[:, 2:5]),
            l1(y["ang"], box[:, 5:]),
        ]

    def total(y, t) -> Tensor:
        return sum(parts(y, t))

    def wrong(y, t) -> Tensor:
        score_loss = parts(y, t)[0]
        total_loss = sum(parts(y, t))
        total_loss = score_loss
        return total_loss

    return stream(model, draw, wrong if planted else total, total)


@report(
    "consensus softmax",
    GITHUB + "NVIDIA/VariantWorks/issues/166",
    guilty=r"(?!)",
    says=r"softmax|probabilit|sum to (1|one)|logit",
    fault="the network ends in a softmax, and the loss is a cross-entropy of logits",
)
def consensus(planted: bool) -> Task:
    """Bases from pileups of noisy reads: a bidirectional GRU over columns of counts."""

    class ConsensusRNN(nn.Module):
        def __init__(self, apply_softmax: bool) -> None:
            super().__init__()
            self.gru = nn.GRU(10, 16, 1, batch_first=True, bidirectional=True)
            self.classifier, self.apply_softmax = nn.Linear(32, 5), apply_softmax

        def forward(self, x: Tensor) -> Tensor:
            x = self.classifier(self.gru(x)[0])
            return F.softmax(x, dim=2) if self.apply_softmax else x

    def draw() -> Drawn:
        base = torch.randint(5, (16, 16))
        reads = torch.where(torch.rand(16, 16, 12) < 0.7, base[..., None], torch.randint(5, (16, 16, 12)))
        counts = F.one_hot(reads, 5).float()
        return (torch.cat([counts[:, :, :6].mean(2), counts[:, :, 6:].mean(2)], 2),), base

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.transpose(1, 2), t)

    return stream(ConsensusRNN(planted), draw, loss)  # the report is of this loss, which does not go to zero


@report(
    "GNN matching softmax",
    GITHUB + "mlelarge/graph_neural_net/pull/37",
    guilty=r"(?!)",
    says=r"softmax|probabilit|sum to (1|one)|logit|double",
    fault="the loss takes a softmax of the scores and then CrossEntropyLoss",
)
def matching(planted: bool) -> Task:
    """Which node of a graph is which of a noisy copy: a siamese net, scores between all nodes, the identity to be
    found."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lift, mlp = nn.Linear(4, 32), lambda: chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32))
            self.mlps = nn.ModuleList(mlp() for _ in range(2))

        def embed(self, a: Tensor) -> Tensor:
            deg = a.sum(2, keepdim=True) / 10
            x = self.lift(
                torch.cat([deg, a @ deg / 10, a @ a @ deg / 100, torch.diagonal(a @ a @ a, 0, 1, 2)[..., None] / 50], 2)
            )
            for mlp in self.mlps:
                x = x + mlp(torch.cat([x, a @ x / 10], 2))
            return x

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.embed(a) @ self.embed(b).transpose(1, 2) / 32

    def draw() -> Drawn:
        a = torch.triu((torch.rand(16, 40, 40) < 0.25).float(), 1)
        b = torch.where(torch.triu(torch.rand(16, 40, 40) < 0.02, 1), 1 - a, a)
        return (a + a.transpose(1, 2), b + b.transpose(1, 2)), torch.arange(40).expand(16, 40).contiguous()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(y.transpose(1, 2), t)

    def triplet_loss(raw_scores: Tensor, t: Tensor) -> Tensor:
        outputs = torch.softmax(raw_scores, -1)
        return sum(F.cross_entropy(out, target) for out, target in zip(outputs, t, strict=False)) / len(t)

    return stream(Siamese(), draw, triplet_loss if planted else right, right)


@report(
    "SNLI net's layers in a list",
    GITHUB + "pytorch/pytorch/issues/715",
    guilty=r"classifier|hids",
    says=r"not registered|regist|list|not a parameter|unregistered|ModuleList|optimi",
    fault="hidden layers are kept in a Python list",
)
def snli(planted: bool) -> Task:
    class SNLINet(nn.Module):
        def __init__(self, n_layers: int = 3, n_hid: int = 64) -> None:
            super().__init__()
            g = torch.Generator().manual_seed(1)
            near = torch.randn(5, 1, 24, generator=g) + torch.randn(5, 20, 24, generator=g) / 2
            self.embed = nn.Embedding.from_pretrained(near.flatten(0, 1))
            self.hids = []
            indim = 48
            for _li in range(n_layers):
                self.hids.append([nn.Linear(indim, n_hid), nn.Tanh()])
                indim = n_hid
            if not planted:
                self.hids = nn.ModuleList(nn.ModuleList(h) for h in self.hids)
            self.classifier = nn.Linear(n_hid, 3)

        def forward(self, p: Tensor, h: Tensor) -> Tensor:
            x = torch.cat([self.embed(p).mean(1), self.embed(h).mean(1)], 1)
            for linear, act in self.hids:
                x = act(linear(x))
            return self.classifier(x)

    def draw() -> Drawn:
        """Premises of six words on a topic; hypotheses on the same (entailed), the next (contradiction), or another
        topic."""
        c = torch.randint(3, (64,))
        topic = torch.randint(5, (64,))
        other = (topic + torch.where(c == 0, 0, torch.where(c == 1, 1, torch.randint(2, 5, (64,))))) % 5

        def words(t):
            return t[:, None] * 20 + torch.randint(20, (64, 6))

        return (words(topic), words(other)), c

    return stream(SNLINet(), draw, F.cross_entropy)


@report(
    "TorchSharp layers in an array",
    GITHUB + "dotnet/TorchSharp/issues/532",
    guilty=r"head|layers|output",
    says=r"not registered|regist|list|array|not a parameter|unregistered|ModuleList|optimi",
    fault="the layers are kept in an array",
)
def torchsharp(planted: bool) -> Task:
    """A convolutional net for small digits; only the layer that is a field of its own is registered."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [
                nn.Conv2d(1, 8, 3),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(32, 16),
                nn.ReLU(),
            ]
            self.Layers = layers if planted else nn.ModuleList(layers)
            self.output = nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.Layers:
                x = layer(x)
            return F.log_softmax(self.output(x), 1)

    draw = drawn(pick, 64)
    return stream(Net(), draw, F.nll_loss)


@report(
    "s4 block without residual ignores its layer",
    GITHUB + "state-spaces/s4/pull/30",
    guilty=r"layer|norm",
    says=rf"{CUT}|unused|never used|no effect|not.*(used|train)|ignor",
    fault="without a residual the block returns its input, not its layer's output",
)
def s4(planted: bool) -> Task:
    """Which of four tones a noisy wave is of, and when: blocks of a long convolution without residuals."""

    class SequenceResidualBlock(nn.Module):
        def __init__(self, d: int, residual=None) -> None:
            super().__init__()
            self.norm, self.residual = nn.LayerNorm(d), residual
            self.layer = nn.Conv1d(d, d, 17, padding=8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x).transpose(1, 2)
            y = F.gelu(self.layer(y)).transpose(1, 2)
            if self.residual is not None:
                x = self.residual(x, y)
            elif not planted:
                x = y
            return x

    blocks = nn.Sequential(SequenceResidualBlock(16), SequenceResidualBlock(16))
    model = Parts(
        lambda m, x: m.decoder(m.blocks(m.encoder(x)).mean(1)),
        encoder=nn.Linear(1, 16),
        blocks=blocks,
        decoder=nn.Linear(16, 4),
    )

    def draw() -> Drawn:
        c = torch.randint(4, (32,))
        t = torch.arange(64) + torch.rand(32, 1) * 50
        x = torch.sin(t * (0.2 + 0.3 * c[:, None])) + 0.3 * torch.randn(32, 64)
        return (x[..., None],), c

    return stream(model, draw, F.cross_entropy)


@report(
    "relations in a dict",
    GITHUB + "pytorch/pytorch/issues/632",
    guilty=r"out|waggrs|relation",
    says=r"not registered|regist|dict|list|not a parameter|unregistered|Module(List|Dict)|optimi",
    fault="each relation's parameters are kept in a Python dict",
)
def relations(planted: bool) -> Task:
    """Nodes with relations of several types, dense adjacencies; is the first node's label among those that its
    relations make?"""

    class Relational(nn.Module):
        def __init__(self, numfeatures: int = 12, numrel: int = 16) -> None:
            super().__init__()
            self.waggrs, self.list_relations = {}, {}
            for rel in range(3):
                self.waggrs[rel] = {
                    "w": nn.Parameter(1.0 + torch.randn(1, 2)),
                    "b": nn.Parameter(torch.zeros(1, numrel)),
                }
                self.list_relations[rel] = nn.Linear(numfeatures, numrel)
                if planted:
                    continue
                self.register_parameter(f"w{rel}", self.waggrs[rel]["w"])
                self.register_parameter(f"b{rel}", self.waggrs[rel]["b"])
                self.add_module(f"relation{rel}", self.list_relations[rel])
            self.out = nn.Linear(numrel, 4)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            h = 0
            for rel in range(3):
                m, w = self.list_relations[rel](x), self.waggrs[rel]
                h = h + torch.relu(w["w"][0, 0] * m[:, 0] + w["w"][0, 1] * (a[:, rel, :1] @ m)[:, 0] + w["b"])
            return self.out(h)

    def draw() -> Drawn:
        kind = torch.randint(12, (64, 6))
        a = torch.zeros(64, 3, 6, 6)
        said = torch.randint(1, 6, (64, 3))
        for rel in range(3):
            a[torch.arange(64), rel, 0, said[:, rel]] = 1
        c = (kind[torch.arange(64), said[:, 0]] % 2) * 2 + (kind[torch.arange(64), said[:, 1]] > 5)
        return (F.one_hot(kind, 12).float(), a), c

    return stream(Relational(), draw, F.cross_entropy)


@report(
    "U-Net reshape and permute",
    GITHUB + "divamgupta/image-segmentation-keras/issues/41",
    guilty=r"conv",
    says=rf"{ORDER}|pixels",
    fault="channels-last outputs are reshaped to (classes, pixels) and permuted, not reshaped to (pixels, classes)",
)
def unet(planted: bool) -> Task:
    class Unet(nn.Module):
        def __init__(self, n: int = 5) -> None:
            super().__init__()
            self.n = n

            def conv(i, o):
                return chain(nn.Conv2d(i, o, 3, padding=1), nn.ReLU())

            self.conv1, self.conv2, self.conv5, self.conv6 = conv(3, 8), conv(8, 12), conv(20, 8), nn.Conv2d(8, n, 1)

        def forward(self, x: Tensor) -> Tensor:
            c1 = self.conv1(x)
            up = F.interpolate(self.conv2(F.max_pool2d(c1, 2)), scale_factor=2)
            c6 = self.conv6(self.conv5(torch.cat([up, c1], 1))).permute(0, 2, 3, 1)  # Keras: channels last
            if planted:
                c6 = c6.reshape(len(x), self.n, -1)
                return c6.permute(0, 2, 1)
            return c6.reshape(len(x), -1, self.n)

    def draw() -> Drawn:
        x, c = pick(16)
        on = F.interpolate(x, size=(24, 24), mode="bilinear")[:, 0] > 0
        hue = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
        t = torch.where(on, c[:, None, None] % 4 + 1, 0)
        return (hue[t].permute(0, 3, 1, 2) + 0.5 * torch.randn(16, 3, 24, 24),), t.flatten(1)

    return stream(Unet(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "cluster probabilities viewed",
    GITHUB + "yihong-97/Source-free-IAPC/pull/6",
    guilty=r"(?!)",
    says=rf"{ORDER}|scrambl|(target|label).*(not|unrelated|random|disagree|depend|mismatch)",
    fault="probabilities (b, h*w, c) are viewed as (b, c, h, w), and taught to the segmentation",
)
def iapc(planted: bool) -> Task:
    """Segmentation of a new domain without labels: probabilities of the nearest class centroids teach the network."""
    net = chain(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 1)
    )
    centroids = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))

    def draw() -> Drawn:
        x, c = pick(16)
        on = F.interpolate(x, size=(16, 16), mode="bilinear")[:, 0] > 0
        x = centroids[torch.where(on, c[:, None, None] % 4 + 1, 0)] + 0.4 * torch.randn(16, 16, 16, 3)
        p = (-3 * torch.cdist(x.flatten(1, 2), centroids.expand(16, 5, 3))).softmax(-1)  # b, h*w, c
        right = p.view(16, 16, 16, 5).permute(0, 3, 1, 2).contiguous()
        return (x.permute(0, 3, 1, 2).contiguous(),), {"p": p.view(16, 5, 16, 16) if planted else right, "right": right}

    def loss(y: Tensor, t) -> Tensor:
        return -(t["p"] * y.log_softmax(1)).sum(1).mean()

    return stream(net, draw, loss, lambda y, t: F.cross_entropy(y, t["right"]))


@report(
    "Keras fans of the other ordering",
    GITHUB + "keras-team/keras/pull/4840",
    guilty=r"weight|conv",
    says=r"initiali|scale|small|vanish|shrink|weight",
    fault="fans of (rows, columns, in, out) kernels are computed as those of (out, in, rows, columns) ones",
)
def fans(planted: bool) -> Task:
    def glorot_uniform(kernel: Tensor) -> Tensor:
        shape = kernel.shape  # tf: rows, columns, in, out
        field = shape[0] * shape[1]
        fan_in, fan_out = field * shape[2], field * shape[3]
        if planted:
            field = shape[2] * shape[3]
            fan_in, fan_out = shape[1] * field, shape[0] * field
        s = math.sqrt(6 / (fan_in + fan_out))
        return nn.init.uniform_(kernel, -s, s)

    layers = []
    for i, o in ((1, 24),) + ((24, 24),) * 9:
        conv = nn.Conv2d(i, o, 3, padding=1)
        with torch.no_grad():
            conv.weight.copy_(glorot_uniform(torch.empty(3, 3, i, o)).permute(3, 2, 0, 1))
            conv.bias.zero_()
        layers += [conv, nn.ReLU()] + ([nn.MaxPool2d(2)] if len(layers) == 4 else [])
    head = nn.Linear(24, 10)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)

    def draw() -> Drawn:
        x, c = pick(32)
        return (x * 0.376 + 0.3,), c

    return stream(chain(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), head), draw, F.cross_entropy)


@report(
    "minutes softmax hidden layer",
    GITHUB + "ubclaunchpad/minutes/pull/134",
    guilty=r"transfer_dense_1|output_1",
    says=r"softmax|sum to (1|one)|activation",
    fault="the hidden layer before the output has a softmax in place of a relu",
)
def minutes(planted: bool) -> Task:
    """Who speaks: a frozen base net on spectrogram frames, and two new layers for the new speakers."""
    base = chain(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 9, 64), nn.ReLU()
    ).requires_grad_(False)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.transfer_dense_1, self.output_1 = base, nn.Linear(64, 128), nn.Linear(128, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.transfer_dense_1(self.base(x))
            return self.output_1(x.softmax(-1) if planted else x.relu())

    def draw() -> Drawn:
        x, c = pick(64)
        return (x * 0.376 + 0.3,), c

    return stream(Net(), draw, F.cross_entropy)


@report(
    "netflow without activations",
    GITHUB + "hmkcode/netflow.js/issues/2",
    guilty=r"layers",
    says=r"linear|activation",
    fault="add_layer drops its activation, all layers are linear",
)
def netflow(planted: bool) -> Task:
    """A small dense net without biases, trained on squared errors: is a pattern positive in one input where another
    is?"""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.activations = nn.ModuleList(), []

        def add_layer(self, i: int, o: int, activation=None) -> None:
            self.layers.append(nn.Linear(i, o, bias=False))
            self.activations.append(activation if activation is not None and not planted else lambda x: x)

        def forward(self, x: Tensor) -> Tensor:
            for layer, f in zip(self.layers, self.activations, strict=False):
                x = f(layer(x))
            return x

    net = Net()
    net.add_layer(2, 16, F.relu)
    net.add_layer(16, 16, F.relu)
    net.add_layer(16, 1)

    def draw() -> Drawn:
        x = torch.rand(64, 2) * 2 - 1
        return (x,), ((x[:, :1] > 0) == (x[:, 1:] > 0)).float() * 2 - 1

    return stream(net, draw, F.mse_loss)


@report(
    "wide and deep on raw inputs",
    GITHUB + "ageron/handson-ml3/pull/20",
    guilty=r"(?!)",
    says=r"normali[sz]|standardi[sz]|scale|large|magnitude|range|units",
    fault="the wide and deep net concatenates the inputs, not their normalised values",
)
def wide(planted: bool) -> Task:
    """California houses: income, age, rooms, bedrooms, population, occupancy, latitude, longitude."""

    class WideAndDeep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor([3.9, 28.6, 5.4, 1.1, 1425.0, 3.1, 35.6, -119.6]))
            self.register_buffer("std", torch.tensor([1.9, 12.6, 2.5, 0.5, 1132.0, 1.5, 2.1, 2.0]))
            self.hidden1, self.hidden2, self.output = nn.Linear(8, 30), nn.Linear(30, 30), nn.Linear(38, 1)

        def forward(self, x: Tensor) -> Tensor:
            normalized = (x - self.mean) / self.std
            h = self.hidden2(self.hidden1(x if planted else normalized).relu()).relu()
            return self.output(torch.cat([x if planted else normalized, h], 1))

    norm = WideAndDeep()

    def draw() -> Drawn:
        z = torch.randn(32, 8)
        x = z * norm.std + norm.mean
        x[:, 4] = x[:, 4].abs() + 3
        y = 2 + 0.9 * z[:, 0] + 0.1 * z[:, 1] - 0.2 * z[:, 5] - 0.5 * z[:, 6] - 0.5 * z[:, 7]
        y = y + 0.4 * (z[:, 6] + z[:, 7]).abs()
        return (x,), y.clamp(0.15, 5)[:, None]

    return stream(norm, draw, F.mse_loss)


@report(
    "Informer on raw values",
    GITHUB + "zhouhaoyi/Informer2020/issues/251",
    guilty=r"(?!)",
    says=r"normali[sz]|standardi[sz]|scale|large|magnitude|range|units",
    fault="a transformer is fed, and asked for, gas demands of tens of thousands",
)
def informer(planted: bool) -> Task:
    class Informer(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.token, self.position = nn.Conv1d(1, d, 3, padding=1), nn.Parameter(torch.randn(1, 36, d) * 0.5)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 48, 0.0, batch_first=True), 1)
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 48, 0.0, batch_first=True), 1)
            self.projection = nn.Linear(d, 1)

        def embed(self, x: Tensor, at: int) -> Tensor:
            return self.token(x.transpose(1, 2)).transpose(1, 2) + self.position[:, at : at + x.shape[1]]

        def forward(self, x: Tensor) -> Tensor:
            dec = torch.cat([x[:, -12:], torch.zeros_like(x[:, :12])], 1)
            return self.projection(self.decoder(self.embed(dec, 12), self.encoder(self.embed(x, 0))))[:, -12:]

    scale, offset = 3000.0, 10000.0

    def draw() -> Drawn:
        t = torch.arange(36) + 24 * torch.rand(32, 1)
        x = torch.sin(t * math.pi / 6) * (0.5 + torch.rand(32, 1)) + 0.5 * torch.sin(t * math.pi / 12)
        x = x + 0.1 * torch.randn(32, 36)
        x = x[..., None]
        x = x * scale + offset if planted else x
        return (x[:, :24],), x[:, 24:]

    def right(y, t):
        return F.mse_loss(y / scale, t / scale)

    return stream(Informer(), draw, F.mse_loss, right if planted else F.mse_loss)


@report(
    "openpi absolute statistics for deltas",
    GITHUB + "Physical-Intelligence/openpi/issues/814",
    guilty=r"(?!)",
    says=r"target|scale|normali[sz]|large|magnitude|outlier|range",
    fault="actions as differences are normalised by quantiles of absolute ones, one of which spans a thousandth",
)
def openpi(planted: bool) -> Task:
    """A policy: joints and what it sees in, a chunk of four actions out."""
    g = torch.Generator().manual_seed(1)
    q01 = torch.tensor([-1.1451605, -2.2426092, -2.2571858, -1.1533241, 1.5686429, -1.6606887, 0.0365147])
    q99 = torch.tensor([-0.7886300, -1.4988367, -1.4468297, -0.9084148, 1.5696224, -1.3030340, 0.9370961])
    d01, d99 = torch.cat([torch.full((6,), -0.05), q01[6:]]), torch.cat([torch.full((6,), 0.05), q99[6:]])
    mix = torch.randn(8, 28, generator=g) / 2

    def norm(x, a, b):
        return (x - a) / (b - a + 1e-6) * 2 - 1

    def draw() -> Drawn:
        state = q01 + (q99 - q01) * torch.rand(32, 7)
        seen = torch.randn(32, 8)
        u = torch.tanh(seen @ mix).view(32, 4, 7)
        delta = torch.cat([0.05 * u[..., :6], q01[6] + (q99[6] - q01[6]) * (u[..., 6:] + 1) / 2], 2)
        x = torch.cat([norm(state, q01, q99), seen], 1)
        return (x,), norm(delta, q01, q99) if planted else norm(delta, d01, d99)

    def right(y: Tensor, t: Tensor) -> Tensor:
        def back(n):
            return norm((n + 1) / 2 * (q99 - q01 + 1e-6) + q01, d01, d99)

        return F.mse_loss(back(y), back(t))

    model = chain(
        nn.Linear(15, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 28), nn.Unflatten(1, (4, 7))
    )
    return stream(model, draw, F.mse_loss, right if planted else F.mse_loss)


@report(
    "population of zeros",
    GITHUB + "jvargasmu/population_estimation/issues/68",
    guilty=r"occupancy",
    says=r"relu|dead|zero|constant|no gradient",
    fault="the occupancy rate is a ReLU of the net's last layer, all zeros at its start",
)
def population(planted: bool) -> Task:
    """A rate per pixel from its covariates, times its buildings, summed over a district; only the district's people
    are known."""

    def build() -> nn.Module:
        occupancy = chain(
            nn.Conv2d(6, 24, 1),
            nn.ReLU(),
            nn.Conv2d(24, 24, 1),
            nn.ReLU(),
            nn.Conv2d(24, 1, 1),
            nn.ReLU() if planted else nn.Softplus(),
        )
        return Parts(lambda m, x, b: (m.occupancy(x) * b).sum((1, 2, 3)), occupancy=occupancy)

    def draw() -> Drawn:
        x = torch.randn(32, 6, 8, 8) * 0.3 + torch.randn(32, 6, 1, 1) * 0.7
        b = (torch.rand(32, 1, 8, 8) < 0.3).float() * torch.randint(1, 5, (32, 1, 8, 8))
        rate = F.softplus(1 + 1.5 * x[:, :1] - x[:, 1:2] + 0.5 * x[:, 2:3])
        return (x, b), (rate * b).sum((1, 2, 3))

    (x, _b), _ = draw()
    while True:  # "sometimes the initial solution predicts only zeros"
        model = build()
        if float(model.occupancy[:-1](x).max()) < 0.02:
            break
    return stream(model, draw, lambda y, t: ((y + 1).log() - (t + 1).log()).abs().mean())


@report(
    "matsciml targets with an axis more",
    GITHUB + "IntelLabs/matsciml/pull/347",
    guilty=r"(?!)",
    says=r"broadcast|shape|unsqueeze|squeeze|axis|dimension",
    fault="labels (N, 1) against readouts (N,): the MSE broadcasts to (N, N)",
)
def matsciml(planted: bool) -> Task:
    """An energy from the atoms of a dense graph: embeddings, two rounds of messages by distance, a sum."""

    class Graph(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.atom = nn.Embedding(6, d)
            self.edge = nn.ModuleList(nn.Linear(8, d) for _ in range(2))
            self.node = nn.ModuleList(chain(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)) for _ in range(2))
            self.readout = chain(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

        def forward(self, z: Tensor, pos: Tensor) -> Tensor:
            h = self.atom(z)
            r = torch.exp(-((torch.cdist(pos, pos)[..., None] - torch.linspace(0, 4, 8)) ** 2))
            for edge, node in zip(self.edge, self.node, strict=False):
                h = h + node(torch.cat([h, (edge(r) * h[:, None]).sum(2) / 8], 2))
            return self.readout(h).sum(1).squeeze(-1)

    worth = torch.randn(6, generator=torch.Generator().manual_seed(1))
    shift, spread = 0.72, 0.61

    def draw() -> Drawn:
        z, pos = torch.randint(6, (32, 8)), torch.randn(32, 8, 3)
        e = worth[z].sum(1) / 3 + (torch.exp(-torch.cdist(pos, pos)) * worth[z][:, None]).sum((1, 2)) / 10
        e = (e - shift) / spread  # matsciml normalises its targets
        return (z, pos), e[:, None] if planted else e

    return stream(Graph(), draw, F.mse_loss, (lambda y, t: F.mse_loss(y.view(-1, 1), t)) if planted else F.mse_loss)


@report(
    "CamNet predictions with two axes more",
    GITHUB + "dingmyu/CamNet/pull/4",
    guilty=r"(?!)",
    says=r"broadcast|shape|unsqueeze|squeeze|axis|axes|dimension",
    fault="predictions (B, 3, 1, 1) against labels (B, 3) in the L1 loss",
)
def camnet(planted: bool) -> Task:
    """Relative pose of two views: convolutions of both, heads for translation and rotation as 1x1 convolutions."""

    class Cam(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = chain(
                nn.Conv2d(2, 24, 3, 2, 1),
                nn.ReLU(),
                nn.Conv2d(24, 32, 3, 2, 1),
                nn.ReLU(),
                nn.Conv2d(32, 48, 3),
                nn.ReLU(),
            )
            self.trans, self.rot = nn.Conv2d(48, 3, 1), nn.Conv2d(48, 4, 1)

        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            f = self.conv(torch.cat([a, b], 1))
            trans, rot = self.trans(f), self.rot(f)
            return (trans, rot) if planted else (trans.flatten(1), rot.flatten(1))

    grid = torch.stack(torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij"), -1)

    def view(at: Tensor, size: Tensor) -> Tensor:
        return torch.exp(-((grid - at[:, None, None]) ** 2).sum(-1) / size[:, None, None] ** 2)[:, None] * 2 - 0.3

    def draw() -> Drawn:
        at, move, zoom = torch.rand(32, 2) * 4 + 4, torch.randn(32, 2), torch.rand(32) - 0.5
        rot = torch.stack([zoom.cos(), move[:, 0] / 2, move[:, 1] / 2, zoom * 0], 1)
        a, b = view(at, torch.full((32,), 2.0)), view(at + move, 2 + zoom)
        return (a, b), {"trans": torch.cat([move, zoom[:, None] * 2], 1), "rot": rot}

    def loss(y, t) -> Tensor:
        return F.l1_loss(y[0], t["trans"]) + F.l1_loss(y[1], t["rot"])

    return stream(Cam(), draw, loss, lambda y, t: loss([e.flatten(1) for e in y], t))


@report(
    "forecasters of one step broadcast",
    GITHUB + "jsboige/CoursIA/pull/926",
    guilty=r"(?!)",
    says=r"broadcast|shape|unsqueeze|squeeze|axis|dimension",
    fault="predictions (B, 1) against targets (B,): the MSE broadcasts to (B, B)",
)
def patchtst(planted: bool) -> Task:
    """PatchTST for one step of a return: patches of a window, a transformer encoder, a linear head."""

    class PatchTST(nn.Module):
        def __init__(self, d: int = 24) -> None:
            super().__init__()
            self.patch, self.position = nn.Linear(8, d), nn.Parameter(torch.randn(1, 6, d) * 0.02)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 48, 0.0, batch_first=True), 1)
            self.head = nn.Linear(6 * d, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(self.patch(x.unfold(1, 8, 8)) + self.position).flatten(1))

    def draw() -> Drawn:
        t = torch.arange(49) + 30 * torch.rand(64, 1)
        x = torch.sin(t * (0.2 + 0.3 * torch.rand(64, 1))) + 0.1 * torch.randn(64, 49)
        return (x[:, :48],), x[:, 48]

    def right(y, t):
        return F.mse_loss(y, t.view_as(y))

    return stream(PatchTST(), draw, F.mse_loss if planted else right, right)


@report(
    "BERT positions of one frequency",
    GITHUB + "codertimo/BERT-pytorch/pull/24",
    guilty=r"(?!)",
    says=r"position|order|\bpe\b|encod",
    fault="an integer range times a float is an integer zero, so that all frequencies are exp(0)",
)
def bert(planted: bool) -> Task:
    """Masked tokens from their places: each sequence says each of its halves in turn, the second as the first."""

    class BERT(nn.Module):
        def __init__(self, d_model: int = 32, max_len: int = 24) -> None:
            super().__init__()
            self.token = nn.Embedding(21, d_model)
            pe = torch.zeros(max_len, d_model).float()
            position = torch.arange(0, max_len).float().unsqueeze(1)
            if planted:  # in PyTorch 0.4 a float times an integer tensor was made an integer
                div_term = (torch.arange(0, d_model, 2) * int(-(math.log(10000.0) / d_model))).float().exp()
            else:
                div_term = (torch.arange(0, d_model, 2).float() * -(math.log(10000.0) / d_model)).exp()
            pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
            self.register_buffer("pe", pe.unsqueeze(0))

            def layer():
                return nn.TransformerEncoderLayer(d_model, 2, 64, 0.0, batch_first=True, norm_first=True)

            self.blocks, self.out = nn.ModuleList(layer() for _ in range(2)), nn.Linear(d_model, 20)

        def forward(self, x: Tensor) -> Tensor:
            h = self.token(x) + self.pe
            for block in self.blocks:
                h = block(h)
            return self.out(h)

    def draw() -> Drawn:
        half = torch.randint(20, (32, 12))
        x = torch.cat([half, half], 1)
        hidden = torch.rand(32, 24) < 0.15
        return (torch.where(hidden, 20, x),), torch.where(hidden, x, -100)

    return stream(BERT(), draw, lambda y, t: F.cross_entropy(y.transpose(1, 2), t))


@report(
    "pytext MLP frozen with its embedding",
    GITHUB + "facebookresearch/pytext/pull/76",
    guilty=r"mlp",
    says=r"frozen|freez|requires_grad|not.*train",
    fault="freezing the pretrained embedding freezes the MLP on it too",
)
def pytext(planted: bool) -> Task:
    """Classes of sentences by a DocNN: frozen pretrained vectors, MLP layers on them, convolution, max pooling."""

    class WordEmbedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            vectors = torch.randn(200, 48, generator=torch.Generator().manual_seed(1))
            self.embedding = nn.Embedding.from_pretrained(vectors)
            self.mlp = chain(nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.mlp(self.embedding(x))

    word = WordEmbedding()
    (word if planted else word.embedding).requires_grad_(False)
    model = Parts(
        lambda m, x: m.decoder(m.conv(m.word(x).transpose(1, 2)).relu().max(2)[0]),
        word=word,
        conv=nn.Conv1d(8, 24, 3),
        decoder=nn.Linear(24, 4),
    )

    def draw() -> Drawn:
        c = torch.randint(4, (64,))
        x = torch.randint(200, (64, 12))
        said = torch.rand(64, 12) < 0.2
        said[torch.arange(64), torch.randint(12, (64,))] = True
        return (
            torch.where(said, torch.randint(40, (64, 12)) // 4 * 4 + c[:, None], torch.where(x < 40, x + 40, x)),
        ), c

    return stream(model, draw, F.cross_entropy)
