"""What a user types for MODEL, and what is offered for what cannot be meant."""

import pytest
import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.models import StridedLeNet, resolve_model


def test_lenet() -> None:
    source = resolve_model("lenet")
    assert (source.name, source.input_size) == ("lenet", (3, 32, 32))
    assert isinstance(source.build(), StridedLeNet)


@pytest.mark.parametrize("channels", [1, 4])
def test_lenet_of_other_channels(channels: int) -> None:
    source = resolve_model("lenet", in_channels=channels)
    assert source.input_size == (channels, 32, 32)
    assert source.build()(torch.zeros(2, channels, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(("specification", "widths"), [("mlp:5-2", [5, 2]), ("mlp:784-384-64-10", [784, 384, 64, 10])])
def test_mlp(specification: str, widths: list[int]) -> None:
    source = resolve_model(specification)
    assert (source.name, source.input_size) == (specification, (widths[0],))
    layers = [m for m in source.build().modules() if isinstance(m, nn.Linear)]
    assert [layer.in_features for layer in layers] == widths[:-1]
    assert [layer.out_features for layer in layers] == widths[1:]


@pytest.mark.parametrize("specification", ["lenet", "mlp:5-4-2"])
def test_every_build_is_a_new_network_from_torchs_random_state(specification: str) -> None:
    source = resolve_model(specification)

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(source.build().parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


@pytest.mark.parametrize(
    ("specification", "hint"),
    [
        ("LeNet", "did you mean lenet?"),
        ("lenet5", "did you mean lenet?"),
        ("lenet:3", "did you mean lenet?"),
        ("lnet", "did you mean lenet?"),
        ("mlpp:3-2", "did you mean mlp:784-384-64-10?"),
        ("MLP:3-2", "did you mean lenet or mlp:784-384-64-10?"),
        ("zzz", "did you mean lenet or mlp:784-384-64-10?"),
        ("", "did you mean lenet or mlp:784-384-64-10?"),
    ],
)
def test_the_nearest_specification_is_offered(specification: str, hint: str) -> None:
    with pytest.raises(HessdiagError) as caught:
        resolve_model(specification)
    assert str(caught.value) == f"unknown model {specification!r}: {hint}"


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
