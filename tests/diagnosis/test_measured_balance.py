"""Prescriptions balanced in measured σ²: found on some set-ups, and checked on others."""

import math
from statistics import median

import pytest
import torch
from torch import nn
from zoo_networks import NETWORKS

import hessdiag
from hessdiag.calculus.prescription import Prescription, apply_prescription, prescribe
from hessdiag.diagnosis.measured_balance import balance_curvature
from hessdiag.diagnosis.random_setups import RandomSetups
from hessdiag.execution.seeds import stream
from hessdiag.loading.factory import factory_source
from hessdiag.user_code.named_function import NamedFunction


def planned(make, size, *, setups):
    source = factory_source(NamedFunction("model", "zoo", make), arguments={}, input_size=size)
    return RandomSetups(source=source, setups=setups, batch_size=8, options={"noise_scale": False})


@pytest.fixture(scope="module")
def balanced():
    make, size = NETWORKS["weighted residual"]
    plain = prescribe(make(), size)
    return make, size, plain, balance_curvature(plain, planned(make, size, setups=5))


def test_the_measured_spread_falls_on_set_ups_that_it_was_not_found_on(balanced):
    _, _, _, found = balanced
    assert max(x.curvature_before for x in found.layers) > 100 * min(x.curvature_before for x in found.layers)
    assert max(x.curvature for x in found.layers) < 3 * min(x.curvature for x in found.layers)


def test_signals_stay_and_gamma_follows_by_the_fourth_power(balanced):
    _, _, plain, found = balanced
    for old, new in zip(plain.layers, found.layers, strict=True):
        assert new.weight_sq * new.multiplier**2 == pytest.approx(old.weight_sq * old.multiplier**2)
        assert new.gamma / old.gamma == pytest.approx((old.weight_sq / new.weight_sq) ** 2)
        assert new.out_sq == old.out_sq


def test_the_prescribed_network_is_what_was_measured(balanced):
    make, size, plain, found = balanced
    torch.manual_seed(0)
    a = apply_prescription(make(), plain, generator=torch.Generator().manual_seed(3))
    b = apply_prescription(make(), found, generator=torch.Generator().manual_seed(3))
    x = torch.randn(4, *size)
    torch.testing.assert_close(a(x), b(x), rtol=1e-3, atol=1e-3)
    assert Prescription.from_json(found.to_json()) == found
    assert "spread of measured σ²" in repr(found)


def test_a_chain_of_two_numbers_gets_what_the_closed_form_says():
    # y = w₂ w₁ x: σ² of w₁ over the geometric mean of both is (w₂/w₁)², so that s₁⁴ is its median over the set-ups
    def make():
        return nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))

    plain = prescribe(make(), (1,), moments="paper")
    ratios = []
    for seed in range(3):
        drawn = apply_prescription(make(), plain, generator=stream(seed, "prescription"))
        first, second = (weight.item() for weight in drawn.parameters())
        ratios.append((second / first) ** 2)
    found = balance_curvature(plain, planned(make, (1,), setups=3))
    factor = median(ratios) ** 0.25
    assert found.layers[0].weight_sq == pytest.approx(plain.layers[0].weight_sq * factor**2, rel=1e-4)
    assert found.layers[1].weight_sq == pytest.approx(plain.layers[1].weight_sq / factor**2, rel=1e-4)
    assert found.layers[0].multiplier == pytest.approx(plain.layers[0].multiplier / factor, rel=1e-4)


def test_without_measuring_nothing_is_measured():
    make, size = NETWORKS["mlp"]
    plain = prescribe(make(), size)
    assert (plain.balance, plain.setups) == ("gamma", 0)
    assert all(math.isnan(layer.curvature) for layer in plain.layers)
    assert "σ²" not in repr(plain)
    assert hessdiag.calculus.prescribe is prescribe
