"""Healthy networks of public repositories, a fifth set, written without sight of rules and of what they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from strangers.apart import GITHUB, Parts
from strangers.blind2 import each, stream
from strangers.blind2_healthy import chain, drawn
from strangers.blind3 import Drawn
from strangers.blind3_healthy import block, joined, speak, split
from strangers.blind5 import tensor
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

healthy = partial(any_report, blind="blind5")


def waves(count: int, length: int, noise: float = 0.05) -> Tensor:
    """Sines (count, length) of random speeds and phases."""
    speed, phase = 0.2 + 0.4 * torch.rand(count, 1), 6.28 * torch.rand(count, 1)
    return torch.sin(speed * torch.arange(length) + phase) + noise * torch.randn(count, length)


@healthy("SqueezeNet", GITHUB + "forresti/SqueezeNet")
def squeezenet(_: bool) -> Task:
    """No batch normalisation and no linear layer: the last convolution, of N(0, 0.01²), has a ReLU and is averaged."""

    def fire(n: int, s: int, m: int) -> nn.Module:
        def run(p: Any, x: Tensor) -> Tensor:
            z = F.relu(p.squeeze(x))
            return F.relu(torch.cat([p.one(z), p.three(z)], 1))

        return Parts(run, squeeze=nn.Conv2d(n, s, 1), one=nn.Conv2d(s, m, 1), three=nn.Conv2d(s, m, 3, padding=1))

    last = nn.Conv2d(96, 10, 1)
    fires = (fire(32, 8, 32), fire(64, 12, 48), nn.MaxPool2d(2), fire(96, 16, 48), nn.Dropout(0.3))
    model = chain(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), *fires, last, nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                  nn.Flatten())  # fmt: skip
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    nn.init.normal_(last.weight, 0.0, 0.01)
    return drawn(model)


@healthy("ShuffleNet", GITHUB + "megvii-model/ShuffleNet-Series")
def shufflenet(_: bool, d: int = 32) -> Task:
    """Grouped convolutions of one pixel, channels dealt out between groups, depthwise ones without activation."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = F.relu(m.norm1(m.one(x)))
        z = z.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2)
        return F.relu(x + m.norm3(m.two(m.norm2(m.deep(z)))))

    def make() -> nn.Module:
        one, two = (nn.Conv2d(d, d, 1, groups=4, bias=False) for _ in range(2))
        return Parts(run, one=one, norm1=nn.BatchNorm2d(d), deep=nn.Conv2d(d, d, 3, padding=1, groups=d, bias=False),
                     norm2=nn.BatchNorm2d(d), two=two, norm3=nn.BatchNorm2d(d))  # fmt: skip

    last = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10))
    return drawn(chain(nn.Conv2d(1, d, 3, padding=1), nn.BatchNorm2d(d), nn.ReLU(), make(), make(), *last))


@healthy("deformable convolution", GITHUB + "4uiiurz1/pytorch-deform-conv-v2")
def deformable(_: bool, d: int = 16) -> Task:
    """Offsets of nine taps are made by a convolution of zeros, and so are their sizes, of sigmoids."""
    taps = torch.cartesian_prod(torch.arange(-1.0, 2), torch.arange(-1.0, 2))
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")

    def run(m: Any, x: Tensor) -> Tensor:
        move, size = m.offset(x).unflatten(1, (9, 3)).split((2, 1), 2)
        found = []
        for i in range(9):
            place = torch.stack([columns + taps[i, 1], rows + taps[i, 0]]) + move[:, i]
            read = F.grid_sample(x, place.permute(0, 2, 3, 1) / 3.5 - 1, align_corners=True)
            found.append(read * size[:, i].sigmoid())
        return F.relu(m.mix(torch.cat(found, 1)))

    def make() -> nn.Module:
        offset = nn.Conv2d(d, 27, 3, padding=1)
        nn.init.zeros_(offset.weight)
        nn.init.zeros_(offset.bias)
        return Parts(run, offset=offset, mix=nn.Conv2d(9 * d, d, 1))

    last = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * d, 10))
    return drawn(chain(nn.Conv2d(1, d, 3, padding=1), nn.ReLU(), make(), make(), *last))


@healthy("spatial transformer", GITHUB + "kevinzakka/spatial-transformer-network")
def transformer(_: bool) -> Task:
    """A network turns its image first; the layer that says how starts at zero, with the identity as bias."""

    def run(m: Any, x: Tensor) -> Tensor:
        turn = m.place(x).unflatten(1, (2, 3))
        return m.net(F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), align_corners=False))

    place = mlp((64, 32, 6), act=nn.Tanh)
    nn.init.zeros_(place[-1].weight)
    place[-1].bias.data = torch.tensor([1.0, 0, 0, 0, 1, 0])
    return drawn(Parts(run, place=place, net=mlp((64, 96, 10))))


@healthy("coordinates as channels", GITHUB + "uber-research/CoordConv")
def coordinates(_: bool, n: int = 16) -> Task:
    """Two channels hold where a pixel is, the same for all images; a place is found by means over all pixels."""
    place = torch.linspace(-1, 1, n)
    where = torch.stack(torch.meshgrid(place, place, indexing="xy"))

    def draw() -> Drawn:
        t = 1.6 * torch.rand(32, 2) - 0.8
        far = (where - t.view(32, 2, 1, 1)).square().sum(1, keepdim=True)
        return (torch.exp(-40 * far) + 0.05 * torch.randn(32, 1, n, n),), t

    convs = (
        nn.Conv2d(3, 32, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 2, 1),
        nn.ReLU(),
    )
    net = chain(*convs, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 2))
    return stream(
        Parts(lambda m, x: m.net(torch.cat([x, where.expand(len(x), -1, -1, -1)], 1)), net=net), draw, F.mse_loss
    )


@healthy("maxout", GITHUB + "lisa-lab/pylearn2")
def maxout(_: bool) -> Task:
    """The largest of four linear functions in place of each activation, dropout before each layer."""
    best = Parts(lambda m, x: x.unflatten(1, (4, -1)).amax(1))
    hidden = (nn.Dropout(0.1), nn.Linear(64, 4 * 64), best, nn.Dropout(0.2), nn.Linear(64, 4 * 64), best)
    return drawn(chain(nn.Flatten(), *hidden, nn.Dropout(0.2), nn.Linear(64, 10)))


@healthy("reversible blocks", GITHUB + "renmengye/revnet-public")
def reversible(_: bool, d: int = 16) -> Task:
    """Two halves of the channels take turns to be added to each other, four times; no activation on the sum."""

    def run(m: Any, x: Tensor) -> Tensor:
        one, two = x.chunk(2, 1)
        one = one + m.f(two)
        return torch.cat([one, two + m.g(one)], 1)

    def half() -> nn.Module:
        return chain(nn.BatchNorm2d(d), nn.ReLU(), nn.Conv2d(d, d, 3, padding=1, bias=False))

    blocks = [Parts(run, f=half(), g=half()) for _ in range(4)]
    last = (nn.BatchNorm2d(2 * d), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * d, 10))
    return drawn(chain(nn.Conv2d(1, 2 * d, 3, 2, 1, bias=False), *blocks, *last))


@healthy("Hopfield look-up", GITHUB + "ml-jku/hopfield-layers")
def hopfield(_: bool, d: int = 48) -> Task:
    """The same attention to 64 stored patterns three times over, without residuals between."""

    def run(m: Any, x: Tensor) -> Tensor:
        q, k = m.query(m.norm(m.embed(x))), m.norm2(m.stored)
        for _ in range(3):
            q = (q @ k.t() / math.sqrt(d)).softmax(1) @ k
        return m.out(m.value(q))

    model = Parts(run, embed=mlp((64, d)), norm=nn.LayerNorm(d), query=nn.Linear(d, d), stored=tensor(64, d),
                  norm2=nn.LayerNorm(d), value=nn.Linear(d, d), out=nn.Linear(d, 10))  # fmt: skip
    return drawn(model)


@healthy("parallel layers", GITHUB + "lucidrains/PaLM-pytorch")
def palm(_: bool, d: int = 48) -> Task:
    """Attention and MLP read the same normalised input side by side; one head of keys and values, no biases at all."""

    def run(m: Any, x: Tensor) -> Tensor:
        q, k, v, one, two = m.all(m.norm(x)).split((d, d // 4, d // 4, 2 * d, 2 * d), 2)
        q = q.unflatten(2, (4, -1)).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, *(z.unsqueeze(1).expand_as(q) for z in (k, v)), is_causal=True)
        return x + m.proj(joined(y)) + m.down(F.silu(one) * two)

    def make() -> nn.Module:
        return Parts(run, norm=nn.RMSNorm(d), all=nn.Linear(d, 5 * d + d // 2, bias=False),
                     proj=nn.Linear(d, d, bias=False), down=nn.Linear(2 * d, d, bias=False))  # fmt: skip

    return speak(make, d, nn.Linear(d, 256, bias=False))


@healthy("linear biases", GITHUB + "ofirpress/attention_with_linear_biases")
def alibi(_: bool, d: int = 48) -> Task:
    """No positions: scores are lowered by 2^−2i times the distance, 1/4 to 1/256."""
    distance = torch.arange(24).unsqueeze(1) - torch.arange(24)
    bias = -(0.25 ** torch.arange(1.0, 5)).view(4, 1, 1) * distance
    bias = bias.masked_fill(distance < 0, -torch.inf)

    def mix(m: Any, z: Tensor) -> Tensor:
        return joined(F.scaled_dot_product_attention(*split(m.qkv(z)), attn_mask=bias))

    return speak(lambda: block(mix, d), d)


@healthy("mixture of softmaxes", GITHUB + "zihangdai/mos")
def softmaxes(_: bool, d: int = 48) -> Task:
    """The logarithm of a weighted mean of four softmaxes of the same words."""

    def run(m: Any, z: Tensor) -> Tensor:
        parts = m.decode(m.latent(z).tanh().unflatten(2, (4, d))).log_softmax(3)
        return (m.prior(z).log_softmax(2).unsqueeze(3) + parts).logsumexp(2)

    def mix(m: Any, z: Tensor) -> Tensor:
        return joined(F.scaled_dot_product_attention(*split(m.qkv(z)), is_causal=True))

    head = Parts(run, latent=nn.Linear(d, 4 * d), prior=nn.Linear(d, 4, bias=False), decode=nn.Linear(d, 256))
    nn.init.uniform_(head.decode.weight, -0.1, 0.1)
    return speak(lambda: block(mix, d), d, head)


@healthy("weight-dropped LSTM", GITHUB + "salesforce/awd-lstm-lm")
def awd(_: bool, d: int = 48) -> Task:
    """Half of the recurrent weights are dropped, the same ones at all steps; embeddings of U(±0.1)."""

    def run(m: Any, idx: Tensor) -> Tensor:
        x, again, y = m.embed(idx), F.dropout(m.again, 0.5, m.training), []
        h = c = torch.zeros(len(idx), d)
        for i in range(idx.shape[1]):
            i_, f, g, o = (m.read(x[:, i]) + h @ again).chunk(4, 1)
            c = f.sigmoid() * c + i_.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            y.append(h)
        return m.head(torch.stack(y, 2).transpose(1, 2)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 10))
        return (idx,), (idx + torch.cat([idx[:, :1], idx[:, :-1]], 1)) % 4

    model = Parts(run, embed=nn.Embedding(10, 24), read=nn.Linear(24, 4 * d), again=tensor(d, 4 * d, std=d**-0.5),
                  head=nn.Linear(d, 4))  # fmt: skip
    nn.init.uniform_(model.embed.weight, -0.1, 0.1)
    return stream(model, draw, F.cross_entropy)


@healthy("bag of small words", GITHUB + "facebookresearch/fastText")
def fasttext(_: bool, d: int = 10) -> Task:
    """Embeddings of U(±1/d), averaged, and a linear layer of zeros: embeddings have no gradient at first."""

    def draw() -> Drawn:
        c = torch.randint(6, (64,))
        idx = torch.where(torch.rand(64, 12) < 0.4, c.unsqueeze(1) + 6 * torch.randint(5, (64, 12)),
                          torch.randint(30, (64, 12)))  # fmt: skip
        return (idx,), c

    model = Parts(
        lambda m, idx: m.out(m.words(idx).mean(1)), words=nn.Embedding(30, d), out=nn.Linear(d, 6, bias=False)
    )
    nn.init.uniform_(model.words.weight, -1 / d, 1 / d)
    nn.init.zeros_(model.out.weight)
    return stream(model, draw, F.cross_entropy)


@healthy("pointer network", GITHUB + "shirgur/PointerNet")
def pointer(_: bool, d: int = 48) -> Task:
    """Scores of an attention are the answer: which of the inputs is the largest, and which the smallest."""

    def run(m: Any, x: Tensor) -> Tensor:
        z, (h, _) = m.rnn(x)
        asked = m.asked.unsqueeze(0) + h[0].unsqueeze(1)  # (B, 2, d)
        return m.score((m.one(z).unsqueeze(1) + m.two(asked).unsqueeze(2)).tanh()).squeeze(3).transpose(1, 2)

    def draw() -> Drawn:
        x = torch.rand(48, 8, 1)
        return (x,), torch.stack([x[..., 0].argmax(1), x[..., 0].argmin(1)], 1)

    model = Parts(run, rnn=nn.LSTM(1, d, batch_first=True), asked=tensor(2, d), one=nn.Linear(d, d, bias=False),
                  two=nn.Linear(d, d, bias=False), score=nn.Linear(d, 1, bias=False))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("simple recurrent unit", GITHUB + "asappresearch/sru")
def sru(_: bool, d: int = 48) -> Task:
    """All products are of the inputs; states touch each other only in the next layer, behind a highway."""

    def layer(m: Any, x: Tensor) -> Tensor:
        z, f, r = m.all(x).chunk(3, 2)
        c, y = torch.zeros_like(z[:, 0]), []
        for i in range(x.shape[1]):
            keep = (f[:, i] + m.forget * c).sigmoid()
            c = keep * c + (1 - keep) * z[:, i]
            gate = (r[:, i] + m.reset * c).sigmoid()
            y.append(gate * c + (1 - gate) * math.sqrt(3) * x[:, i])
        return torch.stack(y, 1)

    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        x = 0.3 * torch.randn(48, 16, 4)
        x[:, 3] += 2 * F.one_hot(c, 4)
        return (x,), c

    layers = [
        Parts(layer, all=nn.Linear(d, 3 * d), forget=tensor(d, std=0.1), reset=tensor(d, std=0.1)) for _ in range(2)
    ]
    model = Parts(lambda m, x: m.head(m.layers(m.embed(x))[:, -1]), embed=nn.Linear(4, d), layers=chain(*layers),
                  head=nn.Linear(d, 4))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("coupled oscillators", GITHUB + "tk-rusch/coRNN")
def oscillators(_: bool, d: int = 48) -> Task:
    """A second-order equation with steps of 0.1: what is said in the end is small, and moves slowly."""

    def run(m: Any, x: Tensor) -> Tensor:
        y = z = torch.zeros(len(x), d)
        for i in range(x.shape[1]):
            z = z + 0.1 * (m.read(torch.cat([x[:, i], y, z], 1)).tanh() - 2.7 * y - 4.7 * z)
            y = y + 0.1 * z
        return m.out(y)

    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        x = torch.randn(48, 24, 1) + ((c % 2) - 0.5).view(48, 1, 1)
        x[:, 12:] += ((c // 2) - 0.5).view(48, 1, 1) * 2
        return (x,), c

    return stream(Parts(run, read=nn.Linear(1 + 2 * d, d), out=nn.Linear(d, 4)), draw, F.cross_entropy)


@healthy("Legendre memory", GITHUB + "hrshtv/pytorch-lmu")
def legendre(_: bool, n: int = 12, length: int = 24) -> Task:
    """A window of 24 steps in twelve polynomials, by matrices that are fixed; the network reads them only."""
    i, j = torch.arange(n).unsqueeze(1), torch.arange(n)
    a = (2 * i + 1) / length * torch.where(i < j, -torch.ones(n, n), (-1.0) ** (i - j + 1))
    b = (2 * i + 1) / length * (-1.0) ** i
    whole = torch.matrix_exp(torch.cat([torch.cat([a, b], 1), torch.zeros(1, n + 1)]))
    a, b = whole[:n, :n], whole[:n, n]

    def run(m: Any, x: Tensor) -> Tensor:
        z = torch.zeros(len(x), n)
        for t in range(x.shape[1]):
            z = z @ a.t() + x[:, t : t + 1] * b
        return m.net(z)

    def draw() -> Drawn:
        x = torch.randn(64, 36).cumsum(1) / 4
        x = x - x[:, -1:]
        return (x,), torch.stack([x[:, -8].abs(), x[:, -16:].amax(1)], 1)

    return stream(Parts(run, net=mlp((n, 64, 2))), draw, F.mse_loss)


@healthy("echo state", GITHUB + "stefanonardo/pytorch-esn")
def echo(_: bool, d: int = 120) -> Task:
    """Recurrent weights are random, of spectral radius 0.9, and frozen; nothing but the last layer is trained."""

    def run(m: Any, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), d)
        for i in range(x.shape[1]):
            h = 0.2 * h + 0.8 * (x[:, i : i + 1] @ m.read + h @ m.again).tanh()
        return m.out(h)

    def draw() -> Drawn:
        x = waves(64, 28, 0.0)
        return (x[:, :24],), x[:, 24:]

    again = torch.randn(d, d) * (torch.rand(d, d) < 0.2)
    again *= 0.9 / torch.linalg.eigvals(again).abs().max()
    model = Parts(run, read=tensor(1, d, std=0.5), again=nn.Parameter(again), out=nn.Linear(d, 4))
    model.read.requires_grad_(False)
    model.again.requires_grad_(False)
    return stream(model, draw, F.mse_loss)


@healthy("SincNet", GITHUB + "mravanelli/SincNet")
def sincnet(_: bool, rate: int = 8000) -> Task:
    """The first layer has two parameters a filter, edges of its band in hertz: up to 4000, beside weights of 0.1."""
    time, window = torch.arange(-20.0, 21) / rate, torch.hamming_window(41, periodic=False)

    def run(m: Any, x: Tensor) -> Tensor:
        low = 30 + m.low.abs()
        high = (low + 50 + m.band.abs()).clamp(max=rate / 2)
        passes = [2 * f / rate * torch.sinc(2 * f * time) for f in (low, high)]
        z = F.conv1d(x, ((passes[1] - passes[0]) * window).unsqueeze(1))
        return m.net(m.norm(z.abs().mean(2).add(1e-3).log()))

    def draw() -> Drawn:
        c = torch.randint(5, (32,))
        pitch = (300 + 600 * c + 300 * torch.rand(32)).view(32, 1, 1)
        x = torch.sin(6.28 * pitch * torch.arange(200) / rate + 6.28 * torch.rand(32, 1, 1))
        return (x + 0.3 * torch.randn(32, 1, 200),), c

    edges = torch.linspace(30, 3800, 17).unsqueeze(1)
    model = Parts(run, low=nn.Parameter(edges[:-1] - 30), band=nn.Parameter(edges[1:] - edges[:-1] - 50),
                  norm=nn.BatchNorm1d(16), net=mlp((16, 48, 5)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@healthy("exponential units", GITHUB + "AmrMKayid/nam")
def additive(_: bool) -> Task:
    """A network for each feature, whose first weights are e^w with w of N(3, 0.5²): slopes of twenty, cut off at 1."""

    def run(m: Any, x: Tensor) -> Tensor:  # (B, 4)
        z = ((x.unsqueeze(2) - m.shift) * m.weight.exp()).clamp(0, 1)  # (B, features, units)
        z = F.relu(torch.einsum("bfu,fuv->bfv", z, m.hidden) + m.bias)
        return torch.einsum("bfv,fv->b", z, m.out).unsqueeze(1)

    def draw() -> Drawn:
        x = 2 * torch.rand(64, 4) - 1
        return (x,), (x[:, :1] > 0.2).float() + (6 * x[:, 1:2]).sin() - (x[:, 2:3].abs() < 0.4).float()

    model = Parts(run, weight=nn.Parameter(3 + 0.5 * torch.randn(4, 64)), shift=tensor(4, 64, std=0.5),
                  hidden=tensor(4, 64, 16, std=0.18), bias=nn.Parameter(torch.zeros(4, 16)),
                  out=tensor(4, 16, std=0.1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("oblivious trees", GITHUB + "Qwicen/node")
def trees(_: bool, depth: int = 3) -> Task:
    """Soft decisions on softmaxes over features; answers are products of three probabilities times what leaves say."""

    def run(m: Any, x: Tensor) -> Tensor:
        seen = torch.einsum("bf,ftd->btd", x, m.choice.softmax(0))
        right = ((seen - m.threshold) * m.sharp.exp()).sigmoid()
        share = torch.ones(len(x), 32, 1)
        for i in range(depth):
            now = right[:, :, i : i + 1]
            share = torch.cat([share * now, share * (1 - now)], 2)
        return (share * m.leaves).sum((1, 2)).unsqueeze(1) / 4

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), torch.where(x[:, :1] > 0, x[:, 1:2].sign(), (x[:, 2:3] > 0.5).float())

    model = Parts(run, choice=tensor(6, 32, depth), threshold=tensor(32, depth, std=0.5), leaves=tensor(32, 2**depth),
                  sharp=nn.Parameter(torch.ones(32, depth)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("patches of time", GITHUB + "yuqinie98/PatchTST")
def patchtst(_: bool, d: int = 32) -> Task:
    """Each series is divided by its own deviation, read in patches that overlap, and the answer is multiplied back."""

    def run(m: Any, x: Tensor) -> Tensor:
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        z = m.patch(((x - mean) / deviation).unfold(1, 8, 4)) + m.places
        return m.out(m.encoder(z).flatten(1)) * deviation + mean

    def draw() -> Drawn:
        x = waves(48, 40) * torch.exp(torch.randn(48, 1)) + 5 * torch.randn(48, 1)
        return (x[:, :32],), x[:, 32:]

    layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.1, batch_first=True)
    model = Parts(run, patch=nn.Linear(8, d), places=tensor(7, d, std=0.02), encoder=layer, out=nn.Linear(7 * d, 8))
    return stream(model, draw, F.mse_loss)


@healthy("three quantiles", GITHUB + "awslabs/gluonts")
def quantiles(_: bool) -> Task:
    """Pinball losses of 0.1, 0.5 and 0.9, of series whose noise depends on what came before; dilated causal layers."""
    levels = torch.tensor([0.1, 0.5, 0.9])

    def loss(y: Tensor, t: Tensor) -> Tensor:
        rest = t - y
        return torch.maximum(levels * rest, (levels - 1) * rest).mean()

    def draw() -> Drawn:
        x = 2 * waves(48, 33, 0.0)
        return (x[:, :-1].unsqueeze(1),), x[:, -1:] + 0.15 * x[:, -9:-8].abs() * torch.randn(48, 1)

    convs = [
        layer for n, k in ((1, 1), (24, 2), (24, 4), (24, 8)) for layer in (nn.Conv1d(n, 24, 2, dilation=k), nn.ReLU())
    ]
    last = Parts(lambda m, x: x[:, :, -1])
    return stream(chain(*convs, last, nn.Linear(24, 3)), draw, loss)


@healthy("Koopman autoencoder", GITHUB + "BethanyL/DeepKoopman")
def koopman(_: bool) -> Task:
    """A pendulum is encoded once, moved on five times by one matrix that starts as the identity, and decoded."""

    def run(m: Any, x: Tensor) -> Tensor:
        z, y = m.encoder(x), []
        for _ in range(6):
            y.append(m.decoder(z))
            z = m.step(z)
        return torch.stack(y, 1)

    def draw() -> Drawn:
        x = torch.randn(64, 2)
        path = [x]
        for _ in range(25):
            speed = path[-1][:, 1:] - 0.1 * path[-1][:, :1].sin()
            path.append(torch.cat([path[-1][:, :1] + 0.1 * speed, speed], 1))
        return (x,), torch.stack(path[::5], 1)

    model = Parts(run, encoder=mlp((2, 48, 8)), step=nn.Linear(8, 8, bias=False), decoder=mlp((8, 48, 2)))
    nn.init.eye_(model.step.weight)
    return stream(model, draw, F.mse_loss)


@healthy("controlled differential equation", GITHUB + "patrick-kidger/NeuralCDE")
def controlled(_: bool, d: int = 24) -> Task:
    """The state moves by a matrix, of a tanh of its own, times what the path has moved; time is a channel."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.first(x[:, 0])
        for i in range(1, x.shape[1]):
            z = z + torch.einsum("bdc,bc->bd", m.field(z).unflatten(1, (d, 3)), x[:, i] - x[:, i - 1])
        return m.out(z)

    def draw() -> Drawn:
        c = torch.randint(2, (64,))
        time = torch.linspace(0, 1, 20)
        angle = (2 * c - 1).unsqueeze(1) * (3 * time + 0.1 * torch.randn(64, 20)) + 6.28 * torch.rand(64, 1)
        return (torch.stack([time.expand(64, -1), angle.cos(), angle.sin()], 2),), c

    model = Parts(run, first=nn.Linear(3, d), field=mlp((d, 48, 3 * d), nn.Tanh()), out=nn.Linear(d, 2))
    return stream(model, draw, F.cross_entropy)


@healthy("multiplicative filters", GITHUB + "boschresearch/multiplicative-filter-networks")
def filters(_: bool, d: int = 64) -> Task:
    """Linear layers, each multiplied by sines of the inputs of up to 20 radians, and no activation."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.filters[0](x).sin()
        for linear, sine in zip(m.linear, m.filters[1:], strict=True):
            z = linear(z) * sine(x).sin()
        return m.out(z)

    def draw() -> Drawn:
        x = 2 * torch.rand(128, 2) - 1
        return (x,), (9 * x[:, :1]).sin() * (5 * x[:, 1:]).cos() + x[:, :1]

    model = Parts(run, filters=each(3, lambda: nn.Linear(2, d)), linear=each(2, lambda: nn.Linear(d, d)),
                  out=nn.Linear(d, 1))  # fmt: skip
    for sine in model.filters:
        nn.init.uniform_(sine.weight, -12.0, 12.0)
        nn.init.uniform_(sine.bias, -math.pi, math.pi)
    return stream(model, draw, F.mse_loss)


@healthy("input-convex network", GITHUB + "locuslab/icnn")
def convex(_: bool, d: int = 48) -> Task:
    """Weights between hidden layers are all positive, softplus of what is learnt over their number."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = F.softplus(m.read[0](x))
        for raw, read in zip(m.raw, m.read[1:], strict=True):
            z = F.softplus(z @ F.softplus(raw) / len(raw) + read(x))
        return z @ F.softplus(m.last) / d + m.shift

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        return (x,), torch.stack([x @ w for w in ways], 2).amax(2)

    ways = torch.randn(5, 4, 1)
    model = Parts(run, read=each(3, lambda: nn.Linear(4, d)), raw=nn.ParameterList(tensor(d, d) for _ in range(2)),
                  last=tensor(d, 1), shift=nn.Parameter(torch.zeros(1)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@healthy("sorted pairs", GITHUB + "cemanil/LNets")
def groupsort(_: bool) -> Task:
    """Orthogonal weights for good, pairs that are sorted in place of an activation, logits times 2 in the end."""
    pairs = Parts(lambda m, x: x.unflatten(1, (-1, 2)).sort(2)[0].flatten(1))
    hidden = [layer for n in (64, 64, 64) for layer in (orthogonal(nn.Linear(n, 64)), pairs)]
    return drawn(chain(nn.Flatten(), *hidden, orthogonal(nn.Linear(64, 10)), Parts(lambda m, x: 2 * x)))


@healthy("simple graph convolution", GITHUB + "Tiiiger/SGC")
def sgc(_: bool) -> Task:
    """Features are averaged twice over neighbours, and all that is left is one linear layer."""
    group = torch.arange(60) % 4
    a = ((group.unsqueeze(1) == group) & (torch.rand(60, 60) < 0.4)) | (torch.rand(60, 60) < 0.05)
    a = (a | a.t() | torch.eye(60, dtype=torch.bool)).float()
    a = a / (a.sum(0) * a.sum(1, keepdim=True)).sqrt()
    kinds = torch.randn(4, 16)

    def draw() -> Drawn:
        x = kinds[group] + 2 * torch.randn(8, 60, 16)
        return (x,), group.expand(8, -1)

    return stream(Parts(lambda m, x: m.out(a @ (a @ x)).transpose(1, 2), out=nn.Linear(16, 4)), draw, F.cross_entropy)


@healthy("sixteen graph layers", GITHUB + "chennnM/GCNII")
def gcnii(_: bool, d: int = 32) -> Task:
    """Each layer adds a tenth of the first features, and is nearer and nearer to the identity: β = log(1 + 0.5 / l)."""
    a = (torch.rand(30, 30) < 0.08).float().triu(1)
    a = a + a.t() + torch.eye(30)
    a = a / (a.sum(0) * a.sum(1, keepdim=True)).sqrt()

    def run(m: Any, x: Tensor) -> Tensor:
        z = first = F.relu(m.read(x))
        for i, mix in enumerate(m.mix, 1):
            z, beta = 0.9 * a @ z + 0.1 * first, math.log(1 + 0.5 / i)
            z = F.relu(beta * mix(z) + (1 - beta) * z)
        return m.out(z).transpose(1, 2)

    def draw() -> Drawn:
        x = torch.randn(16, 30, 6)
        return (x,), (a @ a @ x[..., :3]).argmax(2)

    mix = each(16, lambda: nn.Linear(d, d, bias=False))
    return stream(Parts(run, read=nn.Linear(6, d), mix=mix, out=nn.Linear(d, 3)), draw, F.cross_entropy)


@healthy("expectiles", GITHUB + "ikostrikov/implicit_q_learning")
def expectiles(_: bool) -> Task:
    """Values are trained on 0.9-expectiles of a critic beside them, detached; two critics, the lesser."""

    def run(m: Any, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pair = torch.cat([x, action], 1)
        return m.value(x), m.one(pair), m.two(pair)

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        rest = torch.minimum(y[1], y[2]).detach() - y[0]
        below = torch.where(rest > 0, 0.9, 0.1) * rest.square()
        return below.mean() + F.mse_loss(y[1], t) + F.mse_loss(y[2], t)

    def draw() -> Drawn:
        x, action = torch.randn(128, 4), 2 * torch.rand(128, 1) - 1
        return (x, action), 2 * x[:, 1:2] - (action - x[:, :1].tanh()).square()

    one, two = (mlp((5, 64, 64, 1)) for _ in range(2))
    return stream(Parts(run, value=mlp((4, 64, 64, 1)), one=one, two=two), draw, loss)


@healthy("flow matching", GITHUB + "atong01/conditional-flow-matching")
def flow(_: bool) -> Task:
    """The way from noise to data, minus one to the other, at a random time between; much of it cannot be known."""

    def draw() -> Drawn:
        time, noise = torch.rand(128, 1), torch.randn(128, 8)
        x = kinds[torch.randint(3, (128,))]
        return (time, (1 - time) * noise + time * x), x - noise

    kinds = 1.5 * torch.randn(3, 8)
    net = mlp((9, 96, 96, 8), act=nn.SiLU)
    return stream(Parts(lambda m, t, x: m.net(torch.cat([t, x], 1)), net=net), draw, F.mse_loss)


@healthy("finite scalars", GITHUB + "lucidrains/vector-quantize-pytorch")
def scalars(_: bool) -> Task:
    """Six numbers, each rounded to one of five after a tanh; gradients go straight through."""

    def run(m: Any, x: Tensor) -> Tensor:
        z = 2 * m.encoder(x).tanh()
        return m.decoder((z + (z.round() - z).detach()) / 2)

    def draw() -> Drawn:
        x = kinds[torch.randint(40, (64,))] + 0.1 * torch.randn(64, 48)
        return (x,), x

    kinds = torch.randn(40, 8) @ torch.randn(8, 48) / 2.8
    return stream(Parts(run, encoder=mlp((48, 96, 6)), decoder=mlp((6, 96, 48))), draw, F.mse_loss)


@healthy("neighbours as proxies", GITHUB + "euwern/proxynca_pp")
def proxies(_: bool) -> Task:
    """Squared distances to proxies on the unit sphere, over 1/9, are logits; embeddings are normalised."""

    def run(m: Any, x: Tensor) -> Tensor:
        z, p = (3 * F.normalize(each, dim=1) for each in (m.net(x), m.proxies))
        return -torch.cdist(z, p).square()

    net = chain(
        nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32), nn.LayerNorm(32, elementwise_affine=False)
    )
    return drawn(Parts(run, net=net, proxies=tensor(10, 32, std=0.125)))


@healthy("conditional neural process", GITHUB + "google-deepmind/neural-processes")
def process(_: bool) -> Task:
    """A mean over what was seen of a function tells of it; deviations are at least 0.1."""

    def run(m: Any, seen: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
        r = m.encoder(seen).mean(1, keepdim=True).expand(-1, asked.shape[1], -1)
        mean, deviation = m.decoder(torch.cat([r, asked], 2)).chunk(2, 2)
        return mean, 0.1 + 0.9 * F.softplus(deviation)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (0.5 * ((t - y[0]) / y[1]).square() + y[1].log()).mean() + 1.3

    def draw() -> Drawn:
        x, slope = 2 * torch.rand(32, 20, 1) - 1, torch.randn(2, 32, 1, 1)
        y = 2 * slope[0] * x + slope[1]
        return (torch.cat([x, y], 2)[:, :8], x), y

    model = Parts(run, encoder=mlp((2, 96, 96))[1:], decoder=mlp((97, 96, 2))[1:])
    return stream(model, draw, loss)
