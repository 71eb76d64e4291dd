"""Initialisations that users write: of weights or of layers, repeatable, and refused when they go wrong."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from hessdiag.errors import HessdiagError
from hessdiag.loading.initialisation import ADVICE, CALLED, apply_function, called_with, resolve
from hessdiag.loading.user_code import NamedFunction
from hessdiag.network.blocks import swap_inputs_and_outputs
from tests.networks import chain


def network() -> nn.Sequential:
    return nn.Sequential(*chain(nn.Conv2d(2, 3, 2), last=(12, 4)), nn.LayerNorm(4), nn.Linear(4, 2, bias=False))


def of(function) -> NamedFunction:
    return NamedFunction("--init", "i:f", function)


def by_name(layer):
    if isinstance(layer, (nn.Linear, nn.Conv2d)):
        layer.weight.fill_(2.0)
        if layer.bias is not None:
            layer.bias.fill_(3.0)


def in_place(weight: Tensor) -> None:
    weight.fill_(2.0)


def returned(w):
    return torch.full_like(w, 2.0)


class Callable:
    def __call__(self, x: Tensor) -> None:
        x.fill_(2.0)


@pytest.mark.parametrize(("function", "kind"), [
    (by_name, "module"), (lambda model: None, "model"), (lambda m: None, "module"), (in_place, "weight"),
    (returned, "weight"), (Callable(), "weight"), (nn.init.orthogonal_, "weight"), (lambda: None, "weight"),
    (max, "weight"),
])  # fmt: skip
def test_the_first_parameter_decides(function, kind: str) -> None:
    assert called_with(function) == kind


def guarded(m):
    if isinstance(m, (nn.Linear, nn.Conv2d)):
        nn.init.constant_(m.weight, 2.0)
        if m.bias is not None:
            nn.init.constant_(m.bias, 3.0)
    elif isinstance(m, nn.LayerNorm):
        nn.init.constant_(m.weight, 5.0)


def whole(model):
    for module in model.modules():
        guarded(module)


@pytest.mark.parametrize(("function", "kind"), [
    (guarded, "module"), (lambda m: guarded(m), "module"), (whole, "model"),
])  # fmt: skip
def test_pytorchs_conventions(function, kind: str) -> None:
    """Norms are set too, biases as the function has it, by the same numbers as `model.apply` or a plain call."""
    told: list[str] = []
    model = apply_function(network(), of(function), say=told.append)
    assert told == [CALLED[kind]]
    plain = network()
    plain.apply(guarded)
    assert [bool((a == b).all()) for a, b in zip(model.parameters(), plain.parameters(), strict=True)] == [True] * 7
    assert bool((model[3].weight == 5).all())


def draws(m):
    if isinstance(m, (nn.Linear, nn.Conv2d)):
        nn.init.normal_(m.weight)


def adds_one(model):
    for parameter in model.parameters():
        parameter.data.add_(1.0)


@pytest.mark.parametrize(("function", "each"), [(draws, True), (adds_one, False)])
def test_without_a_generator_the_numbers_are_those_of_plain_calls(function, each: bool) -> None:
    model = network()
    plain, state = copy.deepcopy(model), torch.get_rng_state()
    plain.apply(function) if each else function(plain)
    torch.set_rng_state(state)
    apply_function(model, of(function))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_layers_left_alone_are_named_and_a_generator_makes_it_repeat() -> None:
    def only_linear(m: nn.Module) -> None:
        if isinstance(m, nn.Linear):
            m.weight.data.fill_(2.0)  # which counts no versions

    told: list[str] = []
    model = apply_function(network(), of(only_linear), say=told.append)
    assert told == [f"{CALLED['module']}; it left the weights of '0' as they were"]
    assert bool((model[2].weight == 2).all())
    first, again, other = (
        apply_function(network(), of(nn.init.normal_), generator=torch.Generator().manual_seed(seed))[2].weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    before = torch.get_rng_state()
    apply_function(nn.Sequential(), of(nn.init.normal_), generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("function", "bias"), [(by_name, 3.0), (in_place, 0.0), (returned, 0.0)])
def test_every_layer_is_initialised_and_nothing_else(function, bias: float) -> None:
    model = apply_function(network(), of(function))
    apply_function(model, of(function))  # the same values again are no reason to refuse
    assert all(bool((model[i].weight == 2).all()) for i in (0, 2, 4))
    assert all(bool((model[i].bias == bias).all()) for i in (0, 2))
    assert bool((model[3].weight == 1).all())
    assert all(p.requires_grad and p.grad_fn is None for p in model.parameters())


def raises(weight):
    raise ValueError("gain must be positive")


def only_norms(m):
    if isinstance(m, nn.LayerNorm):
        nn.init.zeros_(m.weight)


def makes_complex(model):
    model[0].weight = nn.Parameter(model[0].weight.to(torch.complex64))


def unguarded(module):
    module.weight.fill_(1.0)


@pytest.mark.parametrize(("function", "message"), [
    (raises, "raised ValueError: gain must be positive"),
    (lambda weight: weight.fill_(float("nan")), r"left '0' without a weight of shape \(3, 2, 2, 2\) and finite"),
    (lambda weight: torch.ones(2), r"returned torch.float32 of shape \(2,\): return .* shape \(3, 2, 2, 2\)"),
    (lambda model: setattr(model[0], "weight", nn.Parameter(torch.ones(1, 1))), "left '0' without a weight of shape"),
    (unguarded, "raised AttributeError: 'Flatten' object has no"),
    (lambda weight: np.ones(weight.shape), "returned a ndarray: return a float tensor"),
    (lambda weight: weight.to(torch.complex64), "returned torch.complex64 of shape"),
    (lambda weight: torch.ones_like(weight, dtype=torch.int64), "returned torch.int64 of shape"),
    (lambda weight: weight.to("meta"), "raised NotImplementedError: Cannot copy out of meta tensor"),
    (lambda weight: torch.ones_like(weight).to_sparse(), "raised RuntimeError"),
    (lambda weight: (yield weight), "returned a generator: return a float tensor"),
    (lambda model: (yield model), "was called once, with the whole model, and changed no weight"),
    (lambda weight: weight.detach(), f"was {CALLED['weight']}, and changed no weight: {ADVICE}"),
    (lambda m: None, "was called with every module, as by model.apply, and changed no weight"),
    (lambda model: None, "was called once, with the whole model, and changed no weight"),
    (lambda model: copy.deepcopy(model).apply(guarded), "returned another module"),
    (only_norms, "was .*changed no weight"), (makes_complex, "left '0' without a weight of shape"),
    (lambda: None, "raised TypeError"), (lambda weight, gain: None, "raised TypeError"),
])  # fmt: skip
def test_what_goes_wrong_is_one_line(function, message: str) -> None:
    with pytest.raises(HessdiagError, match=f"^--init 'i:f'(, called with a Flatten,)? {message}"):
        apply_function(network(), of(function))


@pytest.mark.parametrize(("scheme", "message"), [
    ("fan-inn", "did you mean fan-in"), ("kaiming", "it is called fan-in here"),
    ("Xavier_normal", "it is called arithmetic here"),
    ("zzz", "use one of fan-in, fan-out, arithmetic, geometric, fan-in-orthogonal, "),
    ("torch.nn.init:kaiming_norml_", "did you mean kaiming_normal_"),
])  # fmt: skip
def test_an_unknown_scheme_offers_the_nearest(scheme: str, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        resolve(scheme)


def test_by_reference(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def two(weight):\n    return weight * 0 + 2\n")
    model = resolve(f"{tmp_path}/mine.py:two")(network(), generator=torch.Generator())
    assert bool((model[2].weight == 2).all())
    resolve("torch.nn.init:kaiming_normal_")(network())
    assert resolve(nn.init.ones_)(network())[2].weight.unique().tolist() == [1.0]
    with pytest.raises(HessdiagError, match="init is a Linear: pass a name such as 'fan-in', or a function"):
        resolve(nn.Linear(2, 2))


@pytest.mark.parametrize(("layer", "shape"), [
    (nn.ConvTranspose2d(4, 6, 3, groups=2), (6, 2, 3, 3)), (nn.ConvTranspose1d(4, 5, 3), (5, 4, 3)),
    (Conv1D(5, 4), (5, 4)), (nn.Conv2d(4, 6, 3, groups=2), (6, 2, 3, 3)),
])  # fmt: skip
def test_functions_of_weights_see_outputs_first(layer: nn.Module, shape: tuple[int, ...]) -> None:
    seen = []

    def fill(weight: Tensor) -> Tensor:
        seen.append(tuple(weight.view(-1).view(weight.shape).shape))  # in order
        return torch.randn_like(weight)

    apply_function(nn.Sequential(layer), of(fill))
    assert seen == [shape]


def test_inputs_and_outputs_are_swapped_within_groups() -> None:
    """A transposed convolution is the gradient of the convolution with the swapped weight's own layout."""
    layer = nn.ConvTranspose1d(4, 6, 1, groups=2, bias=False)
    swapped = swap_inputs_and_outputs(layer.weight, groups=2)
    x = torch.randn(2, 4, 5)
    torch.testing.assert_close(layer(x), nn.functional.conv1d(x, swapped, groups=2))
    assert torch.equal(swap_inputs_and_outputs(swapped, groups=2), layer.weight)
