"""Sketched blocks against exact ones on networks where both run, and the coverage of their error bars."""

import numpy as np
import pytest
import torch
from torch import nn

import hessdiag
from tests.networks import BUILDERS, build


def deep_relu(outputs: int = 40):
    """Low effective rank: everything ends up along one direction."""
    layers = [nn.Linear(20, 30), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(30, 30), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(30, outputs)).double()
    return hessdiag.init.apply(model, "fan-in"), torch.randn(3, 20, dtype=torch.float64)


def linear(outputs: int = 40):
    """High effective rank."""
    return nn.Sequential(nn.Linear(60, 50), nn.Linear(50, outputs)).double(), torch.randn(3, 60, dtype=torch.float64)


def loss_options(loss: str, batch: int, outputs: int):
    targets = {"random-quadratic": None, "mse": torch.randn(batch, outputs).double()}
    return {"loss": loss, "targets": targets.get(loss, torch.randint(outputs, (batch,)))}


@pytest.mark.parametrize("loss", ["random-quadratic", "cross-entropy", "mse"])
@pytest.mark.parametrize("network", [deep_relu, linear])
def test_sketched_values_are_within_four_standard_errors(network, loss: str) -> None:
    model, x = network()
    options = loss_options(loss, 3, 40)
    exact = hessdiag.diagnose(model, x, method="exact", **options)
    report = hessdiag.diagnose(model, x, method="sketch", **options)
    assert report.method == "sketch"
    error = np.abs(report.heatmap.frobenius_sq - exact.heatmap.frobenius_sq)
    assert (error <= 4 * report.heatmap.stderr + 1e-9 * exact.heatmap.frobenius_sq).all()
    for sketched, known in zip(report.blocks, exact.blocks, strict=True):
        gap = abs(sketched.avg_sq_singular_value - known.avg_sq_singular_value)
        assert gap <= 4 * sketched.stderr + 1e-9 * known.avg_sq_singular_value
        if sketched.kind == "weight":
            assert sketched.ended == "rtol"
            assert sketched.stderr <= 0.05 * sketched.avg_sq_singular_value


@pytest.mark.parametrize("network", BUILDERS)
def test_every_network_is_sketched(network: str) -> None:
    model, x = build(network)
    exact = hessdiag.diagnose(model, x, method="exact").heatmap
    sketched = hessdiag.diagnose(model, x, method="sketch", max_products=60).heatmap
    off = np.abs(sketched.frobenius_sq - exact.frobenius_sq)
    assert (off <= 5 * sketched.stderr + 1e-9 * exact.frobenius_sq.max()).all()


def test_the_pilot_decides_for_deflation_where_the_rank_is_low() -> None:
    for network, word in ((deep_relu, "deflated"), (linear, "plain")):
        model, x = network()
        report = hessdiag.diagnose(model, x, **loss_options("mse", 3, 40), method="sketch")
        assert word in report.method_reason


def test_deflation_is_sharper_where_the_rank_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = deep_relu()
    options = {**loss_options("cross-entropy", 3, 40), "method": "sketch", "max_products": 60}
    deflated = hessdiag.diagnose(model, x, **options).weights[0]
    monkeypatch.setattr("hessdiag.curvature.sketch.LOW_RANK", 0.0)
    plain = hessdiag.diagnose(model, x, **options).weights[0]
    assert plain.ended == "budget"
    assert deflated.ended == "rtol"
    assert 4 * deflated.stderr < plain.stderr


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_95_percent_intervals_cover(loss: str) -> None:
    """Over blocks, seeds and both regimes together, at the budget that the tool itself picks."""
    covered = trials = 0
    for network in (deep_relu, linear):
        torch.manual_seed(0)
        model, x = network()
        options = {**loss_options(loss, 3, 40), "noise_scale": False}
        exact = hessdiag.diagnose(model, x, method="exact", **options)
        for seed in range(125):
            report = hessdiag.diagnose(model, x, method="sketch", seed=seed, **options)
            for sketched, known in zip(report.weights, exact.weights, strict=True):
                gap = abs(sketched.avg_sq_singular_value - known.avg_sq_singular_value)
                covered += gap <= 1.96 * sketched.stderr + 1e-9 * known.avg_sq_singular_value
                trials += 1
    assert trials >= 500
    assert 0.92 <= covered / trials <= 0.98


def test_sketches_of_a_batch_or_a_hessian_are_refused() -> None:
    model, x = build("mlp")
    for options in ({"per": "batch"}, {"matrix": "hessian"}):
        with pytest.raises(hessdiag.HessdiagError, match="method 'sketch' is for the Gauss-Newton matrix of each"):
            hessdiag.diagnose(model, x, method="sketch", **options)


def test_many_outputs_are_sketched_without_being_asked_for() -> None:
    model, x = linear(outputs=200)
    assert hessdiag.diagnose(model, x).method == "sketch"
