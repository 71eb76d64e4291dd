"""Activations of several operations send gradients back by their derivative; nothing else does."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hessdiag.data.batch import Batch
from hessdiag.network.hooks import Trace, backpropagate, trace

DTYPE = torch.float64


class Written(nn.Module):
    """An activation that a function writes."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Swish(nn.Module):
    """One with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def softmax(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(dim=-1, keepdim=True)


def doubled_in_place(x: Tensor) -> Tensor:
    x.mul_(2)
    return x * torch.sigmoid(x)


def noisy(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x + torch.rand_like(x))


class Checkpointed(nn.Module):
    """One that is called again on the way back."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def network(activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), activation, nn.Linear(6, 3)).to(DTYPE)


def gradients(model: nn.Module, x: Tensor, cotangents: Tensor) -> tuple[Trace, Tensor | None]:
    seen = trace(model, Batch((x,), {}, None, len(x)), ["0", "2"])
    return seen, backpropagate(seen.y, [seen.calls[0].output_edge], cotangents)[0]


def operations(y: Tensor) -> list[str]:
    """Names of what autograd will go through."""
    names, stack = [], [y.grad_fn]
    while stack:
        node = stack.pop()
        names.append(node.name())
        stack += [below for below, _ in node.next_functions if below is not None]
    return names


def expected(model: nn.Sequential, x: Tensor, cotangents: Tensor) -> Tensor:
    h = model[0](x)
    y = model[2](model[1](h.clone()))
    return torch.stack([torch.autograd.grad(y, h, v, retain_graph=True)[0] for v in cotangents])


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(5, 4, dtype=DTYPE), torch.randn(7, 5, 3, dtype=DTYPE)


@pytest.mark.parametrize(
    "function", [gelu, lambda x: x * torch.sigmoid(1.702 * x), lambda x: torch.where(x > 0, x, x.exp() - 1)]
)
@pytest.mark.parametrize("around", [lambda inner: inner, Checkpointed])
def test_attaches_an_activation_of_several_operations_by_its_derivative(
    function: Callable[[Tensor], Tensor], around: Callable[[nn.Module], nn.Module], data: tuple[Tensor, Tensor]
) -> None:
    x, cotangents = data
    model = network(around(Written(function)))
    seen, found = gradients(model, x, cotangents)
    names = operations(seen.y)
    assert "_ScaledBackward" in names
    assert not {"TanhBackward0", "SigmoidBackward0", "WhereBackward0"} & set(names)
    assert torch.equal(seen.y, model(x))
    torch.testing.assert_close(found, expected(model, x, cotangents))
    assert not model[1]._forward_hooks


@pytest.mark.parametrize(
    "activation",
    [Written(softmax), Written(doubled_in_place), Swish(), nn.ReLU(), nn.GELU(), nn.Identity(), nn.Softmax(-1)],
)
def test_leaves_all_others_as_they_are(activation: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    x, cotangents = data
    model = network(activation)
    seen, found = gradients(model, x, cotangents)
    assert "_ScaledBackward" not in operations(seen.y)
    torch.testing.assert_close(found, expected(model, x, cotangents))


def test_leaves_a_random_one_as_it_is(data: tuple[Tensor, Tensor]) -> None:
    x, cotangents = data
    seen, found = gradients(network(Written(noisy)), x, cotangents)
    assert "_ScaledBackward" not in operations(seen.y)
    assert found is not None


def test_may_be_written_to_afterwards(data: tuple[Tensor, Tensor]) -> None:
    x, cotangents = data
    model = network(nn.Sequential(Written(gelu), Written(partial(torch.Tensor.mul_, other=3.0))))
    seen, found = gradients(model, x, cotangents)
    assert "_ScaledBackward" in operations(seen.y)
    torch.testing.assert_close(found, expected(model, x, cotangents))


class Kept(nn.Module):
    """A network whose last layer also reads what an activation kept of its call."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.act = nn.Linear(4, 6), nn.Linear(6, 3), Keeps(function)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x)) + self.act.kept)


class Keeps(Written):
    kept: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.kept = super().forward(x)
        return self.kept


def twice_tanh(x: Tensor) -> Tensor:
    return torch.tanh(2 * x)


@pytest.mark.parametrize("function", [gelu, twice_tanh])
def test_what_an_activation_keeps_of_its_call_is_that_of_the_first(
    function: Callable[[Tensor], Tensor], data: tuple[Tensor, Tensor]
) -> None:
    """Also where what it wrote is saved for the way back."""
    x, cotangents = data
    model = Kept(function).to(DTYPE)
    seen = trace(model, Batch((x,), {}, None, len(x)), ["first", "last"])
    (found,) = backpropagate(seen.y, [seen.calls[0].output_edge], cotangents)
    h = model.first(x)
    y = model.last(2 * function(h))
    want = torch.stack([torch.autograd.grad(y, h, v, retain_graph=True)[0] for v in cotangents])
    torch.testing.assert_close(found, want)
