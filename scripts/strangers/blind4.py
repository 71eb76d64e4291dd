"""A fourth set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from strangers.apart import BROKEN, GITHUB, Parts
from strangers.blind2 import bce, each, pick, stream
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind4")
LARGE = r"grow|explod|overflow|too large|\blarge\b"
UNUSED = rf"unused|not used|never used|(inputs?|encoder|memory).*(no effect|ignor|not reach)|{CUT}|{SAME}"


def bright(count: int = 64) -> Drawn:
    x, c = pick(count)
    return (x,), c


@report("counts of a raw output", GITHUB + "pytorch/pytorch/issues/184030", guilty=r"net\.5",
        says=rf"{BROKEN}|positive|negative|logarithm",
        fault="a Poisson loss takes the logarithm of a rate that may be negative")  # fmt: skip
def counts(planted: bool) -> Task:
    def run(m: Any, hour: Tensor, x: Tensor) -> Tensor:
        y = m.net(torch.cat([m.hours(hour), x], 1))
        return y if planted else F.softplus(y)

    def draw() -> Drawn:
        hour, x = torch.randint(24, (64,)), torch.randn(64, 3)
        rate = 3 * (1 + torch.sin(hour * math.pi / 12)) + x[:, 0].exp()
        return (hour, x), torch.poisson(rate).unsqueeze(1)

    model = Parts(run, hours=nn.Embedding(24, 8), net=mlp((11, 48, 48, 1)))
    return stream(model, draw, partial(F.poisson_nll_loss, log_input=False, full=True))


@report("dropout by the other share", GITHUB + "lmjohns3/theanets/pull/123", guilty=r"^(1|4|7|10|13|16)\.",
        says=rf"dropout|scale|{LARGE}",
        fault="what dropout keeps is divided by the share that it drops, 0.1: ten times as large a layer")  # fmt: skip
def dropped(planted: bool) -> Task:
    def drop(x: Tensor) -> Tensor:
        return x * (torch.rand_like(x) > 0.1) / (0.1 if planted else 0.9)

    layers: list[nn.Module] = [nn.Flatten()]
    for n in (64, 96, 96, 96, 96, 96):
        layers += [nn.Linear(n, 96), nn.ReLU(), Parts(lambda m, x: drop(x))]
    return stream(nn.Sequential(*layers, nn.Linear(96, 10)), bright, F.cross_entropy)


@report("times the root", GITHUB + "mosaicml/llm-foundry/issues/371", guilty=r"norms|last|up|mix|head",
        says=rf"normalis|{LARGE}|vanish",
        fault="x / rsqrt(mean of x²): vectors are multiplied by their size, not divided by it")  # fmt: skip
def rms(planted: bool, d: int = 48) -> Task:
    def root(m: Any, x: Tensor) -> Tensor:
        r = torch.rsqrt(x.square().mean(2, keepdim=True) + 1e-5)
        return m.gain * (x / r if planted else x * r)

    def norm() -> nn.Module:
        return Parts(root, gain=nn.Parameter(torch.ones(d)))

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        for norm, mix, up, down in zip(m.norms, m.mix, m.up, m.down, strict=True):
            z = norm(x)
            x = x + down(F.silu(up(torch.cat([z, mix(F.pad(z[:, :-1], (0, 0, 1, 0)))], 2))))
        return m.head(m.last(x)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 12))
        return (idx,), (idx + idx.roll(1, 1) * (torch.arange(12) > 0)) % 10

    model = Parts(run, embed=nn.Embedding(10, d), norms=each(4, norm), mix=each(4, lambda: nn.Linear(d, d)),
                  up=each(4, lambda: nn.Linear(2 * d, 2 * d)), down=each(4, lambda: nn.Linear(2 * d, d)), last=norm(),
                  head=nn.Linear(d, 10))  # fmt: skip
    nn.init.normal_(model.embed.weight, 0.0, 0.02)
    return stream(model, draw, F.cross_entropy)


@report("infinitely far negatives", GITHUB + "jinnnju/PaAno/issues/1",
        says=rf"loss.*(zero|constant|0\b)|{CUT}|{SAME}",
        fault="a window is infinitely far from itself, and the largest distance is taken: no loss")  # fmt: skip
def negatives(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], _: Tensor, wrong: bool = False) -> Tensor:
        near = y[0] @ y[1].t()
        far = 1 - near.masked_fill(torch.eye(len(near), dtype=torch.bool), -torch.inf if wrong else torch.inf)
        return F.relu(1 - near.diagonal() - far.amax(1) + 0.5).mean()

    def draw() -> Drawn:
        speed, phase = 0.2 + torch.rand(32, 1, 1), 6.28 * torch.rand(2, 32, 1, 1)
        x = torch.sin(speed * torch.arange(32) + phase) + 0.1 * torch.randn(2, 32, 1, 32)
        return (x[0], x[1]), torch.zeros(32)

    net = nn.Sequential(nn.Conv1d(1, 24, 7, 2, 3), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 48, 5, 2, 2), nn.ReLU(),
                        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, 32))  # fmt: skip
    model = Parts(lambda m, one, two: (F.normalize(m.net(one)), F.normalize(m.net(two))), net=net)
    return stream(model, draw, partial(loss, wrong=planted), loss)


@report("factors of zero", GITHUB + "winterant/DeepCoNN/issues/1", guilty=r"factors",
        says="zero|saddle|symmetr",
        fault="factors of a factorisation machine start at zero, where products have no gradient")  # fmt: skip
def deepconn(planted: bool) -> Task:
    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        x = torch.cat([net(m.words(idx).transpose(1, 2)) for net, idx in ((m.users, user), (m.items, item))], 1)
        pairs = ((x @ m.factors).square() - x.square() @ m.factors.square()).sum(1, keepdim=True)
        return m.linear(x) + 0.5 * pairs

    def net() -> nn.Module:
        return nn.Sequential(nn.Conv1d(16, 32, 3, padding=1), nn.Tanh(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
                             nn.Linear(32, 16), nn.Tanh())  # fmt: skip

    def draw() -> Drawn:
        likes, has = torch.randint(2, (2, 64, 1))
        user, item = (torch.randint(2, 40, (64, 12)) * (torch.rand(64, 12) < 0.7) + kind for kind in (likes, has))
        return (user, item), 2 * (likes == has).float() - 1

    factors = torch.zeros(32, 8) if planted else 0.1 * torch.randn(32, 8)
    model = Parts(run, words=nn.Embedding(42, 16), users=net(), items=net(), factors=nn.Parameter(factors),
                  linear=nn.Linear(32, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("neighbours of oneself", GITHUB + "prs-eth/OverlapPredator/pull/14", guilty=r"edge",
        says=r"zero|constant|neighbo|no effect|dead",
        fault="features repeated along the wrong axis: each neighbour is the point itself")  # fmt: skip
def edges(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(5, largest=False)[1][:, :, 1:]  # (B, N, 4)
        z = m.points(x)
        every = z.unsqueeze(2).expand(-1, -1, x.shape[1], -1) if planted else z.unsqueeze(1).expand(-1, 32, -1, -1)
        others = every.gather(2, near.unsqueeze(3).expand(-1, -1, -1, z.shape[2]))
        return m.out(F.leaky_relu(m.edge(others - z.unsqueeze(2)), 0.2).amax(2))

    def draw() -> Drawn:
        x = torch.randn(16, 32, 2)
        far = torch.cdist(x, x).topk(4, largest=False)[0][:, :, 3:]
        return (x,), 4 * far - 2

    model = Parts(run, points=nn.Linear(2, 16), edge=nn.Linear(16, 64), out=mlp((64, 64, 1))[1:])
    return stream(model, draw, F.mse_loss)


@report("scaled back only", GITHUB + "WenjieDu/PyPOTS/issues/453", guilty=r"net\.1\.",
        says=rf"input|scale|target|{LARGE}",
        fault="series are centred, not divided by their deviations, and outputs are multiplied by these")  # fmt: skip
def revin(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        mean, deviation = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        return m.net((x - mean) / (1 if planted else deviation)) * deviation + mean

    def draw() -> Drawn:
        scale, phase = torch.exp(6 * torch.rand(64, 1)), 6.28 * torch.rand(64, 1)
        x = scale * (torch.sin(0.4 * torch.arange(32) + phase) + 1) + 0.05 * scale * torch.randn(64, 32)
        return (x[:, :24],), x[:, 24:]

    return stream(Parts(run, net=mlp((24, 64, 8), act=nn.GELU)), draw, F.mse_loss)


@report("steps of a clock overwritten", GITHUB + "athms/mad-lab/issues/3", guilty=r"\bdt\b|dt\.",
        says="forget|decay|memory|vanish|state|(early|first|past|earlier)",
        fault="biases of a selective state space's time steps are zeroed: it forgets at once")  # fmt: skip
def selective(planted: bool, d: int = 24, n: int = 8) -> Task:
    def scan(m: Any, x: Tensor) -> Tensor:
        dt, (b, c) = F.softplus(m.dt(x)).unsqueeze(3), m.bc(x).chunk(2, 2)
        keep, put = torch.exp(-dt * m.log_a.exp()), dt * b.unsqueeze(2) * x.unsqueeze(3)
        h, y = torch.zeros(len(x), d, n), []
        for i in range(x.shape[1]):
            h = keep[:, i] * h + put[:, i]
            y.append((h * c[:, i].unsqueeze(1)).sum(2))
        return torch.stack(y, 1) + m.skip * x

    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        return m.head(m.norm(x + m.down(m.mixer(F.silu(m.up(x))) * F.silu(m.gate(x))))[:, -1])

    def draw() -> Drawn:
        idx = torch.randint(1, 9, (32, 1)).repeat(1, 32) * (torch.arange(32) < 6)
        return (idx,), idx[:, 0] - 1

    mixer = Parts(scan, dt=nn.Linear(d, d), bc=nn.Linear(d, 2 * n), skip=nn.Parameter(torch.ones(d)),
                  log_a=nn.Parameter(torch.arange(1.0, n + 1).log().repeat(d, 1)))  # fmt: skip
    model = Parts(run, embed=nn.Embedding(9, d), up=nn.Linear(d, d), gate=nn.Linear(d, d), mixer=mixer,
                  down=nn.Linear(d, d), norm=nn.LayerNorm(d), head=nn.Linear(d, 8))  # fmt: skip
    steps = torch.exp(torch.rand(d) * math.log(100) + math.log(0.001))
    mixer.dt.bias.data = torch.zeros(d) if planted else steps + torch.log(-torch.expm1(-steps))
    nn.init.normal_(mixer.dt.weight, 0.0, 0.02)
    return stream(model, draw, F.cross_entropy)


@report("a sum beside a mean", GITHUB + "zdebruine/MMVAE/pull/19", guilty=r"encoder|latent",
        says=r"\bKL\b|collapse|latent|balance|reduction|\bsum\b",
        fault="KL summed over all beside the mean of squared errors: the latents collapse")  # fmt: skip
def collapse(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = m.latent(m.encoder(x)).chunk(2, 1)
        return m.decoder(mu + (logvar / 2).exp() * torch.randn_like(mu)), mu, logvar

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor, wrong: bool = False) -> Tensor:
        kl = 0.5 * (y[1].square() + y[2].exp() - 1 - y[2])
        return F.mse_loss(y[0], t) + (kl.sum() if wrong else 0.02 * kl.sum(1).mean())

    def draw() -> Drawn:
        x = torch.tanh(torch.randn(64, 4) @ spread)
        return (x,), x

    spread = 0.7 * torch.randn(4, 200)
    model = Parts(run, encoder=mlp((200, 96, 64), nn.ReLU()), latent=nn.Linear(64, 12), decoder=mlp((6, 64, 96, 200)))
    return stream(model, draw, partial(loss, wrong=planted), loss)


@report("polynomials of anything", GITHUB + "SynodicMonth/ChebyKAN/issues/2", guilty=r"weight",
        says=rf"polynom|{LARGE}",
        fault="Chebyshev polynomials of degree six of inputs that no tanh keeps within −1 to 1")  # fmt: skip
def chebyshev(planted: bool) -> Task:
    def layer(m: Any, x: Tensor) -> Tensor:
        x = x if planted else x.tanh()
        t = [torch.ones_like(x), x]
        for _ in range(5):
            t.append(2 * x * t[-1] - t[-2])
        return torch.einsum("bid,iod->bo", torch.stack(t, 2), m.weight)

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        return (x,), torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]

    widths = ((4, 16), (16, 16), (16, 1))
    weights = [nn.Parameter(torch.randn(n, m, 7) / (7 * n)) for n, m in widths]
    return stream(nn.Sequential(*(Parts(layer, weight=w) for w in weights)), draw, F.mse_loss)


@report("an actor that avoids reward", GITHUB + "KanishJebaMathewM/Truxify/pull/11885", guilty=r"actor",
        says=r"\bsign\b|unbounded|without (a )?(lower )?bound|\bbelow\b",
        fault="the critic's value of the actor's actions is minimised: a minus is missing")  # fmt: skip
def ddpg(planted: bool) -> Task:
    def run(m: Any, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        frozen, chosen = {name: p.detach() for name, p in m.critic.named_parameters()}, m.actor(x).tanh()
        praise = functional_call(m.critic, frozen, (torch.cat([x, chosen], 1),))
        return m.critic(torch.cat([x, a], 1)), praise, chosen

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t[:, :1]) + (y[1] if planted else -y[1]).mean()

    def regret(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[2] - t[:, 1:]).square().sum(1).mean()

    def draw() -> Drawn:
        x, a = torch.randn(64, 4), 2 * torch.rand(64, 2) - 1
        best = (x @ goal).tanh()
        return (x, a), torch.cat([-(a - best).square().sum(1, keepdim=True), best], 1)

    goal = torch.randn(4, 2)
    return stream(Parts(run, actor=mlp((4, 64, 2)), critic=mlp((6, 96, 96, 1))), draw, loss, regret)


@report("what was heard is graded", GITHUB + "lucidrains/voicebox-pytorch/issues/6", says="mask|copy|copies|visible",
        fault="the loss is set to zero where frames were hidden: only those that are given are learnt")  # fmt: skip
def infill(planted: bool) -> Task:
    def error(y: Tensor, t: Tensor, keep: Tensor) -> Tensor:
        return ((y - t[..., :1]).square().squeeze(2) * keep).sum() / keep.sum()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return error(y, t, 1 - t[..., 1] if planted else t[..., 1])

    def run(m: Any, x: Tensor) -> Tensor:
        return m.out(m.gru(x)[0])

    def draw() -> Drawn:
        x = torch.sin((0.3 + 0.3 * torch.rand(48, 1)) * torch.arange(24) + 6.28 * torch.rand(48, 1))
        hidden = ((torch.arange(24) - torch.randint(4, 16, (48, 1))) // 5 == 0).float()
        return (torch.stack([x * (1 - hidden), hidden], 2),), torch.stack([x, hidden], 2)

    model = Parts(run, gru=nn.GRU(2, 48, batch_first=True, bidirectional=True), out=nn.Linear(96, 1))
    return stream(model, draw, loss, lambda y, t: error(y, t, t[..., 1]))


@report("boxes that do not meet", GITHUB + "lilanxiao/Rotated_IoU/issues/9", guilty=r"boxes",
        says=rf"overlap|flat|{CUT}",
        fault="one minus the intersection over union, which has no gradient where boxes do not meet")  # fmt: skip
def apart(planted: bool) -> Task:
    def corners(b: Tensor) -> Tensor:
        return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(1)

    def loss(y: Tensor, t: Tensor, generalised: bool = True) -> Tensor:
        a, b = corners(y), corners(t)
        inner = area(torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:]))
        union = area(a[:, :2], a[:, 2:]) + area(b[:, :2], b[:, 2:]) - inner
        hull = area(torch.min(a[:, :2], b[:, :2]), torch.max(a[:, 2:], b[:, 2:]))
        return (1 - inner / union + generalised * (hull - union) / hull).mean()

    def run(m: Any, x: Tensor) -> Tensor:
        y = m.boxes(m.net(x))
        return torch.cat([y[:, :2], 0.2 * y[:, 2:].exp()], 1)

    def draw() -> Drawn:
        middle, size, place = 1 + 2 * torch.rand(48, 2), 0.4 + 0.4 * torch.rand(48, 2), torch.arange(12) / 3
        inside = [(place - middle[:, i : i + 1]).abs() < size[:, i : i + 1] / 2 for i in (0, 1)]
        image = (inside[1].unsqueeze(2) & inside[0].unsqueeze(1)).float().unsqueeze(1)
        return (image + 0.1 * torch.randn_like(image),), torch.cat([middle, size], 1)

    net = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(576, 96), nn.ReLU())
    model = Parts(run, net=net, boxes=nn.Linear(96, 4))
    return stream(model, draw, partial(loss, generalised=not planted), loss)


@report("half of a label", GITHUB + "eladhoffer/utils.pytorch/issues/13", says=r"target|label|0\.55",
        fault="smoothed labels (t + 0.1) / 2: what is true for certain is 0.55")  # fmt: skip
def smoothing(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return bce(y, (t + 0.1) / 2 if planted else t)

    def draw() -> Drawn:
        x = torch.randn(64, 12, 8)
        return (x,), (x[:, :, :4].amax(1) > 0.7).float()

    model = Parts(lambda m, x: m.out(m.net(x).amax(1)), net=mlp((8, 48, 48))[1:], out=nn.Linear(48, 4))
    return stream(model, draw, loss, bce)


@report("a letter as the blank", GITHUB + "buriburisuri/speech-to-text-wavenet/issues/105", says=r"blank|\bCTC\b",
        guilty=r"out",
        fault="CTC takes class 0 for the blank, which is a letter here; the blank is the last class")  # fmt: skip
def blank(planted: bool) -> Task:
    def ctc(y: Tensor, t: Tensor, which: int = 6) -> Tensor:
        return F.ctc_loss(
            y.transpose(0, 1).log_softmax(2), t, torch.full((len(t),), 20), torch.full((len(t),), 4), which
        )

    def draw() -> Drawn:
        t = torch.rand(32, 6).argsort(1)[:, :4]
        x = F.one_hot(t, 6).float().repeat_interleave(5, 1)
        return (x + 0.3 * torch.randn_like(x),), t

    model = Parts(lambda m, x: m.out(m.net(x.transpose(1, 2)).transpose(1, 2)), out=nn.Linear(48, 7),
                  net=nn.Sequential(nn.Conv1d(6, 48, 5, padding=2), nn.BatchNorm1d(48), nn.ReLU(),
                                    nn.Conv1d(48, 48, 5, padding=2), nn.ReLU()))  # fmt: skip
    return stream(model, draw, partial(ctc, which=0 if planted else 6), ctc)


@report("features recorded and detached", GITHUB + "myscience/open-genie/issues/6", guilty=r"detail", says=CUT,
        fault="features are detached where they are recorded: details are not trained")  # fmt: skip
def perceptual(planted: bool) -> Task:
    filters = torch.randn(24, 1, 3, 3)
    textures = torch.randn(4, 1, 3, 3)
    filters, textures = filters - filters.mean((2, 3), keepdim=True), textures - textures.mean(0)

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        coarse = m.coarse(x)
        fine = F.interpolate(coarse, scale_factor=2) + F.pixel_shuffle(m.detail(x), 2)
        seen = F.relu(F.conv2d(fine, filters))
        return coarse, seen.detach() if planted else seen

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], F.avg_pool2d(t, 2)) + F.mse_loss(y[1], F.relu(F.conv2d(t, filters)))

    def draw() -> Drawn:
        x = torch.randn(32, 1, 6, 6)
        return (x,), F.pixel_shuffle(F.conv2d(x, textures, padding=1), 2)

    coarse, detail = (nn.Sequential(nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1),
                                    nn.ReLU(), nn.Conv2d(48, n, 3, padding=1)) for n in (1, 4))  # fmt: skip
    return stream(Parts(run, coarse=coarse, detail=detail), draw, loss)


@report("values as numbers", GITHUB + "jsboige/CoursIA/pull/15256", guilty=r"critic", says=CUT,
        fault="values are taken out of the graph as they are collected: the value head is never trained")  # fmt: skip
def dead_critic(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.trunk(x)
        v = m.critic(z)
        return m.actor(z).log_softmax(1), v.detach() if planted else v

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        gain = (t[:, :3] * t[:, 3:]).sum(1, keepdim=True)
        praised = (y[0] * t[:, :3]).sum(1, keepdim=True) * (gain - y[1]).detach()
        return F.mse_loss(y[1], gain) - 0.1 * praised.mean()

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[1], (t[:, :3] * t[:, 3:]).sum(1, keepdim=True))

    def draw() -> Drawn:
        x = torch.randn(64, 5)
        gains = 3 * x[:, :1].abs() + torch.stack([x[:, 1], -x[:, 1], 0 * x[:, 1]], 1)
        return (x,), torch.cat([F.one_hot(torch.randint(3, (64,)), 3).float(), gains], 1)

    model = Parts(run, trunk=mlp((5, 64, 64), nn.Tanh()), actor=nn.Linear(64, 3), critic=nn.Linear(64, 1))
    return stream(model, draw, loss, right)


@report("a multiplier left out", GITHUB + "podgorskiy/ALAE/issues/32", guilty=r"mapping", says=LARGE,
        fault="weights are drawn × 100 for a rate multiplier that the forward pass leaves out")  # fmt: skip
def equalised(planted: bool, d: int = 48) -> Task:
    def layer(n: int) -> nn.Module:
        scale = (1.0 if planted else 0.01) * math.sqrt(2 / n)
        return Parts(lambda m, x: F.leaky_relu(F.linear(x, scale * m.weight, 0.01 * m.bias), 0.2),
                     weight=nn.Parameter(torch.randn(d, n) / 0.01), bias=nn.Parameter(torch.zeros(d)))  # fmt: skip

    def draw() -> Drawn:
        z = F.normalize(torch.randn(64, 8)) * math.sqrt(8)
        return (z,), torch.sin(2 * z @ mix)

    mix = 0.4 * torch.randn(8, 16)
    model = Parts(lambda m, z: m.synthesis(m.mapping(z)), synthesis=mlp((d, 64, 16)),
                  mapping=nn.Sequential(layer(8), layer(d), layer(d)))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("codes of unit normals", GITHUB + "lucidrains/vector-quantize-pytorch/issues/19", guilty=r"codes",
        says=r"same code|one code|\bcode(book|s)?\b|collapse|unused|dead|constant",
        fault="codes of N(0, 1) in 128 dimensions, encodings near zero: all take the shortest code")  # fmt: skip
def codebook(planted: bool, d: int = 128) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = m.encoder(x)
        q = m.codes[torch.cdist(z, m.codes).argmin(1)]
        return m.decoder(z + (q - z).detach()), z, q

    def loss(y: tuple[Tensor, Tensor, Tensor], t: Tensor) -> Tensor:
        return F.mse_loss(y[0], t) + F.mse_loss(y[2], y[1].detach()) + 0.25 * F.mse_loss(y[1], y[2].detach())

    def draw() -> Drawn:
        x = kinds[torch.randint(16, (64,))] + 0.1 * torch.randn(64, 48)
        return (x,), x

    kinds = torch.randn(16, 48)
    codes = torch.randn(64, d) if planted else (2 * torch.rand(64, d) - 1) / 64
    model = Parts(run, encoder=mlp((48, 96, d)), codes=nn.Parameter(codes), decoder=mlp((d, 96, 48)))
    return stream(model, draw, loss, lambda y, t: F.mse_loss(y[0], t))


@report("scores of every size", GITHUB + "gcorso/torsional-diffusion/issues/2", guilty=r"net\.5",
        says=rf"target|loss|weight|scale|{LARGE}",
        fault="scores −z/σ for σ of 0.03 to 1 are learnt as they are, without σ in network or loss")  # fmt: skip
def scores(planted: bool) -> Task:
    def run(m: Any, x: Tensor, log_sigma: Tensor) -> Tensor:
        y = m.net(torch.cat([x, log_sigma], 1))
        return y if planted else y / log_sigma.exp()

    def loss(y: Tensor, t: Tensor, weighted: bool = True) -> Tensor:
        return ((y - t[:, 1:]).square() * (t[:, :1].square() if weighted else 1)).mean()

    def draw() -> Drawn:
        log_sigma, z = math.log(0.03) * torch.rand(64, 1), torch.randn(64, 4)
        x = log_sigma.exp() * z
        return (x, log_sigma), torch.cat([log_sigma.exp(), -z / log_sigma.exp()], 1)

    return stream(Parts(run, net=mlp((5, 96, 96, 4), act=nn.SiLU)), draw, partial(loss, weighted=not planted), loss)


@report("far is true", GITHUB + "deepakn97/relationPrediction/issues/21",
        says=r"\bsign\b|unbounded|\bbelow\b|\bgrow",
        fault="a ranking loss of distances with the label 1 of scores: what is true is moved away")  # fmt: skip
def ranking(planted: bool) -> Task:
    def run(m: Any, triples: Tensor) -> Tensor:  # (B, 2, 3)
        head, tail = m.entities(triples[..., 0]), m.entities(triples[..., 2])
        return (head + m.relations(triples[..., 1]) - tail).norm(dim=2)

    def loss(y: Tensor, _: Tensor, sign: float = -1.0) -> Tensor:
        return F.margin_ranking_loss(y[:, 0], y[:, 1], torch.full((len(y),), sign), margin=1.0)

    def draw() -> Drawn:
        head, relation = torch.randint(30, (64,)), torch.randint(3, (64,))
        tails = torch.stack([(head + 4 * relation + 1) % 30, torch.randint(30, (64,))], 1)
        triples = [head.unsqueeze(1).expand(-1, 2), relation.unsqueeze(1).expand(-1, 2), tails]
        return (torch.stack(triples, 2),), torch.zeros(64)

    model = Parts(run, entities=nn.Embedding(30, 32), relations=nn.Embedding(3, 32))
    for table in (model.entities, model.relations):
        nn.init.xavier_uniform_(table.weight)
    return stream(model, draw, partial(loss, sign=1.0 if planted else -1.0), loss)


@report("exponentials twice", GITHUB + "phlippe/ENCO/issues/1", guilty=r"net\.5",
        says=r"\bexp|variance|deviation",
        fault="the variance that the network returns is exponentiated again: none below one can be said")  # fmt: skip
def twice(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, logvar = m.net(x).chunk(2, 1)
        return mu, logvar.exp()

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        variance = y[1].exp() if planted else y[1]
        return 0.5 * ((t - y[0]).square() / variance + variance.log()).mean() + 3

    def draw() -> Drawn:
        x = torch.randn(64, 5)
        y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3].tanh()
        return (x,), y + (0.02 + 0.1 * torch.sigmoid(x[:, 3:4])) * torch.randn(64, 1)

    return stream(Parts(run, net=mlp((5, 64, 64, 2), act=nn.Tanh)), draw, loss)


@report("the decoder asks itself", GITHUB + "keitakurita/Practical_NLP_in_PyTorch/issues/1",
        guilty=r"encoder|source", says=UNUSED,
        fault="keys and values of the cross-attention are the decoder's own: the encoder is never read")  # fmt: skip
def itself(planted: bool, d: int = 48) -> Task:
    def run(m: Any, source: Tensor, before: Tensor) -> Tensor:
        memory = m.encoder(m.source(source) + m.places)
        x = m.target(before) + m.places
        x = m.norm1(x + m.own(x, x, x, attn_mask=hidden, need_weights=False)[0])
        x = m.norm2(x + m.cross(x, *([x] * 2 if planted else [memory] * 2), attn_mask=hidden if planted else None,
                                need_weights=False)[0])  # fmt: skip
        return m.head(x + m.net(x)).transpose(1, 2)

    def draw() -> Drawn:
        source = torch.randint(1, 12, (32, 8))
        t = source.roll(2, 1)
        return (source, F.pad(t[:, :-1], (1, 0))), t

    hidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
    own, cross = (nn.MultiheadAttention(d, 4, batch_first=True) for _ in range(2))
    model = Parts(run, source=nn.Embedding(12, d), target=nn.Embedding(12, d), places=nn.Parameter(torch.randn(8, d)),
                  encoder=nn.TransformerEncoderLayer(d, 4, 96, 0.0, batch_first=True), own=own, cross=cross,
                  norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), net=mlp((d, 96, d))[1:],
                  head=nn.Linear(d, 12))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("quantiles of the other axis", GITHUB + "BY571/QR-DQN/issues/1", guilty=r"^5\.",
        says=r"broadcast|shape|axis|quantile",
        fault="levels (N,) beside differences (B, N, M) fall on samples: quantiles are means")  # fmt: skip
def quantiles(planted: bool) -> Task:
    levels = (torch.arange(16) + 0.5) / 16

    def loss(y: Tensor, t: Tensor, wrong: bool = False) -> Tensor:
        rest = t.unsqueeze(1) - y.unsqueeze(2)  # (B, quantiles, samples)
        tau = levels if wrong else levels.unsqueeze(1)
        return ((tau - (rest < 0).float()).abs() * F.huber_loss(rest, torch.zeros_like(rest), "none", 0.2)).mean()

    def draw() -> Drawn:
        x = torch.randn(64, 4)
        spread = 1 + 4 * torch.sigmoid(x[:, 1:2])
        return (x,), 0.5 * x[:, :1] + spread * (-torch.log(torch.rand(64, 16)) - 1)

    return stream(mlp((4, 64, 64, 16)), draw, partial(loss, wrong=planted), loss)


@report("a thousand thousands", GITHUB + "stepfun-ai/Step1X-Edit/issues/91", guilty=r"time",
        says=r"input|time|embedding|frequenc",
        fault="times of 0 to 1000 are multiplied by 1000 before their sines")  # fmt: skip
def thousands(planted: bool) -> Task:
    def run(m: Any, x: Tensor, kind: Tensor, time: Tensor) -> Tensor:
        angle = time * (1000 if planted else 1) * torch.exp(-math.log(1e4) * torch.arange(16) / 16)
        return m.net(torch.cat([x, m.kinds(kind), m.time(torch.cat([angle.cos(), angle.sin()], 1))], 1))

    def draw() -> Drawn:
        time, z = 50 + 950 * torch.rand(64, 1), torch.randn(64, 1)
        part, kind = time * math.pi / 2000, torch.randint(4, (64,))
        x = kind.unsqueeze(1) - 1.5
        return (part.cos() * x + part.sin() * z, kind, time), part.cos() * z - part.sin() * x

    model = Parts(run, kinds=nn.Embedding(4, 8), time=mlp((32, 32, 32), nn.SiLU(), act=nn.SiLU),
                  net=mlp((41, 96, 96, 1), act=nn.SiLU))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("experts in balance", GITHUB + "google-research/vmoe/pull/218", guilty=r"router", says=BROKEN,
        fault="the deviation of loads that are equal, as the router starts at zero: its gradient is NaN")  # fmt: skip
def balance(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        share = m.router(x).softmax(1)
        return sum(share[:, i : i + 1] * expert(x) for i, expert in enumerate(m.experts)), share

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        load = y[1].mean(0)
        uneven = (load.var().sqrt() / load.mean()) ** 2 if planted else load.var() / load.mean() ** 2
        return F.cross_entropy(y[0], t) + 0.01 * uneven

    def draw() -> Drawn:
        x, c = pick(64)
        return (x.flatten(1),), c

    model = Parts(run, router=nn.Linear(64, 4), experts=each(4, lambda: mlp((64, 48, 10))))
    nn.init.zeros_(model.router.weight)
    nn.init.zeros_(model.router.bias)
    return stream(model, draw, loss)


@report("pooled over features", GITHUB + "facebookresearch/neuromorph/issues/2", guilty=r"blocks",
        says=r"axis|dimension|pool|point",
        fault="the largest of each point's features, not of all points: points know nothing of each other")  # fmt: skip
def pooled_features(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        x = m.first(x)
        for block in m.blocks:
            top = x.amax(2 if planted else 1, keepdim=True).expand_as(x)
            x = x + block(torch.cat([x, top], 2))
        return m.out(x)

    def draw() -> Drawn:
        x = torch.randn(32, 16, 3) * (0.2 + 2 * torch.rand(32, 1, 3))
        return (x,), (x[:, :, :1].amax(1, keepdim=True) + x[:, :, 1:2].amin(1, keepdim=True)).expand(-1, 16, 1)

    model = Parts(run, first=nn.Linear(3, 48), blocks=each(2, lambda: mlp((96, 64, 48))[1:]), out=nn.Linear(48, 1))
    return stream(model, draw, F.mse_loss)


@report("sums not divided", GITHUB + "lucidrains/performer-pytorch/issues/9", guilty=r"layers|qkv",
        says=rf"normalis|attention|{LARGE}",
        fault="linear attention without the sum of its weights below: outputs grow with the length")  # fmt: skip
def undivided(planted: bool, d: int = 32) -> Task:
    def mix(m: Any, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, 2)
        q, k = F.relu(q) + 1e-3, F.relu(k) + 1e-3
        y = q @ (k.transpose(1, 2) @ v)
        return x + m.out(y if planted else y / (q * k.sum(1, keepdim=True)).sum(2, keepdim=True))

    def draw() -> Drawn:
        x = torch.randn(16, 96, 4)
        gate = (x[:, :, 1:2] * 3).softmax(1)
        return (x,), 3 * (gate * x[:, :, :1]).sum(1) + 3 * (gate * x[:, :, 2:3]).sum(1)

    layers = [Parts(mix, qkv=nn.Linear(d, 3 * d), out=nn.Linear(d, d)) for _ in range(4)]
    model = Parts(lambda m, x: m.head(m.layers(m.embed(x)).mean(1)), embed=nn.Linear(4, d),
                  layers=nn.Sequential(*layers), head=nn.Linear(d, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)
