"""Scales found from measurements: closed forms, the same function, the same training, and what is left out."""

import copy
import json
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from zoo_networks import NETWORKS

import hessdiag
from hessdiag import init
from tests.networks import Net, build
from tests.unchanged import unchanged

SIGMA_SQ = "avg_sq_singular_value"


def residual(*, w1: float, w2: float, v: float, beta: float) -> nn.Module:
    """y = v h, h = x + β w₂ w₁ x, all numbers; by squared error G is 2 h² of v, 2 (v β w₂ x)² of w₁, and so on."""
    layers = {name: nn.Linear(1, 1, bias=False).double() for name in ("first", "second", "last")}
    for layer, value in zip(layers.values(), (w1, w2, v), strict=True):
        nn.init.constant_(layer.weight, value)
    return Net(lambda m, x: m.last(x + beta * m.second(m.first(x))), **layers)


def bypassed() -> nn.Module:
    rule = lambda m, x: m.last(torch.tanh(m.second(torch.tanh(F.linear(x, m.first.weight)))))  # noqa: E731
    return Net(rule, first=nn.Linear(3, 4), second=nn.Linear(4, 9), last=nn.Linear(9, 2))


def mlp() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)]
    model = nn.Sequential(*layers).double()
    model[0].weight.data.mul_(3)
    model[6].weight.data.mul_(0.1)
    return model, torch.randn(16, 6).double(), torch.randint(3, (16,))


def spread_of(model: nn.Module, *data: Any, **options: Any) -> float:
    return hessdiag.diagnose(model, *data, **options).spread[SIGMA_SQ]


def test_a_chain_of_two_numbers_gets_weights_of_equal_size() -> None:
    # y = w₂ w₁ x: σ² of w₁ is (2 w₂² x²)², so that s₁ = √(w₂/w₁), and both weights become √(w₁ w₂)
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    model[0].weight.data.fill_(0.5)
    model[1].weight.data.fill_(8.0)
    x = torch.full((1, 1), 3.0).double()
    found = hessdiag.prescribe(model, x, torch.zeros_like(x), loss="mse")
    assert [block.avg_sq_singular_value_before for block in found.blocks] == pytest.approx([1152.0**2, 4.5**2])
    assert [block.weight_factor for block in found.blocks] == pytest.approx([4.0, 0.25])
    assert [block.avg_sq_singular_value for block in found.blocks] == pytest.approx([(2 * 4 * 9) ** 2] * 2)
    found.apply(model)
    assert [model[i].weight.item() for i in (0, 1)] == pytest.approx([2.0, 2.0])
    assert model(x).item() == pytest.approx(12.0)


def test_a_residual_pair_gets_what_the_closed_form_says() -> None:
    model, x = residual(w1=0.5, w2=2.0, v=0.7, beta=0.3), torch.full((1, 1), 1.5).double()
    h = 1.5 * (1 + 0.3 * 0.5 * 2.0)
    slopes = {"first": 0.7 * 0.3 * 2.0 * 1.5, "second": 0.7 * 0.3 * 0.5 * 1.5, "last": h}
    expected = {f"{name}.weight": (2 * slope**2) ** 2 for name, slope in slopes.items()}
    level = math.prod(expected.values()) ** (1 / 3)
    found = hessdiag.prescribe(model, x, torch.zeros_like(x), loss="mse")
    for block in found.blocks:
        assert block.avg_sq_singular_value_before == pytest.approx(expected[block.name])
        assert block.weight_factor == pytest.approx((expected[block.name] / level) ** 0.25)
        assert block.avg_sq_singular_value == pytest.approx(level)
    assert found.sampling_error == 0
    assert "sampled" not in repr(found)


def test_unnormalised_residual_networks_are_balanced_and_compute_the_same() -> None:
    make, size = NETWORKS["weighted residual"]
    model, x = init.apply(make(), "fan-in"), torch.randn(2, *size)
    found = hessdiag.prescribe(model, x)
    assert found.spread_before[SIGMA_SQ] > 100
    assert found.spread[SIGMA_SQ] < 1.01
    assert found.left_out == ()
    before = model(x)
    torch.testing.assert_close(found.apply(model)(x), before, rtol=1e-4, atol=1e-4)
    assert spread_of(model, x) < 1.01


@pytest.mark.parametrize("name", ["conv groups", "called twice", "two paths", "frozen", "lstm", "attention"])
def test_networks_of_all_kinds_compute_the_same_and_come_back_unchanged(name: str) -> None:
    model, x = build(name)
    x = x[:3]
    with unchanged(model, x):
        found = hessdiag.prescribe(model, x)
    assert found.spread[SIGMA_SQ] < 1.5
    named = [*(block.name for block in found.blocks), *dict(found.left_out)]
    assert sorted(named) == sorted(block.name for block in hessdiag.diagnose(model, x).weights)
    scaled = found.apply(copy.deepcopy(model))
    torch.testing.assert_close(scaled(x), model(x), rtol=1e-10, atol=1e-12)
    after = hessdiag.diagnose(scaled, x)
    for block in found.blocks:
        assert after[block.name].avg_sq_singular_value == pytest.approx(block.avg_sq_singular_value, rel=1e-9)
        expected = block.avg_sq_singular_value_before * block.weight_factor**-4
        assert block.avg_sq_singular_value == pytest.approx(expected, rel=1e-9)


def test_a_language_model_with_tied_embeddings_computes_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**sizes, **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0))
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.randint(20, (3, 6))
    found = hessdiag.prescribe(model, {"input_ids": tokens}, tokens, loss="cross-entropy", class_dim=-1)
    assert {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"} <= {block.name for block in found.blocks}
    assert found.spread[SIGMA_SQ] < 1.5
    before = model(tokens).logits
    torch.testing.assert_close(found.apply(model)(tokens).logits, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("power", "make"), [
    (-2, lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9)),
    (-1, lambda groups: torch.optim.Adam(groups, lr=0.01, eps=1e-30)),  # an eps beside the gradients sees the scale
])  # fmt: skip
def test_scales_train_like_learning_rates_multiplied_by_a_power(power: int, make, found) -> None:
    model, x, y = mlp()
    scaled = found.apply(copy.deepcopy(model))
    plain, lr = make(scaled.parameters()), make(model.parameters()).defaults["lr"]
    factors = {block.name: block.weight_factor**power for block in found.blocks}
    grouped = make([{"params": [p], "lr": lr * factors.get(name, 1.0)} for name, p in model.named_parameters()])
    for _ in range(8):
        for network, steps in ((model, grouped), (scaled, plain)):
            steps.zero_grad()
            F.cross_entropy(network(x), y).backward()
            steps.step()
    torch.testing.assert_close(model(x), scaled(x), rtol=1e-8, atol=1e-8)
    start, _, _ = mlp()
    assert (start(x) - model(x)).abs().max().item() > 0.05  # it did train


@pytest.fixture(scope="module")
def found() -> hessdiag.Prescription:
    model, x, y = mlp()
    return hessdiag.prescribe(model, x, y, loss="cross-entropy")


def test_code_does_what_apply_does_for_the_measured_network_and_no_other(found: hessdiag.Prescription) -> None:
    model, x, y = mlp()
    other = found.apply(copy.deepcopy(model))
    assert spread_of(model, x, y, loss="cross-entropy") > 50
    exec(found.code, {"model": model})
    assert spread_of(model, x, y, loss="cross-entropy") < 1.01
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=0)
    assert hessdiag.Prescription.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["code"] == found.code
    other = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 7))
    told = r"'2\.weight' of shape \(5, 12\): pass the measured model"
    with unchanged(other), pytest.raises(hessdiag.HessdiagError, match=told):
        found.apply(other)


def left_out(model: nn.Module, reason: str, *names: str) -> hessdiag.Prescription:
    """Prescribe scales for a network that reads (8, n), and check which weights are left out, and why."""
    found = hessdiag.prescribe(model, torch.randn(8, next(model.parameters()).shape[1]))
    assert dict(found.left_out) == dict.fromkeys(names, reason)
    weights = {name for name, p in model.named_parameters() if p.dim() > 1}
    assert {block.name for block in found.blocks} == weights - set(names)
    return found


def test_weights_without_effect_or_curvature_or_read_elsewhere_are_left_out() -> None:
    normed = nn.Sequential(nn.Linear(6, 8, bias=False), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))
    left_out(normed, "a normalisation follows: the network does not depend on its scale", "0.weight")
    flat = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    nn.init.zeros_(flat[4].weight)
    found = left_out(flat, "its σ² is zero on this batch, undefined, or lost in sampling noise", "0.weight", "2.weight")
    assert [block.weight_factor for block in found.blocks] == [1.0]
    left_out(bypassed(), "the model reads it outside of the layer that holds it", "first.weight")


def test_what_no_multiplier_can_undo_is_left_out_and_sets_the_level() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3))
    found = hessdiag.prescribe(model, torch.randn(6, 3, 8))
    reasons = dict(found.left_out)
    assert "no multiplier makes up for a factor on the in_proj_weight" in reasons["0.self_attn.in_proj_weight"]
    assert "never called" in reasons["0.self_attn.out_proj.weight"]
    report = hessdiag.diagnose(model, torch.randn(6, 3, 8))
    assert {block.name for block in found.blocks} | set(reasons) == {block.name for block in report.weights}
    assert found.spread[SIGMA_SQ] < 1.01


def test_several_batches_are_measured_as_one_network_with_options_of_diagnose(found: hessdiag.Prescription) -> None:
    model, x, y = mlp()
    parts = hessdiag.prescribe(model, ((x[i : i + 8], y[i : i + 8]) for i in (0, 8)), loss="cross-entropy")
    assert parts.batch_size == 16
    for a, b in zip(found.blocks, parts.blocks, strict=True):
        assert a.weight_factor == pytest.approx(b.weight_factor, rel=1e-9)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'quick'"):
        hessdiag.prescribe(model, x, y, quick=True)


def test_sampled_curvatures_are_balanced_within_their_noise() -> None:
    layers = [nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 8)]
    model, x = nn.Sequential(*layers), torch.randn(8, 6)
    found = hessdiag.prescribe(model, x, method="sketch", rtol=0.02)
    assert found.spread_before[SIGMA_SQ] > 3
    assert 0 < found.sampling_error < 0.05
    assert "σ² is sampled" in repr(found)
    assert spread_of(found.apply(model), x, method="exact") < 1.3
