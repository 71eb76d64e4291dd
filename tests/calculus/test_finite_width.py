"""The predicted spread over initialisations against simulated networks, and its closed form for one layer."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from hessdiag.calculus import predict
from hessdiag.calculus.finite_width import QUANTILE
from hessdiag.diagnosis.random_setups import measure_setups
from hessdiag.loading.models import resolve_model
from hessdiag.models.feedforward import mlp
from tests.networks import Net


def _deviation(block):
    return math.log(block.gamma_high / block.gamma_low) / (2 * QUANTILE)


def test_one_linear_layer_and_one_example():
    # γ = n E[x²]² E[Δ²] / E[y²] with Δ = S y: the loss alone fluctuates, by (8 N + 24) / (2 N + 2)²
    N = 12
    (block,) = predict(nn.Sequential(nn.Linear(7, N, bias=False)), (7,), init="fan-in", batch_size=1).blocks
    assert _deviation(block) ** 2 == pytest.approx((8 * N + 24) / (2 * N + 2) ** 2)


def test_hanins_sum_over_widths_forward():
    # for one example the last layer's x² carries 5 / n of every ReLU layer, and γ is quadratic in it
    widths = [50, 40, 80, 10]
    last = predict(mlp(widths, bias=False), (50,), init="fan-in", batch_size=1).blocks[-1]
    N = 10
    expected = (2**2) * (5 / 40 + 5 / 80) + (8 * N + 24) / (2 * N + 2) ** 2
    assert _deviation(last) ** 2 == pytest.approx(expected, rel=1e-6)


def test_the_spread_of_an_mlp_by_simulation():
    setups = measure_setups(resolve_model("mlp:20-30-20-5"), setups=40, batch_size=4, init="fan-in")
    prediction = predict(mlp([20, 30, 20, 5]), (20,), init="fan-in", batch_size=4)
    measured = np.log(setups.columns["gamma"]).std(axis=0)
    predicted = [_deviation(block) for block in prediction.weights]
    assert predicted == pytest.approx(measured.tolist(), rel=0.3)


def test_branches_average_out():
    def added(count):
        rule = lambda m, x: m.last(torch.relu(sum(layer(x) for layer in m.layers)))  # noqa: E731
        layers = nn.ModuleList(nn.Linear(30, 10, bias=False) for _ in range(count))
        return Net(rule, layers=layers, last=nn.Linear(10, 400, bias=False))

    one, many = (predict(added(count), (30,), init="fan-in", batch_size=1).block("last.weight") for count in (1, 8))
    assert _deviation(many) < _deviation(one)
