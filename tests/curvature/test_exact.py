"""Exact blocks against dense matrices, on and off the diagonal, in both views and under every loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hessdiag
from hessdiag.derivatives.losses import RandomQuadratic
from tests.networks import BUILDERS, PIECEWISE_LINEAR, PLAIN, build
from tests.oracles import frobenius_sq, ggn_blocks, hessian_blocks, mean_over_examples

LOSSES = ["random-quadratic", "cross-entropy", "mse", "callable"]


def log_cosh(y: Tensor, t: Tensor) -> Tensor:
    """A user's loss: smooth, not quadratic, its Hessian different for every example."""
    return (y - t).cosh().log().mean()


def loss_and_targets(name: str, outputs: int, batch: int):
    """What to pass to `diagnose`, and the same loss as a plain mean over a batch for the oracle."""
    if name == "random-quadratic":
        R = RandomQuadratic.draw(outputs, seed=0, like=torch.zeros((), dtype=torch.float64)).R
        return "random-quadratic", None, lambda y, t: ((y @ R.to(y)) * y).sum() / len(y)
    if name == "cross-entropy":
        return name, torch.randint(outputs, (batch,)), F.cross_entropy
    targets = torch.randn(batch, outputs, dtype=torch.float64)
    return (name, targets, F.mse_loss) if name == "mse" else (log_cosh, targets, log_cosh)


def equals_dense(report, matrix: str, per: str, *problem) -> None:
    """Every block, and the whole map, against dense matrices of a model, its data and a loss written out."""
    names = [block.name for block in report.blocks]
    assert names
    dense = ggn_blocks if matrix == "ggn" else hessian_blocks
    of_examples = per == "example"
    expected = mean_over_examples(dense, *problem, names) if of_examples else frobenius_sq(dense(*problem, names))
    for i, block in enumerate(report.blocks):
        want = float(expected[i, i]) / block.numel
        assert block.avg_sq_singular_value == pytest.approx(want, rel=1e-10, abs=1e-14)
        assert block.stderr == 0
    order = [names.index(name) for name in report.heatmap.names]
    want = expected[order][:, order].cpu().numpy()
    np.testing.assert_allclose(report.heatmap.frobenius_sq, want, rtol=1e-10, atol=1e-12 * want.max())


@pytest.mark.parametrize(("matrix", "batch"), [("ggn", 5), ("hessian", 3)])
@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("network", BUILDERS)
def test_blocks_equal_dense_ones(network: str, per: str, matrix: str, batch: int, device: str) -> None:
    model, x = build(network, batch=batch, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    options = {} if matrix == "ggn" else {**PLAIN}  # with signals from the same pass, and without
    options |= {"loss": loss, "matrix": matrix, "method": "exact", "per": per, "mode": "eval"}
    report = hessdiag.diagnose(model, x, t, **options)
    equals_dense(report, matrix, per, model, x, t, plain)
    assert matrix == "ggn" or all((block.ended, block.products) == ("exact", block.numel) for block in report.blocks)


@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("loss_name", LOSSES)
def test_every_loss(loss_name: str, per: str, device: str) -> None:
    model, x = build("conv stride", device=device)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    t = None if t is None else t.to(device)
    equals_dense(hessdiag.diagnose(model, x, t, loss=loss, per=per), "ggn", per, model, x, t, plain)
    model, x = build("mlp", batch=3)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    for matrix in ("hessian", "ggn"):  # such an rtol makes unit vectors the cheaper way
        options = {"matrix": matrix, "per": per, "method": "probe", "max_products": 10_000, "rtol": 1e-6, **PLAIN}
        report = hessdiag.diagnose(model, x, t, loss=loss, **options)
        assert all(block.ended == "exact" for block in report.blocks)
        equals_dense(report, matrix, per, model, x, t, plain)


@pytest.mark.parametrize("network", PIECEWISE_LINEAR)
def test_diagonal_hessian_equals_gauss_newton_where_the_network_is_piecewise_linear(network: str) -> None:
    model, x = build(network, batch=2)
    _, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t, mode="eval", **PLAIN)
    assert report.method == "exact"  # without being asked for
    names = list(report.heatmap.names)
    hessian = mean_over_examples(hessian_blocks, model, x, t, plain, names)
    np.testing.assert_allclose(np.diagonal(report.heatmap.frobenius_sq), hessian.diagonal(), rtol=1e-10)


@pytest.mark.parametrize(("network", "i", "j"), [("tanh", 0, 0), ("mlp", 0, 1)])
def test_the_hessian_differs_under_tanh_and_off_the_diagonal(network: str, i: int, j: int) -> None:
    model, x = build(network)
    _, t, plain = loss_and_targets("random-quadratic", 3, len(x))
    found = hessdiag.diagnose(model, x, t, **PLAIN).heatmap
    hessian = mean_over_examples(hessian_blocks, model, x, t, plain, list(found.names))
    assert abs(found.frobenius_sq[i, j] / float(hessian[i, j]) - 1) > 0.01


@pytest.mark.parametrize("examples_at_once", [1, 2, 3, 5])
def test_the_result_does_not_depend_on_the_chunks(examples_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = build("conv groups")
    for per in ("example", "batch"):
        whole = hessdiag.diagnose(model, x, per=per, **PLAIN)
        with monkeypatch.context() as patch:
            patch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: examples_at_once)
            pieces = hessdiag.diagnose(model, x, per=per, **PLAIN)
        np.testing.assert_allclose(pieces.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=1e-12)
        for a, b in zip(pieces.blocks, whole.blocks, strict=True):
            assert (a.gamma, a.nu) == pytest.approx((b.gamma, b.nu), rel=1e-12)


def test_a_wide_batch_of_one_output_needs_no_probe() -> None:
    model = torch.nn.Linear(3, 1, bias=False).double()
    x = torch.randn(7, 3, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, loss=lambda y, t: 0.5 * y.square().mean(), per="batch")
    G = x.T @ x / 7
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(G.square().sum() / 3), rel=1e-12)
