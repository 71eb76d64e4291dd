"""Products in weight space against dense matrices, and the honesty of the error bars."""

import numpy as np
import pytest
import torch

import hessdiag
from hessdiag.curvature.probe import symmetrize
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


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probed_values_are_within_four_standard_errors(matrix: str, per: str) -> None:
    model, x = wide(4)
    R = torch.randn(20, 20, dtype=torch.float64)

    def quadratic(y, t):  # a callable, so that another seed changes the probes and not the loss
        return ((y @ R) * y).sum() / len(y)

    names = ["0.weight", "2.weight"]
    dense = hessian_blocks if matrix == "hessian" else ggn_blocks
    if per == "example":
        expected = mean_over_examples(dense, model, x[:2], None, quadratic, names).numpy()
        x = x[:2]
    else:
        expected = frobenius_sq(dense(model, x, None, quadratic, names)).numpy()
    for seed in range(5):
        report = hessdiag.diagnose(model, x, loss=quadratic, matrix=matrix, per=per, method="probe", seed=seed)
        assert {block.ended for block in report.weights} == {"rtol"}
        assert (report.heatmap.stderr > 0).all()
        assert (abs(report.heatmap.frobenius_sq - expected) < 4 * report.heatmap.stderr).all()
        for block in report.weights:
            assert block.stderr <= report.rtol * block.avg_sq_singular_value


def test_the_budget_ends_the_sampling_and_is_reported() -> None:
    model, x = wide(2)
    report = hessdiag.diagnose(model, x, matrix="hessian", rtol=1e-3, max_products=50)
    weight = report.weights[0]
    assert (weight.ended, weight.products) == ("budget", 50)
    assert weight.stderr > 1e-3 * weight.avg_sq_singular_value
    assert "rtol 0.001 missed with at most 50 products a block" in repr(report)


@pytest.mark.parametrize("memory", [100_000, 2_000])  # few probes at a time; few examples of the batch
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probes_do_not_depend_on_the_chunks(per: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = wide(5)
    whole = hessdiag.diagnose(model, x, matrix="hessian", rtol=0.5, per=per)
    monkeypatch.setattr("hessdiag.execution.memory.CHUNK", memory)
    pieces = hessdiag.diagnose(model, x, matrix="hessian", rtol=0.5, per=per)
    np.testing.assert_allclose(pieces.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=1e-12)


def test_one_example_is_a_batch_of_one() -> None:
    model, x = wide(1)
    own, mean = (hessdiag.diagnose(model, x, matrix="hessian", per=per).heatmap for per in ("example", "batch"))
    np.testing.assert_allclose(own.frobenius_sq, mean.frobenius_sq, rtol=1e-10)


@pytest.mark.parametrize("per", ["example", "batch"])
def test_a_matrix_of_low_rank_is_known_to_rounding(per: str) -> None:
    """Rank 3 · 4 at most: 16 probes span it."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3)).double()
    x = torch.randn(4 if per == "batch" else 1, 20, dtype=torch.float64)
    t = torch.randn(len(x), 3, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, t, loss="mse", matrix="ggn", method="probe", per=per)
    expected = hessdiag.diagnose(model, x, t, loss="mse", matrix="ggn", method="exact", per=per)
    np.testing.assert_allclose(report.heatmap.frobenius_sq, expected.heatmap.frobenius_sq, rtol=1e-10)
    assert (report.heatmap.stderr < 1e-10 * report.heatmap.frobenius_sq).all()
    assert {block.products for block in report.weights} <= set(range(17, 29))


@pytest.mark.parametrize("kept", [1_000, 400_000])
def test_vectors_too_large_to_keep_leave_hutchinsons_estimator(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start, or for the rest of the budget."""
    model, x = wide(4)
    options = {"matrix": "hessian", "per": "batch", "rtol": 0.02, "max_products": 2000}
    exact = hessdiag.diagnose(model, x, method="exact", matrix="hessian", per="batch")
    monkeypatch.setattr("hessdiag.curvature.probe.KEPT_BYTES", kept)
    monkeypatch.setattr("hessdiag.curvature.estimators.stopping.MARGIN", 1.0)
    report = hessdiag.diagnose(model, x, **options)
    for measured, truth in zip(report.weights, exact.weights, strict=True):
        assert abs(measured.avg_sq_singular_value - truth.avg_sq_singular_value) < 4 * measured.stderr + 1e-12


def test_symmetrize_prefers_the_exact_of_two_estimates() -> None:
    value, error = symmetrize(np.array([[1.0, 2.0], [5.0, 1.0]]), np.array([[0.1, 0.0], [0.4, 0.1]]))
    assert value.tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert error.tolist() == [[0.1, 0.0], [0.0, 0.1]]
