"""Jacobians of layers by their rules, which are autograd's; and products, which are the same in both modes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hessdiag.derivatives.sampled_softmax as sampled_softmax
from hessdiag.derivatives.backward import unfold, weight_jacobian
from hessdiag.derivatives.jacobians import DenseJacobian, JacobianSum, LookupJacobian, merge
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.products import AD_MODES, PRODUCTS, Products
from hessdiag.derivatives.sampled_softmax import DRAWS, SampledSoftmax, SampledSoftmaxFactor
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
    layer = layer.double()
    x = torch.randn(3, *size, dtype=torch.float64)
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
    """Also of several rows of each example."""
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
    parameters = [model.get_parameter(name) for name in at]
    value = problem.loss.value(model(x), None).sum()
    gradient = torch.autograd.grad(value, parameters, create_graph=True)
    along = sum((g * r[name]).sum() for g, name in zip(gradient, at, strict=True))
    for want, name in zip(torch.autograd.grad(along, parameters), at, strict=True):
        torch.testing.assert_close(got[name], want, rtol=1e-10, atol=1e-12)


B, T, V, d = 2, 3, 7, 4


def draw(y: Tensor, weights: Tensor, *, count: int = 5, examples: tuple[int, ...] = (0, 1)) -> SampledSoftmax:
    return SampledSoftmax.draw(y, weights, count=count, seed=0, name="test", examples=examples)


def formed(drawn: SampledSoftmax) -> Tensor:
    """(C, B, T, V)."""
    return torch.stack([drawn.formed(b, torch.arange(drawn.p.shape[2])) for b in range(len(drawn.p))], dim=1)


@pytest.mark.parametrize("peaked", [0.0, 1.0, 5.0])
def test_second_moments_are_the_hessian(peaked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four standard errors of a mean over many, of few draws each; other positions have nothing in common."""
    monkeypatch.setattr(sampled_softmax, "DRAWS", 3)
    y, weights, count = torch.randn(1, 2, V, dtype=torch.float64) * peaked, torch.tensor([[0.3, 2.0]]).double(), 20000
    phi = formed(draw(y, weights, count=count, examples=(0,)))[:, 0]  # (count, T, V)
    p = y[0].softmax(dim=1)
    S = (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)) * weights[0, :, None, None]
    products = phi.unsqueeze(3) * phi.unsqueeze(2)  # (count, T, V, V)
    error = products.std(dim=0) / count**0.5
    rare = 10 * float(S.max()) / count  # classes of which hardly any is drawn
    assert bool(((products.mean(dim=0) - S).abs() <= 4.5 * error + rare).all())
    between = phi[:, 0, :, None] * phi[:, 1, None, :]
    assert bool((between.mean(dim=0).abs() <= 4.5 * between.std(dim=0) / count**0.5 + 1e-12).all())


@pytest.mark.parametrize("logit", [10.0, 20.0, 40.0, 1000.0])
def test_a_certain_network_has_gradients_as_large_as_its_hessian(logit: float) -> None:
    """Each is as long as the root of tr S, not large now and then; where all is certain, there are none."""
    y = torch.zeros(1, 1, V, dtype=torch.float64)
    y[..., 2] = logit
    drawn = draw(y, torch.ones(1, 1, dtype=torch.float64), count=50, examples=(0,))
    p = y[0, 0].softmax(dim=0)
    trace = float((p * (1 - p)).sum())
    lengths = formed(drawn).flatten(1).square().sum(dim=1)
    assert bool(lengths.isfinite().all())
    assert float(lengths.mean()) == pytest.approx(trace, rel=0.2, abs=1e-15)
    assert float(lengths.max()) <= DRAWS * trace * (1 + 1e-6)


def test_products_take_no_gradient_formed_and_draws_belong_to_the_example() -> None:
    drawn = draw(torch.randn(B, T, V).double(), torch.rand(B, T).double())
    weight = torch.randn(V, d).double()
    torch.testing.assert_close(drawn.through(weight), formed(drawn) @ weight, rtol=1e-12, atol=1e-12)
    torch.manual_seed(0)
    y, weights = torch.randn(B, T, V), torch.rand(B, T)
    both, one = draw(y, weights, examples=(4, 9)), draw(y[1:], weights[1:], examples=(9,))
    assert torch.equal(formed(both)[:, 1:], formed(one))
    assert not torch.equal(both.classes[:, 0], both.classes[:, 1])


@pytest.mark.parametrize("loss", [CrossEntropy(class_dim=-1, label_smoothing=0.1), CrossEntropy(class_dim=-1)])
def test_only_labels_have_weights(loss: CrossEntropy) -> None:
    y = torch.randn(B, T, V)
    assert loss.label_weights(y, None) is None
    assert loss.label_weights(y, y.softmax(dim=2)) is None
    assert (loss.label_weights(y, torch.zeros(B, T, dtype=torch.int64)) is None) == bool(loss.label_smoothing)


def drawn_sites(peaked: float = 1.0) -> SampledSoftmaxFactor:
    """Of B examples; the more peaked, the more often a class is drawn."""
    y, weights = torch.randn(B, 6, 30).double() * peaked, torch.rand(B, 6, dtype=torch.float64)
    weights[0, 1] = 0
    return SampledSoftmaxFactor(torch.randn(B, d, 6).double(), draw(y, weights), size=3.0)


@pytest.mark.parametrize("peaked", [0.0, 2.0, 30.0])
def test_everything_is_that_of_formed_gradients(peaked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formed for a few classes at a time."""
    monkeypatch.setattr(sampled_softmax, "FORMED", 200)
    J, same = drawn_sites(peaked), {"rtol": 1e-11, "atol": 1e-11}
    formed = J.low_rank()
    numbers = torch.tensor([[3, 5, 0, 0], [1, 2, 29, 0]])
    assert J.shape == formed.shape == (B, 5)
    torch.testing.assert_close(J.gram(), formed.gram(), **same)
    torch.testing.assert_close(J.cross(J), formed.cross(formed), **same)
    torch.testing.assert_close(J.rows(numbers, 30), formed.rows(numbers, 30), **same)
    torch.testing.assert_close(J.total(), formed.total(), **same)
    torch.testing.assert_close(J.dense().J, formed.dense().J, **same)
    torch.testing.assert_close(J.narrow(1, 2).gram(), formed.gram()[1:], **same)
    torch.testing.assert_close(J.cross(formed), formed.cross(formed), **same)


def test_a_tied_embedding_adds_up_and_no_gradient_is_formed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weight of an embedding and of the head: the rows that its tokens read are all that the two share."""
    J = drawn_sites()
    read = LookupJacobian.of(torch.randint(30, (B, 6)), torch.randn(B, 5, 6, d).double(), 30)
    tied, formed = merge([J, read]), merge([J.low_rank(), read])
    assert isinstance(tied, JacobianSum)
    torch.testing.assert_close(tied.gram(), formed.gram(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(tied.cross(tied), formed.cross(formed), rtol=1e-11, atol=1e-11)
    monkeypatch.delattr(SampledSoftmaxFactor, "low_rank")  # Of a language model each takes T × V numbers.
    assert tied.gram().shape == (B, 5, 5)


def test_inputs_whose_squares_leave_float32_are_held_smaller() -> None:
    J = drawn_sites()
    single = SampledSoftmax(J.drawn.classes, J.drawn.sizes.float(), J.drawn.p.float())
    tiny = SampledSoftmaxFactor.of(J.u.float() * 1e-30, single)
    assert float(tiny.u.abs().max()) == 1.0
    plain = SampledSoftmaxFactor.of(J.u.float(), single).gram().double()
    torch.testing.assert_close(tiny.gram() * 1e60, plain, rtol=1e-5, atol=1e-6)
