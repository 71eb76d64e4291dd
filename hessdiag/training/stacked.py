"""Train seeds × learning rates × initialisations together: many networks, one program.

Networks with the same seed see the same minibatches in the same order, whatever their initialisation and learning
rate. One that diverges is taken out of the stack, so that it costs the others nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessdiag.execution.seeds import stream
from hessdiag.training.stacked_mlp import StackedMLP, stack_networks
from hessdiag.training.stacked_optimizers import make_optimizer

LOOK = 16  # steps between two looks for diverged networks; each look waits for the device
# Entries of the widest activation of a group, and networks of one. Measured on one core with 1 MiB of second-level
# cache and layers of 384 and 64: groups of 14 to 56 are equally fast at batch 32; at batch 128, a group of 14 takes 0.6
# of the time of one of 28.
GROUP_ENTRIES, MAX_GROUP = 700_000, 56

Rows = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How networks are trained.

    Attributes:
        optimizer: `sgd`, `momentum` or `adam`.
        batch_size: examples of a step; the last batch of an epoch is smaller where they do not divide the data.
        epochs: passes over the data.
        weight_decay: λ of the added gradient λ W.
        logit_std: standard deviation that the logits are scaled to on the first minibatch, with that scale kept; None
            leaves them as they are.
    """

    optimizer: str = "momentum"
    batch_size: int = 32
    epochs: int = 5
    weight_decay: float = 1e-5
    logit_std: float | None = 0.05


@dataclass(frozen=True)
class Member:
    """One network of a stack.

    Attributes:
        network: as initialised; it is copied, not changed.
        rate: learning rate.
        seed: of the order of its minibatches.
    """

    network: nn.Module
    rate: float
    seed: int


@dataclass(frozen=True)
class Examples:
    """What is trained on.

    Attributes:
        rows: from numbers of examples, of any shape, to their inputs, which have one dimension more.
        targets: (N,) classes.
    """

    rows: Rows
    targets: Tensor


def train_stacked(members: Sequence[Member], examples: Examples, settings: Training) -> Tensor:
    """Train all members, group after group, and return their mean losses over all examples, (G,); inf if diverged.

    Raises:
        HessdiagError: networks of different shapes, or no such optimiser.
    """
    size = group_size(members[0].network, settings.batch_size) if members else 1
    groups = [members[start : start + size] for start in range(0, len(members), size)]
    return torch.cat([_train_group(group, examples, settings) for group in groups])


def group_size(network: nn.Module, batch_size: int) -> int:
    """Choose how many networks run through the data before the next ones start: those whose activations stay in cache.

    >>> group_size(nn.Linear(16, 384), 32), group_size(nn.Linear(16, 384), 128)
    (56, 14)
    """
    widest = max(module.out_features for module in network.modules() if isinstance(module, nn.Linear))
    return max(1, min(MAX_GROUP, GROUP_ENTRIES // (batch_size * widest)))


def minibatches(count: int, settings: Training, seeds: Sequence[int]) -> list[Tensor]:
    """Draw the order of examples of each seed, anew every epoch: (seeds, B) numbers a step."""
    generators = [stream(seed, "order") for seed in seeds]
    batches: list[Tensor] = []
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(count, generator=generator) for generator in generators])
        batches += torch.split(order, settings.batch_size, dim=1)
    return batches


def _train_group(members: Sequence[Member], examples: Examples, settings: Training) -> Tensor:
    seeds = list(dict.fromkeys(member.seed for member in members))
    which = torch.tensor([seeds.index(member.seed) for member in members])
    batches = minibatches(len(examples.targets), settings, seeds)
    stack = stack_networks([member.network for member in members])
    if settings.logit_std is not None:
        stack = stack.with_logit_std(settings.logit_std, _select(batches[0], which, examples)[0])
    rates = torch.tensor([member.rate for member in members], dtype=torch.float64)
    optimizer = make_optimizer(settings.optimizer, stack.parameters, rates, weight_decay=settings.weight_decay)
    alive = torch.arange(len(members))  # the members that are still in the stack
    for step, batch in enumerate(batches, start=1):
        gradients = stack.gradients(*_select(batch, which[alive], examples))
        optimizer.step(stack.parameters, gradients)
        if step % LOOK == 0 and len(well := _finite(stack)) < stack.count:
            stack, alive = stack.keep(well), alive[well.to(alive.device)]
            optimizer.keep(well)
            if not len(alive):
                break
    losses = torch.full((len(members),), math.inf, dtype=torch.float64)
    found = mean_losses(stack, examples)
    losses[alive] = torch.where(found.isfinite(), found, math.inf)
    return losses


def mean_losses(stack: StackedMLP, examples: Examples, *, batch_size: int = 64) -> Tensor:
    """Mean cross-entropy over all examples, (G,), in float64 on the CPU."""
    total = torch.zeros(stack.count, dtype=torch.float64)
    every = torch.zeros(stack.count, dtype=torch.int64)
    for batch in torch.split(torch.arange(len(examples.targets)).unsqueeze(0), batch_size, dim=1):
        total += stack.losses(*_select(batch, every, examples)).double().cpu()
    return total / len(examples.targets)


def _select(batch: Tensor, which: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
    """Inputs (G, B, n) and targets (G, B) of each network; without a copy where all networks read the same."""
    if len(batch) == 1:
        rows = examples.rows(batch[0])
        count = len(which)
        targets = examples.targets[batch[0].to(examples.targets.device)]
        return rows.expand(count, *rows.shape), targets.expand(count, *targets.shape)
    chosen = batch[which]
    return examples.rows(chosen), examples.targets[chosen.to(examples.targets.device)]


def _finite(stack: StackedMLP) -> Tensor:
    """Numbers of the networks whose last biases are finite: what is not finite anywhere gets there in a step or two."""
    return stack.biases[-1].isfinite().flatten(1).all(1).nonzero().flatten()
