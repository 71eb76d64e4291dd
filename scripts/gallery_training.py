"""Train every case of the gallery before and after its repair, each at its own best learning rate, on real data.

python scripts/gallery_training.py train journal.jsonl --cifar data_batch_1.bin --letter letter.scale.bz2 [--only NAME]
python scripts/gallery_training.py gather journal.jsonl    # writes figures/gallery.json

The search starts at three rates a factor of 4 apart and goes on while the best is the first or the last of them; then
it tries half and twice the best. A network that has hardly moved by then is tried at all higher rates too. Two more
seeds are run at the rate that won. No warm-up, no decay, no clipping. Every run is one line of the journal; a run that
is there is not repeated. One thread, half an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import torch  # noqa: E402

TRAINED = ROOT / "figures" / "gallery.json"
SEEDS = 3
WINDOW = 5  # steps that make one point of a curve
START = {"adam": -5, "sgd": -2}  # exponent of 4 in the middle of the first three rates
MIN_EXPONENT, MAX_EXPONENT = -12, 3
HARDLY = 0.98  # of the first loss


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        score: mean loss of the last fifth of the steps; infinite where it diverged.
        first: loss before the first step.
        curve: mean loss of every `WINDOW` steps.
        seconds: of processor time.
    """

    case: str
    variant: str
    optimizer: str
    rate: float
    seed: int
    score: float
    first: float
    curve: tuple[float, ...]
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.case, self.variant, self.optimizer, self.rate, self.seed)


class Journal:
    """Runs that are done, in a file that grows by a line a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        runs = [Run(**(record | {"curve": tuple(record["curve"])})) for record in map(json.loads, lines)]
        self.runs = {run.key: run for run in runs}

    def run(self, key: tuple[Any, ...], compute: Callable[[], Run]) -> Run:
        """Return the run of this key, computed now if it is not there."""
        if key not in self.runs:
            self.runs[key] = compute()
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(self.runs[key])) + "\n")
            run = self.runs[key]
            print(*key, f"{run.score:.4f}", f"{run.seconds:.1f} s", file=sys.stderr, flush=True)
        return self.runs[key]


def best_rate(score: Callable[[float], float], start: int) -> float:
    """Search the rate of the lowest score in powers of 4, then of 2; what wins has a loser on either side.

    >>> best_rate(lambda rate: abs(math.log2(rate) + 9), -5)
    0.001953125
    """
    low, high = start - 1, start + 1

    def at(exponent: float) -> float:
        return score(4.0**exponent)

    if at(low) == at(start) == at(high) < math.inf:
        return 4.0**start  # nothing moves: every rate is the best
    while True:
        best = min(range(low, high + 1), key=at)
        if best == low and low > MIN_EXPONENT:
            low -= 1
        elif best == high and high < MAX_EXPONENT:
            high += 1
        else:
            return min((4.0 ** (best + half) for half in (-0.5, 0, 0.5)), key=score)


def train(task: Any, key: tuple[Any, ...]) -> Run:
    """Train one network, from scratch or from what was pretrained."""
    from strangers.gallery.tasks import mean_loss

    case, variant, name, rate, seed = key
    start = time.process_time()
    torch.manual_seed(seed)
    model = task.make(variant).train()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name](weights, lr=rate)
    losses: list[float] = []
    for step in range(task.steps):
        loss = mean_loss(task, model, *task.draw(100_000 * seed + step))
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    whole = len(losses) == task.steps and math.isfinite(losses[-1])
    score = sum(losses[-(task.steps // 5) :]) / (task.steps // 5) if whole else math.inf
    curve = [sum(losses[i : i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]
    rounded = tuple(float(f"{value:.5g}") for value in curve)
    return Run(case, variant, name, rate, seed, score, losses[0], rounded, time.process_time() - start)


def train_all(journal: Journal, tasks: dict[str, Any], only: str) -> None:
    """Search and repeat for every case, variant and optimiser."""
    for case, task in tasks.items():
        if only in case:
            for optimizer in task.optimizers:
                for variant in ("before", "after"):
                    search_and_repeat(journal, task, name_of(case, variant), variant, optimizer)
    print(f"{sum(run.seconds for run in journal.runs.values()) / 60:.1f} minutes of processor time", file=sys.stderr)


def name_of(case: str, variant: str) -> str:
    """The repaired GPT-2 is one and the same network in two cases, and is trained once."""
    return "gpt2-cproj" if (case, variant) == ("trunc-normal", "after") else case


def search_and_repeat(journal: Journal, task: Any, case: str, variant: str, optimizer: str) -> None:
    """Find the best rate of one network, and run it with other seeds."""

    def run(rate: float, seed: int = 0) -> Run:
        key = (case, variant, optimizer, rate, seed)
        return journal.run(key, lambda: train(task, key))

    def score(rate: float) -> float:
        return run(rate).score

    rate = best_rate(score, START[optimizer])
    if score(rate) != score(rate / 4) and score(rate) > HARDLY * run(rate).first:
        higher = [4.0**exponent for exponent in range(START[optimizer] + 2, MAX_EXPONENT + 1)]
        rate = min([rate, *higher], key=score)
    for seed in range(SEEDS):
        run(rate, seed)


def gather(journal: Journal, tasks: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """For each case, optimiser and variant the rates that were tried, and the runs at the best of them."""
    for case, task in tasks.items():
        for optimizer in task.optimizers:
            for variant in ("before", "after"):
                key = (name_of(case, variant), variant, optimizer)
                own = [r for r in journal.runs.values() if r.key[:3] == key]
                tried = {r.rate: r.score for r in own if r.seed == 0}
                equal = len(set(tried.values())) == 1
                rate = sorted(tried)[1] if equal else min(tried, key=lambda rate: tried[rate])
                runs = sorted((r for r in own if r.rate == rate), key=lambda r: r.seed)
                yield {
                    "case": case, "variant": variant, "optimizer": optimizer, "network": task.network,
                    "data": task.data, "loss": task.loss, "steps": task.steps, "rate": rate,
                    "tried": {f"{r:.4g}": _finite(tried[r]) for r in sorted(tried)},
                    "scores": [_finite(r.score) for r in runs], "first": [float(f"{r.first:.5g}") for r in runs],
                    "curves": [r.curve for r in runs],
                }  # fmt: skip


def _finite(score: float) -> float | None:
    return float(f"{score:.5g}") if math.isfinite(score) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "gather"))
    parser.add_argument("journal", type=Path)
    parser.add_argument("--cifar", type=Path, default=Path("data_batch_1.bin"))
    parser.add_argument("--letter", type=Path, default=Path("letter.scale.bz2"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    from strangers.gallery.tasks import Files, tasks

    torch.set_num_threads(1)
    every = dict(tasks(Files(options.cifar, options.letter)))
    journal = Journal(options.journal)
    if options.what == "train":
        train_all(journal, every, options.only)
        return
    rows = ",\n".join(" " + json.dumps(row, ensure_ascii=False) for row in gather(journal, every))
    head = f'{{"schema": "hessdiag.gallery/1", "window": {WINDOW}, "runs": [\n'
    TRAINED.write_text(f"{head}{rows}\n]}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
