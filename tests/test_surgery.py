"""Multipliers put into finished networks: what they do, that they travel, and that they come out without a trace."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from hessdiag import diagnose, init, surgery
from hessdiag.errors import HessdiagError
from hessdiag.models import StridedLeNet, mlp
from hessdiag.surgery import Scale
from tests.networks import BUILDERS, PLAIN, Net, build, chain, having
from tests.unchanged import unchanged


def keywords() -> nn.Module:
    return Net(lambda m, x: m.fc(input=x), fc=nn.Linear(3, 2))


@pytest.mark.parametrize("name", BUILDERS)
def test_everything_comes_out_again(name: str) -> None:
    model, x = build(name)
    x = x[:3]
    y = model(x)
    with unchanged(model):
        surgery.insert_scale(model, 0.5, before="")
        surgery.insert_scale(model, 3.0, after="")
        paths = [path for path, module in model.named_modules() if path and not isinstance(module, Scale)]
        paths = [path for path in paths if path != "attend.out_proj"]  # never called: refused
        for path in paths:
            surgery.insert_scale(model, 2.0, before=path)
        assert surgery.undo(model) == len(paths) + 2
    assert torch.equal(model(x), y)
    assert surgery.undo(model) == 0


def test_before_and_after_multiply_what_they_say() -> None:
    for model, before in ((mlp([3, 4, 2]), ""), (keywords(), ""), (keywords(), "fc"), (nn.Linear(3, 2), "")):
        x = torch.randn(5, 3)
        expected = model(2 * x) * 3
        surgery.insert_scale(model, 2.0, before=before)
        surgery.insert_scale(model, 3.0, after="")
        torch.testing.assert_close(model(x), expected)


def test_multipliers_multiply_in_one_place_and_those_of_the_network_stay() -> None:
    model = StridedLeNet()  # the factor is the paper's for normalised inputs
    assert float(surgery.scale_input(model, torch.randn(64, 3, 32, 32)).factor) == pytest.approx(75**-0.25, rel=0.01)
    assert [k for k in model.state_dict() if "scale" in k] == ["conv1.input_scale.factor"]
    model = mlp([3, 2])
    first = surgery.insert_scale(model, 2.0, before="fc1")
    assert surgery.insert_scale(model, 0.25, before="fc1") is first
    assert float(first.factor) == 0.5
    assert surgery.undo(model) == 1
    model = nn.Sequential()
    model.add_module("fc", nn.Linear(3, 2))
    model.add_module("output_scale", Scale(0.5))
    assert (surgery.undo(model), len(model)) == (0, 2)


@pytest.mark.parametrize("carry", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_their_own_multipliers(carry) -> None:
    model, x = mlp([3, 4, 2]), torch.randn(5, 3)
    surgery.insert_scale(model, 2.0, before="fc2")
    surgery.insert_scale(model, 0.5, after="")
    other = carry(model)
    assert torch.equal(other(x), model(x))
    surgery.undo(other)
    assert not torch.equal(other(x), model(x))
    assert "fc2.input_scale.factor" in model.state_dict()


@pytest.mark.parametrize(("before", "after"), [("fc1", None), (None, "fc1"), (None, "")])
def test_a_scaled_network_is_measured_as_if_it_were_written_so(before, after) -> None:
    plain = mlp([4, 5, 3]).double()
    scaled, x = copy.deepcopy(plain), torch.randn(6, 4, dtype=torch.float64)
    place = 1 if before == "fc1" else 2 if after == "fc1" else len(plain)
    written = nn.Sequential(*list(plain)[:place], Scale(0.25).double(), *list(plain)[place:])
    surgery.insert_scale(scaled, 0.25, before=before, after=after)
    mine, theirs = diagnose(scaled, x, **PLAIN), diagnose(written, x, **PLAIN)
    for a, b in zip(mine.blocks, theirs.blocks, strict=True):
        assert a.avg_sq_singular_value == pytest.approx(b.avg_sq_singular_value, rel=1e-10)
        assert a.nu == pytest.approx(b.nu, rel=1e-10, nan_ok=True)


@pytest.mark.parametrize("std", [1.0, 3.0])
def test_input_scaling_balances_weights_and_biases_of_the_first_layer(std: float) -> None:
    """γ of weight and bias, equal within 10 % on average over trials (Section 8.1)."""
    logs = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5))
        init.apply(model, "geometric")
        x = std * torch.randn(4, 3, 32, 32)
        surgery.scale_input(model, x)
        weight, bias = diagnose(model, x, seed=seed, method="exact", **PLAIN).blocks[:2]
        logs.append(math.log(weight.gamma / bias.gamma))
    assert abs(sum(logs) / len(logs)) < math.log(1.1)


def test_kernel_correction_keeps_the_second_moments_on_the_design() -> None:
    """After every ReLU layer E[x_{l+1}²] = √(n / n') E[x_l²] (Eq. 6), averaged over trials."""
    logs: dict[str, list[float]] = {}
    for seed in range(12):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(8, 16, 5, stride=5), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=3), nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=3, groups=4), nn.ReLU(), nn.Flatten(), nn.Linear(128, 20),
        )  # fmt: skip
        init.apply(model, "geometric")
        surgery.correct_kernels(model)
        x = torch.randn(4, 8, 90, 90).relu()
        for name, layer in model.named_children():
            y = layer(x).detach()
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                n, m = (8, 16) if name == "0" else (16, 32) if name == "2" else (32, 32) if name == "4" else (128, 20)
                change = float(y.square().mean() / (2 * x.square().mean()))  # from before the ReLU, which halves
                logs.setdefault(name, []).append(math.log(change / math.sqrt(n / m)))
            x = y
    assert len(logs) == 4
    for values in logs.values():
        assert abs(sum(values) / len(values)) < 0.15


@pytest.mark.parametrize(("options", "std"), [({}, 0.05), ({"std": 2.0}, 2.0)])
def test_outputs_get_the_standard_deviation_asked_for(options: dict[str, float], std: float) -> None:
    model, x = init.apply(StridedLeNet(), "fan-in"), torch.randn(16, 3, 32, 32)
    y = model(x)
    scale = surgery.normalise_output(model, x, **options)
    assert float(model(x).detach().std()) == pytest.approx(std, rel=1e-5)
    torch.testing.assert_close(model(x), y * scale.factor)
    assert float(model(torch.randn(256, 3, 32, 32)).detach().std()) == pytest.approx(std, rel=0.5)


@pytest.mark.parametrize(("call", "message"), [
    (lambda m, x: surgery.insert_scale(m, 1.0), "one of them"),
    (lambda m, x: surgery.insert_scale(m, 1.0, before="fc1", after="fc1"), "one of them"),
    (lambda m, x: surgery.insert_scale(m, 0.0, before="fc1"), "finite and not 0"),
    (lambda m, x: surgery.insert_scale(m, 1.0, before="fc7"), "no module 'fc7': did you mean fc2 or fc1"),
    (lambda m, x: surgery.scale_input(m, 0 * x), "reads nothing but zeros"),
    (lambda m, x: surgery.normalise_output(m, x, std=0.0), "pass a positive standard deviation"),
    (lambda m, x: surgery.normalise_output(m, torch.ones_like(x) * 0), "no factor makes it 0.05"),
    (lambda m, x: surgery.correct_kernels(m, typical=0.0), "pass the side of a kernel"),
])  # fmt: skip
def test_what_cannot_be_is_refused_and_nothing_changes(call, message: str) -> None:
    model, x = init.apply(mlp([4, 3, 2]), "fan-in"), torch.randn(8, 4)
    with unchanged(model), pytest.raises(HessdiagError, match=message):
        call(model, x)


def test_layers_that_are_never_called_and_names_that_are_taken_are_refused() -> None:
    with pytest.raises(HessdiagError, match="is never called"):
        surgery.insert_scale(build("attention")[0], 2.0, before="attend.out_proj")
    model = keywords()
    model.fc.input_scale = nn.Parameter(torch.ones(3))
    with pytest.raises(HessdiagError, match="a Parameter"):
        surgery.insert_scale(model, 2.0, before="fc")


RESCALED = {
    "tokens": (lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2)), (5, 2)),
    "tied embedding": (lambda: nn.Sequential(
        table := nn.Embedding(7, 3), nn.Tanh(), having(nn.Linear(3, 7, bias=False), weight=table.weight)), (5,)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.Tanh(), nn.Conv2d(6, 2, 3), nn.Flatten()),
        (5, 4, 6, 6)),
    "transposed": (lambda: chain(nn.ConvTranspose1d(2, 3, 2), nn.Tanh(), last=(15, 2)), (5, 2, 4)),
}  # fmt: skip


@pytest.mark.parametrize(("make", "size"), RESCALED.values(), ids=RESCALED)
def test_a_rescaled_weight_changes_its_own_numbers_by_a_power_and_nothing_else(make, size: tuple[int, ...]) -> None:
    model = make().double()
    words = isinstance(model[0], nn.Embedding)
    x = torch.randint(7, size) if words else torch.randn(size, dtype=torch.float64)
    y, before, s = model(x), diagnose(model, x, **PLAIN), 1.7
    surgery.rescale_weight(model, "0.weight", s)
    torch.testing.assert_close(model(x), y, rtol=1e-12, atol=1e-12)
    for old, new in zip(before.blocks, diagnose(model, x, **PLAIN).blocks, strict=True):
        power = -4 if old.name == "0.weight" else 0
        for key in ("avg_sq_singular_value", "nu", "gamma", "gamma_intrinsic"):
            expected = getattr(old, key) * s**power
            assert getattr(new, key) == pytest.approx(expected, rel=1e-9, nan_ok=True), (old.name, key)
        assert new.relative_curvature == pytest.approx(old.relative_curvature, rel=1e-9)


@pytest.mark.parametrize(("name", "factor", "message"), [
    ("0.weight", 0.0, "factor 0.0: pass a finite number above 0"),
    ("0.wieght", 2.0, "no weight '0.wieght': did you mean 0.weight"),
    ("0.bias", 2.0, "no multiplier makes up for a factor on the bias of a Linear"),
    ("1.weight", 2.0, "no multiplier makes up for a factor on the weight of a LayerNorm"),
    ("2.out_proj.weight", 2.0, "never called"),
])  # fmt: skip
def test_weights_that_cannot_be_rescaled_are_refused_and_stay(name: str, factor: float, message: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.MultiheadAttention(4, 2))
    with unchanged(model), pytest.raises(HessdiagError, match=message):
        surgery.rescale_weight(model, name, factor)


def test_a_scale_multiplies_forward_and_backward_and_is_saved_untrained() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = Scale(3.0)(x)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([3.0, -6.0], [3.0, 3.0])
    other = Scale(1.0)
    other.load_state_dict(Scale(0.25).state_dict())
    assert (float(other.factor), repr(other), list(other.parameters())) == (0.25, "Scale(0.25)", [])
    with pytest.raises(HessdiagError, match="a fixed multiplier is finite and not 0"):
        Scale(math.nan)
