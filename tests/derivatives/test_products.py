"""Both modes give the same product, and the right one runs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Products
from hessdiag.network.preserve import preserve_state
from tests.curvature.problems import problem_of
from tests.kinds import Cube
from tests.networks import BUILDERS, RECURRENT, Net, build


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("network", BUILDERS)
def test_all_modes_agree(network: str, matrix: str) -> None:
    problem = problem_of(*build(network, batch=2), "random-quadratic")
    with preserve_state(problem.model, seed=0):
        products = Products(problem, matrix)
        at = products._values(problem.blocks)
        r = {name: torch.randn_like(value) for name, value in at.items()}
        found = [PRODUCTS[matrix][mode](products.network, problem.loss, at, r, problem.batch) for mode in AD_MODES]
        for name in at:
            torch.testing.assert_close(found[1][name], found[0][name], rtol=1e-10, atol=1e-11)
    fastest = network not in RECURRENT  # whose double backward has no batching rule
    assert (products.mode == AD_MODES[0]) == fastest


def scaled(layer: nn.Module, turn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A part of the output is computed without gradients: forward mode differentiates it all the same."""
    h = turn(layer(x))
    with torch.no_grad():
        scale = turn(layer(x)).square().mean(dim=1, keepdim=True)
    return h * scale


FAILING = {
    "no_grad inside": lambda m, x: m.last(scaled(m.first, torch.tanh, x)),
    "one number, symmetric all the same": lambda m, x: scaled(m.only, lambda y: y, x),
    "checkpointed": lambda m, x: m.last(checkpoint(lambda z: m.first(z).tanh(), x, use_reentrant=False)),
    "own function": lambda m, x: m.last(Cube.apply(m.first(x))),
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_lower_mode_runs_where_the_first_fails(kind: str) -> None:
    two = {"first": nn.Linear(4, 4), "last": nn.Linear(4, 3)}
    model = Net(FAILING[kind], **({"only": nn.Linear(4, 1, bias=False)} if kind.startswith("one") else two)).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    problem = problem_of(model, x, "random-quadratic")
    products = Products(problem, "hessian")
    assert products.mode != AD_MODES[0]
    assert AD_MODES[0] in products.passed_over
    assert AD_MODES[0] in products.reason
    at = products._values(problem.blocks)
    r = {name: torch.randn_like(value) for name, value in at.items()}
    got = PRODUCTS["hessian"][products.mode](products.network, problem.loss, at, r, problem.batch)
    parameters = [model.get_parameter(name) for name in at]
    value = problem.loss.value(model(x), None).sum()
    gradient = torch.autograd.grad(value, parameters, create_graph=True)
    along = sum((g * r[name]).sum() for g, name in zip(gradient, at, strict=True))
    for want, name in zip(torch.autograd.grad(along, parameters), at, strict=True):
        torch.testing.assert_close(got[name], want, rtol=1e-10, atol=1e-12)
