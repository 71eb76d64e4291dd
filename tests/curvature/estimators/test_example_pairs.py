"""Pairs of examples against the sums that they stand for, written out."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from hessdiag.curvature.estimators.example_pairs import example_pair_sums


def grams(g: int, m: int, *, symmetric: bool) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(3, g * m, g * m, generator=generator, dtype=torch.float64)
    return (X @ X.mT if symmetric else X).view(3, g, m, g, m)


def weight(a: int, b: int, same_example: bool, fixed: int, k: int) -> float:
    each = [1.0 if d < fixed else 1 / k for d in (a, b)]
    if not same_example or a < fixed or b < fixed:
        return each[0] * each[1]
    return 0.0 if a == b else 1 / (k * (k - 1))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("g", "k", "fixed", "batch"), [(4, 2, 0, 4), (3, 2, 2, 9), (5, 4, 1, 20), (1, 3, 0, 1)])
def test_the_value_is_the_weighted_sum_over_all_pairs(g: int, k: int, fixed: int, batch: int, symmetric: bool) -> None:
    X = grams(g, fixed + k, symmetric=symmetric)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for i, j in itertools.product(range(g), repeat=2):
        share = 1 / (batch * g) if i == j else (1 - 1 / batch) / (g * (g - 1))
        for a, b in itertools.product(range(fixed + k), repeat=2):
            w = share * weight(a, b, i == j, fixed, k)
            expected += w * torch.outer(X[:, i, a, j, b], X[:, j, b, i, a])
    sums = example_pair_sums(X, fixed=fixed, batch=batch)
    np.testing.assert_allclose(sums["value"], (expected + expected.mT) / 2, rtol=1e-12, atol=1e-12)
    assert (sums["size"] >= np.abs(sums["value"]) * (1 - 1e-12)).all()


def test_a_basis_alone_has_no_noise_of_directions() -> None:
    sums = example_pair_sums(grams(6, 3, symmetric=True), fixed=3, batch=6)
    assert not sums["directions"].any()
    assert sums["examples"].diagonal().all()
    assert not sums["pairings"].any()  # all examples of the batch are in one group


def test_variances_are_those_of_many_draws() -> None:
    """Of directions with the examples held, and of examples with directions of their own."""
    generator = torch.Generator().manual_seed(0)
    B, P, C, k = 40, 5, 3, 2
    roots = torch.randn(B, 2, P, C, generator=generator, dtype=torch.float64)  # of two blocks of each example
    roots *= torch.rand(B, 1, 1, 1, generator=generator, dtype=torch.float64) + 0.5

    def draw(examples: Tensor) -> dict[str, Tensor]:
        z = torch.randn(len(examples), C, k, generator=generator, dtype=torch.float64)
        w = torch.einsum("ilpc,ick->likp", roots[examples], z)
        return example_pair_sums(torch.einsum("likp,ljmp->likjm", w, w), fixed=0, batch=B)

    held = [draw(torch.arange(B)) for _ in range(400)]
    spread, told = np.var([each["value"] for each in held], axis=0), np.mean([e["directions"] for e in held], axis=0)
    assert (told > 0.8 * spread).all()
    assert (told < 2 * spread).diagonal().all()
    anew = [draw(torch.randint(B, (20,), generator=generator)) for _ in range(400)]
    spread, told = np.var([each["value"] for each in anew], axis=0), np.mean([e["examples"] for e in anew], axis=0)
    assert (told > 0.8 * spread).all()
    assert (told < 2 * spread).diagonal().all()


def test_pairs_that_no_group_has_are_an_error_of_their_own() -> None:
    """Examples whose matrices are orthogonal but for a few: what a group tells depends on who is in it."""
    generator = torch.Generator().manual_seed(0)
    B, g = 24, 6
    features = torch.randn(B, 8, generator=generator, dtype=torch.float64)
    X = (features @ features.T).view(1, B, 1, B, 1)  # rank one, which a basis of one leaves without noise

    def grouped() -> list[dict[str, Tensor]]:
        order = torch.randperm(B, generator=generator).split(g)
        return [example_pair_sums(X[:, i][:, :, :, i], fixed=1, batch=B) for i in order]

    found = [grouped() for _ in range(400)]
    values = [np.mean([part["value"] for part in parts]) for parts in found]
    told = np.mean([np.sum([part["pairings"] for part in parts]) * (g / B) ** 2 for parts in found])
    whole = example_pair_sums(X, fixed=1, batch=B)["value"].item()
    assert np.mean(values) == pytest.approx(whole, abs=4 * np.std(values) / 20)
    assert 0.7 * np.var(values) < told < 1.5 * np.var(values)
