"""Whether a network learns the batch that it was given: some steps of Adam on copies of its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from hessdiag.derivatives.backward import FunctionalModel, Values, mean_gradient
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.signals import MAX_EXAMPLES
from hessdiag.network.torch_state import seed_again
from hessdiag.parallel.progress import advance, announce
from hessdiag.results.signals import Signals

STEPS = 40
RATES = (1e-3, 1e-2)  # at the better of which all but two of 444 healthy networks get below 80 % of their loss


def with_fit(problem: Problem, signals: Signals, seed: int) -> Signals:
    """The signals, with the least loss that training on the first examples of the batch leads to."""
    announce("steps on this batch", STEPS * len(RATES))
    reached = (least for rate in RATES for least in _least(problem, rate, seed))
    return replace(signals, fitted_loss=min(reached, default=math.nan))


def _least(problem: Problem, rate: float, seed: int) -> Iterator[float]:
    """The least loss so far before each step; what the model draws is the same in all."""
    part = problem.batch if problem.batch.as_one else problem.batch.narrow(0, MAX_EXAMPLES)
    own = {name: p for name, p in problem.model.named_parameters() if p.requires_grad and p.is_floating_point()}
    at: Values = {name: nn.Parameter(p.detach().clone()) for name, p in own.items()}
    network, optimizer, least = FunctionalModel(problem.model), torch.optim.Adam(at.values(), lr=rate), math.inf
    for _ in range(STEPS):
        seed_again(seed)
        y, gradients = mean_gradient(network, problem.loss, at, part)
        value = float(problem.loss.of_batch(part.targets, y).of_all(y, part.targets).detach())
        if not math.isfinite(value):
            return
        yield (least := min(least, value))
        for name, gradient in gradients.items():
            at[name].grad = gradient
        optimizer.step()
        advance("steps on this batch")
