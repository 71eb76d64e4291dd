"""The fixed multiplier as a layer."""

import math

import pytest
import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.scale import Scale


def test_it_multiplies_forward_and_backward() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    y = Scale(3.0)(x)
    assert y.tolist() == [3.0, -6.0]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_the_factor_is_saved_and_never_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Scale(0.25))
    other = nn.Sequential(nn.Linear(2, 2), Scale(1.0))
    assert len(list(model.parameters())) == 2
    other.load_state_dict(model.state_dict())
    assert float(other[1].factor) == 0.25
    assert repr(other[1]) == "Scale(0.25)"


@pytest.mark.parametrize("factor", [0.0, math.nan, math.inf])
def test_factors_that_cannot_be_are_refused(factor: float) -> None:
    with pytest.raises(HessdiagError, match="a fixed multiplier is finite and not 0"):
        Scale(factor)
