"""Predict the learning rates of the networks that `learning_rate_sweeps.py` trains, before any training.

    python scripts/learning_rate_predictions.py rates predictions.jsonl --data-dir DATA     # a few minutes on one core
    python scripts/learning_rate_predictions.py cost predictions.jsonl --data-dir DATA      # in gradients

Rates are kept without the factors of `hessdiag.diagnosis.learning_rates`, so that these can be fitted. The
weights are those that the sweeps start from; the examples are other draws from the same data.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from learning_rate_networks import CASES, DATA, Case
from learning_rate_sweeps import Journal
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import Reading, resolve_loss
from hessdiag.diagnosis.learning_rates import BatchPairs, Walk, best_constant_rate

STEPS, BATCH = 12, 128
SIZES = (64, 256, 1024)
ROUNDS = 3  # of timing

Row = dict[str, Any]


def examples(case: Case, root: Path, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of 128 that share no example."""
    inputs, targets = DATA[case.data](root)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(1000 + seed))
    for start in range(0, len(inputs) - BATCH, BATCH):
        chosen = order[start : start + BATCH]
        yield inputs[chosen], targets[chosen]


def walk_of(case: Case, seed: int, batch: Batch) -> Walk:
    """At the weights that the sweep of this seed starts from."""
    torch.manual_seed(seed)
    model = case.make()
    few = batch.narrow(0, 2)
    with torch.no_grad():
        y = few.call(model)
    kind = "mse" if case.family == "mse" else "cross-entropy"
    reading = Reading(class_dim=-1 if y.dim() == 3 else None, per="batch")
    return Walk.of(model, resolve_loss(kind, y=y, targets=batch.targets, seed=0, reading=reading), batch, seed=0)


def predict(case: Case, seed: int, root: Path) -> Row:
    """Rates along twelve steps, from 24 fresh batches and from few examples, and of the first step alone."""
    drawn = examples(case, root, seed)
    batches = [Batch.of(*next(drawn)) for _ in range(2 * STEPS)]
    whole = Batch.concatenate(batches)
    walk = walk_of(case, seed, batches[0])
    sources = {"fresh": batches} | {str(size): [whole.narrow(0, size)] for size in SIZES}
    found: Row = {"steps": {}, "first": {}, "walks": {}}
    for name, source in sources.items():
        steps = list(walk.steps(BatchPairs(source, BATCH).draw(STEPS, seed=seed)))
        both = {"sgd": [step.gradient for step in steps], "adam": [step.adam for step in steps]}
        found["steps"][name] = {optimizer: best_constant_rate(along)[0] for optimizer, along in both.items()}
        found["walks"][name] = {o: [(each.slope, each.curvature) for each in along] for o, along in both.items()}
    for size in SIZES:
        part = whole.narrow(0, size)
        (step,) = walk.steps(iter([(part, part)]))
        found["first"][str(size)] = {"sgd": step.gradient.rate, "adam": step.adam.rate}
    return found


def rates(case: Case, journal: Journal, root: Path) -> None:
    """The network of seed 0."""
    row = journal.once(("rates", case.name, 0), lambda: predict(case, 0, root))
    print(case.name, row["steps"]["fresh"], flush=True)


def cost(case: Case, journal: Journal, root: Path) -> None:
    """Time of twelve steps in gradients of one batch of 128, and of the 256 examples of a step; in turns."""

    def run() -> Row:
        drawn = examples(case, root, 0)
        batches = [Batch.of(*next(drawn)) for _ in range(2 * STEPS)]
        walk = walk_of(case, 0, batches[0])
        pairs = BatchPairs(batches, BATCH)
        of_both = Batch.concatenate(batches[:2])
        torch.manual_seed(0)
        model = case.make()

        def gradient(batch: Batch) -> None:
            loss = case.loss(model(batch.args[0]), batch.targets)
            torch.autograd.grad(loss, list(model.parameters()))

        tasks: dict[str, Callable[[], Any]] = {
            "single": lambda: gradient(batches[0]),
            "both": lambda: gradient(of_both),
            "steps": lambda: list(walk.steps(pairs.draw(STEPS, seed=0))),
        }
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(ROUNDS):
            for name, task in tasks.items():
                began = time.process_time()
                task()
                times[name].append(time.process_time() - began)
        low = {name: min(each) for name, each in times.items()}
        ratios = {
            name: statistics.median(s / g for s, g in zip(times["steps"], times[name], strict=True)) for name in times
        }
        return {
            "seconds": low,
            "gradients": low["steps"] / low["single"],
            "pairs": low["steps"] / low["both"],
            "medians": ratios,
        }

    row = journal.once(("cost", case.name), run)
    print(case.name, row["gradients"], row["pairs"], flush=True)


PARTS = {"rates": rates, "cost": cost}


def main() -> None:
    """Run a part for all networks, or for those whose name contains what `--only` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    journal = Journal.open(arguments.journal)
    with sdpa_kernel(SDPBackend.MATH):  # the only attention kernel with forward-mode derivatives
        for case in CASES:
            if arguments.only in case.name:
                PARTS[arguments.part](case, journal, arguments.data_dir)


if __name__ == "__main__":
    main()
