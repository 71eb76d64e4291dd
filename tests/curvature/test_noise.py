"""The curvature noise scale against its definition by dense rows, and against the two views."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import hessdiag
from hessdiag.curvature.noise import _groups, _ratio
from tests.networks import BUILDERS, build
from tests.oracles import ggn_blocks


def loss(y, t):
    return (y**4).sum(dim=1).mean()


def by_definition(model: nn.Module, x: torch.Tensor, names: list[str]) -> list[float]:
    """Mean ‖G^(b)‖² over examples, over the mean ⟨G^(b), G^(c)⟩ over all pairs."""
    own = [ggn_blocks(model, x[b : b + 1], None, loss, names) for b in range(len(x))]
    scales = []
    for i in range(len(names)):
        G = torch.stack([blocks[i][i].flatten() for blocks in own]).detach()
        inner = G @ G.T
        off = (inner.sum() - inner.trace()) / (len(x) * (len(x) - 1))
        scales.append(float(inner.diagonal().mean() / off) if inner.any() else math.nan)
    return scales


@pytest.mark.parametrize("network", BUILDERS)
def test_all_pairs_of_a_small_batch(network: str) -> None:
    model, x = build(network, batch=5)
    report = hessdiag.diagnose(model, x, loss=loss)
    expected = by_definition(model, x, [block.name for block in report.blocks])
    largest = max(block.avg_sq_singular_value for block in report.blocks)
    for block, scale in zip(report.blocks, expected, strict=True):
        if block.avg_sq_singular_value > 1e-20 * largest:  # not zero up to rounding
            np.testing.assert_allclose(block.noise_scale, scale, rtol=1e-9)


def relu_network(outputs: int):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 14), nn.ReLU(), nn.Linear(14, outputs)).double()
    return model, torch.randn(32, 12, dtype=torch.float64)


@pytest.mark.parametrize(("outputs", "methods"), [(5, ["exact"]), (50, ["exact"]), (66, ["exact", "sketch"])])
def test_the_two_views_agree_with_it(outputs: int, methods: list[str]) -> None:
    """σ²_cross = (B σ²_batch − σ²_example) / (B − 1)."""
    model, x = relu_network(outputs)
    only = {"signals": False, "learning_rates": False}
    batch = hessdiag.diagnose(model, x, per="batch", method="exact", noise_scale=False, **only)
    for method in methods:
        example = hessdiag.diagnose(model, x, method=method, rtol=0.02, **only)
        told = []
        for mine, mean in zip(example.weights, batch.weights, strict=True):
            B, own, together = len(x), mine.avg_sq_singular_value, mean.avg_sq_singular_value
            expected = own / ((B * together - own) / (B - 1))
            assert abs(mine.noise_scale - expected) < 4 * mine.noise_scale_stderr
            told.append(mine.noise_scale_stderr < mine.noise_scale)
        assert any(told)


def test_groups_are_spread_over_the_batch() -> None:
    assert _groups(1, 6) == []
    assert _groups(5, 6) == [[0, 1, 2, 3, 4]]
    groups = _groups(1024, 6)
    assert len(groups) == 16
    assert len({number for group in groups for number in group}) == 96
    assert all(max(group) - min(group) > 800 for group in groups)


def test_what_no_pair_of_examples_tells_is_undefined() -> None:
    model, x = build("mlp", batch=1)
    assert all(math.isnan(block.noise_scale) for block in hessdiag.diagnose(model, x).blocks)
    model, x = build("mlp")
    for options in ({"noise_scale": False}, {"matrix": "hessian"}):
        assert all(math.isnan(block.noise_scale) for block in hessdiag.diagnose(model, x, **options).blocks)


def test_examples_with_nothing_in_common_never_stop_averaging() -> None:
    scale = _ratio(np.array([1.0, 2.0]), np.array([0.0, 0.0]))
    assert (scale.value, scale.stderr) == (math.inf, math.inf)


def test_the_error_bar_is_the_spread_between_groups() -> None:
    """Of a ratio of means over independent groups, a little wider for Student's quantile and Fieller's interval."""
    rng = np.random.default_rng(0)
    draws = [(rng.gamma(4, size=16), rng.gamma(4, size=16) / 2) for _ in range(2000)]
    found = [_ratio(own, cross) for own, cross in draws]
    spread = np.std([f.value for f in found])
    assert spread < np.mean([f.stderr for f in found]) < 1.2 * spread


@pytest.mark.parametrize("noise", [0.3, 1.0, 1.5])
def test_95_percent_intervals_cover_wherever_there_is_one(noise: float) -> None:
    """Also where the mean over pairs is told from 0 in some of the draws alone."""
    rng = np.random.default_rng(1)
    covered, undecided = [], 0
    for _ in range(1500):
        own = 5 * rng.gamma(4, size=16) / 4
        scale = _ratio(own, 1 + noise * (rng.gamma(1, size=16) - 1) + noise * rng.standard_normal(16))
        if math.isinf(scale.stderr):
            undecided += 1
        else:
            covered.append(abs(scale.value - 5) <= 1.96 * scale.stderr)
    assert 0.92 <= np.mean(covered) <= 0.98
    assert (undecided > 0) == (noise >= 1)


@pytest.mark.parametrize("lost", ["own", "cross"])
def test_a_scale_that_is_lost_in_noise_has_no_error(lost: str) -> None:
    """Means of -1 ± 1, of ‖G‖² or of the products of pairs: a ratio of -11 is no noise scale."""
    known, around_zero = np.full(16, 11.0), np.array([-5.0, 3.0] * 8)
    scale = _ratio(*((around_zero, known) if lost == "own" else (known, around_zero)))
    assert scale.stderr == math.inf


@pytest.mark.parametrize("size", [1e-170, 1.0, 1e170])
def test_a_scale_does_not_depend_on_the_size_of_the_curvature(size: float) -> None:
    rng = np.random.default_rng(2)
    own, cross = rng.gamma(4, size=16), rng.gamma(4, size=16) / 2
    small, plain = _ratio(own * size, cross * size), _ratio(own, cross)
    assert (small.value, small.stderr) == pytest.approx((plain.value, plain.stderr))


def test_directions_of_a_pass_of_its_own_do_not_depend_on_the_memory() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 80)).double()
    x, t = torch.randn(24, 30, dtype=torch.float64), torch.randint(80, (24,))
    much, little = (
        hessdiag.diagnose(model, x, t, loss="cross-entropy", per="batch", method="probe", max_products=4, max_memory=m)
        for m in (2**30, 2**20)
    )
    for a, b in zip(much.blocks, little.blocks, strict=True):
        assert a.noise_scale == pytest.approx(b.noise_scale, rel=1e-9)
