"""Table 2 from losses that are known: normalised averages, counts, intervals, and the correlation with balance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hessdiag.plots import draw_scheme_losses
from hessdiag.results.balance_and_loss import correlate, spearman
from hessdiag.results.scheme_ranking import best_losses, rank_schemes
from hessdiag.results.training_study import DatasetLosses, TrainingStudy
from hessdiag.tables.scheme_ranking_table import edges, render_ranking

SCHEMES = ("fan-in", "geometric", "lecun")


def study(*grids: list, noise: float = 0.0, powers: tuple[int, ...] = (1, 0, -1)) -> TrainingStudy:
    """One data set a grid of (schemes, rates); four seeds, by default equal."""
    generator = np.random.default_rng(0)
    blocks = []
    for number, grid in enumerate(grids):
        losses = np.repeat(np.array(grid, dtype=float)[..., None], 4, axis=-1)
        losses = losses * (1 + noise * generator.standard_normal(losses.shape))
        best = np.nanmin(losses[..., 0], axis=1)
        blocks.append(
            DatasetLosses(
                name=f"set {number}", rows=10, features=2, classes=3, note="", powers=(2, 1, 0, -1), losses=losses,
                sigma_spread=np.repeat(best[:, None], 3, axis=1), gamma_spread=np.repeat(-best[:, None], 3, axis=1),
                predicted_rate=np.ones((3, 3)),
            )
        )  # fmt: skip
    return TrainingStudy(
        optimizer="sgd", batch_size=32, epochs=5, weight_decay=1e-5, logit_std=0.05, hidden=(384, 64), schemes=SCHEMES,
        powers=powers, blocks=tuple(blocks),
    )  # fmt: skip


NAN = np.nan
FIRST = [[NAN, 0.5, 0.4, 0.6], [NAN, 0.1, 0.3, 0.3], [0.15, 0.2, 0.4, np.inf]]
SECOND = [[NAN, 3.0, 2.0, 2.5], [NAN, 4.0, 4.0, 4.0], [NAN, 9.0, 1.0, 9.0]]


def test_losses_of_the_best_rate_over_those_of_the_worst_scheme() -> None:
    found = study(FIRST, SECOND)
    np.testing.assert_allclose(best_losses(found, SCHEMES, widened=False), [[0.4, 0.1, 0.2], [2.0, 4.0, 1.0]])
    np.testing.assert_allclose(best_losses(found, SCHEMES, widened=True), [[0.4, 0.1, 0.15], [2.0, 4.0, 1.0]])
    fan_in, geometric, lecun = rank_schemes(found, SCHEMES, widened=False)
    assert [r.average for r in (fan_in, geometric, lecun)] == pytest.approx([(1 + 0.5) / 2, (0.25 + 1) / 2, 0.375])
    assert [r.worst for r in (fan_in, geometric, lecun)] == [1, 1, 0]
    assert [r.best for r in (fan_in, geometric, lecun)] == [0, 1, 1]
    two = rank_schemes(found, ["geometric", "lecun"], widened=True)
    assert [r.average for r in two] == pytest.approx([(0.1 / 0.15 + 1) / 2, (1 + 0.25) / 2])


def test_best_rates_and_edges() -> None:
    found = study(FIRST, SECOND)
    assert found.best_power(found.blocks[0], widened=False) == [0, 1, 1]
    assert found.best_power(found.blocks[0], widened=True) == [0, 1, 2]
    assert edges(found) == "3 of 6 best learning rates lie on an edge of the paper's grid"  # a tie counts at the larger


def test_a_rate_at_which_half_of_the_seeds_diverge_is_not_the_best() -> None:
    found = study(FIRST)
    losses = found.blocks[0].losses.copy()
    losses[1, 1, :2] = np.inf
    object.__setattr__(found.blocks[0], "losses", losses)
    assert best_losses(found, ["geometric"], widened=False)[0, 0] == 0.3


def test_intervals_come_from_data_sets_and_seeds() -> None:
    for ranks in (
        rank_schemes(study(FIRST), SCHEMES, widened=False),
        rank_schemes(study(*[FIRST] * 9), SCHEMES, widened=False),
    ):
        assert all(r.low == pytest.approx(r.average) == r.high for r in ranks)  # nothing varies
    noisy = rank_schemes(study(*[FIRST] * 9, noise=0.2), SCHEMES, widened=False)
    mixed = rank_schemes(study(*[FIRST, SECOND] * 9), SCHEMES, widened=False)
    for r in (*noisy[1:], *mixed):
        assert r.low < r.average < r.high
    half = 1.96 * 0.25 / np.sqrt(18)  # of the mean of 18 values 1 or 0.5
    assert mixed[0].high - mixed[0].low == pytest.approx(2 * half, rel=0.15)
    assert mixed[0].worst_range == pytest.approx((5, 13), abs=1)
    assert rank_schemes(study(*[FIRST] * 9, noise=0.2), SCHEMES, widened=False) == noisy


def test_correlation_of_balance_and_loss() -> None:
    found = study(FIRST, SECOND)
    assert correlate(found, "sigma").mean == pytest.approx(1)
    assert correlate(found, "gamma").mean == pytest.approx(-1)
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)


def test_saved_and_shown(tmp_path: Path) -> None:
    found = study(FIRST, SECOND)
    found.to_json(tmp_path / "study.json")
    again = TrainingStudy.from_json(tmp_path / "study.json")
    text = render_ranking(again, ("fan-in", "geometric"))
    assert text == render_ranking(found, ("fan-in", "geometric"))
    assert np.array_equal(again.blocks[0].losses, found.blocks[0].losses, equal_nan=True)
    assert "2 data sets, sgd, batch 32, 5 epochs, median of 4 seeds" in text
    assert "all initialisations, widened:" in text
    assert max(map(len, text.splitlines())) <= 120
    figure = draw_scheme_losses(again, ("fan-in", "geometric"))
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["set 0", "set 1"]
    assert [len(axes.lines) for axes in (left, right)] == [2, 3]
    np.testing.assert_allclose(left.lines[1].get_xdata(), [0.25, 1.0])
