"""Exact and probed blocks against dense matrices, on and off the diagonal, in both views and under every loss."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hessdiag
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.probe import hutchinson, probes_for, symmetrize
from hessdiag.data.memory import MemoryBudget
from tests.curvature.problems import log_cosh, problem_of
from tests.networks import BUILDERS, PIECEWISE_LINEAR, PLAIN, build
from tests.oracles import DENSE, Blocks, frobenius_sq, ggn_blocks, hessian_blocks, quadratic
from tests.unchanged import unchanged

LOSSES = ["random-quadratic", "cross-entropy", "mse", "callable"]


def loss_and_targets(name: str, outputs: int, batch: int):
    """What to pass to `diagnose`, and the same loss as a plain mean over a batch for the oracle."""
    if name == "random-quadratic":
        return name, None, quadratic(outputs)
    if name == "cross-entropy":
        return name, torch.randint(outputs, (batch,)), F.cross_entropy
    targets = torch.randn(batch, outputs, dtype=torch.float64)
    return (name, targets, F.mse_loss) if name == "mse" else (log_cosh, targets, log_cosh)


def dense_maps(matrix: str, *problem) -> dict[str, tuple[np.ndarray, list[float]]]:
    """By view, the map of a model, its data, a loss written out and names: every example's own matrix, and their mean;
    with each the traces of the mean's diagonal blocks. Of a loss that is a mean over examples that do not see one
    another, the batch has the mean of their matrices.
    """
    model, x, t, loss, names = problem
    own = [DENSE[matrix](model, x[b : b + 1], None if t is None else t[b : b + 1], loss, names) for b in range(len(x))]
    of_batch = [[torch.stack(each).mean(0) for each in zip(*rows, strict=True)] for rows in zip(*own, strict=True)]
    of_examples = torch.stack([frobenius_sq(blocks) for blocks in own]).mean(0)
    traces = [float(row[i].trace()) for i, row in enumerate(of_batch)]
    return {"example": (of_examples.cpu().numpy(), traces), "batch": (frobenius_sq(of_batch).cpu().numpy(), traces)}


def equals_dense(report, names: list[str], dense: tuple[np.ndarray, list[float]]) -> None:
    expected, traces = dense
    assert names
    assert sorted(names) == sorted(block.name for block in report.blocks)
    for block in report.blocks:
        i = names.index(block.name)
        assert block.avg_sq_singular_value == pytest.approx(expected[i, i] / block.numel, rel=1e-10, abs=1e-14)
        assert block.stderr == 0
        if report.matrix == "ggn" and block.products == 0:
            assert block.trace == pytest.approx(traces[i], rel=1e-10, abs=1e-14)
    order = [names.index(name) for name in report.heatmap.names]
    want = expected[order][:, order]
    np.testing.assert_allclose(report.heatmap.frobenius_sq, want, rtol=1e-10, atol=1e-12 * want.max())


def nu_of(losses, parameter: Tensor) -> float:
    found = [torch.autograd.grad(loss, parameter, retain_graph=True, allow_unused=True)[0] for loss in losses]
    weight_sq = float(parameter.detach().square().mean())
    return np.mean([0.0 if g is None else float(g.square().mean()) for g in found]) / weight_sq if weight_sq else np.nan


@pytest.mark.parametrize("network", BUILDERS)
def test_gauss_newton_blocks_equal_dense_ones_and_sketches_are_within_their_error(network: str, device: str) -> None:
    model, x = build(network, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    options, names = {"loss": loss, "mode": "eval"}, [block.name for block in hessdiag.describe(model, x).blocks]
    of_each = [plain(y, None) for y in model(x).split(1)]
    losses = {"example": of_each, "batch": [torch.stack(of_each).mean()]}
    for per, expected in dense_maps("ggn", model, x, t, plain, names).items():
        with unchanged(model, x):
            report = hessdiag.diagnose(model, x, t, per=per, signals=per == "example", **options)
        assert report.method == "exact"  # without being asked for
        equals_dense(report, names, expected)
        for block in report.blocks:
            nu = nu_of(losses[per], model.get_parameter(block.name))
            assert block.nu == pytest.approx(nu, rel=1e-10, nan_ok=True), block.name
        sketch = hessdiag.diagnose(model, x, t, method="sketch", per=per, **options, **PLAIN)
        assert sketch.method == "sketch"
        exact = report.heatmap.frobenius_sq
        off = np.abs(sketch.heatmap.frobenius_sq - exact)
        assert (off <= 5 * sketch.heatmap.stderr + 1e-9 * exact.max()).all()
        for a, b in zip(sketch.blocks, report.blocks, strict=True):
            gap = abs(a.avg_sq_singular_value - b.avg_sq_singular_value)
            assert gap <= 5 * a.stderr + 1e-9 * max(b.avg_sq_singular_value, 1e-12)


@pytest.mark.parametrize("network", BUILDERS)
def test_hessian_blocks_equal_dense_ones(network: str, device: str) -> None:
    """And, on the diagonal, Gauss-Newton blocks where the network is piecewise linear."""
    model, x = build(network, batch=2, device=device)
    loss, t, plain = loss_and_targets("random-quadratic", model(x).shape[1], len(x))
    options, names = {"loss": loss, "mode": "eval", **PLAIN}, [b.name for b in hessdiag.describe(model, x).blocks]
    for per, expected in dense_maps("hessian", model, x, t, plain, names).items():
        with unchanged(model, x):
            report = hessdiag.diagnose(model, x, t, matrix="hessian", method="exact", per=per, **options)
        equals_dense(report, names, expected)
        assert all((block.ended, block.products) == ("exact", block.numel) for block in report.blocks)
        if network in PIECEWISE_LINEAR:
            ggn = dense_maps("ggn", model, x, t, plain, names)[per][0]
            np.testing.assert_allclose(expected[0].diagonal(), ggn.diagonal(), rtol=1e-10)


@pytest.mark.parametrize("loss_name", LOSSES)
def test_every_loss(loss_name: str, device: str) -> None:
    """Both matrices by unit vectors: such an rtol makes them the cheaper way. Exact ones: diagnosis/test_losses.py."""
    model, x = build("mlp", batch=3, device=device)
    loss, t, plain = loss_and_targets(loss_name, 3, len(x))
    t, names = None if t is None else t.to(device), [name for name, _ in model.named_parameters()]
    for matrix in ("hessian", "ggn"):
        options = {"matrix": matrix, "method": "probe", "max_products": 10_000, "rtol": 1e-6, **PLAIN}
        for per, expected in dense_maps(matrix, model, x, t, plain, names).items():
            report = hessdiag.diagnose(model, x, t, loss=loss, per=per, **options)
            assert all(block.ended == "exact" for block in report.blocks)
            equals_dense(report, names, expected)


@pytest.mark.parametrize("examples_at_once", [1, 3])
def test_the_result_does_not_depend_on_the_chunks(examples_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = build("conv groups")
    for per in ("example", "batch"):
        whole = hessdiag.diagnose(model, x, per=per, **PLAIN)
        with monkeypatch.context() as patch:
            patch.setattr("hessdiag.network.trace.NetworkShape.chunk", lambda *_, **__: examples_at_once)
            pieces = hessdiag.diagnose(model, x, per=per, **PLAIN)
        np.testing.assert_allclose(pieces.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=1e-12)
        for a, b in zip(pieces.blocks, whole.blocks, strict=True):
            assert (a.gamma, a.nu) == pytest.approx((b.gamma, b.nu), rel=1e-12)


def wide(batch: int):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 20)).double()
    return model, torch.randn(batch, 20, dtype=torch.float64)


def test_the_budget_ends_the_sampling_one_example_is_a_batch_and_their_spread_is_no_error() -> None:
    model, x = wide(2)
    report = hessdiag.diagnose(model, x, matrix="hessian", rtol=1e-3, max_products=50)
    weight = report.weights[0]
    assert (weight.ended, weight.products) == ("budget", 50)
    assert weight.stderr > 1e-3 * weight.avg_sq_singular_value
    assert "standard errors up to 11.0 % (rtol 0.001 was asked for)" in report.text("whole")
    model, x = wide(1)
    options = {"matrix": "hessian", **PLAIN}
    own, mean = (hessdiag.diagnose(model, x, per=per, **options).heatmap for per in ("example", "batch"))
    np.testing.assert_allclose(own.frobenius_sq, mean.frobenius_sq, rtol=1e-10)
    value, stderr = hutchinson(np.array([[1.0, 1.0], [100.0, 100.0]])[..., None])
    assert (value[0], stderr[0]) == (50.5, 0.0)


@pytest.mark.parametrize("dense", [hessian_blocks, ggn_blocks])
@pytest.mark.parametrize("examples", [4, 1])
def test_95_percent_intervals_cover(dense: Callable[..., Blocks], examples: int) -> None:
    """Over 200 seeds at the default number of probes, of four examples and of their mean; blocks and map."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(9, 10), torch.nn.Tanh(), torch.nn.Linear(10, 8)).double()
    names, x, t = ["0.weight", "2.weight"], torch.randn(4, 9).double(), torch.randn(4, 8).double()
    parts = zip(x.split(4 // examples), t.split(4 // examples), strict=True)
    matrices = [dense(model, *part, F.mse_loss, names) for part in parts]
    exact = torch.stack([frobenius_sq(each) for each in matrices]).mean(dim=0).numpy()
    inside, count = [], probes_for(examples)
    for _ in range(200):
        columns = []
        for j in range(2):
            r = torch.randint(0, 2, (examples, matrices[0][j][j].shape[0], count)).double() * 2 - 1
            norms = [[(row[j] @ s).square().sum(dim=0) for row in H] for H, s in zip(matrices, r, strict=True)]
            columns.append(hutchinson(torch.stack([torch.stack(each, dim=1) for each in norms]).detach().numpy()))
        value, error = symmetrize(*(np.array(each).T for each in zip(*columns, strict=True)))
        inside.append(np.abs(value - exact) <= 1.96 * error)
    assert 0.9 <= np.mean(inside) <= 0.97
    assert 0.9 <= np.mean([np.diagonal(each) for each in inside]) <= 0.97


def test_a_second_stage_reaches_the_error_that_is_asked_for() -> None:
    model, x = wide(2)
    options = {"matrix": "hessian", **PLAIN}
    exact, found = (hessdiag.diagnose(model, x, **options, **o) for o in ({"method": "exact"}, {"rtol": 0.1}))
    for known, one in zip(exact.weights, found.weights, strict=True):
        assert one.ended == "rtol"
        assert one.products > probes_for(2)
        assert abs(one.avg_sq_singular_value - known.avg_sq_singular_value) <= 4 * one.stderr


@pytest.mark.parametrize("memory", [100_000, 2_000])  # few probes at a time; few examples of the batch
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probes_do_not_depend_on_the_chunks(per: str, memory: int) -> None:
    model, x = wide(2)
    problem, settings = problem_of(model, x, "mse"), Settings(matrix="hessian", per=per, max_products=16)
    whole, pieces = (measure_curvature(problem, settings, MemoryBudget(2**30, chunk)) for chunk in (2**26, memory))
    np.testing.assert_allclose(pieces.frobenius_sq, whole.frobenius_sq, rtol=1e-12)
