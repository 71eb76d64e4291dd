"""The figure of learning rates: a dot a step along which the loss falls, a line an optimiser."""

import math

from hessdiag.results.learning_rates import LearningRate, LearningRates
from hessdiag.view import plots


def rates(**each: LearningRate) -> LearningRates:
    return LearningRates(each, model="net", loss="mse", batch_size=32)


def test_a_dot_a_step_and_a_line_an_optimizer() -> None:
    figure = plots.draw_learning_rates(
        rates(
            sgd=LearningRate(value=0.2, stderr=0.1, steps=(0.1, -0.3, math.nan, 0.4)),
            adam=LearningRate(value=0.01, stderr=0.001, steps=(0.02, 0.01, 0.01, 0.01)),
        )
    )
    (axes,) = figure.axes
    dots = {tuple(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"}
    assert dots == {(1, 4), (1, 2, 3, 4)}
    assert sorted(line.get_ydata()[0] for line in axes.lines if line.get_marker() != "o") == [0.01, 0.2]
    low, high = axes.get_ylim()
    assert low < 0.01 < 0.4 < high
    for steps in ((), (math.nan,), (-1.0,)):  # nothing to draw
        empty = plots.draw_learning_rates(rates(sgd=LearningRate(value=math.nan, stderr=math.nan, steps=steps)))
        assert not empty.axes[0].lines
