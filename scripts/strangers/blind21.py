"""A twenty-first set of faults, a sample of reports, written without sight of the rules."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.blind2 import stream
from strangers.blind3 import CUT, SAME, Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind21")


TAO = "https://taourl.com/read-"
PT = "https://discuss.pytorch.org/t/"


@report(
    "zero weights regression",
    TAO + "1959901.html",
    guilty=r"weight",
    says=rf"{SAME}|zero|symmetr|dead",
    fault="the weights of both layers start at zero: all outputs are the same",
)
def zeros(planted: bool) -> Task:
    w = torch.randn(10, 1)

    class FixedModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(10, 64, bias=False)
            self.fc2 = nn.Linear(64, 1, bias=False)
            for fc in (self.fc1, self.fc2):
                (nn.init.zeros_ if planted else nn.init.xavier_uniform_)(fc.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(F.relu(self.fc1(x)))

    def draw() -> Drawn:
        x = torch.randn(32, 10)
        return (x,), (x @ w).tanh() + 0.5 * x[:, :1] * x[:, 1:2]

    return stream(FixedModel(), draw, F.mse_loss)


@report(
    "softmax over one output",
    "https://stats.stackexchange.com/revisions/2bda6552-783b-4fb7-ba2b-a03d2266e69b/view-source",
    guilty=r"^2\.",
    says=r"softmax|always (1|one)|single (output|class|unit|logit)|" + SAME,
    fault="Dense(1, activation='softmax') before a binary cross-entropy: the prediction is always 1",
)
def softmax(planted: bool) -> Task:
    def draw() -> Drawn:
        x = (torch.rand(32, 3) < 0.5).float()
        return (x,), (x.sum(1, keepdim=True) > 1).float()

    model = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 1), nn.Softmax(1) if planted else nn.Sigmoid())
    return stream(model, draw, lambda p, y: F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), y))


@report(
    "relu output and raw inputs",
    "https://geeksmental.com/question/why-does-accuracy-remain-the-same",
    guilty=r"^[04]\.",
    says=r"sigmoid|relu|\[0, ?1\]|probabilit|scale|large|normali[sz]|standardi[sz]|range|clamp|clip|saturat",
    fault="the output of a binary classifier is a ReLU before a clipped cross-entropy, the input up to 100000",
)
def threshold(planted: bool) -> Task:
    def draw() -> Drawn:
        x = torch.randint(0, 100000, (32, 1)).float()
        return (x if planted else (x - 50000) / 50000,), (x >= 50000).float()

    model = nn.Sequential(
        nn.Linear(1, 32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.ReLU(),
        nn.Linear(32, 1),
        nn.ReLU() if planted else nn.Sigmoid(),
    )
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight), nn.init.zeros_(m.bias)  # as Keras has it
    return stream(model, draw, lambda p, y: F.binary_cross_entropy(p.clamp(1e-7, 1 - 1e-7), y))


@report(
    "actor's means pass through numpy",
    PT + "actor-critic-with-multivariate-normal-network-weights-fail-to-update/74548",
    guilty=r"actor",
    says=CUT + r"|numpy|graph|unused|None",
    fault="the policy's parameters are detached (to numpy) before the distribution: the actor has no gradient",
)
def actor(planted: bool) -> Task:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
            self.critic = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, state: Tensor) -> Any:
            policy_thetas = torch.sigmoid(self.actor(state))
            if planted:
                policy_thetas = torch.FloatTensor(policy_thetas.detach().numpy())
            mu = policy_thetas * torch.tensor([2 * torch.pi, torch.pi / 2])
            action_probs = torch.distributions.MultivariateNormal(mu, 0.1 * torch.eye(2))
            action = action_probs.sample()
            return mu, action, action_probs.log_prob(action), self.critic(state).squeeze(1)

    def draw() -> Drawn:
        s = torch.randn(64, 4)
        best = [torch.pi + 2 * torch.sin(s[:, 0] + s[:, 1]), torch.pi / 4 * (1 + torch.tanh(s[:, 2]))]
        return (s,), torch.stack(best, 1)

    def loss(out: Any, best: Tensor) -> Tensor:
        _, action, log_probs, value = out
        delta = -((action - best) ** 2).sum(1) - value  # the episode is done after one step
        return (-log_probs * delta + delta**2).mean()

    return stream(Agent(), draw, loss, lambda out, best: F.mse_loss(out[0], best))


@report(
    "critic's outputs are not squeezed",
    "https://spinningup.openai.com/en/latest/spinningup/exercise2_2_soln.html",
    guilty=r"^q\.",
    says=r"broadcast|shape|squeeze|\(\w+, ?1\)",
    fault="q is (batch, 1) and the backup, with rewards of (batch,), (batch, batch)",
)
def ddpg(planted: bool) -> Task:
    def mlp(a: int, b: int, c: int, d: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, c), nn.ReLU(), nn.Linear(c, d))

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pi, self.q, self.q_targ = mlp(6, 64, 48, 2), mlp(8, 64, 48, 1), mlp(8, 64, 48, 1)
            self.q_targ.load_state_dict(self.q.state_dict())
            self.pi.requires_grad_(False), self.q_targ.requires_grad_(False)  # this is the critic's step

        def forward(self, x: Tensor, a: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
            q = self.q(torch.cat([x, a], -1))
            q_pi_targ = self.q_targ(torch.cat([x2, torch.tanh(self.pi(x2))], -1))
            return (q, q_pi_targ) if planted else (q.squeeze(1), q_pi_targ.squeeze(1))

    def draw() -> Drawn:
        x, a = torch.randn(64, 6), torch.rand(64, 2) * 2 - 1
        reward = 2 * x[:, 0] - 0.1 * a.square().sum(1)  # forward velocity, cost of control
        return (x, a, x + 0.1 * torch.randn(64, 6)), {"r": reward, "d": (torch.rand(64) < 0.05).float()}

    def q_loss(out: Any, t: Any) -> Tensor:
        q, q_pi_targ = out
        backup = (t["r"] + 0.99 * (1 - t["d"]) * q_pi_targ).detach()
        return ((q - backup) ** 2).mean()

    return stream(ActorCritic(), draw, q_loss, lambda out, t: q_loss([o.flatten() for o in out], t))
