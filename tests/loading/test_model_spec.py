"""What a user types for MODEL, and what is offered for what cannot be meant."""

import pytest
import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.model_spec import resolve_model
from hessdiag.models import StridedLeNet


def read(specification: str, **options):
    """The network and the shape of one example that it reads."""
    network = resolve_model(specification, **options).build()
    return network.module, tuple(network.inputs(1, torch.Generator()).shape[1:])


def test_lenet() -> None:
    model, size = read("lenet")
    assert isinstance(model, StridedLeNet)
    assert size == (3, 32, 32)


@pytest.mark.parametrize("channels", [1, 4])
def test_lenet_of_other_channels(channels: int) -> None:
    model, size = read("lenet", in_channels=channels)
    assert size == (channels, 32, 32)
    assert model(torch.zeros(2, *size)).shape == (2, 10)


@pytest.mark.parametrize(("specification", "widths"), [("mlp:5-2", [5, 2]), ("mlp:784-384-64-10", [784, 384, 64, 10])])
def test_mlp(specification: str, widths: list[int]) -> None:
    model, size = read(specification)
    assert size == (widths[0],)
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert [layer.in_features for layer in layers] == widths[:-1]
    assert [layer.out_features for layer in layers] == widths[1:]


@pytest.mark.parametrize("specification", ["lenet", "mlp:5-4-2"])
def test_every_build_is_a_new_network_from_torchs_random_state(specification: str) -> None:
    source = resolve_model(specification)

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(source.build().module.parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize(
    ("specification", "hint"),
    [
        ("LeNet", "did you mean lenet? use lenet, mlp:784-384-64-10, hf:CONFIG.json"),
        ("lenet5", "did you mean lenet or alexnet"),
        ("lenet:3", "write lenet alone, and pass options as in --arg classes=100"),
        ("mlpp:3-2", "there is no module 'mlpp'; did you mean mlp"),
        ("zzz", "use lenet, mlp:784-384-64-10, hf:CONFIG.json, timm:NAME, torchvision:NAME"),
        ("", "use lenet, mlp:784-384-64-10"),
    ],
)
def test_the_nearest_specification_is_offered(specification: str, hint: str) -> None:
    with pytest.raises(HessdiagError) as caught:
        resolve_model(specification)
    assert f"model {specification!r}: " in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "3", "3-", "-3", "3--2", "3-0", "0-3", "3-x", "3-2.5", "3 2", "3,2", "²-2", "3:2"]
)
def test_widths_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(HessdiagError, match="write the widths as in mlp:784-384-64-10") as caught:
        resolve_model(f"mlp:{text}")
    assert repr(f"mlp:{text}") in str(caught.value)


@pytest.mark.parametrize("channels", [0, -1])
def test_a_network_needs_an_input_channel(channels: int) -> None:
    with pytest.raises(HessdiagError, match=f"--in-channels {channels}: a network needs at least 1"):
        resolve_model("lenet", in_channels=channels)
