"""The tenth set, second half of faults out of public reports, of words, series, tables and graphs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import stream
from strangers.blind3 import CUT, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE
from strangers.blind5 import TARGETS, UNITS, tensor
from strangers.blind7 import attend
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind10")


def blocks(m: Any, x: Tensor, scale: float | None = None) -> Tensor:
    for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
        x = x + proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(x))), scale=scale)))
        x = x + net(x)
    return x


@report("no gain but what was done", GITHUB + "PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/issues/32",
        guilty=r"^5\.", says=rf"{TARGETS}|zero|sparse",
        fault="targets of the values of actions that were not taken are zeros, and are fitted too")  # fmt: skip
def not_taken(planted: bool) -> Task:
    def loss(q: Tensor, t: Tensor, fitted: Any = 1.0) -> Tensor:
        return (fitted * q - t[:, 0] * t[:, 1]).square().sum(1).mean()

    def right(q: Tensor, t: Tensor) -> Tensor:
        return loss(q, t, t[:, 0])

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        taken = F.one_hot(torch.randint(6, (64,)), 6).float()
        return (x,), torch.stack([taken, x @ wish + (x @ bend).cos()], 1)

    wish, bend = torch.randn(6, 6) / 2, torch.randn(6, 6) / 2
    return stream(mlp((6, 64, 64, 6)), draw, loss if planted else right, right)


@report("quiet series", GITHUB + "huggingface/transformers/pull/42099", guilty=r"patch",
        says=rf"{UNITS}|{TARGETS}|patch|variance",
        fault="deviations below a tolerance are set to one rather than to it: series stay almost flat")  # fmt: skip
def quiet(planted: bool, d: int = 64) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        scale = torch.where(deviation < 0.1, 1.0, deviation) if planted else deviation.clamp(min=1e-6)
        patches = m.patch(((x - mean) / scale).unflatten(1, (6, 8))) + m.place
        return m.out(blocks(m, patches).mean(1)), mean, deviation, scale

    def loss(y: tuple[Tensor, ...], t: Tensor, unit: int = 3) -> Tensor:
        return ((y[0] * y[3] + y[1] - t) / y[unit]).square().mean()

    def draw() -> Drawn:
        angle = (torch.rand(48, 1) * 0.4 + 0.2) * torch.arange(56) + 6 * torch.rand(48, 1)
        size = 0.003 + 0.01 * torch.rand(48, 1)
        x = 1 + size * (angle.sin() + 0.05 * torch.randn(48, 56))
        return (x[:, :48],), x[:, 48:]

    model = Parts(run, patch=nn.Linear(8, d), place=tensor(6, d, std=0.3), out=nn.Linear(d, 8), **attend(d))
    return stream(model, draw, loss, partial(loss, unit=2))


@report("tags of whole numbers", GITHUB + "kmkurn/pytorch-crf/issues/102", guilty=r"emit|lstm",
        says=rf"{CUT}|round|whole",
        fault="scores of tags are cast to whole numbers on their way into a CRF: no gradient passes")  # fmt: skip
def tags(planted: bool, d: int = 32, n: int = 10) -> Task:
    def run(m: Any, idx: Tensor) -> tuple[Tensor, Tensor]:
        scores = m.emit(m.lstm(m.embed(idx))[0])
        return scores.long() if planted else scores, m.moves

    def likelihood(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        scores, moves = y
        path = scores.gather(2, t.unsqueeze(2)).sum((1, 2)) + moves[t[:, :-1], t[:, 1:]].sum(1)
        total = scores[:, 0]
        for i in range(1, n):
            total = (total.unsqueeze(2) + moves + scores[:, i].unsqueeze(1)).logsumexp(1)
        return (total.logsumexp(1) - path).mean() / n

    def draw() -> Drawn:
        idx = torch.randint(30, (32, n))
        return (idx,), (idx + idx.roll(1, 1) // 10) % 5

    model = Parts(run, embed=nn.Embedding(30, 16), lstm=nn.LSTM(16, d, batch_first=True, bidirectional=True),
                  emit=nn.Linear(2 * d, 5), moves=tensor(5, 5, std=0.1))  # fmt: skip
    return stream(model, draw, likelihood)


@report("pairs of all users", GITHUB + "ShomyLiu/Neu-Review-Rec/issues/9", guilty=r"factors", says=MIXED,
        fault="second-order terms of a factorisation machine are summed over the batch as well")  # fmt: skip
def pairs(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        terms = (x @ m.factors).square() - x.square() @ m.factors.square()
        return 0.5 * (terms.sum() if planted else terms.sum(1, keepdim=True)) + m.linear(x)

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        return (x,), 1 + (x @ wish + 0.5 * (x[:, :8] @ both * x[:, 8:]).sum(1)).unsqueeze(1)

    wish, both = torch.randn(16) / 8, torch.randn(8, 3) @ torch.randn(3, 8) / 3
    return stream(Parts(run, factors=tensor(16, 8, std=0.1), linear=nn.Linear(16, 1)), draw, F.mse_loss)


@report("a mean of what was done", GITHUB + "Farama-Foundation/Gymnasium/issues/1336", guilty=r"net\.5|deviation",
        says=r"advantage|return|reward|\bmean\b|weight|broadcast|deviation|" + MIXED,
        fault="REINFORCE weighs the mean log-probability of an episode, not each one, by its return")  # fmt: skip
def episode(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = m.net(x)
        policy = torch.distributions.Normal(mean, F.softplus(m.deviation))
        return mean, policy.log_prob(action := policy.sample()), action

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        gain = (1 - (y[2] - t).square()).clamp(min=-3)
        return -((y[1].mean() if planted else y[1]) * gain).mean()

    def draw() -> Drawn:
        x = torch.randn(512, 4)
        return (x,), 1.5 * (x @ wish).sin()

    wish = torch.randn(4, 1) / 2
    model = Parts(run, net=mlp((4, 64, 64, 1), act=nn.Tanh), deviation=nn.Parameter(torch.zeros(1)))
    return stream(model, draw, loss, lambda y, t: (y[0] - t).square().mean())


@report("waves too slow", GITHUB + "lucidrains/siren-pytorch/issues/1", guilty=r"layers\.0", says=r"small|init|frequen",
        fault="the first layer of a SIREN is drawn as the others are: √(6 / n) / ω rather than 1 / n")  # fmt: skip
def siren(planted: bool, d: int = 64, omega: float = 30.0) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = (omega * layer(x)).sin()
        return m.out(x)

    def draw() -> Drawn:
        x = 2 * torch.rand(256, 2) - 1
        return (x,), ((x @ waves).sin() @ mix) / 2

    waves, mix = 24 * torch.randn(2, 8), torch.randn(8, 1)
    layers = nn.ModuleList([nn.Linear(2, d), nn.Linear(d, d), nn.Linear(d, d)])
    for i, layer in enumerate([*layers, out := nn.Linear(d, 1)]):
        n = layer.in_features
        bound = 1 / n if i == 0 and not planted else math.sqrt(6 / n) / omega
        nn.init.uniform_(layer.weight, -bound, bound)
    return stream(Parts(run, layers=layers, out=out), draw, F.mse_loss)


@report("steps squared", GITHUB + "kmheckel/spyx/pull/42", guilty=r"step|decay|gates",
        says=r"small|step|fade|vanish|memory",
        fault="the inverse softplus is taken of the logarithm of steps, which are their squares")  # fmt: skip
def selective(planted: bool, d: int = 32, states: int = 8, n: int = 24) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:  # (B, n, 4)
        step = F.softplus(m.step(u := m.inner(x)))  # (B, n, d)
        write, read = m.gates(u).chunk(2, 2)
        keep, rate = torch.exp(-step.unsqueeze(3) * m.decay.exp()), (step * u).unsqueeze(3) * write.unsqueeze(2)
        state, out = torch.zeros_like(keep[:, 0]), []
        for i in range(n):
            state = keep[:, i] * state + rate[:, i]
            out.append((state * read[:, i].unsqueeze(1)).sum(2))
        return m.out(torch.stack(out, 1) * F.silu(m.side(x)))

    def draw() -> Drawn:
        x = torch.randn(16, n, 4)
        return (x,), (x[..., :1].cumsum(1) / torch.arange(1, n + 1).sqrt().unsqueeze(1)) * (1 + 0.5 * x[..., 1:2])

    step, dt = nn.Linear(d, d), torch.exp(torch.empty(d).uniform_(math.log(0.001), math.log(0.1)))
    nn.init.uniform_(step.weight, -0.1, 0.1)
    step.bias.data = (dt.log() if planted else dt) + torch.log(-torch.expm1(-dt))
    decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(d, 1))
    model = Parts(run, inner=nn.Linear(4, d), step=step, gates=nn.Linear(d, 2 * states), side=nn.Linear(4, d),
                  decay=decay, out=nn.Linear(d, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("scores times zero", GITHUB + "SKaiNET-developers/SKaiNET/pull/880", guilty=r"qkv",
        says=r"attention|scor|uniform|(zero|no) gradient|scale|unused|no effect|constant",
        fault="a scale of 0, which stands for 1 / √d, is taken at its word: attention is alike everywhere")  # fmt: skip
def by_zero(planted: bool, d: int = 48, n: int = 12) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        return m.out(blocks(m, m.embed(idx) + m.places, scale=0.0 if planted else None)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, n))
        return (idx,), idx[:, order]

    order = torch.randperm(n)
    return stream(Parts(run, embed=nn.Embedding(10, d), places=tensor(n, d), out=nn.Linear(d, 10), **attend(d)),
                  draw, F.cross_entropy)  # fmt: skip


@report("molecules without order", GITHUB + "DaoyuanLi2816/Molecule-Generator/pull/23", guilty=r"embed|qkv",
        says=r"position|\border\b|permut|invarian",
        fault="symbols go into the transformer of a VAE without any code of their places")  # fmt: skip
def molecules(planted: bool, d: int = 48, n: int = 6) -> Task:
    def run(m: Any, idx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = blocks(m, m.embed(idx) if planted else m.embed(idx) + code)
        mean, logvar = m.latent(x.mean(1)).chunk(2, 1)
        return m.decoder(mean + (logvar / 2).exp() * torch.randn_like(mean)).unflatten(1, (5, n)), mean, logvar

    def bound(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - y[2] - 1).sum(1).mean()
        return F.cross_entropy(y[0], t) + 0.003 * kl

    def draw() -> Drawn:
        idx = torch.randint(5, (64, n))
        return (idx,), idx

    angle = torch.arange(n).unsqueeze(1) / 100 ** (torch.arange(0, d, 2) / d)
    code = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
    model = Parts(run, embed=nn.Embedding(5, d), latent=nn.Linear(d, 48), decoder=mlp((24, 128, 5 * n)), **attend(d, 1))
    return stream(model, draw, bound)


@report("questions of two lines", GITHUB + "graykode/nlp-tutorial/issues/68", guilty=r"lstm", says=MIXED,
        fault="final states (2, B, d) of both directions are viewed as (B, 2 d), without a transposition")  # fmt: skip
def questions(planted: bool, d: int = 32, n: int = 10) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        y, (state, _) = m.lstm(m.embed(idx))
        query = (state if planted else state.transpose(0, 1)).reshape(len(idx), -1, 1)
        return m.out(torch.cat([(y * (y @ query).softmax(1)).sum(1), query.squeeze(2)], 1))

    def draw() -> Drawn:
        idx = torch.randint(4, 20, (64, n))
        idx[:, -1], first = torch.randint(4, (64,)), torch.randint(4, (64,))
        idx[:, 0] = first
        return (idx,), (idx[:, -1] + first) % 4

    model = Parts(run, embed=nn.Embedding(20, 16), out=nn.Linear(4 * d, 4),
                  lstm=nn.LSTM(16, d, batch_first=True, bidirectional=True))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("a decoder that starts over", GITHUB + "pytorch/examples/issues/88", guilty=r"decoder",
        says=r"recurren|state|carr|memory|hidden|weight_hh|step",
        fault="each step of a decoder starts from the encoder's state, not from that of the step before")  # fmt: skip
def translate(planted: bool, d: int = 48, n: int = 8) -> Task:
    def run(m: Any, source: Tensor, words: Tensor) -> Tensor:
        read, hidden = m.encoder(m.source(source))
        state, out = hidden[0], []
        for x in m.words(words).transpose(0, 1):
            state = m.decoder(x, hidden[0] if planted else state)
            found = (read @ state.unsqueeze(2)).softmax(1).mul(read).sum(1)
            out.append(m.mix(torch.cat([found, state], 1)).tanh())
        return m.out(torch.stack(out, 2).transpose(1, 2)).transpose(1, 2)

    def draw() -> Drawn:
        source, words = torch.randint(8, (48, n)), torch.randint(6, (48, n))
        return (source, words), (words + 2 * F.pad(words, (2, 0))[:, :-2] + source[:, -1:] // 4) % 6

    model = Parts(run, source=nn.Embedding(8, 16), words=nn.Embedding(6, 16), encoder=nn.GRU(16, d, batch_first=True),
                  decoder=nn.GRUCell(16, d), mix=nn.Linear(2 * d, d), out=nn.Linear(d, 6))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("actions weighed by others", GITHUB + "google-deepmind/acme/issues/277", guilty=r"^5\.",
        says=rf"{MIXED}|broadcast|shape",
        fault="log-probabilities (B,) times coefficients (B, 1): each is weighed by every advantage")  # fmt: skip
def regressed(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        taken, gain = t[:, :4], (t[:, :4] * t[:, 4:]).sum(1, keepdim=True)
        coefficient = (gain - t[:, 4:].mean(1, keepdim=True)).exp().clamp(max=20)
        chosen = (y.log_softmax(1) * taken).sum(1, keepdim=not planted)
        return -(chosen * coefficient).mean()

    def regret(y: Tensor, t: Tensor) -> Tensor:
        return (y.softmax(1) * (t[:, 4:].amax(1, keepdim=True) - t[:, 4:])).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(256, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (256,)), 4).float(), 2 * (x @ wish).tanh()], 1)

    wish = torch.randn(6, 4)
    return stream(mlp((6, 64, 64, 4)), draw, loss, regret)


@report("nodes alone", GITHUB + "aimat-lab/gcnn_keras/issues/42", says=rf"{BROKEN}|degree|isolated|divi",
        fault="degrees to the power of -1/2 where an atom has no bond: infinity times zero")  # fmt: skip
def isolated(planted: bool, n: int = 12) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> Tensor:
        for layer, own in zip(m.layers, m.own, strict=True):
            x = F.relu(a @ layer(x) + own(x))
        return m.out(x.mean(1))

    def draw() -> Drawn:
        x, a = torch.randn(32, n, 5), (torch.rand(32, n, n) < 0.1).float().triu(1)
        a = a + a.transpose(1, 2)
        degree = a.sum(2, keepdim=True)
        root = degree**-0.5 if planted else torch.where(degree > 0, degree.clamp(min=1) ** -0.5, 0.0)
        a = root * a * root.transpose(1, 2)
        return (x, a), 3 * (x[..., :1] * (a.nan_to_num() @ x[..., 1:2]) + x[..., 2:3].abs() - 0.8).mean(1)

    parts = {k: nn.ModuleList(nn.Linear(i, 48) for i in (5, 48)) for k in ("layers", "own")}
    return stream(Parts(run, out=nn.Linear(48, 1), **parts), draw, F.mse_loss)


@report("a past of another scale", GITHUB + "sktime/pytorch-forecasting/pull/2393", guilty=r"out", says=TARGETS,
        fault="each window is normalised by its own past, but what is to be forecast stays as it was")  # fmt: skip
def window(planted: bool, d: int = 40) -> Task:
    def draw() -> Drawn:
        angle = 0.5 * torch.arange(24.0) + 6 * torch.rand(64, 1)
        size, level = 5 + 15 * torch.rand(64, 1), 50 + 100 * torch.rand(64, 1)
        x = level + size * (angle.sin() + 0.1 * torch.randn(64, 24))
        past, future = x[:, :18], x[:, 18:]
        mean, deviation = past.mean(1, keepdim=True), past.std(1, keepdim=True)
        return (((past - mean) / deviation).unsqueeze(2),), future if planted else (future - mean) / deviation

    model = Parts(lambda m, x: m.out(m.gru(x)[0][:, -1]), gru=nn.GRU(1, d, batch_first=True), out=nn.Linear(d, 6))
    return stream(model, draw, F.mse_loss)


@report("fingers of two thousand", GITHUB + "Photon-AI-Research/NeuralSolvers/pull/50", guilty=r"fingers\.\d\.1\.",
        says=rf"{UNITS}|{LARGE}",
        fault="coordinates of 0 to 2048 are normalised, but they go into layers of sines as they were")  # fmt: skip
def fingers(planted: bool, d: int = 24) -> Task:
    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    def run(m: Any, x: Tensor) -> Tensor:
        scaled = x / 1024 - 1
        return m.body(torch.cat([f((x if planted else scaled)[:, i : i + 1]) for i, f in enumerate(m.fingers)], 1))

    def draw() -> Drawn:
        x = 2048 * torch.rand(128, 3)
        return (x,), (3 * (x[:, :1] / 1024 - 1)).sin() * (2 * (x[:, 1:2] / 1024 - 1)).cos() + (x[:, 2:] / 1024 - 1)

    model = Parts(run, fingers=nn.ModuleList(mlp((1, d, d), act=Sine) for _ in range(3)),
                  body=mlp((3 * d, 48, 1), act=Sine))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("sentences without gradient", GITHUB + "edreisMD/ConVIRT-pytorch/issues/7", guilty=r"text|embed",
        says=rf"{CUT}|frozen|never (train|updat)",
        fault="the text's half of a contrastive pair is pooled and projected under no_grad")  # fmt: skip
def convirt(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor, idx: Tensor) -> Tensor:
        read = m.embed(idx)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not planted):
            said = m.text(read.mean(1))
        return F.normalize(m.image(x), dim=1) @ F.normalize(said, dim=1).T / 0.1

    def draw() -> Drawn:
        c, idx = torch.randint(12, (2, 32)), torch.randint(24, 60, (32, 8))
        idx[:, 2], idx[:, 5] = c[0], 12 + c[1]
        return (looks[c[0]] + shades[c[1]] + 0.3 * torch.randn(32, 24), idx), torch.arange(32)

    looks, shades = torch.randn(2, 12, 24)
    model = Parts(run, embed=nn.Embedding(60, d), text=mlp((d, 64, 32)), image=mlp((24, 64, 32)))
    return stream(model, draw, F.cross_entropy)
