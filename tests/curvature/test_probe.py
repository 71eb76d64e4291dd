"""Products in weight space against dense matrices, and the honesty of the error bars."""

import numpy as np
import pytest
import torch

import hessdiag
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.probe import hutchinson, symmetrize
from hessdiag.data.memory import MemoryBudget
from tests.curvature.problems import problem_of
from tests.curvature.test_exact import LOSSES, diagonal_matches, heatmap_matches, loss_and_targets
from tests.networks import BUILDERS, build
from tests.oracles import frobenius_sq, ggn_blocks, hessian_blocks, mean_over_examples


@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("network", BUILDERS)
def test_unit_vectors_give_the_dense_hessian(network: str, per: str, device: str) -> None:
    model, x = build(network, batch=3, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t, loss=loss, matrix="hessian", method="exact", per=per)
    names = [block.name for block in report.blocks]
    if per == "example":
        expected = mean_over_examples(hessian_blocks, model, x, t, plain, names)
    else:
        expected = frobenius_sq(hessian_blocks(model, x, t, plain, names))
    diagonal_matches(report, names, expected)
    heatmap_matches(report, names, expected)
    assert all(block.ended == "exact" and block.products == block.numel for block in report.blocks)


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("loss_name", LOSSES)
def test_every_loss(loss_name: str, per: str, matrix: str) -> None:
    model, x = build("mlp", batch=3)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    dense = hessian_blocks if matrix == "hessian" else ggn_blocks
    options = {"matrix": matrix, "per": per, "method": "probe", "max_products": 10_000, "rtol": 1e-6}
    report = hessdiag.diagnose(model, x, t, loss=loss, **options)  # such an rtol makes unit vectors the cheaper way
    names = [block.name for block in report.blocks]
    assert all(block.ended == "exact" for block in report.blocks)
    if per == "example":
        expected = mean_over_examples(dense, model, x, t, plain, names)
    else:
        expected = frobenius_sq(dense(model, x, t, plain, names))
    heatmap_matches(report, names, expected)


def wide(batch: int):
    """Blocks too large for unit vectors to be the cheaper way."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 20)).double()
    return model, torch.randn(batch, 20, dtype=torch.float64)


def test_the_budget_ends_the_sampling_and_is_reported() -> None:
    model, x = wide(2)
    report = hessdiag.diagnose(model, x, matrix="hessian", rtol=1e-3, max_products=50)
    weight = report.weights[0]
    assert (weight.ended, weight.products) == ("budget", 50)
    assert weight.stderr > 1e-3 * weight.avg_sq_singular_value
    assert "rtol 0.001 missed with at most 50 products a block" in repr(report)


def test_one_example_is_a_batch_of_one() -> None:
    model, x = wide(1)
    own, mean = (hessdiag.diagnose(model, x, matrix="hessian", per=per).heatmap for per in ("example", "batch"))
    np.testing.assert_allclose(own.frobenius_sq, mean.frobenius_sq, rtol=1e-10)


def test_symmetrize_prefers_the_exact_of_two_estimates() -> None:
    value, error = symmetrize(np.array([[1.0, 2.0], [5.0, 1.0]]), np.array([[0.1, 0.0], [0.4, 0.1]]))
    assert value.tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert error.tolist() == [[0.1, 0.0], [0.0, 0.1]]


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("per", ["example", "batch"])
def test_95_percent_intervals_cover(matrix: str, per: str) -> None:
    """Over 200 seeds, at the default number of probes, and of the second stage where an error is asked for."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(9, 10), torch.nn.Tanh(), torch.nn.Linear(10, 8)).double()
    problem = problem_of(model, torch.randn(4, 9, dtype=torch.float64), "mse")
    memory = MemoryBudget(2**30, 2**26)
    view = {"matrix": matrix, "per": per}
    exact = measure_curvature(problem, Settings(method="exact", **view), memory)
    for rtol, seeds in ((None, 200), (0.2, 20)):
        inside = []
        for seed in range(seeds):
            found = measure_curvature(problem, Settings(method="probe", rtol=rtol, seed=seed, **view), memory)
            for name in ("0.weight", "2.weight"):
                one, truth = found.diagonal[name], exact.diagonal[name].frobenius_sq
                assert one.ended == "sampled" if rtol is None else one.ended in ("rtol", "budget", "exact")
                inside.append(abs(one.frobenius_sq - truth) <= 1.96 * one.stderr + 1e-9 * truth)
        assert (0.9 if rtol is None else 0.85) <= np.mean(inside) <= (0.985 if rtol is None else 1.0)


@pytest.mark.parametrize("memory", [100_000, 2_000])  # few probes at a time; few examples of the batch
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probes_do_not_depend_on_the_chunks(per: str, memory: int) -> None:
    model, x = wide(5)
    problem = problem_of(model, x, "mse")
    settings = Settings(matrix="hessian", per=per)
    whole, pieces = (measure_curvature(problem, settings, MemoryBudget(2**30, chunk)) for chunk in (2**26, memory))
    np.testing.assert_allclose(pieces.frobenius_sq, whole.frobenius_sq, rtol=1e-12)


def test_the_spread_between_examples_is_no_error() -> None:
    value, stderr = hutchinson(np.array([[1.0, 1.0], [100.0, 100.0]])[..., None])
    assert (value[0], stderr[0]) == (50.5, 0.0)
