"""Training curves: windows, tests between sets, and JSON."""

import numpy as np
import pytest
from scipy import stats

from hessdiag.results.training_curves import CurveSet, TrainingCurves, windows
from hessdiag.tables.training_curves_table import render_curves


def curves(**losses: list[float]) -> TrainingCurves:
    sets = tuple(
        CurveSet(
            name=name,
            powers=(-2, -4),
            sweep=np.array([[np.inf], [final[0]]]),
            power=-4,
            curves=np.stack([np.array([2.0, 1.5, loss]) for loss in final]),
        )
        for name, final in losses.items()
    )
    return TrainingCurves(
        model="net", data="images", training="SGD", window=400, steps=np.array([400.0, 600.0, 800.0]), sets=sets
    )


def test_they_travel_as_json() -> None:
    made = curves(a=[1.0, 1.1, np.inf], b=[0.5, 0.6, 0.7])
    assert TrainingCurves.from_json(made.to_json()).to_json() == made.to_json()


def test_windows_are_means_of_the_steps_before_their_end() -> None:
    losses = np.arange(1000.0)
    ends, means = windows(losses, window=400, points=4)
    assert ends.tolist() == [400, 600, 800, 1000]
    assert means.tolist() == [losses[int(end) - 400 : int(end)].mean() for end in ends]


def test_a_window_longer_than_the_training_is_all_of_it() -> None:
    ends, means = windows(np.array([1.0, 3.0]), window=400, points=5)
    assert (ends.tolist(), means.tolist()) == ([2.0], [2.0])


def test_p_is_that_of_welch_over_the_seeds_that_did_not_diverge() -> None:
    one, other = [1.0, 1.1, 1.3, np.inf], [0.5, 0.6, 0.9, 0.8]
    made = curves(one=one, other=other)
    assert made.p_value("one", "other") == pytest.approx(stats.ttest_ind(one[:3], other, equal_var=False).pvalue)
    assert np.isnan(curves(one=[1.0], other=other).p_value("one", "other"))


def test_the_table_ranks_by_the_median_of_the_final_losses() -> None:
    text = render_curves(curves(a=[1.0, 1.1, np.inf], b=[0.5, 0.6, 0.7]), reference="a")
    rows = [line.split() for line in text.splitlines() if line[:2] in ("a ", "b ")]
    assert [row[:3] for row in rows] == [["b", "2^-4", "0.600"], ["a", "2^-4", "1.10"]]
    assert rows[1][4] == "1/3"
