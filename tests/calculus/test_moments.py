"""Moments of nonlinearities and of weights."""

import math

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from hessdiag import init
from hessdiag.calculus.moments import Nonlinearity, correlate, leaky_relu, respond, respond_of_largest, weight_moments
from tests.networks import Net, two_paths

RELU = leaky_relu(0.0)
FUNCTIONS = {"relu": RELU, "identity": leaky_relu(1.0), "tanh": Nonlinearity("tanh", torch.tanh),
             "gelu": Nonlinearity("gelu", F.gelu)}  # fmt: skip
SAMPLES = 400_000


def _pairs(rho, mean, seed=0):
    """Two Gaussians with E[x²] = 1, of which `mean` is the square of the mean, and E[x x'] = rho."""
    torch.manual_seed(seed)
    shared, a, b = torch.randn(3, SAMPLES, dtype=torch.float64)
    common = math.sqrt(mean) + math.sqrt(rho - mean) * shared
    return common + math.sqrt(1 - rho) * a, common + math.sqrt(1 - rho) * b


@pytest.mark.parametrize("rho", [0.0, 0.9, 1.0])
def test_the_closed_form_of_the_relu_agrees_with_the_integral(rho):
    integral = correlate(Nonlinearity("a function like any other", F.relu), 1.0, 0.0, rho)
    assert correlate(RELU, 1.0, 0.0, rho) == pytest.approx(integral, abs=5e-3)
    assert respond(RELU, 3.0, 0.0).sq == 1.5
    assert all(map(math.isnan, correlate(RELU, 1.0, 0.0, math.nan)))


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize(("rho", "mean"), [(0.6, 0.0), (0.5, 0.3)])
def test_moments_and_correlations_by_simulation(name, rho, mean):
    phi = FUNCTIONS[name]
    a, b = _pairs(rho, mean)
    ya, yb, da, db = phi.function(a), phi.function(b), phi.derivative(a), phi.derivative(b)
    found, (together, slopes, leaning) = respond(phi, 1.0, mean), correlate(phi, 1.0, mean, rho)
    assert found.sq == pytest.approx(float(ya.square().mean()), rel=0.01)
    assert found.mean_sq == pytest.approx(float(ya.mean()) ** 2, rel=0.01, abs=2e-4)
    assert found.slope_sq == pytest.approx(float(da.square().mean()), rel=0.01)
    assert together == pytest.approx(float((ya * yb).mean() / ya.square().mean()), abs=0.01)
    assert slopes == pytest.approx(float((da * db).mean() / da.square().mean()), abs=0.01)
    assert leaning == pytest.approx(float((a * da * b * db).mean() / da.square().mean()), abs=0.01)


@pytest.mark.parametrize("name", ["identity", "relu"])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_largest_of_nine_by_simulation(name, rho):
    phi = FUNCTIONS[name]
    torch.manual_seed(1)
    shared = math.sqrt(rho) * torch.randn(40_000, 1, 1, dtype=torch.float64)
    x = shared + math.sqrt(1 - rho) * torch.randn(40_000, 2, 9, dtype=torch.float64)
    largest = x.amax(-1)  # (samples, 2)
    y = phi.function(largest)
    sq, sites, steeper, leaning = respond_of_largest(phi, 0.0, rho, 9)
    usual, slopes = respond(phi, 1.0, 0.0), phi.derivative(largest)
    product = (largest * slopes).prod(-1).mean() / slopes.square().mean()
    assert leaning == pytest.approx(float(product), rel=0.05)
    assert sq == pytest.approx(float(y.square().mean()) / usual.sq, rel=0.02)
    assert sites == pytest.approx(float((y[:, 0] * y[:, 1]).mean() / y.square().mean()), abs=0.02)
    assert steeper == pytest.approx(float(slopes.square().mean()) / usual.slope_sq, rel=0.02)


def _model():
    return nn.Sequential(nn.Conv2d(8, 32, 5, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(512, 300), nn.LayerNorm(300))


@pytest.mark.parametrize("scheme", [*init.SCHEMES, *init.VARIANTS])
def test_formulas_are_what_the_initialisations_draw(scheme):
    model = init.apply(_model(), scheme, generator=torch.Generator().manual_seed(0))
    expected = weight_moments(_model(), init=scheme).sq
    for name in ("0.weight", "3.weight"):
        drawn = float(model.get_parameter(name).detach().square().mean())
        assert expected[name] == pytest.approx(drawn, rel=0.06)
    assert expected["3.bias"] == 0.0


def test_defaults_of_pytorch_on_the_meta_device_and_two_names_of_one_weight() -> None:
    real, known = _model(), weight_moments(_model())
    with torch.device("meta"):
        formula = weight_moments(_model())
    assert formula.source == "PyTorch's defaults, by formula"
    assert known.source == "the weights as they are"
    for name, parameter in real.named_parameters():
        assert formula.sq[name] == pytest.approx(float(parameter.detach().square().mean()), rel=0.25), name
    moments = weight_moments(two_paths())
    assert moments.names["alias.weight"] == "layer.weight"


def test_a_model_on_the_meta_device_is_told_what_it_draws_itself() -> None:
    """GPT-2 divides by the root of its depth; a class token is no layer; torch's random state stays as it was."""
    gpt = transformers.GPT2Config(n_embd=64, n_layer=8, n_head=2, vocab_size=99, n_positions=32)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96}
    vit = transformers.ViTConfig(image_size=8, patch_size=4, **sizes)
    for kind, config in ((transformers.GPT2LMHeadModel, gpt), (transformers.ViTForImageClassification, vit)):
        real, before = weight_moments(kind(config)).sq, torch.get_rng_state()
        with torch.device("meta"):
            told = weight_moments(kind(config))
        assert torch.equal(torch.get_rng_state(), before)
        assert told.source == "one layer of each kind, drawn as the model does"
        assert told.sq == pytest.approx(real, rel=0.4)
    assert "vit.embeddings.cls_token" in told.sq


def test_an_initialisation_that_takes_no_module_is_not_called_with_one() -> None:
    rule = lambda m, x: m.layer(x)  # noqa: E731
    with torch.device("meta"):
        model = Net(rule, layer=nn.Linear(3, 4), _init_weights=lambda: None)
    assert weight_moments(model).source == "PyTorch's defaults, by formula"
    assert weight_moments(model).sq["layer.weight"] == pytest.approx(1 / 9)
