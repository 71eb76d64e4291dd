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
from strangers.blind3 import CUT, SAME
from strangers.blind3_healthy import joined, split
from strangers.blind4 import LARGE, UNUSED, bright
from strangers.case import Task
from strangers.case import report as any_report
from strangers.reports import mlp

report = partial(any_report, blind="blind5")
Drawn = tuple[tuple[Tensor, ...], Tensor]
SMALL = r"shrink|vanish|fade|too small|\bsmall\b|decay"
SCALE = r"target|scale|unit|normalis|standardis"


def tensor(*shape: int, std: float = 1.0) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(*shape))


@report("votes that fade", GITHUB + "XifengGuo/CapsNet-Keras/issues/43", guilty=r"caps|votes", says=SMALL,
        fault="matrices of votes of N(0, 0.01²): what capsules say shrinks by its square in each of two layers")  # fmt: skip
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


@report("gains of zero", GITHUB + "google-research/timesfm/pull/481", guilty=r"norms?\b|gain", says=r"zero|gain|dead",
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
        says=r"input|unit|scale|constant|radial|basis",
        fault="radial functions 0.3 apart are made for ångströms, distances come in nanometres")  # fmt: skip
def radial(planted: bool, d: int = 32) -> Task:
    centres = torch.linspace(0.0, 6.0, 20)

    def run(m: Any, x: Tensor, kind: Tensor) -> Tensor:
        gap = x.unsqueeze(2) - x.unsqueeze(1)
        distance = (gap.square().sum(3) + 1e-9).sqrt() * (1 if planted else 10)
        basis = torch.exp(-10 * (distance.unsqueeze(3) - centres).square())
        other = 1 - torch.eye(6)
        z = m.kinds(kind)
        for filters, atom in zip(m.filters, m.atoms, strict=True):
            z = z + atom((filters(basis) * z.unsqueeze(1) * other.unsqueeze(2)).sum(2))
        return m.out(z).sum(1)

    def draw() -> Drawn:
        x, kind = 0.2 * torch.randn(48, 6, 3), torch.randint(2, (48, 6))
        distance = 10 * torch.cdist(x, x) + 10 * torch.eye(6)
        sign = 2 * (kind.unsqueeze(2) == kind.unsqueeze(1)).float() - 1
        energy = (sign * torch.sin(4 * distance)).sum((1, 2))
        return (x, kind), energy.unsqueeze(1) / 5

    filters = each(2, lambda: chain(nn.Linear(20, d), nn.SiLU(), nn.Linear(d, d)))
    atoms = each(2, lambda: chain(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d)))
    model = Parts(run, kinds=nn.Embedding(2, d), filters=filters, atoms=atoms, out=nn.Linear(d, 1))
    return stream(model, draw, F.mse_loss)


@report("recordings in volts", GITHUB + "pquochuy/xsleepnet/issues/4", guilty=r"net\.0\.", says=rf"input|{SMALL}|{SCALE}",
        fault="electroencephalograms are left in volts, some 0.00003, where microvolts are meant")  # fmt: skip
def volts(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(4, (48,))
        speed = (0.25 * (c + 1)).unsqueeze(1) * (1 + 0.1 * torch.randn(48, 1))
        x = torch.sin(speed * torch.arange(64) + 6.28 * torch.rand(48, 1)) + 0.3 * torch.randn(48, 64)
        return ((3e-5 if planted else 1.0) * x.unsqueeze(1),), c

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
        says=r"frequenc|smooth|high|rough|grid|oscillat|\bsteep",
        fault="sixty frequencies with coefficients of one size: the first layer scrambles what is near")  # fmt: skip
def fourier(planted: bool, k: int = 60) -> Task:
    pitch = torch.arange(1.0, k + 1)

    def layer(n: int, m: int) -> nn.Module:
        def run(p: Any, x: Tensor) -> Tensor:
            angle = x.unsqueeze(2) * pitch
            return torch.einsum("cbik,coik->bo", torch.stack([angle.cos(), angle.sin()]), p.weight) + p.bias

        scale = torch.full((k,), 1 / math.sqrt(k)) if planted else pitch**-2
        return Parts(run, weight=nn.Parameter(torch.randn(2, m, n, k) * scale / math.sqrt(n)),
                     bias=nn.Parameter(torch.zeros(m)))  # fmt: skip

    def draw() -> Drawn:
        x = 2 * torch.rand(64, 2) - 1
        return (x,), torch.sin(3 * x[:, :1]) + 2 * x[:, :1] * x[:, 1:]

    return stream(chain(layer(2, 16), layer(16, 1)), draw, F.mse_loss)


@report("layers of two and one", GITHUB + "ooples/AiDotNet/pull/1578", guilty=r"^[13]\.",
        says=r"narrow|width|wide|dead|few|bottleneck|constant",
        fault="hidden layers are as wide as the input, which is one number: two units, then one")  # fmt: skip
def narrow(planted: bool) -> Task:
    def draw() -> Drawn:
        x = 2 * torch.rand(64, 1) - 1
        return (x,), torch.sin(6 * x)

    return stream(mlp((1, 2, 1, 1) if planted else (1, 32, 16, 1)), draw, F.mse_loss)


@report("drawn for another width", GITHUB + "mozilla/DeepSpeech/issues/138", guilty=r"weight", says=SMALL,
        fault="N(0, 0.047²) that was chosen for layers of 2048, in six layers of 64: nothing gets through")  # fmt: skip
def widths(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(8, (16, 12))
        x = F.one_hot(c, 8).float() + 0.3 * torch.randn(16, 12, 8)
        return (torch.cat([x, x.roll(1, 1)], 2).flatten(0, 1),), ((c + c.roll(1, 1)) % 8).flatten()

    layers: list[nn.Module] = []
    for n in (16, *[64] * 6):
        layers += [nn.Linear(n, 64), nn.Hardtanh(0, 20)]
    model = chain(*layers, nn.Linear(64, 8))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.046875 if planted else math.sqrt(2 / layer.in_features))
            nn.init.zeros_(layer.bias)
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


@report("gain for no way around", GITHUB + "huangleiBuaa/ONI/issues/1", guilty=r"\.(one|two)\.", says=LARGE,
        fault="orthogonal weights times √2, meant for plain networks, in residual ones without normalisation")  # fmt: skip
def oni(planted: bool, d: int = 12) -> Task:
    def block() -> nn.Module:
        convs = [nn.Conv2d(d, d, 3, padding=1) for _ in range(2)]
        for conv in convs:
            nn.init.orthogonal_(conv.weight, math.sqrt(2) if planted else 0.6)
        return Parts(lambda m, x: x + m.two(F.relu(m.one(F.relu(x)))), one=convs[0], two=convs[1])

    model = chain(nn.Conv2d(1, d, 3, 2, 1), *(block() for _ in range(16)), nn.ReLU(), nn.Flatten(),
                  nn.Linear(16 * d, 10))  # fmt: skip
    return stream(model, bright, F.cross_entropy)


@report("masked by next to nothing", GITHUB + "Shujun-He/RibonanzaNet/issues/5", guilty=r"query|key|qkv",
        says=r"mask|attention|padding|uniform",
        fault="scores of what is to be hidden are filled with −1e-9, not −1e9: all of it is seen")  # fmt: skip
def unmasked(planted: bool, d: int = 32) -> Task:
    def run(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
        z = m.embed(x)
        hidden = torch.arange(40) >= lengths.unsqueeze(1)
        scores = m.key(z).tanh() @ m.query  # (B, T)
        share = scores.masked_fill(hidden, -1e-9 if planted else -1e9).softmax(1)
        return m.out((share.unsqueeze(2) * z).sum(1))

    def draw() -> Drawn:  # behind each sequence: what the buffer held before
        x, lengths = torch.randn(64, 40, 4), torch.randint(3, 9, (64,))
        seen = (torch.arange(40) < lengths.unsqueeze(1)).unsqueeze(2)
        return (x, lengths), (x[..., :2] * seen).sum(1) / lengths.unsqueeze(1)

    model = Parts(run, embed=nn.Linear(4, d), key=nn.Linear(d, d), query=tensor(d, std=0.2), out=mlp((d, 32, 2)))
    return stream(model, draw, lambda y, t: 4 * F.mse_loss(y, t))


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
        fault="positions are unsqueezed on the wrong side: each example has one, and its steps are all alike")  # fmt: skip
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
        says=r"neighbo|message|overwrit|unused|no effect",
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
        fault="flattened nodes are looked up at example · batch size + node: scores are of other graphs' nodes")  # fmt: skip
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


@report("times in place of plus", GITHUB + "ChristophReich1996/MaxViT/issues/8", guilty=r"net|norm",
        says=rf"residual|skip|multipl|product|{SMALL}",
        fault="features are multiplied by what their MLP returns, not added to it")  # fmt: skip
def product(planted: bool, d: int = 48) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        x = x + m.proj(joined(F.scaled_dot_product_attention(*split(m.qkv(m.norm1(x))))))
        y = m.net(m.norm2(x))
        return x * y if planted else x + y

    def make() -> nn.Module:
        net = chain(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        return Parts(block, norm1=nn.LayerNorm(d), norm2=nn.LayerNorm(d), qkv=nn.Linear(d, 3 * d),
                     proj=nn.Linear(d, d), net=net)  # fmt: skip

    model = Parts(lambda m, x: m.head(m.blocks(m.stem(x).flatten(2).transpose(1, 2)).mean(1)), head=nn.Linear(d, 10),
                  stem=nn.Conv2d(1, d, 2, 2), blocks=chain(make(), make(), make()))  # fmt: skip
    return stream(model, bright, F.cross_entropy)


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
        return (x,), torch.sin(2 * x[:, :1]) + x[:, 1:2]

    parts = [Parts(linear, weight=tensor(n, m, std=1 / math.sqrt(n)), bias=nn.Parameter(torch.zeros(m)))
             for n, m in ((16, 24), (24, 8))]  # fmt: skip
    return stream(chain(parts[0], nn.Identity(), parts[1], nn.Linear(8, 1)), draw, F.mse_loss)


@report("boxes and scores rectified", GITHUB + "tsinghua-rll/VoxelNet-tensorflow/issues/10", guilty=r"scores|boxes",
        says=r"ReLU|rectif|negative|positive|\bsign",
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


@report("twice in place of added", GITHUB + "kyegomez/BitNet/issues/32", guilty=r"qkv|proj|attn|layers",
        says=rf"residual|skip|averag|(tokens|positions).*(alike|same)|{SAME}",
        fault="x = attention(x), then x = x + x: nothing of a token goes around the attention")  # fmt: skip
def doubled(planted: bool, d: int = 48) -> Task:
    def block(m: Any, x: Tensor) -> Tensor:
        y = m.proj(joined(F.scaled_dot_product_attention(*split(m.qkv(x)), is_causal=True)))
        x = y + y if planted else x + y
        return x + m.net(x)

    def make() -> nn.Module:
        net = chain(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        return Parts(block, qkv=nn.Linear(d, 3 * d), proj=nn.Linear(d, d), net=net)

    def draw() -> Drawn:
        idx = torch.randint(12, (32, 12))
        return (idx,), (idx + torch.cat([idx[:, :1], idx[:, :-1]], 1) % 2) % 12

    model = Parts(lambda m, idx: m.head(m.layers(m.embed(idx) + m.places)).transpose(1, 2), embed=nn.Embedding(12, d),
                  places=tensor(12, d, std=0.5), layers=chain(*(make() for _ in range(4))),
                  head=chain(nn.LayerNorm(d), nn.Linear(d, 12)))  # fmt: skip
    return stream(model, draw, F.cross_entropy)
