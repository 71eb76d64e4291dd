"""The model as a function of its blocks."""

import pytest
import torch
from torch import nn
from torch.func import grad

from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward import FunctionalModel, functional_jacobians
from hessdiag.network.blocks import find_blocks
from tests.networks import Multiplier, build


@pytest.mark.parametrize("network", ["two paths", "tied", "called twice"])
def test_shared_parameters_are_replaced_everywhere_and_the_model_is_untouched(network: str) -> None:
    """functional_call on a submodule with two paths overwrites the user's weights (pytorch#164759)."""
    model, x = build(network)
    before = {name: p.clone() for name, p in model.named_parameters()}
    name, parameter = next(iter(model.named_parameters()))
    function = FunctionalModel(model)
    gradient = grad(lambda w: function({name: w}, Batch.of(x, None)).square().sum())(parameter.detach())
    (want,) = torch.autograd.grad(model(x).square().sum(), parameter)
    torch.testing.assert_close(gradient, want)
    for key, parameter in model.named_parameters():
        assert torch.equal(parameter, before[key])


def test_constants_carry_no_graph_and_a_jacobian_is_the_derivative_in_the_scalar() -> None:
    model, x = build("mlp")
    assert not FunctionalModel(model)({}, Batch.of(x, None)).requires_grad
    model = nn.Sequential(nn.Linear(4, 3), Multiplier(0.5)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    (scalar,) = [block for block in find_blocks(model)[0] if block.kind == "scalar"]
    found = functional_jacobians(model, [scalar], Batch.of(x, None), torch.ones(1, *model(x).shape))[scalar.name]
    torch.testing.assert_close(found.view(-1), model[0](x).detach().sum(dim=1))
