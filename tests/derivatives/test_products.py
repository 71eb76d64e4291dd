"""Jacobians of layers by their rules, which are autograd's; and products, which are the same in both modes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hessdiag.derivatives.backward import unfold, weight_jacobian
from hessdiag.derivatives.jacobians import DenseJacobian
from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Products
from hessdiag.network.preserve import preserve_state
from tests.curvature.problems import problem_of
from tests.kinds import Cube
from tests.networks import BUILDERS, RECURRENT, Net, build

LAYERS = {
    "conv1d": (nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 9)),
    "conv2d": (nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0)), (2, 5, 6)),
    "dilated": (nn.Conv2d(2, 4, 2, dilation=(2, 1)), (2, 5, 5)), "grouped": (nn.Conv2d(4, 6, 3, groups=2), (4, 4, 4)),
    "conv3d": (nn.Conv3d(2, 3, 2, stride=2), (2, 4, 4, 4)),
    "reflected": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), (2, 4, 4)),
    "more sites than inputs": (nn.Conv2d(1, 3, 2, padding=1), (1, 4, 4)), "linear": (nn.Linear(4, 3), (4,)),
    "linear on positions": (nn.Linear(4, 3), (6, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_rows_are_weight_gradients(name: str) -> None:
    layer, size = LAYERS[name]
    layer, x = layer.double(), torch.randn(3, *size, dtype=torch.float64)
    phi = torch.randn(2, *layer(x).shape, dtype=torch.float64)
    J = weight_jacobian(layer, x, phi, examples=3)
    for b in range(3):
        for c in range(2):
            (want,) = torch.autograd.grad((layer(x)[b] * phi[c, b]).sum(), layer.weight)
            torch.testing.assert_close(J.dense().J[b, c], want.flatten(), rtol=1e-12, atol=1e-13)
    gram = torch.einsum("bcp,bdp->bcd", J.dense().J, J.dense().J)
    torch.testing.assert_close(J.gram(), gram, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("held", [1, 3000, 10**9])
def test_a_jacobian_smaller_than_its_factors_is_formed_a_few_examples_at_a_time(held: int, monkeypatch) -> None:
    monkeypatch.setattr("hessdiag.derivatives.backward.PIECE", held)
    layer = nn.Conv2d(2, 3, 2).double()
    x, phi = torch.randn(6, 2, 5, 5).double(), torch.randn(4, 6, 3, 4, 4).double()
    J = weight_jacobian(layer, x, phi, examples=3)
    assert isinstance(J, DenseJacobian)
    want = torch.einsum("crnt,rdt->crnd", phi.flatten(3), unfold(layer, x)).unflatten(1, (3, 2)).sum(2)
    torch.testing.assert_close(J.J, want.transpose(0, 1).flatten(2), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1e-25, 1e25])
@pytest.mark.parametrize("sites", [2, 6])
def test_factors_that_leave_float32_when_squared_are_scaled(size: float, sites: int) -> None:
    layer = nn.Conv2d(2, 3, 2)
    x, phi = torch.randn(3, 2, sites, sites), torch.randn(4, 3, 3, sites - 1, sites - 1)
    small = weight_jacobian(layer, x * size, phi * size, examples=3)
    gram = weight_jacobian(layer.double(), x.double(), phi.double(), examples=3).gram()
    torch.testing.assert_close(small.gram() / size**2 / size**2, gram, rtol=1e-4, atol=1e-4)


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
    assert (products.mode == AD_MODES[0]) == (network not in RECURRENT)  # whose double backward has no batching rule


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
    parameters, value = [model.get_parameter(name) for name in at], problem.loss.value(model(x), None).sum()
    gradient = torch.autograd.grad(value, parameters, create_graph=True)
    along = sum((g * r[name]).sum() for g, name in zip(gradient, at, strict=True))
    for want, name in zip(torch.autograd.grad(along, parameters), at, strict=True):
        torch.testing.assert_close(got[name], want, rtol=1e-10, atol=1e-12)
