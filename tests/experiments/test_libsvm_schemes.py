"""The initialisations that users know have the moments that their libraries give them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hessdiag.execution.seeds import stream
from hessdiag.experiments.libsvm_schemes import OTHERS, PAPER, initialise
from hessdiag.models.mlp import mlp

WIDTHS = [200, 384, 64]


@pytest.mark.parametrize(
    ("scheme", "known"),
    [
        ("xavier", nn.init.xavier_normal_),
        ("lecun", lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="linear")),
        ("fan-in", nn.init.kaiming_normal_),
        (
            "pytorch-default",
            lambda weight: nn.init.kaiming_uniform_(weight, a=5**0.5),
        ),
    ],
)
def test_second_moments_are_those_of_torch(scheme: str, known) -> None:
    model = initialise(mlp(WIDTHS), scheme, stream(0, "initialisation"))
    for layer in (model.fc1, model.fc2):
        torch.manual_seed(0)
        expected = known(torch.empty_like(layer.weight)).square().mean()
        assert float(layer.weight.detach().square().mean()) == pytest.approx(float(expected), rel=0.03)
        assert bool(layer.bias.any()) == (scheme == "pytorch-default")


def test_the_default_is_bounded_as_in_torch() -> None:
    made, fresh = initialise(mlp(WIDTHS), "pytorch-default", stream(0, "initialisation")), mlp(WIDTHS)
    for own, other in zip(made.parameters(), fresh.parameters(), strict=True):
        assert float(own.detach().abs().max()) == pytest.approx(float(other.detach().abs().max()), rel=0.05)


@pytest.mark.parametrize("scheme", [*PAPER, *OTHERS])
def test_a_seed_gives_the_same_weights_whatever_the_global_state(scheme: str) -> None:
    torch.manual_seed(1)
    first = initialise(mlp(WIDTHS), scheme, stream(3, "initialisation"))
    torch.manual_seed(2)
    second = initialise(mlp(WIDTHS), scheme, stream(3, "initialisation"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_the_papers_schemes_scale_the_same_numbers() -> None:
    weights = [initialise(mlp(WIDTHS), scheme, stream(0, "initialisation")).fc1.weight.detach() for scheme in PAPER]
    for weight in weights[1:]:
        ratio = weight / weights[0]
        assert float(ratio.std() / ratio.mean()) < 1e-4
