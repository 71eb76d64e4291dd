"""Moments of nonlinearities and of weights."""

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.utils._pytree import tree_leaves

import hessdiag
from hessdiag import init
from hessdiag.calculus import moments
from hessdiag.calculus.graph import trace_graph
from hessdiag.calculus.moments import Nonlinearity, correlate, leaky_relu, respond, weight_moments
from tests.kinds import KINDS, REFUSED
from tests.networks import Net, two_paths
from tests.oracles import values_of

RELU = leaky_relu(0.0)
FUNCTIONS = {"relu": RELU, "identity": leaky_relu(1.0), "tanh": Nonlinearity("tanh", torch.tanh),
             "gelu": Nonlinearity("gelu", F.gelu)}  # fmt: skip
SAMPLES = 400_000


def _pairs(rho, mean):
    """Two Gaussians with E[x²] = 1, of which `mean` is the square of the mean, and E[x x'] = rho."""
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
    sq, sites, steeper, leaning = moments.respond_of_largest(phi, 0.0, rho, 9)
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
    assert weight_moments(two_paths()).names["alias.weight"] == "layer.weight"


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
    with torch.device("meta"):
        model = Net(lambda m, x: m.layer(x), layer=nn.Linear(3, 4), _init_weights=lambda: None)
    assert weight_moments(model).source == "PyTorch's defaults, by formula"
    assert weight_moments(model).sq["layer.weight"] == pytest.approx(1 / 9)


REFUSES = "moves,packed sequence,branches,branches on the batch,physics informed,lazy,no outputs,compiled by torch.jit"


@pytest.mark.parametrize("name", [*KINDS, *REFUSED])
def test_every_kind_of_network_is_predicted_as_far_as_rules_go_or_refused(name):
    kind = KINDS.get(name) or REFUSED[name][0]
    model = kind.make().double()
    with pytest.raises(hessdiag.HessdiagError) if name in REFUSES.split(",") else nullcontext():
        found = hessdiag.predict(model, kind.inputs(), loss="mse")
        assert {b.name for b in found.blocks} | dict(found.skipped).keys() == {n for n, _ in model.named_parameters()}
        args, kwargs, _ = moments.example_inputs(model, kind.inputs())
        graph = trace_graph(model, args, kwargs)
        assert graph.batch == len(tree_leaves((args, kwargs))[0])
        assert set(graph.parameters.values()) <= {n for n, _ in model.named_parameters(remove_duplicate=False)}
        assert graph.operations


def test_operations_know_their_place():
    graph = trace_graph(nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2))), (torch.zeros(2, 3),))
    assert [(o.target, o.place, o.layer, o.shape) for o in graph.operations] == [
        ("aten.linear", "0", "Linear", (2, 4)), ("aten.tanh", "1.0", "Tanh", (2, 4)),
        ("aten.linear", "1.1", "Linear", (2, 2)),
    ]  # fmt: skip


def test_what_cannot_be_traced_is_refused_in_one_line_and_a_slice_written_in_place_named() -> None:
    with pytest.raises(hessdiag.HessdiagError, match=r"cannot trace Net with torch\.export") as caught:
        trace_graph(Net(lambda m, x: x if x.sum() > 0 else -x), (torch.ones(2, 3),))
    assert "\n" not in str(caught.value)
    with pytest.raises(hessdiag.HessdiagError):
        trace_graph(writes(lambda y: {"text": "no tensor"}), (torch.ones(2, 4),))

    def write(y):
        out = y.clone()
        out[:, :2] = 0
        return out

    ((place, _),) = hessdiag.predict(writes(write), (4,)).unsupported
    assert "aten.fill" in place


def writes(write):
    return Net(lambda m, x: write(m.layer(x)), layer=nn.Linear(4, 4, bias=False))


def _halved_through_a_view(y):
    y.view(-1).mul_(0.5)  # the result is never read
    return y


@pytest.mark.parametrize(("write", "where"), [(lambda y: y.mul_(0.5), "meta"), (_halved_through_a_view, "cpu")])
def test_what_is_written_in_place_is_read_afterwards(write, where):
    with torch.device(where):
        model = nn.Sequential(writes(write), nn.Linear(4, 3, bias=False))
    first, last = hessdiag.predict(model, (4,), init="fan-in").blocks
    assert last.x_sq == pytest.approx(first.out_sq / 4)
    graph = trace_graph(model, (torch.zeros(2, 4, device=where),))
    assert not any(operation.target.endswith("_") for operation in graph.operations)
    assert {operation.place for operation in graph.operations} == {"0.layer", "0", "1"}


def test_a_model_that_writes_to_its_inputs_and_buffers():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout1d(0.5)).train()
    graph = trace_graph(model, (torch.zeros(2, 4),))
    assert [each.place for each in graph.operations if each.name == graph.output.name] == ["3"]
    copied = nn.Sequential(nn.ReLU(), *list(model)[1:]).train()  # nothing is written to but counters
    found, plain = (hessdiag.predict(each, (4,), init="fan-in", moments="kernel") for each in (model, copied))
    assert values_of(found, "gamma") == pytest.approx(values_of(plain, "gamma"), rel=1e-12)


def test_both_vocabularies_give_the_same_prediction():
    """The layers that torch takes apart where something is written in place."""

    def build(inplace):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=inplace), nn.Dropout(0.2), nn.Dropout2d(0.3),
            nn.Conv2d(8, 8, 3, groups=2, padding="same"), nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.PixelShuffle(2),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.LayerNorm(18), nn.GELU(), nn.Unflatten(1, (2, 9)),
            nn.Linear(9, 4), nn.PReLU(), nn.Flatten(), nn.Linear(8, 3),
        )  # fmt: skip

    with torch.device("meta"):
        models = [build(inplace) for inplace in (True, False)]
    apart, whole = (hessdiag.predict(model, (3, 10, 10), init="fan-in") for model in models)
    assert not apart.unsupported
    assert values_of(apart, "gamma") == pytest.approx(values_of(whole, "gamma"), rel=1e-12, nan_ok=True)
