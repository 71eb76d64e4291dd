"""Sketched blocks against exact ones on networks where both run, and the coverage of their error bars."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hessdiag
from hessdiag.curvature import sketch
from hessdiag.curvature.exact import exact_per_example
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.norms import Curvature, mean_of, pair_statistics
from hessdiag.curvature.sketch import BASIS, Directions, directions_for, products_of, range_basis
from hessdiag.data.batch import Batch
from hessdiag.data.memory import MemoryBudget
from hessdiag.derivatives.problem import Problem
from hessdiag.network.trace import SENT_AT_ONCE
from hessdiag.results.numbers import Array
from tests.curvature.problems import PLENTY, problem_of
from tests.networks import PLAIN, build

Network = Callable[[], tuple[nn.Module, Tensor]]


def deep_relu() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = [nn.Linear(20, 30), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(30, 30), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(30, 40)).double()
    return hessdiag.init.apply(model, "fan-in"), torch.randn(3, 20, dtype=torch.float64)


def linear(outputs: int = 40) -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(60, 50), nn.Linear(50, outputs)).double(), torch.randn(3, 60, dtype=torch.float64)


def loss_options(loss: str, batch: int, outputs: int) -> dict[str, object]:
    targets = {"random-quadratic": None, "mse": torch.randn(batch, outputs).double()}
    return {"loss": loss, "targets": targets.get(loss, torch.randint(outputs, (batch,)))}


@pytest.mark.parametrize("loss", ["cross-entropy", "mse", "random-quadratic"])
@pytest.mark.parametrize("network", [deep_relu, linear])
def test_95_percent_intervals_cover(network: Network, loss: str) -> None:
    """Over 200 draws of the usual directions, with four bases; and without bias. Repeated examples have their own."""
    problem = problem_of(*network(), loss)
    weights = [i for i, block in enumerate(problem.blocks) if block.kind == "weight"]
    exact = exact_per_example(problem, chunk=100).frobenius_sq[weights][:, weights]
    often, size, found = Batch.concatenate([problem.batch] * 50), problem.batch.size, []
    for seed in range(4):
        many = replace(problem, batch=often)
        directions = Directions(directions_for(size), range_basis(many, PLENTY, seed))
        X = products_of(many, often, directions, seed)[weights].transpose(0, 1)
        each = pair_statistics(X, directions.fixed)
        each["fourth"] = each["variance"] ** 2
        sums = {key: term.unflatten(0, (50, size)).sum(dim=1).numpy() for key, term in each.items()}
        found.append(mean_of(sums, size, directions.random, 0.0))
    values, errors = (np.concatenate(each) for each in zip(*found, strict=True))
    inside = np.abs(values - exact) <= 1.96 * errors + 1e-9 * exact
    assert 0.9 <= inside.diagonal(axis1=1, axis2=2).mean() <= 0.97
    assert 0.9 <= inside.mean() <= 0.97
    assert (np.abs(values.mean(axis=0) - exact) <= 4.5 * values.std(axis=0) / 200**0.5 + 1e-9 * exact).all()


@pytest.fixture(scope="module")
def two_stages() -> tuple[Curvature, Curvature, list[tuple[Directions, tuple[Array, Array]]]]:
    """An exact measurement, one in two stages, and what each stage found."""
    stages, measure = [], sketch._measure

    def noted(problem: Problem, memory: MemoryBudget, directions: Directions, *rest: Any) -> tuple[Array, Array]:
        stages.append((directions, measure(problem, memory, directions, *rest)))
        return stages[-1][1]

    torch.manual_seed(0)
    problem = problem_of(*linear(), "mse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "_measure", noted)
        found = measure_curvature(problem, Settings(method="sketch", rtol=0.05), PLENTY)
    return measure_curvature(problem, Settings(method="exact"), PLENTY), found, stages


def test_a_second_stage_of_its_own_reaches_the_error_that_is_asked_for(two_stages) -> None:
    exact, found, _ = two_stages
    assert {found.ended[i] for i in range(len(found.products))} == {"rtol"}
    errors = np.diagonal(found.stderr)
    assert (errors <= 0.05 * np.diagonal(found.frobenius_sq)).all()
    assert (np.abs(np.diagonal(found.frobenius_sq - exact.frobenius_sq)) <= 4 * errors).all()
    # Stopping at samples that look precise left a bias of 0.9 %.
    _, found, ((first, _), (second, (value, _))) = two_stages
    assert first.name != second.name
    assert found.frobenius_sq[0, 0] == value[0, 0]
    assert found.products[0] == first.random + second.random + 2 * 2 * BASIS


def test_a_basis_is_sharper_where_the_rank_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = deep_relu()
    options = {**loss_options("cross-entropy", 3, 40), "method": "sketch"}
    deflated = hessdiag.diagnose(model, x, **options)
    assert f"a basis of {BASIS} and 17 random directions of each example" in deflated.method_reason
    monkeypatch.setattr("hessdiag.curvature.sketch.range_basis", lambda *_: None)
    assert 4 * deflated.weights[0].stderr < hessdiag.diagnose(model, x, **options).weights[0].stderr


@pytest.mark.parametrize("products", [2, 30, 60])
def test_a_budget_is_kept(products: int) -> None:
    model, x = linear()
    options = {**loss_options("random-quadratic", 3, 40), "method": "sketch", "max_products": products}
    report = hessdiag.diagnose(model, x, rtol=0.001, **options)
    assert report.blocks[0].products <= max(products, 20)  # a basis, and as many as tell their own noise
    assert {block.ended for block in report.weights} == {"budget"}


def test_many_outputs_are_sketched_without_being_asked_for_and_zeros_without_a_warning() -> None:
    model, x = linear(outputs=200)
    report = hessdiag.diagnose(model, x)
    assert report.method == "sketch"
    assert "standard errors up to" in report.text("whole")
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Linear(5, 30, bias=False))
    for layer in model:
        nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
    report = hessdiag.diagnose(model, torch.randn(6, 4), loss="mse", targets=torch.randn(6, 30), method="sketch")
    assert [block.avg_sq_singular_value for block in report.blocks] == [0.0, 0.0]


def test_negative_estimates_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessdiag.curvature.sketch.range_basis", lambda *_: None)
    model, x = deep_relu()
    options = {"method": "sketch", "max_products": 6, **PLAIN}
    reports = [hessdiag.diagnose(model, x[:1], seed=seed, **options) for seed in range(6)]
    maps = np.array([report.heatmap.frobenius_sq for report in reports])
    assert (maps < 0).any()
    assert not (maps == 0).any()
    lost = next(r for r in reports if (r.heatmap.frobenius_sq < 0).any())
    assert (lost.heatmap.stderr > 0).all()
    assert hessdiag.Report.from_json(lost.to_json()).heatmap == lost.heatmap
    assert (lost.heatmap.normalized() < 0).any()
    assert hessdiag.plots.draw_heatmap(lost).axes


@pytest.mark.parametrize("seed", range(3))
def test_float32_errors_of_low_rank_are_within_the_rounding_that_is_reported(seed: int) -> None:
    """Six outputs are spanned by the basis: the samples agree to far better than their products are rounded."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(24, 24), nn.ReLU())]
    model = hessdiag.init.apply(nn.Sequential(*layers, nn.Linear(24, 6)), "fan-in")
    x, t = torch.randn(4, 24), torch.randint(6, (4,))
    options = {"loss": "cross-entropy", "seed": seed}
    single = hessdiag.diagnose(model, x, t, method="sketch", **options).heatmap
    exact = hessdiag.diagnose(model.double(), x.double(), t, method="exact", **options).heatmap
    assert (single.stderr >= 15 * torch.finfo(torch.float32).eps * np.abs(single.frobenius_sq)).all()
    assert (single.stderr < 1e-5 * exact.frobenius_sq).all()
    assert (np.abs(single.frobenius_sq - exact.frobenius_sq) <= 4 * single.stderr).all()


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e8])
def test_weights_of_any_size_are_sketched_in_float32(size: float) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 40))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    x, t = torch.randn(5, 6), torch.randn(5, 40)
    exact, sketched = (hessdiag.diagnose(model, x, t, loss="mse", method=m, **PLAIN) for m in ("exact", "sketch"))
    assert not any(np.isnan(block.avg_sq_singular_value) for block in sketched.blocks)
    assert sketched["4.bias"].avg_sq_singular_value == pytest.approx(exact["4.bias"].avg_sq_singular_value, rel=0.4)


@pytest.mark.parametrize("network", ["linear", "layernorm"])
def test_directions_that_do_not_fit_at_once_are_paired_all_the_same(network: str) -> None:
    """Sent back a few at a time, with all of their gradients held: the numbers of one pass, not of more rounds."""
    problem = problem_of(*(linear() if network == "linear" else build(network)), "cross-entropy")
    shape, most = problem.shape, 20
    each = shape.element_size * (shape.written - shape.returned + shape.dense)
    enough = MemoryBudget(2**34, 1)  # an example at a time
    little = MemoryBudget((shape.bytes_per_example(SENT_AT_ONCE) + (most + 1) * each) * 8 // 7, 1)
    assert shape.most_in_pieces(little.total) >= most > shape.most_cotangents(little.total)
    whole, pieces = (sketch._measure(problem, memory, Directions(most), 0) for memory in (enough, little))
    np.testing.assert_allclose(pieces, whole, rtol=1e-8)
    in_rounds = sketch._measure(problem, MemoryBudget(little.total // 2, 1), Directions(most), 0)
    assert not np.allclose(in_rounds[0], whole[0], rtol=1e-3)
