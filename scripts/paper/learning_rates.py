"""Learning rates that `hessdiag lr` predicts before training, against the best ones of sweeps on 42 small networks.

    python scripts/paper/learning_rates.py --data DATA              # about half an hour on one core
    python scripts/paper/learning_rates.py --data DATA --quick      # two networks

Each network is trained for 200 steps at constant rates that are powers of two, with SGD, SGD with momentum 0.9 and
Adam; the result of a run is its mean training loss over the last 25 steps. From a middle rate a sweep goes outwards
until two rates in a row, on either side, lose more than a fifth of what the best one gains over the start. Two
learning-rate range tests, fastai's and Lightning's, are run for comparison. Predictions are fitted by one factor an
optimiser on every second network; the others are held out. A finished run is a line of OUT/learning_rates.runs.jsonl.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import study
import torch
from learning_rate_networks import CASES, DATA, Case, batches
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from study import array
from torch import Tensor, nn

import hessdiag

STEPS, LAST = 200, 25
EXPONENTS = range(-24, 25)  # of two
WORSE, BEYOND, GOOD, NEAR = 0.2, 2, 0.05, 4.0  # shares of the gain that are lost; rates in a row; a factor
START = {"sgd": -3, "momentum": -6, "adam": -8}  # exponents at which the sweeps begin
RANGE_STEPS, SMOOTHING = 100, 0.98
RANGES = {"fastai": (1e-7, 10.0), "lightning": (1e-8, 1.0)}  # their defaults
VIRTUAL, BATCH, SIZES = 12, 128, (64, 256, 1024)
KINDS = (  # kind, source, label, marker
    ("steps", "fresh", "12 virtual steps", "o"),
    ("first", "256", "first step alone, 256 examples", "s"),
    ("range", "fastai minimum", "range test, a tenth of the minimum", "x"),
)


def optimizer_of(name: str, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Make SGD, SGD with momentum 0.9, or Adam with its default betas."""
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate, fused=True)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0, fused=True)


def steps_of(case: Case, optimizer: str, rates: Sequence[float], seed: int, root: Path) -> Iterator[float]:
    """Train, one step a rate, and yield the loss before each."""
    torch.manual_seed(seed)
    model = case.make()
    draw = batches(case, root, size=case.batch, seed=seed)
    stepper = optimizer_of(optimizer, list(model.parameters()), rates[0])
    for rate in rates:
        stepper.param_groups[0]["lr"] = float(rate)
        inputs, targets = draw()
        stepper.zero_grad()
        loss = case.loss(model(inputs), targets)
        loss.backward()
        stepper.step()
        yield loss.item()


def train(case: Case, optimizer: str, exponent: int, seed: int, root: Path) -> dict[str, float]:
    """Train once: mean of the last losses, inf where it diverged, and the loss before training."""
    losses: list[float] = []
    for loss in steps_of(case, optimizer, [2.0**exponent] * STEPS, seed, root):
        losses.append(loss)
        if not math.isfinite(loss) or (len(losses) > 40 and fmean(losses[-20:]) > 2 * losses[0]):
            return {"loss": math.inf, "initial": losses[0]}
    return {"loss": fmean(losses[-LAST:]), "initial": losses[0]}


def sweep(run: Callable[[int], float], start: int, initial: float) -> dict[int, float]:
    """Return losses by exponent, from the start outwards until both sides are worse."""
    losses = {start: run(start)}

    def closed(side: int) -> bool:
        best = min(losses, key=lambda each: losses[each])
        end = max(losses) if side > 0 else min(losses)
        gain = initial - losses[best]
        edge = [losses.get(end - side * back, -math.inf) for back in range(BEYOND)]
        worse = all(gain <= 0 or not loss <= losses[best] + WORSE * gain for loss in edge)
        return abs(end - best) > BEYOND - 1 and worse

    for _ in EXPONENTS:
        for side in (1, -1):
            following = (max if side > 0 else min)(losses) + side
            if not closed(side) and following in EXPONENTS:
                losses[following] = run(following)
    return dict(sorted(losses.items()))


def best_of(losses: Mapping[int, float]) -> float:
    """Find the exponent of the lowest loss, by a parabola through it and its neighbours where these are finite."""
    lowest = min(losses, key=lambda each: losses[each])
    left, middle, right = (losses.get(lowest + side, math.inf) for side in (-1, 0, 1))
    bend = left + right - 2 * middle
    return lowest + (left - right) / (2 * bend) if math.isfinite(bend) and bend > 0 else float(lowest)


def good_of(losses: Mapping[int, float], initial: float) -> tuple[int, int]:
    """Find the lowest and highest exponent around the best whose loss is good."""
    low = high = min(losses, key=lambda each: losses[each])
    worst = losses[low] + GOOD * (initial - losses[low])
    while losses.get(low - 1, math.inf) <= worst:
        low -= 1
    while losses.get(high + 1, math.inf) <= worst:
        high += 1
    return low, high


def range_test(case: Case, optimizer: str, finder: str, root: Path) -> dict[str, Any]:
    """Run rates that grow exponentially, and read the finder's rules.

    Losses are smoothed with a bias-corrected moving average of 0.98 and the run ends where that exceeds four times
    its lowest: both finders do.
    """
    low, high = RANGES[finder]
    rates = low * (high / low) ** (np.arange(RANGE_STEPS) / (RANGE_STEPS - 1))
    smooth, losses = 0.0, list[float]()
    for step, loss in enumerate(steps_of(case, optimizer, list(rates), 0, root), 1):
        smooth = SMOOTHING * smooth + (1 - SMOOTHING) * loss
        losses.append(smooth / (1 - SMOOTHING**step))
        if not losses[-1] <= 4 * min(losses):
            break
    return {"gradients": len(losses)} | suggestions(finder, rates[: len(losses)], np.array(losses))


def suggestions(finder: str, rates: np.ndarray, losses: np.ndarray) -> dict[str, float]:
    """Read the finder's rules; fastai leaves out the first tenth and the last five losses, Lightning ten and one."""
    rates, losses = (rates[10:-5], losses[10:-5]) if finder == "fastai" else (rates[10:-1], losses[10:-1])
    rates, losses = rates[np.isfinite(losses)], losses[np.isfinite(losses)]
    if len(losses) < 3:
        return {}
    if finder == "lightning":
        return {"steepest": float(rates[np.gradient(losses).argmin()])}
    slopes = np.diff(losses) / np.diff(np.log(rates))
    return {"steepest": float(rates[slopes.argmin()]), "valley": float(rates[valley(losses)]),
            "minimum": float(rates[losses.argmin()] / 10)}  # fmt: skip


def valley(losses: np.ndarray) -> int:
    """Find where fastai's rule points: in the middle third of the longest falling subsequence."""
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


def predict(case: Case, root: Path) -> dict[str, Any]:
    """Predict rates without their factors: along twelve steps, and of the first step alone; and their cost."""
    from hessdiag.diagnosis.learning_rates import FACTORS

    inputs, targets = DATA[case.data](root)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(1000))
    torch.manual_seed(0)
    model = case.make()
    loss = "mse" if case.family == "mse" else "cross-entropy"

    def rates(data: Any, targets: Tensor | None = None, steps: int = VIRTUAL) -> dict[str, float]:
        how = {"optimizers": tuple(START), "steps": steps, "loss": loss, "class_dim": class_dim, "progress": False}
        found = hessdiag.learning_rates(model, data, targets, **how)
        return {name: found[name].value / FACTORS[name] for name in START}

    drawn = [(inputs[part], targets[part]) for part in order.split(BATCH) if len(part) == BATCH]
    with torch.no_grad():
        class_dim = -1 if model(drawn[0][0][:2]).dim() == 3 else None
    began = time.process_time()
    fresh = rates(drawn)
    seconds = time.process_time() - began
    few = {str(size): (inputs[order[:size]], targets[order[:size]]) for size in SIZES}
    both = tuple(torch.cat([batch[side] for batch in drawn[:2]]) for side in (0, 1))
    times = []
    for _ in range(3):
        began = time.process_time()
        torch.autograd.grad(case.loss(model(both[0]), both[1]), list(model.parameters()))
        times.append(time.process_time() - began)
    return {
        "steps": {"fresh": fresh} | {size: rates(*data) for size, data in few.items()},
        "first": {size: rates(*data, steps=1) for size, data in few.items()}, "cost": seconds / min(times),
    }  # fmt: skip


def rows_of(case: Case, place: int, root: Path, runs: study.Runs) -> tuple[list[dict[str, Any]], float]:
    """Measure a network: a row an optimiser, and the cost of the prediction in gradients."""
    found, rows = runs(f"{case.name} predicted", partial(predict, case, root)), []
    for optimizer, start in START.items():
        first = []

        def run(exponent: int, optimizer: str = optimizer, first: list[float] = first) -> float:
            each = [runs(f"{case.name} {optimizer} 2^{exponent} seed {seed}",
                         partial(train, case, optimizer, exponent, seed, root))
                    for seed in range(case.seeds)]  # fmt: skip
            first.append(fmean(one["initial"] for one in each))
            return fmean(float(one["loss"]) for one in each)

        run(start)
        losses = sweep(run, start, first[0])
        low, high = good_of(losses, first[0])
        tests = {finder: runs(f"{case.name} {optimizer} {finder}", partial(range_test, case, optimizer, finder, root))
                 for finder in RANGES}  # fmt: skip
        rows.append({
            "network": case.name, "family": case.family, "optimizer": optimizer, "fitting": place % 2 == 0,
            "best": 2.0 ** best_of(losses), "low": 2.0**low, "high": 2.0**high, "initial": first[0],
            "loss": min(losses.values()), "seeds": case.seeds,
            "steps": {source: rates[optimizer] for source, rates in found["steps"].items()},
            "first": {source: rates[optimizer] for source, rates in found["first"].items()},
            "range": {f"{finder} {rule}": rate for finder, test in tests.items() for rule, rate in test.items()
                      if rule != "gradients"},
            "gradients": {finder: test["gradients"] for finder, test in tests.items()},
        })  # fmt: skip
    return rows, found["cost"]


def measure(asked: Any) -> dict[str, Any]:
    """Measure all networks and fit the factors on every second one."""
    if not asked.data:
        raise SystemExit("--data DIR: with libsvm/letter.scale.bz2 and cifar10/data_batch_1.bin")
    cases = CASES[:2] if asked.quick else CASES
    runs = study.Runs(asked.out / "learning_rates.runs.jsonl")
    found = [rows_of(case, place, asked.data, runs) for place, case in enumerate(cases)]
    rows, factors = [row for each, _ in found for row in each], {}
    for optimizer in START:
        own = [row for row in rows if row["optimizer"] == optimizer]
        known = [-error(row, row["steps"]["fresh"]) for row in own if row["fitting"]]
        factors[optimizer] = 2.0 ** median(known)
        for row in own:
            row["steps"] = {source: factors[optimizer] * array(rate) for source, rate in row["steps"].items()}
    costs = {case.name: cost for case, (_, cost) in zip(cases, found, strict=True)}
    return {"schema": "hessdiag.learning-rate-study/2", "factors": factors, "rows": rows, "costs": costs}


def error(row: Mapping[str, Any], rate: Any) -> float:
    """How many times too large a rate is, as log2; inf where there is none."""
    rate = math.nan if rate is None else float(rate)
    return math.log2(rate / row["best"]) if rate > 0 else math.inf


def score(rows: Sequence[Mapping[str, Any]], kind: str, source: str) -> dict[str, float]:
    """Score one kind of estimate: median of |log2 error|, share within a factor 4, and how many networks."""
    errors = [abs(error(row, row[kind].get(source))) for row in rows]
    near = sum(each <= math.log2(NEAR) for each in errors) / len(rows)
    return {"median": median(errors), "near": near, "count": len(rows)}


def scores(found: Mapping[str, Any]) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Yield optimiser, kind and source, and the scores of the networks for fitting and of those held out."""
    for optimizer in found["factors"]:
        rows = [row for row in found["rows"] if row["optimizer"] == optimizer]
        for kind, source in dict.fromkeys((k, s) for row in rows for k in ("steps", "first", "range") for s in row[k]):
            own = [row for row in rows if kind != "range" or row["gradients"]]
            halves = [[row for row in own if row["fitting"] is half] for half in (True, False)]
            yield optimizer, f"{kind} {source}", [score(half, kind, source) for half in halves if half]


def summary(found: Mapping[str, Any]) -> str:
    """Write factors and scores."""
    rows = [[optimizer, source, *(f"{half['median']:.2f} {half['near']:.0%}" for half in halves)]
            for optimizer, source, halves in scores(found)]  # fmt: skip
    factors = {name: round(factor, 2) for name, factor in found["factors"].items()}
    return f"factors {factors}\n\n" + study.table(("", "estimate", "fitting", "held out")[: len(rows[0])], rows)


def draw(found: Mapping[str, Any]) -> Figure:
    """Draw predicted against best rates, a panel an optimiser, a dot a network, with bands of factors 2 and 4."""
    count = len({row["network"] for row in found["rows"]})
    note = f"{count} networks, {STEPS} steps at a constant rate · beyond the panel: drawn at its edge"
    title, size = "Learning rates predicted before training", (8.6, 3.3)
    with study.picture(title, note, 1, len(found["factors"]), figsize=size, squeeze=False) as (figure, (panels,)):
        for axes, optimizer in zip(panels, found["factors"], strict=True):
            rows = [row for row in found["rows"] if row["optimizer"] == optimizer]
            best = np.array([row["best"] for row in rows])
            line = np.array([best.min() / 2, best.max() * 2])
            for factor in (4.0, 2.0):
                axes.fill_between(line, line / factor, line * factor, color=study.BAND, alpha=0.6, linewidth=0)
            for (kind, source, _, marker), colour in zip(KINDS, study.COLOURS, strict=False):
                rates = array([row[kind].get(source) for row in rows])
                shown = np.clip(np.nan_to_num(rates), line[0] / 3.5, line[1] * 3.5)
                axes.plot(
                    best, shown, marker, color=colour, markersize=4, fillstyle="full" if marker == "o" else "none"
                )
            axes.set(
                xscale="log", yscale="log", xlim=line, ylim=(line[0] / 4, line[1] * 4), xlabel="best learning rate"
            )
            near = score(rows, "steps", "fresh")
            study.head(axes, optimizer, f"median error ×{2 ** near['median']:.2g}, {near['near']:.0%} within ×4")
        panels[0].set_ylabel("predicted learning rate")
        marks = [Line2D([], [], marker=m, ls="", color=c, label=label)
                 for (_, _, label, m), c in zip(KINDS, study.COLOURS, strict=False)]  # fmt: skip
        figure.legend(handles=marks, loc="outside upper right", ncols=3)
    return figure


def main() -> None:
    asked = study.options(__doc__, data={"type": Path, "help": "folder with libsvm/ and cifar10/"})
    torch.set_num_threads(1)
    study.main("learning_rates", asked, lambda: measure(asked), summary, draw)


if __name__ == "__main__":
    main()
