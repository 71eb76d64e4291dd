"""Bring sweeps and predictions of learning rates together, fit the factors on half of the networks, and draw.

    python scripts/learning_rates_figure.py sweeps.jsonl predictions.jsonl    # figures/learning_rates.{json,png,svg}

Every second network is for fitting, in the order of `learning_rate_networks.py`; the others are held out. A prediction
is that of one network, seed 0; the best rate is that of the mean loss over the seeds of the sweep.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from learning_rate_networks import CASES
from learning_rate_sweeps import START, Journal

from hessdiag import plots
from hessdiag.plots.predicted_rates import draw_rate_study
from hessdiag.results.learning_rate_study import BlockRow, RateRow, RateStudy, score

GOOD = 0.05  # share of the gain that a good rate may lose
RULES = {"lightning": ("steepest",), "fastai": ("valley", "minimum", "steepest")}
SOURCES = (
    *(("steps", source) for source in ("fresh", "1024", "256", "64")),
    *(("first", source) for source in ("1024", "256", "64")),
    *(("range", f"{finder} {rule}") for finder, rules in RULES.items() for rule in rules),
)


def sweep_of(journal: Journal, *key: Any) -> tuple[dict[int, float], float, int]:
    """Mean losses by exponent where all seeds ended, the mean loss before training, and how many seeds."""
    runs: defaultdict[int, list[float]] = defaultdict(list)
    initial = []
    for (*head, exponent, _), row in journal.rows.items():
        if tuple(head) == key:
            runs[exponent].append(math.inf if row["loss"] is None else row["loss"])
            initial.append(row["initial"])
    seeds = max(map(len, runs.values()), default=0)
    return {exponent: fmean(losses) for exponent, losses in sorted(runs.items())}, fmean(initial or [0.0]), seeds


def best_of(losses: Mapping[int, float]) -> float:
    """The exponent of the lowest loss, by a parabola through it and its neighbours where these are finite."""
    lowest = min(losses, key=lambda each: losses[each])
    left, middle, right = (losses.get(lowest + side, math.inf) for side in (-1, 0, 1))
    bend = left + right - 2 * middle
    return lowest + (left - right) / (2 * bend) if math.isfinite(bend) and bend > 0 else float(lowest)


def good_of(losses: Mapping[int, float], initial: float) -> tuple[int, int]:
    """Lowest and highest exponent around the best whose loss is good."""
    low = high = min(losses, key=lambda each: losses[each])
    worst = losses[low] + GOOD * (initial - losses[low])
    while losses.get(low - 1, math.inf) <= worst:
        low -= 1
    while losses.get(high + 1, math.inf) <= worst:
        high += 1
    return low, high


def rows_of(sweeps: Journal, predictions: Journal) -> list[RateRow]:
    """A row for each network and optimiser; estimates along steps without their factor."""
    rows = []
    for place, case in enumerate(CASES):
        predicted = predictions.rows.get(("rates", case.name, 0))
        if predicted is None or not all(sweep_of(sweeps, "joint", case.name, each)[0] for each in START):
            continue
        for optimizer in START:
            losses, initial, seeds = sweep_of(sweeps, "joint", case.name, optimizer)
            low, high = good_of(losses, initial)
            kind, share = ("adam", 1.0) if optimizer == "adam" else ("sgd", 0.1 if optimizer == "momentum" else 1.0)
            rows.append(
                RateRow(
                    network=case.name,
                    family=case.family,
                    optimizer=optimizer,
                    fitting=place % 2 == 0,
                    best=2.0 ** best_of(losses),
                    low=2.0**low,
                    high=2.0**high,
                    initial=initial,
                    loss=min(losses.values()),
                    seeds=seeds,
                    steps={source: rates[kind] for source, rates in predicted["steps"].items()},
                    first={source: share * rates[kind] for source, rates in predicted["first"].items()},
                    range=ranges_of(sweeps, case.name, optimizer),
                    gradients=gradients_of(sweeps, case.name, optimizer),
                )
            )
    return rows


def ranges_of(sweeps: Journal, network: str, optimizer: str) -> dict[str, float]:
    """What the finders' rules suggest."""
    found = {}
    for finder, rules in RULES.items():
        run = sweeps.rows.get(("range", network, optimizer, finder, 0), {"suggestions": {}})
        found |= {f"{finder} {rule}": run["suggestions"].get(rule) or math.nan for rule in rules}
    return found


def gradients_of(sweeps: Journal, network: str, optimizer: str) -> dict[str, float]:
    """How many gradients the finders' runs took."""
    runs = {finder: sweeps.rows.get(("range", network, optimizer, finder, 0)) for finder in RULES}
    return {finder: run["gradients"] for finder, run in runs.items() if run is not None}


def fitted(rows: list[RateRow]) -> tuple[dict[str, float], list[RateRow]]:
    """Factors that take the median error of the fitting half to 0, and the rows with them."""
    factors = {}
    for optimizer in START:
        own = [row for row in rows if row.optimizer == optimizer and row.fitting]
        factors[optimizer] = 2.0 ** median(-row.error(row.steps["fresh"]) for row in own)
    scaled = [{name: factors[row.optimizer] * rate for name, rate in row.steps.items()} for row in rows]
    return factors, [replace(row, steps=steps) for row, steps in zip(rows, scaled, strict=True)]


def blocks_of(sweeps: Journal, predictions: Journal) -> list[BlockRow]:
    """Best and predicted rates of single blocks; those whose loss never falls by a hundredth have no best rate."""
    rows = []
    for (kind, network, *_), predicted in predictions.rows.items():
        if kind != "blocks":
            continue
        for optimizer in ("sgd", "adam"):
            best = {}
            for name in predicted["blocks"][optimizer]:
                losses, initial, _ = sweep_of(sweeps, "block", network, optimizer, name)
                if losses and min(losses.values()) < 0.99 * initial:
                    best[name] = 2.0 ** best_of(losses)
            own = {name: predicted["blocks"][optimizer][name] for name in best}
            rows.append(BlockRow(network=network, optimizer=optimizer, best=best, predicted=own))
    return [row for row in rows if len(row.best) > 2]


def tell(study: RateStudy) -> None:
    """Print scores."""
    print("factors", {name: round(factor, 2) for name, factor in study.factors.items()})
    for optimizer in START:
        every = [row for row in study.rows if row.optimizer == optimizer]
        for kind, source in SOURCES:
            own = [row for row in every if kind != "range" or row.gradients]
            if not own:
                continue
            parts = [own, [row for row in own if row.fitting], [row for row in own if not row.fitting]]
            told = "   ".join(
                f"{s.median:5.2f} {s.near:4.0%} {s.window:4.0%} {s.offset:+5.2f}"
                for s in (score(part, kind, source) for part in parts)
            )
            print(f"{optimizer:9} {kind:6} {source:20} {told}")
    for row in study.block_rows:
        print(f"{row.network:28} {row.optimizer:5} {row.spearman:5.2f} of {len(row.best)}")
    if study.costs:
        print("cost", min(study.costs.values()), median(study.costs.values()), max(study.costs.values()))


def main() -> None:
    """Gather, print, save, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path)
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    arguments = parser.parse_args()
    sweeps, predictions = Journal.open(arguments.sweeps), Journal.open(arguments.predictions)
    factors, rows = fitted(rows_of(sweeps, predictions))
    costs = {key[1]: row["pairs"] for key, row in predictions.rows.items() if key[0] == "cost"}
    study = RateStudy(factors=factors, rows=tuple(rows), block_rows=tuple(blocks_of(sweeps, predictions)), costs=costs)
    tell(study)
    study.to_json(arguments.out / "learning_rates.json")
    plots.save(draw_rate_study(study), arguments.out / "learning_rates")


if __name__ == "__main__":
    main()
