"""Exact blocks against dense matrices, on and off the diagonal, in both views and under every loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hessdiag
from hessdiag.derivatives.losses import RandomQuadratic
from tests.networks import BUILDERS, PIECEWISE_LINEAR, build
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


def diagonal_matches(report, names: list[str], expected: Tensor) -> None:
    for i, name in enumerate(names):
        (block,) = [b for b in report.blocks if b.name == name]
        want = float(expected[i, i]) / block.numel
        assert block.avg_sq_singular_value == pytest.approx(want, rel=1e-10, abs=1e-14)
        assert block.stderr == 0


def heatmap_matches(report, names: list[str], expected: Tensor) -> None:
    order = [names.index(name) for name in report.heatmap.names]
    want = expected[order][:, order].cpu().numpy()
    np.testing.assert_allclose(report.heatmap.frobenius_sq, want, rtol=1e-10, atol=1e-12 * want.max())


@pytest.mark.parametrize("network", BUILDERS)
def test_per_example_blocks_equal_dense_ones(network: str, device: str) -> None:
    model, x = build(network, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t, loss=loss)
    assert report.method == "exact"
    names = [block.name for block in report.blocks]
    assert names
    expected = mean_over_examples(ggn_blocks, model, x, t, plain, names)
    diagonal_matches(report, names, expected)
    heatmap_matches(report, names, expected)


@pytest.mark.parametrize("network", BUILDERS)
def test_per_batch_blocks_equal_dense_ones(network: str, device: str) -> None:
    model, x = build(network, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t, loss=loss, per="batch")
    names = [block.name for block in report.blocks]
    expected = frobenius_sq(ggn_blocks(model, x, t, plain, names))
    diagonal_matches(report, names, expected)
    heatmap_matches(report, names, expected)


@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("loss_name", LOSSES)
def test_every_loss(loss_name: str, per: str, device: str) -> None:
    model, x = build("conv stride", device=device)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    t = None if t is None else t.to(device)
    report = hessdiag.diagnose(model, x, t, loss=loss, per=per)
    names = [block.name for block in report.blocks]
    if per == "example":
        expected = mean_over_examples(ggn_blocks, model, x, t, plain, names)
    else:
        expected = frobenius_sq(ggn_blocks(model, x, t, plain, names))
    heatmap_matches(report, names, expected)


@pytest.mark.parametrize("network", PIECEWISE_LINEAR)
def test_diagonal_hessian_equals_gauss_newton_where_the_network_is_piecewise_linear(network: str) -> None:
    model, x = build(network, batch=2)
    _, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    report = hessdiag.diagnose(model, x, t)
    names = list(report.heatmap.names)
    hessian = mean_over_examples(hessian_blocks, model, x, t, plain, names)
    np.testing.assert_allclose(np.diagonal(report.heatmap.frobenius_sq), hessian.diagonal(), rtol=1e-10)


def test_diagonal_hessian_differs_from_gauss_newton_under_tanh() -> None:
    model, x = build("tanh")
    _, t, plain = loss_and_targets("random-quadratic", 3, len(x))
    ggn = hessdiag.diagnose(model, x, t).heatmap.frobenius_sq
    hessian = mean_over_examples(hessian_blocks, model, x, t, plain, ["0.weight", "2.weight"])
    assert abs(ggn[0, 0] / float(hessian[0, 0]) - 1) > 0.01


def test_off_diagonal_hessian_differs_from_gauss_newton_in_a_relu_network() -> None:
    model, x = build("mlp")
    _, t, plain = loss_and_targets("random-quadratic", 3, len(x))
    report = hessdiag.diagnose(model, x, t)
    hessian = mean_over_examples(hessian_blocks, model, x, t, plain, list(report.heatmap.names))
    assert abs(report.heatmap.frobenius_sq[0, 1] / float(hessian[0, 1]) - 1) > 0.01


@pytest.mark.parametrize("examples_at_once", [1, 2, 3, 5])
def test_the_result_does_not_depend_on_the_chunks(examples_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = build("conv groups")
    for per in ("example", "batch"):
        whole = hessdiag.diagnose(model, x, per=per)
        with monkeypatch.context() as patch:
            patch.setattr("hessdiag.network.shapes.NetworkShape.chunk", lambda *_, **__: examples_at_once)
            pieces = hessdiag.diagnose(model, x, per=per)
        np.testing.assert_allclose(pieces.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=1e-12)
        for a, b in zip(pieces.blocks, whole.blocks, strict=True):
            assert (a.gamma, a.nu) == pytest.approx((b.gamma, b.nu), rel=1e-12)


def test_a_wide_batch_of_one_output_needs_no_probe() -> None:
    model = torch.nn.Linear(3, 1, bias=False).double()
    x = torch.randn(7, 3, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, loss=lambda y, t: 0.5 * y.square().mean(), per="batch")
    G = x.T @ x / 7
    assert report.blocks[0].avg_sq_singular_value == pytest.approx(float(G.square().sum() / 3), rel=1e-12)
