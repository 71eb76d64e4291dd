"""Initialisations side by side: a map for each, and markers where the numbers are."""

import numpy as np
import pytest

from hessdiag import to_html
from hessdiag.results.setups import InitCheck, SchemeCheck, ranked
from hessdiag.view.plots import draw_init_check, save
from tests.view.figures import build_setups


def build_scheme(init: str, factor: float) -> SchemeCheck:
    """Five blocks whose means are 1, ..., factor in σ², γ and ν, with little noise over 8 trials."""
    rng = np.random.default_rng(len(init))
    values = np.geomspace(1, factor, 5) * rng.lognormal(sigma=0.05, size=(8, 5))
    setups = build_setups(count=8, init=init, normalized=np.sqrt(np.outer(values.mean(0), values.mean(0))))
    for key in ("avg_sq_singular_value", "gamma", "nu"):
        setups.columns[key][:] = values
    return SchemeCheck(setups=setups, output_sq=np.ones(8), output_variance=np.ones(8))


def build_check(count: int = 4) -> InitCheck:
    schemes = [build_scheme(f"init{number}", 2.0 * 3**number) for number in range(count)]
    return InitCheck(init=f"init{count - 1}", schemes=ranked(schemes))


@pytest.mark.parametrize("count", [1, 4])
def test_every_initialisation_has_its_place(count: int, tmp_path) -> None:
    check = build_check(count)
    figure = draw_init_check(check)
    save(figure, tmp_path / "f.svg")
    *maps, _bar, spreads = sorted(figure.axes, key=lambda a: (a.get_xlabel() != "", a.get_label() == "<colorbar>"))
    titles = [axes.get_title(loc="left") for axes in maps if axes.get_title(loc="left")]
    assert len(titles) == count
    assert check.init in [text.split("\n")[0] for text in titles]
    names = [text.get_text() for text in spreads.get_yticklabels()]
    assert names == [scheme.init for scheme in check.schemes]
    bold = [text.get_text() for text in spreads.get_yticklabels() if text.get_fontweight() == "bold"]
    assert bold == [check.init]


def test_markers_stand_at_the_spreads_and_the_page_has_text_and_figure() -> None:
    check = build_check(3)
    (spreads,) = [axes for axes in draw_init_check(check).axes if axes.get_xlabel()]
    drawn = {
        (round(line.get_ydata()[0], 2), float(line.get_xdata()[0]))
        for line in spreads.lines
        if line.get_marker() == "D"
    }
    assert drawn == {(row, scheme.spread().value) for row, scheme in enumerate(check.schemes)}
    dashed = [line.get_xdata()[0] for line in spreads.lines if line.get_linestyle() == "--"]
    assert dashed == [2.0, 10.0]
    page = to_html(check)
    assert "<h1>Initialisation init2</h1>" in page
    assert all(line.split()[0] in page for line in check.text().splitlines() if line.strip())
    assert page.count("data:image/svg+xml;base64,") == 1
