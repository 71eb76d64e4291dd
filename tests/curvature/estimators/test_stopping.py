"""Honest error bars where the tool itself stops, and what ends the sampling."""

import math

import numpy as np
import pytest
import torch

from hessdiag.curvature.estimators.stopping import Budget, deflate_until, sample_until
from tests.spectra import SPECTRA, signs, symmetric

DEFAULT = Budget(rtol=0.05, max_products=400)


@pytest.mark.parametrize(("examples", "budget"), [(1, DEFAULT), (8, DEFAULT), (1, Budget(0.05, 12))])
@pytest.mark.parametrize("spectrum", ["decaying", "exponential", "flat", "rank 3", "indefinite"])
def test_hutchinsons_95_percent_intervals_cover_in_92_to_98_percent(spectrum: str, examples: int, budget: Budget):
    size, trials = 100, 500
    rng = np.random.default_rng(0)
    values = {
        "decaying": 1.0 / np.arange(1, 31),
        "exponential": 0.8 ** np.arange(30),
        "flat": np.ones(30),
        "rank 3": np.array([3.0, 2.0, 1.0]),
        "indefinite": rng.standard_normal(30),
    }[spectrum]
    # Each example has its own matrix Q diag(values) Q^T of its own scale; ‖H r‖² = Σ values² (Q^T r)².
    scale = rng.uniform(0.5, 2.0, examples)
    bases = [np.linalg.qr(rng.standard_normal((size, len(values))))[0] for _ in range(examples)]
    truth = float((scale**2).mean() * (values**2).sum())

    def draw(count: int):
        r = rng.choice([-1.0, 1.0], size=(examples, count, size))
        norms = [s**2 * ((r_b @ Q) ** 2 @ values**2) for s, Q, r_b in zip(scale, bases, r, strict=True)]
        return np.stack(norms)[..., None]

    covered = 0
    for _ in range(trials):
        column = sample_until(draw, examples=examples, focus=0, numel=10**9, budget=budget)
        assert column is not None
        low, high = column.interval(0.95)
        covered += bool(low[0] <= truth <= high[0])
    assert 0.92 <= covered / trials <= 0.98


@pytest.mark.parametrize("max_products", [24, 400])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_leave_one_out_95_percent_intervals_cover_in_92_to_98_percent(spectrum: str, max_products: int) -> None:
    """With 400 products the whole range of rank 30 is found: the width is that of rounding, and the truth in it."""
    found = (spectrum, max_products) == ("rank 30", 400)
    size, trials = 150, 500
    generator = torch.Generator().manual_seed(0)
    covered = []
    for trial in range(trials):
        if trial % 20 == 0:
            H = symmetric(SPECTRA[spectrum](size), seed=trial)
            truth = float(H.square().sum())
        column = deflate_until(
            lambda m: signs(m, size, generator),
            lambda v, H=H: [v.double() @ H],
            focus=0,
            numel=size,
            budget=Budget(0.05, max_products),
        )
        assert column is not None
        low, high = column.interval(0.95)
        covered.append(low[0] <= truth <= high[0])
        assert not found or (column.products, column.ended) == (62, "rtol")
        assert not found or column.stderr[0] <= 1e-10 * truth
    assert 0.92 <= np.mean(covered) <= (1.0 if found else 0.98)


@pytest.mark.parametrize("max_products", [24, 40, 400])
def test_off_diagonal_intervals_cover_too(max_products: int) -> None:
    """Value ± 1.96 bars of a block of which `rtol` is not asked, as a report gives them."""
    size, trials = 120, 500
    generator = torch.Generator().manual_seed(0)
    H = symmetric(SPECTRA["polynomial"](size), seed=0)
    B = torch.randn(30, size, generator=generator, dtype=torch.float64) @ H
    truth = np.array([float(H.square().sum()), float(B.square().sum())])
    covered = []
    for _ in range(trials):
        column = deflate_until(
            lambda m: signs(m, size, generator),
            lambda v: [v.double() @ H, v.double() @ B.T],
            focus=0,
            numel=size,
            budget=Budget(0.05, max_products),
        )
        assert column is not None
        covered.append(np.abs(column.frobenius_sq - truth) <= 1.96 * column.bars)
    assert (np.abs(np.mean(covered, axis=0) - 0.95) <= 0.03).all()


def test_the_size_is_chosen_without_the_samples_that_count() -> None:
    """Of a rank-1 matrix, stopping at samples that look precise would be low by several per cent."""
    rng = np.random.default_rng(0)
    values = []
    for _ in range(1500):
        column = sample_until(
            lambda m: rng.standard_normal((8, m, 1)) ** 2,
            examples=8,
            focus=0,
            numel=10**9,
            budget=Budget(0.1, 400),
        )
        assert column is not None
        values.append(column.frobenius_sq[0])
    assert abs(np.mean(values) - 1) < 4 * np.std(values) / len(values) ** 0.5
    assert np.std(values) / len(values) ** 0.5 < 0.003


def test_the_pilot_takes_few_examples() -> None:
    asked = []

    def draw(count: int, examples: int) -> np.ndarray:
        asked.append((examples, count))
        return np.random.default_rng(0).normal(10, 1, size=(examples, count, 1))

    column = sample_until(
        lambda m: draw(m, 1000),
        examples=1000,
        focus=0,
        numel=10**9,
        budget=DEFAULT,
        draw_pilot=lambda m: draw(m, 32),
    )
    assert column is not None
    assert asked == [(32, 2), (1000, 2)]
    assert column.products == 4


def deflate(values: np.ndarray, budget: Budget, numel: int | None = None):
    size = len(values)
    H, generator = symmetric(values, seed=0), torch.Generator().manual_seed(1)
    asked = []

    def multiply(vectors):
        asked.append(len(vectors))
        return [vectors.double() @ H]

    column = deflate_until(lambda m: signs(m, size, generator), multiply, focus=0, numel=numel or size, budget=budget)
    return column, asked, float(H.square().sum())


def test_every_product_is_counted_and_none_is_done_twice() -> None:
    column, asked, _ = deflate(0.97 ** np.arange(300), Budget(0.02, 400), numel=10**6)
    assert column is not None
    assert len(asked) >= 4  # more than one look
    assert column.products == sum(asked) <= 400
    assert column.ended == "rtol"
    assert column.relative(0) <= 0.02


def test_the_budget_ends_it() -> None:
    column, _, _ = deflate(0.97 ** np.arange(300), Budget(0.001, 51))
    assert column is not None
    assert (column.ended, column.products) == ("budget", 50)


@pytest.mark.parametrize("rank", [0, 1, 5, 15])
def test_low_rank_costs_its_rank_and_ends_without_error(rank: int) -> None:
    column, asked, truth = deflate(np.r_[np.ones(rank), np.zeros(100 - rank)], DEFAULT)
    assert column is not None
    assert column.ended == "rtol"
    assert sum(asked) == column.products == 16 + rank
    assert abs(column.frobenius_sq[0] - truth) <= 4 * column.stderr[0] <= 1e-10 * truth
    low, high = column.interval()
    assert low[0] <= column.frobenius_sq[0] <= high[0]


def test_unit_vectors_where_they_are_cheaper() -> None:
    assert deflate(np.ones(32), DEFAULT)[0] is None  # than the pilot
    assert deflate(0.97 ** np.arange(40), Budget(1e-6, 400))[0] is None  # than the second look
    assert deflate(0.97 ** np.arange(40), Budget(1e-6, 38))[0] is not None  # but over the budget
    assert sample_until(lambda m: np.zeros((1, m, 1)), examples=1, focus=0, numel=64, budget=Budget(0.1, 400)) is None


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_overflow_is_reported_and_not_sampled_again(bad: float) -> None:
    column = deflate_until(
        lambda m: signs(m, 100, torch.Generator()),
        lambda v: [torch.full((len(v), 100), bad)],
        focus=0,
        numel=100,
        budget=DEFAULT,
    )
    assert column is not None
    assert column.ended == "budget"
    assert not np.isfinite(column.frobenius_sq[0])
