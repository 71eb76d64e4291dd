"""The figure of the study of learning rates: a panel an optimiser, a dot a network and kind of estimate."""

from hessdiag.plots.predicted_rates import draw_rate_study
from hessdiag.results.learning_rate_study import RateRow, RateStudy


def row(optimizer: str, best: float, predicted: float) -> RateRow:
    known = {"network": f"net {best}", "family": "mlp", "fitting": True, "initial": 3.0, "loss": 1.0, "seeds": 1}
    return RateRow(optimizer=optimizer, best=best, low=best / 2, high=2 * best, steps={"fresh": predicted}, **known)


def test_a_panel_an_optimizer_and_a_dot_a_network() -> None:
    rows = (row("sgd", 0.1, 0.2), row("sgd", 1.0, 1e9), row("adam", 0.01, 0.02))
    figure = draw_rate_study(RateStudy(factors={"sgd": 1.0, "adam": 1.0}, rows=rows))
    sgd, adam = figure.axes
    (dots,) = [line for line in sgd.lines if line.get_marker() == "o" and line.get_markerfacecolor() != "none"]
    assert list(dots.get_xdata()) == [0.1, 1.0]
    assert dots.get_ydata()[0] == 0.2
    assert dots.get_ydata()[1] < sgd.get_ylim()[1]  # at the edge
    assert adam.get_xlim()[0] < 0.01 < adam.get_xlim()[1]
