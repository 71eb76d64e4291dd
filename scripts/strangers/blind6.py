"""A sixth set of faults out of public reports, written without sight of rules, findings and of what they miss."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strangers.apart import BROKEN, GITHUB, MIXED, Parts
from strangers.blind2 import bce, each, pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE
from strangers.blind5 import SMALL, TARGETS, tensor
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind6")
FORUM = "https://discuss.pytorch.org/t/"
ORDER = r"permut|transpos|\bview|reshap|axis|axes|scrambl|(time|steps?)\b.*(mix|order|depend)"
IDLE = rf"{CUT}|no effect|ignor|unused|dead"


def net2d(*widths: int) -> nn.Sequential:
    """Convolutions of three pixels with ReLUs."""
    return chain(*[layer for n, m in pairwise(widths) for layer in (nn.Conv2d(n, m, 3, padding=1), nn.ReLU())])


@report("a teacher of itself", GITHUB + "labmlai/annotated_deep_learning_paper_implementations/issues/66",
        says=rf"{CUT}|teacher|term|constant",
        fault="the divergence is between the teacher and the teacher: nothing of it reaches the student")  # fmt: skip
def teacher(planted: bool) -> Task:
    def apart(y: Tensor, t: Tensor, heat: float = 1.0) -> Tensor:
        return heat**2 * F.kl_div((y / heat).log_softmax(1), (t / heat).softmax(1), reduction="batchmean")

    def loss(y: Tensor, t: Tensor) -> Tensor:
        return apart(t if planted else y, t, 3.0) + 0.1 * F.cross_entropy(y, t.argmax(1))

    def draw() -> Drawn:
        x = torch.randn(64, 12)
        return (x,), 0.35 * (x @ first).tanh() @ second

    first, second = torch.randn(12, 16) / 2, torch.randn(16, 8)
    return stream(mlp((12, 64, 64, 8)), draw, loss, apart)


@report("a mixed Laplacian", GITHUB + "prateekbhustali/Physics-Informed-Neural-Networks/issues/4",
        says=r"derivat|laplac|hessian|mixed",
        fault="the gradient of both slopes together: twice the mixed derivative is added to the Laplacian")  # fmt: skip
def laplacian(planted: bool) -> Task:
    def slopes(y: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    def run(m: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            u = m.net(x) * (4 * x * (1 - x)).prod(1, keepdim=True)
            slope = slopes(u, x)
            if planted:
                bend = slopes(slope, x).sum(1, keepdim=True)
            else:
                bend = slopes(slope[:, 0], x)[:, :1] + slopes(slope[:, 1], x)[:, 1:]
        return torch.cat([u, bend], 1)

    def rest(y: Tensor, t: Tensor) -> Tensor:
        return (y[:, 1] - t[:, 1]).square().mean() / 1000

    def draw() -> Drawn:
        x = torch.rand(64, 2)
        u = (2 * math.pi * x).sin().prod(1, keepdim=True)
        return (x,), 2 * torch.cat([u, -8 * math.pi**2 * u], 1)

    model = Parts(run, net=mlp((2, 48, 48, 1), act=nn.Tanh))
    return stream(model, draw, rest, lambda y, t: (y[:, 0] - t[:, 0]).square().mean())


@report("values summed over the batch", GITHUB + "simoninithomas/Deep_reinforcement_learning_Course/issues/68",
        guilty=r"^5\.", says=rf"{MIXED}|broadcast|shape|summed",
        fault="Q is summed over actions and examples: one number stands beside all targets")  # fmt: skip
def summed(planted: bool) -> Task:
    def error(y: Tensor, t: Tensor, whole: bool = False) -> Tensor:
        chosen = y * t[:, :4]
        return (t[:, 4] - (chosen.sum() if whole else chosen.sum(1))).square().mean()

    def draw() -> Drawn:
        x, action = torch.randn(64, 8), F.one_hot(torch.randint(4, (64,)), 4).float()
        return (x,), torch.cat([action, ((x @ gain).tanh() * action).sum(1, keepdim=True)], 1)

    gain = torch.randn(8, 4)
    return stream(mlp((8, 64, 64, 4)), draw, partial(error, whole=planted), error)


@report("every action in every state", GITHUB + "sherjilozair/dqn/issues/4", guilty=r"net\.5",
        says=rf"{MIXED}|broadcast|shape|index",
        fault="Q[:, actions] holds the actions of the whole batch: all of them learn a state's one target")  # fmt: skip
def indexed(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return (y[:, t[:, 0].long()] - t[:, 1:]).square().mean()

    def right(y: Tensor, t: Tensor) -> Tensor:
        return (y.gather(1, t[:, :1].long()) - t[:, 1:]).square().mean()

    def draw() -> Drawn:
        x, action = torch.randn(64, 3), torch.randint(3, (64, 1))
        return (x,), torch.cat([action, (2 * x).sin().gather(1, action)], 1)

    model = Parts(lambda m, x: m.net(x), net=mlp((3, 64, 64, 3)))
    return stream(model, draw, loss if planted else right, right)


@report("corners in another order", GITHUB + "sgrvinod/a-PyTorch-Tutorial-to-Object-Detection/issues/53",
        guilty=r"boxes", says=rf"{BROKEN}|{TARGETS}|logarithm|negative",
        fault="boxes come as x right, y top, x left, y bottom: logarithms of negative widths")  # fmt: skip
def corners(planted: bool) -> Task:
    anchor = torch.tensor([0.5, 0.5, 0.4, 0.4])

    def loss(y: Tensor, t: Tensor) -> Tensor:
        middle, size = (t[:, :2] + t[:, 2:]) / 2, t[:, 2:] - t[:, :2]
        code = torch.cat([(middle - anchor[:2]) / (anchor[2:] / 10), (size / anchor[2:]).log() * 5], 1)
        return F.smooth_l1_loss(y, code)

    def draw() -> Drawn:
        a, size = torch.randint(0, 6, (32, 2)), torch.randint(3, 8, (32, 2))
        image = torch.zeros(32, 1, 12, 12)
        for i in range(32):
            image[i, :, a[i, 1] : a[i, 1] + size[i, 1], a[i, 0] : a[i, 0] + size[i, 0]] = 1
        box = torch.cat([a, (a + size).clamp(max=12)], 1) / 12
        return (image + 0.1 * torch.randn_like(image),), box[:, [2, 1, 0, 3]] if planted else box

    net = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
    return stream(Parts(lambda m, x: m.boxes(m.net(x)), net=net, boxes=mlp((288, 64, 4))), draw, loss)


@report("weight of no signal", GITHUB + "TiankaiHang/Min-SNR-Diffusion-Training/pull/4",
        says=rf"{BROKEN}|divi[ds]|\bzero",
        fault="the last step is noise alone, of ratio 0 to the signal, and the weight of its loss 0 / 0")  # fmt: skip
def snr(planted: bool) -> Task:
    root = torch.cos(torch.linspace(0.05, math.pi / 2, 40))
    signal = ((root - root[-1]) / (root[0] - root[-1])).square()  # of zero in the end

    def run(m: Any, x: Tensor, step: Tensor) -> Tensor:
        return m.net(torch.cat([x, m.steps(step)], 1))

    def loss(y: Tensor, t: Tensor) -> Tensor:
        ratio = (signal / (1 - signal))[t[:, 8].long()]
        weight = ratio.clamp(max=5) / (ratio if planted else ratio.clamp(min=1e-4))
        return (weight * (y - t[:, :8]).square().mean(1)).mean()

    def draw() -> Drawn:
        step, noise = torch.randint(1, 40, (128,)), torch.randn(128, 8)
        s = signal[step].unsqueeze(1)
        x = s.sqrt() * kinds[torch.randint(3, (128,))] + (1 - s).sqrt() * noise
        return (x, step), torch.cat([noise, step.unsqueeze(1)], 1)

    kinds = 2 * torch.randn(3, 8)
    return stream(Parts(run, steps=nn.Embedding(40, 16), net=mlp((24, 96, 96, 8), act=nn.SiLU)), draw, loss)


@report("neighbours but not oneself", GITHUB + "danielegrattarola/keras-gat/issues/11", guilty=r"\.(one|two|project)\.",
        says=r"neighbo|self|\bown\b|loop|diagonal|no effect|ignor|not reach",
        fault="the adjacency has no ones on its diagonal: attention never sees the node itself")  # fmt: skip
def gat(planted: bool, d: int = 32) -> Task:
    def layer(m: Any, x: Tensor) -> Tensor:
        z = m.project(x)
        scores = F.leaky_relu(m.one(z) + m.two(z).transpose(1, 2), 0.2).masked_fill(~a, -1e9)
        return F.elu(scores.softmax(2) @ z)

    def make(n: int) -> nn.Module:
        return Parts(layer, project=nn.Linear(n, d), one=nn.Linear(d, 1), two=nn.Linear(d, 1, bias=False))

    def draw() -> Drawn:
        x = torch.randn(16, 24, 6)
        return (x,), ((near + torch.eye(24)) @ x @ kind).argmax(2)

    near = torch.eye(12).repeat(2, 2) - torch.eye(24)  # pairs
    near[0, 1] = near[1, 0] = near[2, 3] = near[3, 2] = 1
    a = (near + (0 if planted else 1) * torch.eye(24)) > 0
    kind = torch.randn(6, 4)
    model = Parts(lambda m, x: m.out(m.layers(x)).transpose(1, 2), layers=chain(make(6)), out=nn.Linear(d, 4))
    return stream(model, draw, F.cross_entropy)


@report("objects as background", GITHUB + "pierluigiferrari/ssd_keras/issues/3", guilty=r"boxes|scores",
        says=rf"background|class.*(never|missing|absent|\b0\b|one|all)|{TARGETS}|{CUT}",
        fault="the one class is numbered 0, which is background: there is nothing to be found")  # fmt: skip
def background(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        there = t[:, 0].long() * (0 if planted else 1)
        gap = F.smooth_l1_loss(y[1], t[:, 1:], reduction="none").sum(1)
        return F.cross_entropy(y[0], there) + (gap * there).sum() / there.sum().clamp(min=1)

    def right(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        gap = F.smooth_l1_loss(y[1], t[:, 1:], reduction="none").sum(1)
        return 10 * F.cross_entropy(y[0], t[:, 0].long()) + (gap * t[:, 0]).sum() / t[:, 0].sum()

    def draw() -> Drawn:
        place, shift = torch.randint(64, (32,)), torch.randn(32, 2)
        there = F.one_hot(place, 64).float().view(32, 1, 8, 8)
        shown = there * shift.view(32, 2, 1, 1)
        return (torch.cat([2 * there, shown], 1) + 0.1 * torch.randn(32, 3, 8, 8),), torch.cat([there, shown], 1)

    model = Parts(lambda m, x: (m.scores(z := m.net(x)), m.boxes(z)), net=net2d(3, 24, 24), scores=nn.Conv2d(24, 2, 1),
                  boxes=nn.Conv2d(24, 2, 1))  # fmt: skip
    return stream(model, draw, loss, right)


@report("windows of all series", GITHUB + "jessicayung/blog-code-snippets/issues/6", guilty=r"lstm.*l0",
        says=rf"{ORDER}|{MIXED}|order",
        fault="windows (N, steps) are viewed as (steps, N, 1), not transposed: series are mixed")  # fmt: skip
def windows(planted: bool) -> Task:
    def draw() -> Drawn:
        speed, phase = 0.3 + 0.5 * torch.rand(48, 1), 6.28 * torch.rand(48, 1)
        x = torch.sin(speed * torch.arange(21) + phase)
        seen = x[:, :20]
        return (seen.reshape(20, 48, 1) if planted else seen.t().unsqueeze(2),), x[:, 20:]

    model = Parts(lambda m, x: m.out(m.lstm(x)[0][-1]), lstm=nn.LSTM(1, 32, 2), out=nn.Linear(32, 1))
    return stream(model, draw, F.mse_loss)


@report("states of other episodes", GITHUB + "Stable-Baselines-Team/stable-baselines3-contrib/issues/111",
        guilty=r"lstm", says=rf"{ORDER}|{MIXED}",
        fault="states (episodes, layers, cells) are reshaped to (layers, episodes, cells)")  # fmt: skip
def kept(planted: bool, d: int = 32) -> Task:
    def turn(z: Tensor) -> Tensor:
        return z.reshape(2, len(z), d) if planted else z.transpose(0, 1).contiguous()

    def run(m: Any, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        return m.policy(m.lstm(m.see(x), (turn(h), turn(c)))[0]).transpose(1, 2)

    def draw() -> Drawn:
        cue, x = torch.randn(48, 3), torch.randn(48, 4, 6)
        h, c = ((cue @ way).unflatten(1, (2, d)) for way in ways)
        return (x, h.tanh(), c), (cue.argmax(1, keepdim=True) + (x[..., 0] > 0).long()) % 3

    ways = torch.randn(2, 3, 2 * d) / 2
    lstm = nn.LSTM(d, d, 2, batch_first=True)
    return stream(Parts(run, see=nn.Linear(6, d), lstm=lstm, policy=nn.Linear(d, 3)), draw, F.cross_entropy)


@report("masked after the softmax", GITHUB + "huggingface/pytorch-image-models/pull/2236", guilty=r"qkv|proj|attn",
        says=rf"{BROKEN}|mask|softmax",
        fault="weights of masked patches, not their scores, are −∞: the mask follows the softmax")  # fmt: skip
def eva(planted: bool, d: int = 48) -> Task:
    def run(m: Any, x: Tensor, seen: Tensor) -> Tensor:
        z, hidden = m.patch(x), ~seen[:, None, None]
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            q, k, v = split(qkv(norm(z)))
            scores = q @ k.transpose(2, 3) / math.sqrt(d / 4)
            if planted:
                scores = scores.softmax(3).masked_fill(hidden, -torch.inf)
            else:
                scores = scores.masked_fill(hidden, -torch.inf).softmax(3)
            z = z + proj(joined(scores @ v))
            z = z + net(z)
        return m.head(z[:, 0])

    def draw() -> Drawn:
        c, length = torch.randint(6, (48,)), torch.randint(5, 13, (48,))
        seen = torch.arange(12) < length.unsqueeze(1)
        x = torch.where(seen.unsqueeze(2), kinds[c].unsqueeze(1), 3.0) + torch.randn(48, 12, 10)
        return (x, seen), c

    kinds = torch.randn(6, 10)
    net = each(2, lambda: chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)))
    model = Parts(run, patch=nn.Linear(10, d), norms=each(2, lambda: nn.LayerNorm(d)), net=net, head=nn.Linear(d, 6),
                  qkv=each(2, lambda: nn.Linear(d, 3 * d)), proj=each(2, lambda: nn.Linear(d, d)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("a sigmoid before a hinge", GITHUB + "grey-eye/talking-heads/issues/42", guilty=r"^7\.",
        says=r"sigmoid|hinge|margin|range|saturat",
        fault="a discriminator ends in a sigmoid, and a hinge loss wants its scores beyond −1 and 1")  # fmt: skip
def hinge(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        return F.relu(1 - (2 * t - 1) * y).mean()

    def draw() -> Drawn:
        real, fake = pick(24)[0], pick(48)[0]  # made from the same pose and from another
        fake = torch.cat([fake[:24] + 0.6 * torch.randn(24, 1, 8, 8), fake[24:].roll(4, 3)])
        return (torch.cat([real, fake]),), (torch.arange(72) < 24).float().unsqueeze(1)

    convs = [layer for n, m in ((1, 16), (16, 32), (32, 32)) for layer in (nn.Conv2d(n, m, 3, 2, 1), nn.LeakyReLU(0.2))]
    last = [nn.Sigmoid()] if planted else []
    return stream(chain(*convs, nn.Flatten(), nn.Linear(32, 1), *last), draw, loss)


@report("every condition is six", GITHUB + "kmualim/CGAN-Pytorch/issues/1", guilty=r"labels",
        says=rf"{IDLE}|{SAME}|condition|labels?\b",
        fault="the label that a glyph is drawn by is 6 whatever the glyph")  # fmt: skip
def six(planted: bool) -> Task:
    def run(m: Any, z: Tensor, c: Tensor) -> Tensor:
        c = torch.full_like(c, 6) if planted else c
        return m.net(torch.cat([z, m.labels(c)], 1)).unflatten(1, (1, 8, 8))

    def draw() -> Drawn:
        z, c = torch.randn(64, 2), torch.randint(10, (64,))
        ink = 1 + 0.3 * z[:, :1, None, None]
        return (z, c), glyphs[c] * ink + 0.2 * torch.randn(64, 1, 8, 8)

    glyphs = F.avg_pool2d(torch.randn(10, 1, 10, 10), 3, 1) * 3
    net = chain(nn.Linear(12, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 64))
    return stream(Parts(run, labels=nn.Embedding(10, 10), net=net), draw, F.mse_loss)


@report("a norm by chance", GITHUB + "pytorch/pytorch/issues/51800", guilty=r"layers.*weight",
        says=rf"{LARGE}|spectral|singular",
        fault="spectral norms uᵀWv of random u and v that are never iterated: far too small")  # fmt: skip
def spectral(planted: bool) -> Task:
    def linear(m: Any, x: Tensor) -> Tensor:
        u, v = m.u, m.v
        for _ in range(0 if planted else 5):
            with torch.no_grad():
                v = F.normalize(m.weight.t() @ u, dim=0)
                u = F.normalize(m.weight @ v, dim=0)
        return F.linear(x, m.weight / (u @ m.weight @ v), m.bias)

    def make(n: int, m: int) -> nn.Module:
        layer = nn.Linear(n, m)
        u, v = F.normalize(torch.randn(m), dim=0), F.normalize(torch.randn(n), dim=0)
        return Parts(linear, weight=layer.weight, bias=layer.bias, u=u, v=v)

    hidden = [layer for n in (64, 64, 64) for layer in (make(n, 64), nn.LeakyReLU(0.1))]
    model = Parts(lambda m, x: m.out(m.layers(x.flatten(1))), layers=chain(*hidden), out=nn.Linear(64, 10))
    return stream(model, lambda: ((x := pick())[:1], x[1]), F.cross_entropy)


@report("logarithm of a difference", GITHUB + "tanatosuu/GDE/issues/3",
        says=rf"{BROKEN}|logarithm|sigmoid|negative",
        fault="a ranking loss takes the logarithm of a difference of scores, without a sigmoid around it")  # fmt: skip
def ranked(planted: bool, d: int = 24) -> Task:
    taste, trait = torch.randn(60, 3), torch.randn(80, 3)

    def run(m: Any, user: Tensor, good: Tensor, bad: Tensor) -> Tensor:
        u = m.users(user)
        return (u * m.items(good)).sum(1) - (u * m.items(bad)).sum(1)

    def loss(y: Tensor, _: Tensor) -> Tensor:
        return -(y if planted else y.sigmoid()).log().mean()

    def draw() -> Drawn:
        user, one, two = torch.randint(60, (256,)), torch.randint(80, (256,)), torch.randint(80, (256,))
        better = (taste[user] * (trait[one] - trait[two])).sum(1) > 0
        return (user, torch.where(better, one, two), torch.where(better, two, one)), torch.ones(256)

    model = Parts(run, users=nn.Embedding(60, d), items=nn.Embedding(80, d))
    for table in (model.users, model.items):
        nn.init.normal_(table.weight, 0.0, 0.1)
    return stream(model, draw, loss)


@report("depths of zero", GITHUB + "zhengqili/MegaDepth/issues/38", guilty=r"depth",
        says=rf"{BROKEN}|{TARGETS}|logarithm|missing",
        fault="missing depths are 0, their logarithms −∞, and a mask of zeros times −∞ is no number")  # fmt: skip
def depths(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:
        there = (t > 0).float()
        rest = (y - (t if planted else t.clamp(min=1e-3)).log()) * there
        return rest.square().sum() / there.sum() - (rest.sum() / there.sum()).square() / 2

    def draw() -> Drawn:
        far = (torch.randn(32, 2, 1, 1) * torch.linspace(-1, 1, 12)).cumsum(3)
        depth = (far[:, :1] + far[:, 1:].transpose(2, 3)).mul(0.3).exp() * 3
        image = torch.cat([1 / depth, depth.roll(1, 3) / depth - 1], 1) + 0.02 * torch.randn(32, 2, 12, 12)
        return (image,), depth * (torch.rand_like(depth) > 0.2)

    model = Parts(lambda m, x: m.depth(m.net(x)), net=net2d(2, 24, 24), depth=nn.Conv2d(24, 1, 3, padding=1))
    return stream(model, draw, loss)


@report("alarms by comparison", FORUM + "if-a-parameter-is-trainable-in-the-following-case/149907", guilty=r"threshold",
        says=rf"{CUT}|threshold|compar|differentiable",
        fault="a learnt threshold is compared with, and a comparison has no slope")  # fmt: skip
def alarms(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        over = x - m.threshold
        return m.out((over > 0).float() if planted else (6 * over).sigmoid())

    def draw() -> Drawn:
        x = torch.randn(128, 12)
        return (x,), ((x > level).float() @ worth - mean) / 1.3

    level, worth = 1.3 * torch.randn(12).sign() + 0.2 * torch.randn(12), 2 * torch.randn(12, 1)
    mean = (torch.randn(4000, 12) > level).float().mean(0) @ worth
    model = Parts(run, threshold=nn.Parameter(torch.zeros(12)), out=nn.Linear(12, 1))
    return stream(model, draw, F.mse_loss)


def bandit() -> tuple[Callable[[], Drawn], Callable[[tuple[Tensor, Tensor], Tensor], Tensor]]:
    """States with the action taken in each and the gain of every one, and what a policy's probabilities forgo."""
    wish = torch.randn(6, 4)

    def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0].exp() * (t[:, 4:].max(1, keepdim=True)[0] - t[:, 4:])).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (128,)), 4).float(), x @ wish], 1)

    return draw, regret


@report("a policy over itself", GITHUB + "tensorforce/tensorforce/issues/312", guilty=r"actor",
        says=rf"{CUT}|ratio|constant",
        fault="old and new probabilities are of one pass: their ratio is 1 whatever the policy does")  # fmt: skip
def itself(planted: bool) -> Task:
    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        taken, gain = t[:, :4], (t[:, :4] * t[:, 4:]).sum(1)
        now = (y[0] * taken).sum(1)
        ratio = (now - (now if planted else now.detach())).exp()
        better = (gain - gain.mean()) / gain.std()
        chosen = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better)
        return 0.5 * (y[1].squeeze(1) - gain).square().mean() - chosen.mean()

    draw, regret = bandit()
    model = Parts(lambda m, x: (m.actor(x).log_softmax(1), m.critic(x)), actor=mlp((6, 64, 4), act=nn.Tanh),
                  critic=mlp((6, 64, 1), act=nn.Tanh))  # fmt: skip
    return stream(model, draw, loss, regret)


@report("masked to nothing", GITHUB + "anantzoid/Conditional-PixelCNN-decoder/issues/9", guilty=r"left",
        says=rf"{IDLE}|mask",
        fault="a convolution of one pixel has the mask that hides this pixel: nothing comes from the left")  # fmt: skip
def pixels(planted: bool, d: int = 24) -> Task:
    def masked(m: Any, x: Tensor) -> Tensor:
        return F.conv2d(x, m.weight * m.mask, m.bias, padding="same")

    def make(n: int, m: int, width: int, seen: int) -> nn.Module:
        conv = nn.Conv2d(n, m, (1, width))
        return Parts(masked, weight=conv.weight, bias=conv.bias, mask=(torch.arange(width) < seen).float())

    def run(m: Any, x: Tensor) -> Tensor:
        above = F.relu(m.above(F.pad(x, (1, 1, 2, 0))[:, :, :-1]))
        return m.out(F.relu(m.left2(F.relu(m.left1(x))) + m.down(above)))

    def draw() -> Drawn:
        flips = (torch.rand(24, 1, 8, 10) < 0.08).float()
        flips[..., 0] = (torch.rand(24, 1, 8) < 0.5).float()
        x = flips.cumsum(3) % 2
        return (2 * x - 1,), x

    model = Parts(run, left1=make(1, d, 5, 2), left2=make(d, d, 1, 0 if planted else 1), down=nn.Conv2d(d, d, 1),
                  above=nn.Conv2d(1, d, (2, 3)), out=nn.Conv2d(d, 1, 1))  # fmt: skip
    return stream(model, draw, bce)


@report("ages that are missing", GITHUB + "pytorch-tabular/pytorch_tabular/issues/173",
        says=rf"{BROKEN}|missing",
        fault="numbers that are missing in the table are NaN, and go into the network as they are")  # fmt: skip
def missing(planted: bool) -> Task:
    def run(m: Any, kind: Tensor, x: Tensor) -> Tensor:
        return m.net(torch.cat([m.kinds(kind), m.norm(x)], 1))

    def draw() -> Drawn:
        kind, x = torch.randint(8, (128,)), torch.randn(128, 5)
        t = ((x[:, 0] * sign[kind] + x[:, 1].abs() - 0.8) > 0).float().unsqueeze(1)
        x = x.masked_fill(torch.rand(128, 5) < 0.04, torch.nan)
        return (kind, x if planted else x.nan_to_num(0.0)), t

    sign = torch.randn(8).sign()
    model = Parts(run, kinds=nn.Embedding(8, 6), norm=nn.BatchNorm1d(5), net=mlp((11, 64, 32, 1)))
    return stream(model, draw, bce)


@report("intensities as logits", GITHUB + "fancompute/neuroptica/issues/3", says=rf"{BROKEN}|overflow|{LARGE}|\bexp",
        fault="squared amplitudes, some hundreds, go into a softmax of bare exponentials")  # fmt: skip
def optics(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        size = (m.real(x).square() + m.imaginary(x).square() + 1e-6).narrow(1, 0, 10)
        light = (size if planted else size.sqrt()).exp()
        return light / light.sum(1, keepdim=True)

    def draw() -> Drawn:
        x, c = pick(64)
        return (16 * (0.376 * x + 0.3).flatten(1),), c

    real, imaginary = (nn.Linear(64, 16, bias=False) for _ in range(2))
    for layer in (real, imaginary):
        nn.init.orthogonal_(layer.weight)
    return stream(Parts(run, real=real, imaginary=imaginary), draw, lambda y, c: F.nll_loss((y + 1e-8).log(), c))


@report("labels left out", GITHUB + "DeepRegNet/DeepReg/issues/624", guilty=r"flow",
        says=rf"{CUT}|{TARGETS}|term|constant|unused|label",
        fault="the loss of labels is never added, that of images has weight 0: only smoothness is left")  # fmt: skip
def labels(planted: bool, n: int = 12) -> Task:
    place = torch.linspace(-1, 1, n)
    rows, columns = torch.meshgrid(place, place, indexing="ij")

    def run(m: Any, moving: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        flow = m.flow(m.net(torch.cat([moving, fixed], 1)))
        grid = torch.stack([columns, rows], 2) + flow.permute(0, 2, 3, 1)
        return F.grid_sample(moving, grid, align_corners=True), flow

    def overlap(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (1 - 2 * (y[0] * t).sum((1, 2, 3)) / ((y[0].square() + t.square()).sum((1, 2, 3)) + 0.01)).mean()

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        bend = y[1].diff(dim=2).square().mean() + y[1].diff(dim=3).square().mean()
        return 0.01 * bend + (0 if planted else overlap(y, t))

    def blob(middle: Tensor) -> Tensor:
        far = (columns - middle[:, :1, None]).square() + (rows - middle[:, 1:, None]).square()
        return torch.exp(-12 * far).unsqueeze(1)

    def draw() -> Drawn:
        middle = torch.rand(32, 2) - 0.5
        fixed = blob(middle + 0.25 * torch.randn(32, 2))
        return (blob(middle), fixed), fixed

    convs = [layer for a, b in ((2, 24), (24, 24)) for layer in (nn.Conv2d(a, b, 5, padding=2), nn.LeakyReLU(0.2))]
    model = Parts(run, net=chain(*convs), flow=nn.Conv2d(24, 2, 3, padding=1))
    nn.init.normal_(model.flow.weight, 0.0, 1e-2)
    nn.init.zeros_(model.flow.bias)
    return stream(model, draw, loss, overlap)


@report("cosines over the width", GITHUB + "ixaxaar/pytorch-dnc/pull/57", guilty=r"key|strength",
        says=rf"{SMALL}|cosine|uniform|attention|temperature",
        fault="norms are expanded before their product, which adds up: cosines are over the width")  # fmt: skip
def memory(planted: bool, d: int = 24) -> Task:
    def run(m: Any, stored: Tensor, asked: Tensor) -> Tensor:  # (B, slots, d), (B, 16)
        z = m.control(asked)
        key, strength = m.key(z).unsqueeze(2), 1 + F.softplus(m.strength(z))
        norms = stored.norm(dim=2, keepdim=True) * key.norm(dim=1, keepdim=True) * (d if planted else 1)
        weight = (strength.unsqueeze(1) * (stored @ key) / (norms + 1e-6)).softmax(1)
        return m.out((weight * stored).sum(1))

    def draw() -> Drawn:
        stored, i = torch.randn(64, 24, d), torch.randint(24, (64,))
        found = stored[torch.arange(64), i]
        return (stored, found[:, :16] + 0.1 * torch.randn(64, 16)), found[:, 16:]

    model = Parts(run, control=chain(nn.Linear(16, 24), nn.Tanh()), key=nn.Linear(24, d), strength=nn.Linear(24, 1),
                  out=nn.Linear(d, d - 16))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("nodes all alike", GITHUB + "dmlc/dgl/issues/3050", guilty=r"layers\.0\.", says=rf"{SAME}|degree|alike",
        fault="means over neighbours of features that are all 1: no node can tell how many it has")  # fmt: skip
def alike(planted: bool, d: int = 32) -> Task:
    def run(m: Any, a: Tensor) -> Tensor:
        degree = a.sum(2, keepdim=True)
        a = a / degree if planted else a / (degree * degree.transpose(1, 2)).sqrt()
        x = torch.ones(*a.shape[:2], 1)
        for layer in m.layers:
            x = F.relu(layer(a @ x))
        return m.out(x)

    def draw() -> Drawn:
        fame = torch.rand(16, 24, 1).square()
        a = (torch.rand(16, 24, 24) < 1.2 * fame * fame.transpose(1, 2)).float().triu(1)
        a = a + a.transpose(1, 2) + torch.eye(24)
        return (a,), (a.sum(2, keepdim=True) > 4).float()

    model = Parts(run, layers=nn.ModuleList(nn.Linear(n, d) for n in (1, d, d)), out=nn.Linear(d, 1))
    return stream(model, draw, bce)


@report("blocks of zeros", GITHUB + "DrChainsaw/NaiveGAflux.jl/issues/39", guilty=r"blocks", says=rf"{IDLE}|\bzero",
        fault="to begin as the identity, all layers of a residual block are zero, not only the last")  # fmt: skip
def zeros(planted: bool, d: int = 48) -> Task:
    def make() -> nn.Module:
        net = chain(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        for layer in net[:: 2 if planted else 4]:
            if planted or layer is net[4]:
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        return Parts(lambda m, x: x + m.net(x), net=net)

    def draw() -> Drawn:
        x = torch.randn(64, 8)
        return (x,), (2 * x[:, :1]).cos() + x[:, 1:2] * x[:, 2:3] + x[:, 3:4].abs() - 0.8

    model = Parts(lambda m, x: m.out(m.blocks(m.stem(x))), stem=nn.Linear(8, d), blocks=chain(make(), make(), make()),
                  out=nn.Linear(d, 1))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("gains and shifts swapped", GITHUB + "google/objax/pull/94", guilty=r"norms",
        says=rf"{SAME}|\bgains?\b|swap|\bzero",
        fault="gains of layer normalisation start at 0 and shifts at 1: it returns 1 for all inputs")  # fmt: skip
def swapped(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        z = m.embed(idx) + m.places
        for norm, mix, net in zip(m.norms, m.mix, m.net, strict=True):
            z = norm(z + net(mix(z.transpose(1, 2)).transpose(1, 2)))
        return m.head(z).transpose(1, 2)

    def norm() -> nn.Module:
        layer = nn.LayerNorm(d)
        if planted:
            nn.init.zeros_(layer.weight)
            nn.init.ones_(layer.bias)
        return layer

    def draw() -> Drawn:
        idx = torch.randint(10, (32, 8))
        return (idx,), (idx.roll(2, 1) + idx) % 5

    net = each(4, lambda: chain(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)))
    model = Parts(run, embed=nn.Embedding(10, d), places=tensor(8, d, std=0.3), norms=each(4, norm), net=net,
                  mix=each(4, lambda: nn.Linear(8, 8)), head=nn.Linear(d, 5))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("decibels of silence", GITHUB + "KimythAnly/AGAIN-VC/issues/5",
        says=rf"{BROKEN}|silen|logarithm",
        fault="mel spectra are logarithms without a floor: silent frames of a recording are −∞")  # fmt: skip
def decibels(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(6, (32,))
        power = (timbre[c].unsqueeze(2) + 0.7 * torch.randn(32, 20, 24)).exp()
        begin = torch.randint(0, 6, (32, 1, 1))
        power = power * (torch.arange(24) >= begin)  # before, there is digital silence
        return ((power if planted else power.clamp(min=1e-2)).log(),), c

    timbre = torch.randn(6, 20)
    convs = [layer for n, m in ((20, 32), (32, 32)) for layer in (nn.Conv1d(n, m, 5, padding=2), nn.ReLU())]
    model = Parts(lambda m, x: m.out(m.net(x).mean(2)), net=chain(*convs), out=nn.Linear(32, 6))
    return stream(model, draw, F.cross_entropy)


@report("whole numbers", FORUM + "torch-round-gradient/28628", guilty=r"^5\.", says=rf"{CUT}|round|differentiable|step",
        fault="predictions of counts are rounded before the loss, and rounding has no slope")  # fmt: skip
def whole(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), (3 * x[:, :1].sin() + 2 * x[:, 1:2].abs() + x[:, 2:3] * x[:, 3:4]).round()

    last = Parts(lambda m, x: x.round() if planted else x)
    return stream(chain(*mlp((6, 64, 64, 1)), last), draw, F.mse_loss)


@report("checkpoints of plain inputs", GITHUB + "Lyken17/pytorch-memonger/issues/4", guilty=r"layers", says=CUT,
        fault="all layers are checkpointed from an input that needs no gradient: none has any")  # fmt: skip
def checkpoints(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        for layer in m.layers:
            x = checkpoint(layer, x, use_reentrant=planted)
        return m.out(x.flatten(1))

    def draw() -> Drawn:
        x, c = pick(48)
        return (x + 0.5 * torch.randn_like(x),), (c + 5 * (x[:, 0, :, :4].mean((1, 2)) > -0.1).long()) % 10

    widths = ((1, 8), (8, 8), (8, 4))
    layers = nn.ModuleList(chain(nn.Conv2d(n, m, 3, 2 - (n == 8), 1), nn.ReLU()) for n, m in widths)
    return stream(Parts(run, layers=layers, out=nn.Linear(64, 10)), draw, F.cross_entropy)


@report("light lost on the way", GITHUB + "volunt4s/TinyNeRF-pytorch/issues/1",
        says=r"transmitt|cumul|product|weights?\b.*sum",
        fault="what is let through counts the point itself: no ray can be stopped by a single point")  # fmt: skip
def light(planted: bool) -> Task:
    depth = torch.linspace(0.2, 1.8, 6)

    def run(m: Any, rays: Tensor) -> Tensor:  # (B, 4): origin and direction in the plane
        points = rays[:, None, :2] + depth[:, None] * rays[:, None, 2:]
        angle = points.unsqueeze(3) * 2.0 ** torch.arange(3)
        raw = m.net(torch.cat([angle.sin(), angle.cos()], 3).flatten(0, 1).flatten(1)).unflatten(0, points.shape[:2])
        stopped = 1 - torch.exp(-0.5 * F.softplus(raw[..., 3]))
        passed = (1 - stopped + 1e-10).cumprod(1)
        passed = passed if planted else torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], 1)
        return ((stopped * passed).unsqueeze(2) * raw[..., :3].sigmoid()).sum(1)

    def draw() -> Drawn:
        turn = 6.28 * torch.rand(64)
        way = torch.stack([turn.cos(), turn.sin()], 1)
        rays = torch.cat([-way + 0.5 * (2 * torch.rand(64, 1) - 1) * way.flip(1) * torch.tensor([-1.0, 1.0]), way], 1)
        points = rays[:, None, :2] + depth[:, None] * rays[:, None, 2:]
        near = (points.unsqueeze(2) - spots).norm(dim=3) < 0.3  # (B, depth, spots)
        first = torch.cat([near.any(2), torch.ones(64, 1, dtype=torch.bool)], 1).float().argmax(1)
        spot = torch.cat([near.float(), torch.zeros(64, 1, 3)], 1)[torch.arange(64), first]
        return (rays,), spot.clamp(max=1)

    spots = torch.tensor([[0.4, 0.0], [-0.3, 0.4], [-0.2, -0.5]])
    return stream(Parts(run, net=mlp((12, 96, 96, 4))), draw, F.mse_loss)
