"""Initialisations side by side: a map for each, over its own level."""

import numpy as np
import pytest

from hessdiag.results.setups import InitCheck, SchemeCheck, ranked
from hessdiag.view.plots import draw_init_check
from tests.view.figures import build_setups, readable


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
def test_every_initialisation_has_a_map_the_most_balanced_first(count: int) -> None:
    check = build_check(count)
    figure = draw_init_check(check)
    readable(figure)
    maps = [axes for axes in figure.axes if axes.get_title(loc="left")]
    across = sorted(maps, key=lambda axes: axes.get_position().x0)
    assert [axes.get_title(loc="left").split("\n")[0] for axes in across] == [each.init for each in check.schemes]
    for axes, scheme in zip(across, check.schemes, strict=True):
        values = scheme.setups.normalized()
        level = np.exp(np.log(np.diagonal(values)).mean())
        np.testing.assert_allclose(axes.collections[0].get_array(), values / level, rtol=1e-12)
