"""Healthy networks of public repositories drawn by chance, a fourteenth set, written without sight of the rules."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB, Parts
from strangers.blind2 import drawn, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

healthy = partial(any_report, blind="blind14")


def gray(count: int = 64, size: int = 28) -> tuple[Tensor, Tensor]:
    """Images of digits as ToTensor gives them, 0 to 1."""
    x, c = pick(count)
    x = x * 0.376 + 0.3
    return (F.interpolate(x, size=(size, size), mode="bilinear") if size != 8 else x).clamp(0, 1), c


def colour(count: int = 32, size: int = 32, mean: float = 0.5, std: float = 0.5) -> tuple[Tensor, Tensor]:
    """Coloured digits on coloured paper, normalised as said."""
    x, c = gray(count, size)
    ink, paper = torch.rand(2, count, 3, 1, 1)
    return ((x * ink + (1 - x) * paper) - mean) / std, c


def tinted(count: int = 32, size: int = 32, mean: float = 0.5, std: float = 0.5) -> tuple[Tensor, Tensor]:
    """Digits in a random colour on black, normalised as said."""
    x, c = gray(count, size)
    return (x * (0.5 + 0.5 * torch.rand(count, 3, 1, 1)) - mean) / std, c


@healthy("environmental sound CNN", GITHUB + "ggbond06/environmental-sound-classifier-pytorch/blob/main/sound_model.py")
def sound_cnn(_: bool) -> Task:
    """SoundCNNBatchNorm with 8 units for 32; each spectrogram standardised by itself."""

    def block(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2, 2)]

    model = chain(
        *block(1, 8),
        *block(8, 16),
        *block(16, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        chain(nn.Dropout(0.4), nn.Linear(32, 6)),
    )

    def draw() -> Drawn:
        c, f, t = torch.randint(6, (32,)), torch.arange(32.0).view(1, 32, 1), torch.arange(40.0).view(1, 1, 40)
        pitch = (c * 5.0 + 2).view(-1, 1, 1) + 2 * torch.sin(t / (3 + c.view(-1, 1, 1)))
        x = -40 + 30 * torch.exp(-((f - pitch) ** 2) / 4) + 6 * torch.randn(32, 32, 40)
        x = x.unsqueeze(1)
        return ((x - x.mean((1, 2, 3), keepdim=True)) / (x.std((1, 2, 3), keepdim=True) + 1e-6),), c

    return stream(model, draw, F.cross_entropy)


@healthy("Fashion-MNIST CNN", GITHUB + "qarchli/PyTorch-CNN-FashionMNIST/blob/master/model.py")
def fashion_cnn(_: bool) -> Task:
    model = chain(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(6, 12, 5),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(192, 120),
        nn.ReLU(),
        nn.Linear(120, 60),
        nn.ReLU(),
        nn.Linear(60, 10),
    )

    draw = drawn(gray, 64)
    return stream(model, draw, F.cross_entropy)


@healthy(
    "MNIST autoencoder with summed BCE",
    GITHUB + "akihironitta/autoencoder-PyTorch/blob/master/bin/modules/Autoencoder.py",
)
def mnist_autoencoder(_: bool) -> Task:
    """Returns the reconstruction and the code; pixels 0 to 1; BCE summed over pixels and examples."""
    H, M, D = 48, 8, 196
    enc = chain(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, M))
    dec = chain(nn.Linear(M, H), nn.ReLU(), nn.Linear(H, H), nn.ReLU(), nn.Linear(H, D))

    def forward(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.enc(x)
        return torch.sigmoid(m.dec(z)), z

    def draw() -> Drawn:
        x = gray(64, 14)[0].view(-1, D)
        return (x,), x

    return stream(Parts(forward, enc=enc, dec=dec), draw, lambda y, t: F.binary_cross_entropy(y[0], t, reduction="sum"))


@healthy("mini GPT on characters", GITHUB + "kushalkulshreshtha/gpt-pytorch/blob/main/train.py")
def mini_gpt(_: bool) -> Task:
    """Heads scaled by the whole width (C ** -0.5), dropout 0.2, learned positions, pre-norm."""
    C, T, V, H = 32, 24, 64, 4

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.query, self.value = (nn.Linear(C, C // H, bias=False) for _ in range(3))
            self.register_buffer("tril", torch.tril(torch.ones(T, T)))
            self.dropout = nn.Dropout(0.2)

        def forward(self, x: Tensor) -> Tensor:
            w = self.query(x) @ self.key(x).transpose(-2, -1) * x.shape[-1] ** -0.5
            w = w.masked_fill(self.tril[: x.shape[1], : x.shape[1]] == 0, float("-inf"))
            return self.dropout(F.softmax(w, -1)) @ self.value(x)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(Head() for _ in range(H))
            self.projection, self.dropout = nn.Linear(C, C), nn.Dropout(0.2)
            self.ffwd = chain(nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, C), nn.Dropout(0.2))
            self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)

        def forward(self, x: Tensor) -> Tensor:
            y = self.ln1(x)
            x = x + self.dropout(self.projection(torch.cat([h(y) for h in self.heads], -1)))
            return x + self.ffwd(self.ln2(x))

    def forward(m: Parts, i: Tensor) -> Tensor:
        return m.lm_head(m.layernorm(m.blocks(m.token(i) + m.pos(torch.arange(i.shape[1])))))

    model = Parts(
        forward,
        token=nn.Embedding(V, C),
        pos=nn.Embedding(T, C),
        blocks=chain(Block(), Block()),
        layernorm=nn.LayerNorm(C),
        lm_head=nn.Linear(C, V),
    )

    def draw() -> Drawn:
        x, t = text(32, T, V, seed=int(torch.randint(10**6, ())))
        return (x,), t

    return stream(model, draw, lambda y, t: F.cross_entropy(y.reshape(-1, V), t.reshape(-1)))


@healthy("ViT from scratch", GITHUB + "zeroleafx/vit-pytorch-from-scratch/blob/main/models/vit.py")
def vit_scratch(_: bool) -> Task:
    """Class token and positions from N(0, 1); pre-norm blocks; dropout 0.1; images normalised by their statistics."""
    E = 32

    class Msa(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer_norm, self.msa = nn.LayerNorm(E), nn.MultiheadAttention(E, 4, dropout=0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer_norm(x)
            return self.msa(x, x, x, need_weights=False)[0]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.msa_block = Msa()
            self.mlp_block = chain(
                nn.LayerNorm(E), nn.Linear(E, 4 * E), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * E, E), nn.Dropout(0.1)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = self.msa_block(x) + x
            return self.mlp_block(x) + x

    def forward(m: Parts, x: Tensor) -> Tensor:
        x = m.patcher(x).flatten(2).permute(0, 2, 1)
        x = m.drop(m.position + torch.cat((m.cls.expand(len(x), -1, -1), x), 1))
        return m.classifier(m.encoder(x)[:, 0])

    model = Parts(
        forward,
        cls=nn.Parameter(torch.randn(1, 1, E)),
        position=nn.Parameter(torch.randn(1, 17, E)),
        drop=nn.Dropout(0.1),
        patcher=nn.Conv2d(3, E, 4, 4),
        encoder=chain(*[Block() for _ in range(4)]),
        classifier=chain(nn.LayerNorm(E), nn.Linear(E, 10)),
    )

    draw = drawn(tinted, 64, 16, 0.45, 0.275)
    return stream(model, draw, F.cross_entropy)


@healthy("LeNet drawn from U(-0.1, 0.1)", GITHUB + "Aria-K-Alethia/MNIST-Pytorch/blob/master/convnet.py")
def lenet_uniform(_: bool) -> Task:
    """Every weight and bias is drawn from U(-0.1, 0.1), as make_model does; log softmax and NLL; pixels 0 to 1."""
    model = chain(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
        nn.LogSoftmax(-1),
    )
    for p in model.parameters():
        p.data.uniform_(-1e-1, 1e-1)

    draw = drawn(gray, 64)
    return stream(model, draw, F.nll_loss)


@healthy("GoogLeNet for CIFAR", GITHUB + "EqualMa/cifar-pytorch/blob/master/GoogLeNet-Pytorch.py")
def googlenet_cifar(_: bool) -> Task:
    """No batch normalisation; default initialisation; Dropout2d(0.4) before the head; images in [-1, 1]."""

    class Inception(nn.Module):
        def __init__(self, i: int, a: int, m3: int, b: int, m5: int, c: int, d: int) -> None:
            super().__init__()
            self.conv1 = chain(nn.Conv2d(i, a, 1), nn.ReLU())
            self.conv13 = chain(nn.Conv2d(i, m3, 1), nn.ReLU(), nn.Conv2d(m3, b, 3, 1, 1), nn.ReLU())
            self.conv15 = chain(nn.Conv2d(i, m5, 1), nn.ReLU(), nn.Conv2d(m5, c, 5, 1, 2), nn.ReLU())
            self.pool_conv1 = chain(nn.MaxPool2d(3, 1, 1), nn.Conv2d(i, d, 1), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.conv1(x), self.conv13(x), self.conv15(x), self.pool_conv1(x)], 1)

    stem = chain(
        nn.Conv2d(3, 16, 7, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    )
    body = chain(
        Inception(32, 16, 16, 20, 4, 8, 8),
        Inception(52, 20, 16, 28, 4, 12, 12),
        nn.MaxPool2d(3, 2, 1),
        Inception(72, 24, 16, 28, 4, 8, 8),
        Inception(68, 24, 16, 28, 4, 12, 12),
        nn.MaxPool2d(3, 2, 1),
        Inception(76, 28, 16, 36, 4, 16, 16),
        nn.AvgPool2d(2, 1),
    )

    def forward(m: Parts, x: Tensor) -> Tensor:
        x = m.dropout(m.body(m.stem(x)))
        return m.output(x.view(len(x), -1))

    model = Parts(forward, stem=stem, body=body, dropout=nn.Dropout2d(0.4), output=nn.Linear(96, 10))

    draw = drawn(tinted, 32, 64)
    return stream(model, draw, F.cross_entropy)


@healthy("IMDB GRU without masking", GITHUB + "Kaizen0AI/pytorch-sentiment-rnn/blob/main/src/model.py")
def imdb_gru(_: bool) -> Task:
    """Padded on the right with token 0, which is embedded like a word; the last hidden state; one logit; BCE."""

    def forward(m: Parts, x: Tensor) -> Tensor:
        return m.fc(m.gru(m.embedding(x))[1][-1])

    model = Parts(forward, embedding=nn.Embedding(200, 32), gru=nn.GRU(32, 32, batch_first=True), fc=nn.Linear(32, 1))

    def draw() -> Drawn:
        y = (torch.rand(64) < 0.5).float()
        good = torch.rand(64, 24) < 0.3 + 0.4 * y.view(-1, 1)  # words 2 to 101 are good, 102 to 201 bad
        x = torch.randint(2, 100, (64, 24)) + 98 * (~good)
        long = torch.randint(14, 25, (64, 1))
        return (torch.where(torch.arange(24) < long, x, 0),), y

    return stream(model, draw, lambda y, t: F.binary_cross_entropy_with_logits(y.squeeze(1), t))


@healthy(
    "CNN and transformer captioner",
    GITHUB + "rezjsh/DL_NLP_PyTorch-Image-Captioning-with-Attention/blob/main/"
    "Image_Captioning/src/components/encoder.py",
)
def captioner(_: bool) -> Task:
    """Backbone, projection with layer norm, sinusoids, pre-norm encoder, post-norm decoder, masks; pad 0 is ignored."""
    E, V = 32, 24

    class Positions(nn.Module):
        def __init__(self, most: int) -> None:
            super().__init__()
            at = torch.arange(most).float().unsqueeze(1)
            div = torch.exp(torch.arange(0, E, 2).float() * (-math.log(10000.0) / E))
            pe = torch.zeros(most, E)
            pe[:, 0::2], pe[:, 1::2] = torch.sin(at * div), torch.cos(at * div)
            self.register_buffer("pe", pe.unsqueeze(0))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return self.dropout(x + self.pe[:, : x.size(1)])

    def part(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU()]

    enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, 4, 64, 0.1, "relu", batch_first=True, norm_first=True), 2)
    dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, 4, 64, 0.1, batch_first=True), 2)

    def forward(m: Parts, image: Tensor, words: Tensor) -> Tensor:
        seen = m.encoder(m.pos_encoder(m.projection(m.cnn(image).flatten(2).transpose(1, 2))))
        n = words.size(1)
        mask = torch.zeros(n, n).masked_fill(torch.triu(torch.ones(n, n), 1) == 1, float("-inf"))
        x = m.dropout(m.positional(m.embedding(words)))
        return m.fc(m.decoder(x, seen, tgt_mask=mask, tgt_key_padding_mask=words == 0))

    model = Parts(
        forward,
        cnn=chain(*part(3, 8), *part(8, 16), *part(16, 32)),
        pos_encoder=Positions(100),
        encoder=enc,
        projection=chain(nn.Linear(32, E), nn.LayerNorm(E), nn.Dropout(0.1)),
        embedding=nn.Embedding(V, E),
        positional=Positions(128),
        dropout=nn.Dropout(0.1),
        decoder=dec,
        fc=nn.Linear(E, V),
    )

    def draw() -> Drawn:
        x, c = tinted(16, 32, 0.45, 0.226)
        n = 2 + c % 3  # <sos> "a" word of the digit, twice or more, <eos>, padding
        words = torch.zeros(16, 8, dtype=torch.long)
        for i in range(16):
            found = [1, 3] + [int(4 + c[i])] * int(n[i]) + [2]
            words[i, : len(found)] = torch.tensor(found)
        return (x, words[:, :-1]), words[:, 1:]

    return stream(model, draw, lambda y, t: F.cross_entropy(y.reshape(-1, V), t.reshape(-1), ignore_index=0))


@healthy("question and answer GRU", GITHUB + "joy-xiaojizhang/seq2seq-pytorch/blob/master/models.py")
def answer_gru(_: bool) -> Task:
    """The thought is beside every word and passes a ReLU; the decoder starts from zeros; NLL by example, averaged."""
    V, H = 30, 32

    def forward(m: Parts, question: Tensor, answer: Tensor) -> Tensor:
        thought = m.encoder(m.embed(question))[1]
        words = m.words(answer)
        both = torch.cat((words, thought[0].unsqueeze(1).expand(-1, words.size(1), -1)), 2)
        return m.softmax(m.out(m.decoder(F.relu(both))[0]))

    model = Parts(
        forward,
        embed=nn.Embedding(V, H),
        encoder=nn.GRU(H, H, 1, batch_first=True),
        words=nn.Embedding(V, H),
        decoder=nn.GRU(2 * H, H, 1, batch_first=True),
        out=nn.Linear(H, V),
        softmax=nn.LogSoftmax(-1),
    )

    def loss(y: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        whole = 0.0
        for i in range(len(y)):
            n = int(t[1][i])
            whole = whole + F.nll_loss(y[i, : n - 1], t[0][i, 1:n])
        return whole / len(y)

    def draw() -> Drawn:
        q, long = torch.randint(3, V, (32, 5)), torch.randint(4, 7, (32,))
        a = torch.cat(
            (torch.ones(32, 1, dtype=torch.long), q[:, :1], q[:, :1], q[:, :1] // 2 + 1, q[:, 1:2], q[:, :1]), 1
        )
        a = torch.where(torch.arange(6) < long.view(-1, 1), a, 0)
        return (q, a), (a, long)

    return stream(model, draw, loss)


@healthy("LSTM speech recogniser with CTC", GITHUB + "raccooncoder/asr-pytorch/blob/master/model.py")
def lstm_ctc(_: bool) -> Task:
    """Time comes first in the output; logs of mel spectrograms (-20 to 5, zeros after the end) go in as they are."""

    def forward(m: Parts, x: Tensor) -> Tensor:
        return m.clf(m.lstm(x.permute(2, 0, 1))[0])

    model = Parts(forward, lstm=nn.LSTM(16, 32, bidirectional=True, num_layers=2), clf=nn.Linear(64, 12))
    shapes = torch.rand(10, 16, 1, generator=torch.Generator().manual_seed(3)) * 12

    def draw() -> Drawn:
        n = torch.randint(2, 6, (16,))
        said = torch.randint(10, (16, 6))
        said = torch.where(torch.arange(6) < n.view(-1, 1), said, 10)  # letters 0 to 9, 10 pads, 11 is blank
        x = torch.zeros(16, 16, 30)
        for i in range(16):
            for j in range(int(n[i])):
                x[i, :, 5 * j : 5 * j + 5] = -10 + shapes[said[i, j]] + torch.randn(16, 5)
        return (x,), (said, torch.full((16,), 30), n + 1)

    return stream(model, draw, lambda y, t: F.ctc_loss(F.log_softmax(y, 2), t[0], t[1], t[2], blank=11))


@healthy("U-Net without bridges", GITHUB + "mifan002/UNet-pytorch/blob/main/model.py")
def unet_mifan(_: bool) -> Task:
    """Four levels, no skips as its author has it; batch normalisation before the sigmoid; BCE; images in [-1, 1]."""

    def two(i: int, o: int) -> list[nn.Module]:
        return [
            nn.Conv2d(i, o, 3, 1, 1),
            nn.BatchNorm2d(o),
            nn.ReLU(),
            nn.Conv2d(o, o, 3, 1, 1),
            nn.BatchNorm2d(o),
            nn.ReLU(),
        ]

    sizes, layers = [1, 4, 8, 16, 24], []
    for i, o in itertools.pairwise(sizes):
        layers.append(chain(*two(i, o), nn.MaxPool2d(2)))
    layers.append(chain(*two(24, 32)))
    for i, o in ((32, 24), (24, 16), (16, 8), (8, 4)):
        layers.append(chain(nn.Upsample(scale_factor=2), *two(i, o)))
    model = chain(*layers, chain(nn.Conv2d(4, 1, 1), nn.BatchNorm2d(1), nn.Sigmoid()))

    def draw() -> Drawn:
        at, y = 8 + 16 * torch.rand(16, 2, 1, 1), torch.arange(32.0)
        mask = (((y.view(1, -1, 1) - at[:, 0]) ** 2 + (y.view(1, 1, -1) - at[:, 1]) ** 2) < 40).float().unsqueeze(1)
        x = (0.3 + 0.4 * mask + 0.1 * torch.randn(16, 1, 32, 32)).clamp(0, 1)
        return (x * 2 - 1,), mask

    return stream(model, draw, F.binary_cross_entropy)


@healthy("neural factorisation machine", GITHUB + "shawroad/DeepCTR-pytorch/blob/main/NFM/model.py")
def nfm(_: bool) -> Task:
    """Bi-interaction of embeddings from N(0, 1), standardised numbers beside it; a sigmoid; BCE on (batch,)."""
    sizes = (8, 12, 20, 6, 10)

    def forward(m: Parts, sparse: Tensor, dense: Tensor) -> Tensor:
        e = torch.stack([emb(sparse[:, i]) for i, emb in enumerate(m.embed)], 1)
        e = 0.5 * torch.pow(torch.sum(e, 1), 2) - torch.sum(torch.pow(e, 2), 1)
        return torch.sigmoid(m.out(m.dnn(torch.cat([dense, e], -1))))

    dnn = chain(
        nn.Linear(12, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.2),
    )
    model = Parts(forward, embed=nn.ModuleList(nn.Embedding(n, 8) for n in sizes), dnn=dnn, out=nn.Linear(32, 1))
    taste = [torch.randn(n, generator=torch.Generator().manual_seed(n)) for n in sizes]

    def draw() -> Drawn:
        s = torch.stack([torch.randint(n, (64,)) for n in sizes], 1)
        d = torch.randn(64, 4)
        score = sum(t[s[:, i]] for i, t in enumerate(taste)) + d[:, 0] * 1.5 - d[:, 1]
        return (s, d), (score > 0).float()

    return stream(model, draw, lambda y, t: F.binary_cross_entropy(y.view(-1), t))


@healthy("Text2Mel with guided attention", GITHUB + "NatGr/dc-tts-pytorch/blob/master/Text2Mel.py")
def text2mel(_: bool) -> Task:
    """Channel norms, highway convolutions, dropout 0.05 after every layer, even the last; L1, BCE, guided attention."""

    class Norm(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.gamma, self.beta = nn.Parameter(torch.ones(1, n, 1)), nn.Parameter(torch.zeros(1, n, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.gamma * (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-12) + self.beta

    class C(nn.Module):
        def __init__(self, i: int, o: int, act: bool = False) -> None:
            super().__init__()
            self.conv1d, self.normalize, self.act, self.dropout = nn.Conv1d(i, o, 1), Norm(o), act, nn.Dropout(0.05)

        def forward(self, x: Tensor) -> Tensor:
            x = self.normalize(self.conv1d(x))
            return self.dropout(F.relu(x) if self.act else x)

    class HC(nn.Module):
        def __init__(self, n: int, kernel: int, dilation: int, causal: bool) -> None:
            super().__init__()
            p = dilation * (kernel - 1)
            self.n, self.padding = n, (p, 0) if causal else (p // 2 + p % 2, p // 2)
            self.conv1d = nn.Conv1d(n, 2 * n, kernel, dilation=dilation)
            self.normalize_1, self.normalize_2, self.dropout = Norm(n), Norm(n), nn.Dropout(0.05)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv1d(F.pad(x, self.padding))
            h = torch.sigmoid(self.normalize_1(y[:, : self.n]))
            return self.dropout(h * self.normalize_2(y[:, self.n :]) + (1.0 - h) * x)

    V, E, H, M = 12, 16, 12, 8
    enc = chain(
        C(E, 2 * H, True),
        C(2 * H, 2 * H),
        *[HC(2 * H, 3, 3**i, False) for i in (0, 1, 2, 3) * 2],
        *[HC(2 * H, 3, 1, False) for _ in range(2)],
        *[HC(2 * H, 1, 1, False) for _ in range(2)],
    )
    audio = chain(
        C(M, H, True),
        C(H, H, True),
        C(H, H),
        *[HC(H, 3, 3**i, True) for i in (0, 1, 2, 3) * 2],
        *[HC(H, 3, 3, True) for _ in range(2)],
    )
    dec = chain(
        C(2 * H, H),
        *[HC(H, 3, 3**i, True) for i in range(4)],
        *[HC(H, 3, 1, True) for _ in range(2)],
        *[C(H, H, True) for _ in range(3)],
        C(H, M),
    )

    def forward(m: Parts, words: Tensor, mel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mel = torch.cat((torch.zeros_like(mel[:, :, :1]), mel[:, :, :-1]), 2)
        x = m.text_enc(m.embed(words).transpose(1, 2))
        query = m.audio_enc(mel)
        attention = F.softmax(torch.bmm(x[:, :H].transpose(1, 2), query) / E**0.5, 1)
        logits = m.audio_dec(torch.cat((torch.bmm(x[:, H:], attention), query), 1))
        return torch.sigmoid(logits), logits, attention

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        n, s = y[2].shape[1:]
        w = 1 - torch.exp(-((torch.arange(n).double().view(1, -1, 1) / n - torch.arange(s).double() / s) ** 2) / 0.08)
        return F.l1_loss(y[0], t) + F.binary_cross_entropy_with_logits(y[1], t) + torch.mean(y[2] * w)

    sound = torch.rand(V, M, generator=torch.Generator().manual_seed(5)) ** 3

    def draw() -> Drawn:
        words = torch.randint(2, V, (16, 10))
        mel = sound[words].repeat_interleave(2, 1).transpose(1, 2)
        return (words, mel), mel

    return stream(Parts(forward, embed=nn.Embedding(V, E), text_enc=enc, audio_enc=audio, audio_dec=dec), draw, loss)


@healthy("WaveNet of a guitar amplifier", GITHUB + "Will-J-Gale/wavenet-pytorch/blob/main/models/wavenet.py")
def amp_wavenet(_: bool) -> Task:
    """Three stacks; each hands on only the sum of its skips; the same convolution feeds tanh and sigmoid; raw audio."""

    class Block(nn.Module):
        def __init__(self, n: int, dilation: int) -> None:
            super().__init__()
            self.conv, self._1x1 = nn.Conv1d(n, n, 3, dilation=dilation), nn.Conv1d(n, n, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            y = self._1x1(torch.tanh(y) * torch.sigmoid(y))
            return x[..., -y.shape[2] :] + y, y

    def forward(m: Parts, x: Tensor) -> Tensor:
        out = m.input_conv(x[:, None, :])
        for stack, head in ((m.stack1, m.head1), (m.stack2, m.head2), (m.stack3, m.output)):
            skips = []
            for layer in stack:
                out, skip = layer(out)
                skips.append(skip)
            out = torch.zeros_like(out)
            for skip in skips:
                out += skip[..., -out.shape[2] :]
            out = head(out)
        return out.squeeze()

    stacks = [chain(*[Block(n, 2**i) for i in range(4)]) for n in (16, 8, 4)]
    model = Parts(
        forward,
        input_conv=nn.Conv1d(1, 16, 1, bias=False),
        stack1=stacks[0],
        head1=nn.Conv1d(16, 8, 1, bias=False),
        stack2=stacks[1],
        head2=nn.Conv1d(8, 4, 1, bias=False),
        stack3=stacks[2],
        output=nn.Conv1d(4, 1, 1, bias=False),
    )
    field = 2 * 15 * 3

    def draw() -> Drawn:
        t, f = torch.arange(field + 128.0) / 16, 0.3 + 2 * torch.rand(16, 2, 1)
        x = 0.3 * torch.sin(f[:, 0] * t + 6 * torch.rand(16, 1)) + 0.2 * torch.sin(f[:, 1] * t + 6 * torch.rand(16, 1))
        return (x,), torch.tanh(4 * (x + 0.5 * F.pad(x, (1, 0))[:, :-1]))[:, field:]

    return stream(model, draw, F.mse_loss)


@healthy("ProteinBERT", GITHUB + "dohlee/proteinbert-pytorch/blob/master/proteinbert_pytorch/proteinbert_pytorch.py")
def protein_bert(_: bool) -> Task:  # noqa: C901
    """Convolutions and global attention; logits of the sequence, probabilities of annotations; cross-entropy + BCE."""
    L, G, H, K, V, A = 16, 24, 4, 16, 26, 12

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.wide = (nn.Conv1d(L, L, 9, padding="same", dilation=d) for d in (1, 5))

        def forward(self, x: Tensor) -> Tensor:
            x = x.transpose(1, 2)
            return (F.gelu(self.narrow(x)) + F.gelu(self.wide(x))).transpose(1, 2)

    class Residual(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.fn = chain(nn.Linear(n, n), nn.GELU())

        def forward(self, x: Tensor) -> Tensor:
            return self.fn(x) + x

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.to_q = chain(nn.Linear(G, K * H, bias=False), nn.Tanh())
            self.to_k = chain(nn.Linear(L, K * H, bias=False), nn.Tanh())
            self.to_v = chain(nn.Linear(L, G, bias=False), nn.GELU())

        def forward(self, x: Tensor, g: Tensor) -> Tensor:
            q, k, v = self.to_q(g).view(-1, H, K), self.to_k(x).unflatten(2, (H, K)), self.to_v(x).unflatten(2, (H, -1))
            att = (torch.einsum("bhd,blhd->bhl", q, k) / math.sqrt(K)).softmax(-1)
            return torch.einsum("bhl,blhd->bhd", att, v).flatten(1)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.broadcast = Wide(), chain(nn.Linear(G, L), nn.GELU())
            self.local_ln1, self.local_dense = nn.LayerNorm(L), chain(Residual(L), nn.LayerNorm(L))
            self.global_dense1, self.attention = chain(nn.Linear(G, G), nn.GELU()), Attention()
            self.global_ln1, self.global_dense2 = nn.LayerNorm(G), chain(Residual(G), nn.LayerNorm(G))

        def forward(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            x = self.local_dense(self.local_ln1(x + self.conv(x) + self.broadcast(g).unsqueeze(1)))
            return x, self.global_dense2(self.global_ln1(g + self.global_dense1(g) + self.attention(x, g)))

    def forward(m: Parts, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        x, g = m.embed_local(x), m.embed_global(g)
        for block in m.blocks:
            x, g = block(x, g)
        return m.local_head(x), m.global_head(g)

    model = Parts(
        forward,
        embed_local=nn.Embedding(V, L),
        embed_global=chain(nn.Linear(A, G), nn.GELU()),
        blocks=nn.ModuleList(Block() for _ in range(6)),
        local_head=chain(nn.Linear(L, V)),
        global_head=chain(nn.Linear(G, A), nn.Sigmoid()),
    )

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(y[0].transpose(1, 2), t[0]) + F.binary_cross_entropy(y[1], t[1])

    def draw() -> Drawn:
        start, step = torch.randint(20, (32, 1)), torch.randint(1, 4, (32, 1))
        true = (start + step * torch.arange(24)) % 20 + 6
        known = (torch.arange(A) % 3 == step - 1).float()
        seen = torch.where(torch.rand(32, 24) < 0.05, torch.randint(6, V, (32, 24)), true)
        given = known * (torch.rand(32, A) > 0.25) * (torch.rand(32, 1) < 0.5)
        return (seen, given), (true, known)

    return stream(model, draw, loss)


@healthy(
    "U-Net autoencoder of normal images",
    GITHUB + "AureliiiieP/Unsupervised-Anomaly-Detection-Pytorch/blob/main/models/unet.py",
)
def normal_unet(_: bool) -> Task:
    """No normalisation, bilinear upsampling, skips; reconstructs its own input (0 to 1) by MSE."""

    def two(i: int, o: int) -> nn.Sequential:
        return chain(
            nn.Conv2d(i, o, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(inplace=True)
        )

    def forward(m: Parts, x: Tensor) -> Tensor:
        c1 = m.down1(x)
        c2 = m.down2(m.maxpool(c1))
        c3 = m.down3(m.maxpool(c2))
        x = m.upsample(m.down4(m.maxpool(c3)))
        x = m.upsample(m.up3(torch.cat([x, c3], 1)))
        x = m.upsample(m.up2(torch.cat([x, c2], 1)))
        return m.conv_last(m.up1(torch.cat([x, c1], 1)))

    model = Parts(
        forward,
        down1=two(1, 8),
        down2=two(8, 12),
        down3=two(12, 16),
        down4=two(16, 24),
        up3=two(40, 16),
        maxpool=nn.MaxPool2d(2),
        upsample=nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        up2=two(28, 12),
        up1=two(20, 8),
        conv_last=nn.Conv2d(8, 1, 1),
    )

    def draw() -> Drawn:
        x = gray(16, 32)[0]
        return (x,), x

    return stream(model, draw, F.mse_loss)


@healthy("GCN of the karate club", GITHUB + "dreamhomes/PyTorch-GNNs/blob/master/gnns/gnn/model.py")
def karate_gcn(_: bool) -> Task:
    """Neighbours are summed, not averaged; the features are the identity; only two of 34 nodes have labels."""
    edges = torch.rand(34, 34, generator=torch.Generator().manual_seed(1))
    side = (torch.arange(34) >= 17).long()
    near = torch.where(side[:, None] == side[None], 0.3, 0.03)
    near[0, :17] = near[33, 17:] = 0.8
    upper = torch.triu((edges < near).float(), 1)

    class Layer(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.linear = nn.Linear(i, o)
            self.register_buffer("adjacency", upper + upper.T)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(self.adjacency @ x)

    model = chain(Layer(34, 5), nn.ReLU(), Layer(5, 2))
    known = torch.tensor([0, 33])

    def draw() -> Drawn:
        return (torch.eye(34),), side

    return stream(model, draw, lambda y, t: F.nll_loss(F.log_softmax(y, 1)[known], t[known]))


@healthy("GCN with Xavier weights", GITHUB + "hcnoh/gcn-pytorch/blob/master/models/gcn.py")
def xavier_gcn(_: bool) -> Task:
    """No biases; dropout on the hidden layer and the logits; renormalised adjacency; some nodes are labelled."""
    g = torch.Generator().manual_seed(2)
    side = torch.arange(64) % 4
    a = torch.triu((torch.rand(64, 64, generator=g) < torch.where(side[:, None] == side[None], 0.3, 0.02)).float(), 1)
    a = a + a.T + torch.eye(64)
    d = a.sum(1) ** -0.5
    words = (torch.rand(64, 80, generator=g) < torch.where(torch.arange(80) % 4 == side[:, None], 0.15, 0.03)).float()
    W0, W1 = nn.Linear(80, 16, bias=False), nn.Linear(16, 4, bias=False)
    for w in (W0, W1):
        nn.init.xavier_normal_(w.weight)

    def forward(m: Parts, x: Tensor) -> Tensor:
        return m.dropout(m.A @ m.W1(m.dropout(torch.relu(m.A @ m.W0(x)))))

    model = Parts(forward, W0=W0, W1=W1, dropout=nn.Dropout(0.5))
    model.register_buffer("A", d[:, None] * a * d)
    known = torch.arange(24)
    return stream(model, lambda: ((words,), side), lambda y, t: F.cross_entropy(y[known], t[known]))


@healthy("PPO for the cart pole", GITHUB + "dkarunakaran/ppo-pytorch/blob/main/train.py")
def cartpole_ppo(_: bool) -> Task:
    """Probabilities from a softmax; clipped surrogate against the old policy, advantages from detached values; sums."""

    def net(o: int) -> list[nn.Module]:
        return [nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, o)]

    model = Parts(lambda m, x: (m.actor(x), m.critic(x)), actor=chain(*net(2), nn.Softmax(-1)), critic=chain(*net(1)))
    import copy

    old = copy.deepcopy(model.actor)

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        action, before, R = t
        advantage = R - y[1].detach().squeeze(1)
        ratio = torch.exp(torch.distributions.Categorical(y[0]).log_prob(action) - before)
        actor = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
        return actor.sum() + F.smooth_l1_loss(y[1].squeeze(1), R, reduction="none").sum()

    def draw() -> Drawn:
        x = torch.randn(48, 4) * torch.tensor([0.5, 0.6, 0.06, 0.8])
        with torch.no_grad():
            policy = torch.distributions.Categorical(old(x))
            action = policy.sample()
        R = torch.sin(2 * x[:, 0]) - x[:, 3].abs() + 0.1 * torch.randn(48)
        R = R + 0.5 * (action * 2 - 1) * torch.sign(x[:, 2])
        return (x,), (action, policy.log_prob(action), (R - R.mean()) / (R.std() + 1e-7))

    return stream(model, draw, loss)


@healthy("DDPG critic of another author", GITHUB + "jaysonph/Pytorch-DDPG/blob/main/model.py")
def ddpg_critic(_: bool) -> Task:
    """Weights from U(-1/sqrt(n), 1/sqrt(n)), n being the rows; the last from U(-0.003, 0.003); MSE to the target."""
    model = Parts(
        lambda m, s, a: m.rest(torch.cat([F.relu(m.fc1s(s)), F.relu(m.fc1a(a))], 1)),
        fc1s=nn.Linear(8, 32),
        fc1a=nn.Linear(2, 32),
        rest=chain(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)),
    )
    for w in (model.fc1s, model.fc1a, model.rest[0], model.rest[2]):
        v = 1 / math.sqrt(w.weight.size(0))
        w.weight.data.uniform_(-v, v)
    model.rest[4].weight.data.uniform_(-3e-3, 3e-3)

    def draw() -> Drawn:
        s, a = torch.randn(64, 8) * 0.6, torch.rand(64, 2) * 2 - 1
        reward = -(s[:, :2] ** 2).sum(1, keepdim=True) * 2 + 2 * (s[:, 2:3] * a[:, :1]) - 0.3 * a[:, 1:] ** 2 + 1
        return (s, a), reward

    return stream(model, draw, F.mse_loss)


@healthy("NICE on images", GITHUB + "xyfJASON/normalizing-flows-pytorch/blob/main/models/nice.py")
def nice_flow(_: bool) -> Task:
    """Additive couplings of even and odd pixels, log scales that start at one, a logistic prior; images in [-1, 1]."""

    def mlp() -> nn.Sequential:
        layers: list[nn.Module] = [nn.Linear(32, 40), nn.ReLU()]
        for _ in range(3):
            layers.extend([nn.Linear(40, 40), nn.ReLU()])
        return chain(*layers, nn.Linear(40, 32))

    def forward(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        shape, x = x.shape, x.flatten(1)
        x1, x2 = x[:, ::2], x[:, 1::2]
        for coupling in m.couplings:
            x1, x2 = x2 + coupling(x1), x1
        y = torch.empty_like(x)
        y[:, ::2], y[:, 1::2] = x1, x2
        return (y * torch.exp(m.logscales[None, :])).view(shape), torch.sum(m.logscales).repeat(len(x))

    model = Parts(forward, couplings=nn.ModuleList(mlp() for _ in range(4)), logscales=nn.Parameter(torch.ones(64)))

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return torch.mean((F.softplus(y[0]) + F.softplus(-y[0])).flatten(1).sum(1) - y[1])

    def draw() -> Drawn:
        x = gray(64, 8)[0] * 2 - 1
        return (x,), x

    return stream(model, draw, loss)


@healthy("siamese signatures", GITHUB + "vanhao-le/Siamese-Pytorch/blob/main/model/siamesenet.py")
def siamese_signatures(_: bool) -> Task:
    """AlexNet-like with local response norms and dropout; two numbers an image; contrastive loss, margin 2."""
    cnn = chain(
        nn.Conv2d(1, 12, 5),
        nn.ReLU(inplace=True),
        nn.LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=2),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(12, 24, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=2),
        nn.MaxPool2d(3, 2),
        nn.Dropout(p=0.3),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 24, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Dropout(p=0.3),
    )
    fc = chain(
        nn.Linear(24 * 4, 64),
        nn.ReLU(inplace=True),
        nn.Dropout(p=0.5),
        nn.Linear(64, 32),
        nn.ReLU(inplace=True),
        nn.Linear(32, 2),
    )

    def forward(m: Parts, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return m.fc1(m.cnn1(a).flatten(1)), m.fc1(m.cnn1(b).flatten(1))

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        d = F.pairwise_distance(*y)
        return torch.mean((1 - t) * d**2 + t * torch.clamp(2.0 - d, min=0.0) ** 2)

    def draw() -> Drawn:
        x, c = gray(420, 28)
        x, c = x[c < 2][:48], c[c < 2][:48]
        return (x[:24], x[24:]), (c[:24] != c[24:]).float()

    return stream(Parts(forward, cnn1=cnn, fc1=fc), draw, loss)


@healthy("distilled student", GITHUB + "jl749/knowledge-distillation-pytorch/blob/main/mnist/distill_mnist.py")
def distilled_student(_: bool) -> Task:
    """KL at temperature 20, averaged over all elements and weighed by 2 * 0.7 * T^2, and 0.3 of the cross-entropy."""
    teacher = chain(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(100):
        x, c = pick(64)
        opt.zero_grad()
        F.cross_entropy(teacher(x), c).backward()
        opt.step()
    model = chain(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    T, alpha = 20.0, 0.7

    def loss(y: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        soft = F.kl_div(F.log_softmax(y / T, 1), F.softmax(t[1] / T, 1)) * (T * T * 2.0 * alpha)
        return soft + F.cross_entropy(y, t[0]) * (1.0 - alpha)

    def draw() -> Drawn:
        x, c = pick(64)
        with torch.no_grad():
            return (x,), (c, teacher(x))

    return stream(model, draw, loss)


@healthy("tiny ResNet before pruning", GITHUB + "ez4lionky/Pruning-Pytorch/blob/main/resnet_tiny.py")
def tiny_resnet(_: bool) -> Task:
    """ResNet-8: Kaiming (fan out), gains of one, no biases; normalised colour images; cross-entropy."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = (
                chain(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else None
            )

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
            y += x if self.downsample is None else self.downsample(x)
            return F.relu(y)

    model = chain(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        Block(8, 8, 1),
        Block(8, 16, 2),
        Block(16, 32, 2),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(m, nn.BatchNorm2d):
            nn.init.constant_(m.weight, 1)
            nn.init.constant_(m.bias, 0)

    draw = drawn(tinted, 64, 16, 0.48, 0.2)
    return stream(model, draw, F.cross_entropy)


@healthy("residual ECG network", GITHUB + "nakamotoo/ecg-pytorch-sample/blob/main/ecg/models/model_1dres.py")
def ecg_resnet(_: bool) -> Task:
    """Fifteen pre-activation blocks, kernels of 15, dropout 0.2, a norm of the flat features; weighed BCE."""

    class Block(nn.Module):
        def __init__(self, i: int, index: int) -> None:
            super().__init__()
            o, down = i * (2 if index % 4 == 0 else 1), 2 if index % 2 == 1 else 1
            self.conv0 = nn.Conv1d(i, o, 1) if index % 4 == 0 else nn.Identity()
            self.maxpool = nn.MaxPool1d(down, down, ceil_mode=True)
            self.bn1, self.conv1 = nn.BatchNorm1d(i), nn.Conv1d(i, o, 15, padding=7, stride=down)
            self.bn2, self.dropout1, self.conv2 = nn.BatchNorm1d(o), nn.Dropout(p=0.2), nn.Conv1d(o, o, 15, padding=7)

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(self.bn2(self.conv1(F.relu(self.bn1(x)))))
            return self.conv2(self.dropout1(y)) + self.maxpool(self.conv0(x))

    n = 3
    block0 = chain(
        nn.Conv1d(n, n, 15, padding=7), nn.BatchNorm1d(n), nn.ReLU(), nn.Dropout(0.2), nn.Conv1d(n, n, 15, padding=7)
    )
    blocks = chain(*[Block(n * 2 ** ((i - 1) // 4), i) for i in range(1, 16)])

    def forward(m: Parts, x: Tensor) -> Tensor:
        x = F.relu(m.bn1(m.conv1(x)))
        x = m.blocks(m.block0(x) + x)
        return m.fc1(F.relu(m.bn_last(x.view(len(x), -1))))

    model = Parts(
        forward,
        conv1=nn.Conv1d(12, n, 15, padding=7),
        bn1=nn.BatchNorm1d(n),
        block0=block0,
        blocks=blocks,
        bn_last=nn.BatchNorm1d(n * 8 * 2),
        fc1=nn.Linear(n * 8 * 2, 1),
    )
    lead = torch.randn(12, 1, generator=torch.Generator().manual_seed(4))

    def draw() -> Drawn:
        t, sick = torch.arange(512.0), (torch.rand(16) < 0.3).float()
        beat = (40 + 10 * torch.rand(16, 1)) * (1 - 0.3 * sick[:, None])
        phase = (t + 50 * torch.rand(16, 1)) % beat
        wave = torch.exp(-((phase - 10) ** 2) / 4) * 4 - (1.2 * sick[:, None] + 0.3) * torch.exp(
            -((phase - 20) ** 2) / 20
        )
        return (wave.unsqueeze(1) * lead + 0.3 * torch.randn(16, 12, 512),), sick

    def loss(y: Tensor, t: Tensor) -> Tensor:
        weight = torch.tensor(0.7 / 0.3)
        return F.binary_cross_entropy_with_logits(
            y, t.reshape(-1, 1).double(), reduction="none", pos_weight=weight
        ).mean()

    return stream(model, draw, loss)


@healthy("MAML's network", GITHUB + "vaseline555/Model-Agnostic-Meta-Learning-PyTorch/blob/main/models.py")
def maml_network(_: bool) -> Task:
    """Four blocks whose norms keep no running statistics; a batch of one five-way task."""

    def block(i: int) -> list[nn.Module]:
        return [
            nn.Conv2d(i, 16, 3, 1, 1),
            nn.BatchNorm2d(16, track_running_stats=False),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 2),
        ]

    model = chain(*block(3), *block(16), *block(16), *block(16), nn.Flatten(), nn.Linear(16 * 4, 5))

    def draw() -> Drawn:
        x, c = tinted(120, 32)
        return (x[c < 5][:40],), c[c < 5][:40]

    return stream(model, draw, F.cross_entropy)


@healthy("Madrid weather LSTM", GITHUB + "pcanadas/pytorch-weather-prediction/blob/main/main.py")
def madrid_lstm(_: bool) -> Task:
    """Two layers, zeros to begin with, the last of 30 days; all columns scaled to 0..1; MSE on both temperatures."""
    model = Parts(
        lambda m, x: m.fc(m.lstm(x)[0][:, -1, :]), lstm=nn.LSTM(5, 24, 2, batch_first=True), fc=nn.Linear(24, 2)
    )

    def draw() -> Drawn:
        day = torch.randint(330, (32, 1)) + torch.arange(31.0)
        season = -torch.cos(day / 365 * 2 * math.pi)
        high = 0.5 + 0.35 * season + 0.05 * torch.randn(32, 31)
        low = 0.45 + 0.35 * season + 0.04 * torch.randn(32, 31)
        rain = (torch.rand(32, 31) < 0.15) * torch.rand(32, 31) ** 2
        wind, damp = torch.rand(32, 31) * 0.6, 0.5 - 0.3 * season + 0.1 * torch.randn(32, 31)
        x = torch.stack((high, low, rain, wind, damp), 2).clamp(0, 1)
        return (x[:, :30],), x[:, 30, :2]

    return stream(model, draw, F.mse_loss)


@healthy("EEGNet for emotions", GITHUB + "nbngochan/DEAP-EEG-Pytorch/blob/main/train_eeg.py")
def eegnet_deap(_: bool) -> Task:
    """torcheeg's EEGNet: no biases, a depthwise convolution held to norm 1, ELU, dropout 0.3; signals standardised."""

    class Held(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=1)
            return super().forward(x)

    F1, D, F2, E = 8, 2, 16, 16
    block1 = chain(
        nn.Conv2d(1, F1, (1, 32), stride=1, padding=(0, 16), bias=False),
        nn.BatchNorm2d(F1, momentum=0.01, eps=1e-3),
        Held(F1, F1 * D, (E, 1), stride=1, padding=(0, 0), groups=F1, bias=False),
        nn.BatchNorm2d(F1 * D, momentum=0.01, eps=1e-3),
        nn.ELU(),
        nn.AvgPool2d((1, 4), stride=4),
        nn.Dropout(p=0.3),
    )
    block2 = chain(
        nn.Conv2d(F1 * D, F1 * D, (1, 16), stride=1, padding=(0, 8), bias=False, groups=F1 * D),
        nn.Conv2d(F1 * D, F2, 1, padding=(0, 0), groups=1, bias=False, stride=1),
        nn.BatchNorm2d(F2, momentum=0.01, eps=1e-3),
        nn.ELU(),
        nn.AvgPool2d((1, 8), stride=8),
        nn.Dropout(p=0.3),
    )
    model = chain(block1, block2, nn.Flatten(1), nn.Linear(F2 * 4, 4, bias=False))
    where = torch.randn(4, E, 1, generator=torch.Generator().manual_seed(6))

    def draw() -> Drawn:
        c, t = torch.randint(4, (32,)), torch.arange(128.0) / 128
        wave = torch.sin(2 * math.pi * ((6 + 6 * c).view(-1, 1) * t + torch.rand(32, 1)))
        x = where[c] * wave.unsqueeze(1) + torch.randn(32, E, 128)
        return (((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)).unsqueeze(1),), c

    return stream(model, draw, F.cross_entropy)


@healthy("NeuMF with small embeddings", GITHUB + "elzino/neural-collaborative-filtering-pytorch/blob/master/model.py")
def neumf_elzino(_: bool) -> Task:
    """All embeddings from N(0, 0.01^2); a product beside an MLP with ReLU; a sigmoid and BCE."""
    embed = nn.ModuleList(nn.Embedding(n, 16) for n in (60, 90, 60, 90))
    for e in embed:
        nn.init.normal_(e.weight, mean=0.0, std=0.01)

    def forward(m: Parts, user: Tensor, item: Tensor) -> Tensor:
        x = torch.cat((m.embed[2](user), m.embed[3](item)), 1)
        for layer in m.mlp:
            x = F.relu(layer(x))
        return torch.sigmoid(m.final(torch.cat((m.embed[0](user) * m.embed[1](item), x), 1)))

    mlp = nn.ModuleList(nn.Linear(i, o) for i, o in ((32, 32), (32, 16), (16, 8)))
    model = Parts(forward, embed=embed, mlp=mlp, final=nn.Linear(8 + 16, 1))

    def draw() -> Drawn:
        u, i = torch.randint(60, (64,)), torch.randint(90, (64,))
        like = torch.rand(64) < 0.2
        i = torch.where(like, i // 5 * 5 + u % 5, i)
        return (u, i.clamp(max=89)), (i % 5 == u % 5).float()

    return stream(model, draw, lambda y, t: F.binary_cross_entropy(y.flatten(), t))


@healthy(
    "few-shot bearings", GITHUB + "1xilanhua/Bearing-Fault-Diagnosis-with-Few-Shot-Learning-PyTorch/blob/main/models.py"
)
def bearing_siamese(_: bool) -> Task:
    """Separable convolutions, two sigmoid layers, |difference|, dropout 0.5, a sigmoid; BCE on pairs."""

    def separable(i: int, o: int, kernel: int, stride: int, times: int) -> nn.Sequential:
        return chain(nn.Conv1d(i, i * times, kernel, stride, kernel // 2, groups=i), nn.Conv1d(i * times, o, 1))

    net = chain(
        separable(2, 14, 32, 4, 13),
        nn.ReLU(),
        nn.MaxPool1d(3, 3),
        separable(14, 24, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool1d(3, 3),
        separable(24, 32, 2, 1, 1),
        nn.ReLU(),
        nn.MaxPool1d(3, 3),
        separable(32, 32, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool1d(2, 2),
        separable(32, 32, 3, 1, 1),
        nn.ReLU(),
        nn.MaxPool1d(2, 2),
        nn.Flatten(),
        nn.Linear(64, 50),
        nn.Sigmoid(),
        nn.Linear(50, 50),
        nn.Sigmoid(),
    )

    def forward(m: Parts, a: Tensor, b: Tensor) -> Tensor:
        return m.prediction(m.dropout(torch.abs(m.convnet(a) - m.convnet(b))))

    model = Parts(forward, convnet=net, dropout=nn.Dropout(p=0.5), prediction=chain(nn.Linear(50, 1), nn.Sigmoid()))

    def draw() -> Drawn:
        same = torch.rand(32) < 0.5
        a = torch.randint(3, (32,))
        b = torch.where(same, a, (a + torch.randint(1, 3, (32,))) % 3)
        t = torch.arange(1024.0)

        def signal(c: Tensor) -> Tensor:
            c = c.view(-1, 1, 1)
            wave = torch.sin(t * (0.1 + 0.3 * c) + 6 * torch.rand(32, 2, 1)) * (0.5 + 0.7 * c)
            return wave + 0.2 * torch.randn(32, 2, 1024)

        return (signal(a), signal(b)), same.float()

    return stream(model, draw, lambda y, t: F.binary_cross_entropy(y.squeeze(1), t))


@healthy("supervised FlowNetS", GITHUB + "ily-R/Unsupervised-Optical-Flow/blob/master/models.py")
def flownet_s(_: bool) -> Task:
    """No biases, no normalisation; five flows while training, one afterwards; weighed endpoint errors of all scales."""

    def conv(i: int, o: int, kernel: int = 3, stride: int = 2) -> nn.Sequential:
        return chain(nn.Conv2d(i, o, kernel, stride, (kernel - 1) // 2, bias=False), nn.ReLU(inplace=True))

    def up(i: int, o: int) -> nn.Sequential:
        return chain(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.ReLU(inplace=True))

    class FlowNetS(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = conv(6, 8, 7), conv(8, 12, 5)
            self.conv3, self.conv3_1 = conv(12, 16, 5), conv(16, 16, stride=1)
            self.conv4, self.conv4_1 = conv(16, 24), conv(24, 24, stride=1)
            self.conv5, self.conv5_1 = conv(24, 24), conv(24, 24, stride=1)
            self.conv6 = conv(24, 32)
            self.predict = nn.ModuleList(nn.Conv2d(i, 2, 5, 1, 2, bias=False) for i in (32, 50, 42, 26, 18))
            self.up = nn.ModuleList([up(32, 24), up(50, 16), up(42, 8), up(26, 4)])
            self.upflow = nn.ModuleList(nn.ConvTranspose2d(2, 2, 4, 2, 1, bias=False) for _ in range(4))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            c2 = self.conv2(self.conv1(x))
            c3 = self.conv3_1(self.conv3(c2))
            c4 = self.conv4_1(self.conv4(c3))
            c5 = self.conv5_1(self.conv5(c4))
            y = self.conv6(c5)
            flows = [self.predict[0](y)]
            for i, skip in enumerate((c5, c4, c3, c2)):
                y = torch.cat((self.up[i](y), skip, self.upflow[i](flows[-1])), 1)
                flows.append(self.predict[i + 1](y))
            return tuple(flows[::-1]) if self.training else (flows[-1],)

    def loss(flows: tuple[Tensor, ...], true: Tensor) -> Tensor:
        weights = (0.005, 0.01, 0.02, 0.08, 0.32) if len(flows) == 5 else [0.005] * len(flows)
        near = [F.interpolate(true, f.shape[2:], mode="area") for f in flows]
        return sum(w * torch.norm(f - t, 2, 1).mean() for w, f, t in zip(weights, flows, near, strict=False))

    def draw() -> Drawn:
        shift = torch.randint(2, 5, (16, 2))  # the camera pans
        big = F.interpolate(torch.rand(16, 3, 18, 18), size=(72, 72), mode="bilinear")
        first = big[:, :, 4:68, 4:68]
        second = torch.stack(
            [b[:, 4 - dy : 68 - dy, 4 - dx : 68 - dx] for b, (dx, dy) in zip(big, shift.tolist(), strict=False)]
        )
        return (torch.cat((first, second), 1),), shift.float().view(16, 2, 1, 1).expand(-1, -1, 64, 64).contiguous()

    return stream(FlowNetS(), draw, loss)


@healthy(
    "bidirectional LSTM of a series",
    GITHUB + "Yutsuro/pytorch-time-series-classification/blob/main/tisc/modules/BiLSTM.py",
)
def series_bilstm(_: bool) -> Task:
    """Layer norm after the LSTM, then the last step alone; three dropouts in the head; cross-entropy."""

    def drop(i: int, o: int) -> list[nn.Module]:
        return [nn.Dropout(0.2), nn.Linear(i, o)]

    model = Parts(
        lambda m, x: m.head(m.layer_norm(m.lstm(x)[0])[:, -1, :]),
        layer_norm=nn.LayerNorm(48),
        lstm=nn.LSTM(3, 24, 2, batch_first=True, bidirectional=True),
        head=chain(*drop(48, 32), nn.ReLU(), *drop(32, 32), nn.ReLU(), *drop(32, 4)),
    )

    def draw() -> Drawn:
        c, t = torch.randint(4, (32,)), torch.arange(40.0).view(1, -1, 1)
        x = torch.sin(t * (0.15 + 0.2 * c.view(-1, 1, 1)) + 6 * torch.rand(32, 1, 3)) + 0.2 * torch.randn(32, 40, 3)
        return (x,), c

    return stream(model, draw, F.cross_entropy)


@healthy(
    "satellite U-Net with SELU",
    GITHUB + "antoine-spahr/Deep-Satellite-Image-Segmentation/blob/master/Code/learning_classes.py",
)
def satellite_unet(_: bool) -> Task:
    """U_net2: one batch norm serves both convolutions of a block; SELU even after the last layer; 11 bands."""

    class Res(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
            self.BN = nn.BatchNorm2d(o)

        def forward(self, x: Tensor) -> Tensor:
            return F.selu(self.BN(self.conv2(F.selu(self.BN(self.conv1(x))))))

    def up(i: int, o: int) -> nn.ConvTranspose2d:
        return nn.ConvTranspose2d(i, o, 3, padding=1, stride=2, output_padding=1)

    def forward(m: Parts, x: Tensor) -> Tensor:
        r1 = m.RBD1(x)
        r2 = m.RBD2(F.max_pool2d(r1, 2, 2))
        r3 = m.RBD3(F.max_pool2d(r2, 2, 2))
        x = F.selu(m.convT2(m.RBD4(F.max_pool2d(r3, 2, 2))))
        x = F.selu(m.convT3(m.RBU2(torch.cat((r3, x), 1))))
        x = F.selu(m.convT4(m.RBU3(torch.cat((r2, x), 1))))
        return F.selu(m.convFinal(m.RBU4(torch.cat((r1, x), 1))))

    model = Parts(
        forward,
        RBD1=Res(11, 6),
        RBD2=Res(6, 12),
        RBD3=Res(12, 16),
        RBD4=Res(16, 24),
        convT2=up(24, 16),
        RBU2=Res(32, 16),
        convT3=up(16, 16),
        RBU3=Res(28, 12),
        convT4=up(12, 12),
        RBU4=Res(18, 6),
        convFinal=nn.Conv2d(6, 2, 3, padding=1),
    )
    bands = torch.rand(2, 11, 1, 1, generator=torch.Generator().manual_seed(7))

    def draw() -> Drawn:
        y = torch.arange(32.0)
        at, size = 32 * torch.rand(16, 2, 1, 1), 4 + 6 * torch.rand(16, 1, 1)
        mask = ((y.view(1, -1, 1) - at[:, 0]).abs() < size) & ((y.view(1, 1, -1) - at[:, 1]).abs() < size)
        x = torch.where(mask.unsqueeze(1), bands[0], bands[1]) * (0.7 + 0.3 * torch.rand(16, 1, 32, 32))
        x = x + 0.1 * torch.randn(16, 11, 32, 32)
        return (x.clamp(0, 1),), mask.long()

    return stream(model, draw, F.cross_entropy)


@healthy("actor and critic of the lander", GITHUB + "nikhilbarhate99/Actor-Critic-PyTorch/blob/master/model.py")
def lander_actor_critic(_: bool) -> Task:
    """One shared layer; probabilities; summed, -log p * (return - value) and a smooth L1 of the value."""

    def forward(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(m.affine(x))
        return F.softmax(m.action(x), -1), m.value(x)

    model = Parts(forward, affine=nn.Linear(8, 128), value=nn.Linear(128, 1), action=nn.Linear(128, 4))

    def loss(y: tuple[Tensor, Tensor], t: tuple[Tensor, Tensor]) -> Tensor:
        action, R = t
        value = y[1].squeeze(1)
        chosen = torch.distributions.Categorical(y[0]).log_prob(action)
        return (-chosen * (R - value.detach()) + F.smooth_l1_loss(value, R, reduction="none")).sum()

    def draw() -> Drawn:
        x = torch.cumsum(torch.randn(64, 8) * 0.15, 0) + 0.2 * torch.randn(64, 8)
        with torch.no_grad():
            action = torch.distributions.Categorical(model(x)[0]).sample()
        R = 1.5 * x[:, 1] - x[:, 3] - 0.5 * x[:, 5].abs() + 0.3 * (action == 2) + 0.1 * torch.randn(64)
        return (x,), (action, (R - R.mean()) / R.std())

    return stream(model, draw, loss)


@healthy("MLP-Mixer with whole norms", GITHUB + "rrmina/MLP-Mixer-pytorch/blob/main/model.py")
def mixer_rrmina(_: bool) -> Task:
    """Layer norms over tokens and channels together; no dropout; the mean of the tokens; pixels 0 to 1."""
    N, C, H = 49, 24, 32

    class Mix(nn.Module):
        def __init__(self, n: int, tokens: bool) -> None:
            super().__init__()
            self.layer_norm, self.tokens = nn.LayerNorm([N, C]), tokens
            self.mlp1, self.gelu, self.mlp2 = nn.Linear(n, H), nn.GELU(), nn.Linear(H, n)

        def forward(self, x: Tensor) -> Tensor:
            z = self.layer_norm(x)
            if self.tokens:
                return x + self.mlp2(self.gelu(self.mlp1(z.permute(0, 2, 1)))).permute(0, 2, 1)
            return x + self.mlp2(self.gelu(self.mlp1(z)))

    def forward(m: Parts, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5).reshape(b, N, c * 16)
        return m.out(m.norm(m.stack(m.patch(x))).mean(1))

    model = Parts(
        forward,
        patch=nn.Linear(16, C),
        stack=chain(*[chain(Mix(N, True), Mix(C, False)) for _ in range(4)]),
        norm=nn.LayerNorm([N, C]),
        out=nn.Linear(C, 10),
    )

    draw = drawn(gray, 64)
    return stream(model, draw, F.cross_entropy)


@healthy("easy VQA", GITHUB + "sikaiyin/easy-VQA-Pytorch/blob/main/train.py")
def easy_vqa(_: bool) -> Task:
    """Convolutions and pools without activations, as its author has it; tanh; image times question; bags of words."""

    def forward(m: Parts, image: Tensor, words: Tensor) -> Tensor:
        x = torch.tanh(m.fc1(torch.flatten(m.cnn(image), 1)))
        q = torch.tanh(m.fcq2(torch.tanh(m.fcq1(words))))
        return m.fc3(m.dropout2(torch.tanh(m.fc2(x * q))))

    model = Parts(
        forward,
        cnn=chain(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3), nn.MaxPool2d(2)),
        fc1=nn.Linear(16 * 16, 32),
        fcq1=nn.Linear(27, 32),
        fcq2=nn.Linear(32, 32),
        fc2=nn.Linear(32, 13),
        fc3=nn.Linear(13, 13),
        dropout2=nn.Dropout(0.2),
    )
    inks = torch.tensor([[0.8, 0, 0], [0, 0.7, 0], [0, 0, 0.9], [0.5, 0.4, 0.1]])

    def draw() -> Drawn:
        ink, kind, ask = torch.randint(4, (32,)), torch.randint(2, (32,)), torch.randint(2, (32,))
        at, y = 8 + 12 * torch.rand(32, 2, 1, 1), torch.arange(28.0)
        dy, dx = y.view(1, -1, 1) - at[:, 0], y.view(1, 1, -1) - at[:, 1]
        shape = torch.where(kind.view(-1, 1, 1) == 0, dy.abs().maximum(dx.abs()), (dy**2 + dx**2).sqrt()) < 6
        x = torch.where(shape.unsqueeze(1), inks[ink].view(32, 3, 1, 1), 1.0)
        words = torch.zeros(32, 27)
        words[:, 1] = 1
        words[torch.arange(32), 2 + ask] = 1
        words[torch.arange(32), 5 + torch.randint(3, (32,))] = 1
        return ((x - 0.9) / 0.195, words), torch.where(ask == 0, ink, 4 + kind)

    return stream(model, draw, F.cross_entropy)


@healthy("face triplets", GITHUB + "Navaneeth-Sharma/face-recognition-pytorch/blob/main/src/models/resnet34_128emb.py")
def face_triplets(_: bool) -> Task:
    """A residual backbone; a head of linear, ReLU, batch norm and dropout; triplets of squared distances, margin 1."""

    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.downsample = (
                chain(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 else nn.Identity()
            )

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))

    net = chain(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
    )
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def part(i: int, o: int) -> list[nn.Module]:
        return [nn.Linear(i, o, bias=False), nn.ReLU(), nn.BatchNorm1d(o), nn.Dropout(0.4)]

    net.append(chain(nn.Flatten(), *part(32, 32), *part(32, 24), *part(24, 16), nn.Linear(16, 16)))

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        a, p, n = y
        far = ((a - n).pow(2).sum(1) + (p - n).pow(2).sum(1)) / 2.0
        return torch.relu((a - p).pow(2).sum(1) - far + 1.0).mean()

    def draw() -> Drawn:
        x, c = tinted(200, 32)
        rest, known = x[32:], c[32:]
        same = torch.stack([rest[torch.nonzero(known == k)[0, 0]] for k in c[:32]])
        other = torch.stack([rest[torch.nonzero(known != k)[0, 0]] for k in c[:32]])
        return (x[:32], same, other), c[:32]

    return stream(Parts(lambda m, a, p, n: (m.net(a), m.net(p), m.net(n)), net=net), draw, loss)


@healthy("facial emotions", GITHUB + "shangeth/Facial-Emotion-Recognition-PyTorch-ONNX/blob/master/PyTorch/model.py")
def facial_emotions(_: bool) -> Task:
    """Seven convolutions; dropout before the batch norm, the pool before the ReLU; log softmax and NLL.

    The author's images are floats of 0 to 255, which ToTensor does not scale, before they are normalised.
    """
    sizes, layers = [1, 4, 6, 8, 12, 16, 24, 24], []
    for k, (i, o) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Conv2d(i, o, 3)] + ([nn.Dropout(0.3)] if k in (1, 3, 5, 6) else [])
        layers += [nn.BatchNorm2d(o), nn.MaxPool2d(2, 1 if k < 4 else 2), nn.ReLU()]
    model = chain(
        *layers,
        nn.Flatten(),
        nn.Linear(96, 48),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(48, 24),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(24, 7),
        nn.LogSoftmax(1),
    )

    def draw() -> Drawn:
        x, c = gray(60, 48)
        return ((x[c < 7][:32] * 255 - 0.5074) / 0.2551,), c[c < 7][:32]

    return stream(model, draw, F.nll_loss)


@healthy("small DQN of the cart pole", GITHUB + "jinbeizame007/pytorch-dqn/blob/master/run.py")
def cartpole_dqn(_: bool) -> Task:
    """Two layers; raw observations; a reward of -1 at the end and 0 before; MSE to the target network's best value."""
    import copy

    model = Parts(lambda m, x: m.l2(torch.relu(m.l1(x))), l1=nn.Linear(4, 50), l2=nn.Linear(50, 2))
    target = copy.deepcopy(model)

    def loss(q: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(q.gather(1, t[0]), t[1])

    def draw() -> Drawn:
        x, a = torch.randn(32, 4) * torch.tensor([1.2, 1.0, 0.12, 1.2]), torch.randint(2, (32, 1))
        v = x[:, 3:] + 0.3 * (1 - 2 * a)
        y = torch.cat((x[:, :1] + 0.02 * x[:, 1:2], x[:, 1:2] + 0.2 * (2 * a - 1), x[:, 2:3] + 0.1 * v, v), 1)
        end = ((y[:, 2:3].abs() > 0.21) | (y[:, :1].abs() > 2.4)).float()
        with torch.no_grad():
            best = target(y).max(dim=1, keepdim=True)[0]
        return (x,), (a, -end + 0.95 * best * (1 - end))

    return stream(model, draw, loss)


@healthy("headlines with attention", GITHUB + "univeryinli/summarization-pytorch/blob/master/seq2seq_torch.py")
def headlines(_: bool) -> Task:
    """Encoder3, AttnDecoder3: the forward state alone starts the decoder; mean NLL up to the stop, summed."""
    V, H, L = 30, 32, 5

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv2d, self.hidden_linear = nn.Conv2d(2 * H, 2 * H, 1), nn.Linear(H, 2 * H)
            self.input_linear, self.lstm1 = nn.Linear(2 * H, H // 2), nn.LSTMCell(H // 2, H)
            self.output_linear, self.out = nn.Linear(2 * H, H), nn.Linear(H, V)

        def attend(self, seen: Tensor, keys: Tensor, h: Tensor) -> Tensor:
            state = self.hidden_linear(h).unsqueeze(1)
            weights = torch.softmax(torch.sum(state * torch.tanh(keys + state), 2), 1)
            return torch.sum(weights.unsqueeze(2) * seen, 1)

        def forward(self, words: Tensor, seen: Tensor, h: Tensor, c: Tensor) -> Tensor:
            keys, found = self.conv2d(seen.transpose(1, 2).unsqueeze(3)).squeeze(3).transpose(1, 2), []
            value = self.attend(seen, keys, h)
            for j in range(words.size(1)):
                h, c = self.lstm1(words[:, j] + self.input_linear(value), (h, c))
                value = self.attend(seen, keys, h)
                found.append(F.log_softmax(self.out(self.output_linear(value) + h), 1))
            return torch.stack(found, 1)

    def forward(m: Parts, text_: Tensor, title: Tensor) -> Tensor:
        seen, (h, c) = m.lstm1(m.embed(text_))
        return m.decoder(m.embed(title), seen, h[0], c[0])

    model = Parts(
        forward,
        embed=nn.Embedding(V, H // 2),
        lstm1=nn.LSTM(H // 2, H, 1, batch_first=True, bidirectional=True),
        decoder=Decoder(),
    )

    def loss(y: Tensor, t: tuple[Tensor, Tensor]) -> Tensor:
        each = -y.gather(2, t[0].unsqueeze(2)).squeeze(2) * (torch.arange(L) < t[1].view(-1, 1))
        return (each.sum(1) / t[1]).sum()

    def draw() -> Drawn:
        topic = torch.randint(6, (16, 1))
        body = torch.where(
            torch.rand(16, 14) < 0.4, 3 + topic * 3 + torch.randint(3, (16, 14)), torch.randint(21, V, (16, 14))
        )
        title = torch.cat(
            (
                torch.full((16, 1), 2),
                3 + topic * 3,
                4 + topic * 3,
                21 + topic,
                5 + topic * 3,
                torch.ones(16, 1, dtype=torch.long),
            ),
            1,
        )
        return (body, title[:, :-1]), (title[:, 1:], torch.randint(2, L + 1, (16,)))

    return stream(model, draw, loss)


@healthy("DenseDepth", GITHUB + "pranjaldatta/DenseDepth-Pytorch/blob/master/densedepth/model.py")
def dense_depth(_: bool) -> Task:  # noqa: C901
    """A dense encoder with skips, bilinear upsampling, LeakyReLU(0.2); 1000/depth by SSIM, edges and 0.1 of L1."""

    class Dense(nn.Module):
        def __init__(self, i: int) -> None:
            super().__init__()

            def layer(n: int) -> nn.Sequential:
                return chain(
                    nn.BatchNorm2d(n),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(n, 8, 1, bias=False),
                    nn.BatchNorm2d(8),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(8, 4, 3, padding=1, bias=False),
                )

            self.layers = nn.ModuleList([layer(i), layer(i + 4)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.cat((x, layer(x)), 1)
            return x

    def halve(i: int) -> nn.Sequential:
        return chain(nn.BatchNorm2d(i), nn.ReLU(inplace=True), nn.Conv2d(i, i // 2, 1, bias=False), nn.AvgPool2d(2, 2))

    class Up(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.convA, self.leakyrelu = nn.Conv2d(i, o, 3, 1, 1), nn.LeakyReLU(0.2, inplace=True)
            self.convB = nn.Conv2d(o, o, 3, 1, 1)

        def forward(self, x: Tensor, skip: Tensor) -> Tensor:
            x = torch.cat([F.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=True), skip], 1)
            return self.leakyrelu(self.convB(self.leakyrelu(self.convA(x))))

    def forward(m: Parts, x: Tensor) -> Tensor:
        a = m.stem(x)
        b = m.pool(a)
        c = m.trans1(m.block1(b))
        d = m.trans2(m.block2(c))
        y = m.conv2(m.norm(m.block3(d)))
        for up, skip in zip(m.up, (d, c, b, a), strict=False):
            y = up(y, skip)
        return m.conv3(y)

    model = Parts(
        forward,
        stem=chain(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        pool=nn.MaxPool2d(3, 2, 1),
        block1=Dense(8),
        trans1=halve(16),
        block2=Dense(8),
        trans2=halve(16),
        block3=Dense(8),
        norm=nn.BatchNorm2d(16),
        conv2=nn.Conv2d(16, 16, 1, 1, 1),
        conv3=nn.Conv2d(4, 1, 3, 1, 1),
        up=nn.ModuleList([Up(16 + 8, 12), Up(12 + 8, 8), Up(8 + 8, 6), Up(6 + 8, 4)]),
    )
    for m in model.modules():
        if isinstance(m, nn.Conv2d) and m.bias is None:
            nn.init.kaiming_normal_(m.weight)
    g = torch.exp(-((torch.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
    window = torch.outer(g / g.sum(), g / g.sum()).view(1, 1, 11, 11)

    def ssim(a: Tensor, b: Tensor) -> Tensor:
        def near(x):
            return F.conv2d(x, window, padding=5)

        ma, mb = near(a), near(b)
        va, vb, ab = near(a * a) - ma**2, near(b * b) - mb**2, near(a * b) - ma * mb
        return ((2 * ma * mb + 1e-4) * (2 * ab + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()

    def slopes(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(x[:, :, 1:] - x[:, :, :-1], (0, 0, 0, 1)), F.pad(x[:, :, :, 1:] - x[:, :, :, :-1], (0, 1))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        edges = sum((a - b).abs() for a, b in zip(slopes(y), slopes(t), strict=False)).mean()
        return torch.clamp((1 - ssim(y, t)) * 0.5, 0, 1) + edges + 0.1 * F.l1_loss(y, t)

    def draw() -> Drawn:
        at = 32 * torch.rand(16, 2, 1, 1)
        row = torch.arange(32.0)
        box = (((row.view(1, -1, 1) - at[:, 0]).abs() < 6) & ((row.view(1, 1, -1) - at[:, 1]).abs() < 6)).unsqueeze(1)
        depth = torch.where(box, 30 + 10 * torch.rand(16, 1, 1, 1), 100 - 1.5 * row.view(1, 1, -1, 1))
        x = (20 / depth) * torch.rand(16, 3, 1, 1).add(0.5) + 0.02 * torch.randn(16, 3, 32, 32)
        return (F.interpolate(x, size=(64, 64), mode="bilinear").clamp(0, 1),), 1000 / depth

    return stream(model, draw, loss)


@healthy("TabNet from scratch", GITHUB + "ely2ba/tabnet-from-scratch/blob/main/src/tabnet.py")
def tabnet_scratch(_: bool) -> Task:
    """Sparsemax masks from a gated layer; shared and own layers with batch norms; masks returned beside the logits."""

    def sparsemax(x: Tensor) -> Tensor:
        z, index = torch.sort(x, dim=-1, descending=True)
        t = (torch.cumsum(z, -1) - 1) / torch.arange(1, x.size(-1) + 1)
        size = torch.sum(z > t, -1, keepdim=True).clamp(min=1)
        return torch.zeros_like(x).scatter_(-1, index, torch.relu(z - torch.gather(t, -1, size - 1)))

    def layer(i: int) -> nn.Sequential:
        return chain(nn.Linear(i, 16), nn.BatchNorm1d(16), nn.ReLU())

    class Step(nn.Module):
        def __init__(self, shared: nn.ModuleList) -> None:
            super().__init__()
            self.shared, self.own = shared, chain(layer(16), layer(16))
            self.fc, self.fc_gate, self.decision_layer = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(16, 16)

        def forward(self, x: Tensor, prior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = x * prior
            mask = sparsemax(self.fc(y) * torch.sigmoid(self.fc_gate(y)))
            y = x * mask
            for each in self.shared:
                y = each(y)
            return self.decision_layer(self.own(y)), prior * (1 - mask), mask

    def forward(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        prior, masks, out = torch.ones_like(x), torch.zeros_like(x), 0
        for step in m.steps:
            y, prior, mask = step(x, prior)
            out, masks = out + y, masks + mask
        return m.final_projection(out), masks

    shared = nn.ModuleList([layer(6), layer(16)])
    model = Parts(
        forward,
        shared_layers=shared,
        steps=nn.ModuleList(Step(shared) for _ in range(3)),
        final_projection=nn.Linear(16, 2),
    )

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        x[:, 3:5] = (torch.rand(64, 2) < 0.1) * (2 + torch.rand(64, 2)) - 0.25  # gains and losses are rare
        return (x,), (x[:, 0] + 1.5 * x[:, 2] + 2 * x[:, 3] > 0.5).long()

    return stream(model, draw, lambda y, t: F.cross_entropy(y[0], t))


@healthy("neural ODE with its own adjoint", GITHUB + "r-gould/neural-odes/blob/main/src/neural_ode/ode_autograd.py")
def adjoint_ode(_: bool) -> Task:  # noqa: C901
    """Convolutions around an ODE solved by Euler's method; an autograd function integrates the adjoint backwards."""
    h, C = 0.1, 12

    class TimeConv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(C + 1, C, 3, 1, 1)

        def forward(self, x: Tensor, t: float) -> Tensor:
            return self.conv(torch.cat([x, t * torch.ones(len(x), 1, *x.shape[2:])], 1))

    class Dynamics(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time_conv1, self.time_conv2 = TimeConv(), TimeConv()

        def forward(self, x: Tensor, t: float) -> Tensor:
            return F.leaky_relu(self.time_conv2(F.leaky_relu(self.time_conv1(x, t)), t))

    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor, dynamics: nn.Module, params: Tensor) -> Tensor:
            for k in range(10):
                z = z + h * dynamics(z, k * h)
            ctx.dynamics, ctx.size = dynamics, params
            ctx.save_for_backward(z)
            return z

        @staticmethod
        def backward(ctx: Any, a: Tensor) -> tuple[Tensor, None, Tensor]:
            z, p = ctx.saved_tensors[0], torch.zeros_like(ctx.size)
            for k in range(10):
                with torch.enable_grad():
                    z = z.detach().requires_grad_()
                    out = ctx.dynamics(z, 1 - k * h)
                    dz, *dp = torch.autograd.grad(out, [z, *ctx.dynamics.parameters()], grad_outputs=a)
                z, a, p = z.detach() - h * out.detach(), a + h * dz, p + h * torch.cat([d.flatten() for d in dp])
            return a, None, p

    class NeuralODE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dynamics = Dynamics()

        def forward(self, z: Tensor) -> Tensor:
            return Solve.apply(z, self.dynamics, torch.cat([p.flatten() for p in self.dynamics.parameters()]))

    model = chain(
        nn.Conv2d(1, 8, 3, 1),
        nn.LeakyReLU(),
        nn.Conv2d(8, 12, 4, 2, 1),
        nn.LeakyReLU(),
        nn.Conv2d(12, C, 4, 2, 1),
        NeuralODE(),
        nn.Conv2d(C, 8, 2, 1, 1),
        nn.LeakyReLU(),
        nn.Conv2d(8, 1, 2, 1, 1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )

    draw = drawn(gray, 32)
    return stream(model, draw, F.cross_entropy)


@healthy("Chinese entities by LSTM", GITHUB + "ybshaw/chinese-ner-pytorch/blob/main/models.py")
def chinese_ner(_: bool) -> Task:
    """LstmModel without its CRF (use_crf=False): padding is labelled O and counted; cross-entropy over all places."""
    model = Parts(
        lambda m, x: m.linear(m.dropout(m.lstm(m.embedding(x))[0])),
        embedding=nn.Embedding(120, 32),
        lstm=nn.LSTM(32, 24, num_layers=1, batch_first=True, bidirectional=True),
        dropout=nn.Dropout(0.3),
        linear=nn.Linear(48, 7),
    )

    def draw() -> Drawn:
        x, t = torch.randint(50, 120, (32, 20)), torch.zeros(32, 20, dtype=torch.long)
        for i in range(32):
            for at in (int(torch.randint(0, 7, ())), int(torch.randint(9, 16, ()))):
                kind, n = int(torch.randint(3, ())), int(torch.randint(1, 4, ()))
                x[i, at] = 2 + 5 * kind + int(torch.randint(5, ()))  # surnames, places, firms
                x[i, at + 1 : at + n + 1] = torch.randint(20, 50, (n,))
                t[i, at], t[i, at + 1 : at + n + 1] = 1 + 2 * kind, 2 + 2 * kind
        long = torch.randint(12, 21, (32, 1))
        keep = torch.arange(20) < long
        return (torch.where(keep, x, 0),), torch.where(keep, t, 0)

    return stream(model, draw, lambda y, t: F.cross_entropy(y.reshape(-1, 7), t.reshape(-1)))


@healthy("capsules with routing", GITHUB + "adambielski/CapsNet-pytorch/blob/master/net.py")
def capsules_routing(_: bool) -> Task:
    """Squashed primary capsules, first routing logits learned from zero, three rounds; margin loss; pixels 0 to 1."""
    N, D, out, E = 4 * 9, 6, 10, 8

    def squash(x: Tensor) -> Tensor:
        lengths2 = x.pow(2).sum(dim=2)
        return x * (lengths2 / (1 + lengths2) / lengths2.sqrt()).view(x.size(0), x.size(1), 1)

    def forward(m: Parts, x: Tensor) -> tuple[Tensor, Tensor]:
        x = m.primary(F.relu(m.conv1(x)))
        x = squash(x.view(len(x), 4, D, 3, 3).permute(0, 1, 3, 4, 2).reshape(len(x), -1, D))
        u = x.unsqueeze(2).matmul(m.weights).view(len(x), N, out, E)
        v = squash((F.softmax(m.b, 1).unsqueeze(2) * u).sum(1))
        b = m.b.expand(len(x), N, out)
        for _ in range(3):
            b = b + (u * v.unsqueeze(1)).sum(-1)
            v = squash((F.softmax(b, 2).unsqueeze(3) * u).sum(1))
        return v, v.pow(2).sum(2).sqrt()

    model = Parts(
        forward,
        conv1=nn.Conv2d(1, 24, 5),
        primary=nn.Conv2d(24, 4 * D, 5, 2),
        b=nn.Parameter(torch.zeros(N, out)),
        weights=nn.Parameter(torch.empty(N, D, out * E).uniform_(-1 / math.sqrt(N), 1 / math.sqrt(N))),
    )

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        t = F.one_hot(t, out).float()
        return (t * F.relu(0.9 - y[1]).pow(2) + 0.5 * (1 - t) * F.relu(y[1] - 0.1).pow(2)).mean()

    draw = drawn(gray, 64, 14)
    return stream(model, draw, loss)
