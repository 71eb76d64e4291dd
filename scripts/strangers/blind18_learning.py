"""Faults of the eighteenth set, that commits to repositories of agents, graphs and detectors mend."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import BROKEN, GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import CUT, SAME, Drawn
from strangers.blind6 import ORDER
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind18")


def mlp(*sizes: int, act=nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return chain(*layers[:-1])


def orthogonal(m: nn.Module) -> nn.Module:
    for p in m.modules():
        if isinstance(p, nn.Linear):
            nn.init.orthogonal_(p.weight)
            nn.init.zeros_(p.bias)
    return m


def frozen(m: nn.Module) -> nn.Module:
    return m.requires_grad_(False)


def fixed(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def still(m: nn.Module, x: Tensor) -> Tensor:
    """A network whose weights this call does not train (the repositories have one optimiser each)."""
    return torch.func.functional_call(m, {k: v.detach() for k, v in m.named_parameters()}, (x,))


DQN = r"shape|broadcast|squeeze|dimension|\bsize"


@report(
    "double DQN column",
    GITHUB + "ShangtongZhang/DeepRL/commit/16ec0d0",
    says=DQN,
    fault="in double DQN the gathered next values keep a dimension: (B, 1) against rewards and values (B,)",
)
def double_dqn(planted: bool) -> Task:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = orthogonal(mlp(4, 64, 64, 3))
            self.target = frozen(orthogonal(mlp(4, 64, 64, 3)))
            self.target[-1].weight.data *= 20  # values as they are in the middle of CartPole

        def forward(self, states: Tensor, next_states: Tensor) -> Any:
            with torch.no_grad():
                online = self.network(next_states)
            return self.network(states), self.target(next_states), online

    def draw() -> Drawn:
        s, a = torch.randn(32, 4), torch.randint(3, (32,))
        n = s + 0.1 * torch.randn(32, 4) + 0.3 * torch.stack([a - 1.0] * 4, 1)
        return (s, n), {"actions": a, "rewards": (s[:, 0] > 1.5).float(), "terminals": (s[:, 1].abs() > 2).float()}

    def loss(y, t, squeeze=not planted):
        q, q_next, online = y
        q_next = q_next.gather(1, online.argmax(-1).unsqueeze(-1))
        if squeeze:
            q_next = q_next.squeeze(1)
        q_next = t["rewards"] + 0.99 * q_next * (1 - t["terminals"])
        q = q.gather(1, t["actions"].unsqueeze(-1)).squeeze(-1)
        return (q_next - q).pow(2).mul(0.5).mean()

    return stream(Agent(), draw, loss, lambda y, t: loss(y, t, True))


@report(
    "option-critic column",
    GITHUB + "ShangtongZhang/DeepRL/commit/87bdc82",
    says=DQN,
    fault="option values, log probabilities are gathered and unsqueezed once more: (N, 1, 1) against returns (N, 1)",
)
def option_critic(planted: bool) -> Task:
    class OptionCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(nn.Linear(4, 80), nn.ReLU())
            self.q, self.pi, self.beta = nn.Linear(80, 2), nn.Linear(80, 2 * 3), nn.Linear(80, 2)

        def forward(self, x: Tensor) -> Any:
            phi = self.body(x)
            return self.q(phi), self.beta(phi).sigmoid(), self.pi(phi).view(-1, 2, 3)

    goal = fixed(1, 4)

    def draw() -> Drawn:
        x, o, a = torch.randn(40, 4), torch.randint(2, (40, 1)), torch.randint(3, (40, 1))
        ret = 3 * torch.tanh(x @ goal).view(-1, 1) + (a == (x[:, :1] > 0).long() * 2).float() + 0.1 * torch.randn(40, 1)
        return (x,), {"option": o, "action": a, "ret": ret, "prev": torch.randint(2, (40, 1))}

    def loss(y, t, extra=planted):
        (q, beta, pi), put = y, (lambda v: v.unsqueeze(-1)) if extra else (lambda v: v)
        log_pi = F.log_softmax(pi[torch.arange(len(q)), t["option"].squeeze(1)], -1)
        ent = -(log_pi.exp() * log_pi).sum(-1, keepdim=True)
        adv = t["ret"] - q.gather(1, t["option"]).detach()
        q_loss = (put(q.gather(1, t["option"])) - t["ret"]).pow(2).mul(0.5).mean()
        pi_loss = (-(put(log_pi.gather(1, t["action"])) * adv) - 0.01 * ent).mean()
        beta_adv = q.gather(1, t["prev"]).detach() - q.detach().max(1, keepdim=True)[0] + 0.01
        return q_loss + pi_loss + (beta.gather(1, t["prev"]) * beta_adv).mean()

    return stream(
        OptionCritic(), draw, loss, lambda y, t: (y[0].gather(1, t["option"]) - t["ret"]).pow(2).mul(0.5).mean()
    )


@report(
    "categorical projection",
    GITHUB + "ShangtongZhang/DeepRL/commit/5b4ecd8",
    says=r"sum.*(one|1)\b|mass|terminal|distribution|project",
    fault="C51: no terminals in the projected atoms, and the mass that falls on an atom exactly (l == u) is lost",
)
def projection(planted: bool) -> Task:
    atoms, width = torch.linspace(-10, 10, 51), 20 / 50

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.learning, self.target = mlp(4, 64, 2 * 51), frozen(mlp(4, 64, 2 * 51))

        def forward(self, s: Tensor, n: Tensor) -> Any:
            return self.learning(s).view(-1, 2, 51).softmax(-1), self.target(n).view(-1, 2, 51).softmax(-1)

    def draw() -> Drawn:
        s, a = torch.randn(40, 4), torch.randint(2, (40,))
        done = (s[:, 0].abs() > 1).float()
        return (s, s + 0.1 * torch.randn(40, 4)), (a, s[:, 0].sign() * done, done)

    def loss(y, t, wrong=planted):
        (prob, prob_next), (a, r, done) = y, t
        best = (prob_next * atoms).sum(-1).argmax(1)
        prob_next = prob_next[torch.arange(len(a)), best]
        keep = torch.ones_like(done) if wrong else 1 - done
        z = r.view(-1, 1) + 0.99 * keep.view(-1, 1) * atoms
        z = z.clamp(-10 + 1e-5 * wrong, 10 - 1e-5 * wrong)
        b = (z + 10) / width
        l, u = b.floor(), b.ceil()  # noqa: E741
        low = (u - b if wrong else u + (l == u).float() - b) * prob_next
        target = torch.zeros_like(prob_next).scatter_add_(1, l.long(), low)
        target = target.scatter_add_(1, u.long(), (b - l) * prob_next)
        return -(target * prob[torch.arange(len(a)), a].log()).sum(-1).mean()

    return stream(Agent(), draw, loss, lambda y, t: loss(y, t, False))


class Policy(nn.Module):
    """A squashed Gaussian policy, and a critic that the policy's loss does not train."""

    def __init__(self, scale: float, inputs: int, actions: int, planted: bool) -> None:
        super().__init__()
        self.linear, self.mean, self.log_std = mlp(inputs, 64, 64), nn.Linear(64, actions), nn.Linear(64, actions)
        self.critic, self.scale, self.planted = mlp(inputs + actions, 64, 1), scale, planted

    def forward(self, s: Tensor, a: Tensor) -> Any:
        h = self.linear(s).relu()
        normal = torch.distributions.Normal(self.mean(h), self.log_std(h).clamp(-20, 2).exp())
        x_t = normal.rsample()
        y_t = x_t.tanh()
        action = y_t * self.scale
        bounded = action if self.planted else y_t
        log_prob = normal.log_prob(x_t) - torch.log(self.scale * (1 - bounded.pow(2)) + 1e-6)
        q_pi = still(self.critic, torch.cat([s, action], 1))
        return self.critic(torch.cat([s, a], 1)), q_pi, log_prob.sum(1, keepdim=True), action


@report(
    "log of the scaled action",
    GITHUB + "pranz24/pytorch-soft-actor-critic/commit/d4cce38",
    guilty=r"(?!)",
    says=BROKEN,
    fault="the tanh correction takes the action after rescaling to [-2, 2]: log(scale * (1 - action^2)) of a negative",
)
def log_action(planted: bool) -> Task:
    to, last = fixed(3, 3, 1), {}

    def draw() -> Drawn:
        s, a = torch.randn(64, 3), torch.rand(64, 1) * 4 - 2
        last["best"] = 1.9 * torch.tanh(3 * s @ to)
        return (s, a), -(a - last["best"]).pow(2)

    def loss(y, t):
        return F.mse_loss(y[0], t) + (0.2 * y[2] - y[1]).mean()

    return stream(Policy(2.0, 3, 1, planted), draw, loss, lambda y, t: (y[3] - last["best"]).pow(2).mean())


@report(
    "actor times int(0.4)",
    GITHUB + "sfujim/TD3/commit/25dfc0a",
    guilty=r"actor",
    says=rf"{SAME}|{CUT}|(times|by|always|all|is) (0|zero)",
    fault="max_action = int(0.4) = 0: the actor's output is 0 for every state",
)
def int_action(planted: bool) -> Task:
    class Td3(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = mlp(3, 64, 64, 2), mlp(5, 64, 64, 1)
            self.max_action = int(0.4) if planted else 0.4

        def forward(self, s: Tensor, a: Tensor) -> Any:
            action = self.max_action * torch.tanh(self.actor(s))
            return self.critic(torch.cat([s, a], 1)), still(self.critic, torch.cat([s, action], 1)), action

    to, last = fixed(4, 3, 2), {}

    def draw() -> Drawn:
        s, a = torch.randn(64, 3), torch.rand(64, 2) * 0.8 - 0.4
        last["best"] = 0.4 * torch.tanh(s @ to)
        return (s, a), -20 * (a - last["best"]).pow(2).sum(1, keepdim=True)

    return stream(
        Td3(),
        draw,
        lambda y, t: F.mse_loss(y[0], t) - y[1].mean(),
        lambda y, t: 20 * (y[2] - last["best"]).pow(2).sum(1).mean(),
    )


@report(
    "rewards one step late",
    GITHUB + "koulanurag/muzero-pytorch/commit/481c02a",
    says=r"reward|shift|align|late|off by one|predictab",
    fault="the dynamics' reward after action k is taught the reward of the action after it",
)
def late_rewards(planted: bool) -> Task:
    class MuZero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.representation, self.dynamics = mlp(8, 64, 32), mlp(32 + 3, 64, 32)
            self.reward, self.value = mlp(32, 32, 1), mlp(32, 32, 1)

        def forward(self, obs: Tensor, actions: Tensor) -> Any:
            h, rewards, values = self.representation(obs).tanh(), [], []
            for k in range(5):
                h = self.dynamics(torch.cat([h, F.one_hot(actions[:, k], 3).float()], 1)).tanh()
                rewards.append(self.reward(h).squeeze(1))
                values.append(self.value(h).squeeze(1))
            return torch.stack(rewards, 1), torch.stack(values, 1)

    worth, last = fixed(5, 8).sign(), {}

    def draw() -> Drawn:
        place, actions = torch.randint(8, (64,)), torch.randint(3, (64, 6))
        places = (place.unsqueeze(1) + (actions - 1).cumsum(1)) % 8
        r = worth[places] * (actions != 1)
        last["rewards"] = r[:, :5]
        rewards = r[:, 1:] if planted else r[:, :5]
        return (F.one_hot(place, 8).float(), actions[:, :5]), (rewards, worth[places[:, :5]] * 0.5)

    def loss(y, t):
        return F.mse_loss(y[0], t[0]) + 0.25 * F.mse_loss(y[1], t[1])

    return stream(MuZero(), draw, loss, lambda y, t: loss(y, (last["rewards"], t[1])))


LAST: dict[str, Any] = {}


SYMMETRY = r"label|symmetr|rotat|flip|mirror|disagree|contradict|inconsisten|ambig"


class Board(nn.Module):
    """The network of alpha-zero-general: convolutions with batch norm, a policy and a value."""

    def __init__(self, rows: int, columns: int, moves: int, value=torch.tanh) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.bn1, self.bn2, self.value = nn.BatchNorm2d(16), nn.BatchNorm2d(16), value
        self.fc1, self.fc3, self.fc4 = nn.Linear(16 * rows * columns, 64), nn.Linear(64, moves), nn.Linear(64, 1)

    def forward(self, s: Tensor) -> Any:
        s = F.relu(self.bn1(self.conv1(s.unsqueeze(1))))
        s = F.relu(self.bn2(self.conv2(s))).flatten(1)
        s = F.relu(self.fc1(s))
        return F.log_softmax(self.fc3(s), 1), self.value(self.fc4(s))


def zero_loss(y, t):
    return -(t[0] * y[0]).sum() / len(t[0]) + (t[1] - y[1].view(-1)).pow(2).sum() / len(t[0])


def othello(n: int = 6, count: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Boards, where a search would move (empty squares beside the opponent's stones), and who wins."""
    board = torch.randint(3, (count, n, n)).float() - 1
    board = torch.where(torch.rand(count, n, n) < 0.5, 0, board)
    near = F.conv2d(board.unsqueeze(1), -torch.ones(1, 1, 3, 3), padding=1).squeeze(1)
    pi = (2 * near - 50 * (board != 0)).flatten(1).softmax(1)
    return board, pi, board.sum((1, 2)).sign()


@report(
    "moves not turned with the board",
    GITHUB + "suragnair/alpha-zero-general/commit/91f5dd9",
    says=SYMMETRY,
    fault="boards are rotated and mirrored as symmetries, their policies are not",
)
def symmetries(planted: bool) -> Task:
    def draw() -> Drawn:
        board, pi, v = othello()

        def turn(x, i):
            return torch.rot90(x.flip(1) if i % 2 else x, i // 2, (0, 1))

        turned = [int(i) for i in torch.randint(8, (len(board),))]
        right = torch.stack([turn(p.view(6, 6), i).flatten() for p, i in zip(pi, turned, strict=False)])
        LAST["right"] = right
        return (torch.stack([turn(b, i) for b, i in zip(board, turned, strict=False)]),), (pi if planted else right, v)

    return stream(Board(6, 6, 36), draw, zero_loss, lambda y, t: zero_loss(y, (LAST["right"], t[1])))


@report(
    "softmax before softmax_cross_entropy",
    GITHUB + "suragnair/alpha-zero-general/commit/cf41219",
    guilty=r"fc3",
    says=r"softmax|probabilit|logit|twice|double",
    fault="tf.losses.softmax_cross_entropy of probabilities and not of logits",
)
def double_softmax(planted: bool) -> Task:
    def draw() -> Drawn:
        board, pi, v = othello()
        return (board,), (pi, v)

    class Othello(Board):
        def forward(self, s: Tensor) -> Any:
            log_prob, v = super().forward(s)
            return log_prob.exp() if planted else log_prob, v

    def loss(y, t):
        return F.cross_entropy(y[0], t[0]) + F.mse_loss(y[1].view(-1), t[1])

    return stream(
        Othello(6, 6, 36), draw, loss, lambda y, t: zero_loss((y[0].log() if planted else y[0].log_softmax(1), y[1]), t)
    )


@report(
    "value target of the other player",
    GITHUB + "werner-duvaud/muzero-general/commit/b378a3e",
    says=r"sign|negat|invert|opposite",
    fault="rewards of n-step values are credited to the other player: the wrong sign",
)
def other_player(planted: bool) -> Task:
    def draw() -> Drawn:
        board = torch.randint(3, (64, 3, 3)).float() - 1
        lines = torch.cat([board.sum(1), board.sum(2), board.diagonal(0, 1, 2).sum(1, keepdim=True)], 1)
        v = (lines.amax(1) + lines.amin(1)).clamp(-2, 2) / 2
        pi = (board.flatten(1).abs() * -50 + 2 * lines.sum(1, keepdim=True) * torch.arange(9) / 9).softmax(1)
        return (board,), (pi, -v if planted else v)

    return stream(Board(3, 3, 9), draw, zero_loss, lambda y, t: zero_loss(y, (t[0], -t[1] if planted else t[1])))


@report(
    "alphas of a softmax",
    GITHUB + "chemprop/chemprop/commit/acd5fcb3",
    guilty=r"ffn",
    says=r"softmax|probabilit|range|bound|saturat|softplus",
    fault="the Dirichlet's concentrations are softplus(softmax(logits)) + 1: from 1.69 to 2.31, never sure of a class",
)
def dirichlet(planted: bool) -> Task:
    class MPNN(nn.Module):
        """Messages over a dense graph of atoms, summed, and a feed-forward network to three classes."""

        def __init__(self) -> None:
            super().__init__()
            self.Wi, self.Wh, self.ffn = nn.Linear(6, 32), nn.Linear(32, 32), mlp(32, 32, 3)

        def forward(self, v: Tensor, adj: Tensor) -> Tensor:
            h0 = self.Wi(v)
            h = h0.relu()
            for _ in range(2):
                h = (h0 + self.Wh(adj @ h)).relu()
            y = self.ffn(h.mean(1))
            return F.softplus(y.softmax(-1) if planted else y) + 1

    def draw() -> Drawn:
        v = F.one_hot(torch.randint(6, (48, 8)), 6).float()
        adj = (torch.rand(48, 8, 8) < 0.2).float().triu(1)
        count = v[:, :, 0].sum(1) - v[:, :, 1].sum(1)
        return (v, adj + adj.transpose(1, 2)), 1 + count.sign().long()

    def loss(alpha, t):
        y, s = F.one_hot(t, 3).float(), alpha.sum(-1, keepdim=True)
        p = alpha / s
        mse = ((y - p).square() + p * (1 - p) / (s + 1)).sum(-1)
        a = y + (1 - y) * alpha
        sa = a.sum(-1, keepdim=True)
        ln = sa.lgamma() - a.lgamma().sum(-1, keepdim=True) - torch.tensor(3.0).lgamma()
        kl = ln + ((a - 1) * (a.digamma() - sa.digamma())).sum(-1, keepdim=True)
        return (mse + 0.2 * kl.squeeze(-1)).mean()

    return stream(MPNN(), draw, loss)


@report(
    "rows of padding alone",
    GITHUB + "pmixer/SASRec.pytorch/commit/5684684",
    says=BROKEN,
    fault="left padding masked as keys beside the causal mask: rows of the first places have no key left, NaN",
)
def sasrec(planted: bool) -> Task:
    class SASRec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.item_emb, self.pos_emb = nn.Embedding(65, 32, padding_idx=0), nn.Embedding(12, 32)
            self.attention, self.norm = nn.MultiheadAttention(32, 1), nn.LayerNorm(32, eps=1e-8)
            self.conv1, self.conv2, self.last = nn.Conv1d(32, 32, 1), nn.Conv1d(32, 32, 1), nn.LayerNorm(32, eps=1e-8)

        def forward(self, log_seqs: Tensor, pos: Tensor, neg: Tensor) -> Any:
            seqs = self.item_emb(log_seqs) * 32**0.5 + self.pos_emb(torch.arange(12))
            mask = log_seqs == 0
            seqs = (seqs * ~mask.unsqueeze(-1)).transpose(0, 1)
            q = self.norm(seqs)
            out, _ = self.attention(
                q, seqs, seqs, attn_mask=~torch.ones(12, 12).tril().bool(), key_padding_mask=mask if planted else None
            )
            seqs = (q + out).transpose(0, 1)
            seqs = seqs + self.conv2(self.conv1(seqs.transpose(1, 2)).relu()).transpose(1, 2)
            feats = self.last(seqs * ~mask.unsqueeze(-1))
            return (feats * self.item_emb(pos)).sum(-1), (feats * self.item_emb(neg)).sum(-1)

    def draw() -> Drawn:
        start, step = torch.randint(64, (32, 1)), torch.randint(1, 4, (32, 1))
        items = 1 + (start + step * torch.arange(13)) % 64
        items = items * (torch.arange(13) >= torch.randint(6, (32, 1)))
        neg = torch.randint(1, 65, (32, 12)) * (items[:, 1:] != 0)
        return (items[:, :-1], items[:, 1:], neg), (items[:, 1:] != 0).float()

    def loss(y, t):
        keep = t > 0
        bce = F.binary_cross_entropy_with_logits
        return bce(y[0][keep], t[keep]) + bce(y[1][keep], torch.zeros_like(t[keep]))

    return stream(SASRec(), draw, loss)


@report(
    "heads by a view",
    GITHUB + "zhouhaoyi/Informer2020/commit/7f8b80c",
    guilty=r"query|key|value|proj|attn",
    says=rf"{ORDER}|head",
    fault="(B, L, H, D) is viewed as (B, H, L, D) and not transposed: places and heads mix",
)
def informer(planted: bool) -> Task:
    class Informer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv1d(4, 32, 3, padding=1, padding_mode="circular")
            self.pos = nn.Parameter(0.1 * torch.randn(24, 32))
            self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))
            self.norm1, self.norm2, self.ff = nn.LayerNorm(32), nn.LayerNorm(32), mlp(32, 32, 32)
            self.projection = nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x.transpose(1, 2)).transpose(1, 2) + self.pos
            b, l, _ = x.shape  # noqa: E741
            q, k, v = (f(x).view(b, l, 4, 8) for f in (self.query, self.key, self.value))
            q, k, v = ((a.view(b, 4, l, 8) if planted else a.transpose(2, 1)) for a in (q, k, v))
            scores = q @ k.transpose(-1, -2) / 8**0.5
            a = scores.masked_fill(torch.ones(l, l).triu(1).bool(), -1e9).softmax(-1) @ v
            a = a.contiguous().view(b, l, -1) if planted else a.transpose(2, 1).reshape(b, l, -1)
            x = self.norm1(x + self.out(a))
            return self.projection(self.norm2(x + self.ff(x)))[:, -8:]

    def draw() -> Drawn:
        t = torch.arange(32) + 24 * torch.rand(32, 1, 1)
        period = torch.tensor([6.0, 8, 12, 24]).view(1, 4, 1)
        x = torch.sin(2 * torch.pi * t / period) * (0.5 + torch.rand(32, 4, 1)) + torch.randn(32, 4, 1)
        x = x.transpose(1, 2)
        known = x[:, :24].clone()
        known[:, 16:] = 0
        return (known,), x[:, 16:24]

    return stream(Informer(), draw, F.mse_loss)


@report(
    "one row for all nodes",
    GITHUB + "snap-stanford/ogb/commit/ebc5b24",
    says=rf"{SAME}|identical|same|duplicate|equal",
    fault="x_dst[i:j] = x_src[i + j]: while features are copied in chunks, one row fills the whole chunk",
)
def one_row(planted: bool) -> Task:
    names = fixed(6, 7, 16)

    def draw() -> Drawn:
        """Nodes with eight sampled neighbours each, most of them of the same class."""
        c = torch.randint(7, (64,))
        near = torch.where(torch.rand(64, 9) < 0.6, c.view(-1, 1), torch.randint(7, (64, 9)))
        near[:, 0] = c
        x = 1.5 * names[near] + torch.randn(64, 9, 16)
        return (x[-1, -1].expand_as(x).clone() if planted else x,), c

    class RGNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.skip, self.norm = nn.Linear(16, 32), nn.Linear(16, 32), nn.BatchNorm1d(32)
            self.mlp = mlp(32, 32, 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.mlp(F.elu(self.norm(self.skip(x[:, 0]) + self.conv(x[:, 1:].mean(1)))))

    return stream(RGNN(), draw, F.cross_entropy)


BOXES = r"box|anchor|corner|offset|outside|targets?.*(range|scale|large|wrong|order|small)"


def scene(count: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """Images (count, 1, 24, 24) with a bright or a dark box each, its corners, and which of both."""
    wh = 5 + 6 * torch.rand(count, 2)
    xy = wh / 2 + torch.rand(count, 2) * (24 - wh)
    box, c = torch.cat([xy - wh / 2, xy + wh / 2], 1), torch.randint(2, (count,))
    p = torch.arange(24) + 0.5

    def inside(a, b):
        return (p > a.view(-1, 1)) & (p < b.view(-1, 1))

    mask = inside(box[:, 1], box[:, 3]).unsqueeze(2) & inside(box[:, 0], box[:, 2]).unsqueeze(1)
    return (mask * (2.0 * c - 1).view(-1, 1, 1) + 0.1 * torch.randn(count, 24, 24)).unsqueeze(1), box, c


def anchors(sizes: list[tuple[int, int]]) -> Tensor:
    """Corners (6 * 6 * sizes, 4) of anchors around cells of 4 pixels, row by row."""
    y, x = torch.meshgrid(torch.arange(6) * 4 + 2.0, torch.arange(6) * 4 + 2.0, indexing="ij")
    return torch.stack([torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1) for w, h in sizes], 2).view(-1, 4)


def iou(a: Tensor, b: Tensor) -> Tensor:
    wh = (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0).prod(-1)

    def area(z):
        return (z[:, 2:] - z[:, :2]).prod(-1)

    return wh / (area(a)[:, None] + area(b) - wh)


def encode(gt: Tensor, anchor: Tensor) -> Tensor:
    size, gsize = anchor[..., 2:] - anchor[..., :2], (gt[..., 2:] - gt[..., :2]).clamp(min=1)
    shift = (gt[..., 2:] + gt[..., :2] - anchor[..., 2:] - anchor[..., :2]) / 2 / size
    return torch.cat([shift, (gsize / size).log()], -1)


def match(box: Tensor, c: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """Classes (count, anchors), 0 for background, and offsets (count, anchors, 4)."""
    overlap = iou(box, anchor)
    good = (overlap > 0.5) | (overlap == overlap.amax(1, keepdim=True))
    return good * (1 + c.view(-1, 1)), encode(box.unsqueeze(1), anchor)


class Detector(nn.Module):  # noqa: D101
    def __init__(self, count: int, wrong_view: bool = False) -> None:
        super().__init__()
        self.base = chain(
            nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU()
        )
        self.conf, self.loc = nn.Conv2d(32, 3 * count, 3, 1, 1), nn.Conv2d(32, 4 * count, 3, 1, 1)
        self.wrong_view = wrong_view

    def forward(self, x: Tensor) -> Any:
        x = self.base(x)
        put = (lambda y: y) if self.wrong_view else (lambda y: y.permute(0, 2, 3, 1).contiguous())
        return put(self.conf(x)).view(len(x), -1, 3), put(self.loc(x)).view(len(x), -1, 4)


def multibox(y, t):
    (conf, loc), (label, offsets) = y, t
    good = label > 0
    each = F.cross_entropy(conf.transpose(1, 2), label, reduction="none")
    hard = each.detach().masked_fill(good, 0).argsort(1, True).argsort(1) < 3 * good.sum(1, keepdim=True)
    return (F.smooth_l1_loss(loc[good], offsets[good], reduction="sum") + each[good | hard].sum()) / good.sum()


@report(
    "heads viewed without a permutation",
    GITHUB + "yhenon/pytorch-retinanet/commit/37ceef6",
    guilty=r"loc|conf",
    says=rf"{ORDER}|channel",
    fault="(B, anchors * 4, H, W) is viewed as (B, all anchors, 4) without moving the channels last",
)
def head_views(planted: bool) -> Task:
    sizes = [(8, 8), (6, 10)]

    def draw() -> Drawn:
        x, box, c = scene()
        return (x,), match(box, c, anchors(sizes))

    return stream(Detector(2, planted), draw, multibox)


@report(
    "corners taken for sizes",
    GITHUB + "yhenon/pytorch-retinanet/commit/1e2a9ce",
    says=BOXES,
    fault="annotations (x1, y1, x2, y2) of a CSV file are converted as if they were (x, y, w, h): x2 = x1 + x2",
)
def corners(planted: bool) -> Task:
    sizes = [(8, 8), (6, 10)]

    def draw() -> Drawn:
        x, box, c = scene()
        LAST["right"] = match(box, c, anchors(sizes))
        wrong = torch.cat([box[:, :2], box[:, :2] + box[:, 2:]], 1)
        return (x,), match(wrong, c, anchors(sizes)) if planted else LAST["right"]

    return stream(Detector(2), draw, multibox, lambda y, t: multibox(y, LAST["right"]))


@report(
    "boxes of the image before",
    GITHUB + "jwyang/faster-rcnn.pytorch/commit/93a30aa",
    says=BOXES,
    fault="images are taken to have 20 boxes each while there is room for 50: offsets to the boxes of other "
    "images, or none",
)
def other_boxes(planted: bool) -> Task:
    sizes = [(8, 8), (6, 10)]

    def draw() -> Drawn:
        x, box, c = scene()
        gt = torch.zeros(len(x), 50, 4)
        gt[:, 0] = box
        label, right = match(box, c, anchors(sizes))
        LAST["right"] = (label, right)
        offset = torch.arange(len(x)) * (20 if planted else gt.size(1))
        return (x,), (label, encode(gt.view(-1, 4)[offset].unsqueeze(1), anchors(sizes)))

    return stream(Detector(2), draw, multibox, lambda y, t: multibox(y, LAST["right"]))


@report(
    "logarithm of a log-variance",
    GITHUB + "black0017/MedicalZooPytorch/commit/c6831d8",
    guilty=r"linear_1",
    says=BROKEN,
    fault="logvar is the logarithm of a linear layer's outputs, negative ones too",
)
def log_logvar(planted: bool) -> Task:
    class ResNet3dVAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv3d(1, 8, 3, 2, 1), nn.Conv3d(8, 8, 3, 1, 1)
            self.norm1, self.norm2 = nn.GroupNorm(2, 8), nn.GroupNorm(2, 8)
            self.linear_1, self.linear_vu = nn.Linear(512, 32), nn.Linear(16, 512)
            self.out, self.up = nn.ConvTranspose3d(8, 1, 2, 2), nn.ConvTranspose3d(8, 2, 2, 2)

        def forward(self, x: Tensor) -> Any:
            h = F.relu(self.norm1(self.conv1(x)))
            h = F.relu(self.norm2(self.conv2(h))) + h
            z = self.linear_1(h.flatten(1))
            mu, logvar = z[:, :16], z[:, 16:].log() if planted else z[:, 16:]
            y = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
            return self.up(h), self.out(F.relu(self.linear_vu(y)).view(-1, 8, 4, 4, 4)), mu, logvar

    def draw() -> Drawn:
        at = torch.rand(16, 3, 1, 1, 1) * 6 + 1
        p = torch.stack(torch.meshgrid(*[torch.arange(8.0)] * 3, indexing="ij"))
        mask = (p - at).pow(2).sum(1, keepdim=True) < 6
        return (mask.float() + 0.3 * torch.randn(16, 1, 8, 8, 8),), mask.squeeze(1).long()

    def loss(y, t):
        seg, rec, mu, logvar = y
        kl = (mu.pow(2) + logvar.exp() - logvar - 1).mean()
        return F.cross_entropy(seg, t) + F.mse_loss(rec.squeeze(1), t.float()) + 0.1 * kl

    return stream(ResNet3dVAE(), draw, loss)


@report(
    "softmax over depth",
    GITHUB + "mattmacy/vnet.pytorch/commit/54320c9",
    guilty=r"out2",
    says=r"softmax|\bdim|axis|axes|channel",
    fault="the softmax of a volume's two channels goes over its depth",
)
def depth_softmax(planted: bool) -> Task:
    class VNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.down = nn.Conv3d(1, 6, 3, padding=1), nn.Conv3d(6, 12, 2, 2)
            self.up = nn.ConvTranspose3d(12, 6, 2, 2)
            self.relus = nn.ModuleList([nn.PReLU() for _ in range(4)])
            self.out1, self.out2 = nn.Conv3d(12, 6, 3, padding=1), nn.Conv3d(6, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.relus[0](self.conv1(x) + x)
            b = self.relus[2](self.up(self.relus[1](self.down(a))))
            out = self.out2(self.relus[3](self.out1(torch.cat([a, b], 1))))
            return out.softmax(2 if planted else 1)

    def draw() -> Drawn:
        at = torch.rand(16, 3, 1, 1, 1) * 6 + 1
        p = torch.stack(torch.meshgrid(*[torch.arange(8.0)] * 3, indexing="ij"))
        mask = (p - at).pow(2).sum(1, keepdim=True) < 6
        return (mask.float() + 0.5 * torch.randn(16, 1, 8, 8, 8),), mask.squeeze(1).float()

    def dice(y, t):
        p = y[:, 1].flatten(1)
        t = t.flatten(1)
        return 1 - (2 * (p * t).sum(1) / (p.pow(2).sum(1) + t.sum(1))).mean()

    return stream(VNet(), draw, dice)


class Learner(nn.Module):
    """MAML: weights adapted to each task's support examples, and tried on its queries."""

    def __init__(self, sign: float = -1.0, used: bool = True) -> None:
        super().__init__()
        self.fc1, self.fc2, self.sign, self.used = nn.Linear(16, 64), nn.Linear(64, 5), sign, used

    def forward(self, x_spt: Tensor, y_spt: Tensor, x_qry: Tensor) -> Tensor:
        start = [self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias]
        start = [p.expand(len(x_spt), *p.shape) for p in start]

        def hidden(x, w):
            return torch.baddbmm(w[1].unsqueeze(1), x, w[0].mT).relu()

        def run(x, w):
            return torch.baddbmm(w[3].unsqueeze(1), hidden(x, w), w[2].mT)

        fast = start
        for _ in range(3):
            with torch.enable_grad():
                loss = F.cross_entropy(run(x_spt, fast).flatten(0, 1), y_spt.flatten(), reduction="sum") / 5
                grad = torch.autograd.grad(loss, fast, create_graph=True)
            fast = [p + self.sign * 0.4 * g for p, g in zip(fast if self.used else start, grad, strict=False)]
            if not self.used:
                fast = start
        return run(x_qry, fast)


def episodes() -> Drawn:
    classes = torch.randn(24, 5, 16)
    y = torch.stack([torch.randperm(5) for _ in range(24)])
    spt = classes.gather(1, y.unsqueeze(-1).expand(-1, -1, 16)) + 0.3 * torch.randn(24, 5, 16)
    z = torch.randint(5, (24, 10))
    return (spt, y, classes.gather(1, z.unsqueeze(-1).expand(-1, -1, 16)) + 0.3 * torch.randn(24, 10, 16)), z


def query_loss(y, t):
    return F.cross_entropy(y.flatten(0, 1), t.flatten())


@report(
    "inner steps uphill",
    GITHUB + "dragen1860/MAML-Pytorch/commit/54d17ab",
    says=r"sign|ascen|uphill|inner|adapt",
    fault="the inner update of MAML adds the gradient: theta + lr * grad",
)
def uphill(planted: bool) -> Task:
    return stream(Learner(1.0 if planted else -1.0), episodes, query_loss)


@report(
    "parameters not handed on",
    GITHUB + "tristandeleu/pytorch-maml/commit/fb2712d",
    says=rf"{SAME}|support|adapt|no effect|unused|ignor",
    fault="MetaSequential asks for nn.Module first: adapted parameters are never used",
)
def not_handed_on(planted: bool) -> Task:
    return stream(Learner(used=not planted), episodes, query_loss)


@report(
    "pixels by a view",
    GITHUB + "jfzhang95/pytorch-deeplab-xception/commit/fff2eb2",
    guilty=r"(?!)",
    says=rf"{ORDER}|channel",
    fault="logits (n, c, h, w) are viewed as (-1, c) for the cross entropy without moving the classes last",
)
def pixels(planted: bool) -> Task:
    class DeepLab(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def conv(i, o, s=1, d=1):
                return chain(nn.Conv2d(i, o, 3, s, d, d), nn.BatchNorm2d(o), nn.ReLU())

            self.entry, self.aspp1, self.aspp2 = conv(1, 16, 2), conv(16, 8), conv(16, 8, 1, 2)
            self.low, self.last = nn.Conv2d(1, 8, 1), nn.Conv2d(24, 3, 1)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight)

        def forward(self, x: Tensor) -> Tensor:
            h = self.entry(x)
            h = torch.cat([self.aspp1(h), self.aspp2(h)], 1)
            h = F.interpolate(h, size=x.shape[2:], mode="bilinear", align_corners=True)
            return self.last(torch.cat([h, self.low(x)], 1))

    def draw() -> Drawn:
        x, box, c = scene(16)
        p = torch.arange(24) + 0.5

        def inside(a, b):
            return (p > a.view(-1, 1)) & (p < b.view(-1, 1))

        mask = inside(box[:, 1], box[:, 3]).unsqueeze(2) & inside(box[:, 0], box[:, 2]).unsqueeze(1)
        return (x[:, :, ::2, ::2],), (mask * (1 + c.view(-1, 1, 1)))[:, ::2, ::2].contiguous()

    def right(y, t):
        return F.cross_entropy(y, t)

    def wrong(y, t):
        return F.cross_entropy(y.contiguous().view(-1, 3), t.view(-1))

    return stream(DeepLab(), draw, wrong if planted else right, right)


@report(
    "easiest negatives",
    GITHUB + "adambielski/siamese-triplet/commit/9512643",
    guilty=r"(?!)",
    says=r"negative|hard|margin|collaps|pair|same (embed|output)",
    fault="the hard negative pairs are those of the greatest distance",
)
def easiest(planted: bool) -> Task:
    def pairs(e: Tensor, c: Tensor, easy: bool) -> Tensor:
        i, j = torch.triu_indices(len(e), len(e), 1)
        d2, same = (e[i] - e[j]).pow(2).sum(1), c[i] == c[j]
        negative = d2[~same].topk(int(same.sum()), largest=easy)[0]
        return torch.cat([d2[same], F.relu(1.0 - (negative + 1e-9).sqrt()).pow(2)]).mean()

    net = chain(
        nn.Conv2d(1, 16, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 64), nn.PReLU(), nn.Linear(64, 2)
    )

    def draw() -> Drawn:
        x, c = pick(48)
        return (x,), c

    return stream(net, draw, lambda e, c: pairs(e, c, planted), lambda e, c: pairs(e, c, False))


@report(
    "branches in a list",
    GITHUB + "Cysu/open-reid/commit/f9e53df",
    guilty=r"branch",
    says=r"regist|ModuleList|(python|plain|a) list|not.*(its|as|among).*parameter",
    fault="the branches of an Inception block are in a list of Python: no parameters of the model",
)
def branches(planted: bool) -> Task:
    class Block(nn.Module):
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()

            def conv(a, b, k=1, s=1):
                return chain(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU())

            self.branches = [conv(i, o, 1, stride), chain(conv(i, o), conv(o, o, 3, stride))]
            if not planted:
                for n, branch in enumerate(self.branches):
                    self.add_module(str(n), branch)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([b(x) for b in self.branches], 1)

    net = chain(
        Block(1, 8, 1), Block(16, 16, 2), Block(32, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )

    def draw() -> Drawn:
        x, c = pick(32)
        return (x,), c

    return stream(net, draw, F.cross_entropy)


@report(
    "node attributes left out",
    GITHUB + "muhanzhang/pytorch_DGCNN/commit/a47e98c",
    says=r"feature|attribute|information|too (little|few)|same (output|answer|prediction)",
    fault="attributes of nodes are dropped while graphs are read: the network sees degree-one tags alone",
)
def attributes(planted: bool) -> Task:
    class DGCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([nn.Linear(2 if planted else 6, 16), nn.Linear(16, 16), nn.Linear(16, 1)])
            self.conv1d, self.dense = nn.Conv1d(1, 16, 33, 33), mlp(16 * 10, 32, 2)

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            a, out = adj + torch.eye(adj.size(1)), []
            a = a / a.sum(-1, keepdim=True)
            for conv in self.convs:
                x = torch.tanh(a @ conv(x))
                out.append(x)
            order = out[-1].squeeze(-1).argsort(1, True)[:, :10]
            h = torch.cat(out, 2).gather(1, order.unsqueeze(-1).expand(-1, -1, 33))
            return self.dense(self.conv1d(h.flatten(1).unsqueeze(1)).relu().flatten(1))

    def draw() -> Drawn:
        c = torch.randint(2, (32,))
        tags = F.one_hot((torch.rand(32, 14) < 0.5 + 0.1 * c.view(-1, 1)).long(), 2).float()
        attrs = torch.randn(32, 14, 4) + 0.5 * (c.view(-1, 1, 1) * 2 - 1) * torch.tensor([1.0, -1, 0, 0])
        adj = (torch.rand(32, 14, 14) < 0.2).float().triu(1)
        return ((tags if planted else torch.cat([tags, attrs], 2)), adj + adj.mT), c

    return stream(DGCNN(), draw, F.cross_entropy)


@report(
    "no objects in the batch",
    GITHUB + "meituan/YOLOv6/commit/12d302a",
    says=rf"{BROKEN}|divi|empty|no object",
    fault="the class loss is divided by the sum of the targets' scores, 0 where no image of a batch has an object",
)
def no_objects(planted: bool) -> Task:
    def draw() -> Drawn:
        x, box, c = scene(16)
        empty = torch.ones(16).bool() if torch.rand(()) < 0.05 else torch.rand(16) < 0.4
        x = torch.where(empty.view(-1, 1, 1, 1), 0.1 * torch.randn_like(x), x)
        label, offsets = match(box, c, anchors([(8, 8)]))
        return (x,), (label * ~empty.view(-1, 1), offsets)

    def loss(y, t):
        (conf, loc), (label, offsets) = y, t
        target = F.one_hot(label, 3)[..., 1:].float()
        p, total = conf[..., 1:].sigmoid(), target.sum()
        weight = 0.75 * p.pow(2) * (1 - target) + target
        cls = (weight * F.binary_cross_entropy_with_logits(conf[..., 1:], target, reduction="none")).sum()
        cls = cls / total if planted else (cls * 0 if total == 0 else cls / total)
        good = label > 0
        return cls + (F.smooth_l1_loss(loc[good], offsets[good]) if good.any() else loc.sum() * 0)

    return stream(Detector(1), draw, loss)


class ForceField(nn.Module):
    """Energy per atom of pairwise messages over all bonds, and forces as its derivatives by bond vectors."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.edge, self.fc, self.kind = mlp(9, 32, 32, act=nn.SiLU), nn.Linear(32, 1), kind

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, _ = x.shape
        with torch.enable_grad():
            r = (x.unsqueeze(2) - x.unsqueeze(1)).requires_grad_()
            far = torch.eye(n).bool()
            d = (r.pow(2).sum(-1) + far).sqrt()
            basis = torch.exp(-4 * (d.unsqueeze(-1) - torch.linspace(0.8, 3, 9)).pow(2))
            each = self.fc(F.silu(self.edge(basis))).squeeze(-1).masked_fill(far, 0)
            energy = each.sum((1, 2)) / n
            (pair,) = torch.autograd.grad(energy.sum(), r, create_graph=True)
        into, out = pair.sum(2), pair.sum(1)
        right = -(into - out) * n
        fed = -into * n if self.kind == "in-edges" else right * b if self.kind == "batch" else right
        return energy, fed, right


def crystals() -> Drawn:
    x = torch.stack(torch.meshgrid(*[torch.arange(2.0)] * 3, indexing="ij"), -1).view(1, 8, 3) * 1.3
    x = x + 0.15 * torch.randn(16, 8, 3)
    with torch.enable_grad():
        x.requires_grad_()
        d = (x.unsqueeze(2) - x.unsqueeze(1)).pow(2).sum(-1).add(torch.eye(8) * 1e6).sqrt()
        e = ((1 - torch.exp(-1.5 * (d - 1.3))).pow(2) - 1).masked_fill(torch.eye(8).bool(), 0).sum((1, 2)) / 2
        (force,) = torch.autograd.grad(e.sum(), x)
    return (x.detach(),), (e.detach() / 8, -force)


def field_loss(y, t):
    return F.l1_loss(y[0], t[0]) + 10 * F.l1_loss(y[1], t[1])  # gradwise_weight


@report(
    "forces of half the bonds",
    GITHUB + "usnistgov/alignn/commit/caf524f",
    says=r"force|half|contradict|inconsisten|factor",
    fault="forces sum the energy's derivatives over incoming bonds alone, half of the derivative by the atom's place",
)
def half_bonds(planted: bool) -> Task:
    return stream(
        ForceField("in-edges" if planted else ""), crystals, field_loss, lambda y, t: field_loss((y[0], y[2]), t)
    )


@report(
    "forces times the batch",
    GITHUB + "usnistgov/alignn/commit/73cc2c1",
    says=r"force|magnitude|factor|outweigh|dominat|too large|(second|part|term).*(large|scale)",
    fault="forces are multiplied by the number of atoms of the whole batch and not of their own graph",
)
def whole_batch(planted: bool) -> Task:
    return stream(
        ForceField("batch" if planted else ""), crystals, field_loss, lambda y, t: field_loss((y[0], y[2]), t)
    )
