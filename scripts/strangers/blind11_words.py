"""The other half of the eleventh set: words, series, tables, graphs, actions."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB, Parts, judged
from strangers.blind2 import stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report
from strangers.data import text

report = partial(any_report, blind="blind11")


def patients(count: int = 64) -> Drawn:
    """Lifetimes that shorten with some columns, and people who leave the study, the sooner the better they are."""
    x = torch.randn(count, 8)
    died = torch.empty(count).exponential_() * torch.exp(-(1.5 * x[:, 0] - 1.2 * x[:, 1] + x[:, 2] * x[:, 4]))
    left = torch.empty(count).exponential_() * torch.exp(-(2 * x[:, 3] - 1.5 * x[:, 0] + 1.2 * x[:, 1] + 1))
    return (x,), (torch.minimum(died, left), (died <= left).long())


@report(
    "events as places",
    GITHUB + "Novartis/torchsurv/pull/141",
    says=r"event|index|0 and 1|(two|few|most|many|only).*(terms|examples|outputs).*(count|gradient|loss|effect)"
    r"|(examples|outputs).*no (effect|gradient)",
    fault="terms of a Cox likelihood are indexed by events, whole numbers 0 and 1: only two examples ever count",
)
def events_as_places(planted: bool) -> Task:
    def cox(indexed: bool):
        def loss(log_hazard: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
            time, event = target
            order = torch.argsort(time)
            log_hz, event = log_hazard.squeeze(1)[order], event[order]
            log_denominator = torch.logcumsumexp(log_hz.flip(0), dim=0).flip(0)
            terms = log_hz - log_denominator
            return -terms[event].mean() if indexed else -(terms * event).sum() / event.sum()

        return loss

    model = chain(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    return stream(model, patients, cox(planted), cox(False))


@report(
    "deaths of those who left",
    GITHUB + "mahmoodlab/PathomicFusion/pull/9",
    says=r"broadcast|\(\d+, 1\)|all pairs|every (pair|example)|against every|column",
    fault="terms (B,) of a Cox likelihood are multiplied by events (B, 1): each has the mean of all events",
)
def deaths_of_those_who_left(planted: bool) -> Task:
    def cox(column: bool):
        def loss(theta: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
            time, censor = target
            at_risk = (time[None, :] >= time[:, None]).float()
            theta = theta.reshape(-1)
            exp_theta = torch.exp(theta)
            censor = censor.float().view(-1, 1) if column else censor.float()
            return -torch.mean((theta - torch.log(torch.sum(exp_theta * at_risk, dim=1))) * censor)

        return loss

    model = chain(nn.Linear(8, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU(), nn.Linear(32, 1))
    return stream(model, patients, cox(planted), cox(False))


@report(
    "polymers at any temperature",
    GITHUB + "Ramprasad-Group/polygnn/pull/14",
    says=r"graph_feats|input.*(no effect|ignor|not reach|never|unused|not (used|depend|read))|not depend on"
    r"|no effect on",
    fault="features of the whole graph, such as its temperature, are an argument that the forward pass never reads",
)
def polymers_at_any_temperature(planted: bool) -> Task:
    weights = torch.randn(8)

    def draw() -> Drawn:
        kinds = torch.randint(8, (32, 10))
        bonds = torch.rand(32, 10, 10) < 0.2
        feats = torch.randn(32, 4)
        each = weights[kinds]
        y = 0.5 * each.mean(1) + feats[:, 0] - feats[:, 1] * feats[:, 2]
        return (F.one_hot(kinds, 8).float(), (bonds | bonds.mT).float(), feats), y.unsqueeze(1)

    class PolyGNN(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.embed = nn.Linear(8, width)
            self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
            self.head = chain(nn.Linear(width if planted else width + 4, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, atoms: Tensor, bonds: Tensor, graph_feats: Tensor) -> Tensor:
            h = F.relu(self.embed(atoms))
            degree = bonds.sum(-1, keepdim=True).clamp(min=1)
            for message in self.message:
                h = h + F.relu(message(torch.cat([h, bonds @ h / degree], -1)))
            h = h.mean(1)
            return self.head(h if planted else torch.cat([h, graph_feats], 1))

    return stream(PolyGNN(), draw, F.mse_loss)


class TinyGPT(nn.Module):
    """A small GPT of PyTorch's layers."""

    def __init__(self, vocabulary: int, length: int, causal: bool = True, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        for e in (self.tokens, self.places):
            nn.init.normal_(e.weight, std=0.1)

        def layer():
            return nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)

        self.layers = nn.ModuleList(layer() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.causal = causal

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.causal else None
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(self.norm(x))


@report(
    "tokens that predict themselves",
    GITHUB + "Project-MONAI/GenerativeModels/issues/314",
    says=r"shift|next token|itself|own (input|token)|cop(y|ies)|(target|label)s?.*(equal|same|are).*input"
    r"|input.*(equal|same).*target",
    fault="logits are compared with the tokens that were read, not those that follow: each predicts itself",
)
def tokens_that_predict_themselves(planted: bool) -> Task:
    def draw() -> Drawn:
        ids, _ = text(16, 20, 64, seed=int(torch.randint(10**6, ())))
        return (ids,), ids

    def shifted(logits: Tensor, ids: Tensor) -> Tensor:
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:])

    def unshifted(logits: Tensor, ids: Tensor) -> Tensor:
        return F.cross_entropy(logits.transpose(1, 2), ids)

    return stream(TinyGPT(64, 20), draw, unshifted if planted else shifted, shifted)


@report(
    "a decoder that looks ahead",
    GITHUB + "huggingface/transformers/issues/48745",
    says=r"future|causal|later|ahead|leak|mask|after (it|them)|follow",
    fault="attention of a causal language model has no causal mask: each token sees the one that it is to predict",
)
def a_decoder_that_looks_ahead(planted: bool) -> Task:
    grammar = torch.randint(12, (12, 12))
    model = TinyGPT(12, 16, causal=not planted)

    def loss(logits, t):
        return F.cross_entropy(logits[:, 1:].transpose(1, 2), t[:, 1:])

    def draw() -> tuple[Tensor, Tensor]:
        ids = torch.randint(12, (24, 17))
        for i in range(2, 17):
            ids[:, i] = torch.where(torch.rand(24) < 0.9, grammar[ids[:, i - 2], ids[:, i - 1]], ids[:, i])
        return ids[:, :-1], ids[:, 1:]

    def step() -> Tensor:
        x, t = draw()
        wrong = loss(model(x), t)
        if not planted:
            return wrong
        with torch.no_grad():
            model.causal = True
            right = loss(model(x), t)
            model.causal = False
        return judged(wrong, right)

    return Task(model, draw(), step, {"loss": loss})


@report(
    "wide in vain",
    GITHUB + "QikaiXu/Recommender-System-Pytorch/issues/2",
    guilty=r"wide",
    says=r"\bwide|(no|zero) gradient|unused|not (used|reach)|never (used|reach)|no effect",
    fault="the output of the wide part of a wide and deep network is computed, and left out of the sum",
)
def wide_in_vain(planted: bool) -> Task:
    taste = torch.randn(12 * 12)

    def draw() -> Drawn:
        user, item = torch.randint(12, (2, 64))
        cross = user * 12 + item
        age = torch.randn(64, 3)
        return (cross, age), (3 * taste[cross] + 0.5 * age[:, 0] > 0).float()

    class WideDeep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Embedding(144, 1)
            nn.init.normal_(self.wide.weight, std=1e-2)
            self.deep = chain(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.final = nn.Linear(16, 1)

        def forward(self, cross: Tensor, dense: Tensor) -> Tensor:
            wide_output = self.wide(cross)
            deep_output = self.final(self.deep(dense))
            output = deep_output if planted else wide_output + deep_output
            return torch.sigmoid(output).squeeze(1)

    return stream(WideDeep(), draw, F.binary_cross_entropy)


@report(
    "steps that forget",
    GITHUB + "tracel-ai/burn/issues/2701",
    guilty=r"hh|recurrent|hidden",
    says=r"\btime\b|recurr|previous|earlier|first (steps?|inputs?)|last (steps?|inputs?)|positions?.*no effect"
    r"|no (effect|gradient)|zero gradient|\bhh\b",
    fault="each step of a GRU starts from the first state, zero, not from that of the step before",
)
def steps_that_forget(planted: bool) -> Task:
    def draw() -> Drawn:
        ids = torch.randint(8, (32, 10))
        return (ids,), (ids < 4).sum(1) // 2

    class GRU(nn.Module):
        def __init__(self, inputs: int, width: int) -> None:
            super().__init__()
            self.ih, self.hh, self.width = nn.Linear(inputs, 3 * width), nn.Linear(width, 3 * width), width

        def forward(self, x: Tensor) -> Tensor:
            state = x.new_zeros(len(x), self.width)
            hidden, found = state, []
            for t in range(x.shape[1]):
                r, z, n = self.ih(x[:, t]).chunk(3, 1)
                hr, hz, hn = self.hh(state if planted else hidden).chunk(3, 1)
                r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
                hidden = (1 - z) * torch.tanh(n + r * hn) + z * (state if planted else hidden)
                found.append(hidden)
            return torch.stack(found, 1)

    parts = {"tokens": nn.Embedding(8, 16), "gru": GRU(16, 48), "head": nn.Linear(48, 6)}
    model = Parts(lambda m, x: m.head(m.gru(m.tokens(x))[:, -1]), **parts)
    return stream(model, draw, F.cross_entropy)


@report(
    "forces on nobody",
    GITHUB + "atomistic-machine-learning/schnetpack/pull/6",
    says=BROKEN + r"|zero distance|root|sqrt",
    fault="neighbours that fill up a list are atom 0 itself, at distance 0, where a root has no slope",
)
def forces_on_nobody(planted: bool) -> Task:
    def draw() -> Drawn:
        grid = torch.cartesian_prod(*[torch.arange(2.0)] * 3)[:6].repeat(16, 1, 1)
        x = 1.4 * grid + 0.15 * torch.randn(16, 6, 3)
        neighbours = torch.tensor([[j for j in range(6) if j != i] for i in range(6)]).repeat(16, 1, 1)
        real = torch.ones(16, 6, 5)
        small = torch.arange(16) % 4 == 0  # molecules of five atoms
        neighbours[small] = torch.where(neighbours[small] == 5, 0, neighbours[small])
        neighbours[small, 5], real[small, 5] = 0, 0
        real[small, :5, 4] = 0
        d = x[:, :, None] - x[torch.arange(16).view(-1, 1, 1), neighbours]
        r2 = (d**2).sum(-1, keepdim=True).clamp(min=0.1)
        return (x, neighbours, real), ((2 * (r2**-0.5 - 0.7) * d) * real.unsqueeze(-1)).sum(2)

    class Potential(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = chain(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

        def forward(self, positions: Tensor, neighbours: Tensor, mask: Tensor) -> Tensor:
            x = positions.detach().requires_grad_()
            vectors = x[torch.arange(len(x)).view(-1, 1, 1), neighbours] - x[:, :, None]
            squares = (vectors**2).sum(-1)
            if not planted:
                squares = torch.where(mask > 0, squares, torch.ones_like(squares))
            distances = torch.sqrt(squares)
            radial = torch.exp(-4 * (distances.unsqueeze(-1) - torch.linspace(0.5, 3, 12)) ** 2)
            energy = (self.pair(radial).squeeze(-1) * mask).sum()
            return -torch.autograd.grad(energy, x, create_graph=True)[0]

    return stream(Potential(), draw, F.mse_loss)


@report(
    "entropy of the whole batch",
    GITHUB + "PacktPublishing/Tensorflow-2-Reinforcement-Learning-Cookbook/pull/46",
    says=r"sum|whole batch|over the (batch|examples)|other examples|across (the )?(batch|examples)|log.?prob"
    r"|entropy",
    fault="log-probabilities (B, actions) are summed over the batch as well: entropy weighs as much as 64 of it",
)
def entropy_of_the_whole_batch(planted: bool) -> Task:
    best = chain(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2), nn.Tanh()).requires_grad_(False)

    def draw() -> Drawn:
        x = torch.randn(64, 6)
        return (x,), (1.4 * best(3 * x)).clamp(-0.8, 0.8)

    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
            self.mean, self.log_std = nn.Linear(64, 2), nn.Linear(64, 2)

        def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
            h = self.body(state)
            normal = torch.distributions.Normal(self.mean(h), self.log_std(h).clamp(-20, 2).exp())
            z = normal.rsample()
            action = torch.tanh(z)
            return action, normal.log_prob(z) - torch.log(1 - action**2 + 1e-6)

    def actor_loss(whole: bool):
        def loss(found: tuple[Tensor, Tensor], good: Tensor) -> Tensor:
            action, log_prob = found
            q = -4 * ((action - good) ** 2).sum(1)
            log_prob = log_prob.sum() if whole else log_prob.sum(1)
            return (0.2 * log_prob - q).mean()

        return loss

    return stream(Actor(), draw, actor_loss(planted), actor_loss(False))


@report(
    "praise for the whole episode",
    GITHUB + "huggingface/deep-rl-class/pull/70",
    says=r"returns?\b|reward|episode|(all|every|each|first) (time )?steps?|not use.*target|targets?.*(unused"
    r"|no effect|not (used|read))",
    fault="in REINFORCE each log-probability is weighed by the return of the first step, not by that of its own",
)
def praise_for_the_whole_episode(planted: bool) -> Task:
    right_move = torch.randint(4, (16,))

    def draw() -> Drawn:
        x = torch.randint(16, (16, 20))
        action = torch.randint(4, (16, 20))
        rewards = (action == right_move[x]).float()
        returns, g = [], torch.zeros(16)
        for t in reversed(range(20)):
            g = rewards[:, t] + 0.5 * g
            returns.insert(0, g)
        return (F.one_hot(x, 16).float(),), (action, torch.stack(returns, 1))

    def reinforce(first: bool):
        def loss(logits: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
            action, returns = target
            saved_log_probs = torch.distributions.Categorical(logits=logits).log_prob(action)
            policy_loss = -saved_log_probs * (returns[:, :1] if first else returns)
            return policy_loss.sum(1).mean()

        return loss

    model = chain(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return stream(model, draw, reinforce(planted), reinforce(False))


@report(
    "atoms not in order",
    GITHUB + "pyg-team/pytorch_geometric/issues/10534",
    says=r"order|sort|other (graph|example)|mix|adjacen|index|scrambl|permut|across (the )?(batch|graphs|examples)",
    fault="a dense adjacency takes places of nodes from cumulated counts, though nodes do not come graph by graph",
)
def atoms_not_in_order(planted: bool) -> Task:
    def draw() -> Drawn:
        kinds = torch.randint(3, (48, 6))
        ring = torch.stack([torch.randperm(6) for _ in range(48)])
        a = torch.zeros(48, 6, 6)
        a[torch.arange(48)[:, None], ring, ring.roll(1, 1)] = 1
        a = (a + a.mT).clamp(max=1)
        near = (kinds == 0).float() * (a @ (kinds == 1).float().unsqueeze(-1)).squeeze(-1)
        shuffle = torch.randperm(288)
        back = torch.argsort(shuffle)
        g, i, j = a.nonzero().T
        edges = torch.stack([back[6 * g + i], back[6 * g + j]])
        near = near - 0.4 * (kinds == 0).sum(1, keepdim=True) * (kinds == 1).sum(1, keepdim=True) / 6
        x = F.one_hot(kinds.flatten()[shuffle], 3).float()
        return (x, edges, (torch.arange(288) // 6)[shuffle]), 3 * near.sum(1, keepdim=True)

    def dense(x: Tensor, edges: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes (graphs, nodes, features) and the adjacency (graphs, nodes, nodes)."""
        if not planted:
            order = torch.argsort(batch, stable=True)
            x, batch, edges = x[order], batch[order], torch.argsort(order)[edges]
        counts = batch.bincount()
        cumulated = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        size = int(counts.max())
        own = torch.argsort(batch, stable=True)
        nodes = x[own].view(len(counts), size, -1)
        graph = batch[edges[0]]
        i, j = edges[0] - cumulated[graph], edges[1] - cumulated[batch[edges[1]]]
        flat = (graph * size * size + i * size + j) % (len(counts) * size * size)
        adjacency = x.new_zeros(len(counts) * size * size).index_add(0, flat, torch.ones(len(flat)))
        return nodes, adjacency.view(len(counts), size, size)

    class DenseGNN(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.own = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, width)])
            self.near = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, width)])
            self.head = nn.Linear(width, 1)

        def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
            h, a = dense(x, edges, batch)
            for own, near in zip(self.own, self.near, strict=False):
                h = F.relu(own(h) + near(a @ h))
            return self.head(h.mean(1))

    return stream(DenseGNN(), draw, F.mse_loss)


@report(
    "items summed over",
    GITHUB + "datawhalechina/torch-rechub/issues/221",
    says=r"\bsum|axis|\bdim\b|dimension|(more|number of) (classes|outputs)|class(es)?.*never|candidates"
    r"|embedding width|shape",
    fault="products of a user and candidates are summed over the candidates: columns of embeddings compete",
)
def items_summed_over(planted: bool) -> Task:
    mood = torch.randn(40, 6)

    def draw() -> Drawn:
        clicked = torch.randint(40, (48, 5))
        best = (mood[clicked].mean(1) @ mood.T).argsort(1, descending=True)
        wanted, others = best[:, :1], best.gather(1, torch.randint(8, 40, (48, 7)))
        return (clicked, torch.cat([wanted, others], 1)), torch.zeros(48).long()

    class MIND(nn.Module):
        def __init__(self, embed_dim: int = 16, interests: int = 2) -> None:
            super().__init__()
            self.items = nn.Embedding(40, embed_dim)
            nn.init.normal_(self.items.weight, std=0.3)
            self.capsules, self.convert = nn.Linear(embed_dim, interests), nn.Linear(embed_dim, embed_dim)
            self.dim = 1 if planted else -1

        def forward(self, clicked: Tensor, candidates: Tensor) -> Tensor:
            history, item_embedding = self.items(clicked), self.items(candidates)
            interests = self.capsules(history).softmax(1).mT @ history
            user_embedding = interests + F.relu(self.convert(interests))
            fit = (user_embedding @ item_embedding[:, :1].mT).squeeze(2).argmax(1)
            best_interest_emb = user_embedding[torch.arange(len(fit)), fit].unsqueeze(1)
            return torch.mul(best_interest_emb, item_embedding).sum(dim=self.dim)

    model = MIND()

    def step() -> Tensor:
        x, t = draw()
        wrong = F.cross_entropy(model(*x), t)
        if not planted:
            return wrong
        with torch.no_grad():
            model.dim = -1
            right = F.cross_entropy(model(*x), t)
            model.dim = 1
        return judged(wrong, right)

    return Task(model, draw(), step, {"loss": F.cross_entropy})


@report(
    "a past that is not told",
    GITHUB + "JulesBelveze/time-series-autoencoder/issues/14",
    guilty=r"encoder",
    says=r"encoder|(no|zero) gradient|unused|never (used|read|reached)|no effect|not (used|reach|read|depend)",
    fault="a decoder starts from zeros and the past of the target: what was encoded of other series is dropped",
)
def a_past_that_is_not_told(planted: bool) -> Task:
    def draw() -> Drawn:
        t = torch.arange(16.0)
        phase, rate = 6.28 * torch.rand(32, 3, 1), 0.3 + 0.5 * torch.rand(32, 3, 1)
        drivers = torch.sin(rate * t + phase) + 0.05 * torch.randn(32, 3, 16)
        y_hist = drivers[:, 0] * 0.3 + 0.3 * torch.randn(32, 16)
        return (drivers.mT, y_hist.unsqueeze(2)), (drivers[:, 1, -4:].mean(1) - drivers[:, 2, :4].mean(1)).unsqueeze(1)

    class AutoEncForecast(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.LSTM(3, width, batch_first=True), nn.LSTM(1, width, batch_first=True)
            self.fc = nn.Linear(width, 1)

        def forward(self, x: Tensor, y_hist: Tensor) -> Tensor:
            _encoded, state = self.encoder(x)
            out, _ = self.decoder(y_hist) if planted else self.decoder(y_hist, state)
            return self.fc(out[:, -1])

    return stream(AutoEncForecast(), draw, F.mse_loss)


@report(
    "every function everywhere",
    GITHUB + "lululxvi/deepxde/issues/979",
    says=r"broadcast|all pairs|matrix|every (pair|function|example|location|target)|shape|against every"
    r"|other examples",
    fault="a DeepONet evaluates every function of the batch at every place, (B, B), beside one target each, (B, 1)",
)
def every_function_everywhere(planted: bool) -> Task:
    def draw() -> Drawn:
        c = 2 * torch.randn(64, 2)
        s, x = torch.linspace(0, 1, 20), torch.rand(64, 1)
        k = torch.arange(1, 3.0)
        u = (c[:, None] * torch.sin(k * torch.pi * s[:, None])).sum(2)
        return (u, x), (c * torch.cos(k * torch.pi * x)).sum(1, keepdim=True)

    class DeepONet(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.branch = chain(nn.Linear(20, width), nn.Tanh(), nn.Linear(width, width))
            self.trunk = chain(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
            self.b = nn.Parameter(torch.zeros(1))

        def forward(self, u: Tensor, x: Tensor) -> Tensor:
            x_func, x_loc = self.branch(u), self.trunk(x)
            y = torch.einsum("bi,ni->bn", x_func, x_loc) if planted else torch.sum(x_func * x_loc, dim=-1, keepdim=True)
            return y + self.b

    return stream(DeepONet(), draw, F.mse_loss)


@report(
    "values of the last relation",
    GITHUB + "dmlc/dgl/issues/2785",
    guilty=r"relation_msg|msg|v_linear",
    says=r"relation|overwrit|(no|zero) gradient|unused|never (used|read|reached)|no effect|not (used|reach)",
    fault="values of nodes are set by each relation before any is used: all relations attend to the last ones",
)
def values_of_the_last_relation(planted: bool) -> Task:
    a = torch.randn(6)

    def draw() -> Drawn:
        x = torch.randn(16, 8, 6)
        edges = (torch.rand(16, 2, 8, 8) < 0.3).float()
        edges[:, :, torch.arange(8), torch.randint(8, (8,))] = 1

        def mean(r):
            return edges[:, r] @ x / edges[:, r].sum(-1, keepdim=True)

        return (x, edges), ((mean(0) - mean(1)) @ a).unsqueeze(2)  # trust and distrust

    class HGTLayer(nn.Module):
        def __init__(self, width: int, relations: int = 2) -> None:
            super().__init__()
            self.k_linear, self.q_linear, self.v_linear, self.a_linear = (nn.Linear(width, width) for _ in range(4))
            self.relation_att = nn.ParameterList(torch.randn(width, width) / width**0.5 for _ in range(relations))
            self.relation_msg = nn.ParameterList(torch.randn(width, width) / width**0.5 for _ in range(relations))

        def forward(self, h: Tensor, edges: Tensor) -> Tensor:
            nodes, found = {"q": self.q_linear(h)}, []
            relations = range(len(self.relation_msg))
            for r in relations:
                nodes[f"k{r}"] = self.k_linear(h) @ self.relation_att[r]
                nodes["v" if planted else f"v{r}"] = self.v_linear(h) @ self.relation_msg[r]
            for r in relations:
                score = nodes["q"] @ nodes[f"k{r}"].mT / h.shape[-1] ** 0.5
                attention = score.masked_fill(edges[:, r] == 0, -1e9).softmax(-1)
                found.append(attention @ nodes["v" if planted else f"v{r}"])
            return h + self.a_linear(F.gelu(torch.stack(found).mean(0)))

    class HGT(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.adapt, self.layer, self.out = nn.Linear(6, width), HGTLayer(width), nn.Linear(width, 1)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.out(self.layer(torch.tanh(self.adapt(x)), edges))

    return stream(HGT(), draw, F.mse_loss)


@report(
    "marks scaled like the rest",
    GITHUB + "wikibook/tf2/issues/29",
    says=r"class(es)?\b.*(never|missing|absent|no example|unused|empty|only|two)|(never|no).*(class|label)"
    r"|labels?.*(scal|only|two|truncat)|targets?.*(scal|only|two|truncat)",
    fault="a table is scaled to 0..1 with its last column, classes 0, 1, 2: as whole numbers they are 0, 0, 1",
)
def marks_scaled_like_the_rest(planted: bool) -> Task:
    w = torch.randn(11)

    def wine() -> Tensor:
        x = torch.randn(64, 11)
        score = x @ w + x[:, 0] * x[:, 1]
        quality = (score > -1.5).float() + (score > 1.5)
        return torch.cat([50 + 20 * x, quality.unsqueeze(1)], 1)

    def scaled(table: Tensor) -> tuple[Tensor, Tensor]:
        low, high = table.min(0).values, table.max(0).values
        norm = (table - low) / (high - low)
        if not planted:
            norm[:, -1] = table[:, -1]
        return norm[:, :-1], norm[:, -1].long()

    model = chain(nn.Linear(11, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 3))

    def step() -> Tensor:
        table = wine()
        x, t = scaled(table)
        y = model(x)
        return judged(F.cross_entropy(y, t), F.cross_entropy(y, table[:, -1].long()))

    return Task(model, scaled(wine()), step, {"loss": F.cross_entropy})


@report(
    "slopes for curvatures",
    GITHUB + "AdityaLab/pinnsformer/issues/9",
    says=r"derivative|u_y\b|curvature|create_graph|differentiat",
    fault="u_yy of a viscous flow is the derivative of u, not that of u_y: the equation has no second derivative",
)
def slopes_for_curvatures(planted: bool) -> Task:  # noqa: C901
    """Flow in channels that pressure drives: 0 = g + u_yy, and u = 0 at both walls."""

    def draw() -> Drawn:
        return (torch.rand(64, 1), 2 + 6 * torch.rand(64, 1)), torch.zeros(64, 1)

    def grad(u: Tensor, y: Tensor) -> Tensor:
        return torch.autograd.grad(u, y, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]

    class PINN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = chain(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
            for m in self.linear:
                if isinstance(m, nn.Linear):
                    nn.init.xavier_uniform_(m.weight)
                    nn.init.constant_(m.bias, 0.01)
            self.wrong = planted

        def u(self, y: Tensor, g: Tensor) -> Tensor:
            return self.linear(torch.cat((y, g / 4 - 1), dim=-1))

        def forward(self, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            y = y.detach().requires_grad_()
            u = self.u(y, g)
            u_y = grad(u, y)
            u_yy = grad(u, y) if self.wrong else grad(u_y, y)
            return g + u_yy, self.u(torch.zeros_like(y), g), self.u(torch.ones_like(y), g)

    model = PINN()

    def loss(found: tuple[Tensor, Tensor, Tensor], walls: Tensor) -> Tensor:
        residual, low, high = found
        return F.mse_loss(residual, walls) + 10 * (F.mse_loss(low, walls) + F.mse_loss(high, walls))

    def step() -> Tensor:
        x, t = draw()
        wrong = loss(model(*x), t)
        if not planted:
            return wrong
        model.wrong = False
        right = loss(model(*x), t)
        model.wrong = True
        return judged(wrong, right)

    return Task(model, draw(), step, {"loss": loss})
