"""Find the best learning rates of small networks by training them: what predictions are held to.

    python scripts/learning_rate_sweeps.py joint sweeps.jsonl --data-dir DATA    # about 20 minutes on one core
    python scripts/learning_rate_sweeps.py range sweeps.jsonl --data-dir DATA    # the range test, a minute
    python scripts/learning_rate_sweeps.py blocks sweeps.jsonl --data-dir DATA   # one block at a time, 10 minutes

Nothing here uses hessdiag. Each network is trained for 200 steps at constant rates that are powers of two, with SGD,
SGD with momentum 0.9 and Adam; the result of a run is its mean training loss over the last 25 steps. From a middle
rate a sweep goes outwards until two rates in a row, on either side, lose more than a fifth of what the best one gains
over the start: no best rate lies at an edge. Every run is one line of the file; a run that is in the file is not
repeated, so a killed sweep goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learning_rate_networks import CASES, Case, batches
from torch import nn

STEPS, LAST = 200, 25
BLOCK_STEPS, BLOCK_LAST, BLOCK_RATES, MAX_BLOCKS = 80, 20, 16, 10
EXPONENTS = range(-24, 25)  # of two
WORSE, BEYOND = 0.2, 2  # share of the gain that is lost; rates in a row
HOPELESS, MIN_GAIN = 0.6, 0.1  # share of the best run's gain that is lacking at half time, where it gains so much
START = {"sgd": -3, "momentum": -6, "adam": -8}  # exponents at which the sweeps begin
BLOCK_CASES = (
    "mlp relu he", "mlp relu default deep", "mlp relu he layernorm", "mlp tanh xavier", "mlp relu he bottleneck",
    "mlp gelu he layernorm", "autoencoder relu he", "mlp residual layernorm", "cnn relu default",
)  # fmt: skip
RANGE_STEPS, SMOOTHING = 100, 0.98
RANGES = {"fastai": (1e-7, 10.0), "lightning": (1e-8, 1.0)}  # their defaults

Row = dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """Finished runs by key, each a line of a file."""

    path: Path
    rows: dict[tuple[Any, ...], Row]

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Read what is there."""
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
        return cls(path, {tuple(row["key"]): row for row in rows})

    def once(self, key: tuple[Any, ...], run: Callable[[], Row]) -> Row:
        """The run's row: of the file, or run now and appended."""
        if key not in self.rows:
            began = time.process_time()
            row = {"key": key, **run(), "seconds": round(time.process_time() - began, 3)}
            self.rows[key] = row
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        return self.rows[key]


def optimizer_of(name: str, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """SGD, SGD with momentum 0.9, or Adam with its default betas."""
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=True)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0, fused=True)


def train(
    case: Case,
    optimizer: str,
    exponent: int,
    seed: int,
    root: Path,
    *,
    block: str | None = None,
    hopeless: float = math.inf,
) -> Row:
    """Train once; the loss is None where it diverged. A run ends at half time where its loss is hopeless."""
    torch.manual_seed(seed)
    model = case.make()
    draw = batches(case, root, size=case.batch, seed=seed)
    if block is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name == block)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stepper = optimizer_of(optimizer, trained, 2.0**exponent)
    losses: list[float] = []
    for step in range(STEPS if block is None else BLOCK_STEPS):
        inputs, targets = draw()
        stepper.zero_grad()
        loss = case.loss(model(inputs), targets)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
        late = step >= 40 and np.mean(losses[-20:]) > 2 * losses[0]
        if not math.isfinite(losses[-1]) or late:
            return {"loss": None, "initial": losses[0], "steps": step + 1}
        if step == STEPS // 2 and (now := float(np.mean(losses[-LAST:]))) > hopeless:
            return {"loss": now, "initial": losses[0], "steps": step + 1}
    last = LAST if block is None else BLOCK_LAST
    return {"loss": float(np.mean(losses[-last:])), "initial": losses[0], "steps": len(losses)}


def sweep(run: Callable[[int], float], start: int, initial: float) -> Mapping[int, float]:
    """Losses by exponent, from the start outwards until both sides are worse."""
    losses = {start: run(start)}

    def worse(exponent: int) -> bool:
        best = min(losses.values())
        gain = initial - best
        return not losses[exponent] <= best + WORSE * gain or gain <= 0

    def closed(side: int) -> bool:
        best = min(losses, key=lambda each: losses[each])
        end = max(losses) if side > 0 else min(losses)
        edge = [end - side * back for back in range(BEYOND)]
        return abs(end - best) > BEYOND - 1 and all(each in losses and worse(each) for each in edge)

    for _ in EXPONENTS:
        for side in (1, -1):
            following = (max if side > 0 else min)(losses) + side
            if not closed(side) and following in EXPONENTS:
                losses[following] = run(following)
    return losses


def joint(case: Case, journal: Journal, root: Path) -> None:
    """All three optimisers on a network."""
    for optimizer, start in START.items():
        initial, best = [math.inf], [math.inf]

        def run(
            exponent: int, optimizer: str = optimizer, initial: list[float] = initial, best: list[float] = best
        ) -> float:
            rows = []
            gain = initial[0] - best[0]
            hopeless = best[0] + HOPELESS * gain if gain > MIN_GAIN * initial[0] else math.inf
            for seed in range(case.seeds):
                key = ("joint", case.name, optimizer, exponent, seed)
                end = math.inf if case.seeds > 1 else hopeless
                rows.append(
                    journal.once(key, lambda s=seed, e=end: train(case, optimizer, exponent, s, root, hopeless=e))
                )
            initial[0] = float(np.mean([row["initial"] for row in rows]))
            loss = float(np.mean([math.inf if row["loss"] is None else row["loss"] for row in rows]))
            best[0] = min(best[0], loss)
            return loss

        run(start)
        losses = sweep(run, start, initial[0])
        best = min(losses, key=lambda each: losses[each])
        print(f"{case.name}: {optimizer} 2^{best}, {losses[best]:.3g} of {initial[0]:.3g}", flush=True)


def blocks(case: Case, journal: Journal, root: Path) -> None:
    """Every weight matrix alone, the others frozen."""
    if case.name not in BLOCK_CASES:
        return
    torch.manual_seed(0)
    names = [name for name, each in case.make().named_parameters() if each.ndim > 1]
    if len(names) > MAX_BLOCKS:
        names = [names[round(place)] for place in np.linspace(0, len(names) - 1, MAX_BLOCKS)]
    for optimizer in ("sgd", "adam"):
        for block in names:
            initial = [math.inf]

            def run(exponent: int, name: str = block, initial: list[float] = initial, opt: str = optimizer) -> float:
                key = ("block", case.name, opt, name, exponent, 0)
                row = journal.once(key, lambda: train(case, opt, exponent, 0, root, block=name))
                initial[0] = row["initial"]
                return math.inf if row["loss"] is None else float(row["loss"])

            start = START[optimizer] + 2
            run(start)
            losses = sweep(run, start, initial[0])
            best = min(losses, key=lambda each: losses[each])
            print(f"{case.name}: {block} {optimizer} 2^{best}, {losses[best]:.3g} of {initial[0]:.3g}", flush=True)


def range_test(case: Case, optimizer: str, finder: str, seed: int, root: Path) -> Row:
    """One run of rates that grow exponentially, 100 steps, and what the finder's rules read from it.

    Losses are smoothed with a bias-corrected moving average of 0.98 and the run ends where that exceeds four times
    its lowest: both finders do. fastai leaves out the first tenth and the last five losses before it reads; Lightning
    the first ten and the last.
    """
    torch.manual_seed(seed)
    model = case.make()
    draw = batches(case, root, size=case.batch, seed=seed)
    low, high = RANGES[finder]
    rates = low * (high / low) ** (np.arange(RANGE_STEPS) / (RANGE_STEPS - 1))
    stepper = optimizer_of(optimizer, list(model.parameters()), low)
    smooth, lowest, losses = 0.0, math.inf, list[float]()
    for step, rate in enumerate(rates):
        stepper.param_groups[0]["lr"] = float(rate)
        inputs, targets = draw()
        stepper.zero_grad()
        loss = case.loss(model(inputs), targets)
        loss.backward()
        stepper.step()
        smooth = SMOOTHING * smooth + (1 - SMOOTHING) * loss.item()
        losses.append(smooth / (1 - SMOOTHING ** (step + 1)))
        lowest = min(lowest, losses[-1])
        if not losses[-1] <= 4 * lowest:
            break
    return {"gradients": len(losses), "suggestions": suggestions(finder, rates[: len(losses)], np.array(losses))}


def suggestions(finder: str, rates: np.ndarray, losses: np.ndarray) -> Mapping[str, float | None]:
    """What the finder's rules read; None where too little is left to read."""
    rates, losses = (rates[10:-5], losses[10:-5]) if finder == "fastai" else (rates[10:-1], losses[10:-1])
    rates, losses = rates[np.isfinite(losses)], losses[np.isfinite(losses)]
    if len(losses) < 3:
        return {"steepest": None} if finder == "lightning" else {"steepest": None, "valley": None, "minimum": None}
    if finder == "lightning":
        return {"steepest": float(rates[np.gradient(losses).argmin()])}
    slopes = np.diff(losses) / np.diff(np.log(rates))
    return {
        "steepest": float(rates[slopes.argmin()]),
        "valley": float(rates[valley(losses)]),
        "minimum": float(rates[losses.argmin()] / 10),
    }


def valley(losses: np.ndarray) -> int:
    """Where fastai's rule of the longest valley points: in the middle third of the longest falling subsequence."""
    lengths, start, end = [1] * len(losses), 0, 0
    for here in range(1, len(losses)):
        for before in range(here):
            if losses[here] < losses[before] and lengths[here] < lengths[before] + 1:
                lengths[here] = lengths[before] + 1
            if lengths[end] < lengths[here]:
                end = here
                start = end - lengths[end]
    sections = (end - start) / 3
    return start + int(sections) + int(sections / 2)


def ranges(case: Case, journal: Journal, root: Path) -> None:
    """Both finders with all optimisers."""
    for finder in RANGES:
        for optimizer in START:
            key = ("range", case.name, optimizer, finder, 0)
            journal.once(key, lambda o=optimizer, f=finder: range_test(case, o, f, 0, root))
    print(case.name, flush=True)


PARTS = {"joint": joint, "blocks": blocks, "range": ranges}


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
    for case in CASES:
        if arguments.only in case.name:
            PARTS[arguments.part](case, journal, arguments.data_dir)


if __name__ == "__main__":
    main()
