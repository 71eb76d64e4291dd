"""A forty-third set of faults, a sample of reports, written without sight of the rules."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strangers.apart import GITHUB
from strangers.blind2 import pick, stream
from strangers.blind2_healthy import chain
from strangers.blind3 import Drawn
from strangers.case import Task
from strangers.case import report as any_report

report = partial(any_report, blind="blind43")


@report(
    "tic-tac-toe values through a sigmoid",
    "https://stackoverflow.com/questions/41722336",
    guilty=r"^2\.",
    says=r"sigmoid|target.*(range|negative|reach|below)|(range|reach).*target",
    fault="Q-values leave a sigmoid, and rewards are -1 to 1: a reward of -1 can not be reached",
)
def tictactoe(planted: bool) -> Task:
    """Nine squares in {-1, 0, 1}; -1 for a move to an occupied square, else the centre and corners are worth more."""
    worth = torch.tensor([0.5, 0.0, 0.5, 0.0, 1.0, 0.0, 0.5, 0.0, 0.5])

    def draw() -> Drawn:
        x = torch.randint(-1, 2, (64, 9)).float()
        return (x,), torch.where(x != 0, -torch.ones_like(x), worth.expand_as(x))

    model = chain(nn.Linear(9, 50), nn.Sigmoid(), nn.Linear(50, 9), *([nn.Sigmoid()] if planted else []))
    return stream(model, draw, F.mse_loss)


@report(
    "sums of raw numbers through tanh",
    "https://community.konduit.ai/t/why-is-my-model-only-predicting-0-and-never-1/1435",
    guilty=r"^0\.",
    says=r"tanh|saturat|(input|feature)s?.*(large|scale|normali|standardi)|(normali|standardi).*(input|feature)",
    fault="numbers of 0 to 100 enter a tanh layer of Xavier weights without normalisation",
)
def konduit(planted: bool) -> Task:
    """Are two numbers of 0 to 100 above 50 together?"""

    def draw() -> Drawn:
        x = 100 * torch.rand(64, 2)
        t = (x.sum(1, keepdim=True) > 50).float()
        return (x if planted else (x - 50) / 28.9,), t

    model = chain(nn.Linear(2, 110), nn.Tanh(), nn.Linear(110, 1))
    for layer in (model[0], model[2]):
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return stream(model, draw, F.binary_cross_entropy_with_logits)


@report(
    "thoughts projected anew each time",
    GITHUB + "vicksEmmanuel/latent-gemma/issues/1",
    guilty=r"proj",
    says=r"random|new.*(layer|weight)|regist|not.*(determin|same|repeat)|differ.*(call|pass)|parameters",
    fault="projections are made within the forward pass: their weights are random at every call and never trained",
)
def latent_gemma(planted: bool) -> Task:
    class Thinker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = chain(nn.Flatten(), nn.Linear(64, 48), nn.ReLU())
            self.lm_head = nn.Linear(48, 10)
            if not planted:
                self.thought_proj, self.embed_proj = self.make()

        def make(self) -> tuple[nn.Module, nn.Module]:
            return chain(nn.Linear(48, 24), nn.LayerNorm(24), nn.GELU()), nn.Linear(24, 48)

        def forward(self, x: Tensor) -> Tensor:
            thought_proj, embed_proj = self.make() if planted else (self.thought_proj, self.embed_proj)
            return self.lm_head(embed_proj(thought_proj(self.body(x))))

    def draw() -> Drawn:
        x, c = pick()
        return (x,), c

    return stream(Thinker(), draw, F.cross_entropy)
