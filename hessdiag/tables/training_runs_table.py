"""Accuracies of trainings at their end: one row a network, over its seeds."""

from __future__ import annotations

import numpy as np

from hessdiag.results.numbers import Array, short
from hessdiag.results.text_table import make_table, plain_text
from hessdiag.results.training_runs import TrainingRuns

EXPENDABLE = ("images/s", "training loss")
TITLES = ("", "seeds", "accuracy", "stderr", "loss", "training loss", "images/s")


def render_runs(runs: TrainingRuns) -> str:
    """Write accuracy and loss on the validation images behind the last epoch, the best network first."""
    ordered = sorted(runs.names, key=lambda name: -_mean(runs.values(name, "validation_accuracy")[:, -1]))
    head = [f"{runs.training}; on {runs.data}", ""]
    return plain_text([*head, make_table(TITLES, [_row(runs, name) for name in ordered], expendable=EXPENDABLE)])


def _row(runs: TrainingRuns, name: str) -> list[str]:
    accuracy = runs.values(name, "validation_accuracy")[:, -1]
    known = accuracy[np.isfinite(accuracy)]
    stderr = float(known.std(ddof=1) / len(known) ** 0.5) if len(known) > 1 else float("nan")
    losses = [_mean(runs.values(name, column)[:, -1]) for column in ("validation_loss", "train_loss")]
    speed = _mean(runs.values(name, "images_per_second"))
    lost = f" ({len(accuracy) - len(known)} diverged)" if len(known) < len(accuracy) else ""
    percent = "" if not len(known) else f"{100 * float(known.mean()):.2f} %"
    error = "" if np.isnan(stderr) else f"{100 * stderr:.2f}"
    return [name, f"{len(accuracy)}{lost}", percent, error, *map(short, losses), short(speed)]


def _mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("-inf")
