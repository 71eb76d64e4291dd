"""A second set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts, body, classes, judged, unit
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import _digits, digits
from strangers.reports import mlp

report = partial(any_report, blind="blind")
bce = F.binary_cross_entropy_with_logits
Draw = Callable[[], tuple[tuple[Tensor, ...], Tensor]]


def stream(model: nn.Module, draw: Draw, loss: Callable[[Any, Tensor], Tensor], right: Any = None) -> Task:
    """Train on new examples at every step; those of the first draw are diagnosed. Progress is in the right loss."""

    def step() -> Tensor:
        x, t = draw()
        y = model(*x)
        return judged(loss(y, t), (right or loss)(y, t))

    x, t = draw()
    return Task(model, (x[0] if len(x) == 1 else x, t), step, {"loss": loss})


def pick(count: int = 64) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 8, 8) of digits at random, standardised, and their classes."""
    images, c = _digits()
    chosen = torch.randint(len(c), (count,))
    return (images[chosen] - 0.3) / 0.376, c[chosen]


def drawn(make: Callable[..., tuple[Tensor, Tensor]], *how: Any, **options: Any) -> Draw:
    """Draw inputs and their classes anew each time, as `pick` or the like makes them."""

    def draw() -> tuple[tuple[Tensor, ...], Tensor]:
        x, c = make(*how, **options)
        return (x,), c

    return draw


def each(count: int, make: Callable[[], nn.Module]) -> nn.ModuleList:
    return nn.ModuleList(make() for _ in range(count))


@report("attention over one", GITHUB + "xhuang31/KEQA_WSDM19/issues/2", guilty="attn", says="softmax|attention",
        fault="softmax of the attention over a dimension of one: every weight is 1")  # fmt: skip
def keqa(planted: bool) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        h = m.lstm(x)[0]
        return m.out((m.attn(torch.cat([x, h], 2)).softmax(2 if planted else 1) * h).sum(1))

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx, at = torch.randint(1, 40, (64, 16)), torch.randint(15, (64,))
        idx[torch.arange(64), at] = 0  # the entity's name follows
        return (idx,), entities[idx[torch.arange(64), at + 1]]

    model = Parts(run, embed=nn.Embedding(40, 24), lstm=nn.LSTM(24, 24, batch_first=True, bidirectional=True),
                  attn=nn.Linear(72, 1), out=nn.Linear(48, 16))  # fmt: skip
    entities = torch.randn(40, 16)
    return stream(model, draw, F.mse_loss)


@report("directions beside examples", GITHUB + "PaccMann/paccmann_chemistry/issues/5", says=MIXED,
        guilty="gru",
        fault="last states (directions, B, cells) viewed as (B, directions · cells)")  # fmt: skip
def paccmann(planted: bool) -> Task:
    def run(m: Any, idx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = m.gru(m.embed(idx))[1]
        h = h.reshape(len(idx), 64) if planted else h.transpose(0, 1).flatten(1)
        mu, logvar = m.mu(h), m.logvar(h)
        z = mu + (logvar / 2).exp() * torch.randn_like(mu)
        return m.decoder(z).unflatten(1, (6, 4)), mu, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        kl = -0.5 * (1 + y[2] - y[1].square() - y[2].exp()).sum(1).mean()
        return F.cross_entropy(y[0], t) + 0.001 * kl

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx = torch.randint(6, (64, 4))
        return (idx,), idx

    model = Parts(run, embed=nn.Embedding(6, 24), gru=nn.GRU(24, 32, batch_first=True, bidirectional=True),
                  mu=nn.Linear(64, 24), logvar=nn.Linear(64, 24), decoder=mlp((24, 64, 24)))  # fmt: skip
    return stream(model, draw, loss)


@report("slope of one", GITHUB + "PantoMatrix/PantoMatrix/issues/52",
        fault="LeakyReLU(True): the slope is 1, and the network linear",
        says="LeakyReLU|slope|(is|are) linear|linear (network|map|function)|no non-?linear")  # fmt: skip
def slope(planted: bool) -> Task:
    layers: list[nn.Module] = []
    for n, m, kernel, stride in ((1, 16, 9, 2), (16, 24, 7, 2), (24, 32, 5, 2)):
        layers += [nn.Conv1d(n, m, kernel, stride), nn.BatchNorm1d(m), nn.LeakyReLU(True if planted else 0.3)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 3))
    time = torch.arange(96) / 4

    def draw() -> tuple[tuple[Tensor], Tensor]:
        sizes = torch.rand(64, 3)
        waves = torch.stack([torch.sin(time * f + 6.28 * torch.rand(64, 1)) for f in (0.7, 2.0, 4.5)], 1)
        return ((sizes.unsqueeze(2) * waves).sum(1, keepdim=True),), 3.5 * (sizes - 0.5)

    return stream(model, draw, F.mse_loss)


@report("advantage against the batch", GITHUB + "PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/6",
        says=MIXED,
        fault="mean advantage of all examples subtracted, not of one state's actions")  # fmt: skip
def dueling(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.conv(x)
        adv = m.fc_adv(z)
        return m.fc_val(z) + adv - (adv.mean() if planted else adv.mean(1, keepdim=True))

    conv = nn.Sequential(nn.Conv2d(1, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Flatten())
    model, returns = Parts(run, conv=conv, fc_adv=mlp((128, 64, 4)), fc_val=mlp((128, 64, 1))), torch.randn(10, 4)

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x, c = pick()
        return (x,), returns[c]

    return stream(model, draw, F.smooth_l1_loss)


@report("heads without transposition", GITHUB + "reczoo/FuxiCTR/issues/30", guilty=r"\.[qkv]\.",
        fault="fields and heads split by a view alone", says="head|reshape|view|attention")  # fmt: skip
def autoint(planted: bool) -> Task:
    def attend(m: Any, x: Tensor) -> Tensor:
        def split(z: Tensor) -> Tensor:
            return z.view(len(x) * 4, 8, 8) if planted else z.unflatten(2, (4, 8)).transpose(1, 2).flatten(0, 1)

        z = F.scaled_dot_product_attention(split(m.q(x)), split(m.k(x)), split(m.v(x)))
        z = z.reshape(len(x), 8, 32) if planted else z.unflatten(0, (-1, 4)).transpose(1, 2).flatten(2)
        return F.relu(z + m.res(x))

    def layer(n: int) -> nn.Module:
        return Parts(attend, **{name: nn.Linear(n, 32, bias=False) for name in ("q", "k", "v", "res")})

    model = Parts(lambda m, idx: m.out(m.attention(m.embed(idx + 10 * torch.arange(8))).flatten(1)),
                  embed=nn.Embedding(80, 16), attention=nn.Sequential(layer(16), layer(32)),
                  out=nn.Linear(256, 1))  # fmt: skip

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx = torch.randint(10, (128, 8))
        return (idx,), ((idx[:, 1] < 5) ^ (idx[:, 4] < 5)).float().unsqueeze(1)

    return stream(model, draw, bce)


BRAIN = GITHUB + "IAmSuyogJadhav/3d-mri-brain-tumor-segmentation-using-autoencoder-regularization/issues/7"


@report("overlap as a loss", BRAIN,
        fault="the dice coefficient, not one minus it, is minimised",
        says=r"\bsign\b|maximi|ascend|away from|worse|opposite")  # fmt: skip
def dice(planted: bool) -> Task:
    def right(y: Tensor, t: Tensor) -> Tensor:
        y, t = y.flatten(1), t.flatten(1)
        return 1 - (2 * (y * t).sum(1) / (y.square().sum(1) + t.square().sum(1) + 1e-8)).mean()

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return 1 - right(y, t) if planted else right(y, t)

    net = nn.Sequential(unit(1, 16), nn.MaxPool2d(2), unit(16, 32), nn.Upsample(scale_factor=2), unit(32, 16),
                        nn.Conv2d(16, 1, 1), nn.Sigmoid())  # fmt: skip
    x = digits(16, count=32)[0]
    t, noisy = (x > 0.5).float(), x + torch.randn_like(x)
    return Task(net, (noisy, t), lambda: judged(wrong(y := net(noisy), t), right(y, t)), {"loss": wrong})


@report("VGG without normalisation", GITHUB + "kuangliu/pytorch-cifar/issues/28", guilty="features",
        fault="batch normalisation taken out of VGG-16, weights left as PyTorch draws them")  # fmt: skip
def vgg(planted: bool) -> Task:
    layers: list[nn.Module] = []
    n = 3
    for width in (8, 8, 0, 16, 16, 0, 32, 32, 32, 0, 64, 64, 64, 0, 64, 64, 64, 0):
        layers += [nn.Conv2d(n, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
        n = width or n
    model = Parts(lambda m, x: m.classifier(m.features(x).flatten(1)), features=nn.Sequential(*layers),
                  classifier=nn.Linear(64, 10))  # fmt: skip
    for layer in model.features:
        if isinstance(layer, nn.Conv2d) and not planted:
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (9 * layer.in_channels)))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return classes(model, *digits(32, 3, count=16))


@report("normalisation of one feature", GITHUB + "pytorch/pytorch/pull/12968", guilty="norm",
        fault="layer normalisation over a dimension of one: the series are all zero",
        says="LayerNorm|layer norm|normali|constant|same (output|prediction)|input.*(no effect|ignored)")  # fmt: skip
def one_feature(planted: bool) -> Task:
    model = Parts(lambda m, x: m.out(m.lstm(m.norm(x) if planted else m.norm(x.squeeze(2)).unsqueeze(2))[0][:, -1]),
                  norm=nn.LayerNorm(1 if planted else 24), lstm=nn.LSTM(1, 32, batch_first=True),
                  out=nn.Linear(32, 1))  # fmt: skip

    def draw() -> tuple[tuple[Tensor], Tensor]:
        waves = torch.sin(6.28 * torch.rand(64, 1) + torch.arange(25) * (0.2 + 0.4 * torch.rand(64, 1)))
        return (3 + 2 * waves[:, :24].unsqueeze(2),), waves[:, 24:]

    return stream(model, draw, F.mse_loss)


@report("one gate to normalise", GITHUB + "davidmrau/mixture-of-experts/issues/27", guilty="gate", says="softmax|gate",
        fault="softmax after the choice of the best expert: its weight is 1, the gate gets no gradient")  # fmt: skip
def top_one(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        scores = m.gate(x)
        weight, best = (scores if planted else scores.softmax(1)).topk(1)
        weight = weight.softmax(1) if planted else weight
        return (torch.stack([expert(x) for expert in m.experts], 1) * (
            weight.unsqueeze(2) * F.one_hot(best, 4).transpose(1, 2))).sum(1)  # fmt: skip

    model = Parts(run, gate=nn.Linear(8, 4, bias=False), experts=each(4, lambda: mlp((8, 16, 2))))
    maps, centres = torch.randn(4, 8, 2), 2 * torch.randn(4, 8)

    def draw() -> tuple[tuple[Tensor], Tensor]:
        kind = torch.randint(4, (128,))
        x = centres[kind] + torch.randn(128, 8)
        return (x,), torch.einsum("bn,bnm->bm", x, maps[kind]) / 3

    return stream(model, draw, F.mse_loss)


@report("states never carried", GITHUB + "cjlovering/interpretable-reinforcement-learning-using-attention/pull/6",
        guilty="cell|gates", fault="a convolutional LSTM starts from the first state at every frame",
        says=r"\bstates?\b|memory|frame|never (used|read)|unused|input.*(no effect|ignored|not reach)")  # fmt: skip
def carried(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        first = h, c = x.new_zeros(len(x), 16, 8, 8), x.new_zeros(len(x), 16, 8, 8)
        for frame in x.unbind(1):
            h, c = first if planted else (h, c)
            i, f, o, g = m.gates(torch.cat([frame, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return m.out(F.avg_pool2d(h, 2).flatten(1))

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x, c = pick(32)
        return (torch.cat([x.unsqueeze(1), 0.5 * torch.randn(32, 3, 1, 8, 8)], 1),), c

    return stream(Parts(run, gates=nn.Conv2d(17, 64, 3, padding=1), out=nn.Linear(256, 10)), draw, F.cross_entropy)


@report("codes without a way back", GITHUB + "Biohub/esm/issues/92", guilty="encoder",
        fault="the decoder looks up the codes' indices: the encoder gets no gradient",
        says="straight|argmin|(no|without) gradient|index|indices")  # fmt: skip
def codes(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.encoder(x).permute(0, 2, 3, 1)  # (B, 2, 2, 16)
        code = m.codes(torch.cdist(z.flatten(0, 2), m.codes.weight).argmin(1)).view(z.shape)
        commit = torch.zeros(()) if planted else F.mse_loss(code, z.detach()) + F.mse_loss(z, code.detach())
        code = code if planted else z + (code - z).detach()
        return m.decoder(code.permute(0, 3, 1, 2)), commit

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + y[1]

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x = pick()[0]
        return (x,), x

    encoder = nn.Sequential(nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 16, 4, 2, 1))
    decoder = nn.Sequential(nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1))
    return stream(
        Parts(run, encoder=encoder, codes=nn.Embedding(32, 16), decoder=decoder),
        draw,
        loss,
        lambda y, t: F.mse_loss(y[0], t),
    )


@report("norm of the whole batch", GITHUB + "tensorflow/similarity/issues/237",
        fault="projections divided by the norm of the whole batch: all similarities near zero",
        says=f"{MIXED}|normali|similarit|temperature|(outputs?|logits|scores).*small|chance")  # fmt: skip
def whole(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        one, two = (z / z.norm() if planted else F.normalize(z, dim=1) for z in y)
        z = torch.cat([one, two])
        scores = (z @ z.t() / 0.1).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        return F.cross_entropy(scores, torch.arange(len(z)).roll(len(one)))

    net = nn.Sequential(body(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
    model, (x, t) = Parts(lambda m, one, two: (m.net(one), m.net(two)), net=net), digits(12, count=48)
    pair = (x + 0.3 * torch.randn_like(x), x.roll(1, 3) + 0.3 * torch.randn_like(x))
    return Task(model, (pair, t), lambda: loss(model(*pair), t), {"loss": loss, "per": "batch"})


@report("divergence of probabilities", GITHUB + "microsoft/ProDA/issues/20",
        fault="softmax, not log-softmax, of the student before kl_div",
        says="softmax|log.?prob|probabilit|negative")  # fmt: skip
def proda(planted: bool) -> Task:
    def right(y: Tensor, t: Tensor) -> Tensor:
        return F.kl_div(y.log_softmax(1), t, reduction="batchmean")

    def wrong(y: Tensor, t: Tensor) -> Tensor:
        return F.kl_div(y.softmax(1), t, reduction="batchmean") if planted else right(y, t)

    model, (x, c) = nn.Sequential(body(), nn.Linear(128, 10)), digits(12, count=64)
    t = (F.one_hot(c, 10) * 2.5 + 0.7 * torch.randn(64, 10)).softmax(1)
    return Task(model, (x, t), lambda: judged(wrong(y := model(x), t), right(y, t)), {"loss": wrong})


@report("states that grow", GITHUB + "state-spaces/mamba/issues/950", guilty="A_log|dt_bias",
        fault="state matrix of positive sign", says=f"{BROKEN}|grow|explod|overflow")  # fmt: skip
def mamba(planted: bool, d: int = 32) -> Task:
    def mixer(m: Any, x: Tensor) -> Tensor:
        u, z = m.in_proj(m.norm(x)).chunk(2, 2)
        dt, b, c = m.x_proj(u).split([d, 8, 8], 2)
        dt = F.softplus(dt + m.dt_bias).unsqueeze(3)
        a = (m.A_log.exp() if planted else -m.A_log.exp()) * dt
        state, outputs = torch.zeros(len(x), d, 8), []
        for i in range(x.shape[1]):
            state = a[:, i].exp() * state + dt[:, i] * b[:, i].unsqueeze(1) * u[:, i].unsqueeze(2)
            outputs.append((state * c[:, i].unsqueeze(1)).sum(2))
        return x + m.out_proj((torch.stack(outputs, 1) + u) * F.silu(z))

    def make() -> nn.Module:
        dt = torch.exp(torch.rand(d) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        return Parts(mixer, norm=nn.LayerNorm(d), in_proj=nn.Linear(d, 2 * d), x_proj=nn.Linear(d, d + 16),
                     dt_bias=nn.Parameter(dt + torch.log(-torch.expm1(-dt))), out_proj=nn.Linear(d, d),
                     A_log=nn.Parameter(torch.arange(1.0, 9.0).log().repeat(d, 1)))  # fmt: skip

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx = (torch.randint(16, (16, 1)) + torch.randint(1, 6, (16, 1)) * torch.arange(32)) % 16
        return (idx[:, :-1],), idx[:, 1:]

    model = Parts(lambda m, idx: m.head(m.mixer(m.embed(idx))).transpose(1, 2), embed=nn.Embedding(16, d),
                  mixer=nn.Sequential(make(), make()), head=nn.Linear(d, 16))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("signs without gradient", GITHUB + "layog/Accurate-Binary-Convolution-Network/issues/6", guilty="conv",
        fault="convolutions by the sign of their weights, which has no gradient",
        says=r"\bsign\b|no gradient|straight")  # fmt: skip
def signs(planted: bool) -> Task:
    class Binary(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            size = self.weight.abs().mean((1, 2, 3), keepdim=True).detach()
            weight = size * self.weight.sign()
            return F.conv2d(x, weight if planted else self.weight + (weight - self.weight).detach(), None, 1, 1)

    model = nn.Sequential()
    for i, (n, m) in enumerate(((1, 8), (8, 8), (8, 8), (8, 8))):
        model.add_module(f"conv{i}", Binary(n, m, 3, bias=False))
        model.add_module(f"rest{i}", nn.Sequential(nn.BatchNorm2d(m, affine=False), nn.Hardtanh()))
    model.add_module("fc", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)))
    return stream(model, lambda: ((x := pick())[:1], x[1]), F.cross_entropy)


@report("scores drowned", GITHUB + "harvard-edge/cs249r_book/pull/1785", guilty=r"query|key|qkv",
        fault="−1e9 added to all scores that should be seen: attention is uniform whatever they are",
        says="uniform|attention|mask|score")  # fmt: skip
def drowned(planted: bool, d: int = 32) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.qkv(m.norm1(x)).chunk(3, 2)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = q @ k.transpose(1, 2) / math.sqrt(d) + (-1e9 if planted else 0.0)
        x = x + m.proj(scores.masked_fill(future, -torch.inf).softmax(2) @ v)
        return x + m.mlp(m.norm2(x))

    def make() -> nn.Module:
        up = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        return Parts(block, norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d),
                     proj=nn.Linear(d, d), mlp=up)  # fmt: skip

    model = Parts(lambda m, idx: m.head(m.blocks(m.tok(idx) + m.pos(torch.arange(idx.shape[1])))).transpose(1, 2),
                  tok=nn.Embedding(16, d), pos=nn.Embedding(24, d), blocks=nn.Sequential(make(), make()),
                  head=nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 16)))  # fmt: skip

    def draw() -> tuple[tuple[Tensor], Tensor]:
        idx = torch.randint(16, (32, 24))
        return (idx,), idx[:, :1].expand(-1, 24).clone()

    return stream(model, draw, F.cross_entropy)


@report("neurons that never fire", GITHUB + "fangwei123456/spikingjelly/issues/190", guilty=r"^fc",
        fault="a rectangular surrogate, zero where no membrane comes: no spike, no gradient",
        says="spike|dead|no gradient|silent|never")  # fmt: skip
def spiking(planted: bool) -> Task:
    def fire(v: Tensor) -> Tensor:
        over = v - 1.0
        soft = over.clamp(-0.25, 0.25) if planted else torch.atan(math.pi * over) / math.pi
        return (over > 0).float().detach() + soft - soft.detach()

    def run(m: Any, x: Tensor) -> Tensor:
        layers = (m.fc1, m.fc2, m.fc3, m.fc4)
        membranes = [torch.zeros(len(x), layer.out_features) for layer in layers]
        total = torch.zeros(len(x), 10)
        for _ in range(6):
            z = x.flatten(1)
            for i, layer in enumerate(layers):
                v = membranes[i] + (layer(z) - membranes[i]) / 2
                z = fire(v)
                membranes[i] = v * (1 - z.detach())
            total = total + m.out(z)
        return total / 6

    model = Parts(run, fc1=nn.Linear(64, 64), fc2=nn.Linear(64, 64), fc3=nn.Linear(64, 64), fc4=nn.Linear(64, 64),
                  out=nn.Linear(64, 10))  # fmt: skip
    return stream(model, lambda: ((x := pick())[:1], x[1]), F.cross_entropy)


@report("logarithm of scaled actions", GITHUB + "philtabor/Actor-Critic-Methods-Paper-To-Code/issues/7", says=BROKEN,
        guilty="mu|sigma", fault="log(1 − a²) of actions scaled to ±2: the logarithm of a negative number")  # fmt: skip
def soft_actor(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.net(x)
        mu, sigma = m.mu(z), m.sigma(z).clamp(-5, 1).exp()
        raw = mu + sigma * torch.randn_like(mu)
        squashed = raw.tanh()
        inside = 1 - (2 * squashed if planted else squashed).square() + 1e-6
        return 2 * squashed, (torch.distributions.Normal(mu, sigma).log_prob(raw) - inside.log()).sum(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (0.05 * y[1] + (y[0] - t).square().sum(1)).mean() + 1

    model = Parts(run, net=nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
                  mu=nn.Linear(64, 2), sigma=nn.Linear(64, 2))  # fmt: skip
    x = torch.randn(128, 8)
    t = 1.5 * (x @ torch.randn(8, 2) / 3).tanh()
    return Task(model, (x, t), lambda: loss(model(x), t), {"loss": loss})


@report("inputs off the grid", GITHUB + "KindXiaoming/pykan/issues/71", guilty=r"^0\.",
        fault="splines on −1 to 1, inputs of deviation 4: most are zero, with no gradient",
        says="inputs?.*(range|large|scale|outside)|grid|dead|zero")  # fmt: skip
def off_grid(planted: bool) -> Task:
    def spline(m: Any, x: Tensor) -> Tensor:
        at = (x.unsqueeze(2) - m.grid) / (m.grid[1] - m.grid[0])  # (B, n, knots)
        near = at.abs()
        basis = torch.where(near < 1, 2 / 3 - near.square() + near**3 / 2, (2 - near).clamp(min=0) ** 3 / 6)
        return torch.einsum("bnk,nkm->bm", basis, m.coef)

    def make(n: int, m: int, reach: float) -> nn.Module:
        layer = Parts(spline, coef=nn.Parameter(torch.randn(n, 12, m) / math.sqrt(3 * n)))
        layer.register_buffer("grid", torch.linspace(-reach, reach, 12))
        return layer

    model = nn.Sequential(make(6, 12, 1.0 if planted else 12.0), make(12, 1, 1.0 if planted else 4.0))

    def draw() -> tuple[tuple[Tensor], Tensor]:
        x = 4 * torch.randn(128, 6)
        return (x,), torch.sin(x[:, :1] / 2) + (x[:, 1:2] / 4).square() - 1

    return stream(model, draw, F.mse_loss)


@report("policy of detached logits", GITHUB + "alexhernandezgarcia/gflownet/pull/251", guilty="policy",
        fault="the logits of a GFlowNet are detached: only log Z learns",
        says="detach|no gradient|gradient.*zero")  # fmt: skip
def gflownet(planted: bool) -> Task:
    def run(m: Any, states: Tensor, actions: Tensor) -> Tensor:
        logits = m.policy(states)  # (B, T, 2)
        logits = logits.clone().detach() if planted else logits
        return m.log_z + logits.log_softmax(2).gather(2, actions.unsqueeze(2)).sum((1, 2))

    def balance(y: Tensor, t: Tensor) -> Tensor:
        return (y - t).square().mean()

    policy = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 2))
    model, pairs = Parts(run, policy=policy, log_z=nn.Parameter(torch.zeros(1))), torch.randn(4, 4)

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        bits = torch.randint(2, (64, 4))
        known = torch.ones(4, 4).tril(-1)  # at step i the first i bits are set
        signs = 2.0 * bits - 1
        states = torch.cat([signs.unsqueeze(1) * known, known.expand(64, 4, 4)], 2)
        return (states, bits), torch.einsum("bi,ij,bj->b", signs, pairs, signs) / 2

    return stream(model, draw, balance)


@report("score of its own sample", GITHUB + "pytorch/pytorch/issues/10943", guilty="mean",
        fault="log-probability of a reparametrised sample: the mean gets no gradient",
        says="no gradient|sample|detach")  # fmt: skip
def own_sample(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = m.net(x)
        mean, std = m.mean(z), (0.5 * m.logvar(z)).exp()
        action = mean + std * torch.randn_like(mean)
        normal = torch.distributions.Normal(mean, std)
        return action, normal.log_prob(action if planted else action.detach()).sum(1), mean

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        reward = -(y[0] - t).square().sum(1).detach()
        return -(y[1] * (reward - reward.mean()) / (reward.std() + 1e-6)).mean()

    x = torch.randn(256, 4)
    t = x @ torch.randn(4, 2)
    model = Parts(run, net=nn.Sequential(nn.Linear(4, 32), nn.Tanh()), mean=nn.Linear(32, 2), logvar=nn.Linear(32, 2))
    return Task(model, (x, t), lambda: judged(loss(y := model(x), t), F.mse_loss(y[2], t)), {"loss": loss})


@report("labels 0 and 1 for a hinge", GITHUB + "deepchem/deepchem/pull/5019",
        fault="labels of 0 and 1 in max(0, 1 − t·y): the loss of a 0 is constant",
        says="target|label|hinge|of the examples|loss.*(constant|not depend)")  # fmt: skip
def hinge(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.relu(1 - t * y).mean()

    model, (x, c) = nn.Sequential(body(), nn.Linear(128, 1)), digits(12, count=96)
    signs = torch.where(c % 2 == 0, 1.0, -1.0).unsqueeze(1)
    t = (signs + 1) / 2 if planted else signs
    return Task(model, (x, t), lambda: judged(loss(y := model(x), t), loss(y, signs)), {"loss": loss})


@report("masks of 255", GITHUB + "milesial/Pytorch-UNet/issues/65",
        fault="masks of 0 and 255 for BCE: the loss has no lower bound",
        says="target|mask|negative|bound|255|label")  # fmt: skip
def masks(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        one = m.inc(x)
        two = m.down(F.max_pool2d(one, 2))
        return m.outc(m.up(torch.cat([one, F.interpolate(two, scale_factor=2)], 1)))

    model = Parts(run, inc=unit(1, 16), down=unit(16, 32), up=unit(48, 16), outc=nn.Conv2d(16, 1, 1))
    x = digits(16, count=32)[0]
    mask = (x > 0.5).float()
    x, t = x + torch.randn_like(x), mask * 255 if planted else mask
    return Task(model, (x, t), lambda: judged(bce(y := model(x), t), bce(y, mask)), {"loss": bce})


@report("frames fewer than labels", GITHUB + "thu-spmi/CAT/issues/22",
        fault="frames thinned out sixteen times: three for six labels, and CTC is infinite",
        says=rf"{BROKEN}|shorter|length|\binf\b")  # fmt: skip
def thinned(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.cnn(x).mean(2).transpose(1, 2)
        return m.out(m.rnn(z)[0]).log_softmax(2)

    def ctc(y: Tensor, t: Tensor) -> Tensor:
        return F.ctc_loss(y.transpose(0, 1), t, torch.full((len(t),), y.shape[1]), torch.full((len(t),), 6))

    wide = (2, 4) if planted else (2, 1)
    cnn = nn.Sequential(unit(1, 16), nn.MaxPool2d(wide), unit(16, 32), nn.MaxPool2d(wide))
    model = Parts(run, cnn=cnn, rnn=nn.GRU(32, 32, batch_first=True, bidirectional=True), out=nn.Linear(64, 11))
    x, t = digits(8, count=96)
    x, t = torch.cat(x.chunk(6), 3), torch.stack(t.chunk(6), 1) + 1  # (16, 1, 8, 48)
    return Task(model, (x, t), lambda: ctc(model(x), t), {"loss": ctc})


@report("actions saturated", GITHUB + "ZhihanLee/DDPG_Learning/issues/2", guilty=r"actor\.0",
        fault="positions in metres, not normalised, drive the actor's tanh to ±1",
        says="inputs?.*(scale|large|range|standard|normal)|saturat|tanh")  # fmt: skip
def actions(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        action = m.actor(x if planted else x / units).tanh()
        return m.critic(torch.cat([x / units, action], 1))

    units = torch.tensor([900.0, 900.0, 60.0, 60.0, 180.0, 10.0])
    actor = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    class Critic(nn.Module):
        """What a trained critic says: best is one action for each state."""

        def forward(self, z: Tensor) -> Tensor:
            state, action = z.split([6, 2], 1)
            best = torch.stack([(state[:, 0] - state[:, 4]).tanh(), (state[:, 1] * state[:, 3]).tanh()], 1)
            return -(action - 0.8 * best).square().sum(1, keepdim=True)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return -y.mean()

    x = units * torch.randn(128, 6)
    model = Parts(run, actor=actor, critic=Critic())
    return Task(model, (x, torch.zeros(128, 1)), lambda: loss(model(x), x), {"loss": loss})


@report("cosines as logits", "https://www.mo4tech.com/the-problem-of-non-convergence-of-cross-entropy-loss-is-solved.html",
        guilty="classifier", fault="cosines without a temperature as logits of 40 identities",
        says="temperature|cosine|(logits|outputs?).*(small|range|narrow|bound)")  # fmt: skip
def cosines(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        return F.linear(F.normalize(m.body(x)), F.normalize(m.classifier)) / (1.0 if planted else 0.1)

    model, x = Parts(run, body=body(), classifier=nn.Parameter(torch.randn(40, 128))), digits(12, count=80)[0]
    return classes(model, x, torch.arange(80) % 40)


@report("coordinates that explode", GITHUB + "lucidrains/egnn-pytorch/pull/33", guilty="coors",
        fault="sums of raw differences move the coordinates, weights of the moves as PyTorch draws them",
        says=f"{BROKEN}|grow|explod|large")  # fmt: skip
def coordinates(planted: bool, d: int = 24) -> Task:
    def layer(m: Any, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        apart = x.unsqueeze(2) - x.unsqueeze(1)  # (B, N, N, 3)
        far = apart.square().sum(3, keepdim=True)
        one, two = h.unsqueeze(2).expand(-1, -1, 8, -1), h.unsqueeze(1).expand(-1, 8, -1, -1)
        message = m.edge(torch.cat([one, two, far], 3))
        return h + m.node(torch.cat([h, message.sum(2)], 2)), x + (apart * m.coors(message)).sum(2)

    def make() -> nn.Module:
        coors = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1, bias=False))
        if not planted:
            nn.init.xavier_uniform_(coors[2].weight, 0.001)  # type: ignore[arg-type]
        return Parts(layer, edge=nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()),
                     node=nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d)), coors=coors)  # fmt: skip

    def run(m: Any, charges: Tensor, x: Tensor) -> Tensor:
        h = m.embed(charges)
        for each_layer in m.layers:
            h, x = each_layer(h, x)
        return x

    model = Parts(run, embed=nn.Embedding(3, d), layers=each(4, make))
    charges, x = torch.randint(3, (32, 8)), 3 * torch.randn(32, 8, 3)
    moved = x - 0.3 * (x - x.mean(1, keepdim=True)) * (charges.unsqueeze(2) - 1)
    return Task(model, ((charges, x), moved), lambda: F.mse_loss(model(charges, x), moved), {"loss": F.mse_loss})


@report("equal factors", GITHUB + "NicolasHug/Surprise/issues/22", guilty="users|items",
        says="equal|same|symmetr|constant",
        fault="all factors of users and items start at 0.1, and stay equal to each other")  # fmt: skip
def factors(planted: bool) -> Task:
    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        return m.mean + m.bias_u(user).squeeze(1) + m.bias_i(item).squeeze(1) + (m.users(user) * m.items(item)).sum(1)

    model = Parts(run, users=nn.Embedding(40, 12), items=nn.Embedding(40, 12), bias_u=nn.Embedding(40, 1),
                  bias_i=nn.Embedding(40, 1), mean=nn.Parameter(torch.tensor(3.5)))  # fmt: skip
    for table in (model.bias_u, model.bias_i):
        nn.init.zeros_(table.weight)
    for table in (model.users, model.items):
        nn.init.constant_(table.weight, 0.1) if planted else nn.init.normal_(table.weight, 0.0, 0.1)
    ratings = 3.5 + torch.randn(40, 6) @ torch.randn(6, 40) / 2.5

    def draw() -> tuple[tuple[Tensor, Tensor], Tensor]:
        user, item = torch.randint(40, (2, 256))
        return (user, item), ratings[user, item]

    return stream(model, draw, F.mse_loss)
