"""The other half of the twelfth set: words, series, tables, graphs, actions."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind12")


@report(
    "likelihood as a loss",
    GITHUB + "kmkurn/pytorch-crf/issues/81",
    guilty=r"(?!)",
    says=r"\bsign\b|negat|likelihood|unbounded|below zero|maximi|lower bound",
    fault="the CRF's log-likelihood itself is the loss, without a minus",
)
def crf_sign(planted: bool) -> Task:
    emit = torch.randn(30, 5)
    move = torch.randn(5, 5)

    def draw() -> Drawn:
        x = torch.randint(30, (32, 12))
        tags = [emit[x[:, 0]].argmax(1)]
        for t in range(1, 12):
            tags.append((emit[x[:, t]] + move[tags[-1]]).argmax(1))
        return (x,), torch.stack(tags, 1)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 16)
            self.lstm = nn.LSTM(16, 16, bidirectional=True, batch_first=True)
            self.emissions = nn.Linear(32, 5)
            self.start = nn.Parameter(torch.empty(5).uniform_(-0.1, 0.1))
            self.transitions = nn.Parameter(torch.empty(5, 5).uniform_(-0.1, 0.1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            e = self.emissions(self.lstm(self.embed(x))[0])
            return e, self.start.expand(len(x), -1), self.transitions.expand(len(x), -1, -1)

    def likelihood(out: tuple[Tensor, ...], y: Tensor) -> Tensor:
        e, start, move = out
        row = torch.arange(len(y))
        score = start[row, y[:, 0]] + e[row, 0, y[:, 0]]
        alpha = start + e[:, 0]
        for t in range(1, y.shape[1]):
            score = score + move[row, y[:, t - 1], y[:, t]] + e[row, t, y[:, t]]
            alpha = torch.logsumexp(alpha.unsqueeze(2) + move + e[:, t].unsqueeze(1), 1)
        return (score - alpha.logsumexp(1)).mean()

    def right(out, y):
        return -likelihood(out, y)

    return stream(Tagger(), draw, likelihood if planted else right, right)


@report(
    "bonds cut from the wrong end",
    GITHUB + "chemprop/chemprop/pull/138",
    guilty=r"message|bond|edge",
    says=r"constant|zero|never|unused|no gradient|same (for|in|value)|bond|column",
    fault="bond features follow 13 atom features in one vector, and the first 4 are cut out of it, not the last 4",
)
def bonds_first(planted: bool) -> Task:
    energy = torch.tensor([1.0, -1.5, 2.0, -1.5])

    def draw() -> Drawn:
        kind = torch.tensor([5, 6, 7, 8, 9])[torch.randint(5, (32, 9))]
        atoms = F.one_hot(kind, 13).float()
        a = (torch.rand(32, 9, 9) < 0.25).float().triu(1)
        a = a + a.mT
        b = torch.randint(4, (32, 9, 9)).triu(1)
        b = F.one_hot(b + b.mT, 4).float()
        full = torch.cat([atoms.unsqueeze(2).expand(-1, -1, 9, -1), b], 3) * a.unsqueeze(3)
        y = ((full[..., 13:] * energy).sum((1, 2, 3)) / 4 + 0.1 * kind.float().mean(1) - 0.7).unsqueeze(1)
        return (atoms, full, a), y

    class AtomMessages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w_i = nn.Linear(13, 32)
            self.w_message = nn.Linear(32 + 4, 32)
            self.w_o = nn.Linear(13 + 32, 32)
            self.ffn = chain(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, atoms: Tensor, bonds: Tensor, a: Tensor) -> Tensor:
            bonds = bonds[..., :4] if planted else bonds[..., -4:]
            start = self.w_i(atoms)
            h = F.relu(start)
            for _ in range(2):
                pairs = torch.cat([h.unsqueeze(1).expand(-1, h.shape[1], -1, -1), bonds], 3) * a.unsqueeze(3)
                h = F.relu(start + self.w_message(pairs.sum(2)))
            return self.ffn(F.relu(self.w_o(torch.cat([atoms, h], 2))).mean(1))

    return stream(AtomMessages(), draw, F.mse_loss)


@report(
    "read out along features",
    GITHUB + "flyingdoog/PGExplainer/issues/6",
    guilty=r"(?!)",
    says=r"node|feature|axis|dim\b|dimension|permut|order|position|pool|readout",
    fault="a graph's nodes (B, N, F) are pooled over their features, the last axis, not over the nodes",
)
def readout(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(6, (48,))
        x = torch.rand(48, 20, 8)
        kind = torch.rand(48, 20, 6)
        kind[torch.arange(48), :, c] += 0.25
        x = torch.cat([x[..., :2], F.one_hot(kind.argmax(2), 6).float()], 2)
        a = torch.rand(48, 20, 20) < 0.12
        a = (a | a.mT).float()
        a = a + torch.eye(20) * (1 - a.diagonal(dim1=1, dim2=2).unsqueeze(2))
        d = a.sum(2).rsqrt()
        return (x, a * d.unsqueeze(1) * d.unsqueeze(2)), c

    class GraphGCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 20), nn.Linear(20, 20), nn.Linear(20, 20)])
            self.classify = nn.Linear(40, 6)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            for layer in self.layers:
                x = F.relu(a @ layer(x))
            axis = -1 if planted else 1
            return self.classify(torch.cat([x.max(axis)[0], x.mean(axis)], 1))

    return stream(GraphGCN(), draw, F.cross_entropy)


@report(
    "weights inside the square",
    GITHUB + "Mostafa-Samir/DNC-tensorflow/pull/4",
    guilty=r"(?!)",
    says=r"weight|mask|target|padding|scale|mismatch|zero",
    fault="weights of steps multiply the outputs, not the squared errors: targets that do not count remain",
)
def weights_inside(planted: bool) -> Task:
    def draw() -> Drawn:
        v = torch.rand(32, 10, 1)
        add = torch.zeros(32, 10, 1)
        for i in range(32):
            add[i, torch.randperm(10)[:2]] = 1
        total = (v * add).cumsum(1)
        w = torch.where(add.cumsum(1) == 2, 0.1, 0.02)
        w = w * (torch.arange(10).view(1, 10, 1) >= 5)
        return (torch.cat([v, add], 2),), (total, w)

    class Adder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.controller = nn.GRU(2, 32, batch_first=True)
            self.output = nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.controller(x)[0])

    def right(y, t):
        return (t[1] * (y - t[0]).square()).mean()

    def wrong(y, t):
        return (t[1] * y - t[0]).square().mean()

    return stream(Adder(), draw, wrong if planted else right, right)


@report(
    "pair weights of the moment",
    GITHUB + "RUCAIBox/RecBole/issues/1413",
    guilty=r"(?!)",
    says=r"random|not registered|no parameter|unregistered|determinis|differ|same input|noise|each (call|pass)",
    fault="weights of the pairs of fields are drawn anew in every forward pass: they are no parameter",
)
def fwfm(planted: bool) -> Task:
    taste = torch.randn(6, 10, 4)
    strength = torch.randn(6, 6).triu(1)

    def draw() -> Drawn:
        x = torch.randint(10, (64, 6))
        v = taste[torch.arange(6), x]
        score = (torch.einsum("bid,bjd->bij", v, v) * strength).sum((1, 2))
        return (x,), (score > 0).float()

    class FwFM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Embedding(60, 1)
            self.embed = nn.Embedding(60, 20)
            nn.init.xavier_normal_(self.embed.weight)
            nn.init.xavier_normal_(self.first.weight)
            self.bias = nn.Parameter(torch.zeros(1))
            self.register_buffer("offsets", torch.arange(6) * 10)
            if not planted:
                self.pairs = nn.Parameter(nn.init.xavier_normal_(torch.empty(15, 20)))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.offsets
            v = self.embed(x)
            i, j = torch.triu_indices(6, 6, 1)
            weights = nn.init.xavier_normal_(torch.empty(15, 20)) if planted else self.pairs
            second = (v[:, i] * v[:, j] * weights).sum((1, 2))
            return self.bias + self.first(x).sum((1, 2)) + second

    return stream(FwFM(), draw, F.binary_cross_entropy_with_logits)


@report(
    "every atom at distance zero",
    GITHUB + "pineappleK/ED2Mol/issues/5",
    guilty=r"edge|message|coord|phi",
    says=r"zero|constant|coordinate|distance|position|no effect|not depend|ignor",
    fault="differences and distances along an edge are of its first atom and its first atom: all are 0",
)
def edge_to_itself(planted: bool) -> Task:
    send, take = (torch.ones(8, 8) - torch.eye(8)).nonzero().T

    def draw() -> Drawn:
        x = torch.randn(32, 8, 3) * (0.4 + 1.6 * torch.rand(32, 1, 1))
        q = torch.randint(2, (32, 8)).float() * 2 - 1
        r = (x[:, send] - x[:, take]).norm(dim=2)
        pairs = (1 + 0.4 * q[:, send] * q[:, take]) * torch.exp(-r)
        return (q.unsqueeze(2), x), pairs.mean(1, keepdim=True) * 5 - 1

    class EGNNLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge = chain(nn.Linear(65, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
            self.coord = chain(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1, bias=False))
            self.node = chain(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 32))

        def forward(self, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            other = send if planted else take
            diff = x[:, send] - x[:, other]
            dist = torch.linalg.vector_norm(x[:, send] - x[:, other], dim=2, keepdim=True)
            m = self.edge(torch.cat([h[:, send], h[:, take], dist], 2))
            x = x + torch.zeros_like(x).index_add(1, send, diff * self.coord(m)) / 7
            return h + self.node(torch.cat([h, torch.zeros_like(h).index_add(1, send, m)], 2)), x

    class EGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(1, 32)
            self.layers = nn.ModuleList(EGNNLayer() for _ in range(2))
            self.out = nn.Linear(32, 1)

        def forward(self, q: Tensor, x: Tensor) -> Tensor:
            h = self.embed(q)
            for layer in self.layers:
                h, x = layer(h, x)
            return self.out(h.mean(1))

    return stream(EGNN(), draw, F.mse_loss)


@report(
    "only the last layer counts",
    GITHUB + "WenjieDu/PyPOTS/issues/753",
    guilty=r"model\.[01]|layers\.[01]",
    says=r"no gradient|unused|never (used|reach)|not reach|gradient.*(zero|none)|discard|overwrit",
    fault="each of three layers reads the input X, and its output is overwritten by the next layer's",
)
def overwritten(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randn(32, 24, 3)
        y = torch.roll(x, 3, 1) * torch.tensor([1.0, -1.0, 0.5]) + torch.roll(x, -3, 1)[..., [1, 2, 0]]
        return (x,), y

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = nn.Conv1d(32, 32, 3, padding=1, padding_mode="circular")
            self.conv = nn.Sequential(first, nn.GELU(), nn.Conv1d(32, 32, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(x.mT).mT

    class TimesNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 32)
            self.model = nn.ModuleList(Block() for _ in range(3))
            self.layer_norm = nn.LayerNorm(32)
            self.projection = nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x)
            out = x
            for i in range(3):
                out = self.layer_norm(self.model[i](x if planted else out))
            return self.projection(out)

    return stream(TimesNet(), draw, F.mse_loss)


@report(
    "episodes that never end",
    GITHUB + "navneet-nmk/pytorch-rl/issues/2",
    guilty=r"(?!)",
    says=r"\bdone|terminal|unused|not used|no effect|target|ignor|large|scale",
    fault="targets of Q-values bootstrap from the next state even where the episode is done",
)
def never_done(planted: bool) -> Task:
    target = chain(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)).requires_grad_(False)
    with torch.no_grad():
        target[2].bias.fill_(4.0)

    def draw() -> Drawn:
        s = torch.randn(64, 4)
        a = torch.randint(3, (64,))
        done = (s[:, 0].abs() > 0.7).float()
        after = s + 0.1 * torch.randn(64, 4) + 0.2 * (a - 1).unsqueeze(1)
        return (s,), (a, -done + 0.1 * s[:, 1], after, done)

    def td(y: Tensor, t: tuple[Tensor, ...], masked: bool) -> Tensor:
        a, reward, after, done = t
        q = y.gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target(after).max(1)[0]
        return F.smooth_l1_loss(q, reward + 0.99 * best * (1 - done if masked else 1))

    model = chain(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    return stream(model, draw, lambda y, t: td(y, t, not planted), lambda y, t: td(y, t, True))


@report(
    "multiplied by degrees",
    GITHUB + "benedekrozemberczki/AttentionWalk/issues/9",
    guilty=r"layer|attention",
    says=r"normali|large|scale|degree|explod|huge|magnitude|grow|saturat",
    fault="the adjacency is multiplied by degrees rather than divided by them, before its powers are taken",
)
def attention_walk(planted: bool) -> Task:
    def draw() -> Drawn:
        c = torch.randint(3, (24, 24))
        same = c.unsqueeze(1) == c.unsqueeze(2)
        a = (torch.rand(24, 24, 24) < torch.where(same, 0.8, 0.3)).float().triu(1)
        a = a + a.mT
        d = a.sum(2).clamp(min=1)
        m = (d if planted else 1 / d).unsqueeze(2) * a
        powers = torch.stack([m, m @ m, m @ m @ m], 1)
        known = torch.rand(24, 24) < 0.4
        x = F.one_hot(torch.where(known, c, 3), 4).float()
        return (x, powers), c

    class Walk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Parameter(torch.empty(3).uniform_(-0.01, 0.01))
            self.layer1, self.layer2 = nn.Linear(8, 96), nn.Linear(96, 3)

        def forward(self, x: Tensor, powers: Tensor) -> Tensor:
            mix = torch.einsum("p,bpij->bij", self.attention.softmax(0), powers)
            return self.layer2(torch.tanh(self.layer1(torch.cat([x, mix @ x], 2))))

    return stream(Walk(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))


@report(
    "depth without its weight",
    GITHUB + "kyegomez/Mixture-of-Depths/issues/1",
    guilty=r"router",
    says=r"no gradient|unused|never|not (used|reach|depend)|gradient.*(zero|none)|rout|topk|top-k|discrete",
    fault="the outputs of the tokens that a router picks are not multiplied by its weights: it has no gradient",
)
def depths(planted: bool) -> Task:
    turn = torch.randn(16, 16) / 2

    def draw() -> Drawn:
        x = torch.randn(32, 16, 16)
        hard = torch.rand(32, 16).argsort(1) < 4
        x[..., 0] = torch.where(hard, 1.5, -1.5) + 0.1 * torch.randn(32, 16)
        return (x,), torch.where(hard.unsqueeze(2), x + 2 * torch.tanh(x @ turn), x)

    class MoD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(16, 1)
            self.block = chain(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

        def forward(self, x: Tensor) -> Tensor:
            weights, chosen = self.router(x).squeeze(2).topk(4, 1)
            chosen = chosen.unsqueeze(2).expand(-1, -1, 16)
            y = self.block(x.gather(1, chosen))
            if not planted:
                y = y * weights.unsqueeze(2)
            return x.scatter_add(1, chosen, y)

    return stream(MoD(), draw, F.mse_loss)


@report(
    "speeds along a normal of nothing",
    GITHUB + "lululxvi/deepxde/issues/488",
    guilty=r"(?!)",
    says=r"constant|zero|no gradient|does not depend|term|unused|no effect|never",
    fault="the first speed of a wave is a Neumann condition along the normal of space, 0 inside: no term of u",
)
def no_normal(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.rand(64, 2)
        start = torch.stack([0.5 * torch.sin(torch.pi * x[:, 0]), 2 * torch.sin(torch.pi * x[:, 0])], 1)
        return (x,), start

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

        def slopes(self, p: Tensor) -> tuple[Tensor, Tensor]:
            u = self.net(p)
            return u.squeeze(1), torch.autograd.grad(u.sum(), p, create_graph=True)[0]

        def forward(self, x: Tensor) -> Tensor:
            p = x.detach().clone().requires_grad_(True)
            _, d = self.slopes(p)
            u_xx = torch.autograd.grad(d[:, 0].sum(), p, create_graph=True)[0][:, 0]
            u_tt = torch.autograd.grad(d[:, 1].sum(), p, create_graph=True)[0][:, 1]
            first = (x * torch.tensor([1.0, 0.0])).detach().requires_grad_(True)
            u, d = self.slopes(first)
            normal = torch.stack([(x[:, 0] == 1).float() - (x[:, 0] == 0).float(), torch.zeros(len(x))], 1)
            ends = self.net(torch.stack([(x[:, 0] > 0.5).float(), x[:, 1]], 1)).squeeze(1)
            return torch.stack([u_tt - u_xx, u, (normal * d).sum(1), ends, d[:, 1]], 1)

    def loss(y: Tensor, t: Tensor, speed: int) -> Tensor:
        begin = (y[:, 1] - t[:, 0]).square() + (y[:, speed] - t[:, 1]).square()
        return (0.1 * y[:, 0].square() + begin + y[:, 3].square()).mean()

    return stream(Wave(), draw, lambda y, t: loss(y, t, 2 if planted else 4), lambda y, t: loss(y, t, 4))


@report(
    "answers to the next question",
    GITHUB + "HFUT-LEC/EduStudio/pull/16",
    guilty=r"(?!)",
    says=r"shift|align|next|off by one|mismatch|mean of|target|information|step",
    fault="a memory network predicts answers to the question it reads, compared with the one after it",
)
def next_question(planted: bool) -> Task:
    hard, skill = torch.randn(20) * 2, torch.arange(20) % 4

    def draw() -> Drawn:
        q = torch.randint(20, (32, 12))
        able = torch.randn(32, 4) * 1.5
        r = (able.gather(1, skill[q]) - hard[q] + 0.3 * torch.randn(32, 12) > 0).long()
        return (q, r), r

    class DKVMN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_embed, self.qa_embed = nn.Embedding(20, 16), nn.Embedding(40, 16)
            self.key = nn.Parameter(torch.randn(6, 16) * 0.3)
            self.value = nn.Parameter(torch.randn(6, 16) * 0.3)
            self.erase, self.add, self.read = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(32, 32)
            self.predict = nn.Linear(32, 1)

        def forward(self, q: Tensor, r: Tensor) -> Tensor:
            memory, found = self.value.expand(len(q), -1, -1), []
            for t in range(q.shape[1]):
                k, v = self.q_embed(q[:, t]), self.qa_embed(q[:, t] + 20 * r[:, t])
                w = F.softmax(k @ self.key.T, 1).unsqueeze(2)
                content = (w * memory).sum(1)
                found.append(self.predict(torch.tanh(self.read(torch.cat([content, k], 1)))))
                e, a = torch.sigmoid(self.erase(v)).unsqueeze(1), torch.tanh(self.add(v)).unsqueeze(1)
                memory = memory * (1 - w * e) + w * a
            return torch.cat(found, 1)

    def right(y, r):
        return F.binary_cross_entropy_with_logits(y, r.float())

    def wrong(y, r):
        return F.binary_cross_entropy_with_logits(y[:, :-1], r[:, 1:].float())

    return stream(DKVMN(), draw, wrong if planted else right, right)


@report(
    "observations a step late",
    GITHUB + "ashysheya/ODE-RNN/issues/2",
    guilty=r"cell|rnn|gru|encode",
    says=r"last|late|lag|shift|previous|no (effect|influence)|ignor|(never|not) (read|used|reach|depend)|unused",
    fault="the state at time i is updated with the observation of time i - 1: that of time i does not reach it",
)
def step_late(planted: bool) -> Task:
    def draw() -> Drawn:
        x, dt = torch.randn(32, 9, 2), torch.rand(32, 9) * 2
        s, y = torch.zeros(32), []
        for t in range(9):
            s = s * torch.exp(-dt[:, t]) + x[:, t, 0] * (x[:, t, 1] > 0)
            y.append(s)
        return (x, dt), torch.stack(y, 1)

    class ODERNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ode = chain(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
            self.cell, self.decoder = nn.GRUCell(2, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor, dt: Tensor) -> Tensor:
            h = x.new_zeros(len(x), 32)
            prev, outputs = torch.zeros_like(x[:, 0]), []
            for i in range(x.shape[1]):
                for _ in range(2):
                    h = h + self.ode(h) * dt[:, i : i + 1] / 2
                x_i = prev if planted else x[:, i]
                h = self.cell(x_i, h)
                outputs.append(self.decoder(h))
                prev = x[:, i]
            return torch.cat(outputs, 1)

    return stream(ODERNN(), draw, F.mse_loss)


@report(
    "one to the power of a divergence",
    GITHUB + "AaltoML/scalable-inference-in-sdes/issues/1",
    guilty=r"(?!)",
    says=r"constant|no gradient|power|does not depend|term|unused|KL|divergence|never",
    fault="weight ** KL for weight * KL in a latent model of a series, and the weight is 1 by now: a constant",
)
def power_of_kl(planted: bool) -> Task:
    time = torch.arange(20) / 20

    def draw() -> Drawn:
        a, b = 1.5 * torch.randn(2, 32, 1)
        y = a * torch.sin(6 * time) + b * torch.cos(9 * time) + 0.7 * torch.randn(32, 20)
        return (y,), y

    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = chain(nn.Linear(20, 32), nn.ReLU())
            self.to_z = nn.Linear(32, 16)
            self.decoder = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 20))

        def forward(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            m, s = self.to_z(self.encoder(y)).chunk(2, 1)
            z = m + torch.exp(s) * torch.randn_like(m)
            return self.decoder(z), m, s

    def loss(out: tuple[Tensor, ...], y: Tensor, power: bool) -> Tensor:
        x, m, s = out
        weight, fit = 1.0, ((x - y).square().sum(1) / (2 * 0.7**2)).mean()
        kl = (0.5 * (m.square() + torch.exp(2 * s) - 1) - s).sum(1).mean()
        return fit + (weight**kl if power else weight * kl)

    return stream(Latent(), draw, lambda y, t: loss(y, t, planted), lambda y, t: loss(y, t, False))


@report(
    "a source hidden by the target's mask",
    GITHUB + "Kamichanw/SeekDeeper/issues/3",
    guilty=r"cross|encoder",
    says=r"mask|cannot see|not see|hidden|future|later|causal|not (reach|depend)|no effect|order",
    fault="a decoder's attention to the source is masked by the target's causal mask, not by the source's own mask",
)
def target_mask(planted: bool) -> Task:
    words, order = torch.randperm(16), torch.tensor([3, 4, 5, 6, 7, 0, 1, 2])

    def draw() -> Drawn:
        x = torch.randint(16, (32, 8))
        y = words[x[:, order]]
        return (x, torch.cat([torch.full((32, 1), 16), y[:, :-1]], 1)), y

    class DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.self_attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.cross_attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.ffn = chain(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
            self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(32) for _ in range(3))

        def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
            h = self.norm1(x)
            x = x + self.self_attention(h, h, h, attn_mask=tgt_mask, need_weights=False)[0]
            mask = tgt_mask if planted else src_mask
            x = x + self.cross_attention(self.norm2(x), memory, memory, attn_mask=mask, need_weights=False)[0]
            return x + self.ffn(self.norm3(x))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target, self.place = nn.Embedding(16, 32), nn.Embedding(17, 32), nn.Embedding(8, 32)
            self.encoder = nn.Linear(32, 32)
            self.decoder = DecoderLayer()
            self.out = nn.Linear(32, 16)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            n = x.shape[1]
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            memory = self.encoder(self.source(x) + self.place.weight)
            return self.out(self.decoder(self.target(y) + self.place.weight, memory, torch.zeros_like(hidden), hidden))

    return stream(Transformer(), draw, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))
