"""Sketches of the matrix of a whole batch against dense ones: no bias, error bars that hold, and no more memory."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature import batch_sketch
from hessdiag.curvature.batch_sketch import _Rounds, example_pair_sums, sketch_per_batch
from hessdiag.curvature.norms import Curvature
from hessdiag.curvature.sketch import Directions
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget
from hessdiag.data.seeds import gaussians
from hessdiag.derivatives.backward import block_vjps
from hessdiag.derivatives.losses import unit_cotangents
from hessdiag.derivatives.problem import Problem
from tests.curvature.problems import PLENTY, log_cosh, problem_of
from tests.oracles import frobenius_sq, ggn_blocks, quadratic


def mlp(inputs: int = 6, outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, outputs)).double()


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4)).double()


def data(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def dense_of(problem: Problem, loss: str) -> Tensor:
    known = {"cross-entropy": F.cross_entropy, "mse": F.mse_loss, "callable": log_cosh}
    plain = known.get(loss, quadratic(problem.shape.outputs))
    names, (x,) = [block.name for block in problem.blocks], problem.batch.args
    return frobenius_sq(ggn_blocks(problem.model, x, problem.batch.targets, plain, names))


def sketched(problem: Problem, seed: int, memory: MemoryBudget = PLENTY, **options) -> Curvature:
    return sketch_per_batch(problem, memory, seed=seed, **options)


@pytest.mark.parametrize(("network", "loss", "split"), [
    ("mlp", "cross-entropy", _Rounds(1, 2, 24)),
    ("mlp", "cross-entropy", _Rounds(2, 3, 8)),  # groups, and rounds
    ("mlp", "random-quadratic", _Rounds(1, 4, 24)), ("cnn", "cross-entropy", _Rounds(1, 5, 12)),
    ("cnn", "callable", _Rounds(1, 3, 24)),
])  # fmt: skip
def test_without_bias_and_95_percent_intervals_cover(network: str, loss: str, split: _Rounds, monkeypatch) -> None:
    model, x = (mlp(), data(24, 6)) if network == "mlp" else (cnn(), data(24, 2, 8, 8))
    problem = problem_of(model, x, loss)
    dense, seen = dense_of(problem, loss).numpy(), problem.trace(problem.batch)
    y, unit = seen.y.detach(), unit_cotangents(seen.y.detach())
    left = problem.loss.root_products(y, problem.batch.targets, unit) if problem.loss.has_root else unit
    right = left if problem.loss.has_root else problem.loss.hessian_products(y, problem.batch.targets, unit)

    def jacobians(cotangents: Tensor) -> list[Tensor]:  # (B, N, P) each
        return [one.dense().J for one in block_vjps(model, problem.batch, problem.blocks, seen, cotangents)]

    def products(_: Problem, part: Batch, directions: Directions, seed: int, *, across: bool) -> Tensor:
        assert across
        b = part.args[0].flatten()
        z = gaussians(seed, directions.name, part.numbers, (directions.random, y.shape[1])).double()
        return torch.einsum("kbn,lbncm,qcm->lbkcq", z, whole[:, b][:, :, :, b], z)

    pairs = zip(jacobians(left), jacobians(right), strict=True)
    whole = torch.stack([torch.einsum("bnp,cmp->bncm", u, w) for u, w in pairs])  # (L, B, N, B, N)
    monkeypatch.setattr(batch_sketch, "products_of", products)
    numbered = replace(problem, batch=Batch.of(torch.arange(len(x)).unsqueeze(1), None))
    found = [split.measure(numbered, seed, "test") for seed in range(200)]
    values, errors = (np.array(each) for each in zip(*found, strict=True))
    spread = values.std(axis=0, ddof=1)
    assert (np.abs(values.mean(axis=0) - dense) <= 4.5 * spread / 200**0.5 + 1e-9 * dense.max()).all()
    inside = np.abs(values - dense) <= 1.96 * errors + 1e-9 * np.abs(dense)
    assert 0.9 <= inside.diagonal(axis1=1, axis2=2).mean() <= 0.97
    assert 0.9 <= inside.mean() <= 0.97


def test_a_second_stage_reaches_the_error_that_is_asked_for() -> None:
    problem = problem_of(mlp(outputs=8), data(24, 6), "cross-entropy")
    dense = np.diagonal(dense_of(problem, "cross-entropy").numpy())
    for seed in range(2):
        found = sketched(problem, seed, rtol=0.15)
        assert (np.abs(np.diagonal(found.frobenius_sq) - dense) <= 5 * np.diagonal(found.stderr)).all()
        for i, block in enumerate(problem.blocks):
            assert found.ended[i] == "rtol" or block.kind != "weight"
    assert max(sketched(problem, 0, rtol=1e-3, max_products=30).products) <= 30


@pytest.mark.parametrize("loss", ["cross-entropy", "random-quadratic"])
def test_a_group_that_does_not_fit_is_halved(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(mlp(), data(20, 6), loss)
    dense, measure = dense_of(problem, loss).numpy(), batch_sketch.products_of

    def limited(problem, part, directions, seed, most=5, **how):
        found = measure(problem, part, directions, seed, **how)
        if part.size > most:
            raise MemoryError
        return found

    monkeypatch.setattr(batch_sketch, "products_of", limited)
    values = np.array([_Rounds(1, 3, 20).measure(problem, seed, "test")[0] for seed in range(20)])
    assert (np.abs(values.mean(axis=0) - dense) <= 4 * values.std(axis=0, ddof=1) / 20**0.5).all()
    monkeypatch.setattr(batch_sketch, "products_of", lambda *args, **how: limited(*args, most=1, **how))
    with pytest.raises(hessdiag.HessdiagError, match="out of memory with 4 examples"):
        sketched(problem, 0)


def test_little_memory_means_groups_and_rounds() -> None:
    problem = problem_of(mlp(outputs=12), data(40, 6), "cross-entropy")
    assert _Rounds.of(problem, PLENTY, 6) == _Rounds(1, 6, 40)
    little = MemoryBudget(30 * problem.shape.bytes_per_example(2) * 3, 2**26)
    assert _Rounds.of(problem, little, 6).group < 40
    found = sketched(problem, 0, little)
    assert (np.abs(found.frobenius_sq - dense_of(problem, "cross-entropy").numpy()) <= 5 * found.stderr).all()
    with pytest.raises(hessdiag.HessdiagError, match="two directions of 4 of them at once: use method 'probe'"):
        sketched(problem, 0, MemoryBudget(100, 100))


def grams(g: int, k: int, *, symmetric: bool) -> Tensor:
    X = torch.randn(3, g * k, g * k, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return (X @ X.mT if symmetric else X).view(3, g, k, g, k)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("g", "k", "batch"), [(4, 2, 4), (3, 2, 9), (5, 4, 20), (1, 3, 1)])
def test_the_value_is_the_weighted_sum_over_all_pairs(g: int, k: int, batch: int, symmetric: bool) -> None:
    X, expected = grams(g, k, symmetric=symmetric), torch.zeros(3, 3, dtype=torch.float64)
    for i, j, a, b in itertools.product(range(g), range(g), range(k), range(k)):
        weight = 1 / (batch * g * k * (k - 1)) if i == j else (1 - 1 / batch) / (g * (g - 1) * k * k)
        if (i, a) != (j, b):
            expected += weight * torch.outer(X[:, i, a, j, b], X[:, j, b, i, a])
    sums = example_pair_sums(X, batch=batch)
    np.testing.assert_allclose(sums["value"], (expected + expected.mT) / 2, rtol=1e-12, atol=1e-12)
    assert (sums["size"] >= sums["value"].abs() * (1 - 1e-12)).all()


def test_pairs_that_no_group_has_are_an_error_of_their_own() -> None:
    """Examples whose matrices are orthogonal but for a few: what a group tells depends on who is in it."""
    generator = torch.Generator().manual_seed(0)
    B, g = 24, 6
    features = torch.randn(B, 8, generator=generator, dtype=torch.float64)
    gram = (features @ features.T).view(1, B, 1, B, 1)
    X = gram.expand(1, B, 2, B, 2)  # rank one, in which both directions are the same

    def grouped() -> list[dict[str, Tensor]]:
        order = torch.randperm(B, generator=generator).split(g)
        return [example_pair_sums(X[:, i][:, :, :, i], batch=B) for i in order]

    found = [grouped() for _ in range(400)]
    values = [np.mean([float(part["value"]) for part in parts]) for parts in found]
    told = np.mean([np.sum([float(part["pairings"]) for part in parts]) * (g / B) ** 2 for parts in found])
    whole = example_pair_sums(X, batch=B)["value"].item()
    assert np.mean(values) == pytest.approx(whole, abs=4 * np.std(values) / 20)
    assert 0.7 * np.var(values) < told < 1.5 * np.var(values)
