import copy
import json
import math
from dataclasses import fields
from statistics import mean

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from zoo_networks import NETWORKS

import hessdiag
from hessdiag import init
from hessdiag.calculus import BlockPrediction, PredictedVsMeasured, predict
from hessdiag.models.feedforward import StridedLeNet, mlp
from tests.networks import PIECEWISE_LINEAR, PLAIN, Net, build

WITHOUT_RULE = ("conv transpose", "conv transpose 1d", "conv transpose 3d", "adaptive max pooled")


def _reports(make, size, *, setups, batch=8):
    reports = []
    for seed in range(setups):
        torch.manual_seed(seed)
        reports.append(hessdiag.diagnose(init.apply(make(), "fan-in"), torch.randn(batch, *size), seed=seed, **PLAIN))
    return reports


def _gammas(weights, x, R):
    """γ of the layers of one LeNet by their formula: n k² ρ² E[x²]² E[Δ²] / E[y²]."""

    def loss(shifts):
        squares, read = [], x
        for weight, shift in zip(weights, shifts, strict=True):
            y = (F.conv2d(read, weight, stride=2) if weight.dim() == 4 else F.linear(read.flatten(1), weight)) + shift
            squares.append((read.square().mean(), y.square().mean()))
            read = y.relu()
        return ((y @ R) * y).sum(), squares

    shapes = ((6, 14, 14), (16, 5, 5), (120,), (84,), (10,))
    deltas, squares = torch.func.grad(loss, has_aux=True)(tuple(torch.zeros(len(x), *shape) for shape in shapes))
    counts = [w[0].numel() * math.prod(shape[1:]) for w, shape in zip(weights, shapes, strict=True)]
    parts = zip(counts, deltas, squares, strict=True)
    return torch.stack([n * x_sq**2 * delta.square().mean() / y_sq for n, delta, (x_sq, y_sq) in parts])


def test_lenet_over_set_ups():
    count, batch = 200, 8
    networks = [init.apply(StridedLeNet(), "geometric") for _ in range(count)]
    weights = [torch.stack(each).detach() for each in zip(*(n.parameters() for n in networks), strict=True)]
    x, R = torch.randn(count, batch, 3, 32, 32), torch.randn(count, 10, 10)
    measured = torch.func.vmap(_gammas, chunk_size=50)(weights, x, R).numpy()
    for moments in ("paper", "kernel"):  # γ is skewed: the mean over networks is above the median
        found = predict(StridedLeNet(), (3, 32, 32), init="geometric", moments=moments)
        gamma = np.array([block.gamma for block in found.blocks])
        assert (np.abs(np.log(gamma / measured.mean(axis=0))) < np.log(1.2)).all()
        assert (np.abs(np.log(gamma / np.median(measured, axis=0))) < np.log(1.4)).all()


@pytest.mark.parametrize("scheme", ["fan-in", "fan-out", "arithmetic"])
def test_lenet_under_other_initialisations(scheme):
    # ReLU networks are homogeneous: weights s times as large multiply γ of the others by known powers of s
    usual, other = (predict(StridedLeNet(), (3, 32, 32), init=name) for name in ("geometric", scheme))
    growth = [b.weight_sq / a.weight_sq for a, b in zip(usual.blocks, other.blocks, strict=True)]
    for a, b, own in zip(usual.blocks, other.blocks, growth, strict=True):
        assert b.gamma / a.gamma == pytest.approx((np.prod(growth) / own) ** 2)


@pytest.mark.parametrize("name", ["padded cnn", "mixed kernels", "tanh"])
def test_a_part_of_the_zoo(name):
    make, size = NETWORKS[name]
    beside = PredictedVsMeasured.of(predict(make(), size, init="fan-in"), _reports(make, size, setups=12, batch=4))
    assert beside.error() < 0.5  # the mean of 12 trials is itself uncertain by about 0.3
    assert beside.error("avg_sq_singular_value") < 0.5


def test_inputs_lean_towards_the_weights_where_gradients_of_all_positions_agree():
    # what a ReLU or a max pooling lets pass goes with x: σ² of the first kernel is 9 times what independence gives
    size = (3, 24, 24)

    def make():
        first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        pooled = (nn.MaxPool2d(2), second, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(first, nn.ReLU(), *pooled, nn.Linear(16, 4))

    beside = PredictedVsMeasured.of(predict(make(), size, init="fan-in"), _reports(make, size, setups=24, batch=4))
    for block in beside.prediction.weights:
        assert abs(math.log2(beside.ratio(block, "avg_sq_singular_value"))) < 1


@pytest.mark.parametrize("name", [n for n in PIECEWISE_LINEAR if n not in WITHOUT_RULE])
def test_every_block_that_diagnose_has_a_gamma_for(name):
    model, x = build(name)
    report, prediction = hessdiag.diagnose(model, x, quick=True), predict(model, tuple(x.shape[1:]))
    assert not prediction.unsupported
    shared = {b.name for b in prediction.blocks if math.isfinite(b.gamma)}
    assert {b.name for b in report.blocks if math.isfinite(b.gamma)} == shared
    for block in report.blocks:
        found = prediction.block(block.name)
        described = [(each.shape, each.kind, each.fan_in, each.kernel) for each in (found, block)]
        assert described[0] == described[1]
        if block.name in shared:
            assert found.sites_out == block.sites_out
            if name != "conv circular":  # pads before it convolves
                assert found.sites_in == block.sites_in


def test_the_papers_formulas_on_an_mlp():
    n0, n1, n2 = 6, 20, 4
    first, second = predict(mlp([n0, n1, n2], bias=False), (n0,), init="geometric", moments="paper").blocks
    w0, w1 = 2 / math.sqrt(n0 * n1), 2 / math.sqrt(n1 * n2)
    x1 = n0 * w0 / 2
    y = n1 * w1 * x1
    delta = (2 * n2 + 2) * y
    assert (first.out_sq, second.x_sq, second.out_sq) == pytest.approx((2 * x1, x1, y))
    assert second.gamma == pytest.approx(n1 * x1**2 * delta / y)
    assert first.gamma == pytest.approx(second.gamma)  # geometric-mean initialisation
    assert first.gamma == pytest.approx(first.gamma_intrinsic)
    assert (first.activation_scaling, first.nu) == pytest.approx((second.activation_scaling, first.gamma))


def unruly():
    inner = nn.Sequential(Net(lambda m, x: x.cumsum(1)))
    return Net(lambda m, x: m.last(m.inner(m.first(x))), first=nn.Linear(4, 5), inner=inner, last=nn.Linear(5, 3))


def test_an_operation_without_a_rule_is_named_and_the_rest_predicted() -> None:
    prediction = predict(unruly(), (4,), init="fan-in")
    ((place, reason),) = prediction.unsupported
    assert "aten.cumsum" in place
    assert "Net 'inner.0'" in place
    assert reason == "no rule for this operation"
    first, last = prediction.block("first.weight"), prediction.block("last.weight")
    assert first.out_sq == pytest.approx(2.0)
    assert math.isnan(first.gamma)
    assert math.isnan(last.gamma)
    assert "without a rule" in repr(prediction)
    own = {"x_sq", "out_sq", "x_gradient_sq", "out_gradient_sq"}
    assert {f.name for f in fields(BlockPrediction)} - own <= {f.name for f in fields(hessdiag.BlockReport)}
    record = json.loads(predict(unruly(), (4,)).to_json())
    assert record["schema"] == "hessdiag.prediction/2"
    assert (record["blocks"][0]["name"], record["blocks"][0]["gamma"]) == ("first.weight", None)
    assert record["spread"]["gamma"] is None


def test_entries_that_are_repeated_and_parts_without_entries():
    joined = lambda m, x: m.last(torch.cat([m.first(x), x[..., 4:]], -1).repeat_interleave(2, -1))  # noqa: E731
    first, last = predict(Net(joined, first=nn.Linear(4, 5), last=nn.Linear(10, 3)), (4,), init="fan-in").weights
    assert last.x_sq == first.out_sq
    assert first.out_gradient_sq == pytest.approx(2 * last.out_gradient_sq * 3 * last.weight_sq)


def test_the_model_is_left_alone_the_meta_device_predicts_alike_and_inputs_bring_their_moment() -> None:
    with torch.device("meta"):
        meta, large = StridedLeNet(), mlp([8192] * 9 + [10], bias=False)
    model = StridedLeNet()
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    a, b = (predict(each, (3, 32, 32), init="geometric") for each in (meta, model))
    assert [x.gamma for x in a.blocks] == [x.gamma for x in b.blocks]
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    prediction = predict(large, (8192,), init="geometric")
    assert all(math.isfinite(block.gamma) for block in prediction.blocks)
    assert prediction.spread["gamma"] < 1.5
    model, x = mlp([8, 6, 3], bias=False), 2 * torch.randn(4000, 8)
    scaled, usual = predict(model, x), predict(model, (8,))
    assert (scaled.blocks[0].x_sq, scaled.output_sq) == pytest.approx((4, 4 * usual.output_sq), rel=0.03)


def test_beside_takes_the_mean_of_set_ups(tmp_path):
    model = mlp([4, 5, 3], bias=False)
    reports = _reports(lambda: model, (4,), setups=3)
    beside = PredictedVsMeasured.of(predict(model, (4,), init="fan-in"), reports)
    assert beside.measured["fc1.weight"]["gamma"] == mean(r["fc1.weight"].gamma for r in reports)
    assert json.loads(beside.to_json(tmp_path / "x.json"))["measured"] == beside.measured
    block = beside.prediction.blocks[0]
    assert beside.ratio(block) == pytest.approx(block.gamma / beside.measured["fc1.weight"]["gamma"])
    assert "mean of 3 random trials" in repr(beside)


@pytest.mark.parametrize(("inputs", "options", "message"), [
    ((3, 0), {}, "positive sizes"), ("3,32", {}, "pass the shape of one example"),
    ((3, 32, 32), {"moments": "exact"}, "use paper or kernel"), ((3, 32, 32), {"loss": "hinge"}, "has no prediction"),
    ((3, 32, 32), {"init": "he"}, "it is called fan-in here"), ((3, 8, 8), {}, "cannot trace StridedLeNet"),
])  # fmt: skip
def test_refusals(inputs, options, message):
    with pytest.raises(hessdiag.HessdiagError, match=message):
        predict(StridedLeNet(), inputs, **options)


def test_branches_that_depend_on_each_other_are_named():
    """Two branches of one result meet again, with a layer in between or not."""
    layers = {"first": nn.Linear(4, 8), "between": nn.Linear(8, 8), "last": nn.Linear(8, 3)}
    plain = Net(lambda m, x: m.last((h := m.first(x)) + torch.relu(h)), **layers)
    apart = Net(lambda m, x: m.last((h := m.first(x)) + torch.relu(m.between(h))), **layers)
    notes = [predict(model, (4,), moments="paper").notes for model in (plain, apart)]
    assert any("both sides come from one result" in note for note in notes[0])
    assert not any("both sides" in note for note in notes[1])
    assert not any("both sides" in note for note in predict(plain, (4,)).notes)  # one function of h


def test_a_language_model_is_traced_without_its_cache():
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    found = predict(gpt, torch.randint(50, (4, 12)), loss="cross-entropy")
    assert all(math.isfinite(block.gamma) for block in found.weights if "c_" in block.name)
