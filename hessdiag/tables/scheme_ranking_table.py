"""The paper's Table 2 as text, on its grid of learning rates and on the widened one, and the losses behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessdiag.results.balance_and_loss import correlate
from hessdiag.results.numbers import Array, short
from hessdiag.results.scheme_ranking import SchemeRank, best_losses, rank_schemes
from hessdiag.results.text_table import TextTable, listed, make_table, plain_text
from hessdiag.results.training_study import TrainingStudy

COLUMNS = ("initialisation", "average normalised loss", "worst in #", "best in #")


def render_ranking(study: TrainingStudy, main: Sequence[str]) -> str:
    """Show how the schemes compare.

    Args:
        study: with at least one data set.
        main: schemes that are compared among themselves; all others are compared with them in a table of their own.
    """
    shared = [scheme for scheme in study.schemes if scheme in main] or list(study.schemes)
    parts: list[str | TextTable] = [caption(study)]
    for widened, title in ((False, _grid(study)), (True, "learning rates widened until no optimum is on an edge")):
        parts += ["", f"{title}:", ranking_table(rank_schemes(study, shared, widened=widened))]
    if len(shared) < len(study.schemes):
        ranks = rank_schemes(study, study.schemes, widened=True)
        parts += ["", "all initialisations, widened:", ranking_table(ranks)]
    parts += ["", "loss at the best learning rate, and that rate as a power of 2:", loss_table(study)]
    parts += ["", edges(study), *balance_lines(study)]
    parts += listed("data sets that differ:", [(b.name, b.note) for b in study.blocks if b.note])
    parts += listed("not run, the time was over:", [(name, "not begun") for name in study.left_out])
    return plain_text(parts)


def caption(study: TrainingStudy) -> str:
    """Say what was run."""
    sets, seeds = len(study.blocks), study.blocks[0].losses.shape[-1]
    return (
        f"{sets} data set{'s' if sets > 1 else ''}, {study.optimizer}, batch {study.batch_size}, {study.epochs} epochs,"
        f" median of {seeds} seeds"
    )


def ranking_table(ranks: Sequence[SchemeRank]) -> TextTable:
    """One line a scheme."""

    def count(number: int, limits: tuple[float, float]) -> str:
        return f"{number} ({limits[0]:.0f}–{limits[1]:.0f})"

    rows = [
        [
            r.scheme,
            f"{r.average:.2f} ({r.low:.2f}–{r.high:.2f})",
            count(r.worst, r.worst_range),
            count(r.best, r.best_range),
        ]
        for r in ranks
    ]
    return make_table(COLUMNS, rows)


def loss_table(study: TrainingStudy) -> TextTable:
    """One line a data set, one column a scheme."""
    rows = []
    for block, losses in zip(study.blocks, best_losses(study, study.schemes, widened=True), strict=True):
        powers = study.best_power(block, widened=True)
        rows.append([block.name] + [f"{short(x)} ({p})" for x, p in zip(losses, powers, strict=True)])
    return make_table(("data set", *(_short(scheme) for scheme in study.schemes)), rows)


def edges(study: TrainingStudy) -> str:
    """Say how often the best learning rate of a scheme lies on an edge of the grid that all share."""
    ends = {study.powers[0], study.powers[-1]}
    best = [power in ends for block in study.blocks for power in study.best_power(block, widened=False)]
    return f"{sum(best)} of {len(best)} best learning rates lie on an edge of the paper's grid"


def balance_lines(study: TrainingStudy) -> list[str]:
    """Say whether the balance at the start goes with the loss."""
    lines = []
    for quantity, symbol in (("sigma", "σ²"), ("gamma", "γ")):
        found = correlate(study, quantity)  # type: ignore[arg-type]
        lines.append(
            f"rank correlation of the spread of {symbol} at the start with the loss, within data sets:"
            f" {found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"
        )
    ratios = rate_ratios(study)
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    lines.append(
        f"learning rate of the first step over the best one: median {short(middle)}"
        f" (5–95 %: {short(low)} to {short(high)})"
    )
    return lines


def rate_ratios(study: TrainingStudy) -> Array:
    """Learning rate measured at the start over the best one of training, of every data set and scheme."""
    return np.array(
        [
            rate / 2.0**power
            for block in study.blocks
            for rate, power in zip(
                np.median(block.predicted_rate, axis=1), study.best_power(block, widened=True), strict=True
            )
        ]
    )


def _grid(study: TrainingStudy) -> str:
    return f"learning rates 2^{study.powers[0]} to 2^{study.powers[-1]}"


def _short(scheme: str) -> str:
    return scheme.replace("geometric-orthogonal", "geo-orth").replace("pytorch-default", "pytorch")
