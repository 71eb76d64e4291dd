"""What is written out has torch's values and derivatives, and is right where torch's own are not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vjp, vmap

import hessdiag
from hessdiag.data.seeds import user_code
from hessdiag.network.torch_state import measuring
from tests.networks import Net
from tests.oracles import values_of

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "one slope": nn.PReLU, "slope of each channel": lambda: nn.PReLU(5),
    "batch norm": lambda: nn.BatchNorm2d(5).eval(), "batch norm in training": lambda: nn.BatchNorm2d(5),
    "batch norm without parameters": lambda: nn.BatchNorm2d(5, affine=False).eval(),
    "batch norm without statistics": lambda: nn.BatchNorm2d(5, track_running_stats=False).eval(),
    "instance norm": lambda: nn.InstanceNorm2d(5),
    "instance norm with parameters": lambda: nn.InstanceNorm2d(5, affine=True),
    "instance norm with statistics": lambda: nn.InstanceNorm2d(5, affine=True, track_running_stats=True).eval(),
}  # fmt: skip
every_layer = pytest.mark.parametrize("name", LAYERS)


def made(name: str) -> nn.Module:
    layer = LAYERS[name]().double()
    for tensor in (*layer.parameters(), *layer.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 2)
    return layer


def gradients(layer: nn.Module, x: Tensor, cotangent: Tensor, *, turned: bool = False) -> list[Tensor]:
    """Outputs and their gradients, for a cotangent (B, sites, channels); `turned` as a stem gets it, else laid out."""
    x = x.clone().requires_grad_()
    y, at = layer(x).flatten(2), [x, *layer.parameters()]
    if turned:
        return [y, *torch.autograd.grad(y.transpose(1, 2), at, cotangent)]
    return [y, *torch.autograd.grad(y, at, cotangent.transpose(1, 2).contiguous())]


@pytest.mark.parametrize("examples", [1, 3])
@every_layer
def test_values_and_gradients_are_torchs(name: str, examples: int) -> None:
    layer = made(name)
    x = torch.randn(examples, 5, 2, 3, dtype=torch.float64)
    cotangent = torch.randn(examples, 6, 5, dtype=torch.float64)
    expected = gradients(layer, x, cotangent)
    with measuring(nn.Linear(1, 1)), user_code():
        found = gradients(layer, x, cotangent)
        turned = gradients(layer, x, cotangent, turned=True)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(turned, expected, rtol=1e-12, atol=1e-13)


@every_layer
def test_second_derivatives_are_right(name: str) -> None:
    layer, x = made(name), torch.randn(1, 5, 1, 2, dtype=torch.float64, requires_grad=True)
    with measuring(nn.Linear(1, 1)), user_code():
        assert torch.autograd.gradgradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))


def test_larger_batches_take_torchs_own_way() -> None:
    layer, x = made("batch norm"), torch.randn(2, 5, 2, 2, dtype=torch.float64)
    with measuring(nn.Linear(1, 1)), user_code():
        assert type(layer(x).grad_fn).__name__ == "NativeBatchNormBackward0"


@pytest.mark.parametrize("channels", [1, 3])
def test_prelu_in_two_vmaps_is_that_of_one_at_a_time(channels: int) -> None:
    x, v = torch.randn(4, 1, 3, dtype=torch.float64), torch.randn(4, 4, 1, 3, dtype=torch.float64)
    slope = torch.rand(channels, dtype=torch.float64)

    def pulled(x: Tensor, vs: Tensor) -> Tensor:
        return vmap(lambda v: vjp(lambda a: F.prelu(x, a), slope)[1](v)[0])(vs)

    expected = ((x < 0) * x).unsqueeze(1) * v
    with measuring(nn.Linear(1, 1)), user_code():
        found = vmap(pulled)(x, v)
    torch.testing.assert_close(found, expected.sum(2) if channels > 1 else expected.sum((2, 3)).unsqueeze(2))


def stem(norm: nn.Module) -> nn.Module:
    rule = lambda m, x: m.last(m.norm(m.conv(x)).flatten(2).transpose(1, 2)).tanh().sum(1)  # noqa: E731
    return Net(rule, conv=nn.Conv2d(1, 3, 2), norm=norm, last=nn.Linear(3, 2))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(3), nn.InstanceNorm2d(3, affine=True)])
@pytest.mark.parametrize("examples", [1, 3])
def test_a_stem_with_normalisation_is_measured_right(norm: nn.Module, examples: int) -> None:
    model, x = stem(norm).eval().double(), torch.randn(examples, 1, 3, 3, dtype=torch.float64)
    report = hessdiag.diagnose(model, x, loss=lambda y, _: y.square().sum() / len(y), mode="eval", method="exact")
    names = [block.name for block in report.blocks]
    rows = [_rows(model, one, names) for one in x]
    expected = [float(sum((2 * J[n].T @ J[n]).square().sum() / J[n].shape[1] for J in rows)) / len(x) for n in names]
    assert list(values_of(report).values()) == pytest.approx(expected, rel=1e-10)


def _rows(model: nn.Module, one: Tensor, names: list[str]) -> dict[str, Tensor]:
    """∂y/∂W of an example, of which the batch holds two, where torch is right."""
    at = [model.get_parameter(name) for name in names]
    rows = [torch.autograd.grad(model(torch.stack([one, one]))[0, k], at) for k in range(2)]
    return {name: torch.stack([row[i].flatten() for row in rows]) for i, name in enumerate(names)}


def test_attention_takes_every_kind_of_mask_as_torch_does() -> None:
    q, k, v = torch.randn(3, 2, 4, 3, 5, dtype=torch.float64).transpose(2, 3)  # heads, of which models take views
    seen = torch.tensor([[True, False, True, True], [False, True, False, False]] * 2)
    for mask in (None, seen, torch.where(seen, 0.5, -torch.inf).double()):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
        with measuring(nn.Linear(1, 1)), user_code():
            y = F.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13, check_stride=True)


@pytest.mark.parametrize("layer", [
    nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), nn.Conv1d(4, 6, 3, padding="same", dilation=2, bias=False),
    nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"),
    nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
])  # fmt: skip
def test_a_hessian_goes_through_convolutions_of_sequences(layer: nn.Module) -> None:
    x = torch.randn(6, 9, 4).mT
    expected = layer(x)
    with measuring(layer), user_code():
        torch.testing.assert_close(layer(x), expected, check_stride=True)
        torch.testing.assert_close(layer(x[0]), expected[0])
    model, targets = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)), torch.arange(6) % 2
    model(x)
    found = hessdiag.diagnose(model, x, targets, matrix="hessian", per="batch", method="exact")
    right = hessdiag.diagnose(model.double(), x.double(), targets, matrix="hessian", per="batch", method="exact")
    assert values_of(found) == pytest.approx(values_of(right), rel=1e-3)


def test_groups_of_one_number_are_named() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(4, 4), nn.Tanh(), nn.Linear(4, 3))
    report = hessdiag.diagnose(model, torch.randn(8, 6), torch.arange(8) % 3)
    (found,) = (each for each in report.findings if each.rule == "HD109")
    assert found.blocks[0] == "1.weight"
    assert "is one number" in found.message
    assert "fewer groups" in found.advice
