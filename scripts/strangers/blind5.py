"""A fifth set of faults out of public reports, written without sight of rules, findings and of what they miss."""

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
from strangers.blind3 import CUT, Drawn
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE, UNUSED, bright
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind5")
SMALL = r"shrink|vanish|fade|too small|\bsmall\b|decay"
TARGETS = r"targets?\b"
UNITS = (
    r"inputs?\b.*(scale|small|large|unit|range|normalis|standardis)|(scale|small|large|normalis|standardis).*inputs?\b"
)


def tensor(*shape: int, std: float = 1.0) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(*shape))


@report("votes that fade", GITHUB + "XifengGuo/CapsNet-Keras/issues/43", guilty=r"caps|votes", says=SMALL,
        fault="matrices of votes of N(0, 0.01²): capsules shrink by squares")  # fmt: skip
def capsules(planted: bool) -> Task:
    def squash(s: Tensor) -> Tensor:
        n = s.square().sum(-1, keepdim=True)
        return s * n / (1 + n) / (n + 1e-12).sqrt()

    def route(m: Any, u: Tensor) -> Tensor:
        votes, b = torch.einsum("bin,iomn->biom", u, m.votes), 0.0
        for _ in range(3):
            v = squash(((b + torch.zeros(votes.shape[:3])).softmax(2).unsqueeze(3) * votes).sum(1))
            b = b + (votes * v.unsqueeze(1)).sum(3)
        return v

    def run(m: Any, x: Tensor) -> Tensor:
        u = squash(F.relu(m.stem(x)).flatten(1).unflatten(1, (32, 8)))
        return (m.caps2(m.caps1(u)).square().sum(2) + 1e-12).sqrt()

    def loss(y: Tensor, t: Tensor) -> Tensor:
        true = F.one_hot(t, 10)
        return (true * F.relu(0.9 - y).square() + 0.5 * (1 - true) * F.relu(y - 0.1).square()).sum(1).mean()

    std = 0.01 if planted else 0.5
    caps = [Parts(route, votes=tensor(n, m, 8, 8, std=std)) for n, m in ((32, 16), (16, 10))]
    model = Parts(run, stem=nn.Conv2d(1, 16, 3, 2, 1), caps1=caps[0], caps2=caps[1])
    return stream(model, bright, loss)


@report("gains of zero", GITHUB + "google-research/timesfm/pull/481", guilty=r"norms?\b|gain",
        says=r"\bgains?\b|(outputs?|activations?).*(zero|constant)|dead",
        fault="gains of RMS normalisation start at zero, like biases: every layer returns zero")  # fmt: skip
def gains(planted: bool, d: int = 48) -> Task:
    def norm() -> nn.Module:
        gain = nn.Parameter(torch.zeros(d) if planted else torch.ones(d))
        return Parts(lambda m, x: m.gain * F.rms_norm(x, (d,)), gain=gain)

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.patch(x.unflatten(1, (8, 4)))
        for mix, net, norm in zip(m.mix, m.net, m.norms, strict=True):
            x = norm(x + mix(x.transpose(1, 2)).transpose(1, 2) + net(x))
        return m.out(x.flatten(1))

    def draw() -> Drawn:
        speed, phase = 0.2 + 0.5 * torch.rand(64, 1), 6.28 * torch.rand(64, 1)
        x = torch.sin(speed * torch.arange(36) + phase)
        return (x[:, :32],), x[:, 32:]

    net = each(3, lambda: chain(nn.Linear(d, 2 * d, bias=False), nn.SiLU(), nn.Linear(2 * d, d, bias=False)))
    model = Parts(run, patch=nn.Linear(4, d, bias=False), mix=each(3, lambda: nn.Linear(8, 8, bias=False)), net=net,
                  norms=each(3, norm), out=nn.Linear(8 * d, 4))  # fmt: skip
    return stream(model, draw, F.mse_loss)


@report("nanometres for ångströms", GITHUB + "choderalab/modelforge/pull/107", guilty=r"filters",
        says=rf"{UNITS}|radial|basis|constant",
        fault="radial functions 0.3 apart are made for ångströms, distances come in nanometres")  # fmt: skip
def radial(planted: bool, d: int = 32) -> Task:
    centres, other = torch.linspace(0.0, 6.0, 20), 1 - torch.eye(6)

    def run(m: Any, x: Tensor, kind: Tensor) -> Tensor:
        distance = torch.cdist(x, x) * (1 if planted else 10)
        basis = torch.exp(-10 * (distance.unsqueeze(3) - centres).square())
        z = m.kinds(kind)
        for filters, atom in zip(m.filters, m.atoms, strict=True):
            z = z + atom((filters(basis) * z.unsqueeze(1) * other.unsqueeze(2)).mean(2))
        return m.out(z).mean(1)

    def draw() -> Drawn:
        x, kind = 0.15 * torch.randn(64, 6, 3), torch.randint(2, (64, 6))
        distance = 10 * torch.cdist(x, x)
        depth = torch.exp(-12 * (distance - 2).square()) - torch.exp(-12 * (distance - 2.8).square())
        return (x, kind), (depth * other).sum((1, 2)).unsqueeze(1) / 6

    filters = each(2, lambda: chain(nn.Linear(20, d), nn.SiLU(), nn.Linear(d, d)))
    atoms = each(2, lambda: chain(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d)))
    model = Parts(run, kinds=nn.Embedding(2, d), filters=filters, atoms=atoms, out=nn.Linear(d, 1))
    return stream(model, draw, F.mse_loss)


@report("recordings in volts", GITHUB + "pquochuy/xsleepnet/issues/4", guilty=r"net\.0\.", says=rf"{UNITS}|{SMALL}",
        fault="volts times 1000 are taken for microvolts: inputs are a thousandth of what is meant")  # fmt: skip
def volts(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        speed = (0.25 * (c + 1)).unsqueeze(1) * (1 + 0.1 * torch.randn(48, 1))
        x = torch.sin(speed * torch.arange(64) + 6.28 * torch.rand(48, 1)) + 0.3 * torch.randn(48, 64)
        return ((1e-3 if planted else 1.0) * x.unsqueeze(1),), c

    convs = [layer for n, m in ((1, 24), (24, 24), (24, 24)) for layer in (nn.Conv1d(n, m, 7, 2, 3), nn.ReLU())]
    net = chain(*convs, nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(48, 4))
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, F.cross_entropy)


@report("ratings of unit vectors", GITHUB + "pytorch/pytorch/issues/3121", guilty=r"users|items", says=LARGE,
        fault="embeddings are left at N(0, 1): products of 64 numbers deviate by 8, ratings by 1")  # fmt: skip
def factors(planted: bool, d: int = 64) -> Task:
    taste, trait = torch.randn(60, 3), torch.randn(40, 3)

    def run(m: Any, user: Tensor, item: Tensor) -> Tensor:
        return (m.users(user) * m.items(item)).sum(1, keepdim=True) + m.user(user) + m.item(item)

    def draw() -> Drawn:
        user, item = torch.randint(60, (256,)), torch.randint(40, (256,))
        return (user, item), (taste[user] * trait[item]).sum(1, keepdim=True) / 1.7

    model = Parts(run, users=nn.Embedding(60, d), items=nn.Embedding(40, d), user=nn.Embedding(60, 1),
                  item=nn.Embedding(40, 1))  # fmt: skip
    for table in (model.users, model.items, model.user, model.item):
        nn.init.normal_(table.weight, 0.0, 1.0 if planted and table.weight.shape[1] > 1 else 0.1)
    return stream(model, draw, F.mse_loss)


@report("weights made by He", GITHUB + "Unity-Technologies/ml-agents/pull/4990", guilty=r"hyper", says=LARGE,
        fault="the last layer of a hypernetwork is drawn by He: the weights that it makes are near 1")  # fmt: skip
def hyper(planted: bool, n: int = 48) -> Task:
    shapes = ((8, n), (n, n), (n, n), (n, 1))
    sizes = [(a + 1) * b for a, b in shapes]

    def run(m: Any, x: Tensor, goal: Tensor) -> Tensor:
        z = x.unsqueeze(1)
        for i, (part, (a, b)) in enumerate(zip(m.hyper(goal).split(sizes, 1), shapes, strict=True)):
            z = z @ part[:, : a * b].unflatten(1, (a, b)) + part[:, a * b :].unsqueeze(1)
            z = F.relu(z) if i < 3 else z
        return z.squeeze(1)

    def draw() -> Drawn:
        x, goal = torch.randn(64, 8), torch.randn(64, 2)
        return (x, goal), torch.sin(x[:, :1] + goal[:, :1]) + 0.5 * x[:, 1:2] * goal[:, 1:].tanh()

    model = Parts(run, hyper=chain(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, sum(sizes))))
    nn.init.kaiming_normal_(model.hyper[2].weight, nonlinearity="relu")
    nn.init.zeros_(model.hyper[2].bias)
    if not planted:
        rows = model.hyper[2].weight.data.split(sizes)
        for row, (a, b) in zip(rows, shapes, strict=True):
            row[: a * b] /= math.sqrt(a)
            row[a * b :] = 0
    return stream(model, draw, F.mse_loss)


@report("every pitch as loud", GITHUB + "GistNoesis/FourierKAN/pull/4", guilty=r"weight",
        says=r"frequenc|smooth|rough|oscillat|steep",
        fault="sixty frequencies with coefficients of one size: the first layer scrambles what is near")  # fmt: skip
def fourier(planted: bool, k: int = 60) -> Task:
    pitch = torch.arange(1.0, k + 1)

    def layer(n: int, m: int) -> nn.Module:
        def run(p: Any, x: Tensor) -> Tensor:
            angle = x.unsqueeze(2) * pitch
            return torch.einsum("cbik,coik->bo", torch.stack([angle.cos(), angle.sin()]), p.weight) + p.bias

        scale = (0.3 if m == 1 else 1.0) * (torch.full((k,), 1 / math.sqrt(k)) if planted else pitch**-2)
        return Parts(run, weight=nn.Parameter(torch.randn(2, m, n, k) * scale / math.sqrt(n)),
                     bias=nn.Parameter(torch.zeros(m)))  # fmt: skip

    def draw() -> Drawn:
        x = 2 * torch.rand(64, 2) - 1
        return (x,), torch.sin(3 * x[:, :1]) + 2 * x[:, :1] * x[:, 1:]

    return stream(chain(layer(2, 16), layer(16, 1)), draw, F.mse_loss)


@report("layers of two and one", GITHUB + "ooples/AiDotNet/pull/1578", guilty=r"^[13]\.",
        says=r"narrow|\bwidth|\bwide\b|dead|bottleneck|few (units|outputs)|constant",
        fault="hidden layers are as wide as the input, which is one number: two units, then one")  # fmt: skip
def narrow(planted: bool) -> Task:
    def draw() -> Drawn:
        x = 2 * torch.rand(64, 1) - 1
        return (x,), torch.sin(6 * x)

    return stream(mlp((1, 2, 1, 1) if planted else (1, 32, 16, 1)), draw, F.mse_loss)


@report("clipped at twenty", GITHUB + "mozilla/DeepSpeech/issues/138", guilty=r"weight", says=rf"satur|clip|{LARGE}",
        fault="weights and biases of N(0, 1), and activations clipped to 0 to 20: most are at an end")  # fmt: skip
def clipped(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(8, (16, 12))
        x = F.one_hot(c, 8).float() + 0.3 * torch.randn(16, 12, 8)
        return (torch.cat([x, x.roll(1, 1)], 2).flatten(0, 1),), ((c + c.roll(1, 1)) % 8).flatten()

    layers: list[nn.Module] = []
    for n in (16, *[96] * 4):
        layers += [nn.Linear(n, 96), nn.Hardtanh(0, 20)]
    model = chain(*layers, nn.Linear(96, 8))
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 1.0 if planted else 0.1)
    return stream(model, draw, F.cross_entropy)


@report("standard normal weights", GITHUB + "cics-nd/rans-uncertainty/issues/14", guilty=r"net", says=LARGE,
        fault="all weights of a tensor basis network are drawn from N(0, 1), 64 inputs each")  # fmt: skip
def normals(planted: bool) -> Task:
    def run(m: Any, invariants: Tensor, basis: Tensor) -> Tensor:
        return (m.net(invariants).unsqueeze(2) * basis).sum(1)

    def draw() -> Drawn:
        x, basis = torch.randn(64, 5), torch.randn(64, 4, 6)
        share = torch.cat([x[:, :2].sin(), x[:, 2:3] * x[:, 3:4].tanh(), -0.5 + 0 * x[:, :1]], 1)
        return (x, basis), (share.unsqueeze(2) * basis).sum(1)

    model = Parts(run, net=mlp((5, 64, 64, 64, 4), act=nn.LeakyReLU))
    if planted:
        for layer in model.net:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight)
    return stream(model, draw, F.mse_loss)


@report("attention left in a drawer", GITHUB + "lucidrains/audiolm-pytorch/pull/265", guilty=r"qkv|proj|attn",
        says=rf"attention|{UNUSED}",
        fault="what attention returns is given a name that is never read: layers see their own token only")  # fmt: skip
def drawer(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx) + m.places
        for norm, qkv, proj, net in zip(m.norms, m.qkv, m.proj, m.net, strict=True):
            attended = x + proj(joined(F.scaled_dot_product_attention(*split(qkv(norm(x))), is_causal=True)))
            x = x if planted else attended
            x = x + net(x)
        return m.head(x).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 10))
        return (idx,), torch.cat([idx[:, :1], idx[:, :-1]], 1)

    net = each(2, lambda: chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)))
    model = Parts(run, embed=nn.Embedding(12, d), places=tensor(10, d, std=0.5), norms=each(2, lambda: nn.LayerNorm(d)),
                  qkv=each(2, lambda: nn.Linear(d, 3 * d)), proj=each(2, lambda: nn.Linear(d, d)), net=net,
                  head=nn.Linear(d, 12))  # fmt: skip
    return stream(model, draw, F.cross_entropy)


@report("a place for each example", GITHUB + "NeuracoreAI/neuracore/pull/154", guilty=r"places",
        says=rf"position|\border|axis|{MIXED}",
        fault="positions are unsqueezed on the wrong side: all steps of an example have the same")  # fmt: skip
def placed(planted: bool, d: int = 48) -> Task:
    def run(m: Any, idx: Tensor) -> Tensor:
        x = m.embed(idx)
        x = x + (m.places[: len(x)].unsqueeze(1) if planted else m.places[: x.shape[1]])
        return m.head(m.encoder(x)).transpose(1, 2)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 8))
        return (idx,), idx.flip(1)

    layer = nn.TransformerEncoderLayer(d, 4, 96, 0.0, batch_first=True, norm_first=True)
    model = Parts(run, embed=nn.Embedding(12, d), places=tensor(64, d), encoder=layer, head=nn.Linear(d, 12))
    return stream(model, draw, F.cross_entropy)


@report("the last neighbour alone", GITHUB + "brucefan1983/GPUMD/pull/157", guilty=r"message",
        says=r"neighbo|overwrit|unused|no effect",
        fault="messages of neighbours are assigned in turn, not added: only that of the last one stays")  # fmt: skip
def last_one(planted: bool, d: int = 32) -> Task:
    near = torch.stack([torch.randperm(24)[:6] for _ in range(24)])  # (N, neighbours)

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.atom(x)
        total = torch.zeros_like(z)
        for i in range(near.shape[1]):
            sent = m.message(z[:, near[:, i]])
            total = sent if planted else total + sent
        return m.out(torch.cat([z, total], 2))

    def draw() -> Drawn:
        x = torch.randn(16, 24, 3)
        return (x,), 0.6 * (x[..., :1] * x[..., 1:2].sigmoid() + 0.5 * x[..., 2:])[:, near].sum(2)

    message = chain(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d))
    model = Parts(run, atom=mlp((3, d), act=nn.Tanh)[1:], message=message, out=mlp((2 * d, d, 1))[1:])
    return stream(model, draw, F.mse_loss)


@report("rows of another graph", GITHUB + "phlippe/uvadlc_notebooks/issues/5", guilty=r"score|project",
        says=rf"index|neighbo|attention|{MIXED}",
        fault="flattened nodes are looked up at example · batch size + node: scores are of other graphs")  # fmt: skip
def other_rows(planted: bool, d: int = 32) -> Task:
    count, nodes = 16, 20
    a = (torch.rand(nodes, nodes) < 0.3) | torch.eye(nodes, dtype=torch.bool)
    edges = a.nonzero()  # (E, 2)

    def run(m: Any, x: Tensor) -> Tensor:
        z = m.project(x)
        start = torch.arange(len(x)).unsqueeze(1) * (len(x) if planted else nodes)
        pair = torch.cat([z.flatten(0, 1)[start + edges[:, i]] for i in (0, 1)], 2)  # (B, E, 2 d)
        scores = torch.full((len(x), nodes, nodes), -1e9)
        scores[:, edges[:, 0], edges[:, 1]] = m.score(F.leaky_relu(pair, 0.2)).squeeze(2)
        return m.out(scores.softmax(2) @ z)

    def draw() -> Drawn:
        x = torch.randn(count, nodes, 4)
        best = x[:, None, :, 0].masked_fill(~a, -torch.inf).argmax(2)
        return (x,), x[..., 1:3].gather(1, best.unsqueeze(2).expand(-1, -1, 2))

    model = Parts(run, project=nn.Linear(4, d), score=mlp((2 * d, 64, 1))[1:], out=nn.Linear(d, 2))
    return stream(model, draw, F.mse_loss)


@report("a grid of rows and columns", GITHUB + "voxelmorph/voxelmorph/pull/652", guilty=r"flow",
        says=r"transpos|swap|axis|axes|grid|coordinate|order",
        fault="the identity grid holds (y, x) where grid_sample wants (x, y): all images are transposed")  # fmt: skip
def grid(planted: bool, n: int = 12) -> Task:
    place = torch.linspace(-1, 1, n)
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    identity = torch.stack([rows, columns] if planted else [columns, rows], 2)

    def blob(middle: Tensor) -> Tensor:
        spread = (columns - middle[:, :1, None]).square() + (0.5 * (rows - middle[:, 1:, None])).square()
        return torch.exp(-12 * spread).unsqueeze(1)

    def run(m: Any, moving: Tensor, fixed: Tensor) -> Tensor:
        flow = m.flow(m.net(torch.cat([moving, fixed], 1)))
        return F.grid_sample(moving, identity + flow.permute(0, 2, 3, 1), align_corners=True)

    def draw() -> Drawn:
        middle = 1.2 * torch.rand(32, 2) - 0.6
        fixed = blob(middle + 0.3 * torch.randn(32, 2))
        return (blob(middle), fixed), fixed

    convs = [layer for a, b in ((2, 24), (24, 24)) for layer in (nn.Conv2d(a, b, 5, padding=2), nn.LeakyReLU(0.2))]
    model = Parts(run, net=chain(*convs), flow=nn.Conv2d(24, 2, 3, padding=1))
    nn.init.normal_(model.flow.weight, 0.0, 1e-3)
    nn.init.zeros_(model.flow.bias)
    return stream(model, draw, lambda y, t: 20 * F.mse_loss(y, t))


@report("an encoder that is only read", GITHUB + "rll-research/cic/issues/5", guilty=r"encoder", says=CUT,
        fault="frames are encoded under no_grad before skills are learnt: the convolutions never are")  # fmt: skip
def only_read(planted: bool) -> Task:
    def run(m: Any, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not planted):
            one, two = m.encoder(before), m.encoder(after)
        return F.normalize(m.query(one)), F.normalize(m.key(two))

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return F.cross_entropy(y[0] @ y[1].t() / 0.1, torch.arange(len(y[0])))

    def draw() -> Drawn:
        x = torch.randn(32, 1, 8, 8)
        return (x, x.roll(1, 3) + 0.3 * torch.randn_like(x)), torch.zeros(32)

    encoder = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 2, 1), nn.ReLU(), nn.Flatten())
    return stream(Parts(run, encoder=encoder, query=mlp((32, 32)), key=mlp((32, 32))), draw, loss)


@report("layers by their data", GITHUB + "d2l-ai/d2l-en/pull/2600", guilty=r"^[02]\.", says=CUT,
        fault="a layer of one's own multiplies by weight.data: its parameters get no gradient")  # fmt: skip
def by_data(planted: bool) -> Task:
    def linear(m: Any, x: Tensor) -> Tensor:
        return F.relu(x @ m.weight.data + m.bias.data if planted else x @ m.weight + m.bias)

    def draw() -> Drawn:
        x = torch.randn(64, 16)
        return (x,), torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]

    parts = [Parts(linear, weight=tensor(n, m, std=1 / math.sqrt(n)), bias=nn.Parameter(torch.zeros(m)))
             for n, m in ((16, 24), (24, 8))]  # fmt: skip
    return stream(chain(parts[0], nn.Identity(), parts[1], nn.Linear(8, 1)), draw, F.mse_loss)


@report("boxes and scores rectified", GITHUB + "tsinghua-rll/VoxelNet-tensorflow/issues/10", guilty=r"scores|boxes",
        says=r"ReLU|rectif|negative|only positive|\bsign\b",
        fault="the last convolutions of scores and boxes have a ReLU as all others do")  # fmt: skip
def rectified(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.net(x)
        y = m.scores(z), m.boxes(z)
        return (F.relu(y[0]), F.relu(y[1])) if planted else y

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        there, gap = t[:, :1], (y[1] - t[:, 1:]).square()
        return bce(y[0], there) + (gap * there).sum() / (2 * there.sum())

    def draw() -> Drawn:
        place, shift = torch.randint(64, (32,)), torch.randn(32, 2)
        there = F.one_hot(place, 64).float().view(32, 1, 8, 8)
        shown = there * shift.view(32, 2, 1, 1)
        return (torch.cat([2 * there, shown], 1) + 0.1 * torch.randn(32, 3, 8, 8),), torch.cat([there, shown], 1)

    net = chain(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
    return stream(Parts(run, net=net, scores=nn.Conv2d(24, 1, 1), boxes=nn.Conv2d(24, 2, 1)), draw, loss)


@report("prototypes of long vectors", GITHUB + "facebookresearch/swav/issues/67", guilty=r"prototypes|net\.5",
        says=rf"{BROKEN}|normalis|{LARGE}|overflow|\bexp",
        fault="features are not normalised before exp(scores / 0.05): their sum is infinite")  # fmt: skip
def prototypes(planted: bool) -> Task:
    def run(m: Any, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        z = [m.net(x) for x in (one, two)]
        z = z if planted else [F.normalize(each) for each in z]
        return z[0] @ F.normalize(m.prototypes).t(), z[1] @ F.normalize(m.prototypes).t()

    def code(scores: Tensor) -> Tensor:
        q = (scores.detach() / 0.05).exp().t()
        q = q / q.sum()
        for _ in range(3):
            q = q / q.sum(1, keepdim=True) / len(q)
            q = q / q.sum(0, keepdim=True) / q.shape[1]
        return (q * q.shape[1]).t()

    def loss(y: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return -sum((code(a) * (b / 0.1).log_softmax(1)).sum(1).mean() for a, b in (y, y[::-1])) / 2

    def draw() -> Drawn:
        x = 3 * kinds[torch.randint(12, (64,))]
        return (x + 0.5 * torch.randn_like(x), x + 0.5 * torch.randn_like(x)), torch.zeros(64)

    kinds = torch.randn(12, 24)
    net = mlp((24, 96, 96, 64))
    for i in (1, 3, 5):
        nn.init.kaiming_normal_(net[i].weight)
    return stream(Parts(run, net=net, prototypes=tensor(12, 64)), draw, loss)


@report("the angle of no turn", GITHUB + "naver/roma/issues/9", guilty=r"turn", says=rf"{BROKEN}|acos|arccos",
        fault="arccosine of the trace, where some turns are exactly right: its slope is infinite at 1")  # fmt: skip
def geodesic(planted: bool) -> Task:
    def run(m: Any, one: Tensor, two: Tensor) -> Tensor:
        a, b = (m.turn(m.net(torch.cat([one, two], 2)).amax(1)) + torch.eye(3).flatten()[:6]).chunk(2, 1)
        a = F.normalize(a)
        b = F.normalize(b - (a * b).sum(1, keepdim=True) * a)
        return torch.stack([a, b, torch.linalg.cross(a, b)], 1)

    def loss(y: Tensor, t: Tensor, edge: float = 1.0) -> Tensor:
        cosine = ((y * t).sum((1, 2)) - 1) / 2
        return cosine.clamp(-edge, edge).acos().mean()

    def draw() -> Drawn:
        angle = 1.5 * torch.randn(48) * (torch.arange(48) % 4 > 0)
        cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros(48), torch.ones(48)
        turn = torch.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one], 1).view(48, 3, 3)
        x = torch.randn(48, 12, 3)
        return (x, x @ turn), turn

    model = Parts(run, net=mlp((6, 64, 96), nn.ReLU())[1:], turn=nn.Linear(96, 6))
    nn.init.zeros_(model.turn.weight)
    nn.init.zeros_(model.turn.bias)
    right = partial(loss, edge=1 - 1e-5)
    return stream(model, draw, loss if planted else right, right)


@report("per cent of nothing", GITHUB + "unit8co/darts/issues/2517", guilty=r"net\.5",
        says=rf"{BROKEN}|target.*zero|zero.*target|division|divided",
        fault="errors are divided by demands, of which a third are zero")  # fmt: skip
def per_cent(planted: bool) -> Task:
    def mape(y: Tensor, t: Tensor) -> Tensor:
        return ((y - t) / t).abs().mean()

    def draw() -> Drawn:
        x = torch.sin(torch.rand(64, 1) + 6.28 * torch.rand(64, 1) + 0.5 * torch.arange(20))
        return (x[:, :16],), F.relu(x[:, 16:] + 0.3)

    return stream(
        Parts(lambda m, x: m.net(x), net=mlp((16, 64, 64, 4))), draw, mape if planted else F.l1_loss, F.l1_loss
    )


@report("seconds and degrees", GITHUB + "TheodoreWolf/pinns/pull/3", guilty=r"net\.[17]",
        says=rf"{UNITS}|satur|{TARGETS}",
        fault="a cup of coffee cools over 1000 seconds from 95 °C: both are left as they are")  # fmt: skip
def coffee(planted: bool) -> Task:
    def run(m: Any, t: Tensor, room: Tensor) -> Tensor:
        if planted:
            return m.net(torch.cat([t, room], 1))
        return 25 + 70 * m.net(torch.cat([t / 500 - 1, room / 10 - 2], 1))

    def draw() -> Drawn:
        t, room = 1000 * torch.rand(64, 1), 15 + 10 * torch.rand(64, 1)
        return (t, room), room + (95 - room) * torch.exp(-0.005 * t)

    net = mlp((2, 48, 48, 48, 1), act=nn.Tanh)
    return stream(Parts(run, net=net), draw, lambda y, t: F.mse_loss(y, t) / 500)


@report("energies with their atoms", GITHUB + "choderalab/modelforge/pull/77", guilty=r"out|kinds",
        says=rf"offset|bias|{TARGETS}",
        fault="energies are total ones, some −40 for each atom, of which bonds are a thousandth")  # fmt: skip
def atoms(planted: bool, d: int = 48) -> Task:
    own = torch.tensor([-0.6, -38.1, -54.8, -75.2])
    pairs = 0.5 * torch.randn(4, 4)
    pairs = pairs + pairs.t() - 2 * pairs.mean()

    def run(m: Any, kind: Tensor, x: Tensor) -> Tensor:
        z, near = m.kinds(kind), torch.exp(-torch.cdist(x, x).square()) * (1 - torch.eye(8))
        sent = m.send(z)
        z = z + m.net(torch.cat([z, near @ sent], 2))
        return m.out(F.silu(z)).sum(1)

    def draw() -> Drawn:
        kind, x = torch.randint(4, (48, 8)), torch.randn(48, 8, 3)
        near = torch.exp(-torch.cdist(x, x).square()) * (1 - torch.eye(8))
        bonds = (near * pairs[kind.unsqueeze(2), kind.unsqueeze(1)]).sum((1, 2))
        return (kind, x), (bonds + planted * own[kind].sum(1)).unsqueeze(1)

    net = chain(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d))
    model = Parts(run, kinds=nn.Embedding(4, d), send=nn.Linear(d, d), net=net, out=nn.Linear(d, 1))
    nn.init.normal_(model.out.weight, 0.0, 0.01)
    return stream(model, draw, F.mse_loss)


@report("values in thousands", GITHUB + "DLR-RM/stable-baselines3/issues/1533", guilty=r"trunk|value",
        says=rf"balance|dominat|loss.*(term|part)|returns|{TARGETS}|{LARGE}",
        fault="returns of some thousands: the loss of values is 10⁶ times that of the policy")  # fmt: skip
def thousands(planted: bool) -> Task:
    unit = 3000.0 if planted else 1.0

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.trunk(x)
        return m.policy(z).log_softmax(1), m.value(z)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        gain = (t[:, :4] * t[:, 4:]).sum(1, keepdim=True)
        praised = (y[0] * t[:, :4]).sum(1, keepdim=True) * (gain - gain.mean()) / gain.std()
        return 0.5 * (y[1] - unit * gain).square().mean() - praised.mean()

    def regret(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        return (y[0].exp() * (t[:, 4:].max(1, keepdim=True)[0] - t[:, 4:])).sum(1).mean()

    def draw() -> Drawn:
        x = torch.randn(128, 6)
        best = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
        gains = F.one_hot(best, 4) + 0.1 * torch.randn(128, 4)
        return (x,), torch.cat([F.one_hot(torch.randint(4, (128,)), 4).float(), gains], 1)

    model = Parts(run, trunk=mlp((6, 64, 8), nn.Tanh(), act=nn.Tanh), policy=nn.Linear(8, 4), value=nn.Linear(8, 1))
    return stream(model, draw, loss, regret)


@report("groups of one", GITHUB + "Tencent-Hunyuan/UniRL/issues/330", says=rf"{BROKEN}|deviation|\bstd\b",
        fault="rewards are divided by the deviation of their group, and that of one answer is no number")  # fmt: skip
def groups(planted: bool) -> Task:
    sizes = torch.tensor([6] * 20 + [1] * 8)
    group = torch.repeat_interleave(torch.arange(28), sizes)

    def loss(y: Tensor, t: Tensor) -> Tensor:
        reward, praised = (t[:, :5] * t[:, 5:10]).sum(1), (y * t[:, :5]).sum(1)
        of = F.one_hot(t[:, 10].long(), 28).float()
        rest = reward - of @ (of.t() @ reward / of.sum(0).clamp(min=1))
        deviation = (of.t() @ rest.square() / (of.sum(0) - int(planted))).sqrt()[t[:, 10].long()]
        return -(praised * rest / (deviation + 1e-4)).mean()

    def regret(y: Tensor, t: Tensor) -> Tensor:
        return (y.exp() * (1 - t[:, 5:10])).sum(1).mean()

    def draw() -> Drawn:
        prompt = torch.randn(28, 8)[group]
        answer, best = F.one_hot(torch.randint(5, (128,)), 5), F.one_hot((prompt @ wish).argmax(1), 5)
        return (prompt,), torch.cat([answer, best, group.unsqueeze(1)], 1).float()

    wish = torch.randn(8, 5)
    return stream(mlp((8, 64, 5), nn.LogSoftmax(1), act=nn.Tanh), draw, loss, regret)


@report("a loss of fresh numbers", GITHUB + "paiml/aprender/issues/3034", guilty=r"boxes", says=CUT,
        fault="a smooth L1 loss is computed from copies of numbers: boxes get no gradient")  # fmt: skip
def fresh(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        z = m.net(x)
        return m.classes(z), m.boxes(z)

    def loss(y: tuple[Tensor, Tensor], t: Tensor) -> Tensor:
        found = y[1].detach().clone() if planted else y[1]
        return F.cross_entropy(y[0], t[:, 0].long()) + F.smooth_l1_loss(found, t[:, 1:])

    def draw() -> Drawn:
        x, c = pick(64)
        shift = torch.randint(0, 9, (64, 2))
        wide = torch.full((64, 1, 16, 16), -0.8)
        for i, (a, b) in enumerate(shift.tolist()):
            wide[i, :, a : a + 8, b : b + 8] = x[i]
        return (wide,), torch.cat([c.unsqueeze(1), shift / 2.0 - 2], 1)

    net = chain(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                nn.Linear(512, 64), nn.ReLU())  # fmt: skip
    model = Parts(run, net=net, classes=nn.Linear(64, 10), boxes=nn.Linear(64, 2))
    return stream(model, draw, loss, lambda y, t: F.smooth_l1_loss(y[1], t[:, 1:]))


@report("magnitudes without logarithms", GITHUB + "Kyubyong/tacotron/issues/16", guilty=r"out",
        says=rf"skew|\btail|outlier|{TARGETS}|{LARGE}",
        fault="magnitudes of spectra, from 0.01 to 1000, are learnt as they are, not their logarithms")  # fmt: skip
def magnitudes(planted: bool) -> Task:
    def error(y: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(y.clamp(min=1e-2).log() if planted else y, t.log() if planted else t)

    def draw() -> Drawn:
        idx = torch.randint(10, (24, 12))
        loud = timbre[idx] + 0.5 * timbre[idx.roll(1, 1)].roll(3, 2) * (torch.arange(12) > 0).unsqueeze(1)
        return (idx,), loud.exp() if planted else loud

    timbre = 2 * torch.randn(10, 20)
    model = Parts(lambda m, idx: m.out(m.gru(m.embed(idx))[0]), embed=nn.Embedding(10, 24),
                  gru=nn.GRU(24, 64, batch_first=True), out=nn.Linear(64, 20))  # fmt: skip
    return stream(model, draw, F.mse_loss, error)


@report("distances as logits", GITHUB + "RL-VIG/LibFewShot/issues/49", guilty=r"net",
        says=rf"logit|temperature|distance|{LARGE}",
        fault="squared distances of 400 features are logits as they are: they differ by hundreds")  # fmt: skip
def shots(planted: bool) -> Task:
    def loss(y: Tensor, t: Tensor) -> Tensor:  # every other example is there to be compared with
        of = F.one_hot(t[::2], 5).float()
        middle = of.t() @ y[::2] / of.sum(0).clamp(min=1).unsqueeze(1)
        far = (y[1::2].unsqueeze(1) - middle).square().sum(2)
        return F.cross_entropy(-(1 if planted else 0.01) * far, t[1::2])

    def draw() -> Drawn:
        c = torch.cat([torch.arange(5).repeat_interleave(2), torch.randint(5, (70,))])
        return ((torch.randn(5, 4) @ ways)[c] + torch.randn(80, 32),), c

    ways = 0.5 * torch.randn(4, 32)
    net = chain(nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 400), nn.BatchNorm1d(400))
    return stream(Parts(lambda m, x: m.net(x), net=net), draw, loss)


@report("channels poured over time", GITHUB + "vitrioil/Speech-Separation/issues/4", guilty=r"rnn|conv",
        says=r"permut|transpos|\bview|reshap|axis|axes|(time|steps?)\b.*(mix|order|depend)|scrambl",
        fault="(B, channels, time, pitch) viewed as (B, time, channels · pitch): steps are mixed")  # fmt: skip
def poured(planted: bool) -> Task:
    def run(m: Any, x: Tensor) -> Tensor:
        z = F.relu(m.conv(x.unsqueeze(1)))  # (B, 6, T, 8)
        z = z.reshape(len(z), z.shape[2], -1) if planted else z.transpose(1, 2).flatten(2)
        return m.out(m.rnn(z)[0]).transpose(1, 2)

    def draw() -> Drawn:
        c = torch.randint(8, (32, 20))
        x = 1.5 * F.one_hot(c, 8) + 0.3 * torch.randn(32, 20, 8)
        return (x,), (c + torch.cat([c[:, :1], c[:, :-1]], 1)) % 4

    model = Parts(run, conv=nn.Conv2d(1, 6, 3, padding=1), rnn=nn.GRU(48, 64, batch_first=True), out=nn.Linear(64, 4))
    return stream(model, draw, F.cross_entropy)


@report("answers dropped", GITHUB + "maddin79/darch/issues/12", guilty=r"^5\.", says=r"drop|nois|random",
        fault="dropout is applied behind the last layer as well: half of the answers are zero")  # fmt: skip
def dropped(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), torch.stack([x[:, 0].sin(), x[:, 1] * x[:, 2].tanh(), x[:, 3].abs() - 0.8], 1) + 1

    last = [nn.Dropout(0.5)] if planted else []
    return stream(chain(*mlp((6, 64, 64, 3)), *last), draw, F.mse_loss)
