"""Initialisations that users write: of weights or of layers, repeatable, and refused when they go wrong."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from hessdiag import init
from hessdiag.errors import HessdiagError
from hessdiag.user_code.custom_init import apply_function, swap_inputs_and_outputs, takes_modules
from hessdiag.user_code.named_function import NamedFunction


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False)
    )


def of(function) -> NamedFunction:
    return NamedFunction("--init", "i:f", function)


def by_name(module):
    module.weight.fill_(2.0)
    if module.bias is not None:
        module.bias.fill_(3.0)


def by_annotation(layer: nn.Linear):
    by_name(layer)


def by_string_annotation(layer: "nn.Module"):
    by_name(layer)


def in_place(weight: Tensor) -> None:
    weight.fill_(2.0)


def returned(w):
    return torch.full_like(w, 2.0)


@pytest.mark.parametrize(
    ("function", "modules"),
    [
        (by_name, True),
        (by_annotation, True),
        (by_string_annotation, True),
        (in_place, False),
        (returned, False),
        (nn.init.orthogonal_, False),
        (lambda module: None, True),
        (lambda: None, False),
    ],
)
def test_name_or_annotation_decides(function, modules: bool) -> None:
    assert takes_modules(function) is modules


@pytest.mark.parametrize(("function", "bias"), [(by_name, 3.0), (by_annotation, 3.0), (in_place, 0.0), (returned, 0.0)])
def test_every_layer_is_initialised_and_nothing_else(function, bias: float) -> None:
    model = apply_function(network(), of(function))
    for layer in (model[0], model[2], model[4]):
        assert bool((layer.weight == 2).all())
    for layer in (model[0], model[2]):
        assert bool((layer.bias == bias).all())
    assert bool((model[3].weight == 1).all())
    assert all(p.requires_grad and p.grad_fn is None for p in model.parameters())


def test_a_generator_makes_it_repeat_and_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (
        apply_function(network(), of(nn.init.normal_), generator=torch.Generator().manual_seed(seed))[2].weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.set_rng_state(before)
    network_state = torch.get_rng_state()
    apply_function(nn.Sequential(), of(nn.init.normal_), generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), network_state)


def raises(weight):
    raise ValueError("gain must be positive")


def reshapes(module):
    module.weight = nn.Parameter(torch.ones(1, 1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises, "raised ValueError: gain must be positive"),
        (lambda weight: weight.fill_(float("nan")), "left NaN or infinite values in the weight of '0'"),
        (lambda weight: torch.ones(2), "returned shape .2,. for a weight of shape .3, 2, 2, 2."),
        (reshapes, "left '0' without a weight of shape"),
        (lambda: None, "raised TypeError"),
        (lambda weight, gain: None, "raised TypeError"),
    ],
)
def test_what_goes_wrong_is_one_line(function, message: str) -> None:
    with pytest.raises(HessdiagError, match=f"^--init 'i:f' {message}"):
        apply_function(network(), of(function))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("fan-inn", "did you mean fan-in"),
        ("zzz", "use one of fan-in, fan-out, arithmetic, geometric, fan-in-orthogonal, "),
        ("torch.nn.init:kaiming_norml_", "did you mean kaiming_normal_"),
    ],
)
def test_an_unknown_scheme_offers_the_nearest(scheme: str, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        init.resolve(scheme)


def test_by_reference(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def two(weight):\n    return weight * 0 + 2\n")
    model = init.apply(network(), f"{tmp_path}/mine.py:two", generator=torch.Generator())
    assert bool((model[2].weight == 2).all())
    init.apply(network(), "torch.nn.init:kaiming_normal_")


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (6, 2, 3, 3)),
        (nn.ConvTranspose1d(4, 5, 3), (5, 4, 3)),
        (Conv1D(5, 4), (5, 4)),
        (nn.Conv2d(4, 6, 3, groups=2), (6, 2, 3, 3)),
    ],
)
def test_functions_of_weights_see_outputs_first(layer: nn.Module, shape: tuple[int, ...]) -> None:
    seen = []

    def fill(weight: Tensor) -> Tensor:
        seen.append(tuple(weight.shape))
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
