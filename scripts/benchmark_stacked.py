"""Throughput of stacked training against a plain loop over networks, in one run, on the shapes of the letter data set.

    python scripts/benchmark_stacked.py [--threads 1] [--batch-size 32] [--optimizer momentum] [--device cpu]

The two are timed in turns, so that a busy machine slows both; the ratio is of the medians. Five epochs of a few steps,
each with the loss over all examples at the end, as in `hessdiag reproduce libsvm`. With one thread processor time is
timed, which other programs disturb less. The loop is what anyone
would write: `nn.Sequential`, `torch.optim`, one network after the other. Also timed: the stack with autograd in place
of the written backward pass.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from alternating import seconds
from torch import nn

from hessdiag.execution.seeds import stream
from hessdiag.experiments.libsvm_schemes import initialise
from hessdiag.models.mlp import mlp
from hessdiag.training.stacked import Examples, Member, Training, group_size, minibatches, train_stacked
from hessdiag.training.stacked_mlp import stack_networks

FEATURES, CLASSES, SEEDS, ROUNDS = 16, 26, 2, 7
RATES = [2.0**power for power in range(0, -14, -1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--optimizer", default="momentum")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=8, help="of an epoch")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    generator = torch.Generator().manual_seed(0)
    count = asked.steps * asked.batch_size
    inputs = torch.randn(count, FEATURES, generator=generator).to(asked.device)
    examples = Examples(lambda index: inputs[index.to(asked.device)], torch.randint(CLASSES, (count,)).to(asked.device))
    settings = Training(optimizer=asked.optimizer, batch_size=asked.batch_size, epochs=5)
    networks = [
        initialise(mlp([FEATURES, 384, 64, CLASSES]), "geometric", stream(seed, "initialisation")).to(asked.device)
        for seed in range(SEEDS)
    ]
    members = [Member(network, rate, seed) for seed, network in enumerate(networks) for rate in RATES]
    loop = [members[0], members[-1]]
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "loop": (lambda: [train_alone(member, examples, settings) for member in loop], len(loop)),
        "stacked": (lambda: train_stacked(members, examples, settings), len(members)),
        "stacked, autograd": (lambda: gradients_by_autograd(members, examples, settings), len(members)),
        "stacked, written": (lambda: gradients_as_written(members, examples, settings), len(members)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    steps = asked.steps * settings.epochs
    for turn in range(ROUNDS + 1):
        for name, (run, networks_run) in ways.items():
            spent = seconds(run, torch.device(asked.device))
            if turn:  # the first one warms up
                times[name].append(spent / networks_run / steps * 1e3)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, taken in times.items():
        print(f"{name:18} {medians[name]:7.3f} ms a network and step ({min(taken):.3f} to {max(taken):.3f})")
    pairs = [a / b for a, b in zip(times["loop"], times["stacked"], strict=True)]
    print(
        f"stacked trains {medians['loop'] / medians['stacked']:.1f} times as many networks in the same time"
        f" ({min(pairs):.1f} to {max(pairs):.1f} of single turns), {asked.threads} threads, batch {asked.batch_size},"
        f" {asked.optimizer}, groups of {group_size(networks[0], asked.batch_size)}"
    )


def train_alone(member: Member, examples: Examples, settings: Training) -> float:
    """Train one network in the plain way."""
    model = mlp([FEATURES, 384, 64, CLASSES]).to(examples.targets.device)
    model.load_state_dict(member.network.state_dict())
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    options = {"momentum": 0.9} if settings.optimizer == "momentum" else {}
    optimizer = kind(model.parameters(), lr=member.rate, weight_decay=settings.weight_decay, **options)
    scale = None
    for batch in minibatches(len(examples.targets), settings, [member.seed]):
        logits = model(examples.rows(batch[0]))
        scale = 0.05 / logits.detach().std() if scale is None else scale
        optimizer.zero_grad()
        F.cross_entropy(scale * logits, examples.targets[batch[0].to(examples.targets.device)]).backward()
        optimizer.step()
    with torch.no_grad():
        every = torch.arange(len(examples.targets))
        return float(F.cross_entropy(scale * model(examples.rows(every)), examples.targets))


def gradients_by_autograd(members: list[Member], examples: Examples, settings: Training) -> None:
    """Only the gradients of all steps, without an update."""
    stack = stack_networks([member.network for member in members])
    leaves = [nn.Parameter(parameter) for parameter in stack.parameters]
    weights, biases = leaves[::2], leaves[1::2]
    for batch in minibatches(len(examples.targets), settings, [0]):
        rows = examples.rows(batch[0])
        targets = examples.targets[batch[0].to(examples.targets.device)]
        value = rows.expand(len(members), *rows.shape)
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
            value = torch.baddbmm(bias, value, weight)
            value = value if number == len(weights) else value.relu()
        loss = F.cross_entropy(value.flatten(0, 1), targets.repeat(len(members)), reduction="sum") / len(targets)
        torch.autograd.grad(loss, leaves)


def gradients_as_written(members: list[Member], examples: Examples, settings: Training) -> None:
    """The same by the written backward pass, with the products that the optimiser otherwise adds in place."""
    stack = stack_networks([member.network for member in members])
    for batch in minibatches(len(examples.targets), settings, [0]):
        rows = examples.rows(batch[0])
        targets = examples.targets[batch[0].to(examples.targets.device)]
        inputs, labels = rows.expand(len(members), *rows.shape), targets.expand(len(members), len(targets))
        for factors in stack.gradients(inputs, labels):
            factors.product()


if __name__ == "__main__":
    main()
