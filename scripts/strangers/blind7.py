"""A seventh set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import bce, each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import SAME, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE, bright
from strangers.blind5 import TARGETS, UNITS, tensor
from strangers.blind6 import FORUM, ORDER, net2d
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind7")
LINEAR = r"\blinear (map|network|function|layers)|(is|are|stays?) linear|no non-?linear|activation.*(missing|between)"


def feed(d: int) -> nn.Sequential:
    return chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


def attend(d: int, layers: int = 2) -> dict[str, nn.Module]:
    """What layers of attention are made of."""
    return {"norms": each(layers, lambda: nn.LayerNorm(d)), "qkv": each(layers, lambda: nn.Linear(d, 3 * d)),
            "proj": each(layers, lambda: nn.Linear(d, d)), "net": each(layers, lambda: feed(d))}  # fmt: skip


@report("twice the attention", GITHUB + "kyegomez/BitNet/issues/32", guilty=r"qkv|proj",
        says=r"residual|skip|identity|vanish|fade",
        fault="x = attention(x), then x + x: what attention returns is doubled, its input is gone")  # fmt: skip
def doubled(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx) + m.places
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            found = proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(x))), is_causal=True)))
            x = found + (found if planted else x)
            x = x + net(x)
        return m.head(x).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 12))
        return (idx,), (idx + torch.cat([idx[:, :1], idx[:, :-1]], 1) % 2) % 12

    model = Parts(run, embed=nn.Embedding(12, d), places=tensor(12, d, std=0.3), head=nn.Linear(d, 12), **attend(d, 4))
    return stream(model, draw, F.cross_entropy)


@report("attention over the batch", GITHUB + "PetrochukM/PyTorch-NLP/issues/2", guilty=r"query|context",
        says=rf"{MIXED}|softmax",
        fault="scores (batch · queries, words) are softened over the first dimension: over examples")  # fmt: skip
def over_batch(planted: bool, d: int = 48) -> Task:
    def run(m: Any, asked: Tensor, seen: Tensor) -> Tensor:  # (B, 16), (B, 16, 20)
        q, c = m.query(asked), m.context(seen)
        scores = torch.einsum("bd,btd->bt", q, c)
        mix = torch.einsum("bt,btd->bd", scores.softmax(0 if planted else 1), c)
        return m.out(m.join(torch.cat([mix, q], 1)).tanh())

    def draw() -> Drawn:
        key, value, i = torch.rand(64, 16).argsort(1), torch.randn(64, 16, 4), torch.randint(16, (64,))
        rows = torch.arange(64)
        seen = torch.cat([2 * F.one_hot(key, 16), value], 2)
        return (F.one_hot(key[rows, i], 16).float(), seen), value[rows, i]

    model = Parts(run, query=nn.Linear(16, d), context=nn.Linear(20, d), join=nn.Linear(2 * d, d), out=nn.Linear(d, 4))
    return stream(model, draw, F.mse_loss)


@report("attention of ones", GITHUB + "phanideepgampa/stacked-capsule-networks/pull/5", guilty=r"look",
        says=r"softmax|attention|constant|no gradient",
        fault="attention of part capsules is a softmax over a dimension of one: every place weighs 1")  # fmt: skip
def of_ones(planted: bool, caps: int = 4) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.net(x)
        poses = m.poses(z).flatten(2).unflatten(1, (caps, 6))  # (B, capsules, 6, places)
        look = m.look(z).flatten(2).unsqueeze(2)  # (B, capsules, 1, places)
        return m.out((poses * look.softmax(2 if planted else 3)).sum(3).flatten(1))

    def draw() -> Drawn:
        place, colours = torch.randint(64, (48,)), torch.randn(48, 2, 8, 8)
        there = F.one_hot(place, 64).float().view(48, 1, 8, 8)
        return (torch.cat([3 * there, colours], 1),), (there * colours).sum((2, 3))

    model = Parts(run, net=net2d(3, 24), poses=nn.Conv2d(24, 6 * caps, 1), look=nn.Conv2d(24, caps, 1),
                  out=nn.Linear(6 * caps, 2))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("the place behind the last", GITHUB + "DiffPoseTalk/DiffPoseTalk/issues/20",
        says=r"position|order|place|same (code|vector|shift)|constant|permut|invarian",
        fault="pe[:, T] for pe[:, :T]: all steps get the code of the place behind the last one")  # fmt: skip
def behind(planted: bool, d: int = 48) -> Task:
    angle = torch.arange(40.0).unsqueeze(1) * torch.exp(-math.log(100.0) * torch.arange(0, d, 2) / d)
    code = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)

    def run(m: Any, speech: Tensor) -> Tensor:
        z = m.speech(speech)
        z = z + (code[z.shape[1]] if planted else code[: z.shape[1]])
        return m.motion(m.encoder(z))

    def draw() -> Drawn:
        speech = torch.randn(32, 10, 6)
        return (speech,), speech[..., :3] * torch.linspace(-1.5, 1.5, 10).unsqueeze(1) + 0.7 * speech[:, :1, 3:]

    layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, "gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return stream(Parts(run, speech=nn.Linear(6, d), encoder=encoder, motion=nn.Linear(d, 3)), draw, F.mse_loss)


@report("heads poured over tokens", GITHUB + "jsbaan/transformer-from-scratch/pull/6", guilty=r"qkv|proj|attn",
        says=ORDER,
        fault="(B, heads, T, d / heads) reshaped to (B, T, d) without a transposition")  # fmt: skip
def poured(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.embed(x)
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            found = F.scaled_dot_product_attention(*split(qkv(norm(z))))
            z = z + proj(found.reshape(z.shape) if planted else joined(found))
            z = z + net(z)
        return m.head(z).transpose(1, 2)

    def draw() -> Drawn:
        key, value, asked = torch.rand(32, 12).argsort(1), torch.randint(4, (32, 12)), torch.randint(12, (32, 12))
        found = value.gather(1, key.argsort(1).gather(1, asked))
        return (2 * torch.cat([F.one_hot(key, 12), F.one_hot(asked, 12), F.one_hot(value, 4)], 2).float(),), found

    return stream(Parts(run, embed=nn.Linear(28, d), head=nn.Linear(d, 4), **attend(d)), draw, F.cross_entropy)


@report("masks of other sentences", GITHUB + "lsdefine/attention-is-all-you-need-keras/issues/36",
        guilty=r"qkv|proj|attn", says=rf"mask|{MIXED}",
        fault="heads are stacked before examples, masks repeated after them: they are of other sentences")  # fmt: skip
def other_masks(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor, seen: Tensor) -> Tensor:
        z = m.embed(idx) + m.places
        mask = (seen.repeat_interleave(4, 0) if planted else seen.repeat(4, 1)).unsqueeze(1)  # (heads · B, 1, T)
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            q, k, v = (part.transpose(0, 1).flatten(0, 1) for part in split(qkv(norm(z))))
            scores = (q @ k.transpose(1, 2) / math.sqrt(d / 4)).masked_fill(~mask, -1e10)
            z = z + proj(joined((scores.softmax(2) @ v).unflatten(0, (4, -1)).transpose(0, 1)))
            z = z + net(z)
        return m.head(z[:, 0])

    def draw() -> Drawn:
        idx, length = torch.randint(20, (48, 14)), torch.randint(3, 15, (48,))
        word = torch.randint(20, (48, 1))
        seen = torch.arange(14) < length.unsqueeze(1)
        idx = torch.where(torch.arange(14) == length.unsqueeze(1) - 1, 20 + word, idx)  # a name at the end
        idx = torch.where(seen, idx, 20 + torch.randint(20, (48, 14)))  # left over from earlier batches
        return (idx, seen), word[:, 0] % 5

    model = Parts(run, embed=nn.Embedding(40, d), places=tensor(14, d, std=0.3), head=nn.Linear(d, 5), **attend(d))
    return stream(model, draw, F.cross_entropy)


@report("a plain list", GITHUB + "LianpoWang/SLIIF/issues/13",
        says=r"regist|ModuleList|plain list|not (a )?(part|param|submodule)|frozen|never (train|learn|move)|fixed",
        fault="the MLPs of an implicit function are in a Python list: no optimiser sees them")  # fmt: skip
def plain(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.coordinates(x)
        for net in m.mlps:
            z = z + net(z)
        return m.colour(z)

    def draw() -> Drawn:
        x = 2 * torch.rand(256, 2) - 1
        rings = (6 * x.norm(dim=1, keepdim=True)).sin()
        return (x,), torch.cat([rings, rings * x[:, :1].sign(), (4 * x[:, 1:]).cos()], 1)

    mlps = [chain(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(4)]
    model = Parts(run, coordinates=nn.Linear(2, d), mlps=mlps if planted else nn.ModuleList(mlps),
                  colour=nn.Linear(d, 3))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("a squashed action's density", GITHUB + "cpnota/autonomous-learning-library/issues/139", guilty=r"policy\.5",
        says=rf"{BROKEN}|logarithm|negative",
        fault="log(1 − a²) where actions are scaled to ±2: logarithms of negative numbers")  # fmt: skip
def squashed(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, logstd = m.policy(x).chunk(2, 1)
        raw = mean + logstd.clamp(-5, 1).exp() * torch.randn_like(mean)
        action = 2 * raw.tanh()
        logp = -(raw - mean).square() / (2 * (2 * logstd.clamp(-5, 1)).exp()) - logstd.clamp(-5, 1)
        return action, (logp - (1 - (action if planted else raw.tanh()).square() + 1e-6).log()).sum(1)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0] - t).square().sum(1).mean() + 0.05 * y[1].mean()

    def draw() -> Drawn:
        x = torch.randn(64, 3)
        return (x,), 1.2 * torch.cat([x[:, :1].tanh(), (x[:, 1:2] * x[:, 2:]).tanh()], 1)

    return stream(Parts(run, policy=mlp((3, 64, 64, 4))), draw, loss)


@report("two linear layers as one", GITHUB + "nutonomy/nuscenes-devkit/issues/728", guilty=r"first|second",
        says=LINEAR,
        fault="image features and the car's state go through two linear layers with nothing between them")  # fmt: skip
def trajectories(planted: bool) -> Task:
    time = torch.linspace(0.25, 1.5, 6)

    def run(m: Any, image: Tensor, state: Tensor) -> Tensor:
        z = m.first(torch.cat([m.backbone(image), state], 1))
        return m.second(z if planted else F.relu(z)).unflatten(1, (6, 2))

    def draw() -> Drawn:
        image, state = 0.3 * torch.randn(64, 1, 8, 8), torch.randn(64, 3)
        lane = torch.randn(64, 1)
        image[:, 0, 4] += lane
        speed, turn = 1 + state[:, :1].abs(), state[:, 1:2]
        reach = speed * time + 0.5 * state[:, 2:] * time.square()
        return (image, state), torch.stack([reach * (turn * time).cos(), reach * (turn * time).sin() + lane * time], 2)

    backbone = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten())
    return stream(Parts(run, backbone=backbone, first=nn.Linear(67, 128), second=nn.Linear(128, 12)), draw, F.mse_loss)


@report("words masked, padding kept", GITHUB + "mlwithme/TransformerTranslation/issues/6",
        guilty=r"qkv|proj|encoder", says=rf"{BROKEN}|mask|padding",
        fault="the mask of padding is 1 at words: it is these that are filled with −∞")  # fmt: skip
def kept(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        z, hidden = m.embed(idx) + m.places, ((idx > 0) if planted else (idx == 0))[:, None, None]
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            q, k, v = split(qkv(norm(z)))
            scores = (q @ k.transpose(2, 3) / math.sqrt(d / 4)).masked_fill(hidden, -torch.inf)
            z = z + proj(joined(scores.softmax(3) @ v))
            z = z + net(z)
        return m.head(z).transpose(1, 2)

    def draw() -> Drawn:
        length = torch.randint(4, 11, (32, 1))
        length[0] = 10
        idx = torch.randint(1, 12, (32, 10)).masked_fill(torch.arange(10) >= length, 0)
        return (idx,), idx.gather(1, (length - 1 - torch.arange(10)).clamp(min=0)).masked_fill(idx == 0, 0)

    model = Parts(run, embed=nn.Embedding(12, d), places=tensor(10, d), head=nn.Linear(d, 12), **attend(d))
    return stream(model, draw, F.cross_entropy)


@report("silent frames", GITHUB + "maxrmorrison/torchcrepe/issues/5",
        says=rf"{BROKEN}|silen|divi[ds]|deviation|constant",
        fault="each frame is divided by its own deviation, and that of silence is 0")  # fmt: skip
def silent(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(6, (48,))
        speed = (0.2 * 1.3**c).unsqueeze(1)
        x = (0.1 + torch.rand(48, 1)) * torch.sin(speed * torch.arange(96) + 6.28 * torch.rand(48, 1))
        x = x * (torch.rand(48, 1) > 0.1)  # digital silence
        x = x - x.mean(1, keepdim=True)
        deviation = x.std(1, keepdim=True)
        return ((x / (deviation if planted else deviation.clamp(min=1e-6))).unsqueeze(1),), c

    convs = [layer for n, m in ((1, 24), (24, 24), (24, 24)) for layer in (nn.Conv1d(n, m, 9, 2, 4), nn.ReLU())]
    return stream(chain(*convs, nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(48, 6)), draw, F.cross_entropy)


@report("determinants of all examples", GITHUB + "wohlert/semi-supervised-pytorch/issues/21", guilty=r"flows",
        says=rf"{MIXED}|determinant|summed|batch|{LARGE}",
        fault="log-determinants (B,) are summed again: every example is given those of all")  # fmt: skip
def determinants(planted: bool, d: int = 8) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logvar = m.encoder(x).chunk(2, 1)
        noise = torch.randn_like(mean)
        z, logdet = mean + (logvar / 2).exp() * noise, 0.0
        logq = -0.5 * (logvar + noise.square()).sum(1)
        for flow in m.flows:
            shift, scale = flow(z[:, : d // 2]).chunk(2, 1)
            z = torch.cat([z[:, d // 2 :] * scale.exp() + shift, z[:, : d // 2]], 1)
            logdet = logdet + scale.sum(1)
        return m.decoder(z), z, torch.stack([logq, torch.as_tensor(logdet)])

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor, again: bool = False) -> Tensor:
        logq, logdet = y[2]
        kl = logq - (logdet.sum() if again else logdet) + 0.5 * y[1].square().sum(1)
        return (y[0] - t).square().sum(1).mean() + 0.1 * kl.mean()

    def draw() -> Drawn:
        x = torch.randn(64, 3)
        x = torch.cat([x, (2 * x[:, :1]).sin(), x[:, 1:2] * x[:, 2:], x @ way], 1)
        return (x,), x

    way = torch.randn(3, 7)
    model = Parts(
        run, encoder=mlp((12, 64, 2 * d)), decoder=mlp((d, 64, 12)), flows=each(2, lambda: mlp((d // 2, 24, d)))
    )
    return stream(model, draw, partial(loss, again=planted), loss)


@report("a warm positive", GITHUB + "RElbers/info-nce-pytorch/pull/17", guilty=r"net|twin",
        says=r"temperature|logits?|scale",
        fault="negative logits are divided by the temperature of 0.05, the positive one is not")  # fmt: skip
def warm(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], _: Tensor, heat: float = 0.05) -> Tensor:
        cosine = y[0] @ y[1].t()
        good, bad = cosine.diagonal(), cosine.masked_fill(torch.eye(len(cosine)) > 0, -torch.inf) / 0.05
        return (torch.cat([(good / heat).unsqueeze(1), bad], 1).logsumexp(1) - good / heat).mean()

    def draw() -> Drawn:
        z = torch.randn(64, 8)
        views = [torch.cat([z @ way, torch.randn(64, 8)], 1) + 0.3 * torch.randn(64, 32) for way in ways]
        return (views[0], views[1]), torch.zeros(64)

    ways = torch.randn(2, 8, 24) / 3
    model = Parts(lambda m, a, b: (F.normalize(m.net(a)), F.normalize(m.twin(b))), net=mlp((32, 96, 16)),
                  twin=mlp((32, 96, 16)))  # fmt: skip
    return stream(model, draw, partial(loss, heat=1.0 if planted else 0.05), loss)


@report("densities that underflow", GITHUB + "keras-team/keras/issues/1061", guilty=r"net\.5",
        says=rf"{BROKEN}|underflow|logarithm|density|{TARGETS}",
        fault="exponentials are summed before the logarithm of a mixture's density: far off they are 0")  # fmt: skip
def densities(planted: bool, k: int = 5) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        weight, logstd = y[:, :k].log_softmax(1), y[:, k : 2 * k]
        far = (t.unsqueeze(1) - y[:, 2 * k :].unflatten(1, (k, 2))).square().sum(2)
        logs = weight - far / (2 * (2 * logstd).exp()) - 2 * logstd
        return -(logs.exp().sum(1).log() if planted else logs.logsumexp(1)).mean()

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        side = (torch.rand(64, 1) < 0.5).float() * 2 - 1
        return (x,), torch.cat([6 * x[:, :1] + 8 * side, 10 * x[:, 1:2].tanh()], 1) + 0.3 * torch.randn(64, 2)

    return stream(Parts(lambda m, x: m.net(x), net=mlp((4, 64, 64, 4 * k))), draw, loss)


@report("nine of ten dropped", GITHUB + "bonlime/keras-deeplab-v3-plus/issues/4", says=r"drop|nois|random",
        fault="the share to keep is taken for the share to drop: 0.9 before the last convolution")  # fmt: skip
def nine(planted: bool, d: int = 16) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.stem(x)
        return m.head(m.drop(F.relu(m.join(torch.cat([branch(z) for branch in m.aspp], 1)))))

    def draw() -> Drawn:
        x, c = pick(24)
        x = x.roll((int(torch.randint(3, ())), 1), (2, 3))
        return (x + 0.3 * torch.randn_like(x),), ((x[:, 0] > 0) * (1 + c % 3).view(-1, 1, 1)).long()

    aspp = nn.ModuleList(chain(nn.Conv2d(d, d, 3, padding=r, dilation=r), nn.ReLU()) for r in (1, 2, 3))
    model = Parts(run, stem=net2d(1, d, d), aspp=aspp, join=nn.Conv2d(3 * d, 2 * d, 1),
                  drop=nn.Dropout(0.9 if planted else 0.1), head=nn.Conv2d(2 * d, 4, 1))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("information minimised", GITHUB + "11-626/Deep-INFOMAX/issues/1", guilty=r"score",
        says=r"sign|wrong way|unbounded|negative|minimi[sz]|maximi[sz]|below",
        fault="minus signs where there should be none: the estimate of information is minimised")  # fmt: skip
def infomax(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.local(x)  # (B, 16, 4, 4)
        whole = m.encoder(z.flatten(1))
        pair = torch.cat([z, z.roll(1, 0)], 0).flatten(2).transpose(1, 2)
        both = torch.cat([pair, whole.repeat(2, 1).unsqueeze(1).expand(-1, 16, -1)], 2)
        return m.score(both).flatten(1).unflatten(0, (2, -1))

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return F.softplus(-y[0]).mean() + F.softplus(y[1]).mean()

    def draw() -> Drawn:
        return (torch.randn(48, 3, 1, 1) + 0.3 * torch.randn(48, 3, 8, 8),), torch.zeros(48)

    model = Parts(run, local=chain(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU()), encoder=mlp((256, 64, 24)),
                  score=mlp((40, 64, 64, 1))[1:])  # fmt: skip
    return stream(model, draw, lambda y, t: -loss(y, t) if planted else loss(y, t), loss)


@report("rows of padding", GITHUB + "hyunwoongko/transformer/pull/40", guilty=r"qkv|proj|encoder",
        says=rf"{BROKEN}|mask|padding",
        fault="the mask is laid on queries, not on keys: rows of padding are −∞ throughout")  # fmt: skip
def rows(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        z, hidden = m.embed(idx), (idx == 0).unsqueeze(1).unsqueeze(3 if planted else 2)
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            q, k, v = split(qkv(norm(z)))
            scores = (q @ k.transpose(2, 3) / math.sqrt(d / 4)).masked_fill(hidden, -torch.inf)
            z = z + proj(joined(scores.softmax(3) @ v))
            z = z + net(z)
        return m.head(z[:, 0])

    def draw() -> Drawn:
        idx = torch.randint(1, 20, (48, 12))
        idx = idx.masked_fill(torch.arange(12) >= torch.randint(4, 13, (48, 1)), 0)
        return (idx,), (idx % 4 == 1).sum(1).clamp(max=4)

    model = Parts(run, embed=nn.Embedding(20, d), head=nn.Linear(d, 5), **attend(d))
    return stream(model, draw, F.cross_entropy)


PAGES = "https://openillumi.com/en/en-pytorch-"


@report("beats per minute", "https://newbe.dev/pytorch-binary-classification-same-network-structure-simpler-data-but-"
        "worse-performance", guilty=r"net\.1", says=rf"{UNITS}|satur|offset",
        fault="heart rates around 92 go into a layer of sigmoids as they are")  # fmt: skip
def beats(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(128, 2)
        t = (x.norm(dim=1, keepdim=True) < 1.1).float()
        return (92 + 14 * x if planted else x,), t

    return stream(Parts(lambda m, x: m.net(x), net=mlp((2, 32, 1), act=nn.Sigmoid)), draw, bce)


@report("four sigmoids", FORUM + "simple-linear-sigmoid-network-not-learning/98714", guilty=r"net",
        says=r"sigmoid|satur|positive|narrow|width|MSE|squared",
        fault="four sigmoids of weights of U(0, 1), and a squared error behind one more sigmoid")  # fmt: skip
def gates(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y.sigmoid(), t) if planted else bce(y, t)

    def draw() -> Drawn:
        x = torch.randint(2, (64, 2))
        return (x.float(),), (x[:, :1] == x[:, 1:]).float()

    net = mlp((2, 4, 1), act=nn.Sigmoid) if planted else mlp((2, 16, 1), act=nn.Tanh)
    for layer in net[1::2] if planted else ():
        nn.init.uniform_(layer.weight)
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, loss, bce)


@report("roots of nothing", FORUM + "function-mselossbackward-returned-nan-values-in-its-0th-output/94875",
        guilty=r"net\.5", says=rf"{BROKEN}|root|sqrt",
        fault="the root of each series' error: of a masked one that is √0, of infinite slope")  # fmt: skip
def roots(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        known = (t != 0).float()
        return ((y * known - t).square().mean(1) + (0.0 if planted else 1e-6)).sqrt().mean()

    def draw() -> Drawn:
        speed, phase = 0.3 + 0.5 * torch.rand(64, 1), 6.28 * torch.rand(64, 1)
        x = torch.sin(speed * torch.arange(20) + phase)
        return (x[:, :16],), x[:, 16:] * (torch.rand(64, 1) > 0.1)

    return stream(Parts(lambda m, x: m.net(x), net=mlp((16, 64, 64, 4))), draw, loss)


@report("a squeeze to nowhere", FORUM + "why-the-model-fail-to-converge-without-a-manul-weight-initialization/50431",
        guilty=r"net\.3", says=rf"{MIXED}|broadcast|shape",
        fault="x.squeeze() is not assigned: answers (B, 1) against targets (B,) make all pairs")  # fmt: skip
def nowhere(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(100, 3)
        return (x,), 1.5 * x[:, 0] + x[:, 1].abs() + 0.1 * torch.randn(100) - 0.8

    def right(y: Tensor, t: Tensor) -> Tensor:
        return (y.flatten() - t).square().mean()

    net = mlp((3, 32, 1))
    return stream(
        Parts(lambda m, x: m.net(x), net=net), draw, (lambda y, t: (y - t).square().mean()) if planted else right, right
    )


@report("a decoder fed zeros", PAGES + "transformer-multidim-output-same-fix", guilty=r"shown|decoder\.self_attn",
        says=rf"{SAME}|zeros?|decoder|all alike|same",
        fault="the decoder's inputs are zeros in place of the frames so far: all steps come out alike")  # fmt: skip
def zeros(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor, before: Tensor) -> Tensor:
        seen = m.encoder(m.seen(x) + m.places)
        before = torch.zeros_like(before) if planted else before
        mask = nn.Transformer.generate_square_subsequent_mask(8)
        return m.out(m.decoder(m.shown(before), seen, tgt_mask=mask, tgt_is_causal=True))

    def draw() -> Drawn:
        speed, phase = 0.3 + torch.rand(32, 1, 3), 6.28 * torch.rand(32, 1, 3)
        x = torch.sin(speed * torch.arange(17).unsqueeze(1) + phase)
        return (x[:, :8], x[:, 8:16]), x[:, 9:]

    encoder, decoder = (
        layer(d, 4, 2 * d, 0.0, batch_first=True) for layer in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )
    model = Parts(run, seen=nn.Linear(3, d), places=tensor(8, d), shown=nn.Linear(3, d), encoder=encoder,
                  decoder=decoder, out=nn.Linear(d, 3))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("a mask left over", PAGES + "transformer-non-ar-seq2seq-mask-guide", guilty=r"self_attn",
        says=r"mask|causal|future|later|(steps?|frames?).*(not reach|no effect|ignor|unused)",
        fault="spectrograms become spectrograms under a causal mask: later frames are hidden")  # fmt: skip
def left_over(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(12) if planted else None
        return m.out(m.encoder(m.embed(x) + m.places, mask))

    def draw() -> Drawn:
        x = torch.randn(32, 12, 8)
        return (x,), 0.7 * (x.roll(-1, 1) + x.roll(1, 1))

    layer = nn.TransformerEncoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True)
    model = Parts(run, embed=nn.Linear(8, d), places=tensor(12, d), out=nn.Linear(d, 8),
                  encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("no logit below zero", "http://www.dtcms.com/a/394596.html", guilty=r"out",
        says=r"ReLU|rectif|negative|only positive|\bsign\b|non-negative",
        fault="masks are logits behind a ReLU: no pixel can be less likely than a half")  # fmt: skip
def below(planted: bool, d: int = 16) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        one = m.one(x)
        two = F.interpolate(m.two(F.max_pool2d(one, 2)), scale_factor=2)
        y = m.out(torch.cat([one, two], 1))
        return F.relu(y) if planted else y

    def draw() -> Drawn:
        line, middle = torch.arange(16.0), 3 + 10 * torch.rand(24, 2, 1)
        far = (line - middle[:, :1]).square() + (line - middle[:, 1:]).square().transpose(1, 2)
        t = (far < 9).float().unsqueeze(1)
        return (t + 0.6 * torch.randn(24, 1, 16, 16),), t

    return stream(Parts(run, one=net2d(1, d, d), two=net2d(d, d, d), out=nn.Conv2d(2 * d, 1, 1)), draw, bce)


@report("columns of other lines", FORUM + "lstm-change-batch-first-true-loss-does-not-decrease/62364", guilty=r"lstm",
        says=rf"{MIXED}|batch_first|{ORDER}",
        fault="columns first, examples second, into an LSTM with batch_first: it runs over examples")  # fmt: skip
def columns(planted: bool, d: int = 24) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = m.convs(x).flatten(1, 2).permute(2, 0, 1)  # (columns, B, features)
        return m.out(m.lstm(z)[0]).permute(1, 2, 0)

    def draw() -> Drawn:
        t = torch.randint(6, (32, 6))
        x = glyphs[t].permute(0, 2, 1, 3).flatten(2).unsqueeze(1)
        return (x + 0.3 * torch.randn_like(x),), torch.cat([t[:, :2], t[:, :-2]], 1)

    glyphs = torch.randn(6, 8, 4).sign()
    convs = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, (4, 2), 1), nn.ReLU())
    model = Parts(
        run, convs=convs, lstm=nn.LSTM(16, d, bidirectional=True, batch_first=planted), out=nn.Linear(2 * d, 6)
    )
    return stream(model, draw, F.cross_entropy)


@report("a softmax of one", "https://boohere.com/in/detail/80265.html", guilty=r"net\.(9|10)",
        says=rf"softmax|{SAME}|no gradient",
        fault="the one output of a binary classifier has a softmax: it is 1 for all inputs")  # fmt: skip
def of_one(planted: bool) -> Task:
    def draw() -> Drawn:
        x, c = pick(48)
        return (x + 0.5 * torch.randn_like(x),), (c > 4).float().unsqueeze(1)

    convs = [layer for n, m in ((1, 16), (16, 32)) for layer in (nn.Conv2d(n, m, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2))]
    net = chain(*convs, nn.Flatten(), nn.Linear(128, 48), nn.ReLU(), nn.Linear(48, 1),
                nn.Softmax(1) if planted else nn.Sigmoid())  # fmt: skip
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, F.binary_cross_entropy)


@report("targets beyond one", "https://m.imooc.com/wenda/detail/386534", guilty=r"net\.[56]",
        says=rf"sigmoid|satur|range|{TARGETS}",
        fault="the last layer is a sigmoid, and targets are some tens")  # fmt: skip
def beyond(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y, t) / 100

    def draw() -> Drawn:
        x = torch.randn(64, 5)
        return (x,), 20 + 10 * (x[:, :1].sin() + x[:, 1:2] * x[:, 2:3].tanh())

    last = [nn.Sigmoid()] if planted else []
    return stream(Parts(lambda m, x: m.net(x), net=mlp((5, 64, 64, 1), *last, act=nn.Sigmoid)), draw, loss)


@report("cubes of thousands", FORUM + "neural-network-could-not-learn-on-this-type-of-data-why/96648", guilty=r"net",
        says=rf"{UNITS}|{TARGETS}|{LARGE}",
        fault="numbers of 1 to 4000 in, their cubes out, of up to 6.4 · 10¹⁰, both as they are")  # fmt: skip
def cubes(planted: bool) -> Task:
    unit = 1.8e10

    def run(m: Any, x: Tensor) -> Tensor:
        return m.net(x) if planted else unit * m.net((x - 2000) / 1155) + 1.6e10

    def draw() -> Drawn:
        x = 1 + 4000 * torch.rand(64, 1)
        return (x,), x**3

    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t) / unit).square().mean()

    return stream(Parts(run, net=mlp((1, 50, 1))), draw, F.mse_loss if planted else right, right)


@report("prices in dollars", "https://stats.stackexchange.com/questions/409000/should-we-normalize-target-data-as-well-"
        "as-input-data", guilty=r"net\.5", says=rf"{TARGETS}|offset|bias",
        fault="prices of houses, 250 000 ± 100 000 dollars, are learnt as they are from a bias of 0")  # fmt: skip
def prices(planted: bool) -> Task:
    def run(m: Any, kind: Tensor, x: Tensor) -> Tensor:
        y = m.net(torch.cat([m.kinds(kind), x], 1))
        return y if planted else 250000 + 100000 * y

    def right(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t) / 100000).square().mean()

    def draw() -> Drawn:
        kind, x = torch.randint(5, (128,)), torch.randn(128, 8)
        size = x[:, :1] * x[:, 1:2].sigmoid() + 0.5 * x[:, 2:3].abs() + worth[kind].unsqueeze(1)
        return (kind, x), 250000 + 80000 * size

    worth = torch.tensor([-1.0, -0.5, 0.0, 0.2, 0.5])
    model = Parts(run, kinds=nn.Embedding(5, 4), net=mlp((12, 64, 64, 1)))
    return stream(model, draw, F.mse_loss if planted else right, right)


@report("likelihoods of raw scores", "https://codestudyblog.com/8ten8/80409021901.html", guilty=r"^5\.",
        says=r"log-?softmax|logarithm|probabilit|negative|unbounded|below",
        fault="nll_loss takes scores that are no logarithms of probabilities: it falls without end")  # fmt: skip
def raw(planted: bool) -> Task:
    return stream(mlp((64, 96, 96, 10)), bright, F.nll_loss if planted else F.cross_entropy, F.cross_entropy)


@report("softened twice", FORUM + "cross-entropy-loss-is-not-decreasing/43814", guilty=r"net\.[78]",
        says=r"softmax|twice|probabilit|logit",
        fault="a softmax before the cross-entropy, which has its own")  # fmt: skip
def twice(planted: bool) -> Task:
    last = [nn.Softmax(1)] if planted else []
    net = mlp((64, 96, 96, 48, 10), *last)
    return stream(Parts(lambda m, x: m.net(x), net=net), bright, F.cross_entropy)
