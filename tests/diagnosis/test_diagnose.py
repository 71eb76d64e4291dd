"""The numbers of the report against closed forms, plain per-example gradients, and what must not change them."""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessdiag
from hessdiag import diagnose
from tests.networks import PLAIN, Multiplier, Net, build, having, network
from tests.oracles import ggn_blocks, mean_over_examples, quadratic, quadratic_matrix, values_of
from tests.unchanged import unchanged

RAGGED = (3, 1, 2)
WITH_MOMENTS = ("mlp", "conv stride", "conv groups", "sequence", "rows merged", "residual", "multiplier")


@pytest.mark.parametrize("network", [*WITH_MOMENTS, "inplace relu", "conv transpose"])
def test_gammas_follow_their_definitions(network: str) -> None:
    """Moments recomputed with retain_grad on every layer's own input and output; of some, of more than a chunk."""
    model, x = build(network, batch=19)
    R = quadratic_matrix(model(x).shape[1])
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def enter(name: str, module, args):
        alias = args[0].clone() if args[0].requires_grad else args[0].clone().requires_grad_()
        alias.retain_grad()
        seen[name] = (alias, alias)
        return (alias,)

    def leave(name: str, module, args, output):
        output.retain_grad()
        seen[name] = (seen[name][0], output)
        return output.clone()  # what follows may write in place

    layers = {n: m for n, m in model.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))}
    handles = [m.register_forward_pre_hook(partial(enter, n)) for n, m in layers.items()]
    handles += [m.register_forward_hook(partial(leave, n)) for n, m in layers.items()]
    y = model(x)
    ((y @ R) * y).sum().backward()
    for handle in handles:
        handle.remove()
    model.zero_grad(set_to_none=True)
    report = hessdiag.diagnose(model, x, max_memory="1MiB")
    assert report.output_sq == pytest.approx(float(y.detach().square().mean()), rel=1e-10)
    assert report.output_variance == pytest.approx(float(y.detach().var(unbiased=False)), rel=1e-10)
    for name, layer in layers.items():
        a, z = (t.detach() for t in seen[name])
        a_gradient, z_gradient = (t.grad for t in seen[name])
        n, k = layer.weight.shape[1], math.prod(layer.weight.shape[2:])
        sites = z.numel() / len(x) / layer.weight.shape[0]
        x_sq, dx_sq = float(a.square().mean()), float(a_gradient.square().mean())
        z_sq, dz_sq = float(z.square().mean()), float(z_gradient.square().mean())
        weight = report[f"{name}.weight"]
        assert (weight.out_sq, weight.out_gradient_sq) == pytest.approx((z_sq, dz_sq), rel=1e-10)
        varsigma = a.numel() / len(x) * dx_sq * x_sq
        weight_sq = float(layer.weight.detach().square().mean())
        assert weight.activation_scaling == pytest.approx(varsigma, rel=1e-10)
        assert weight.gamma == pytest.approx(n * k * sites * x_sq**2 * dz_sq / z_sq, rel=1e-10)
        assert weight.gamma_intrinsic == pytest.approx(varsigma / (layer.weight.numel() * weight_sq**2), rel=1e-10)
        assert (weight.sites_out, weight.weight_sq) == (sites, pytest.approx(weight_sq))
        if layer.bias is not None:
            assert report[f"{name}.bias"].gamma == pytest.approx(sites * dz_sq / z_sq, rel=1e-10)


def test_scalars_have_the_gamma_of_their_definition_or_none() -> None:
    model = nn.Sequential(nn.Linear(4, 5, bias=False), Multiplier(0.7), nn.Linear(5, 3, bias=False)).double()
    scalar = hessdiag.diagnose(model, torch.randn(6, 4, dtype=torch.float64))["1.u"]
    assert scalar.kind == "scalar"
    assert scalar.gamma_intrinsic == pytest.approx(scalar.activation_scaling / 0.7**4, rel=1e-6)
    # x_{l+1} = u x_l makes forward and backward relations exact, hence the two forms of γ equal.
    assert scalar.gamma == pytest.approx(scalar.gamma_intrinsic, rel=1e-6)
    model = nn.Sequential(nn.Linear(4, 5), nn.PReLU(), nn.Linear(5, 3)).double()
    scalar = hessdiag.diagnose(model, torch.randn(6, 4, dtype=torch.float64))["1.weight"]
    assert math.isnan(scalar.gamma)
    assert scalar.avg_sq_singular_value > 0


@pytest.mark.parametrize("loss", ["random-quadratic", "cross-entropy"])
def test_gamma_curvature_averages_over_random_outputs(loss: str) -> None:
    """Replace Δ by the back-propagated S u, u ~ N(0, E[y²]), with very many u."""
    model, x = build("mlp")
    targets = torch.tensor([0, 1, 2, 0, 1]) if loss == "cross-entropy" else None
    report = hessdiag.diagnose(model, x, targets, loss=loss)
    y = model(x)
    first = model[0](x)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda z: model[4](model[3](model[2](model[1](z))))))(first)
    if loss == "cross-entropy":
        p = y.softmax(1)
        S = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    else:
        R = quadratic_matrix(3)
        S = (R + R.T).expand(5, 3, 3)
    u = torch.randn(200_000, 3, dtype=torch.float64) * float(y.detach().square().mean().sqrt())
    delta_sq = np.mean([float((u @ S[b] @ jacobian[b]).detach().square().mean()) for b in range(5)])
    want = 4 * float(x.square().mean()) ** 2 * delta_sq / float(first.detach().square().mean())
    assert report.blocks[0].gamma_curvature == pytest.approx(want, rel=0.02)


def test_gamma_curvature_needs_no_constant_where_gamma_does() -> None:
    """Shrinking the outputs inflates the ratio of γ under cross-entropy, and leaves that of γ_curvature alone."""
    plain, curved = [], []
    for seed in range(10):
        torch.manual_seed(seed)
        model = hessdiag.init.apply(hessdiag.models.StridedLeNet(), "geometric")
        x, targets = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
        with torch.no_grad():
            model.fc3.weight.mul_(0.05 / model(x).std())
        blocks = hessdiag.diagnose(model, x, targets, loss="cross-entropy", seed=seed, **PLAIN).blocks
        plain.append([block.ratio for block in blocks])
        curved.append([block.gamma_curvature / block.avg_sq_singular_value for block in blocks])
    assert (np.median(plain, axis=0) > 1500).all()
    assert (np.median(plain, axis=0) < 4500).all()
    assert (np.median(curved, axis=0) > 0.5).all()
    assert (np.median(curved, axis=0) < 1.2).all()


class TestMetamorphic:
    """What is known to happen to the numbers when the network is changed in a known way."""

    @pytest.fixture
    def measured(self):
        model, x = build("conv stride")
        model[0].bias.data.zero_()
        model[3].bias.data.zero_()
        return model, x, hessdiag.diagnose(model, x)

    def test_moving_scale_between_layers_moves_gamma_by_its_fourth_power(self, measured) -> None:
        model, x, before = measured
        s = 1.7
        model[0].weight.data.mul_(s)
        model[3].weight.data.div_(s)
        after, names = hessdiag.diagnose(model, x), ("0.weight", "3.weight")
        (first, second), (old_first, old_second) = ([report[name] for name in names] for report in (after, before))
        for key in ("gamma", "gamma_intrinsic", "avg_sq_singular_value"):
            assert getattr(first, key) == pytest.approx(getattr(old_first, key) * s**-4, rel=1e-9)
            assert getattr(second, key) == pytest.approx(getattr(old_second, key) * s**4, rel=1e-9)
        assert first.ratio == pytest.approx(old_first.ratio, rel=1e-9)
        assert first.activation_scaling == pytest.approx(old_first.activation_scaling, rel=1e-9)

    def test_permuting_hidden_units_changes_nothing(self, measured) -> None:
        model, x, before = measured
        order = torch.tensor([2, 0, 1])
        with torch.no_grad():
            model[0].weight.copy_(model[0].weight[order])
            columns = model[3].weight.view(3, 3, 4)  # (out, channels, sites)
            model[3].weight.copy_(columns[:, order].reshape(3, 12))
        after = hessdiag.diagnose(model, x)
        np.testing.assert_allclose(after.heatmap.frobenius_sq, before.heatmap.frobenius_sq, rtol=1e-9)
        for a, b in zip(after.blocks, before.blocks, strict=True):
            assert (a.gamma, a.ratio) == pytest.approx((b.gamma, b.ratio), rel=1e-9)

    def test_scaling_the_output_leaves_the_ratio_alone(self, measured) -> None:
        model, x, before = measured
        doubled = nn.Sequential(*model, Net(lambda m, y: 2 * y))
        for a, b in zip(hessdiag.diagnose(doubled, x).blocks, before.blocks, strict=True):
            assert (a.gamma, a.ratio) == pytest.approx((16 * b.gamma, b.ratio), rel=1e-9)

    def test_every_view_of_one_example_is_the_same_and_repeating_the_batch_changes_nothing(self, measured) -> None:
        model, x, _ = measured
        example, batch = (hessdiag.diagnose(model, x[:1], per=per) for per in ("example", "batch"))
        for key in ("gamma", "nu", "avg_sq_singular_value", "ratio"):
            assert values_of(example, key) == pytest.approx(values_of(batch, key), rel=1e-9, nan_ok=True)
        for per in ("example", "batch"):
            once, twice = (hessdiag.diagnose(model, data, per=per) for data in (x, torch.cat([x, x])))
            np.testing.assert_allclose(twice.heatmap.frobenius_sq, once.heatmap.frobenius_sq, rtol=1e-9)


def test_closed_forms_and_the_batch_view() -> None:
    """A bias-free linear layer under ½‖y‖² with x orthogonal and n' outputs: G = I ⊗ x x^T, and γ/σ² = 1."""
    n, m = 400, 300
    model, x = nn.Linear(n, m, bias=False).double(), torch.randn(8, n, dtype=torch.float64).sign()
    report = hessdiag.diagnose(model, x, loss=lambda y, t: 0.5 * y.square().sum(), method="exact")
    # σ² = ‖x‖⁴ n' / (n n') = n, γ = n E[x²]² E[Δ²]/E[y²] = n.
    assert (report.blocks[0].avg_sq_singular_value, report.blocks[0].ratio) == pytest.approx((n, 1.0), rel=1e-9)
    model, x = build("mlp")
    example, batch = (hessdiag.diagnose(model, x, per=per) for per in ("example", "batch"))
    for a, b in zip(example.blocks, batch.blocks, strict=True):
        for key in ("gamma", "gamma_intrinsic", "gamma_curvature"):
            assert getattr(b, key) == pytest.approx(getattr(a, key) / len(x), rel=1e-12, nan_ok=True)
    model, x = build("two paths")
    assert [b.name for b in hessdiag.diagnose(model, x).weights] == ["layer.weight", "last.weight"]
    model, x = build("unused")
    unused = hessdiag.diagnose(model, x)["unused.weight"]
    assert (unused.avg_sq_singular_value, unused.nu) == (0.0, 0.0)
    assert math.isnan(unused.gamma)
    assert math.isnan(unused.ratio)
    model, x = build("mlp")
    reports = [hessdiag.diagnose(model, x, seed=seed) for seed in (0, 0, 1)]
    assert reports[0] == reports[1]
    assert reports[0].blocks[0].gamma != reports[2].blocks[0].gamma
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    losses = [hessdiag.diagnose(model, x, t).loss for t in (None, torch.randint(3, (5,)), torch.randn(5, 3))]
    assert losses == ["random-quadratic", "cross-entropy", "mse"]


@pytest.mark.parametrize("rule", [
    # It is used outside of its layer as well: what the hooks see is not its whole gradient; and never through it.
    lambda m, x: m.last(m.layer(x).relu()) + (x @ m.layer.weight)[:, :3],
    lambda m, x: m.last((x @ m.layer.weight.T).relu()),
], ids=["read elsewhere", "never through the module"])  # fmt: skip
def test_a_weight_that_the_hooks_cannot_follow_is_differentiated_as_it_is(rule: Callable[..., Tensor]) -> None:
    model = Net(rule, layer=nn.Linear(4, 4, bias=False), last=nn.Linear(4, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    report = hessdiag.diagnose(model, x)
    dense = mean_over_examples(ggn_blocks, model, x, None, quadratic(3), list(report.heatmap.names))
    np.testing.assert_allclose(report.heatmap.frobenius_sq, dense, rtol=1e-10)
    assert report.skipped == ()
    assert math.isnan(report["layer.weight"].gamma)
    assert report["last.weight"].gamma > 0


def test_an_input_overwritten_after_it_was_read_is_refused() -> None:
    """Legal for autograd as long as the weight is frozen, fatal for what the hooks kept."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)
        y = m.layer(h)
        with torch.no_grad():
            h.mul_(2)
        return y

    model = Net(forward, first=nn.Linear(4, 4), layer=nn.Linear(4, 3)).double()
    with pytest.raises(hessdiag.HessdiagError, match="'layer' is overwritten in place"):
        hessdiag.diagnose(model, torch.randn(5, 4, dtype=torch.float64))


@pytest.mark.parametrize(("model", "size"), [
    (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 1, 3), nn.Flatten()), (3, 9, 9)),
    (nn.Sequential(nn.Conv1d(4, 1, 5, stride=2), nn.Flatten()), (4, 20)),
    (nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ConvTranspose2d(4, 1, 3, stride=2), nn.Flatten()), (1, 7, 7)),
    (nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1)).eval(), (3,)),
])  # fmt: skip
def test_a_bias_of_one_entry_multiplies_nothing(model: nn.Module, size: tuple[int, ...]) -> None:
    report = hessdiag.diagnose(model, torch.randn(2, *size))
    assert all(math.isfinite(block.avg_sq_singular_value) for block in report.blocks)
    assert all(math.isnan(block.gamma) for block in report.blocks if block.kind == "scalar")


@pytest.mark.parametrize("method", ["exact", "sketch", "probe"])
@pytest.mark.parametrize(("depth", "size"), [(16, 0.4), (2, 1e6)])
def test_numbers_that_leave_the_range_of_float32(depth: int, size: float, method: str) -> None:
    """Squares of small gradients underflow, and of large ones overflow, long before the network does."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(8, 8, bias=False), nn.ReLU())]
    model, x = nn.Sequential(*layers, nn.Linear(8, 5)), torch.randn(4, 8)
    for parameter in model.parameters():
        parameter.data *= size
    single = hessdiag.diagnose(model, x, method=method, rtol=0.5, signals=False)
    double = hessdiag.diagnose(model.double(), x.double(), method=method, rtol=0.5, signals=False)
    for a, b in zip(single.blocks, double.blocks, strict=True):
        assert b.avg_sq_singular_value > 0
        for key in ("avg_sq_singular_value", "gamma", "nu", "gamma_curvature"):
            assert getattr(a, key) == pytest.approx(getattr(b, key), rel=1e-2), key


class Contrast(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.cross_entropy((y := super().forward(x)) @ y.T, torch.arange(len(x)))


# They take their inputs by name, as models of transformers do.
PIXELS = network(lambda m, pixel_values: m.layer(pixel_values), layer=nn.Linear(4, 3))
LABELLED = network(lambda m, pixel_values, labels=None: m.layer(pixel_values), layer=nn.Linear(4, 3))
OF_TWO = network(lambda m, left, right: m.layer(left) + m.layer(right), layer=nn.Linear(4, 3))
X, LABELS = torch.ones(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
BATCHED = "pass a batch (B, ...) of what the model reads, in its dtype"
APART = "pass inputs and targets apart, diagnose(model, inputs, targets)"


def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(("model", "arguments", "options", "message"), [
    (nn.Linear(4, 3), ((X, LABELS),), {}, f"takes 2 positional arguments but 3 were given): {APART}"),
    (nn.Linear(4, 3), (list(X),), {}, APART),
    *((given, (X,), {}, f"model is {what}: pass a torch.nn.Module that is built") for given, what in (
        (nn.Linear, "the class Linear"), (images, "a function"), (nn.Linear(4, 3).state_dict(), "an OrderedDict"),
        (hessdiag.models.resolve_model("lenet"), "a ModelSource"))),
    ("lenet", (X,), {}, "that is built, such as hessdiag.models.resolve_model('lenet').build().module"),
    *((model, (x,), {}, BATCHED) for model, x in (
        (images(), torch.ones(3, 8, 8)), (images(), torch.ones(3, 8, 8, dtype=torch.uint8)), (nn.Linear(4, 3), X[0]),
        (images(), torch.ones(2, 3, 8, 8, dtype=torch.uint8)), (images(), torch.ones(2, 8, 8, 3)),
        (nn.Linear(4, 3), X.long()))),
    (nn.Linear(4, 3), (X[:, :3],), {}, "the model cannot read inputs of shape 6×3 (RuntimeError: "),
    (nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), (X,), {}, "cannot be multiplied (6x3 and 4x3), in 1 (Linear)): "),
    (network(lambda m, x: m.layer({}["x"]), layer=nn.Linear(4, 3)), (X,), {}, "KeyError: 'x', test_diagnose.py line "),
    (nn.Linear(4, 3), (X, LABELS % 3 - 1), {}, "where -1 is to be left out, pass loss=torch.nn.CrossEntropyLoss(ig"),
    (network(lambda m, x: m.layer(x) + 9, layer=nn.Linear(4, 1)), (X, X[:, :1]), {"loss": nn.BCELoss()}, "nn.BCEWi"),
    (nn.Linear(4, 3), (X,), {"loss": lambda y, t: OF_TWO(X, X).mean()}, "none in the outputs: return it"),
    (OF_TWO, ({"left": X, "rihgt": X},), {}, "unexpected keyword argument 'rihgt'): forward takes left, right"),
    (LABELLED, ({"pixel_values": X, "labels": LABELS},), {"loss": "cross-entropy"},
        "loss 'cross-entropy' needs targets: pass class indices of shape"),
    (PIXELS, ({"pixel_value": X},), {}, "got an unexpected keyword argument 'pixel_value'"),
    (Contrast(4, 3), (torch.eye(4),), {"loss": "model", "matrix": "hessian"}, "compared: pass per='batch' (--per ba"),
    (OF_TWO, (X,), {}, "missing 1 required positional argument: 'right'): pass inputs and targets apart"),
    (PIXELS, ({"pixel_values": X, "cls": LABELS},), {}, "and not cls: leave it out, or pass the labels as targets"),
    (nn.Linear(4, 3), ({"image": X, "label": LABELS},), {}, "forward takes input; pass that and targets, as ((b['imag"),
    (nn.Linear(4, 3), ([(X, LABELS, LABELS)],), {}, "or ((x, y) for x, y, *_ in loader)"),
    (nn.Linear(4, 3), (X.to_sparse(),), {}, "inputs are sparse or one number: pass inputs"),
    (nn.Linear(4, 3), (X[0], LABELS[0]), {}, "targets are a Tensor: pass a batch, as of DataLoader(dataset)"),
    (nn.Linear(4, 3), (X.numpy().astype(object),), {}, "inputs are a ndarray: pass a tensor or array, as of torch.as_"),
    (nn.Linear(4, 3), (X, X[:, 0]), {"loss": lambda y, t: (y - t).abs().mean()}, "(6,) of torch.float32 of all exam"),
    (nn.Linear(4, 3), (X, [0] * 6), {"loss": "cross-entropy"}, "targets are a list: pass torch.as_tensor(targets)"),
    *((nn.Linear(4, 3), (X,), options, says) for options, says in (
        ({"method": "sketch", "matrix": "hessian"}, "method 'sketch' is for the Gauss-Newton ma"),
        ({"method": "sketch", "matrix": "hessian", "per": "batch"}, "not matrix 'hessian'"),
        ({"loss": "hinge"}, "unknown loss 'hinge': use one of random-quadratic, cross-"), ({"rtol": 0.0}, "rtol 0.0"),
        ({"matrix": "fisher"}, "matrix 'fisher' is not known: use one of ggn, hessian"),
        ({"max_products": 4.5}, "max_products 4.5: pass at least 2, a whole number"), ({"per": "epoch"}, "per 'epoch'"),
        ({"max_memory": "lots"}, "max_memory 'lots': pass a size such as '4GiB'"), ({"rtol": math.nan}, "rtol nan"),
        ({"rtol": "0.1"}, "rtol '0.1': pass a relative error above 0"), ({"loss": lambda y, t: y}, "return a scalar"),
        ({"loss": 3}, "loss 3: pass a name such as 'cross-entropy'"), ({"loss": "cross-entropy"}, "needs targets"),
        ({"progress": 3}, "progress 3: pass True, or a function"), ({"seed": None}, "seed None: pass a whole number"),
        ({"method": "guess"}, "method 'guess'"), ({"max_products": 1}, "max_products 1"))),
    (nn.Linear(4, 3), (X, LABELS), {"loss": nn.CrossEntropyLoss}, "pass an instance, as in CrossEntropyLoss()"),
    (nn.Linear(4, 3, device="meta"), (X,), {}, "meta device"),
    (nn.Linear(4, 3), (X, torch.zeros(6, 2)), {"loss": "mse"}, "targets have shape"),
    (nn.Linear(4, 3), (X, torch.full((6,), 7)), {"loss": "cross-entropy"}, "to 7, but the network has"),
    (nn.Linear(4, 3), (X, torch.tensor([0, 1, 1, 2, 0, 99])), {}, "class indices run from 0 to 2"),
    (nn.Linear(4, 3), (X, torch.tensor([0, 1, -5, 2, 0, 0])), {}, "class indices run from 0 to 2"),
])  # fmt: skip
def test_what_is_often_passed_by_mistake_is_answered_with_what_to_write(model, arguments, options, message) -> None:
    with pytest.raises(hessdiag.HessdiagError) as refused:
        hessdiag.diagnose(model, *arguments, **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_texts_dry_runs_and_dicts(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(4, 3)
    bytes_, text = (hessdiag.diagnose(model, X, max_memory=m, progress=True) for m in (2**30, "1GiB"))
    assert text == bytes_
    out, err = capsys.readouterr()
    assert out == ""
    assert "hessdiag: measuring Linear, 0 s so far: moments 1/1\n" in err
    assert hessdiag.diagnose(model, X, progress=False) == bytes_
    assert capsys.readouterr().err == ""
    with pytest.raises(hessdiag.HessdiagError, match=BATCHED.split("(")[0]):
        hessdiag.describe(images(), torch.ones(3, 8, 8))
    with pytest.raises(hessdiag.HessdiagError, match="model is the class Linear"):
        hessdiag.describe(nn.Linear, X)
    report = hessdiag.diagnose(OF_TWO, (X, X + 1))
    assert report.batch_size == 6
    assert report.to_dict() == json.loads(report.to_json())


@pytest.mark.parametrize("per", ["example", "batch"])
def test_a_report_says_how_many_batches_of_how_many_were_read(per: str) -> None:
    model, x = build("mlp")
    loader = [(part, None) for part in torch.cat([x, x + 1, x + 2]).chunk(3)]
    quick: dict[str, Any] = {"per": per, **PLAIN}
    with pytest.raises(hessdiag.HessdiagError, match="batches"):
        hessdiag.diagnose(model, loader, batches=0)
    assert hessdiag.diagnose(model, iter(loader), batches=2, **quick) == hessdiag.diagnose(model, loader[:2], **quick)
    some = hessdiag.diagnose(model, loader, batches=2, **quick)
    assert (some.batches, some.batches_read, some.batches_given) == (2 if per == "example" else 1, 2, 3)
    assert "\nbatches read of the data: 2 of 3; diagnose(model, data, batches=n) reads more of one shape" in repr(some)
    assert hessdiag.Report.from_json(some.to_json()).batches_given == 3
    for how, count in (({"batches": 1}, 1), ({"quick": True}, -(-64 // len(x)))):  # of what has no end
        stream = hessdiag.diagnose(model, cycle(loader), **how, **quick)
        assert (stream.batches_read, stream.batches_given) == (count, None)
        assert f"\nbatches read of the data: {count} of many; diagnose(model, data, batches=n)" in repr(stream)
    for everything in (iter(loader), x):
        assert "batches read" not in repr(hessdiag.diagnose(model, everything, **quick))
    attention, x = build("attention")  # batches of longer sentences than the first are left out
    short = hessdiag.diagnose(attention, iter([x[:, :2], x, x[:, :2] + 1]), **quick)
    assert (short.batches_read, short.batches_given) == (2, 3)
    assert short == hessdiag.diagnose(attention, iter([x[:, :2], x[:, :2] + 1]), **quick)


def test_a_quick_diagnosis_finds_the_same_without_curvature() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    model[3].weight.data.mul_(1000)
    x, t = torch.randn(16, 6), torch.randint(3, (16,))
    with unchanged(model):
        whole, quick = (hessdiag.diagnose(model, x, t, quick=quick) for quick in (False, True))
    assert whole.findings
    assert quick.findings == whole.findings
    assert (quick.method, quick.verdict.balance.level) == ("none", "undecided")
    assert all(math.isnan(b.avg_sq_singular_value) and b.ended == "unmeasured" for b in quick)
    assert ([b.gamma for b in quick], quick.heatmap.names) == ([b.gamma for b in whole], ())
    assert "σ²" not in quick.text()
    assert "leave quick (--quick) out" in quick.text()
    assert hessdiag.Report.from_json(quick.to_json()).to_json() == quick.to_json()


def test_some_blocks_are_measured_as_among_all() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    x = torch.randn(3, 4).double()
    whole, some = hessdiag.diagnose(model, x), hessdiag.diagnose(model, x, blocks=["0", "4.w*"])
    assert [b.name for b in some] == ["0.weight", "0.bias", "4.weight"]
    for block in some:
        assert block.avg_sq_singular_value == pytest.approx(whole[block.name].avg_sq_singular_value, rel=1e-12)
    assert ("2.weight", "not asked for") in some.skipped
    with pytest.raises(hessdiag.HessdiagError, match="blocks is an int: pass a pattern"):
        hessdiag.diagnose(nn.Linear(3, 2), torch.randn(2, 3), blocks=3)  # type: ignore[arg-type]
    with pytest.raises(hessdiag.HessdiagError, match="matches no block: did you mean"):
        hessdiag.diagnose(model, x, blocks="4.wieght")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_gradient_that_a_normalisation_subtracts_is_zero(dtype: torch.dtype, mode: str) -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).to(dtype)
    report = diagnose(model, torch.randn(6, 2, 6, dtype=dtype), torch.randint(3, (6,)), mode=mode)
    first, *others = report["0.bias"], *(block for block in report if block.name != "0.bias")
    none = [first.nu == 0, first.avg_sq_singular_value == 0, math.isnan(first.ratio), math.isnan(first.relative_ratio)]
    assert set(none) == {mode == "train"}  # statistics that are fixed subtract nothing
    assert first.gamma > 0
    assert all(0 < block.ratio < 1e6 and block.nu > 0 for block in others)
    assert (json.loads(report.to_json())["blocks"][1]["ratio"] is None) == (mode == "train")
    assert ("0.bias: its gradient is 0 up to rounding" in report.text("whole")) == (mode == "train")


def ragged(*tensors: torch.Tensor):
    return zip(*(t.split(list(RAGGED)) for t in tensors), strict=True)


def assert_alike(streamed: hessdiag.Report, whole: hessdiag.Report, *, rtol: float = 1e-10) -> None:
    np.testing.assert_allclose(streamed.heatmap.frobenius_sq, whole.heatmap.frobenius_sq, rtol=rtol)
    largest = max(block.nu for block in whole.weights)
    for a, b in zip(streamed.blocks, whole.blocks, strict=True):
        if b.nu < 1e-20 * largest:  # zero up to rounding
            continue
        for key in ("avg_sq_singular_value", "gamma", "gamma_intrinsic", "activation_scaling", "nu", "ratio"):
            np.testing.assert_allclose(getattr(a, key), getattr(b, key), rtol=rtol, err_msg=f"{a.name} {key}")
        assert (a.sites_in, a.sites_out) == (b.sites_in, b.sites_out)
    assert streamed.batch_size == whole.batch_size


# Every form of a Jacobian, and what has none.
@pytest.mark.parametrize("network", [
    "mlp", "conv groups", "rows merged", "tied", "multiplier", "unused", "lstm", "attention", "groupnorm",
])  # fmt: skip
def test_ragged_batches_weigh_by_their_examples(network: str) -> None:
    model, x = build(network, batch=sum(RAGGED))
    for per, batches in (("example", len(RAGGED)), ("batch", 1)):
        options = {"per": per, "mode": "eval", "method": "exact", "signals": False}
        streamed = hessdiag.diagnose(model, ((part, None) for (part,) in ragged(x)), **options)
        assert_alike(streamed, hessdiag.diagnose(model, x, **options), rtol=1e-8)
        assert streamed.batches == batches


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_targets_stream_with_the_inputs(loss: str) -> None:
    model, x = build("mlp", batch=sum(RAGGED))
    t = torch.randint(3, (len(x),)) if loss == "cross-entropy" else torch.randn(len(x), 3, dtype=torch.float64)
    whole = hessdiag.diagnose(model, x, t, loss=loss)
    assert_alike(hessdiag.diagnose(model, ragged(x, t), loss=loss), whole)
    assert_alike(hessdiag.diagnose(model, DataLoader(TensorDataset(x, t), batch_size=4), loss=loss), whole)
    as_arguments = [{"input": part} for (part,) in ragged(x)]
    assert_alike(hessdiag.diagnose(model, as_arguments), hessdiag.diagnose(model, x))


def test_a_stream_is_read_once_and_its_sampled_blocks_are_within_their_error_bars() -> None:
    model, x = build("mlp", batch=6)
    alive, steps = [], []

    def stream():
        for part in x.split(2):
            alive.append(len(alive))
            yield part

    hessdiag.diagnose(model, stream(), progress=lambda step: steps.append((step, len(alive))))
    assert (len(alive), [read for step, read in steps if step == "moments"]) == (3, [1, 2, 3])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 40)).double()
    x = torch.randn(9, 20, dtype=torch.float64)
    exact = hessdiag.diagnose(model, x)
    sketched = {"method": "sketch", "rtol": 0.1, "seed": 1, "progress": steps.append}
    for options in (sketched, {"method": "probe", "rtol": 0.2}):
        streamed = hessdiag.diagnose(model, iter(x.split([5, 1, 3])), **options)
        error = np.abs(streamed.heatmap.frobenius_sq - exact.heatmap.frobenius_sq)
        assert (error <= 4 * streamed.heatmap.stderr).all()
        assert {block.ended for block in streamed.weights} == {"rtol"}
    assert steps.count("bases") == 3 * 8


@pytest.mark.parametrize(("batches", "says"), [
    ([], "inputs hold no tensor"), (iter([]), "inputs: there is no batch"),
    (iter([torch.ones(2, 4), torch.ones(2, 4, 5)]), r"targets of shapes \[\(4, 5\)\], those before \[\(4,\)\]"),
    (iter([torch.ones(2, 4), torch.full((2, 4), torch.nan)]), "inputs hold NaN, which the model"),
    (iter([torch.ones(2, 4), torch.ones(2, 4).double()]), "model and inputs are in float32 and float64"),
    (iter([torch.ones(2, 4), 3]), "inputs: inputs are an int"),
    (iter([(torch.ones(2, 4), torch.ones(3))]), "the first dimension must be the same batch"),
    (3, "inputs are an int"), ("data", "inputs are a str"),
])  # fmt: skip
def test_what_is_no_stream_of_batches_is_refused(batches, says: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=says):
        hessdiag.diagnose(nn.Linear(4, 3), batches)


def test_later_batches_are_checked_for_targets_and_for_another_path() -> None:
    later = [(torch.ones(2, 4), torch.tensor([0, 1])), (torch.ones(2, 4), torch.tensor([0, 7]))]
    with pytest.raises(hessdiag.HessdiagError, match="targets hold classes 0 to 7"):
        hessdiag.diagnose(nn.Linear(4, 3), iter(later), loss="cross-entropy")
    with pytest.raises(hessdiag.HessdiagError, match="let every batch be"):
        hessdiag.diagnose(nn.Linear(4, 3), iter(later), torch.tensor([0, 1]))

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)
        return m.last(h + x @ m.first.weight if bool(x.max() > 10) else h)

    torch.manual_seed(0)
    model, x = Net(forward, first=nn.Linear(4, 4), last=nn.Linear(4, 3)), torch.randn(3, 4)
    with pytest.raises(hessdiag.HessdiagError, match=r"block 'first.weight' is used in another way from example 3 on"):
        hessdiag.diagnose(model, iter([x, 100 * x]))


def rare(as_layer: bool) -> nn.Module:
    """A layer whose weight an unusual example uses a second time, behind the layer's back."""

    def forward(m: Any, x: Tensor) -> Tensor:
        weight = m.first.weight
        read = m.first(x) if as_layer else F.linear(x, weight)
        return m.last(torch.tanh(read + torch.where(x[:, :1] > 5, F.linear(x, weight.square()), 0)))

    torch.manual_seed(0)
    layers = {"first": nn.Linear(4, 5, bias=False), "last": nn.Linear(5, 3)}
    first = layers["first"] if as_layer else having(nn.Module(), weight=layers["first"].weight)
    return Net(forward, **layers | {"first": first}).double()


@pytest.mark.parametrize("options", [{}, {"method": "sketch"}, {"per": "batch"}])
def test_a_path_that_one_example_takes_is_found(options: dict[str, object]) -> None:
    x, t = torch.randn(80, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64), torch.arange(80) % 3
    x[44, 0] = 6.0  # the unusual one
    found, expected = (hessdiag.diagnose(rare(how), x, t, loss="cross-entropy", **options) for how in (True, False))
    for key in ("avg_sq_singular_value", "nu"):
        assert values_of(found, key) == pytest.approx(values_of(expected, key), rel=1e-9)


def test_too_little_memory_is_refused_with_what_would_do_and_no_bound_is_no_refusal(monkeypatch) -> None:
    model, x = nn.Sequential(nn.Linear(400, 500), nn.ReLU(), nn.Linear(500, 5)), torch.randn(20, 400)
    with pytest.raises(hessdiag.HessdiagError, match="max_memory 1MiB: gradients of") as refused:
        hessdiag.diagnose(model, x, max_memory="1MiB")
    told = re.search(r"take about (\d+MiB)", str(refused.value))
    assert told is not None
    assert hessdiag.diagnose(model, x, max_memory=told[1]).blocks
    monkeypatch.setattr("hessdiag.data.memory.free_memory", lambda device: 2**20)
    assert hessdiag.diagnose(nn.Linear(400, 500), torch.randn(3, 400), method="sketch").blocks
